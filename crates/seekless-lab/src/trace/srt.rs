//! HP Labs' SRT: the traces of hplajw, snake and cello of 1992 that DiskSim's authors and many after them used. A header
//! of text ends at a form feed; big-endian records follow, each of which says how long it is.
//!
//! | byte | field, 4 bytes each |
//! |---|---|
//! | 0 | bytes of the record |
//! | 4 | version (1 to 4) in the upper half, kind in the lower: 1 is a request, 4 one that the tracer doubts |
//! | 8, 12 | seconds and microseconds since the header's `tracedate` |
//! | 16, 20 | start and end of its service, microseconds after that |
//! | 24 | bytes |
//! | 28 | block |
//! | 32 | device; the disk is in the second byte from below |
//! | 36, 40 | type of the driver, cylinder |
//! | 44 | flags: 1 is a read, 0x100 asynchronous, 0x01000000 synchronous |
//! | 48, 52 | further information; length of the queue (version 4) |
//!
//! The traces name no size of a block. HP-UX counts in DEV_BSIZE, 1 KiB.

use std::sync::Arc;

use seekless::units::Nanos;

use super::input::Input;
use super::records::{RecordParser, RecordReader};
use super::request::{DeviceId, Flags, Op, Request};
use super::spec::{Described, FormatSpec, ReaderOptions};
use super::tally::Aside;
use super::text::{LineParser, MICROSECOND, Reader, SECOND, plausible, times};

/// DEV_BSIZE of HP-UX.
const BLOCK_BYTES: u64 = 1024;

pub(super) const SRT: FormatSpec = FormatSpec {
    about: "HP Labs' SRT, in blocks of 1 KiB",
    shape: "a header, and big-endian records of 52 bytes or more",
    has_latency: true,
    time_unit: MICROSECOND,
    note: Some(
        "addresses are taken for blocks of 1 KiB (another size: --format srt:BYTES); times begin with the trace; a latency is \
         that until the end of the service",
    ),
    ..FormatSpec::records("srt", is_srt, |input, _| Box::new(RecordReader::new(input, Srt::new(BLOCK_BYTES))))
};

pub(super) const SRT_BYTES: FormatSpec = FormatSpec {
    about: "the same, in blocks of another size",
    shape: "a header, and big-endian records of 52 bytes or more",
    has_latency: true,
    time_unit: MICROSECOND,
    ..FormatSpec::described("srt", "BYTES", "512", |text| match text.parse() {
        Ok(block_bytes) if block_bytes > 0 => Ok(Arc::new(Blocks(block_bytes))),
        _ => Err(format!("`{text}` is no block size in bytes")),
    })
};

/// SRT with blocks of this many bytes.
#[derive(Debug)]
struct Blocks(u64);

impl Described for Blocks {
    fn text(&self) -> String {
        self.0.to_string()
    }

    fn parser(&self, _: &ReaderOptions<'_>) -> Option<Box<dyn LineParser>> {
        None
    }

    fn reader(&self, input: Input) -> Box<dyn Reader> {
        Box::new(RecordReader::new(input, Srt::new(self.0)))
    }

    fn note(&self) -> Option<String> {
        Some(format!("addresses are taken for blocks of {} bytes; times begin with the trace", self.0))
    }
}

/// Byte offsets in a record.
mod at {
    pub(super) const ID: usize = 4;
    pub(super) const SECONDS: usize = 8;
    pub(super) const MICROSECONDS: usize = 12;
    pub(super) const END: usize = 20;
    pub(super) const BYTES: usize = 24;
    pub(super) const BLOCK: usize = 28;
    pub(super) const DEVICE: usize = 32;
    pub(super) const FLAGS: usize = 44;
}

/// Records have thirteen fields at least, and no version has more than sixteen.
const SIZES: std::ops::RangeInclusive<u32> = 52..=64;

const REQUEST: u32 = 1;
const SUSPECT: u32 = 4;

const READ: u32 = 1;
const SYNCHRONOUS: u32 = 0x0100_0000;

/// The character behind the header.
const FORM_FEED: u8 = 0x0c;

/// No header is longer.
const HEADER_MAX: usize = 32 << 10;

fn field(record: &[u8], at: usize) -> u32 {
    record.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// The size of the record with which `window` begins, if it can be one.
fn size(window: &[u8]) -> Option<usize> {
    let (size, id) = (field(window, 0), field(window, at::ID));
    let is_record = SIZES.contains(&size) && (1..=4).contains(&(id >> 16)) && matches!(id & 0xffff, REQUEST | SUSPECT);
    is_record.then_some(size as usize)
}

/// Length of the header, with its last character; `None` when there is none.
fn header(sample: &[u8]) -> Option<usize> {
    let beginning = &sample[..sample.len().min(HEADER_MAX)];
    let end = beginning.iter().position(|&byte| byte == FORM_FEED)? + 1;
    let is_text = beginning[..end].windows(9).any(|word| word == b"tracedate");
    is_text.then_some(end)
}

fn is_srt(sample: &[u8]) -> Option<String> {
    let start = header(sample).unwrap_or(0);
    let first = size(&sample[start..])?;
    // A second one, unless there is only one.
    let next = sample.get(start + first..)?;
    let is_followed = next.len() < *SIZES.start() as usize || size(next).is_some();
    is_followed.then(|| match start {
        0 => "its records are those of SRT".to_owned(),
        _ => "it has the header of SRT, and its records".to_owned(),
    })
}

struct Srt {
    block_bytes: u64,
    /// What comes next may be a header.
    is_beginning: bool,
    /// Bytes that are no record: reported once for each run of them.
    is_lost: bool,
}

impl Srt {
    fn new(block_bytes: u64) -> Srt {
        Srt { block_bytes, is_beginning: true, is_lost: false }
    }
}

impl RecordParser for Srt {
    fn length(&mut self, window: &[u8]) -> Option<usize> {
        if window.len() < at::SECONDS {
            return None;
        }
        if let Some(size) = size(window) {
            self.is_beginning = false;
            return Some(size);
        }
        if self.is_beginning {
            match header(window) {
                Some(length) => return Some(length),
                None if window.len() < HEADER_MAX => return None,
                None => self.is_beginning = false,
            }
        }
        // To where the next record may be.
        let next = (1..window.len() - at::SECONDS + 1).find(|&start| size(&window[start..]).is_some());
        Some(next.unwrap_or(window.len() - at::SECONDS + 1))
    }

    fn parse(&mut self, record: &[u8], out: &mut Vec<Request>) -> Result<(), Aside> {
        if size(record) != Some(record.len()) {
            if std::mem::take(&mut self.is_beginning) && header(record) == Some(record.len()) {
                return Err(Aside::Skipped("header"));
            }
            return match std::mem::replace(&mut self.is_lost, true) {
                false => Err(Aside::Rejected("bytes that are no record")),
                true => Err(Aside::Skipped("more bytes that are no record")),
            };
        }
        self.is_lost = false;
        if field(record, at::ID) & 0xffff == SUSPECT {
            return Err(Aside::Skipped("a request that the tracer doubts"));
        }
        let microseconds = u64::from(field(record, at::MICROSECONDS));
        let time = u64::from(field(record, at::SECONDS)) * SECOND + microseconds * MICROSECOND;
        let offset = times(u64::from(field(record, at::BLOCK)), self.block_bytes)?;
        let flags = field(record, at::FLAGS);
        let op = if flags & READ != 0 { Op::Read } else { Op::Write };
        let latency = i32::try_from(field(record, at::END)).ok().filter(|end| *end > 0);
        out.push(plausible(Request {
            device: DeviceId::Number((field(record, at::DEVICE) >> 8) & 0xff),
            flags: if flags & SYNCHRONOUS != 0 { Flags::SYNC } else { Flags::NONE },
            latency: latency.map(|end| Nanos(end as u64 * MICROSECOND)),
            ..Request::new(Nanos(time), op, offset, u64::from(field(record, at::BYTES)))
        })?);
        Ok(())
    }
}
