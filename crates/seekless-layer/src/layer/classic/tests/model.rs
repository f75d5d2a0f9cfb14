//! Aim: the layer answers as the model does. Method: the same generated operations on both, with remounts.

use super::*;
use crate::fs::OpenProtocol;
use crate::testing::{Comparison, Generator, OpMix, Pair, Space};

#[test]
fn over_the_model() {
    for seed in replay("model::over_the_model").seeds(0..8) {
        simulate(seed, async |rt| {
            let options = MemFsOptions {
                capacity_bytes: 1 << 50,
                open_protocol: if seed % 2 == 0 { OpenProtocol::Handles } else { OpenProtocol::ZeroMessage },
                ..Default::default()
            };
            let lower = MemFs::with_options(&rt, options);
            let model = MemFs::with_options(&rt, options);
            let fs = stack_on(&rt, lower.clone(), codec(seed)).await.unwrap();
            // The names of indexes are reserved, and directories have entries and times for them.
            let comparison = Comparison { times: false, ..Comparison::default() };
            let mut pair = Pair::new(&rt, fs, model, comparison);
            for (number, op) in Generator::new(seed, Space::small(), OpMix::CURIOUS).take(900).enumerate() {
                if let Err(mismatch) = pair.apply(&op).await {
                    panic!("seed {seed}, operation {number}, {mismatch}");
                }
            }
            pair.release().await.unwrap();
            pair.check_trees().await.unwrap_or_else(|mismatch| panic!("seed {seed}, {mismatch}"));
            pair.fs().close().await.unwrap();
            assert_clean(&rt, &(lower.clone() as Fs)).await;
            let fs = stack_on(&rt, lower.clone(), gzip()).await.unwrap();
            pair.remounted(fs);
            pair.check_trees().await.unwrap_or_else(|mismatch| panic!("seed {seed}, after {mismatch}"));
            pair.fs().close().await.unwrap();
            assert_eq!(lower.leaks(), Default::default(), "seed {seed}");
        });
    }
}
