//! Workloads that are written outside of this crate, in another language: a script says one call after another, and gets
//! each answer before it says the next.
//!
//! It has what a [`Workload`](super::Workload) has: the calls of a [`Target`], and phases that are measured. So one that is worth
//! keeping becomes a file here, line by line.
//!
//! Calls come from outside, so that paths, numbers and the order of phases are input: what is wrong with them is an error.

use std::collections::BTreeMap;

use async_trait::async_trait;
use seekless::rt::Work;
use seekless::units::Nanos;

use super::meter::{self, Durable, Meter, Running};
use super::{Outcome, Program, ProgramTarget, Watch};
use crate::LabError;
use crate::measured::{Comparison, Run, Unit};
use crate::target::{Listed, Space, Target};

/// A workload in another language.
pub trait Script: Send + Sync {
    /// What kind of workload it is, such as the name of its class.
    fn name(&self) -> &str;

    /// Its numbers, as a JSON object.
    fn parameters(&self) -> serde_json::Value;

    /// Begins a run, whose choices `seed` decides. `has_log` says whether there is a second place for files.
    ///
    /// # Errors
    /// Why it cannot begin.
    fn begin(&self, seed: u64, has_log: bool) -> Result<Box<dyn Calls>, LabError>;
}

/// A run of a [`Script`].
pub trait Calls {
    /// What comes next: `answer` is that of the call before, an error if that has failed, and `now` the time. The first answer is
    /// [`Answer::Nothing`].
    ///
    /// # Errors
    /// What ends the run: an error of a call that the script did not handle, or its own.
    fn next(&mut self, answer: &Result<Answer, LabError>, now: Nanos) -> Result<Next, LabError>;
}

/// What a script does next.
#[derive(Debug)]
pub enum Next {
    /// `count` and `bytes` were done in the phase since the last call.
    Call {
        call: Call,
        count: u64,
        bytes: u64,
    },
    End,
}

/// An open file, by a number that the script has got.
pub type FileNumber = u64;

/// A call, as [`Target`] and the phases of a workload have it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    Mkdir(Path),
    Rmdir(Path),
    Create(Path),
    Open(Path),
    OpenToWrite(Path),
    Stat(Path),
    List(Path),
    FsyncDirectory(Path),
    Unlink(Path),
    Rename {
        from: Path,
        to: Path,
    },
    Fsync(FileNumber),
    Write {
        file: FileNumber,
        offset: u64,
        bytes: Vec<u8>,
    },
    Read {
        file: FileNumber,
        offset: u64,
        bytes: u64,
    },
    Close(FileNumber),
    Sync {
        is_log: bool,
    },
    DropCaches,
    Space {
        is_log: bool,
    },
    Compute(Work),
    Begin {
        phase: String,
        unit: Unit,
        total: u64,
    },
    End {
        durable: bool,
    },
    /// What was measured of the phase is not kept.
    Discard,
}

/// Where a file is: relative to the workload's own directory, or to the one on the separate storage of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Path {
    pub path: String,
    pub is_log: bool,
}

/// What a call returns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Nothing,
    File(FileNumber),
    /// Of a file.
    Size(u64),
    Names(Vec<Listed>),
    Bytes(Vec<u8>),
    Space(Space),
}

/// A script as a program.
pub struct Scripted {
    pub script: Box<dyn Script>,
    pub seed: u64,
}

#[async_trait(?Send)]
impl Program for Scripted {
    fn name(&self) -> &str {
        self.script.name()
    }

    fn check(&self) -> Result<(), LabError> {
        Ok(())
    }

    fn title(&self) -> String {
        let parameters = self.script.parameters();
        let parameter = |(name, value): (&String, &serde_json::Value)| match value.as_str() {
            Some(text) => format!("{name} {text}, "),
            None => format!("{name} {value}, "),
        };
        let parameters: String = parameters.as_object().into_iter().flatten().map(parameter).collect();
        format!("{}: {parameters}seed {}", self.script.name(), self.seed)
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn to_json(&self) -> serde_json::Value {
        let mut parameters = self.script.parameters();
        if let Some(parameters) = parameters.as_object_mut() {
            parameters.insert("seed".to_owned(), self.seed.into());
        }
        parameters
    }

    fn published(&self, _: &[Run]) -> Vec<Comparison> {
        Vec::new()
    }

    async fn run_on(&self, target: ProgramTarget<'_>, watch: Watch<'_>) -> Result<Outcome, LabError> {
        match target {
            ProgramTarget::Stack(target) => play(self, target, watch).await,
            ProgramTarget::Directory(target) => play(self, target, watch).await,
        }
    }
}

/// A read is answered in one piece.
const READ_BYTES_MAX: u64 = 1 << 30;

/// No file is longer, so that sums of offsets are numbers.
const FILE_BYTES_MAX: u64 = 1 << 62;

/// What a phase has done at most, in its unit and in bytes.
const DONE_MAX: u64 = 1 << 62;

/// When virtual time ends: 146 years.
const TIME_MAX: Nanos = Nanos(1 << 62);

/// Makes the calls of a script until it ends.
async fn play<T: Target>(program: &Scripted, target: &T, watch: Watch<'_>) -> Result<Outcome, LabError> {
    let mut calls = program.script.begin(program.seed, target.beside().is_some())?;
    let meter = Meter::start(target, watch).await?;
    let mut player = Player { target, watch, meter, files: BTreeMap::new(), count: 0, phase: None };
    let mut ended = player.play(&mut *calls).await;
    // As a kernel does for a program that ends.
    for (_, (file, is_log)) in std::mem::take(&mut player.files) {
        let closed = player.place(is_log)?.close(file).await;
        ended = ended.and(closed);
    }
    ended?;
    if let Some(phase) = &player.phase {
        return Err(wrong(&format!("the phase `{}` has not ended", phase.name())));
    }
    let outcome = player.meter.outcome();
    match outcome.phases.is_empty() {
        true => Err(wrong("the workload has measured nothing: it has no phase")),
        false => Ok(outcome),
    }
}

struct Player<'a, T: Target> {
    target: &'a T,
    watch: Watch<'a>,
    meter: Meter<'a, T>,
    /// Open files, and whether each is on the storage of a log.
    files: BTreeMap<FileNumber, (T::File, bool)>,
    /// Files opened so far.
    count: FileNumber,
    phase: Option<Running>,
}

impl<'a, T: Target> Player<'a, T> {
    async fn play(&mut self, calls: &mut dyn Calls) -> Result<(), LabError> {
        let mut answer = Ok(Answer::Nothing);
        loop {
            let Next::Call { call, count, bytes } = calls.next(&answer, self.target.now())? else { return Ok(()) };
            self.look(count, bytes)?;
            answer = self.answer(call).await;
        }
    }

    /// Counts what was done, and lets the caller see it, who may end the run.
    fn look(&mut self, count: u64, bytes: u64) -> Result<(), LabError> {
        if let Some(phase) = &mut self.phase {
            let is_too_much = |done: u64, more: u64| done.checked_add(more).is_none_or(|sum| sum > DONE_MAX);
            if is_too_much(phase.done(), count) || is_too_much(phase.bytes(), bytes) {
                return Err(wrong("a phase does more than 2^62 of its unit, or of bytes"));
            }
            return self.meter.step(phase, count, bytes);
        }
        if count > 0 || bytes > 0 {
            return Err(wrong("work was counted outside of a phase"));
        }
        meter::look(self.watch)
    }

    fn place(&self, is_log: bool) -> Result<&'a T, LabError> {
        match is_log {
            true => self.target.beside().ok_or_else(|| wrong("there is no separate storage for a log")),
            false => Ok(self.target),
        }
    }

    /// The place of a path, which is checked: on a directory of the host, others would lead out of it.
    fn at<'p>(&self, path: &'p Path) -> Result<(&'a T, &'p str), LabError> {
        let Path { path, is_log } = path;
        let is_wrong = |part: &str| matches!(part, "" | "." | "..") || part.contains('\0');
        match path.split('/').any(is_wrong) {
            true if !path.is_empty() => Err(wrong(&format!(
                "the path {path:?}: a path is relative, such as d1/f1, without `.`, `..` and empty names"
            ))),
            _ => Ok((self.place(*is_log)?, path)),
        }
    }

    fn opened(&mut self, file: T::File, is_log: bool) -> Answer {
        self.count += 1;
        self.files.insert(self.count, (file, is_log));
        Answer::File(self.count)
    }

    fn file(&mut self, number: FileNumber) -> Result<(&mut T::File, &'a T), LabError> {
        let is_log = self.files.get(&number).ok_or_else(closed)?.1;
        let place = self.place(is_log)?;
        Ok((&mut self.files.get_mut(&number).ok_or_else(closed)?.0, place))
    }

    async fn answer(&mut self, call: Call) -> Result<Answer, LabError> {
        match &call {
            Call::Mkdir(path) => {
                let (target, path) = self.at(path)?;
                target.mkdir(path).await?;
            }
            Call::Rmdir(path) => {
                let (target, path) = self.at(path)?;
                target.rmdir(path).await?;
            }
            Call::Create(place) => {
                let (target, path) = self.at(place)?;
                let file = target.create(path).await?;
                return Ok(self.opened(file, place.is_log));
            }
            Call::Open(place) => {
                let (target, path) = self.at(place)?;
                let file = target.open(path).await?;
                return Ok(self.opened(file, place.is_log));
            }
            Call::OpenToWrite(place) => {
                let (target, path) = self.at(place)?;
                let file = target.open_to_write(path).await?;
                return Ok(self.opened(file, place.is_log));
            }
            Call::Stat(path) => {
                let (target, path) = self.at(path)?;
                return Ok(Answer::Size(target.stat(path).await?));
            }
            Call::List(path) => {
                let (target, path) = self.at(path)?;
                return Ok(Answer::Names(target.list(path).await?));
            }
            Call::FsyncDirectory(path) => {
                let (target, path) = self.at(path)?;
                target.fsync_directory(path).await?;
            }
            Call::Unlink(path) => {
                let (target, path) = self.at(path)?;
                target.unlink(path).await?;
            }
            Call::Rename { from, to } => {
                let ((target, old), (_, new)) = (self.at(from)?, self.at(to)?);
                if from.is_log != to.is_log {
                    return Err(wrong("a file cannot be moved to other storage"));
                }
                target.rename(old, new).await?;
            }
            Call::Fsync(number) => {
                let (file, target) = self.file(*number)?;
                target.fsync(file).await?;
            }
            Call::Write { file: number, offset, bytes } => {
                if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > FILE_BYTES_MAX) {
                    return Err(wrong("a write ends beyond 2^62 bytes"));
                }
                let (file, target) = self.file(*number)?;
                target.write(file, *offset, bytes).await?;
            }
            Call::Read { file: number, offset, bytes } => {
                if *bytes > READ_BYTES_MAX || *offset > FILE_BYTES_MAX {
                    return Err(wrong("a read has at most 1 GiB, and begins within 2^62 bytes"));
                }
                let (file, target) = self.file(*number)?;
                let mut found = vec![0; *bytes as usize];
                let read = target.read(file, *offset, &mut found).await?;
                found.truncate(read);
                return Ok(Answer::Bytes(found));
            }
            Call::Close(number) => {
                let (file, is_log) = self.files.remove(number).ok_or_else(closed)?;
                self.place(is_log)?.close(file).await?;
            }
            Call::Sync { is_log } => self.place(*is_log)?.sync().await?,
            Call::DropCaches => self.meter.drop_caches().await?,
            Call::Space { is_log } => return Ok(Answer::Space(self.place(*is_log)?.space().await?)),
            Call::Compute(work) => {
                // A cycle takes a microsecond at most.
                let longest = match work {
                    Work::Cycles(cycles) => cycles.checked_mul(1_000),
                    Work::Compute { time } => Some(time.0),
                    _ => Some(0),
                };
                let end = longest.and_then(|longest| longest.checked_add(self.target.now().0));
                if end.is_none_or(|end| end > TIME_MAX.0) {
                    return Err(wrong("a computation ends after more than 146 years, or has more than 2^52 cycles"));
                }
                self.target.compute(*work).await;
            }
            Call::Begin { phase, unit, total } => match &self.phase {
                Some(running) => {
                    let problem = format!("the phase `{phase}` begins, and `{}` has not ended", running.name());
                    return Err(wrong(&problem));
                }
                None => self.phase = Some(self.meter.begin(phase.clone(), *unit, *total)),
            },
            Call::End { durable } => {
                let running = self.phase.take().ok_or_else(|| wrong("no phase has begun"))?;
                self.meter.end(running, if *durable { Durable::Yes } else { Durable::No }).await?;
            }
            Call::Discard => self.phase = None,
        }
        Ok(Answer::Nothing)
    }
}

fn wrong(problem: &str) -> LabError {
    LabError::Spec(problem.to_owned())
}

fn closed() -> LabError {
    wrong("the file is closed")
}
