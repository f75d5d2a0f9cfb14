//! Every word of the stack line, in one table: what it is, what it takes, and how it is made.
//!
//! Errors, help, completion and the documentation all come from this table. A new file system, layer or device
//! is one more row.

use super::build::Maker;
use super::order::Role;
use super::value::{Kind, Value};
use super::{arrays, devices, ffs, layers, lfs, vld, vlfs};

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
pub const WORDS: &[&WordSpec] = &[
    &layers::WRAP,
    &layers::ZSTD,
    &layers::LZ4,
    &layers::GZIP,
    &layers::COPY,
    &layers::UUENCODE,
    &layers::ENCRYPT,
    &lfs::LFS,
    &vlfs::VLFS,
    &ffs::FFS,
    &HOSTDIR,
    &MEMFS,
    &arrays::CONCAT,
    &arrays::RAID0,
    &arrays::RAID1,
    &arrays::RAID5,
    &arrays::REMAP,
    &arrays::PERMUTE,
    &arrays::VOLUME,
    &vld::VLD,
    &devices::FORK,
    &devices::FAULT,
    &devices::MEMORY,
    &devices::FILE,
    &devices::DISK,
];

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
