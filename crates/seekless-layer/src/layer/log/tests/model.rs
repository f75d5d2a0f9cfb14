//! Aim: the layer answers as the model does. Method: the same generated operations on both, with remounts, over LFS and
//! over the model itself, with one layer and with two.

use super::*;
use crate::device::crash::CrashOptions;
use crate::testing::{Comparison, Generator, Op, OpMix, Pair, Space, SubjectComparison};
use crate::units::GIB;

/// A chunk is a hole as a whole or not at all, and times are the lower file system's: it writes when the layer does.
fn comparison() -> Comparison {
    Comparison { times: false, ..Comparison::default() }
}

fn compare(test: &str, seed: u64, subject: &OverLfs, space: Space, ops: usize) {
    let replay = replay(test);
    let ops: Vec<Op> = Generator::new(seed, space, OpMix::CURIOUS).take(ops).collect();
    let run = SubjectComparison {
        subject,
        device: CrashOptions::write_through(4 * GIB),
        comparison: comparison(),
        remount_every: 200,
        seed,
        replay,
    };
    match run.run(&ops) {
        Ok(report) => assert!(report.done > 0),
        Err(report) => panic!("{report}"),
    }
}

#[test]
fn small_files_over_lfs() {
    for seed in replay("model::small_files_over_lfs").seeds(0..6) {
        let options = if seed % 2 == 0 { tiny(Arc::new(Zstd::default())) } else { zstd() };
        compare("model::small_files_over_lfs", seed, &OverLfs::new(options), Space::small(), 800);
    }
}

#[test]
fn large_files_over_lfs() {
    for seed in replay("model::large_files_over_lfs").seeds(0..3) {
        let options = if seed % 2 == 0 { tiny(Arc::new(Zstd::default())) } else { zstd() };
        compare("model::large_files_over_lfs", seed, &OverLfs::new(options), Space::large(), 500);
    }
}

#[test]
fn two_layers() {
    for seed in replay("model::two_layers").seeds(0..2) {
        let subject = OverLfs { below: Some(uuencode()), ..OverLfs::new(deflate()) };
        compare("model::two_layers", seed, &subject, Space::small(), 500);
    }
}

/// Over the model, which keeps handles, with the times of every operation.
#[test]
fn over_handles() {
    for seed in replay("model::over_handles").seeds(0..4) {
        simulate(seed, async |rt| {
            use crate::fs::OpenProtocol;
            let options = crate::testing::MemFsOptions {
                capacity_bytes: 1 << 50,
                open_protocol: if seed % 2 == 0 { OpenProtocol::Handles } else { OpenProtocol::ZeroMessage },
                ..Default::default()
            };
            let lower = MemFs::with_options(&rt, options);
            // Opened as the layer opens files, since a file without data is refused at opening or not at all.
            let model = MemFs::with_options(&rt, options);
            let fs = stack_on(&rt, lower.clone(), tiny(Arc::new(Zstd::default()))).await.unwrap();
            let space = Space { odd_names: true, far_offset: 1 << 40, ..Space::small() };
            let mut pair = Pair::new(&rt, fs, model, comparison());
            for op in Generator::new(seed, space, OpMix::CURIOUS).take(1_200) {
                if let Err(mismatch) = pair.apply(&op).await {
                    panic!("seed {seed}, {mismatch}");
                }
            }
            pair.release().await.unwrap();
            pair.check_trees().await.unwrap_or_else(|mismatch| panic!("seed {seed}, {mismatch}"));
            pair.fs().close().await.unwrap();
            let below: Fs = lower.clone();
            assert_clean(&rt, &below, &zstd()).await;
            let fs = stack_on(&rt, lower.clone(), zstd()).await.unwrap();
            pair.remounted(fs);
            pair.check_trees().await.unwrap_or_else(|mismatch| panic!("seed {seed}, after {mismatch}"));
            pair.fs().close().await.unwrap();
            assert_eq!(lower.leaks(), Default::default(), "seed {seed}");
        });
    }
}
