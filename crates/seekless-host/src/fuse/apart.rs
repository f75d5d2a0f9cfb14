//! Work that may wait for a daemon that never answers, in a process of its own.
//!
//! A system call on a mount waits in the kernel until the daemon has answered, for some requests without reacting to signals.
//! A thread that waits in this way would keep its whole process from ending. A child process can be left behind: it ends
//! when the daemon answers or dies.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Resource, Signal, WaitOptions};

/// Work in progress, and what has come of it.
pub(super) struct Apart {
    /// `None` once it is done.
    child: Option<(Pid, OwnedFd)>,
    result: Vec<u8>,
}

impl Apart {
    /// Begins `work`, which must take no lock that another thread of this process may hold, and uses no open files. Where the
    /// system has no more processes or files, it is done here.
    pub(super) fn begin(work: impl FnOnce() -> Vec<u8>) -> Apart {
        let here = |work: &mut dyn FnMut() -> Vec<u8>| Apart { child: None, result: work() };
        let mut work = Some(work);
        let mut all = move || work.take().map(|work| work()).unwrap_or_default();
        let opened = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).and_then(|(reader, writer)| {
            Ok((reader, writer, rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?))
        });
        let Ok((reader, writer, null)) = opened else { return here(&mut all) };
        // SAFETY: the child runs `work`, which takes no lock of other threads, and ends without what the parent does at its end.
        match unsafe { libc::fork() } {
            -1 => here(&mut all),
            0 => {
                keep_only(&writer, &null);
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(all)).unwrap_or_default();
                let mut rest = &result[..];
                while let (false, Ok(length @ 1..)) = (rest.is_empty(), rustix::io::write(&writer, rest)) {
                    rest = &rest[length..];
                }
                // SAFETY: it ends this process, and does nothing else.
                unsafe { libc::_exit(0) }
            }
            child => Apart { child: Pid::from_raw(child).map(|child| (child, reader)), result: Vec::new() },
        }
    }

    /// The result, if there is one within `patience`.
    pub(super) fn result(&mut self, patience: Duration) -> Option<Vec<u8>> {
        let deadline = Instant::now() + patience;
        while let Some((child, pipe)) = &self.child {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            match rustix::event::poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&timeout)) {
                Err(Errno::INTR) => continue,
                Ok(0) => return None,
                _ => {}
            }
            let mut piece = [0; 4096];
            match rustix::io::read(pipe, &mut piece) {
                Err(Errno::INTR) => {}
                Ok(length @ 1..) => self.result.extend_from_slice(&piece[..length]),
                Ok(0) | Err(_) => {
                    let _ = rustix::process::waitpid(Some(*child), WaitOptions::empty());
                    self.child = None;
                }
            }
        }
        Some(std::mem::take(&mut self.result))
    }
}

impl Drop for Apart {
    /// Ends the work, or leaves it to the kernel, which ends it when it no longer waits.
    fn drop(&mut self) {
        let Some((child, _)) = self.child.take() else { return };
        let _ = rustix::process::kill_process(child, Signal::KILL);
        for _ in 0..10 {
            match rustix::process::waitpid(Some(child), WaitOptions::NOHANG) {
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                _ => return,
            }
        }
    }
}

/// Most open files of a process where the system has no limit: `fs.nr_open` of Linux.
const FILES_MAX: libc::c_uint = 1 << 20;

/// Closes what the child has inherited: a reader of the parent's output must not wait for the child.
fn keep_only(pipe: &OwnedFd, null: &OwnedFd) {
    let _ = rustix::stdio::dup2_stdin(null);
    let _ = rustix::stdio::dup2_stdout(null);
    let _ = rustix::stdio::dup2_stderr(null);
    let pipe = pipe.as_raw_fd() as libc::c_uint;
    for (first, last) in [(3, pipe.saturating_sub(1)), (pipe + 1, libc::c_uint::MAX)] {
        if first <= last {
            close(first, last);
        }
    }
}

/// Closes the files of these numbers.
fn close(first: libc::c_uint, last: libc::c_uint) {
    // By its number, because glibc has the function from 2.34 on, and the wheel for Python runs with older ones.
    // SAFETY: none of the closed files is used again in this process: its work opens its own.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == 0;
    if !done {
        // Linux before 5.9.
        let limit = rustix::process::getrlimit(Resource::Nofile).current.and_then(|limit| limit.try_into().ok());
        for file in first..=last.min(limit.unwrap_or(FILES_MAX)) {
            // SAFETY: as above.
            unsafe { libc::close(file.cast_signed()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results of any length arrive; work that does not end is ended with its owner.
    #[test]
    fn work_is_done_apart() {
        let patience = Duration::from_secs(60);
        for length in [0, 1, 200_000] {
            let mut apart = Apart::begin(|| vec![7; length]);
            assert_eq!(apart.result(patience), Some(vec![7; length]));
        }
        let number = || std::process::id().to_string().into_bytes();
        assert_ne!(Apart::begin(number).result(patience), Some(number()));
        let mut endless = Apart::begin(|| {
            std::thread::sleep(Duration::MAX);
            Vec::new()
        });
        assert_eq!(endless.result(Duration::from_millis(20)), None);
        let child = endless.child.as_ref().map(|(child, _)| *child).unwrap();
        drop(endless);
        let is_gone = || {
            std::thread::sleep(Duration::from_millis(5));
            let _ = rustix::process::waitpid(Some(child), WaitOptions::NOHANG);
            rustix::process::test_kill_process(child) == Err(Errno::SRCH)
        };
        assert!((0..1000).any(|_| is_gone()));
    }
}
