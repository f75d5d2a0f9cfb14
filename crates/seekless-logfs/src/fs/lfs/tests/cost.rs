//! Aim: what cleaning costs a mounted log is nearly what the simulator of its policy says, and metadata are a small part of it.
//! Method: blocks of one file are overwritten, scattered over the file, and the same writes go to a simulator that keeps as
//! many segments clean, and has a block less in each for the summary.

use super::super::format::BLOCK_BYTES;
use super::*;
use crate::cleaning::patterns::Given;
use crate::cleaning::policy::{Limits, Trigger};
use crate::cleaning::{PatternSpec, PolicySpec, Setup};
use crate::rng::Rng;

const VOLUME: u64 = 64 * MIB;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// Blocks between two syncs.
const ROUND: u64 = 256;

/// Blocks that a pass of the mounted log moves.
const PASS_BLOCKS: u64 = 512;

/// In multiples of the data.
const WARM_UP: u64 = 2;
const MEASURED: u64 = 1;

/// What came out, for each byte that the user wrote.
struct Cost {
    log: f64,
    metadata: f64,
    simulated: f64,
}

fn cost(pattern: &str, cleaner: CleanerPolicy, percent: u64) -> Cost {
    simulate(1, async |rt| {
        let device: Device = Rc::new(Memory::new(VOLUME));
        mkfs(&rt, &device, &MkfsOptions::new([1, 2, 3, 4])).await.unwrap();
        let lfs = open(rt.clone(), device.clone(), Options { cleaner, ..Options::default() }).await.unwrap();
        let client = Client::new(lfs.clone());
        let layout = lfs.state.borrow().log.layout;
        let segments = layout.segment_count();
        let blocks = (segments * layout.segment_bytes() * percent / 100 / BLOCK) as u32;
        let (zeroes, file) = (vec![0; BLOCK_BYTES], client.create(b"/f").await.unwrap());
        for block in 0..blocks {
            client.write(file, u64::from(block) * BLOCK, &zeroes).await.unwrap();
        }
        client.sync().await.unwrap();
        let mut places: Vec<u32> = (0..blocks).collect();
        Rng::new(7).shuffle(&mut places);
        let (spec, words) = PatternSpec::parse(pattern).unwrap();
        let mut source = spec.make(&words, &Given { blocks, seed: 1, recorded: None }).unwrap();

        let (mut drawn, mut round, mut recorded) = (Vec::new(), Vec::new(), Vec::new());
        let (mut warm_up, mut clean, mut syncs) = (0, 0, 0);
        let mut before = lfs.state.borrow().log.counters;
        let rounds = |turns: u64| turns * u64::from(blocks) / ROUND;
        for number in 0..rounds(WARM_UP + MEASURED) {
            while round.len() < ROUND as usize {
                if drawn.is_empty() {
                    source.more(&mut drawn);
                    drawn.reverse();
                }
                let block = places[drawn.pop().unwrap() as usize];
                client.write(file, u64::from(block) * BLOCK, &zeroes).await.unwrap();
                rt.sleep(Nanos::from_micros(100)).await;
                round.push(block);
            }
            client.sync().await.unwrap();
            // A block that is written twice between two syncs goes to the log once.
            round.sort_unstable();
            round.dedup();
            recorded.append(&mut round);
            if number < rounds(WARM_UP) {
                (before, warm_up) = (lfs.state.borrow().log.counters, recorded.len() as u64);
            } else {
                (clean, syncs) = (clean + lfs.clean_segments(), syncs + 1);
            }
        }
        let after = lfs.state.borrow().log.counters;
        let of = |get: fn(&Counters) -> u64| (get(&after) - get(&before)) as f64;
        let data = of(|counters| counters.log_data_bytes);

        let kept = ((clean + syncs / 2) / syncs) as u32;
        let setup = Setup {
            blocks,
            segment_blocks: (layout.segment_bytes() / BLOCK) as u32 - 1,
            segments: segments as u32,
            limits: Limits { trigger: Trigger::Clean(kept), batch_blocks: PASS_BLOCKS, target: kept },
            warm_up,
            writes: recorded.len() as u64 - warm_up,
            seed: 1,
        };
        let (trace, options) = PatternSpec::parse("trace").unwrap();
        let given = Given { blocks, seed: 1, recorded: Some(recorded.into()) };
        let mut pattern = trace.make(&options, &given).unwrap();
        let (policy, options) = PolicySpec::parse(cleaner.line).unwrap();
        let go_on = &mut |_, _| std::ops::ControlFlow::Continue(());
        let outcome = policy.simulate(&options, &setup, &mut *pattern, go_on).unwrap();

        client.close(file).await.unwrap();
        lfs.close().await.unwrap();
        Cost {
            log: of(|counters| counters.log_bytes) / data,
            metadata: of(|counters| counters.log_metadata_bytes) / data,
            simulated: outcome.write_amplification(),
        }
    })
}

#[test]
fn a_mounted_log_costs_what_its_simulator_says() {
    for pattern in ["uniform", "hot-and-cold", "zipf:skew=1"] {
        let Cost { log, metadata, simulated } = cost(pattern, CleanerPolicy::AGE_SORT, 80);
        let over = log / simulated;
        println!(
            "{pattern}: {log:.3} for each byte, simulated {simulated:.3}, {over:.3} times; metadata {metadata:.3}"
        );
        assert!(
            (0.95..=1.15).contains(&over),
            "{pattern}: {log:.3} for each byte, and the simulator has {simulated:.3}"
        );
        assert!((0.01..=0.1).contains(&metadata), "{pattern}: {metadata:.3} of metadata for each byte");
    }
}

/// Aim: the cleaner of BSD-LFS goes to work long before room is short. Method: what it keeps clean, beside the default.
#[test]
fn the_early_cleaner_keeps_half_of_the_free_space_clean() {
    let kept = |cleaner| {
        simulate(1, async |rt| {
            let device: Device = Rc::new(Memory::new(VOLUME));
            mkfs(&rt, &device, &MkfsOptions::new([1, 2, 3, 4])).await.unwrap();
            let lfs = open(rt.clone(), device.clone(), Options { cleaner, ..Options::default() }).await.unwrap();
            let client = Client::new(lfs.clone());
            let blocks = VOLUME / BLOCK / 2;
            let (zeroes, file) = (vec![0; BLOCK_BYTES], client.create(b"/f").await.unwrap());
            let mut rng = Rng::new(3);
            for number in 0..5 * blocks {
                let block = if number < blocks { number } else { rng.below(blocks) };
                client.write(file, block * BLOCK, &zeroes).await.unwrap();
                rt.sleep(Nanos::from_micros(100)).await;
            }
            client.sync().await.unwrap();
            client.close(file).await.unwrap();
            let clean = lfs.clean_segments() as f64 / lfs.state.borrow().log.segments.count() as f64;
            lfs.close().await.unwrap();
            clean
        })
    };
    let (early, late) = (kept(CleanerPolicy::BSD), kept(CleanerPolicy::COST_BENEFIT));
    assert!((0.15..0.35).contains(&early), "{early:.2} of the segments are clean");
    assert!(late < 0.1, "{late:.2} of the segments are clean");
}
