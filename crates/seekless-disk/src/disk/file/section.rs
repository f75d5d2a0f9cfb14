//! Typed access to the tables of a drive file, with the line of each value.

use std::borrow::Cow;
use std::rc::Rc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::super::nearest::nearest;
use super::{BYTES_MAX, DriveFileError};
use crate::units::Nanos;

type DriveFileResult<T> = Result<T, DriveFileError>;

/// A text, for lines.
#[derive(Clone, Copy)]
pub(super) struct Source<'a>(pub(super) &'a str);

impl Source<'_> {
    /// Checks the length, and parses.
    pub(super) fn parse(&self) -> DriveFileResult<Spanned<DeTable<'_>>> {
        if self.0.len() > BYTES_MAX {
            let problem = format!("the text has {} bytes; a drive file has at most {BYTES_MAX}", self.0.len());
            return Err(DriveFileError { line: 1, key: String::new(), problem });
        }
        DeTable::parse(self.0).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            self.error(at, "", format!("this is not TOML: {}", error.message()))
        })
    }

    pub(super) fn error(&self, at: usize, key: &str, problem: impl Into<String>) -> DriveFileError {
        let before = self.0.as_bytes().iter().take(at);
        let line = 1 + before.filter(|&&byte| byte == b'\n').count();
        DriveFileError { line, key: key.to_owned(), problem: problem.into() }
    }
}

/// A table with known keys.
pub(super) struct Section<'a> {
    source: Source<'a>,
    /// Empty at the top, otherwise with a dot at its end.
    prefix: String,
    at: usize,
    table: &'a DeTable<'a>,
}

/// A value.
#[derive(Clone)]
pub(super) struct Field<'a> {
    source: Source<'a>,
    key: Rc<str>,
    value: &'a Spanned<DeValue<'a>>,
}

impl<'a> Section<'a> {
    pub(super) fn new(source: Source<'a>, prefix: &str, table: &'a Spanned<DeTable<'a>>) -> Section<'a> {
        Section { source, prefix: prefix.to_owned(), at: table.span().start, table: table.get_ref() }
    }

    /// # Errors
    /// A key that is not one of `keys`.
    pub(super) fn only(&self, keys: &[&str]) -> DriveFileResult<()> {
        self.only_or(keys, "", &[])
    }

    /// As [`Section::only`]. A key of the table `other` is named as such.
    pub(super) fn only_or(&self, keys: &[&str], other: &str, others: &[&str]) -> DriveFileResult<()> {
        match self.table.keys().find(|key| !keys.contains(&&**key.get_ref())) {
            None => Ok(()),
            Some(key) => {
                // As data sheets have it.
                let whole = key.get_ref().replace("avg", "average");
                let problem = match nearest(&whole, keys.iter().copied()) {
                    _ if others.contains(&&*whole) => format!("there is no such key here; [{other}] has `{whole}`"),
                    Some(near) => format!("there is no such key here; did you mean `{near}`?"),
                    None => format!("there is no such key here; the keys are: {}", keys.join(", ")),
                };
                Err(self.source.error(key.span().start, &format!("{}{}", self.prefix, shown(key.get_ref())), problem))
            }
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<Field<'a>> {
        let value = self.table.get(key)?;
        Some(Field { source: self.source, key: format!("{}{key}", self.prefix).into(), value })
    }

    /// # Errors
    /// When the key is missing.
    pub(super) fn need(&self, key: &str) -> DriveFileResult<Field<'a>> {
        self.get(key).ok_or_else(|| self.error(key, "this key is missing"))
    }

    /// An error about the section, or about a key that it does not have.
    pub(super) fn error(&self, key: &str, problem: impl Into<String>) -> DriveFileError {
        let key = format!("{}{key}", self.prefix);
        self.source.error(self.at, key.trim_end_matches('.'), problem)
    }
}

impl<'a> Field<'a> {
    pub(super) fn error(&self, problem: impl Into<String>) -> DriveFileError {
        self.source.error(self.value.span().start, &self.key, problem)
    }

    fn wrong_type(&self, wanted: &str) -> DriveFileError {
        let found = match self.value.get_ref() {
            DeValue::String(_) => "text in quotes",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a number with a fraction",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list in brackets",
            DeValue::Table(_) => "a table",
        };
        self.error(format!("{wanted} is expected here, not {found}"))
    }

    /// A whole number.
    pub(super) fn whole(&self, min: u64, max: u64) -> DriveFileResult<u64> {
        let Some(integer) = self.value.get_ref().as_integer() else {
            return Err(self.wrong_type(&format!("a whole number from {min} to {max}")));
        };
        let number = i128::from_str_radix(integer.as_str(), integer.radix()).unwrap_or(i128::MAX);
        match u64::try_from(number) {
            Ok(number) if (min..=max).contains(&number) => Ok(number),
            _ => Err(self.error(format!("{} is not from {min} to {max}", shown(integer.as_str())))),
        }
    }

    /// The same where 32 bits are enough.
    pub(super) fn count(&self, min: u32, max: u32) -> DriveFileResult<u32> {
        Ok(self.whole(min.into(), max.into())? as u32)
    }

    /// Any number.
    pub(super) fn number(&self, min: f64, max: f64) -> DriveFileResult<f64> {
        let number = match self.value.get_ref() {
            DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str().parse::<f64>(),
            DeValue::Float(float) => float.as_str().parse(),
            _ => return Err(self.wrong_type(&format!("a number from {min} to {max}"))),
        };
        number
            .ok()
            .filter(|number| (min..=max).contains(number))
            .ok_or_else(|| self.error(format!("this is not from {min} to {max}")))
    }

    /// Milliseconds, to the nearest nanosecond.
    pub(super) fn ms(&self, max_ms: f64) -> DriveFileResult<Nanos> {
        Ok(super::super::drive::ms(self.number(0.0, max_ms)?))
    }

    /// Text for people, on one line.
    pub(super) fn text(&self, chars_max: usize) -> DriveFileResult<&'a str> {
        let Some(text) = self.value.get_ref().as_str() else {
            return Err(self.wrong_type("text in quotes"));
        };
        match text.chars().any(char::is_control) || text.chars().count() > chars_max || text.is_empty() {
            true => Err(self.error(format!("text of 1 to {chars_max} characters on one line is expected"))),
            false => Ok(text),
        }
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(&self, words: &[(&str, T)]) -> DriveFileResult<T> {
        let all = || words.iter().map(|word| word.0).collect::<Vec<_>>().join(", ");
        let Some(text) = self.value.get_ref().as_str() else {
            return Err(self.wrong_type(&format!("a word in quotes, one of {},", all())));
        };
        match words.iter().find(|word| word.0 == text) {
            Some(&(_, meaning)) => Ok(meaning),
            None => Err(self.error(format!("there is no `{}`; one of: {}", shown(text), all()))),
        }
    }

    pub(super) fn switch(&self) -> DriveFileResult<bool> {
        self.value.get_ref().as_bool().ok_or_else(|| self.wrong_type("true or false"))
    }

    /// The items of an array.
    pub(super) fn items(&self, what: &str) -> DriveFileResult<Vec<Field<'a>>> {
        let Some(array) = self.value.get_ref().as_array() else {
            return Err(self.wrong_type(&format!("an array of {what}")));
        };
        Ok(array.iter().map(|value| Field { value, ..self.clone() }).collect())
    }

    /// Two items of an array.
    pub(super) fn pair(&self, what: &str) -> DriveFileResult<[Field<'a>; 2]> {
        let items = self.items(what)?;
        let count = items.len();
        items.try_into().map_err(|_| self.error(format!("{what} is expected here, not {count} items")))
    }

    pub(super) fn is_array(&self) -> bool {
        self.value.get_ref().is_array()
    }

    /// A table, whose keys are shown after `prefix`.
    pub(super) fn section(&self, prefix: &str) -> DriveFileResult<Section<'a>> {
        let Some(table) = self.value.get_ref().as_table() else {
            return Err(self.wrong_type("a table"));
        };
        Ok(Section { source: self.source, prefix: prefix.to_owned(), at: self.value.span().start, table })
    }
}

/// A piece of the text as a message shows it: short, on one line.
fn shown(text: &str) -> Cow<'_, str> {
    match text.chars().any(char::is_control) || text.chars().count() > 60 {
        true => text.chars().map(|c| if c.is_control() { '?' } else { c }).take(60).chain(['…']).collect(),
        false => text.into(),
    }
}
