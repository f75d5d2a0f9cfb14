//! Segments in no order, from which one can be drawn.

use crate::rng::Rng;

use super::NONE;
use crate::cleaning::policy::SegmentNo;

/// A set of segments, each with its live blocks.
#[derive(Clone, Debug)]
pub struct Set {
    all: Vec<SegmentNo>,
    place: Vec<u32>,
    live: Vec<u32>,
}

impl Set {
    pub fn new(segments: u32) -> Set {
        let count = segments as usize;
        Set { all: Vec::with_capacity(count), place: vec![NONE; count], live: vec![0; count] }
    }

    pub fn insert(&mut self, segment: SegmentNo, live: u32) {
        assert!(self.place[segment as usize] == NONE, "P1: a segment is closed once");
        self.place[segment as usize] = self.all.len() as u32;
        self.live[segment as usize] = live;
        self.all.push(segment);
    }

    pub fn remove(&mut self, segment: SegmentNo) {
        let place = std::mem::replace(&mut self.place[segment as usize], NONE);
        assert!(place != NONE, "P1: only a closed segment is cleaned");
        self.all.swap_remove(place as usize);
        if let Some(moved) = self.all.get(place as usize) {
            self.place[*moved as usize] = place;
        }
    }

    #[inline]
    pub fn died(&mut self, segment: SegmentNo, live: u32) {
        self.live[segment as usize] = live;
    }

    /// The emptiest of `draws` segments, each drawn from all.
    pub fn emptiest_of(&self, draws: u32, rng: &mut Rng) -> Option<SegmentNo> {
        if self.all.is_empty() {
            return None;
        }
        (0..draws).map(|_| *rng.pick(&self.all)).min_by_key(|segment| self.live[*segment as usize])
    }

    pub fn known(&self) -> Vec<(SegmentNo, u32)> {
        self.all.iter().map(|segment| (*segment, self.live[*segment as usize])).collect()
    }
}
