//! Workloads: whether they measure what they claim, and their results.

mod every;
mod script;
mod smallfile;

use std::ops::ControlFlow;

use seekless::rt::HostProfile;
use seekless::stack::Stack;
use seekless_lab::run::{Run, simulate};
use seekless_lab::workload::{PhaseProgress, Program};

/// Progress that is ignored.
const GO_ON: fn(PhaseProgress<'_>) -> ControlFlow<()> = |_| ControlFlow::Continue(());

fn simulated(line: &str, profile: HostProfile, spec: &dyn Program) -> Run {
    let stack = Stack::parse(line).unwrap_or_else(|error| panic!("{error}"));
    simulate(&stack, None, profile, spec, &GO_ON).unwrap_or_else(|error| panic!("{error}"))
}
