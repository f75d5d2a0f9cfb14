//! Logical blocks whose next write is promised room: by a request to provision them.
//!
//! Invariants
//!   P1  A promise is kept until its block is written or discarded. It is in memory alone: a start knows of none.

use std::ops::Range;

use super::marks::Marks;

/// See above.
#[derive(Default)]
pub(super) struct Promises {
    marks: Marks,
    count: u64,
}

impl Promises {
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn has(&self, logical: u32) -> bool {
        self.count > 0 && self.marks.count(logical..logical + 1) > 0
    }

    pub(super) fn add(&mut self, logical: u32) {
        debug_assert!(!self.has(logical), "P1: a block is promised once");
        self.marks.set(logical..logical + 1);
        self.count += 1;
    }

    /// The blocks have been written or discarded.
    pub(super) fn end(&mut self, blocks: Range<u32>) {
        if self.count > 0 {
            self.count -= u64::from(self.marks.count(blocks.clone()));
            self.marks.clear(blocks);
        }
    }

    /// Recounts the promises.
    ///
    /// # Errors
    /// The violated invariant.
    pub(super) fn check(&self, blocks: u32) -> Result<(), String> {
        match u64::from(self.marks.count(0..blocks)) {
            found if found != self.count => Err(format!("P1: {} promises by the books, {found} marks", self.count)),
            _ => Ok(()),
        }
    }
}
