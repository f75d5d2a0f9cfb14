//! Aim: it stores like a plain device, in every mode and on every kind of device. Method: random requests, several at
//! once, on it and on plain bytes; then it is closed, reopened, and compared again.

use super::*;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::testing::exercise::{Exercise, Mix, slow};

/// Devices below, each with a suitable plan.
fn devices(rt: &Rt, seed: u64) -> Vec<(Device, Plan)> {
    let crash = |options: CrashOptions| {
        CrashDevice::new(rt, Image::default(), CrashOptions { seed, record: false, ..options }) as Device
    };
    let small = |block_bytes: u32| Plan { block_bytes, reserve: 1000, ..plan() };
    vec![
        (slow(rt, &[3000], seed).remove(0), small(4096)),
        (slow(rt, &[1501], seed).remove(0), small(512)),
        (slow(rt, &[2000], seed).remove(0), Plan { map_log: MapLog::Append, ..small(1024) }),
        (crash(CrashOptions::volatile(700 * KIB)), small(1024)),
        (crash(CrashOptions::volatile(700 * KIB)), Plan { map_log: MapLog::Append, ..small(512) }),
        (crash(CrashOptions::host_file(2 * MIB)), small(4096)),
        (crash(CrashOptions::host_file(3 * MIB)), small(16 * 1024)),
        (crash(CrashOptions::write_through(MIB)), small(2048)),
    ]
}

#[test]
fn it_stores_like_one_device() {
    for seed in 0..soak().times(3) {
        run(seed, async |rt: Rt| {
            for (device, plan) in devices(&rt, seed) {
                for commit in [CommitUse::Each, CommitUse::Flush] {
                    let options = Options { commit, window: 256 * KIB, ..Options::default() };
                    let vld = Vld::create(&rt, device.clone(), &plan, options).await.expect("it can be made");
                    let name = format!("{} {plan:?} {commit:?}, seed {seed}", vld.describe());
                    let mut exercise = Exercise::new(vld.clone(), seed);
                    for round in 0..40 {
                        let done = exercise.round(&rt, Mix { discards: 2, ..Mix::ALL }).await;
                        done.unwrap_or_else(|what| panic!("{name}, round {round}: {what}"));
                        vld.check_invariants().unwrap_or_else(|what| panic!("{name}, round {round}: {what}"));
                    }
                    exercise.compare().await.unwrap_or_else(|what| panic!("{name}: {what}"));
                    for park in [false, true] {
                        match park {
                            true => vld.release().await.expect("it can be put away"),
                            false => vld.flush().await.expect("it can be flushed"),
                        }
                        let again = Vld::open(&rt, device.clone(), options).await;
                        let again = again.unwrap_or_else(|error| panic!("{name}: {error}"));
                        assert_eq!(again.recovery().was_parked, park && plan.map_log == MapLog::Tree, "{name}");
                        exercise.device = again.clone();
                        exercise.compare().await.unwrap_or_else(|what| panic!("{name}, again: {what}"));
                        again.check_invariants().unwrap_or_else(|what| panic!("{name}, again: {what}"));
                        let checkup = check(&device).await.expect("it can be checked");
                        assert_eq!((checkup.errors, checkup.notes), (vec![], vec![]), "{name}");
                    }
                }
            }
        });
    }
}

/// The same on disks with heads, with idle work.
#[test]
fn it_stores_like_one_device_over_a_head() {
    for (seed, drive) in [(1, "hp97560-wa99"), (2, "st19101-wa99"), (3, "hp97560-wa99"), (4, "st19101-wa99")] {
        run(seed, async |rt: Rt| {
            let device = match seed {
                4 => crate::volume::concat(vec![disk(&rt, drive), disk(&rt, "hp97560-wa99")]).expect("they fit"),
                _ => disk(&rt, drive),
            };
            let map_log = if seed == 3 { MapLog::Append } else { MapLog::Tree };
            let options = Options { quiet: Nanos::from_millis(1), ..Options::default() };
            let vld = Vld::create(&rt, device.clone(), &Plan { map_log, ..plan() }, options).await.expect("made");
            assert!(vld.commits_each());
            let mut exercise = Exercise::new(vld.clone(), seed);
            for round in 0..60 {
                exercise.round(&rt, Mix::ALL).await.unwrap_or_else(|what| panic!("{drive}, round {round}: {what}"));
                rt.sleep(Nanos::from_millis(round % 7 * 30)).await;
            }
            exercise.compare().await.unwrap_or_else(|what| panic!("{drive}: {what}"));
            vld.check_invariants().unwrap_or_else(|what| panic!("{drive}: {what}"));
            // Without closing, as when the power fails: all was durable. Idle work must end first.
            exercise.device = device.clone();
            drop(vld);
            rt.sleep(Nanos::from_secs(1)).await;
            let again = Vld::open(&rt, device, options).await.expect("it opens");
            exercise.device = again;
            exercise.compare().await.unwrap_or_else(|what| panic!("{drive}, again: {what}"));
        });
    }
}

/// All of its space is usable, repeatedly, one block at a time and many, with idle work as well.
#[test]
fn a_full_disk_can_be_overwritten() {
    for (seed, map_log, block_bytes) in [(1, MapLog::Tree, 4096), (2, MapLog::Append, 4096), (3, MapLog::Tree, 512)] {
        for commit in [CommitUse::Each, CommitUse::Flush] {
            run(seed, async |rt: Rt| {
                let device: Device = slow(&rt, &[4096], seed).remove(0);
                let plan = Plan { map_log, block_bytes, reserve: 0, ..plan() };
                let vld =
                    Vld::create(&rt, device, &plan, Options { commit, ..Options::default() }).await.expect("made");
                let blocks = vld.geometry().bytes() / u64::from(block_bytes);
                let mut rng = Rng::new(seed);
                let mut newest = vec![0; blocks as usize];
                for number in 1..=3 {
                    for block in 0..blocks {
                        write(&vld, block, 1, number).await;
                        newest[block as usize] = number;
                    }
                }
                for number in 4..400 {
                    let block = rng.below(blocks);
                    let count = rng.between(1, (blocks - block).min(64));
                    write(&vld, block, count, number).await;
                    newest[block as usize..(block + count) as usize].fill(number);
                }
                let writers = (0..8).map(|writer| {
                    let (vld, slice) = (vld.clone(), blocks / 8);
                    async move { write(&vld, writer * slice, slice, 1000 + writer).await }
                });
                futures_util::future::join_all(writers).await;
                let slice = blocks / 8;
                for block in 0..8 * slice {
                    newest[block as usize] = 1000 + block / slice;
                }
                for block in 0..blocks {
                    assert_eq!(number_of(&vld, block).await, newest[block as usize], "block {block}");
                }
                vld.flush().await.expect("it can be flushed");
                vld.check_invariants().expect("all promises hold");
            });
        }
    }
}

/// Unwritten blocks read as zeroes and cost nothing; discarded ones likewise.
#[test]
fn it_is_thin() {
    run(1, async |rt: Rt| {
        let memory = Rc::new(Memory::new(64 * MIB));
        let vld = Vld::create(&rt, memory.clone(), &plan(), Options::default()).await.expect("made");
        assert!(memory.image().allocated_bytes() < 64 * KIB);
        for number in 0..4 {
            write(&vld, number * 1000, 256, number + 1).await;
        }
        let full = memory.image().allocated_bytes();
        for number in 0..4 {
            let at = Sector(number * 1000 * 8);
            vld.discard(at, 256 * 8).await.expect("it can be discarded");
            assert_eq!(number_of(&vld, number * 1000 + 17).await, 0);
        }
        assert_eq!(vld.usage().0, 0);
        let left = memory.image().allocated_bytes();
        assert!(left < full / 20, "{full} bytes, then {left}");
    });
}
