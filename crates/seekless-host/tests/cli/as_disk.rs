//! Block devices that are shown as a file, with a loop device and a file system of the kernel on it.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use seekless_host::testing::{LoopDevice, MemoryLimit};

use super::*;

const STACK: &str = "vld / file:disk.img";

/// A disk of this size, mounted as the file `disk`.
fn shown(size: &str) -> Scratch {
    let scratch = Scratch::new();
    scratch.good(&["mkfs", "-q", &format!("{STACK},size={size}")]);
    scratch
}

fn show(scratch: &Scratch) {
    let ended = scratch.run(&["mount", "--as-disk", STACK, "disk", "--pid-file", "pid", "--log-file", "log"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
}

/// Unmounts the disk, whose daemon may be dead. A loop device that was detached may hold it a moment longer.
fn hide(scratch: &Scratch) {
    let begun = Instant::now();
    loop {
        let ended = scratch.run(&["umount", "disk"]);
        if ended.code == 0 || ended.err.contains("its daemon had died before") {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{}", ended.err);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Kills the server without a clean end.
fn kill(scratch: &Scratch) {
    let pid = std::fs::read_to_string(scratch.path("pid")).unwrap();
    run("kill", &["-KILL", pid.trim()]);
    let begun = Instant::now();
    while Path::new(&format!("/proc/{}", pid.trim())).exists() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs a program; returns its exit code and all of its output.
fn run(program: &str, arguments: &[&str]) -> (i32, String) {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap_or(-1), text)
}

/// A file system of the kernel on the disk, mounted.
pub(crate) struct Ext4 {
    mount_point: PathBuf,
    device: LoopDevice,
}

/// True where this process can mount, and ext4 can be made. Otherwise reports why nothing is tested.
pub(crate) fn can_make_ext4() -> bool {
    let can = can_mount();
    let has = run("sh", &["-c", "command -v mkfs.ext4"]).0 == 0;
    if can && !has {
        skip(Need::Loop, "there is no mkfs.ext4");
    }
    can && has
}

impl Ext4 {
    /// Makes one on `device`, with more options of mkfs.ext4.
    pub(crate) fn make(device: &LoopDevice, more: &[&str]) {
        let (code, text) = run("mkfs.ext4", &[&["-q", "-F"], more, &[name(device)]].concat());
        assert_eq!(code, 0, "{text}");
    }

    pub(crate) fn mount(scratch: &Scratch, device: LoopDevice, options: &str) -> Ext4 {
        Ext4::mount_at(scratch, device, options, "ext4")
    }

    pub(crate) fn mount_at(scratch: &Scratch, device: LoopDevice, options: &str, directory: &str) -> Ext4 {
        let mount_point = scratch.path(directory);
        let _ = std::fs::create_dir(&mount_point);
        let (code, text) = run("mount", &["-t", "ext4", "-o", options, name(&device), mount_point.to_str().unwrap()]);
        assert_eq!(code, 0, "{text}");
        Ext4 { mount_point, device }
    }

    pub(crate) fn unmount(self) -> LoopDevice {
        let path = self.mount_point.to_str().unwrap();
        let begun = Instant::now();
        while run("umount", &[path]).0 != 0 {
            assert!(begun.elapsed() < Duration::from_secs(30), "{path} stays in use");
            std::thread::sleep(Duration::from_millis(50));
        }
        self.device
    }
}

fn name(device: &LoopDevice) -> &str {
    device.path().to_str().unwrap()
}

fn loop_device(scratch: &Scratch) -> Option<LoopDevice> {
    LoopDevice::attach_with(&scratch.path("disk"), 4096, &["--direct-io=on"])
}

/// Aim: the disk is a file for programs that read and write files. Method: bytes at odd places, before and after an
/// unmount; holes; operations that a disk does not support.
#[test]
fn a_disk_is_a_file() {
    if !can_mount() {
        return;
    }
    let scratch = shown("64MiB");
    show(&scratch);
    let disk = File::options().read(true).write(true).open(scratch.path("disk")).unwrap();
    let size = disk.metadata().unwrap().len();
    assert!(size > 50 << 20, "{size}");
    let bytes: Vec<u8> = (0..300_001u32).map(|at| (at % 251) as u8).collect();
    disk.write_all_at(&bytes, 12_345).unwrap();
    disk.write_all_at(b"end", size - 3).unwrap();
    disk.sync_all().unwrap();
    assert!(disk.write_all_at(b"end, and beyond", size - 3).is_err());
    assert!(disk.set_len(size / 2).is_err());
    rustix::fs::fallocate(
        &disk,
        rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE,
        20_000,
        100_000,
    )
    .unwrap();
    scratch.good(&["sync", "disk"]);
    drop(disk);
    assert_eq!(scratch.run(&["mount", "--as-disk", STACK, "disk"]).code, 32, "it is in use");
    scratch.good(&["umount", "disk"]);
    assert!(!scratch.path("disk").exists(), "the file was made for the mount");
    assert!(scratch.good(&["info", STACK, "--json"]).contains("\"parked\": true"));

    scratch.write("disk", "");
    scratch.good(&["mount", "--as-disk", STACK, "disk", "-o", "ro"]);
    let found = std::fs::read(scratch.path("disk")).unwrap();
    let mut expected = bytes;
    expected[20_000 - 12_345..][..100_000].fill(0);
    assert!(found[12_345..].starts_with(&expected));
    assert!(found.ends_with(b"end") && found[..12_345].iter().all(|&byte| byte == 0));
    assert!(File::options().write(true).open(scratch.path("disk")).is_err());
    scratch.good(&["umount", "disk"]);
    assert!(scratch.path("disk").exists(), "the file was there before");
}

/// Aim: filling the disk leaves nothing of what was on it, and a program learns how much of a write was done, as on a block device.
/// Method: writes across the end, opened with and without `O_DIRECT`; and `dd` until there is no space left.
#[test]
fn writes_go_up_to_the_end() {
    if !can_mount() {
        return;
    }
    let scratch = shown("8MiB");
    for options in ["nosuid", "sync"] {
        let mounted = scratch.run(&["mount", "--as-disk", STACK, "disk", "-o", options]);
        assert_eq!(mounted.code, 0, "{}", mounted.err);
        let path = scratch.path("disk");
        let size = std::fs::metadata(&path).unwrap().len();
        File::options().write(true).open(&path).unwrap().write_all_at(&vec![b'A'; size as usize], 0).unwrap();
        for direct in [0, libc::O_DIRECT] {
            let disk = File::options().write(true).custom_flags(direct).open(&path).unwrap();
            for (offset, bytes, done) in [(size - 4096, 8192, 4096), (size - (3 << 20), 5 << 20, 3 << 20)] {
                let written = disk.write_at(&vec![b'B'; bytes], offset);
                assert_eq!(written.unwrap(), done, "{options}, {direct:o}: {bytes} bytes at {offset}");
            }
            for offset in [size, size + 4096] {
                let refused = disk.write_at(&[0; 4096], offset).map_err(|error| error.raw_os_error());
                assert_eq!(refused, Err(Some(libc::ENOSPC)), "{options}, {direct:o}: at {offset}");
            }
        }
        let found = std::fs::read(&path).unwrap();
        let (old, new) = found.split_at(found.len() - (3 << 20));
        assert!(old.iter().all(|&byte| byte == b'A') && new.iter().all(|&byte| byte == b'B'), "{options}");
        let output = format!("of={}", path.display());
        let (code, text) = run("dd", &["if=/dev/zero", &output, "bs=1M", "conv=notrunc"]);
        assert!(code == 1 && text.contains("No space left on device"), "{options}: {code}, {text}");
        assert_eq!(std::fs::read(&path).unwrap(), vec![0; size as usize], "{options}: old data is left");
        scratch.good(&["umount", "disk"]);
    }
}

/// Aim: mistakes get clear errors. Method: a few.
#[test]
fn what_cannot_be_shown_is_refused() {
    let scratch = Scratch::new();
    scratch.make_directory("directory");
    scratch.write("full", "something");
    for (arguments, code, text) in [
        (vec!["mount", "--as-disk", "memfs", "disk"], 1, "--as-disk is for block devices"),
        (vec!["mount", "--as-disk", "memory:1MiB", "directory"], 32, "not a regular file"),
        (vec!["mount", "--as-disk", "memory:1MiB", "full"], 32, "not empty"),
        (vec!["mount", "--as-disk", "memory:1MiB", "missing/disk"], 32, "cannot create the file missing/disk"),
        (vec!["mount", "memory:1MiB", "directory"], 1, ""),
    ] {
        let ended = scratch.run(&arguments);
        assert!(ended.code == code || text.is_empty(), "{arguments:?}: {} {}", ended.code, ended.err);
        assert!(ended.err.contains(text) && ended.code != 0, "{arguments:?}: {}", ended.err);
    }
    assert!(!scratch.path("disk").exists(), "nothing is left behind");
}

/// Writes files, each made durable before the next one, and prints a line after each. Continues until something fails.
fn writer(folder: &Path) -> Child {
    let script = r#"
        i=0
        while head -c $((i % 7 * 5000 + 100)) /dev/urandom > new 2>/dev/null && sync new 2>/dev/null; do
            sum=$(md5sum < new | cut -d' ' -f1) && mv new "f$((i % 40))" && sync . 2>/dev/null || exit 0
            echo "f$((i % 40)) $sum"
            i=$((i + 1))
        done"#;
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::null()).spawn().unwrap()
}

/// Aim: a file system of the kernel on our disk survives the server's death as it would survive a power cut: its
/// journal repairs it, and durable data is there. Method: ext4 on a loop device; the server is killed while files are
/// written, several times; e2fsck replays the journal and then must find nothing.
#[test]
fn ext4_survives_the_death_of_the_server() {
    if !can_make_ext4() {
        return;
    }
    let scratch = shown("96MiB");
    show(&scratch);
    let Some(device) = loop_device(&scratch) else { return };
    Ext4::make(&device, &[]);
    let mut ext4 = Ext4::mount(&scratch, device, "discard");
    for round in 0..4 {
        for number in 0..40 {
            let _ = std::fs::remove_file(ext4.mount_point.join(format!("f{number}")));
        }
        let mut writer = writer(&ext4.mount_point);
        // During a later file each time.
        let (begun, some) = (Instant::now(), ext4.mount_point.join(format!("f{}", 5 + 7 * round)));
        while !some.exists() && begun.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(3 + 2 * round));
        }
        kill(&scratch);
        let mut said = String::new();
        std::io::Read::read_to_string(&mut writer.stdout.take().unwrap(), &mut said).unwrap();
        writer.wait().unwrap();
        drop(ext4.unmount());
        hide(&scratch);
        let checked = scratch.run(&["fsck", STACK]);
        assert_eq!(checked.code, 0, "round {round}: {}{}", checked.out, checked.err);

        show(&scratch);
        let device = loop_device(&scratch).expect("there was one");
        let (code, text) = run("e2fsck", &["-p", name(&device)]);
        assert!(code <= 1, "round {round}: e2fsck -p ended with {code}: {text}");
        let (code, text) = run("e2fsck", &["-f", "-n", name(&device)]);
        assert_eq!(code, 0, "round {round}: {text}");
        ext4 = Ext4::mount(&scratch, device, "discard");
        // The newest of each name; the last name may have a newer file that was not yet acknowledged.
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines.len() > 3, "round {round}: nothing was written in time");
        let mut wrong = Vec::new();
        for number in 0..40 {
            let of_name = |line: &&&str| line.split(' ').next() == Some(&format!("f{number}"));
            let Some(sum) = lines.iter().rev().find(of_name).and_then(|line| line.split(' ').nth(1)) else { continue };
            let path = ext4.mount_point.join(format!("f{number}"));
            if !run("md5sum", &[path.to_str().unwrap()]).1.starts_with(sum) {
                wrong.push(number);
            }
        }
        let next = lines.len() % 40;
        wrong.retain(|&number| number != next);
        assert!(wrong.is_empty(), "round {round}: files {wrong:?} are not as they were made durable");
    }
    drop(ext4.unmount());
    hide(&scratch);
}

/// Aim: write-back to our disk under memory pressure does not wait for memory that our server allocates. Method: the
/// writer has less memory than it writes, in its own control group, together with the server where that may be marked
/// as an I/O flusher, or need not be; a deadlock would not end.
#[test]
fn little_memory_is_enough() {
    const LIMIT: u64 = 64 << 20;
    const WRITTEN: usize = 160 << 20;
    if !can_make_ext4() {
        return;
    }
    let Some(limit) = MemoryLimit::new("as-disk", LIMIT) else { return };
    let scratch = Scratch::new();
    scratch.good(&["mkfs", "-q", "vld / file:disk.img,direct=on,size=256MiB"]);
    let inside = |line: &str| {
        let script = format!("echo $$ > {} && exec {line}", limit.processes().display());
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(scratch.0.path()).stdin(Stdio::null());
        command
    };
    let stack = "vld / file:disk.img,direct=on";
    let ended = scratch.run(&["mount", "--as-disk", stack, "disk", "--pid-file", "pid", "--log-file", "log"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let log = || std::fs::read_to_string(scratch.path("log")).unwrap_or_default();
    if limit.is_unified() || !log().contains("not marked as one that writes wait for") {
        let pid = std::fs::read_to_string(scratch.path("pid")).unwrap();
        std::fs::write(limit.processes(), pid.trim()).unwrap();
    }
    let Some(device) = loop_device(&scratch) else { return };
    Ext4::make(&device, &[]);
    let ext4 = Ext4::mount(&scratch, device, "noatime");
    let file = ext4.mount_point.join("large");
    let count = WRITTEN >> 20;
    let line = format!("dd if=/dev/zero of={} bs=1M count={count} conv=fsync status=none", file.display());
    let mut writer = inside(&line).spawn().unwrap();
    let begun = Instant::now();
    let ended = loop {
        match writer.try_wait().unwrap() {
            Some(status) => break status,
            None if begun.elapsed() > Duration::from_secs(120) => {
                // None of it can be killed while the server is stopped.
                kill(&scratch);
                panic!("{WRITTEN} bytes are not written after {:?}", begun.elapsed());
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    assert!(ended.success());
    assert_eq!(std::fs::metadata(&file).unwrap().len(), WRITTEN as u64);
    assert!(!log().contains("memory is not locked"), "{}", log());
    drop(ext4.unmount());
    hide(&scratch);
}

/// A snapshot is shown to be read, and what is written over it stays in memory where the stack says so, as in an export.
#[test]
fn a_snapshot_below_a_fork_is_written_to() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.good(&["mkfs", "-q", "vld:snapshots=2,reserve=40% / file:disk.img,size=64MiB"]);
    scratch.good(&["snapshot", "take", STACK, "one"]);
    for (stack, writes) in
        [("vld:snapshot=one / file:disk.img", false), ("fork / vld:snapshot=one / file:disk.img", true)]
    {
        let mounted = scratch.run(&["mount", "--as-disk", stack, "disk"]);
        assert_eq!(mounted.code, 0, "{}", mounted.err);
        let opened = File::options().write(true).open(scratch.path("disk"));
        let written = opened.and_then(|file| file.write_all_at(&[1; 4096], 0));
        let read = std::fs::read(scratch.path("disk")).unwrap()[0];
        scratch.good(&["umount", "disk"]);
        assert_eq!((written.is_ok(), read == 1), (writes, writes), "{stack}: {written:?}");
    }
}
