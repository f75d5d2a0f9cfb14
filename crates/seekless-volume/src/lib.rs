//! Devices over devices: see [`volume`].

use seekless_core::{codec, device, record, rng, rt, units};
#[cfg(test)]
use seekless_disk::disk;
#[cfg(test)]
use seekless_testing::testing;

pub mod volume;
