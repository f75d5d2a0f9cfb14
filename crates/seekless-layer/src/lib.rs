//! File systems over file systems: see [`layer`].

#[cfg(test)]
use seekless_core::rng;
use seekless_core::{codec, device, record, rt, units};
#[cfg(test)]
use seekless_disk::disk;
#[cfg(test)]
use seekless_testing::testing;

/// The interface of file systems, and those that layers are tested over.
mod fs {
    pub(crate) use seekless_core::fs::*;
    #[cfg(test)]
    pub(crate) use seekless_ffs::fs::ffs;
    #[cfg(test)]
    pub(crate) use seekless_logfs::fs::{lfs, vlfs};
}

pub mod layer;
