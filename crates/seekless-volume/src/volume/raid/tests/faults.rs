//! Aim: any one member can fail at any request without loss, immediately and after the next start. Method: the same
//! requests repeatedly, each time with another request of another member that fails.

use super::*;

pub(super) const SECTORS: u64 = 700;

/// Members in memory behind fault rules.
pub(super) struct Members {
    pub(super) memories: Vec<Rc<Memory>>,
    pub(super) faults: Vec<Rc<FaultDevice>>,
}

impl Members {
    pub(super) fn new(rt: &Rt, count: usize, seed: u64) -> Members {
        Members::around(rt, (0..count).map(|_| Rc::new(Memory::new(SECTORS * SECTOR_BYTES))).collect(), seed)
    }

    pub(super) fn around(rt: &Rt, memories: Vec<Rc<Memory>>, seed: u64) -> Members {
        let faults = memories
            .iter()
            .map(|memory| {
                let device = FaultDevice::new(rt, memory.clone(), seed);
                device.add(Rule::new(Kinds::all(), When::Always, Effect::Delay(Nanos(1)..=Nanos(50))));
                device
            })
            .collect();
        Members { memories, faults }
    }

    pub(super) fn devices(&self) -> Vec<Device> {
        self.faults.iter().map(|fault| fault.clone() as Device).collect()
    }
}

const ROUNDS: u32 = 14;

/// Runs the requests with a rule on one member; returns whether the rule fired.
async fn attempt(
    rt: &Rt,
    level: Level,
    count: usize,
    options: &ArrayOptions,
    victim: usize,
    rule: Rule,
) -> Result<bool, String> {
    let members = Members::new(rt, count, 3);
    let created = Array::create(rt, members.devices(), options, UUID, Contents::Zeroes).await;
    let array = created.map_err(|error| error.to_string())?;
    members.faults[victim].add(rule);
    let mut exercise = Exercise::new(array.clone(), 11);
    for round in 0..ROUNDS {
        exercise.round(rt, Mix::ALL).await.map_err(|what| format!("round {round}: {what}"))?;
    }
    exercise.compare().await?;
    array.flush().await.map_err(|error| format!("flush: {error}"))?;
    rt.sleep(Nanos::from_secs(3)).await; // Bits are cleared: losing another member is a separate case from here on.
    let has_fired = members.faults[victim].failed() > 0;
    match array.scrub().await {
        Ok(0) => {}
        other => return Err(format!("a scrub answers {other:?}")),
    }
    array.flush().await.map_err(|error| format!("flush: {error}"))?;
    let member_state = array.status().members[victim];
    drop((array, exercise.device));
    // All members are back, the one that failed as it was at that moment.
    let bytes = exercise.bytes;
    let devices = |missing: Option<usize>| -> Vec<Option<Device>> {
        let device = |slot: usize| (Some(slot) != missing).then(|| members.memories[slot].clone() as Device);
        (0..count).map(device).collect()
    };
    let reopened = Array::open(rt, devices(None), options).await.map_err(|error| format!("opening again: {error}"))?;
    if member_state == MemberState::Failed && reopened.status().members[victim] != MemberState::Failed {
        return Err("a member that failed is believed again".into());
    }
    compare(&(reopened as Device), &bytes).await.map_err(|what| format!("opened again: {what}"))?;
    // Also without any other one, where the array tolerates that.
    for missing in 0..count {
        let is_borne = member_state != MemberState::Failed || missing == victim || level == Level::Mirror && count > 2;
        if is_borne {
            let options = ArrayOptions { degraded: true, read_only: true, ..*options };
            let reopened = Array::open(rt, devices(Some(missing)), &options).await;
            let reopened: Device = reopened.map_err(|error| format!("opening without {missing}: {error}"))?;
            compare(&reopened, &bytes).await.map_err(|what| format!("opened without {missing}: {what}"))?;
        }
    }
    Ok(has_fired)
}

/// How long a fault lasts.
enum Lasts {
    Once,
    EverAfter,
}

fn every_request(level: Level, count: usize, options: &ArrayOptions) {
    let mut fired = 0;
    for (kinds, effect, lasts) in [
        (Kinds::all(), Effect::Gone, Lasts::Once),
        (Kinds::WRITE, Effect::Error, Lasts::Once),
        (Kinds::READ, Effect::Error, Lasts::Once),
        (Kinds::FLUSH, Effect::Error, Lasts::Once),
        (Kinds::DISCARD, Effect::Error, Lasts::Once),
        (Kinds::READ, Effect::Error, Lasts::EverAfter),
        (Kinds::READ.union(Kinds::WRITE), Effect::Error, Lasts::EverAfter),
    ] {
        for victim in 0..count {
            for nth in 1.. {
                let when = match lasts {
                    Lasts::Once => When::Nth(nth),
                    Lasts::EverAfter => When::From(nth),
                };
                let rule = Rule::new(kinds, when, effect.clone());
                let executor = Executor::simulated(nth, HostProfile::NONE);
                let rt = executor.rt().clone();
                let attempt = executor.block_on(attempt(&rt, level, count, options, victim, rule.clone()));
                match attempt.expect("nothing waits indefinitely") {
                    Ok(true) => fired += 1,
                    Ok(false) => break,
                    Err(what) => panic!("{level:?} of {count}, member {victim}, {rule:?}: {what}"),
                }
            }
        }
    }
    println!("{level:?} of {count}: {fired} failures");
    assert!(fired > 100, "{fired}");
}

#[test]
fn every_request_of_a_mirror_may_fail() {
    every_request(Level::Mirror, 2, &small(Level::Mirror));
    every_request(Level::Mirror, 3, &small(Level::Mirror));
}

#[test]
fn every_request_of_parity_may_fail() {
    every_request(Level::Parity, 3, &small(Level::Parity));
    every_request(Level::Parity, 4, &ArrayOptions { journal: JournalUse::Always, ..small(Level::Parity).unit(4) });
}

/// Two failed members stop an array with parity; earlier writes are readable when the members are back.
#[test]
fn two_failures_stop_parity() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let run = async {
        let members = Members::new(&rt, 4, 1);
        let options = small(Level::Parity);
        let array = Array::create(&rt, members.devices(), &options, UUID, Contents::Zeroes).await.unwrap();
        let mut exercise = Exercise::new(array.clone(), 1);
        for _ in 0..20 {
            exercise.round(&rt, Mix::ALL).await.unwrap();
        }
        for victim in [1, 3] {
            members.faults[victim].add(Rule::new(Kinds::all(), When::Always, Effect::Gone));
        }
        array.flush().await.unwrap_err();
        let error = array.write(Sector(0), Data::zeroes(4096), WriteFlags::NONE).await.unwrap_err();
        assert!(error.to_string().contains("has lost more members than it tolerates"), "{error}");
        assert!(array.status().stopped);
        drop(array);
        let given = members.memories.iter().map(|memory| Some(memory.clone() as Device)).collect();
        let options = ArrayOptions { degraded: true, ..options };
        let reopened: Device = Array::open(&rt, given, &options).await.unwrap();
        compare(&reopened, &exercise.bytes).await.unwrap();
    };
    executor.block_on(run).unwrap();
}

/// `NoSpace` below fails the write and nothing else: rows stay consistent once there is space again, and no member is
/// dropped.
#[test]
fn lack_of_space_is_no_failure() {
    for (level, count) in [(Level::Mirror, 2), (Level::Parity, 4)] {
        for nth in 1..60 {
            let executor = Executor::simulated(nth, HostProfile::NONE);
            let rt = executor.rt().clone();
            let run = async {
                let members = Members::new(&rt, count, 3);
                let options = small(level);
                let array = Array::create(&rt, members.devices(), &options, UUID, Contents::Zeroes).await.unwrap();
                let data = |byte: u8| Data::from_slice(&[byte; 20 * 512]);
                array.write(Sector(3), data(1), WriteFlags::NONE).await.unwrap();
                members.faults[1].add(Rule::new(Kinds::WRITE, When::From(nth), Effect::NoSpace));
                let mut failed = 0;
                for turn in 0..20u64 {
                    match array.write(Sector(3 + 7 * turn), data(2), WriteFlags::NONE).await {
                        Ok(()) => {}
                        Err(DeviceError::NoSpace { .. }) => failed += 1,
                        Err(error) => panic!("{error}"),
                    }
                    let _ = array.read(Sector(7 * turn), Buf::dirty(512)).await.unwrap();
                }
                members.faults[1].clear();
                for turn in 0..20u64 {
                    array.write(Sector(3 + 7 * turn), data(3), WriteFlags::NONE).await.unwrap();
                }
                array.flush().await.unwrap();
                assert_eq!((array.scrub().await, array.status().is_healthy()), (Ok(0), true), "{level:?} {nth}");
                let read = array.read(Sector(3), Buf::dirty(139 * 512)).await.unwrap();
                assert!(read.iter().all(|byte| *byte == 3));
                failed
            };
            executor.block_on(run).unwrap();
        }
    }
}

/// While writes to a full member wait for space, parity is already that of the new data: the units of their rows that
/// are computed from it, because a member is missing or cannot read a sector, are still the right ones. Where nothing is
/// missing, the row gets its old parity again. Method: every pair of a full member and another one, in every row; all sectors
/// that were not written are compared, in every reading without a member as well.
#[test]
fn units_are_computed_while_writes_wait_for_space() {
    for (full, other, is_missing) in
        (0..12).map(|case| (case / 2 % 3, (case / 2 % 3 + 1 + case / 6) % 3, case % 2 == 0))
    {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let members = Members::new(&rt, 3, 5);
            let options = small(Level::Parity);
            let array = Array::create(&rt, members.devices(), &options, UUID, Contents::Zeroes).await.unwrap();
            let shape = array.core.shape;
            let name =
                format!("member {full} full, member {other} {}", if is_missing { "missing" } else { "unreadable" });
            let (rows, length) = (12, (shape.row_sectors() * SECTOR_BYTES) as usize);
            let mut model = vec![0; rows as usize * length];
            crate::rng::Rng::new(7).fill(&mut model);
            array.write(Sector(0), Data::from_slice(&model), WriteFlags::NONE).await.unwrap();
            if is_missing {
                array.give_up(other).await.unwrap();
            }
            let data = Sector(shape.at(0, 0))..Sector(shape.at(rows, 0));
            members.faults[full].add(Rule::new(Kinds::WRITE, When::Always, Effect::NoSpace).within(data.clone()));
            let mut written = Vec::new();
            for row in 0..rows {
                let Some(index) = shape.index(row, full) else { continue };
                let at = row * shape.row_sectors() + index as u64 * shape.unit + 2;
                array.core.is_space_unproven.set(false); // Otherwise, it is tried before there is a record.
                let error =
                    array.write(Sector(at), Data::from_slice(&[0xee; 3 * 512]), WriteFlags::NONE).await.unwrap_err();
                assert!(matches!(error, DeviceError::NoSpace { .. }), "{name}: {error}");
                written.extend(at..at + 3);
            }
            // Data without parity has nothing to agree with.
            let waits = |row: &u64| is_missing && ![full, other].contains(&shape.parity(*row));
            let waiting: Vec<u64> = (0..rows).filter(waits).collect();
            let redo: Vec<u64> = array.core.state.borrow().redo.keys().copied().collect();
            assert_eq!(redo, waiting, "{name}: they wait");
            if !is_missing {
                members.faults[other].lose(data);
            }
            // Row by row: each read tries the waiting write again, and a part of it may reach the member.
            let compare = async |readings: u32| {
                for (row, right) in model.chunks(length).enumerate() {
                    let (at, buf) = (row as u64 * shape.row_sectors(), Buf::dirty(length));
                    let read = match readings {
                        0 => array.read(Sector(at), buf).await,
                        _ => array.read_as(Sector(at), buf, readings - 1).await,
                    };
                    let read = match read {
                        Err(_) if readings > 0 => continue,
                        read => read.unwrap_or_else(|error| panic!("{name}: row {row}: {error}")),
                    };
                    for (sector, (read, right)) in (at..).zip(read.chunks(512).zip(right.chunks(512))) {
                        let is_right = read == right || written.contains(&sector) && read == [0xee; 512];
                        assert!(is_right, "{name}: sector {sector} in reading {readings}");
                    }
                }
            };
            for readings in (0..=array.readings()).chain([0]) {
                compare(readings).await;
            }
            members.faults[full].clear();
            {
                let _token = array.core.begin().await;
                array.core.redo_all().await;
            }
            assert!(array.core.state.borrow().redo.is_empty(), "{name}");
            for row in waiting {
                let Some(index) = shape.index(row, full) else { continue };
                let at = row * shape.row_sectors() + index as u64 * shape.unit + 2;
                model[(at * SECTOR_BYTES) as usize..][..3 * 512].fill(0xee);
                written.retain(|sector| !(at..at + 3).contains(sector));
            }
            let compared = array.read(Sector(0), Buf::dirty(model.len())).await.unwrap();
            for (sector, (read, right)) in (0..).zip(compared.chunks(512).zip(model.chunks(512))) {
                let is_right = read == right || written.contains(&sector) && read == [0xee; 512];
                assert!(is_right, "{name}: sector {sector} once there is space");
            }
            array.flush().await.unwrap();
            if !is_missing {
                assert_eq!(array.scrub().await, Ok(0), "{name}");
            }
            array.check().await.unwrap_or_else(|what| panic!("{name}: {what}"));
        };
        executor.block_on(run).unwrap();
    }
}

/// The repair of a copy brings nothing back: while it waits for the row, the copy that it has read from may miss a write.
/// Method: a write that one member accepts late and the other not at all, because it fails or is full, while a reader has found
/// that the first cannot be read.
#[test]
fn a_late_repair_brings_nothing_back() {
    for seed in 0..40 {
        let executor = Executor::simulated(seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let members = Members::new(&rt, 2, seed);
            let is_full = seed % 2 == 0;
            let array =
                Array::create(&rt, members.devices(), &small(Level::Mirror), UUID, Contents::Zeroes).await.unwrap();
            let data = |byte: u8| Data::from_slice(&[byte; 4096]);
            array.write(Sector(0), data(1), WriteFlags::NONE).await.unwrap();
            array.flush().await.unwrap();
            let place = Sector(array.core.shape.at(0, 0))..Sector(array.core.shape.at(1, 0));
            let write = |effect| Rule::new(Kinds::WRITE, When::Nth(1), effect).within(place.clone());
            members.faults[0].lose(place.clone());
            members.faults[0].add(write(Effect::Delay(Nanos(1000)..=Nanos(1000))));
            members.faults[1].add(write(if is_full { Effect::NoSpace } else { Effect::Error }));
            let writing = {
                let array = array.clone();
                rt.spawn(async move { array.write(Sector(0), data(2), WriteFlags::NONE).await })
            };
            rt.sleep(Nanos(300)).await;
            array.read(Sector(0), Buf::dirty(4096)).await.unwrap();
            assert_eq!(writing.await.is_ok(), !is_full, "seed {seed}");
            {
                let _token = array.core.begin().await;
                array.core.redo_all().await;
            }
            assert_eq!(array.status().members[1] == MemberState::Failed, !is_full, "seed {seed}");
            for _ in 0..2 {
                let read = array.read(Sector(0), Buf::dirty(4096)).await.unwrap();
                assert!(read[..] == [2; 4096], "seed {seed}: what has been written is there");
            }
            array.flush().await.unwrap();
            array.check().await.unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        };
        executor.block_on(run).unwrap();
    }
}

/// A replaced member is rebuilt while the array is written to, and then holds all data. Method: the others fail in turn
/// afterwards.
#[test]
fn a_replaced_member_is_filled() {
    for (level, count) in [(Level::Mirror, 3), (Level::Parity, 4)] {
        for victim in 0..count {
            let executor = Executor::simulated(victim as u64, HostProfile::NONE);
            let rt = executor.rt().clone();
            let run = async {
                let members = Members::new(&rt, count, 3);
                let options = small(level);
                let array = Array::create(&rt, members.devices(), &options, UUID, Contents::Zeroes).await.unwrap();
                let mut exercise = Exercise::new(array.clone(), 1);
                for round in 0..60 {
                    if round == 10 {
                        array.give_up(victim).await.unwrap();
                        assert!(array.replace((victim + 1) % count, members.memories[victim].clone()).await.is_err());
                    }
                    if round == 20 {
                        let tiny = Rc::new(Memory::new(4096));
                        assert!(array.replace(victim, tiny).await.is_err());
                        array.replace(victim, slow(&rt, &[SECTORS], 1).remove(0)).await.unwrap();
                    }
                    exercise.round(&rt, Mix::ALL).await.unwrap();
                }
                while !array.status().is_healthy() {
                    exercise.round(&rt, Mix::ALL).await.unwrap();
                    assert_eq!(array.status().error, None);
                }
                assert_eq!(array.scrub().await, Ok(0));
                members.faults[(victim + 1) % count].add(Rule::new(Kinds::all(), When::Always, Effect::Gone));
                exercise.compare().await.unwrap();
                exercise.round(&rt, Mix::ALL).await.unwrap();
                exercise.compare().await.unwrap();
            };
            executor.block_on(run).unwrap();
        }
    }
}

/// Several concurrent flushes, of which a member fails the first: none returns before the failure is recorded on the
/// others. Method: at each return, a copy of all members is opened, as after a power cut.
#[test]
fn no_flush_is_answered_before_a_failure_is_recorded() {
    for seed in 0..60 {
        let executor = Executor::simulated(seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let members = Rc::new(Members::new(&rt, 3, seed));
            let options = small(Level::Mirror);
            let array = Array::create(&rt, members.devices(), &options, UUID, Contents::Zeroes).await.unwrap();
            array.write(Sector(8), Data::from_slice(&[1; 4096]), WriteFlags::NONE).await.unwrap();
            members.faults[2].add(Rule::new(Kinds::FLUSH, When::From(1), Effect::Error));
            let flushes = (0..6).map(|number| {
                let (rt, array, members) = (rt.clone(), array.clone(), members.clone());
                let inner = rt.clone();
                rt.spawn(async move {
                    inner.sleep(Nanos(number * (10 + seed))).await;
                    array.flush().await.unwrap();
                    let copy = |memory: &Rc<Memory>| -> Option<Device> {
                        Some(Rc::new(Memory::from_image(SECTORS * SECTOR_BYTES, memory.image())))
                    };
                    let copies = members.memories.iter().map(copy).collect();
                    let left = Array::open(&inner, copies, &small(Level::Mirror)).await.unwrap();
                    assert_eq!(left.status().members[2], MemberState::Failed, "seed {seed}, flush {number}");
                })
            });
            let flushes: Vec<_> = flushes.collect();
            for flush in flushes {
                flush.await;
            }
        };
        executor.block_on(run).unwrap();
    }
}

/// Aim: after a flush of the last member of a mirror has failed, nothing is acknowledged any more, also where the flush was one in the
/// background. Method: each member fails one flush.
#[test]
fn a_mirror_remembers_that_its_last_flush_failed() {
    for in_background in [false, true] {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let members = Members::new(&rt, 2, 1);
            let array =
                Array::create(&rt, members.devices(), &small(Level::Mirror), UUID, Contents::Zeroes).await.unwrap();
            array.write(Sector(8), Data::from_slice(&[1; 4096]), WriteFlags::NONE).await.unwrap();
            for fault in &members.faults {
                fault.add(Rule::new(Kinds::FLUSH, When::Nth(1), Effect::Error));
            }
            match in_background {
                true => rt.sleep(Nanos::from_secs(5)).await,
                false => assert!(array.flush().await.is_err()),
            }
            assert!(array.flush().await.is_err(), "what the failed flush has lost is unknown");
            let written = array.write(Sector(8), Data::from_slice(&[2; 4096]), WriteFlags::NONE).await;
            assert!(written.is_err());
            assert!(array.read(Sector(8), Buf::dirty(4096)).await.is_ok());
        };
        executor.block_on(run).unwrap();
    }
}

/// Two members are replaced at once: the second has to wait until the first is rebuilt, and neither is taken to hold what the
/// other does. So has a second device for the same place.
#[test]
fn two_replacements_at_once() {
    for seed in 0..40 {
        let executor = Executor::simulated(seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let members = Members::new(&rt, 3, seed);
            let options = small(Level::Mirror);
            let array = Array::create(&rt, members.devices(), &options, UUID, Contents::Zeroes).await.unwrap();
            let mut exercise = Exercise::new(array.clone(), seed);
            exercise.round(&rt, Mix::ALL).await.unwrap();
            array.give_up(1).await.unwrap();
            array.give_up(2).await.unwrap();
            let second = if seed % 2 == 0 { 2 } else { 1 };
            let tasks = [1, second].map(|slot| {
                let (array, new) = (array.clone(), slow(&rt, &[SECTORS], seed).remove(0));
                rt.spawn(async move { array.replace(slot, new).await.is_ok() })
            });
            let mut replaced = 0;
            for task in tasks {
                replaced += u64::from(task.await);
            }
            assert_eq!(replaced, 1, "seed {seed}");
            array.resynced().await;
            let left = array.status().members.iter().position(|state| *state == MemberState::Failed).unwrap();
            array.replace(left, slow(&rt, &[SECTORS], seed).remove(0)).await.unwrap();
            array.resynced().await;
            assert!(array.status().is_healthy(), "seed {seed}: {:?}", array.status());
            array.check().await.unwrap_or_else(|what| panic!("seed {seed}: {what}"));
            for victim in [0, 1] {
                array.give_up(victim).await.unwrap();
                exercise.compare().await.unwrap();
            }
        };
        executor.block_on(run).unwrap();
    }
}

/// A device that is a member in use takes the place of no other one.
#[test]
fn a_member_in_use_replaces_no_other() {
    for level in [Level::Mirror, Level::Parity] {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let members = Members::new(&rt, 3, 1);
            let array = Array::create(&rt, members.devices(), &small(level), UUID, Contents::Zeroes).await.unwrap();
            array.give_up(1).await.unwrap();
            let error = array.replace(1, members.faults[2].clone()).await.unwrap_err();
            assert!(matches!(error, ArrayError::Replace { slot: 1, .. }), "{error}");
            array.check().await.unwrap();
            array.replace(1, members.faults[1].clone()).await.unwrap();
            array.resynced().await;
            assert_eq!((array.status().is_healthy(), array.scrub().await), (true, Ok(0)));
        };
        executor.block_on(run).unwrap();
    }
}

/// A member that is being rebuilt fails, and another device takes its place before the rebuild has noticed: it is filled from
/// the first row on. Method: the failure at many moments of the rebuild; then the member holds all data alone.
#[test]
fn a_member_is_replaced_again_while_it_is_rebuilt() {
    for (level, count) in [(Level::Mirror, 2), (Level::Parity, 3)] {
        for seed in 0..60 {
            let executor = Executor::simulated(seed, HostProfile::NONE);
            let rt = executor.rt().clone();
            let run = async {
                let members = Members::new(&rt, count, seed);
                let array = Array::create(&rt, members.devices(), &small(level), UUID, Contents::Zeroes).await.unwrap();
                let mut exercise = Exercise::new(array.clone(), seed);
                for _ in 0..6 {
                    exercise.round(&rt, Mix::ALL).await.unwrap();
                }
                array.flush().await.unwrap();
                array.give_up(1).await.unwrap();
                array.replace(1, slow(&rt, &[SECTORS], seed).remove(0)).await.unwrap();
                rt.sleep(Nanos(1 + 37 * seed)).await;
                let failing = {
                    let array = array.clone();
                    rt.spawn(async move { array.give_up(1).await })
                };
                rt.yield_now().await;
                let replaced = array.replace(1, slow(&rt, &[SECTORS], seed + 1).remove(0)).await;
                let failed = failing.await;
                if replaced.is_err() && failed.is_ok() {
                    array.replace(1, slow(&rt, &[SECTORS], seed + 2).remove(0)).await.unwrap();
                }
                array.resynced().await;
                assert!(array.status().is_healthy(), "{level:?} {seed}: {:?}", array.status());
                array.check().await.unwrap_or_else(|what| panic!("{level:?} {seed}: {what}"));
                array.give_up(0).await.unwrap();
                exercise.compare().await.unwrap();
            };
            executor.block_on(run).unwrap();
        }
    }
}

/// The last member of a mirror has no space for the superblock that names the other one as failed: nothing is acknowledged
/// before it is there. Method: all members are back afterwards.
#[test]
fn a_failure_that_could_not_be_recorded_is_not_forgotten() {
    for seed in 0..8 {
        let executor = Executor::simulated(seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let members = Members::new(&rt, 2, seed);
            let options = small(Level::Mirror);
            let array = Array::create(&rt, members.devices(), &options, UUID, Contents::Zeroes).await.unwrap();
            members.faults[0].add(Rule::new(Kinds::all(), When::Always, Effect::Gone));
            let superblocks = Sector(0)..Sector(16);
            members.faults[1].add(Rule::new(Kinds::WRITE, When::Nth(1), Effect::NoSpace).within(superblocks));
            let data = |byte: u8| Data::from_slice(&[byte; 4096]);
            let error = array.write(Sector(0), data(1), WriteFlags::NONE).await.unwrap_err();
            assert!(matches!(error, DeviceError::NoSpace { .. }), "seed {seed}: {error}");
            array.write(Sector(0), data(2), WriteFlags::NONE).await.unwrap();
            array.flush().await.unwrap();
            array.check().await.unwrap_or_else(|what| panic!("seed {seed}: {what}"));
            drop(array);
            let given = members.memories.iter().map(|memory| Some(memory.clone() as Device)).collect();
            let reopened = Array::open(&rt, given, &options).await.unwrap();
            assert_eq!(reopened.status().members[0], MemberState::Failed, "seed {seed}");
            let read = reopened.read(Sector(0), Buf::dirty(4096)).await.unwrap();
            assert!(read[..] == [2; 4096], "seed {seed}: what was acknowledged is there");
        };
        executor.block_on(run).unwrap();
    }
}

/// Superblocks that cannot be written for long do not make the one member that holds everything look out of date.
/// Method: its superblock finds no space while the other one is rebuilt; then the array is opened again.
#[test]
fn a_member_that_lacks_space_for_its_superblock_stays_valid() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let run = async {
        let members = Members::new(&rt, 2, 1);
        let options = small(Level::Mirror);
        let array = Array::create(&rt, members.devices(), &options, UUID, Contents::Zeroes).await.unwrap();
        let data = |byte: u8| Data::from_slice(&[byte; 4096]);
        array.write(Sector(0), data(1), WriteFlags::NONE).await.unwrap();
        array.give_up(0).await.unwrap();
        let superblocks = Sector(0)..Sector(16);
        members.faults[1].add(Rule::new(Kinds::WRITE, When::Always, Effect::NoSpace).within(superblocks));
        let replacement = Rc::new(Memory::new(SECTORS * SECTOR_BYTES));
        let _ = array.replace(0, replacement.clone()).await;
        for _ in 0..5 {
            array.write(Sector(0), data(2), WriteFlags::NONE).await.unwrap_err();
        }
        drop(array);
        let given = vec![Some(replacement as Device), Some(members.memories[1].clone() as Device)];
        let options = ArrayOptions { degraded: true, ..options };
        let reopened = Array::open(&rt, given, &options).await.unwrap();
        reopened.read(Sector(0), Buf::dirty(4096)).await.unwrap();
    };
    executor.block_on(run).unwrap();
}

/// What is written between a member's failure and its record has a bit, too: after a power cut both members are trusted.
/// Method: a read finds the failure and is slow to record it; copies of the members from before the record are opened.
#[test]
fn a_write_before_the_record_of_a_failure_has_a_bit() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let run = async {
        let memories: Vec<_> = (0..2).map(|_| Rc::new(Memory::new(SECTORS * SECTOR_BYTES))).collect();
        let faults: Vec<_> = memories.iter().map(|memory| FaultDevice::new(&rt, memory.clone(), 1)).collect();
        let options = small(Level::Mirror);
        let given = faults.iter().map(|fault| fault.clone() as Device).collect();
        let array = Array::create(&rt, given, &options, UUID, Contents::Zeroes).await.unwrap();
        let late = Effect::Delay(Nanos(1_000_000)..=Nanos(1_000_000));
        faults[0].add(Rule::new(Kinds::READ, When::Always, Effect::Gone));
        faults[1].add(Rule::new(Kinds::READ, When::Nth(1), late.clone()));
        faults[1].add(Rule::new(Kinds::WRITE, When::Always, late).within(Sector(0)..Sector(16)));
        for is_read in [true, false] {
            let array = array.clone();
            drop(rt.spawn(async move {
                match is_read {
                    true => drop(array.read(Sector(0), Buf::dirty(4096)).await),
                    false => drop(array.write(Sector(64), Data::from_slice(&[1; 4096]), WriteFlags::NONE).await),
                }
            }));
            rt.sleep(Nanos(1_000)).await;
        }
        assert_eq!(array.status().members[0], MemberState::Failed);
        let copy = |memory: &Rc<Memory>| -> Option<Device> {
            Some(Rc::new(Memory::from_image(SECTORS * SECTOR_BYTES, memory.image())))
        };
        let reopened = Array::open(&rt, memories.iter().map(copy).collect(), &options).await.unwrap();
        assert_eq!(reopened.status().members[0], MemberState::Active, "the failure is not recorded yet");
        reopened.resynced().await;
        assert_eq!(reopened.scrub().await, Ok(0));
    };
    executor.block_on(run).unwrap();
}

/// A read that its caller gives up loses none of the writes that wait for space.
#[test]
fn a_read_that_is_dropped_loses_no_waiting_write() {
    for level in [Level::Mirror, Level::Parity] {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let members = Members::new(&rt, 3, 1);
            let array = Array::create(&rt, members.devices(), &small(level), UUID, Contents::Zeroes).await.unwrap();
            let data = Sector(array.core.shape.at(0, 0))..Sector(array.core.shape.at(8, 0));
            // One has no space for the first write of each row, and none of them has any to take back what is on the others.
            for (slot, fault) in members.faults.iter().enumerate() {
                let when = if slot == 0 { When::Always } else { When::From(2) };
                fault.add(Rule::new(Kinds::WRITE, when, Effect::NoSpace).within(data.clone()));
            }
            for row in 0..3 {
                let at = Sector(row * array.core.shape.row_sectors());
                array.write(at, Data::from_slice(&[1; 8192]), WriteFlags::NONE).await.unwrap_err();
            }
            let waiting: Vec<u64> = array.core.state.borrow().redo.keys().copied().collect();
            assert!(!waiting.is_empty());
            members.faults.iter().for_each(|fault| fault.clear());
            let late = Effect::Delay(Nanos(1000)..=Nanos(1000));
            members.faults[0].add(Rule::new(Kinds::WRITE, When::Always, late).within(data));
            for row in waiting {
                let at = Sector(row * array.core.shape.row_sectors());
                let dropped = async { array.read(at, Buf::dirty(4096)).await };
                assert!(futures_util::FutureExt::now_or_never(dropped).is_none(), "it waits for the write");
                rt.sleep(Nanos(100)).await;
                drop(array.read(at, Buf::dirty(4096)).await.unwrap());
            }
            array.flush().await.unwrap();
            assert!(array.core.state.borrow().redo.is_empty());
            assert_eq!(array.scrub().await, Ok(0), "{level:?}");
        };
        executor.block_on(run).unwrap();
    }
}

/// Reads that their callers give up do not count as load of a member permanently.
#[test]
fn reads_that_are_dropped_are_no_load() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let run = async {
        let members = slow(&rt, &[700; 2], 1);
        let array = Array::create(&rt, members, &small(Level::Mirror), UUID, Contents::Zeroes).await.unwrap();
        for _ in 0..8 {
            let dropped = async { array.read(Sector(0), Buf::dirty(4096)).await };
            assert!(futures_util::FutureExt::now_or_never(dropped).is_none(), "it waits for a member");
        }
        rt.sleep(Nanos::from_secs(1)).await;
        assert!(array.core.balance.iter().all(|load| load.get().0 == 0), "{:?}", array.core.balance);
    };
    executor.block_on(run).unwrap();
}

/// A record of the journal that could not be written to all of its members is not read later, over what was written since.
/// Method: the next record is longer, so some time it is at the start of the ring and the other one before the end.
#[test]
fn a_record_without_space_is_not_read_later() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let run = async {
        let members = Members::new(&rt, 3, 1);
        let options = ArrayOptions { journal: JournalUse::Always, ..small(Level::Parity) };
        let array = Array::create(&rt, members.devices(), &options, UUID, Contents::Zeroes).await.unwrap();
        let layout = array.core.layout.unwrap();
        let ring = Sector(layout.journal_start)..Sector(layout.journal_start + layout.journal_sectors);
        let mut failed = 0;
        for turn in 0..60u8 {
            let data = |byte: u8, sectors: usize| Data::from_slice(&vec![byte; sectors * 512]);
            // The first time, there is space at the start of the ring, if there is room.
            let when = if turn % 3 == 0 { When::Nth(1) } else { When::Always };
            members.faults[1].add(Rule::new(Kinds::WRITE, when, Effect::NoSpace).within(ring.clone()));
            failed += u32::from(array.write(Sector(0), data(2 * turn, 1), WriteFlags::NONE).await.is_err());
            members.faults[1].clear();
            array.write(Sector(0), data(2 * turn + 1, 32), WriteFlags::NONE).await.unwrap();
            let copy = |memory: &Rc<Memory>| -> Option<Device> {
                Some(Rc::new(Memory::from_image(SECTORS * SECTOR_BYTES, memory.image())))
            };
            let reopened = Array::open(&rt, members.memories.iter().map(copy).collect(), &options).await.unwrap();
            let read = reopened.read(Sector(0), Buf::dirty(32 * 512)).await.unwrap();
            assert!(read.iter().all(|byte| *byte == 2 * turn + 1), "turn {turn}: {} {}", read[0], read[512]);
            assert_eq!(reopened.scrub().await, Ok(0), "turn {turn}");
        }
        assert!(failed > 20 && array.status().is_healthy(), "{failed}");
    };
    executor.block_on(run).unwrap();
}

/// The same on a member that says that it has no space, and has the whole record. Method: when the array is complete again,
/// the row is written without the journal.
#[test]
fn a_record_that_arrived_without_space_is_not_read_later() {
    for seed in 0..16 {
        let executor = Executor::simulated(seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let members = Members::new(&rt, 3, seed);
            let options = small(Level::Parity);
            let array = Array::create(&rt, members.devices(), &options, UUID, Contents::Zeroes).await.unwrap();
            let layout = array.core.layout.unwrap();
            let missing = array.core.shape.member(0, 0);
            array.give_up(missing).await.unwrap();
            let ring = Sector(layout.journal_start)..Sector(layout.journal_start + layout.journal_sectors);
            for fault in &members.faults {
                fault.add(Rule::new(Kinds::WRITE, When::Nth(1), Effect::NoSpace).within(ring.clone()));
            }
            let data = |byte: u8| Data::from_slice(&[byte; 512]);
            array.write(Sector(0), data(1), WriteFlags::NONE).await.unwrap_err();
            members.faults.iter().for_each(|fault| fault.clear());
            let replacement = Rc::new(Memory::new(SECTORS * SECTOR_BYTES));
            array.replace(missing, replacement.clone()).await.unwrap();
            array.resynced().await;
            assert!(array.status().is_healthy(), "seed {seed}");
            array.write(Sector(0), data(2), WriteFlags::NONE).await.unwrap();
            array.flush().await.unwrap();
            drop(array);
            let device =
                |slot: usize| if slot == missing { replacement.clone() } else { members.memories[slot].clone() };
            let given = (0..3).map(|slot| Some(device(slot) as Device)).collect();
            let reopened = Array::open(&rt, given, &options).await.unwrap();
            let read = reopened.read(Sector(0), Buf::dirty(512)).await.unwrap();
            assert!(read[..] == [2; 512], "seed {seed}: {}", read[0]);
            assert_eq!(reopened.scrub().await, Ok(0), "seed {seed}");
        };
        executor.block_on(run).unwrap();
    }
}

/// What `memories` hold now, opened as after a power cut.
pub(super) async fn after_a_cut(rt: &Rt, memories: &[Rc<Memory>], options: &ArrayOptions) -> Rc<Array> {
    let copy = |memory: &Rc<Memory>| -> Option<Device> {
        Some(Rc::new(Memory::from_image(SECTORS * SECTOR_BYTES, memory.image())))
    };
    Array::open(rt, memories.iter().map(copy).collect(), options).await.unwrap()
}

/// A record that is kept, because a member had no space for all of its writes, is not done again over what was written
/// since without the journal; nor is one that is written while the first is kept. Method: the row's parity is on a member that fails,
/// so that the row needs no record; so many writes that the journal begins at its start again several times.
#[test]
fn a_kept_record_is_not_done_again_over_a_row_without_parity() {
    for seed in 0..8 {
        let executor = Executor::simulated(seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let members = Members::new(&rt, 3, seed);
            let options = ArrayOptions { journal: JournalUse::Always, ..small(Level::Parity) };
            let array = Array::create(&rt, members.devices(), &options, UUID, Contents::Zeroes).await.unwrap();
            let shape = array.core.shape;
            let full = Rule::new(Kinds::WRITE, When::Nth(1), Effect::NoSpace)
                .within(Sector(shape.data_start)..Sector(SECTORS));
            members.faults[shape.member(0, 0)].add(full);
            let data = |byte: u8| Data::from_slice(&[byte; 512]);
            array.write(Sector(0), data(1), WriteFlags::NONE).await.unwrap_err();
            array.give_up(shape.parity(0)).await.unwrap();
            for byte in 2..120 {
                array.write(Sector(0), data(byte), WriteFlags::FUA).await.unwrap();
                let reopened = after_a_cut(&rt, &members.memories, &options).await;
                let read = reopened.read(Sector(0), Buf::dirty(512)).await.unwrap();
                assert!(read[..] == data(byte)[..], "seed {seed}: {} instead of {byte}", read[0]);
            }
        };
        executor.block_on(run).unwrap();
    }
}

/// The same where a rebuild has passed one of the record's rows, and has stopped before the one that has no space.
#[test]
fn a_kept_record_is_not_done_again_over_a_rebuilt_row() {
    for seed in 0..8 {
        let executor = Executor::simulated(seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let mut members = Members::new(&rt, 3, seed);
            let options =
                ArrayOptions { region: Some(4 * KIB), batch: 4 * KIB, progress: 4 * KIB, ..small(Level::Parity) };
            let array = Array::create(&rt, members.devices(), &options, UUID, Contents::Zeroes).await.unwrap();
            let shape = array.core.shape;
            let missing = shape.member(0, 0);
            array.give_up(missing).await.unwrap();
            // Rows 0 to 3: the write to the last one finds no space.
            let last = Sector(shape.at(3, 0))..Sector(shape.at(3, 0) + shape.unit);
            for fault in &members.faults {
                fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::NoSpace).within(last.clone()));
            }
            let all = |byte: u8| Data::from_slice(&vec![byte; (4 * shape.row_sectors() * SECTOR_BYTES) as usize]);
            array.write(Sector(0), all(1), WriteFlags::NONE).await.unwrap_err();
            let replacement = Rc::new(Memory::new(SECTORS * SECTOR_BYTES));
            members.memories[missing] = replacement.clone();
            array.replace(missing, replacement).await.unwrap();
            array.resynced().await;
            let is_rebuilt = array.core.state.borrow().cursor > 0;
            assert!(array.status().error.is_some() && !is_rebuilt, "seed {seed}: a rebuild waits for what is kept");
            let at = Sector(shape.unit); // On a member that the record is about.
            array.write(at, Data::from_slice(&[2; 512]), WriteFlags::FUA).await.unwrap();
            let reopened = after_a_cut(&rt, &members.memories, &options).await;
            let read = reopened.read(at, Buf::dirty(512)).await.unwrap();
            assert!(read[..] == [2; 512], "seed {seed}: {}", read[0]);
            reopened.resynced().await;
            assert_eq!(reopened.scrub().await, Ok(0), "seed {seed}");
        };
        executor.block_on(run).unwrap();
    }
}

/// A discard of several rows has a record for those alone that need one: it is not done again over what is written later,
/// without the journal, to one whose parity is missing.
#[test]
fn a_discard_is_not_done_again_over_a_row_without_parity() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let run = async {
        for missing in 0..3 {
            let members = Members::new(&rt, 3, 1);
            let options = small(Level::Parity);
            let array = Array::create(&rt, members.devices(), &options, UUID, Contents::Zeroes).await.unwrap();
            array.give_up(missing).await.unwrap();
            let row_sectors = array.core.shape.row_sectors();
            array.discard(Sector(0), 3 * row_sectors).await.unwrap();
            let data = Data::from_slice(&vec![7; (3 * row_sectors * SECTOR_BYTES) as usize]);
            for row in 0..3 {
                let part = data.slice(0..(row_sectors * SECTOR_BYTES) as usize);
                array.write(Sector(row * row_sectors), part, WriteFlags::FUA).await.unwrap();
            }
            let reopened = after_a_cut(&rt, &members.memories, &options).await;
            compare(&(reopened as Device), &data).await.unwrap();
        }
    };
    executor.block_on(run).unwrap();
}
