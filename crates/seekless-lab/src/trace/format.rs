//! The formats: their names, what they hold, and who reads and writes them.

use std::fmt;
use std::str::FromStr;

use super::blkparse::{Blkparse, BlkparseWriter, Formatted, LineFormat};
use super::blktrace::{Blktrace, BlktraceWriter};
use super::columns::{Columns, ColumnsParser, Pattern, PatternParser};
use super::disksim::{DiskSim, DiskSimWriter, Mqsim, MqsimWriter, Validation};
use super::input::Input;
use super::iolog::{Iolog, IologWriter};
use super::kernel::Wanted;
use super::published::{
    Alibaba, AlibabaWriter, Fiu, Msr, MsrWriter, Native, NativeWriter, SharedNames, Spc, SpcWriter, Systor17,
    Systor17Writer, Tencent, TencentWriter,
};
use super::text::{LineParser, MICROSECOND, Reader, SECOND, TextReader};
use super::tracefs::{Tracefs, TracefsWriter};
use super::vscsi::{Vscsi, VscsiWriter};
use super::write::LineWriter;

/// A trace format.
#[derive(Clone, PartialEq, Debug)]
pub enum Format {
    Seekless,
    Blktrace,
    Blkparse,
    BlkparseFormat(LineFormat),
    Tracefs,
    Msr,
    /// With the size of the blocks in which addresses count.
    Spc {
        block_bytes: u64,
    },
    Alibaba,
    Tencent,
    Fiu,
    Systor17,
    /// fio's, version 2 or 3. A reader finds the version in the log.
    Iolog {
        version: u8,
    },
    DiskSim,
    Validation,
    /// Version 1 or 2.
    Vscsi {
        version: u8,
    },
    Mqsim,
    Csv(Columns),
    Regex(Pattern),
}

/// A row of the table of formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct FormatInfo {
    /// As it is written on the command line.
    pub name: &'static str,
    pub about: &'static str,
    /// Shape of a line or record, with the units.
    pub shape: &'static str,
    /// There is a writer, too.
    pub writes: bool,
}

const fn row(name: &'static str, about: &'static str, shape: &'static str, writes: bool) -> FormatInfo {
    FormatInfo { name, about, shape, writes }
}

/// Every format, for help and documentation.
pub const FORMATS: &[FormatInfo] = &[
    row(
        "seekless",
        "every field of a request, as text",
        "time_ns,device,op,offset,bytes,flags,latency_ns,process,cpu",
        true,
    ),
    row(
        "blktrace",
        "blktrace's binary records, one file per processor or merged",
        "version 7; version 8 untested on a real file",
        true,
    ),
    row("blkparse", "what blkparse prints", "maj,min cpu seq s.ns pid action rwbs sector + sectors [process]", true),
    row("blkparse:FORMAT", "lines after a format given to blkparse -f", "for example '%T.%t %a %d %S %n\\n'", false),
    row(
        "tracefs",
        "text of the kernel's trace events, of trace-cmd and perf",
        "process-pid [cpu] flags s.us: block_rq_issue: maj,min rwbs ..",
        true,
    ),
    row("msr", "MSR Cambridge, FAST '08", "time-100ns,host,disk,Read|Write,bytes,bytes,response-100ns", true),
    row("spc", "SPC-1 and UMass; spc:4096 for blocks of another size than 512", "asu,block,bytes,r|w,seconds", true),
    row("alibaba", "Alibaba Cloud 2020", "device,R|W,bytes,bytes,us", true),
    row("tencent", "Tencent CBS, ATC '20", "seconds,sector,sectors,0=read|1=write,volume", true),
    row("fiu", "FIU's IODedup and SRCMap", "ns pid process sector sectors W|R major minor md5", false),
    row("systor17", "SYSTOR '17", "seconds,response-seconds,R|W,lun,bytes,bytes", true),
    row("iolog2", "fio's log, version 2", "file read|write|sync|trim|wait bytes bytes", true),
    row("iolog3", "fio's log, version 3", "us file read|write|sync|trim bytes bytes", true),
    row("disksim", "DiskSim's ascii traces", "ms device sector sectors flags(1=read)", true),
    row("validation", "DiskSim's validation traces", "R|W hit sector sectors service-us think-us", false),
    row("vscsi1", "VMware vscsi, version 1, as of CloudPhysics", "records of 32 bytes: sector, bytes, us", true),
    row("vscsi2", "VMware vscsi, version 2", "records of 40 bytes: sector, bytes, us", true),
    row("mqsim", "MQSim's traces", "ns device sector sectors 1=read|0=write", true),
    row(
        "csv:COLUMNS",
        "columns of your own, with their units",
        "for example csv:time=1:us,op=2,offset=3:B,length=4:B",
        false,
    ),
    row(
        "regex:PATTERN",
        "named groups of your own, with their units",
        "(?<time_us>..)(?<op>..)(?<offset_sectors>..)(?<length_B>..)",
        false,
    ),
];

/// Bytes of an SPC block where nothing else is said.
const SPC_BLOCK_BYTES: u64 = 512;

impl Format {
    /// Reads a name of [`FORMATS`], with its description behind a colon where it has one.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn parse(text: &str) -> Result<Format, String> {
        let (name, description) = match text.split_once(':') {
            Some((name, description)) => (name, Some(description)),
            None => (text, None),
        };
        let plain = match (name, description) {
            ("blkparse", Some(format)) => {
                let format = LineFormat::parse(format);
                return format.map(Format::BlkparseFormat).map_err(|problem| format!("blkparse:FORMAT: {problem}"));
            }
            ("spc", Some(bytes)) => {
                return match bytes.parse() {
                    Ok(block_bytes) if block_bytes > 0 => Ok(Format::Spc { block_bytes }),
                    _ => Err(format!("`{bytes}` is no block size in bytes")),
                };
            }
            ("csv", Some(columns)) => {
                let columns = Columns::parse(columns).map_err(|problem| format!("csv:COLUMNS: {problem}"))?;
                return Ok(Format::Csv(columns));
            }
            ("regex", Some(pattern)) => {
                let pattern = Pattern::parse(pattern).map_err(|problem| format!("regex:PATTERN: {problem}"))?;
                return Ok(Format::Regex(pattern));
            }
            ("csv", None) => return Err("say what the columns are: csv:time=1:us,op=2,offset=3:B,length=4:B".into()),
            ("regex", None) => return Err("say what the expression is: regex:(?<time_us>\\d+) ..".into()),
            (_, Some(_)) => None,
            ("seekless", _) => Some(Format::Seekless),
            ("blktrace", _) => Some(Format::Blktrace),
            ("blkparse", _) => Some(Format::Blkparse),
            ("tracefs", _) => Some(Format::Tracefs),
            ("msr", _) => Some(Format::Msr),
            ("spc", _) => Some(Format::Spc { block_bytes: SPC_BLOCK_BYTES }),
            ("alibaba", _) => Some(Format::Alibaba),
            ("tencent", _) => Some(Format::Tencent),
            ("fiu", _) => Some(Format::Fiu),
            ("systor17", _) => Some(Format::Systor17),
            ("iolog2", _) => Some(Format::Iolog { version: 2 }),
            ("iolog3", _) => Some(Format::Iolog { version: 3 }),
            ("disksim", _) => Some(Format::DiskSim),
            ("validation", _) => Some(Format::Validation),
            ("vscsi1", _) => Some(Format::Vscsi { version: 1 }),
            ("vscsi2", _) => Some(Format::Vscsi { version: 2 }),
            ("mqsim", _) => Some(Format::Mqsim),
            _ => None,
        };
        plain.ok_or_else(|| {
            let names: Vec<&str> = FORMATS.iter().map(|info| info.name).collect();
            format!("there is no trace format `{text}`; there are {}", names.join(", "))
        })
    }

    /// The row of [`FORMATS`].
    pub fn info(&self) -> &'static FormatInfo {
        let name = match self {
            Format::Seekless => "seekless",
            Format::Blktrace => "blktrace",
            Format::Blkparse => "blkparse",
            Format::BlkparseFormat(_) => "blkparse:FORMAT",
            Format::Tracefs => "tracefs",
            Format::Msr => "msr",
            Format::Spc { .. } => "spc",
            Format::Alibaba => "alibaba",
            Format::Tencent => "tencent",
            Format::Fiu => "fiu",
            Format::Systor17 => "systor17",
            Format::Iolog { version: 2 } => "iolog2",
            Format::Iolog { .. } => "iolog3",
            Format::DiskSim => "disksim",
            Format::Validation => "validation",
            Format::Vscsi { version: 1 } => "vscsi1",
            Format::Vscsi { .. } => "vscsi2",
            Format::Mqsim => "mqsim",
            Format::Csv(_) => "csv:COLUMNS",
            Format::Regex(_) => "regex:PATTERN",
        };
        match FORMATS.iter().find(|info| info.name == name) {
            Some(info) => info,
            None => unreachable!("{name} has a row"),
        }
    }

    /// Lines tell of several moments in the life of a request.
    pub fn has_events(&self) -> bool {
        match self {
            Format::Blktrace | Format::Blkparse | Format::Tracefs => true,
            Format::BlkparseFormat(format) => format.has_action(),
            _ => false,
        }
    }

    /// Requests may come with the time that they took.
    pub fn has_latency(&self) -> bool {
        match self {
            Format::Seekless | Format::Msr | Format::Systor17 | Format::Validation => true,
            Format::Csv(_) | Format::Regex(_) => true,
            other => other.has_events(),
        }
    }

    /// Addresses and lengths count sectors, so that bytes taken for sectors would show as multiples of 512.
    pub(super) fn counts_sectors(&self) -> bool {
        matches!(
            self,
            Format::Tencent | Format::Fiu | Format::DiskSim | Format::Validation | Format::Mqsim | Format::Tracefs
        )
    }

    /// The smallest difference of two times that the format's writer keeps, in nanoseconds.
    pub(super) fn time_unit(&self) -> u64 {
        match self {
            Format::Msr => 100,
            Format::Tracefs | Format::Alibaba | Format::Iolog { .. } | Format::Vscsi { .. } => MICROSECOND,
            Format::Tencent => SECOND,
            _ => 1,
        }
    }

    pub(super) fn parser(&self, wanted: Wanted, names: &SharedNames) -> Option<Box<dyn LineParser>> {
        Some(match self {
            Format::Seekless => Box::new(Native::new(names.clone())),
            Format::Blkparse => Box::new(Blkparse::new(wanted)),
            Format::BlkparseFormat(format) => Box::new(Formatted::new(format, wanted)),
            Format::Tracefs => Box::new(Tracefs::new(wanted)),
            Format::Msr => Box::new(Msr::new(names.clone())),
            Format::Spc { block_bytes } => Box::new(Spc { block_bytes: *block_bytes }),
            Format::Alibaba => Box::new(Alibaba),
            Format::Tencent => Box::<Tencent>::default(),
            Format::Fiu => Box::new(Fiu),
            Format::Systor17 => Box::new(Systor17),
            Format::Iolog { .. } => Box::new(Iolog::new(names.clone())),
            Format::DiskSim => Box::new(DiskSim),
            Format::Validation => Box::<Validation>::default(),
            Format::Mqsim => Box::new(Mqsim),
            Format::Csv(columns) => Box::new(ColumnsParser::new(columns, names.clone())),
            Format::Regex(pattern) => Box::new(PatternParser::new(pattern, names.clone())),
            Format::Blktrace | Format::Vscsi { .. } => return None,
        })
    }

    pub(super) fn reader(&self, input: Input, wanted: Wanted, names: &SharedNames) -> Box<dyn Reader> {
        match (self, self.parser(wanted, names)) {
            (_, Some(parser)) => Box::new(TextReader::new(input, parser)),
            (Format::Vscsi { version }, None) => Box::new(Vscsi::new(input, *version)),
            (_, None) => Box::new(Blktrace::new(input, wanted)),
        }
    }

    pub(super) fn writer(&self) -> Option<Box<dyn LineWriter>> {
        Some(match self {
            Format::Seekless => Box::new(NativeWriter),
            Format::Blktrace => Box::<BlktraceWriter>::default(),
            Format::Blkparse => Box::<BlkparseWriter>::default(),
            Format::Tracefs => Box::<TracefsWriter>::default(),
            Format::Msr => Box::new(MsrWriter),
            Format::Spc { block_bytes } => Box::new(SpcWriter { block_bytes: *block_bytes }),
            Format::Alibaba => Box::new(AlibabaWriter),
            Format::Tencent => Box::new(TencentWriter),
            Format::Systor17 => Box::new(Systor17Writer),
            Format::Iolog { version } => Box::new(IologWriter::new(*version)),
            Format::DiskSim => Box::new(DiskSimWriter),
            Format::Vscsi { version } => Box::new(VscsiWriter::new(*version)),
            Format::Mqsim => Box::new(MqsimWriter),
            Format::BlkparseFormat(_) | Format::Fiu | Format::Validation | Format::Csv(_) | Format::Regex(_) => {
                return None;
            }
        })
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Format, String> {
        Format::parse(text)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Format::BlkparseFormat(format) => write!(f, "blkparse:{}", format.text()),
            Format::Spc { block_bytes } if *block_bytes != SPC_BLOCK_BYTES => write!(f, "spc:{block_bytes}"),
            Format::Csv(columns) => write!(f, "csv:{columns}"),
            Format::Regex(pattern) => write!(f, "regex:{pattern}"),
            other => f.write_str(other.info().name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every row of the table can be written on a command line, names itself, and says rightly whether it has a writer.
    #[test]
    fn the_table_is_true() {
        for info in FORMATS {
            let text = match info.name {
                "blkparse:FORMAT" => "blkparse:%T.%t %a %d %S %n\\n",
                "csv:COLUMNS" => "csv:time=1:us,op=2,offset=3:B,length=4:B",
                "regex:PATTERN" => r"regex:(?<time_us>\d+)(?<op>.)(?<offset_sectors>\d+) (?<length_B>\d+)",
                name => name,
            };
            let format = Format::parse(text).unwrap_or_else(|problem| panic!("{text}: {problem}"));
            assert_eq!(format.info().name, info.name);
            assert_eq!(format.to_string(), text);
            assert_eq!(format.writer().is_some(), info.writes, "{text}");
        }
        assert_eq!(Format::parse("spc:4096"), Ok(Format::Spc { block_bytes: 4096 }));
        for bad in ["", "cvs", "msr:1", "spc:0", "spc:x", "csv", "csv:", "regex", "regex:(", "blkparse:%T"] {
            assert!(Format::parse(bad).is_err(), "{bad}");
        }
    }
}
