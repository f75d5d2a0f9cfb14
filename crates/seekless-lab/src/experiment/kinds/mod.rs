//! Kinds of workload that an experiment can name: every program that uses files, and those that need no files. A new
//! kind of the latter is a file here and a row in `OTHERS`; a new program is a row in [`WORKLOADS`].

mod beside;
mod clean;
mod count;
mod files;
mod generated;
mod locate;
mod mount;
mod mounts;
mod overwrites;
mod replay;
mod updates;
mod whole_files;

use std::path::{Path, PathBuf};

use seekless::rng::Rng;
use seekless::rt::{Executor, HostProfile, Rt};
use seekless::stack::{Identity, Stack};
use seekless::units::human_bytes;
use serde::de::{Deserialize, Deserializer, Error as _};

pub use mounts::{ImageState, MountJob, Placement};

use super::{ExperimentError, Stop};
use crate::LabError;
use crate::run::Run;
use crate::workload::{Program, WORKLOADS, WorkloadSpec};

/// Kinds that are not programs on files.
const OTHERS: &[WorkloadKind] = &[
    replay::KIND,
    generated::KIND,
    count::KIND,
    updates::KIND,
    locate::KIND,
    mount::KIND,
    mounts::KIND,
    overwrites::KIND,
    whole_files::KIND,
    clean::KIND,
    clean::DISTRIBUTION,
];

/// Every kind of workload.
pub fn kinds() -> impl Iterator<Item = WorkloadKind> {
    OTHERS.iter().copied().chain(WORKLOADS.iter().map(|spec| files::kind(spec)))
}

/// A kind of workload, named by `[workload] kind = "..."`.
#[derive(Clone, Copy)]
pub struct WorkloadKind {
    pub name: &'static str,
    /// One line for people.
    pub help: &'static str,
    /// Dimensions of its rows besides contestant and variables.
    pub dims: &'static [&'static str],
    /// Its metrics, and their meaning.
    pub metrics: &'static [(&'static str, &'static str)],
    read: Read,
}

/// How a kind parses its parameters.
#[derive(Clone, Copy)]
enum Read {
    Files(&'static WorkloadSpec),
    Other(fn(&toml::Table) -> Result<Box<dyn Workload>, String>),
}

impl WorkloadKind {
    /// Parses its parameters in the description. An unknown one is an error.
    pub(super) fn read(&self, table: &toml::Table) -> Result<Box<dyn Workload>, String> {
        match self.read {
            Read::Files(spec) => files::read(spec, table),
            Read::Other(read) => read(table),
        }
    }
}

/// Something to measure.
pub trait Workload: Send + Sync {
    /// Files on which the result depends, by their place in the experiment's folder.
    fn inputs(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Checks, before anything is measured, whether it can run on this.
    ///
    /// # Errors
    /// What is wrong with it.
    fn check(&self, on: &RunTarget) -> Result<(), String>;

    /// True when it runs in virtual time there, so that others can run at the same time.
    fn is_simulated(&self, _on: &RunTarget, _context: &Context<'_>) -> bool {
        true
    }

    /// Measures.
    ///
    /// # Errors
    /// Why there is no result, in words.
    fn run(&self, on: &RunTarget, context: &Context<'_>) -> Result<Vec<Measure>, String>;
}

/// One row of a workload's result.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Measure {
    /// Values of the kind's own dimensions.
    #[serde(default)]
    pub dims: std::collections::BTreeMap<String, super::Value>,
    pub metrics: std::collections::BTreeMap<String, f64>,
}

impl Measure {
    fn new(metrics: impl IntoIterator<Item = (&'static str, Option<f64>)>) -> Measure {
        let known = metrics.into_iter().filter_map(|(name, value)| {
            let value = value.filter(|value| value.is_finite())?;
            Some((name.to_owned(), value))
        });
        Measure { dims: std::collections::BTreeMap::new(), metrics: known.collect() }
    }

    fn at_number(mut self, dim: &str, value: u64) -> Measure {
        self.dims.insert(dim.to_owned(), super::Value::Integer(value as i64));
        self
    }

    fn at(mut self, dim: &str, value: &str) -> Measure {
        self.dims.insert(dim.to_owned(), super::Value::Text(value.to_owned()));
        self
    }
}

/// Storage of a workload.
pub enum RunTarget {
    Nothing,
    Stack(Box<Stack>),
    Directory(String),
}

impl RunTarget {
    /// The drive files on which a result depends, by their place in the experiment's folder.
    pub(super) fn inputs(&self) -> Vec<PathBuf> {
        match self {
            RunTarget::Stack(stack) => stack.drive_files().into_iter().map(PathBuf::from).collect(),
            RunTarget::Nothing | RunTarget::Directory(_) => Vec::new(),
        }
    }

    /// Parses a contestant's line, with its variables filled in. Its drive files are not read.
    pub(super) fn read(text: &str) -> Result<RunTarget, String> {
        use seekless::stack::Target;
        match Target::of(text) {
            _ if text.is_empty() => Ok(RunTarget::Nothing),
            Target::Directory(path) => Ok(RunTarget::Directory(path.to_owned())),
            Target::StackFile(path) => Err(format!("write the line of {path} itself, so that it stays what it is")),
            Target::Line(line) => {
                Ok(RunTarget::Stack(Box::new(Stack::parse(line).map_err(|error| error.to_string())?)))
            }
        }
    }
}

/// `stack` with its drive files, whose paths begin in an experiment's folder.
pub(super) fn with_drives(stack: Stack, folder: &Path) -> Result<Stack, String> {
    const BYTES_MAX: u64 = seekless::disk::file::BYTES_MAX as u64;
    let read = |path: &str| {
        let whole = existing(folder, Path::new(path))?;
        let failed =
            |problem: &dyn std::fmt::Display| format!("cannot read the drive file {}: {problem}", whole.display());
        match std::fs::metadata(&whole).map_err(|error| failed(&error))?.len() {
            0..=BYTES_MAX => std::fs::read_to_string(&whole).map_err(|error| failed(&error)),
            bytes => Err(failed(&format!("it has {bytes} bytes, and a drive file at most {BYTES_MAX}"))),
        }
    };
    stack.read_drive_files(read).map_err(|error| error.to_string())
}

/// Which clock points run on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// Virtual where everything is modelled, real otherwise.
    #[default]
    Auto,
    Virtual,
    /// One point after another, because they would disturb each other.
    Real,
}

/// Further parameters of a run.
pub struct Context<'a> {
    /// The experiment's folder.
    pub folder: &'a Path,
    pub seed: u64,
    pub profile: HostProfile,
    pub clock: Clock,
    pub outside: &'a dyn Outside,
}

/// Operations of the real world.
pub trait Outside: Sync {
    /// Runs a program that uses files in real time, on a stack in this process or in a directory.
    ///
    /// # Errors
    /// Those of the stack or the directory.
    fn files(&self, on: &RunTarget, program: &dyn Program) -> Result<Run, LabError>;

    /// Makes, mounts and measures a file system of the host: see [`MountJob`].
    ///
    /// # Errors
    /// Why there is no result, in words.
    fn mounts(&self, job: &MountJob) -> Result<Vec<Measure>, String>;

    /// Ends what is being measured. A kind that measures within seconds may ignore it.
    fn stop(&self) -> Stop {
        Stop::default()
    }
}

/// Runs `run` in virtual time. The volume's identity, the executor and the last argument's random numbers follow from
/// the experiment's seed.
///
/// # Errors
/// Those of `run`, and a simulation that came to a halt, in words.
fn in_virtual_time<T>(
    context: &Context<'_>,
    run: impl AsyncFnOnce(&Rt, &Identity, Rng) -> Result<T, LabError>,
) -> Result<T, String> {
    let mut rng = Rng::new(context.seed);
    let identity = Identity::new([(); 4].map(|()| rng.next_u64()));
    let executor = Executor::simulated(rng.next_u64(), context.profile);
    let rt = executor.rt().clone();
    let ended = executor.block_on(context.outside.stop().during(run(&rt, &identity, rng)));
    ended.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}

/// Parses the keys of a table into `T`, which refuses unknown ones.
fn parse<T: for<'de> Deserialize<'de>>(table: &toml::Table) -> Result<T, String> {
    let mut table = table.clone();
    table.remove("kind");
    T::deserialize(toml::Value::Table(table)).map_err(|error| format!("[workload]: {}", error.to_string().trim()))
}

/// A size in bytes, written as in a stack line: `"4KiB"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Bytes(u64);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        let text = String::deserialize(deserializer)?;
        seekless::stack::read_bytes(&text).map(Bytes).map_err(D::Error::custom)
    }
}

impl std::fmt::Display for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&human_bytes(self.0))
    }
}

/// A value that is written as text and parsed by its own `FromStr`.
fn from_text<'de, T: std::str::FromStr<Err = String>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// The digest of a file's contents.
pub(super) fn digest(path: &Path) -> Result<u128, ExperimentError> {
    use std::hash::Hasher;
    let failed = |cause| ExperimentError::Io { path: path.display().to_string(), cause };
    let bytes = std::fs::read(path).map_err(failed)?;
    let mut hasher = siphasher::sip128::SipHasher13::new();
    hasher.write(&bytes);
    Ok(siphasher::sip128::Hasher128::finish128(&hasher).as_u128())
}

/// The path of an existing file in an experiment's folder; the error for a missing one says what to do.
pub(super) fn existing(folder: &Path, path: &Path) -> Result<PathBuf, String> {
    let whole = folder.join(path);
    match whole.is_file() {
        true => Ok(whole),
        false => {
            let made_by = whole.parent().map(|parent| parent.join("capture.sh")).filter(|script| script.is_file());
            let hint = made_by.map_or(String::new(), |script| format!("; make it with {}", script.display()));
            Err(format!("there is no file {}{hint}", whole.display()))
        }
    }
}
