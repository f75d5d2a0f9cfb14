//! The devices and file systems that touch the real world.

mod file;

pub use file::{FileDevice, FileError, FileOptions};
