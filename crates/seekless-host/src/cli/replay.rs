//! `seekless replay`

use std::path::{Path, PathBuf};

use comfy_table::{Cell, CellAlignment, Table, presets};
use seekless::stack::Stack;
use seekless::units::{counted, human_bytes};
use seekless_lab::output::{self as files, Replace, Sources, Wish};
use seekless_lab::replay::{
    COLUMNS, Devices, Listener, Map, Outcome, ReplayError, Spec, Timing, TraceLayout, Watch, check_stack, compare,
    describe_loads, needs_survey, simulate_all_watched, table, unwritten_reads,
};
use seekless_lab::trace::{self, Import, Trace, time_text};
use serde_json::json;

use super::caller::{Caller, Terminal};
use super::read_files::files_of;
use super::replay_rows::Rows;
use super::trace::TraceArgs;
use super::traces::{step, survey_for};
use super::{Done, Failure, WRONG_USAGE, output, plot_replay, read_stack};

/// Replay a block trace on modelled storage, in virtual time, and compare
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("written").multiple(true))]
#[command(after_help = "Timings:
  window:N  N requests are under way at any time, in the order of the trace
  closed    one after another: window:1
  open      as recorded; open:2 twice as fast
  think     with the recorded pauses between a request and the answers before it

Examples:
  seekless replay sda.blktrace.0 --on disk:cheetah9lp --on disk:hp97560
  seekless replay hm_0.csv.gz --on disk:cheetah9lp,scheduler=sptf --timing open --map scale
  seekless replay mine.csv --format 'csv:time=1:us,op=2,offset=3:B,length=4:B' --on disk:dec-rz26 --json
  seekless replay sda.blktrace.0 --on disk:cheetah9lp --timing open --rows answers.csv.zst
  seekless replay sda.blktrace.0 --on disk:cheetah9lp --on ssd:nvme-a,fill=random --svg before-after.svg

Exit codes: 0 replayed, 1 failed, 2 wrong usage")]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) trace: TraceArgs,

    /// Storage to replay on: a stack of devices; give it again to compare. Flash drives are new, unless fill=random or
    /// fill=sequential says that they were written before
    #[arg(long, required = true, value_name = "STACK")]
    pub(super) on: Vec<String>,

    /// When requests are made: window:N, closed, open, open:SPEED or think
    #[arg(long, default_value = "window:1")]
    pub(super) timing: Timing,

    /// What to do with requests beyond the end of the storage: error, wrap or scale
    #[arg(long, default_value = "error")]
    map: Map,

    /// What to do with a trace of several devices: one (an error), or concatenate, to lay them end to end
    #[arg(long, default_value = "one", value_parser = devices)]
    devices: Devices,

    /// Decides the order of simultaneous events
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Write every request into this file: where it went, when it was made and answered, in the order of the answers; .gz
    /// and .zst are compressed. Give it again for each further stack
    #[arg(long, value_name = "FILE", group = "written")]
    rows: Vec<PathBuf>,

    /// Draw the distributions of response times into this file, a curve for each stack, and with --timing open how
    /// they change over the trace
    #[arg(long, value_name = "FILE", group = "written")]
    svg: Option<PathBuf>,

    /// Replace the files of --rows and --svg if they already exist
    #[arg(short, long, requires = "written")]
    force: bool,

    /// Print JSON, one line for the trace, each stack and the comparison
    #[arg(long)]
    json: bool,
}

pub(super) fn devices(text: &str) -> Result<Devices, String> {
    match text {
        "one" => Ok(Devices::One),
        "concatenate" => Ok(Devices::Concatenate),
        _ => Err("the choices are one and concatenate".into()),
    }
}

/// Where the requests come from: files, or another program.
pub(super) trait Source {
    fn is_a_stream(&self) -> bool;

    /// Opens it from its beginning, perhaps for the second time.
    fn open(&self, latency: bool) -> Result<Trace, Failure>;
}

impl Source for TraceArgs {
    fn is_a_stream(&self) -> bool {
        TraceArgs::is_a_stream(self)
    }

    fn open(&self, latency: bool) -> Result<Trace, Failure> {
        TraceArgs::open(self, latency)
    }
}

/// The result of a replay: how the trace was understood, and an outcome for each stack.
pub(super) struct Replayed {
    pub(super) import: Import,
    /// In the order of the stacks.
    pub(super) outcomes: Vec<Result<Outcome, Failure>>,
}

impl Replayed {
    /// The outcomes that there are.
    pub(super) fn split(self) -> (Import, Vec<Outcome>, Vec<Failure>) {
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for outcome in self.outcomes {
            match outcome {
                Ok(outcome) => good.push(outcome),
                Err(failure) => bad.push(failure),
            }
        }
        (self.import, good, bad)
    }
}

pub(super) fn run(args: &Args) -> Done {
    let picture = match &args.svg {
        Some(path) => Some((path, picture_wish(args, path)?)),
        None => None,
    };
    let rows = Rows::begin(&args.rows, args.on.len(), sources(&args.trace.files, &args.on), args.force)?;
    let total = if args.trace.is_a_stream() { None } else { Some(0) }; // It is known when the files are open.
    let terminal = Terminal::new(output::bytes(total, "replaying"), None);
    let replayed = replay(args, &args.trace, rows.listeners(), &terminal);
    terminal.clear();
    let replayed = replayed?;
    // What a long replay found is printed even where a file cannot be named.
    let kept = rows.finish(|index| replayed.outcomes[index].is_ok());
    let (import, outcomes, mut failed) = replayed.split();
    let last = failed.pop();
    // The others have their results.
    failed.iter().for_each(|failure| output::warn(&failure.text));
    if let (Some(failure), true) = (&last, outcomes.is_empty()) {
        return Err(Failure::new(&failure.text));
    }
    match args.json {
        true => {
            output::print_raw(&to_json(&import, &outcomes).iter().map(|line| format!("{line}\n")).collect::<String>())?
        }
        false => output::print(&to_text(&import, args.timing, &outcomes))?,
    }
    let drawn = match picture {
        None => Ok(()),
        Some((path, wish)) => {
            let picture = output::signed(&plot_replay::responses(&outcomes)?);
            files::write(path, picture.as_bytes(), &wish).map_err(Failure::new)
        }
    };
    let mut failures: Vec<Failure> = [kept.err(), drawn.err(), last].into_iter().flatten().collect();
    let Some(last) = failures.pop() else { return Ok(0) };
    failures.iter().for_each(|failure| output::warn(&failure.text));
    Err(last)
}

/// What is read by a replay of these traces on these stacks: stack files and drive files as well.
pub(super) fn sources(traces: &[PathBuf], stacks: &[String]) -> Sources {
    // A trace that is not there is refused where it is opened.
    let mut files = trace::files(traces).unwrap_or_default();
    files.extend(stacks.iter().flat_map(|line| files_of(line)));
    Sources::of(&files)
}

/// Whether the picture may be written there. Said before the replay, which can take long.
fn picture_wish(args: &Args, path: &Path) -> Result<Wish, Failure> {
    if args.rows.iter().any(|rows| files::is_one_name(rows, path)) {
        let failure = Failure::new(format!("{} is the file of --rows and of --svg", path.display()));
        return Err(failure.code(WRONG_USAGE));
    }
    let replace = if args.force { Replace::Always } else { Replace::Own(output::is_picture) };
    let wish = Wish::new(replace).sources(sources(&args.trace.files, &args.on));
    files::check(path, &wish)?;
    Ok(wish)
}

/// Replays the requests of `source` on every stack; each listener, if there are any, learns of the answers of one.
pub(super) fn replay(
    args: &Args,
    source: &dyn Source,
    listeners: Vec<Listener>,
    caller: &dyn Caller,
) -> Result<Replayed, Failure> {
    let stacks = args.on.iter().map(|line| read_stack(line)).collect::<Result<Vec<Stack>, Failure>>()?;
    for stack in &stacks {
        check_stack(stack).map_err(|error| Failure::new(error).code(WRONG_USAGE))?;
    }
    let latency = args.timing == Timing::Think;
    let survey_first = needs_survey(args.map, &args.devices);
    if survey_first && source.is_a_stream() {
        let failure = Failure::new("a stream can be read only once").code(WRONG_USAGE);
        return Err(failure.hint("write it to a file to scale or to concatenate, which need its size beforehand"));
    }
    let mut trace = source.open(latency)?;
    if latency && !trace.format().has_latency() {
        return Err(Failure::new(ReplayError::NoLatencies).code(WRONG_USAGE));
    }
    let mut spec = Spec { timing: args.timing, map: args.map, layout: None, seed: args.seed };
    if survey_first {
        let summary = survey_for(&mut trace, "reading", caller)?;
        spec.layout = Some(TraceLayout::of(&summary, &args.devices, &trace.names())?);
        trace = source.open(latency)?;
    }
    // How the trace is understood is said at once, because a replay can take long; the counts come at its end.
    trace.import().to_text().lines().take(1).for_each(|line| caller.note(line));
    let progress = |trace: &Trace, requests| caller.at(step(trace, requests, "replaying"));
    let (summary, replayed) =
        simulate_all_watched(&stacks, &mut trace, &spec, Watch { progress: &progress, listeners })?;
    if let Some(failure) = without_times(&replayed) {
        return Err(failure);
    }
    let import = trace.import();
    import.to_text().lines().skip(1).for_each(|line| caller.note(line));
    for warning in summary.warnings(trace.format(), &import) {
        caller.note(&format!("  warning: {warning}"));
    }
    for (stack, outcome) in stacks.iter().zip(&replayed) {
        if let Some(warning) = outcome.as_ref().ok().and_then(|outcome| unwritten_reads(stack, outcome)) {
            caller.note(&format!("  warning: {warning}"));
        }
    }
    let named = |(stack, outcome): (&Stack, Result<Outcome, ReplayError>)| {
        outcome.map_err(|error| Failure::new(format!("on {stack}: {error}")))
    };
    Ok(Replayed { import, outcomes: stacks.iter().zip(replayed).map(named).collect() })
}

/// Why no stack has a result, if that is because the trace has no times: said once, and not for each of them.
pub(super) fn without_times(replayed: &[Result<Outcome, ReplayError>]) -> Option<Failure> {
    let is_no_time = |outcome: &&Result<Outcome, ReplayError>| matches!(outcome, Err(ReplayError::NoTimes { .. }));
    let failure = replayed.iter().find(is_no_time)?.as_ref().err()?;
    let has_none = replayed.iter().all(|outcome| outcome.is_err());
    has_none.then(|| Failure::new(failure).code(WRONG_USAGE))
}

pub(super) fn to_json(import: &Import, outcomes: &[Outcome]) -> Vec<serde_json::Value> {
    let trace = json!({ "kind": "trace", "seekless": env!("CARGO_PKG_VERSION"), "import": import });
    let outcome = |outcome: &Outcome| json!({ "kind": "outcome", "outcome": outcome.to_json() });
    let comparison = compare(outcomes).map(|it| json!({ "kind": "comparison", "comparison": it }));
    std::iter::once(trace).chain(outcomes.iter().map(outcome)).chain(comparison).collect()
}

pub(super) fn to_text(import: &Import, timing: Timing, outcomes: &[Outcome]) -> String {
    let requests = outcomes.first().map_or(0, |outcome| outcome.total().requests);
    let mut text = format!("{} of {}, timing {timing}\n\n", counted(requests, "request"), import.files.join(", "));
    let mut grid = Table::new();
    grid.load_style(presets::ASCII_MARKDOWN).set_header(COLUMNS);
    for row in table(outcomes) {
        let [name, operation, numbers @ ..] = row;
        let mut cells = vec![Cell::new(name), Cell::new(operation)];
        cells.extend(numbers.iter().map(|text| Cell::new(text).set_alignment(CellAlignment::Right)));
        grid.add_row(cells);
    }
    text += &format!("{grid}\n");
    for (number, outcome) in outcomes.iter().enumerate() {
        let number = number + 1;
        let requests = outcome.requests_per_second().map_or("-".to_owned(), |rate| format!("{rate:.0}"));
        let bytes = outcome.bytes_per_second().map_or("-".to_owned(), |rate| human_bytes(rate as u64));
        let mut line = format!(
            "[{number}] {}: {}, {requests} requests/s, {bytes}/s, up to {} under way",
            outcome.describes,
            time_text(outcome.elapsed),
            outcome.outstanding_max
        );
        for (count, thing, what) in [
            (outcome.widened, "request", "widened to whole blocks"),
            (outcome.narrowed, "discard", "narrowed to whole blocks"),
            (outcome.moved, "request", "moved into the storage"),
            (outcome.shortened, "request", "shortened to the size of the storage"),
            (outcome.without_latency, "request", "without recorded latency, treated as completed at once"),
        ] {
            if count > 0 {
                line += &format!("; {} {what}", counted(count, thing));
            }
        }
        text += &format!("{line}\n");
        if let Some(loads) = describe_loads(&outcome.drives, outcome.elapsed) {
            text += &format!("    {loads}\n");
        }
        if let Some(arrivals) = outcome.arrivals.as_ref().filter(|arrivals| arrivals.is_saturated()) {
            let highest = arrivals.over_time.intervals.iter().map(|interval| interval.mean()).max().unwrap_or_default();
            text += &format!(
                "    saturated; mean response by time of arrival, up to {}: {}\n",
                time_text(highest),
                arrivals.over_time.bars()
            );
        }
    }
    if let Some(comparison) = compare(outcomes) {
        text += &format!("\n{}\n", comparison.sentence);
    }
    text
}
