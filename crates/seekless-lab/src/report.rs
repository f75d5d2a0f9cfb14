//! Results of runs: a table for readers, JSON for programs, and the published figures beside it.

use comfy_table::{Cell, CellAlignment, Table, presets};
use seekless::rt::HostProfile;
use seekless::units::human_bytes;

use crate::measured::{Bound, Clock, Comparison, Failed, Measured, Run, Unit};
use crate::target::Coldness;
use crate::workload::Program;

/// The results of one command, with everything needed to repeat it.
pub struct Report<'a> {
    pub spec: &'a dyn Program,
    pub runs: Vec<Run>,
    pub failed: Vec<Failed>,
}

impl Report<'_> {
    /// Published statements about these runs, with the runs' results.
    pub fn comparisons(&self) -> Vec<Comparison> {
        self.spec.published(&self.runs)
    }

    /// The table, with remarks.
    pub fn to_text(&self) -> String {
        let mut text = format!("{}\n\n{}\n", self.spec.title(), self.table());
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
            text += &format!("\nbeside what was published\n{}\n", self.comparison_table(&comparisons));
            let mut remarks = Vec::new();
            for Comparison { phase, quantity, remark, .. } in &comparisons {
                let line = format!("{phase}, {quantity}: {remark}\n");
                if !remarks.contains(&line) {
                    text += &line;
                    remarks.push(line);
                }
            }
        }
        text
    }

    fn table(&self) -> Table {
        let mut table = new_table(&["", "phase", "rate", "time", "of it sync", "drive busy", "processor", "bound by"]);
        for (number, run) in self.runs.iter().enumerate() {
            for (index, measured) in run.phases.iter().enumerate() {
                let contestant =
                    if index == 0 { format!("[{}] {}", number + 1, run.contestant) } else { String::new() };
                let mut row = vec![Cell::new(contestant), Cell::new(phase_text(measured))];
                let figures = [
                    rate_text(measured),
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

    fn comparison_table(&self, comparisons: &[Comparison]) -> Table {
        let mut table = new_table(&["", "phase", "", "published", "measured", "deviation", "source"]);
        for comparison in comparisons {
            let run = self.runs.iter().position(|run| run.contestant == comparison.contestant);
            let deviation = comparison.deviation.map(|deviation| format!("{:+.0} %", deviation * 100.0));
            let calibrated = comparison.calibrated.then(|| "(calibrated on it)".to_owned());
            let notes: Vec<String> = deviation.into_iter().chain(calibrated).collect();
            table.add_row(vec![
                Cell::new(run.map_or(String::new(), |run| format!("[{}]", run + 1))),
                Cell::new(&comparison.phase),
                Cell::new(comparison.quantity),
                Cell::new(&comparison.published),
                Cell::new(&comparison.measured),
                Cell::new(notes.join(" ")),
                Cell::new(comparison.source),
            ]);
        }
        table
    }

    /// All measurements and parameters, as a JSON value.
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
            "benchmark": self.spec.name(),
            "seekless": env!("CARGO_PKG_VERSION"),
            "spec": self.spec.to_json(),
            "runs": runs,
            "failed": self.failed,
            "published": self.comparisons(),
        })
    }
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
        "file_bytes": measured.file_bytes,
        "unit": measured.unit,
        "count": measured.count,
        "bytes": measured.bytes,
        "elapsed_ns": measured.elapsed.0,
        "sync_ns": measured.sync.0,
        "per_second": measured.per_second(),
        "bytes_per_second": measured.bytes_per_second(),
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

fn phase_text(measured: &Measured) -> String {
    match measured.file_bytes {
        Some(bytes) => format!("{}, {}", measured.phase, human_bytes(bytes)),
        None => measured.phase.clone(),
    }
}

/// The rate in the unit that is compared. The papers' MB is 2^20 bytes: [se95 Table 2] calls 57 sectors in 11.11 ms 2.5
/// MB/s.
fn rate_text(measured: &Measured) -> String {
    const MIB: f64 = (1 << 20) as f64;
    let (rate, unit) = match measured.unit {
        _ if measured.is_about_bytes() => (measured.bytes_per_second().map(|rate| rate / MIB), "MiB"),
        Unit::Files => (measured.per_second(), "files"),
        Unit::Transactions => (measured.per_second(), "transactions"),
        Unit::Bytes => (measured.per_second(), "bytes"),
    };
    rate.map_or("-".to_owned(), |rate| format!("{} {unit}/s", number_text(rate)))
}

/// Three digits, or all before the point.
pub(crate) fn number_text(number: f64) -> String {
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

pub(crate) fn percent_text(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

pub(crate) fn bound_text(bound: Bound) -> &'static str {
    match bound {
        Bound::Processor => "processor",
        Bound::Disk => "drive",
        Bound::Neither => "neither",
        Bound::Unknown => "",
    }
}
