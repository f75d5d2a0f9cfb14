//! Aim: an array's bookkeeping holds through a whole life: members that fail, are replaced and fail again, cuts in a
//! rebuild and in the recovery after it, unreadable sectors, and scrubs at any time. Method: random requests against
//! plain bytes, and after each round a recount from the content of the members.

use super::*;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::cut::Effort;
use crate::rng::Rng;
use crate::testing::environment::soak;

const SECTORS: u64 = 700;

fn shapes() -> [(Level, usize, JournalUse); 4] {
    [
        (Level::Mirror, 2, JournalUse::Degraded),
        (Level::Mirror, 3, JournalUse::Degraded),
        (Level::Parity, 3, JournalUse::Degraded),
        (Level::Parity, 4, JournalUse::Always),
    ]
}

fn seeds() -> u64 {
    soak().times(2)
}

fn run(seed: u64, body: impl AsyncFnOnce(Rt)) {
    let executor = Executor::simulated(seed, HostProfile::NONE);
    let rt = executor.rt().clone();
    executor.block_on(body(rt)).expect("nothing waits indefinitely");
}

#[test]
fn the_books_balance_through_a_life() {
    for seed in 1..=seeds() {
        for (level, count, journal) in shapes() {
            run(seed, async |rt| {
                let options = ArrayOptions { journal, ..small(level) };
                let members = slow(&rt, &vec![SECTORS; count], seed);
                let array = Array::create(&rt, members, &options, UUID, Contents::Zeroes).await.unwrap();
                let mut exercise = Exercise::new(array.clone(), seed);
                let mut rng = Rng::new(seed);
                let mut lost = None;
                let (mut losses, mut replaced) = (0, 0);
                for round in 0..50 {
                    let name = format!("{level:?} of {count}, seed {seed}, round {round}");
                    exercise.round(&rt, Mix::ALL).await.unwrap_or_else(|what| panic!("{name}: {what}"));
                    array.check().await.unwrap_or_else(|what| panic!("{name}: {what}"));
                    let is_rebuilding = array.status().members.contains(&MemberState::Rebuilding);
                    match lost {
                        None if !is_rebuilding && rng.chance(1, 4) => {
                            let victim = rng.below(count as u64) as usize;
                            if array.give_up(victim).await.is_ok() {
                                lost = Some(victim);
                                losses += 1;
                            }
                        }
                        Some(victim) if rng.chance(1, 3) => {
                            array.replace(victim, slow(&rt, &[SECTORS], seed + round).remove(0)).await.unwrap();
                            lost = None;
                            replaced += 1;
                        }
                        _ => {}
                    }
                    array.check().await.unwrap_or_else(|what| panic!("{name}, after a change of members: {what}"));
                }
                assert!(losses > 1 && replaced > 1, "{losses} {replaced}");
                array.resynced().await;
                exercise.compare().await.unwrap();
                assert_eq!((array.scrub().await, array.check().await), (Ok(0), Ok(())));
            });
        }
    }
}

/// The check finds every kind of inconsistency. Method: each of its counts is falsified.
#[test]
fn the_check_finds_what_does_not_fit() {
    for level in [Level::Mirror, Level::Parity] {
        run(1, async |rt| {
            let disks: Vec<Rc<Memory>> = (0..3).map(|_| Rc::new(Memory::new(SECTORS * SECTOR_BYTES))).collect();
            let devices = disks.iter().map(|disk| disk.clone() as Device).collect();
            let array = Array::create(&rt, devices, &small(level), UUID, Contents::Zeroes).await.unwrap();
            array.write(Sector(0), Data::from_slice(&[1; 8192]), WriteFlags::NONE).await.unwrap();
            assert_eq!(array.check().await, Ok(()));
            let spoil = async |sector: u64, bytes: usize| {
                let at = Sector(sector);
                let before = disks[1].read(at, Buf::dirty(bytes)).await.unwrap().freeze();
                disks[1].write(at, Data::from_slice(&vec![9; bytes]), WriteFlags::NONE).await.unwrap();
                let found = array.check().await;
                disks[1].write(at, before, WriteFlags::NONE).await.unwrap();
                assert_eq!(array.check().await, Ok(()));
                found.unwrap_err()
            };
            let row = spoil(array.core.shape.at(0, 0), 512).await;
            assert!(row.contains("row 0 is not consistent"), "{row}");
            let generation = array.core.state.borrow().generation;
            let slot = crate::volume::format::SUPERBLOCKS[(generation % 2) as usize];
            assert!(spoil(slot, 4096).await.starts_with("member 1"));
            let layout = array.core.layout.unwrap();
            let start = crate::volume::format::bitmap_start(array.core.bitmap.epoch() % 2, layout.bitmap_sectors);
            assert!(spoil(start, 512).await.contains("bitmap is damaged"));
        });
    }
}

/// Clients write while two scrubs run: neither finds an error, and nothing is lost.
#[test]
fn scrubs_and_clients_at_once() {
    for seed in 1..=seeds() {
        for (level, count, journal) in shapes() {
            run(seed, async |rt| {
                let options = ArrayOptions { journal, ..small(level) };
                let members = slow(&rt, &vec![SECTORS; count], seed);
                let array = Array::create(&rt, members, &options, UUID, Contents::Zeroes).await.unwrap();
                let mut exercise = Exercise::new(array.clone(), seed);
                let work = async {
                    for _ in 0..25 {
                        exercise.round(&rt, Mix::ALL).await.unwrap();
                    }
                };
                let scrubs = async {
                    for _ in 0..3 {
                        let both = futures_util::future::join(array.scrub(), array.scrub()).await;
                        assert_eq!(both, (Ok(0), Ok(0)), "{level:?} of {count}, seed {seed}");
                    }
                };
                futures_util::future::join(work, scrubs).await;
                exercise.compare().await.unwrap();
                assert_eq!(array.check().await, Ok(()));
            });
        }
    }
}

/// Reads return the bytes of `device` or an error, never wrong data.
async fn right_or_error(device: &Array, bytes: &[u8]) -> u64 {
    let mut errors = 0;
    for (sector, right) in bytes.chunks(SECTOR_BYTES as usize).enumerate() {
        match device.read(Sector(sector as u64), Buf::dirty(right.len())).await {
            Ok(read) => assert_eq!(read[..], *right, "sector {sector} is a guess"),
            Err(_) => errors += 1,
        }
    }
    errors
}

/// A second member that fails during a rebuild is an error; reads are right or fail, immediately and after the next
/// start.
#[test]
fn a_second_failure_in_a_rebuild_is_an_error() {
    for seed in 1..=3 * seeds() {
        for (level, count) in [(Level::Mirror, 2), (Level::Parity, 3), (Level::Parity, 4)] {
            run(seed, async |rt| {
                let disks: Vec<Rc<Memory>> =
                    (0..=count).map(|_| Rc::new(Memory::new(SECTORS * SECTOR_BYTES))).collect();
                let faults: Vec<Rc<FaultDevice>> = disks
                    .iter()
                    .map(|disk| {
                        let fault = FaultDevice::new(&rt, disk.clone(), seed);
                        fault.add(Rule::new(Kinds::all(), When::Always, Effect::Delay(Nanos(1)..=Nanos(100))));
                        fault
                    })
                    .collect();
                let devices = faults[..count].iter().map(|fault| fault.clone() as Device).collect();
                let array = Array::create(&rt, devices, &small(level), UUID, Contents::Zeroes).await.unwrap();
                let mut exercise = Exercise::new(array.clone(), seed);
                for _ in 0..10 {
                    exercise.round(&rt, Mix::ALL).await.unwrap();
                }
                let (victim, second) = (seed as usize % count, (seed as usize + 1) % count);
                array.give_up(victim).await.unwrap();
                array.flush().await.unwrap();
                // One read of each member for a batch of four rows: the member fails before the rebuild ends.
                let nth = Rng::new(seed).between(1, array.status().rows.div_ceil(4));
                faults[second].add(Rule::new(Kinds::READ, When::From(nth), Effect::Gone));
                array.replace(victim, faults[count].clone()).await.unwrap();
                array.resynced().await;
                assert!(!array.status().is_healthy(), "{level:?}, seed {seed}");
                assert!(array.status().stopped || array.status().error.is_some(), "{level:?}, seed {seed}");
                let lost = right_or_error(&array, &exercise.bytes).await;
                assert!(lost > 0);
                drop(array);
                // The second one comes back: the rebuild continues.
                let mut given: Vec<Option<Device>> =
                    disks[..count].iter().map(|disk| Some(disk.clone() as Device)).collect();
                given[victim] = Some(disks[count].clone());
                let array = Array::open(&rt, given, &small(level)).await.unwrap();
                array.resynced().await;
                assert_eq!((array.status().is_healthy(), array.check().await), (true, Ok(())));
                compare(&(array as Device), &exercise.bytes).await.unwrap();
            });
        }
    }
}

/// An unreadable sector on the only member that holds it ends a rebuild with an error that says so; everything else
/// stays readable, and when the sector is readable again the rebuild continues.
#[test]
fn unreadable_sectors_end_a_rebuild_with_an_error() {
    for (level, count) in [(Level::Mirror, 2), (Level::Parity, 3)] {
        for seed in 1..=2 * seeds() {
            run(seed, async |rt| {
                let disks: Vec<Rc<Memory>> =
                    (0..=count).map(|_| Rc::new(Memory::new(SECTORS * SECTOR_BYTES))).collect();
                let bad = FaultDevice::new(&rt, disks[1].clone(), seed);
                let mut devices: Vec<Device> = disks[..count].iter().map(|disk| disk.clone() as Device).collect();
                devices[1] = bad.clone();
                let array = Array::create(&rt, devices, &small(level), UUID, Contents::Zeroes).await.unwrap();
                let mut exercise = Exercise::new(array.clone(), seed);
                for _ in 0..10 {
                    exercise.round(&rt, Mix::ALL).await.unwrap();
                }
                array.give_up(0).await.unwrap();
                let row = Rng::new(seed).below(array.status().rows);
                let sector = Sector(array.core.shape.at(row, 3));
                bad.add(Rule::new(Kinds::READ, When::Always, Effect::Error).within(sector..sector + 1));
                array.replace(0, disks[count].clone()).await.unwrap();
                array.resynced().await;
                let error = array.status().error.expect("the rebuild has ended").to_string();
                assert!(error.contains("member 1"), "{error}");
                let lost = right_or_error(&array, &exercise.bytes).await;
                assert!((1..=16).contains(&lost), "{level:?}: {lost}");
                drop(array);
                let mut given: Vec<Option<Device>> =
                    disks[..count].iter().map(|disk| Some(disk.clone() as Device)).collect();
                given[0] = Some(disks[count].clone());
                let array = Array::open(&rt, given, &small(level)).await.unwrap();
                array.resynced().await;
                assert_eq!((array.status().is_healthy(), array.check().await), (true, Ok(())));
                compare(&(array as Device), &exercise.bytes).await.unwrap();
            });
        }
    }
}

/// Sectors of a member.
const PART: u64 = 360;

/// The power fails during a rebuild, during the recovery, and once more: everything flushed before each cut is there,
/// the rebuild continues, and in the end any other member can be lost.
#[test]
fn a_rebuild_is_cut_again_and_again() {
    for seed in 1..=12 * seeds() {
        for (level, count, journal) in shapes() {
            let parts = count + 1;
            let device = |record: bool| {
                let bytes = PART * SECTOR_BYTES * parts as u64;
                CrashOptions { seed, record, ..CrashOptions::volatile(bytes) }
            };
            let options = ArrayOptions { journal, batch: 4 * KIB, progress: 8 * KIB, ..small(level).unit(4) };
            let victim = seed as usize % count;
            // The new member is the last part.
            let given = move |whole: &CrashDevice| -> Vec<Device> {
                let part = |slot: usize| {
                    let slot = if slot == victim { count } else { slot };
                    whole.part(Sector(slot as u64 * PART), PART) as Device
                };
                (0..count).map(part).collect()
            };
            let mut rng = Rng::new(seed);
            let mut image = Image::default();
            let mut bytes: Vec<u8> = Vec::new();
            for life in 0..4 {
                let executor = Executor::simulated(seed * 10 + life, HostProfile::NONE);
                let rt = executor.rt().clone();
                let name = format!("{level:?} of {count}, seed {seed}, life {life}");
                let lived = executor.block_on(async {
                    let whole = CrashDevice::new(&rt, image.clone(), device(true));
                    let array = match life {
                        0 => {
                            let old = (0..count).map(|slot| whole.part(Sector(slot as u64 * PART), PART) as Device);
                            let old: Vec<Device> = old.collect();
                            let array = Array::create(&rt, old, &options, UUID, Contents::Zeroes).await.unwrap();
                            bytes = vec![0; array.geometry().bytes() as usize];
                            array
                        }
                        _ => {
                            let members = given(&whole).into_iter().map(Some).collect();
                            let opened = Array::open(&rt, members, &options).await;
                            let array = opened.unwrap_or_else(|error| panic!("{name}: {error}"));
                            let device: Device = array.clone();
                            compare(&device, &bytes).await.unwrap_or_else(|what| panic!("{name}: {what}"));
                            array.check().await.unwrap_or_else(|what| panic!("{name}: {what}"));
                            array
                        }
                    };
                    // A new write that is durable before the next cut.
                    for _ in 0..3 {
                        let sectors = rng.between(1, 24);
                        let at = rng.below(array.geometry().sectors - sectors);
                        let range = (at * 512) as usize..((at + sectors) * 512) as usize;
                        rng.fill(&mut bytes[range.clone()]);
                        let data = Data::from_slice(&bytes[range]);
                        array.write(Sector(at), data, WriteFlags::NONE).await.unwrap();
                    }
                    array.flush().await.unwrap();
                    let from = whole.position();
                    if life == 0 {
                        array.give_up(victim).await.unwrap();
                        let new = whole.part(Sector(count as u64 * PART), PART);
                        array.replace(victim, new).await.unwrap();
                    }
                    let from = if life == 0 { whole.position() } else { from };
                    array.resynced().await;
                    array.flush().await.unwrap();
                    if life == 3 {
                        assert!(array.status().is_healthy(), "{name}: {:?}", array.status());
                        array.check().await.unwrap_or_else(|what| panic!("{name}: {what}"));
                        array.give_up((victim + 1) % count).await.unwrap();
                        compare(&(array.clone() as Device), &bytes).await.unwrap();
                    }
                    let positions: Vec<usize> =
                        whole.log().positions().into_iter().filter(|&position| position >= from).collect();
                    let position = if positions.is_empty() { whole.position() } else { *rng.pick(&positions) };
                    let log = whole.log();
                    let cut = log.cut(position);
                    let choices = cut.choices(&Effort::SAMPLED, seed);
                    cut.image(rng.pick(&choices))
                });
                image = lived.unwrap_or_else(|stalled| panic!("{name}: {stalled}"));
            }
        }
    }
}
