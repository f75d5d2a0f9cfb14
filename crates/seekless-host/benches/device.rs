//! What device I/O costs: io_uring against worker threads, through the page cache and around it.
//!
//! ```text
//! cargo bench -p seekless-host --bench device -- [rounds=9] [unit=rate|cpu] [path=DIR]
//! ```
//!
//! Contestants alternate, and so does their order; a cell is the median of the rounds with its quartiles, and the ratio
//! to the first. `unit=cpu` gives microseconds of processor time, of all threads of this process, for each operation.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use futures_util::future::join_all;
use seekless::device::{BlockDevice, Buf, Data, WriteFlags};
use seekless::rng::Rng;
use seekless::rt::Executor;
use seekless::units::{KIB, MIB, SECTOR_BYTES, Sector};
use seekless_host::leaves::{DirectIo, FileDevice, FileOptions};
use seekless_host::reactor::{Backend, Reactor, ReactorOptions};

const DEVICE_BYTES: u64 = 256 * MIB;

fn main() {
    let (mut rounds, mut cpu, mut directory) = (9, false, std::env::temp_dir());
    for word in std::env::args().skip(1) {
        match word.split_once('=') {
            Some(("rounds", count)) => rounds = count.parse().expect("a number of rounds"),
            Some(("unit", unit)) => cpu = unit == "cpu",
            Some(("path", path)) => directory = PathBuf::from(path),
            _ => {}
        }
    }
    let image = directory.join(format!("seekless-bench-{}.img", std::process::id()));
    let contestants = [("io_uring", Backend::Uring), ("threads", Backend::Pool)];
    let mut cells: BTreeMap<(usize, String, &str), Vec<f64>> = BTreeMap::new();
    for round in 0..rounds {
        eprint!("\rround {} of {rounds} ", round + 1);
        for direct in [false, true] {
            let mut order = contestants;
            if round % 2 == 1 {
                order.reverse();
            }
            for (name, backend) in order {
                for (row, work, rate, spent) in measure(&image, backend, direct) {
                    let work = format!("{}{work}", if direct { "direct " } else { "" });
                    let row = if direct { 100 + row } else { row };
                    cells.entry((row, work, name)).or_default().push(if cpu { spent } else { rate });
                }
            }
        }
    }
    eprintln!();
    let unit = if cpu { "microseconds of processor per operation" } else { "operations per second" };
    println!("{rounds} rounds: {unit} [quartiles], and the ratio to the first");
    println!("{:>34} {:>30} {:>30}", "", contestants[0].0, contestants[1].0);
    let works: BTreeMap<usize, String> = cells.keys().map(|(row, work, _)| (*row, work.clone())).collect();
    for (row, work) in works {
        print!("{work:>34}");
        let mut first = None;
        for (name, _) in contestants {
            let values = cells.get_mut(&(row, work.clone(), name)).expect("every round has every cell");
            values.sort_by(f64::total_cmp);
            let at = |quarter: usize| values[(values.len() * quarter / 4).min(values.len() - 1)];
            let ratio = at(2) / *first.get_or_insert(at(2));
            let digits = if cpu { 1 } else { 0 };
            let cell = format!("{:.digits$} [{:.digits$}-{:.digits$}] {ratio:.2}", at(2), at(1), at(3));
            print!(" {cell:>30}");
        }
        println!();
    }
}

/// Row, name, operations per second, microseconds of processor per operation.
type Rate = (usize, &'static str, f64, f64);

fn measure(image: &Path, backend: Backend, direct: bool) -> Vec<Rate> {
    let reactor = Reactor::new(ReactorOptions { backend, ..ReactorOptions::default() }).expect("a reactor");
    let executor = reactor.executor();
    let direct = if direct { DirectIo::On } else { DirectIo::Off };
    let options = FileOptions { direct, ..FileOptions::default() };
    let device = FileDevice::create(executor.rt(), &reactor, image, DEVICE_BYTES, options).expect("an image");
    let bench = Bench { executor: &executor, device: &device };
    // The first pass pays for the host's memory and allocation, which none of them should be charged for.
    bench.write(512, 512 * KIB, 2, false);
    let mut rates = Vec::new();
    let mut run = |name: &'static str, operations: usize, work: &dyn Fn(usize)| {
        let (start, before) = (Instant::now(), processor_time());
        work(operations);
        let taken = start.elapsed().as_secs_f64();
        let spent = processor_time() - before;
        rates.push((rates.len(), name, operations as f64 / taken, spent / operations as f64 * 1e6));
    };
    run("write 512K in sequence, 2 at once", 512, &|count| bench.write(count, 512 * KIB, 2, false));
    run("read 4K at random", 2000, &|count| bench.read(count, 4 * KIB, 1));
    run("read 4K at random, 16 at once", 4000, &|count| bench.read(count, 4 * KIB, 16));
    run("read 128K at random, 4 at once", 500, &|count| bench.read(count, 128 * KIB, 4));
    run("write 4K at random, 16 at once", 4000, &|count| bench.write(count, 4 * KIB, 16, true));
    run("write 128K and flush", 50, &|count| bench.commit(count, 128 * KIB, WriteFlags::NONE));
    run("write 4K with FUA", 50, &|count| bench.commit(count, 4 * KIB, WriteFlags::FUA));
    std::fs::remove_file(image).expect("to remove the image");
    rates
}

struct Bench<'a> {
    executor: &'a Executor,
    device: &'a FileDevice,
}

impl Bench<'_> {
    /// Runs `tasks` tasks that together make `count` operations.
    fn together<F: Future<Output = ()>>(&self, tasks: usize, count: usize, task: impl Fn(Rng, usize) -> F) {
        let tasks = (0..tasks).map(|number| task(Rng::new(number as u64), count / tasks));
        self.executor.block_on(join_all(tasks)).expect("no stall");
    }

    fn read(&self, count: usize, bytes: u64, tasks: usize) {
        self.together(tasks, count, |mut rng, count| async move {
            let mut buf = Buf::zeroed(bytes as usize);
            for _ in 0..count {
                let at = Sector(rng.below(DEVICE_BYTES / bytes) * (bytes / SECTOR_BYTES));
                buf = self.device.read(at, buf).await.expect("a read");
            }
        });
    }

    fn write(&self, count: usize, bytes: u64, tasks: usize, random: bool) {
        let data = Data::from_slice(&vec![1; bytes as usize]);
        let next = std::cell::Cell::new(0);
        self.together(tasks, count, |mut rng, count| {
            let (data, next) = (data.clone(), &next);
            async move {
                for _ in 0..count {
                    let slot = if random { rng.next_u64() } else { next.replace(next.get() + 1) };
                    let at = Sector(slot % (DEVICE_BYTES / bytes) * (bytes / SECTOR_BYTES));
                    self.device.write(at, data.clone(), WriteFlags::NONE).await.expect("a write");
                }
            }
        });
    }

    fn commit(&self, count: usize, bytes: u64, flags: WriteFlags) {
        let data = Data::from_slice(&vec![2; bytes as usize]);
        self.together(1, count, |_, count| {
            let data = data.clone();
            async move {
                for slot in 0..count as u64 {
                    let at = Sector(slot * (bytes / SECTOR_BYTES));
                    self.device.write(at, data.clone(), flags).await.expect("a write");
                    if !flags.fua {
                        self.device.flush().await.expect("a flush");
                    }
                }
            }
        });
    }
}

/// Processor time of this process so far, in seconds.
fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
