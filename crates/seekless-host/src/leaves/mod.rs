//! The devices and file systems that touch the real world.

mod file;
mod hostdir;
mod stack;

pub use file::{FileDevice, FileError, FileOptions};
pub use hostdir::{HostDir, HostDirError, HostDirOptions};
pub use stack::HostLeaves;
