//! Any text: columns between separators, or the named groups of a regular expression.
//!
//! Nothing is guessed: a column of times, addresses or lengths has its unit in the description, and an operation that
//! is not a word such as `R` or `write` must be named. Addresses and lengths may be hexadecimal where each begins with `0x`.
//!
//! ```text
//! csv:time=1:us,op=2,offset=3:B,length=4:B,device=5,header=1
//! csv:time=1:filetime,op=4,offset=5:B,length=6:B,latency=7:100ns
//! csv:time=ts:s,offset=lba:sectors,length=size:4096,op=type,read=0,write=1,separator=;
//! regex:^(?<time_us>\d+) (?<op>\w+) (?<offset_sectors>\d+)\+(?<length_B>\d+)
//! ```

use std::sync::Arc;

use regex::bytes::Regex;
use seekless::units::{Nanos, SECTOR_BYTES};

use super::names::{DeviceNames, SharedNames, device_of};
use super::published::{FILE_TIME_OF_1970, FILE_TIME_UNIT};
use super::request::{Op, Request};
use super::spec::{Described, FormatSpec, ReaderOptions};
use super::tally::Aside;
use super::text::{Fields, LineParser, MICROSECOND, MILLISECOND, SECOND, Words, number, plausible, time, times, trim};

pub(super) const CSV: FormatSpec = FormatSpec {
    about: "columns of your own, with their units",
    shape: "for example csv:time=1:us,op=2,offset=3:B,length=4:B",
    has_latency: true,
    ..FormatSpec::described("csv", "COLUMNS", "time=1:us,op=2,offset=3:B,length=4:B", |text| {
        Ok(Arc::new(Columns::parse(text)?))
    })
};

pub(super) const REGEX: FormatSpec = FormatSpec {
    about: "named groups of your own, with their units",
    shape: "(?<time_us>..)(?<op>..)(?<offset_sectors>..)(?<length_B>..)",
    has_latency: true,
    ..FormatSpec::described(
        "regex",
        "PATTERN",
        r"^(?<time_us>\d+) (?<op>\w+) (?<offset_sectors>\d+) (?<length_B>\d+)",
        |text| Ok(Arc::new(Pattern::parse(text)?)),
    )
};

/// Role of a column.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Role {
    Time,
    Op,
    Offset,
    Length,
    Device,
    Latency,
    Process,
    Cpu,
}

const ROLES: [(&str, Role); 8] = [
    ("time", Role::Time),
    ("op", Role::Op),
    ("offset", Role::Offset),
    ("length", Role::Length),
    ("device", Role::Device),
    ("latency", Role::Latency),
    ("process", Role::Process),
    ("cpu", Role::Cpu),
];

impl Role {
    fn name(self) -> &'static str {
        ROLES.iter().find(|(_, role)| *role == self).map_or("", |(name, _)| name)
    }

    fn is_time(self) -> bool {
        matches!(self, Role::Time | Role::Latency)
    }

    fn is_size(self) -> bool {
        matches!(self, Role::Offset | Role::Length)
    }

    /// Parses the unit of a column of this role; 1 for columns without units.
    fn unit(self, unit: Option<&str>) -> Result<Unit, String> {
        if (self, unit) == (Role::Time, Some(FILE_TIME)) {
            return Ok(Unit { factor: FILE_TIME_UNIT, zero: FILE_TIME_OF_1970 * FILE_TIME_UNIT });
        }
        self.factor(unit).map(|factor| Unit { factor, zero: 0 })
    }

    fn factor(self, unit: Option<&str>) -> Result<u64, String> {
        let name = self.name();
        let times = match self {
            Role::Time => "s, ms, us, 100ns or ns since any start, or filetime: 100 ns since 1601, as on Windows",
            _ => "s, ms, us, 100ns or ns",
        };
        match (unit, self.is_time(), self.is_size()) {
            (Some("s"), true, _) => Ok(SECOND),
            (Some("ms"), true, _) => Ok(MILLISECOND),
            (Some("us"), true, _) => Ok(MICROSECOND),
            (Some("100ns"), true, _) => Ok(100),
            (Some("ns"), true, _) => Ok(1),
            (Some("B"), _, true) => Ok(1),
            (Some("sectors"), _, true) => Ok(SECTOR_BYTES),
            (Some("KiB"), _, true) => Ok(1024),
            (Some(count), _, true) if count.parse::<u64>().is_ok_and(|count| count > 0) => {
                Ok(count.parse().unwrap_or(1))
            }
            (Some(unit), true, _) => Err(format!("`{unit}` is no unit of `{name}`, which is a time: {times}")),
            (Some(unit), _, true) => Err(format!("`{unit}` is no unit of bytes: B, sectors, KiB or a number of bytes")),
            (Some(unit), false, false) => Err(format!("`{name}` has no unit, such as `{unit}`")),
            (None, true, _) => Err(format!("`{name}` needs a unit: {times}")),
            (None, _, true) => Err(format!("`{name}` needs a unit: B, sectors, KiB or a number of bytes")),
            (None, false, false) => Ok(1),
        }
    }
}

/// The unit of file times.
const FILE_TIME: &str = "filetime";

/// What a number of a column means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Unit {
    /// Nanoseconds or bytes of 1.
    factor: u64,
    /// Nanoseconds at which the time of a trace is 0.
    zero: u64,
}

impl Unit {
    /// The time of a trace.
    #[inline]
    fn since_zero(self, nanos: u64) -> Result<Nanos, Aside> {
        match nanos.checked_sub(self.zero) {
            // File times taken for ticks since some other start are beyond what a trace holds, and near its limit.
            Some(nanos) if nanos > FILE_TIMES && self.factor == FILE_TIME_UNIT && self.zero == 0 => {
                Err(MISTAKEN_FILE_TIME)
            }
            Some(nanos) => Ok(Nanos(nanos)),
            None => Err(BEFORE_1970),
        }
    }
}

/// The year 1970 as a file time, in nanoseconds since 1601.
const FILE_TIMES: u64 = FILE_TIME_OF_1970 * FILE_TIME_UNIT;

const MISTAKEN_FILE_TIME: Aside =
    Aside::Rejected("the time is beyond 2^63 ns; a file time, 100 ns since 1601, has the unit filetime");
const BEFORE_1970: Aside = Aside::Rejected("the time is before 1970, so it is no file time: is its unit 100ns?");

/// Words that mean an operation, besides the usual ones.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct OpWords(Vec<(Op, Vec<u8>)>);

impl OpWords {
    fn read(&self, word: &[u8]) -> Result<Op, Aside> {
        // A word as it was given comes first, so that `r` and `R` can mean different operations.
        let exact = self.0.iter().find(|(_, known)| known == word);
        let alike = || self.0.iter().find(|(_, known)| known.eq_ignore_ascii_case(word) || is_same_number(known, word));
        match exact.or_else(alike) {
            Some((op, _)) => Ok(*op),
            None => Op::from_word(word).ok_or(Aside::Rejected(match hexadecimal(word).is_some() {
                true => "the operation is unknown; 0x28 is named by read=0x28 or read=40, and not by read=28",
                false => "the operation is unknown",
            })),
        }
    }
}

/// Whether one is a hexadecimal number that begins with `0x`, and the other is the same number. Without `0x` digits are a word, which can be
/// hexadecimal as well as decimal.
fn is_same_number(one: &[u8], other: &[u8]) -> bool {
    match (hexadecimal(one), hexadecimal(other)) {
        (Some(one), Some(other)) => one == other,
        (Some(one), None) => number(other) == Some(one),
        (None, Some(other)) => number(one) == Some(other),
        (None, None) => false,
    }
}

/// Values of a line, by role.
#[derive(Default)]
struct Values {
    time: Option<Nanos>,
    op: Option<Op>,
    offset: Option<u64>,
    length: Option<u64>,
    latency: Option<Nanos>,
    process: Option<u32>,
    cpu: Option<u32>,
}

/// Parses one value into `values`; a device goes into `request`.
fn take(
    role: Role,
    unit: Unit,
    text: &[u8],
    ops: &OpWords,
    names: &mut DeviceNames,
    values: &mut Values,
    request: &mut Request,
) -> Result<(), Aside> {
    if role == Role::Op {
        values.op = Some(ops.read(text)?);
        return Ok(());
    }
    if let Some(number) = number(text) {
        return take_number(role, unit, number, values, request);
    }
    if role.is_size()
        && let Some(number) = hexadecimal(text)
    {
        return take_number(role, unit, number, values, request);
    }
    match role {
        Role::Time => values.time = Some(unit.since_zero(time(text, unit.factor).ok_or(NO_TIME)?.0)?),
        Role::Offset if is_bare_hexadecimal(text) => {
            return Err(Aside::Rejected("the offset is not a number; a hexadecimal one begins with 0x"));
        }
        Role::Offset => return Err(Aside::Rejected("the offset is not a number")),
        Role::Length if is_bare_hexadecimal(text) => {
            return Err(Aside::Rejected("the length is not a number; a hexadecimal one begins with 0x"));
        }
        Role::Length => return Err(Aside::Rejected("the length is not a number")),
        Role::Device => request.device = names.device(text)?,
        Role::Latency if text.is_empty() => {}
        Role::Latency => values.latency = Some(time(text, unit.factor).ok_or(NO_LATENCY)?),
        Role::Op | Role::Process | Role::Cpu => {}
    }
    Ok(())
}

/// As [`take`] for a plain number.
#[inline]
fn take_number(role: Role, unit: Unit, number: u64, values: &mut Values, request: &mut Request) -> Result<(), Aside> {
    let time = || number.checked_mul(unit.factor);
    match role {
        Role::Time => values.time = Some(unit.since_zero(time().ok_or(TOO_LATE)?)?),
        Role::Latency => values.latency = time().map(Nanos).ok_or(TOO_LONG).map(Some)?,
        Role::Offset => values.offset = Some(times(number, unit.factor)?),
        Role::Length => values.length = Some(times(number, unit.factor)?),
        Role::Device => request.device = device_of(number)?,
        Role::Process => values.process = u32::try_from(number).ok(),
        Role::Cpu => values.cpu = u32::try_from(number).ok(),
        Role::Op => {}
    }
    Ok(())
}

/// A number such as `0x1f000`, as strace and traces of the kernel have them.
fn hexadecimal(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X"))?;
    // Without a sign, which `from_str_radix` takes.
    let is_plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
    is_plain.then(|| u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok())?
}

/// Hexadecimal digits without a prefix, letters among them.
fn is_bare_hexadecimal(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_hexdigit) && text.iter().any(u8::is_ascii_alphabetic)
}

const NO_TIME: Aside = Aside::Rejected("the time is not a number");
const TOO_LATE: Aside = Aside::Rejected("the time is beyond 2^63 ns");
const TOO_LONG: Aside = Aside::Rejected("the latency is beyond 2^63 ns");
const NO_LATENCY: Aside = Aside::Rejected("the latency is not a number");

fn request(values: Values, mut request: Request, out: &mut Vec<Request>) -> Result<(), Aside> {
    const TOO_FEW: Aside = Aside::Rejected("too few fields");
    let op = values.op.ok_or(TOO_FEW)?;
    request.time = values.time.ok_or(TOO_FEW)?;
    request.op = op;
    if op != Op::Flush {
        request.offset = values.offset.ok_or(TOO_FEW)?;
        request.bytes = values.length.ok_or(TOO_FEW)?;
    }
    (request.latency, request.process, request.cpu) = (values.latency, values.process, values.cpu);
    out.push(plausible(request)?);
    Ok(())
}

/// Every role occurs at most once, and some have to.
fn check_roles(found: &[Role]) -> Result<(), String> {
    for (name, role) in ROLES {
        let is_needed = matches!(role, Role::Time | Role::Op | Role::Offset | Role::Length);
        match found.iter().filter(|found| **found == role).count() {
            0 if is_needed => return Err(format!("`{name}` is missing")),
            0 | 1 => {}
            _ => return Err(format!("`{name}` occurs twice")),
        }
    }
    Ok(())
}

const NAME_MISSING: &str = "the header lacks a column that is named";
const COLUMN_TWICE: &str = "a column has two roles: by its number and by its name";

/// Which column holds what.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Columns {
    text: String,
    columns: Vec<Column>,
    separator: u8,
    /// Lines before the first request. Columns by name are looked up in the first that is no comment.
    header_lines: u64,
    ops: OpWords,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Column {
    role: Role,
    place: ColumnRef,
    unit: Unit,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum ColumnRef {
    /// From zero.
    Index(usize),
    Name(String),
}

impl ColumnRef {
    fn is_same(&self, other: &ColumnRef) -> bool {
        match (self, other) {
            (ColumnRef::Index(one), ColumnRef::Index(other)) => one == other,
            (ColumnRef::Name(one), ColumnRef::Name(other)) => one.eq_ignore_ascii_case(other),
            // Only the header can say.
            _ => false,
        }
    }
}

impl Columns {
    /// Parses a description: items `role=column[:unit]`, where a column is its number from one or its name in the
    /// header; `separator=`, `header=LINES`, and `read=`, `write=`, `discard=`, `flush=` for the operations' words.
    ///
    /// # Errors
    /// What is wrong, in words.
    fn parse(text: &str) -> Result<Columns, String> {
        let mut columns = Vec::new();
        let (mut separator, mut header_lines, mut ops) = (b',', None, OpWords::default());
        for item in text.split(',') {
            let (key, value) = item.split_once('=').ok_or(format!("`{item}` is not KEY=VALUE"))?;
            if let Some((_, role)) = ROLES.iter().find(|(name, _)| *name == key) {
                let (place, unit) = match value.split_once(':') {
                    Some((place, unit)) => (place, Some(unit)),
                    None => (value, None),
                };
                let place = match place.parse::<usize>() {
                    Ok(0) => return Err("columns are counted from one".into()),
                    Ok(number) => ColumnRef::Index(number - 1),
                    Err(_) if place.is_empty() => return Err(format!("`{key}` has no column")),
                    Err(_) => ColumnRef::Name(place.to_owned()),
                };
                columns.push(Column { role: *role, place, unit: role.unit(unit)? });
                continue;
            }
            let op = match key {
                "separator" => {
                    separator = match value {
                        "comma" => b',',
                        "tab" => b'\t',
                        "space" => b' ',
                        _ => match value.as_bytes() {
                            [byte] => *byte,
                            _ => return Err(format!("`{value}` is no separator: comma, tab, space or one character")),
                        },
                    };
                    continue;
                }
                "header" => {
                    let count = value.parse().map_err(|_| format!("`{value}` is not a number of header lines"))?;
                    header_lines = Some(count);
                    continue;
                }
                "read" => Op::Read,
                "write" => Op::Write,
                "discard" => Op::Discard,
                "flush" => Op::Flush,
                _ => {
                    let known: Vec<&str> = ROLES.iter().map(|(name, _)| *name).collect();
                    return Err(format!(
                        "`{key}` is unknown; there are {}, separator, header, read, write, discard and flush",
                        known.join(", ")
                    ));
                }
            };
            ops.0.push((op, value.as_bytes().to_vec()));
        }
        check_roles(&columns.iter().map(|column| column.role).collect::<Vec<_>>())?;
        for (index, column) in columns.iter().enumerate() {
            if let Some(other) = columns[..index].iter().find(|other| other.place.is_same(&column.place)) {
                return Err(format!("`{}` and `{}` are the same column", other.role.name(), column.role.name()));
            }
        }
        let by_name = columns.iter().any(|column| matches!(column.place, ColumnRef::Name(_)));
        let header_lines = header_lines.unwrap_or(u64::from(by_name));
        if by_name && header_lines == 0 {
            return Err("columns by name need a header".into());
        }
        Ok(Columns { text: text.to_owned(), columns, separator, header_lines, ops })
    }
}

impl Described for Columns {
    fn text(&self) -> String {
        self.text.clone()
    }

    fn parser(&self, options: &ReaderOptions<'_>) -> Option<Box<dyn LineParser>> {
        Some(Box::new(ColumnsParser::new(self, options.names.clone())))
    }
}

struct ColumnsParser {
    description: Columns,
    /// Role and unit of each column, once the names have been looked up; until then, why not.
    by_index: Result<Vec<Option<(Role, Unit)>>, &'static str>,
    /// Header lines that are still to come.
    header_lines: u64,
    /// Lines before the first request that begin with `#`. The user may have counted them as header lines.
    comments: u64,
    names: DeviceNames,
}

/// Limit of columns. A larger number is a mistake.
const COLUMNS_MAX: usize = 4096;
const TOO_MANY_COLUMNS: &str = "a column has a number beyond 4096";

impl ColumnsParser {
    fn new(description: &Columns, names: SharedNames) -> ColumnsParser {
        ColumnsParser {
            description: description.clone(),
            by_index: resolve(description, &[]),
            header_lines: description.header_lines,
            comments: 0,
            names: DeviceNames::new(names),
        }
    }

    /// The fields of a line. Blanks as separators may come in any number.
    fn fields<'a>(&self, line: &'a [u8]) -> Either<'a> {
        match self.description.separator {
            b' ' => Either::Words(Words::new(line.trim_ascii())),
            separator => Either::Fields(Fields::new(line, separator)),
        }
    }

    /// Looks up the names of columns in `line`; false if it lacks one.
    fn resolve(&mut self, line: &[u8]) -> bool {
        let header: Vec<&[u8]> = self.fields(line).map(unquote).collect();
        self.by_index = resolve(&self.description, &header);
        self.by_index.is_ok()
    }

    fn request(&mut self, line: &[u8], out: &mut Vec<Request>) -> Result<(), Aside> {
        let mut fields = self.fields(line);
        let by_index = self.by_index.as_ref().map_err(|why| Aside::Rejected(why))?;
        let (mut values, mut base) = (Values::default(), Request::new(Nanos::ZERO, Op::Read, 0, 0));
        for column in by_index {
            if let (Some((role, unit)), Either::Fields(fields)) = (column, &mut fields)
                && *role != Role::Op
                && let Some(number) = fields.plain_number()
            {
                take_number(*role, *unit, number, &mut values, &mut base)?;
                continue;
            }
            let Some(field) = fields.next() else { break };
            if let Some((role, unit)) = column {
                let (ops, names) = (&self.description.ops, &mut self.names);
                take(*role, *unit, unquote(field), ops, names, &mut values, &mut base)?;
            }
        }
        request(values, base, out)
    }
}

fn resolve(description: &Columns, header: &[&[u8]]) -> Result<Vec<Option<(Role, Unit)>>, &'static str> {
    let mut by_index = Vec::new();
    for column in &description.columns {
        let index = match &column.place {
            ColumnRef::Index(index) => *index,
            ColumnRef::Name(name) => {
                let is_it = |field: &&[u8]| field.eq_ignore_ascii_case(name.as_bytes());
                header.iter().position(is_it).ok_or(NAME_MISSING)?
            }
        };
        if index >= COLUMNS_MAX {
            return Err(TOO_MANY_COLUMNS);
        }
        if by_index.len() <= index {
            by_index.resize(index + 1, None);
        }
        if by_index[index].replace((column.role, column.unit)).is_some() {
            return Err(COLUMN_TWICE);
        }
    }
    Ok(by_index)
}

impl LineParser for ColumnsParser {
    fn parse(&mut self, line: &[u8], out: &mut Vec<Request>) -> Result<(), Aside> {
        if self.header_lines == 0 {
            return self.request(line, out);
        }
        // With `#` before the header, the first line without may be a request already.
        if self.by_index.is_ok() && self.comments >= self.header_lines && self.request(line, out).is_ok() {
            self.header_lines = 0;
            return Ok(());
        }
        if self.by_index.is_err() && self.header_lines == self.description.header_lines {
            self.resolve(line);
        }
        self.header_lines -= 1;
        Err(Aside::Skipped("header"))
    }

    fn comment(&mut self, line: &[u8]) -> bool {
        if self.header_lines == 0 {
            return false;
        }
        let text = line.iter().position(|byte| *byte != b'#').map_or(&[][..], |start| &line[start..]);
        // Comments may come before the header, with or without `#` before it; names may have one, too.
        let is_header = self.by_index.is_err()
            && self.header_lines == self.description.header_lines
            && (self.resolve(line) || self.resolve(text));
        match is_header {
            true => self.header_lines -= 1,
            false => self.comments += 1,
        }
        is_header
    }
}

/// Fields between blanks, or between another separator.
enum Either<'a> {
    Words(Words<'a>),
    Fields(Fields<'a>),
}

impl<'a> Iterator for Either<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        match self {
            Either::Words(words) => words.next(),
            Either::Fields(fields) => fields.field().ok(),
        }
    }
}

fn unquote(field: &[u8]) -> &[u8] {
    let field = trim(field);
    field.strip_prefix(b"\"").and_then(|field| field.strip_suffix(b"\"")).unwrap_or(field)
}

/// A regular expression whose named groups give role and unit: `time_us`, `offset_sectors`, `op`.
#[derive(Clone, Debug)]
struct Pattern {
    regex: Regex,
    /// Group, role and unit.
    groups: Vec<(usize, Role, Unit)>,
}

impl Pattern {
    /// Parses an expression.
    ///
    /// # Errors
    /// What is wrong, in words.
    fn parse(text: &str) -> Result<Pattern, String> {
        let regex = Regex::new(text).map_err(|error| error.to_string())?;
        let mut groups = Vec::new();
        for (index, name) in regex.capture_names().enumerate() {
            let Some(name) = name else { continue };
            let (base, unit) = match name.split_once('_') {
                Some((base, unit)) => (base, Some(unit)),
                None => (name, None),
            };
            let known: Vec<&str> = ROLES.iter().map(|(name, _)| *name).collect();
            let (_, role) = ROLES
                .iter()
                .find(|(name, _)| *name == base)
                .ok_or(format!("the group `{name}` is unknown; there are {}", known.join(", ")))?;
            groups.push((index, *role, role.unit(unit)?));
        }
        check_roles(&groups.iter().map(|(_, role, _)| *role).collect::<Vec<_>>())?;
        Ok(Pattern { regex, groups })
    }
}

impl Described for Pattern {
    fn text(&self) -> String {
        self.regex.as_str().to_owned()
    }

    fn parser(&self, options: &ReaderOptions<'_>) -> Option<Box<dyn LineParser>> {
        Some(Box::new(PatternParser::new(self, options.names.clone())))
    }
}

struct PatternParser {
    pattern: Pattern,
    names: DeviceNames,
}

impl PatternParser {
    fn new(pattern: &Pattern, names: SharedNames) -> PatternParser {
        PatternParser { pattern: pattern.clone(), names: DeviceNames::new(names) }
    }
}

impl LineParser for PatternParser {
    fn parse(&mut self, line: &[u8], out: &mut Vec<Request>) -> Result<(), Aside> {
        let Some(captures) = self.pattern.regex.captures(line) else {
            return Err(Aside::Rejected("the expression does not match"));
        };
        let (mut values, mut base) = (Values::default(), Request::new(Nanos::ZERO, Op::Read, 0, 0));
        for (group, role, unit) in &self.pattern.groups {
            if let Some(found) = captures.get(*group) {
                let text = found.as_bytes();
                take(*role, *unit, text, &OpWords::default(), &mut self.names, &mut values, &mut base)?;
            }
        }
        request(values, base, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A description without a unit, with a wrong one or with something missing is refused with a clear error.
    #[test]
    fn nothing_is_guessed() {
        let problem = |text: &str| Columns::parse(text).expect_err(text);
        let rest = "op=2,offset=3:B,length=4:B";
        assert!(problem(&format!("time=1,{rest}")).contains("`time` needs a unit"));
        assert!(problem(&format!("time=1:B,{rest}")).contains("no unit of `time`"));
        assert!(problem(&format!("time=1:s,{rest},latency=5:filetime")).contains("no unit of `latency`"));
        assert!(problem(&format!("time=0:s,{rest}")).contains("from one"));
        assert!(problem("time=1:s,op=2,offset=3,length=4:B").contains("`offset` needs a unit"));
        assert!(problem("time=1:s,op=2,offset=3:0,length=4:B").contains("no unit of bytes"));
        assert!(problem("time=1:s,op=2,offset=3:B").contains("`length` is missing"));
        assert!(problem(&format!("time=1:s,time=2:s,{rest}")).contains("twice"));
        assert!(problem(&format!("time=1:s,device=5,device=6,{rest}")).contains("`device` occurs twice"));
        assert!(problem(&format!("time=1:s,cpu=3,{rest}")).contains("`cpu` and `offset` are the same column"));
        let named = "time=a:s,device=A,op=b,offset=c:B,length=d:B";
        assert!(problem(named).contains("`time` and `device` are the same column"));
        let mixed = Columns::parse("time=1:s,device=When,op=2,offset=3:B,length=4:B").expect("the header decides");
        assert_eq!(resolve(&mixed, &[b"when", b"op", b"offset", b"length"]), Err(COLUMN_TWICE));
        assert!(resolve(&mixed, &[b"t", b"op", b"offset", b"length", b"when"]).is_ok());
        assert!(problem(&format!("time=1:s,{rest},colour=3")).contains("`colour` is unknown"));
        assert!(problem(&format!("time=when:s,{rest},header=0")).contains("need a header"));
        assert!(problem("").contains("KEY=VALUE"));
        assert!(Pattern::parse("(?<time>x)(?<op>.)").expect_err("no unit").contains("needs a unit"));
        assert!(Pattern::parse("(?<time_us>x)").expect_err("no op").contains("`op` is missing"));
        assert!(Pattern::parse("(?<when_us>x)").expect_err("no such group").contains("unknown"));
        assert!(Pattern::parse("(").is_err());
    }
}
