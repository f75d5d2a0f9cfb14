//! `seekless run`: an experiment on all cores, continuing where its last run ended.

use std::path::{Path, PathBuf};
use std::time::Duration;

use seekless::stack::{Stack, nearest, quoted_path};
use seekless::units::counted;
use seekless_lab::experiment::{Costs, Experiment, Plan, Point, Results, Row, Shard, Stop, has_costs, read_costs};

use super::caller::{Caller, Terminal, waits};
use super::conclude::{self, Origin, Show, this_program};
use super::sweep::{Ended, INTERRUPTED, Sweep, Wanted, is_simulated, of_results};
use super::{Done, Failure, WRONG_USAGE, output};
use crate::reactor::Signals;

/// Which experiment, with what changed in it.
#[derive(clap::Args)]
pub(super) struct Which {
    /// The experiment's folder, or the name of one that was installed with the program
    experiment: PathBuf,

    /// Stack below the layers of every contestant, instead of the experiment's own
    #[arg(long, value_name = "STACK")]
    over: Option<String>,

    /// Fewer values and a smaller workload: to see whether everything works, not to conclude from
    #[arg(long)]
    pub quick: bool,
}

/// The file that makes a folder an experiment.
const DESCRIPTION: &str = "experiment.toml";

/// A stack of the command line, whose drive files are beside its user and not in the experiment's folder.
fn from_here(lower: &str) -> String {
    let whole = |path: &str| std::path::absolute(path).map_or(path.to_owned(), |path| path.display().to_string());
    match Stack::parse(lower) {
        Ok(stack) if !stack.drive_files().is_empty() => stack.with_drive_files(whole),
        _ => lower.to_owned(), // What is wrong with it shows when it is used.
    }
}

/// The folder of an experiment, which its description names as well. A name alone that is not here can be that of an installed one.
fn found(experiment: &Path, installed: impl FnOnce() -> Option<PathBuf>) -> PathBuf {
    if experiment.file_name().is_some_and(|name| name == DESCRIPTION) && experiment.is_file() {
        let folder = experiment.parent().filter(|folder| !folder.as_os_str().is_empty());
        return folder.unwrap_or(Path::new(".")).to_owned();
    }
    let is_name = experiment.components().count() == 1 && !experiment.exists();
    let folder = || Some(installed()?.join("experiments").join(experiment)).filter(|folder| folder.is_dir());
    is_name.then(folder).flatten().unwrap_or_else(|| experiment.to_owned())
}

/// Experiments that may have been meant by a folder that is not there: those beside it and, for a name alone, those in
/// `experiments` and those that are installed.
fn near_experiments(missing: &Path, installed: Option<&Path>) -> Option<String> {
    let name = missing.file_name().filter(|_| !missing.exists())?.to_str()?;
    let folder = missing.parent().unwrap_or(Path::new(""));
    let is_name = folder.as_os_str().is_empty();
    let mut folders = vec![folder.to_owned()];
    if is_name {
        folders.push("experiments".into());
    }
    let mut known: Vec<(String, PathBuf)> = folders.iter().flat_map(|folder| experiments_in(folder)).collect();
    if let Some(installed) = installed.filter(|_| is_name) {
        // By their names alone they are found.
        known.extend(
            experiments_in(&installed.join("experiments")).into_iter().map(|(name, _)| (name.clone(), name.into())),
        );
    }
    which_was_meant(name, &known)
}

/// Of the `known` names and their paths, the ones that begin with `name`, or the nearest one: as a question.
pub(super) fn which_was_meant(name: &str, known: &[(String, PathBuf)]) -> Option<String> {
    const SHOWN_MAX: usize = 8;
    let mut near: Vec<&(String, PathBuf)> = known.iter().filter(|(known, _)| known.starts_with(name)).collect();
    if near.is_empty() {
        let nearest = nearest(name, known.iter().map(|(known, _)| known.as_str()))?;
        near.extend(known.iter().find(|(known, _)| known == nearest));
    }
    near.sort_unstable();
    let (count, hidden) = (near.len(), near.len().saturating_sub(SHOWN_MAX));
    let shown: Vec<String> = near.iter().take(SHOWN_MAX).map(|(_, path)| quoted_path(path)).collect();
    let others = if hidden == 0 { String::new() } else { format!(" and {hidden} others") };
    let either = if count == 1 { "" } else { "one of " };
    Some(format!("did you mean {either}{}{others}?", shown.join(", ")))
}

/// Names and paths of the experiments in a folder; none where it cannot be read.
fn experiments_in(folder: &Path) -> Vec<(String, PathBuf)> {
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = std::fs::read_dir(here).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.map(|name| (name.clone(), folder.join(name))).filter(|(_, path)| path.join(DESCRIPTION).is_file()).collect()
}

/// Where experiments and samples are installed with the program.
pub(super) fn installed() -> Option<PathBuf> {
    let program = std::fs::canonicalize("/proc/self/exe").ok()?;
    Some(program.parent()?.parent()?.join("share/seekless"))
}

impl Which {
    /// `installed` is asked where experiments are installed.
    pub(super) fn read(&self, installed: impl FnOnce() -> Option<PathBuf>) -> Result<Experiment, Failure> {
        let installed = installed();
        let read = Experiment::read(&found(&self.experiment, || installed.clone())).map_err(|error| {
            let failure = Failure::new(error).code(WRONG_USAGE);
            if self.experiment.is_file() {
                return failure.hint(format!("an experiment is a folder with a file {DESCRIPTION}: name one of them"));
            }
            match near_experiments(&self.experiment, installed.as_deref()) {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        })?;
        let experiment = if self.quick { read.quick() } else { read };
        Ok(match &self.over {
            Some(lower) => experiment.over(&from_here(lower)),
            None => experiment,
        })
    }

    pub(super) fn plan(&self, experiment: &Experiment, program: &str) -> Result<Plan, Failure> {
        Plan::new(experiment, program).map_err(|error| Failure::new(error).code(WRONG_USAGE))
    }

    /// The same with `--quick`, or without it if it is there.
    pub(super) fn otherwise(&self) -> Which {
        Which { experiment: self.experiment.clone(), over: self.over.clone(), quick: !self.quick }
    }

    /// These arguments, quoted for a shell.
    pub(super) fn words(&self) -> String {
        let quoted = |text: &Path| seekless::stack::quoted_path(text);
        let over = self.over.as_ref().map_or_else(String::new, |over| format!(" --over {}", quoted(Path::new(over))));
        format!("{}{over}{}", quoted(&self.experiment), if self.quick { " --quick" } else { "" })
    }

    /// The folder of its results where none is named.
    pub(super) fn results(&self, experiment: &Experiment, shard: Option<Shard>) -> PathBuf {
        let quick = if self.quick { "-quick" } else { "" };
        let shard = shard.map_or_else(String::new, |shard| format!(".{}", shard.to_string().replace('/', "-of-")));
        Path::new("results").join(format!("{}{quick}{shard}", experiment.name))
    }
}

/// Run an experiment: measure all of its points, and check what it claims
///
/// An experiment is a folder with experiment.toml: a workload, the contestants, the parameters that are swept, figures,
/// and claims of a paper; published.csv beside it holds published figures. Points that have been measured are not
/// measured again, so a run that was killed continues where it stopped. Afterwards, seekless report makes a page of the
/// results.
#[derive(clap::Args)]
#[command(after_help = "The results' folder holds rows.jsonl and rows.csv (what was measured), resolved.toml (the \
                        experiment with everything filled in) and provenance.json (which program, when, where). Points \
                        that another build of the program has measured are measured again. Several runs may write to \
                        one folder at the same time: each point is measured by one of them.

Examples:
  seekless run experiments/st05-fig6
  seekless run experiments/st05-fig6 --quick --out /tmp/look
  seekless report results/st05-fig6 -o fig6.html
  seekless run experiments/st05-fig6 --shard 3/16
  seekless run experiments/za01-fig7 --over hostdir:/srv/scratch --rounds 5 --out /tmp/here

Exit codes: 0 measured, 1 failed, or with --check a claim did not hold or had no rows, 2 wrong usage, 130 interrupted")]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) which: Which,

    /// Where the results go; results/NAME without, results/NAME-quick with --quick, and .I-of-N behind with --shard
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Measure only the I-th of N parts, for as many processes that share nothing; seekless merge puts them together
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,

    /// Results of an earlier run, perhaps with --quick or of another build, whose times balance the shards and say how long it
    /// takes; without, those that come with the experiment
    #[arg(long, value_name = "RESULTS")]
    costs: Option<PathBuf>,

    /// Rounds of the measurements in real time; the results are medians
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,

    /// Points measured at the same time; as many as there are processors without
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,

    /// Show what would be measured, and measure nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    show: Show,
}

/// A run that was parsed and checked, before anything is measured.
pub(super) struct Prepared {
    pub(super) experiment: Experiment,
    pub(super) plan: Plan,
    /// Which points are simulated, and which are part of this shard.
    pub(super) simulated: Vec<bool>,
    mine: Vec<bool>,
    costs: Costs,
    pub(super) jobs: usize,
    pub(super) folder: PathBuf,
    program: String,
    rounds: usize,
}

/// What has come of a run: how it ended, and its rows unless it was interrupted.
pub(super) struct Finished {
    pub(super) ended: Ended,
    pub(super) rows: Vec<Row>,
}

impl Prepared {
    /// `program` identifies what measures.
    pub(super) fn new(args: &Args, experiment: Experiment, program: String) -> Result<Prepared, Failure> {
        let plan = args.which.plan(&experiment, &program)?;
        // All shards see the experiment's folder, so that what it says balances them, too.
        let costs = match args.costs.as_deref() {
            Some(folder) => read_costs(folder)?,
            None => costs_in(&experiment.folder)?,
        };
        let simulated =
            plan.points.iter().map(|point| is_simulated(&experiment, point)).collect::<Result<Vec<bool>, Failure>>()?;
        let mine = match args.shard {
            Some(shard) => shard.points(&plan, &costs, |point| simulated[point]),
            None => vec![true; plan.points.len()],
        };
        let jobs = args.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
        let folder = args.out.clone().unwrap_or_else(|| args.which.results(&experiment, args.shard));
        let rounds = usize::from(args.rounds);
        Ok(Prepared { experiment, plan, simulated, mine, costs, jobs, folder, program, rounds })
    }

    /// Opens the folder of results.
    pub(super) fn open(&self, caller: &dyn Caller) -> Result<Results, Failure> {
        let results = Results::open(&self.folder, &self.plan, &waits(caller)).map_err(of_results)?;
        let folder = self.folder.display();
        if let Some(other) = results.rows_of_another(&self.experiment) {
            caller.note(&format!(
                "{folder} holds the rows of {other}, which this run replaces when it ends; the points of {other} stay, and \
                 `seekless run` with it and this folder writes its rows again"
            ));
        }
        let foreign = results.foreign(&self.plan);
        if foreign.count() > 0 && self.plan.points.iter().all(|point| results.rounds(point) == 0) {
            caller.note(&format!("{folder} has {foreign}; they stay, and are not used"));
        }
        Ok(results)
    }

    pub(super) fn wanted(&self, results: &Results) -> Wanted {
        Wanted::new(&self.plan, &self.mine, &self.simulated, |point| results.rounds(point), self.rounds)
    }

    /// Measures what is not in `results` yet, with as many threads as there are jobs. `before` is how many points this run
    /// has measured already, by other means.
    pub(super) fn measure(
        &self,
        results: &mut Results,
        before: usize,
        caller: &dyn Caller,
    ) -> Result<Finished, Failure> {
        let wanted = self.wanted(results);
        let (all, to_do) = (wanted.all, wanted.left());
        if to_do < all && before == 0 {
            caller.note(&format!("{} of {all} points are already measured", all - to_do));
        }
        if before == 0 {
            self.estimate(&wanted)?.into_iter().for_each(|text| caller.note(&text));
        }
        let origin = self.origin();
        let (experiment, plan, stop) = (&self.experiment, &self.plan, Stop::default());
        let (folder, stop, origin_of_rows) = (&self.folder, &stop, &origin);
        let sweep = Sweep { experiment, plan, folder, all, stop, caller, origin: origin_of_rows, mounts: None };
        let ended = sweep.measure(wanted, self.jobs, results)?;
        let rows = match ended.interrupted {
            true => Vec::new(),
            false => {
                let provenance = origin.provenance(before + ended.measured, results, plan);
                results.finish(experiment, plan, &provenance, &waits(caller)).map_err(of_results)?
            }
        };
        Ok(Finished { ended, rows })
    }

    /// How long it will take, where that is known and worth saying: from `--costs`, from the experiment's folder, or from what
    /// this folder of results has already.
    fn estimate(&self, wanted: &Wanted) -> Result<Option<String>, Failure> {
        const SHORT: Duration = Duration::from_secs(60);
        let times = self.times(wanted)?.filter(|times| times.elapsed >= SHORT);
        let left = wanted.left();
        Ok(times.map(|times| format!("{} to measure, {times}, judging by earlier runs", counted(left as u64, "point"))))
    }

    fn times(&self, wanted: &Wanted) -> Result<Option<Times>, Failure> {
        let costs = if self.costs.is_empty() { costs_in(&self.folder)? } else { self.costs.clone() };
        Ok((!costs.is_empty()).then(|| Times::of(&self.plan, &costs, wanted.simulated(), wanted.real(), self.jobs)))
    }

    /// Where its results come from, when they begin now.
    pub(super) fn origin(&self) -> Origin {
        Origin::new(&self.experiment, self.program.clone(), self.jobs)
    }

    /// The points that failed, if there are any.
    pub(super) fn failure(&self, failed: &[(String, String)]) -> Option<Failure> {
        let (name, problem) = failed.first()?;
        let others = match failed.len() {
            1 => String::new(),
            count => format!("\n{} more points failed", count - 1),
        };
        let folder = self.folder.display();
        let hint = format!("the other points are in {folder}; the same command tries again");
        Some(Failure::new(format!("{name}: {problem}{others}")).hint(hint))
    }
}

pub(super) fn run(args: &Args) -> Done {
    let experiment = args.which.read(installed)?;
    if args.shard.is_some() && args.show.check {
        let failure = Failure::new("--check needs the rows of all shards, and --shard has those of one");
        return Err(failure.hint("give --check to `seekless merge`").code(WRONG_USAGE));
    }
    let prepared = Prepared::new(args, experiment, this_program()?)?;
    if args.dry_run {
        return dry_run(&prepared);
    }
    // Before there are threads, so that none of them takes the signals.
    let signals = Signals::new(&[libc::SIGINT, libc::SIGTERM])?;
    let terminal = Terminal::new(output::points(0), Some(&signals));
    let mut results = prepared.open(&terminal)?;
    let finished = prepared.measure(&mut results, 0, &terminal);
    terminal.clear();
    let Finished { ended, rows } = finished?;
    if ended.interrupted {
        return Ok(INTERRUPTED);
    }
    if let Some(failure) = prepared.failure(&ended.failed) {
        return Err(failure);
    }
    let Prepared { experiment, folder, .. } = &prepared;
    match args.shard {
        Some(shard) => {
            print_shard(args, experiment, shard, &rows, folder)?;
            Ok(0)
        }
        None => conclude::print(experiment, &rows, folder, args.which.quick, &args.show),
    }
}

/// Claims need the other shards: only rows are printed, and what to do with them.
fn print_shard(args: &Args, experiment: &Experiment, shard: Shard, rows: &[Row], folder: &Path) -> Result<(), Failure> {
    if args.show.json {
        return output::print_raw(&conclude::to_json(rows, &[], &[]));
    }
    let all = match args.out {
        Some(_) => "DIR...".to_owned(),
        // The shell looks for what is outside quotes.
        None => {
            format!("{}.*-of-{}", seekless::stack::quoted_path(&args.which.results(experiment, None)), shard.count())
        }
    };
    output::print(&format!(
        "Shard {shard}: {} in {}\nWhen all shards are there: seekless merge {} {all}\n",
        counted(rows.len() as u64, "row"),
        folder.display(),
        args.which.words()
    ))
}

fn dry_run(prepared: &Prepared) -> Done {
    let Prepared { plan, mine, simulated, folder, rounds, .. } = prepared;
    let mut text = String::new();
    let mut count = 0;
    for index in (0..plan.points.len()).filter(|&index| mine[index]) {
        count += 1;
        let on = match plan.points[index].on.as_str() {
            "" => String::new(), // A workload without storage.
            on => format!(": {on}"),
        };
        text += &format!("{}{on}\n", plan.name_of(index));
    }
    text += &match count == plan.points.len() {
        true => format!("{} for {}\n", counted(count as u64, "point"), counted(plan.places.len() as u64, "place")),
        false => format!(
            "{count} of {} for {}\n",
            counted(plan.points.len() as u64, "point"),
            counted(plan.places.len() as u64, "place")
        ),
    };
    let done = Results::rounds_in(folder)?;
    let rounds_of = |point: &Point| done.get(&point.key).copied().unwrap_or(0);
    let wanted = Wanted::new(plan, mine, simulated, rounds_of, *rounds);
    let (all, left) = (wanted.all, wanted.left());
    if left < all {
        text += &format!("{} of {all} measurements are already made\n", all - left);
    }
    if let Some(times) = prepared.times(&wanted)?.filter(|_| left > 0) {
        text += &format!("{times}\n");
    }
    output::print(&text)?;
    Ok(0)
}

/// The seconds of points that a folder has, if it has any.
fn costs_in(folder: &Path) -> Result<Costs, Failure> {
    match has_costs(folder) {
        true => Ok(read_costs(folder)?),
        false => Ok(Costs::default()),
    }
}

/// How long points take.
struct Times {
    processor: Duration,
    elapsed: Duration,
    jobs: usize,
}

impl Times {
    /// Simulations take `jobs` processors, points in real time one after another.
    fn of(
        plan: &Plan,
        costs: &Costs,
        simulated: impl IntoIterator<Item = usize>,
        real: impl IntoIterator<Item = usize>,
        jobs: usize,
    ) -> Times {
        let of_points = costs.of(plan);
        let (mut count, mut parallel) = (0, 0.0);
        for point in simulated {
            count += 1;
            parallel += of_points[point];
        }
        let serial: f64 = real.into_iter().map(|point| of_points[point]).sum();
        Times {
            processor: Duration::from_secs_f64(parallel + serial),
            elapsed: Duration::from_secs_f64(parallel / jobs.clamp(1, count.max(1)) as f64 + serial),
            jobs,
        }
    }
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (processor, elapsed) = (indicatif::HumanDuration(self.processor), indicatif::HumanDuration(self.elapsed));
        write!(f, "about {processor} of processor time, {elapsed} with --jobs {}", self.jobs)
    }
}
