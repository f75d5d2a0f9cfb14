//! A file with a daemon's process number while it serves.

use std::cell::RefCell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::Pid;
use seekless_lab::output::{self as files, Replace, Wish};

use super::{Failure, output};
use crate::fuse::{DaemonState, started};

/// A file that holds the number of this process. An existing one is replaced when its process is gone.
pub(super) struct PidFile {
    path: PathBuf,
    /// The written one, locked for as long as this process lives.
    written: RefCell<Option<File>>,
}

const WISH: fn() -> Wish = || Wish::new(Replace::Own(is_stale)).permissions(0o644);

impl PidFile {
    /// Checks that the file can be written later. The path is made absolute, because the daemon leaves its directory. Where it
    /// names a daemon whose mount is gone, this waits for its end, as a mount does for its store.
    pub(super) fn new(path: &Path) -> Result<PidFile, Failure> {
        let absolute = std::path::absolute(path);
        let absolute = absolute.map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        wait_for_an_ending_daemon(&absolute);
        files::check(&absolute, &WISH())?;
        Ok(PidFile { path: absolute, written: RefCell::default() })
    }

    /// A program that waits for the file never sees a partial one.
    pub(super) fn write(&self) -> Result<(), Failure> {
        files::write(&self.path, format!("{}\n", std::process::id()).as_bytes(), &WISH())?;
        let written = File::open(&self.path).ok();
        // Where that fails, its times are what others have.
        *self.written.borrow_mut() =
            written.filter(|file| rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).is_ok());
        Ok(())
    }

    /// Removes the file, unless another process has replaced it. If that fails, readers find that there is no such
    /// process.
    pub(super) fn remove(&self) {
        let is_ours = std::fs::read_to_string(&self.path).is_ok_and(|text| number(&text) == Some(std::process::id()));
        if is_ours {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// For a minute at most.
fn wait_for_an_ending_daemon(path: &Path) {
    let begun = Instant::now();
    let mut told = false;
    let mut last_ending = begun;
    // When it ends, it removes the file before it is no longer known as one that is ending.
    while let Some(pid) = named_process(path) {
        match DaemonState::of(pid) {
            DaemonState::Serving => return,
            DaemonState::Unknown if last_ending.elapsed() >= DOUBT => return,
            DaemonState::Unknown => {}
            DaemonState::Ending => last_ending = Instant::now(),
        }
        if begun.elapsed() >= PATIENCE {
            return;
        }
        if !told && begun.elapsed() >= TELL_AFTER {
            let (place, seconds) = (path.display(), PATIENCE.as_secs());
            output::note(&format!(
                "{place} names a daemon that was unmounted, but is still writing or serving programs: waiting for it, {seconds} s at most"
            ));
            told = true;
        }
        std::thread::sleep(PAUSE);
    }
}

const PATIENCE: Duration = Duration::from_secs(60);
/// For this long a process of which nothing is known may be one that is ending.
const DOUBT: Duration = Duration::from_millis(500);
const TELL_AFTER: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);

/// The process that a pid file names, while it runs. A special file is not opened.
fn named_process(path: &Path) -> Option<u32> {
    if !path.symlink_metadata().ok()?.is_file() {
        return None;
    }
    let file = File::open(path).ok()?;
    number(&String::from_utf8_lossy(&files::beginning(&file, 64).ok()?)).filter(|&pid| is_named(pid, &file))
}

fn number(text: &str) -> Option<u32> {
    text.trim().parse().ok()
}

/// Accepts a pid file whose process is gone, and an empty file.
fn is_stale(file: &File) -> Result<(), String> {
    // A number and an end of line; anything longer is another kind of file.
    let text = files::beginning(file, 64)?;
    let text = String::from_utf8_lossy(&text);
    match (text.trim().is_empty(), number(&text)) {
        (true, _) => Ok(()),
        (false, Some(pid)) if is_named(pid, file) => Err(format!(", and process {pid}, which it names, is running")),
        (false, Some(_)) => Ok(()),
        (false, None) => Err(" and contains no process number; remove it, or name another file".to_owned()),
    }
}

/// True when process `pid`, whose number is in `file`, is running, and can be the one that is meant: the number may be from before
/// a reboot, and another process has it now, which has begun after the file was written. That is not asked where a process has the
/// file locked, as its daemon has: a clock that was set forward makes processes seem younger.
fn is_named(pid: u32, file: &File) -> bool {
    /// Times of files are those of the last tick, or of the last second.
    const SLACK: Duration = Duration::from_secs(2);
    let written = file.metadata().and_then(|metadata| metadata.modified()).ok();
    let is_younger = || started(pid).zip(written).is_some_and(|(started, written)| started > written + SLACK);
    is_running(pid) && (is_locked(file) || !is_younger())
}

/// Several may ask at once, and do not take each other for the daemon.
fn is_locked(file: &File) -> bool {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockShared) {
        Err(error) => error == Errno::WOULDBLOCK,
        Ok(()) => {
            let _ = rustix::fs::flock(file, FlockOperation::Unlock);
            false
        }
    }
}

fn is_running(number: u32) -> bool {
    if number == std::process::id() {
        // What has been written before is of an earlier process with this number, as the first one of a container has it.
        return false;
    }
    let Some(pid) = i32::try_from(number).ok().and_then(Pid::from_raw) else { return false };
    if rustix::process::test_kill_process(pid) == Err(Errno::SRCH) {
        return false;
    }
    // A zombie: a process that has ended and that its parent has not collected: "PID (NAME) STATE ..." (proc(5)).
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    !matches!(state, Some('Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of a dead process is replaced, even before its parent has collected it; all others stay.
    #[test]
    fn only_stale_files_are_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pid");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        // Until it has ended; it is not collected, so that its number stays taken.
        while is_running(child.id()) {
            std::thread::yield_now();
        }
        for stale in [format!("{}\n", child.id()), String::new(), "\n".into(), "4194305\n".into(), "99999999999".into()]
            .into_iter()
            .chain([format!("{}\n", std::process::id())])
        {
            std::fs::write(&path, &stale).unwrap();
            let result = PidFile::new(&path).map(|file| file.write());
            if stale.starts_with("99999999999") {
                assert!(result.is_err(), "no process has this number");
                continue;
            }
            result.unwrap().unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        }
        child.wait().unwrap();
        for other in ["1\n", "1", "a letter", "12 13", &"1".repeat(100)] {
            std::fs::write(&path, other).unwrap();
            assert!(PidFile::new(&path).is_err(), "{other:?}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), other);
        }
        assert!(PidFile::new(Path::new("/dev/null")).is_err());
    }

    /// At the end a file is removed only if it is still this process's.
    #[test]
    fn only_its_own_file_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let file = PidFile::new(&directory.path().join("pid")).unwrap();
        file.write().unwrap();
        std::fs::write(&file.path, "1\n").unwrap();
        file.remove();
        assert!(file.path.exists());
        std::fs::write(&file.path, format!("{}\n", std::process::id())).unwrap();
        file.remove();
        assert!(!file.path.exists());
    }

    /// After a reboot another process may have the number. It has begun after the file was written.
    #[test]
    fn a_number_that_another_process_got_is_stale() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pid");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let now = std::time::SystemTime::now();
        for (seconds_ago, is_replaced) in [(0, false), (86_400, true)] {
            std::fs::write(&path, format!("{}\n", child.id())).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(now - Duration::from_secs(seconds_ago)).unwrap();
            let written = PidFile::new(&path).and_then(|file| file.write());
            assert_eq!(written.is_ok(), is_replaced, "written {seconds_ago} s ago");
        }
        // Its daemon has it locked, and the clock was set forward.
        let daemon = PidFile::new(&path).unwrap();
        daemon.write().unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(0).unwrap();
        std::fs::write(&path, format!("{}\n", child.id())).unwrap();
        file.set_modified(now - Duration::from_secs(86_400)).unwrap();
        assert!(PidFile::new(&path).is_err());
        drop(daemon);
        assert!(PidFile::new(&path).is_ok());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
