//! A long life: one volume on which operations and power cuts alternate, never a fresh one. Errors that accumulate from
//! one mount to the next (a slightly wrong count, a place reused too early) have time to show.
//!
//! Each round mounts the state left by the last cut, compares it with what had been promised, works for a while, and
//! cuts the power at one moment of all that, often in the middle of recovery. In between, `FileSystem::check` recounts,
//! the unmounted volume is checked, and it is recovered without its redundant structures. In some rounds a request to the
//! device fails, of an operation or of what goes on behind them, such as cleaning; the volume lives on with a device
//! that works again. Some rounds end because the daemon is killed: what the device has in its cache stays there, is read
//! by the next mount, and is lost, perhaps, in the power cut after that.

use std::fmt;
use std::rc::Rc;

use super::crash::{LIMITS, PowerCuts, books, check_requests, share_syncs};
use super::faults::{Fault, Judged, judge};
use super::generate::{Generator, OpMix, Space};
use super::history::{History, Recorder};
use super::ops::Op;
use super::replay::Replay;
use super::runner::Runner;
use super::soak::Soak;
use super::subject::{simulate, simulate_on};
use super::tree::Tree;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::cut::{CrashLog, Effort, Request};
use crate::device::fault::FaultDevice;
use crate::device::{BlockDevice, Device, Image, WriteFlags};
use crate::fs::{FileKind, Fs, FsError};
use crate::rng::Rng;
use crate::rt::{Limits, Rt, Setback, VirtualClock};
use crate::units::{Ino, Nanos};

/// Time between the beginnings of two rounds, longer than any round lasts.
const ROUND_SECONDS: u64 = 50_000;

/// How long, and with what.
pub struct Life<'a> {
    /// File system, device, promise and seed.
    pub cuts: PowerCuts<'a>,
    pub space: Space,
    pub weights: OpMix,
    pub rounds: usize,
    /// Operations in a round.
    pub ops: usize,
    /// The first round begins with these.
    pub first_ops: Vec<Op>,
    /// Every round whose number is a multiple of this begins by removing most files, so that directories shrink.
    pub sweep_every: Option<usize>,
    /// Also check each volume as the cut left it: nothing may be wrong.
    pub fsck_unrecovered: bool,
    /// In some rounds the clock is put back.
    pub setbacks: bool,
    /// In some rounds a request to the device fails.
    pub errors: bool,
    /// Some rounds end because the daemon is killed, and the device goes on. What a mount shows then is durable.
    pub kills: bool,
    /// The host of the volume may have no room. A round then goes on with what makes durable, and removing files needs none.
    pub host_fills: bool,
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
    /// Rounds in which an operation failed because a request to the device did.
    pub failed: usize,
    /// Recoveries without a redundant structure.
    pub without_redundancy: usize,
    /// Rounds that ended without a power cut.
    pub kills: usize,
}

impl fmt::Display for LifeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LifeReport { rounds, ops, in_recovery, full, failed, without_redundancy, kills } = self;
        write!(
            f,
            "{} power cuts and {kills} kills, {in_recovery} of them during recovery; {ops} operations; full {full} \
             times; {failed} rounds with a failed operation; {without_redundancy} recoveries without a redundant part",
            rounds - kills
        )
    }
}

/// What a state of the volume must contain.
type Check = Rc<dyn Fn(&Tree) -> Result<(), String>>;

/// What is drawn for a round.
struct Round {
    number: usize,
    seed: u64,
    /// The volume is closed at the end.
    closes: bool,
    start: Nanos,
    fault: Option<Fault>,
}

/// What a round leaves.
struct Lived {
    log: CrashLog,
    history: History,
    /// The device's position when it had what was left by the round before, and when the volume had been mounted.
    begun: usize,
    mounted: usize,
}

/// The volume between two rounds.
struct Left {
    /// What is on the medium.
    image: Image,
    /// What was written last and is in the device's cache, when the power has stayed on.
    cached: Vec<Request>,
}

impl Left {
    async fn device(&self, rt: &Rt, options: CrashOptions) -> Rc<CrashDevice> {
        let device = CrashDevice::new(rt, self.image.clone(), options);
        for request in &self.cached {
            let done = match request.clone() {
                // One that was to be durable at once was under way: it is in the cache, and no more than that.
                Request::Write { at, data, .. } => device.write(at, data, WriteFlags::NONE).await,
                Request::Discard { at, sectors } => device.discard(at, sectors).await,
                Request::Flush | Request::FlushPart { .. } | Request::FailedFlush => Ok(()),
            };
            done.expect("the device took it before");
        }
        device
    }
}

impl Life<'_> {
    /// # Errors
    /// What was found, in which round, and the command that replays it.
    pub fn run(&self) -> Result<LifeReport, String> {
        let mut report = LifeReport::default();
        self.live(&mut report).map_err(|what| {
            let (round, soak) = (report.rounds, self.cuts.replay.soak);
            let package = &self.cuts.replay.package;
            let replay = Replay { soak: Soak::without_variable(package), ..self.cuts.replay.clone() };
            let command = replay.command(self.cuts.seed, None, None, None);
            // The factor decides how many rounds there are.
            let (name, soak) = (self.cuts.subject.name(), soak.variable(package));
            format!("{name}, round {round}: {what}\nrun again:\n  {soak}{command}\n")
        })?;
        Ok(report)
    }

    fn live(&self, report: &mut LifeReport) -> Result<(), String> {
        let cuts = &self.cuts;
        let mut rng = Rng::new(cuts.seed);
        // By itself, so that all else is the same with and without kills.
        let mut kills = Rng::new(cuts.seed ^ 0x4b49_4c4c);
        let image = cuts.mkfs().map_err(|failure| failure.what)?;
        let mut left = Left { image, cached: Vec::new() };
        let mut check: Check = Rc::new(|_: &Tree| Ok(()));
        for number in 0..self.rounds {
            report.rounds = number;
            let seed = rng.next_u64();
            let closes = rng.chance(1, 4);
            // A clock goes on while the power is off: what is written now is younger than what was written before.
            let start = Nanos::from_secs(ROUND_SECONDS * number as u64);
            let limits = Limits { until: start + LIMITS.until, ..LIMITS };
            let clock = match self.setbacks && rng.chance(1, 2) {
                true => VirtualClock::put_back(setback(&mut rng, start)),
                false => VirtualClock::new(),
            };
            let fault = (self.errors && rng.chance(1, 2)).then(|| failure(&mut rng));
            let round = Round { number, seed, closes, start, fault };
            let lived = simulate_on(clock, seed, limits, async |rt: Rt| {
                self.live_round(&rt, &round, &left, &check, report).await
            });
            let Lived { log, history, begun, mounted } = lived.and_then(|lived| lived)?;

            let positions: Vec<usize> = log.positions().into_iter().filter(|&position| position >= begun).collect();
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
            let is_killed = self.kills && number + 1 < self.rounds && kills.chance(1, 3);
            report.kills += usize::from(is_killed);
            left = match is_killed {
                // The first choice contains only durable writes.
                true => Left { image: cut.image(&choices[0]), cached: cut.pending().cloned().collect() },
                false => Left { image: cut.image(choice), cached: Vec::new() },
            };
            if position >= mounted {
                let promise = cuts.promise;
                check = Rc::new(move |tree: &Tree| history.check(position, promise, tree));
            }
            let story = |what: String| match is_killed {
                true => format!("{what}\nafter SIGKILL at {position}"),
                false => format!("{what}\n{}", cut.to_text(choice)),
            };
            let shown = simulate(seed, LIMITS, async |rt: Rt| {
                let options = CrashOptions { record: false, ..cuts.device.clone() };
                let device = left.device(&rt, options).await;
                if self.fsck_unrecovered {
                    cuts.fsck(&rt, &(device.clone() as Device), "before recovery").await?;
                }
                Ok(device.image())
            });
            let shown = shown.and_then(|checked| checked).map_err(story)?;
            for (what, other) in cuts.subject.without_redundancy(&shown) {
                report.without_redundancy += 1;
                cuts.examine(other, false, &|tree| check(tree))
                    .map_err(|error| story(format!("without {what}: {error}")))?;
            }
        }
        report.rounds = self.rounds;
        cuts.examine(left.image, true, &|tree| check(tree)).map(drop)
    }

    async fn live_round(
        &self,
        rt: &Rt,
        round: &Round,
        left: &Left,
        check: &Check,
        report: &mut LifeReport,
    ) -> Result<Lived, String> {
        let cuts = &self.cuts;
        rt.sleep(round.start).await;
        let options = CrashOptions { seed: round.seed, record: true, ..cuts.device.clone() };
        let device = left.device(rt, options).await;
        let begun = device.position();
        let faults = FaultDevice::new(rt, device.clone(), round.seed);
        // Not where nothing fails, so that such lives take the same turns with and without this layer.
        let mounted_on: Device = if self.errors { faults.clone() } else { device.clone() };
        let fs = cuts.subject.mount(rt, mounted_on).await.map_err(failed("mount"))?;
        let mounted = device.position();
        books(&fs, "after mounting").await?;
        let tree = Tree::of(fs.clone()).await.map_err(failed("reading everything"))?;
        check(&tree)?;
        let mut recorder = Recorder::new(rt, &tree, mounted).await.map_err(failed("the model"))?;
        let mut runner = Runner::new(rt, fs.clone());
        if let Some(fault) = round.fault {
            // All was read just now: what is in memory cannot fail.
            fs.drop_caches().await.map_err(failed("emptying the caches"))?;
            fault.inject(&faults, &device);
        }
        let has_failed = self.work(round, &tree, &fs, &mut runner, &mut recorder, &device, report).await?;
        faults.clear();
        report.failed += usize::from(has_failed);
        let released = runner.close().await; // The file may have been in use when the volume was full.
        if !has_failed || round.fault.is_none() {
            // What has failed behind the operations has not changed the books.
            books(&fs, "at the end of the round").await?;
        }
        let mut closed = usize::MAX;
        if round.closes {
            match fs.close().await {
                Ok(()) if released.is_ok() || !has_failed => closed = device.position(),
                // What a file system that writes in place has in memory may find no room.
                Err(error) if self.host_fills && is_no_space(&error) => {}
                Err(error) if !has_failed && round.fault.is_none() => return Err(failed("close")(error)),
                _ => {}
            }
        }
        let mut clients = [(None, recorder)];
        share_syncs(&mut clients, closed);
        check_requests(&device)?;
        let [(_, recorder)] = clients;
        Ok(Lived { log: device.log(), history: recorder.into_history(), begun, mounted })
    }

    /// Until the operations of the round are done, the volume is full, or an operation fails; after that, only what makes
    /// durable counts. Returns whether one failed.
    #[expect(clippy::too_many_arguments, reason = "the parts of a mounted volume under test")]
    async fn work(
        &self,
        round: &Round,
        tree: &Tree,
        fs: &Fs,
        runner: &mut Runner,
        recorder: &mut Recorder,
        device: &CrashDevice,
        report: &mut LifeReport,
    ) -> Result<bool, String> {
        let generator = Generator::with_tree(round.seed, self.space.clone(), self.weights, tree);
        let is_swept = self.sweep_every.is_some_and(|every| (round.number + 1).is_multiple_of(every));
        let swept = if is_swept { most_files(tree) } else { Vec::new() };
        let swept_ops = swept.len();
        let first = if round.number == 0 { &self.first_ops[..] } else { &[] };
        let ops = swept
            .into_iter()
            .chain(first.iter().cloned())
            .chain(generator.filter(|op| self.cuts.subject.can(op)).take(self.ops));
        let mut has_failed = false;
        // What names and slots refer to: unknown when an operation that may have changed it has failed.
        let mut names_are_known = true;
        for (number, op) in ops.enumerate() {
            if has_failed && !(matches!(op, Op::Sync) || names_are_known && op.makes_durable()) {
                continue;
            }
            recorder.issue(&op, device.position());
            let outcome = runner.apply(&op).await;
            let judged = match round.fault {
                Some(fault) => judge(&outcome, fault),
                None => Judged::Answer,
            };
            match judged {
                Judged::Answer if has_failed && outcome.error().is_some() => recorder.refused(),
                Judged::Answer if outcome.error().is_some_and(is_no_space) => {
                    recorder.unanswered(&op).await;
                    names_are_known &= op.keeps_names();
                    report.full += 1;
                    if !self.host_fills {
                        break;
                    }
                    if number < swept_ops {
                        return Err(format!("{op} frees space, and finds none"));
                    }
                    has_failed = true;
                }
                Judged::Answer => {
                    recorder.acknowledge(&op, &outcome, device.position()).await?;
                    report.ops += 1;
                }
                Judged::Refused | Judged::Failed if op.makes_durable() => {
                    recorder.refused();
                    has_failed = true;
                }
                Judged::Refused | Judged::Failed => {
                    recorder.unanswered(&op).await;
                    names_are_known &= op.keeps_names();
                    has_failed = true;
                }
            }
            // Recounting reads, and would meet the fault in place of the operations.
            if self.every_op && round.fault.is_none() {
                books(fs, &format!("after {op}")).await?;
            }
        }
        Ok(has_failed)
    }
}

/// File systems that write in place say which write found no room.
pub(super) fn is_no_space(error: &FsError) -> bool {
    error.is_no_space()
}

/// A setback at some moment of a round; short ones and early ones are as likely as long ones and late ones.
fn setback(rng: &mut Rng, start: Nanos) -> Setback {
    let mut some = |doublings: u64| {
        let most = Nanos::from_millis(1 << rng.below(doublings));
        Nanos(rng.below(most.0))
    };
    Setback { at: start + some(18), by: some(24) }
}

/// A request that fails: early ones are as likely as late ones.
fn failure(rng: &mut Rng) -> Fault {
    let doublings = rng.between(1, 9);
    let nth = 1 + rng.below(1 << doublings);
    match rng.below(6) {
        0 | 1 => Fault::WriteError(nth),
        2 => Fault::ReadError(nth),
        3 => Fault::DiscardError(nth.min(16)),
        4 => Fault::FlushError(1 + rng.below(nth.min(64))),
        _ => Fault::Gone(nth),
    }
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
