//! The FUSE wire format of Linux: `include/uapi/linux/fuse.h`, protocol 7.45 (Linux 6.18).
//!
//! Structures keep the kernel's field order; integers are in the machine's byte order, because both ends run on one
//! machine. Structures that Seekless neither sends nor reads are omitted.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Protocol version that this module speaks.
pub const MAJOR: u32 = 7;
pub const MINOR: u32 = 45;

/// Oldest kernel protocol that is served: 7.31 (Linux 5.4), which has everything that correctness needs.
pub const MINOR_MIN: u32 = 31;

/// `FUSE_MIN_READ_BUFFER`: the kernel refuses reads into less.
pub const READ_BUFFER_BYTES_MIN: usize = 8192;

/// Declares the operations and their numbers, once.
macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $number:literal),* $(,)?) => {
        $($(#[$doc])* pub const $name: u32 = $number;)*

        /// Name of an operation, for messages.
        pub fn opcode_name(opcode: u32) -> &'static str {
            match opcode {
                $($number => stringify!($name),)*
                _ => "unknown operation",
            }
        }
    };
}

opcodes! {
    LOOKUP = 1,
    FORGET = 2,
    GETATTR = 3,
    SETATTR = 4,
    READLINK = 5,
    SYMLINK = 6,
    MKNOD = 8,
    MKDIR = 9,
    UNLINK = 10,
    RMDIR = 11,
    RENAME = 12,
    LINK = 13,
    OPEN = 14,
    READ = 15,
    WRITE = 16,
    STATFS = 17,
    RELEASE = 18,
    FSYNC = 20,
    SETXATTR = 21,
    GETXATTR = 22,
    LISTXATTR = 23,
    REMOVEXATTR = 24,
    FLUSH = 25,
    INIT = 26,
    OPENDIR = 27,
    READDIR = 28,
    RELEASEDIR = 29,
    FSYNCDIR = 30,
    GETLK = 31,
    SETLK = 32,
    SETLKW = 33,
    ACCESS = 34,
    CREATE = 35,
    INTERRUPT = 36,
    BMAP = 37,
    DESTROY = 38,
    IOCTL = 39,
    POLL = 40,
    NOTIFY_REPLY = 41,
    BATCH_FORGET = 42,
    FALLOCATE = 43,
    READDIRPLUS = 44,
    RENAME2 = 45,
    LSEEK = 46,
    COPY_FILE_RANGE = 47,
    SYNCFS = 50,
    TMPFILE = 51,
    STATX = 52,
    COPY_FILE_RANGE_64 = 53,
}

bitflags::bitflags! {
    /// What kernel and server agree on in INIT (`FUSE_*` flags; the upper half travels as `flags2`).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct InitFlags: u64 {
        const ASYNC_READ = 1 << 0;
        const POSIX_LOCKS = 1 << 1;
        const ATOMIC_O_TRUNC = 1 << 3;
        const EXPORT_SUPPORT = 1 << 4;
        const BIG_WRITES = 1 << 5;
        const DONT_MASK = 1 << 6;
        const FLOCK_LOCKS = 1 << 10;
        const HAS_IOCTL_DIR = 1 << 11;
        const AUTO_INVAL_DATA = 1 << 12;
        const DO_READDIRPLUS = 1 << 13;
        const READDIRPLUS_AUTO = 1 << 14;
        const ASYNC_DIO = 1 << 15;
        const WRITEBACK_CACHE = 1 << 16;
        const NO_OPEN_SUPPORT = 1 << 17;
        const PARALLEL_DIROPS = 1 << 18;
        const HANDLE_KILLPRIV = 1 << 19;
        const POSIX_ACL = 1 << 20;
        const ABORT_ERROR = 1 << 21;
        const MAX_PAGES = 1 << 22;
        const CACHE_SYMLINKS = 1 << 23;
        const NO_OPENDIR_SUPPORT = 1 << 24;
        const EXPLICIT_INVAL_DATA = 1 << 25;
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        const SETXATTR_EXT = 1 << 29;
        /// `flags2` is present.
        const INIT_EXT = 1 << 30;
        /// Shared mappings of files with `FOPEN_DIRECT_IO`, and pages of what is written to them leave the cache (Linux 6.6).
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        const PASSTHROUGH = 1 << 37;
        const OVER_IO_URING = 1 << 41;
        // Any other flag of the kernel.
        const _ = !0;
    }
}

/// Flags of `OpenOut` (`FOPEN_*`).
pub const FOPEN_DIRECT_IO: u32 = 1 << 0;
pub const FOPEN_KEEP_CACHE: u32 = 1 << 1;
pub const FOPEN_CACHE_DIR: u32 = 1 << 3;
pub const FOPEN_NOFLUSH: u32 = 1 << 5;
pub const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
pub const FOPEN_PASSTHROUGH: u32 = 1 << 7;

/// `GetattrIn::flags`: `handle` is valid.
pub const GETATTR_FH: u32 = 1 << 0;

/// `SetattrIn::valid` (`FATTR_*`).
pub const FATTR_MODE: u32 = 1 << 0;
pub const FATTR_UID: u32 = 1 << 1;
pub const FATTR_GID: u32 = 1 << 2;
pub const FATTR_SIZE: u32 = 1 << 3;
pub const FATTR_ATIME: u32 = 1 << 4;
pub const FATTR_MTIME: u32 = 1 << 5;
pub const FATTR_FH: u32 = 1 << 6;
pub const FATTR_ATIME_NOW: u32 = 1 << 7;
pub const FATTR_MTIME_NOW: u32 = 1 << 8;
pub const FATTR_CTIME: u32 = 1 << 10;
pub const FATTR_KILL_SUIDGID: u32 = 1 << 11;

/// `WriteIn::write_flags` (`FUSE_WRITE_*`).
pub const WRITE_CACHE: u32 = 1 << 0;
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;

/// `SetxattrInExt::setxattr_flags` (`FUSE_SETXATTR_*`).
pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;

/// `FsyncIn::flags` (`FUSE_FSYNC_*`).
pub const FSYNC_FDATASYNC: u32 = 1 << 0;

/// Structures of the wire: plain old data without padding.
macro_rules! wire {
    ($($(#[$doc:meta])* pub struct $name:ident { $(pub $field:ident : $ty:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub struct $name { $(pub $field: $ty),* }
    )*};
}

wire! {
    /// `fuse_in_header`: starts every request.
    pub struct InHeader {
        pub len: u32,
        pub opcode: u32,
        pub unique: u64,
        pub nodeid: u64,
        pub uid: u32,
        pub gid: u32,
        pub pid: u32,
        pub total_extlen: u16,
        pub padding: u16,
    }

    /// `fuse_out_header`: starts every reply; `error` is a negative errno or 0.
    pub struct OutHeader {
        pub len: u32,
        pub error: i32,
        pub unique: u64,
    }

    /// `fuse_attr`.
    pub struct Attr {
        pub ino: u64,
        pub size: u64,
        pub blocks: u64,
        pub atime: u64,
        pub mtime: u64,
        pub ctime: u64,
        pub atimensec: u32,
        pub mtimensec: u32,
        pub ctimensec: u32,
        pub mode: u32,
        pub nlink: u32,
        pub uid: u32,
        pub gid: u32,
        pub rdev: u32,
        pub blksize: u32,
        pub flags: u32,
    }

    /// `fuse_entry_out`.
    pub struct EntryOut {
        pub nodeid: u64,
        pub generation: u64,
        pub entry_valid: u64,
        pub attr_valid: u64,
        pub entry_valid_nsec: u32,
        pub attr_valid_nsec: u32,
        pub attr: Attr,
    }

    /// `fuse_attr_out`.
    pub struct AttrOut {
        pub attr_valid: u64,
        pub attr_valid_nsec: u32,
        pub dummy: u32,
        pub attr: Attr,
    }

    pub struct ForgetIn {
        pub nlookup: u64,
    }

    /// `fuse_forget_one`.
    pub struct ForgetOne {
        pub nodeid: u64,
        pub nlookup: u64,
    }

    pub struct BatchForgetIn {
        pub count: u32,
        pub dummy: u32,
    }

    pub struct GetattrIn {
        pub flags: u32,
        pub dummy: u32,
        pub fh: u64,
    }

    pub struct SetattrIn {
        pub valid: u32,
        pub padding: u32,
        pub fh: u64,
        pub size: u64,
        pub lock_owner: u64,
        pub atime: u64,
        pub mtime: u64,
        pub ctime: u64,
        pub atimensec: u32,
        pub mtimensec: u32,
        pub ctimensec: u32,
        pub mode: u32,
        pub unused4: u32,
        pub uid: u32,
        pub gid: u32,
        pub unused5: u32,
    }

    pub struct MknodIn {
        pub mode: u32,
        pub rdev: u32,
        pub umask: u32,
        pub padding: u32,
    }

    pub struct MkdirIn {
        pub mode: u32,
        pub umask: u32,
    }

    pub struct RenameIn {
        pub newdir: u64,
    }

    pub struct Rename2In {
        pub newdir: u64,
        pub flags: u32,
        pub padding: u32,
    }

    pub struct LinkIn {
        pub oldnodeid: u64,
    }

    pub struct OpenIn {
        pub flags: u32,
        pub open_flags: u32,
    }

    pub struct OpenOut {
        pub fh: u64,
        pub open_flags: u32,
        pub backing_id: i32,
    }

    pub struct CreateIn {
        pub flags: u32,
        pub mode: u32,
        pub umask: u32,
        pub open_flags: u32,
    }

    pub struct ReleaseIn {
        pub fh: u64,
        pub flags: u32,
        pub release_flags: u32,
        pub lock_owner: u64,
    }

    /// `fuse_read_in`, also of READDIR.
    pub struct ReadIn {
        pub fh: u64,
        pub offset: u64,
        pub size: u32,
        pub read_flags: u32,
        pub lock_owner: u64,
        pub flags: u32,
        pub padding: u32,
    }

    pub struct WriteIn {
        pub fh: u64,
        pub offset: u64,
        pub size: u32,
        pub write_flags: u32,
        pub lock_owner: u64,
        pub flags: u32,
        pub padding: u32,
    }

    pub struct WriteOut {
        pub size: u32,
        pub padding: u32,
    }

    /// `fuse_kstatfs`, the whole of `fuse_statfs_out`.
    pub struct StatfsOut {
        pub blocks: u64,
        pub bfree: u64,
        pub bavail: u64,
        pub files: u64,
        pub ffree: u64,
        pub bsize: u32,
        pub namelen: u32,
        pub frsize: u32,
        pub padding: u32,
        pub spare: [u32; 6],
    }

    pub struct FsyncIn {
        pub fh: u64,
        pub flags: u32,
        pub padding: u32,
    }

    /// `fuse_setxattr_in` without `SETXATTR_EXT`.
    pub struct SetxattrIn {
        pub size: u32,
        pub flags: u32,
    }

    /// What follows it with `SETXATTR_EXT`.
    pub struct SetxattrInExt {
        pub setxattr_flags: u32,
        pub padding: u32,
    }

    /// `fuse_getxattr_in`, also of LISTXATTR.
    pub struct GetxattrIn {
        pub size: u32,
        pub padding: u32,
    }

    /// `fuse_getxattr_out`: the size alone, for a caller that asked with size 0.
    pub struct GetxattrOut {
        pub size: u32,
        pub padding: u32,
    }

    /// The start of `fuse_init_in` that every kernel sends.
    pub struct InitIn {
        pub major: u32,
        pub minor: u32,
        pub max_readahead: u32,
        pub flags: u32,
    }

    /// What follows it with `INIT_EXT`.
    pub struct InitInExt {
        pub flags2: u32,
        pub unused: [u32; 11],
    }

    pub struct InitOut {
        pub major: u32,
        pub minor: u32,
        pub max_readahead: u32,
        pub flags: u32,
        pub max_background: u16,
        pub congestion_threshold: u16,
        pub max_write: u32,
        pub time_gran: u32,
        pub max_pages: u16,
        pub map_alignment: u16,
        pub flags2: u32,
        pub max_stack_depth: u32,
        pub request_timeout: u16,
        pub unused: [u16; 11],
    }

    pub struct FallocateIn {
        pub fh: u64,
        pub offset: u64,
        pub length: u64,
        pub mode: u32,
        pub padding: u32,
    }

    /// `fuse_dirent`, without the name that follows and the zeroes that pad it to 8 bytes.
    pub struct Dirent {
        pub ino: u64,
        pub off: u64,
        pub namelen: u32,
        pub kind: u32,
    }

    pub struct LseekIn {
        pub fh: u64,
        pub offset: u64,
        pub whence: u32,
        pub padding: u32,
    }

    pub struct LseekOut {
        pub offset: u64,
    }

    pub struct StatxIn {
        pub getattr_flags: u32,
        pub reserved: u32,
        pub fh: u64,
        pub sx_flags: u32,
        pub sx_mask: u32,
    }

    /// `fuse_sx_time`.
    pub struct StatxTime {
        pub tv_sec: i64,
        pub tv_nsec: u32,
        pub reserved: i32,
    }

    /// `fuse_statx`.
    pub struct Statx {
        pub mask: u32,
        pub blksize: u32,
        pub attributes: u64,
        pub nlink: u32,
        pub uid: u32,
        pub gid: u32,
        pub mode: u16,
        pub spare0: u16,
        pub ino: u64,
        pub size: u64,
        pub blocks: u64,
        pub attributes_mask: u64,
        pub atime: StatxTime,
        pub btime: StatxTime,
        pub ctime: StatxTime,
        pub mtime: StatxTime,
        pub rdev_major: u32,
        pub rdev_minor: u32,
        pub dev_major: u32,
        pub dev_minor: u32,
        pub spare2: [u64; 14],
    }

    pub struct StatxOut {
        pub attr_valid: u64,
        pub attr_valid_nsec: u32,
        pub flags: u32,
        pub spare: [u64; 2],
        pub stat: Statx,
    }

    /// `fuse_uring_ent_in_out`.
    pub struct UringEntInOut {
        pub flags: u64,
        pub commit_id: u64,
        pub payload_sz: u32,
        pub padding: u32,
        pub reserved: u64,
    }

    /// `fuse_uring_cmd_req`, in the command area of a submission entry.
    pub struct UringCmdReq {
        pub flags: u64,
        pub commit_id: u64,
        pub qid: u16,
        pub padding: [u8; 6],
    }
}

/// `fuse_uring_req_header`: the part of a queue entry and its replies beside the payload.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct UringReqHeader {
    /// `InHeader` of the request, `OutHeader` of the reply.
    pub in_out: [u8; 128],
    /// The fixed structure of the operation.
    pub op_in: [u8; 128],
    pub ring: UringEntInOut,
}

/// `fuse_uring_cmd`.
pub const URING_REGISTER: u32 = 1;
pub const URING_COMMIT_AND_FETCH: u32 = 2;

// Sizes that the kernel checks.
const _: () = assert!(size_of::<InHeader>() == 40);
const _: () = assert!(size_of::<OutHeader>() == 16);
const _: () = assert!(size_of::<Attr>() == 88);
const _: () = assert!(size_of::<EntryOut>() == 128);
const _: () = assert!(size_of::<AttrOut>() == 104);
const _: () = assert!(size_of::<SetattrIn>() == 88);
const _: () = assert!(size_of::<WriteIn>() == 40);
const _: () = assert!(size_of::<StatfsOut>() == 80);
const _: () = assert!(size_of::<InitIn>() + size_of::<InitInExt>() == 64);
const _: () = assert!(size_of::<InitOut>() == 64);
const _: () = assert!(size_of::<Dirent>() == 24);
const _: () = assert!(size_of::<Statx>() == 256);
const _: () = assert!(size_of::<StatxOut>() == 288);
const _: () = assert!(size_of::<UringEntInOut>() == 32);
const _: () = assert!(size_of::<UringReqHeader>() == 288);
const _: () = assert!(size_of::<UringCmdReq>() == 24);
