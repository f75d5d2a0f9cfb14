//! Two groups of blocks, uniform inside each; the hot group may move on.

use crate::rng::Rng;

use super::{BATCH, Given, Key, Options, Pattern, below};

const BLOCKS: Key = Key::new("blocks", "10", "share of the blocks that is hot, in %");
const WRITES: Key = Key::new("writes", "90", "share of the writes that goes to them, in %");

pub(super) const KEYS: &[Key] = &[BLOCKS, WRITES];

pub(super) const SHIFTING_KEYS: &[Key] = &[
    BLOCKS,
    WRITES,
    Key::new("every", "1", "writes until another set of blocks becomes hot, in multiples of all blocks"),
    Key::new("step", "100", "share of the hot blocks that changes then, in %"),
];

/// Hot blocks are consecutive, from `start`, and wrap around.
pub(super) struct HotCold {
    rng: Rng,
    blocks: u32,
    hot: u32,
    /// Of 2^32 writes, those to hot blocks.
    threshold: u64,
    start: u32,
    /// Writes until the start moves, and how far.
    left: u64,
    every: u64,
    step: u32,
}

impl HotCold {
    pub(super) fn new(options: &Options, given: &Given) -> Result<HotCold, String> {
        let share = options.number("blocks", 0.0001, 99.9999)? / 100.0;
        let writes = options.number("writes", 0.0, 100.0)? / 100.0;
        let hot = (f64::from(given.blocks) * share).round().clamp(1.0, f64::from(given.blocks - 1)) as u32;
        let threshold = (writes * (1u64 << 32) as f64).round() as u64;
        let rng = Rng::new(given.seed);
        Ok(HotCold { rng, blocks: given.blocks, hot, threshold, start: 0, left: u64::MAX, every: u64::MAX, step: 0 })
    }

    pub(super) fn shifting(options: &Options, given: &Given) -> Result<HotCold, String> {
        let plain = HotCold::new(options, given)?;
        let every = options.number("every", 0.001, 1e6)? * f64::from(given.blocks);
        let every = every.round().max(1.0) as u64;
        let step = options.number("step", 0.0, 100.0)? / 100.0;
        let step = (step * f64::from(plain.hot)).round() as u32;
        Ok(HotCold { left: every, every, step, ..plain })
    }
}

impl Pattern for HotCold {
    fn more(&mut self, operations: &mut Vec<u32>) {
        for _ in 0..BATCH {
            if self.left == 0 {
                self.start = (self.start + self.step) % self.blocks;
                self.left = self.every;
            }
            self.left -= 1;
            let is_hot = self.rng.next_u64() >> 32 < self.threshold;
            let (from, count) = if is_hot { (0, self.hot) } else { (self.hot, self.blocks - self.hot) };
            let block = self.start + from + below(&mut self.rng, count);
            operations.push(if block >= self.blocks { block - self.blocks } else { block });
        }
    }
}
