//! The journal of a folder of results: a line for each measured round of a point, which any number of runs append to at the
//! same time.
//!
//! Invariants
//!   J1  A line is never changed and never removed. What a killed run has left of a line is removed by the next one.
//!   J2  At most one run holds the claim on a name. The system drops the claims of a process that ends, however it ends, unless
//!       one that it forked still has the journal open; a run that ends without being killed drops them itself.
//!   J3  Lines are appended, and other files of the folder written, by one run at a time.
//!   J4  A line whose bytes have changed since it was written, on its way from another machine for example, is an error. Each line
//!       ends with the digest of what is before it; those of builds that wrote none are taken as they are.
//!
//! Claims are locks on single bytes far behind the end of the file ("open file description locks", fcntl(2)), so that a claim
//! needs no file of its own that a kill would leave behind, and a run can hold as many as there are points.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::hash::Hasher;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

use super::results_error::{ResultsError, failed};
use super::rounds::Round;

/// Asked while a run waits for another one that writes to the same folder, which may be stopped (Ctrl-Z): `Break` ends the wait with
/// [`ResultsError::Interrupted`].
pub type WhileWaiting<'a> = &'a dyn Fn() -> ControlFlow<()>;

/// Waits for as long as it takes.
pub fn patiently() -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Points by key.
pub(super) type Points = BTreeMap<String, Measured>;

/// What is there of a point.
#[derive(Clone, PartialEq, Default, Debug)]
pub(super) struct Measured {
    pub rounds: Vec<Round>,
    /// The one of the program: see [`Line::program`]. It is the same in all rounds, because keys of other programs differ.
    pub program: String,
}

fn keep(points: &mut Points, Line { key, program, measures }: Line) {
    let measured = points.entry(key).or_default();
    measured.rounds.push(measures);
    measured.program = program;
}

/// An open journal.
pub(super) struct Journal {
    file: File,
    path: PathBuf,
    /// Bytes that have been read: whole lines.
    read: u64,
    /// The one that opened it, whose claims they are.
    pub(super) process: u32,
}

/// A line.
#[derive(Serialize, Deserialize)]
pub(super) struct Line {
    pub key: String,
    /// Beginning of the digest of the program that measured, to tell builds apart.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub program: String,
    pub measures: Round,
}

/// How each line begins.
const LINE_START: &[u8] = b"{\"key\":";
/// How it goes on before its digest, of sixteen digits, and ends.
const SUM_START: &str = ",\"sum\":\"";
const SUM_END: &str = "\"}";

impl Line {
    fn to_text(&self) -> String {
        let mut text = serde_json::json!(self).to_string();
        // The end of the object, which the digest moves back.
        text.pop();
        let sum = hash(text.as_bytes());
        format!("{text}{SUM_START}{sum:016x}{SUM_END}\n")
    }
}

/// Whether a line has the digest of what is before it, or none at all (J4).
fn has_its_sum(line: &[u8]) -> bool {
    let Some(before) = line.len().checked_sub(SUM_START.len() + 16 + SUM_END.len()) else { return true };
    let (text, end) = line.split_at(before);
    let Some(sum) = end.strip_prefix(SUM_START.as_bytes()) else { return true };
    *sum == *format!("{:016x}{SUM_END}", hash(text)).as_bytes()
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    hasher.finish()
}

impl Journal {
    /// Opens it, making it if necessary, and reads its points. A line that a kill left incomplete is removed.
    ///
    /// # Errors
    /// When it cannot be written, or is something else, and when the wait for another run was ended.
    pub(super) fn open(path: &Path, waiting: WhileWaiting<'_>) -> Result<(Journal, Points), ResultsError> {
        if path.symlink_metadata().is_ok_and(|metadata| !metadata.is_file()) {
            return Err(content(path, "this is no regular file; name another folder for the results"));
        }
        let opened = OpenOptions::new().read(true).append(true).create(true).open(path);
        let file = opened.map_err(failed("open", path))?;
        let mut journal = Journal { file, path: path.to_owned(), read: 0, process: std::process::id() };
        let mut points = Points::new();
        journal.alone(Turn::Append, waiting, |journal| journal.catch_up(&mut points, Rest::IsTorn))?;
        Ok((journal, points))
    }

    /// Adds to `points` what others have appended.
    ///
    /// # Errors
    /// When the file cannot be read, or another program has changed it.
    pub(super) fn refresh(&mut self, points: &mut Points) -> Result<(), ResultsError> {
        self.catch_up(points, Rest::IsBeingWritten)
    }

    /// Appends a line, after adding to `points` those of others before it.
    ///
    /// # Errors
    /// When the file cannot be written, and when the wait for another run was ended: nothing is appended then.
    pub(super) fn append(
        &mut self,
        line: Line,
        points: &mut Points,
        waiting: WhileWaiting<'_>,
    ) -> Result<(), ResultsError> {
        self.alone(Turn::Append, waiting, |journal| {
            journal.catch_up(points, Rest::IsTorn)?;
            let text = line.to_text();
            // A single write, so that a kill nearly always leaves a line or nothing; a partial line is detected.
            journal.file.write_all(text.as_bytes()).map_err(failed("write", &journal.path))?;
            journal.read += text.len() as u64;
            keep(points, line);
            Ok(())
        })
    }

    /// Runs `work` while no other run does so in this turn.
    ///
    /// # Errors
    /// Those of `work`, when the file system has no locks, and when the wait for another run was ended.
    pub(super) fn alone<T>(
        &mut self,
        turn: Turn,
        waiting: WhileWaiting<'_>,
        work: impl FnOnce(&mut Journal) -> Result<T, ResultsError>,
    ) -> Result<T, ResultsError> {
        self.wait_for(turn, waiting)?;
        let result = work(self);
        self.lock(turn.byte(), libc::F_UNLCK)?;
        result
    }

    /// Claims a name until it is released, or this is dropped. False when another run has it (J2).
    ///
    /// # Errors
    /// When the file system has no locks.
    pub(super) fn claim(&self, name: &str) -> Result<bool, ResultsError> {
        self.lock(byte_of(name), libc::F_WRLCK)
    }

    /// Ends a claim.
    ///
    /// # Errors
    /// When the file system has no locks.
    pub(super) fn release(&self, name: &str) -> Result<(), ResultsError> {
        self.lock(byte_of(name), libc::F_UNLCK).map(drop)
    }

    fn catch_up(&mut self, points: &mut Points, rest: Rest) -> Result<(), ResultsError> {
        let io = |action| failed(action, &self.path);
        let length = self.file.metadata().map_err(io("look at"))?.len();
        if length < self.read {
            return Err(content(&self.path, "another program has shortened it; remove the folder to begin again"));
        }
        let mut text = vec![0; usize::try_from(length - self.read).unwrap_or(usize::MAX)];
        self.file.read_exact_at(&mut text, self.read).map_err(io("read"))?;
        let whole = parse(&self.path, &text, points)?;
        self.read += whole as u64;
        if whole < text.len() && rest == Rest::IsTorn {
            check_torn(&self.path, &text[whole..], self.read)?;
            self.file.set_len(self.read).map_err(io("shorten"))?;
        }
        Ok(())
    }

    /// With another descriptor of the same locks, as a forked process has it.
    #[cfg(test)]
    pub(super) fn copied(&self) -> Journal {
        let (path, file) = (self.path.clone(), self.file.try_clone().unwrap());
        Journal { file, path, read: self.read, process: self.process }
    }

    /// Waits for a turn. Not in the system call: the program gets its signals from a descriptor, and no signal would end that.
    #[expect(clippy::disallowed_methods, reason = "processes wait for each other here, in real time")]
    fn wait_for(&self, turn: Turn, waiting: WhileWaiting<'_>) -> Result<(), ResultsError> {
        let mut pause = Duration::from_millis(1);
        while !self.lock(turn.byte(), libc::F_WRLCK)? {
            if waiting().is_break() {
                return Err(ResultsError::Interrupted { path: self.path.display().to_string() });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
        Ok(())
    }

    /// Locks or unlocks a byte. False when another run has it.
    fn lock(&self, byte: i64, kind: libc::c_int) -> Result<bool, ResultsError> {
        self.lock_range(byte, 1, kind)
    }

    /// As [`Journal::lock`], for `length` bytes; without one, for all from `byte` on.
    fn lock_range(&self, byte: i64, length: i64, kind: libc::c_int) -> Result<bool, ResultsError> {
        let range = libc::flock {
            // These constants fit: POSIX has them in a `short`.
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: byte,
            l_len: length,
            l_pid: 0,
        };
        loop {
            match fcntl(self.file.as_fd(), FcntlArg::F_OFD_SETLK(&range)) {
                Ok(_) => return Ok(true),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN | Errno::EACCES) => return Ok(false),
                Err(errno) => return Err(failed("lock", &self.path)(io::Error::from(errno))),
            }
        }
    }
}

impl Drop for Journal {
    /// The locks belong to the open file, which workers that this process forked share with it and outlive it with: closing the
    /// descriptor here would leave their claims to the last of them. What a worker drops are not its claims.
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // A file system without locks has none to drop.
            let _ = self.lock_range(0, 0, libc::F_UNLCK);
        }
    }
}

/// What one run does at a time (J3).
#[derive(Clone, Copy)]
pub(super) enum Turn {
    /// Appending lines.
    Append,
    /// Writing the files of the folder that are made from the journal.
    Finish,
}

/// Between two looks at whether a turn is free, which takes another run milliseconds.
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// Bytes of turns and claims: behind the end of any journal.
const TURNS: i64 = 1 << 61;
const CLAIMS: i64 = 1 << 62;

impl Turn {
    fn byte(self) -> i64 {
        TURNS + self as i64
    }
}

/// The byte of a claim. Two names share one by a chance of 2^-61; then one waits for the other.
fn byte_of(name: &str) -> i64 {
    CLAIMS | (hash(name.as_bytes()) >> 3) as i64
}

/// What the bytes behind the last whole line are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// What a kill has left: no other run is appending.
    IsTorn,
    /// Perhaps a line that another run is writing.
    IsBeingWritten,
}

/// Reads a journal that is not written here: of a shard, finished or not.
///
/// # Errors
/// When there is none, or it is something else.
pub(super) fn read(path: &Path) -> Result<Points, ResultsError> {
    let text = std::fs::read(path).map_err(failed("read", path))?;
    let mut points = Points::new();
    let whole = parse(path, &text, &mut points)?;
    // A kill, or a run under way, may have left part of a line.
    check_torn(path, &text[whole..], whole as u64)?;
    Ok(points)
}

/// Adds the points of whole lines; returns their length.
fn parse(path: &Path, text: &[u8], points: &mut Points) -> Result<usize, ResultsError> {
    let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    for (number, line) in text[..whole].split(|&byte| byte == b'\n').enumerate().filter(|(_, l)| !l.is_empty()) {
        let wrong = |problem: String| ResultsError::Content {
            path: format!("{}, line {}", path.display(), number + 1),
            problem,
        };
        if !has_its_sum(line) {
            let way_out = "copy the folder again, or remove this line, and its point is measured again";
            return Err(wrong(format!("this point is damaged, its digest is another; {way_out}")));
        }
        let read: Line = serde_json::from_slice(line)
            .map_err(|error| wrong(format!("this is no measured point ({error}); remove the folder to begin again")))?;
        keep(points, read);
    }
    Ok(whole)
}

/// Refuses what is no beginning of a line, and tells how to go on where points are before it. Zeros are what a power cut may leave:
/// the file has its new length, and the bytes have not reached the disk.
fn check_torn(path: &Path, torn: &[u8], before: u64) -> Result<(), ResultsError> {
    let zeros = torn.iter().rev().take_while(|&&byte| byte == 0).count();
    let begun = &torn[..torn.len() - zeros];
    if begun.starts_with(LINE_START) || LINE_START.starts_with(begun) {
        return Ok(());
    }
    let problem = match before {
        0 => "its end is no measured point; name another folder for the results".to_owned(),
        _ => format!(
            "what follows its first {before} bytes is no measured point; the points before it are sound, and with `truncate --size \
             {before}` on this file the run goes on from them"
        ),
    };
    Err(content(path, &problem))
}

fn content(path: &Path, problem: &str) -> ResultsError {
    ResultsError::Content { path: path.display().to_string(), problem: problem.to_owned() }
}
