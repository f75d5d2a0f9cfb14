//! Aim: file systems keep access-control lists, and permission bits that agree with them, through everything, including
//! power cuts. Method: generated operations, many of them on lists, against the model and with power cuts; the model
//! itself is compared with directories of the host elsewhere.

use std::sync::Arc;

use async_trait::async_trait;

use super::replay;
use crate::device::Device;
use crate::device::crash::CrashOptions;
use crate::fs::{Fs, FsResult, lfs, vlfs};
use crate::layer::codecs::Zstd;
use crate::layer::log;
use crate::rt::Rt;
use crate::testing::generate::{Generator, OpMix, Space};
use crate::testing::{Comparison, FsUnderTest, Op, PowerCuts, Promise, Replay, SubjectComparison};
use crate::units::Nanos;

/// File systems that have lists.
#[derive(Clone, Copy, PartialEq, Debug)]
enum FsWithLists {
    Lfs,
    /// With so little memory that attributes are reloaded often.
    ForgetfulLfs,
    Vlfs,
    ZstdOnLfs,
}

const KINDS: [FsWithLists; 4] =
    [FsWithLists::Lfs, FsWithLists::ForgetfulLfs, FsWithLists::Vlfs, FsWithLists::ZstdOnLfs];

const OFTEN: Nanos = Nanos::from_millis(2);

fn zstd() -> log::Options {
    log::Options { chunk_shift: 12, ..log::Options::new(Arc::new(Zstd::default())) }
}

#[async_trait(?Send)]
impl FsUnderTest for FsWithLists {
    fn name(&self) -> String {
        format!("{self:?}")
    }

    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()> {
        match self {
            FsWithLists::Vlfs => vlfs::mkfs(rt, &device, &vlfs::MkfsOptions::new([1, 2, 3, 4])).await,
            _ => lfs::mkfs(rt, &device, &lfs::MkfsOptions::new([1, 2, 3, 4])).await,
        }
    }

    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        if *self == FsWithLists::Vlfs {
            let options = vlfs::Options { write_back_interval: OFTEN, ..vlfs::Options::default() };
            return vlfs::mount(rt.clone(), device, options).await;
        }
        let cache_bytes = if *self == FsWithLists::ForgetfulLfs { 1 } else { lfs::Options::default().cache_bytes };
        let options = lfs::Options { cache_bytes, write_back_interval: OFTEN, ..lfs::Options::default() };
        let fs: Fs = lfs::mount(rt.clone(), device, options).await?;
        if *self == FsWithLists::ZstdOnLfs { log::stack_on(rt, fs, zstd()).await } else { Ok(fs) }
    }

    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        Ok(match self {
            FsWithLists::Vlfs => {
                vlfs::fsck(rt.clone(), device, vlfs::FsckOptions { data: true, ..vlfs::FsckOptions::default() })
                    .await?
                    .errors
            }
            _ => {
                lfs::fsck(rt.clone(), device, lfs::FsckOptions { data: true, ..lfs::FsckOptions::default() })
                    .await?
                    .errors
            }
        })
    }
}

const BYTES: u64 = 16 << 20;

fn here(test: &str) -> Replay {
    replay(&format!("testing::tests::access_lists::{test}"))
}

#[test]
fn lists_are_those_of_the_model() {
    for kind in KINDS {
        let replay = here("lists_are_those_of_the_model");
        for seed in replay.seeds(0..3) {
            let weights = OpMix::CURIOUS.with_access_lists();
            let ops: Vec<Op> = Generator::new(seed, Space::small(), weights).take(700).collect();
            let comparison = Comparison { times: kind != FsWithLists::ZstdOnLfs, ..Comparison::default() };
            let device = CrashOptions::volatile(BYTES);
            let replay = replay.clone();
            let run =
                SubjectComparison { subject: &kind, device, comparison, remount_every: 150, seed, replay }.run(&ops);
            if let Err(report) = run {
                panic!("{report}");
            }
        }
    }
}

/// A new inode has its list from the first moment, and a list and its permission bits change together.
#[test]
fn lists_survive_power_cuts() {
    for kind in KINDS {
        let replay = here("lists_survive_power_cuts");
        for seed in replay.seeds(0..2) {
            let weights = OpMix { data: 5, ..OpMix::CRASHY.with_access_lists() };
            let ops: Vec<Op> = Generator::new(seed, Space::small(), weights).take(150).collect();
            let promise = match kind {
                FsWithLists::ZstdOnLfs => Promise::WHOLE_FILES,
                _ => Promise::NAMESPACE_PREFIX,
            };
            let device = if seed % 2 == 0 { CrashOptions::volatile(BYTES) } else { CrashOptions::host_file(BYTES) };
            let cuts = PowerCuts::sampled(&kind, device, promise, replay.clone());
            match (PowerCuts { seed, positions_max: 60, ..cuts }).run(&[], &ops) {
                Ok(report) => assert!(report.states > 50 || !replay.runs_everything(), "{report}"),
                Err(report) => panic!("{report}"),
            }
        }
    }
}
