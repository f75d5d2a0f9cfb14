//! The orders in which blocks are written. One pattern is a file here and a row of [`PATTERNS`].

pub mod files;
mod hot_cold;
mod ranked;
mod recorded;
mod uniform;

use std::sync::Arc;

use crate::rng::Rng;

use super::words::{self, Key, Options};

/// Set in an operation that discards its block instead of writing it.
pub const DISCARD: u32 = 1 << 31;

/// Most blocks that a pattern can write to.
pub const BLOCKS_MAX: u32 = 1 << 30;

/// An order in which blocks are written.
pub trait Pattern {
    /// Appends some operations: a block's number to write it, with [`DISCARD`] to discard it. Appends none at its end.
    ///
    /// The first operations of a pattern write every block that is there from the start only if
    /// [`Pattern::fills`] says so; otherwise the log is filled before.
    fn more(&mut self, operations: &mut Vec<u32>);

    /// True when the pattern begins with an empty log.
    fn fills(&self) -> bool {
        false
    }
}

/// What patterns are made from.
#[derive(Clone, Debug)]
pub struct Given {
    /// Blocks that are alive.
    pub blocks: u32,
    pub seed: u64,
    /// The operations of [`PATTERNS`]' `trace`.
    pub recorded: Option<Arc<[u32]>>,
}

/// A pattern of the table.
pub struct PatternSpec {
    pub name: &'static str,
    /// What it does, in one line.
    pub help: &'static str,
    pub keys: &'static [Key],
    make: Make,
}

type Make = fn(&Options, &Given) -> Result<Box<dyn Pattern>, String>;

/// Every pattern.
pub const PATTERNS: &[PatternSpec] = &[
    PatternSpec {
        name: "uniform",
        help: "each block as often as any other",
        keys: &[],
        make: |_, given| Ok(Box::new(uniform::Uniform::new(given))),
    },
    PatternSpec {
        name: "hot-and-cold",
        help: "a share of the blocks gets most of the writes [ro92 §3.5]",
        keys: hot_cold::KEYS,
        make: |options, given| Ok(Box::new(hot_cold::HotCold::new(options, given)?)),
    },
    PatternSpec {
        name: "shifting",
        help: "hot and cold blocks, and the hot ones move on",
        keys: hot_cold::SHIFTING_KEYS,
        make: |options, given| Ok(Box::new(hot_cold::HotCold::shifting(options, given)?)),
    },
    PatternSpec {
        name: "exponential",
        help: "the chance of a block falls exponentially with its rank",
        keys: ranked::EXPONENTIAL_KEYS,
        make: |options, given| Ok(Box::new(ranked::Ranked::exponential(options, given)?)),
    },
    PatternSpec {
        name: "zipf",
        help: "the chance of a block is its rank to the power of -skew",
        keys: ranked::ZIPF_KEYS,
        make: |options, given| Ok(Box::new(ranked::Ranked::zipf(options, given)?)),
    },
    PatternSpec {
        name: "files",
        help: "files are written whole and deleted whole",
        keys: files::KEYS,
        make: |options, given| Ok(Box::new(files::Files::new(options, given)?)),
    },
    PatternSpec {
        name: "trace",
        help: "the writes of a block trace",
        keys: recorded::KEYS,
        make: |options, given| Ok(Box::new(recorded::Recorded::new(options, given)?)),
    },
];

impl PatternSpec {
    /// Parses a pattern with its options.
    ///
    /// # Errors
    /// An unknown word or option.
    pub fn parse(line: &str) -> Result<(&'static PatternSpec, Options), String> {
        let table: Vec<(&'static str, &'static [Key])> = PATTERNS.iter().map(|spec| (spec.name, spec.keys)).collect();
        let (index, options) = words::parse(line, "pattern", &table)?;
        Ok((&PATTERNS[index], options))
    }

    /// The pattern of these options.
    ///
    /// # Errors
    /// An invalid option.
    pub fn make(&self, options: &Options, given: &Given) -> Result<Box<dyn Pattern>, String> {
        if given.blocks < 2 || given.blocks > BLOCKS_MAX {
            return Err(format!("a pattern needs between 2 and {BLOCKS_MAX} blocks, not {}", given.blocks));
        }
        (self.make)(options, given)
    }
}

/// Operations that a pattern draws at a time.
const BATCH: usize = 1024;

/// A number below `bound`.
#[inline]
fn below(rng: &mut Rng, bound: u32) -> u32 {
    rng.below(u64::from(bound)) as u32
}
