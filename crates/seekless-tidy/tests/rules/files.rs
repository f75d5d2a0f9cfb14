//! The content of folders, and forbidden text in files.

use seekless_tidy::project::{files_under, read, root, short};
use seekless_tidy::{file_systems, report};

/// The files in every file system's folder, so that a reader who knows one house knows the street.
const STREET: &[&str] = &["mod.rs", "format.rs", "ops.rs", "mkfs.rs", "fsck.rs", "dump.rs", "FORMAT.md", "tests"];

/// Aim: every file system has the same file names. Method: look.
#[test]
fn file_systems_have_the_same_files() {
    let folders = file_systems();
    assert!(folders.len() >= 3, "{folders:?}");
    let mut problems = Vec::new();
    for folder in folders {
        let missing = STREET.iter().filter(|name| !folder.join(name).exists());
        problems.extend(missing.map(|name| format!("{} has no {name}", short(&folder))));
    }
    report(&problems, "Every folder under fs/ has these files, also when one of them is short.");
}

/// Longest source that passes. A file of one idea has a few hundred lines; twice and thrice that is a file of several.
const LINES_MAX: usize = 900;

/// Aim: no file grows past reading. Method: count lines.
#[test]
fn files_are_not_too_long() {
    let mut problems = Vec::new();
    for path in files_under(&root(), &[".rs", ".md", ".sh", ".py"]) {
        let lines = read(&path).lines().count();
        if lines > LINES_MAX {
            problems.push(format!("{}: {lines} lines", short(&path)));
        }
    }
    report(&problems, "More than 900 lines: split the file where its ideas part, each with a top of its own.");
}

/// Endings of the files for readers.
const TEXTS: &[&str] = &[".rs", ".md", ".toml", ".sh", ".py", ".csv", "Makefile", "run", ".yml", ".txt"];

/// Aim: the project speaks of the project, not of the machine of one of its authors. Method: search every text for
/// absolute paths that exist only there. They are assembled here so that this file does not find itself.
#[test]
fn no_text_names_a_workplace() {
    let words =
        ["/wo rk/", "/tmp/br ief", "/tmp/ba sh_jobs", "/ro ot/", "/home/us er/"].map(|word| word.replace(' ', ""));
    let (mut searched, mut problems) = (0, Vec::new());
    for path in files_under(&root(), TEXTS) {
        searched += 1;
        for (number, line) in read(&path).lines().enumerate() {
            let found = words.iter().filter(|word| is_path_in(line, word));
            problems.extend(found.map(|word| format!("{}:{}: {word}", short(&path), number + 1)));
        }
    }
    assert!(searched > 100, "only {searched} texts were found: the search is broken");
    report(&problems, "Name a path that every reader has, or none.");
}

/// True when `line` has the absolute path `word`: not as the middle of a longer one, such as `a/b/work/`.
fn is_path_in(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|before| before.is_alphanumeric() || matches!(before, '.' | '_' | '-' | '}' | ')'))
    })
}

#[test]
fn absolute_paths_are_distinguished_from_relative_ones() {
    for (line, expected) in [("see /a/b", true), ("`/a/`", true), ("x/a/b", false), ("../a/", false), ("b/a", false)] {
        assert_eq!(is_path_in(line, "/a/"), expected, "{line}");
    }
}
