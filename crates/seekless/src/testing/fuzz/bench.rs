//! A volume on the bench: its bytes, to look at and to change.

use super::Bytes;
use crate::codec::Field;
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

    /// Gives a field of a record that lies at `at` a value that the input chooses.
    pub(super) fn change_field(&mut self, at: u64, fields: &[Field], bytes: &mut Bytes<'_>) {
        let field = bytes.pick(fields);
        let mut value = bytes.edge().to_le_bytes().to_vec();
        value.resize(field.size, 0);
        self.write(at + field.offset as u64, &value);
    }

    /// A change that knows nothing of what is there: a bit that flips, a piece of the input, another place's sector, or
    /// zeroes, by `kind`. `sector` has the input choose where a sector begins; all of them end at `end`.
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
