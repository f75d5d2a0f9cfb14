//! Aim: a power cut loses nothing durable, adds nothing that was never written, and tears no request; the disk works as
//! well after it. Method: recorded runs on devices with the weakest guarantees; every block says which write it is
//! from; cuts at many positions, several states of each, and a second run after some of them.

use std::cell::RefCell;

use super::*;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::cut::{CrashLog, Effort, Request};
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::testing::volumes::life::must_have_covered;
use crate::vlog::format::{ANCHORS, FIXED_SECTORS};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Volatile,
    WriteThrough,
    HostFile,
    InOrder,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    kind: Kind,
    map_log: MapLog,
    commit: CommitUse,
    block_bytes: u32,
    bytes: u64,
    window: u64,
    seed: u64,
}

/// A write or discard, by positions in the device's log.
struct Change {
    number: u64,
    first: u64,
    blocks: u64,
    issued: usize,
    durable: Option<usize>,
    acknowledged: Option<usize>,
}

struct Recording {
    log: CrashLog,
    /// In the order of issue; none overlaps another that was under way.
    changes: Vec<Change>,
    /// Blocks before the first change.
    base: Vec<u64>,
    from: usize,
}

impl Case {
    fn device(&self, record: bool, latency: bool) -> CrashOptions {
        let options = match self.kind {
            Kind::Volatile => CrashOptions::volatile(self.bytes),
            Kind::WriteThrough => CrashOptions::write_through(self.bytes),
            Kind::HostFile => CrashOptions::host_file(self.bytes),
            Kind::InOrder => CrashOptions::in_order(self.bytes),
        };
        let none = Nanos::ZERO..=Nanos::ZERO;
        let latency = if latency { options.latency.clone() } else { none };
        CrashOptions { seed: self.seed, record, latency, ..options }
    }

    /// Its lives end with the disk put away.
    fn is_closed(&self) -> bool {
        self.seed.is_multiple_of(6)
    }

    fn options(&self) -> Options {
        Options { commit: self.commit, window: self.window, ..Options::default() }
    }

    fn plan(&self) -> Plan {
        Plan { block_bytes: self.block_bytes, map_log: self.map_log, reserve: 1500, ..plan() }
    }

    /// A run on `image`, or on a new disk.
    async fn live(&self, rt: &Rt, image: Option<(Image, Vec<u64>)>, turns: u64, first_number: u64) -> Recording {
        let is_new = image.is_none();
        let (image, base) = image.unwrap_or_default();
        let device = CrashDevice::new(rt, image, self.device(true, true));
        let vld = match is_new {
            true => Vld::create(rt, device.clone(), &self.plan(), self.options()).await,
            false => Vld::open(rt, device.clone(), self.options()).await,
        };
        let vld = vld.unwrap_or_else(|error| panic!("{self:?}: {error}"));
        let blocks = vld.geometry().sectors * SECTOR_BYTES / u64::from(self.block_bytes);
        let base = if is_new { vec![0; blocks as usize] } else { base };
        let from = if is_new { device.position() } else { 0 };
        let changes: RefCell<Vec<Change>> = RefCell::default();
        let longest = (vld.transaction_bytes_max() / u64::from(self.block_bytes)).min(24);
        let clients = (0..3).map(|client| {
            let (vld, device, changes) = (vld.clone(), device.clone(), &changes);
            async move {
                let mut rng = Rng::new(self.seed * 10 + client + first_number * 77);
                let slice = blocks / 3;
                for turn in 0..turns {
                    let issued = device.position();
                    if rng.chance(1, 4) {
                        // By number and not by position: a discard may need nothing of the device, and be acknowledged
                        // at the position where the flush began, but after it.
                        let is_covered = |change: &Change| change.acknowledged.is_some() && change.durable.is_none();
                        let covered: Vec<bool> = changes.borrow().iter().map(is_covered).collect();
                        vld.flush().await.expect("it can be flushed");
                        let now = device.position();
                        for (change, is_covered) in changes.borrow_mut().iter_mut().zip(covered) {
                            if is_covered {
                                change.durable = Some(now);
                            }
                        }
                        continue;
                    }
                    let length = if rng.chance(1, 2) { 1 } else { rng.between(1, longest.min(slice)) };
                    let first = client * slice + rng.below(slice - length + 1);
                    let is_discard = rng.chance(1, 8);
                    let fua = !is_discard && rng.chance(1, 4);
                    let number = if is_discard { 0 } else { first_number + client * 1000 + turn + 1 };
                    let id = changes.borrow().len();
                    let (durable, acknowledged) = (None, None);
                    let change = Change { number, first, blocks: length, issued, durable, acknowledged };
                    changes.borrow_mut().push(change);
                    let at = Sector(first * u64::from(self.block_bytes) / SECTOR_BYTES);
                    let sectors = length * u64::from(self.block_bytes) / SECTOR_BYTES;
                    match is_discard {
                        true => vld.discard(at, sectors).await.expect("it can be discarded"),
                        false => {
                            let block = self.block_bytes as usize;
                            let data = (first..first + length).flat_map(|at| stamp(at, number, block));
                            let data = Data::from_slice(&data.collect::<Vec<u8>>());
                            vld.write(at, data, WriteFlags { fua }).await.expect("there is room");
                        }
                    }
                    let now = device.position();
                    let mut changes = changes.borrow_mut();
                    changes[id].acknowledged = Some(now);
                    changes[id].durable = (fua || vld.commits_each()).then_some(now);
                }
                if client == 0 && self.seed.is_multiple_of(3) {
                    vld.release().await.expect("it can be put away");
                }
            }
        });
        futures_util::future::join_all(clients).await;
        if self.is_closed() {
            vld.release().await.expect("it can be put away");
        }
        vld.check_invariants().unwrap_or_else(|what| panic!("{self:?}: {what}"));
        assert_eq!(device.violations(), Vec::<String>::new(), "{self:?}");
        Recording { log: device.log(), changes: changes.into_inner(), base, from }
    }

    /// Examines cuts of a run; returns the number of states.
    async fn explore(&self, rt: &Rt, recording: &Recording, positions_max: usize, next_lives: usize) -> usize {
        let all = recording.log.positions();
        let mut positions: Vec<usize> = all.into_iter().filter(|&position| position >= recording.from).collect();
        let mut rng = Rng::new(self.seed + 17);
        rng.shuffle(&mut positions);
        positions.truncate(positions_max);
        let mut states = 0;
        for (turn, position) in positions.into_iter().enumerate() {
            let cut = recording.log.cut(position);
            for choice in cut.choices(&Effort::SAMPLED, self.seed) {
                states += 1;
                let image = cut.image(&choice);
                match self.examine(rt, image.clone(), recording, position).await {
                    Err(what) => {
                        panic!("{self:?}\n{what}\n{}\n{}", cut.to_text(&choice), recording.log.to_text())
                    }
                    Ok(found) if turn < next_lives => {
                        let next = self.live(rt, Some((image, found)), 6, 100_000).await;
                        states += Box::pin(self.explore(rt, &next, 6, 0)).await;
                    }
                    Ok(_) => {}
                }
            }
        }
        states
    }

    /// The content of a state, if it is allowed.
    async fn examine(&self, rt: &Rt, image: Image, recording: &Recording, position: usize) -> Result<Vec<u64>, String> {
        let device: Device = CrashDevice::new(rt, image, self.device(false, false));
        let checkup = check(&device).await.map_err(|error| error.to_string())?;
        if !checkup.errors.is_empty() || !checkup.notes.is_empty() {
            return Err(format!("{checkup:?}"));
        }
        let opened = Vld::open(rt, device.clone(), self.options()).await;
        let vld = opened.map_err(|error| format!("cannot open: {error}"))?;
        vld.check_invariants()?;
        let recovery = vld.recovery();
        let bound = self.window / u64::from(self.block_bytes);
        if self.map_log == MapLog::Tree && recovery.blocks_scanned > bound {
            return Err(format!("{recovery:?} with a window of {bound} blocks"));
        }
        let mut found = Vec::new();
        for block in 0..recording.base.len() as u64 {
            found.push(number_of(&vld, block).await);
        }
        let mut expected: Vec<Vec<u64>> = recording.base.iter().map(|&number| vec![number]).collect();
        for change in recording.changes.iter().filter(|change| change.issued <= position) {
            let is_durable = change.durable.is_some_and(|when| when <= position);
            for allowed in &mut expected[change.first as usize..(change.first + change.blocks) as usize] {
                if is_durable {
                    allowed.clear();
                }
                allowed.push(change.number);
            }
        }
        for (block, allowed) in expected.iter().enumerate() {
            if !allowed.contains(&found[block]) {
                return Err(format!("block {block} holds write {}; {allowed:?} may be there", found[block]));
            }
        }
        // All or nothing: where one block is of a write, every other is of it or of a later one.
        for (id, change) in recording.changes.iter().enumerate().filter(|(_, change)| change.number > 0) {
            let range = change.first as usize..(change.first + change.blocks) as usize;
            if !found[range.clone()].contains(&change.number) {
                continue;
            }
            for block in range {
                let is_later = recording.changes[id..].iter().any(|later| {
                    later.number == found[block] && (later.first..later.first + later.blocks).contains(&(block as u64))
                });
                if !is_later {
                    let (number, there) = (change.number, found[block]);
                    return Err(format!("write {number} is there in part: block {block} is of {there}"));
                }
            }
        }
        Ok(found)
    }
}

impl Case {
    /// Without its anchors, all of the disk is searched, and holds the same.
    async fn search_everywhere(&self, rt: &Rt, mut image: Image, held: &[u64]) {
        for at in ANCHORS {
            image.zero(Sector(at), FIXED_SECTORS);
        }
        let device: Device = CrashDevice::new(rt, image, self.device(false, false));
        let vld = Vld::open(rt, device, self.options()).await.unwrap_or_else(|error| panic!("{self:?}: {error}"));
        for (block, &number) in held.iter().enumerate() {
            assert_eq!(number_of(&vld, block as u64).await, number, "{self:?}: block {block}, without anchors");
        }
    }
}

fn explore(kinds: &[Kind], commits: &[CommitUse], map_log: MapLog) {
    let mut states = 0;
    for seed in 1..=soak().times(2) {
        for &kind in kinds {
            for &commit in commits {
                let (block_bytes, bytes) = match kind {
                    Kind::HostFile => (4096, 300 * KIB),
                    _ => ([512, 1024, 4096][seed as usize % 3], 400 * KIB),
                };
                let window = if seed % 2 == 0 { MIB } else { 64 * KIB };
                let bytes = if block_bytes == 4096 && kind != Kind::HostFile { 800 * KIB } else { bytes };
                // An append-only log has a ring of 64 cells and more.
                let bytes = if map_log == MapLog::Append && kind == Kind::HostFile { MIB } else { bytes };
                let case = Case { kind, map_log, commit, block_bytes, bytes, window, seed };
                states += run(seed, async |rt: Rt| {
                    let recording = case.live(&rt, None, 16, 0).await;
                    case.explore(&rt, &recording, 30, 3).await
                });
            }
        }
    }
    println!("{states} states");
    assert!(states > 1000, "{states}");
}

#[test]
fn cuts_while_each_request_is_committed() {
    let kinds = [Kind::Volatile, Kind::WriteThrough, Kind::HostFile, Kind::InOrder];
    explore(&kinds, &[CommitUse::Each], MapLog::Tree);
}

#[test]
fn cuts_while_flushes_commit() {
    explore(&[Kind::Volatile, Kind::HostFile, Kind::InOrder], &[CommitUse::Flush], MapLog::Tree);
}

#[test]
fn cuts_with_an_append_only_log() {
    explore(&[Kind::Volatile, Kind::HostFile], &[CommitUse::Each, CommitUse::Flush], MapLog::Append);
}

/// Aim: emptying and putting in order leave no moment at which data could be lost. Method: a disk with a head cannot be
/// cut, so its writes are passed on to a device that can: the moves are made by hand between requests.
#[test]
fn cuts_while_idle_time_is_used() {
    let mut states = 0;
    for seed in 1..=soak().times(3) {
        let case = Case {
            kind: Kind::WriteThrough,
            map_log: MapLog::Tree,
            commit: CommitUse::Each,
            block_bytes: 4096,
            bytes: 6 * MIB,
            window: 2 * MIB,
            seed,
        };
        states += run(seed, async |rt: Rt| {
            let device = CrashDevice::new(&rt, Image::default(), case.device(true, true));
            let vld = Vld::create(&rt, device.clone(), &case.plan(), case.options()).await.expect("made");
            let blocks = vld.geometry().bytes() / 4096;
            let mut newest = vec![0; blocks as usize];
            let mut rng = Rng::new(seed);
            for number in 1..=blocks {
                let block = rng.below(blocks * 2 / 3);
                write(&vld, block, 1, number).await;
                newest[block as usize] = number;
            }
            let from = device.position();
            let steps = vld.settle().await.expect("it can be settled");
            assert!(steps > 0);
            vld.check_invariants().expect("all promises hold");
            let recording = Recording { log: device.log(), changes: Vec::new(), base: newest, from };
            case.explore(&rt, &recording, 25, 0).await
        });
    }
    println!("{states} states");
    assert!(states > 100, "{states}");
}

/// Aim: a disk stays correct however often it is overwritten and cut. Method: random requests, a cut, and on with the
/// resulting state, repeatedly: thousands of writes, and with `SEEKLESS_SOAK=400` a million.
#[test]
fn a_long_life_with_cuts() {
    crate::rt::covered();
    let (mut writes, mut cuts) = (0, 0);
    for (kind, commit) in [
        (Kind::Volatile, CommitUse::Flush),
        (Kind::HostFile, CommitUse::Each),
        (Kind::WriteThrough, CommitUse::Each),
        (Kind::InOrder, CommitUse::Flush),
    ] {
        let mut state = None;
        let mut left = (soak().times(2500) / 4) as i64;
        for leg in 1.. {
            let block_bytes = if kind == Kind::HostFile { 4096 } else { 1024 };
            let (bytes, window) = (u64::from(block_bytes) * 400, 64 * KIB);
            let case = Case { kind, map_log: MapLog::Tree, commit, block_bytes, bytes, window, seed: leg };
            let (next, written) = run(leg, async |rt: Rt| {
                let recording = case.live(&rt, state.take(), 60, leg * 4000).await;
                let positions: Vec<usize> = recording.log.positions();
                let behind = positions.into_iter().filter(|&position| position >= recording.from);
                let positions: Vec<usize> = behind.collect();
                let mut rng = Rng::new(leg);
                let position = match case.is_closed() {
                    true => positions[positions.len() - 1],
                    false => positions[rng.below(positions.len() as u64) as usize],
                };
                let cut = recording.log.cut(position);
                let choices = cut.choices(&Effort::SAMPLED, leg);
                let choice = &choices[rng.below(choices.len() as u64) as usize];
                let image = cut.image(choice);
                let found = case.examine(&rt, image.clone(), &recording, position).await;
                let found = found.unwrap_or_else(|what| panic!("{case:?}, leg {leg}\n{what}\n{}", cut.to_text(choice)));
                if leg % 4 == 0 {
                    case.search_everywhere(&rt, image.clone(), &found).await;
                }
                let before = recording.changes.iter().filter(|change| change.issued <= position);
                ((image, found), before.filter(|change| change.number > 0).count() as i64)
            });
            state = Some(next);
            (writes, cuts, left) = (writes + written, cuts + 1, left - written);
            if left <= 0 {
                break;
            }
        }
    }
    must_have_covered("vlog::tests::cuts::a_long_life_with_cuts", POINTS);
    println!("{writes} writes, {cuts} cuts");
    assert!(writes >= 2500 && cuts > 20, "{writes} writes, {cuts} cuts");
}

/// What a long life comes to.
const POINTS: &[&str] = &[
    "vlog: a parked log names its tail",
    "vlog: the tail is found by a search",
    "vlog: the tail is searched for everywhere",
    "vlog: the tail is the one that the anchor names",
];

/// Aim: what a start shows is durable (C5), also where the last process was killed in a transaction that is in the cache of
/// the device alone. Method: SIGKILL at every moment of some transactions; a start, and writes to other blocks, which get
/// the places that the last transaction freed; a power cut, and several of the states that it may leave.
#[test]
fn killed_and_then_cut() {
    const BLOCKS: u64 = 12;
    let mut states = 0;
    for commit in [CommitUse::Flush, CommitUse::Each] {
        run(1, async |rt: Rt| {
            let options = Options { commit, ..Options::default() };
            let device = CrashDevice::new(&rt, Image::default(), CrashOptions::volatile(MIB));
            let vld = Vld::create(&rt, device.clone(), &plan(), options).await.expect("made");
            let from = device.position();
            for number in 1..6 {
                write(&vld, 0, BLOCKS, number).await;
                vld.flush().await.expect("it can be flushed");
            }
            let log = device.log();
            for position in log.positions().into_iter().filter(|&position| position >= from) {
                let killed = log.cut(position);
                // The first choice contains only what is certainly durable.
                let certain = killed.image(&killed.choices(&Effort::SAMPLED, 1)[0]);
                let device = CrashDevice::new(&rt, certain, CrashOptions::volatile(MIB));
                for request in killed.pending() {
                    if let Request::Write { at, data, .. } = request {
                        device.write(*at, data.clone(), WriteFlags::NONE).await.expect("it is written");
                    }
                }
                let again = Vld::open(&rt, device.clone(), options).await.expect("it opens");
                let mut shown = Vec::new();
                for block in 0..BLOCKS {
                    shown.push(number_of(&again, block).await);
                }
                write(&again, 2 * BLOCKS, 3 * BLOCKS, 9).await;
                let log = device.log();
                let cut = log.cut(device.position());
                for choice in cut.choices(&Effort::SAMPLED, 1) {
                    let left: Device = Rc::new(Memory::from_image(MIB, cut.image(&choice)));
                    let last = Vld::open(&rt, left, options).await.expect("it opens after the cut");
                    for block in 0..BLOCKS {
                        let found = number_of(&last, block).await;
                        let place = format_args!("block {block}, killed at {position}");
                        assert_eq!(found, shown[block as usize], "{place}\n{}", cut.to_text(&choice));
                    }
                    states += 1;
                }
            }
        });
    }
    assert!(states > 300, "{states}");
}

/// Aim: a disk that is put away after a power cut is parked even if nothing has changed since, and cuts while it is put away and
/// after its next use lose nothing. Method: a cut in some transactions; a start, put away twice, cut at each request of that; a
/// start, a write, and a third cut; several states of each.
#[test]
fn put_away_after_a_cut_without_a_change() {
    const BLOCKS: u64 = 12;
    async fn shown(vld: &Rc<Vld>) -> Vec<u64> {
        let mut shown = Vec::new();
        for block in 0..BLOCKS {
            shown.push(number_of(vld, block).await);
        }
        shown
    }
    let (mut searched, mut states) = (0, 0);
    for commit in [CommitUse::Flush, CommitUse::Each] {
        run(1, async |rt: Rt| {
            let options = Options { commit, window: 64 * KIB, ..Options::default() };
            let resume = |image: Image| CrashDevice::new(&rt, image, CrashOptions::volatile(MIB));
            let device = resume(Image::default());
            let vld = Vld::create(&rt, device.clone(), &plan(), options).await.expect("made");
            let from = device.position();
            for number in 1..5 {
                write(&vld, 0, BLOCKS, number).await;
                vld.flush().await.expect("it can be flushed");
            }
            let log = device.log();
            for position in log.positions().into_iter().filter(|&position| position >= from) {
                let first = log.cut(position);
                for choice in first.choices(&Effort::SAMPLED, 1).iter().take(3) {
                    let device = resume(first.image(choice));
                    let below: Device = device.clone();
                    let again = Vld::open(&rt, below.clone(), options).await.expect("it opens");
                    let before = shown(&again).await;
                    let is_due = u64::from(!again.recovery().was_parked);
                    searched += is_due;
                    for _ in 0..2 {
                        again.release().await.expect("it can be put away");
                        let info = probe(&below).await.expect("it can be read").expect("there is one");
                        assert!(info.is_parked, "cut at {position}\n{}", first.to_text(choice));
                        assert_eq!(again.core.counts.anchors_written.get(), is_due, "it is parked once");
                    }
                    let log = device.log();
                    for position in log.positions() {
                        let second = log.cut(position);
                        for choice in second.choices(&Effort::SAMPLED, 1).iter().take(3) {
                            let device = resume(second.image(choice));
                            let next = Vld::open(&rt, device.clone(), options).await.expect("it opens again");
                            assert_eq!(shown(&next).await, before, "{}", second.to_text(choice));
                            write(&next, 2 * BLOCKS, BLOCKS, 9).await;
                            let log = device.log();
                            let third = log.cut(device.position());
                            for choice in third.choices(&Effort::SAMPLED, 1).iter().take(3) {
                                let left: Device = Rc::new(Memory::from_image(MIB, third.image(choice)));
                                let last = Vld::open(&rt, left, options).await.expect("it opens after three cuts");
                                assert_eq!(shown(&last).await, before, "{}", third.to_text(choice));
                                states += 1;
                            }
                        }
                    }
                }
            }
        });
    }
    println!("{searched} searched, {states} states");
    assert!(searched > 20 && states > 300, "{searched} searched, {states} states");
}

/// Aim: requests that overtake each other below do no harm. Method: cuts again, with delays drawn for each request.
#[test]
fn cuts_with_requests_that_overtake_each_other() {
    for seed in 1..=soak().times(2) {
        run(seed, async |rt: Rt| {
            let memory = Rc::new(Memory::new(MIB));
            let fault = FaultDevice::new(&rt, memory.clone(), seed);
            fault.add(Rule::new(Kinds::all(), When::Always, Effect::Delay(Nanos(1)..=Nanos(500))));
            let vld = Vld::create(&rt, fault, &plan(), Options::default()).await.expect("made");
            for round in 1..30 {
                let writers = (0..10).map(|writer| write(&vld, writer * 5, 5, round * 10 + writer));
                futures_util::future::join_all(writers).await;
                let copy: Device = Rc::new(Memory::from_image(MIB, memory.image()));
                let again = Vld::open(&rt, copy, Options::default()).await.expect("it opens");
                for block in 0..50 {
                    assert_eq!(number_of(&again, block).await, round * 10 + block / 5);
                }
            }
        });
    }
}
