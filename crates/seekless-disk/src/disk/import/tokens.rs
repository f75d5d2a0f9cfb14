//! The words and signs of a parameter file and of all that it includes, in their order. `source FILE` is replaced by the text of the file,
//! wherever it is. Text is input: its length, and the number and nesting of files are bounded.

use std::rc::Rc;

use super::ImportError;
use super::files::{Read, read_near};

/// Of all files together; the longest of DiskSim's distribution, a layout track by track, has 2 MB.
pub(super) const BYTES_MAX: usize = 16 << 20;
const FILES_MAX: usize = 64;
pub(super) const DEPTH_MAX: usize = 32;

type ImportResult<T> = Result<T, ImportError>;

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

#[derive(Clone, PartialEq)]
pub(super) enum Token {
    Word(String),
    Sign(char),
}

/// The number of a file, and a line of it.
type Place = (u32, u32);

/// The tokens from some place on.
pub(super) struct Tokens {
    pub(super) files: Vec<Rc<str>>,
    tokens: Vec<(Token, Place)>,
    next: usize,
}

impl Tokens {
    /// Reads `file` and all that it includes.
    pub(super) fn read(file: &str, read: Read<'_>) -> ImportResult<Tokens> {
        let here = SourceLine { file: file.into(), line: 1 };
        let mut tokens = Tokens { files: Vec::new(), tokens: Vec::new(), next: 0 };
        let text = read(file).map_err(|error| here.error(error.problem()))?;
        Includer { read, bytes: 0, tokens: &mut tokens }.file(file, &text, &here, 1)?;
        Ok(tokens)
    }

    pub(super) fn place(&self) -> SourceLine {
        match self.tokens.get(self.next).or(self.tokens.last()) {
            Some((_, (file, line))) => SourceLine { file: self.files[*file as usize].clone(), line: *line as usize },
            None => SourceLine { file: self.files.first().cloned().unwrap_or_else(|| "".into()), line: 1 },
        }
    }

    pub(super) fn peek(&self) -> Option<&Token> {
        self.ahead(0)
    }

    pub(super) fn ahead(&self, count: usize) -> Option<&Token> {
        self.tokens.get(self.next + count).map(|token| &token.0)
    }

    pub(super) fn is(&self, sign: char) -> bool {
        self.peek() == Some(&Token::Sign(sign))
    }

    pub(super) fn take(&mut self, sign: char) -> bool {
        let is = self.is(sign);
        self.next += usize::from(is);
        is
    }

    pub(super) fn need(&mut self, sign: char) -> ImportResult<()> {
        match self.take(sign) {
            true => Ok(()),
            false => Err(self.place().error(format!("`{sign}` is expected here, not {}", self.shown()))),
        }
    }

    pub(super) fn word(&mut self, what: &str) -> ImportResult<String> {
        match self.peek() {
            Some(Token::Word(word)) => {
                let word = word.clone();
                self.next += 1;
                Ok(word)
            }
            _ => Err(self.place().error(format!("{what} is expected here, not {}", self.shown()))),
        }
    }

    /// Words up to the next sign.
    pub(super) fn words(&mut self) -> Vec<String> {
        let mut words = Vec::new();
        while let Some(Token::Word(word)) = self.peek() {
            words.push(word.clone());
            self.next += 1;
        }
        words
    }

    /// Words up to the next sign, on the line of the first.
    pub(super) fn words_of_line(&mut self) -> Vec<String> {
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

    pub(super) fn shown(&self) -> String {
        match self.peek() {
            Some(Token::Word(word)) => format!("`{}`", word.chars().take(40).collect::<String>().escape_debug()),
            Some(Token::Sign(sign)) => format!("`{sign}`"),
            None => "the end of the file".to_owned(),
        }
    }
}

struct Includer<'a, 'b> {
    read: Read<'a>,
    /// Of all files so far.
    bytes: usize,
    tokens: &'b mut Tokens,
}

impl Includer<'_, '_> {
    fn file(&mut self, file: &str, text: &str, from: &SourceLine, depth: usize) -> ImportResult<()> {
        if self.tokens.files.len() == FILES_MAX {
            return Err(from.error(format!("more than {FILES_MAX} files, one from another")));
        }
        self.bytes += text.len();
        if self.bytes > BYTES_MAX {
            return Err(from.error(format!("{file} makes it more than {BYTES_MAX} bytes")));
        }
        let number = self.tokens.files.len() as u32;
        let file: Rc<str> = file.into();
        self.tokens.files.push(file.clone());
        // The place of a `source` whose file comes next.
        let mut source: Option<SourceLine> = None;
        for (index, line) in text.lines().enumerate() {
            let mut rest = line;
            while let Some(start) = rest.find(|c: char| !c.is_whitespace()) {
                rest = &rest[start..];
                let here = || SourceLine { file: file.clone(), line: index + 1 };
                let sign = rest.chars().next().filter(|c| "{}[],=".contains(*c));
                let (token, is_quoted) = if rest.starts_with('#') {
                    break;
                } else if let Some(sign) = sign {
                    rest = &rest[1..];
                    (Token::Sign(sign), false)
                } else if let Some(quoted) = rest.strip_prefix('"') {
                    let end = quoted.find('"').unwrap_or(quoted.len());
                    rest = quoted[end..].strip_prefix('"').unwrap_or_default();
                    (Token::Word(quoted[..end].to_owned()), true)
                } else {
                    let end = rest.find(|c: char| c.is_whitespace() || "{}[],=#".contains(c)).unwrap_or(rest.len());
                    let (word, after) = rest.split_at(end);
                    rest = after;
                    (Token::Word(word.to_owned()), false)
                };
                match (source.take(), token) {
                    (Some(place), Token::Word(name)) => {
                        if depth == DEPTH_MAX {
                            return Err(place.error(format!("more than {DEPTH_MAX} levels, one in another")));
                        }
                        let (name, text) =
                            read_near(&name, &file, self.read).map_err(|problem| place.error(problem))?;
                        self.file(&name, &text, &place, depth + 1)?;
                    }
                    (Some(place), Token::Sign(sign)) => {
                        return Err(place.error(format!("the name of a file is expected here, not `{sign}`")));
                    }
                    (None, Token::Word(word)) if word == "source" && !is_quoted => source = Some(here()),
                    (None, token) => self.tokens.tokens.push((token, (number, index as u32 + 1))),
                }
            }
        }
        match source {
            Some(place) => Err(place.error("the name of a file is expected here, not the end of the file")),
            None => Ok(()),
        }
    }
}
