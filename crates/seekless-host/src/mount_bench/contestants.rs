//! What takes part, in one table. A contestant is a row here; how rows of its kind are made and mounted is in
//! [`place`](super::place).

use std::path::Path;

use super::client::Settle;
use super::kernel::EXT4;
use super::phases::Phase;
use super::process::is_installed;

/// Something that can be mounted and measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contestant {
    pub name: &'static str,
    pub help: &'static str,
    pub kind: ContestantKind,
    /// Only when it is named.
    pub is_extra: bool,
}

/// How a contestant comes to be mounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContestantKind {
    /// A directory of the file system that has the scratch directory.
    Directory,
    /// A file system of the kernel on a loop device.
    Kernel {
        name: &'static str,
        mkfs: &'static [&'static str],
        options: &'static str,
    },
    /// Ours on an image file, or on a loop device over it. `words` is the stack above `file:`.
    Volume {
        words: &'static str,
        on: StoredOn,
        mount: &'static [&'static str],
    },
    /// Ours over a directory of an ext4 on a loop device. `words` is the stack above `hostdir:`.
    Layer {
        words: &'static str,
    },
    /// Of others, over a directory of an ext4 on a loop device.
    Bindfs,
    Gocryptfs,
    /// ext4 in user space, on the image file.
    Fuse2fs,
    /// Made as a whole of files on an ext4, and read.
    Squashfs,
    /// Our transport with nothing behind it.
    Null {
        arguments: &'static [&'static str],
    },
}

/// What one of our file systems is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoredOn {
    Image,
    Loop,
}

const BTRFS: &[&str] = &["-q", "-f", "-K"];

const fn volume(name: &'static str, words: &'static str, on: StoredOn, help: &'static str) -> Contestant {
    Contestant { name, help, kind: ContestantKind::Volume { words, on, mount: &[] }, is_extra: false }
}

const fn layer(name: &'static str, words: &'static str, help: &'static str) -> Contestant {
    Contestant { name, help, kind: ContestantKind::Layer { words }, is_extra: false }
}

const fn of_kernel(name: &'static str, kind: ContestantKind, help: &'static str) -> Contestant {
    Contestant { name, help, kind, is_extra: false }
}

const fn extra(contestant: Contestant) -> Contestant {
    Contestant { is_extra: true, ..contestant }
}

/// Every contestant.
#[rustfmt::skip]
pub const CONTESTANTS: &[Contestant] = &[
    of_kernel("ext4", ContestantKind::Kernel { name: "ext4", mkfs: EXT4, options: "noatime" }, "ext4 on a loop device"),
    of_kernel("xfs", ContestantKind::Kernel { name: "xfs", mkfs: &["-q", "-f", "-K"], options: "noatime" }, "XFS on a loop device"),
    of_kernel("btrfs", ContestantKind::Kernel { name: "btrfs", mkfs: BTRFS, options: "noatime,nodiscard" }, "btrfs on a loop device"),
    of_kernel("btrfs-zstd", ContestantKind::Kernel { name: "btrfs", mkfs: BTRFS, options: "noatime,nodiscard,compress=zstd:1" }, "btrfs with compress=zstd:1"),
    of_kernel("squashfs", ContestantKind::Squashfs, "squashfs with zstd, which is made as a whole: phases that read"),
    of_kernel("directory", ContestantKind::Directory, "a directory of the file system that has the scratch directory"),
    Contestant { name: "null", help: "a file system that stores nothing, on our transport: phases that need no data", kind: ContestantKind::Null { arguments: &[] }, is_extra: false },
    volume("lfs", "lfs", StoredOn::Image, "lfs / file:IMAGE"),
    volume("lfs-loop", "lfs", StoredOn::Loop, "lfs / file:/dev/loopN"),
    volume("vlfs", "vlfs", StoredOn::Image, "vlfs / file:IMAGE"),
    extra(volume("vlfs-loop", "vlfs", StoredOn::Loop, "vlfs / file:/dev/loopN")),
    volume("ffs-softdep", "ffs:metadata=softdep", StoredOn::Image, "ffs:metadata=softdep / file:IMAGE"),
    extra(volume("ffs", "ffs", StoredOn::Image, "ffs / file:IMAGE, which waits for each change of a directory: minutes")),
    extra(volume("ffs-loop", "ffs", StoredOn::Loop, "ffs / file:/dev/loopN")),
    extra(Contestant { kind: ContestantKind::Volume { words: "lfs", on: StoredOn::Image, mount: &["-o", "writeback"] }, ..volume("lfs-writeback", "lfs", StoredOn::Image, "lfs / file:IMAGE, mounted with -o writeback") }),
    extra(Contestant { kind: ContestantKind::Volume { words: "lfs", on: StoredOn::Image, mount: &["-o", "sharecpu"] }, ..volume("lfs-sharecpu", "lfs", StoredOn::Image, "lfs / file:IMAGE, mounted with -o sharecpu") }),
    extra(Contestant { kind: ContestantKind::Volume { words: "lfs", on: StoredOn::Image, mount: &["--transport", "uring"] }, ..volume("lfs-uring", "lfs", StoredOn::Image, "lfs / file:IMAGE, mounted with --transport uring") }),
    layer("hostdir", "", "hostdir:DIR, as the layers over ext4 on a loop device"),
    layer("wrap", "wrap", "wrap / hostdir:DIR"),
    layer("zstd", "zstd", "zstd / hostdir:DIR"),
    extra(layer("zstd-16k", "zstd:chunk=16KiB", "zstd:chunk=16KiB / hostdir:DIR; the default is 32KiB")),
    extra(layer("zstd-64k", "zstd:chunk=64KiB", "zstd:chunk=64KiB / hostdir:DIR")),
    layer("encrypt", "encrypt:KEY", "encrypt:KEY / hostdir:DIR"),
    of_kernel("bindfs", ContestantKind::Bindfs, "bindfs over ext4 on a loop device"),
    of_kernel("gocryptfs", ContestantKind::Gocryptfs, "gocryptfs over ext4 on a loop device"),
    of_kernel("fuse2fs", ContestantKind::Fuse2fs, "ext4 in user space, on the image"),
    extra(Contestant { kind: ContestantKind::Null { arguments: &["--uring"] }, ..of_kernel("null-uring", ContestantKind::Directory, "null with FUSE over io_uring") }),
    extra(Contestant { kind: ContestantKind::Null { arguments: &["--messages"] }, ..of_kernel("null-messages", ContestantKind::Directory, "null with a message for each open and close") }),
    extra(Contestant { kind: ContestantKind::Null { arguments: &["--writeback"] }, ..of_kernel("null-writeback", ContestantKind::Directory, "null with the write-back cache of the kernel") }),
];

/// The contestant with this name.
pub fn find(name: &str) -> Option<&'static Contestant> {
    CONTESTANTS.iter().find(|contestant| contestant.name == name)
}

impl Contestant {
    /// Why it cannot take part on this machine.
    pub fn missing(&self) -> Option<String> {
        let programs: &[&str] = match self.kind {
            ContestantKind::Directory | ContestantKind::Null { .. } => &[],
            ContestantKind::Volume { on: StoredOn::Image, .. } => &[],
            ContestantKind::Volume { on: StoredOn::Loop, .. } => &["losetup"],
            ContestantKind::Kernel { name: "xfs", .. } => &["losetup", "mkfs.xfs"],
            ContestantKind::Kernel { name: "btrfs", .. } => &["losetup", "mkfs.btrfs"],
            ContestantKind::Kernel { .. } | ContestantKind::Layer { .. } => &["losetup", "mkfs.ext4"],
            ContestantKind::Bindfs => &["losetup", "mkfs.ext4", "bindfs"],
            ContestantKind::Gocryptfs => &["losetup", "mkfs.ext4", "gocryptfs"],
            ContestantKind::Fuse2fs => &["mkfs.ext4", "fuse2fs"],
            ContestantKind::Squashfs => &["losetup", "mkfs.ext4", "mksquashfs"],
        };
        if let Some(program) = programs.iter().find(|program| !is_installed(program)) {
            return Some(format!("there is no program {program}"));
        }
        let of_kernel = match self.kind {
            ContestantKind::Kernel { name, .. } => name,
            ContestantKind::Squashfs => "squashfs",
            _ => "",
        };
        let needs_fuse = self.is_ours()
            || matches!(self.kind, ContestantKind::Bindfs | ContestantKind::Gocryptfs | ContestantKind::Fuse2fs);
        match () {
            () if needs_fuse && !Path::new("/dev/fuse").exists() => Some("there is no /dev/fuse".into()),
            () if self.needs_uring() && !offers_uring() => {
                Some(format!("the kernel offers no FUSE over io_uring; `echo Y > {ENABLE_URING}` may change that"))
            }
            () if !of_kernel.is_empty() && !kernel_has(of_kernel) => Some(format!("this kernel has no {of_kernel}")),
            () => None,
        }
    }

    /// A mount that asks for io_uring does without it where it is switched off, and would be measured under a wrong name.
    fn needs_uring(&self) -> bool {
        match self.kind {
            ContestantKind::Null { arguments } => arguments.contains(&"--uring"),
            ContestantKind::Volume { mount, .. } => mount.contains(&"uring"),
            _ => false,
        }
    }

    /// Whether a daemon of this program serves it.
    pub fn is_ours(&self) -> bool {
        matches!(self.kind, ContestantKind::Volume { .. } | ContestantKind::Layer { .. } | ContestantKind::Null { .. })
    }

    /// Whether it can do the phase.
    pub fn runs(&self, phase: &Phase) -> bool {
        match self.kind {
            ContestantKind::Null { .. } => !phase.reads_back,
            ContestantKind::Squashfs => phase.is_cold,
            _ => true,
        }
    }

    /// How the client makes everything on it durable.
    pub(super) fn settle(&self) -> Settle {
        match self.kind {
            ContestantKind::Volume { .. } | ContestantKind::Layer { .. } | ContestantKind::Null { .. } => Settle::Ours,
            ContestantKind::Directory | ContestantKind::Kernel { .. } | ContestantKind::Squashfs => Settle::Kernel,
            ContestantKind::Fuse2fs => Settle::Fsync,
            ContestantKind::Bindfs | ContestantKind::Gocryptfs => Settle::Below,
        }
    }

    /// Whether it is over a directory of an ext4.
    pub(super) fn has_lower(&self) -> bool {
        matches!(
            self.kind,
            ContestantKind::Layer { .. }
                | ContestantKind::Bindfs
                | ContestantKind::Gocryptfs
                | ContestantKind::Squashfs
        )
    }

    pub(super) fn has_loop(&self) -> bool {
        self.has_lower()
            || matches!(self.kind, ContestantKind::Kernel { .. } | ContestantKind::Volume { on: StoredOn::Loop, .. })
    }
}

const ENABLE_URING: &str = "/sys/module/fuse/parameters/enable_uring";

fn offers_uring() -> bool {
    std::fs::read_to_string(ENABLE_URING).is_ok_and(|text| text.trim() == "Y")
}

/// Whether the kernel has a file system, or a module for it.
fn kernel_has(name: &str) -> bool {
    let listed = || {
        let table = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        table.lines().any(|line| line.split_whitespace().next_back() == Some(name))
    };
    listed() || (super::process::run(std::process::Command::new("modprobe").arg(name)).is_ok() && listed())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contestants that are named for a transport are those that need it.
    #[test]
    fn transports_are_needed_by_name() {
        for contestant in CONTESTANTS {
            assert_eq!(contestant.needs_uring(), contestant.name.ends_with("-uring"), "{}", contestant.name);
        }
    }

    /// Names are unique, and can be written in a list with commas.
    #[test]
    fn names_are_names() {
        for (index, contestant) in CONTESTANTS.iter().enumerate() {
            assert!(CONTESTANTS[..index].iter().all(|other| other.name != contestant.name), "{}", contestant.name);
            assert!(contestant.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{}", contestant.name);
        }
    }
}
