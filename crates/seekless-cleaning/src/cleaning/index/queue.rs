//! Segments in the order in which they were closed; any of them can leave.

use super::NONE;
use crate::cleaning::policy::SegmentNo;

/// A linked list of segments, oldest first.
#[derive(Clone, Debug)]
pub struct Queue {
    first: u32,
    last: u32,
    count: u32,
    links: Vec<(u32, u32)>,
    live: Vec<u32>,
}

impl Queue {
    pub fn new(segments: u32) -> Queue {
        let links = vec![(NONE, NONE); segments as usize];
        Queue { first: NONE, last: NONE, count: 0, links, live: vec![NONE; segments as usize] }
    }

    pub fn len(&self) -> u32 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn contains(&self, segment: SegmentNo) -> bool {
        self.live[segment as usize] != NONE
    }

    pub fn push(&mut self, segment: SegmentNo, live: u32) {
        assert!(!self.contains(segment), "P1: a segment is closed once");
        self.live[segment as usize] = live;
        self.links[segment as usize] = (self.last, NONE);
        match self.last {
            NONE => self.first = segment,
            last => self.links[last as usize].1 = segment,
        }
        self.last = segment;
        self.count += 1;
    }

    pub fn remove(&mut self, segment: SegmentNo) {
        assert!(self.contains(segment), "P1: only a closed segment is cleaned");
        self.live[segment as usize] = NONE;
        let (before, after) = self.links[segment as usize];
        match before {
            NONE => self.first = after,
            before => self.links[before as usize].1 = after,
        }
        match after {
            NONE => self.last = before,
            after => self.links[after as usize].0 = before,
        }
        self.count -= 1;
    }

    #[inline]
    pub fn died(&mut self, segment: SegmentNo, live: u32) {
        self.live[segment as usize] = live;
    }

    pub fn oldest(&self) -> Option<SegmentNo> {
        (self.first != NONE).then_some(self.first)
    }

    pub fn live(&self, segment: SegmentNo) -> u32 {
        self.live[segment as usize]
    }

    pub fn known(&self) -> Vec<(SegmentNo, u32)> {
        (0..).zip(&self.live).filter(|(_, live)| **live != NONE).map(|(segment, live)| (segment, *live)).collect()
    }
}
