//! Aim: the mounted log cleans what the policy of the simulator would clean. Method: skewed overwrites on small volumes,
//! with every policy; at many moments a new instance of the policy learns the books of the volume and chooses, too.

use super::*;
use crate::cleaning::PolicySpec;
use crate::fs::lfs::segments::Segment;
use crate::fs::lfs::victims::Victims;
use crate::rng::Rng;
use crate::testing::environment::replay;

/// Every policy of a mounted log is one of the simulator, and needs only what the log knows.
#[test]
fn policies_are_those_of_the_simulator() {
    for cleaner in CLEANERS {
        assert_eq!(CleanerPolicy::named(cleaner.name), Some(*cleaner));
        let (spec, options) = PolicySpec::parse(cleaner.line).unwrap();
        let shape =
            crate::cleaning::Shape { segments: 64, segments_used: 64, segment_blocks: 512, live_blocks: 1000, seed: 1 };
        let needs = spec.make(&options, &shape).unwrap().needs();
        assert!(!needs.notes && !needs.future, "{}", cleaner.name);
    }
    assert!(CLEANERS.contains(&CleanerPolicy::default()));
}

#[test]
fn the_victim_is_that_of_the_simulator() {
    let replay = replay("fs::lfs::tests::victims::the_victim_is_that_of_the_simulator");
    for (&cleaner, seed) in CLEANERS.iter().zip(1..) {
        for seed in replay.seeds(seed..seed + 1) {
            println!("{}: {}", cleaner.name, replay.command(seed, None, None, None));
            simulate(seed, async |rt| {
                let (_, device) = fresh(&rt, 16 * MIB).await;
                let lfs = open(rt.clone(), device, Options { cleaner, ..Options::default() }).await.unwrap();
                let client = Client::new(lfs.clone());
                let file = client.create(b"/f").await.unwrap();
                let blocks = 2_600;
                for block in 0..blocks {
                    client.write(file, block * 4096, &[1; 4096]).await.unwrap();
                }
                let mut rng = Rng::new(seed);
                let mut compared = 0;
                for round in 0..8_000u64 {
                    let among = if rng.chance(1, 5) { blocks } else { blocks / 10 };
                    client.write(file, rng.below(among) * 4096, &[round as u8; 4096]).await.unwrap();
                    rt.sleep(Nanos::from_micros(100)).await;
                    if round % 40 == 0 {
                        compared += u32::from(same_victim(&lfs, cleaner));
                    }
                }
                assert!(compared > 100, "{compared} victims are compared");
                let (read, bytes) = {
                    let state = lfs.state.borrow();
                    let counters = &state.log.counters;
                    (counters.cleaner_segments_read, (counters.cleaner_read_bytes, state.log.layout.segment_bytes()))
                };
                assert!(read > 0 && bytes.0 == read * bytes.1, "{read} segments of {}, {} bytes", bytes.1, bytes.0);
                assert_eq!(lfs.recount().await.unwrap(), Vec::<String>::new());
                let victim = lfs.state.borrow_mut().choose_victim(true).unwrap();
                lfs.state
                    .borrow_mut()
                    .log
                    .segments
                    .victims
                    .as_mut()
                    .unwrap()
                    .died(&Segment::default().described(victim, 0));
                let problems = lfs.recount().await.unwrap();
                assert!(problems.iter().any(|problem| problem.starts_with("K1")), "{problems:?}");
                client.close(file).await.unwrap();
                lfs.close().await.unwrap();
            });
        }
    }
}

/// Compares the victim of the volume with that of a new instance of the policy. False when there is none.
fn same_victim(lfs: &Lfs, cleaner: CleanerPolicy) -> bool {
    let mut state = lfs.state.borrow_mut();
    let Some(chosen) = state.choose_victim(false) else { return false };
    let victims = state.log.segments.victims.as_ref().unwrap();
    let mut other = Victims::new(cleaner, &state.log.layout, state.log.segments.live_bytes);
    other.set_now(state.now.nanos_since_epoch());
    let book = |number: u64| state.log.segments.get(number);
    let mut known = victims.known().unwrap();
    known.sort_by_key(|&(number, _)| (book(number).closed, number));
    for &(number, live) in &known {
        assert_eq!(live, book(number).live_bytes);
        other.settle(&book(number).described(number, other.now()));
    }
    // Some are drawn, a circular log's order is not in the books, and of equal ones any may be taken.
    if cleaner.name != "d-choices" && cleaner.name != "fifo" {
        let same = other.choose(false).unwrap();
        let all = |number: u64| (book(number).live_bytes, book(number).closed, book(number).youngest);
        let equal = match cleaner.name {
            "greedy" | "age-sort-greedy" => all(chosen).0 == all(same).0,
            // By the age of the segment.
            "cost-benefit" | "cost-benefit-root" | "age-sort" | "age-sort-root" => {
                (all(chosen).0, all(chosen).1) == (all(same).0, all(same).1)
            }
            _ => all(chosen) == all(same),
        };
        assert!(equal, "{}: {:?} and {:?}", cleaner.name, all(chosen), all(same));
    }
    true
}
