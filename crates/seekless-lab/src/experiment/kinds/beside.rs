//! What workloads on a log-structured file system share: the numbers that they check, and the simulator of cleaning beside the
//! file system.

use std::sync::Arc;

use seekless::cleaning::patterns::{DISCARD, Given};
use seekless::cleaning::policy::Limits;
use seekless::cleaning::{Outcome, PatternSpec, PolicySpec, Setup};
use seekless::stack::Part;
use seekless::units::KIB;

use super::{Context, RunTarget};
use crate::LabError;
use crate::run::can_be_simulated;

pub(super) const BLOCK_BYTES: u64 = 4 * KIB;

/// What a run needs to know of the log.
#[derive(Clone, Copy)]
pub(super) struct LogGeometry {
    pub segments: u64,
    pub segment_bytes: u64,
}

impl LogGeometry {
    pub(super) fn of(parts: &[Part]) -> Result<LogGeometry, LabError> {
        let known = counter(parts, "segments").zip(counter(parts, "segment_bytes"));
        let (segments, segment_bytes) =
            known.ok_or_else(|| LabError::Spec("the file system of the stack has no log with segments".into()))?;
        Ok(LogGeometry { segments, segment_bytes })
    }
}

/// The counter `name` of the part that has it.
pub(super) fn counter(parts: &[Part], name: &str) -> Option<u64> {
    parts.iter().flat_map(Part::counters).find(|(found, _)| *found == name).map(|(_, value)| value)
}

/// # Errors
/// What is wrong with the shares and multiples of `[workload]`, or with the storage.
pub(super) fn check(live_percent: f64, warm_up: f64, writes: f64, on: &RunTarget) -> Result<(), String> {
    if !(1.0..100.0).contains(&live_percent) {
        return Err("[workload]: live_percent is from 1 to below 100".into());
    }
    if !(0.0..=1e4).contains(&warm_up) || !(1e-6..=1e4).contains(&writes) {
        return Err("[workload]: warm_up and writes are multiples of the data, up to 10,000".into());
    }
    match on {
        RunTarget::Stack(stack) if can_be_simulated(stack) => Ok(()),
        _ => Err("a contestant needs `on`, a stack of a log-structured file system on modelled devices".into()),
    }
}

/// What reached a log, for the simulator.
pub(super) struct Recorded {
    pub log: LogGeometry,
    /// Blocks of data.
    pub blocks: u32,
    /// Blocks that were written and discarded, in the order in which they reached the log.
    pub operations: Vec<u32>,
    /// How many of the writes were the warm-up.
    pub warm_up: u64,
}

/// The simulator with the same blocks, in the same order.
///
/// # Errors
/// When the policy is unknown, or the simulator cannot go on.
pub(super) fn simulate(
    policy: &str,
    limits: Limits,
    recorded: Recorded,
    context: &Context<'_>,
) -> Result<Outcome, String> {
    let Recorded { log, blocks, operations, warm_up } = recorded;
    let (seed, stop) = (context.seed, context.outside.stop());
    let writes = operations.iter().filter(|operation| *operation & DISCARD == 0).count() as u64;
    let setup = Setup {
        blocks,
        segment_blocks: (log.segment_bytes / BLOCK_BYTES) as u32,
        segments: u32::try_from(log.segments).map_err(|_| "there are too many segments to simulate")?,
        limits,
        warm_up,
        writes: writes - warm_up,
        seed,
    };
    let (trace, options) = PatternSpec::parse("trace")?;
    let mut pattern = trace.make(&options, &Given { blocks, seed, recorded: Some(Arc::from(operations)) })?;
    let (policy, options) = PolicySpec::parse(policy)?;
    policy.simulate(&options, &setup, &mut *pattern, &mut |_, _| stop.flow()).map_err(|error| error.to_string())
}
