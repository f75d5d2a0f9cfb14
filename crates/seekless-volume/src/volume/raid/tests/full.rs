//! Aim: a member without space costs what is being written, and nothing else: other sectors of the row can be written and
//! discarded as on a plain file, what was synced survives a kill at any moment, and what waits for space in memory is
//! bounded. Method: members on one host that is filled with any number of blocks left, and members behind fault rules.

use super::faults::{Members, after_a_cut};
use super::*;
use crate::rng::Rng;
use crate::testing::parts::parts;
use crate::testing::volumes::full_host::Host;

const BLOCK: u64 = 8;

async fn write(array: &Array, at: u64, byte: u8) -> Result<(), DeviceError> {
    array.write(Sector(at), Data::from_slice(&[byte; 4096]), WriteFlags::NONE).await
}

async fn is_there(array: &Array, at: u64, byte: u8) -> bool {
    array.read(Sector(at), Buf::dirty(4096)).await.unwrap()[..] == [byte; 4096]
}

fn options(level: Level) -> ArrayOptions {
    ArrayOptions { region: Some(64 * KIB), ..ArrayOptions::new(level).unit(64) }
}

/// The row of a refused write serves writes and discards of what it has space for, and a kill anywhere in between loses none
/// of them. Method: two blocks synced in each of several rows; refused writes between them with any number of blocks left;
/// then what has space is written again. Killed at a random write, the array is opened on a host as full as before.
#[test]
fn rows_of_refused_writes_are_used() {
    let mut refused = 0;
    for seed in 0..160 {
        let executor = Executor::simulated(seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let mut rng = Rng::new(seed);
            let (level, members) =
                *rng.pick(&[(Level::Mirror, 2), (Level::Mirror, 3), (Level::Parity, 3), (Level::Parity, 4)]);
            let name = format!("seed {seed}: {level:?} of {members}");
            let host = Host::new(members * 2 * MIB);
            let whole: Device = host.clone();
            let array =
                Array::create(&rt, parts(&whole, members), &options(level), UUID, Contents::Zeroes).await.unwrap();
            let row_sectors = array.core.shape.row_sectors();
            let synced = |row: u64| [row * row_sectors, (row + 1) * row_sectors - BLOCK];
            for row in 0..6 {
                for at in synced(row) {
                    write(&array, at, 1).await.unwrap();
                }
            }
            array.flush().await.unwrap();
            if rng.chance(1, 2) {
                rt.sleep(Nanos::from_secs(3)).await; // The bits are cleared.
                array.flush().await.unwrap();
            }
            host.fill();
            host.room.set(rng.below(8));
            host.kill_after(rng.below(100));
            let mut at_kill = None;
            let mut now: BTreeMap<u64, Vec<u8>> = (0..6).flat_map(synced).map(|at| (at, vec![1])).collect();
            for step in 2..30 {
                let row = rng.below(6);
                // Refused, if there is no room: one block or all of the rest.
                let from = rng.between(1, row_sectors / BLOCK - 2);
                let blocks = if rng.chance(1, 2) { 1 } else { row_sectors / BLOCK - 1 - from };
                let new = Data::from_slice(&vec![step; (blocks * BLOCK * SECTOR_BYTES) as usize]);
                match array.write(Sector(row * row_sectors + from * BLOCK), new, WriteFlags::NONE).await {
                    Ok(()) => {}
                    Err(DeviceError::NoSpace { .. }) => refused += 1,
                    Err(error) => panic!("{name}: {error}"),
                }
                if rng.chance(1, 4) {
                    array.flush().await.unwrap();
                }
                let at = *rng.pick(&synced(row));
                now.entry(at).or_default().push(step); // Being written: either may be there when it is killed.
                let written = write(&array, at, step).await;
                written.unwrap_or_else(|error| panic!("{name}, step {step}: a block that has space: {error}"));
                if at_kill.is_none() && host.has_been_killed() {
                    at_kill = Some(now.clone());
                }
                now.insert(at, vec![step]);
                for (&at, bytes) in &now {
                    assert!(is_there(&array, at, bytes[0]).await, "{name}, step {step}: sector {at}");
                }
                if rng.chance(1, 6) {
                    array.discard(Sector(row * row_sectors + BLOCK), row_sectors - 2 * BLOCK).await.unwrap();
                }
            }
            array.flush().await.unwrap();
            array.check().await.unwrap_or_else(|what| panic!("{name}: {what}"));
            drop(array);
            let is_full = host.room.get();
            let host = host.killed();
            let whole: Device = host.clone();
            let given = parts(&whole, members).into_iter().map(Some).collect();
            let opened = Array::open(&rt, given, &options(level)).await;
            let array = opened.unwrap_or_else(|error| panic!("{name}: killed on a host with {is_full}: {error}"));
            let then = at_kill.unwrap_or(now);
            for (&at, bytes) in &then {
                let read = array.read(Sector(at), Buf::dirty(4096)).await.unwrap();
                // A write that was under way may be there in part.
                assert!(read.iter().all(|byte| bytes.contains(byte)), "{name}: sector {at} after a kill: {}", read[0]);
            }
            for &at in then.keys() {
                let written = write(&array, at, 99).await;
                written.unwrap_or_else(|error| panic!("{name}: sector {at} after a kill: {error}"));
            }
            array.flush().await.unwrap();
            for &at in then.keys() {
                assert!(is_there(&array, at, 99).await, "{name}: sector {at}, written after a kill");
            }
            host.free(1 << 20);
            array.resynced().await;
            for row in 0..6 {
                array.read(Sector(row * row_sectors), Buf::dirty((row_sectors * SECTOR_BYTES) as usize)).await.unwrap();
            }
            array.flush().await.unwrap();
            assert_eq!(array.scrub().await, Ok(0), "{name}: once there is room");
            array.check().await.unwrap_or_else(|what| panic!("{name}: {what}"));
            for (slot, state) in array.status().members.into_iter().enumerate() {
                assert_eq!(state, MemberState::Active, "{name}: member {slot}");
            }
            // Each copy, and parity, is that of what was written.
            for reading in 0..array.readings() {
                for &at in then.keys() {
                    let read = array.read_as(Sector(at), Buf::dirty(4096), reading).await.unwrap();
                    assert!(read[..] == [99; 4096], "{name}: sector {at} in reading {reading}");
                }
            }
        };
        executor.block_on(run).unwrap();
    }
    assert!(refused > 1000, "{refused}");
}

/// Bytes that wait for space.
fn waiting_bytes(array: &Array) -> u64 {
    let state = array.core.state.borrow();
    state.redo.values().flat_map(|deferred| &deferred.writes).map(|deferred| deferred.write.kept_bytes()).sum()
}

/// What is refused for lack of space takes no memory. Method: one member that is full all the time; rows are written once.
#[test]
fn refused_writes_take_no_memory() {
    for level in [Level::Mirror, Level::Parity] {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let members: Vec<Rc<Memory>> = (0..3).map(|_| Rc::new(Memory::new(16 * MIB))).collect();
            let members = Members::around(&rt, members, 1);
            let array = Array::create(&rt, members.devices(), &options(level), UUID, Contents::Zeroes).await.unwrap();
            let shape = array.core.shape;
            let data = Sector(shape.data_start)..Sector(shape.data_start + shape.rows * shape.unit);
            members.faults[1].add(Rule::new(Kinds::WRITE, When::Always, Effect::NoSpace).within(data));
            let row = Data::from_slice(&vec![7; (shape.row_sectors() * SECTOR_BYTES) as usize]);
            for at in 0..100 {
                for part in [row.clone(), row.slice(0..4096)] {
                    let refused = array.write(Sector(at * shape.row_sectors()), part, WriteFlags::NONE).await;
                    assert!(matches!(refused, Ok(()) | Err(DeviceError::NoSpace { .. })), "{level:?}: {refused:?}");
                }
                // Once all of it is written without the old data being read first.
                if at % 16 == 0 {
                    rt.sleep(Nanos::from_secs(2)).await;
                }
            }
            let rows = array.core.state.borrow().redo.len() as u64;
            assert!(rows < 8 && waiting_bytes(&array) <= 8 * shape.unit * SECTOR_BYTES, "{level:?}: {rows}");
            array.check().await.unwrap_or_else(|what| panic!("{level:?}: {what}"));
        };
        executor.block_on(run).unwrap();
    }
}

/// Where a row cannot be made consistent without space, what is kept is bounded (S1), and the rest is resynchronised when there
/// is space. Method: full stripes whose parity has no space, on an array for timing, which does not read the old data.
#[test]
fn what_waits_for_space_is_bounded() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let run = async {
        let members: Vec<Rc<Memory>> = (0..3).map(|_| Rc::new(Memory::new(128 * MIB))).collect();
        let members = Members::around(&rt, members, 1);
        let array = Array::bare(&rt, Level::Parity, members.devices(), 128).unwrap();
        let shape = array.core.shape;
        let data = Sector(shape.data_start)..Sector(shape.data_start + shape.rows * shape.unit);
        members.faults[2].add(Rule::new(Kinds::WRITE, When::Always, Effect::NoSpace).within(data));
        let row_bytes = (shape.row_sectors() * SECTOR_BYTES) as usize;
        let rows: Vec<u64> = (0..shape.rows).filter(|&row| shape.parity(row) == 2).take(600).collect();
        let new = |row: u64| {
            let mut new = vec![row as u8 | 1; row_bytes];
            new[row_bytes / 2..].fill(0);
            Data::from_slice(&new)
        };
        for &row in &rows {
            let new = new(row);
            array.write(Sector(row * shape.row_sectors()), new, WriteFlags::NONE).await.unwrap_err();
        }
        let (waiting, out_of_sync) = (waiting_bytes(&array), array.status().out_of_sync);
        assert!((1 << 20..=super::super::deferred::DEFERRED_BYTES_MAX).contains(&waiting), "{waiting}");
        assert!(out_of_sync > 20, "{out_of_sync}");
        array.check().await.unwrap();
        for &row in &rows {
            let read = array.read(Sector(row * shape.row_sectors()), Buf::dirty(row_bytes)).await.unwrap();
            assert!(read[..] == new(row)[..], "row {row}");
        }
        members.faults[2].clear();
        for &row in &rows {
            write(&array, row * shape.row_sectors(), 3).await.unwrap();
        }
        array.flush().await.unwrap();
        assert_eq!((array.scrub().await, array.status().is_healthy()), (Ok(0), true));
        array.check().await.unwrap();
    };
    executor.block_on(run).unwrap();
}

/// Rows that wait for space in a record of the journal serve writes and discards of other sectors, and what these replace does not
/// come back. Method: an array that lacks a member, or journals everything; fault rules on single blocks of a member; after each
/// step a copy is opened as after a power cut.
#[test]
fn rows_with_a_kept_record_are_used() {
    let waited = Cell::new(0);
    for seed in 0..60 {
        let executor = Executor::simulated(seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let mut rng = Rng::new(seed);
            let members = Members::new(&rt, 3, seed);
            let journal = if seed % 2 == 0 { JournalUse::Always } else { JournalUse::Degraded };
            let options = ArrayOptions { journal, ..small(Level::Parity) };
            let array = Array::create(&rt, members.devices(), &options, UUID, Contents::Zeroes).await.unwrap();
            let shape = array.core.shape;
            if seed % 2 == 1 {
                array.give_up(seed as usize / 2 % 3).await.unwrap();
            }
            // In each row, its last sectors have no space on one member.
            let (rows, length) = (4, shape.row_sectors());
            for (row, fault) in (0..rows).flat_map(|row| members.faults.iter().map(move |fault| (row, fault))) {
                if rng.chance(1, 2) {
                    let last = Sector(shape.at(row, 5))..Sector(shape.at(row, 0) + shape.unit);
                    fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::NoSpace).within(last));
                }
            }
            // For each sector, what it may hold.
            let mut model: Vec<Vec<u8>> = vec![vec![0]; (rows * length) as usize];
            for step in 1..40u8 {
                let at = rng.below(rows * length);
                let sectors = rng.between(1, 6).min(rows * length - at);
                let range = at as usize..(at + sectors) as usize;
                let written = match rng.chance(1, 6) {
                    true => {
                        let row = at / length;
                        let range = (row * length) as usize..((row + 1) * length) as usize;
                        let discarded = array.discard(Sector(row * length), length).await;
                        model[range].iter_mut().for_each(|may| match &discarded {
                            Ok(()) => *may = vec![0],
                            Err(_) => may.push(0),
                        });
                        discarded
                    }
                    false => {
                        let data = Data::from_slice(&vec![step; (sectors * SECTOR_BYTES) as usize]);
                        let written = array.write(Sector(at), data, WriteFlags::FUA).await;
                        model[range].iter_mut().for_each(|may| match &written {
                            Ok(()) => *may = vec![step],
                            Err(_) => may.push(step),
                        });
                        written
                    }
                };
                assert!(matches!(written, Ok(()) | Err(DeviceError::NoSpace { .. })), "seed {seed}: {written:?}");
                waited.set(waited.get() + array.core.state.borrow().redo.len());
                let copy = match step % 4 {
                    0 => after_a_cut(&rt, &members.memories, &options).await,
                    _ => array.clone(),
                };
                let read = copy.read(Sector(0), Buf::dirty(model.len() * 512)).await.unwrap();
                for (sector, (read, may)) in read.chunks(512).zip(&model).enumerate() {
                    let is_allowed = may.iter().any(|byte| read == [*byte; 512]);
                    assert!(is_allowed, "seed {seed}, step {step}: sector {sector} holds {}, not {may:?}", read[0]);
                }
            }
            members.faults.iter().for_each(|fault| fault.clear());
            array.flush().await.unwrap();
            assert!(array.core.state.borrow().redo.is_empty(), "seed {seed}");
            array.check().await.unwrap_or_else(|what| panic!("seed {seed}: {what}"));
            if seed % 2 == 0 {
                assert_eq!(array.scrub().await, Ok(0), "seed {seed}");
            }
        };
        executor.block_on(run).unwrap();
    }
    assert!(waited.get() > 500, "{waited:?}");
}

/// A member that has no space for a discard is not given up, and its rows stay consistent.
#[test]
fn a_discard_without_space_gives_no_member_up() {
    for (level, seed) in
        [Level::Mirror, Level::Parity].into_iter().flat_map(|level| (0..6).map(move |seed| (level, seed)))
    {
        let executor = Executor::simulated(seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let members = Members::new(&rt, 3, seed);
            let journal = if seed % 2 == 0 { JournalUse::Always } else { JournalUse::Degraded };
            let options = ArrayOptions { journal, ..small(level) };
            let array = Array::create(&rt, members.devices(), &options, UUID, Contents::Zeroes).await.unwrap();
            let sectors = 8 * array.core.shape.row_sectors();
            let mut data = vec![0; (sectors * SECTOR_BYTES) as usize];
            Rng::new(seed).fill(&mut data);
            array.write(Sector(0), Data::from_slice(&data), WriteFlags::NONE).await.unwrap();
            array.flush().await.unwrap();
            members.faults[seed as usize % 3].add(Rule::new(Kinds::DISCARD, When::Always, Effect::NoSpace));
            let discarded = array.discard(Sector(0), sectors).await;
            assert!(matches!(discarded, Err(DeviceError::NoSpace { .. })), "{level:?}, seed {seed}: {discarded:?}");
            assert!(array.status().is_healthy(), "{level:?}, seed {seed}");
            let read = array.read(Sector(0), Buf::dirty(data.len())).await.unwrap();
            for (sector, (read, old)) in read.chunks(512).zip(data.chunks(512)).enumerate() {
                assert!(read == old || read == [0; 512], "{level:?}, seed {seed}: sector {sector}");
            }
            array.check().await.unwrap_or_else(|what| panic!("{level:?}, seed {seed}: {what}"));
            if journal == JournalUse::Always {
                members.faults.iter().for_each(|fault| fault.clear()); // What waits fills the journal.
                array.flush().await.unwrap();
            }
            array.write(Sector(0), Data::from_slice(&data), WriteFlags::NONE).await.unwrap();
            members.faults.iter().for_each(|fault| fault.clear());
            array.flush().await.unwrap();
            assert_eq!(array.scrub().await, Ok(0), "{level:?}, seed {seed}");
            let read = array.read(Sector(0), Buf::dirty(data.len())).await.unwrap();
            assert!(read[..] == data[..], "{level:?}, seed {seed}: written again");
        };
        executor.block_on(run).unwrap();
    }
}

/// A member that cannot provision is given up, as one that cannot be written; one without space is not.
#[test]
fn a_member_that_cannot_provision_is_given_up() {
    for level in [Level::Mirror, Level::Parity] {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let members = Members::new(&rt, 3, 1);
            let array = Array::create(&rt, members.devices(), &small(level), UUID, Contents::Zeroes).await.unwrap();
            members.faults[1].add(Rule::new(Kinds::PROVISION, When::Nth(1), Effect::NoSpace));
            let provisioned = array.provision(Sector(0), 64).await;
            assert!(matches!(provisioned, Err(DeviceError::NoSpace { .. })), "{level:?}: {provisioned:?}");
            assert!(array.status().is_healthy(), "{level:?}");
            members.faults[1].add(Rule::new(Kinds::PROVISION, When::Nth(1), Effect::Error));
            array.provision(Sector(0), 64).await.unwrap();
            assert_eq!(array.status().members[1], MemberState::Failed, "{level:?}");
            array.check().await.unwrap(); // It is recorded.
            array.provision(Sector(0), 64).await.unwrap();
        };
        executor.block_on(run).unwrap();
    }
}

/// A device that has no room for its next flush, as a virtual log disk on a full host.
struct NoRoomOnce {
    below: Rc<Memory>,
    is_full: Cell<bool>,
}

#[async_trait(?Send)]
impl BlockDevice for NoRoomOnce {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn guarantees(&self) -> Guarantees {
        self.below.guarantees()
    }

    async fn read(&self, at: Sector, buf: Buf) -> Result<Buf, DeviceError> {
        self.below.read(at, buf).await
    }

    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        self.below.write(at, data, flags).await
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        match self.is_full.take() {
            true => Err(DeviceError::NoSpace { at: Sector::ZERO, bytes: 0 }),
            false => self.below.flush().await,
        }
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        self.below.discard(at, sectors).await
    }

    fn describe(&self) -> String {
        self.below.describe()
    }
}

/// Aim: a flush for which the last member of a mirror has no room can be repeated: nothing is lost by it.
#[test]
fn a_mirror_without_room_for_a_flush_goes_on() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let run = async {
        let member = || Rc::new(NoRoomOnce { below: Rc::new(Memory::new(1 << 20)), is_full: Cell::new(false) });
        let members = [member(), member()];
        let all = members.iter().map(|member| member.clone() as Device).collect();
        let array = Array::create(&rt, all, &small(Level::Mirror), UUID, Contents::Zeroes).await.unwrap();
        array.give_up(1).await.unwrap();
        array.write(Sector(8), Data::from_slice(&[1; 4096]), WriteFlags::NONE).await.unwrap();
        members[0].is_full.set(true);
        assert!(matches!(array.flush().await, Err(DeviceError::NoSpace { .. })));
        array.flush().await.expect("there is room now");
        array.write(Sector(8), Data::from_slice(&[2; 4096]), WriteFlags::NONE).await.expect("it goes on");
    };
    executor.block_on(run).unwrap();
}

/// Aim: a member that has no room for a flush is not given up: the flush fails, and can be repeated. Method: one member of a complete
/// array, in a flush, in one that follows at once, and in those of a failure's record and of a release.
#[test]
fn a_flush_without_room_gives_no_member_up() {
    for (level, full) in
        [Level::Mirror, Level::Parity].into_iter().flat_map(|level| (0..3).map(move |full| (level, full)))
    {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let name = format!("{level:?}, member {full}");
            let member = || Rc::new(NoRoomOnce { below: Rc::new(Memory::new(1 << 20)), is_full: Cell::new(false) });
            let members = [member(), member(), member()];
            let all = || members.iter().map(|member| member.clone() as Device);
            let array = Array::create(&rt, all().collect(), &small(level), UUID, Contents::Zeroes).await.unwrap();
            write(&array, 8, 1).await.unwrap();
            for _ in 0..2 {
                members[full].is_full.set(true);
                assert!(array.flush().await.as_ref().is_err_and(is_no_space), "{name}");
                assert!(array.status().is_healthy(), "{name}: {:?}", array.status());
                write(&array, 8, 2).await.unwrap();
            }
            members[full].is_full.set(true);
            assert!(array.release().await.as_ref().is_err_and(is_no_space), "{name}");
            array.flush().await.unwrap();
            // The record of another member's failure waits for the same room.
            members[full].is_full.set(true);
            let given_up = array.give_up((full + 1) % 3).await;
            assert!(matches!(given_up, Err(ArrayError::Device { error: DeviceError::NoSpace { .. }, .. })), "{name}");
            write(&array, 8, 3).await.unwrap();
            assert_eq!(array.check().await, Ok(()), "{name}");
            array.release().await.unwrap();
            let options = ArrayOptions { degraded: true, ..small(level) };
            let array = Array::open(&rt, all().map(Some).collect(), &options).await.unwrap();
            let expected =
                (0..3).map(|at| if at == (full + 1) % 3 { MemberState::Failed } else { MemberState::Active });
            assert_eq!(array.status().members, expected.collect::<Vec<_>>(), "{name}");
            assert!(is_there(&array, 8, 3).await, "{name}");
        };
        executor.block_on(run).unwrap();
    }
}

/// Aim: where one of the last members has no room for a request, and another fails with unknown effect, the caller learns of the latter: it
/// would go on after a lack of room. A flush that is repeated after it fails, too. Method: both at once, in either order, on an array
/// that can miss no further member.
#[test]
fn an_error_counts_for_more_than_a_lack_of_room() {
    for full in [1, 2] {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let new = || Rc::new(NoRoomOnce { below: Rc::new(Memory::new(1 << 20)), is_full: Cell::new(false) });
            let members = [new(), new(), new()];
            let faults = members.clone().map(|member| FaultDevice::new(&rt, member, 1));
            let all = || faults.iter().map(|fault| fault.clone() as Device).collect();
            for is_flush in [true, false] {
                let name = format!("member {full} is full, flush: {is_flush}");
                let array = Array::create(&rt, all(), &small(Level::Parity), UUID, Contents::Zeroes).await.unwrap();
                array.give_up(0).await.unwrap();
                let shape = array.core.shape;
                let row = || Data::from_slice(&vec![1; (shape.row_sectors() * SECTOR_BYTES) as usize]);
                array.write(Sector::ZERO, row(), WriteFlags::NONE).await.unwrap();
                let data = Sector(shape.data_start)..Sector(shape.data_start + shape.rows * shape.unit);
                let answer = match is_flush {
                    true => {
                        members[full].is_full.set(true);
                        faults[3 - full].add(Rule::new(Kinds::FLUSH, When::Nth(1), Effect::Error));
                        array.flush().await
                    }
                    false => {
                        let rule = |effect| Rule::new(Kinds::WRITE, When::Always, effect).within(data.clone());
                        faults[full].add(rule(Effect::NoSpace));
                        faults[3 - full].add(rule(Effect::Error));
                        array.write(Sector::ZERO, row(), WriteFlags::NONE).await
                    }
                };
                assert!(matches!(answer, Err(DeviceError::Io { .. })), "{name}: {answer:?}");
                faults.iter().for_each(|fault| fault.clear());
                let again = array.flush().await;
                assert!(again.is_err() || !is_flush, "{name}: what it has lost is not made durable by another flush");
            }
        };
        executor.block_on(run).unwrap();
    }
}

/// Aim: a rebuild that a full host ends says so, loses nothing, and goes on when there is room again. Method: a host that is filled in the
/// middle of a rebuild; data is read in the meantime; then there is room.
#[test]
fn a_rebuild_that_a_full_host_ends_goes_on() {
    for seed in 0..12 {
        let executor = Executor::simulated(seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let mut rng = Rng::new(seed);
            let level = if seed % 2 == 0 { Level::Mirror } else { Level::Parity };
            let members = if level == Level::Mirror { 2 } else { rng.between(3, 5) };
            let name = format!("seed {seed}: {level:?} of {members}");
            let host = Host::new((members + 1) * 2 * MIB);
            let whole: Device = host.clone();
            let mut devices = parts(&whole, members + 1);
            let spare = devices.pop().unwrap();
            let given: Vec<Option<Device>> = devices.iter().cloned().map(Some).collect();
            let options = ArrayOptions { progress: 64 * KIB, batch: 64 * KIB, ..options(level) };
            let array = Array::create(&rt, devices, &options, UUID, Contents::Zeroes).await.unwrap();
            let blocks = array.geometry().sectors / BLOCK;
            for block in 0..blocks {
                write(&array, block * BLOCK, 1 + (block % 200) as u8).await.unwrap();
            }
            array.flush().await.unwrap();
            let slot = rng.below(members) as usize;
            array.give_up(slot).await.unwrap();
            host.fill();
            host.room.set(rng.between(60, 300));
            array.replace(slot, spare.clone()).await.unwrap();
            rt.sleep(Nanos::from_secs(60)).await;
            let status = array.status();
            assert!(matches!(status.error, Some(DeviceError::NoSpace { .. })), "{name}: {status:?}");
            assert!(status.rebuilt < status.rows && !status.stopped, "{name}: {status:?}");
            for block in 0..blocks {
                assert!(is_there(&array, block * BLOCK, 1 + (block % 200) as u8).await, "{name}: block {block}");
            }
            host.free(100_000);
            rt.sleep(Nanos::from_secs(600)).await;
            let status = array.status();
            println!("{name}: {status:?}");
            assert!(status.is_healthy(), "{name}, with room again: {status:?}");
            assert_eq!(array.scrub().await, Ok(0), "{name}");
            let _ = given;
        };
        executor.block_on(run).unwrap();
    }
}

/// Aim: what has storage keeps it, whatever is discarded beside it in its row: a block that was provisioned and not written yet, one
/// that holds zeroes, and the parity of both. Method: rows in three parts on a host that is full by then.
#[test]
fn a_discard_takes_no_storage_from_what_is_beside() {
    for seed in 0..12 {
        let executor = Executor::simulated(seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let mut rng = Rng::new(seed);
            let members = rng.between(3, 5);
            let host = Host::new(members * 2 * MIB);
            let whole: Device = host.clone();
            let options = options(Level::Parity);
            let array = Array::create(&rt, parts(&whole, members), &options, UUID, Contents::Zeroes).await.unwrap();
            let blocks = array.core.shape.row_sectors() / BLOCK;
            let rows: Vec<[u64; 4]> = (0..6)
                .map(|row| {
                    let (one, two) = (rng.between(1, blocks / 2), rng.between(blocks / 2 + 1, blocks - 1));
                    [0, one, two, blocks].map(|block| (row * blocks + block) * BLOCK)
                })
                .collect();
            for &[first, one, two, end] in &rows {
                for at in (first..one).step_by(BLOCK as usize) {
                    write(&array, at, 7).await.unwrap();
                }
                array.provision(Sector(one), two - one).await.unwrap();
                for at in (two..end).step_by(BLOCK as usize) {
                    write(&array, at, 0).await.unwrap();
                }
            }
            array.flush().await.unwrap();
            host.fill();
            for &[first, one, ..] in &rows {
                array.discard(Sector(first), one - first).await.unwrap();
            }
            for &[_, one, _, end] in &rows {
                for at in (one..end).step_by(BLOCK as usize) {
                    let written = write(&array, at, 9).await;
                    written.unwrap_or_else(|error| panic!("seed {seed}, sector {at} has storage: {error}"));
                }
            }
            array.flush().await.unwrap();
            array.check().await.unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        };
        executor.block_on(run).unwrap();
    }
}

/// A row whose parity has no space stays out of sync, and keeps no other row from being resynchronised; once there is space, it is
/// as well. Method: a power cut left wrong parity in several regions, next to that row and behind it.
#[test]
fn a_row_without_space_keeps_no_other_out_of_sync() {
    let lacked = Cell::new(0);
    for seed in 0..12 {
        let executor = Executor::simulated(seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let options = small(Level::Parity);
            let members = Members::new(&rt, 3, seed);
            let array = Array::create(&rt, members.devices(), &options, UUID, Contents::Zeroes).await.unwrap();
            let shape = array.core.shape;
            for row in [0, 4, 8] {
                let data = Data::from_slice(&[row as u8 + 1; 512]);
                array.write(Sector(row * shape.row_sectors()), data, WriteFlags::FUA).await.unwrap();
            }
            let copies = members.memories.iter();
            let copies = copies.map(|memory| Rc::new(Memory::from_image(memory.geometry().bytes(), memory.image())));
            drop(array);
            let members = Members::around(&rt, copies.collect(), seed);
            let wrong = [0, 1, 3, 5, 9];
            for row in wrong {
                let parity = &members.memories[shape.parity(row)];
                let garbage = Data::from_slice(&[0xAA; 8 * 512]);
                parity.write(Sector(shape.at(row, 0)), garbage, WriteFlags::NONE).await.unwrap();
            }
            let full = wrong[seed as usize % 3];
            let lacking = Sector(shape.at(full, 0))..Sector(shape.at(full, 0) + shape.unit);
            let rule = Rule::new(Kinds::WRITE, When::Always, Effect::NoSpace).within(lacking);
            members.faults[shape.parity(full)].add(rule);
            let given = members.devices().into_iter().map(Some).collect();
            let array = Array::open(&rt, given, &options).await.unwrap();
            array.resynced().await;
            let status = array.status();
            // What was refused may have arrived nevertheless.
            let lacks_space = status.error.as_ref().is_some_and(super::super::deferred::is_no_space);
            assert_eq!(status.out_of_sync, u64::from(lacks_space), "seed {seed}: {status:?}");
            lacked.set(lacked.get() + status.out_of_sync);
            members.faults.iter().for_each(|fault| fault.clear());
            rt.sleep(Nanos::from_secs(40)).await;
            assert!(array.status().is_healthy(), "seed {seed}: {:?}", array.status());
            assert_eq!(array.scrub().await, Ok(0), "seed {seed}");
        };
        executor.block_on(run).unwrap();
    }
    assert!(lacked.get() >= 4, "{lacked:?}");
}
