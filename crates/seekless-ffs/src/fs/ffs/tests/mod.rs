//! Aim: FFS implements its interface, places data according to its policy, and finds it again. Method: small programs
//! over a device in memory, each followed by a full check; then the harnesses.

mod aged;
mod any_order;
mod books;
mod came_back;
mod clients;
mod crash;
mod cuts;
mod damage;
mod format;
mod full;
mod full_host;
mod given_away;
mod growth;
mod indexes;
mod interop;
mod long_directories;
mod lost;
mod model;
mod moving_tails;
mod no_room;
mod one_place;
mod order;
mod policy;
mod ranges;
mod readable_room;
mod refused;
mod search;
mod soft;
mod together;
mod unread;
mod unreadable;
mod unwritable;
mod waits;
mod witnesses;

use std::rc::Rc;

use async_trait::async_trait;

use super::*;
use crate::device::{Buf, Device, Image, Memory};
use crate::fs::client::Client;
use crate::fs::*;
pub(super) use crate::testing::volumes::simulate;
use crate::testing::volumes::{basics, unnamed};
use crate::testing::{FsUnderTest, Op};
use crate::units::{MIB, Nanos};

/// A volume with several groups even when it is small.
pub(super) fn small_groups() -> MkfsOptions {
    MkfsOptions { cylinders_per_group: 2, ..MkfsOptions::new([1, 2]) }
}

/// FFS as the harnesses see it.
pub(super) struct Volume {
    pub mkfs: MkfsOptions,
    pub options: Options,
}

impl Default for Volume {
    fn default() -> Volume {
        Volume { mkfs: small_groups(), options: Options::default() }
    }
}

#[async_trait(?Send)]
impl FsUnderTest for Volume {
    fn name(&self) -> String {
        "ffs".to_string()
    }

    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()> {
        mkfs(rt, &device, &self.mkfs).await
    }

    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        Ok(mount(rt.clone(), device, self.options).await?)
    }

    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        let found = fsck(rt, &device, FsckOptions::default()).await?;
        Ok(found.problems.into_iter().map(|problem| problem.text).collect())
    }

    fn can(&self, op: &Op) -> bool {
        op.is_possible_on_ufs1()
    }

    fn knows_damage(&self) -> bool {
        false
    }
}

pub(super) async fn fresh(rt: &Rt, bytes: u64, options: &MkfsOptions) -> (Rc<Memory>, Device) {
    let memory = Rc::new(Memory::new(bytes));
    let device: Device = memory.clone();
    mkfs(rt, &device, options).await.expect("mkfs");
    (memory, device)
}

pub(super) async fn assert_clean(rt: &Rt, device: &Device) {
    let found = fsck(rt, device, FsckOptions::default()).await.expect("fsck runs");
    assert_eq!(found.problems, Vec::new());
    assert_eq!(found.notes, Vec::<String>::new());
}

/// Mounts, runs `program`, closes, checks.
pub(super) async fn session(rt: &Rt, device: &Device, options: Options, program: impl AsyncFnOnce(Client)) {
    let ffs = mount(rt.clone(), device.clone(), options).await.expect("mount");
    program(Client::new(ffs.clone())).await;
    end_session(rt, device, ffs).await;
}

/// Apart from [`session`], so that it is compiled once and not for each program.
async fn end_session(rt: &Rt, device: &Device, ffs: Rc<Ffs>) {
    assert_eq!(ffs.check().await.expect("recounted"), Vec::<String>::new());
    ffs.close().await.expect("close");
    drop(ffs);
    assert_clean(rt, device).await;
}

#[test]
fn an_empty_volume_is_clean() {
    simulate(1, async |rt| {
        let shapes = [
            MkfsOptions::new([1, 2]),
            small_groups(),
            MkfsOptions { lite2: true, ..small_groups() },
            MkfsOptions { block_bytes: 4096, frag_bytes: 512, ..small_groups() },
            MkfsOptions { block_bytes: 16_384, frag_bytes: 16_384, ..small_groups() },
            MkfsOptions { block_bytes: 65_536, frag_bytes: 8_192, ..small_groups() },
            MkfsOptions::new([1, 2]).profile(Profile::Newfs, DriveShape::DSP3105),
            MkfsOptions::new([1, 2]).profile(Profile::M1R2, DriveShape::DSP3105),
        ];
        for shape in shapes {
            let (_, device) = fresh(&rt, 20 * MIB, &shape).await;
            assert_clean(&rt, &device).await;
            session(&rt, &device, Options::default(), async |client| {
                assert_eq!(client.read_dir(b"/").await, Ok(vec![]), "{shape:?}");
            })
            .await;
        }
    });
}

/// Files of all sizes around those at which something changes are read back, also after a remount, and all space is
/// free again when they are gone.
#[test]
fn files_of_all_sizes() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 64 * MIB, &small_groups()).await;
        let sizes: Vec<usize> =
            [1, 1023, 1024, 1025, 8191, 8192, 8193, 16_384, 98_303, 98_304, 98_305, 200_000, 18_000_000]
                .into_iter()
                .collect();
        let content = |size: usize| -> Vec<u8> { (0..size).map(|at| (at * 7 + size) as u8).collect() };
        let mut before = None;
        session(&rt, &device, Options::default(), async |client| {
            before = Some(client.fs().statfs().await.unwrap());
            client.mkdir(b"/d").await.unwrap();
            for &size in &sizes {
                client.write_file(format!("/d/f{size}").as_bytes(), &content(size)).await.unwrap();
            }
            for &size in &sizes {
                assert!(client.read_file(format!("/d/f{size}").as_bytes()).await.unwrap() == content(size), "{size}");
            }
        })
        .await;
        session(&rt, &device, Options::default(), async |client| {
            for &size in &sizes {
                assert!(client.read_file(format!("/d/f{size}").as_bytes()).await.unwrap() == content(size), "{size}");
            }
            for &size in &sizes {
                client.unlink(format!("/d/f{size}").as_bytes()).await.unwrap();
            }
            client.rmdir(b"/d").await.unwrap();
            client.sync().await.unwrap();
            assert_eq!(Some(client.fs().statfs().await.unwrap()), before);
        })
        .await;
    });
}

/// A crash right after an fsync keeps the file, and mounting repairs the rest.
#[test]
fn synced_files_survive_without_closing() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, 32 * MIB, &small_groups()).await;
        let ffs = mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
        let client = Client::new(ffs.clone());
        let big = vec![7; 2_000_000];
        client.mkdir(b"/d").await.unwrap();
        client.write_file(b"/d/big", &big).await.unwrap();
        client.fsync_path(b"/d/big").await.unwrap();
        client.write_file(b"/d/unsynced", b"perhaps").await.unwrap();
        let crashed: Image = memory.image();
        let device: Device = Rc::new(Memory::from_image(32 * MIB, crashed));
        assert!(!info(&device).await.unwrap().clean);
        session(&rt, &device, Options::default(), async |client| {
            assert!(client.read_file(b"/d/big").await.unwrap() == big);
            client.stat(b"/d/unsynced").await.unwrap();
        })
        .await;
    });
}

/// A file that was open when its last name went is gone after a crash, and its space is free.
#[test]
fn unlinked_files_in_use() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, 32 * MIB, &small_groups()).await;
        let ffs = mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
        let client = Client::new(ffs.clone());
        let before = client.fs().statfs().await.unwrap().blocks_free;
        client.write_file(b"/f", &vec![1; 500_000]).await.unwrap();
        let open = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
        client.unlink(b"/f").await.unwrap();
        client.sync().await.unwrap();
        assert!(client.read(open, 0, 10).await.unwrap() == vec![1; 10]);
        let crashed: Device = Rc::new(Memory::from_image(32 * MIB, memory.image()));
        session(&rt, &crashed, Options::default(), async |client| {
            assert_eq!(client.fs().statfs().await.unwrap().blocks_free, before);
        })
        .await;
        // Without a crash it lives as long as it is used.
        client.close(open).await.unwrap();
        assert_eq!(client.fs().statfs().await.unwrap().blocks_free, before);
        ffs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}

#[test]
fn same_seed_same_bytes_and_time() {
    basics::same_seed_same_bytes_and_time(&Volume::default());
}

/// Every way of handling metadata.
fn every_way() -> impl Iterator<Item = Volume> {
    [Metadata::Sync, Metadata::Async, Metadata::Softdep].into_iter().map(|metadata| {
        let options = Options { metadata, ..Options::default() };
        Volume { options, ..Volume::default() }
    })
}

#[test]
fn renames_leave_whiteouts() {
    every_way().for_each(|volume| unnamed::renames_leave_whiteouts(&volume));
}

#[test]
fn files_without_names() {
    every_way().for_each(|volume| unnamed::files_without_names(&volume));
}
