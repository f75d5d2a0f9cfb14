//! `seekless replay`

use comfy_table::{Cell, CellAlignment, Table, presets};
use seekless::stack::Stack;
use seekless::units::human_bytes;
use seekless_lab::replay::{
    COLUMNS, Devices, Map, Outcome, Place, ReplayError, Spec, Timing, check_stack, compare, needs_survey, simulate_all,
    table,
};
use seekless_lab::trace::{Import, time_text};
use serde_json::json;

use super::trace::TraceArgs;
use super::traces::{describe, describe_rest, survey};
use super::{Done, Failure, WRONG_USAGE, output, read_stack};

/// Replay a block trace on modelled storage, in virtual time, and compare
#[derive(clap::Args)]
#[command(after_help = "Timings:
  window:N  N requests are under way at any time, in the order of the trace
  closed    one after another: window:1
  open      as recorded; open:2 twice as fast
  think     with the recorded pauses between a request and the answers before it

Examples:
  seekless replay sda.blktrace.0 --on disk:cheetah9lp --on disk:hp97560
  seekless replay hm_0.csv.gz --on disk:cheetah9lp,scheduler=sptf --timing open --map scale
  seekless replay mine.csv --format 'csv:time=1:us,op=2,offset=3:B,length=4:B' --on disk:dec-rz26 --json

Exit codes: 0 replayed, 1 failed, 2 wrong usage")]
pub(super) struct Args {
    #[command(flatten)]
    trace: TraceArgs,

    /// Storage to replay on: a stack of devices; give it again to compare
    #[arg(long, required = true, value_name = "STACK")]
    on: Vec<String>,

    /// When requests are made: window:N, closed, open, open:SPEED or think
    #[arg(long, default_value = "window:1")]
    timing: Timing,

    /// What to do with requests beyond the end of the storage: error, wrap or scale
    #[arg(long, default_value = "error")]
    map: Map,

    /// What to do with a trace of several devices: one (an error), or concatenate, to lay them end to end
    #[arg(long, default_value = "one", value_parser = devices)]
    devices: Devices,

    /// Decides the order of simultaneous events
    #[arg(long, default_value_t = 1)]
    seed: u64,

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

pub(super) fn run(args: &Args) -> Done {
    let stacks = args.on.iter().map(|line| read_stack(line)).collect::<Result<Vec<Stack>, Failure>>()?;
    for stack in &stacks {
        check_stack(stack).map_err(|error| Failure::new(error).code(WRONG_USAGE))?;
    }
    let latency = args.timing == Timing::Think;
    let survey_first = needs_survey(args.map, &args.devices);
    if survey_first && args.trace.is_a_stream() {
        let failure = Failure::new("a stream can be read only once").code(WRONG_USAGE);
        return Err(failure.hint("write it to a file to scale or to concatenate, which need its size beforehand"));
    }
    let mut trace = args.trace.open(latency)?;
    if latency && !trace.format().has_latency() {
        return Err(Failure::new(ReplayError::NoLatencies).code(WRONG_USAGE));
    }
    let mut spec = Spec { timing: args.timing, map: args.map, place: None, seed: args.seed };
    if survey_first {
        let summary = survey(&mut trace, "reading")?;
        spec.place = Some(Place::of(&summary, &args.devices, &trace.names())?);
        trace = args.trace.open(latency)?;
    }
    // How the trace is understood is said at once, because a replay can take long; the counts come at its end.
    describe(&trace.import(), true);
    let bar = output::bytes(trace.progress().bytes_total(), "replaying");
    let read = simulate_all(&stacks, &mut trace, &spec, &|trace, _| bar.set_position(trace.progress().bytes()));
    bar.finish_and_clear();
    let (summary, replayed) = read?;
    let import = trace.import();
    describe_rest(&import);
    for warning in summary.warnings(trace.format(), &import) {
        output::note(&format!("  warning: {warning}"));
    }
    let (mut outcomes, mut failed) = (Vec::new(), None);
    for (stack, outcome) in stacks.iter().zip(replayed) {
        match outcome {
            Ok(outcome) => outcomes.push(outcome),
            // The others have their results.
            Err(error) => {
                if let Some(other) = failed.replace(Failure::new(format!("on {stack}: {error}"))) {
                    output::note(&other.text);
                }
            }
        }
    }
    if let (Some(failure), true) = (&failed, outcomes.is_empty()) {
        return Err(Failure::new(&failure.text));
    }
    match args.json {
        true => output::print(&to_json(&import, &outcomes))?,
        false => output::print(&to_text(&import, args.timing, &outcomes))?,
    }
    match failed {
        Some(failure) => Err(failure),
        None => Ok(0),
    }
}

fn to_json(import: &Import, outcomes: &[Outcome]) -> String {
    let mut text = format!("{}\n", json!({ "kind": "trace", "seekless": env!("CARGO_PKG_VERSION"), "import": import }));
    for outcome in outcomes {
        text += &format!("{}\n", json!({ "kind": "outcome", "outcome": outcome.to_json() }));
    }
    if let Some(comparison) = compare(outcomes) {
        text += &format!("{}\n", json!({ "kind": "comparison", "comparison": comparison }));
    }
    text
}

fn to_text(import: &Import, timing: Timing, outcomes: &[Outcome]) -> String {
    let requests = outcomes.first().map_or(0, |outcome| outcome.total().requests);
    let mut text = format!("{requests} requests of {}, timing {timing}\n\n", import.files.join(", "));
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
        for (count, what) in [
            (outcome.widened, "widened to whole blocks"),
            (outcome.moved, "moved into the storage"),
            (outcome.without_latency, "without recorded latency, taken for done at once"),
        ] {
            if count > 0 {
                line += &format!("; {count} {what}");
            }
        }
        text += &format!("{line}\n");
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
