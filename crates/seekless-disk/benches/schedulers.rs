//! What schedulers cost: requests per second of processor time, by scheduler and by the number of requests that wait.
//! `cargo bench -p seekless-disk --bench schedulers`, `-- --quick` for a tenth of the requests, `-- clook sstf 4096` for these
//! schedulers and depths alone.
//!
//! Each request passes the whole device: executor, queue, mechanism. The aim is a million a second at any depth with C-LOOK
//! and with SSTF. What callers and drive cost without any order is in the row of fcfs. With 65,536 callers most of
//! what belongs to a request comes from memory, which takes as long as everything else: docs/testing.md has a profile.

#![allow(clippy::disallowed_methods)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use cpu_time::ProcessTime;
use seekless_core::device::{BlockDevice, Buf};
use seekless_core::rng::Rng;
use seekless_core::rt::{Executor, HostProfile, Limits, Unfinished};
use seekless_core::units::{Nanos, Sector};
use seekless_disk::disk::{Disk, Drive, Options, Scheduler};

/// That of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SCHEDULERS: [(&str, Scheduler); 5] = [
    ("fcfs", Scheduler::Fcfs),
    ("clook", Scheduler::CLook),
    ("sstf", Scheduler::Sstf),
    ("sptf", Scheduler::Sptf { age_micros: 0 }),
    ("sptf, age=10", Scheduler::Sptf { age_micros: 10 }),
];

const DEPTHS: [u64; 8] = [1, 4, 16, 64, 256, 1024, 4096, 65_536];

/// Requests per second of processor time while `depth` callers wait, each of which has one request. It takes as many to fill the queue, which
/// are not counted: making the callers, whose memory is new, takes longer than serving them.
fn rate(drive: &Drive, scheduler: Scheduler, depth: u64, requests: u64) -> f64 {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let options = Options { scheduler, keep_bytes: false, ..Options::default() };
    let disk = Rc::new(Disk::new(executor.rt().clone(), drive, options).expect("a valid drive"));
    // One for all: what a caller has of its own is memory, too.
    let drawn = Rc::new(RefCell::new(Rng::new(1)));
    let served = Rc::new(Cell::new(0));
    for _ in 0..depth {
        let (disk, drawn, served) = (disk.clone(), drawn.clone(), served.clone());
        executor.rt().spawn(async move {
            let mut buf = Buf::zeroed(512);
            loop {
                let sector = Sector(drawn.borrow_mut().below(disk.geometry().sectors));
                buf = disk.read(sector, buf).await.expect("a request inside the disk");
                served.set(served.get() + 1);
            }
        });
    }
    let until = |count: u64| {
        let mut limits = Limits { events: 1, until: Nanos::MAX };
        while served.get() < count {
            // Each takes an event or two, and none too many.
            limits.events = (count - served.get()).max(16);
            let unfinished = executor.block_on_within(limits, std::future::pending::<()>());
            assert!(matches!(unfinished, Err(Unfinished::Events(_))), "callers that never end");
        }
    };
    until(depth);
    let (start, before) = (ProcessTime::now(), served.get());
    until(before + requests);
    (served.get() - before) as f64 / start.elapsed().as_secs_f64()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let requests = if quick { 100_000 } else { 1_000_000 };
    let named = |names: &[String]| names.iter().any(|name| arguments.contains(name));
    let picked = |all: Vec<String>, name: String| !named(&all) || arguments.contains(&name);
    let labels = || SCHEDULERS.map(|(label, _)| label.to_owned()).to_vec();
    let numbers = || DEPTHS.map(|depth| depth.to_string()).to_vec();
    let depths: Vec<u64> = DEPTHS.into_iter().filter(|depth| picked(numbers(), depth.to_string())).collect();
    for name in ["cheetah9lp", "nearline-4tb"] {
        let drive = Drive::named(name).expect("a drive in the catalogue");
        println!("{name}: random reads of a sector, requests per second by depth");
        print!("{:<14}", "");
        depths.iter().for_each(|depth| print!("{depth:>11}"));
        println!();
        for (label, scheduler) in SCHEDULERS.into_iter().filter(|(label, _)| picked(labels(), (*label).to_owned())) {
            print!("{label:<14}");
            for &depth in &depths {
                print!("{:>11.0}", rate(drive, scheduler, depth, requests));
            }
            println!();
        }
        println!();
    }
}
