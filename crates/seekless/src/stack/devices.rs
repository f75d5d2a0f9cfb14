//! The words of block devices: memory, files, modelled disks, and pass-through devices.

use std::borrow::Cow;
use std::rc::Rc;

use super::drives::DRIVE_FILE;
use super::error::{BuildError, StackError};
use super::spec::{Constructor, InOrder, Param, Property, WordSpec};
use super::value::{ParamKind, Percent};
use super::{Stack, Word};
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::device::fork::ForkDevice;
use crate::device::{Device, Memory};
use crate::disk::{DataSheet, Disk, Drive, Options, Overhead, Scheduler};
use crate::rt::Rt;
use crate::units::{KIB, Nanos};

pub(super) const MEMORY: WordSpec = WordSpec {
    name: "memory",
    help: "a block device in memory; gone at unmount",
    argument: Some(
        &Param::new("size", ParamKind::Bytes { min: 4 * KIB, max: 1 << 40 }, "the size of the device").required(),
    ),
    options: &[],
    properties: &[Property::KnowsUnwritten],
    constructor: Constructor::VolatileDevice(|_, word| {
        Box::pin(async { Ok(Rc::new(Memory::new(word.bytes("size"))) as Device) })
    }),
};

pub(super) const FILE: WordSpec = WordSpec {
    name: "file",
    help: "an image file or a block device of the host",
    argument: Some(&Param::new("path", ParamKind::Path, "the path of an image file or a block device").required()),
    options: &[
        Param::new(
            "size",
            ParamKind::Bytes { min: 64 * KIB, max: 1 << 60 },
            "size of the image, where mkfs makes the file",
        )
        .only_mkfs(),
        Param::new(
            "direct",
            ParamKind::Choice(&["auto", "on", "off"]),
            "by-pass the host's page cache; auto: where that is faster",
        )
        .default("auto"),
    ],
    properties: &[],
    constructor: Constructor::DeviceLeaf,
};

/// Names of the modelled drives.
fn drives() -> Vec<&'static str> {
    Drive::names().collect()
}

/// The syntax for a drive that is not in the catalogue.
pub const DATA_SHEET_FORM: &str =
    "or a drive file: disk:file=my-drive.toml, or a data sheet: disk:size=1GiB,rpm=5400,seek=10ms,rate=4MB";

/// Options that describe a drive known only from its data sheet.
const SHEET: [&str; 4] = ["size", "rpm", "seek", "rate"];

pub(super) const DISK: WordSpec = WordSpec {
    name: "disk",
    help: "a modelled disk drive, from the catalogue, from a drive file, or from a data sheet's size, rpm, seek and rate",
    argument: Some(&Param::new(
        "drive",
        ParamKind::Name { catalogue: drives, otherwise: DATA_SHEET_FORM },
        "a drive in the catalogue",
    )),
    options: &[
        Param::new(
            "scheduler",
            ParamKind::Choice(&["clook", "fcfs", "sstf", "sptf"]),
            "which waiting request is next; without it, what the drive file says, or clook",
        ),
        Param::new(
            "age",
            ParamKind::Integer { min: 0, max: 1_000_000 },
            "with sptf: microseconds that a request gains for each millisecond it waits",
        )
        .default("0"),
        Param::new("keep", ParamKind::Switch, "store the data; without it, only the times are right").default("on"),
        Param::new(
            "overhead",
            ParamKind::Switch,
            "what each command costs; off where what is inside the drive pays it itself",
        )
        .default("on"),
        Param::new(
            "cache",
            ParamKind::Switch,
            "what the drive reads ahead and writes behind; off: each request waits for the medium",
        )
        .default("on"),
        Param::new(
            "request",
            ParamKind::Bytes { min: 4 * KIB, max: 32 << 20 },
            "largest request that the host issues: 64KiB for the machines of [se95] (default what SCSI allows)",
        ),
        Param::new(DRIVE_FILE, ParamKind::Path, "a drive file, for a drive that is not in the catalogue"),
        Param::new(
            "size",
            ParamKind::Bytes { min: 1 << 20, max: 1 << 50 },
            "capacity of a drive of which only a data sheet is known",
        ),
        Param::new("rpm", ParamKind::Integer { min: 60, max: 100_000 }, "its revolutions a minute"),
        Param::new("seek", ParamKind::Duration { min: Nanos::ZERO, max: Nanos::from_secs(1) }, "its average seek"),
        Param::new("rate", ParamKind::Bytes { min: 1 << 10, max: 1 << 40 }, "its media rate, in bytes a second"),
    ],
    properties: &[],
    constructor: Constructor::VolatileDevice(|rt, word| Box::pin(async { make_disk(rt, word) })),
};

fn make_disk(rt: &Rt, word: &Word) -> Result<Device, BuildError> {
    let drive = drive(word)?;
    let scheduler = scheduler(word, &drive);
    let request_bytes_max = match word.given("request") {
        Some(_) => u32::try_from(word.bytes("request") / (4 * KIB) * (4 * KIB)).unwrap_or(u32::MAX),
        None => Options::default().request_bytes_max,
    };
    let options = Options { scheduler, keep_bytes: word.switch("keep"), request_bytes_max };
    let drive = match word.switch("overhead") {
        true => drive,
        false => Cow::Owned(Drive { overhead: Overhead::NONE, ..drive.into_owned() }),
    };
    let drive = match word.switch("cache") {
        true => drive,
        false => {
            let drive = drive.into_owned();
            Cow::Owned(Drive { cache: drive.cache.off(), ..drive })
        }
    };
    let disk = Disk::new(rt.clone(), &drive, options).map_err(|error| BuildError::other(error.to_string()))?;
    Ok(Rc::new(disk))
}

/// What the line says, what the drive says, or C-LOOK.
pub(super) fn scheduler(word: &Word, drive: &Drive) -> Scheduler {
    let age_micros = u32::try_from(word.integer("age")).unwrap_or(u32::MAX);
    match word.given("scheduler").map(|_| word.choice("scheduler")) {
        Some("fcfs") => Scheduler::Fcfs,
        Some("sstf") => Scheduler::Sstf,
        Some("sptf") => Scheduler::Sptf { age_micros },
        Some(_) => Scheduler::CLook,
        None => match drive.scheduler.unwrap_or_default() {
            Scheduler::Sptf { .. } if word.given("age").is_some() => Scheduler::Sptf { age_micros },
            scheduler => scheduler,
        },
    }
}

/// The drive of a `disk` word.
pub(super) fn drive(word: &Word) -> Result<Cow<'static, Drive>, BuildError> {
    let given = |key: &&&str| word.given(key).is_some();
    if let Some(path) = word.text(DRIVE_FILE) {
        if word.given("drive").is_some() {
            let problem = "a drive of the catalogue needs no drive file; leave one of them out";
            return Err(BuildError::Option { key: DRIVE_FILE, problem: problem.into() });
        }
        return match SHEET.iter().find(given) {
            Some(key) => Err(BuildError::Option { key, problem: "a drive file has its own".into() }),
            None => Ok(Cow::Owned(word.drive_of(path)?.clone())),
        };
    }
    match (word.given("drive"), SHEET.iter().find(given)) {
        (Some(_), None) => {
            let name = word.choice("drive");
            let found = Drive::named(name).ok_or_else(|| BuildError::other(format!("no drive is called `{name}`")))?;
            Ok(Cow::Borrowed(found))
        }
        (Some(_), Some(key)) => {
            let problem = "a drive of the catalogue has its own";
            Err(BuildError::Option { key, problem: problem.into() })
        }
        (None, _) => {
            if let Some(missing) = SHEET.iter().find(|key| !given(key)) {
                let problem = format!("`disk` needs a drive of the catalogue, or `{missing}` as well");
                let hint = format!("drives: {}; {DATA_SHEET_FORM}", drives().join(", "));
                return Err(BuildError::other(problem).hint(hint));
            }
            let rpm = u32::try_from(word.integer("rpm")).unwrap_or(u32::MAX);
            let sheet = DataSheet::new(rpm, word.duration("seek"), word.bytes("size"), word.bytes("rate"));
            sheet.drive().map(Cow::Owned).map_err(|error| BuildError::other(error.to_string()))
        }
    }
}

pub(super) const FORK: WordSpec = WordSpec {
    name: "fork",
    help: "copy on write: changes stay in memory and are gone at unmount, what is below stays as it is",
    argument: None,
    options: &[],
    properties: &[],
    constructor: Constructor::DeviceLayer(InOrder::No, |_, below, _| {
        Box::pin(async { Ok(ForkDevice::new(below) as Device) })
    }),
};

/// Chances of failure, each with the kinds of request and the effect.
const FAULTS: [(&str, Kinds, Effect); 4] = [
    ("read-errors", Kinds::READ, Effect::Error),
    ("write-errors", Kinds::WRITE, Effect::Error),
    ("flush-errors", Kinds::FLUSH, Effect::Error),
    ("no-space", Kinds::WRITE.union(Kinds::PROVISION), Effect::NoSpace),
];

const CHANCE: ParamKind = ParamKind::Percent { max: Percent::ALL };

pub(super) const FAULT: WordSpec = WordSpec {
    name: "fault",
    help: "fails or delays requests at random",
    argument: None,
    options: &[
        Param::new("read-errors", CHANCE, "share of reads that fail").default("0%"),
        Param::new("write-errors", CHANCE, "share of writes that fail, with part of them done").default("0%"),
        Param::new("flush-errors", CHANCE, "share of flushes that fail").default("0%"),
        Param::new("no-space", CHANCE, "share of writes for which there is no space").default("0%"),
        Param::new(
            "delay",
            ParamKind::Duration { min: Nanos::ZERO, max: Nanos::from_secs(3600) },
            "longest time by which a request starts later",
        )
        .default("0ns"),
        Param::new("seed", ParamKind::Integer { min: 0, max: u64::MAX }, "seed of what is drawn").default("1"),
    ],
    properties: &[],
    constructor: Constructor::DeviceLayer(InOrder::ZonesAndSpans, |rt, below, word| {
        Box::pin(async { Ok(make_fault(rt, below, word)) })
    }),
};

fn make_fault(rt: &Rt, below: Device, word: &Word) -> Device {
    let device = FaultDevice::new(rt, below, word.integer("seed").wrapping_add(word.instance() as u64));
    for (key, kinds, effect) in FAULTS {
        let hundredths = word.percent(key).hundredths;
        if hundredths > 0 {
            let when = When::Chance { numerator: hundredths.into(), denominator: Percent::ALL.hundredths.into() };
            device.add(Rule::new(kinds, when, effect));
        }
    }
    let delay = word.duration("delay");
    if delay > Nanos::ZERO {
        device.add(Rule::new(Kinds::all(), When::Always, Effect::Delay(Nanos::ZERO..=delay)));
    }
    device
}

impl Stack {
    /// The drive of a stack that is one modelled disk, such as `disk:cheetah9lp`.
    ///
    /// # Errors
    /// When it is something else, or when its figures are inconsistent.
    pub fn drive(&self) -> Result<Cow<'static, Drive>, StackError> {
        match &self.words[..] {
            [word] if word.name() == DISK.name => drive(word).map_err(|cause| self.blame(word, "make", cause)),
            [first, ..] => {
                let problem = "this is no single modelled disk";
                let hint = "for example: disk:cheetah9lp, or disk:size=1GiB,rpm=5400,seek=10ms,rate=4MB";
                Err(StackError::new(&self.line, first.name_span.clone(), problem).hint(hint))
            }
            [] => unreachable!("S1"),
        }
    }
}
