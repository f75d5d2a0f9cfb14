//! Programs that use files: every one of [`WORKLOADS`](crate::workload::WORKLOADS), by its name.

use std::path::PathBuf;

use seekless::stack::Stack;
use seekless::units::Nanos;

use super::Clock;
use super::{Context, Measure, Read, RunTarget, Workload, WorkloadKind, with_drives};
use crate::measured::Unit;
use crate::run::{can_be_simulated, simulate};
use crate::target::LogBytes;
use crate::workload::{Measured, PhaseProgress, Program, WorkloadSpec};

/// The kind of experiment that runs this program.
pub(super) const fn kind(spec: &'static WorkloadSpec) -> WorkloadKind {
    const METRICS: &[(&str, &str)] = &[
        ("per_s", "files or transactions in a second; bytes where the phase is about bytes"),
        ("mib_per_s", "MiB that the program read or wrote, in a second"),
        ("elapsed_s", "from the first call until everything is durable"),
        ("sync_s", "of this, making durable at the end"),
        ("disk_busy", "share of the time during which the disk was busy"),
        ("processor_busy", "share of the time during which the processor was busy"),
        ("processor_s", "during which the processor was busy"),
        ("processor_ms_each", "processor time for each file or transaction"),
        ("disk_requests", "requests that the disk served"),
        ("disk_requests_each", "for each file or transaction; for each MiB where the phase is about bytes"),
        ("disk_writes", "of the requests, those that wrote"),
        ("disk_seek", "share of the time during which the disk moved its arm"),
        ("rotation_ms", "wait for the first sector to come round, for each request of the disk"),
        ("write_cost", "bytes that a log reads and writes for each new byte, its cleaner included [ro92 §3.4]"),
        ("cleaned_utilisation", "how full the segments were that the cleaner of a log read"),
        ("cleaned_for_new", "bytes of space that the cleaner gained for each new byte"),
    ];
    WorkloadKind { name: spec.name, help: spec.help, dims: spec.dims, metrics: METRICS, read: Read::Files(spec) }
}

/// Its parameters in `[workload]`, and those beside it.
struct Described {
    spec: &'static WorkloadSpec,
    numbers: toml::Table,
    log: Option<Stack>,
}

/// Reads the numbers of a workload, and the stack for its log.
pub(super) fn read(spec: &'static WorkloadSpec, table: &toml::Table) -> Result<Box<dyn Workload>, String> {
    let mut numbers = table.clone();
    numbers.remove("kind");
    let log = match numbers.remove("log") {
        None => None,
        Some(_) if !spec.has_log => return Err(format!("[workload]: {} has no log", spec.name)),
        Some(toml::Value::String(line)) => {
            Some(Stack::parse(&line).map_err(|error| format!("[workload]: log: {error}"))?)
        }
        Some(_) => return Err("[workload]: log is a stack line".into()),
    };
    let described = Described { spec, numbers, log };
    described.program(1)?;
    Ok(Box::new(described))
}

impl Described {
    fn program(&self, seed: u64) -> Result<Box<dyn Program>, String> {
        self.spec.read(&self.numbers, Some(seed)).map_err(|error| format!("[workload]: {error}"))
    }
}

impl Workload for Described {
    fn inputs(&self) -> Vec<PathBuf> {
        self.log.iter().flat_map(Stack::drive_files).map(PathBuf::from).collect()
    }

    fn check(&self, on: &RunTarget) -> Result<(), String> {
        self.program(1)?.check().map_err(|error| error.to_string())?;
        if self.log.as_ref().is_some_and(|log| !can_be_simulated(log)) {
            return Err("[workload]: log is for virtual time, and lies in the real world".into());
        }
        match on {
            RunTarget::Nothing => Err("a contestant needs `on`, a stack or a directory".into()),
            RunTarget::Stack(_) | RunTarget::Directory(_) => Ok(()),
        }
    }

    fn is_simulated(&self, on: &RunTarget, context: &Context<'_>) -> bool {
        match (on, context.clock) {
            (RunTarget::Stack(_), Clock::Virtual) => true,
            (RunTarget::Stack(stack), Clock::Auto) => can_be_simulated(stack),
            _ => false,
        }
    }

    fn run(&self, on: &RunTarget, context: &Context<'_>) -> Result<Vec<Measure>, String> {
        let program = self.program(context.seed)?;
        let stop = context.outside.stop();
        let watch = &|_: PhaseProgress<'_>| stop.flow();
        let run = match on {
            RunTarget::Stack(stack) if self.is_simulated(on, context) => {
                let log = self.log.clone().map(|log| with_drives(log, context.folder)).transpose()?;
                simulate(stack, log.as_ref(), context.profile, &*program, watch)
            }
            _ => context.outside.files(on, &*program),
        };
        Ok(run.map_err(|error| error.to_string())?.phases.iter().map(measure).collect())
    }
}

fn measure(measured: &Measured) -> Measure {
    const MIB: f64 = (1 << 20) as f64;
    let usage = measured.usage;
    let ms = |time: Nanos| time.as_secs_f64() * 1e3;
    let of_units = |all: f64, units: f64| (units > 0.0).then(|| all / units);
    let count = measured.count as f64;
    let requests = usage.disk_requests.map(|requests| requests as f64);
    let is_about_bytes = measured.unit == Unit::Bytes;
    let units = if is_about_bytes { count / MIB } else { count };
    let metrics = [
        ("per_s", measured.per_second()),
        ("mib_per_s", measured.bytes_per_second().map(|rate| rate / MIB).filter(|_| measured.bytes > 0)),
        ("elapsed_s", Some(measured.elapsed.as_secs_f64())),
        ("sync_s", Some(measured.sync.as_secs_f64())),
        ("disk_busy", measured.disk_busy()),
        ("processor_busy", measured.processor_busy()),
        ("processor_s", usage.processor.map(|time| time.as_secs_f64())),
        ("processor_ms_each", usage.processor.filter(|_| !is_about_bytes).and_then(|time| of_units(ms(time), count))),
        ("disk_requests", requests),
        ("disk_requests_each", requests.and_then(|requests| of_units(requests, units))),
        ("disk_writes", usage.disk_writes.map(|writes| writes as f64)),
        ("disk_seek", usage.disk_seek.and_then(|time| measured.share(time))),
        ("rotation_ms", usage.disks_rotation.zip(requests).and_then(|(time, requests)| of_units(ms(time), requests))),
        ("write_cost", usage.log.and_then(LogBytes::write_cost)),
        ("cleaned_utilisation", usage.log.and_then(LogBytes::cleaned_utilisation)),
        ("cleaned_for_new", usage.log.and_then(LogBytes::cleaned_for_new)),
    ];
    let row = Measure::new(metrics).at("phase", &measured.phase);
    match measured.file_bytes {
        Some(bytes) => row.at_number("file_bytes", bytes),
        None => row,
    }
}
