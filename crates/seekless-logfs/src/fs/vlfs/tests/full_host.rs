//! Aim and method: as in `testing::volumes::full_host`.

use super::*;
use crate::rng::Rng;
use crate::testing::Promise;
use crate::testing::environment;
use crate::testing::volumes::full_host;
use crate::testing::volumes::full_host::cuts::FullLives;
use crate::units::KIB;

#[test]
fn deleting_needs_no_room() {
    for discard in [true, false] {
        let subject = Small { options: Options { discard, ..Options::default() } };
        let bytes = 128 * MIB;
        simulate(1, async |rt| full_host::deleting_needs_no_room(&rt, &subject, bytes, 1.0, discard).await);
    }
}

#[test]
fn killed_on_a_full_host() {
    let replay = environment::replay("fs::vlfs::tests::full_host::killed_on_a_full_host");
    for seed in replay.seeds(1..9) {
        let again = replay.command(seed, None, None, None);
        simulate(seed, async |rt| {
            let mut rng = Rng::new(seed);
            let options = Options {
                dirty_bytes_max: KIB << rng.between(7, 13),
                discard: rng.chance(3, 4),
                write_back_interval: Nanos::from_millis(rng.between(20, 9000)),
                compact: if rng.chance(1, 4) { CompactUse::Always } else { CompactUse::WithHead },
                ..Options::default()
            };
            let subject = Small { options };
            let what = format!("{options:?}; again: {again}");
            full_host::lives(&rt, &subject, MIB << (4 + seed % 3), &mut rng, &what).await;
        });
    }
}

#[test]
fn cuts_on_a_full_host() {
    let lives = FullLives {
        test: "fs::vlfs::tests::full_host::cuts_on_a_full_host",
        promise: Promise::NAMESPACE_PREFIX,
        bytes: 10 * MIB,
        capacity: 800,
        rounds: 16,
        seeds: 4,
    };
    lives.live(|_| Small::default());
}
