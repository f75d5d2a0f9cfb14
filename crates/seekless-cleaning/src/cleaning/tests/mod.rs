//! Tests of the room: books recounted for every policy and pattern, closed forms, indexes against a search of everything.

mod books;
mod forms;
mod full;
mod future;
mod indexes;
mod patterns;
mod words;

use std::ops::ControlFlow;
use std::sync::Arc;

use super::outcome::Outcome;
use super::patterns::Given;
use super::policy::{Limits, Trigger};
use super::{PatternSpec, PolicySpec, Setup, SetupError};
use crate::rng::Rng;

/// A setup of `blocks` blocks that fill `utilisation` of the segments; a pass cleans one segment.
fn setup(blocks: u32, segment_blocks: u32, utilisation: f64, turns: u64) -> Setup {
    Setup {
        blocks,
        segment_blocks,
        segments: Setup::segments_for(blocks, segment_blocks, utilisation),
        limits: Limits { trigger: Trigger::Clean(0), batch_blocks: 0, target: 0 },
        warm_up: u64::from(blocks) * turns,
        writes: u64::from(blocks) * turns,
        seed: 1,
    }
}

/// What patterns are made from: the trace has random writes and a few discards.
fn given(blocks: u32, seed: u64) -> Given {
    let mut rng = Rng::new(seed);
    let operation = |_| {
        let discard = if rng.chance(1, 10) { super::patterns::DISCARD } else { 0 };
        rng.below(u64::from(blocks)) as u32 | discard
    };
    let recorded: Arc<[u32]> = (0..1000).map(operation).collect();
    Given { blocks, seed, recorded: Some(recorded) }
}

/// Runs a policy and a pattern by their words.
fn run(policy: &str, pattern: &str, setup: &Setup) -> Result<Outcome, SetupError> {
    let (policy, options) = PolicySpec::parse(policy).expect("a policy");
    let (pattern, pattern_options) = PatternSpec::parse(pattern).expect("a pattern");
    let mut pattern = pattern.make(&pattern_options, &given(setup.blocks, setup.seed)).expect("a pattern");
    policy.simulate(&options, setup, &mut *pattern, &mut |_, _| ControlFlow::Continue(()))
}
