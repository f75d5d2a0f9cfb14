//! The project's own files, for tests that read them.

use std::path::{Path, PathBuf};

/// The folder of the workspace.
///
/// # Panics
/// When this crate is not in `crates/` of it.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).expect("the crate is in crates/ of the workspace").to_path_buf()
}

/// Every file of the project under `folder` whose name ends with one of `endings`, in order; except build output,
/// hidden files, and inputs of the fuzzer.
///
/// # Panics
/// When a folder cannot be listed.
pub fn files_under(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    const SKIPPED: &[&str] = &["target", "results", "corpus", "artifacts", "node_modules"];
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            for entry in entries {
                let entry = entry.expect("a directory can be listed");
                let name = entry.file_name().to_string_lossy().into_owned();
                let hidden = name.starts_with('.') && name != ".ci";
                if !hidden && !SKIPPED.contains(&name.as_str()) {
                    open.push(entry.path());
                }
            }
        } else if endings.iter().any(|ending| path.to_string_lossy().ends_with(ending)) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The text of a file.
///
/// # Panics
/// When it cannot be read.
pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// `path` relative to the project.
pub fn short(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}
