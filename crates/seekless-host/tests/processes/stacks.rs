//! The stacks on which clients work, and how each is made, shown, killed and checked.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use seekless_host::testing::{LoopDevice, Need, skip};

use crate::clients::Abilities;
use crate::oracle::Promises;
use crate::{Daemon, PATIENCE, Scratch, rounds, text_of};

/// What a test runs on.
pub(crate) struct Stack {
    /// Name of the test.
    pub(crate) test: &'static str,
    pub(crate) line: &'static str,
    /// What is put behind `file:…` when it is made; empty for a directory.
    size: &'static str,
    pub(crate) promises: Promises,
    /// A crash leaves something to repair.
    is_mended: bool,
    /// ext4 is on it: it is a disk.
    pub(crate) is_disk: bool,
    /// What is put behind `-o` when it is mounted.
    options: &'static str,
}

const PLAIN: Stack = Stack {
    test: "",
    line: "",
    size: ",size=256MiB",
    promises: Promises::Everything,
    is_mended: false,
    is_disk: false,
    options: "",
};

macro_rules! stacks {
    ($($(#[$attribute:meta])* $test:ident: $line:literal $(, $field:ident = $value:expr)*;)*) => {
        $(
            #[test]
            $(#[$attribute])*
            fn $test() {
                rounds(&Stack { test: concat!("stacks::", stringify!($test)), line: $line, $($field: $value,)* ..PLAIN });
            }
        )*
    };
}

stacks! {
    lfs: "lfs / file:a.img";
    lfs_writeback: "lfs / file:a.img", options = "writeback";
    vlfs: "vlfs / file:a.img";
    ffs_sync: "ffs / file:a.img", promises = Promises::ExceptChanged, is_mended = true;
    ffs_softdep: "ffs:metadata=softdep / file:a.img", promises = Promises::ExceptChanged, is_mended = true;
    ffs_async: "ffs:metadata=async / file:a.img", promises = Promises::Nothing, is_mended = true;
    zstd_hostdir: "zstd / hostdir:data", size = "";
    zstd_lfs: "zstd / lfs / file:a.img";
    encrypt_hostdir: "encrypt:a.key / hostdir:data", size = "";
    lfs_raid1: "lfs / raid1:n=2 / file:a-{}.img";
    lfs_raid5: "lfs / raid5:n=3 / file:a-{}.img";
    ext4_vld: "vld / file:a.img", is_disk = true, promises = Promises::ExceptChanged;
}

/// True where this process can mount. Otherwise reports why nothing is tested.
pub(crate) fn can_run(stack: &Stack) -> bool {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        skip(Need::Fuse, "mounting needs root and /dev/fuse");
        return false;
    }
    if stack.is_disk && !Path::new("/sbin/mkfs.ext4").exists() {
        skip(Need::Loop, "there is no mkfs.ext4");
        return false;
    }
    true
}

/// A daemon, and the loop device on its disk.
pub(crate) struct Shown {
    daemon: Daemon,
    device: Option<LoopDevice>,
}

fn tool(scratch: &Scratch, program: &str, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(scratch.directory.path()).stdin(Stdio::null());
    scratch.finish(command)
}

impl Stack {
    pub(crate) fn abilities(&self) -> Abilities {
        Abilities { modern: !self.line.contains("ffs") }
    }

    /// What mounts it at `place`.
    fn mounting(&self, place: &'static str) -> Vec<&'static str> {
        let mut arguments = vec!["mount", "--foreground", self.line, place];
        if self.is_disk {
            arguments.push("--as-disk");
        }
        if !self.options.is_empty() {
            arguments.extend(["-o", self.options]);
        }
        arguments
    }

    pub(crate) fn make(&self, scratch: &Scratch) {
        for name in ["mnt", "data"] {
            std::fs::create_dir(scratch.path(name)).unwrap();
        }
        if self.line.contains("a.key") {
            scratch.good(&["key", "a.key"]);
        }
        if !self.size.is_empty() {
            let below = self.line.strip_prefix("zstd / ").unwrap_or(self.line);
            scratch.good(&["mkfs", "-q", &below.replace(".img", &format!(".img{}", self.size))]);
        }
        if self.is_disk {
            let daemon = self.start(scratch);
            let device = LoopDevice::attach_with(&scratch.path("disk"), 4096, &["--direct-io=on"]).unwrap();
            let made = tool(scratch, "mkfs.ext4", &["-q", "-F", device.path().to_str().unwrap()]);
            assert!(made.status.success(), "{}", text_of(&made));
            drop(device);
            self.stop(scratch, "disk", daemon);
        }
    }

    fn start(&self, scratch: &Scratch) -> Daemon {
        let _ = std::fs::remove_file(scratch.path("pid"));
        let begun = Instant::now();
        let mut daemon = self.spawn(scratch);
        while !scratch.path("pid").exists() {
            let log = || std::fs::read_to_string(scratch.path("daemon.log")).unwrap();
            if daemon.0.try_wait().unwrap().is_some() {
                // Requests of a daemon that was killed hold the image for a moment longer.
                assert!(log().contains("is in use by another"), "{} does not mount: {}", self.line, log());
                daemon = self.spawn(scratch);
            }
            assert!(begun.elapsed() < PATIENCE, "{} is not mounted in time: {}", self.line, log());
            std::thread::sleep(Duration::from_millis(5));
        }
        daemon
    }

    fn spawn(&self, scratch: &Scratch) -> Daemon {
        let place = if self.is_disk { "disk" } else { "mnt" };
        let mut arguments = self.mounting(place);
        arguments.extend(["--pid-file", "pid"]);
        // Empty, so that it tells of this daemon alone.
        let log = File::create(scratch.path("daemon.log")).unwrap();
        Daemon(scratch.program(&arguments).stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }

    /// Has it appear under `mnt`.
    pub(crate) fn show(&self, scratch: &Scratch) -> Shown {
        let daemon = self.start(scratch);
        let device = self.is_disk.then(|| {
            let device = LoopDevice::attach_with(&scratch.path("disk"), 4096, &["--direct-io=on"]).unwrap();
            let name = device.path().to_str().unwrap();
            let replayed = tool(scratch, "e2fsck", &["-p", name]);
            assert!(replayed.status.code().is_some_and(|code| code <= 1), "e2fsck -p: {}", text_of(&replayed));
            let checked = tool(scratch, "e2fsck", &["-f", "-n", name]);
            assert!(checked.status.success(), "e2fsck -f -n: {}", text_of(&checked));
            let mounted = tool(scratch, "mount", &["-t", "ext4", name, "mnt"]);
            assert!(mounted.status.success(), "{}", text_of(&mounted));
            device
        });
        Shown { daemon, device }
    }

    /// Makes everything durable.
    pub(crate) fn sync(&self, scratch: &Scratch) {
        match self.is_disk {
            true => {
                let synced = tool(scratch, "sync", &["--file-system", "mnt"]);
                assert!(synced.status.success(), "{}", text_of(&synced));
            }
            false => drop(scratch.good(&["sync", "mnt"])),
        }
    }

    /// Unmounts cleanly.
    pub(crate) fn hide(&self, scratch: &Scratch, shown: Shown) {
        let Shown { daemon, device } = shown;
        if let Some(device) = device {
            unmount_ext4(scratch);
            drop(device);
        }
        self.stop(scratch, if self.is_disk { "disk" } else { "mnt" }, daemon);
    }

    fn stop(&self, scratch: &Scratch, place: &str, mut daemon: Daemon) {
        let begun = Instant::now();
        loop {
            // What has just been closed may be in use for another moment.
            let output = scratch.run(&["umount", place]);
            if output.status.success() {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "umount: {}", text_of(&output));
            std::thread::sleep(Duration::from_millis(20));
        }
        let status = daemon.0.wait().unwrap();
        assert!(status.success(), "the daemon ended with {status}");
    }

    /// Kills the daemon and takes away what is left of the mount.
    pub(crate) fn kill(&self, scratch: &Scratch, shown: Shown) {
        shown.daemon.kill();
        if let Some(device) = shown.device {
            unmount_ext4(scratch);
            drop(device);
        }
        let place = if self.is_disk { "disk" } else { "mnt" };
        let begun = Instant::now();
        // Until a kernel thread or a client has let go.
        while !scratch.run(&["umount", "--lazy", place]).status.success() {
            assert!(begun.elapsed() < PATIENCE, "the dead mount stays");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Mounts, and kills the daemon after so long, mounted or not.
    pub(crate) fn show_and_kill(&self, scratch: &Scratch, after: Duration) {
        let place = if self.is_disk { "disk" } else { "mnt" };
        let child = scratch.program(&self.mounting(place)).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(after);
        Daemon(child).kill();
        // Where it was mounted.
        scratch.run(&["umount", "--lazy", place]);
    }

    /// Checks what a crash has left, before it is mounted.
    pub(crate) fn check(&self, scratch: &Scratch) {
        let output = scratch.run(&["fsck", "-n", self.line]);
        let code = output.status.code();
        let is_right = if self.is_mended { matches!(code, Some(0 | 4)) } else { code == Some(0) };
        assert!(is_right, "fsck -n after a crash: {}", text_of(&output));
        if self.promises == Promises::Nothing {
            let output = scratch.run(&["fsck", self.line]);
            assert!(matches!(output.status.code(), Some(0 | 1)), "fsck: {}", text_of(&output));
        }
    }

    /// Checks what was unmounted: there is nothing to mend.
    pub(crate) fn check_clean(&self, scratch: &Scratch) {
        let output = scratch.run(&["fsck", "-n", "--data", self.line]);
        assert_eq!(output.status.code(), Some(0), "fsck -n after an unmount: {}", text_of(&output));
    }
}

fn unmount_ext4(scratch: &Scratch) {
    let begun = Instant::now();
    while !tool(scratch, "umount", &["mnt"]).status.success() {
        assert!(begun.elapsed() < PATIENCE, "ext4 stays in use");
        std::thread::sleep(Duration::from_millis(20));
    }
}
