//! Aim: whatever happens to an image, mounting, reading and checking end in an error or a right answer. A failed
//! request never claims success. Method: the damage and fault explorers.

use std::cell::Cell;

use super::*;
use crate::device::crash::CrashOptions;
use crate::device::fault::FaultDevice;
use crate::fs::logfs::file::root_key;
use crate::fs::logfs::format::{DIRECT_POINTERS, Pointer};
use crate::fs::logfs::tree::BlockId;
use crate::rng::Rng;
use crate::testing::environment::soak;
use crate::testing::volumes::copies::{Copies, Repairable};
use crate::testing::volumes::cuts::Cuts;
use crate::testing::volumes::life::must_have_covered;
use crate::testing::{DamageTest, Generator, Op, OpMix, Space};
use crate::units::Ino;

const CUTS: Cuts = Cuts { module: "fs::lfs::tests::damage", bytes: 9 * MIB };

/// Every bit of the superblocks and checkpoints, a sample of all other bits, and larger damage.
#[test]
fn damaged_images() {
    explore(&Small::default(), 1_000, 400, "damaged_images");
}

/// The same for read-only mounts, which show the latest verifiable state rather than refuse.
#[test]
fn damaged_images_read_only() {
    explore(&ThenReadOnly::default(), 500, 300, "damaged_images_read_only");
}

/// Mounted for writing once, after mkfs.
#[derive(Default)]
struct ThenReadOnly {
    written: Cell<bool>,
}

#[async_trait(?Send)]
impl FsUnderTest for ThenReadOnly {
    fn name(&self) -> String {
        "lfs, read-only".to_string()
    }

    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()> {
        self.written.set(false);
        mkfs(rt, &device, &MkfsOptions::new([1, 2, 3, 4])).await
    }

    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        let options = Options { read_only: self.written.replace(true), ..Options::default() };
        Ok(mount(rt.clone(), device, options).await?)
    }

    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        Small::default().fsck(rt, device).await
    }
}

fn explore(subject: &dyn FsUnderTest, flips: usize, splices: usize, test: &str) {
    let ops: Vec<Op> = Generator::new(3, Space::small(), OpMix::BALANCED).take(300).collect();
    let superblock = 0..format::Superblock::BYTES as u64;
    let checkpoint = format::CHECKPOINT_SECTORS[0].byte_offset();
    let damage = DamageTest {
        subject,
        device: CrashOptions::volatile(CUTS.bytes),
        flip_all: vec![superblock, checkpoint..checkpoint + 256],
        flips,
        losses: flips / 4,
        splices,
        data_checked: true,
        memory: None,
        seed: 1,
        replay: CUTS.here(test),
    };
    match damage.run(&ops) {
        Ok(report) => println!("{report}"),
        Err(report) => panic!("{report}"),
    }
}

#[async_trait(?Send)]
impl Repairable for Small {
    async fn mount_read_only(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        Ok(mount(rt.clone(), device, Options { read_only: true, ..self.options }).await?)
    }

    async fn repair(&self, rt: &Rt, device: Device) -> FsResult<(Vec<String>, Vec<String>)> {
        let found = fsck(rt.clone(), device, FsckOptions { repair: true, ..FsckOptions::default() }).await?;
        Ok((found.repaired, found.errors))
    }
}

fn copies() -> Copies {
    let block = |at: crate::units::Sector| at.0..at.0 + format::BLOCK_SECTORS;
    let [one, two] = format::CHECKPOINT_SECTORS;
    Copies {
        superblocks: [
            format::SUPERBLOCK_SECTORS[0],
            format::SUPERBLOCK_SECTORS[1],
            crate::units::Sector(9 * MIB / 512 - 8),
        ]
        .map(block)
        .to_vec(),
        // One copy in a slot; the loss of a whole slot is the next test.
        others: [one, two].into_iter().flat_map(|slot| [block(slot), block(slot + 8)]).collect(),
    }
}

#[test]
fn copies_may_be_lost() {
    copies().may_be_lost(&Small::default(), 9 * MIB);
}

#[test]
fn sectors_that_come_back() {
    let replay = CUTS.here("sectors_that_come_back");
    crate::testing::volumes::returning::sectors_that_come_back(&Small::default(), CUTS.bytes, &replay, |_| Vec::new());
}

#[test]
fn mending_never_makes_it_worse() {
    copies().mending_never_makes_it_worse(&Small::default(), 9 * MIB);
}

#[test]
fn gone_is_no_damage() {
    copies().gone_is_no_damage(&Small::default(), 9 * MIB);
}

/// Among the superblocks of two volumes, the mount chooses those of the volume that a checkpoint belongs to.
#[test]
fn a_superblock_of_another_volume() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 9 * MIB).await;
        let (other, _) = fresh(&rt, 9 * MIB).await;
        mkfs(&rt, &(other.clone() as Device), &MkfsOptions::new([5, 6, 7, 8])).await.unwrap();
        session(&rt, &device, async |client| client.write_file(b"/f", b"ours").await.unwrap()).await;
        let mut block = vec![0; 4096];
        other.image().read(crate::units::Sector(0), &mut block);
        let block = crate::device::Data::from_slice(&block);
        device.write(crate::units::Sector(0), block, crate::device::WriteFlags::NONE).await.unwrap();
        let fs = mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
        assert!(fs.warnings().len() == 1 && fs.warnings()[0].contains("differs"), "{:?}", fs.warnings());
        fs.close().await.unwrap();
        session(&rt, &device, async |client| assert_eq!(client.read_file(b"/f").await.unwrap(), b"ours")).await;
    });
}

#[test]
fn failing_requests() {
    CUTS.failing_requests(&Small::default(), 0..2);
}

/// An orphan that cannot be freed stays an orphan, and does not block anything else.
#[test]
fn an_orphan_with_a_damaged_indirect_block() {
    const BYTES: u64 = 9 * MIB;
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, BYTES).await;
        let lfs = open(rt.clone(), device, Options::default()).await.unwrap();
        let client = Client::new(lfs.clone());
        client.write_file(b"/kept", b"kept").await.unwrap();
        client.write_file(b"/orphan", &[7; 100_000]).await.unwrap();
        let ino = client.stat(b"/orphan").await.unwrap().ino;
        let _file = client.open(b"/orphan", OpenFlags::READ_WRITE).await.unwrap();
        client.unlink(b"/orphan").await.unwrap();
        // A checkpoint writes the indirect blocks; transactions need not.
        lfs.checkpoint(false).await.unwrap();
        let node = BlockId { ino, key: root_key(DIRECT_POINTERS) };
        let Ok(Pointer::Mapped { at, .. }) = lfs.state.borrow_mut().pointer(node) else { panic!("it is in the log") };
        let mut image = memory.image();
        image.zero(at, 1);
        let device: Device = Rc::new(Memory::from_image(BYTES, image));
        for round in 0..3 {
            let found = fsck(rt.clone(), device.clone(), FsckOptions::default()).await.unwrap();
            let of_block = format!("inode {ino}");
            assert!(found.errors.iter().any(|error| error.contains(&of_block)), "round {round}: {:?}", found.errors);
            let fs = mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
            assert!(fs.warnings().iter().any(|warning| warning.contains(&of_block)), "{:?}", fs.warnings());
            let client = Client::new(fs.clone());
            assert_eq!(client.read_file(b"/kept").await.unwrap(), b"kept");
            client.write_file(format!("/new{round}").as_bytes(), &[1; 50_000]).await.unwrap();
            fs.close().await.unwrap();
        }
    });
}

/// Aim: what a file lost by truncation does not come back, when a mount cannot free all of it. Method: the power fails before the
/// blocks past the new end are freed, and one of the indirect blocks above them is damaged; then the file grows again.
#[test]
fn what_cannot_be_freed_does_not_come_back() {
    const BYTES: u64 = 9 * MIB;
    const PER_BLOCK: u64 = format::POINTERS_PER_BLOCK as u64;
    // Blocks below the first and the second indirect block below the second tree.
    const PLACES: [u64; 2] = [DIRECT_POINTERS as u64 + PER_BLOCK, DIRECT_POINTERS as u64 + 2 * PER_BLOCK];
    simulate(1, async |rt| {
        for damaged in PLACES {
            let (memory, device) = fresh(&rt, BYTES).await;
            let lfs = open(rt.clone(), device, Options::default()).await.unwrap();
            let client = Client::new(lfs.clone());
            let file = client.create(b"/f").await.unwrap();
            for block in PLACES {
                client.write(file, block * 4096, &[7; 4096]).await.unwrap();
            }
            client.close(file).await.unwrap();
            let ino = client.resolve(b"/f").await.unwrap();
            let size = client.stat(b"/f").await.unwrap().size;
            lfs.checkpoint(false).await.unwrap();
            let crate::fs::logfs::tree::Holder::Node(key, _) = crate::fs::logfs::tree::BlockKey::data(damaged).holder()
            else {
                panic!("it has a block above it")
            };
            let Ok(Pointer::Mapped { at, .. }) = lfs.state.borrow_mut().pointer(BlockId { ino, key }) else {
                panic!("it is in the log")
            };
            let shorter = SetAttr { size: Some(4096), ..SetAttr::default() };
            let Ok(changed) = crate::fs::logfs::file::setattr(&mut lfs.state.borrow_mut(), ino, &shorter) else {
                panic!("all that it needs is in memory")
            };
            assert!(changed.must_reclaim);
            lfs.checkpoint(false).await.unwrap();
            let mut image = memory.image();
            image.zero(at, 1);
            let device: Device = Rc::new(Memory::from_image(BYTES, image));
            let fs = mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
            assert!(!fs.warnings().is_empty(), "not all was freed");
            let client = Client::new(fs.clone());
            if client.truncate(b"/f", size).await.is_ok() {
                let file = client.open(b"/f", OpenFlags::READ).await.unwrap();
                for block in PLACES {
                    let read = client.read(file, block * 4096, 4096).await;
                    let is_zero = read.map_or(true, |read| read.iter().all(|&byte| byte == 0));
                    assert!(is_zero, "block {block} is back, with what leads to {damaged} damaged");
                }
            }
            client.write_file(b"/new", &[1; 50_000]).await.unwrap();
            fs.close().await.unwrap();
        }
    });
}

/// Aim: a leaf of a directory that is damaged anywhere does not change, whatever name it is about. Method: the last entry of a
/// leaf in memory, as it was read, is of no inode; the first name is removed, a file is moved over it, and new names come. Then
/// the leaf is whole again.
#[test]
fn a_damaged_leaf_does_not_change() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 9 * MIB).await;
        let lfs = open(rt.clone(), device.clone(), Options::default()).await.unwrap();
        let client = Client::new(lfs.clone());
        for number in 0..40 {
            client.write_file(format!("/d{number}").as_bytes(), b"").await.unwrap();
        }
        client.mkdir(b"/other").await.unwrap();
        client.write_file(b"/other/f", b"").await.unwrap();
        client.sync().await.unwrap();
        lfs.drop_caches().await.unwrap();
        let names: Vec<Vec<u8>> = client.read_dir(b"/").await.unwrap().into_iter().map(|entry| entry.name).collect();
        let path = |name: &[u8]| [b"/", name].concat();
        let (first, last) = (path(&names[2]), names.last().unwrap());
        let leaf = BlockId::data(Ino::ROOT, 0);
        let read = lfs.state.borrow().blocks.peek(leaf).unwrap().clone();
        let mut damaged = read.to_vec();
        let used = usize::from(format::Leaf::decode(&damaged).unwrap().used_bytes);
        let at = used - last.len() - format::LeafEntry::BYTES;
        let entry = format::LeafEntry::decode(&damaged[at..]).unwrap();
        format::LeafEntry { ino: 0, ..entry }.encode(&mut damaged[at..]);
        let put = |bytes: &[u8]| {
            let blocks = &mut lfs.state.borrow_mut().blocks;
            blocks.remove(leaf);
            blocks.insert_clean(leaf, crate::device::Data::from_slice(bytes));
        };
        put(&damaged);
        let is_refused = |done: FsResult<()>| assert!(matches!(done, Err(FsError::Corrupt { .. })), "{done:?}");
        for round in 0..2 {
            is_refused(client.unlink(&first).await);
            is_refused(client.rename(b"/other/f", &first, RenameMode::Replace).await);
            for number in 0..8 {
                is_refused(client.write_file(format!("/new{round}{number}").as_bytes(), b"").await);
            }
        }
        put(&read);
        client.unlink(&first).await.unwrap();
        client.write_file(b"/new", b"").await.unwrap();
        lfs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}

/// Cover points that only damage reaches.
const POINTS: &[&str] =
    &["lfs: a mount does not believe the usage table", "lfs: neither the usage table nor a recount can be believed"];

/// Where the first block of the usage table of a volume is.
async fn usage_table(rt: &Rt, device: Device) -> crate::units::Sector {
    let lfs = open(rt.clone(), device, Options { read_only: true, ..Options::default() }).await.unwrap();
    let table = BlockId::data(format::USAGE_INO, 0);
    let Ok(Pointer::Mapped { at, .. }) = lfs.state.borrow_mut().pointer(table) else { panic!("it is in the log") };
    at
}

/// A damaged usage table, and something else that cannot be read for a while, lose nothing: no mount writes over what it could not
/// count.
#[test]
fn a_damaged_usage_table_and_sectors_that_come_back() {
    const TEST: &str = "a_damaged_usage_table_and_sectors_that_come_back";
    crate::rt::covered();
    let table = |image: &Image| {
        let device: Device = Rc::new(Memory::from_image(CUTS.bytes, image.clone()));
        vec![simulate(1, async |rt| usage_table(&rt, device).await)]
    };
    let replay = CUTS.here(TEST);
    crate::testing::volumes::returning::sectors_that_come_back(&Small::default(), CUTS.bytes, &replay, table);
    must_have_covered(&format!("fs::lfs::tests::damage::{TEST}"), POINTS);
}

/// A damaged usage table costs a warning and no file, and a repair rebuilds it.
#[test]
fn a_damaged_usage_table() {
    const BYTES: u64 = 9 * MIB;
    crate::rt::covered();
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, BYTES).await;
        session(&rt, &device, async |client| client.write_file(b"/kept", &[1; 500_000]).await.unwrap()).await;
        let at = usage_table(&rt, device).await;
        let mut image = memory.image();
        image.zero(at, 1);
        let device: Device = Rc::new(Memory::from_image(BYTES, image));
        let fs = mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
        let of_table = |warning: &String| warning.contains("segment usage table");
        assert!(fs.warnings().iter().any(of_table), "{:?}", fs.warnings());
        let client = Client::new(fs.clone());
        assert!(client.read_file(b"/kept").await.unwrap() == [1; 500_000]);
        client.write_file(b"/new", &[2; 500_000]).await.unwrap();
        fs.close().await.unwrap();
        drop((client, fs));
        fsck(rt.clone(), device.clone(), FsckOptions { repair: true, ..FsckOptions::default() }).await.unwrap();
        session(&rt, &device, async |client| {
            assert!(client.read_file(b"/kept").await.unwrap() == [1; 500_000]);
            assert!(client.read_file(b"/new").await.unwrap() == [2; 500_000]);
        })
        .await;
    });
    must_have_covered("fs::lfs::tests::damage::a_damaged_usage_table", &POINTS[..1]);
}

/// Neither does one that cannot be read: a mount recounts it, and writes it elsewhere.
#[test]
fn an_unreadable_usage_table() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 9 * MIB).await;
        session(&rt, &device, async |client| client.write_file(b"/kept", &[1; 500_000]).await.unwrap()).await;
        let at = usage_table(&rt, device.clone()).await;
        let fault = FaultDevice::new(&rt, device.clone(), 1);
        fault.lose(at..at + 1);
        for (read_only, is_quiet) in [(true, false), (false, false), (false, true)] {
            let options = Options { read_only, ..Options::default() };
            let fs = mount(rt.clone(), fault.clone(), options).await.expect("the table can be recounted");
            let warnings = fs.warnings();
            assert_eq!(warnings.is_empty(), is_quiet, "read-only {read_only}: {warnings:?}");
            assert!(warnings.iter().all(|warning| warning.contains("segment usage table")), "{warnings:?}");
            let client = Client::new(fs.clone());
            assert!(client.read_file(b"/kept").await.unwrap() == [1; 500_000]);
            if !read_only {
                client.write_file(b"/new", &[2; 500_000]).await.unwrap();
                assert!(client.read_file(b"/new").await.unwrap() == [2; 500_000]);
            }
            fs.close().await.unwrap();
        }
        let device: Device = fault.clone();
        assert_clean(&rt, &device).await;
    });
}

/// A check continues past what cannot be read, and says all of it.
#[test]
fn a_check_goes_on_past_lost_sectors() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 9 * MIB).await;
        let fault = FaultDevice::new(&rt, device.clone(), 1);
        let lfs = open(rt.clone(), device.clone(), Options::default()).await.unwrap();
        let client = Client::new(lfs.clone());
        for name in [b"/one", b"/two"] {
            client.write_file(name, &[1; 20_000]).await.unwrap();
        }
        client.sync().await.unwrap();
        for name in [b"/one", b"/two"] {
            let ino = client.stat(name).await.unwrap().ino;
            let Ok(Pointer::Mapped { at, .. }) = lfs.state.borrow_mut().pointer(BlockId::data(ino, 1)) else {
                panic!("it is in the log")
            };
            fault.lose(at..at + 1);
        }
        lfs.close().await.unwrap();
        for repair in [false, true] {
            let options = FsckOptions { data: true, repair };
            let found = fsck(rt.clone(), fault.clone(), options).await.expect("the rest can be checked");
            assert_eq!(found.errors.len(), 2, "repair {repair}: {:?}", found.errors);
            assert!(found.errors.iter().all(|error| error.contains("is lost")), "{:?}", found.errors);
        }
    });
}

/// A table that a checkpoint cannot read keeps no file from the log when the mount ends. Method: the volume has so many segments
/// that an indirect block leads to a part of the usage table.
#[test]
fn a_mount_that_cannot_end_well_keeps_the_files() {
    const SEGMENT: u64 = (DIRECT_POINTERS as u64 + 1) * format::USAGES_PER_BLOCK - 1;
    simulate(1, async |rt| {
        let device: Device = Rc::new(Memory::new((SEGMENT + 40) * 128 * KIB));
        let options = MkfsOptions { segment_bytes: Some(128 * KIB), ..MkfsOptions::new([1, 2, 3, 4]) };
        mkfs(&rt, &device, &options).await.unwrap();
        let never = Nanos::from_secs(1 << 30);
        let options = Options { checkpoint_interval: never, write_back_interval: never, ..Options::default() };
        let fault = FaultDevice::new(&rt, device.clone(), 1);
        let lfs = open(rt.clone(), fault.clone(), options).await.unwrap();
        let client = Client::new(lfs.clone());
        lfs.state.borrow_mut().log.segments.touch(SEGMENT);
        lfs.checkpoint(false).await.unwrap();
        let node = BlockId { ino: format::USAGE_INO, key: root_key(DIRECT_POINTERS) };
        let Ok(Pointer::Mapped { at, .. }) = lfs.state.borrow_mut().pointer(node) else { panic!("it is in the log") };
        client.write_file(b"/f", &[3; 100_000]).await.unwrap();
        {
            let mut state = lfs.state.borrow_mut();
            state.blocks.drop_clean(|_| false);
            state.log.segments.touch(SEGMENT);
        }
        fault.lose(at..at + format::BLOCK_SECTORS);
        for round in 0..2 {
            let closed = lfs.close().await;
            assert!(matches!(closed, Err(FsError::Device(_))), "round {round}: {closed:?}");
        }
        drop((client, lfs));
        session(&rt, &device, async |client| {
            assert!(client.read_file(b"/f").await == Ok(vec![3; 100_000]));
        })
        .await;
    });
}

/// Files synced in turn, each in a transaction of two to four segments, and two small ones. No evidence follows the
/// last one.
const LONG_FILES: usize = 12;

fn long_name(file: usize) -> Vec<u8> {
    format!("/f{file:02}").into_bytes()
}

fn long_content(file: usize) -> Vec<u8> {
    let mut content = vec![0; if file < LONG_FILES { 200_000 + 25_000 * file } else { 100 }];
    Rng::new(file as u64).fill(&mut content);
    content
}

/// The image of a volume that was not closed after syncing them, and the segment in which the log ended.
async fn long_transactions(rt: &Rt, bytes: u64) -> (Image, layout::Layout, u64) {
    let memory = Rc::new(Memory::new(bytes));
    let device: Device = memory.clone();
    mkfs(rt, &device, &MkfsOptions::new([1, 2, 3, 4])).await.unwrap();
    let options = Options { checkpoint_interval: Nanos::from_secs(3600), ..Options::default() };
    let lfs = open(rt.clone(), device, options).await.unwrap();
    let client = Client::new(lfs.clone());
    for file in 0..LONG_FILES + 2 {
        client.write_file(&long_name(file), &long_content(file)).await.unwrap();
        client.fsync_path(&long_name(file)).await.unwrap();
        client.fsync_path(b"/").await.unwrap();
    }
    let state = lfs.state.borrow();
    (memory.image(), state.log.layout, state.log.end.segment)
}

/// Aim: damage in the log is distinguished from its end, also where a transaction is longer than a segment; a read-only
/// mount then shows the files before the damage. Method: one bit after another, and whole segments, of a log without a
/// checkpoint behind it.
#[test]
fn damage_is_not_the_end_of_the_log() {
    const BYTES: u64 = 32 * MIB;
    let (image, layout, last) = simulate(1, async |rt| long_transactions(&rt, BYTES).await);
    assert!(last > 2 * LONG_FILES as u64, "transactions are longer than a segment");
    let mut rng = Rng::new(5);
    // Whole segments except those that hold the checkpoint or the end, and bits in all but the last.
    let mut places: Vec<(u64, u64)> =
        (2..last - 2).map(|segment| (layout.segment_start(segment).byte_offset(), layout.segment_bytes())).collect();
    let log = layout.segment_start(0).byte_offset()..layout.segment_start(last).byte_offset();
    places.extend((0..soak().times(400)).map(|_| (log.start + rng.below(log.end - log.start), 1)));
    let mut refused = 0;
    for (at, bytes) in places {
        let mut image = image.clone();
        let first = crate::units::Sector(at / crate::units::SECTOR_BYTES);
        match bytes {
            1 => {
                let mut sector = [0; crate::units::SECTOR_BYTES as usize];
                image.read(first, &mut sector);
                sector[(at % crate::units::SECTOR_BYTES) as usize] ^= 1 << rng.below(8);
                image.write(first, &sector);
            }
            _ => image.zero(first, bytes / crate::units::SECTOR_BYTES),
        }
        let what = format!("{bytes} bytes at {at}");
        simulate(1, async |rt| {
            let copy = || -> Device { Rc::new(Memory::from_image(BYTES, image.clone())) };
            let read_only = Options { read_only: true, ..Options::default() };
            let shown = mount(rt.clone(), copy(), read_only).await.expect(&what);
            let client = Client::new(shown.clone());
            let mut there = 0;
            for file in 0..LONG_FILES + 1 {
                match client.read_file(&long_name(file)).await {
                    Ok(content) => {
                        assert!(content == long_content(file), "{what}: file {file}");
                        there += 1;
                    }
                    Err(FsError::NotFound | FsError::Corrupt { .. }) => {}
                    Err(error) => panic!("{what}: file {file}: {error}"),
                }
            }
            let errors = fsck(rt.clone(), copy(), FsckOptions { data: true, ..FsckOptions::default() })
                .await
                .expect(&what)
                .errors;
            match mount(rt.clone(), copy(), Options::default()).await {
                Err(FsError::Corrupt { .. }) => {
                    refused += 1;
                    assert!(!shown.warnings().is_empty() && !errors.is_empty(), "{what}");
                }
                Err(error) => panic!("{what}: {error}"),
                Ok(_) => assert!(there == LONG_FILES + 1 || !errors.is_empty(), "{what}: only {there} files are left"),
            }
            if there < LONG_FILES + 1 {
                assert!(!errors.is_empty(), "{what}: {there} files and nothing said");
            }
        });
    }
    assert!(refused > 200 || soak().is_shorter(), "{refused}");
}

/// Aim: a segment of which nothing can be moved keeps no other from being cleaned, however large segments are. Method: the first summary of
/// one is damaged, and half of its files is overwritten, so that it is the emptiest; then all other files are, in place, several times.
#[test]
fn a_damaged_segment_is_passed_over() {
    const POINTS: &[&str] = &["lfs: nothing of a victim can be moved"];
    crate::rt::covered();
    simulate(1, async |rt| {
        let memory = Rc::new(Memory::new(160 * MIB));
        let device: Device = memory.clone();
        let options = MkfsOptions { segment_bytes: Some(2 * MIB), ..MkfsOptions::new([1, 2, 3, 4]) };
        mkfs(&rt, &device, &options).await.unwrap();
        let files = session(&rt, &device, async |client| {
            let content = vec![1; MIB as usize];
            let mut files = 0;
            while client.write_file(format!("/f{files}").as_bytes(), &content).await.is_ok() {
                files += 1;
            }
            for file in files - 5..=files {
                client.unlink(format!("/f{file}").as_bytes()).await.unwrap();
            }
            files - 5
        })
        .await;
        // It holds some of /f18 to /f22.
        let at = find::find_volume(&device).await.unwrap().layout.segment_start(10);
        let mut image = memory.image();
        let mut sector = vec![0; 512];
        image.read(at, &mut sector);
        sector[100] ^= 0xff;
        image.write(at, &sector);
        memory.set_image(image);
        let fs = mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
        let client = Client::new(fs.clone());
        let over = async |file: u64, block: u64, round: u64| {
            let open = client.open(format!("/f{file}").as_bytes(), OpenFlags::READ_WRITE).await.unwrap();
            let written = client.write(open, block * 65_536, &vec![round as u8; 65_536]).await;
            written.unwrap_or_else(|error| panic!("overwrite {round} of /f{file}: {error}"));
            client.fsync(open).await.unwrap();
            client.close(open).await.unwrap();
        };
        for file in 17..24 {
            for block in 0..7 {
                over(file, block, 2).await;
            }
        }
        let mut rng = Rng::new(1);
        for round in 0..2_500 {
            let file = rng.below(files - 7);
            over(if file < 17 { file } else { file + 7 }, rng.below(16), round).await;
        }
        assert_eq!(fs.check().await.unwrap(), Vec::<String>::new());
        fs.close().await.unwrap();
    });
    must_have_covered("fs::lfs::tests::damage::a_damaged_segment_is_passed_over", POINTS);
}

/// Aim: damage to one summary keeps no more from being moved than what it describes, and a check says how much that is. Method: small
/// files, each synced, so that a segment has many summaries; one is damaged, the first, one in the middle, or the last of its segment.
#[test]
fn what_is_behind_a_damaged_summary_is_moved() {
    const POINTS: &[&str] = &[
        "lfs: the cleaner goes on behind damage in a segment",
        "lfs: a check finds live data that no intact summary names",
    ];
    crate::rt::covered();
    for which in [0, 5, usize::MAX] {
        simulate(1, async |rt| {
            let (memory, device) = fresh(&rt, 32 * MIB).await;
            let files = 100;
            session(&rt, &device, async |client| {
                for file in 0..files {
                    client.write_file(format!("/f{file}").as_bytes(), &[file as u8; 8_192]).await.unwrap();
                    client.sync().await.unwrap();
                }
            })
            .await;
            let lfs =
                open(rt.clone(), device.clone(), Options { read_only: true, ..Options::default() }).await.unwrap();
            let (layout, end) = (lfs.state.borrow().log.layout, lfs.state.borrow().log.end);
            let mut image = memory.image();
            let mut bytes = vec![0; layout.segment_bytes() as usize];
            let fullest =
                (0..layout.segment_count()).filter(|segment| ![end.segment, end.next_segment].contains(segment));
            let fullest =
                fullest.max_by_key(|&segment| lfs.state.borrow().log.segments.get(segment).live_bytes).unwrap();
            image.read(layout.segment_start(fullest), &mut bytes);
            let partials = cleaner::partials_in(&layout, fullest, &bytes);
            let of_files = |partial: &&cleaner::FoundPartial| {
                let is_of_file = |item: &format::Item| matches!(item, format::Item::Block { ino, .. } if ino.0 > 3);
                partial.items.iter().any(is_of_file)
            };
            let partials: Vec<_> = partials.iter().filter(of_files).collect();
            assert!(partials.len() > 8, "{} summaries", partials.len());
            let spoilt = partials[which.min(partials.len() - 1)];
            drop(lfs);
            let mut sector = [0; 512];
            image.read(spoilt.start, &mut sector);
            sector[100] ^= 0xff;
            image.write(spoilt.start, &sector);
            memory.set_image(image);

            let found =
                fsck(rt.clone(), device.clone(), FsckOptions { data: true, ..FsckOptions::default() }).await.unwrap();
            assert_eq!(found.errors, Vec::<String>::new());
            let note = found.notes.iter().find(|note| note.contains("cannot be moved by the cleaner"));
            let note = note.unwrap_or_else(|| panic!("{which}: {:?}", found.notes));
            assert!(note.contains(&format!("in 1 segment of the log, the first of them segment {fullest}:")), "{note}");

            let lfs = open(rt.clone(), device.clone(), Options::default()).await.unwrap();
            lfs.move_segment(fullest, 0).await.unwrap();
            for _ in 0..3 {
                lfs.checkpoint(false).await.unwrap();
            }
            let left = lfs.state.borrow().log.segments.get(fullest).live_bytes;
            let held: u64 = spoilt.items.iter().map(|item| item.live_bytes()).sum();
            assert!(left > 0 && left <= held, "{which}: {left} bytes are left, and the summary described {held}");
            let client = Client::new(lfs.clone());
            for file in 0..files {
                let read = client.read_file(format!("/f{file}").as_bytes()).await.unwrap();
                assert!(read == [file as u8; 8_192], "{which}: /f{file}");
            }
            assert_eq!(lfs.check().await.unwrap(), Vec::<String>::new());
            lfs.close().await.unwrap();
            drop((client, lfs));
            // What is written again is elsewhere.
            session(&rt, &device, async |client| {
                for file in 0..files {
                    client.write_file(format!("/f{file}").as_bytes(), &[file as u8; 8_192]).await.unwrap();
                }
                client.sync().await.unwrap();
            })
            .await;
            let found = fsck(rt.clone(), device, FsckOptions { data: true, ..FsckOptions::default() }).await.unwrap();
            assert!(!found.notes.iter().any(|note| note.contains("cannot be moved")), "{which}: {:?}", found.notes);
        });
    }
    must_have_covered("fs::lfs::tests::damage::what_is_behind_a_damaged_summary_is_moved", POINTS);
}
