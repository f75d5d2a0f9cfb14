//! Parts of an experiment, for processes that share nothing.
//!
//! Every process makes the same plan and divides it in the same way, so that none has to tell another what is left. What
//! a shard has measured is put together with `seekless merge`; a shard that is lost is run again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::plan::Plan;
use super::results::ResultsError;
use super::rows::CONTESTANT;
use super::value::Value;

/// One part of an experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    /// From 0 on.
    index: usize,
    count: usize,
}

/// As many processes as clusters give to one job array.
const SHARDS_MAX: usize = 100_000;

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

/// How long points took in an earlier run, in seconds of one processor.
#[derive(Clone, Default, Debug)]
pub struct Costs {
    by_place: BTreeMap<String, f64>,
}

/// A line of `seconds.jsonl`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Spent {
    pub place: String,
    pub seconds: f64,
}

impl Costs {
    /// Reads what a run has left in its folder of results. The run may be one of another program, or with `--quick`.
    ///
    /// # Errors
    /// When there is no such file, or one of something else.
    pub fn read(folder: &Path) -> Result<Costs, ResultsError> {
        super::results::read_costs(folder)
    }

    pub(super) fn add(&mut self, Spent { place, seconds }: Spent) -> Result<(), String> {
        match seconds.is_finite() && seconds >= 0.0 {
            true => self.by_place.insert(place, seconds),
            false => return Err("seconds are a number that is not negative".into()),
        };
        Ok(())
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.by_place.is_empty()
    }

    /// The cost of each point of a plan: measured, else the mean of its contestant's points, else that of all; 1 when
    /// nothing is known.
    pub fn of(&self, plan: &Plan) -> Vec<f64> {
        let contestant =
            |point| plan.place_of(point).and_then(|place| place.dims.get(CONTESTANT)).map(Value::to_string);
        let mut means: BTreeMap<String, Mean> = BTreeMap::new();
        for name in (0..plan.points.len()).filter_map(contestant) {
            means.entry(name).or_default();
        }
        let mut all = Mean::default();
        for (place, &seconds) in &self.by_place {
            all.add(seconds);
            // A place in words names its contestant as it is, and other dimensions with their names before the values.
            for part in place.split(", ") {
                if let Some(mean) = means.get_mut(part) {
                    mean.add(seconds);
                }
            }
        }
        let cost = |point| {
            let measured = self.by_place.get(&plan.name_of(point)).copied();
            let of_contestant = || means.get(&contestant(point)?)?.value();
            measured.or_else(of_contestant).or_else(|| all.value()).unwrap_or(1.0)
        };
        (0..plan.points.len()).map(cost).collect()
    }
}

#[derive(Default)]
struct Mean {
    sum: f64,
    count: u64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    fn value(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}
