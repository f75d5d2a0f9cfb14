//! Mounts under real system calls. Each test starts a daemon of its own, which serves the model file system, and
//! uses the mount as a program would, on each transport.
//!
//! They need root and `/dev/fuse`; without, they say so and pass, unless `SEEKLESS_REQUIRE=fuse` is set.

mod access;
mod behaviour;
mod daemon;
mod files;
mod lifetime;
mod names;
mod overlay;
mod sharing;
mod storage;
mod troubled;
