//! The stack line: file systems, layers and devices on one line, top first.
//!
//! ```text
//! wrap / lfs:segment=1MiB,cleaner=greedy / file:a.img
//! ```
//!
//! Grammar
//! ```text
//! stack     = word { separator word }
//! separator = blank "/" blank                  each blank one or more
//! word      = name [ ":" item { "," item } ]
//! item      = value                            the word's argument, first item only
//!           | key "=" value
//!           | key                              a switch: the same as key=on
//! value     = bare | quoted
//! bare      = runs to the next comma, separator or end; blanks at its ends do not count; no quote mark in it
//! quoted    = '"' { character | '\"' | '\\' } '"'
//! ```
//! A path is a value like any other. One with a comma, a quote mark, a lone slash or a blank at an end is quoted:
//! `file:"a, b.img",direct`. In a word that begins with a path, the first item is always the path, even if it has an
//! equals sign. Relative paths start at the program's working directory, even in a stack file.
//!
//! A word that spreads over several, such as `raid0:n=4`, has as many instances of everything below it. Paths below it
//! have `{}` in place of the number of the instance: `raid0:n=4 / file:a-{}.img`.
//!
//! A stack file is TOML with one key: `stack = "wrap / memfs"`; `@stack.toml` on a command line names one.
//!
//! All words are in one table, [`WORDS`], and errors point at the offending word.
//!
//! Invariants
//!   S1  A stack has at least one word.
//!   S2  Every word is above what it needs, and the last word is a leaf.
//!   S3  Parsing the `Display` output of a stack gives the same stack.

mod arrays;
mod build;
mod complete;
mod devices;
mod drives;
mod error;
mod ffs;
mod file;
mod file_systems;
mod flash;
mod help;
mod hint;
mod layers;
mod lfs;
mod logs;
mod opened;
mod order;
mod parse;
mod part;
mod signature;
mod spec;
#[cfg(test)]
mod tests;
mod value;
mod vld;
mod vlfs;
mod words;
mod zoned;

use std::fmt;
use std::ops::Range;

pub use arrays::scrubbed_as_checked;
pub use complete::{Completions, complete};
pub use devices::DATA_SHEET_FORM;
pub use error::{BuildError, Cause, Report, StackError};
pub use file::StackFileError;
pub use file_systems::{CheckOptions, Checked, Fact, FileSystemKind, Finding, Identity, Probed, Usage, Verdict};
pub use help::{help, markdown};
pub use hint::{quoted, quoted_if_need_be, quoted_path};
pub use opened::{Mounted, Opened};
pub use order::{Interface, Role};
pub use part::Part;
pub use signature::{MagicOffset, Signature};
pub use spec::{
    Check, Constructor, Convert, LayerSpec, LeafOpener, NoLeaves, OpenContext, Param, ProgressFn, Property, Purpose,
    Sharing, Spread, StoredArray, StoredDevice, WordSpec,
};
pub use value::{ParamKind, Percent, Value, nearest, read_bytes};
pub use words::{WORDS, signatures};

use crate::units::Nanos;

/// A parsed and valid stack. Two stacks are equal when they mean the same, however they are written.
#[derive(Clone, Debug)]
pub struct Stack {
    words: Vec<Word>,
    line: String,
}

/// One word of a stack.
#[derive(Clone)]
pub struct Word {
    spec: &'static WordSpec,
    settings: Vec<Setting>,
    name_span: Range<usize>,
    /// Its number, below a word that spreads over several.
    instance: Option<usize>,
    /// The drives of the stack's files, once they are read.
    drives: Option<drives::Drives>,
}

/// Placeholder for the number of an instance in a path.
const NUMBER: &str = "{}";

/// The setting of one item of a word.
#[derive(Clone)]
struct Setting {
    param: &'static Param,
    value: Value,
    span: Range<usize>,
}

/// The meaning of a command's argument that can be a stack or a mounted directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target<'a> {
    /// Begins with `/`, `./` or `../`, or is `.` or `..`: a mounted directory.
    Directory(&'a str),
    /// Begins with `@`: a stack file.
    StackFile(&'a str),
    /// A stack line.
    Line(&'a str),
}

impl<'a> Target<'a> {
    pub fn of(argument: &'a str) -> Target<'a> {
        if let Some(path) = argument.strip_prefix('@') {
            return Target::StackFile(path);
        }
        match argument.starts_with("/") || argument.split('/').next().is_some_and(|part| matches!(part, "." | "..")) {
            true => Target::Directory(argument),
            false => Target::Line(argument),
        }
    }
}

impl Stack {
    /// Parses a stack line.
    ///
    /// ```
    /// use seekless::stack::Stack;
    ///
    /// let stack = Stack::parse("zstd:level=9 / lfs / file:a.img")?;
    /// let names: Vec<&str> = stack.words().iter().map(|word| word.name()).collect();
    /// assert_eq!(names, ["zstd", "lfs", "file"]);
    ///
    /// let error = Stack::parse("zstd / lsf / file:a.img").unwrap_err();
    /// println!("{error}"); // with the line, and a mark below `lsf`
    /// # assert!(error.to_string().contains("^^^"));
    /// # Ok::<(), seekless::stack::StackError>(())
    /// ```
    ///
    /// # Errors
    /// The first mistake, with its place on the line.
    pub fn parse(line: &str) -> Result<Stack, StackError> {
        parse::parse(line, WORDS)
    }

    /// The words, top first.
    pub fn words(&self) -> &[Word] {
        &self.words
    }

    /// The first word with `property`.
    pub fn word_with(&self, property: Property) -> Option<&Word> {
        self.words.iter().find(|word| word.spec.properties.contains(&property))
    }

    /// The line as it was written.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// The layers at the top of this stack, over another one: `zstd / lfs / file:a.img` over `hostdir:b` is
    /// `zstd / hostdir:b`.
    ///
    /// # Errors
    /// As [`Stack::parse`], about the new line.
    pub fn over(&self, lower: &str) -> Result<Stack, StackError> {
        let below = self.words.iter().find(|word| word.spec.role() != Role::Layer);
        let end = below.map_or(self.line.len(), |word| word.name_span.start);
        Stack::parse(&format!("{}{lower}", &self.line[..end]))
    }

    /// The interface of the top.
    pub fn is(&self) -> Interface {
        self.words[0].spec.role().is() // S1
    }
}

impl Word {
    pub fn name(&self) -> &'static str {
        self.spec.name
    }

    pub fn spec(&self) -> &'static WordSpec {
        self.spec
    }

    /// Number of this instance, from 0 on; 0 where there is only one.
    pub fn instance(&self) -> usize {
        self.instance.unwrap_or(0)
    }

    /// True below a word that spreads, where there may be several instances.
    pub fn is_member(&self) -> bool {
        self.instance.is_some()
    }

    /// The same word as instance `instance`: paths have its number in place of `{}`.
    fn numbered(&self, instance: usize) -> Word {
        let mut word = Word { instance: Some(instance), ..self.clone() };
        for setting in &mut word.settings {
            if let Value::Path(path) = &mut setting.value {
                *path = path.replace(NUMBER, &instance.to_string());
            }
        }
        word
    }

    fn setting(&self, key: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.param.name == key)
    }

    /// The line's value for `key`, if given.
    pub fn given(&self, key: &str) -> Option<&Value> {
        self.setting(key).map(|setting| &setting.value)
    }

    /// The effective value for `key`: that of the line, otherwise the default, if there is one.
    ///
    /// # Panics
    /// When the word has no such argument or option: the caller has misspelt a row of [`WORDS`].
    pub fn value(&self, key: &str) -> Option<Value> {
        match (self.given(key), self.spec.param(key)) {
            (Some(value), _) => Some(value.clone()),
            (None, Some(param)) => param.default_value(),
            (None, None) => unreachable!("`{}` has no `{key}`", self.name()),
        }
    }

    /// Bytes of a [`ParamKind::Bytes`] with a default or required.
    ///
    /// # Panics
    /// This and the next ones, when the row of [`WORDS`] has another type.
    pub fn bytes(&self, key: &str) -> u64 {
        match self.value(key) {
            Some(Value::Bytes(bytes)) => bytes,
            other => unreachable!("`{key}` of `{}` is {other:?}, not bytes", self.name()),
        }
    }

    pub fn duration(&self, key: &str) -> Nanos {
        match self.value(key) {
            Some(Value::Duration(nanos)) => nanos,
            other => unreachable!("`{key}` of `{}` is {other:?}, not a time", self.name()),
        }
    }

    pub fn percent(&self, key: &str) -> Percent {
        match self.value(key) {
            Some(Value::Percent(percent)) => percent,
            other => unreachable!("`{key}` of `{}` is {other:?}, not a percentage", self.name()),
        }
    }

    pub fn integer(&self, key: &str) -> u64 {
        match self.value(key) {
            Some(Value::Integer(number)) => number,
            other => unreachable!("`{key}` of `{}` is {other:?}, not a number", self.name()),
        }
    }

    pub fn switch(&self, key: &str) -> bool {
        match self.value(key) {
            Some(Value::Switch(on)) => on,
            other => unreachable!("`{key}` of `{}` is {other:?}, not a switch", self.name()),
        }
    }

    pub fn choice(&self, key: &str) -> &'static str {
        match self.value(key) {
            Some(Value::Choice(word)) => word,
            other => unreachable!("`{key}` of `{}` is {other:?}, not a choice", self.name()),
        }
    }

    /// Text or path that the line gives.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.given(key) {
            Some(Value::Text(text) | Value::Path(text)) => Some(text),
            _ => None,
        }
    }

    /// Compares options of the line that were fixed when the file system was made with `facts`, the content of its
    /// superblock.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check_fixed(&self, facts: &[(&str, Value)]) -> Result<(), BuildError> {
        for (key, fact) in facts {
            if let Some(setting) = self.setting(key)
                && setting.value != *fact
            {
                let key = setting.param.name;
                let said = &setting.value;
                let problem = format!("the line says {said}, but the file system was made with {fact}");
                return Err(BuildError::Option { key, problem });
            }
        }
        Ok(())
    }

    /// The place of the word on its line.
    fn span(&self) -> Range<usize> {
        let end = self.settings.iter().map(|setting| setting.span.end).max();
        self.name_span.start..end.unwrap_or(self.name_span.end)
    }
}

impl PartialEq for Stack {
    fn eq(&self, other: &Stack) -> bool {
        self.words == other.words
    }
}

impl PartialEq for Word {
    fn eq(&self, other: &Word) -> bool {
        let same = |(one, two): (&Setting, &Setting)| one.param.name == two.param.name && one.value == two.value;
        self.name() == other.name()
            && self.settings.len() == other.settings.len()
            && self.settings.iter().zip(&other.settings).all(same)
    }
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, word) in self.words.iter().enumerate() {
            write!(f, "{}{word}", if index == 0 { "" } else { " / " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        for (index, setting) in self.settings.iter().enumerate() {
            let is_argument = self.spec.argument.is_some_and(|argument| argument.name == setting.param.name);
            f.write_str(if index == 0 { ":" } else { "," })?;
            match index == 0 && is_argument {
                true => write!(f, "{}", setting.value)?,
                false => write!(f, "{}={}", setting.param.name, setting.value)?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
