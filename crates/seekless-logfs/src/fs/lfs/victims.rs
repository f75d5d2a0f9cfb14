//! Which segment is cleaned next: a policy of the room `cleaning`, the same code that its simulator runs, which is
//! informed of what happens to the segments of this log.
//!
//! A block of the policy is here 256 bytes, the smallest thing that can be alive, and its time is in nanoseconds since
//! 1970. The log keeps the time of each block of data and no note, so policies that need notes are not offered. The times
//! at which a segment was begun and left are not on the volume: a mount takes its own time for both, so that all segments
//! are of an age at first.
//!
//! Invariants
//!   K1  The policy knows, with their live bytes, exactly the segments that could be cleaned: something is alive in them,
//!       the log has left them, what was written to them has reached the device, they have not been cleaned since the
//!       last checkpoint, and less is alive in them than when nothing of them could be moved.

use std::collections::BTreeSet;

use super::format::Inode;
use super::layout::{Layout, SegmentNo};
use crate::cleaning::PolicySpec;
use crate::cleaning::index::Buckets;
use crate::cleaning::policy::{self, Order, Policy, Shape, Ticks};

/// A policy that a mounted log can have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CleanerPolicy {
    pub name: &'static str,
    /// The policy as `seekless clean` takes it.
    pub line: &'static str,
    pub pace: CleaningPace,
}

/// When a mounted log is cleaned, and how much at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CleaningPace {
    /// When clean segments run short, a slice at a time.
    Late,
    /// From the moment on when less than half of the free space is in clean segments, one segment at a time, as the cleaner
    /// of 4.4BSD does on a busy system.
    Early,
}

/// Every policy of a mounted log.
pub const CLEANERS: &[CleanerPolicy] = &[
    CleanerPolicy::late("fifo", "fifo"),
    CleanerPolicy::GREEDY,
    CleanerPolicy::late("d-choices", "d-choices"),
    CleanerPolicy::COST_BENEFIT,
    CleanerPolicy::late("cost-benefit-root", "cost-benefit:age=root"),
    CleanerPolicy::late("cost-benefit-youngest", "cost-benefit:age=youngest"),
    CleanerPolicy::AGE_SORT,
    CleanerPolicy::late("age-sort-root", "age-sort:age=root"),
    CleanerPolicy::late("age-sort-youngest", "age-sort:age=youngest"),
    CleanerPolicy::late("age-sort-greedy", "age-sort:select=greedy"),
    CleanerPolicy::BSD,
];

/// The names of [`CLEANERS`].
pub const CLEANER_NAMES: [&str; CLEANERS.len()] = {
    let mut names = [""; CLEANERS.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = CLEANERS[index].name;
        index += 1;
    }
    names
};

impl CleanerPolicy {
    /// The segment with the least live data.
    pub const GREEDY: CleanerPolicy = CleanerPolicy::late("greedy", "greedy");
    /// The segment with the most to gain: free space times its age, divided by the cost of moving.
    pub const COST_BENEFIT: CleanerPolicy = CleanerPolicy::late("cost-benefit", "cost-benefit");

    /// The same, and what is moved is sorted by when users wrote it.
    pub const AGE_SORT: CleanerPolicy = CleanerPolicy::late("age-sort", "age-sort");

    /// The cleaner of BSD-LFS ([se93 §4], 4.4BSD's `lfs_cleanerd`): cost-benefit, and what is moved goes to the log as it
    /// was found. There, blocks that die make their segment younger, too; here, only writing does.
    pub const BSD: CleanerPolicy =
        CleanerPolicy { pace: CleaningPace::Early, ..CleanerPolicy::late("bsd", "cost-benefit") };

    const fn late(name: &'static str, line: &'static str) -> CleanerPolicy {
        CleanerPolicy { name, line, pace: CleaningPace::Late }
    }

    pub fn named(name: &str) -> Option<CleanerPolicy> {
        CLEANERS.iter().find(|cleaner| cleaner.name == name).copied()
    }
}

impl Default for CleanerPolicy {
    fn default() -> CleanerPolicy {
        CleanerPolicy::AGE_SORT
    }
}

/// Live bytes of a block of the policy.
const UNIT_BYTES: u64 = Inode::BYTES as u64;

/// The segments that can be cleaned.
pub(super) struct Victims {
    policy: Box<dyn Policy>,
    /// The same segments, for when room is short and only room counts.
    emptiest: Buckets,
    /// Segments that the log has left, or that a checkpoint may have made worth cleaning again.
    leaving: BTreeSet<SegmentNo>,
    now: Ticks,
}

impl Victims {
    pub(super) fn new(cleaner: CleanerPolicy, layout: &Layout, live_bytes: u64) -> Victims {
        let shape = Shape {
            segments: layout.segment_count() as u32,
            segments_used: layout.segment_count() as u32,
            segment_blocks: (layout.segment_bytes() / UNIT_BYTES) as u32,
            live_blocks: live_bytes / UNIT_BYTES,
            seed: layout.superblock.hash_key[0],
        };
        let made = PolicySpec::parse(cleaner.line).and_then(|(spec, options)| spec.make(&options, &shape));
        let Ok(policy) = made else { unreachable!("a policy of the table, which a test makes") };
        let emptiest = Buckets::new(shape.segments, shape.segment_blocks);
        Victims { policy, emptiest, leaving: BTreeSet::new(), now: 0 }
    }

    /// Sets the clock, which never goes back.
    pub(super) fn set_now(&mut self, nanos_since_epoch: i128) {
        self.now = self.now.max(nanos_since_epoch.clamp(0, i128::from(i64::MAX)) as Ticks);
    }

    pub(super) fn now(&self) -> Ticks {
        self.now
    }

    /// Whether moved blocks are sorted by age.
    pub(super) fn sorts(&self) -> bool {
        self.policy.order() == Order::Age
    }

    pub(super) fn knows(&self, segment: SegmentNo) -> bool {
        self.emptiest.live(segment as u32).is_some()
    }

    /// The log has left `segment`: it can be cleaned once what was written to it has reached the device.
    pub(super) fn left(&mut self, segment: SegmentNo) {
        debug_assert!(!self.knows(segment), "K1: a segment that the policy knows is not written to");
        self.leaving.insert(segment);
    }

    /// The log begins to write `segment`, in which nothing is alive.
    pub(super) fn taken(&mut self, segment: SegmentNo) {
        debug_assert!(!self.knows(segment), "K1: a segment that the policy knows is not written to");
        self.leaving.remove(&segment);
    }

    /// The segments to look at in [`Victims::settle`].
    pub(super) fn leaving(&self) -> Vec<SegmentNo> {
        self.leaving.iter().copied().collect()
    }

    /// `segment`, which the log has left, can be cleaned from now on, unless nothing in it is alive.
    pub(super) fn settle(&mut self, segment: &policy::Segment) {
        self.leaving.remove(&segment.number.into());
        debug_assert!(!self.knows(segment.number.into()), "K1: a segment is closed once before it is cleaned");
        if segment.live > 0 {
            self.policy.closed(segment);
            self.emptiest.insert(segment.number, segment.live);
        }
    }

    /// Something in `segment` is no longer alive.
    pub(super) fn died(&mut self, segment: &policy::Segment) {
        if !self.knows(segment.number.into()) {
            return;
        }
        debug_assert!(
            self.emptiest.live(segment.number).is_some_and(|live| segment.live <= live),
            "K1: a segment gets no fuller before it is cleaned"
        );
        self.policy.died(segment.number, segment.live);
        self.emptiest.died(segment.number, segment.live);
        if segment.live == 0 {
            self.cleaned(segment);
        }
    }

    /// The best victim, or where `room_is_short` the one that makes the most room.
    pub(super) fn choose(&mut self, room_is_short: bool) -> Option<SegmentNo> {
        let chosen = match room_is_short {
            true => None,
            false => self.policy.choose(self.now),
        };
        let chosen = chosen.or_else(|| self.emptiest.emptiest()).map(SegmentNo::from);
        debug_assert!(
            chosen.is_none_or(|segment| self.knows(segment)),
            "K1: a victim is one of those that can be cleaned"
        );
        chosen
    }

    /// `segment` is being cleaned, or nothing in it is alive any more.
    pub(super) fn cleaned(&mut self, segment: &policy::Segment) {
        self.policy.cleaned(segment);
        self.emptiest.remove(segment.number);
    }

    /// The segments that the policy knows and their live bytes, after a comparison with those of which the emptiest is
    /// found. For checks.
    pub(super) fn known(&self) -> Result<Vec<(SegmentNo, u64)>, &'static str> {
        let (mut theirs, ours) = (self.policy.known(), self.emptiest.known());
        theirs.sort_unstable();
        match theirs == ours {
            true => Ok(ours.into_iter().map(|(number, live)| (number.into(), u64::from(live) * UNIT_BYTES)).collect()),
            false => Err("the policy knows other segments than the index of the emptiest"),
        }
    }
}

/// Bytes as blocks of the policy.
pub(super) fn blocks(bytes: u64) -> u32 {
    bytes.div_ceil(UNIT_BYTES) as u32
}
