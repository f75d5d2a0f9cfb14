//! Points that tests must pass: `cover("...")` in the code, and lists of them in tests.

use std::collections::BTreeMap;
use std::path::PathBuf;

use seekless_tidy::project::{files_under, read, short};
use seekless_tidy::{engine_folders, report};

/// The files of the engine that hold code, or those that hold tests.
fn files(of_tests: bool) -> Vec<PathBuf> {
    let all = engine_folders().flat_map(|folder| files_under(&folder, &[".rs"]));
    all.filter(|path| path.components().any(|part| part.as_os_str() == "tests") == of_tests).collect()
}

/// The quoted parts of `text`; none of them contains a quote.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2)
}

/// Aim: each point that the code names is one that some test must pass, and no test waits for one that is gone. Method: the
/// names in calls of `cover`, against those in the constants `POINTS` of tests.
#[test]
fn every_point_is_on_a_list() {
    let (mut named, mut listed) = (BTreeMap::new(), BTreeMap::new());
    for path in files(false) {
        let text = read(&path);
        // A comment may speak of it.
        let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let code = code.join("\n");
        for call in code.split("cover(").skip(1).filter(|call| call.trim_start().starts_with('"')) {
            named.extend(quoted(call).next().map(|point| (point.to_owned(), short(&path))));
        }
    }
    for path in files(true) {
        let text = read(&path);
        for list in text.split("const POINTS: &[&str] =").skip(1) {
            let list = list.split("];").next().unwrap_or_default();
            listed.extend(quoted(list).map(|point| (point.to_owned(), short(&path))));
        }
    }
    assert!(named.len() > 40, "only {named:?} were found: the search is broken");
    let unlisted = named.iter().filter(|(point, _)| !listed.contains_key(*point));
    let gone = listed.iter().filter(|(point, _)| !named.contains_key(*point));
    let unlisted = unlisted.map(|(point, path)| format!("{path}: no test must come to `{point}`"));
    let gone = gone.map(|(point, path)| format!("{path}: nothing is called `{point}`"));
    let problems: Vec<String> = unlisted.chain(gone).collect();
    report(&problems, "A test of the room demands each point with a constant POINTS; see `testing/volumes/life.rs`.");
}
