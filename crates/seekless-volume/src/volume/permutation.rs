//! Random permutations of `0..count` that need no table.
//!
//! A Feistel network permutes all numbers of a given bit length; results that are too large are fed in again until they
//! fit (cycle walking, Black & Rogaway 2002). So a permutation needs no memory and no setup time, however large the
//! device, and depends only on the seed and the count.
//!
//! Tried and dropped: a table filled by Fisher-Yates. A lookup is as fast while the table fits the processor's cache
//! (`cargo bench -p seekless --bench disk` shows both), and slower when it does not; 128 disks of 9 GB in blocks of 4
//! KiB would need 1.1 GB of it.

use crate::rng::Rng;

/// Four rounds are a pseudo-random permutation when the round function is good (Luby & Rackoff 1988); with halves of a
/// few bits, more rounds mix better and cost little.
const ROUNDS: usize = 6;

/// A permutation of `0..count`.
#[derive(Clone, Debug)]
pub struct Permutation {
    count: u64,
    /// Bits of the two halves; the upper one may have one less.
    bits_low: u32,
    bits_high: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// The permutation of `0..count` for `seed`.
    pub fn new(count: u64, seed: u64) -> Permutation {
        // At least two bits, so that both halves have one.
        let bits = (u64::BITS - count.saturating_sub(1).leading_zeros()).max(2);
        let mut rng = Rng::new(seed);
        let keys = std::array::from_fn(|_| rng.next_u64());
        Permutation { count, bits_low: bits.div_ceil(2), bits_high: bits / 2, keys }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// The image of `index`.
    ///
    /// # Panics
    /// When `index` is not below the count, in builds with debug assertions; otherwise the result is meaningless.
    pub fn forward(&self, index: u64) -> u64 {
        debug_assert!(index < self.count, "an index is one of those that are permuted");
        let mut value = index;
        loop {
            value = self.once(value);
            // The network permutes fewer than twice as many numbers, so this takes less than two rounds on average. It
            // terminates because the cycle returns to its start, which is below the count.
            if value < self.count {
                return value;
            }
        }
    }

    /// The preimage of `image`: the inverse of [`Permutation::forward`].
    pub fn backward(&self, image: u64) -> u64 {
        debug_assert!(image < self.count, "an image is one of those that are permuted");
        let mut value = image;
        loop {
            value = self.once_back(value);
            if value < self.count {
                return value;
            }
        }
    }

    /// Each half changes the other in turn, so that halves may differ in length.
    fn once(&self, value: u64) -> u64 {
        let (mut low, mut high) = self.split(value);
        for pair in self.keys.chunks_exact(2) {
            high ^= mix(low, pair[0]) & mask(self.bits_high);
            low ^= mix(high, pair[1]) & mask(self.bits_low);
        }
        high << self.bits_low | low
    }

    fn once_back(&self, value: u64) -> u64 {
        let (mut low, mut high) = self.split(value);
        for pair in self.keys.chunks_exact(2).rev() {
            low ^= mix(high, pair[1]) & mask(self.bits_low);
            high ^= mix(low, pair[0]) & mask(self.bits_high);
        }
        high << self.bits_low | low
    }

    fn split(&self, value: u64) -> (u64, u64) {
        (value & mask(self.bits_low), value >> self.bits_low)
    }
}

const _: () = assert!(ROUNDS.is_multiple_of(2));

fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// The finaliser of SplitMix64 (Steele, Lea & Flood 2014).
fn mix(value: u64, key: u64) -> u64 {
    let mut mixed = value.wrapping_add(key);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The permutation is a bijection, and the inverse undoes it. Method: every index of many counts, including those
    /// around powers of two.
    #[test]
    fn it_is_a_bijection() {
        for count in (1..70).chain([127, 128, 129, 1000, 4095, 4096, 4097, 65_537]) {
            for seed in [0, 1, 77] {
                let permutation = Permutation::new(count, seed);
                let mut hit = vec![false; count as usize];
                for index in 0..count {
                    let image = permutation.forward(index);
                    assert!(!std::mem::replace(&mut hit[image as usize], true), "{image} twice, count {count}");
                    assert_eq!(permutation.backward(image), index, "count {count}, seed {seed}");
                }
            }
        }
    }

    /// Large counts do not overflow, and differ by seed.
    #[test]
    fn large_counts_work() {
        for count in [u64::from(u32::MAX), 1 << 40, (1 << 54) - 1, 1 << 54] {
            let (one, two) = (Permutation::new(count, 1), Permutation::new(count, 2));
            let same = (0..1000).filter(|&index| one.forward(index) == two.forward(index)).count();
            assert!(same < 3);
            assert!((0..1000).all(|index| one.backward(one.forward(index)) == index));
        }
    }

    /// It looks random. Method: over 2,000 seeds, the image of one index, and its distance to the image of its
    /// neighbour, are spread evenly: chi-square with 15 degrees of freedom is below 37.7 in 999 of 1000 cases.
    #[test]
    fn it_looks_random() {
        const COUNT: u64 = 1000;
        const SEEDS: u64 = 2000;
        for index in [0, 1, 7, 499, 998] {
            let (mut places, mut distances) = ([0u64; 16], [0u64; 16]);
            for seed in 0..SEEDS {
                let permutation = Permutation::new(COUNT, seed);
                let (one, two) = (permutation.forward(index), permutation.forward(index + 1));
                places[(one * 16 / COUNT) as usize] += 1;
                distances[((two + COUNT - one) % COUNT * 16 / COUNT) as usize] += 1;
            }
            for counts in [places, distances] {
                let expected = SEEDS as f64 / 16.0;
                let chi_square: f64 = counts.iter().map(|&count| (count as f64 - expected).powi(2) / expected).sum();
                assert!(chi_square < 37.7, "index {index}: {chi_square} {counts:?}");
            }
        }
    }

    /// The values never change: experiments name them by seed alone.
    #[test]
    fn values_are_stable() {
        let permutation = Permutation::new(1000, 1);
        let first: Vec<u64> = (0..6).map(|index| permutation.forward(index)).collect();
        assert_eq!(first, STABLE);
    }

    const STABLE: [u64; 6] = [231, 143, 526, 654, 109, 818];
}
