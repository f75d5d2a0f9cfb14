//! A volume on the bench: its bytes, to look at and to change.

use crate::device::Image;
use crate::units::{SECTOR_BYTES, Sector};

/// Bytes of a volume in memory, to change.
pub(super) struct Bench {
    pub image: Image,
}

impl Bench {
    pub(super) fn read(&self, at: u64, bytes: usize) -> Vec<u8> {
        let start = Sector(at / SECTOR_BYTES);
        let skip = (at % SECTOR_BYTES) as usize;
        let mut sectors = vec![0; (skip + bytes).next_multiple_of(SECTOR_BYTES as usize)];
        self.image.read(start, &mut sectors);
        sectors[skip..skip + bytes].to_vec()
    }

    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) {
        let start = Sector(at / SECTOR_BYTES);
        let skip = (at % SECTOR_BYTES) as usize;
        let mut sectors = vec![0; (skip + bytes.len()).next_multiple_of(SECTOR_BYTES as usize)];
        self.image.read(start, &mut sectors);
        sectors[skip..skip + bytes.len()].copy_from_slice(bytes);
        self.image.write(start, &sectors);
    }
}
