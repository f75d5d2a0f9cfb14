//! Values of variables, their units, and text with variables in it.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

use seekless::units::SECTOR_BYTES;
use serde::{Deserialize, Serialize};

/// A number with four digits, or with more where it would be `within` only when rounded, or only when not.
pub(crate) fn rounded(number: f64, within: impl Fn(f64) -> bool) -> f64 {
    let of_digits = |digits: usize| format!("{number:.0$e}", digits - 1).parse().unwrap_or(number);
    (4..17).map(of_digits).find(|&short| within(short) == within(number)).unwrap_or(number)
}

/// A value of a variable or of another dimension of a row.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Integer(i64),
    Number(f64),
    Text(String),
}

impl Value {
    /// As a number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Integer(number) => Some(*number as f64),
            Value::Number(number) => Some(*number),
            Value::Text(_) => None,
        }
    }

    /// Equal for readers: 4 is 4.0, and a text in a file may be a number.
    pub fn is_same(&self, other: &Value) -> bool {
        match (self.number(), other.number()) {
            (Some(one), Some(two)) => one == two,
            _ => self.to_string() == other.to_string(),
        }
    }

    /// Numbers by size, before texts by letters.
    pub fn order(&self, other: &Value) -> Ordering {
        match (self.number(), other.number()) {
            (Some(one), Some(two)) => one.total_cmp(&two),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => self.to_string().cmp(&other.to_string()),
        }
    }

    /// Parses a cell of a table: as a number if it is one.
    pub fn read(text: &str) -> Value {
        match (text.parse(), text.parse()) {
            (Ok(integer), _) => Value::Integer(integer),
            (_, Ok(number)) => Value::Number(number),
            _ => Value::Text(text.to_owned()),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Integer(number) => write!(f, "{number}"),
            Value::Number(number) => write!(f, "{number}"),
            Value::Text(text) => f.write_str(text),
        }
    }
}

/// Unit of a variable. In a stack line its values are written with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Unit {
    /// A count, or no number.
    #[default]
    #[serde(rename = "")]
    None,
    /// 512 bytes each, as \[st05\] counts; written in bytes.
    #[serde(rename = "sectors")]
    Sectors,
    B,
    KiB,
    MiB,
    GiB,
    #[serde(rename = "us")]
    Micros,
    #[serde(rename = "ms")]
    Millis,
    #[serde(rename = "s")]
    Seconds,
    #[serde(rename = "%")]
    Percent,
}

impl Unit {
    /// Its label on an axis; empty for counts.
    pub fn name(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Sectors => "sectors",
            Unit::B => "B",
            Unit::KiB => "KiB",
            Unit::MiB => "MiB",
            Unit::GiB => "GiB",
            Unit::Micros => "us",
            Unit::Millis => "ms",
            Unit::Seconds => "s",
            Unit::Percent => "%",
        }
    }

    /// `value` in stack-line syntax.
    fn written(self, value: &Value) -> String {
        match (self, value.number()) {
            (Unit::Sectors, Some(sectors)) => format!("{}B", (sectors * SECTOR_BYTES as f64) as u64),
            (unit, _) => format!("{value}{}", unit.name()),
        }
    }
}

/// Values of all variables of one point, with their units.
pub(super) type Values = BTreeMap<String, (Value, Unit)>;

/// A part of a text with variables in it.
enum Piece<'a> {
    /// As it is written. A brace that is written twice is one here.
    Text(&'a str),
    /// `{name}`.
    Variable(&'a str),
}

/// The parts of `text`, in order. After a brace without its partner, which is `None`, there are no more.
fn pieces(text: &str) -> impl Iterator<Item = Option<Piece<'_>>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, after) = first_piece(rest).map_or((None, ""), |(piece, after)| (Some(piece), after));
        rest = after;
        Some(piece)
    })
}

/// The first part of a text that is not empty, and what follows it; `None` where a brace has no partner.
fn first_piece(text: &str) -> Option<(Piece<'_>, &str)> {
    match text.find(['{', '}']) {
        None => Some((Piece::Text(text), "")),
        Some(0) if text.starts_with("{{") || text.starts_with("}}") => Some((Piece::Text(&text[..1]), &text[2..])),
        Some(0) => {
            let (name, after) = text.strip_prefix('{')?.split_once('}')?;
            (!name.contains('{')).then_some((Piece::Variable(name), after))
        }
        Some(at) => Some((Piece::Text(&text[..at]), &text[at..])),
    }
}

/// `text` with each `{name}` replaced by the value of the variable. `{{` and `}}` are braces, such as those of
/// `file:a-{{}}.img`.
///
/// # Errors
/// When there is no such variable, or a brace has no partner.
pub(super) fn fill(text: &str, values: &Values) -> Result<String, String> {
    let mut filled = String::new();
    for piece in pieces(text) {
        match piece {
            Some(Piece::Text(part)) => filled += part,
            Some(Piece::Variable(name)) => {
                let (value, unit) = look_up(name, values)?;
                filled += &unit.written(value);
            }
            None => {
                return Err(format!("a brace without its partner in `{text}`; write {{{{ or }}}} for a brace itself"));
            }
        }
    }
    Ok(filled)
}

/// The variables that `text` names, up to a brace without its partner, which filling the text reports.
fn names_in(text: &str) -> impl Iterator<Item = &str> {
    pieces(text).filter_map(|piece| match piece {
        Some(Piece::Variable(name)) => Some(name),
        _ => None,
    })
}

/// Whether a text of the description names the variable.
pub(super) fn uses(value: &toml::Value, name: &str) -> bool {
    match value {
        toml::Value::String(text) => names_in(text).any(|used| used == name),
        toml::Value::Array(items) => items.iter().any(|item| uses(item, name)),
        toml::Value::Table(table) => table.values().any(|item| uses(item, name)),
        _ => false,
    }
}

fn look_up<'a>(name: &str, values: &'a Values) -> Result<&'a (Value, Unit), String> {
    values.get(name).ok_or_else(|| {
        let known: Vec<&str> = values.keys().map(String::as_str).collect();
        let hint = if known.is_empty() { "there are none".into() } else { format!("there are: {}", known.join(", ")) };
        format!("there is no variable `{name}`; {hint}")
    })
}

/// What to do about the error of a workload with `values`: a number that is written with a unit is a text, which not every
/// parameter takes.
pub(super) fn unit_hint(error: &str, values: &Values) -> String {
    let written = values.iter().filter(|(_, (_, unit))| *unit != Unit::None);
    let meant = written.into_iter().find(|(_, (value, unit))| error.contains(&format!("\"{}\"", unit.written(value))));
    meant.map_or_else(String::new, |(name, (_, unit))| {
        format!(
            "; this parameter is a number: leave out `unit = \"{}\"` of [variables.{name}], and name it in its label",
            unit.name()
        )
    })
}

/// A value of the description with its texts filled. A text that is one variable alone has the variable's own type, so
/// that numbers stay numbers.
///
/// # Errors
/// As [`fill`].
pub(super) fn fill_all(value: &toml::Value, values: &Values) -> Result<toml::Value, String> {
    Ok(match value {
        toml::Value::String(text) => {
            let alone = match first_piece(text) {
                Some((Piece::Variable(name), "")) => Some(look_up(name, values)?),
                _ => None,
            };
            match alone {
                Some((Value::Integer(number), Unit::None)) => toml::Value::Integer(*number),
                Some((Value::Number(number), Unit::None)) => toml::Value::Float(*number),
                _ => toml::Value::String(fill(text, values)?),
            }
        }
        toml::Value::Array(items) => {
            toml::Value::Array(items.iter().map(|item| fill_all(item, values)).collect::<Result<_, _>>()?)
        }
        toml::Value::Table(table) => {
            let entries = table.iter().map(|(key, value)| Ok((key.clone(), fill_all(value, values)?)));
            toml::Value::Table(entries.collect::<Result<_, String>>()?)
        }
        other => other.clone(),
    })
}
