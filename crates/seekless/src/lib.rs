//! The Seekless engine: file systems, layers and storage models behind two narrow interfaces,
//! [`device::BlockDevice`] and [`fs::FileSystem`], over a runtime seam ([`rt`]) whose clock is either real
//! or virtual.
//!
//! The engine is deterministic: it never reads the wall clock, never draws operating-system randomness, never starts a
//! thread, and no result depends on the order of a hash map. Same seed, same bytes, same virtual nanoseconds.
//! `clippy.toml` enforces that.
//!
//! The rooms of the engine are in several crates, so that a change rebuilds and tests little. This crate has the stack
//! line, which assembles the parts of the others, and shows all rooms under one name. Each room uses only those before
//! it: between crates the compiler enforces that order, inside them `tests/engine/tidy`.
//! Rooms in import order: `units codec rng rt device disk volume vlog cleaning fs layer stack testing`

pub use seekless_cleaning::cleaning;
pub use seekless_core::{codec, device, record, rng, rt, units};
pub use seekless_disk::disk;
pub use seekless_layer::layer;
pub use seekless_vlog::vlog;
pub use seekless_volume::volume;

pub mod fs {
    //! File systems: the interface, and each of them.

    pub use seekless_core::fs::*;
    pub use seekless_ffs::fs::ffs;
    pub use seekless_logfs::fs::{lfs, vlfs};
}

pub mod stack;

pub mod testing {
    //! For testing the engine: the model, operations as data, comparison, the explorers of power cuts, damage and lack
    //! of space, and the bodies of the fuzz targets.

    pub mod fuzz;
    #[cfg(test)]
    mod tests;

    pub use seekless_testing::testing::*;
}
