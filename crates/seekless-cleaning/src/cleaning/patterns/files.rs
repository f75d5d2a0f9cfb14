//! Files that are written whole and deleted whole: what [ro92 §5.2] gives as the reason why cleaning costs less in
//! production than in the simulations of single blocks.
//!
//! Each step deletes a file and writes new ones, until as much is alive as before. Hot files are short-lived: a step
//! deletes one of them with the chance that the options give, and new files are hot with the same chance.

use crate::rng::Rng;

use super::{BATCH, DISCARD, Given, Key, Options, Pattern, below};

pub(super) const KEYS: &[Key] = &[
    Key::new("mean", "6", "mean size of a file, in blocks"),
    Key::new("sizes", "exponential", "fixed, exponential, or heavy: few large files hold most of the data"),
    Key::new("hot", "10", "share of the data that is in short-lived files, in %"),
    Key::new("writes", "90", "share of the writes that goes to them, in %"),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sizes {
    Fixed,
    Exponential,
    Heavy,
}

struct Group {
    /// Blocks that its files should have together, and have.
    wanted: u64,
    have: u64,
    files: Vec<Vec<u32>>,
    /// From then on it stays nearly full.
    was_full: bool,
}

/// A file is written whole or deleted whole; it has these blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileChange {
    Written(Vec<u32>),
    Deleted(Vec<u32>),
}

/// The pattern `files`.
pub struct Files {
    rng: Rng,
    mean: f64,
    sizes: Sizes,
    free: Vec<u32>,
    /// Hot, cold.
    groups: [Group; 2],
    writes: f64,
    largest: u64,
}

impl Files {
    /// # Errors
    /// An invalid option.
    pub fn new(options: &Options, given: &Given) -> Result<Files, String> {
        let mean = options.number("mean", 1.0, f64::from(given.blocks) / 8.0)?;
        let words = [("fixed", Sizes::Fixed), ("exponential", Sizes::Exponential), ("heavy", Sizes::Heavy)];
        let sizes = options.choice("sizes", &words)?;
        let hot = options.number("hot", 0.0, 100.0)? / 100.0;
        let writes = options.number("writes", 0.0, 100.0)? / 100.0;
        let hot_blocks = (f64::from(given.blocks) * hot).round() as u64;
        let group = |wanted: u64| Group { wanted, have: 0, files: Vec::new(), was_full: false };
        let groups = [group(hot_blocks), group(u64::from(given.blocks) - hot_blocks)];
        let free = (0..given.blocks).rev().collect();
        let largest = u64::from(given.blocks / 8).max(1);
        Ok(Files { rng: Rng::new(given.seed), mean, sizes, free, groups, writes, largest })
    }

    /// Blocks of a new file.
    fn size(&mut self) -> u64 {
        // Above zero, so that it has a logarithm.
        let share = 1.0 - self.rng.unit_f64();
        let size = match self.sizes {
            Sizes::Fixed => self.mean,
            Sizes::Exponential => 0.5 - (self.mean - 0.5) * share.ln(),
            // Pareto with the power 1.25, whose mean is five times its minimum.
            Sizes::Heavy => self.mean / 5.0 * share.powf(-0.8),
        };
        (size.round() as u64).clamp(1, self.largest)
    }

    /// The next file, and the files that make room for it.
    pub fn turn(&mut self) -> Vec<FileChange> {
        // By the share of what is hot; a group without room to write is not drawn.
        let mut group = usize::from(self.rng.unit_f64() >= self.writes);
        if self.groups[group].wanted == 0 {
            group = 1 - group;
        }
        // While the log fills up, both grow in proportion.
        let filled = |group: &Group| group.have as f64 / group.wanted.max(1) as f64;
        let growing = (0..2).filter(|index| !self.groups[*index].was_full && self.groups[*index].wanted > 0);
        let growing = growing.min_by(|one, two| filled(&self.groups[*one]).total_cmp(&filled(&self.groups[*two])));
        group = growing.unwrap_or(group);
        let size = self.size().min(self.groups[group].wanted.max(1));
        let mut changes = Vec::new();
        while !self.groups[group].files.is_empty()
            && (self.groups[group].have + size > self.groups[group].wanted || self.free.len() < size as usize)
        {
            self.groups[group].was_full = true;
            let count = self.groups[group].files.len() as u32;
            let index = below(&mut self.rng, count) as usize;
            let blocks = self.groups[group].files.swap_remove(index);
            self.groups[group].have -= blocks.len() as u64;
            self.free.extend(blocks.iter().rev());
            changes.push(FileChange::Deleted(blocks));
        }
        let size = size.min(self.free.len() as u64);
        if size > 0 {
            let mut blocks = self.free.split_off(self.free.len() - size as usize);
            blocks.reverse();
            self.groups[group].have += size;
            self.groups[group].files.push(blocks.clone());
            changes.push(FileChange::Written(blocks));
        }
        changes
    }
}

impl Pattern for Files {
    fn fills(&self) -> bool {
        true
    }

    fn more(&mut self, operations: &mut Vec<u32>) {
        let before = operations.len();
        while operations.len() < before + BATCH {
            for change in self.turn() {
                match change {
                    FileChange::Written(blocks) => operations.extend(blocks),
                    FileChange::Deleted(blocks) => operations.extend(blocks.iter().map(|block| block | DISCARD)),
                }
            }
        }
    }
}
