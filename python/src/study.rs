//! Experiments whose points other processes measure.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use seekless_host::cli::calls::{self, Installation, Task};

use crate::problem;
use crate::watch::{Told, answered, watched};

/// A point as the package hands it around: its place in the plan, its key and its name.
type Point = (usize, String, String);

fn task((point, key, name): Point) -> Task {
    Task { point, key, name }
}

/// An experiment with its plan, in any process.
#[pyclass(frozen, module = "seekless._native")]
pub(crate) struct Study(calls::Study);

#[pymethods]
impl Study {
    /// Reads the words of `seekless run`. `library` is the file of this module, and `share` what is installed with it.
    #[new]
    fn new(py: Python<'_>, words: Vec<String>, library: PathBuf, share: Option<PathBuf>) -> PyResult<Study> {
        let study = py.detach(|| calls::Study::read(&words, &Installation { library, share }));
        study.map(Study).map_err(|wrong| problem::raise(py, wrong))
    }

    /// Whether a point is of this plan.
    fn has(&self, point: Point) -> bool {
        self.0.has(&task(point))
    }

    /// Measures a point, and returns what `OpenStudy.add` takes. Any number of threads may do so at the same time.
    fn measure(&self, py: Python<'_>, point: Point) -> PyResult<String> {
        py.detach(|| self.0.measure(&task(point))).map_err(|wrong| problem::raise(py, wrong))
    }

    /// Ends the points that this process measures.
    fn stop(&self) {
        self.0.stop();
    }
}

/// An experiment whose results this process collects.
#[pyclass(frozen, module = "seekless._native")]
pub(crate) struct OpenStudy {
    study: Mutex<Option<calls::OpenStudy>>,
    /// What opening it had to say, as that the folder has the rows of another experiment.
    notes: Vec<String>,
}

impl OpenStudy {
    /// Without the interpreter's lock, as this waits for other threads.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut calls::OpenStudy, &dyn calls::Caller) -> Result<T, calls::Problem> + Send,
    ) -> PyResult<T> {
        let call = |caller: &dyn calls::Caller| {
            let mut study = self.study.lock().unwrap_or_else(PoisonError::into_inner);
            study.as_mut().map(|study| call(study, caller)).transpose()
        };
        let (result, _) = watched(py, None, call)?;
        result.ok_or_else(|| PyValueError::new_err("the study is finished"))
    }
}

#[pymethods]
impl OpenStudy {
    /// As that of `Study`. Other runs may write to the folder of results, too.
    #[new]
    fn new(py: Python<'_>, words: Vec<String>, library: PathBuf, share: Option<PathBuf>) -> PyResult<OpenStudy> {
        let installation = Installation { library, share };
        let open = |caller: &dyn calls::Caller| calls::Study::read(&words, &installation)?.open(caller);
        let (open, notes) = watched(py, None, open)?;
        Ok(OpenStudy { study: Mutex::new(Some(open)), notes })
    }

    /// The simulated points that are not measured yet; no other run measures them now.
    fn tasks(&self, py: Python<'_>) -> PyResult<Vec<Point>> {
        self.with(py, |study, _| Ok(study.tasks()?.into_iter().map(|task| (task.point, task.key, task.name)).collect()))
    }

    /// Keeps a result, and how long it took.
    fn add(&self, py: Python<'_>, point: Point, measures: String, seconds: f64) -> PyResult<()> {
        self.with(py, |study, caller| study.add(&task(point), &measures, seconds, caller))
    }

    /// Keeps that there is no result.
    fn add_failure(&self, py: Python<'_>, point: Point, problem: String) -> PyResult<()> {
        self.with(py, |study, _| study.add_failure(&task(point), problem))
    }

    /// Writes the rows that there are.
    fn write(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |study, caller| study.write(caller))
    }

    /// Measures what is left in this process, and writes the rows.
    fn finish(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<Told> {
        let study = py.detach(|| self.study.lock().unwrap_or_else(PoisonError::into_inner).take());
        let study = study.ok_or_else(|| PyValueError::new_err("the study is finished"))?;
        let (value, text, later) = answered(py, progress, move |caller| study.finish(caller))?;
        Ok((value, text, [&self.notes[..], &later].concat()))
    }

    /// Lets go of the folder of results.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.study.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}
