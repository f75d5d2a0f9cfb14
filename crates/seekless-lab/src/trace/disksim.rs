//! Traces of simulators: DiskSim's ASCII and validation forms, and MQSim's.

use std::io::Write;

use seekless::disk::validation::Measured;
use seekless::units::{Nanos, SECTOR_BYTES};

use super::line_writer::{DeviceNumbers, Dropped, LineWriter, only_reads_and_writes, sectors};
use super::names::device_of;
use super::request::{Names, Op, Request};
use super::spec::FormatSpec;
use super::tally::Aside;
use super::text::{LineParser, MILLISECOND, Words, hex, number, plausible, time, times};

const NO_TIME: Aside = Aside::Rejected("the time is not a number");

pub(super) const DISKSIM: FormatSpec = FormatSpec {
    about: "DiskSim's ascii traces",
    shape: "ms device sector sectors flags(1=read)",
    writes: Some(|| Box::<DiskSimWriter>::default()),
    counts_sectors: true,
    ..FormatSpec::lines("disksim", |_| Box::new(DiskSim))
};

/// DiskSim's ascii form: `time-ms device sector sectors flags`, flags in base 16, whose lowest bit says read.
struct DiskSim;

impl LineParser for DiskSim {
    fn parse(&mut self, line: &[u8], out: &mut Vec<Request>) -> Result<(), Aside> {
        let mut words = Words::new(line);
        let time = time(words.word()?, MILLISECOND).ok_or(NO_TIME)?;
        let request = addressed(&mut words, time)?;
        let flags = hex(words.word()?).ok_or(Aside::Rejected("the flags are no number in base 16"))?;
        words.end()?;
        let op = if flags & 1 == 1 { Op::Read } else { Op::Write };
        out.push(plausible(Request { op, ..request })?);
        Ok(())
    }
}

/// `device sector sectors`.
fn addressed(words: &mut Words<'_>, time: Nanos) -> Result<Request, Aside> {
    let device = device_of(words.number("the device is not a number")?)?;
    let offset = times(words.number("the address is not a number")?, SECTOR_BYTES)?;
    let bytes = times(words.number("the length is not a number")?, SECTOR_BYTES)?;
    Ok(Request { device, ..Request::new(time, Op::Read, offset, bytes) })
}

#[derive(Default)]
struct DiskSimWriter {
    devices: DeviceNumbers,
}

impl LineWriter for DiskSimWriter {
    fn request(&mut self, request: &Request, _: &Names, out: &mut Vec<u8>) -> Result<(), Dropped> {
        only_reads_and_writes(request)?;
        let (sector, count) = sectors(request)?;
        let (millis, rest) = (request.time.0 / MILLISECOND, request.time.0 % MILLISECOND);
        let read = u8::from(request.op == Op::Read);
        writeln!(out, "{millis}.{rest:06} {} {sector} {count} {read}", self.devices.number(request.device)?)?;
        Ok(())
    }
}

/// The same five columns as DiskSim's, but whole nanoseconds; DiskSim prints milliseconds with a fraction.
pub(super) const MQSIM: FormatSpec = FormatSpec {
    about: "MQSim's traces",
    shape: "ns device sector sectors 1=read|0=write",
    writes: Some(|| Box::<MqsimWriter>::default()),
    counts_sectors: true,
    preferred_to: Some((
        "disksim",
        "the times are whole numbers, so they are taken for MQSim's nanoseconds (for milliseconds say --format disksim)",
    )),
    ..FormatSpec::lines("mqsim", |_| Box::new(Mqsim))
};

/// MQSim's form: `time-ns device sector sectors type`, where one is a read.
struct Mqsim;

impl LineParser for Mqsim {
    fn parse(&mut self, line: &[u8], out: &mut Vec<Request>) -> Result<(), Aside> {
        let mut words = Words::new(line);
        let time = Nanos(number(words.word()?).ok_or(Aside::Rejected("the time is no whole number of nanoseconds"))?);
        let request = addressed(&mut words, time)?;
        let op = match words.word()? {
            b"0" => Op::Write,
            b"1" => Op::Read,
            _ => return Err(Aside::Rejected("the operation is none of this format")),
        };
        words.end()?;
        out.push(plausible(Request { op, ..request })?);
        Ok(())
    }
}

#[derive(Default)]
struct MqsimWriter {
    devices: DeviceNumbers,
}

impl LineWriter for MqsimWriter {
    fn request(&mut self, request: &Request, _: &Names, out: &mut Vec<u8>) -> Result<(), Dropped> {
        only_reads_and_writes(request)?;
        let (sector, count) = sectors(request)?;
        let read = u8::from(request.op == Op::Read);
        writeln!(out, "{} {} {sector} {count} {read}", request.time.0, self.devices.number(request.device)?)?;
        Ok(())
    }
}

pub(super) const VALIDATION: FormatSpec = FormatSpec {
    about: "DiskSim's validation traces",
    shape: "R|W hit sector sectors service-us think-us",
    has_latency: true,
    counts_sectors: true,
    ..FormatSpec::lines("validation", |_| Box::<Validation>::default())
};

/// DiskSim's validation form: `R|W buffer-action sector sectors service-us think-us`. A request arrives the think time
/// after the completion of the previous one.
#[derive(Default)]
struct Validation {
    now: Nanos,
}

impl LineParser for Validation {
    fn parse(&mut self, line: &[u8], out: &mut Vec<Request>) -> Result<(), Aside> {
        let text = std::str::from_utf8(line).map_err(|_| Aside::Rejected("the line is not text"))?;
        let measured = Measured::parse(text)
            .map_err(|_| Aside::Rejected("the line is not `R|W action sector sectors service-us think-us`"))?;
        let offset = times(measured.request.sector.0, SECTOR_BYTES)?;
        let bytes = u64::from(measured.request.sectors) * SECTOR_BYTES;
        let op = if measured.request.write { Op::Write } else { Op::Read };
        let request = Request { latency: Some(measured.service), ..Request::new(self.now, op, offset, bytes) };
        out.push(plausible(request)?);
        let next = self.now.0.checked_add(measured.service.0).and_then(|done| done.checked_add(measured.think.0));
        self.now = Nanos(next.ok_or(NO_TIME)?);
        Ok(())
    }
}
