//! Two heads: one for what the user writes, one for what the cleaner moves (Van Houdt 2014, the double log).

use super::select::{SELECT, Select, passes_to};
use super::{Made, Options};
use crate::cleaning::policy::{Destination, Fresh, Moved, Policy, Segment, Shape};
use crate::cleaning::words::Key;

pub(super) const KEYS: &[Key] = &[SELECT];

pub(super) struct SepGc(Select);

impl Made for SepGc {
    fn make(options: &Options, shape: &Shape) -> Result<SepGc, String> {
        Ok(SepGc(Select::parse(options, shape)?))
    }
}

impl Policy for SepGc {
    fn heads(&self) -> u8 {
        2
    }

    fn write(&mut self, _: &Fresh) -> Destination {
        Destination::at(0)
    }

    fn relocate(&mut self, _: &Moved) -> Destination {
        Destination::at(1)
    }

    fn cleaned(&mut self, segment: &Segment) {
        self.0.cleaned(segment);
    }

    passes_to!(0);
}
