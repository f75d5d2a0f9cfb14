//! The client: a process of its own that does one phase on a mount, and says how long it took.
//!
//! It sets up what the phase needs, makes that durable, writes `ready` and waits for a line. So the bench reads counters of
//! the daemon and of the device at the moment at which the work begins. At the end it writes a [`Report`].

mod data;
mod durable;
mod files;
mod programs;

use std::fs::File;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::time::ClockId;
use seekless::rng::Rng;
use serde_json::{Value, json};

use super::process;
use crate::fuse::{self, SyncError};

/// What the client does, and where.
#[derive(Clone, Debug)]
pub struct Task {
    /// The name of a row of [`PHASES`](super::PHASES).
    pub phase: String,
    /// The mounted directory.
    pub directory: PathBuf,
    /// How what is in the directory becomes durable.
    pub settle: Settle,
    /// The file system below, where that has to be made durable, too.
    pub below: Option<PathBuf>,
    pub files: u64,
    pub large: u64,
    pub syncs: u64,
    /// What is read is compared with what was written.
    pub checks: bool,
    /// The folder with archives and repositories.
    pub material: PathBuf,
}

/// How a mount makes everything durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Settle {
    /// As `seekless sync`.
    Ours,
    /// `syncfs`.
    Kernel,
    /// `fsync` of any file: the kernel tells the daemon nothing of `syncfs`, and its `fsync` writes everything.
    Fsync,
    /// The daemon holds nothing back.
    Below,
}

/// What a phase took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Report {
    pub(super) operations: u64,
    pub(super) elapsed_ns: u64,
    /// From then until everything was durable; zero in a phase that does not write.
    pub(super) settle_ns: u64,
    /// Of the client and of programs that it ran, without settling.
    pub(super) processor_ns: u64,
}

impl Report {
    fn to_json(self) -> Value {
        json!({ "operations": self.operations, "elapsed_ns": self.elapsed_ns, "settle_ns": self.settle_ns,
            "processor_ns": self.processor_ns })
    }

    /// Parses the client's line.
    pub(super) fn read(line: &str) -> Option<Report> {
        let value: Value = serde_json::from_str(line).ok()?;
        let number = |name: &str| value.get(name)?.as_u64();
        Some(Report {
            operations: number("operations")?,
            elapsed_ns: number("elapsed_ns")?,
            settle_ns: number("settle_ns")?,
            processor_ns: number("processor_ns")?,
        })
    }
}

/// The line that says that the phase can begin.
pub(super) const READY: &str = "ready";

/// The measured part of a phase. Returns the number of operations.
type Work<'a> = Box<dyn FnOnce() -> Result<u64, String> + 'a>;

/// Runs a phase as the client process.
///
/// # Errors
/// What failed on the mount, in words.
pub fn run(task: &Task) -> Result<(), String> {
    let phase = super::find(&task.phase).ok_or_else(|| format!("there is no phase `{}`", task.phase))?;
    let work = prepare(task)?;
    if phase.writes {
        settle(task)?;
    }
    say(READY)?;
    let mut line = String::new();
    let heard = io::stdin().lock().read_line(&mut line);
    if heard.map_err(|error| format!("standard input: {error}"))? == 0 {
        return Err("the bench has ended".into());
    }
    let (processor, start) = (processor_ns(), Instant::now());
    let operations = work()?;
    let elapsed = start.elapsed();
    let processor_ns = processor_ns().saturating_sub(processor);
    let settling = Instant::now();
    if phase.writes {
        settle(task)?;
    }
    let settle_ns = if phase.writes { settling.elapsed().as_nanos() as u64 } else { 0 };
    let report = Report { operations, elapsed_ns: elapsed.as_nanos() as u64, settle_ns, processor_ns };
    say(&report.to_json().to_string())
}

/// Sets up a phase, and returns its measured part.
fn prepare(task: &Task) -> Result<Work<'_>, String> {
    match task.phase.as_str() {
        "create" => files::create(task),
        "stat" | "stat-known" => files::stat(task),
        "tree" | "tree-known" => files::tree(task),
        "read" => files::read(task),
        "delete" => files::delete(task),
        "names" => files::names(task, 5),
        "names-1m" => files::names(task, 500),
        "clients-4" => files::clients(task, false),
        "clients-4-fsync" => files::clients(task, true),
        "write-8k" => data::write(task, "by-8k", 8 << 10),
        "write-1m" => data::write(task, data::LARGE, 1 << 20),
        "read-1m" => data::read(task),
        "random-read" => data::random_read(task),
        "append-10" => durable::append_small(task),
        "create-fsync" => durable::create(task),
        "append-fdatasync" => durable::append(task),
        "overwrite-fdatasync" => durable::overwrite(task),
        "replace-fsync" => durable::replace(task),
        "sqlite-wal" => programs::sqlite(task, "wal"),
        "sqlite-rollback" => programs::sqlite(task, "delete"),
        "postmark" => programs::postmark(task),
        "untar" => programs::untar(task),
        "read-tree" => programs::read_tree(task),
        "build" => programs::build(task),
        "git-checkout" => programs::git_checkout(task),
        "rm-rf" => programs::remove(task),
        other => Err(format!("nothing is known about the phase `{other}`")),
    }
}

/// Makes everything durable.
fn settle(task: &Task) -> Result<(), String> {
    let directory = &task.directory;
    let sync = |path: &Path| {
        let opened = File::open(path).map_err(|error| failed("open", path, error))?;
        rustix::fs::syncfs(&opened).map_err(|error| failed("sync", path, error.into()))
    };
    match task.settle {
        Settle::Ours => match fuse::sync(directory) {
            Ok(()) => {}
            Err(SyncError::NotOurs { .. }) => return Err(format!("{} is not mounted any more", directory.display())),
            Err(error) => return Err(error.to_string()),
        },
        Settle::Kernel => sync(directory)?,
        Settle::Fsync => {
            let path = directory.join(".settled");
            let file = File::create(&path).map_err(|error| failed("create", &path, error))?;
            file.sync_all().map_err(|error| failed("sync", &path, error))?;
        }
        Settle::Below => {}
    }
    task.below.as_deref().map_or(Ok(()), sync)
}

fn say(line: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| format!("standard output: {error}"))
}

/// Processor time of this process, and of those that it has waited for.
fn processor_ns() -> u64 {
    let own = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
    own.tv_sec as u64 * 1_000_000_000 + own.tv_nsec as u64 + process::children_ns()
}

fn failed(action: &str, path: &Path, error: io::Error) -> String {
    format!("cannot {action} {}: {error}", path.display())
}

/// Content of which a compressor leaves about half: of each 4 KiB the first half is random, and the second repeats a part of
/// it. Differs from piece to piece.
fn content(seed: u64, bytes: usize) -> Vec<u8> {
    const BLOCK: usize = 4096;
    let mut rng = Rng::new(seed);
    let mut content = vec![0; bytes];
    for block in content.chunks_mut(BLOCK) {
        let random = block.len().div_ceil(2);
        for word in block[..random].chunks_mut(8) {
            word.copy_from_slice(&rng.next_u64().to_le_bytes()[..word.len()]);
        }
        let repeated = random.min(256);
        for at in random..block.len() {
            block[at] = block[(at - random) % repeated];
        }
    }
    content
}

/// The numbers below `count` in an order that is the same for all contestants.
fn shuffled(count: u64) -> Vec<u64> {
    let mut rng = Rng::new(count);
    let mut order: Vec<u64> = (0..count).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, rng.below(last as u64 + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::mount_bench::PHASES;

    /// Aim: every row of the table does something, on any directory. Method: all phases at a small size on a directory of
    /// the host, each suite in the order of its rows, without the bench around them.
    #[test]
    fn every_phase_runs_on_a_directory() {
        let scratch = tempfile::tempdir().unwrap();
        let material = scratch.path().join("material");
        super::super::material::make(&material, None).unwrap();
        let directory = scratch.path().join("d");
        std::fs::create_dir(&directory).unwrap();
        let ran = Cell::new(0);
        for phase in PHASES.iter().filter(|phase| !phase.is_long) {
            if phase.program.is_some_and(|program| !process::is_installed(program)) {
                continue;
            }
            let task = Task {
                phase: phase.name.to_owned(),
                directory: directory.clone(),
                settle: Settle::Below,
                below: None,
                files: 30,
                large: 1 << 20,
                syncs: 5,
                checks: true,
                material: material.clone(),
            };
            let work = prepare(&task).unwrap_or_else(|error| panic!("{}: {error}", phase.name));
            let operations = work().unwrap_or_else(|error| panic!("{}: {error}", phase.name));
            assert!(operations > 0, "{}", phase.name);
            ran.set(ran.get() + 1);
        }
        assert!(ran.get() > 12);
    }

    /// The order has every number once, and is not the plain one.
    #[test]
    fn orders_are_permutations() {
        let order = shuffled(100);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
        assert_ne!(order, sorted);
    }

    /// A report survives its way through the pipe.
    #[test]
    fn reports_are_read_as_written() {
        let report = Report { operations: 7, elapsed_ns: 1 << 40, settle_ns: 3, processor_ns: 0 };
        assert_eq!(Report::read(&report.to_json().to_string()), Some(report));
        assert_eq!(Report::read("ready"), None);
    }
}
