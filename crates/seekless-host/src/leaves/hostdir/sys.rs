//! Conversions from the host kernel's types, and calls that `rustix` does not have.

use std::ffi::{CStr, OsString};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustix::fs::{AtFlags, OFlags, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;
use seekless::fs::{Attr, FileKind, FsError, FsResult, PERMISSIONS};
use seekless::units::{Ino, WallTime};

/// Attributes requested from `statx`.
const ATTRIBUTES: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// Attributes of the inode of `file`.
pub(super) fn stat(file: impl AsFd) -> Result<Statx, Errno> {
    rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW, ATTRIBUTES)
}

/// As [`stat`], asked for again where attributes are kept for a while.
pub(super) fn stat_again(file: impl AsFd) -> Result<Statx, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
    rustix::fs::statx(file, c"", flags, ATTRIBUTES)
}

/// Attributes of `name` in `directory`, without following a link and without triggering an automount.
pub(super) fn stat_at(directory: impl AsFd, name: &[u8]) -> Result<Statx, Errno> {
    rustix::fs::statx(directory, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, ATTRIBUTES)
}

/// Where the kernel has the open `file`.
pub(super) fn path(file: impl AsFd) -> Result<PathBuf, Errno> {
    let link = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let path = rustix::fs::readlink(link, Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(path.into_bytes())))
}

/// Identity of an inode of the host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Key {
    pub(super) device: u64,
    pub(super) ino: u64,
}

impl Key {
    pub(super) fn of(stat: &Statx) -> Key {
        Key { device: u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor), ino: stat.stx_ino }
    }
}

/// Distinguishes inodes that used the same number one after another: the time of birth in nanoseconds, or 0 where the
/// host does not keep it. Only its being different matters, so it may wrap.
pub(super) fn generation(stat: &Statx) -> u64 {
    match StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME) {
        true => wall_time(stat.stx_btime).nanos_since_epoch() as u64,
        false => 0,
    }
}

pub(super) fn wall_time(time: StatxTimestamp) -> WallTime {
    WallTime { seconds: time.tv_sec, nanos: time.tv_nsec }
}

pub(super) fn kind(stat: &Statx) -> FsResult<FileKind> {
    FileKind::from_mode(u32::from(stat.stx_mode)).ok_or(FsError::Unsupported)
}

pub(super) fn attr(ino: Ino, stat: &Statx) -> FsResult<Attr> {
    Ok(Attr {
        ino,
        kind: kind(stat)?,
        permissions: stat.stx_mode & PERMISSIONS,
        links: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        device: encode_device(stat.stx_rdev_major, stat.stx_rdev_minor),
        size: stat.stx_size,
        sectors: stat.stx_blocks,
        sectors_will_change: false,
        io_bytes: stat.stx_blksize,
        atime: wall_time(stat.stx_atime),
        mtime: wall_time(stat.stx_mtime),
        ctime: wall_time(stat.stx_ctime),
        btime: wall_time(stat.stx_btime),
    })
}

/// As the kernel's `new_encode_dev`: 12 bits of major number, 20 of minor.
fn encode_device(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xfff00) << 12)
}

/// As the kernel's `new_decode_dev`.
pub(super) fn decode_device(device: u32) -> rustix::fs::Dev {
    rustix::fs::makedev((device & 0xfff00) >> 8, (device & 0xff) | ((device >> 12) & 0xfff00))
}

/// Converts an errno of the host to a file system's error. One without an equivalent keeps its number.
pub(super) fn error(errno: Errno) -> FsError {
    match errno {
        Errno::NOENT => FsError::NotFound,
        Errno::EXIST => FsError::Exists,
        Errno::NOTDIR => FsError::NotDirectory,
        Errno::ISDIR => FsError::IsDirectory,
        Errno::NOTEMPTY => FsError::NotEmpty,
        Errno::NAMETOOLONG => FsError::NameTooLong,
        Errno::NOSPC => FsError::NoSpace,
        Errno::FBIG => FsError::FileTooLarge,
        Errno::MLINK => FsError::TooManyLinks,
        Errno::PERM => FsError::NotPermitted,
        Errno::ROFS => FsError::ReadOnly,
        Errno::OPNOTSUPP => FsError::Unsupported,
        Errno::NODATA => FsError::NoAttribute,
        Errno::STALE => FsError::Stale,
        // That a mount below has lost its daemon. From a mount of ours these errors mean that it has lost its own.
        Errno::NOTCONN | Errno::CONNABORTED => FsError::Host(libc::EIO),
        other => FsError::Host(other.raw_os_error()),
    }
}

/// A reference to an inode that outlives its names (`name_to_handle_at(2)`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FileHandle {
    kind: i32,
    bytes: Box<[u8]>,
}

/// Largest handle (`MAX_HANDLE_SZ` of `linux/exportfs.h`).
const HANDLE_BYTES_MAX: usize = 128;

/// `struct file_handle` with room for the largest.
#[repr(C)]
struct RawHandle {
    handle_bytes: u32,
    handle_type: i32,
    bytes: [u8; HANDLE_BYTES_MAX],
}

pub(super) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// The handle of the inode of `file`, and the number of the mount on which it was found.
pub(super) fn name_to_handle(file: impl AsFd) -> Result<(FileHandle, i32), Errno> {
    let mut raw = RawHandle { handle_bytes: HANDLE_BYTES_MAX as u32, handle_type: 0, bytes: [0; HANDLE_BYTES_MAX] };
    let mut mount = 0;
    // SAFETY: `raw` is laid out as `struct file_handle`, states the room behind its head, and that room is there; the
    // other pointers are to a C string and to an integer.
    let result = unsafe {
        libc::name_to_handle_at(
            file.as_fd().as_raw_fd(),
            c"".as_ptr(),
            (&raw mut raw).cast::<libc::file_handle>(),
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    };
    if result != 0 {
        return Err(last_errno());
    }
    let bytes = raw.bytes.get(..raw.handle_bytes as usize).ok_or(Errno::OVERFLOW)?;
    Ok((FileHandle { kind: raw.handle_type, bytes: bytes.into() }, mount))
}

/// Opens the inode of `handle`, a handle from the mount on which `mount` is open.
pub(super) fn open_by_handle(mount: impl AsFd, handle: &FileHandle, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut raw = RawHandle { handle_bytes: 0, handle_type: handle.kind, bytes: [0; HANDLE_BYTES_MAX] };
    raw.bytes.get_mut(..handle.bytes.len()).ok_or(Errno::OVERFLOW)?.copy_from_slice(&handle.bytes);
    raw.handle_bytes = handle.bytes.len() as u32;
    let flags = (flags | OFlags::CLOEXEC).bits() as i32;
    // SAFETY: as in `name_to_handle`; the kernel only reads the handle.
    let file = unsafe {
        libc::open_by_handle_at(mount.as_fd().as_raw_fd(), (&raw mut raw).cast::<libc::file_handle>(), flags)
    };
    if file < 0 {
        return Err(last_errno());
    }
    // SAFETY: the call has just opened this file, and no other owner knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// Takes a lease that ends when another program opens the file for writing. `file` only reads.
pub(super) fn take_read_lease(file: impl AsFd) -> Result<(), Errno> {
    /// `F_SETSIG` of Linux, which `libc` has not everywhere.
    const F_SETSIG: libc::c_int = 10;
    let number = file.as_fd().as_raw_fd();
    // The kernel sends a signal when a writer comes. The usual one, `SIGIO`, would end the process; this one is ignored.
    let set = |command: libc::c_int, value: libc::c_int| {
        // SAFETY: the call passes integers.
        match unsafe { libc::fcntl(number, command, value) } {
            0 => Ok(()),
            _ => Err(last_errno()),
        }
    };
    set(F_SETSIG, libc::SIGURG)?;
    set(libc::F_SETLEASE, libc::F_RDLCK)
}

/// Whether `file` still has its lease, and no writer waits for its end.
pub(super) fn has_read_lease(file: impl AsFd) -> bool {
    // SAFETY: the call passes integers.
    unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_GETLEASE) == libc::F_RDLCK }
}

/// Ends the lease on `file`, if there is one.
pub(super) fn end_lease(file: impl AsFd) {
    // SAFETY: the call passes integers.
    unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
}

/// `getxattrat(2)`, of Linux 6.13, has this number everywhere but on MIPS.
const GETXATTRAT: libc::c_long = 464;

/// `struct xattr_args`.
#[repr(C)]
struct XattrArgs {
    value: u64,
    size: u32,
    flags: u32,
}

/// Reads the extended attribute `name` of the inode that `place` in `folder` is or leads to.
pub(super) fn getxattrat(folder: impl AsFd, place: &CStr, name: &CStr, buffer: &mut [u8]) -> Result<usize, Errno> {
    if cfg!(any(target_arch = "mips", target_arch = "mips64")) {
        return Err(Errno::NOSYS);
    }
    let size = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
    let args = XattrArgs { value: buffer.as_mut_ptr() as u64, size, flags: 0 };
    // SAFETY: the pointers are to C strings and to a structure of the stated size; the kernel writes at most as much
    // into the buffer as that structure says, which is the buffer's length.
    let result = unsafe {
        libc::syscall(
            GETXATTRAT,
            folder.as_fd().as_raw_fd(),
            place.as_ptr(),
            0,
            name.as_ptr(),
            &raw const args,
            size_of::<XattrArgs>(),
        )
    };
    usize::try_from(result).map_err(|_| last_errno())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Device numbers survive coding, over the whole range of 12 and 20 bits.
    #[test]
    fn device_numbers_are_coded_as_the_kernel_does() {
        for (major, minor, encoded) in
            [(1, 3, 0x103), (8, 17, 0x811), (259, 0x12345, 0x1231_0345), (0xfff, 0xfffff, !0)]
        {
            assert_eq!(encode_device(major, minor), encoded);
            let device = decode_device(encoded);
            assert_eq!((rustix::fs::major(device), rustix::fs::minor(device)), (major, minor));
        }
    }
}
