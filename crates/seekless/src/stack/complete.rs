//! Candidates for the continuation of an unfinished line, for shell completion.

use super::order::Interface;
use super::spec::{Param, WordSpec};
use super::words::WORDS;

/// Continuations of an unfinished line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completions {
    /// Byte offset from which the line is replaced by a candidate.
    pub from: usize,
    /// Sorted.
    pub candidates: Vec<String>,
}

/// Candidates for the end of `line`. Paths are left to the shell.
pub fn complete(line: &str) -> Completions {
    let word_start = last_word(line);
    let word = &line[word_start..];
    let word_start = word_start + (word.len() - word.trim_start().len());
    let word = word.trim_start();
    let (from, mut candidates) = match word.split_once(':') {
        None => (word_start, words_after(&line[..word_start], word)),
        Some((name, items)) => match WORDS.iter().copied().find(|spec| spec.name == name) {
            Some(spec) => {
                let items_start = line.len() - items.len();
                let item_start = items.rfind(',').map_or(items_start, |comma| items_start + comma + 1);
                item(spec, &line[items_start..item_start], line, item_start)
            }
            None => (line.len(), Vec::new()),
        },
    };
    candidates.sort();
    Completions { from, candidates }
}

/// Start of the last word: behind the last slash between blanks that is not in quotes.
fn last_word(line: &str) -> usize {
    let (mut start, mut quoted) = (0, false);
    for (offset, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '/' if !quoted => {
                let before = line[..offset].chars().next_back();
                let after = line[offset + 1..].chars().next();
                if before.is_some_and(char::is_whitespace) && after.is_none_or(char::is_whitespace) {
                    start = offset + 1;
                }
            }
            _ => {}
        }
    }
    start
}

/// Names that begin with `prefix` and may be below the words `above`.
fn words_after(above: &str, prefix: &str) -> Vec<String> {
    let above = above.trim_end().trim_end_matches('/').trim_end();
    let upper = above[last_word(above)..].trim_start();
    let upper = upper.split(|c: char| c == ':' || c.is_whitespace()).next().unwrap_or_default();
    let needed: Option<Interface> = match WORDS.iter().find(|spec| spec.name == upper) {
        Some(spec) => match spec.role().needs_below() {
            Some(needed) => Some(needed),
            None => return Vec::new(), // Nothing is below a leaf.
        },
        None => None,
    };
    let fits = |spec: &&&WordSpec| spec.name.starts_with(prefix) && needed.is_none_or(|it| spec.role().is() == it);
    WORDS.iter().filter(fits).map(|spec| spec.name.to_owned()).collect()
}

/// Continuations of the item of `spec` that starts at `start`, after the items `before`.
fn item(spec: &'static WordSpec, before: &str, line: &str, start: usize) -> (usize, Vec<String>) {
    let text = &line[start..];
    let begins = |prefix: &str, words: Vec<&'static str>| {
        words.into_iter().filter(|word| word.starts_with(prefix)).map(str::to_owned).collect::<Vec<_>>()
    };
    if let Some((key, prefix)) = text.split_once('=') {
        let words = spec.param(key).map(|param| param.kind.words()).unwrap_or_default();
        return (line.len() - prefix.len(), begins(prefix, words));
    }
    let given = |param: &Param| before.split(',').any(|item| item.split('=').next() == Some(param.name));
    let open = spec.options.iter().filter(|option| option.name.starts_with(text) && !given(option));
    match spec.argument.filter(|_| before.is_empty()) {
        Some(argument) => (start, begins(text, argument.kind.words())),
        None => (start, open.map(|option| format!("{}=", option.name)).collect()),
    }
}
