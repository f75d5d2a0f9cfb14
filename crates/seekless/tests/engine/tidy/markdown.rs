//! Markdown: statements of pages about files, headings, code and commands must be true.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::rust::{Source, sources};
use super::{ENGINE, engine, files_under, read, report, root, short};

/// A table with its heading.
pub(super) struct Table {
    pub(super) heading: String,
    pub(super) header: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

/// Contents of a page, as far as the rules need them.
#[derive(Default)]
pub(super) struct Page {
    pub(super) tables: Vec<Table>,
    /// Names by which links reach its headings, in the syntax of GitHub and rustdoc.
    anchors: BTreeSet<String>,
    /// Targets of links and images.
    links: Vec<String>,
    /// Pieces of code inside text.
    codes: Vec<String>,
    /// Lines of code blocks that hold commands.
    commands: Vec<String>,
}

impl Page {
    pub(super) fn read(path: &Path) -> Page {
        Page::parse(&read(path))
    }

    pub(super) fn parse(text: &str) -> Page {
        let mut page = Page::default();
        let mut taken: BTreeMap<String, u32> = BTreeMap::new();
        // Text of the current heading or cell, and of the last heading.
        let (mut current, mut heading) = (String::new(), String::new());
        let mut row = Vec::new();
        let mut is_shell = false;
        for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Heading { level, .. }) => {
                    current.clear();
                    debug_assert!(level >= HeadingLevel::H1);
                }
                Event::End(TagEnd::Heading(_)) => {
                    heading = std::mem::take(&mut current);
                    let base = anchor_of(&heading);
                    let count = taken.entry(base.clone()).or_default();
                    page.anchors.insert(if *count == 0 { base } else { format!("{base}-{count}") });
                    *count += 1;
                }
                Event::Start(Tag::Table(_)) => {
                    page.tables.push(Table { heading: heading.clone(), header: Vec::new(), rows: Vec::new() });
                }
                Event::Start(Tag::TableCell) => current.clear(),
                Event::End(TagEnd::TableCell) => row.push(std::mem::take(&mut current)),
                Event::End(TagEnd::TableHead) => {
                    if let Some(table) = page.tables.last_mut() {
                        table.header = std::mem::take(&mut row);
                    }
                }
                Event::End(TagEnd::TableRow) => {
                    if let Some(table) = page.tables.last_mut() {
                        table.rows.push(std::mem::take(&mut row));
                    }
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.to_string());
                }
                Event::Start(Tag::CodeBlock(kind)) => {
                    is_shell = match kind {
                        CodeBlockKind::Fenced(info) => {
                            // Words behind the language say how the block is used.
                            let language = info.split_whitespace().next().unwrap_or_default();
                            matches!(language, "" | "sh" | "console" | "shell" | "bash")
                        }
                        CodeBlockKind::Indented => true,
                    };
                }
                Event::End(TagEnd::CodeBlock) => is_shell = false,
                Event::Code(code) => {
                    current += &code;
                    page.codes.push(code.to_string());
                }
                Event::Text(text) => {
                    current += &text;
                    if is_shell {
                        page.commands.extend(text.lines().map(|line| line.trim().to_string()));
                    }
                }
                _ => {}
            }
        }
        page
    }
}

/// The anchor that GitHub gives to a heading: lower case, blanks to hyphens, and no punctuation.
fn anchor_of(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect()
}

/// All pages of the project.
fn pages() -> Vec<(PathBuf, Page)> {
    files_under(&root(), &[".md"]).into_iter().map(|path| (path.clone(), Page::read(&path))).collect()
}

/// The broken links of `page`, which is at `path`.
fn broken_links(path: &Path, page: &Page) -> Vec<String> {
    let mut problems = Vec::new();
    for link in &page.links {
        if link.contains("://") || link.starts_with("mailto:") {
            continue;
        }
        let (file, anchor) = link.split_once('#').map_or((link.as_str(), None), |(file, anchor)| (file, Some(anchor)));
        if file.is_empty() {
            if anchor.is_some_and(|anchor| !page.anchors.contains(anchor)) {
                problems.push(format!("{}: link to {link}: there is no such heading", short(path)));
            }
            continue;
        }
        let target = path.parent().unwrap_or(path).join(file);
        if !target.exists() {
            problems.push(format!("{}: link to {link}: there is no such file", short(path)));
        } else if let Some(anchor) = anchor
            && target.extension().is_some_and(|extension| extension == "md")
            && !Page::read(&target).anchors.contains(anchor)
        {
            problems.push(format!("{}: link to {link}: there is no such heading", short(path)));
        }
    }
    problems
}

/// Aim: every link leads somewhere. Method: every relative link of every page, with its anchor.
#[test]
fn links_lead_somewhere() {
    let problems: Vec<String> = pages().iter().flat_map(|(path, page)| broken_links(path, page)).collect();
    report(&problems, "Correct the link, or the page that it used to lead to.");
}

/// Endings that mark a word as a file name.
const ENDINGS: &[&str] = &[".rs", ".md", ".toml", ".sh", ".csv", ".py", ".lock"];

/// Possible bases of paths in text: the page, the workspace, the sources of the crates, the docs.
fn bases(page: &Path) -> Vec<PathBuf> {
    let root = root();
    let of_crate = |name: &str| {
        let folder = root.join("crates").join(name);
        [folder.join("src/fs"), folder.join("src"), folder]
    };
    let mut bases = vec![page.parent().unwrap_or(page).to_path_buf(), root.clone()];
    bases.extend(ENGINE.iter().chain(&["seekless-lab", "seekless-host"]).flat_map(|name| of_crate(name)));
    bases
}

/// The files of the project that a piece of code names, if it names any.
fn file_in(code: &str) -> Option<&str> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    if code.is_empty() || !code.chars().all(is_path) || code.starts_with(['/', '-', '.']) && !code.starts_with(".ci/") {
        return None;
    }
    let first = code.split('/').next().unwrap_or_default();
    // Build output is missing in a fresh checkout.
    if first == "target" {
        return None;
    }
    let in_project = code.contains('/') && root().join(first).is_dir();
    (in_project || ENDINGS.iter().any(|ending| code.ends_with(ending))).then_some(code)
}

/// True when `name`, in `page`, names an existing file of the project.
fn is_file(page: &Path, name: &str, all: &BTreeSet<String>) -> bool {
    bases(page).iter().any(|base| base.join(name).exists()) || (!name.contains('/') && all.contains(name))
}

/// Names of files that a page may use although they do not exist: the reader's own, and those that running makes.
const NOT_OURS: &[&str] = &["stack.toml", "rc.local", "resolved.toml", "rows.csv"];

/// Aim: pages name existing files. Method: every piece of code that looks like a path of the project.
#[test]
fn named_files_exist() {
    let names = files_under(&root(), &[""]);
    let names = names.iter().filter_map(|path| path.file_name()).map(|name| name.to_string_lossy().into_owned());
    let all: BTreeSet<String> = names.collect();
    let (mut checked, mut problems) = (0, Vec::new());
    for (path, page) in pages() {
        for name in page.codes.iter().filter_map(|code| file_in(code)) {
            checked += 1;
            if !NOT_OURS.contains(&name) && !is_file(&path, name, &all) {
                problems.push(format!("{}: `{name}` is not there", short(&path)));
            }
        }
    }
    assert!(checked > 0, "no page names a file: the search is broken");
    report(&problems, "Name the file as it is now, from the workspace, from a crate or from its `src`.");
}

/// Prefixes of paths in text, and their sources. Those of the engine are known by the name of the crate that shows them
/// all.
fn crates() -> Vec<(&'static str, Vec<Source>)> {
    let of = |name: &str| sources(&root().join("crates").join(name).join("src"));
    vec![("seekless", engine()), ("seekless_lab", of("seekless-lab")), ("seekless_host", of("seekless-host"))]
}

/// The parts of a Rust path such as `fs::lfs::mount`, if `code` is one.
fn rust_path_in(code: &str) -> Option<Vec<&str>> {
    let code = code.trim_end_matches("()").trim_end_matches('!');
    let parts: Vec<&str> = code.split("::").collect();
    let is_word = |part: &str| {
        part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !part.is_empty()
            && !part.as_bytes()[0].is_ascii_digit()
    };
    (parts.len() > 1 && parts.iter().all(|part| is_word(part))).then_some(parts)
}

/// True when `parts` name something in `sources`: the longest existing module, and in it every further part. `None`
/// when the first part is not a module of that crate.
fn is_known(parts: &[&str], sources: &[Source]) -> Option<bool> {
    let starts = |source: &Source, length: usize| {
        source.module.len() >= length && source.module.iter().zip(&parts[..length]).all(|(one, two)| one == two)
    };
    let length = (1..=parts.len()).rev().find(|&length| sources.iter().any(|source| starts(source, length)))?;
    let inside: Vec<&Source> = sources.iter().filter(|source| starts(source, length)).collect();
    let has = |part: &str| inside.iter().any(|source| source.words.iter().any(|(word, _)| word == part));
    Some(parts[length..].iter().all(|part| has(part)))
}

/// Aim: pages name existing code and tests. Method: pieces of code that are Rust paths into one of our crates; the
/// longest module that they name must contain the rest as words.
#[test]
fn named_code_exists() {
    let crates = crates();
    let mut problems = Vec::new();
    for (path, page) in pages() {
        for code in &page.codes {
            let Some(parts) = rust_path_in(code) else { continue };
            let parts = if parts[0] == "crate" { &parts[1..] } else { &parts[..] };
            let known: Vec<bool> = match crates.iter().find(|(name, _)| *name == parts[0]) {
                Some((_, sources)) => vec![is_known(&parts[1..], sources).unwrap_or(false)],
                None => crates.iter().filter_map(|(_, sources)| is_known(parts, sources)).collect(),
            };
            if !known.is_empty() && !known.contains(&true) {
                problems.push(format!("{}: `{code}` is not there", short(&path)));
            }
        }
    }
    report(&problems, "Name the item or the test as it is called now.");
}

/// Aim: the commands on pages work. Method: every `make` target, and every package of `cargo -p`.
#[test]
fn shown_commands_exist() {
    let makefile = read(&root().join("Makefile"));
    let targets: BTreeSet<&str> = makefile
        .lines()
        .filter(|line| !line.starts_with(['\t', '#', ' ']))
        .filter_map(|line| line.split_once(':').filter(|(_, rest)| !rest.starts_with('=')))
        .flat_map(|(names, _)| names.split_whitespace())
        .collect();
    assert!(targets.contains("test"), "the Makefile has targets: {targets:?}");
    let mut problems = Vec::new();
    for (path, page) in pages() {
        for command in page.codes.iter().chain(&page.commands) {
            let words: Vec<&str> = command.trim_start_matches("$ ").split_whitespace().collect();
            let words = &words[words.iter().take_while(|word| word.contains('=')).count()..];
            let wrong = match words {
                ["make", target, ..] if !target.contains('=') => !targets.contains(target),
                ["cargo", _, "-p", package, ..] => !root().join("crates").join(package).is_dir(),
                _ => false,
            };
            if wrong {
                problems.push(format!("{}: `{command}`", short(&path)));
            }
        }
    }
    report(&problems, "There is no such target or package.");
}

/// Aim: errors are found. Method: a page full of errors.
#[test]
fn wrong_pages_are_noticed() {
    let page = Page::parse(
        "# One: Two, `three`\n\n# One\n\n# One\n\n[a](#one-two-three) [b](#one-1) [c](#four) [d](nowhere.md) [e](https://x/#y)",
    );
    let broken = broken_links(&root().join("page.md"), &page);
    assert_eq!(
        broken,
        ["page.md: link to #four: there is no such heading", "page.md: link to nowhere.md: there is no such file"]
    );
    assert!(page.anchors.contains("one-two-three") && page.anchors.contains("one-1"), "{:?}", page.anchors);
    assert_eq!(file_in("crates/nowhere/x"), Some("crates/nowhere/x"));
    assert_eq!(file_in("format.rs"), Some("format.rs"));
    for other in ["/dev/fuse", "a/b", "O(1)", "lfs", "..", "crate::x"] {
        assert_eq!(file_in(other), None, "{other}");
    }
    let engine = engine();
    assert_eq!(is_known(&["fs", "lfs", "mount"], &engine), Some(true));
    assert_eq!(is_known(&["fs", "lfs", "no_such_thing"], &engine), Some(false));
    assert_eq!(is_known(&["std", "rc"], &engine), None);
}
