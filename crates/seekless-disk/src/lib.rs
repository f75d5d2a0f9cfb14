//! Modelled disks: see [`disk`].

#[cfg(test)]
use seekless_core::rng;
use seekless_core::{device, rt, units};

pub mod disk;
