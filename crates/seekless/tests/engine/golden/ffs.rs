//! The same for FFS: `ffs-1` with metadata in order, `ffs-2` with soft updates. Each was cut off after an update, with
//! changes in memory and an unnamed file in use.

use std::rc::Rc;

use seekless::device::{Device, Image, Memory};
use seekless::fs::client::Client;
use seekless::fs::ffs::{self, Dump, FsckOptions, Metadata, MkfsOptions, Options};
use seekless::fs::{AllocateMode, FileRange, FileSystem, FsResult, NewNode, NodeKind, OpenFlags, RenameMode, SetAttr};
use seekless::rt::Rt;
use seekless::units::{Ino, KIB, Nanos, SECTOR_BYTES};

use super::{
    VOLUME_BYTES, bytes_of, compare_listing, deep_directory, device_of, first_difference, folder, is_blessing, listing,
    run, store, stored_images, text, unpack,
};

const IMAGES: [(&str, Metadata); 2] = [("ffs-1", Metadata::Sync), ("ffs-2", Metadata::Softdep)];

/// A short life. Ends without closing.
async fn live(rt: &Rt, device: &Device, metadata: Metadata) -> FsResult<()> {
    let lite2 = metadata == Metadata::Softdep;
    let shape = MkfsOptions {
        cylinders_per_group: 4,
        label: if lite2 { "" } else { "golden" }.into(),
        ..MkfsOptions::new([1, 2])
    };
    ffs::mkfs(rt, device, &MkfsOptions { lite2, ..shape }).await?;
    let options = Options { metadata, ..Options::default() };

    // First life: much is created, some of it removed, and the volume is closed.
    let mounted = ffs::mount(rt.clone(), device.clone(), options).await?;
    let client = Client::new(mounted.clone());
    for directory in 0..6 {
        client.mkdir(format!("/d{directory}").as_bytes()).await?;
        for file in 0..24u32 {
            // Sizes around boundaries: nothing, a fragment, a block, direct blocks.
            let sizes = [0, 1, 1023, 1024, 1025, 8191, 8192, 8193, 98_304, 98_305, 20_000, 100];
            let path = format!("/d{directory}/file{file}");
            client.write_file(path.as_bytes(), &text(directory * 24 + file, sizes[file as usize % 12])).await?;
            rt.sleep(Nanos::from_millis(250)).await;
        }
    }
    deep_directory(&client).await?;
    let new = NewNode { permissions: 0o640, umask: 0, uid: 1000, gid: 100 };
    for (name, kind) in [(&b"fifo"[..], NodeKind::Fifo), (b"tty", NodeKind::CharDevice { device: 0x401 })] {
        let entry = client.fs().mknod(Ino::ROOT, name, kind, new).await?;
        client.forget(entry.attr.ino).await;
    }
    client.symlink(&[b'x'; 59], b"/link that just fits").await?;
    client.symlink(&[b'y'; 61], b"/link that does not").await?;
    let owner = SetAttr { permissions: Some(0o6755), uid: Some(1000), gid: Some(100), ..SetAttr::default() };
    client.setattr(b"/d1/file3", owner).await?;
    client.write_file(b"/holes", &text(700, 200_000)).await?;
    let file = client.open_or_create(b"/far").await?;
    for (number, offset) in [0, 12 * 8192, (12 + 2048) * 8192 + 5].into_iter().enumerate() {
        client.write(file, offset, &text(710 + number as u32, 17)).await?;
    }
    client.close(file).await?;
    mounted.close().await?;
    drop((client, mounted));

    // Second life: an update in the middle, then changes that are still in memory.
    let mounted = ffs::mount(rt.clone(), device.clone(), options).await?;
    let client = Client::new(mounted.clone());
    for round in 0..3u32 {
        for file in 0..6u32 {
            let path = format!("/d{round}/file{file}");
            client.write_file(path.as_bytes(), &text(1_000 + round * 10 + file, 3_000 * file)).await?;
        }
        rt.sleep(Nanos::from_secs(16)).await;
    }
    client.write_file(b"/in-use", &text(2_000, 9_000)).await?;
    client.write_file(b"/gone", &text(2_001, 5_000)).await?;
    let in_use = client.open(b"/in-use", OpenFlags::READ_WRITE).await?;
    client.unlink(b"/in-use").await?;
    client.unlink(b"/gone").await?;
    client.rename(b"/d5", b"/d4/moved", RenameMode::NoReplace).await?;
    client.write(in_use, 9_000, &text(2_002, 1_000)).await?;
    client.truncate(b"/d4/file10", 7_777).await?;
    client.fallocate(b"/holes", FileRange { offset: 8 * KIB, bytes: 64 * KIB }, AllocateMode::PunchHole).await?;
    client.fsync_path(b"/d4/file10").await?;
    client.write_file(b"/never-synced", &text(2_003, 5_000)).await?;
    client.unlink(b"/d2/file9").await
}

fn make(metadata: Metadata) -> Image {
    run(async |rt| {
        let memory = Rc::new(Memory::new(VOLUME_BYTES));
        let device: Device = memory.clone();
        live(&rt, &device, metadata).await.unwrap_or_else(|error| panic!("{error}"));
        memory.image()
    })
}

/// The current code's full description of a volume as a crash left it, without repairs.
fn describe(image: &Image) -> String {
    run(async |rt| {
        let device = device_of(image);
        let info = ffs::info(&device).await.unwrap_or_else(|error| panic!("{error}"));
        let check = ffs::fsck(&rt, &device, FsckOptions::default()).await.unwrap_or_else(|error| panic!("{error}"));
        let options = Options { read_only: true, ..Options::default() };
        let mounted = ffs::mount(rt.clone(), device, options).await.unwrap_or_else(|error| panic!("{error}"));
        let tree = listing(mounted).await.unwrap_or_else(|error| panic!("{error}"));
        format!("{info:#?}\n{check:#?}\n{tree}")
    })
}

/// Aim and method as for LFS; mounting for writing repairs what the crash left.
#[test]
fn golden_images_open() {
    for (name, metadata) in IMAGES {
        if is_blessing() {
            let image = make(metadata);
            store(name, &image, &describe(&image));
        }
    }
    for path in stored_images("ffs-") {
        let image = unpack(&std::fs::read(&path).expect("a golden image"));
        compare_listing(&path, &describe(&image));
        run(async |rt| {
            let device = device_of(&image);
            let mounted = ffs::mount(rt.clone(), device.clone(), Options::default()).await.expect("it mounts");
            let client = Client::new(mounted.clone());
            client.write_file(b"/new", b"new").await.expect("there is room");
            client.unlink(b"/new").await.expect("it can go again");
            mounted.close().await.expect("it closes");
            drop((client, mounted));
            let check = ffs::fsck(&rt, &device, FsckOptions::default()).await.expect("it can be checked");
            assert_eq!((check.problems, check.notes), (vec![], vec![]), "nothing is left to mend");
        });
    }
}

/// As for LFS.
#[test]
fn golden_images_are_made_again() {
    if is_blessing() {
        return; // The other test is writing them.
    }
    for (name, metadata) in IMAGES {
        let path = folder().join(format!("{name}.img.gz"));
        let (stored, made) = (unpack(&std::fs::read(&path).expect("the image")), make(metadata));
        let (old, new) = (bytes_of(&stored), bytes_of(&made));
        let sectors = old.chunks(SECTOR_BYTES as usize).zip(new.chunks(SECTOR_BYTES as usize)).enumerate();
        let differing: Vec<usize> = sectors.filter(|(_, (old, new))| old != new).map(|(number, _)| number).collect();
        if differing.is_empty() {
            continue;
        }
        let dump = |image: &Image, what| {
            let device = device_of(image);
            run(async |_| ffs::dump(&device, what).await).unwrap_or_else(|error| error.to_string())
        };
        let differences = [Dump::Volume, Dump::Groups].map(|what| {
            let difference = first_difference(&dump(&stored, what), &dump(&made, what));
            difference.map(|difference| format!("\n{what:?}, {difference}")).unwrap_or_default()
        });
        panic!(
            "{} sectors of {name} differ from what today's code writes, the first ones {:?}{}\n\nIf that is intended, \
             and the listing stays right: SEEKLESS_BLESS=1 cargo test -p seekless --test engine golden\nA pair that was \
             released is first kept under another name.\n",
            differing.len(),
            &differing[..differing.len().min(10)],
            differences.concat()
        );
    }
}
