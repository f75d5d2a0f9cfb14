//! `seekless disk validate`

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use comfy_table::{Cell, CellAlignment, Table, presets};
use seekless::device::DeviceError;
use seekless::disk::Drive;
use seekless::disk::validation::{Answer, Fit, Measured, Published, ReplayError, TimeUnit, fit, published, replay};
use seekless::units::{SECTOR_BYTES, counted};
use seekless_lab::output::{self as files, Replace, Sources, Wish};
use seekless_lab::trace::contents;
use serde_json::{Value, json};

use super::plot::{self, Panel};
use super::read_files::files_of;
use super::{Done, Failure, WRONG_USAGE, drives, list, output};

/// Compare modelled drives with service times that were measured on the real ones
#[derive(clap::Args)]
#[command(after_help = "A trace has a line for each request, as DiskSim's validation traces have:
  R|W  BUFFER-ACTION  SECTOR  SECTORS  SERVICE-TIME  THINK-TIME
Sectors have 512 bytes. Times are in microseconds, or in the unit of --unit: what the real drive took, and the pause until the next request. \
                        Nothing queues, so pure service times are compared. The buffer action is not used. Files that \
                        end in .gz or .zst will do, and - is standard input.

The demerit figure is the root mean square of the horizontal distance between the two distributions of service \
                        times: 0 means that the distributions are equal, though perhaps not the times of single \
                        requests. The error per request is therefore shown too.

Examples:
  seekless disk validate cheetah9lp cheetah9LP.trace
  seekless disk validate cheetah9lp cheetah9LP.trace dec-rz26 dec_rz26.trace --svg fit.svg
  seekless disk validate disk:size=4TB,rpm=7200,seek=8.5ms,rate=180MB mine.trace.gz --json

Exit codes: 0 compared, 1 failed, 2 wrong usage")]
pub(super) struct Args {
    /// A drive, by its name in the catalogue or as disk:size=...,rpm=...,seek=...,rate=..., and a trace that was
    /// measured on the real one; more such pairs may follow
    #[arg(required = true, num_args = 2.., value_names = ["DRIVE", "TRACE"])]
    pairs: Vec<OsString>,

    /// Unit of the times in the traces: us if not given, after a look at whether that makes sense
    #[arg(long, value_name = "UNIT", value_parser = unit)]
    unit: Option<TimeUnit>,

    /// Draw the measured and the modelled distribution of service times into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Replace that file even if this command did not write it
    #[arg(short, long, requires = "svg")]
    force: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A drive beside a trace that was measured on it.
struct Comparison {
    /// The user's name for the drive.
    name: String,
    drive: Cow<'static, Drive>,
    trace: String,
    answers: Vec<Answer>,
    fit: Fit,
    disksim: Option<&'static Published>,
}

pub(super) fn run(args: &Args) -> Done {
    // Usage errors are reported before anything is read.
    let mut pairs = Vec::new();
    for pair in args.pairs.chunks(2) {
        let [name, trace] = pair else {
            let alone = pair.first().map_or(Cow::default(), |name| name.to_string_lossy());
            let failure = Failure::new(format!("there is no trace for {alone}")).code(WRONG_USAGE);
            return Err(failure.hint("give a drive and its trace, then optionally more such pairs"));
        };
        let name = name.to_string_lossy().into_owned();
        let drive = drives::read_drive(&name)?;
        pairs.push((name, drive, Path::new(trace)));
    }
    let files = pairs.iter().flat_map(|(name, _, trace)| [files_of(name), vec![trace.to_path_buf()]].concat());
    let files: Vec<PathBuf> = files.collect();
    let replace = if args.force { Replace::Always } else { Replace::Own(output::is_picture) };
    let wish = Wish::new(replace).sources(Sources::of(&files));
    if let Some(path) = &args.svg {
        files::check(path, &wish)?;
    }
    let mut comparisons = Vec::new();
    for (name, drive, trace) in pairs {
        comparisons.push(compare(name, drive, trace, args.unit)?);
    }
    if let Some(path) = &args.svg {
        let panels: Vec<Panel> = comparisons.iter().map(Comparison::panel).collect();
        files::write(path, output::signed(&plot::distributions(&panels)?).as_bytes(), &wish)?;
    }
    match args.json {
        true => output::print_json(&to_json(&comparisons, args.unit.unwrap_or_default()))?,
        false => output::print(&to_text(&comparisons, args.unit.unwrap_or_default()))?,
    }
    Ok(0)
}

/// The unit of a validation trace, as an argument.
pub(super) fn unit(text: &str) -> Result<TimeUnit, String> {
    let found = TimeUnit::ALL.into_iter().find(|unit| unit.name() == text);
    found.ok_or_else(|| "units of time are us, ms and s".to_owned())
}

/// Refuses times that make no sense in microseconds, unless the user said that they are; they do in another unit, or none is known.
pub(super) fn check_unit(
    trace: &str,
    given: Option<TimeUnit>,
    measured_ms: f64,
    modelled_ms: f64,
) -> Result<(), Failure> {
    let Some(meant) = TimeUnit::default().mistaken(measured_ms, modelled_ms).filter(|_| given.is_none()) else {
        return Ok(());
    };
    let problem = format!(
        "{trace}: in microseconds, its service times have a mean of {:.3} us, and those of the drive one of {:.0} us",
        measured_ms * 1e3,
        modelled_ms * 1e3
    );
    let hint = format!(
        "they look like {0}: --unit {1}; if they are microseconds all the same: --unit us",
        meant.words(),
        meant.name()
    );
    Err(Failure::new(problem).hint(hint))
}

fn compare(
    name: String,
    drive: Cow<'static, Drive>,
    path: &Path,
    unit: Option<TimeUnit>,
) -> Result<Comparison, Failure> {
    let trace = trace_name(path);
    let (lines, requests) = read_trace(&trace, &contents(path)?, unit.unwrap_or_default())?;
    let drive = large_enough(&name, drive, &requests)?;
    let answers =
        replay(&drive, &requests).map_err(|error| replay_failure(error, &name, &drive, &trace, &lines, &requests))?;
    let nothing = || Failure::new(format!("there is no request in {trace}"));
    let fit = fit(&answers).ok_or_else(nothing)?;
    if fit.measured_mean_ms == 0.0 {
        let failure = Failure::new(format!("in {trace}, no request took any time"));
        return Err(failure.hint("the fifth column is the measured service time"));
    }
    check_unit(&trace, unit, fit.measured_mean_ms, fit.modelled_mean_ms)?;
    // The figure is for a drive of the catalogue, even if it is called generic.
    let disksim = published(&drive.name, &fit);
    Ok(Comparison { name, drive, trace, answers, fit, disksim })
}

/// The trace's name in messages.
pub(super) fn trace_name(path: &Path) -> String {
    match path.to_str() {
        Some("-") => "standard input".to_owned(),
        _ => path.display().to_string(),
    }
}

/// The drive, or if its data sheet's size is rounded, one that holds the trace: 9.1 GB are 9,105,018,880 bytes on one that is sold as such.
pub(super) fn large_enough(
    name: &str,
    drive: Cow<'static, Drive>,
    requests: &[Measured],
) -> Result<Cow<'static, Drive>, Failure> {
    /// A size of two digits is rounded by less.
    const ROUNDED: f64 = 0.05;
    let end = end(requests);
    let is_rounded = end > drive.sectors && end as f64 <= drive.sectors as f64 * (1.0 + ROUNDED);
    let Some((before, rest)) = name.split_once("size=").filter(|_| is_rounded) else { return Ok(drive) };
    let after = rest.find([',', ' ']).map_or("", |at| &rest[at..]);
    let larger = format!("{before}size={}{after}", end * SECTOR_BYTES);
    let found = drives::read_drive(&larger)?;
    output::note(&format!(
        "note: the trace ends at sector {end}, and {name} at {}: its size is taken to be rounded, and the drive for {larger}",
        drive.sectors
    ));
    Ok(found)
}

/// Why `drive`, which the user calls `name`, cannot replay the requests of those lines.
pub(super) fn replay_failure(
    error: ReplayError,
    name: &str,
    drive: &Drive,
    trace: &str,
    lines: &[usize],
    requests: &[Measured],
) -> Failure {
    match error {
        ReplayError::Drive(error) => Failure::new(error),
        ReplayError::Request { index, error } => {
            let outside = matches!(error, DeviceError::OutOfRange { .. });
            let failure = Failure::new(format!("{trace}, line {}: {error}", lines[index]));
            match outside {
                true => failure.hint(format!(
                    "{name} ends at sector {}, the trace at {}: was it measured on another drive?",
                    drive.sectors,
                    end(requests)
                )),
                false => failure,
            }
        }
        ReplayError::TooLong { index } => {
            let failure = Failure::new(format!("{trace}, line {}: the times add up to a century", lines[index]));
            failure.hint(UNITS)
        }
    }
}

/// What to do about impossible times.
pub(super) const UNITS: &str = "service and think times are in microseconds; other units: --unit ms, --unit s";

/// One past the last sector requested.
fn end(requests: &[Measured]) -> u64 {
    let end = |measured: &Measured| measured.request.sector.0.saturating_add(measured.request.sectors.into());
    requests.iter().map(end).max().unwrap_or(0)
}

/// The requests and their line numbers. Every line must be valid: leaving some out would compare other requests, as the
/// cache sees them all. Only blank lines are skipped.
pub(super) fn read_trace(name: &str, bytes: &[u8], unit: TimeUnit) -> Result<(Vec<usize>, Vec<Measured>), Failure> {
    let (mut lines, mut requests) = (Vec::new(), Vec::new());
    let mut bad: Option<(usize, String, usize)> = None;
    for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let line = String::from_utf8_lossy(line);
        if line.trim().is_empty() {
            continue;
        }
        match (Measured::parse_in(unit, &line), &mut bad) {
            (Ok(measured), _) => {
                lines.push(index + 1);
                requests.push(measured);
            }
            (Err(_), Some((_, _, more))) => *more += 1,
            (Err(problem), None) => bad = Some((index + 1, shortened(&problem), 0)),
        }
    }
    let Some((line, problem, more)) = bad else {
        return Ok((lines, requests));
    };
    let also = if more > 0 { format!(" (and {} like it)", counted(more as u64, "more line")) } else { String::new() };
    let failure = Failure::new(format!("{name}, line {line}: {problem}{also}"));
    Err(failure.hint(format!(
        "a line is: R|W BUFFER-ACTION SECTOR SECTORS SERVICE-TIME THINK-TIME, times in {}; see `seekless disk validate --help`",
        unit.words()
    )))
}

/// Enough of a message to recognise its subject: a line of another kind of file may be as long as the file.
fn shortened(problem: &str) -> String {
    const CHARS_MAX: usize = 160;
    match problem.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{} ...", &problem[..end]),
        None => problem.to_owned(),
    }
}

impl Comparison {
    fn panel(&self) -> Panel {
        let sorted = |time: fn(&Answer) -> seekless::units::Nanos| {
            let mut times: Vec<f64> = self.answers.iter().map(|answer| time(answer).as_millis_f64()).collect();
            times.sort_unstable_by(f64::total_cmp);
            times
        };
        let Fit { requests, demerit_ms, .. } = self.fit;
        let demerit = percent(self.fit.demerit());
        let disksim = self.disksim.map_or(String::new(), |known| format!("; DiskSim 4.0: {:.3} ms", known.demerit_ms));
        Panel {
            title: format!("{} ({})", self.name, self.drive.product),
            subtitle: format!("{requests} requests, demerit figure {demerit_ms:.3} ms, {demerit} of the mean{disksim}"),
            measured_ms: sorted(|answer| answer.measured),
            modelled_ms: sorted(|answer| answer.modelled),
        }
    }

    fn to_json(&self) -> Value {
        let Fit { requests, measured_mean_ms, modelled_mean_ms, demerit_ms, per_request_ms, within_half_ms } = self.fit;
        json!({
            "drive": self.name,
            "product": self.drive.product,
            "known_from": list::evidence(&self.drive),
            "trace": self.trace,
            "requests": requests,
            "measured_mean_ms": measured_mean_ms,
            "modelled_mean_ms": modelled_mean_ms,
            "mean_error": self.fit.mean_error(),
            "demerit_ms": demerit_ms,
            "demerit": self.fit.demerit(),
            "per_request_rms_ms": per_request_ms,
            "within_half_ms": within_half_ms,
            "disksim_demerit_ms": self.disksim.map(|known| known.demerit_ms),
        })
    }
}

fn to_json(comparisons: &[Comparison], unit: TimeUnit) -> Value {
    json!({
        "unit": unit.name(),
        "seekless": env!("CARGO_PKG_VERSION"),
        "disksim_source": DISKSIM_SOURCE,
        "comparisons": comparisons.iter().map(Comparison::to_json).collect::<Vec<_>>(),
    })
}

const DISKSIM_SOURCE: &str =
    "DiskSim 4.0 with its own model of the drive on the same trace, both from its distribution";

const COLUMNS: [&str; 10] = [
    "drive",
    "requests",
    "measured mean ms",
    "modelled mean ms",
    "mean error",
    "demerit ms",
    "demerit",
    "DiskSim's ms",
    "per request ms",
    "within 0.5 ms",
];

fn to_text(comparisons: &[Comparison], unit: TimeUnit) -> String {
    let mut grid = Table::new();
    grid.load_style(presets::ASCII_MARKDOWN).set_header(COLUMNS);
    for Comparison { name, fit, disksim, .. } in comparisons {
        let numbers = [
            fit.requests.to_string(),
            format!("{:.2}", fit.measured_mean_ms),
            format!("{:.2}", fit.modelled_mean_ms),
            format!("{:+.1} %", 100.0 * fit.mean_error()),
            format!("{:.3}", fit.demerit_ms),
            percent(fit.demerit()),
            disksim.map_or("-".to_owned(), |known| format!("{:.3}", known.demerit_ms)),
            format!("{:.2}", fit.per_request_ms),
            format!("{:.0} %", 100.0 * fit.within_half_ms),
        ];
        let mut cells = vec![Cell::new(name)];
        cells.extend(numbers.iter().map(|text| Cell::new(text).set_alignment(CellAlignment::Right)));
        grid.add_row(cells);
    }
    let mut text = format!(
        "{grid}\n\ndemerit: root mean square distance of the two distributions, also as a part of the measured mean\n\
         per request: root mean square difference of the two times of a request\n\
         times of the traces: taken for {}\n",
        unit.words()
    );
    let known: Vec<_> = comparisons.iter().filter_map(|one| Some((one.disksim?, one.fit.demerit_ms))).collect();
    if !known.is_empty() {
        // A figure of three digits is met by a value that rounds to it.
        let met = known.iter().filter(|(disksim, ours)| *ours < disksim.demerit_ms + 0.0005).count();
        text += &format!(
            "DiskSim's: {DISKSIM_SOURCE}\n\nThe demerit is no worse than DiskSim's on {met} of {} drives.\n",
            known.len()
        );
    }
    text
}

fn percent(part: f64) -> String {
    format!("{:.1} %", 100.0 * part)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blank lines are skipped, but counted; of bad lines the first is shown, shortened.
    #[test]
    fn lines_have_numbers() {
        let (lines, requests) =
            read_trace("t", b"R Hit 1 2 3 4\n\n \r\nW Hit 1 2 3 4\r\n", TimeUnit::default()).unwrap();
        assert_eq!((lines, requests.len()), (vec![1, 4], 2));
        let failure = read_trace("t", b"\nR Hit 1 2 3 4\nX Hit 1 2 3 4\nR\n", TimeUnit::default()).unwrap_err();
        assert!(failure.text.starts_with("t, line 3: ") && failure.text.contains("and 1 more"), "{}", failure.text);
        let failure = read_trace("t", &[0xff; 1 << 16], TimeUnit::default()).unwrap_err();
        assert!(failure.text.len() < 2000, "{}", failure.text.len());
    }
}
