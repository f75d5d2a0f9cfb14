//! Wakes the engine thread from other threads.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::{self, ThreadId};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// An eventfd on which the engine thread waits.
pub(super) struct Notifier {
    eventfd: OwnedFd,
    engine: ThreadId,
}

impl Notifier {
    /// The calling thread becomes the engine thread.
    pub(super) fn new() -> Result<Notifier, Errno> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Notifier { eventfd, engine: thread::current().id() })
    }

    /// Ends the engine thread's current or next wait. On the engine thread itself this does nothing: it wakes tasks
    /// only while it runs, and checks the ready queue before it waits again.
    pub(super) fn notify(&self) {
        if thread::current().id() != self.engine {
            // The only possible error is a counter at its limit; the engine thread is then about to wake anyway.
            let _ = rustix::io::write(&self.eventfd, &1u64.to_ne_bytes());
        }
    }

    /// Clears notifications after the wait has ended.
    pub(super) fn drain(&self) {
        // EAGAIN means that there was none.
        let _ = rustix::io::read(&self.eventfd, &mut [0u8; 8]);
    }
}

impl AsFd for Notifier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}
