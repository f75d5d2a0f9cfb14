//! A word with options, `cost-benefit:age=root,sort=yes`, as policies and patterns are written. A value with a comma is in double
//! quotes: `trace:file="a, b.csv",times=2`.

use std::fmt::Display;
use std::str::FromStr;

/// An option of a policy or a pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    pub name: &'static str,
    /// Its default, as it is written.
    pub default: &'static str,
    /// Its meaning and its values, in one line.
    pub help: &'static str,
}

impl Key {
    pub const fn new(name: &'static str, default: &'static str, help: &'static str) -> Key {
        Key { name, default, help }
    }
}

/// The options of a word: all of its keys, with the values that were given or the defaults.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    word: &'static str,
    values: Vec<(&'static str, String)>,
}

impl Options {
    /// The value of a key.
    ///
    /// # Panics
    /// When the word has no such key.
    pub fn text(&self, key: &str) -> &str {
        let found = self.values.iter().find(|(name, _)| *name == key);
        &found.expect("a word reads only the keys of its own table").1
    }

    /// The value of a key as a number between `low` and `high`.
    ///
    /// # Errors
    /// When it is something else.
    pub fn number<T: FromStr + PartialOrd + Display>(&self, key: &str, low: T, high: T) -> Result<T, String> {
        let text = self.text(key);
        let number = text.parse().ok().filter(|number| *number >= low && *number <= high);
        number.ok_or_else(|| format!("{}: {key}={text}: write a number from {low} to {high}", self.word))
    }

    /// Which of `words` the value of a key is.
    ///
    /// # Errors
    /// When it is none of them.
    pub fn choice<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Result<T, String> {
        let text = self.text(key);
        words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            format!("{}: {key}={text}: write one of {}", self.word, words.join(", "))
        })
    }

    /// The word with all options, defaults too: it reproduces the result.
    pub fn line(&self) -> String {
        let options: Vec<String> =
            self.values.iter().map(|(name, value)| format!("{name}={}", quoted(value))).collect();
        match options.is_empty() {
            true => self.word.to_owned(),
            false => format!("{}:{}", self.word, options.join(",")),
        }
    }
}

/// Splits a line into its word and its options. `table` has the words and the keys of each; `what` names what they are.
///
/// # Errors
/// An unknown word or key, with the nearest one.
pub fn parse(line: &str, what: &str, table: &[(&'static str, &'static [Key])]) -> Result<(usize, Options), String> {
    let (word, rest) = line.trim().split_once(':').unwrap_or((line.trim(), ""));
    let words: Vec<&'static str> = table.iter().map(|(name, _)| *name).collect();
    let index = words.iter().position(|name| *name == word);
    let index = index.ok_or_else(|| format!("there is no {what} `{word}`; {}", nearest(word, &words)))?;
    let (word, keys) = table[index];
    let mut values: Vec<(&'static str, String)> = keys.iter().map(|key| (key.name, key.default.to_owned())).collect();
    let mut given = vec![false; keys.len()];
    let mut before = "";
    for option in split(rest).map_err(|problem| format!("{word}: {problem}"))? {
        let Some((name, value)) = option.split_once('=') else {
            return Err(format!("{word}: `{option}`: write options as name=value"));
        };
        let names: Vec<&'static str> = keys.iter().map(|key| key.name).collect();
        let place = names.iter().position(|other| *other == name);
        let place = place.ok_or_else(|| match names.is_empty() {
            true => format!("{word} has no options"),
            // The rest of a value that is cut at a comma of its own, such as a description of columns.
            false if before.contains(':') => {
                format!("{word} has no option `{name}`; is it part of `{before}`? Put a value with commas in quotes: \"{before},...\"")
            }
            false => format!("{word} has no option `{name}`; {}", nearest(name, &names)),
        })?;
        if given[place] {
            return Err(format!("{word}: {name} is given twice"));
        }
        given[place] = true;
        before = value;
        values[place].1 = unquoted(value).to_owned();
    }
    Ok((index, Options { word, values }))
}

/// The options of a list, without the commas between them.
///
/// # Errors
/// A quote that does not end.
fn split(list: &str) -> Result<Vec<&str>, String> {
    let (mut options, mut rest) = (Vec::new(), list);
    while !rest.is_empty() {
        let comma = rest.find(',').unwrap_or(rest.len());
        // A value in quotes ends at the quote before the next comma or the end.
        let quote = rest[..comma].find("=\"").map(|at| at + 2);
        let end = match quote {
            None => comma,
            Some(start) => {
                let is_end = |at: &usize| matches!(rest.as_bytes().get(at + 1), None | Some(b','));
                let found = rest[start..].match_indices('"').map(|(at, _)| start + at).find(is_end);
                found.ok_or_else(|| format!("the quote of `{}` does not end", &rest[..comma]))? + 1
            }
        };
        options.push(rest[..end].trim());
        rest = rest[end..].strip_prefix(',').unwrap_or("");
    }
    options.retain(|option| !option.is_empty());
    Ok(options)
}

fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
}

/// A value as it is written in a list.
fn quoted(value: &str) -> String {
    if value.contains(',') || value.starts_with('"') { format!("\"{value}\"") } else { value.to_owned() }
}

/// The nearest of `words`, or all of them.
fn nearest(word: &str, words: &[&str]) -> String {
    let close = words.iter().map(|other| (strsim::damerau_levenshtein(word, other), *other)).min();
    match close {
        Some((distance, other)) if distance <= 2 => format!("did you mean `{other}`?"),
        _ => format!("there are: {}", words.join(", ")),
    }
}
