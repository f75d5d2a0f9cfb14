//! The states in which a device can be after a power cut.
//!
//! [`CrashLog`] draws them from the device's own [`Guarantees`] and from nothing else:
//!
//! * a request is *durable* once the declaration says so: at completion, with `fua`, or with a flush that was
//!   issued after its completion and has completed itself;
//! * every other request that was issued is *pending*: absent, present, or torn into units of
//!   `atomic_write_bytes`, any subset of which is present;
//! * of an `ordered` device's completed pending requests a prefix is present, whose last request may be torn;
//!   requests in flight are present only if all of those are.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::{Data, Discard, Geometry, Guarantees, Image};
use crate::rng::Rng;
use crate::units::{SECTOR_BYTES, Sector};

/// A recorded request.
#[derive(Clone, Debug)]
pub enum Request {
    Write {
        at: Sector,
        data: Data,
        fua: bool,
    },
    Discard {
        at: Sector,
        sectors: u64,
    },
    Flush,
    /// A flush of a part of the device alone, see [`CrashDevice::part`](super::crash::CrashDevice::part).
    FlushPart {
        at: Sector,
        sectors: u64,
    },
    /// A flush that returned an error.
    FailedFlush,
}

impl Request {
    fn is_flush(&self) -> bool {
        matches!(self, Request::Flush | Request::FlushPart { .. } | Request::FailedFlush)
    }

    /// True when this flush, if it succeeds, makes the changes of `other` durable.
    fn covers(&self, other: &Request) -> bool {
        let (start, length) = other.span();
        match self {
            Request::FlushPart { at, sectors } => *at <= start && start + length <= *at + *sectors,
            _ => true,
        }
    }

    /// First sector and number of sectors that the request changes.
    pub(super) fn span(&self) -> (Sector, u64) {
        match self {
            Request::Write { at, data, .. } => (*at, data.len() as u64 / SECTOR_BYTES),
            Request::Discard { at, sectors } => (*at, *sectors),
            Request::Flush | Request::FlushPart { .. } | Request::FailedFlush => (Sector::ZERO, 0),
        }
    }
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (at, sectors) = self.span();
        match self {
            Request::Write { fua: false, .. } => write!(f, "write {at}+{sectors}"),
            Request::Write { fua: true, .. } => write!(f, "write {at}+{sectors} fua"),
            Request::Discard { .. } => write!(f, "discard {at}+{sectors}"),
            Request::Flush => f.write_str("flush"),
            Request::FlushPart { at, sectors } => write!(f, "flush of {at}+{sectors}"),
            Request::FailedFlush => f.write_str("flush that fails"),
        }
    }
}

/// A request and the positions in the log at which it was issued and had completed.
#[derive(Clone, Debug)]
pub(super) struct Logged {
    pub(super) request: Request,
    pub(super) issued: usize,
    pub(super) completed: Option<usize>,
}

/// Which units of a torn request reached the medium.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Tear {
    First(u32),
    /// All but the first N.
    Rest(u32),
    /// A subset drawn from this seed.
    Scattered(u64),
}

impl Tear {
    fn kept(self, units: usize) -> Vec<bool> {
        match self {
            Tear::First(count) => (0..units).map(|unit| unit < count as usize).collect(),
            Tear::Rest(count) => (0..units).map(|unit| unit >= count as usize).collect(),
            Tear::Scattered(seed) => {
                let mut rng = Rng::new(seed);
                (0..units).map(|_| rng.chance(1, 2)).collect()
            }
        }
    }
}

/// What became of one pending request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fate {
    Absent,
    Present,
    Torn(Tear),
}

/// One of the states a cut can leave: the fate of each pending request, in the order of [`Cut::pending`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Choice {
    pub fates: Vec<Fate>,
    /// Decides what undefined discards left behind.
    pub salt: u64,
}

/// How many states of one cut to look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Every subset of the pending requests, where there are at most this many; above that, each request alone and each
    /// one missing alone.
    pub all_subsets_of: usize,
    /// At most this many requests are taken alone, and as many are left out alone: the latest ones.
    pub singles: usize,
    /// States with one torn request among others that are all there, or all absent.
    pub tears: usize,
    /// States in which everything is drawn.
    pub samples: usize,
}

impl Effort {
    /// For short scripts: a few dozen states a cut.
    pub const THOROUGH: Effort = Effort { all_subsets_of: 4, singles: 16, tears: 12, samples: 8 };

    /// For long runs: a handful of states a cut.
    pub const SAMPLED: Effort = Effort { all_subsets_of: 1, singles: 2, tears: 2, samples: 2 };
}

/// Everything that happened to a `CrashDevice` of the testing crate, including the bytes.
#[derive(Clone)]
pub struct CrashLog {
    guarantees: Guarantees,
    geometry: Geometry,
    base: Image,
    log: Rc<Vec<Logged>>,
    /// Position from which each request is certainly on the medium; `usize::MAX` if from none.
    durable: Rc<Vec<usize>>,
    /// Requests in the order in which they completed.
    by_completion: Rc<Vec<usize>>,
    /// For each number of requests of `by_completion`: a hash of which they are.
    hashes: Rc<Vec<u64>>,
    /// The base with the first N requests of `by_completion` applied. Cuts are mostly visited in order, so that each
    /// request is applied once.
    folded: Rc<RefCell<Folded>>,
    events: usize,
}

#[derive(Clone)]
struct Folded {
    count: usize,
    image: Image,
    /// [`Image::content_hash`], from the first time that it is needed.
    hash: Option<u64>,
}

/// Applies a request with `apply`, and keeps the hash of the content up to date.
fn put(request: &Request, image: &mut Image, hash: &mut Option<u64>, apply: impl FnOnce(&mut Image)) {
    let (at, sectors) = request.span();
    let before = hash.map(|hash| hash ^ image.content_hash_around(at, sectors));
    apply(image);
    *hash = before.map(|hash| hash ^ image.content_hash_around(at, sectors));
}

impl CrashLog {
    pub(super) fn new(
        geometry: Geometry,
        guarantees: Guarantees,
        base: Image,
        log: Vec<Logged>,
        events: usize,
    ) -> CrashLog {
        let mut by_completion: Vec<usize> = (0..log.len()).filter(|&id| log[id].completed.is_some()).collect();
        by_completion.sort_by_key(|&id| log[id].completed);
        let flushes = Flushes::of(&log);
        let mut durable: Vec<usize> = log
            .iter()
            .map(|logged| match (logged.completed, &logged.request) {
                (None, _) => usize::MAX,
                (Some(completed), Request::Write { fua: true, .. }) => completed,
                (Some(completed), _) if guarantees.durable_on_completion => completed,
                (Some(completed), request) => durable_from(&flushes, completed, request),
            })
            .collect();
        if guarantees.ordered {
            let mut bound = usize::MAX;
            for &id in by_completion.iter().rev() {
                bound = bound.min(durable[id]);
                durable[id] = bound;
            }
        }
        let mut hashes = vec![0];
        for &id in &by_completion {
            hashes.push(mix(hashes[hashes.len() - 1], id, Fate::Present));
        }
        CrashLog {
            guarantees,
            geometry,
            folded: Rc::new(RefCell::new(Folded { count: 0, image: base.clone(), hash: None })),
            base,
            log: Rc::new(log),
            durable: Rc::new(durable),
            by_completion: Rc::new(by_completion),
            hashes: Rc::new(hashes),
            events,
        }
    }

    /// The base with the first `count` requests of `by_completion` applied, and the hash of its content if wanted.
    fn fold(&self, count: usize, hashed: bool) -> (Image, Option<u64>) {
        let mut folded = self.folded.borrow_mut();
        if folded.count > count {
            *folded = Folded { count: 0, image: self.base.clone(), hash: None };
        }
        let Folded { count: done, image, hash } = &mut *folded;
        for &id in &self.by_completion[*done..count] {
            let (request, discard) = (&self.log[id].request, Effect::draw(self.guarantees.discard, id as u64));
            put(request, image, hash, |image| request.apply(image, discard));
        }
        *done = count;
        if hashed {
            hash.get_or_insert_with(|| image.content_hash());
        }
        (image.clone(), hash.filter(|_| hashed))
    }

    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Number of events: cuts are at positions `0..=events()`.
    pub fn events(&self) -> usize {
        self.events
    }

    /// Requests, in the order in which they were issued.
    pub fn requests(&self) -> impl Iterator<Item = &Request> {
        self.log.iter().map(|logged| &logged.request)
    }

    /// Positions at which the possible states differ from those one event later, and the last one. A check at these
    /// positions, against what had been promised by then, covers all others.
    pub fn positions(&self) -> Vec<usize> {
        // The states change when something is issued or becomes durable, and, on an ordered device, when
        // something completes. The moment before is the one with the most promises.
        let mut last_before = BTreeSet::from([self.events]);
        for (logged, &durable) in self.log.iter().zip(self.durable.iter()) {
            if !logged.request.is_flush() {
                last_before.insert(logged.issued - 1);
                last_before.extend((durable != usize::MAX).then(|| durable - 1));
                last_before.extend(logged.completed.filter(|_| self.guarantees.ordered).map(|completed| completed - 1));
            }
        }
        last_before.into_iter().collect()
    }

    /// What is known and what is open when the power fails after `position` events.
    pub fn cut(&self, position: usize) -> Cut<'_> {
        let done = self.by_completion.partition_point(|&id| self.completed_by(id, position));
        let completed = &self.by_completion[..done];
        let settled = completed.iter().position(|&id| self.durable[id] > position).unwrap_or(done);
        let under_way =
            (0..self.log.len()).filter(|&id| self.log[id].issued <= position && !self.completed_by(id, position));
        let order: Vec<usize> = completed[settled..].iter().copied().chain(under_way).collect();
        let open = |id: &usize| match self.log[*id].request {
            Request::Flush | Request::FlushPart { .. } | Request::FailedFlush => false,
            Request::Discard { .. } if self.guarantees.discard == Discard::Ignored => false,
            _ => self.durable[*id] > position,
        };
        let pending_completed = order[..done - settled].iter().filter(|id| open(id)).count();
        let pending = order.iter().copied().filter(open).collect();
        Cut { log: self, position, settled, order, pending, pending_completed }
    }

    fn completed_by(&self, id: usize, position: usize) -> bool {
        self.log[id].completed.is_some_and(|completed| completed <= position)
    }

    /// The log in text, one event on a line, for a failure report.
    pub fn to_text(&self) -> String {
        let mut lines = BTreeMap::new();
        for (id, logged) in self.log.iter().enumerate() {
            lines.insert(logged.issued, format!("#{id} {}", logged.request));
            if let Some(completed) = logged.completed {
                let what = if self.durable[id] == completed { "complete, durable" } else { "complete" };
                lines.insert(completed, format!("#{id} {what}"));
            }
        }
        lines.iter().map(|(position, line)| format!("{position:5} {line}\n")).collect()
    }
}

/// The flushes of the same part of a device.
struct Flushes<'a> {
    /// Any one of them.
    one: &'a Request,
    /// For each, the latest first: the first to complete of those issued with it or later. A request is thus looked up
    /// without a look at every flush.
    first: Vec<CompletedFlush>,
}

#[derive(Clone, Copy)]
struct CompletedFlush {
    /// Of the flush to which this belongs.
    issued: usize,
    completed: usize,
    fails: bool,
}

impl Flushes<'_> {
    /// All that have completed.
    fn of(log: &[Logged]) -> Vec<Flushes<'_>> {
        let part = |request: &Request| match request {
            Request::FlushPart { at, sectors } => Some((*at, *sectors)),
            _ => None,
        };
        let mut all: Vec<Flushes> = Vec::new();
        for Logged { request, issued, completed } in log.iter().rev() {
            let Some(completed) = completed.filter(|_| request.is_flush()) else { continue };
            let flush = CompletedFlush { issued: *issued, completed, fails: matches!(request, Request::FailedFlush) };
            match all.iter_mut().find(|flushes| part(flushes.one) == part(request)) {
                Some(flushes) => {
                    let later = flushes.first[flushes.first.len() - 1];
                    let first = if later.completed < completed { later } else { flush };
                    flushes.first.push(CompletedFlush { issued: *issued, ..first });
                }
                None => all.push(Flushes { one: request, first: vec![flush] }),
            }
        }
        all
    }

    /// The first to complete of those issued after `position`.
    fn first_after(&self, position: usize) -> Option<CompletedFlush> {
        let count = self.first.partition_point(|flush| flush.issued > position);
        count.checked_sub(1).map(|index| self.first[index])
    }
}

/// The position from which `request`, completed at `completed`, is durable through one of `flushes`: the first that completes
/// decides.
fn durable_from(flushes: &[Flushes], completed: usize, request: &Request) -> usize {
    let covering = flushes.iter().filter(|flushes| flushes.one.covers(request));
    match covering.filter_map(|flushes| flushes.first_after(completed)).min_by_key(|flush| flush.completed) {
        Some(CompletedFlush { completed, fails: false, .. }) => completed,
        _ => usize::MAX,
    }
}

/// `hash` with one more request on the medium.
fn mix(hash: u64, id: usize, fate: Fate) -> u64 {
    use std::hash::{Hash, Hasher};
    let mut hasher = siphasher::sip::SipHasher13::new_with_keys(hash, id as u64);
    fate.hash(&mut hasher);
    hasher.finish()
}

/// A power cut at one position of a [`CrashLog`].
pub struct Cut<'a> {
    log: &'a CrashLog,
    pub position: usize,
    /// The first N requests of `by_completion` are on the medium in every state.
    settled: usize,
    /// The other requests that were issued, in the order in which they take effect.
    order: Vec<usize>,
    /// Of those, the ones whose fate is open.
    pending: Vec<usize>,
    /// The first N pending ones had completed.
    pending_completed: usize,
}

impl Cut<'_> {
    /// The requests whose fate is open: first those that had completed, in that order, then those under way.
    pub fn pending(&self) -> impl Iterator<Item = &Request> {
        self.pending.iter().map(|&id| &self.log.log[id].request)
    }

    /// States to look at: a function of the log, the effort and the seed alone.
    pub fn choices(&self, effort: &Effort, seed: u64) -> Vec<Choice> {
        let mut rng = Rng::new(seed ^ (self.position as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut choices = if self.log.guarantees.ordered {
            self.ordered_choices(effort, &mut rng)
        } else {
            self.unordered_choices(effort, &mut rng)
        };
        let mut seen = BTreeSet::new();
        choices.retain(|choice| seen.insert((choice.fates.clone(), if self.redrawn() { choice.salt } else { 0 })));
        choices
    }

    /// True when discards of undefined effect are in play, so that states differ by their salt as well.
    fn redrawn(&self) -> bool {
        let is_discard = |&id: &usize| matches!(self.log.log[id].request, Request::Discard { .. });
        self.log.guarantees.discard == Discard::Undefined && self.order.iter().any(is_discard)
    }

    fn choice(&self, fates: Vec<Fate>, rng: &mut Rng) -> Choice {
        Choice { fates, salt: rng.next_u64() }
    }

    fn tear(&self, index: usize, rng: &mut Rng) -> Fate {
        let (at, sectors) = self.log.log[self.pending[index]].request.span();
        let units = units_of(at, sectors, u64::from(self.log.guarantees.atomic_write_bytes)).len() as u64;
        if units < 2 {
            return *rng.pick(&[Fate::Absent, Fate::Present]);
        }
        let count = rng.between(1, units - 1) as u32;
        let (last, scattered) = (units as u32 - 1, rng.next_u64());
        Fate::Torn(*rng.pick(&[
            Tear::First(1),
            Tear::First(last),
            Tear::First(count),
            Tear::Rest(1),
            Tear::Rest(last),
            Tear::Scattered(scattered),
        ]))
    }

    fn unordered_choices(&self, effort: &Effort, rng: &mut Rng) -> Vec<Choice> {
        let count = self.pending.len();
        let mut all = vec![vec![Fate::Absent; count]];
        if count <= effort.all_subsets_of.min(16) {
            let fate = |subset: u32, i: usize| if subset & (1 << i) == 0 { Fate::Absent } else { Fate::Present };
            all = (0..1 << count).map(|subset| (0..count).map(|i| fate(subset, i)).collect()).collect();
        } else {
            all.push(vec![Fate::Present; count]);
            for single in count.saturating_sub(effort.singles)..count {
                for (one, others) in [(Fate::Present, Fate::Absent), (Fate::Absent, Fate::Present)] {
                    let mut fates = vec![others; count];
                    fates[single] = one;
                    all.push(fates);
                }
            }
        }
        if count > 0 {
            for tear in 0..effort.tears {
                let others = if tear % 2 == 0 { Fate::Present } else { Fate::Absent };
                let mut fates = vec![others; count];
                // Every other pair of tears hits the latest request, which is where the interesting writes are; one of a pair
                // among writes that are there, one among writes that are not.
                let index = if tear % 4 < 2 { count - 1 } else { rng.below(count as u64) as usize };
                fates[index] = self.tear(index, rng);
                all.push(fates);
            }
            for _ in 0..effort.samples {
                let fates = (0..count).map(|index| match rng.below(3) {
                    0 => Fate::Absent,
                    1 => Fate::Present,
                    _ => self.tear(index, rng),
                });
                all.push(fates.collect());
            }
        }
        all.into_iter().map(|fates| self.choice(fates, rng)).collect()
    }

    fn ordered_choices(&self, effort: &Effort, rng: &mut Rng) -> Vec<Choice> {
        let (count, completed) = (self.pending.len(), self.pending_completed);
        let prefix = |length: usize| -> Vec<Fate> {
            (0..count).map(|index| if index < length { Fate::Present } else { Fate::Absent }).collect()
        };
        let mut all = vec![prefix(0), prefix(completed), prefix(count)];
        let ends = (completed + 1).min((effort.singles + effort.samples).max(1));
        let every = ends == completed + 1;
        let lengths: Vec<usize> =
            (0..ends).map(|end| if every { end } else { rng.below(completed as u64 + 1) as usize }).collect();
        all.extend(lengths.iter().map(|&length| prefix(length)));
        for tear in 0..effort.tears {
            let length = lengths[tear % lengths.len()];
            if length < count {
                let mut torn = prefix(length);
                torn[length] = self.tear(length, rng);
                all.push(torn);
            }
        }
        if count > completed {
            for _ in 0..effort.tears + effort.samples {
                let mut fates = prefix(completed);
                for (index, fate) in fates.iter_mut().enumerate().skip(completed) {
                    *fate = match rng.below(3) {
                        0 => Fate::Absent,
                        1 => Fate::Present,
                        _ => self.tear(index, rng),
                    };
                }
                all.push(fates);
            }
        }
        all.into_iter().map(|fates| self.choice(fates, rng)).collect()
    }

    /// The fate of each request in `order`.
    fn fates<'b>(&'b self, choice: &'b Choice) -> impl Iterator<Item = (usize, Fate)> + 'b {
        let mut open = self.pending.iter().zip(&choice.fates).peekable();
        self.order.iter().map(move |&id| match open.next_if(|(pending, _)| **pending == id) {
            Some((_, fate)) => (id, *fate),
            None => (id, Fate::Present),
        })
    }

    /// Distinguishes this state from the other states of the same log: which requests are on the medium, and how.
    pub fn key(&self, choice: &Choice) -> u64 {
        let applied = self.fates(choice).filter(|(_, fate)| *fate != Fate::Absent);
        let key = applied.fold(self.log.hashes[self.settled], |hash, (id, fate)| mix(hash, id, fate));
        if self.redrawn() { key ^ choice.salt } else { key }
    }

    /// What is on the medium in the state `choice`.
    pub fn image(&self, choice: &Choice) -> Image {
        self.apply(self.log.fold(self.settled, false), choice).0
    }

    /// The same with its [`Image::content_hash`], which costs no more than what the open requests write.
    pub fn image_and_hash(&self, choice: &Choice) -> (Image, u64) {
        let (image, hash) = self.apply(self.log.fold(self.settled, true), choice);
        let hash = hash.unwrap_or_else(|| image.content_hash());
        (image, hash)
    }

    fn apply(&self, (mut image, mut hash): (Image, Option<u64>), choice: &Choice) -> (Image, Option<u64>) {
        let Guarantees { atomic_write_bytes, discard, .. } = self.log.guarantees;
        for (id, fate) in self.fates(choice) {
            let request = &self.log.log[id].request;
            let discard = Effect::draw(discard, choice.salt ^ id as u64);
            match fate {
                Fate::Present => put(request, &mut image, &mut hash, |image| request.apply(image, discard)),
                Fate::Absent => {}
                Fate::Torn(tear) => put(request, &mut image, &mut hash, |image| {
                    request.apply_torn(image, u64::from(atomic_write_bytes), tear, discard);
                }),
            }
        }
        (image, hash)
    }

    /// The state in words: what was pending, and what became of it.
    pub fn to_text(&self, choice: &Choice) -> String {
        let mut text = format!("power cut after {} events", self.position);
        for (id, fate) in self.pending.iter().zip(&choice.fates) {
            text += &format!("\n    #{id} {}: {fate:?}", self.log.log[*id].request);
        }
        text
    }
}

/// What a discard does to a sector.
#[derive(Clone, Copy)]
pub(super) enum Effect {
    None,
    Zeroes,
    /// Each sector as it was, zero or garbage, as the seed says.
    Drawn(u64),
}

impl Effect {
    pub(super) fn draw(discard: Discard, seed: u64) -> Effect {
        match discard {
            Discard::Ignored => Effect::None,
            Discard::Zeroes => Effect::Zeroes,
            Discard::Undefined => Effect::Drawn(seed),
        }
    }

    /// That of one unit of a torn discard: each has its own fate.
    fn at(self, start: Sector) -> Effect {
        match self {
            Effect::Drawn(seed) => Effect::Drawn(Rng::new(seed ^ start.0).next_u64()),
            other => other,
        }
    }
}

impl Request {
    /// Puts all of the request on the medium.
    pub(super) fn apply(&self, image: &mut Image, discard: Effect) {
        match self {
            Request::Write { at, data, .. } => image.write(*at, data),
            Request::Discard { at, sectors } => discard_span(image, *at, *sectors, discard),
            Request::Flush | Request::FlushPart { .. } | Request::FailedFlush => {}
        }
    }

    /// Puts the units of `tear` on the medium.
    fn apply_torn(&self, image: &mut Image, grain_bytes: u64, tear: Tear, discard: Effect) {
        let (at, sectors) = self.span();
        let units = units_of(at, sectors, grain_bytes);
        let kept = tear.kept(units.len());
        for ((start, length), _) in units.into_iter().zip(kept).filter(|(_, kept)| *kept) {
            match self {
                Request::Write { data, .. } => {
                    let offset = ((start - at) * SECTOR_BYTES) as usize;
                    image.write(start, &data[offset..offset + (length * SECTOR_BYTES) as usize]);
                }
                Request::Discard { .. } => discard_span(image, start, length, discard.at(start)),
                Request::Flush | Request::FlushPart { .. } | Request::FailedFlush => {}
            }
        }
    }
}

fn discard_span(image: &mut Image, at: Sector, sectors: u64, effect: Effect) {
    let mut rng = match effect {
        Effect::None => return,
        Effect::Zeroes => return image.zero(at, sectors),
        Effect::Drawn(seed) => Rng::new(seed),
    };
    for sector in at.0..at.0 + sectors {
        let mut garbage = [0; SECTOR_BYTES as usize];
        match rng.below(3) {
            0 => {}
            1 => image.zero(Sector(sector), 1),
            _ => {
                rng.fill(&mut garbage);
                image.write(Sector(sector), &garbage);
            }
        }
    }
}

/// The parts of a span that the device writes as a whole: aligned units of `grain_bytes`, and single sectors
/// where the span covers such a unit only in part.
fn units_of(at: Sector, sectors: u64, grain_bytes: u64) -> Vec<(Sector, u64)> {
    let grain = (grain_bytes / SECTOR_BYTES).max(1);
    let (mut sector, end) = (at.0, at.0 + sectors);
    let mut units = Vec::new();
    while sector < end {
        let whole = sector.is_multiple_of(grain) && sector + grain <= end;
        let length = if whole { grain } else { 1 };
        units.push((Sector(sector), length));
        sector += length;
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Aim: a request is durable from the first flush that was issued after it, covers it, and completes; from none if that one
    /// fails. Method: the definition, over all flushes, on drawn logs with flushes of the whole and of parts, some under way
    /// at once.
    #[test]
    fn the_first_flush_that_completes_decides() {
        let mut failed = 0;
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut log: Vec<Logged> = Vec::new();
            for position in 1..200 {
                let open: Vec<usize> = (0..log.len()).filter(|&id| log[id].completed.is_none()).collect();
                if !open.is_empty() && rng.chance(1, 2) {
                    log[open[rng.below(open.len() as u64) as usize]].completed = Some(position);
                    continue;
                }
                let at = Sector(rng.below(4) * 8);
                let request = match rng.below(10) {
                    0 => Request::Flush,
                    1 => Request::FailedFlush,
                    2 | 3 => Request::FlushPart { at: Sector(at.0 / 16 * 16), sectors: 16 },
                    _ => Request::Discard { at, sectors: 8 },
                };
                log.push(Logged { request, issued: position, completed: None });
            }
            let flushes = Flushes::of(&log);
            for Logged { request, completed, .. } in &log {
                let Some(completed) = *completed else { continue };
                let later = log.iter().filter(|flush| {
                    flush.request.is_flush() && flush.issued > completed && flush.request.covers(request)
                });
                let first = later.filter(|flush| flush.completed.is_some()).min_by_key(|flush| flush.completed);
                let expected = match first {
                    Some(Logged { request: Request::FailedFlush, .. }) | None => usize::MAX,
                    Some(flush) => flush.completed.unwrap(),
                };
                failed += usize::from(first.is_some() && expected == usize::MAX);
                assert_eq!(durable_from(&flushes, completed, request), expected, "seed {seed}: {log:#?}");
            }
        }
        assert!(failed > 100, "{failed}");
    }
}
