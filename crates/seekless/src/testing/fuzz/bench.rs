//! A volume to examine and change byte by byte.

use super::Bytes;
use crate::codec::Field;
use crate::device::Image;
use crate::units::{SECTOR_BYTES, Sector};

/// Bytes of a volume in memory.
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

    /// Gives a field of the record at `at` a value chosen by the input.
    pub(super) fn change_field(&mut self, at: u64, fields: &[Field], bytes: &mut Bytes<'_>) {
        let field = bytes.pick(fields);
        let mut value = bytes.edge().to_le_bytes().to_vec();
        value.resize(field.size, 0);
        self.write(at + field.offset as u64, &value);
    }

    /// A change without regard to the content: a bit flip, a piece of the input, another place's sector, or zeroes, by
    /// `kind`. The input chooses a start with `sector`; every range ends at `end`.
    pub(super) fn scribble(
        &mut self,
        kind: u8,
        end: u64,
        bytes: &mut Bytes<'_>,
        sector: impl Fn(&mut Bytes<'_>) -> u64,
    ) {
        match kind {
            0 => {
                let at = sector(bytes) + u64::from(bytes.u16()) % SECTOR_BYTES;
                let byte = self.read(at, 1)[0] ^ 1 << (bytes.u8() % 8);
                self.write(at, &[byte]);
            }
            1 => {
                let at = sector(bytes) + u64::from(bytes.u16()) % SECTOR_BYTES;
                let length = usize::from(bytes.u8() % 64);
                let piece = bytes.take(length);
                let room = (end - at) as usize;
                self.write(at, &piece[..piece.len().min(room)]);
            }
            2 => {
                let (from, to) = (sector(bytes), sector(bytes));
                let copy = self.read(from, SECTOR_BYTES as usize);
                self.write(to, &copy);
            }
            _ => {
                let at = sector(bytes);
                self.write(at, &[0; SECTOR_BYTES as usize]);
            }
        }
    }
}
