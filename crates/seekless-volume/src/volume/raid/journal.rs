//! The journal: upcoming writes to rows that lack a data unit.
//!
//! Where a member is missing, its unit exists only as the difference between the others and the parity. If the power
//! fails between writing one and the other, the missing unit becomes garbage: the write hole. So all writes to such a
//! row are first written to the journal as a whole; after a power cut they are replayed.
//!
//! The journal is a ring at the same place of every member. A record is on one member of a degraded array, which
//! tolerates no further failure anyway, and on two of a complete one.
//!
//! Invariants
//!   J1  Records are written one after the other, and their numbers have no gaps from the place where reading begins: when
//!       one is written, all before it are durable. So reading ends at the first missing one.
//!   J2  The writes of a record begin once it is durable.
//!   J3  A record is overwritten only when its writes are durable and the superblocks say that reading begins after it.
//!   J4  As long as a record can be read again, so can every later one about the same rows; so replaying all of them in
//!       order leaves the newest content. This also holds for rows that need no journal any more because other members
//!       are there: they go through it as long as a record is kept from before.
//!   J5  A record that was not written to all of its members is made unreadable before there is another one, and before
//!       its rows can be written without the journal. Its number is used again, and the next record may be elsewhere. So is
//!       one that a power cut left in part, when the array is opened and records before it are kept.
//!   J6  A record is written, and reading begins later, only while the superblocks say what the members are. If the power
//!       failed, a member whose failure is not recorded would be trusted: so what it may lack is in a record, with its
//!       own units, and no number is used again that it may have for another record.
//!   J7  Before a record is written, its members have space for its writes, as far as they can tell; without that, the caller is
//!       refused instead. A record is kept when a member had no space nevertheless, and after a power cut that took what was
//!       provisioned. A kept record does not hold up the ring: what is still to be done of it is written again as a newer one.
//!   J8  What a record writes replaces what is deferred of the same sectors as soon as the record is durable. So what is written
//!       again of a kept record is in no record in between.

mod append;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::request::MemberWrite;
use crate::device::{Buf, Data, Device};
use crate::rt::{Event, Gate};
use crate::units::{SECTOR_BYTES, Sector};
use crate::volume::format::{BLOCK_SECTORS, KIND_DATA, KIND_ZEROES, RecordHead};
use crate::volume::members::bytes;

#[derive(Default)]
pub(super) struct Journal {
    state: RefCell<JournalState>,
    gate: Gate,
    /// A record's writes have ended.
    ended: Event,
}

/// A place in the journal: a record's number, and its first sector in the ring.
type JournalPosition = (u64, u64);

#[derive(Default)]
struct JournalState {
    next: JournalPosition,
    /// Where reading begins, according to the superblocks.
    tail: JournalPosition,
    /// The record with the tail's number is at the start of the ring and reaches beyond the tail's place: the number.
    wrapped_past_tail: Option<u64>,
    /// Records whose writes are under way, or have failed so far.
    open: BTreeMap<u64, u64>,
    /// Of these, the ones that failed with `NoSpace`.
    kept: BTreeSet<u64>,
    /// Until reading begins at this record or later, every row is written through the journal (J4): when what is recorded
    /// of the members changed last, records before it were kept.
    carried: u64,
    /// Where a record is that could not be written, and members that may have it nevertheless (J5).
    stale: (u64, Vec<usize>),
}

/// A record whose writes are under way.
pub(super) struct Open<'a> {
    journal: &'a Journal,
    sequence: u64,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let mut state = self.journal.state.borrow_mut();
        if !state.kept.contains(&self.sequence) {
            let position = state.open.remove(&self.sequence);
            debug_assert!(position.is_some(), "J3: a record is needed until its writes end");
        }
        drop(state);
        self.journal.ended.notify();
    }
}

impl Open<'_> {
    /// The writes of the record failed: it is kept until [`Journal::done`].
    pub(super) fn keep(self) -> u64 {
        let mut state = self.journal.state.borrow_mut();
        debug_assert!(state.open.contains_key(&self.sequence), "J3: what is kept is still needed");
        state.kept.insert(self.sequence);
        drop(state);
        self.sequence
    }
}

impl Journal {
    /// The superblocks say that reading begins at `tail`; the next record is to be `next`.
    pub(super) fn new(tail: JournalPosition, next: JournalPosition) -> Journal {
        let state = JournalState { next, tail, ..JournalState::default() };
        Journal { state: RefCell::new(state), ..Journal::default() }
    }

    /// Leaves out a number, where reading is to begin behind it.
    pub(super) fn skip_number(&self) {
        self.state.borrow_mut().next.0 += 1;
    }

    /// The writes of a kept record have been done.
    pub(super) fn done(&self, sequence: u64) {
        let mut state = self.state.borrow_mut();
        let was_kept = state.kept.remove(&sequence);
        debug_assert!(was_kept, "J3: only a record that is kept is done later");
        state.open.remove(&sequence);
        drop(state);
        self.ended.notify();
    }

    pub(super) fn tail(&self) -> JournalPosition {
        self.state.borrow().tail
    }

    /// Sets the place where reading begins, according to the superblocks.
    pub(super) fn set_tail(&self, tail: JournalPosition) {
        let mut state = self.state.borrow_mut();
        debug_assert!(tail.0 >= state.tail.0, "J3: reading never begins at what may have been written over");
        debug_assert!(tail.0 <= state.oldest().0, "J3: what is still needed is read");
        state.tail = tail;
    }

    /// Drops all records except kept ones. No write is under way and everything is durable, so they are not needed.
    pub(super) fn forget_all(&self) {
        let mut state = self.state.borrow_mut();
        debug_assert!(state.oldest().0 >= state.tail.0, "J3: reading never begins at what may have been written over");
        debug_assert!(
            state.open.keys().all(|sequence| state.kept.contains(sequence)),
            "A2: no write of a record is under way"
        );
        state.tail = state.oldest();
        state.carried = if state.tail.0 < state.next.0 { state.next.0 } else { 0 };
    }

    /// The superblocks that say where reading begins are durable.
    pub(super) fn tail_is_durable(&self) {
        let mut state = self.state.borrow_mut();
        if state.tail.0 >= state.carried {
            state.carried = 0;
        }
    }

    /// True while writes of a record wait for space.
    pub(super) fn has_kept(&self) -> bool {
        !self.state.borrow().kept.is_empty()
    }

    /// A record that was found when the array was opened is done again.
    pub(super) fn reopen(&self, sequence: u64, position: u64) -> Open<'_> {
        let mut state = self.state.borrow_mut();
        debug_assert!(
            state.tail.0 <= sequence && sequence < state.next.0,
            "J3: what is found is not before the place where reading begins"
        );
        state.open.insert(sequence, position);
        drop(state);
        Open { journal: self, sequence }
    }

    /// True while a record of other members than there are now may be read again (J4).
    pub(super) fn carries(&self) -> bool {
        self.state.borrow().carried > 0
    }
}

impl JournalState {
    /// The next record has been written, at `position`.
    fn appended(&mut self, position: u64, sectors: u64) {
        let (sequence, _) = self.next;
        debug_assert!(position == 0 || position == self.next.1, "J1: a record is found by reading on");
        if sequence == self.tail.0 && position < self.tail.1 && position + sectors > self.tail.1 {
            self.wrapped_past_tail = Some(sequence);
        }
        self.next = (sequence + 1, position + sectors);
        let other = self.open.insert(sequence, position);
        debug_assert!(other.is_none(), "J1: a record has a number of its own");
    }

    /// The oldest record that is still needed, or the place of the next one.
    fn oldest(&self) -> JournalPosition {
        self.open.first_key_value().map_or(self.next, |(&sequence, &position)| (sequence, position))
    }

    /// Records that may be read are needed no more.
    fn can_advance(&self) -> bool {
        self.oldest().0 > self.tail.0
    }

    /// The oldest record, if it is kept.
    fn oldest_kept(&self) -> Option<u64> {
        let (sequence, _) = self.oldest();
        self.kept.contains(&sequence).then_some(sequence)
    }

    /// The oldest record and those after it leave little of a ring of `size`: less than half, or too little for a copy of the
    /// oldest, of `copy` sectors, behind another record of `sectors`.
    fn is_held_up(&self, size: u64, copy: u64, sectors: u64) -> bool {
        let (sequence, position) = self.oldest();
        let to_end = if self.next.1 > position { 0 } else { size };
        let then = |next, sectors| {
            let then = JournalState { next, tail: (sequence, position), ..JournalState::default() };
            then.place(sectors, size, false)
        };
        let other = then(self.next, sectors);
        let has_room = other.and_then(|other| then((self.next.0 + 1, other + sectors), copy)).is_some();
        !has_room || to_end + self.next.1 - position > size / 2
    }

    /// The place for `sectors` in a ring of `size`, or at its start alone; `None` while they do not fit.
    fn place(&self, sectors: u64, size: u64, at_start: bool) -> Option<u64> {
        let (next, tail) = (self.next, self.tail);
        let at_end = !at_start && next.1 + sectors <= size;
        if next.0 == tail.0 {
            return match at_end {
                true => Some(next.1),
                // J3: reading begins at the old place and continues at the start.
                false => (sectors <= size && (!at_start || sectors < next.1)).then_some(0),
            };
        }
        if next.1 > tail.1 {
            let has_wrapped = self.wrapped_past_tail == Some(tail.0); // Then the start is in use.
            return if at_end { Some(next.1) } else { (!has_wrapped && sectors < tail.1).then_some(0) };
        }
        (!at_start && next.1 + sectors < tail.1).then_some(next.1)
    }
}

/// A record that was found.
pub(super) struct FoundRecord {
    pub(super) sequence: u64,
    pub(super) writes: Vec<MemberWrite>,
    /// Its first sector in the ring.
    pub(super) position: u64,
    pub(super) image: Data,
    /// The members that have it, among those that were asked.
    pub(super) holders: Vec<usize>,
}

/// Members whose journal is read, and where it is.
pub(super) struct Ring<'a> {
    pub(super) members: &'a [Device],
    pub(super) uuid: &'a [u8; 16],
    pub(super) start: u64,
    pub(super) size: u64,
    /// The longest request.
    pub(super) sectors_max: u64,
}

impl Ring<'_> {
    /// The records from `tail` on that are on any of the members, and the place behind the last.
    ///
    /// A member that cannot be read here counts as one without the record.
    pub(super) async fn records(&self, tail: JournalPosition) -> (Vec<FoundRecord>, JournalPosition) {
        let (mut records, mut place, mut has_gap) = (Vec::new(), tail, false);
        loop {
            // A record that did not fit behind its predecessor is at the start.
            let mut found = self.record(place.0, &[place.1, 0]).await;
            if found.is_none() && !records.is_empty() && !has_gap {
                // Unreleased builds after 0.1.0 left out one number when they were opened with a kept record. In its place is the
                // next one. After a record that is damaged, the next one is elsewhere.
                found = self.record(place.0 + 1, &[place.1]).await;
                has_gap = found.is_some();
            }
            let Some(found) = found else { return (records, place) }; // J1
            debug_assert!(found.sequence >= place.0, "J1: reading goes forward");
            place = (found.sequence + 1, found.position + found.image.len() as u64 / SECTOR_BYTES);
            records.push(found);
        }
    }

    /// The record with this number, at the first of `positions` where a member has it.
    async fn record(&self, sequence: u64, positions: &[u64]) -> Option<FoundRecord> {
        let mut found: Option<FoundRecord> = None;
        for &position in positions {
            for (holder, member) in self.members.iter().enumerate() {
                if found.as_ref().is_some_and(|found| found.position != position || found.holders.len() > 1) {
                    continue;
                }
                let read =
                    read_record(member, self.uuid, self.start, self.size, (sequence, position), self.sectors_max).await;
                let Some((writes, image)) = read else { continue };
                match &mut found {
                    Some(found) if found.image[..] == image[..] && !found.holders.contains(&holder) => {
                        found.holders.push(holder);
                    }
                    Some(_) => {}
                    None => found = Some(FoundRecord { sequence, writes, position, image, holders: vec![holder] }),
                }
            }
        }
        found
    }
}

async fn read_record(
    member: &Device,
    uuid: &[u8; 16],
    start: u64,
    size: u64,
    (sequence, position): JournalPosition,
    sectors_max: u64,
) -> Option<(Vec<MemberWrite>, Data)> {
    if position + BLOCK_SECTORS > size {
        return None;
    }
    let first = member.read(Sector(start + position), Buf::dirty(bytes(0, BLOCK_SECTORS).len())).await.ok()?;
    let head = RecordHead::peek(&first, uuid, sequence)?;
    let (head_sectors, payload_sectors) = (u64::from(head.head_sectors), u64::from(head.payload_sectors));
    let sectors = (head_sectors + payload_sectors).next_multiple_of(BLOCK_SECTORS);
    if position + sectors > size {
        return None;
    }
    let mut image = Buf::dirty((sectors * SECTOR_BYTES) as usize);
    let mut done = 0;
    while done < sectors {
        let take = (sectors - done).min(sectors_max);
        let part = member.read(Sector(start + position + done), Buf::dirty(bytes(0, take).len())).await.ok()?;
        image[bytes(done, take)].copy_from_slice(&part);
        done += take;
    }
    let image = image.freeze();
    let payload = image.slice(bytes(head_sectors, payload_sectors));
    let entries = head.entries(&image[bytes(0, head_sectors)], &payload)?;
    let mut at = 0;
    let writes = entries.into_iter().map(|entry| {
        let (member, sectors) = (usize::from(entry.member), u64::from(entry.sectors));
        match entry.kind {
            KIND_DATA => {
                let data = payload.slice(bytes(at, sectors));
                at += sectors;
                Some(MemberWrite::new(member, entry.at, data))
            }
            KIND_ZEROES => Some(MemberWrite::zeroes(member, entry.at, sectors)),
            _ => None,
        }
    });
    let writes = writes.collect::<Option<Vec<_>>>()?;
    Some((writes, image))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ring never overwrites records that may be read again. Method: random records that end in random order, with
    /// every sector marked with its record.
    #[test]
    fn the_ring_keeps_what_is_needed() {
        const SIZE: u64 = 64;
        for seed in 0..50 {
            let mut rng = crate::rng::Rng::new(seed);
            let mut ring = vec![u64::MAX; SIZE as usize];
            let mut state = JournalState { next: (5, 8 * rng.below(8)), ..JournalState::default() };
            state.tail = state.next;
            let mut places: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
            for _ in 0..500 {
                // Some are longer than half of the ring: joint writes to several rows, with their parity.
                let sectors = 8 * rng.between(1, if seed % 2 == 0 { 4 } else { 7 });
                match state.place(sectors, SIZE, rng.chance(1, 4)) {
                    Some(position) => {
                        let sequence = state.next.0;
                        assert!(position + sectors <= SIZE);
                        assert!(position == state.next.1 || position == 0, "found by reading on");
                        ring[position as usize..(position + sectors) as usize].fill(sequence);
                        places.insert(sequence, (position, sectors));
                        state.appended(position, sectors);
                    }
                    None => {
                        let open: Vec<u64> = state.open.keys().copied().collect();
                        if !open.is_empty() {
                            state.open.remove(rng.pick(&open));
                        }
                        state.tail = state.oldest();
                    }
                }
                for (sequence, (position, sectors)) in places.range(state.tail.0..) {
                    let sector = &ring[*position as usize..(position + sectors) as usize];
                    assert!(
                        sector.iter().all(|owner| owner == sequence),
                        "seed {seed}: record {sequence} is overwritten"
                    );
                }
            }
            assert!(state.next.0 > 100, "the ring is stuck");
        }
    }
}
