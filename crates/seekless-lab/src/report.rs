//! What came out of runs: a table for people, JSON for programs, and the published figures beside it.

use comfy_table::{Cell, CellAlignment, Table, presets};
use seekless::rt::HostProfile;
use serde::Serialize;

use crate::run::{Bound, Clock, Failed, Run};
use crate::target::Coldness;
use crate::workload::smallfile::{Measured, Phase, SmallFile};

/// The results of one command, with all that is needed to get them again.
pub struct Report {
    pub spec: SmallFile,
    pub runs: Vec<Run>,
    pub failed: Vec<Failed>,
}

/// A published statement about a phase, and what a run says about it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    pub contestant: String,
    pub phase: Phase,
    /// What is compared.
    pub quantity: &'static str,
    /// Where it was published.
    pub source: &'static str,
    pub published: String,
    pub measured: String,
    /// Measured over published less one, where both are numbers.
    pub deviation: Option<f64>,
    /// The processor profile was calibrated on this figure, so that agreement proves nothing.
    pub calibrated: bool,
    /// Why the two may differ.
    pub remark: &'static str,
}

/// What [se95 §3] says of FFS creating or deleting small files: each takes two synchronous disk accesses, of which
/// the disk does 67 in a second [se95 Table 1].
pub const FFS_FILES_PER_SECOND: f64 = 67.0 / 2.0;

/// What LFS gains over it: an order of magnitude, for files of 1 KB or less [se95 §3] and [ro92 Fig. 8].
pub const LFS_OVER_FFS: f64 = 10.0;

/// Share of the time during which the disk was busy while [ro92 §5.1] created small files.
pub const RO92_CREATE_DISK_BUSY: f64 = 0.17;

impl Report {
    /// Published statements for every run that they are about: `lfs` on a modelled disk, with the processor of
    /// [se95], on the papers' workload.
    pub fn comparisons(&self) -> Vec<Comparison> {
        let papers = SmallFile { seed: self.spec.seed, ..SmallFile::default() };
        if self.spec != papers {
            return Vec::new();
        }
        self.runs.iter().filter(|run| is_of_the_papers(run)).flat_map(compare).collect()
    }

    /// The table, and what is to be known about it.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "small files: {} x {} bytes, {} in a directory, seed {}\n\n{}\n",
            self.spec.files,
            self.spec.bytes,
            self.spec.files_per_directory,
            self.spec.seed,
            self.table()
        );
        for (number, run) in self.runs.iter().enumerate() {
            let clock = match (run.clock, run.profile) {
                (Clock::Virtual, Some(profile)) => format!("virtual time, processor profile {profile}"),
                (Clock::Virtual, None) => "virtual time".to_owned(),
                (Clock::Real, _) => "real time".to_owned(),
            };
            text += &format!("[{}] {}: {}; {clock}\n", number + 1, run.contestant, run.parts.join(" / "));
            if let Coldness::Partly(left) = &run.coldness {
                text += &format!("    reads were not all cold: {left}\n");
            }
        }
        let comparisons = self.comparisons();
        if !comparisons.is_empty() {
            text += &format!("\nbeside what was published\n{}\n", comparison_table(&comparisons));
            for comparison in &comparisons {
                text += &format!("{}, {}: {}\n", comparison.phase.name(), comparison.quantity, comparison.remark);
            }
        }
        text
    }

    fn table(&self) -> Table {
        let mut table =
            new_table(&["", "phase", "files/s", "time", "of it sync", "disk busy", "processor", "bound by"]);
        for (number, run) in self.runs.iter().enumerate() {
            for (index, measured) in run.phases.iter().enumerate() {
                let contestant =
                    if index == 0 { format!("[{}] {}", number + 1, run.contestant) } else { String::new() };
                let mut row = vec![Cell::new(contestant), Cell::new(measured.phase.name())];
                let figures = [
                    measured.files_per_second().map_or("-".to_owned(), number_text),
                    seconds_text(measured.elapsed.as_secs_f64()),
                    seconds_text(measured.sync.as_secs_f64()),
                    measured.disk_busy().map_or("-".to_owned(), percent_text),
                    measured.processor_busy().map_or("-".to_owned(), percent_text),
                ];
                row.extend(figures.iter().map(|text| Cell::new(text).set_alignment(CellAlignment::Right)));
                row.push(Cell::new(bound_text(measured.bound())));
                table.add_row(row);
            }
        }
        table
    }

    /// Everything that was measured, and how, as a JSON value.
    pub fn to_json(&self) -> serde_json::Value {
        let phases = |run: &Run| -> Vec<serde_json::Value> { run.phases.iter().map(phase_json).collect() };
        let runs: Vec<serde_json::Value> = self
            .runs
            .iter()
            .map(|run| {
                let counters: serde_json::Map<String, serde_json::Value> = run
                    .counters
                    .iter()
                    .map(|(part, counters)| {
                        let counters = counters.iter().map(|(name, count)| ((*name).to_owned(), (*count).into()));
                        (part.clone(), serde_json::Value::Object(counters.collect()))
                    })
                    .collect();
                let cold = match &run.coldness {
                    Coldness::Cold => None,
                    Coldness::Partly(left) => Some(left),
                };
                serde_json::json!({
                    "contestant": run.contestant,
                    "parts": run.parts,
                    "clock": run.clock,
                    "profile": run.profile.and_then(HostProfile::named).map(profile_json),
                    "not_cold_because": cold,
                    "phases": phases(run),
                    "counters": counters,
                })
            })
            .collect();
        serde_json::json!({
            "benchmark": "smallfile",
            "seekless": env!("CARGO_PKG_VERSION"),
            "spec": self.spec,
            "runs": runs,
            "failed": self.failed,
            "published": self.comparisons(),
        })
    }
}

fn is_of_the_papers(run: &Run) -> bool {
    let is_lfs = run.contestant.split([':', ' ']).next() == Some("lfs");
    is_lfs && run.clock == Clock::Virtual && run.profile == Some(HostProfile::SPARCSTATION2.name)
}

fn compare(run: &Run) -> Vec<Comparison> {
    let mut comparisons = Vec::new();
    let expected = FFS_FILES_PER_SECOND * LFS_OVER_FFS;
    for (phase, calibrated) in [(Phase::Create, true), (Phase::Delete, false)] {
        let Some(found) = run.phase(phase).and_then(Measured::files_per_second) else { continue };
        comparisons.push(Comparison {
            contestant: run.contestant.clone(),
            phase,
            quantity: "files/s",
            source: "[se95 §3, Table 1]",
            published: format!("about {expected:.0}"),
            measured: number_text(found),
            deviation: Some(found / expected - 1.0),
            calibrated,
            remark: "ten times FFS, which does two of its disk's 67 accesses a second for each file",
        });
    }
    let bounds = [
        (Phase::Create, Bound::Processor, "[ro92 §5.1]", "the processor was saturated"),
        (Phase::Read, Bound::Disk, "[se95 §3]", "LFS and FFS read small files at comparable speed"),
    ];
    for (phase, expected, source, remark) in bounds {
        let Some(found) = run.phase(phase) else { continue };
        comparisons.push(Comparison {
            contestant: run.contestant.clone(),
            phase,
            quantity: "bound by",
            source,
            published: bound_text(expected).to_owned(),
            measured: bound_text(found.bound()).to_owned(),
            deviation: None,
            calibrated: false,
            remark,
        });
    }
    if let Some(found) = run.phase(Phase::Create).and_then(Measured::disk_busy) {
        comparisons.push(Comparison {
            contestant: run.contestant.clone(),
            phase: Phase::Create,
            quantity: "disk busy",
            source: "[ro92 §5.1]",
            published: percent_text(RO92_CREATE_DISK_BUSY),
            measured: percent_text(found),
            deviation: None,
            calibrated: false,
            remark: "on a slower machine with a slower disk (Sun-4/260, Wren IV)",
        });
    }
    comparisons.sort_by_key(|comparison| comparison.phase);
    comparisons
}

fn comparison_table(comparisons: &[Comparison]) -> Table {
    let mut table = new_table(&["phase", "", "published", "measured", "deviation", "source"]);
    for comparison in comparisons {
        let deviation = match (comparison.calibrated, comparison.deviation) {
            (true, Some(deviation)) => format!("{:+.0} % (calibrated on it)", deviation * 100.0),
            (false, Some(deviation)) => format!("{:+.0} %", deviation * 100.0),
            (_, None) => String::new(),
        };
        table.add_row(vec![
            Cell::new(comparison.phase.name()),
            Cell::new(comparison.quantity),
            Cell::new(&comparison.published),
            Cell::new(&comparison.measured),
            Cell::new(deviation),
            Cell::new(comparison.source),
        ]);
    }
    table
}

fn new_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    // It can be pasted into an issue.
    table.load_style(presets::ASCII_MARKDOWN).set_header(header.to_vec());
    table
}

fn phase_json(measured: &Measured) -> serde_json::Value {
    serde_json::json!({
        "phase": measured.phase,
        "files": measured.files,
        "elapsed_ns": measured.elapsed.0,
        "sync_ns": measured.sync.0,
        "files_per_second": measured.files_per_second(),
        "disk_busy": measured.disk_busy(),
        "disk_requests": measured.usage.disk_requests,
        "processor_busy": measured.processor_busy(),
        "bound_by": measured.bound(),
    })
}

fn profile_json(profile: HostProfile) -> serde_json::Value {
    serde_json::json!({
        "name": profile.name,
        "namespace_call_ns": profile.namespace_call.0,
        "call_ns": profile.call.0,
        "copy_per_kib_ns": profile.copy_per_kib.0,
        "device_request_ns": profile.device_request.0,
    })
}

/// Three digits, or all before the point.
fn number_text(number: f64) -> String {
    match number {
        number if number < 10.0 => format!("{number:.2}"),
        number if number < 100.0 => format!("{number:.1}"),
        number => format!("{number:.0}"),
    }
}

fn seconds_text(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        seconds => format!("{seconds:.2} s"),
    }
}

fn percent_text(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn bound_text(bound: Bound) -> &'static str {
    match bound {
        Bound::Processor => "processor",
        Bound::Disk => "disk",
        Bound::Neither => "neither",
        Bound::Unknown => "",
    }
}
