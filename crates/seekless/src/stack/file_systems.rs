//! File systems on a device, as the stack uses them: make, mount, check, dump, recognise.
//!
//! One type per file system, each in a file of its own, which turns a word's options into the file system's own
//! and calls it.

use async_trait::async_trait;
use uuid::Uuid;

use super::Word;
use super::error::BuildError;
use super::signature::Signature;
use crate::device::Device;
use crate::fs::Fs;
use crate::rt::Rt;
use crate::units::WallTime;

/// Operations on one kind of file system on a device.
///
/// The options of `word` are those of the line: for everything except [`FileSystemKind::mkfs`], options fixed at mkfs
/// come from the superblock, and [`Word::check_fixed`] refuses a line that contradicts it.
#[async_trait(?Send)]
pub trait FileSystemKind: Sync {
    /// How a file system of this kind is recognised by its first bytes, of whatever version and state.
    fn signature(&self) -> &'static Signature;

    /// Puts an empty file system on `device`.
    async fn mkfs(&self, rt: &Rt, device: Device, word: &Word, identity: &Identity) -> Result<(), BuildError>;

    /// Recovers the volume on `device` and mounts it. A read-only mount never writes.
    async fn mount(&self, rt: &Rt, device: Device, word: &Word, usage: Usage) -> Result<Fs, BuildError>;

    /// Checks everything that `options` ask for.
    ///
    /// # Errors
    /// When the check itself cannot be done. Damage is reported in the result.
    async fn fsck(&self, rt: &Rt, device: Device, word: &Word, options: CheckOptions) -> Result<Checked, BuildError>;

    /// True when [`FileSystemKind::fsck`] can repair, for which it must write.
    fn repairs(&self) -> bool {
        false
    }

    /// True when it can be on a device with [spans](crate::device::Spans), which it writes in order.
    fn writes_in_order(&self) -> bool {
        false
    }

    /// True when all stored data has checksums that a check compares.
    fn has_checksums(&self) -> bool {
        false
    }

    /// The structures on the device, as text: an overview, or the part that `what` names, in a form of
    /// [`FileSystemKind::dumps`].
    async fn dump(&self, rt: &Rt, device: Device, word: &Word, what: Option<&str>) -> Result<String, BuildError>;

    /// The parts that [`FileSystemKind::dump`] can show: syntax and meaning.
    fn dumps(&self) -> &'static [(&'static str, &'static str)];

    /// Recognises a file system of this kind; `None` when it is not one.
    ///
    /// # Errors
    /// When the device cannot be read, or the superblock is of this kind but damaged.
    async fn probe(&self, rt: &Rt, device: Device) -> Result<Option<Probed>, BuildError>;
}

/// How a stack is used once it is mounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Nothing is changed.
    pub read_only: bool,
    /// The user of the file system caches file data, as a kernel does above a mount, so that caching it here too would
    /// be pointless.
    pub data_cached_above: bool,
}

/// How deep a check goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CheckOptions {
    /// Repair what can be repaired.
    pub repair: bool,
    /// Also read all file data and compare it with its checksums, where there are any.
    pub data: bool,
    /// The devices below are put together as they were. Only FFS asks.
    pub trust_order: bool,
}

/// Distinguishes a file system from others of its kind. The engine has no randomness, so the caller supplies it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Must be unpredictable.
    pub random: [u64; 4],
    /// Overrides the word's `uuid`; without either, it is derived from [`Identity::random`].
    pub uuid: Option<Uuid>,
    /// Overrides the word's `label`.
    pub label: Option<String>,
    /// Owner and group of the root directory.
    pub uid: u32,
    pub gid: u32,
}

impl Identity {
    /// Identity of a file system without a label, whose root directory belongs to root.
    pub fn new(random: [u64; 4]) -> Identity {
        Identity { random, uuid: None, label: None, uid: 0, gid: 0 }
    }
}

/// The content of a superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probed {
    pub uuid: Uuid,
    pub label: Option<String>,
    /// Further facts, each with its name, in order.
    pub facts: Vec<(&'static str, Fact)>,
}

/// A property of a file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fact {
    Bytes(u64),
    Count(u64),
    Time(WallTime),
    Flag(bool),
    Text(String),
}

/// Result of a check.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Checked {
    pub findings: Vec<Finding>,
    /// Number of findings beyond the listed ones.
    pub unlisted: u64,
    /// A repair can mend at least some of the findings. Known after a check that was not to repair.
    pub repairable: bool,
    /// Parts of which copies could not be compared with each other, as those of an array that lacks a member.
    pub not_compared: u64,
    /// Remarks that are not damage.
    pub notes: Vec<String>,
    /// Counts of checked items: inodes, segments ...
    pub counts: Vec<(&'static str, u64)>,
}

/// A single piece of damage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Which structure, its place, found and expected content, in one line.
    pub text: String,
    pub repaired: bool,
}

/// The outcome of a check in a word. The program's exit code follows it (fsck(8): 0, 1, 4).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    Clean,
    /// There was damage, and all of it is repaired.
    Repaired,
    Damaged,
}

impl Checked {
    /// Adds the result for another part of the same stack. Layers and the file system below them count the same files.
    pub fn add(&mut self, other: Checked) {
        self.findings.extend(other.findings);
        self.unlisted += other.unlisted;
        self.repairable |= other.repairable;
        self.not_compared += other.not_compared;
        self.notes.extend(other.notes);
        for (name, count) in other.counts {
            match self.counts.iter_mut().find(|(known, _)| *known == name) {
                Some((_, files)) if name == "files" => *files = count.max(*files),
                Some((_, sum)) => *sum += count,
                None => self.counts.push((name, count)),
            }
        }
    }

    pub fn verdict(&self) -> Verdict {
        let worst = self.findings.iter().map(|finding| match finding.repaired {
            true => Verdict::Repaired,
            false => Verdict::Damaged,
        });
        worst.max().unwrap_or(Verdict::Clean)
    }
}
