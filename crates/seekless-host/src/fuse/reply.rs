//! Replies: results on their way to the kernel.

use seekless::device::{Buf, Data};
use seekless::fs::{self, DirEntry, DirSink, Entry, FsError, Handle, StatFs};
use seekless::units::{Ino, Nanos, WallTime};
use zerocopy::IntoBytes;

use super::abi;
use super::errno::{Errno, errno_of};

/// A reply to the kernel.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) body: Result<Body, Errno>,
    /// References to give back when the kernel no longer wants the reply.
    pub(super) undo: Undo,
}

/// The bytes after a reply's header.
#[derive(Debug)]
pub(super) enum Body {
    Bytes(Vec<u8>),
    /// In pieces, so that file data is not copied together.
    Data(Vec<Data>),
}

impl Body {
    pub(super) fn len(&self) -> usize {
        match self {
            Body::Bytes(bytes) => bytes.len(),
            Body::Data(pieces) => pieces.iter().map(|piece| piece.len()).sum(),
        }
    }
}

/// References that the kernel holds once it has the reply.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Undo {
    /// Inodes with one lookup each.
    pub(super) lookups: Vec<Ino>,
    /// An open file.
    pub(super) opened: Option<(Ino, Handle)>,
}

impl Reply {
    pub(super) fn empty() -> Reply {
        Reply::bytes(Vec::new())
    }

    pub(super) fn error(errno: Errno) -> Reply {
        Reply { body: Err(errno), undo: Undo::default() }
    }

    pub(super) fn bytes(bytes: Vec<u8>) -> Reply {
        Reply { body: Ok(Body::Bytes(bytes)), undo: Undo::default() }
    }

    pub(super) fn data(pieces: Vec<Data>) -> Reply {
        Reply { body: Ok(Body::Data(pieces)), undo: Undo::default() }
    }

    /// A structure of the wire.
    pub(super) fn of(value: &(impl IntoBytes + zerocopy::Immutable)) -> Reply {
        Reply::bytes(value.as_bytes().to_vec())
    }
}

impl From<FsError> for Reply {
    fn from(error: FsError) -> Reply {
        Reply::error(errno_of(&error))
    }
}

/// How long the kernel may cache an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheTimes {
    /// Names, including those that do not exist.
    pub names: Nanos,
    pub attributes: Nanos,
}

impl CacheTimes {
    /// Changes come only through the mount: practically unlimited. A day, because the kernel's clock for it (jiffies)
    /// overflows in 49 days on some machines.
    pub const EXCLUSIVE: CacheTimes =
        CacheTimes { names: Nanos::from_secs(86_400), attributes: Nanos::from_secs(86_400) };

    /// Others may change things: one second, the default of libfuse.
    pub const SHARED: CacheTimes = CacheTimes { names: Nanos::from_secs(1), attributes: Nanos::from_secs(1) };

    fn split(time: Nanos) -> (u64, u32) {
        (time.0 / 1_000_000_000, (time.0 % 1_000_000_000) as u32)
    }

    /// The mode of a file with set-user-id or set-group-id is never cached: after a write or an allocation that clears
    /// these bits, the kernel knows that size and times have changed, but trusts its cached mode when it runs the file.
    /// Nor are attributes cached that will change without a request.
    fn attributes_of(&self, from: &fs::Attr) -> Nanos {
        let loses_privileges = fs::without_privileges(from.permissions) != from.permissions;
        match from.kind == fs::FileKind::Regular && loses_privileges || from.sectors_will_change {
            true => Nanos::ZERO,
            false => self.attributes,
        }
    }

    pub(super) fn entry(&self, entry: &Entry) -> abi::EntryOut {
        let (entry_valid, entry_valid_nsec) = Self::split(self.names);
        let (attr_valid, attr_valid_nsec) = Self::split(self.attributes_of(&entry.attr));
        abi::EntryOut {
            nodeid: entry.attr.ino.0,
            generation: entry.generation,
            entry_valid,
            attr_valid,
            entry_valid_nsec,
            attr_valid_nsec,
            attr: attr(&entry.attr),
        }
    }

    /// A negative entry, which the kernel caches.
    pub(super) fn no_entry(&self) -> abi::EntryOut {
        let (entry_valid, entry_valid_nsec) = Self::split(self.names);
        abi::EntryOut { entry_valid, entry_valid_nsec, ..abi::EntryOut::default() }
    }

    pub(super) fn attr(&self, from: &fs::Attr) -> abi::AttrOut {
        let (attr_valid, attr_valid_nsec) = Self::split(self.attributes_of(from));
        abi::AttrOut { attr_valid, attr_valid_nsec, dummy: 0, attr: attr(from) }
    }

    pub(super) fn statx(&self, from: &fs::Attr) -> abi::StatxOut {
        let (attr_valid, attr_valid_nsec) = Self::split(self.attributes_of(from));
        let time = |time: WallTime| abi::StatxTime { tv_sec: time.seconds, tv_nsec: time.nanos, reserved: 0 };
        let stat = abi::Statx {
            mask: libc::STATX_BASIC_STATS | libc::STATX_BTIME,
            blksize: from.io_bytes,
            nlink: from.links,
            uid: from.uid,
            gid: from.gid,
            mode: mode(from) as u16,
            ino: from.ino.0,
            size: from.size,
            blocks: from.sectors,
            atime: time(from.atime),
            btime: time(from.btime),
            ctime: time(from.ctime),
            mtime: time(from.mtime),
            // As the kernel's `new_decode_dev`.
            rdev_major: (from.device & 0xfff00) >> 8,
            rdev_minor: (from.device & 0xff) | ((from.device >> 12) & 0xfff00),
            ..abi::Statx::default()
        };
        abi::StatxOut { attr_valid, attr_valid_nsec, flags: 0, spare: [0; 2], stat }
    }
}

fn mode(from: &fs::Attr) -> u32 {
    from.kind.mode_bits() | u32::from(from.permissions)
}

fn attr(from: &fs::Attr) -> abi::Attr {
    abi::Attr {
        ino: from.ino.0,
        size: from.size,
        blocks: from.sectors,
        atime: from.atime.seconds as u64,
        mtime: from.mtime.seconds as u64,
        ctime: from.ctime.seconds as u64,
        atimensec: from.atime.nanos,
        mtimensec: from.mtime.nanos,
        ctimensec: from.ctime.nanos,
        mode: mode(from),
        nlink: from.links,
        uid: from.uid,
        gid: from.gid,
        rdev: from.device,
        blksize: from.io_bytes,
        flags: 0,
    }
}

pub(super) fn statfs(from: &StatFs) -> abi::StatfsOut {
    abi::StatfsOut {
        blocks: from.blocks,
        bfree: from.blocks_free,
        bavail: from.blocks_available,
        files: from.inodes,
        ffree: from.inodes_free,
        bsize: from.block_bytes,
        namelen: from.name_bytes_max,
        frsize: from.block_bytes,
        ..abi::StatfsOut::default()
    }
}

/// Puts directory entries into a reply of limited size.
pub(super) struct DirectoryReply {
    bytes: Vec<u8>,
    bytes_max: usize,
    times: CacheTimes,
    with_attributes: bool,
    pub(super) undo: Undo,
}

impl DirectoryReply {
    pub(super) fn new(bytes_max: usize, times: CacheTimes, with_attributes: bool) -> DirectoryReply {
        // The kernel asks for a page at first, and for up to 128 KiB later.
        let bytes = Vec::with_capacity(bytes_max.min(4096));
        DirectoryReply { bytes, bytes_max, times, with_attributes, undo: Undo::default() }
    }

    pub(super) fn into_reply(self) -> Reply {
        Reply { body: Ok(Body::Bytes(self.bytes)), undo: self.undo }
    }
}

impl DirSink for DirectoryReply {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        let prefix = if self.with_attributes { size_of::<abi::EntryOut>() } else { 0 };
        let record = (prefix + size_of::<abi::Dirent>() + entry.name.len()).next_multiple_of(8);
        if self.bytes.len() + record > self.bytes_max {
            return false;
        }
        let end = self.bytes.len() + record;
        if self.with_attributes {
            // An all-zero entry means that no attributes come with this name.
            let out = entry.entry.as_ref().map_or_else(abi::EntryOut::default, |entry| self.times.entry(entry));
            self.bytes.extend_from_slice(out.as_bytes());
            let dots = matches!(entry.name, b"." | b"..");
            if let Some(counted) = entry.entry.as_ref().filter(|_| !dots) {
                self.undo.lookups.push(counted.attr.ino);
            }
        }
        let dirent = abi::Dirent {
            ino: entry.ino.0,
            off: entry.cookie,
            namelen: entry.name.len() as u32,
            kind: entry.kind.mode_bits() >> 12, // `DT_*`
        };
        self.bytes.extend_from_slice(dirent.as_bytes());
        self.bytes.extend_from_slice(entry.name);
        self.bytes.resize(end, 0);
        true
    }
}

/// File data as the kernel accepts it: at most `bytes`, and no more pieces than a vectored write allows.
pub(super) fn clamp_pieces(mut pieces: Vec<Data>, bytes: usize) -> Vec<Data> {
    /// `UIO_MAXIOV` is 1024; one is the header.
    const PIECES_MAX: usize = 1023;
    let mut room = bytes;
    for piece in &mut pieces {
        if piece.len() > room {
            *piece = piece.slice(0..room);
        }
        room -= piece.len();
    }
    if pieces.len() > PIECES_MAX {
        let mut whole = Buf::dirty(bytes - room);
        let mut at = 0;
        for piece in &pieces {
            whole[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        pieces = vec![whole.freeze()];
    }
    pieces
}

#[cfg(test)]
mod tests {
    use seekless::fs::FileKind;

    use super::*;

    fn an_attr() -> fs::Attr {
        let time = |seconds| WallTime { seconds, nanos: 5 };
        fs::Attr {
            ino: Ino(4),
            kind: FileKind::CharDevice,
            permissions: 0o644,
            links: 1,
            uid: 2,
            gid: 3,
            device: (259 << 8) | 0x45 | (0x123 << 20),
            size: 0,
            sectors: 0,
            sectors_will_change: false,
            io_bytes: 4096,
            atime: time(1),
            mtime: time(-2),
            ctime: time(3),
            btime: time(4),
        }
    }

    /// A listing holds as many entries as fit, padded to 8 bytes, and records which lookups it counted.
    #[test]
    fn directory_replies_are_laid_out_as_the_kernel_reads_them() {
        let entry = Entry { attr: an_attr(), generation: 1 };
        let named = |name: &'static [u8], cookie| DirEntry {
            ino: Ino(4),
            kind: FileKind::Regular,
            name,
            cookie,
            entry: Some(entry),
        };
        let mut plain = DirectoryReply::new(64, CacheTimes::SHARED, false);
        assert!(plain.add(&named(b"abcdefghi", 1))); // 24 + 9 -> 40
        assert!(!plain.add(&named(b"b", 2))); // 40 + 32 > 64
        assert_eq!(plain.undo, Undo::default());
        assert_eq!(plain.bytes.len(), 40);
        assert_eq!(plain.bytes[16..24], [9, 0, 0, 0, libc::DT_REG, 0, 0, 0]);
        assert_eq!(plain.bytes[24..], *b"abcdefghi\0\0\0\0\0\0\0");

        let mut plus = DirectoryReply::new(4096, CacheTimes::SHARED, true);
        assert!(plus.add(&DirEntry { entry: None, ..named(b".", 1) }));
        assert!(plus.add(&named(b"abc", 2)));
        assert_eq!(plus.bytes.len(), 160 + 160);
        assert_eq!(plus.undo.lookups, [Ino(4)]);
        assert!(plus.bytes[..128].iter().all(|&byte| byte == 0));
    }

    /// The mode of a file is cached as long as its attributes, unless a write may change it.
    #[test]
    fn privileges_are_not_believed() {
        let times = CacheTimes::EXCLUSIVE;
        let valid = |kind, permissions| times.attr(&fs::Attr { kind, permissions, ..an_attr() }).attr_valid;
        assert_eq!(valid(FileKind::Regular, 0o4755), 0);
        assert_eq!(valid(FileKind::Regular, 0o2755), 0);
        // Set-group-id without group-execute is not a privilege.
        assert_eq!(valid(FileKind::Regular, 0o2745), 86_400);
        assert_eq!(valid(FileKind::Regular, 0o755), 86_400);
        assert_eq!(valid(FileKind::Directory, 0o2755), 86_400);
        let attr = fs::Attr { kind: FileKind::Regular, permissions: 0o6755, ..an_attr() };
        assert_eq!((times.statx(&attr).attr_valid, times.statx(&attr).attr_valid_nsec), (0, 0));
        let entry = times.entry(&Entry { attr, generation: 1 });
        assert_eq!((entry.attr_valid, entry.attr_valid_nsec, entry.entry_valid), (0, 0, 86_400));
    }

    /// What a layer shows before it has compressed waiting data is asked for again.
    #[test]
    fn sectors_that_will_change_are_not_cached() {
        let valid = |attr| CacheTimes::EXCLUSIVE.attr(&attr).attr_valid;
        assert_eq!(valid(an_attr()), 86_400);
        assert_eq!(valid(fs::Attr { sectors_will_change: true, ..an_attr() }), 0);
    }

    /// Device numbers and times before 1970 are preserved.
    #[test]
    fn attributes_are_translated() {
        let out = CacheTimes::SHARED.attr(&an_attr());
        assert_eq!((out.attr.mode, out.attr.mtime as i64), (0o020644, -2));
        let statx = CacheTimes::SHARED.statx(&an_attr()).stat;
        assert_eq!((statx.rdev_major, statx.rdev_minor), (259, 0x12345));
        assert_eq!((statx.btime.tv_sec, statx.mtime.tv_sec), (4, -2));
    }

    /// File data with more bytes or pieces than a reply allows is cut, and copied together.
    #[test]
    fn read_replies_fit() {
        let piece = Data::from_slice(&[7; 10]);
        assert_eq!(
            clamp_pieces(vec![piece.clone(); 3], 25).iter().map(|piece| piece.len()).collect::<Vec<_>>(),
            [10, 10, 5]
        );
        let whole = clamp_pieces(vec![piece; 2000], 19_995);
        assert_eq!((whole.len(), whole[0].len()), (1, 19_995));
        assert!(whole[0].as_bytes().iter().all(|&byte| byte == 7));
    }
}
