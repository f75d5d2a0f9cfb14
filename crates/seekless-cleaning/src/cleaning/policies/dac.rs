//! Dynamic data clustering (Chiang, Lee and Chang 1999): regions by temperature. A block rises a region when the user
//! writes it, and sinks one when the cleaner moves it.

use super::select::{SELECT, Select, passes_to};
use super::{Made, Options};
use crate::cleaning::policy::{Destination, Fresh, Moved, Needs, Policy, Segment, Shape};
use crate::cleaning::words::Key;

pub(super) const KEYS: &[Key] = &[Key::new("regions", "6", "how many regions"), SELECT];

pub(super) struct Dac {
    select: Select,
    regions: u8,
}

impl Made for Dac {
    fn make(options: &Options, shape: &Shape) -> Result<Dac, String> {
        Ok(Dac { select: Select::parse(options, shape)?, regions: options.number("regions", 2, 64)? })
    }
}

impl Dac {
    fn place(region: u8) -> Destination {
        Destination { head: region, note: region.into() }
    }
}

impl Policy for Dac {
    fn heads(&self) -> u8 {
        self.regions
    }

    fn needs(&self) -> Needs {
        Needs { notes: true, ..Needs::default() }
    }

    fn write(&mut self, block: &Fresh) -> Destination {
        let region = block.before.map_or(0, |before| before.note as u8 + 1);
        Dac::place(region.min(self.regions - 1))
    }

    fn relocate(&mut self, block: &Moved) -> Destination {
        Dac::place((block.note as u8).max(1) - 1)
    }

    fn cleaned(&mut self, segment: &Segment) {
        self.select.cleaned(segment);
    }

    passes_to!(select);
}
