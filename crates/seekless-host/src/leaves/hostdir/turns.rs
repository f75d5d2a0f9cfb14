//! Turns of the appends through one open file, in the order in which they came. The kernel sends the parts of a long asynchronous
//! write at once, and each goes to the end of the file as the one before has left it. Behind a part that has failed, the others must
//! fail, too: they would be in its place.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use seekless::fs::FsError;
use seekless::rt::Event;

/// Lets one append at a time pass, in the order of their calls.
#[derive(Default)]
pub(super) struct Turns {
    /// The first has its turn.
    waiting: RefCell<VecDeque<u64>>,
    next: Cell<u64>,
    ended: Event,
    /// Where the next part of a call begins of which one part was not written in whole, and why.
    failed_before: RefCell<Option<(u64, FsError)>>,
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

    /// The append that has its turn, and for the kernel ends at `end`, was not made in whole because of `error`.
    pub(super) fn fail_before(&self, end: u64, error: FsError) {
        self.failed_before.replace(Some((end, error)));
    }

    /// Why an append of `bytes`, which has its turn, may be a part behind one that has failed. `offset` is where the kernel takes the
    /// file to end: for such a part, where the failed one was to end; for the next call of a program, usually where that began.
    pub(super) fn failed_before(&self, offset: u64, bytes: usize) -> Option<FsError> {
        let (_, error) = self.failed_before.take().filter(|(next, _)| *next == offset)?;
        self.failed_before.replace(Some((offset + bytes as u64, error.clone())));
        Some(error)
    }

    /// The append that has its turn is no such part.
    pub(super) fn forget_failure(&self) {
        self.failed_before.take();
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

    /// Parts behind one that has failed have its error, and the next call has none.
    #[test]
    fn parts_behind_a_failed_one_are_known() {
        let turns = Turns::default();
        assert_eq!(turns.failed_before(100, 10), None);
        turns.fail_before(110, FsError::NoSpace);
        for part in 0..3 {
            assert_eq!(turns.failed_before(110 + 10 * part, 10), Some(FsError::NoSpace));
        }
        assert_eq!(turns.failed_before(100, 10), None);
        assert_eq!(turns.failed_before(140, 10), None);
        turns.fail_before(110, FsError::NoSpace);
        turns.forget_failure();
        assert_eq!(turns.failed_before(110, 10), None);
    }

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
