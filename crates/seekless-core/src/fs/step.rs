//! Steps: changes of a file system's state in memory that happen as a whole or not at all.
//!
//! A step is a function of the state that runs without interruption. When it needs something that is not in memory, it ends
//! before it has changed anything and names what it needs. The caller fetches that and runs the step again from its
//! start. So no step waits in the middle of a change, and no other code sees a partial one.
//!
//! A file system chooses what its steps can need, `N`: a block to be read, clean segments to wait for.

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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use futures_util::FutureExt;

    use super::*;

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
