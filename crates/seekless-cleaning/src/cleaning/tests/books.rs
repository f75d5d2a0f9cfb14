//! The map against the segments, and the policy's segments against the log's, while every policy runs every pattern.

use super::given;
use crate::cleaning::patterns::{DISCARD, PATTERNS};
use crate::cleaning::policies::POLICIES;
use crate::cleaning::policy::{Limits, Trigger};
use crate::cleaning::simulator::{Setup, SimulatedLog};
use crate::cleaning::{PatternSpec, PolicySpec};
use crate::rng::Rng;
use crate::testing::environment::replay;

/// Aim: no policy and no pattern makes the books wrong (S1, P1). Method: every policy under every pattern, in logs of
/// generated shapes, recounted from scratch again and again. What policies learn of the future is wrong, which must do no
/// harm.
#[test]
fn books_agree_for_every_policy_and_pattern() {
    let replay = replay("cleaning::tests::books::books_agree_for_every_policy_and_pattern");
    for seed in replay.seeds(0..3) {
        for policy in POLICIES {
            for pattern in PATTERNS {
                let case =
                    format!("{} under {}: {}", policy.name, pattern.name, replay.command(seed, None, None, None));
                println!("{case}");
                books_agree(policy, pattern, seed);
            }
        }
    }
}

fn books_agree(policy: &PolicySpec, pattern: &PatternSpec, seed: u64) {
    let mut rng = Rng::new(seed);
    let (_, options) = PolicySpec::parse(policy.name).expect("a policy");
    let (_, pattern_options) = PatternSpec::parse(&match pattern.name {
        "trace" => "trace:times=1000".to_owned(),
        name => name.to_owned(),
    })
    .expect("a pattern");
    let segment_blocks = rng.between(3, 24) as u32;
    let segments = rng.between(60, 120) as u32;
    let most = u64::from(segment_blocks) * u64::from(segments - 40);
    let blocks = rng.between(most / 2, most).max(64) as u32;
    let reserve = rng.below(4) as u32;
    let trigger = match rng.chance(1, 4) {
        true => Trigger::Garbage(0.01 + 0.4 * rng.unit_f64()),
        false => Trigger::Clean(reserve),
    };
    let limits = Limits { trigger, batch_blocks: rng.below(100), target: rng.below(3) as u32 };
    let setup = Setup { blocks, segment_blocks, segments, limits, warm_up: 0, writes: 1, seed };
    let mut made = policy.make(&options, &setup.shape()).expect("a policy");
    let mut log = SimulatedLog::new(&setup, &mut *made);
    let mut pattern = pattern.make(&pattern_options, &given(blocks, seed)).expect("a pattern");
    if !pattern.fills() {
        log.fill(seed, None).expect("the data fits");
    }
    let (mut operations, mut done) = (Vec::new(), 0);
    while done < 6_000 {
        operations.clear();
        pattern.more(&mut operations);
        assert!(!operations.is_empty(), "the pattern goes on");
        for operation in &operations {
            match operation & DISCARD {
                0 => log.write(*operation, rng.below(1 << 20) as u32).expect("there is room"),
                _ => log.discard(operation & !DISCARD),
            }
            done += 1;
            if done % 499 == 0 {
                log.check();
            }
        }
    }
    log.check();
}
