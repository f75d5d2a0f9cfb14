//! LFS, VLFS, and the code that they share above their logs.

use seekless_cleaning::cleaning;
#[cfg(test)]
use seekless_core::rng;
use seekless_core::{codec, device, record, rt, units};
#[cfg(test)]
use seekless_disk::disk;
#[cfg(test)]
use seekless_testing::testing;
use seekless_vlog::vlog;

pub mod fs {
    //! The interface of file systems, and the two in this crate.

    pub mod lfs;
    mod logfs;
    pub mod vlfs;

    pub use seekless_core::fs::*;
}
