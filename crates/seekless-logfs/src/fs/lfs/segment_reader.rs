//! Reads the log forward, a segment at a time. An unreadable part is treated as damaged: the log ends there, and a later
//! partial segment proves whether it should.

use super::Lfs;
use super::partials::{FoundPartial, partial_at, partial_otherwise};
use super::format::*;
use super::layout::*;
use super::state::LogEnd;
use crate::device::rescue::{Rescued, rescue};
use crate::device::{Buf, DeviceError};
use crate::fs::FsResult;
use crate::units::{SECTOR_BYTES, Sector};

/// Reads segments for tasks that follow the log.
#[derive(Default)]
pub(super) struct SegmentReader {
    /// The two read last, the older one first: the end of the log is looked for in one segment and at the start of the
    /// next, several times.
    segments: Vec<(SegmentNo, Rescued)>,
}

impl SegmentReader {
    pub(super) async fn read(&mut self, lfs: &Lfs, layout: &Layout, segment: SegmentNo) -> FsResult<&mut Rescued> {
        match self.segments.iter().position(|(known, _)| *known == segment) {
            Some(index) => self.segments[index..].rotate_left(1),
            None => {
                self.segments.drain(..self.segments.len().saturating_sub(1));
                let start = layout.segment_start(segment);
                let read = rescue(&lfs.device, start, layout.segment_sectors()).await?;
                self.segments.push((segment, read));
            }
        }
        match self.segments.last_mut() {
            Some((_, read)) => Ok(read),
            None => unreachable!("it was just read"),
        }
    }

    /// The partial segment that continues the log at `end`: in the same segment, or at the start of the next.
    pub(super) async fn next(
        &mut self,
        lfs: &Lfs,
        layout: &Layout,
        end: &LogEnd,
    ) -> FsResult<Option<(FoundPartial, Buf)>> {
        for (segment, offset) in [(end.segment, end.offset), (end.next_segment, 0)] {
            let bytes = &self.read(lfs, layout, segment).await?.bytes;
            let Some(partial) = partial_at(layout, segment, offset, bytes) else { continue };
            if partial.summary.sequence == end.sequence && partial.summary.chain == end.chain {
                let from = (offset * SECTOR_BYTES) as usize;
                let to = from + (u64::from(partial.summary.sectors) * SECTOR_BYTES) as usize;
                let bytes = Buf::from_slice(&bytes[from..to]);
                return Ok(Some((partial, bytes)));
            }
        }
        // Another reading may have it.
        for (segment, offset) in [(end.segment, end.offset), (end.next_segment, 0)] {
            let follows = |summary: &Summary| summary.sequence == end.sequence && summary.chain == end.chain;
            let Some(right) = partial_otherwise(&lfs.device, layout, segment, offset, follows).await else { continue };
            let from = (offset * SECTOR_BYTES) as usize;
            let read = self.read(lfs, layout, segment).await?;
            read.bytes[from..from + right.len()].copy_from_slice(&right);
            let own = layout.segment_start(segment) + offset
                ..layout.segment_start(segment) + offset + right.len() as u64 / SECTOR_BYTES;
            read.lost.retain(|(range, _)| range.end <= own.start || own.end <= range.start);
            return Ok(partial_at(layout, segment, offset, &read.bytes).map(|partial| (partial, right)));
        }
        Ok(None)
    }

    /// A place where the log could continue and that cannot be read as far as a partial segment there goes, when
    /// neither place has a whole one; and the device's error.
    pub(super) async fn lost_at(
        &mut self,
        lfs: &Lfs,
        layout: &Layout,
        end: &LogEnd,
    ) -> FsResult<Option<(Sector, DeviceError)>> {
        for (segment, offset) in [(end.segment, end.offset), (end.next_segment, 0)] {
            if offset >= layout.segment_sectors() {
                continue;
            }
            let read = self.read(lfs, layout, segment).await?;
            let at = layout.segment_start(segment) + offset;
            let summary = read.bytes.get((offset * SECTOR_BYTES) as usize..).and_then(Summary::decode);
            let follows = |summary: &Summary| summary.sequence == end.sequence && summary.chain == end.chain;
            // A summary that cannot be read does not give its length.
            let said = summary.filter(follows).map_or(0, |summary| u64::from(summary.sectors));
            let sectors = said.max(layout.align_sectors()).min(layout.segment_sectors() - offset);
            if let Some(error) = read.lost_in(at, sectors) {
                return Ok(Some((at, error.clone())));
            }
        }
        Ok(None)
    }
}
