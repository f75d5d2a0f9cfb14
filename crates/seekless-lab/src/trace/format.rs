//! The table of trace formats: their names, contents, readers and writers.
//!
//! A format is one [`FormatSpec`], beside its reader and writer, and one line in [`FORMATS`].

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use seekless::stack::nearest;

use super::input::Input;
use super::line_writer::LineWriter;
use super::spec::{Described, FormatSpec, ReaderOptions, Reads, Variants};
use super::text::{LineParser, Reader, TextReader};
use super::{blkparse, blktrace, columns, disksim, iolog, libcachesim, published, srt, tracefs, vscsi};

/// Every format, in the order of help and documentation.
pub const FORMATS: &[&FormatSpec] = &[
    &published::NATIVE,
    &blktrace::BLKTRACE,
    &blkparse::BLKPARSE,
    &blkparse::BLKPARSE_FORMAT,
    &tracefs::TRACEFS,
    &published::MSR,
    &published::SPC,
    &published::SPC_BYTES,
    &published::ALIBABA,
    &published::TENCENT,
    &published::FIU,
    &published::SYSTOR17,
    &iolog::IOLOG2,
    &iolog::IOLOG3,
    &disksim::DISKSIM,
    &disksim::VALIDATION,
    &vscsi::VSCSI1,
    &vscsi::VSCSI2,
    &libcachesim::CLOUDPHYSICS,
    &libcachesim::CLOUDPHYSICS_UNIT,
    &libcachesim::ORACLE_GENERAL,
    &libcachesim::ORACLE_GENERAL_BYTES,
    &srt::SRT,
    &srt::SRT_BYTES,
    &disksim::MQSIM,
    &columns::CSV,
    &columns::REGEX,
];

/// A trace format: a row of [`FORMATS`], with its description where it has one.
#[derive(Clone)]
pub struct Format {
    spec: &'static FormatSpec,
    described: Option<Arc<dyn Described>>,
}

impl Format {
    /// The format of a row that takes no description.
    pub(super) fn of(spec: &'static FormatSpec) -> Format {
        Format { spec, described: None }
    }

    /// Parses a name of [`FORMATS`], with its description behind a colon if it has one.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn parse(text: &str) -> Result<Format, String> {
        let (name, description) = match text.split_once(':') {
            Some((name, description)) => (name, Some(description)),
            None => (text, None),
        };
        let rows = || FORMATS.iter().copied().filter(|spec| spec.name == name);
        if let Some(spec) = rows().find(|spec| spec.parameter.is_some() == description.is_some()) {
            return match (spec.reads, description) {
                (Reads::Described(parse), Some(description)) => match parse(description) {
                    Ok(described) => Ok(Format { spec, described: Some(described) }),
                    Err(problem) => Err(format!("{}: {problem}\nfor example {}", spec.usage(), spec.example())),
                },
                _ => Ok(Format::of(spec)),
            };
        }
        if let Some((spec, (_, example))) = rows().find_map(|spec| spec.parameter.map(|parameter| (spec, parameter))) {
            return Err(format!("`{name}` needs a description, {}: for example {name}:{example}", spec.usage()));
        }
        if let Some(near) = nearest(name, FORMATS.iter().map(|spec| spec.name)) {
            return Err(format!("there is no trace format `{text}`; did you mean `{near}`?"));
        }
        let names: Vec<String> = FORMATS.iter().map(|spec| spec.usage()).collect();
        Err(format!("there is no trace format `{text}`; there are {}", names.join(", ")))
    }

    /// The row of [`FORMATS`].
    pub fn spec(&self) -> &'static FormatSpec {
        self.spec
    }

    /// This format, or the row of its name that takes no description, if only that can be written: as for a text whose times are
    /// read by a unit that the beginning told.
    pub fn to_write(&self) -> Option<Format> {
        if self.spec.writes() {
            return Some(self.clone());
        }
        let is_plain = |spec: &&FormatSpec| spec.name == self.spec.name && spec.parameter.is_none() && spec.writes();
        FORMATS.iter().copied().find(is_plain).map(Format::of)
    }

    /// The variants between which the beginning of a trace has to decide.
    pub(super) fn variants(&self) -> Option<Variants> {
        self.spec.variants
    }

    /// True when lines report several moments in the life of a request.
    pub fn has_events(&self) -> bool {
        match &self.described {
            Some(described) => described.has_events(),
            None => self.spec.has_events,
        }
    }

    /// True when requests may have latencies.
    pub fn has_latency(&self) -> bool {
        self.spec.has_latency || self.has_events()
    }

    /// A caveat about the format's numbers.
    pub(super) fn note(&self) -> Option<String> {
        match &self.described {
            Some(described) => described.note(),
            None => self.spec.note.map(str::to_owned),
        }
    }

    /// The parser of its lines; `None` for a binary format.
    pub(super) fn parser(&self, options: &ReaderOptions<'_>) -> Option<Box<dyn LineParser>> {
        match (&self.described, self.spec.reads) {
            (Some(described), _) => described.parser(options),
            (None, Reads::Lines(parser)) => Some(parser(options)),
            (None, _) => None,
        }
    }

    pub(super) fn reader(&self, input: Input, options: &ReaderOptions<'_>) -> Box<dyn Reader> {
        match (self.spec.reads, self.parser(options)) {
            (Reads::Records(reader), _) => reader(input, options.wanted),
            (_, Some(parser)) => Box::new(TextReader::new(input, parser)),
            (_, None) => match &self.described {
                Some(described) => described.reader(input),
                None => unreachable!("a format of lines has a parser"),
            },
        }
    }

    /// A writer, where there is one.
    pub(super) fn writer(&self) -> Option<Box<dyn LineWriter>> {
        match &self.described {
            Some(described) => described.writer(),
            None => self.spec.writes.map(|writer| writer()),
        }
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
        match &self.described {
            Some(described) => write!(f, "{}:{}", self.spec.name, described.text()),
            None => f.write_str(self.spec.name),
        }
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Format({self})")
    }
}

impl PartialEq for Format {
    fn eq(&self, other: &Format) -> bool {
        self.to_string() == other.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every row of the table can be written on a command line, gives its own name, and is right about whether it has a
    /// writer.
    #[test]
    fn the_table_is_true() {
        for spec in FORMATS {
            let text = spec.example();
            let format = Format::parse(&text).unwrap_or_else(|problem| panic!("{text}: {problem}"));
            assert_eq!(format.spec().usage(), spec.usage());
            assert_eq!(format.to_string(), text);
            assert_eq!(format.writer().is_some(), spec.writes(), "{text}");
            assert!(!spec.about.is_empty() && !spec.shape.is_empty(), "{text}");
            let twins = FORMATS.iter().filter(|other| other.usage() == spec.usage()).count();
            assert_eq!(twins, 1, "{text} has one row");
            if let Some((other, _)) = spec.preferred_to {
                assert!(FORMATS.iter().any(|spec| spec.name == other), "{text} is preferred to {other}");
            }
        }
        for bad in
            ["", "cvs", "msr:1", "spc:0", "spc:x", "csv", "csv:", "cloudphysics:ms", "regex", "regex:(", "blkparse:%T"]
        {
            assert!(Format::parse(bad).is_err(), "{bad}");
        }
    }
}
