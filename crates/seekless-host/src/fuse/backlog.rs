//! What the kernel has begun to write and has not sent yet.
//!
//! The kernel sends no more than `max_background` of its own requests at a time. The others wait in a queue that the requests of
//! programs overtake. The daemon can see when that queue is empty: nothing is left to read, and fewer requests of the kernel's own
//! are in its hands than it sends at a time. Programs that never rest keep that moment away. But the queue is in order: once as many
//! WRITEs of the kernel's own have come as there were requests at all, none of those is left in it. Over io_uring there are several
//! queues, and no such moment; there all requests that the kernel counts must be in our hands.

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
use zerocopy::FromBytes;

use super::abi;
use super::names::OTHERS_WAIT;
use super::negotiate::MAX_BACKGROUND;
use crate::reactor::File;

/// Between two looks, unless a request ends.
const PAUSE: Nanos = Nanos::from_millis(2);

/// How long to look for such a moment while no WRITE of the kernel's own ends, and in all. There may be none as long as programs always
/// have `max_background` reads under way; then it is better to say so than to wait for their end.
const PATIENCE: [Nanos; 2] = [Nanos::from_secs(30), Nanos::from_secs(300)];

/// The same once the mount is to end.
const PATIENCE_AT_LAST: [Nanos; 2] = [Nanos::from_secs(5), Nanos::from_secs(30)];

/// A time in which this process did not run, such as one in which it was stopped, counts as this at most.
const LOOK_MAX: Nanos = Nanos::from_millis(100);

/// How many may wait: over io_uring each takes one of few places for requests.
const WAITING_MAX: usize = 2;

const BUSY: &str = "programs keep the mount so busy that it is not known when the kernel has written its dirty pages";

const UNCOUNTED: &str = "over io_uring it is not known when the kernel has written what it holds unless it shows how many requests \
                         there are: use fsync, or mount -t fusectl none /sys/fs/fuse/connections";

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
    /// How many requests of its own the kernel sends at a time. Root may change that; a user's limit can be lower than what was
    /// agreed.
    fn at_a_time(&self) -> usize {
        let for_users = || number_in(Path::new("/sys/module/fuse/parameters"), "max_user_bgreq").unwrap_or(1);
        self.number_in("max_background").unwrap_or_else(|| for_users().min(MAX_BACKGROUND.into()))
    }

    fn number_in(&self, file: &str) -> Option<usize> {
        number_in(self.directory.as_ref()?, file)
    }
}

pub(super) fn number_in(directory: &Path, file: &str) -> Option<usize> {
    std::fs::read_to_string(directory.join(file)).ok()?.trim().parse().ok()
}

fn is_readable(device: &File) -> bool {
    let now = Timespec::try_from(Duration::ZERO).unwrap_or_default();
    // What cannot be asked may have more.
    !matches!(rustix::event::poll(&mut [PollFd::new(&**device, PollFlags::IN)], Some(&now)), Ok(0))
}

/// How much the kernel has sent of its own, or may have: programs cause such requests, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Sent {
    /// Requests so far.
    pub(super) begun: u64,
    /// Of these, not answered yet.
    pub(super) in_hand: u64,
}

impl Sent {
    /// As the value of an extended attribute.
    pub(super) fn to_text(self) -> String {
        format!("{} {}", self.begun, self.in_hand)
    }

    pub(super) fn parse(text: &str) -> Option<Sent> {
        let (begun, in_hand) = text.split_once(' ')?;
        Some(Sent { begun: begun.parse().ok()?, in_hand: in_hand.parse().ok()? })
    }
}

/// Requests in our hands, and tasks that wait for others to arrive.
#[derive(Default)]
pub(super) struct Backlog {
    connection: Option<Connection>,
    /// Those that the kernel counts.
    in_hand: Cell<usize>,
    sent: Cell<Sent>,
    waiting: Cell<usize>,
    /// The numbers of those in our hands that change data or sizes of files.
    changes: RefCell<BTreeSet<u64>>,
    next: Cell<u64>,
    /// WRITEs of the kernel's own so far: those that have come, and those that are done.
    come: Cell<u64>,
    written: Cell<u64>,
    ended: Event,
    is_at_last: Cell<bool>,
    is_over: Cell<bool>,
}

/// A request that is in our hands.
pub(super) struct InHand {
    opcode: u32,
    number: Option<u64>,
    /// A WRITE of what the kernel holds.
    is_from_cache: bool,
}

impl InHand {
    /// The kernel does not count the others.
    fn is_counted(&self) -> bool {
        !matches!(self.opcode, abi::FORGET | abi::BATCH_FORGET | abi::INTERRUPT)
    }

    /// It may be one of the kernel's own, for which no program waits.
    fn may_be_its_own(&self) -> bool {
        matches!(self.opcode, abi::READ | abi::WRITE | abi::RELEASE | abi::RELEASEDIR)
    }
}

impl Backlog {
    pub(super) fn of(rt: &Rt, source: Source, directory: Option<PathBuf>) -> Backlog {
        Backlog { connection: Some(Connection { rt: rt.clone(), source, directory }), ..Backlog::default() }
    }

    /// A request has arrived, with what follows its header.
    pub(super) fn begin(&self, opcode: u32, body: &[u8]) -> InHand {
        let number = matches!(opcode, abi::WRITE | abi::SETATTR).then(|| self.next.replace(self.next.get() + 1));
        self.changes.borrow_mut().extend(number);
        let is_from_cache = opcode == abi::WRITE
            && abi::WriteIn::read_from_prefix(body).is_ok_and(|(write, _)| write.write_flags & abi::WRITE_CACHE != 0);
        self.come.set(self.come.get() + u64::from(is_from_cache));
        let request = InHand { opcode, number, is_from_cache };
        self.in_hand.set(self.in_hand.get() + usize::from(request.is_counted()));
        let (sent, one) = (self.sent.get(), u64::from(request.may_be_its_own()));
        self.sent.set(Sent { begun: sent.begun + one, in_hand: sent.in_hand + one });
        request
    }

    pub(super) fn end(&self, request: &InHand) {
        self.in_hand.set(self.in_hand.get() - usize::from(request.is_counted()));
        let sent = self.sent.get();
        self.sent.set(Sent { in_hand: sent.in_hand - u64::from(request.may_be_its_own()), ..sent });
        if let Some(number) = request.number {
            self.changes.borrow_mut().remove(&number);
        }
        self.written.set(self.written.get() + u64::from(request.is_from_cache));
        if self.waiting.get() > 0 {
            self.ended.notify();
        }
    }

    /// The mount is to end, and waits less long.
    pub(super) fn hurry(&self) {
        self.is_at_last.set(true);
    }

    /// Nothing more arrives.
    pub(super) fn end_all(&self) {
        self.is_over.set(true);
        self.ended.notify();
    }

    /// Waits until the WRITEs that the kernel has begun before this call have arrived and have been carried out.
    ///
    /// # Errors
    /// `Refused` when that cannot be known, as where programs keep the connection too busy.
    pub(super) async fn arrived(&self) -> FsResult<Sent> {
        let Some(connection) = &self.connection else { return Err(FsError::NoAttribute) };
        if self.waiting.get() >= WAITING_MAX {
            return Err(FsError::Refused(OTHERS_WAIT));
        }
        if matches!(connection.source, Source::Rings) && connection.number_in("waiting").is_none() {
            return Err(FsError::Refused(UNCOUNTED));
        }
        let _waiting = Waiting::begin(&self.waiting);
        // The kernel keeps back what is to be written to a file while its size changes or a program is in fsync. It sends that once the
        // program has run on.
        for is_first in [true, false] {
            self.all_sent(connection).await?;
            let next = self.next.get();
            self.once(connection, || self.changes.borrow().first().is_none_or(|&first| first >= next)).await;
            if is_first {
                connection.rt.sleep(PAUSE).await;
            }
        }
        Ok(self.sent.get())
    }

    /// Waits until each request that the kernel has begun is in our hands, or was.
    async fn all_sent(&self, connection: &Connection) -> FsResult<()> {
        let rt = &connection.rt;
        let (mut waited, mut in_all, mut written, mut last) = (Nanos::ZERO, Nanos::ZERO, self.written.get(), rt.now());
        let mut is_enough = || {
            let [patience, patience_in_all] = if self.is_at_last.get() { PATIENCE_AT_LAST } else { PATIENCE };
            let looked = (rt.now() - std::mem::replace(&mut last, rt.now())).min(LOOK_MAX);
            waited = if self.written.get() == written { waited + looked } else { Nanos::ZERO };
            written = self.written.get();
            in_all += looked;
            waited > patience || in_all > patience_in_all
        };
        // Those of the kernel's own that it has begun come before the last of so many more.
        let begun = connection.number_in("waiting").map(|begun| self.come.get() + begun as u64);
        let has_sent_all = || match &connection.source {
            Source::Device(device) => {
                let is_quiet = (self.sent.get().in_hand as usize) < connection.at_a_time() && !is_readable(device);
                is_quiet || begun.is_some_and(|begun| self.come.get() >= begun)
            }
            Source::Rings => connection.number_in("waiting").is_some_and(|begun| begun <= self.in_hand.get()),
        };
        let mut is_busy = false;
        self.once(connection, || {
            let has_sent_all = has_sent_all();
            is_busy = !has_sent_all && is_enough();
            has_sent_all || is_busy
        })
        .await;
        if is_busy { Err(FsError::Refused(BUSY)) } else { Ok(()) }
    }

    async fn once(&self, connection: &Connection, mut is_so: impl FnMut() -> bool) {
        loop {
            let ended = self.ended.wait();
            if self.is_over.get() || is_so() {
                return;
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

    use zerocopy::IntoBytes;

    use super::*;

    /// Aim: nothing counts as arrived as long as there is something to read, as many requests are in hand as the kernel sends at a
    /// time, or a WRITE that had come is not carried out; two that wait do not wait for each other; a
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
            let (backlog, request) = (backlog.clone(), backlog.begin(abi::GETXATTR, &[]));
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
            let writes = [backlog.begin(abi::WRITE, &[]), backlog.begin(abi::WRITE, &[])];
            ours.read_exact(&mut [0]).unwrap();
            rest(100).await;
            assert!(!asked[0].is_finished(), "the kernel may hold back more");
            backlog.end(&writes[0]);
            rest(10).await;
            let later = backlog.begin(abi::WRITE, &[]);
            rest(100).await;
            assert!(!asked[0].is_finished(), "a WRITE is not carried out");
            backlog.end(&writes[1]);
            backlog.end(&later);
            for asked in asked {
                assert_eq!(asked.await, Ok(Sent { begun: 3, in_hand: 0 }));
            }

            // The size of a file changes, and the kernel holds back a WRITE of it.
            let size = backlog.begin(abi::SETATTR, &[]);
            let asked = ask();
            rest(10).await;
            backlog.end(&size);
            rest(1).await;
            kernels.write_all(b"w").unwrap();
            rest(100).await;
            assert!(!asked.is_finished());
            assert_eq!(asked.await, Err(FsError::Refused(BUSY)));

            // A slow one is waited for, and what programs wait for is not.
            ours.read_exact(&mut [0]).unwrap();
            let (slow, sync) = (backlog.begin(abi::WRITE, &[]), backlog.begin(abi::FSYNC, &[]));
            let asked = [ask(), ask()];
            rest(1).await;
            assert_eq!(ask().await, Err(FsError::Refused(OTHERS_WAIT)));
            rest(100_000).await;
            backlog.end(&slow);
            for asked in asked {
                assert!(asked.await.is_ok());
            }
            backlog.end(&sync);

            kernels.write_all(b"w").unwrap();
            backlog.hurry();
            let begun = rt.now();
            assert_eq!(ask().await, Err(FsError::Refused(BUSY)));
            assert!(rt.now() - begun < Nanos::from_secs(6));

            let asked = ask();
            rest(100).await;
            backlog.end_all();
            assert!(asked.await.is_ok());
            assert_eq!((backlog.in_hand.get(), backlog.waiting.get()), (0, 0));

            let rings = Backlog::of(&rt, Source::Rings, None);
            assert_eq!(rings.arrived().await, Err(FsError::Refused(UNCOUNTED)));
        };
        executor.block_on(test).unwrap();
    }

    /// Aim: what has arrived is known beside programs that never rest, and not before all that the kernel had begun has come. Method: a
    /// connection that always has more to read and as much in hand as the kernel sends, in virtual time.
    #[test]
    fn what_has_arrived_is_known_beside_restless_programs() {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let (ours, mut kernels) = std::io::pipe().unwrap();
        kernels.write_all(b"w").unwrap();
        let device: File = Arc::new(OwnedFd::from(ours));
        let control = tempfile::tempdir().unwrap();
        std::fs::write(control.path().join("max_background"), "2\n").unwrap();
        std::fs::write(control.path().join("waiting"), "7\n").unwrap();
        let backlog = Rc::new(Backlog::of(&rt, Source::Device(device), Some(control.path().to_owned())));
        let cached = abi::WriteIn { write_flags: abi::WRITE_CACHE, ..abi::WriteIn::default() };
        let test = async {
            let mut in_hand: std::collections::VecDeque<InHand> =
                (0..3).map(|_| backlog.begin(abi::WRITE, cached.as_bytes())).collect();
            let asked = {
                let backlog = backlog.clone();
                rt.spawn(async move { backlog.arrived().await })
            };
            let (mut come, begun) = (0, rt.now());
            while !asked.is_finished() && come < 1000 {
                rt.sleep(Nanos::from_millis(5)).await;
                // A program's own says nothing of the kernel's queue.
                let read = backlog.begin(abi::READ, &[]);
                backlog.end(&read);
                if rt.now() - begun > Nanos::from_secs(1) {
                    in_hand.push_back(backlog.begin(abi::WRITE, cached.as_bytes()));
                    backlog.end(&in_hand.pop_front().unwrap());
                    come += 1;
                }
            }
            assert!((14..25).contains(&come), "{come} have come, in two rounds of 7");
            assert!(asked.await.is_ok());
        };
        executor.block_on(test).unwrap();
    }
}
