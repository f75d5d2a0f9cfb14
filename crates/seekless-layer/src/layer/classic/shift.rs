//! Replaces units by others, and moves what is behind them [za01 §6].

use std::ops::Range;

use super::data::Writing;
use super::file::Node;
use super::units::{Encoded, PIECE_BYTES};
use super::{Classic, count};
use crate::device::Data;
use crate::fs::{FsError, FsResult, SetAttr};
use crate::layer::read_lower;
use crate::rt::Work;

impl Classic {
    /// Stores `encoded` in place of the units of `pages`, as far as these exist, and updates the index in memory. The
    /// order of writes meets lack of space below before anything has been changed, provided that overwriting needs no
    /// space: first comes what ends up behind the present end, then what is behind the units moves, its end before its start.
    ///
    /// # Errors
    /// Those of the file system below. Then the content of the lower file is unknown, and has to be read again.
    pub(super) async fn replace(
        &self,
        writing: Writing<'_>,
        node: &Node,
        pages: Range<usize>,
        encoded: &Encoded,
        new_size: u64,
    ) -> FsResult<()> {
        let file = node.regular()?;
        let (start, end, lower_size, is_end) = {
            let index = &file.borrow().index;
            let is_end = pages.end >= index.pages();
            let end = if is_end { index.lower_size() } else { index.start(pages.end) };
            (index.start(pages.start), end, index.lower_size(), is_end)
        };
        debug_assert!(start <= end && end <= lower_size, "K1: units follow each other up to the end of the lower file");
        debug_assert!(!encoded.has_tail || is_end, "a tail is the last of the file");
        let new_end = start + encoded.bytes.len() as u64;
        let new_lower_size = new_end + (lower_size - end);
        let mut units = &encoded.bytes[..];
        if new_end > end {
            let moved = (new_end - end).min(lower_size - end);
            let units_behind = (new_end - end) - moved;
            let inside = units.len() - units_behind as usize;
            self.grow(writing, node, lower_size, moved, &units[inside..]).await?;
            units = &units[..inside];
            self.shift(writing, node, end..lower_size - moved, new_end).await?;
        }
        if !units.is_empty() {
            self.write_lower(writing, node, start, units).await?;
        }
        if new_end < end {
            self.shift(writing, node, end..lower_size, new_end).await?;
            let cut = SetAttr { size: Some(new_lower_size), ..SetAttr::default() };
            writing.lower.setattr(node.ino, None, cut).await?;
        }
        let mut file = file.borrow_mut();
        file.last_page = None;
        let index = &mut file.index;
        let behind = index.ends.split_off(pages.end.min(index.ends.len()));
        index.ends.truncate(pages.start);
        let mut last = start;
        for length in &encoded.lengths {
            last += length;
            index.ends.push(last);
        }
        debug_assert!(
            if encoded.has_tail { last < new_end } else { last == new_end },
            "K1: the index has the ends of all units that were written, but of no tail"
        );
        index.ends.extend(behind.into_iter().map(|unit_end| unit_end - end + new_end));
        index.size = new_size;
        if is_end {
            index.has_tail = encoded.has_tail;
        }
        assert!(index.lower_size() == new_lower_size, "an index of {index:?} for {new_lower_size} bytes below");
        file.index_changed(pages.start);
        Ok(())
    }

    /// Writes what comes behind the end of the lower file: `units`, and then the last `moved` bytes that are in it. If that
    /// fails, the lower file is as it was.
    async fn grow(&self, writing: Writing<'_>, node: &Node, lower_size: u64, moved: u64, units: &[u8]) -> FsResult<()> {
        debug_assert!(moved <= lower_size, "K1: only bytes that are in the lower file move");
        let mut grown =
            if units.is_empty() { Ok(()) } else { self.write_lower(writing, node, lower_size, units).await };
        if grown.is_ok() && moved > 0 {
            let to = lower_size + units.len() as u64;
            grown = self.shift(writing, node, lower_size - moved..lower_size, to).await;
        }
        match grown {
            Ok(()) => Ok(()),
            Err(error) => Err(self.shrunk(writing, node, lower_size, error).await),
        }
    }

    /// Takes back what a write that failed has left behind the end of the lower file.
    pub(super) async fn shrunk(&self, writing: Writing<'_>, node: &Node, lower_size: u64, error: FsError) -> FsError {
        // Another process has made it shorter.
        if matches!(error, FsError::Corrupt { .. }) {
            return error;
        }
        let cut = SetAttr { size: Some(lower_size), ..SetAttr::default() };
        // If this fails, too, the file is read again and found to be damaged.
        let _ = writing.lower.setattr(node.ino, None, cut).await;
        error
    }

    /// Moves the bytes of `range` to `target`.
    async fn shift(&self, writing: Writing<'_>, node: &Node, range: Range<u64>, target: u64) -> FsResult<()> {
        debug_assert_ne!(range.start, target, "what does not move is not written again");
        let piece = u64::from(PIECE_BYTES);
        let pieces = (range.end - range.start).div_ceil(piece);
        for number in 0..pieces {
            // Never onto bytes that have not been moved yet.
            let number = if target > range.start { pieces - 1 - number } else { number };
            let from = range.start + number * piece;
            let bytes = piece.min(range.end - from);
            let moved = read_lower(writing.lower, node.ino, writing.handle, from, bytes as u32).await?;
            if moved.len() as u64 != bytes {
                let place = format!("the lower file of inode {}", node.ino);
                return Err(FsError::corrupt(
                    "encoded file",
                    place,
                    format!("it ends at {}", from + moved.len() as u64),
                ));
            }
            self.write_lower(writing, node, from - range.start + target, &moved).await?;
            count(&self.counts.bytes_shifted, bytes);
        }
        Ok(())
    }

    async fn write_lower(&self, writing: Writing<'_>, node: &Node, offset: u64, bytes: &[u8]) -> FsResult<()> {
        self.rt.charge(Work::Copy { bytes: bytes.len() as u64 }).await;
        count(&self.counts.bytes_written, bytes.len() as u64);
        writing.lower.write(node.ino, writing.handle, offset, Data::from_slice(bytes), writing.mode).await
    }
}
