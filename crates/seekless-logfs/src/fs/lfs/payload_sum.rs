//! The checksum of a partial segment, computed from those of its blocks.
//!
//! Each block has a checksum in the pointer to it, and the partial segment has one over everything. CRC-32C is linear: what
//! the bytes before contribute to the checksum of a longer sequence depends only on their own checksum and on how many bytes
//! follow. So a block is read once, for its own checksum, right after it has been copied, and the checksum of the whole
//! is computed from those.

use std::sync::OnceLock;

use super::format::{BLOCK_BYTES, BLOCK_SECTORS};
use crate::codec::{crc32c, crc32c_append};
use crate::units::SECTOR_BYTES;

/// The checksum of what has been put behind a summary so far.
#[derive(Default)]
pub(super) struct PayloadSum {
    crc: u32,
    sectors: u64,
}

impl PayloadSum {
    /// Adds whole sectors.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        debug_assert!(
            (bytes.len() as u64).is_multiple_of(SECTOR_BYTES),
            "what is behind a summary fills whole sectors"
        );
        self.crc = crc32c_append(self.crc, bytes);
        self.sectors += bytes.len() as u64 / SECTOR_BYTES;
    }

    /// Adds whole sectors whose checksum is `crc`.
    pub(super) fn add_summed(&mut self, bytes: &[u8], crc: u32) {
        debug_assert_eq!(crc, crc32c(bytes), "the sum in the pointer to a block is that of the block");
        if bytes.len() != BLOCK_BYTES {
            self.add(bytes);
            return;
        }
        self.crc = advances().block.apply(self.crc) ^ crc;
        self.sectors += BLOCK_SECTORS;
    }

    /// The checksum of `before` and the payload behind it.
    pub(super) fn behind(&self, before: &[u8]) -> u32 {
        let Advances { sector, block } = advances();
        let mut crc = crc32c(before);
        for _ in 0..self.sectors / BLOCK_SECTORS {
            crc = block.apply(crc);
        }
        for _ in 0..self.sectors % BLOCK_SECTORS {
            crc = sector.apply(crc);
        }
        crc ^ self.crc
    }
}

/// What a checksum contributes to one of more bytes, for a fixed number of those: a linear map of 32 bits, by byte.
struct Advance([[u32; 256]; 4]);

impl Advance {
    /// The map for `bytes` more bytes.
    fn by(bytes: usize) -> Advance {
        let zeroes = vec![0; bytes];
        let offset = crc32c(&zeroes);
        let mut tables = [[0; 256]; 4];
        for (position, table) in tables.iter_mut().enumerate() {
            for bit in 0..8 {
                let image = crc32c_append(1 << (8 * position + bit), &zeroes) ^ offset;
                for value in (0..256).filter(|value| value >> bit & 1 == 1) {
                    table[value] ^= image;
                }
            }
        }
        Advance(tables)
    }

    fn apply(&self, crc: u32) -> u32 {
        let bytes = crc.to_le_bytes();
        self.0.iter().zip(bytes).fold(0, |sum, (table, byte)| sum ^ table[usize::from(byte)])
    }
}

struct Advances {
    sector: Advance,
    block: Advance,
}

fn advances() -> &'static Advances {
    static ADVANCES: OnceLock<Advances> = OnceLock::new();
    ADVANCES.get_or_init(|| Advances { sector: Advance::by(SECTOR_BYTES as usize), block: Advance::by(BLOCK_BYTES) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// The sum is the checksum of all bytes, whatever they are divided into.
    #[test]
    fn it_is_the_checksum_of_all() {
        let mut rng = Rng::new(1);
        for round in 0..200 {
            let mut bytes = vec![0; 1 + rng.below(5_000) as usize];
            rng.fill(&mut bytes);
            let before = bytes.len();
            let mut sum = PayloadSum::default();
            for _ in 0..rng.below(12) {
                let sectors = if rng.chance(1, 2) { BLOCK_SECTORS } else { rng.between(1, 20) };
                let mut piece = vec![0; (sectors * SECTOR_BYTES) as usize];
                rng.fill(&mut piece);
                match rng.chance(1, 2) {
                    true => sum.add_summed(&piece, crc32c(&piece)),
                    false => sum.add(&piece),
                }
                bytes.extend(piece);
            }
            assert_eq!(sum.behind(&bytes[..before]), crc32c(&bytes), "round {round}");
        }
    }
}
