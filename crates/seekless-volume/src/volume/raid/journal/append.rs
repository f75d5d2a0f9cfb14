//! Writing records, and freeing them.

use std::collections::BTreeSet;

use futures_util::future::join_all;

use super::super::core::{Core, MemberState, count};
use super::super::deferred::is_no_space;
use super::super::request::{MemberWrite, merge};
use super::Open;
use crate::codec::crc32c_append;
use crate::device::{Buf, Data, Device, DeviceError, WriteFlags};
use crate::units::{SECTOR_BYTES, Sector};
use crate::volume::format::{BLOCK_SECTORS, RECORD_MAGIC, RecordEntry, RecordHead, head_sectors};
use crate::volume::members::{bytes, relocate};

impl Core {
    /// Writes a record of `writes`, which are all writes to `rows`, and returns when it is durable (J2). `None`: nothing has been
    /// written, because the state of the members must be recorded first (J6), or because some of the rows need no record any
    /// more. The caller ends its write, so that the first can happen, and begins again.
    pub(in crate::volume::raid) async fn append(
        &self,
        rows: &[u64],
        writes: &[MemberWrite],
    ) -> Result<Option<Open<'_>>, DeviceError> {
        debug_assert!(!writes.is_empty(), "J2: a record has what it is written for");
        debug_assert!(self.writes_under_way() > 0, "A2: who appends a record counts as a write under way");
        let _gate = self.journal.gate.enter().await;
        self.take_back().await?;
        let mut at_start = false;
        loop {
            let Some(position) = self.room(record_sectors(writes), at_start).await? else { return Ok(None) };
            if rows.iter().any(|&row| !self.needs_journal(row)) {
                return Ok(None); // While this waited, reading has begun behind all that was carried. It would not wait for this record.
            }
            debug_assert!(!self.is_unrecorded(), "J6: a record is of members whose state is recorded");
            match self.write_record(position, writes).await {
                // At its start, the ring has been written before: a sparse member may have space there alone.
                Err(error) if is_no_space(&error) && record_sectors(writes) < position && !at_start => {
                    self.take_back().await?;
                    at_start = true;
                }
                written => return written.map(|sequence| Some(Open { journal: &self.journal, sequence })),
            }
        }
    }

    /// Writes a record of `writes` to this place of the ring, and returns its number.
    async fn write_record(&self, position: u64, writes: &[MemberWrite]) -> Result<u64, DeviceError> {
        let Some(layout) = self.layout else { unreachable!("only arrays with metadata have a journal") };
        let entries: Vec<RecordEntry> = writes.iter().map(MemberWrite::entry).collect();
        let (head, payload_sectors) = head_and_payload_sectors(writes);
        let sectors = record_sectors(writes);
        let payload: Vec<&Data> = writes.iter().filter_map(MemberWrite::data).collect();
        let sequence = self.journal.state.borrow().next.0;
        debug_assert!(
            position == 0 || position == self.journal.state.borrow().next.1,
            "J1: a record is behind the one before it, or at the start"
        );
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
        debug_assert_eq!(
            done as u64,
            (head + payload_sectors) * SECTOR_BYTES,
            "J2: a record holds all that is to be written"
        );
        let at = layout.journal_start + position;
        self.write_copies(sequence, at, image.freeze()).await?;
        count(&self.counts.journal_records);
        let mut state = self.journal.state.borrow_mut();
        debug_assert_eq!(state.next.0, sequence, "J1: one record after the other");
        debug_assert!(position + sectors <= layout.journal_sectors, "J3: a record lies in the ring");
        state.appended(position, sectors);
        if state.carried > 0 {
            // Later its rows may need no record: reading has to begin behind this one first (J4).
            state.carried = sequence + 1;
        }
        Ok(sequence)
    }

    /// The oldest record, where it is kept and in the way of another one of `sectors`, with what is still to be done of it.
    fn in_the_way(&self, sectors: u64, size: u64) -> Option<(u64, Vec<MemberWrite>)> {
        let oldest = self.journal.state.borrow().oldest_kept()?;
        let state = self.state.borrow();
        let deferred = state.redo.values().flat_map(|row| &row.writes).filter(|one| one.record == Some(oldest));
        let writes = merge(deferred.map(|deferred| deferred.write.clone()).collect(), u64::from(u32::MAX));
        let is_held_up = self.journal.state.borrow().is_held_up(size, record_sectors(&writes), sectors);
        (is_held_up && !writes.is_empty()).then_some((oldest, writes)) // Nothing is left of it when the array has stopped.
    }

    /// Writes `writes`, which are still to be done of the kept record with the number `old`, again as a newer one at `position` (J7).
    /// False when there is no space for that.
    async fn write_again(&self, old: u64, writes: &[MemberWrite], position: u64) -> Result<bool, DeviceError> {
        debug_assert!(self.journal.gate.is_held(), "J1: one record is written after the other");
        let is_of_old = |record: Option<u64>| record == Some(old);
        let new = match self.write_record(position, writes).await {
            Err(error) if is_no_space(&error) => return self.take_back().await.map(|()| false),
            written => written?,
        };
        self.journal.state.borrow_mut().kept.insert(new);
        let mut state = self.state.borrow_mut();
        let deferred = state.redo.values_mut().flat_map(|row| &mut row.writes);
        let mut is_needed = false;
        for deferred in deferred.filter(|deferred| is_of_old(deferred.record)) {
            deferred.record = Some(new);
            is_needed = true;
        }
        drop(state);
        // In the meantime, all of it may have been done or replaced.
        for done in if is_needed { vec![old] } else { vec![new] } {
            self.journal.done(done);
        }
        Ok(true)
    }

    /// Writes the record to two members, or to one where the array tolerates no further failure.
    async fn write_copies(&self, sequence: u64, at: u64, image: Data) -> Result<(), DeviceError> {
        debug_assert!(self.journal.gate.is_held(), "J1: one record is written after the other");
        let mut written: Vec<usize> = Vec::new();
        loop {
            let active = self.active();
            let copies = if active.len() == self.shape.members { 2 } else { 1 };
            written.retain(|member| active.contains(member));
            if written.len() >= copies {
                return Ok(());
            }
            // Members take turns, which spreads the load.
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
            let (mut lacking, mut answer) = (Vec::new(), Ok(()));
            for (member, result) in next.into_iter().zip(results) {
                match result {
                    Ok(()) => written.push(member),
                    Err(error @ DeviceError::NoSpace { .. }) => {
                        lacking.push(member);
                        answer = Err(relocate(error, member, Sector::ZERO, image.len() as u64));
                    }
                    Err(error) if !self.fail(member, &error) => {
                        return Err(relocate(error, member, Sector::ZERO, image.len() as u64));
                    }
                    Err(_) => {}
                }
            }
            if answer.is_err() {
                let members = written.iter().chain(&lacking).copied().collect();
                self.journal.state.borrow_mut().stale = (at, members);
                let _ = self.take_back().await; // Otherwise later.
                // A device without space even for the head holds no whole record.
                self.journal.state.borrow_mut().stale.1.retain(|member| !lacking.contains(member));
                return answer;
            }
        }
    }

    /// Before a record of a complete array is done again: puts it on a second active member, if a power cut left it on one of
    /// `holders` alone. Otherwise the next cut could leave its writes half done, and take the record with a member.
    pub(in crate::volume::raid) async fn copy_record(
        &self,
        position: u64,
        image: &Data,
        holders: &[usize],
    ) -> Result<(), DeviceError> {
        let Some(layout) = self.layout else { return Ok(()) };
        let active = self.active();
        if active.len() < self.shape.members || holders.len() > 1 {
            return Ok(());
        }
        for member in active.into_iter().filter(|member| !holders.contains(member)) {
            let at = layout.journal_start + position;
            match write_long(&self.device(member), at, image, self.request_sectors_max).await {
                Err(DeviceError::NoSpace { .. }) => {} // Another one may have some.
                Err(error) if !self.fail(member, &error) => {
                    return Err(relocate(error, member, Sector::ZERO, image.len() as u64));
                }
                // Without a member that has failed, the array tolerates no further failure.
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    /// Makes a record that could not be written to all of its members unreadable (J5).
    ///
    /// # Errors
    /// `NoSpace` when a member has it still: no record may be written, and the superblocks may not change.
    pub(in crate::volume::raid) async fn take_back(&self) -> Result<(), DeviceError> {
        let (at, mut members) = self.journal.state.borrow().stale.clone();
        if members.is_empty() {
            return Ok(());
        }
        let active = self.active();
        members.retain(|member| active.contains(member));
        let head = Data::zeroes(bytes(0, BLOCK_SECTORS).len());
        let results = join_all(members.iter().map(|&member| {
            let (device, head) = (self.device(member), head.clone());
            async move { device.write(Sector(at), head, WriteFlags::FUA).await }
        }))
        .await;
        let (mut left, mut answer) = (Vec::new(), Ok(()));
        for (member, result) in members.into_iter().zip(results) {
            match result {
                Err(error @ DeviceError::NoSpace { .. }) => {
                    left.push(member);
                    answer = Err(relocate(error, member, Sector::ZERO, head.len() as u64));
                }
                Err(error) if !self.fail(member, &error) => {
                    return Err(relocate(error, member, Sector::ZERO, head.len() as u64));
                }
                _ => {}
            }
        }
        self.journal.state.borrow_mut().stale.1 = left;
        answer
    }

    /// At an opening that keeps records: a power cut may have left the next record in part, or on a member that cannot be read
    /// at present. Makes that unreadable, as the number is used again (J5). Where there is no space for that, the next record
    /// waits for it.
    pub(in crate::volume::raid) async fn erase_next(&self) -> Result<(), DeviceError> {
        let Some(layout) = self.layout else { return Ok(()) };
        debug_assert!(!self.is_unrecorded(), "J6: a number is used again when the members are as recorded");
        let _gate = self.journal.gate.enter().await;
        let (sequence, places) = {
            let state = self.journal.state.borrow();
            let place = |at_start| state.place(BLOCK_SECTORS, layout.journal_sectors, at_start);
            (state.next.0, BTreeSet::from([place(true), place(false)]))
        };
        for at in places.into_iter().flatten().map(|position| layout.journal_start + position) {
            let mut holders = Vec::new();
            for member in self.active() {
                let read = self.device(member).read(Sector(at), Buf::dirty(bytes(0, BLOCK_SECTORS).len())).await;
                if read.map_or(true, |block| RecordHead::peek(&block, &layout.uuid, sequence).is_some()) {
                    holders.push(member);
                }
            }
            self.journal.state.borrow_mut().stale = (at, holders);
            match self.take_back().await {
                Err(error) if is_no_space(&error) => return Ok(()),
                taken_back => taken_back?,
            }
        }
        Ok(())
    }

    /// Members that hold valid data in every row.
    pub(in crate::volume::raid) fn active(&self) -> Vec<usize> {
        let state = self.state.borrow();
        let member_states = state.now.iter().enumerate();
        member_states
            .filter(|(_, member_state)| **member_state == MemberState::Active)
            .map(|(member, _)| member)
            .collect()
    }

    /// Waits until there is room for `sectors`, anywhere or at the start of the ring, and returns the place (J3); `None` when the
    /// state of the members must be recorded first (J6).
    async fn room(&self, sectors: u64, at_start: bool) -> Result<Option<u64>, DeviceError> {
        let size = self.layout.map_or(0, |layout| layout.journal_sectors);
        // Each is written again once at most.
        let mut to_be_written_again = self.journal.state.borrow().kept.len();
        loop {
            if self.is_unrecorded() {
                return Ok(None);
            }
            let in_the_way = if to_be_written_again > 0 { self.in_the_way(sectors, size) } else { None };
            let position = {
                let state = self.journal.state.borrow();
                match &in_the_way {
                    Some((_, writes)) => state.place(record_sectors(writes), size, false),
                    None => state.place(sectors, size, at_start),
                }
            };
            match (in_the_way, position) {
                (Some((kept, writes)), Some(position)) => {
                    let is_written = self.write_again(kept, &writes, position).await?;
                    to_be_written_again = if is_written { to_be_written_again - 1 } else { 0 };
                    continue;
                }
                (None, Some(position)) => return Ok(Some(position)),
                (Some(_), None) if !self.journal.state.borrow().can_advance() => {
                    to_be_written_again = 0;
                    continue;
                }
                (_, None) => {}
            }
            let ended = self.journal.ended.wait();
            let (oldest, is_kept) = {
                let state = self.journal.state.borrow();
                (state.oldest(), state.oldest_kept().is_some())
            };
            if self.journal.state.borrow().can_advance() {
                // Everything before the oldest open record has been written, and now becomes durable.
                self.flush_members().await?;
                if self.is_unrecorded() {
                    return Ok(None); // One could not be flushed, or had failed before.
                }
                self.write_superblocks(|_| self.journal.set_tail(oldest)).await?;
                self.journal.tail_is_durable();
                continue;
            }
            if is_kept {
                return Err(DeviceError::NoSpace { at: Sector::ZERO, bytes: sectors * SECTOR_BYTES });
            }
            ended.await;
        }
    }
}

/// Sectors of the head of a record of `writes`, and of its payload.
fn head_and_payload_sectors(writes: &[MemberWrite]) -> (u64, u64) {
    let payload = writes.iter().filter_map(MemberWrite::data).map(|data| data.len() as u64).sum::<u64>();
    (head_sectors(writes.len()), payload / SECTOR_BYTES)
}

/// Sectors of a record of `writes`. Records begin at blocks, whatever their length, as members may have large ones.
fn record_sectors(writes: &[MemberWrite]) -> u64 {
    let (head, payload) = head_and_payload_sectors(writes);
    (head + payload).next_multiple_of(BLOCK_SECTORS)
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
