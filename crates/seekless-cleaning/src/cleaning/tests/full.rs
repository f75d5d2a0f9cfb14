//! Logs that are as full as they may be, and policies that do not help.

use std::ops::ControlFlow;

use super::{given, run, setup};
use crate::cleaning::policy::{Destination, Fresh, Limits, Moved, Policy, Room, Segment, SegmentNo, Ticks, Trigger};
use crate::cleaning::{POLICIES, PatternSpec, PolicySpec, Setup, SetupError, simulate};

/// Aim: a log with a single block to spare goes on, whatever the policy (S2, S3). Method: the largest data that is not
/// refused, and one block more.
#[test]
fn the_fullest_log_goes_on() {
    for policy in POLICIES {
        for reserve in [0, 2] {
            let (_, options) = PolicySpec::parse(policy.name).expect("a policy");
            let limits = Limits { trigger: Trigger::Clean(reserve), batch_blocks: 20, target: 0 };
            let blocks = 8 * 60 - 1;
            let full_with = |heads: u8| {
                let segments = 60 + u32::from(heads) + reserve;
                Setup { blocks, segments, limits, writes: 3_000, warm_up: 0, ..setup(1000, 8, 0.5, 1) }
            };
            let heads_of = |setup: Setup| policy.make(&options, &setup.shape()).expect("a policy").heads();
            // A policy may have fewer heads where there is less room for them.
            let full = full_with(heads_of(full_with(heads_of(full_with(1)))));
            for pattern in ["uniform", "zipf", "hot-and-cold:blocks=50,writes=100"] {
                let outcome = run(policy.name, pattern, &full);
                let outcome = outcome.unwrap_or_else(|error| panic!("{} {pattern}: {error}", policy.name));
                assert_eq!(outcome.counts.user, 3_000);
            }
            let more = run(policy.name, "uniform", &Setup { blocks: blocks + 1, ..full });
            assert!(matches!(more, Err(SetupError::TooFull { .. })), "{}: {more:?}", policy.name);
        }
    }
}

/// Aim: no policy cleans segments over and over that are alive as a whole while others have garbage. Method: the blocks that
/// each of them moves for one of the user, over many turns of each pattern; a useless pass moves a segment and frees nothing.
#[test]
fn few_passes_are_wasted() {
    for policy in POLICIES {
        for pattern in ["uniform", "zipf:skew=1.2", "hot-and-cold", "exponential", "shifting:every=1"] {
            let setup = Setup { segments: 310, ..setup(8192, 32, 0.85, 8) };
            let outcome = run(policy.name, pattern, &setup).unwrap_or_else(|error| panic!("{}: {error}", policy.name));
            let moved = outcome.counts.moved as f64 / outcome.counts.user as f64;
            assert!(moved < 12.0, "{} {pattern}: {moved:.1} blocks are moved for each of the user", policy.name);
        }
    }
}

/// It always wants to clean, and has no victim, or the oldest, which is alive as a whole.
struct Useless {
    closed: Vec<(SegmentNo, u32)>,
    stubborn: bool,
}

impl Policy for Useless {
    fn wants(&self, _: &Room) -> bool {
        true
    }

    fn write(&mut self, _: &Fresh) -> Destination {
        Destination::at(0)
    }

    fn relocate(&mut self, _: &Moved) -> Destination {
        Destination::at(0)
    }

    fn choose(&mut self, _: Ticks) -> Option<SegmentNo> {
        self.closed.iter().max_by_key(|(_, live)| *live).map(|(number, _)| *number).filter(|_| self.stubborn)
    }

    fn closed(&mut self, segment: &Segment) {
        self.closed.push((segment.number, segment.live));
    }

    fn died(&mut self, segment: SegmentNo, live: u32) {
        self.closed.iter_mut().filter(|(number, _)| *number == segment).for_each(|(_, old)| *old = live);
    }

    fn cleaned(&mut self, segment: &Segment) {
        self.closed.retain(|(number, _)| *number != segment.number);
    }

    fn known(&self) -> Vec<(SegmentNo, u32)> {
        self.closed.clone()
    }
}

/// Aim: a policy that is wrong makes a log slow, and never makes it hang or lose a block (S3). Method: two such policies.
#[test]
fn useless_policies_do_no_harm() {
    for stubborn in [false, true] {
        let setup = Setup { writes: 200, warm_up: 0, ..setup(300, 8, 0.8, 1) };
        let mut policy = Useless { closed: Vec::new(), stubborn };
        let (pattern, options) = PatternSpec::parse("uniform").expect("a pattern");
        let mut pattern = pattern.make(&options, &given(300, 1)).expect("a pattern");
        let outcome = simulate(&setup, &mut policy, &mut *pattern, &mut |_, _| ControlFlow::Continue(()));
        let outcome = outcome.unwrap_or_else(|error| panic!("{stubborn}: {error}"));
        assert!(stubborn || outcome.counts.rescued > 0);
        // No pass has more victims than there are segments, and no write more than that many passes, twice.
        let segments = u64::from(setup.segments);
        assert!(outcome.counts.cleaned <= 200 * 2 * segments * segments, "{:?}", outcome.counts);
    }
}

/// Aim: impossible setups are refused. Method: one of each.
#[test]
fn impossible_setups_are_refused() {
    let good = setup(1000, 8, 0.5, 1);
    let refused = |setup: &Setup| matches!(run("greedy", "uniform", setup), Err(SetupError::OutOfRange(_)));
    assert!(refused(&Setup { segment_blocks: 0, ..good }));
    assert!(refused(&Setup { segment_blocks: 4_000_000_000, ..good }));
    assert!(refused(&Setup { writes: 0, ..good }));
    assert!(refused(&Setup { writes: 1 << 33, ..good }));
    assert!(refused(&Setup { warm_up: u64::MAX, ..good }));
    assert!(refused(&Setup { segments: u32::MAX, ..good }));
    for share in [0.0, 1.0, f64::NAN] {
        let limits = Limits { trigger: Trigger::Garbage(share), batch_blocks: 0, target: 0 };
        assert!(refused(&Setup { limits, ..good }), "{share}");
    }
    let ended = run("greedy", "trace", &good);
    assert!(matches!(ended, Err(SetupError::PatternEnded { .. })), "{ended:?}");
}
