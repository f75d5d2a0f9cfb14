//! A log for each frequency of writes, after Stoica and Ailamaki (VLDB 2013): each log is cleaned greedily by itself, and
//! the free space is divided among the logs in the way that makes all of them together cheapest.
//!
//! A block that is written at an interval goes one log nearer to the log of that interval, so that one short interval of
//! a cold block does not make it hot. A block that is older than its log's intervals when it is moved becomes colder.
//!
//! A log with `L` live blocks, a share `f` of all writes and `x` spare blocks costs about `f L / (2 x)`. The sum is least
//! when each `x` is in proportion to the root of `f L`. The victim is the emptiest segment of the log that has most spare
//! space in that proportion.

use super::{Made, Options};
use crate::cleaning::index::Buckets;
use crate::cleaning::policy::{Destination, Fresh, Moved, Needs, Policy, Segment, SegmentNo, Shape, Ticks};
use crate::cleaning::words::Key;

pub(super) const KEYS: &[Key] =
    &[Key::new("logs", "6", "how many logs"), Key::new("ratio", "4", "between the intervals of one log and the next")];

struct IntervalLog {
    buckets: Buckets,
    segments: u64,
    live: u64,
    /// Blocks that the user wrote to it lately.
    writes: f64,
}

pub(super) struct MultiLog {
    logs: Vec<IntervalLog>,
    /// The longest interval of each log but the last.
    intervals: Vec<Ticks>,
    log_of: Vec<u8>,
    segment_blocks: u64,
    /// Writes until what was written lately counts half.
    half_life: u64,
    left: u64,
}

impl Made for MultiLog {
    fn make(options: &Options, shape: &Shape) -> Result<MultiLog, String> {
        let count: u8 = options.number("logs", 2, 32)?;
        let ratio = options.number("ratio", 1.1, 100.0)?;
        // The last log but one has intervals up to the mean of all blocks.
        let interval =
            |log: u8| (shape.live_blocks as f64 * f64::powi(ratio, i32::from(log) + 2 - i32::from(count))) as Ticks;
        let log = |_| {
            let buckets = Buckets::new(shape.segments, shape.segment_blocks);
            IntervalLog { buckets, segments: 0, live: 0, writes: 0.0 }
        };
        Ok(MultiLog {
            logs: (0..count).map(log).collect(),
            intervals: (0..count - 1).map(interval).collect(),
            log_of: vec![0; shape.segments as usize],
            segment_blocks: shape.segment_blocks.into(),
            half_life: shape.live_blocks.max(1),
            left: shape.live_blocks.max(1),
        })
    }
}

impl MultiLog {
    fn log_for(&self, interval: Ticks) -> u8 {
        self.intervals.partition_point(|longest| *longest < interval) as u8
    }

    fn place(log: u8) -> Destination {
        Destination { head: log, note: log.into() }
    }
}

impl Policy for MultiLog {
    fn heads(&self) -> u8 {
        self.logs.len() as u8
    }

    fn needs(&self) -> Needs {
        Needs { times: true, notes: true, future: false }
    }

    fn write(&mut self, block: &Fresh) -> Destination {
        let log = match block.before {
            None => self.logs.len() as u8 - 1,
            Some(before) => {
                let (was, wanted) = (before.note as u8, self.log_for(block.now - before.written));
                if wanted > was { was + 1 } else { was - u8::from(wanted < was) }
            }
        };
        self.logs[usize::from(log)].writes += 1.0;
        self.left -= 1;
        if self.left == 0 {
            self.left = self.half_life;
            self.logs.iter_mut().for_each(|log| log.writes /= 2.0);
        }
        MultiLog::place(log)
    }

    fn relocate(&mut self, block: &Moved) -> Destination {
        let was = block.note as u8;
        let colder =
            self.intervals.get(usize::from(was)).is_some_and(|longest| block.now - block.written > 2 * longest);
        MultiLog::place(was + u8::from(colder))
    }

    fn choose(&mut self, _: Ticks) -> Option<SegmentNo> {
        let blocks = self.segment_blocks;
        let has_dead = |log: &&mut IntervalLog| !log.buckets.is_empty() && log.live < log.segments * blocks;
        let surplus = |log: &IntervalLog| {
            let spare = (log.segments * blocks - log.live) as f64;
            spare / ((log.writes + 1.0) * (log.live + 1) as f64).sqrt()
        };
        let logs = self.logs.iter_mut().filter(has_dead);
        let fullest = logs.reduce(|one, two| if surplus(two) > surplus(one) { two } else { one });
        match fullest {
            Some(log) => log.buckets.emptiest(),
            None => self.logs.iter_mut().find_map(|log| log.buckets.emptiest()),
        }
    }

    fn closed(&mut self, segment: &Segment) {
        self.log_of[segment.number as usize] = segment.head;
        let log = &mut self.logs[usize::from(segment.head)];
        log.buckets.insert(segment.number, segment.live);
        log.segments += 1;
        log.live += u64::from(segment.live);
    }

    fn died(&mut self, segment: SegmentNo, live: u32) {
        let log = &mut self.logs[usize::from(self.log_of[segment as usize])];
        log.buckets.died(segment, live);
        log.live -= 1;
    }

    fn cleaned(&mut self, segment: &Segment) {
        let log = &mut self.logs[usize::from(segment.head)];
        log.buckets.remove(segment.number);
        log.segments -= 1;
        log.live -= u64::from(segment.live);
    }

    fn known(&self) -> Vec<(SegmentNo, u32)> {
        self.logs.iter().flat_map(|log| log.buckets.known()).collect()
    }
}
