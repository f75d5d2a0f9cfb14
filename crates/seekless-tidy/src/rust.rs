//! Rust sources, as far as the rules need them: the paths that they name, and which parts are test code.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::project::{files_under, read};

/// A path such as `crate::fs::lfs`, anywhere: in a `use`, a type, a macro.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// Its parts, from the root of its crate for paths that begin with `crate` or `super`: `["crate", "fs", "lfs"]`.
    pub parts: Vec<String>,
    pub line: usize,
    /// In code that only tests compile.
    pub in_test: bool,
    /// In a `use`, of which this file, and those below it, have the last part as a name.
    pub in_use: bool,
}

/// One source file.
pub struct Source {
    pub path: PathBuf,
    /// Its place in the crate: `["fs", "lfs", "format"]`.
    pub module: Vec<String>,
    pub named: Vec<Named>,
    /// Every identifier, and its line.
    pub words: Vec<(String, usize)>,
    /// Names of macros that the file exports.
    pub macros: Vec<String>,
    /// Structures declared with `record!`.
    pub records: Vec<String>,
}

/// All sources of a crate, from its `src`.
///
/// # Panics
/// When one cannot be read, or is no Rust.
pub fn sources(src: &Path) -> Vec<Source> {
    let mut sources: Vec<Source> = files_under(src, &[".rs"]).into_iter().map(|path| Source::read(src, path)).collect();
    // A file is test code when the line that declares it is; so is everything below it.
    let mut test_modules: Vec<Vec<String>> = sources.iter().flat_map(|source| source.test_modules()).collect();
    test_modules.sort();
    for source in &mut sources {
        if test_modules.iter().any(|test| source.module.starts_with(test)) {
            source.named.iter_mut().for_each(|named| named.in_test = true);
        }
    }
    sources
}

impl Source {
    fn read(src: &Path, path: PathBuf) -> Source {
        let relative = path.strip_prefix(src).expect("the file is under src").with_extension("");
        let mut module: Vec<String> = relative.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            module.pop();
        }
        let tokens = TokenStream::from_str(&read(&path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut source =
            Source { path, module, named: Vec::new(), words: Vec::new(), macros: Vec::new(), records: Vec::new() };
        let module = source.module.clone();
        source.scan(tokens, &module, false);
        source
    }

    /// Walks tokens of the module `module`.
    fn scan(&mut self, tokens: TokenStream, module: &[String], in_test: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut index = 0;
        // Attributes before the next item.
        let (mut for_test, mut exported) = (false, false);
        while index < tokens.len() {
            match &tokens[index] {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    if let Some(TokenTree::Group(group)) = tokens.get(index + 1) {
                        let text: String = group.stream().to_string().split_whitespace().collect();
                        for_test |= text == "cfg(test)" || text == "test";
                        exported |= text == "macro_export";
                        self.scan(group.stream(), module, in_test);
                        index += 1;
                    }
                    index += 1;
                }
                TokenTree::Ident(ident) => {
                    let word = ident.to_string();
                    let line = ident.span().start().line;
                    self.words.push((word.clone(), line));
                    match (word.as_str(), tokens.get(index + 1), tokens.get(index + 2)) {
                        ("mod", Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) => {
                            let inner = [module, &[name.to_string()]].concat();
                            self.words.push((name.to_string(), line));
                            self.scan(body.stream(), &inner, in_test || for_test);
                            (for_test, exported) = (false, false);
                            index += 3;
                            continue;
                        }
                        ("mod", Some(TokenTree::Ident(name)), _) if for_test => {
                            let parts = [&["crate".to_string()], module, &[name.to_string()]].concat();
                            self.named.push(Named { parts, line: 0, in_test: true, in_use: false });
                        }
                        ("macro_rules", _, Some(TokenTree::Ident(name))) if exported => {
                            self.macros.push(name.to_string());
                        }
                        ("record", Some(TokenTree::Punct(_)), Some(TokenTree::Group(body))) => {
                            self.note_record(body.stream());
                        }
                        _ => {}
                    }
                    let before = tokens[..index].iter().rev().take(2).collect::<Vec<_>>();
                    let continues = before.len() == 2 && before.iter().all(|token| is_colon(token));
                    let of_macro = index > 0 && matches!(&tokens[index - 1], TokenTree::Punct(p) if p.as_char() == '$');
                    if !continues && !of_macro {
                        self.note_path(&tokens, index, module, in_test || for_test);
                    }
                    index += 1;
                }
                // `pub(super)` says who may see an item, and imports nothing.
                TokenTree::Group(group)
                    if group.delimiter() == Delimiter::Parenthesis
                        && matches!(tokens[..index].last(), Some(TokenTree::Ident(word)) if word == "pub") =>
                {
                    index += 1;
                }
                TokenTree::Group(group) => {
                    self.scan(group.stream(), module, in_test || for_test);
                    if group.delimiter() == Delimiter::Brace {
                        (for_test, exported) = (false, false);
                    }
                    index += 1;
                }
                TokenTree::Punct(punct) => {
                    if punct.as_char() == ';' {
                        (for_test, exported) = (false, false);
                    }
                    index += 1;
                }
                TokenTree::Literal(_) => index += 1,
            }
        }
    }

    /// Records every path that begins at `index`; there are several when it ends in braces.
    fn note_path(&mut self, tokens: &[TokenTree], index: usize, module: &[String], in_test: bool) {
        let TokenTree::Ident(first) = &tokens[index] else { return };
        let line = first.span().start().line;
        let in_use = matches!(tokens[..index].last(), Some(TokenTree::Ident(word)) if word == "use");
        for parts in paths_from(tokens, index) {
            let parts = absolute(parts, module);
            if parts.len() > 1 {
                self.named.push(Named { parts, line, in_test, in_use });
            }
        }
    }

    fn note_record(&mut self, body: TokenStream) {
        let tokens: Vec<TokenTree> = body.into_iter().collect();
        for pair in tokens.windows(2) {
            if let [TokenTree::Ident(keyword), TokenTree::Ident(name)] = pair
                && keyword == "struct"
            {
                self.records.push(name.to_string());
            }
        }
    }

    /// Modules that this file declares for tests only.
    fn test_modules(&self) -> Vec<Vec<String>> {
        self.named.iter().filter(|named| named.line == 0).map(|named| named.parts[1..].to_vec()).collect()
    }
}

fn is_colon(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == ':')
}

/// The paths that begin with the identifier at `index`.
fn paths_from(tokens: &[TokenTree], index: usize) -> Vec<Vec<String>> {
    let TokenTree::Ident(first) = &tokens[index] else { return Vec::new() };
    let head = first.to_string();
    let goes_on = tokens.get(index + 1).is_some_and(is_colon) && tokens.get(index + 2).is_some_and(is_colon);
    let tails = match tokens.get(index + 3) {
        Some(TokenTree::Ident(_)) if goes_on => paths_from(tokens, index + 3),
        Some(TokenTree::Group(group)) if goes_on && group.delimiter() == Delimiter::Brace => {
            let inner: Vec<TokenTree> = group.stream().into_iter().collect();
            let starts = (0..inner.len())
                .filter(|&at| at == 0 || matches!(&inner[at - 1], TokenTree::Punct(punct) if punct.as_char() == ','));
            starts.flat_map(|at| paths_from(&inner, at)).collect()
        }
        _ => Vec::new(),
    };
    if tails.is_empty() {
        return vec![vec![head]];
    }
    tails.into_iter().map(|tail| [vec![head.clone()], tail].concat()).collect()
}

/// `parts` from the root of the crate, when they begin with `self` or `super`.
fn absolute(parts: Vec<String>, module: &[String]) -> Vec<String> {
    let ups = parts.iter().take_while(|part| *part == "super").count();
    let from_here = parts.first().is_some_and(|part| part == "self");
    if ups == 0 && !from_here {
        return parts;
    }
    let base = &module[..module.len().saturating_sub(ups)];
    let rest = &parts[ups + usize::from(from_here)..];
    [&["crate".to_string()], base, rest].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Aim: the rules see the paths. Method: a source with a path in every kind of place.
    #[test]
    fn paths_are_found() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("fs/lfs/thing.rs");
        std::fs::create_dir_all(file.parent().expect("a parent")).expect("directories");
        let text = "
            // use crate::comment;
            use crate::{device::{Data, Buf as B}, rt};
            use super::super::client::Client;
            pub(super) struct Seen { pub(in crate::rng) field: u8 }
            fn f(x: super::Lfs) -> crate::units::Ino { let text = \"crate::text\"; g!(crate::stack::parse(x)) }
            #[cfg(test)]
            mod tests { use super::*; use crate::testing::MemFs; }
            #[cfg(test)]
            mod more;
            use crate::codec;
        ";
        std::fs::write(&file, text).expect("a file");
        let source = Source::read(directory.path(), file);
        assert_eq!(source.module, ["fs", "lfs", "thing"]);
        let found = |in_test: bool| -> Vec<String> {
            let named = source.named.iter().filter(|named| named.in_test == in_test && named.parts[0] == "crate");
            named.map(|named| named.parts.join("::")).collect()
        };
        assert_eq!(
            found(false),
            [
                "crate::device::Data",
                "crate::device::Buf",
                "crate::rt",
                "crate::fs::client::Client",
                "crate::fs::lfs::Lfs",
                "crate::units::Ino",
                "crate::stack::parse",
                "crate::codec"
            ]
        );
        let in_tests = found(true);
        assert!(in_tests.contains(&"crate::testing::MemFs".to_string()), "{in_tests:?}");
        assert_eq!(source.test_modules(), [["fs", "lfs", "thing", "more"]]);
    }
}
