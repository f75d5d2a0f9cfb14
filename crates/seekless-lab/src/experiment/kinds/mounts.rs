//! `mounts`: mounts of this machine, ours and those of others, as `seekless bench mount` measures them.
//!
//! What is made and mounted, and how, the host knows; here is what a point consists of.

use serde::Deserialize;

use super::{Bytes, Context, Measure, Read, RunTarget, Workload, WorkloadKind, parse};

pub(super) const KIND: WorkloadKind = WorkloadKind {
    name: "mounts",
    help: "mounts of this machine, ours and those of others: `seekless bench mount` makes such experiments",
    dims: &["phase"],
    metrics: &[
        ("op_us", "time of an operation, in us; median of the rounds"),
        ("op_us_low", "the lower quartile of the rounds"),
        ("op_us_high", "the upper quartile of the rounds"),
        ("durable_us", "the same with the time until everything is durable, in phases that write"),
        ("client_us", "processor time of the client for an operation, in us"),
        (
            "daemon_us",
            "processor time of the daemon for an operation until everything was durable, in us; kernel file systems have none",
        ),
        ("daemon_kib", "the most memory that the daemon has had so far, in KiB; kernel file systems have no daemon"),
        ("flushes", "flushes that the device below got for 1,000 operations, until everything was durable"),
        ("written_kib", "KiB written to the device below for an operation, until everything was durable"),
        ("kept_kib", "KiB of the storage below that an operation has filled, in phases that write"),
        ("operations", "operations of the phase"),
    ],
    read: Read::Other(|table| parse::<MountJob>(table).map(|job| Box::new(job) as Box<dyn Workload>)),
};

/// A contestant, and what is measured on a new file system of it.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountJob {
    /// The contestant, by its name in the host's table.
    pub mount: String,
    /// Phases on one file system, one after another, by the name that they have together.
    pub suite: String,
    /// Those of its phases that are measured; others run where these need their files.
    pub phases: Vec<String>,
    pub placement: Placement,
    /// Small files of a phase, and names of a large directory where it says no number.
    pub files: u64,
    /// Size of a large file, in bytes.
    #[serde(deserialize_with = "bytes")]
    pub large: u64,
    /// Operations of which each is made durable.
    pub syncs: u64,
    /// Size of the image below each file system, in bytes.
    #[serde(deserialize_with = "bytes")]
    pub image: u64,
    pub image_state: ImageState,
    /// Whether loop devices by-pass the page cache of the host.
    pub loop_direct: bool,
    /// Whether everything is on a loop device of the bench's own.
    pub own_device: bool,
    /// The directory whose files are unpacked; empty for files that the bench makes.
    pub tree: String,
    /// A checksum of the names, sizes and times of its files, so that no result of another state is taken for one of this.
    #[serde(default)]
    pub tree_state: String,
    /// The device that stores the scratch directory, which decides what a flush costs.
    pub below: String,
}

/// Where the scheduler may run client and daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Both on one processor.
    Pinned,
    /// Wherever it likes.
    Natural,
}

/// What the image holds before a file system is made on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageState {
    /// Every block has been written, so that none is allocated while measuring.
    Written,
    /// A hole from beginning to end.
    Sparse,
}

fn bytes<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Bytes::deserialize(deserializer).map(|bytes| bytes.0)
}

impl Workload for MountJob {
    fn check(&self, on: &RunTarget) -> Result<(), String> {
        match on {
            RunTarget::Nothing if self.files == 0 || self.syncs == 0 || self.large == 0 => {
                Err("[workload]: files, syncs and large are 1 or more".into())
            }
            RunTarget::Nothing => Ok(()),
            _ => Err("a contestant has no `on`: `mount` names what is made and mounted".into()),
        }
    }

    fn is_simulated(&self, _: &RunTarget, _: &Context<'_>) -> bool {
        false
    }

    fn run(&self, _: &RunTarget, context: &Context<'_>) -> Result<Vec<Measure>, String> {
        context.outside.mounts(self)
    }
}
