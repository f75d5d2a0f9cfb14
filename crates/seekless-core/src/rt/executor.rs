//! The executor: tasks, timers and the ready queue; the same for both clocks.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use super::task::TaskFuture;
use super::turn::{Instant, Name, Pulse, Turn};
use super::{HostProfile, Rt};
use crate::rng::Rng;
use crate::units::{Nanos, WallTime};

/// Where time comes from, and what to do when no task can run.
pub trait Clock {
    fn now(&self) -> Nanos;

    fn wall(&self) -> WallTime;

    fn is_virtual(&self) -> bool;

    /// Called when no task can run; `until` is the next timer, if there is one.
    ///
    /// A virtual clock jumps there. A real clock waits for completions, requests, wakes from other threads, or that
    /// moment. Returns false when no event can come any more.
    fn wait(&self, until: Option<Nanos>) -> bool;

    /// Called every few polls while tasks keep running, so that completions are not starved.
    fn poll(&self) {}

    /// Runs `job` on another thread. Never called on a virtual clock.
    fn run_elsewhere(&self, job: Box<dyn FnOnce() + Send>);

    /// Called by wakers, on any thread, after they queued a task; interrupts a [`Clock::wait`] in progress.
    fn unpark(&self) -> Option<Arc<dyn Fn() + Send + Sync>> {
        None
    }
}

/// No task can run and no timer is set: the awaited future can never complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stalled;

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no task can run and no timer is set: something waits for an event that never comes")
    }
}

impl std::error::Error for Stalled {}

/// How far [`Executor::block_on_within`] goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Task polls, counted from the start of the run.
    pub events: u64,
    /// Moment on the clock.
    pub until: Nanos,
}

/// Limit of events of one simulation. The longest one of a test has less than a hundredth of it.
const EVENTS_MAX: u64 = if cfg!(debug_assertions) { 1_000_000_000 } else { u64::MAX };

/// Why a future has not completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfinished {
    Stalled,
    /// It took more than this many events.
    Events(u64),
    /// It took longer than until this moment.
    Time(Nanos),
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfinished::Stalled => Stalled.fmt(f),
            Unfinished::Events(events) => write!(f, "no end after {events} events"),
            Unfinished::Time(until) => write!(f, "no end by {} s of virtual time", until.as_secs_f64()),
        }
    }
}

impl std::error::Error for Unfinished {}

/// Virtual time: starts at zero and jumps from timer to timer.
pub struct VirtualClock {
    now: Cell<Nanos>,
    setback: Option<Setback>,
}

/// A time of day that is put back at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setback {
    pub at: Nanos,
    pub by: Nanos,
}

impl VirtualClock {
    /// Date at which virtual time starts: 1 January 1995, the month in which \[se95\] appeared.
    pub const EPOCH: WallTime = WallTime { seconds: 788_918_400, nanos: 0 };

    pub fn new() -> VirtualClock {
        VirtualClock { now: Cell::new(Nanos::ZERO), setback: None }
    }

    pub fn put_back(setback: Setback) -> VirtualClock {
        VirtualClock { setback: Some(setback), ..VirtualClock::new() }
    }
}

impl Default for VirtualClock {
    fn default() -> Self {
        VirtualClock::new()
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Nanos {
        self.now.get()
    }

    fn wall(&self) -> WallTime {
        let back = self.setback.filter(|setback| setback.at <= self.now.get()).map_or(0, |setback| setback.by.0);
        let since_epoch = i128::from(self.now.get().0) - i128::from(back);
        WallTime::from_nanos_since_epoch(Self::EPOCH.nanos_since_epoch() + since_epoch)
    }

    fn is_virtual(&self) -> bool {
        true
    }

    fn wait(&self, until: Option<Nanos>) -> bool {
        let Some(until) = until else { return false };
        self.now.set(self.now.get().max(until));
        true
    }

    fn run_elsewhere(&self, job: Box<dyn FnOnce() + Send>) {
        job();
    }
}

/// Which ready task runs next.
enum Order {
    /// First come, first served: real time.
    Fifo,
    /// Drawn from the seed: a different seed is a different interleaving.
    Seeded(Rng),
}

type TaskId = usize;

/// Id for the future of `block_on`, which is not a task, and for the time in which no task runs.
const NO_TASK: TaskId = TaskId::MAX;

/// What wakers share with the executor, because a waker may be used on any thread. The lock is never contended in
/// virtual time.
struct Ready {
    queue: Mutex<VecDeque<TaskId>>,
    /// True while the queue holds something. Changed under the lock; read without it, because the queue is usually
    /// empty.
    filled: AtomicBool,
    unpark: Option<Arc<dyn Fn() + Send + Sync>>,
    /// True while the executor waits, so that a waker unparks it only then.
    waiting: AtomicBool,
}

impl Ready {
    fn lock(&self) -> MutexGuard<'_, VecDeque<TaskId>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, id: TaskId) {
        {
            let mut queue = self.lock();
            queue.push_back(id);
            self.filled.store(true, Ordering::Release);
        }
        if let Some(unpark) = &self.unpark
            && self.waiting.swap(false, Ordering::SeqCst)
        {
            unpark();
        }
    }
}

struct TaskWaker {
    id: TaskId,
    /// True while the task is in [`Ready`], so that it is never there twice.
    queued: AtomicBool,
    ready: Arc<Ready>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.ready.push(self.id);
        }
    }
}

/// A place for a task, which is free without a `state`. In a cache line of its own: of 65,536 tasks that wait, the next one is in no
/// cache.
#[repr(align(64))]
struct Task {
    /// Absent while the future is polled. The waker is kept beside it so that a poll does not touch its reference
    /// count.
    future: Option<(Pin<Box<dyn TaskFuture>>, Waker)>,
    state: Option<Arc<TaskWaker>>,
    name: Name,
    /// Index of the task's name in the pulse.
    name_index: u32,
    /// True while the task is in the ready queue, so that it is never there twice.
    queued: bool,
    /// Means nothing: see [`Core::fetch_task`].
    fetched: bool,
}

const _: () = assert!(size_of::<Task>() == 64);

impl Task {
    const FREE: Task =
        Task { future: None, state: None, name: Name::Label(""), name_index: 0, queued: false, fetched: false };
}

/// What wakes when a timer is due, or when a device says so: see [`Rt::sleeper`].
pub struct Sleeper(Who);

enum Who {
    /// A task that sleeps with its own waker, the usual case: known by its number, so that registering and waking touch
    /// no shared state.
    Task(TaskId),
    /// Part of a task that distinguishes its parts by wakers, such as `join_all`.
    Part(Waker),
}

struct Timer {
    at: Nanos,
    /// Order of registration, which breaks ties.
    sequence: u64,
    sleeper: Sleeper,
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}
impl Eq for Timer {}
impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

pub(crate) struct Core {
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) profile: HostProfile,
    cpu_free_at: Cell<Nanos>,
    pub(crate) cpu_busy: Cell<Nanos>,
    ready: Arc<Ready>,
    /// The ready queue. Tasks queued by wakers arrive through `ready`.
    queue: RefCell<VecDeque<TaskId>>,
    order: RefCell<Order>,
    /// The task that is being polled.
    current: Cell<TaskId>,
    tasks: RefCell<Vec<Task>>,
    /// Wakes the future of `block_on`.
    root: RefCell<Option<Arc<TaskWaker>>>,
    /// True while that future is in the ready queue.
    root_queued: Cell<bool>,
    free: RefCell<Vec<TaskId>>,
    timers: RefCell<BinaryHeap<Reverse<Timer>>>,
    timer_sequence: Cell<u64>,
    events: Cell<u64>,
    /// Only in real time.
    pulse: Option<Arc<Pulse>>,
    /// Only in virtual time.
    instant: RefCell<Instant>,
}

impl Core {
    pub(crate) fn spawn(&self, future: Pin<Box<dyn TaskFuture>>, place: &'static Location<'static>) {
        let name = Name::Place(place);
        let name_index = self.pulse.as_ref().map_or(0, |pulse| pulse.register(name));
        let mut tasks = self.tasks.borrow_mut();
        let id = self.free.borrow_mut().pop().unwrap_or_else(|| {
            tasks.push(Task::FREE);
            tasks.len() - 1
        });
        let state = Arc::new(TaskWaker { id, queued: AtomicBool::new(false), ready: self.ready.clone() });
        let future = Some((future, Waker::from(state.clone())));
        tasks[id] = Task { future, state: Some(state), name, name_index, queued: true, ..Task::FREE };
        drop(tasks);
        self.take_woken();
        self.queue.borrow_mut().push_back(id);
    }

    /// Names the task that is being polled.
    pub(crate) fn name_task(&self, label: &'static str) {
        let name = Name::Label(label);
        let name_index = self.pulse.as_ref().map_or(0, |pulse| pulse.register(name));
        if let Some(task) = self.tasks.borrow_mut().get_mut(self.current.get()) {
            (task.name, task.name_index) = (name, name_index);
        }
    }

    /// Begins a turn of a task, which ends when the value is dropped.
    fn begin_turn(&self, name: Name, name_index: u32) -> Turn {
        match &self.pulse {
            Some(pulse) => pulse.begin(name_index),
            None => self.instant.borrow_mut().count(self.clock.now(), name),
        }
        Turn::begin(self.pulse.is_none(), name)
    }

    /// Lets as many turns begin at this instant as at a new one.
    pub(crate) fn renew_instant(&self) {
        self.instant.borrow_mut().renew(self.clock.now());
    }

    fn end_turn(&self, turn: Turn) {
        drop(turn);
        if let Some(pulse) = &self.pulse {
            pulse.end();
        }
    }

    /// Wakes `waker` at `at`.
    pub(crate) fn add_timer(&self, at: Nanos, waker: &Waker) {
        let sequence = self.timer_sequence.get();
        self.timer_sequence.set(sequence + 1);
        self.timers.borrow_mut().push(Reverse(Timer { at, sequence, sleeper: self.sleeper(waker) }));
    }

    pub(crate) fn sleeper(&self, waker: &Waker) -> Sleeper {
        match self.is_of_current(waker) {
            true => Sleeper(Who::Task(self.current.get())),
            false => Sleeper(Who::Part(waker.clone())),
        }
    }

    pub(crate) fn wake(&self, sleeper: Sleeper) {
        match sleeper.0 {
            Who::Task(id) => self.wake_task(id),
            Who::Part(waker) => waker.wake(),
        }
    }

    /// Writes to the task of `sleeper`, so that the processor fetches it into its cache: it goes on after a write, and would wait for what it
    /// reads.
    pub(crate) fn fetch_task(&self, sleeper: &Sleeper) {
        if let Who::Task(id) = sleeper.0
            && let Some(task) = self.tasks.borrow_mut().get_mut(id)
        {
            task.fetched = true;
        }
    }

    /// Writes to the future of the task of `sleeper`.
    pub(crate) fn fetch_future(&self, sleeper: &Sleeper) {
        if let Who::Task(id) = sleeper.0
            && let Some(Task { future: Some((future, _)), .. }) = self.tasks.borrow().get(id)
        {
            future.fetch();
        }
    }

    /// Applies `look` to the waker of a task that has not ended.
    fn at_waker_of(&self, id: TaskId, look: impl FnOnce(&Arc<TaskWaker>) -> bool) -> bool {
        if id == NO_TASK {
            return self.root.borrow().as_ref().is_some_and(look);
        }
        self.tasks.borrow().get(id).and_then(|task| task.state.as_ref()).is_some_and(look)
    }

    /// True when `waker` is that of the task that is being polled.
    fn is_of_current(&self, waker: &Waker) -> bool {
        let data = waker.data().cast::<TaskWaker>();
        self.at_waker_of(self.current.get(), |state| std::ptr::eq(data, Arc::as_ptr(state)))
    }

    /// Puts a task at the end of the ready queue, behind all tasks woken earlier; does nothing when it is already there, or
    /// has ended.
    fn wake_task(&self, id: TaskId) {
        self.take_woken();
        if self.note_queued(id) {
            self.queue.borrow_mut().push_back(id);
        }
    }

    /// Notes that a task is in the ready queue. False when it was already there, or has ended.
    fn note_queued(&self, id: TaskId) -> bool {
        if id == NO_TASK {
            return !self.root_queued.replace(true);
        }
        let mut tasks = self.tasks.borrow_mut();
        let task = tasks.get_mut(id).filter(|task| task.state.is_some());
        task.is_some_and(|task| !std::mem::replace(&mut task.queued, true))
    }

    /// Takes over the tasks that wakers have queued.
    fn take_woken(&self) {
        if self.ready.filled.load(Ordering::Acquire) {
            let mut woken = self.ready.lock();
            for id in woken.drain(..) {
                // A waker may be that of a task that has ended; a later one with its number is then polled once more.
                let is_own = self.at_waker_of(id, |state| state.queued.swap(false, Ordering::AcqRel));
                if !is_own || self.note_queued(id) {
                    self.queue.borrow_mut().push_back(id);
                }
            }
            self.ready.filled.store(false, Ordering::Release);
        }
    }

    /// Reserves `cost` on the one processor and returns the time at which it will be done.
    pub(crate) fn cpu_reserve(&self, cost: Nanos) -> Nanos {
        let done = self.clock.now().max(self.cpu_free_at.get()) + cost;
        self.cpu_free_at.set(done);
        self.cpu_busy.set(self.cpu_busy.get() + cost);
        done
    }

    fn next_ready(&self) -> Option<TaskId> {
        self.take_woken();
        let mut queue = self.queue.borrow_mut();
        match &mut *self.order.borrow_mut() {
            Order::Seeded(rng) if queue.len() > 1 => {
                let index = rng.below(queue.len() as u64) as usize;
                queue.swap_remove_back(index)
            }
            _ => queue.pop_front(),
        }
    }

    /// Polls one task; does nothing when it has ended since it was woken.
    fn run_task(&self, id: TaskId) {
        let taken = {
            let mut tasks = self.tasks.borrow_mut();
            match tasks.get_mut(id) {
                Some(task) => {
                    task.queued = false;
                    task.future.take().map(|future| (future, task.name, task.name_index))
                }
                None => None,
            }
        };
        let Some(((mut future, waker), name, name_index)) = taken else { return };
        self.events.set(self.events.get() + 1);
        self.current.set(id);
        let turn = self.begin_turn(name, name_index);
        let poll = future.as_mut().poll(&mut Context::from_waker(&waker));
        self.end_turn(turn);
        self.current.set(NO_TASK);
        match poll {
            Poll::Pending => {
                if let Some(task) = self.tasks.borrow_mut().get_mut(id) {
                    task.future = Some((future, waker));
                }
            }
            Poll::Ready(()) => {
                drop(future); // It may own handles that call back; drop it while nothing is borrowed.
                let ended = std::mem::replace(&mut self.tasks.borrow_mut()[id], Task::FREE);
                drop(ended);
                self.free.borrow_mut().push(id);
            }
        }
    }

    /// Wakes every timer that is due. Returns the next one that is not.
    fn fire_timers(&self) -> Option<Nanos> {
        let now = self.clock.now();
        loop {
            let due = {
                let mut timers = self.timers.borrow_mut();
                match timers.peek() {
                    None => return None,
                    Some(Reverse(first)) if first.at > now => return Some(first.at),
                    Some(_) => timers.pop(),
                }
            };
            match due {
                Some(Reverse(timer)) => self.wake(timer.sleeper),
                None => return None,
            }
        }
    }

    /// True when no task can run.
    fn is_idle(&self) -> bool {
        self.queue.borrow().is_empty() && self.ready.lock().is_empty()
    }
}

/// Owns the runtime: runs tasks until a future completes. Dropping it drops every task at its current await, which is
/// how a crash is simulated.
pub struct Executor {
    rt: Rt,
}

/// Tasks polled between two looks at the clock's completions.
const POLLS_PER_CLOCK_POLL: u32 = 64;

impl Executor {
    /// Virtual time from zero, tasks interleaved as `seed` decides, and a host whose processor is `profile`.
    pub fn simulated(seed: u64, profile: HostProfile) -> Executor {
        Executor::simulated_on(VirtualClock::new(), seed, profile)
    }

    /// The same with a clock of the caller's.
    pub fn simulated_on(clock: VirtualClock, seed: u64, profile: HostProfile) -> Executor {
        Executor::build(Box::new(clock), Order::Seeded(Rng::new(seed)), profile)
    }

    /// Real time, tasks in the order in which they became ready.
    pub fn real(clock: Box<dyn Clock>) -> Executor {
        Executor::build(clock, Order::Fifo, HostProfile::NONE)
    }

    fn build(clock: Box<dyn Clock>, order: Order, profile: HostProfile) -> Executor {
        let pulse = (!clock.is_virtual()).then(Arc::<Pulse>::default);
        let ready = Ready {
            queue: Mutex::default(),
            filled: AtomicBool::new(false),
            unpark: clock.unpark(),
            waiting: AtomicBool::new(false),
        };
        Executor {
            rt: Rt(Rc::new(Core {
                clock,
                profile,
                cpu_free_at: Cell::default(),
                cpu_busy: Cell::default(),
                ready: Arc::new(ready),
                queue: RefCell::default(),
                current: Cell::new(NO_TASK),
                order: RefCell::new(order),
                tasks: RefCell::default(),
                root: RefCell::default(),
                root_queued: Cell::default(),
                free: RefCell::default(),
                timers: RefCell::default(),
                timer_sequence: Cell::default(),
                events: Cell::default(),
                pulse,
                instant: RefCell::default(),
            })),
        }
    }

    pub fn rt(&self) -> &Rt {
        &self.rt
    }

    /// State for a watchdog on another thread; `None` in virtual time.
    pub fn pulse(&self) -> Option<Arc<Pulse>> {
        self.rt.0.pulse.clone()
    }

    /// Task polls so far: the events of a discrete-event simulation.
    pub fn events(&self) -> u64 {
        self.rt.0.events.get()
    }

    /// Runs until `future` completes. In builds with assertions, those of tests, a simulation that does not end panics after
    /// a billion events.
    ///
    /// # Errors
    /// [`Stalled`] when no task can run, no timer is set and nothing outside can wake one.
    // Inline, so that each future is compiled beside its caller: otherwise those of all callers are one unit of code.
    #[inline]
    #[track_caller]
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> Result<T, Stalled> {
        let is_virtual = self.rt.0.clock.is_virtual();
        let events = if is_virtual { EVENTS_MAX } else { u64::MAX };
        self.block_on_within(Limits { events, until: Nanos::MAX }, future).map_err(|unfinished| match unfinished {
            Unfinished::Stalled => Stalled,
            Unfinished::Events(_) | Unfinished::Time(_) => panic!("{unfinished}: it may never end"),
        })
    }

    /// As [`Executor::block_on`], but gives up past `limits`: for code that may not end, such as a file system on
    /// a damaged image.
    ///
    /// # Errors
    /// Why it gave up.
    #[inline]
    #[track_caller]
    pub fn block_on_within<T>(&self, limits: Limits, future: impl Future<Output = T>) -> Result<T, Unfinished> {
        let (mut future, mut result) = (pin!(future), None);
        self.run_until(limits, &mut |context| match future.as_mut().poll(context) {
            Poll::Ready(value) => {
                result = Some(value);
                true
            }
            Poll::Pending => false,
        })?;
        match result {
            Some(value) => Ok(value),
            None => unreachable!("it has said that it is done"),
        }
    }

    /// Runs until `poll` says that what it polls is done. Not generic, because there are as many futures as tests.
    #[track_caller]
    fn run_until(&self, limits: Limits, poll: &mut dyn FnMut(&mut Context<'_>) -> bool) -> Result<(), Unfinished> {
        let core = &self.rt.0;
        // The awaited future is not a task: it is polled here whenever its waker fired.
        let root = Arc::new(TaskWaker { id: NO_TASK, queued: AtomicBool::new(false), ready: core.ready.clone() });
        let root_waker = Waker::from(root.clone());
        *core.root.borrow_mut() = Some(root);
        let name = Name::Place(Location::caller());
        let name_index = core.pulse.as_ref().map_or(0, |pulse| pulse.register(name));
        let mut polls = 0;
        let events_before = core.events.get();
        core.take_woken();
        core.root_queued.set(true);
        core.queue.borrow_mut().push_back(NO_TASK);
        loop {
            while let Some(id) = core.next_ready() {
                if id == NO_TASK {
                    core.root_queued.set(false);
                    core.events.set(core.events.get() + 1);
                    let turn = core.begin_turn(name, name_index);
                    let done = poll(&mut Context::from_waker(&root_waker));
                    core.end_turn(turn);
                    if done {
                        return Ok(());
                    }
                } else {
                    core.run_task(id);
                }
                if core.events.get() - events_before >= limits.events {
                    return Err(Unfinished::Events(limits.events));
                }
                polls += 1;
                if polls % POLLS_PER_CLOCK_POLL == 0 && !core.clock.is_virtual() {
                    core.clock.poll();
                    core.fire_timers();
                }
            }
            let next_timer = core.fire_timers();
            if next_timer.is_some_and(|next| next > limits.until) {
                return Err(Unfinished::Time(limits.until));
            }
            if core.clock.is_virtual() {
                // Virtual time has no outside wakers: a task that is not ready now becomes ready by a timer, or never. So no lock is
                // needed to see whether one is; taking one would also wait for all stores under way.
                if core.queue.borrow().is_empty() && !core.ready.filled.load(Ordering::Acquire) {
                    let alive = core.clock.wait(next_timer);
                    core.fire_timers();
                    if !alive {
                        return Err(Unfinished::Stalled);
                    }
                }
                continue;
            }
            core.ready.waiting.store(true, Ordering::SeqCst);
            if core.is_idle() {
                let alive = core.clock.wait(next_timer);
                core.fire_timers();
                if !alive && core.is_idle() {
                    return Err(Unfinished::Stalled);
                }
            }
            core.ready.waiting.store(false, Ordering::SeqCst);
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // Tasks hold handles to the core; without this they would keep each other alive.
        let tasks = std::mem::take(&mut *self.rt.0.tasks.borrow_mut());
        drop(tasks);
        self.rt.0.timers.borrow_mut().clear();
    }
}
