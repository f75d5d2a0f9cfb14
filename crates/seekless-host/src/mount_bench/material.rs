//! What programs of phases work on: an archive, a repository, sources. Made once for each run of the bench, in its scratch
//! directory.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use seekless::rng::Rng;
use sha2::{Digest, Sha256};

use super::process::{is_installed, run};

/// The archive, and the tree in it.
pub(super) const ARCHIVE: &str = "tree.tar";
pub(super) const TREE: &str = "tree";
pub(super) const REPOSITORY: &str = "repository";
pub(super) const SOURCES: &str = "sources";
/// The branch of the repository that is checked out; of the files of the tree it has changed some.
pub(super) const OTHER_BRANCH: &str = "other";

/// How many regular files the tree has, as a number.
const COUNT: &str = "tree.files";

/// Files in the tree that the bench makes.
const FILES: u64 = 600;
pub(super) const FILES_CHANGED: u64 = 300;
pub(super) const SOURCE_FILES: u64 = 8;

/// Makes all of it below `folder`, which it creates. The archive is of the directory `own`, if there is one.
///
/// # Errors
/// What could not be made, in words.
pub(super) fn make(folder: &Path, own: Option<&Path>) -> Result<(), String> {
    let made = folder.join(TREE);
    write_tree(&made, FILES, 0)?;
    sources(&folder.join(SOURCES))?;
    let tree = own.unwrap_or(&made);
    let mut files: u64 = 0;
    each_file(tree, &mut |_| {
        files += 1;
        Ok(())
    })?;
    if files == 0 {
        return Err(format!("{} has no files; --tree names a directory with some", tree.display()));
    }
    let count = folder.join(COUNT);
    fs::write(&count, files.to_string()).map_err(|error| super::cannot("write", &count, error))?;
    if is_installed("tar") {
        let name = format!("--transform=s,^\\.,{TREE},");
        run(Command::new("tar").arg("-cf").arg(folder.join(ARCHIVE)).arg("-C").arg(tree).args([&name, "."]))?;
    }
    if is_installed("git") {
        repository(folder)?;
    }
    Ok(())
}

/// Regular files in the archive.
///
/// # Errors
/// When their number is not in the folder.
pub(super) fn files(folder: &Path) -> Result<u64, String> {
    let path = folder.join(COUNT);
    let text = fs::read_to_string(&path).map_err(|error| super::cannot("read", &path, error))?;
    text.parse().map_err(|_| format!("{} has no number", path.display()))
}

/// Calls `visit` for each regular file below `directory`; links are not followed.
///
/// # Errors
/// Those of the directories and of `visit`, with the path.
pub(super) fn each_file(directory: &Path, visit: &mut dyn FnMut(&Path) -> io::Result<()>) -> Result<(), String> {
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        let entries = fs::read_dir(&directory).map_err(|error| super::cannot("list", &directory, error))?;
        for entry in entries {
            let entry = entry.map_err(|error| super::cannot("list", &directory, error))?;
            let path = entry.path();
            let kind = entry.file_type().map_err(|error| super::cannot("look at", &path, error))?;
            if kind.is_dir() {
                directories.push(path);
            } else if kind.is_file() {
                visit(&path).map_err(|error| super::cannot("read", &path, error))?;
            }
        }
    }
    Ok(())
}

/// A checksum of the names, sizes and times of the regular files in a tree: another one after a change of any of them.
///
/// # Errors
/// What could not be read, in words.
pub fn state_of(tree: &Path) -> Result<String, String> {
    let mut files = Vec::new();
    each_file(tree, &mut |path| {
        let metadata = fs::symlink_metadata(path)?;
        files.push((path.to_owned(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()));
        Ok(())
    })?;
    // The order of a directory's names may differ from one look to the next.
    files.sort();
    let mut hash = Sha256::new();
    for (path, len, seconds, nanoseconds) in &files {
        let name = path.strip_prefix(tree).unwrap_or(path).as_os_str().as_bytes();
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name);
        hash.update(len.to_le_bytes());
        hash.update(seconds.to_le_bytes());
        hash.update(nanoseconds.to_le_bytes());
    }
    Ok(hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

/// Files of a few hundred bytes to some 16 KiB, most of them small, as in a tree of sources. `version` changes all of them.
fn write_tree(tree: &Path, files: u64, version: u64) -> Result<(), String> {
    for number in 0..files {
        let directory = tree.join(format!("part{:02}", number % 30));
        fs::create_dir_all(&directory).map_err(|error| super::cannot("make", &directory, error))?;
        let mut rng = Rng::new(number << 1 | version);
        let bytes = 300 << rng.below(6);
        let words = ["read", "write", "segment", "inode", "block", "return", "if", "while", "(a", "b)", "{", "}"];
        let mut text = format!("/* file {number}, version {version} */\n");
        while text.len() < bytes {
            text += words[rng.below(words.len() as u64) as usize];
            text.push(if rng.below(8) == 0 { '\n' } else { ' ' });
        }
        let path = directory.join(format!("file{number:04}.txt"));
        fs::write(&path, text).map_err(|error| super::cannot("write", &path, error))?;
    }
    Ok(())
}

/// `git` that looks at no configuration of this machine or its user.
pub(super) fn git(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", folder).env("GIT_TERMINAL_PROMPT", "0");
    for who in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{who}_NAME"), "bench").env(format!("GIT_{who}_EMAIL"), "bench@localhost");
        command.env(format!("GIT_{who}_DATE"), "2000-01-01T00:00:00Z");
    }
    command
}

fn repository(folder: &Path) -> Result<(), String> {
    let repository = folder.join(REPOSITORY);
    run(git(folder).args(["init", "-q", "-b", "main"]).arg(&repository))?;
    let ask = |arguments: &[&str]| run(git(folder).arg("-C").arg(&repository).args(arguments));
    for (version, branch, files) in [(0, "main", FILES), (1, OTHER_BRANCH, FILES_CHANGED)] {
        if branch != "main" {
            ask(&["checkout", "-q", "-b", branch])?;
        }
        write_tree(&repository.join(TREE), files, version)?;
        ask(&["add", "."])?;
        ask(&["commit", "-q", "-m", branch])?;
    }
    ask(&["checkout", "-q", "main"])?;
    ask(&["gc", "-q"]).map(drop)
}

pub(super) fn source_name(number: u64) -> String {
    format!("part{number}.c")
}

/// A program of several files, each of which takes a compiler a moment.
fn sources(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| super::cannot("make", folder, error))?;
    for number in 0..SOURCE_FILES {
        let mut text = String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
        for function in 0..40 {
            text += &format!(
                "int part{number}_{function}(int a) {{ int s = 0; for (int i = 0; i < a; i++) s += i * {function} ^ a; \
                 return s; }}\n"
            );
        }
        if number == 0 {
            text += "int main(void) { return part0_1(0); }\n";
        }
        let path = folder.join(source_name(number));
        fs::write(&path, text).map_err(|error| super::cannot("write", &path, error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree has another state when a file is added, changed or renamed, and the same one again otherwise.
    #[test]
    fn changed_trees_are_other_trees() {
        let folder = tempfile::tempdir().unwrap();
        let state = || state_of(folder.path()).unwrap();
        let mut states = vec![state()];
        fs::create_dir(folder.path().join("d")).unwrap();
        fs::write(folder.path().join("d/a"), "1").unwrap();
        states.push(state());
        fs::write(folder.path().join("b"), "1").unwrap();
        states.push(state());
        fs::write(folder.path().join("b"), "22").unwrap();
        states.push(state());
        fs::rename(folder.path().join("b"), folder.path().join("c")).unwrap();
        states.push(state());
        assert_eq!(states.last(), Some(&state()));
        states.sort();
        states.dedup();
        assert_eq!(states.len(), 5);
    }
}
