//! Aim and method: as in `testing::volumes::full_host`, with FFS in the file itself.

use super::crash::Checked;
use super::lost::{self, REPAIR};
use super::*;
use crate::device::WriteFlags;
use crate::rng::Rng;
use crate::testing::environment::replay;
use crate::testing::volumes::full_host::{self, Host, cuts::FullLives};
use crate::testing::volumes::life::must_have_covered;
use crate::testing::{Promise, Strength};
use crate::units::KIB;

/// A volume that is checked before it is mounted. After a kill it may have what a crash explains.
struct OnHost(Checked);

#[async_trait(?Send)]
impl FsUnderTest for OnHost {
    fn name(&self) -> String {
        format!("ffs, {:?}, fragments of {} bytes", self.0.0.options.metadata, self.0.0.mkfs.frag_bytes)
    }

    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()> {
        self.0.mkfs(rt, device).await
    }

    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        self.0.mount(rt, device).await
    }

    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        let is_clean = info(&device).await?.clean;
        let found = fsck(rt, &device, FsckOptions::default()).await?.problems.into_iter();
        let problems = found.filter(|problem| is_clean || !matches!(problem.cause, Cause::Leak | Cause::Crash));
        Ok(problems.map(|problem| problem.text).collect())
    }

    fn can(&self, op: &Op) -> bool {
        self.0.can(op)
    }
}

/// A volume whose fragments are not larger than the blocks of the host, or are.
fn subject(metadata: Metadata, large: bool) -> OnHost {
    let Checked(mut volume) = Checked::default();
    volume.options.metadata = metadata;
    if large {
        volume.mkfs.frag_bytes = 4096;
    }
    OnHost(Checked(volume))
}

#[test]
fn deleting_needs_no_room() {
    for metadata in [Metadata::Sync, Metadata::Softdep] {
        for large in [false, true] {
            simulate(1, async |rt| {
                full_host::deleting_needs_no_room(&rt, &subject(metadata, large), 128 * MIB, 1.0, false).await;
            });
        }
    }
}

/// Cover points of full storage below.
const POINTS: &[&str] = &[
    "ffs: the storage below is full",
    "ffs: a freed block has storage",
    "ffs: a free block of an earlier life has storage",
    "ffs: the storage below has room again",
];

/// Aim: on a full host new files find the room of those that were deleted in this life, and in an earlier one; and when the host
/// has room again, blocks go where they always go. Method: files of one size, and a kill.
#[test]
fn new_files_find_the_room_of_deleted_ones() {
    const FILE: usize = 100_000;
    crate::rt::covered();
    for metadata in [Metadata::Sync, Metadata::Softdep] {
        simulate(1, async |rt| {
            let options = Options { metadata, ..Options::default() };
            let mut host = Host::new(64 * MIB);
            mkfs(&rt, &(host.clone() as Device), &small_groups()).await.unwrap();
            host.free(2000);
            let name = |file: u64| format!("/f{file}").into_bytes();
            let mut files = 0..0;
            for life in 0..2 {
                let ffs = mount(rt.clone(), host.clone(), options).await.unwrap();
                let client = Client::new(ffs.clone());
                let write = async |file: u64| -> FsResult<()> {
                    client.write_file(&name(file), &[file as u8; FILE]).await?;
                    client.fsync_path(&name(file)).await
                };
                while life == 0 && write(files.end).await.is_ok() {
                    files.end += 1;
                }
                let _ = client.unlink(&name(files.end)).await;
                host.fill();
                for round in 0..2 {
                    // In a later life, there is what the earlier one has left.
                    for _ in 0..if life == 0 { 10 } else { 0 } {
                        client.unlink(&name(files.start)).await.unwrap();
                        files.start += 1;
                    }
                    client.sync().await.unwrap();
                    if (life, round) == (0, 1) {
                        break;
                    }
                    for _ in 0..if life == 0 { 8 } else { 4 } {
                        write(files.end).await.unwrap_or_else(|error| panic!("{metadata:?}, life {life}: {error}"));
                        files.end += 1;
                    }
                }
                assert!(ffs.state.borrow().backing.is_full, "{metadata:?}, life {life}");
                if life == 0 {
                    drop((client, ffs));
                    host = host.killed();
                    continue;
                }
                host.free(3000);
                for _ in 0..40 {
                    write(files.end).await.unwrap_or_else(|error| panic!("{metadata:?}, with room again: {error}"));
                    files.end += 1;
                }
                assert!(!ffs.state.borrow().backing.is_full, "{metadata:?}: there is room");
                for file in files.clone() {
                    assert!(client.read_file(&name(file)).await.unwrap() == [file as u8; FILE], "{metadata:?}, {file}");
                }
                assert_eq!(ffs.check().await.unwrap(), Vec::<String>::new());
                ffs.close().await.unwrap();
            }
            assert_clean(&rt, &(host.clone() as Device)).await;
        });
    }
    must_have_covered("fs::ffs::tests::full_host::new_files_find_the_room_of_deleted_ones", POINTS);
}

#[test]
fn killed_on_a_full_host() {
    let replay = replay("fs::ffs::tests::full_host::killed_on_a_full_host");
    for seed in replay.seeds(1..13) {
        let again = replay.command(seed, None, None, None);
        simulate(seed, async |rt| {
            let mut rng = Rng::new(seed);
            let metadata = *rng.pick(&[Metadata::Sync, Metadata::Softdep]);
            let OnHost(Checked(mut volume)) = subject(metadata, rng.chance(1, 2));
            volume.options.dirty_bytes_max = KIB << rng.between(6, 13);
            volume.options.update_interval = Nanos::from_millis(rng.between(20, 30_000));
            let what = format!("{:?}; again: {again}", volume.options);
            full_host::lives(&rt, &OnHost(Checked(volume)), MIB << (4 + seed % 3), &mut rng, &what).await;
        });
    }
}

fn cuts(test: &str, metadata: Metadata, promise: Promise) {
    let test = format!("fs::ffs::tests::full_host::{test}");
    let lives = FullLives { test: &test, promise, bytes: 16 * MIB, capacity: 700, rounds: 16, seeds: 4 };
    lives.live(|seed| subject(metadata, seed % 4 < 3));
}

#[test]
fn cuts_on_a_full_host() {
    cuts("cuts_on_a_full_host", Metadata::Sync, Promise::IN_PLACE);
}

#[test]
fn cuts_of_soft_updates_on_a_full_host() {
    let promise = Promise { strength: Strength::InPlace { at_once: false }, ..Promise::IN_PLACE };
    cuts("cuts_of_soft_updates_on_a_full_host", Metadata::Softdep, promise);
}

/// The same on a host that copies on write, where inodes, indirect blocks, directories and groups are refused, too.
#[test]
fn cuts_with_snapshots_on_a_full_host() {
    for (metadata, seeds) in [(Metadata::Sync, 3), (Metadata::Softdep, 3)] {
        let test = "fs::ffs::tests::full_host::cuts_with_snapshots_on_a_full_host";
        let promise = Promise { strength: Strength::InPlace { at_once: false }, ..Promise::IN_PLACE };
        let lives = FullLives { test, promise, bytes: 16 * MIB, capacity: 1000, rounds: 16, seeds };
        lives.live_with_snapshots(|seed| subject(metadata, seed % 4 < 3));
    }
}

/// Aim: a repair on a full host. Method: a directory inode that reached the volume alone, in a block of inodes whose other half
/// never got storage, as a torn write leaves it.
#[test]
fn a_repair_writes_only_what_changes() {
    simulate(1, async |rt| {
        let host = Host::new(64 * MIB);
        let device: Device = host.clone();
        mkfs(&rt, &device, &MkfsOptions { frag_bytes: 4096, ..small_groups() }).await.unwrap();
        let layout = info(&device).await.unwrap().layout;
        let ino = InodeNo(layout.ino_end().0 - 1);
        let (block, offset) = layout.inode_place(ino);
        let sector = layout.sector(block) + offset as u64 / SECTOR_BYTES;
        let mut raw = device.read(sector, Buf::zeroed(SECTOR_BYTES as usize)).await.unwrap();
        let mode = FileKind::Directory.mode_bits() as u16 | 0o755;
        Inode { mode, nlink: 2, ..Inode::FREE }.encode(&mut raw[offset % SECTOR_BYTES as usize..]);
        device.write(sector, raw.freeze(), WriteFlags::NONE).await.unwrap();
        let blocks = layout.sector(block).0 / 8..layout.sector(block).0 / 8 + 2;
        assert_eq!(blocks.filter(|&block| host.has(block)).count(), 1, "the other half has no storage");
        host.fill();
        let found = fsck(&rt, &device, REPAIR).await.unwrap();
        assert!(found.problems.iter().any(|problem| problem.text.contains("has no entries")), "{found:?}");
        assert_clean(&rt, &device).await;
    });
}

/// Aim: a repair on a full host gives files their names back where there is storage. Method: a directory that was lost; the
/// blocks before its own have never been written.
#[test]
fn a_repair_finds_room_for_lost_and_found() {
    const FILES: usize = 1500;
    simulate(1, async |rt| {
        let host = Host::new(64 * MIB);
        let device: Device = host.clone();
        mkfs(&rt, &device, &small_groups()).await.unwrap();
        let layout = info(&device).await.unwrap().layout;
        lost::lose_directory(&rt, &device, FILES, async |_| {}).await;
        let is_hole = |block: u32| {
            let at = FragNo(block * layout.frag);
            layout.is_data(at, layout.frag) && !host.has(layout.sector(at).0 / 8)
        };
        assert!((0..layout.size / layout.frag).any(is_hole));
        host.fill();
        let found = fsck(&rt, &device, REPAIR).await.unwrap();
        // The new names are longer than the old ones, and only what has been written before has storage.
        let first = found.reconnected;
        assert!(first > FILES as u64 / 2, "{first} of {FILES} files found their names");
        host.free(100);
        let found = fsck(&rt, &device, REPAIR).await.unwrap();
        assert_eq!(first + found.reconnected, FILES as u64 + 1, "with the directory below");
        assert_clean(&rt, &device).await;
    });
}
