//! Signals as events that the engine thread waits for (`signalfd`).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::{File, Reactor};

/// Receives signals instead of their default action.
pub struct Signals {
    file: File,
    restore: libc::sigset_t,
}

impl Signals {
    /// Blocks `signals` in the calling thread and in threads that it starts later, and receives them from now on. Call
    /// it before there are other threads: a signal takes its default action in a thread that does not block it.
    ///
    /// A write beyond the limit on the size of files (`ulimit -f`) gives an error from now on; by default it kills the process.
    ///
    /// # Errors
    /// Those of the system calls, for example too many open files.
    pub fn new(signals: &[i32]) -> io::Result<Signals> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        let mut restore = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigemptyset` initialises the set before anything reads it; `pthread_sigmask` fills `restore`
        // when it succeeds; a successful `signalfd` returns a descriptor that is ours alone. An ignored signal calls no handler.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::sigemptyset(set.as_mut_ptr());
            for &signal in signals {
                if libc::sigaddset(set.as_mut_ptr(), signal) != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            let blocked = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), restore.as_mut_ptr());
            if blocked != 0 {
                return Err(io::Error::from_raw_os_error(blocked));
            }
            let fd = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                let error = io::Error::last_os_error();
                libc::pthread_sigmask(libc::SIG_SETMASK, restore.as_ptr(), std::ptr::null_mut());
                return Err(error);
            }
            Ok(Signals { file: Arc::new(OwnedFd::from_raw_fd(fd)), restore: restore.assume_init() })
        }
    }

    /// True when the process ignores `signal`, as SIGHUP under `nohup`. [`Signals`] would receive it nevertheless.
    pub fn is_ignored(signal: i32) -> bool {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: without a new action, `sigaction` only fills `action`, which is read if that succeeded.
        unsafe {
            libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
                && action.assume_init().sa_sigaction == libc::SIG_IGN
        }
    }

    /// Takes a pending signal, if there is one, and returns its number.
    pub fn pending(&self) -> Option<i32> {
        /// `struct signalfd_siginfo` starts with the number and is 128 bytes long.
        const SIGINFO_BYTES: usize = size_of::<libc::signalfd_siginfo>();
        let mut info = [0u8; SIGINFO_BYTES];
        match rustix::io::read(&*self.file, &mut info) {
            Ok(SIGINFO_BYTES) => {
                let [a, b, c, d, ..] = info;
                Some(u32::from_ne_bytes([a, b, c, d]) as i32)
            }
            _ => None,
        }
    }

    /// Returns when a signal is pending, and after `patience` at the latest.
    pub fn wait(&self, patience: Duration) {
        poll(&mut [PollFd::new(&*self.file, PollFlags::IN)], patience);
    }

    /// The same, or when there is something to read from `other`.
    pub fn wait_beside(&self, other: BorrowedFd<'_>, patience: Duration) {
        let other = PollFd::from_borrowed_fd(other, PollFlags::IN);
        poll(&mut [PollFd::new(&*self.file, PollFlags::IN), other], patience);
    }

    /// Runs `start`, which starts a process, with the original signal mask, because a process inherits blocked signals.
    /// A signal that arrives during this call takes its default action.
    pub fn unblocked<T>(&self, start: impl FnOnce() -> T) -> T {
        let mut ours = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `restore` is the mask that `pthread_sigmask` gave us; `ours` is filled before it is read.
        let changed = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.restore, ours.as_mut_ptr()) };
        assert_eq!(changed, 0, "a mask that was in force before");
        let result = start();
        // SAFETY: as above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, ours.as_ptr(), std::ptr::null_mut()) };
        result
    }

    /// The next signal's number.
    pub async fn next(&self, reactor: &Reactor) -> i32 {
        loop {
            if let Some(signal) = self.pending() {
                return signal;
            }
            reactor.readable(&self.file).await;
        }
    }

    /// The next signal's number that is not the `other` one, which has no effect.
    pub async fn next_but(&self, other: i32, reactor: &Reactor) -> i32 {
        loop {
            let signal = self.next(reactor).await;
            if signal != other {
                return signal;
            }
        }
    }

    /// Ends this process as `signal` does without this, also where it would be ignored.
    pub fn end_by(self, signal: i32) -> ! {
        drop(self);
        if let Some(named) = rustix::process::Signal::from_named_raw(signal) {
            let _ = rustix::process::kill_process(rustix::process::getpid(), named);
        }
        std::process::exit(128 + signal)
    }
}

fn poll(files: &mut [PollFd<'_>], patience: Duration) {
    let timeout = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: i64::from(patience.subsec_nanos()) };
    // Interrupted, or not possible: the caller looks anyway.
    let _ = rustix::event::poll(files, Some(&timeout));
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: `restore` is the mask that `pthread_sigmask` gave us.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.restore, std::ptr::null_mut()) };
    }
}
