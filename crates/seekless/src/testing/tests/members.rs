//! Aim: what file systems keep on devices that can be put together in another way (witnesses of FFS, landmarks of the virtual log, LFS's note of
//! the arrangement) costs nothing that was promised, and never refuses its own volume: in long lives, on members that are parts of one
//! crash device. Method: long lives on `raid0`, `concat` and `remap`.

use async_trait::async_trait;

use crate::device::Device;
use crate::device::crash::CrashOptions;

use crate::fs::{Fs, FsError, FsResult, ffs, lfs, vlfs};
use crate::rt::Rt;
use crate::testing::parts::parts;
use crate::testing::volumes::life::{Lives, Manner};
use crate::testing::{FsUnderTest, Op, Promise};
use crate::units::{KIB, MIB, Nanos};
use crate::volume::{concat, raid0, remap};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Upper {
    Ffs,
    Lfs,
    Vlfs,
}

/// A file system on parts of a device.
struct OnMembers {
    upper: Upper,
    /// Which way they are put together.
    way: u64,
    /// How often everything is written back.
    write_back: Nanos,
}

impl OnMembers {
    fn device(&self, whole: &Device) -> Device {
        match self.way % 4 {
            0 => raid0(parts(whole, 2), 128).expect("two members"),
            1 => raid0(parts(whole, 3), 32).expect("three members"),
            2 => concat(parts(whole, 3)).expect("three members"),
            _ => remap(whole.clone(), 128, 7).expect("one member"),
        }
    }
}

#[async_trait(?Send)]
impl FsUnderTest for OnMembers {
    fn name(&self) -> String {
        format!("{:?} on members, {}", self.upper, self.way % 4)
    }

    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()> {
        let device = self.device(&device);
        match self.upper {
            Upper::Ffs => {
                let options = ffs::MkfsOptions::new([1, 2]);
                let options =
                    ffs::MkfsOptions { cylinders_per_group: 2, bytes_per_inode: Some(32 * KIB as u32), ..options };
                ffs::mkfs(rt, &device, &options).await
            }
            Upper::Lfs => lfs::mkfs(rt, &device, &lfs::MkfsOptions::new([1, 2, 3, 4])).await,
            Upper::Vlfs => vlfs::mkfs(rt, &device, &vlfs::MkfsOptions::new([1, 2, 3, 4])).await,
        }
    }

    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        let device = self.device(&device);
        let (rt, write_back_interval) = (rt.clone(), self.write_back);
        match self.upper {
            Upper::Ffs => {
                if !ffs::info(&device).await?.clean {
                    let options = ffs::FsckOptions {
                        repair: true,
                        reconnect: false,
                        only_after_crash: true,
                        ..ffs::FsckOptions::default()
                    };
                    let found = ffs::fsck(&rt, &device, options).await?;
                    if let Some(problem) = found.problems.iter().find(|problem| problem.cause == ffs::Cause::Damage) {
                        return Err(FsError::corrupt("volume", "after a power cut", &problem.text));
                    }
                }
                let options = ffs::Options { update_interval: write_back_interval, ..ffs::Options::default() };
                Ok(ffs::mount(rt, device, options).await?)
            }
            Upper::Lfs => {
                let options = lfs::Options { write_back_interval, ..lfs::Options::default() };
                Ok(lfs::mount(rt, device, options).await?)
            }
            Upper::Vlfs => {
                let options = vlfs::Options { write_back_interval, ..vlfs::Options::default() };
                Ok(vlfs::mount(rt, device, options).await?)
            }
        }
    }

    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        let device = self.device(&device);
        let data = true;
        Ok(match self.upper {
            Upper::Ffs => {
                let found = ffs::fsck(rt, &device, ffs::FsckOptions::default()).await?;
                found.problems.into_iter().map(|problem| problem.text).collect()
            }
            Upper::Lfs => {
                lfs::fsck(rt.clone(), device, lfs::FsckOptions { data, ..lfs::FsckOptions::default() }).await?.errors
            }
            Upper::Vlfs => {
                let options = vlfs::FsckOptions { data, ..vlfs::FsckOptions::default() };
                vlfs::fsck(rt.clone(), device, options).await?.errors
            }
        })
    }

    fn can(&self, op: &Op) -> bool {
        self.upper != Upper::Ffs || op.is_possible_on_ufs1()
    }
}

fn live(test: &str, upper: Upper, devices: &[CrashOptions], promise: Promise) {
    let lives = Lives {
        test,
        manners: &[Manner::Sparse, Manner::Crowded],
        devices,
        promise,
        edges: &[],
        setbacks: true,
        errors: false,
        kills: true,
        fsck_unrecovered: false,
        rounds: 8,
        seeds: 4,
        points: &[],
    };
    lives.live(|seed| OnMembers { upper, way: seed, write_back: Nanos::from_millis([10, 40][seed as usize / 2 % 2]) });
}

#[test]
fn long_lives_of_ffs_on_members() {
    const BYTES: u64 = 6 * MIB;
    let devices = [CrashOptions::volatile(BYTES), CrashOptions::write_through(BYTES), CrashOptions::in_order(BYTES)];
    live("testing::tests::members::long_lives_of_ffs_on_members", Upper::Ffs, &devices, Promise::IN_PLACE);
}

#[test]
fn long_lives_of_lfs_on_members() {
    let devices = CrashOptions::each_cached(12 * MIB);
    live("testing::tests::members::long_lives_of_lfs_on_members", Upper::Lfs, &devices, Promise::NAMESPACE_PREFIX);
}

#[test]
fn long_lives_of_vlfs_on_members() {
    let devices = CrashOptions::each_cached(12 * MIB);
    live("testing::tests::members::long_lives_of_vlfs_on_members", Upper::Vlfs, &devices, Promise::NAMESPACE_PREFIX);
}
