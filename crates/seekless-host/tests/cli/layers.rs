//! A compressed directory: mounted, killed, checked, repaired.

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Pid, Signal, kill_process};
use seekless_host::testing::{LoopDevice, Need, SmallTmpfs, skip};

use crate::as_disk::{Ext4, can_make_ext4};
use crate::mounts::{daemon, wait_for};
use crate::{Scratch, can_mount};

pub(super) const LINE: &str = "zstd / hostdir:data";

pub(super) fn text(bytes: usize) -> Vec<u8> {
    b"What is repeated takes hardly any space.\n".iter().copied().cycle().take(bytes).collect()
}

/// What cannot be compressed.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    seekless::rng::Rng::new(seed).fill(&mut noise);
    noise
}

/// When the mount below loses its daemon, the layer above gives errors and says what is true: its own daemon lives.
#[test]
fn a_layer_outlives_the_mount_below_it() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.make_directory("below");
    scratch.make_directory("mnt");
    scratch.good(&["mkfs", "-q", "lfs / file:a.img,size=64MiB"]);
    scratch.good(&["mount", "lfs / file:a.img", "below", "--pid-file", "pid"]);
    scratch.make_directory("below/data");
    scratch.good(&["mount", "zstd / hostdir:below/data", "mnt", "--log-file", "log"]);
    scratch.write("mnt/f", "synced");
    scratch.good(&["sync", "mnt"]);
    scratch.write("mnt/g", "not synced");
    kill_process(daemon(&scratch), Signal::KILL).unwrap();
    wait_for("the end below", || std::fs::write(scratch.path("below/new"), "").is_err());
    let error = std::fs::write(scratch.path("mnt/h"), "more").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    let ended = scratch.run(&["sync", "mnt"]);
    assert!(ended.code != 0 && !ended.err.contains("whose daemon is gone"), "{}", ended.err);
    let ended = scratch.run(&["umount", "mnt"]);
    assert!(ended.code != 0 && !ended.err.contains("daemon had died"), "{}", ended.err);
    let _ = scratch.run(&["umount", "--lazy", "mnt"]);
    let _ = scratch.run(&["umount", "--lazy", "below"]);
}

/// Existing files stay as they are, new ones take less space, and synced data survives SIGKILL.
#[test]
fn a_directory_is_compressed() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.make_directory("data");
    scratch.make_directory("mnt");
    scratch.write("data/old", "it was here before");
    scratch.good(&["mount", LINE, "mnt", "--pid-file", "pid"]);
    let content = text(3_000_000);
    scratch.write("mnt/new", &content);
    scratch.make_directory("mnt/d");
    for number in 0..50 {
        scratch.write(&format!("mnt/d/{number}"), text(number * 1_000));
    }
    assert_eq!(std::fs::read(scratch.path("mnt/old")).unwrap(), b"it was here before");
    scratch.good(&["sync", "mnt"]);
    let below = std::fs::metadata(scratch.path("data/new")).unwrap().len();
    assert!(below < 100_000, "{below} bytes");
    scratch.write("mnt/later", "this may be lost");
    let pid = std::fs::read_to_string(scratch.path("pid")).unwrap();
    kill_process(Pid::from_raw(pid.trim().parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    let begun = Instant::now();
    while std::fs::metadata(scratch.path("mnt")).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(30), "no sign of its end");
        std::thread::sleep(Duration::from_millis(10));
    }
    scratch.good(&["umount", "--lazy", "mnt"]);
    let checked = scratch.good(&["fsck", "-n", LINE]);
    assert!(checked.contains("clean"), "{checked}");
    assert!(checked.contains("1 file was not written by `zstd`") || checked.contains("2 files"), "{checked}");
    // Another word reads it, too.
    scratch.good(&["mount", "lz4 / hostdir:data", "mnt"]);
    assert!(std::fs::read(scratch.path("mnt/new")).unwrap() == content);
    for number in 0..50 {
        assert!(std::fs::read(scratch.path(&format!("mnt/d/{number}"))).unwrap() == text(number * 1_000));
    }
    assert_eq!(std::fs::read(scratch.path("mnt/old")).unwrap(), b"it was here before");
    scratch.good(&["umount", "mnt"]);
}

/// Where a mount of ours is below a layer, in ways that the kernel does not sync as a whole.
#[derive(Clone, Copy, Debug)]
enum Below {
    Directory,
    Inside,
    Overlay,
}

impl Below {
    /// The layer's directory; the mount is at `around/below`.
    fn leaf(self, round: usize) -> String {
        match self {
            Below::Directory => format!("hostdir:around/below/{round}"),
            Below::Inside => "hostdir:around,submounts=on".to_owned(),
            Below::Overlay => "hostdir:merged".to_owned(),
        }
    }

    /// Where the layer's mount shows what is stored in the other.
    fn shown(self, round: usize) -> String {
        match self {
            Below::Inside => format!("mnt/below/{round}"),
            _ => "mnt".to_owned(),
        }
    }
}

/// Mounts an overlay at `merged`; whether that was possible.
fn mount_overlay(scratch: &Scratch, upper: &str, work: &str) -> bool {
    let at = |name: &str| scratch.path(name).display().to_string();
    let options = format!("lowerdir={},upperdir={},workdir={}", at("lower"), at(upper), at(work));
    let options = std::ffi::CString::new(options).unwrap();
    let mounted = mount("overlay", scratch.path("merged"), "overlay", MountFlags::empty(), &*options);
    if let Err(error) = &mounted {
        skip(Need::Overlay, format_args!("this kernel does not mount an overlay here: {error}"));
    }
    mounted.is_ok()
}

/// Aim: what a layer says is durable is, also above or around another mount of ours, which the kernel does not sync as a
/// whole. Method: both ways of saying so and several layers; then the daemon below is killed.
#[test]
fn what_is_synced_above_another_mount_is_durable() {
    if !can_mount() {
        return;
    }
    for (below, layers) in [
        (Below::Directory, &["zstd", "wrap", "copy:index=classic"][..]),
        (Below::Inside, &["zstd", "wrap"]),
        (Below::Overlay, &["zstd"]),
    ] {
        what_is_synced_is_durable(below, layers);
    }
}

fn what_is_synced_is_durable(below: Below, layers: &[&str]) {
    let scratch = Scratch::new();
    for name in ["around", "around/below", "lower", "merged", "mnt"] {
        scratch.make_directory(name);
    }
    scratch.good(&["mkfs", "lfs / file:a.img,size=64MiB"]);
    let mount_below = |round: usize| {
        scratch.good(&["mount", "lfs / file:a.img", "around/below", "--pid-file", "pid"]);
        let _ = std::fs::create_dir(scratch.path(&format!("around/below/{round}")));
        let _ = std::fs::create_dir(scratch.path(&format!("around/below/{round}-work")));
        scratch.good(&["sync", "around/below"]);
        let (upper, work) = (format!("around/below/{round}"), format!("around/below/{round}-work"));
        !matches!(below, Below::Overlay) || mount_overlay(&scratch, &upper, &work)
    };
    let unmount_below = |lazily: bool| {
        if matches!(below, Below::Overlay) {
            unmount(scratch.path("merged"), UnmountFlags::DETACH).unwrap();
        }
        match lazily {
            true => drop(scratch.run(&["umount", "--lazy", "around/below"])),
            false => drop(scratch.good(&["umount", "around/below"])),
        }
    };
    for (round, (layer, said)) in
        layers.iter().flat_map(|layer| ["sync", "umount"].map(|said| (layer, said))).enumerate()
    {
        if !mount_below(round) {
            scratch.good(&["umount", "around/below"]);
            return;
        }
        let line = format!("{layer} / {}", below.leaf(round));
        let shown = below.shown(round);
        scratch.good(&["mount", &line, "mnt"]);
        scratch.make_directory(&format!("{shown}/d"));
        for number in 0..20 {
            scratch.write(&format!("{shown}/d/{number}"), text(number * 3_000));
        }
        std::fs::remove_file(scratch.path(&format!("{shown}/d/3"))).unwrap();
        std::fs::rename(scratch.path(&format!("{shown}/d/4")), scratch.path(&format!("{shown}/four"))).unwrap();
        scratch.good(&[said, "mnt"]);
        kill_process(daemon(&scratch), Signal::KILL).unwrap();
        wait_for("its end", || std::fs::write(scratch.path("around/below/probe"), "").is_err());
        if said == "sync" {
            let _ = scratch.run(&["umount", "mnt"]);
        }
        unmount_below(true);
        assert!(mount_below(round));
        scratch.good(&["mount", &line, "mnt"]);
        for number in (0..20).filter(|number| *number != 3) {
            let name = if number == 4 { format!("{shown}/four") } else { format!("{shown}/d/{number}") };
            let read = std::fs::read(scratch.path(&name));
            assert!(read.is_ok_and(|read| read == text(number * 3_000)), "{below:?}, {layer}, {said}: {name}");
        }
        let gone = |name: &str| !scratch.path(&format!("{shown}/d/{name}")).exists();
        assert!(gone("3") && gone("4"), "{below:?}, {layer}, {said}");
        scratch.good(&["umount", "mnt"]);
        unmount_below(false);
    }
}

/// Aim: what is written to a file system of the kernel inside of a directory is durable when that is said, also where the kernel writes
/// it past the daemon. Method: ext4 that commits late, in an image that is copied at that moment; a file that exists, and one that
/// is open over two syncs.
#[test]
fn mounts_inside_of_a_directory_are_synced() {
    if !can_make_ext4() {
        return;
    }
    for layer in ["", "wrap / ", "zstd / "] {
        let scratch = Scratch::new();
        for name in ["low", "low/sub", "mnt"] {
            scratch.make_directory(name);
        }
        std::fs::File::create(scratch.path("image")).unwrap().set_len(48 << 20).unwrap();
        let Some(device) = LoopDevice::attach(&scratch.path("image"), 512) else { return };
        Ext4::make(&device, &[]);
        let inside = Ext4::mount_at(&scratch, device, "commit=300", "low/sub");
        let line = format!("{layer}hostdir:low,submounts=on");
        let noise = |seed: u64| noise(seed, 300_000);
        scratch.good(&["mount", &line, "mnt"]);
        scratch.write("mnt/sub/old", noise(1));
        scratch.good(&["umount", "mnt"]);
        scratch.good(&["mount", &line, "mnt"]);
        let old = std::fs::OpenOptions::new().write(true).open(scratch.path("mnt/sub/old")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&old, &noise(2), 0).unwrap();
        drop(old);
        let mut new = std::fs::File::create(scratch.path("mnt/sub/new")).unwrap();
        scratch.good(&["sync", "mnt"]);
        std::io::Write::write_all(&mut new, &noise(3)).unwrap();
        scratch.good(&["sync", "mnt"]);
        std::fs::copy(scratch.path("image"), scratch.path("image.cut")).unwrap();
        drop(new);
        scratch.good(&["umount", "mnt"]);
        drop(inside.unmount());
        let Some(device) = LoopDevice::attach(&scratch.path("image.cut"), 512) else { return };
        let inside = Ext4::mount_at(&scratch, device, "rw", "low/sub");
        scratch.good(&["mount", &line, "mnt"]);
        assert!(std::fs::read(scratch.path("mnt/sub/old")).unwrap() == noise(2), "{layer}");
        assert!(std::fs::read(scratch.path("mnt/sub/new")).unwrap() == noise(3), "{layer}");
        scratch.good(&["umount", "mnt"]);
        drop(inside.unmount());
    }
}

/// Aim: two names of a file below an overlay are two files once one of them is changed, as in the overlay itself. Method: files
/// changed through either name first, appended to or written from the start, looked at before and not; compared with the overlay alone
/// and after another mount.
#[test]
fn links_below_an_overlay_part_when_they_are_changed() {
    if !can_mount() {
        return;
    }
    for layer in ["wrap", "zstd"] {
        let scratch = Scratch::new();
        for name in ["lower", "upper", "work", "merged", "mnt"] {
            scratch.make_directory(name);
        }
        for number in 0..10 {
            scratch.write(&format!("lower/a{number}"), text(30_000));
            let at = |name: &str| scratch.path(&format!("lower/{name}{number}"));
            std::fs::hard_link(at("a"), at("b")).unwrap();
        }
        if !mount_overlay(&scratch, "upper", "work") {
            return;
        }
        let line = format!("{layer} / hostdir:merged");
        scratch.good(&["mount", &line, "mnt"]);
        let mut expected = Vec::new();
        for number in 0..8 {
            let (first, second) = if number & 1 == 0 { ("a", "b") } else { ("b", "a") };
            let (first, second) = (format!("mnt/{first}{number}"), format!("mnt/{second}{number}"));
            if number & 2 == 0 {
                assert!(std::fs::read(scratch.path(&second)).unwrap() == text(30_000));
            }
            let change = |name: &str, tail: &str| {
                let mut options = std::fs::OpenOptions::new();
                match number & 4 {
                    0 => options.append(true),
                    _ => options.write(true).truncate(true),
                };
                // The first change may have parted them the other way round.
                let open = || options.open(scratch.path(name));
                let mut file = open().or_else(|_| open()).unwrap_or_else(|error| panic!("{layer}, {name}: {error}"));
                std::io::Write::write_all(&mut file, tail.as_bytes()).unwrap();
                file.sync_all().unwrap();
                let before = if number & 4 == 0 { text(30_000) } else { Vec::new() };
                (name.to_owned(), [&before, tail.as_bytes()].concat())
            };
            expected.push(change(&first, "first"));
            if number & 2 == 0 {
                expected.push(change(&second, "second"));
            } else {
                expected.push((second, text(30_000)));
            }
        }
        // One of two names is removed or renamed: the other one goes on.
        let read = |name: &str| std::fs::read(scratch.path(name)).unwrap();
        assert!(read("mnt/a8") == text(30_000) && read("mnt/b8") == text(30_000) && read("mnt/a8") == text(30_000));
        std::fs::remove_file(scratch.path("mnt/a8")).unwrap();
        let more = |name: &str| {
            let mut append = std::fs::OpenOptions::new();
            append.append(true);
            let open = || append.open(scratch.path(name));
            let mut file = open().or_else(|_| open()).unwrap();
            std::io::Write::write_all(&mut file, b"more").unwrap();
        };
        more("mnt/b8");
        expected.push(("mnt/b8".to_owned(), [&*text(30_000), b"more"].concat()));
        let reader = std::fs::File::open(scratch.path("mnt/a9")).unwrap();
        assert!(read("mnt/b9") == text(30_000));
        std::fs::rename(scratch.path("mnt/a9"), scratch.path("mnt/c9")).unwrap();
        more("mnt/c9");
        drop(reader);
        expected.push(("mnt/c9".to_owned(), [&*text(30_000), b"more"].concat()));
        expected.push(("mnt/b9".to_owned(), text(30_000)));
        let compare = |when: &str| {
            for (name, content) in &expected {
                assert!(std::fs::read(scratch.path(name)).unwrap() == *content, "{layer}: {name} {when}");
            }
        };
        compare("at once");
        scratch.good(&["umount", "mnt"]);
        scratch.good(&["mount", &line, "mnt"]);
        compare("after another mount");
        scratch.good(&["umount", "mnt"]);
        unmount(scratch.path("merged"), UnmountFlags::empty()).unwrap();
    }
}

/// A check looks at every file, also where a directory lists equal numbers for different files, as an overlay of two file systems does.
#[test]
fn a_check_looks_at_files_that_are_listed_with_one_number() {
    if !can_mount() {
        return;
    }
    for line in ["zstd / hostdir:", "gzip:index=classic / hostdir:"] {
        let scratch = Scratch::new();
        for name in ["one", "two", "merged", "mnt"] {
            scratch.make_directory(name);
        }
        let Some(_one) = SmallTmpfs::mount(&scratch.path("one"), 4 << 20) else { return };
        let Some(_two) = SmallTmpfs::mount(&scratch.path("two"), 4 << 20) else { return };
        for name in ["one/lower", "two/upper", "two/work"] {
            scratch.make_directory(name);
        }
        for directory in ["one/lower", "two/upper"] {
            scratch.good(&["mount", &format!("{line}{directory}"), "mnt"]);
            for number in 0..8 {
                scratch.write(&format!("mnt/{}-{number}", &directory[..3]), text(10_000));
            }
            scratch.good(&["umount", "mnt"]);
        }
        let at = |name: &str| scratch.path(name).display().to_string();
        let (lower, upper, work) = (at("one/lower"), at("two/upper"), at("two/work"));
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work},xino=off");
        let options = std::ffi::CString::new(options).unwrap();
        if let Err(error) = mount("overlay", scratch.path("merged"), "overlay", MountFlags::empty(), &*options) {
            return skip(Need::Overlay, format_args!("this kernel does not mount an overlay here: {error}"));
        }
        let said = scratch.good(&["fsck", "-n", &format!("{line}merged")]);
        unmount(scratch.path("merged"), UnmountFlags::empty()).unwrap();
        assert!(said.contains("clean (files 16,"), "{said}");
    }
}

/// A write beyond the limit on the size of files is an error of that write, and not the end of the daemon.
#[test]
fn a_limit_on_the_size_of_files_kills_no_daemon() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.make_directory("data");
    scratch.make_directory("mnt");
    let mut limited = std::process::Command::new("sh");
    limited.current_dir(scratch.path(".")).args(["-c", "ulimit -f 2000; exec \"$0\" mount \"$1\" mnt"]);
    limited.args([env!("CARGO_BIN_EXE_seekless"), "copy / hostdir:data"]);
    assert!(limited.stdout(std::process::Stdio::null()).status().unwrap().success());
    scratch.write("mnt/other", "not synced yet");
    let large = std::fs::File::create(scratch.path("mnt/large")).unwrap();
    let written = std::io::Write::write_all(&mut &large, &text(5_000_000)).and_then(|()| large.sync_all());
    written.expect_err("it is larger than the limit");
    assert_eq!(std::fs::read(scratch.path("mnt/other")).unwrap(), b"not synced yet");
    drop(large);
    let _ = scratch.run(&["umount", "mnt"]);
    scratch.good(&["mount", "copy / hostdir:data", "mnt"]);
    assert_eq!(std::fs::read(scratch.path("mnt/other")).unwrap(), b"not synced yet");
    scratch.good(&["umount", "mnt"]);
}

/// A mount of `line` whose daemon may have 40 files open.
fn with_few_files(line: &str) -> Scratch {
    let scratch = Scratch::new();
    scratch.make_directory("data");
    scratch.make_directory("mnt");
    let mut limited = std::process::Command::new("sh");
    limited.current_dir(scratch.path(".")).args(["-c", "ulimit -n 40; exec \"$0\" mount \"$1\" mnt"]);
    limited.args([env!("CARGO_BIN_EXE_seekless"), line]);
    assert!(limited.stdout(std::process::Stdio::null()).status().unwrap().success());
    scratch
}

/// Whatever limit on open files a mount meets while it begins, it works, or leaves nothing mounted.
#[test]
fn a_mount_without_files_leaves_nothing_behind() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return; // Without a file to spare nothing can ask the helper to unmount.
    }
    let scratch = Scratch::new();
    scratch.make_directory("data");
    scratch.make_directory("mnt");
    scratch.good(&["mkfs", "lfs / file:a.img,size=64MiB"]);
    let (mut refused, mut mounted) = (0, 0);
    for line in ["lfs / file:a.img", "hostdir:data"] {
        for limit in 8..34 {
            let mut limited = std::process::Command::new("sh");
            limited
                .current_dir(scratch.path("."))
                .args(["-c", "ulimit -n $2; exec \"$0\" mount \"$1\" mnt --pid-file pid"]);
            limited.args([env!("CARGO_BIN_EXE_seekless"), line, &limit.to_string()]);
            limited.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
            if limited.status().unwrap().success() {
                mounted += 1;
                scratch.good(&["umount", "mnt"]);
            } else {
                refused += 1;
                let left = std::fs::read_dir(scratch.path("mnt"));
                assert!(
                    left.is_ok_and(|mut entries| entries.next().is_none()),
                    "{line}, {limit} files: a dead mount is left"
                );
            }
        }
    }
    assert!(refused > 5 && mounted > 5, "{refused} refused, {mounted} mounted");
}

/// Aim: where there are not even enough files for what programs do at once, they get `EMFILE` and nothing else: what loses its name is not
/// lost with it, and everything is durable at the end. Method: three programs that rewrite, sync, rename and remove, over two layers.
#[test]
fn a_lack_of_files_stops_nothing() {
    const EMFILE: i32 = 24;
    if !can_mount() {
        return;
    }
    let scratch = with_few_files("zstd / lz4 / hostdir:data");
    let program = |number: u64| {
        let mut rng = seekless::rng::Rng::new(number);
        let directory = scratch.path(&format!("mnt/{number}"));
        let _ = std::fs::create_dir(&directory);
        let mut held = Vec::new();
        let end = Instant::now() + Duration::from_secs(4);
        while Instant::now() < end {
            let mut name = || directory.join(format!("f{}", rng.below(40)));
            let (one, other) = (name(), name());
            let done = match rng.below(20) {
                0..10 => std::fs::File::create(one).and_then(|mut file| {
                    std::io::Write::write_all(
                        &mut file,
                        &vec![number as u8; [10, 500, 5_000, 70_000][rng.below(4) as usize]],
                    )?;
                    match rng.below(2) {
                        0 => file.sync_all().and_then(|()| std::fs::File::open(&directory)?.sync_all()),
                        _ => Ok(()),
                    }
                }),
                10 | 11 => std::fs::remove_file(one),
                12 | 13 => std::fs::rename(one, other),
                14 | 15 if held.len() < 4 => std::fs::File::options().write(true).open(one).map(|file| held.push(file)),
                16 => {
                    held.pop();
                    Ok(())
                }
                17 => std::fs::File::options().write(true).open(one).and_then(|file| file.set_len(5)),
                _ => std::fs::read(one).map(drop),
            };
            let is_expected = |error: &std::io::Error| {
                error.kind() == std::io::ErrorKind::NotFound || error.raw_os_error() == Some(EMFILE)
            };
            assert!(done.as_ref().err().is_none_or(is_expected), "{done:?}");
        }
    };
    std::thread::scope(|threads| {
        let program = &program;
        let programs: Vec<_> = (0..3).map(|number| threads.spawn(move || program(number))).collect();
        programs.into_iter().for_each(|program| program.join().unwrap());
    });
    scratch.good(&["sync", "mnt"]);
    scratch.good(&["umount", "mnt"]);
}

/// Aim: a file that cannot be made for lack of descriptors is not there, and neither is a directory or a link. Method: programs that hold
/// ever more files open, until each call fails.
#[test]
fn what_cannot_be_made_is_not_there() {
    if !can_mount() {
        return;
    }
    let scratch = with_few_files("wrap / hostdir:data");
    std::fs::write(scratch.path("data/old"), "").unwrap();
    let (mut held, mut failed) = (Vec::new(), 0);
    for number in 0..60 {
        let name =
            |kind: &str| (scratch.path(&format!("mnt/{kind}{number}")), scratch.path(&format!("data/{kind}{number}")));
        let mut note = |kind: &str, is_made: bool| {
            assert_eq!(name(kind).1.symlink_metadata().is_ok(), is_made, "{kind} {number}, after {failed} that failed");
            failed += usize::from(!is_made);
        };
        note("d", std::fs::create_dir(name("d").0).is_ok());
        note("s", std::os::unix::fs::symlink("old", name("s").0).is_ok());
        note("l", std::fs::hard_link(scratch.path("mnt/old"), name("l").0).is_ok());
        let file = std::fs::File::create_new(name("f").0);
        note("f", file.is_ok());
        held.extend(file);
    }
    assert!(failed > 10 && held.len() > 10, "{failed} failed, {} made", held.len());
    drop(held);
    scratch.good(&["umount", "mnt"]);
}

/// A change that would make a plain file an encoded one is refused, and the log says so, once, however often it is tried: where the kernel
/// writes it back later, the program sees no error.
#[test]
fn refused_changes_are_logged() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    for name in ["data", "other", "mnt"] {
        scratch.make_directory(name);
    }
    scratch.good(&["mount", "zstd / hostdir:other", "mnt"]);
    scratch.write("mnt/f", text(30_000));
    scratch.good(&["umount", "mnt"]);
    let encoded = std::fs::read(scratch.path("other/f")).unwrap();
    for number in 0..3 {
        scratch.write(&format!("data/plain{number}"), text(5_000));
    }
    scratch.good(&["mount", LINE, "mnt", "--log-file", "log"]);
    for number in 0..60 {
        let file =
            std::fs::File::options().write(true).open(scratch.path(&format!("mnt/plain{}", number % 3))).unwrap();
        let _ = file.write_all_at(&encoded, 0).and_then(|()| file.sync_all());
    }
    scratch.good(&["umount", "mnt"]);
    let log = std::fs::read_to_string(scratch.path("log")).unwrap();
    assert_eq!(log.matches("refused: with this change").count(), 1, "{log}");
}

/// With a write-back cache in the kernel, files that are opened for writing alone can be appended to and changed in part.
#[test]
fn writes_alone_go_through_a_write_back_cache() {
    if !can_mount() {
        return;
    }
    for stack in ["hostdir:data", "wrap / hostdir:data", "zstd / hostdir:data", "copy:index=classic / hostdir:data"] {
        let scratch = Scratch::new();
        scratch.make_directory("data");
        scratch.make_directory("mnt");
        scratch.good(&["mount", stack, "mnt"]);
        scratch.write("mnt/f", "start\n");
        scratch.good(&["umount", "mnt"]);
        scratch.good(&["mount", stack, "mnt", "-o", "writeback"]);
        let mut options = std::fs::OpenOptions::new();
        let mut appended = options.append(true).open(scratch.path("mnt/f")).unwrap();
        let mut other = options.open(scratch.path("mnt/f")).unwrap();
        for line in 0..1000 {
            let file = if line % 3 == 0 { &mut other } else { &mut appended };
            std::io::Write::write_all(file, format!("line {line}\n").as_bytes()).unwrap();
            if line % 400 == 399 {
                file.sync_data().unwrap();
            }
        }
        let changed = std::fs::File::options().write(true).open(scratch.path("mnt/f")).unwrap();
        changed.write_at(b"X", 3).unwrap();
        drop((appended, other, changed));
        let lines: String = (0..1000).map(|line| format!("line {line}\n")).collect();
        let expected = format!("staXt\n{lines}");
        assert_eq!(std::fs::read_to_string(scratch.path("mnt/f")).unwrap(), expected, "{stack}");
        scratch.good(&["umount", "mnt"]);
        scratch.good(&["mount", stack, "mnt"]);
        assert_eq!(std::fs::read_to_string(scratch.path("mnt/f")).unwrap(), expected, "{stack}, after another mount");
        scratch.good(&["umount", "mnt"]);
    }
}

/// Aim: a layer on a host where few files may be open at once serves many new files, which wait for their write-back, and syncs
/// them. Method: four times as many files as the limit, on a directory and on an overlay, where what was changed stays open.
#[test]
fn few_files_may_be_open() {
    if !can_mount() {
        return;
    }
    for (layer, below) in [("zstd", "upper"), ("copy / gzip", "upper"), ("zstd", "merged"), ("wrap", "merged")] {
        let scratch = Scratch::new();
        for name in ["lower", "upper", "work", "merged", "mnt"] {
            scratch.make_directory(name);
        }
        if below == "merged" && !mount_overlay(&scratch, "upper", "work") {
            return;
        }
        let line = format!("{layer} / hostdir:{below}");
        let mut limited = std::process::Command::new("sh");
        limited.current_dir(scratch.path(".")).args(["-c", "ulimit -n 128; exec \"$0\" mount \"$1\" mnt"]);
        limited.args([env!("CARGO_BIN_EXE_seekless"), &line]);
        assert!(limited.stdout(std::process::Stdio::null()).status().unwrap().success());
        let name = |number: usize| format!("mnt/f{number}");
        (0..512).for_each(|number| scratch.write(&name(number), format!("content {number}")));
        let compare = |when: &str| {
            for number in 0..512 {
                let found = std::fs::read_to_string(scratch.path(&name(number)));
                assert_eq!(found.ok(), Some(format!("content {number}")), "{line}: {number} {when}");
            }
        };
        compare("at once");
        scratch.good(&["sync", "mnt"]);
        scratch.good(&["umount", "mnt"]);
        scratch.good(&["mount", &line, "mnt"]);
        compare("after another mount");
        scratch.good(&["umount", "mnt"]);
        if below == "merged" {
            unmount(scratch.path("merged"), UnmountFlags::empty()).unwrap();
        }
    }
}

/// Aim: where the host could not write once and forgot what it had, every sync until the unmount says so, and the unmount.
/// Method: ext4 in a sparse image on a full tmpfs, which then has room again.
#[test]
fn a_host_that_could_not_write_once_is_reported_ever_after() {
    if !can_make_ext4() {
        return;
    }
    for layer in ["zstd", "wrap", "copy:index=classic"] {
        let scratch = Scratch::new();
        for name in ["full", "mnt"] {
            scratch.make_directory(name);
        }
        let Some(_tmpfs) = SmallTmpfs::mount(&scratch.path("full"), 24 << 20) else { return };
        std::fs::File::create(scratch.path("full/image")).unwrap().set_len(64 << 20).unwrap();
        let Some(device) = LoopDevice::attach(&scratch.path("full/image"), 4096) else { return };
        Ext4::make(&device, &["-O", "^has_journal", "-E", "nodiscard,lazy_itable_init=0"]);
        let ext4 = Ext4::mount(&scratch, device, "rw");
        let line = format!("{layer} / hostdir:ext4");
        scratch.good(&["mount", &line, "mnt"]);
        scratch.write("mnt/old", "synced before");
        scratch.good(&["sync", "mnt"]);
        let _ = std::fs::write(scratch.path("full/ballast"), vec![1; 24 << 20]);
        let noise = noise(1, 2_000_000);
        (0..4).for_each(|number| scratch.write(&format!("mnt/{number}"), &noise));
        assert_ne!(scratch.run(&["sync", "mnt"]).code, 0, "{layer}");
        std::fs::remove_file(scratch.path("full/ballast")).unwrap();
        for _ in 0..2 {
            let again = scratch.run(&["sync", "mnt"]);
            assert!(again.code != 0 && again.err.contains("stopped after an error"), "{layer}: {}", again.err);
        }
        let ended = scratch.run(&["umount", "mnt"]);
        assert!(ended.code != 0 && ended.err.contains("not everything is durable"), "{layer}: {}", ended.err);
        // Mounted again, it tells what is there and takes changes.
        scratch.good(&["mount", &line, "mnt"]);
        assert_eq!(std::fs::read(scratch.path("mnt/old")).unwrap(), b"synced before");
        scratch.write("mnt/new", &noise);
        scratch.good(&["sync", "mnt"]);
        scratch.good(&["umount", "mnt"]);
        drop(ext4.unmount());
    }
}

/// A file that replaces another, by a rename or by being rewritten, is there with the old or the new content after
/// SIGKILL, without any sync.
#[test]
fn what_is_replaced_survives_sigkill() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.make_directory("data");
    scratch.make_directory("mnt");
    let content = |version: usize| format!("version {version}\n").repeat(200 + 700 * version);
    for round in 0..4 {
        scratch.good(&["mount", LINE, "mnt", "--pid-file", "pid"]);
        for name in ["renamed", "rewritten"] {
            scratch.write(&format!("mnt/{name}"), content(0));
        }
        scratch.good(&["sync", "mnt"]);
        for version in 1..=round + 1 {
            scratch.write("mnt/new", content(version));
            std::fs::rename(scratch.path("mnt/new"), scratch.path("mnt/renamed")).unwrap();
            scratch.write("mnt/rewritten", content(version));
        }
        let pid = std::fs::read_to_string(scratch.path("pid")).unwrap();
        kill_process(Pid::from_raw(pid.trim().parse().unwrap()).unwrap(), Signal::KILL).unwrap();
        let begun = Instant::now();
        while std::fs::metadata(scratch.path("mnt")).is_ok() {
            assert!(begun.elapsed() < Duration::from_secs(30), "no sign of its end");
            std::thread::sleep(Duration::from_millis(10));
        }
        scratch.good(&["umount", "--lazy", "mnt"]);
        assert!(scratch.good(&["fsck", "-n", LINE]).contains("clean"));
        scratch.good(&["mount", LINE, "mnt"]);
        let renamed = std::fs::read_to_string(scratch.path("mnt/renamed")).unwrap();
        assert!(renamed == content(round + 1), "{} bytes", renamed.len());
        // Its release may still have been on its way.
        let rewritten = std::fs::read_to_string(scratch.path("mnt/rewritten")).unwrap();
        assert!((0..=round + 1).any(|version| rewritten == content(version)), "{} bytes", rewritten.len());
        scratch.good(&["umount", "mnt"]);
    }
}

/// A damaged file gives a clear error; where its records are intact, the check makes a new index.
#[test]
fn damage_is_found_and_mended() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.make_directory("data");
    scratch.make_directory("mnt");
    scratch.good(&["mount", LINE, "mnt"]);
    scratch.write("mnt/f", text(100_000));
    scratch.write("mnt/g", text(100_000));
    scratch.good(&["umount", "mnt"]);
    for (name, at) in [("f", 600), ("g", 1_100)] {
        let path = scratch.path(&format!("data/{name}"));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    let ended = scratch.run(&["fsck", "-n", LINE]);
    assert_eq!(ended.code, 4, "{}", ended.out);
    assert!(ended.out.contains("/f: slot 1: ") && ended.out.contains("/g: bytes 0 to 32768 are lost"), "{}", ended.out);
    let ended = scratch.run(&["fsck", LINE]);
    assert_eq!(ended.code, 4, "{}", ended.out);
    assert!(ended.out.contains("(repaired)"), "{}", ended.out);
    scratch.good(&["mount", LINE, "mnt"]);
    assert!(std::fs::read(scratch.path("mnt/f")).unwrap() == text(100_000));
    assert_eq!(std::fs::read(scratch.path("mnt/g")).unwrap_err().raw_os_error(), Some(117)); // EUCLEAN
    scratch.good(&["umount", "mnt"]);
}

/// Encrypted data cannot be read without the key, and normally with it; a passphrase protects the key.
#[test]
fn a_directory_is_encrypted() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.make_directory("data");
    scratch.make_directory("mnt");
    scratch.write("word", "open sesame\n");
    scratch.good(&["key", "a.key"]);
    scratch.good(&["key", "b.key", "--from", "a.key", "--passphrase", "word"]);
    assert_eq!(scratch.run(&["key", "a.key"]).code, 1, "it is not written over");
    let content = text(200_000);
    scratch.good(&["mount", "encrypt:a.key / hostdir:data", "mnt"]);
    scratch.write("mnt/f", &content);
    scratch.good(&["umount", "mnt"]);
    let below = std::fs::read(scratch.path("data/f")).unwrap();
    assert!(!below.windows(8).any(|window| window == &content[..8]));
    scratch.good(&["mount", "encrypt:b.key,passphrase=word / hostdir:data", "mnt"]);
    assert!(std::fs::read(scratch.path("mnt/f")).unwrap() == content);
    scratch.good(&["umount", "mnt"]);
    assert!(scratch.good(&["fsck", "encrypt:a.key / hostdir:data"]).contains("clean"));
    let ended = scratch.run(&["mount", "encrypt:b.key / hostdir:data", "mnt"]);
    assert!(ended.code != 0 && ended.err.contains("passphrase=FILE"), "{}", ended.err);
    scratch.good(&["key", "c.key"]);
    // The directory records its key, and that it has one: it is refused with any other stack, for any purpose.
    for line in ["encrypt:c.key / hostdir:data", "zstd / hostdir:data", "gzip:index=classic / hostdir:data"] {
        let wanted = if line.starts_with("encrypt") { "another key" } else { "encrypted" };
        let wanted = if line.contains("classic") { "index=classic" } else { wanted };
        let (mount, fsck) = (scratch.run(&["mount", line, "mnt"]), scratch.run(&["fsck", line]));
        for ended in [mount, fsck] {
            assert!(ended.code != 0 && ended.err.contains(wanted), "{line}: {}{}", ended.out, ended.err);
        }
    }
    scratch.make_directory("other");
    scratch.good(&["mount", "zstd / hostdir:other", "mnt"]);
    scratch.write("mnt/f", &content);
    scratch.good(&["umount", "mnt"]);
    let ended = scratch.run(&["mount", "encrypt:a.key / hostdir:other", "mnt"]);
    assert!(ended.code != 0 && ended.err.contains("seekless unpack"), "{}", ended.err);
    scratch.good(&["unpack", "zstd / hostdir:other"]);
    scratch.good(&["pack", "encrypt:a.key / hostdir:other"]);
    scratch.good(&["mount", "encrypt:a.key / hostdir:other", "mnt"]);
    assert!(std::fs::read(scratch.path("mnt/f")).unwrap() == content);
    scratch.good(&["umount", "mnt"]);
}

/// Files in the format of [za01], through a mount: the index is stored beside the file and is hidden.
#[test]
fn the_published_scheme_works() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.make_directory("data");
    scratch.make_directory("mnt");
    let line = "gzip:level=9,index=classic / hostdir:data";
    scratch.good(&["mount", line, "mnt"]);
    scratch.write("mnt/f", text(300_000));
    scratch.good(&["umount", "mnt"]);
    assert!(std::fs::metadata(scratch.path("data/f.idx")).unwrap().len() > 8);
    std::fs::remove_file(scratch.path("data/f.idx")).unwrap();
    scratch.good(&["mount", line, "mnt"]);
    assert!(std::fs::read(scratch.path("mnt/f")).unwrap() == text(300_000));
    assert_eq!(std::fs::read_dir(scratch.path("mnt")).unwrap().count(), 1);
    scratch.good(&["umount", "mnt"]);
    assert!(scratch.good(&["fsck", line]).contains("clean"));
    let ended = scratch.run(&["pack", line]);
    assert!(ended.code != 0 && ended.err.contains("index=log"), "{}", ended.err);
}
