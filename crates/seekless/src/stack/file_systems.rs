//! File systems that live on a device, as the stack sees them: make, mount, check, dump, recognise.
//!
//! One type per file system, each in a file of its own, which turns a word's options into the file system's own
//! and calls it.

use async_trait::async_trait;
use uuid::Uuid;

use super::Word;
use super::error::Trouble;
use crate::device::Device;
use crate::fs::Fs;
use crate::rt::Rt;
use crate::units::WallTime;

/// What can be done with one kind of file system on a device.
///
/// The options of `word` are those that the line gives: for everything but [`FileSystemKind::mkfs`], those that
/// are fixed at mkfs come from the superblock, and [`Word::check_fixed`] refuses a line that says otherwise.
#[async_trait(?Send)]
pub trait FileSystemKind: Sync {
    /// Puts an empty file system on `device`.
    async fn mkfs(&self, rt: &Rt, device: Device, word: &Word, identity: &Identity) -> Result<(), Trouble>;

    /// Recovers what is on `device` and mounts it. For a read-only mount nothing is written, ever.
    async fn mount(&self, rt: &Rt, device: Device, word: &Word, usage: Usage) -> Result<Fs, Trouble>;

    /// Checks everything that `options` ask for.
    ///
    /// # Errors
    /// When the check itself cannot be done. Damage is reported in the result.
    async fn fsck(&self, rt: &Rt, device: Device, word: &Word, options: CheckOptions) -> Result<Checked, Trouble>;

    /// Whether [`FileSystemKind::fsck`] can repair anything, for which it has to write.
    fn repairs(&self) -> bool {
        false
    }

    /// Whether everything that it stores has a checksum, data included, that a check compares.
    fn has_checksums(&self) -> bool {
        false
    }

    /// What is on the device, as text: the whole in outline, or the part that `what` names, in a form of
    /// [`FileSystemKind::dumps`].
    async fn dump(&self, rt: &Rt, device: Device, word: &Word, what: Option<&str>) -> Result<String, Trouble>;

    /// What [`FileSystemKind::dump`] can show: how it is written, and what it is.
    fn dumps(&self) -> &'static [(&'static str, &'static str)];

    /// Recognises a file system of this kind; `None` when it is not one.
    ///
    /// # Errors
    /// When the device cannot be read, or the superblock is of this kind but damaged.
    async fn probe(&self, rt: &Rt, device: Device) -> Result<Option<Probed>, Trouble>;
}

/// How a stack is used once it is mounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Nothing is changed.
    pub read_only: bool,
    /// Whoever uses the file system keeps the file data that it has read, as a kernel does above a mount, so that
    /// there is no point in keeping it here too.
    pub data_cached_above: bool,
}

/// How deep a check goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CheckOptions {
    /// Mend what can be mended.
    pub repair: bool,
    /// Read all file data, too, and compare it with its checksums, where there are any.
    pub data: bool,
}

/// What tells one file system from another of its kind. The engine draws no randomness of its own, so the caller
/// brings it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Nobody should be able to guess it.
    pub random: [u64; 4],
    /// Takes precedence over the word's `uuid`; without either, one is made of [`Identity::random`].
    pub uuid: Option<Uuid>,
    /// Takes precedence over the word's `label`.
    pub label: Option<String>,
    /// Owner and group of the root directory.
    pub uid: u32,
    pub gid: u32,
}

impl Identity {
    /// A file system without a name, whose root directory belongs to root.
    pub fn new(random: [u64; 4]) -> Identity {
        Identity { random, uuid: None, label: None, uid: 0, gid: 0 }
    }
}

/// What a superblock says about its file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probed {
    pub uuid: Uuid,
    pub label: Option<String>,
    /// Further facts, each with its name, in order.
    pub facts: Vec<(&'static str, Fact)>,
}

/// Something that is known about a file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fact {
    Bytes(u64),
    Count(u64),
    Time(WallTime),
    Flag(bool),
    Text(String),
}

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Checked {
    pub findings: Vec<Finding>,
    /// Findings beyond those that are listed.
    pub unlisted: u64,
    /// Worth knowing, and no damage.
    pub notes: Vec<String>,
    /// What was looked at, for people: inodes, segments ...
    pub counts: Vec<(&'static str, u64)>,
}

/// One piece of damage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Which structure, where it is, what was found and what was expected, in one line.
    pub text: String,
    pub repaired: bool,
}

/// The outcome of a check in a word. The program's exit code follows it (fsck(8): 0, 1, 4).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    Clean,
    /// There was damage, and all of it is mended.
    Repaired,
    Damaged,
}

impl Checked {
    /// Adds what was found in another part of the same stack.
    pub fn add(&mut self, other: Checked) {
        self.findings.extend(other.findings);
        self.unlisted += other.unlisted;
        self.notes.extend(other.notes);
        for (name, count) in other.counts {
            match self.counts.iter_mut().find(|(known, _)| *known == name) {
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
