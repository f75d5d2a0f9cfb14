//! Aim: for any damage to the metadata of a UFS1 volume, mounting, reading, checking and repairing end in an error or a
//! result, in bounded memory. Method: each bit and many splices, with everything that the fuzz targets do.

use std::rc::Rc;

use async_trait::async_trait;

use super::replay;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::device::{Buf, Device, Image, Memory};
use crate::fs::client::Client;
use crate::fs::ffs::format::{Csum, FragNo, Inode, ROOT_INO, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock};
use crate::fs::ffs::{MkfsOptions, Options, info, mkfs, mount};
use crate::fs::{FileSystem, Fs};
use crate::rng::Rng;
use crate::rt::Rt;
use crate::stack::{BuildError, CheckOptions, Identity, LeafOpener, Purpose, Sharing, Stack, Verdict, Word};
use crate::testing::fuzz;
use crate::testing::volumes::simulate;
use crate::units::{MIB, SECTOR_BYTES, Sector};

/// A small volume with every kind of object, and the places of its metadata, in bytes.
fn small_volume() -> (Image, u64, Vec<std::ops::Range<u64>>) {
    const SMALL: u64 = 2 * MIB;
    let options = MkfsOptions {
        block_bytes: 4096,
        frag_bytes: 512,
        cylinders_per_group: 1,
        bytes_per_inode: Some(32_768),
        ..MkfsOptions::new([1, 2])
    };
    simulate(1, async |rt| {
        let memory = Rc::new(Memory::new(SMALL));
        let device: Device = memory.clone();
        mkfs(&rt, &device, &options).await.expect("mkfs");
        let ffs = mount(rt.clone(), device.clone(), Options::default()).await.expect("mount");
        {
            let client = Client::new(ffs.clone());
            client.mkdir(b"/d").await.unwrap();
            for index in 0..6 {
                client.write_file(format!("/d/f{index}").as_bytes(), &vec![index; 700 * index as usize]).await.unwrap();
            }
            client.write_file(b"/indirect", &vec![7; 14 * 4096]).await.unwrap();
            let far = client.create(b"/far").await.unwrap();
            client.write(far, (12 + 1024 + 5) * 4096, b"double").await.unwrap();
            client.close(far).await.unwrap();
            client.symlink(b"d/f1", b"/short").await.unwrap();
            client.symlink(&[b'x'; 200], b"/long").await.unwrap();
            client.link(b"/indirect", b"/d/link").await.unwrap();
        }
        ffs.close().await.expect("close");
        let layout = info(&device).await.unwrap().layout;
        let byte = |at: FragNo| layout.sector(at).byte_offset();
        let superblock = SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + Superblock::BYTES as u64;
        let mut ranges = Vec::from([superblock]);
        for group in layout.group_numbers() {
            let at = byte(layout.group_block(group));
            ranges.push(at..at + u64::from(layout.cgsize));
        }
        ranges.push(byte(layout.csaddr)..byte(layout.csaddr) + u64::from(layout.groups) * Csum::BYTES as u64);
        for ino in ROOT_INO.until(layout.ino_end()) {
            let (block, offset) = layout.inode_place(ino);
            let raw = device.read(layout.sector(block), Buf::zeroed(layout.block_bytes as usize)).await.unwrap();
            let inode = Inode::decode(&raw[offset..]).unwrap();
            if inode.mode == 0 {
                continue;
            }
            let at = byte(block) + offset as u64;
            ranges.push(at..at + Inode::BYTES as u64);
            if inode.is_directory() {
                ranges.push(byte(inode.db[0])..byte(inode.db[0]) + inode.size);
            }
            if !inode.has_no_blocks(layout.maxsymlinklen) {
                // The pointers in use, and some behind them.
                let trees = inode.ib.iter().filter(|&&at| at != FragNo::NONE);
                ranges.extend(trees.map(|&at| byte(at)..byte(at) + 32));
            }
        }
        (memory.image(), SMALL, ranges)
    })
}

/// Memory limit for examining one damaged image of [`small_volume`], some ten times the need of the sound one.
const MEMORY_MAX: u64 = 24 << 20;

fn bounded(what: &str, look: impl FnOnce() -> Result<(), String>) {
    let mut looked = Ok(());
    let used = allocation_counter::measure(|| looked = look()).bytes_max;
    assert_eq!(looked, Ok(()), "{what}");
    assert!(used <= MEMORY_MAX, "{what}: {used} bytes of memory");
}

/// Every bit of all metadata of a small volume, one at a time: the superblock, the groups with their maps, the summary,
/// inodes, directories, indirect blocks. Each is examined, and one in 16 also repaired and used; with `SEEKLESS_SOAK`,
/// all are.
#[test]
fn every_bit_of_metadata() {
    let (whole, bytes, ranges) = small_volume();
    let one_in = if replay("testing::tests::ffs_damage::every_bit_of_metadata").soak.is_longer() { 1 } else { 16 };
    let mut flips = 0;
    for at in ranges.into_iter().flatten() {
        let sector = Sector(at / SECTOR_BYTES);
        for bit in 0..8 {
            flips += 1;
            let mut image = whole.clone();
            let mut raw = [0; SECTOR_BYTES as usize];
            image.read(sector, &mut raw);
            raw[(at % SECTOR_BYTES) as usize] ^= 1 << bit;
            image.write(sector, &raw);
            let what = format!("bit {bit} of byte {at}");
            match flips % one_in {
                0 => bounded(&what, || fuzz::ffs::exercise(&image, bytes)),
                _ => bounded(&what, || fuzz::ffs::look_at(&image, bytes)),
            }
        }
    }
    assert!(flips > 30_000, "{flips}");
}

/// Pieces of a small volume in places of others, zeroes and noise.
#[test]
fn splices() {
    let (whole, bytes, ranges) = small_volume();
    let replay = replay("testing::tests::ffs_damage::splices");
    for seed in replay.seeds(0..400) {
        let mut rng = Rng::new(seed);
        let mut image = whole.clone();
        for _ in 0..rng.between(1, 3) {
            let place = |rng: &mut Rng| {
                let range = &ranges[rng.below(ranges.len() as u64) as usize];
                Sector(rng.between(range.start, range.end - 1) / SECTOR_BYTES)
            };
            let (from, to) = (place(&mut rng), place(&mut rng));
            let mut raw = [0; SECTOR_BYTES as usize];
            match rng.below(4) {
                0 => {}
                1 => rng.fill(&mut raw),
                _ => image.read(from, &mut raw),
            }
            image.write(to, &raw);
        }
        bounded(&replay.command(seed, None, None, None), || fuzz::ffs::exercise(&image, bytes));
    }
}

/// An FFS volume whose superblock is lost is damaged, and not something else: the check repairs it from a copy. Method:
/// the superblock without its magic number, all zeroes, and unreadable, for each block size.
#[test]
fn a_volume_without_its_superblock() {
    struct Kept(Device);

    #[async_trait(?Send)]
    impl LeafOpener for Kept {
        async fn device(&self, _: &Rt, _: &Word, _: Purpose) -> Result<Device, BuildError> {
            Ok(self.0.clone())
        }

        async fn file_system(&self, _: &Rt, word: &Word, _: Purpose, _: Sharing) -> Result<Fs, BuildError> {
            Err(BuildError::other(format!("no {word}")))
        }
    }

    let (at, sectors) = (Sector(SUPERBLOCK_OFFSET / SECTOR_BYTES), SUPERBLOCK_BYTES as u64 / SECTOR_BYTES);
    simulate(1, async |rt| {
        for block in ["4KiB", "8KiB", "16KiB", "32KiB", "64KiB"] {
            let memory = Rc::new(Memory::new(32 * MIB));
            let stack = Stack::parse(&format!("ffs:block={block} / file:a")).unwrap();
            stack
                .open(&rt, &Kept(memory.clone()), Purpose::Format)
                .await
                .unwrap()
                .mkfs(&Identity::new([1, 2, 3, 4]))
                .await
                .unwrap();
            let mut image = memory.image();
            image.zero(at, sectors);
            let device = Rc::new(Memory::from_image(32 * MIB, image));
            let faulty = FaultDevice::new(&rt, device.clone(), 1);
            faulty.add(Rule { sectors: Some(at..at + sectors), ..Rule::new(Kinds::READ, When::Always, Effect::Error) });
            let unreadable = Kept(faulty);
            let opened = stack.open_below(&rt, &unreadable, Purpose::Inspect).await.unwrap();
            assert!(opened.probe().await.is_err(), "{block}: it is something else");
            let leaves = Kept(device);
            let opened = stack.open_below(&rt, &leaves, Purpose::Use).await.unwrap();
            assert!(opened.probe().await.is_err(), "{block}: it is something else");
            let checked = opened.fsck(CheckOptions { repair: true, ..CheckOptions::default() }).await.unwrap();
            assert_eq!(checked.verdict(), Verdict::Repaired, "{block}: {checked:?}");
            assert!(opened.probe().await.unwrap().is_some(), "{block}");
        }
        let blank = Kept(Rc::new(Memory::new(32 * MIB)));
        let stack = Stack::parse("ffs / file:a").unwrap();
        let opened = stack.open_below(&rt, &blank, Purpose::Inspect).await.unwrap();
        assert_eq!(opened.probe().await.unwrap(), None);
    });
}
