//! `seekless bench`

use std::cell::{Cell, RefCell};
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::str::FromStr;

use seekless::rt::HostProfile;
use seekless::stack::{Stack, Target, Usage, Value, read_bytes};
use seekless_lab::report::Report;
use seekless_lab::run::{Failed, Run, can_be_simulated, run_here, run_in_directory, simulate};
use seekless_lab::target::Host;
use seekless_lab::workload::aged::Aged;
use seekless_lab::workload::build::Build;
use seekless_lab::workload::largefile::LargeFile;
use seekless_lab::workload::postmark::PostMark;
use seekless_lab::workload::sizes::Sizes;
use seekless_lab::workload::smallfile::SmallFile;
use seekless_lab::workload::tpcb::TpcB;
use seekless_lab::workload::{Step, Watch, Workload};

use super::world::{World, explain, identity};
use super::{Done, Failure, WRONG_USAGE, output, read_stack};
use crate::fuse::SyncError;
use crate::reactor::Signals;

/// Run a benchmark on stacks and directories
#[derive(clap::Subcommand)]
pub(super) enum Bench {
    Smallfile(SmallfileArgs),
    Largefile(LargefileArgs),
    Sizes(SizesArgs),
    Aged(AgedArgs),
    Postmark(PostmarkArgs),
    Tpcb(TpcbArgs),
    Build(BuildArgs),
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

Exit codes: 0 measured, 1 failed, 2 wrong usage")]
pub(super) struct SmallfileArgs {
    #[command(flatten)]
    common: Common,

    /// Number of files
    #[arg(long, default_value_t = SmallFile::default().files)]
    files: u64,

    /// Size of each file in bytes
    #[arg(long, default_value_t = SmallFile::default().bytes)]
    bytes: u64,

    /// Most files in a directory
    #[arg(long, default_value_t = SmallFile::default().files_per_directory, value_name = "COUNT")]
    files_per_directory: u64,

    /// Decides what is in the files and, in virtual time, every choice that a run has
    #[arg(long, default_value_t = SmallFile::default().seed)]
    seed: u64,
}

/// Write and read one large file, in order and at random [ro92 Fig. 9] [se95 §3]
///
/// Five phases: written in order, read in order, rewritten at random, read at random, read in order again. Each unit is
/// touched once in each phase. Making durable counts into the phases that write; those that read begin cold.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless bench largefile --on 'lfs / disk:dec-rz26' --profile sparcstation2
  seekless bench largefile --on /mnt --on /tmp --bytes 1GiB --unit 64KiB

Exit codes: 0 measured, 1 failed, 2 wrong usage")]
pub(super) struct LargefileArgs {
    #[command(flatten)]
    common: Common,

    /// Size of the file
    #[arg(long, default_value_t = Size(LargeFile::default().bytes))]
    bytes: Size,

    /// Size of each read and write
    #[arg(long, default_value_t = Size(LargeFile::default().unit))]
    unit: Size,

    /// Decides what is in the file, and the random orders
    #[arg(long, default_value_t = LargeFile::default().seed)]
    seed: u64,
}

/// Create, read, overwrite and delete the same data in files of each size [se95 §3]
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless bench sizes --on 'lfs / disk:dec-rz26' --profile sparcstation2
  seekless bench sizes --on /mnt --smallest 4KiB --largest 1MiB --bytes 8MiB

Exit codes: 0 measured, 1 failed, 2 wrong usage")]
pub(super) struct SizesArgs {
    #[command(flatten)]
    common: Common,

    /// The first size; each is twice the one before
    #[arg(long, default_value_t = Size(Sizes::default().smallest))]
    smallest: Size,

    /// No size is larger
    #[arg(long, default_value_t = Size(Sizes::default().largest))]
    largest: Size,

    /// Data in the files of one size together
    #[arg(long, default_value_t = Size(Sizes::default().bytes))]
    bytes: Size,

    /// Size of each read and write, at most
    #[arg(long, default_value_t = Size(Sizes::default().unit))]
    unit: Size,

    /// Most files in a directory
    #[arg(long, default_value_t = Sizes::default().files_per_directory, value_name = "COUNT")]
    files_per_directory: u64,

    /// Decides what is in the files
    #[arg(long, default_value_t = Sizes::default().seed)]
    seed: u64,
}

/// The sweep of sizes on a file system whose free space is in pieces, as after long use [se95 §5]
///
/// The file system is filled with files of one block, which are then deleted in runs until it is as full as is said. On a
/// directory this fills the file system that it is in.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless bench aged --on 'ffs:profile=m8r0 / disk:m2694exa' --profile sparcstation1 --full 75
  seekless bench aged --on 'ffs:profile=m8r0 / disk:m2694exa' --profile sparcstation1 --full 0

Exit codes: 0 measured, 1 failed, 2 wrong usage")]
pub(super) struct AgedArgs {
    #[command(flatten)]
    common: Common,

    /// How full the file system is when the sweep begins, in per cent; 0: empty
    #[arg(long, default_value_t = Aged::default().full, value_name = "PERCENT")]
    full: u64,

    /// Size of the files that fill it: a block of the file system
    #[arg(long, default_value_t = Size(Aged::default().block))]
    block: Size,

    /// The first size; each is twice the one before it
    #[arg(long, default_value_t = Size(Aged::default().smallest))]
    smallest: Size,

    /// No size is larger
    #[arg(long, default_value_t = Size(Aged::default().largest))]
    largest: Size,

    /// Data in the files of one size together
    #[arg(long, default_value_t = Size(Aged::default().bytes))]
    bytes: Size,

    /// Files in each directory
    #[arg(long, default_value_t = Aged::default().files_per_directory, value_name = "COUNT")]
    files_per_directory: u64,

    /// Decides which space is free, and what is in the files
    #[arg(long, default_value_t = Aged::default().seed)]
    seed: u64,
}

/// Many small files that live a short time, as in mail and news (PostMark)
///
/// A pool of files is created; each transaction reads a file or appends to one, and creates or deletes one; all files are
/// deleted.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless bench postmark --on 'lfs / disk:cheetah9lp' --files 1000 --transactions 20000
  seekless bench postmark --on /mnt --on /tmp --directories 20

Exit codes: 0 measured, 1 failed, 2 wrong usage")]
pub(super) struct PostmarkArgs {
    #[command(flatten)]
    common: Common,

    /// Files at the start
    #[arg(long, default_value_t = PostMark::default().files)]
    files: u64,

    #[arg(long, default_value_t = PostMark::default().transactions)]
    transactions: u64,

    /// Smallest size of a new file
    #[arg(long, default_value_t = Size(PostMark::default().smallest))]
    smallest: Size,

    /// Largest size of a file
    #[arg(long, default_value_t = Size(PostMark::default().largest))]
    largest: Size,

    /// Directories that the files are spread over
    #[arg(long, default_value_t = PostMark::default().directories)]
    directories: u64,

    /// Size of each read
    #[arg(long, default_value_t = Size(PostMark::default().read_unit))]
    read_unit: Size,

    /// Size of each write
    #[arg(long, default_value_t = Size(PostMark::default().write_unit))]
    write_unit: Size,

    /// Of ten transactions, how many read rather than append
    #[arg(long, default_value_t = PostMark::default().read_bias)]
    read_bias: u64,

    /// Of ten transactions, how many create rather than delete
    #[arg(long, default_value_t = PostMark::default().create_bias)]
    create_bias: u64,

    /// Decides sizes and transactions
    #[arg(long, default_value_t = PostMark::default().seed)]
    seed: u64,
}

/// Transactions on a bank's accounts, by a database with its own cache and log [se95 §4]
///
/// Each changes an account at random, its teller and its branch, and adds to the history. At the end all sums must agree.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless bench tpcb --on 'lfs / disk:dec-rz26' --log 'lfs / disk:dec-rz26' --profile sparcstation2
  seekless bench tpcb --on /mnt --accounts 100000 --bytes 24MiB --commits-wait

Exit codes: 0 measured, 1 failed, 2 wrong usage")]
pub(super) struct TpcbArgs {
    #[command(flatten)]
    common: Common,

    /// In virtual time, what the log is on; without, it is on what is measured
    #[arg(long, value_name = "STACK")]
    log: Option<String>,

    #[arg(long, default_value_t = TpcB::default().accounts)]
    accounts: u64,

    /// Size of the account file, about
    #[arg(long, default_value_t = Size(TpcB::default().bytes))]
    bytes: Size,

    /// Size of the database's own cache
    #[arg(long, default_value_t = Size(TpcB::default().cache))]
    cache: Size,

    /// Transactions before the measured ones
    #[arg(long, default_value_t = TpcB::default().warmup)]
    warmup: u64,

    #[arg(long, default_value_t = TpcB::default().transactions)]
    transactions: u64,

    /// Each commit waits until the log is durable
    #[arg(long)]
    commits_wait: bool,

    /// How full the file system is when the database is loaded, in per cent, by a file that only takes up room
    #[arg(long, default_value_t = TpcB::default().full, value_name = "PERCENT")]
    full: u64,

    /// Decides accounts, tellers and amounts
    #[arg(long, default_value_t = TpcB::default().seed)]
    seed: u64,
}

/// Make, copy, look through, read and compile a source tree (after the Andrew benchmark)
///
/// What a compiler computes takes time in virtual time only: see --compile.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless bench build --on 'lfs / disk:wren4' --compile 20000
  seekless bench build --on /mnt --on /tmp --files 2000 --bytes 16MiB --directories 100

Exit codes: 0 measured, 1 failed, 2 wrong usage")]
pub(super) struct BuildArgs {
    #[command(flatten)]
    common: Common,

    /// Source files
    #[arg(long, default_value_t = Build::default().files)]
    files: u64,

    /// Size of all sources together, about
    #[arg(long, default_value_t = Size(Build::default().bytes))]
    bytes: Size,

    #[arg(long, default_value_t = Build::default().directories)]
    directories: u64,

    /// Microseconds of the processor to compile 1 KiB, in virtual time
    #[arg(long, default_value_t = Build::default().compile_us_per_kib, value_name = "MICROSECONDS")]
    compile: u64,

    /// Decides what is in the files, and how long they are
    #[arg(long, default_value_t = Build::default().seed)]
    seed: u64,
}

/// A number of bytes, written as in a stack line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Size(u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        read_bytes(text).map(Size)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Value::Bytes(self.0).fmt(f)
    }
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

pub(super) fn run(bench: &Bench) -> Done {
    match bench {
        Bench::Smallfile(args) => {
            let SmallfileArgs { files, bytes, files_per_directory, seed, .. } = *args;
            measure(&args.common, None, SmallFile { files, bytes, files_per_directory, seed })
        }
        Bench::Largefile(args) => measure(
            &args.common,
            None,
            LargeFile { bytes: args.bytes.0, unit: args.unit.0, sync: false, seed: args.seed },
        ),
        Bench::Sizes(args) => {
            let SizesArgs { smallest, largest, bytes, unit, files_per_directory, seed, .. } = *args;
            let (smallest, largest, bytes, unit) = (smallest.0, largest.0, bytes.0, unit.0);
            measure(
                &args.common,
                None,
                Sizes { smallest, largest, bytes, unit, files_per_directory, seed, ..Sizes::default() },
            )
        }
        Bench::Aged(args) => {
            let AgedArgs { full, block, smallest, largest, bytes, files_per_directory, seed, .. } = *args;
            let (block, smallest, largest, bytes) = (block.0, smallest.0, largest.0, bytes.0);
            measure(&args.common, None, Aged { full, block, smallest, largest, bytes, files_per_directory, seed })
        }
        Bench::Postmark(args) => {
            let spec = PostMark {
                files: args.files,
                transactions: args.transactions,
                smallest: args.smallest.0,
                largest: args.largest.0,
                directories: args.directories,
                read_unit: args.read_unit.0,
                write_unit: args.write_unit.0,
                read_bias: args.read_bias,
                create_bias: args.create_bias,
                seed: args.seed,
            };
            measure(&args.common, None, spec)
        }
        Bench::Tpcb(args) => {
            let log = args.log.as_deref().map(read_stack).transpose()?;
            if let Some(log) = log.as_ref().filter(|log| !can_be_simulated(log)) {
                let problem = format!("--log {log}: it is for virtual time, and this lies in the real world");
                let hint = "leave it out, and the log is on what is measured; or model a disk: 'lfs / disk:dec-rz26'";
                return Err(Failure::new(problem).hint(hint).code(WRONG_USAGE));
            }
            let spec = TpcB {
                accounts: args.accounts,
                bytes: args.bytes.0,
                cache: args.cache.0,
                warmup: args.warmup,
                transactions: args.transactions,
                commits_wait: args.commits_wait,
                full: args.full,
                seed: args.seed,
            };
            measure(&args.common, log.as_ref(), spec)
        }
        Bench::Build(args) => {
            let BuildArgs { files, bytes, directories, compile, seed, .. } = *args;
            measure(
                &args.common,
                None,
                Build { files, bytes: bytes.0, directories, compile_us_per_kib: compile, seed, ..Build::default() },
            )
        }
    }
}

fn measure<W: Workload + Copy>(args: &Common, log: Option<&Stack>, spec: W) -> Done {
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
        let bar = output::progress(1);
        let shown = RefCell::new(String::new());
        let watch = |step: Step<'_>| {
            if let Some(signal) = signals.pending() {
                ended_by.set(Some(signal));
                return ControlFlow::Break(());
            }
            // The total tells phases of the same name apart.
            let name = format!("[{}/{}] {}", number + 1, contestants.len(), step.phase);
            if *shown.borrow() != name || bar.length() != Some(step.total) {
                bar.reset();
                bar.set_length(step.total);
                bar.set_message(name.clone());
                shown.replace(name);
            }
            bar.set_position(step.done);
            ControlFlow::Continue(())
        };
        let run = match contestant {
            Contestant::Directory(directory) => {
                run_in_directory(directory, host(), &spec, &watch).map_err(Failure::new)
            }
            Contestant::Stack(stack) => run_stack(stack, log, args.clock, profile, &spec, &watch),
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
fn check_clocks(args: &Common, contestants: &[Contestant]) -> Result<(), Failure> {
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

fn run_stack<W: Workload>(
    stack: &Stack,
    log: Option<&Stack>,
    clock: Clock,
    profile: HostProfile,
    spec: &W,
    watch: Watch<'_>,
) -> Result<Run, Failure> {
    if is_virtual(stack, clock) {
        return Ok(simulate(stack, log, profile, spec, watch)?);
    }
    run_here_in_a_world(stack, spec, watch)
}

/// Runs a stack in real time, in a world of its own.
pub(super) fn run_here_in_a_world<W: Workload>(stack: &Stack, spec: &W, watch: Watch<'_>) -> Result<Run, Failure> {
    let world = World::new()?;
    let leaves = world.leaves();
    world.run(async {
        // There is no kernel above, so the file system itself keeps what was read.
        let usage = Usage { read_only: false, data_cached_above: false };
        let mounted = stack.mount(&world.rt, &leaves, &identity()?, usage).await;
        let mounted = mounted.map_err(|error| explain(stack, &leaves, error))?;
        let files = leaves.files().iter().map(|file| file.path().to_owned()).collect();
        Ok(run_here(&world.rt, stack, mounted, files, spec, watch).await?)
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
