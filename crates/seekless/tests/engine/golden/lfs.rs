//! Golden volumes of LFS: `lfs-1`, with a checkpoint in the middle of its second life, transactions after it, an
//! unnamed file in use, and an unfinished end of the log; and `lfs-2`, see `logs`.

use seekless::device::Device;
use seekless::fs::client::Client;
use seekless::fs::lfs::{self, Dump, FsckOptions, MkfsOptions, Options};
use seekless::fs::{AllocateMode, FileRange, Fs, FsResult, OpenFlags, RenameMode};
use seekless::rt::Rt;
use seekless::units::{KIB, Nanos};

use super::logs::{Checked, GoldenLog, check_images, check_made_again};
use super::{deep_directory, kinds, sparse, text};

struct Lfs;

impl GoldenLog for Lfs {
    const NAME: &'static str = "lfs";

    async fn mkfs(rt: &Rt, device: &Device) -> FsResult<()> {
        let options = MkfsOptions { label: "golden".into(), ..MkfsOptions::new([1, 2, 3, 4]) };
        lfs::mkfs(rt, device, &options).await
    }

    async fn mount(rt: &Rt, device: &Device, read_only: bool) -> FsResult<Fs> {
        lfs::mount(rt.clone(), device.clone(), Options { read_only, ..Options::default() }).await
    }

    async fn check(rt: &Rt, device: &Device) -> FsResult<Checked> {
        let info = lfs::info(device).await?;
        let found = lfs::fsck(rt.clone(), device.clone(), FsckOptions { data: true, ..FsckOptions::default() }).await?;
        let text = format!("{info:#?}\n{found:#?}\n");
        Ok(Checked { text, errors: found.errors, notes: found.notes })
    }

    async fn dump(_: &Rt, device: &Device) -> FsResult<String> {
        let mut text = String::new();
        for what in [Dump::Volume, Dump::Log, Dump::Segment(0)] {
            text += &lfs::dump(device, what).await?;
        }
        Ok(text)
    }

    /// The traces of a long life on a volume, in short.
    async fn live(rt: &Rt, device: &Device) -> FsResult<()> {
        Lfs::mkfs(rt, device).await?;

        // First life: much is created, some of it removed, and the volume is closed.
        let lfs = Lfs::mount(rt, device, false).await?;
        let client = Client::new(lfs.clone());
        for directory in 0..8 {
            client.mkdir(format!("/d{directory}").as_bytes()).await?;
            for file in 0..24u32 {
                let number = directory * 24 + file;
                // Sizes around boundaries: nothing, a sector, a block, direct blocks.
                let bytes =
                    [0, 1, 511, 512, 513, 4095, 4096, 4097, 7 * 4096, 7 * 4096 + 1, 20_000, 100][file as usize % 12];
                let path = format!("/d{directory}/file{file}");
                client.write_file(path.as_bytes(), &text(number, bytes)).await?;
                rt.sleep(Nanos::from_millis(250)).await;
            }
        }
        deep_directory(&client).await?;
        kinds(rt, &client).await?;
        sparse(&client).await?;
        for file in 0..12 {
            client.unlink(format!("/d7/file{file}").as_bytes()).await?;
        }
        lfs.close().await?;
        drop((client, lfs));

        // Second life: a checkpoint in the middle, transactions after it, an unnamed file in use, and an unfinished end
        // of the log.
        let lfs = Lfs::mount(rt, device, false).await?;
        let client = Client::new(lfs.clone());
        for round in 0..4u32 {
            for file in 0..6u32 {
                let path = format!("/d{round}/file{file}");
                client.write_file(path.as_bytes(), &text(1_000 + round * 10 + file, 3_000 * file)).await?;
            }
            client.fsync_path(format!("/d{round}/file5").as_bytes()).await?;
            rt.sleep(Nanos::from_secs(16)).await;
        }
        client.write_file(b"/in-use", &text(2_000, 9_000)).await?;
        client.write_file(b"/gone", &text(2_001, 5_000)).await?;
        let in_use = client.open(b"/in-use", OpenFlags::READ_WRITE).await?;
        client.unlink(b"/in-use").await?;
        client.unlink(b"/gone").await?;
        client.rename(b"/d5", b"/d6/moved", RenameMode::NoReplace).await?;
        client.fsync_dir(b"/").await?;
        client.write(in_use, 9_000, &text(2_002, 1_000)).await?;
        client.truncate(b"/d4/file10", 7_777).await?;
        client.fallocate(b"/holes", FileRange { offset: 8 * KIB, bytes: 64 * KIB }, AllocateMode::PunchHole).await?;
        client.fsync_path(b"/d4/file10").await?;
        // Not synced: in the log only if write-back has reached it.
        client.write_file(b"/never-synced", &text(2_003, 5_000)).await
    }
}

#[test]
fn golden_images_open() {
    check_images::<Lfs>();
}

#[test]
fn golden_images_are_made_again() {
    check_made_again::<Lfs>();
}
