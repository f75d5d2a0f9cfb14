//! `requests`: requests of one kind, sequential or random: as fast as the storage answers, as in [st05 §4.1], or at random moments.

use seekless::rng::Rng;
use seekless::units::Nanos;
use serde::Deserialize;

use super::replay::{METRICS, check_device, measure};
use super::{Bytes, Context, Measure, Read, RunTarget, Workload, WorkloadKind, from_text, parse};
use crate::replay::{Map, Spec, Timing, simulate};
use crate::trace::{Op, Request};

pub(super) const KIND: WorkloadKind = WorkloadKind {
    name: "requests",
    help: "sequential or random requests, on modelled devices",
    dims: &[],
    metrics: METRICS,
    read: Read::Other(|table| parse::<Generated>(table).map(|generated| Box::new(generated) as Box<dyn Workload>)),
};

/// Its parameters in `[workload]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Generated {
    pattern: Pattern,
    operation: Operation,
    /// Size of each request.
    bytes: Bytes,
    /// Requests stay within this many bytes from the start.
    span: Bytes,
    requests: u64,
    #[serde(default = "closed", deserialize_with = "from_text")]
    timing: Timing,
    /// Requests come at random moments, so many a second on average, whether or not earlier ones have been answered: a Poisson
    /// process.
    #[serde(default)]
    per_s: Option<f64>,
}

fn closed() -> Timing {
    Timing::Closed
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Pattern {
    Sequential,
    Random,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Operation {
    Read,
    Write,
}

impl Workload for Generated {
    fn check(&self, on: &RunTarget) -> Result<(), String> {
        if self.bytes.0 == 0 || self.requests == 0 || self.span.0 < self.bytes.0 {
            return Err(format!("[workload]: no request of {} fits into {}", self.bytes, self.span));
        }
        if !self.timing.is_as_fast_as_possible() {
            return Err("[workload]: requests without times are made with window:N or closed".into());
        }
        match self.per_s {
            Some(_) if self.timing != Timing::Closed => {
                Err("[workload]: with `per_s` requests have times of their own, so there is no `timing`".into())
            }
            Some(rate) if !(1e-3..=1e6).contains(&rate) => {
                Err(format!("[workload]: `per_s` is between 0.001 and 1000000, and not {rate}"))
            }
            _ => check_device(on),
        }
    }

    fn run(&self, on: &RunTarget, context: &Context<'_>) -> Result<Vec<Measure>, String> {
        let RunTarget::Stack(stack) = on else { return check_device(on).map(|()| Vec::new()) };
        let timing = if self.per_s.is_some() { Timing::Open { speed: 1.0 } } else { self.timing };
        let spec = Spec { timing, map: Map::Error, layout: None, seed: context.seed };
        let op = match self.operation {
            Operation::Read => Op::Read,
            Operation::Write => Op::Write,
        };
        let (bytes, slots, pattern) = (self.bytes.0, self.span.0 / self.bytes.0, self.pattern);
        let mut rng = Rng::new(context.seed);
        let (mean_gap, mut now) = (self.per_s.map_or(0.0, |rate| 1e9 / rate), 0.0);
        let requests = (0..self.requests).map(move |number| {
            let slot = match pattern {
                Pattern::Sequential => number % slots,
                Pattern::Random => rng.below(slots),
            };
            if mean_gap > 0.0 {
                now -= (1.0 - rng.unit_f64()).ln() * mean_gap;
            }
            Ok(Request::new(Nanos(now as u64), op, slot * bytes, bytes))
        });
        let requests = context.outside.stop().requests(requests);
        let outcome = simulate(stack, requests, &spec, &|_| {}).map_err(|error| error.to_string())?;
        Ok(vec![measure(&outcome)])
    }
}
