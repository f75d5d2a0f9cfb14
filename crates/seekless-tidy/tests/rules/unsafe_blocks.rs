//! The page on `unsafe` is complete.

use std::collections::BTreeMap;

use seekless_tidy::project::{files_under, read, root};
use seekless_tidy::report;

/// The blocks of each file, as the page counts them.
fn counted(page: &str) -> BTreeMap<String, usize> {
    let rows = page.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        Some((cells.next()?.strip_suffix('`')?.to_owned(), cells.next()?.parse().ok()?))
    });
    rows.collect()
}

/// Aim: each `unsafe` block of the host is on the page that says what it relies on. Method: the number of blocks in each file, against
/// that on the page.
#[test]
fn every_unsafe_block_is_on_the_page() {
    let host = root().join("crates/seekless-host");
    let mut found = BTreeMap::new();
    for path in files_under(&host.join("src"), &[".rs"]) {
        let name = path.strip_prefix(host.join("src")).expect("a path below the folder").display().to_string();
        let text = read(&path);
        // Tests come last in a file, or have files of their own.
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let blocks: usize =
            code.map(|line| line.matches("unsafe {").count() + line.matches("unsafe impl").count()).sum();
        if blocks > 0 && !name.contains("tests") {
            found.insert(name, blocks);
        }
    }
    assert!(found.len() > 5, "only {found:?} were found: the search is broken");
    let page = counted(&read(&host.join("UNSAFE.md")));
    let names: std::collections::BTreeSet<&String> = found.keys().chain(page.keys()).collect();
    let differing = names.into_iter().filter(|name| found.get(*name) != page.get(*name));
    let problems: Vec<String> = differing
        .map(|name| format!("{name}: {:?} blocks in the file, {:?} on the page", found.get(name), page.get(name)))
        .collect();
    report(&problems, "crates/seekless-host/UNSAFE.md says for each block what it relies on.");
}
