//! Checks whether the members of the device are in the right order where they store nothing about it: those of
//! `concat`, `raid0` and `volume`.
//!
//! A partial segment has one checksum and records its own address. So an intact one proves that each member that holds
//! a part of it is in its place, unless another member holds the same bytes: a block counts only if it differs from all
//! others of its partial segment. For each member with live data, either this proves its place, or everything is read.
//! A member without live data may be anywhere.

use std::collections::{BTreeMap, BTreeSet};

use super::Lfs;
use super::partials::partial_at;
use super::format::*;
use super::layout::*;
use crate::codec;
use crate::device::Device;
use crate::device::rescue::rescue;
use crate::fs::FsResult;
use crate::units::{SECTOR_BYTES, Sector};

/// Segments in which a member is looked for: the first will nearly always do.
const SEGMENTS_MAX: u32 = 16;

/// What is known of the members.
#[derive(Default)]
pub(super) struct Members {
    /// Those that are in their places.
    pub seen: BTreeSet<u32>,
    /// Those that hold parts of segments in use, and are not shown to be in their places.
    pub missed: BTreeSet<u32>,
}

/// Looks at the members.
///
/// # Errors
/// When the device fails.
pub(super) async fn look(lfs: &Lfs) -> FsResult<Members> {
    let device = &lfs.device;
    if device.parts() == 1 {
        return Ok(Members::default());
    }
    let mut unseen: BTreeSet<u32> = (0..device.parts()).collect();
    let mut missed: BTreeMap<u32, u32> = BTreeMap::new();
    let (layout, used) = {
        let state = lfs.state.borrow();
        let end = state.log.end;
        let used =
            |number: SegmentNo| if number == end.segment { end.offset } else { state.log.layout.segment_sectors() };
        let alive = state.log.segments.iter().filter(|(_, segment)| segment.live_bytes > 0);
        let used: Vec<(SegmentNo, u64)> = alive.map(|(number, _)| (number, used(number))).collect();
        (state.log.layout, used)
    };
    for (segment, sectors) in used {
        let start = layout.segment_start(segment);
        let touched: BTreeSet<u32> =
            parts_in(device, start, sectors).into_iter().filter(|part| unseen.contains(part)).collect();
        if touched.is_empty() {
            continue;
        }
        let seen = parts_seen(lfs, &layout, segment).await?;
        for part in touched {
            let missed = missed.entry(part).or_insert(0);
            *missed += 1;
            if seen.contains(&part) {
                *missed = 0;
            }
            if seen.contains(&part) || *missed == SEGMENTS_MAX {
                unseen.remove(&part);
            }
        }
        if unseen.is_empty() {
            break;
        }
    }
    let (seen, missed): (Vec<_>, Vec<_>) = missed.into_iter().partition(|(_, missed)| *missed == 0);
    let parts = |list: Vec<(u32, u32)>| list.into_iter().map(|(part, _)| part).collect();
    Ok(Members { seen: parts(seen), missed: parts(missed) })
}

/// The members that hold some of these sectors.
fn parts_in(device: &Device, start: Sector, sectors: u64) -> BTreeSet<u32> {
    let mut parts = BTreeSet::new();
    let mut at = 0;
    while at < sectors {
        let (part, run) = device.part_at(start + at);
        parts.insert(part);
        at = at.saturating_add(run.max(1));
    }
    parts
}

/// The members that hold something of the intact partial segments at the start of a segment that no other one can hold there.
async fn parts_seen(lfs: &Lfs, layout: &Layout, segment: SegmentNo) -> FsResult<BTreeSet<u32>> {
    let start = layout.segment_start(segment);
    let read = rescue(&lfs.device, start, layout.segment_sectors()).await?;
    let mut seen = BTreeSet::new();
    let mut offset = 0;
    while let Some(partial) = partial_at(layout, segment, offset, &read.bytes) {
        let sectors = u64::from(partial.summary.sectors);
        let bytes = &read.bytes[(offset * SECTOR_BYTES) as usize..((offset + sectors) * SECTOR_BYTES) as usize];
        let sums: Vec<u32> = bytes.chunks(BLOCK_BYTES).map(codec::crc32c).collect();
        let mut times: BTreeMap<u32, u32> = BTreeMap::new();
        sums.iter().for_each(|&sum| *times.entry(sum).or_insert(0) += 1);
        for (block, _) in sums.iter().enumerate().filter(|(_, sum)| times.get(sum) == Some(&1)) {
            let from = offset + block as u64 * BLOCK_SECTORS;
            // All of it, or the other part of it could be what is unlike the others.
            let parts = parts_in(&lfs.device, start + from, BLOCK_SECTORS.min(offset + sectors - from));
            if parts.len() == 1 {
                seen.extend(parts);
            }
        }
        offset += sectors;
    }
    Ok(seen)
}
