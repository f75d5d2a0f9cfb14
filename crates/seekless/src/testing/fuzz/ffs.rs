//! UFS1 volumes from arbitrary bytes: decoders, and whole volumes that were changed.
//!
//! The format has no checksums, so every change is believed until it contradicts something else. [`mount`] changes
//! fields and bytes of a real volume, and requires that every operation ends with a result or an error; that a volume
//! without findings works; and that a repaired one is right afterwards.

use std::rc::Rc;
use std::sync::OnceLock;

use super::volume::{said, tolerated};
use super::{Bench, Bytes};
use crate::codec::Field;
use crate::device::{Device, Image, Memory};
use crate::fs::client::Client;
use crate::fs::ffs::format::*;
use crate::fs::ffs::layout::Layout;
use crate::fs::ffs::{self, Dump, FsckOptions, MkfsOptions, Options};
use crate::fs::{AllocateMode, FileKind, FileRange, FileSystem, FsError, FsResult, OpenFlags};
use crate::rt::{Limits, Rt};
use crate::testing::subject::simulate;
use crate::units::{Ino, MIB, Nanos, SECTOR_BYTES, Sector};

const VOLUME_BYTES: u64 = 6 * MIB;

/// Limits for one volume: checked, mounted, read, used, repaired and used again.
const LIMITS: Limits = Limits { events: 3_000_000, until: Nanos::from_secs(1_000_000) };

/// Limit of changes in one input.
const CHANGES_MAX: usize = 32;

/// Every decoder, with any bytes. What one accepts, its encoder reproduces.
pub fn decoders(input: &[u8]) {
    let _ = decode_superblock(input);
    if let Some(superblock) = Superblock::decode(input) {
        let mut bytes = [0; Superblock::BYTES];
        superblock.encode(&mut bytes);
        assert!(bytes[..] == input[..Superblock::BYTES]);
        let _ = (superblock.totals(), Layout::new(&superblock, input, 1 << 40).map(|layout| layout.ino_end()));
    }
    if let Some(group) = Group::decode(input) {
        let mut bytes = [0; Group::BYTES];
        group.encode(&mut bytes);
        assert!(bytes[..] == input[..Group::BYTES]);
    }
    if let Some(inode) = Inode::decode(input) {
        let mut bytes = [0; Inode::BYTES];
        inode.encode(&mut bytes);
        assert!(bytes[..] == input[..Inode::BYTES]);
        let _ = (inode.kind(), inode.has_no_blocks(60), inode.atime(), inode.mtime(), inode.ctime());
        let mut again = Inode::FREE;
        again.set_inline(&inode.inline());
        assert!(again.db == inode.db && again.ib == inode.ib);
    }
    for chunk in input.chunks(DIR_CHUNK_BYTES) {
        let Ok(entries) = dirents(chunk) else { continue };
        assert!(entries.iter().map(|entry| entry.record_bytes).sum::<usize>() == chunk.len());
        for entry in entries.iter().filter(|entry| entry.ino != InodeNo::NONE) {
            let mut written = vec![0; DIR_CHUNK_BYTES];
            put_dirent(&mut written, 0, entry.ino, entry.record_bytes, entry.kind, entry.name);
            let read = dirent_at(&written, 0).map(|read| (read.ino, read.kind, read.name.to_vec()));
            assert!(read == Ok((entry.ino, entry.kind, entry.name.to_vec())));
        }
    }
}

/// A record on a volume.
#[derive(Clone, Copy, Debug)]
struct StoredRecord {
    /// Byte offset on the volume.
    at: u64,
    fields: &'static [Field],
}

/// The head of an entry of a directory.
const DIRENT: &[Field] = &[
    Field { name: "ino", offset: 0, size: 4 },
    Field { name: "record_bytes", offset: 4, size: 2 },
    Field { name: "kind", offset: 6, size: 1 },
    Field { name: "name_bytes", offset: 7, size: 1 },
    Field { name: "name", offset: 8, size: 2 },
];

/// A pointer of an indirect block.
const POINTER: &[Field] = &[Field { name: "pointer", offset: 0, size: 4 }];

/// A volume to start from, and the places of its structures.
struct Base {
    image: Image,
    /// Sectors in use.
    used: Vec<Sector>,
    records: Vec<StoredRecord>,
    /// Valid addresses, as targets for pointers.
    places: Vec<FragNo>,
}

impl Base {
    fn new(mkfs: MkfsOptions, is_closed: bool) -> Base {
        let made = simulate(1, LIMITS, async |rt| {
            let memory = Rc::new(Memory::new(VOLUME_BYTES));
            let device: Device = memory.clone();
            let layout = live(&rt, &device, &mkfs, is_closed).await?;
            Ok::<_, FsError>((memory.image(), layout))
        });
        let (image, layout) = match made {
            Ok(Ok(made)) => made,
            Ok(Err(error)) => unreachable!("the volume to start from cannot be made: {error}"),
            Err(why) => unreachable!("the volume to start from cannot be made: {why}"),
        };
        let bench = Bench { image };
        let used = (0..VOLUME_BYTES / SECTOR_BYTES).map(Sector);
        let used =
            used.filter(|sector| bench.read(sector.byte_offset(), SECTOR_BYTES as usize).iter().any(|&byte| byte != 0));
        let used = used.collect();
        let mut base = Base { image: bench.image.clone(), used, records: Vec::new(), places: vec![FragNo::NONE] };
        base.find_records(&bench, &layout);
        base
    }

    fn find_records(&mut self, bench: &Bench, layout: &Layout) {
        let byte = |at: FragNo| layout.sector(at).byte_offset();
        let mut add = |at: u64, fields: &'static [Field]| self.records.push(StoredRecord { at, fields });
        add(SUPERBLOCK_OFFSET, Superblock::FIELDS);
        for group in layout.group_numbers() {
            add(byte(layout.group_block(group)), Group::FIELDS);
            self.places.push(layout.group_block(group));
        }
        for ino in ROOT_INO.until(layout.ino_end()) {
            let (block, offset) = layout.inode_place(ino);
            let at = byte(block) + offset as u64;
            let Some(inode) = Inode::decode(&bench.read(at, Inode::BYTES)).filter(|inode| inode.mode != 0) else {
                continue;
            };
            add(at, Inode::FIELDS);
            if inode.has_no_blocks(layout.maxsymlinklen) {
                continue;
            }
            self.places.extend(inode.db.iter().chain(&inode.ib));
            for &block in inode.ib.iter().filter(|&&block| block != FragNo::NONE) {
                (0..6).for_each(|slot| add(byte(block) + slot * 4, POINTER));
            }
            if inode.is_directory() {
                let bytes = bench.read(byte(inode.db[0]), inode.size.min(4096) as usize);
                for (index, chunk) in bytes.chunks_exact(DIR_CHUNK_BYTES).enumerate() {
                    for entry in dirents(chunk).unwrap_or_default().iter().take(4) {
                        add(byte(inode.db[0]) + (index * DIR_CHUNK_BYTES + entry.offset) as u64, DIRENT);
                    }
                }
            }
        }
    }
}

/// Makes a volume and uses it; ends with a power cut, or closes it.
async fn live(rt: &Rt, device: &Device, mkfs: &MkfsOptions, is_closed: bool) -> FsResult<Layout> {
    ffs::mkfs(rt, device, mkfs).await?;
    let layout = ffs::info(device).await?.layout;
    let ffs = ffs::mount(rt.clone(), device.clone(), Options::default()).await?;
    let client = Client::new(ffs.clone());
    client.mkdir(b"/d").await?;
    client.mkdir(b"/d/below").await?;
    for name in 0..40 {
        client.write_file(format!("/d/name {name}").as_bytes(), &[name; 100]).await?;
    }
    client.write_file(b"/d/below/file", b"deep").await?;
    client.write_file(b"/blocks", &vec![7; 13 * layout.block_bytes as usize + 1]).await?;
    let block = u64::from(layout.block_bytes);
    let pointers = u64::from(layout.pointers_per_block);
    for lbn in [0, 14, 12 + pointers + 3, 12 + pointers + pointers * pointers + 5] {
        let file = client.open_or_create(b"/far").await?;
        client.write(file, lbn * block, b"far away").await?;
        client.close(file).await?;
    }
    client.link(b"/blocks", b"/d/link").await?;
    client.symlink(b"target", b"/short").await?;
    client.symlink(&[b'l'; 1000], b"/long").await?;
    let hole = FileRange { offset: block, bytes: block };
    client.fallocate(b"/blocks", hole, AllocateMode::PunchHole).await?;
    client.write_file(b"/in use", &[9; 9000]).await?;
    client.open(b"/in use", OpenFlags::READ_WRITE).await?;
    client.sync().await?;
    client.unlink(b"/in use").await?;
    client.write_file(b"/late", &[1; 3000]).await?;
    if is_closed {
        ffs.close().await?;
    }
    Ok(layout)
}

fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| {
        let small = MkfsOptions { cylinders_per_group: 2, bytes_per_inode: Some(32_768), ..MkfsOptions::new([1, 2]) };
        let narrow = MkfsOptions { block_bytes: 4096, frag_bytes: 512, lite2: true, ..small.clone() };
        vec![Base::new(small.clone(), true), Base::new(small, false), Base::new(narrow, true)]
    })
}

/// Makes a change on `bench`.
fn change(base: &Base, bench: &mut Bench, bytes: &mut Bytes<'_>) {
    let sector = |bytes: &mut Bytes<'_>| bytes.pick(&base.used).byte_offset();
    match bytes.u8() % 8 {
        // Fields of records, where changes have the most effect.
        0..=2 => {
            let record = bytes.pick(&base.records);
            bench.change_field(record.at, record.fields, bytes);
        }
        // A pointer or a number gets a value that is valid elsewhere.
        3 => {
            let record = bytes.pick(&base.records);
            let field = bytes.pick(record.fields);
            let slots = (field.size / 4).max(1) as u64;
            let value = bytes.pick(&base.places).0.to_le_bytes();
            let at = record.at + field.offset as u64 + 4 * bytes.below(slots);
            bench.write(at, &value[..field.size.min(4)]);
        }
        kind => bench.scribble(kind - 4, VOLUME_BYTES, bytes, sector),
    }
}

/// A changed volume: checking, mounting, reading, using and repairing it ends with a result or an error. A volume
/// without findings, and a repaired one, can be mounted, read and used, and is then right.
pub fn mount(input: &[u8]) {
    let mut bytes = Bytes::new(input);
    let mut volume_bytes = VOLUME_BYTES;
    let bases = bases();
    let image = match bases.get(usize::from(bytes.u8() % 16)) {
        Some(base) => {
            let mut bench = Bench { image: base.image.clone() };
            for _ in 0..CHANGES_MAX {
                if bytes.is_empty() {
                    break;
                }
                change(base, &mut bench, &mut bytes);
            }
            bench.image
        }
        // Not a volume: the input itself, where a superblock would be, on a device of some size.
        None => {
            let mut image = Image::default();
            volume_bytes = (u64::from(bytes.u16()) * SECTOR_BYTES).max(SECTOR_BYTES);
            let room = volume_bytes.saturating_sub(SUPERBLOCK_OFFSET) as usize;
            let all = bytes.take(room);
            let whole = all.len() / SECTOR_BYTES as usize * SECTOR_BYTES as usize;
            image.write(Sector(SUPERBLOCK_OFFSET / SECTOR_BYTES), &all[..whole]);
            image
        }
    };
    if let Err(why) = exercise(&image, volume_bytes) {
        panic!("{why}");
    }
}

/// Examines a volume: checks it, mounts it read-only and reads it. Ends with a result or an error, in bounded time; a
/// volume without findings can be read.
///
/// # Errors
/// What was violated.
pub fn look_at(image: &Image, volume_bytes: u64) -> Result<(), String> {
    let looked = simulate(1, LIMITS, async |rt| {
        let device: Device = Rc::new(Memory::from_image(volume_bytes, image.clone()));
        let found = ffs::fsck(&rt, &device, FsckOptions::default()).await;
        let read = read_it(&rt, &device).await;
        match (found.is_ok_and(|found| found.is_clean()), read) {
            (true, Err(error)) => Err(format!("the check found nothing, but {error}")),
            _ => Ok(()),
        }
    });
    looked?
}

/// Does everything with a volume that [`mount`] does.
///
/// # Errors
/// What was violated.
pub fn exercise(image: &Image, volume_bytes: u64) -> Result<(), String> {
    simulate(1, LIMITS, async |rt| exercise_in(&rt, image, volume_bytes).await)?
}

async fn exercise_in(rt: &Rt, image: &Image, volume_bytes: u64) -> Result<(), String> {
    let on_bench = || -> Device { Rc::new(Memory::from_image(volume_bytes, image.clone())) };
    let device = on_bench();
    let _ = ffs::info(&device).await;
    for what in
        [Dump::Volume, Dump::Groups, Dump::Group(GroupNo(1)), Dump::Inode(ROOT_INO), Dump::Fragment(FragNo(100))]
    {
        let _ = ffs::dump(&device, what).await;
    }
    let found = ffs::fsck(rt, &device, FsckOptions::default()).await;
    let right = found.as_ref().is_ok_and(|found| found.is_clean());
    match use_it(rt, &device).await {
        Err(error) if right => return Err(format!("the check found nothing, but {error}")),
        _ => {}
    }
    let device = on_bench();
    let repair = FsckOptions { repair: true, ..FsckOptions::default() };
    if ffs::fsck(rt, &device, repair).await.is_err() {
        return Ok(()); // Too little was left to work with.
    }
    let whole = async |when: &str| match ffs::fsck(rt, &device, FsckOptions::default()).await {
        Ok(found) if found.is_clean() => Ok(()),
        Ok(found) => Err(format!("{when}, a check finds {:#?}", found.problems)),
        Err(error) => Err(format!("{when}, a check fails: {error}")),
    };
    whole("after the repair").await?;
    use_it(rt, &device).await.map_err(|error| format!("after the repair, {error}"))?;
    whole("after the repair and some use").await
}

/// Reads all of it. Returns the paths.
async fn read_it(rt: &Rt, device: &Device) -> Result<Vec<Vec<u8>>, String> {
    let read_only = Options { read_only: true, ..Options::default() };
    let reader = ffs::mount(rt.clone(), device.clone(), read_only).await.map_err(said("mounting to read"))?;
    walk(&Client::new(reader)).await
}

/// Reads all of it, first read-only, then mounted for writing, changes a few things and closes.
async fn use_it(rt: &Rt, device: &Device) -> Result<(), String> {
    let paths = read_it(rt, device).await?;
    let ffs = ffs::mount(rt.clone(), device.clone(), Options::default()).await.map_err(said("mounting"))?;
    let client = Client::new(ffs.clone());
    let mut result = Ok(());
    for (number, path) in paths.iter().enumerate() {
        let done = match number % 5 {
            0 => client.unlink(path).await,
            1 => client.write_file(path, &[1; 5000]).await,
            2 => client.rename(path, b"/renamed", crate::fs::RenameMode::Replace).await,
            3 => client.rmdir(path).await,
            _ => client.truncate(path, 100).await,
        };
        // Operations that are invalid for the kind of file are refused; damage must not occur.
        if let Err(error @ (FsError::Corrupt { .. } | FsError::Stopped(_) | FsError::Stale)) = done {
            result = Err(error);
        }
    }
    result.map_err(said("changing"))?;
    client.mkdir(b"/a new directory").await.or_else(tolerated).map_err(said("making"))?;
    ffs.close().await.map_err(said("closing"))
}

/// Limits of the paths visited, and of the bytes read at the beginning and at the end of each file: a damaged inode can
/// claim more than there is time for.
const PATHS_MAX: usize = 400;
const READ_BYTES_MAX: u32 = 256 << 10;

/// Every path, the root first, with its content read.
async fn walk(client: &Client) -> Result<Vec<Vec<u8>>, String> {
    let mut paths: Vec<Vec<u8>> = vec![Vec::new()];
    let mut next = 0;
    while next < paths.len() && next < PATHS_MAX {
        let path = paths[next].clone();
        next += 1;
        let said = |error: FsError| format!("reading {}: {error}", String::from_utf8_lossy(&path));
        let shown: &[u8] = if path.is_empty() { b"/" } else { &path };
        let attr = client.stat(shown).await.map_err(said)?;
        match attr.kind {
            FileKind::Directory => {
                for entry in client.read_dir(shown).await.map_err(said)? {
                    paths.push([&path, &b"/"[..], &entry.name].concat());
                }
            }
            FileKind::Symlink => {
                client.read_link(shown).await.map_err(said)?;
            }
            FileKind::Regular => {
                for offset in [0, attr.size.saturating_sub(READ_BYTES_MAX.into())] {
                    read_at(client, attr.ino, offset).await.map_err(said)?;
                }
            }
            _ => {}
        }
    }
    paths.remove(0);
    Ok(paths)
}

async fn read_at(client: &Client, ino: Ino, offset: u64) -> FsResult<()> {
    client.fs().read(ino, None, offset, READ_BYTES_MAX).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Aim: the volumes to start from are sound, and their map is complete. Method: a check.
    #[test]
    fn the_bases_are_sound() {
        for (number, base) in bases().iter().enumerate() {
            for fields in [Superblock::FIELDS, Group::FIELDS, Inode::FIELDS, DIRENT, POINTER] {
                let found = base.records.iter().filter(|record| record.fields == fields).count();
                assert!(found > 0, "base {number} has no {}", fields[0].name);
            }
            assert!(base.places.len() > 30, "base {number}");
            mount(&[number as u8]);
        }
    }

    /// Aim: changes of fields take effect. Method: an inode's owner, which nothing contradicts.
    #[test]
    fn changes_are_believed() {
        let base = &bases()[0];
        let inodes: Vec<_> = base.records.iter().filter(|record| record.fields == Inode::FIELDS).collect();
        let uid = Inode::FIELDS.iter().find(|field| field.name == "uid").expect("a field");
        let mut bench = Bench { image: base.image.clone() };
        for inode in inodes {
            bench.write(inode.at + uid.offset as u64, &4711u32.to_le_bytes());
        }
        let owner = simulate(1, LIMITS, async |rt| {
            let device: Device = Rc::new(Memory::from_image(VOLUME_BYTES, bench.image.clone()));
            let ffs = ffs::mount(rt, device, Options { read_only: true, ..Options::default() }).await?;
            Client::new(ffs).stat(b"/d").await.map(|attr| attr.uid)
        });
        assert_eq!(owner, Ok(Ok(4711)));
    }
}
