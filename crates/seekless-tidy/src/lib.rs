//! The project's sources and pages, as tests read them. What the compiler cannot check about them is tested in `tests/rules`:
//! who may import whom, the files of every file system's folder, and that the pages are true.
//!
//! Nothing here depends on the engine, so that `cargo test -p seekless-tidy` takes seconds. Rules that compare a page with the
//! running code are in `tests/engine` of `seekless` and in `tests/pages` of `seekless-host`.

pub mod markdown;
pub mod project;
pub mod rust;

use std::path::PathBuf;

use project::root;

/// The crates of the engine. `seekless` shows the rooms of all of them under one name.
pub const ENGINE: &[&str] = &[
    "seekless-core",
    "seekless-disk",
    "seekless-volume",
    "seekless-vlog",
    "seekless-cleaning",
    "seekless-flash",
    "seekless-logfs",
    "seekless-ffs",
    "seekless-layer",
    "seekless-testing",
    "seekless",
];

/// The crates above the engine, and this one.
pub const OTHERS: &[&str] = &["seekless-lab", "seekless-host", "seekless-tidy"];

/// The sources of each crate of the engine, as folders.
pub fn engine_folders() -> impl Iterator<Item = PathBuf> {
    ENGINE.iter().map(|name| root().join("crates").join(name).join("src"))
}

/// All sources of the engine.
pub fn engine() -> Vec<rust::Source> {
    engine_folders().flat_map(|folder| rust::sources(&folder)).collect()
}

/// Folders under `fs/` of every crate, which are the file systems.
pub fn file_systems() -> Vec<PathBuf> {
    /// Shared by file systems; not one itself.
    const SHARED: &str = "logfs";
    let entries = engine_folders().filter_map(|folder| std::fs::read_dir(folder.join("fs")).ok()).flatten();
    let mut folders: Vec<_> = entries.map(|entry| entry.expect("a directory can be listed").path()).collect();
    folders.retain(|path| path.is_dir() && !path.ends_with(SHARED));
    folders.sort();
    folders
}

/// Fails with all of `problems` and what to do about them.
///
/// # Panics
/// When there are any.
pub fn report(problems: &[String], advice: &str) {
    assert!(problems.is_empty(), "\n{}\n\n{advice}\n", problems.join("\n"));
}
