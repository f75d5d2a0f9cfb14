//! Lifetime classes: the head of a block is its expected life, in powers.
//!
//! 1. The expectation is a geometric mean of the block's former lives, in which each counts less the longer it is over. It
//!    goes with the block as a note. A last life that is far from the mean counts more: the block's use has changed.
//! 2. A block that the cleaner moves is expected to live as long again as it has lived, if that is more.
//! 3. Blocks of the user and blocks that are moved have heads of their own. A wrong expectation shows soon: a block that
//!    becomes hot would leave a hole among blocks that are known to be cold.
//! 4. A block without former lives has a head of its own too, and goes by its age when it is moved.
//! 5. The victim is chosen by cost-benefit with the root of the segment's age, in all heads alike.
//!
//! What else was tried, at Zipf 1 (`experiments/cleaning-zipf`): an arithmetic mean is 1.5 % better there and 10 % worse when
//! hot blocks move on; heads that users and the cleaner share, 1 % better and 7 % worse; a life of several times the age for
//! old blocks, 2 to 5 % worse; twice as many heads, 1 % better there and 0.5 % worse under uniform writes.

use super::select::{SELECT, Select, passes_to};
use super::{Made, Options};
use crate::cleaning::policy::{Fresh, Moved, Needs, Note, Place, Policy, Segment, Shape};
use crate::cleaning::words::Key;

pub(super) const KEYS: &[Key] = &[
    Key::new("moved", "7", "heads for blocks that are moved"),
    Key::new("fresh", "7", "heads for blocks that the user writes, besides one for blocks without former lives"),
    Key::new("ratio", "4", "between the lives of one head and the next"),
    Key::new("longest", "16", "longest life of the last head but one, in multiples of the data"),
    Key::new("weight", "0.25", "of the last life in the mean"),
    Key::new("surprise", "3", "powers of two from the mean at which a last life is far from it"),
    Key::new("leap", "0.7", "weight of such a life"),
    SELECT,
];

pub(super) struct Lifetime {
    select: Select,
    /// The longest life of each head for moved blocks but the last, and of each for the user's, as notes.
    moved: Vec<Note>,
    fresh: Vec<Note>,
    weight: f64,
    surprise: f64,
    leap: f64,
}

/// Notes are logarithms of lives: this many for a power of two. 0 is no life.
const NOTES: f64 = 1024.0;

fn note_of(life: f64) -> Note {
    (life.max(1.0).log2() * NOTES).round().clamp(1.0, f64::from(Note::MAX)) as Note
}

impl Made for Lifetime {
    fn make(options: &Options, shape: &Shape) -> Result<Lifetime, String> {
        let ratio: f64 = options.number("ratio", 1.01, 100.0)?;
        let longest = options.number("longest", 0.01, 1e6)? * shape.live_blocks as f64;
        let lives = |heads: u8| -> Vec<Note> {
            (0..heads - 1).map(|head| note_of(longest * ratio.powi(i32::from(head) + 2 - i32::from(heads)))).collect()
        };
        Ok(Lifetime {
            select: Select::parse(options, shape)?,
            moved: lives(options.number("moved", 1, 64)?),
            fresh: lives(options.number("fresh", 1, 64)?),
            weight: options.number("weight", 0.001, 1.0)?,
            surprise: options.number("surprise", 0.0, 64.0)? * NOTES,
            leap: options.number("leap", 0.001, 1.0)?,
        })
    }
}

impl Policy for Lifetime {
    /// First those for moved blocks, then those for the user's, and the one for blocks without former lives.
    fn heads(&self) -> u8 {
        (self.moved.len() + 1 + self.fresh.len() + 1 + 1) as u8
    }

    fn needs(&self) -> Needs {
        Needs { times: true, notes: true, future: false }
    }

    fn write(&mut self, block: &Fresh) -> Place {
        let Some(before) = block.before else {
            return Place { head: self.heads() - 1, note: 0 };
        };
        let last = note_of((block.now - before.written) as f64);
        let note = match before.note {
            0 => last,
            mean => {
                let difference = f64::from(last) - f64::from(mean);
                let weight = if difference.abs() > self.surprise { self.leap } else { self.weight };
                (f64::from(mean) + difference * weight).round() as Note
            }
        };
        let head = self.moved.len() + 1 + self.fresh.partition_point(|longest| *longest < note);
        Place { head: head as u8, note }
    }

    fn relocate(&mut self, block: &Moved) -> Place {
        let life = block.note.max(note_of((block.now - block.written) as f64));
        Place { head: self.moved.partition_point(|longest| *longest < life) as u8, note: block.note }
    }

    fn cleaned(&mut self, segment: &Segment) {
        self.select.cleaned(segment);
    }

    passes_to!(select);
}
