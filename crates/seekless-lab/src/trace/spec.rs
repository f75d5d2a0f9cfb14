//! Definition of a trace format: its name, contents, reader and writer.

use std::fmt;
use std::sync::Arc;

use super::input::Input;
use super::kernel::Wanted;
use super::line_writer::LineWriter;
use super::names::SharedNames;
use super::text::{LineParser, Reader};

/// Parameters of a reader.
pub(super) struct ReaderOptions<'a> {
    /// Which events of a request count, in formats that have events.
    pub(super) wanted: Wanted,
    /// Names of devices, shared by all files of a trace.
    pub(super) names: &'a SharedNames,
}

/// One trace format.
#[derive(Clone, Copy)]
pub struct FormatSpec {
    /// As it is written on the command line, before a colon.
    pub name: &'static str,
    /// What follows the colon, and an example of it, where the user describes the format.
    pub parameter: Option<(&'static str, &'static str)>,
    pub about: &'static str,
    /// Shape of a line or record, with the units.
    pub shape: &'static str,
    pub(super) reads: Reads,
    /// Makes a writer, where there is one.
    pub(super) writes: Option<fn() -> Box<dyn LineWriter>>,
    pub(super) recognised: Recognised,
    /// Variants of the format between which the beginning of a trace decides.
    pub(super) variants: Option<Variants>,
    /// Where both formats fit, this one is preferred to the named one; and the remark about that.
    pub(super) preferred_to: Option<(&'static str, &'static str)>,
    /// Lines report several moments in the life of a request: queued, issued, complete.
    pub(super) has_events: bool,
    /// Requests may have latencies.
    pub(super) has_latency: bool,
    /// The writer has no other word than zero for a latency that is not known.
    pub(super) latency_required: bool,
    /// Addresses and lengths count sectors, so that bytes mistaken for sectors would show as multiples of 512.
    pub(super) counts_sectors: bool,
    /// The smallest difference of two times that the writer keeps, in nanoseconds.
    pub(super) time_unit: u64,
    /// The writer keeps differences of times alone, and its first request is at zero.
    pub(super) relative_times: bool,
    /// A caveat about the format's numbers.
    pub(super) note: Option<&'static str>,
    /// Names here of a device that a user calls by this one: as the format writes it, or as another does.
    pub(super) devices_called: Option<fn(&str) -> Vec<String>>,
}

/// The reader of a format.
#[derive(Clone, Copy)]
pub(super) enum Reads {
    /// Lines of text.
    Lines(fn(&ReaderOptions<'_>) -> Box<dyn LineParser>),
    /// Binary records.
    Records(fn(Input, Wanted) -> Box<dyn Reader>),
    /// Lines that the user describes behind the colon. The error says what is wrong with the description.
    Described(fn(&str) -> Result<Arc<dyn Described>, String>),
}

/// How a format is recognised.
#[derive(Clone, Copy)]
pub(super) enum Recognised {
    /// Its parser understands nearly all of the first lines.
    ByLines,
    /// By its beginning; the result is the reason, as a clause.
    ByBeginning(fn(&[u8]) -> Option<String>),
    /// Never: only the user can know.
    Never,
}

/// The description of a variant, and the reason for it, as a clause.
pub(super) type Evidence = (&'static str, String);

/// Variants of a format that have the same name and other descriptions behind the colon.
#[derive(Clone, Copy)]
pub(super) struct Variants {
    /// The variant that the first lines are evidence for, if there is any.
    pub(super) decide: fn(&[&[u8]]) -> Option<Evidence>,
    /// The message where there is none, which asks the user for one.
    pub(super) undecided: &'static str,
}

/// A format that the user describes.
pub(super) trait Described: fmt::Debug + Send + Sync {
    /// The description behind the colon.
    fn text(&self) -> String;

    /// The parser of its lines; `None` for records.
    fn parser(&self, options: &ReaderOptions<'_>) -> Option<Box<dyn LineParser>>;

    /// The reader of its records. Not called where there is a parser.
    fn reader(&self, input: Input) -> Box<dyn Reader> {
        let _ = input;
        unreachable!("a format of lines has a parser")
    }

    fn writer(&self) -> Option<Box<dyn LineWriter>> {
        None
    }

    fn has_events(&self) -> bool {
        false
    }

    fn note(&self) -> Option<String> {
        None
    }
}

impl FormatSpec {
    const fn new(name: &'static str, reads: Reads, recognised: Recognised) -> FormatSpec {
        FormatSpec {
            name,
            parameter: None,
            about: "",
            shape: "",
            reads,
            writes: None,
            recognised,
            variants: None,
            preferred_to: None,
            has_events: false,
            has_latency: false,
            latency_required: false,
            counts_sectors: false,
            time_unit: 1,
            relative_times: false,
            note: None,
            devices_called: None,
        }
    }

    /// A format of lines, which `parser` reads and by which it is recognised.
    pub(super) const fn lines(name: &'static str, parser: fn(&ReaderOptions<'_>) -> Box<dyn LineParser>) -> FormatSpec {
        FormatSpec::new(name, Reads::Lines(parser), Recognised::ByLines)
    }

    /// A format of binary records, which is recognised by its beginning.
    pub(super) const fn records(
        name: &'static str,
        beginning: fn(&[u8]) -> Option<String>,
        reader: fn(Input, Wanted) -> Box<dyn Reader>,
    ) -> FormatSpec {
        FormatSpec::new(name, Reads::Records(reader), Recognised::ByBeginning(beginning))
    }

    /// A format that the user describes: `parse` parses the text behind the colon, for which `example` is an example.
    pub(super) const fn described(
        name: &'static str,
        parameter: &'static str,
        example: &'static str,
        parse: fn(&str) -> Result<Arc<dyn Described>, String>,
    ) -> FormatSpec {
        let spec = FormatSpec::new(name, Reads::Described(parse), Recognised::Never);
        FormatSpec { parameter: Some((parameter, example)), ..spec }
    }

    /// The name with the text behind the colon: `csv:COLUMNS`.
    pub fn usage(&self) -> String {
        match self.parameter {
            Some((parameter, _)) => format!("{}:{parameter}", self.name),
            None => self.name.to_owned(),
        }
    }

    /// The format as a user may write it: `msr`, `spc:4096`.
    pub fn example(&self) -> String {
        match self.parameter {
            Some((_, example)) => format!("{}:{example}", self.name),
            None => self.name.to_owned(),
        }
    }

    /// There is a writer, too.
    pub fn writes(&self) -> bool {
        match (self.reads, self.parameter) {
            (Reads::Described(parse), Some((_, example))) => {
                parse(example).is_ok_and(|described| described.writer().is_some())
            }
            _ => self.writes.is_some(),
        }
    }

    /// The row of the table, for documentation and programs.
    pub fn info(&self) -> FormatInfo {
        FormatInfo { name: self.usage(), about: self.about, shape: self.shape, writes: self.writes() }
    }
}

/// A row of the table of formats, for readers outside.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct FormatInfo {
    /// As it is written on the command line.
    pub name: String,
    pub about: &'static str,
    /// Shape of a line or record, with the units.
    pub shape: &'static str,
    /// There is a writer, too.
    pub writes: bool,
}
