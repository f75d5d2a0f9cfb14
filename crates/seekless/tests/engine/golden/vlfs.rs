//! Golden volumes of VLFS: `vlfs-1`, cut off after a transaction, with changes in memory and an unnamed file in use;
//! and `vlfs-2`, see `logs`.

use seekless::device::Device;
use seekless::fs::client::Client;
use seekless::fs::vlfs::{self, Dump, FsckOptions, MkfsOptions, Options};
use seekless::fs::{Fs, FsResult, OpenFlags, RenameMode};
use seekless::rt::Rt;
use seekless::units::Nanos;

use super::logs::{Checked, GoldenLog, check_images, check_made_again};
use super::{deep_directory, kinds, sparse, text};

struct Vlfs;

impl GoldenLog for Vlfs {
    const NAME: &'static str = "vlfs";

    async fn mkfs(rt: &Rt, device: &Device) -> FsResult<()> {
        let options = MkfsOptions { label: "golden".into(), ..MkfsOptions::new([1, 2, 3, 4]) };
        vlfs::mkfs(rt, device, &options).await
    }

    async fn mount(rt: &Rt, device: &Device, read_only: bool) -> FsResult<Fs> {
        vlfs::mount(rt.clone(), device.clone(), Options { read_only, ..Options::default() }).await
    }

    async fn check(rt: &Rt, device: &Device) -> FsResult<Checked> {
        let info = vlfs::info(device).await?;
        let found =
            vlfs::fsck(rt.clone(), device.clone(), FsckOptions { data: true, ..FsckOptions::default() }).await?;
        let text = format!("{info:#?}\n{found:#?}\n");
        // The number of pieces of its map is noted for every volume.
        let notes = found.notes.into_iter().filter(|note| !note.ends_with("of the inode map")).collect();
        Ok(Checked { text, errors: found.errors, notes })
    }

    async fn dump(rt: &Rt, device: &Device) -> FsResult<String> {
        vlfs::dump(rt, device, Dump::Map).await
    }

    async fn live(rt: &Rt, device: &Device) -> FsResult<()> {
        Vlfs::mkfs(rt, device).await?;

        // First life: much is created, some of it removed, and the volume is closed.
        let mounted = Vlfs::mount(rt, device, false).await?;
        let client = Client::new(mounted.clone());
        for directory in 0..6 {
            client.mkdir(format!("/d{directory}").as_bytes()).await?;
            for file in 0..24u32 {
                let sizes = [0, 1, 511, 512, 513, 4095, 4096, 4097, 7 * 4096, 7 * 4096 + 1, 20_000, 100];
                let path = format!("/d{directory}/file{file}");
                client.write_file(path.as_bytes(), &text(directory * 24 + file, sizes[file as usize % 12])).await?;
                rt.sleep(Nanos::from_millis(250)).await;
            }
        }
        deep_directory(&client).await?;
        kinds(rt, &client).await?;
        sparse(&client).await?;
        for file in 0..12 {
            client.unlink(format!("/d3/file{file}").as_bytes()).await?;
        }
        mounted.close().await?;
        drop((client, mounted));

        // Second life: transactions, then changes that are still in memory.
        let mounted = Vlfs::mount(rt, device, false).await?;
        let client = Client::new(mounted.clone());
        for round in 0..3u32 {
            for file in 0..6u32 {
                let path = format!("/d{round}/file{file}");
                client.write_file(path.as_bytes(), &text(1_000 + round * 10 + file, 3_000 * file)).await?;
            }
            client.fsync_path(format!("/d{round}/file5").as_bytes()).await?;
            rt.sleep(Nanos::from_secs(3)).await;
        }
        client.write_file(b"/in-use", &text(2_000, 9_000)).await?;
        let in_use = client.open(b"/in-use", OpenFlags::READ_WRITE).await?;
        client.unlink(b"/in-use").await?;
        client.rename(b"/d5", b"/d4/moved", RenameMode::NoReplace).await?;
        client.fsync_dir(b"/").await?;
        client.write(in_use, 9_000, &text(2_002, 1_000)).await?;
        client.write_file(b"/never-synced", &text(2_003, 5_000)).await
    }
}

#[test]
fn golden_vlfs_volumes_open() {
    check_images::<Vlfs>();
}

#[test]
fn golden_vlfs_volumes_are_made_again() {
    check_made_again::<Vlfs>();
}
