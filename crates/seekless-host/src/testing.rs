//! For the tests of this crate: their requirements on the machine, and what happens where these are missing.
//!
//! A test that cannot run here reports that and passes, so that `make test` is useful on any machine. Where it must
//! run, `SEEKLESS_REQUIRE=fuse,root` turns a skip into a failure; `SEEKLESS_REQUIRE=all` allows no skipping.

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// For the fuzzer: requests as no kernel sends them. Panics when an invariant is violated.
pub fn fuse_request(input: &[u8]) {
    crate::fuse::fuzz::requests(input);
}

/// The same for bytes that no NBD client sends.
pub fn nbd_stream(input: &[u8]) {
    crate::nbd::fuzz::stream(input);
}

/// The same for bytes that no NBD server sends.
pub fn nbd_client(input: &[u8]) {
    crate::nbd::client_fuzz(input);
}

/// A requirement that a machine may not meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// Root with all privileges.
    Root,
    /// `/dev/fuse`, and permission to mount.
    Fuse,
    /// FUSE for ordinary users: `fusermount3`, and a `/dev/fuse` open to all users.
    UserFuse,
    /// A free loop device.
    Loop,
    /// A tmpfs for the test.
    Tmpfs,
    /// io_uring.
    Uring,
    /// A temporary directory in which holes can be punched.
    Punch,
    /// An ext4 below `target` that states the alignment of direct I/O (from Linux 6.1 on).
    DirectIo,
    /// Clients of NBD: `nbdinfo`, `nbdcopy`, `qemu-img`, `fio`.
    Nbd,
    /// A memory control group for the test.
    Memcg,
    /// Trace buffers of the kernel for the test.
    Tracefs,
    /// Other tools for UFS1, for comparison: makefs, fls and icat, grub-fstest.
    UfsTools,
    /// Programs that handle access-control lists: `setfacl`, `getfacl`, `rsync`.
    AclTools,
    /// A kernel with overlay file systems.
    Overlay,
    /// What runs sweeps: Slurm, Snakemake, Dask.
    Schedulers,
    /// `script`, which gives a program a terminal.
    Terminal,
    /// A browser that draws pages without a display: `chromium`.
    Browser,
    /// Two processors, and the right to leave the policy `SCHED_IDLE` again, and to change limits of the nice value.
    Processors,
    /// A set of processors for threads: a cpuset of control groups version 1.
    Cpuset,
}

impl Need {
    pub const ALL: [Need; 19] = [
        Need::Root,
        Need::Fuse,
        Need::UserFuse,
        Need::Loop,
        Need::Tmpfs,
        Need::Uring,
        Need::Punch,
        Need::DirectIo,
        Need::Nbd,
        Need::Memcg,
        Need::Tracefs,
        Need::UfsTools,
        Need::AclTools,
        Need::Overlay,
        Need::Schedulers,
        Need::Terminal,
        Need::Browser,
        Need::Processors,
        Need::Cpuset,
    ];

    /// Its word in `SEEKLESS_REQUIRE`.
    pub fn word(self) -> &'static str {
        match self {
            Need::Root => "root",
            Need::Fuse => "fuse",
            Need::UserFuse => "user-fuse",
            Need::Loop => "loop",
            Need::Tmpfs => "tmpfs",
            Need::Uring => "uring",
            Need::Punch => "punch",
            Need::DirectIo => "direct-io",
            Need::Nbd => "nbd",
            Need::Memcg => "memcg",
            Need::Tracefs => "tracefs",
            Need::UfsTools => "ufs-tools",
            Need::AclTools => "acl-tools",
            Need::Overlay => "overlay",
            Need::Schedulers => "schedulers",
            Need::Terminal => "terminal",
            Need::Browser => "browser",
            Need::Processors => "processors",
            Need::Cpuset => "cpuset",
        }
    }
}

/// True when `wanted`, the value of `SEEKLESS_REQUIRE`, contains `need`.
///
/// # Errors
/// Which word is unknown.
fn is_required(wanted: &str, need: Need) -> Result<bool, String> {
    let words: Vec<&str> = wanted.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    let known = |word: &str| word == "all" || Need::ALL.iter().any(|need| need.word() == word);
    if let Some(unknown) = words.iter().find(|word| !known(word)) {
        let all: Vec<&str> = Need::ALL.iter().map(|need| need.word()).collect();
        return Err(format!("SEEKLESS_REQUIRE: {unknown:?} is none of all, {}", all.join(", ")));
    }
    Ok(words.contains(&"all") || words.contains(&need.word()))
}

/// Reports that the running test, or a part of it, is skipped because `need` is missing.
///
/// # Panics
/// When `SEEKLESS_REQUIRE` contains `need`.
#[track_caller]
pub fn skip(need: Need, why: impl fmt::Display) {
    let wanted = std::env::var("SEEKLESS_REQUIRE").unwrap_or_default();
    match is_required(&wanted, need) {
        Ok(true) => panic!("{why}, and SEEKLESS_REQUIRE={wanted} demands it"),
        Ok(false) => {
            let thread = std::thread::current();
            let test = thread.name().unwrap_or("a test");
            // Not `eprintln`, whose output the test harness drops when a test passes.
            let _ = writeln!(std::io::stderr(), "skipped ({}) {test}: {why}", need.word());
        }
        Err(error) => panic!("{error}"),
    }
}

/// A control group with little memory, until it is dropped. By then its processes must have ended, or have been moved.
pub struct MemoryLimit(PathBuf);

impl MemoryLimit {
    /// Makes one whose processes have `bytes` of memory together, including page cache. `None`, with a message, where
    /// that is impossible.
    pub fn new(name: &str, bytes: u64) -> Option<MemoryLimit> {
        let root = Path::new("/sys/fs/cgroup");
        let is_unified = root.join("cgroup.controllers").exists();
        let (parent, limit) = match is_unified {
            true => (root.to_path_buf(), "memory.max"),
            false => (root.join("memory"), "memory.limit_in_bytes"),
        };
        if is_unified {
            // It may already be enabled for groups.
            let _ = std::fs::write(root.join("cgroup.subtree_control"), "+memory");
        }
        let path = parent.join(format!("seekless-{name}-{}", std::process::id()));
        let made = std::fs::create_dir(&path).and_then(|()| std::fs::write(path.join(limit), bytes.to_string()));
        match made {
            Ok(()) => Some(MemoryLimit(path)),
            Err(error) => {
                let _ = std::fs::remove_dir(&path);
                skip(Need::Memcg, format_args!("no memory control group {}: {error}", path.display()));
                None
            }
        }
    }

    /// True for version 2, whose processes never wait for write-back by others.
    pub fn is_unified(&self) -> bool {
        Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
    }

    /// The file into which a process writes its number to join.
    pub fn processes(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // The kernel takes a moment to notice that a process has ended.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// A loop device over a file, until it is dropped.
pub struct LoopDevice(PathBuf);

impl LoopDevice {
    /// Attaches `file`, with sectors of `sector_bytes`. `None`, with a message, where that is impossible.
    pub fn attach(file: &Path, sector_bytes: u32) -> Option<LoopDevice> {
        LoopDevice::attach_with(file, sector_bytes, &[])
    }

    /// The same, with more options of `losetup`.
    pub fn attach_with(file: &Path, sector_bytes: u32, more: &[&str]) -> Option<LoopDevice> {
        let options = ["--find", "--show", "--sector-size", &sector_bytes.to_string()];
        let output = match Command::new("losetup").args(options).args(more).arg(file).output() {
            Ok(output) => output,
            Err(error) => {
                skip(Need::Loop, format_args!("cannot run losetup: {error}"));
                return None;
            }
        };
        let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if name.is_empty() {
            skip(Need::Loop, format_args!("no loop device: {}", String::from_utf8_lossy(&output.stderr)));
            return None;
        }
        Some(LoopDevice(name.into()))
    }

    /// Makes partition `number` of a device that was attached with `--partscan`, and returns its path. Other than a table of partitions, the
    /// call needs no support in the kernel. `None`, with a message, where that is impossible.
    pub fn partition(&self, number: u32, first_sector: u64, sectors: u64) -> Option<PathBuf> {
        let numbers = [u64::from(number), first_sector, sectors].map(|number| number.to_string());
        let made = Command::new("addpart").arg(&self.0).args(numbers).output();
        let path = PathBuf::from(format!("{}p{number}", self.0.display()));
        if !made.is_ok_and(|made| made.status.success()) || !path.exists() {
            skip(Need::Loop, format_args!("no partition {}", path.display()));
            return None;
        }
        Some(path)
    }

    /// The device, for example `/dev/loop0`.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // Ignored: a failed test has already reported its error.
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// A tmpfs of `bytes` at `directory`, until it is dropped. `None` without the right to mount.
pub struct SmallTmpfs(PathBuf);

impl SmallTmpfs {
    /// Mounts it.
    pub fn mount(directory: &Path, bytes: u64) -> Option<SmallTmpfs> {
        let size = std::ffi::CString::new(format!("size={bytes}")).unwrap_or_default();
        let mounted = rustix::mount::mount("tmpfs", directory, "tmpfs", rustix::mount::MountFlags::empty(), &*size);
        match mounted {
            Ok(()) => Some(SmallTmpfs(directory.to_owned())),
            Err(error) => {
                skip(Need::Tmpfs, format_args!("cannot mount a tmpfs: {error}"));
                None
            }
        }
    }
}

impl Drop for SmallTmpfs {
    fn drop(&mut self) {
        // Ignored: a failed test has already reported its error.
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Aim: a required word is found, and a misspelt one is an error. Method: a few values.
    #[test]
    fn requirements() {
        assert_eq!(is_required("", Need::Fuse), Ok(false));
        assert_eq!(is_required("root, fuse", Need::Fuse), Ok(true));
        assert_eq!(is_required("root,user-fuse", Need::Fuse), Ok(false));
        assert_eq!(is_required("all", Need::Loop), Ok(true));
        assert!(is_required("fuse,rooot", Need::Fuse).is_err_and(|error| error.contains("rooot")));
    }
}
