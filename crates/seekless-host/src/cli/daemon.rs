//! Going into the background: the parent returns when the child reports that it works, or why it does not.

use std::fs::OpenOptions;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use super::exit::FAILED;
use super::{Done, Failure, logging};

/// Which process this is, after [`split`].
pub(super) enum Side {
    /// The one that the user started.
    Parent(Waiting),
    /// The one that becomes the daemon.
    Child(Report),
}

/// The parent's end.
pub(super) struct Waiting {
    child: Pid,
    pipe: PipeReader,
}

/// The child's end. The pipe carries an exit code in one byte, and a text.
pub(super) struct Report {
    pipe: PipeWriter,
    parent: Pid,
}

/// Forks. There must be no threads yet: the child would have only one of them, and locks of the others.
///
/// # Errors
/// When the system has no more processes or files.
pub(super) fn split() -> Result<Side, Failure> {
    let (reader, writer) = std::io::pipe().map_err(|error| Failure::new(error).code(FAILED))?;
    let parent = rustix::process::getpid();
    // SAFETY: the process has one thread, so that the child may do everything that the parent may.
    match unsafe { libc::fork() } {
        -1 => Err(Failure::new(format!("cannot start a process: {}", std::io::Error::last_os_error())).code(FAILED)),
        0 => {
            drop(reader);
            // A session of its own, so that it gets no signals from the terminal. This fails only for session leaders,
            // and a child is not one.
            let _ = rustix::process::setsid();
            Ok(Side::Child(Report { pipe: writer, parent }))
        }
        child => {
            drop(writer);
            match Pid::from_raw(child) {
                Some(child) => Ok(Side::Parent(Waiting { child, pipe: reader })),
                None => unreachable!("fork returns the child's number to the parent"),
            }
        }
    }
}

impl Waiting {
    pub(super) fn child(&self) -> Pid {
        self.child
    }

    /// Where the report comes from.
    pub(super) fn pipe(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// There is a report, or there will be none.
    pub(super) fn has_reported(&self) -> bool {
        let now = Timespec::try_from(Duration::ZERO).unwrap_or_default();
        // What cannot be asked is waited for.
        !matches!(rustix::event::poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], Some(&now)), Ok(0))
    }

    /// Waits for the child's report, which becomes this process's own.
    pub(super) fn outcome(mut self) -> Done {
        let mut report = Vec::new();
        let _ = self.pipe.read_to_end(&mut report);
        match report.split_first() {
            Some((0, _)) => Ok(0),
            Some((&code, text)) => Err(Failure::new(String::from_utf8_lossy(text)).code(code)),
            None => {
                Err(Failure::new(format!("the daemon ended without a message{}", self.how_it_ended())).code(FAILED))
            }
        }
    }

    /// The same for `limit` at most. Then the child ends.
    pub(super) fn outcome_within(self, limit: Option<Duration>) -> Done {
        let Some(limit) = limit else { return self.outcome() };
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).unwrap_or_default();
            match rustix::event::poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], Some(&left)) {
                Err(Errno::INTR) => {}
                Ok(0) => break,
                _ => return self.outcome(),
            }
        }
        // A daemon that reports from now on fails in that, and ends in order. One that has just reported needs the signal.
        drop(self.pipe);
        let _ = rustix::process::kill_process(self.child, Signal::TERM);
        Err(Failure::new(format!("the mount did not work within {} s, so its daemon ends", limit.as_secs()))
            .code(FAILED))
    }

    fn how_it_ended(&self) -> String {
        match rustix::process::waitpid(Some(self.child), WaitOptions::empty()) {
            Ok(Some((_, status))) => describe(status),
            _ => String::new(),
        }
    }
}

/// How a process ended, in parentheses behind a space.
pub(super) fn describe(status: WaitStatus) -> String {
    match (status.terminating_signal(), status.exit_status()) {
        (Some(signal), _) => format!(" (signal {signal})"),
        (None, Some(code)) => format!(" (exit code {code})"),
        (None, None) => String::new(),
    }
}

impl Report {
    /// From here on this process ends when its parent does: a command that was ended while it waited does not come into effect
    /// later, when its user counts on that it has not. Nothing is lost, as with any other kill.
    pub(super) fn end_with_parent(&self) {
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        // In a process namespace that begins with this process, the parent has no number.
        if rustix::process::getppid().is_some_and(|parent| parent != self.parent) {
            let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
        }
    }

    /// From here on only [`ready`](Self::ready) looks at the parent: an end in between would leave a mount without a daemon.
    pub(super) fn outlive_parent(&self) {
        let _ = rustix::process::set_parent_process_death_signal(None);
    }

    /// Reports that the daemon works, and leaves the directory and the terminal. When nothing waits for the report any more, the daemon
    /// gets the signal that ends it in order.
    pub(super) fn ready(mut self) {
        self.outlive_parent();
        // The daemon keeps no directory busy; every path that is still needed is absolute or open.
        let _ = rustix::process::chdir("/");
        logging::leave_terminal();
        if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdin(&null);
            let _ = rustix::stdio::dup2_stdout(&null);
            let _ = rustix::stdio::dup2_stderr(&null);
        }
        if self.pipe.write_all(&[0]).is_err() {
            log::warn!("the command that started this daemon ended before the mount worked, so the daemon ends, too");
            let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::TERM);
        }
    }

    /// Reports why there is no daemon.
    pub(super) fn failed(mut self, failure: &Failure) {
        let mut report = vec![failure.code.max(1)];
        report.extend_from_slice(failure.text.as_bytes());
        let _ = self.pipe.write_all(&report);
    }
}
