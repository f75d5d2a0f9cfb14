//! Modelled disks: see [`disk`].

use seekless_core::{device, rng, rt, units};

pub mod disk;
