//! The Seekless engine: file systems, layers and storage models behind two narrow interfaces,
//! [`device::BlockDevice`] and [`fs::FileSystem`], over a runtime seam ([`rt`]) whose clock is either real
//! or virtual.
//!
//! The engine is deterministic: it never reads the wall clock, never draws operating-system randomness, never starts a
//! thread, and no result depends on the order of a hash map. Same seed, same bytes, same virtual nanoseconds.
//! `clippy.toml` enforces that.
//!
//! A program makes an [`Executor`](rt::Executor), builds a stack from a [stack line](stack), and uses what is on top. Here a
//! log-structured file system on a modelled disk, in virtual time: only the disk takes time.
//!
//! ```
//! use seekless::fs::client::Client;
//! use seekless::rt::{Executor, HostProfile};
//! use seekless::stack::{Identity, NoLeaves, Purpose, Stack, Usage};
//!
//! let stack = Stack::parse("zstd / lfs / disk:hp97560")?;
//! let executor = Executor::simulated(1, HostProfile::NONE); // 1 is the seed: it repeats this run.
//! let rt = executor.rt().clone();
//! let read = executor.block_on(async {
//!     let opened = stack.open(&rt, &NoLeaves, Purpose::Format).await?;
//!     opened.mkfs(&Identity::new([1, 2, 3, 4])).await?;
//!     let mounted = opened.mount(Usage::default()).await?;
//!     let client = Client::new(mounted.fs);
//!     client.mkdir(b"/notes").await?;
//!     client.write_file(b"/notes/today", b"it works").await?;
//!     client.sync().await?;
//!     let read = client.read_file(b"/notes/today").await?;
//!     client.fs().close().await?;
//!     Ok::<_, Box<dyn std::error::Error>>(read)
//! })??;
//! assert_eq!(read, b"it works");
//! assert!(rt.now().as_millis_f64() > 10.0, "the disk has turned");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Devices without a file system are used in the same way:
//!
//! ```
//! use seekless::device::{Buf, Data, WriteFlags};
//! use seekless::rt::{Executor, HostProfile};
//! use seekless::stack::{NoLeaves, Purpose, Stack};
//! use seekless::units::Sector;
//!
//! let stack = Stack::parse("raid0:n=4,stripe=64KiB / disk:cheetah9lp")?;
//! let executor = Executor::simulated(1, HostProfile::NONE);
//! let rt = executor.rt().clone();
//! executor.block_on(async {
//!     let opened = stack.open(&rt, &NoLeaves, Purpose::Use).await?;
//!     let device = opened.device().expect("the top is a device");
//!     device.write(Sector(8), Data::from_slice(&[7; 4096]), WriteFlags::default()).await?;
//!     device.flush().await?;
//!     let read = device.read(Sector(8), Buf::dirty(4096)).await?;
//!     assert_eq!(&read[..], &[7; 4096]);
//!     Ok::<_, Box<dyn std::error::Error>>(())
//! })??;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The rooms of the engine are in several crates, so that a change rebuilds and tests little. This crate has the stack
//! line, which assembles the parts of the others, and shows all rooms under one name. Each room uses only those before
//! it: between crates the compiler enforces that order, inside them the tests of `seekless-tidy`.
//! Rooms in import order: `units codec rng rt device disk volume vlog cleaning flash fs layer stack testing`

pub use seekless_cleaning::cleaning;
pub use seekless_core::{codec, device, record, rng, rt, units};
pub use seekless_disk::disk;
pub use seekless_flash::flash;
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
