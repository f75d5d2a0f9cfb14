//! `seekless run`: an experiment on all cores, continuing where its last run ended.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use comfy_table::{Cell, CellAlignment, Table, presets};
use indicatif::ProgressBar;
use seekless::stack::Stack;
use seekless_lab::LabError;
use seekless_lab::experiment::{
    Checked, Deviation, Experiment, Measure, Outside, Plan, Results, Row, RunTarget, Verdict, deviations, digits,
};
use seekless_lab::run::{Run, run_in_directory};
use seekless_lab::workload::{PhaseProgress, Program};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{Done, FAILED, Failure, WRONG_USAGE, bench, output};
use crate::reactor::Signals;

/// Run an experiment: measure all of its points, and check what it claims
///
/// An experiment is a folder with experiment.toml: a workload, the contestants, the parameters that are swept, figures,
/// and claims of a paper; published.csv beside it holds published figures. Points that have been measured are not
/// measured again, so a run that was killed continues where it stopped. Afterwards, seekless report makes a page of the
/// results.
#[derive(clap::Args)]
#[command(after_help = "The results' folder holds rows.jsonl and rows.csv (what was measured), resolved.toml (the \
                        experiment with everything filled in) and provenance.json (which program, when, where). Points \
                        that another build of the program has measured are measured again.

Examples:
  seekless run experiments/st05-fig6
  seekless run experiments/st05-fig6 --quick --out /tmp/look
  seekless report results/st05-fig6 -o fig6.html
  seekless run experiments/za01-fig7 --over hostdir:/srv/scratch --rounds 5 --out /tmp/here

Exit codes: 0 measured, 1 failed, or with --check a claim did not hold, 2 wrong usage, 130 interrupted")]
pub(super) struct Args {
    /// The experiment's folder
    experiment: PathBuf,

    /// Where the results go; results/NAME without, and results/NAME-quick with --quick
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Stack below the layers of every contestant, instead of the experiment's own
    #[arg(long, value_name = "STACK")]
    over: Option<String>,

    /// Rounds of the measurements in real time; the results are medians
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,

    /// Points measured at the same time; as many as there are processors without
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,

    /// Fewer values and a smaller workload: to see whether everything works, not to conclude from
    #[arg(long)]
    quick: bool,

    /// Fail when a claim that was measured does not hold
    #[arg(long)]
    check: bool,

    /// Show what would be measured, and measure nothing
    #[arg(long)]
    dry_run: bool,

    /// Print JSON, one line for each row, claim and published figure
    #[arg(long)]
    json: bool,
}

const INTERRUPTED: u8 = 130;

/// A stack of the command line, whose drive files are beside its user and not in the experiment's folder.
fn from_here(lower: &str) -> String {
    let whole = |path: &str| std::path::absolute(path).map_or(path.to_owned(), |path| path.display().to_string());
    match Stack::parse(lower) {
        Ok(stack) if !stack.drive_files().is_empty() => stack.with_drive_files(whole),
        _ => lower.to_owned(), // What is wrong with it shows when it is used.
    }
}

pub(super) fn run(args: &Args) -> Done {
    let usage = |error: &dyn std::fmt::Display| Failure::new(error).code(WRONG_USAGE);
    let experiment = Experiment::read(&args.experiment).map_err(|error| usage(&error))?;
    let experiment = if args.quick { experiment.quick() } else { experiment };
    let experiment = match &args.over {
        Some(lower) => experiment.over(&from_here(lower)),
        None => experiment,
    };
    let program = this_program()?;
    let plan = Plan::new(&experiment, &program).map_err(|error| usage(&error))?;
    if args.dry_run {
        return dry_run(&plan);
    }
    // Before there are threads, so that none of them takes the signals.
    let signals = Signals::new(&[libc::SIGINT, libc::SIGTERM])?;
    let folder = args.out.clone().unwrap_or_else(|| {
        Path::new("results").join(if args.quick {
            format!("{}-quick", experiment.name)
        } else {
            experiment.name.clone()
        })
    });
    let mut results = Results::open(&folder)?;
    let forgotten = results.keep_only(&plan)?;
    if forgotten > 0 {
        output::note(&format!(
            "{forgotten} points in {} belong to another program or another experiment, and are put aside",
            folder.display()
        ));
    }
    let wanted = Wanted::new(&experiment, &plan, &results, usize::from(args.rounds))?;
    let (all, to_do) = (wanted.all, wanted.simulated.len() + wanted.real.len());
    if to_do < all {
        output::note(&format!("{} of {all} points are measured already", all - to_do));
    }
    let jobs = args.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let start = (jiff::Timestamp::now(), Instant::now());
    let stop = AtomicBool::new(false);
    let sweep = Sweep { experiment: &experiment, plan: &plan, folder: &folder, all, stop: &stop, signals: &signals };
    let ended = sweep.measure(wanted, jobs, &mut results)?;
    let measured = to_do - ended.failed.len() - ended.left;
    if ended.interrupted {
        sweep.say_interrupted(&ended);
        return Ok(INTERRUPTED);
    }
    let provenance = provenance(&experiment, &program, start, measured, jobs);
    let rows = results.finish(&experiment, &plan, &provenance)?;
    if let Some((name, problem)) = ended.failed.first() {
        let others = match ended.failed.len() {
            1 => String::new(),
            count => format!("\n{} more points failed", count - 1),
        };
        let failure = Failure::new(format!("{name}: {problem}{others}"));
        return Err(failure.hint(format!("the other points are in {}; the same command tries again", folder.display())));
    }
    let claims: Vec<Checked> = experiment.description.claims.iter().map(|claim| claim.verify(&rows)).collect();
    let published = deviations(&experiment.published, &rows);
    match args.json {
        true => output::print(&to_json(&rows, &claims, &published))?,
        false => output::print(&to_text(&experiment, &rows, &claims, &published, &folder, args.quick))?,
    }
    let differs = claims.iter().any(|checked| checked.verdict == Verdict::Differs);
    Ok(if args.check && differs { FAILED } else { 0 })
}

fn dry_run(plan: &Plan) -> Done {
    let mut text = String::new();
    for (index, point) in plan.points.iter().enumerate() {
        let on = if point.on.is_empty() { "nothing" } else { &point.on };
        text += &format!("{}: {on}\n", plan.name_of(index));
    }
    text += &format!("{} points for {} places\n", plan.points.len(), plan.places.len());
    output::print(&text)?;
    Ok(0)
}

/// The digest of the running program: results of another program are not reused.
fn this_program() -> Result<String, Failure> {
    let bytes = std::fs::read("/proc/self/exe")
        .map_err(|error| Failure::new(format!("cannot read the program itself: {error}")))?;
    Ok(Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Points still to be measured, by index; a point of several rounds is listed several times.
struct Wanted {
    simulated: Vec<usize>,
    /// Round after round, so that other load on the machine disturbs all points alike.
    real: Vec<usize>,
    /// All measurements, including those that are done.
    all: usize,
}

impl Wanted {
    fn new(experiment: &Experiment, plan: &Plan, results: &Results, rounds: usize) -> Result<Wanted, Failure> {
        let mut wanted = Wanted { simulated: Vec::new(), real: Vec::new(), all: 0 };
        for round in 0..rounds {
            for (index, point) in plan.points.iter().enumerate() {
                let world = World { stop: &AtomicBool::new(false) };
                let is_simulated = point.is_simulated(experiment, &world).map_err(Failure::new)?;
                // Virtual time is the same every time.
                if is_simulated && round > 0 {
                    continue;
                }
                wanted.all += 1;
                if results.rounds(point) <= round {
                    let list = if is_simulated { &mut wanted.simulated } else { &mut wanted.real };
                    list.push(index);
                }
            }
        }
        Ok(wanted)
    }
}

/// How points are measured.
struct Sweep<'a> {
    experiment: &'a Experiment,
    plan: &'a Plan,
    /// Where the results go.
    folder: &'a Path,
    /// All measurements, including those that are done.
    all: usize,
    /// No point begins any more, and one in real time ends.
    stop: &'a AtomicBool,
    signals: &'a Signals,
}

/// How long points under way may go on after a signal. A simulation has no moment at which it could be stopped; it leaves
/// nothing behind, so that the process can end in the middle of it. A point in real time removes its files first.
const GRACE: Duration = Duration::from_millis(500);

/// How a sweep ended.
struct Ended {
    interrupted: bool,
    /// Points not started, or interrupted while under way.
    left: usize,
    failed: Vec<(String, String)>,
}

type Message = (usize, Result<Vec<Measure>, String>);

impl Sweep<'_> {
    /// Measures: simulations on as many threads as allowed, then points in real time, one after another.
    fn measure(&self, wanted: Wanted, jobs: usize, results: &mut Results) -> Result<Ended, Failure> {
        let left = wanted.simulated.len() + wanted.real.len();
        let bar = output::points(left as u64);
        let mut ended = Ended { interrupted: false, left, failed: Vec::new() };
        for (points, jobs, grace) in [(wanted.simulated, jobs, Some(GRACE)), (wanted.real, 1, None)] {
            if !ended.interrupted && !points.is_empty() {
                self.some(&points, jobs, grace, results, &bar, &mut ended)?;
            }
        }
        bar.finish_and_clear();
        Ok(ended)
    }

    fn say_interrupted(&self, ended: &Ended) {
        let (all, folder) = (self.all, self.folder.display());
        let done = all - ended.failed.len() - ended.left;
        output::note(&format!(
            "interrupted: {done} of {all} points are in {folder}; the same command continues from there"
        ));
    }

    fn some(
        &self,
        points: &[usize],
        jobs: usize,
        grace: Option<Duration>,
        results: &mut Results,
        bar: &ProgressBar,
        ended: &mut Ended,
    ) -> Result<(), Failure> {
        let next = AtomicUsize::new(0);
        let world = World { stop: self.stop };
        let (send, receive) = mpsc::channel::<Message>();
        let work = |send: mpsc::Sender<Message>| {
            while !self.stop.load(Ordering::Relaxed) {
                let Some(&index) = points.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                bar.set_message(self.plan.name_of(index));
                let measured = self.plan.points[index].measure(self.experiment, &world);
                if send.send((index, measured)).is_err() {
                    break;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..jobs.min(points.len()) {
                let send = send.clone();
                scope.spawn(|| work(send));
            }
            drop(send);
            let mut outcome = Ok(());
            let mut interrupted_at: Option<Instant> = None;
            loop {
                match receive.recv_timeout(Duration::from_millis(100)) {
                    Ok((index, Ok(measures))) => {
                        let kept = results.add(&self.plan.points[index], measures);
                        ended.left -= 1;
                        bar.inc(1);
                        if let Err(error) = kept {
                            self.stop.store(true, Ordering::Relaxed);
                            outcome = Err(Failure::new(error));
                        }
                    }
                    // It was stopped, and is measured next time.
                    Ok((_, Err(_))) if ended.interrupted => {}
                    Ok((index, Err(problem))) => {
                        ended.left -= 1;
                        ended.failed.push((self.plan.name_of(index), problem));
                        bar.inc(1);
                    }
                    Err(mpsc::RecvTimeoutError::Disconnected) => return outcome,
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                }
                let signal = self.signals.pending();
                let is_late = interrupted_at.zip(grace).is_some_and(|(at, grace)| at.elapsed() >= grace);
                if interrupted_at.is_some() && (signal.is_some() || is_late) {
                    bar.finish_and_clear();
                    // All finished points have been written.
                    self.say_interrupted(ended);
                    std::process::exit(i32::from(INTERRUPTED));
                }
                if signal.is_some() {
                    interrupted_at = Some(Instant::now());
                    ended.interrupted = true;
                    self.stop.store(true, Ordering::Relaxed);
                    if grace.is_none() {
                        output::note(
                            "interrupted; the files of the point under way are removed (once more leaves them)",
                        );
                    }
                }
            }
        })
    }
}

/// Measures in real time the points that cannot be simulated.
struct World<'a> {
    stop: &'a AtomicBool,
}

impl Outside for World<'_> {
    fn files(&self, on: &RunTarget, program: &dyn Program) -> Result<Run, LabError> {
        let watch = &|_: PhaseProgress<'_>| match self.stop.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        match on {
            RunTarget::Nothing => Err(LabError::Spec("there is nothing to run on".into())),
            RunTarget::Directory(path) => run_in_directory(path, bench::host(), program, watch),
            RunTarget::Stack(stack) => {
                bench::run_here_in_a_world(stack, program, watch).map_err(|failure| LabError::Spec(failure.text))
            }
        }
    }
}

/// Where the results came from. The only place where they contain the date.
fn provenance(
    experiment: &Experiment,
    program: &str,
    (date, start): (jiff::Timestamp, Instant),
    measured: usize,
    jobs: usize,
) -> serde_json::Value {
    let command: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processor = processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    json!({
        "seekless": env!("CARGO_PKG_VERSION"),
        "program_sha256": program,
        "command": command,
        "experiment": experiment.name,
        "seed": experiment.description.seed,
        "date": date.to_string(),
        "seconds": (start.elapsed().as_secs_f64() * 10.0).round() / 10.0,
        "points_measured": measured,
        "jobs": jobs,
        "kernel": format!("Linux {}", kernel.trim()),
        "processor": processor.map(|(_, name)| name),
    })
}

fn to_json(rows: &[Row], claims: &[Checked], published: &[Deviation]) -> String {
    let rows = rows.iter().map(|row| json!({ "kind": "row", "row": row }));
    let claims = claims.iter().map(|checked| json!({ "kind": "claim", "claim": checked }));
    let published = published.iter().map(|deviation| {
        json!({ "kind": "published", "published": deviation.published, "measured": deviation.measured,
            "deviation": deviation.relative() })
    });
    rows.chain(claims).chain(published).map(|line| format!("{line}\n")).collect()
}

fn to_text(
    experiment: &Experiment,
    rows: &[Row],
    claims: &[Checked],
    published: &[Deviation],
    folder: &Path,
    is_quick: bool,
) -> String {
    // Claims about points that `--quick` leaves out are counted, and not shown.
    let shown = |checked: &&Checked| !is_quick || checked.verdict != Verdict::Open;
    let claims_shown: Vec<&Checked> = claims.iter().filter(shown).collect();
    let published: Vec<&Deviation> = published.iter().filter(|it| !is_quick || it.measured.is_some()).collect();
    let description = &experiment.description;
    let mut text =
        format!("{} {}\n{} rows in {}\n", description.title, description.paper, rows.len(), folder.display());
    if !published.is_empty() {
        text += &format!("\n{}\n", published_table(&published));
    }
    if !claims.is_empty() {
        text += &format!("\n{}\n", claims_table(&claims_shown));
        let held = claims.iter().filter(|checked| checked.verdict == Verdict::Holds).count();
        let open = claims.iter().filter(|checked| checked.verdict == Verdict::Open).count();
        let not_measured = match (open, is_quick) {
            (0, _) => String::new(),
            (open, false) => format!(", {open} not measured"),
            (open, true) => format!(", {open} not measured: --quick leaves their points out"),
        };
        text += &format!("{held} of {} claims hold{not_measured}.\n", claims.len());
    }
    let folder = seekless::stack::quoted_path(folder);
    text + &format!("For a page: seekless report {folder} -o {}.html\n", experiment.name)
}

fn claims_table(claims: &[&Checked]) -> Table {
    let mut table = new_table(&["", "claim", "source", "found", "cases"]);
    for checked in claims {
        table.add_row(vec![
            Cell::new(checked.verdict.name()),
            Cell::new(&checked.claim.text),
            Cell::new(&checked.claim.source),
            Cell::new(&checked.found),
            Cell::new(format!("{} of {}", checked.held, checked.cases)).set_alignment(CellAlignment::Right),
        ]);
    }
    table
}

fn published_table(published: &[&Deviation]) -> Table {
    let mut table = new_table(&["published", "where", "published", "measured", "deviation", "source"]);
    for deviation in published {
        let Deviation { published, measured } = deviation;
        let place: Vec<String> = published.dims.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let numbers = [
            digits(published.value),
            measured.map_or_else(|| "-".to_owned(), digits),
            deviation.relative().map_or_else(String::new, |relative| format!("{:+.1} %", relative * 100.0)),
        ];
        let mut row = vec![Cell::new(&published.metric), Cell::new(place.join(", "))];
        row.extend(numbers.iter().map(|text| Cell::new(text).set_alignment(CellAlignment::Right)));
        row.push(Cell::new(&published.source));
        table.add_row(row);
    }
    table
}

fn new_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header.to_vec());
    table
}
