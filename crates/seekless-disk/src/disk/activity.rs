//! What a drive does on the medium beside serving a request: reading ahead, and writing what completed in the cache.
//! [`super::mechanism`] has at most one of each; `read.rs` and `write.rs` advance them.

use super::tables::TrackRun;
use crate::units::Nanos;

/// Reading from the medium into a segment; after its request is complete, read-ahead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader {
    pub(super) slot: usize,
    /// The sectors passing now, or that the heads are moving to.
    pub(super) extent: TrackRun,
    /// Sectors after `extent` that come in before it, see [`super::Cache::read_on_arrival`].
    pub(super) early: u32,
}

/// Writing from a segment to the medium after the write completed for the host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer {
    pub(super) slot: usize,
    /// The sector after the last one.
    pub(super) next: u64,
    /// The sectors from `begin` to `end` are being written, evenly as far as requests can observe.
    pub(super) begin: Nanos,
    pub(super) end: Nanos,
    pub(super) sectors: u64,
}

impl Writer {
    /// Sectors that are not yet on the medium, assuming that they are written evenly.
    pub(super) fn pending(&self, now: Nanos) -> u64 {
        if now <= self.begin {
            return self.sectors;
        }
        let (left, whole) = (self.end.saturating_sub(now).0, self.end.saturating_sub(self.begin).0.max(1));
        (u128::from(self.sectors) * u128::from(left) / u128::from(whole)) as u64
    }
}
