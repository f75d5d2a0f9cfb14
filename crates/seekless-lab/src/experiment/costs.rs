//! How long points take, so that shards of the same size can be made.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::plan::Plan;
use super::rows::CONTESTANT;
use super::value::Value;

/// How long points took in an earlier run, in seconds of one processor: see [`read_costs`](super::read_costs).
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
