//! Layers: file systems over file systems, as in \[za01\].
//!
//! A layer is a [`Layer`], which says only what it does differently, on a [`Stacked`], which does all that layers
//! have in common: it is the `FileSystem` that others see, passes operations on, and keeps one node for each inode
//! in use. The null layer, [`wrap`], changes nothing; it is the measure of what stacking costs, and the place to
//! start reading.
//!
//! Inode numbers and handles are those of the file system below. A layer needs no numbers of its own as long as
//! each of its inodes is one inode below.
//!
//! Invariants
//!   Y1  Every lookup that is counted above is counted below, and taken back below when it is taken back above, or,
//!       where the node lingers, once it no longer does.
//!   Y2  An inode in use has exactly one node, from its first lookup to the forget of its last, and while it lingers.
//!   Y3  A node is closed before its inode is forgotten below, and opened again only after that.

pub mod classic;
pub mod codecs;
mod common;
mod directory;
pub mod log;
mod nodes;
mod stacked;
#[cfg(test)]
mod tests;
pub mod wrap;

pub use common::{Finding, Plain, Report};
use common::{read_lower, work};
pub use nodes::Nodes;
pub use stacked::{At, Layer, Stacked};
