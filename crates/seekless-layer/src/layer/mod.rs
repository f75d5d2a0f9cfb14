//! Layers: file systems over file systems, as in \[za01\].
//!
//! A layer implements [`Layer`], which contains only what it does differently, and runs on a [`Stacked`], which does
//! what all layers share: it is the `FileSystem` that users see, passes operations on, and keeps one node for each
//! inode in use. The null layer, [`wrap`], changes nothing; it measures the cost of stacking, and is the place to start
//! reading.
//!
//! Inode numbers and handles are those of the file system below. A layer needs no numbers of its own as long as each of
//! its inodes is one inode below.
//!
//! Invariants
//!   Y1  Every lookup that is counted above is counted below. It is forgotten below when it is forgotten above, or,
//!       when the node lingers, once it no longer does.
//!   Y2  An inode in use has exactly one node, from its first lookup to the forget of its last, and while it lingers.
//!   Y3  A node is closed before its inode is forgotten below, and opened again only after that.

mod change;
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
