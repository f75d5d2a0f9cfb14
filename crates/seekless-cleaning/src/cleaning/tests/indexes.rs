//! Indexes against a search of everything.

use std::collections::BTreeMap;

use crate::cleaning::index::{Ages, Buckets};
use crate::cleaning::policy::{SegmentNo, Ticks};
use crate::rng::Rng;
use crate::testing::environment::replay;

const SEGMENTS: u32 = 50;
const BLOCKS: u32 = 20;

/// Aim: indexes find the best segment. Method: random segments that come, lose blocks and go, and the best of all of them
/// by a search; ages of a kind that is far from the order in which segments come.
#[test]
fn indexes_find_the_best() {
    let replay = replay("cleaning::tests::indexes::indexes_find_the_best");
    for seed in replay.seeds(0..20) {
        println!("{}", replay.command(seed, None, None, None));
        let mut rng = Rng::new(seed);
        let (mut ages, mut buckets) = (Ages::new(SEGMENTS), Buckets::new(SEGMENTS, BLOCKS));
        let mut all: BTreeMap<SegmentNo, (u32, Ticks)> = BTreeMap::new();
        for now in 1000..4000 {
            let segment = rng.below(SEGMENTS.into()) as SegmentNo;
            match all.get(&segment).copied() {
                None => {
                    let (live, stamp) = (rng.below(u64::from(BLOCKS) + 1) as u32, now - rng.below(1000));
                    all.insert(segment, (live, stamp));
                    ages.insert(segment, live, stamp);
                    buckets.insert(segment, live);
                }
                Some((live, stamp)) if live > 0 && rng.chance(3, 4) => {
                    all.insert(segment, (live - 1, stamp));
                    ages.died(segment, live - 1);
                    buckets.died(segment, live - 1);
                }
                Some(_) => {
                    all.remove(&segment);
                    ages.remove(segment);
                    buckets.remove(segment);
                }
            }
            let score = |live: u32, age: Ticks| f64::from(BLOCKS - live) * (age as f64 + 1.0).sqrt();
            let of = |segment: SegmentNo| score(all[&segment].0, now - all[&segment].1);
            let best = all.keys().map(|segment| of(*segment)).reduce(f64::max);
            assert_eq!(ages.best(now, score).map(of), best, "at {now}");
            let emptiest = buckets.emptiest().map(|segment| all[&segment].0);
            assert_eq!(emptiest, all.values().map(|(live, _)| *live).min(), "at {now}");
            let live: Vec<(SegmentNo, u32)> = all.iter().map(|(segment, (live, _))| (*segment, *live)).collect();
            assert_eq!((ages.known(), buckets.known()), (live.clone(), live));
        }
    }
}
