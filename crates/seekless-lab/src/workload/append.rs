//! Appending a little at a time, as logs do.
//!
//! Paper: [za01 §7.4]: units of 10, 100 and 1000 bytes are appended to a new file until it has 32 MB; the files hold
//! one letter, English text, programs, and compressed data.
//!
//! Everything is made durable once, at the end of a phase. A mount in real time must write through (no `-o writeback`);
//! otherwise the kernel merges the small writes.

use async_trait::async_trait;
use seekless::units::human_bytes;
use serde::{Deserialize, Serialize};

use super::contents::{Contents, Data};
use super::meter::{Durable, Meter, Unit};
use super::{DATA, Form, Key, Outcome, Watch, Workload, WorkloadSpec, size};
use crate::LabError;
use crate::target::Target;

/// Parameters. The units are those of the paper; the size is smaller, since the cost of an append does not depend on
/// it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Append {
    /// Largest final size of each file.
    #[serde(deserialize_with = "size")]
    pub bytes: u64,
    pub data: Data,
    #[serde(skip_deserializing)]
    pub seed: u64,
}

impl Default for Append {
    fn default() -> Append {
        Append { bytes: 1 << 20, data: Data::Text, seed: 1 }
    }
}

/// The appended data is held in memory.
const BYTES_MAX: u64 = 1 << 30;

/// Bytes of an append, and the name of its phase.
const UNITS: [(u64, &str); 3] = [(10, "append 10"), (100, "append 100"), (1000, "append 1000")];

#[async_trait(?Send)]
impl Workload for Append {
    const SPEC: WorkloadSpec = WorkloadSpec::of::<Append>(
        "append",
        "Let files grow by 10, 100 and 1000 bytes at a time [za01 §7]",
        &[Key::new("bytes", Form::Bytes, "Size of each file at the end, at most"), DATA],
    )
    .examples(&["--on 'lfs / disk:dec-rz26'", "--on 'zstd / hostdir:/srv/data' --on /srv/plain"]);

    fn check(&self) -> Result<(), LabError> {
        let fault = match self.bytes {
            ..1000 => "the files must have at least 1000 bytes",
            BYTES_MAX.. => "the files have less than 1 GiB",
            _ => return Ok(()),
        };
        Err(LabError::Spec(fault.to_owned()))
    }

    fn title(&self) -> String {
        format!("appends: files of {} in units of 10, 100 and 1000 bytes, seed {}", human_bytes(self.bytes), self.seed)
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn with_seed(self, seed: u64) -> Append {
        Append { seed, ..self }
    }

    async fn run<T: Target>(&self, target: &T, watch: Watch<'_>) -> Result<Outcome, LabError> {
        self.check()?;
        let contents = Contents::of(self.data, self.seed, self.bytes);
        let mut meter = Meter::start(target, watch).await?;
        for (unit, name) in UNITS {
            let appends = self.bytes / unit;
            let whole = contents.piece(unit, appends * unit);
            let mut phase = meter.begin(name, Unit::Transactions, appends);
            let mut open = target.create(name).await?;
            for (number, piece) in whole.chunks(unit as usize).enumerate() {
                target.write(&mut open, number as u64 * unit, piece).await?;
                meter.step(&mut phase, 1, unit)?;
            }
            target.close(open).await?;
            meter.end(phase, Durable::Yes).await?;
            let mut open = target.open(name).await?;
            let mut found = vec![0; whole.len()];
            let read = target.read(&mut open, 0, &mut found).await?;
            contents.check(unit, appends * unit, name, &found[..read])?;
            target.close(open).await?;
            target.unlink(name).await?;
            target.sync().await?;
        }
        Ok(meter.outcome())
    }
}
