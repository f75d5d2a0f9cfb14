//! Lists maintained by hand: dependencies with their reasons, words of the stack line, experiments, variables that
//! tests read, fuzz targets.

use std::collections::{BTreeMap, BTreeSet};

use seekless_tidy::markdown::{Page, Table};
use seekless_tidy::project::{files_under, read, root, short};
use seekless_tidy::{engine_folders, report};

/// The words of the first column: names with commas between them, without remarks in brackets.
fn names_in_first_column(table: &Table) -> BTreeSet<String> {
    let cells = table.rows.iter().filter_map(|row| row.first());
    cells.flat_map(|cell| cell.split([',', ' ', '(', ')']).map(str::to_owned)).filter(|name| !name.is_empty()).collect()
}

/// The table of `page` whose header begins with `column`.
fn table_of<'a>(page: &'a Page, column: &str) -> &'a Table {
    let mut tables = page.tables.iter().filter(|table| table.header.first().is_some_and(|first| first == column));
    tables.next_back().unwrap_or_else(|| panic!("a page has lost its table of {column}"))
}

/// Names of the dependencies in a Cargo.toml, except our own packages.
fn dependencies(manifest: &toml::Table) -> BTreeSet<String> {
    let tables = ["dependencies", "dev-dependencies", "build-dependencies"].map(|key| manifest.get(key));
    let workspace = manifest.get("workspace").and_then(|workspace| workspace.get("dependencies"));
    let tables = tables.into_iter().chain([workspace]).flatten().filter_map(toml::Value::as_table);
    tables.flat_map(|table| table.keys()).filter(|name| !name.starts_with("seekless")).cloned().collect()
}

/// Aim: every dependency has a reason, and no reason outlives its dependency. Method: compare every Cargo.toml with the
/// table.
#[test]
fn every_dependency_has_its_reason() {
    let page = Page::read(&root().join("ARCHITECTURE.md"));
    let said = names_in_first_column(table_of(&page, "crate"));
    let mut used = BTreeSet::new();
    let mut problems = Vec::new();
    for path in files_under(&root(), &["Cargo.toml"]) {
        let manifest: toml::Table = read(&path).parse().unwrap_or_else(|error| panic!("{}: {error}", short(&path)));
        for name in dependencies(&manifest) {
            if !said.contains(&name) {
                problems.push(format!("{}: `{name}` is not in the table of ARCHITECTURE.md", short(&path)));
            }
            used.insert(name);
        }
    }
    assert!(used.len() > 20, "only {used:?} were found: the search is broken");
    // Other tables of the page name our own crates, and remarks such as `(tests)` are beside the names.
    let is_remark = |name: &str| {
        ["tests", "benchmarks", "fuzz/", "mutants/", "python/", "outside", "the", "workspace"].contains(&name)
    };
    let gone = said.iter().filter(|name| !used.contains(*name) && !is_remark(name));
    problems.extend(gone.map(|name| format!("ARCHITECTURE.md: nothing depends on `{name}`")));
    report(&problems, "Each dependency has a row with its reason in the table at the end of ARCHITECTURE.md.");
}

/// The packages of a lock file, each with its versions.
fn locked(path: &str) -> BTreeMap<String, BTreeSet<String>> {
    let lock: toml::Table = read(&root().join(path)).parse().unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in lock["package"].as_array().expect("a list of packages") {
        let text = |key: &str| package[key].as_str().expect("a text").to_owned();
        found.entry(text("name")).or_default().insert(text("version"));
    }
    found
}

/// Aim: the module for Python has the engine of the program, with the same dependencies. Method: both lock files; a package that
/// both have is there in the versions of the workspace.
#[test]
fn the_python_module_has_the_same_dependencies() {
    let (ours, python) = (locked("Cargo.lock"), locked("python/Cargo.lock"));
    let shared = ours.iter().filter_map(|(name, versions)| Some((name, versions, python.get(name)?)));
    assert!(shared.clone().count() > 50, "the search is broken");
    let differing = shared.filter(|(_, ours, theirs)| ours.is_disjoint(theirs));
    let problems: Vec<String> = differing
        .map(|(name, ours, theirs)| format!("{name}: {ours:?} here, {theirs:?} in python/Cargo.lock"))
        .collect();
    report(&problems, "cargo update --manifest-path python/Cargo.toml PACKAGE --precise VERSION");
}

/// Aim: README introduces every word of the stack line, and none that is gone. Method: the names of the table of words, as its rows are
/// written, against the tables of README.
#[test]
fn every_word_is_introduced() {
    let mut found = BTreeSet::new();
    for path in files_under(&root().join("crates/seekless/src/stack"), &[".rs"]) {
        for rest in read(&path).split("WordSpec = WordSpec {").skip(1) {
            let name = rest.split('"').nth(1).expect("a word begins with its name");
            found.insert(name.to_owned());
        }
    }
    assert!(found.len() > 25, "only {found:?} were found: the search is broken");
    let page = Page::read(&root().join("README.md"));
    let tables = ["file system", "layer", "device"].map(|column| names_in_first_column(table_of(&page, column)));
    let said: BTreeSet<String> = tables.into_iter().flatten().collect();
    let missing = found.difference(&said).map(|name| format!("README.md: `{name}` is not in its tables"));
    let gone = said.difference(&found).map(|name| format!("README.md: there is no word `{name}`"));
    let problems: Vec<String> = missing.chain(gone).collect();
    report(
        &problems,
        "Each word has a place in the tables of file systems, layers and devices under \"What is included\".",
    );
}

/// Experiments in real time: they say as much about the machine, so they have neither a figure nor a running time.
const IN_REAL_TIME: &[&str] = &["layers-cores"];

/// Aim: each experiment has its figure and its running time on the pages of the reference. Method: the folders, against headings, pictures
/// and the table.
#[test]
fn every_experiment_is_on_its_pages() {
    let files = files_under(&root().join("experiments"), &["/experiment.toml"]);
    let folders = files.iter().filter_map(|file| Some(file.parent()?.file_name()?.to_str()?.to_owned()));
    let experiments: Vec<String> = folders.filter(|name| !IN_REAL_TIME.contains(&name.as_str())).collect();
    assert!(experiments.len() > 20, "only {experiments:?} were found: the search is broken");
    let figures = Page::read(&root().join("docs/reference/figures.md"));
    let timed = names_in_first_column(table_of(&Page::read(&root().join("docs/reference/experiments.md")), ""));
    let mut problems = Vec::new();
    for name in &experiments {
        let picture = format!("../pictures/experiments/{name}.svg");
        if !figures.anchors.contains(name) || !figures.links.contains(&picture) {
            problems.push(format!("docs/reference/figures.md: no heading `## {name}` with the picture {picture}"));
        }
        if !timed.contains(name) {
            problems.push(format!("docs/reference/experiments.md: no row `{name}` under \"Running times\""));
        }
    }
    let gone = timed.iter().filter(|name| !experiments.contains(name));
    problems
        .extend(gone.map(|name| format!("docs/reference/experiments.md: there is no experiment `{name}` to be timed")));
    report(
        &problems,
        "figures.md says how a figure is drawn. A cell of \"Running times\" stays empty as long as it has not been timed.",
    );
}

/// Variables that one of our processes sets for another, never set by hand.
const INTERNAL: &[&str] =
    &["SEEKLESS_TEST_CLIENT", "SEEKLESS_TEST_COMMANDS", "SEEKLESS_TEST_DAEMON", "SEEKLESS_TEST_FEW_FILES"];

/// Aim: the variables of the tests are documented. Method: names in strings that look like our variables, against the
/// table.
#[test]
fn every_variable_is_documented() {
    let said = names_in_first_column(table_of(&Page::read(&root().join("docs/testing.md")), "variable"));
    let mut found = BTreeSet::new();
    for path in files_under(&root().join("crates"), &[".rs"]) {
        let text = read(&path);
        for (at, _) in text.match_indices("\"SEEKLESS_") {
            let name: String = text[at + 1..].chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect();
            // Not the beginning of a longer text.
            if text[at + 1 + name.len()..].starts_with('"') && !name.ends_with('_') {
                found.insert(name);
            }
        }
    }
    found.retain(|name| !INTERNAL.contains(&name.as_str()));
    assert!(found.len() > 5, "only {found:?} were found: the search is broken");
    let problems: Vec<String> = found.symmetric_difference(&said).cloned().collect();
    report(&problems, "These are read and not in the table of docs/testing.md, or there and not read.");
}

/// Aim: every fuzz target is described, and every description is of one. Method: the folder against the table.
#[test]
fn every_fuzz_target_is_documented() {
    let said = names_in_first_column(table_of(&Page::read(&root().join("docs/testing.md")), "target"));
    let targets = files_under(&root().join("fuzz/fuzz_targets"), &[".rs"]);
    let found: BTreeSet<String> =
        targets.iter().filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
    assert!(!found.is_empty());
    let problems: Vec<String> = found.symmetric_difference(&said).cloned().collect();
    report(
        &problems,
        "These are in fuzz/fuzz_targets and not in the table of docs/testing.md, or the other way round.",
    );
}

/// Aim: a hand-chosen mutant is not lost when the code around it changes. Method: each text of `mutants/chosen.toml` is
/// in its file once, and the file is in a room of `mutants/rooms.toml`.
#[test]
fn every_chosen_mutant_has_its_place() {
    let table = |name: &str| -> toml::Table {
        let path = root().join("mutants").join(name);
        read(&path).parse().unwrap_or_else(|error| panic!("{}: {error}", short(&path)))
    };
    let rooms: BTreeSet<String> = table("rooms.toml")
        .values()
        .flat_map(|room| room["files"].as_array().expect("a list of files"))
        .map(|file| file.as_str().expect("a name").to_owned())
        .collect();
    let place = |file: &str| engine_folders().map(|folder| folder.join(file)).find(|path| path.is_file());
    let mut problems: Vec<String> =
        rooms.iter().filter(|file| place(file).is_none()).map(|file| format!("rooms.toml: no {file}")).collect();
    let chosen = table("chosen.toml");
    let mutants = chosen["mutant"].as_array().expect("a list of mutants");
    assert!(mutants.len() > 10, "only {} mutants were found: the search is broken", mutants.len());
    for mutant in mutants {
        let text = |key: &str| mutant[key].as_str().expect("a text");
        let (file, before) = (text("file"), text("before").replace(['«', '»'], ""));
        if !rooms.contains(file) {
            problems.push(format!("chosen.toml: {file} is in no room"));
        } else if place(file).is_none_or(|path| read(&path).matches(&before).count() != 1) {
            problems.push(format!("chosen.toml: {file} does not have `{before}` once"));
        }
    }
    report(
        &problems,
        "Write the new text of the place into mutants/chosen.toml, so that the mutant can still be tried.",
    );
}
