//! What the kernel has begun to write and has not sent yet.
//!
//! The kernel sends no more than `max_background` of its own WRITEs at a time. The others wait in a queue that the requests of
//! programs overtake. The daemon can see when that queue is empty: nothing is left to read, and fewer requests are in its hands
//! than the kernel sends at a time. Over io_uring there is no such moment; there all requests that the kernel counts must be in
//! our hands.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use futures_util::future::select;
use rustix::event::{PollFd, PollFlags, Timespec};
use seekless::fs::{FsError, FsResult};
use seekless::rt::{Event, Rt};
use seekless::units::Nanos;

use super::abi;
use crate::reactor::File;

/// Between two looks, unless a request ends.
const PAUSE: Nanos = Nanos::from_millis(2);

/// How long to look for such a moment. There may be none while programs always have `max_background` requests under way, as
/// with asynchronous direct reads; then it is better to say so than to wait for their end.
const PATIENCE: Nanos = Nanos::from_secs(30);

const BUSY: &str = "programs keep the mount so busy that it is not known when the kernel has written what it holds";

/// Where requests come from.
pub(super) enum Source {
    /// `/dev/fuse`.
    Device(File),
    /// Queues of io_uring.
    Rings,
}

/// A connection with the kernel.
struct Connection {
    rt: Rt,
    source: Source,
    /// Its directory in `/sys/fs/fuse/connections`, which need not be there.
    directory: Option<PathBuf>,
}

impl Connection {
    /// How many background requests the kernel sends at a time; root may change that, and a user's limit can be lower than what
    /// was agreed.
    fn at_a_time(&self) -> usize {
        self.number_in("max_background").unwrap_or(1).max(1)
    }

    fn number_in(&self, file: &str) -> Option<usize> {
        number_in(self.directory.as_ref()?, file)
    }
}

fn number_in(directory: &Path, file: &str) -> Option<usize> {
    std::fs::read_to_string(directory.join(file)).ok()?.trim().parse().ok()
}

fn is_readable(device: &File) -> bool {
    let now = Timespec::try_from(Duration::ZERO).unwrap_or_default();
    // What cannot be asked may have more.
    !matches!(rustix::event::poll(&mut [PollFd::new(&**device, PollFlags::IN)], Some(&now)), Ok(0))
}

/// Requests in our hands, and tasks that wait for others to arrive.
#[derive(Default)]
pub(super) struct Backlog {
    connection: Option<Connection>,
    in_hand: Cell<usize>,
    waiting: Cell<usize>,
    /// The numbers of those in our hands that change data or sizes of files.
    changes: RefCell<BTreeSet<u64>>,
    next: Cell<u64>,
    /// Sizes that were changed, and WRITEs, so far.
    resized: Cell<u64>,
    written: Cell<u64>,
    ended: Event,
    is_over: Cell<bool>,
}

/// A request that is in our hands.
pub(super) struct InHand {
    opcode: u32,
    number: Option<u64>,
}

impl InHand {
    /// The kernel does not count the others.
    fn is_counted(&self) -> bool {
        !matches!(self.opcode, abi::FORGET | abi::BATCH_FORGET | abi::INTERRUPT)
    }
}

impl Backlog {
    pub(super) fn of(rt: &Rt, source: Source, directory: Option<PathBuf>) -> Backlog {
        Backlog { connection: Some(Connection { rt: rt.clone(), source, directory }), ..Backlog::default() }
    }

    pub(super) fn begin(&self, opcode: u32) -> InHand {
        let number = matches!(opcode, abi::WRITE | abi::SETATTR).then(|| self.next.replace(self.next.get() + 1));
        self.changes.borrow_mut().extend(number);
        let request = InHand { opcode, number };
        self.in_hand.set(self.in_hand.get() + usize::from(request.is_counted()));
        request
    }

    pub(super) fn end(&self, request: &InHand) {
        self.in_hand.set(self.in_hand.get() - usize::from(request.is_counted()));
        if let Some(number) = request.number {
            self.changes.borrow_mut().remove(&number);
        }
        match request.opcode {
            abi::SETATTR => self.resized.set(self.resized.get() + 1),
            abi::WRITE => self.written.set(self.written.get() + 1),
            _ => {}
        }
        if self.waiting.get() > 0 {
            self.ended.notify();
        }
    }

    /// Nothing more arrives.
    pub(super) fn end_all(&self) {
        self.is_over.set(true);
        self.ended.notify();
    }

    /// Waits until the WRITEs that the kernel has begun before this call have arrived and have been carried out. Returns how
    /// many WRITEs there were so far.
    ///
    /// # Errors
    /// `Refused` when that cannot be known, because programs keep the connection too busy.
    pub(super) async fn arrived(&self) -> FsResult<u64> {
        let Some(connection) = &self.connection else { return Err(FsError::NoAttribute) };
        let _waiting = Waiting::begin(&self.waiting);
        let (at_a_time, until) = (connection.at_a_time(), connection.rt.now() + PATIENCE);
        let mut resized = self.resized.get();
        for _ in 0..2 {
            self.once(connection, until, || self.has_arrived(connection, at_a_time)).await?;
            let next = self.next.get();
            self.once(connection, until, || self.changes.borrow().first().is_none_or(|&first| first >= next)).await?;
            // While the size of a file changes, the kernel keeps back what is to be written to it.
            if self.resized.get() == resized {
                break;
            }
            resized = self.resized.get();
            connection.rt.sleep(PAUSE).await;
        }
        Ok(self.written.get())
    }

    /// Whether each request that the kernel has begun is in our hands, or was.
    fn has_arrived(&self, connection: &Connection, at_a_time: usize) -> bool {
        let in_hand = self.in_hand.get();
        match &connection.source {
            Source::Device(device) => in_hand.saturating_sub(self.waiting.get()) < at_a_time && !is_readable(device),
            Source::Rings => connection.number_in("waiting").is_some_and(|begun| begun <= in_hand),
        }
    }

    async fn once(&self, connection: &Connection, until: Nanos, is_so: impl Fn() -> bool) -> FsResult<()> {
        loop {
            let ended = self.ended.wait();
            if self.is_over.get() || is_so() {
                return Ok(());
            }
            if connection.rt.now() > until {
                return Err(FsError::Refused(BUSY));
            }
            select(pin!(ended), connection.rt.sleep(PAUSE)).await;
        }
    }
}

struct Waiting<'a>(&'a Cell<usize>);

impl Waiting<'_> {
    fn begin(count: &Cell<usize>) -> Waiting<'_> {
        count.set(count.get() + 1);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::OwnedFd;
    use std::rc::Rc;
    use std::sync::Arc;

    use seekless::rt::{Executor, HostProfile};

    use super::*;

    /// Aim: nothing counts as arrived as long as there is something to read, as many requests are in hand as the kernel sends at a
    /// time, or a WRITE that had come is not carried out; later ones are not waited for, and two that wait not for each other; a
    /// connection that is never quiet is an error, one that has ended is not. Method: a pipe as the connection, in virtual time.
    #[test]
    fn what_has_arrived_is_known() {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let (mut ours, mut kernels) = std::io::pipe().unwrap();
        let device: File = Arc::new(OwnedFd::from(ours.try_clone().unwrap()));
        let control = tempfile::tempdir().unwrap();
        std::fs::write(control.path().join("max_background"), "2\n").unwrap();
        let backlog = Rc::new(Backlog::of(&rt, Source::Device(device), Some(control.path().to_owned())));
        let ask = || {
            let (backlog, request) = (backlog.clone(), backlog.begin(abi::GETXATTR));
            rt.spawn(async move {
                let arrived = backlog.arrived().await;
                backlog.end(&request);
                arrived
            })
        };
        let rest = async |millis| rt.sleep(Nanos::from_millis(millis)).await;
        let test = async {
            kernels.write_all(b"w").unwrap();
            let asked = [ask(), ask()];
            rest(100).await;
            assert!(!asked[0].is_finished(), "there is something to read");
            let writes = [backlog.begin(abi::WRITE), backlog.begin(abi::WRITE)];
            ours.read_exact(&mut [0]).unwrap();
            rest(100).await;
            assert!(!asked[0].is_finished(), "the kernel may hold back more");
            backlog.end(&writes[0]);
            rest(10).await;
            let later = backlog.begin(abi::WRITE);
            rest(100).await;
            assert!(!asked[0].is_finished(), "a WRITE is not carried out");
            backlog.end(&writes[1]);
            for asked in asked {
                assert_eq!(asked.await, Ok(2));
            }
            backlog.end(&later);

            // The size of a file changes, and the kernel holds back a WRITE of it.
            let size = backlog.begin(abi::SETATTR);
            let asked = ask();
            rest(10).await;
            backlog.end(&size);
            rest(1).await;
            kernels.write_all(b"w").unwrap();
            rest(100).await;
            assert!(!asked.is_finished());
            assert_eq!(asked.await, Err(FsError::Refused(BUSY)));

            let asked = ask();
            rest(100).await;
            backlog.end_all();
            assert!(asked.await.is_ok());
            assert_eq!((backlog.in_hand.get(), backlog.waiting.get()), (0, 0));
        };
        executor.block_on(test).unwrap();
    }
}
