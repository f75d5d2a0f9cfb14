//! What the file systems are tested with: the model, operations as data, comparison, and the explorers of
//! power cuts, damage and lack of space.

mod contents;
pub mod memfs;

pub use contents::Contents;
pub use memfs::{MemFs, MemFsOptions};
