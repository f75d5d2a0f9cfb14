//! A log without contents, on which policies are compared.
//!
//! Paper: the simulator of [ro92 §3.5]. The log has a fixed number of segments, and each open segment and each clean one
//! counts among them. A block has a place; a place knows which block was written to it last, and it is alive when it is
//! that block's place. So nothing has to be done at the old place when a block is written again, except to count.
//!
//! A pass reads its victims into memory and then writes what is alive in them. A victim counts as clean once it has been
//! read, as in [ro92 §3.5], so a pass needs no spare segments of its own.
//!
//! Invariants
//!   S1  The map and the segments agree: the live blocks of each segment are the blocks whose place is in it.
//!   S2  What is alive is never more than what the segments without the open ones hold, so that a log without clean
//!       segments has a dead block in a closed one.
//!   S3  A pass takes no more victims than there are segments, and the log writes on after a pass or reports that it is
//!       stuck. Nothing can loop indefinitely.

use std::ops::ControlFlow;

use super::outcome::{Counts, Outcome};
use super::patterns::{DISCARD, Pattern};
use super::policy::{Before, Fresh, Limits, Moved, Note, Order, Policy, Room, Segment, Shape, Ticks, Trigger};
use crate::rng::Rng;

/// What to simulate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Setup {
    /// Blocks of data, all of which are alive unless the pattern discards some.
    pub blocks: u32,
    pub segment_blocks: u32,
    /// All segments: clean, open and closed.
    pub segments: u32,
    pub limits: Limits,
    /// Blocks that the user writes before anything is counted, besides those that fill the log.
    pub warm_up: u64,
    /// Blocks that the user writes while everything is counted.
    pub writes: u64,
    pub seed: u64,
}

/// Why there is no result.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum SetupError {
    /// The options of a policy or pattern, in words.
    #[error("{0}")]
    Options(String),
    #[error(
        "{blocks} blocks of data do not fit: {segments} segments of {segment_blocks} blocks must be more than the data, \
         {heads} open segments and {reserve} clean ones; lower the utilisation or the reserve, or take smaller segments"
    )]
    TooFull { blocks: u32, segments: u32, segment_blocks: u32, heads: u8, reserve: u32 },
    #[error("{0}")]
    OutOfRange(String),
    #[error("the pattern ended after {written} of {wanted} writes")]
    PatternEnded { written: u64, wanted: u64 },
    /// The policy makes no room. A wrong policy, as S2 leaves room to make.
    #[error("no segment is clean, and cleaning makes none")]
    Stuck,
    #[error("stopped")]
    Stopped,
}

/// No block, or no place.
const NONE: u32 = u32::MAX;

/// Ticks are kept in 32 bits.
const WRITES_MAX: u64 = u32::MAX as u64 - 1;

/// Places for blocks: four bytes each.
const PLACES_MAX: u64 = 1 << 30;

/// Operations of a simulation whose policy knows the future: all of them are in memory.
const FUTURE_MAX: u64 = 1 << 29;

impl Setup {
    pub fn shape(&self) -> Shape {
        let segments_used = match self.limits.trigger {
            Trigger::Clean(_) => self.segments,
            Trigger::Garbage(share) => {
                Setup::segments_for(self.blocks, self.segment_blocks, 1.0 - share).min(self.segments)
            }
        };
        Shape {
            segments: self.segments,
            segments_used,
            segment_blocks: self.segment_blocks,
            live_blocks: u64::from(self.blocks),
            seed: self.seed,
        }
    }

    /// The segments that make `blocks` the share `utilisation` of all, to the nearest.
    pub fn segments_for(blocks: u32, segment_blocks: u32, utilisation: f64) -> u32 {
        (f64::from(blocks) / utilisation / f64::from(segment_blocks)).round() as u32
    }

    pub(super) fn check(&self, heads: u8) -> Result<(), SetupError> {
        let wrong = |text: String| Err(SetupError::OutOfRange(text));
        let Setup { blocks, segment_blocks, segments, .. } = *self;
        if segment_blocks == 0 || blocks == 0 {
            return wrong("a segment has at least one block, and so has the data".to_owned());
        }
        let rounded = segment_blocks.checked_next_power_of_two();
        if rounded.is_none_or(|rounded| u64::from(segments) * u64::from(rounded) > PLACES_MAX) {
            return wrong(format!("{segments} segments of {segment_blocks} blocks are more than 2^30 places"));
        }
        if self.warm_up.saturating_add(self.writes).saturating_add(u64::from(blocks)) > WRITES_MAX || self.writes == 0 {
            return wrong(format!("a simulation has between 1 and {WRITES_MAX} writes"));
        }
        let reserve = match self.limits.trigger {
            Trigger::Clean(reserve) => reserve,
            Trigger::Garbage(share) if share > 0.0 && share < 1.0 => 0,
            Trigger::Garbage(share) => return wrong(format!("a share of garbage is between 0 and 1, not {share}")),
        };
        let data = u64::from(segments).saturating_sub(u64::from(heads) + u64::from(reserve));
        match u64::from(blocks) < data * u64::from(segment_blocks) {
            true => Ok(()),
            false => Err(SetupError::TooFull { blocks, segments, segment_blocks, heads, reserve }),
        }
    }
}

/// Bits of a place that number the block in its segment.
fn bits_for(segment_blocks: u32) -> u32 {
    segment_blocks.next_power_of_two().trailing_zeros()
}

/// Runs `policy` under `pattern`. `progress` learns from time to time how many of the writes are done.
///
/// # Errors
/// When the setup is impossible, or `progress` says to stop.
pub fn simulate<P: Policy + ?Sized>(
    setup: &Setup,
    policy: &mut P,
    pattern: &mut dyn Pattern,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Outcome, SetupError> {
    setup.check(policy.heads())?;
    let operations = Operations::new(setup, policy.needs().future, pattern)?;
    let mut log = SimulatedLog::new(setup, policy);
    if !operations.pattern.fills() {
        log.fill(setup.seed, operations.first_deaths())?;
    }
    let all = setup.warm_up + setup.writes;
    let mut steps = operations.steps(setup);
    let warm = steps.run(&mut log, setup.warm_up, |done| progress(done, all))?;
    log.measure();
    let start = log.counts;
    let half = steps.run(&mut log, setup.writes / 2, |done| progress(warm + done, all))?;
    let first_half = log.counts.since(&start);
    steps.run(&mut log, setup.writes - setup.writes / 2, |done| progress(warm + half + done, all))?;
    Ok(log.outcome(&start, first_half))
}

/// Where operations come from, and what is known of their future.
struct Operations<'a> {
    pattern: &'a mut dyn Pattern,
    /// Everything in advance, with when each version of a block dies: for policies that know the future.
    known: Option<Known>,
}

struct Known {
    operations: Vec<u32>,
    /// For each operation that writes: the tick at which what it writes dies, or NONE.
    dies: Vec<u32>,
    /// For each block: the tick at which its first version dies.
    first: Vec<u32>,
}

impl<'a> Operations<'a> {
    fn new(setup: &Setup, future: bool, pattern: &'a mut dyn Pattern) -> Result<Operations<'a>, SetupError> {
        if !future {
            return Ok(Operations { pattern, known: None });
        }
        let wanted = setup.warm_up + setup.writes;
        if wanted > FUTURE_MAX {
            let text = format!("a policy that knows the future takes up to {FUTURE_MAX} writes, not {wanted}");
            return Err(SetupError::OutOfRange(text));
        }
        let mut operations = Vec::new();
        let mut written = 0;
        while written < wanted {
            let from = operations.len();
            pattern.more(&mut operations);
            if from == operations.len() {
                break;
            }
            written += operations[from..].iter().filter(|operation| *operation & DISCARD == 0).count() as u64;
        }
        // From the end: the next operation of each block. Blocks that fill the log are written before tick `start`.
        let start = if pattern.fills() { 0 } else { setup.blocks };
        let mut next = vec![NONE; setup.blocks as usize];
        let mut dies = vec![NONE; operations.len()];
        let mut tick = start + written as u32;
        for (operation, dies) in operations.iter().zip(&mut dies).rev() {
            let block = (operation & !DISCARD) as usize;
            if operation & DISCARD == 0 {
                tick -= 1;
                *dies = next[block];
            }
            next[block] = tick;
        }
        Ok(Operations { pattern, known: Some(Known { operations, dies, first: next }) })
    }

    fn first_deaths(&self) -> Option<&[u32]> {
        self.known.as_ref().map(|known| &known.first[..])
    }

    fn steps(self, setup: &Setup) -> Steps<'a> {
        Steps { operations: self, buffer: Vec::new(), next: 0, wanted: setup.warm_up + setup.writes, written: 0 }
    }
}

struct Steps<'a> {
    operations: Operations<'a>,
    buffer: Vec<u32>,
    /// The next of the buffer, or of all that are known.
    next: usize,
    wanted: u64,
    written: u64,
}

/// Operations whose blocks are looked up ahead of time, so that the processor waits for several at once.
const AHEAD: usize = 32;

/// Above this size the map is not in a cache that is near.
const NEAR_BLOCKS: usize = 1 << 19;

/// Operations between two reports of progress.
const REPORT: u64 = 1 << 18;

impl Steps<'_> {
    /// Runs `writes` blocks of the user, and returns their number.
    fn run<P: Policy + ?Sized>(
        &mut self,
        log: &mut SimulatedLog<'_, P>,
        writes: u64,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64, SetupError> {
        let goal = self.written + writes;
        let begin = self.written;
        let mut report = self.written + REPORT;
        while self.written < goal {
            let (operations, dies): (&[u32], &[u32]) = match &self.operations.known {
                Some(known) => (&known.operations[self.next..], &known.dies[self.next..]),
                None => {
                    if self.next == self.buffer.len() {
                        self.buffer.clear();
                        self.next = 0;
                        self.operations.pattern.more(&mut self.buffer);
                    }
                    (&self.buffer[self.next..], &[])
                }
            };
            if operations.is_empty() {
                return Err(SetupError::PatternEnded { written: self.written, wanted: self.wanted });
            }
            let chunk = &operations[..operations.len().min(AHEAD)];
            if log.map.len() > NEAR_BLOCKS {
                log.look_ahead(chunk);
            }
            for (index, operation) in chunk.iter().enumerate() {
                if self.written == goal {
                    break;
                }
                self.next += 1;
                match operation & DISCARD {
                    0 => {
                        log.write(*operation, dies.get(index).copied().unwrap_or(NONE))?;
                        self.written += 1;
                    }
                    _ => log.discard(operation & !DISCARD),
                }
            }
            if self.written >= report {
                report = self.written + REPORT;
                if progress(self.written - begin).is_break() {
                    return Err(SetupError::Stopped);
                }
            }
        }
        Ok(writes)
    }
}

/// State of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Clean,
    Open,
    Closed,
}

#[derive(Clone, Copy, Debug)]
struct SegmentInfo {
    /// While it is open, places that have not been written count as live.
    live: u32,
    opened: u32,
    closed: u32,
    youngest: u32,
    head: u8,
    state: State,
}

/// An open segment of a head.
#[derive(Clone, Copy, Debug)]
struct Head {
    /// The next place, and the end of the segment; equal when there is no open segment.
    next: u32,
    end: u32,
    segment: u32,
    youngest: u32,
}

/// A live block of a victim, in memory.
#[derive(Clone, Copy, Debug)]
struct Live {
    block: u32,
    written: u32,
    head: u8,
}

pub(super) struct SimulatedLog<'a, P: ?Sized> {
    pub(super) policy: &'a mut P,
    limits: Limits,
    segment_blocks: u32,
    /// Bits of a place that number the block in its segment.
    bits: u32,
    /// Destination of each block.
    map: Vec<u32>,
    /// The block that was last written to each place.
    places: Vec<u32>,
    segments: Vec<SegmentInfo>,
    heads: Vec<Head>,
    clean: Vec<u32>,
    /// Of each block, as far as the policy needs them; otherwise empty.
    written: Vec<u32>,
    notes: Vec<Note>,
    dies: Vec<u32>,
    /// Blocks that are alive, and that were written and not cleaned since.
    alive: u64,
    used: u64,
    closed: u32,
    now: u32,
    /// Closed segments by live blocks.
    by_live: Vec<u32>,
    /// Live blocks of the victims of a pass.
    moving: Vec<Live>,
    found: Vec<u32>,
    order: Order,
    counts: Counts,
    measured: Measured,
}

/// What is summed up over the measured stretch.
#[derive(Clone, Debug, Default)]
struct Measured {
    segments_by_live: Vec<u64>,
    cleaned_by_live: Vec<u64>,
    heads: Vec<u64>,
}

impl<'a, P: Policy + ?Sized> SimulatedLog<'a, P> {
    pub(super) fn new(setup: &Setup, policy: &'a mut P) -> SimulatedLog<'a, P> {
        let bits = bits_for(setup.segment_blocks);
        let blocks = setup.blocks as usize;
        let needs = policy.needs();
        let heads = usize::from(policy.heads());
        let clean_segment = SegmentInfo { live: 0, opened: 0, closed: 0, youngest: 0, head: 0, state: State::Clean };
        let closed_head = Head { next: 0, end: 0, segment: NONE, youngest: 0 };
        let of_blocks = |needed: bool| vec![NONE; if needed { blocks } else { 0 }];
        SimulatedLog {
            limits: setup.limits,
            segment_blocks: setup.segment_blocks,
            bits,
            map: vec![NONE; blocks],
            places: vec![NONE; (setup.segments as usize) << bits],
            segments: vec![clean_segment; setup.segments as usize],
            heads: vec![closed_head; heads],
            clean: (0..setup.segments).rev().collect(),
            written: of_blocks(needs.times),
            notes: vec![0; if needs.notes { blocks } else { 0 }],
            dies: of_blocks(needs.future),
            alive: 0,
            used: 0,
            closed: 0,
            now: 0,
            by_live: vec![0; setup.segment_blocks as usize + 1],
            moving: Vec::new(),
            found: vec![0; setup.segment_blocks as usize],
            order: policy.order(),
            counts: Counts::default(),
            measured: Measured {
                segments_by_live: vec![0; setup.segment_blocks as usize + 1],
                cleaned_by_live: vec![0; setup.segment_blocks as usize + 1],
                heads: vec![0; heads],
            },
            policy,
        }
    }

    /// Writes every block once, in a random order, so that no pattern finds its blocks together.
    pub(super) fn fill(&mut self, seed: u64, first_deaths: Option<&[u32]>) -> Result<(), SetupError> {
        let mut order: Vec<u32> = (0..self.map.len() as u32).collect();
        Rng::new(seed ^ 0x6669_6c6c).shuffle(&mut order);
        for block in order {
            self.write(block, first_deaths.map_or(NONE, |deaths| deaths[block as usize]))?;
        }
        Ok(())
    }

    /// Begins the measured stretch.
    fn measure(&mut self) {
        self.measured.segments_by_live.fill(0);
        self.measured.cleaned_by_live.fill(0);
        self.measured.heads.fill(0);
    }

    fn look_ahead(&self, operations: &[u32]) {
        let mut sum = 0_u32;
        for operation in operations {
            sum ^= self.map.get((operation & !DISCARD) as usize).copied().unwrap_or(0);
        }
        std::hint::black_box(sum);
    }

    /// The user writes a block.
    #[inline]
    pub(super) fn write(&mut self, block: u32, dies: u32) -> Result<(), SetupError> {
        let index = block as usize;
        let old = self.map[index];
        let before = (old != NONE).then(|| Before {
            written: self.written.get(index).map_or(0, |at| Ticks::from(*at)),
            note: self.notes.get(index).copied().unwrap_or(0),
        });
        let fresh = Fresh { now: self.now.into(), before, dies: widen(dies) };
        let place = self.policy.write(&fresh);
        if let Some(note) = self.notes.get_mut(index) {
            *note = place.note;
        }
        if let Some(at) = self.written.get_mut(index) {
            *at = self.now;
        }
        if let Some(at) = self.dies.get_mut(index) {
            *at = dies;
        }
        match old {
            NONE => self.alive += 1,
            old => self.invalidate(old),
        }
        // It is dead at its old place from now on, also for the cleaner.
        self.map[index] = NONE;
        let head = usize::from(place.head);
        if self.heads[head].next == self.heads[head].end {
            self.make_room(head)?;
        }
        self.append(head, block, self.now)?;
        self.now += 1;
        self.counts.user += 1;
        match self.limits.trigger {
            Trigger::Clean(_) => Ok(()),
            Trigger::Garbage(_) => self.collect_garbage(),
        }
    }

    pub(super) fn discard(&mut self, block: u32) {
        let old = std::mem::replace(&mut self.map[block as usize], NONE);
        if old != NONE {
            self.alive -= 1;
            self.invalidate(old);
        }
    }

    #[inline]
    fn invalidate(&mut self, place: u32) {
        let number = place >> self.bits;
        let segment = &mut self.segments[number as usize];
        segment.live -= 1;
        let live = segment.live;
        if segment.state == State::Closed {
            self.by_live[live as usize + 1] -= 1;
            self.by_live[live as usize] += 1;
            self.policy.died(number, live);
        }
    }

    /// Writes a block to the end of a head that has an open segment, or takes a clean segment for it.
    #[inline]
    fn append(&mut self, head: usize, block: u32, written: u32) -> Result<(), SetupError> {
        let mut head = head;
        if self.heads[head].next == self.heads[head].end {
            head = self.open(head)?;
        }
        let open = &mut self.heads[head];
        let place = open.next;
        open.next += 1;
        open.youngest = open.youngest.max(written);
        let is_full = open.next == open.end;
        self.places[place as usize] = block;
        self.map[block as usize] = place;
        self.used += 1;
        if is_full {
            self.close(head);
        }
        Ok(())
    }

    /// Gives a head a clean segment. Without one, the answer is another head whose segment is open.
    #[cold]
    fn open(&mut self, head: usize) -> Result<usize, SetupError> {
        let Some(number) = self.clean.pop() else {
            let near = |other: &usize| other.abs_diff(head);
            let others = (0..self.heads.len()).filter(|other| self.heads[*other].next < self.heads[*other].end);
            let other = others.min_by_key(near).ok_or(SetupError::Stuck)?;
            self.counts.diverted += 1;
            return Ok(other);
        };
        let next = number << self.bits;
        self.heads[head] = Head { next, end: next + self.segment_blocks, segment: number, youngest: 0 };
        self.segments[number as usize] = SegmentInfo {
            live: self.segment_blocks,
            opened: self.now,
            closed: self.now,
            youngest: 0,
            head: head as u8,
            state: State::Open,
        };
        Ok(head)
    }

    #[cold]
    fn close(&mut self, head: usize) {
        let Head { segment: number, youngest, .. } = self.heads[head];
        let segment = &mut self.segments[number as usize];
        segment.state = State::Closed;
        segment.closed = self.now;
        segment.youngest = youngest;
        self.by_live[segment.live as usize] += 1;
        self.measured.heads[head] += u64::from(self.segment_blocks);
        self.closed += 1;
        let known = self.known(number);
        self.policy.closed(&known);
    }

    fn known(&self, number: u32) -> Segment {
        let segment = self.segments[number as usize];
        Segment {
            number,
            head: segment.head,
            live: segment.live,
            opened: segment.opened.into(),
            closed: segment.closed.into(),
            youngest: segment.youngest.into(),
            now: self.now.into(),
        }
    }

    fn room(&self, pass: Option<(u32, u64)>, passes: u32, open: bool) -> Room {
        Room {
            clean: self.clean.len() as u32,
            closed: self.closed,
            garbage: 1.0 - self.alive as f64 / self.used.max(1) as f64,
            pass,
            passes,
            open,
            limits: self.limits,
        }
    }

    /// Cleans as the policy wants it, and at least until the user can write to `head`.
    #[cold]
    fn make_room(&mut self, head: usize) -> Result<(), SetupError> {
        // A pass may find only segments that are alive as a whole, as that of FIFO. It is wasted, and the next may not be,
        // unless all segments are like that.
        let full = self.segment_blocks as usize;
        for passes in 0..2 * self.segments.len() as u32 {
            let all_full = self.by_live[..full].iter().all(|count| *count == 0);
            let is_open = self.heads[head].next < self.heads[head].end;
            if all_full || !self.policy.wants(&self.room(None, passes, is_open)) {
                break;
            }
            self.pass(false)?;
        }
        if self.clean.is_empty() && self.heads.iter().all(|head| head.next == head.end) {
            self.pass(true)?;
        }
        match self.heads[head].next < self.heads[head].end || self.writable() > 0 {
            true => Ok(()),
            false => Err(SetupError::Stuck),
        }
    }

    /// One pass, where the log is cleaned for its garbage: that is looked at after each write of the user, wherever in a segment it was. Looked at
    /// only when a segment is full, moved blocks and the user's would have segments of their own.
    fn collect_garbage(&mut self) -> Result<(), SetupError> {
        if !self.policy.wants(&self.room(None, 0, true))
            || self.by_live[..self.segment_blocks as usize].iter().all(|count| *count == 0)
        {
            return Ok(());
        }
        self.pass(false)
    }

    /// Blocks that can be written without cleaning.
    fn writable(&self) -> u64 {
        let open: u64 = self.heads.iter().map(|head| u64::from(head.end - head.next)).sum();
        self.clean.len() as u64 * u64::from(self.segment_blocks) + open
    }

    /// Reads victims until the policy has enough of them, and writes what is alive. With `rescue` it takes the emptiest
    /// segment, whatever the policy says.
    fn pass(&mut self, rescue: bool) -> Result<(), SetupError> {
        self.counts.passes += 1;
        for (sum, count) in self.measured.segments_by_live.iter_mut().zip(&self.by_live) {
            *sum += u64::from(*count);
        }
        let (mut victims, mut live) = (0_u32, 0_u64);
        while victims < self.segments.len() as u32 && self.policy.wants(&self.room(Some((victims, live)), 0, false)) {
            let chosen = match rescue {
                true => self.emptiest(),
                false => self.policy.choose(self.now.into()),
            };
            let Some(victim) = chosen else { break };
            self.counts.rescued += u64::from(rescue);
            live += u64::from(self.read(victim));
            victims += 1;
        }
        if self.order == Order::Age {
            self.moving.sort_by_key(|live| live.written);
        }
        let moving = std::mem::take(&mut self.moving);
        for live in &moving {
            let index = live.block as usize;
            let moved = Moved {
                now: self.now.into(),
                written: live.written.into(),
                note: self.notes.get(index).copied().unwrap_or(0),
                head: live.head,
                dies: self.dies.get(index).map_or(Ticks::MAX, |at| widen(*at)),
            };
            let place = self.policy.relocate(&moved);
            if let Some(note) = self.notes.get_mut(index) {
                *note = place.note;
            }
            self.append(usize::from(place.head), live.block, live.written)?;
        }
        self.counts.moved += moving.len() as u64;
        self.moving = moving;
        self.moving.clear();
        Ok(())
    }

    /// Reads a victim into memory, which makes it clean. Returns how many blocks of it are alive.
    fn read(&mut self, number: u32) -> u32 {
        let known = self.known(number);
        let segment = &mut self.segments[number as usize];
        assert!(segment.state == State::Closed, "P1: a policy chooses closed segments");
        segment.state = State::Clean;
        let (live, head) = (segment.live, segment.head);
        self.policy.cleaned(&known);
        self.counts.cleaned += 1;
        self.counts.cleaned_empty += u64::from(live == 0);
        self.measured.cleaned_by_live[live as usize] += 1;
        self.by_live[live as usize] -= 1;
        self.used -= u64::from(self.segment_blocks);
        self.closed -= 1;
        self.clean.push(number);
        // Without a branch for each block, because half of them would be predicted wrongly.
        let first = number << self.bits;
        let places = &self.places[first as usize..(first + self.segment_blocks) as usize];
        let mut count = 0;
        for (place, block) in (first..).zip(places) {
            self.found[count] = *block;
            count += usize::from(self.map[*block as usize] == place);
        }
        assert!(count == live as usize, "S1: {count} blocks are alive in segment {number}, and {live} are counted");
        let written = &self.written;
        let found = self.found[..count].iter();
        self.moving.extend(found.map(|block| {
            let written = written.get(*block as usize).copied().unwrap_or(known.youngest as u32);
            Live { block: *block, written, head }
        }));
        live
    }

    fn emptiest(&self) -> Option<u32> {
        let closed = (0..).zip(&self.segments).filter(|(_, segment)| segment.state == State::Closed);
        closed.min_by_key(|(_, segment)| segment.live).map(|(number, _)| number)
    }

    fn outcome(&self, start: &Counts, first_half: Counts) -> Outcome {
        let counts = self.counts.since(start);
        let capacity = self.segments.len() as f64 * f64::from(self.segment_blocks);
        Outcome {
            counts,
            first_half,
            segment_blocks: self.segment_blocks,
            segments: self.segments.len() as u32,
            utilisation: self.alive as f64 / capacity,
            segments_by_live: self.measured.segments_by_live.clone(),
            cleaned_by_live: self.measured.cleaned_by_live.clone(),
            heads: self.measured.heads.clone(),
        }
    }

    /// Recounts everything, S1 and P1 included.
    ///
    /// # Panics
    /// When the books are wrong.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut live = vec![0_u32; self.segments.len()];
        for (block, place) in (0..).zip(&self.map).filter(|(_, place)| **place != NONE) {
            assert_eq!(self.places[*place as usize], block, "S1: a block's place knows the block");
            live[(place >> self.bits) as usize] += 1;
        }
        assert_eq!(self.alive, live.iter().map(|live| u64::from(*live)).sum::<u64>(), "S1: all that is alive");
        let mut by_live = vec![0; self.by_live.len()];
        let mut known = Vec::new();
        let mut clean = 0;
        for (number, (segment, live)) in (0_u32..).zip(self.segments.iter().zip(&live)) {
            match segment.state {
                State::Clean => {
                    assert_eq!(*live, 0, "S1: nothing is alive in clean segment {number}");
                    clean += 1;
                }
                State::Open => {
                    let head = &self.heads[usize::from(segment.head)];
                    assert_eq!(head.segment, number, "an open segment has a head");
                    assert_eq!(segment.live - (head.end - head.next), *live, "S1: open segment {number}");
                }
                State::Closed => {
                    assert_eq!(segment.live, *live, "S1: closed segment {number}");
                    by_live[*live as usize] += 1;
                    known.push((number, *live));
                }
            }
        }
        assert_eq!(by_live, self.by_live, "closed segments by live blocks");
        assert_eq!(clean, self.clean.len(), "clean segments are listed");
        assert_eq!(self.closed as usize, known.len(), "closed segments");
        let open = self.heads.iter().filter(|head| head.next < head.end);
        let written = open.map(|head| self.segment_blocks - (head.end - head.next)).sum::<u32>();
        let used = known.len() as u64 * u64::from(self.segment_blocks) + u64::from(written);
        assert_eq!(self.used, used, "blocks that were written and not cleaned since");
        let mut theirs = self.policy.known();
        theirs.sort_unstable();
        assert_eq!(theirs, known, "P1: the policy knows the closed segments");
    }
}

fn widen(tick: u32) -> Ticks {
    match tick {
        NONE => Ticks::MAX,
        tick => tick.into(),
    }
}
