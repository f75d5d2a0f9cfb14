//! Waiting with `ppoll`, for the thread-pool backend.
//!
//! The set of files is rebuilt for every wait from the current waiters: there are at most three or four (FUSE device,
//! signals, notifier), so this costs less than keeping an epoll set up to date.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use seekless::device::Counter;
use slab::Slab;

use super::File;
use super::notify::Notifier;

pub(super) struct Poller {
    notifier: Arc<Notifier>,
    waits: RefCell<Slab<Wait>>,
    waits_done: Cell<u64>,
}

struct Wait {
    file: File,
    events: PollFlags,
    ready: bool,
    waker: Waker,
}

impl Poller {
    pub(super) fn new(notifier: Arc<Notifier>) -> Poller {
        Poller { notifier, waits: RefCell::default(), waits_done: Cell::new(0) }
    }

    pub(super) fn ready(&self, file: File, events: PollFlags) -> Ready<'_> {
        Ready { poller: self, file, events, key: None }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.waits.borrow().len()
    }

    pub(super) fn poll(&self) {
        if self.in_flight() > 0 {
            self.wait(Some(Duration::ZERO));
        }
    }

    pub(super) fn wait(&self, timeout: Option<Duration>) {
        self.waits_done.set(self.waits_done.get() + 1);
        let timeout = timeout
            .map(|timeout| Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) });
        let mut woken = Vec::new();
        let notified = {
            let mut waits = self.waits.borrow_mut();
            // Our own reference to each file keeps it open and allows changes of the entries while polling.
            let unready = waits.iter().filter(|(_, wait)| !wait.ready);
            let waiting: Vec<(usize, File, PollFlags)> =
                unready.map(|(key, wait)| (key, wait.file.clone(), wait.events)).collect();
            let mut set = vec![PollFd::new(&*self.notifier, PollFlags::IN)];
            set.extend(waiting.iter().map(|(_, file, events)| PollFd::new(&**file, *events)));
            // EINTR ends the wait early, which is always allowed; other errors cannot arise from this set.
            if !matches!(rustix::event::poll(&mut set, timeout.as_ref()), Ok(1..)) {
                return;
            }
            for ((key, _, _), polled) in waiting.iter().zip(&set[1..]) {
                if !polled.revents().is_empty()
                    && let Some(wait) = waits.get_mut(*key)
                {
                    wait.ready = true;
                    woken.push(wait.waker.clone());
                }
            }
            !set[0].revents().is_empty()
        };
        if notified {
            self.notifier.drain();
        }
        for waker in woken {
            waker.wake();
        }
    }

    pub(super) fn counters(&self) -> Vec<Counter> {
        vec![("waits", self.waits_done.get())]
    }
}

/// Completes when one of the awaited events is ready on the file.
pub(super) struct Ready<'a> {
    poller: &'a Poller,
    file: File,
    events: PollFlags,
    key: Option<usize>,
}

impl Future for Ready<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut waits = self.poller.waits.borrow_mut();
        match self.key {
            None => {
                let wait =
                    Wait { file: self.file.clone(), events: self.events, ready: false, waker: context.waker().clone() };
                let key = waits.insert(wait);
                drop(waits);
                self.key = Some(key);
                Poll::Pending
            }
            Some(key) if waits[key].ready => {
                waits.remove(key);
                drop(waits);
                self.key = None;
                Poll::Ready(())
            }
            Some(key) => {
                waits[key].waker.clone_from(context.waker());
                Poll::Pending
            }
        }
    }
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.poller.waits.borrow_mut().remove(key);
        }
    }
}
