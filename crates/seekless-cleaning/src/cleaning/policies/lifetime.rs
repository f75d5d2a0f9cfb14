//! Lifetime classes: the head of a block is its expected remaining life, in powers.
//!
//! The expectation is a mean of the block's former lives, in which each life counts less the longer it is over. It goes
//! with the block as a note. A block that is alive at an age beyond what was expected is expected to live as long again.

use super::select::{SELECT, Select, passes_to};
use super::{Made, Options};
use crate::cleaning::policy::{Fresh, Moved, Needs, Note, Place, Policy, Segment, Shape, Ticks};
use crate::cleaning::words::Key;

pub(super) const KEYS: &[Key] = &[
    Key::new("heads", "10", "how many heads"),
    Key::new("ratio", "2", "between the lives of one head and the next"),
    Key::new("weight", "0.25", "of the last life in the mean"),
    Key::new("longest", "4", "longest life of the last head but one, in multiples of the data"),
    SELECT,
];

pub(super) struct Lifetime {
    select: Select,
    /// The longest life of each head but the last.
    lives: Vec<f64>,
    weight: f64,
}

/// Notes are logarithms of lives: this many for a power of two.
const NOTES: f64 = 1024.0;

impl Made for Lifetime {
    fn make(options: &Options, shape: &Shape) -> Result<Lifetime, String> {
        let heads: u8 = options.number("heads", 2, 64)?;
        let ratio = options.number("ratio", 1.01, 100.0)?;
        let longest = options.number("longest", 0.01, 1e6)? * shape.live_blocks as f64;
        let life = |head: u8| longest * f64::powi(ratio, i32::from(head) + 2 - i32::from(heads));
        Ok(Lifetime {
            select: Select::parse(options, shape)?,
            lives: (0..heads - 1).map(life).collect(),
            weight: options.number("weight", 0.001, 1.0)?,
        })
    }
}

fn note_of(life: f64) -> Note {
    (life.max(1.0).log2() * NOTES).min(f64::from(Note::MAX)) as Note
}

fn life_of(note: Note) -> f64 {
    (f64::from(note) / NOTES).exp2()
}

impl Lifetime {
    fn head(&self, life: f64) -> u8 {
        self.lives.partition_point(|longest| *longest < life) as u8
    }
}

impl Policy for Lifetime {
    fn heads(&self) -> u8 {
        self.lives.len() as u8 + 1
    }

    fn needs(&self) -> Needs {
        Needs { times: true, notes: true, future: false }
    }

    fn write(&mut self, block: &Fresh) -> Place {
        let Some(before) = block.before else {
            return Place { head: self.heads() - 1, note: 0 };
        };
        let last = (block.now - before.written) as f64;
        let life = match before.note {
            0 => last,
            note => life_of(note) * (1.0 - self.weight) + last * self.weight,
        };
        Place { head: self.head(life), note: note_of(life).max(1) }
    }

    fn relocate(&mut self, block: &Moved) -> Place {
        let age = (block.now - block.written) as Ticks as f64;
        Place { head: self.head(life_of(block.note).max(age)), note: block.note }
    }

    fn cleaned(&mut self, segment: &Segment) {
        self.select.cleaned(segment);
    }

    passes_to!(select);
}
