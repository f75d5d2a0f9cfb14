//! What an experiment has come to: the rows that are kept, where they came from, and what is printed of them.

use std::path::Path;
use std::time::Instant;

use comfy_table::{Cell, CellAlignment, Table, presets};
use seekless::units::counted;
use seekless_lab::experiment::{Checked, Deviation, Experiment, Plan, Results, Row, Verdict, deviations, digits};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{Done, FAILED, Failure, moment, output};

/// What is printed, and what counts as a failure.
#[derive(clap::Args)]
pub(super) struct Show {
    /// Fail when a claim does not hold, or has no rows for another reason than --quick
    #[arg(long)]
    pub check: bool,

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
    seeds: u32,
    start: (String, Instant),
    jobs: usize,
    /// What the folders that were merged say of themselves.
    merged: Vec<serde_json::Value>,
}

impl Origin {
    /// That of a run that begins now.
    pub(super) fn new(experiment: &Experiment, program: String, jobs: usize) -> Origin {
        let (name, description) = (experiment.name.clone(), &experiment.description);
        let start = (moment::now(), Instant::now());
        let (seed, seeds) = (description.seed, description.seeds);
        Origin { program, experiment: name, seed, seeds, start, jobs, merged: Vec::new() }
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
            "seeds": self.seeds,
            "date": self.start.0,
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
    if !show.check {
        return Ok(0);
    }
    let tally = Tally::of(&claims, experiment);
    if let Some(text) = tally.unchecked(claims.len()) {
        output::note(&text);
    }
    Ok(if tally.is_good(claims.len()) { 0 } else { FAILED })
}

/// How many claims hold and how many do not; of the others, how many `--quick` leaves without rows, and how many have none all the same.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Tally {
    holds: usize,
    differs: usize,
    omitted: usize,
    without_rows: usize,
}

impl Tally {
    fn of(claims: &[Checked], experiment: &Experiment) -> Tally {
        let mut tally = Tally::default();
        for checked in claims {
            let is_omitted = || experiment.omitted.explains(&checked.claim);
            match checked.verdict {
                Verdict::Holds => tally.holds += 1,
                Verdict::Differs => tally.differs += 1,
                Verdict::Open if is_omitted() => tally.omitted += 1,
                Verdict::Open => tally.without_rows += 1,
            }
        }
        tally
    }

    /// True when nothing speaks against the claims, and something for them if there are `all` of them.
    fn is_good(self, all: usize) -> bool {
        self.differs == 0 && self.without_rows == 0 && (self.holds > 0 || all == 0)
    }

    /// Claims that were not checked, for `--check`.
    fn unchecked(self, all: usize) -> Option<String> {
        let Tally { holds, differs, omitted, without_rows } = self;
        if all == 0 {
            return Some("there was nothing to check: the experiment makes no claims".to_owned());
        }
        if holds + differs == 0 {
            return Some(format!("none of {} was checked: there are no rows for them", counted(all as u64, "claim")));
        }
        let not_checked =
            |count: usize, why: &str| (count > 0).then(|| format!("not checked: {} of {all} claims, {why}", count));
        let of = [
            not_checked(without_rows, "for which there are no rows"),
            not_checked(omitted, "whose points --quick omits"),
        ];
        let lines: Vec<String> = of.into_iter().flatten().collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// For people, behind the claims.
    fn to_text(self, all: usize) -> String {
        let without_rows = match self.without_rows {
            0 => String::new(),
            count => format!(", {count} without rows"),
        };
        let omitted = match self.omitted {
            0 => String::new(),
            count => format!(", {count} not measured: --quick omits their points"),
        };
        format!("{} of {all} claims hold{without_rows}{omitted}.\n", self.holds)
    }
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
    let shown = |checked: &&Checked| checked.verdict != Verdict::Open || !experiment.omitted.explains(&checked.claim);
    let claims_shown: Vec<&Checked> = claims.iter().filter(shown).collect();
    let published: Vec<&Deviation> = published.iter().filter(|it| !is_quick || it.measured.is_some()).collect();
    let description = &experiment.description;
    let mut text = format!(
        "{} {}\n{} in {}\n",
        description.title,
        description.paper,
        counted(rows.len() as u64, "row"),
        folder.display()
    );
    if !published.is_empty() {
        text += &format!("\n{}\n", published_table(&published));
    }
    if !claims.is_empty() {
        text += &format!("\n{}\n", claims_table(&claims_shown));
        text += &Tally::of(claims, experiment).to_text(claims.len());
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
    let mut table = new_table(&["metric", "where", "reference", "measured", "deviation", "source"]);
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
