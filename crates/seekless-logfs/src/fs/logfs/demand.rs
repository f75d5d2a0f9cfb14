//! What a change asks of the log: room, access to the reserves, and blocks that it no longer needs.

use super::format::BLOCK_BYTES;
use super::state::DirtyAttributes;

/// How much of the reserves a change may use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::fs) enum ReserveAccess {
    /// Waits for the cleaner rather than use segments that the cleaner needs.
    User,
    /// Frees space in the end, so it may use what is reserved for the cleaner: all but a few segments where it changes what
    /// files contain besides, since it may free less than it writes.
    FreesSpace,
    /// The cleaner, mkfs, recovery and repair: no limit.
    Internal,
}

/// What a change needs room for.
pub(in crate::fs) struct Demand {
    /// Live bytes grow by so many.
    pub growth: i64,
    /// Blocks that it makes dirty.
    pub blocks: u64,
    /// Some of them are what a file contains.
    pub has_file_data: bool,
    /// Attributes that it makes dirty.
    pub attributes: DirtyAttributes,
}

/// A run of blocks that are no longer stored: data blocks, or indirect blocks of one level with everything below them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::fs) struct Hole {
    /// Key of the first block.
    pub first: u64,
    pub count: u32,
    /// Space is reserved for them.
    pub reserved: bool,
}

/// Space that the last operations before `NoSpace` leave, so that a file system that reports itself full can still
/// write the indirect blocks and directory blocks that small changes need.
pub(in crate::fs) const PENDING_MARGIN_BYTES: u64 = 16 * BLOCK_BYTES as u64;

/// Adds a hole to `holes`, joined to the last one when the two are adjacent, in either direction.
pub(in crate::fs) fn add_hole(holes: &mut Vec<Hole>, new: Hole) {
    debug_assert!(new.count > 0, "a hole has blocks");
    if let Some(last) = holes.last_mut()
        && last.reserved == new.reserved
        && let Some((first, count)) = join(last.first, last.count, new.first, new.count)
    {
        (last.first, last.count) = (first, count);
        return;
    }
    holes.push(new);
}

/// Removes `first..end` from `holes`.
pub(in crate::fs) fn cut_holes(holes: &mut Vec<Hole>, first: u64, end: u64) {
    let overlaps = |hole: &Hole| hole.first < end && first < hole.first + u64::from(hole.count);
    if !holes.iter().any(overlaps) {
        return;
    }
    let mut left = Vec::with_capacity(holes.len() + 1);
    for hole in holes.drain(..) {
        let hole_end = hole.first + u64::from(hole.count);
        // The parts of the hole before the range and behind it.
        for (from, to) in [(hole.first, hole_end.min(first)), (hole.first.max(end), hole_end)] {
            if from < to {
                left.push(Hole { first: from, count: (to - from) as u32, ..hole });
            }
        }
    }
    debug_assert!(!left.iter().any(overlaps), "nothing of the range is a hole any more");
    *holes = left;
}

fn join(first: u64, count: u32, at: u64, more: u32) -> Option<(u64, u32)> {
    let total = count.checked_add(more)?;
    if first + u64::from(count) == at {
        Some((first, total))
    } else if at + u64::from(more) == first {
        Some((at, total))
    } else {
        None
    }
}
