//! A chain of groups, after MiDAS (Oh et al., FAST 2024): the user writes to the first group, and what is alive in a
//! victim goes to the next, so that a group has blocks of an age. Every group but the last is a queue with a size; when
//! one is too long, its oldest segment is the victim. Blocks whose last life was shorter than a stay in the first group
//! have a group of their own.
//!
//! MiDAS finds the number and the sizes of the groups with a model of the lives that it samples. Here they are options.

use super::{Made, Options};
use crate::cleaning::index::{Buckets, Queue};
use crate::cleaning::policy::{Destination, Fresh, Moved, Needs, Policy, Segment, SegmentNo, Shape, Ticks};
use crate::cleaning::words::Key;

pub(super) const KEYS: &[Key] = &[
    Key::new("groups", "5", "how many groups, besides that of short-lived blocks"),
    Key::new("first", "4", "size of the first group and of that of short-lived blocks, in % of the segments"),
    Key::new("ratio", "1.5", "between the sizes of one group and the next"),
];

pub(super) struct Midas {
    /// The group of short-lived blocks, then the chain without its last group.
    queues: Vec<Queue>,
    sizes: Vec<u32>,
    last: Buckets,
    group_of: Vec<u8>,
    segment_blocks: u32,
    /// How long segments lately stayed in the first group.
    stay: Ticks,
}

impl Made for Midas {
    fn make(options: &Options, shape: &Shape) -> Result<Midas, String> {
        let groups: u8 = options.number("groups", 2, 32)?;
        let first = options.number("first", 0.01, 50.0)? / 100.0 * f64::from(shape.segments_used);
        let ratio = options.number("ratio", 0.1, 10.0)?;
        let size = |group: u8| (first * f64::powi(ratio, group.into())).ceil() as u32;
        Ok(Midas {
            queues: (0..groups).map(|_| Queue::new(shape.segments)).collect(),
            sizes: std::iter::once(size(0)).chain((0..groups - 1).map(size)).collect(),
            last: Buckets::new(shape.segments, shape.segment_blocks),
            group_of: vec![0; shape.segments as usize],
            segment_blocks: shape.segment_blocks,
            stay: 0,
        })
    }
}

impl Policy for Midas {
    fn heads(&self) -> u8 {
        self.queues.len() as u8 + 1
    }

    fn needs(&self) -> Needs {
        Needs { times: true, ..Needs::default() }
    }

    fn write(&mut self, block: &Fresh) -> Destination {
        let is_short = block.before.is_some_and(|before| block.now - before.written < self.stay);
        Destination::at(u8::from(!is_short))
    }

    fn relocate(&mut self, block: &Moved) -> Destination {
        // From the group of short-lived blocks to the second of the chain: they are as old as those of the first.
        Destination::at(if block.head == 0 { 2 } else { block.head + 1 }.min(self.queues.len() as u8))
    }

    fn choose(&mut self, _: Ticks) -> Option<SegmentNo> {
        let too_long = self.queues.iter().zip(&self.sizes).find(|(queue, size)| queue.len() > **size);
        if let Some((queue, _)) = too_long {
            return queue.oldest();
        }
        let last = self.last.emptiest();
        if last.is_some_and(|segment| self.last.live(segment) < Some(self.segment_blocks)) {
            return last;
        }
        // The last group is empty or has no garbage, so that its segments would be moved for nothing: the garbage is in the
        // queues.
        let ends =
            self.queues.iter().filter_map(|queue| Some((queue.live(queue.oldest()?), queue.len(), queue.oldest()?)));
        let end = ends.min_by_key(|(live, length, _)| (*live, std::cmp::Reverse(*length)));
        end.map(|(_, _, segment)| segment).or(last)
    }

    fn closed(&mut self, segment: &Segment) {
        self.group_of[segment.number as usize] = segment.head;
        match self.queues.get_mut(usize::from(segment.head)) {
            Some(queue) => queue.push(segment.number, segment.live),
            None => self.last.insert(segment.number, segment.live),
        }
    }

    fn died(&mut self, segment: SegmentNo, live: u32) {
        match self.queues.get_mut(usize::from(self.group_of[segment as usize])) {
            Some(queue) => queue.died(segment, live),
            None => self.last.died(segment, live),
        }
    }

    fn cleaned(&mut self, segment: &Segment) {
        match self.queues.get_mut(usize::from(segment.head)) {
            Some(queue) => queue.remove(segment.number),
            None => self.last.remove(segment.number),
        }
        if segment.head == 1 {
            let stay = segment.now - segment.opened;
            self.stay = if self.stay == 0 { stay } else { (self.stay * 15 + stay) / 16 };
        }
    }

    fn known(&self) -> Vec<(SegmentNo, u32)> {
        self.queues.iter().flat_map(Queue::known).chain(self.last.known()).collect()
    }
}
