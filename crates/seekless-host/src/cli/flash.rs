//! `seekless flash`: the drives of the flash model, and how far they are from what was measured.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use comfy_table::{Cell, CellAlignment, Table, presets};
use seekless::flash::validation::{
    Answer, Effort, FIGURES, Figure, FioRun, Half, MEASURED, OPERATIONS, Operation, Region, Share, fit_figures, parse,
    predict, regions, round_figures,
};
use seekless::flash::{Model, Ssd, Zns};
use seekless::units::{counted, human_bytes};
use seekless_lab::output::{self as files, Replace, Sources, Wish};
use seekless_lab::trace::contents;
use serde_json::{Value, json};

use super::flash_drives::{known, operation, read_model};
use super::plot::{self, Loops};
use super::read_files::files_of;
use super::{Done, Failure, WRONG_USAGE, output, read_stack};

/// Look at modelled flash drives, and compare them with measurements of the real ones
#[derive(clap::Subcommand)]
pub(super) enum Command {
    List(ListArgs),
    Info(super::flash_info::Args),
    Validate(ValidateArgs),
    Fit(FitArgs),
}

/// Show the flash drives of the catalogue, and what is known of each
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless flash list
  seekless flash list --json

Exit codes: 0 shown, 2 wrong usage")]
pub(super) struct ListArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Compare a modelled flash drive with closed loops that were measured on the real one
#[derive(clap::Args)]
#[command(
    after_help = "Without a file, the drive is compared with the measurements that come with the project. A file has \
                        comma-separated values whose first line names the columns; needed are engine, format, case, \
                        block_size, iodepth, iops and latency_mean_us, where a case is operation/block size/zones.

Half of the cases were there to fit the drives of the catalogue; the other half is what to believe. A hash of the \
                        case's name says which is which.

Examples:
  seekless flash validate nvme-a
  seekless flash validate nvme-a --svg fit.svg
  seekless flash validate ssd:nvme-a,program=700us mine.csv --json

Exit codes: 0 compared, 1 failed, 2 wrong usage"
)]
pub(super) struct ValidateArgs {
    /// A drive of the catalogue, or a stack that is one flash drive
    #[arg(value_name = "DRIVE")]
    drive: String,

    /// Measurements
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Draw measured and modelled throughput by depth into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Replace that file even if this command did not write it
    #[arg(short, long, requires = "svg")]
    force: bool,

    /// Print JSON, with every case
    #[arg(long)]
    json: bool,
}

/// Fit the figures of a modelled flash drive to closed loops that were measured on a real one
#[derive(clap::Args)]
#[command(
    after_help = "It sees half of the cases, those that `flash validate` calls fitted, and reports its errors on the other \
                        half, too. A file has the form that `flash validate` reads. What cannot follow from the cases stays as it \
                        was: the size, dies, channels and buffer of the drive, and figures that have no effect on a case, such as \
                        times of operations that were not measured.

Examples:
  seekless flash fit nvme-a
  seekless flash fit ssd:nvme-a,dies=64 mine.csv
  seekless flash fit nvme-a --round --keep link-rate,link-setup

Exit codes: 0 fitted, 1 failed, 2 wrong usage"
)]
pub(super) struct FitArgs {
    /// The drive to begin with: one of the catalogue, or a stack that is one flash drive
    #[arg(value_name = "DRIVE")]
    drive: String,

    /// Measurements; without them, those that come with the project
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Begin with round figures in place of those of the drive, the same for every drive
    #[arg(long)]
    round: bool,

    /// Figures that stay those of the drive, such as ones that a data sheet has
    #[arg(long, value_name = "FIGURE", value_delimiter = ',', value_parser = PossibleValuesParser::new(FIGURES.iter().map(|figure| figure.option)))]
    keep: Vec<String>,

    /// Drives that are tried at most; a note says when the search ended at this limit
    #[arg(long, default_value_t = Effort::default().drives_max, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    drives: u32,

    /// Cases of each operation, size and depth that are used at most
    #[arg(long, default_value_t = Effort::default().cases_max as u32, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    cases: u32,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn fit(args: &FitArgs) -> Done {
    let model = read_model(&args.drive)?;
    let cases = cases(&model, args.file.as_deref())?;
    let figures: Vec<&Figure> =
        FIGURES.iter().filter(|figure| args.keep.iter().all(|keep| keep != figure.option)).collect();
    let start = if args.round { round_figures(&model, &figures) } else { model.clone() };
    let effort = Effort { cases_max: args.cases as usize, drives_max: args.drives };
    let bar = output::progress(args.drives.into(), "drives");
    let fitted = fit_figures(&start, &figures, &cases, effort, &mut |tried, _| {
        bar.set_position(tried.into());
        ControlFlow::Continue(())
    });
    bar.finish_and_clear();
    let mut fitted = fitted.map_err(Failure::new)?;
    if fitted.drives >= args.drives {
        output::note(&format!(
            "note: the search ended at its limit of {}; --drives allows more",
            counted(args.drives.into(), "drive")
        ));
    }
    // Nothing is known of the others, and what the drive had for them may be right.
    for figure in FIGURES.iter().filter(|figure| !fitted.with_effect.contains(figure.option)) {
        figure.copy(&model, &mut fitted.model);
    }
    let shares = |model: &Model| -> Result<[Option<Share>; 2], Failure> { Ok(halves(&answers(model, &cases)?.0)) };
    let (before, after) = (shares(&start)?, shares(&fitted.model)?);
    let changed: Vec<&Figure> = FIGURES.iter().filter(|figure| figure.of(&model) != figure.of(&fitted.model)).collect();
    let options: Vec<String> = changed.iter().filter_map(|figure| figure.text(&fitted.model)).collect();
    let drive = match args.drive.starts_with('@') {
        true => read_stack(&args.drive)?.to_string(),
        false => args.drive.clone(),
    };
    let line = with_options(&drive, &model, &options);
    if args.json {
        let figures: serde_json::Map<String, Value> =
            FIGURES.iter().filter_map(|it| Some((it.option.to_owned(), it.of(&fitted.model)?.into()))).collect();
        output::print_json(&json!({
            "drive": line, "drives_tried": fitted.drives, "cases": fitted.cases, "figures": figures,
            "before": both(&before), "after": both(&after),
        }))?;
        return Ok(0);
    }
    let mut table = table(&["figure", "before", "after"]);
    for figure in FIGURES {
        let show =
            |model: &Model| figure.text(model).map(|text| text.split('=').next_back().unwrap_or_default().to_owned());
        if let (Some(before), Some(after)) = (show(&start), show(&fitted.model)) {
            table.add_row([figure.option.to_owned(), before, after]);
        }
    }
    let mut errors = self::table(&["", "cases", "latency off by", "throughput off by"]);
    for (what, shares) in [("before", before), ("after", after)] {
        for (half, share) in ["fitted", "held out"].iter().zip(shares) {
            let Some(share) = share else { continue };
            let off = |median: f64, worst: f64| format!("{:.1} % ({:.0} %)", 100.0 * median, 100.0 * worst);
            errors.add_row([
                format!("{what}, {half}"),
                share.cases.to_string(),
                off(share.latency_median, share.latency_worst),
                off(share.throughput_median, share.throughput_worst),
            ]);
        }
    }
    output::print(&format!(
        "{table}\n\n{errors}\n\noff by: the median case, and in brackets the worst\n{} drives were tried on {} cases\n{line}\n",
        fitted.drives, fitted.cases
    ))?;
    Ok(0)
}

pub(super) fn list(args: &ListArgs) -> Done {
    let ssds = Ssd::names().filter_map(Ssd::named);
    let ssds = ssds.map(|drive| ("ssd", drive.name, drive.product, drive.bytes, drive.known, drive.source));
    let znss = Zns::names().filter_map(Zns::named).map(|drive| {
        let bytes = drive.capacity_bytes * u64::from(drive.zones);
        ("zns", drive.name, drive.product, bytes, drive.known, drive.source)
    });
    let drives = ssds.chain(znss);
    if args.json {
        let drives = drives.map(|(word, name, product, bytes, evidence, source)| {
            json!({
                "name": name,
                "word": word,
                "product": product,
                "bytes": bytes,
                "known": known(evidence),
                "source": source,
            })
        });
        output::print_json(&drives.collect::<Value>())?;
        return Ok(0);
    }
    let mut table = table(&["drive", "product", "capacity", "known"]);
    for (word, name, product, bytes, evidence, _) in drives {
        let word = format!("{word}:{name}");
        table.add_row([word, product.to_owned(), human_bytes(bytes), known(evidence).to_owned()]);
    }
    output::print(&format!("{table}\n"))?;
    Ok(0)
}

pub(super) fn validate(args: &ValidateArgs) -> Done {
    let model = read_model(&args.drive)?;
    let replace = if args.force { Replace::Always } else { Replace::Own(output::is_picture) };
    let files = [files_of(&args.drive), args.file.iter().cloned().collect()].concat();
    let wish = Wish::new(replace).sources(Sources::of(&files));
    if let Some(path) = &args.svg {
        files::check(path, &wish)?;
    }
    let (answers, others) = answers(&model, &cases(&model, args.file.as_deref())?)?;
    if answers.is_empty() {
        let names: Vec<&str> = OPERATIONS.iter().map(|(name, _)| *name).collect();
        let failure = Failure::new(format!("there is no case that {} can answer", args.drive));
        return Err(failure.hint(format!(
            "a case is operation/block size/zones, such as write/4096bs/1zone; operations: {}",
            names.join(", ")
        )));
    }
    if let Some(path) = &args.svg {
        files::write(path, output::signed(&plot::loops(&panels(&answers))?).as_bytes(), &wish)?;
    }
    match args.json {
        true => output::print_json(&to_json(&args.drive, &answers, others))?,
        false => output::print(&to_text(&answers, others))?,
    }
    Ok(0)
}

/// The cases of a file, or those that come with the project.
fn cases(model: &Model, file: Option<&Path>) -> Result<Vec<FioRun>, Failure> {
    let text = match file {
        Some(path) => String::from_utf8(contents(path)?)
            .map_err(|_| Failure::new(format!("{} is not text", path.display())).code(WRONG_USAGE))?,
        None => included(model)?.to_owned(),
    };
    let name = file.map_or("the measurements".to_owned(), |path| path.display().to_string());
    parse(&text).map_err(|problem| Failure::new(format!("{name}: {problem}")))
}

/// What the drive says to them, and the number of those that it cannot answer.
fn answers(model: &Model, cases: &[FioRun]) -> Result<(Vec<Answer>, usize), Failure> {
    let mut answers = Vec::new();
    for case in cases {
        if let Some(predicted) = predict(model, case).map_err(Failure::new)? {
            answers.push(Answer { case: case.clone(), predicted });
        }
    }
    let others = cases.len() - answers.len();
    Ok((answers, others))
}

/// Measurements that come with the project.
fn included(model: &Model) -> Result<&'static str, Failure> {
    let found = MEASURED.iter().find(|(name, _)| *name == model.name());
    found.map(|(_, text)| *text).ok_or_else(|| {
        let failure = Failure::new(format!("no measurements of {} come with the project", model.name()));
        failure.code(WRONG_USAGE).hint("name a file with measurements")
    })
}

fn halves(answers: &[Answer]) -> [Option<Share>; 2] {
    [Half::Fitted, Half::HeldOut].map(|half| Share::of(answers.iter().filter(move |answer| answer.case.half() == half)))
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header.to_vec());
    table
}

const COLUMNS: [&str; 7] = ["operation", "size", "depth", "half", "cases", "latency off by", "throughput off by"];

fn to_text(answers: &[Answer], others: usize) -> String {
    let mut table = table(&COLUMNS);
    let mut add = |region: Option<Region>, shares: [Option<Share>; 2]| {
        for (half, share) in ["fitted", "held out"].iter().zip(shares) {
            let Some(share) = share else { continue };
            let [what, size, depth] = match region {
                Some(region) => [operation(region.operation), region.size, region.depth],
                None => ["all", "", ""],
            };
            let mut cells: Vec<Cell> = [what, size, depth, half].iter().map(Cell::new).collect();
            let off = |median: f64, worst: f64| format!("{:.1} % ({:.0} %)", 100.0 * median, 100.0 * worst);
            for number in [
                share.cases.to_string(),
                off(share.latency_median, share.latency_worst),
                off(share.throughput_median, share.throughput_worst),
            ] {
                cells.push(Cell::new(number).set_alignment(CellAlignment::Right));
            }
            table.add_row(cells);
        }
    };
    for (region, shares) in regions(answers) {
        add(Some(region), shares);
    }
    add(None, halves(answers));
    let mut text = format!(
        "{table}\n\noff by: the median case, and in brackets the worst, of mean latency and throughput\n\
         depth: commands outstanding, of all zones together\n"
    );
    if others > 0 {
        let have = if others == 1 { "has an operation" } else { "have operations" };
        text += &format!("{} {have} that this drive lacks\n", counted(others as u64, "case"));
    }
    text
}

fn both(shares: &[Option<Share>; 2]) -> Value {
    let share = |share: &Option<Share>| {
        share.map(|share| {
            json!({
                "cases": share.cases,
                "latency_median": share.latency_median,
                "latency_worst": share.latency_worst,
                "throughput_median": share.throughput_median,
                "throughput_worst": share.throughput_worst,
            })
        })
    };
    json!({ "fitted": share(&shares[0]), "held_out": share(&shares[1]) })
}

fn to_json(drive: &str, answers: &[Answer], others: usize) -> Value {
    let region = |(region, shares): &(Region, [Option<Share>; 2])| {
        json!({
            "operation": operation(region.operation),
            "size": region.size,
            "depth": region.depth,
            "errors": both(shares),
        })
    };
    let case = |answer: &Answer| {
        let FioRun { engine, format, name, depth, iops, latency_us, .. } = &answer.case;
        json!({
            "engine": engine,
            "format": format,
            "case": name,
            "depth": depth,
            "half": match answer.case.half() { Half::Fitted => "fitted", Half::HeldOut => "held out" },
            "measured_iops": iops,
            "modelled_iops": answer.predicted.iops,
            "measured_latency_us": latency_us,
            "modelled_latency_us": answer.predicted.latency_us,
        })
    };
    json!({
        "seekless": env!("CARGO_PKG_VERSION"),
        "drive": drive,
        "errors": both(&halves(answers)),
        "regions": regions(answers).iter().map(region).collect::<Vec<_>>(),
        "cases": answers.iter().map(case).collect::<Vec<_>>(),
        "without_answer": others,
    })
}

/// A panel for each operation, engine, format and number of zones, with a pair of curves for each block size.
fn panels(answers: &[Answer]) -> Vec<Loops> {
    let key = |case: &FioRun| (case.operation, case.zones, case.engine.clone(), case.format.clone());
    let mut keys: Vec<_> = answers.iter().map(|answer| key(&answer.case)).collect();
    keys.sort();
    keys.dedup();
    let panel = |wanted: &(Operation, u32, String, String)| {
        let mut curves: std::collections::BTreeMap<u64, Vec<(f64, f64, f64)>> = std::collections::BTreeMap::new();
        for answer in answers.iter().filter(|answer| key(&answer.case) == *wanted) {
            let point = (f64::from(answer.case.depth), answer.case.iops, answer.predicted.iops);
            curves.entry(answer.case.block_bytes).or_default().push(point);
        }
        for points in curves.values_mut() {
            points.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
        }
        let (what, zones, engine, format) = wanted;
        let zones = if *zones == 1 { String::new() } else { format!(", {zones} zones") };
        Loops { title: format!("{}{zones} ({engine}, {format})", operation(*what)), curves }
    };
    keys.iter().map(panel).collect()
}

/// The drive as a word with these options; those of the same names that it was given are left out.
fn with_options(drive: &str, model: &Model, options: &[String]) -> String {
    let word = match model {
        Model::Ssd(_) => "ssd:",
        Model::Zns(_) => "zns:",
    };
    let given = if word.strip_suffix(':') == Some(drive) { "" } else { drive.strip_prefix(word).unwrap_or(drive) };
    let key = |option: &str| option.split_once('=').map(|(key, _)| key.trim().to_owned());
    let is_new =
        |given: &&str| key(given).is_none_or(|given| options.iter().all(|one| key(one).as_ref() != Some(&given)));
    let kept = given.split(',').filter(|given| !given.is_empty()).filter(is_new).map(str::to_owned);
    format!("{word}{}", kept.chain(options.iter().cloned()).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line that was fitted can be fitted again.
    #[test]
    fn a_figure_is_given_once() {
        let model = read_model("nvme-a").unwrap_or_else(|failure| panic!("{}", failure.text));
        let options = ["program=612us".to_owned(), "erase=3ms".to_owned()];
        let line = with_options("nvme-a", &model, &options);
        assert_eq!(line, "ssd:nvme-a,program=612us,erase=3ms");
        assert_eq!(with_options(&line, &model, &["program=5us".to_owned()]), "ssd:nvme-a,erase=3ms,program=5us");
        assert_eq!(with_options("ssd:nvme-a,size=8GiB", &model, &options[1..]), "ssd:nvme-a,size=8GiB,erase=3ms");
        // The name of a drive may be left out; then a figure is the first.
        let line = with_options("ssd:program=700us,dies=64", &model, &options);
        assert_eq!(line, "ssd:dies=64,program=612us,erase=3ms");
        assert_eq!(with_options("ssd", &model, &options[1..]), "ssd:erase=3ms");
        assert_eq!(with_options("ssd:program=700us", &model, &options), "ssd:program=612us,erase=3ms");
        seekless::stack::Stack::parse(&line).unwrap();
    }
}
