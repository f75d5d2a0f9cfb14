//! `seekless trace`

use std::io;
use std::path::{Path, PathBuf};

use seekless::units::{Nanos, counted};
use seekless_lab::output::{Replace, Sources, Wish};
use seekless_lab::trace::{self, Event, FORMATS, Format, Options, Output, Request, SORT_WINDOW, Trace, TraceWriter};
use serde_json::json;

use super::traces::{describe, duration, survey};
use super::{Done, Failure, WRONG_USAGE, output};

/// Record and look at block traces, cut them and write them in other formats
#[derive(clap::Subcommand)]
pub(super) enum Command {
    Info(InfoArgs),
    Head(HeadArgs),
    Slice(SliceArgs),
    Convert(ConvertArgs),
    Capture(super::capture::CaptureArgs),
    Formats(FormatsArgs),
}

/// A trace, and how it is read.
#[derive(clap::Args)]
pub(super) struct TraceArgs {
    /// The trace: a file (also .gz and .zst), - for standard input, or the directory or common name of blktrace's
    /// files; several files are one trace, merged by time
    #[arg(required = true, value_name = "TRACE")]
    pub(super) files: Vec<PathBuf>,

    /// Its format, or auto to find out; see `seekless trace formats`
    #[arg(long, default_value = "auto", value_name = "FORMAT")]
    format: String,

    /// Which moment of a request counts, where a trace has several: queue, issue or complete
    #[arg(long, value_parser = event)]
    event: Option<Event>,

    /// Only the requests of this device; can be given again
    #[arg(long, value_name = "DEVICE")]
    device: Vec<String>,

    /// Requests that are held back to sort those that are out of order: one moves forward by at most so many places. 0
    /// leaves the order as it is
    #[arg(long, default_value_t = SORT_WINDOW, value_name = "COUNT")]
    sort_window: usize,
}

fn event(text: &str) -> Result<Event, String> {
    let named = |event: &Event| event.name() == text;
    Event::ALL.into_iter().find(named).ok_or_else(|| "events are queue, issue and complete".to_owned())
}

impl TraceArgs {
    pub(super) fn options(&self, latency: bool) -> Result<Options, Failure> {
        let format = match self.format.as_str() {
            "auto" => None,
            text => Some(Format::parse(text).map_err(|problem| Failure::new(problem).code(WRONG_USAGE))?),
        };
        let devices = self.device.clone();
        Ok(Options { format, event: self.event, latency, devices, sort_window: self.sort_window })
    }

    pub(super) fn open(&self, latency: bool) -> Result<Trace, Failure> {
        Ok(Trace::open(&self.files, &self.options(latency)?)?)
    }

    /// Something says how to read it.
    pub(super) fn is_described(&self) -> bool {
        self.format != "auto" || self.event.is_some() || !self.device.is_empty()
    }

    /// It can be read only once.
    pub(super) fn is_a_stream(&self) -> bool {
        self.files.iter().any(|path| !path.is_file() && !path.is_dir() && (path == Path::new("-") || path.exists()))
    }
}

/// Show how a trace is understood and what is in it
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless trace info sda.blktrace.0
  seekless trace info hm_0.csv.gz
  seekless trace info --format 'csv:time=1:us,op=2,offset=3:B,length=4:B' mine.csv

Exit codes: 0 shown, 1 the trace cannot be read or has no request, 2 wrong usage")]
pub(super) struct InfoArgs {
    #[command(flatten)]
    trace: TraceArgs,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn info(args: &InfoArgs) -> Done {
    let mut trace = args.trace.open(true)?;
    let summary = survey(&mut trace, "reading")?;
    let import = trace.import();
    let warnings = summary.warnings(trace.format(), &import);
    if args.json {
        let value = json!({ "import": import, "trace": summary.to_json(&trace.names()), "warnings": warnings });
        output::print_json(&value)?;
        return Ok(0);
    }
    let warnings: String = warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
    output::print(&format!("{}\n{}{warnings}", import.to_text(), summary.to_text(&trace.names())))?;
    Ok(0)
}

/// Show the first requests of a trace, in SI units
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless trace head sda.blktrace.0
  seekless trace head -n 100 --json hm_0.csv.gz

Exit codes: 0 shown, 1 the trace cannot be read or has no request, 2 wrong usage")]
pub(super) struct HeadArgs {
    #[command(flatten)]
    trace: TraceArgs,

    /// Number of requests
    #[arg(short = 'n', long, default_value_t = 10, value_name = "COUNT")]
    requests: usize,

    /// Print JSON, one line for each request
    #[arg(long)]
    json: bool,
}

pub(super) fn head(args: &HeadArgs) -> Done {
    let mut trace = args.trace.open(true)?;
    let mut requests = Vec::new();
    while requests.len() < args.requests && trace.next_batch(&mut requests)? {}
    requests.truncate(args.requests);
    let first = requests.first().map_or(Nanos::ZERO, |request| request.time);
    let mut text = String::new();
    if !args.json {
        text += "     time s  device      operation         offset B    bytes  flags  latency ms\n";
    }
    for request in &requests {
        text += &match args.json {
            true => request_json(request, &trace),
            false => request_text(request, first, &trace),
        };
    }
    match args.json {
        true => output::print_raw(&text)?,
        false => output::print(&text)?,
    }
    describe(&trace.import());
    Ok(0)
}

fn request_text(request: &Request, first: Nanos, trace: &Trace) -> String {
    let Request { op, offset, bytes, flags, .. } = request;
    let device = trace.names().text(request.device);
    let latency = request.latency.map_or("-".to_owned(), |latency| format!("{:.3}", latency.as_millis_f64()));
    let since = request.time.saturating_sub(first).as_secs_f64();
    let flags = if flags.letters().is_empty() { "-".to_owned() } else { flags.letters() };
    format!("{since:>11.6}  {device:<10}  {op:<9} {offset:>16} {bytes:>8}  {flags:<5}  {latency:>10}\n")
}

fn request_json(request: &Request, trace: &Trace) -> String {
    let value = json!({
        "time_ns": request.time.0,
        "device": trace.names().text(request.device),
        "operation": request.op,
        "offset": request.offset,
        "bytes": request.bytes,
        "flags": request.flags.letters(),
        "latency_ns": request.latency.map(|latency| latency.0),
        "process": request.process,
        "cpu": request.cpu,
    });
    format!("{value}\n")
}

/// Target of a converted trace.
#[derive(clap::Args)]
struct TargetArgs {
    /// The file to write, compressed if it ends in .gz or .zst; standard output without
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace the file if it already exists; never one that is read by the same command
    #[arg(short, long, requires = "output")]
    force: bool,
}

/// Write a trace in another format
#[derive(clap::Args)]
#[command(
    after_help = "What a format cannot hold, such as flushes, is left out and counted. The output file gets its name only once it \
                        is whole and durable.

Examples:
  seekless trace convert --to seekless -o mine.csv.zst sda.blktrace.0
  seekless trace convert --to iolog3 hm_0.csv.gz > hm_0.iolog

Exit codes: 0 written, 1 failed, 2 wrong usage"
)]
pub(super) struct ConvertArgs {
    #[command(flatten)]
    trace: TraceArgs,

    /// The format to write; see `seekless trace formats`
    #[arg(long, value_name = "FORMAT")]
    to: String,

    #[command(flatten)]
    target: TargetArgs,
}

/// Write a part of a trace
#[derive(clap::Args)]
#[command(
    after_help = "Times count from the first request of the trace, with --device too. The output file gets its name only once it is whole and durable.

Examples:
  seekless trace slice --from 10s --until 20s -o part.csv hm_0.csv.gz
  seekless trace slice --requests 1000 --device 259,0 sda.blktrace.0 > part

Exit codes: 0 written, 1 failed, 2 wrong usage"
)]
pub(super) struct SliceArgs {
    #[command(flatten)]
    trace: TraceArgs,

    /// The earliest request that is kept
    #[arg(long, value_parser = duration, value_name = "TIME")]
    from: Option<Nanos>,

    /// The moment before which requests are kept
    #[arg(long, value_parser = duration, value_name = "TIME")]
    until: Option<Nanos>,

    /// Number of requests that are kept
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,

    /// The format to write; without, that of the trace
    #[arg(long, value_name = "FORMAT")]
    to: Option<String>,

    #[command(flatten)]
    target: TargetArgs,
}

pub(super) fn convert(args: &ConvertArgs) -> Done {
    let format = Format::parse(&args.to).map_err(|problem| Failure::new(problem).code(WRONG_USAGE))?;
    write(&args.trace, Some(format), &args.target, None, None, None)
}

pub(super) fn slice(args: &SliceArgs) -> Done {
    let from = args.from.unwrap_or(Nanos::ZERO);
    if let Some(until) = args.until.filter(|&until| until <= from) {
        let (from, until) = (trace::time_text(from), trace::time_text(until));
        let problem = format!("--until {until} is not after --from {from}: there is no request between them");
        return Err(Failure::new(problem).hint("both count from the first request of the trace").code(WRONG_USAGE));
    }
    let format = match &args.to {
        Some(to) => Some(Format::parse(to).map_err(|problem| Failure::new(problem).code(WRONG_USAGE))?),
        None => None,
    };
    write(&args.trace, format, &args.target, args.from, args.until, args.requests)
}

/// Writes the part of a trace between two moments, with at most the given number of requests.
fn write(
    args: &TraceArgs,
    format: Option<Format>,
    target: &TargetArgs,
    from: Option<Nanos>,
    until: Option<Nanos>,
    count: Option<u64>,
) -> Done {
    let sources = Sources::of(&trace::files(&args.files)?);
    let wish = Wish::new(Replace::forced(target.force)).sources(sources);
    match &target.output {
        Some(path) => seekless_lab::output::check(path, &wish)?,
        None => wish.sources.check_standard_output()?,
    }
    let mut trace = args.open(true)?;
    let format = format.unwrap_or_else(|| trace.format().clone());
    let readable_only = || {
        let can: Vec<String> = FORMATS.iter().filter(|spec| spec.writes()).map(|spec| spec.usage()).collect();
        let failure = Failure::new(format!("{format} can be read, but not written"));
        failure.code(WRONG_USAGE).hint(format!("use --to with one of {}", can.join(", ")))
    };
    let format = format.to_write().ok_or_else(readable_only)?;
    let name = target.output.as_ref().map_or("standard output".to_owned(), |path| path.display().to_string());
    let failed = |error: io::Error| Failure::new(format!("cannot write {name}: {error}"));
    let out = match &target.output {
        Some(path) => Output::file(path, &wish)?,
        None => Output::standard(),
    };
    let mut writer = TraceWriter::new(&format, out).ok_or_else(readable_only)?;
    let bar = output::counter("writing");
    let (mut kept, mut batch) = (0, Vec::new());
    'all: while trace.next_batch(&mut batch)? {
        let first = trace.first().unwrap_or_default();
        for request in batch.drain(..) {
            let since = request.time.saturating_sub(first);
            // The trace is sorted, as far as the window allows.
            if until.is_some_and(|until| since >= until) || count.is_some_and(|count| kept >= count) {
                break 'all;
            }
            if from.is_some_and(|from| since < from) {
                continue;
            }
            kept += 1;
            match writer.write(&request, &trace.names()) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(0),
                result => result.map_err(failed)?,
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let (written, out) = match writer.finish() {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(0),
        result => result.map_err(failed)?,
    };
    // An empty result does not replace a file.
    if written.requests > 0 {
        out.finish()?;
    }
    describe(&trace.import());
    output::note(&format!(
        "{name}: {} as {format}, {}",
        counted(written.requests, "request"),
        counted(written.bytes, "byte")
    ));
    for (reason, count) in &written.dropped {
        output::note(&format!("  left out: {count} x {reason}"));
    }
    if written.times_cut > 0 {
        output::note(&format!("  times truncated to the format's unit: {}", written.times_cut));
    }
    if written.latencies_cut > 0 {
        let times = counted(written.latencies_cut, "response time");
        output::note(&format!("  truncated to the format's unit: {times}"));
    }
    if written.latencies_lost > 0 {
        let times = counted(written.latencies_lost, "response time");
        output::note(&format!("  not written, because the format has no place for them: {times}"));
    }
    if written.latencies_unknown > 0 {
        let times = counted(written.latencies_unknown, "response time");
        output::note(&format!("  unknown, written as 0: {times}"));
    }
    if from.or(until).is_some()
        && let Some(first) = trace.first()
    {
        let moment = seconds(first.0);
        output::note(&format!("  --from and --until count from the first request of the trace, which is at {moment}"));
    }
    if let Some(from) = written.from_ns.filter(|from| *from > 0) {
        output::note(&format!(
            "  times count from the first request, which is at {}: {format} records only waits",
            seconds(from)
        ));
    }
    match written.requests {
        0 => Err(Failure::new("nothing was written: no request in this part of the trace fits the format")),
        _ => Ok(0),
    }
}

fn seconds(nanos: u64) -> String {
    format!("{}.{:09} s", nanos / 1_000_000_000, nanos % 1_000_000_000)
}

/// Show the trace formats
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless trace formats

Exit codes: 0 shown, 2 wrong usage")]
pub(super) struct FormatsArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn formats(args: &FormatsArgs) -> Done {
    let rows: Vec<_> = FORMATS.iter().map(|spec| spec.info()).collect();
    if args.json {
        output::print_json(&json!(rows))?;
        return Ok(0);
    }
    let width = rows.iter().map(|info| info.name.len()).max().unwrap_or(0);
    let row = |info: &seekless_lab::trace::FormatInfo| {
        let how = if info.writes { "read, write" } else { "read" };
        format!("{:width$}  {how:11}  {}\n{:width$}  {:11}  {}\n", info.name, info.about, "", "", info.shape)
    };
    output::print(&rows.iter().map(row).collect::<String>())?;
    Ok(0)
}
