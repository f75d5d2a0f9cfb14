//! Segments by live blocks and age: the one with the highest score is found without a look at all of them.
//!
//! A score such as cost-benefit's changes with every moment, so that no order by score lasts. What lasts is that it rises
//! with age and falls with live blocks. So segments are the leaves of a tree of which each node knows the fewest live
//! blocks and the earliest stamp below it: the score of both together is a bound on all scores below, and the search
//! skips a node that cannot beat the best leaf found so far.
//!
//! Leaves are in the order in which segments are closed, nearly that of their stamps, so that the old are together. When
//! the places are used up, the tree is built again in the exact order of stamps.
//!
//! Invariants
//!   A1  `live[n]` and `stamp[n]` of an inner node are the minima of its two children.
//!   A2  A leaf without a segment has `live == NONE`.

use super::NONE;
use crate::cleaning::policy::{SegmentNo, Ticks};

/// Closed segments with the time from which their age counts.
#[derive(Clone, Debug)]
pub struct Ages {
    /// Leaf of each segment, as an index into the leaves.
    place: Vec<u32>,
    /// Segment of each leaf.
    segment: Vec<SegmentNo>,
    /// The tree: node 1 is the root, the children of node n are 2n and 2n+1, and the leaves come last.
    live: Vec<u32>,
    stamp: Vec<Ticks>,
    leaves: usize,
    /// Leaves before this one are taken, or were.
    next: usize,
    count: u32,
    /// For [`Ages::best`].
    open: Vec<(f64, usize)>,
}

impl Ages {
    pub fn new(segments: u32) -> Ages {
        let leaves = (2 * segments as usize).next_power_of_two().max(2);
        Ages {
            place: vec![NONE; segments as usize],
            segment: vec![NONE; leaves],
            live: vec![NONE; 2 * leaves],
            stamp: vec![Ticks::MAX; 2 * leaves],
            leaves,
            next: 0,
            count: 0,
            open: Vec::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a closed segment whose age counts from `stamp`.
    pub fn insert(&mut self, segment: SegmentNo, live: u32, stamp: Ticks) {
        assert!(self.place[segment as usize] == NONE, "P1: a segment is closed once");
        if self.next == self.leaves {
            self.rebuild();
        }
        let leaf = self.next;
        self.next += 1;
        self.count += 1;
        self.place[segment as usize] = leaf as u32;
        self.segment[leaf] = segment;
        let mut node = self.leaves + leaf;
        self.live[node] = live;
        self.stamp[node] = stamp;
        while node > 1 {
            node /= 2;
            self.live[node] = self.live[2 * node].min(self.live[2 * node + 1]);
            self.stamp[node] = self.stamp[2 * node].min(self.stamp[2 * node + 1]);
        }
    }

    pub fn remove(&mut self, segment: SegmentNo) {
        let leaf = std::mem::replace(&mut self.place[segment as usize], NONE);
        assert!(leaf != NONE, "P1: only a closed segment is cleaned");
        self.count -= 1;
        let node = self.leaves + leaf as usize;
        self.stamp[node] = Ticks::MAX;
        let mut above = node / 2;
        while above > 0 {
            let earliest = self.stamp[2 * above].min(self.stamp[2 * above + 1]);
            if self.stamp[above] == earliest {
                break;
            }
            self.stamp[above] = earliest;
            above /= 2;
        }
        self.set_live(node, NONE);
    }

    #[inline]
    pub fn died(&mut self, segment: SegmentNo, live: u32) {
        let leaf = self.place[segment as usize] as usize;
        self.set_live(self.leaves + leaf, live);
    }

    #[inline]
    fn set_live(&mut self, mut node: usize, live: u32) {
        self.live[node] = live;
        while node > 1 {
            let fewest = self.live[node].min(self.live[node ^ 1]);
            node /= 2;
            // Most deaths stop here: the segment's neighbour has fewer live blocks.
            if self.live[node] == fewest {
                break;
            }
            self.live[node] = fewest;
        }
    }

    /// The segment with the highest score; of equal ones the oldest. `score` takes live blocks and age, falls with the
    /// former and rises with the latter, and is not negative.
    pub fn best(&mut self, now: Ticks, score: impl Fn(u32, Ticks) -> f64) -> Option<SegmentNo> {
        self.best_with_score(now, score).map(|(_, segment)| segment)
    }

    /// As [`Ages::best`], with its score.
    pub fn best_with_score(&mut self, now: Ticks, score: impl Fn(u32, Ticks) -> f64) -> Option<(f64, SegmentNo)> {
        if self.count == 0 {
            return None;
        }
        let (live, stamp) = (&self.live, &self.stamp);
        let bound = |node: usize| match live[node] {
            NONE => -1.0,
            live => score(live, now.saturating_sub(stamp[node])),
        };
        let mut best = (-1.0, usize::MAX);
        self.open.clear();
        self.open.push((bound(1), 1));
        while let Some((most, mut node)) = self.open.pop() {
            if most < best.0 || most == best.0 && node > best.1 {
                continue;
            }
            let mut most = most;
            while node < self.leaves {
                // The better child first, so that more is skipped later.
                let (left, right) = ((bound(2 * node), 2 * node), (bound(2 * node + 1), 2 * node + 1));
                let (first, second) = if left.0 >= right.0 { (left, right) } else { (right, left) };
                if second.0 >= best.0 && second.0 >= 0.0 {
                    self.open.push(second);
                }
                (most, node) = first;
                if most < best.0 {
                    break;
                }
            }
            if node >= self.leaves && (most > best.0 || most == best.0 && node < best.1) {
                best = (most, node);
            }
        }
        let segment = self.segment.get(best.1.wrapping_sub(self.leaves))?;
        Some((best.0, *segment))
    }

    pub fn live(&self, segment: SegmentNo) -> u32 {
        self.live[self.leaves + self.place[segment as usize] as usize]
    }

    pub fn known(&self) -> Vec<(SegmentNo, u32)> {
        let places = (0..).zip(&self.place).filter(|(_, place)| **place != NONE);
        places.map(|(segment, place)| (segment, self.live[self.leaves + *place as usize])).collect()
    }

    /// Puts all segments into the first leaves, the earliest stamp first. As there are at least twice as many leaves as
    /// segments, this comes once for as many closed segments as there are.
    fn rebuild(&mut self) {
        let used = self.leaves..self.leaves + self.next;
        let mut all: Vec<(Ticks, u32, SegmentNo)> = used
            .filter(|node| self.live[*node] != NONE)
            .map(|node| (self.stamp[node], self.live[node], self.segment[node - self.leaves]))
            .collect();
        all.sort_by_key(|(stamp, ..)| *stamp);
        self.live.fill(NONE);
        self.stamp.fill(Ticks::MAX);
        for (leaf, (stamp, live, segment)) in all.iter().enumerate() {
            self.place[*segment as usize] = leaf as u32;
            self.segment[leaf] = *segment;
            self.live[self.leaves + leaf] = *live;
            self.stamp[self.leaves + leaf] = *stamp;
        }
        for node in (1..self.leaves).rev() {
            self.live[node] = self.live[2 * node].min(self.live[2 * node + 1]);
            self.stamp[node] = self.stamp[2 * node].min(self.stamp[2 * node + 1]);
        }
        self.next = all.len();
        assert!(self.next < self.leaves, "A2: half of the leaves are free after a rebuild");
    }
}
