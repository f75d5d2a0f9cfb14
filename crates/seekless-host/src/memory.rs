//! Memory of a process on which the kernel's own writes depend.

use rustix::process::{Resource, getrlimit};

/// Memory allocations of this thread, and of threads that it starts later, must not trigger write-back of its own
/// mount, which would wait for this process.
///
/// # Errors
/// Without the privilege nothing changes: this needs `CAP_SYS_RESOURCE`. Even then the kernel waits only when it
/// reclaims memory in a control group of version 1, not for the whole machine and not in one of version 2.
pub(crate) fn avoid_reclaim_deadlock() -> Result<(), std::io::Error> {
    /// `linux/prctl.h`, since Linux 5.6.
    const PR_SET_IO_FLUSHER: libc::c_int = 57;
    // SAFETY: prctl with these arguments touches no memory.
    match unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Keeps this process's pages in memory, so that it never waits for a page of its own to be read.
///
/// # Errors
/// Why that is impossible, in words. Without the right to lock any amount, nothing is locked, because allocations
/// beyond the limit would fail.
pub(crate) fn lock() -> Result<(), String> {
    if getrlimit(Resource::Memlock).current.is_some() && !may_lock_without_limit() {
        return Err("this needs CAP_IPC_LOCK, or no limit of locked memory (ulimit -l unlimited)".into());
    }
    // SAFETY: this changes no memory, only where it may be.
    match unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().to_string()),
    }
}

/// True when this process has `CAP_IPC_LOCK`.
fn may_lock_without_limit() -> bool {
    /// `linux/capability.h`.
    const CAP_IPC_LOCK: u32 = 14;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    effective.is_some_and(|capabilities| capabilities >> CAP_IPC_LOCK & 1 == 1)
}
