//! Eager writing and the virtual log: see [`vlog`].

#[cfg(test)]
use seekless_core::rng;
use seekless_core::{codec, device, record, rt, units};
#[cfg(test)]
use seekless_disk::disk;
#[cfg(test)]
use seekless_testing::testing;
#[cfg(test)]
use seekless_volume::volume;

pub mod vlog;
