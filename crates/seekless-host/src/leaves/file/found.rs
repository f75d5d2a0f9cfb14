//! What is found when the file below a store is looked for.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

/// The device and inode of a file, as stat(2) has them.
pub(super) type Identity = (u64, u64);

/// What is below a file or a block device.
pub(super) enum Below {
    /// Nothing that others could reach by another name, as far as is known.
    Nothing,
    File(OwnedFd),
    /// This one, of which the place is not known.
    Elsewhere(Identity),
    /// A file that cannot be opened from here.
    Hidden(Hidden),
}

/// Of a file that cannot be opened.
#[derive(Debug)]
pub(super) struct Hidden {
    pub(super) what: String,
    pub(super) hint: String,
    pub(super) identity: Option<Identity>,
    /// A daemon has not answered in time. What it shows may be anything.
    pub(super) is_silent: bool,
}

/// Until when daemons are waited for: one moment for all steps of a look, however many of them do not answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Instant);

/// How long a look waits for daemons.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

impl Deadline {
    pub(super) fn of_look() -> Deadline {
        Deadline(Instant::now() + PATIENCE)
    }
}

/// Which file it is.
pub(super) fn identity(file: &OwnedFd) -> Option<Identity> {
    rustix::fs::fstat(file).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

/// Opens `path` for a lock.
pub(super) fn opened(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
}

/// The result of `work`, which may wait for a daemon, if there is one before the deadline. Otherwise its thread is left behind: it ends when the daemon
/// answers or dies. Where no thread can be started, `work` is done here.
pub(super) fn in_time<T: Send + 'static>(deadline: Deadline, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    let work = Arc::new(Mutex::new(Some(work)));
    let take = |work: &Mutex<Option<_>>| work.lock().unwrap_or_else(PoisonError::into_inner).take();
    let theirs = work.clone();
    let started = std::thread::Builder::new().spawn(move || take(&theirs).map(|work| sender.send(work())));
    match started {
        Ok(_) => receiver.recv_timeout(deadline.0.saturating_duration_since(Instant::now())).ok(),
        Err(_) => take(&work).map(|work| work()),
    }
}
