//! A request of a trace, of any format.

use std::fmt;

use seekless::units::{Nanos, SECTOR_BYTES, Sector};

/// One request to a block device.
///
/// Addresses are bytes, because not every format counts in sectors. That most of them are multiples of 512 is measured,
/// not assumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// When it was made, on the trace's own clock: since 1970 where the format has dates, since some start otherwise.
    pub time: Nanos,
    pub device: DeviceId,
    pub op: Op,
    pub flags: Flags,
    /// The moment of the request's life at which `time` was taken.
    pub event: Event,
    /// First byte, from the start of the device. Zero for a flush.
    pub offset: u64,
    /// Length in bytes. Zero for a flush, and for nothing else.
    pub bytes: u64,
    /// How long the request took where it was recorded, if that is known.
    pub latency: Option<Nanos>,
    /// The process that made it, where the format has it.
    pub process: Option<u32>,
    /// The processor on which it was made.
    pub cpu: Option<u32>,
}

impl Request {
    /// A request with only the essential fields.
    pub fn new(time: Nanos, op: Op, offset: u64, bytes: u64) -> Request {
        Request {
            time,
            device: DeviceId::Number(0),
            op,
            flags: Flags::NONE,
            event: Event::Issue,
            offset,
            bytes,
            latency: None,
            process: None,
            cpu: None,
        }
    }

    /// The sector in which the request begins.
    pub fn sector(&self) -> Sector {
        Sector(self.offset / SECTOR_BYTES)
    }

    /// The byte after the last.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}

/// The operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    Read,
    Write,
    Discard,
    Flush,
}

impl Op {
    pub const ALL: [Op; 4] = [Op::Read, Op::Write, Op::Discard, Op::Flush];

    pub fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Discard => "discard",
            Op::Flush => "flush",
        }
    }

    /// Place in [`Op::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// An operation by its name or by any of the letters and words that traces use for it.
    pub fn named(word: &str) -> Option<Op> {
        Op::from_word(word.as_bytes())
    }

    /// An operation by any of the words that traces use for it.
    pub(super) fn from_word(word: &[u8]) -> Option<Op> {
        let is = |names: &[&str]| names.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(word));
        if is(&["r", "read", "rd"]) {
            return Some(Op::Read);
        }
        if is(&["w", "write", "wr"]) {
            return Some(Op::Write);
        }
        if is(&["d", "discard", "trim", "unmap"]) {
            return Some(Op::Discard);
        }
        is(&["f", "flush", "sync", "datasync", "fsync"]).then_some(Op::Flush)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A moment in the life of a request, where a tracer reports several.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// The request entered the block layer, before merging and scheduling.
    Queue,
    /// It was given to the driver. Formats that report one event a request are taken to mean this one.
    Issue,
    /// It was done.
    Complete,
    /// The driver gave it back, to be issued once more. No request of a trace that was read is at this moment.
    Requeue,
}

impl Event {
    /// Those at which a request can count.
    pub const ALL: [Event; 3] = [Event::Queue, Event::Issue, Event::Complete];

    pub fn name(self) -> &'static str {
        match self {
            Event::Queue => "queue",
            Event::Issue => "issue",
            Event::Complete => "complete",
            Event::Requeue => "requeue",
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Properties of a request that some formats record.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Flags(pub u8);

impl Flags {
    pub const NONE: Flags = Flags(0);
    /// Durable on completion.
    pub const FUA: Flags = Flags(1);
    /// A task waits for it.
    pub const SYNC: Flags = Flags(2);
    /// Metadata of a file system.
    pub const META: Flags = Flags(4);
    /// Read-ahead.
    pub const AHEAD: Flags = Flags(8);

    /// Each flag with the letter that the kernel's tracers use.
    pub const LETTERS: [(Flags, u8); 4] =
        [(Flags::FUA, b'F'), (Flags::AHEAD, b'A'), (Flags::SYNC, b'S'), (Flags::META, b'M')];

    pub fn has(self, flag: Flags) -> bool {
        self.0 & flag.0 != 0
    }

    pub fn with(self, flag: Flags) -> Flags {
        Flags(self.0 | flag.0)
    }

    pub fn letters(self) -> String {
        Flags::LETTERS.iter().filter(|(flag, _)| self.has(*flag)).map(|(_, letter)| char::from(*letter)).collect()
    }

    /// Flags from letters; `None` when one is unknown.
    pub fn from_letters(letters: &[u8]) -> Option<Flags> {
        letters.iter().try_fold(Flags::NONE, |flags, letter| {
            let (flag, _) = Flags::LETTERS.iter().find(|(_, known)| known == letter)?;
            Some(flags.with(*flag))
        })
    }
}

/// Which device of the trace a request is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DeviceId {
    /// A number that the trace gives.
    Number(u32),
    /// The kernel's device number: major in the upper 12 bits, minor in the lower 20.
    Block(u32),
    /// A place in the trace's table of [`Names`].
    Named(u32),
}

impl DeviceId {
    /// `None` when there is no such device number.
    pub fn block(major: u64, minor: u64) -> Option<DeviceId> {
        (major < 1 << 12 && minor < 1 << 20).then_some(DeviceId::Block((major << 20 | minor) as u32))
    }
}

/// Names that a trace gives its devices, in the order of appearance.
#[derive(Clone, Default, Debug)]
pub struct Names {
    names: Vec<Box<[u8]>>,
    index: std::collections::BTreeMap<Box<[u8]>, u32>,
}

impl Names {
    /// Limit of named devices in one trace. A column mistaken for the device would otherwise fill the memory.
    pub const COUNT_MAX: usize = 65_536;
    const NAME_BYTES_MAX: usize = 256;

    /// The device called `name`; `None` when the table is full or the name too long.
    pub(super) fn intern(&mut self, name: &[u8]) -> Option<DeviceId> {
        if let Some(index) = self.index.get(name) {
            return Some(DeviceId::Named(*index));
        }
        if self.names.len() >= Names::COUNT_MAX || name.len() > Names::NAME_BYTES_MAX {
            return None;
        }
        let index = self.names.len() as u32;
        self.names.push(name.into());
        self.index.insert(name.into(), index);
        Some(DeviceId::Named(index))
    }

    /// The device as people write it: `3`, `259,0`, `hm_0`.
    pub fn text(&self, device: DeviceId) -> String {
        match device {
            DeviceId::Number(number) => number.to_string(),
            DeviceId::Block(number) => format!("{},{}", number >> 20, number & 0xf_ffff),
            DeviceId::Named(index) => match self.names.get(index as usize) {
                Some(name) => String::from_utf8_lossy(name).into_owned(),
                None => format!("#{index}"),
            },
        }
    }
}
