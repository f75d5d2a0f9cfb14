//! The Seekless engine: file systems, layers and storage models behind two narrow interfaces,
//! [`device::BlockDevice`] and [`fs::FileSystem`], over a runtime seam ([`rt`]) whose clock is either real
//! or virtual.
//!
//! The engine is deterministic: it never reads the wall clock, never draws operating-system randomness,
//! never starts a thread and never lets the order of a hash map show. Same seed, same bytes, same virtual
//! nanoseconds. `clippy.toml` holds that wall.
//!
//! Each room uses only those before it; `tests/engine/tidy` checks that.
//! Rooms in import order: `units codec rng rt device disk volume vlog fs layer stack testing`

pub mod codec;
pub mod device;
pub mod disk;
pub mod fs;
pub mod layer;
pub mod rng;
pub mod rt;
pub mod stack;
pub mod testing;
pub mod units;
pub mod vlog;
pub mod volume;
