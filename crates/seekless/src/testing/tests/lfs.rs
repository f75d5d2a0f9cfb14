//! Aim: LFS stands up to the harnesses. Method: the same cases that the toy goes through.

use async_trait::async_trait;

use super::replay;
use crate::device::Device;
use crate::device::crash::CrashOptions;
use crate::fs::lfs;
use crate::fs::{Fs, FsResult};
use crate::rt::Rt;
use crate::testing::generate::{Generator, Space, Weights};
use crate::testing::scripts::SCRIPTS;
use crate::testing::{Comparison, Op, PowerCuts, Promise, Subject, SubjectComparison};

/// LFS with default options on a small volume.
struct Lfs;

#[async_trait(?Send)]
impl Subject for Lfs {
    fn name(&self) -> String {
        "lfs".to_string()
    }

    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()> {
        lfs::mkfs(rt, &device, &lfs::MkfsOptions::new([1, 2, 3, 4])).await
    }

    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        Ok(lfs::mount(rt.clone(), device, lfs::Options::default()).await?)
    }

    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        Ok(lfs::fsck(rt.clone(), device, lfs::FsckOptions { data: true }).await?.errors)
    }
}

const BYTES: u64 = 16 << 20;

#[test]
fn compare() {
    for seed in 1..4 {
        let ops: Vec<Op> = Generator::new(seed, Space::small(), Weights::CURIOUS).take(2000).collect();
        let replay = replay("testing::tests::lfs::compare");
        let device = CrashOptions::volatile(BYTES);
        let comparison = Comparison::default();
        let run = SubjectComparison { subject: &Lfs, device, comparison, remount_every: 400, seed, replay }.run(&ops);
        match run {
            Ok(report) => println!("{report:?}"),
            Err(report) => panic!("{report}"),
        }
    }
}

#[test]
fn crash() {
    for script in SCRIPTS {
        let replay = replay("testing::tests::lfs::crash");
        let cuts = PowerCuts::new(&Lfs, CrashOptions::volatile(BYTES), Promise::NAMESPACE_PREFIX, replay);
        match cuts.run(&script.setup_ops(), &script.body_ops()) {
            Ok(report) => println!("{}: {report}", script.name),
            Err(report) => println!("{}: {report}", script.name),
        }
    }
}

#[test]
fn random() {
    for seed in 1..6 {
        let ops: Vec<Op> = Generator::new(seed, Space::small(), Weights::CRASHY).take(250).collect();
        let replay = replay("testing::tests::lfs::random");
        let cuts = PowerCuts::sampled(&Lfs, CrashOptions::volatile(BYTES), Promise::NAMESPACE_PREFIX, replay);
        match (PowerCuts { seed, ..cuts }).run(&[], &ops) {
            Ok(report) => println!("{report}"),
            Err(report) => println!("{report}"),
        }
    }
}
