//! Candidates: places in the sources where a small change should make a test fail.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::rooms::{Rooms, place_of};

/// How the changed text takes the place of the old one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// An expression: both texts have the same type.
    Expression,
    /// Statements.
    Statements,
    /// A statement at the beginning of a body, in an empty range.
    Entry,
}

#[derive(Clone, Debug)]
pub(crate) struct Mutant {
    /// Stays the same while the code around it changes.
    pub(crate) id: String,
    pub(crate) room: String,
    /// From the root of the sources.
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) function: String,
    pub(crate) kind: &'static str,
    pub(crate) form: Form,
    pub(crate) range: Range<usize>,
    pub(crate) before: String,
    pub(crate) after: String,
    /// Why a person chose it.
    pub(crate) why: Option<String>,
}

fn short(text: &str) -> String {
    let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match one_line.char_indices().nth(70) {
        Some((end, _)) => format!("{}…", &one_line[..end]),
        None => one_line,
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mutant { id, file, line, function, kind, before, after, .. } = self;
        write!(f, "{id} {file}:{line} {function}: {kind}: `{}` → `{}`", short(before), short(after))
    }
}

pub(crate) fn hash(parts: &[&str]) -> u64 {
    hash_bytes(parts.join("\0").as_bytes())
}

/// FNV-1a, which gives the same number everywhere.
pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for &byte in bytes {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    // The low bits of FNV differ little where the last bytes do.
    hash ^ hash >> 29
}

/// So many of each file are in the sample, where it has them: small files have promises, too.
const OF_EACH_FILE: usize = 4;

/// The sample of each room, and all that were chosen.
pub(crate) fn all(root: &Path, rooms: &Rooms, seed: u64, percent: u64) -> Result<Vec<Mutant>> {
    let mut found = Vec::new();
    for (name, room) in &rooms.rooms {
        let order = |mutant: &Mutant| hash(&[&seed.to_string(), &mutant.id]);
        let (mut candidates, mut others) = (Vec::new(), Vec::new());
        for file in &room.files {
            let mut of_file = in_file(root, name, file)?;
            of_file.sort_by_key(order);
            others.extend(of_file.split_off(of_file.len().min(OF_EACH_FILE)));
            candidates.extend(of_file);
        }
        candidates.sort_by_key(order);
        others.sort_by_key(order);
        candidates.extend(others);
        candidates.truncate((room.sample as u64 * percent).div_ceil(100) as usize);
        found.extend(candidates);
    }
    found.extend(chosen(root, rooms)?);
    found.sort_by(|a, b| (&a.file, a.range.start, &a.id).cmp(&(&b.file, b.range.start, &b.id)));
    Ok(found)
}

fn chosen(root: &Path, rooms: &Rooms) -> Result<Vec<Mutant>> {
    let mut found = Vec::new();
    for entry in &rooms.chosen {
        let text = read(root, &entry.file)?;
        let context = entry.before.replace(['«', '»'], "");
        let Some(place) = text.find(&context) else {
            bail!("chosen.toml: {} no longer has `{context}`", entry.file);
        };
        ensure!(text.matches(&context).count() == 1, "chosen.toml: `{context}` is in {} twice", entry.file);
        let (lead, before) = match entry.before.split_once('«') {
            Some((lead, rest)) => (lead.len(), rest.split_once('»').context("chosen.toml: a « without its »")?.0),
            None => (0, context.as_str()),
        };
        let start = place + lead;
        let Some(room) = rooms.room_of(&entry.file) else {
            bail!("chosen.toml: {} is in no room of rooms.toml", entry.file);
        };
        let is_statements = before.trim_end().ends_with([';', '}']);
        found.push(Mutant {
            id: format!("c{:07x}", hash(&[&entry.file, &entry.before, &entry.after]) >> 36),
            room: room.to_owned(),
            line: text[..start].matches('\n').count() + 1,
            function: "chosen".to_owned(),
            kind: "chosen",
            form: if is_statements { Form::Statements } else { Form::Expression },
            range: start..start + before.len(),
            before: before.to_owned(),
            after: entry.after.clone(),
            why: Some(entry.why.clone()),
            file: entry.file.clone(),
        });
    }
    Ok(found)
}

fn read(root: &Path, file: &str) -> Result<String> {
    let path = root.join(place_of(root, file)?);
    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}

fn in_file(root: &Path, room: &str, file: &str) -> Result<Vec<Mutant>> {
    let text = read(root, file)?;
    let tree = syn::parse_file(&text).with_context(|| format!("parsing {file}"))?;
    let mut finder = Finder { text: &text, function: Vec::new(), found: Vec::new() };
    finder.visit_file(&tree);
    let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
    let mutants = finder.found.into_iter().map(|candidate| {
        let Candidate { function, kind, form, range, after } = candidate;
        let before = text[range.clone()].to_owned();
        let key = hash(&[file, &function, kind, &before, &after]);
        let times = seen.entry(key).and_modify(|times| *times += 1).or_insert(0);
        Mutant {
            id: format!("{:07x}", hash(&[&key.to_string(), &times.to_string()]) >> 36),
            room: room.to_owned(),
            file: file.to_owned(),
            line: text[..range.start].matches('\n').count() + 1,
            function,
            kind,
            form,
            range,
            before,
            after,
            why: None,
        }
    });
    Ok(mutants.collect())
}

struct Candidate {
    function: String,
    kind: &'static str,
    form: Form,
    range: Range<usize>,
    after: String,
}

struct Finder<'a> {
    text: &'a str,
    function: Vec<String>,
    found: Vec<Candidate>,
}

/// Functions that only describe things: a wrong word in a message is not what the mutants look for.
const WORDS_ONLY: [&str; 6] = ["fmt", "describe", "to_text", "name", "counters", "info"];

impl Finder<'_> {
    fn add(&mut self, kind: &'static str, form: Form, range: Range<usize>, after: String) {
        let Some(function) = self.function.last().cloned() else { return };
        if self.text[range.clone()] != after || form == Form::Entry {
            self.found.push(Candidate { function, kind, form, range, after });
        }
    }

    fn of<T: Spanned>(&self, node: &T) -> (Range<usize>, String) {
        let range = node.span().byte_range();
        (range.clone(), self.text[range].to_owned())
    }

    fn body(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let name = signature.ident.to_string();
        if signature.constness.is_some() || WORDS_ONLY.contains(&name.as_str()) {
            return;
        }
        self.function.push(name);
        let results: &[&str] = match &signature.output {
            syn::ReturnType::Default => &["return;"],
            syn::ReturnType::Type(_, kind) => match self.of(kind.as_ref()).1.as_str() {
                "bool" => &["return true;", "return false;"],
                "u64" | "usize" | "u32" => &["return 0;", "return 1;"],
                text if text.starts_with("Option<") => &["return None;"],
                text if text.starts_with("Vec<") => &["return Vec::new();"],
                text if text.ends_with("Result<()>") || text.starts_with("Result<(),") => &["return Ok(());"],
                _ => &[],
            },
        };
        let entry = block.brace_token.span.open().byte_range().end;
        if !block.stmts.is_empty() {
            for result in results {
                self.add("body", Form::Entry, entry..entry, (*result).to_owned());
            }
        }
        visit::visit_block(self, block);
        self.function.pop();
    }

    /// A condition that can be negated: no pattern is bound in it.
    fn condition(&mut self, condition: &syn::Expr, kind: &'static str) {
        if !has_let(condition) {
            let (range, text) = self.of(condition);
            self.add(kind, Form::Expression, range, format!("!({text})"));
        }
    }
}

fn has_let(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        syn::Expr::Paren(paren) => has_let(&paren.expr),
        _ => false,
    }
}

fn is_test_only(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string().contains("test"))
    })
}

fn other_operator(operator: &syn::BinOp) -> &'static [&'static str] {
    match operator {
        syn::BinOp::Lt(_) => &["<=", ">="],
        syn::BinOp::Le(_) => &["<", ">"],
        syn::BinOp::Gt(_) => &[">=", "<="],
        syn::BinOp::Ge(_) => &[">", "<"],
        syn::BinOp::Eq(_) => &["!="],
        syn::BinOp::Ne(_) => &["=="],
        syn::BinOp::And(_) => &["||"],
        syn::BinOp::Or(_) => &["&&"],
        syn::BinOp::Add(_) => &["-"],
        syn::BinOp::Sub(_) => &["+"],
        syn::BinOp::Mul(_) => &["+"],
        _ => &[],
    }
}

fn other_method(name: &str) -> Option<&'static str> {
    Some(match name {
        "min" => "max",
        "max" => "min",
        "any" => "all",
        "all" => "any",
        "is_some" => "is_none",
        "is_none" => "is_some",
        "is_some_and" => "is_none_or",
        "is_none_or" => "is_some_and",
        "first" => "last",
        "last" => "first",
        "next" => "next_back",
        _ => return None,
    })
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test_only(&item.attrs) {
            self.body(&item.sig, &item.block);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test_only(&item.attrs) {
            self.body(&item.sig, &item.block);
        }
    }

    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}

    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr); // The length is a constant.
    }

    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        if let syn::Stmt::Expr(expression, Some(_)) = statement {
            let is_action = matches!(
                expression,
                syn::Expr::Call(_)
                    | syn::Expr::MethodCall(_)
                    | syn::Expr::Await(_)
                    | syn::Expr::Try(_)
                    | syn::Expr::Assign(_)
                    | syn::Expr::Binary(_)
                    | syn::Expr::Return(_)
                    | syn::Expr::Continue(_)
                    | syn::Expr::Break(_)
            );
            if is_action {
                let (range, _) = self.of(statement);
                self.add("leave out", Form::Statements, range, String::new());
            }
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr_if(&mut self, expression: &'ast syn::ExprIf) {
        self.condition(&expression.cond, "if");
        visit::visit_expr_if(self, expression);
    }

    fn visit_expr_while(&mut self, expression: &'ast syn::ExprWhile) {
        self.condition(&expression.cond, "while");
        visit::visit_expr_while(self, expression);
    }

    fn visit_expr_binary(&mut self, expression: &'ast syn::ExprBinary) {
        if !has_let(&expression.left) && !has_let(&expression.right) {
            let (range, _) = self.of(expression);
            let (_, left) = self.of(expression.left.as_ref());
            let (_, right) = self.of(expression.right.as_ref());
            for operator in other_operator(&expression.op) {
                self.add("operator", Form::Expression, range.clone(), format!("{left} {operator} {right}"));
            }
        }
        visit::visit_expr_binary(self, expression);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if let Some(other) = other_method(&call.method.to_string()) {
            let (range, text) = self.of(call);
            let name = call.method.span().byte_range();
            let (from, to) = (name.start - range.start, name.end - range.start);
            self.add("method", Form::Expression, range, format!("{}{other}{}", &text[..from], &text[to..]));
        }
        visit::visit_expr_method_call(self, call);
    }
}
