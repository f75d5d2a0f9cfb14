//! The parts of Bonnie: a file written, rewritten, written once more, read, and read at random.
//!
//! Paper: [za01 §7.2]: (1) a file is written, and rewritten by blocks of 1024 bytes; (2) it is written by characters and by
//! blocks, over what is cached of it; (3) three processes read a block at each of 4000 random places, and rewrite it in a
//! tenth of the cases. Bray's Bonnie also reads the file in order.
//!
//! Characters go through the buffers of the C library, and reach a file system as blocks: they would measure that
//! library and are left out. Rewritten blocks get other bytes of the same kind. Callers of the third part run at once on a
//! stack; in a directory each makes its seeks after the one before.

use std::cell::RefCell;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use seekless::rng::Rng;
use seekless::units::human_bytes;
use serde::{Deserialize, Serialize};

use super::contents::{Contents, Data};
use super::meter::{Durable, Meter, Unit};
use super::{DATA, Form, Key, Outcome, Watch, Workload, WorkloadSpec, size};
use crate::LabError;
use crate::target::Target;

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bonnie {
    /// Size of the file, rounded down to whole blocks.
    #[serde(deserialize_with = "size")]
    pub bytes: u64,
    /// Bytes of a sequential call: the buffer of Bonnie.
    #[serde(deserialize_with = "size")]
    pub block: u64,
    /// Seeks of all callers together.
    pub seeks: u64,
    /// Callers that seek at once.
    pub callers: u64,
    pub data: Data,
    #[serde(skip_deserializing)]
    pub seed: u64,
}

impl Default for Bonnie {
    fn default() -> Bonnie {
        Bonnie { bytes: 8 << 20, block: 16 << 10, seeks: 12_000, callers: 3, data: Data::Text, seed: 1 }
    }
}

/// Bytes of a block that is rewritten, or read at random.
const SMALL: u64 = 1024;

/// One in this many seeks of a caller writes.
const WRITES: u64 = 10;

const PATH: &str = "bonnie";

pub const WRITE: &str = "write";
pub const REWRITE: &str = "rewrite";
pub const WRITE_AGAIN: &str = "write again";
pub const READ: &str = "read";
pub const SEEK: &str = "seek";

#[async_trait(?Send)]
impl Workload for Bonnie {
    const SPEC: WorkloadSpec = WorkloadSpec::of::<Bonnie>(
        "bonnie",
        "Write, rewrite, write again and read a file, and read it at random (Bonnie) [za01 §7]",
        &[
            Key::new("bytes", Form::Bytes, "Size of the file"),
            Key::new("block", Form::Bytes, "Size of each read and write in order"),
            Key::new("seeks", Form::Count, "Random reads of all callers; of ten, one block is written again"),
            Key::new("callers", Form::Count, "Callers that read at random at once; in a directory, one after another"),
            DATA,
        ],
    )
    .about("Characters go through the buffers of the C library, and are left out.")
    .examples(&["--on 'lfs / disk:cheetah9lp'", "--on /mnt --on /tmp --bytes 1GiB"]);

    fn check(&self) -> Result<(), LabError> {
        let fault = match self {
            Bonnie { block, .. } if !block.is_multiple_of(SMALL) || *block == 0 => {
                "a block has a multiple of 1024 bytes"
            }
            Bonnie { block, .. } if *block > 64 << 20 => "a block has at most 64 MiB",
            Bonnie { bytes, block, .. } if bytes < block => "the file must hold at least one block",
            Bonnie { bytes, .. } if *bytes > 1 << 40 => "the file has at most 1 TiB",
            Bonnie { callers: 0, .. } => "there must be at least one caller",
            Bonnie { callers: 1_001.., .. } => "there can be at most 1,000 callers",
            _ => return Ok(()),
        };
        Err(LabError::Spec(fault.to_owned()))
    }

    fn title(&self) -> String {
        let Bonnie { bytes, block, seeks, callers, seed, .. } = self;
        let (bytes, block) = (human_bytes(*bytes), human_bytes(*block));
        format!("Bonnie: {bytes} in blocks of {block}, {seeks} seeks by {callers} callers, seed {seed}")
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn with_seed(self, seed: u64) -> Bonnie {
        Bonnie { seed, ..self }
    }

    async fn run<T: Target>(&self, target: &T, watch: Watch<'_>) -> Result<Outcome, LabError> {
        self.check()?;
        let blocks = self.bytes / self.block;
        let small_blocks = blocks * self.block / SMALL;
        let contents = Contents::of(self.data, self.seed, self.block);
        let mut rng = Rng::new(self.seed);
        let mut meter = Meter::start(target, watch).await?;

        let mut phase = meter.begin(WRITE, Unit::Bytes, blocks * self.block);
        let mut open = target.create(PATH).await?;
        for block in 0..blocks {
            target.write(&mut open, block * self.block, &contents.piece(block, self.block)).await?;
            meter.step(&mut phase, self.block, self.block)?;
        }
        meter.end(phase, Durable::Yes).await?;

        // A block is read, its last byte changed, and written again.
        let mut phase = meter.begin(REWRITE, Unit::Bytes, small_blocks * SMALL);
        let mut buffer = vec![0; self.block as usize];
        for number in 0..small_blocks {
            let small = &mut buffer[..SMALL as usize];
            let read = target.read(&mut open, number * SMALL, small).await?;
            if read as u64 != SMALL {
                let detail = format!("{read} bytes instead of {SMALL} at {}", number * SMALL);
                return Err(LabError::Content { path: PATH.to_owned(), detail });
            }
            small[SMALL as usize - 1] ^= 1;
            target.write(&mut open, number * SMALL, small).await?;
            meter.step(&mut phase, SMALL, SMALL)?;
        }
        meter.end(phase, Durable::Yes).await?;

        // Blocks that are cached are replaced, by what was in them at first.
        let mut phase = meter.begin(WRITE_AGAIN, Unit::Bytes, blocks * self.block);
        for block in 0..blocks {
            target.write(&mut open, block * self.block, &contents.piece(block, self.block)).await?;
            meter.step(&mut phase, self.block, self.block)?;
        }
        meter.end(phase, Durable::Yes).await?;

        meter.drop_caches().await?;
        let mut phase = meter.begin(READ, Unit::Bytes, blocks * self.block);
        for block in 0..blocks {
            let read = target.read(&mut open, block * self.block, &mut buffer).await?;
            contents.check(block, self.block, PATH, &buffer[..read])?;
            meter.step(&mut phase, self.block, self.block)?;
        }
        meter.end(phase, Durable::No).await?;

        target.close(open).await?;
        meter.drop_caches().await?;
        let mut callers = Vec::new();
        for first in 0..self.callers {
            callers.push((first, target.open_to_write(PATH).await?, rng.fork()));
        }
        let phase = RefCell::new(meter.begin(SEEK, Unit::Transactions, self.seeks));
        let opens = try_join_all(callers.into_iter().map(async |(first, mut open, mut rng)| {
            let mut small = vec![0; SMALL as usize];
            for (count, seek) in (first..self.seeks).step_by(self.callers as usize).enumerate() {
                let place = rng.below(small_blocks) * SMALL;
                target.read(&mut open, place, &mut small).await?;
                if (count as u64).is_multiple_of(WRITES) {
                    target.write(&mut open, place, &contents.piece(blocks + seek, SMALL)).await?;
                }
                meter.step(&mut phase.borrow_mut(), 1, SMALL)?;
            }
            Ok::<_, LabError>(open)
        }))
        .await?;
        meter.end(phase.into_inner(), Durable::Yes).await?;
        for open in opens {
            target.close(open).await?;
        }
        target.unlink(PATH).await?;
        target.sync().await?;
        Ok(meter.outcome())
    }
}
