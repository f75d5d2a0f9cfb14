//! SepBIT [sepbit]: blocks are separated by when they will die, which is inferred from when others died.
//!
//! A block that the user writes over a short-lived one is expected to be short-lived: head 0 takes it, head 1 the others.
//! What the cleaner moves goes to head 2 from head 0, and otherwise to heads 3, 4 and 5 by its age, in multiples of 4 and
//! 16 of what is short. Short is less than the mean life of the last 16 segments of head 0 that were cleaned.

use std::collections::VecDeque;

use super::select::{SELECT, Select, passes_to};
use super::{Made, Options};
use crate::cleaning::policy::{Destination, Fresh, Moved, Needs, Policy, Segment, Shape, Ticks};
use crate::cleaning::words::Key;

pub(super) const KEYS: &[Key] = &[SELECT];

/// Segments whose mean life says what is short.
const LIVES: usize = 16;

pub(super) struct SepBit {
    select: Select,
    /// From opening to cleaning.
    lives: VecDeque<Ticks>,
    sum: Ticks,
    short: Ticks,
}

impl Made for SepBit {
    fn make(options: &Options, shape: &Shape) -> Result<SepBit, String> {
        let select = Select::parse(options, shape)?;
        // Until 16 have been cleaned, every life is short.
        Ok(SepBit { select, lives: VecDeque::new(), sum: 0, short: Ticks::MAX })
    }
}

impl Policy for SepBit {
    fn heads(&self) -> u8 {
        6
    }

    fn needs(&self) -> Needs {
        Needs { times: true, ..Needs::default() }
    }

    fn write(&mut self, block: &Fresh) -> Destination {
        let is_short = block.before.is_some_and(|before| block.now - before.written < self.short);
        Destination::at(u8::from(!is_short))
    }

    fn relocate(&mut self, block: &Moved) -> Destination {
        let age = block.now - block.written;
        Destination::at(match block.head {
            0 => 2,
            _ if age < self.short.saturating_mul(4) => 3,
            _ if age < self.short.saturating_mul(16) => 4,
            _ => 5,
        })
    }

    fn cleaned(&mut self, segment: &Segment) {
        self.select.cleaned(segment);
        if segment.head == 0 {
            let life = segment.now - segment.opened;
            self.sum += life;
            self.lives.push_back(life);
            if self.lives.len() > LIVES {
                self.sum -= self.lives.pop_front().unwrap_or(0);
            }
            if self.lives.len() == LIVES {
                self.short = self.sum / LIVES as Ticks;
            }
        }
    }

    passes_to!(select);
}
