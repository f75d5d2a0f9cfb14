//! Devices over devices: striping, mirrors, parity, remapping and permuting.
//!
//! [`concat()`], [`raid0`], [`remap`], [`permute`] and [`volume`] only translate addresses ([`Mapped`]): they keep no
//! metadata on their members and no data in memory, so an array of 128 disks that keep no data costs only their models.
//! RAID-1 and RAID-5 ([`raid`]) keep metadata on their members to survive the loss of a member and power cuts; for pure
//! timing they also work without it ([`raid::Array::bare`]).
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
pub mod zoned;

pub use mapped::{Mapped, concat, permute, raid0, remap, volume};
pub use members::{ShapeError, counters_of};
pub use permutation::Permutation;
