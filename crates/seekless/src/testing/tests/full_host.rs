//! Aim and method: as in `testing::volumes::full_host`, with a virtual log disk between file system and host.

use async_trait::async_trait;

use super::replay;
use crate::device::Device;
use crate::fs::ffs::{Cause, Metadata};
use crate::fs::{Fs, FsResult, ffs, lfs};
use crate::rng::Rng;
use crate::rt::Rt;
use crate::testing::tests::vld::failed;
use crate::testing::volumes::full_host::{self, cuts::FullLives};
use crate::testing::volumes::simulate;
use crate::testing::{FsUnderTest, Op, Promise, Strength};
use crate::units::{KIB, MIB, Nanos};
use crate::vlog::{CommitUse, MapLog, Options, Plan, Vld};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Above {
    Lfs,
    Ffs(Metadata),
}

/// A file system on a virtual log disk.
#[derive(Clone, Debug)]
struct OnVld {
    above: Above,
    map_log: MapLog,
    options: Options,
    lfs: lfs::Options,
}

impl OnVld {
    fn new(above: Above) -> OnVld {
        let options = Options { commit: CommitUse::Flush, window: MIB, ..Options::default() };
        OnVld { above, map_log: MapLog::Tree, options, lfs: lfs::Options::default() }
    }
}

#[async_trait(?Send)]
impl FsUnderTest for OnVld {
    fn name(&self) -> String {
        format!("{:?} on vld, {:?}", self.above, self.map_log)
    }

    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()> {
        let plan =
            Plan { block_bytes: 4096, reserve: 700, map_log: self.map_log, snapshots: 0, uuid: [1; 16], key: [2; 16] };
        let vld: Device = Vld::create(rt, device, &plan, self.options).await.map_err(failed)?;
        match self.above {
            Above::Lfs => lfs::mkfs(rt, &vld, &lfs::MkfsOptions::new([1, 2, 3, 4])).await?,
            Above::Ffs(_) => {
                let options = ffs::MkfsOptions { frag_bytes: 4096, ..ffs::MkfsOptions::new([1, 2]) };
                ffs::mkfs(rt, &vld, &options).await?;
            }
        }
        vld.flush().await?;
        Ok(vld.release().await?)
    }

    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        let vld: Device = Vld::open(rt, device, self.options).await.map_err(failed)?;
        match self.above {
            Above::Lfs => Ok(lfs::mount(rt.clone(), vld, self.lfs).await?),
            Above::Ffs(metadata) => {
                if !ffs::info(&vld).await?.clean {
                    // As a system does at boot; what has no name is freed.
                    let (repair, reconnect) = (true, false);
                    let options = ffs::FsckOptions { repair, reconnect, ..ffs::FsckOptions::default() };
                    ffs::fsck(rt, &vld, options).await?;
                }
                let options = ffs::Options { metadata, ..ffs::Options::default() };
                Ok(ffs::mount(rt.clone(), vld, options).await?)
            }
        }
    }

    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        let mut errors = crate::vlog::check(&device).await.map_err(failed)?.errors;
        let vld: Device = Vld::open(rt, device, Options { read_only: true, ..self.options }).await.map_err(failed)?;
        match self.above {
            Above::Lfs => {
                let options = lfs::FsckOptions { data: true, ..lfs::FsckOptions::default() };
                errors.extend(lfs::fsck(rt.clone(), vld, options).await?.errors);
            }
            Above::Ffs(_) => {
                let is_clean = ffs::info(&vld).await?.clean;
                let found = ffs::fsck(rt, &vld, ffs::FsckOptions::default()).await?;
                let problems = found
                    .problems
                    .into_iter()
                    .filter(|problem| is_clean || !matches!(problem.cause, Cause::Leak | Cause::Crash));
                errors.extend(problems.map(|problem| problem.text));
            }
        }
        Ok(errors)
    }

    fn can(&self, op: &Op) -> bool {
        self.above == Above::Lfs || op.is_possible_on_ufs1()
    }
}

#[test]
fn deleting_needs_no_room() {
    for above in [Above::Lfs, Above::Ffs(Metadata::Softdep), Above::Ffs(Metadata::Sync)] {
        simulate(1, async |rt| full_host::deleting_needs_no_room(&rt, &OnVld::new(above), 128 * MIB, false).await);
    }
}

#[test]
fn killed_on_a_full_host() {
    let replay = replay("testing::tests::full_host::killed_on_a_full_host");
    for seed in replay.seeds(1..9) {
        let again = replay.command(seed, None, None, None);
        simulate(seed, async |rt| {
            let mut rng = Rng::new(seed);
            let subject = OnVld {
                map_log: *rng.pick(&[MapLog::Tree, MapLog::Tree, MapLog::Append]),
                options: Options { discard: rng.chance(3, 4), ..OnVld::new(Above::Lfs).options },
                lfs: lfs::Options {
                    dirty_bytes_max: KIB << rng.between(7, 13),
                    discard: rng.chance(3, 4),
                    discard_after: Nanos::from_millis(rng.below(2) * rng.below(9000)),
                    checkpoint_interval: Nanos::from_millis(rng.between(20, 20_000)),
                    ..lfs::Options::default()
                },
                ..OnVld::new(*rng.pick(&[
                    Above::Lfs,
                    Above::Lfs,
                    Above::Ffs(Metadata::Softdep),
                    Above::Ffs(Metadata::Sync),
                ]))
            };
            let what = format!("{subject:?}; again: {again}");
            full_host::lives(&rt, &subject, MIB << (4 + seed % 3), &mut rng, &what).await;
        });
    }
}

#[test]
fn cuts_of_lfs_on_a_full_host() {
    let lives = FullLives {
        test: "testing::tests::full_host::cuts_of_lfs_on_a_full_host",
        promise: Promise::NAMESPACE_PREFIX,
        bytes: 16 * MIB,
        capacity: 1500,
        rounds: 16,
        seeds: 4,
    };
    lives.live(|seed| OnVld {
        map_log: if seed % 4 == 3 { MapLog::Append } else { MapLog::Tree },
        ..OnVld::new(Above::Lfs)
    });
}

fn cuts_of_ffs(test: &str, metadata: Metadata, promise: Promise) {
    let lives = FullLives { test, promise, bytes: 16 * MIB, capacity: 1000, rounds: 16, seeds: 2 };
    lives.live(|_| OnVld::new(Above::Ffs(metadata)));
}

#[test]
fn cuts_of_ffs_on_a_full_host() {
    let test = "testing::tests::full_host::cuts_of_ffs_on_a_full_host";
    cuts_of_ffs(test, Metadata::Sync, Promise::IN_PLACE);
}

#[test]
fn cuts_of_soft_updates_on_a_full_host() {
    let test = "testing::tests::full_host::cuts_of_soft_updates_on_a_full_host";
    let promise = Promise { strength: Strength::InPlace { at_once: false }, ..Promise::IN_PLACE };
    cuts_of_ffs(test, Metadata::Softdep, promise);
}
