//! Aim: a file system on a virtual log disk keeps its promises through power cuts, with the map in a tree and in a log,
//! and with transactions for each request and for each flush. Method: LFS on it on a crash device, under the crash
//! explorer.

use async_trait::async_trait;

use super::{replay, some_scripts};
use crate::device::crash::CrashOptions;
use crate::device::cut::Effort;
use crate::device::{Device, DeviceError};
use crate::fs::{Fs, FsResult, lfs};
use crate::rt::Rt;
use crate::testing::volumes::clients::Clients;
use crate::testing::volumes::life::{Lives, Manner};
use crate::testing::{
    CrashReport, DamageTest, FsUnderTest, Generator, Op, OpMix, PowerCuts, Promise, SecondCut, Space,
};
use crate::units::{KIB, MIB, Sector};
use crate::vlog::{CommitUse, MapLog, Options, Plan, Vld, VldError, check};

struct OnVld {
    map_log: MapLog,
    commit: CommitUse,
}

pub(super) fn failed(error: VldError) -> DeviceError {
    match error {
        VldError::Device(error) => error,
        other => DeviceError::Io { operation: "open", at: Sector::ZERO, bytes: 0, cause: other.to_string() },
    }
}

impl OnVld {
    async fn open(&self, rt: &Rt, device: Device, read_only: bool) -> FsResult<Device> {
        let options = Options { commit: self.commit, window: 512 * KIB, read_only, ..Options::default() };
        Ok(Vld::open(rt, device, options).await.map_err(failed)?)
    }
}

#[async_trait(?Send)]
impl FsUnderTest for OnVld {
    fn name(&self) -> String {
        format!("lfs on vld, {:?}, {:?}", self.map_log, self.commit)
    }

    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()> {
        let plan =
            Plan { block_bytes: 4096, reserve: 700, map_log: self.map_log, snapshots: 0, uuid: [1; 16], key: [2; 16] };
        let options = Options { commit: self.commit, window: 512 * KIB, ..Options::default() };
        let vld: Device = Vld::create(rt, device, &plan, options).await.map_err(failed)?;
        lfs::mkfs(rt, &vld, &lfs::MkfsOptions::new([1, 2, 3, 4])).await?;
        Ok(vld.flush().await?)
    }

    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        let vld = self.open(rt, device, false).await?;
        Ok(lfs::mount(rt.clone(), vld, lfs::Options::default()).await?)
    }

    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        let checkup = check(&device).await.map_err(failed)?;
        let vld = self.open(rt, device, true).await?;
        let mut errors =
            lfs::fsck(rt.clone(), vld, lfs::FsckOptions { data: true, ..lfs::FsckOptions::default() }).await?.errors;
        errors.extend(checkup.errors.into_iter().chain(checkup.notes));
        Ok(errors)
    }
}

fn subjects() -> Vec<OnVld> {
    vec![
        OnVld { map_log: MapLog::Tree, commit: CommitUse::Flush },
        OnVld { map_log: MapLog::Tree, commit: CommitUse::Each },
        OnVld { map_log: MapLog::Append, commit: CommitUse::Flush },
    ]
}

/// Large enough for the smallest LFS volume.
const BYTES: u64 = 11 * MIB;

/// A sample of the scripts' cuts.
#[test]
fn scripts_on_vld() {
    let replay = replay("testing::tests::vld::scripts_on_vld");
    let mut total = CrashReport::default();
    for (number, subject) in subjects().into_iter().enumerate() {
        total.add(some_scripts(&subject, BYTES, number, 4, 20, &replay));
    }
    println!("{total}");
    assert!(total.states > 150 || !replay.runs_everything(), "{total}");
}

/// Long random runs.
#[test]
fn random_runs_on_vld() {
    let mut total = CrashReport::default();
    for (seed, subject) in subjects().into_iter().enumerate() {
        let ops: Vec<Op> = Generator::new(seed as u64, Space::small(), OpMix::CRASHY).take(100).collect();
        let device = match seed % 2 {
            0 => CrashOptions::host_file(BYTES),
            _ => CrashOptions::volatile(BYTES),
        };
        let replay = replay("testing::tests::vld::random_runs_on_vld");
        let cuts = PowerCuts::sampled(&subject, device, Promise::NAMESPACE_PREFIX, replay);
        let cuts = PowerCuts { seed: seed as u64, positions_max: 30, ..cuts };
        total.add(cuts.run(&[], &ops).unwrap_or_else(|report| panic!("{report}")));
    }
    println!("{total}");
}

/// Several programs at once, whose writes and fsyncs overlap.
#[test]
fn several_clients_on_vld() {
    let clients = Clients {
        test: "testing::tests::vld::several_clients_on_vld",
        promise: Promise::NAMESPACE_PREFIX,
        devices: &CrashOptions::each(BYTES),
        seeds: 6,
        positions: 14,
        states_min: 300,
        second_cut: Some(SecondCut { every: 40, ops: 8, positions: 6, effort: Effort::SAMPLED }),
    };
    clients.explore(|seed| subjects().swap_remove(seed as usize % 3));
}

/// One volume through many cuts, small and crowded.
#[test]
fn long_lives_on_vld() {
    let lives = Lives {
        test: "testing::tests::vld::long_lives_on_vld",
        manners: &[Manner::Sparse, Manner::Crowded],
        devices: &CrashOptions::each_cached(BYTES),
        promise: Promise::NAMESPACE_PREFIX,
        edges: &[],
        setbacks: true,
        errors: false,
        kills: true,
        fsck_unrecovered: false,
        rounds: 10,
        seeds: 3,
        points: &[],
    };
    lives.live(|seed| subjects().swap_remove(seed as usize % 3));
}

/// Flipped bits and lost sectors below a virtual log disk: it opens or reports the damage, and returns no wrong bytes
/// that the file system above would not detect.
#[test]
fn damaged_disks() {
    for subject in subjects() {
        let damage = DamageTest {
            subject: &subject,
            device: CrashOptions::volatile(BYTES),
            // A superblock, and an anchor.
            flip_all: vec![0..16, 4096..4096 + 16],
            flips: 35,
            losses: 35,
            splices: 10,
            data_checked: true,
            memory: None,
            seed: 1,
            replay: replay("testing::tests::vld::damaged_disks"),
        };
        let ops: Vec<Op> = Generator::new(3, Space::small(), OpMix::BALANCED).take(100).collect();
        match damage.run(&ops) {
            Ok(report) => println!("{}: {report}", subject.name()),
            Err(report) => panic!("{report}"),
        }
    }
}
