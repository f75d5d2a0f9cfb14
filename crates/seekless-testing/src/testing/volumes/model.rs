//! A file system gives the model's answers to every operation.

use crate::device::crash::CrashOptions;
use crate::testing::{Comparison, FsUnderTest, Generator, Op, OpMix, Replay, Space, SubjectComparison};

/// Runs the same generated operations on both; each answer is compared. Occasionally the volume is closed, checked and
/// mounted again, and all of it is compared.
pub fn check(subject: &dyn FsUnderTest, replay: &Replay, seed: u64, bytes: u64, ops: usize, space: Space) {
    let ops: Vec<Op> = Generator::new(seed, space, OpMix::CURIOUS).filter(|op| subject.can(op)).take(ops).collect();
    let (device, replay) = (CrashOptions::volatile(bytes), replay.clone());
    let comparison = Comparison::default();
    let run = SubjectComparison { subject, device, comparison, remount_every: 400, seed, replay }.run(&ops);
    println!("{:?}", run.unwrap_or_else(|report| panic!("{report}")));
}
