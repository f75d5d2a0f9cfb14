//! `seekless bench mount`: an experiment about mounts, made of what the command line chooses.

use std::path::{Path, PathBuf};

use seekless::units::human_bytes;
use seekless_lab::experiment::{Experiment, Plan, Results, Row, Stop, Stored};

use super::caller::{Terminal, waits};
use super::conclude::{self, Origin, this_program};
use super::size::Size;
use super::sweep::{INTERRUPTED, Sweep, Wanted, of_results};
use super::{Done, Failure, WRONG_USAGE, output};
use crate::mount_bench::{self, CONTESTANTS, Contestant, MountBench, PHASES, Phase, Sizes, describe, table};
use crate::reactor::Signals;

/// Mounts of this machine: ours, those of the kernel and those of others, on storage that is the same for all
///
/// Each contestant gets a new file system, on an image file or on a loop device over it, and a client process does one phase
/// after another on its mount. All contestants take turns, round after round, so that other load disturbs all of them alike;
/// medians count. `pinned` is client and daemon on one processor, `natural` is as the scheduler places them. Beside the time
/// are the processor time of client and daemon, and the flushes and bytes that reached the block device below.
///
/// What was measured is not measured again: the same command continues an interrupted run. Root only. Mounts, loop devices
/// and files are in a scratch directory, in a mount namespace of their own, and are removed at the end.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless bench mount --list
  seekless bench mount --quick
  seekless bench mount --contestants lfs,ext4,null --phases create,delete --rounds 5 --pinned
  seekless bench mount --of results/bench-mount --ours zstd --beside gocryptfs,btrfs-zstd
  seekless report results/bench-mount -o mounts.html

Exit codes: 0 measured, 1 something was not measured, 2 wrong usage, 130 interrupted")]
pub(super) struct Args {
    /// Who takes part, with commas between them; by default all that are installed and are not extra
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = contestant_names())]
    contestants: Vec<String>,

    /// What they do, with commas between them; by default all that is not long
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = phase_names())]
    phases: Vec<String>,

    /// How often; what counts are medians. 3 without, 1 with --quick
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,

    /// Client and daemon on one processor; without this and --natural both are measured
    #[arg(long)]
    pinned: bool,

    /// As the scheduler places them
    #[arg(long)]
    natural: bool,

    /// Small files of a phase; five times as many names in the large directory
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    files: Option<u64>,

    /// Size of a large file
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,

    /// Operations that are made durable one by one
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    syncs: Option<u64>,

    /// A directory whose files `untar`, `read-tree` and `rm-rf` work on, in place of 600 small ones
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,

    /// Size of the image below each file system; by default 1 GiB, and 6 GiB more for a million names
    #[arg(long, value_name = "SIZE")]
    image: Option<Size>,

    /// The image is a hole at first, and not written from beginning to end
    #[arg(long)]
    sparse: bool,

    /// Loop devices by-pass the page cache of the host
    #[arg(long)]
    loop_direct: bool,

    /// Everything is on an ext4 of its own, on a loop device in the scratch directory: then flushes and bytes of other programs
    /// are not counted, and all contestants have one more file system below them
    #[arg(long)]
    own_device: bool,

    /// Where the scratch directory is made, which decides what stores the images
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    scratch: PathBuf,

    /// Where the results go; results/bench-mount without, results/bench-mount-quick with --quick
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Little of everything, once, on a sparse image, with ext4, null and lfs, pinned, unless others are named: to see whether it
    /// works, not to conclude from
    #[arg(long)]
    quick: bool,

    /// Wait while another one is measuring, which is otherwise an error
    #[arg(long)]
    wait: bool,

    /// Contestants of the first table
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "lfs", value_parser = contestant_names())]
    ours: Vec<String>,

    /// Those with which they are compared there
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "ext4,null", value_parser = contestant_names())]
    beside: Vec<String>,

    /// Print the tables of these results, and measure nothing
    #[arg(long, value_name = "RESULTS", conflicts_with_all = ["contestants", "phases", "out", "quick", "list"])]
    of: Option<PathBuf>,

    /// Print contestants and phases, and whether they are possible here
    #[arg(long)]
    list: bool,

    /// Print the first table only, and of it the times
    #[arg(long)]
    brief: bool,

    /// Print JSON, one line for each row
    #[arg(long)]
    json: bool,
}

fn contestant_names() -> clap::builder::PossibleValuesParser {
    CONTESTANTS.iter().map(|contestant| contestant.name).collect::<Vec<_>>().into()
}

fn phase_names() -> clap::builder::PossibleValuesParser {
    PHASES.iter().map(|phase| phase.name).collect::<Vec<_>>().into()
}

pub(super) fn run(args: &Args) -> Done {
    if args.list {
        return output::print(&list()).map(|()| 0);
    }
    if let Some(folder) = &args.of {
        let stored = Stored::read(folder)?;
        print(args, &stored.description.about, &stored.rows, folder)?;
        return Ok(0);
    }
    let folder = args.out.clone().unwrap_or_else(|| default_folder(args.quick));
    apart(args, &folder)?;
    if !rustix::process::geteuid().is_root() {
        let why = "it makes loop devices, mounts file systems and empties caches, which only root may do";
        return Err(Failure::new(why).hint("run it with sudo; --list and --of do not need root").code(WRONG_USAGE));
    }
    let tree_state = tree_state(args)?;
    let experiment = experiment(args, &tree_state)?;
    let program = this_program()?;
    let plan = Plan::new(&experiment, &program).map_err(|error| Failure::new(error).code(WRONG_USAGE))?;
    // Before there are threads, so that none of them takes the signals.
    let signals = Signals::new(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])?;
    let terminal = Terminal::new(output::points(0), Some(&signals));
    let mut results = Results::open(&folder, &plan, &waits(&terminal)).map_err(of_results)?;
    let rounds = args.rounds.unwrap_or(if args.quick { 1 } else { 3 });
    let every = vec![true; plan.points.len()];
    let simulated = vec![false; plan.points.len()];
    let wanted = Wanted::new(&plan, &every, &simulated, |point| results.rounds(point), usize::from(rounds));
    let (all, to_do) = (wanted.all, wanted.left());
    if to_do < all {
        output::note(&format!("{} of {all} points are already measured", all - to_do));
    }
    let origin = Origin::new(&experiment, program, 1);
    let bench = match to_do {
        0 => None,
        _ => {
            let bench = MountBench::new(&args.scratch, args.own_device, args.tree.as_deref(), args.wait);
            let bench = bench.map_err(Failure::new)?;
            unchanged(args, &tree_state)?;
            Some(bench)
        }
    };
    let stop = Stop::default();
    let sweep = Sweep {
        experiment: &experiment,
        plan: &plan,
        folder: &folder,
        all,
        stop: &stop,
        caller: &terminal,
        origin: &origin,
        mounts: bench.as_ref(),
    };
    let ended = sweep.measure(wanted, 1, &mut results);
    terminal.clear();
    drop(bench);
    let ended = ended?;
    if ended.interrupted {
        return Ok(INTERRUPTED);
    }
    let provenance = origin.provenance(ended.measured, &results, &plan);
    let rows = results.finish(&experiment, &plan, &provenance, &waits(&terminal)).map_err(of_results)?;
    print(args, &experiment.description.about, &rows, &folder)?;
    if ended.failed.is_empty() {
        return Ok(0);
    }
    let mut lines: Vec<String> =
        ended.failed.iter().take(SHOWN).map(|(name, problem)| format!("{name}: {problem}")).collect();
    if ended.failed.len() > SHOWN {
        lines.push(format!("{} more points failed", ended.failed.len() - SHOWN));
    }
    let failure = Failure::new(lines.join("\n"));
    Err(failure.hint(format!("the other points are in {}; the same command tries again", folder.display())))
}

/// Failures that are printed: where each point fails, for example because the disk is full, they say the same.
const SHOWN: usize = 10;

fn default_folder(quick: bool) -> PathBuf {
    Path::new("results").join(if quick { "bench-mount-quick" } else { "bench-mount" })
}

/// What is chosen, as an experiment.
fn experiment(args: &Args, tree_state: &str) -> Result<Experiment, Failure> {
    let (contestants, left_out) = chosen_contestants(args)?;
    let phases = chosen_phases(args)?;
    let scratch = std::fs::canonicalize(&args.scratch);
    let scratch = scratch.map_err(|error| {
        Failure::new(format!("cannot find {}: {error}", args.scratch.display()))
            .hint("--scratch names a directory on the storage that is to be measured")
            .code(WRONG_USAGE)
    })?;
    let bytes = |given: Option<Size>, default: u64| given.map_or(default, |size| size.0);
    let sizes = if args.quick { Sizes::QUICK } else { Sizes::DEFAULT };
    let files = args.files.unwrap_or(sizes.files);
    let sizes = Sizes {
        files,
        large: bytes(args.size, sizes.large),
        syncs: args.syncs.unwrap_or(sizes.syncs),
        image: bytes(args.image, sizes.image + Sizes::room_for(&phases, files)),
    };
    if sizes.image < 3 * sizes.large {
        let problem = format!(
            "an image of {} has no room for files of {}, of which a contestant writes two",
            human_bytes(sizes.image),
            human_bytes(sizes.large)
        );
        return Err(Failure::new(problem).hint("--image gives it more, --size makes them smaller").code(WRONG_USAGE));
    }
    let setting = describe::Setting {
        contestants,
        left_out,
        phases,
        placements: match (args.pinned, args.natural) {
            (true, false) => vec!["pinned"],
            (false, true) => vec!["natural"],
            (false, false) if args.quick => vec!["pinned"],
            _ => vec!["pinned", "natural"],
        },
        sizes,
        sparse: args.sparse || args.quick,
        loop_direct: args.loop_direct,
        own_device: args.own_device,
        tree: tree(args)?,
        tree_state: tree_state.to_owned(),
        below: mount_bench::storage_of(&scratch),
        quick: args.quick,
    };
    Ok(describe::experiment(&setting))
}

/// The directory whose files are unpacked, as it identifies a measurement.
fn tree(args: &Args) -> Result<String, Failure> {
    let Some(tree) = &args.tree else { return Ok(String::new()) };
    match std::fs::canonicalize(tree) {
        // Braces would name variables of the experiment.
        Ok(path) if path.is_dir() && !path.to_string_lossy().contains(['{', '}']) => Ok(path.display().to_string()),
        Ok(_) => Err(Failure::new(format!("--tree {}: name a directory, without braces in its path", tree.display()))),
        Err(error) => Err(Failure::new(format!("cannot find {}: {error}", tree.display()))),
    }
    .map_err(|failure| failure.code(WRONG_USAGE))
}

/// Fails when this run would write into the tree, which then were another one at each look, and never the one that was measured.
fn apart(args: &Args, folder: &Path) -> Result<(), Failure> {
    let tree = match tree(args)? {
        tree if tree.is_empty() => return Ok(()),
        tree => PathBuf::from(tree),
    };
    let written = [("the scratch directory is made", "--scratch", &*args.scratch), ("the results go", "--out", folder)];
    for (what, option, path) in written {
        if real_path(path).starts_with(&tree) {
            let problem = format!("{what} in {}, which is inside the tree {}", path.display(), tree.display());
            let hint = format!(
                "files there would change the tree while it is measured: {option} names a directory outside of it"
            );
            return Err(Failure::new(problem).hint(hint).code(WRONG_USAGE));
        }
    }
    Ok(())
}

/// With links resolved, also of a directory that is still to be made.
fn real_path(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let real = |there: &Path| Some(std::fs::canonicalize(there).ok()?.join(whole.strip_prefix(there).ok()?));
    whole.ancestors().find_map(real).unwrap_or_else(|| whole.clone())
}

/// In which state it is.
fn tree_state(args: &Args) -> Result<String, Failure> {
    match tree(args)?.as_str() {
        "" => Ok(String::new()),
        tree => mount_bench::state_of(Path::new(tree)).map_err(Failure::new),
    }
}

/// Fails when the tree has changed before it was copied, as while another bench was waited for: the results would be kept as
/// those of the old tree.
fn unchanged(args: &Args, state: &str) -> Result<(), Failure> {
    if tree_state(args)? == state {
        return Ok(());
    }
    let problem = "the files of --tree have changed since this run began";
    Err(Failure::new(problem).hint("start it again: results of the changed tree are kept separately"))
}

/// Those that take part in a quick run where none are named.
const QUICK: &[&str] = &["ext4", "null", "lfs"];

/// Those that take part, and why others do not.
fn chosen_contestants(args: &Args) -> Result<(Vec<&'static Contestant>, Vec<String>), Failure> {
    let is_named = |contestant: &Contestant| args.contestants.iter().any(|name| name == contestant.name);
    let is_chosen = |contestant: &&Contestant| match args.contestants.is_empty() {
        true if args.quick => QUICK.contains(&contestant.name),
        true => !contestant.is_extra,
        false => is_named(contestant),
    };
    let mut left_out = Vec::new();
    let mut chosen = Vec::new();
    for contestant in CONTESTANTS.iter().filter(is_chosen) {
        match contestant.missing() {
            None => chosen.push(contestant),
            Some(why) => left_out.push(format!("{} ({why})", contestant.name)),
        }
    }
    if !left_out.is_empty() {
        output::note(&format!("left out: {}", left_out.join(", ")));
    }
    match chosen.is_empty() {
        true => Err(Failure::new("no contestant is left").hint("--list says what each needs").code(WRONG_USAGE)),
        false => Ok((chosen, left_out)),
    }
}

fn chosen_phases(args: &Args) -> Result<Vec<&'static Phase>, Failure> {
    let is_chosen = |phase: &&Phase| match args.phases.is_empty() {
        true => !phase.is_long,
        false => args.phases.iter().any(|name| name == phase.name),
    };
    let chosen = PHASES.iter().filter(is_chosen);
    let (can, cannot): (Vec<&Phase>, Vec<&Phase>) = chosen.partition(|phase| phase.missing().is_none());
    for phase in cannot {
        output::note(&format!("left out: {} ({})", phase.name, phase.missing().unwrap_or_default()));
    }
    match can.is_empty() {
        true => Err(Failure::new("no phase is left").hint("--list says what each needs").code(WRONG_USAGE)),
        false => Ok(can),
    }
}

fn list() -> String {
    let line = |name: &str, help: &str, notes: &[Option<String>]| {
        let notes: Vec<&str> = notes.iter().flatten().map(String::as_str).collect();
        let notes = if notes.is_empty() { String::new() } else { format!(" [{}]", notes.join("; ")) };
        format!("  {name:20} {help}{notes}\n")
    };
    let mut text = "Contestants\n".to_owned();
    for contestant in CONTESTANTS {
        let extra = contestant.is_extra.then(|| "extra".to_owned());
        text += &line(contestant.name, contestant.help, &[extra, contestant.missing()]);
    }
    text += "\nPhases\n";
    for phase in PHASES {
        let long = phase.is_long.then(|| "long".to_owned());
        text += &line(phase.name, phase.help, &[long, phase.missing()]);
    }
    text
}

fn print(args: &Args, about: &str, rows: &[Row], folder: &Path) -> Result<(), Failure> {
    if args.json {
        return output::print_raw(&conclude::to_json(rows, &[], &[]));
    }
    let page = seekless::stack::quoted_path(folder);
    let mut text = format!("{about}\n");
    for ours in &args.ours {
        text += &table::beside(rows, ours, &args.beside, !args.brief);
    }
    if !args.brief {
        text += &table::all(rows);
    }
    output::print(&format!("{text}\nFor a page: seekless report {page} -o bench-mount.html\n"))
}
