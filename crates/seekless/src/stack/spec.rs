//! Definition of a word of the stack line: its name, its options, and how it becomes a part of a running stack.
//!
//! A new file system, layer or device is a [`WordSpec`] and a row in `WORDS`.

use async_trait::async_trait;
use futures_util::future::LocalBoxFuture;

use super::Word;
use super::error::BuildError;
use super::file_systems::{CheckOptions, Checked, FileSystemKind, Probed};
use super::signature::Signature;
use super::value::{ParamKind, Value};
use crate::device::Device;
use crate::fs::Fs;
use crate::layer::log::pack::{Direction, Progress};
use crate::rt::Rt;

/// A word: its name, its options and its constructor.
pub struct WordSpec {
    pub name: &'static str,
    /// Its purpose, in one line.
    pub help: &'static str,
    /// The argument without a key after the colon, such as a path.
    pub argument: Option<&'static Param>,
    pub options: &'static [Param],
    pub properties: &'static [Property],
    pub constructor: Constructor,
}

/// What other parts ask about a word, instead of knowing it by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Property {
    /// It has zones or stores data in them. Zones are a model, so what is on them cannot be opened again.
    ModelledZones,
    /// It offers [spans](crate::device::Spans), so it cannot be exported.
    Spans,
    /// It answers reads of what was never written to it in no time.
    KnowsUnwritten,
}

/// An argument or an option of a word.
pub struct Param {
    pub name: &'static str,
    pub kind: ParamKind,
    /// The default, as it would be written.
    pub default: Option<&'static str>,
    /// The word is invalid without it.
    pub required: bool,
    /// Fixed when the file system is made, and stored in its superblock. A line that contradicts it is an error; see
    /// [`Word::check_fixed`](super::Word::check_fixed).
    pub fixed: bool,
    /// The switch of the same word that must be on for a superblock to store a `fixed` value; `None` when it always
    /// does.
    pub kept_with: Option<&'static str>,
    /// Only mkfs uses it: it shapes the new file system, and neither later commands nor the superblock need it.
    pub only_mkfs: bool,
    /// Its meaning, in one line.
    pub help: &'static str,
}

impl Param {
    /// An option without a default.
    pub const fn new(name: &'static str, kind: ParamKind, help: &'static str) -> Param {
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

    /// The parsed default.
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

    /// How its stored format is recognised, if it has one.
    pub fn signature(&self) -> Option<&'static Signature> {
        match &self.constructor {
            Constructor::FileSystem(kind) => Some(kind.signature()),
            Constructor::StoredDevice(kind) => kind.signature(),
            Constructor::Spread(spread) => spread.stored.map(StoredArray::signature),
            _ => None,
        }
    }

    /// What that is written in order it can be on, as a device on other devices.
    pub(super) fn in_order(&self) -> InOrder {
        match &self.constructor {
            Constructor::DeviceLayer(in_order, _) => *in_order,
            Constructor::StoredDevice(kind) => kind.in_order(),
            Constructor::Spread(spread) => spread.in_order,
            _ => InOrder::No,
        }
    }
}

/// How a word becomes a part of a running stack.
pub enum Constructor {
    Layer(&'static LayerSpec),
    FileSystem(&'static dyn FileSystemKind),
    /// Opened by the caller.
    FileSystemLeaf,
    DeviceLayer(InOrder, for<'a> fn(&'a Rt, Device, &'a Word) -> LocalBoxFuture<'a, Result<Device, BuildError>>),
    /// A device that stores its own format on the one below.
    StoredDevice(&'static dyn StoredDevice),
    /// A device over several instances of the words below it.
    Spread(&'static Spread),
    /// Made empty each time; vanishes with the stack.
    VolatileDevice(for<'a> fn(&'a Rt, &'a Word) -> LocalBoxFuture<'a, Result<Device, BuildError>>),
    /// Opened by the caller.
    DeviceLeaf,
}

/// What that is written in order a device can be on: it leaves each write in its place and in order. Linux has the same for its
/// zoned devices: dm-flakey and dm-linear, but no stripes, mirrors or snapshots.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum InOrder {
    /// It writes anywhere.
    No,
    /// Zones.
    Zones,
    /// Zones, and the spans that `zoned` makes of them.
    ZonesAndSpans,
}

/// A device over several devices, see [`Constructor::Spread`].
pub struct Spread {
    /// What its members can be.
    pub in_order: InOrder,
    /// Its stored format, if it has one.
    pub stored: Option<&'static dyn StoredArray>,
    /// The number of members.
    pub members: fn(&Word) -> u64,
    /// True when a member that cannot be opened is left out.
    pub tolerates_missing: fn(&Word) -> bool,
    #[allow(clippy::type_complexity)]
    pub make: for<'a> fn(
        &'a Rt,
        Vec<Option<Device>>,
        &'a Word,
        OpenContext,
    ) -> LocalBoxFuture<'a, Result<Device, BuildError>>,
}

/// A device that stores its own format on the one below: mkfs makes it, and it can be examined and checked even without
/// a file system on it.
#[async_trait(?Send)]
pub trait StoredDevice: Sync {
    /// What it can be on.
    fn in_order(&self) -> InOrder {
        InOrder::No
    }

    /// How its format is recognised; `None` when no file or real device can hold it.
    fn signature(&self) -> Option<&'static Signature>;

    /// Opens it; makes it first if the device below is new.
    async fn open(&self, rt: &Rt, below: Device, word: &Word, context: OpenContext) -> Result<Device, BuildError>;

    /// Recognises it on `below`; `None` when there is none.
    ///
    /// # Errors
    /// When the device cannot be read, or the format on it is damaged.
    async fn probe(&self, below: Device) -> Result<Option<Probed>, BuildError>;

    /// Checks it. Nothing is written.
    ///
    /// # Errors
    /// When the check itself cannot be done. Damage is reported in the result.
    async fn check(&self, below: Device) -> Result<Checked, BuildError>;
}

/// A device over several members that stores its own format on them: as [`StoredDevice`]. A member that cannot be
/// opened is `None`.
#[async_trait(?Send)]
pub trait StoredArray: Sync {
    /// How each member is recognised.
    fn signature(&self) -> &'static Signature;

    /// False when the options of `word` say that it stores nothing.
    fn is_stored(&self, word: &Word) -> bool;

    /// Recognises it on `members`; `None` when there is none.
    ///
    /// # Errors
    /// When the members contradict each other.
    async fn probe(&self, members: &[Option<Device>]) -> Result<Option<Probed>, BuildError>;

    /// Compares the members with each other. Corrects them if `options` say so; otherwise nothing is written.
    ///
    /// # Errors
    /// When the check itself cannot be done. Damage is reported in the result.
    async fn check(
        &self,
        rt: &Rt,
        members: Vec<Option<Device>>,
        word: &Word,
        options: CheckOptions,
    ) -> Result<Checked, BuildError>;

    /// The members' metadata, as text.
    async fn dump(&self, members: &[Option<Device>]) -> Result<String, BuildError>;
}

/// A layer, as the stack uses it.
pub struct LayerSpec {
    pub make: Make,
    /// Checks what the layer stores in the file system below, if it stores anything.
    pub check: Option<Check>,
    /// Converts the files below to its own form, or back.
    pub convert: Option<Convert>,
}

/// Puts the layer on a file system.
pub(super) type Make =
    for<'a> fn(&'a Rt, Fs, &'a Word, &'a dyn LeafOpener) -> LocalBoxFuture<'a, Result<Fs, BuildError>>;

/// See [`LayerSpec::check`].
pub type Check = for<'a> fn(
    &'a Rt,
    Fs,
    &'a Word,
    &'a dyn LeafOpener,
    CheckOptions,
) -> LocalBoxFuture<'a, Result<Checked, BuildError>>;

/// See [`LayerSpec::convert`]; the last argument is called for every file.
pub type Convert = for<'a> fn(
    &'a Rt,
    Fs,
    &'a Word,
    &'a dyn LeafOpener,
    Direction,
    &'a ProgressFn<'a>,
) -> LocalBoxFuture<'a, Result<Progress, BuildError>>;

/// Receives the progress of the work, and the next file.
pub type ProgressFn<'a> = dyn Fn(&Progress, &[u8]) + 'a;

/// What a device that stores something on its members needs to know about the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenContext {
    pub purpose: Purpose,
    /// See [`Stack::is_volatile`](super::Stack::is_volatile).
    pub is_volatile: bool,
    /// No word of the line says `discard=off`.
    pub discard: bool,
    /// See [`LeafOpener::random`].
    pub random: Option<[u64; 4]>,
}

impl OpenContext {
    /// True when the members hold no valid data.
    pub fn is_fresh(&self) -> bool {
        self.is_volatile || self.purpose == Purpose::Format
    }

    /// True when the members must not change.
    pub fn is_read_only(&self) -> bool {
        self.purpose == Purpose::Inspect
    }
}

/// Purpose of opening a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Inspection: nothing is changed, and others may read at the same time.
    Inspect,
    /// Use: reading and writing, exclusively.
    Use,
    /// Formatting: the content is lost. A missing image file is created.
    Format,
}

impl Purpose {
    /// What is done to a word of the stack, for messages.
    pub(super) fn verb(self) -> &'static str {
        match self {
            Purpose::Inspect | Purpose::Use => "open",
            Purpose::Format => "make",
        }
    }
}

/// How a file system outside the engine may be shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// With all users that leave its files as they are.
    Shared,
    /// Not at all: a layer above stores files in its own form, which another writer would destroy.
    Alone,
}

/// Opens the parts outside the engine.
#[async_trait(?Send)]
pub trait LeafOpener {
    /// Opens the block device of `word`, such as `file:a.img`.
    async fn device(&self, rt: &Rt, word: &Word, purpose: Purpose) -> Result<Device, BuildError>;

    /// Opens the file system of `word`, such as `hostdir:/srv`. For inspection it is always shared.
    async fn file_system(&self, rt: &Rt, word: &Word, purpose: Purpose, sharing: Sharing) -> Result<Fs, BuildError>;

    /// The block device at the bottom of a stack as the stack is to use it: what was opened, or something above it that
    /// watches the requests.
    fn watched(&self, _: &Rt, device: Device) -> Device {
        device
    }

    /// Unpredictable numbers, if available: the engine has none of its own. New ones with each call.
    fn random(&self) -> Option<[u64; 4]> {
        None
    }

    /// Reads the file at `path`, a key or a passphrase of `word`.
    async fn secret(&self, word: &Word, _path: &str) -> Result<Vec<u8>, BuildError> {
        Err(outside(word))
    }
}

/// A world without an outside, for virtual time.
pub struct NoLeaves;

#[async_trait(?Send)]
impl LeafOpener for NoLeaves {
    async fn device(&self, _: &Rt, word: &Word, _: Purpose) -> Result<Device, BuildError> {
        Err(outside(word))
    }

    async fn file_system(&self, _: &Rt, word: &Word, _: Purpose, _: Sharing) -> Result<Fs, BuildError> {
        Err(outside(word))
    }
}

fn outside(word: &Word) -> BuildError {
    BuildError::other(format!("`{}` lies in the real world, which cannot be reached from here", word.name()))
        .hint("use memory or a modelled disk instead")
}
