//! Parts of an experiment, for processes that share nothing.
//!
//! Every process makes the same plan and divides it in the same way, so that none has to tell another what is left. What
//! a shard has measured is put together with `seekless merge`; a shard that is lost is run again.

use std::collections::BTreeSet;
use std::str::FromStr;

use super::costs::Costs;
use super::plan::Plan;

/// One part of an experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    /// From 0 on.
    index: usize,
    count: usize,
}

/// As many processes as clusters give to one job array.
pub const SHARDS_MAX: usize = 100_000;

impl FromStr for Shard {
    type Err = String;

    /// Parses `I/N`, with `I` from 1 to `N`.
    fn from_str(text: &str) -> Result<Shard, String> {
        let wrong = || format!("a shard is I/N, such as 3/16: I is from 1 to N, and N at most {SHARDS_MAX}");
        let (index, count) = text.split_once('/').ok_or_else(wrong)?;
        let (index, count): (usize, usize) = (index.parse().map_err(|_| wrong())?, count.parse().map_err(|_| wrong())?);
        match (1..=count).contains(&index) && count <= SHARDS_MAX {
            true => Ok(Shard { index: index - 1, count }),
            false => Err(wrong()),
        }
    }
}

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.count)
    }
}

impl Shard {
    /// How many shards there are.
    pub fn count(self) -> usize {
        self.count
    }

    /// Which of the plan's points are in this shard. All of them are in exactly one of the `count` shards, and the sums
    /// of their costs are nearly the same. Points in real time are in the first one, since times of different machines
    /// cannot be compared.
    pub fn points(self, plan: &Plan, costs: &Costs, is_simulated: impl Fn(usize) -> bool) -> Vec<bool> {
        // The most expensive ones first, each to the shard with the least to do. Keys are hashes: points that are alike
        // are spread at random.
        let mut order: Vec<(f64, usize)> = costs.of(plan).into_iter().zip(0..).collect();
        order.sort_by(|(cost, point), (other_cost, other)| {
            let keys = || plan.points[*point].key.cmp(&plan.points[*other].key);
            other_cost.total_cmp(cost).then_with(keys)
        });
        let mut load = vec![0.0; self.count];
        let mut mine = vec![false; plan.points.len()];
        let (simulated, real): (Vec<_>, Vec<_>) = order.into_iter().partition(|&(_, point)| is_simulated(point));
        let mut assign = |shard: usize, cost: f64, point: usize| {
            load[shard] += cost;
            mine[point] = shard == self.index;
            load[shard]
        };
        let begun: f64 = real.iter().map(|&(cost, point)| assign(0, cost, point)).fold(0.0, f64::max);
        // Loads are not negative, so that their bits are in the same order as they are.
        let mut least: BTreeSet<(u64, usize)> = (0..self.count)
            .map(|shard| (if shard == 0 { begun.to_bits() } else { 0.0_f64.to_bits() }, shard))
            .collect();
        for (cost, point) in simulated {
            let Some((_, shard)) = least.pop_first() else { break };
            least.insert((assign(shard, cost, point).to_bits(), shard));
        }
        mine
    }
}
