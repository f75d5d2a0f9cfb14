//! Steps: changes of a file system's state in memory that happen as a whole or not at all.
//!
//! A step is a function of the state that runs without interruption. When it needs something that is not in memory, it ends
//! before it has changed anything and names what it needs. The caller fetches that and runs the step again from its
//! start. So no step waits in the middle of a change, and no other code sees a partial one.
//!
//! A file system chooses what its steps can need, `N`: a block to be read, clean segments to wait for. Its state counts its
//! changes in debug builds, so that each step that needs something is checked to have changed nothing.

use std::fmt::Debug;

use super::{FsError, FsResult};

/// Why a step ended without a result.
#[derive(Debug)]
pub enum Stop<N> {
    Fail(FsError),
    /// Fetch this and run the step again.
    Need(N),
}

/// The result of a step.
pub type Step<T, N> = Result<T, Stop<N>>;

impl<N> From<FsError> for Stop<N> {
    fn from(error: FsError) -> Stop<N> {
        Stop::Fail(error)
    }
}

/// How often a part of a state was changed; 0 in builds without debug assertions. What is only a hint does not count, and neither
/// does what the step would find again: content as it was read, or the order in which memory is given up.
#[derive(Default, Debug)]
pub struct Changes(u64);

impl Changes {
    /// Counts a change.
    pub fn note(&mut self) {
        if cfg!(debug_assertions) {
            self.0 += 1;
        }
    }

    pub fn count(&self) -> u64 {
        self.0
    }
}

/// A state that counts its changes.
pub trait CountsChanges {
    /// The changes of all its parts so far.
    fn changes(&self) -> u64;
}

/// The result of a step that searches a bounded range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Searched {
    /// The answer.
    Found(u64),
    /// There is none before this position, where the next step continues.
    Until(u64),
}

/// Ends a step with an error.
pub fn fail<T, N>(error: FsError) -> Step<T, N> {
    Err(Stop::Fail(error))
}

/// Ends a step that needs something.
pub fn need<T, N>(needed: impl Into<N>) -> Step<T, N> {
    Err(Stop::Need(needed.into()))
}

/// Runs `step` once.
///
/// # Panics
/// In debug builds, when the step has changed something and then needs something: run again, it would change that twice.
pub fn attempt<S: CountsChanges, T, N: Debug>(state: &mut S, step: impl FnOnce(&mut S) -> Step<T, N>) -> Step<T, N> {
    let before = state.changes();
    let result = step(state);
    if let Err(Stop::Need(needed)) = &result {
        debug_assert_eq!(before, state.changes(), "a step changes nothing before it has all that it needs: {needed:?}");
    }
    result
}

/// Runs `step` until it ends with a result. `fetch` brings in what it needs.
///
/// # Errors
/// The first error of either.
pub async fn complete<T, N>(
    mut step: impl FnMut() -> Step<T, N>,
    mut fetch: impl AsyncFnMut(N) -> FsResult<()>,
) -> FsResult<T> {
    loop {
        match step() {
            Ok(value) => return Ok(value),
            Err(Stop::Fail(error)) => return Err(error),
            Err(Stop::Need(needed)) => fetch(needed).await?,
        }
    }
}

/// What a step that has ended well left behind, where the loop around it does not know the type.
///
/// # Panics
/// When it left nothing: [`complete`] has returned without an error before the step did.
pub fn result<T>(left: Option<T>) -> T {
    match left {
        Some(value) => value,
        None => unreachable!("a step that has ended well has a result"),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use futures_util::FutureExt;

    use super::*;

    #[derive(Default)]
    struct Toy {
        value: u32,
        changes: Changes,
    }

    impl CountsChanges for Toy {
        fn changes(&self) -> u64 {
            self.changes.count()
        }
    }

    impl Toy {
        fn add(&mut self, more: u32) {
            self.value += more;
            self.changes.note();
        }
    }

    /// A step may change something and end, or need something, or change something and fail.
    #[test]
    fn a_step_that_ends_may_have_changed_something() {
        let mut toy = Toy::default();
        assert!(
            attempt::<_, _, u32>(&mut toy, |toy| {
                toy.add(1);
                Ok(())
            })
            .is_ok()
        );
        assert!(matches!(attempt::<_, (), u32>(&mut toy, |_| need(7u32)), Err(Stop::Need(7))));
        let failed = attempt::<_, (), u32>(&mut toy, |toy| {
            toy.add(1);
            fail(FsError::Stale)
        });
        assert!(matches!(failed, Err(Stop::Fail(FsError::Stale))));
        assert_eq!(toy.value, 2);
    }

    /// A step that changes something before it has all that it needs is noticed.
    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a step changes nothing before it has all that it needs: 7")]
    fn a_change_before_a_need_is_noticed() {
        let _ = attempt::<_, (), u32>(&mut Toy::default(), |toy| {
            toy.add(1);
            need(7u32)
        });
    }

    /// A step sees everything that it asked for, one thing at a time, and its caller gets the first error.
    #[test]
    fn a_step_runs_again_until_it_has_what_it_needs() {
        let memory = RefCell::new(Vec::new());
        let runs = RefCell::new(0);
        let sum = |limit: u32| {
            let (memory, runs) = (&memory, &runs);
            let step = move || {
                *runs.borrow_mut() += 1;
                match (0..4).find(|number| !memory.borrow().contains(number)) {
                    Some(missing) => need::<u32, u32>(missing),
                    None => Ok(memory.borrow().iter().sum()),
                }
            };
            let fetch = async move |number| {
                if number >= limit {
                    return Err(FsError::Stale);
                }
                memory.borrow_mut().push(number);
                Ok(())
            };
            complete(step, fetch).now_or_never().expect("nothing waits")
        };
        assert!(matches!(sum(2), Err(FsError::Stale)));
        assert_eq!((memory.borrow().clone(), *runs.borrow()), (vec![0, 1], 3));
        assert!(matches!(sum(4), Ok(6)));
        assert_eq!(*runs.borrow(), 6);
    }
}
