//! The search for evidence of durability: a later partial segment which proves that the end of the log was once
//! followed by durable data.
//!
//! After a power cut the log ends in data that was never acknowledged. Damage can make the log end earlier, and its end
//! then looks the same. But each partial segment records up to which sequence number everything was durable when it was
//! written, so any later one distinguishes the two cases (V2). The log goes through segments that were clean, in no
//! fixed order. So the search follows the `next_segment` of every partial segment that it finds, and where that trail
//! breaks it tries the start of one segment after another.

use std::collections::BTreeSet;

use super::Lfs;
use super::partials::partial_at;
use super::format::{SUMMARY_MAGIC, Summary};
use super::layout::{Layout, SegmentNo};
use super::segment_reader::SegmentReader;
use super::state::LogEnd;
use crate::device::Buf;
use crate::device::rescue::rescue;
use crate::fs::FsResult;
use crate::units::SECTOR_BYTES;

/// Segments whose start a mount examines when the trail breaks. A transaction is little longer than the dirty data that
/// may wait in memory (`dirty`, 16 MiB by default), which is 128 of the smallest segments, and the transaction after it
/// is the evidence.
pub(super) const SEGMENT_STARTS_PROBED_AT_MOUNT: usize = 256;

/// A partial segment which declares that the one at the end of the log was durable.
pub(super) struct DurabilityEvidence {
    pub sequence: u64,
    pub at: crate::units::Sector,
}

/// Searches for evidence behind `end`. After the trail breaks, at most `starts_max` segments are examined, in the order
/// in which the log would take them. `reader` has read the log up to there.
pub(super) async fn find(
    lfs: &Lfs,
    reader: &mut SegmentReader,
    end: &LogEnd,
    starts_max: usize,
) -> FsResult<Option<DurabilityEvidence>> {
    let layout = lfs.state.borrow().log.layout;
    let mut search = Search { lfs, reader, layout, end, seen: BTreeSet::from([end.segment]) };
    let (found, _) = search.segment(end.segment, end.offset).await?;
    if found.is_some() {
        return Ok(found);
    }
    if let Some(found) = search.trail(end.next_segment).await? {
        return Ok(Some(found));
    }
    for start in starts(lfs, end.next_segment, starts_max) {
        if !search.seen.contains(&start)
            && search.is_later(start).await?
            && let Some(found) = search.trail(start).await?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The segments that the log may have taken, from `first` on and around: at most `most` of those without live data, and
/// then as many of the others, which may have been emptied behind `end` and written again since (G1).
fn starts(lfs: &Lfs, first: SegmentNo, most: usize) -> Vec<SegmentNo> {
    let state = lfs.state.borrow();
    let count = state.log.segments.count();
    let round = (first..count).chain(0..first);
    let (empty, others): (Vec<SegmentNo>, Vec<SegmentNo>) =
        round.partition(|&segment| state.log.segments.get(segment).live_bytes == 0);
    empty.into_iter().take(most).chain(others.into_iter().take(most)).collect()
}

struct Search<'a> {
    lfs: &'a Lfs,
    reader: &'a mut SegmentReader,
    layout: Layout,
    end: &'a LogEnd,
    seen: BTreeSet<SegmentNo>,
}

impl Search<'_> {
    /// Follows the log from the start of `segment`, as far as it leads to segments not seen before.
    async fn trail(&mut self, segment: SegmentNo) -> FsResult<Option<DurabilityEvidence>> {
        let mut next = Some(segment);
        while let Some(segment) = next.filter(|&segment| self.seen.insert(segment)) {
            let (found, follows) = self.segment(segment, 0).await?;
            if found.is_some() {
                return Ok(found);
            }
            next = follows;
        }
        Ok(None)
    }

    /// Searches a segment from `offset` on. Returns the evidence, or the segment in which the log seems to continue.
    async fn segment(
        &mut self,
        segment: SegmentNo,
        offset: u64,
    ) -> FsResult<(Option<DurabilityEvidence>, Option<SegmentNo>)> {
        let layout = self.layout;
        // Unreadable sectors prove nothing; the readable ones around them still can.
        let bytes = &self.reader.read(self.lfs, &layout, segment).await?.bytes;
        let mut latest: Option<Summary> = None;
        for offset in (offset..layout.segment_sectors()).step_by(layout.align_sectors() as usize) {
            let Some(claimed) = later_summary(&layout, self.end, segment, offset, bytes) else { continue };
            if let Some(partial) = partial_at(&layout, segment, offset, bytes)
                && partial.summary.durable_sequence > self.end.sequence
            {
                return Ok((Some(DurabilityEvidence { sequence: partial.summary.sequence, at: partial.start }), None));
            }
            // A damaged one proves nothing, but the segment that it points to is worth examining.
            if latest.is_none_or(|latest| latest.sequence < claimed.sequence) {
                latest = Some(claimed);
            }
        }
        Ok((None, latest.map(|summary| summary.next_segment)))
    }

    /// Whether `segment` begins with something younger than the end of the log.
    async fn is_later(&self, segment: SegmentNo) -> FsResult<bool> {
        let (start, sectors) = (self.layout.segment_start(segment), self.layout.align_sectors());
        let read = rescue(&self.lfs.device, start, sectors).await?;
        // When its start cannot be read, the search follows it too: a partial segment further on may be evidence.
        Ok(!read.lost.is_empty() || later_summary(&self.layout, self.end, segment, 0, &read.bytes).is_some())
    }
}

/// A summary of this volume and place, written after `end`, the end of the log.
fn later_summary(layout: &Layout, end: &LogEnd, segment: SegmentNo, offset: u64, bytes: &Buf) -> Option<Summary> {
    let bytes = bytes.get((offset * SECTOR_BYTES) as usize..)?;
    // Most sectors hold none; the magic number shows that without decoding the rest.
    crate::codec::get_at(bytes, 0).filter(|&magic: &u32| magic == SUMMARY_MAGIC)?;
    let summary = Summary::decode(bytes)?;
    let claims = summary.uuid == layout.superblock.uuid
        && summary.segment == segment
        && u64::from(summary.offset) == offset
        && summary.next_segment < layout.segment_count()
        && summary.sequence >= end.sequence;
    claims.then_some(summary)
}
