//! Worker threads: processor-heavy work, and blocking calls.
//!
//! Threads are started when there is work and no idle thread, up to a limit, and end after a while without work.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use seekless::rt::{Receiver, oneshot};

use super::notify::Notifier;
use super::sharing::be_ordinary;

/// How long a thread stays idle. Starting one costs some 50 us, so this only bounds idle memory.
const IDLE_THREAD_LIFE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// A set of worker threads with one queue.
pub(super) struct Workers {
    shared: Arc<Shared>,
    name: &'static str,
    threads_max: usize,
}

struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    /// Jobs started and not yet finished.
    unfinished: AtomicUsize,
    started: AtomicU64,
    /// No thread could be started, which was reported.
    is_short: AtomicBool,
    /// The message of the first panicking job.
    panic: OnceLock<String>,
    notifier: Arc<Notifier>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle_threads: usize,
    closing: bool,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut queue = self.queue();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                self.do_job(job);
                queue = self.queue();
                continue;
            }
            if queue.closing {
                break;
            }
            queue.idle_threads += 1;
            let (guard, waited) =
                self.work.wait_timeout(queue, IDLE_THREAD_LIFE).unwrap_or_else(PoisonError::into_inner);
            queue = guard;
            queue.idle_threads -= 1;
            if waited.timed_out() && queue.jobs.is_empty() {
                break;
            }
        }
        queue.threads -= 1;
    }

    fn do_job(&self, job: Job) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(job)) {
            let message = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "no message".to_owned());
            // Only the first panic is kept; it ends the engine.
            let _ = self.panic.set(message);
            self.notifier.notify();
        }
        self.unfinished.fetch_sub(1, Ordering::Release);
    }
}

impl Workers {
    pub(super) fn new(name: &'static str, threads_max: usize, notifier: Arc<Notifier>) -> Workers {
        let shared = Shared {
            queue: Mutex::default(),
            work: Condvar::new(),
            unfinished: AtomicUsize::new(0),
            started: AtomicU64::new(0),
            is_short: AtomicBool::new(false),
            panic: OnceLock::new(),
            notifier,
        };
        Workers { shared: Arc::new(shared), name, threads_max: threads_max.max(1) }
    }

    /// Queues `job`.
    pub(super) fn start(&self, job: Job) {
        let shared = &self.shared;
        shared.unfinished.fetch_add(1, Ordering::Relaxed);
        shared.started.fetch_add(1, Ordering::Relaxed);
        let mut queue = shared.queue();
        queue.jobs.push_back(job);
        if queue.idle_threads >= queue.jobs.len() {
            shared.work.notify_one();
            return;
        }
        if queue.threads >= self.threads_max {
            return; // A busy thread takes it when it is done.
        }
        queue.threads += 1;
        // Starting one takes a while, in which the others go on.
        drop(queue);
        let for_thread = shared.clone();
        let started = std::thread::Builder::new().name(self.name.to_owned()).spawn(move || {
            be_ordinary();
            for_thread.work();
        });
        if let Err(error) = started {
            self.no_thread(&error);
        }
    }

    /// Without any, the jobs run here, slowly.
    fn no_thread(&self, error: &io::Error) {
        let shared = &self.shared;
        let mut queue = shared.queue();
        queue.threads -= 1;
        if queue.threads > 0 {
            return;
        }
        let jobs = std::mem::take(&mut queue.jobs);
        drop(queue);
        if !shared.is_short.swap(true, Ordering::Relaxed) {
            log::warn!(
                "no thread can be started ({error}), so that all requests wait while one uses a file: is there a limit of processes?"
            );
        }
        jobs.into_iter().for_each(|job| shared.do_job(job));
    }

    /// Runs `job` on a thread; the future returns its result. If the future is dropped, the job still runs to its end.
    pub(super) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
        let (sender, receiver) = oneshot();
        self.start(Box::new(move || sender.send(job())));
        receiver
    }

    /// Runs `job` on a thread of its own, and never on this one.
    ///
    /// # Errors
    /// When the system provides no thread.
    pub(super) fn run_apart<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Receiver<T>> {
        let (sender, receiver) = oneshot();
        let shared = self.shared.clone();
        shared.unfinished.fetch_add(1, Ordering::Relaxed);
        let job: Job = Box::new(move || sender.send(job()));
        let started = std::thread::Builder::new().name(self.name.to_owned()).spawn(move || {
            be_ordinary();
            shared.do_job(job);
        });
        if let Err(error) = started {
            self.shared.unfinished.fetch_sub(1, Ordering::Release);
            return Err(error);
        }
        Ok(receiver)
    }

    /// True when no job is queued or under way.
    pub(super) fn idle(&self) -> bool {
        self.shared.unfinished.load(Ordering::Acquire) == 0
    }

    pub(super) fn jobs_started(&self) -> u64 {
        self.shared.started.load(Ordering::Relaxed)
    }

    pub(super) fn panic_message(&self) -> Option<&str> {
        self.shared.panic.get().map(String::as_str)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // Running jobs own what they touch (H2), so there is no need to wait for them.
        self.shared.queue().closing = true;
        self.shared.work.notify_all();
    }
}
