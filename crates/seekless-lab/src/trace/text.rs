//! Common code of all text formats: lines, fields and numbers.
//!
//! Numbers are parsed digit by digit into integers. Floating point would lose nanoseconds: a time of day in seconds
//! needs more digits than a double has.

use memchr::memchr;
use seekless::units::Nanos;

use super::TraceError;
use super::input::Input;
use super::request::Request;
use super::tally::{Aside, Tallies};

/// Longest line that is parsed.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Requests that a reader delivers at a time.
pub(super) const BATCH: usize = 1024;

/// Converts lines to requests.
pub(super) trait LineParser {
    /// Parses `line`, which has no line end, and appends its requests to `out`.
    ///
    /// # Errors
    /// Why the line is not a request; [`Aside::InPart`] if it is one, which is then in `out`.
    fn parse(&mut self, line: &[u8], out: &mut Vec<Request>) -> Result<(), Aside>;

    /// Takes a line that begins with `#`: true where it is the header that the parser waits for, and no comment.
    fn comment(&mut self, line: &[u8]) -> bool {
        let _ = line;
        false
    }

    /// A remark about the lines so far.
    fn note(&self) -> Option<&'static str> {
        None
    }

    /// Appends requests held back until the end.
    fn finish(&mut self, out: &mut Vec<Request>) {
        let _ = out;
    }
}

/// Delivers the requests of one input in batches.
pub(super) trait Reader {
    /// Appends some requests to `out`; false at the end. May append none before the end.
    fn fill(&mut self, out: &mut Vec<Request>) -> Result<bool, TraceError>;

    fn tallies(&self) -> Tallies;
}

/// Reads lines with a parser.
pub(super) struct TextReader {
    input: Input,
    parser: Box<dyn LineParser>,
    tallies: Tallies,
    lines: u64,
    finished: bool,
}

impl TextReader {
    pub(super) fn new(input: Input, parser: Box<dyn LineParser>) -> TextReader {
        TextReader { input, parser, tallies: Tallies::of_lines(), lines: 0, finished: false }
    }

    /// Skips a line that is too long, which begins at the window.
    fn pass_over(&mut self) -> Result<(), TraceError> {
        let example = self.input.window()[..80].to_vec();
        self.lines += 1;
        self.tallies.add(Aside::Rejected("the line is longer than 64 KiB"), self.lines, &example);
        loop {
            let window = self.input.window();
            if let Some(end) = memchr(b'\n', window) {
                self.input.consume(end + 1);
                return Ok(());
            }
            let whole = window.len();
            self.input.consume(whole);
            if !self.input.extend()? {
                return Ok(());
            }
        }
    }
}

impl Reader for TextReader {
    fn fill(&mut self, out: &mut Vec<Request>) -> Result<bool, TraceError> {
        let full = out.len() + BATCH;
        loop {
            let window = self.input.window();
            let mut at = 0;
            let (mut lines, tallies, parser) = (self.lines, &mut self.tallies, &mut *self.parser);
            while out.len() < full {
                let Some(length) = memchr(b'\n', &window[at..]) else { break };
                lines += 1;
                take_line(&window[at..at + length], lines, parser, tallies, out);
                at += length + 1;
            }
            self.lines = lines;
            self.input.consume(at);
            if out.len() >= full {
                return Ok(true);
            }
            if self.input.window().len() > LINE_BYTES_MAX && memchr(b'\n', self.input.window()).is_none() {
                self.pass_over()?;
                continue;
            }
            if self.input.extend()? {
                continue;
            }
            // The last line may lack its end.
            let last = self.input.window().len();
            if last > 0 {
                self.lines += 1;
                take_line(self.input.window(), self.lines, &mut *self.parser, &mut self.tallies, out);
                self.input.consume(last);
            }
            if !self.finished {
                self.finished = true;
                self.parser.finish(out);
            }
            return Ok(false);
        }
    }

    fn tallies(&self) -> Tallies {
        let mut tallies = self.tallies.clone();
        tallies.units = self.lines;
        tallies.note = self.parser.note();
        tallies
    }
}

#[inline]
fn take_line(line: &[u8], number: u64, parser: &mut dyn LineParser, tallies: &mut Tallies, out: &mut Vec<Request>) {
    let before = out.len();
    if let Err(aside) = read_line(line, parser, out) {
        if !matches!(aside, Aside::InPart(_)) {
            out.truncate(before);
        }
        // Blank lines are not counted.
        if !line.trim_ascii().is_empty() {
            tallies.add(aside, number, line);
        }
    }
}

/// Parses a line that may end in a carriage return, be blank or be a comment.
#[inline]
pub(super) fn read_line(line: &[u8], parser: &mut dyn LineParser, out: &mut Vec<Request>) -> Result<(), Aside> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match line {
        [b'#', ..] => Err(Aside::Skipped(if parser.comment(line) { "header" } else { "comment" })),
        [] | [b' ' | b'\t', ..] if line.trim_ascii().is_empty() => Err(Aside::Skipped("blank line")),
        _ => parser.parse(line, out),
    }
}

/// A decimal number without sign.
#[inline]
pub(super) fn number(text: &[u8]) -> Option<u64> {
    // 19 digits always fit.
    if text.is_empty() || text.len() > 19 {
        return (text.len() == 20).then(|| std::str::from_utf8(text).ok()?.parse().ok())?;
    }
    let (mut value, mut rest) = (0u64, text);
    while let Some((eight, behind)) = rest.split_first_chunk::<8>() {
        value = value * 100_000_000 + eight_digits(u64::from_le_bytes(*eight))?;
        rest = behind;
    }
    for &byte in rest {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    Some(value)
}

/// Eight digits, all of them zero.
const ZEROES: u64 = 0x3030_3030_3030_3030;

/// The value of eight digits, the first in the lowest byte: computed together, by adding neighbours, then pairs, then
/// fours.
#[inline]
fn eight_digits(bytes: u64) -> Option<u64> {
    const HIGH: u64 = 0xf0f0_f0f0_f0f0_f0f0;
    // A byte is a digit when its upper half is 3, and still is after adding six.
    if bytes & HIGH != ZEROES || bytes.wrapping_add(0x0606_0606_0606_0606) & HIGH != ZEROES {
        return None;
    }
    const PAIRS: u64 = 0x0000_00ff_0000_00ff;
    let digits = bytes - ZEROES;
    let pairs = digits * 10 + (digits >> 8);
    let upper = (pairs & PAIRS).wrapping_mul(100 + (1_000_000 << 32));
    let lower = ((pairs >> 16) & PAIRS).wrapping_mul(1 + (10_000 << 32));
    Some(upper.wrapping_add(lower) >> 32)
}

/// The first position of `byte`, searched eight bytes at a time.
#[inline]
pub(super) fn find(byte: u8, text: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(eight) = text[at..].first_chunk::<8>() {
        let equal = bytes_equal(byte, u64::from_le_bytes(*eight));
        if equal != 0 {
            return Some(at + equal.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    text[at..].iter().position(|&other| other == byte).map(|place| at + place)
}

/// The lowest set bit is in the first of the eight bytes, from the lowest, that equals `byte`; zero if none does.
#[inline]
fn bytes_equal(byte: u8, eight: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let difference = eight ^ (ONES * u64::from(byte));
    difference.wrapping_sub(ONES) & !difference & (ONES << 7)
}

/// A number in base 16, with or without `0x`.
pub(super) fn hex(text: &[u8]) -> Option<u64> {
    let text = text.strip_prefix(b"0x").unwrap_or(text);
    if !text.iter().all(u8::is_ascii_hexdigit) {
        return None; // from_str_radix would accept a sign.
    }
    u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()
}

/// `text`, a decimal number with or without a fraction, in units of `unit` nanoseconds. Parts of a nanosecond are cut
/// off.
#[inline]
pub(super) fn time(text: &[u8], unit: u64) -> Option<Nanos> {
    let Some(point) = find(b'.', text) else {
        return number(text)?.checked_mul(unit).map(Nanos);
    };
    let whole = if point == 0 { 0 } else { number(&text[..point])? };
    let fraction = &text[point + 1..];
    if point == 0 && fraction.is_empty() {
        return None;
    }
    // Nine digits of the coarsest unit, seconds, reach a nanosecond.
    let digits = fraction.len().min(9);
    let value = if digits == 0 { 0 } else { number(&fraction[..digits])? };
    if !fraction[digits..].iter().all(u8::is_ascii_digit) {
        return None;
    }
    let part = value * unit / POWERS[digits];
    whole.checked_mul(unit)?.checked_add(part).map(Nanos)
}

const POWERS: [u64; 10] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];

/// Nanoseconds in units that traces use.
pub(super) const SECOND: u64 = 1_000_000_000;
pub(super) const MILLISECOND: u64 = 1_000_000;
pub(super) const MICROSECOND: u64 = 1_000;

/// Fields between separators, without the blanks around them.
pub(super) struct Fields<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> Fields<'a> {
    pub(super) fn new(line: &'a [u8], separator: u8) -> Fields<'a> {
        Fields { rest: Some(line), separator }
    }

    /// The next field.
    #[inline]
    pub(super) fn field(&mut self) -> Result<&'a [u8], Aside> {
        let rest = self.rest.ok_or(Aside::Rejected("too few fields"))?;
        match find(self.separator, rest) {
            Some(end) => {
                self.rest = Some(&rest[end + 1..]);
                Ok(trim(&rest[..end]))
            }
            None => {
                self.rest = None;
                Ok(trim(rest))
            }
        }
    }

    /// The next field, a number.
    #[inline]
    pub(super) fn number(&mut self, or: &'static str) -> Result<u64, Aside> {
        match self.plain_number() {
            Some(number) => Ok(number),
            None => number(self.field()?).ok_or(Aside::Rejected(or)),
        }
    }

    /// The next field if it consists of digits alone and is not the last; it is found and parsed in the same pass.
    /// Otherwise nothing is consumed.
    #[inline]
    pub(super) fn plain_number(&mut self) -> Option<u64> {
        let rest = self.rest?;
        let (mut value, mut at) = (0u64, 0);
        loop {
            let eight = u64::from_le_bytes(*rest[at..].first_chunk()?);
            let separators = bytes_equal(self.separator, eight);
            if separators == 0 {
                if at == 16 {
                    return None; // More than 19 digits may be too many for 64 bits.
                }
                value = value * 100_000_000 + eight_digits(eight)?;
                at += 8;
                continue;
            }
            let digits = separators.trailing_zeros() as usize / 8;
            if at + digits == 0 || at + digits > 19 {
                return None;
            }
            if digits > 0 {
                let leading = eight << (64 - 8 * digits) | ZEROES >> (8 * digits);
                value = value * POWERS[digits] + eight_digits(leading)?;
            }
            self.rest = Some(&rest[at + digits + 1..]);
            return Some(value);
        }
    }

    /// The bytes not yet read.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest.unwrap_or_default()
    }

    /// Fails if there are more.
    pub(super) fn end(&self) -> Result<(), Aside> {
        if self.rest.is_some() { Err(Aside::Rejected("too many fields")) } else { Ok(()) }
    }
}

/// Without blanks at the ends.
#[inline]
pub(super) fn trim(text: &[u8]) -> &[u8] {
    match text {
        [b' ' | b'\t', ..] | [.., b' ' | b'\t'] => text.trim_ascii(),
        _ => text,
    }
}

/// Fields between blanks.
pub(super) struct Words<'a> {
    rest: &'a [u8],
}

impl<'a> Words<'a> {
    pub(super) fn new(line: &'a [u8]) -> Words<'a> {
        Words { rest: line }
    }

    #[inline]
    pub(super) fn word(&mut self) -> Result<&'a [u8], Aside> {
        self.next().ok_or(Aside::Rejected("too few fields"))
    }

    #[inline]
    pub(super) fn number(&mut self, or: &'static str) -> Result<u64, Aside> {
        number(self.word()?).ok_or(Aside::Rejected(or))
    }

    pub(super) fn end(&mut self) -> Result<(), Aside> {
        if self.next().is_some() { Err(Aside::Rejected("too many fields")) } else { Ok(()) }
    }

    /// The rest, from the next word on.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest.trim_ascii_start()
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        let start = self.rest.iter().position(|byte| !blank(byte))?;
        let rest = &self.rest[start..];
        let end = rest.iter().position(blank).unwrap_or(rest.len());
        self.rest = &rest[end..];
        Some(&rest[..end])
    }
}

/// `count` times `unit` bytes.
#[inline]
pub(super) fn times(count: u64, unit: u64) -> Result<u64, Aside> {
    count.checked_mul(unit).ok_or(Aside::Rejected("the address is beyond 2^64 bytes"))
}

/// Limit of times, 292 years from the start of the clock: those of a replay, a sum of two, still fit 64 bits. Beyond it are
/// numbers below zero that a program wrote without their sign.
pub(super) const TIME_MAX: Nanos = Nanos(1 << 63);

/// Checks the rules for every request: its times can be added, it has bytes unless it is a flush, and its end has an
/// address.
#[inline]
pub(super) fn plausible(request: Request) -> Result<Request, Aside> {
    use super::request::Op;
    if request.time > TIME_MAX {
        return Err(Aside::Rejected("the time is beyond 2^63 ns"));
    }
    if request.latency.is_some_and(|latency| latency > TIME_MAX) {
        return Err(Aside::Rejected("the latency is beyond 2^63 ns"));
    }
    if request.op == Op::Flush {
        return Ok(Request { offset: 0, bytes: 0, ..request });
    }
    if request.bytes == 0 {
        return Err(Aside::Rejected("a length of zero"));
    }
    if request.offset.checked_add(request.bytes).is_none() {
        return Err(Aside::Rejected("the address is beyond 2^64 bytes"));
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times keep every nanosecond, in every unit, and only plain numbers are accepted.
    #[test]
    fn numbers_are_exact() {
        let read = |text: &str, unit| time(text.as_bytes(), unit).map(|time| time.0);
        assert_eq!(read("1456095145.133076000", SECOND), Some(1_456_095_145_133_076_000));
        assert_eq!(read("13.191135", MILLISECOND), Some(13_191_135));
        assert_eq!(read("15362.00000", MICROSECOND), Some(15_362_000));
        assert_eq!(read(".5", MICROSECOND), Some(500));
        assert_eq!(read("5.", SECOND), Some(5_000_000_000));
        assert_eq!(read("0.0000000019999", SECOND), Some(1));
        for bad in ["", ".", "-1", "1e3", "1.2.3", "1.0000000000x", " 1", "nan", "99999999999999999999"] {
            assert_eq!(read(bad, SECOND), None, "{bad}");
        }
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(number(b"18446744073709551616"), None);
        assert_eq!(number(b"9999999999999999999"), Some(9_999_999_999_999_999_999));
        assert_eq!(number(b"12345678"), Some(12_345_678));
        assert_eq!(number(b"0987654321098765"), Some(987_654_321_098_765));
        for place in 0..8 {
            for byte in 0..=255u8 {
                let mut text = *b"90817263";
                text[place] = byte;
                let expected = std::str::from_utf8(&text).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
                assert_eq!(number(&text), expected.and_then(|text| text.parse().ok()), "{text:?}");
            }
        }
        assert_eq!(hex(b"0x1f"), Some(31));
        assert_eq!(hex(b"+1"), None);
    }

    /// A byte is found at its first position, wherever that is, and not where it is not.
    #[test]
    fn bytes_are_found() {
        for length in 0..40 {
            for place in 0..length {
                let mut text = vec![b'a'; length];
                text[place..].fill(b',');
                assert_eq!(find(b',', &text), Some(place));
                text.fill(0xac);
                text[place] = 0x2c;
                assert_eq!(find(0x2c, &text), Some(place));
                assert_eq!(find(0x2d, &text), None);
            }
        }
    }

    /// A number is the same whether it is parsed in the same pass or searched first, for any length; anything but a
    /// plain number is not consumed.
    #[test]
    fn plain_numbers() {
        let digits = "9182736450918273645091827";
        for length in 1..=digits.len() {
            let line = format!("{},behind it", &digits[..length]);
            let mut fields = Fields::new(line.as_bytes(), b',');
            let expected = digits[..length].parse::<u64>().ok();
            assert_eq!(fields.plain_number(), expected.filter(|_| length <= 19), "{line}");
            assert_eq!(fields.rest().starts_with(b"behind"), length <= 19, "{line}");
            assert_eq!(Fields::new(line.as_bytes(), b',').number("none").ok(), expected, "{line}");
            for place in 0..length {
                let mut line = line.clone().into_bytes();
                line[place] = b'x';
                assert_eq!(Fields::new(&line, b',').plain_number(), None);
            }
        }
        for left in [",12345678", "", "12", " 1,2345678", "1 ,2345678"] {
            let mut fields = Fields::new(left.as_bytes(), b',');
            assert_eq!((fields.plain_number(), fields.rest()), (None, left.as_bytes()));
        }
        assert!(matches!(Fields::new(b" 1 ,2345678", b',').number("none"), Ok(1)));
    }

    /// Fields are trimmed, and too few or too many are an error.
    #[test]
    fn fields() {
        let mut fields = Fields::new(b"1, two ,", b',');
        assert!(matches!(fields.number("no number"), Ok(1)));
        assert!(matches!(fields.field(), Ok(b"two")));
        assert!(fields.end().is_err());
        assert!(matches!(fields.field(), Ok(b"")));
        assert!(fields.end().is_ok() && fields.field().is_err());
        let words: Vec<&[u8]> = Words::new(b"  a\tb  c ").collect();
        assert_eq!(words, [b"a", b"b", b"c"]);
    }
}
