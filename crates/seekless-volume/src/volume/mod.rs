//! Devices over devices: striping, mirrors, parity, remapping and permuting.
//!
//! [`concat()`], [`raid0`], [`remap`], [`permute`] and [`volume`] only translate addresses ([`Mapped`]): they keep nothing of their
//! own, neither on their members nor in memory, so 128 disks that keep no bytes cost nothing but their models. RAID-1
//! and RAID-5 ([`raid`]) keep what they need to bear the loss of a member and of power on their members; for pure
//! timing they can be had without ([`raid::Array::bare`]).
//!
//! Members are independent and served in parallel. Only [`concat()`] passes head positions on. Papers: \[st05\]
//! for disk, array and volume; Patterson, Gibson & Katz 1988 for the levels.

pub mod format;
mod mapped;
mod members;
mod permutation;
pub mod raid;
#[cfg(test)]
pub(crate) mod tests;

pub use mapped::{Mapped, concat, permute, raid0, remap, volume};
pub use members::{ShapeError, counters_of};
pub use permutation::Permutation;
