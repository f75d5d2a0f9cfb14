//! Aim: whatever becomes of an image, mounting, reading and checking end in an error or a right answer. Requests that
//! fail are answered truthfully. Method: the damage and fault explorers.

use super::crash::Small;
use super::*;
use crate::device::crash::CrashOptions;
use crate::testing::tests::replay;
use crate::testing::{DamageTest, Faults, Generator, Op, PowerCuts, Promise, Space, Weights};

const BYTES: u64 = 9 * MIB;

/// Every bit of the superblocks and checkpoints, a sample of all other bits, and larger damage.
#[test]
fn damaged_images() {
    let subject = Small::default();
    let ops: Vec<Op> = Generator::new(3, Space::small(), Weights::BALANCED).take(300).collect();
    let superblock = 0..format::Superblock::BYTES as u64;
    let checkpoint = format::CHECKPOINT_SECTORS[0].byte_offset();
    let damage = DamageTest {
        subject: &subject,
        device: CrashOptions::volatile(BYTES),
        flip_all: vec![superblock, checkpoint..checkpoint + 256],
        flips: 1_000,
        splices: 400,
        data_checked: true,
        memory: None,
        seed: 1,
        replay: replay("fs::lfs::tests::damage::damaged_images"),
    };
    match damage.run(&ops) {
        Ok(report) => println!("{report}"),
        Err(report) => panic!("{report}"),
    }
}

/// Each request in turn fails, or finds no space.
#[test]
fn failing_requests() {
    for seed in 0..2 {
        let subject = Small::default();
        let ops: Vec<Op> = Generator::new(seed, Space::small(), Weights::CRASHY).take(80).collect();
        let replay = replay("fs::lfs::tests::damage::failing_requests");
        let cuts = PowerCuts::sampled(&subject, CrashOptions::volatile(BYTES), Promise::NAMESPACE_PREFIX, replay);
        let faults = Faults { cuts: PowerCuts { seed, ..cuts }, each_max: 25, positions_max: 4 };
        match faults.run(&[], &ops) {
            Ok(report) => println!("{report}"),
            Err(report) => panic!("{report}"),
        }
    }
}
