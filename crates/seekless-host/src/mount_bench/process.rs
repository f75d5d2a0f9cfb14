//! Programs that the bench runs: they end when it ends, and some of them are pinned.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Whether a program is on the path.
pub(super) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Runs a program to its end and returns its standard output.
///
/// # Errors
/// That it could not run or has failed, with what it said.
pub(super) fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    // With a group of its own it does not get the signal that ends the bench, which waits for it and tidies up.
    let ended = command.process_group(0).stdin(Stdio::null()).output();
    let ended = ended.map_err(|error| format!("cannot run {name}: {error}"))?;
    match ended.status.success() {
        true => Ok(String::from_utf8_lossy(&ended.stdout).into_owned()),
        false => {
            let arguments: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy()).collect();
            let complaint = String::from_utf8_lossy(&ended.stderr);
            Err(format!("{name} {} failed ({}): {}", arguments.join(" "), ended.status, complaint.trim()))
        }
    }
}

/// Starts a program of the bench that must not outlive it. With `pinned` it runs on the last processor that this thread may
/// use, as do all that it starts.
///
/// # Errors
/// Those of the system.
pub(super) fn spawn(command: &mut Command, pinned: bool) -> io::Result<Child> {
    // A process inherits the processors of the thread that starts it.
    let before = pinned.then(|| sched_getaffinity(None)).transpose()?;
    if let Some(all) = &before {
        let mut one = CpuSet::new();
        (0..CpuSet::MAX_CPU).rfind(|&processor| all.is_set(processor)).into_iter().for_each(|last| one.set(last));
        sched_setaffinity(None, &one)?;
    }
    let child = command.process_group(0).spawn();
    if let Some(all) = &before {
        sched_setaffinity(None, all)?;
    }
    child
}

/// Becomes `command`, a process that the kernel ends when the bench ends, however that happens.
pub fn become_part(command: &[String]) -> io::Error {
    let Some((program, arguments)) = command.split_first() else { return io::ErrorKind::InvalidInput.into() };
    match end_with_parent() {
        // It stays set: exec changes nothing about it in programs without privileges of their own.
        Ok(()) => Command::new(program).args(arguments).exec(),
        Err(error) => error,
    }
}

/// Has the kernel end this process when its parent ends.
///
/// # Errors
/// Those of the system call.
pub fn end_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Waits until a child has ended.
///
/// # Errors
/// When it has not, after `patience`.
pub(super) fn wait(child: &mut Child, patience: Duration) -> Result<(), String> {
    let deadline = Instant::now() + patience;
    while child.try_wait().map_err(|error| error.to_string())?.is_none() {
        if Instant::now() > deadline {
            return Err(format!("process {} has not ended after {} s", child.id(), patience.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Ends a child, first kindly.
pub(super) fn end(child: &mut Child) {
    let pid = Pid::from_child(child);
    for (signal, patience) in [(Signal::TERM, 5), (Signal::KILL, 5)] {
        if matches!(child.try_wait(), Ok(Some(_))) {
            return;
        }
        // It may have ended just now.
        let _ = kill_process(pid, signal);
        if wait(child, Duration::from_secs(patience)).is_ok() {
            return;
        }
    }
}

/// Processor time of a process so far, all its threads together; `None` when it has ended.
pub(super) fn processor_ns(pid: u32) -> Option<u64> {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both calls only write to the variables that they are given.
    let failed = unsafe {
        libc::clock_getcpuclockid(pid as libc::pid_t, &raw mut clock) != 0
            || libc::clock_gettime(clock, &raw mut time) != 0
    };
    (!failed).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// The most memory that a process has had so far, in KiB: `VmHWM` of proc(5).
pub(super) fn most_memory_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

/// Processor time of the processes that this one has waited for.
pub(super) fn children_ns() -> u64 {
    // SAFETY: the structure consists of integers; the call fills it or leaves the zeroes.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

/// Gives this thread, and those that it starts, mounts of their own, which vanish with the last process that has them.
///
/// # Errors
/// Those of the system calls; `PermissionDenied` for users other than root.
pub(super) fn own_mounts() -> io::Result<()> {
    use rustix::mount::{MountPropagationFlags, mount_change};
    use rustix::thread::{UnshareFlags, unshare_unsafe};
    // SAFETY: a new mount namespace concerns paths that are looked up from now on, and no memory or open file.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    Ok(())
}

/// Kind of the file system that has `path`, and the device that stores it, as the mount table names them.
pub(super) fn describe(path: &Path) -> String {
    let arguments = ["--noheadings", "-o", "FSTYPE,SOURCE", "--target"];
    match run(Command::new("findmnt").args(arguments).arg(path)) {
        Ok(text) => text.split_whitespace().collect::<Vec<_>>().join(" on "),
        Err(_) => "a file system of the host".to_owned(),
    }
}
