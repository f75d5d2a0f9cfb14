//! The only place where errors become an errno.

use seekless::device::DeviceError;
use seekless::fs::FsError;

/// A positive errno, as `libc` names it.
pub(super) type Errno = i32;

/// The errno for a program.
pub fn errno_of(error: &FsError) -> Errno {
    match error {
        FsError::NotFound => libc::ENOENT,
        FsError::Exists => libc::EEXIST,
        FsError::NotDirectory => libc::ENOTDIR,
        FsError::IsDirectory => libc::EISDIR,
        FsError::NotEmpty => libc::ENOTEMPTY,
        FsError::NameTooLong => libc::ENAMETOOLONG,
        FsError::NoSpace | FsError::NoSpaceBelow(_) => libc::ENOSPC,
        FsError::FileTooLarge => libc::EFBIG,
        FsError::TooManyLinks => libc::EMLINK,
        FsError::NotPermitted => libc::EPERM,
        FsError::ReadOnly => libc::EROFS,
        FsError::Invalid(_) | FsError::Refused(_) => libc::EINVAL,
        // Never ENOSYS, which makes the kernel stop sending this operation for the life of the mount.
        FsError::Unsupported => libc::EOPNOTSUPP,
        FsError::NoAttribute => libc::ENODATA,
        // setxattr(2): "insufficient space remaining to store the extended attribute".
        FsError::AttributesTooLarge(_) => libc::ENOSPC,
        FsError::NoSuchOffset => libc::ENXIO,
        FsError::Stale => libc::ESTALE,
        FsError::BadHandle => libc::EBADF,
        FsError::Loop => libc::EINVAL,
        // "Structure needs cleaning": the answer of ext4 and XFS to damage.
        FsError::Corrupt { .. } => libc::EUCLEAN,
        // As ext4 after errors=remount-ro.
        FsError::Stopped(_) => libc::EROFS,
        FsError::Device(DeviceError::NoSpace { .. }) => libc::ENOSPC,
        FsError::Device(DeviceError::ReadOnly) => libc::EROFS,
        FsError::Device(_) => libc::EIO,
        FsError::Host(libc::ENOSYS) => libc::EOPNOTSUPP,
        // From 512 on they are internal to the kernel, which refuses them in a reply.
        FsError::Host(errno @ 1..512) => *errno,
        FsError::Host(_) => libc::EIO,
    }
}

/// True when `error` matters to the administrator of the mount, and is not just an answer to a program.
pub(super) fn is_worth_logging(error: &FsError) -> bool {
    matches!(
        error,
        FsError::Corrupt { .. }
            | FsError::Stopped(_)
            | FsError::Device(_)
            | FsError::NoSpaceBelow(_)
            | FsError::Refused(_)
    )
}
