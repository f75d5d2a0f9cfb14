//! The Berkeley Fast File System.

#[cfg(test)]
use seekless_core::rng;
use seekless_core::{codec, device, record, rt, units};
#[cfg(test)]
use seekless_testing::testing;

pub mod fs {
    //! The interface of file systems, and the one of this crate.

    pub mod ffs;

    pub use seekless_core::fs::*;
}
