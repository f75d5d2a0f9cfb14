//! Pages of the project: their commands are run as a reader would run them, and what is generated in them is compared with the
//! program.
//!
//! The command blocks of a page are those that begin with ```` ```sh ````. All of them are run, in their order, by one shell, in an
//! empty directory in which `docs` and `experiments` are those of the project, and `seekless` is the program. Words behind `sh`:
//!
//!   fuse            the block mounts: where that is impossible, it is left out
//!   no-run=REASON   the block is not run; `REASONS` says what each reason means. Its calls of the program are parsed by the
//!                   program, and those of `long` are run by `make release-check`
//!
//! A block ```` ```text output ```` right behind a command block is what that block prints. A line `…` in it matches any
//! lines, and a line that ends in `…` matches every line that begins like it.
//!
//! `SEEKLESS_BLESS=1 cargo test -p seekless-host --test pages` rewrites the generated parts. With `SEEKLESS_RESULTS=DIR` beside it the lists
//! of the papers' statements take what the experiments of that folder of results measured.

mod accepted;
mod commands;
mod generated;
mod long;
mod renewal;
mod shell;
mod statements;

use std::path::PathBuf;

use seekless_tidy::project::{files_under, read, root, short};

/// README.md, and every page of the book.
fn pages() -> Vec<PathBuf> {
    let mut found = vec![root().join("README.md")];
    found.extend(files_under(&root().join("docs"), &[".md"]));
    found
}
