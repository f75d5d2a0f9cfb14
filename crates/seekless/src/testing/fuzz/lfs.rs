//! LFS volumes from arbitrary bytes: decoders, and whole volumes that were changed and given valid checksums again.
//!
//! A checksum catches nearly every change of a volume, so a fuzzer that only flips bits never gets further. [`mount`]
//! takes a real volume, changes bytes or fields in it, and then, unless the input says otherwise, corrects the
//! checksums, from the leaves of the trees up to the checkpoint. The result is an inconsistent volume with valid
//! checksums.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::OnceLock;

use super::{Bench, Bytes, volume};
use crate::codec::{self, Field, crc32c};
use crate::device::{Device, Image, Memory};
use crate::fs::client::Client;
use crate::fs::lfs::format::*;
use crate::fs::lfs::layout::{BlockKey, Layout};
use crate::fs::lfs::{self, Dump, FsckOptions, MkfsOptions, Options};
use crate::fs::{AllocateMode, FileRange, Fs, FsResult, OpenFlags};
use crate::rt::{Limits, Rt};
use crate::testing::subject::simulate;
use crate::units::{MIB, Nanos, SECTOR_BYTES, Sector};

const VOLUME_BYTES: u64 = 9 * MIB;

/// Limits for one volume: checked, mounted, read, used and checked again.
const LIMITS: Limits = Limits { events: 3_000_000, until: Nanos::from_secs(1_000_000) };

/// Limit of changes in one input.
const CHANGES_MAX: usize = 32;

/// Every decoder, with any bytes. What one accepts, its encoder reproduces.
pub fn decoders(input: &[u8]) {
    if let Some(superblock) = Superblock::from_block(input) {
        assert!(Superblock::from_block(&superblock.to_block()) == Some(superblock));
        let _ = superblock.label_text();
    }
    if let Some(superblock) = Superblock::decode(input) {
        let _ = Layout::new(superblock, superblock.volume_sectors);
    }
    let _ = Checkpoint::from_block(input).map(Checkpoint::to_block);
    if let Some(inode) = Inode::decode(input) {
        let mut bytes = [0; Inode::BYTES];
        inode.encode(&mut bytes);
        assert!(bytes[..] == input[..Inode::BYTES]);
        let _ = (Inode::unseal(input), inode.kind(), inode.xattr_pointer(), inode.mtime_nanos_since_epoch());
        for slot in 0..POINTERS_IN_INODE {
            let _ = inode.pointer(slot);
        }
    }
    if let Some(pointer) = Pointer::decode(input) {
        let mut bytes = [0; Pointer::BYTES];
        pointer.encode(&mut bytes);
        assert!(bytes[..] == input[..Pointer::BYTES], "{pointer:?} is encoded in two ways");
        let _ = (pointer.live_bytes(), pointer.used_bytes());
    }
    for slot in 0..POINTERS_PER_BLOCK {
        let _ = pointer_in_block(input, slot);
    }
    if let Some(item) = SummaryEntry::decode(input).and_then(|entry| Item::from_entry(&entry)) {
        assert!(Item::from_entry(&item.to_entry()) == Some(item));
        let _ = (item.sectors(), item.live_bytes());
    }
    if let Some(summary) = Summary::decode(input) {
        let _ = (partial_is_sealed(input, &summary), summary_items(input, &summary));
    }
    let mut bytes = Bytes::new(input);
    let (depth, prefix) = (u32::from(bytes.u8()), bytes.u64());
    let rest = bytes.take(BLOCK_BYTES);
    let _ = lfs::dir::decode_leaf(rest, depth, prefix);
    if let Some(leaf) = Leaf::decode(rest) {
        let _ = lfs::dir::decode_leaf(rest, leaf.depth, leaf.prefix);
    }
    let _ = lfs::xattr::decode(input);
}

/// A record on a volume.
#[derive(Clone, Copy, Debug)]
struct StoredRecord {
    /// Byte offset on the volume.
    at: u64,
    fields: &'static [Field],
}

/// A partial segment of the log.
#[derive(Clone, Debug)]
struct Partial {
    start: Sector,
    sectors: u64,
    /// Inodes in it, as byte offsets on the volume.
    inodes: Vec<u64>,
    /// Copies of checkpoints in it.
    checkpoints: Vec<u64>,
    /// Indirect blocks in it: level, byte offset, bytes.
    nodes: Vec<(usize, u64, usize)>,
}

/// A volume to start from, and the places of its structures.
struct Base {
    image: Image,
    /// Sectors in use.
    used: Vec<Sector>,
    records: Vec<StoredRecord>,
    /// In the order of the log.
    partials: Vec<Partial>,
    backup: Sector,
}

impl Bench {
    /// Gives a pointer the checksum of its target, if that is on the volume.
    fn mend_pointer(&self, pointer: Option<Pointer>) -> Option<Pointer> {
        match pointer? {
            Pointer::Mapped { at, sectors, .. } if at.0 + u64::from(sectors) <= VOLUME_BYTES / SECTOR_BYTES => {
                let stored = self.read(at.byte_offset(), usize::from(sectors) * SECTOR_BYTES as usize);
                Some(Pointer::Mapped { at, sectors, crc: crc32c(&stored) })
            }
            _ => None,
        }
    }

    fn mend_inode(&mut self, at: u64) {
        let Some(mut inode) = Inode::decode(&self.read(at, Inode::BYTES)) else { return };
        for slot in 0..POINTERS_IN_INODE {
            if inode.flags & INODE_INLINE == 0
                && let Some(mended) = self.mend_pointer(inode.pointer(slot))
            {
                inode.set_pointer(slot, mended);
            }
        }
        if let Some(mended) = self.mend_pointer(inode.xattr_pointer()) {
            mended.encode(&mut inode.xattr);
        }
        let mut bytes = [0; Inode::BYTES];
        inode.seal_into(&mut bytes);
        self.write(at, &bytes);
    }

    /// The checkpoint at `at`, and the three inodes in it. The copy in a slot is padded with zeroes; that in the log is
    /// not.
    fn mend_checkpoint(&mut self, at: u64) {
        let offsets = Checkpoint::FIELDS.iter().filter(|field| field.size == Inode::BYTES);
        for field in offsets {
            self.mend_inode(at + field.offset as u64);
        }
        if let Some(checkpoint) = Checkpoint::decode(&self.read(at, Checkpoint::BYTES)) {
            let block = checkpoint.to_block();
            self.write(at, &block[..(CHECKPOINT_SECTORS_IN_LOG * SECTOR_BYTES) as usize]);
        }
    }

    fn mend_superblock(&mut self, at: u64) {
        if let Some(superblock) = Superblock::decode(&self.read(at, Superblock::BYTES)) {
            self.write(at, &superblock.to_block());
        }
    }
}

/// Which checksums are left uncorrected after the changes. None if no bit is set.
const KEEP_SUPERBLOCKS: u8 = 1;
const KEEP_CHECKPOINTS: u8 = 2;
const KEEP_TREES: u8 = 4;
const KEEP_LOG: u8 = 8;

impl Base {
    fn new(options: Options, life: impl AsyncFn(&Rt, &Device, Options) -> FsResult<()>) -> Base {
        let made = simulate(1, LIMITS, async |rt| {
            let memory = Rc::new(Memory::new(VOLUME_BYTES));
            let device: Device = memory.clone();
            let lived = live(&rt, &device, options, life).await;
            lived.map(|()| memory.image())
        });
        let image = match made {
            Ok(Ok(image)) => image,
            Ok(Err(error)) => unreachable!("the volume to start from cannot be made: {error}"),
            Err(why) => unreachable!("the volume to start from cannot be made: {why}"),
        };
        let bench = Bench { image };
        let block = bench.read(0, BLOCK_BYTES);
        let layout = Superblock::from_block(&block).and_then(|superblock| {
            let sectors = VOLUME_BYTES / SECTOR_BYTES;
            Layout::new(superblock, sectors).ok()
        });
        let Some(layout) = layout else { unreachable!("mkfs has just written a good superblock") };
        let used = (0..VOLUME_BYTES / SECTOR_BYTES).map(Sector);
        let used =
            used.filter(|sector| bench.read(sector.byte_offset(), SECTOR_BYTES as usize).iter().any(|&byte| byte != 0));
        let used = used.collect();
        let mut base = Base {
            image: bench.image.clone(),
            used,
            records: Vec::new(),
            partials: Vec::new(),
            backup: layout.superblock_backup(),
        };
        base.find_records(&bench, &layout);
        base
    }

    fn find_records(&mut self, bench: &Bench, layout: &Layout) {
        let mut add = |at: u64, fields: &'static [Field]| self.records.push(StoredRecord { at, fields });
        for place in SUPERBLOCK_SECTORS.into_iter().chain([self.backup]) {
            add(place.byte_offset(), Superblock::FIELDS);
        }
        for slot in CHECKPOINT_SECTORS {
            for copy in 0..2 {
                add(slot.byte_offset() + copy * BLOCK_BYTES as u64, Checkpoint::FIELDS);
            }
        }
        // Segments are not filled in the order of their numbers.
        let mut partials = BTreeMap::new();
        for segment in 0..layout.segment_count() {
            let mut offset = 0;
            while offset < layout.segment_sectors() {
                let start = layout.segment_start(segment) + offset;
                let rest = (layout.segment_sectors() - offset) * SECTOR_BYTES;
                let bytes = bench.read(start.byte_offset(), rest as usize);
                let Some(summary) = Summary::decode(&bytes).filter(|summary| summary.magic == SUMMARY_MAGIC) else {
                    break;
                };
                let length = (u64::from(summary.sectors) * SECTOR_BYTES).min(rest) as usize;
                let partial = &bytes[..length];
                if !partial_is_sealed(partial, &summary) {
                    break;
                }
                let Some(items) = summary_items(partial, &summary) else { break };
                let found = records_of(start, partial, &summary, &items, &mut add);
                partials.insert(summary.sequence, found);
                offset += u64::from(summary.sectors);
            }
        }
        self.partials = partials.into_values().collect();
    }

    /// Corrects checksums, from the leaves of the trees upwards.
    fn mend(&self, bench: &mut Bench, keep: u8) {
        if keep & KEEP_TREES == 0 {
            let mut nodes: Vec<_> = self.partials.iter().flat_map(|partial| partial.nodes.iter().copied()).collect();
            nodes.sort_unstable();
            for (_, at, bytes) in nodes {
                let mut block = bench.read(at, bytes);
                block.resize(BLOCK_BYTES, 0);
                for slot in 0..POINTERS_PER_BLOCK {
                    if let Some(mended) = bench.mend_pointer(pointer_in_block(&block, slot)) {
                        set_pointer_in_block(&mut block, slot, mended);
                    }
                }
                bench.write(at, &block[..bytes]);
            }
            for &at in self.partials.iter().flat_map(|partial| &partial.inodes) {
                bench.mend_inode(at);
            }
        }
        if keep & KEEP_CHECKPOINTS == 0 {
            let slots = CHECKPOINT_SECTORS.iter().map(|slot| slot.byte_offset());
            let slots: Vec<u64> = slots.flat_map(|slot| [slot, slot + BLOCK_BYTES as u64]).collect();
            let slots = slots.into_iter().filter(|&slot| bench.read(slot, BLOCK_BYTES).iter().any(|&byte| byte != 0));
            let in_log = self.partials.iter().flat_map(|partial| partial.checkpoints.iter().copied());
            for at in slots.chain(in_log).collect::<Vec<_>>() {
                bench.mend_checkpoint(at);
            }
        }
        if keep & KEEP_LOG == 0 {
            let mut chain = None;
            for partial in &self.partials {
                let at = partial.start.byte_offset();
                let mut bytes = bench.read(at, (partial.sectors * SECTOR_BYTES) as usize);
                if let Some(chain) = chain {
                    let field = Summary::FIELDS.iter().find(|field| field.name == "chain");
                    codec::put_at::<u32>(&mut bytes, field.map_or(0, |field| field.offset), chain);
                }
                chain = Some(seal_partial(&mut bytes));
                bench.write(at, &bytes);
            }
        }
        if keep & KEEP_SUPERBLOCKS == 0 {
            for place in SUPERBLOCK_SECTORS.into_iter().chain([self.backup]) {
                bench.mend_superblock(place.byte_offset());
            }
        }
    }
}

/// Adds the records of one partial segment.
fn records_of(
    start: Sector,
    bytes: &[u8],
    summary: &Summary,
    items: &[Item],
    add: &mut impl FnMut(u64, &'static [Field]),
) -> Partial {
    let at = start.byte_offset();
    let mut partial = Partial {
        start,
        sectors: summary.sectors.into(),
        inodes: Vec::new(),
        checkpoints: Vec::new(),
        nodes: Vec::new(),
    };
    add(at, Summary::FIELDS);
    let mut payload = u64::from(summary.summary_sectors) * SECTOR_BYTES;
    for (index, item) in items.iter().enumerate() {
        add(at + (Summary::BYTES + index * SummaryEntry::BYTES) as u64, SummaryEntry::FIELDS);
        let place = at + payload;
        let length = item.sectors() * SECTOR_BYTES;
        match *item {
            Item::Inodes { count, .. } => {
                for index in 0..u64::from(count) {
                    let inode = place + index * Inode::BYTES as u64;
                    add(inode, Inode::FIELDS);
                    partial.inodes.push(inode);
                }
            }
            Item::Checkpoint { .. } => {
                add(place, Checkpoint::FIELDS);
                partial.checkpoints.push(place);
            }
            Item::Block { key, .. } if !BlockKey(key).is_data() => {
                partial.nodes.push((BlockKey(key).level(), place, length as usize));
                // Some of its pointers; the others are reached as bytes.
                (0..8).for_each(|slot| add(place + slot * Pointer::BYTES as u64, RawPointer::FIELDS));
            }
            Item::Block { .. } => {
                let block = &bytes[payload as usize..(payload + length) as usize];
                if Leaf::decode(block).is_some_and(|leaf| leaf.magic == LEAF_MAGIC) {
                    add(place, Leaf::FIELDS);
                    add(place + Leaf::BYTES as u64, LeafEntry::FIELDS);
                }
            }
            _ => {}
        }
        payload += length;
    }
    partial
}

/// Makes a volume, uses it, and ends with a power cut.
async fn live(
    rt: &Rt,
    device: &Device,
    options: Options,
    life: impl AsyncFn(&Rt, &Device, Options) -> FsResult<()>,
) -> FsResult<()> {
    lfs::mkfs(rt, device, &MkfsOptions::new([1, 2, 3, 4])).await?;
    life(rt, device, options).await
}

/// A sample of everything that a volume can hold.
async fn furnish(client: &Client) -> FsResult<()> {
    client.mkdir(b"/d").await?;
    for name in 0..60 {
        client.write_file(format!("/d/name {name}").as_bytes(), &[name; 100]).await?;
    }
    client.write_file(b"/blocks", &[7; 50_000]).await?;
    for offset in [0, 40 * 4096, 400 * 4096, 200_000 * 4096] {
        let file = client.open_or_create(b"/far").await?;
        client.write(file, offset, b"far away").await?;
        client.close(file).await?;
    }
    client.link(b"/blocks", b"/d/link").await?;
    client.symlink(b"target", b"/short").await?;
    client.symlink(&[b'l'; 1000], b"/long").await?;
    client.set_xattr(b"/blocks", b"user.short", b"value").await?;
    client.set_xattr(b"/d", b"user.long", &[1; 5000]).await?;
    let range = FileRange { offset: 100_000, bytes: 100_000 };
    client.fallocate(b"/blocks", range, AllocateMode::Allocate { keep_size: false }).await?;
    let hole = FileRange { offset: 8192, bytes: 8192 };
    client.fallocate(b"/blocks", hole, AllocateMode::PunchHole).await?;
    client.write_file(b"/in use", &[9; 9000]).await?;
    client.open(b"/in use", OpenFlags::READ_WRITE).await?;
    client.unlink(b"/in use").await
}

/// Everything behind the first checkpoint, to be replayed.
async fn all_in_the_log(rt: &Rt, device: &Device, options: Options) -> FsResult<()> {
    let lfs = lfs::mount(rt.clone(), device.clone(), options).await?;
    let client = Client::new(lfs);
    furnish(&client).await?;
    client.fsync_dir(b"/").await?;
    client.write_file(b"/d/name 1", b"short").await?;
    client.unlink(b"/d/name 2").await?;
    client.fsync_dir(b"/d").await
}

/// Everything in a checkpoint, then some more operations.
async fn all_in_a_checkpoint(rt: &Rt, device: &Device, options: Options) -> FsResult<()> {
    let lfs = lfs::mount(rt.clone(), device.clone(), options).await?;
    furnish(&Client::new(lfs.clone())).await?;
    lfs.close().await?;
    drop(lfs);
    let lfs = lfs::mount(rt.clone(), device.clone(), options).await?;
    let client = Client::new(lfs);
    client.write_file(b"/d/name 1", b"short").await?;
    client.unlink(b"/d/name 2").await?;
    client.fsync_dir(b"/d").await
}

/// Everything in a checkpoint, and the volume closed.
async fn closed(rt: &Rt, device: &Device, options: Options) -> FsResult<()> {
    let lfs = lfs::mount(rt.clone(), device.clone(), options).await?;
    let client = Client::new(lfs.clone());
    furnish(&client).await?;
    lfs.close().await
}

fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| {
        let plain = Options::default();
        let in_log = Options { indirect_in_log: true, ..plain };
        vec![
            Base::new(plain, all_in_the_log),
            Base::new(in_log, all_in_the_log),
            Base::new(plain, all_in_a_checkpoint),
            Base::new(plain, closed),
        ]
    })
}

/// Makes a change on `bench`.
fn change(base: &Base, bench: &mut Bench, bytes: &mut Bytes<'_>) {
    let sector = |bytes: &mut Bytes<'_>| bytes.pick(&base.used).byte_offset();
    match bytes.u8() % 8 {
        // Fields of records, where changes have the most effect.
        0..=3 => {
            let record = bytes.pick(&base.records);
            bench.change_field(record.at, record.fields, bytes);
        }
        kind => bench.scribble(kind - 4, VOLUME_BYTES, bytes, sector),
    }
}

/// A changed volume: checking, mounting, reading and using it ends with a result or an error; a volume without findings
/// can be mounted, read completely, used, and is then still right.
pub fn mount(input: &[u8]) {
    let mut bytes = Bytes::new(input);
    let (choice, keep) = (bytes.u8(), bytes.u8());
    let mut volume_bytes = VOLUME_BYTES;
    let bases = bases();
    let image = match bases.get(usize::from(choice % 16)) {
        Some(base) => {
            let mut bench = Bench { image: base.image.clone() };
            for _ in 0..CHANGES_MAX {
                if bytes.is_empty() {
                    break;
                }
                change(base, &mut bench, &mut bytes);
            }
            base.mend(&mut bench, keep);
            bench.image
        }
        // Not a volume: the input itself, at some place, on a device of some size.
        None => {
            let mut image = Image::default();
            let at = u64::from(bytes.u8());
            volume_bytes = (u64::from(bytes.u16()) * SECTOR_BYTES).max(SECTOR_BYTES);
            let room = volume_bytes.saturating_sub(at * SECTOR_BYTES) as usize;
            let all = bytes.take(room);
            let whole = all.len() / SECTOR_BYTES as usize * SECTOR_BYTES as usize;
            image.write(Sector(at), &all[..whole]);
            image
        }
    };
    let run = simulate(1, LIMITS, async |rt| exercise(&rt, &image, volume_bytes).await);
    if let Err(why) | Ok(Err(why)) = run {
        panic!("{why}");
    }
}

/// Does everything with a volume that can be done.
async fn exercise(rt: &Rt, image: &Image, volume_bytes: u64) -> Result<(), String> {
    let device: Device = Rc::new(Memory::from_image(volume_bytes, image.clone()));
    let _ = lfs::info(&device).await;
    for what in [Dump::Volume, Dump::Log, Dump::Segment(0), Dump::InodeSlot(1_000)] {
        let _ = lfs::dump(&device, what).await;
    }
    let check = async || {
        let found = lfs::fsck(rt.clone(), device.clone(), FsckOptions { data: true, ..FsckOptions::default() }).await?;
        Ok(found.errors)
    };
    let mount = async |read_only| -> FsResult<Fs> {
        lfs::mount(rt.clone(), device.clone(), Options { read_only, ..Options::default() }).await
    };
    volume::exercise(check, mount).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    /// Aim: the volumes to start from are sound, their map is complete, and correcting a sound volume changes nothing.
    /// Method: a check.
    #[test]
    fn the_bases_are_sound() {
        for (number, base) in bases().iter().enumerate() {
            let kinds = [Superblock::FIELDS, Checkpoint::FIELDS, Summary::FIELDS, Inode::FIELDS, Leaf::FIELDS];
            for fields in kinds {
                let found = base.records.iter().filter(|record| record.fields == fields).count();
                assert!(found > 0, "base {number} has no {}", fields[0].name);
            }
            assert!(base.partials.len() > 2, "base {number}");
            let mut bench = Bench { image: base.image.clone() };
            base.mend(&mut bench, 0);
            for sector in &base.used {
                let at = sector.byte_offset();
                let (old, new) = (
                    Bench { image: base.image.clone() }.read(at, SECTOR_BYTES as usize),
                    bench.read(at, SECTOR_BYTES as usize),
                );
                assert!(old == new, "base {number}: mending changes sector {sector}");
            }
            mount(&[number as u8]);
        }
    }

    /// Aim: corrected changes pass the checksums. Method: the size of an inode is changed in the log; with its checksum
    /// corrected, the volume has the new size; without, the volume is refused or cut short.
    #[test]
    fn mended_changes_are_believed() {
        let base = &bases()[0];
        let inode = base.records.iter().rev().find(|record| record.fields == Inode::FIELDS).expect("an inode");
        let uid = Inode::FIELDS.iter().find(|field| field.name == "uid").expect("a field");
        let owned = |keep: u8| {
            let mut bench = Bench { image: base.image.clone() };
            bench.write(inode.at + uid.offset as u64, &4711u32.to_le_bytes());
            base.mend(&mut bench, keep);
            let image = bench.image;
            let tree = simulate(1, LIMITS, async |rt| {
                let device: Device = Rc::new(Memory::from_image(VOLUME_BYTES, image));
                let lfs = lfs::mount(rt, device, Options { read_only: true, ..Options::default() }).await?;
                Tree::of(lfs).await
            });
            tree.expect("it ends").is_ok_and(|tree| tree.nodes.values().any(|node| node.uid == 4711))
        };
        assert!(owned(0));
        assert!(!owned(KEEP_TREES | KEEP_LOG));
    }
}
