//! Read-ahead of one sequential stream. Measured drives \[do23\] serve a single stream from memory in a tenth of the time of a
//! random read, and lose that with a second stream.

use super::drive::UNIT_BYTES;
use super::front::SectorExtent;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadAhead {
    /// The sector behind the last read, if there was one.
    next: Option<u64>,
}

/// Outstanding commands with which the measured drive still reads ahead for reads of less than a unit. With more, it serves each
/// of them from the die, as if it took those that meet in a unit for no stream.
const PARTS_MAX: usize = 4;

impl ReadAhead {
    /// Whether a read continues the one before it, while `outstanding` commands are.
    pub(super) fn continues(&mut self, extent: &SectorExtent, outstanding: usize) -> bool {
        let is_stream = extent.bytes() >= UNIT_BYTES || outstanding <= PARTS_MAX;
        let continues = is_stream && self.next == Some(extent.first_sector);
        self.next = Some(extent.first_sector + extent.sectors);
        continues
    }
}
