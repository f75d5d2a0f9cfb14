//! Cleaning a log: see [`cleaning`].

use seekless_core::rng;
#[cfg(test)]
use seekless_testing::testing;

pub mod cleaning;
