//! Fault explorer: the same operations repeatedly, each time with another failing device request.
//!
//! After `NoSpace` an operation either succeeds or is refused with `NoSpace` and has had no effect; once there is room
//! again everything works, nothing is lost, and the check finds nothing.
//!
//! After an I/O error operations may fail, and the file system may stop. What it acknowledged as synced, before or
//! after the error, must survive the final power cut: a repeated fsync may succeed only if the data is durable.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

use super::crash::{CrashReport, Examined, Exploration, Failure, LIMITS, PowerCuts, check_requests};
use super::history::{History, Recorder};
use super::ops::Op;
use super::replay::CutName;
use super::runner::{Outcome, Runner};
use super::subject::simulate;
use super::tree::Tree;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::cut::CrashLog;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::device::{Device, DeviceError, Image};
use crate::fs::{Fs, FsError};
use crate::rng::Rng;
use crate::rt::Rt;

/// A request that fails, counted from 1 among its kind since the setup was durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// This write fails with `NoSpace`.
    NoSpaceOnce(u64),
    /// This write and all after it fail with `NoSpace`, until the operations have been run.
    NoSpaceFrom(u64),
    WriteError(u64),
    /// In addition, what it should have made durable never will be.
    FlushError(u64),
    ReadError(u64),
    DiscardError(u64),
    /// From this request of any kind on, the device is gone for good.
    Gone(u64),
}

/// A word of a replay line, and its fault.
type FaultWord = (&'static str, fn(u64) -> Fault);

impl Fault {
    const WORDS: [FaultWord; 7] = [
        ("no-space-once", Fault::NoSpaceOnce),
        ("no-space-from", Fault::NoSpaceFrom),
        ("write-error", Fault::WriteError),
        ("flush-error", Fault::FlushError),
        ("read-error", Fault::ReadError),
        ("discard-error", Fault::DiscardError),
        ("gone", Fault::Gone),
    ];

    fn parts(self) -> (&'static str, u64) {
        match self {
            Fault::NoSpaceOnce(nth) => ("no-space-once", nth),
            Fault::NoSpaceFrom(nth) => ("no-space-from", nth),
            Fault::WriteError(nth) => ("write-error", nth),
            Fault::FlushError(nth) => ("flush-error", nth),
            Fault::ReadError(nth) => ("read-error", nth),
            Fault::DiscardError(nth) => ("discard-error", nth),
            Fault::Gone(nth) => ("gone", nth),
        }
    }

    fn is_no_space(self) -> bool {
        matches!(self, Fault::NoSpaceOnce(_) | Fault::NoSpaceFrom(_))
    }

    pub(super) fn inject(self, fault: &FaultDevice, crash: &CrashDevice) {
        let rule = match self {
            Fault::NoSpaceOnce(nth) => Rule::new(Kinds::WRITE | Kinds::PROVISION, When::Nth(nth), Effect::NoSpace),
            Fault::NoSpaceFrom(nth) => Rule::new(Kinds::WRITE | Kinds::PROVISION, When::From(nth), Effect::NoSpace),
            Fault::WriteError(nth) => Rule::new(Kinds::WRITE, When::Nth(nth), Effect::Error),
            Fault::ReadError(nth) => Rule::new(Kinds::READ, When::Nth(nth), Effect::Error),
            Fault::DiscardError(nth) => Rule::new(Kinds::DISCARD, When::Nth(nth), Effect::Error),
            Fault::Gone(nth) => Rule::new(Kinds::all(), When::Nth(nth), Effect::Gone),
            Fault::FlushError(nth) => {
                let number = crash.flushes() + nth;
                return crash.fail_flushes(number..number + 1);
            }
        };
        fault.add(rule);
    }
}

/// As in `write-error:7`.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, nth) = self.parts();
        write!(f, "{word}:{nth}")
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Fault, String> {
        let (word, nth) = text.split_once(':').ok_or("not a fault like write-error:7")?;
        let make = Fault::WORDS.iter().find(|(known, _)| *known == word).ok_or("no such kind of fault")?.1;
        Ok(make(nth.parse().map_err(|_| "the request is not a number")?))
    }
}

/// What to explore. The power cuts that follow an I/O error use `cuts`: its subject, device, promise and seed.
pub struct Faults<'a> {
    pub cuts: PowerCuts<'a>,
    /// Limit of failing requests of each kind; a sample if there are more.
    pub each_max: usize,
    /// Limit of the positions of the cut after each I/O error. The last is always the end.
    pub positions_max: usize,
}

/// Empties the caches: without that hardly anything is read from the device, and no read can fail.
async fn forget(fs: &Fs) -> Result<(), String> {
    fs.drop_caches().await.map_err(|error| format!("the caches cannot be emptied: {error}"))
}

/// Coverage of an exploration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultReport {
    pub runs: usize,
    /// Runs in which the fault occurred.
    pub hit: usize,
    /// Operations that were refused with `NoSpace`, or failed with another error.
    pub refused: usize,
    pub failed: usize,
    pub cuts: CrashReport,
}

impl fmt::Display for FaultReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FaultReport { runs, hit, refused, failed, cuts } = self;
        write!(
            f,
            "{runs} runs, {hit} met their fault, {refused} operations refused, {failed} failed; {} states after cuts",
            cuts.states
        )
    }
}

/// Requests of one run, by kind.
struct Counts {
    writes: u64,
    flushes: u64,
    reads: u64,
    discards: u64,
    all: u64,
}

/// A run with a fault.
struct Run {
    log: CrashLog,
    history: History,
    from: usize,
    hit: bool,
    refused: usize,
    failed: usize,
}

impl Faults<'_> {
    /// Runs `setup` and syncs; then runs `body`, with one fault after another.
    ///
    /// # Errors
    /// A report of the first failure and the command that shows it again.
    pub fn run(&self, setup: &[Op], body: &[Op]) -> Result<FaultReport, String> {
        let replay = &self.cuts.replay;
        let body = replay.ops.as_deref().unwrap_or(body);
        let image = self.cuts.mkfs().map_err(|failure| failure.what)?;
        let faults = match &replay.case {
            Some(case) => vec![case.parse().map_err(|error| format!("SEEKLESS_CASE={case}: {error}"))?],
            None => self.faults(&image, setup, body)?,
        };
        let mut report = FaultReport::default();
        // Of each kind, by its word: how many were tried, and how many met.
        let mut met: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for fault in faults {
            let hit_before = report.hit;
            if let Err(failure) = self.attempt(&image, setup, body, fault, replay.cut.as_ref(), &mut report) {
                let runs = if replay.cut.is_some() { 0 } else { self.cuts.minimise_runs };
                let mut scratch = FaultReport::default();
                let fewest = super::replay::minimise(body, runs, |body| {
                    self.attempt(&image, setup, body, fault, None, &mut scratch).is_err()
                });
                let last = self.attempt(&image, setup, &fewest, fault, replay.cut.as_ref(), &mut scratch);
                let failure = last.err().unwrap_or(failure);
                let cut = (!failure.cut.0.is_empty()).then_some(&failure.cut);
                let command = replay.command(self.cuts.seed, Some(&fault.to_string()), cut, Some(&fewest));
                let failure = Failure { what: format!("with {fault}: {}", failure.what), ..*failure };
                return Err(self.cuts.report(&failure, &command));
            }
            let (tried, hit) = met.entry(fault.parts().0).or_default();
            *tried += 1;
            *hit += report.hit - hit_before;
        }
        // A number that was counted in the same run without a fault is met again, unless the case came from elsewhere.
        match met.iter().find(|(_, (_, hit))| *hit == 0) {
            Some((word, (tried, _))) if replay.case.is_none() => Err(format!("none of {tried} runs met its {word}")),
            _ => Ok(report),
        }
    }

    /// All possible faults, or a sample.
    fn faults(&self, image: &Image, setup: &[Op], body: &[Op]) -> Result<Vec<Fault>, String> {
        let counts = simulate(self.cuts.seed, LIMITS, async |rt| self.count(&rt, image.clone(), setup, body).await);
        let counts = counts.and_then(|counts| counts)?;
        let mut rng = Rng::new(self.cuts.seed);
        let mut faults = Vec::new();
        for (_, make) in Fault::WORDS {
            if make(1).is_no_space() && !self.cuts.subject.meets_no_space() {
                continue;
            }
            let total = match make(1) {
                Fault::NoSpaceOnce(_) | Fault::NoSpaceFrom(_) | Fault::WriteError(_) => counts.writes,
                Fault::FlushError(_) => counts.flushes,
                Fault::ReadError(_) => counts.reads,
                Fault::DiscardError(_) => counts.discards,
                Fault::Gone(_) => counts.all,
            };
            let mut numbers: Vec<u64> = (1..=total).collect();
            if numbers.len() > self.each_max {
                rng.shuffle(&mut numbers);
                numbers.truncate(self.each_max);
                numbers.sort_unstable();
            }
            faults.extend(numbers.into_iter().map(make));
        }
        Ok(faults)
    }

    async fn count(&self, rt: &Rt, image: Image, setup: &[Op], body: &[Op]) -> Result<Counts, String> {
        let never = |kinds| Rule::new(kinds, When::Nth(u64::MAX), Effect::Error);
        let (crash, fault) = self.devices(rt, image);
        let fs = self.cuts.subject.mount(rt, fault.clone()).await.map_err(|error| format!("mount failed: {error}"))?;
        let mut runner = Runner::new(rt, fs.clone());
        for op in setup.iter().chain([&Op::Sync]) {
            runner.apply(op).await;
        }
        forget(&fs).await?;
        let flushes = crash.flushes();
        for kinds in [Kinds::WRITE, Kinds::READ, Kinds::DISCARD, Kinds::all()] {
            fault.add(never(kinds));
        }
        for op in body.iter().chain([&Op::Sync]) {
            runner.apply(op).await;
        }
        let [writes, reads, discards, all] = [0, 1, 2, 3].map(|index| fault.looked_at(index));
        runner.close().await.map_err(|error| format!("cannot close a file: {error}"))?;
        super::crash::books(&fs, "when nothing fails").await?;
        fs.close().await.map_err(|error| format!("close failed: {error}"))?;
        Ok(Counts { writes, flushes: crash.flushes() - flushes, reads, discards, all })
    }

    fn devices(&self, rt: &Rt, image: Image) -> (Rc<CrashDevice>, Rc<FaultDevice>) {
        let options = CrashOptions { seed: self.cuts.seed, record: true, ..self.cuts.device.clone() };
        let crash = CrashDevice::new(rt, image, options);
        let fault = FaultDevice::new(rt, crash.clone(), self.cuts.seed);
        (crash, fault)
    }

    fn attempt(
        &self,
        image: &Image,
        setup: &[Op],
        body: &[Op],
        fault: Fault,
        only: Option<&CutName>,
        report: &mut FaultReport,
    ) -> Result<(), Box<Failure>> {
        let run = simulate(self.cuts.seed, LIMITS, async |rt| self.run_on(rt, image.clone(), setup, body, fault).await);
        let run = run.and_then(|run| run).map_err(|what| {
            let details = format!("  operations:\n{}", super::ops::to_text(body));
            Box::new(Failure { cut: CutName::default(), what, details })
        })?;
        report.runs += 1;
        report.hit += usize::from(run.hit);
        report.refused += run.refused;
        report.failed += run.failed;
        if !run.hit {
            return Ok(());
        }
        let exploration = Exploration {
            cuts: &self.cuts,
            log: &run.log,
            examined: &Examined::default(),
            before: &CutName::default(),
            check: &|position, tree| run.history.check(position, self.cuts.promise, tree),
            promises: &|position| run.history.synced_by(position).count(),
            story: &|position| run.history.to_text(position),
            effort: &self.cuts.effort,
            from: run.from,
            positions_max: self.positions_max,
            second_cut: None,
        };
        exploration.run(only.map(|only| &only.0[..]), &mut report.cuts)
    }

    async fn run_on(&self, rt: Rt, image: Image, setup: &[Op], body: &[Op], fault: Fault) -> Result<Run, String> {
        let (crash, device) = self.devices(&rt, image);
        let fs =
            self.cuts.subject.mount(&rt, device.clone()).await.map_err(|error| format!("mount failed: {error}"))?;
        let tree =
            Tree::of(fs.clone()).await.map_err(|error| format!("an empty file system cannot be read: {error}"))?;
        let mut recorder = Recorder::new(&rt, &tree, 0).await.map_err(|error| format!("the model: {error}"))?;
        let mut runner = Runner::new(&rt, fs.clone());
        for op in setup.iter().chain([&Op::Sync]) {
            recorder.issue(op, crash.position());
            let outcome = runner.apply(op).await;
            recorder.acknowledge(op, &outcome, crash.position()).await?;
        }
        forget(&fs).await?;
        let from = crash.position();
        fault.inject(&device, &crash);
        let flushes = crash.flushes();
        let (mut refused, mut failed) = (0, 0);
        for op in body.iter().chain([&Op::Sync]) {
            let is_sync = op.makes_durable();
            if failed > 0 && !is_sync {
                continue; // The content of files is now unknown; only promises count.
            }
            recorder.issue(op, crash.position());
            let outcome = runner.apply(op).await;
            match judge(&outcome, fault) {
                // The failed operation may not have made its target, and then there is nothing to sync.
                Judged::Answer if failed > 0 && outcome.error().is_some() => recorder.refused(),
                Judged::Answer => recorder.acknowledge(op, &outcome, crash.position()).await?,
                Judged::Refused => {
                    recorder.refused();
                    refused += 1;
                }
                Judged::Failed if is_sync => {
                    recorder.refused();
                    failed += 1;
                }
                Judged::Failed => {
                    recorder.unanswered(op).await;
                    failed += 1;
                }
            }
        }
        let hit = match fault {
            Fault::FlushError(nth) => crash.flushes() >= flushes + nth,
            _ => device.failed() > 0,
        };
        device.clear();
        if fault.is_no_space() {
            self.all_is_well(&rt, &fs, &mut recorder, &mut runner, &crash, device.clone()).await?;
        } else {
            let released = runner.close().await;
            if fs.close().await.is_ok() && released.is_ok() {
                let steps = recorder.history().steps.len();
                recorder.synced(steps, crash.position());
            }
        }
        check_requests(&crash)?;
        Ok(Run { log: crash.log(), history: recorder.into_history(), from, hit, refused, failed })
    }

    /// There is room again: everything works, and everything that was acknowledged is there.
    async fn all_is_well(
        &self,
        rt: &Rt,
        fs: &crate::fs::Fs,
        recorder: &mut Recorder,
        runner: &mut Runner,
        crash: &CrashDevice,
        device: Device,
    ) -> Result<(), String> {
        recorder.issue(&Op::Sync, crash.position());
        let synced = runner.apply(&Op::Sync).await;
        if let Some(error) = synced.error() {
            return Err(format!("there is room again, but sync fails: {error}"));
        }
        recorder.acknowledge(&Op::Sync, &synced, crash.position()).await?;
        let expected = recorder.history().tree(recorder.history().steps.len());
        let compare = async |fs: &crate::fs::Fs, when: &str| {
            let found =
                Tree::of(fs.clone()).await.map_err(|error| format!("{when} the tree cannot be read: {error}"))?;
            let differences = found.differences(&expected);
            if differences.is_empty() {
                return Ok(());
            }
            Err(format!("{when} (found here, expected there):\n    {}", differences.join("\n    ")))
        };
        compare(fs, "after lack of space").await?;
        runner.close().await.map_err(|error| format!("cannot close a file: {error}"))?;
        super::crash::books(fs, "after lack of space").await?;
        fs.close().await.map_err(|error| format!("close failed after lack of space: {error}"))?;
        let steps = recorder.history().steps.len();
        recorder.synced(steps, crash.position());
        self.cuts.fsck(rt, &device, "after lack of space").await?;
        let again =
            self.cuts.subject.mount(rt, device).await.map_err(|error| format!("second mount failed: {error}"))?;
        compare(&again, "after lack of space and a second mount").await
    }
}

pub(super) enum Judged {
    /// The model's answer counts.
    Answer,
    /// Refused with `NoSpace`, without effect.
    Refused,
    /// A device error; the effect is unknown.
    Failed,
}

pub(super) fn judge(outcome: &Outcome, fault: Fault) -> Judged {
    match outcome.error() {
        Some(FsError::NoSpace | FsError::Device(DeviceError::NoSpace { .. })) if fault.is_no_space() => Judged::Refused,
        Some(FsError::Device(_) | FsError::Stopped(_) | FsError::ReadOnly) if !fault.is_no_space() => Judged::Failed,
        _ => Judged::Answer,
    }
}
