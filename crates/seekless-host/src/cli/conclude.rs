//! What an experiment has come to: the rows that are kept, where they came from, and what is printed of them.

use std::path::Path;
use std::time::Instant;

use comfy_table::{Cell, CellAlignment, Table, presets};
use seekless_lab::experiment::{Checked, Deviation, Experiment, Plan, Results, Row, Verdict, deviations, digits};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{Done, FAILED, Failure, output};

/// What is printed, and what counts as a failure.
#[derive(clap::Args)]
pub(super) struct Show {
    /// Fail when a claim that was measured does not hold
    #[arg(long)]
    check: bool,

    /// Print JSON, one line for each row, claim and published figure
    #[arg(long)]
    pub json: bool,
}

/// The digest of the running program: results of another program are not reused.
pub(super) fn this_program() -> Result<String, Failure> {
    digest_of(Path::new("/proc/self/exe"))
}

/// The digest of a program or a library.
pub(super) fn digest_of(program: &Path) -> Result<String, Failure> {
    let bytes =
        std::fs::read(program).map_err(|error| Failure::new(format!("cannot read the program itself: {error}")))?;
    Ok(Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Where results come from. The only place where they contain the date.
pub(super) struct Origin {
    program: String,
    experiment: String,
    seed: u64,
    start: (jiff::Timestamp, Instant),
    jobs: usize,
    /// What the folders that were merged say of themselves.
    merged: Vec<serde_json::Value>,
}

impl Origin {
    /// That of a run that begins now.
    pub(super) fn new(experiment: &Experiment, program: String, jobs: usize) -> Origin {
        let (name, seed) = (experiment.name.clone(), experiment.description.seed);
        let start = (jiff::Timestamp::now(), Instant::now());
        Origin { program, experiment: name, seed, start, jobs, merged: Vec::new() }
    }

    /// That of results which were merged from others.
    pub(super) fn merged(self, merged: Vec<serde_json::Value>) -> Origin {
        Origin { merged, ..self }
    }

    pub(super) fn provenance(&self, measured: usize, results: &Results, plan: &Plan) -> serde_json::Value {
        let command: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let mut provenance = json!({
            "seekless": env!("CARGO_PKG_VERSION"),
            "program_sha256": self.program,
            "command": command,
            "experiment": self.experiment,
            "seed": self.seed,
            "date": self.start.0.to_string(),
            "seconds": (self.start.1.elapsed().as_secs_f64() * 10.0).round() / 10.0,
            "points_measured": measured,
            "points_missing": missing(results, plan).len(),
            "jobs": self.jobs,
            "kernel": format!("Linux {}", kernel.trim()),
            "processor": processor.map(|(_, name)| name),
        });
        if !self.merged.is_empty() {
            provenance["merged"] = json!(self.merged);
        }
        provenance
    }
}

/// Indices of the points that have not been measured.
pub(super) fn missing(results: &Results, plan: &Plan) -> Vec<usize> {
    (0..plan.points.len()).filter(|&point| results.rounds(&plan.points[point]) == 0).collect()
}

/// Prints the rows, the claims and the published figures.
pub(super) fn print(experiment: &Experiment, rows: &[Row], folder: &Path, is_quick: bool, show: &Show) -> Done {
    let claims: Vec<Checked> =
        experiment.description.claims.iter().map(|claim| claim.verify(rows, &experiment.published)).collect();
    let published = deviations(&experiment.published, rows);
    match show.json {
        true => output::print_raw(&to_json(rows, &claims, &published))?,
        false => output::print(&to_text(experiment, rows, &claims, &published, folder, is_quick))?,
    }
    let differs = claims.iter().any(|checked| checked.verdict == Verdict::Differs);
    Ok(if show.check && differs { FAILED } else { 0 })
}

pub(super) fn to_json(rows: &[Row], claims: &[Checked], published: &[Deviation]) -> String {
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
            (open, true) => format!(", {open} not measured: --quick omits their points"),
        };
        text += &format!("{held} of {} claims hold{not_measured}.\n", claims.len());
    }
    let folder = seekless::stack::quoted_path(folder);
    let page = seekless::stack::quoted_path(Path::new(&format!("{}.html", experiment.name)));
    text + &format!("For a page: seekless report {folder} -o {page}\n")
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
