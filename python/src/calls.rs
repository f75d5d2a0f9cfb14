//! The commands, as functions that take words.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use seekless_host::cli::calls;
use seekless_lab::replay::Listener;

use crate::frame::Frame;
use crate::problem;
use crate::table::{Answers, Table};
use crate::watch::{Told, answered, watched};

/// The version of the engine.
#[pyfunction]
pub(crate) fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

#[pyfunction]
pub(crate) fn bench(py: Python<'_>, words: Vec<String>, progress: Option<Py<PyAny>>) -> PyResult<Told> {
    answered(py, progress, move |caller| calls::bench(&words, caller))
}

#[pyfunction]
pub(crate) fn clean(py: Python<'_>, words: Vec<String>, progress: Option<Py<PyAny>>) -> PyResult<Told> {
    answered(py, progress, move |caller| calls::clean(&words, caller))
}

/// Replays the file that the words name, or the requests of `frame` in its place. With `stacks`, each answer is a row of the
/// table, which names the stacks so.
#[pyfunction]
pub(crate) fn replay(
    py: Python<'_>,
    words: Vec<String>,
    frame: Option<Bound<'_, PyAny>>,
    stacks: Option<Vec<String>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Told, Option<Table>)> {
    let frame = frame.map(|frame| Frame::read(&frame)).transpose()?;
    let ((answer, table), notes) = watched(py, progress, move |caller| {
        let shared: Vec<Arc<Mutex<Answers>>> = stacks.iter().flatten().map(|_| Arc::default()).collect();
        let open = || frame.as_ref().map_or_else(|| Err("there is no table".to_owned()), Frame::open);
        let requests: Option<calls::OpenRequests<'_>> = if frame.is_some() { Some(&open) } else { None };
        let answer = calls::replay(&words, requests, shared.iter().map(listener).collect(), caller)?;
        let answers = shared.iter().map(|one| std::mem::take(&mut *one.lock().unwrap_or_else(PoisonError::into_inner)));
        let table = stacks.as_deref().map(|stacks| Table::of_answers(stacks, answers.collect()));
        Ok((answer, table))
    })?;
    Ok(((answer.value.to_string(), answer.text, notes), table))
}

/// Advice about the trace that the words name, or about the requests of `frame`; and the page.
#[pyfunction]
pub(crate) fn advise(
    py: Python<'_>,
    words: Vec<String>,
    frame: Option<Bound<'_, PyAny>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Told, String)> {
    let frame = frame.map(|frame| Frame::read(&frame)).transpose()?;
    let ((answer, page), notes) = watched(py, progress, move |caller| {
        let open = || frame.as_ref().map_or_else(|| Err("there is no table".to_owned()), Frame::open);
        let requests: Option<calls::OpenRequests<'_>> = if frame.is_some() { Some(&open) } else { None };
        calls::advise(&words, requests, caller)
    })?;
    Ok(((answer.value.to_string(), answer.text, notes), page))
}

fn listener(answers: &Arc<Mutex<Answers>>) -> Listener {
    let answers = answers.clone();
    Box::new(move |answered| {
        answers.lock().unwrap_or_else(PoisonError::into_inner).add(answered);
        Ok(())
    })
}

#[pyfunction]
pub(crate) fn disks() -> String {
    calls::drives().to_string()
}

#[pyfunction]
pub(crate) fn disk(py: Python<'_>, drive: &str) -> PyResult<String> {
    calls::drive(drive).map(|value| value.to_string()).map_err(|wrong| problem::raise(py, wrong))
}

/// What is in a folder of results.
#[pyfunction]
pub(crate) fn results(py: Python<'_>, folder: PathBuf) -> PyResult<Told> {
    answered(py, None, move |_| calls::results(&folder))
}

/// The options of a command.
#[pyfunction]
pub(crate) fn options(py: Python<'_>, command: Vec<String>) -> PyResult<String> {
    calls::options(&command).map(|value| value.to_string()).map_err(|wrong| problem::raise(py, wrong))
}
