//! Results of DiskSim 4.0 itself, measured with its models of the RZ26 and the Cheetah 9LP. Where ours differ from them
//! by more than rounding, the reason is next to the tolerance.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::*;
use crate::device::{BlockDevice, Buf, Data, WriteFlags};
use crate::rng::Rng;
use crate::rt::{Executor, HostProfile};

/// Megabytes a second of requests of `sectors` with `gap` sectors between them.
fn pattern(write: bool, sectors: u32, gap: u64, think_ms: u64) -> f64 {
    let mut disk = Closed::new(drive("dec-rz26"), Nanos::from_millis(think_ms));
    let requests = 2000;
    for index in 0..requests {
        let at = Sector(index * (u64::from(sectors) + gap));
        disk.serve(Request { sector: at, sectors, write, fua: false });
    }
    (requests * u64::from(sectors) * 512) as f64 / 1e6 / disk.now.as_secs_f64()
}

/// The patterns of [se95]'s disk discussion, with DiskSim's results in MB/s by host think time 0, 1, 2 and 3 ms. The
/// published figures: 64 KB back to back 1.68, a gap of two 8 KB blocks is best with 1.88, and 8 KB writes with that
/// gap reach slightly under a third of the 2.5 MB/s.
#[test]
fn patterns_of_se95() {
    let writes: &[(u32, u64, [f64; 4])] = &[
        (128, 0, [1.64, 1.64, 1.64, 1.64]),
        (128, 1, [2.03, 1.64, 1.64, 1.51]),
        (128, 2, [1.82, 1.82, 1.82, 1.82]),
        (128, 3, [1.69, 1.66, 1.66, 1.66]),
        (16, 0, [0.56, 0.56, 0.56, 0.55]),
        (16, 2, [0.76, 0.76, 0.76, 0.76]),
        (16, 3, [0.60, 0.57, 0.57, 0.57]),
    ];
    for (sectors, blocks, expected) in writes {
        for (think, &expected) in expected.iter().enumerate() {
            let found = pattern(true, *sectors, blocks * 16, think as u64);
            // DiskSim's figures are rounded to 0.01.
            assert!((found - expected).abs() <= 0.011, "write {sectors}, gap {blocks}, think {think}: {found}");
        }
    }
    // 8 KB with a gap of one block just meets its sector, or just misses it, as the head comes back: at 0 ms and 3 ms
    // DiskSim agrees; in between, one case falls on the other side.
    assert!((pattern(true, 16, 16, 0) - 1.14).abs() <= 0.011);
    assert!((pattern(true, 16, 16, 2) - 0.54).abs() <= 0.011);
    assert!((pattern(true, 16, 16, 3) - 0.45).abs() <= 0.011);
    // Sequential reads: DiskSim 2.20, 2.13 and 2.07 with 64 KB, 1.57, 1.23 and 1.22 with 8 KB. Ours is up to 4 %
    // slower with 64 KB, where read-ahead ended at a track's end.
    for (think, large, small) in [(1, 2.20, 1.57), (2, 2.13, 1.23), (3, 2.07, 1.22)] {
        assert_near("64 KB reads", pattern(false, 128, 0, think), large, 0.045);
        assert_near("8 KB reads", pattern(false, 16, 0, think), small, 0.01);
    }
    // Without think time DiskSim stops its read-ahead at each request (1.64 and 0.56): see `mechanism`,
    // difference 1. The measured drive of [se95] reads at 2.3.
    assert!(pattern(false, 128, 0, 0) > 2.2);
}

/// Random requests per second with one outstanding. The samples are random: 1.5 %.
#[test]
fn random_rates() {
    let rate = |name: &str, write: bool, sectors: u32, part: u64| {
        let mut disk = Closed::new(drive(name), Nanos::ZERO);
        let mut rng = Rng::new(3);
        // That fork of DiskSim has a smaller C3323A than the original.
        let capacity = if name == "hp-c3323a" { 1_743_672 } else { disk.mechanism.sectors() };
        for _ in 0..10_000 {
            let at = rng.below(capacity / part / 8 - 4) * 8;
            disk.serve(Request { sector: Sector(at), sectors, write, fua: false });
        }
        10_000.0 / disk.now.as_secs_f64()
    };
    for (name, write, sectors, part, expected) in [
        ("dec-rz26", false, 8, 1, 51.7),
        ("dec-rz26", true, 8, 1, 51.7),
        ("dec-rz26", false, 16, 1, 47.3),
        ("dec-rz26", false, 8, 2, 59.0),
        ("cheetah9lp", false, 8, 1, 103.6),
        ("cheetah9lp", true, 8, 1, 108.9),
        ("atlas10k", false, 8, 1, 106.5),
        ("atlas10k", true, 8, 1, 108.5),
        ("hp-c3323a", false, 8, 1, 53.0),
        ("barracuda", false, 8, 1, 65.7),
        ("barracuda", true, 8, 1, 72.8),
        ("ultrastar18es", false, 8, 1, 80.2),
        ("ultrastar18es", true, 8, 1, 85.3),
    ] {
        assert_near(&format!("{name}, write {write}"), rate(name, write, sectors, part), expected, 0.015);
    }
}

/// IOPS of 4 KB requests over 8 GiB on `disks` Cheetahs, striped in units of `unit` sectors, 200 outstanding.
fn array(disks: usize, unit: u64, write: bool, random: bool) -> f64 {
    let requests = 40_000; // As many as in the measurement: the ramp at the end of a run is part of it.
    let executor = Executor::simulated(1, HostProfile::NONE);
    let options = Options { scheduler: Scheduler::Fcfs, keep_bytes: false, ..Options::default() };
    let disks: Vec<Rc<Disk>> =
        (0..disks).map(|_| Rc::new(Disk::new(executor.rt().clone(), drive("cheetah9lp"), options).unwrap())).collect();
    let next = Rc::new(Cell::new(0));
    let rng = Rc::new(RefCell::new(Rng::new(5)));
    for _ in 0..200 {
        let (disks, next, rng) = (disks.clone(), next.clone(), rng.clone());
        executor.rt().spawn(async move {
            while next.get() < requests {
                let index = next.replace(next.get() + 1);
                let lbn = 8 * if random { rng.borrow_mut().below((8 << 30) / 4096) } else { index };
                let (stripe, count) = (lbn / unit, disks.len() as u64);
                let at = Sector(stripe / count * unit + lbn % unit);
                let disk = &disks[(stripe % count) as usize];
                if write {
                    disk.write(at, Data::zeroes(4096), WriteFlags::NONE).await.unwrap();
                } else {
                    disk.read(at, Buf::dirty(4096)).await.unwrap();
                }
            }
        });
    }
    executor.block_on(std::future::pending::<()>()).unwrap_err();
    requests as f64 / executor.rt().now().as_secs_f64()
}

/// [st05] figures 3 and 4 as DiskSim draws them: sequential and random 4 KB requests on arrays. Sequential reads
/// agree to the request.
#[test]
fn arrays_of_st05() {
    for (write, random, unit, expected) in [
        (false, false, 16, [1086.0, 8673.0, 34502.0, 124651.0]),
        (false, false, 256, [1086.0, 8632.0, 14001.0, 13906.0]),
        (false, false, 4096, [1086.0, 1747.0, 1738.0, 1738.0]),
        (true, false, 16, [161.0, 1288.0, 5155.0, 20628.0]),
        (true, false, 1024, [161.0, 664.0, 663.0, 665.0]),
    ] {
        for (disks, expected) in [1, 8, 32, 128].into_iter().zip(expected) {
            let found = array(disks, unit, write, random);
            assert_near(&format!("write {write}, unit {unit}, {disks} disks"), found, expected, 0.015);
        }
    }
    // Random requests are a sample, and a tail of late ones: 4 %.
    for (write, expected) in [(false, [106.0, 1170.0, 4850.0]), (true, [112.0, 1262.0, 5320.0])] {
        for (disks, expected) in [1, 8, 32].into_iter().zip(expected) {
            assert_near(
                &format!("random, write {write}, {disks} disks"),
                array(disks, 64, write, true),
                expected,
                0.04,
            );
        }
    }
}
