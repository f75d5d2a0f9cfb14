//! The real world of Seekless: the real clock, files and block devices, and the FUSE mount.
//!
//! The engine (crate `seekless`) runs here on one thread in real time. That thread waits in one place, the [`reactor`],
//! for all outside events: device completions, FUSE requests, signals, timers and wakes from worker threads. [`leaves`]
//! are the devices and file systems that touch the real world; [`fuse`] serves any `FileSystem` to the kernel, [`nbd`]
//! any `BlockDevice` to the network; [`report`] shows results; [`mount_bench`] measures mounts; [`cli`] is the program.
//!
//! This crate knows nothing of the internals of file systems and devices.
//!
//! `unsafe` is used only where the operating system needs it, in small places, each with its reason; `UNSAFE.md` lists them.

#![deny(unsafe_op_in_unsafe_fn)]

mod bytewise;
pub mod cli;
mod disk_file;
pub mod fuse;
pub mod leaves;
mod memory;
pub mod mount_bench;
mod mount_mark;
mod mount_table;
pub mod nbd;
mod random;
pub mod reactor;
pub mod report;
mod short_write;
#[doc(hidden)]
pub mod testing;
