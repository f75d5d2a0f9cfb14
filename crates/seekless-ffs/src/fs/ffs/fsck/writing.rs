//! Writing what a repair has changed, on a medium of which some sectors cannot be written.
//!
//!   1. New blocks, which must be durable before anything points to them.
//!   2. Inodes, indirect blocks and names.
//!   3. The blocks of groups, which follow from these.
//!
//! When any of the first two kinds cannot be written, the rest of that kind is written, and the check begins again. It takes what
//! cannot be written for unreadable, so that nothing is given away that the old content may lead to (see `unread`), and new
//! blocks go elsewhere. As groups are written last, they still count what the old content has.
//!
//! A group whose block cannot be written keeps its old content if that is harmless to a mount: its maps count as used all that
//! is, or the block cannot be read either, so that a mount gives nothing of it. Otherwise the check ends with the error, as
//! it does without the superblock.

use std::ops::Range;

use super::super::group;
use super::super::io::write_bytes;
use super::super::numbers::FragNo;
use super::groups::is_leak;
use super::{Cause, Check, differing};
use crate::device::rescue::{Rescued, rescue};
use crate::device::{Data, DeviceError, WriteFlags};
use crate::fs::FsResult;
use crate::units::{SECTOR_BYTES, Sector};

/// Sectors that could not be written, with the device's error.
pub(super) type Unwritten = Vec<(Range<Sector>, DeviceError)>;

impl Check<'_> {
    /// Writes the repaired blocks that are new, or what changed of the others but groups: the rest of a block whose write was torn
    /// may have no storage below. What cannot be read is left out. Returns the error of the first sector that cannot be written.
    pub(super) async fn write_changed(&self, fresh: bool) -> FsResult<Option<DeviceError>> {
        let mut first = None;
        let is_of_group = |at: FragNo| at == self.layout.group_block(self.layout.group_of(at));
        let is_now = |at: &FragNo| self.fresh.contains(at) == fresh && !is_of_group(*at);
        for (&at, bytes) in self.changed.iter().filter(|(at, _)| is_now(at)) {
            let sector = self.layout.sector(at);
            let old = match fresh {
                true => None,
                false => Some(rescue(self.device, sector, bytes.len() as u64 / SECTOR_BYTES).await?),
            };
            let (unwritten, _) = self.write_what_differs(sector, bytes, old.as_ref()).await?;
            first = first.or(unwritten.first().map(|(_, error)| error.clone()));
            self.unread.note_unwritten(unwritten);
        }
        Ok(first)
    }

    /// Writes what changed of the blocks of groups.
    ///
    /// # Errors
    /// Also that of a group that keeps maps which are not harmless.
    pub(super) async fn write_groups(&mut self) -> FsResult<()> {
        for number in self.layout.group_numbers() {
            let at = self.layout.group_block(number);
            let Some(bytes) = self.changed.get(&at) else { continue };
            assert!(!self.fresh.contains(&at), "no new block is where a group's block is");
            let sector = self.layout.sector(at);
            let old = rescue(self.device, sector, bytes.len() as u64 / SECTOR_BYTES).await?;
            let (unwritten, written) = self.write_what_differs(sector, bytes, Some(&old)).await?;
            let Some((_, error)) = unwritten.first().cloned() else { continue };
            let is_unreadable =
                unwritten.iter().any(|(range, _)| old.lost_in(range.start, range.end - range.start).is_some());
            if !is_unreadable {
                let is_harmless = old.lost.is_empty()
                    && group::verify(&self.layout, number, &old.bytes).is_ok()
                    && is_leak(&self.layout, &old.bytes, bytes);
                // Counts and maps of one group have to agree.
                for range in written {
                    let bytes = Data::from_slice(&old.bytes[range.clone()]);
                    self.write_each(sector + range.start as u64 / SECTOR_BYTES, bytes).await?;
                }
                if !is_harmless {
                    return Err(error.into());
                }
            }
            self.tell_of_unwritten(format!("group {number}"), &error);
        }
        Ok(())
    }

    /// Reports that something keeps its old content, which is harmless.
    pub(super) fn tell_of_unwritten(&mut self, what: String, error: &DeviceError) {
        self.problem(format!("{what} cannot be written: {error}; left as it is"), Cause::Unread);
        self.is_unwritten = true;
    }

    /// Writes what differs from `old`. Returns the sectors that cannot be written, and the bytes that have been.
    async fn write_what_differs(
        &self,
        first: Sector,
        bytes: &[u8],
        old: Option<&Rescued>,
    ) -> FsResult<(Unwritten, Vec<Range<usize>>)> {
        let is_same = |range: Range<usize>| {
            let (at, sectors) = (first + range.start as u64 / SECTOR_BYTES, range.len() as u64 / SECTOR_BYTES);
            let is_there =
                |old: &Rescued| old.lost_in(at, sectors).is_none() && old.bytes[range.clone()] == bytes[range.clone()];
            self.unread.leaves_out(at, sectors) || old.is_some_and(is_there)
        };
        let data = Data::from_slice(bytes);
        let (mut unwritten, mut written) = (Vec::new(), Vec::new());
        for range in differing(bytes.len(), self.device.geometry().block_bytes as usize, is_same) {
            let at = first + range.start as u64 / SECTOR_BYTES;
            unwritten.extend(self.write_each(at, data.slice(range.clone())).await?);
            written.push(range);
        }
        Ok((unwritten, written))
    }

    /// Writes `data`, block by block of the device if it cannot be written as a whole. Returns what cannot be written.
    pub(super) async fn write_each(&self, at: Sector, data: Data) -> FsResult<Unwritten> {
        let Err(error) = write_bytes(self.device, at, data.clone(), WriteFlags::NONE).await else { return Ok(vec![]) };
        let piece = self.device.geometry().block_bytes as usize;
        assert!(data.len().is_multiple_of(SECTOR_BYTES as usize), "a repair writes whole sectors");
        let mut unwritten = Vec::new();
        if !error.is_of_medium() {
            return Err(error.into());
        }
        for start in (0..data.len()).step_by(piece) {
            let range = start..data.len().min(start + piece);
            let place = at + start as u64 / SECTOR_BYTES;
            let end = at + range.end as u64 / SECTOR_BYTES;
            match write_bytes(self.device, place, data.slice(range), WriteFlags::NONE).await {
                Ok(()) => {}
                Err(error) if error.is_of_medium() => unwritten.push((place..end, error)),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(unwritten)
    }
}
