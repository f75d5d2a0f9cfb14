//! The search for a witness: something behind the end of the log that proves that the log once went on, durably.
//!
//! A power cut leaves a log that ends in what was never acknowledged. Damage can make it end earlier, and looks the
//! same where it ends. But each partial segment says up to which sequence number everything was durable when it was
//! written, so any later one can tell the two apart (V2). The log goes through segments that were clean, in no order
//! that is certain, so the search follows the `next_segment` of whatever it finds, and where that trail breaks tries
//! the start of one segment after another.

use std::collections::BTreeSet;

use super::Lfs;
use super::cleaner::partial_at;
use super::format::{SUMMARY_MAGIC, Summary};
use super::layout::{Layout, SegmentNo};
use super::state::LogEnd;
use crate::device::Buf;
use crate::device::rescue::rescue;
use crate::fs::FsResult;
use crate::units::SECTOR_BYTES;

/// Segments whose start a mount looks at when the trail breaks. A transaction is little longer than what may wait in
/// memory (`dirty`, 16 MiB unless the user says otherwise), which is 128 of the smallest segments, and the transaction
/// after it is a witness.
pub(super) const STARTS_AT_MOUNT: usize = 256;

/// A partial segment that says that the one at the end of the log was durable.
pub(super) struct Witness {
    pub sequence: u64,
    pub at: crate::units::Sector,
}

/// Looks for a witness behind `end`. After the trail breaks, `starts_max` segments are looked at, in the order in
/// which the log would take them.
pub(super) async fn find(lfs: &Lfs, end: &LogEnd, starts_max: usize) -> FsResult<Option<Witness>> {
    let layout = lfs.state.borrow().log.layout;
    let mut search = Search { lfs, layout, end, seen: BTreeSet::from([end.segment]) };
    let (found, _) = search.segment(end.segment, end.offset).await?;
    if found.is_some() {
        return Ok(found);
    }
    if let Some(found) = search.trail(end.next_segment).await? {
        return Ok(Some(found));
    }
    for start in starts(lfs, end.next_segment).into_iter().take(starts_max) {
        if !search.seen.contains(&start)
            && search.is_later(start).await?
            && let Some(found) = search.trail(start).await?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The segments that the log may have taken: those in which nothing is alive, from `first` on and round.
fn starts(lfs: &Lfs, first: SegmentNo) -> Vec<SegmentNo> {
    let state = lfs.state.borrow();
    let count = state.log.segments.count();
    let round = (first..count).chain(0..first);
    round.filter(|&segment| state.log.segments.get(segment).live_bytes == 0).collect()
}

struct Search<'a> {
    lfs: &'a Lfs,
    layout: Layout,
    end: &'a LogEnd,
    seen: BTreeSet<SegmentNo>,
}

impl Search<'_> {
    /// Follows the log from the start of `segment`, as far as it leads to segments not seen before.
    async fn trail(&mut self, segment: SegmentNo) -> FsResult<Option<Witness>> {
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

    /// Looks through a segment from `offset` on. Returns a witness, or where the log seems to have gone from here.
    async fn segment(&mut self, segment: SegmentNo, offset: u64) -> FsResult<(Option<Witness>, Option<SegmentNo>)> {
        let layout = self.layout;
        // What cannot be read proves nothing, and hides nothing that can.
        let read = rescue(&self.lfs.device, layout.segment_start(segment), layout.segment_sectors()).await?;
        let bytes = read.bytes;
        let mut latest: Option<Summary> = None;
        for offset in (offset..layout.segment_sectors()).step_by(layout.align_sectors() as usize) {
            let Some(claimed) = self.later_summary(segment, offset, &bytes) else { continue };
            if let Some(partial) = partial_at(&layout, segment, offset, &bytes)
                && partial.summary.durable_sequence > self.end.sequence
            {
                return Ok((Some(Witness { sequence: partial.summary.sequence, at: partial.start }), None));
            }
            // A damaged one proves nothing, but where it points is worth looking at.
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
        // The search follows it, too, when its start cannot be read: what is behind that may prove something.
        Ok(!read.lost.is_empty() || self.later_summary(segment, 0, &read.bytes).is_some())
    }

    /// What says that it is a partial segment of this volume and place, written after the end of the log.
    fn later_summary(&self, segment: SegmentNo, offset: u64, bytes: &Buf) -> Option<Summary> {
        let summary = Summary::decode(bytes.get((offset * SECTOR_BYTES) as usize..)?)?;
        let claims = summary.magic == SUMMARY_MAGIC
            && summary.uuid == self.layout.superblock.uuid
            && summary.segment == segment
            && u64::from(summary.offset) == offset
            && summary.next_segment < self.layout.segment_count()
            && summary.sequence >= self.end.sequence;
        claims.then_some(summary)
    }
}
