//! The text output of `blkparse`: its default, and lines in a user's format (`-f`).

use std::io::Write;
use std::sync::Arc;

use seekless::units::{Nanos, SECTOR_BYTES};

use super::kernel::{Rwbs, Wanted, device, extent, push};
use super::line_writer::{Dropped, EventForm, EventWriter, sectors};
use super::request::{DeviceId, Event, Op, Request};
use super::spec::{Described, FormatSpec, ReaderOptions};
use super::tally::Aside;
use super::text::{LineParser, SECOND, Words, number, time, times};

const NO_TIME: Aside = Aside::Rejected("the time is not a number");

pub(super) const BLKPARSE: FormatSpec = FormatSpec {
    about: "what blkparse prints",
    shape: "maj,min cpu seq s.ns pid action rwbs sector + sectors [process]",
    writes: Some(|| Box::<EventWriter<BlkparseForm>>::default()),
    has_events: true,
    ..FormatSpec::lines("blkparse", |options| Box::new(Blkparse::new(options.wanted)))
};

pub(super) const BLKPARSE_FORMAT: FormatSpec = FormatSpec {
    about: "lines after a format given to blkparse -f",
    shape: "for example '%T.%t %a %d %S %n\\n'",
    ..FormatSpec::described("blkparse", "FORMAT", "%T.%t %a %d %S %n\\n", |text| Ok(Arc::new(LineFormat::parse(text)?)))
};

/// `major,minor cpu sequence seconds.nanoseconds process action rwbs`, and then fields of the action.
struct Blkparse {
    wanted: Wanted,
    /// The statistics behind the events have begun.
    in_statistics: bool,
}

impl Blkparse {
    fn new(wanted: Wanted) -> Blkparse {
        Blkparse { wanted, in_statistics: false }
    }
}

/// An action's letters as an event, if it describes a request.
fn event(action: &[u8]) -> Result<Event, Aside> {
    Err(Aside::Skipped(match action {
        b"Q" => return Ok(Event::Queue),
        b"D" => return Ok(Event::Issue),
        b"C" => return Ok(Event::Complete),
        b"R" => return Ok(Event::Requeue),
        b"M" => "back merge",
        b"F" => "front merge",
        b"G" => "request allocated",
        b"S" => "wait for a request",
        b"P" => "plug",
        b"U" => "unplug",
        b"UT" | b"T" => "unplug by timer",
        b"I" => "insert",
        b"X" => "split",
        b"B" => "bounce",
        b"A" => "remap",
        b"m" => "note of the tracer",
        b"n" | b"ut" => "note of the tracer",
        _ => return Err(Aside::Rejected("the action is none of blkparse's")),
    }))
}

impl LineParser for Blkparse {
    fn parse(&mut self, line: &[u8], out: &mut Vec<Request>) -> Result<(), Aside> {
        let mut words = Words::new(line);
        let Some(first) = words.next() else { return Err(Aside::Skipped("blank line")) };
        let Some(device) = device(first) else {
            if starts_statistics(line) {
                self.in_statistics = true;
            }
            return Err(match self.in_statistics {
                true => Aside::Skipped("statistics"),
                false => Aside::Rejected("the line does not begin with major,minor"),
            });
        };
        let cpu = words.number("the processor is not a number")?;
        words.number("the sequence is not a number")?;
        let time = time(words.word()?, SECOND).ok_or(NO_TIME)?;
        let process = words.number("the process number is not a number")?;
        let event = event(words.word()?)?;
        self.wanted.check(event)?;
        let rwbs = Rwbs::parse(words.word()?)?;
        let narrow = |value: u64| u32::try_from(value).ok();
        let base =
            Request { device, event, process: narrow(process), cpu: narrow(cpu), ..Request::new(time, Op::Read, 0, 0) };
        // `sector + count [process]`, `(elapsed) sector + count ..`, `[process]`, `sector [error]`, `bytes (cdb) ..`
        let mut rest = words.rest();
        if rest.first() == Some(&b'(') {
            let end = rest.iter().position(|&byte| byte == b')').ok_or(Aside::Rejected("a bracket is not closed"))?;
            rest = rest[end + 1..].trim_ascii_start();
        }
        let mut words = Words::new(rest);
        let (offset, bytes) = match (words.next(), words.next(), words.next()) {
            (Some(sector), Some(b"+"), Some(count)) => extent(sector, count)?,
            // The length and the bytes of a command; of a completion, with `-t`, the sector and the time since the issue.
            (Some([b'0'..=b'9', ..]), Some([b'(', ..]), _) if event != Event::Complete => {
                return Err(Aside::Skipped("pass-through command"));
            }
            _ => (0, 0),
        };
        push(base, rwbs, offset, bytes, out)
    }
}

/// The statistics begin with `CPU0 (259,0):` or, for one processor, `Total (259,0):`.
fn starts_statistics(line: &[u8]) -> bool {
    let line = line.trim_ascii_start();
    ["CPU", "Total (", "Throughput (", "Events (", "Skips:", "Input file"]
        .iter()
        .any(|start| line.starts_with(start.as_bytes()))
}

/// Writes the lines that [`Blkparse`] reads.
#[derive(Default)]
struct BlkparseForm {
    sequence: u32,
}

impl EventForm for BlkparseForm {
    fn event(&mut self, request: &Request, event: Event, device: u32, out: &mut Vec<u8>) -> Result<(), Dropped> {
        self.sequence = self.sequence.wrapping_add(1);
        let (action, tail) = match event {
            Event::Queue => ("Q", "[?]"),
            Event::Issue => ("D", "[?]"),
            Event::Complete => ("C", "[0]"),
            Event::Requeue => ("R", "[0]"),
        };
        let (seconds, nanos) = (request.time.0 / SECOND, request.time.0 % SECOND);
        let (process, cpu) = (request.process.unwrap_or(0), request.cpu.unwrap_or(0));
        let (device, minor, sequence) = (device >> 20, device & 0xf_ffff, self.sequence);
        let rwbs = Rwbs::letters(request);
        write!(
            out,
            "{device:3},{minor:<3} {cpu:2} {sequence:8} {seconds:5}.{nanos:09} {process:5} {action:>2} {rwbs:>3} "
        )?;
        match sectors(request)? {
            (_, 0) => writeln!(out, "{tail}")?,
            (sector, count) => writeln!(out, "{sector} + {count} {tail}")?,
        }
        Ok(())
    }
}

/// One element of a `-f` format.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Piece {
    /// Literal text. A blank matches any number of blanks.
    Literal(Vec<u8>),
    Field(u8),
}

/// A format as given to `blkparse -f`, for example `%T.%t %a %d %S %n\n`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct LineFormat {
    text: String,
    pieces: Vec<Piece>,
}

/// Letters of blkparse. Those that a request needs are used, the others skipped.
const LETTERS: &[u8] = b"acCdDeMmnNpPsStTuUz";

impl LineFormat {
    /// Parses a format.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    fn parse(text: &str) -> Result<LineFormat, String> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut literal = Vec::new();
        let mut rest = text.strip_suffix("\\n").or(text.strip_suffix('\n')).unwrap_or(text).bytes().peekable();
        while let Some(byte) = rest.next() {
            match byte {
                b'\\' => match rest.next() {
                    Some(b't') => literal.push(b'\t'),
                    Some(b'n') => return Err("only the end of the format can be \\n: a request is one line".into()),
                    Some(other) => literal.push(other),
                    None => return Err("the format ends in a backslash".into()),
                },
                b'%' => {
                    while rest.next_if(|byte| byte.is_ascii_digit() || *byte == b'-').is_some() {}
                    match rest.next() {
                        Some(b'%') => literal.push(b'%'),
                        Some(letter) if LETTERS.contains(&letter) => {
                            if !literal.is_empty() {
                                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
                            } else if matches!(pieces.last(), Some(Piece::Field(_))) {
                                return Err(format!("nothing separates two fields, before %{}", letter as char));
                            }
                            pieces.push(Piece::Field(letter));
                        }
                        Some(letter) => return Err(format!("blkparse has no %{}", letter as char)),
                        None => return Err("the format ends in %".into()),
                    }
                }
                other => literal.push(other),
            }
        }
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        let has = |letter: u8| pieces.contains(&Piece::Field(letter));
        for (letter, what) in [(b'T', "seconds"), (b't', "nanoseconds"), (b'd', "operation"), (b'S', "sector")] {
            if !has(letter) {
                return Err(format!("the format has no %{}, the {what}", letter as char));
            }
        }
        if !has(b'n') && !has(b'N') {
            return Err("the format has neither %n, the sectors, nor %N, the bytes".into());
        }
        Ok(LineFormat { text: text.to_owned(), pieces })
    }
}

impl Described for LineFormat {
    fn text(&self) -> String {
        self.text.clone()
    }

    fn parser(&self, options: &ReaderOptions<'_>) -> Option<Box<dyn LineParser>> {
        Some(Box::new(Formatted::new(self, options.wanted)))
    }

    /// True when lines name their event. Otherwise every line counts as an issue.
    fn has_events(&self) -> bool {
        self.pieces.contains(&Piece::Field(b'a'))
    }

    fn note(&self) -> Option<String> {
        let note = "the format has no %a: every line is taken for an issue, also where the trace has other events";
        (!self.has_events()).then(|| note.to_owned())
    }
}

/// Reads lines after a [`LineFormat`].
struct Formatted {
    pieces: Vec<Piece>,
    wanted: Wanted,
}

impl Formatted {
    fn new(format: &LineFormat, wanted: Wanted) -> Formatted {
        Formatted { pieces: format.pieces.clone(), wanted }
    }
}

impl LineParser for Formatted {
    fn parse(&mut self, line: &[u8], out: &mut Vec<Request>) -> Result<(), Aside> {
        const UNLIKE: Aside = Aside::Rejected("the line is not as the format says");
        let mut rest = line;
        let (mut seconds, mut nanos) = (None, 0);
        let (mut sector, mut bytes, mut count, mut rwbs) = (None, None, None, None);
        let (mut major, mut minor) = (None, None);
        let mut request = Request::new(Nanos::ZERO, Op::Read, 0, 0);
        for (index, piece) in self.pieces.iter().enumerate() {
            match piece {
                Piece::Literal(literal) => rest = after_literal(rest, literal).ok_or(UNLIKE)?,
                Piece::Field(letter) => {
                    rest = rest.trim_ascii_start(); // Widths pad with blanks.
                    let stop = match self.pieces.get(index + 1) {
                        Some(Piece::Literal(literal)) => literal[0],
                        _ => 0,
                    };
                    let end = match stop {
                        0 => rest.len(),
                        b' ' | b'\t' => rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len()),
                        stop => rest.iter().position(|&byte| byte == stop).ok_or(UNLIKE)?,
                    };
                    let (field, behind) = (rest[..end].trim_ascii_end(), &rest[end..]);
                    rest = behind;
                    let narrow = |field| number(field).and_then(|number| u32::try_from(number).ok());
                    match letter {
                        b'T' => seconds = number(field),
                        b't' => nanos = number(field).filter(|&nanos| nanos < SECOND).ok_or(NO_TIME)?,
                        b'S' => sector = number(field),
                        b'n' => count = number(field),
                        b'N' => bytes = number(field),
                        b'd' => rwbs = Some(Rwbs::parse(field)?),
                        b'a' => {
                            request.event = event(field)?;
                            self.wanted.check(request.event)?;
                        }
                        b'D' => request.device = device(field).ok_or(UNLIKE)?,
                        b'M' => major = number(field),
                        b'm' => minor = number(field),
                        b'p' => request.process = narrow(field),
                        b'c' => request.cpu = narrow(field),
                        _ => {}
                    }
                }
            }
        }
        let seconds = seconds.and_then(|seconds: u64| seconds.checked_mul(SECOND)).ok_or(NO_TIME)?;
        request.time = Nanos(seconds.checked_add(nanos).ok_or(NO_TIME)?);
        if let (Some(major), Some(minor)) = (major, minor) {
            request.device = DeviceId::block(major, minor).ok_or(UNLIKE)?;
        }
        let bytes = match (bytes, count) {
            (Some(bytes), _) => bytes,
            (None, Some(count)) => times(count, SECTOR_BYTES)?,
            _ => return Err(UNLIKE),
        };
        let offset = if bytes == 0 { 0 } else { times(sector.ok_or(UNLIKE)?, SECTOR_BYTES)? };
        push(request, rwbs.ok_or(UNLIKE)?, offset, bytes, out)
    }
}

/// What follows `literal` at the start of `text`. Blanks match any number of blanks.
fn after_literal<'a>(mut text: &'a [u8], literal: &[u8]) -> Option<&'a [u8]> {
    for &byte in literal {
        if byte.is_ascii_whitespace() {
            text = text.trim_ascii_start();
        } else if let Some(rest) = text.strip_prefix(&[byte]) {
            text = rest;
        } else {
            // Widths may have put blanks before a sign.
            text = text.trim_ascii_start().strip_prefix(&[byte])?;
        }
    }
    Some(text)
}
