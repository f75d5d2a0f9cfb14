//! The Berkeley Fast File System.

use seekless_core::{codec, device, record, rng, rt, units};
#[cfg(test)]
use seekless_testing::testing;

pub mod fs {
    //! The interface of file systems, and the one of this crate.

    pub mod ffs;

    pub use seekless_core::fs::*;
}
