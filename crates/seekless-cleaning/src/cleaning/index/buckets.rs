//! Segments by the number of their live blocks: the emptiest is found, and a block dies, in constant time.

use super::NONE;
use crate::cleaning::policy::SegmentNo;

/// A list of segments for each number of live blocks.
#[derive(Clone, Debug)]
pub struct Buckets {
    /// The first segment of each list.
    first: Vec<u32>,
    links: Vec<Link>,
    /// No list before this one has a segment.
    lowest: u32,
    count: u32,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
    live: u32,
}

const OUT: Link = Link { before: NONE, after: NONE, live: NONE };

impl Buckets {
    pub fn new(segments: u32, segment_blocks: u32) -> Buckets {
        Buckets {
            first: vec![NONE; segment_blocks as usize + 1],
            links: vec![OUT; segments as usize],
            lowest: segment_blocks,
            count: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn insert(&mut self, segment: SegmentNo, live: u32) {
        assert!(self.links[segment as usize].live == NONE, "P1: a segment is closed once");
        self.count += 1;
        self.push(segment, live);
    }

    pub fn remove(&mut self, segment: SegmentNo) {
        assert!(self.links[segment as usize].live != NONE, "P1: only a closed segment is cleaned");
        self.count -= 1;
        self.unlink(segment);
        self.links[segment as usize] = OUT;
    }

    #[inline]
    pub fn died(&mut self, segment: SegmentNo, live: u32) {
        self.unlink(segment);
        self.push(segment, live);
    }

    /// A segment with the fewest live blocks: the one that came to this number last.
    pub fn emptiest(&mut self) -> Option<SegmentNo> {
        if self.count == 0 {
            return None;
        }
        while self.first[self.lowest as usize] == NONE {
            self.lowest += 1;
        }
        Some(self.first[self.lowest as usize])
    }

    pub fn live(&self, segment: SegmentNo) -> Option<u32> {
        Some(self.links[segment as usize].live).filter(|&live| live != NONE)
    }

    pub fn known(&self) -> Vec<(SegmentNo, u32)> {
        (0..)
            .zip(&self.links)
            .filter(|(_, link)| link.live != NONE)
            .map(|(segment, link)| (segment, link.live))
            .collect()
    }

    #[inline]
    fn push(&mut self, segment: SegmentNo, live: u32) {
        let first = &mut self.first[live as usize];
        let after = std::mem::replace(first, segment);
        self.links[segment as usize] = Link { before: NONE, after, live };
        if after != NONE {
            self.links[after as usize].before = segment;
        }
        self.lowest = self.lowest.min(live);
    }

    #[inline]
    fn unlink(&mut self, segment: SegmentNo) {
        let Link { before, after, live } = self.links[segment as usize];
        match before {
            NONE => self.first[live as usize] = after,
            before => self.links[before as usize].after = after,
        }
        if after != NONE {
            self.links[after as usize].before = before;
        }
    }
}
