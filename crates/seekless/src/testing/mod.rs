//! What the file systems are tested with: the model, operations as data, comparison, and the explorers of
//! power cuts, damage and lack of space.

mod contents;
pub mod generate;
pub mod memfs;
pub mod ops;
pub mod runner;
pub mod scripts;
pub mod tree;

pub use contents::Contents;
pub use generate::{Generator, Space, Weights};
pub use memfs::{MemFs, MemFsOptions};
pub use ops::Op;
pub use runner::{Outcome, Runner};
pub use tree::Tree;
