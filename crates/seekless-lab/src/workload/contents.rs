//! What benchmarks write: bytes that cannot be compressed, in pieces that differ.

use seekless::rng::Rng;

use crate::LabError;

/// Bytes of which each numbered piece is made: the same for all, with the number in front.
pub(super) struct Contents {
    common: Vec<u8>,
}

impl Contents {
    /// `bytes_max` is the size of the largest piece.
    pub(super) fn new(seed: u64, bytes_max: u64) -> Contents {
        let mut common = vec![0; bytes_max as usize];
        Rng::new(seed).fill(&mut common);
        Contents { common }
    }

    /// The `bytes` bytes of piece `number`, which are no more than the largest piece has.
    pub(super) fn piece(&self, number: u64, bytes: u64) -> Vec<u8> {
        let mut piece = self.common[..bytes as usize].to_vec();
        for (byte, number) in piece.iter_mut().zip(number.to_le_bytes()) {
            *byte = number;
        }
        piece
    }

    /// # Errors
    /// `Content`, when what was `found` in the file at `path` is not piece `number` of `bytes` bytes.
    pub(super) fn check(&self, number: u64, bytes: u64, path: &str, found: &[u8]) -> Result<(), LabError> {
        // Most of what is read is right, so it is compared without making the piece.
        let front = number.to_le_bytes();
        let front = &front[..front.len().min(bytes as usize)];
        if found.len() as u64 == bytes
            && found.starts_with(front)
            && found[front.len()..] == self.common[front.len()..bytes as usize]
        {
            return Ok(());
        }
        let expected = self.piece(number, bytes);
        let detail = match found.len() == expected.len() {
            false => format!("{} bytes instead of {}", found.len(), expected.len()),
            true => {
                let at = found.iter().zip(&expected).take_while(|(one, other)| one == other).count();
                format!("byte {at} differs")
            }
        };
        Err(LabError::Content { path: path.to_owned(), detail })
    }
}
