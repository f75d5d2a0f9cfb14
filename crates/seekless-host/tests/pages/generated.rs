//! Parts of pages that come from the program or from the experiments: the text between two marks is compared, and
//! rewritten with `SEEKLESS_BLESS=1`.

use std::process::Command;

use seekless::cleaning::{PATTERNS, POLICIES};
use seekless_tidy::markdown::{Page, Table};

use super::{files_under, read, root};

const END: &str = "<!-- end of what is generated -->\n";

/// Compares what `page` has behind `mark` with `right`, or writes it.
pub(super) fn check(page: &str, mark: &str, right: &str) {
    let path = root().join("docs").join(page);
    let text = read(&path);
    let mark = format!("<!-- generated: {mark} -->\n");
    let (before, rest) = text.split_once(&mark).unwrap_or_else(|| panic!("docs/{page} has lost its mark {mark}"));
    let (found, after) = rest.split_once(END).unwrap_or_else(|| panic!("docs/{page}: nothing ends {mark}"));
    let right = format!("\n{}\n\n", right.trim());
    if found == right {
        return;
    }
    if std::env::var("SEEKLESS_BLESS").is_ok_and(|value| value == "1") {
        std::fs::write(&path, format!("{before}{mark}{right}{END}{after}")).unwrap();
        return;
    }
    let differing = found.lines().zip(right.lines()).find(|(found, right)| found != right);
    let (found, right) = differing.unwrap_or(("(an end)", "(more, or less)"));
    panic!(
        "docs/{page} is not what it should be. Its first line that differs:\n{found}\nshould be\n{right}\nRewrite it: \
         SEEKLESS_BLESS=1 cargo test -p seekless-host --test pages"
    );
}

/// What the program prints.
fn printed(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_seekless")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Aim: the reference says what a stack line can say. Method: what the program prints of its own tables.
#[test]
fn the_reference_is_that_of_the_program() {
    for (what, arguments) in [
        ("seekless list words --markdown", &["list", "words", "--markdown"][..]),
        ("seekless list drives", &["list", "drives"]),
        ("seekless list profiles", &["list", "profiles"]),
    ] {
        check("reference/stack-lines.md", what, &printed(arguments));
    }
}

/// Aim: the guide has every workload. Method: as above.
#[test]
fn the_guide_has_every_workload() {
    let arguments = ["list", "workloads", "--markdown"];
    check("guide/experiments.md", "seekless list workloads --markdown", &printed(&arguments));
}

/// Aim: the guide says of every policy which segment it cleans and where the blocks go, by what score, and names every pattern. Method:
/// the names of the tables, against the first columns of the page's tables of policies, and against its text.
#[test]
fn the_guide_has_every_policy() {
    let path = root().join("docs/guide/cleaning.md");
    let page = Page::read(&path);
    let of_all = [["policy", "which segment"], ["policy", "the victim has the highest"]];
    let tables = page
        .tables
        .iter()
        .filter(|table| of_all.iter().any(|columns| table.header.starts_with(&columns.map(str::to_owned))));
    let tables: Vec<_> = tables.collect();
    assert_eq!(tables.len(), of_all.len(), "docs/guide/cleaning.md has lost a table of policies");
    let mut missing = Vec::new();
    for table in tables {
        let found = names(table);
        let absent = POLICIES.iter().filter(|spec| !found.contains(&spec.name));
        missing.extend(absent.map(|spec| format!("{}, in the table under \"{}\"", spec.name, table.heading)));
    }
    let text = read(&path);
    let absent = PATTERNS.iter().filter(|spec| !text.contains(&format!("`{}", spec.name)));
    missing.extend(absent.map(|spec| format!("{}, a pattern", spec.name)));
    assert!(missing.is_empty(), "docs/guide/cleaning.md lacks {missing:#?}");
}

/// The names in the first column of a table.
fn names(table: &Table) -> Vec<&str> {
    let cells = table.rows.iter().filter_map(|row| row.first());
    cells.flat_map(|cell| cell.split(", ")).collect()
}

/// Aim: the index has every experiment. Method: the titles in their folders.
#[test]
fn the_index_has_every_experiment() {
    let mut folders: Vec<_> = std::fs::read_dir(root().join("experiments"))
        .expect("there are experiments")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.join("experiment.toml").exists())
        .collect();
    folders.sort();
    assert!(folders.len() > 20, "only {} experiments were found", folders.len());
    let mut table = String::from("| experiment | repeats | what it shows | kind |\n|---|---|---|---|\n");
    for folder in folders {
        let text: toml::Table = read(&folder.join("experiment.toml")).parse().expect("an experiment is TOML");
        let words =
            |table: &toml::Table, key: &str| table.get(key).and_then(|value| value.as_str()).unwrap_or("").to_owned();
        let kind =
            text.get("workload").and_then(|value| value.as_table()).map_or(String::new(), |table| words(table, "kind"));
        let name = folder.file_name().expect("a name").to_string_lossy();
        let (paper, title) = (words(&text, "paper"), words(&text, "title"));
        let paper = if paper.is_empty() { "nothing".to_owned() } else { paper };
        table += &format!("| [`{name}`](../../experiments/{name}/experiment.toml) | {paper} | {title} | `{kind}` |\n");
    }
    check("reference/experiments.md", "experiments", &table);
}

/// Every source of the project, with strings that go on in the next line put together.
fn sources() -> String {
    let mut all = String::new();
    for path in files_under(&root().join("crates"), &[".rs"]) {
        if path.ends_with("pages/generated.rs") {
            continue;
        }
        let text = read(&path);
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let mut line = line.to_owned();
            while line.ends_with('\\') {
                line.pop();
                line += lines.next().unwrap_or_default().trim_start();
            }
            all += &line;
            all.push('\n');
        }
    }
    all
}

/// Aim: the page of messages has messages of the program. Method: each heading that is a piece of code, against the sources; `…` is
/// in place of a name.
#[test]
fn messages_are_those_of_the_program() {
    let sources = sources();
    let page = read(&root().join("docs/troubleshooting.md"));
    let messages: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`')).collect();
    assert!(messages.len() > 10, "only {} messages were found: the search is broken", messages.len());
    let parts = messages.iter().flat_map(|message| message.split('…')).map(str::trim).filter(|part| part.len() > 3);
    let missing: Vec<&str> = parts.filter(|part| !sources.contains(part)).collect();
    assert!(missing.is_empty(), "docs/troubleshooting.md has messages that the program does not print: {missing:#?}");
}
