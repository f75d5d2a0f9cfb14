//! Aim: after a power cut each file is that of a commit, and everything that was synced is there. Method: the crash
//! explorer over LFS; the content of a file is there as a whole or not at all, however large the write.

use super::*;
use crate::device::crash::CrashOptions;
use crate::device::cut::Effort;
use crate::layer::codecs::{Key, Sealed};
use crate::testing::environment::or_panic;
use crate::testing::scripts::SCRIPTS;
use crate::testing::volumes::clients::Clients;
use crate::testing::volumes::life::{Lives, Manner};
use crate::testing::{CrashReport, Generator, Op, OpMix, PowerCuts, Promise, Space};
use crate::units::MIB;

const BYTES: u64 = 12 * MIB;

/// Names and attributes are those of the file system below, at their moment.
const PROMISE: Promise = Promise::WHOLE_FILES;

#[test]
fn scripts() {
    let replay = replay("crash::scripts");
    let mut total = CrashReport::default();
    for script in SCRIPTS {
        let subject = OverLfs::new(tiny(Arc::new(Zstd::default())));
        let cuts = PowerCuts::new(&subject, CrashOptions::volatile(BYTES), PROMISE, replay.clone());
        let cuts = PowerCuts { effort: Effort::SAMPLED, ..cuts };
        total.add(or_panic(cuts.run(&script.setup_ops(), &script.body_ops())));
    }
    println!("{total}");
    assert!(total.states > 500 || !replay.runs_everything(), "{total}");
}

#[test]
fn random_runs() {
    let mut total = CrashReport::default();
    for seed in replay("crash::random_runs").seeds(0..3) {
        let mut subject = OverLfs::new(if seed % 2 == 0 { tiny(Arc::new(Zstd::default())) } else { uuencode() });
        subject.lfs.write_back_interval = Nanos::from_millis(2);
        subject.lfs.checkpoint_interval = Nanos::from_millis(5);
        let ops: Vec<Op> = Generator::new(seed, Space::small(), OpMix::CRASHY).take(150).collect();
        let device = CrashOptions::volatile(BYTES);
        let cuts = PowerCuts::sampled(&subject, device, PROMISE, replay("crash::random_runs"));
        total.add(or_panic(PowerCuts { seed, positions_max: 60, ..cuts }.run(&[], &ops)));
    }
    println!("{total}");
}

/// One volume through many power cuts.
#[test]
fn a_long_life() {
    let lives = Lives {
        test: "layer::log::tests::crash::a_long_life",
        manners: &[Manner::Sparse, Manner::Crowded],
        devices: &CrashOptions::each_cached(BYTES),
        promise: PROMISE,
        edges: EDGES,
        setbacks: false,
        errors: false,
        kills: true,
        fsck_unrecovered: false,
        rounds: 16,
        seeds: 4,
        points: POINTS,
    };
    lives.live(|seed| {
        let mut options = tiny(Arc::new(Zstd::default()));
        options.write_back_interval = Nanos::from_millis([1, 20, 5_000][seed as usize % 3]);
        let mut subject = OverLfs::new(options);
        subject.lfs.write_back_interval = Nanos::from_millis(2);
        subject.lfs.checkpoint_interval = Nanos::from_millis(5);
        subject
    });
}

/// Offsets far apart, so that indexes get levels.
const EDGES: &[u64] = &[100_000, 10_000_000, 1_000_000_000];

/// Cover points that a long life reaches.
const POINTS: &[&str] =
    &["layer: a record goes into free space", "layer: a tail becomes a chunk", "layer: an index gets another level"];

/// Several programs at once, compressed and encrypted in turn, with and without concurrent write-back.
#[test]
fn several_clients() {
    let clients = Clients {
        test: "layer::log::tests::crash::several_clients",
        promise: PROMISE,
        devices: &[CrashOptions::volatile(BYTES), CrashOptions::host_file(BYTES)],
        seeds: 12,
        positions: 48,
        states_min: 2_000,
        second_cut: None,
    };
    clients.explore(|seed| {
        let sealed = || Options { plain: Plain::Error, ..tiny(Arc::new(Sealed::new(&Key::new([7; 32]), None))) };
        let mut options = if seed % 2 == 0 { tiny(Arc::new(Zstd::default())) } else { sealed() };
        options.write_back_interval = Nanos::from_millis([1, 20][seed as usize / 2 % 2]);
        let mut subject = OverLfs::new(options);
        if seed % 3 == 0 {
            subject.lfs.write_back_interval = Nanos::from_millis(2);
            subject.lfs.checkpoint_interval = Nanos::from_millis(5);
        }
        subject
    });
}
