//! `seekless mount --supervise`: a process that mounts again when the daemon has died.
//!
//! The supervisor touches neither the volume nor the mount: whatever makes a daemon die does not reach it. Each daemon is
//! a child of its own, which opens the volume as any mount does, and so recovers it.
//!
//! Invariants
//!   S1  Only a mount whose daemon is gone is replaced. One that was unmounted stays unmounted, whatever the daemon's end, and whenever
//!       that was.
//!   S2  The dead mount covers its directory until the new one is there (of a block device, and before Linux 6.5: until the
//!       volume is recovered), so that no program writes into what lies below it.
//!   S3  A mount that does not come back is said in the log.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use super::daemon::{self, Report, Side, Waiting};
use super::exit::FAILED;
use super::{Done, Failure};
use crate::fuse;
use crate::mount_table::{self, MountInfo};
use crate::reactor::Signals;

/// A daemon that dies so often within [`WITHIN`] is not started again: something is wrong that a restart does not mend.
const DEATHS_MAX: usize = 3;
const WITHIN: Duration = Duration::from_secs(60);

/// How often to look without a signal: those of several ends come as one.
const LOOK: Duration = Duration::from_secs(1);

/// Between a death and the next start.
const PAUSE: Duration = Duration::from_secs(1);

/// Which daemon of a supervisor this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Life {
    First,
    /// One before it has died, and its mount is still there.
    Later,
}

/// Starts the supervisor, and returns when the first daemon works. `serve` is called in each daemon's process, with the mount point
/// where that can be another one than the user gave. With `stays`, each is
/// in the directory where this process is, which that keeps busy.
pub(super) fn run(
    mount_point: &Path,
    stays: bool,
    limit: Option<Duration>,
    serve: impl FnOnce(Report, Life, Option<PathBuf>) -> Done,
) -> Done {
    let failed = |error: std::io::Error| Failure::new(error).code(FAILED);
    // The directory and not its name, which it may lose.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let here = stays.then(|| rustix::fs::open(".", flags, Mode::empty())).transpose();
    let here = here.map_err(|error| failed(error.into()))?;
    let first = std::fs::canonicalize(mount_point).or_else(|_| std::path::absolute(mount_point)).map_err(failed)?;
    let covered = Some(&first).filter(|first| !is_ours(first)).and_then(|first| identity(first));
    let (given, last, mount) = (mount_point.to_owned(), RefCell::new(first), Cell::new(None));
    let mount = SupervisedMount { here, given, covered, last, mount };
    match daemon::split()? {
        Side::Parent(waiting) => waiting.outcome_within(limit),
        Side::Child(report) => supervise(mount, report, serve),
    }
}

/// Where it is mounted.
struct SupervisedMount {
    /// Where the user was, if a path is relative to that.
    here: Option<OwnedFd>,
    given: PathBuf,
    /// The directory, or the file, below the mount.
    covered: Option<(u64, u64)>,
    /// The name without links that it had when it was last looked for.
    last: RefCell<PathBuf>,
    /// Number of the last mount in the mount table, which has its name of now.
    mount: Cell<Option<u64>>,
}

impl SupervisedMount {
    /// Its name, which is another one when a directory above has been renamed. The one by its number comes first: at the name that the
    /// user gave there may be another directory by now.
    fn now(&self) -> PathBuf {
        let is_it = |mount: &MountInfo| mount.is_ours() && self.mount.get() == Some(mount.id);
        let last = self.last.borrow().clone();
        let by_number = mount_table::read().into_iter().find(is_it).map(|mount| mount.mount_point);
        // The number is used again, for any mount, when this one is unmounted.
        let by_number = by_number.filter(|found| *found == last || !self.is_bare(&last));
        let found = by_number.or_else(|| {
            let places = [Some(last.clone()), self.where_given()];
            places.into_iter().flatten().find(|place| is_ours(place))
        });
        let now = found.unwrap_or(last);
        self.last.replace(now.clone());
        now
    }

    /// Nothing is mounted any more on the directory, which has this name.
    fn is_bare(&self, place: &Path) -> bool {
        self.covered.is_some() && mount_table::find(place).is_none() && identity(place) == self.covered
    }

    /// The name that a relative one has from where the user was.
    fn where_given(&self) -> Option<PathBuf> {
        let here = self.here.as_ref().filter(|_| self.given.is_relative())?;
        std::fs::canonicalize(Path::new(&format!("/proc/self/fd/{}", here.as_raw_fd())).join(&self.given)).ok()
    }

    /// It is mounted.
    fn remember(&self) {
        self.mount.set(None);
        self.mount.set(mount_table::find(&self.now()).filter(MountInfo::is_ours).map(|mount| mount.id));
    }

    fn is_dead(&self) -> bool {
        fuse::is_dead(&self.now())
    }
}

/// The topmost mount there is one of this program.
fn is_ours(place: &Path) -> bool {
    mount_table::find(place).is_some_and(|mount| mount.is_ours())
}

fn identity(place: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(place).ok().map(|found| (found.dev(), found.ino()))
}

fn supervise(
    mount: SupervisedMount,
    report: Report,
    serve: impl FnOnce(Report, Life, Option<PathBuf>) -> Done,
) -> Done {
    let mut report = Some(report);
    match lives(mount, &mut report, serve) {
        Ok(code) => Ok(code),
        Err(failure) => {
            match report.take() {
                Some(report) => report.failed(&failure),
                None => log::error!("{}", failure.text),
            }
            Ok(failure.code)
        }
    }
}

fn lives(
    mount: SupervisedMount,
    report: &mut Option<Report>,
    serve: impl FnOnce(Report, Life, Option<PathBuf>) -> Done,
) -> Done {
    let signals = Signals::new(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGCHLD])
        .map_err(|error| Failure::new(format!("cannot receive signals: {error}")).code(FAILED))?;
    let mut deaths: VecDeque<Instant> = VecDeque::new();
    loop {
        let life = if report.is_some() { Life::First } else { Life::Later };
        let waiting = match daemon::split()? {
            Side::Parent(waiting) => waiting,
            Side::Child(its_report) => {
                drop(signals);
                // The pipe of the process that the user started belongs to the supervisor.
                drop(report.take());
                let place = (life == Life::Later).then(|| mount.now());
                // Paths of the stack line are relative to where the user was; anywhere else they may name something else.
                if let Some(here) = mount.here.filter(|_| life == Life::Later)
                    && let Err(error) = rustix::process::fchdir(here)
                {
                    let text = format!("cannot return to the directory from which this was mounted: {error}");
                    its_report.failed(&Failure::new(text).code(FAILED));
                    return Ok(FAILED);
                }
                return serve(its_report, life, place);
            }
        };
        let (how, was_asked) = match serve_once(waiting, report, &signals, &mount)? {
            Ended::Over(code) => return Ok(code),
            Ended::Died { how, is_asked } => (how, is_asked),
        };
        let found = mount.now();
        let place = found.display();
        if was_asked {
            log::warn!("the daemon of {place} {how} when it was asked to end. Synced data is there");
            return Ok(unmounted(&mount));
        }
        let now = Instant::now();
        deaths.push_back(now);
        deaths.retain(|death| now - *death < WITHIN);
        if deaths.len() >= DEATHS_MAX {
            let text = format!(
                "the daemon of {place} {how}; this was the {DEATHS_MAX}rd time within {} s, so it stays down. Find out \
                 why before you mount it again; until then {place} gives errors, and `seekless umount --lazy` removes it",
                WITHIN.as_secs()
            );
            return Err(Failure::new(text).code(FAILED));
        }
        log::warn!(
            "the daemon of {place} {how}; it is mounted again. What was synced is there; programs with open files get \
             errors, and have to open them again"
        );
        if pause(&signals) && mount.is_dead() {
            return Ok(unmounted(&mount));
        }
        if !mount.is_dead() {
            log::info!("{place} was unmounted");
            return Ok(FAILED);
        }
    }
}

/// Takes a dead mount away, as a signal has asked for; the exit code. Its daemon is gone, so there is nothing to wait for.
fn unmounted(mount: &SupervisedMount) -> u8 {
    let found = mount.now();
    let place = found.display();
    match fuse::umount(&found, true, PAUSE, |_| {}) {
        Err(error) => log::error!("asked to end, but {place} stays mounted without a daemon: {error}"),
        Ok(()) => log::info!("asked to end before {place} was mounted again, so it is unmounted"),
    }
    FAILED
}

/// How one daemon ended.
enum Ended {
    /// Nothing is left to be mounted again.
    Over(u8),
    /// Its mount is there without a daemon; how that came about, and whether a signal had asked for the end.
    Died { how: String, is_asked: bool },
}

/// Waits for a daemon to work, and to end. Signals for the supervisor are for the daemon.
fn serve_once(
    waiting: Waiting,
    report: &mut Option<Report>,
    signals: &Signals,
    mount: &SupervisedMount,
) -> Result<Ended, Failure> {
    let child = waiting.child();
    let mut asked = Asked::default();
    // Recovery can take long, and can be ended, too.
    while !waiting.has_reported() {
        if let Some(signal) = asked.take(signals) {
            let _ = rustix::process::kill_process(child, signal);
        }
        signals.wait_beside(waiting.pipe(), LOOK);
    }
    let outcome = waiting.outcome();
    if outcome.is_ok() {
        mount.remember();
    }
    match (outcome, report.take()) {
        (Ok(_), Some(report)) => report.ready(),
        (Ok(_), None) => log::warn!("mounted again on {}", mount.now().display()),
        // The first one: the user sees it.
        (Err(failure), Some(first)) => {
            *report = Some(first);
            return Err(failure);
        }
        (Err(failure), None) => {
            end_of(child, signals, &mut asked);
            let how = format!("could not be started again ({})", failure.text);
            if mount.is_dead() {
                return Ok(Ended::Died { how, is_asked: asked.to_end });
            }
            log::error!("the daemon of {} {how}; nothing is mounted there", mount.now().display());
            return Ok(Ended::Over(failure.code));
        }
    }
    let status = end_of(child, signals, &mut asked);
    let code = status.and_then(WaitStatus::exit_status).map_or(FAILED, |code| u8::try_from(code).unwrap_or(FAILED));
    Ok(match mount.is_dead() {
        true => Ended::Died {
            how: format!("died{}", status.map(daemon::describe).unwrap_or_default()),
            is_asked: asked.to_end,
        },
        false => Ended::Over(code),
    })
}

/// Waits for the end of a process, and passes signals on to it. There is no status when it was collected before, as one that ended
/// without a message.
fn end_of(child: Pid, signals: &Signals, asked: &mut Asked) -> Option<WaitStatus> {
    loop {
        let ended = match rustix::process::waitpid(Some(child), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => Some(Some(status)),
            Err(Errno::CHILD) => Some(None),
            Ok(None) | Err(_) => None,
        };
        // Also of one that has ended: if it was asked to, it has not just died.
        let end = asked.take(signals);
        if let Some(status) = ended {
            return status;
        }
        let counters = std::mem::take(&mut asked.for_counters).then_some(Signal::USR1);
        for signal in [end, counters].into_iter().flatten() {
            // It may have ended in this moment.
            let _ = rustix::process::kill_process(child, signal);
        }
        signals.wait(LOOK);
    }
}

/// What signals have asked for.
#[derive(Default)]
struct Asked {
    to_end: bool,
    /// Not passed on yet: a daemon that does not work yet might die of it.
    for_counters: bool,
}

impl Asked {
    /// Takes the pending signals, and returns the last one that asks for the end.
    fn take(&mut self, signals: &Signals) -> Option<Signal> {
        let mut end = None;
        while let Some(signal) = signals.pending() {
            match signal {
                libc::SIGINT => end = Some(Signal::INT),
                libc::SIGTERM => end = Some(Signal::TERM),
                libc::SIGHUP => end = Some(Signal::HUP),
                libc::SIGUSR1 => self.for_counters = true,
                _ => {}
            }
        }
        self.to_end |= end.is_some();
        end
    }
}

/// Lets [`PAUSE`] pass. True, and at once, when a signal asks this process to end.
fn pause(signals: &Signals) -> bool {
    let end = Instant::now() + PAUSE;
    loop {
        while let Some(signal) = signals.pending() {
            if matches!(signal, libc::SIGINT | libc::SIGTERM | libc::SIGHUP) {
                return true;
            }
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        signals.wait(left);
    }
}
