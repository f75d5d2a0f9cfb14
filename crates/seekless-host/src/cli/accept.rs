//! Whether a command line is right as written: it is parsed, with the words inside its arguments, and nothing is done.
//!
//! For the commands on pages. A file that a line names need not exist: another command may make it, and it is the reader's.
//! Values that only the running command can judge, such as the age of a cleaning policy, are not checked.
//!
//! What an argument holds is recognised by the name of its value, as help shows it, so that an option of a new command is checked
//! without a line here. Rules that concern several arguments are those of the command itself.

use std::ffi::OsString;

use clap::{ArgMatches, CommandFactory, FromArgMatches};
use seekless::stack::{Interface, Stack, Target, WORDS};
use seekless_lab::replay::check_stack;
use seekless_lab::trace::Format;

use super::{
    Cli, Command, Failure, WRONG_USAGE, bench, drives, flash_drives, mount, mount_helper, without_help_for_help,
};

/// Parses a command line, of which the first argument is the program's name.
///
/// # Errors
/// What is wrong with it, as the program would print it.
pub fn accept(arguments: &[OsString]) -> Result<(), String> {
    check(arguments).map_err(|failure| failure.text)
}

fn check(arguments: &[OsString]) -> Result<(), Failure> {
    let arguments = without_help_for_help(mount_helper::translate(arguments.to_vec()));
    let mut definition = Cli::command();
    let matches = match definition.try_get_matches_from_mut(&arguments) {
        // Help that is asked for.
        Err(error) if !error.use_stderr() => return Ok(()),
        parsed => parsed?,
    };
    check_values(&definition, &mut Vec::new(), &matches)?;
    match Cli::from_arg_matches(&matches)?.command {
        Command::Mount(args) => mount::check_words(&args),
        Command::Clean(args) => args.prepare().map(|_| ()),
        Command::Bench(bench::Bench::Program(bench)) => bench.check_words(),
        Command::Advise(args) => args.check_words(),
        _ => Ok(()),
    }
}

/// Checks the given values of all arguments. `path` takes the names of the command and of the group that it is in.
fn check_values<'a>(command: &'a clap::Command, path: &mut Vec<&'a str>, matches: &ArgMatches) -> Result<(), Failure> {
    if let Some((name, matches)) = matches.subcommand() {
        let Some(command) = command.find_subcommand(name) else { return Ok(()) };
        path.push(command.get_name());
        return check_values(command, path, matches);
    }
    for argument in command.get_arguments() {
        let names = argument.get_value_names().unwrap_or_default();
        let given = matches.try_get_raw(argument.get_id().as_str()).ok().flatten();
        for (name, value) in names.iter().cycle().zip(given.into_iter().flatten()) {
            check_value(path, name, &value.to_string_lossy())?;
        }
    }
    Ok(())
}

/// Checks a value that is called `name` in the help of the command at `path`.
fn check_value(path: &[&str], name: &str, value: &str) -> Result<(), Failure> {
    match (name, Target::of(value)) {
        ("STACK" | "STACK|DIR" | "DIR|STACK" | "DRIVE", Target::StackFile(_)) => Ok(()),
        ("STACK", _) => check_line(path, value),
        ("STACK|DIR", Target::Line(line)) => check_line(path, line),
        ("DIR|STACK", Target::Line(line)) => {
            // A name alone that is no word of a stack line is a directory.
            let is_name = !line.contains([' ', ':']) && WORDS.iter().all(|word| word.name != line);
            if is_name { Ok(()) } else { check_line(path, line) }
        }
        ("DRIVE", _) => check_drive(path, value),
        ("FORMAT", _) => match value {
            "auto" => Ok(()),
            _ => Format::parse(value).map(|_| ()).map_err(wrong),
        },
        _ => Ok(()),
    }
}

fn wrong(problem: impl std::fmt::Display) -> Failure {
    Failure::new(problem).code(WRONG_USAGE)
}

/// Checks a stack line for a command: it can be parsed, and is what the command is for.
fn check_line(path: &[&str], line: &str) -> Result<(), Failure> {
    let stack = Stack::parse(line).map_err(wrong)?;
    let is_device = stack.is() == Interface::Device;
    match path {
        ["mkfs"] | ["info"] | ["dump"] | ["stat"] => stack.needs_volume("look at").map_err(wrong),
        ["fsck"] => stack.needs_checkable().map_err(wrong),
        ["pack"] | ["unpack"] => stack.converter().map(|_| ()).map_err(wrong),
        ["export"] | ["snapshot", _] if !is_device => Err(wrong(format!("`{line}` is a file system, and no disk"))),
        ["replay"] => check_stack(&stack).map_err(wrong),
        _ => Ok(()),
    }
}

/// Checks a drive for a command about disks or about flash.
fn check_drive(path: &[&str], drive: &str) -> Result<(), Failure> {
    let is_file = drive.ends_with(".toml") && !drive.contains(':');
    if is_file || Stack::parse(drive).is_ok_and(|stack| !stack.drive_files().is_empty()) {
        return Ok(());
    }
    match path {
        ["flash", _] => flash_drives::read_model(drive).map(|_| ()),
        _ => drives::read_drive(drive).map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Aim: a mistake anywhere in a line is noticed, and a right line is not refused. Method: lines of each kind of value, and the
    /// same with a mistake.
    #[test]
    fn mistakes_in_values_are_noticed() {
        let accepts = |line: &str| accept(&line.split('~').map(OsString::from).collect::<Vec<_>>());
        let mut problems = Vec::new();
        for (right, wrong) in [
            ("mkfs~lfs / file:a.img,size=1GiB", "mkfs~lfs / file:a.img,siez=1GiB"),
            ("mkfs~lfs / file:a.img,size=1GiB", "mkfs~file:a.img,size=1GiB"),
            ("mount~@line.toml~mnt~-o~ro,noatime", "mount~lfs / file:a.img~mnt~-o~ro,nothing"),
            ("mount~--as-disk~vld / file:a.img~disk", "mount~--as-disk~lfs / file:a.img~disk"),
            ("export~vld / file:a.img~--socket~s", "export~lfs / file:a.img~--socket~s"),
            (
                "bench~smallfile~--on~/tmp~--on~lfs / disk:dec-rz26",
                "bench~smallfile~--on~/tmp~--on~lfs / disk:dec-rz27x",
            ),
            (
                "bench~tpcb~--on~lfs / disk:dec-rz26~--log~disk:dec-rz26",
                "bench~tpcb~--on~lfs / disk:dec-rz26~--log~dsik:dec-rz26",
            ),
            (
                "clean~cost-benefit:age=root~--pattern~zipf:skew=0.9",
                "clean~cost-benefit:age=root~--pattern~zipf:skev=0.9",
            ),
            ("clean~cost-benefit:age=root", "clean~cost-benefit:aeg=root"),
            ("disk~info~mine.toml", "disk~info~no-such-drive"),
            ("disk~validate~cheetah9lp~a.trace~dec-rz26~b", "disk~validate~cheetah9lp~a.trace~dec-rz27x~b"),
            ("disk~fit~a.trace~--from~disk:file=mine.toml", "disk~fit~a.trace~--from~disk:size=4TB,rpn=7200"),
            ("flash~fit~ssd:nvme-a,dies=64~mine.csv", "flash~fit~ssd:nvme-a,dice=64~mine.csv"),
            ("advise~postmark~--set~files=500", "advise~postmark~--set~fliles=500"),
            ("advise~a.trace~--on~disk:cheetah9lp", "advise~a.trace~--on~disk:cheetah9lpx"),
            ("replay~a.trace~--on~disk:cheetah9lp", "replay~a.trace~--on~lfs / disk:cheetah9lp"),
            ("trace~convert~--to~iolog3~a.csv", "trace~convert~--to~iolog33~a.csv"),
            ("stat~mnt", "stat~lfs / filr:a.img"),
            ("run~experiments/x~--over~hostdir:/srv", "run~experiments/x~--over~hostdirs:/srv"),
            ("run~experiments/x~--shard~1/7", "run~experiments/x~--shard~8/7"),
            ("scrub~lfs / raid5:n=3 / file:disk-{}.img", "scrub~lfs / raid5:m=3 / file:disk-{}.img"),
            ("help~mount", "hlep~mount"),
        ] {
            problems.extend(accepts(&format!("seekless~{right}")).err().map(|problem| format!("{right}: {problem}")));
            problems.extend(accepts(&format!("seekless~{wrong}")).ok().map(|()| format!("{wrong} is accepted")));
        }
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
}
