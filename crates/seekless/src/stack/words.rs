//! Every word of the stack line, in one table: what it is, what it takes, and how it is made.
//!
//! Errors, help, completion and the documentation all come from this table. A new file system, layer or device
//! is one more row.

use std::rc::Rc;

use super::Word;
use super::build::{Maker, Trouble};
use super::lfs::Lfs;
use super::order::Role;
use super::value::{Kind, Percent, Value};
use crate::device::{Device, Memory};
use crate::disk::{self, Disk, Drive, Scheduler};
use crate::layer;
use crate::rt::Rt;
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
pub const WORDS: &[&WordSpec] = &[&WRAP, &LFS, &HOSTDIR, &MEMFS, &MEMORY, &FILE, &DISK];

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
        Param::new(
            "segment",
            // The format's own limits: FORMAT.md, "Layout".
            Kind::Bytes { min: 128 * KIB, max: 32 * MIB },
            "size of a segment of the log, otherwise chosen by the size of the volume",
        )
        .fixed(),
        Param::new("reserve", Kind::Percent { max: Percent::new(50) }, "space kept back for the cleaner")
            .default("5%")
            .fixed(),
        Param::new("label", Kind::Text { bytes_max: 63 }, "name of the file system, for people").fixed(),
        Param::new("uuid", Kind::Uuid, "name of the file system, for programs; drawn by mkfs").fixed(),
        Param::new("cleaner", Kind::Choice(&["greedy", "cost-benefit"]), "which segments are cleaned first")
            .default("cost-benefit"),
        Param::new("checkpoint", INTERVAL, "longest time between two checkpoints [ro92 §4.1]").default("30s"),
        Param::new("write-back", INTERVAL, "longest time that a change waits in memory").default("5s"),
        Param::new("cache", Kind::Bytes { min: MIB, max: 1 << 40 }, "memory for blocks that are on the device")
            .default("32MiB"),
        Param::new("dirty", Kind::Bytes { min: MIB, max: 1 << 40 }, "memory for blocks that are to be written")
            .default("16MiB"),
        Param::new("discard", Kind::Switch, "give the space of cleaned segments back to the storage below")
            .default("on"),
        Param::new(
            "indirect",
            Kind::Choice(&["checkpoint", "log"]),
            "when indirect blocks are written: at checkpoints, or with every transaction as in [ro92]",
        )
        .default("checkpoint"),
        Param::new("ro", Kind::Switch, "change nothing").default("off"),
    ],
    maker: Maker::FileSystem(&Lfs),
};

/// A time after which something is done anyhow.
const INTERVAL: Kind = Kind::Duration { min: Nanos::from_millis(1), max: Nanos::from_secs(86_400) };

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

const DISK: WordSpec = WordSpec {
    name: "disk",
    help: "a modelled disk, whose bytes are in memory and gone at unmount",
    argument: Some(
        &Param::new("drive", Kind::Name(|| Drive::names().collect()), "the name of a drive, such as dec-rz26")
            .required(),
    ),
    options: &[Param::new(
        "scheduler",
        Kind::Choice(&["clook", "fcfs", "sptf", "sstf"]),
        "which waiting request is served next: one-way elevator, first come first served, shortest positioning \
         time, shortest seek",
    )
    .default("clook")],
    maker: Maker::VolatileDevice(|rt, word| Box::pin(async { new_disk(rt.clone(), word) })),
};

fn new_disk(rt: Rt, word: &Word) -> Result<Device, Trouble> {
    let name = word.choice("drive");
    let Some(drive) = Drive::named(name) else {
        return Err(Trouble::other(format!("there is no drive `{name}`"))); // The name was read from the same list.
    };
    let scheduler = match word.choice("scheduler") {
        "fcfs" => Scheduler::Fcfs,
        "sptf" => Scheduler::Sptf { age_micros: 0 },
        "sstf" => Scheduler::Sstf,
        _ => Scheduler::CLook,
    };
    let disk = Disk::new(rt, drive, disk::Options { scheduler, keep_bytes: true });
    Ok(Rc::new(disk.map_err(|error| Trouble::other(error.to_string()))?))
}
