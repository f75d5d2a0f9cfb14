//! Which span is in which slot, and which zones are empty: the books of a store, without any access to the device.

use std::collections::{BTreeMap, BTreeSet};

use super::format::{Change, METADATA_ZONES, NO_SLOT, OPEN};
use super::layout::Layout;
use super::metadata::State;

/// The zone to which users write, and the one to which spans are moved.
pub(super) const USER: usize = 0;
pub(super) const MOVED: usize = 1;

/// A zone that is being written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub(super) zone: u32,
    /// Sectors that were written.
    pub(super) pointer: u64,
}

#[derive(Debug)]
pub(super) struct Room {
    layout: Layout,
    /// The slot of each span.
    map: Vec<u32>,
    /// Sectors of each span that were written.
    lengths: Vec<u64>,
    owners: BTreeMap<u32, u32>,
    /// Spans that do not continue where they are, though they are not full: others follow in their zone.
    sealed: BTreeSet<u32>,
    /// Slots into which spans are being copied: theirs when the copies are durable.
    filling: BTreeSet<u32>,
    pub(super) heads: [Option<Head>; 2],
    /// Zones that are empty, durably (Z2).
    pub(super) free: BTreeSet<u32>,
    /// Fixed blocks that were ever written.
    pub(super) blocks: BTreeMap<u32, Box<[u8]>>,
    /// Zones reset so far: a read during which one was reset may have read the wrong thing.
    pub(super) resets: u64,
}

impl Room {
    /// The books of a store; how far spans are written is not known yet.
    pub(super) fn new(layout: Layout, map: Vec<u32>, blocks: BTreeMap<u32, Box<[u8]>>) -> Room {
        let used = map.iter().enumerate().filter(|(_, slot)| **slot != NO_SLOT);
        Room {
            layout,
            owners: used.map(|(span, &slot)| (slot, span as u32)).collect(),
            lengths: vec![0; map.len()],
            map,
            sealed: BTreeSet::new(),
            filling: BTreeSet::new(),
            heads: [None; 2],
            free: BTreeSet::new(),
            blocks,
            resets: 0,
        }
    }

    /// The slot of a span, if it has one, and how many of its sectors were written.
    pub(super) fn slot_of(&self, span: u32) -> Option<(u32, u64)> {
        let slot = self.map[span as usize];
        (slot != NO_SLOT).then(|| (slot, self.lengths[span as usize]))
    }

    pub(super) fn length(&self, span: u32) -> u64 {
        self.lengths[span as usize]
    }

    pub(super) fn set_length(&mut self, span: u32, sectors: u64) {
        assert!(sectors <= self.layout.span_sectors, "a span holds no more than its size");
        debug_assert!(sectors == 0 || self.map[span as usize] != NO_SLOT, "a span that is nowhere has no length");
        self.lengths[span as usize] = sectors;
    }

    /// `span` is in `slot` from now on, or in none, with `length` sectors.
    pub(super) fn assign(&mut self, span: u32, slot: u32, length: u64) -> Change {
        let before = std::mem::replace(&mut self.map[span as usize], slot);
        if before != NO_SLOT {
            let owner = self.owners.remove(&before);
            debug_assert_eq!(owner, Some(span), "a slot knows the span that it holds");
        }
        if slot != NO_SLOT {
            let other = self.owners.insert(slot, span);
            assert!(other.is_none(), "a slot holds one span");
        }
        self.sealed.remove(&span);
        self.set_length(span, length);
        if slot != NO_SLOT && length < self.layout.span_sectors && self.head_of(span).is_none() {
            self.sealed.insert(span);
        }
        self.change(span)
    }

    /// What a record says of a span.
    fn change(&self, span: u32) -> Change {
        let sectors = if self.sealed.contains(&span) { self.length(span) as u32 } else { OPEN };
        Change { span, slot: self.map[span as usize], sectors }
    }

    /// `span` does not continue where it is, and has this length at most.
    pub(super) fn seal(&mut self, span: u32, length_max: u64) {
        debug_assert_ne!(self.map[span as usize], NO_SLOT, "a span that ends early is somewhere");
        self.set_length(span, self.length(span).min(length_max));
        self.sealed.insert(span);
    }

    /// `span` continues where it is; returns what is to be recorded when a record says otherwise.
    pub(super) fn unseal(&mut self, span: u32) -> Option<Change> {
        debug_assert!(self.head_of(span).is_some(), "Z5: a span goes on at a write pointer");
        self.sealed.remove(&span).then(|| self.change(span))
    }

    /// Seals the spans of `zone` in slots before `next`; returns what is to be recorded.
    pub(super) fn seal_before(&mut self, zone: u32, next: Option<u32>) -> Vec<Change> {
        let is_short = |&span: &u32| {
            let before = next.is_none_or(|next| self.map[span as usize] < next);
            before && self.length(span) < self.layout.span_sectors && !self.sealed.contains(&span)
        };
        let spans: Vec<u32> = self.spans_in(zone).into_iter().filter(is_short).collect();
        self.sealed.extend(&spans);
        spans.into_iter().map(|span| self.change(span)).collect()
    }

    /// The spans in `zone`, in the order of their slots.
    pub(super) fn spans_in(&self, zone: u32) -> Vec<u32> {
        let (first, next) = (self.layout.slot(zone, 0), self.layout.slot(zone, self.layout.zone_slots()));
        self.owners.range(first..next).map(|(_, span)| *span).collect()
    }

    /// Something is in the zone, or is being copied there.
    pub(super) fn is_used(&self, zone: u32) -> bool {
        let slots = self.layout.slot(zone, 0)..self.layout.slot(zone, self.layout.zone_slots());
        self.owners.range(slots.clone()).next().is_some() || self.filling.range(slots).next().is_some()
    }

    /// A span is being copied to `slot`.
    pub(super) fn fill(&mut self, slot: u32) {
        assert!(!self.owners.contains_key(&slot), "a slot holds one span");
        let is_new = self.filling.insert(slot);
        debug_assert!(is_new, "one span is copied to a slot");
    }

    /// Nothing is being copied any more.
    pub(super) fn filled(&mut self) {
        self.filling.clear();
    }

    fn is_in(&self, slot: u32, zone: u32) -> bool {
        self.layout.slot_place(slot).0 == zone
    }

    pub(super) fn zones(&self) -> impl Iterator<Item = u32> + use<> {
        METADATA_ZONES..self.layout.zones.count
    }

    pub(super) fn is_head(&self, zone: u32) -> bool {
        self.heads.iter().flatten().any(|head| head.zone == zone)
    }

    /// The head at whose write pointer `span` continues.
    pub(super) fn head_of(&self, span: u32) -> Option<usize> {
        let (slot, length) = self.slot_of(span)?;
        let (zone, offset) = self.layout.slot_place(slot);
        let goes_on = |head: &Option<Head>| *head == Some(Head { zone, pointer: offset + length });
        self.heads.iter().position(goes_on)
    }

    /// The slot that begins next in the zone of a head, if it has one more.
    pub(super) fn next_slot(&self, head: usize) -> Option<u32> {
        let Head { zone, pointer } = self.heads[head]?;
        let first = pointer.div_ceil(self.layout.span_sectors);
        // After a power cut, slots that were taken may not have been reached.
        let mut slots = (first..self.layout.zone_slots()).map(|index| self.layout.slot(zone, index));
        let next =
            slots.find(|slot| self.owners.range(slot..).next().is_none_or(|(owned, _)| !self.is_in(*owned, zone)));
        debug_assert!(
            next.is_none_or(|next| !self.filling.contains(&next)),
            "a slot that begins is not one that is being filled"
        );
        next
    }

    /// Zones that hold no span and were written since their last reset.
    pub(super) fn dead(&self) -> Vec<u32> {
        let is_dead = |&zone: &u32| !self.free.contains(&zone) && !self.is_head(zone) && !self.is_used(zone);
        self.zones().filter(is_dead).collect()
    }

    /// The zone with the fewest spans among those that have a slot to gain.
    pub(super) fn victim(&self) -> Option<u32> {
        let candidates = self.zones().filter(|&zone| !self.free.contains(&zone) && !self.is_head(zone));
        let counted = candidates.map(|zone| (self.spans_in(zone).len() as u64, zone));
        counted.filter(|(spans, _)| *spans < self.layout.zone_slots()).min().map(|(_, zone)| zone)
    }

    /// Everything, for a snapshot.
    pub(super) fn state(&self) -> State {
        let used = self.map.iter().enumerate().filter(|(_, slot)| **slot != NO_SLOT);
        State {
            changes: used.map(|(span, _)| self.change(span as u32)).collect(),
            blocks: self.blocks.iter().map(|(number, content)| (*number, content.clone())).collect(),
        }
    }

    /// Recounts everything from scratch.
    #[cfg(test)]
    pub(super) fn check(&self) {
        for (span, &slot) in self.map.iter().enumerate() {
            assert!(slot == NO_SLOT || self.owners.get(&slot) == Some(&(span as u32)), "span {span}");
            assert!(slot != NO_SLOT || self.lengths[span] == 0, "span {span} is nowhere and has a length");
            assert!(slot != NO_SLOT || !self.sealed.contains(&(span as u32)), "span {span} is nowhere and sealed");
        }
        assert!(self.filling.is_empty(), "nothing is being copied between two requests");
        assert_eq!(self.owners.len(), self.map.iter().filter(|slot| **slot != NO_SLOT).count());
        for &zone in &self.free {
            assert!(!self.is_used(zone) && !self.is_head(zone), "zone {zone} is not free");
        }
        let [user, moved] = self.heads.map(|head| head.map(|head| head.zone));
        assert!(user.is_none() || user != moved, "two heads in one zone");
    }
}
