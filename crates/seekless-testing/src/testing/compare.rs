//! Comparison: the same operations on a file system and on the model, every answer and every tree compared.

use std::fmt;
use std::rc::Rc;

use super::ops::{Op, Target};
use super::replay::Replay;
use super::runner::{Outcome, Runner};
use super::subject::{FsUnderTest, simulate};
use super::tree::Tree;
use super::{MemFs, MemFsOptions, memfs::Body};
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::{Device, Image};
use crate::fs::{Attr, Fs, FsError, SeekTo};
use crate::rt::{Limits, Rt};
use crate::units::{Nanos, WallTime};

/// What to compare.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Compare whole trees every `tree_every` operations, and at the end.
    pub tree_every: usize,
    /// Compare which times each operation changes. Only where time is virtual and the files have no other user.
    pub times: bool,
    /// With `times`: also the time of birth, which not every file system keeps.
    pub birth_times: bool,
    /// Accept `NoSpace` where the model has room: the operation is then skipped on the model.
    pub may_be_full: bool,
}

impl Default for Comparison {
    fn default() -> Comparison {
        Comparison { tree_every: 50, times: true, birth_times: true, may_be_full: false }
    }
}

/// Where two file systems diverged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// Number of the operation, from 0; the number of operations for a difference found at the end.
    pub step: usize,
    pub what: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at operation {}: {}", self.step, self.what)
    }
}

/// A file system and the model, side by side.
pub struct Pair {
    rt: Rt,
    comparison: Comparison,
    here: Runner,
    there: Runner,
    model: Rc<MemFs>,
    step: usize,
    /// Operations that succeeded, and that failed, on both.
    pub done: usize,
    pub failed: usize,
    /// Operations that were skipped because only `here` was full.
    pub full: usize,
}

/// Time that passes before each operation, so that each has its own times.
const TICK: Nanos = Nanos::from_millis(1);

/// Times of one operation on both sides are at most this far apart: the model takes no time, devices do.
const TIMES_APART_MAX: Nanos = Nanos::from_secs(1);

fn close(one: WallTime, two: WallTime) -> bool {
    (one.nanos_since_epoch() - two.nanos_since_epoch()).unsigned_abs() <= u128::from(TIMES_APART_MAX.0)
}

impl Pair {
    /// `fs` and a model that are in the same state.
    pub fn new(rt: &Rt, fs: Fs, model: Rc<MemFs>, comparison: Comparison) -> Pair {
        let (here, there) = (Runner::new(rt, fs), Runner::new(rt, model.clone()));
        Pair { rt: rt.clone(), comparison, here, there, model, step: 0, done: 0, failed: 0, full: 0 }
    }

    pub fn model(&self) -> &Rc<MemFs> {
        &self.model
    }

    pub fn fs(&self) -> Fs {
        self.here.client().fs().clone()
    }

    fn mismatch(&self, what: String) -> Mismatch {
        Mismatch { step: self.step, what }
    }

    /// Runs `op` on both and compares.
    ///
    /// # Errors
    /// What differs.
    pub async fn apply(&mut self, op: &Op) -> Result<(), Mismatch> {
        if self.comparison.times {
            self.rt.sleep(TICK).await;
        }
        let watched = if self.comparison.times { self.times(op).await } else { Vec::new() };
        let start = self.rt.wall();
        let here = self.here.apply(op).await;
        if self.comparison.may_be_full && matches!(here.error(), Some(FsError::NoSpace)) {
            self.full += 1;
            self.step += 1;
            return Ok(());
        }
        let there = self.there.apply(op).await;
        let end = self.rt.wall();
        let agree = match op {
            Op::Seek { target, offset, seek } => self.check_seek(target, *offset, *seek, &here, &there).await,
            _ => here.agrees(&there),
        };
        if !agree {
            return Err(self.mismatch(format!("{op}\n    here:  {here}\n    model: {there}")));
        }
        if here.error().is_some() {
            self.failed += 1;
        } else {
            self.done += 1;
        }
        if self.comparison.times {
            self.check_times(op, &watched, start, end).await?;
        }
        self.step += 1;
        if self.step.is_multiple_of(self.comparison.tree_every.max(1)) {
            self.check_trees().await?;
        }
        Ok(())
    }

    /// Compares the whole trees.
    ///
    /// # Errors
    /// The differences, or the error in place of a tree; and inconsistent bookkeeping.
    pub async fn check_trees(&self) -> Result<(), Mismatch> {
        super::crash::books(&self.fs(), "before the trees are compared").await.map_err(|text| self.mismatch(text))?;
        let here =
            Tree::of(self.fs()).await.map_err(|error| self.mismatch(format!("cannot read the tree: {error}")))?;
        let model: Fs = self.model.clone();
        let there = Tree::of(model).await.map_err(|error| self.mismatch(format!("cannot read the model: {error}")))?;
        let mut differences = here.differences(&there);
        if self.comparison.times && differences.is_empty() {
            differences = self.time_differences(&there).await;
        }
        if differences.is_empty() {
            return Ok(());
        }
        Err(self.mismatch(format!("trees differ (here, and in the model there):\n    {}", differences.join("\n    "))))
    }

    /// Times that are not the model's, of everything in `tree`.
    async fn time_differences(&self, tree: &Tree) -> Vec<String> {
        let mut found = Vec::new();
        for (path, _) in tree.paths() {
            let target = Target::Path(path);
            let (Some(here), Some(there)) = (self.here.stat(&target).await, self.there.stat(&target).await) else {
                continue;
            };
            for (name, here, there) in [("mtime", here.mtime, there.mtime), ("ctime", here.ctime, there.ctime)] {
                if !close(here, there) {
                    found.push(format!("{target}: {name} {here:?} here, {there:?} there"));
                }
            }
        }
        found
    }

    /// Closes everything held open on both.
    ///
    /// # Errors
    /// The error of `here`.
    pub async fn release(&mut self) -> Result<(), Mismatch> {
        let (here, there) = (self.here.close().await, self.there.close().await);
        here.and(there).map_err(|error| self.mismatch(format!("cannot close: {error}")))
    }

    /// Continues with `fs`, which is the same file system mounted again. Everything must have been released.
    pub fn remounted(&mut self, fs: Fs) {
        self.here = Runner::new(&self.rt, fs);
    }

    /// A file system may keep holes in larger units than the model, or none, and may make holes of zeroes: the bytes
    /// between `offset` and the answer must read as the answer implies.
    async fn check_seek(&self, target: &Target, offset: u64, seek: SeekTo, here: &Outcome, there: &Outcome) -> bool {
        let node = self.there.ino(target).await.ok().and_then(|ino| self.model.node(ino));
        let Some(Body::Regular(contents)) = node.map(|node| node.body) else { return here.agrees(there) };
        let (size, nonzero) = (contents.size(), contents.next_nonzero(offset));
        match (seek, here) {
            (_, Outcome::Failed(FsError::NoSuchOffset)) if offset >= size => true,
            (SeekTo::Data, Outcome::Failed(FsError::NoSuchOffset)) => nonzero.is_none(),
            // Data may be reported early; only zeroes may be skipped.
            (SeekTo::Data, Outcome::Offset(found)) => {
                offset <= *found && *found < size && nonzero.is_none_or(|nonzero| *found <= nonzero)
            }
            // A reported hole must read as zeroes there; the end always counts.
            (SeekTo::Hole, Outcome::Offset(found)) => {
                let zero = contents.read(*found, 1).iter().all(|piece| piece.iter().all(|&byte| byte == 0));
                offset <= *found && offset < size && *found <= size && zero
            }
            _ => here.agrees(there),
        }
    }

    /// The attributes, here and in the model, of every inode whose times `op` may change.
    async fn times(&self, op: &Op) -> Vec<(Target, Option<Attr>, Option<Attr>)> {
        let mut watched = Vec::new();
        for target in op.touched() {
            let (here, there) = (self.here.stat(&target).await, self.there.stat(&target).await);
            watched.push((target, here, there));
        }
        watched
    }

    async fn check_times(
        &self,
        op: &Op,
        before: &[(Target, Option<Attr>, Option<Attr>)],
        start: WallTime,
        end: WallTime,
    ) -> Result<(), Mismatch> {
        let within = |time: WallTime| start <= time && time <= end;
        for ((target, here_before, there_before), (_, here, there)) in before.iter().zip(self.times(op).await) {
            let (Some(here), Some(there)) = (here, there) else { continue };
            type Field = fn(&Attr) -> WallTime;
            let fields: [(&str, Field); 3] =
                [("mtime", |attr| attr.mtime), ("ctime", |attr| attr.ctime), ("btime", |attr| attr.btime)];
            for (name, field) in fields.into_iter().filter(|(name, _)| *name != "btime" || self.comparison.birth_times)
            {
                // Whether it is the current time; if so, whether since this operation; and if it was set, to what.
                let (now_here, now_there) = (within(field(&here)), within(field(&there)));
                let kept = |before: &Option<Attr>, after: &Attr| {
                    before.is_some_and(|before| before.ino == after.ino && field(&before) == field(after))
                };
                let (kept_here, kept_there) = (kept(here_before, &here), kept(there_before, &there));
                // A time that was set must be exact; others differ by the duration of I/O.
                let set = name == "mtime" && matches!(op, Op::Touch { .. });
                let alike = if set { field(&here) == field(&there) } else { close(field(&here), field(&there)) };
                if now_here != now_there || kept_here != kept_there || !alike {
                    let say = |now, kept| match (now, kept) {
                        (true, _) => "now",
                        (false, true) => "as it was",
                        (false, false) => "something else",
                    };
                    return Err(self.mismatch(format!(
                        "{op}\n    {name} of {target} is {} here and {} in the model ({:?}, {:?}; the operation took {start:?} to {end:?})",
                        say(now_here, kept_here),
                        say(now_there, kept_there),
                        field(&here),
                        field(&there),
                    )));
                }
            }
        }
        Ok(())
    }
}

/// A comparison of a whole subject: made, mounted, used, closed, checked, mounted again.
pub struct SubjectComparison<'a> {
    pub subject: &'a dyn FsUnderTest,
    pub device: CrashOptions,
    pub comparison: Comparison,
    /// Close, check and mount again after this many operations; 0 for only at the end.
    pub remount_every: usize,
    pub seed: u64,
    pub replay: Replay,
}

/// Result of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompareReport {
    pub done: usize,
    pub failed: usize,
    pub full: usize,
    pub remounts: usize,
    /// Virtual time it took.
    pub time: Nanos,
}

/// Limits of one comparison.
const LIMITS: Limits = Limits { events: 1_000_000_000, until: Nanos::from_secs(100_000_000) };

impl SubjectComparison<'_> {
    /// Runs `ops` (or those of the replay) on the subject and the model.
    ///
    /// # Errors
    /// A report of the first difference, with the command that replays it.
    pub fn run(&self, ops: &[Op]) -> Result<CompareReport, String> {
        let ops = self.replay.ops.as_deref().unwrap_or(ops);
        let mismatch = match self.attempt(ops) {
            Ok(report) => return Ok(report),
            Err(mismatch) => mismatch,
        };
        // A much shorter sequence usually fails as well, and says more.
        const MINIMISE_RUNS: usize = 300;
        let until = &ops[..(mismatch.step + 1).min(ops.len())];
        let fewest = super::replay::minimise(until, MINIMISE_RUNS, |ops| self.attempt(ops).is_err());
        let last = self.attempt(&fewest).err().unwrap_or(mismatch);
        let script = super::ops::to_text(&fewest);
        let command = self.replay.command(self.seed, None, None, Some(&fewest));
        Err(format!(
            "{} and the model differ {last}\n\nafter:\n{script}\nrun again:\n  {command}\n",
            self.subject.name()
        ))
    }

    fn attempt(&self, ops: &[Op]) -> Result<CompareReport, Mismatch> {
        let run = simulate(self.seed, LIMITS, async |rt| self.run_on(rt, ops).await);
        run.unwrap_or_else(|what| Err(Mismatch { step: ops.len(), what }))
    }

    async fn run_on(&self, rt: Rt, ops: &[Op]) -> Result<CompareReport, Mismatch> {
        let fail =
            |step: usize, what: &str, error: &dyn fmt::Display| Mismatch { step, what: format!("{what}: {error}") };
        let options = CrashOptions { record: false, seed: self.seed, ..self.device.clone() };
        let crash = CrashDevice::new(&rt, Image::default(), options);
        let device: Device = crash.clone();
        self.subject.mkfs(&rt, device.clone()).await.map_err(|error| fail(0, "mkfs", &error))?;
        let fs = self.subject.mount(&rt, device.clone()).await.map_err(|error| fail(0, "mount", &error))?;
        let capacity_bytes = 1 << 50;
        let model = MemFs::with_options(&rt, MemFsOptions { capacity_bytes, ..MemFsOptions::default() });
        let mut pair = Pair::new(&rt, fs, model, self.comparison.clone());
        let mut report = CompareReport::default();
        for (step, op) in ops.iter().enumerate() {
            pair.apply(op).await?;
            if self.remount_every > 0 && (step + 1).is_multiple_of(self.remount_every) {
                self.remount(&rt, &device, &mut pair, step).await?;
                report.remounts += 1;
            }
        }
        pair.check_trees().await?;
        self.remount(&rt, &device, &mut pair, ops.len()).await?;
        pair.fs().close().await.map_err(|error| fail(ops.len(), "close", &error))?;
        if let Some(violation) = crash.violations().first() {
            return Err(fail(ops.len(), "a request that the device interface forbids", violation));
        }
        let Pair { done, failed, full, .. } = pair;
        Ok(CompareReport { done, failed, full, time: rt.now(), ..report })
    }

    async fn remount(&self, rt: &Rt, device: &Device, pair: &mut Pair, step: usize) -> Result<(), Mismatch> {
        let fail = |what: &str, error: String| Mismatch { step, what: format!("{what}: {error}") };
        pair.release().await?;
        pair.fs().close().await.map_err(|error| fail("close", error.to_string()))?;
        let problems = self.subject.fsck(rt, device.clone()).await.map_err(|error| fail("fsck", error.to_string()))?;
        if !problems.is_empty() {
            return Err(fail("fsck found", problems.join("\n    ")));
        }
        let fs = self.subject.mount(rt, device.clone()).await.map_err(|error| fail("mount", error.to_string()))?;
        pair.remounted(fs);
        pair.check_trees().await
    }
}
