//! Contents of benchmark files, in distinct pieces: incompressible bytes, or compressible ones.

use seekless::rng::Rng;
use serde::{Deserialize, Serialize};

use crate::LabError;

/// Kind of bytes. It matters only to layers that compress.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Data {
    /// Incompressible: represents compressed data.
    #[default]
    Noise,
    /// Words, few of them frequent and many rare. Deflate at level 9 compresses it to 1/2.5 in pieces of 4 KiB and
    /// 1/3.5 in pieces of 64 KiB, like English documents (1/2.57 and 1/3.65, measured).
    Text,
    /// The same with short strings of any bytes: 1/2.0 in pieces of 4 KiB, where programs have 1/2.27 (measured).
    Program,
    /// One letter.
    Letter,
}

impl Data {
    fn fill(self, rng: &mut Rng, bytes: &mut [u8]) {
        match self {
            Data::Noise => rng.fill(bytes),
            Data::Letter => bytes.fill(b'a'),
            Data::Text => fill_with_words(rng, bytes, 10, |rng| {
                // In about the proportions of letters in English.
                const LETTERS: &[u8] = b"etaoinshrdlucmfwypvbgkeeettaaooiinnsshhrr";
                let letters = rng.between(2, 12);
                let mut word: Vec<u8> = (0..letters).map(|_| *rng.pick(LETTERS)).collect();
                word.push(b' ');
                word
            }),
            Data::Program => fill_with_words(rng, bytes, 8, |rng| {
                let mut word = vec![0; rng.between(2, 10) as usize];
                rng.fill(&mut word);
                word
            }),
        }
    }
}

/// Fills `bytes` with words from a vocabulary of 2^`bits` - 1. Each group, twice as large as the previous one, is as
/// frequent in total, which approximates Zipf's law.
fn fill_with_words(rng: &mut Rng, bytes: &mut [u8], bits: u32, word: impl Fn(&mut Rng) -> Vec<u8>) {
    let words: Vec<Vec<u8>> = (1..1u64 << bits).map(|_| word(rng)).collect();
    let mut at = 0;
    while at < bytes.len() {
        let half = rng.below(u64::from(bits));
        let word = &words[((1 << half) + rng.below(1 << half) - 1) as usize];
        let length = word.len().min(bytes.len() - at);
        bytes[at..at + length].copy_from_slice(&word[..length]);
        at += length;
    }
}

/// Source of the numbered pieces: the same bytes for all, with the number in front.
pub(super) struct Contents {
    common: Vec<u8>,
}

impl Contents {
    /// Of noise. `bytes_max` is the size of the largest piece.
    pub(super) fn new(seed: u64, bytes_max: u64) -> Contents {
        Contents::of(Data::Noise, seed, bytes_max)
    }

    pub(super) fn of(data: Data, seed: u64, bytes_max: u64) -> Contents {
        let mut common = vec![0; bytes_max as usize];
        data.fill(&mut Rng::new(seed), &mut common);
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
    /// `Content`, when the bytes `found` in the file at `path` are not piece `number` of `bytes` bytes.
    pub(super) fn check(&self, number: u64, bytes: u64, path: &str, found: &[u8]) -> Result<(), LabError> {
        // Data read is usually right, so it is compared without building the piece.
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
