//! Finding out a trace's format from its beginning, and saying why.
//!
//! Binary formats are known by their magic numbers. A text is given to every parser; the one that understands nearly
//! all of the first lines has it. Formats whose lines look alike but mean different units are told apart only by
//! something that they show, and the answer says which; where nothing shows it, the user is asked.

use std::cell::RefCell;
use std::rc::Rc;

use super::format::Format;
use super::kernel::Wanted;
use super::request::{Event, Request};
use super::tally::Aside;
use super::text::read_line;
use super::{blktrace, vscsi};

/// A format, and why.
#[derive(Clone, PartialEq, Debug)]
pub struct Detected {
    pub format: Format,
    /// A clause: "because ...".
    pub why: String,
}

/// Lines of the beginning that are looked at.
const LINES_MAX: usize = 400;

/// Share of lines that may be damaged.
const BAD_SHARE: f64 = 0.1;

/// The formats that can be recognised, the more particular ones first.
fn candidates() -> Vec<Format> {
    vec![
        Format::Seekless,
        Format::Iolog { version: 3 },
        Format::Tracefs,
        Format::Blkparse,
        Format::Fiu,
        Format::Msr,
        Format::Systor17,
        Format::Alibaba,
        Format::Spc { block_bytes: 512 },
        Format::Tencent,
        Format::Validation,
        Format::Mqsim,
        Format::DiskSim,
    ]
}

struct Score {
    format: Format,
    good: usize,
    bad: usize,
}

/// The format of a trace that begins with `sample`; `whole` when that is all of it.
///
/// # Errors
/// Why none was found, and what to do about it.
pub(super) fn detect(sample: &[u8], whole: bool) -> Result<Detected, String> {
    if sample.is_empty() {
        return Err("there is nothing in it".into());
    }
    if blktrace::has_magic(sample) {
        let format = Format::Blktrace;
        return Ok(Detected { format, why: "it begins with blktrace's magic number 0x65617400".into() });
    }
    if let Some(version) = vscsi::version(sample) {
        let why = format!("every record in its beginning has the version number of vscsi {version}");
        return Ok(Detected { format: Format::Vscsi { version }, why });
    }
    if sample.contains(&0) {
        return Err("it is binary, and neither blktrace nor vscsi".into());
    }
    let lines = lines(sample, whole);
    let mut scores: Vec<Score> = candidates().into_iter().filter_map(|format| score(format, &lines)).collect();
    scores.sort_by_key(|score| score.bad);
    let Some(best) = scores.first() else { return Err(nothing_fits(&lines)) };
    let (good, bad) = (best.good, best.bad);
    let equal: Vec<&Format> = scores.iter().filter(|score| score.bad == bad).map(|score| &score.format).collect();
    let (format, note) = match equal[..] {
        [format] => (format, String::new()),
        // The same five columns, but DiskSim prints milliseconds with a fraction.
        [format @ Format::Mqsim, Format::DiskSim] => (
            format,
            "; the times are whole numbers, so they are taken for MQSim's nanoseconds \
             (for milliseconds say --format disksim)"
                .to_owned(),
        ),
        _ => {
            let names: Vec<String> = equal.iter().map(|format| format.to_string()).collect();
            return Err(format!("it could be {}: say which with --format", names.join(" or ")));
        }
    };
    let info = format.info();
    let share = if bad == 0 { format!("all {good}") } else { format!("{good} of {}", good + bad) };
    let why = format!("{share} lines at its beginning are `{}`{note}", info.shape);
    let iolog = lines.first().and_then(|line| super::iolog::version(line.trim_ascii_end()));
    match (format, iolog) {
        (Format::Iolog { .. }, Some(version)) => {
            let why = format!("it begins with `fio version {version} iolog`");
            Ok(Detected { format: Format::Iolog { version }, why })
        }
        _ => Ok(Detected { format: format.clone(), why }),
    }
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
    let mut parser = format.parser(Wanted::ALL, &Rc::new(RefCell::default()))?;
    let (mut good, mut bad, mut out) = (0, 0, Vec::new());
    for line in lines {
        match read_line(line, &mut *parser, &mut out) {
            Ok(()) => good += 1,
            Err(Aside::Skipped(_)) => {}
            Err(Aside::Rejected(_)) => bad += 1,
        }
    }
    let fits = good > 0 && bad as f64 <= BAD_SHARE * (good + bad) as f64;
    fits.then_some(Score { format, good, bad })
}

/// Which of the three events there are in a sample of a kernel format.
pub(super) fn events(format: &Format, sample: &[u8], whole: bool) -> [bool; 3] {
    let mut out: Vec<Request> = Vec::new();
    match format.parser(Wanted::ALL, &Rc::new(RefCell::default())) {
        Some(mut parser) => {
            for line in lines(sample, whole) {
                // What is not understood shows when the trace is read.
                let _ = read_line(line, &mut *parser, &mut out);
            }
        }
        None => {
            let read = Box::new(std::io::Cursor::new(sample.to_vec()));
            if let Ok(input) = super::input::Input::new(String::new(), read) {
                let mut reader = format.reader(input, Wanted::ALL, &Rc::new(RefCell::default()));
                while reader.fill(&mut out).unwrap_or(false) {}
            }
        }
    }
    Event::ALL.map(|event| out.iter().any(|request| request.event == event))
}

fn nothing_fits(lines: &[&[u8]]) -> String {
    let first = lines.first().map(|line| String::from_utf8_lossy(&line[..line.len().min(100)]).into_owned());
    let first = first.unwrap_or_default();
    format!(
        "its lines are of no format that is known; the first is {first:?}\n\
         describe the columns, for example: --format csv:time=1:us,op=2,offset=3:B,length=4:B"
    )
}
