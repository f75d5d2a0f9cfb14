//! Ways for tasks to wait for each other.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// Lets tasks wait for the next occurrence of something.
#[derive(Default)]
pub struct Event {
    state: RefCell<EventState>,
}

#[derive(Default)]
struct EventState {
    generation: u64,
    waiters: Vec<Waker>,
}

impl Event {
    pub fn new() -> Event {
        Event::default()
    }

    /// Wakes all current waiters.
    pub fn notify(&self) {
        let waiters = {
            let mut state = self.state.borrow_mut();
            state.generation += 1;
            std::mem::take(&mut state.waiters)
        };
        for waiter in waiters {
            waiter.wake();
        }
    }

    /// Number of occurrences so far.
    pub fn count(&self) -> u64 {
        self.state.borrow().generation
    }

    /// Completes at the first [`Event::notify`] after this call, even if it comes before the first poll.
    pub fn wait(&self) -> impl Future<Output = ()> + '_ {
        super::turn::count_call();
        let generation = self.state.borrow().generation;
        poll_fn(move |context| {
            let mut state = self.state.borrow_mut();
            if state.generation != generation {
                return Poll::Ready(());
            }
            if !state.waiters.iter().any(|waiter| waiter.will_wake(context.waker())) {
                state.waiters.push(context.waker().clone());
            }
            Poll::Pending
        })
    }
}

/// Mutual exclusion: one task at a time may pass. The next holder is the waiting task that is run first: usually, but
/// not always, the one that came first.
#[derive(Default)]
pub struct Gate {
    busy: std::cell::Cell<bool>,
    freed: Event,
}

impl Gate {
    pub fn new() -> Gate {
        Gate::default()
    }

    /// True while a task holds the gate. For assertions: the gate does not know which task.
    pub fn is_held(&self) -> bool {
        self.busy.get()
    }

    /// Waits until the gate is free, then holds it until the pass is dropped.
    pub async fn enter(&self) -> Pass<'_> {
        while self.busy.replace(true) {
            self.freed.wait().await;
        }
        Pass(self)
    }
}

/// Holds a [`Gate`].
pub struct Pass<'a>(&'a Gate);

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let was_busy = self.0.busy.replace(false);
        debug_assert!(was_busy, "a gate that is left was held");
        self.0.freed.notify();
    }
}

struct Slot<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

/// Gives one value to a [`Receiver`]. If it is dropped without one, the receiver waits indefinitely.
pub struct Sender<T>(Arc<Mutex<Slot<T>>>);

/// Waits for the value of a [`Sender`].
pub struct Receiver<T>(Arc<Mutex<Slot<T>>>);

/// A value sent once, from any thread to a task: the result of work done elsewhere.
pub fn oneshot<T>() -> (Sender<T>, Receiver<T>) {
    let slot = Arc::new(Mutex::new(Slot { value: None, waker: None }));
    (Sender(slot.clone()), Receiver(slot))
}

impl<T> Sender<T> {
    /// Sends the value. The receiver may be gone.
    pub fn send(self, value: T) {
        let waker = {
            let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            slot.value = Some(value);
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for Receiver<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match slot.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
