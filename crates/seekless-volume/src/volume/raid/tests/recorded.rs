//! Aim: on a full host the journal does not fill with what has no space, and an array with such a record can be opened and used.
//! Method: members on one host that is filled, and members behind fault rules, which do not show a lack of space before
//! something is written; many more requests than the journal has room for.

use super::faults::{Members, SECTORS, after_a_cut};
use super::*;
use crate::rng::Rng;
use crate::testing::parts::parts;
use crate::testing::volumes::full_host::Host;
use crate::volume::format::{RecordHead, bitmap_start};

const BLOCK: u64 = 8;

/// Bytes that each sector of a block may hold.
type Model = BTreeMap<u64, Vec<u8>>;

async fn write(array: &Array, at: u64, byte: u8) -> Result<(), DeviceError> {
    array.write(Sector(at), Data::from_slice(&[byte; 4096]), WriteFlags::NONE).await
}

async fn compare_blocks(array: &Array, model: &Model, what: &str) {
    for (&at, may) in model {
        let read = array.read(Sector(at), Buf::dirty(4096)).await;
        let read = read.unwrap_or_else(|error| panic!("{what}: sector {at}: {error}"));
        // A write that was refused or under way may be there in part.
        assert!(read.iter().all(|byte| may.contains(byte)), "{what}: sector {at} holds {}, not {may:?}", read[0]);
    }
}

/// What has space can be written as often as wanted while other writes are refused, and what is discarded makes room; killed at
/// any moment, the array is opened on the full host.
#[test]
fn refused_writes_leave_the_journal_its_room() {
    let refused = Cell::new(0);
    for seed in 0..24 {
        let executor = Executor::simulated(seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let mut rng = Rng::new(seed);
            let members = rng.between(3, 4);
            let journal = if seed % 2 == 0 { JournalUse::Always } else { JournalUse::Degraded };
            let name = format!("seed {seed}: {members} members, {journal:?}");
            let options = ArrayOptions { journal, degraded: true, ..small(Level::Parity).unit(64) };
            let mut host = Host::new(members * 4 * MIB);
            let whole: Device = host.clone();
            let created = Array::create(&rt, parts(&whole, members), &options, UUID, Contents::Zeroes).await;
            let mut array = created.unwrap();
            if seed % 2 == 1 {
                array.give_up((seed / 2 % members) as usize).await.unwrap();
            }
            let row_sectors = array.core.shape.row_sectors();
            let synced = |row: u64| [row * row_sectors, (row + 1) * row_sectors - BLOCK];
            let mut now: Model = (0..6).flat_map(synced).map(|at| (at, vec![1])).collect();
            for &at in now.keys() {
                write(&array, at, 1).await.unwrap();
            }
            array.flush().await.unwrap();
            host.fill();
            for life in 0..2 {
                host.room.set(rng.below(8));
                host.kill_after(rng.below(2000));
                let mut at_kill = None;
                for step in 0..400u64 {
                    let what = format!("{name}, life {life}, step {step}");
                    let byte = (2 + step % 200) as u8;
                    let row = rng.below(6);
                    let from = rng.between(1, row_sectors / BLOCK - 2);
                    let blocks = if rng.chance(1, 2) { 1 } else { row_sectors / BLOCK - 1 - from };
                    let new = Data::from_slice(&vec![byte; (blocks * BLOCK * SECTOR_BYTES) as usize]);
                    match array.write(Sector(row * row_sectors + from * BLOCK), new, WriteFlags::NONE).await {
                        Ok(()) => {}
                        Err(DeviceError::NoSpace { .. }) => refused.set(refused.get() + 1),
                        Err(error) => panic!("{what}: {error}"),
                    }
                    let at = *rng.pick(&synced(row));
                    now.entry(at).or_default().push(byte);
                    write(&array, at, byte).await.unwrap_or_else(|error| panic!("{what}: what has space: {error}"));
                    if at_kill.is_none() && host.has_been_killed() {
                        at_kill = Some(now.clone());
                    }
                    now.insert(at, vec![byte]);
                    match rng.below(24) {
                        0 => {
                            let discarded =
                                array.discard(Sector(row * row_sectors + BLOCK), row_sectors - 2 * BLOCK).await;
                            discarded.unwrap_or_else(|error| panic!("{what}: a discard: {error}"));
                        }
                        1 => array.flush().await.unwrap(),
                        2 => compare_blocks(&array, &now, &what).await,
                        _ => {}
                    }
                }
                compare_blocks(&array, &now, &name).await;
                array.check().await.unwrap_or_else(|what| panic!("{name}: {what}"));
                drop(array);
                host = host.killed();
                now = at_kill.unwrap_or(now);
                let whole: Device = host.clone();
                let given = parts(&whole, members).into_iter().map(Some).collect();
                let opened = Array::open(&rt, given, &options).await;
                array = opened.unwrap_or_else(|error| panic!("{name}: killed in life {life}: {error}"));
                compare_blocks(&array, &now, &format!("{name}: after life {life}")).await;
            }
            host.free(1 << 20);
            for (&at, may) in &mut now {
                write(&array, at, 99).await.unwrap();
                *may = vec![99];
            }
            array.flush().await.unwrap();
            assert!(array.core.state.borrow().redo.is_empty(), "{name}: nothing waits any more");
            array.check().await.unwrap_or_else(|what| panic!("{name}: {what}"));
            if journal == JournalUse::Always {
                assert_eq!(array.scrub().await, Ok(0), "{name}");
                assert!(array.status().is_healthy(), "{name}");
            }
        };
        executor.block_on(run).unwrap();
    }
    assert!(refused.get() > 2000, "{refused:?}");
}

/// The same where a member shows a lack of space only when it is written to: a record can be kept then, and an array that has
/// one is opened, used, closed and opened again as long as there is no space, and no write is done twice or forgotten.
#[test]
fn an_array_with_a_kept_record_is_opened() {
    let (kept, refused) = (Cell::new(0), Cell::new(0));
    for seed in 0..40 {
        let executor = Executor::simulated(seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let mut rng = Rng::new(seed);
            let mut members = Members::new(&rt, 3, seed);
            let journal = if seed % 2 == 0 { JournalUse::Always } else { JournalUse::Degraded };
            let options = ArrayOptions { journal, degraded: true, ..small(Level::Parity) };
            let name = format!("seed {seed}, {journal:?}");
            let mut array = Array::create(&rt, members.devices(), &options, UUID, Contents::Zeroes).await.unwrap();
            let shape = array.core.shape;
            if seed % 2 == 1 {
                array.give_up(seed as usize / 2 % 3).await.unwrap();
            }
            let (rows, length) = (6, shape.row_sectors());
            // In some rows, the last sectors have no space on a member.
            let lacking: Vec<(u64, usize)> = (0..rows)
                .flat_map(|row| (0..3).map(move |member| (row, member)))
                .filter(|_| rng.chance(1, 3))
                .collect();
            let fill = |members: &Members| {
                for &(row, member) in &lacking {
                    let last = Sector(shape.at(row, 5))..Sector(shape.at(row, 0) + shape.unit);
                    members.faults[member].add(Rule::new(Kinds::WRITE, When::Always, Effect::NoSpace).within(last));
                }
            };
            fill(&members);
            let mut model: Vec<Vec<u8>> = vec![vec![0]; (rows * length) as usize];
            for life in 0..4 {
                for step in 1..60u8 {
                    let what = format!("{name}, life {life}, step {step}");
                    let at = rng.below(rows * length);
                    let sectors = rng.between(1, 6).min(rows * length - at);
                    let range = at as usize..(at + sectors) as usize;
                    let byte = life * 60 + step;
                    let data = Data::from_slice(&vec![byte; (sectors * SECTOR_BYTES) as usize]);
                    let written = array.write(Sector(at), data, WriteFlags::FUA).await;
                    model[range].iter_mut().for_each(|may| match &written {
                        Ok(()) => *may = vec![byte],
                        Err(_) => may.push(byte),
                    });
                    match &written {
                        Ok(()) => {}
                        Err(DeviceError::NoSpace { .. }) => refused.set(refused.get() + 1),
                        Err(error) => panic!("{what}: {error}"),
                    }
                    // The first sectors of each row have space.
                    let at = rng.below(rows) * length;
                    let byte = byte.wrapping_add(1);
                    let written = array.write(Sector(at), Data::from_slice(&[byte; 512]), WriteFlags::FUA).await;
                    written.unwrap_or_else(|error| panic!("{what}: what has space: {error}"));
                    model[at as usize] = vec![byte];
                    let copy = match step % 10 {
                        0 => after_a_cut(&rt, &members.memories, &options).await,
                        _ => array.clone(),
                    };
                    let read = copy.read(Sector(0), Buf::dirty(model.len() * 512)).await.unwrap();
                    for (sector, (read, may)) in read.chunks(512).zip(&model).enumerate() {
                        let is_allowed = may.iter().any(|byte| read == [*byte; 512]);
                        assert!(is_allowed, "{what}: sector {sector} holds {}, not {may:?}", read[0]);
                    }
                }
                let is_kept = !array.core.state.borrow().redo.is_empty();
                kept.set(kept.get() + usize::from(is_kept));
                // Closed or killed, and opened where there is still no space.
                if rng.chance(1, 2) {
                    array.flush().await.unwrap();
                    array.release().await.unwrap();
                }
                drop(array);
                let copies = members.memories.iter();
                let copies =
                    copies.map(|memory| Rc::new(Memory::from_image(memory.geometry().bytes(), memory.image())));
                members = Members::around(&rt, copies.collect(), seed);
                fill(&members);
                let opened = Array::open(&rt, members.devices().into_iter().map(Some).collect(), &options).await;
                array = opened.unwrap_or_else(|error| panic!("{name}: opened after life {life}: {error}"));
            }
            members.faults.iter().for_each(|fault| fault.clear());
            array.flush().await.unwrap();
            assert!(array.core.state.borrow().redo.is_empty(), "{name}");
            array.check().await.unwrap_or_else(|what| panic!("{name}: {what}"));
            if journal == JournalUse::Always {
                assert_eq!(array.scrub().await, Ok(0), "{name}");
            }
        };
        executor.block_on(run).unwrap();
    }
    assert!(kept.get() > 20 && refused.get() > 200, "{kept:?} {refused:?}");
}

/// A kept record does not hold up the journal. Method: one record that is kept throughout; many more writes to other rows than
/// the journal has room for, and power cuts.
#[test]
fn a_kept_record_does_not_fill_the_journal() {
    for seed in 0..8 {
        let executor = Executor::simulated(seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let members = Members::new(&rt, 3, seed);
            let options = ArrayOptions { journal: JournalUse::Always, ..small(Level::Parity) };
            let array = Array::create(&rt, members.devices(), &options, UUID, Contents::Zeroes).await.unwrap();
            let shape = array.core.shape;
            let length = shape.row_sectors();
            let unit = Sector(shape.at(seed % 3, 0))..Sector(shape.at(seed % 3, 0) + shape.unit);
            members.faults[1].add(Rule::new(Kinds::WRITE, When::Always, Effect::NoSpace).within(unit));
            let row = Data::from_slice(&vec![9; (length * SECTOR_BYTES) as usize]);
            array.write(Sector(seed % 3 * length), row, WriteFlags::NONE).await.unwrap_err();
            assert_eq!(array.core.state.borrow().redo.len(), 1);
            for step in 0..400u64 {
                let at = (3 + step % 5) * length;
                let byte = step as u8;
                let data = Data::from_slice(&vec![byte; 6 * 512]);
                let written = array.write(Sector(at + step % 7), data, WriteFlags::FUA).await;
                written.unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
                if step % 20 == 0 {
                    let reopened = after_a_cut(&rt, &members.memories, &options).await;
                    let read = reopened.read(Sector(at + step % 7), Buf::dirty(6 * 512)).await.unwrap();
                    assert!(read.iter().all(|found| *found == byte), "seed {seed}, step {step}");
                    let read =
                        reopened.read(Sector(seed % 3 * length), Buf::dirty(length as usize * 512)).await.unwrap();
                    assert!(read.iter().all(|found| *found == 9), "seed {seed}, step {step}: the kept record");
                    assert_eq!(reopened.scrub().await, Ok(0), "seed {seed}, step {step}");
                }
            }
            assert_eq!(array.core.state.borrow().redo.len(), 1);
            members.faults.iter().for_each(|fault| fault.clear());
            array.flush().await.unwrap();
            assert!(array.core.state.borrow().redo.is_empty());
            assert_eq!(array.scrub().await, Ok(0), "seed {seed}");
            array.check().await.unwrap();
        };
        executor.block_on(run).unwrap();
    }
}

/// What replaces a part of a kept record is not undone by it when that is written again. Method: writers of one row, of which a
/// sector has no space, and of others, at the same time and on slow members; then there is space while they go on.
#[test]
fn what_replaces_a_kept_record_stays() {
    for seed in 0..12 {
        let executor = Executor::simulated(seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let members = Members::new(&rt, 3, seed);
            let options = ArrayOptions { journal: JournalUse::Always, ..small(Level::Parity) };
            let array = Array::create(&rt, members.devices(), &options, UUID, Contents::Zeroes).await.unwrap();
            let shape = array.core.shape;
            let length = shape.row_sectors();
            let slow = Effect::Delay(Nanos(1)..=Nanos(20_000));
            let data = Sector(shape.data_start)..Sector(SECTORS);
            let full = shape.member(0, 0);
            let mut expected = [9; 8];
            for round in 0..12u8 {
                members.faults[full].add(
                    Rule::new(Kinds::WRITE, When::Always, Effect::NoSpace)
                        .within(Sector(shape.at(0, 0))..Sector(shape.at(0, 1))),
                );
                members.faults.iter().for_each(|fault| {
                    fault.add(Rule::new(Kinds::WRITE, When::Always, slow.clone()).within(data.clone()));
                });
                array.core.is_space_unproven.set(false); // Otherwise, the write is refused before there is a record.
                let row = Data::from_slice(&vec![9; (length * SECTOR_BYTES) as usize]);
                array.write(Sector(0), row, WriteFlags::NONE).await.unwrap_err();
                assert!(array.core.journal.has_kept());
                expected.fill(9);
                let mut rng = Rng::new(u64::from(round));
                let others: Vec<u64> = (0..60).map(|_| rng.between(1, 9)).collect();
                let fill_the_ring = async {
                    for (index, row) in others.iter().enumerate() {
                        let data = Data::from_slice(&[round; 4 * 512]);
                        array.write(Sector(row * length + index as u64 % 4), data, WriteFlags::NONE).await.unwrap();
                    }
                };
                let replace = async {
                    for step in 0..20u64 {
                        let at = 1 + step % 7;
                        let byte = 10 * round + step as u8;
                        array.write(Sector(at), Data::from_slice(&[byte; 512]), WriteFlags::FUA).await.unwrap();
                        expected[at as usize] = byte;
                        if step % 5 == 4 {
                            let reopened = after_a_cut(&rt, &members.memories, &options).await;
                            let read = reopened.read(Sector(1), Buf::dirty(7 * 512)).await.unwrap();
                            let found: Vec<u8> = read.chunks(512).map(|sector| sector[0]).collect();
                            assert_eq!(found, expected[1..], "seed {seed}, round {round}, step {step}");
                            assert_eq!(reopened.scrub().await, Ok(0), "seed {seed}, round {round}, step {step}");
                        }
                    }
                };
                let make_space = async {
                    rt.sleep(Nanos(rng.below(400_000))).await;
                    members.faults[full].clear();
                    let late = Effect::Delay(Nanos(1)..=Nanos(200_000));
                    members.faults[full].add(Rule::new(Kinds::WRITE, When::Always, late).within(data.clone()));
                    array.flush().await.unwrap();
                };
                futures_util::future::join3(fill_the_ring, replace, make_space).await;
                members.faults.iter().for_each(|fault| fault.clear());
                array.flush().await.unwrap();
                assert!(!array.core.journal.has_kept(), "seed {seed}, round {round}");
            }
            array.check().await.unwrap();
        };
        executor.block_on(run).unwrap();
    }
}

/// Where the ring has space at its start alone, it is used there; where the other copy of the bitmap has none, the array is opened.
#[test]
fn metadata_without_space_is_done_without() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let run = async {
        let members = Members::new(&rt, 3, 1);
        let options = ArrayOptions { journal: JournalUse::Always, ..small(Level::Parity) };
        let array = Array::create(&rt, members.devices(), &options, UUID, Contents::Zeroes).await.unwrap();
        let (layout, length) = (array.core.layout.unwrap(), array.core.shape.row_sectors());
        let end = Sector(layout.journal_start + layout.journal_sectors);
        let middle = Sector(layout.journal_start + layout.journal_sectors / 2);
        let next_copy = Sector(bitmap_start((array.core.bitmap.epoch() + 1) % 2, layout.bitmap_sectors));
        let fill = |members: &Members| {
            for (fault, range) in members
                .faults
                .iter()
                .flat_map(|fault| [(fault, middle..end), (fault, next_copy..next_copy + layout.bitmap_sectors)])
            {
                fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::NoSpace).within(range.clone()));
                fault.add(Rule::new(Kinds::PROVISION, When::Always, Effect::NoSpace).within(range));
            }
        };
        fill(&members);
        for step in 0..200u64 {
            let data = Data::from_slice(&vec![step as u8; 3 * 512]);
            array.write(Sector(step % 6 * length), data, WriteFlags::NONE).await.unwrap();
        }
        drop(array);
        let copies = members.memories.iter();
        let copies = copies.map(|memory| Rc::new(Memory::from_image(memory.geometry().bytes(), memory.image())));
        let members = Members::around(&rt, copies.collect(), 1);
        fill(&members);
        for _ in 0..2 {
            let given = members.devices().into_iter().map(Some).collect();
            let array = Array::open(&rt, given, &options).await.unwrap();
            array.check().await.unwrap();
            assert_eq!(array.scrub().await, Ok(0));
            array.write(Sector(0), Data::from_slice(&[1; 512]), WriteFlags::NONE).await.unwrap();
        }
    };
    executor.block_on(run).unwrap();
}

/// An array of three members whose first unit has no space for its last sector, so that a record of sectors 0..8 is kept, also
/// when the array is opened again.
struct WithKeptRecord {
    rt: Rt,
    options: ArrayOptions,
    members: Members,
    array: Rc<Array>,
}

impl WithKeptRecord {
    async fn new(rt: &Rt, seed: u64, byte: u8) -> WithKeptRecord {
        let options = ArrayOptions { journal: JournalUse::Always, ..small(Level::Parity) };
        let members = Members::new(rt, 3, seed);
        let created = Array::create(rt, members.devices(), &options, UUID, Contents::Zeroes).await;
        let made = WithKeptRecord { rt: rt.clone(), options, members, array: created.unwrap() };
        made.fill();
        made.array.write(Sector(0), Data::from_slice(&[byte; 8 * 512]), WriteFlags::FUA).await.unwrap_err();
        assert!(made.array.core.journal.has_kept());
        made
    }

    fn fill(&self) {
        let shape = self.array.core.shape;
        let last = Sector(shape.at(0, 7))..Sector(shape.at(0, 0) + shape.unit);
        let rule = Rule::new(Kinds::WRITE, When::Always, Effect::NoSpace).within(last);
        self.members.faults[shape.member(0, 0)].add(rule);
    }

    /// As it is at this moment, opened where there is still no space. The record is kept again, unless the refused write has arrived.
    async fn reopened(self, seed: u64) -> WithKeptRecord {
        let copies = self.members.memories.iter();
        let copies = copies.map(|memory| Rc::new(Memory::from_image(memory.geometry().bytes(), memory.image())));
        let WithKeptRecord { rt, options, array, .. } = self;
        let members = Members::around(&rt, copies.collect(), seed);
        let mut made = WithKeptRecord { rt, options, members, array };
        // A write without space may arrive in part, which the power cut takes.
        let shape = made.array.core.shape;
        let full = &made.members.memories[shape.member(0, 0)];
        if made.array.core.journal.has_kept() {
            full.write(Sector(shape.at(0, 7)), Data::zeroes(512), WriteFlags::NONE).await.unwrap();
        }
        made.fill();
        let given = made.members.devices().into_iter().map(Some).collect();
        made.array = Array::open(&made.rt, given, &made.options).await.unwrap();
        made
    }

    async fn write(&self, at: u64, byte: u8) {
        self.array.write(Sector(at), Data::from_slice(&[byte; 512]), WriteFlags::FUA).await.unwrap();
    }

    /// The first sectors after a power cut, where there is space.
    async fn after_a_cut(&self) -> Vec<u8> {
        let reopened = after_a_cut(&self.rt, &self.members.memories, &self.options).await;
        let read = reopened.read(Sector(0), Buf::dirty(8 * 512)).await.unwrap();
        assert_eq!(reopened.scrub().await, Ok(0));
        read.chunks(512).map(|sector| sector[0]).collect()
    }
}

/// What is written after an array was opened with a kept record is not undone by that record, from the first write on. Method: it is
/// opened several times, each time with some writes, none at first; the power is cut after each.
#[test]
fn what_follows_a_kept_record_found_at_an_opening_is_read() {
    let kept = Cell::new(0);
    for seed in 0..24 {
        let executor = Executor::simulated(seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let mut made = WithKeptRecord::new(&rt, seed, 1).await;
            let mut expected = vec![1; 8];
            for life in 0..6 {
                made = made.reopened(seed + life).await;
                kept.set(kept.get() + usize::from(made.array.core.journal.has_kept()));
                for step in 0..life {
                    let (at, byte) = ((life + step) % 7, (10 * life + step) as u8);
                    made.write(at, byte).await;
                    expected[at as usize] = byte;
                    assert_eq!(made.after_a_cut().await, expected, "seed {seed}, life {life}, step {step}");
                }
            }
        };
        executor.block_on(run).unwrap();
    }
    assert!(kept.get() > 30, "{kept:?}");
}

/// Builds that left out a number of the journal at such an opening have written records behind the gap: these are read.
#[test]
fn records_behind_a_number_that_was_left_out_are_read() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let run = async {
        let mut made = WithKeptRecord::new(&rt, 1, 1).await.reopened(1).await;
        assert!(made.array.core.journal.has_kept());
        made.array.core.journal.skip_number();
        made.write(0, 2).await;
        assert_eq!(made.after_a_cut().await, [2, 1, 1, 1, 1, 1, 1, 1]);
        made = made.reopened(1).await;
        made.write(1, 3).await;
        assert_eq!(made.after_a_cut().await, [2, 3, 1, 1, 1, 1, 1, 1]);
    };
    executor.block_on(run).unwrap();
}

/// What a power cut left of the record behind kept ones is erased on every member when the array is opened, as its number is used again.
#[test]
fn half_of_the_next_record_is_erased() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let run = async {
        let made = WithKeptRecord::new(&rt, 1, 1).await.reopened(1).await;
        assert!(made.array.core.journal.has_kept());
        let layout = made.array.core.layout.unwrap();
        made.write(0, 2).await;
        // The newest record loses its last payload on all members.
        let (mut heads, mut sequence) = (Vec::new(), 0);
        for (index, memory) in made.members.memories.iter().enumerate() {
            for at in (layout.journal_start..layout.journal_start + layout.journal_sectors).step_by(BLOCK as usize) {
                let block = memory.read(Sector(at), Buf::dirty(4096)).await.unwrap();
                if let Some(found) =
                    (sequence.max(1)..9).rev().find(|&one| RecordHead::peek(&block, &layout.uuid, one).is_some())
                {
                    if found > sequence {
                        (heads, sequence) = (Vec::new(), found);
                    }
                    heads.push((index, at));
                }
            }
        }
        assert!(sequence > 1 && heads.len() == 2, "{heads:?}");
        for &(index, at) in &heads {
            let payload = Data::from_slice(&[0xAA; 512]);
            made.members.memories[index].write(Sector(at + BLOCK), payload, WriteFlags::FUA).await.unwrap();
        }
        let made = made.reopened(1).await;
        for (index, at) in heads {
            let block = made.members.memories[index].read(Sector(at), Buf::dirty(4096)).await.unwrap();
            assert!(RecordHead::peek(&block, &layout.uuid, sequence).is_none(), "member {index}");
        }
        made.write(1, 3).await;
        assert_eq!(made.after_a_cut().await[1], 3);
    };
    executor.block_on(run).unwrap();
}

/// A kept record from before a member failed, with its old data, is not done again over a row of its replacement. Once there is space,
/// the rebuild goes on.
#[test]
fn a_record_from_before_a_failure_is_not_done_over_a_rebuilt_row() {
    for seed in 0..8 {
        let executor = Executor::simulated(seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let mut members = Members::new(&rt, 3, seed);
            let journal = JournalUse::Always;
            let small = small(Level::Parity);
            let options = ArrayOptions { region: Some(4 * KIB), batch: 4 * KIB, progress: 4 * KIB, journal, ..small };
            let array = Array::create(&rt, members.devices(), &options, UUID, Contents::Zeroes).await.unwrap();
            let shape = array.core.shape;
            let missing = shape.member(0, 0);
            let last = Sector(shape.at(3, 0))..Sector(shape.at(3, 0) + shape.unit);
            for (_, fault) in members.faults.iter().enumerate().filter(|(member, _)| *member != missing) {
                fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::NoSpace).within(last.clone()));
            }
            let all = |byte: u8| Data::from_slice(&vec![byte; (4 * shape.row_sectors() * SECTOR_BYTES) as usize]);
            array.write(Sector(0), all(1), WriteFlags::NONE).await.unwrap_err();
            assert!(array.core.journal.has_kept(), "seed {seed}");
            array.give_up(missing).await.unwrap();
            array.write(Sector(0), Data::from_slice(&[2; 512]), WriteFlags::FUA).await.unwrap();
            let replacement = Rc::new(Memory::new(SECTORS * SECTOR_BYTES));
            members.memories[missing] = replacement.clone();
            array.replace(missing, replacement).await.unwrap();
            array.resynced().await;
            assert!(array.status().error.is_some(), "seed {seed}");
            let reopened = after_a_cut(&rt, &members.memories, &options).await;
            let read = reopened.read(Sector(0), Buf::dirty(512)).await.unwrap();
            assert!(read[..] == [2; 512], "seed {seed}: {} instead of 2", read[0]);
            reopened.resynced().await;
            assert_eq!(reopened.scrub().await, Ok(0), "seed {seed}");
            members.faults.iter().for_each(|fault| fault.clear());
            rt.sleep(Nanos::from_secs(40)).await;
            assert!(array.status().is_healthy(), "seed {seed}: {:?}", array.status());
            assert_eq!(array.scrub().await, Ok(0), "seed {seed}");
        };
        executor.block_on(run).unwrap();
    }
}
