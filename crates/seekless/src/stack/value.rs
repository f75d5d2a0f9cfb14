//! Values of a stack line's options: their types, parsing and writing.
//!
//! Writing is exact: parsing the `Display` output of a [`Value`] gives the same value.

use std::fmt;

use uuid::Uuid;

use crate::units::{GIB, KIB, MIB, Nanos};

/// Type of an option, with limits that hold everywhere. A limit that depends on the file system (such as a segment that
/// must be a multiple of its block) is checked when that is built.
#[derive(Clone, Copy)]
pub enum ParamKind {
    /// A number of bytes, `min..=max`: `512KiB`, `1.5GiB`.
    Bytes { min: u64, max: u64 },
    /// A length of time, `min..=max`: `30s`, `2.5ms`.
    Duration { min: Nanos, max: Nanos },
    /// A share of a whole, up to `max`: `5%`, `12.5%`.
    Percent { max: Percent },
    /// A whole number, `min..=max`.
    Integer { min: u64, max: u64 },
    /// `on` or `off`; the key alone means `on`.
    Switch,
    /// One of a few words, known while compiling.
    Choice(&'static [&'static str]),
    /// A name of a catalogue, such as the drives of the disk model. `otherwise` is the hint for anything that is not in
    /// it.
    Name { catalogue: fn() -> Vec<&'static str>, otherwise: &'static str },
    /// Any text of at most this many bytes.
    Text { bytes_max: usize },
    /// A UUID, as RFC 9562 writes it.
    Uuid,
    /// A name outside the engine: a file, a directory.
    Path,
}

/// A value of a [`ParamKind`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    Bytes(u64),
    Duration(Nanos),
    Percent(Percent),
    Integer(u64),
    Switch(bool),
    /// One of the words of a [`ParamKind::Choice`] or [`ParamKind::Name`].
    Choice(&'static str),
    Text(String),
    Uuid(Uuid),
    Path(String),
}

/// A share of a whole, exact to a hundredth of a percent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Percent {
    /// 0..=10_000
    pub hundredths: u32,
}

impl Percent {
    pub const ALL: Percent = Percent { hundredths: 10_000 };

    pub const fn new(percent: u32) -> Percent {
        Percent { hundredths: percent * 100 }
    }

    /// This share of `whole`, rounded down.
    pub fn of(self, whole: u64) -> u64 {
        (u128::from(whole) * u128::from(self.hundredths) / 10_000) as u64
    }
}

/// What is wrong with a value, and what is expected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct BadValue {
    pub(super) problem: String,
    pub(super) hint: Option<String>,
}

impl BadValue {
    fn new(problem: impl Into<String>, hint: impl Into<String>) -> BadValue {
        BadValue { problem: problem.into(), hint: Some(hint.into()) }
    }
}

/// Parses a number of bytes as in a stack line: `512KiB`, `1.5GiB`.
///
/// # Errors
/// What is wrong with it, and what is expected.
pub fn read_bytes(text: &str) -> Result<u64, String> {
    match (ParamKind::Bytes { min: 0, max: u64::MAX }).read(text) {
        Ok(Value::Bytes(bytes)) => Ok(bytes),
        Ok(_) => unreachable!("a number of bytes was asked for"),
        Err(BadValue { problem, hint }) => Err(hint.map_or(problem.clone(), |hint| format!("{problem}; {hint}"))),
    }
}

/// Units of bytes. `K`, `M`, `G`, `T` count in 1024, as with `truncate` and `mkfs`; `kB`, `MB` ... in 1000.
const BYTE_UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("b", 1),
    ("k", KIB),
    ("kib", KIB),
    ("kb", 1_000),
    ("m", MIB),
    ("mib", MIB),
    ("mb", 1_000_000),
    ("g", GIB),
    ("gib", GIB),
    ("gb", 1_000_000_000),
    ("t", 1 << 40),
    ("tib", 1 << 40),
    ("tb", 1_000_000_000_000),
];

/// Units of time, in nanoseconds.
const TIME_UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Units in which values are written, largest first.
const BYTE_UNITS_WRITTEN: &[(&str, u64)] = &[("TiB", 1 << 40), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB), ("B", 1)];

/// Those that data sheets have, as messages list them.
const BYTE_UNITS_DECIMAL: [&str; 4] = ["kB", "MB", "GB", "TB"];

impl ParamKind {
    /// Parses `text`.
    pub(super) fn read(&self, text: &str) -> Result<Value, BadValue> {
        match *self {
            ParamKind::Bytes { min, max } => {
                let bytes = read_measure(text, BYTE_UNITS).map_err(|problem| problem.said("a size", "512KiB"))?;
                check_range(bytes, min, max, Value::Bytes)
            }
            ParamKind::Duration { min, max } => {
                let nanos = match text {
                    "0" => 0,
                    _ => read_measure(text, TIME_UNITS).map_err(|problem| problem.said("a time", "30s or 5ms"))?,
                };
                check_range(nanos, min.0, max.0, |nanos| Value::Duration(Nanos(nanos)))
            }
            ParamKind::Percent { max } => {
                // `%` is a unit of a hundred hundredths.
                let hundredths =
                    read_measure(text, &[("%", 100)]).map_err(|problem| problem.said("a percentage", "5%"))?;
                let percent = |hundredths: u64| {
                    Value::Percent(Percent { hundredths: u32::try_from(hundredths).unwrap_or(u32::MAX) })
                };
                check_range(hundredths, 0, u64::from(max.hundredths), percent)
            }
            ParamKind::Integer { min, max } => {
                let number = read_measure(text, &[("", 1)]).map_err(|problem| problem.said("a whole number", "4"))?;
                check_range(number, min, max, Value::Integer)
            }
            ParamKind::Switch => match text {
                "on" => Ok(Value::Switch(true)),
                "off" => Ok(Value::Switch(false)),
                _ => Err(BadValue::new(format!("`{text}` is neither `on` nor `off`"), "use on or off")),
            },
            ParamKind::Choice(words) => read_choice(text, words),
            ParamKind::Name { catalogue, otherwise } => read_choice(text, &catalogue())
                .map_err(|bad| BadValue { hint: bad.hint.map(|hint| format!("{hint}; {otherwise}")), ..bad }),
            ParamKind::Text { bytes_max } if text.len() > bytes_max => Err(BadValue {
                problem: format!("text of {} bytes is too long; at most {bytes_max} bytes fit", text.len()),
                hint: None,
            }),
            ParamKind::Text { .. } => Ok(Value::Text(text.to_owned())),
            ParamKind::Uuid => match Uuid::try_parse(text) {
                Ok(uuid) => Ok(Value::Uuid(uuid)),
                Err(_) => Err(BadValue::new(
                    format!("`{text}` is not a UUID"),
                    "expected a UUID such as 67e55044-10b1-426f-9247-bb680e5fe0c8",
                )),
            },
            ParamKind::Path if text.contains('\0') => {
                Err(BadValue { problem: "a path has no NUL in it".into(), hint: None })
            }
            ParamKind::Path if text.is_empty() => Err(BadValue { problem: "the path is empty".into(), hint: None }),
            ParamKind::Path => Ok(Value::Path(text.to_owned())),
        }
    }

    /// The placeholder for a value in help texts.
    pub fn placeholder(&self) -> String {
        match *self {
            ParamKind::Bytes { .. } => "SIZE".into(),
            ParamKind::Duration { .. } => "TIME".into(),
            ParamKind::Percent { .. } => "PERCENT".into(),
            ParamKind::Integer { .. } => "NUMBER".into(),
            ParamKind::Switch => "on|off".into(),
            ParamKind::Choice(words) => words.join("|"),
            ParamKind::Name { .. } => "NAME".into(),
            ParamKind::Text { .. } => "TEXT".into(),
            ParamKind::Uuid => "UUID".into(),
            ParamKind::Path => "PATH".into(),
        }
    }

    /// The possible words, where there is a list of them.
    pub fn words(&self) -> Vec<&'static str> {
        match *self {
            ParamKind::Switch => vec!["on", "off"],
            ParamKind::Choice(words) => words.to_vec(),
            ParamKind::Name { catalogue, .. } => catalogue(),
            _ => Vec::new(),
        }
    }
}

fn check_range(number: u64, min: u64, max: u64, make: impl Fn(u64) -> Value) -> Result<Value, BadValue> {
    let found = make(number);
    if number < min {
        return Err(BadValue { problem: format!("{found} is too small; the minimum is {}", make(min)), hint: None });
    }
    if number > max {
        return Err(BadValue { problem: format!("{found} is too large; the maximum is {}", make(max)), hint: None });
    }
    Ok(found)
}

fn read_choice(text: &str, words: &[&'static str]) -> Result<Value, BadValue> {
    if let Some(word) = words.iter().find(|&&word| word == text) {
        return Ok(Value::Choice(word));
    }
    let problem = match nearest(text, words.iter().copied()) {
        Some(near) => format!("there is no `{text}`; did you mean `{near}`?"),
        None => format!("there is no `{text}`"),
    };
    Err(BadValue::new(problem, format!("one of: {}", words.join(", "))))
}

/// Why a measure could not be parsed.
enum BadMeasure {
    NotANumber(String),
    Unit { unit: String, known: Vec<&'static str> },
    TooLarge,
    NotWhole,
}

impl BadMeasure {
    fn said(self, what: &str, example: &str) -> BadValue {
        let problem = match self {
            BadMeasure::NotANumber(text) if text.is_empty() => format!("{what} is missing"),
            BadMeasure::NotANumber(text) => format!("`{text}` is not {what}"),
            BadMeasure::Unit { unit, known } if unit.is_empty() => {
                format!("the unit is missing; one of: {}", known.join(", "))
            }
            BadMeasure::Unit { unit, known } if known.is_empty() => {
                format!("there is no unit here, but `{unit}` follows the number")
            }
            BadMeasure::Unit { unit, .. } if unit.ends_with("/s") => {
                format!("there is no unit `{unit}`; write it without `/s`: a rate is always for a second")
            }
            BadMeasure::Unit { unit, known } => format!("there is no unit `{unit}`; one of: {}", known.join(", ")),
            BadMeasure::TooLarge => "the number is too large".into(),
            BadMeasure::NotWhole => "the number is more precise than can be stored".into(),
        };
        BadValue::new(problem, format!("expected {what} such as {example}"))
    }
}

/// Parses a decimal number and its unit into a whole count of the smallest unit.
fn read_measure(text: &str, units: &'static [(&'static str, u64)]) -> Result<u64, BadMeasure> {
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let no_number = whole.is_empty() || fraction.contains('.') || number.ends_with('.');
    if no_number {
        return Err(BadMeasure::NotANumber(text.to_owned()));
    }
    let unit = unit.trim_start();
    let factor = units.iter().find(|(name, _)| unit.eq_ignore_ascii_case(name)).map(|&(_, factor)| factor);
    let Some(factor) = factor else {
        // Help shows the units as they are written, each only once.
        let known = match units[0].0 {
            "" if units.len() > 1 => {
                BYTE_UNITS_WRITTEN.iter().rev().map(|&(name, _)| name).chain(BYTE_UNITS_DECIMAL).collect()
            }
            _ => units.iter().map(|&(name, _)| name).filter(|name| !name.is_empty()).collect(),
        };
        return Err(BadMeasure::Unit { unit: unit.to_owned(), known });
    };
    // Digits beyond the range of u128 exceed every unit's range, too.
    let digits: u128 = format!("{whole}{fraction}").parse().map_err(|_| BadMeasure::TooLarge)?;
    let scale = 10u128.checked_pow(fraction.len() as u32).ok_or(BadMeasure::NotWhole)?;
    let scaled = digits.checked_mul(u128::from(factor)).ok_or(BadMeasure::TooLarge)?;
    if !scaled.is_multiple_of(scale) {
        return Err(BadMeasure::NotWhole);
    }
    u64::try_from(scaled / scale).map_err(|_| BadMeasure::TooLarge)
}

/// The candidate that `text` most likely means, if any is close.
pub fn nearest<'a>(text: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Comparison takes time in proportion to both lengths, and a mistyped name is never this long.
    const CHARS_MAX: usize = 64;
    if text.chars().count() > CHARS_MAX {
        return None;
    }
    let text = text.to_ascii_lowercase();
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        // The name itself, in capitals, is nearest. A prefix is close however much is missing; otherwise about one
        // character in three may be wrong.
        let distance = match text.len() >= 3 && candidate != text && candidate.starts_with(&text) {
            true => 1,
            false => strsim::damerau_levenshtein(&text, candidate),
        };
        let close = distance <= (candidate.chars().count().max(text.chars().count()) / 3).max(1);
        if close && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// `number` in the largest of `units` that divides it.
fn write_measure(f: &mut fmt::Formatter<'_>, number: u64, units: &[(&str, u64)]) -> fmt::Result {
    let fitting = units.iter().find(|(_, factor)| number.is_multiple_of(*factor) && number >= *factor);
    match fitting.or(units.last()) {
        Some((name, factor)) => write!(f, "{}{name}", number / factor),
        None => write!(f, "{number}"),
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.hundredths / 100, self.hundredths % 100) {
            (whole, 0) => write!(f, "{whole}%"),
            (whole, tenths) if tenths % 10 == 0 => write!(f, "{whole}.{}%", tenths / 10),
            (whole, hundredths) => write!(f, "{whole}.{hundredths:02}%"),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bytes(bytes) => write_measure(f, *bytes, BYTE_UNITS_WRITTEN),
            Value::Duration(nanos) => {
                let mut units = TIME_UNITS.to_vec();
                units.reverse();
                write_measure(f, nanos.0, &units)
            }
            Value::Percent(percent) => percent.fmt(f),
            Value::Integer(number) => number.fmt(f),
            Value::Switch(on) => f.write_str(if *on { "on" } else { "off" }),
            Value::Choice(word) => f.write_str(word),
            Value::Uuid(uuid) => uuid.fmt(f),
            Value::Text(text) | Value::Path(text) => write_text(f, text),
        }
    }
}

/// Writes `text` bare where it is parsed to the same text, otherwise quoted.
fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let blank_edge = text.starts_with(char::is_whitespace) || text.ends_with(char::is_whitespace);
    // A slash between blanks would end the value.
    let lone_slash = text.split(char::is_whitespace).any(|part| part == "/") && text != "/";
    if text.is_empty() || blank_edge || lone_slash || text.contains([',', '"', '=']) {
        f.write_str("\"")?;
        for c in text.chars() {
            if matches!(c, '"' | '\\') {
                f.write_str("\\")?;
            }
            write!(f, "{c}")?;
        }
        return f.write_str("\"");
    }
    f.write_str(text)
}
