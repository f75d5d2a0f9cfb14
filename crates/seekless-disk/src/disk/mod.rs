//! Modelled disks: how long a drive takes for a request, from its geometry, seek curve, rotation, cache and
//! electronics. A device answers *what* is stored; this room answers *when*.
//!
//! Papers: \[rw94\] for what a model must contain; DiskSim \[bu08\] for the parameters of real drives, their measured
//! service times, and the behaviour of controllers and caches that those parameters assume.

mod activity;
mod cache;
mod catalogue;
mod datasheet;
mod device;
mod drive;
pub mod file;
pub mod fit;
mod halves;
mod heap;
pub mod import;
mod layout;
pub mod measure;
mod mechanism;
mod nearest;
mod queue;
mod read;
mod rotation;
mod scheduler;
mod seek;
mod spent;
mod tables;
#[cfg(test)]
mod tests;
pub mod validation;
mod write;

pub use datasheet::{DataSheet, Habits};
pub use device::{Disk, Options};
pub use drive::{
    AfterPair, Bus, Cache, Drive, Evidence, Overhead, ReadAhead, Seek, Sparing, SurfaceOrder, TwoPiece, WriteBehind,
    WriteStart, Zone,
};
pub use file::DriveFileError;
pub use layout::{DriveError, Part};
pub use mechanism::{Behind, Hit, Mechanism, Request, Service};
pub use scheduler::Scheduler;
pub use seek::SeekFigures;
