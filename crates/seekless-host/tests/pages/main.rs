//! Pages of the project: their commands are run as a reader would run them, and what is generated in them is compared with the
//! program.
//!
//! The command blocks of a page are those that begin with ```` ```sh ````. All of them are run, in their order, by one shell, in an
//! empty directory in which `docs` and `experiments` are those of the project, and `seekless` is the program. Words behind `sh`:
//!
//!   fuse            the block mounts: where that is impossible, it is left out
//!   no-run=REASON   the block is not run; `REASONS` says what each reason means
//!
//! A block ```` ```text output ```` right behind a command block is what that block prints. A line `…` in it matches any
//! lines, and a line that ends in `…` matches every line that begins like it.
//!
//! `SEEKLESS_BLESS=1 cargo test -p seekless-host --test pages` rewrites the generated parts.

mod commands;
mod generated;

use std::path::{Path, PathBuf};

/// The workspace.
fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).expect("the crate is in crates/ of the workspace").to_path_buf()
}

/// README.md, and every page of the book.
fn pages() -> Vec<PathBuf> {
    let mut found = vec![root().join("README.md")];
    let mut open = vec![root().join("docs")];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(
                std::fs::read_dir(&path)
                    .expect("a directory can be listed")
                    .map(|entry| entry.expect("an entry").path()),
            );
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// `path` as it is named in the project.
fn short(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}
