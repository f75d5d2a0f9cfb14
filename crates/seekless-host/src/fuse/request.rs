//! Requests: decodes bytes from the kernel. Any bytes give an operation or an error.

use seekless::device::Data;
use seekless::fs::{
    AllocateMode, FileRange, Handle, NewNode, NodeKind, OpenFlags, PERMISSIONS, RenameMode, SeekTo, SetAttr, SetTime,
    WriteMode, XattrMode,
};
use seekless::units::{Ino, WallTime};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::abi;
use super::errno::Errno;
use super::past_cache::Durable;

/// A request of the kernel.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Operation<'a> {
    Init(Init),
    Lookup {
        name: &'a [u8],
    },
    Forget {
        lookups: u64,
    },
    BatchForget(Vec<(Ino, u64)>),
    Getattr {
        handle: Option<Handle>,
    },
    Statx {
        handle: Option<Handle>,
    },
    Setattr {
        handle: Option<Handle>,
        changes: SetAttr,
    },
    Readlink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
        new: NewNode,
    },
    Mknod {
        name: &'a [u8],
        kind: NodeKind,
        new: NewNode,
    },
    Mkdir {
        name: &'a [u8],
        new: NewNode,
    },
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        to_parent: Ino,
        to_name: &'a [u8],
        mode: RenameMode,
    },
    /// Gives `ino` a name in the directory of the request.
    Link {
        ino: Ino,
        name: &'a [u8],
    },
    Open {
        flags: OpenFlags,
    },
    /// Without `exclusive`, a file that has appeared in the meantime is opened instead.
    Create {
        name: &'a [u8],
        new: NewNode,
        flags: OpenFlags,
        exclusive: bool,
    },
    /// Creates a file without a name in the directory of the request.
    Tmpfile {
        new: NewNode,
        flags: OpenFlags,
        linkable: bool,
    },
    Release {
        handle: Option<Handle>,
    },
    Read {
        handle: Option<Handle>,
        offset: u64,
        bytes: u32,
    },
    Write {
        handle: Option<Handle>,
        offset: u64,
        data: Data,
        mode: WriteMode,
        durable: Durable,
    },
    Fallocate {
        handle: Option<Handle>,
        range: FileRange,
        mode: AllocateMode,
        /// As in `SetAttr`.
        kill_privileges: bool,
    },
    Lseek {
        handle: Option<Handle>,
        offset: u64,
        seek: SeekTo,
    },
    Fsync {
        handle: Option<Handle>,
        data_only: bool,
    },
    Statfs,
    Setxattr {
        name: &'a [u8],
        value: &'a [u8],
        mode: XattrMode,
        /// The caller that sets an access list is not in the group of the file: a set-group-id bit must be cleared.
        kill_set_group_id: bool,
    },
    /// With `bytes` 0 only the size is requested.
    Getxattr {
        name: &'a [u8],
        bytes: u32,
    },
    Listxattr {
        bytes: u32,
    },
    Removexattr {
        name: &'a [u8],
    },
    Opendir,
    Readdir {
        handle: Option<Handle>,
        cookie: u64,
        bytes: u32,
        attributes: bool,
    },
    Releasedir {
        handle: Option<Handle>,
    },
    Fsyncdir {
        handle: Option<Handle>,
    },
    Syncfs,
    /// The mount is gone; sent to `fuseblk` mounts only, and the caller of `umount` waits for the answer.
    Destroy,
    /// The caller of an earlier request was interrupted. That request is answered anyway, so nothing is done.
    Interrupt,
    Ioctl,
    /// An operation that no file system here has; the kernel emulates it, or returns an error to the program.
    NotOffered,
}

/// The kernel's part of INIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Init {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) max_readahead: u32,
    pub(super) flags: abi::InitFlags,
}

/// A request with its header.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Request<'a> {
    pub(super) opcode: u32,
    /// Number by which the kernel matches the reply.
    pub(super) unique: u64,
    /// The inode of the request.
    pub(super) ino: Ino,
    /// The user on whose behalf it is made.
    pub(super) uid: u32,
    /// The thread that waits for the answer; 0 for none, or one that has no number here.
    pub(super) pid: u32,
    pub(super) operation: Operation<'a>,
}

/// Wire encoding of a file handle: 0 means none. A file system's handles may start at 0, so they are shifted by one.
pub(super) fn encode_handle(handle: Option<Handle>) -> u64 {
    handle.map_or(0, |handle| handle.0.wrapping_add(1))
}

pub(super) fn decode_handle(fh: u64) -> Option<Handle> {
    fh.checked_sub(1).map(Handle)
}

/// Takes structures and names off the front of a request's body.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn take<T: FromBytes + Immutable + KnownLayout>(&mut self) -> Result<T, Errno> {
        let (value, rest) = T::read_from_prefix(self.0).map_err(|_| libc::EIO)?;
        self.0 = rest;
        Ok(value)
    }

    /// Bytes up to the next NUL.
    fn text(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.0.iter().position(|&byte| byte == 0).ok_or(libc::EIO)?;
        let (text, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Ok(text)
    }

    /// The name of a directory entry.
    fn name(&mut self) -> Result<&'a [u8], Errno> {
        let name = self.text()?;
        match name {
            b"" | b"." | b".." => Err(libc::EINVAL),
            _ if name.contains(&b'/') => Err(libc::EINVAL),
            _ => Ok(name),
        }
    }

    fn bytes(&mut self, count: u32) -> Result<&'a [u8], Errno> {
        let (bytes, rest) = self.0.split_at_checked(count as usize).ok_or(libc::EIO)?;
        self.0 = rest;
        Ok(bytes)
    }
}

impl<'a> Request<'a> {
    /// Decodes a request from its header and body, with the features agreed in INIT. The data of a WRITE is passed
    /// separately.
    ///
    /// # Errors
    /// The errno to answer with: `EIO` for a body that is too short, `EINVAL` for invalid values.
    pub(super) fn decode(
        header: &abi::InHeader,
        body: &'a [u8],
        data: Option<Data>,
        negotiated: abi::InitFlags,
    ) -> Result<Request<'a>, Errno> {
        let operation = decode_operation(header, &mut Body(body), data, negotiated)?;
        let abi::InHeader { opcode, unique, nodeid, uid, pid, .. } = *header;
        Ok(Request { opcode, unique, ino: Ino(nodeid), uid, pid, operation })
    }
}

fn decode_operation<'a>(
    header: &abi::InHeader,
    body: &mut Body<'a>,
    data: Option<Data>,
    negotiated: abi::InitFlags,
) -> Result<Operation<'a>, Errno> {
    // Without DONT_MASK the umask is sent as well, but has already been applied.
    let new_node = |mode: u32, umask: u32| NewNode {
        permissions: mode as u16 & PERMISSIONS,
        umask: (umask & 0o777) as u16,
        uid: header.uid,
        gid: header.gid,
    };
    Ok(match header.opcode {
        abi::LOOKUP => Operation::Lookup { name: body.name()? },
        abi::FORGET => Operation::Forget { lookups: body.take::<abi::ForgetIn>()?.nlookup },
        abi::BATCH_FORGET => decode_batch_forget(body)?,
        abi::GETATTR => {
            let getattr: abi::GetattrIn = body.take()?;
            let valid = getattr.flags & abi::GETATTR_FH != 0;
            Operation::Getattr { handle: if valid { decode_handle(getattr.fh) } else { None } }
        }
        abi::STATX => {
            let statx: abi::StatxIn = body.take()?;
            let valid = statx.getattr_flags & abi::GETATTR_FH != 0;
            Operation::Statx { handle: if valid { decode_handle(statx.fh) } else { None } }
        }
        abi::SETATTR => decode_setattr(&body.take()?)?,
        abi::READLINK => Operation::Readlink,
        abi::SYMLINK => Operation::Symlink { name: body.name()?, target: body.text()?, new: new_node(0o777, 0) },
        abi::MKNOD => {
            let mknod: abi::MknodIn = body.take()?;
            let kind = node_kind(mknod.mode, mknod.rdev)?;
            Operation::Mknod { name: body.name()?, kind, new: new_node(mknod.mode, mknod.umask) }
        }
        abi::MKDIR => {
            let mkdir: abi::MkdirIn = body.take()?;
            Operation::Mkdir { name: body.name()?, new: new_node(mkdir.mode, mkdir.umask) }
        }
        abi::UNLINK => Operation::Unlink { name: body.name()? },
        abi::RMDIR => Operation::Rmdir { name: body.name()? },
        abi::RENAME => {
            let rename: abi::RenameIn = body.take()?;
            decode_rename(rename.newdir, RenameMode::Replace, body)?
        }
        abi::RENAME2 => {
            let rename: abi::Rename2In = body.take()?;
            const NO_REPLACE_WHITEOUT: u32 = libc::RENAME_NOREPLACE | libc::RENAME_WHITEOUT;
            let whiteout = |replace| RenameMode::Whiteout { replace, uid: header.uid, gid: header.gid };
            let mode = match rename.flags {
                0 => RenameMode::Replace,
                libc::RENAME_NOREPLACE => RenameMode::NoReplace,
                libc::RENAME_EXCHANGE => RenameMode::Exchange,
                libc::RENAME_WHITEOUT => whiteout(true),
                NO_REPLACE_WHITEOUT => whiteout(false),
                _ => return Err(libc::EINVAL),
            };
            decode_rename(rename.newdir, mode, body)?
        }
        abi::LINK => {
            let link: abi::LinkIn = body.take()?;
            Operation::Link { ino: Ino(link.oldnodeid), name: body.name()? }
        }
        abi::OPEN => {
            let open: abi::OpenIn = body.take()?;
            Operation::Open { flags: open_flags(open.flags) }
        }
        abi::CREATE => {
            let create: abi::CreateIn = body.take()?;
            let exclusive = create.flags as i32 & libc::O_EXCL != 0;
            let flags = open_flags(create.flags);
            let new = new_node(create.mode, create.umask);
            Operation::Create { name: body.name()?, new, flags, exclusive }
        }
        abi::TMPFILE => {
            let create: abi::CreateIn = body.take()?;
            let linkable = create.flags as i32 & libc::O_EXCL == 0;
            let flags = open_flags(create.flags);
            // The field in place of a name is internal to the kernel.
            body.text()?;
            Operation::Tmpfile { new: new_node(create.mode, create.umask), flags, linkable }
        }
        abi::RELEASE => Operation::Release { handle: decode_handle(body.take::<abi::ReleaseIn>()?.fh) },
        abi::READ => {
            let read: abi::ReadIn = body.take()?;
            file_range(read.offset, u64::from(read.size))?;
            Operation::Read { handle: decode_handle(read.fh), offset: read.offset, bytes: read.size }
        }
        abi::WRITE => {
            let write: abi::WriteIn = body.take()?;
            let data = match data {
                Some(data) => data,
                None => Data::from_slice(body.bytes(write.size)?),
            };
            if data.len() != write.size as usize {
                return Err(libc::EIO);
            }
            file_range(write.offset, u64::from(write.size))?;
            let mode = WriteMode {
                kill_privileges: write.write_flags & abi::WRITE_KILL_SUIDGID != 0,
                append: appends(&write, negotiated),
            };
            // Programs do not wait for pages that the kernel writes back.
            let flags = if write.write_flags & abi::WRITE_CACHE == 0 { write.flags } else { 0 };
            let (handle, durable) = (decode_handle(write.fh), Durable::of(flags));
            Operation::Write { handle, offset: write.offset, data, mode, durable }
        }
        abi::FALLOCATE => decode_fallocate(header, &body.take()?)?,
        abi::LSEEK => {
            let lseek: abi::LseekIn = body.take()?;
            let seek = match lseek.whence as i32 {
                libc::SEEK_DATA => SeekTo::Data,
                libc::SEEK_HOLE => SeekTo::Hole,
                _ => return Err(libc::EINVAL),
            };
            file_range(lseek.offset, 0)?;
            Operation::Lseek { handle: decode_handle(lseek.fh), offset: lseek.offset, seek }
        }
        abi::FSYNC => {
            let fsync: abi::FsyncIn = body.take()?;
            let data_only = fsync.flags & abi::FSYNC_FDATASYNC != 0;
            Operation::Fsync { handle: decode_handle(fsync.fh), data_only }
        }
        abi::FSYNCDIR => Operation::Fsyncdir { handle: decode_handle(body.take::<abi::FsyncIn>()?.fh) },
        abi::STATFS => Operation::Statfs,
        abi::SETXATTR => {
            let setxattr: abi::SetxattrIn = body.take()?;
            let mode = match setxattr.flags as i32 {
                0 => XattrMode::Set,
                libc::XATTR_CREATE => XattrMode::Create,
                libc::XATTR_REPLACE => XattrMode::Replace,
                _ => return Err(libc::EINVAL),
            };
            let flags = match negotiated.contains(abi::InitFlags::SETXATTR_EXT) {
                true => body.take::<abi::SetxattrInExt>()?.setxattr_flags,
                false => 0,
            };
            let kill_set_group_id = flags & abi::SETXATTR_ACL_KILL_SGID != 0;
            Operation::Setxattr { name: body.text()?, value: body.bytes(setxattr.size)?, mode, kill_set_group_id }
        }
        abi::GETXATTR => {
            let getxattr: abi::GetxattrIn = body.take()?;
            Operation::Getxattr { name: body.text()?, bytes: getxattr.size }
        }
        abi::LISTXATTR => Operation::Listxattr { bytes: body.take::<abi::GetxattrIn>()?.size },
        abi::REMOVEXATTR => Operation::Removexattr { name: body.text()? },
        abi::INIT => decode_init(body)?,
        abi::OPENDIR => Operation::Opendir,
        abi::READDIR | abi::READDIRPLUS => {
            let read: abi::ReadIn = body.take()?;
            let attributes = header.opcode == abi::READDIRPLUS;
            Operation::Readdir { handle: decode_handle(read.fh), cookie: read.offset, bytes: read.size, attributes }
        }
        abi::RELEASEDIR => Operation::Releasedir { handle: decode_handle(body.take::<abi::ReleaseIn>()?.fh) },
        abi::SYNCFS => Operation::Syncfs,
        abi::DESTROY => Operation::Destroy,
        abi::INTERRUPT => Operation::Interrupt,
        abi::IOCTL => Operation::Ioctl,
        _ => Operation::NotOffered,
    })
}

fn decode_init<'a>(body: &mut Body<'a>) -> Result<Operation<'a>, Errno> {
    let init: abi::InitIn = body.take()?;
    let mut flags = u64::from(init.flags);
    if flags & abi::InitFlags::INIT_EXT.bits() != 0 {
        flags |= u64::from(body.take::<abi::InitInExt>()?.flags2) << 32;
    }
    Ok(Operation::Init(Init {
        major: init.major,
        minor: init.minor,
        max_readahead: init.max_readahead,
        flags: abi::InitFlags::from_bits_retain(flags),
    }))
}

fn decode_batch_forget<'a>(body: &mut Body<'a>) -> Result<Operation<'a>, Errno> {
    let batch: abi::BatchForgetIn = body.take()?;
    // No `with_capacity`: the count cannot be trusted before the entries are read.
    let mut forgets = Vec::new();
    for _ in 0..batch.count {
        let one: abi::ForgetOne = body.take()?;
        forgets.push((Ino(one.nodeid), one.nlookup));
    }
    Ok(Operation::BatchForget(forgets))
}

fn decode_rename<'a>(newdir: u64, mode: RenameMode, body: &mut Body<'a>) -> Result<Operation<'a>, Errno> {
    Ok(Operation::Rename { name: body.name()?, to_parent: Ino(newdir), to_name: body.name()?, mode })
}

fn decode_setattr<'a>(setattr: &abi::SetattrIn) -> Result<Operation<'a>, Errno> {
    let has = |flag| setattr.valid & flag != 0;
    let time = |given, now, seconds, nanos| -> Result<Option<SetTime>, Errno> {
        match (has(now), has(given)) {
            (true, _) => Ok(Some(SetTime::Now)),
            (false, true) => Ok(Some(SetTime::At(wall_time(seconds, nanos)?))),
            (false, false) => Ok(None),
        }
    };
    let changes = SetAttr {
        permissions: has(abi::FATTR_MODE).then_some(setattr.mode as u16 & PERMISSIONS),
        uid: has(abi::FATTR_UID).then_some(setattr.uid),
        gid: has(abi::FATTR_GID).then_some(setattr.gid),
        size: has(abi::FATTR_SIZE).then_some(setattr.size),
        atime: time(abi::FATTR_ATIME, abi::FATTR_ATIME_NOW, setattr.atime, setattr.atimensec)?,
        mtime: time(abi::FATTR_MTIME, abi::FATTR_MTIME_NOW, setattr.mtime, setattr.mtimensec)?,
        ctime: if has(abi::FATTR_CTIME) { Some(wall_time(setattr.ctime, setattr.ctimensec)?) } else { None },
        kill_privileges: has(abi::FATTR_KILL_SUIDGID),
    };
    file_range(changes.size.unwrap_or(0), 0)?;
    let handle = if has(abi::FATTR_FH) { decode_handle(setattr.fh) } else { None };
    Ok(Operation::Setattr { handle, changes })
}

/// Seconds are sent as the bits of a signed number.
fn wall_time(seconds: u64, nanos: u32) -> Result<WallTime, Errno> {
    if nanos >= 1_000_000_000 {
        return Err(libc::EINVAL);
    }
    Ok(WallTime { seconds: seconds as i64, nanos })
}

fn decode_fallocate<'a>(header: &abi::InHeader, fallocate: &abi::FallocateIn) -> Result<Operation<'a>, Errno> {
    const KEEP_SIZE: u32 = libc::FALLOC_FL_KEEP_SIZE as u32;
    const PUNCH_HOLE: u32 = libc::FALLOC_FL_PUNCH_HOLE as u32;
    const ZERO_RANGE: u32 = libc::FALLOC_FL_ZERO_RANGE as u32;
    let keep_size = fallocate.mode & KEEP_SIZE != 0;
    let mode = match fallocate.mode & !KEEP_SIZE {
        0 => AllocateMode::Allocate { keep_size },
        PUNCH_HOLE if keep_size => AllocateMode::PunchHole,
        ZERO_RANGE => AllocateMode::Zero { keep_size },
        _ => return Err(libc::EOPNOTSUPP),
    };
    if fallocate.length == 0 {
        return Err(libc::EINVAL);
    }
    let range = file_range(fallocate.offset, fallocate.length)?;
    // Other requests say whether privileges must be cleared. Here the user id decides, as the caller's capabilities are
    // unknown.
    let kill_privileges = header.uid != 0;
    Ok(Operation::Fallocate { handle: decode_handle(fallocate.fh), range, mode, kill_privileges })
}

/// Whether a program appends what is written, in requests that arrive one after the other. Pages of the kernel's cache have their
/// places; and direct I/O sends the parts of a long write at once, which may overtake each other in io_uring. The request
/// does not show that a program has asked with `RWF_NOAPPEND` not to append to a file that it has opened for that.
fn appends(write: &abi::WriteIn, negotiated: abi::InitFlags) -> bool {
    let flags = write.flags as i32;
    let in_order = flags & libc::O_DIRECT == 0 || !negotiated.contains(abi::InitFlags::OVER_IO_URING);
    write.write_flags & abi::WRITE_CACHE == 0 && flags & libc::O_APPEND != 0 && in_order
}

/// A range of a file. Offsets are limited by the kernel's `loff_t`.
fn file_range(offset: u64, bytes: u64) -> Result<FileRange, Errno> {
    match offset.checked_add(bytes) {
        Some(0..=0x7fff_ffff_ffff_ffff) => Ok(FileRange { offset, bytes }),
        _ => Err(libc::EINVAL),
    }
}

fn node_kind(mode: u32, device: u32) -> Result<NodeKind, Errno> {
    match mode & libc::S_IFMT {
        libc::S_IFREG => Ok(NodeKind::Regular),
        libc::S_IFIFO => Ok(NodeKind::Fifo),
        libc::S_IFSOCK => Ok(NodeKind::Socket),
        libc::S_IFCHR => Ok(NodeKind::CharDevice { device }),
        libc::S_IFBLK => Ok(NodeKind::BlockDevice { device }),
        _ => Err(libc::EINVAL),
    }
}

fn open_flags(flags: u32) -> OpenFlags {
    let flags = flags as i32;
    let access = flags & libc::O_ACCMODE;
    OpenFlags {
        read: access != libc::O_WRONLY,
        write: access != libc::O_RDONLY,
        append: flags & libc::O_APPEND != 0,
        truncate: flags & libc::O_TRUNC != 0,
        direct: flags & libc::O_DIRECT != 0,
    }
}

#[cfg(test)]
mod tests {
    use seekless::rng::Rng;
    use zerocopy::IntoBytes;

    use super::*;

    fn header(opcode: u32) -> abi::InHeader {
        abi::InHeader { opcode, unique: 7, nodeid: 3, uid: 10, gid: 20, ..abi::InHeader::default() }
    }

    fn decode<'a>(opcode: u32, body: &'a [u8]) -> Result<Operation<'a>, Errno> {
        Request::decode(&header(opcode), body, None, abi::InitFlags::empty()).map(|request| request.operation)
    }

    /// Requests are decoded as `linux/fuse.h` says. Method: bodies built by hand, as the kernel does.
    #[test]
    fn requests_decode() {
        let rename = abi::Rename2In { newdir: 9, flags: libc::RENAME_NOREPLACE, padding: 0 };
        let body = [rename.as_bytes(), b"old\0", b"new\0"].concat();
        let expected =
            Operation::Rename { name: b"old", to_parent: Ino(9), to_name: b"new", mode: RenameMode::NoReplace };
        assert_eq!(decode(abi::RENAME2, &body), Ok(expected));
        let rename = |flags| {
            let rename = abi::Rename2In { newdir: 9, flags, padding: 0 };
            let body = [rename.as_bytes(), b"old\0", b"new\0"].concat();
            let decoded = Request::decode(&header(abi::RENAME2), &body, None, abi::InitFlags::empty());
            decoded.map(|request| match request.operation {
                Operation::Rename { mode, .. } => mode,
                other => panic!("{other:?}"),
            })
        };
        let whiteout = |replace| RenameMode::Whiteout { replace, uid: 10, gid: 20 };
        assert_eq!(rename(libc::RENAME_WHITEOUT), Ok(whiteout(true)));
        assert_eq!(rename(libc::RENAME_WHITEOUT | libc::RENAME_NOREPLACE), Ok(whiteout(false)));
        assert_eq!(rename(libc::RENAME_WHITEOUT | libc::RENAME_EXCHANGE), Err(libc::EINVAL));
        assert_eq!(rename(1 << 20), Err(libc::EINVAL));

        // A name that no file can have.
        let create = |flags: i32| abi::CreateIn { flags: flags as u32, mode: 0o640, umask: 0o22, open_flags: 0 };
        let new = NewNode { permissions: 0o640, umask: 0o22, uid: 10, gid: 20 };
        for (flags, linkable) in
            [(libc::O_TMPFILE | libc::O_RDWR, true), (libc::O_TMPFILE | libc::O_RDWR | libc::O_EXCL, false)]
        {
            let expected = Operation::Tmpfile { new, flags: OpenFlags::READ_WRITE, linkable };
            assert_eq!(decode(abi::TMPFILE, &[create(flags).as_bytes(), b"/\0"].concat()), Ok(expected));
        }

        let new = NewNode { permissions: 0o640, umask: 0o22, uid: 10, gid: 20 };
        let mknod = abi::MknodIn { mode: libc::S_IFCHR | 0o640, rdev: 0x103, umask: 0o22, padding: 0 };
        let expected = Operation::Mknod { name: b"null", kind: NodeKind::CharDevice { device: 0x103 }, new };
        assert_eq!(decode(abi::MKNOD, &[mknod.as_bytes(), b"null\0"].concat()), Ok(expected));

        let valid = abi::FATTR_SIZE | abi::FATTR_MTIME | abi::FATTR_ATIME | abi::FATTR_ATIME_NOW | abi::FATTR_FH;
        let setattr = abi::SetattrIn { valid, fh: 5, size: 4, mtime: -1i64 as u64, ..abi::SetattrIn::default() };
        let changes = SetAttr {
            size: Some(4),
            atime: Some(SetTime::Now),
            mtime: Some(SetTime::At(WallTime { seconds: -1, nanos: 0 })),
            ..SetAttr::default()
        };
        let expected = Operation::Setattr { handle: Some(Handle(4)), changes };
        assert_eq!(decode(abi::SETATTR, setattr.as_bytes()), Ok(expected));

        let write = abi::WriteIn { offset: 8, size: 3, write_flags: abi::WRITE_KILL_SUIDGID, ..Default::default() };
        let mode = WriteMode { kill_privileges: true, append: false };
        let durable = Durable::Later;
        let expected = Operation::Write { handle: None, offset: 8, data: Data::from_slice(b"abc"), mode, durable };
        assert_eq!(decode(abi::WRITE, &[write.as_bytes(), b"abc"].concat()), Ok(expected));

        let (plain, uring) = (abi::InitFlags::empty(), abi::InitFlags::OVER_IO_URING);
        for (flags, write_flags, negotiated, append) in [
            (libc::O_APPEND | libc::O_WRONLY, 0, plain, true),
            (libc::O_APPEND | libc::O_WRONLY, 0, uring, true),
            (libc::O_APPEND | libc::O_WRONLY, abi::WRITE_CACHE, plain, false),
            (libc::O_APPEND | libc::O_WRONLY | libc::O_DIRECT, 0, plain, true),
            (libc::O_APPEND | libc::O_WRONLY | libc::O_DIRECT, 0, uring, false),
            (libc::O_WRONLY, 0, plain, false),
        ] {
            let write = abi::WriteIn { flags: flags as u32, size: 3, write_flags, ..Default::default() };
            let mode = WriteMode { kill_privileges: false, append };
            let expected = Operation::Write { handle: None, offset: 0, data: Data::from_slice(b"abc"), mode, durable };
            let body = [write.as_bytes(), b"abc"].concat();
            let decoded =
                Request::decode(&header(abi::WRITE), &body, None, negotiated).map(|request| request.operation);
            assert_eq!(decoded, Ok(expected), "{flags:o} {write_flags}");
        }

        for (flags, write_flags, expected) in [
            (libc::O_APPEND | libc::O_DIRECT, 0, Durable::Later),
            (libc::O_DSYNC, 0, Durable::Data),
            (libc::O_SYNC, 0, Durable::Everything),
            (libc::O_SYNC, abi::WRITE_CACHE, Durable::Later),
        ] {
            let write = abi::WriteIn { flags: flags as u32, size: 3, write_flags, ..Default::default() };
            match decode(abi::WRITE, &[write.as_bytes(), b"abc"].concat()) {
                Ok(Operation::Write { durable, .. }) => assert_eq!(durable, expected, "{flags:o}"),
                other => panic!("{other:?}"),
            }
        }

        let fallocate = abi::FallocateIn { length: 4, mode: libc::FALLOC_FL_KEEP_SIZE as u32, ..Default::default() };
        let (range, mode) = (FileRange { offset: 0, bytes: 4 }, AllocateMode::Allocate { keep_size: true });
        let expected = Operation::Fallocate { handle: None, range, mode, kill_privileges: true };
        assert_eq!(decode(abi::FALLOCATE, fallocate.as_bytes()), Ok(expected));

        let setxattr = abi::SetxattrIn { size: 3, flags: 0 };
        let more = abi::SetxattrInExt { setxattr_flags: abi::SETXATTR_ACL_KILL_SGID, padding: 0 };
        let (name, value, mode) = (&b"user.a"[..], &b"xyz"[..], XattrMode::Set);
        let expected = Operation::Setxattr { name, value, mode, kill_set_group_id: false };
        assert_eq!(decode(abi::SETXATTR, &[setxattr.as_bytes(), b"user.a\0xyz"].concat()), Ok(expected));
        let body = [setxattr.as_bytes(), more.as_bytes(), b"user.a\0xyz"].concat();
        let decoded = Request::decode(&header(abi::SETXATTR), &body, None, abi::InitFlags::SETXATTR_EXT);
        let expected = Operation::Setxattr { name, value, mode, kill_set_group_id: true };
        assert_eq!(decoded.map(|request| request.operation), Ok(expected));

        let batch = abi::BatchForgetIn { count: 2, dummy: 0 };
        let ones = [abi::ForgetOne { nodeid: 4, nlookup: 1 }, abi::ForgetOne { nodeid: 5, nlookup: 2 }];
        let expected = Operation::BatchForget(vec![(Ino(4), 1), (Ino(5), 2)]);
        assert_eq!(decode(abi::BATCH_FORGET, &[batch.as_bytes(), ones.as_bytes()].concat()), Ok(expected));

        let init = abi::InitIn { major: 7, minor: 45, max_readahead: 1, flags: 1 << 30 | 1 };
        let more = abi::InitInExt { flags2: 1 << 9, ..Default::default() };
        let flags = abi::InitFlags::ASYNC_READ | abi::InitFlags::INIT_EXT | abi::InitFlags::OVER_IO_URING;
        let expected = Operation::Init(Init { major: 7, minor: 45, max_readahead: 1, flags });
        assert_eq!(decode(abi::INIT, &[init.as_bytes(), more.as_bytes()].concat()), Ok(expected));
    }

    /// Invalid bodies are errors.
    #[test]
    fn nonsense_is_refused() {
        for (opcode, body, errno) in [
            (abi::LOOKUP, &b"name without end"[..], libc::EIO),
            (abi::LOOKUP, b"a/b\0", libc::EINVAL),
            (abi::LOOKUP, b"..\0", libc::EINVAL),
            (abi::LOOKUP, b"\0", libc::EINVAL),
            (abi::READ, b"short", libc::EIO),
            (abi::BATCH_FORGET, &[0xff; 8], libc::EIO),
            (abi::WRITE, &[0xff; 40], libc::EIO),
            (abi::SETXATTR, &[0x00, 0xff, 0, 0, 0, 0, 0, 0, b'a', 0], libc::EIO),
            (abi::LSEEK, &[0; 24], libc::EINVAL),
            (abi::SETATTR, &[0xff; 88], libc::EINVAL),
        ] {
            assert_eq!(decode(opcode, body), Err(errno), "{} {body:?}", abi::opcode_name(opcode));
        }
        assert_eq!(decode(4711, b""), Ok(Operation::NotOffered));
    }

    /// No bytes make the decoder panic. Method: random bodies of every length for every operation.
    #[test]
    fn any_bytes_decode_to_something() {
        let mut rng = Rng::new(1);
        for _ in 0..200_000 {
            let mut body = vec![0; rng.below(140) as usize];
            rng.fill(&mut body);
            // Half of them mostly small numbers and NULs, which are decoded further.
            if rng.chance(1, 2) {
                body.iter_mut().for_each(|byte| *byte &= if *byte > 40 { 0 } else { 3 });
            }
            let negotiated = if rng.chance(1, 2) { abi::InitFlags::all() } else { abi::InitFlags::empty() };
            let _ = Request::decode(&header(rng.below(60) as u32), &body, None, negotiated);
        }
    }

    #[test]
    fn handles_survive_the_way() {
        for handle in [None, Some(Handle(0)), Some(Handle(41)), Some(Handle(u64::MAX - 1))] {
            assert_eq!(decode_handle(encode_handle(handle)), handle);
        }
    }
}
