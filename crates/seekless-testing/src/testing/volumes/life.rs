//! Aim: what a file system promises holds on a volume that has seen many power cuts, in recovery too, and its books balance.
//! Method: [`crate::testing::Life`].

use super::*;
use crate::device::crash::CrashOptions;
use crate::testing::environment::replay;
use crate::testing::{Life, PowerCuts, Promise, Space};

/// Where each level of indirect blocks begins, for file systems on `fs/logfs`.
pub const LEVELS: &[u64] =
    &[7 * 4096, (7 + 341) * 4096, (7 + 341 + 341 * 341) * 4096, (7 + 341 + 341 * 341 + 341 * 341 * 341) * 4096];

/// `rounds` times as many as a soak asks for, on a volume of `bytes`; `subject` says for each seed how it is mounted.
pub fn long_life<S: Subject>(test: &str, bytes: u64, rounds: usize, seeds: u64, subject: impl Fn(u64) -> S) {
    let here = replay(test);
    let seeds = match here.seed {
        Some(seed) => seed..seed + 1,
        None => 1..1 + seeds,
    };
    for seed in seeds {
        let device = match seed % 3 {
            0 => CrashOptions::host_file(bytes),
            1 => CrashOptions::volatile(bytes),
            _ => CrashOptions::in_order(bytes),
        };
        let subject = subject(seed);
        let cuts = PowerCuts::sampled(&subject, device, Promise::NAMESPACE_PREFIX, here.clone());
        let life = Life {
            cuts: PowerCuts { seed, ..cuts },
            space: Space { file_bytes_max: 300_000, edges: LEVELS, ..Space::small() },
            rounds: rounds * here.soak.max(1) as usize,
            ops: 25,
            every_op: here.soak > 1,
        };
        println!("{}", life.run().unwrap_or_else(|report| panic!("{report}")));
    }
}
