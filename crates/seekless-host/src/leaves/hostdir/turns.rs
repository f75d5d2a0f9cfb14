//! Turns of the appends through one open file, in the order in which they came. The kernel sends the parts of a long asynchronous
//! write at once, and each goes to the end of the file as the one before has left it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use seekless::rt::Event;

/// Lets one append at a time pass, in the order of their calls.
#[derive(Default)]
pub(super) struct Turns {
    /// The first has its turn.
    waiting: RefCell<VecDeque<u64>>,
    next: Cell<u64>,
    ended: Event,
}

impl Turns {
    /// Waits for those that came earlier. The next one has its turn when the result is dropped.
    pub(super) async fn take(&self) -> Turn<'_> {
        let number = self.next.get();
        self.next.set(number + 1);
        self.waiting.borrow_mut().push_back(number);
        let turn = Turn { turns: self, number };
        while self.waiting.borrow().front() != Some(&number) {
            self.ended.wait().await;
        }
        turn
    }
}

/// A place in the row, until it is dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    number: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.waiting.borrow_mut().retain(|&number| number != self.number);
        self.turns.ended.notify();
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use seekless::rt::{Executor, HostProfile};
    use seekless::units::Nanos;

    use super::*;

    /// Aim: turns are in the order of the calls, also when one that waits is given up. Method: the earlier a task comes, the longer it
    /// takes; behind each, one more waits and is given up.
    #[test]
    fn turns_are_in_order() {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt();
        let (turns, come) = (Rc::new(Turns::default()), Rc::new(RefCell::new(Vec::new())));
        let done = Rc::new(RefCell::new(Vec::new()));
        let ended = executor.block_on(async {
            let mut tasks = Vec::new();
            for number in 0..6 {
                let (clock, row, come, done) = (rt.clone(), turns.clone(), come.clone(), done.clone());
                tasks.push(rt.spawn(async move {
                    come.borrow_mut().push(number);
                    let turn = row.take().await;
                    clock.sleep(Nanos::from_millis(10 - number)).await;
                    done.borrow_mut().push(number);
                    drop(turn);
                }));
                let mut given_up = Box::pin(turns.take());
                let polled = std::future::poll_fn(|context| {
                    std::task::Poll::Ready(std::future::Future::poll(given_up.as_mut(), context).is_ready())
                });
                rt.yield_now().await;
                polled.await;
            }
            for task in tasks {
                task.await;
            }
        });
        assert_eq!((ended, done.borrow().len()), (Ok(()), 6));
        assert_eq!(done, come);
    }
}
