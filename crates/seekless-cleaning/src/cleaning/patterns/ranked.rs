//! Blocks by rank: a block's chance falls with its rank, as an exponential or a power.
//!
//! Ranks are in bins, each with a constant weight that no rank of it exceeds. A draw takes a bin by its weight, then a
//! rank of the bin, and draws again when the rank's own weight says so. First ranks have a bin each and later bins cover
//! a thirty-second of what is before them, so that few draws are repeated, and most need no power or exponential.

use crate::rng::Rng;

use super::{BATCH, Given, Key, Options, Pattern, below};

pub(super) const ZIPF_KEYS: &[Key] = &[Key::new("skew", "1", "power with which the chance of a rank falls")];

pub(super) const EXPONENTIAL_KEYS: &[Key] = &[Key::new(
    "mean",
    "2.172",
    "mean rank, in % of the blocks: by default 90 % of the writes go to 5 % of the blocks",
)];

enum Weight {
    Power(f64),
    /// The reciprocal of the mean.
    Exponential(f64),
}

impl Weight {
    /// Weight of a rank, from 1.
    fn of(&self, rank: u32) -> f64 {
        match self {
            Weight::Power(skew) if *skew == 1.0 => 1.0 / f64::from(rank),
            Weight::Power(skew) => f64::from(rank).powf(-skew),
            Weight::Exponential(rate) => (-f64::from(rank - 1) * rate).exp(),
        }
    }
}

struct Bin {
    first: u32,
    count: u32,
    /// Weight of its last rank over that of its first.
    sure: f64,
    /// Of the first rank.
    most: f64,
    /// The alias method: below this the draw keeps the bin, above it takes the other.
    keep: u64,
    other: u32,
}

pub(super) struct Ranked {
    rng: Rng,
    weight: Weight,
    bins: Vec<Bin>,
}

impl Ranked {
    pub(super) fn zipf(options: &Options, given: &Given) -> Result<Ranked, String> {
        Ok(Ranked::new(Weight::Power(options.number("skew", 0.0, 10.0)?), given))
    }

    pub(super) fn exponential(options: &Options, given: &Given) -> Result<Ranked, String> {
        let mean = options.number("mean", 0.001, 1000.0)? / 100.0 * f64::from(given.blocks);
        Ok(Ranked::new(Weight::Exponential(1.0 / mean), given))
    }

    fn new(weight: Weight, given: &Given) -> Ranked {
        let mut bins = Vec::new();
        let mut first = 1;
        while first <= given.blocks {
            let wide = match weight {
                Weight::Power(_) => first / 32,
                // Where the weight falls by a thirty-second.
                Weight::Exponential(rate) => (1.0 / rate / 32.0) as u32,
            };
            let count = wide.clamp(1, given.blocks - first + 1);
            let most = weight.of(first);
            bins.push(Bin { first, count, sure: weight.of(first + count - 1) / most, most, keep: 0, other: 0 });
            first += count;
        }
        alias(&mut bins);
        Ranked { rng: Rng::new(given.seed), weight, bins }
    }

    #[inline]
    fn draw(&mut self) -> u32 {
        loop {
            let index = self.rng.below(self.bins.len() as u64) as usize;
            let mut bin = &self.bins[index];
            if self.rng.next_u64() >> 32 >= bin.keep {
                bin = &self.bins[bin.other as usize];
            }
            if bin.count == 1 {
                return bin.first - 1;
            }
            let rank = bin.first + below(&mut self.rng, bin.count);
            let chance = self.rng.unit_f64();
            if chance < bin.sure || chance * bin.most < self.weight.of(rank) {
                return rank - 1;
            }
        }
    }
}

/// Prepares the alias method: each of n columns has a total weight of an nth, from at most two bins.
fn alias(bins: &mut [Bin]) {
    let weights: Vec<f64> = bins.iter().map(|bin| bin.most * f64::from(bin.count)).collect();
    let mean = weights.iter().sum::<f64>() / bins.len() as f64;
    let mut shares: Vec<f64> = weights.iter().map(|weight| weight / mean).collect();
    let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..bins.len()).partition(|&index| shares[index] < 1.0);
    bins.iter_mut().for_each(|bin| bin.keep = u64::MAX);
    while let (Some(low), Some(&high)) = (small.pop(), large.last()) {
        bins[low].keep = (shares[low] * (1u64 << 32) as f64) as u64;
        bins[low].other = high as u32;
        shares[high] -= 1.0 - shares[low];
        if shares[high] < 1.0 {
            large.pop();
            small.push(high);
        }
    }
}

impl Pattern for Ranked {
    fn more(&mut self, operations: &mut Vec<u32>) {
        for _ in 0..BATCH {
            let block = self.draw();
            operations.push(block);
        }
    }
}
