//! The language of DiskSim's parameter files, as far as it says what drives are.
//!
//! ```text
//! file     = { "source" FILE | "instantiate" list "as" NAME | "topology" part | TYPE [NAME] block }
//! part     = TYPE NAME [ "[" { part } "]" ]
//! block    = "{" { key "=" value "," } "}"          key: words up to the sign; the last comma may be missing
//! value    = words | list | "source" FILE | TYPE [NAME] block
//! list     = "[" { value "," } "]"
//! ```
//! `#` begins a comment. Text is input: length, nesting and the number of files are bounded.

use std::rc::Rc;

use super::ImportError;
use super::files::{Read, read_near};

/// The longest file; the longest of DiskSim's distribution, a layout track by track, has 2 MB.
const BYTES_MAX: usize = 16 << 20;
const DEPTH_MAX: usize = 32;
const FILES_MAX: usize = 64;

type ImportResult<T> = Result<T, ImportError>;

/// What the files say.
#[derive(Default)]
pub(super) struct Spec {
    /// Blocks at the top, in their order.
    pub(super) blocks: Vec<Block>,
    /// Names of instances, and of the block of which they are.
    pub(super) instances: Vec<(Vec<String>, String)>,
    pub(super) topology: Vec<Part>,
    /// Names of all files, in the order in which they were read.
    pub(super) files: Vec<String>,
}

/// A component in the topology, with what hangs on it.
pub(super) struct Part {
    pub(super) name: String,
    pub(super) parts: Vec<Part>,
}

pub(super) struct Block {
    /// `disksim_disk`, `dm_disk` ...
    pub(super) kind: String,
    /// Empty for a block that is a value.
    pub(super) name: String,
    pub(super) params: Vec<Param>,
    pub(super) place: SourceLine,
}

pub(super) struct Param {
    pub(super) key: String,
    pub(super) value: Value,
    pub(super) place: SourceLine,
}

pub(super) enum Value {
    Text(String),
    List(List),
    Block(Block),
}

/// Values, and the line of each.
#[derive(Default)]
pub(super) struct List {
    pub(super) items: Vec<Value>,
    pub(super) lines: Vec<usize>,
}

/// File and line.
#[derive(Clone)]
pub(super) struct SourceLine {
    pub(super) file: Rc<str>,
    pub(super) line: usize,
}

impl SourceLine {
    pub(super) fn error(&self, problem: impl Into<String>) -> ImportError {
        ImportError { file: self.file.to_string(), line: self.line, problem: problem.into() }
    }
}

/// Reads `file` and all that it includes.
pub(super) fn read(file: &str, read: Read<'_>) -> ImportResult<Spec> {
    let mut spec = Spec::default();
    let text = read(file).map_err(|problem| SourceLine { file: file.into(), line: 1 }.error(problem))?;
    let mut reader = Reader { read, spec: &mut spec, depth: 0 };
    let tokens = reader.tokens(file.to_owned(), &text, &SourceLine { file: file.into(), line: 1 })?;
    reader.definitions(tokens)?;
    Ok(spec)
}

struct Reader<'a, 'b> {
    read: Read<'a>,
    spec: &'b mut Spec,
    depth: usize,
}

#[derive(Clone, PartialEq)]
enum Token {
    Word(String),
    Sign(char),
}

/// The tokens of a file from some place on.
struct Tokens {
    file: Rc<str>,
    tokens: Vec<(Token, usize)>,
    next: usize,
}

impl Tokens {
    fn new(file: &str, text: &str) -> Tokens {
        let mut tokens = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let mut rest = line;
            while let Some(start) = rest.find(|c: char| !c.is_whitespace()) {
                rest = &rest[start..];
                let sign = rest.chars().next().filter(|c| "{}[],=".contains(*c));
                if rest.starts_with('#') {
                    break;
                } else if let Some(sign) = sign {
                    tokens.push((Token::Sign(sign), index + 1));
                    rest = &rest[1..];
                } else if let Some(quoted) = rest.strip_prefix('"') {
                    let end = quoted.find('"').unwrap_or(quoted.len());
                    tokens.push((Token::Word(quoted[..end].to_owned()), index + 1));
                    rest = quoted[end..].strip_prefix('"').unwrap_or_default();
                } else {
                    let end = rest.find(|c: char| c.is_whitespace() || "{}[],=#".contains(c)).unwrap_or(rest.len());
                    tokens.push((Token::Word(rest[..end].to_owned()), index + 1));
                    rest = &rest[end..];
                }
            }
        }
        Tokens { file: file.into(), tokens, next: 0 }
    }

    fn place(&self) -> SourceLine {
        let line = self.tokens.get(self.next).or(self.tokens.last()).map_or(1, |token| token.1);
        SourceLine { file: self.file.clone(), line }
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|token| &token.0)
    }

    fn is(&self, sign: char) -> bool {
        self.peek() == Some(&Token::Sign(sign))
    }

    fn take(&mut self, sign: char) -> bool {
        let is = self.is(sign);
        self.next += usize::from(is);
        is
    }

    fn need(&mut self, sign: char) -> ImportResult<()> {
        match self.take(sign) {
            true => Ok(()),
            false => Err(self.place().error(format!("`{sign}` is expected here, not {}", self.shown()))),
        }
    }

    fn word(&mut self, what: &str) -> ImportResult<String> {
        match self.peek() {
            Some(Token::Word(word)) => {
                let word = word.clone();
                self.next += 1;
                Ok(word)
            }
            _ => Err(self.place().error(format!("{what} is expected here, not {}", self.shown()))),
        }
    }

    /// Words up to the next sign, on the line of the first.
    fn words_of_line(&mut self) -> Vec<String> {
        let line = self.tokens.get(self.next).map(|token| token.1);
        let mut words = Vec::new();
        while let Some((Token::Word(word), at)) = self.tokens.get(self.next)
            && Some(*at) == line
        {
            words.push(word.clone());
            self.next += 1;
        }
        words
    }

    fn shown(&self) -> String {
        match self.peek() {
            Some(Token::Word(word)) => format!("`{}`", word.chars().take(40).collect::<String>().escape_debug()),
            Some(Token::Sign(sign)) => format!("`{sign}`"),
            None => "the end of the file".to_owned(),
        }
    }
}

impl Reader<'_, '_> {
    /// Reads a file for its definitions.
    fn file(&mut self, file: &str, from: &SourceLine) -> ImportResult<()> {
        let (file, text) = read_near(file, &from.file, self.read).map_err(|problem| from.error(problem))?;
        let tokens = self.tokens(file, &text, from)?;
        self.definitions(tokens)
    }

    fn definitions(&mut self, mut tokens: Tokens) -> ImportResult<()> {
        while tokens.peek().is_some() {
            let place = tokens.place();
            match &*tokens.word("a block, `source`, `instantiate` or `topology`")? {
                "source" => {
                    let name = tokens.word("the name of a file")?;
                    self.deeper(&place, |reader| reader.file(&name, &place))?;
                }
                "instantiate" => {
                    tokens.need('[')?;
                    let names = self.list(&mut tokens)?.items.iter().flat_map(names).collect();
                    if tokens.word("`as`")? != "as" {
                        return Err(place.error("`instantiate [ ... ] as NAME` is expected here"));
                    }
                    let of = tokens.word("the name of a block")?;
                    self.spec.instances.push((names, of));
                }
                "topology" => {
                    let part = self.part(&mut tokens)?;
                    self.spec.topology.push(part);
                }
                kind => {
                    let name = if tokens.is('{') { String::new() } else { tokens.word("the name of a block")? };
                    let block = self.block(&mut tokens, kind.to_owned(), name, place)?;
                    self.spec.blocks.push(block);
                }
            }
            tokens.take(',');
        }
        Ok(())
    }

    fn tokens(&mut self, file: String, text: &str, from: &SourceLine) -> ImportResult<Tokens> {
        if self.spec.files.len() == FILES_MAX {
            return Err(from.error(format!("more than {FILES_MAX} files, one from another")));
        }
        if text.len() > BYTES_MAX {
            return Err(from.error(format!("{file} has more than {BYTES_MAX} bytes")));
        }
        let tokens = Tokens::new(&file, text);
        self.spec.files.push(file);
        Ok(tokens)
    }

    fn deeper<T>(&mut self, place: &SourceLine, inner: impl FnOnce(&mut Self) -> ImportResult<T>) -> ImportResult<T> {
        if self.depth == DEPTH_MAX {
            return Err(place.error(format!("more than {DEPTH_MAX} levels, one in another")));
        }
        self.depth += 1;
        let done = inner(self);
        self.depth -= 1;
        done
    }

    fn part(&mut self, tokens: &mut Tokens) -> ImportResult<Part> {
        let place = tokens.place();
        tokens.word("a component such as `disksim_bus`")?;
        let name = tokens.word("the name of a component")?;
        let mut parts = Vec::new();
        if tokens.take('[') {
            self.deeper(&place, |reader| {
                while !tokens.take(']') {
                    parts.push(reader.part(tokens)?);
                    tokens.take(',');
                }
                Ok(())
            })?;
        }
        Ok(Part { name, parts })
    }

    fn block(&mut self, tokens: &mut Tokens, kind: String, name: String, place: SourceLine) -> ImportResult<Block> {
        tokens.need('{')?;
        let mut params = Vec::new();
        self.deeper(&place.clone(), |reader| {
            while !tokens.take('}') {
                let place = tokens.place();
                let mut key = Vec::new();
                while let Some(Token::Word(word)) = tokens.peek() {
                    key.push(word.clone());
                    tokens.next += 1;
                }
                let key = key.join(" ");
                if let Some(problem) = decimal_comma(&key, params.last()).filter(|_| !tokens.is('=')) {
                    return Err(place.error(problem));
                }
                tokens.need('=')?;
                let value = reader.value(tokens)?;
                params.push(Param { key, value, place });
                tokens.take(',');
            }
            Ok(Block { kind, name, params, place })
        })
    }

    fn value(&mut self, tokens: &mut Tokens) -> ImportResult<Value> {
        let place = tokens.place();
        if tokens.take('[') {
            return self.deeper(&place, |reader| Ok(Value::List(reader.list(tokens)?)));
        }
        let words = tokens.words_of_line();
        match &words[..] {
            [] => Err(place.error(format!("a value is expected here, not {}", tokens.shown()))),
            [source, file] if source == "source" => self.deeper(&place, |reader| reader.included(file, &place)),
            [kind] if tokens.is('{') => self.block(tokens, kind.clone(), String::new(), place).map(Value::Block),
            [kind, name] if tokens.is('{') => self.block(tokens, kind.clone(), name.clone(), place).map(Value::Block),
            _ => Ok(Value::Text(words.join(" "))),
        }
    }

    /// The block of a file that is a value.
    fn included(&mut self, file: &str, from: &SourceLine) -> ImportResult<Value> {
        let before = self.spec.blocks.len();
        self.file(file, from)?;
        let mut blocks = self.spec.blocks.drain(before..);
        match (blocks.next(), blocks.next()) {
            (Some(block), None) => Ok(Value::Block(block)),
            (found, _) => {
                let count = if found.is_some() { "several" } else { "none" };
                Err(from.error(format!("{file} should have one block, and has {count}")))
            }
        }
    }

    /// What follows an opening bracket.
    fn list(&mut self, tokens: &mut Tokens) -> ImportResult<List> {
        let mut list = List::default();
        while !tokens.take(']') {
            list.lines.push(tokens.place().line);
            list.items.push(self.value(tokens)?);
            tokens.take(',');
        }
        Ok(list)
    }
}

/// What is wrong where a key should be, and digits are: `Head switch time = 0,8`.
fn decimal_comma(key: &str, before: Option<&Param>) -> Option<String> {
    let is_digits = |text: &str| !text.is_empty() && text.len() < 20 && text.bytes().all(|byte| byte.is_ascii_digit());
    let Param { key: number, value: Value::Text(whole), .. } = before? else { return None };
    let is_number = is_digits(whole.strip_prefix('-').unwrap_or(whole)) && is_digits(key);
    is_number.then(|| format!("`{number}`: decimals come after a point, not after a comma: {whole}.{key}"))
}

/// Names of a list, of which an item can be a range: `disk0 .. disk3`.
fn names(value: &Value) -> Vec<String> {
    /// As many as DiskSim knows devices, ten times over.
    const RANGE_MAX: u64 = 1000;
    let Value::Text(text) = value else { return Vec::new() };
    let split = |name: &str| {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        Some((stem.to_owned(), name[stem.len()..].parse::<u64>().ok()?))
    };
    match text.split_once("..").map(|(first, last)| (split(first.trim()), split(last.trim()))) {
        Some((Some((stem, first)), Some((_, last)))) => {
            (first..=last).take(RANGE_MAX as usize).map(|number| format!("{stem}{number}")).collect()
        }
        _ => vec![text.clone()],
    }
}
