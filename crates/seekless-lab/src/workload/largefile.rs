//! The large-file benchmark: one file is written and read, in order and at random.
//!
//! Paper: [ro92 Fig. 9] and [se95 §2]: 100 MB in units of 8 KB, in five phases: written in order, read in order,
//! rewritten at random, read at random, and read in order again. [se95 §2] prints 100 KB for the random phases, where
//! [ro92 Fig. 9], whose benchmark it is, has 100 MB.
//!
//! The papers do not say how random offsets were drawn. Here each unit is written once and read once, in a random
//! order, so that every phase moves the same bytes. Everything is made durable at the end of writing phases, and caches
//! are dropped before reading ones: the machines of the papers cached a small part of the file.

use async_trait::async_trait;
use seekless::rng::Rng;
use seekless::units::human_bytes;
use serde::{Deserialize, Serialize};

use super::contents::Contents;
use super::meter::{Durable, Meter, Unit};
use super::{Form, Key, Outcome, Watch, Workload, WorkloadSpec, size};
use crate::LabError;
use crate::target::Target;

/// Parameters. The defaults are those of the papers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LargeFile {
    /// Size of the file, rounded down to whole units.
    #[serde(deserialize_with = "size")]
    pub bytes: u64,
    /// Bytes of each call.
    #[serde(deserialize_with = "size")]
    pub unit: u64,
    /// Each call that writes is made durable before the next, as with `O_SYNC`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sync: bool,
    /// Units are read at random in the order in which they were written at random.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub same_order: bool,
    /// Decides the contents of the file, and every random order.
    #[serde(skip_deserializing)]
    pub seed: u64,
}

impl Default for LargeFile {
    fn default() -> LargeFile {
        LargeFile { bytes: 100 << 20, unit: 8 << 10, sync: false, same_order: false, seed: 1 }
    }
}

/// Each unit is held in memory.
const UNIT_MAX: u64 = 64 << 20;

/// The order of units is held in memory.
const UNITS_MAX: u64 = 1 << 28;

const PATH: &str = "large";

pub const WRITE: &str = "write";
pub const READ: &str = "read";
pub const RANDOM_WRITE: &str = "random write";
pub const RANDOM_READ: &str = "random read";
pub const REREAD: &str = "read again";

impl LargeFile {
    fn units(&self) -> u64 {
        self.bytes / self.unit
    }

    /// All units, in order or in a random order.
    fn order(&self, shuffled: Option<&mut Rng>) -> Vec<u64> {
        let mut order: Vec<u64> = (0..self.units()).collect();
        if let Some(rng) = shuffled {
            rng.shuffle(&mut order);
        }
        order
    }
}

#[async_trait(?Send)]
impl Workload for LargeFile {
    const SPEC: WorkloadSpec = WorkloadSpec::of::<LargeFile>(
        "largefile",
        "Write and read one large file, in order and at random [ro92 Fig. 9] [se95 §2]",
        &[
            Key::new("bytes", Form::Bytes, "Size of the file"),
            Key::new("unit", Form::Bytes, "Size of each read and write"),
            Key::new("sync", Form::Switch, "Make each write durable before the next, as with O_SYNC"),
            Key::new("same_order", Form::Switch, "Read at random in the order of the random writes"),
        ],
    )
    .about(
        "Five phases: written in order, read in order, rewritten at random, read at random, read in order again. Each unit is touched \
         once in each phase. Making durable counts into the phases that write; those that read begin cold.",
    )
    .examples(&[
        "--on 'lfs / disk:dec-rz26' --profile sparcstation2",
        "--on /mnt --on /tmp --bytes 1GiB --unit 64KiB",
    ]);

    fn check(&self) -> Result<(), LabError> {
        let fault = match self {
            LargeFile { unit: 0, .. } => "a unit has at least one byte",
            LargeFile { unit, .. } if *unit > UNIT_MAX => "a unit has at most 64 MiB",
            LargeFile { bytes, unit, .. } if bytes < unit => "the file must hold at least one unit",
            LargeFile { bytes, unit, .. } if bytes / unit > UNITS_MAX => "there can be at most 268,435,456 units",
            _ => return Ok(()),
        };
        Err(LabError::Spec(fault.to_owned()))
    }

    fn title(&self) -> String {
        let sync = if self.sync { ", each durable" } else { "" };
        let order = if self.same_order { ", read as it was written" } else { "" };
        let (bytes, unit) = (human_bytes(self.bytes), human_bytes(self.unit));
        format!("a large file: {bytes} in units of {unit}{sync}{order}, seed {}", self.seed)
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn with_seed(self, seed: u64) -> LargeFile {
        LargeFile { seed, ..self }
    }

    async fn run<T: Target>(&self, target: &T, watch: Watch<'_>) -> Result<Outcome, LabError> {
        self.check()?;
        let (units, unit) = (self.units(), self.unit);
        let contents = Contents::new(self.seed, unit);
        let mut rng = Rng::new(self.seed);
        let mut meter = Meter::start(target, watch).await?;
        let mut open = target.create(PATH).await?;
        let mut buffer = vec![0; unit as usize];
        let written = self.order(Some(&mut rng));
        let read = if self.same_order { written.clone() } else { self.order(Some(&mut rng)) };
        // A unit's content shows how often it was written: its number, and later that plus the number of units.
        let phases = [
            (WRITE, self.order(None), true, 0),
            (READ, self.order(None), false, 0),
            (RANDOM_WRITE, written, true, units),
            (RANDOM_READ, read, false, units),
            (REREAD, self.order(None), false, units),
        ];
        for (name, order, writes, version) in phases {
            if !writes {
                meter.drop_caches().await?;
            }
            let mut phase = meter.begin(name, Unit::Bytes, units * unit);
            for index in order {
                let at = index * unit;
                if writes {
                    target.write(&mut open, at, &contents.piece(index + version, unit)).await?;
                    if self.sync {
                        target.fsync(&mut open).await?;
                    }
                } else {
                    let bytes = target.read(&mut open, at, &mut buffer).await?;
                    contents.check(index + version, unit, PATH, &buffer[..bytes])?;
                }
                meter.step(&mut phase, unit, unit)?;
            }
            meter.end(phase, if writes { Durable::Yes } else { Durable::No }).await?;
        }
        target.close(open).await?;
        target.unlink(PATH).await?;
        target.sync().await?;
        Ok(meter.outcome())
    }
}
