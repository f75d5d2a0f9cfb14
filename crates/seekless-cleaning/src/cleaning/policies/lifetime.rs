//! Lifetime classes: the head of a block is its expected life, in powers.
//!
//! 1. The expectation is a geometric mean of the block's former lives, in which each counts less the longer it is over. It
//!    goes with the block as a note. A last life that is far from the mean counts more: the block's use has changed.
//! 2. A block that the cleaner moves is expected to live as long again as it has lived, if that is more.
//! 3. Blocks of the user and blocks that are moved have heads of their own. A wrong expectation shows soon: a block that
//!    becomes hot would leave a hole among blocks that are known to be cold.
//! 4. A block without former lives has a head of its own too, and goes by its age when it is moved.
//! 5. The victim is chosen by cost-benefit with the root of the segment's age, in all heads alike.
//! 6. An open segment is space that holds nothing, so a log with little spare space has fewer heads, each for a wider
//!    range of lives. (15 heads in a log with 55 spare segments cost 2.5 % more than 9: `experiments/cleaning-traces`.)
//!
//! What else was tried, at Zipf 1 (`experiments/cleaning-zipf`): an arithmetic mean is 1.5 % better there and 10 % worse when
//! hot blocks move on; heads that users and the cleaner share, 1 % better and 7 % worse; a life of several times the age for
//! old blocks, 2 to 5 % worse; twice as many heads, 1 % better there and 0.5 % worse under uniform writes.

use super::select::{SELECT, Select, passes_to};
use super::{Made, Options};
use crate::cleaning::policy::{Destination, Fresh, Moved, Needs, Note, Policy, Segment, Shape};
use crate::cleaning::words::Key;

pub(super) const KEYS: &[Key] = &[
    Key::new("moved", "auto", "heads for blocks that are moved; by default one for 14 spare segments, 3 to 7"),
    Key::new(
        "fresh",
        "auto",
        "heads for blocks that the user writes, besides one for blocks without former lives; the same",
    ),
    Key::new("ratio", "auto", "between the lives of one head and the next; by default 4 with 7 heads, more with fewer"),
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

const AUTO: &str = "auto";

/// With these heads on either side, the lives of one head are longer than those of the one before by this factor.
const HEADS_MAX: u8 = 7;
const RATIO: f64 = 4.0;

const HEADS_MIN: u8 = 3;

/// Spare segments for each head of a side, at least.
const SPARE_OF_HEAD: f64 = 14.0;

/// Heads on either side for a log of this shape: an open segment takes of the space, unless that is not limited.
fn heads_for(shape: &Shape) -> u8 {
    let spare = f64::from(shape.segments) - shape.live_blocks as f64 / f64::from(shape.segment_blocks);
    ((spare / SPARE_OF_HEAD) as u8).clamp(HEADS_MIN, HEADS_MAX)
}

fn note_of(life: f64) -> Note {
    (life.max(1.0).log2() * NOTES).round().clamp(1.0, f64::from(Note::MAX)) as Note
}

impl Made for Lifetime {
    fn make(options: &Options, shape: &Shape) -> Result<Lifetime, String> {
        let heads = |key: &str| match options.text(key) {
            AUTO => Ok(heads_for(shape)),
            _ => options.number(key, 1, 64),
        };
        let longest = options.number("longest", 0.01, 1e6)? * shape.live_blocks as f64;
        let lives = |heads: u8| -> Result<Vec<Note>, String> {
            let ratio: f64 = match options.text("ratio") {
                AUTO => RATIO * f64::from(HEADS_MAX) / f64::from(heads.min(HEADS_MAX)),
                _ => options.number("ratio", 1.01, 100.0)?,
            };
            let life = |head: u8| longest * ratio.powi(i32::from(head) + 2 - i32::from(heads));
            Ok((0..heads - 1).map(|head| note_of(life(head))).collect())
        };
        Ok(Lifetime {
            select: Select::parse(options, shape)?,
            moved: lives(heads("moved")?)?,
            fresh: lives(heads("fresh")?)?,
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

    fn write(&mut self, block: &Fresh) -> Destination {
        let Some(before) = block.before else {
            return Destination { head: self.heads() - 1, note: 0 };
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
        Destination { head: head as u8, note }
    }

    fn relocate(&mut self, block: &Moved) -> Destination {
        let life = block.note.max(note_of((block.now - block.written) as f64));
        Destination { head: self.moved.partition_point(|longest| *longest < life) as u8, note: block.note }
    }

    fn cleaned(&mut self, segment: &Segment) {
        self.select.cleaned(segment);
    }

    passes_to!(select);
}
