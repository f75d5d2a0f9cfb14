//! `seekless disk fit`

use std::ops::ControlFlow;
use std::path::PathBuf;

use comfy_table::{Cell, CellAlignment, Table, presets};
use seekless::disk::fit::{Effort, FitError, Fitted, fit_drive};
use seekless::disk::validation::{Fit, Measured, TimeUnit};
use seekless::disk::{Drive, DriveError, ReadAhead, WriteBehind};
use seekless_lab::output::{self as files, Replace, Sources, Wish};
use seekless_lab::trace::contents;
use serde_json::{Value, json};

use super::read_files::files_of;
use super::sweep::INTERRUPTED;
use super::{Done, Failure, drives, output, validate};
use crate::reactor::Signals;

/// Estimate a drive's parameters from service times that were measured on it
///
/// Speed, seek curve, overheads, settling, head switch, bus and cache are changed until the model answers as the measured drive
/// did, within each group of similar requests. The first half of the trace is fitted; the second half, which the fit never sees,
/// says what the result is worth. Zones and skews stay those of the drive to begin with.
#[derive(clap::Args)]
#[command(
    after_help = "The trace is that of `seekless disk validate`: R|W BUFFER-ACTION SECTOR SECTORS SERVICE-TIME THINK-TIME, \
                        times in microseconds, or in the unit of --unit. A size that a data sheet rounds may be up to 5 % less than \
                        the trace needs. At least 200 requests are needed, some thousands are better.

Examples:
  seekless disk fit mine.trace --from disk:size=9.1GB,rpm=10000,seek=5.4ms,rate=21MB -o mine.toml
  seekless disk fit mine.trace.gz --from cheetah9lp -o better.toml --json
  seekless disk validate better.toml other.trace

Exit codes: 0 fitted, 1 failed, 2 wrong usage, 130 interrupted: nothing is written"
)]
pub(super) struct Args {
    /// Requests with the service times that were measured; .gz and .zst will do, and - is standard input
    #[arg(value_name = "TRACE")]
    trace: PathBuf,

    /// Unit of the times in the trace: us if not given, after a look at whether that makes sense
    #[arg(long, value_name = "UNIT", value_parser = validate::unit)]
    unit: Option<TimeUnit>,

    /// The drive to begin with: a drive file, the nearest of the catalogue, or disk:size=...,rpm=...,seek=...,rate=...
    #[arg(long, value_name = "DRIVE")]
    from: String,

    /// Write the drive file here instead of to standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace the file if there is one
    #[arg(long, requires = "output")]
    force: bool,

    /// The drive's name in the drive file
    #[arg(long, value_name = "NAME", default_value = "fitted", value_parser = drives::valid_name)]
    name: String,

    /// Limit of how often the trace is replayed
    #[arg(long, value_name = "COUNT", default_value_t = Effort::default().replays_max, value_parser = clap::value_parser!(u32).range(1..))]
    replays: u32,

    /// Print the comparison as JSON
    #[arg(long, requires = "output")]
    json: bool,
}

pub(super) fn run(args: &Args) -> Done {
    let start = drives::read_drive(&args.from)?;
    let files = [files_of(&args.from), vec![args.trace.clone()]].concat();
    let wish = Wish::new(Replace::forced(args.force)).sources(Sources::of(&files));
    if let Some(path) = &args.output {
        files::check(path, &wish)?;
    }
    let signals = Signals::new(&[libc::SIGINT, libc::SIGTERM])?;
    let trace = validate::trace_name(&args.trace);
    let (lines, requests) = validate::read_trace(&trace, &contents(&args.trace)?, args.unit.unwrap_or_default())?;
    let start = validate::large_enough(&args.from, start, &requests)?;
    let bar = output::progress(args.replays.into(), "replays");
    let mut interrupted = false;
    let fitted = fit_drive(&start, &requests, Effort { replays_max: args.replays }, &mut |replays, error_ms| {
        bar.set_position(replays.into());
        if error_ms.is_finite() {
            bar.set_message(format!("error {error_ms:.3} ms"));
        }
        interrupted = signals.pending().is_some();
        if interrupted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    let mut fitted = fitted.map_err(|error| failure(error, args, &start, &trace, &lines, &requests))?;
    if interrupted {
        return Ok(INTERRUPTED);
    }
    if fitted.is_early {
        output::note(&format!(
            "note: the search ended at its limit of {} replays; --replays allows more",
            args.replays
        ));
    }
    fitted.drive.name = args.name.clone().into();
    fitted.drive.source = source(args, &trace, &start, &requests).into();
    let text = fitted.drive.to_toml();
    match &args.output {
        Some(path) => {
            files::write(path, text.as_bytes(), &wish)?;
            match args.json {
                true => output::print_json(&to_json(args, &trace, &start, &fitted))?,
                false => output::print(&to_text(&start, &fitted))?,
            }
        }
        None => {
            output::note(&to_text(&start, &fitted));
            output::print_raw(&text)?;
        }
    }
    if fitted.is_worse_unseen() {
        let [before, after] = [fitted.before, fitted.after].map(|halves| halves.held_out.demerit_ms);
        output::warn(&format!(
            "warning: the half that was not fitted is worse than before: demerit {after:.3} ms, with {} {before:.3} ms. The fit \
             has followed its own half: more replays or a longer trace may help; until then, {} is the better model",
            args.from, args.from
        ));
    }
    Ok(0)
}

fn source(args: &Args, trace: &str, start: &Drive, requests: &[Measured]) -> String {
    let from = if *start.name == args.from { format!("the catalogue's {}", start.name) } else { args.from.clone() };
    let text = format!("fitted to {} of the {} requests of {trace}, from {from}", requests.len() / 2, requests.len());
    text.chars().take(500).collect()
}

fn failure(
    error: FitError,
    args: &Args,
    start: &Drive,
    trace: &str,
    lines: &[usize],
    requests: &[Measured],
) -> Failure {
    match error {
        FitError::Replay(error) => validate::replay_failure(error, &args.from, start, trace, lines, requests),
        FitError::Units { measured_ms, modelled_ms } => {
            match validate::check_unit(trace, args.unit, measured_ms, modelled_ms) {
                Err(failure) => failure,
                Ok(()) => Failure::new(format!("{trace}: {error}")).hint(validate::UNITS),
            }
        }
        FitError::NoTimes => {
            Failure::new(format!("{trace}: {error}")).hint("the fifth column is the measured service time")
        }
        FitError::TooFew { .. } => Failure::new(format!("{trace}: {error}")),
    }
}

/// A figure of a drive, in its unit.
type Figure = (&'static str, f64, f64);

/// What has changed, before and after.
fn figures(start: &Drive, drive: &Drive) -> Result<Vec<Figure>, DriveError> {
    let (before, after) = (start.seek_figures()?, drive.seek_figures()?);
    let ms = |time: seekless::units::Nanos| time.as_millis_f64();
    let both = |name, of: fn(&Drive) -> seekless::units::Nanos| (name, ms(of(start)), ms(of(drive)));
    Ok(vec![
        ("revolutions a minute", start.rpm.into(), drive.rpm.into()),
        ("seek to the next cylinder, ms", ms(before.one), ms(after.one)),
        ("seek on average, ms", ms(before.average), ms(after.average)),
        ("seek over all cylinders, ms", ms(before.full), ms(after.full)),
        ("write settling, ms", start.write_settle_ns as f64 / 1e6, drive.write_settle_ns as f64 / 1e6),
        both("head switch, ms", |drive| drive.head_switch),
        both("overhead of a read, ms", |drive| drive.overhead.read_miss.after_read),
        both("overhead of a read from the cache, ms", |drive| drive.overhead.read_hit.after_read),
        both("overhead of a write, ms", |drive| match drive.cache.write_behind {
            seekless::disk::WriteBehind::None => drive.overhead.write_miss.after_read,
            _ => drive.overhead.write_hit.after_read,
        }),
        both("sector to the host, ms", |drive| drive.bus.read_sector),
        both("sector from the host, ms", |drive| drive.bus.write_sector),
    ])
}

fn to_text(start: &Drive, fitted: &Fitted) -> String {
    let table = |header: [&str; 3]| {
        let mut grid = Table::new();
        grid.load_style(presets::ASCII_MARKDOWN).set_header(header);
        grid
    };
    let row = |grid: &mut Table, name: &str, numbers: [String; 2]| {
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        let [before, after] = numbers.map(right);
        grid.add_row([Cell::new(name), before, after]);
    };
    let mut demerits = table(["", "before", "after"]);
    let halves = [
        ("fitted half", fitted.before.fitted, fitted.after.fitted),
        ("other half", fitted.before.held_out, fitted.after.held_out),
    ];
    for (name, before, after) in halves {
        let demerit = |fit: Fit| format!("{:.3} ms, {:.1} %", fit.demerit_ms, 100.0 * fit.demerit());
        row(&mut demerits, &format!("demerit, {name}"), [demerit(before), demerit(after)]);
        let mean = |fit: Fit| format!("{:+.1} %", 100.0 * fit.mean_error());
        row(&mut demerits, &format!("mean error, {name}"), [mean(before), mean(after)]);
    }
    let mut changes = table(["parameter", "before", "after"]);
    for (name, before, after) in figures(start, &fitted.drive).unwrap_or_default() {
        let number = |value: f64| if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.3}") };
        row(&mut changes, name, [number(before), number(after)]);
    }
    let (old, new) = (&start.cache, &fitted.drive.cache);
    if old != new {
        row(&mut changes, "read-ahead", [old, new].map(|cache| read_ahead(cache.read_ahead)));
        row(&mut changes, "write-behind", [old, new].map(|cache| write_behind(cache.write_behind).to_owned()));
        let size = |cache: &seekless::disk::Cache| format!("{} of {}", cache.segments, cache.segment_sectors);
        row(&mut changes, "cache segments, sectors", [size(old), size(new)]);
    }
    format!(
        "{demerits}\n\n{changes}\n\nThe other half was not fitted: it says what the drive is worth. Overhead and seek can take the \
         place of each other.\n"
    )
}

fn to_json(args: &Args, trace: &str, start: &Drive, fitted: &Fitted) -> Value {
    let fit = |fit: Fit| {
        json!({
            "requests": fit.requests,
            "demerit_ms": fit.demerit_ms,
            "demerit": fit.demerit(),
            "mean_error": fit.mean_error(),
            "per_request_rms_ms": fit.per_request_ms,
        })
    };
    let figures = figures(start, &fitted.drive).unwrap_or_default();
    json!({
        "seekless": env!("CARGO_PKG_VERSION"),
        "trace": trace,
        "from": args.from,
        "output": args.output.as_ref().map(|path| path.display().to_string()),
        "before": { "fitted_half": fit(fitted.before.fitted), "other_half": fit(fitted.before.held_out) },
        "after": { "fitted_half": fit(fitted.after.fitted), "other_half": fit(fitted.after.held_out) },
        "parameters": figures
            .iter()
            .map(|(name, before, after)| json!({ "name": name, "before": before, "after": after }))
            .collect::<Vec<_>>(),
        "replays": fitted.replays,
        "reached_limit": fitted.is_early,
        "other_half_is_worse": fitted.is_worse_unseen(),
    })
}

/// As a drive file has it.
pub(super) fn read_ahead(ahead: ReadAhead) -> String {
    match ahead {
        ReadAhead::None => "none".to_owned(),
        ReadAhead::TrackEnd { sectors } => format!("track-end, {sectors} sectors"),
        ReadAhead::CylinderEnd { sectors } => format!("cylinder-end, {sectors} sectors"),
        ReadAhead::Sectors { sectors } => format!("{sectors} sectors"),
        ReadAhead::NextTrack => "next-track".to_owned(),
    }
}

fn write_behind(behind: WriteBehind) -> &'static str {
    match behind {
        WriteBehind::None => "none",
        WriteBehind::One => "one",
        WriteBehind::Stream => "stream",
    }
}
