//! Landmarks: blocks in known places that show whether the devices below are assembled as they were when the disk was
//! made.
//!
//! Devices that concatenate, stripe or permute others store nothing about that, and a tenant's data has no checksum
//! here: with members in another order, or another stripe, the map may still be found, and live data that it does not
//! lead to would be overwritten. So where the device below can be assembled differently, its first use sets a landmark
//! on each of its parts, and others at random places. Each sector of a landmark records its own address. A complete
//! copy, however it is assembled, has them all in place.
//!
//! Invariants
//!   N1  Nothing is written where two landmarks are readable and not in their places.
//!   N2  Two swapped parts displace at least the landmark of each. Another unit displaces half of the random landmarks
//!       or more: that all but one stay in place has a probability of one in a hundred million.

use std::collections::BTreeSet;

use super::format::{LANDMARKS_MAX, Landmark, Superblock};
use super::layout::Layout;
use super::options::VldError;
use crate::codec::crc32c;
use crate::device::{Buf, Device, DeviceError, WriteFlags, read_right};
use crate::units::SECTOR_BYTES;

/// Landmarks at random places, where there are blocks enough.
const RANDOM: u64 = 32;

/// A landmark for at least as many blocks.
const BLOCKS_EACH: u64 = 64;

/// Blocks for the landmarks of a new virtual log on `device`, in order. None where there is only one way to assemble
/// it, and on a device with a head, which is a model: its data ends with the process, and eager writing would see other
/// free blocks.
pub(super) fn choose(device: &Device, superblock: Superblock) -> Vec<u32> {
    let Some(layout) = Layout::new(superblock) else { return Vec::new() };
    if device.parts() == 1 && device.arrangement() == 0 || device.head().is_some() {
        return Vec::new();
    }
    let mut chosen = BTreeSet::new();
    let mut parts = BTreeSet::new();
    let parts_max = (device.parts() as usize).min(LANDMARKS_MAX - RANDOM as usize);
    let mut block = layout.first_block();
    while parts.len() < parts_max && block < layout.blocks {
        let (part, run) = device.part_at(layout.sector_of(block));
        if layout.is_reserved(block) {
            block += 1;
            continue;
        }
        if parts.insert(part) {
            chosen.insert(block);
        }
        // The first block that begins in the next run.
        let blocks = run.div_ceil(layout.block_sectors).max(1);
        block = block.saturating_add(u32::try_from(blocks).unwrap_or(u32::MAX));
    }
    let random = RANDOM.min(u64::from(layout.blocks) / BLOCKS_EACH);
    for number in 0..random {
        let drawn = crc32c(&[&superblock.uuid[..], &number.to_le_bytes()].concat());
        let block = drawn % layout.blocks;
        if !layout.is_reserved(block) {
            chosen.insert(block);
        }
    }
    chosen.into_iter().collect()
}

/// Writes all landmarks.
pub(super) async fn set(device: &Device, layout: &Layout) -> Result<(), DeviceError> {
    for &block in layout.landmarks() {
        put(device, layout, block).await?;
    }
    Ok(())
}

async fn put(device: &Device, layout: &Layout, block: u32) -> Result<(), DeviceError> {
    let mut bytes = Buf::zeroed(layout.block_bytes() as usize);
    let start = layout.sector_of(block);
    for (sector, bytes) in bytes.chunks_mut(SECTOR_BYTES as usize).enumerate() {
        Landmark::at(&layout.superblock, start + sector as u64).encode(bytes);
    }
    device.write(start, bytes.freeze(), WriteFlags::NONE).await
}

/// Checks all landmarks before anything is written. One that is damaged or cannot be read is rewritten.
///
/// # Errors
/// `Corrupt` where N1 forbids to write.
pub(super) async fn check(device: &Device, layout: &Layout) -> Result<(), VldError> {
    let bad = look(device, layout).await?;
    if let [(first, _), _, ..] = bad.iter().filter(|(_, is_readable)| *is_readable).collect::<Vec<_>>()[..] {
        let all = layout.landmarks().len();
        let missing = bad.len();
        return Err(VldError::Corrupt {
            what: "landmark",
            at: layout.sector_of(*first),
            why: format!(
                "{missing} of {all} are not in their places, so the devices below are not assembled as before: give the options, and the \
                 order of members, that the disk was made with"
            ),
        });
    }
    for (block, _) in bad {
        // One that cannot be written stays as it is.
        let _ = put(device, layout, block).await;
    }
    Ok(())
}

/// What a start for writing will report about the landmarks, or repair.
pub(super) async fn problems(device: &Device, layout: &Layout) -> Result<Vec<String>, VldError> {
    let bad = look(device, layout).await?;
    let line = |(block, is_readable): (u32, bool)| {
        let what = if is_readable { "is not in its place" } else { "cannot be read" };
        format!("the landmark at sector {} {what}", layout.sector_of(block))
    };
    Ok(bad.into_iter().map(line).collect())
}

/// The landmarks that are not in their places, and whether these can be read.
async fn look(device: &Device, layout: &Layout) -> Result<Vec<(u32, bool)>, VldError> {
    let mut bad = Vec::new();
    for &block in layout.landmarks() {
        let start = layout.sector_of(block);
        let is_right = |bytes: &[u8]| {
            bytes.chunks(SECTOR_BYTES as usize).enumerate().all(|(sector, bytes)| {
                Landmark::decode(bytes) == Some(Landmark::at(&layout.superblock, start + sector as u64))
            })
        };
        match device.read(start, Buf::dirty(layout.block_bytes() as usize)).await {
            Ok(bytes) if is_right(&bytes) => {}
            Ok(_) if read_right(device, start, layout.block_sectors, is_right).await.is_some() => {}
            Ok(_) => bad.push((block, true)),
            Err(error) if error.is_of_medium() => bad.push((block, false)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bad)
}
