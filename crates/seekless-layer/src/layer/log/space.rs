//! Free space inside a lower file.
//!
//! Invariants
//!   F1  Free extents do not overlap, do not touch each other, and none touches the end.

use std::collections::{BTreeMap, BTreeSet};

use super::format::{Entry, RECORDS_START};
use crate::rt::cover;

/// Bytes of the lower file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl Extent {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.bytes
    }
}

impl From<Entry> for Extent {
    fn from(entry: Entry) -> Extent {
        Extent { offset: entry.offset, bytes: entry.bytes.into() }
    }
}

/// See the head of the file.
#[derive(Clone, Debug)]
pub(super) struct Space {
    by_offset: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
    end: u64,
}

impl Space {
    /// The space of a file without records.
    pub(super) fn empty() -> Space {
        Space { by_offset: BTreeMap::new(), by_size: BTreeSet::new(), end: RECORDS_START }
    }

    /// The space of a file that is full up to `end`.
    pub(super) fn full(end: u64) -> Space {
        Space { end, ..Space::empty() }
    }

    /// The space that `used` leaves free.
    ///
    /// # Errors
    /// Two extents that overlap.
    pub(super) fn around(mut used: Vec<Extent>) -> Result<Space, (Extent, Extent)> {
        used.sort_unstable();
        let mut space = Space::empty();
        let mut last = Extent { offset: 0, bytes: RECORDS_START };
        for extent in used {
            if extent.offset < last.end() {
                return Err((last, extent));
            }
            space.insert(Extent { offset: last.end(), bytes: extent.offset - last.end() });
            last = extent;
        }
        space.end = last.end();
        Ok(space)
    }

    /// Start of the free space at the end.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.by_offset.values().sum()
    }

    /// Recounts: F1 holds, and exactly what is not in `used` is free.
    ///
    /// # Errors
    /// What is wrong, as text.
    #[cfg(test)]
    pub(super) fn check(&self, used: Vec<Extent>) -> Result<(), String> {
        let by_size: BTreeSet<(u64, u64)> = self.by_offset.iter().map(|(offset, bytes)| (*bytes, *offset)).collect();
        if by_size != self.by_size {
            return Err(format!("free space by size is {:?}, and by offset {:?}", self.by_size, self.by_offset));
        }
        let again = Space::around(used).map_err(|(one, two)| format!("{one:?} and {two:?} overlap"))?;
        match (&again.by_offset, again.end) == (&self.by_offset, self.end) {
            true => Ok(()),
            false => Err(format!("free is {self:?}, and what is not used is {again:?}")),
        }
    }

    fn insert(&mut self, extent: Extent) {
        if extent.bytes > 0 {
            let other = self.by_offset.insert(extent.offset, extent.bytes);
            debug_assert!(other.is_none(), "F1: free extents do not overlap");
            self.by_size.insert((extent.bytes, extent.offset));
        }
    }

    fn remove(&mut self, extent: Extent) {
        let bytes = self.by_offset.remove(&extent.offset);
        debug_assert_eq!(bytes, Some(extent.bytes), "F1: what is no longer free was a free extent");
        let was_listed = self.by_size.remove(&(extent.bytes, extent.offset));
        debug_assert!(was_listed, "F1: a free extent is found by its size, too");
    }

    fn carve(&mut self, extent: Extent, bytes: u64) -> Extent {
        debug_assert!(bytes <= extent.bytes, "F1: no more is taken of a free extent than it has");
        self.remove(extent);
        self.insert(Extent { offset: extent.offset + bytes, bytes: extent.bytes - bytes });
        Extent { offset: extent.offset, bytes }
    }

    /// Allocates `bytes`: in the smallest free extent that holds them, or at the end.
    pub(super) fn allocate(&mut self, bytes: u64) -> Extent {
        let fitting = self.by_size.range((bytes, 0)..).next().copied();
        match fitting {
            Some((found, offset)) => {
                cover("layer: a record goes into free space");
                self.carve(Extent { offset, bytes: found }, bytes)
            }
            None => {
                let extent = Extent { offset: self.end, bytes };
                self.end += bytes;
                extent
            }
        }
    }

    /// Allocates `bytes` behind everything, and not before `limit`.
    pub(super) fn allocate_behind(&mut self, bytes: u64, limit: u64) -> Extent {
        let offset = self.end.max(limit);
        self.insert(Extent { offset: self.end, bytes: offset - self.end });
        self.end = offset + bytes;
        Extent { offset, bytes }
    }

    /// Allocates `bytes` before `limit`, as near the start as possible.
    pub(super) fn allocate_below(&mut self, bytes: u64, limit: u64) -> Option<Extent> {
        let found = self.find_below(bytes, limit)?;
        Some(self.carve(found, bytes))
    }

    /// The free extent that [`Space::allocate_below`] would use.
    pub(super) fn find_below(&self, bytes: u64, limit: u64) -> Option<Extent> {
        let fits = |(_, found): &(&u64, &u64)| **found >= bytes;
        let (&offset, &bytes) = self.by_offset.range(..limit).find(fits)?;
        Some(Extent { offset, bytes })
    }

    /// Frees an extent.
    pub(super) fn free(&mut self, extent: Extent) {
        let mut extent = extent;
        if let Some((&offset, &bytes)) = self.by_offset.range(..extent.offset).next_back()
            && offset + bytes == extent.offset
        {
            self.remove(Extent { offset, bytes });
            extent = Extent { offset, bytes: bytes + extent.bytes };
        }
        if let Some((&offset, &bytes)) = self.by_offset.range(extent.end()..).next()
            && offset == extent.end()
        {
            self.remove(Extent { offset, bytes });
            extent.bytes += bytes;
        }
        match extent.end() == self.end {
            true => self.end = extent.offset,
            false => self.insert(extent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Aim: no space is allocated twice and none is lost. Method: random allocation and freeing against a plain set of
    /// units, and a comparison with a recount.
    #[test]
    fn space_is_given_out_once() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let mut space = Space::empty();
            let mut used: Vec<Extent> = Vec::new();
            for _ in 0..400 {
                if used.is_empty() || rng.chance(11, 20) {
                    let bytes = 64 * rng.between(1, 20);
                    let limit = rng.below(20_000);
                    let extent = match rng.below(6) {
                        0 | 1 => space.allocate_below(bytes, limit).inspect(|extent| assert!(extent.offset < limit)),
                        2 => Some(space.allocate_behind(bytes, limit / 64 * 64)),
                        _ => Some(space.allocate(bytes)),
                    };
                    assert!(extent.is_none_or(|extent| extent.bytes == bytes));
                    used.extend(extent);
                } else {
                    let index = rng.below(used.len() as u64) as usize;
                    space.free(used.swap_remove(index));
                }
                assert_eq!(space.check(used.clone()), Ok(()), "seed {seed}");
            }
        }
    }

    #[test]
    fn overlaps_are_found() {
        let (one, two) = (Extent { offset: 1024, bytes: 128 }, Extent { offset: 1088, bytes: 64 });
        assert_eq!(Space::around(vec![two, one]).err(), Some((one, two)));
        let head = Extent { offset: 512, bytes: 64 };
        assert!(Space::around(vec![head]).is_err(), "records do not stand in slots");
    }
}
