//! The files that a command reads because of a word of its line: none of its outputs replaces one of them.

use std::path::PathBuf;

use seekless::stack::Target;

use super::parse_stack;

/// The files of an argument that is a stack, or a drive: its stack file, and drive files by their names alone or in a stack line.
pub(super) fn files_of(argument: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    match Target::of(argument) {
        Target::StackFile(path) => files.push(path.into()),
        Target::Directory(path) | Target::Line(path) if path.ends_with(".toml") => files.push(path.into()),
        Target::Directory(_) | Target::Line(_) => {}
    }
    // What is no stack is refused where it is opened, or is the name of a drive.
    files.extend(parse_stack(argument).iter().flat_map(|stack| stack.drive_files()).map(PathBuf::from));
    files
}
