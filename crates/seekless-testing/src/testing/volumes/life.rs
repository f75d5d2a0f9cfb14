//! Aim: the promises of a file system hold on a volume that has seen many power cuts, also during recovery, and its
//! internal counts are right. Method: [`crate::testing::Life`].

use super::*;
use crate::device::crash::CrashOptions;
use crate::testing::environment::replay;
use crate::testing::ops::{Path, Target};
use crate::testing::{Life, Op, OpMix, PowerCuts, Promise, Space};

/// Where each level of indirect blocks begins, for file systems on `fs/logfs`.
pub const LEVELS: &[u64] =
    &[7 * 4096, (7 + 341) * 4096, (7 + 341 + 341 * 341) * 4096, (7 + 341 + 341 * 341 + 341 * 341 * 341) * 4096];

/// What a life is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manner {
    /// Few operations between two cuts, on few files with holes.
    Sparse,
    /// Many operations between two cuts, which fill the volume.
    Crowded,
    /// Many long names and little data; now and then most of them are removed.
    Names,
    /// Long names in one directory, which has many blocks from the beginning and goes on growing.
    LongDirectory,
}

/// Names of [`Manner::LongDirectory`] at first, and their length: on FFS each fills a chunk of 512 bytes, and the directory
/// soon needs more than the 12 blocks of 4 KiB to which its inode leads.
const FIRST_NAMES: usize = 90;
const LONG_NAME_BYTES: usize = 250;

impl Manner {
    fn space(self, edges: &'static [u64]) -> Space {
        match self {
            Manner::Sparse => Space { file_bytes_max: 300_000, edges, ..Space::small() },
            Manner::Crowded => Space {
                directories: 2,
                depth_max: 1,
                files: 60,
                name_bytes: 200,
                file_bytes_max: 1_500_000,
                slots: 4,
                edges,
                ..Space::small()
            },
            Manner::Names => Space {
                directories: 1,
                depth_max: 0,
                files: 80,
                name_bytes: 200,
                file_bytes_max: 9_000,
                ..Space::small()
            },
            Manner::LongDirectory => Space {
                directories: 2,
                depth_max: 0,
                files: 240,
                name_bytes: LONG_NAME_BYTES,
                file_bytes_max: 9_000,
                ..Space::small()
            },
        }
    }

    fn weights(self) -> OpMix {
        match self {
            Manner::Sparse | Manner::Crowded => OpMix::CRASHY,
            Manner::Names | Manner::LongDirectory => OpMix { names: 80, data: 8, ..OpMix::CRASHY },
        }
    }

    /// Operations in a round.
    fn ops(self) -> usize {
        match self {
            Manner::Sparse => 25,
            Manner::Crowded => 200,
            Manner::Names | Manner::LongDirectory => 80,
        }
    }

    /// See [`Life::sweep_every`]. In a soak, a full volume would stay full, and its rounds end before they have begun.
    fn sweep_every(self) -> Option<usize> {
        match self {
            Manner::Sparse | Manner::LongDirectory => None,
            Manner::Crowded => Some(10),
            Manner::Names => Some(3),
        }
    }

    /// The names that are there from the beginning, of few inodes.
    fn first_ops(self) -> Vec<Op> {
        if self != Manner::LongDirectory {
            return Vec::new();
        }
        let path =
            |number: usize| Path::from("/").join(format!("{:n<LONG_NAME_BYTES$}", format!("f{number}")).as_bytes());
        let create = Op::Create { path: path(0), permissions: 0o644 };
        let link = |number| Op::Link { existing: Target::Path(path(0)), path: path(number) };
        std::iter::once(create).chain((1..FIRST_NAMES).map(link)).collect()
    }

    /// Of how many of the others' rounds it has one.
    fn rounds_per_round(self) -> usize {
        match self {
            Manner::Sparse => 1,
            Manner::Crowded | Manner::Names | Manner::LongDirectory => 2,
        }
    }
}

/// Long lives of a file system.
pub struct Lives<'a> {
    /// Full name of the test.
    pub test: &'a str,
    /// Each seed has a life of each of them.
    pub manners: &'a [Manner],
    /// The lives take turns on them.
    pub devices: &'a [CrashOptions],
    pub promise: Promise,
    /// Places in files around which operations are drawn, such as [`LEVELS`].
    pub edges: &'static [u64],
    /// See [`Life::setbacks`].
    pub setbacks: bool,
    /// See [`Life::errors`].
    pub errors: bool,
    /// See [`Life::kills`].
    pub kills: bool,
    /// Also check each volume as a cut has left it, before it is recovered, which finds nothing wrong.
    pub fsck_unrecovered: bool,
    /// Power cuts of each life, multiplied by [`Soak`](crate::testing::Soak).
    pub rounds: usize,
    pub seeds: u64,
    /// Rare paths of the code (`rt::cover`) that the lives together must reach.
    pub points: &'a [&'a str],
}

impl Lives<'_> {
    /// `subject` decides for each seed how it is mounted.
    pub fn live<S: FsUnderTest>(&self, subject: impl Fn(u64) -> S) {
        let here = replay(self.test);
        let seeds = match here.seed {
            Some(seed) => seed..seed + 1,
            None => 1..1 + self.seeds,
        };
        crate::rt::covered();
        for seed in seeds {
            let subject = subject(seed);
            for (index, manner) in self.manners.iter().enumerate() {
                // `subject` chooses by the seed, too: with `index`, options meet more than one kind of device.
                let device = self.devices[(seed as usize + index) % self.devices.len()].clone();
                let cuts = PowerCuts::sampled(&subject, device, self.promise, here.clone());
                let life = Life {
                    cuts: PowerCuts { seed, ..cuts },
                    space: manner.space(self.edges),
                    weights: manner.weights(),
                    rounds: here.soak.times(self.rounds.div_ceil(manner.rounds_per_round()) as u64) as usize,
                    ops: manner.ops(),
                    first_ops: manner.first_ops(),
                    sweep_every: manner.sweep_every(),
                    fsck_unrecovered: self.fsck_unrecovered,
                    setbacks: self.setbacks,
                    errors: self.errors,
                    kills: self.kills,
                    host_fills: false,
                    every_op: here.soak.is_longer(),
                };
                println!("{manner:?}: {}", life.run().unwrap_or_else(|report| panic!("{report}")));
            }
        }
        if here.runs_everything() {
            must_have_covered(self.test, self.points);
        }
    }
}

/// Fails when this thread has not passed all `points` since [`crate::rt::covered`] was last asked.
pub fn must_have_covered(test: &str, points: &[&str]) {
    let covered = crate::rt::covered();
    let missed: Vec<_> = points.iter().filter(|point| !covered.contains_key(**point)).collect();
    assert!(!cfg!(debug_assertions) || missed.is_empty(), "{test} never came to: {missed:#?}");
}
