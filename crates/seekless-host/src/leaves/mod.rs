//! The devices and file systems that touch the real world, and what the stack needs to open them.

mod file;
mod hostdir;
mod in_use;
mod passphrase;
pub mod signature;
mod stack;
mod users;

pub(crate) use file::REMOVED;
pub use file::{DirectIo, FileDevice, FileError, FileOptions};
pub use hostdir::{HostDir, HostDirError, HostDirOptions};
pub use passphrase::{read_key, read_passphrase};
pub use stack::{HostLeaves, OpenedLeaves};
pub use users::Users;
