//! The text formats in which collections of block traces were published: MSR Cambridge, SPC, Alibaba, Tencent, FIU
//! and SYSTOR '17.
//!
//! Each has a reader and a writer, side by side, so that knowledge about a format is in one place.

use std::io::Write;
use std::sync::Arc;

use seekless::units::{Nanos, SECTOR_BYTES};

use super::line_writer::{DeviceNumbers, DeviceTexts, Dropped, LineWriter, only_reads_and_writes, sectors};
use super::names::{DeviceNames, SharedNames, device_of};
use super::request::{DeviceId, Event, Flags, Names, Op, Request};
use super::seconds::Spread;
use super::spec::{Described, FormatSpec, ReaderOptions};
use super::tally::Aside;
use super::text::{Fields, LineParser, MICROSECOND, SECOND, TIME_MAX, Words, number, plausible, time, times};

const NO_TIME: Aside = Aside::Rejected("the time is not a number");
const NO_OP: Aside = Aside::Rejected("the operation is none of this format");
const NO_OFFSET: &str = "the address is not a number";
const NO_LENGTH: &str = "the length is not a number";
const NO_DEVICE: &str = "the device is not a number";

pub(super) const MSR: FormatSpec = FormatSpec {
    about: "MSR Cambridge, FAST '08",
    shape: "time-100ns,host,disk,Read|Write,bytes,bytes,response-100ns",
    writes: Some(|| Box::<MsrWriter>::default()),
    has_latency: true,
    latency_required: true,
    time_unit: FILE_TIME_UNIT,
    devices_called: Some(msr_devices),
    ..FormatSpec::lines("msr", |options| Box::new(Msr::new(options.names.clone())))
};

/// MSR Cambridge, FAST '08: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`, times in Windows file time,
/// which counts 100 ns since 1601, addresses in bytes. A device is a host and one of its disks.
///
/// A response time of zero is one that is not known: no disk answers within 100 ns. One below zero, which a clock that was put back
/// leaves, is not known either: the request counts, and so does what was left out of it. A time of zero, or any other before 1970, is
/// no moment to issue a request at: the line is rejected. Times that go back are for [`super::order`].
struct Msr {
    names: DeviceNames,
    /// `host,disk` of the previous line, and its device.
    last: Vec<u8>,
    device: DeviceId,
}

/// 100 ns between 1601-01-01 and 1970-01-01.
pub(super) const FILE_TIME_OF_1970: u64 = 116_444_736_000_000_000;
pub(super) const FILE_TIME_UNIT: u64 = 100;

impl Msr {
    fn new(names: SharedNames) -> Msr {
        Msr { names: DeviceNames::new(names), last: Vec::new(), device: DeviceId::Number(0) }
    }
}

impl LineParser for Msr {
    fn parse(&mut self, line: &[u8], out: &mut Vec<Request>) -> Result<(), Aside> {
        let mut fields = Fields::new(line, b',');
        let first = fields.field()?;
        let Some(ticks) = number(first) else {
            return Err(if first.eq_ignore_ascii_case(b"timestamp") { Aside::Skipped("header") } else { NO_TIME });
        };
        let from_host = fields.rest();
        let (host, disk) = (fields.field()?, fields.field()?);
        let both = &from_host[..from_host.len() - fields.rest().len()];
        let op = match fields.field()? {
            b"Read" => Op::Read,
            b"Write" => Op::Write,
            word => Op::from_word(word).filter(|op| matches!(op, Op::Read | Op::Write)).ok_or(NO_OP)?,
        };
        let (offset, bytes) = (fields.number(NO_OFFSET)?, fields.number(NO_LENGTH)?);
        let response = fields.field()?;
        fields.end()?;
        let (latency, usable) = match msr_response(response) {
            Ok(latency) => (latency, Ok(())),
            Err(aside @ Aside::InPart(_)) => (None, Err(aside)),
            Err(aside) => return Err(aside),
        };
        let since_1970 = ticks
            .checked_sub(FILE_TIME_OF_1970)
            .ok_or(Aside::Rejected("the time is zero or before 1970, so it is no Windows file time"))?;
        if self.last != both {
            self.device = self.names.device(&[host, b"_", disk].concat())?;
            self.last.clear();
            self.last.extend_from_slice(both);
        }
        let device = self.device;
        let time = Nanos(since_1970.checked_mul(FILE_TIME_UNIT).ok_or(NO_TIME)?);
        out.push(plausible(Request { device, latency, ..Request::new(time, op, offset, bytes) })?);
        usable
    }
}

/// A response time, if it is known.
///
/// # Errors
/// It is no number, or none that a request can take.
fn msr_response(text: &[u8]) -> Result<Option<Nanos>, Aside> {
    const NO_NUMBER: Aside = Aside::Rejected("the response time is not a number");
    if let Some(below_zero) = text.strip_prefix(b"-") {
        number(below_zero).ok_or(NO_NUMBER)?;
        return Err(Aside::InPart("the response time is below zero, taken for unknown"));
    }
    // Beyond the limit is one below zero that was written without its sign.
    match number(text).ok_or(NO_NUMBER)?.checked_mul(FILE_TIME_UNIT).map(Nanos) {
        Some(latency) if latency <= TIME_MAX => Ok((latency > Nanos::ZERO).then_some(latency)),
        _ => Err(Aside::InPart("the response time is beyond 2^63 ns, taken for unknown")),
    }
}

/// In the form that [`Msr`] reads. A device without a name is disk `n` of host `disk`; an unknown response time is
/// zero.
#[derive(Default)]
struct MsrWriter {
    devices: DeviceTexts,
}

impl LineWriter for MsrWriter {
    fn request(&mut self, request: &Request, names: &Names, out: &mut Vec<u8>) -> Result<(), Dropped> {
        only_reads_and_writes(request)?;
        let word = if request.op == Op::Read { "Read" } else { "Write" };
        let text = names.text(request.device).replace(',', ":");
        let (host, disk) = match (request.device, text.rsplit_once('_')) {
            (DeviceId::Named(_), Some((host, disk))) => (host, disk),
            (DeviceId::Named(_), None) => (&text[..], "0"),
            _ => ("disk", &text[..]),
        };
        self.devices.check(&format!("{host},{disk}"), request.device)?;
        let ticks = request.time.0 / FILE_TIME_UNIT + FILE_TIME_OF_1970;
        let response = request.latency.unwrap_or_default().0 / FILE_TIME_UNIT;
        writeln!(out, "{ticks},{host},{disk},{word},{},{},{response}", request.offset, request.bytes)?;
        Ok(())
    }
}

/// `host,disk` is as it is in the file; a number is what [`MsrWriter`] makes disk `n` of host `disk`.
fn msr_devices(called: &str) -> Vec<String> {
    vec![called.replacen(',', "_", 1), format!("disk_{}", called.replace(',', ":"))]
}

/// Default bytes of an SPC block: those of UMass.
const SPC_BLOCK_BYTES: u64 = 512;

pub(super) const SPC: FormatSpec = FormatSpec {
    about: "SPC-1 and UMass, in blocks of 512 bytes",
    shape: "asu,block,bytes,r|w,seconds",
    writes: Some(|| Box::new(SpcWriter::new(SPC_BLOCK_BYTES))),
    note: Some("addresses are taken for blocks of 512 bytes (another size: --format spc:BYTES)"),
    ..FormatSpec::lines("spc", |_| Box::new(Spc { block_bytes: SPC_BLOCK_BYTES }))
};

pub(super) const SPC_BYTES: FormatSpec = FormatSpec {
    about: "the same, in blocks of another size",
    shape: "asu,block,bytes,r|w,seconds",
    ..FormatSpec::described("spc", "BYTES", "4096", |text| match text.parse() {
        Ok(block_bytes) if block_bytes > 0 => Ok(Arc::new(SpcBlocks(block_bytes))),
        _ => Err(format!("`{text}` is no block size in bytes")),
    })
};

/// SPC with blocks of this many bytes.
#[derive(Debug)]
struct SpcBlocks(u64);

impl Described for SpcBlocks {
    fn text(&self) -> String {
        self.0.to_string()
    }

    fn parser(&self, _: &ReaderOptions<'_>) -> Option<Box<dyn LineParser>> {
        Some(Box::new(Spc { block_bytes: self.0 }))
    }

    fn writer(&self) -> Option<Box<dyn LineWriter>> {
        Some(Box::new(SpcWriter::new(self.0)))
    }

    fn note(&self) -> Option<String> {
        Some(format!("addresses are taken for blocks of {} bytes", self.0))
    }
}

/// SPC-1 and UMass: `ASU,LBA,Size,Opcode,Timestamp` and perhaps more. The size is in bytes, the address in blocks
/// "of the size given in the description", 512 bytes at UMass. Each ASU is a device.
struct Spc {
    block_bytes: u64,
}

impl LineParser for Spc {
    fn parse(&mut self, line: &[u8], out: &mut Vec<Request>) -> Result<(), Aside> {
        let mut fields = Fields::new(line, b',');
        let device = device_of(fields.number("the ASU is not a number")?)?;
        let offset = times(fields.number(NO_OFFSET)?, self.block_bytes)?;
        let bytes = fields.number(NO_LENGTH)?;
        let op = match fields.field()? {
            b"R" | b"r" => Op::Read,
            b"W" | b"w" => Op::Write,
            _ => return Err(NO_OP),
        };
        let time = time(fields.field()?, SECOND).ok_or(NO_TIME)?;
        out.push(plausible(Request { device, ..Request::new(time, op, offset, bytes) })?);
        Ok(())
    }
}

struct SpcWriter {
    block_bytes: u64,
    devices: DeviceNumbers,
}

impl SpcWriter {
    fn new(block_bytes: u64) -> SpcWriter {
        SpcWriter { block_bytes, devices: DeviceNumbers::default() }
    }
}

impl LineWriter for SpcWriter {
    fn request(&mut self, request: &Request, _: &Names, out: &mut Vec<u8>) -> Result<(), Dropped> {
        only_reads_and_writes(request)?;
        let Request { time, device, offset, bytes, .. } = *request;
        if offset % self.block_bytes != 0 {
            return Err(Dropped::Reason("does not begin at a block"));
        }
        let (asu, lba) = (self.devices.number(device)?, offset / self.block_bytes);
        let letter = if request.op == Op::Read { 'R' } else { 'W' };
        writeln!(out, "{asu},{lba},{bytes},{letter},{}.{:09}", time.0 / SECOND, time.0 % SECOND)?;
        Ok(())
    }
}

pub(super) const ALIBABA: FormatSpec = FormatSpec {
    about: "Alibaba Cloud 2020",
    shape: "device,R|W,bytes,bytes,us",
    writes: Some(|| Box::<AlibabaWriter>::default()),
    time_unit: MICROSECOND,
    ..FormatSpec::lines("alibaba", |_| Box::new(Alibaba))
};

/// Alibaba Cloud 2020: `device_id,opcode,offset,length,timestamp`, in bytes and microseconds since 1970.
struct Alibaba;

impl LineParser for Alibaba {
    fn parse(&mut self, line: &[u8], out: &mut Vec<Request>) -> Result<(), Aside> {
        let mut fields = Fields::new(line, b',');
        let first = fields.field()?;
        let Some(device) = number(first) else {
            let header = first.eq_ignore_ascii_case(b"device_id");
            return Err(if header { Aside::Skipped("header") } else { Aside::Rejected(NO_DEVICE) });
        };
        let device = device_of(device)?;
        let op = match fields.field()? {
            b"R" => Op::Read,
            b"W" => Op::Write,
            _ => return Err(NO_OP),
        };
        let (offset, bytes) = (fields.number(NO_OFFSET)?, fields.number(NO_LENGTH)?);
        let time = time(fields.field()?, MICROSECOND).ok_or(NO_TIME)?;
        fields.end()?;
        out.push(plausible(Request { device, ..Request::new(time, op, offset, bytes) })?);
        Ok(())
    }
}

#[derive(Default)]
struct AlibabaWriter {
    devices: DeviceNumbers,
}

impl LineWriter for AlibabaWriter {
    fn request(&mut self, request: &Request, _: &Names, out: &mut Vec<u8>) -> Result<(), Dropped> {
        only_reads_and_writes(request)?;
        let Request { time, device, offset, bytes, .. } = *request;
        let letter = if request.op == Op::Read { 'R' } else { 'W' };
        writeln!(out, "{},{letter},{offset},{bytes},{}", self.devices.number(device)?, time.0 / MICROSECOND)?;
        Ok(())
    }
}

pub(super) const TENCENT: FormatSpec = FormatSpec {
    about: "Tencent CBS, ATC '20",
    shape: "seconds,sector,sectors,0=read|1=write,volume",
    writes: Some(|| Box::<TencentWriter>::default()),
    counts_sectors: true,
    time_unit: SECOND,
    note: Some("times are whole seconds: the requests of each are spread evenly over it, in order"),
    ..FormatSpec::lines("tencent", |_| Box::<Tencent>::default())
};

/// Tencent CBS, ATC '20: `Timestamp,Offset,Size,IOType,VolumeID`, in whole seconds and sectors, 0 for read and 1 for
/// write.
///
/// A second holds many requests, in order.
#[derive(Default)]
struct Tencent(Spread);

impl LineParser for Tencent {
    fn parse(&mut self, line: &[u8], out: &mut Vec<Request>) -> Result<(), Aside> {
        let mut fields = Fields::new(line, b',');
        let first = fields.field()?;
        let Some(second) = number(first) else {
            return Err(if first.eq_ignore_ascii_case(b"timestamp") { Aside::Skipped("header") } else { NO_TIME });
        };
        let offset = times(fields.number(NO_OFFSET)?, SECTOR_BYTES)?;
        let bytes = times(fields.number(NO_LENGTH)?, SECTOR_BYTES)?;
        let op = match fields.field()? {
            b"0" => Op::Read,
            b"1" => Op::Write,
            _ => return Err(NO_OP),
        };
        let device = device_of(fields.number(NO_DEVICE)?)?;
        fields.end()?;
        let time = Spread::time(second).ok_or(NO_TIME)?;
        let request = plausible(Request { device, ..Request::new(time, op, offset, bytes) })?;
        self.0.add(second, request, out);
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<Request>) {
        self.0.finish(out);
    }
}

#[derive(Default)]
struct TencentWriter {
    devices: DeviceNumbers,
}

impl LineWriter for TencentWriter {
    fn request(&mut self, request: &Request, _: &Names, out: &mut Vec<u8>) -> Result<(), Dropped> {
        only_reads_and_writes(request)?;
        let (sector, count) = sectors(request)?;
        let kind = u8::from(request.op == Op::Write);
        writeln!(out, "{},{sector},{count},{kind},{}", request.time.0 / SECOND, self.devices.number(request.device)?)?;
        Ok(())
    }
}

pub(super) const SYSTOR17: FormatSpec = FormatSpec {
    about: "SYSTOR '17",
    shape: "seconds,response-seconds,R|W,lun,bytes,bytes",
    writes: Some(|| Box::<Systor17Writer>::default()),
    has_latency: true,
    note: Some("times are exact to microseconds, whatever the digits say"),
    ..FormatSpec::lines("systor17", |_| Box::new(Systor17))
};

/// SYSTOR '17: `Timestamp,Response,IOType,LUN,Offset,Size`, in seconds and bytes.
struct Systor17;

impl LineParser for Systor17 {
    fn parse(&mut self, line: &[u8], out: &mut Vec<Request>) -> Result<(), Aside> {
        let mut fields = Fields::new(line, b',');
        let first = fields.field()?;
        let Some(when) = time(first, SECOND) else {
            return Err(if first.eq_ignore_ascii_case(b"timestamp") { Aside::Skipped("header") } else { NO_TIME });
        };
        let response = fields.field()?;
        let op = match fields.field()? {
            b"R" => Op::Read,
            b"W" => Op::Write,
            b"" => return Err(Aside::Rejected("no operation")),
            _ => return Err(NO_OP),
        };
        let device = device_of(fields.number("the LUN is not a number")?)?;
        let (offset, bytes) = (fields.number(NO_OFFSET)?, fields.number(NO_LENGTH)?);
        fields.end()?;
        let latency = match response {
            b"" => None,
            response => Some(time(response, SECOND).ok_or(Aside::Rejected("the response time is not a number"))?),
        };
        out.push(plausible(Request { device, latency, ..Request::new(when, op, offset, bytes) })?);
        Ok(())
    }
}

#[derive(Default)]
struct Systor17Writer {
    devices: DeviceNumbers,
}

impl LineWriter for Systor17Writer {
    fn header(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"Timestamp,Response,IOType,LUN,Offset,Size\n");
    }

    fn request(&mut self, request: &Request, _: &Names, out: &mut Vec<u8>) -> Result<(), Dropped> {
        only_reads_and_writes(request)?;
        let Request { time, device, offset, bytes, .. } = *request;
        let letter = if request.op == Op::Read { 'R' } else { 'W' };
        write!(out, "{}.{:09},", time.0 / SECOND, time.0 % SECOND)?;
        if let Some(latency) = request.latency {
            write!(out, "{}.{:09}", latency.0 / SECOND, latency.0 % SECOND)?;
        }
        writeln!(out, ",{letter},{},{offset},{bytes}", self.devices.number(device)?)?;
        Ok(())
    }
}

pub(super) const FIU: FormatSpec = FormatSpec {
    about: "FIU's IODedup and SRCMap",
    shape: "ns pid process sector sectors W|R major minor md5",
    counts_sectors: true,
    ..FormatSpec::lines("fiu", |_| Box::new(Fiu))
};

/// FIU (IODedup, SRCMap): `time-ns pid process sector sectors W|R major minor MD5`. The files are called `.blkparse`,
/// but blkparse did not write them.
struct Fiu;

impl LineParser for Fiu {
    fn parse(&mut self, line: &[u8], out: &mut Vec<Request>) -> Result<(), Aside> {
        // The process may have blanks in its name, so the line is read from both ends.
        let mut words = Words::new(line);
        let when = time(words.word()?, 1).ok_or(NO_TIME)?;
        let process = words.number("the process number is not a number")?;
        let mut from_end = words.rest().rsplit(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
        let mut last = || from_end.next().ok_or(Aside::Rejected("too few fields"));
        let hash = last()?;
        let (minor, major) = (number(last()?), number(last()?));
        let op = match last()? {
            b"R" => Op::Read,
            b"W" => Op::Write,
            _ => return Err(NO_OP),
        };
        let length = number(last()?).ok_or(Aside::Rejected(NO_LENGTH))?;
        let sector = number(last()?).ok_or(Aside::Rejected(NO_OFFSET))?;
        last()?; // The process's name.
        if !hash.iter().all(u8::is_ascii_hexdigit) {
            return Err(Aside::Rejected("the last field is no hash"));
        }
        let device = major.zip(minor).and_then(|(major, minor)| DeviceId::block(major, minor));
        let device = device.ok_or(Aside::Rejected("there is no such device number"))?;
        let (offset, bytes) = (times(sector, SECTOR_BYTES)?, times(length, SECTOR_BYTES)?);
        let process = u32::try_from(process).ok();
        out.push(plausible(Request { device, process, ..Request::new(when, op, offset, bytes) })?);
        Ok(())
    }
}

pub(super) const NATIVE: FormatSpec = FormatSpec {
    about: "every field of a request, as text",
    shape: "time_ns,device,op,offset,bytes,flags,latency_ns,process,cpu",
    writes: Some(|| Box::<NativeWriter>::default()),
    has_latency: true,
    ..FormatSpec::lines("seekless", |options| Box::new(Native::new(options.names.clone())))
};

/// Seekless's own: every field of a request, as text.
struct Native {
    names: DeviceNames,
}

pub(super) const NATIVE_HEADER: &[u8] = b"time_ns,device,op,offset,bytes,flags,latency_ns,process,cpu";

impl Native {
    fn new(names: SharedNames) -> Native {
        Native { names: DeviceNames::new(names) }
    }

    fn device(&mut self, text: &[u8]) -> Result<DeviceId, Aside> {
        if let Some(number) = number(text) {
            return device_of(number);
        }
        if let Some(colon) = text.iter().position(|&byte| byte == b':')
            && let (Some(major), Some(minor)) = (number(&text[..colon]), number(&text[colon + 1..]))
        {
            return DeviceId::block(major, minor).ok_or(Aside::Rejected("there is no such device number"));
        }
        match text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")) {
            Some(name) => self.names.device(name),
            None => Err(Aside::Rejected("the device is not a number, a major:minor pair or a quoted name")),
        }
    }
}

impl LineParser for Native {
    fn parse(&mut self, line: &[u8], out: &mut Vec<Request>) -> Result<(), Aside> {
        if line == NATIVE_HEADER {
            return Err(Aside::Skipped("header"));
        }
        let mut fields = Fields::new(line, b',');
        let time = time(fields.field()?, 1).ok_or(NO_TIME)?;
        let device = fields.field()?;
        let device = self.device(device)?;
        let op = Op::from_word(fields.field()?).ok_or(NO_OP)?;
        let (offset, bytes) = (fields.number(NO_OFFSET)?, fields.number(NO_LENGTH)?);
        let flags = Flags::from_letters(fields.field()?).ok_or(Aside::Rejected("a flag is unknown"))?;
        let mut optional = || match fields.field()? {
            b"" => Ok(None),
            text => number(text).map(Some).ok_or(Aside::Rejected("an optional field is not a number")),
        };
        let (latency, process, cpu) = (optional()?, optional()?, optional()?);
        fields.end()?;
        let narrow = |value: Option<u64>| match value.map(u32::try_from) {
            None => Ok(None),
            Some(Ok(value)) => Ok(Some(value)),
            Some(Err(_)) => Err(Aside::Rejected("a number needs more than 32 bits")),
        };
        out.push(plausible(Request {
            time,
            device,
            op,
            flags,
            event: Event::Issue,
            offset,
            bytes,
            latency: latency.map(Nanos),
            process: narrow(process)?,
            cpu: narrow(cpu)?,
        })?);
        Ok(())
    }
}

#[derive(Default)]
struct NativeWriter {
    devices: DeviceTexts,
}

impl LineWriter for NativeWriter {
    fn header(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(NATIVE_HEADER);
        out.push(b'\n');
    }

    fn request(&mut self, request: &Request, names: &Names, out: &mut Vec<u8>) -> Result<(), Dropped> {
        let Request { time, device, op, flags, offset, bytes, .. } = *request;
        let optional = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
        let text = match device {
            DeviceId::Number(number) => number.to_string(),
            DeviceId::Block(number) => format!("{}:{}", number >> 20, number & 0xf_ffff),
            DeviceId::Named(_) => format!("\"{}\"", names.text(device).replace([',', '"', '\n', '\r'], "_")),
        };
        self.devices.check(&text, device)?;
        let (latency, process) =
            (optional(request.latency.map(|time| time.0)), optional(request.process.map(u64::from)));
        let cpu = optional(request.cpu.map(u64::from));
        writeln!(out, "{},{text},{op},{offset},{bytes},{},{latency},{process},{cpu}", time.0, flags.letters())?;
        Ok(())
    }
}
