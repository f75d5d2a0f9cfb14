//! Speed of the simulator, in blocks of the user for each second of processor time:
//! `cargo bench -p seekless-cleaning -- [blocks=N] [segment=N] [segments=N] [utilisation=SHARE] [pattern=WORD] [batch=N]
//! [reserve=N] [target=N] [warm=TURNS] [turns=TURNS] [rounds=N] [POLICY ...]`. A turn is as many writes as there are blocks.
//!
//! Blocks that the cleaner moves come on top. Each line is the best of three, because other load disturbs. Without words
//! it measures all policies at 262,144 blocks, and greedy at 2^26.

use std::ops::ControlFlow;

use cpu_time::ProcessTime;
use seekless_cleaning::cleaning::patterns::Given;
use seekless_cleaning::cleaning::policy::{Limits, Trigger};
use seekless_cleaning::cleaning::{POLICIES, PatternSpec, PolicySpec, Setup};

struct Bench {
    blocks: u32,
    segment_blocks: u32,
    utilisation: f64,
    pattern: String,
    warm: f64,
    turns: f64,
    batch: u64,
    reserve: u32,
    target: u32,
    segments: u32,
    rounds: u32,
}

impl Bench {
    fn run(&self, line: &str) {
        let (policy, options) = PolicySpec::parse(line).expect("a policy");
        let (pattern, pattern_options) = PatternSpec::parse(&self.pattern).expect("a pattern");
        let setup = Setup {
            blocks: self.blocks,
            segment_blocks: self.segment_blocks,
            segments: match self.segments {
                0 => Setup::segments_for(self.blocks, self.segment_blocks, self.utilisation),
                segments => segments,
            },
            limits: Limits { trigger: Trigger::Clean(self.reserve), batch_blocks: self.batch, target: self.target },
            warm_up: (f64::from(self.blocks) * self.warm) as u64,
            writes: (f64::from(self.blocks) * self.turns) as u64,
            seed: 1,
        };
        let mut best = f64::INFINITY;
        let (mut amplification, mut cost, mut drift, mut diverted) = (0.0, 0.0, 0.0, 0);
        for _ in 0..self.rounds {
            let given = Given { blocks: setup.blocks, seed: 1, recorded: None };
            let mut pattern = pattern.make(&pattern_options, &given).expect("a pattern");
            let start = ProcessTime::now();
            let mut filled = None;
            let mut progress = |_: u64, _: u64| {
                // Without the time for filling the log.
                filled.get_or_insert_with(|| (ProcessTime::now(), 1_u64 << 18));
                ControlFlow::Continue(())
            };
            let outcome = policy.simulate(&options, &setup, &mut *pattern, &mut progress).expect("an outcome");
            let (from, done) = filled.unwrap_or((start, 0));
            best = best.min(from.elapsed().as_secs_f64() / (setup.warm_up + setup.writes - done) as f64);
            amplification = outcome.write_amplification();
            cost = outcome.write_cost();
            drift = outcome.drift();
            diverted = outcome.counts.diverted;
        }
        println!(
            "{line:<36} {:<12} {:>9} blocks {:>6.1} million writes/s {:>6.1} ns each   write amplification {amplification:.3}, cost {cost:.3}, drift {:+.1} %, diverted {diverted}",
            self.pattern,
            self.blocks,
            1e-6 / best,
            best * 1e9,
            drift * 100.0,
        );
    }
}

fn main() {
    let mut bench = Bench {
        blocks: 1 << 18,
        segment_blocks: 256,
        utilisation: 0.75,
        pattern: "uniform".to_owned(),
        warm: 0.0,
        turns: 40.0,
        batch: 0,
        reserve: 0,
        target: 0,
        segments: 0,
        rounds: 3,
    };
    let mut policies = Vec::new();
    let mut plain = true;
    for word in std::env::args().skip(1).filter(|word| !word.starts_with("--")) {
        plain = false;
        let number = |text: &str| -> f64 { text.parse().expect("a number") };
        match word.split_once('=') {
            Some(("blocks", value)) => bench.blocks = number(value) as u32,
            Some(("segment", value)) => bench.segment_blocks = number(value) as u32,
            Some(("utilisation", value)) => bench.utilisation = number(value),
            Some(("warm", value)) => bench.warm = number(value),
            Some(("batch", value)) => bench.batch = number(value) as u64,
            Some(("reserve", value)) => bench.reserve = number(value) as u32,
            Some(("target", value)) => bench.target = number(value) as u32,
            Some(("segments", value)) => bench.segments = number(value) as u32,
            Some(("turns", value)) => bench.turns = number(value),
            Some(("rounds", value)) => bench.rounds = number(value) as u32,
            Some(("pattern", value)) => bench.pattern = value.to_owned(),
            _ => policies.push(word),
        }
    }
    if policies.is_empty() {
        policies.extend(POLICIES.iter().map(|spec| spec.name.to_owned()));
    }
    policies.iter().for_each(|policy| bench.run(policy));
    if plain {
        bench = Bench { pattern: "zipf".to_owned(), utilisation: 0.85, ..bench };
        policies.iter().for_each(|policy| bench.run(policy));
        Bench { blocks: 1 << 26, segment_blocks: 512, turns: 2.0, rounds: 1, pattern: "uniform".to_owned(), ..bench }
            .run("greedy");
    }
}
