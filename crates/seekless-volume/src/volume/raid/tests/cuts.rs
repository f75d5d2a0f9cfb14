//! Aim: a power cut loses nothing durable and adds nothing that was never written, in every state of an array; and data
//! read after it does not change, whichever member fails then. Method: members that are parts of one crash device and
//! are flushed one by one; every sector says which write it is from; cuts at many positions of a recorded run, several
//! states of each.

use std::cell::RefCell;

use super::faults::Members;
use super::*;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::cut::{CrashLog, Effort};
use crate::rng::Rng;
use crate::testing::environment::soak;

/// Sectors of a member. Most of them are metadata.
const SECTORS: u64 = 360;

/// Scenario for the members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plot {
    /// All members work.
    Complete,
    /// One is missing from the start.
    Degraded(usize),
    /// One fails at the given request of the run.
    Fails(usize, u64),
    /// One is being rebuilt during the run.
    Rebuilds(usize),
    /// It is opened again after use, complete or without the given one, and ended; the power fails only during that.
    Reopens(Option<usize>),
}

#[derive(Clone, Copy, Debug)]
struct Case {
    level: Level,
    members: usize,
    journal: JournalUse,
    plot: Plot,
    seed: u64,
    is_host_file: bool,
}

/// One write to a sector, by positions in the device's log.
struct Version {
    number: u64,
    issued: usize,
    acknowledged: Option<usize>,
    durable: Option<usize>,
}

/// For each sector, its writes, in order.
type History = Vec<Vec<Version>>;

struct Recording {
    log: CrashLog,
    history: History,
    from: usize,
    to: usize,
}

impl Case {
    fn options(&self) -> ArrayOptions {
        ArrayOptions { journal: self.journal, batch: 4 * KIB, progress: 8 * KIB, ..small(self.level).unit(self.unit()) }
    }

    fn unit(&self) -> u64 {
        if self.is_host_file { 8 } else { 4 }
    }

    fn device(&self) -> CrashOptions {
        let bytes = SECTORS * SECTOR_BYTES * self.members as u64;
        let options = if self.is_host_file { CrashOptions::host_file(bytes) } else { CrashOptions::volatile(bytes) };
        CrashOptions { seed: self.seed, ..options }
    }

    fn parts(&self, whole: &CrashDevice) -> Vec<Device> {
        (0..self.members).map(|slot| whole.part(Sector(slot as u64 * SECTORS), SECTORS) as Device).collect()
    }

    fn record(&self) -> Recording {
        let executor = Executor::simulated(self.seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        executor.block_on(self.record_on(&rt)).expect("nothing waits indefinitely")
    }

    async fn record_on(&self, rt: &Rt) -> Recording {
        let whole = CrashDevice::new(rt, Image::default(), self.device());
        let mut members = self.parts(&whole);
        let mut spare = None;
        match self.plot {
            Plot::Fails(victim, _) => spare = Some(FaultDevice::new(rt, members[victim].clone(), 1)),
            Plot::Complete | Plot::Degraded(_) | Plot::Rebuilds(_) | Plot::Reopens(_) => {}
        }
        if let (Plot::Fails(victim, _), Some(fault)) = (self.plot, &spare) {
            members[victim] = fault.clone();
        }
        let array = Array::create(rt, members.clone(), &self.options(), UUID, Contents::Zeroes).await.unwrap();
        let sectors = array.geometry().sectors;
        let history: RefCell<History> = RefCell::new((0..sectors).map(|_| Vec::new()).collect());
        if let Plot::Degraded(victim) | Plot::Rebuilds(victim) = self.plot {
            array.give_up(victim).await.unwrap();
        }
        array.flush().await.unwrap();
        whole.flush().await.unwrap();
        let from = whole.position();
        if let (Plot::Fails(_, nth), Some(fault)) = (self.plot, &spare) {
            fault.add(Rule::new(Kinds::all(), When::Nth(nth), Effect::Gone));
        }
        if let Plot::Rebuilds(victim) = self.plot {
            array.replace(victim, members[victim].clone()).await.unwrap();
        }
        let clients = (0..3u64).map(|client| {
            let (array, whole, history) = (array.clone(), whole.clone(), &history);
            async move {
                let mut rng = Rng::new(self.seed * 10 + client);
                let block = u64::from(array.geometry().block_bytes) / SECTOR_BYTES;
                let slice = sectors / 3 / block * block;
                for turn in 0..12u64 {
                    if rng.chance(1, 4) {
                        let issued = whole.position();
                        array.flush().await.unwrap();
                        let now = whole.position();
                        for version in history.borrow_mut().iter_mut().flatten() {
                            if version.durable.is_none() && version.acknowledged.is_some_and(|when| when <= issued) {
                                version.durable = Some(now);
                            }
                        }
                        continue;
                    }
                    let length = rng.between(1, 18.min(slice) / block) * block;
                    let at = client * slice + rng.below((slice - length) / block + 1) * block;
                    let number = client * 1000 + turn + 1;
                    let is_discard = array.guarantees().discard == Discard::Zeroes && rng.chance(1, 6);
                    let number = if is_discard { 0 } else { number };
                    let flags = WriteFlags { fua: !is_discard && rng.chance(1, 3) };
                    let issued = whole.position();
                    for sector in at..at + length {
                        let version = Version { number, issued, acknowledged: None, durable: None };
                        history.borrow_mut()[sector as usize].push(version);
                    }
                    match is_discard {
                        true => array.discard(Sector(at), length).await.unwrap(),
                        false => {
                            let bytes: Vec<u8> = (at..at + length).flat_map(|sector| stamp(sector, number)).collect();
                            array.write(Sector(at), Data::from_slice(&bytes), flags).await.unwrap();
                        }
                    }
                    let now = whole.position();
                    for sector in at..at + length {
                        if let Some(version) = history.borrow_mut()[sector as usize].last_mut() {
                            version.acknowledged = Some(now);
                            version.durable = flags.fua.then_some(now);
                        }
                    }
                }
            }
        });
        futures_util::future::join_all(clients).await;
        let (mut from, mut to) = (from, usize::MAX);
        if let Plot::Reopens(missing) = self.plot {
            match missing {
                // A row that is in doubt and misses a member would not be read any more.
                Some(_) => array.release().await.unwrap(),
                None => array.flush().await.unwrap(),
            }
            let now = whole.position();
            history
                .borrow_mut()
                .iter_mut()
                .flatten()
                .for_each(|version| version.durable = version.durable.or(Some(now)));
            drop(array);
            from = whole.position();
            let given = members.into_iter().enumerate();
            let given = given.map(|(slot, member)| (missing != Some(slot)).then_some(member)).collect();
            let options = ArrayOptions { degraded: missing.is_some(), ..self.options() };
            Array::open(rt, given, &options).await.unwrap().release().await.unwrap();
            to = whole.position();
        }
        assert_eq!(whole.violations(), Vec::<String>::new(), "{self:?}");
        Recording { log: whole.log(), history: history.into_inner(), from, to }
    }

    /// Examines cuts of a recorded run; returns the number of states.
    fn explore(&self, positions_max: usize) -> usize {
        let recording = self.record();
        let is_within = |position: &usize| (recording.from..=recording.to).contains(position);
        let mut positions: Vec<usize> = recording.log.positions().into_iter().filter(is_within).collect();
        let mut rng = Rng::new(self.seed);
        rng.shuffle(&mut positions);
        positions.truncate(positions_max);
        let mut states = 0;
        for position in positions {
            let cut = recording.log.cut(position);
            for choice in cut.choices(&Effort::SAMPLED, self.seed) {
                states += 1;
                let executor = Executor::simulated(self.seed, HostProfile::NONE);
                let rt = executor.rt().clone();
                let image = cut.image(&choice);
                let examined = executor.block_on(self.examine(&rt, image, &recording, position, states));
                if let Err(what) = examined.expect("nothing waits indefinitely") {
                    panic!("{self:?}\n{what}\n{}\n{}", cut.to_text(&choice), recording.log.to_text());
                }
            }
        }
        states
    }

    async fn examine(
        &self,
        rt: &Rt,
        image: Image,
        recording: &Recording,
        position: usize,
        turn: usize,
    ) -> Result<(), String> {
        let options = CrashOptions { record: false, latency: Nanos::ZERO..=Nanos::ZERO, ..self.device() };
        let whole = CrashDevice::new(rt, image, options);
        let members = self.parts(&whole);
        let mut given: Vec<Option<Device>> = members.iter().cloned().map(Some).collect();
        // When everything goes through the journal, the cut may take a member too: one that has failed, if one has.
        let lost = match self.plot {
            Plot::Complete => Some(turn % self.members),
            Plot::Fails(victim, _) if turn.is_multiple_of(2) => Some(victim),
            _ => None,
        };
        let lost = lost.filter(|_| self.journal == JournalUse::Always);
        if let Some(lost) = lost {
            given[lost] = None;
        }
        let options = ArrayOptions { degraded: lost.is_some(), ..self.options() };
        let array = Array::open(rt, given, &options).await.map_err(|error| format!("cannot open: {error}"))?;
        if self.plot == Plot::Reopens(None) && array.status().members.contains(&MemberState::Failed) {
            return Err(format!("not all members are believed: {:?}", array.status()));
        }
        let mut first = Vec::new();
        for sector in 0..array.geometry().sectors {
            if sector.is_multiple_of(self.block()) {
                let read = array.read(Sector(sector), Buf::dirty((self.block() * SECTOR_BYTES) as usize)).await;
                first.extend_from_slice(&read.map_err(|error| format!("sector {sector}: {error}"))?);
            }
        }
        for (sector, bytes) in first.chunks(SECTOR_BYTES as usize).enumerate() {
            let history = &recording.history[sector];
            let base = history.iter().rposition(|version| version.durable.is_some_and(|when| when <= position));
            let open = history[base.map_or(0, |base| base + 1)..].iter().filter(|version| version.issued <= position);
            let base = base.map_or(0, |base| history[base].number);
            let mut allowed = [base].into_iter().chain(open.map(|version| version.number));
            if !allowed.any(|number| bytes == stamp(sector as u64, number)) {
                let found = u64::from_le_bytes(bytes[8..16].try_into().unwrap_or_default());
                return Err(format!("sector {sector} holds write {found}; at least {base} should be there"));
            }
        }
        // Data once read does not change, whichever member is lost now.
        let status = array.status();
        if status.members.iter().all(|member_state| *member_state == MemberState::Active) {
            array.give_up(turn % self.members).await.map_err(|error| error.to_string())?;
        } else if matches!(self.plot, Plot::Rebuilds(_)) && status.members.contains(&MemberState::Rebuilding) {
            while !array.status().is_healthy() {
                rt.yield_now().await;
                rt.sleep(Nanos(1)).await;
                if let Some(error) = array.status().error {
                    return Err(format!("the rebuild ends: {error}"));
                }
            }
            array.give_up(turn % self.members).await.map_err(|error| error.to_string())?;
        }
        compare(&(array.clone() as Device), &first).await.map_err(|what| format!("read again: {what}"))?;
        match array.scrub().await {
            Ok(0) => Ok(()),
            other => Err(format!("scrub: {other:?}")),
        }
    }

    fn block(&self) -> u64 {
        if self.is_host_file { 8 } else { 1 }
    }
}

/// The content that write `number` puts into `sector`.
fn stamp(sector: u64, number: u64) -> Vec<u8> {
    if number == 0 {
        return vec![0; SECTOR_BYTES as usize];
    }
    let one = [sector.to_le_bytes(), number.to_le_bytes()].concat();
    one.repeat(SECTOR_BYTES as usize / one.len())
}

fn explore(plots: impl Fn(u64, usize) -> Plot, journals: &[JournalUse]) {
    let mut states = 0;
    for seed in 1..=soak().times(4) {
        for (level, members) in [(Level::Mirror, 2), (Level::Parity, 3), (Level::Parity, 4)] {
            for &journal in journals {
                let plot = plots(seed, members);
                if level == Level::Mirror && journal == JournalUse::Always {
                    continue;
                }
                let case = Case { level, members, journal, plot, seed, is_host_file: seed % 2 == 0 };
                states += case.explore(25);
            }
        }
    }
    println!("{states} states");
    assert!(states > 200, "{states}");
}

#[test]
fn complete_arrays_keep_what_is_durable() {
    explore(|_, _| Plot::Complete, &[JournalUse::Degraded]);
}

#[test]
fn a_full_journal_survives_the_loss_of_power_and_a_member() {
    explore(|_, _| Plot::Complete, &[JournalUse::Always]);
}

#[test]
fn degraded_arrays_keep_what_is_durable() {
    explore(|seed, members| Plot::Degraded(seed as usize % members), &[JournalUse::Degraded, JournalUse::Always]);
}

#[test]
fn rebuilding_arrays_keep_what_is_durable() {
    explore(|seed, members| Plot::Rebuilds(seed as usize % members), &[JournalUse::Degraded, JournalUse::Always]);
}

/// A start and an orderly end write superblocks; wherever they are cut off, all members are trusted.
#[test]
fn arrays_that_start_keep_what_is_durable() {
    let missing = |seed: u64, members: usize| (!seed.is_multiple_of(3)).then_some(seed as usize % members);
    explore(|seed, members| Plot::Reopens(missing(seed, members)), &[JournalUse::Degraded, JournalUse::Always]);
}

#[test]
fn failing_members_take_nothing_durable() {
    for nth in [1, 5, 12, 25] {
        let plot = |seed: u64, members: usize| Plot::Fails(seed as usize % members, nth);
        explore(plot, &[JournalUse::Degraded, JournalUse::Always]);
    }
}

/// A resync ends while a flush is under way that does not cover what it wrote: the bit stays until that is durable.
/// Method: parity that is wrong at a start is resynchronised after its member has been flushed, and before another one has.
#[test]
fn a_bit_outlives_a_resync_that_is_not_durable() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let run = async {
        let (count, options) = (3, small(Level::Parity).unit(4));
        let device = || CrashOptions {
            latency: Nanos::ZERO..=Nanos::ZERO,
            ..CrashOptions::volatile(SECTORS * SECTOR_BYTES * count as u64)
        };
        let parts = |whole: &CrashDevice| -> Vec<Device> {
            (0..count).map(|slot| whole.part(Sector(slot as u64 * SECTORS), SECTORS) as Device).collect()
        };
        let whole = CrashDevice::new(&rt, Image::default(), device());
        let array = Array::create(&rt, parts(&whole), &options, UUID, Contents::Zeroes).await.unwrap();
        array.write(Sector(0), Data::from_slice(&[1; 512]), WriteFlags::NONE).await.unwrap();
        let shape = array.core.shape;
        drop(array);
        let holder = shape.parity(0);
        let wrong = Data::from_slice(&[2; 512]);
        parts(&whole)[holder].write(Sector(shape.at(0, 0)), wrong, WriteFlags::NONE).await.unwrap();
        whole.flush().await.unwrap();
        let whole = CrashDevice::new(&rt, whole.image(), device());
        let faults: Vec<_> = parts(&whole).into_iter().map(|part| FaultDevice::new(&rt, part, 1)).collect();
        let given = faults.iter().map(|fault| Some(fault.clone() as Device)).collect();
        let array = Array::open(&rt, given, &options).await.unwrap();
        assert!(array.status().out_of_sync > 0);
        let delay = |nanos: u64| Effect::Delay(Nanos(nanos)..=Nanos(nanos));
        faults.iter().for_each(|fault| fault.add(Rule::new(Kinds::READ, When::Always, delay(2_000))));
        faults[holder].add(Rule::new(Kinds::FLUSH, When::From(2), delay(100_000)));
        faults[(holder + 1) % count].add(Rule::new(Kinds::FLUSH, When::Nth(1), delay(10_000)));
        array.flush().await.unwrap();
        assert_eq!(array.status().out_of_sync, 0);
        let (log, position) = (whole.log(), whole.position());
        let cut = log.cut(position);
        assert!(cut.pending().count() > 0, "the parity is not durable");
        for choice in cut.choices(&Effort::SAMPLED, 1) {
            let whole = CrashDevice::new(&rt, cut.image(&choice), device());
            let given = parts(&whole).into_iter().map(Some).collect();
            let reopened = Array::open(&rt, given, &options).await.unwrap();
            reopened.resynced().await;
            assert_eq!(reopened.scrub().await, Ok(0), "{}", cut.to_text(&choice));
        }
    };
    executor.block_on(run).unwrap();
}

/// A record of the journal of which a cut left one copy has two again before its writes begin: a second cut may leave these half done,
/// and take the member with the first copy. Method: the record is put on one member of copies from before it; the writes to one
/// member are slow in the recovery, and the power fails before they are done.
#[test]
fn a_record_has_two_copies_before_it_is_done_again() {
    const SECTORS: u64 = super::faults::SECTORS;
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let mut recoveries = 0;
    let run = async {
        for (written, holder, late) in (0..18usize).map(|case| (case % 2, case / 2 % 3, case / 6)) {
            let members = Members::new(&rt, 3, 1);
            let options = ArrayOptions { journal: JournalUse::Always, ..small(Level::Parity) };
            let array = Array::create(&rt, members.devices(), &options, UUID, Contents::Zeroes).await.unwrap();
            let (shape, layout) = (array.core.shape, array.core.layout.unwrap());
            let unit = (shape.unit * SECTOR_BYTES) as usize;
            let old = [vec![1; unit], vec![2; unit]].concat();
            array.write(Sector(0), Data::from_slice(&old), WriteFlags::NONE).await.unwrap();
            drop(array);
            // So the record of this write is not done again.
            let array = Array::open(&rt, members.devices().into_iter().map(Some).collect(), &options).await.unwrap();
            let before: Vec<Image> = members.memories.iter().map(|memory| memory.image()).collect();
            let new = Data::from_slice(&vec![3; unit]);
            array.write(Sector(written as u64 * shape.unit), new, WriteFlags::NONE).await.unwrap();
            let mut journal = vec![0; (layout.journal_sectors * SECTOR_BYTES) as usize];
            let mut earlier = journal.clone();
            members.memories[holder].image().read(Sector(layout.journal_start), &mut journal);
            before[holder].read(Sector(layout.journal_start), &mut earlier);
            if journal == earlier {
                continue; // The record is on the two others.
            }
            let memory = |image: &Image| Rc::new(Memory::from_image(SECTORS * SECTOR_BYTES, image.clone()));
            let memories: Vec<Rc<Memory>> = before.iter().map(memory).collect();
            for (number, piece) in journal.chunks(4096).enumerate() {
                let at = Sector(layout.journal_start + 8 * number as u64);
                memories[holder].write(at, Data::from_slice(piece), WriteFlags::NONE).await.unwrap();
            }
            let again = Members::around(&rt, memories, 1);
            let slow = Effect::Delay(Nanos(1_000_000)..=Nanos(1_000_000));
            let data = Sector(shape.data_start)..Sector(SECTORS);
            again.faults[late].add(Rule::new(Kinds::WRITE, When::Always, slow).within(data));
            let opening = {
                let (rt, given) = (rt.clone(), again.devices().into_iter().map(Some).collect());
                rt.clone().spawn(async move { Array::open(&rt, given, &options).await })
            };
            rt.sleep(Nanos(500_000)).await;
            let halfway: Vec<Image> = again.memories.iter().map(|memory| memory.image()).collect();
            opening.await.unwrap();
            for lost in 0..3 {
                let given = |slot: usize| (slot != lost).then(|| memory(&halfway[slot]) as Device);
                let options = ArrayOptions { degraded: true, ..options };
                let reopened = Array::open(&rt, (0..3).map(given).collect(), &options).await.unwrap();
                let read = reopened.read(Sector(0), Buf::dirty(2 * unit)).await.unwrap();
                for (index, read) in read.chunks(unit).enumerate() {
                    let is_new = index == written && *read == vec![3; unit];
                    let is_right = is_new || *read == old[index * unit..(index + 1) * unit];
                    assert!(is_right, "unit {index} of {written} on {holder}, {late} late, {lost} lost: {}", read[0]);
                }
            }
            recoveries += 1;
        }
    };
    executor.block_on(run).unwrap();
    assert!(recoveries > 6, "{recoveries}");
}
