//! Aim: a sequential reader of blocks that were written together waits hardly longer than on the plain drive, no reader
//! waits for whole tracks that it does not want, and reads return what was written. Method: the drives of [wa99], with
//! and without the virtual log, and times taken.

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};

fn quiet() -> Options {
    Options { compact: false, ..Options::default() }
}

/// Files of one block, as a file system makes them: inode, data and directory, each in its own write; inodes and
/// directory repeatedly. The host's think time makes the head position random.
async fn make_files(rt: &Rt, device: &Device, files: u64) {
    let mut rng = Rng::new(1);
    for file in 0..files {
        for block in [inode(file), 1000 + file, 900 + file / 60] {
            rt.sleep(Nanos(rng.below(3_000_000))).await;
            put(device, block, file + 1).await;
        }
    }
}

fn inode(file: u64) -> u64 {
    100 + file / 32
}

async fn put(device: &Device, block: u64, number: u64) {
    let data = Data::from_slice(&stamp(block, number, 4096));
    device.write(Sector(block * 8), data, WriteFlags::NONE).await.expect("there is room");
}

/// Reads all of them in order, `think` apart; returns milliseconds.
async fn read_files(rt: &Rt, device: &Device, files: u64, think: Nanos) -> f64 {
    let start = rt.now();
    for file in 0..files {
        if file % 32 == 0 {
            let last = (file + 31).min(files - 1);
            expect(device, inode(file), last + 1).await;
        }
        expect(device, 1000 + file, file + 1).await;
        rt.sleep(think).await;
    }
    (rt.now() - start).as_millis_f64()
}

async fn expect(device: &Device, block: u64, number: u64) {
    let read = device.read(Sector(block * 8), Buf::dirty(4096)).await.expect("it can be read");
    assert_eq!(read[..], stamp(block, number, 4096), "block {block}");
}

/// [wa99 §5.1]: "slightly worse", of the Seagate. A host of the time takes some milliseconds to open and read a file.
/// The bounds hold the present state. On the HP, with nine blocks on a track, it is far from the paper's: two thirds of
/// the blocks written together were inodes and directories that have since been rewritten elsewhere.
#[test]
fn small_files_are_hardly_slower_than_in_place() {
    let mut slow = Vec::new();
    for (name, overhead, ratios_max) in [("hp97560-wa99", 2200, [3.0, 3.6]), ("st19101-wa99", 100, [1.3, 3.0])] {
        for (think, ratio_max) in [3, 0].into_iter().zip(ratios_max) {
            let time = |is_eager: bool| {
                run(1, async |rt: Rt| {
                    let device = match is_eager {
                        false => disk(&rt, name),
                        true => {
                            let mut drive = Drive::named(name).expect("it is in the catalogue").clone();
                            drive.overhead = crate::disk::Overhead::NONE;
                            let below = Disk::new(rt.clone(), &drive, crate::disk::Options::default());
                            let below = Rc::new(below.expect("the catalogue has drives"));
                            let options = Options { command: Nanos::from_micros(overhead), ..Options::default() };
                            Vld::create(&rt, below, &plan(), options).await.expect("made") as Device
                        }
                    };
                    make_files(&rt, &device, 1000).await;
                    rt.sleep(Nanos::from_millis(5)).await;
                    read_files(&rt, &device, 1000, Nanos::from_millis(think)).await
                })
            };
            let (in_place, eager) = (time(false), time(true));
            println!("{name}, {think} ms apart: {in_place:.0} ms in place, {eager:.0} ms, {:.2}", eager / in_place);
            if eager > ratio_max * in_place {
                slow.push(format!("{name}, {think} ms apart: {eager} ms and {in_place} ms"));
            }
        }
    }
    assert!(slow.is_empty(), "{slow:?}");
}

/// Blocks that wait to be written at the same time are placed in the order of their addresses, whatever their order of
/// arrival: for example the blocks of many files that a file system writes back at once.
#[test]
fn what_waits_is_written_in_order() {
    for seed in 1..=3 {
        run(seed, async |rt: Rt| {
            let options = Options { command: Nanos::from_micros(100), ..quiet() };
            let vld = Vld::create(&rt, disk(&rt, "st19101-wa99"), &plan(), options).await.expect("made");
            let device: Device = vld.clone();
            let blocks: Vec<u64> = (0..400).map(|index| index * 137 % 400).collect();
            let writers = blocks.into_iter().map(|block| {
                let device = device.clone();
                rt.spawn(async move { put(&device, block, 1).await })
            });
            let writers: Vec<_> = writers.collect();
            futures_util::future::join_all(writers).await;
            let start = rt.now();
            for block in 0..400 {
                expect(&device, block, 1).await;
            }
            let spent = (rt.now() - start).as_millis_f64() / 400.0;
            println!("{spent:.2} ms a block");
            // Half a revolution is 3 ms; a block and a command take 0.3 ms.
            assert!(spent < 1.0, "seed {seed}: {spent} ms a block");
        });
    }
}

/// A request for another track waits for a few blocks of the track being read ahead, not for all of it.
#[test]
fn reading_on_gives_way() {
    run(1, async |rt: Rt| {
        let vld = Vld::create(&rt, disk(&rt, "hp97560-wa99"), &plan(), quiet()).await.expect("made");
        let device: Device = vld.clone();
        for block in 0..600 {
            put(&device, block, 1).await;
        }
        let mut rng = Rng::new(2);
        let mut elsewhere = async |begins_to_read: bool| {
            let (mut worst, mut total) = (0.0_f64, 0.0);
            for turn in 0..60 {
                let block = 1 + turn * 5;
                if begins_to_read {
                    expect(&device, block, 1).await;
                    expect(&device, block + 1, 1).await;
                } else {
                    expect(&device, block, 1).await;
                    expect(&device, block + 300, 1).await;
                }
                rt.sleep(Nanos(rng.below(2_000_000))).await;
                let start = rt.now();
                expect(&device, 400 + rng.below(200), 1).await;
                let spent = (rt.now() - start).as_millis_f64();
                (worst, total) = (worst.max(spent), total + spent);
            }
            (worst, total / 60.0)
        };
        let plain = elsewhere(false).await;
        let reading = elsewhere(true).await;
        println!("another track, worst and mean: {plain:.1?} ms; while one is read on {reading:.1?} ms");
        assert!(reading.1 < plain.1 + 4.0 && reading.0 < 45.0, "{plain:?} {reading:?}");
    });
}

/// Blocks of a buffered track are written and read concurrently: every reader sees the last write.
#[test]
fn what_is_kept_is_what_is_there() {
    for seed in 0..soak().times(4) {
        run(seed, async |rt: Rt| {
            let options = Options { quiet: Nanos::from_millis(4), ..Options::default() };
            let vld = Vld::create(&rt, disk(&rt, "st19101-wa99"), &plan(), options).await.expect("made");
            let device: Device = vld.clone();
            for block in 0..800 {
                put(&device, block, 1).await;
            }
            let clients = (0..4u64).map(|client| {
                let (rt, device) = (rt.clone(), device.clone());
                async move {
                    let mut rng = Rng::new(seed * 4 + client);
                    let mut newest = vec![1; 200];
                    let mut next = 0;
                    for number in 2..400 {
                        match rng.below(6) {
                            0 => {
                                let block = rng.below(200);
                                put(&device, client * 200 + block, number).await;
                                newest[block as usize] = number;
                            }
                            1 => rt.sleep(Nanos(rng.below(12_000_000))).await,
                            2 => next = rng.below(200),
                            _ => {
                                expect(&device, client * 200 + next, newest[next as usize]).await;
                                next = (next + 1) % 200;
                            }
                        }
                    }
                }
            });
            futures_util::future::join_all(clients).await;
            vld.check_invariants().expect("all promises hold");
            let counters = vld.counters();
            let hits = counters.iter().find(|(name, _)| *name == "track_hits").map_or(0, |(_, count)| *count);
            assert!(hits > 0, "{hits} hits");
        });
    }
}

/// Reads do not move the window of the log: writes between them continue where the last write was, and need no anchor.
#[test]
fn the_log_stays_where_it_is() {
    run(1, async |rt: Rt| {
        // Nine cylinders of 36.
        let options = Options { window: 6 * MIB, ..quiet() };
        let vld = Vld::create(&rt, disk(&rt, "hp97560-wa99"), &plan(), options).await.expect("made");
        let blocks = vld.geometry().bytes() / 4096 * 80 / 100;
        for block in 0..blocks {
            write(&vld, block, 1, 1).await;
        }
        let mut rng = Rng::new(4);
        let anchors =
            || vld.counters().iter().find(|(name, _)| *name == "anchors_written").map_or(0, |&(_, count)| count);
        let before = anchors();
        for number in 0..600 {
            number_of(&vld, rng.below(blocks)).await;
            write(&vld, rng.below(blocks), 1, 2 + number).await;
        }
        let written = anchors() - before;
        println!("{written} anchors for 600 writes with reads in between");
        // A window lasts for a share of its free blocks, 300; reads within the window use it up sooner.
        assert!(written < 30, "{written} anchors");
    });
}

/// Aim: a read that its caller drops keeps no block in use. Method: it is dropped half-way, over a slow device, and what
/// it read is overwritten.
#[test]
fn a_dropped_read_keeps_no_block() {
    use futures_util::future::{Either, select};
    run(1, async |rt: Rt| {
        let second = Nanos::from_secs(1);
        let device = FaultDevice::new(&rt, Rc::new(Memory::new(4 * MIB)), 1);
        let vld = Vld::create(&rt, device.clone(), &plan(), quiet()).await.expect("made");
        write(&vld, 3, 1, 1).await;
        vld.flush().await.expect("there is room");
        let place = vld.core.state.borrow().map[3];
        device.add(Rule::new(Kinds::READ, When::Nth(1), Effect::Delay(second..=second)));
        let soon = std::pin::pin!(rt.sleep(Nanos::from_millis(1)));
        let first = select(vld.read(Sector(3 * 8), Buf::dirty(4096)), soon).await;
        assert!(matches!(&first, Either::Right(_)), "the read waits for the device");
        drop(first);
        write(&vld, 3, 1, 2).await;
        vld.flush().await.expect("there is room");
        assert_ne!(vld.core.state.borrow().map[3], place);
        assert!(vld.core.state.borrow().space.is_free(place), "the block is free again");
    });
}
