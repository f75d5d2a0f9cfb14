//! What schedulers cost: requests per second of processor time, by scheduler and by the number of requests that wait.
//! `cargo bench -p seekless-disk --bench schedulers`, `-- --quick` for a tenth of the requests.
//!
//! Each request passes the whole device: executor, queue, mechanism. The aim is a million a second at any depth with C-LOOK
//! and with SSTF.

#![allow(clippy::disallowed_methods)]

use std::rc::Rc;

use cpu_time::ProcessTime;
use seekless_core::device::{BlockDevice, Buf};
use seekless_core::rng::Rng;
use seekless_core::rt::{Executor, HostProfile};
use seekless_core::units::Sector;
use seekless_disk::disk::{Disk, Drive, Options, Scheduler};

const SCHEDULERS: [(&str, Scheduler); 5] = [
    ("fcfs", Scheduler::Fcfs),
    ("clook", Scheduler::CLook),
    ("sstf", Scheduler::Sstf),
    ("sptf", Scheduler::Sptf { age_micros: 0 }),
    ("sptf, age=10", Scheduler::Sptf { age_micros: 10 }),
];

const DEPTHS: [u64; 7] = [1, 4, 16, 64, 256, 1024, 4096];

/// Requests per second of processor time with `depth` callers, each of which has one request.
fn rate(drive: &Drive, scheduler: Scheduler, depth: u64, requests: u64) -> f64 {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let options = Options { scheduler, keep_bytes: false, ..Options::default() };
    let disk = Rc::new(Disk::new(executor.rt().clone(), drive, options).expect("a valid drive"));
    let each = (requests / depth).max(2);
    let start = ProcessTime::now();
    for caller in 0..depth {
        let (disk, mut rng) = (disk.clone(), Rng::new(caller));
        executor.rt().spawn(async move {
            let sectors = disk.geometry().sectors;
            let mut buf = Buf::dirty(512);
            for _ in 0..each {
                buf = disk.read(Sector(rng.below(sectors)), buf).await.expect("a request inside the disk");
            }
        });
    }
    // Only the callers' timers are left when they are done.
    assert!(executor.block_on(std::future::pending::<()>()).is_err());
    (each * depth) as f64 / start.elapsed().as_secs_f64()
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let requests = if quick { 100_000 } else { 1_000_000 };
    for name in ["cheetah9lp", "nearline-4tb"] {
        let drive = Drive::named(name).expect("a drive of the catalogue");
        println!("{name}: random reads of a sector, requests per second by depth");
        print!("{:<14}", "");
        DEPTHS.iter().for_each(|depth| print!("{depth:>11}"));
        println!();
        for (label, scheduler) in SCHEDULERS {
            print!("{label:<14}");
            for depth in DEPTHS {
                print!("{:>11.0}", rate(drive, scheduler, depth, requests));
            }
            println!();
        }
        println!();
    }
}
