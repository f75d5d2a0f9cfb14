//! The write-intent bitmap: which regions may be inconsistent after a power cut.
//!
//! Invariants
//!   B1  A row is written only while the bit of its region is durable on every member in use.
//!   B2  A bit is cleared only when no write to its region is under way, and every write to it is durable, on
//!       consistent rows.
//!   B3  A bit that is being cleared counts as clear from the start of the clearing.
//!   B4  When a member has failed, the bits of rows that are consistent without it are cleared in the same write that
//!       records the failure: earlier, the member would be trusted without a resync; later, its units would be in
//!       doubt. So there are two copies of the bitmap, and the superblock says which one is valid.

mod update;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::rt::Gate;
use crate::units::SECTOR_BYTES;
use crate::volume::format::{BLOCK_BYTES, BLOCK_SECTORS, BitmapSector, REGIONS_PER_SECTOR};

#[derive(Default)]
pub(super) struct Bitmap {
    state: RefCell<BitmapState>,
    gate: Gate,
}

#[derive(Default)]
struct BitmapState {
    /// Which copy is valid, and which sectors in it (B4).
    epoch: u64,
    /// Regions whose bit is set on the members (B3).
    set: BTreeSet<u64>,
    /// Writes under way in each region.
    under_way: BTreeMap<u64, u64>,
    /// Number of flushes begun.
    flushes: u64,
    /// For each region, the number of flushes begun when its last write ended. None of those covers it.
    ended: BTreeMap<u64, u64>,
}

/// Regions with a write under way.
pub(super) struct Mark<'a> {
    bitmap: &'a Bitmap,
    regions: Range<u64>,
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        let mut state = self.bitmap.state.borrow_mut();
        let flushes = state.flushes;
        for region in self.regions.clone() {
            debug_assert!(state.under_way.contains_key(&region), "B2: a write under way is counted until it ends");
            state.ended.insert(region, flushes);
            if let Some(count) = state.under_way.get_mut(&region) {
                *count -= 1;
                if *count == 0 {
                    state.under_way.remove(&region);
                }
            }
        }
    }
}

impl Bitmap {
    pub(super) fn new(epoch: u64, set: BTreeSet<u64>) -> Bitmap {
        Bitmap { state: RefCell::new(BitmapState { epoch, set, ..BitmapState::default() }), gate: Gate::new() }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.state.borrow().epoch
    }

    /// Held while bits change.
    pub(super) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Regions whose bit is set (B3).
    pub(super) fn regions(&self) -> BTreeSet<u64> {
        self.state.borrow().set.clone()
    }

    pub(super) fn is_clean(&self) -> bool {
        self.state.borrow().set.is_empty()
    }
}

/// Puts the bits of a sector of a member's bitmap into `set`.
pub(super) fn collect(sector: &BitmapSector, set: &mut BTreeSet<u64>) {
    for (word, bits) in sector.bits.iter().enumerate() {
        let mut bits = *bits;
        while bits != 0 {
            let bit = bits.trailing_zeros();
            set.insert(u64::from(sector.index) * REGIONS_PER_SECTOR + word as u64 * 64 + u64::from(bit));
            bits &= bits - 1;
        }
    }
}

const _: () = assert!(SECTOR_BYTES * BLOCK_SECTORS == BLOCK_BYTES);
