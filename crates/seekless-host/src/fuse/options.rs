//! The caller's choices for a mount, and the properties of the connection.

use super::abi;

/// How requests arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TransportChoice {
    /// The best for an engine of one thread, which is `/dev/fuse` (`benches/mount`): io_uring needs a thread on every
    /// processor to gain, and its fixed memory costs a copy of the data.
    #[default]
    Auto,
    /// Reads and writes of `/dev/fuse`.
    DevFuse,
    /// Commands of io_uring; falls back to `/dev/fuse` where the kernel does not offer it.
    Uring,
}

/// The kernel's protocol is not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InitError {
    #[error("the kernel speaks FUSE {major}.{minor}; this program needs at least {}.{}", abi::MAJOR, abi::MINOR_MIN)]
    TooOld { major: u32, minor: u32 },
    #[error("the kernel opened the connection with operation {0} instead of INIT")]
    NotInit(u32),
}
