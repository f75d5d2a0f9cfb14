//! Partial segments in the bytes of a segment: those of its present use, intact.

use super::format::*;
use super::layout::*;
use crate::device::rescue::rescue_as;
use crate::device::{Buf, Device, read_right};
use crate::units::{SECTOR_BYTES, Sector};

/// A partial segment found in a segment.
pub(super) struct FoundPartial {
    pub start: Sector,
    pub summary: Summary,
    pub items: Vec<Item>,
}

/// The partial segments of a segment's present use: they follow one another in position and sequence number.
pub(super) fn partials_in(layout: &Layout, segment: SegmentNo, bytes: &[u8]) -> Vec<FoundPartial> {
    let mut found: Vec<FoundPartial> = Vec::new();
    let mut offset = 0;
    while let Some(partial) = partial_at(layout, segment, offset, bytes) {
        if found.last().is_some_and(|last| last.summary.sequence + 1 != partial.summary.sequence) {
            break;
        }
        offset += u64::from(partial.summary.sectors);
        found.push(partial);
    }
    found
}

/// The intact partial segment `offset` sectors into `segment`, whose bytes are `bytes`.
pub(super) fn partial_at(layout: &Layout, segment: SegmentNo, offset: u64, bytes: &[u8]) -> Option<FoundPartial> {
    let rest = bytes.get((offset * SECTOR_BYTES) as usize..)?;
    let summary = Summary::decode(rest)?;
    let claims = summary.magic == SUMMARY_MAGIC
        && summary.uuid == layout.superblock.uuid
        && summary.segment == segment
        && u64::from(summary.offset) == offset
        && summary.next_segment < layout.segment_count()
        && summary.next_segment != segment
        && summary.sectors > 0
        && u64::from(summary.sectors).is_multiple_of(layout.align_sectors());
    if !claims {
        return None;
    }
    let partial = rest.get(..(u64::from(summary.sectors) * SECTOR_BYTES) as usize)?;
    if !partial_is_sealed(partial, &summary) {
        return None;
    }
    let items = summary_items(partial, &summary)?;
    Some(FoundPartial { start: layout.segment_start(segment) + offset, summary, items })
}

/// The bytes of the partial segment `offset` sectors into `segment` that `is_wanted`, from a reading of the device
/// other than the default one.
pub(super) async fn partial_otherwise(
    device: &Device,
    layout: &Layout,
    segment: SegmentNo,
    offset: u64,
    is_wanted: impl Fn(&Summary) -> bool,
) -> Option<Buf> {
    let (start, sectors) = (layout.segment_start(segment), layout.segment_sectors());
    // On a device with one reading that is the default one.
    for reading in (0..device.readings()).filter(|_| device.readings() > 1) {
        let Ok(read) = rescue_as(device, start, sectors, Some(reading)).await else { continue };
        let found = partial_at(layout, segment, offset, &read.bytes).filter(|partial| is_wanted(&partial.summary));
        let Some(summary) = found.map(|partial| partial.summary) else { continue };
        // Only the sectors of this partial segment are known to be right.
        let is_right = |bytes: &[u8]| Summary::decode(bytes) == Some(summary) && partial_is_sealed(bytes, &summary);
        return read_right(device, start + offset, summary.sectors.into(), is_right).await;
    }
    None
}
