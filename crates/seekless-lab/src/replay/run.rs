//! The replay itself.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use futures_util::stream::{self, TryStreamExt};
use seekless::device::{Buf, Counter, Data, Device, DeviceError, WriteFlags};
use seekless::rt::{Event, Executor, HostProfile, JoinHandle, Rt};
use seekless::stack::{Constructor, Interface, NoLeaves, ParamKind, Purpose, Stack, StackError};
use seekless::units::{Nanos, SECTOR_BYTES, Sector};

use super::answers::{Answered, Listener};
use super::error::ReplayError;
use super::load::{DriveLoad, Meter};
use super::over_time::OverTime;
use super::place::{Map, Placed, Placer, TraceLayout};
use super::stats::OpStats;
use super::timing::{Timing, WINDOW_MAX};
use crate::trace::{Flags, Op, Request, TraceError, time_text};

/// How to replay.
#[derive(Clone, PartialEq, Debug)]
pub struct Spec {
    pub timing: Timing,
    pub map: Map,
    /// Places of the trace's devices. Without it, the trace has one device of unknown size.
    pub layout: Option<TraceLayout>,
    /// Decides the order of simultaneous events.
    pub seed: u64,
}

impl Default for Spec {
    fn default() -> Spec {
        Spec { timing: Timing::Window(1), map: Map::Error, layout: None, seed: 1 }
    }
}

/// Results.
pub struct Outcome {
    /// The storage, as given and as it describes itself.
    pub stack: String,
    pub describes: String,
    pub timing: Timing,
    pub map: Map,
    pub seed: u64,
    /// From the first request to the last answer, in virtual time.
    pub elapsed: Nanos,
    /// By operation, in the order of [`Op::ALL`].
    pub ops: [OpStats; 4],
    /// Most requests under way at once.
    pub outstanding_max: u64,
    /// How the storage kept up, where requests arrived as recorded.
    pub arrivals: Option<Arrivals>,
    /// What each drive did; empty for storage without modelled drives.
    pub drives: Vec<DriveLoad>,
    /// Requests that were widened to whole blocks of the storage.
    pub widened: u64,
    /// Discards that were narrowed to whole blocks of the storage.
    pub narrowed: u64,
    /// Requests moved by the mapping.
    pub moved: u64,
    /// Requests that were longer than the storage, of which the mapping left as much as that holds.
    pub shortened: u64,
    /// Requests without a recorded latency, where the timing needs it; they count as instantaneous.
    pub without_latency: u64,
    /// Counters of each device of the stack, top first, by its description: what the replay counted, without what opening the
    /// stack took.
    pub counters: Vec<(String, Vec<Counter>)>,
}

/// How the storage kept up with requests that arrived as recorded.
#[derive(Clone, PartialEq, Debug)]
pub struct Arrivals {
    /// From the first to the last.
    pub span: Nanos,
    /// From the last arrival to the last answer.
    pub behind: Nanos,
    /// For how long more requests waited than a host lets a device see at once: the others waited in front of it.
    pub held_back: Nanos,
    /// Response times of reads and writes by when they arrived.
    pub over_time: OverTime,
}

/// A backlog that grows, or one that holds requests back, is no burst where it takes longer than this share of the trace, and
/// this time. The choice is ours.
const BEHIND_SHARE: f64 = 0.05;
const BEHIND_MIN: Nanos = Nanos(1_000_000_000);

/// The same for a short trace, of which a burst may be a larger part: longer than a few requests take on a slow disk.
const BEHIND_SHARE_SHORT: f64 = 0.25;
const BEHIND_MIN_SHORT: Nanos = Nanos(100_000_000);

impl Arrivals {
    /// True when requests arrived faster than they were answered: response times then say how long the trace is, and not
    /// how fast the storage. A long queue that stays as long as it is does not count: the storage keeps up, and takes its time
    /// for the last requests.
    pub fn is_saturated(&self) -> bool {
        let backlog = self.behind.min(self.growth().unwrap_or(self.behind)).max(self.held_back);
        let exceeds = |share: f64, min: Nanos| backlog.as_secs_f64() > self.span.as_secs_f64() * share && backlog > min;
        exceeds(BEHIND_SHARE, BEHIND_MIN) || exceeds(BEHIND_SHARE_SHORT, BEHIND_MIN_SHORT)
    }

    /// How long the storage takes for what the queue grows by from the first arrival to the last. Response times do not show
    /// that: a drive that chooses among its requests lets early ones wait as long as late ones. `None` when nothing
    /// arrives in one half of that time.
    pub fn growth(&self) -> Option<Nanos> {
        let (queue, arrived) = self.over_time.growth(self.span)?;
        let each = (self.span.as_secs_f64() + self.behind.as_secs_f64()) / arrived as f64;
        Some(Nanos((queue.max(0.0) * each * 1e9) as u64))
    }

    fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "span_ns": self.span.0,
            "behind_ns": self.behind.0,
            "growth_ns": self.growth().map(|growth| growth.0),
            "held_back": self.held_back > Nanos::ZERO,
            "held_back_ns": self.held_back.0,
            "saturated": self.is_saturated(),
            "over_time": self.over_time.to_json(),
        })
    }
}

/// A quantity with one value per drive.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Each {
    pub sum: f64,
    pub mean: f64,
    /// Standard deviation of this population, not of a sample.
    pub deviation: f64,
}

impl Outcome {
    /// Requests served by drives; `None` when there are no drives.
    pub fn requests_of_disks(&self) -> Option<Each> {
        let count = self.drives.len() as f64;
        let values = || self.drives.iter().map(|drive| drive.requests as f64);
        let sum: f64 = values().sum();
        let mean = sum / count;
        let variance = values().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        (count > 0.0).then(|| Each { sum, mean, deviation: variance.sqrt() })
    }

    /// All operations together. The bytes are those that were read or written: a discard moves none, however long it is.
    pub fn total(&self) -> OpStats {
        let mut total = self.together(&Op::ALL);
        total.bytes = self.bytes_moved();
        total
    }

    /// Reads and writes together, by which storage is judged; of a trace without either, all operations. Flushes and discards
    /// have their own rows: a modelled disk answers most of them at once, and would look the faster the more of them a
    /// trace has.
    pub fn reads_and_writes(&self) -> OpStats {
        let both = self.together(&[Op::Read, Op::Write]);
        if both.requests > 0 { both } else { self.total() }
    }

    fn together(&self, ops: &[Op]) -> OpStats {
        let mut together = OpStats::default();
        ops.iter().for_each(|op| together.join(&self.ops[op.index()]));
        together
    }

    fn bytes_moved(&self) -> u64 {
        let [read, written] = [Op::Read, Op::Write].map(|op| self.ops[op.index()].bytes);
        read.saturating_add(written)
    }

    /// Reads and writes a second; of a trace without either, all operations.
    pub fn requests_per_second(&self) -> Option<f64> {
        let requests = self.reads_and_writes().requests;
        (self.elapsed > Nanos::ZERO).then(|| requests as f64 / self.elapsed.as_secs_f64())
    }

    /// Bytes that were read or written.
    pub fn bytes_per_second(&self) -> Option<f64> {
        (self.elapsed > Nanos::ZERO).then(|| self.bytes_moved() as f64 / self.elapsed.as_secs_f64())
    }

    /// Time during which drives served requests, all drives together; `None` when there are no drives.
    pub fn disk_time(&self) -> Option<Nanos> {
        (!self.drives.is_empty()).then(|| Nanos(self.drives.iter().map(|drive| drive.busy.0).sum()))
    }

    /// Share of the time during which a drive was busy, on average.
    pub fn disk_busy(&self) -> Option<f64> {
        let all = self.elapsed.as_secs_f64() * self.drives.len() as f64;
        self.disk_time().filter(|_| all > 0.0).map(|time| time.as_secs_f64() / all)
    }

    /// Everything, for programs.
    pub fn to_json(&self) -> serde_json::Value {
        let ops: serde_json::Map<String, serde_json::Value> = Op::ALL
            .iter()
            .filter(|op| self.ops[op.index()].requests > 0)
            .map(|op| (op.name().to_owned(), self.ops[op.index()].to_json()))
            .collect();
        let object = |counters: &[Counter]| -> serde_json::Map<String, serde_json::Value> {
            counters.iter().map(|(name, count)| ((*name).to_owned(), (*count).into())).collect()
        };
        let counters: serde_json::Map<String, serde_json::Value> =
            self.counters.iter().map(|(part, counters)| (part.clone(), object(counters).into())).collect();
        serde_json::json!({
            "stack": self.stack,
            "describes": self.describes,
            "timing": self.timing.to_string(),
            "map": self.map.to_string(),
            "seed": self.seed,
            "elapsed_ns": self.elapsed.0,
            "requests_per_second": self.requests_per_second(),
            "bytes_per_second": self.bytes_per_second(),
            "all": self.total().to_json(),
            "reads_and_writes": self.reads_and_writes().to_json(),
            "operations": ops,
            "outstanding_max": self.outstanding_max,
            "arrivals": self.arrivals.as_ref().map(Arrivals::to_json),
            "disk_time_ns": self.disk_time().map(|time| time.0),
            "disks": self.drives.len(),
            "disk_requests": self.drives.iter().map(|drive| drive.requests).collect::<Vec<u64>>(),
            "disk_busy": self.disk_busy(),
            "drives": self.drives.iter().map(|drive| drive.to_json(self.elapsed)).collect::<Vec<_>>(),
            "widened": self.widened,
            "narrowed": self.narrowed,
            "moved": self.moved,
            "shortened": self.shortened,
            "without_latency": self.without_latency,
            "counters": counters,
        })
    }
}

/// Replays on a stack of devices, in its own virtual time. Written data is not kept where the stack allows it.
///
/// # Errors
/// Those of the trace, the stack or a request.
pub fn simulate(
    stack: &Stack,
    requests: impl Iterator<Item = Result<Request, TraceError>> + 'static,
    spec: &Spec,
    progress: &dyn Fn(u64),
) -> Result<Outcome, ReplayError> {
    simulate_heard(stack, requests, spec, progress, None)
}

/// The same, and `listener` learns of each answer, in the order in which they come.
///
/// # Errors
/// As [`simulate`], and those of the listener.
pub fn simulate_heard(
    stack: &Stack,
    requests: impl Iterator<Item = Result<Request, TraceError>> + 'static,
    spec: &Spec,
    progress: &dyn Fn(u64),
    listener: Option<Listener>,
) -> Result<Outcome, ReplayError> {
    check_stack(stack)?;
    let (given, stack) = (stack.clone(), timing_only(stack)?);
    let asked = given.to_string();
    let executor = Executor::simulated(spec.seed, HostProfile::NONE);
    let rt = executor.rt().clone();
    executor.block_on(async {
        let opened = match stack.open(&rt, &NoLeaves, Purpose::Use).await {
            Ok(opened) => opened,
            // The error of the line as the user wrote it, without options that were added here.
            Err(error) => return Err(given.open(&rt, &NoLeaves, Purpose::Use).await.err().unwrap_or(error).into()),
        };
        let Some(device) = opened.device().cloned() else { unreachable!("`check_stack` found a device") };
        // Only the members of an array know how busy they were. What opening took, such as making a virtual log disk, does
        // not count.
        let leaves = opened.instances().last().map(Vec::as_slice).unwrap_or_default();
        let meter = Meter::new(leaves);
        let parts = opened.parts();
        let before: Vec<Vec<Counter>> = parts.iter().map(|part| part.counters()).collect();
        let outcome = play(&rt, device, requests, spec, progress, listener).await?;
        let drives = Some(meter.since()).filter(|drives| !drives.is_empty()).unwrap_or(outcome.drives);
        let since = |(part, before): (_, &Vec<Counter>)| counters_since(part, before);
        let counters = parts.iter().map(|part| part.counters()).zip(&before).map(since);
        let counters = parts.iter().map(|part| part.describe()).zip(counters).collect();
        Ok(Outcome { stack: asked, counters, drives, ..outcome })
    })?
}

/// Checks that a block trace can be replayed on `stack`.
///
/// # Errors
/// When its top is a file system.
pub fn check_stack(stack: &Stack) -> Result<(), ReplayError> {
    match stack.is() {
        Interface::Device => Ok(()),
        Interface::FileSystem => {
            let words: Vec<String> = stack.words().iter().map(ToString::to_string).collect();
            let is_device = |from: &usize| {
                let line = words[*from..].join(" / ");
                stack.with_line(&line).is_ok_and(|stack| stack.is() == Interface::Device)
            };
            let below = (1..words.len()).find(is_device).map(|from| words[from..].join(" / "));
            let hint = below.map_or_else(String::new, |line| format!("\nwithout it: --on '{line}'"));
            Err(ReplayError::Spec(format!(
                "a block trace is replayed on devices, and `{stack}` is a file system{hint}"
            )))
        }
    }
}

/// `stack`, with its models set not to keep written data unless the line says otherwise. Times are the same, and a
/// trace of any length fits in memory. A device such as `vld` reads its own format back, so models below it keep their data.
///
/// # Errors
/// Only those of the stack itself.
pub fn timing_only(stack: &Stack) -> Result<Stack, StackError> {
    if stack.words().iter().any(|word| matches!(word.spec().constructor, Constructor::StoredDevice(_))) {
        return Ok(stack.clone());
    }
    let word = |word: &seekless::stack::Word| {
        let text = word.to_string();
        match word.spec().param("keep") {
            Some(keep) if matches!(keep.kind, ParamKind::Switch) && word.given("keep").is_none() => {
                let separator = if text.contains(':') { ',' } else { ':' };
                format!("{text}{separator}keep=off")
            }
            _ => text,
        }
    };
    stack.with_line(&stack.words().iter().map(word).collect::<Vec<_>>().join(" / "))
}

/// Replays on a device.
///
/// # Errors
/// As [`simulate`].
pub async fn replay(
    rt: &Rt,
    device: Device,
    requests: impl Iterator<Item = Result<Request, TraceError>> + 'static,
    spec: &Spec,
    progress: &dyn Fn(u64),
) -> Result<Outcome, ReplayError> {
    play(rt, device, requests, spec, progress, None).await
}

async fn play(
    rt: &Rt,
    device: Device,
    requests: impl Iterator<Item = Result<Request, TraceError>> + 'static,
    spec: &Spec,
    progress: &dyn Fn(u64),
    listener: Option<Listener>,
) -> Result<Outcome, ReplayError> {
    let placer = Placer::new(spec.map, spec.layout.clone(), device.geometry())?;
    let state = State {
        requests: Box::new(requests),
        listener,
        start: rt.now(),
        placer,
        made: 0,
        outstanding: 0,
        outstanding_max: 0,
        ops: Default::default(),
        failure: None,
        without_latency: 0,
        arrivals: None,
    };
    let player = Rc::new(Player {
        rt: rt.clone(),
        device: device.clone(),
        state: RefCell::new(state),
        idle: Event::new(),
        room: Event::new(),
    });
    let one = [device.clone()];
    let meter = Meter::new(&one);
    let before = device.counters();
    let start = rt.now();
    match spec.timing {
        Timing::Window(count) => player.window(count, progress).await,
        Timing::Closed => player.window(1, progress).await,
        Timing::Open { speed } => player.open(speed, progress).await?,
        Timing::Think => player.think(progress).await?,
    }
    let elapsed = rt.now() - start;
    let mut state = player.state.borrow_mut();
    if let Some(failure) = state.failure.take() {
        return Err(failure);
    }
    if spec.timing == Timing::Think && state.without_latency == state.made {
        return Err(ReplayError::NoLatencies);
    }
    Ok(Outcome {
        stack: device.describe(),
        describes: device.describe(),
        timing: spec.timing,
        map: spec.map,
        seed: spec.seed,
        elapsed,
        ops: std::mem::take(&mut state.ops),
        outstanding_max: state.outstanding_max,
        arrivals: state
            .arrivals
            .take()
            .map(|arrivals| Arrivals { behind: elapsed.saturating_sub(arrivals.span), ..arrivals }),
        drives: meter.since(),
        widened: state.placer.widened,
        narrowed: state.placer.narrowed,
        moved: state.placer.moved,
        shortened: state.placer.shortened,
        without_latency: if spec.timing == Timing::Think { state.without_latency } else { 0 },
        counters: vec![(device.describe(), counters_since(device.counters(), &before))],
    })
}

/// Counters that say what a device is or holds, and count nothing; with those that end in `_max`.
const STATES: [&str; 13] = [
    "allocated_bytes",
    "blocks_mapped",
    "channels",
    "dies",
    "own_sectors",
    "recovery_blocks_scanned",
    "recovery_ns",
    "recovery_pieces_read",
    "tables_bytes",
    "tracks_empty",
    "unit_places",
    "units",
    "snapshots",
];

/// What was counted since `before`, an earlier reading of the same counters.
fn counters_since(counters: Vec<Counter>, before: &[Counter]) -> Vec<Counter> {
    let since = |(name, now): Counter| {
        let is_state = STATES.contains(&name) || name.ends_with("_max");
        let before = before.iter().find(|(known, _)| *known == name && !is_state).map_or(0, |(_, before)| *before);
        (name, now.checked_sub(before).unwrap_or(now))
    };
    counters.into_iter().map(since).collect()
}

/// A time of the trace, replayed `speed` times as fast.
fn at_speed(since: Nanos, speed: f64) -> Result<Nanos, ReplayError> {
    /// Virtual time has 64 bits, and answers come after the last request.
    const LATEST: f64 = (1_u64 << 63) as f64;
    if speed == 1.0 {
        return Ok(since);
    }
    let slowed = since.0 as f64 / speed;
    match slowed <= LATEST {
        true => Ok(Nanos(slowed as u64)),
        false => Err(ReplayError::Spec(format!(
            "with --timing open:{speed}, the request at {} of the trace would be made after more than 292 years; give a larger number",
            time_text(since)
        ))),
    }
}

/// Requests between two reports of progress.
const PROGRESS_EVERY: u64 = 4096;

/// Pieces of a request that are on their way at once, in bytes: more than the largest request of a real host.
const PIECES_BYTES_MAX: u64 = 64 << 20;

struct Player {
    rt: Rt,
    device: Device,
    state: RefCell<State>,
    /// Nothing is under way any more.
    idle: Event,
    /// An answer has come while a request was held back.
    room: Event,
}

struct State {
    requests: Box<dyn Iterator<Item = Result<Request, TraceError>>>,
    listener: Option<Listener>,
    start: Nanos,
    placer: Placer,
    /// Requests taken from the trace.
    made: u64,
    outstanding: u64,
    outstanding_max: u64,
    ops: [OpStats; 4],
    /// The first error. No request begins after it.
    failure: Option<ReplayError>,
    without_latency: u64,
    arrivals: Option<Arrivals>,
}

impl State {
    /// Tells the listener, if there is one, of a request that was made and answered at these times.
    fn tell(&mut self, taken: &Taken, made: Nanos, done: Nanos) {
        let Some(listener) = &mut self.listener else { return };
        let Taken { request, placed: Placed { at, bytes, .. }, number } = *taken;
        let (made, done) = (made - self.start, done - self.start);
        if let Err(problem) = listener(&Answered { number, request, at, bytes, made, done }) {
            self.failure.get_or_insert(ReplayError::Listener(problem));
        }
    }
}

/// A request taken from the trace.
#[derive(Clone, Copy)]
struct Taken {
    request: Request,
    placed: Placed,
    number: u64,
}

impl Player {
    /// The next request of the trace; `None` at the end and after a failure.
    fn take(&self) -> Option<Taken> {
        let mut state = self.state.borrow_mut();
        if state.failure.is_some() {
            return None;
        }
        let taken = match state.requests.next()? {
            Ok(request) => state.placer.place(&request).map(|placed| (request, placed)),
            Err(error) => Err(error.into()),
        };
        match taken {
            Ok((request, placed)) => {
                state.made += 1;
                state.without_latency += u64::from(request.latency.is_none());
                Some(Taken { request, placed, number: state.made })
            }
            Err(error) => {
                state.failure = Some(error);
                None
            }
        }
    }

    /// Counts a request as under way, before its task first runs.
    fn begin(&self) {
        let mut state = self.state.borrow_mut();
        state.outstanding += 1;
        state.outstanding_max = state.outstanding_max.max(state.outstanding);
    }

    /// Sends a request that has begun and waits for the answer; returns its time.
    async fn answer(&self, taken: Taken) -> Nanos {
        let start = self.rt.now();
        self.answer_since(taken, start, None).await
    }

    /// The same for a request that was made at `start`, which was so long after the first.
    async fn answer_since(&self, taken: Taken, start: Nanos, arrived: Option<Nanos>) -> Nanos {
        let result = self.ask(&taken).await;
        let now = self.rt.now();
        // A trace has as many requests as it has, and a device that answers at once lets no task wait between them.
        self.rt.made_progress();
        let mut state = self.state.borrow_mut();
        state.outstanding -= 1;
        match result {
            Ok(()) => {
                state.ops[taken.request.op.index()].add(taken.placed.bytes, now - start);
                if let (Some(arrivals), Some(arrived)) = (&mut state.arrivals, arrived)
                    && matches!(taken.request.op, Op::Read | Op::Write)
                {
                    arrivals.over_time.add(arrived, now - start);
                }
                state.tell(&taken, start, now);
            }
            Err(cause) if state.failure.is_none() => {
                state.failure = Some(ReplayError::Device { number: taken.number, cause });
            }
            Err(_) => {}
        }
        if state.outstanding == 0 {
            self.idle.notify();
        }
        self.room.notify();
        now
    }

    /// Sends the request to the device, in pieces if it exceeds the limit or goes on behind a gap. A trace may have requests of any length,
    /// so only some of its pieces are on their way at once.
    async fn ask(&self, taken: &Taken) -> Result<(), DeviceError> {
        let Taken { request, placed, .. } = *taken;
        let most = match request.op {
            Op::Flush => return self.device.flush().await,
            // One that is too short for a block of the storage has no part: a host does not send it.
            Op::Discard => u64::MAX,
            Op::Read | Op::Write => u64::from(self.device.geometry().request_bytes_max).min(PIECES_BYTES_MAX),
        };
        let pieces = placed.parts().flat_map(|(at, bytes)| {
            let starts = (0..bytes.div_ceil(most)).map(move |index| index * most);
            starts.map(move |start| (at + start / SECTOR_BYTES, most.min(bytes - start)))
        });
        let mut pieces = pieces.peekable();
        let Some((at, bytes)) = pieces.next() else { return Ok(()) };
        if pieces.peek().is_none() {
            return self.piece(&request, at, bytes).await;
        }
        let at_once = (PIECES_BYTES_MAX / most).max(1) as usize;
        let pieces = stream::iter(std::iter::once((at, bytes)).chain(pieces).map(Ok));
        pieces.try_for_each_concurrent(at_once, |(at, bytes)| self.piece(&request, at, bytes)).await
    }

    async fn piece(&self, request: &Request, at: Sector, bytes: u64) -> Result<(), DeviceError> {
        match request.op {
            Op::Read => self.device.read(at, Buf::dirty(bytes as usize)).await.map(|_| ()),
            Op::Discard => self.device.discard(at, bytes / SECTOR_BYTES).await,
            Op::Write | Op::Flush => {
                let flags = WriteFlags { fua: request.flags.has(Flags::FUA) };
                self.device.write(at, Data::zeroes(bytes as usize), flags).await
            }
        }
    }

    fn report(&self, number: u64, progress: &dyn Fn(u64)) {
        if number.is_multiple_of(PROGRESS_EVERY) {
            progress(number);
        }
    }

    async fn window(self: &Rc<Self>, count: u32, progress: &dyn Fn(u64)) {
        let mut workers: Vec<JoinHandle<()>> = Vec::new();
        // The last worker is this task, which can report progress.
        for _ in 1..count {
            let player = self.clone();
            workers.push(self.rt.spawn(async move {
                while let Some(taken) = player.take() {
                    player.begin();
                    player.answer(taken).await;
                }
            }));
        }
        let mut told = 0;
        while let Some(taken) = self.take() {
            if taken.number / PROGRESS_EVERY > told {
                told = taken.number / PROGRESS_EVERY;
                progress(taken.number);
            }
            self.begin();
            self.answer(taken).await;
        }
        for worker in workers {
            worker.await;
        }
    }

    fn overload(&self, at: Nanos) -> Result<(), ReplayError> {
        let outstanding = self.state.borrow().outstanding;
        if outstanding > u64::from(WINDOW_MAX) { Err(ReplayError::Overload { outstanding, at }) } else { Ok(()) }
    }

    fn arrive(&self, op: Op, since: Nanos) {
        let mut state = self.state.borrow_mut();
        let under_way = state.outstanding;
        let arrivals = state.arrivals.get_or_insert_with(|| Arrivals {
            span: Nanos::ZERO,
            behind: Nanos::ZERO,
            held_back: Nanos::ZERO,
            over_time: OverTime::default(),
        });
        arrivals.span = arrivals.span.max(since);
        // Others cost a modelled disk nothing, and would make the queue that one finds look shorter.
        if matches!(op, Op::Read | Op::Write) {
            arrivals.over_time.arrive(since, under_way);
        }
    }

    /// The host keeps a request until the device has answered others: memory does not grow with the length of a trace.
    async fn hold_back(&self) {
        let from = self.rt.now();
        while self.state.borrow().outstanding >= u64::from(WINDOW_MAX) {
            self.room.wait().await;
        }
        if let Some(arrivals) = &mut self.state.borrow_mut().arrivals {
            arrivals.held_back += self.rt.now() - from;
        }
    }

    async fn open(self: &Rc<Self>, speed: f64, progress: &dyn Fn(u64)) -> Result<(), ReplayError> {
        let start = self.rt.now();
        let mut first = None;
        let mut latest = start;
        let mut has_times = false;
        while let Some(taken) = self.take() {
            let first = *first.get_or_insert(taken.request.time);
            has_times |= taken.request.time != first;
            let since = taken.request.time.saturating_sub(first);
            let since = at_speed(since, speed)?;
            // Requests are made in the order of the trace, also where its times fall.
            latest = latest.max(Nanos(start.0.saturating_add(since.0)));
            let made = latest;
            self.rt.sleep_until(made).await;
            self.arrive(taken.request.op, made - start);
            self.hold_back().await;
            self.report(taken.number, progress);
            let player = self.clone();
            self.begin();
            self.rt.spawn(async move { player.answer_since(taken, made, Some(made - start)).await });
        }
        self.drained().await;
        let mut state = self.state.borrow_mut();
        if state.made > 1 && !has_times {
            let count = state.made;
            state.failure.get_or_insert(ReplayError::NoTimes { count });
        }
        Ok(())
    }

    /// Waits until nothing is under way.
    async fn drained(&self) {
        while self.state.borrow().outstanding > 0 {
            self.idle.wait().await;
        }
    }

    async fn think(self: &Rc<Self>, progress: &dyn Fn(u64)) -> Result<(), ReplayError> {
        // Requests under way, by their recorded completion.
        let mut under_way: BTreeMap<(Nanos, u64), JoinHandle<Nanos>> = BTreeMap::new();
        // The last event before a request, in the recording and here: the previous request, or a completion.
        let mut anchor: Option<(Nanos, Nanos)> = None;
        while let Some(taken) = self.take() {
            let time = taken.request.time;
            while let Some(entry) = under_way.first_entry()
                && entry.key().0 <= time
            {
                let ((recorded, _), handle) = entry.remove_entry();
                let done = handle.await;
                anchor = Some(match anchor {
                    Some((then, now)) if then > recorded => (then, now.max(done)),
                    Some((_, now)) => (recorded, now.max(done)),
                    None => (recorded, done),
                });
            }
            if let Some((then, now)) = anchor {
                let pause = time.saturating_sub(then);
                self.rt.sleep_until(Nanos(now.0.saturating_add(pause.0))).await;
            }
            self.overload(time)?;
            // Answered ones stay until their recorded completion, which a wrong unit of latencies puts far away.
            if under_way.len() > WINDOW_MAX as usize {
                return Err(ReplayError::LongLatencies { count: under_way.len(), at: time });
            }
            self.report(taken.number, progress);
            anchor = Some((time, self.rt.now()));
            let player = self.clone();
            self.begin();
            let handle = self.rt.spawn(async move { player.answer(taken).await });
            let recorded = Nanos(time.0.saturating_add(taken.request.latency.unwrap_or_default().0));
            under_way.insert((recorded, taken.number), handle);
        }
        while let Some((_, handle)) = under_way.pop_first() {
            handle.await;
        }
        Ok(())
    }
}
