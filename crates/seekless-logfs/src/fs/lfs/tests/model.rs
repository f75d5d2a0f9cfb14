//! Aim: LFS answers every operation as the model does. Method: the same generated operations on both, each answer
//! compared; at intervals the volume is closed, checked and mounted again, and at the end everything is compared.

use super::*;
use crate::testing::Space;
use crate::testing::environment::replay;
use crate::testing::volumes::model::check;

fn here(test: &str) -> crate::testing::Replay {
    replay(&format!("fs::lfs::tests::model::{test}"))
}

#[test]
fn small_files_and_few_names() {
    let replay = here("small_files_and_few_names");
    for seed in replay.seeds(0..12) {
        // Half of them as on a mount, where the kernel has the data.
        let (cache_data, read_around_bytes) = (seed % 2 == 0, around(seed % 2 == 1));
        let options = Options { cache_data, read_around_bytes, ..Options::default() };
        check(&Small { options }, &replay, seed, 32 * MIB, 1600, Space::small());
    }
}

#[test]
fn large_files_and_many_names() {
    let replay = here("large_files_and_many_names");
    for seed in replay.seeds(0..4) {
        let options = Options { indirect_in_log: seed % 2 == 1, ..Options::default() };
        check(&Small { options }, &replay, seed, 512 * MIB, 1200, Space::large());
    }
}

/// A cache too small for anything makes every step load and start again.
#[test]
fn a_tiny_cache() {
    let replay = here("a_tiny_cache");
    for seed in replay.seeds(100..104) {
        let (cache_data, read_around_bytes) = (seed % 2 == 0, around(seed % 2 == 1));
        let options = Options { cache_bytes: 1, cache_data, read_around_bytes, ..Options::default() };
        check(&Small { options }, &replay, seed, 64 * MIB, 800, Space::small());
    }
}
