//! Aim: a mount whose engine thread shares the processor of its program works, and ends, as any other. Method: what can happen to a
//! mount happens while that thread has the policy `SCHED_IDLE`, which the mounts of this file choose whenever one program alone makes
//! requests.

use std::fs;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;
use rustix::thread::{CpuSet, Pid, sched_getaffinity};
use seekless_host::fuse::{statistics, sync};
use seekless_host::testing::{Need, skip};

use crate::daemon::{Daemon, Wish, uring_is_offered};

/// On a busy machine the observer may be late again and again, in which case nothing is shared.
const PATIENCE: Duration = Duration::from_secs(60);

/// The policies of sched(7), as the kernel numbers them.
const SCHED_OTHER: u32 = 0;
const SCHED_IDLE: u32 = 5;

/// A thread of a daemon.
#[derive(Debug)]
struct Thread {
    name: String,
    policy: u32,
    processors: CpuSet,
}

impl Thread {
    /// Field 41 of `stat` (proc_pid_stat(5)). `None` for a thread that has just ended.
    fn find(number: &str) -> Option<Thread> {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        let (name, fields) = stat.rsplit_once(')')?;
        let policy = fields.split_ascii_whitespace().nth(41 - 3)?.parse().ok()?;
        let processors = sched_getaffinity(Some(Pid::from_raw(number.parse().ok()?)?)).ok()?;
        Some(Thread { name: name.split_once('(')?.1.to_owned(), policy, processors })
    }

    fn all_of(daemon: &Daemon) -> Vec<Thread> {
        let numbers = fs::read_dir(format!("/proc/{}/task", daemon.pid().as_raw_nonzero())).into_iter().flatten();
        numbers.filter_map(|entry| Thread::find(entry.ok()?.file_name().to_str()?)).collect()
    }
}

fn is_sharing(daemon: &Daemon) -> bool {
    Thread::all_of(daemon).iter().any(|thread| thread.policy == SCHED_IDLE)
}

/// Makes requests until the engine thread shares a processor.
fn share(daemon: &Daemon) {
    let begun = Instant::now();
    while !is_sharing(daemon) {
        fs::write(daemon.path("request"), "x").unwrap();
        assert!(begun.elapsed() < PATIENCE, "it never shared: {:?}", Thread::all_of(daemon));
    }
}

/// A mount that shares a processor. `None`, with a message, where that cannot be.
fn sharing(wish: Wish) -> Option<Daemon> {
    let daemon = Daemon::start(&Wish { shares: true, ..wish })?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if processors < 2 {
        skip(Need::Processors, "there is one processor");
        return None;
    }
    share(&daemon);
    Some(daemon)
}

/// Requests are answered, and workers that are started in the meantime have the ordinary policy and all processors.
#[test]
fn requests_are_answered_and_workers_are_ordinary() {
    let every_byte: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 1000) as u8).collect();
    let mut workers_seen = 0;
    for backend in ["auto", "pool"] {
        for compressed in [false, true] {
            let Some(daemon) = sharing(Wish { backend, compressed, ..Wish::default() }) else { return };
            for round in 0..10 {
                let path = daemon.path(&format!("file {round}"));
                fs::write(&path, &every_byte).unwrap();
                fs::File::open(&path).unwrap().sync_all().unwrap();
                assert!(fs::read(&path).unwrap() == every_byte);
                share(&daemon);
                fs::rename(&path, daemon.path("file")).unwrap();
            }
            assert_eq!(fs::read_dir(daemon.root()).unwrap().count(), 2);
            // All but the engine thread. One that has just been started may not have got a processor yet.
            let all = sched_getaffinity(None).unwrap();
            let is_other = |thread: &Thread| thread.policy != SCHED_OTHER || thread.processors != all;
            let (mut threads, begun) = (Thread::all_of(&daemon), Instant::now());
            while threads.iter().filter(|thread| is_other(thread)).count() > 1 {
                assert!(begun.elapsed() < PATIENCE, "{threads:?}");
                std::thread::sleep(Duration::from_millis(1));
                threads = Thread::all_of(&daemon);
            }
            workers_seen += threads.iter().filter(|thread| thread.name.starts_with("seekless-cpu")).count();
            workers_seen += threads.iter().filter(|thread| thread.name.starts_with("seekless-io")).count();
        }
    }
    assert!(workers_seen > 0);
}

/// Questions about the mount, and a sync, are answered.
#[test]
fn it_can_be_asked_and_synced() {
    let Some(daemon) = sharing(Wish::default()) else { return };
    let told = statistics(&daemon.root()).unwrap().unwrap();
    let shares = told.split_once("(\"processor_shares\", ").and_then(|(_, rest)| rest.split_once(')')).unwrap().0;
    assert!(shares.parse::<u64>().unwrap() > 0, "{told}");
    share(&daemon);
    daemon.remove_mark("synced");
    sync(&daemon.root()).unwrap();
    assert!(daemon.has_mark("synced"));
}

/// However it ends, it ends as without.
#[test]
fn it_ends_like_any_other() {
    type End = fn(&Daemon);
    let ends: [(&str, End); 4] = [
        ("unmounted", |daemon| daemon.unmount()),
        ("SIGTERM", |daemon| daemon.signal(Signal::TERM)),
        ("SIGTERM with a user", |daemon| {
            let open = fs::File::open(daemon.path("request")).unwrap();
            daemon.signal(Signal::TERM);
            assert!(daemon.await_mark("closed", PATIENCE));
            drop(open);
        }),
        ("by force", |daemon| {
            // This aborts the connection, although the mount is in use, and stays.
            let open = fs::File::open(daemon.path("request")).unwrap();
            assert_eq!(unmount(daemon.root(), UnmountFlags::FORCE), Err(Errno::BUSY));
            drop(open);
            unmount(daemon.root(), UnmountFlags::DETACH).unwrap();
        }),
    ];
    for backend in ["auto", "pool"] {
        for (how, end) in &ends {
            let Some(mut daemon) = sharing(Wish { backend, ..Wish::default() }) else { return };
            end(&daemon);
            let status = daemon.wait(PATIENCE).expect("the daemon ends");
            assert!(status.success(), "{how}, {backend}: {status}");
            assert!(daemon.has_mark("closed") && !daemon.is_mounted(), "{how}, {backend}");
        }
    }
}

/// With requests over io_uring nothing is shared.
#[test]
fn the_uring_transport_shares_nothing() {
    if !uring_is_offered() {
        return;
    }
    let Some(mut daemon) = Daemon::start(&Wish { shares: true, transport: "uring", ..Wish::default() }) else { return };
    for round in 0..1_000 {
        fs::write(daemon.path("file"), round.to_string()).unwrap();
        assert_eq!(fs::read_to_string(daemon.path("file")).unwrap(), round.to_string());
    }
    assert!(!is_sharing(&daemon) && !statistics(&daemon.root()).unwrap().unwrap().contains("processor_shares"));
    daemon.signal(Signal::TERM);
    assert!(daemon.wait(PATIENCE).is_some_and(|status| status.success()));
}
