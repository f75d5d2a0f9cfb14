//! An append of which only a beginning was written, as on a full host. Only that part may be acknowledged, and only the rest may be
//! written again. A host directory says so as an error, which the layers above pass on: [`FileSystem::write`] says nothing
//! of parts, since a write at a place can be made again.
//!
//! [`FileSystem::write`]: seekless::fs::FileSystem::write

use seekless::fs::FsError;

/// `bytes` were appended, and not the rest. For those that do not know this it is an I/O error: no errno is negative.
pub(crate) fn error(bytes: usize) -> FsError {
    FsError::Host(i32::try_from(bytes).map_or(libc::EIO, |bytes| -bytes))
}

/// How much was appended.
pub(crate) fn bytes(error: &FsError) -> Option<u32> {
    match error {
        FsError::Host(bytes @ ..0) => Some(bytes.unsigned_abs()),
        _ => None,
    }
}
