//! An oracle: it knows when each block will die, and the heads take lives in powers. No policy that runs on a real system
//! can do this; it shows how much there is to gain.

use super::select::{SELECT, Select, passes_to};
use super::{Made, Options};
use crate::cleaning::policy::{Destination, Fresh, Moved, Needs, Policy, Segment, Shape, Ticks};
use crate::cleaning::words::Key;

pub(super) const KEYS: &[Key] = &[
    Key::new("heads", "24", "how many heads"),
    Key::new("ratio", "1.5", "between the lives of one head and the next"),
    SELECT,
];

pub(super) struct Oracle {
    select: Select,
    /// The longest life of each head but the last.
    lives: Vec<Ticks>,
}

impl Made for Oracle {
    fn make(options: &Options, shape: &Shape) -> Result<Oracle, String> {
        let heads: u8 = options.number("heads", 1, 250)?;
        let ratio = options.number("ratio", 1.01, 100.0)?;
        let life = |head: u8| (f64::from(shape.segment_blocks) * f64::powi(ratio, head.into())) as Ticks;
        Ok(Oracle { select: Select::parse(options, shape)?, lives: (0..heads - 1).map(life).collect() })
    }
}

impl Oracle {
    fn place(&self, left: Ticks) -> Destination {
        Destination::at(self.lives.partition_point(|longest| *longest < left) as u8)
    }
}

impl Policy for Oracle {
    fn heads(&self) -> u8 {
        self.lives.len() as u8 + 1
    }

    fn needs(&self) -> Needs {
        Needs { future: true, ..Needs::default() }
    }

    fn write(&mut self, block: &Fresh) -> Destination {
        self.place(block.dies.saturating_sub(block.now))
    }

    fn relocate(&mut self, block: &Moved) -> Destination {
        self.place(block.dies.saturating_sub(block.now))
    }

    fn cleaned(&mut self, segment: &Segment) {
        self.select.cleaned(segment);
    }

    passes_to!(select);
}
