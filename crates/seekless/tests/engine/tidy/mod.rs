//! Rules of the house that a compiler cannot check: who may import whom, the files of every file system's folder, and
//! that the documentation is true.
//!
//! A failure says what to do. A rule that gets in the way can be changed here, with its reason.

mod circles;
mod files;
mod formats;
mod lists;
mod markdown;
mod points;
mod project;
mod rooms;
mod rust;
mod unsafe_blocks;
mod words;

use std::path::PathBuf;

use project::{files_under, read, root, short};

/// The crates of the engine. `seekless` shows the rooms of all of them under one name.
const ENGINE: &[&str] = &[
    "seekless-core",
    "seekless-disk",
    "seekless-volume",
    "seekless-vlog",
    "seekless-cleaning",
    "seekless-logfs",
    "seekless-ffs",
    "seekless-layer",
    "seekless-testing",
    "seekless",
];

/// The sources of each crate of the engine, as folders.
fn engine_folders() -> impl Iterator<Item = PathBuf> {
    ENGINE.iter().map(|name| root().join("crates").join(name).join("src"))
}

/// All sources of the engine.
fn engine() -> Vec<rust::Source> {
    engine_folders().flat_map(|folder| rust::sources(&folder)).collect()
}

/// Aim: the rules see every crate. Method: the folder of the crates.
#[test]
fn every_crate_is_of_the_engine_or_above_it() {
    let entries = std::fs::read_dir(root().join("crates")).expect("there are crates");
    let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    let mut found: Vec<String> = names.filter(|name| !["seekless-lab", "seekless-host"].contains(&&**name)).collect();
    found.sort();
    let mut known = ENGINE.to_vec();
    known.sort_unstable();
    assert_eq!(found, known, "a crate of the engine belongs into ENGINE of this test");
}

/// Fails with all of `problems` and what to do about them.
fn report(problems: &[String], advice: &str) {
    assert!(problems.is_empty(), "\n{}\n\n{advice}\n", problems.join("\n"));
}
