//! The only randomness in the engine: a seeded generator whose values never change between versions.
//!
//! The generator is xoshiro256** from `rand_xoshiro`, which promises stable values. The few distributions
//! are our own, because a library that improves its sampling would silently change every replay.

use rand_xoshiro::Xoshiro256StarStar;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng};

/// A deterministic stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng(Xoshiro256StarStar);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(Xoshiro256StarStar::seed_from_u64(seed))
    }

    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in `0..bound`, without modulo bias (Lemire 2019).
    ///
    /// # Panics
    /// When `bound` is zero.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "an empty range has no number");
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            // The division is needed only where its remainder, which is below `bound`, can decide.
            let low = product as u64;
            if low >= bound || low >= bound.wrapping_neg() % bound {
                return (product >> 64) as u64;
            }
        }
    }

    /// Uniform in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "an empty range has no number");
        match (high - low).checked_add(1) {
            Some(width) => low + self.below(width),
            None => self.next_u64(),
        }
    }

    /// True with probability `numerator / denominator`.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// Uniform in `0.0..1.0` with 53 random bits.
    #[inline]
    pub fn unit_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }

    /// Fisher–Yates.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }

    /// One of `items`, uniformly.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    /// An independent stream: what the fork draws does not depend on how much its parent draws later.
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replays depend on these values; a change here is a change of every seed's meaning.
    #[test]
    fn values_are_stable() {
        let mut rng = Rng::new(1);
        let drawn: Vec<u64> = (0..4).map(|_| rng.next_u64()).collect();
        assert_eq!(drawn, [12966619160104079557, 9600361134598540522, 10590380919521690900, 7218738570589545383]);
        let below: Vec<u64> = (0..8).map(|_| rng.below(10)).collect();
        assert_eq!(below, below.iter().map(|v| v % 10).collect::<Vec<_>>());
    }
}
