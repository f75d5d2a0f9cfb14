//! The real clock: time, device I/O and everything else that the engine thread waits for.
//!
//! A [`Reactor`] is the [`Clock`] of an executor in real time. When no task can run, the engine thread waits
//! here, and only here, for the first of: an I/O completion, a file descriptor becoming readable, a wake from
//! another thread, the next timer.
//!
//! Two backends do the same work:
//!
//! * [`Backend::Uring`]: one io_uring carries device I/O, polls and FUSE commands; submitting and waiting is one
//!   system call.
//! * [`Backend::Pool`]: worker threads make blocking calls, and the engine thread waits in `ppoll`. It is used in
//!   containers and on kernels that refuse io_uring, and as a baseline for measurements.
//!
//! Invariants
//!   H1  The engine thread is the thread that made the reactor. Every future of the reactor lives on it.
//!   H2  A buffer that the kernel or a worker may touch is owned by the operation, not by the future: dropping
//!       the future leaves the buffer and the file alive until the operation has ended.
//!   H3  The engine thread never makes a system call here that can wait for a disk, unless the system provides no thread at all.
//!   H4  A panic on a worker thread becomes a panic of the engine thread, so that no task waits for its result.

mod busy_poll;
mod driver;
mod lent;
mod notify;
mod poller;
mod pool;
mod ring;
mod sharing;
mod signals;
#[cfg(test)]
mod tests;
mod watchdog;

use std::cell::{Cell, RefCell};
use std::io;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use seekless::device::{Buf, Counter, Data};
use seekless::rt::{Clock, Executor, Rt};
use seekless::units::{Nanos, WallTime};

use busy_poll::BusyPolling;
use driver::Driver;
pub use lent::LentMemory;
use notify::Notifier;
use poller::Poller;
use pool::Workers;
pub use ring::FuseCommand;
use ring::Ring;
pub use sharing::ShareWhen;
use sharing::Sharing;
pub use signals::Signals;
pub use watchdog::Watchdog;

/// A file that operations share: it stays open until the last operation on it has ended.
pub type File = Arc<OwnedFd>;

/// Backend for device I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backend {
    /// io_uring where the kernel offers it, and a thread for it; threads otherwise.
    #[default]
    Auto,
    /// io_uring; an error where it is refused.
    Uring,
    /// Worker threads.
    Pool,
}

/// How to build a [`Reactor`].
#[derive(Clone, Copy, Debug)]
pub struct ReactorOptions {
    pub backend: Backend,
    /// Threads for [`seekless::rt::Rt::compute`].
    pub compute_threads: usize,
    /// Threads for blocking calls; the limit of concurrent ones.
    pub blocking_threads: usize,
    /// Entries of the submission queue; more operations may be under way.
    pub ring_entries: u32,
}

impl Default for ReactorOptions {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        // 64 blocking calls fill a queue of 32 commands (SATA NCQ) twice over.
        ReactorOptions { backend: Backend::Auto, compute_threads: cores, blocking_threads: 64, ring_entries: 256 }
    }
}

/// Why a reactor could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReactorError {
    #[error("cannot set up io_uring: {0}; use the thread pool instead (see io_uring_disabled(2) sysctl)")]
    Uring(#[source] io::Error),
    #[error("cannot create an eventfd: {0}")]
    EventFd(#[source] Errno),
}

struct Inner {
    started: Instant,
    driver: Driver,
    /// For `compute`: as many threads as there are processors.
    compute: Workers,
    /// For blocking calls: more of them, because they mostly sleep.
    blocking: Workers,
    notifier: Arc<Notifier>,
    /// Live [`ExpectWakes`].
    expected_wakes: Cell<usize>,
    busy_polling: RefCell<BusyPolling>,
    /// With the number of live [`ProcessorShare`]s.
    sharing: RefCell<Option<(Sharing, usize)>>,
}

/// Handle to the reactor; clones refer to the same one.
#[derive(Clone)]
pub struct Reactor(Rc<Inner>);

impl Reactor {
    /// Makes a reactor for the calling thread, which becomes the engine thread. Do it after the process has
    /// forked into the background: an io_uring belongs to the thread that made it.
    ///
    /// # Errors
    /// `Uring` when [`Backend::Uring`] is requested and refused.
    pub fn new(options: ReactorOptions) -> Result<Reactor, ReactorError> {
        let notifier = Arc::new(Notifier::new().map_err(ReactorError::EventFd)?);
        let driver = match options.backend {
            Backend::Pool => Driver::Poll(Poller::new(notifier.clone())),
            Backend::Uring => {
                Driver::Ring(Box::new(Ring::new(options.ring_entries, notifier.clone()).map_err(ReactorError::Uring)?))
            }
            Backend::Auto => match Ring::new(options.ring_entries, notifier.clone()) {
                Ok(ring) => Driver::Ring(Box::new(ring)),
                Err(_) => Driver::Poll(Poller::new(notifier.clone())),
            },
        };
        Ok(Reactor(Rc::new(Inner {
            started: Instant::now(),
            driver,
            compute: Workers::new("seekless-cpu", options.compute_threads, notifier.clone()),
            blocking: Workers::new("seekless-io", options.blocking_threads, notifier.clone()),
            notifier,
            expected_wakes: Cell::new(0),
            busy_polling: RefCell::default(),
            sharing: RefCell::default(),
        })))
    }

    /// An executor in real time that waits on this reactor.
    pub fn executor(&self) -> Executor {
        Executor::real(Box::new(self.clone()))
    }

    /// `io_uring` or `threads`.
    pub fn backend_name(&self) -> &'static str {
        match &self.0.driver {
            Driver::Ring(_) => "io_uring",
            Driver::Poll(_) => "threads",
        }
    }

    /// The ring, for operations that need one.
    pub(crate) fn ring(&self) -> Option<&Ring> {
        match &self.0.driver {
            Driver::Ring(ring) => Some(ring),
            Driver::Poll(_) => None,
        }
    }

    /// Reads into `buf[from..]` at byte `offset` of `file`; returns the buffer with the count, which may be short. Zero
    /// means the end of the file.
    pub async fn read_at(&self, file: &File, offset: u64, mut buf: Buf, from: usize) -> (Result<usize, Errno>, Buf) {
        match &self.0.driver {
            Driver::Ring(ring) => ring.read_at(file.clone(), offset, buf, from).await,
            Driver::Poll(_) => {
                let file = file.clone();
                self.blocking(move || {
                    let read = retry(|| rustix::io::pread(&*file, &mut buf[from..], offset));
                    (read, buf)
                })
                .await
            }
        }
    }

    /// Writes `data` at byte `offset` of `file` and returns the count, which may be short. With `durable` the call
    /// returns only when these bytes are on the medium (`RWF_DSYNC`).
    pub async fn write_at(&self, file: &File, offset: u64, data: Data, durable: bool) -> Result<usize, Errno> {
        match &self.0.driver {
            Driver::Ring(ring) => ring.write_at(file.clone(), offset, data, durable).await,
            Driver::Poll(_) => {
                let file = file.clone();
                self.blocking(move || retry(|| pwrite(&file, &data, offset, durable))).await
            }
        }
    }

    /// `fdatasync`, or with `metadata` `fsync`.
    pub async fn sync(&self, file: &File, metadata: bool) -> Result<(), Errno> {
        match &self.0.driver {
            Driver::Ring(ring) => ring.sync(file.clone(), metadata).await,
            Driver::Poll(_) => {
                let file = file.clone();
                self.blocking(move || {
                    // No retry after EINTR or any other error: an error may be reported only once.
                    if metadata { rustix::fs::fsync(&*file) } else { rustix::fs::fdatasync(&*file) }
                })
                .await
            }
        }
    }

    /// `fallocate(2)`.
    pub async fn fallocate(&self, file: &File, mode: FallocateFlags, offset: u64, bytes: u64) -> Result<(), Errno> {
        match &self.0.driver {
            Driver::Ring(ring) => ring.fallocate(file.clone(), mode, offset, bytes).await,
            Driver::Poll(_) => {
                let file = file.clone();
                self.blocking(move || retry(|| rustix::fs::fallocate(&*file, mode, offset, bytes))).await
            }
        }
    }

    /// Completes when `file` can be read without waiting, or has failed or been hung up.
    pub async fn readable(&self, file: &File) {
        self.ready(file, PollFlags::IN).await;
    }

    /// As [`Reactor::readable`], for a file that is often readable again within microseconds, while nothing else is under way: looks for
    /// that for a moment before the engine thread sleeps, as long as this is mostly successful ([`busy_poll`]).
    pub async fn readable_soon(&self, rt: &Rt, file: &File) {
        let policy = &self.0.busy_polling;
        let is_together = self.0.sharing.borrow().as_ref().is_some_and(|(sharing, _)| sharing.is_together());
        let pays = policy.borrow().pays() && !is_together;
        if pays {
            let begun = Instant::now();
            loop {
                // Tasks that can run, what they have asked of the kernel, and then other programs: the one that waited for the last
                // reply may need this processor.
                rt.yield_now().await;
                self.poll();
                std::thread::yield_now();
                if is_readable(file) {
                    if let Some((sharing, _)) = &*self.0.sharing.borrow() {
                        sharing.wake();
                    }
                    return policy.borrow_mut().found(begun.elapsed());
                }
                if begun.elapsed() > busy_poll::WINDOW {
                    break;
                }
            }
            policy.borrow_mut().missed();
        }
        let begun = Instant::now();
        self.readable(file).await;
        policy.borrow_mut().slept(begun.elapsed());
    }

    /// As long as one of these lives, the engine thread shares the processor of a program that makes one request after another, as `when`
    /// of the first one says ([`sharing`]); [`Reactor::note_request`] says who makes them. It needs [`Reactor::readable_soon`], which
    /// notices that they come close to each other.
    pub fn share_processor(&self, when: ShareWhen) -> ProcessorShare {
        self.0.sharing.borrow_mut().get_or_insert_with(|| (Sharing::start(when), 0)).1 += 1;
        ProcessorShare(self.clone())
    }

    /// The thread `program` has made a request; 0 is the kernel itself, or a thread that this process cannot see.
    pub fn note_request(&self, program: u32) {
        if let Some((sharing, _)) = &*self.0.sharing.borrow() {
            sharing.note(program);
        }
    }

    /// Completes when `file` can be written without waiting, or has failed or been hung up.
    pub async fn writable(&self, file: &File) {
        self.ready(file, PollFlags::OUT).await;
    }

    async fn ready(&self, file: &File, events: PollFlags) {
        match &self.0.driver {
            Driver::Ring(ring) => ring.ready(file.clone(), events).await,
            Driver::Poll(poller) => poller.ready(file.clone(), events).await,
        }
    }

    /// Runs `job`, which may wait for a disk or another process, on a worker thread.
    pub async fn blocking<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        self.0.blocking.run(job).await
    }

    /// Runs `job`, which needs answers from the thread of this reactor, on a thread of its own: [`Reactor::blocking`] may run one here
    /// where there is a limit of processes.
    ///
    /// # Errors
    /// When the system provides no thread.
    pub fn apart<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<impl Future<Output = T> + Unpin> {
        self.0.blocking.run_apart(job)
    }

    /// Declares that threads unknown to the reactor will wake tasks as long as the guard lives. Without it, an executor
    /// without any pending event reports `Stalled` instead of waiting indefinitely.
    pub fn expect_wakes(&self) -> ExpectWakes {
        self.0.expected_wakes.set(self.0.expected_wakes.get() + 1);
        ExpectWakes(self.clone())
    }

    /// Counts of the reactor's work.
    pub fn counters(&self) -> Vec<Counter> {
        let mut counters = self.0.driver.counters();
        counters.push(("blocking_jobs", self.0.blocking.jobs_started()));
        counters.push(("compute_jobs", self.0.compute.jobs_started()));
        let busy_polling = self.0.busy_polling.borrow();
        counters.push(("busy_polls", busy_polling.looks));
        counters.push(("busy_polls_found", busy_polling.finds));
        if let Some((sharing, _)) = &*self.0.sharing.borrow() {
            counters.extend(sharing.counters());
        }
        counters
    }

    /// H4.
    fn check_workers(&self) {
        for workers in [&self.0.compute, &self.0.blocking] {
            if let Some(message) = workers.panic_message() {
                panic!("a worker thread panicked: {message}");
            }
        }
    }
}

/// See [`Reactor::expect_wakes`].
pub struct ExpectWakes(Reactor);

impl Drop for ExpectWakes {
    fn drop(&mut self) {
        let inner = &self.0.0;
        inner.expected_wakes.set(inner.expected_wakes.get() - 1);
    }
}

/// See [`Reactor::share_processor`]. When the last one has been dropped, the engine thread has its processors back.
pub struct ProcessorShare(Reactor);

impl Drop for ProcessorShare {
    fn drop(&mut self) {
        let mut sharing = self.0.0.sharing.borrow_mut();
        if let Some((_, live)) = &mut *sharing {
            *live -= 1;
        }
        *sharing = sharing.take().filter(|(_, live)| *live > 0);
    }
}

impl Clock for Reactor {
    fn now(&self) -> Nanos {
        // 2^64 ns are 584 years.
        Nanos(self.0.started.elapsed().as_nanos() as u64)
    }

    fn wall(&self) -> WallTime {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => WallTime { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() },
            Err(before) => WallTime::from_nanos_since_epoch(-(before.duration().as_nanos() as i128)),
        }
    }

    fn is_virtual(&self) -> bool {
        false
    }

    fn wait(&self, until: Option<Nanos>) -> bool {
        /// How often to check whether worker threads are done, when nothing else could wake the engine thread.
        const LAST_WORKER_LOOK: Duration = Duration::from_millis(20);
        self.check_workers();
        let inner = &self.0;
        let mut timeout = until.map(|until| Duration::from_nanos(until.saturating_sub(self.now()).0));
        if timeout.is_none() && inner.driver.in_flight() == 0 && inner.expected_wakes.get() == 0 {
            if inner.compute.idle() && inner.blocking.idle() {
                return false;
            }
            // A worker counts as busy until shortly after it has woken its task, so this wait may be unnecessary.
            timeout = Some(LAST_WORKER_LOOK);
        }
        inner.driver.wait(timeout);
        self.check_workers();
        true
    }

    fn poll(&self) {
        self.check_workers();
        self.0.driver.poll();
    }

    fn run_elsewhere(&self, job: Box<dyn FnOnce() + Send>) {
        self.0.compute.start(job);
    }

    fn unpark(&self) -> Option<Arc<dyn Fn() + Send + Sync>> {
        let notifier = self.0.notifier.clone();
        Some(Arc::new(move || notifier.notify()))
    }
}

/// Whether `file` can be read without waiting, or has failed or been hung up.
fn is_readable(file: &File) -> bool {
    let mut set = [PollFd::new(&**file, PollFlags::IN)];
    matches!(rustix::event::poll(&mut set, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
}

/// Repeats a call that a signal interrupted before it did anything.
fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

fn pwrite(file: &OwnedFd, data: &[u8], offset: u64, durable: bool) -> Result<usize, Errno> {
    if durable {
        let flags = rustix::io::ReadWriteFlags::DSYNC;
        rustix::io::pwritev2(file, &[io::IoSlice::new(data)], offset, flags)
    } else {
        rustix::io::pwrite(file, data, offset)
    }
}
