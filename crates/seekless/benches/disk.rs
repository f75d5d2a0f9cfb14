//! Speed of the disk model in requests per second of processor time: `cargo bench -p seekless --bench disk`.
//!
//! For comparison, DiskSim 4.0 (g++ 12, -O2) serves about 37,000 random 4 KB reads a second with one Cheetah 9LP,
//! and about 33,000 spread over 128 separate ones, on a machine of two cores.

#![allow(clippy::disallowed_methods)]

use std::collections::VecDeque;
use std::rc::Rc;

use cpu_time::ProcessTime;
use seekless::device::{BlockDevice, Buf, Device};
use seekless::disk::{Disk, Drive, Mechanism, Options, Request};
use seekless::flash::{Controller, Fill, Ssd};
use seekless::rng::Rng;
use seekless::rt::{Executor, HostProfile};
use seekless::units::{Nanos, Sector};
use seekless::volume::{Mapped, Permutation, ShapeError, permute, raid0, volume};

const REQUESTS: u64 = 1_000_000;
const SECTORS: u32 = 8;

fn report(what: &str, requests: u64, start: ProcessTime) {
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{what:<52} {:>12.0} requests/s  {:>6.0} ns each",
        requests as f64 / seconds,
        seconds / requests as f64 * 1e9
    );
}

/// Sends requests to mechanisms in turn, each as soon as it is done.
fn mechanisms(what: &str, name: &str, disks: usize, mut next: impl FnMut(u64, u64) -> Request) {
    let drive = Drive::named(name).expect("a drive in the catalogue");
    let mut disks: Vec<(Mechanism, Nanos)> =
        (0..disks).map(|_| (Mechanism::new(drive).expect("a valid drive"), Nanos::ZERO)).collect();
    let start = ProcessTime::now();
    let count = disks.len() as u64;
    for index in 0..REQUESTS {
        let (mechanism, now) = &mut disks[(index % count) as usize];
        let request = next(index / count, mechanism.sectors());
        *now = mechanism.service(*now, *now, request).expect("a request inside the disk").done;
    }
    report(what, REQUESTS, start);
}

/// Sends requests through the block device in virtual time, `window` at once, spread over `disks`.
fn devices(what: &str, disks: usize, window: u64) {
    let drive = Drive::named("cheetah9lp").expect("a drive in the catalogue");
    let executor = Executor::simulated(1, HostProfile::NONE);
    let options = Options { keep_bytes: false, ..Options::default() };
    let disks: Vec<Rc<Disk>> =
        (0..disks).map(|_| Rc::new(Disk::new(executor.rt().clone(), drive, options).expect("a valid drive"))).collect();
    let requests = REQUESTS / 4;
    let start = ProcessTime::now();
    for worker in 0..window {
        let (disks, mut rng) = (disks.clone(), Rng::new(worker));
        executor.rt().spawn(async move {
            for _ in 0..requests / window {
                let disk = rng.pick(&disks);
                let at = Sector(rng.below(disk.geometry().sectors / 8) * 8);
                disk.read(at, Buf::dirty(4096)).await.expect("a request inside the disk");
            }
        });
    }
    // Only the workers' timers are left when they are done.
    let stalled = executor.block_on(std::future::pending::<()>());
    assert!(stalled.is_err());
    report(what, requests / window * window, start);
}

/// The same over 128 disks under one device.
fn arrays(what: &str, make: impl Fn(Vec<Device>) -> Result<Rc<Mapped>, ShapeError>) {
    const WINDOW: u64 = 200;
    let drive = Drive::named("cheetah9lp").expect("a drive in the catalogue");
    let executor = Executor::simulated(1, HostProfile::NONE);
    let options = Options { keep_bytes: false, ..Options::default() };
    let disk = || Rc::new(Disk::new(executor.rt().clone(), drive, options).expect("a valid drive")) as Device;
    let array = make((0..128).map(|_| disk()).collect()).expect("a valid array");
    let requests = REQUESTS / 4;
    let start = ProcessTime::now();
    for worker in 0..WINDOW {
        let (array, mut rng) = (array.clone(), Rng::new(worker));
        executor.rt().spawn(async move {
            for _ in 0..requests / WINDOW {
                let at = Sector(rng.below(array.geometry().sectors / 8) * 8);
                array.read(at, Buf::dirty(4096)).await.expect("a request inside the array");
            }
        });
    }
    assert!(executor.block_on(std::future::pending::<()>()).is_err());
    report(what, requests / WINDOW * WINDOW, start);
}

/// Commands of 4 KiB on a flash drive, `depth` outstanding, which is in its steady state.
fn flash(what: &str, depth: u64, write: bool) {
    let drive = Ssd::named("nvme-a").expect("a drive in the catalogue");
    let mut controller = Controller::new(drive, Fill::Random, 4096).expect("a valid drive");
    let mut rng = Rng::new(4);
    let mut ends: VecDeque<Nanos> = (0..depth).map(|_| Nanos::ZERO).collect();
    let start = ProcessTime::now();
    let mut now = Nanos::ZERO;
    for _ in 0..REQUESTS {
        now = now.max(ends.pop_front().expect("there is one for each outstanding command"));
        let sector = rng.below(drive.bytes / 4096) * 8;
        ends.push_back(match write {
            true => controller.write(now, sector, 8, false),
            false => controller.read(now, sector, 8),
        });
    }
    report(what, REQUESTS, start);
}

/// Looks up random places.
fn look_up(what: &str, count: u64, forward: impl Fn(u64) -> u64) {
    let mut rng = Rng::new(3);
    let start = ProcessTime::now();
    let sum = (0..10 * REQUESTS).fold(0, |sum: u64, _| sum.wrapping_add(forward(rng.below(count))));
    std::hint::black_box(sum);
    report(what, 10 * REQUESTS, start);
}

fn permutations(what: &str, count: u64) {
    let permutation = Permutation::new(count, 1);
    look_up(what, count, |index| permutation.forward(index));
}

fn tables(what: &str, count: u64) {
    let mut table: Vec<u32> = (0..count as u32).collect();
    Rng::new(1).shuffle(&mut table);
    look_up(what, count, |index| u64::from(table[index as usize]));
}

fn main() {
    let mut rng = Rng::new(1);
    let mut random = |_, sectors: u64| Request::read(Sector(rng.below(sectors / 8) * 8), SECTORS);
    mechanisms("cheetah9lp, random 4 KB reads", "cheetah9lp", 1, &mut random);
    mechanisms("dec-rz26, random 4 KB reads", "dec-rz26", 1, &mut random);
    mechanisms("atlas10k, random 4 KB reads", "atlas10k", 1, &mut random);
    mechanisms("128 x cheetah9lp, random 4 KB reads", "cheetah9lp", 128, &mut random);
    let mut rng = Rng::new(2);
    let mut mixed = |_, sectors: u64| {
        let at = Sector(rng.below(sectors / 8) * 8);
        if rng.chance(1, 3) { Request::write(at, SECTORS) } else { Request::read(at, SECTORS) }
    };
    mechanisms("cheetah9lp, random 4 KB, one third writes", "cheetah9lp", 1, &mut mixed);
    let sequential = |index: u64, sectors: u64| Request::read(Sector(index * 8 % (sectors - 8)), SECTORS);
    mechanisms("cheetah9lp, sequential 4 KB reads", "cheetah9lp", 1, sequential);
    mechanisms("dec-rz26, sequential 64 KB reads", "dec-rz26", 1, |index, sectors| {
        Request::read(Sector(index * 128 % (sectors - 128)), 128)
    });
    devices("cheetah9lp as a block device, one at a time", 1, 1);
    devices("cheetah9lp as a block device, 16 outstanding", 1, 16);
    devices("128 x cheetah9lp as block devices, 200 outstanding", 128, 200);
    arrays("128 x cheetah9lp, raid0, 200 outstanding", |disks| raid0(disks, 64));
    arrays("128 x cheetah9lp, volume, 200 outstanding", |disks| volume(disks, 128, 64, 1));
    arrays("128 x cheetah9lp, permute over volume", |disks| permute(volume(disks, 128, 64, 1)?, 8, 1, None));
    flash("nvme-a, random 4 KiB reads, 32 outstanding", 32, false);
    flash("nvme-a, random 4 KiB writes, collecting, 32 outstanding", 32, true);
    permutations("permutation of a 9 GB disk in 4 KiB, by network", 2_222_905);
    permutations("permutation of 128 of them, by network", 128 * 2_222_905);
    tables("permutation of a 9 GB disk in 4 KiB, by table", 2_222_905);
    tables("permutation of 16,384 blocks, by table", 16_384);
    permutations("permutation of 16,384 blocks, by network", 16_384);
}
