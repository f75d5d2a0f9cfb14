//! Aim: arrays of modelled disks are as fast as DiskSim's. Method: random and sequential 4 KB requests, 200
//! outstanding, over 8 GiB on Cheetah 9LPs that keep no data; the tables hold the requests per second of separate
//! DiskSim instances under the same load.

use std::cell::RefCell;
use std::rc::Rc;

use crate::device::{Buf, Data, Device, WriteFlags};
use crate::disk::{Disk, Drive, Options};
use crate::rng::Rng;
use crate::rt::{Executor, HostProfile};
use crate::units::{GIB, SECTOR_BYTES, Sector};
use crate::volume::raid0;

const REQUESTS: u64 = 10_000;
const WINDOW: u64 = 200;
const SECTORS: u64 = 8;

/// Requests per second of `disks` disks striped in `unit` sectors.
fn rate(disks: usize, unit: u64, is_sequential: bool, is_write: bool) -> f64 {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let drive = Drive::named("cheetah9lp").unwrap();
    let options = Options { keep_bytes: false, ..Options::default() };
    let disk = || Rc::new(Disk::new(executor.rt().clone(), drive, options).unwrap()) as Device;
    let array: Device = raid0((0..disks).map(|_| disk()).collect(), unit).unwrap();
    let blocks = array.geometry().sectors.min(8 * GIB / SECTOR_BYTES) / SECTORS;
    let next = Rc::new(RefCell::new((0, Rng::new(7))));
    for _ in 0..WINDOW {
        let (array, next) = (array.clone(), next.clone());
        executor.rt().spawn(async move {
            loop {
                let at = {
                    let (issued, rng) = &mut *next.borrow_mut();
                    *issued += 1;
                    match (*issued > REQUESTS, is_sequential) {
                        (true, _) => return,
                        (_, true) => Sector((*issued - 1) * SECTORS),
                        (_, false) => Sector(rng.below(blocks) * SECTORS),
                    }
                };
                match is_write {
                    true => array.write(at, Data::zeroes(4096), WriteFlags::NONE).await.unwrap(),
                    false => drop(array.read(at, Buf::dirty(4096)).await.unwrap()),
                }
            }
        });
    }
    assert!(executor.block_on(std::future::pending::<()>()).is_err());
    REQUESTS as f64 / executor.rt().now().as_secs_f64()
}

/// Disks, stripe unit in sectors, DiskSim's requests per second, and the tolerance in per cent. Runs of 10,000 requests
/// instead of 40,000 begin and end with idle disks, which takes up to 8 % off the highest rates.
type Cell = (usize, u64, f64, f64);

fn check(cells: &[Cell], is_sequential: bool, is_write: bool) {
    for &(disks, unit, expected, tolerance) in cells {
        let found = rate(disks, unit, is_sequential, is_write);
        let off = (found / expected - 1.0) * 100.0;
        assert!(
            off.abs() <= tolerance,
            "{disks} disks, unit {unit}: {found:.0}/s, DiskSim {expected:.0}/s, {off:+.1} %"
        );
    }
}

/// Sequential reads keep (W + s/16) / (1 + s/16) disks busy, with a window of W and a stripe unit of s sectors.
#[test]
fn sequential_reads_are_as_fast_as_disksims() {
    check(
        &[
            (1, 16, 1086.0, 1.0),
            (8, 16, 8673.0, 2.0),
            (32, 64, 34_165.0, 5.0),
            (128, 64, 47_522.0, 9.0),
            (128, 256, 13_906.0, 9.0),
            (128, 1024, 4179.0, 6.0),
            (128, 4096, 1738.0, 2.0),
        ],
        true,
        false,
    );
}

#[test]
fn sequential_writes_are_as_fast_as_disksims() {
    check(
        &[
            (1, 16, 161.0, 1.0),
            (128, 16, 20_628.0, 3.0),
            (32, 256, 2331.0, 5.0),
            (128, 1024, 665.0, 4.0),
            (128, 4096, 263.0, 2.0),
        ],
        true,
        true,
    );
}

/// Random requests do not depend on the stripe unit. Only with many disks, where queues are short and the scheduling
/// order of a disk (C-LOOK here) makes no difference.
#[test]
fn random_requests_are_as_fast_as_disksims() {
    check(&[(128, 16, 15_840.0, 7.0), (128, 256, 15_840.0, 7.0), (128, 4096, 15_840.0, 7.0)], false, false);
    check(&[(128, 16, 18_828.0, 6.0), (128, 4096, 18_828.0, 6.0)], false, true);
}

/// [st05 Figure 3]: sequential reads are far ahead with the smallest unit; random ones overtake them when units are
/// large.
#[test]
fn large_units_make_sequential_reads_slower_than_random_ones() {
    assert!(rate(128, 16, true, false) > 6.0 * rate(128, 16, false, false));
    assert!(rate(128, 256, true, false) < rate(128, 256, false, false));
    assert!(rate(8, 256, true, false) > rate(8, 256, false, false));
}
