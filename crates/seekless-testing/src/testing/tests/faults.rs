//! Aim: the fault explorer finds lost data and false success after errors, and accepts honest failure. Method: the
//! correct toy on scripts and random runs, then toys that mishandle errors.

use super::replay;
use super::toy::{Bug, Toy};
use crate::device::crash::CrashOptions;
use crate::testing::generate::{Generator, OpMix, Space};
use crate::testing::oracle::Promise;
use crate::testing::scripts::SCRIPTS;
use crate::testing::{Fault, Faults, Op, PowerCuts, Replay, ops};

const BYTES: u64 = 4 << 20;

fn faults(toy: &Toy, replay: Replay) -> Faults<'_> {
    let cuts = PowerCuts::sampled(toy, CrashOptions::volatile(BYTES), Promise::NAMESPACE_PREFIX, replay);
    Faults { cuts, each_max: 12, positions_max: 4 }
}

#[test]
fn the_right_toy_takes_faults() {
    let toy = Toy { bug: Bug::None, commit_every: 2 };
    let explorer = || faults(&toy, replay("testing::tests::faults::the_right_toy_takes_faults"));
    let (mut hit, mut refused, mut failed, mut states) = (0, 0, 0, 0);
    let generated: Vec<Op> = Generator::new(1, Space::small(), OpMix::CRASHY).take(60).collect();
    let scripts = SCRIPTS.iter().map(|script| (script.setup_ops(), script.body_ops()));
    for (setup, body) in scripts.chain([(Vec::new(), generated)]) {
        let report = explorer().run(&setup, &body).unwrap_or_else(|report| panic!("{report}"));
        (hit, refused) = (hit + report.hit, refused + report.refused);
        (failed, states) = (failed + report.failed, states + report.cuts.states);
    }
    assert!(hit > 300 && refused > 50 && failed > 100 && states > 1_000, "{hit} {refused} {failed} {states}");
}

fn finds(bug: Bug, fault: &str, said: &str) {
    let toy = Toy { bug, commit_every: 5 };
    let setup = ops::parse("create /a 644; write /a 0+9000 #1").expect("operations");
    let body =
        "write /a 0+9000 #2; fsync /a; create /b 644; fsyncdir /; fsync /a; write /b 0+5000 #3; fsync /b; fsyncdir /";
    let body = ops::parse(body).expect("operations");
    let report = faults(&toy, Replay::all("seekless", "a::test")).run(&setup, &body).expect_err("a wrong toy");
    assert!(report.contains(said) && report.contains(&format!("SEEKLESS_CASE={fault}")), "{report}");
}

#[test]
fn finds_a_failed_flush_that_is_forgotten() {
    finds(Bug::FailedFlushForgotten, "", "is missing");
}

#[test]
fn finds_lack_of_space_that_is_forgotten() {
    finds(Bug::NoSpaceForgotten, "no-space", "after lack of space");
}

/// Printed faults can be parsed.
#[test]
fn faults_have_names() {
    for fault in [
        Fault::NoSpaceOnce(1),
        Fault::NoSpaceFrom(2),
        Fault::WriteError(3),
        Fault::FlushError(4),
        Fault::ReadError(5),
        Fault::DiscardError(6),
        Fault::Gone(7),
    ] {
        assert_eq!(fault.to_string().parse(), Ok(fault));
    }
    assert!("flood:1".parse::<Fault>().is_err() && "gone:x".parse::<Fault>().is_err());
}
