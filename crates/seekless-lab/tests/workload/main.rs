//! Workloads: that they measure what they say, and what they measure.

mod every;
mod smallfile;

use std::ops::ControlFlow;

use seekless::rt::HostProfile;
use seekless::stack::Stack;
use seekless_lab::run::{Run, simulate};
use seekless_lab::workload::{Program, Step};

/// Progress that nobody watches.
const GO_ON: fn(Step<'_>) -> ControlFlow<()> = |_| ControlFlow::Continue(());

fn simulated(line: &str, profile: HostProfile, spec: &dyn Program) -> Run {
    let stack = Stack::parse(line).unwrap_or_else(|error| panic!("{error}"));
    simulate(&stack, None, profile, spec, &GO_ON).unwrap_or_else(|error| panic!("{error}"))
}
