//! A request to end what is being measured, shared by threads.

use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use crate::LabError;
use crate::trace::{Request, TraceError};

/// Once set, points that are being measured end with an error, and no point begins.
#[derive(Clone, Default, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// For what asks now and then whether to go on.
    pub fn flow(&self) -> ControlFlow<()> {
        if self.is_set() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Ends a simulation the next time that it has waited for anything.
    ///
    /// # Errors
    /// Those of `run`, and `Interrupted`.
    pub(super) async fn during<T>(&self, run: impl Future<Output = Result<T, LabError>>) -> Result<T, LabError> {
        let mut run = pin!(run);
        poll_fn(|context| match self.is_set() {
            true => Poll::Ready(Err(LabError::Interrupted)),
            false => run.as_mut().poll(context),
        })
        .await
    }

    /// The requests of a trace, which end with an error.
    pub(super) fn requests<I: Iterator<Item = Result<Request, TraceError>>>(
        &self,
        requests: I,
    ) -> impl Iterator<Item = Result<Request, TraceError>> + use<I> {
        let stop = self.clone();
        requests.map(move |request| if stop.is_set() { Err(TraceError::Interrupted) } else { request })
    }
}
