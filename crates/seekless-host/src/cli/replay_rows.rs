//! `seekless replay --rows`: every request of a replay, as a table in a file.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use seekless::units::counted;
use seekless_lab::output::{self as files, Replace, Sources, Wish};
use seekless_lab::replay::{HEADER, Listener};
use seekless_lab::trace::Output;

use super::{Failure, WRONG_USAGE};

/// Files with the requests of each stack. Until [`Rows::finish`], they have no names.
pub(super) struct Rows(Vec<(PathBuf, Shared)>);

/// A file that a thread writes, until it has failed or is finished.
type Shared = Arc<Mutex<Option<Output>>>;

impl Rows {
    /// Begins a file for each of so many stacks, or none. The sources are not to be replaced.
    pub(super) fn begin(rows: &[PathBuf], stacks: usize, sources: Sources, force: bool) -> Result<Rows, Failure> {
        if !rows.is_empty() && rows.len() != stacks {
            let problem = format!(
                "--rows is given {} for {}",
                counted(rows.len() as u64, "time"),
                counted(stacks as u64, "stack")
            );
            return Err(Failure::new(problem).hint("give it once for each --on, in the same order").code(WRONG_USAGE));
        }
        if let Some(twice) = rows
            .iter()
            .enumerate()
            .find_map(|(index, path)| rows[..index].iter().any(|other| files::is_one_name(other, path)).then_some(path))
        {
            let problem = format!("--rows {} is given twice; each stack needs a file of its own", twice.display());
            return Err(Failure::new(problem).code(WRONG_USAGE));
        }
        if rows.iter().any(|path| path.as_os_str() == "-") {
            let problem = "--rows - would be a file of that name: the standard output has the comparison".to_owned();
            return Err(Failure::new(problem)
                .hint("give the name of a file; `./-` if it is to be that")
                .code(WRONG_USAGE));
        }
        if rows.is_empty() {
            return Ok(Rows(Vec::new()));
        }
        let wish = Wish::new(Replace::forced(force)).sources(sources);
        let begin = |path: &PathBuf| {
            files::check(path, &wish)?;
            let mut file = Output::file(path, &wish)?;
            file.write_all(HEADER.as_bytes()).map_err(|error| failed(path, &error))?;
            Ok((path.clone(), Arc::new(Mutex::new(Some(file)))))
        };
        rows.iter().map(begin).collect::<Result<_, Failure>>().map(Rows)
    }

    pub(super) fn listeners(&self) -> Vec<Listener> {
        let listener = |(path, file): &(PathBuf, Shared)| -> Listener {
            let (path, file) = (path.clone(), file.clone());
            Box::new(move |answered| {
                let mut file = file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let Some(file) = file.as_mut() else { return Ok(()) };
                file.write_all(answered.to_csv().as_bytes()).map_err(|error| failed(&path, &error).text)
            })
        };
        self.0.iter().map(listener).collect()
    }

    /// Makes the files of the stacks that have a result durable, and gives them their names: all that can have one.
    pub(super) fn finish(self, has_result: impl Fn(usize) -> bool) -> Result<(), Failure> {
        let mut result = Ok(());
        for (_, (_, file)) in self.0.into_iter().enumerate().filter(|(index, _)| has_result(*index)) {
            let file = file.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
            result = result.and(file.map_or(Ok(()), Output::finish).map_err(Failure::new));
        }
        result
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot write {}: {error}", path.display()))
}
