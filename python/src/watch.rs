//! The caller of a command, when it is a Python thread.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use seekless_host::cli::calls::{Answer, Caller, Problem, Step};

use crate::problem;

/// Between two looks at signals. Each needs the interpreter's lock, for which other threads may compete.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// Between two calls of the progress function.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// Sees the progress, and ends the command when a signal has arrived or the progress function has raised.
pub(crate) struct Watch {
    progress: Option<Py<PyAny>>,
    looked: Cell<Option<Instant>>,
    shown: Cell<Option<Instant>>,
    raised: RefCell<Option<PyErr>>,
    notes: RefCell<Vec<String>>,
}

impl Watch {
    fn look(&self, step: Step<'_>, now: Instant) -> PyResult<()> {
        let is_due = |last: &Cell<Option<Instant>>, every| last.get().is_none_or(|last| now - last >= every);
        if !is_due(&self.looked, SIGNALS_EVERY) {
            return Ok(());
        }
        self.looked.set(Some(now));
        Python::attach(|py| {
            py.check_signals()?;
            if let Some(progress) = self.progress.as_ref().filter(|_| is_due(&self.shown, PROGRESS_EVERY)) {
                self.shown.set(Some(now));
                progress.call1(py, (step.what, step.done, step.total))?;
            }
            Ok(())
        })
    }
}

impl Caller for Watch {
    fn at(&self, step: Step<'_>) -> ControlFlow<()> {
        match self.look(step, Instant::now()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.raised.borrow_mut().get_or_insert(error);
                ControlFlow::Break(())
            }
        }
    }

    fn note(&self, text: &str) {
        self.notes.borrow_mut().push(text.to_owned());
    }
}

/// Runs `command` without the interpreter's lock.
///
/// # Errors
/// The exception that a signal handler or the progress function has raised, or what is wrong with the command.
pub(crate) fn watched<T: Send>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    command: impl FnOnce(&dyn Caller) -> Result<T, Problem> + Send,
) -> PyResult<(T, Vec<String>)> {
    let (result, raised, notes) = py.detach(|| {
        let watch = Watch {
            progress,
            looked: Cell::new(None),
            shown: Cell::new(None),
            raised: RefCell::new(None),
            notes: RefCell::default(),
        };
        let result = command(&watch);
        (result, watch.raised.into_inner(), watch.notes.into_inner())
    });
    match (raised, result) {
        (Some(raised), _) => Err(raised),
        (None, Ok(value)) => Ok((value, notes)),
        (None, Err(wrong)) => Err(problem::raise(py, wrong)),
    }
}

/// A result for Python: JSON, the text that the command prints, and what it had to say besides.
pub(crate) type Told = (String, String, Vec<String>);

/// The same, for a command that has an answer.
pub(crate) fn answered(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    command: impl FnOnce(&dyn Caller) -> Result<Answer, Problem> + Send,
) -> PyResult<Told> {
    let (answer, notes) = watched(py, progress, command)?;
    Ok((answer.value.to_string(), answer.text, notes))
}
