//! What a mount costs, apart from its file system: transports, opens with and without messages, backends.
//!
//! ```text
//! cargo bench -p seekless-host --bench mount -- [rounds=9] [clients=1p,1,2] [unit=rate|cpu] [WORD...]
//! ```
//!
//! Each word names a contestant, as `transport-backend-opens`: `devfuse-uring-zero`, `uring-uring-zero`,
//! `devfuse-pool-zero`, `devfuse-uring-messages`, `devfuse-uring-zero-writeback` ... Without words the first four
//! of these run. Every round starts each contestant's daemon once, so that contestants alternate; a cell is the
//! median of the rounds.
//!
//! `clients` says how many threads use the mount: `1p` is one that shares a processor with the daemon, which
//! takes the cost of waking an idle virtual processor out of the picture; `1` and `2` are free to move.
//!
//! With `unit=cpu` a cell is the processor time that daemon and clients together spend on an operation (or a MiB), in
//! microseconds; it stays meaningful on a machine with other load.
//!
//! Needs root. FUSE over io_uring must be allowed: `echo Y > /sys/module/fuse/parameters/enable_uring`.

mod null;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Barrier;
use std::time::Instant;

use rustix::thread::{CpuSet, sched_setaffinity};
use seekless::device::Buf;
use seekless::rng::Rng;
use seekless_host::fuse::{Mount, MountOptions, TransportChoice};
use seekless_host::reactor::{Backend, Reactor, ReactorOptions, Signals};

/// Operations of each phase and client.
const FILES: usize = 2_000;
const LARGE_BYTES: u64 = 64 << 20;
const SMALL_IOS: usize = 4_000;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if words.first().is_some_and(|word| word == "serve") {
        return serve(&words[1], Path::new(&words[2]));
    }
    let (mut rounds, mut cpu) = (9, false);
    let mut clients = vec!["1p".to_owned(), "1".into(), "2".into()];
    let mut contestants = Vec::new();
    for word in words {
        match word.split_once('=') {
            Some(("rounds", count)) => rounds = count.parse().expect("a number of rounds"),
            Some(("unit", unit)) => cpu = unit == "cpu",
            Some(("clients", list)) => clients = list.split(',').map(str::to_owned).collect(),
            _ => contestants.push(word),
        }
    }
    if contestants.is_empty() {
        let default = ["devfuse-uring-zero", "uring-uring-zero", "devfuse-pool-zero", "devfuse-uring-messages"];
        contestants = default.map(str::to_owned).to_vec();
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("this benchmark mounts file systems and needs root");
        return;
    }
    for clients in clients {
        let mut cells: BTreeMap<(usize, &'static str, String), Vec<f64>> = BTreeMap::new();
        for round in 0..rounds {
            eprint!("\r{clients} client(s): round {} of {rounds} ", round + 1);
            for contestant in &contestants {
                for (row, phase, rate) in measure(contestant, &clients, cpu) {
                    cells.entry((row, phase, contestant.clone())).or_default().push(rate);
                }
            }
        }
        eprintln!();
        let unit = if cpu { "microseconds of processor per operation or MiB" } else { "operations or MiB per second" };
        println!("\n{clients} client(s), {rounds} rounds: {unit} [quartiles], and the ratio to the first");
        print!("{:>22}", "");
        contestants.iter().for_each(|contestant| print!(" {contestant:>32}"));
        println!();
        let phases: BTreeMap<usize, &'static str> = cells.keys().map(|(row, phase, _)| (*row, *phase)).collect();
        for (row, phase) in phases {
            print!("{phase:>22}");
            let mut first = None;
            for contestant in &contestants {
                let rates = cells.get_mut(&(row, phase, contestant.clone())).expect("every round has every cell");
                rates.sort_by(f64::total_cmp);
                let median = rates[rates.len() / 2];
                let (low, high) = (rates[rates.len() / 4], rates[rates.len() * 3 / 4]);
                let first = *first.get_or_insert(median);
                let digits = if cpu { 1 } else { 0 };
                let cell = format!("{median:.digits$} [{low:.digits$}-{high:.digits$}] {:.2}", median / first);
                print!(" {cell:>32}");
            }
            println!();
        }
    }
}

/// The daemon.
fn serve(contestant: &str, mount_point: &Path) {
    let mut options = MountOptions::new(mount_point, "null");
    let mut reactor_options = ReactorOptions::default();
    let mut words = contestant.split('-');
    options.transport = match words.next() {
        Some("uring") => TransportChoice::Uring,
        _ => TransportChoice::DevFuse,
    };
    reactor_options.backend = match words.next() {
        Some("pool") => Backend::Pool,
        _ => Backend::Uring,
    };
    for word in words {
        match word {
            "zero" => {}
            "messages" => options.zero_message_open = false,
            "writeback" => options.writeback_cache = true,
            "pinned" => pin(0),
            other => panic!("unknown word {other}"),
        }
    }
    let signals = Signals::new(&[libc::SIGTERM]).expect("signals");
    let reactor = Reactor::new(reactor_options).expect("a reactor");
    let executor = reactor.executor();
    let rt = executor.rt().clone();
    let served = executor.block_on(async {
        let mount = Mount::start(&rt, &reactor, Rc::new(null::Null::new(&rt)), options).await.expect("a mount");
        println!("{}", mount.transport_name());
        mount
            .serve(async {
                signals.next(&reactor).await;
            })
            .await
            .expect("a clean end");
    });
    served.expect("no stall");
}

fn pin(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set).expect("pinning");
}

fn unpin() {
    let mut set = CpuSet::new();
    (0..std::thread::available_parallelism().map_or(1, |cores| cores.get()).max(2)).for_each(|core| set.set(core));
    let _ = sched_setaffinity(None, &set);
}

struct Daemon {
    child: Child,
    mount_point: PathBuf,
    _directory: tempfile::TempDir,
}

impl Daemon {
    fn start(contestant: &str) -> Daemon {
        let directory = tempfile::tempdir().expect("a directory");
        let mount_point = directory.path().join("mnt");
        fs::create_dir(&mount_point).expect("a directory");
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["serve", contestant])
            .arg(&mount_point)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the daemon");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("its output");
        let wanted = contestant.split('-').next().unwrap_or_default();
        assert_eq!(line.trim(), wanted, "the kernel does not offer this transport");
        Daemon { child, mount_point, _directory: directory }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ =
            rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

/// One phase: its row in the table, its name, and its rate in units per second.
type Rate = (usize, &'static str, f64);

fn measure(contestant: &str, clients: &str, cpu: bool) -> Vec<Rate> {
    let pinned = clients.ends_with('p');
    let count: usize = clients.trim_end_matches('p').parse().expect("a number of clients");
    let contestant = if pinned { format!("{contestant}-pinned") } else { contestant.to_owned() };
    let daemon = Daemon::start(&contestant);
    if pinned {
        pin(0);
    }
    let mut rates = Vec::new();
    let mut run = |name: &'static str, units: f64, work: &(dyn Fn(&Client) + Sync)| {
        let barrier = Barrier::new(count + 1);
        let spent = || processor_time(daemon.child.id()) + processor_time(std::process::id());
        let (taken, spent) = std::thread::scope(|scope| {
            for number in 0..count {
                let (barrier, daemon) = (&barrier, &daemon);
                scope.spawn(move || {
                    let client = Client { number, root: daemon.mount_point.clone() };
                    barrier.wait();
                    work(&client);
                    barrier.wait();
                });
            }
            barrier.wait();
            let (start, before) = (Instant::now(), spent());
            barrier.wait();
            (start.elapsed().as_secs_f64(), spent() - before)
        });
        let units = units * count as f64;
        rates.push((rates.len(), name, if cpu { spent / units * 1e6 } else { units / taken }));
    };
    let files = FILES as f64;
    let megabytes = (LARGE_BYTES >> 20) as f64;
    run("mkdir", 1.0, &|client| fs::create_dir(client.directory()).expect("mkdir"));
    run("create", files, &|client| client.each(|path| drop(File::create_new(path).expect("create"))));
    run("stat, known", files, &|client| client.each(stat));
    run("stat, first", files, &|client| {
        let found = client.root.join("found");
        (0..FILES).for_each(|i| stat(found.join(format!("{}-{i}", client.number))));
    });
    run("open+close", files, &|client| client.each(|path| drop(File::open(path).expect("open"))));
    run("unlink", files, &|client| client.each(|path| fs::remove_file(path).expect("unlink")));
    run("create+write 4K", files, &|client| client.each(|path| fs::write(path, [0; 4096]).expect("write")));
    run("open+read 4K", files, &|client| {
        let found = client.root.join("found");
        let mut buf = [0; 4096];
        (0..FILES).for_each(|i| {
            let file = File::open(found.join(format!("{}-{i}", client.number))).expect("open");
            assert_eq!(file.read_at(&mut buf, 0).expect("read"), 4096);
        });
    });
    run("write 1M (MiB)", megabytes, &|client| client.large_write(0));
    run("read 1M (MiB)", megabytes, &|client| {
        let file = File::open(client.large()).expect("open");
        // SAFETY: plain system call on an open file.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        let mut buf = vec![0; 1 << 20];
        (0..LARGE_BYTES >> 20).for_each(|i| file.read_exact_at(&mut buf, i << 20).expect("read"));
    });
    run("direct write 1M (MiB)", megabytes, &|client| client.large_write(libc::O_DIRECT));
    run("direct read 1M (MiB)", megabytes, &|client| {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(client.large()).expect("open");
        let mut buf = Buf::zeroed(1 << 20);
        (0..LARGE_BYTES >> 20).for_each(|i| file.read_exact_at(&mut buf, i << 20).expect("read"));
    });
    run("direct read 4K", SMALL_IOS as f64, &|client| client.small_ios(|file, buf, at| file.read_exact_at(buf, at)));
    run("direct write 4K", SMALL_IOS as f64, &|client| client.small_ios(|file, buf, at| file.write_all_at(buf, at)));
    unpin();
    rates.retain(|(_, name, _)| *name != "mkdir");
    rates
}

/// Not `fs::metadata`, which asks for the birth time and so costs one more message on the first look.
fn stat(path: PathBuf) {
    rustix::fs::stat(path).expect("stat");
}

/// Processor time of a process so far, all its threads together.
fn processor_time(pid: u32) -> f64 {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both calls only write to the variables that they are given.
    let failed = unsafe {
        libc::clock_getcpuclockid(pid as i32, &raw mut clock) != 0 || libc::clock_gettime(clock, &raw mut time) != 0
    };
    assert!(!failed, "the processor time of process {pid}");
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// A thread that uses the mount, in a directory of its own.
struct Client {
    number: usize,
    root: PathBuf,
}

impl Client {
    fn directory(&self) -> PathBuf {
        self.root.join(format!("client{}", self.number))
    }

    fn large(&self) -> PathBuf {
        self.directory().join("large")
    }

    fn each(&self, work: impl Fn(PathBuf)) {
        let directory = self.directory();
        (0..FILES).for_each(|i| work(directory.join(format!("f{i:06}"))));
    }

    fn large_write(&self, flags: i32) {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).custom_flags(flags).open(self.large());
        let file = file.expect("open");
        let buf = Buf::zeroed(1 << 20);
        (0..LARGE_BYTES >> 20).for_each(|i| file.write_all_at(&buf, i << 20).expect("write"));
    }

    fn small_ios(&self, io: impl Fn(&File, &mut [u8], u64) -> std::io::Result<()>) {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(libc::O_DIRECT).open(self.large()).expect("open");
        let mut buf = Buf::zeroed(4096);
        let mut rng = Rng::new(self.number as u64);
        for _ in 0..SMALL_IOS {
            io(&file, &mut buf, rng.below(LARGE_BYTES / 4096) * 4096).expect("I/O");
        }
    }
}
