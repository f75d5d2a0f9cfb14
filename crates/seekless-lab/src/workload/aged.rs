//! The sweep over file sizes on a file system whose free space is fragmented by use.
//!
//! [se95 §5] compared sizes of the sweep, with 25 files in a directory, on used file systems and on an empty disk. It
//! copied only maps of free space; that is what `aged=` of an `ffs` does, and `experiments/se95-aged` repeats it. This
//! workload ages any file system, or a directory, through calls: so its inodes and directories are those of a used one,
//! too, which costs small files more. `experiments/aged-files` has both beside each other. The layout of files on used
//! file systems is, in the text: of files of two blocks, 37 % are in one piece; of the blocks of files of 32 blocks, 80
//! % follow the previous one.
//!
//! The map is generated in two phases. `fill`: files of one block, in small directories, nearly as many as the file
//! system holds. `free`: files are deleted until the file system has the requested utilisation, in runs of random
//! lengths. Both FFS and LFS place such files one after another, so that the order of creation is that on the disk: in
//! FFS, each round of directories takes the next part of every cylinder group. Free space near the start of a group is
//! in smaller pieces than farther on, since allocation begins there ([se95 §5.2]); so the files created first are freed
//! in shorter runs.
//!
//! `df` shows what a file system has for data. Where files of one block have blocks beside their data, as files of more
//! than seven blocks have in LFS, fewer fit, and `fill` ends when the file system is full.

use async_trait::async_trait;
use seekless::rng::Rng;
use seekless::units::human_bytes;
use serde::{Deserialize, Serialize};

use super::contents::Contents;
use super::meter::{Durable, Meter, Unit};
use super::sizes::Sizes;
use super::{Form, Key, Outcome, Watch, Workload, WorkloadSpec, size};
use crate::LabError;
use crate::target::Target;

/// Parameters. The defaults are those of the paper, where it gives them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Aged {
    /// Utilisation according to `df` once space has been freed, in per cent. With 0 nothing is filled and freed: an
    /// empty file system, for comparison.
    pub full: u64,
    /// Size of the filling files: a block of the file system.
    #[serde(deserialize_with = "size")]
    pub block: u64,
    /// The first size of the sweep; each is twice the previous one.
    #[serde(deserialize_with = "size")]
    pub smallest: u64,
    /// The largest size.
    #[serde(deserialize_with = "size")]
    pub largest: u64,
    /// Total data of the files of one size.
    #[serde(deserialize_with = "size")]
    pub bytes: u64,
    pub files_per_directory: u64,
    /// Decides which space is free, and the contents of files.
    #[serde(skip_deserializing)]
    pub seed: u64,
}

impl Default for Aged {
    fn default() -> Aged {
        let Sizes { smallest, largest, bytes, .. } = Sizes::default();
        Aged { full: 75, block: 8 << 10, smallest, largest, bytes, files_per_directory: 25, seed: 1 }
    }
}

pub const FILL: &str = "fill";
pub const FREE: &str = "free";

/// Files of one block in a directory: few, so that a file system that spreads directories fills all parts of the disk at
/// the same rate.
const BLOCKS_PER_DIRECTORY: u64 = 128;

/// Share of the space available according to `df` that is filled, in per cent: the rest is for directories and inodes.
const FILLED: u64 = 94;

/// Share of the files, from the first created on, that are freed in short runs.
const FRONT: f64 = 0.3;

/// Probability that the block after a freed one is also freed, in front and behind: with these, files that FFS creates
/// on a Fujitsu M2694EXA at 75 % utilisation are laid out as published. `files_on_used_file_systems_lie_as_published`
/// measures it.
const FOLLOWS_IN_FRONT: f64 = 0.37;
const FOLLOWS_BEHIND: f64 = 0.985;

/// Decides which files are freed: a two-state Markov chain, whose share of free ones is constant, and whose run length
/// depends on the place.
struct Freed {
    rng: Rng,
    free: f64,
    before: bool,
}

impl Freed {
    fn new(seed: u64, free: f64) -> Freed {
        Freed { rng: Rng::new(seed), free, before: false }
    }

    /// True when the next file is freed; `place` is the share of files before it.
    fn next(&mut self, place: f64) -> bool {
        let follows = if place < FRONT { FOLLOWS_IN_FRONT } else { FOLLOWS_BEHIND };
        let chance = match self.before {
            true => follows,
            // As many runs begin as end.
            false => (1.0 - follows) * self.free / (1.0 - self.free),
        };
        self.before = self.rng.unit_f64() < chance;
        self.before
    }
}

impl Aged {
    fn sizes(&self) -> Sizes {
        let Aged { smallest, largest, bytes, files_per_directory, seed, .. } = *self;
        Sizes { smallest, largest, bytes, files_per_directory, seed, ..Sizes::default() }
    }

    /// Creates one of the files that fill.
    async fn fill_one<T: Target>(&self, target: &T, file: u64, contents: &Contents) -> Result<(), LabError> {
        if file.is_multiple_of(BLOCKS_PER_DIRECTORY) {
            target.mkdir(&directory(file)).await?;
        }
        let mut open = target.create(&path(file)).await?;
        let written = target.write(&mut open, 0, &contents.piece(file, self.block)).await;
        target.close(open).await?;
        if written.as_ref().is_err_and(LabError::is_no_space) {
            target.unlink(&path(file)).await?;
        }
        written
    }

    /// Fills the file system and frees space, in pieces. Returns the number of files.
    async fn age<T: Target>(&self, target: &T, meter: &mut Meter<'_, T>) -> Result<u64, LabError> {
        let space = target.space().await?;
        let directories = space.available / 100 * FILLED / (BLOCKS_PER_DIRECTORY * self.block);
        let mut files = directories * BLOCKS_PER_DIRECTORY;
        let contents = Contents::new(self.seed, self.block);
        let mut fill = meter.begin(FILL, Unit::Files, files);
        for file in 0..files {
            match self.fill_one(target, file, &contents).await {
                Ok(()) => meter.step(&mut fill, 1, self.block)?,
                Err(error) if error.is_no_space() => {
                    files = file;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        meter.end(fill, Durable::Yes).await?;

        let space = target.space().await?;
        let wanted = (u128::from(space.total()) * u128::from(self.full) / 100) as u64;
        let superfluous = space.used.saturating_sub(wanted) as f64;
        let mut freed = Freed::new(self.seed, (superfluous / (files * self.block).max(1) as f64).clamp(0.0, 0.99));
        let chosen: Vec<u64> = (0..files).filter(|&file| freed.next(file as f64 / files as f64)).collect();
        let mut free = meter.begin(FREE, Unit::Files, chosen.len() as u64);
        for &file in &chosen {
            target.unlink(&path(file)).await?;
            meter.step(&mut free, 1, 0)?;
        }
        meter.end(free, Durable::Yes).await?;
        Ok(files)
    }
}

fn directory(file: u64) -> String {
    format!("aged{:05}", file / BLOCKS_PER_DIRECTORY)
}

fn path(file: u64) -> String {
    format!("{}/f{file:07}", directory(file))
}

#[async_trait(?Send)]
impl Workload for Aged {
    const SPEC: WorkloadSpec = WorkloadSpec::of::<Aged>(
        "aged",
        "The sweep of sizes on a file system that files have filled, of which most are still there (after [se95 §5], which copies maps)",
        &[
            Key::new("full", Form::Percent, "How full the file system is when the sweep begins; 0: empty"),
            Key::new("block", Form::Bytes, "Size of the files that fill it: a block of the file system"),
            Key::new("smallest", Form::Bytes, "The first size; each is twice the one before"),
            Key::new("largest", Form::Bytes, "No size is larger"),
            Key::new("bytes", Form::Bytes, "Data in the files of one size together"),
            Key::new("files_per_directory", Form::Count, "Files in each directory"),
        ],
    )
    .about(
        "The file system is filled with files of one block, which are then deleted in runs until it is as full as is said. On a \
         directory this fills the file system that it is in.",
    )
    .examples(&[
        "--on 'ffs:profile=m8r0 / disk:m2694exa' --profile sparcstation1 --full 75",
        "--on 'ffs:profile=m8r0 / disk:m2694exa' --profile sparcstation1 --full 0",
    ])
    .by_size();

    fn check(&self) -> Result<(), LabError> {
        let fault = match self {
            Aged { full: 91.., .. } => {
                "a file system that is more than 90 % full has no room for the files of the sweep"
            }
            Aged { block, .. } if *block < 512 || *block > 1 << 20 => "a block has between 512 bytes and 1 MiB",
            _ => return self.sizes().check(),
        };
        Err(LabError::Spec(fault.to_owned()))
    }

    fn title(&self) -> String {
        let age = match self.full {
            0 => "on an empty file system".to_owned(),
            full => format!("after filling it with files of {}, {full} % of which are left", human_bytes(self.block)),
        };
        format!("{}, {age}", self.sizes().title())
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn with_seed(self, seed: u64) -> Aged {
        Aged { seed, ..self }
    }

    fn fills(&self) -> bool {
        self.full > 0
    }

    async fn run<T: Target>(&self, target: &T, watch: Watch<'_>) -> Result<Outcome, LabError> {
        self.check()?;
        let mut meter = Meter::start(target, watch).await?;
        let files = match self.full {
            0 => 0,
            _ => self.age(target, &mut meter).await?,
        };
        meter.drop_caches().await?;
        self.sizes().run_all(target, &mut meter).await?;
        for file in (0..files).step_by(BLOCKS_PER_DIRECTORY as usize) {
            super::remove_all(target, &directory(file)).await;
            target.rmdir(&directory(file)).await?;
        }
        target.sync().await?;
        Ok(meter.outcome())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of freed blocks have the chain's lengths, in front and behind, and the right number is freed.
    #[test]
    fn runs_have_the_published_lengths() {
        let files = 400_000;
        for free in [0.1, 0.25, 0.6] {
            let mut chain = Freed::new(7, free);
            let freed: Vec<bool> = (0..files).map(|file| chain.next(file as f64 / files as f64)).collect();
            let split = (FRONT * files as f64) as usize;
            for (part, follows) in [(&freed[..split], FOLLOWS_IN_FRONT), (&freed[split..], FOLLOWS_BEHIND)] {
                let count = part.iter().filter(|freed| **freed).count() as f64;
                let pairs = part.windows(2).filter(|pair| pair[0] && pair[1]).count() as f64;
                // Where more than half is free, runs cannot be as short as that.
                if (1.0 - follows) * free <= 1.0 - free {
                    assert!((count / part.len() as f64 - free).abs() < 0.02, "{free}: {count} of {}", part.len());
                    assert!((pairs / count - follows).abs() < 0.02, "{free}: {pairs} of {count}");
                }
            }
        }
    }
}
