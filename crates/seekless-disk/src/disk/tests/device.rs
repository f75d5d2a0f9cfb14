use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use super::*;
use crate::device::{BlockDevice, Buf, Data, DeviceError, WriteFlags};
use crate::rng::Rng;
use crate::rt::{Executor, HostProfile};
use crate::units::SECTOR_BYTES;

fn on(drive: &Drive, options: Options) -> (Executor, Rc<Disk>) {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let disk = Rc::new(Disk::new(executor.rt().clone(), drive, options).unwrap());
    (executor, disk)
}

fn counter(disk: &Disk, name: &str) -> u64 {
    disk.counters().into_iter().find(|(counter, _)| *counter == name).unwrap_or_else(|| panic!("{name}")).1
}

/// What is written is read again, never-written sectors read as zeroes, and both take the mechanism's time.
#[test]
fn bytes_and_time() {
    let (executor, disk) = on(drive("dec-rz26"), Options::default());
    let mut mechanism = Mechanism::new(drive("dec-rz26")).unwrap();
    let written = mechanism.service(Nanos::ZERO, Nanos::ZERO, write(1000, 8)).unwrap().done;
    let done = mechanism.service(written, written, read(1004, 8)).unwrap().done;
    let end = executor
        .block_on(async {
            disk.write(Sector(1000), Data::from_slice(&[7; 4096]), WriteFlags::NONE).await.unwrap();
            let buf = disk.read(Sector(1004), Buf::dirty(4096)).await.unwrap();
            assert!(buf[..2048].iter().all(|&byte| byte == 7) && buf[2048..].iter().all(|&byte| byte == 0));
            executor.rt().now()
        })
        .unwrap();
    assert_eq!(end, done);
    assert_eq!(disk.busy(), end);
    assert_eq!(counter(&disk, "busy_ns"), end.0);
    assert_eq!((counter(&disk, "reads"), counter(&disk, "sectors_written")), (1, 8));
    assert_eq!(disk.describe(), "disk:dec-rz26 (1001.4 MiB)");
    assert!(disk.guarantees().durable_on_completion);
}

/// Aim: what the heads of an idle drive say of a write comes true, also where the drive has read ahead since its last request
/// \[wa99 §4.2\]. Method: reads and pauses, then a write whose time is predicted, beginning with whether its place is on the track that
/// the heads are said to be on.
#[test]
fn heads_know_what_was_read_ahead() {
    for (name, stop_in_sector) in
        [("st19101-wa99", true), ("st19101-wa99", false), ("hp97560-wa99", true), ("hp97560-wa99", false)]
    {
        let mut drive = drive(name).clone();
        drive.cache.stop_in_sector = stop_in_sector;
        assert_eq!(drive.zones.len(), 1, "one time for all sectors");
        let (executor, disk) = on(&drive, Options { keep_bytes: false, ..Options::default() });
        let (rt, mut rng) = (executor.rt(), Rng::new(3));
        let last = executor
            .block_on(async {
                let mut last = Vec::new();
                let mut tracks_left = 0;
                for _ in 0..400 {
                    let from = rng.below(drive.sectors - 400);
                    for part in 0..1 + rng.below(3) {
                        let read_on = Sector(from + part * 8);
                        drop(disk.read(read_on, Buf::dirty(4096)).await.unwrap());
                        let pause_bits = 8 + rng.below(17);
                        rt.sleep(Nanos(rng.below(1 << pause_bits))).await;
                    }
                    let head = disk.head().unwrap();
                    let (track, len) = head.current_track(0);
                    let was = head.track_of(Sector(from)).unwrap().first;
                    tracks_left += u64::from(track != was);
                    let to = match rng.below(2) {
                        0 => track.0 + rng.below(len),
                        _ => rng.below(drive.sectors),
                    };
                    let (now, access) = (rt.now(), head.write_access(rt.now(), Sector(to), 1));
                    disk.write(Sector(to), Data::from_slice(&[0; 512]), WriteFlags::FUA).await.unwrap();
                    last.push((rt.now() - now).0 as i64 - access.0 as i64);
                }
                assert!(tracks_left > 10, "{tracks_left}: reading ahead never left a track");
                last
            })
            .unwrap();
        // What follows is the sector itself and the command's end.
        let (least, most) = (last.iter().min().unwrap(), last.iter().max().unwrap());
        assert!(*least > 0 && most - least <= 2, "{name}: {least} to {most} ns after the predicted moment");
    }
}

/// A request that waits takes little memory beside its place in the queue: thousands may wait.
#[test]
fn requests_that_wait_are_small() {
    let (_, disk) = on(drive("cheetah9lp"), Options::default());
    let read = size_of_val(&*disk.read(Sector(0), Buf::zeroed(512)));
    assert!(read <= 96, "{read}");
}

/// Aim: the drive is never busy for longer than time has passed, whenever one looks, and in the end it was busy for the whole of each
/// service. Method: several requests at once, the last of which is given up; a look every 3 ms.
#[test]
fn busy_time_counts_when_it_passes() {
    let (executor, disk) = on(drive("dec-rz26"), Options::default());
    let rt = executor.rt();
    let parts = |disk: &Disk| ["overhead_ns", "seek_ns", "rotation_ns", "transfer_ns"].map(|name| counter(disk, name));
    let looks = executor
        .block_on(async {
            let requests = [0, 900_000, 5_000].map(|at| disk.read(Sector(at), Buf::dirty(4096)));
            let given_up = {
                let mut request = Box::pin(disk.read(Sector(700_000), Buf::dirty(4096)));
                let is_pending = poll_fn(|context| Poll::Ready(request.as_mut().poll(context).is_pending())).await;
                assert!(is_pending);
                request
            };
            let mut looks = Vec::new();
            let look = async {
                while rt.now() < Nanos::from_millis(120) {
                    rt.sleep(Nanos::from_millis(3)).await;
                    looks.push((rt.now(), disk.busy(), parts(&disk).iter().sum::<u64>()));
                }
            };
            drop(given_up);
            futures_util::future::join(futures_util::future::join_all(requests), look).await;
            looks
        })
        .unwrap();
    for pair in looks.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        assert!(to.1 - from.1 <= to.0 - from.0, "busy for {:?} of {:?}", to.1 - from.1, to.0 - from.0);
        assert_eq!(to.1.0, to.2, "the parts are the whole");
    }
    let (_, busy, _) = looks[looks.len() - 1];
    let served: u64 = 4;
    assert_eq!(counter(&disk, "requests"), served);
    assert!(busy > Nanos::from_millis(4 * served) && busy < Nanos::from_millis(120), "{busy:?}");
    assert!(looks[0].1 == looks[0].0, "the drive was busy from the start");
}

/// Aim: no moment counts twice, and what is over stays over, also while the cache is written behind later requests. Method: random
/// requests, near each other and far apart, with pauses and flushes; a look every 300 µs.
#[test]
fn time_behind_requests_counts_once() {
    for seed in 0..20 {
        // One write behind at a time, and a stream of them.
        let name = ["cheetah9lp", "nearline-4tb"][seed as usize % 2];
        let (executor, disk) = on(drive(name), Options { keep_bytes: false, ..Options::default() });
        let (rt, rng) = (executor.rt(), RefCell::new(Rng::new(seed)));
        let below = |bound: u64| rng.borrow_mut().below(bound);
        let over = std::cell::Cell::new(false);
        let mut seen = [0; 6];
        let requests = async {
            let mut at = 0;
            for _ in 0..60 {
                let sectors = 1 + below(200);
                if below(2) == 0 {
                    at = below(disk.geometry().sectors - 100_000);
                }
                let bytes = (sectors * SECTOR_BYTES) as usize;
                match below(8) {
                    0 => disk.flush().await.unwrap(),
                    1 => rt.sleep(Nanos::from_micros(below(30_000))).await,
                    2 | 3 => drop(disk.read(Sector(at), Buf::dirty(bytes)).await.unwrap()),
                    _ => {
                        let flags = if below(8) == 0 { WriteFlags::FUA } else { WriteFlags::NONE };
                        disk.write(Sector(at), Data::from_slice(&vec![0; bytes]), flags).await.unwrap();
                        at += sectors;
                    }
                }
            }
            over.set(true);
        };
        let looks = async {
            while !over.get() {
                rt.sleep(Nanos::from_micros(300)).await;
                let names = ["busy_ns", "overhead_ns", "seek_ns", "rotation_ns", "transfer_ns"];
                let mut now = [rt.now().0; 6];
                for (place, name) in names.into_iter().enumerate() {
                    now[place + 1] = counter(&disk, name);
                }
                assert_eq!(now[1], now[2..].iter().sum::<u64>(), "seed {seed}");
                let grown: Vec<u64> =
                    now.iter().zip(&seen).map(|(now, seen)| now.checked_sub(*seen).unwrap()).collect();
                assert!(grown[1] <= grown[0], "seed {seed}: {grown:?} at {now:?}");
                seen = now;
            }
        };
        executor.block_on(async { futures_util::future::join(requests, looks).await }).unwrap();
        assert!(seen[1] > seen[0] / 2, "seed {seed}: {seen:?}");
    }
}

/// Aim: the time of a disk is what its arm and platters do for a write, whether the host waits for that or not. Method: the same random
/// writes, each flushed, or one every 15 ms, into the cache and to the medium.
#[test]
fn writes_from_the_cache_keep_the_disk_busy() {
    let writes = |name: &str, flags: WriteFlags, flush: bool| {
        let (executor, disk) = on(drive(name), Options { keep_bytes: false, ..Options::default() });
        let (rt, mut rng) = (executor.rt(), Rng::new(1));
        executor
            .block_on(async {
                for turn in 1..=100 {
                    let at = Sector(rng.below(disk.geometry().sectors / 8) * 8);
                    disk.write(at, Data::from_slice(&[0; 4096]), flags).await.unwrap();
                    match flush {
                        true => disk.flush().await.unwrap(),
                        false => rt.sleep_until(Nanos::from_millis(15 * turn)).await,
                    }
                }
            })
            .unwrap();
        let parts = ["overhead_ns", "seek_ns", "rotation_ns", "transfer_ns"].map(|name| counter(&disk, name) as f64);
        assert_eq!(parts.iter().sum::<f64>(), counter(&disk, "busy_ns") as f64);
        (disk.busy().0 as f64, rt.now().0 as f64, parts)
    };
    for name in ["cheetah9lp", "nearline-4tb"] {
        let (busy, elapsed, [_, seek, rotation, transfer]) = writes(name, WriteFlags::NONE, true);
        assert!(busy > 0.9 * elapsed && busy <= elapsed, "{name}: busy for {busy} of {elapsed}");
        assert!(seek + rotation > 4.0 * transfer, "{name}: {seek} {rotation} {transfer}");
        let behind = writes(name, WriteFlags::NONE, false);
        let through = writes(name, WriteFlags::FUA, false);
        assert!((behind.0 / through.0 - 1.0).abs() < 0.1, "{name}: {behind:?} {through:?}");
        for part in 1..3 {
            assert!((behind.2[part] / through.2[part] - 1.0).abs() < 0.1, "{name}: {behind:?} {through:?}");
        }
    }
}

/// Without bytes, reads return zeroes and times are the same.
#[test]
fn timing_only() {
    let run = |keep_bytes| {
        let (executor, disk) = on(drive("cheetah9lp"), Options { keep_bytes, ..Options::default() });
        let buf = executor
            .block_on(async {
                disk.write(Sector(8), Data::from_slice(&[1; 512]), WriteFlags::NONE).await.unwrap();
                disk.read(Sector(8), Buf::dirty(512)).await.unwrap()
            })
            .unwrap();
        (executor.rt().now(), buf[0], disk.image().allocated_bytes())
    };
    let (with, without) = (run(true), run(false));
    assert_eq!(with.0, without.0);
    assert_eq!((with.1, without.1, without.2), (1, 0, 0));
}

/// Requests outside the disk or of odd length are errors that take no time.
#[test]
fn bad_requests() {
    let (executor, disk) = on(drive("hp97560"), Options::default());
    let sectors = disk.geometry().sectors;
    executor
        .block_on(async {
            let error = disk.read(Sector(sectors - 1), Buf::dirty(1024)).await.map(|_| ()).unwrap_err();
            assert!(matches!(error, DeviceError::OutOfRange { .. }));
            let error = disk.write(Sector(0), Data::zeroes(100), WriteFlags::NONE).await.unwrap_err();
            assert!(matches!(error, DeviceError::Unaligned { .. }));
            let error = disk.discard(Sector(sectors), u64::MAX).await.unwrap_err();
            assert!(matches!(error, DeviceError::OutOfRange { .. }));
            assert_eq!(disk.read(Sector(0), Buf::dirty(0)).await.unwrap().len(), 0);
        })
        .unwrap();
    assert_eq!(executor.rt().now(), Nanos::ZERO);
}

/// Completed writes to a drive with write-behind become durable by a flush, which waits for the medium, or by
/// FUA, which costs the same wait at once.
#[test]
fn flush_and_fua() {
    let (executor, disk) = on(drive("cheetah9lp"), Options::default());
    let rt = executor.rt().clone();
    assert!(!disk.guarantees().durable_on_completion);
    executor
        .block_on(async {
            disk.write(Sector(5_000_000), Data::zeroes(4096), WriteFlags::NONE).await.unwrap();
            let buffered = rt.now();
            disk.flush().await.unwrap();
            let flushed = rt.now();
            assert!(flushed - buffered > Nanos::from_millis(2), "a seek and a rotation remain");
            disk.flush().await.unwrap();
            assert_eq!(rt.now(), flushed);
            let start = rt.now();
            disk.write(Sector(5_500_000), Data::zeroes(4096), WriteFlags::FUA).await.unwrap();
            assert!(rt.now() - start > Nanos::from_millis(2));
            let done = rt.now();
            disk.flush().await.unwrap();
            assert_eq!(rt.now(), done);
        })
        .unwrap();
    assert_eq!(counter(&disk, "writes_buffered"), 1);
}

/// Submits reads at `sectors` all at once; returns the order in which they complete.
fn completion_order(scheduler: Scheduler, sectors: &[u64]) -> Vec<u64> {
    let (executor, disk) = on(drive("dec-rz26"), Options { scheduler, ..Options::default() });
    let order = Rc::new(RefCell::new(Vec::new()));
    executor
        .block_on(async {
            let mut tasks = Vec::new();
            for &at in sectors {
                let (disk, order) = (disk.clone(), order.clone());
                tasks.push(executor.rt().spawn(async move {
                    disk.read(Sector(at), Buf::dirty(512)).await.unwrap();
                    order.borrow_mut().push(at);
                }));
                // One after another, so that the order of arrival is known; all within the first service.
                executor.rt().sleep(Nanos::from_micros(10)).await;
            }
            for task in tasks {
                task.await;
            }
        })
        .unwrap();
    order.take()
}

/// The schedulers serve in the specified order. The first request is served before the others arrive.
#[test]
fn schedulers() {
    let sectors = [1_000_000, 1_900_000, 200, 1_000_400, 900_000, 1_500_000];
    assert_eq!(completion_order(Scheduler::Fcfs, &sectors), sectors);
    assert_eq!(
        completion_order(Scheduler::CLook, &sectors),
        [1_000_000, 1_000_400, 1_500_000, 1_900_000, 200, 900_000]
    );
    assert_eq!(completion_order(Scheduler::Sstf, &sectors), [1_000_000, 1_000_400, 900_000, 1_500_000, 1_900_000, 200]);
    let shortest = completion_order(Scheduler::Sptf { age_micros: 0 }, &sectors);
    assert_ne!(shortest, completion_order(Scheduler::Sstf, &sectors), "rotation matters");
    // With an age weight beyond any positioning time, the oldest is always next.
    assert_eq!(completion_order(Scheduler::Sptf { age_micros: u32::MAX }, &sectors), sectors);
}

/// Better schedulers give more throughput on a full queue, and C-LOOK more than FCFS, as in [wo94].
#[test]
fn schedulers_pay() {
    let rate = |scheduler| {
        let (executor, disk) = on(drive("cheetah9lp"), Options { scheduler, keep_bytes: false, ..Options::default() });
        for worker in 0..32 {
            let (disk, mut rng) = (disk.clone(), Rng::new(worker));
            executor.rt().spawn(async move {
                for _ in 0..60 {
                    let at = Sector(rng.below(disk.geometry().sectors / 8) * 8);
                    disk.read(at, Buf::dirty(4096)).await.unwrap();
                }
            });
        }
        executor.block_on(std::future::pending::<()>()).unwrap_err();
        assert!(counter(&disk, "waiting_max") >= 30);
        32.0 * 60.0 / executor.rt().now().as_secs_f64()
    };
    let rates = [Scheduler::Fcfs, Scheduler::CLook, Scheduler::Sstf, Scheduler::Sptf { age_micros: 0 }].map(rate);
    assert!(rates[1] > 1.3 * rates[0] && rates[2] > 1.3 * rates[0] && rates[3] > 1.2 * rates[1], "{rates:?}");
}

/// A caller that stops waiting for a request leaves the drive usable: the request still takes its time, those behind it
/// are served, and a request that had not started is dropped.
#[test]
fn cancelled_requests() {
    let (executor, disk) = on(drive("dec-rz26"), Options::default());
    let rt = executor.rt().clone();
    let end = executor
        .block_on(async {
            let first = disk.read(Sector(2_000_000), Buf::dirty(512));
            let waits = disk.read(Sector(0), Buf::dirty(512));
            let behind = disk.read(Sector(1_000_000), Buf::dirty(512));
            let mut first = Box::pin(first);
            let mut waits = Box::pin(waits);
            let mut behind = Box::pin(behind);
            // Polls all three once: one is being served, two wait.
            std::future::poll_fn(|context| {
                for future in [&mut first, &mut waits, &mut behind] {
                    assert!(future.as_mut().poll(context).is_pending());
                }
                std::task::Poll::Ready(())
            })
            .await;
            drop(waits);
            drop(first);
            behind.await.unwrap();
            rt.now()
        })
        .unwrap();
    let mut mechanism = Mechanism::new(drive("dec-rz26")).unwrap();
    let first = mechanism.service(Nanos::ZERO, Nanos::ZERO, read(2_000_000, 1)).unwrap().done;
    let behind = mechanism.service(first, first, read(1_000_000, 1)).unwrap().done;
    assert_eq!(end, behind);
    assert_eq!(counter(&disk, "requests"), 2);
    // The drive is idle again.
    let idle = executor.block_on(async { disk.read(Sector(7), Buf::dirty(512)).await.map(|_| ()) }).unwrap();
    assert_eq!(idle, Ok(()));
}

/// Many tasks at once: every request is served once, the drive is never idle in between, and the same seed gives
/// the same nanosecond.
#[test]
fn concurrent_requests() {
    let run = || {
        let (executor, disk) = on(drive("atlas10k"), Options { keep_bytes: false, ..Options::default() });
        for worker in 0..20 {
            let (disk, rt, mut rng) = (disk.clone(), executor.rt().clone(), Rng::new(worker));
            executor.rt().spawn(async move {
                for _ in 0..50 {
                    let at = Sector(rng.below(1_000_000));
                    if rng.chance(1, 2) {
                        disk.read(at, Buf::dirty(4096)).await.unwrap();
                    } else {
                        disk.write(at, Data::zeroes(2048), WriteFlags::NONE).await.unwrap();
                    }
                    rt.yield_now().await;
                }
            });
        }
        executor.block_on(std::future::pending::<()>()).unwrap_err();
        assert_eq!(counter(&disk, "requests"), 1000);
        assert_eq!(disk.busy(), executor.rt().now());
        executor.rt().now()
    };
    assert_eq!(run(), run());
}
