//! `seekless merge`: one folder of results from those of shards.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use seekless_lab::experiment::{Foreign, Plan, Results, SHARDS_MAX, Stored, patiently};

use super::conclude::{self, Origin, Show, missing, this_program};
use super::run::{Which, installed};
use super::sweep::is_simulated;
use super::{Done, Failure, WRONG_USAGE, output};

/// Put the results of shards together, and check what the experiment claims
///
/// Reads the folders that seekless run --shard has left, on whatever machines, and makes the folder that one run of the
/// whole experiment would have made. The folders may be of runs that were killed, may overlap, and may be merged again
/// later: what is there is not added twice, and points that two of them measured in virtual time have to be the same.
#[derive(clap::Args)]
#[command(
    after_help = "Every shard has to come from this very program, since results of another one are not used. What no folder has is \
                        named; seekless run --out with the merged folder measures just that.

Examples:
  seekless run experiments/st05-fig6 --shard 1/2
  seekless run experiments/st05-fig6 --shard 2/2
  seekless merge experiments/st05-fig6 results/st05-fig6.*-of-2 --dry-run
  seekless merge experiments/st05-fig6 results/st05-fig6.*-of-2
  seekless report results/st05-fig6 -o fig6.html

Exit codes: 0 complete, 1 failed, points are missing, or with --check a claim did not hold or had no rows, 2 wrong usage"
)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,

    /// Folders of results
    #[arg(required = true, value_name = "RESULTS")]
    from: Vec<PathBuf>,

    /// Where the results go; results/NAME without, and results/NAME-quick with --quick
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Say how many points the folders and --out have, and what is missing; write nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    show: Show,
}

/// Missing points, or shards, that are named; of more, the number.
const NAMED_MAX: usize = 10;

pub(super) fn run(args: &Args) -> Done {
    let experiment = args.which.read(installed)?;
    let program = this_program()?;
    let plan = args.which.plan(&experiment, &program)?;
    let folder = args.out.clone().unwrap_or_else(|| args.which.results(&experiment, None));
    check_quick(args, &plan, &folder, &program)?;
    if args.dry_run {
        return count(args, &plan, &folder);
    }
    // Signals end this at any time, with their default action.
    let mut results = Results::open(&folder, &plan, &patiently)?;
    let (mut added, mut origins) = (0, Vec::new());
    let bar = output::points(args.from.len() as u64);
    for from in &args.from {
        bar.set_message(from.display().to_string());
        let merged =
            results.merge(from, &plan, |point| is_simulated(&experiment, point).unwrap_or(false), &patiently)?;
        added += merged.added;
        bar.suspend(|| left_out(from, &merged.foreign));
        origins.extend(Results::provenance_of(from)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let origin = Origin::new(&experiment, program, 0).merged(origins);
    let provenance = origin.provenance(added, &results, &plan);
    let rows = results.finish(&experiment, &plan, &provenance, &patiently)?;
    let missing = missing(&results, &plan);
    if missing.is_empty() {
        return conclude::print(&experiment, &rows, &folder, args.which.quick, &args.show);
    }
    if args.show.json {
        output::print_raw(&conclude::to_json(&rows, &[], &[]))?;
    }
    Err(lacks(args, &plan, &missing, &folder))
}

/// The folders that are merged, and the one into which they are if it has points already.
fn with_merged(args: &Args, folder: &Path) -> Vec<PathBuf> {
    let mut folders = args.from.clone();
    if Results::are_in(folder) && !folders.iter().any(|from| from == folder) {
        folders.push(folder.to_owned());
    }
    folders
}

/// Fails where points are missing because the shards were run with `--quick` and are merged without, or the other way round: then the
/// folders have more points of that, or as many and each says that it is of that.
fn check_quick(args: &Args, plan: &Plan, folder: &Path, program: &str) -> Result<(), Failure> {
    let missing = plan.points.len() - Results::count(&with_merged(args, folder), plan)?.0.len();
    let other = args.which.otherwise();
    // An experiment whose other form is wrong has no results of it.
    let Ok(other_plan) = other.read(installed).and_then(|experiment| other.plan(&experiment, program)) else {
        return Ok(());
    };
    let of = |plan: &Plan| Results::count(&args.from, plan).map(|(there, _)| there.len());
    let (here, there, all) = (of(plan)?, of(&other_plan)?, other_plan.points.len());
    let says_so = |from: &PathBuf| Stored::read(from).is_ok_and(|stored| stored.description.is_quick == other.quick);
    let is_other = there > here || there == here && there > 0 && args.from.iter().all(says_so);
    if missing == 0 || !is_other {
        return Ok(());
    }
    let (run, merged) = if other.quick { ("with", "without") } else { ("without", "with") };
    let problem = format!(
        "these shards were run {run} --quick, and are merged {merged} it: they have {there} of the {all} points {run} --quick, and \
         {here} of the {} points {merged} it",
        plan.points.len()
    );
    let out = args.out.as_ref().map_or_else(String::new, |out| format!(" --out {}", seekless::stack::quoted_path(out)));
    let from: Vec<String> = args.from.iter().map(|from| seekless::stack::quoted_path(from)).collect();
    let from = if from.len() > NAMED_MAX { "RESULTS...".to_owned() } else { from.join(" ") };
    Err(Failure::new(problem).hint(format!("seekless merge {} {from}{out}", other.words())).code(WRONG_USAGE))
}

/// How far a sweep is, with what `folder` has already.
fn count(args: &Args, plan: &Plan, folder: &Path) -> Done {
    let folders = with_merged(args, folder);
    let (there, foreign) = Results::count(&folders, plan)?;
    for (from, foreign) in folders.iter().zip(&foreign) {
        left_out(from, foreign);
    }
    output::print(&format!("{} of {} points are measured\n", there.len(), plan.points.len()))?;
    let missing: Vec<usize> =
        (0..plan.points.len()).filter(|&index| !there.contains(&plan.points[index].key)).collect();
    match missing.is_empty() {
        true => Ok(0),
        false => Err(lacks(args, plan, &missing, folder)),
    }
}

fn left_out(from: &Path, foreign: &Foreign) {
    if foreign.count() > 0 {
        output::note(&format!("{}: left out: {foreign}", from.display()));
    }
}

/// What is missing, and what to do.
fn lacks(args: &Args, plan: &Plan, missing: &[usize], folder: &Path) -> Failure {
    let names = missing.iter().map(|&point| plan.name_of(point));
    let text = format!("{} of {} points are missing:\n  {}", missing.len(), plan.points.len(), some(names, "\n  "));
    let absent = match absent(&args.from) {
        Some((absent, count)) => format!(
            "of {count} shards, these are not among the folders: {}\n",
            some(absent.iter().map(ToString::to_string), ", ")
        ),
        None => String::new(),
    };
    let here = format!("seekless run {} --out {}", args.which.words(), seekless::stack::quoted_path(folder));
    Failure::new(text)
        .hint(format!("{absent}run the shards that lack them again and merge, or measure them here: {here}"))
}

/// The first names, and how many more there are.
fn some(names: impl ExactSizeIterator<Item = String>, between: &str) -> String {
    let more = names.len().saturating_sub(NAMED_MAX);
    let named: Vec<String> = names.take(NAMED_MAX).collect();
    match more {
        0 => named.join(between),
        _ => format!("{}{between}and {more} more", named.join(between)),
    }
}

/// Shards that no folder is of, and how many there are, where the folders have the names that `--shard` gives them.
fn absent(folders: &[PathBuf]) -> Option<(Vec<usize>, usize)> {
    let shard = |folder: &PathBuf| -> Option<(usize, usize)> {
        let (_, shard) = folder.file_name()?.to_str()?.rsplit_once('.')?;
        let (index, count) = shard.split_once("-of-")?;
        Some((index.parse().ok()?, count.parse().ok()?))
    };
    let shards: Vec<(usize, usize)> = folders.iter().map(shard).collect::<Option<_>>()?;
    let count = shards.first()?.1;
    if shards.iter().any(|&(_, other)| other != count) {
        return None;
    }
    let there: BTreeSet<usize> = shards.into_iter().map(|(index, _)| index).collect();
    let absent: Vec<usize> = (1..=count.min(SHARDS_MAX)).filter(|index| !there.contains(index)).collect();
    (!absent.is_empty()).then_some((absent, count))
}
