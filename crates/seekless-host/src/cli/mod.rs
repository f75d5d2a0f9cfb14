//! The command line: what a user types, and the answer.
//!
//! Every command is a file with its arguments and one `run`. An error is a [`Failure`]: a text that says what, where
//! and what next, and the exit code. Results go to standard output, everything else to standard error.

mod accept;
mod advise;
mod arrays;
mod bench;
mod bench_here;
mod bench_mount;
mod bench_part;
mod bench_speed;
mod caller;
pub mod calls;
mod capture;
mod clean;
mod completion;
mod conclude;
mod daemon;
mod diagnose;
mod disk;
mod drive_fit;
mod drive_import;
mod drive_info;
mod drive_measure;
mod drives;
mod dump;
mod exit;
mod export;
mod fit;
mod flash;
mod flash_drives;
mod flash_info;
mod fsck;
mod info;
mod key;
mod list;
mod logging;
mod manual;
mod meant;
mod memory;
mod merge;
mod metrics;
mod mkfs;
mod moment;
mod mount;
mod mount_helper;
mod mount_options;
mod notify;
mod output;
mod pack;
mod panic;
mod patience;
mod pid_file;
mod plot;
mod plot_legend;
mod plot_replay;
mod plot_style;
mod prometheus;
mod read_files;
mod replay;
mod replay_rows;
mod report;
mod run;
mod scrub;
mod size;
mod snapshot;
mod stat;
mod statistics;
mod supervise;
mod sweep;
mod sync;
mod syslog;
mod trace;
mod traces;
mod umount;
mod validate;
mod world;

use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use seekless::stack::{Stack, Target, Value, quoted};

pub use accept::accept;

/// File systems to mount, or to benchmark.
#[derive(Parser)]
#[command(name = "seekless", version, max_term_width = 100, arg_required_else_help = true)]
#[command(long_about = "File systems to mount and to put on a test bench.

A stack line names the parts of a stack, top first: wrap / lfs:cleaner=greedy / file:a.img. The same line works on \
                        every command. `seekless list` shows every word, option and drive; @FILE takes the line from a \
                        file (stack = \"...\" in TOML).")]
#[command(after_help = "Examples:
  seekless mkfs 'lfs / file:a.img,size=1GiB'
  seekless mount 'lfs / file:a.img' /mnt
  seekless umount /mnt
  seekless export 'vld / file:disk.img' --socket disk.sock
  seekless bench smallfile --on 'lfs / disk:dec-rz26' --profile sparcstation2 --on /tmp
  seekless trace info sda.blktrace.0
  seekless replay sda.blktrace.0 --on disk:cheetah9lp --on disk:hp97560
  seekless advise sda.blktrace.0 --within 20ms --price disk=85 --price ssd=140
  seekless disk validate cheetah9lp cheetah9LP.trace --svg fit.svg
  seekless clean greedy sepbit --pattern zipf
  seekless run experiments/st05-fig6

Exit codes: 0 success, 1 failure, 2 wrong usage; mount, umount, fsck and scrub have their own, see their help.")]
struct Cli {
    /// Print results, warnings and errors only: no progress and no notes
    #[arg(short, long, global = true)]
    quiet: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Mkfs(mkfs::Args),
    Info(info::Args),
    Mount(mount::Args),
    Export(export::Args),
    Umount(umount::Args),
    Sync(sync::Args),
    Stat(stat::Args),
    Fsck(fsck::Args),
    Scrub(scrub::Args),
    Pack(pack::Args),
    Unpack(pack::UnpackArgs),
    Key(key::Args),
    #[command(subcommand)]
    Snapshot(snapshot::Command),
    Dump(dump::Args),
    #[command(subcommand)]
    Bench(bench::Bench),
    #[command(subcommand, hide = true)]
    BenchPart(bench_part::Command),
    #[command(subcommand)]
    Trace(trace::Command),
    Replay(replay::Args),
    Advise(advise::Args),
    Clean(clean::Args),
    Run(run::Args),
    Merge(merge::Args),
    Report(report::Args),
    #[command(subcommand)]
    Disk(disk::Command),
    #[command(subcommand)]
    Flash(flash::Command),
    List(list::Args),
    Completions(manual::CompletionsArgs),
    Man(manual::ManArgs),
}

/// An error message, and its exit code.
#[derive(Debug)]
struct Failure {
    text: String,
    code: u8,
}

/// Exit codes of everything but mount, umount and fsck.
const FAILED: u8 = 1;
const WRONG_USAGE: u8 = 2;

impl Failure {
    fn new(text: impl fmt::Display) -> Failure {
        Failure { text: text.to_string(), code: FAILED }
    }

    fn code(self, code: u8) -> Failure {
        Failure { code, ..self }
    }

    /// Adds a hint on a line of its own.
    fn hint(self, hint: impl fmt::Display) -> Failure {
        Failure { text: format!("{}\n{hint}", self.text), ..self }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::new(error)
    }
}

/// Exit code of a command that did not fail.
type Done = Result<u8, Failure>;

/// Runs the program on its own arguments.
pub fn main() -> ExitCode {
    completion::answer(Cli::command);
    let arguments = mount_helper::translate(std::env::args_os().collect());
    match run(arguments) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            output::complain(&failure.text);
            ExitCode::from(failure.code)
        }
    }
}

fn run(arguments: Vec<OsString>) -> Done {
    let arguments = without_help_for_help(arguments);
    let command = match Cli::try_parse_from(&arguments) {
        Ok(Cli { quiet, command }) => {
            if quiet {
                output::set_quiet();
            }
            command
        }
        Err(error) => {
            return wrong_usage(&error, &arguments);
        }
    };
    match command {
        Command::Mkfs(args) => mkfs::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Mount(args) => mount::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Umount(args) => umount::run(&args),
        Command::Sync(args) => sync::run(&args),
        Command::Stat(args) => stat::run(&args),
        Command::Fsck(args) => fsck::run(&args),
        Command::Scrub(args) => scrub::run(&args),
        Command::Pack(args) => pack::pack(&args),
        Command::Unpack(args) => pack::unpack(&args),
        Command::Key(args) => key::run(&args),
        Command::Snapshot(command) => snapshot::run(&command),
        Command::Dump(args) => dump::run(&args),
        Command::Bench(bench::Bench::Program(bench)) => bench::run(&bench),
        Command::Bench(bench::Bench::Mount(args)) => bench_mount::run(&args),
        Command::BenchPart(command) => bench_part::run(&command),
        Command::Trace(trace::Command::Info(args)) => trace::info(&args),
        Command::Trace(trace::Command::Head(args)) => trace::head(&args),
        Command::Trace(trace::Command::Slice(args)) => trace::slice(&args),
        Command::Trace(trace::Command::Convert(args)) => trace::convert(&args),
        Command::Trace(trace::Command::Capture(args)) => capture::run(&args),
        Command::Trace(trace::Command::Formats(args)) => trace::formats(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Advise(args) => advise::run(&args),
        Command::Clean(args) => clean::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Merge(args) => merge::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Disk(disk::Command::List(args)) => disk::list(&args),
        Command::Disk(disk::Command::Info(args)) => drive_info::run(&args),
        Command::Disk(disk::Command::Import(args)) => drive_import::run(&args),
        Command::Disk(disk::Command::Fit(args)) => drive_fit::run(&args),
        Command::Disk(disk::Command::Measure(args)) => drive_measure::run(&args),
        Command::Disk(disk::Command::Validate(args)) => validate::run(&args),
        Command::Flash(flash::Command::List(args)) => flash::list(&args),
        Command::Flash(flash::Command::Info(args)) => flash_info::run(&args),
        Command::Flash(flash::Command::Validate(args)) => flash::validate(&args),
        Command::Flash(flash::Command::Fit(args)) => flash::fit(&args),
        Command::List(args) => list::run(&args),
        Command::Completions(args) => manual::completions(&args),
        Command::Man(args) => manual::pages(&args, Cli::command()),
    }
}

/// `help --help` prints help, as for other commands. clap takes the option for the name of a command.
fn without_help_for_help(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let words: Vec<&str> = arguments.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    let is_group = |name: &str| Cli::command().find_subcommand(name).is_some_and(clap::Command::has_subcommands);
    let asks = match &words[..] {
        [_, "help", .., "--help" | "-h"] => true,
        [_, group, "help", .., "--help" | "-h"] => is_group(group),
        _ => false,
    };
    if asks {
        arguments.pop();
    }
    arguments
}

/// Prints clap's text. Requested help is a success.
fn wrong_usage(error: &clap::Error, arguments: &[OsString]) -> Done {
    let plain = error.render().to_string();
    match in_words(&plain) {
        Some(text) => output::warn(text.trim_end()),
        // With a closed pipe, the message is lost.
        None => drop(error.print()),
    }
    if !error.use_stderr() {
        return Ok(0);
    }
    if let Some(line) = meant::with_the_stack_quoted(arguments) {
        output::warn(&format!("\na stack is one argument, in quotes: {line}"));
    }
    let command = arguments.iter().skip(1).find(|argument| !argument.as_encoded_bytes().starts_with(b"-"));
    Ok(match command.and_then(|command| command.to_str()) {
        Some("mount" | "umount") => exit::WRONG_USAGE,
        Some("fsck" | "scrub") => fsck::WRONG_USAGE,
        _ => WRONG_USAGE,
    })
}

/// A message about a number, in the words of people; `None` where it has none of another kind. Those of Rust's parsers and ranges are for
/// programmers: "invalid digit found in string", "0 is not in 1..=4294967295".
fn in_words(text: &str) -> Option<String> {
    const PLAIN: [(&str, &str); 5] = [
        ("invalid digit found in string", "a whole number is expected"),
        ("cannot parse integer from empty string", "a whole number is expected"),
        ("number too large to fit in target type", "the number is too large"),
        ("invalid float literal", "a number is expected"),
        ("cannot parse float from empty string", "a number is expected"),
    ];
    /// Limits of types, which are none of the option.
    const NO_LIMIT: [&str; 3] = ["", "4294967295", "18446744073709551615"];
    if let Some((said, plain)) = PLAIN.iter().find(|(said, _)| text.contains(said)) {
        return Some(text.replacen(said, plain, 1));
    }
    let (before, range) = text.split_once(" is not in ")?;
    let end = range.find('\n').unwrap_or(range.len());
    let (least, most) = range[..end].split_once("..")?;
    let most = match most {
        most if NO_LIMIT.contains(&most) => most,
        most => most.strip_prefix('=')?,
    };
    let number = before.rsplit(' ').next()?.parse::<i128>().ok()?;
    let plain = match NO_LIMIT.contains(&most) && number < least.parse().ok()? {
        true => format!("{before} is less than {least}"),
        false => format!("{before} is not from {least} to {most}"),
    };
    Some(plain + &range[end..])
}

/// Parses an argument that must be a stack with a file system on a device, or with a device with its own format at its
/// top, for a command that will `make` it, `check` it ...
fn read_volume(argument: &str, what_for: &str) -> Result<Stack, Failure> {
    let stack = read_stack(argument)?;
    stack.needs_volume(what_for).map_err(|error| Failure::new(error).code(WRONG_USAGE))?;
    Ok(stack)
}

/// Parses an argument that must be a stack. Errors are wrong usage.
fn read_stack(argument: &str) -> Result<Stack, Failure> {
    find_stack(argument).map_err(|failure| failure.code(WRONG_USAGE))
}

fn find_stack(argument: &str) -> Result<Stack, Failure> {
    parse_stack(argument)?.read_drive_files(drives::read_text).map_err(Failure::new)
}

/// The text of a file of at most `bytes_max` bytes. Of a longer one a byte more, so that its parser refuses it: a device has no end.
///
/// # Errors
/// What is wrong, without the path.
fn read_some(path: &str, bytes_max: usize) -> Result<String, String> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut some = std::io::Read::take(file, bytes_max as u64 + 1);
    std::io::Read::read_to_end(&mut some, &mut bytes).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|_| "it is not text in UTF-8".to_owned())
}

/// A stack file has one line, of at most 64 KiB, and comments.
const STACK_FILE_BYTES_MAX: usize = 1 << 20;

fn parse_stack(argument: &str) -> Result<Stack, Failure> {
    let failure = match Target::of(argument) {
        Target::StackFile(path) => {
            let text = read_some(path, STACK_FILE_BYTES_MAX)
                .map_err(|problem| Failure::new(format!("cannot read the stack file {path}: {problem}")))?;
            if text.len() > STACK_FILE_BYTES_MAX {
                return Err(Failure::new(format!("{path}: a stack file has at most {STACK_FILE_BYTES_MAX} bytes")));
            }
            return Stack::parse_file(&text).map_err(|error| Failure::new(format!("in {path}: {error}")));
        }
        Target::Directory(line) | Target::Line(line) => match Stack::parse(line) {
            Ok(stack) => return Ok(stack),
            Err(error) => Failure::new(error),
        },
    };
    // An image or a directory means the obvious stack on it.
    let path = Path::new(argument);
    Err(match path.symlink_metadata() {
        Ok(_) if path.is_dir() => {
            failure.hint(format!("for this directory write: {}", quoted(&format!("hostdir:{}", as_value(argument)))))
        }
        Ok(_) if path.extension().is_some_and(|extension| extension == "toml") => {
            failure.hint(format!("for this drive file write: {}", quoted(&format!("disk:file={}", as_value(argument)))))
        }
        Ok(_) => {
            failure.hint(format!("for this file write: {}", quoted(&format!("lfs / file:{}", as_value(argument)))))
        }
        Err(_) if path.extension().is_some_and(|extension| extension == "toml") => {
            Failure::new(format!("there is no drive file {argument}"))
                .hint("a stack has a drive file as disk:file=my-drive.toml")
        }
        Err(_) => failure,
    })
}

/// A path as the value of a word in a stack line.
fn as_value(path: &str) -> Value {
    Value::Path(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is proposed for a file is a line for that file, whatever its name has.
    #[test]
    fn proposed_lines_name_the_file() {
        for name in ["a.img", "it's.img", "a,b=c.img", " a / b\".img ", "x{}.img"] {
            let stack = Stack::parse(&format!("lfs / file:{}", as_value(name))).unwrap();
            assert_eq!(stack.words()[1].text("path"), Some(name));
        }
    }

    /// The definition of the command line is consistent (clap's own check).
    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    /// Messages about numbers are in words; others stay as they are.
    #[test]
    fn numbers_are_explained() {
        let said = |words: &[&str]| {
            let words = ["seekless"].iter().chain(words).map(OsString::from);
            let error = Cli::try_parse_from(words).err().expect("an error");
            in_words(&error.render().to_string())
        };
        let line = |words: &[&str]| said(words).expect("words").lines().next().unwrap_or_default().to_owned();
        assert!(
            line(&["trace", "head", "-n", "x", "a"])
                .ends_with("'x' for '--requests <COUNT>': a whole number is expected")
        );
        assert!(line(&["flash", "fit", "nvme-a", "--drives", "0"]).ends_with("'--drives <COUNT>': 0 is less than 1"));
        assert!(line(&["run", "sweep", "--jobs", "0"]).ends_with("'--jobs <COUNT>': 0 is not from 1 to 1024"));
        assert!(line(&["clean", "greedy", "--writes", "many"]).ends_with("a number is expected"));
        assert_eq!(said(&["trace", "info"]), None);
    }

    /// `help help` shows what `help` shows; a command's own argument called help is left alone.
    #[test]
    fn help_has_help() {
        let asked =
            |line: &str| without_help_for_help(line.split(' ').map(OsString::from).collect()).join(" ".as_ref());
        for (line, expected) in [
            ("seekless help --help", "seekless help"),
            ("seekless help bench -h", "seekless help bench"),
            ("seekless bench help --help", "seekless bench help"),
            ("seekless info help --help", "seekless info help --help"),
            ("seekless mkfs --help", "seekless mkfs --help"),
        ] {
            assert_eq!(asked(line), expected);
        }
    }

    /// Each command has an example in its help, and lists its exit codes.
    #[test]
    fn every_command_is_documented() {
        for command in Cli::command().get_subcommands() {
            let help = command.clone().render_long_help().to_string();
            let name = command.get_name();
            let has_subcommands = command.get_subcommands().next().is_some();
            assert!(has_subcommands || help.contains("Example"), "{name} has no example");
            assert!(has_subcommands || help.contains("Exit codes"), "{name} says no exit codes");
        }
    }
}
