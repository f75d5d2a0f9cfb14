//! The runtime seam: what the engine may ask of the world it runs in.
//!
//! Engine code holds an [`Rt`] and asks it for the time, for sleep, for tasks and for processor time. Behind the handle
//! is one single-threaded executor with one of two clocks:
//!
//! * [`VirtualClock`]: when no task can run, time jumps to the next timer. The seed decides the order of ready tasks,
//!   so that one number replays a run.
//! * a real clock, in the host crate: when no task can run, it waits for device completions and requests.
//!
//! Invariants
//!   R1  Everything runs on the thread that calls [`Executor::block_on`]; only wakers may be used elsewhere.
//!   R2  With a virtual clock, the order in which tasks run is a function of the seed alone.
//!   R3  Virtual time moves only while no task can run.
//!   R4  In virtual time a task that runs without ever waiting ends in a panic that names it, never in a hang, unless
//!       it makes progress.

mod cover;
mod cpu;
mod executor;
mod sync;
mod task;
#[cfg(test)]
mod tests;
mod turn;

pub use cover::{cover, covered};
pub use cpu::{HostProfile, Work};
pub use executor::{Clock, Executor, Limits, Setback, Sleeper, Stalled, Unfinished, VirtualClock};
pub use sync::{Event, Gate, Pass, Receiver, Sender, oneshot};
pub use task::{JoinHandle, Sleep, YieldNow};
pub use turn::Pulse;

use std::future::Future;
use std::rc::Rc;
use std::task::Waker;

use crate::units::{Nanos, WallTime};

/// Handle to the runtime. Clones are cheap and refer to the same runtime.
#[derive(Clone)]
pub struct Rt(pub(crate) Rc<executor::Core>);

impl Rt {
    /// Nanoseconds since the runtime started; never goes back.
    pub fn now(&self) -> Nanos {
        turn::count_call();
        self.0.clock.now()
    }

    /// Time of day for file timestamps. In virtual time it starts at a fixed date.
    pub fn wall(&self) -> WallTime {
        turn::count_call();
        self.0.clock.wall()
    }

    /// True on a virtual clock, where waiting costs nothing and no outside event can arrive.
    pub fn is_virtual(&self) -> bool {
        self.0.clock.is_virtual()
    }

    /// Completes once `duration` has passed.
    pub fn sleep(&self, duration: Nanos) -> Sleep {
        self.sleep_until(Nanos(self.now().0.saturating_add(duration.0)))
    }

    /// Completes at `deadline`, or at once when that has passed.
    pub fn sleep_until(&self, deadline: Nanos) -> Sleep {
        Sleep::new(self.clone(), deadline)
    }

    /// Lets every other ready task run once.
    pub fn yield_now(&self) -> YieldNow {
        YieldNow::default()
    }

    /// Starts a task. It runs until it ends or the executor is dropped, even when the handle is dropped.
    // Inline, as [`Executor::block_on`].
    #[inline]
    #[track_caller]
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        let (handle, task) = task::joinable(future);
        self.0.spawn(Box::pin(task), std::panic::Location::caller());
        handle
    }

    /// Names what the task being polled does from now on. By default, its name is the place where it was spawned.
    pub fn name_task(&self, label: &'static str) {
        self.0.name_task(label);
    }

    /// Notes that the caller has done one of a bounded number of pieces of work, such as a request of a trace. The limits
    /// on tasks that never wait (R4) count from here. Only drivers that know how much work there is call this: in a file
    /// system or a device, a loop that waits for what never comes would look like progress.
    pub fn made_progress(&self) {
        turn::renew();
        self.0.renew_instant();
    }

    /// Runs `job`, which may take long, without holding up other tasks: on another core in real time, at once
    /// in virtual time.
    pub async fn compute<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        if self.is_virtual() {
            return job();
        }
        let (send, receive) = sync::oneshot();
        self.0.clock.run_elsewhere(Box::new(move || {
            // The receiver is gone when the caller was cancelled; the result is then dropped.
            send.send(job());
        }));
        receive.await
    }

    /// What `waker` wakes, for a device that keeps many callers waiting: to wake a task by its number touches less
    /// memory than a waker. Only for the waker that the calling task is polled with.
    pub fn sleeper(&self, waker: &Waker) -> Sleeper {
        self.0.sleeper(waker)
    }

    /// Lets the processor fetch the task that `sleeper` wakes; changes nothing. Of many tasks that wait, the next one is in no cache, and a
    /// device may know early which one it will wake.
    pub fn fetch_task(&self, sleeper: &Sleeper) {
        self.0.fetch_task(sleeper);
    }

    /// The same for the future of that task. Its place is in the task, so this comes some time after [`Rt::fetch_task`].
    pub fn fetch_future(&self, sleeper: &Sleeper) {
        self.0.fetch_future(sleeper);
    }

    /// Wakes it, as its waker would.
    pub fn wake(&self, sleeper: Sleeper) {
        self.0.wake(sleeper);
    }

    /// Charges the modelled processor for `work` and returns when it has been done.
    ///
    /// The host has one processor, which serves charges one after another. In real time, and with
    /// [`HostProfile::NONE`], this costs nothing and returns at once.
    pub fn charge(&self, work: Work) -> Sleep {
        let cost = self.0.profile.cost(work);
        let done = if cost > Nanos::ZERO { self.0.cpu_reserve(cost) } else { Nanos::ZERO };
        self.sleep_until(done)
    }

    /// Processor time charged so far.
    pub fn cpu_busy(&self) -> Nanos {
        self.0.cpu_busy.get()
    }
}
