//! Mounting from the command line: the daemon comes, serves, dies and comes again.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Scratch, can_mount};

pub(crate) const LINE: &str = "lfs / file:a.img";

/// A directory with an image of an empty file system and a mount point.
pub(crate) fn prepared() -> Scratch {
    let scratch = Scratch::new();
    scratch.good(&["mkfs", "-q", "lfs / file:a.img,size=64MiB"]);
    scratch.make_directory("mnt");
    scratch
}

pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(30), "no sign of {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until the program says something on its error output, and returns how that begins.
pub(crate) fn await_word(child: &mut Child) -> u8 {
    let mut said = [0];
    child.stderr.as_mut().unwrap().read_exact(&mut said).unwrap();
    said[0]
}

pub(crate) fn daemon(scratch: &Scratch) -> Pid {
    let text = std::fs::read_to_string(scratch.path("pid")).unwrap();
    Pid::from_raw(text.trim().parse().unwrap()).unwrap()
}

/// A file in memory, shared with it.
pub(crate) struct Mapping {
    place: *mut u8,
    bytes: usize,
}

impl Mapping {
    pub(crate) fn new(file: &File, bytes: usize) -> Mapping {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses the place, so that nothing else of this process is replaced.
        let place = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert_ne!(place, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Mapping { place: place.cast(), bytes }
    }

    pub(crate) fn store(&mut self, at: usize, value: u8) {
        assert!(at < self.bytes);
        // SAFETY: `at` is inside the mapping, which lives as long as `self`; there is no reference into it.
        unsafe { self.place.add(at).write_volatile(value) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: what `mmap` has returned, and nothing points into it any more.
        unsafe { libc::munmap(self.place.cast(), self.bytes) };
    }
}

/// An image that is removed while it is mounted is reported, with a command that still copies it, and no command says that it is durable;
/// this also holds where all is written already, so that a sync has nothing to do.
#[test]
fn an_image_that_is_removed_can_be_copied_while_it_is_mounted() {
    if !can_mount() {
        return;
    }
    for (file_system, is_written) in [("lfs", false), ("lfs", true), ("vlfs", true), ("ffs", true)] {
        remove_and_copy(file_system, is_written);
    }
}

fn remove_and_copy(file_system: &str, is_written: bool) {
    let scratch = Scratch::new();
    scratch.make_directory("mnt");
    let line = format!("{file_system} / file:a.img");
    scratch.good(&["mkfs", &format!("{line},size=32MiB")]);
    scratch.good(&["mount", &line, "mnt", "--log-file", "log"]);
    scratch.write("mnt/f", "still here");
    if is_written {
        scratch.good(&["sync", "mnt"]);
    }
    std::fs::remove_file(scratch.path("a.img")).unwrap();
    for (command, code) in [("sync", 1), ("umount", 32), ("sync", 1), ("umount", 32)] {
        let ended = scratch.run(&[command, "mnt"]);
        let refused = ended.err.contains("a.img (32 MiB) was removed") && ended.err.contains("seekless umount --lazy");
        assert!(ended.code == code && refused, "{line}, {command}: {}, {}", ended.code, ended.err);
    }
    let log = std::fs::read_to_string(scratch.path("log")).unwrap();
    assert_eq!(log.matches("the image was removed").count(), 1, "{log}");
    let (_, command) = log.split_once("can be copied: ").unwrap();
    let command = command.lines().next().unwrap().replace("COPY", "a.img");
    let copied = std::process::Command::new("sh").args(["-c", &command]).current_dir(scratch.path(".")).status();
    assert!(copied.unwrap().success(), "{command}");
    scratch.good(&["umount", "--lazy", "mnt"]);
    scratch.run(&["mount", &line, "mnt"]);
    assert_eq!(std::fs::read(scratch.path("mnt/f")).unwrap(), b"still here");
    scratch.good(&["umount", "mnt"]);
}

/// Aim: `seekless sync` makes durable what the kernel still has of files that are open: pages that were changed through a mapping,
/// and with `-o writeback` what was written. The kernel begins to send it, does not wait, and holds back what exceeds
/// `max_background`. Method: many scattered pages; the daemon is stopped until the kernel has begun, so that it holds back most of
/// them; then SIGKILL.
#[test]
fn what_the_kernel_holds_is_durable_after_a_sync() {
    if !can_mount() {
        return;
    }
    const PAGE: usize = 4096;
    const PAGES: usize = 3000;
    let scratch = prepared();
    for (options, transport) in [("writeback", "devfuse"), ("relatime", "devfuse"), ("relatime", "uring")] {
        for round in 1..=3_u8 {
            scratch.good(&["mount", LINE, "mnt", "--pid-file", "pid", "-o", options, "--transport", transport]);
            let control = std::fs::read_dir("/sys/fs/fuse/connections").map(Iterator::count);
            if transport == "uring" && control.unwrap_or(0) == 0 {
                // Then a sync over io_uring says that it cannot know.
                scratch.good(&["umount", "mnt"]);
                continue;
            }
            // Started before there is anything open that the start of a program would close, and so wait for.
            let mut sync = std::process::Command::new("sh")
                .args(["-c", "read line && exec \"$0\" sync mnt", env!("CARGO_BIN_EXE_seekless")])
                .current_dir(scratch.path("."))
                .stdin(Stdio::piped())
                .spawn()
                .unwrap();
            let path = scratch.path("mnt/mapped");
            let file = File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
            file.set_len(4 * (PAGES * PAGE) as u64).unwrap();
            let mut map = Mapping::new(&file, 4 * PAGES * PAGE);
            for page in 0..PAGES {
                // Not next to each other, so that each goes by itself.
                map.store(4 * page * PAGE, round);
            }
            let mut written = File::create(scratch.path("mnt/written")).unwrap();
            written.write_all(&vec![round; 5_000_000]).unwrap();
            let daemon = daemon(&scratch);
            kill_process(daemon, Signal::STOP).unwrap();
            sync.stdin.take().unwrap().write_all(b"go\n").unwrap();
            std::thread::sleep(Duration::from_millis(300));
            kill_process(daemon, Signal::CONT).unwrap();
            assert!(sync.wait().unwrap().success());
            kill_process(daemon, Signal::KILL).unwrap();
            wait_for("its end", || std::fs::metadata(scratch.path("mnt")).is_err());
            scratch.good(&["umount", "--lazy", "mnt"]);
            drop((map, file, written));
            scratch.good(&["mount", LINE, "mnt"]);
            let mapped = std::fs::read(scratch.path("mnt/mapped")).unwrap();
            let lost = (0..PAGES).filter(|page| mapped[4 * page * PAGE] != round).count();
            assert_eq!(lost, 0, "pages of {PAGES} with {options} over {transport}, round {round}");
            let written = std::fs::read(scratch.path("mnt/written")).unwrap();
            let wrong = written.iter().filter(|&&byte| byte != round).count();
            assert_eq!((written.len(), wrong), (5_000_000, 0), "{options} over {transport}, round {round}");
            scratch.good(&["umount", "mnt"]);
        }
    }
}

/// What something else cuts off the end of an image in use is lost, so nothing is called durable any more.
#[test]
fn an_image_that_is_cut_shorter_is_not_durable() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.make_directory("mnt");
    for word in ["lfs", "vlfs", "ffs"] {
        scratch.good(&["mkfs", "-q", &format!("{word} / file:a.img,size=64MiB")]);
        scratch.good(&["mount", &format!("{word} / file:a.img"), "mnt", "--log-file", "log"]);
        scratch.write("mnt/f", "lost?");
        scratch.good(&["sync", "mnt"]);
        let image = std::fs::OpenOptions::new().write(true).open(scratch.path("a.img")).unwrap();
        image.set_len(8 << 20).unwrap();
        scratch.write("mnt/g", "lost");
        let ended = scratch.run(&["sync", "mnt"]);
        assert!(ended.code != 0, "{word}: {}", ended.err);
        assert!(scratch.run(&["umount", "mnt"]).code != 0, "{word}");
        let log = std::fs::read_to_string(scratch.path("log")).unwrap();
        assert!(log.contains("it has been truncated") && !log.contains("everything is durable"), "{word}: {log}");
        std::fs::remove_file(scratch.path("log")).unwrap();
        std::fs::remove_file(scratch.path("a.img")).unwrap();
    }
}

/// Written data is there after an unmount and a new mount, without a sync in between. `umount` returns when the image
/// is free again.
#[test]
fn files_survive_unmounting() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    scratch.good(&["mount", LINE, "mnt"]);
    scratch.write("mnt/f", "hello");
    scratch.good(&["umount", "mnt"]);
    assert!(!scratch.is_mounted("mnt"));
    assert!(scratch.good(&["fsck", "--data", LINE]).contains("clean"));
    scratch.good(&["mount", LINE, "mnt", "-o", "ro,noatime"]);
    assert_eq!(std::fs::read(scratch.path("mnt/f")).unwrap(), b"hello");
    assert_eq!(std::fs::write(scratch.path("mnt/g"), "").unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    scratch.good(&["umount", "mnt"]);
}

/// Kill -9: the mount is dead, both mount and sync give a hint, umount removes it, and the next mount has all synced
/// data.
#[test]
fn a_killed_daemon_loses_nothing_that_was_synced() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    scratch.good(&["mount", LINE, "mnt", "--pid-file", "pid", "--log-file", "log"]);
    for number in 0..200 {
        scratch.write(&format!("mnt/f{number}"), format!("{number}").repeat(100));
    }
    scratch.good(&["sync", "mnt"]);
    scratch.write("mnt/later", "this may be lost");
    kill_process(daemon(&scratch), Signal::KILL).unwrap();
    wait_for("its end", || std::fs::metadata(scratch.path("mnt")).is_err());
    let dead = "mnt belongs to a mount whose daemon is gone; unmount it first: seekless umount --lazy mnt\n";
    let ended = scratch.run(&["mount", LINE, "mnt"]);
    assert_eq!((ended.code, ended.err), (32, format!("seekless: mount point {dead}")));
    let ended = scratch.run(&["sync", "mnt"]);
    assert_eq!((ended.code, ended.err), (1, format!("seekless: {dead}")));
    // The hint names what can be unmounted.
    for command in [&["sync", "mnt/f0"][..], &["stat", "mnt/f0"], &["mount", LINE, "mnt/f0"]] {
        let ended = scratch.run(command);
        assert_eq!(
            (ended.code == 0, ended.err.trim_end().rsplit_once(": ").unwrap().1),
            (false, "seekless umount --lazy T/mnt")
        );
    }
    let ended = scratch.run(&["umount", "mnt"]);
    let text = "seekless: unmounted, but its daemon had died before: data not synced by then is lost; the next mount has the \
                rest\n";
    assert_eq!((ended.code, &*ended.err), (32, text));
    scratch.good(&["mount", LINE, "mnt", "--log-file", "log"]);
    for number in 0..200 {
        let bytes = std::fs::read(scratch.path(&format!("mnt/f{number}"))).unwrap();
        assert_eq!(bytes, format!("{number}").repeat(100).as_bytes());
    }
    scratch.good(&["umount", "mnt"]);
    assert!(scratch.good(&["fsck", "--data", LINE]).contains("clean"));
    let log = std::fs::read_to_string(scratch.path("log")).unwrap();
    assert!(log.contains("replayed_transactions") && log.contains("everything is durable"), "{log}");
    // The log is read from elsewhere.
    let place = scratch.path("mnt").display().to_string();
    assert_eq!(log.matches(&format!("mounted on {place} (")).count(), 2, "{log}");
    assert!(log.contains(&format!("unmounted from {place};")), "{log}");
}

/// Aim: `stat` shows the segments of a log and what was written, of a mount and of an image. Method: a megabyte is written
/// and synced; a directory that is no mount of ours, and a dead mount, are errors that say so.
#[test]
fn statistics_of_mounts_and_images() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    let statistics = |what: &str| -> serde_json::Value {
        serde_json::from_str(&scratch.good(&["stat", what, "--json"])).expect("JSON")
    };
    scratch.good(&["mount", LINE, "mnt", "--pid-file", "pid"]);
    scratch.write("mnt/file", "x".repeat(1 << 20));
    scratch.good(&["sync", "mnt"]);
    std::fs::create_dir(scratch.path("mnt/below")).unwrap();
    let live = statistics("mnt/below");
    let top = &live["parts"][0];
    assert!(top["counters"]["log_data_bytes"].as_u64() >= Some(1 << 20), "{live:#}");
    let by_live = top["log"]["segments_by_live"].as_array().expect("a histogram");
    let used: u64 = by_live.iter().filter_map(serde_json::Value::as_u64).sum();
    let number = |name: &str| top["log"][name].as_u64().expect("a number");
    assert_eq!(number("segments"), number("segments_clean") + number("segments_empty") + used, "{live:#}");
    assert!(number("live_bytes") >= 1 << 20 && live["parts"][1]["counters"].is_object(), "{live:#}");
    let text = scratch.good(&["stat", "mnt"]);
    assert!(text.contains("write amplification 1.") && text.contains("95 to 100 %"), "{text}");
    kill_process(daemon(&scratch), Signal::KILL).unwrap();
    // The kernel may still have the attributes of the root.
    wait_for("its end", || scratch.run(&["stat", "mnt"]).code == 1);
    let ended = scratch.run(&["stat", "mnt"]);
    assert!(ended.code == 1 && ended.err.contains("whose daemon is gone"), "{}", ended.err);
    scratch.run(&["umount", "mnt"]);
    let image = statistics(LINE);
    assert!(image["parts"][0]["log"]["live_bytes"].as_u64() >= Some(1 << 20), "{image:#}");
    let ended = scratch.run(&["stat", "mnt"]);
    assert_eq!((ended.code, &*ended.err), (1, "seekless: mnt is not inside a Seekless mount\n"));
}

/// One image, one mount: another mount of it, mkfs, fsck and info report that it is in use; so does umount while a
/// process uses it.
#[test]
fn what_is_in_use_is_left_alone() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    scratch.make_directory("other");
    scratch.good(&["mount", LINE, "mnt"]);
    let commands: [(&[&str], i32); 4] =
        [(&["mount", LINE, "other"], 32), (&["mkfs", "--force", LINE], 1), (&["fsck", LINE], 8), (&["info", LINE], 1)];
    for (arguments, code) in commands {
        let ended = scratch.run(arguments);
        let text = "seekless: a.img is in use by another mount or process; unmount it or end that process first\n  lfs / \
                    file:a.img\n        ^^^^^^^^^^\nit is mounted on T/mnt: seekless umount T/mnt\n";
        assert_eq!((ended.code, &*ended.err), (code, text), "{arguments:?}");
    }
    // Of several contestants, the one that fails is named, and the others are measured.
    let ended = scratch.run(&["bench", "smallfile", "--files", "5", "--on", LINE, "--on", "memfs"]);
    let text = "seekless: lfs / file:a.img was not measured: a.img is in use by another mount or process; ";
    assert!(ended.code == 1 && ended.err.starts_with(text), "{}", ended.err);
    assert!(ended.out.contains("[1] memfs | create"), "{}", ended.out);
    let ended = scratch.run(&["mount", LINE, "mnt"]);
    let text = "seekless: mnt is already a Seekless mount; unmount it first: seekless umount mnt\n";
    assert_eq!((ended.code, &*ended.err), (32, text));
    scratch.good(&["umount", "mnt"]);
    scratch.make_directory("it's");
    scratch.good(&["mount", LINE, "it's"]);
    let inside = std::fs::File::create(scratch.path("it's/open")).unwrap();
    let ended = scratch.run(&["umount", "it's"]);
    let text = "seekless: it's is in use; find the users with: fuser -vm 'it'\\''s'\n";
    assert_eq!((ended.code, &*ended.err), (32, text));
    drop(inside);
    scratch.good(&["umount", "it's"]);
}

/// An interrupted benchmark deletes its files, in a directory and on an image, and prints its results so far.
#[test]
fn an_ended_benchmark_leaves_nothing_behind() {
    let scratch = prepared();
    scratch.make_directory("d");
    for (contestant, signal, code) in [("./d", Signal::TERM, 143), (LINE, Signal::INT, 130)] {
        let mut command = scratch.command();
        command.args(["bench", "smallfile", "--json", "--files", "500000", "--files-per-directory", "1000000"]);
        command.args(["--bytes", "16", "--on", contestant]);
        let modified = || std::fs::metadata(scratch.path("a.img")).unwrap().modified().unwrap();
        let before = modified();
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        match contestant {
            // Mounting writes a checkpoint.
            LINE => wait_for("writing", || modified() > before),
            _ => wait_for("files", || std::fs::read_dir(scratch.path("d")).unwrap().next().is_some()),
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        let ended = scratch.ended(&child.wait_with_output().unwrap());
        assert_eq!(
            (ended.code, &*ended.err),
            (code, &*format!("seekless: {contestant} was not measured: it was interrupted\n"))
        );
        let report: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
        assert_eq!(report["failed"][0]["contestant"], contestant);
    }
    assert_eq!(std::fs::read_dir(scratch.path("d")).unwrap().count(), 0);
    let report: serde_json::Value = serde_json::from_str(&scratch.good(&["fsck", "--json", LINE])).unwrap();
    assert_eq!((&report["counts"]["files"], &report["counts"]["directories"]), (&0.into(), &1.into()), "{report}");
}

/// Damage to file data is found with --data alone, is counted as far as it is listed, and each piece names its block once.
#[test]
fn damaged_data_is_counted() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    scratch.good(&["mount", LINE, "mnt"]);
    for number in 0..150 {
        scratch.write(&format!("mnt/f{number}"), [0xa5; 4096]);
    }
    scratch.good(&["umount", "mnt"]);
    let mut image = std::fs::read(scratch.path("a.img")).unwrap();
    let mut damaged = 0;
    let mut at = 0;
    while at + 4096 <= image.len() {
        match image[at..at + 4096] == [0xa5; 4096] {
            true => {
                image[at] ^= 1;
                damaged += 1;
                at += 4096;
            }
            false => at += 512,
        }
    }
    assert_eq!(damaged, 150);
    scratch.write("a.img", image);
    assert!(scratch.good(&["fsck", LINE]).ends_with("\nfile data not read (use --data)\n"));
    let ended = scratch.run(&["fsck", "--data", LINE]);
    assert_eq!((ended.code, &*ended.err), (4, ""));
    let last = ended.out.lines().last().unwrap();
    assert_eq!(
        last,
        "100 errors and 50 more, which are not listed; save what can be read: mount it with -o ro and copy it"
    );
    let first = ended.out.lines().next().unwrap();
    assert!(first.starts_with("block 0 of ino ") && first.contains(" is damaged: "), "{first}");
}

/// In the foreground it serves until a signal comes, and then unmounts cleanly; both signals will do.
#[test]
fn signals_unmount_cleanly() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    for signal in [Signal::INT, Signal::TERM] {
        let mut command = scratch.command();
        command.args(["mount", LINE, "mnt", "--foreground", "--pid-file", "pid"]);
        let mut child: Child = command.stderr(Stdio::piped()).spawn().unwrap();
        wait_for("the mount", || scratch.path("pid").exists());
        assert_eq!(daemon(&scratch), Pid::from_child(&child));
        scratch.write("mnt/f", format!("{signal:?}"));
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert!(child.wait().unwrap().success());
        assert!(!scratch.is_mounted("mnt") && !scratch.path("pid").exists());
        assert!(scratch.good(&["info", "--json", LINE]).contains("\"clean\": true"));
    }
}

/// mount(8) calls its helpers in its own syntax, and fstab(5) has room only for a stack file.
#[test]
fn mount_helpers_are_understood() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    scratch.write("s.toml", format!("stack = \"wrap / {LINE}\"\n"));
    for (name, source) in [("mount.fuse.seekless", "@s.toml"), ("/sbin/mount.seekless", LINE), ("seekless", "@s.toml")]
    {
        let ended = scratch.run_as(name, &[source, "mnt", "-o", "rw,noatime,_netdev,x-systemd.automount"]);
        assert_eq!((ended.code, &*ended.err), (0, ""), "{name}");
        assert!(scratch.is_mounted("mnt"), "{name}");
        scratch.good(&["umount", "mnt"]);
    }
    let ended = scratch.run_as("fsck.seekless", &[LINE]);
    assert_eq!(ended.code, 0, "{}", ended.err);
}

/// Every kind of file system mounts; a benchmark of a mount is read cold, through the daemon.
#[test]
fn every_file_system_mounts() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    scratch.make_directory("host");
    let lines =
        ["wrap / hostdir:host", "memfs", "lfs / memory:64MiB", "lfs / fork / file:a.img", "wrap / ffs / memory:64MiB"];
    for line in lines {
        let ended = scratch.run(&["mount", line, "mnt"]);
        assert_eq!((ended.code, ended.err.contains("it is gone")), (0, !line.contains("hostdir")), "{}", ended.err);
        scratch.write("mnt/f", line);
        assert_eq!(std::fs::read(scratch.path("mnt/f")).unwrap(), line.as_bytes(), "{line}");
        let table = scratch.good(&["bench", "smallfile", "--files", "20", "--on", "./mnt"]);
        assert!(table.contains("fuse.seekless on"), "{table}");
        scratch.good(&["umount", "mnt"]);
    }
    assert_eq!(std::fs::read(scratch.path("host/f")).unwrap(), b"wrap / hostdir:host");
}

/// Damage in the log of a crashed volume: mount refuses to write and gives a hint, fsck finds it, and a read-only mount
/// has the data synced before, with a warning.
#[test]
fn a_damaged_log_can_still_be_read() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    scratch.good(&["mount", "lfs:checkpoint=1h / file:a.img", "mnt", "--pid-file", "pid"]);
    let content = |number: u32| -> Vec<u8> {
        (0..50_000_u32).flat_map(|word| (word.wrapping_mul(2_654_435_761) ^ number << 24).to_le_bytes()).collect()
    };
    for number in 0..8 {
        scratch.write(&format!("mnt/f{number}"), content(number));
        for path in [format!("mnt/f{number}"), "mnt".into()] {
            std::fs::File::open(scratch.path(&path)).unwrap().sync_all().unwrap();
        }
    }
    kill_process(daemon(&scratch), Signal::KILL).unwrap();
    wait_for("its end", || std::fs::metadata(scratch.path("mnt")).is_err());
    scratch.good(&["umount", "--lazy", "mnt"]);

    let mut image = std::fs::read(scratch.path("a.img")).unwrap();
    let wanted = &content(5)[100_000..100_064];
    let at = image.windows(wanted.len()).position(|window| window == wanted).expect("file 5 is in the log");
    image[at] ^= 1;
    std::fs::write(scratch.path("a.img"), image).unwrap();

    let ended = scratch.run(&["mount", LINE, "mnt"]);
    assert_eq!(ended.code, 32, "{}", ended.err);
    assert!(ended.err.contains("log at sector") && ended.err.contains("-o ro"), "{}", ended.err);
    let ended = scratch.run(&["fsck", LINE]);
    assert_eq!(ended.code, 4, "{} {}", ended.out, ended.err);
    assert!(ended.out.contains("log at sector") && ended.out.contains("-o ro"), "{}", ended.out);
    let ended = scratch.run(&["mount", LINE, "mnt", "-o", "ro"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.err.contains("warning: log at sector"), "{}", ended.err);
    for number in 0..8 {
        let read = std::fs::read(scratch.path(&format!("mnt/f{number}")));
        match number {
            0..5 => assert!(read.unwrap() == content(number), "file {number}"),
            _ => assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::NotFound, "file {number}"),
        }
    }
    scratch.good(&["umount", "mnt"]);
}

const FFS: &str = "ffs / file:ufs.img";

/// Kill -9 of a mounted UFS1 volume: what was synced is there after the check has repaired the volume, and as well when
/// mounting does that by itself; and the check says what it found and by its exit code what it did.
#[test]
fn a_killed_ffs_is_repaired() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.good(&["mkfs", "-q", "ffs / file:ufs.img,size=64MiB"]);
    scratch.make_directory("mnt");
    for repair_first in [true, false] {
        let round = if repair_first { "one" } else { "two" };
        scratch.good(&["mount", FFS, "mnt", "--pid-file", "pid"]);
        scratch.make_directory(&format!("mnt/{round}"));
        for number in 0..200 {
            scratch.write(&format!("mnt/{round}/f{number}"), format!("{number}").repeat(500));
        }
        scratch.good(&["sync", "mnt"]);
        scratch.write("mnt/later", "this may be lost".repeat(10_000));
        std::fs::remove_file(scratch.path(&format!("mnt/{round}/f7"))).unwrap();
        kill_process(daemon(&scratch), Signal::KILL).unwrap();
        wait_for("its end", || std::fs::metadata(scratch.path("mnt")).is_err());
        scratch.good(&["umount", "--lazy", "mnt"]);
        if repair_first {
            // The maps wait for an update, so there is something to repair.
            let ended = scratch.run(&["fsck", "-n", FFS]);
            assert_eq!((ended.code, &*ended.err), (4, ""), "{}", ended.out);
            let ended = scratch.run(&["fsck", FFS]);
            assert_eq!((ended.code, &*ended.err), (1, ""), "{}", ended.out);
            assert!(ended.out.contains("(repaired)") && ended.out.contains("ufs.img: repaired"), "{}", ended.out);
            assert!(scratch.good(&["fsck", FFS]).contains("ufs.img: clean"));
        }
        let ended = scratch.run(&["mount", FFS, "mnt"]);
        // The removed file may have lost its name before its inode was free.
        let says_where = ended.err.is_empty() || !repair_first && ended.err.contains("in /lost+found now");
        assert!(ended.code == 0 && says_where, "{}", ended.err);
        for number in (0..200).filter(|&number| number != 7) {
            let bytes = std::fs::read(scratch.path(&format!("mnt/{round}/f{number}"))).unwrap();
            assert_eq!(bytes, format!("{number}").repeat(500).as_bytes());
        }
        // With synchronous metadata a name that was removed is gone.
        assert!(std::fs::metadata(scratch.path(&format!("mnt/{round}/f7"))).is_err());
        scratch.good(&["umount", "mnt"]);
        assert!(scratch.good(&["fsck", FFS]).contains("clean"));
        assert!(scratch.good(&["info", "--json", FFS]).contains("\"clean\": true"));
    }
}

pub(crate) fn kill(scratch: &Scratch) {
    kill_process(daemon(scratch), Signal::KILL).unwrap();
    wait_for("its end", || std::fs::metadata(scratch.path("mnt")).is_err());
    scratch.good(&["umount", "--lazy", "mnt"]);
}

/// With `dirsync`, a name that was made is on the volume when the call returns; with `sync`, so is everything else.
#[test]
fn changes_are_durable_at_once() {
    use std::os::unix::fs::PermissionsExt;
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    let mode = |name: &str| std::fs::metadata(scratch.path(name)).unwrap().permissions().mode() & 0o777;
    scratch.good(&["mount", LINE, "mnt", "-o", "dirsync", "--pid-file", "pid"]);
    scratch.make_directory("mnt/d");
    scratch.write("mnt/d/f", "");
    std::fs::hard_link(scratch.path("mnt/d/f"), scratch.path("mnt/g")).unwrap();
    std::fs::rename(scratch.path("mnt/d/f"), scratch.path("mnt/h")).unwrap();
    kill(&scratch);
    scratch.good(&["mount", LINE, "mnt", "-o", "sync", "--pid-file", "pid"]);
    assert!(!scratch.path("mnt/d/f").exists());
    assert_eq!(std::fs::metadata(scratch.path("mnt/g")).unwrap().len(), 0);
    scratch.write("mnt/h", "written");
    std::fs::set_permissions(scratch.path("mnt/d"), PermissionsExt::from_mode(0o711)).unwrap();
    std::fs::set_permissions(scratch.path("mnt/g"), PermissionsExt::from_mode(0o600)).unwrap();
    kill(&scratch);
    scratch.good(&["mount", LINE, "mnt"]);
    assert_eq!(std::fs::read(scratch.path("mnt/h")).unwrap(), b"written");
    assert_eq!((mode("mnt/d"), mode("mnt/g")), (0o711, 0o600));
    scratch.good(&["umount", "mnt"]);
}

/// Aim: `fsck -n` offers a repair only where one is possible. Method: a log with a damaged partial segment before its end, of which
/// nothing can be mended; then only a damaged copy of the superblock.
#[test]
fn fsck_offers_only_repairs_that_are_possible() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    let whole = std::fs::read(scratch.path("a.img")).unwrap();
    scratch.good(&["mount", LINE, "mnt", "--pid-file", "pid"]);
    for number in 0..10u8 {
        let file = std::fs::File::create(scratch.path(&format!("mnt/{number}"))).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[b'a' + number; 5000], 0).unwrap();
        file.sync_all().unwrap();
    }
    kill_process(daemon(&scratch), Signal::KILL).unwrap();
    scratch.good(&["umount", "--lazy", "mnt"]);
    let mut image = std::fs::read(scratch.path("a.img")).unwrap();
    let at = image.windows(5000).position(|bytes| bytes == [b'b'; 5000]).unwrap();
    image[at..at + 512].fill(0x5a);
    scratch.write("a.img", &image);
    for arguments in [&["fsck", "-n", LINE][..], &["fsck", LINE]] {
        let ended = scratch.run(arguments);
        assert_eq!(ended.code, 4, "{}", ended.err);
        assert!(ended.out.contains("says that it was written"), "{}", ended.out);
        assert!(ended.out.contains("; save what can be read: mount it with -o ro and copy it"), "{}", ended.out);
    }
    let mut image = whole;
    let at = (seekless::fs::lfs::format::SUPERBLOCK_SECTORS[0].0 * 512) as usize;
    image[at + 16..at + 4096].fill(0xff);
    scratch.write("a.img", &image);
    let ended = scratch.run(&["fsck", "-n", LINE]);
    assert!(ended.code == 4 && ended.out.contains("; leave out -n to repair what can be repaired"), "{}", ended.out);
    let ended = scratch.run(&["fsck", LINE]);
    assert!(ended.code == 1 && ended.out.contains(" (repaired)"), "{}", ended.out);
}

/// Aim: a mount right after plain umount(8) waits for the daemon that its pid file names, too. Method: a daemon that is stopped
/// when its mount goes; a daemon that serves another mount is refused at once.
#[test]
fn mounting_again_waits_for_the_daemon_of_the_pid_file() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    let arguments = ["mount", LINE, "mnt", "--pid-file", "pid"];
    scratch.good(&arguments);
    let pid = daemon(&scratch);
    scratch.make_directory("other");
    let refused = scratch.run(&["mount", "memfs", "other", "--pid-file", "pid"]);
    assert!(refused.code == 32 && refused.err.contains("which it names, is running"), "{}", refused.err);
    kill_process(pid, Signal::STOP).unwrap();
    wait_for("an end of its use", || {
        rustix::mount::unmount(scratch.path("mnt"), rustix::mount::UnmountFlags::empty()).is_ok()
    });
    let mut again = scratch.command().args(arguments).stderr(Stdio::piped()).spawn().unwrap();
    let said = await_word(&mut again);
    kill_process(pid, Signal::CONT).unwrap();
    let ended = scratch.ended_after(said, again);
    assert_eq!((ended.code, &*ended.complaints()), (0, ""));
    assert!(ended.err.contains("pid names a daemon that was unmounted, but is still writing"), "{}", ended.err);
    assert_ne!(daemon(&scratch), pid);
    scratch.good(&["umount", "mnt"]);
}

/// Aim: no command waits indefinitely for a daemon that is stopped; each says who does not answer and how it goes on. Method: each
/// with a short timeout, by the name of the mount, through a link and inside it, and a second mount over it; then a lazy unmount, and
/// all is there.
#[test]
fn a_stopped_daemon_is_not_waited_for_forever() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    scratch.good(&["mount", LINE, "mnt", "--pid-file", "pid"]);
    scratch.make_directory("elsewhere");
    std::os::unix::fs::symlink("../mnt", scratch.path("elsewhere/link")).unwrap();
    std::fs::create_dir(scratch.path("mnt/d")).unwrap();
    scratch.write("mnt/d/f", "content");
    let pid = daemon(&scratch);
    kill_process(pid, Signal::STOP).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = scratch.command();
        let mut child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let begun = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if begun.elapsed() > Duration::from_secs(60) {
                kill_process(pid, Signal::CONT).unwrap();
                panic!("{arguments:?} does not end");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        scratch.ended(&child.wait_with_output().unwrap())
    };
    let number = pid.as_raw_nonzero();
    let hint = format!("it is stopped; resume it with: kill -CONT {number}");
    for (command, code) in [("umount", 32), ("sync", 1), ("stat", 1)] {
        for place in ["mnt", "elsewhere/link", "mnt/d"] {
            let ended = run(&[command, "--timeout", "1", place]);
            if (command, place) == ("umount", "mnt/d") {
                // What the kernel has cached may already say that it is not mounted there.
                assert!(ended.code == 1 || ended.code == 32, "{}", ended.err);
                continue;
            }
            assert_eq!(ended.code, code, "{command} {place}: {}", ended.err);
            assert!(ended.err.contains("has not answered within 1 s"), "{command} {place}: {}", ended.err);
            let lazy = ended.err.contains(&format!("seekless umount --lazy {place}"));
            assert_eq!(lazy, command == "umount", "{}", ended.err);
            assert!(ended.err.contains(&format!("(process {number})")) && ended.err.contains(&hint), "{}", ended.err);
        }
    }
    for (place, options) in [("mnt", "remount,ro"), ("elsewhere/link", "remount,ro"), ("mnt", "remount,noatime")] {
        let ended = run(&["mount", LINE, place, "--timeout", "1", "-o", options]);
        assert_eq!(ended.code, 32, "{place} {options}: {}", ended.err);
        let problem = format!("not remounted: the daemon (process {number}) of {place} has not answered within 1 s; ");
        assert!(ended.err.contains(&problem) && ended.err.contains(&hint), "{place} {options}: {}", ended.err);
    }
    for place in ["mnt", "elsewhere/link"] {
        let ended = run(&["mount", "lfs / file:other.img", place]);
        assert!(ended.code != 0 && ended.err.contains("is already a Seekless mount"), "{}", ended.err);
    }
    let mut waiting = scratch.command().args(["sync", "mnt"]).stderr(Stdio::piped()).spawn().unwrap();
    let said = await_word(&mut waiting);
    assert!(scratch.is_mounted("mnt"));
    kill_process(pid, Signal::CONT).unwrap();
    let ended = scratch.ended_after(said, waiting);
    assert_eq!((ended.code, &*ended.complaints()), (0, ""));
    assert!(ended.err.contains("has not answered yet; it is stopped"), "{}", ended.err);

    kill_process(pid, Signal::STOP).unwrap();
    let ended = run(&["umount", "--lazy", "mnt"]);
    assert_eq!((ended.code, scratch.is_mounted("mnt")), (0, false), "{}", ended.err);
    kill_process(pid, Signal::CONT).unwrap();
    scratch.good(&["mount", LINE, "mnt", "--pid-file", "pid"]);
    assert_eq!(std::fs::read(scratch.path("mnt/d/f")).unwrap(), b"content");
    scratch.good(&["umount", "mnt"]);
}

/// Aim: of a mount on a directory of another, its own daemon is named, and not that of the outer one. Method: the inner one stopped, and killed.
#[test]
fn a_mount_inside_another_has_its_own_daemon() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    scratch.make_directory("data");
    scratch.make_directory("data/inner");
    scratch.good(&["mount", "wrap / hostdir:data", "mnt"]);
    scratch.good(&["mount", LINE, "mnt/inner", "--pid-file", "pid"]);
    let pid = daemon(&scratch);
    let remount = || scratch.run(&["mount", LINE, "mnt/inner", "-o", "remount,ro", "--timeout", "1"]);
    kill_process(pid, Signal::STOP).unwrap();
    let ended = remount();
    kill_process(pid, Signal::CONT).unwrap();
    let problem = format!("not remounted: the daemon (process {}) of mnt/inner", pid.as_raw_nonzero());
    assert!(ended.code == 32 && ended.err.contains(&problem), "{}", ended.err);
    kill_process(pid, Signal::KILL).unwrap();
    wait_for("the end of the daemon", || std::fs::metadata(scratch.path("mnt/inner")).is_err());
    let ended = remount();
    let hint = "a mount whose daemon is gone; unmount it first: seekless umount --lazy T/mnt/inner\n";
    assert!(ended.code == 32 && ended.err.contains(hint), "{}", ended.err);
    scratch.run(&["umount", "mnt/inner"]);
    scratch.good(&["umount", "mnt"]);
}

/// A daemon does not wait for itself: a pid file in the mount is refused, however the line says it.
#[test]
fn a_pid_file_in_the_mount_is_refused() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    std::os::unix::fs::symlink("mnt", scratch.path("link")).unwrap();
    for (pid_file, more) in [("mnt/pid", "-v"), ("link/pid", "-v"), ("./link/../mnt/pid", "--supervise")] {
        let mut command = std::process::Command::new("timeout");
        command.args(["20", env!("CARGO_BIN_EXE_seekless"), "mount", LINE, "mnt", "--pid-file", pid_file, more]);
        let ended = scratch.ended(&command.current_dir(scratch.path(".")).output().unwrap());
        assert_eq!(ended.code, 32, "{}", ended.err);
        assert!(ended.err.contains("would be inside the mount"), "{}", ended.err);
        assert!(!scratch.is_mounted("mnt"));
    }
}

/// A daemon keeps no directory busy, with none of its threads: the one that it was started in can be unmounted.
#[test]
fn a_daemon_leaves_the_directory_that_it_was_started_in() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    scratch.make_directory("data");
    for line in [LINE, "wrap / hostdir:data"] {
        scratch.good(&["mount", line, "mnt", "--pid-file", "pid"]);
        scratch.write("mnt/f", "something to do for its threads");
        scratch.good(&["sync", "mnt"]);
        let tasks = format!("/proc/{}/task", daemon(&scratch).as_raw_nonzero());
        let others = || -> Vec<_> {
            let cwd = |task: std::fs::DirEntry| std::fs::read_link(task.path().join("cwd")).ok();
            let all = std::fs::read_dir(&tasks).unwrap().filter_map(|task| cwd(task.unwrap()));
            all.filter(|cwd| cwd != std::path::Path::new("/")).collect()
        };
        wait_for("all threads in the root directory", || others().is_empty());
        scratch.good(&["umount", "mnt"]);
    }
}
