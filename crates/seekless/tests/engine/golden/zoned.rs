//! Golden zones: `zones-1`, a store on zones with LFS on it, cut off while several programs' work was durable in part.
//!
//! The image is what the zones hold, one behind the other, and in its last block how far each is written.

use std::rc::Rc;

use seekless::device::{
    BlockDevice, Buf, Data, Device, Image, Memory, WriteFlags, ZoneAction, ZoneState, Zoned, Zones,
};
use seekless::fs::client::Client;
use seekless::fs::{FsResult, lfs};
use seekless::rt::Rt;
use seekless::testing::stored_zones::StoredZones;
use seekless::units::{KIB, SECTOR_BYTES, Sector};
use seekless::volume::zoned::{Plan, Store, check};

use super::{
    VOLUME_BYTES, bytes_of, compare_listing, folder, is_blessing, listing, run, store, stored_images, text, unpack,
};

const CAPACITY_SECTORS: u64 = 648 * KIB / SECTOR_BYTES;
const ZONES: Zones =
    Zones { count: 20, zone_sectors: 2048, capacity_sectors: CAPACITY_SECTORS, open_max: 4, active_max: 4 };

/// Where the write pointers are; all ones in the upper half of a number: the zone is full.
const POINTERS: Sector = Sector(VOLUME_BYTES / SECTOR_BYTES - 8);
const FULL: u64 = 0xffff_ffff << 32;

async fn empty_zones() -> Rc<StoredZones> {
    let memory = Rc::new(Memory::new(StoredZones::bytes(&ZONES)));
    StoredZones::open(memory, ZONES).await.expect("memory works")
}

/// What the zones hold.
async fn image_of(zones: &StoredZones) -> Image {
    let mut image = Image::default();
    let mut pointers = Vec::new();
    for zone in 0..ZONES.count {
        let bytes = (CAPACITY_SECTORS * SECTOR_BYTES) as usize;
        let content = zones.read(ZONES.start(zone), Buf::dirty(bytes)).await.expect("memory works");
        image.write(Sector(u64::from(zone) * CAPACITY_SECTORS), &content);
        let info = zones.zone(zone).expect("it exists");
        let number = if info.state == ZoneState::Full { FULL } else { info.pointer - ZONES.start(zone) };
        pointers.extend(number.to_le_bytes());
    }
    pointers.resize(4096, 0);
    image.write(POINTERS, &pointers);
    image
}

/// Zones that hold what `image` says.
async fn zones_of(image: &Image) -> Device {
    let zones = empty_zones().await;
    let mut pointers = vec![0; 4096];
    image.read(POINTERS, &mut pointers);
    for (zone, number) in (0..ZONES.count).zip(pointers.chunks_exact(8)) {
        let number = u64::from_le_bytes(number.try_into().expect("eight bytes"));
        let sectors = if number == FULL { CAPACITY_SECTORS } else { number };
        let mut content = vec![0; (sectors * SECTOR_BYTES) as usize];
        image.read(Sector(u64::from(zone) * CAPACITY_SECTORS), &mut content);
        if !content.is_empty() {
            zones.append(zone, Data::from_slice(&content), WriteFlags::NONE).await.expect("there is room");
        }
        if number == FULL {
            zones.manage(zone, ZoneAction::Finish).await.expect("allowed");
        }
    }
    zones.flush().await.expect("memory works");
    zones
}

async fn live(rt: &Rt, zones: Device) -> FsResult<()> {
    let plan = Plan { uuid: [9; 16], span_bytes: Some(128 * KIB), spare: 0 };
    let device: Device = Store::create(zones.clone(), &plan).await.expect("the plan fits");
    lfs::mkfs(rt, &device, &lfs::MkfsOptions { label: "golden".into(), ..lfs::MkfsOptions::new([1, 2, 3, 4]) }).await?;
    // First life: more is written than fits, and most of it removed, so that zones are reset and emptied.
    let mounted = lfs::mount(rt.clone(), device, lfs::Options::default()).await?;
    let client = Client::new(mounted.clone());
    for round in 0..12u32 {
        for file in 0..10u32 {
            client.write_file(format!("/f{file}").as_bytes(), &text(round * 10 + file, 30_000 * (file + 1))).await?;
        }
        client.sync().await?;
    }
    mounted.close().await?;
    drop((client, mounted));
    // Second life, which ends without a close.
    let device: Device = Store::open(zones, false).await.expect("it is whole");
    let mounted = lfs::mount(rt.clone(), device, lfs::Options::default()).await?;
    let client = Client::new(mounted);
    for file in 0..6u32 {
        client.write_file(format!("/g{file}").as_bytes(), &text(200 + file, 9_000)).await?;
    }
    client.fsync_path(b"/g5").await
}

fn make() -> Image {
    run(async |rt| {
        let zones = empty_zones().await;
        live(&rt, zones.clone()).await.unwrap_or_else(|error| panic!("{error}"));
        image_of(&zones).await
    })
}

fn describe(image: &Image) -> String {
    run(async |rt| {
        let zones = zones_of(image).await;
        let checkup = check(&zones).await.expect("it can be checked");
        assert!(checkup.errors.is_empty() && checkup.notes.is_empty(), "{checkup:?}");
        let device: Device = Store::open(zones, true).await.expect("it is whole");
        let options = lfs::Options { read_only: true, ..lfs::Options::default() };
        let mounted = lfs::mount(rt, device, options).await.expect("it mounts");
        format!("{checkup:#?}\n{}", listing(mounted).await.expect("it can be read"))
    })
}

/// Aim and method: as of the other images, see `logs`.
#[test]
fn zones_open_with_todays_code() {
    if is_blessing() {
        let image = make();
        store("zones-1", &image, &describe(&image));
    }
    for path in stored_images("zones-") {
        let image = unpack(&std::fs::read(&path).expect("a golden image"));
        compare_listing(&path, &describe(&image));
        run(async |rt| {
            let zones = zones_of(&image).await;
            for life in 0..2 {
                let device: Device = Store::open(zones.clone(), false).await.expect("it is whole");
                let mounted = lfs::mount(rt.clone(), device.clone(), lfs::Options::default()).await.expect("it mounts");
                let client = Client::new(mounted.clone());
                client.write_file(format!("/new{life}").as_bytes(), &text(300, 50_000)).await.expect("there is room");
                mounted.close().await.expect("it closes");
                drop((client, mounted));
                let found =
                    lfs::fsck(rt.clone(), device, lfs::FsckOptions::default()).await.expect("it can be checked");
                assert_eq!(found.errors, Vec::<String>::new());
            }
        });
    }
}

#[test]
fn zones_are_made_again() {
    if is_blessing() {
        return; // The other test is writing them.
    }
    let stored = unpack(&std::fs::read(folder().join("zones-1.img.gz")).expect("a golden image"));
    let (old, new) = (bytes_of(&stored), bytes_of(&make()));
    let differing: Vec<usize> =
        (0..old.len() / 4096).filter(|at| old[at * 4096..][..4096] != new[at * 4096..][..4096]).collect();
    assert!(
        differing.is_empty(),
        "blocks {:?} of zones-1 are not what today's code writes; see docs/testing.md",
        &differing[..differing.len().min(10)]
    );
}
