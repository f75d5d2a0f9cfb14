//! Aim: a host directory gives the model's answers, never leads out of itself, and keeps no more files open than
//! allowed. Method: temporary directories, as root and as another user; tests that need their own mounts, users or
//! limits run on their own thread or process.

mod appends;
mod compare;
mod escape;
mod inodes;
mod late_errors;
mod listing;
mod lists;
mod owners;
mod rights;
mod writers;

use std::path::PathBuf;

use seekless::fs::client::Client;
use seekless::rt::Executor;

use super::*;
use crate::reactor::ReactorOptions;
use crate::testing::{Need, skip};

/// A host directory in a temporary directory.
pub(super) struct Bench {
    pub(super) rt: Rt,
    pub(super) reactor: Reactor,
    /// The same directory, by its path.
    pub(super) path: PathBuf,
    pub(super) dir: Rc<HostDir>,
    pub(super) client: Client,
}

/// Ways to keep inodes, all of which must give the same answers.
pub(super) const WAYS: [HostDirOptions; 3] = [way(1000, true), way(1, true), way(1, false)];

const fn way(open_inodes_max: usize, file_handles: bool) -> HostDirOptions {
    HostDirOptions { submounts: false, open_inodes_max, file_handles, alone: false, read_only: false }
}

/// Runs `body` over `path`.
pub(super) fn run_in(path: PathBuf, options: HostDirOptions, body: impl AsyncFnOnce(Bench)) {
    let reactor = Reactor::new(ReactorOptions::default()).unwrap();
    let executor: Executor = reactor.executor();
    let rt = executor.rt().clone();
    executor
        .block_on(async {
            let dir = Rc::new(HostDir::open(&rt, &reactor, &path, options).unwrap());
            let client = Client::new(dir.clone());
            body(Bench { rt, reactor: reactor.clone(), path, dir: dir.clone(), client }).await;
            let counters = dir.counters();
            let count = |name| counters.iter().find(|(other, _)| *other == name).unwrap().1;
            assert_eq!((count("inodes_in_use"), count("handles")), (0, 0), "everything was given back");
            dir.close().await.unwrap();
        })
        .unwrap();
}

/// Runs `body` over an empty directory.
pub(super) fn run(options: HostDirOptions, body: impl AsyncFnOnce(Bench)) {
    let directory = tempfile::tempdir().unwrap();
    // Not at the very top, so that there is something to escape to.
    let path = directory.path().join("root");
    std::fs::create_dir(&path).unwrap();
    run_in(path, options, body);
}

/// Runs `body` with every way of keeping inodes.
pub(super) fn run_all_ways(body: impl AsyncFn(Bench)) {
    for options in WAYS {
        run(options, &body);
    }
}

/// True for root with all privileges; prints a note otherwise.
pub(super) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root() && Owner::find_out().can_act_for_others();
    if !root {
        skip(Need::Root, "it needs root with all rights");
    }
    root
}

/// Runs `body` on its own thread, which may change its credentials and mounts.
pub(super) fn on_own_thread(body: impl FnOnce() + Send + 'static) {
    let result = std::thread::spawn(body).join();
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

/// Makes the calling thread, and threads that it starts, an ordinary user's.
pub(super) fn become_user(uid: u32, gid: u32) {
    let (uid, gid) = (u64::from(uid), u64::from(gid));
    // SAFETY: raw calls, unlike those of the C library, change the calling thread alone, and touch no memory.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_setgroups, 0, 0), 0);
        assert_eq!(libc::syscall(libc::SYS_setresgid, gid, gid, gid), 0);
        assert_eq!(libc::syscall(libc::SYS_setresuid, uid, uid, uid), 0);
    }
}

pub(super) const FILE: NewNode = NewNode { permissions: 0o644, umask: 0, uid: 0, gid: 0 };
