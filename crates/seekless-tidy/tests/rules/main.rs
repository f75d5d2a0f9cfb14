//! Rules of the house that a compiler cannot check.
//!
//! A failure says what to do. A rule that gets in the way can be changed here, with its reason.

mod asserts;
mod circles;
mod features;
mod files;
mod lists;
mod pages;
mod points;
mod rooms;
mod unsafe_blocks;
mod words;

use seekless_tidy::project::root;
use seekless_tidy::{ENGINE, OTHERS};

/// Aim: the rules see every crate. Method: the folder of the crates.
#[test]
fn every_crate_is_of_the_engine_or_beside_it() {
    let entries = std::fs::read_dir(root().join("crates")).expect("there are crates");
    let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    let mut found: Vec<String> = names.collect();
    found.sort();
    let mut known = [ENGINE, OTHERS].concat();
    known.sort_unstable();
    assert_eq!(found, known, "a crate of the engine belongs into ENGINE of seekless-tidy");
}
