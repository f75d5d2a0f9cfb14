//! Where everything is before the first request, as a rule and not as a table: a drive of a terabyte that was filled costs no
//! memory until its units move.
//!
//! The random steady state is that of greedy garbage collection under uniform overwrites. In the mean-field limit the live units
//! of the superblocks have a density of 1/x between `u b` and `b`, where b is a superblock and u the share of live units in the
//! emptiest one, with `ρ = (1 - u) / -ln u` \[ro92 §3.4\], see [`cleaned_utilisation`]. A keyed permutation says which logical unit is in which of the live places.

use super::drive::Fill;
use crate::cleaning::model::cleaned_utilisation;

/// No unit, or no place.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub(super) struct Start {
    fill: Fill,
    logical: u32,
    superblock: u32,
    /// Random: the number of live units before each superblock, and in all of them.
    before: Vec<u32>,
    shuffle: Shuffle,
}

impl Start {
    /// `full` superblocks hold `logical` units.
    pub(super) fn new(fill: Fill, logical: u32, superblock: u32, full: u32) -> Start {
        let before = match fill {
            Fill::Random => steady(logical, superblock, full),
            Fill::Fresh | Fill::Sequential => Vec::new(),
        };
        Start { fill, logical, superblock, before, shuffle: Shuffle::new(logical) }
    }

    /// Units that have a place or none.
    pub(super) fn units(&self) -> u32 {
        self.logical
    }

    /// Superblocks with something in them.
    pub(super) fn used(&self) -> u32 {
        match self.fill {
            Fill::Fresh => 0,
            Fill::Sequential => self.logical.div_ceil(self.superblock),
            Fill::Random => self.before.len() as u32 - 1,
        }
    }

    /// Live units of a superblock.
    pub(super) fn live(&self, block: u32) -> u32 {
        match self.fill {
            Fill::Fresh => 0,
            Fill::Sequential => self.logical.saturating_sub(block * self.superblock).min(self.superblock),
            Fill::Random => match self.before.get(block as usize + 1) {
                Some(end) => end - self.before[block as usize],
                None => 0,
            },
        }
    }

    /// Where a unit is.
    pub(super) fn place(&self, unit: u32) -> u32 {
        match self.fill {
            Fill::Fresh => NONE,
            Fill::Sequential => unit,
            Fill::Random => {
                let rank = self.shuffle.forward(unit);
                let block = self.before.partition_point(|before| *before <= rank) as u32 - 1;
                let index = u64::from(rank - self.before[block as usize]);
                // The live units are spread over the superblock.
                let within = index * u64::from(self.superblock) / u64::from(self.live(block));
                block * self.superblock + within as u32
            }
        }
    }

    /// Which unit was written to a place last, if any.
    pub(super) fn owner(&self, place: u32) -> u32 {
        match self.fill {
            Fill::Fresh => NONE,
            Fill::Sequential => match place < self.logical {
                true => place,
                false => NONE,
            },
            Fill::Random => {
                let (block, within) = (place / self.superblock, place % self.superblock);
                let live = u64::from(self.live(block));
                let index = (u64::from(within) * live).div_ceil(u64::from(self.superblock));
                match index < live && index * u64::from(self.superblock) / live == u64::from(within) {
                    true => self.shuffle.back(self.before[block as usize] + index as u32),
                    false => NONE,
                }
            }
        }
    }
}

/// Live units before each of `full` superblocks in the steady state, and their sum.
fn steady(logical: u32, superblock: u32, full: u32) -> Vec<u32> {
    let density = f64::from(logical) / (f64::from(superblock) * f64::from(full));
    let emptiest = cleaned_utilisation(density);
    let exact = |block: u32| {
        let quantile = (f64::from(block) + 0.5) / f64::from(full);
        f64::from(superblock) * emptiest.powf(1.0 - quantile)
    };
    let scale = f64::from(logical) / (0..full).map(exact).sum::<f64>();
    // Rounds the running sum, so that the whole comes out even; what no superblock may hold goes to the ones before it.
    let mut before = vec![0];
    let mut sum = 0.0;
    for block in 0..full {
        sum += exact(block) * scale;
        let rest = u64::from(full - block - 1) * u64::from(superblock);
        let last = *before.last().expect("it begins with one");
        let least = u64::from(logical).saturating_sub(rest) as u32;
        before.push((sum.round() as u32).min(logical).min(last + superblock).max(least));
    }
    *before.last_mut().expect("it begins with one") = logical;
    before
}

/// A permutation of `0..size`: a Feistel network over the next power of four, walked until it hits the range.
#[derive(Clone, Debug)]
struct Shuffle {
    size: u32,
    half_bits: u32,
}

const ROUNDS: u32 = 4;

impl Shuffle {
    fn new(size: u32) -> Shuffle {
        let bits = u32::BITS - size.saturating_sub(1).leading_zeros();
        Shuffle { size, half_bits: bits.div_ceil(2).max(1) }
    }

    fn forward(&self, value: u32) -> u32 {
        self.walk(value, |shuffle, value| {
            let (mut left, mut right) = shuffle.halves(value);
            for round in 0..ROUNDS {
                (left, right) = (right, left ^ shuffle.mix(right, round));
            }
            shuffle.join(left, right)
        })
    }

    fn back(&self, value: u32) -> u32 {
        self.walk(value, |shuffle, value| {
            let (mut left, mut right) = shuffle.halves(value);
            for round in (0..ROUNDS).rev() {
                (left, right) = (right ^ shuffle.mix(left, round), left);
            }
            shuffle.join(left, right)
        })
    }

    fn walk(&self, value: u32, step: impl Fn(&Shuffle, u64) -> u64) -> u32 {
        let mut value = step(self, u64::from(value));
        while value >= u64::from(self.size) {
            value = step(self, value);
        }
        value as u32
    }

    fn halves(&self, value: u64) -> (u64, u64) {
        (value >> self.half_bits, value & ((1 << self.half_bits) - 1))
    }

    fn join(&self, left: u64, right: u64) -> u64 {
        left << self.half_bits | right
    }

    fn mix(&self, value: u64, round: u32) -> u64 {
        let mixed = (value + 1 + (u64::from(round) << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33 & ((1 << self.half_bits) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places and owners are each other's inverse, and the live units of all superblocks add up, for sizes around powers of
    /// two.
    #[test]
    fn rules_are_invertible() {
        for (logical, superblock, full) in [(1, 8, 1), (64, 8, 9), (100, 16, 8), (4095, 64, 70), (4097, 64, 66)] {
            for fill in [Fill::Sequential, Fill::Random] {
                let start = Start::new(fill, logical, superblock, full);
                let mut live = vec![0; start.used() as usize];
                for unit in 0..logical {
                    let place = start.place(unit);
                    assert_eq!(start.owner(place), unit, "{fill:?} {logical}");
                    live[(place / superblock) as usize] += 1;
                }
                let counted: Vec<u32> = (0..start.used()).map(|block| start.live(block)).collect();
                assert_eq!(live, counted);
                let owners = (0..start.used() * superblock).filter(|place| start.owner(*place) != NONE);
                assert_eq!(owners.count() as u32, logical);
            }
        }
    }
}
