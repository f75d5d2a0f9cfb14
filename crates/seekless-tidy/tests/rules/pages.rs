//! Statements of pages about files, headings, code and commands must be true.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use seekless_tidy::markdown::Page;
use seekless_tidy::project::{files_under, read, root, short};
use seekless_tidy::rust::{Source, sources};
use seekless_tidy::{ENGINE, OTHERS, engine, report};

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
    bases.extend(ENGINE.iter().chain(OTHERS).flat_map(|name| of_crate(name)));
    bases
}

/// The files of the project that a piece of code names, if it names any.
fn file_in(code: &str) -> Option<&str> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    if code.is_empty() || !code.chars().all(is_path) || code.starts_with(['/', '-', '.']) && !code.starts_with(".ci/") {
        return None;
    }
    let first = code.split('/').next().unwrap_or_default();
    // What builds and runs leave behind is missing in a fresh checkout.
    if matches!(first, "target" | "results") {
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

/// The keys of papers in `text`, such as `[ro92]` and `[ro92 §3.4]`, in their order, with their places.
fn keys(text: &str) -> Vec<(usize, &str)> {
    let is_key = |key: &str| {
        key.len() == 4
            && key[..2].bytes().all(|c| c.is_ascii_lowercase())
            && key[2..].bytes().all(|c| c.is_ascii_digit())
    };
    let brackets = text.match_indices('[').filter_map(|(at, _)| Some((at, text.get(at + 1..at + 5)?)));
    brackets.filter(|&(at, key)| is_key(key) && text[at + 5..].starts_with([']', ' '])).collect()
}

/// True when the end of `text` names a year, as in "Stein 2005, ".
fn ends_with_year(text: &str) -> bool {
    let from = (text.len().saturating_sub(60)..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or_default();
    let words = text[from..].split(|c: char| !c.is_ascii_alphanumeric());
    words.into_iter().any(|word| word.len() == 4 && (word.starts_with("19") || word.starts_with("20")))
}

/// Aim: a reader who does not know the papers can follow. Method: before a page uses a key for the first time, it names the paper
/// with its year, or links to the list of papers; or the key is itself a link to the paper's page. Pages about papers are the list.
#[test]
fn keys_of_papers_are_explained() {
    let is_about_papers = |name: &str| name.starts_with("docs/papers") || name == "docs/SUMMARY.md";
    let is_ours = |name: &str| name.starts_with("docs/") || matches!(name, "README.md" | "ARCHITECTURE.md");
    let (mut checked, mut problems) = (0, Vec::new());
    for path in files_under(&root(), &[".md"]) {
        let name = short(&path);
        if is_about_papers(&name) || !is_ours(&name) {
            continue;
        }
        let text = read(&path);
        let mut explained = BTreeSet::new();
        for (at, key) in keys(&text) {
            checked += 1;
            // The end of the paragraph explains it as well.
            let paragraph = text[at..].split("\n\n").next().unwrap_or_default();
            let links = [&text[..at], paragraph].into_iter().any(|text| text.contains("papers.md)"));
            let is_link = paragraph.split_once(']').is_some_and(|(_, rest)| rest.starts_with('('));
            if explained.insert(key) && !(is_link || links || ends_with_year(&text[..at])) {
                let line = text[..at].lines().count();
                problems.push(format!("{name}:{line}: [{key}] is used before the page says which paper that is"));
            }
        }
    }
    assert!(checked > 0, "no page cites a paper: the search is broken");
    report(&problems, "Name the paper and its year, as in `Stein 2005, [st05]`, or link to docs/papers.md before.");
}
