//! Future knowledge [sepbit §4.1]: the head of a block is its remaining life in segments. With few heads this is not the
//! best that can be done: nearly all blocks live longer than the last head's first segment.

use super::select::{SELECT, Select, passes_to};
use super::{Made, Options};
use crate::cleaning::policy::{Destination, Fresh, Moved, Needs, Policy, Segment, Shape, Ticks};
use crate::cleaning::words::Key;

pub(super) const KEYS: &[Key] = &[Key::new("heads", "6", "how many heads"), SELECT];

pub(super) struct Fk {
    select: Select,
    heads: u8,
    segment_blocks: Ticks,
}

impl Made for Fk {
    fn make(options: &Options, shape: &Shape) -> Result<Fk, String> {
        let select = Select::parse(options, shape)?;
        Ok(Fk { select, heads: options.number("heads", 1, 250)?, segment_blocks: shape.segment_blocks.into() })
    }
}

impl Fk {
    fn place(&self, left: Ticks) -> Destination {
        Destination::at((left / self.segment_blocks).min(Ticks::from(self.heads) - 1) as u8)
    }
}

impl Policy for Fk {
    fn heads(&self) -> u8 {
        self.heads
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
