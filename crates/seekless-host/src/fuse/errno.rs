//! The one place where what went wrong becomes an errno.

use seekless::device::DeviceError;
use seekless::fs::FsError;

/// A positive errno, as `libc` names it.
pub(super) type Errno = i32;

/// What a program gets to see.
pub fn errno_of(error: &FsError) -> Errno {
    match error {
        FsError::NotFound => libc::ENOENT,
        FsError::Exists => libc::EEXIST,
        FsError::NotDirectory => libc::ENOTDIR,
        FsError::IsDirectory => libc::EISDIR,
        FsError::NotEmpty => libc::ENOTEMPTY,
        FsError::NameTooLong => libc::ENAMETOOLONG,
        FsError::NoSpace => libc::ENOSPC,
        FsError::FileTooLarge => libc::EFBIG,
        FsError::TooManyLinks => libc::EMLINK,
        FsError::NotPermitted => libc::EPERM,
        FsError::ReadOnly => libc::EROFS,
        FsError::Invalid(_) => libc::EINVAL,
        // Never ENOSYS, which tells the kernel not to send this operation again for as long as the mount lives.
        FsError::Unsupported => libc::EOPNOTSUPP,
        FsError::NoAttribute => libc::ENODATA,
        // setxattr(2): "insufficient space remaining to store the extended attribute".
        FsError::AttributesTooLarge(_) => libc::ENOSPC,
        FsError::NoSuchOffset => libc::ENXIO,
        FsError::Stale => libc::ESTALE,
        FsError::BadHandle => libc::EBADF,
        FsError::Loop => libc::EINVAL,
        // "Structure needs cleaning": what ext4 and XFS say of damage.
        FsError::Corrupt { .. } => libc::EUCLEAN,
        // As ext4 after errors=remount-ro.
        FsError::Stopped(_) => libc::EROFS,
        FsError::Device(DeviceError::NoSpace { .. }) => libc::ENOSPC,
        FsError::Device(DeviceError::ReadOnly) => libc::EROFS,
        FsError::Device(_) => libc::EIO,
        FsError::Host(libc::ENOSYS) => libc::EOPNOTSUPP,
        // From 512 on they are the kernel's own, which it refuses in a reply.
        FsError::Host(errno @ 1..512) => *errno,
        FsError::Host(_) => libc::EIO,
    }
}

/// Whether `error` is news for the one who runs the mount, and not just an answer to a program.
pub(super) fn worth_a_message(error: &FsError) -> bool {
    matches!(error, FsError::Corrupt { .. } | FsError::Stopped(_) | FsError::Device(_))
}
