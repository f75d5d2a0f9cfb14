//! Futures that the runtime hands out: sleep, yield, and the handle of a task.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use futures_util::FutureExt;
use pin_project_lite::pin_project;

use super::Rt;
use crate::units::Nanos;

/// See [`Rt::sleep_until`].
#[must_use]
pub struct Sleep {
    rt: Rt,
    deadline: Nanos,
    registered: bool,
}

impl Sleep {
    pub(super) fn new(rt: Rt, deadline: Nanos) -> Sleep {
        Sleep { rt, deadline, registered: false }
    }

    /// When it completes, if nothing holds it up.
    pub fn deadline(&self) -> Nanos {
        self.deadline
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Sleeps that are over from the beginning are frequent, see [`Rt::charge`]: they do not read a real clock.
        super::turn::count_call();
        if self.deadline == Nanos::ZERO || self.rt.0.clock.now() >= self.deadline {
            return Poll::Ready(());
        }
        // A sleep belongs to one task, whose waker stays the same, so it registers once.
        if !self.registered {
            self.registered = true;
            self.rt.0.add_timer(self.deadline, context.waker());
        }
        Poll::Pending
    }
}

/// See [`Rt::yield_now`].
#[must_use]
#[derive(Default)]
pub struct YieldNow {
    yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

struct Join<T> {
    value: Option<T>,
    waiter: Option<Waker>,
}

/// The result of a task, to be awaited. Dropping it leaves the task running.
pub struct JoinHandle<T>(Rc<RefCell<Join<T>>>);

impl<T> JoinHandle<T> {
    /// True once the task has ended and its result is available.
    pub fn is_finished(&self) -> bool {
        self.0.borrow().value.is_some()
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut join = self.0.borrow_mut();
        match join.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                join.waiter = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

pin_project! {
    /// A future between two bytes, which mean nothing. They are near its ends in memory: a write to them brings it into the cache.
    #[repr(C)]
    struct Framed<F> {
        front: Cell<u8>,
        #[pin]
        future: F,
        back: Cell<u8>,
    }
}

impl<F: Future> Future for Framed<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.project().future.poll(context)
    }
}

/// What a task runs.
pub(crate) trait TaskFuture: Future<Output = ()> {
    /// Writes at both ends.
    fn fetch(&self);
}

impl<F: Future<Output = ()>> TaskFuture for Framed<F> {
    fn fetch(&self) {
        self.front.set(1);
        self.back.set(1);
    }
}

/// Splits `future` into a handle and the task that feeds it.
pub(super) fn joinable<T>(future: impl Future<Output = T>) -> (JoinHandle<T>, impl TaskFuture) {
    let join = Rc::new(RefCell::new(Join { value: None, waiter: None }));
    let handle = JoinHandle(join.clone());
    // Not an async block, which would have room for the future twice: where it captures it, and where it awaits it.
    let task = future.map(move |value| {
        let waiter = {
            let mut join = join.borrow_mut();
            join.value = Some(value);
            join.waiter.take()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    });
    (handle, Framed { front: Cell::new(0), future: task, back: Cell::new(0) })
}
