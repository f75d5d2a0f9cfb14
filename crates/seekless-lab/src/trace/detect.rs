//! Detects a trace's format from its beginning, and explains the choice.
//!
//! Binary formats are recognised by their magic numbers. A text is given to every parser; the one that accepts nearly
//! all of the first lines is taken. Formats with similar lines but different units are distinguished only by evidence,
//! which the explanation states; without evidence, the user must choose.

use std::cell::RefCell;
use std::rc::Rc;

use super::format::{FORMATS, Format};
use super::kernel::Wanted;
use super::request::{Event, Request};
use super::spec::{ReaderOptions, Reads, Recognised};
use super::tally::Aside;
use super::text::read_line;

/// A format, and why it was chosen.
#[derive(Clone, PartialEq, Debug)]
pub struct Detected {
    pub format: Format,
    /// A clause: "because ...".
    pub why: String,
}

/// Limit of examined lines.
const LINES_MAX: usize = 400;

/// Share of lines that may be damaged.
const BAD_SHARE: f64 = 0.1;

struct Score {
    format: Format,
    good: usize,
    bad: usize,
}

/// The format of a trace that begins with `sample`; `whole` when that is all of it.
///
/// # Errors
/// Why none was found, and a hint.
pub(super) fn detect(sample: &[u8], whole: bool) -> Result<Detected, String> {
    if sample.is_empty() {
        return Err("there is nothing in it".into());
    }
    for spec in FORMATS {
        if let Recognised::ByBeginning(beginning) = spec.recognised
            && let Some(why) = beginning(sample)
        {
            return Ok(Detected { format: Format::of(spec), why });
        }
    }
    if sample.contains(&0) {
        let binary = FORMATS.iter().filter(|spec| matches!(spec.reads, Reads::Records(_)));
        let names: Vec<&str> = binary.map(|spec| spec.name).collect();
        return Err(format!(
            "it is binary, and none of {}\na format that its beginning does not tell is named with --format; `seekless trace formats` \
             has them all",
            names.join(", ")
        ));
    }
    let lines = lines(sample, whole);
    let candidates = FORMATS.iter().filter(|spec| matches!(spec.recognised, Recognised::ByLines));
    let mut scores: Vec<Score> = candidates.filter_map(|spec| score(Format::of(spec), &lines)).collect();
    scores.sort_by_key(|score| score.bad);
    let Some(best) = scores.first() else { return Err(nothing_fits(&lines)) };
    let (good, bad) = (best.good, best.bad);
    let equal: Vec<&Format> = scores.iter().filter(|score| score.bad == bad).map(|score| &score.format).collect();
    let (format, note) = match equal[..] {
        [format] => (format, String::new()),
        _ => match equal.iter().find_map(|format| preferred(format, &equal).map(|why| (*format, format!("; {why}")))) {
            Some(preferred) => preferred,
            None => {
                let names: Vec<String> = equal.iter().map(|format| format.to_string()).collect();
                return Err(format!("it could be {}: say which with --format", names.join(" or ")));
            }
        },
    };
    let share = match (good, bad) {
        (1, 0) => "the line at its beginning is".to_owned(),
        (_, 0) => format!("all {good} lines at its beginning are"),
        _ => format!("{good} of {} lines at its beginning are", good + bad),
    };
    let why = format!("{share} `{}`{note}", format.spec().shape);
    Ok(Detected { format: format.clone(), why })
}

/// Why `format` is preferred to others that fit equally well; `None` if it is not.
fn preferred(format: &Format, equal: &[&Format]) -> Option<&'static str> {
    let (other, why) = format.spec().preferred_to?;
    (equal.len() == 2 && equal.iter().any(|format| format.spec().name == other)).then_some(why)
}

/// The variant of `format` that the beginning is evidence for; `None` where it has none, or there is no evidence.
pub(super) fn variant(format: &Format, sample: &[u8], whole: bool) -> Option<Detected> {
    let (description, why) = (format.variants()?.decide)(&lines(sample, whole))?;
    let format = Format::parse(&format!("{format}:{description}"));
    format.ok().map(|format| Detected { format, why })
}

/// The whole lines of the beginning.
fn lines(sample: &[u8], whole: bool) -> Vec<&[u8]> {
    let end = match sample.iter().rposition(|&byte| byte == b'\n') {
        Some(last) if !whole => last + 1,
        _ => sample.len(),
    };
    sample[..end].split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).take(LINES_MAX).collect()
}

/// How well `format` fits; `None` if it does not.
fn score(format: Format, lines: &[&[u8]]) -> Option<Score> {
    let mut parser = format.parser(&ReaderOptions { wanted: Wanted::ALL, names: &Rc::new(RefCell::default()) })?;
    let (mut good, mut bad, mut out) = (0, 0, Vec::new());
    for line in lines {
        match read_line(line, &mut *parser, &mut out) {
            Ok(()) | Err(Aside::InPart(_)) => good += 1,
            Err(Aside::Skipped(_)) => {}
            Err(Aside::Rejected(_)) => bad += 1,
        }
    }
    let fits = good > 0 && bad as f64 <= BAD_SHARE * (good + bad) as f64;
    fits.then_some(Score { format, good, bad })
}

/// Which of the three events occur in a sample of a kernel format.
pub(super) fn events(format: &Format, sample: &[u8], whole: bool) -> [bool; 3] {
    let mut out: Vec<Request> = Vec::new();
    let names = Rc::new(RefCell::default());
    let options = ReaderOptions { wanted: Wanted::ALL, names: &names };
    match format.parser(&options) {
        Some(mut parser) => {
            for line in lines(sample, whole) {
                // Lines that are not understood are reported when the trace is read.
                let _ = read_line(line, &mut *parser, &mut out);
            }
        }
        None => {
            let read = Box::new(std::io::Cursor::new(sample.to_vec()));
            if let Ok(input) = super::input::Input::new(String::new(), read) {
                let mut reader = format.reader(input, &options);
                while reader.fill(&mut out).unwrap_or(false) {}
            }
        }
    }
    Event::ALL.map(|event| out.iter().any(|request| request.event == event))
}

/// What to do with lines of no known format: name one that lacks its header alone, or describe the columns.
fn nothing_fits(lines: &[&[u8]]) -> String {
    let first = lines.first().map(|line| String::from_utf8_lossy(&line[..line.len().min(100)]).into_owned());
    let first = first.unwrap_or_default();
    let problem = format!("its lines are of no format that is known; the first is {first:?}");
    let with_header = FORMATS.iter().filter(|spec| matches!(spec.recognised, Recognised::ByBeginning(_)));
    if let Some(score) = with_header.filter_map(|spec| score(Format::of(spec), lines)).find(|score| score.bad == 0) {
        return format!("{problem}\nwith another header they could be {0}: --format {0}", score.format);
    }
    match Separated::of(lines) {
        Some(columns) => format!("{problem}\n{}", columns.hint()),
        None => format!(
            "{problem}\ndescribe them, for example: --format 'regex:^(?<time_us>\\d+) (?<op>\\w+) (?<offset_sectors>\\d+) (?<length_B>\\d+)'"
        ),
    }
}

/// Lines that have columns: the separator that cuts all of the first lines into equally many, two of which are numbers at
/// least, as a time and an address are. Where numbers stand among other characters, only a pattern finds them.
struct Separated {
    separator: u8,
    /// Of the first line, as it has names in it or an example.
    columns: Vec<String>,
    /// The first line is a header: no column of it is a number.
    has_header: bool,
}

impl Separated {
    /// Fewer columns cannot say time, operation, offset and length.
    const COLUMNS_MIN: usize = 4;
    /// Shown at most.
    const COLUMNS_MAX: usize = 16;
    /// Of each, at most.
    const COLUMN_CHARACTERS_MAX: usize = 40;
    const LINES: usize = 20;

    fn of(lines: &[&[u8]]) -> Option<Separated> {
        let cut = |line: &[u8], separator: u8| -> Vec<String> {
            let text = String::from_utf8_lossy(line.trim_ascii()).into_owned();
            match separator {
                b' ' => text.split_whitespace().map(str::to_owned).collect(),
                _ => text.split(char::from(separator)).map(|field| field.trim().to_owned()).collect(),
            }
        };
        b",;\t| ".iter().find_map(|&separator| {
            let columns = cut(lines.first()?, separator);
            let is_even = lines.iter().take(Self::LINES).all(|line| cut(line, separator).len() == columns.len());
            let is_number = |column: &String| {
                let digits = column.strip_prefix("0x").or_else(|| column.strip_prefix("0X"));
                column.parse::<f64>().is_ok() || digits.is_some_and(|digits| u64::from_str_radix(digits, 16).is_ok())
            };
            let has_header = !columns.iter().any(is_number);
            let last = cut(lines.get(Self::LINES - 1).or(lines.last())?, separator);
            let has_numbers = last.iter().filter(|column| is_number(column)).count() >= 2;
            let fits = is_even && has_numbers && columns.len() >= Self::COLUMNS_MIN;
            fits.then_some(Separated { separator, columns, has_header })
        })
    }

    fn hint(&self) -> String {
        let numbered = self.columns.iter().take(Self::COLUMNS_MAX).zip(1..);
        let shown = |column: &str| column.chars().take(Self::COLUMN_CHARACTERS_MAX).collect::<String>();
        let numbered: Vec<String> =
            numbered.map(|(column, number)| format!("{number} is {:?}", shown(column))).collect();
        let separator = match self.separator {
            b',' => "",
            b'\t' => ",separator=tab",
            b' ' => ",separator=space",
            b';' => ",separator=;",
            _ => ",separator=|",
        };
        let header = if self.has_header { ",header=1" } else { "" };
        format!(
            "say which column is what, and in which unit, for example: --format \
             'csv:time=1:us,op=2,offset=3:B,length=4:B{separator}{header}'\n\
             here column {}{}",
            numbered.join(", "),
            if self.columns.len() > Self::COLUMNS_MAX { " .." } else { "" }
        )
    }
}
