//! Writers that append records to logs of their own and make each record durable before the next, as databases and queues do.

use std::cell::RefCell;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use seekless::units::human_bytes;
use serde::{Deserialize, Serialize};

use super::contents::Contents;
use super::meter::{Durable, Meter, Unit};
use super::phases::READ;
use super::{Form, Key, Outcome, Watch, Workload, WorkloadSpec, size};
use crate::LabError;
use crate::target::Target;

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogAppend {
    pub writers: u64,
    /// Records of each writer.
    pub records: u64,
    /// Bytes of a record.
    #[serde(deserialize_with = "size")]
    pub bytes: u64,
    #[serde(skip_deserializing)]
    pub seed: u64,
}

impl Default for LogAppend {
    fn default() -> LogAppend {
        LogAppend { writers: 4, records: 250, bytes: 1000, seed: 1 }
    }
}

pub const APPEND: &str = "append";

#[async_trait(?Send)]
impl Workload for LogAppend {
    const SPEC: WorkloadSpec = WorkloadSpec::of::<LogAppend>(
        "log-append",
        "Append records to several logs at once, each durable before the next; in a directory, to one",
        &[
            Key::new("writers", Form::Count, "Writers, each with a log of its own"),
            Key::new("records", Form::Count, "Records that each writer appends"),
            Key::new("bytes", Form::Bytes, "Size of a record"),
        ],
    )
    .examples(&["--on 'lfs / disk:dec-rz26' --on 'ffs / disk:dec-rz26' --writers 8"]);

    fn check(&self) -> Result<(), LabError> {
        let fault = match self {
            LogAppend { writers: 0, .. } => "there must be at least one writer",
            LogAppend { writers: 1_001.., .. } => "there can be at most 1,000 writers",
            LogAppend { records: 0, .. } => "a writer appends at least one record",
            LogAppend { records: 10_000_001.., .. } => "a writer appends at most 10,000,000 records",
            LogAppend { bytes: 0, .. } => "a record has at least one byte",
            LogAppend { bytes, .. } if *bytes > 1 << 24 => "a record has at most 16 MiB",
            _ => return Ok(()),
        };
        Err(LabError::Spec(fault.to_owned()))
    }

    fn title(&self) -> String {
        format!(
            "log appends: {} writers with {} records of {} each, seed {}",
            self.writers,
            self.records,
            human_bytes(self.bytes),
            self.seed
        )
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn with_seed(self, seed: u64) -> LogAppend {
        LogAppend { seed, ..self }
    }

    async fn run<T: Target>(&self, target: &T, watch: Watch<'_>) -> Result<Outcome, LabError> {
        self.check()?;
        if target.takes_turns() && self.writers > 1 {
            return Err(LabError::Spec(
                "in a directory, writers would take turns instead of running at once: measure one there (--writers 1), or a stack; \
                 `seekless bench mount` measures mounts with four clients"
                    .to_owned(),
            ));
        }
        let contents = Contents::new(self.seed, self.bytes);
        let mut meter = Meter::start(target, watch).await?;
        let path = |writer: u64| format!("log{writer:04}");
        let number = |writer: u64, record: u64| writer * self.records + record;

        let phase = RefCell::new(meter.begin(APPEND, Unit::Transactions, self.writers * self.records));
        try_join_all((0..self.writers).map(async |writer| {
            let mut open = target.create(&path(writer)).await?;
            for record in 0..self.records {
                let piece = contents.piece(number(writer, record), self.bytes);
                target.write(&mut open, record * self.bytes, &piece).await?;
                target.fsync(&mut open).await?;
                meter.step(&mut phase.borrow_mut(), 1, self.bytes)?;
            }
            target.close(open).await
        }))
        .await?;
        meter.end(phase.into_inner(), Durable::Yes).await?;

        meter.drop_caches().await?;
        let mut phase = meter.begin(READ, Unit::Transactions, self.writers * self.records);
        let mut found = vec![0; self.bytes as usize];
        for writer in 0..self.writers {
            let mut open = target.open(&path(writer)).await?;
            for record in 0..self.records {
                let read = target.read(&mut open, record * self.bytes, &mut found).await?;
                contents.check(number(writer, record), self.bytes, &path(writer), &found[..read])?;
                meter.step(&mut phase, 1, self.bytes)?;
            }
            target.close(open).await?;
        }
        meter.end(phase, Durable::No).await?;
        for writer in 0..self.writers {
            target.unlink(&path(writer)).await?;
        }
        target.sync().await?;
        Ok(meter.outcome())
    }
}
