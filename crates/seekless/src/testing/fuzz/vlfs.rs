//! VLFS volumes from arbitrary bytes: decoders, and whole volumes that were changed and given valid checksums again.
//!
//! As in LFS, everything has a checksum or a seal, so [`mount`] takes a real volume, changes fields and bytes, and
//! corrects what covers them.

use std::rc::Rc;
use std::sync::OnceLock;

use super::{Bench, Bytes, volume};
use crate::device::{Device, Image, Memory};
use crate::fs::client::Client;
use crate::fs::vlfs::format::*;
use crate::fs::vlfs::{self, Dump, FsckOptions, MkfsOptions, Options};
use crate::fs::{Fs, FsResult};
use crate::rt::{Limits, Rt};
use crate::testing::subject::simulate;
use crate::units::{MIB, Nanos, SECTOR_BYTES, Sector};
use crate::vlog::format::{ABOVE_AT, ANCHORS, Anchor, FIXED_BYTES, Key, Piece, PieceHead, Superblock};

const VOLUME_BYTES: u64 = MIB;

/// Limits for one volume: checked, mounted, read and changed.
const LIMITS: Limits = Limits { events: 4_000_000, until: Nanos::from_secs(100_000) };

/// Limit of changes in one input.
const CHANGES_MAX: usize = 16;

/// The decoders specific to this file system, with any bytes. What one accepts, its encoder reproduces.
pub fn decoders(input: &[u8]) {
    if let Some(record) = VolumeRecord::from_bytes(input) {
        assert_eq!(VolumeRecord::from_bytes(&record.to_bytes()), Some(record));
        let _ = record.label_text();
    }
    if let Some(parts) = parts_from_block(input) {
        assert_eq!(parts_from_block(&parts_to_block(&parts)), Some(parts));
    }
}

/// A volume to start from.
struct Base {
    image: Image,
    key: Key,
    /// Byte offsets of inodes, and of former ones.
    inodes: Vec<u64>,
    /// Byte offsets of pieces of the inode map.
    pieces: Vec<u64>,
}

fn base() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(|| match simulate(1, LIMITS, async |rt| make(&rt).await) {
        Ok(Ok(image)) => Base::new(image),
        Ok(Err(error)) => unreachable!("the volume to start from cannot be made: {error}"),
        Err(why) => unreachable!("the volume to start from cannot be made: {why}"),
    })
}

async fn make(rt: &Rt) -> FsResult<Image> {
    let memory = Rc::new(Memory::new(VOLUME_BYTES));
    let device: Device = memory.clone();
    vlfs::mkfs(rt, &device, &MkfsOptions::new([1, 2, 3, 4])).await?;
    let fs = vlfs::mount(rt.clone(), device, Options::default()).await?;
    let client = Client::new(fs.clone());
    client.mkdir(b"/d").await?;
    for number in 0..20 {
        client.write_file(format!("/d/f{number}").as_bytes(), &vec![number; 100 + 700 * usize::from(number)]).await?;
    }
    client.write_file(b"/indirect", &[7; 60_000]).await?;
    client.set_xattr(b"/indirect", b"user.short", b"value").await?;
    client.set_xattr(b"/d/f3", b"user.long", &[8; 9_000]).await?;
    client.symlink(b"d/f1", b"/link").await?;
    client.sync().await?;
    client.truncate(b"/indirect", 50_000).await?;
    fs.close().await?;
    Ok(memory.image())
}

impl Base {
    fn new(image: Image) -> Base {
        let mut block = vec![0; FIXED_BYTES];
        image.read(Sector::ZERO, &mut block);
        let Ok(superblock) = Superblock::from_block(&block) else { unreachable!("it was just made") };
        let key = superblock.key();
        let (mut inodes, mut pieces) = (Vec::new(), Vec::new());
        for sector in 0..VOLUME_BYTES / SECTOR_BYTES {
            let mut bytes = vec![0; SECTOR_BYTES as usize];
            image.read(Sector(sector), &mut bytes);
            if Piece::from_cell(&bytes, &key, sector).is_some() {
                pieces.push(sector * SECTOR_BYTES);
            }
            for (index, raw) in bytes.chunks_exact(Inode::BYTES).enumerate() {
                if Inode::unseal(raw).is_some() {
                    inodes.push(sector * SECTOR_BYTES + (index * Inode::BYTES) as u64);
                }
            }
        }
        Base { image, key, inodes, pieces }
    }
}

/// An inconsistent volume with valid checksums: it is refused, or the check's result is right.
pub fn mount(input: &[u8]) {
    let mut bytes = Bytes::new(input);
    let base = base();
    let mut bench = Bench { image: base.image.clone() };
    let mut changes = 0;
    while !bytes.is_empty() && changes < CHANGES_MAX {
        changes += 1;
        change(&mut bench, base, &mut bytes);
    }
    let image = bench.image;
    let run = simulate(1, LIMITS, async |rt| exercise(&rt, &image).await);
    if let Err(why) | Ok(Err(why)) = run {
        panic!("{why}");
    }
}

/// One change, usually with the seal or the checksum corrected.
fn change(bench: &mut Bench, base: &Base, bytes: &mut Bytes<'_>) {
    let kind = bytes.u8();
    let mends = kind & 0x80 == 0;
    match kind % 6 {
        0 => {
            let at = [0, VOLUME_BYTES - FIXED_BYTES as u64][usize::from(bytes.u8() % 2)];
            match bytes.u8() % 2 {
                0 => bench.change_field(at, Superblock::FIELDS, bytes),
                _ => bench.change_field(at + ABOVE_AT as u64, VolumeRecord::FIELDS, bytes),
            }
            let block = bench.read(at, FIXED_BYTES);
            if let Some(superblock) = Superblock::decode(&block).filter(|_| mends) {
                bench.write(at, &superblock.to_block_with(&block[ABOVE_AT..]));
            }
        }
        1 => {
            let at = ANCHORS[usize::from(bytes.u8() % 2)] * SECTOR_BYTES;
            bench.change_field(at, Anchor::FIELDS, bytes);
            let block = bench.read(at, FIXED_BYTES);
            if let Some(anchor) = Anchor::decode(&block).filter(|_| mends) {
                bench.write(at, &anchor.to_block());
            }
        }
        2 | 3 => {
            let Some(&at) = base.inodes.get(bytes.below(base.inodes.len() as u64) as usize) else { return };
            match bytes.u8() % 2 {
                0 => bench.change_field(at, Inode::FIELDS, bytes),
                _ => {
                    let slot = u64::from(bytes.u8()) % (POINTERS_IN_INODE as u64 + 1);
                    bench.change_field(at + 112 + slot * Pointer::BYTES as u64, RawPointer::FIELDS, bytes);
                }
            }
            let mut raw = bench.read(at, Inode::BYTES);
            if let Some(inode) = Inode::decode(&raw).filter(|_| mends) {
                inode.seal_into(&mut raw);
                bench.write(at, &raw);
            }
        }
        4 => {
            let Some(&at) = base.pieces.get(bytes.below(base.pieces.len() as u64) as usize) else { return };
            match bytes.u8() % 2 {
                0 => bench.change_field(at, PieceHead::FIELDS, bytes),
                _ => {
                    let entry = 120 + u64::from(bytes.u8()) % 98 * 4;
                    let value = (bytes.edge() as u32).to_le_bytes();
                    bench.write(at + entry, &value);
                }
            }
            let mut cell = bench.read(at, SECTOR_BYTES as usize);
            if mends {
                base.key.put_seal(&mut cell);
                bench.write(at, &cell);
            }
        }
        _ => {
            let kind = bytes.u8() % 4;
            let sector = |bytes: &mut Bytes<'_>| bytes.below(VOLUME_BYTES / SECTOR_BYTES) * SECTOR_BYTES;
            bench.scribble(kind, VOLUME_BYTES, bytes, sector);
        }
    }
}

/// Does everything with a volume that can be done.
async fn exercise(rt: &Rt, image: &Image) -> Result<(), String> {
    let device: Device = Rc::new(Memory::from_image(VOLUME_BYTES, image.clone()));
    let _ = vlfs::info(&device).await;
    for what in [Dump::Volume, Dump::Map, Dump::Inode(1)] {
        let _ = vlfs::dump(rt, &device, what).await;
    }
    let check = async || {
        let found =
            vlfs::fsck(rt.clone(), device.clone(), FsckOptions { data: true, ..FsckOptions::default() }).await?;
        Ok(found.errors)
    };
    let mount = async |read_only| -> FsResult<Fs> {
        vlfs::mount(rt.clone(), device.clone(), Options { read_only, ..Options::default() }).await
    };
    volume::exercise(check, mount).await
}
