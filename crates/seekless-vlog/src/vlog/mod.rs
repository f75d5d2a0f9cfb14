//! Eager writing and the virtual log: a block device that writes to free blocks near its head.
//!
//! Paper: \[wa99\], Wang, Anderson and Patterson, *Virtual Log Based File Systems for a Programmable Disk*, OSDI 1999. A
//! small synchronous write costs most of a revolution and a seek when its place is fixed. Here it goes to the free
//! block that comes soonest under a head ([`eager`]), and a map records the place. The map must survive, so its pieces
//! are written the same way; since they may be anywhere, they are threaded into a log whose parts are not contiguous
//! ([`tree`]). That log needs no cleaner, no fixed place and no battery. Format: `FORMAT.md`.
//!
//! [`Vld`] puts that together as a device over any device. Without a head, as on a file, the same map and log make a
//! thin virtual disk whose state after a power cut is one of its past states.
//!
//! `FORMAT.md`, "Where the paper is silent", says which parts of the paper could be read and which were reconstructed.

mod append;
mod arms;
mod backing;
mod buffer;
mod check;
mod claim;
mod commit;
mod compact;
mod core;
pub mod eager;
pub mod format;
mod labels;
mod landmarks;
pub mod layout;
mod map_state;
mod marks;
pub mod model;
mod open;
mod options;
mod place;
mod promises;
mod provision;
mod reading;
mod room;
mod snapshots;
pub mod space;
mod store;
#[cfg(test)]
mod tests;
pub mod tracks;
mod transaction;
pub mod tree;
mod vld;

pub use check::{Checkup, check};
pub use compact::{Emptying, Need, Tenant};
pub use layout::{MapLog, Plan, PlanError};
pub use open::{Info, probe};
pub use options::{CommitUse, Options, Recovery, VldError};
pub use store::{Aim, Holdings, Store, StoreInfo};
pub use transaction::Garbage;
pub use vld::Vld;
