//! Answers to shells that complete a command line: commands and options, and the words of a stack line.
//!
//! The script that `seekless completions` prints asks the program itself at each press of the key, with [`VARIABLE`] set. So
//! a shell knows every word, option and drive that the program knows.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use clap::Command;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use seekless::stack::{ParamKind, WORDS, complete};

/// The environment variable by which a shell asks; its value is the name of the shell.
const VARIABLE: &str = "SEEKLESS_COMPLETE";

/// Arguments that are stack lines.
const STACK_ARGUMENTS: [&str; 2] = ["stack", "on"];

/// Answers and ends the process, when a shell asks.
pub(super) fn answer(command: fn() -> Command) {
    CompleteEnv::with_factory(move || with_stacks(command())).var(VARIABLE).complete();
}

/// The script that has `shell` ask.
///
/// # Errors
/// When the shell is not one of those that can.
pub(super) fn script(shell: &str) -> io::Result<String> {
    let shells = Shells::builtins();
    let unknown = || io::Error::other(format!("there is no completion script for {shell}"));
    let completer = shells.completer(shell).ok_or_else(unknown)?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, "seekless", "seekless", "seekless", &mut script)?;
    Ok(String::from_utf8_lossy(&script).into_owned())
}

/// `command` and all below it, with the arguments that are stack lines completed as such.
fn with_stacks(command: Command) -> Command {
    let is_stack = |argument: &clap::Arg| STACK_ARGUMENTS.contains(&argument.get_id().as_str());
    // clap puts an argument that is changed behind the others, so positional ones need their index first.
    let positional: Vec<clap::Id> = command.get_positionals().map(|argument| argument.get_id().clone()).collect();
    let stacks: Vec<clap::Id> = command
        .get_arguments()
        .filter(|argument| is_stack(argument))
        .map(|argument| argument.get_id().clone())
        .collect();
    let command = positional
        .into_iter()
        .enumerate()
        .fold(command, |command, (place, id)| command.mut_arg(id, |argument| argument.index(place + 1)));
    let command = stacks
        .into_iter()
        .fold(command, |command, id| command.mut_arg(id, |argument| argument.add(ArgValueCompleter::new(stack_lines))));
    let names: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, with_stacks))
}

/// Whole lines that go on from what is typed. Some shells hand over the quote mark before it.
fn stack_lines(typed: &OsStr) -> Vec<CompletionCandidate> {
    let Some(line) = typed.to_str() else { return Vec::new() };
    let line = line.strip_prefix(['\'', '"']).unwrap_or(line);
    let completions = complete(line);
    let mut ends = completions.candidates;
    let mut from = completions.from;
    if ends.is_empty()
        && let Some(path) = path_at_the_end(line)
    {
        from = line.len() - path.len();
        ends = paths(path);
    }
    ends.into_iter().map(|end| CompletionCandidate::new(format!("{}{end}", &line[..from]))).collect()
}

/// The beginning of a path at the end of `line`, where its last word takes one: `file:a`, `disk:keep=off,file=a`.
fn path_at_the_end(line: &str) -> Option<&str> {
    let word = line.rsplit(" / ").next().unwrap_or(line).trim_start();
    let (name, path) = word.split_once(':')?;
    let spec = WORDS.iter().find(|spec| spec.name == name)?;
    let is_path = |kind: &ParamKind| matches!(kind, ParamKind::Path);
    let item = path.rsplit(',').next().unwrap_or(path);
    if let Some((key, path)) = item.split_once('=') {
        let takes_path = spec.options.iter().any(|option| option.name == key && is_path(&option.kind));
        return (takes_path && !path.contains('"')).then_some(path);
    }
    let takes_path = spec.argument.is_some_and(|argument| is_path(&argument.kind));
    (takes_path && !path.contains([',', '"'])).then_some(path)
}

/// Files and directories that begin with `typed`.
fn paths(typed: &str) -> Vec<String> {
    let (folder, beginning) = match typed.rfind('/') {
        Some(slash) => typed.split_at(slash + 1),
        None => ("", typed),
    };
    let shown = if folder.is_empty() { Path::new(".") } else { Path::new(folder) };
    // What cannot be read has nothing to offer.
    let Ok(entries) = std::fs::read_dir(shown) else { return Vec::new() };
    let mut found: Vec<String> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let is_hidden = name.starts_with('.') && !beginning.starts_with('.');
            let end = if entry.path().is_dir() { "/" } else { "" };
            (name.starts_with(beginning) && !is_hidden).then(|| format!("{folder}{name}{end}"))
        })
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn values(line: &str) -> Vec<String> {
        let values = stack_lines(OsStr::new(line)).into_iter();
        values.map(|candidate| candidate.get_value().to_string_lossy().into_owned()).collect()
    }

    /// Words, options, drives and paths are offered, whole lines each, with and without the quote mark.
    #[test]
    fn lines_go_on() {
        assert_eq!(values("zst"), ["zstd"]);
        assert_eq!(values("'zstd / lf"), ["zstd / lfs"]);
        assert!(values("lfs / disk:chee").contains(&"lfs / disk:cheetah9lp".to_owned()));
        assert!(values("\"lfs:clean").contains(&"lfs:cleaner=".to_owned()));
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("a.img"), b"").expect("a file");
        std::fs::create_dir(folder.path().join("apart")).expect("a folder");
        let at = folder.path().display();
        assert_eq!(
            values(&format!("lfs / file:{at}/a")),
            [format!("lfs / file:{at}/a.img"), format!("lfs / file:{at}/apart/")]
        );
        assert_eq!(
            values(&format!("lfs / disk:keep=off,file={at}/a.")),
            [format!("lfs / disk:keep=off,file={at}/a.img")]
        );
        assert_eq!(values(&format!("disk:file={at}/a.")), [format!("disk:file={at}/a.img")]);
        assert_eq!(values(&format!("disk:keep={at}/a.")), Vec::<String>::new());
        assert!(values("lfs / file:a,").iter().all(|line| !line.contains(".img")));
    }

    /// Every command that takes a stack completes it. Method: the arguments of all commands.
    #[test]
    fn all_stacks_are_completed() {
        fn count(command: &Command) -> usize {
            let completed = |argument: &&clap::Arg| argument.get::<ArgValueCompleter>().is_some();
            command.get_arguments().filter(completed).count() + command.get_subcommands().map(count).sum::<usize>()
        }
        let mut command = with_stacks(super::super::Cli::command());
        assert!(count(&command) >= 12);
        command.build(); // clap's own check, as a shell that asks has it
    }
}
