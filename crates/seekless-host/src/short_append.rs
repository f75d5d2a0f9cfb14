//! An append of which only the beginning was written, as on a full host. That part is in the file, others may have appended behind it,
//! and so a caller must learn how much it is. [`FileSystem::write`] has no count, since a write at a place can be made again:
//! a host directory returns the count as an error, which layers pass on as it is.
//!
//! [`FileSystem::write`]: seekless::fs::FileSystem::write

use seekless::fs::FsError;

/// `bytes` were appended, and not the rest. For callers that do not know this it is an I/O error, as no errno is negative.
pub(crate) fn error(bytes: usize) -> FsError {
    FsError::Host(i32::try_from(bytes).map_or(libc::EIO, |bytes| -bytes))
}

/// How many bytes were appended.
pub(crate) fn bytes(error: &FsError) -> Option<u32> {
    match error {
        FsError::Host(bytes @ ..0) => Some(bytes.unsigned_abs()),
        _ => None,
    }
}
