//! Arrays from arbitrary bytes: decoders of the members' metadata, and whole arrays that were changed and given valid
//! checksums again.
//!
//! Superblocks, bitmaps and records of the journal have checksums, so a fuzzer that only flips bits never gets further.
//! [`open`] takes real members, changes fields and bytes, and corrects the checksums.

use std::rc::Rc;
use std::sync::OnceLock;

use super::Bytes;
use super::bench::Bench;
use crate::codec::{crc32c, put_at};
use crate::device::{BlockDevice, Buf, Data, Device, Image, Memory, WriteFlags};
use crate::rt::{Limits, Rt};
use crate::testing::subject::simulate;
use crate::units::{KIB, Nanos, SECTOR_BYTES, Sector};
use crate::volume::format::{
    BITMAP_START, BLOCK_BYTES, BitmapSector, RecordEntry, RecordHead, SUPERBLOCKS, Superblock, bitmap_start,
};
use crate::volume::raid::{Array, ArrayError, ArrayOptions, Contents, JournalUse, Level};

const MEMBER_BYTES: u64 = 512 * KIB;
const UUID: [u8; 16] = [6; 16];

/// Limits for one array: opened, read, written, and opened again.
const LIMITS: Limits = Limits { events: 1_000_000, until: Nanos::from_secs(100_000) };

/// Limit of changes in one input.
const CHANGES_MAX: usize = 24;

/// Every decoder, with any bytes. What one accepts, its encoder reproduces.
pub fn decoders(input: &[u8]) {
    let mut block = input.to_vec();
    block.resize(BLOCK_BYTES as usize, 0);
    if let Ok(superblock) = Superblock::from_block(&block) {
        assert_eq!(Superblock::from_block(&superblock.to_block()), Ok(superblock));
    }
    // With the right checksum, as only the encoder makes it.
    if let Some(superblock) = Superblock::decode(&block) {
        let sealed = superblock.to_block();
        if let Ok(found) = Superblock::from_block(&sealed) {
            assert!(bitmap_start(2, found.bitmap_sectors) <= found.journal_start);
            assert!(found.journal_start + found.journal_sectors <= found.data_start);
            assert_eq!(found.to_block(), sealed);
        }
    }
    if let Some(sector) = BitmapSector::decode(&block) {
        let bytes = sector.to_bytes();
        let again = BitmapSector::from_bytes(&bytes, sector.index.into(), sector.epoch, sector.uuid_start);
        assert!(again.is_some_and(|again| again.bits == sector.bits));
    }
    if let Some(head) = RecordHead::decode(&block) {
        let _ = RecordHead::peek(&block, &head.uuid, head.sequence);
        let split = input.len() / 2;
        let _ = head.entries(&input[..split], &input[split..]);
    }
}

fn options(level: Level) -> ArrayOptions {
    let journal = if level == Level::Parity { JournalUse::Always } else { JournalUse::Degraded };
    ArrayOptions { region: Some(16 * KIB), journal, degraded: true, ..ArrayOptions::new(level).unit(8) }
}

/// The members of an array to start from: a mirror and one with parity, released or in use, complete or not.
fn bases() -> &'static [(Level, Vec<Image>); 4] {
    static BASES: OnceLock<[(Level, Vec<Image>); 4]> = OnceLock::new();
    BASES.get_or_init(|| {
        [(Level::Mirror, false), (Level::Mirror, true), (Level::Parity, false), (Level::Parity, true)]
            .map(|(level, lacks_one)| (level, base(level, lacks_one)))
    })
}

fn base(level: Level, lacks_one: bool) -> Vec<Image> {
    let made = simulate(1, LIMITS, async |rt| {
        let memories: Vec<Rc<Memory>> = (0..3).map(|_| Rc::new(Memory::new(MEMBER_BYTES))).collect();
        let members: Vec<Device> = memories.iter().map(|memory| memory.clone() as Device).collect();
        let array = Array::create(&rt, members, &options(level), UUID, Contents::Zeroes).await?;
        for turn in 0..40u64 {
            if lacks_one && turn == 20 {
                array.give_up(1).await?;
            }
            let data = Data::from_slice(&[turn as u8 + 1; 3 * SECTOR_BYTES as usize]);
            let written = array.write(Sector(turn * 13 % 500), data, WriteFlags::NONE).await;
            written.unwrap_or_else(|error| unreachable!("the array to start from takes writes: {error}"));
        }
        // In use: the bitmap and the journal say so.
        Ok::<_, ArrayError>(memories.iter().map(|memory| memory.image()).collect())
    });
    match made {
        Ok(Ok(images)) => images,
        Ok(Err(error)) => unreachable!("the array to start from cannot be made: {error}"),
        Err(why) => unreachable!("the array to start from cannot be made: {why}"),
    }
}

/// Inconsistent members with valid checksums: the array is refused, or opened, read, written, and opened again.
pub fn open(input: &[u8]) {
    let mut bytes = Bytes::new(input);
    let shape = bytes.u8();
    let (level, images) = &bases()[usize::from(shape % 4)];
    let mut members: Vec<Bench> = images.iter().map(|image| Bench { image: image.clone() }).collect();
    let mut changes = 0;
    while !bytes.is_empty() && changes < CHANGES_MAX {
        changes += 1;
        // A change of one member, or the same of all: what they agree on is believed.
        let which = bytes.u8() % 4;
        let rest = bytes.clone();
        for (number, member) in members.iter_mut().enumerate() {
            if which == 3 || usize::from(which) == number {
                let mut same = rest.clone();
                change(member, &mut same);
                bytes = same;
            }
        }
    }
    let run = simulate(1, LIMITS, async |rt| {
        let memories: Vec<Rc<Memory>> =
            members.into_iter().map(|member| Rc::new(Memory::from_image(MEMBER_BYTES, member.image))).collect();
        for read_only in [true, false, false] {
            use_array(&rt, &memories, ArrayOptions { read_only, ..options(*level) }).await;
        }
    });
    run.unwrap_or_else(|why| panic!("{why}"));
}

async fn use_array(rt: &Rt, memories: &[Rc<Memory>], options: ArrayOptions) {
    let members = memories.iter().map(|memory| Some(memory.clone() as Device)).collect();
    let Ok(array) = Array::open(rt, members, &options).await else { return };
    let geometry = array.geometry();
    assert!(geometry.sectors * SECTOR_BYTES <= MEMBER_BYTES * memories.len() as u64, "{geometry:?}");
    let block = geometry.block_bytes as usize;
    for at in (0..geometry.sectors).step_by(7).chain(geometry.sectors.checked_sub(1)) {
        let _ = array.read(Sector(at), Buf::dirty(block)).await;
    }
    if options.read_only {
        return;
    }
    for at in (0..geometry.sectors).step_by(61).take(12) {
        let data = Data::from_slice(&vec![0x5a; block]);
        if array.write(Sector(at), data, WriteFlags::NONE).await.is_ok() {
            let read = array.read(Sector(at), Buf::dirty(block)).await;
            let read = read.unwrap_or_else(|error| panic!("what was written at {at} cannot be read: {error}"));
            assert!(read[..] == vec![0x5a; block][..], "what was written at {at} is there");
        }
    }
    let _ = array.flush().await;
    let _ = array.scrub().await;
    let _ = array.release().await;
}

/// One change, usually with the checksum corrected.
fn change(member: &mut Bench, bytes: &mut Bytes<'_>) {
    let kind = bytes.u8();
    let mends = kind & 0x80 == 0;
    let superblock = |member: &Bench| Superblock::decode(&member.read(0, Superblock::BYTES));
    match kind % 5 {
        0 | 1 => {
            let at = SUPERBLOCKS[usize::from(bytes.u8() % 2)] * SECTOR_BYTES;
            member.change_field(at, Superblock::FIELDS, bytes);
            if let Some(changed) = Superblock::decode(&member.read(at, Superblock::BYTES)).filter(|_| mends) {
                member.write(at, &changed.to_block());
            }
        }
        2 => {
            let at = (BITMAP_START + bytes.below(16)) * SECTOR_BYTES;
            member.change_field(at, BitmapSector::FIELDS, bytes);
            if let Some(changed) = BitmapSector::decode(&member.read(at, BitmapSector::BYTES)).filter(|_| mends) {
                member.write(at, &changed.to_bytes());
            }
        }
        3 => {
            let Some(superblock) = superblock(member) else { return };
            let sectors = superblock.journal_sectors.clamp(1, 512);
            let start = superblock.journal_start.min(MEMBER_BYTES / SECTOR_BYTES / 2);
            let at = (start + bytes.below(sectors) / 8 * 8) * SECTOR_BYTES;
            match bytes.u8() % 3 {
                0 => member.change_field(at, RecordHead::FIELDS, bytes),
                _ => {
                    let entry = u64::from(bytes.u8() % 8) * RecordEntry::BYTES as u64;
                    member.change_field(at + RecordHead::BYTES as u64 + entry, RecordEntry::FIELDS, bytes);
                }
            }
            if mends {
                mend_record(member, at);
            }
        }
        _ => {
            let sector = |bytes: &mut Bytes<'_>| bytes.below(MEMBER_BYTES / SECTOR_BYTES) * SECTOR_BYTES;
            member.scribble(bytes.u8() % 4, MEMBER_BYTES, bytes, sector);
        }
    }
}

/// Gives the record at `at` the checksums of its claimed content.
fn mend_record(member: &mut Bench, at: u64) {
    let Some(head) = RecordHead::decode(&member.read(at, RecordHead::BYTES)) else { return };
    let (head_bytes, payload_bytes) =
        (u64::from(head.head_sectors) * SECTOR_BYTES, u64::from(head.payload_sectors) * SECTOR_BYTES);
    if head_bytes < RecordHead::BYTES as u64 || at + head_bytes + payload_bytes > MEMBER_BYTES {
        return;
    }
    let field = |name: &str| RecordHead::FIELDS.iter().find(|field| field.name == name).map(|field| field.offset);
    let (Some(crc), Some(payload_crc)) = (field("crc"), field("payload_crc")) else { return };
    let payload = member.read(at + head_bytes, payload_bytes as usize);
    let mut bytes = member.read(at, head_bytes as usize);
    put_at(&mut bytes, payload_crc, crc32c(&payload));
    put_at(&mut bytes, crc, 0u32);
    let sum = crc32c(&bytes);
    put_at(&mut bytes, crc, sum);
    member.write(at, &bytes);
}
