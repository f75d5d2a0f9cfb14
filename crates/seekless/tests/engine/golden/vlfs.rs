//! The same for VLFS: `vlfs-1`, cut off with a transaction behind it, changes in memory, and a file in use that has no
//! name.

use std::rc::Rc;

use seekless::device::{Device, Image, Memory};
use seekless::fs::client::Client;
use seekless::fs::vlfs::{self, Dump, FsckOptions, MkfsOptions, Options};
use seekless::fs::{FsResult, OpenFlags, RenameMode};
use seekless::rt::Rt;
use seekless::units::{Nanos, SECTOR_BYTES};

use super::{
    VOLUME_BYTES, bytes_of, compare_listing, deep_directory, device_of, first_difference, folder, is_blessing, kinds,
    listing, run, sparse, store, stored_images, text, unpack,
};

/// A life in short. Ends without closing.
async fn live(rt: &Rt, device: &Device) -> FsResult<()> {
    let options = MkfsOptions { label: "golden".into(), ..MkfsOptions::new([1, 2, 3, 4]) };
    vlfs::mkfs(rt, device, &options).await?;

    // First life: much is made, some of it goes, and the volume is closed.
    let mounted = vlfs::mount(rt.clone(), device.clone(), Options::default()).await?;
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
    let mounted = vlfs::mount(rt.clone(), device.clone(), Options::default()).await?;
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

fn make() -> Image {
    run(async |rt| {
        let memory = Rc::new(Memory::new(VOLUME_BYTES));
        let device: Device = memory.clone();
        live(&rt, &device).await.unwrap_or_else(|error| panic!("{error}"));
        memory.image()
    })
}

fn describe(image: &Image) -> String {
    run(async |rt| {
        let device = device_of(image);
        let info = vlfs::info(&device).await.unwrap_or_else(|error| panic!("{error}"));
        let check = vlfs::fsck(rt.clone(), device.clone(), FsckOptions { data: true }).await;
        let check = check.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(check.errors, Vec::<String>::new());
        let options = Options { read_only: true, ..Options::default() };
        let mounted = vlfs::mount(rt.clone(), device, options).await.unwrap_or_else(|error| panic!("{error}"));
        let tree = listing(mounted).await.unwrap_or_else(|error| panic!("{error}"));
        format!("{info:#?}\n{check:#?}\n{tree}")
    })
}

/// Aim: what old code wrote opens with today's, and today's code writes the same. Method: every stored image is checked,
/// mounted as the power cut left it, listed, compared, used and closed; the newest is made again.
#[test]
fn golden_vlfs_volumes_open() {
    if is_blessing() {
        let image = make();
        store("vlfs-1", &image, &describe(&image));
    }
    for path in stored_images("vlfs-") {
        let image = unpack(&std::fs::read(&path).expect("a golden image"));
        compare_listing(&path, &describe(&image));
        run(async |rt| {
            let device = device_of(&image);
            let mounted = vlfs::mount(rt.clone(), device.clone(), Options::default()).await.expect("it mounts");
            let client = Client::new(mounted.clone());
            client.write_file(b"/new", b"new").await.expect("there is room");
            client.unlink(b"/new").await.expect("it can go again");
            mounted.close().await.expect("it closes");
            drop((client, mounted));
            let check = vlfs::fsck(rt.clone(), device, FsckOptions { data: true }).await.expect("it can be checked");
            assert_eq!(check.errors, Vec::<String>::new());
        });
    }
    let stored = unpack(&std::fs::read(folder().join("vlfs-1.img.gz")).expect("the newest golden image"));
    let made = make();
    let (old, new) = (bytes_of(&stored), bytes_of(&made));
    let sectors = old.chunks(SECTOR_BYTES as usize).zip(new.chunks(SECTOR_BYTES as usize)).enumerate();
    let differing: Vec<usize> = sectors.filter(|(_, (old, new))| old != new).map(|(number, _)| number).collect();
    if !differing.is_empty() {
        let dump = |image: &Image| {
            let device = device_of(image);
            run(async |rt| vlfs::dump(&rt, &device, Dump::Map).await).unwrap_or_else(|error| error.to_string())
        };
        let difference = first_difference(&dump(&stored), &dump(&made));
        panic!("today's code writes other sectors: {differing:?}, {difference:?}; if that is intended, bless");
    }
}
