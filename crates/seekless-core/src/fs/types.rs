//! The types of [`FileSystem`](super::FileSystem): attributes, modes and flags.

use crate::units::{Ino, WallTime};

/// An open file or directory, chosen by the file system that opened it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Handle(pub u64);

/// Properties of a file system that a mount needs to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FsTraits {
    /// Word by which reports and `mount` name it.
    pub name: &'static str,
    pub open_protocol: OpenProtocol,
    /// True when names and data change only through this interface, so that its caller may cache them without limit.
    /// False where the same files can be reached another way.
    pub exclusive: bool,
    pub name_bytes_max: u32,
    pub read_only: bool,
    /// It has access-control lists ([`acl`](super::acl)). Otherwise it refuses their attributes.
    pub access_lists: bool,
    /// Open files are also there outside: [`FileSystem::outside_file`](super::FileSystem::outside_file).
    pub outside_files: bool,
    /// A write with [`WriteMode::append`] goes to the end of the file as it is then, not as the caller knows it.
    pub appends_at_end: bool,
    /// How many files its users may have open at once; `None` where memory alone sets a limit.
    pub open_files_max: Option<usize>,
}

/// A file outside of Seekless, as its system names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutsideName {
    /// As stat(2) has them.
    pub device: u64,
    pub inode: u64,
    /// Absolute, for the process that has it open.
    pub path: Vec<u8>,
}

/// Whether others can write to a file: see [`FileSystem::other_writers`](super::FileSystem::other_writers).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writers {
    None,
    Some,
    /// The file system, or the rights of this process, do not allow finding out.
    Unknown,
}

/// How files are opened on a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenProtocol {
    /// No message at open and close: the lookup count alone keeps an unlinked file alive. This saves two of the most
    /// frequent messages.
    ZeroMessage,
    /// `open` and `release` are sent, and handles are passed with every operation.
    Handles,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FileKind {
    Regular,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
}

impl FileKind {
    pub const ALL: [FileKind; 7] = [
        FileKind::Regular,
        FileKind::Directory,
        FileKind::Symlink,
        FileKind::Fifo,
        FileKind::Socket,
        FileKind::CharDevice,
        FileKind::BlockDevice,
    ];

    /// The `S_IFMT` bits of a Unix mode, the same on every Unix.
    pub const fn mode_bits(self) -> u32 {
        match self {
            FileKind::Fifo => 0o010000,
            FileKind::CharDevice => 0o020000,
            FileKind::Directory => 0o040000,
            FileKind::BlockDevice => 0o060000,
            FileKind::Regular => 0o100000,
            FileKind::Symlink => 0o120000,
            FileKind::Socket => 0o140000,
        }
    }

    /// The kind that a Unix mode's `S_IFMT` bits say.
    #[inline]
    pub fn from_mode(mode: u32) -> Option<FileKind> {
        Some(match mode & 0o170000 {
            0o010000 => FileKind::Fifo,
            0o020000 => FileKind::CharDevice,
            0o040000 => FileKind::Directory,
            0o060000 => FileKind::BlockDevice,
            0o100000 => FileKind::Regular,
            0o120000 => FileKind::Symlink,
            0o140000 => FileKind::Socket,
            _ => return None,
        })
    }
}

/// What `mknod` can make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeKind {
    Regular,
    Fifo,
    Socket,
    /// `device` is the number as Linux encodes it in 32 bits.
    CharDevice {
        device: u32,
    },
    BlockDevice {
        device: u32,
    },
}

impl NodeKind {
    pub fn kind(self) -> FileKind {
        match self {
            NodeKind::Regular => FileKind::Regular,
            NodeKind::Fifo => FileKind::Fifo,
            NodeKind::Socket => FileKind::Socket,
            NodeKind::CharDevice { .. } => FileKind::CharDevice,
            NodeKind::BlockDevice { .. } => FileKind::BlockDevice,
        }
    }

    /// Device number, 0 where there is none.
    pub fn device(self) -> u32 {
        match self {
            NodeKind::CharDevice { device } | NodeKind::BlockDevice { device } => device,
            _ => 0,
        }
    }
}

/// Attributes of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr {
    pub ino: Ino,
    pub kind: FileKind,
    /// Permission bits, with set-user-id, set-group-id and sticky: `0o7777`.
    pub permissions: u16,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    /// Device number of a device node as Linux encodes it in 32 bits; 0 otherwise.
    pub device: u32,
    pub size: u64,
    /// Storage in use, in 512-byte sectors.
    pub sectors: u64,
    /// `sectors` will change without a request, as where a layer still has data to compress: not to be cached.
    pub sectors_will_change: bool,
    /// Preferred size of an I/O, in bytes.
    pub io_bytes: u32,
    pub atime: WallTime,
    pub mtime: WallTime,
    pub ctime: WallTime,
    pub btime: WallTime,
}

/// An inode found or made, with one lookup counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub attr: Attr,
    /// Distinguishes the files that used this inode number one after another.
    pub generation: u64,
}

/// All permission bits: those of [`Attr::permissions`].
pub const PERMISSIONS: u16 = 0o7777;

/// Set-user-id, of [`PERMISSIONS`].
pub const SET_USER_ID: u16 = 0o4000;

/// Set-group-id, of [`PERMISSIONS`]. What is made in a directory that has it gets the directory's group.
pub const SET_GROUP_ID: u16 = 0o2000;

/// `mode`, which also holds the kind of the file, with other permissions.
pub fn mode_with(mode: u16, permissions: u16) -> u16 {
    mode & !PERMISSIONS | permissions & PERMISSIONS
}

/// Who makes a new file, and with which permissions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewNode {
    /// As the program requests them.
    pub permissions: u16,
    /// Permissions to remove, unless the directory has a default access list.
    pub umask: u16,
    pub uid: u32,
    /// See [`NewNode::in_directory`].
    pub gid: u32,
}

impl NewNode {
    /// The permissions where there is no default access list.
    pub fn masked(self) -> u16 {
        self.permissions & !self.umask
    }

    /// The same in a directory with `mode` and the group `gid`: a set-group-id directory gives it its group, and
    /// gives a new directory the bit, too. Lists and the umask are the caller's to apply.
    #[must_use]
    pub fn in_directory(self, kind: FileKind, mode: u16, gid: u32) -> NewNode {
        let inherits = mode & SET_GROUP_ID != 0;
        let bit = if inherits && kind == FileKind::Directory { SET_GROUP_ID } else { 0 };
        let gid = if inherits { gid } else { self.gid };
        NewNode { permissions: self.permissions & PERMISSIONS | bit, gid, ..self }
    }
}

/// A name in a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryName<'a> {
    pub parent: Ino,
    pub name: &'a [u8],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RenameMode {
    /// The file with the new name is replaced.
    Replace,
    /// `Exists` when the new name is in use.
    NoReplace,
    /// Both names must exist; they swap.
    Exchange,
    /// As `Replace`, or where `replace` is false as `NoReplace`; in the same step the old name becomes a new
    /// [`WHITEOUT`] without permissions that belongs to `uid` and `gid`. An overlay moves a file this way when the
    /// lower layer has one of the same name.
    Whiteout { replace: bool, uid: u32, gid: u32 },
}

/// What overlays use for a deleted name: a character device with the number 0 (`WHITEOUT_DEV` of Linux).
pub const WHITEOUT: NodeKind = NodeKind::CharDevice { device: 0 };

impl RenameMode {
    /// True when an existing file at the new name is an error.
    pub fn spares_target(self) -> bool {
        matches!(self, RenameMode::NoReplace | RenameMode::Whiteout { replace: false, .. })
    }

    /// The whiteout that is left behind, if one is.
    pub fn whiteout(self) -> Option<NewNode> {
        match self {
            RenameMode::Whiteout { uid, gid, .. } => Some(NewNode { permissions: 0, umask: 0, uid, gid }),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenFlags {
    pub read: bool,
    pub write: bool,
    pub append: bool,
    /// Cut to size zero, with the effects of [`WriteMode::kill_privileges`].
    pub truncate: bool,
    /// Bypass the caller's cache.
    pub direct: bool,
}

impl OpenFlags {
    pub const READ: OpenFlags = OpenFlags { read: true, write: false, append: false, truncate: false, direct: false };
    pub const READ_WRITE: OpenFlags = OpenFlags { write: true, ..OpenFlags::READ };
}

/// Result of opening.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Opened {
    /// `None` from a file system that keeps no state per open file.
    pub handle: Option<Handle>,
    /// Data cached from an earlier open is still good.
    pub keep_cache: bool,
}

/// New time for `setattr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    Now,
    At(WallTime),
}

/// What `setattr` changes; `None` leaves a field unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    pub permissions: Option<u16>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    pub ctime: Option<WallTime>,
    /// Clear set-user-id, and set-group-id of group-executable files: an unprivileged user is changing the file.
    pub kill_privileges: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteMode {
    /// As in [`SetAttr::kill_privileges`].
    pub kill_privileges: bool,
    /// The program appends: the offset is the end of the file as the caller knows it. Where others change files, too, the
    /// file may have grown since, and the data goes to its end as it is now ([`FsTraits::appends_at_end`]). Elsewhere it
    /// changes nothing.
    pub append: bool,
}

/// `permissions`, or a mode that has them, after an unprivileged user has changed the file's data or owner.
pub fn without_privileges(permissions: u16) -> u16 {
    const GROUP_EXECUTE: u16 = 0o0010;
    // Set-group-id without group-execute once meant mandatory locking, and stays.
    let cleared = if permissions & GROUP_EXECUTE != 0 { SET_USER_ID | SET_GROUP_ID } else { SET_USER_ID };
    permissions & !cleared
}

/// Bytes `offset..offset + bytes` of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileRange {
    pub offset: u64,
    pub bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllocateMode {
    /// Writes into the range will not fail with `NoSpace`.
    Allocate { keep_size: bool },
    /// The range becomes a hole. The size stays.
    PunchHole,
    /// The range reads as zeroes, and writes into it will not fail with `NoSpace`.
    Zero { keep_size: bool },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeekTo {
    Data,
    Hole,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XattrMode {
    Set,
    /// `Exists` when the attribute exists.
    Create,
    /// `NoAttribute` when the attribute does not exist.
    Replace,
}

/// The attribute that gives a program capabilities. A file system removes it whenever data, size or owner of the file
/// change, by any user: with `FUSE_HANDLE_KILLPRIV_V2` the kernel no longer asks before each write.
pub const XATTR_CAPABILITY: &[u8] = b"security.capability";

/// Longest value and longest list of extended attributes that Linux takes (`XATTR_SIZE_MAX`).
pub const XATTR_BYTES_MAX: u32 = 65536;

/// One entry of a directory listing.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    pub ino: Ino,
    pub kind: FileKind,
    pub name: &'a [u8],
    /// Continues the listing after this entry; never 0.
    pub cookie: u64,
    /// Present when attributes were asked for.
    pub entry: Option<Entry>,
}

/// Receives directory entries.
pub trait DirSink {
    /// Takes `entry`, or returns false when there is no room; the entry must then be passed again next time.
    fn add(&mut self, entry: &DirEntry<'_>) -> bool;
}

/// Space and limits of a file system, in blocks of `block_bytes`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatFs {
    pub block_bytes: u32,
    pub blocks: u64,
    pub blocks_free: u64,
    /// Blocks that files can still use; excludes reserves.
    pub blocks_available: u64,
    pub inodes: u64,
    pub inodes_free: u64,
    pub name_bytes_max: u32,
}

/// How full the segments of a log are [ro92 Figure 5].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogUsage {
    pub segment_bytes: u64,
    /// Segments that the log can write.
    pub clean: u64,
    /// Segments without live data that the log cannot write yet, because recovery may need them.
    pub empty: u64,
    /// Bytes alive in all segments.
    pub live_bytes: u64,
    /// Segments with live data, by the share that is alive: the first holds those up to 1 / [`LogUsage::BINS`].
    pub by_live: [u64; LogUsage::BINS],
}

impl LogUsage {
    pub const BINS: usize = 20;

    /// The bin of a segment with so much live data.
    pub fn bin(live_bytes: u64, segment_bytes: u64) -> usize {
        let bin = (live_bytes.saturating_sub(1) * Self::BINS as u64).checked_div(segment_bytes).unwrap_or(0);
        (bin as usize).min(Self::BINS - 1)
    }

    /// All segments.
    pub fn segments(&self) -> u64 {
        self.clean + self.empty + self.by_live.iter().sum::<u64>()
    }
}
