//! Aim and method: as in `testing::volumes::full_host`; and storage that is freed is kept for a while.

use super::*;
use crate::fs::lfs::CLEANERS;
use crate::rng::Rng;
use crate::testing::Promise;
use crate::testing::environment;
use crate::testing::volumes::full_host::cuts::FullLives;
use crate::testing::volumes::full_host::{self, Host};

fn path(file: u64) -> Vec<u8> {
    format!("/f{file}").into_bytes()
}

/// Aim: what is removed keeps its storage for a while, and what is written in the meantime needs none of the host. Then the host gets it
/// back; at the latest when the volume is closed. Method: blocks of the host are counted.
#[test]
fn storage_is_kept_for_a_while() {
    simulate(1, async |rt| {
        let after = Nanos::from_secs(30);
        let options = Options { discard_after: after, ..Options::default() };
        let host = Host::new(128 * MIB);
        let blocks = || host.blocks();
        mkfs(&rt, &(host.clone() as Device), &MkfsOptions::new([1, 2, 3, 4])).await.unwrap();
        let lfs = mount(rt.clone(), host.clone(), options).await.unwrap();
        let client = Client::new(lfs.clone());
        let few = blocks();
        let round = async |byte: u8| {
            for file in 0..40 {
                client.write_file(&path(file), &vec![byte; MIB as usize]).await.unwrap();
            }
            client.sync().await.unwrap();
            let full = blocks();
            for file in 0..40 {
                client.unlink(&path(file)).await.unwrap();
            }
            // Two checkpoints: all of it is let go of.
            for _ in 0..3 {
                client.write_file(b"/small", &[byte; 100]).await.unwrap();
                rt.sleep(Nanos::from_secs(2)).await;
                client.sync().await.unwrap();
                client.fs().syncfs().await.unwrap();
            }
            full
        };
        let full = round(1).await;
        assert!(full > few + 35 * 256, "{full} blocks, {few} when it was empty");
        assert!(blocks() > few + 30 * 256, "{} blocks of {full} are left at once", blocks());
        // Two checkpoints, and the time.
        rt.sleep(Nanos::from_secs(100)).await;
        assert!(blocks() < few + 8 * 256, "{} blocks are left, {few} when it was empty", blocks());

        round(2).await;
        client.write_file(b"/large", &vec![3; 40 * MIB as usize]).await.unwrap();
        client.sync().await.unwrap();
        client.unlink(b"/large").await.unwrap();
        lfs.close().await.unwrap();
        assert!(blocks() < few + 8 * 256, "{} blocks are left by a close, {few} when it was empty", blocks());
        drop((client, lfs));
        assert_clean(&rt, &(host.clone() as Device)).await;
    });
}

#[test]
fn deleting_needs_no_room() {
    // What is freed last is given back by the next mount: its segments wait for two checkpoints.
    let discards = false;
    simulate(1, async |rt| full_host::deleting_needs_no_room(&rt, &Small::default(), 128 * MIB, 1.0, discards).await);
}

#[test]
fn killed_on_a_full_host() {
    let replay = environment::replay("fs::lfs::tests::full_host::killed_on_a_full_host");
    for seed in replay.seeds(1..9) {
        let again = replay.command(seed, None, None, None);
        simulate(seed, async |rt| {
            let mut rng = Rng::new(seed);
            let options = Options {
                cleaner: CLEANERS[(seed % CLEANERS.len() as u64) as usize],
                dirty_bytes_max: KIB << rng.between(7, 13),
                discard: rng.chance(3, 4),
                discard_after: Nanos::from_millis(rng.below(2) * rng.below(9000)),
                checkpoint_interval: Nanos::from_millis(rng.between(20, 20_000)),
                ..Options::default()
            };
            let subject = Small { options };
            let what = format!("{options:?}; again: {again}");
            full_host::lives(&rt, &subject, MIB << (4 + seed % 3), &mut rng, &what).await;
        });
    }
}

/// Aim and method: as in `full_host::cuts`.
#[test]
fn cuts_on_a_full_host() {
    let lives = FullLives {
        test: "fs::lfs::tests::full_host::cuts_on_a_full_host",
        promise: Promise::NAMESPACE_PREFIX,
        bytes: 12 * MIB,
        capacity: 1000,
        rounds: 16,
        seeds: 4,
    };
    lives.live(|seed| {
        let options = Options {
            cleaner: CLEANERS[(seed % CLEANERS.len() as u64) as usize],
            discard_after: Nanos::from_millis(seed % 3 * 2000),
            ..Options::default()
        };
        Small { options }
    });
}
