//! Errors of file-system operations. Only the mount turns them into an errno.

use std::fmt;

use crate::device::DeviceError;

pub type FsResult<T> = Result<T, FsError>;

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FsError {
    #[error("no such file or directory")]
    NotFound,
    #[error("file exists")]
    Exists,
    #[error("not a directory")]
    NotDirectory,
    #[error("is a directory")]
    IsDirectory,
    #[error("directory not empty")]
    NotEmpty,
    #[error("file name too long")]
    NameTooLong,
    #[error("no space left")]
    NoSpace,
    /// What was accepted has found no space in the storage below; the text says what, and what helps.
    #[error("no space below for {0}")]
    NoSpaceBelow(String),
    #[error("file too large")]
    FileTooLarge,
    #[error("too many links")]
    TooManyLinks,
    #[error("operation not permitted")]
    NotPermitted,
    #[error("file system is read-only")]
    ReadOnly,
    /// The argument makes no sense here; the text says which one and why.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// The change makes sense, but its effect would be a surprise later. The program that made it may never see the error, as when
    /// it is written back by a cache, so that the administrator should.
    #[error("refused: {0}")]
    Refused(&'static str),
    #[error("not supported")]
    Unsupported,
    #[error("no such extended attribute")]
    NoAttribute,
    #[error("extended attributes of one file are limited to {0} bytes")]
    AttributesTooLarge(u32),
    #[error("no data or hole at or after this offset")]
    NoSuchOffset,
    #[error("no such inode")]
    Stale,
    #[error("no such open file")]
    BadHandle,
    #[error("would make a directory its own ancestor")]
    Loop,
    /// Bytes on the device are not what the file system wrote there.
    #[error("{} is damaged: {detail}", Damaged(what, at))]
    Corrupt { what: &'static str, at: String, detail: String },
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// An earlier error of unknown effect has stopped all changes; `0` is that error.
    #[error("stopped after an error: {0}")]
    Stopped(String),
    /// The host's file system answered with this errno; only leaves over the real world give it.
    #[error("host file system: {}", HostErrno(*.0))]
    Host(i32),
}

impl FsError {
    /// What is in one place is damaged or cannot be read, which says nothing about other places.
    pub fn is_of_one_place(&self) -> bool {
        match self {
            FsError::Corrupt { .. } => true,
            FsError::Device(error) => error.is_of_medium(),
            _ => false,
        }
    }

    /// There was no space, in the file system or in the storage below.
    pub fn is_no_space(&self) -> bool {
        matches!(self, FsError::NoSpace | FsError::NoSpaceBelow(_) | FsError::Device(DeviceError::NoSpace { .. }))
    }

    /// `what` at `at` is not what it should be; `detail` says found and expected.
    pub fn corrupt(what: &'static str, at: impl fmt::Display, detail: impl fmt::Display) -> FsError {
        FsError::Corrupt { what, at: at.to_string(), detail: detail.to_string() }
    }
}

/// What is damaged and where. A place that already names the thing is enough: `block 8 of ino 5`.
struct Damaged<'a>(&'a str, &'a str);

impl fmt::Display for Damaged<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damaged(what, at) = self;
        match at.strip_prefix(what).is_some_and(|rest| rest.starts_with(' ')) {
            true => f.write_str(at),
            false => write!(f, "{what} at {at}"),
        }
    }
}

struct HostErrno(i32);

impl fmt::Display for HostErrno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place that begins with the damaged thing does not name it twice.
    #[test]
    fn damage_names_its_place_once() {
        let text = |what, at| FsError::corrupt(what, at, "bad").to_string();
        assert_eq!(text("block", "block 8 of ino 5"), "block 8 of ino 5 is damaged: bad");
        assert_eq!(text("superblock", "sector 0"), "superblock at sector 0 is damaged: bad");
        assert_eq!(text("block", "blocks 1 to 2"), "block at blocks 1 to 2 is damaged: bad");
    }
}
