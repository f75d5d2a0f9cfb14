//! Parses a stack line. The grammar is at the head of the room.

use std::ops::Range;

use super::error::{StackError, unknown};
use super::spec::{Param, WordSpec};
use super::value::{ParamKind, nearest};
use super::{Setting, Stack, Word};

/// Longest line that is parsed. A stack has a few words; a path has at most 4096 bytes. An error is shown below the line, in as many
/// columns, and `format!` makes at most so many.
const LINE_BYTES_MAX: usize = u16::MAX as usize;

pub(super) fn parse(line: &str, vocabulary: &[&'static WordSpec]) -> Result<Stack, StackError> {
    if line.len() > LINE_BYTES_MAX {
        let problem = format!("the line has {} bytes; a stack has at most {LINE_BYTES_MAX}", line.len());
        return Err(StackError::new("", 0..0, problem));
    }
    let mut parser = Parser { line, at: 0, vocabulary };
    parser.skip_blanks();
    if parser.rest().is_empty() {
        return Err(StackError::new(line, 0..line.len(), "the stack is empty").hint("for example: wrap / memfs"));
    }
    let mut words = Vec::new();
    loop {
        words.push(parser.word()?);
        parser.skip_blanks();
        if parser.rest().is_empty() {
            break;
        }
        parser.separator()?;
    }
    super::order::check(line, &words)?;
    Ok(Stack { words, line: line.to_owned() })
}

struct Parser<'a> {
    line: &'a str,
    /// Byte offset of the next character; always between two characters.
    at: usize,
    vocabulary: &'a [&'static WordSpec],
}

/// One item of a word, as written.
enum Item {
    /// `key=value`
    Keyed { key: Range<usize>, value: Raw },
    /// A value, or the key of a switch.
    Lone(Raw),
}

/// A value as written, without quotes.
struct Raw {
    text: String,
    span: Range<usize>,
    quoted: bool,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.line[self.at..]
    }

    fn error(&self, span: Range<usize>, problem: impl Into<String>) -> StackError {
        StackError::new(self.line, span, problem)
    }

    /// The character at `at`, or an empty range at the end of the line.
    fn here(&self) -> Range<usize> {
        self.at..self.at + self.rest().chars().next().map_or(0, char::len_utf8)
    }

    fn skip_blanks(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    /// Blanks before it have been skipped.
    fn separator(&mut self) -> Result<(), StackError> {
        let after =
            self.rest().strip_prefix('/').filter(|after| after.is_empty() || after.starts_with(char::is_whitespace));
        let Some(after) = after else {
            let problem = "a space, a slash and a space are expected before the next word";
            return Err(self.error(self.here(), problem).hint("write: upper / lower"));
        };
        if after.trim_start().is_empty() {
            return Err(self
                .error(self.here(), "no word follows the last slash")
                .hint("name what is below it, for example file:a.img, or leave the slash out"));
        }
        self.at += 1;
        self.skip_blanks();
        Ok(())
    }

    fn word(&mut self) -> Result<Word, StackError> {
        let start = self.at;
        let name_end = self.rest().find(|c: char| c == ':' || c.is_whitespace()).unwrap_or(self.rest().len());
        let name = &self.rest()[..name_end];
        let name_span = start..start + name_end;
        self.at = name_span.end;
        let Some(spec) = self.vocabulary.iter().copied().find(|spec| spec.name == name) else {
            return Err(self.unknown_word(name, name_span));
        };
        let mut settings = Vec::new();
        if self.rest().starts_with(':') {
            self.at += 1;
            self.items(spec, &mut settings)?;
        }
        if let Some(argument) = spec.argument
            && argument.required
            && !settings.iter().any(|setting: &Setting| setting.param.name == argument.name)
        {
            let problem = format!("`{name}` needs {}", argument.help);
            return Err(self.error(name_span, problem).hint(format!("write: {}", spec.usage())));
        }
        Ok(Word { spec, settings, name_span, instance: None, drives: None })
    }

    fn unknown_word(&self, name: &str, span: Range<usize>) -> StackError {
        let known = |part: &str| self.vocabulary.iter().any(|spec| spec.name == part);
        if name.is_empty() {
            return self.error(self.here(), "a word begins with its name").hint("for example file:a.img");
        }
        if name == "/" {
            return self.error(span, "there is no word before this slash").hint("a stack begins with its top word");
        }
        if name.contains('/') && name.split(['/', ':']).any(known) {
            let spaced: Vec<&str> = name.split('/').filter(|part| !part.is_empty()).collect();
            return self
                .error(span, format!("there is no word `{name}`"))
                .hint(format!("words are separated by a space, a slash and a space: {}", spaced.join(" / ")));
        }
        let path = name.split(',').next().unwrap_or_default();
        if path.starts_with('/') || path.contains('.') {
            return self
                .error(span, format!("`{name}` is a path, not a word"))
                .hint("write hostdir:PATH for a directory, file:PATH for an image file or a block device");
        }
        let names = || self.vocabulary.iter().map(|spec| spec.name);
        let error = self.error(span, unknown("word", name, names()));
        match nearest(name, names()) {
            Some(_) => error,
            None => error.hint(format!("words: {}", names().collect::<Vec<_>>().join(", "))),
        }
    }

    /// The items after the colon of a word.
    fn items(&mut self, spec: &'static WordSpec, settings: &mut Vec<Setting>) -> Result<(), StackError> {
        loop {
            let is_first = settings.is_empty();
            let whole = is_first && spec.argument.is_some_and(|argument| matches!(argument.kind, ParamKind::Path));
            let item = self.item(whole)?;
            let setting = self.setting(spec, is_first, item)?;
            if let Some(earlier) = settings.iter().find(|earlier| earlier.param.name == setting.param.name) {
                let problem = format!("`{}` is given twice", earlier.param.name);
                return Err(self.error(setting.span, problem));
            }
            settings.push(setting);
            if !self.rest().starts_with(',') {
                return Ok(());
            }
            self.at += 1;
        }
    }

    /// Reads up to the next comma, separator or end of the line. With `whole`, all of it is a value.
    fn item(&mut self, whole: bool) -> Result<Item, StackError> {
        let bare = self.bare();
        let text = &self.line[bare.clone()];
        let quote_follows = self.rest().starts_with('"');
        if text.is_empty() {
            if quote_follows {
                return Ok(Item::Lone(self.quoted()?));
            }
            let error = self.error(self.here(), "something is missing here");
            return Err(error.hint("a colon or a comma is followed by a value or key=value"));
        }
        match text.find('=').filter(|_| !whole) {
            Some(equals) if quote_follows && text[equals + 1..].trim().is_empty() => {
                Ok(Item::Keyed { key: self.key_before(&bare, equals), value: self.quoted()? })
            }
            _ if quote_follows => {
                let problem = "a value with a quote mark in it is quoted as a whole";
                Err(self.error(bare.start..self.here().end, problem).hint(r#"for example "a \"quoted\" word""#))
            }
            Some(equals) => {
                let value = text[equals + 1..].trim_start();
                let span = bare.end - value.len()..bare.end;
                let value = Raw { text: value.to_owned(), span, quoted: false };
                Ok(Item::Keyed { key: self.key_before(&bare, equals), value })
            }
            None => Ok(Item::Lone(Raw { text: text.to_owned(), span: bare, quoted: false })),
        }
    }

    /// The key that ends at the equals sign `equals` bytes into `bare`.
    fn key_before(&self, bare: &Range<usize>, equals: usize) -> Range<usize> {
        let key = &self.line[bare.start..bare.start + equals];
        bare.start..bare.start + key.trim_end().len()
    }

    /// Skips a bare text and returns it without the blanks at its ends. Afterwards `at` is at the comma, the quote
    /// mark, the blank before the separator, or the end.
    fn bare(&mut self) -> Range<usize> {
        let start = self.at;
        let mut end = self.line.len();
        let mut blank_before = None;
        for (offset, c) in self.rest().char_indices() {
            let after = &self.rest()[offset + c.len_utf8()..];
            let separates = c == '/' && (after.is_empty() || after.starts_with(char::is_whitespace));
            match blank_before {
                Some(blank) if separates => {
                    end = start + blank;
                    break;
                }
                _ if matches!(c, ',' | '"') => {
                    end = start + offset;
                    break;
                }
                _ => {}
            }
            blank_before = match c.is_whitespace() {
                true => blank_before.or(Some(offset)),
                false => None,
            };
        }
        self.at = end;
        let text = &self.line[start..end];
        let start = start + (text.len() - text.trim_start().len());
        start..(start + text.trim().len())
    }

    /// `at` is at the opening quote mark; afterwards it is behind the closing one and the blanks after it.
    fn quoted(&mut self) -> Result<Raw, StackError> {
        let start = self.at;
        let mut text = String::new();
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((offset, c)) = chars.next() {
            match c {
                '"' => {
                    let end = start + offset + 1;
                    self.at = end;
                    self.after_quoted()?;
                    return Ok(Raw { text, span: start..end, quoted: true });
                }
                '\\' => match chars.next() {
                    Some((_, escaped @ ('"' | '\\'))) => text.push(escaped),
                    _ => {
                        let problem = r#"in quotes, a backslash is allowed only before a quote mark or a backslash"#;
                        let at = start + offset;
                        return Err(self.error(at..at + 1, problem).hint(r"write \\ for one backslash"));
                    }
                },
                _ => text.push(c),
            }
        }
        Err(self.error(start..self.line.len(), "the closing quote mark is missing"))
    }

    fn after_quoted(&mut self) -> Result<(), StackError> {
        let trimmed = self.rest().trim_start();
        let blanks = self.rest().len() - trimmed.len();
        if trimmed.starts_with(',') {
            self.at += blanks;
            return Ok(());
        }
        match trimmed.is_empty() || (blanks > 0 && trimmed.starts_with('/')) {
            true => Ok(()),
            false => {
                self.at += blanks;
                let problem = "a quoted value is followed by a comma, or by a space, a slash and a space";
                Err(self.error(self.here(), problem))
            }
        }
    }

    /// Looks up the setting of an item and parses its value.
    fn setting(&self, spec: &'static WordSpec, is_first: bool, item: Item) -> Result<Setting, StackError> {
        let (param, raw, span) = match item {
            Item::Keyed { key, value } => {
                let span = key.start..value.span.end;
                (self.param(spec, key)?, value, span)
            }
            Item::Lone(raw) => {
                let span = raw.span.clone();
                match spec.argument.filter(|_| is_first) {
                    Some(argument) => (argument, raw, span),
                    None if raw.quoted => {
                        let error = self.error(span, "a value without a key");
                        return Err(error.hint(format!("write: {}", spec.usage())));
                    }
                    None => {
                        let param = self.param(spec, span.clone())?;
                        // A name alone switches on.
                        if !param.kind.words().contains(&"on") {
                            let error = self.error(span, format!("`{}` needs a value", param.name));
                            return Err(error.hint(format!("write: {}={}", param.name, param.kind.placeholder())));
                        }
                        (param, Raw { text: "on".into(), ..raw }, span)
                    }
                }
            }
        };
        match param.kind.read(&raw.text) {
            Ok(value) => Ok(Setting { param, value, span }),
            Err(bad) => {
                // An empty value has no place to point at.
                let blamed = if raw.span.is_empty() { span } else { raw.span };
                let error = self.error(blamed, format!("`{}` of `{}`: {}", param.name, spec.name, bad.problem));
                Err(error.hint_if(bad.hint))
            }
        }
    }

    /// The option or argument whose name is at `key`.
    fn param(&self, spec: &'static WordSpec, key: Range<usize>) -> Result<&'static Param, StackError> {
        let name = &self.line[key.clone()];
        spec.param(name).ok_or_else(|| self.unknown_option(spec, name, key))
    }

    fn unknown_option(&self, spec: &'static WordSpec, key: &str, span: Range<usize>) -> StackError {
        let names = || spec.params().map(|param| param.name);
        let error = self.error(span, unknown(&format!("option of `{}` called", spec.name), key, names()));
        let options = match names().count() {
            0 => format!("`{}` has no options", spec.name),
            _ => format!("options of `{}`: {}", spec.name, names().collect::<Vec<_>>().join(", ")),
        };
        match spec.argument.map(|argument| argument.kind) {
            Some(ParamKind::Path) => {
                error.hint(format!("{options}\nif the comma belongs to the path, put the path in quotes"))
            }
            _ => error.hint(options),
        }
    }
}
