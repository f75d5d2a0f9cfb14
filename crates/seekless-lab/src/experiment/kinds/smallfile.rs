//! `smallfile`: many small files are created, read and deleted; see [`crate::workload::smallfile`].

use std::ops::ControlFlow;

use serde::Deserialize;

use super::{Context, Kind, Measure, On, SmallFileRun, Workload, parse};
use crate::experiment::Clock;
use crate::run::{can_be_simulated, simulate};
use crate::workload::smallfile::SmallFile;

pub(super) const KIND: Kind = Kind {
    name: "smallfile",
    help: "small files are created, read in that order and deleted [ro92 Fig. 8] [se95 §3]",
    dims: &["phase"],
    metrics: &[
        ("files_per_s", "files in a second"),
        ("elapsed_s", "from the first call until everything is durable"),
        ("sync_s", "of this, making durable at the end"),
        ("disk_busy", "share of the time during which the disk was busy"),
        ("processor_busy", "share of the time during which the processor was busy"),
        ("disk_requests", "requests that the disk served"),
    ],
    read: |table| parse::<Files>(table).map(|files| Box::new(files) as Box<dyn Workload>),
};

/// What `[workload]` says of it; the papers' numbers without.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Files {
    files: u64,
    bytes: u64,
    files_per_directory: u64,
}

impl Default for Files {
    fn default() -> Files {
        let SmallFile { files, bytes, files_per_directory, .. } = SmallFile::default();
        Files { files, bytes, files_per_directory }
    }
}

impl Files {
    fn spec(&self, seed: u64) -> SmallFile {
        SmallFile { files: self.files, bytes: self.bytes, files_per_directory: self.files_per_directory, seed }
    }
}

impl Workload for Files {
    fn check(&self, on: &On) -> Result<(), String> {
        self.spec(1).check().map_err(|error| error.to_string())?;
        match on {
            On::Nothing => Err("a contestant needs `on`, a stack or a directory".into()),
            On::Stack(_) | On::Directory(_) => Ok(()),
        }
    }

    fn is_simulated(&self, on: &On, context: &Context<'_>) -> bool {
        match (on, context.clock) {
            (On::Stack(_), Clock::Virtual) => true,
            (On::Stack(stack), Clock::Auto) => can_be_simulated(stack),
            _ => false,
        }
    }

    fn run(&self, on: &On, context: &Context<'_>) -> Result<Vec<Measure>, String> {
        let spec = self.spec(context.seed);
        let progress = &|_, _| ControlFlow::Continue(());
        let run = match on {
            On::Stack(stack) if self.is_simulated(on, context) => simulate(stack, context.profile, &spec, progress),
            _ => context.outside.smallfile(on, &SmallFileRun { spec, progress }),
        };
        let run = run.map_err(|error| error.to_string())?;
        let measure = |measured: &crate::workload::smallfile::Measured| {
            let metrics = [
                ("files_per_s", measured.files_per_second()),
                ("elapsed_s", Some(measured.elapsed.as_secs_f64())),
                ("sync_s", Some(measured.sync.as_secs_f64())),
                ("disk_busy", measured.disk_busy()),
                ("processor_busy", measured.processor_busy()),
                ("disk_requests", measured.usage.disk_requests.map(|count| count as f64)),
            ];
            Measure::new(metrics).at("phase", measured.phase.name())
        };
        Ok(run.phases.iter().map(measure).collect())
    }
}
