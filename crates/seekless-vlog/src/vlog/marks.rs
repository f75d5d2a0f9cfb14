//! Marked logical blocks: which were read in order, for [`super::compact`].
//!
//! What is kept and looked through depends on the number of marks, never on the size of the disk.
//!
//! Invariants
//!   K1  A word that is kept has a bit.

use std::collections::BTreeMap;
use std::ops::Range;

const WORD_BITS: u32 = u64::BITS;

#[derive(Default)]
pub(super) struct Marks {
    /// Words of bits, by the number of their first block over [`WORD_BITS`].
    words: BTreeMap<u32, u64>,
}

impl Marks {
    pub(super) fn set(&mut self, blocks: Range<u32>) {
        for (word, bits) in words(blocks) {
            *self.words.entry(word).or_default() |= bits;
        }
    }

    pub(super) fn clear(&mut self, blocks: Range<u32>) {
        for (word, bits) in words(blocks) {
            if let Some(kept) = self.words.get_mut(&word) {
                *kept &= !bits;
                if *kept == 0 {
                    self.words.remove(&word); // K1
                }
            }
        }
    }

    /// Number of marks in `blocks`.
    pub(super) fn count(&self, blocks: Range<u32>) -> u32 {
        words(blocks).filter_map(|(word, bits)| Some((self.words.get(&word)? & bits).count_ones())).sum()
    }

    /// The first blocks of those stretches of `length` blocks, counted from block 0, that may have marks; in order.
    pub(super) fn stretches(&self, length: u32) -> impl Iterator<Item = u32> {
        let touched = self.words.keys().flat_map(move |word| {
            let first = word * WORD_BITS;
            first / length..=(first + (WORD_BITS - 1)) / length
        });
        let mut before = None;
        touched.filter(move |&stretch| before.replace(stretch) != Some(stretch)).map(move |stretch| stretch * length)
    }
}

/// The words of a range, each with the bits that are in the range.
fn words(blocks: Range<u32>) -> impl Iterator<Item = (u32, u64)> {
    let words = blocks.start / WORD_BITS..blocks.end.div_ceil(WORD_BITS);
    words.map(move |word| {
        let first = word * WORD_BITS;
        let from = blocks.start.max(first) - first;
        let to = blocks.end.min(first.saturating_add(WORD_BITS)) - first;
        debug_assert!(from < to, "K1: a range has a bit in each of its words");
        // `to` is more than `from`: the range reaches into each of its words.
        (word, (u64::MAX << from) & (u64::MAX >> (WORD_BITS - to)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Marks are those of a plain list of flags, and every stretch with a mark is found once, in order. Method: random ranges.
    #[test]
    fn marks_are_what_was_set() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let (mut marks, mut flags) = (Marks::default(), vec![false; 1000]);
            for _ in 0..100 {
                let from = rng.below(1000) as u32;
                let range = from..(from + 1 + rng.below(150) as u32).min(1000);
                let on = rng.chance(1, 2);
                if on {
                    marks.set(range.clone())
                } else {
                    marks.clear(range.clone())
                }
                flags[range.start as usize..range.end as usize].fill(on);
                let looked = rng.below(1000) as u32..1000;
                let expected = flags[looked.start as usize..].iter().filter(|&&flag| flag).count();
                assert_eq!(marks.count(looked) as usize, expected, "seed {seed}");
                assert!(marks.words.values().all(|&word| word != 0), "K1, seed {seed}");
                let length = 1 + rng.below(200) as u32;
                let found: Vec<u32> = marks.stretches(length).collect();
                assert!(found.is_sorted_by(|one, two| one < two), "seed {seed}: {found:?}");
                let has_mark = |&first: &u32| flags[first as usize..].iter().take(length as usize).any(|&flag| flag);
                for first in (0..1000).step_by(length as usize).filter(has_mark) {
                    assert!(found.contains(&first), "seed {seed}: {first} of {length}");
                }
            }
        }
        assert_eq!(Marks::default().stretches(7).count(), 0);
    }
}
