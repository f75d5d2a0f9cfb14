//! `seekless advise`

use std::path::PathBuf;

use comfy_table::{Cell, CellAlignment, Table, presets};
use seekless::stack::Stack;
use seekless::units::Nanos;
use seekless_lab::advice::{Advice, CANDIDATES, Candidate, FULL_SPEED, Judged};
use seekless_lab::output::{self as files, Replace, Wish};
use seekless_lab::replay::{
    Devices, Map, Outcome, Place, ReplayError, Spec, Timing, check_stack, needs_survey, simulate_all,
};
use seekless_lab::trace::time_text;
use serde_json::json;

use super::replay::devices;
use super::report::is_page;
use super::trace::TraceArgs;
use super::traces::{describe, describe_rest, duration, survey};
use super::{Done, Failure, WRONG_USAGE, output, read_stack};
use crate::report;

/// Which storage suits a trace: replay it on disks, arrays and flash, and make a page of the answer
///
/// Each candidate is asked twice: how long users would have waited, had they asked at the same moments; and how fast it
/// could be with 32 requests under way. The answer says what is fastest, what is cheapest for a wanted response time,
/// which part is busiest, and how sure that is.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless advise sda.blktrace.0
  seekless advise sda.blktrace.0 --within 20ms --price disk=85 --price ssd=140 -o storage.html
  seekless advise hm_0.csv.gz --on disk:cheetah9lp --on 'raid0:n=2 / disk:file=my-drive.toml'

Exit codes: 0 answered, 1 failed, 2 wrong usage")]
pub(super) struct Args {
    #[command(flatten)]
    trace: TraceArgs,

    /// A candidate: a stack of devices; without one, disks, arrays of disks, and flash
    #[arg(long, value_name = "STACK")]
    on: Vec<String>,

    /// 99 of 100 requests are to be answered within this time: 20ms
    #[arg(long, value_name = "TIME", value_parser = duration)]
    within: Option<Nanos>,

    /// Price of one drive whose word begins so: disk=85, ssd:nvme-a=140; can be given again
    #[arg(long, value_name = "DRIVE=PRICE", value_parser = price)]
    price: Vec<(String, f64)>,

    /// What to do with requests beyond the end of the storage: error (it is no candidate), wrap or scale
    #[arg(long, default_value = "error")]
    map: Map,

    /// What to do with a trace of several devices: one (an error), or concatenate, to lay them end to end
    #[arg(long, default_value = "one", value_parser = devices)]
    devices: Devices,

    /// The page to write
    #[arg(short = 'o', long, default_value = "advice.html", value_name = "FILE")]
    output: PathBuf,

    /// Replace an existing file that is no page of this program
    #[arg(short, long)]
    force: bool,

    /// Print JSON, one line for each candidate and the advice
    #[arg(long)]
    json: bool,
}

fn price(text: &str) -> Result<(String, f64), String> {
    let wrong = || "write a price as disk=85".to_owned();
    let (drive, price) = text.rsplit_once('=').ok_or_else(wrong)?;
    let price: f64 = price.parse().map_err(|_| wrong())?;
    match !drive.is_empty() && price.is_finite() && price >= 0.0 {
        true => Ok((drive.to_owned(), price)),
        false => Err(wrong()),
    }
}

pub(super) fn run(args: &Args) -> Done {
    let candidates = candidates(args)?;
    let stacks: Vec<Stack> = candidates.iter().map(|candidate| candidate.stack.clone()).collect();
    for stack in &stacks {
        check_stack(stack).map_err(|error| Failure::new(error).code(WRONG_USAGE))?;
    }
    if args.trace.is_a_stream() {
        let failure =
            Failure::new("a stream can be read only once, and every candidate is asked twice").code(WRONG_USAGE);
        return Err(failure.hint("write it to a file"));
    }
    let wish = Wish::new(if args.force { Replace::Always } else { Replace::Own(is_page) });
    files::check(&args.output, &wish)?;
    let mut spec = Spec { timing: Timing::Open { speed: 1.0 }, map: args.map, place: None, seed: 1 };
    if needs_survey(args.map, &args.devices) {
        let mut trace = args.trace.open(false)?;
        let summary = survey(&mut trace, "reading")?;
        spec.place = Some(Place::of(&summary, &args.devices, &trace.names())?);
    }
    let recorded = replay(args, &stacks, &spec, "as recorded")?;
    let full_speed = replay(args, &stacks, &Spec { timing: FULL_SPEED, ..spec }, "at full speed")?;
    let name = args.trace.files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
    let advice = Advice::new(name, candidates, recorded, full_speed, args.within);

    let command: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let provenance = json!({
        "seekless": env!("CARGO_PKG_VERSION"), "command": command, "date": jiff::Timestamp::now().to_string(), "seed": 1,
    });
    let page = report::page("Seekless: advice", &[advice.to_stored(provenance)]).map_err(Failure::new)?;
    files::write(&args.output, page.as_bytes(), &wish)?;
    match args.json {
        true => output::print_raw(&advice.to_json().iter().map(|line| format!("{line}\n")).collect::<String>())?,
        false => output::print(&format!(
            "{}\n{}\nThe page: {}\n",
            table(&advice),
            advice.sentences().join("\n"),
            args.output.display()
        ))?,
    }
    Ok(0)
}

fn candidates(args: &Args) -> Result<Vec<Candidate>, Failure> {
    let named: Vec<(&str, &str)> = match args.on.is_empty() {
        true => CANDIDATES.to_vec(),
        false => args.on.iter().map(|line| (line.as_str(), line.as_str())).collect(),
    };
    let mut candidates: Vec<Candidate> = Vec::new();
    for (name, line) in named {
        if candidates.iter().all(|candidate| candidate.name != name) {
            candidates.push(Candidate::new(name, read_stack(line)?, &args.price));
        }
    }
    Ok(candidates)
}

fn replay(
    args: &Args,
    stacks: &[Stack],
    spec: &Spec,
    how: &'static str,
) -> Result<Vec<Result<Outcome, ReplayError>>, Failure> {
    let mut trace = args.trace.open(false)?;
    let is_first = spec.timing != FULL_SPEED;
    if is_first {
        describe(&trace.import(), true);
    }
    let bar = output::bytes(trace.progress().bytes_total(), how);
    let read = simulate_all(stacks, &mut trace, spec, &|trace, _| bar.set_position(trace.progress().bytes()));
    bar.finish_and_clear();
    let (summary, outcomes) = read?;
    if is_first {
        let import = trace.import();
        describe_rest(&import);
        for warning in summary.warnings(trace.format(), &import) {
            output::note(&format!("  warning: {warning}"));
        }
    }
    Ok(outcomes)
}

fn table(advice: &Advice) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(["storage", "mean", "p99", "max", "times as fast", "busiest part", "price"]);
    for Judged { candidate, figures } in &advice.judged {
        let price = candidate.price.map_or_else(String::new, |price| format!("{price:.0}"));
        let numbers = match figures {
            Ok(figures) => [
                time_text(figures.mean),
                time_text(figures.p99),
                time_text(figures.max),
                figures.times_as_fast.map_or_else(String::new, |times| format!("{times:.1}")),
                figures.busiest.map_or_else(String::new, |(what, share)| format!("{what} {:.0} %", share * 100.0)),
                price,
            ],
            Err(_) => ["-", "-", "-", "-", "-", &price].map(str::to_owned),
        };
        let mut row = vec![Cell::new(&candidate.name)];
        row.extend(numbers.iter().map(|text| Cell::new(text).set_alignment(CellAlignment::Right)));
        table.add_row(row);
    }
    table
}
