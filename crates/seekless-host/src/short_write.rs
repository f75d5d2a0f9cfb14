//! A write of which only the beginning was written: an append on a full host, behind which others may have appended, or a write across
//! the end of a disk. A caller must learn how much it is. [`FileSystem::write`] has no count, since most writes can be made again:
//! a host directory and a disk as a file return the count as an error, which layers pass on as it is.
//!
//! [`FileSystem::write`]: seekless::fs::FileSystem::write

use seekless::fs::FsError;

/// `bytes` were written, and not the rest. For callers that do not know this it is an I/O error, as no errno is negative.
pub(crate) fn error(bytes: usize) -> FsError {
    FsError::Host(i32::try_from(bytes).map_or(libc::EIO, |bytes| -bytes))
}

/// How many bytes were written.
pub(crate) fn bytes(error: &FsError) -> Option<u32> {
    match error {
        FsError::Host(bytes @ ..0) => Some(bytes.unsigned_abs()),
        _ => None,
    }
}
