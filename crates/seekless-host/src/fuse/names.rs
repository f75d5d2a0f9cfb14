//! How a mount and its daemon are identified from outside: extended attributes, and the daemon's process.
//!
//! Every file of a mount has these attributes, without listing them: what is at a mount point is the root of the file system, or a
//! directory below it. Setting one has an effect on the root only.

use std::time::{Duration, SystemTime};

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};
use seekless::fs::OutsideName;

/// Name of the extended attribute in which the daemon publishes its identity. See `control`.
pub(super) const DAEMON_ATTRIBUTE: &[u8] = b"seekless.daemon";

/// Reading this extended attribute makes everything durable, which `syncfs` of a plain FUSE mount does not.
/// Its value is [`DONE`], or the error. It is read rather than set because the kernel refuses to set attributes on a
/// read-only mount, which may have been written to before it became read-only. Setting it does the same, for earlier
/// versions of `seekless sync`.
pub(super) const SYNC_ATTRIBUTE: &[u8] = b"seekless.sync";

/// Reading this extended attribute waits for the WRITEs that the kernel has begun. Its value is how many requests of its own it may
/// have sent so far, and how many of these are not answered; or the error.
pub(super) const ARRIVED_ATTRIBUTE: &[u8] = b"seekless.arrived";

/// The error where others wait for the same already.
pub(super) const OTHERS_WAIT: &str = "other requests wait for what the kernel still has to write; try again";

/// This extended attribute says whether the file system itself can be changed: `rw` or `ro`, regardless of
/// the kernel's mount table.
pub(super) const ACCESS_ATTRIBUTE: &[u8] = b"seekless.access";

/// Reading or setting this extended attribute drops the file system's caches, for benchmarks that read
/// cold. It is for root and the user of the daemon, as it slows down all others.
pub(super) const DROP_CACHES_ATTRIBUTE: &[u8] = b"seekless.drop-caches";

/// The value of this extended attribute is what the parts of the stack have counted so far, as JSON.
pub(super) const STATISTICS_ATTRIBUTE: &[u8] = b"seekless.statistics";

/// The value of this extended attribute says which file of the host has the bytes of this file: device and inode as decimal numbers, and
/// for root and the user of the daemon its path, each after a blank. There is none where no file has them, or it is not known.
pub(crate) const BELOW_ATTRIBUTE: &[u8] = b"seekless.below";

/// The value of [`BELOW_ATTRIBUTE`] for the user `uid`.
pub(super) fn below_value(stored: &OutsideName, uid: u32) -> Vec<u8> {
    let mut value = format!("{} {}", stored.device, stored.inode).into_bytes();
    if has_rights_of_daemon(uid) {
        value.push(b' ');
        value.extend_from_slice(&stored.path);
    }
    value
}

/// Whether a user may do what the daemon may: root, and the daemon's user.
pub(super) fn has_rights_of_daemon(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Longest value that the kernel passes on.
pub(super) const STATISTICS_BYTES_MAX: usize = 64 << 10;

/// Value of such an attribute on success.
pub(super) const DONE: &[u8] = b"done";

/// Longest other value.
pub(super) const OUTCOME_BYTES_MAX: usize = 1000;

/// The identity of this daemon: process number and start time, which distinguishes it from a later process with that
/// number. The number is the one in `/proc`: in a process namespace that sees the `/proc` of the host it is not that of `getpid`, which is
/// another process there.
pub(super) fn daemon_identity() -> String {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let pid = stat.split(' ').next().and_then(|pid| pid.parse().ok()).unwrap_or_else(std::process::id);
    format!("{pid} {}", start_in(&stat).unwrap_or(0))
}

/// The state of a process, as `ps` has it: `T` when it is stopped.
pub(super) fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// When a process started, in clock ticks since boot.
pub(super) fn start_time(pid: u32) -> Option<u64> {
    start_in(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// When a process started, by the clock that gives files their times; `None` when there is no such process.
pub(crate) fn started(pid: u32) -> Option<SystemTime> {
    let since_boot = Duration::from_millis(start_time(pid)?.checked_mul(1000)? / clock_ticks_per_second().max(1));
    let up = Duration::try_from(clock_gettime(ClockId::Boottime)).ok()?;
    SystemTime::now().checked_sub(up)?.checked_add(since_boot)
}

fn start_in(stat: &str) -> Option<u64> {
    // The name in parentheses may hold anything; `starttime` is field 22, the 20th after it.
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}
