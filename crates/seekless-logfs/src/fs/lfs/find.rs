//! Finding a volume: reads its superblock copies and checkpoint slots, and rewrites damaged superblock copies.
//!
//! Format: FORMAT.md, "Recovery". One good copy is enough, in any reading of the device.

use std::collections::BTreeMap;

use futures_util::future::LocalBoxFuture;

use super::format::*;
use super::layout::*;
use crate::device::rescue::rescue_right;
use crate::device::{Buf, Data, Device, DeviceError, WriteFlags};
use crate::fs::{FsError, FsResult};
use crate::rt::cover;
use crate::units::{SECTOR_BYTES, Sector, WallTime};

const NOT_INTACT: &str = "is not intact";

/// Serial of the checkpoint that mkfs writes when there is one slot.
const FIRST_SERIAL: u64 = 1;

/// What a volume says about itself.
#[derive(Clone, Debug)]
pub struct VolumeInfo {
    pub uuid: uuid::Uuid,
    pub label: String,
    pub version: u32,
    pub volume_bytes: u64,
    pub segment_bytes: u64,
    pub segment_count: u64,
    pub reserve_segments: u64,
    /// Time of mkfs, in seconds since 1970.
    pub created_seconds: i64,
    pub checkpoint_serial: u64,
    pub checkpoint_time: WallTime,
    /// Closed properly: nothing to roll forward.
    pub clean: bool,
    pub inodes: u64,
    pub live_bytes: u64,
    pub capacity_bytes: u64,
}

/// Reads what a volume says about itself, without mounting it.
///
/// # Errors
/// As [`super::mount`].
pub async fn info(device: &Device) -> FsResult<VolumeInfo> {
    let found = find_volume(device).await?;
    let (superblock, checkpoint) = (found.layout.superblock, found.checkpoint);
    Ok(VolumeInfo {
        uuid: uuid::Uuid::from_bytes(superblock.uuid),
        label: superblock.label_text(),
        version: superblock.version,
        volume_bytes: superblock.volume_sectors * SECTOR_BYTES,
        segment_bytes: found.layout.segment_bytes(),
        segment_count: superblock.segment_count,
        reserve_segments: superblock.reserve_segments.into(),
        created_seconds: superblock.created_seconds,
        checkpoint_serial: checkpoint.serial,
        checkpoint_time: WallTime { seconds: checkpoint.seconds, nanos: checkpoint.nanos },
        clean: checkpoint.flags & CHECKPOINT_CLEAN != 0,
        inodes: checkpoint.inode_count,
        live_bytes: checkpoint.live_bytes,
        capacity_bytes: found.layout.capacity_bytes(),
    })
}

/// A volume, found but not loaded.
pub(super) struct FoundVolume {
    pub layout: Layout,
    /// The newest checkpoint in a slot.
    pub checkpoint: Checkpoint,
    /// The checkpoint in the other slot.
    pub older: Option<Checkpoint>,
    /// The slot without an intact copy. A power cut can do that to the newest checkpoint, and then the log holds it.
    pub lost_slot: Option<Sector>,
    /// Damaged or unreadable superblock copies.
    pub damaged: Vec<BadCopy>,
    /// Checkpoint copies that are torn, as a power cut may leave them, or cannot be read.
    pub torn: Vec<String>,
}

/// A superblock copy that is damaged or cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct BadCopy {
    pub at: Sector,
    pub why: String,
    /// Something else is there, which can be read and is no superblock.
    pub is_other: bool,
}

impl std::fmt::Display for BadCopy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "superblock copy at sector {} {}", self.at, self.why)
    }
}

/// The device's last block, where the third superblock copy is unless the device has grown.
fn last_block(device: &Device) -> Option<Sector> {
    let sectors = device.geometry().sectors / BLOCK_SECTORS * BLOCK_SECTORS;
    sectors.checked_sub(BLOCK_SECTORS).map(Sector)
}

/// One copy of a block of which there are several.
enum BlockCopy {
    Read(Buf),
    /// No reading gives it. Another copy may do.
    Unreadable(DeviceError),
}

/// Reads a block that has copies elsewhere.
async fn read_copy(device: &Device, at: Sector, is_right: impl Fn(&[u8]) -> bool) -> FsResult<BlockCopy> {
    let mut read = rescue_right(device, at, BLOCK_SECTORS, is_right).await?;
    Ok(match read.lost.pop() {
        None => BlockCopy::Read(read.bytes),
        Some((_, error)) => BlockCopy::Unreadable(error),
    })
}

/// Finds the volume. An unreadable copy is treated as a damaged one: the other copies have the same content.
pub(super) fn find_volume(device: &Device) -> LocalBoxFuture<'_, FsResult<FoundVolume>> {
    Box::pin(find(device))
}

async fn find(device: &Device) -> FsResult<FoundVolume> {
    let sectors = device.geometry().sectors;
    if sectors < HEAD_SECTORS {
        return Err(FsError::corrupt("volume", device.describe(), "it is too small to hold an LFS"));
    }
    let mut copies: BTreeMap<Sector, Result<Superblock, String>> = BTreeMap::new();
    let mut unreadable = None;
    let mut look = async |place: Sector| {
        let copy = match read_copy(device, place, |block| Superblock::from_block(block).is_some()).await? {
            BlockCopy::Read(block) => Superblock::from_block(&block).ok_or_else(|| NOT_INTACT.to_string()),
            BlockCopy::Unreadable(error) => {
                let why = format!("cannot be read: {error}");
                unreadable.get_or_insert(error);
                Err(why)
            }
        };
        copies.insert(place, copy.clone());
        FsResult::Ok(copy)
    };
    let places: Vec<Sector> = SUPERBLOCK_SECTORS.into_iter().chain(last_block(device)).collect();
    let mut candidates: Vec<Superblock> = Vec::new();
    for &place in &places {
        if let Ok(copy) = look(place).await?
            && !candidates.contains(&copy)
        {
            candidates.push(copy);
        }
    }
    let Some(&first) = candidates.first() else {
        let detail = "none of the three superblock copies of an LFS is intact";
        return Err(unreadable.map_or(FsError::corrupt("volume", device.describe(), detail), FsError::Device));
    };
    // When the copies belong to different volumes, the right volume is the one that has a checkpoint.
    let slots = read_slots(device, &candidates).await?;
    let is_alive = |superblock: &&Superblock| slots.checkpoints.iter().any(|(_, found)| found.uuid == superblock.uuid);
    let superblock = *candidates.iter().find(is_alive).unwrap_or(&first);
    let layout = Layout::new(superblock, sectors)?;
    // A device with larger blocks than the one that the volume was made on refuses the smallest requests.
    let smallest = layout.align_sectors();
    device.geometry().check(Sector(smallest), smallest * SECTOR_BYTES)?;
    // A device that has grown since mkfs does not have the third copy at its end.
    let _ = look(layout.superblock_backup()).await?;
    let mut damaged = Vec::new();
    for at in SUPERBLOCK_SECTORS.into_iter().chain([layout.superblock_backup()]) {
        let (why, is_other) = match copies.get(&at) {
            Some(Ok(copy)) if *copy == superblock => continue,
            Some(Ok(_)) => ("differs".to_string(), false),
            Some(Err(why)) => (why.clone(), why == NOT_INTACT),
            None => unreachable!("it has been looked at"),
        };
        damaged.push(BadCopy { at, why, is_other });
    }
    slots.choose(device, layout, damaged)
}

/// Content of the two checkpoint slots, of whichever volume wrote them.
#[derive(Default)]
struct Slots {
    /// Intact copies, each with the sector of its slot.
    checkpoints: Vec<(Sector, Checkpoint)>,
    /// Slot and number of each copy that is neither intact nor empty, and why.
    bad: Vec<(Sector, usize, String)>,
    unreadable: Option<DeviceError>,
}

async fn read_slots(device: &Device, candidates: &[Superblock]) -> FsResult<Slots> {
    let mut slots = Slots::default();
    for slot in CHECKPOINT_SECTORS {
        for number in 0..2 {
            let is_ours = |copy: &[u8]| {
                Checkpoint::from_block(copy)
                    .is_some_and(|found| candidates.iter().any(|known| known.uuid == found.uuid))
            };
            let at = slot + number as u64 * BLOCK_SECTORS;
            let is_empty = |copy: &[u8]| copy.iter().all(|&byte| byte == 0);
            let why = match read_copy(device, at, is_ours).await? {
                BlockCopy::Read(copy) => match Checkpoint::from_block(&copy) {
                    Some(checkpoint) => {
                        slots.checkpoints.push((slot, checkpoint));
                        continue;
                    }
                    // A volume fresh from mkfs has one slot. If no reading holds a checkpoint, an empty copy is
                    // correct.
                    None if is_empty(&copy) => continue,
                    None if matches!(read_copy(device, at, is_empty).await?, BlockCopy::Read(copy) if is_empty(&copy)) =>
                    {
                        continue;
                    }
                    None => "is not intact".to_string(),
                },
                BlockCopy::Unreadable(error) => {
                    let why = format!("cannot be read: {error}");
                    slots.unreadable.get_or_insert(error);
                    why
                }
            };
            slots.bad.push((slot, number, why));
        }
    }
    Ok(slots)
}

impl Slots {
    /// The newest checkpoint of the volume, and the other slot's.
    fn choose(self, device: &Device, layout: Layout, damaged: Vec<BadCopy>) -> FsResult<FoundVolume> {
        let Slots { checkpoints, bad, unreadable } = self;
        let mut torn: Vec<String> = bad
            .into_iter()
            .map(|(slot, number, why)| format!("checkpoint copy {number} at sector {slot} {why}"))
            .collect();
        let mut lost_slot = None;
        let mut newest: Vec<Checkpoint> = Vec::new();
        for slot in CHECKPOINT_SECTORS {
            let here = checkpoints.iter().filter(|(at, _)| *at == slot).map(|(_, checkpoint)| checkpoint);
            let (ours, others): (Vec<&Checkpoint>, Vec<&Checkpoint>) =
                here.partition(|checkpoint| checkpoint.uuid == layout.superblock.uuid);
            torn.extend(others.iter().map(|_| format!("a checkpoint copy at sector {slot} is of another volume")));
            match ours.into_iter().max_by_key(|checkpoint| checkpoint.serial) {
                Some(&checkpoint) => newest.push(checkpoint),
                None => lost_slot = Some(slot),
            }
        }
        newest.sort_by_key(|checkpoint| std::cmp::Reverse(checkpoint.serial));
        let Some(&checkpoint) = newest.first() else {
            let detail = "no intact checkpoint in either slot";
            return Err(unreadable.map_or(FsError::corrupt("volume", device.describe(), detail), FsError::Device));
        };
        if lost_slot.is_some() && checkpoint.serial > FIRST_SERIAL {
            cover("lfs: one checkpoint slot holds nothing intact");
        }
        if checkpoint.serial == FIRST_SERIAL && torn.is_empty() {
            lost_slot = None;
        }
        Ok(FoundVolume { layout, checkpoint, older: newest.get(1).copied(), lost_slot, damaged, torn })
    }
}

/// Rewrites damaged superblock copies from the intact ones. Returns one line per copy and whether it was rewritten.
/// Does not flush: the caller flushes before it reports the volume as repaired.
///
/// Intact copies are not touched, so that the volume can be mounted whatever happens to these writes.
pub(super) async fn mend_superblocks(device: &Device, found: &FoundVolume) -> Vec<(String, bool)> {
    let block = Data::from_slice(&found.layout.superblock.to_block());
    let mut said = Vec::new();
    for bad in &found.damaged {
        // A failed write leaves the volume as it was: a warning, not a reason to refuse the volume.
        let written = device.write(bad.at, block.clone(), WriteFlags::NONE).await;
        said.push(match written {
            Ok(()) => (format!("{bad}"), true),
            Err(error) => (format!("{bad}, and cannot be rewritten: {error}"), false),
        });
    }
    said
}

/// Notes in all superblock copies how the device spreads addresses, on which all of the volume has been read: the next mount need not read
/// it. The copies are written one after the other, so that a power cut leaves one whole; while they differ, a mount reads everything.
pub(super) async fn note_arrangement(device: &Device, layout: &Layout) -> FsResult<()> {
    let superblock = Superblock { arrangement: device.arrangement(), ..layout.superblock };
    let block = Data::from_slice(&superblock.to_block());
    for at in [layout.superblock_backup()].into_iter().chain(SUPERBLOCK_SECTORS.into_iter().rev()) {
        device.flush().await?;
        // If it cannot be written, the next mount reads everything again.
        if device.write(at, block.clone(), WriteFlags::NONE).await.is_err() {
            break;
        }
    }
    Ok(device.flush().await?)
}
