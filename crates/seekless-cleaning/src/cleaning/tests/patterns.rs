//! What patterns write.

use std::collections::BTreeSet;

use super::given;
use crate::cleaning::PatternSpec;
use crate::cleaning::patterns::DISCARD;

const BLOCKS: u32 = 1000;
const WRITES: usize = 400_000;

/// How often each block is written.
fn counts(line: &str) -> Vec<f64> {
    let (pattern, options) = PatternSpec::parse(line).expect("a pattern");
    let mut pattern = pattern.make(&options, &given(BLOCKS, 5)).expect("a pattern");
    let mut operations = Vec::new();
    while operations.len() < WRITES {
        pattern.more(&mut operations);
    }
    let mut counts = vec![0.0; BLOCKS as usize];
    operations.iter().take(WRITES).for_each(|block| counts[*block as usize] += 1.0);
    counts
}

/// Aim: blocks come as often as the pattern says. Method: the sum of squared differences over what is expected is near
/// the number of blocks: within six of its standard deviations.
#[test]
fn blocks_come_as_often_as_they_should() {
    let hot = |block: u32| if block < 100 { 0.9 / 100.0 } else { 0.1 / 900.0 };
    let cases: [(&str, &dyn Fn(u32) -> f64); 5] = [
        ("uniform", &|_| 1.0),
        ("hot-and-cold", &hot),
        ("zipf", &|block| 1.0 / f64::from(block + 1)),
        ("zipf:skew=0.8", &|block| f64::from(block + 1).powf(-0.8)),
        ("exponential:mean=20", &|block| (-f64::from(block) / 200.0).exp()),
    ];
    for (line, weight) in cases {
        let all: f64 = (0..BLOCKS).map(weight).sum();
        let expected = |block: u32| weight(block) / all * WRITES as f64;
        let squares: f64 = (0..BLOCKS)
            .zip(counts(line))
            .map(|(block, count)| (count - expected(block)).powi(2) / expected(block))
            .sum();
        let (mean, deviation) = (f64::from(BLOCKS - 1), (2.0 * f64::from(BLOCKS)).sqrt());
        assert!((squares - mean).abs() < 6.0 * deviation, "{line}: {squares}");
    }
}

/// Aim: the hot blocks move on. Method: after ten moves of a tenth all blocks were hot once, and are equally frequent.
#[test]
fn hot_blocks_move_on() {
    let counts = counts("shifting:blocks=10,writes=100,every=1,step=100");
    assert!(counts.iter().all(|count| *count > 300.0 && *count < 500.0), "{counts:?}");
}

/// Aim: files are written whole and deleted whole, and as much is alive as there should be. Method: what is alive after
/// each group of operations; each run of discards is one that was written in this order.
#[test]
fn files_are_whole() {
    for sizes in ["fixed", "exponential", "heavy"] {
        let (pattern, options) = PatternSpec::parse(&format!("files:sizes={sizes},mean=8")).expect("a pattern");
        let mut pattern = pattern.make(&options, &given(BLOCKS, 9)).expect("a pattern");
        assert!(pattern.fills());
        let (mut alive, mut operations, mut written) = (BTreeSet::new(), Vec::new(), 0);
        for round in 0..200 {
            operations.clear();
            pattern.more(&mut operations);
            for operation in &operations {
                let changed = match operation & DISCARD {
                    0 => alive.insert(*operation),
                    _ => alive.remove(&(operation & !DISCARD)),
                };
                assert!(changed, "only what is dead is written, and only what is alive discarded");
                written += u32::from(operation & DISCARD == 0);
            }
            assert!(round < 2 || alive.len() > 850, "{sizes}: {} blocks are alive", alive.len());
        }
        assert!(written > 50 * BLOCKS, "{sizes}: {written}");
    }
}
