//! Aim: VLFS answers as the model does, whatever is asked. Method: the same generated operations on both; each answer is
//! compared, now and then the volume is closed, checked and mounted again, and at the end all of it is compared.

use super::*;
use crate::testing::tests::replay;
use crate::testing::{Generator, MemFs, Replay, Runner, Space, Tree, Weights};

fn here(test: &str) -> Replay {
    replay(&format!("fs::vlfs::tests::model::{test}"))
}

fn check_against_model(replay: &Replay, seed: u64, bytes: u64, ops: u32, space: &Space, options: Options) {
    let again = replay.command(seed, None, None, None);
    simulate(seed, async |rt| {
        let (_, device) = fresh(&rt, bytes).await;
        let mut model = Runner::new(&rt, MemFs::new(&rt));
        let mut vlfs = mount(rt.clone(), device.clone(), options).await.expect("mount");
        let mut subject = Runner::new(&rt, vlfs.clone());
        let mut generator = Generator::new(seed, space.clone(), Weights::CURIOUS);
        for number in 0..ops {
            let op = generator.next().expect("generators do not end");
            let (expected, found) = (model.apply(&op).await, subject.apply(&op).await);
            assert!(expected.agrees(&found), "operation {number} {op}: model {expected}, vlfs {found}\n{again}");
            if number % 400 == 399 {
                model.close().await.expect("close");
                subject.close().await.expect("close");
                vlfs.close().await.expect("close");
                assert_clean(&rt, &device).await;
                vlfs = mount(rt.clone(), device.clone(), options).await.expect("mount again");
                subject = Runner::new(&rt, vlfs.clone());
                let (one, two) = (Tree::of(model.client().fs().clone()).await, Tree::of(vlfs.clone()).await);
                let differences = one.expect("model").differences(&two.expect("vlfs"));
                assert_eq!(differences, Vec::<String>::new(), "after operation {number}\n{again}");
            }
        }
    });
}

#[test]
fn small_files_and_few_names() {
    let replay = here("small_files_and_few_names");
    for seed in replay.seeds(0..6) {
        check_against_model(&replay, seed, 32 * MIB, 1600, &Space::small(), Options::default());
    }
}

#[test]
fn large_files_and_many_names() {
    let replay = here("large_files_and_many_names");
    for seed in replay.seeds(0..2) {
        check_against_model(&replay, seed, 512 * MIB, 1200, &Space::large(), Options::default());
    }
}

/// A cache too small for anything makes every step load and start again.
#[test]
fn a_tiny_cache() {
    let replay = here("a_tiny_cache");
    for seed in replay.seeds(100..102) {
        let options = Options { cache_bytes: 1, ..Options::default() };
        check_against_model(&replay, seed, 64 * MIB, 800, &Space::small(), options);
    }
}
