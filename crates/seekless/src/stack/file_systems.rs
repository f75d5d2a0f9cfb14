//! File systems that live on a device, as the stack sees them: make, mount, check, dump, recognise.
//!
//! One type per file system, which turns a word's options into the file system's own and calls it.

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

    /// Checks everything.
    ///
    /// # Errors
    /// When the check itself cannot be done. Damage is reported in the result.
    async fn fsck(&self, rt: &Rt, device: Device, word: &Word, options: CheckOptions) -> Result<Checked, Trouble>;

    /// What is on the device, as text: the whole in outline, or the part that `what` names. What parts there are
    /// is the file system's to say, in the error for one that is not there.
    async fn dump(&self, rt: &Rt, device: Device, word: &Word, what: Option<&str>) -> Result<String, Trouble>;

    /// Recognises a file system of this kind; `None` when it is not one.
    ///
    /// # Errors
    /// When the device cannot be read, or the superblock is of this kind but damaged.
    async fn probe(&self, rt: &Rt, device: Device) -> Result<Option<Probed>, Trouble>;
}

/// What a new file system gets from whoever makes it. The engine draws no randomness of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    pub uuid: Uuid,
    /// For keys that nobody should be able to guess.
    pub secret: [u64; 2],
    /// Takes precedence over the word's `label`.
    pub label: Option<String>,
    /// Owner and group of the root directory.
    pub uid: u32,
    pub gid: u32,
}

impl Identity {
    /// A file system without label, of root's, with a UUID and a secret from `random`.
    pub fn new(random: [u64; 4]) -> Identity {
        let bytes = (u128::from(random[0]) << 64 | u128::from(random[1])).to_be_bytes();
        let uuid = uuid::Builder::from_random_bytes(bytes).into_uuid();
        Identity { uuid, secret: [random[2], random[3]], label: None, uid: 0, gid: 0 }
    }
}

/// How thoroughly to check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CheckOptions {
    /// Read all file data, too.
    pub data: bool,
    /// Mend what can be mended.
    pub repair: bool,
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
    /// Worth knowing, and no damage.
    pub notes: Vec<String>,
    /// What was looked at, for people: inodes, segments ...
    pub counts: Vec<(&'static str, u64)>,
}

/// One piece of damage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Which structure, where, what was found and what was expected.
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
    pub fn verdict(&self) -> Verdict {
        let worst = self.findings.iter().map(|finding| match finding.repaired {
            true => Verdict::Repaired,
            false => Verdict::Damaged,
        });
        worst.max().unwrap_or(Verdict::Clean)
    }
}
