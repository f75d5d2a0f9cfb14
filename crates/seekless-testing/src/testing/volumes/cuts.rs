//! Aim: the promises of a file system hold through power cuts, damage and failing requests. Method: the explorers, on
//! small volumes and on devices with different guarantees.

use super::clients::Clients;
use super::*;
use crate::device::crash::CrashOptions;
use crate::device::cut::Effort;
use crate::testing::environment::{or_panic, replay};
use crate::testing::generate::{Bounded, bounded};
use crate::testing::scripts::SCRIPTS;
use crate::testing::{CrashReport, Faults, Generator, Op, OpMix, PowerCuts, Promise, Replay, SecondCut, Space};

/// The tests of one file system whose volumes keep all names as of one moment.
pub struct Cuts<'a> {
    /// The module of its tests, for the commands that replay failures.
    pub module: &'a str,
    /// Bytes of a volume.
    pub bytes: u64,
}

impl Cuts<'_> {
    pub fn here(&self, test: &str) -> Replay {
        replay(&format!("{}::{test}", self.module))
    }

    /// Every position of every script.
    pub fn scripts(&self, subject: &dyn FsUnderTest) {
        let mut total = CrashReport::default();
        let soak = self.here("scripts").soak;
        // They have some 15 positions each.
        let positions_max = if soak.is_shorter() { soak.times(15) as usize } else { usize::MAX };
        for device in CrashOptions::each(self.bytes) {
            for script in SCRIPTS {
                let cuts = PowerCuts::new(subject, device.clone(), Promise::NAMESPACE_PREFIX, self.here("scripts"));
                let cuts = PowerCuts { fsck_unrecovered: true, positions_max, ..cuts };
                total.add(or_panic(cuts.run(&script.setup_ops(), &script.body_ops())));
            }
        }
        println!("{total}");
        assert!(total.states > 1_000 || !self.here("scripts").runs_everything(), "{total}");
    }

    /// Short sequences of operations of every kind.
    pub fn short_sequences(&self, subject: &dyn FsUnderTest) {
        let mut total = CrashReport::default();
        let prologue = Bounded::prologue().len();
        let replay = self.here("short_sequences");
        for ops in bounded(2).sample(replay.soak.times(60), replay.seed.unwrap_or(7)) {
            let (setup, body) = ops.split_at(prologue);
            let device = CrashOptions::volatile(self.bytes);
            let cuts = PowerCuts::new(subject, device, Promise::NAMESPACE_PREFIX, self.here("short_sequences"));
            total.add(or_panic(PowerCuts { effort: Effort::SAMPLED, second_cut: None, ..cuts }.run(setup, body)));
        }
        println!("{total}");
    }

    /// Long random sequences; `subject` decides for each seed how the volume is mounted.
    pub fn random_runs<S: FsUnderTest>(&self, subject: impl Fn(u64) -> S) {
        let mut total = CrashReport::default();
        for seed in self.here("random_runs").seeds(0..4) {
            let device = CrashOptions::each(self.bytes)[seed as usize % 4].clone();
            let subject = subject(seed);
            let space = Space { file_bytes_max: if seed % 2 == 0 { 40_000 } else { 400_000 }, ..Space::small() };
            let ops: Vec<Op> = Generator::new(seed, space, OpMix::CRASHY).take(250).collect();
            let cuts = PowerCuts::sampled(&subject, device, Promise::NAMESPACE_PREFIX, self.here("random_runs"));
            let cuts = PowerCuts { seed, positions_max: 120, ..cuts };
            total.add(or_panic(cuts.run(&[], &ops)));
        }
        println!("{total}");
    }

    /// Several programs at once: their operations overlap, and so do their fsyncs. `subject` decides for each seed how
    /// the volume is mounted.
    pub fn several_clients<S: FsUnderTest>(&self, subject: impl Fn(u64) -> S) {
        self.clients_with(12, 44, subject);
    }

    /// The same, with as many seeds, and positions of each, as it takes to get enough states.
    pub fn clients_with<S: FsUnderTest>(&self, seeds: u64, positions: usize, subject: impl Fn(u64) -> S) {
        let clients = Clients {
            test: &format!("{}::several_clients", self.module),
            promise: Promise::NAMESPACE_PREFIX,
            devices: &CrashOptions::each(self.bytes),
            seeds,
            positions,
            states_min: 2_000,
            second_cut: Some(SecondCut { every: 60, ops: 8, positions: 8, effort: Effort::SAMPLED }),
        };
        clients.explore(subject);
    }

    /// Each request in turn fails, or fails with `NoSpace`.
    pub fn failing_requests(&self, subject: &dyn FsUnderTest, seeds: std::ops::Range<u64>) {
        for seed in seeds {
            let ops: Vec<Op> = Generator::new(seed, Space::small(), OpMix::CRASHY).take(80).collect();
            let replay = self.here("failing_requests");
            let device = CrashOptions::volatile(self.bytes);
            let cuts = PowerCuts::sampled(subject, device, Promise::NAMESPACE_PREFIX, replay);
            let each_max = cuts.replay.soak.times(25) as usize;
            let faults = Faults { cuts: PowerCuts { seed, ..cuts }, each_max, positions_max: 4 };
            println!("{}", faults.run(&[], &ops).unwrap_or_else(|report| panic!("{report}")));
        }
    }
}
