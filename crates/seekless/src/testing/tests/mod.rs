//! Aim: file systems also keep their promises on devices and below layers of other crates. Method: the explorers of
//! `testing`, on stacks of several rooms.

mod access_lists;
mod arrays;
mod ffs_damage;
mod full_host;
mod members;
mod passing;
mod silent;
mod vld;
mod zoned;

use super::environment::replay;
use super::scripts::SCRIPTS;
use super::{CrashReport, FsUnderTest, PowerCuts, Promise, Replay};
use crate::device::crash::CrashOptions;

/// A sample of the cuts of every `stride`-th script, from `first` on.
fn some_scripts(
    subject: &dyn FsUnderTest,
    bytes: u64,
    first: usize,
    stride: usize,
    positions_max: usize,
    replay: &Replay,
) -> CrashReport {
    let mut total = CrashReport::default();
    for script in SCRIPTS.iter().skip(first).step_by(stride) {
        let device = CrashOptions::volatile(bytes);
        let cuts = PowerCuts::sampled(subject, device, Promise::NAMESPACE_PREFIX, replay.clone());
        let cuts = PowerCuts { positions_max, ..cuts };
        total.add(cuts.run(&script.setup_ops(), &script.body_ops()).unwrap_or_else(|report| panic!("{report}")));
    }
    total
}
