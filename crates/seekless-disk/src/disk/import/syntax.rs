//! The language of DiskSim's parameter files, as far as it says what drives are.
//!
//! ```text
//! file     = { "instantiate" list "as" NAME | "topology" part | TYPE [NAME] block }
//! part     = TYPE NAME [ "[" { part } "]" ]
//! block    = "{" { keys "=" value "," } "}"         the last comma may be missing
//! keys     = words | list
//! value    = words | list | TYPE [NAME] block
//! list     = "[" { value "," } "]"
//! ```
//! `#` begins a comment. A TYPE may be the NAME of a block before it, whose parameters the new one has, too. Of two blocks with a name, the
//! first counts.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::ImportError;
use super::files::Read;
use super::tokens::{DEPTH_MAX, Token, Tokens};

pub(super) use super::tokens::SourceLine;

type ImportResult<T> = Result<T, ImportError>;

/// What the files say.
#[derive(Default)]
pub(super) struct Spec {
    /// Blocks at the top, in their order.
    pub(super) blocks: Vec<Rc<Block>>,
    /// Names of instances, and of the block of which they are.
    pub(super) instances: Vec<(Vec<String>, String)>,
    pub(super) topology: Vec<Part>,
    /// Names of all files, in the order in which they were first read.
    pub(super) files: Vec<String>,
    /// What was left out, a sentence each.
    pub(super) notes: Vec<String>,
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
    /// Whose parameters count where there is none of that name here.
    pub(super) base: Option<Rc<Block>>,
    pub(super) place: SourceLine,
}

pub(super) struct Param {
    pub(super) key: String,
    pub(super) value: Rc<Value>,
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

/// Reads `file` and all that it includes.
pub(super) fn read(file: &str, read: Read<'_>) -> ImportResult<Spec> {
    let mut tokens = Tokens::read(file, read)?;
    let mut reader = Reader { spec: Spec::default(), names: BTreeMap::new(), depth: 0 };
    reader.definitions(&mut tokens)?;
    let mut files: Vec<String> = Vec::new();
    for file in &tokens.files {
        if !files.iter().any(|other| **other == **file) {
            files.push(file.to_string());
        }
    }
    Ok(Spec { files, ..reader.spec })
}

struct Reader {
    spec: Spec,
    /// Blocks by their names.
    names: BTreeMap<String, usize>,
    depth: usize,
}

impl Reader {
    fn definitions(&mut self, tokens: &mut Tokens) -> ImportResult<()> {
        while tokens.peek().is_some() {
            let place = tokens.place();
            match &*tokens.word("a block, `source`, `instantiate` or `topology`")? {
                "instantiate" => {
                    tokens.need('[')?;
                    let names = self.list(tokens)?.items.iter().flat_map(names).collect();
                    if tokens.word("`as`")? != "as" {
                        return Err(place.error("`instantiate [ ... ] as NAME` is expected here"));
                    }
                    let of = tokens.word("the name of a block")?;
                    self.spec.instances.push((names, of));
                }
                "topology" => {
                    let part = self.part(tokens)?;
                    self.spec.topology.push(part);
                }
                kind => {
                    let name = if tokens.is('{') { String::new() } else { tokens.word("the name of a block")? };
                    let block = self.block(tokens, kind.to_owned(), name, place)?;
                    self.define(block)?;
                }
            }
            tokens.take(',');
        }
        Ok(())
    }

    /// Adds a block at the top.
    fn define(&mut self, block: Block) -> ImportResult<()> {
        if let Some(&first) = self.names.get(&block.name).filter(|_| !block.name.is_empty()) {
            /// Notes on blocks that are left out.
            const NOTES_MAX: usize = 8;
            if self.spec.notes.len() < NOTES_MAX {
                let (SourceLine { file, line }, first) = (&block.place, &self.spec.blocks[first].place);
                let name: String = block.name.chars().take(80).collect();
                self.spec.notes.push(format!(
                    "The block {} ({file}, line {line}) is left out, as in DiskSim: {}, line {}, has one of this name.",
                    name.escape_debug(),
                    first.file,
                    first.line
                ));
            }
            return Ok(());
        }
        self.names.insert(block.name.clone(), self.spec.blocks.len());
        self.spec.blocks.push(Rc::new(block));
        Ok(())
    }

    /// The block, with the one before it whose name is its type.
    fn with_base(&self, mut block: Block) -> ImportResult<Block> {
        let is_own = !["disksim_", "dm_"].iter().any(|of_disksim| block.kind.starts_with(of_disksim));
        let base = self.names.get(&block.kind).filter(|_| is_own);
        if let Some(base) = base.map(|&base| self.spec.blocks[base].clone()) {
            if base.with_bases().count() == DEPTH_MAX {
                return Err(block.place.error(format!("more than {DEPTH_MAX} blocks, each the type of the next")));
            }
            block.kind.clone_from(&base.kind);
            block.base = Some(base);
        }
        Ok(block)
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
        let block = self.deeper(&place.clone(), |reader| {
            while !tokens.take('}') {
                let place = tokens.place();
                let keys: Vec<String> = match tokens.take('[') {
                    true => reader.list(tokens)?.items.iter().flat_map(names).collect(),
                    false => vec![tokens.words().join(" ")],
                };
                if let [key] = &keys[..]
                    && let Some(problem) = decimal_comma(key, params.last()).filter(|_| !tokens.is('='))
                {
                    return Err(place.error(problem));
                }
                tokens.need('=')?;
                let value = Rc::new(reader.value(tokens)?);
                params.extend(keys.into_iter().map(|key| Param { key, value: value.clone(), place: place.clone() }));
                tokens.take(',');
            }
            Ok(Block { kind, name, params, base: None, place })
        })?;
        self.with_base(block)
    }

    fn value(&mut self, tokens: &mut Tokens) -> ImportResult<Value> {
        let place = tokens.place();
        if tokens.take('[') {
            return self.deeper(&place, |reader| Ok(Value::List(reader.list(tokens)?)));
        }
        let is_brace = |token: Option<&Token>| token == Some(&Token::Sign('{'));
        let is_word = |token: Option<&Token>| matches!(token, Some(Token::Word(_)));
        let is_block = is_word(tokens.peek())
            && (is_brace(tokens.ahead(1)) || is_word(tokens.ahead(1)) && is_brace(tokens.ahead(2)));
        if is_block {
            let kind = tokens.word("the type of a block")?;
            let name = if tokens.is('{') { String::new() } else { tokens.word("the name of a block")? };
            return self.block(tokens, kind, name, place).map(Value::Block);
        }
        match &tokens.words_of_line()[..] {
            [] => Err(place.error(format!("a value is expected here, not {}", tokens.shown()))),
            words => Ok(Value::Text(words.join(" "))),
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
    let Param { key: number, value, .. } = before?;
    let Value::Text(whole) = &**value else { return None };
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
