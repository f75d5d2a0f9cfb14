//! `seekless bench`

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand, value_parser};
use seekless::rt::HostProfile;
use seekless::stack::{Stack, Target};
use seekless_lab::LabError;
use seekless_lab::report::Report;
use seekless_lab::run::{Failed, Run, can_be_simulated, run_in_directory, simulate};
use seekless_lab::workload::script::{Script, Scripted};
use seekless_lab::workload::{Data, Form, Key, PhaseProgress, Program, WORKLOADS, Watch, WorkloadSpec};
use toml::Table;

use super::bench_here::{host, run_here_in_a_world};
use super::bench_speed::{ProgressSampler, Speed};
use super::caller::{Caller, Step, Terminal};
use super::size::Size;
use super::{Done, Failure, WRONG_USAGE, bench_mount, output, read_stack};
use crate::reactor::Signals;

/// A benchmark, as given on the command line.
pub(super) enum Bench {
    /// One of [`WORKLOADS`], each of which is a subcommand.
    Program(ProgramBench),
    Mount(Box<bench_mount::Args>),
}

/// A program that uses files, and what it runs on.
pub(super) struct ProgramBench {
    program: Box<dyn Program>,
    log: Option<String>,
    common: Common,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Clock {
    /// Virtual where everything is modelled, real otherwise
    Auto,
    /// Virtual time: only the models take time, and every run is the same
    Virtual,
    /// Real time, in this process
    Real,
}

/// What is measured, and how.
#[derive(clap::Args)]
struct Common {
    /// What to measure: a stack, or a directory that begins with / or ./ ; can be given again
    #[arg(long, required = true, value_name = "STACK|DIR")]
    on: Vec<String>,

    /// Processor of the machine in virtual time, none when not given; see `seekless list profiles`
    #[arg(long, value_parser = profile_names())]
    profile: Option<String>,

    /// Which clock stacks run on
    #[arg(long, value_enum, default_value_t = Clock::Auto)]
    clock: Clock,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn profile_names() -> clap::builder::PossibleValuesParser {
    HostProfile::ALL.iter().map(|profile| profile.name).collect::<Vec<_>>().into()
}

/// What to measure, parsed before anything is done.
enum Contestant {
    Directory(String),
    Stack(Box<Stack>),
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contestant::Directory(directory) => f.write_str(directory),
            Contestant::Stack(stack) => stack.fmt(f),
        }
    }
}

/// The benchmark that is no workload.
const MOUNT: &str = "mount";

const LOG: &str = "log";
const SEED: &str = "seed";

impl Subcommand for Bench {
    fn augment_subcommands(command: Command) -> Command {
        let command = command.about("Run a benchmark on stacks and directories").subcommand_required(true);
        let mounts = bench_mount::Args::augment_args(Command::new(MOUNT));
        WORKLOADS
            .iter()
            .fold(command.arg_required_else_help(true), |command, spec| command.subcommand(command_of(spec)))
            .subcommand(mounts)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Bench::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        name == MOUNT || WORKLOADS.iter().any(|spec| spec.name == name)
    }
}

impl FromArgMatches for Bench {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Bench, clap::Error> {
        let missing = || clap::Error::raw(ErrorKind::MissingSubcommand, "a benchmark is missing");
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        if name == MOUNT {
            return bench_mount::Args::from_arg_matches(matches).map(|args| Bench::Mount(Box::new(args)));
        }
        let spec = WORKLOADS.iter().find(|spec| spec.name == name).ok_or_else(missing)?;
        let numbers = spec.keys.iter().filter_map(|key| Some((key.name.to_owned(), value_of(key, matches)?))).collect();
        let program = spec.read(&numbers, matches.get_one(SEED).copied());
        Ok(Bench::Program(ProgramBench {
            program: program.map_err(|error| clap::Error::raw(ErrorKind::ValueValidation, error))?,
            log: matches.try_get_one::<String>(LOG).ok().flatten().cloned(),
            common: Common::from_arg_matches(matches)?,
        }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Bench::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The subcommand of a workload: an option for each of its keys.
fn command_of(spec: &'static WorkloadSpec) -> Command {
    let examples = spec.examples.iter().map(|example| format!("\n  seekless bench {} {example}", spec.name));
    let examples: String = examples.collect();
    let mut command = Common::augment_args(Command::new(spec.name))
        .about(spec.help)
        .long_about(None)
        .after_help(format!("Examples:{examples}\n\nExit codes: 0 measured, 1 failed, 2 wrong usage"));
    if !spec.about.is_empty() {
        command = command.long_about(format!("{}\n\n{}", spec.help, spec.about));
    }
    if spec.has_log {
        let help = "Storage of the log, in virtual time; by default the measured stack";
        command = command.arg(Arg::new(LOG).long(LOG).value_name("STACK").help(help));
    }
    let seed = Arg::new(SEED).long(SEED).value_name("SEED").value_parser(value_parser!(u64));
    let seed = seed.help("Determines every random choice of the run: the contents of files, and each random order");
    let default = spec.read(&Table::new(), None).map_or(1, |program| program.seed());
    command.args(spec.keys.iter().map(|key| option_of(spec, key))).arg(seed.default_value(default.to_string()))
}

/// The option for a key.
fn option_of(spec: &WorkloadSpec, key: &Key) -> Arg {
    let option = Arg::new(key.name).long(key.name.replace('_', "-")).help(key.help);
    let option = match key.form {
        Form::Count => option.value_parser(value_parser!(u64).range(..i64::MAX as u64)).value_name("COUNT"),
        Form::Percent => option.value_parser(value_parser!(u64).range(..=100)).value_name("PERCENT"),
        Form::Bytes => option.value_parser(value_parser!(Size)).value_name("SIZE"),
        Form::Switch => return option.action(ArgAction::SetTrue),
        Form::Data => option.value_parser(Data::ALL).value_name("DATA"),
    };
    match spec.default_of(key) {
        Some(toml::Value::Integer(bytes)) if key.form == Form::Bytes => {
            option.default_value(Size(bytes.unsigned_abs()).to_string())
        }
        Some(toml::Value::String(name)) => option.default_value(name),
        Some(value) => option.default_value(value.to_string()),
        None => option,
    }
}

/// The value of a key on the command line.
fn value_of(key: &Key, matches: &ArgMatches) -> Option<toml::Value> {
    let number = |number: u64| i64::try_from(number).ok().map(toml::Value::Integer);
    match key.form {
        Form::Count | Form::Percent => number(*matches.get_one(key.name)?),
        Form::Bytes => number(matches.get_one::<Size>(key.name)?.0),
        Form::Switch => Some(toml::Value::Boolean(matches.get_flag(key.name))),
        Form::Data => matches.get_one::<String>(key.name).cloned().map(toml::Value::String),
    }
}

pub(super) fn run(bench: &ProgramBench) -> Done {
    // Before there are threads. Files made on a real mount are deleted even when a signal ends the run.
    let signals = Signals::new(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])?;
    let terminal = Terminal::of_phases(output::phases(), Some(&signals));
    let report = measure(bench, &terminal);
    terminal.clear();
    let report = report?;
    match bench.common.json {
        true => output::print_json(&report.to_json())?,
        false if report.runs.is_empty() => {}
        false => output::print(&report.to_text())?,
    }
    match (not_measured(&report), terminal.ended_by()) {
        (None, _) => Ok(0),
        (Some(failure), Some(signal)) => Err(failure.code(128 + signal as u8)),
        (Some(failure), None) => Err(failure),
    }
}

/// The contestants without a result, if there are any.
pub(super) fn not_measured(report: &Report<'_>) -> Option<Failure> {
    let text = |failed: &Failed| format!("{} was not measured: {}", failed.contestant, failed.error);
    let failed: Vec<String> = report.failed.iter().map(text).collect();
    (!failed.is_empty()).then(|| Failure::new(failed.join("\n")))
}

impl ProgramBench {
    /// Checks the numbers of the workload, as far as they are wrong on every stack.
    pub(super) fn check_words(&self) -> Result<(), Failure> {
        self.program.check().map_err(|error| Failure::new(error).code(WRONG_USAGE))
    }

    /// A benchmark with a script of the caller. The words are options alone: what is measured, and how.
    ///
    /// # Errors
    /// Those of the words.
    pub(super) fn of_script(words: &[String], script: Box<dyn Script>) -> Result<ProgramBench, clap::Error> {
        let seed = Arg::new(SEED).long(SEED).value_parser(value_parser!(u64)).default_value("1");
        let command = Common::augment_args(Command::new("seekless bench")).arg(Arg::new(LOG).long(LOG)).arg(seed);
        let line = std::iter::once("seekless bench").chain(words.iter().map(String::as_str));
        let matches = command.try_get_matches_from(line)?;
        let seed = matches.get_one(SEED).copied().unwrap_or(1);
        Ok(ProgramBench {
            program: Box::new(Scripted { script, seed }),
            log: matches.get_one::<String>(LOG).cloned(),
            common: Common::from_arg_matches(&matches)?,
        })
    }
}

/// Measures every contestant. An error of one leaves the others their results.
pub(super) fn measure<'a>(bench: &'a ProgramBench, caller: &dyn Caller) -> Result<Report<'a>, Failure> {
    let ProgramBench { program, log, common: args } = bench;
    let program = &**program;
    let log = log.as_deref().map(read_stack).transpose()?;
    if let Some(log) = log.as_ref().filter(|log| !can_be_simulated(log)) {
        let problem = format!("--log {log}: it is for virtual time, and this benchmark runs in real time");
        let hint = "leave it out to put the log on the measured storage, or model a disk: 'lfs / disk:dec-rz26'";
        return Err(Failure::new(problem).hint(hint).code(WRONG_USAGE));
    }
    bench.check_words()?;
    let name = args.profile.as_deref().unwrap_or(HostProfile::NONE.name);
    let Some(profile) = HostProfile::named(name) else {
        return Err(Failure::new(format!("there is no processor profile `{name}`")).code(WRONG_USAGE));
    };
    let contestants: Vec<Contestant> =
        args.on.iter().map(|argument| contestant(argument)).collect::<Result<_, Failure>>()?;
    check_clocks(args, &contestants, caller)?;
    let is_ended = Cell::new(false);
    let mut report = Report { spec: program, runs: Vec::new(), failed: Vec::new() };
    for (number, contestant) in contestants.iter().enumerate() {
        let begins = format!("[{}/{}] {contestant}", number + 1, contestants.len());
        // What was found after the last step of the contestant before ends the command here.
        if is_ended.get() || caller.at(Step { what: &begins, done: 0, total: None, rate: None }).is_break() {
            is_ended.set(true);
            report.failed.push(Failed { contestant: contestant.to_string(), error: LabError::Interrupted.to_string() });
            continue;
        }
        let is_simulated = matches!(contestant, Contestant::Stack(stack) if is_virtual(stack, args.clock));
        let speed = RefCell::new(Speed::new(is_simulated));
        let pace = RefCell::new(ProgressSampler::new());
        let watch = |step: PhaseProgress<'_>| {
            if !pace.borrow_mut().is_due(step.done, Instant::now) {
                return ControlFlow::Continue(());
            }
            let what = format!("[{}/{}] {}", number + 1, contestants.len(), step.phase);
            let mut speed = speed.borrow_mut();
            let rate = Some(speed.at(&step));
            let total = (step.total > 0).then_some(step.total);
            let flow = caller.at(Step { what: &what, done: step.done, total, rate });
            is_ended.set(flow.is_break());
            flow
        };
        let run = match contestant {
            Contestant::Directory(directory) => {
                run_in_directory(directory, host(), program, &watch).map_err(Failure::new)
            }
            Contestant::Stack(stack) => run_stack(stack, log.as_ref(), args.clock, profile, program, &watch),
        };
        match run {
            Ok(run) => report.runs.push(run),
            Err(failure) => {
                report.failed.push(Failed { contestant: contestant.to_string(), error: failure.text });
            }
        }
    }
    Ok(report)
}

/// Refuses options about virtual time where they would have no effect.
fn check_clocks(args: &Common, contestants: &[Contestant], caller: &dyn Caller) -> Result<(), Failure> {
    let wrong = |text: String| Err(Failure::new(text).code(WRONG_USAGE));
    let directory = contestants.iter().find(|contestant| matches!(contestant, Contestant::Directory(_)));
    if let (Clock::Virtual, Some(directory)) = (args.clock, directory) {
        return wrong(format!(
            "--clock virtual: {directory} is a directory of the host, which has real time only\nleave the directory \
             out, or leave the clock to each contestant: --clock auto"
        ));
    }
    let runs_in_virtual_time = |contestant: &Contestant| match contestant {
        Contestant::Directory(_) => false,
        Contestant::Stack(stack) => is_virtual(stack, args.clock),
    };
    let in_real_time: Vec<String> =
        contestants.iter().filter(|it| !runs_in_virtual_time(it)).map(ToString::to_string).collect();
    match &args.profile {
        Some(profile) if in_real_time.len() == contestants.len() => wrong(format!(
            "--profile {profile} says how fast the processor is in virtual time, and everything here runs in real time\n\
             leave it out, or measure a stack that can be simulated, such as 'lfs / disk:dec-rz26'"
        )),
        Some(profile) if !in_real_time.is_empty() => {
            let on_this = in_real_time.join(", ");
            caller.note(&format!("note: --profile {profile} is for virtual time and does not concern {on_this}"));
            Ok(())
        }
        _ => Ok(()),
    }
}

fn is_virtual(stack: &Stack, clock: Clock) -> bool {
    match clock {
        Clock::Auto => can_be_simulated(stack),
        Clock::Virtual => true,
        Clock::Real => false,
    }
}

fn contestant(argument: &str) -> Result<Contestant, Failure> {
    match Target::of(argument) {
        Target::Directory(directory) if Path::new(directory).is_dir() => {
            Ok(Contestant::Directory(directory.to_owned()))
        }
        Target::Directory(directory) => {
            let missing = Failure::new(format!("there is no directory {directory}")).code(WRONG_USAGE);
            Err(missing.hint("a stack does not begin with / or ./"))
        }
        Target::StackFile(_) | Target::Line(_) => read_stack(argument).map(|stack| Contestant::Stack(Box::new(stack))),
    }
}

fn run_stack(
    stack: &Stack,
    log: Option<&Stack>,
    clock: Clock,
    profile: HostProfile,
    program: &dyn Program,
    watch: Watch<'_>,
) -> Result<Run, Failure> {
    if is_virtual(stack, clock) {
        return Ok(simulate(stack, log, profile, program, watch)?);
    }
    run_here_in_a_world(stack, program, watch)
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;

    /// Ends a benchmark when its second contestant begins.
    struct EndsEarly;

    impl Caller for EndsEarly {
        fn at(&self, step: Step<'_>) -> ControlFlow<()> {
            if step.what.starts_with("[2/3]") { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }

        fn note(&self, _: &str) {}
    }

    /// Contestants that had no turn because the command was ended are said, so that the others do not look like all.
    #[test]
    fn contestants_without_a_turn_are_said() {
        let words = "bench smallfile --files 10 --on memfs --on memfs --on memfs".split(' ');
        let matches = Bench::augment_subcommands(Command::new("bench")).try_get_matches_from(words).unwrap();
        let Ok(Bench::Program(bench)) = Bench::from_arg_matches(&matches) else { panic!("no benchmark") };
        let report = measure(&bench, &EndsEarly).unwrap();
        let said = not_measured(&report).map(|failure| failure.text).unwrap_or_default();
        assert_eq!((report.runs.len(), said.matches("was not measured: it was interrupted").count()), (1, 2), "{said}");
    }

    /// A number that is too large is refused, for each key of each workload; none silently becomes the default.
    #[test]
    fn numbers_that_are_too_large_are_refused() {
        for (spec, key) in WORKLOADS.iter().flat_map(|spec| spec.keys.iter().map(move |key| (spec, key))) {
            let value = match key.form {
                Form::Count | Form::Percent => u64::MAX.to_string(),
                Form::Bytes => "9000000TiB".to_owned(),
                Form::Switch | Form::Data => continue,
            };
            let option = format!("--{}", key.name.replace('_', "-"));
            let line = ["bench", spec.name, "--on", "memfs", &option, &value];
            let parsed = Bench::augment_subcommands(Command::new("bench")).try_get_matches_from(line);
            let kind = parsed.err().map(|error| error.kind());
            assert_eq!(kind, Some(ErrorKind::ValueValidation), "{} {option} {value}", spec.name);
        }
    }
}
