//! Modelled flash drives: see [`flash`].

use seekless_cleaning::cleaning;
#[cfg(test)]
use seekless_core::rng;
use seekless_core::{device, rt, units};

pub mod flash;
