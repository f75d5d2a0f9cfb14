//! VMware's vscsi traces, as CloudPhysics published them: records of 32 bytes (version 1) or 40 (version 2).
//!
//! | version 1 | version 2 | field, little-endian |
//! |---|---|---|
//! | 0 | 4 | sequence, u32 |
//! | 4 | 8 | length in bytes, u32 |
//! | 8 | 12 | scatter-gather elements, u32 |
//! | 12 | 0 | SCSI command, u16 |
//! | 14 | 2 | version: 0x100, 0x200, u16 |
//! | 16 | 16 | sector, u64 |
//! | 24 | 24 | time in microseconds, u64 |
//! | - | 32 | response time, in an undocumented unit: not used |
//!
//! The description of the data set says that lengths are sectors; the traces themselves show bytes (512 where the next
//! request is one sector on).

use seekless::units::{Nanos, SECTOR_BYTES};

use super::line_writer::{Dropped, LineWriter, OneDevice};
use super::records::{RecordParser, RecordReader};
use super::request::{Names, Op, Request};
use super::spec::FormatSpec;
use super::tally::Aside;
use super::text::{MICROSECOND, plausible, times};

const NOTE: &str = "lengths are taken for bytes; response times are not used, as their unit is unknown";

pub(super) const VSCSI1: FormatSpec = FormatSpec {
    about: "VMware vscsi, version 1, as of CloudPhysics",
    shape: "records of 32 bytes: sector, bytes, us",
    writes: Some(|| Box::new(VscsiWriter::new(1))),
    time_unit: MICROSECOND,
    note: Some(NOTE),
    ..FormatSpec::records(
        "vscsi1",
        |sample| holds(1, sample),
        |input, _| Box::new(RecordReader::new(input, Vscsi::new(1))),
    )
};

pub(super) const VSCSI2: FormatSpec = FormatSpec {
    about: "VMware vscsi, version 2",
    shape: "records of 40 bytes: sector, bytes, us",
    writes: Some(|| Box::new(VscsiWriter::new(2))),
    time_unit: MICROSECOND,
    note: Some(NOTE),
    ..FormatSpec::records(
        "vscsi2",
        |sample| holds(2, sample),
        |input, _| Box::new(RecordReader::new(input, Vscsi::new(2))),
    )
};

/// Layout of a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Layout {
    record: usize,
    length: usize,
    command: usize,
    version: usize,
    number: u16,
}

const LAYOUTS: [Layout; 2] = [
    Layout { record: 32, length: 4, command: 12, version: 14, number: 0x100 },
    Layout { record: 40, length: 8, command: 0, version: 2, number: 0x200 },
];

const SECTOR_AT: usize = 16;
const TIME_AT: usize = 24;

fn u16_at(record: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([record[at], record[at + 1]])
}

fn u32_at(record: &[u8], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&record[at..at + 4]);
    u32::from_le_bytes(bytes)
}

fn u64_at(record: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&record[at..at + 8]);
    u64::from_le_bytes(bytes)
}

/// Why a trace that begins with `sample` is of `expected`; `None` if it is not.
fn holds(expected: u8, sample: &[u8]) -> Option<String> {
    (version(sample) == Some(expected))
        .then(|| format!("every record in its beginning has the version number of vscsi {expected}"))
}

/// The version for which `sample` consists of valid records.
fn version(sample: &[u8]) -> Option<u8> {
    let all = |layout: &Layout| {
        let mut records = sample.chunks_exact(layout.record).peekable();
        records.peek().is_some() && records.all(|record| u16_at(record, layout.version) == layout.number)
    };
    LAYOUTS.iter().position(all).map(|index| index as u8 + 1)
}

/// The operation of a SCSI command: commands of 6, 10, 12 and 16 bytes.
pub(super) fn op(command: u16) -> Result<Op, Aside> {
    Ok(match command {
        0x08 | 0x28 | 0xa8 | 0x88 => Op::Read,
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0x8e => Op::Write,
        0x41 | 0x93 => return Err(Aside::Skipped("WRITE SAME, which may or may not be a discard")),
        0x42 => return Err(Aside::Skipped("UNMAP, whose places are not in the trace")),
        0x35 | 0x91 => Op::Flush,
        _ => return Err(Aside::Skipped("another SCSI command")),
    })
}

struct Vscsi(Layout);

impl Vscsi {
    fn new(version: u8) -> Vscsi {
        Vscsi(LAYOUTS[usize::from(version == 2)])
    }
}

impl RecordParser for Vscsi {
    fn length(&mut self, _: &[u8]) -> Option<usize> {
        Some(self.0.record)
    }

    fn parse(&mut self, record: &[u8], out: &mut Vec<Request>) -> Result<(), Aside> {
        let layout = self.0;
        if u16_at(record, layout.version) != layout.number {
            return Err(Aside::Rejected("a record of another version"));
        }
        let op = op(u16_at(record, layout.command))?;
        let time = u64_at(record, TIME_AT).checked_mul(MICROSECOND).ok_or(Aside::Rejected("the time is too late"))?;
        let bytes = u64::from(u32_at(record, layout.length));
        let offset = times(u64_at(record, SECTOR_AT), SECTOR_BYTES)?;
        out.push(plausible(Request::new(Nanos(time), op, offset, bytes))?);
        Ok(())
    }
}

struct VscsiWriter {
    layout: Layout,
    sequence: u32,
    device: OneDevice,
}

impl VscsiWriter {
    fn new(version: u8) -> VscsiWriter {
        VscsiWriter { layout: LAYOUTS[usize::from(version == 2)], sequence: 0, device: OneDevice::default() }
    }
}

impl LineWriter for VscsiWriter {
    fn request(&mut self, request: &Request, _: &Names, out: &mut Vec<u8>) -> Result<(), Dropped> {
        let Ok(length) = u32::try_from(request.bytes) else {
            return Err(Dropped::Reason("is longer than 4 GiB"));
        };
        if !request.offset.is_multiple_of(SECTOR_BYTES) {
            return Err(Dropped::Reason("does not begin at a sector"));
        }
        let command: u16 = match request.op {
            Op::Read => 0x28,
            Op::Write => 0x2a,
            // UNMAP has its places in its data, not in the command.
            Op::Discard => return Err(Dropped::Reason("is a discard, which the format has not")),
            Op::Flush => 0x35,
        };
        self.device.check(request.device)?;
        let layout = self.layout;
        let start = out.len();
        out.resize(start + layout.record, 0);
        let record = &mut out[start..];
        let sequence = if layout.record == 32 { 0 } else { 4 };
        record[sequence..sequence + 4].copy_from_slice(&self.sequence.to_le_bytes());
        record[layout.length..layout.length + 4].copy_from_slice(&length.to_le_bytes());
        record[layout.command..layout.command + 2].copy_from_slice(&command.to_le_bytes());
        record[layout.version..layout.version + 2].copy_from_slice(&layout.number.to_le_bytes());
        record[SECTOR_AT..SECTOR_AT + 8].copy_from_slice(&(request.offset / SECTOR_BYTES).to_le_bytes());
        record[TIME_AT..TIME_AT + 8].copy_from_slice(&(request.time.0 / MICROSECOND).to_le_bytes());
        self.sequence = self.sequence.wrapping_add(1);
        Ok(())
    }
}
