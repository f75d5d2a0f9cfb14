//! Aim: the shape of the log keeps its invariants for all writes in any order, and extra pieces are rare. Method: every
//! short sequence on a few pieces; long random ones on many; counts.

use super::*;
use crate::vlog::tree::Tree;
use std::collections::BTreeSet;

/// Writes pieces and checks; returns how many were written.
fn step(tree: &mut Tree, sequence: &mut u64, wanted: &BTreeSet<u32>) -> usize {
    let before: BTreeSet<u32> = tree.nodes().map(|(index, _)| index).collect();
    let plan = tree.plan(wanted);
    let planned: BTreeSet<u32> = plan.iter().map(|piece| piece.index).collect();
    assert!(planned.is_superset(wanted) && planned.len() == plan.len());
    let places: Vec<(u64, u64)> =
        (0..plan.len() as u64).map(|number| (*sequence + number, *sequence + number)).collect();
    *sequence += plan.len() as u64;
    let freed = tree.apply(&plan, &places);
    assert_eq!(freed.len(), planned.intersection(&before).count());
    tree.check().unwrap_or_else(|why| panic!("{why} after {wanted:?}"));
    assert!(tree.nodes().map(|(index, _)| index).eq(before.union(&planned).copied()));
    plan.len()
}

/// All sequences of seven transactions on four pieces, each of one piece or two, with two pointers per piece, which is
/// the tight case.
#[test]
fn every_short_history_keeps_the_promises() {
    let mut choices: Vec<BTreeSet<u32>> = (0..4).map(|one| BTreeSet::from([one])).collect();
    choices.push(BTreeSet::from([0, 1]));
    choices.push(BTreeSet::from([2, 3]));
    let mut histories = 0;
    let mut open = vec![(Tree::with_places(4, 2), 1, 0)];
    while let Some((tree, sequence, depth)) = open.pop() {
        histories += 1;
        if depth == 7 {
            continue;
        }
        for wanted in &choices {
            let (mut tree, mut sequence) = (tree.clone(), sequence);
            step(&mut tree, &mut sequence, wanted);
            open.push((tree, sequence, depth + 1));
        }
    }
    assert_eq!(histories, (0..=7).map(|depth| 6usize.pow(depth)).sum::<usize>());
}

/// A piece that is written between every two others would get all of them as children, if it had enough pointers. With
/// few, other pieces take them over, at the price of extra pieces that is counted here: `places` to per cent.
#[test]
fn the_worst_history_is_bounded() {
    for places in [2, 3, 4, 8] {
        let (pieces, rounds) = (300u32, 3000);
        let mut tree = Tree::with_places(pieces, places);
        let mut sequence = 1;
        let mut written = 0;
        let mut most = 0;
        for round in 0..rounds {
            for index in [0, 1 + round % (pieces - 1)] {
                let one = step(&mut tree, &mut sequence, &BTreeSet::from([index]));
                written += one;
                most = most.max(one);
            }
        }
        // At most log_k n extra ones, plus one.
        let bound = 1 + f64::from(pieces).log(places as f64).ceil() as usize;
        assert!(most <= bound, "{places} places: {most} pieces in one transaction");
        let extra = written as f64 / f64::from(2 * rounds) - 1.0;
        println!("{places} places: {extra:.3} further pieces for each, {most} at most");
        // Each transaction adds one edge more than it needs, so one in k - 1 can be the price in the long run.
        assert!(extra <= 1.0 / (places as f64 - 1.0) + 0.01, "{places} places: {extra}");
    }
}

/// Random writes, as on a disk in use: the price of few pointers. Four cost next to nothing.
#[test]
fn further_pieces_are_rare() {
    let mut extras = Vec::new();
    for places in [2, 3, 4] {
        let mut rng = Rng::new(places as u64);
        let mut tree = Tree::with_places(200, places);
        let (mut sequence, mut written, mut wanted_sum) = (1, 0, 0);
        for _ in 0..20_000 {
            let count = if rng.chance(1, 10) { rng.between(2, 20) } else { 1 };
            // Some pieces are written more often than others.
            let draw = |rng: &mut Rng| if rng.chance(1, 2) { rng.below(10) } else { rng.below(200) } as u32;
            let wanted: BTreeSet<u32> = (0..count).map(|_| draw(&mut rng)).collect();
            wanted_sum += wanted.len();
            written += step(&mut tree, &mut sequence, &wanted);
        }
        extras.push(written as f64 / wanted_sum as f64 - 1.0);
    }
    println!("further pieces for each, with 2, 3 and 4 places: {extras:.3?}");
    assert!(extras.is_sorted_by(|fewer, more| fewer >= more));
    assert!(extras[2] < 0.04, "{extras:?}");
}
