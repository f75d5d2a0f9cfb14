//! Workloads that are written in Python: a coroutine awaits one call of the target after another, and the engine makes it.
//!
//! Each call crosses into Python and back, and its data is copied. The coroutine runs in the thread that called the command, with
//! no event loop, so that a run is as deterministic as the coroutine itself. An exception that it does not handle ends the
//! command, except for an `OSError` of the target: then this stack was not measured, and the others are.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use seekless::rt::Work;
use seekless::units::Nanos;
use seekless_host::cli::calls::script::{Answer, Call, Calls, Next, Path, Script};
use seekless_host::cli::calls::{self, Problem, Step};
use seekless_host::cli::calls::{Caller, ProblemKind};
use seekless_lab::LabError;
use seekless_lab::workload::Unit;

use crate::watch::{Told, answered};

/// The first exception of a workload.
type Failure = Arc<Mutex<Option<PyErr>>>;

/// A workload in Python.
struct Own {
    name: String,
    parameters: serde_json::Value,
    workload: Py<PyAny>,
    failure: Failure,
}

impl Script for Own {
    fn name(&self) -> &str {
        &self.name
    }

    fn parameters(&self) -> serde_json::Value {
        self.parameters.clone()
    }

    fn begin(&self, seed: u64, has_log: bool) -> Result<Box<dyn Calls>, LabError> {
        let begun = Python::attach(|py| {
            let class = py.import("seekless._workloads")?.getattr("Run")?;
            Ok(class.call1((&self.workload, seed, has_log))?.unbind())
        });
        let run = begun.map_err(|error| failed(&self.failure, error))?;
        Ok(Box::new(Run { run, failure: self.failure.clone() }))
    }
}

/// Keeps an exception, and ends the run.
fn failed(failure: &Failure, error: PyErr) -> LabError {
    let text = error.to_string();
    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    LabError::Spec(text)
}

/// A run: an object that sends answers into the coroutine.
struct Run {
    run: Py<PyAny>,
    failure: Failure,
}

impl Calls for Run {
    fn next(&mut self, answer: &Result<Answer, LabError>, now: Nanos) -> Result<Next, LabError> {
        Python::attach(|py| self.try_next(py, answer, now)).unwrap_or_else(|error| Err(failed(&self.failure, error)))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // What the coroutine does at its end may fail, which changes nothing any more.
        Python::attach(|py| drop(self.run.call_method0(py, "close")));
    }
}

impl Run {
    fn try_next(
        &self,
        py: Python<'_>,
        answer: &Result<Answer, LabError>,
        now: Nanos,
    ) -> PyResult<Result<Next, LabError>> {
        let (value, error) = match answer {
            Ok(answer) => (value_of(py, answer)?, None),
            Err(error) => (py.None(), Some(exception_of(error))),
        };
        let next = self.run.bind(py).call_method1("next", (value, error, now.0))?;
        if next.is_none() {
            return Ok(Ok(Next::End));
        }
        if let Ok(unhandled) = next.extract::<String>() {
            return Ok(Err(LabError::Spec(unhandled)));
        }
        let (name, arguments, count, bytes): (String, Bound<'_, PyTuple>, u64, u64) = next.extract()?;
        Ok(Ok(Next::Call { call: call_of(&name, &arguments)?, count, bytes }))
    }
}

/// The exception for what a call returns: of the operating system's kind for what the target says.
fn exception_of(error: &LabError) -> PyErr {
    match error {
        LabError::Spec(problem) => PyValueError::new_err(problem.clone()),
        _ => PyOSError::new_err((calls::errno_of(error), error.to_string())),
    }
}

fn value_of(py: Python<'_>, answer: &Answer) -> PyResult<Py<PyAny>> {
    Ok(match answer {
        Answer::Nothing => py.None(),
        Answer::File(number) | Answer::Size(number) => number.into_pyobject(py)?.into_any().unbind(),
        Answer::Bytes(bytes) => PyBytes::new(py, bytes).into_any().unbind(),
        Answer::Space(space) => (space.used, space.available).into_pyobject(py)?.into_any().unbind(),
        Answer::Names(names) => {
            let names: Vec<(&str, bool)> = names.iter().map(|one| (one.name.as_str(), one.is_directory)).collect();
            names.into_pyobject(py)?.into_any().unbind()
        }
    })
}

fn call_of(name: &str, arguments: &Bound<'_, PyTuple>) -> PyResult<Call> {
    let path = || -> PyResult<Path> {
        let (path, is_log) = arguments.extract()?;
        Ok(Path { path, is_log })
    };
    let number = || PyResult::Ok(arguments.get_item(0)?.extract::<u64>()?);
    let is_log = || PyResult::Ok(arguments.get_item(0)?.extract::<bool>()?);
    Ok(match name {
        "mkdir" => Call::Mkdir(path()?),
        "rmdir" => Call::Rmdir(path()?),
        "create" => Call::Create(path()?),
        "open" => Call::Open(path()?),
        "open_to_write" => Call::OpenToWrite(path()?),
        "stat" => Call::Stat(path()?),
        "list" => Call::List(path()?),
        "fsync_directory" => Call::FsyncDirectory(path()?),
        "unlink" => Call::Unlink(path()?),
        "rename" => {
            let (from, to, is_log): (String, String, bool) = arguments.extract()?;
            Call::Rename { from: Path { path: from, is_log }, to: Path { path: to, is_log } }
        }
        "fsync" => Call::Fsync(number()?),
        "write" => {
            let (file, offset, bytes): (u64, u64, Bound<'_, PyBytes>) = arguments.extract()?;
            Call::Write { file, offset, bytes: bytes.as_bytes().to_vec() }
        }
        "read" => {
            let (file, offset, bytes) = arguments.extract()?;
            Call::Read { file, offset, bytes }
        }
        "close" => Call::Close(number()?),
        "sync" => Call::Sync { is_log: is_log()? },
        "drop_caches" => Call::DropCaches,
        "space" => Call::Space { is_log: is_log()? },
        "compute" => {
            let (time, cycles): (u64, u64) = arguments.extract()?;
            Call::Compute(if cycles > 0 { Work::Cycles(cycles) } else { Work::Compute { time: Nanos(time) } })
        }
        "begin" => {
            let (phase, unit, total): (String, String, u64) = arguments.extract()?;
            Call::Begin { phase, unit: unit_of(&unit)?, total }
        }
        "end" => Call::End { durable: arguments.get_item(0)?.extract()? },
        "discard" => Call::Discard,
        _ => return Err(PyRuntimeError::new_err(format!("there is no call `{name}`"))),
    })
}

fn unit_of(unit: &str) -> PyResult<Unit> {
    match unit {
        "files" => Ok(Unit::Files),
        "bytes" => Ok(Unit::Bytes),
        "transactions" => Ok(Unit::Transactions),
        _ => Err(PyValueError::new_err(format!("unit: `{unit}` is none of files, bytes and transactions"))),
    }
}

/// Ends the command when the workload has failed.
struct Failing<'a> {
    caller: &'a dyn Caller,
    failure: Failure,
}

impl Caller for Failing<'_> {
    fn at(&self, step: Step<'_>) -> std::ops::ControlFlow<()> {
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            true => std::ops::ControlFlow::Break(()),
            false => self.caller.at(step),
        }
    }

    fn note(&self, text: &str) {
        self.caller.note(text);
    }
}

/// Measures a workload in Python, called `name`, with the options of a benchmark. `parameters` are JSON.
#[pyfunction]
pub(crate) fn bench_with(
    py: Python<'_>,
    words: Vec<String>,
    name: String,
    parameters: &str,
    workload: Py<PyAny>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Told> {
    let parameters =
        serde_json::from_str(parameters).map_err(|error| PyValueError::new_err(format!("parameters: {error}")))?;
    let failure = Failure::default();
    let script = Box::new(Own { name, parameters, workload, failure: failure.clone() });
    let failing = failure.clone();
    let result = answered(py, progress, move |caller| {
        let failing = Failing { caller, failure: failing };
        let answer = calls::bench_script(&words, script, &failing);
        match failing.failure.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            Some(error) => Err(Problem { kind: ProblemKind::Failed, text: error.to_string(), partial: None }),
            None => answer,
        }
    });
    let raised = failure.lock().unwrap_or_else(PoisonError::into_inner).take();
    raised.map_or(result, Err)
}
