//! Lets the engine thread share the processor of the one program that makes requests.
//!
//! Such a program and the engine thread take turns: one of them runs, the other waits for it. Linux nevertheless puts a thread that
//! it wakes on an idle processor, and waking a processor, above all that of a virtual machine, takes longer than most requests. On
//! one processor a turn is a context switch.
//!
//! So the engine thread is bound to the program's processor, with the policy `SCHED_IDLE`: Linux takes a processor with threads of that
//! policy alone for an idle one, and lets the program continue on it at once. It still moves the program to another processor now and
//! then, so a second thread, the observer, looks every [`PERIOD`] where the program is, and has the engine thread follow.
//!
//! A thread with that policy gets next to nothing of a processor that another one wants. So the observer, which has the ordinary policy,
//! measures whether sharing helps ([`Policy`]), and ends it otherwise.
//!
//! Invariants
//!   P1  The engine thread has its policy and its processors back at the end of a period in which it waited for a processor all the
//!       time, or in all for most of it. So a request that needs it waits for two periods at most, and until the observer runs. It has
//!       them back, too, after a request of another program, after 16 ms, or 32, without as many requests as before, and when the
//!       observer ends, even by a panic.
//!   P2  No other thread of this process keeps what it inherits from the engine thread: workers begin with [`be_ordinary`], and the
//!       observer mends those of the kernel ([`sys::release_workers`]).

mod policy;
mod sys;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use seekless::device::Counter;

use policy::{Next, Policy, Sample};
pub(super) use sys::be_ordinary;
use sys::{Engine, Moved, Turns};

/// How often the observer looks. It takes some 10 us; with 1 ms or 4 ms the gain is the same, with 10 ms a third less (creating
/// files of 1 KB on two processors of a virtual machine).
const PERIOD: Duration = Duration::from_millis(2);

/// Periods after which the observer looks for workers of the kernel that were started while a processor is shared.
const WORKER_PERIODS: u32 = 50;

/// When the engine thread shares the processor of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ShareWhen {
    /// Where requests are answered at a higher rate with it, as measured again and again.
    #[default]
    Faster,
    /// Whenever one program alone makes requests, for tests: on a busy machine the other choice may never share.
    Possible,
}

/// How often the observer tries again to give the engine thread back what the system refuses.
const REGAIN_PERIOD: Duration = Duration::from_millis(50);

/// Observes who makes requests, and decides where the engine thread runs.
pub(super) struct Sharing {
    shared: Arc<Shared>,
    observer: Option<JoinHandle<()>>,
    when: ShareWhen,
}

/// What the engine thread and the observer tell each other.
#[derive(Default)]
struct Shared {
    /// Requests of programs so far.
    requests: AtomicU64,
    /// The thread that made the last one, as this process sees its number.
    program: AtomicU32,
    /// More than one thread has made requests since the observer looked.
    is_mixed: AtomicBool,
    /// The engine thread shares a processor.
    is_together: AtomicBool,
    /// The observer sleeps until it is woken.
    is_asleep: AtomicBool,
    is_ended: AtomicBool,
    /// How often the engine thread began to share a processor, and how often it followed the program.
    begun: AtomicU64,
    moves: AtomicU64,
}

impl Sharing {
    /// For the calling thread. It does nothing where the system does not let a thread go back to the ordinary policy, and where
    /// the administrator has given the thread another policy or a single processor.
    pub(super) fn start(when: ShareWhen) -> Sharing {
        let shared = Arc::new(Shared::default());
        let observer = Engine::this_thread().and_then(|engine| {
            let shared = shared.clone();
            let observer = std::thread::Builder::new().name("seekless-share".into());
            observer.spawn(move || observe(&shared, &engine, when)).ok()
        });
        Sharing { shared, observer, when }
    }

    /// The thread `program` has made a request; 0 is the kernel itself, or a thread that this process cannot see.
    pub(super) fn note(&self, program: u32) {
        let shared = &*self.shared;
        if program == 0 {
            return;
        }
        shared.requests.fetch_add(1, Ordering::Relaxed);
        if program != shared.program.load(Ordering::Relaxed) {
            shared.program.store(program, Ordering::Relaxed);
            shared.is_mixed.store(true, Ordering::Relaxed);
        }
        if self.when == ShareWhen::Possible {
            self.wake();
        }
    }

    /// Requests come close to each other, so that it pays to observe them.
    pub(super) fn wake(&self) {
        if let Some(observer) = &self.observer
            && self.shared.is_asleep.load(Ordering::Relaxed)
            && self.shared.is_asleep.swap(false, Ordering::Relaxed)
        {
            observer.thread().unpark();
        }
    }

    pub(super) fn is_together(&self) -> bool {
        self.shared.is_together.load(Ordering::Relaxed)
    }

    pub(super) fn counters(&self) -> [Counter; 2] {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        [("processor_shares", count(&self.shared.begun)), ("processor_moves", count(&self.shared.moves))]
    }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        self.shared.is_ended.store(true, Ordering::Relaxed);
        if let Some(observer) = self.observer.take() {
            observer.thread().unpark();
            let _ = observer.join();
        }
    }
}

/// The observer's thread.
fn observe(shared: &Shared, engine: &Engine, when: ShareWhen) {
    if sys::can_return() {
        // Once before it matters: then all that it uses is in memory, and it waits for no lock of this process's memory later.
        engine.release_workers();
        Observer::new(shared, engine).run(Policy::new(when));
    }
}

struct Observer<'a> {
    shared: &'a Shared,
    engine: &'a Engine,
    /// The engine thread, as long as it shares a processor.
    moved: Option<Moved<'a>>,
    /// The last look: when, how many requests there had been, and what turns the engine thread had had.
    looked: Instant,
    requests: u64,
    turns: Turns,
    /// Periods in which the kernel may have started workers that inherit from the engine thread, since it was last looked for them.
    unseen: u32,
}

impl<'a> Observer<'a> {
    fn new(shared: &'a Shared, engine: &'a Engine) -> Self {
        let (looked, turns) = (Instant::now(), engine.turns().unwrap_or_default());
        Observer { shared, engine, moved: None, looked, requests: 0, turns, unseen: 0 }
    }

    fn run(&mut self, mut policy: Policy) {
        while !self.shared.is_ended.load(Ordering::Relaxed) {
            let Some(sample) = self.look() else { return };
            let mut next = policy.next(sample);
            match next {
                Next::Together => self.follow(sample.program),
                Next::Apart | Next::Rest(_) => self.moved = None,
            }
            if self.moved.is_none() && next == Next::Together {
                next = policy.failed();
            }
            self.shared.is_together.store(self.moved.is_some(), Ordering::Relaxed);
            self.regain();
            self.release_workers();
            match next {
                Next::Apart | Next::Together => std::thread::park_timeout(PERIOD),
                Next::Rest(pause) => self.rest(pause),
            }
        }
    }

    /// What has happened since the last look. `None` where the kernel does not count waits.
    fn look(&mut self) -> Option<Sample> {
        let turns = self.engine.turns()?;
        let requests = self.shared.requests.load(Ordering::Relaxed);
        let sample = Sample {
            elapsed: self.looked.elapsed(),
            requests: requests - self.requests,
            delay: turns.waited.saturating_sub(self.turns.waited),
            is_waiting: turns.wants_one && turns.ran == self.turns.ran,
            program: self.shared.program.load(Ordering::Relaxed),
            is_mixed: self.shared.is_mixed.swap(false, Ordering::Relaxed),
        };
        (self.looked, self.requests, self.turns) = (Instant::now(), requests, turns);
        Some(sample)
    }

    /// Brings the engine thread to where `program` is, if that can be found out and is allowed.
    fn follow(&mut self, program: u32) {
        let Some(processor) = sys::processor_of(program) else {
            self.moved = None;
            return;
        };
        self.moved = match self.moved.take() {
            Some(moved) if moved.is_at(processor) => Some(moved),
            Some(moved) => moved.go_to(processor).inspect(|_| count(&self.shared.moves)),
            None => self.engine.move_to(processor).inspect(|_| count(&self.shared.begun)),
        };
    }

    /// Until the system gives the engine thread back what it has refused.
    fn regain(&self) {
        while self.engine.is_lost() && !self.shared.is_ended.load(Ordering::Relaxed) {
            std::thread::park_timeout(REGAIN_PERIOD);
            self.engine.regain();
        }
    }

    /// Mends workers of the kernel now and then while a processor is shared, and after it. One that is just being started is found at the
    /// next time.
    fn release_workers(&mut self) {
        let is_over = self.moved.is_none() && self.unseen > 0;
        if is_over || self.unseen == WORKER_PERIODS {
            self.engine.release_workers();
            self.unseen = 0;
        }
        self.unseen += u32::from(self.moved.is_some());
    }

    /// Sleeps for `pause`, and then until requests come close to each other again.
    fn rest(&mut self, pause: Duration) {
        std::thread::park_timeout(pause.max(PERIOD));
        if self.shared.begun.load(Ordering::Relaxed) > 0 {
            self.engine.release_workers();
            self.engine.renew();
        }
        self.shared.is_asleep.store(true, Ordering::Relaxed);
        while self.shared.is_asleep.load(Ordering::Relaxed) && !self.shared.is_ended.load(Ordering::Relaxed) {
            std::thread::park();
        }
        self.look();
    }
}

impl Drop for Observer<'_> {
    fn drop(&mut self) {
        self.moved = None;
        self.shared.is_together.store(false, Ordering::Relaxed);
        if self.shared.begun.load(Ordering::Relaxed) > 0 {
            self.engine.release_workers();
            sys::stop_observing();
        }
    }
}

fn count(of: &AtomicU64) {
    of.fetch_add(1, Ordering::Relaxed);
}
