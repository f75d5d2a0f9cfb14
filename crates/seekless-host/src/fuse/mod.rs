//! Serves a file system to the kernel over FUSE.
//!
//! [`Mount::start`] mounts a [`FileSystem`](seekless::fs::FileSystem) and returns once the kernel has accepted it;
//! [`Mount::serve`] answers requests until it is unmounted or stopped, and closes the file system.
//!
//! The engine thread itself reads the requests. Each becomes one task on the engine's executor, so a request that
//! needs no I/O is answered without another thread or a wait, and one that waits holds up no other.
//!
//! Rooms, each using only those above it: `abi errno`, `names options`, `request reply`, `negotiate operations
//! passthrough backlog write_back`,
//! `session` (a request in, a
//! reply out), `transport` (how they travel), `mount` (the kernel's mount table), `farewell` (how it ended), `serve`
//! (the life of a mount), `control remount` (for other processes), `fuzz`.
//!
//! Invariants
//!   U1  The engine thread makes no system call that its own mount would have to answer: not on the mount point,
//!       not `sync`, not `umount`. Worker threads may, while the engine goes on answering.
//!   U2  Every request gets one reply, or the connection ends and the kernel answers instead.
//!   U3  A reply that the kernel no longer wants gives back the references in it.

pub mod abi;
mod apart;
mod backlog;
mod beneath;
mod control;
mod detach;
mod errno;
mod farewell;
pub(crate) mod fuzz;
mod mount;
mod names;
mod negotiate;
mod operations;
mod options;
mod passthrough;
mod past_cache;
mod presence;
mod remount;
mod reply;
mod request;
mod serve;
mod session;
mod transport;
mod write_back;

pub(crate) use control::moved_text;
pub use control::{NoAnswer, SyncError, UmountError, asked, drop_caches, is_dead, statistics, stored_in, sync, umount};
pub use errno::errno_of;
pub use mount::{DeadMount, MountError, MountOptions};
pub(crate) use names::{BELOW_ATTRIBUTE, started};
pub use negotiate::Negotiated;
pub use operations::{Answers, CLASSES, Operations, class_end};
pub use options::{InitError, TransportChoice};
pub use presence::Presence;
pub(crate) use presence::{DaemonState, is_moved, mount_point_of, to_unmount};
pub use remount::{Remount, RemountError, listed_options_of};
pub use reply::CacheTimes;
pub use serve::{Kept, Mount, ServeError};
