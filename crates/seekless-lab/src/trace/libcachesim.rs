//! Formats of libCacheSim's collection of traces: oracleGeneral, and the text in which it has CloudPhysics' traces.
//!
//! | byte | field of oracleGeneral, little-endian |
//! |---|---|
//! | 0 | time in seconds, u32 |
//! | 4 | object, u64 |
//! | 12 | bytes, u32 |
//! | 16 | number of the next request to the same object, i64; -1, or 2^63 - 1, where there is none |
//!
//! It is made for caches: it says neither what is read nor what is written, and an object has no place. Objects of block
//! traces are the addresses of the requests, in blocks. Where they are hashes, distances mean nothing: `oracleGeneral:hash` gives each
//! object a place of its own, spread over [`HASHED_BYTES`].

use std::sync::Arc;

use seekless::units::{SECTOR_BYTES, human_bytes};

use super::input::Input;
use super::line_writer::{Dropped, LineWriter, OneDevice, only_reads_and_writes, sectors};
use super::records::{RecordParser, RecordReader};
use super::request::{Names, Op, Request};
use super::seconds::Spread;
use super::spec::{Described, Evidence, FormatSpec, ReaderOptions, Recognised, Variants};
use super::tally::Aside;
use super::text::{Fields, LineParser, MICROSECOND, Reader, SECOND, number, plausible, times};

pub(super) const ORACLE_GENERAL: FormatSpec = FormatSpec {
    about: "libCacheSim's oracleGeneral, objects as sectors of 512 bytes",
    shape: "records of 24 bytes: second, object, bytes",
    time_unit: SECOND,
    note: Some(
        "the format has no operations, so all are reads; objects are taken for sectors of 512 bytes (another size: --format \
         oracleGeneral:BYTES; hashes: oracleGeneral:hash); the requests of each second are spread evenly over it, in order",
    ),
    ..FormatSpec::records("oracleGeneral", is_oracle_general, |input, _| {
        Box::new(RecordReader::new(input, OracleGeneral::new(Objects::Blocks(SECTOR_BYTES))))
    })
};

pub(super) const ORACLE_GENERAL_BYTES: FormatSpec = FormatSpec {
    about: "the same, objects as blocks of another size, or hash: as hashes",
    shape: "records of 24 bytes: second, object, bytes",
    time_unit: SECOND,
    ..FormatSpec::described("oracleGeneral", "BYTES", "4096", |text| match (text, text.parse()) {
        ("hash", _) => Ok(Arc::new(Objects::Hashes)),
        (_, Ok(block_bytes)) if block_bytes > 0 => Ok(Arc::new(Objects::Blocks(block_bytes))),
        _ => Err(format!("`{text}` is neither a block size in bytes nor hash")),
    })
};

/// What objects are taken for.
#[derive(Clone, Copy, Debug)]
enum Objects {
    /// Addresses, in blocks of this many bytes.
    Blocks(u64),
    /// Hashes, which have no order: each names one of the places of [`HASHED_BYTES`].
    Hashes,
}

/// Hashed objects lie in this much, which drives of today have, at multiples of [`HASHED_PLACE_BYTES`].
const HASHED_BYTES: u64 = 1 << 40;
const HASHED_PLACE_BYTES: u64 = 4096;

impl Objects {
    fn offset(self, object: u64) -> Result<u64, Aside> {
        match self {
            Objects::Blocks(block_bytes) => times(object, block_bytes).map_err(|_| {
                Aside::Rejected("the object is beyond 2^64 bytes; if objects are hashes: --format oracleGeneral:hash")
            }),
            Objects::Hashes => Ok(object % (HASHED_BYTES / HASHED_PLACE_BYTES) * HASHED_PLACE_BYTES),
        }
    }
}

impl Described for Objects {
    fn text(&self) -> String {
        match self {
            Objects::Blocks(block_bytes) => block_bytes.to_string(),
            Objects::Hashes => "hash".to_owned(),
        }
    }

    fn parser(&self, _: &ReaderOptions<'_>) -> Option<Box<dyn LineParser>> {
        None
    }

    fn reader(&self, input: Input) -> Box<dyn Reader> {
        Box::new(RecordReader::new(input, OracleGeneral::new(*self)))
    }

    fn note(&self) -> Option<String> {
        let taken = match self {
            Objects::Blocks(block_bytes) => format!("blocks of {block_bytes} bytes"),
            Objects::Hashes => format!(
                "hashes, so each has a place at random in {}: distances between requests mean nothing",
                human_bytes(HASHED_BYTES)
            ),
        };
        Some(format!(
            "the format has no operations, so all are reads; objects are taken for {taken}; the requests of each second are \
             spread evenly over it, in order"
        ))
    }
}

const RECORD_BYTES: usize = 24;

/// A record in its parts.
struct Record {
    second: u32,
    object: u64,
    bytes: u32,
    next: i64,
}

impl Record {
    fn of(record: &[u8]) -> Option<Record> {
        Some(Record {
            second: u32::from_le_bytes(*record.first_chunk()?),
            object: u64::from_le_bytes(*record.get(4..)?.first_chunk()?),
            bytes: u32::from_le_bytes(*record.get(12..)?.first_chunk()?),
            next: i64::from_le_bytes(*record.get(16..)?.first_chunk()?),
        })
    }
}

/// Records that are needed to recognise the format by what they say.
const EVIDENCE: usize = 4;

/// There is no magic number. But times do not fall, sizes are not absurd and at most half of them 0, and the next request to an object
/// comes later.
fn is_oracle_general(sample: &[u8]) -> Option<String> {
    /// No request of a cache trace is larger.
    const BYTES_MAX: u32 = 1 << 30;
    /// Requests of the longest traces of the collection, and some.
    const REQUESTS_MAX: i64 = 1 << 40;
    let mut second = 0;
    let (mut seen, mut empty) = (0, 0);
    for (number, record) in sample.chunks_exact(RECORD_BYTES).enumerate() {
        let record = Record::of(record)?;
        let is_last = record.next == -1 || record.next == i64::MAX;
        let is_later = (number as i64..REQUESTS_MAX).contains(&record.next) && record.next > 0;
        if record.second < second || record.bytes > BYTES_MAX || !(is_last || is_later) {
            return None;
        }
        second = record.second;
        seen += 1;
        empty += usize::from(record.bytes == 0);
    }
    (seen >= EVIDENCE && empty * 2 <= seen)
        .then(|| "in its beginning, times do not fall, and each record names a later request or none".to_owned())
}

struct OracleGeneral {
    objects: Objects,
    spread: Spread,
}

impl OracleGeneral {
    fn new(objects: Objects) -> OracleGeneral {
        OracleGeneral { objects, spread: Spread::default() }
    }
}

impl RecordParser for OracleGeneral {
    fn length(&mut self, _: &[u8]) -> Option<usize> {
        Some(RECORD_BYTES)
    }

    fn parse(&mut self, record: &[u8], out: &mut Vec<Request>) -> Result<(), Aside> {
        let Some(Record { second, object, bytes, .. }) = Record::of(record) else {
            return Err(Aside::Rejected("a short record"));
        };
        let second = u64::from(second);
        let time = Spread::time(second).unwrap_or_default();
        let offset = self.objects.offset(object)?;
        let request = plausible(Request::new(time, Op::Read, offset, u64::from(bytes)))?;
        self.spread.add(second, request, out);
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<Request>) {
        self.spread.finish(out);
    }
}

const HEADER: &[u8] = b"version,time,op,size,lbn";

pub(super) const CLOUDPHYSICS: FormatSpec = FormatSpec {
    about: "CloudPhysics as text, of libCacheSim",
    shape: "version,s|us,SCSI command in hexadecimal,bytes,sector",
    writes: Some(|| Box::<CloudPhysicsWriter>::default()),
    recognised: Recognised::ByBeginning(|sample| {
        let is_it = sample.get(..HEADER.len()).is_some_and(|start| start.eq_ignore_ascii_case(HEADER));
        is_it.then(|| "its first line is the header of that format".to_owned())
    }),
    variants: Some(Variants {
        decide: decide_unit,
        undecided: "its times may be seconds, as in the published file, or microseconds, as in the binary traces, and its \
                    beginning does not tell which: say --format cloudphysics:s or --format cloudphysics:us",
    }),
    ..FormatSpec::lines("cloudphysics", |_| Unit::Microseconds.new_parser())
};

pub(super) const CLOUDPHYSICS_UNIT: FormatSpec = FormatSpec {
    about: "the same, times in s or us",
    shape: "version,s|us,SCSI command in hexadecimal,bytes,sector",
    ..FormatSpec::described("cloudphysics", "UNIT", "s", |text| match text {
        "s" => Ok(Arc::new(Unit::Seconds)),
        "us" => Ok(Arc::new(Unit::Microseconds)),
        _ => Err(format!("`{text}` is no unit of these times: s or us")),
    })
};

/// Unit of the times. The published file has whole seconds; texts that were made from the binary traces have the
/// microseconds of those, under the same header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unit {
    Seconds,
    Microseconds,
}

impl Unit {
    fn new_parser(self) -> Box<dyn LineParser> {
        Box::new(CloudPhysics { unit: self, spread: Spread::default() })
    }
}

impl Described for Unit {
    fn text(&self) -> String {
        match self {
            Unit::Seconds => "s".to_owned(),
            Unit::Microseconds => "us".to_owned(),
        }
    }

    fn parser(&self, _: &ReaderOptions<'_>) -> Option<Box<dyn LineParser>> {
        Some(self.new_parser())
    }

    fn note(&self) -> Option<String> {
        let times = match self {
            Unit::Seconds => {
                "seconds (microseconds: --format cloudphysics:us), and the requests of each whole second are spread evenly over it, in order"
            }
            Unit::Microseconds => "microseconds (seconds: --format cloudphysics:s)",
        };
        Some(format!("lengths are taken for bytes, addresses for sectors of 512 bytes, times for {times}"))
    }
}

/// Seconds since 1970 reach this in the year 2286, microseconds since a machine was started in three hours.
const SECONDS_MAX: u64 = 10_000_000_000;

/// Times that are needed to decide by how they grow.
const TIMES_MIN: u64 = 8;

/// The unit of the times in these lines, by what one of the two would mean:
///
/// 1. a fraction of a microsecond was never recorded;
/// 2. a time beyond [`SECONDS_MAX`] is no number of seconds;
/// 3. less than a microsecond from request to request is faster than any disk of these machines;
/// 4. where many requests have the time of the one before, and yet more than a microsecond lies between them on average,
///    they come in bursts that a second holds and a microsecond does not;
/// 5. where hardly any of many has, and the times grow by less than a million a request, a second would hardly ever have held
///    two requests.
fn decide_unit(lines: &[&[u8]]) -> Option<Evidence> {
    const MANY: u64 = 4;
    const FEW: u64 = 64;
    let (mut count, mut equal, mut last) = (0_u64, 0_u64, None);
    let (mut first, mut latest) = (u64::MAX, 0);
    for line in lines {
        let mut fields = Fields::new(line, b',');
        let (Ok(_), Ok(time)) = (fields.field(), fields.field()) else { continue };
        if time.contains(&b'.') && super::text::time(time, SECOND).is_some() {
            return Some(("s", "its times have fractions, as seconds do".to_owned()));
        }
        let Some(time) = number(time) else { continue };
        if time >= SECONDS_MAX {
            return Some((
                "us",
                "its times would be centuries if they were seconds, so they are microseconds".to_owned(),
            ));
        }
        count += 1;
        equal += u64::from(last == Some(time));
        last = Some(time);
        (first, latest) = (first.min(time), latest.max(time));
    }
    if count < TIMES_MIN {
        return None;
    }
    let grown = latest - first;
    if grown < count {
        let why = format!("its times grow by {grown} over {count} requests, so they are seconds");
        return Some(("s", why));
    }
    if equal * MANY >= count {
        let why = format!("{equal} of {count} requests have the time of the one before, so the times are seconds");
        return Some(("s", why));
    }
    if count >= FEW && equal * FEW <= count && grown / count <= 1_000_000 {
        let why = format!("{equal} of {count} requests have the time of the one before, so the times are microseconds");
        return Some(("us", why));
    }
    None
}

/// `version,time,op,size,lbn`: the same fields as in the binary traces of the collection.
struct CloudPhysics {
    unit: Unit,
    spread: Spread,
}

impl LineParser for CloudPhysics {
    fn parse(&mut self, line: &[u8], out: &mut Vec<Request>) -> Result<(), Aside> {
        const NO_TIME: Aside = Aside::Rejected("the time is not a number");
        let mut fields = Fields::new(line, b',');
        if fields.field()?.eq_ignore_ascii_case(b"version") {
            return Err(Aside::Skipped("header"));
        }
        let time = fields.field()?;
        let op = super::vscsi::op(
            hexadecimal(fields.field()?).ok_or(Aside::Rejected("the command is no hexadecimal number"))?,
        )?;
        let bytes = fields.number("the length is not a number")?;
        let offset = times(fields.number("the address is not a number")?, SECTOR_BYTES)?;
        fields.end()?;
        let whole_second = number(time).filter(|_| self.unit == Unit::Seconds);
        if let Some(second) = whole_second {
            let time = Spread::time(second).ok_or(Aside::Rejected("the time is too late"))?;
            self.spread.add(second, plausible(Request::new(time, op, offset, bytes))?, out);
            return Ok(());
        }
        let unit = if self.unit == Unit::Seconds { SECOND } else { MICROSECOND };
        let request = plausible(Request::new(super::text::time(time, unit).ok_or(NO_TIME)?, op, offset, bytes))?;
        self.spread.finish(out);
        out.push(request);
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<Request>) {
        self.spread.finish(out);
    }
}

/// With or without 0x.
fn hexadecimal(text: &[u8]) -> Option<u16> {
    let text = text.trim_ascii();
    let digits = text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X")).unwrap_or(text);
    let is_plain = digits.first().is_some_and(u8::is_ascii_hexdigit);
    is_plain.then(|| u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()).flatten()
}

/// Seconds, as in the published file, and their fractions, which say that they are seconds.
#[derive(Default)]
struct CloudPhysicsWriter {
    device: OneDevice,
}

impl LineWriter for CloudPhysicsWriter {
    fn header(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(HEADER);
        out.push(b'\n');
    }

    fn request(&mut self, request: &Request, _: &Names, out: &mut Vec<u8>) -> Result<(), Dropped> {
        use std::io::Write;
        only_reads_and_writes(request)?;
        let (sector, _) = sectors(request)?;
        self.device.check(request.device)?;
        let command = if request.op == Op::Read { "28" } else { "2a" };
        let (seconds, rest) = (request.time.0 / SECOND, request.time.0 % SECOND);
        writeln!(out, "1,{seconds}.{rest:09},{command},{},{sector}", request.bytes)?;
        Ok(())
    }
}
