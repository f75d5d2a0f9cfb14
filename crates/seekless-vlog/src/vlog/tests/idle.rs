//! Aim: idle work empties tracks, stops at once when a request arrives, and restores sequential reads after random
//! writes. Method: the drives of [wa99], with times taken.

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::vlog::compact::{Emptied, Emptying};

/// A disk with `percent` of its blocks written in random order, and then overwritten at random.
async fn used(rt: &Rt, drive: &str, percent: u64, options: Options) -> (Rc<Vld>, u64) {
    let vld = Vld::create(rt, disk(rt, drive), &plan(), options).await.expect("made");
    let blocks = vld.geometry().bytes() / 4096 * percent / 100;
    for block in (0..blocks).step_by(64) {
        write(&vld, block, 64.min(blocks - block), 1).await;
    }
    let mut rng = Rng::new(1);
    for number in 2..blocks {
        write(&vld, rng.below(blocks), 1, number).await;
    }
    (vld, blocks)
}

async fn timed(rt: &Rt, work: impl AsyncFnOnce()) -> f64 {
    let start = rt.now();
    work().await;
    (rt.now() - start).as_millis_f64()
}

fn quiet() -> Options {
    Options { compact: false, ..Options::default() }
}

/// A write costs much less than in place, even without idle time, and less still after idle time.
#[test]
fn writes_are_eager_and_idle_time_helps() {
    for (drive, in_place_ms) in [("hp97560-wa99", 7.5 + 2.2), ("st19101-wa99", 3.0 + 0.1)] {
        run(1, async |rt: Rt| {
            let (vld, blocks) = used(&rt, drive, 80, quiet()).await;
            let mut rng = Rng::new(2);
            let mut burst = async |count: u64| {
                let spent = timed(&rt, async || {
                    for number in 0..count {
                        write(&vld, rng.below(blocks), 1, 10_000 + number).await;
                    }
                });
                spent.await / count as f64
            };
            let steady = burst(300).await;
            let steps = vld.settle().await.expect("it can be settled");
            assert!(steps > 0);
            vld.check_invariants().expect("all promises hold");
            let rested = burst(100).await;
            let empty = vld.usage().1;
            println!("{drive}: {steady:.2} ms in a steady state, {rested:.2} ms after idle time, {empty} tracks empty");
            assert!(rested < steady && rested < in_place_ms, "{drive}: {steady} {rested}");
        });
    }
}

/// Sequential reads are slow after random writes and fast again after idle time; track buffering helps until then.
#[test]
fn reading_in_order_is_mended() {
    for drive in ["hp97560-wa99", "st19101-wa99"] {
        run(1, async |rt: Rt| {
            let mut times = Vec::new();
            for tracks in [0, 4] {
                let (vld, blocks) = used(&rt, drive, 60, Options { tracks, ..quiet() }).await;
                let read = async || {
                    let spent = timed(&rt, async || {
                        for block in 0..blocks {
                            number_of(&vld, block).await;
                        }
                    });
                    blocks as f64 * 4096.0 / 1048.576 / spent.await
                };
                let before = read().await;
                let broken = vld.breaks(0, blocks as u32);
                vld.settle().await.expect("it can be settled");
                vld.check_invariants().expect("all promises hold");
                let after = read().await;
                let left = vld.breaks(0, blocks as u32);
                println!("{drive}, {tracks} tracks: {before:.2} MB/s, then {after:.2}; {broken} breaks, then {left}");
                assert!(after > 1.5 * before && left * 2 < broken);
                times.push((before, after));
            }
            // The drive reads ahead by itself what is in order; reading on must not interfere.
            assert!(times[1].1 > 0.9 * times[0].1, "{times:?}");
            // Before, few blocks of a track are needed soon, and reading whole tracks would be wasted.
            assert!(times[1].0 > 0.95 * times[0].0, "{times:?}");
            // Before, few blocks of a track are needed soon, and reading whole tracks would be wasted.
            assert!(times[1].0 > 0.95 * times[0].0, "{times:?}");
        });
    }
}

/// A file that is updated at random with pauses does not become slower, as it is not read in order; one sequential read
/// pays for putting it in order once.
#[test]
fn putting_in_order_is_paid_for() {
    run(1, async |rt: Rt| {
        let mut times = Vec::new();
        for order in [false, true] {
            let (vld, blocks) = used(&rt, "st19101-wa99", 70, Options { order, ..Options::default() }).await;
            let mut rng = Rng::new(5);
            let mut burst = async |bursts: u64| {
                let mut spent = 0.0;
                for number in 0..bursts * 32 {
                    spent += timed(&rt, async || write(&vld, rng.below(blocks), 1, 20_000 + number).await).await;
                    if number % 32 == 31 {
                        rt.sleep(Nanos::from_secs(1)).await;
                    }
                }
                spent / (bursts * 32) as f64
            };
            burst(10).await;
            times.push(burst(20).await);
            let ordered = || {
                let counters = vld.counters();
                counters.iter().find(|(name, _)| *name == "extents_ordered").map_or(0, |(_, count)| *count)
            };
            assert_eq!(ordered(), 0, "nothing was read in order");
            if order {
                for block in 0..blocks {
                    number_of(&vld, block).await;
                }
                rt.sleep(Nanos::from_secs(30)).await;
                let once = ordered();
                assert!(once > blocks / 32 / 2, "{once} stretches");
                burst(40).await;
                assert!(ordered() <= blocks / 28, "{} stretches, {once} before: each once at most", ordered());
            }
        }
        println!("an update with pauses: {:.2} ms, {:.2} ms with order=on", times[0], times[1]);
        assert!(times[1] < 1.05 * times[0], "{times:?}");
    });
}

/// A request in idle time waits for one step at most, which is a read of a part of a track or a write, and never for
/// earlier moves: a revolution and a seek.
#[test]
fn idle_work_gives_way() {
    for (drive, turn_and_seek) in [("hp97560-wa99", 15.0 + 3.6), ("st19101-wa99", 6.0 + 0.5)] {
        let worst = |compact: bool| {
            run(1, async |rt: Rt| {
                let options = Options { compact, quiet: Nanos::from_millis(5), ..Options::default() };
                let (vld, blocks) = used(&rt, drive, 80, options).await;
                let mut rng = Rng::new(3);
                let (mut worst, mut sum): (f64, f64) = (0.0, 0.0);
                let before = vld.counters();
                for number in 0..200 {
                    rt.sleep(Nanos::from_millis(rng.between(1, 200))).await;
                    let block = rng.below(blocks);
                    let spent = timed(&rt, async || write(&vld, block, 1, 50_000 + number).await).await;
                    (worst, sum) = (worst.max(spent), sum + spent);
                }
                let moved = |counters: &[crate::device::Counter]| {
                    counters.iter().find(|(name, _)| *name == "blocks_moved").map_or(0, |(_, count)| *count)
                };
                assert_eq!(moved(&vld.counters()) > moved(&before) + 100, compact, "idle time was used");
                vld.check_invariants().expect("all promises hold");
                (worst, sum / 200.0)
            })
        };
        let (alone, busy) = (worst(false), worst(true));
        println!("{drive}, longest write and mean: {alone:.1?} ms alone, {busy:.1?} ms in idle time");
        assert!(busy.0 < alone.0 + 1.5 * turn_and_seek, "{drive}: {busy:?} ms, {alone:?} ms alone");
    }
}

/// Aim: a block that moves out of a track never replaces a newer one, where a nearly full disk has begun to write there again,
/// and the same block has come to the same place. Method: while the copy of the first block of a track is being written, the
/// other blocks of the track move elsewhere, until there is no other place for the first one.
#[test]
fn what_moves_is_never_older() {
    run(1, async |rt: Rt| {
        let device = FaultDevice::new(&rt, Rc::new(Memory::new(4 * MIB)), 1);
        let plan = Plan { block_bytes: 16 * 1024, reserve: 300, ..plan() };
        let options = Options { commit: CommitUse::Each, ..quiet() };
        let vld = Vld::create(&rt, device.clone(), &plan, options).await.expect("made");
        let (core, blocks) = (vld.core.clone(), vld.geometry().bytes() / u64::from(plan.block_bytes));
        write(&vld, 0, blocks, 1).await;
        let track = 1;
        let owners: Vec<u64> = {
            let state = core.state.borrow();
            let owners = state.space.tracks.blocks(track).map(|block| u64::from(state.owner[block as usize]));
            owners.filter(|&owner| owner > 0).map(|owner| owner - 1).collect()
        };
        let place = |block: u64| core.state.borrow().map[block as usize];
        let (first, at) = (owners[0], place(owners[0]));
        let elsewhere = || {
            let space = &core.state.borrow().space;
            space.free_blocks() - u64::from(space.track_free(track))
        };
        device.add(Rule::new(Kinds::WRITE, When::Nth(1), Effect::Delay(Nanos::from_secs(1)..=Nanos::from_secs(1))));
        let emptying = Emptying::begin(&core, track);
        let moving = rt.spawn({
            let core = core.clone();
            async move { core.empty(emptying, None).await }
        });
        rt.sleep(Nanos::from_millis(1)).await;
        write(&vld, first, 1, 2).await;
        assert_ne!(place(first), at);
        for &other in &owners[1..] {
            if elsewhere() > 0 {
                write(&vld, other, 1, 2).await;
            }
        }
        assert_eq!((elsewhere(), core.state.borrow().allocator.avoid), (0, Some(track)));
        write(&vld, first, 1, 3).await;
        assert_eq!((place(first), core.state.borrow().allocator.avoid), (at, None), "it is where it was");
        assert!(rt.now() < Nanos::from_secs(1));
        assert_eq!(moving.await.expect("it can be written"), Emptied::Interrupted);
        assert_eq!(number_of(&vld, first).await, 3);
        vld.check_invariants().expect("all promises hold");
    });
}

/// Aim: one sector that cannot be read does not end the emptying of tracks. Method: a used disk, on which a block of the
/// track that is next cannot be read; then all idle work.
#[test]
fn an_unreadable_sector_costs_one_track() {
    run(1, async |rt: Rt| {
        let device = FaultDevice::new(&rt, Rc::new(Memory::new(16 * MIB)), 1);
        let options = Options { order: false, ..quiet() };
        let vld = Vld::create(&rt, device.clone(), &plan(), options).await.expect("made");
        let blocks = vld.geometry().bytes() / 4096 * 3 / 5;
        write(&vld, 0, blocks, 1).await;
        let mut rng = Rng::new(1);
        for number in 2..blocks {
            write(&vld, rng.below(blocks), 1, number).await;
        }
        let core = vld.core.clone();
        let track = core.sparse_track(|used| used + 1, |_| true).expect("a track to empty");
        let lost = {
            let state = core.state.borrow();
            state.space.tracks.blocks(track).find(|&block| state.owner[block as usize] != 0).expect("a block in use")
        };
        let at = core.layout.sector_of(lost);
        device.lose(at..Sector(at.0 + 1));
        let emptied = || core.counts.tracks_emptied.get();
        let before = emptied();
        compact::settle(&core).await.expect("what can be read is moved");
        assert!(emptied() > before + 1, "{} tracks", emptied() - before);
        vld.check_invariants().expect("all promises hold");
    });
}

/// Aim: one block that cannot be read costs its stretch alone, once: the others are put in order, and the next idle time does not
/// try it again, until it is written. Method: a used disk, on which a block of the stretch that is next cannot be read; then all
/// idle work, twice, and once more after the block was written.
#[test]
fn an_unreadable_block_costs_one_stretch() {
    run(1, async |rt: Rt| {
        let device = FaultDevice::new(&rt, Rc::new(Memory::new(16 * MIB)), 1);
        let options = Options { order: true, ..quiet() };
        let vld = Vld::create(&rt, device.clone(), &plan(), options).await.expect("made");
        let blocks = vld.geometry().bytes() / 4096 * 3 / 5;
        write(&vld, 0, blocks, 1).await;
        let mut rng = Rng::new(1);
        for number in 2..blocks {
            write(&vld, rng.below(blocks), 1, number).await;
        }
        let core = vld.core.clone();
        while core.scattered(false).is_none() {
            assert_eq!(compact::step(&core, None).await.expect("a step"), Emptied::Done, "a stretch to put in order");
        }
        let (first, _) = core.scattered(false).expect("a stretch");
        let lost = first + 3;
        let at = core.layout.sector_of(core.state.borrow().map[lost as usize]);
        device.lose(at..Sector(at.0 + 1));
        let looks = Rule::new(Kinds::READ, When::Always, Effect::Delay(Nanos(0)..=Nanos(0)));
        device.add(looks.within(at..Sector(at.0 + 8)));
        let ordered = || core.counts.extents_ordered.get();
        let before = ordered();
        compact::settle(&core).await.expect("what can be read is put in order");
        assert!(ordered() > before + 1, "{} stretches", ordered() - before);
        let looked = device.looked_at(0);
        assert!(looked > 0, "the block was to be read");
        write(&vld, u64::from(lost) + 100, 1, 7).await;
        compact::settle(&core).await.expect("what can be read is put in order");
        assert_eq!(device.looked_at(0), looked, "it is left alone");
        write(&vld, u64::from(lost), 1, 8).await;
        let before = ordered();
        compact::settle(&core).await.expect("all can be read");
        assert!(ordered() > before && core.scattered(false).is_none_or(|(next, _)| next != first), "it is tried again");
        assert_eq!(number_of(&vld, u64::from(lost)).await, 8);
        vld.check_invariants().expect("all promises hold");
    });
}

/// Aim: idle work that ends for lack of room looks again when a request has begun and ended during its last step, as that may have
/// left work. Method: a write of idle work finds no room, slowly, while a block is read; then there is room, and no other request.
#[test]
fn idle_work_looks_again_after_a_request_during_its_last_step() {
    run(1, async |rt: Rt| {
        let fault = FaultDevice::new(&rt, disk(&rt, "st19101-wa99"), 1);
        let vld = Vld::create(&rt, fault.clone(), &plan(), Options::default()).await.expect("made");
        let blocks = vld.geometry().bytes() / 4096 * 6 / 10;
        for block in (0..blocks).step_by(64) {
            write(&vld, block, 64.min(blocks - block), 1).await;
        }
        let mut rng = Rng::new(1);
        for number in 2..blocks / 4 {
            write(&vld, rng.below(blocks), 1, number).await;
        }
        let slow = Nanos::from_millis(100);
        fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::Delay(slow..=slow)));
        fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::NoSpace));
        while fault.looked_at(0) == 0 {
            assert!(rt.now() < Nanos::from_secs(100_000), "idle work writes");
            rt.sleep(Nanos::from_millis(1)).await;
        }
        let emptied = vld.core.counts.tracks_emptied.get();
        number_of(&vld, 0).await;
        assert_eq!(fault.failed(), 0, "the read has ended before the step");
        while fault.failed() == 0 {
            rt.sleep(Nanos::from_millis(1)).await;
        }
        fault.clear();
        rt.sleep(Nanos::from_secs(60)).await;
        assert!(vld.core.counts.tracks_emptied.get() > emptied, "{emptied} tracks were emptied before, and none since");
        vld.check_invariants().expect("all promises hold");
    });
}
