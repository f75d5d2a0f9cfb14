//! Every word of the stack line, in one table: what it is, what it takes, and how it is made.
//!
//! Errors, help, completion and the documentation all come from this table. A new file system, layer or device
//! is one more row.

use std::rc::Rc;

use super::build::Maker;
use super::file_systems::Lfs;
use super::order::Role;
use super::value::{Kind, Percent, Value};
use crate::device::{Device, Memory};
use crate::layer;
use crate::units::{KIB, MIB, Nanos};

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
    /// One line: what it is.
    pub help: &'static str,
}

impl Param {
    /// An option without default.
    pub const fn new(name: &'static str, kind: Kind, help: &'static str) -> Param {
        Param { name, kind, default: None, required: false, fixed: false, help }
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
    pub fn role(&self) -> Role {
        self.maker.role()
    }

    /// The argument, then the options.
    pub fn params(&self) -> impl Iterator<Item = &'static Param> + use<> {
        self.argument.into_iter().chain(self.options)
    }

    pub fn param(&self, name: &str) -> Option<&'static Param> {
        self.params().find(|param| param.name == name)
    }
}

/// Every word of the stack line.
pub const WORDS: &[&WordSpec] = &[&WRAP, &LFS, &HOSTDIR, &MEMFS, &MEMORY, &FILE];

/// Longest label of a file system, as with ext4 and XFS rounded up to what btrfs takes less a NUL.
const LABEL_BYTES_MAX: usize = 255;

const WRAP: WordSpec = WordSpec {
    name: "wrap",
    help: "null layer: passes everything on; the baseline for other layers [za01]",
    argument: None,
    options: &[],
    maker: Maker::Layer(|_, lower, _| Box::pin(async { Ok(layer::wrap::stack_on(lower).await?) })),
};

const LFS: WordSpec = WordSpec {
    name: "lfs",
    help: "log-structured file system [ro92] [se93]",
    argument: None,
    options: &[
        Param::new("segment", Kind::Bytes { min: 64 * KIB, max: 64 * MIB }, "size of a segment of the log")
            .default("512KiB")
            .fixed(),
        Param::new("cleaner", Kind::Choice(&["greedy", "cost-benefit"]), "which segments are cleaned first")
            .default("cost-benefit"),
        Param::new(
            "checkpoint",
            Kind::Duration { min: Nanos::from_millis(1), max: Nanos::from_secs(86_400) },
            "longest time between two checkpoints",
        )
        .default("30s"),
        Param::new("cache", Kind::Bytes { min: MIB, max: 1 << 40 }, "memory for clean and dirty blocks")
            .default("32MiB"),
        Param::new("label", Kind::Text { bytes_max: LABEL_BYTES_MAX }, "name of the file system, for people").fixed(),
        Param::new("reserve", Kind::Percent { max: Percent::new(50) }, "space kept back for the cleaner")
            .default("5%")
            .fixed(),
        Param::new("discard", Kind::Switch, "give the space of cleaned segments back to the storage below")
            .default("on"),
    ],
    maker: Maker::FileSystem(&Lfs),
};

const HOSTDIR: WordSpec = WordSpec {
    name: "hostdir",
    help: "a directory of the host",
    argument: Some(&Param::new("path", Kind::Path, "the path of a directory").required()),
    options: &[Param::new("submounts", Kind::Switch, "enter file systems that are mounted inside the directory")
        .default("off")],
    maker: Maker::FileSystemLeaf,
};

const MEMFS: WordSpec = WordSpec {
    name: "memfs",
    help: "the model file system of the tests, in memory; gone at unmount",
    argument: None,
    options: &[],
    maker: Maker::FileSystemLeaf,
};

const MEMORY: WordSpec = WordSpec {
    name: "memory",
    help: "a block device in memory; gone at unmount",
    argument: Some(
        &Param::new("size", Kind::Bytes { min: 4 * KIB, max: 1 << 40 }, "the size of the device").required(),
    ),
    options: &[],
    maker: Maker::VolatileDevice(|_, word| Box::pin(async { Ok(Rc::new(Memory::new(word.bytes("size"))) as Device) })),
};

const FILE: WordSpec = WordSpec {
    name: "file",
    help: "an image file or a block device of the host",
    argument: Some(&Param::new("path", Kind::Path, "the path of an image file or a block device").required()),
    options: &[
        Param::new("size", Kind::Bytes { min: 64 * KIB, max: 1 << 60 }, "size of the image, where mkfs makes the file"),
        Param::new("direct", Kind::Switch, "by-pass the host's page cache").default("off"),
    ],
    maker: Maker::DeviceLeaf,
};
