//! File systems that live on a device, as the stack sees them: make, mount, check, dump, recognise.
//!
//! One type per file system, which turns a word's options into the file system's own and calls it.

use std::fmt;

use async_trait::async_trait;
use uuid::Uuid;

use super::Word;
use super::build::Trouble;
use crate::device::Device;
use crate::fs::Fs;
use crate::rt::Rt;

/// What can be done with one kind of file system on a device.
///
/// The options of `word` are those that the line gives: for everything but [`FileSystemKind::mkfs`], those that
/// are fixed at mkfs come from the superblock, and [`Word::check_fixed`] refuses a line that says otherwise.
#[async_trait(?Send)]
pub trait FileSystemKind: Sync {
    /// Puts an empty file system on `device`.
    async fn mkfs(&self, rt: &Rt, device: Device, word: &Word, identity: &Identity) -> Result<(), Trouble>;

    /// Recovers what is on `device` and mounts it; with `read_only`, nothing is written, ever.
    async fn mount(&self, rt: &Rt, device: Device, word: &Word, read_only: bool) -> Result<Fs, Trouble>;

    /// Checks everything; with `repair`, mends what can be mended.
    ///
    /// # Errors
    /// When the check itself cannot be done. Damage is reported in the result.
    async fn fsck(&self, rt: &Rt, device: Device, word: &Word, repair: bool) -> Result<Checked, Trouble>;

    /// Writes every structure on the device as text.
    async fn dump(&self, rt: &Rt, device: Device, word: &Word, out: &mut dyn fmt::Write) -> Result<(), Trouble>;

    /// Recognises a file system of this kind; `None` when it is not one.
    ///
    /// # Errors
    /// When the device cannot be read, or the superblock is of this kind but damaged.
    async fn probe(&self, rt: &Rt, device: Device) -> Result<Option<Probed>, Trouble>;
}

/// What tells one file system from another of its kind. The engine draws no randomness of its own, so the caller
/// brings the UUID.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    pub uuid: Uuid,
    /// Takes precedence over the word's `label`.
    pub label: Option<String>,
}

/// What a superblock says about its file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probed {
    pub uuid: Uuid,
    pub label: Option<String>,
    /// Further facts for people, each with its name, in order.
    pub facts: Vec<(&'static str, String)>,
}

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Checked {
    pub findings: Vec<Finding>,
    /// What was looked at, for people: inodes, segments ...
    pub counts: Vec<(&'static str, u64)>,
}

/// One piece of damage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Which structure.
    pub what: String,
    /// Where it is.
    pub at: String,
    /// What was found and what was expected.
    pub detail: String,
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
    pub fn verdict(&self) -> Verdict {
        let worst = self.findings.iter().map(|finding| match finding.repaired {
            true => Verdict::Repaired,
            false => Verdict::Damaged,
        });
        worst.max().unwrap_or(Verdict::Clean)
    }
}

/// `lfs`.
pub(super) struct Lfs;

/// Until the file system is built in, the word can be read but not be made.
fn not_built_in() -> Trouble {
    Trouble::other("lfs is not built into this program")
}

#[async_trait(?Send)]
impl FileSystemKind for Lfs {
    async fn mkfs(&self, _: &Rt, _: Device, _: &Word, _: &Identity) -> Result<(), Trouble> {
        Err(not_built_in())
    }

    async fn mount(&self, _: &Rt, _: Device, _: &Word, _: bool) -> Result<Fs, Trouble> {
        Err(not_built_in())
    }

    async fn fsck(&self, _: &Rt, _: Device, _: &Word, _: bool) -> Result<Checked, Trouble> {
        Err(not_built_in())
    }

    async fn dump(&self, _: &Rt, _: Device, _: &Word, _: &mut dyn fmt::Write) -> Result<(), Trouble> {
        Err(not_built_in())
    }

    async fn probe(&self, _: &Rt, _: Device) -> Result<Option<Probed>, Trouble> {
        Err(not_built_in())
    }
}
