//! Aim: FFS answers every operation that UFS1 can do as the model does. Method: the same generated operations on both;
//! at intervals the volume is closed, checked and mounted again.

use super::*;
use crate::device::crash::CrashOptions;
use crate::testing::environment::replay;
use crate::testing::{Comparison, Generator, Op, OpMix, Replay, Space, SubjectComparison};

fn here(test: &str) -> Replay {
    replay(&format!("fs::ffs::tests::model::{test}"))
}

fn check(test: &str, subject: &Volume, seed: u64, bytes: u64, ops: usize, space: Space) {
    let ops: Vec<Op> = Generator::new(seed, space, OpMix::CURIOUS).filter(Op::is_possible_on_ufs1).take(ops).collect();
    let comparison = Comparison { birth_times: false, ..Comparison::default() };
    let device = CrashOptions::volatile(bytes);
    let run = SubjectComparison { subject, device, comparison, remount_every: 400, seed, replay: here(test) }.run(&ops);
    match run {
        Ok(report) => println!("{report:?}"),
        Err(report) => panic!("{report}"),
    }
}

#[test]
fn small_files_and_few_names() {
    for seed in here("small_files_and_few_names").seeds(0..8) {
        let subject = Volume::default();
        check("small_files_and_few_names", &subject, seed, 24 * MIB, 1600, Space::small());
    }
}

#[test]
fn large_files_and_many_names() {
    for seed in here("large_files_and_many_names").seeds(0..3) {
        let options = Options { realloc_blocks: seed % 2 == 1, cluster_updates: seed % 3 == 1, ..Options::default() };
        let subject = Volume { options, ..Volume::default() };
        check("large_files_and_many_names", &subject, seed, 384 * MIB, 1200, Space::large());
    }
}

/// Soft updates, by themselves and with updates that meet operations.
#[test]
fn soft_updates() {
    for seed in here("soft_updates").seeds(200..206) {
        let metadata = Metadata::Softdep;
        let update_interval = Nanos::from_millis(if seed % 2 == 0 { 20 } else { 30_000 });
        let options = Options { metadata, update_interval, realloc_blocks: seed % 3 == 0, ..Options::default() };
        let options =
            if seed % 3 == 1 { Options { cache_bytes: 1, dirty_bytes_max: 64 << 10, ..options } } else { options };
        let subject = Volume { options, ..Volume::default() };
        let (bytes, space) = if seed % 3 == 2 { (384, Space::large()) } else { (24, Space::small()) };
        check("soft_updates", &subject, seed, bytes * MIB, 1200, space);
    }
}

/// A cache too small for anything makes steps load and start again.
#[test]
fn a_tiny_cache() {
    for seed in here("a_tiny_cache").seeds(100..102) {
        let options = Options { cache_bytes: 1, dirty_bytes_max: 64 << 10, ..Options::default() };
        let subject = Volume { options, ..Volume::default() };
        check("a_tiny_cache", &subject, seed, 64 * MIB, 800, Space::small());
    }
}

/// Other shapes, and metadata that waits.
#[test]
fn other_shapes() {
    let shapes = [
        MkfsOptions { block_bytes: 4096, frag_bytes: 512, ..small_groups() },
        MkfsOptions { block_bytes: 16_384, frag_bytes: 16_384, ..small_groups() },
        MkfsOptions { block_bytes: 32_768, frag_bytes: 8_192, lite2: true, ..small_groups() },
        MkfsOptions::new([1, 2]).profile(Profile::Newfs, DriveShape::DSP3105),
        MkfsOptions::new([1, 2]).profile(Profile::M1R2, DriveShape::DSP3105),
    ];
    for seed in here("other_shapes").seeds(0..5) {
        let mkfs = shapes[seed as usize % shapes.len()].clone();
        let metadata = if seed % 2 == 0 { Metadata::Async } else { Metadata::Sync };
        let options = Options { metadata, cache_data: seed % 3 != 0, ..Options::default() };
        check("other_shapes", &Volume { mkfs, options }, seed, 48 * MIB, 800, Space::small());
    }
}
