//! The journal: what is about to be written to rows that lack a data unit.
//!
//! Where a member is missing, its unit exists only as the difference between the others and the parity. If the power
//! fails between the write of one and of the other, the missing unit becomes something that nobody wrote: the write
//! hole. So all writes to such a row are first written to the journal as a whole; after a power cut they are done again.
//!
//! The journal is a ring at the same place of every member. A record is on one member of a degraded array, which bears
//! no further failure anyway, and on two of a complete one.
//!
//! Invariants
//!   J1  One record after the other: when one is written, all before it are durable. So reading ends at the first that
//!       is not there.
//!   J2  The writes of a record begin when it is durable.
//!   J3  A record is overwritten only when its writes are durable and the superblocks say that reading begins after it.
//!   J4  As long as a record can be read again, so can every later one about the same rows; so doing all of them again
//!       in order leaves the newest content.

use futures_util::future::join_all;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::core::{Core, count};
use super::write::MemberWrite;
use crate::codec::crc32c_append;
use crate::device::{Buf, Data, Device, DeviceError, WriteFlags};
use crate::rt::{Event, Gate};
use crate::units::{SECTOR_BYTES, Sector};
use crate::volume::format::{
    BLOCK_SECTORS, KIND_DATA, KIND_ZEROES, RECORD_MAGIC, RecordEntry, RecordHead, head_sectors,
};
use crate::volume::members::{bytes, relocate};

#[derive(Default)]
pub(super) struct Journal {
    state: RefCell<JournalState>,
    gate: Gate,
    /// A record's writes have ended.
    ended: Event,
}

/// A place in the journal: a record's number, and its first sector in the ring.
type Place = (u64, u64);

#[derive(Default)]
struct JournalState {
    next: Place,
    /// Where reading begins, as the superblocks say.
    tail: Place,
    /// Records whose writes are under way, or could not be done yet.
    open: BTreeMap<u64, u64>,
    /// Of these, the ones that could not be done for want of space.
    kept: BTreeSet<u64>,
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
            state.open.remove(&self.sequence);
        }
        drop(state);
        self.journal.ended.notify();
    }
}

impl Open<'_> {
    /// The writes of the record could not be done: it is kept until [`Journal::done`].
    pub(super) fn keep(self) -> u64 {
        let mut state = self.journal.state.borrow_mut();
        debug_assert!(state.open.contains_key(&self.sequence), "J3: what is kept is still needed");
        state.kept.insert(self.sequence);
        drop(state);
        self.sequence
    }
}

impl Journal {
    pub(super) fn new(next: Place) -> Journal {
        let state = JournalState { next, tail: next, ..JournalState::default() };
        Journal { state: RefCell::new(state), ..Journal::default() }
    }

    /// The writes of a record that was kept have been done.
    pub(super) fn done(&self, sequence: u64) {
        let mut state = self.state.borrow_mut();
        state.kept.remove(&sequence);
        state.open.remove(&sequence);
        drop(state);
        self.ended.notify();
    }

    pub(super) fn tail(&self) -> Place {
        self.state.borrow().tail
    }

    /// Reading begins there, as the superblocks say.
    pub(super) fn set_tail(&self, tail: Place) {
        let mut state = self.state.borrow_mut();
        debug_assert!(tail.0 >= state.tail.0, "J3: reading never begins at what may have been written over");
        debug_assert!(tail.0 <= state.oldest().0, "J3: what is still needed is read");
        state.tail = tail;
    }

    /// Nothing is under way and everything is durable: no record is needed any more. Those that are kept stay.
    pub(super) fn forget_all(&self) {
        let mut state = self.state.borrow_mut();
        debug_assert!(state.oldest().0 >= state.tail.0, "J3: reading never begins at what may have been written over");
        state.tail = state.oldest();
    }
}

impl JournalState {
    /// The oldest record that is still needed, or the place of the next one.
    fn oldest(&self) -> Place {
        self.open.first_key_value().map_or(self.next, |(&sequence, &position)| (sequence, position))
    }

    /// Where `sectors` would go in a ring of `size`; `None` while they do not fit.
    fn place(&self, sectors: u64, size: u64) -> Option<u64> {
        let (next, tail) = (self.next, self.tail);
        let at_end = next.1 + sectors <= size;
        if next.0 == tail.0 {
            return match at_end {
                true => Some(next.1),
                // J3: reading begins at the old place and goes on at the start.
                false => (sectors <= size).then_some(0),
            };
        }
        if next.1 > tail.1 {
            return if at_end { Some(next.1) } else { (sectors < tail.1).then_some(0) };
        }
        (next.1 + sectors < tail.1).then_some(next.1)
    }
}

impl Core {
    /// Writes a record of `writes` and returns when it is durable (J2).
    pub(super) async fn append(&self, writes: &[MemberWrite]) -> Result<Open<'_>, DeviceError> {
        let Some(layout) = self.layout else { unreachable!("only arrays with metadata have a journal") };
        let entries: Vec<RecordEntry> = writes.iter().map(MemberWrite::entry).collect();
        let head = head_sectors(entries.len());
        let payload: Vec<&Data> = writes.iter().filter_map(MemberWrite::data).collect();
        let payload_sectors = payload.iter().map(|data| data.len() as u64).sum::<u64>() / SECTOR_BYTES;
        // Records begin at blocks, whatever their length, as members may have large ones.
        let sectors = (head + payload_sectors).next_multiple_of(BLOCK_SECTORS);
        let _gate = self.journal.gate.enter().await;
        let position = self.room(sectors, layout.journal_sectors).await?;
        let sequence = self.journal.state.borrow().next.0;
        let record = RecordHead {
            magic: RECORD_MAGIC,
            crc: 0,
            payload_crc: payload.iter().fold(0, |crc, data| crc32c_append(crc, data)),
            uuid: layout.uuid,
            sequence,
            head_sectors: head as u32,
            payload_sectors: payload_sectors as u32,
            entry_count: entries.len() as u32,
            reserved: 0,
        };
        let mut image = Buf::zeroed((sectors * SECTOR_BYTES) as usize);
        let head_bytes = record.to_bytes(&entries);
        image[..head_bytes.len()].copy_from_slice(&head_bytes);
        let mut done = head_bytes.len();
        for data in payload {
            image[done..done + data.len()].copy_from_slice(data);
            done += data.len();
        }
        let at = layout.journal_start + position;
        self.write_copies(sequence, at, image.freeze()).await?;
        count(&self.counts.journal_records);
        let mut state = self.journal.state.borrow_mut();
        debug_assert_eq!(state.next.0, sequence, "J1: one record after the other");
        debug_assert!(position + sectors <= layout.journal_sectors, "J3: a record lies in the ring");
        state.next = (sequence + 1, position + sectors);
        let other = state.open.insert(sequence, position);
        debug_assert!(other.is_none(), "J1: a record has a number of its own");
        Ok(Open { journal: &self.journal, sequence })
    }

    /// Writes the record to two members, or to one where the array bears no further failure.
    async fn write_copies(&self, sequence: u64, at: u64, image: Data) -> Result<(), DeviceError> {
        let mut written: Vec<usize> = Vec::new();
        loop {
            let active = self.active();
            let copies = if active.len() == self.shape.members { 2 } else { 1 };
            written.retain(|member| active.contains(member));
            if written.len() >= copies {
                return Ok(());
            }
            // They take turns, so that none has all the work.
            let first = (sequence % active.len().max(1) as u64) as usize;
            let next: Vec<usize> = (0..active.len())
                .map(|turn| active[(first + turn) % active.len()])
                .filter(|member| !written.contains(member))
                .take(copies - written.len())
                .collect();
            if next.is_empty() {
                return self.check_running(Sector(at), image.len() as u64);
            }
            let results = join_all(next.iter().map(|&member| {
                let (device, image) = (self.device(member), image.clone());
                let longest = self.request_sectors_max;
                async move { write_long(&device, at, &image, longest).await }
            }))
            .await;
            for (member, result) in next.into_iter().zip(results) {
                match result {
                    Ok(()) => written.push(member),
                    Err(error @ DeviceError::NoSpace { .. }) => {
                        return Err(relocate(error, member, Sector::ZERO, image.len() as u64));
                    }
                    Err(error) if !self.fail(member) => {
                        return Err(relocate(error, member, Sector::ZERO, image.len() as u64));
                    }
                    Err(_) => {}
                }
            }
        }
    }

    /// Members that hold everything.
    pub(super) fn active(&self) -> Vec<usize> {
        let state = self.state.borrow();
        let standings = state.now.iter().enumerate();
        standings.filter(|(_, standing)| **standing == super::Standing::Active).map(|(member, _)| member).collect()
    }

    /// Waits until there is room for `sectors` and says where (J3).
    async fn room(&self, sectors: u64, size: u64) -> Result<u64, DeviceError> {
        loop {
            if let Some(position) = self.journal.state.borrow().place(sectors, size) {
                return Ok(position);
            }
            let ended = self.journal.ended.wait();
            let (oldest, tail, is_kept) = {
                let state = self.journal.state.borrow();
                (state.oldest(), state.tail, state.kept.contains(&state.oldest().0))
            };
            if oldest.0 > tail.0 {
                // Everything before the oldest open record has been written, and now becomes durable.
                self.flush_members().await?;
                self.write_superblocks(|_| self.journal.set_tail(oldest)).await?;
                continue;
            }
            if is_kept {
                return Err(DeviceError::NoSpace { at: Sector::ZERO, bytes: sectors * SECTOR_BYTES });
            }
            ended.await;
        }
    }
}

/// Writes `data` with `fua`, in requests that the device takes.
async fn write_long(device: &Device, at: u64, data: &Data, sectors_max: u64) -> Result<(), DeviceError> {
    let sectors = data.len() as u64 / SECTOR_BYTES;
    let mut done = 0;
    while done < sectors {
        let take = (sectors - done).min(sectors_max);
        device.write(Sector(at + done), data.slice(bytes(done, take)), WriteFlags::FUA).await?;
        done += take;
    }
    Ok(())
}

/// The records from `tail` on that are on any of `members`, and the place behind the last. `check` refuses entries that
/// cannot be.
///
/// A member that cannot be read here counts as one without the record.
pub(super) async fn read_records(
    members: &[Device],
    uuid: &[u8; 16],
    start: u64,
    size: u64,
    tail: Place,
    sectors_max: u64,
) -> (Vec<Vec<MemberWrite>>, Place) {
    let (mut records, mut place) = (Vec::new(), tail);
    loop {
        let mut found = None;
        // A record that did not fit behind its predecessor is at the start.
        for position in [place.1, 0] {
            for member in members {
                if found.is_none()
                    && let Some((writes, sectors)) =
                        read_record(member, uuid, start, size, (place.0, position), sectors_max).await
                {
                    found = Some((writes, (place.0 + 1, position + sectors)));
                }
            }
        }
        match found {
            Some((writes, next)) => {
                records.push(writes);
                place = next;
            }
            None => return (records, place), // J1
        }
    }
}

async fn read_record(
    member: &Device,
    uuid: &[u8; 16],
    start: u64,
    size: u64,
    (sequence, position): Place,
    sectors_max: u64,
) -> Option<(Vec<MemberWrite>, u64)> {
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
    Some((writes.collect::<Option<Vec<_>>>()?, sectors))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ring never overwrites what may be read again. Method: random records that end in random order, with every
    /// sector marked with the record that it belongs to.
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
                let sectors = 8 * rng.between(1, 4);
                match state.place(sectors, SIZE) {
                    Some(position) => {
                        let sequence = state.next.0;
                        assert!(position + sectors <= SIZE);
                        assert!(position == state.next.1 || position == 0, "found by reading on");
                        ring[position as usize..(position + sectors) as usize].fill(sequence);
                        places.insert(sequence, (position, sectors));
                        state.open.insert(sequence, position);
                        state.next = (sequence + 1, position + sectors);
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
