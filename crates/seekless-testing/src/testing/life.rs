//! A long life: one volume on which operations and power cuts alternate, never a fresh one. Errors that accumulate from
//! one mount to the next (a slightly wrong count, a place reused too early) have time to show.
//!
//! Each round mounts the state left by the last cut, compares it with what had been promised, works for a while, and
//! cuts the power at one moment of all that, often in the middle of recovery. In between, `FileSystem::check` recounts,
//! the unmounted volume is checked, and it is recovered without its redundant structures.

use std::fmt;
use std::rc::Rc;

use super::crash::{LIMITS, PowerCuts, books, share_syncs};
use super::generate::{Generator, Space, Weights};
use super::history::Recorder;
use super::ops::Op;
use super::runner::Runner;
use super::subject::{simulate, simulate_on};
use super::tree::Tree;
use crate::device::Device;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::cut::Effort;
use crate::fs::{FileKind, FsError};
use crate::rng::Rng;
use crate::rt::{Limits, Rt, Setback, VirtualClock};
use crate::units::{Ino, Nanos};

/// Time between the beginnings of two rounds, longer than any round lasts.
const ROUND_SECONDS: u64 = 50_000;

/// How long, and with what.
pub struct Life<'a> {
    /// Subject, device, promise and seed.
    pub cuts: PowerCuts<'a>,
    pub space: Space,
    pub weights: Weights,
    pub rounds: usize,
    /// Operations in a round.
    pub ops: usize,
    /// Every round whose number is a multiple of this begins by removing most files, so that directories shrink.
    pub sweep_every: Option<usize>,
    /// Also check each volume as the cut left it: nothing may be wrong.
    pub fsck_unrecovered: bool,
    /// In some rounds the clock is put back.
    pub setbacks: bool,
    /// Recount after every operation, and not only after recovery and at the end of a round.
    pub every_op: bool,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LifeReport {
    pub rounds: usize,
    pub ops: usize,
    /// Cuts while the volume was being mounted.
    pub in_recovery: usize,
    /// Rounds that ended because the volume was full.
    pub full: usize,
    /// Recoveries without a redundant structure.
    pub without_redundancy: usize,
}

impl fmt::Display for LifeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LifeReport { rounds, ops, in_recovery, full, without_redundancy } = self;
        write!(
            f,
            "{rounds} power cuts, {in_recovery} of them during recovery; {ops} operations; full {full} times; \
             {without_redundancy} recoveries without a redundant part"
        )
    }
}

/// What a state of the volume must contain.
type Check = Rc<dyn Fn(&Tree) -> Result<(), String>>;

impl Life<'_> {
    /// # Errors
    /// What was found, in which round, and the command that replays it.
    pub fn run(&self) -> Result<LifeReport, String> {
        let mut report = LifeReport::default();
        self.live(&mut report).map_err(|what| {
            let (round, soak) = (report.rounds, self.cuts.replay.soak);
            let command = self.cuts.replay.command(self.cuts.seed, None, None, None);
            // A soak has more rounds.
            let command = if soak > 1 { format!("SEEKLESS_SOAK={soak} {command}") } else { command };
            format!("{}, round {round}: {what}\nrun again:\n  {command}\n", self.cuts.subject.name())
        })?;
        Ok(report)
    }

    fn live(&self, report: &mut LifeReport) -> Result<(), String> {
        let cuts = &self.cuts;
        let mut rng = Rng::new(cuts.seed);
        let mut image = cuts.mkfs().map_err(|failure| failure.what)?;
        let mut check: Check = Rc::new(|_: &Tree| Ok(()));
        for round in 0..self.rounds {
            report.rounds = round;
            let seed = rng.next_u64();
            let closes = rng.chance(1, 4);
            let mut done = (0, false);
            // A clock goes on while the power is off: what is written now is younger than what was written before.
            let start = Nanos::from_secs(ROUND_SECONDS * round as u64);
            let limits = Limits { until: start + LIMITS.until, ..LIMITS };
            let clock = match self.setbacks && rng.chance(1, 2) {
                true => VirtualClock::put_back(setback(&mut rng, start)),
                false => VirtualClock::new(),
            };
            let lived = simulate_on(clock, seed, limits, async |rt: Rt| {
                rt.sleep(start).await;
                let options = CrashOptions { seed, record: true, ..cuts.device.clone() };
                let device = CrashDevice::new(&rt, image.clone(), options);
                let fs = cuts.subject.mount(&rt, device.clone()).await.map_err(failed("mount"))?;
                let mounted = device.position();
                books(&fs, "after mounting").await?;
                let tree = Tree::of(fs.clone()).await.map_err(failed("reading everything"))?;
                check(&tree)?;
                let mut recorder = Recorder::new(&rt, &tree, mounted).await.map_err(failed("the model"))?;
                let generator = Generator::with_tree(seed, self.space.clone(), self.weights, &tree);
                let mut runner = Runner::new(&rt, fs.clone());
                let is_swept = self.sweep_every.is_some_and(|every| (round + 1).is_multiple_of(every));
                let swept = if is_swept { most_files(&tree) } else { Vec::new() };
                for op in swept.into_iter().chain(generator.filter(|op| cuts.subject.can(op)).take(self.ops)) {
                    recorder.issue(&op, device.position());
                    let outcome = runner.apply(&op).await;
                    if matches!(outcome.error(), Some(FsError::NoSpace)) {
                        recorder.unanswered(&op).await;
                        done.1 = true;
                        break;
                    }
                    recorder.acknowledge(&op, &outcome, device.position()).await?;
                    done.0 += 1;
                    if self.every_op {
                        books(&fs, &format!("after {op}")).await?;
                    }
                }
                let _ = runner.close().await; // The file may have been in use when the volume was full.
                books(&fs, "at the end of the round").await?;
                let mut closed = usize::MAX;
                if closes {
                    fs.close().await.map_err(failed("close"))?;
                    closed = device.position();
                }
                let mut clients = [(None, recorder)];
                share_syncs(&mut clients, closed);
                let [(_, recorder)] = clients;
                Ok((device.log(), recorder.into_history(), mounted))
            });
            let (log, history, mounted) = lived.and_then(|lived| lived)?;
            report.ops += done.0;
            report.full += usize::from(done.1);

            let positions = log.positions();
            let recovering = positions.iter().take_while(|&&position| position < mounted).count();
            let position = match rng.below(8) {
                0 => positions.last().copied().unwrap_or(0),
                1..=3 if recovering > 0 => positions[rng.below(recovering as u64) as usize],
                _ => *rng.pick(&positions),
            };
            report.in_recovery += usize::from(position < mounted);
            let cut = log.cut(position);
            let choices = cut.choices(&Effort::SAMPLED, seed);
            let choice = rng.pick(&choices);
            let after = cut.image(choice);
            if position >= mounted {
                let promise = cuts.promise;
                check = Rc::new(move |tree: &Tree| history.check(position, promise, tree));
            }
            let story = |what: String| format!("{what}\n{}", cut.to_text(choice));
            simulate(seed, LIMITS, async |rt: Rt| {
                let options = CrashOptions { record: false, ..cuts.device.clone() };
                let device: Device = CrashDevice::new(&rt, after.clone(), options);
                match self.fsck_unrecovered {
                    true => cuts.fsck(&rt, &device, "before recovery").await,
                    false => Ok(()),
                }
            })
            .and_then(|checked| checked)
            .map_err(story)?;
            for (what, other) in cuts.subject.without_redundancy(&after) {
                report.without_redundancy += 1;
                cuts.examine(other, false, &|tree| check(tree))
                    .map_err(|error| story(format!("without {what}: {error}")))?;
            }
            image = after;
        }
        report.rounds = self.rounds;
        cuts.examine(image, true, &|tree| check(tree)).map(drop)
    }
}

/// A setback at some moment of a round; short ones and early ones are as likely as long ones and late ones.
fn setback(rng: &mut Rng, start: Nanos) -> Setback {
    let mut some = |doublings: u64| {
        let most = Nanos::from_millis(1 << rng.below(doublings));
        Nanos(rng.below(most.0))
    };
    Setback { at: start + some(18), by: some(24) }
}

/// Removes seven of eight files.
fn most_files(tree: &Tree) -> Vec<Op> {
    let is_file = |ino: &Ino| tree.nodes.get(ino).is_some_and(|node| node.kind != FileKind::Directory);
    let files = tree.paths().into_iter().filter(|(_, ino)| is_file(ino)).enumerate();
    files.filter(|(index, _)| index % 8 < 7).map(|(_, (path, _))| Op::Unlink { path }).collect()
}

fn failed(what: &'static str) -> impl Fn(FsError) -> String {
    move |error| format!("{what} failed: {error}")
}
