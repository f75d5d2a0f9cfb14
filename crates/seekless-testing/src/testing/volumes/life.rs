//! Aim: the promises of a file system hold on a volume that has seen many power cuts, also during recovery, and its
//! internal counts are right. Method: [`crate::testing::Life`].

use super::*;
use crate::device::crash::CrashOptions;
use crate::testing::environment::replay;
use crate::testing::{Life, PowerCuts, Promise, Space};

/// Where each level of indirect blocks begins, for file systems on `fs/logfs`.
pub const LEVELS: &[u64] =
    &[7 * 4096, (7 + 341) * 4096, (7 + 341 + 341 * 341) * 4096, (7 + 341 + 341 * 341 + 341 * 341 * 341) * 4096];

/// Long lives of a file system.
pub struct Lives<'a> {
    /// Full name of the test.
    pub test: &'a str,
    /// Bytes of the volume.
    pub bytes: u64,
    /// Power cuts of each life; a soak multiplies them.
    pub rounds: usize,
    pub seeds: u64,
    /// Rare paths of the code (`rt::cover`) that the lives together must reach.
    pub points: &'a [&'a str],
}

impl Lives<'_> {
    /// Lives with few operations between two cuts, and lives that fill the volume. `subject` decides for each seed how
    /// it is mounted.
    pub fn live<S: Subject>(&self, subject: impl Fn(u64) -> S) {
        let here = replay(self.test);
        let seeds = match here.seed {
            Some(seed) => seed..seed + 1,
            None => 1..1 + self.seeds,
        };
        let sparse = Space { file_bytes_max: 300_000, edges: LEVELS, ..Space::small() };
        let crowded = Space {
            directories: 2,
            depth_max: 1,
            files: 60,
            name_bytes: 200,
            file_bytes_max: 1_500_000,
            slots: 4,
            edges: LEVELS,
            ..Space::small()
        };
        crate::rt::covered();
        for seed in seeds {
            let device = match seed % 3 {
                0 => CrashOptions::host_file(self.bytes),
                1 => CrashOptions::volatile(self.bytes),
                _ => CrashOptions::in_order(self.bytes),
            };
            let subject = subject(seed);
            for (space, ops, every) in [(&sparse, 25, 1), (&crowded, 200, 2)] {
                let cuts = PowerCuts::sampled(&subject, device.clone(), Promise::NAMESPACE_PREFIX, here.clone());
                let life = Life {
                    cuts: PowerCuts { seed, ..cuts },
                    space: space.clone(),
                    rounds: self.rounds.div_ceil(every) * here.soak.max(1) as usize,
                    ops,
                    every_op: here.soak > 1,
                };
                println!("{}", life.run().unwrap_or_else(|report| panic!("{report}")));
            }
        }
        let covered = crate::rt::covered();
        let missed: Vec<_> = self.points.iter().filter(|point| !covered.contains_key(**point)).collect();
        assert!(
            here.seed.is_some() || !cfg!(debug_assertions) || missed.is_empty(),
            "the lives of {} never came to: {missed:#?}",
            self.test
        );
    }
}
