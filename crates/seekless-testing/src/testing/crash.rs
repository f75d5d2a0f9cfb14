//! Crash explorer: runs operations once, then cuts the power at every moment of that run and checks what recovery makes
//! of every possible state of the device.
//!
//! For each state: mount, read everything, ask the oracle, close, check. Where an equal image has just been recovered
//! and checked, for another moment of the run, only the oracle is asked again. Some states are mounted once more, where
//! nothing may have changed. In some, the recovered file system is used a little and the power cut again, also in the
//! middle of recovery.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::rc::Rc;

use super::generate::{Generator, OpMix, Space};
use super::history::{History, Recorder};
use super::ops::{Op, Path};
use super::oracle::{ChangedContent, Promise};
use super::replay::{CutName, Replay, minimise};
use super::runner::Runner;
use super::subject::{FsUnderTest, simulate};
use super::tree::Tree;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::cut::{Choice, CrashLog, Cut, Effort};
use crate::device::{Device, Image};
use crate::fs::{Fs, FsError, FsResult};
use crate::rng::Rng;
use crate::rt::{Limits, Rt};
use crate::units::{Ino, Nanos};

/// Time of a request while a state is examined: minimal, but every request is an event, so that a loop of requests
/// ends.
const TICK: Nanos = Nanos(1);

/// Limits for one recovery, or for one run of the operations: far more than any needs.
pub const LIMITS: Limits = Limits { events: 20_000_000, until: Nanos::from_secs(10_000_000) };

/// Time between a power cut and the next start, longer than any run lasts.
const POWER_OFF: Nanos = Nanos::from_secs(1_000_000);

/// One in this many states: the recovered and closed file system is mounted once more.
const REMOUNT_EVERY: usize = 8;

/// One in this many states is also examined without its redundant structures.
const WITHOUT_REDUNDANCY_EVERY: usize = 5;

/// A second power cut, after recovery from the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SecondCut {
    /// For one in this many first states.
    pub every: usize,
    /// Operations after recovery.
    pub ops: usize,
    /// Limit of the positions of the second cut.
    pub positions: usize,
    pub effort: Effort,
}

/// What to explore, and how thoroughly.
pub struct PowerCuts<'a> {
    pub subject: &'a dyn FsUnderTest,
    /// The device, whose guarantees decide what a cut may leave.
    pub device: CrashOptions,
    pub promise: Promise,
    /// States to look at for each cut.
    pub effort: Effort,
    /// Limit of the positions of the cut; a sample if there are more.
    pub positions_max: usize,
    pub second_cut: Option<SecondCut>,
    /// Also run fsck on every state before recovery; it must find nothing wrong either.
    pub fsck_unrecovered: bool,
    pub seed: u64,
    pub replay: Replay,
    /// Limit of attempts at finding a shorter failing sequence.
    pub minimise_runs: usize,
}

impl<'a> PowerCuts<'a> {
    /// A thorough exploration, for a few dozen operations.
    pub fn new(subject: &'a dyn FsUnderTest, device: CrashOptions, promise: Promise, replay: Replay) -> PowerCuts<'a> {
        PowerCuts {
            subject,
            device,
            promise,
            effort: Effort::THOROUGH,
            positions_max: usize::MAX,
            second_cut: Some(SecondCut { every: 20, ops: 6, positions: 12, effort: Effort::SAMPLED }),
            fsck_unrecovered: false,
            seed: replay.seed.unwrap_or(1),
            replay,
            minimise_runs: 60,
        }
    }

    /// A sampling exploration, for hundreds of operations.
    pub fn sampled(
        subject: &'a dyn FsUnderTest,
        device: CrashOptions,
        promise: Promise,
        replay: Replay,
    ) -> PowerCuts<'a> {
        let second_cut = Some(SecondCut { every: 60, ops: 10, positions: 8, effort: Effort::SAMPLED });
        let thorough = PowerCuts::new(subject, device, promise, replay);
        PowerCuts { effort: Effort::SAMPLED, positions_max: 400, second_cut, ..thorough }
    }
}

/// Coverage of an exploration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CrashReport {
    /// Device requests of the recorded run.
    pub requests: usize,
    pub positions: usize,
    /// States that were recovered and checked.
    pub states: usize,
    /// Of the states, those whose bytes had just been recovered and checked: only the oracle was asked again.
    pub equal: usize,
    /// States skipped because an equal one had been checked.
    pub repeated: usize,
    /// Of the states, those after a second cut.
    pub second_states: usize,
    /// Operations that succeeded before the cuts.
    pub done: usize,
}

impl CrashReport {
    /// Adds another report to this one.
    pub fn add(&mut self, other: CrashReport) {
        self.requests += other.requests;
        self.positions += other.positions;
        self.states += other.states;
        self.equal += other.equal;
        self.repeated += other.repeated;
        self.second_states += other.second_states;
        self.done += other.done;
    }
}

impl fmt::Display for CrashReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CrashReport { requests, positions, states, equal, repeated, second_states, done } = self;
        write!(
            f,
            "{done} operations, {requests} device requests, cut at {positions} positions, {states} states checked \
             ({second_states} after a second cut, {equal} with the bytes of another), {repeated} repeated"
        )
    }
}

/// Why an exploration failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Failure {
    pub(super) cut: CutName,
    pub(super) what: String,
    /// The state, the history and the log as text.
    pub(super) details: String,
}

impl Failure {
    /// A failure before any cut.
    pub(super) fn early(what: String) -> Failure {
        Failure { cut: CutName::default(), what, details: String::new() }
    }
}

/// A recorded run: the device's log, and what had been promised when.
struct Recording {
    log: CrashLog,
    /// Of each client, with the name of its own directory if there are several.
    clients: Vec<(Option<Vec<u8>>, History)>,
    /// First position to cut at.
    from: usize,
}

impl Recording {
    fn check(&self, position: usize, promise: Promise, tree: &Tree) -> Result<(), String> {
        for (own, history) in &self.clients {
            match own {
                None => history.check(position, promise, tree)?,
                Some(own) => history.check(position, promise, &only(tree, own))?,
            }
        }
        Ok(())
    }

    /// Grows with every further promise.
    fn promises(&self, position: usize) -> usize {
        self.clients.iter().map(|(_, history)| history.synced_by(position).count()).sum()
    }

    fn to_text(&self, position: usize) -> String {
        self.clients.iter().map(|(_, history)| history.to_text(position)).collect()
    }
}

/// What recovery made of the images that were examined last, by the hash of their content.
///
/// Recovery of an image is a function of its bytes, and of the seed, the device and the subject, which are those of one
/// [`PowerCuts`]. Everything that does not depend on the history has been checked.
#[derive(Default)]
pub(super) struct Examined(RefCell<VecDeque<(u64, Rc<Tree>)>>);

impl Examined {
    /// Equal states come soon after one another; trees take memory.
    const KEPT: usize = 32;

    fn get(&self, content: u64) -> Option<Rc<Tree>> {
        self.0.borrow().iter().find(|(known, _)| *known == content).map(|(_, tree)| tree.clone())
    }

    fn put(&self, content: u64, tree: Tree) {
        let mut trees = self.0.borrow_mut();
        trees.push_front((content, Rc::new(tree)));
        trees.truncate(Examined::KEPT);
    }
}

/// The part of `tree` reachable through `name` in the root.
fn only(tree: &Tree, name: &[u8]) -> Tree {
    let mut part = Tree { problems: tree.problems.clone(), ..Tree::default() };
    let Some(root) = tree.nodes.get(&Ino::ROOT) else { return part };
    let mut root = root.clone();
    root.entries.retain(|other, _| other == name);
    root.links = 2 + root.entries.len() as u32;
    let mut open: Vec<Ino> = root.entries.values().copied().collect();
    part.nodes.insert(Ino::ROOT, root);
    while let Some(ino) = open.pop() {
        if let Some(node) = tree.nodes.get(&ino)
            && !part.nodes.contains_key(&ino)
        {
            open.extend(node.entries.values());
            part.nodes.insert(ino, node.clone());
        }
    }
    part
}

impl PowerCuts<'_> {
    /// Runs `setup`, syncs, runs `body` and closes; with power cuts anywhere after the sync.
    ///
    /// # Errors
    /// A report of the first failure, with a short script and the command that shows it again.
    pub fn run(&self, setup: &[Op], body: &[Op]) -> Result<CrashReport, String> {
        let body = self.replay.ops.as_deref().unwrap_or(body);
        let failure = match self.attempt(setup, &[body.to_vec()], self.replay.cut.as_ref()) {
            Ok(report) => return Ok(report),
            Err(failure) => failure,
        };
        let runs = if self.replay.cut.is_some() { 0 } else { self.minimise_runs };
        let fewest = minimise(body, runs, |body| self.attempt(setup, &[body.to_vec()], None).is_err());
        let failure =
            self.attempt(setup, std::slice::from_ref(&fewest), self.replay.cut.as_ref()).err().unwrap_or(failure);
        let cut = (!failure.cut.0.is_empty()).then_some(&failure.cut);
        Err(self.report(&failure, &self.replay.command(self.seed, None, cut, Some(&fewest))))
    }

    /// The same with several programs at once, each in its own directory: `/c0`, `/c1` and so on. The operations of
    /// `bodies[n]` stay below `/cn`.
    ///
    /// # Errors
    /// As [`PowerCuts::run`].
    pub fn run_concurrently(&self, bodies: &[Vec<Op>]) -> Result<CrashReport, String> {
        self.attempt(&[], bodies, self.replay.cut.as_ref()).map_err(|failure| {
            let cut = (!failure.cut.0.is_empty()).then_some(&failure.cut);
            self.report(&failure, &self.replay.command(self.seed, None, cut, None))
        })
    }

    pub(super) fn report(&self, failure: &Failure, command: &str) -> String {
        let (name, Failure { what, details, .. }) = (self.subject.name(), failure);
        format!("{name}: {what}\n{details}\nrun again:\n  {command}\n")
    }

    fn attempt(&self, setup: &[Op], bodies: &[Vec<Op>], only: Option<&CutName>) -> Result<CrashReport, Box<Failure>> {
        let image = self.mkfs()?;
        let recording = self.record(image, setup, bodies)?;
        let mut report = CrashReport { requests: recording.log.requests().count(), ..CrashReport::default() };
        let steps = recording.clients.iter().flat_map(|(_, history)| &history.steps);
        report.done = steps.filter(|step| !step.failed).count();
        let check = |position: usize, tree: &Tree| recording.check(position, self.promise, tree);
        let first = Exploration {
            cuts: self,
            log: &recording.log,
            examined: &Examined::default(),
            before: &CutName::default(),
            check: &check,
            promises: &|position| recording.promises(position),
            story: &|position| recording.to_text(position),
            effort: &self.effort,
            from: recording.from,
            positions_max: self.positions_max,
            second_cut: self.second_cut.as_ref(),
        };
        first.run(only.map(|only| &only.0[..]), &mut report)?;
        Ok(report)
    }

    pub(super) fn mkfs(&self) -> Result<Image, Box<Failure>> {
        let made = simulate(self.seed, LIMITS, async |rt| {
            let device = CrashDevice::new(&rt, Image::default(), CrashOptions { record: false, ..self.device.clone() });
            self.subject.mkfs(&rt, device.clone()).await.map(|()| device.image())
        });
        match made {
            Ok(Ok(image)) => Ok(image),
            Ok(Err(error)) => Err(Box::new(Failure::early(format!("mkfs failed: {error}")))),
            Err(why) => Err(Box::new(Failure::early(format!("mkfs: {why}")))),
        }
    }

    /// Runs the operations, following them with the model.
    fn record(&self, image: Image, setup: &[Op], bodies: &[Vec<Op>]) -> Result<Recording, Box<Failure>> {
        let recorded = simulate(self.seed, LIMITS, async |rt| self.record_on(rt, image, setup, bodies).await);
        recorded.and_then(|recorded| recorded).map_err(|what| Box::new(Failure::early(what)))
    }

    async fn record_on(&self, rt: Rt, image: Image, setup: &[Op], bodies: &[Vec<Op>]) -> Result<Recording, String> {
        let device =
            CrashDevice::new(&rt, image, CrashOptions { seed: self.seed, record: true, ..self.device.clone() });
        let fs = self.subject.mount(&rt, device.clone()).await.map_err(|error| format!("mount failed: {error}"))?;
        let mut tree =
            Tree::of(fs.clone()).await.map_err(|error| format!("an empty file system cannot be read: {error}"))?;
        let mut from = 0;
        if bodies.len() > 1 {
            let mut runner = Runner::new(&rt, fs.clone());
            for client in 0..bodies.len() {
                let op = Op::Mkdir { path: Path::from(&*format!("/c{client}")), permissions: 0o755 };
                runner.apply(&op).await;
            }
            runner.apply(&Op::Sync).await;
            from = device.position();
            tree = Tree::of(fs.clone()).await.map_err(|error| format!("the file system cannot be read: {error}"))?;
        }
        let mut tasks = Vec::new();
        for (client, body) in bodies.iter().enumerate() {
            let own = (bodies.len() > 1).then(|| format!("c{client}").into_bytes());
            let base = own.as_ref().map_or(tree.clone(), |own| only(&tree, own));
            let recorder = Recorder::new(&rt, &base, from).await.map_err(|error| format!("the model: {error}"))?;
            let (rt2, fs, device) = (rt.clone(), fs.clone(), device.clone());
            let (setup, body) = (setup.to_vec(), body.clone());
            tasks.push((own, rt.spawn(async move { follow(&rt2, fs, &device, recorder, &setup, &body).await })));
        }
        let mut clients = Vec::new();
        for (own, task) in tasks {
            let (recorder, start) = task.await?;
            from = from.max(start);
            clients.push((own, recorder));
        }
        fs.close().await.map_err(|error| format!("close failed: {error}"))?;
        let closed = device.position();
        check_requests(&device)?;
        share_syncs(&mut clients, closed);
        let clients = clients.into_iter().map(|(own, recorder)| (own, recorder.into_history())).collect();
        Ok(Recording { log: device.log(), clients, from })
    }

    /// Recovers from `image` and checks everything; `check` is the oracle. Returns the tree.
    pub(super) fn examine(
        &self,
        image: Image,
        remount: bool,
        check: &dyn Fn(&Tree) -> Result<(), String>,
    ) -> Result<Tree, String> {
        let examined = simulate(self.seed, LIMITS, async |rt| {
            let options = CrashOptions { record: false, latency: TICK..=TICK, ..self.device.clone() };
            let requests = CrashDevice::new(&rt, image, options);
            let device: Device = requests.clone();
            if self.fsck_unrecovered {
                self.fsck(&rt, &device, "before recovery").await?;
            }
            let fs = self.subject.mount(&rt, device.clone()).await.map_err(|error| format!("mount failed: {error}"))?;
            books(&fs, "after recovery").await?;
            let tree = self.read(&fs).await.map_err(|error| format!("reading everything failed: {error}"))?;
            check(&tree)?;
            fs.close().await.map_err(|error| format!("close after recovery failed: {error}"))?;
            drop(fs);
            self.fsck(&rt, &device, "after recovery").await?;
            check_requests(&requests)?;
            if remount {
                let fs = self
                    .subject
                    .mount(&rt, device.clone())
                    .await
                    .map_err(|error| format!("second mount failed: {error}"))?;
                let again = self.read(&fs).await.map_err(|error| format!("second reading failed: {error}"))?;
                let differences = match self.promise.changed_content {
                    // Without checksums, what is stale may be noticed late. The oracle still says what each file may hold.
                    ChangedContent::Anything => {
                        check(&again).map_err(|what| format!("after closing and mounting again: {what}"))?;
                        tree.differences_beside_content(&again)
                    }
                    _ => tree.differences(&again),
                };
                if !differences.is_empty() {
                    return Err(format!(
                        "after closing and mounting again, there is something else:\n    {}",
                        differences.join("\n    ")
                    ));
                }
                fs.close().await.map_err(|error| format!("second close failed: {error}"))?;
            }
            Ok(tree)
        });
        examined.and_then(|examined| examined)
    }

    /// Reads everything, and all content of files unless a cut may have damaged it.
    async fn read(&self, fs: &Fs) -> FsResult<Tree> {
        match self.promise.changed_content {
            ChangedContent::Anything | ChangedContent::OneMomentOnceSynced => Tree::with_unreadable(fs.clone()).await,
            ChangedContent::OneMoment | ChangedContent::OtherBytesKept | ChangedContent::Readable => {
                Tree::of(fs.clone()).await
            }
        }
    }

    pub(super) async fn fsck(&self, rt: &Rt, device: &Device, when: &str) -> Result<(), String> {
        match self.subject.fsck(rt, device.clone()).await {
            Ok(problems) if problems.is_empty() => Ok(()),
            Ok(problems) => Err(format!("fsck {when} found:\n    {}", problems.join("\n    "))),
            Err(error) => Err(format!("fsck {when} failed: {error}")),
        }
    }
}

/// Recounts the file system's internal counts.
pub(super) async fn books(fs: &Fs, when: &str) -> Result<(), String> {
    let wrong = fs.check().await.map_err(|error| format!("recounting {when} failed: {error}"))?;
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!("the books do not balance {when}:\n    {}", wrong.join("\n    "))),
    }
}

/// Runs one client's operations on `fs`, following them. Returns the position at which `setup` was durable.
async fn follow(
    rt: &Rt,
    fs: Fs,
    device: &CrashDevice,
    mut recorder: Recorder,
    setup: &[Op],
    body: &[Op],
) -> Result<(Recorder, usize), String> {
    let mut runner = Runner::new(rt, fs);
    let mut start = 0;
    let sync = if setup.is_empty() { None } else { Some(&Op::Sync) };
    for (index, op) in setup.iter().chain(sync).chain(body).enumerate() {
        recorder.issue(op, device.position());
        let outcome = runner.apply(op).await;
        recorder
            .acknowledge(op, &outcome, device.position())
            .await
            .map_err(|what| format!("before any cut: {what}"))?;
        if sync.is_some() && index == setup.len() {
            start = device.position();
        }
    }
    runner.close().await.map_err(|error| format!("before any cut: cannot close a file: {error}"))?;
    books(runner.client().fs(), "at the end of the run").await?;
    Ok((recorder, start))
}

/// A `sync` of one client covers what had been acknowledged to the others before it was issued; and closing covers
/// everything.
pub(super) fn share_syncs(clients: &mut [(Option<Vec<u8>>, Recorder)], closed: usize) {
    let mut syncs = Vec::new();
    for (index, (_, recorder)) in clients.iter().enumerate() {
        for step in recorder.history().steps.iter().filter(|step| step.op == Op::Sync && !step.failed) {
            syncs.extend(step.acknowledged.map(|acknowledged| (index, step.issued, acknowledged)));
        }
    }
    for (index, (_, recorder)) in clients.iter_mut().enumerate() {
        for &(_, issued, acknowledged) in syncs.iter().filter(|(owner, ..)| *owner != index) {
            // The order of events between the same two device events is unknown.
            let before =
                |step: &&super::history::Step| step.acknowledged.is_some_and(|acknowledged| acknowledged < issued);
            let steps = recorder.history().steps.iter().take_while(before).count();
            recorder.synced(steps, acknowledged);
        }
        let steps = recorder.history().steps.len();
        recorder.synced(steps, closed);
    }
}

/// A state that a power cut leaves.
struct CutState<'a> {
    position: usize,
    cut: Rc<Cut<'a>>,
    /// Which of the states of this cut it is.
    index: usize,
    choice: Choice,
}

/// The states after a cut at each of `positions`; with `only`, the one of that index at each.
fn cut_states<'a>(
    log: &'a CrashLog,
    positions: Vec<usize>,
    effort: &Effort,
    seed: u64,
    only: Option<usize>,
) -> impl Iterator<Item = CutState<'a>> {
    positions.into_iter().flat_map(move |position| {
        let cut = Rc::new(log.cut(position));
        let choices = cut.choices(effort, seed).into_iter().enumerate();
        let chosen = choices.filter(move |(index, _)| only.is_none_or(|only| only == *index));
        chosen.map(move |(index, choice)| CutState { position, cut: cut.clone(), index, choice })
    })
}

/// All cuts of one log.
pub(super) struct Exploration<'a> {
    pub(super) cuts: &'a PowerCuts<'a>,
    pub(super) log: &'a CrashLog,
    pub(super) examined: &'a Examined,
    /// The cut before which this log began.
    pub(super) before: &'a CutName,
    pub(super) check: &'a dyn Fn(usize, &Tree) -> Result<(), String>,
    pub(super) promises: &'a dyn Fn(usize) -> usize,
    pub(super) story: &'a dyn Fn(usize) -> String,
    pub(super) effort: &'a Effort,
    pub(super) from: usize,
    pub(super) positions_max: usize,
    pub(super) second_cut: Option<&'a SecondCut>,
}

impl Exploration<'_> {
    /// Checks all cuts, or the one that `only` names.
    pub(super) fn run(&self, only: Option<&[(usize, usize)]>, report: &mut CrashReport) -> Result<(), Box<Failure>> {
        let seed = self.cuts.seed;
        let mut positions: Vec<usize> =
            self.log.positions().into_iter().filter(|&position| position >= self.from).collect();
        if let Some(&[(position, _), ..]) = only {
            positions = vec![position];
        }
        if positions.len() > self.positions_max {
            // The last one, where everything has been promised, is always there.
            let last = positions.pop();
            Rng::new(seed).shuffle(&mut positions);
            positions.truncate(self.positions_max.saturating_sub(1));
            positions.extend(last);
            positions.sort_unstable();
        }
        report.positions += positions.len();
        let mut seen = BTreeSet::new();
        let number = only.map(|only| only[0].1);
        for CutState { position, cut, index, choice } in cut_states(self.log, positions, self.effort, seed, number) {
            if !seen.insert((cut.key(&choice), (self.promises)(position))) && only.is_none() {
                report.repeated += 1;
                continue;
            }
            report.states += 1;
            report.second_states += usize::from(!self.before.0.is_empty());
            let (image, content) = cut.image_and_hash(&choice);
            let name = self.before.then(position, index);
            let remount = report.states.is_multiple_of(REMOUNT_EVERY) || only.is_some();
            let oracle = |tree: &Tree| (self.check)(position, tree);
            let details = || {
                format!(
                    "{}{}\n  operations:\n{}  device:\n{}",
                    if self.before.0.is_empty() {
                        String::new()
                    } else {
                        format!("after recovery from cut {}: ", self.before)
                    },
                    cut.to_text(&choice),
                    (self.story)(position),
                    tail(&self.log.to_text(), position)
                )
            };
            let fail = |what: String| Box::new(Failure { cut: name.clone(), what, details: details() });
            match self.examined.get(content) {
                Some(tree) if !remount => {
                    report.equal += 1;
                    oracle(&tree).map_err(fail)?;
                }
                _ => {
                    let tree = self.cuts.examine(image.clone(), remount, &oracle).map_err(fail)?;
                    self.examined.put(content, tree);
                }
            }
            if report.states % WITHOUT_REDUNDANCY_EVERY == 1 || only.is_some() {
                for (what, other) in self.cuts.subject.without_redundancy(&image) {
                    let plain = PowerCuts {
                        device: self.cuts.device.clone(),
                        replay: self.cuts.replay.clone(),
                        fsck_unrecovered: false,
                        ..*self.cuts
                    };
                    plain.examine(other, false, &oracle).map_err(|error| fail(format!("without {what}: {error}")))?;
                }
            }
            let deeper = only.and_then(|only| only.get(1..)).filter(|rest| !rest.is_empty());
            if let Some(second) = self.second_cut
                && (deeper.is_some() || only.is_none() && report.states % second.every.max(1) == second.every / 2)
            {
                self.cut_again(image, position, &name, second, deeper, report).map_err(|mut failure| {
                    failure.details += &format!("\nthe first cut was:\n{}", details());
                    failure
                })?;
            }
        }
        Ok(())
    }

    /// Recovers from `image`, runs some operations, and explores a second cut in all of that.
    fn cut_again(
        &self,
        image: Image,
        position: usize,
        name: &CutName,
        second: &SecondCut,
        only: Option<&[(usize, usize)]>,
        report: &mut CrashReport,
    ) -> Result<(), Box<Failure>> {
        let cuts = self.cuts;
        let seed = cuts.seed ^ (position as u64) << 20 ^ name.0.last().map_or(0, |(_, choice)| *choice as u64);
        let ops = RefCell::new(Vec::new());
        let recorded = simulate(seed, LIMITS, async |rt: Rt| {
            // The clock continues while the power is off: later writes are younger than earlier ones.
            rt.sleep(POWER_OFF).await;
            let device = CrashDevice::new(&rt, image, CrashOptions { seed, record: true, ..cuts.device.clone() });
            let fs = cuts.subject.mount(&rt, device.clone()).await.map_err(|error| format!("mount failed: {error}"))?;
            let mounted = device.position();
            let tree = Tree::of(fs.clone()).await.map_err(|error| format!("reading everything failed: {error}"))?;
            let recorder = Recorder::new(&rt, &tree, mounted).await.map_err(|error| format!("the model: {error}"))?;
            let generator = Generator::with_tree(seed, Space::small(), OpMix::CRASHY, &tree);
            *ops.borrow_mut() = generator.filter(|op| cuts.subject.can(op)).take(second.ops).collect();
            let body = ops.borrow().clone();
            let (recorder, _) = follow(&rt, fs.clone(), &device, recorder, &[], &body).await?;
            fs.close().await.map_err(|error| format!("close failed: {error}"))?;
            let closed = device.position();
            check_requests(&device)?;
            let mut clients = [(None, recorder)];
            share_syncs(&mut clients, closed);
            let [(_, recorder)] = clients;
            Ok((device.log(), recorder.into_history(), mounted))
        });
        let recorded = recorded.and_then(|recorded| recorded);
        let (log, history, mounted) = recorded.map_err(|what| {
            let details =
                format!("after recovery from cut {name}, while running:\n{}", super::ops::to_text(&ops.borrow()));
            Box::new(Failure { cut: name.clone(), what, details })
        })?;
        let history = Rc::new(history);
        // Until recovery has ended, the promises are still those of the first run.
        let check = |at: usize, tree: &Tree| {
            if at < mounted { (self.check)(position, tree) } else { history.check(at, cuts.promise, tree) }
        };
        let second = Exploration {
            cuts,
            log: &log,
            examined: self.examined,
            before: name,
            check: &check,
            promises: &|at| if at < mounted { 0 } else { history.synced_by(at).count() },
            story: &|at| if at < mounted { "    (still recovering)\n".to_string() } else { history.to_text(at) },
            effort: &second.effort,
            from: 0,
            positions_max: second.positions,
            second_cut: None,
        };
        second.run(only, report)
    }
}

/// The last lines of a log up to a little after `position`.
fn tail(log: &str, position: usize) -> String {
    const LINES: usize = 40;
    const AFTER: usize = 3;
    let end = (position + AFTER).min(log.lines().count());
    let start = end.saturating_sub(LINES);
    let mut text = String::new();
    for (index, line) in log.lines().enumerate().take(end).skip(start) {
        if index == position {
            text += "    ---- cut ----\n";
        }
        text += &format!("    {line}\n");
    }
    text
}

/// Whether a device got only requests that its interface allows.
///
/// # Errors
/// The first one that it forbids: a request that overlaps another one under way, or one that is too long.
pub(super) fn check_requests(device: &CrashDevice) -> Result<(), String> {
    match device.violations().first() {
        Some(violation) => Err(format!("a request that the device interface forbids: {violation}")),
        None => Ok(()),
    }
}

/// A closure's view of a file system under test, see [`PowerCuts::run_program`].
pub type Client = crate::fs::client::Client;

impl PowerCuts<'_> {
    /// For checks that operations and their oracle cannot express: runs `setup`, makes it durable, runs `body`, and
    /// after a cut anywhere in `body` calls `verify` with whether `body` had returned. `body` is then run again to its
    /// end on the recovered file system, so it must tolerate having run before, and `verify` is called once more.
    ///
    /// # Errors
    /// A report with the command that shows the failure again.
    pub fn run_program(
        &self,
        setup: impl AsyncFn(Client) -> Result<(), FsError>,
        body: impl AsyncFn(Client) -> Result<(), FsError>,
        verify: impl AsyncFn(Client, bool) -> Result<bool, FsError>,
    ) -> Result<CrashReport, String> {
        let report = |failure: Box<Failure>| {
            let cut = (!failure.cut.0.is_empty()).then_some(&failure.cut);
            self.report(&failure, &self.replay.command(self.seed, None, cut, None))
        };
        let image = self.mkfs().map_err(report)?;
        let recorded = simulate(self.seed, LIMITS, async |rt: Rt| {
            let options = CrashOptions { seed: self.seed, record: true, ..self.device.clone() };
            let device = CrashDevice::new(&rt, image, options);
            let fs = self.subject.mount(&rt, device.clone()).await?;
            setup(Client::new(fs.clone())).await?;
            fs.syncfs().await?;
            let start = device.position();
            body(Client::new(fs.clone())).await?;
            Ok::<_, FsError>((device.log(), start, device.position()))
        });
        let early = |what: String| report(Box::new(Failure::early(format!("before any cut: {what}"))));
        let (log, start, end) =
            recorded.and_then(|recorded| recorded.map_err(|error| error.to_string())).map_err(early)?;
        let mut totals = CrashReport { requests: log.requests().count(), ..CrashReport::default() };
        let only = self.replay.cut.as_ref().and_then(|cut| cut.0.first().copied());
        let mut positions: Vec<usize> = log.positions().into_iter().filter(|&position| position >= start).collect();
        totals.positions += positions.len();
        positions.retain(|position| only.is_none_or(|only| only.0 == *position));
        let number = only.map(|only| only.1);
        for CutState { position, cut, index, choice } in cut_states(&log, positions, &self.effort, self.seed, number) {
            totals.states += 1;
            let examined = simulate(self.seed, LIMITS, async |rt: Rt| {
                let options = CrashOptions { record: false, latency: TICK..=TICK, ..self.device.clone() };
                let device: Device = CrashDevice::new(&rt, cut.image(&choice), options);
                let fs = self.subject.mount(&rt, device.clone()).await?;
                let client = Client::new(fs.clone());
                let first = verify(client.clone(), position >= end).await?;
                body(client.clone()).await?;
                let second = verify(client, true).await?;
                fs.close().await?;
                Ok::<_, FsError>((first, second, self.subject.fsck(&rt, device).await?))
            });
            let what = match examined {
                Ok(Ok((true, true, problems))) if problems.is_empty() => continue,
                Ok(Ok((true, true, problems))) => format!("fsck found:\n    {}", problems.join("\n    ")),
                Ok(Ok((false, ..))) => "after recovery, something is wrong".to_string(),
                Ok(Ok(_)) => "after recovery and running again, something is wrong".to_string(),
                Ok(Err(error)) => error.to_string(),
                Err(why) => why,
            };
            let details = format!("{}\n  device:\n{}", cut.to_text(&choice), tail(&log.to_text(), position));
            return Err(report(Box::new(Failure { cut: CutName::default().then(position, index), what, details })));
        }
        Ok(totals)
    }
}
