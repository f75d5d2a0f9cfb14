//! fio's I/O logs, versions 2 and 3.
//!
//! `file add|open|close` and `file read|write|sync|datasync|trim offset length`. In version 3 each line begins with a
//! time stamp in microseconds; version 2 has `file wait microseconds`, relative to the previous wait. Addresses are
//! bytes.

use std::io::Write;

use seekless::units::Nanos;

use super::line_writer::{DeviceTexts, Dropped, LineWriter};
use super::names::{DeviceNames, SharedNames};
use super::request::{DeviceId, Names, Op, Request};
use super::spec::{FormatSpec, Recognised};
use super::tally::Aside;
use super::text::{LineParser, MICROSECOND, Words, plausible, time};

pub(super) const IOLOG2: FormatSpec = FormatSpec {
    about: "fio's log, version 2, from its first request on",
    shape: "file read|write|sync|trim|wait bytes bytes",
    relative_times: true,
    recognised: Recognised::ByBeginning(|sample| begins_with(2, sample)),
    writes: Some(|| Box::new(IologWriter::new(2))),
    time_unit: MICROSECOND,
    ..FormatSpec::lines("iolog2", |options| Box::new(Iolog::new(options.names.clone())))
};

pub(super) const IOLOG3: FormatSpec = FormatSpec {
    about: "fio's log, version 3",
    shape: "us file read|write|sync|trim bytes bytes",
    recognised: Recognised::ByBeginning(|sample| begins_with(3, sample)),
    writes: Some(|| Box::new(IologWriter::new(3))),
    time_unit: MICROSECOND,
    note: Some("times are taken for microseconds, as fio 3 writes them"),
    ..FormatSpec::lines("iolog3", |options| Box::new(Iolog::new(options.names.clone())))
};

const HEADER: &[u8] = b"fio version ";

/// Why a log that begins with `sample` is of `version`; `None` if it is not.
fn begins_with(expected: u8, sample: &[u8]) -> Option<String> {
    let first = sample.trim_ascii_start().split(|&byte| byte == b'\n').next()?;
    (version(first) == Some(expected)).then(|| format!("it begins with `fio version {expected} iolog`"))
}

/// The version that the first line of a log names.
fn version(line: &[u8]) -> Option<u8> {
    match line.strip_prefix(HEADER)?.trim_ascii() {
        b"2 iolog" => Some(2),
        b"3 iolog" => Some(3),
        _ => None,
    }
}

struct Iolog {
    names: DeviceNames,
    version: Option<u8>,
    /// Version 2: the sum of the waits.
    waited: Nanos,
}

impl Iolog {
    fn new(names: SharedNames) -> Iolog {
        Iolog { names: DeviceNames::new(names), version: None, waited: Nanos::ZERO }
    }
}

impl LineParser for Iolog {
    fn parse(&mut self, line: &[u8], out: &mut Vec<Request>) -> Result<(), Aside> {
        if line.starts_with(HEADER) {
            let version = version(line).ok_or(Aside::Rejected("a version of the log that is neither 2 nor 3"))?;
            self.version = Some(version);
            return Err(Aside::Skipped("header"));
        }
        let no_version = Aside::Rejected("there is no line `fio version 2 iolog` or `fio version 3 iolog` before");
        let version = self.version.ok_or(no_version)?;
        let mut words = Words::new(line);
        let stamp = match version {
            3 => Some(time(words.word()?, MICROSECOND).ok_or(Aside::Rejected("the time is not a number"))?),
            _ => None,
        };
        let name = words.word()?;
        let action = words.word()?;
        if matches!(action, b"add" | b"open" | b"close") {
            words.end()?;
            return Err(Aside::Skipped("a file is added, opened or closed"));
        }
        let (offset, bytes) =
            (words.number("the address is not a number")?, words.number("the length is not a number")?);
        words.end()?;
        if action == b"wait" && version == 2 {
            let wait = offset.checked_mul(MICROSECOND).and_then(|wait| self.waited.0.checked_add(wait));
            self.waited = Nanos(wait.ok_or(Aside::Rejected("the wait is too long"))?);
            return Err(Aside::Skipped("wait"));
        }
        let op = match action {
            b"read" => Op::Read,
            b"write" => Op::Write,
            b"trim" => Op::Discard,
            b"sync" | b"datasync" => Op::Flush,
            _ => return Err(Aside::Rejected("the action is none of this format")),
        };
        let device = self.names.device(name)?;
        let time = stamp.unwrap_or(self.waited);
        out.push(plausible(Request { device, ..Request::new(time, op, offset, bytes) })?);
        Ok(())
    }
}

/// Writes version 2 or 3. A device without a name becomes the file `disk-n`.
struct IologWriter {
    version: u8,
    opened: Vec<DeviceId>,
    devices: DeviceTexts,
    /// Version 2: the time up to which waits have been written, from that of the first request on. Dates would begin with
    /// a wait of decades.
    waited: Option<Nanos>,
}

impl IologWriter {
    fn new(version: u8) -> IologWriter {
        assert!(matches!(version, 2 | 3));
        IologWriter { version, opened: Vec::new(), devices: DeviceTexts::default(), waited: None }
    }
}

/// fio reads file names of at most this many bytes.
const NAME_BYTES_MAX: usize = 255;

impl LineWriter for IologWriter {
    fn header(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("fio version {} iolog\n", self.version).as_bytes());
    }

    fn request(&mut self, request: &Request, names: &Names, out: &mut Vec<u8>) -> Result<(), Dropped> {
        let Request { time, device, offset, bytes, .. } = *request;
        if bytes > u64::from(u32::MAX) {
            return Err(Dropped::Reason("is longer than 4 GiB"));
        }
        let text = names.text(device);
        let name = match device {
            DeviceId::Named(_) => text.replace(char::is_whitespace, "_"),
            _ => format!("disk-{}", text.replace(',', "-")),
        };
        if name.len() > NAME_BYTES_MAX {
            return Err(Dropped::Reason("is of a device whose name is too long"));
        }
        self.devices.check(&name, device)?;
        let micros = time.0 / MICROSECOND;
        let stamp = if self.version == 3 { format!("{micros} ") } else { String::new() };
        if !self.opened.contains(&device) {
            writeln!(out, "{stamp}{name} add\n{stamp}{name} open")?;
            self.opened.push(device);
        }
        if self.version == 2 {
            let waited = *self.waited.get_or_insert(time);
            let wait = micros.saturating_sub(waited.0 / MICROSECOND);
            if wait > 0 {
                writeln!(out, "{name} wait {wait} 0")?;
                self.waited = Some(time);
            }
        }
        let action = match request.op {
            Op::Read => "read",
            Op::Write => "write",
            Op::Discard => "trim",
            Op::Flush => "sync",
        };
        writeln!(out, "{stamp}{name} {action} {offset} {bytes}")?;
        Ok(())
    }
}
