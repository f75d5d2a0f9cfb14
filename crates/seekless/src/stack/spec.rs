//! What a word of the stack line is: its name, what it takes, and how it becomes a part of a running stack.
//!
//! A file system, layer or device of your own is a [`WordSpec`] and a row in `WORDS`.

use async_trait::async_trait;
use futures_util::future::LocalBoxFuture;

use super::Word;
use super::error::Trouble;
use super::file_systems::{CheckOptions, Checked, FileSystemKind, Probed};
use super::value::{Kind, Value};
use crate::device::Device;
use crate::fs::Fs;
use crate::layer::log::pack::{Direction, Progress};
use crate::rt::Rt;

/// A word: its name, what it takes and how it is made.
pub struct WordSpec {
    pub name: &'static str,
    /// One line: what it is for.
    pub help: &'static str,
    /// What stands alone behind the colon, such as a path.
    pub argument: Option<&'static Param>,
    pub options: &'static [Param],
    pub maker: Maker,
}

/// An argument or an option of a word.
pub struct Param {
    pub name: &'static str,
    pub kind: Kind,
    /// Value where none is given, as it would be written.
    pub default: Option<&'static str>,
    /// The word makes no sense without it.
    pub required: bool,
    /// Chosen when the file system is made, and found in its superblock ever after. A line that says otherwise is
    /// an error; see [`Word::check_fixed`](super::Word::check_fixed).
    pub fixed: bool,
    /// The switch of the same word that has to be on for a superblock to keep a `fixed` value; none when one always does.
    pub kept_with: Option<&'static str>,
    /// Only mkfs looks at it: it shapes what is made, and neither later commands nor the superblock need it.
    pub only_mkfs: bool,
    /// One line: what it is.
    pub help: &'static str,
}

impl Param {
    /// An option without default.
    pub const fn new(name: &'static str, kind: Kind, help: &'static str) -> Param {
        Param { name, kind, default: None, required: false, fixed: false, kept_with: None, only_mkfs: false, help }
    }

    pub const fn default(self, default: &'static str) -> Param {
        Param { default: Some(default), ..self }
    }

    pub const fn required(self) -> Param {
        Param { required: true, ..self }
    }

    /// See [`Param::fixed`].
    pub const fn fixed(self) -> Param {
        Param { fixed: true, ..self }
    }

    /// See [`Param::kept_with`].
    pub const fn kept_with(self, switch: &'static str) -> Param {
        Param { kept_with: Some(switch), ..self }
    }

    /// See [`Param::only_mkfs`].
    pub const fn only_mkfs(self) -> Param {
        Param { only_mkfs: true, ..self }
    }

    /// The default, read.
    ///
    /// # Panics
    /// When the table is wrong; a test reads every default.
    pub(super) fn default_value(&self) -> Option<Value> {
        self.default.map(|text| match self.kind.read(text) {
            Ok(value) => value,
            Err(bad) => unreachable!("default of `{}`: {}", self.name, bad.problem),
        })
    }
}

impl WordSpec {
    /// The argument, then the options.
    pub fn params(&self) -> impl Iterator<Item = &'static Param> + use<> {
        self.argument.into_iter().chain(self.options)
    }

    pub fn param(&self, name: &str) -> Option<&'static Param> {
        self.params().find(|param| param.name == name)
    }
}

/// How a word becomes a part of a running stack.
pub enum Maker {
    Layer(&'static LayerSpec),
    FileSystem(&'static dyn FileSystemKind),
    /// Opened by the caller.
    FileSystemLeaf,
    DeviceLayer(for<'a> fn(&'a Rt, Device, &'a Word) -> LocalBoxFuture<'a, Result<Device, Trouble>>),
    /// A device that keeps a format of its own on the one below.
    StoredDevice(&'static dyn StoredDevice),
    /// A device over several instances of what is below it.
    Spread(&'static Spread),
    /// Made empty each time, and gone with the stack.
    VolatileDevice(for<'a> fn(&'a Rt, &'a Word) -> LocalBoxFuture<'a, Result<Device, Trouble>>),
    /// Opened by the caller.
    DeviceLeaf,
}

/// A device over several devices, see [`Maker::Spread`].
pub struct Spread {
    /// What it keeps on its members, where it keeps anything.
    pub stored: Option<&'static dyn StoredArray>,
    /// How many.
    pub members: fn(&Word) -> u64,
    /// True when one that cannot be opened is left out.
    pub bears_missing: fn(&Word) -> bool,
    #[allow(clippy::type_complexity)]
    pub make:
        for<'a> fn(&'a Rt, Vec<Option<Device>>, &'a Word, Surroundings) -> LocalBoxFuture<'a, Result<Device, Trouble>>,
}

/// A device that keeps a format of its own on the one below: it is made by mkfs, and can be looked at and checked also
/// where no file system stands on it.
#[async_trait(?Send)]
pub trait StoredDevice: Sync {
    /// Opens it; makes it where the surroundings are fresh.
    async fn open(&self, rt: &Rt, below: Device, word: &Word, surroundings: Surroundings) -> Result<Device, Trouble>;

    /// Recognises it on `below`; `None` when there is none.
    ///
    /// # Errors
    /// When the device cannot be read, or what is there is damaged.
    async fn probe(&self, below: Device) -> Result<Option<Probed>, Trouble>;

    /// Checks it. Nothing is written.
    ///
    /// # Errors
    /// When the check itself cannot be done. Damage is reported in the result.
    async fn check(&self, below: Device) -> Result<Checked, Trouble>;
}

/// A device over several that keeps a format of its own on them: as [`StoredDevice`]. A member that cannot be opened is
/// `None`.
#[async_trait(?Send)]
pub trait StoredArray: Sync {
    /// False when the options of `word` say that it keeps nothing.
    fn is_stored(&self, word: &Word) -> bool;

    /// Recognises it on `members`; `None` when there is none.
    ///
    /// # Errors
    /// When what is on them cannot be.
    async fn probe(&self, members: &[Option<Device>]) -> Result<Option<Probed>, Trouble>;

    /// Compares the members with each other. What can be put right is, if `options` say so; otherwise nothing is written.
    ///
    /// # Errors
    /// When the check itself cannot be done. Damage is reported in the result.
    async fn check(
        &self,
        rt: &Rt,
        members: Vec<Option<Device>>,
        word: &Word,
        options: CheckOptions,
    ) -> Result<Checked, Trouble>;

    /// What the members say, for people.
    async fn dump(&self, members: &[Option<Device>]) -> Result<String, Trouble>;
}

/// A layer, as the stack sees it.
pub struct LayerSpec {
    pub make: Make,
    /// Checks what the layer keeps in the file system below, where it keeps anything.
    pub check: Option<Check>,
    /// Turns the files below it into its own, or back.
    pub convert: Option<Convert>,
}

/// Puts the layer on a file system.
pub(super) type Make = for<'a> fn(&'a Rt, Fs, &'a Word, &'a dyn Leaves) -> LocalBoxFuture<'a, Result<Fs, Trouble>>;

/// See [`LayerSpec::check`].
pub type Check =
    for<'a> fn(&'a Rt, Fs, &'a Word, &'a dyn Leaves, CheckOptions) -> LocalBoxFuture<'a, Result<Checked, Trouble>>;

/// See [`LayerSpec::convert`]; the last argument is told of every file.
pub type Convert = for<'a> fn(
    &'a Rt,
    Fs,
    &'a Word,
    &'a dyn Leaves,
    Direction,
    &'a Tell<'a>,
) -> LocalBoxFuture<'a, Result<Progress, Trouble>>;

/// Is told how far the work is, and which file is next.
pub type Tell<'a> = dyn Fn(&Progress, &[u8]) + 'a;

/// What a device that keeps something on its members has to know about the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Surroundings {
    pub purpose: Purpose,
    /// See [`Stack::is_volatile`](super::Stack::is_volatile).
    pub is_volatile: bool,
    /// No word of the line says `discard=off`.
    pub discard: bool,
    /// See [`Leaves::random`].
    pub random: Option<[u64; 4]>,
}

impl Surroundings {
    /// There is nothing on the members that counts.
    pub fn is_fresh(&self) -> bool {
        self.is_volatile || self.purpose == Purpose::Format
    }

    /// Nothing on the members may change.
    pub fn is_read_only(&self) -> bool {
        self.purpose == Purpose::Inspect
    }
}

/// What a leaf is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To look: nothing is changed, and others may look at the same time.
    Inspect,
    /// To use: read and write, alone.
    Use,
    /// To put a file system on it; what is there is lost. An image file that is not there is made.
    Format,
}

/// With whom a file system that lies outside the engine may be shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// With all that leave its files what they are.
    Shared,
    /// With nobody: a layer above stores files in it in a form of its own, which another writer would destroy.
    Alone,
}

/// Opens what lies outside the engine.
#[async_trait(?Send)]
pub trait Leaves {
    /// Opens the block device that `word` names, such as `file:a.img`.
    async fn device(&self, rt: &Rt, word: &Word, purpose: Purpose) -> Result<Device, Trouble>;

    /// Opens the file system that `word` names, such as `hostdir:/srv`. To look at it alone, it is shared in any case.
    async fn file_system(&self, rt: &Rt, word: &Word, purpose: Purpose, sharing: Sharing) -> Result<Fs, Trouble>;

    /// Numbers that nobody can guess, where there are any: the engine has none of its own. New ones with each call.
    fn random(&self) -> Option<[u64; 4]> {
        None
    }

    /// Reads the file at `path`, which `word` names and which holds a key or a passphrase.
    async fn secret(&self, word: &Word, _path: &str) -> Result<Vec<u8>, Trouble> {
        Err(outside(word))
    }
}

/// A world in which there is nothing outside, for virtual time.
pub struct NoLeaves;

#[async_trait(?Send)]
impl Leaves for NoLeaves {
    async fn device(&self, _: &Rt, word: &Word, _: Purpose) -> Result<Device, Trouble> {
        Err(outside(word))
    }

    async fn file_system(&self, _: &Rt, word: &Word, _: Purpose, _: Sharing) -> Result<Fs, Trouble> {
        Err(outside(word))
    }
}

fn outside(word: &Word) -> Trouble {
    Trouble::other(format!("`{}` lies in the real world, which cannot be reached from here", word.name()))
        .hint("use memory or a modelled disk instead")
}
