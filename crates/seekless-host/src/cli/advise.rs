//! `seekless advise`

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use comfy_table::{Cell, CellAlignment, Table, presets};
use seekless::rt::HostProfile;
use seekless::stack::{Stack, nearest};
use seekless::units::{Nanos, human_bytes};
use seekless_lab::advice::{Advice, CANDIDATES, Candidate, FULL_SPEED, Room, WorkAdvice, layouts};
use seekless_lab::experiment::Stored;
use seekless_lab::output::{self as files, Replace, Wish};
use seekless_lab::replay::{
    Devices, Map, Outcome, ReplayError, Spec, Timing, TraceLayout, Watch, check_stack, needs_survey,
    simulate_all_watched,
};
use seekless_lab::run::{can_be_simulated, simulate};
use seekless_lab::trace::{self, Summary};
use seekless_lab::workload::{Program, WORKLOADS, WorkloadSpec};
use serde_json::{Value, json};

use super::caller::{Caller, Step, Terminal};
use super::replay::{Source, devices, sources, without_times};
use super::report::is_page_of;
use super::trace::TraceArgs;
use super::traces::{duration, step, survey_for};
use super::{Done, Failure, WRONG_USAGE, memory, output, read_stack};
use crate::report::{self, Maker};

/// Which storage suits a trace or a workload: run it on disks, arrays and flash, and make a page of the answer
///
/// Each candidate is asked how a trace would have been served: how long users would have waited, had they asked at the same moments;
/// and how fast it could be with 32 requests under way. The name of a workload (`seekless list workloads`) in place of a
/// trace runs that program on file systems on each storage, of one size where it fills them. The answer says what is fastest, what is cheapest for a
/// wanted time, what the bottleneck is, and how sure that is.
#[derive(clap::Args)]
#[command(mut_arg("files", |argument| argument.help(
    "The trace: a file (also .gz and .zst), or the directory or common name of blktrace's files; several files are one trace, merged by \
     time. It is read several times, so standard input is not taken. Or a workload"
).long_help(None)))]
#[command(after_help = "Examples:
  seekless advise sda.blktrace.0
  seekless advise sda.blktrace.0 --within 20ms --price disk=85 --price ssd=140 -o storage.html
  seekless advise hm_0.csv.gz --on disk:cheetah9lp --on 'raid0:n=2 / disk:file=my-drive.toml'
  seekless advise postmark --set files=500 --set transactions=500 --within 1min --price disk=85 --price ssd=140

Exit codes: 0 answered, 1 failed, 2 wrong usage")]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) trace: TraceArgs,

    /// A candidate: a stack of devices for a trace, with a file system for a workload; without one, a choice of both, whose
    /// flash drives were overwritten at random before. Flash drives of your own are new, unless they say fill=random
    #[arg(long, value_name = "STACK")]
    on: Vec<String>,

    /// The wanted time: in which 99 of 100 requests of a trace are to be answered, or all of a workload done: 20ms
    #[arg(long, value_name = "TIME", value_parser = duration)]
    within: Option<Nanos>,

    /// Price of one drive whose word begins so: disk=85, ssd:nvme-a=140; can be given again
    #[arg(long, value_name = "DRIVE=PRICE", value_parser = price)]
    price: Vec<(String, f64)>,

    /// A number of the workload, as `seekless bench WORKLOAD --help` has them: files=500; can be given again
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,

    /// Processor of the machine that runs the workload, one that costs nothing when not given; see `seekless list
    /// profiles`
    #[arg(long, value_parser = HostProfile::ALL.iter().map(|profile| profile.name).collect::<Vec<_>>())]
    profile: Option<String>,

    /// What to do with requests beyond the end of the storage: error (it is no candidate), wrap or scale
    #[arg(long, default_value = "error")]
    map: Map,

    /// What to do with a trace of several devices: one (an error), or concatenate, to lay them end to end
    #[arg(long, default_value = "one", value_parser = devices)]
    devices: Devices,

    /// The page to write
    #[arg(short = 'o', long, default_value = "advice.html", value_name = "FILE")]
    output: PathBuf,

    /// Replace an existing file that `seekless advise` did not write
    #[arg(short, long)]
    force: bool,

    /// Print JSON, one line for each candidate and the advice
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Checks the numbers of a workload, if one is named.
    pub(super) fn check_words(&self) -> Result<(), Failure> {
        let [name] = &self.trace.files[..] else { return Ok(()) };
        match WORKLOADS.iter().find(|spec| name.as_os_str() == spec.name) {
            Some(spec) => program(self, spec).map(|_| ()).map_err(|problem| Failure::new(problem).code(WRONG_USAGE)),
            None => Ok(()),
        }
    }
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write a parameter of the workload as files=500")?;
    Ok((key.replace('-', "_"), value.to_owned()))
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

/// The answer in each of its forms.
pub(super) struct Advised {
    /// One for each candidate, and the advice.
    pub(super) lines: Vec<Value>,
    pub(super) text: String,
    pub(super) page: String,
}

impl Advised {
    fn new(lines: Vec<Value>, text: String, stored: impl FnOnce(Value) -> Stored) -> Result<Advised, Failure> {
        let command: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        let provenance = json!({
            "seekless": env!("CARGO_PKG_VERSION"), "command": command, "date": super::moment::now(), "seed": 1,
        });
        let page = report::page("Seekless: advice", &[stored(provenance)], Maker::Advise).map_err(Failure::new)?;
        Ok(Advised { lines, text, page })
    }
}

pub(super) fn run(args: &Args) -> Done {
    let replace = if args.force { Replace::Always } else { Replace::Own(|file| is_page_of(Maker::Advise, file)) };
    let wish = Wish::new(replace).sources(sources(&args.trace.files, &args.on));
    files::check(&args.output, &wish)?;
    let bar = match workload(args, None)? {
        Some(_) => output::phases(),
        None => output::bytes(Some(0), "reading"),
    };
    let terminal = Terminal::of_phases(bar, None);
    let advised = advise(args, None, &terminal);
    terminal.clear();
    let Advised { lines, text, page } = advised?;
    files::write(&args.output, page.as_bytes(), &wish)?;
    match args.json {
        true => output::print_raw(&lines.iter().map(|line| format!("{line}\n")).collect::<String>())?,
        false => output::print(&format!("{text}\nThe page: {}\n", args.output.display()))?,
    }
    Ok(0)
}

/// What the words ask: about a trace or a workload. `source` takes the place of the files that the words name.
pub(super) fn advise(args: &Args, source: Option<&dyn Source>, caller: &dyn Caller) -> Result<Advised, Failure> {
    if args.within == Some(Nanos::ZERO) {
        return Err(Failure::new("--within 0: no storage answers in no time").code(WRONG_USAGE));
    }
    match (workload(args, source)?, source) {
        (Some(spec), None) => advise_on_workload(args, spec, caller),
        (_, source) => advise_on_trace(args, source.unwrap_or(&args.trace), caller),
    }
}

/// The workload that is named in place of a trace. A file of that name is a trace; so is `source`, whatever it is called.
fn workload(args: &Args, source: Option<&dyn Source>) -> Result<Option<&'static WorkloadSpec>, Failure> {
    let [name] = &args.trace.files[..] else { return Ok(None) };
    match WORKLOADS.iter().find(|spec| name.as_os_str() == spec.name) {
        Some(spec) if !name.is_file() => Ok(Some(spec)),
        None if source.is_none() && is_no_trace(name) => {
            let names = || WORKLOADS.iter().map(|spec| spec.name);
            let problem = format!("there is no trace {}, and no workload of that name", name.display());
            let near = name.to_str().and_then(|name| nearest(name, names()));
            let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            let failure = Failure::new(format!("{problem}{near}")).code(WRONG_USAGE);
            Err(failure.hint(format!("workloads: {}", names().collect::<Vec<_>>().join(", "))))
        }
        _ if args.set.is_empty() && args.profile.is_none() => Ok(None),
        Some(_) => {
            let name = name.display();
            let problem =
                format!("--set and --profile are for the workload {name}, and the file {name} is taken for a trace");
            Err(Failure::new(problem).hint("use another directory").code(WRONG_USAGE))
        }
        None => {
            let names: Vec<&str> = WORKLOADS.iter().map(|spec| spec.name).collect();
            let problem = format!("--set and --profile are for a workload, and {} is not one", name.display());
            Err(Failure::new(problem).hint(format!("workloads: {}", names.join(", "))).code(WRONG_USAGE))
        }
    }
}

/// A name alone that is neither a file nor what files of blktrace have in common.
fn is_no_trace(name: &Path) -> bool {
    name.components().count() == 1 && trace::files(&[name.to_owned()]).is_err()
}

/// Asks every candidate twice.
fn advise_on_trace(args: &Args, source: &dyn Source, caller: &dyn Caller) -> Result<Advised, Failure> {
    let candidates = candidates(args, CANDIDATES)?;
    let stacks: Vec<Stack> = candidates.iter().map(|candidate| candidate.stack.clone()).collect();
    for stack in &stacks {
        check_stack(stack).map_err(|error| Failure::new(error).code(WRONG_USAGE))?;
    }
    if source.is_a_stream() {
        let failure =
            Failure::new("a stream can be read only once, and every candidate is replayed twice").code(WRONG_USAGE);
        return Err(failure.hint("write it to a file first, such as cat >my.trace, and name that file"));
    }
    let mut spec = Spec { timing: Timing::Open { speed: 1.0 }, map: args.map, layout: None, seed: 1 };
    if needs_survey(args.map, &args.devices) {
        let mut trace = source.open(false)?;
        let summary = survey_for(&mut trace, "reading", caller)?;
        spec.layout = Some(TraceLayout::of(&summary, &args.devices, &trace.names())?);
    }
    let (name, summary, recorded) = replay(source, &stacks, &spec, "as recorded", caller)?;
    check_recorded(&summary, &recorded)?;
    let full_speed = Spec { timing: FULL_SPEED, ..spec };
    let (_, _, full_speed) = replay(source, &stacks, &full_speed, "at full speed", caller)?;
    let advice = Advice::new(name, &summary, candidates, recorded, full_speed, args.within);
    let rows = advice.judged().iter().map(|judged| (judged.candidate.name.as_str(), advice.cells(judged)));
    let text = format!("{}\n{}", table(&advice.header(), rows), advice.sentences().join("\n"));
    Advised::new(advice.to_json(), text, |provenance| advice.to_stored(provenance))
}

/// Refuses a trace from which no advice follows: without times, of one request, or larger than every candidate.
fn check_recorded(summary: &Summary, recorded: &[Result<Outcome, ReplayError>]) -> Result<(), Failure> {
    if let Some(failure) = without_times(recorded) {
        return Err(failure.hint("`seekless replay` compares storage without them: --timing window:8"));
    }
    let is_too_small = |outcome: &Result<Outcome, ReplayError>| matches!(outcome, Err(ReplayError::TooFar { .. }));
    if let Some(Err(error)) = recorded.iter().max_by_key(|outcome| capacity(outcome))
        && recorded.iter().all(is_too_small)
    {
        let text = error.to_string();
        let (problem, hint) = text.split_once('\n').unwrap_or((&text, ""));
        return Err(Failure::new(format!("every candidate is too small: {problem} at most")).hint(hint));
    }
    if summary.requests() == 1 && recorded.iter().any(Result::is_ok) {
        let problem = "the trace has a single request, from which no load follows, and no advice";
        return Err(Failure::new(problem).hint("`seekless replay` says how long it takes"));
    }
    Ok(())
}

/// The size of storage that is too small for the trace.
fn capacity(outcome: &Result<Outcome, ReplayError>) -> u64 {
    match outcome {
        Err(ReplayError::TooFar { capacity, .. }) => *capacity,
        _ => 0,
    }
}

fn advise_on_workload(args: &Args, spec: &'static WorkloadSpec, caller: &dyn Caller) -> Result<Advised, Failure> {
    let wrong = |error: String| Failure::new(error).code(WRONG_USAGE);
    if args.map != Map::Error || args.devices != Devices::One || args.trace.is_described() {
        return Err(wrong(format!(
            "{} is a workload, and options that say how to read a trace have no use",
            spec.name
        )));
    }
    let program = program(args, spec).map_err(wrong)?;
    let layouts = layouts(&*program);
    let layouts: Vec<(&str, &str)> = layouts.iter().map(|(name, line)| (*name, line.as_str())).collect();
    let candidates = candidates(args, &layouts)?;
    for Candidate { stack, .. } in &candidates {
        if stack.file_system().is_none() || !can_be_simulated(stack) {
            let problem = format!(
                "a workload uses files in virtual time, and `{stack}` is not a file system on modelled storage"
            );
            return Err(wrong(problem).hint("for example: lfs / disk:nearline-4tb"));
        }
    }
    let name = args.profile.as_deref().unwrap_or(HostProfile::NONE.name);
    let Some(profile) = HostProfile::named(name) else {
        return Err(wrong(format!("there is no processor profile `{name}`")));
    };
    let filled = match program.fills() {
        true => rooms(spec.name, &candidates, caller)?,
        false => Vec::new(),
    };
    let mut runs = Vec::new();
    let is_ended = std::cell::Cell::new(false);
    for (number, candidate) in candidates.iter().enumerate() {
        let watch = |step: seekless_lab::workload::PhaseProgress<'_>| -> ControlFlow<()> {
            let what = format!("[{}/{}] {}, {}", number + 1, candidates.len(), candidate.name, step.phase);
            let flow = caller.at(Step { what: &what, done: step.done, total: Some(step.total), rate: None });
            is_ended.set(flow.is_break());
            flow
        };
        runs.push(simulate(&candidate.stack, None, profile, &*program, &watch));
        if is_ended.get() {
            return Err(Failure::new("interrupted"));
        }
    }
    let title = program.title();
    let advice = WorkAdvice::new(spec.name.to_owned(), title, name.to_owned(), candidates, runs, args.within, filled);
    let rows = advice.judged().iter().map(|judged| (judged.candidate.name.as_str(), advice.cells(judged)));
    let text = format!("{}\n\n{}\n{}", program.title(), table(&advice.header(), rows), advice.sentences().join("\n"));
    Advised::new(advice.to_json(), text, |provenance| advice.to_stored(provenance))
}

/// What the workload will fill of each candidate; of one that cannot be made, its run says so.
///
/// # Errors
/// When it would take more memory than there is, and when the caller wants to end.
fn rooms(workload: &str, candidates: &[Candidate], caller: &dyn Caller) -> Result<Vec<Option<Room>>, Failure> {
    let mut rooms = Vec::new();
    for (done, candidate) in candidates.iter().enumerate() {
        let what = format!("the room on {}", candidate.name);
        let step = Step { what: &what, done: done as u64, total: Some(candidates.len() as u64), rate: None };
        if caller.at(step).is_break() {
            return Err(Failure::new("interrupted"));
        }
        rooms.push(Room::of(&candidate.stack).ok());
    }
    let needs = |(candidate, room): (&Candidate, &Option<Room>)| Some((candidate.stack.to_string(), (*room)?.memory()));
    // They run one after another.
    let most = candidates.iter().zip(&rooms).filter_map(needs).max_by_key(|(_, bytes)| *bytes);
    match (most, memory::available()) {
        (Some((stack, needed)), Some(available)) if needed > available => {
            let problem = format!(
                "`{workload}` fills the file systems, and what modelled drives store is in memory: `{stack}` would take up to {}, and there are {}",
                human_bytes(needed),
                human_bytes(available)
            );
            let hint = "without --on, candidates have 1 GiB; name smaller ones: --on 'lfs / disk:size=1GiB,rpm=7200,seek=8ms,rate=180MiB'";
            Err(Failure::new(problem).hint(hint))
        }
        _ => Ok(rooms),
    }
}

/// The workload with the numbers that are given; the others are as in `seekless bench`.
fn program(args: &Args, spec: &'static WorkloadSpec) -> Result<Box<dyn Program>, String> {
    let mut keys = toml::Table::new();
    for (key, value) in &args.set {
        let known: Vec<&str> = spec.keys.iter().map(|key| key.name).collect();
        if !known.contains(&key.as_str()) {
            return Err(format!("`{}` has no number `{key}`\nit has {}", spec.name, known.join(", ")));
        }
        let value = match (value.parse::<i64>(), value.parse::<bool>()) {
            (Ok(number), _) => toml::Value::Integer(number),
            (_, Ok(switch)) => toml::Value::Boolean(switch),
            _ => toml::Value::String(value.clone()),
        };
        if keys.insert(key.clone(), value).is_some() {
            return Err(format!("`{key}` is given twice"));
        }
    }
    let program = spec.read(&keys, None).map_err(|problem| wrong_type(&args.set, &problem).unwrap_or(problem))?;
    program.check().map_err(|error| error.to_string())?;
    Ok(program)
}

/// What is wrong with the value of a number, in words that name it: the parser's are about its types.
fn wrong_type(set: &[(String, String)], problem: &str) -> Option<String> {
    let (problem, key) = problem.split_once("\nin `")?;
    let (key, value) = set.iter().find(|(name, _)| *name == key.trim_end_matches('`'))?;
    let expected = match problem.split_once("expected ")?.1 {
        "bool" | "a boolean" => "true or false",
        "f64" | "f32" => "a number",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0 on",
        "i32" | "i64" => "a whole number",
        other => other,
    };
    Some(format!("--set {key}={value}: {expected} is expected"))
}

fn candidates(args: &Args, otherwise: &[(&str, &str)]) -> Result<Vec<Candidate>, Failure> {
    let named: Vec<(&str, &str)> = match args.on.is_empty() {
        true => otherwise.to_vec(),
        false => args.on.iter().map(|line| (line.as_str(), line.as_str())).collect(),
    };
    let mut candidates: Vec<Candidate> = Vec::new();
    for (name, line) in named {
        if candidates.iter().all(|candidate| candidate.name != name) {
            candidates.push(Candidate::new(name, read_stack(line)?, &args.price));
        }
    }
    check_prices(&args.price, &candidates)?;
    Ok(candidates)
}

/// Each price is that of a drive among the candidates, and there is one for each.
fn check_prices(prices: &[(String, f64)], candidates: &[Candidate]) -> Result<(), Failure> {
    let wrong = |problem: String| Failure::new(problem).code(WRONG_USAGE);
    let mut drives: Vec<String> = candidates.iter().map(Candidate::drive).collect();
    drives.sort_unstable();
    drives.dedup();
    for (index, (start, _)) in prices.iter().enumerate() {
        if prices[..index].iter().any(|(other, _)| other == start) {
            return Err(wrong(format!("--price {start}=... is given twice")));
        }
        if !drives.iter().any(|drive| drive.starts_with(start.as_str())) {
            let problem = format!("--price {start}=...: no candidate's drive begins like this");
            return Err(wrong(problem).hint(format!("the drives: {}", drives.join("; "))));
        }
    }
    Ok(())
}

/// The name of the trace, what is in it, and an outcome for each stack.
type Replayed = (String, Summary, Vec<Result<Outcome, ReplayError>>);

fn replay(
    source: &dyn Source,
    stacks: &[Stack],
    spec: &Spec,
    how: &'static str,
    caller: &dyn Caller,
) -> Result<Replayed, Failure> {
    let mut trace = source.open(false)?;
    let is_first = spec.timing != FULL_SPEED;
    if is_first {
        trace.import().to_text().lines().take(1).for_each(|line| caller.note(line));
    }
    let watch = Watch { progress: &|trace, requests| caller.at(step(trace, requests, how)), listeners: Vec::new() };
    let (summary, outcomes) = simulate_all_watched(stacks, &mut trace, spec, watch)?;
    let import = trace.import();
    if is_first {
        import.to_text().lines().skip(1).for_each(|line| caller.note(line));
        for warning in summary.warnings(trace.format(), &import) {
            caller.note(&format!("  warning: {warning}"));
        }
    }
    Ok((import.files.join(", "), summary, outcomes))
}

fn table<'a>(header: &[String], rows: impl Iterator<Item = (&'a str, Vec<String>)>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(header);
    for (name, cells) in rows {
        let mut row = vec![Cell::new(name)];
        row.extend(cells.iter().map(|text| Cell::new(text).set_alignment(CellAlignment::Right)));
        table.add_row(row);
    }
    table
}
