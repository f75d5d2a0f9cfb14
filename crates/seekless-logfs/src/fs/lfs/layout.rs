//! Where things are: segments on the volume, and blocks in the tree of a file.

use super::format::*;
#[cfg(test)]
pub(super) use crate::fs::logfs::format::{FILE_BLOCKS_MAX, FILE_BYTES_MAX};
pub use crate::fs::logfs::tree::*;
use crate::fs::{FsError, FsResult};
use crate::units::{Ino, SECTOR_BYTES, Sector};

/// Number of a segment, counted from 0.
pub type SegmentNo = u64;

/// Shape of a volume, from its superblock.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub superblock: Superblock,
}

impl Layout {
    /// Checks what mkfs guarantees, so that the arithmetic below can rely on it.
    ///
    /// # Errors
    /// `Corrupt`, naming the field.
    pub fn new(superblock: Superblock, device_sectors: u64) -> FsResult<Layout> {
        let s = &superblock;
        let bad = |field: &str, found: u64| {
            Err(FsError::corrupt("superblock", Sector(0), format_args!("{field} is {found}, which is impossible")))
        };
        if s.version != VERSION {
            return Err(FsError::corrupt(
                "superblock",
                Sector(0),
                format_args!("format version {} needs another release; this one reads version {VERSION}", s.version),
            ));
        }
        let unknown = s.features_incompatible & !FEATURES_KNOWN;
        if unknown != 0 {
            return Err(FsError::corrupt(
                "superblock",
                Sector(0),
                format_args!("the volume uses features {unknown:#x} that this release does not know"),
            ));
        }
        if s.block_bytes as usize != BLOCK_BYTES {
            return bad("block_bytes", s.block_bytes.into());
        }
        let align = u64::from(s.align_sectors);
        if !align.is_power_of_two() || align > BLOCK_SECTORS {
            return bad("align_sectors", align);
        }
        let segment = u64::from(s.segment_sectors);
        if !(SEGMENT_SECTORS_MIN..=SEGMENT_SECTORS_MAX).contains(&segment) || !segment.is_multiple_of(BLOCK_SECTORS) {
            return bad("segment_sectors", segment);
        }
        if s.segment_count < SEGMENT_COUNT_MIN || s.segment_count > SEGMENT_COUNT_MAX {
            return bad("segment_count", s.segment_count);
        }
        if s.first_segment < HEAD_SECTORS || !s.first_segment.is_multiple_of(BLOCK_SECTORS) {
            return bad("first_segment", s.first_segment);
        }
        let end = s.segment_count.checked_mul(segment).and_then(|sectors| sectors.checked_add(s.first_segment));
        match end.and_then(|end| end.checked_add(BLOCK_SECTORS)) {
            Some(end) if end <= s.volume_sectors => {}
            _ => return bad("volume_sectors", s.volume_sectors),
        }
        if s.volume_sectors > device_sectors {
            return Err(FsError::corrupt(
                "volume",
                Sector(device_sectors),
                format_args!(
                    "it ends here, but was made with {} sectors: the image is cut short; made as long again with \
                     `truncate -s {} IMAGE`, what is left of it can be read",
                    s.volume_sectors,
                    s.volume_sectors.saturating_mul(SECTOR_BYTES)
                ),
            ));
        }
        if u64::from(s.reserve_segments) * 2 > s.segment_count {
            return bad("reserve_segments", s.reserve_segments.into());
        }
        Ok(Layout { superblock })
    }

    pub fn segment_sectors(&self) -> u64 {
        u64::from(self.superblock.segment_sectors)
    }

    pub fn segment_bytes(&self) -> u64 {
        self.segment_sectors() * SECTOR_BYTES
    }

    pub fn segment_count(&self) -> u64 {
        self.superblock.segment_count
    }

    pub fn align_sectors(&self) -> u64 {
        u64::from(self.superblock.align_sectors)
    }

    /// First sector of `segment`.
    pub fn segment_start(&self, segment: SegmentNo) -> Sector {
        debug_assert!(segment < self.segment_count(), "a segment that has a place is one of the volume");
        Sector(self.superblock.first_segment + segment * self.segment_sectors())
    }

    /// The segment that holds `sector`, if one does.
    pub fn segment_of(&self, sector: Sector) -> Option<SegmentNo> {
        let segment = sector.0.checked_sub(self.superblock.first_segment)? / self.segment_sectors();
        (segment < self.segment_count()).then_some(segment)
    }

    /// True when these sectors are within one segment of the log.
    pub fn holds(&self, at: Sector, sectors: u64) -> bool {
        match (self.segment_of(at), at.0.checked_add(sectors)) {
            (Some(segment), Some(end)) => end <= self.segment_start(segment).0 + self.segment_sectors(),
            _ => false,
        }
    }

    /// Whether the log says of each block when a user wrote it.
    pub fn has_stamps(&self) -> bool {
        self.superblock.features_incompatible & FEATURE_WRITTEN != 0
    }

    /// The stamp of a time in nanoseconds since 1970; 0 on a volume without stamps.
    pub fn stamp(&self, nanos: i64) -> Stamp {
        let since = i128::from(nanos) - i128::from(self.superblock.created_seconds) * NANOS_PER_SECOND;
        let stamp = (since.max(0) >> STAMP_SHIFT) as u128 + 1;
        if self.has_stamps() { stamp.min(u128::from(STAMP_MAX)) as Stamp } else { 0 }
    }

    /// The time of a stamp, in nanoseconds since 1970. `None` when it says nothing.
    pub fn time_of(&self, stamp: Stamp) -> Option<i64> {
        let since = i128::from(stamp.checked_sub(1)?) << STAMP_SHIFT;
        let nanos = i128::from(self.superblock.created_seconds) * NANOS_PER_SECOND + since;
        i64::try_from(nanos.max(0)).ok().filter(|_| self.has_stamps())
    }

    /// Bytes of live data and metadata that files may use: everything but the reserve, what a segment loses to
    /// summaries (24 bytes for a block of 4096, and a sector for a partial segment), and blocks that do not fit at its
    /// end.
    pub fn capacity_bytes(&self) -> u64 {
        let segments = self.segment_count() - u64::from(self.superblock.reserve_segments);
        let lost = self.segment_bytes() / 128 + 2 * BLOCK_BYTES as u64;
        segments * (self.segment_bytes() - lost)
    }

    /// First number past all inode numbers: at least one inode for every block of the volume.
    pub fn ino_end(&self) -> u64 {
        (self.superblock.volume_sectors / BLOCK_SECTORS).max(FIRST_FREE_INO * 2)
    }

    pub fn superblock_backup(&self) -> Sector {
        Sector(self.superblock.volume_sectors - BLOCK_SECTORS)
    }
}

const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// The largest single item, the extended attributes of a file, must fit well.
pub const SEGMENT_SECTORS_MIN: u64 = 256;
pub const SEGMENT_SECTORS_MAX: u64 = 1 << 16;
pub const SEGMENT_COUNT_MIN: u64 = 64;
/// Bound that keeps the usage table, 16 bytes a segment, in memory.
pub const SEGMENT_COUNT_MAX: u64 = 1 << 22;

/// The block of the inode map that holds `ino`'s entry, and the entry's byte offset in it.
pub fn imap_place(ino: Ino) -> (BlockId, usize) {
    let block = BlockId::data(IMAP_INO, ino.0 / IMAP_ENTRIES_PER_BLOCK);
    (block, (ino.0 % IMAP_ENTRIES_PER_BLOCK) as usize * 8)
}
