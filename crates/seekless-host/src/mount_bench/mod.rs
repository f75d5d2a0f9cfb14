//! The benchmark of mounts: ours beside those of others, in real time, on storage that is the same for all.
//!
//! A [`MountJob`] is a contestant, a suite of phases and a placement. Each job makes a new file system, mounts it, runs the
//! phases of the suite one after another, each in a client process of its own, and removes everything. Which jobs there are,
//! in what order, and what was measured already is the lab's affair: `seekless bench mount` is an experiment.
//!
//! The same for all: the image below (its size, written before or a hole), the mode of loop devices, what is read and
//! written and in what order, and that everything is durable before the counters of the device are read again.

mod client;
mod contestants;
pub mod describe;
mod device;
mod kernel;
mod material;
mod null;
mod phases;
mod process;
mod scratch;
mod setup;
pub mod table;

use std::fs::File;
use std::io;
use std::path::Path;

use seekless_lab::experiment::{Measure, MountJob, Stop};

pub use client::{Settle, Task, run as run_client};
pub use contestants::{CONTESTANTS, Contestant, find as find_contestant};
pub use describe::Sizes;
pub use material::state_of;
pub use null::{NullOptions, serve as serve_null};
pub use phases::{PHASES, Phase, find, suites};
pub use process::{become_part, end_with_parent};

use device::Counters;
use scratch::Scratch;
use setup::ContestantSetup;

/// Of a job that was stopped.
const INTERRUPTED: &str = "interrupted";

/// Held by the bench that is running: two at the same time would measure each other.
const LOCK: &str = "/run/seekless-bench-mount.lock";

/// What stores `path`, and the kernel, for people: `ext4 on /dev/vda, Linux 6.12.57`.
pub fn storage_of(path: &Path) -> String {
    let stored = process::describe(path);
    match std::fs::read_to_string("/proc/sys/kernel/osrelease") {
        Ok(release) => format!("{stored}, Linux {}", release.trim()),
        Err(_) => stored,
    }
}

/// The bench, ready to measure. Dropping it removes all that it has made.
pub struct MountBench {
    scratch: Scratch,
    below: Option<Counters>,
    _lock: File,
}

impl MountBench {
    /// Prepares to measure, with a scratch directory below `parent`, and with `own_device` a file system in it that nothing else
    /// uses. `tree` is a directory whose files are unpacked in place of some that the bench makes. The calling thread and those that it starts later get
    /// mounts of their own. With `waits` this waits for another bench to end.
    ///
    /// # Errors
    /// When the user is not root, another bench is running, or the directory cannot be made; in words.
    pub fn new(parent: &Path, own_device: bool, tree: Option<&Path>, waits: bool) -> Result<MountBench, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("it makes loop devices, mounts file systems and empties caches, which only root may do".into());
        }
        let lock = locked(waits)?;
        // With links resolved, as the mount table has it.
        let parent = std::fs::canonicalize(parent).map_err(|error| cannot("find", parent, error))?;
        process::own_mounts().map_err(|error| format!("cannot make a namespace for mounts: {error}"))?;
        let scratch = Scratch::new(&parent, own_device, tree)?;
        let below = Counters::below(&scratch.path("plain"));
        Ok(MountBench { scratch, below, _lock: lock })
    }

    /// The block device whose flushes and writes are counted, if there is a single one below.
    pub fn counted_device(&self) -> Option<&str> {
        self.below.as_ref().map(|counters| counters.name.as_str())
    }

    /// Measures a job, until `stop` is set.
    ///
    /// # Errors
    /// What failed, in words. Nothing of the job is left then.
    pub fn measure(&self, job: &MountJob, stop: &Stop) -> Result<Vec<Measure>, String> {
        let contestant =
            find_contestant(&job.mount).ok_or_else(|| format!("there is no contestant `{}`", job.mount))?;
        if !phases::to_run(job).iter().any(|(phase, is_wanted)| *is_wanted && contestant.runs(phase)) {
            return Ok(Vec::new());
        }
        let mut setup = ContestantSetup::make(&self.scratch, contestant, job, stop)?;
        let mut measures = Vec::new();
        for (phase, is_wanted) in phases::to_run(job) {
            // What is made as a whole is made of files that another file system has written.
            if !contestant.runs(phase) && !phase.makes_files {
                continue;
            }
            let measure = setup.measure(phase, self.below.as_ref())?;
            if is_wanted && contestant.runs(phase) {
                measures.push(measure);
            }
        }
        setup.remove()?;
        Ok(measures)
    }
}

fn locked(waits: bool) -> Result<File, String> {
    let path = Path::new(LOCK);
    let file = File::options().create(true).truncate(false).write(true).open(path);
    let file = file.map_err(|error| cannot("open", path, error))?;
    let locked = if waits { file.lock() } else { file.try_lock().map_err(io::Error::from) };
    match locked {
        Ok(()) => Ok(file),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err("another `seekless bench mount` is running, and each would measure the other; --wait waits for it"
                .into())
        }
        Err(error) => Err(cannot("lock", path, error)),
    }
}

fn cannot(action: &str, path: &Path, error: io::Error) -> String {
    format!("cannot {action} {}: {error}", path.display())
}
