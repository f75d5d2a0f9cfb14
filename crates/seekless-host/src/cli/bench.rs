//! `seekless bench`

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use seekless::rt::HostProfile;
use seekless::stack::{Stack, Target, Usage};
use seekless_lab::report::Report;
use seekless_lab::run::{Failed, Run, can_be_simulated, run_here, run_in_directory, simulate};
use seekless_lab::target::Host;
use seekless_lab::workload::smallfile::{Phase, Progress, SmallFile};

use super::world::{World, explain, identity};
use super::{Done, Failure, WRONG_USAGE, output, read_stack};
use crate::fuse::SyncError;
use crate::reactor::Signals;

/// Run a benchmark on stacks and directories
#[derive(clap::Subcommand)]
pub(super) enum Bench {
    Smallfile(SmallfileArgs),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Clock {
    /// Virtual where everything is modelled, real otherwise
    Auto,
    /// Virtual time: nothing but the models takes time, and every run is the same
    Virtual,
    /// Real time, in this process
    Real,
}

/// Create, read and delete many small files [ro92 Fig. 8] [se95 §3]
///
/// Each file is created, written and closed; then everything is made durable and caches are dropped; each file is
/// opened, read and closed, in the order of creation; each is deleted; everything is made durable. Making durable
/// counts into the phase before it. What is read is compared with what was written.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless bench smallfile --on 'lfs / disk:dec-rz26' --profile sparcstation2
  seekless bench smallfile --on 'lfs / file:a.img' --on /mnt --on /tmp --files 2000
  seekless bench smallfile --on 'lfs / disk:cheetah9lp' --json > result.json

A contestant that fails is named, and the others are measured. SIGINT, SIGTERM and SIGHUP end the run; its files are deleted, \
                        and what was measured until then is printed.

Exit codes: 0 measured, 1 failed, 2 wrong usage, 128 and the signal's number when ended by one")]
pub(super) struct SmallfileArgs {
    /// What to measure: a stack, or a directory that begins with / or ./ ; can be given again
    #[arg(long, required = true, value_name = "STACK|DIR")]
    on: Vec<String>,

    /// Number of files
    #[arg(long, default_value_t = SmallFile::default().files)]
    files: u64,

    /// Size of each file in bytes
    #[arg(long, default_value_t = SmallFile::default().bytes)]
    bytes: u64,

    /// Most files in a directory
    #[arg(long, default_value_t = SmallFile::default().files_per_directory, value_name = "COUNT")]
    files_per_directory: u64,

    /// Processor of the machine in virtual time (default none); see `seekless list profiles`
    #[arg(long, value_parser = profile_names())]
    profile: Option<String>,

    /// Which clock stacks run on; directories of the host know real time only
    #[arg(long, value_enum, default_value_t = Clock::Auto)]
    clock: Clock,

    /// Decides what is in the files and, in virtual time, every choice that a run has
    #[arg(long, default_value_t = SmallFile::default().seed)]
    seed: u64,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn profile_names() -> clap::builder::PossibleValuesParser {
    HostProfile::ALL.iter().map(|profile| profile.name).collect::<Vec<_>>().into()
}

/// What to measure, read before anything is done.
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

pub(super) fn smallfile(args: &SmallfileArgs) -> Done {
    let spec = SmallFile {
        files: args.files,
        bytes: args.bytes,
        files_per_directory: args.files_per_directory,
        seed: args.seed,
    };
    spec.check().map_err(|error| Failure::new(error).code(WRONG_USAGE))?;
    let name = args.profile.as_deref().unwrap_or(HostProfile::NONE.name);
    let Some(profile) = HostProfile::named(name) else {
        return Err(Failure::new(format!("there is no processor profile `{name}`")).code(WRONG_USAGE));
    };
    let contestants: Vec<Contestant> =
        args.on.iter().map(|argument| contestant(argument)).collect::<Result<_, Failure>>()?;
    check_clocks(args, &contestants)?;
    // Before there are threads. What has been made on a real mount is to be deleted, whoever ends the run.
    let signals = Signals::new(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])?;
    let ended_by = Cell::new(None);
    let mut report = Report { spec, runs: Vec::new(), failed: Vec::new() };
    for (number, contestant) in contestants.iter().enumerate() {
        let bar = output::progress(spec.files);
        let shown = Cell::new(None);
        let progress = |phase: Phase, done: u64| {
            if let Some(signal) = signals.pending() {
                ended_by.set(Some(signal));
                return ControlFlow::Break(());
            }
            if shown.replace(Some(phase)) != Some(phase) {
                bar.reset();
                bar.set_message(format!("[{}/{}] {}", number + 1, contestants.len(), phase.name()));
            }
            bar.set_position(done);
            ControlFlow::Continue(())
        };
        let run = match contestant {
            Contestant::Directory(directory) => {
                run_in_directory(directory, host(), &spec, &progress).map_err(Failure::new)
            }
            Contestant::Stack(stack) => run_stack(stack, args.clock, profile, &spec, &progress),
        };
        bar.finish_and_clear();
        match run {
            Ok(run) => report.runs.push(run),
            Err(failure) => {
                report.failed.push(Failed { contestant: contestant.to_string(), error: failure.text });
            }
        }
        if ended_by.get().is_some() {
            break;
        }
    }
    match args.json {
        true => output::print_json(&report.to_json())?,
        false if report.runs.is_empty() => {}
        false => output::print(&report.to_text())?,
    }
    let failed: Vec<String> = report
        .failed
        .iter()
        .map(|failed| format!("{} was not measured: {}", failed.contestant, failed.error))
        .collect();
    match (&failed[..], ended_by.get()) {
        ([], _) => Ok(0),
        (_, Some(signal)) => Err(Failure::new(failed.join("\n")).code(128 + signal as u8)),
        (_, None) => Err(Failure::new(failed.join("\n"))),
    }
}

/// Refuses what is said about virtual time where it would be ignored.
fn check_clocks(args: &SmallfileArgs, contestants: &[Contestant]) -> Result<(), Failure> {
    let wrong = |text: String| Err(Failure::new(text).code(WRONG_USAGE));
    let directory = contestants.iter().find(|contestant| matches!(contestant, Contestant::Directory(_)));
    if let (Clock::Virtual, Some(directory)) = (args.clock, directory) {
        return wrong(format!(
            "--clock virtual: {directory} is a directory of the host, which knows real time only\nleave the directory \
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
            output::note(&format!("note: --profile {profile} is for virtual time and does not concern {on_this}"));
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
    clock: Clock,
    profile: HostProfile,
    spec: &SmallFile,
    progress: Progress<'_>,
) -> Result<Run, Failure> {
    if is_virtual(stack, clock) {
        return Ok(simulate(stack, profile, spec, progress)?);
    }
    run_here_in_a_world(stack, spec, progress)
}

/// Runs a stack in real time, in a world of its own.
pub(super) fn run_here_in_a_world(stack: &Stack, spec: &SmallFile, progress: Progress<'_>) -> Result<Run, Failure> {
    let world = World::new()?;
    let leaves = world.leaves();
    world.run(async {
        // There is no kernel above, so the file system itself keeps what was read.
        let usage = Usage { read_only: false, data_cached_above: false };
        let mounted = stack.mount(&world.rt, &leaves, &identity()?, usage).await;
        let mounted = mounted.map_err(|error| explain(stack, &leaves, error))?;
        let files = leaves.files().iter().map(|file| file.path().to_owned()).collect();
        Ok(run_here(&world.rt, stack, mounted, files, spec, progress).await?)
    })
}

/// How directories are synced and read cold: our own mounts need more than the kernel can do.
pub(super) fn host() -> Host {
    Host {
        sync: |directory: &File, path: &Path| match crate::fuse::sync(path) {
            Ok(()) => Ok(()),
            Err(SyncError::NotOurs { .. }) => Ok(rustix::fs::syncfs(directory)?),
            Err(error) => Err(io::Error::other(error.to_string())),
        },
        drop_caches: |path: &Path| match crate::fuse::drop_caches(path) {
            Ok(()) | Err(SyncError::NotOurs { .. }) => Ok(()),
            Err(error) => Err(io::Error::other(error.to_string())),
        },
    }
}
