//! `requests`: requests of one kind, sequential or random, as in [st05 §4.1].

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
        check_device(on)
    }

    fn run(&self, on: &RunTarget, context: &Context<'_>) -> Result<Vec<Measure>, String> {
        let RunTarget::Stack(stack) = on else { return check_device(on).map(|()| Vec::new()) };
        let spec = Spec { timing: self.timing, map: Map::Error, place: None, seed: context.seed };
        let op = match self.operation {
            Operation::Read => Op::Read,
            Operation::Write => Op::Write,
        };
        let (bytes, slots, pattern) = (self.bytes.0, self.span.0 / self.bytes.0, self.pattern);
        let mut rng = Rng::new(context.seed);
        let requests = (0..self.requests).map(move |number| {
            let slot = match pattern {
                Pattern::Sequential => number % slots,
                Pattern::Random => rng.below(slots),
            };
            Ok(Request::new(Nanos::ZERO, op, slot * bytes, bytes))
        });
        let requests = context.outside.stop().requests(requests);
        let outcome = simulate(stack, requests, &spec, &|_| {}).map_err(|error| error.to_string())?;
        Ok(vec![measure(&outcome)])
    }
}
