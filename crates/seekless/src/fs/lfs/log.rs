//! The log on its way to the device: steps and what they wait for, transactions, flushes, checkpoints.
//!
//! Invariants
//!   L1  Nothing is acknowledged as durable before every partial segment up to it is on the device and a flush
//!       has been done after the last of them (or the device is durable on completion).
//!   L2  A checkpoint slot is written only after the log up to it is durable.
//!   L3  After an error of unknown effect nothing is written any more.

use std::rc::{Rc, Weak};

use futures_util::future::join_all;

use super::assemble::{Scope, Transaction, assemble};
use super::format::*;
use super::layout::*;
use super::state::*;
use super::{Lfs, file};
use crate::device::{Buf, Data, DeviceError, Discard, WriteFlags};
use crate::fs::{FsError, FsResult};
use crate::units::{Ino, Nanos, SECTOR_BYTES, Sector};

/// Bytes on their way to the device before writers have to wait.
const IN_FLIGHT_BYTES_MAX: u64 = 16 << 20;

/// How often what found no storage below is tried again.
const STORAGE_RETRY_INTERVAL: Nanos = Nanos::from_secs(1);

/// Log bytes after which a checkpoint is due, so that rolling forward stays short.
const LOG_BYTES_PER_CHECKPOINT: u64 = 256 << 20;

impl Lfs {
    /// Repeats `step` until it ends with a result, bringing in what it asks for.
    pub(super) async fn run<T>(&self, mut step: impl FnMut(&mut State) -> Step<T>) -> FsResult<T> {
        loop {
            let stop = {
                let mut state = self.state.borrow_mut();
                state.now = self.rt.wall();
                match step(&mut state) {
                    Ok(value) => return Ok(value),
                    Err(stop) => stop,
                }
            };
            match stop {
                Stop::Fail(error) => return Err(error),
                Stop::Load(load) => self.load(load).await?,
                Stop::Wait(Wait::WriteBack) => self.write_back_some().await?,
                // Boxed, because these take steps themselves.
                Stop::Wait(Wait::Clean) => Box::pin(self.wait_for_clean()).await?,
                Stop::Wait(Wait::Provision) => Box::pin(self.provision()).await?,
                Stop::Wait(Wait::Reclaim(ino)) => Box::pin(self.reclaim(ino)).await?,
            }
        }
    }

    /// As [`Lfs::run`], for operations of users: starts writing back what they have made dirty.
    pub(super) async fn operate<T>(&self, step: impl FnMut(&mut State) -> Step<T>) -> FsResult<T> {
        self.last_operation.set(self.rt.now());
        let result = self.run(step).await?;
        self.write_back_if_due()?;
        Ok(result)
    }

    /// Frees what is left of a file that has been cut or has lost its last name and user.
    pub(super) async fn reclaim(&self, ino: Ino) -> FsResult<()> {
        loop {
            match self.run(|state| file::reclaim_step(state, ino)).await {
                Ok(false) => {}
                // Somebody else has done it.
                Ok(true) | Err(FsError::Stale) => return self.write_back_if_due(),
                Err(error) => return Err(error),
            }
        }
    }

    // ---- Reading ----

    /// Brings one thing into memory, unless it has changed or arrived meanwhile; the step that asked looks again.
    pub(super) async fn load(&self, load: Load) -> FsResult<()> {
        match load {
            Load::Block(id) => self.load_block(id).await,
            Load::Inode(ino) => self.load_inode(ino).await,
            Load::Xattr(ino) => self.load_xattr(ino).await,
        }
    }

    /// Reads sectors of the log. What is still on its way to the device is taken from memory.
    pub(super) async fn read_log(&self, at: Sector, sectors: u64) -> FsResult<Buf> {
        let bytes = (sectors * SECTOR_BYTES) as usize;
        loop {
            let found = self.state.borrow().in_flight_at(at, sectors);
            match found {
                None => return read_sectors(&self.device, at, sectors).await,
                Some(Some((data, from))) => return Ok(Buf::from_slice(&data[from..from + bytes])),
                // Partly on its way.
                Some(None) => {
                    if let Some(error) = &self.state.borrow().stopped {
                        return Err(FsError::Stopped(error.clone()));
                    }
                    self.log_progress.wait().await;
                }
            }
        }
    }

    async fn load_block(&self, id: BlockId) -> FsResult<()> {
        let wanted = self.peek_pointer(id)?;
        let Some(Pointer::Mapped { at, sectors, crc }) = wanted else { return Ok(()) };
        let stored = self.read_log(at, sectors.into()).await?;
        let mut state = self.state.borrow_mut();
        state.counters.block_reads += 1;
        // Meanwhile the block may have been changed, moved or freed, and its old place written over.
        if !matches!(state.pointer(id), Ok(now) if Some(now) == wanted) {
            return Ok(());
        }
        if crate::codec::crc32c(&stored) != crc {
            return Err(FsError::corrupt("block", format_args!("{id:?}, sector {at}"), "its checksum does not match"));
        }
        let mut block = Buf::dirty(BLOCK_BYTES);
        block[..stored.len()].copy_from_slice(&stored);
        block[stored.len()..].fill(0);
        state.blocks.insert_clean(id, block.freeze());
        Ok(())
    }

    /// Where a block is, when that can be said without loading anything.
    fn peek_pointer(&self, id: BlockId) -> FsResult<Option<Pointer>> {
        match self.state.borrow_mut().pointer(id) {
            Ok(pointer) => Ok(Some(pointer)),
            Err(Stop::Fail(error)) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Reads an inode, and with it those written beside it, which are likely to be asked for next. While attributes are
    /// asked for as well, those that were written with these inodes come in the same read: one for each file would cost a
    /// turn of the disk, since they stand before what has just been read.
    async fn load_inode(&self, ino: Ino) -> FsResult<()> {
        let slot = match self.state.borrow_mut().inode_slot(ino) {
            Ok(slot) => slot,
            Err(Stop::Fail(error)) => return Err(error),
            Err(_) => return Ok(()),
        };
        let (before, first, sectors) = {
            let state = self.state.borrow();
            let start = Sector(slot.sector().0 / INODE_GROUP_SECTORS * INODE_GROUP_SECTORS);
            let is_whole = |start: Sector, sectors| {
                state.layout.holds(start, sectors) && state.in_flight_at(start, sectors).is_none()
            };
            let before = match state.attributes_follow {
                true => self.attribute_sectors_before(&state, start),
                false => 0,
            };
            match () {
                () if is_whole(Sector(start.0 - before), before + INODE_GROUP_SECTORS) => {
                    (before, start, INODE_GROUP_SECTORS)
                }
                () if is_whole(start, INODE_GROUP_SECTORS) => (0, start, INODE_GROUP_SECTORS),
                () => (0, slot.sector(), 1),
            }
        };
        let stored = self.read_log(Sector(first.0 - before), before + sectors).await?;
        let (attributes, bytes) = stored.split_at((before * SECTOR_BYTES) as usize);
        let mut state = self.state.borrow_mut();
        state.counters.inode_reads += 1;
        // Directories seldom have attributes, which says nothing of the files in them.
        let mut attributes_follow = state.attributes_follow;
        let with_attributes = |inode, slot| {
            let mut known = InodeMem::new(inode, slot);
            known.xattr = attributes_of(&inode, Sector(first.0 - before), attributes);
            known
        };
        for (index, raw) in bytes.chunks_exact(Inode::BYTES).enumerate() {
            let here = InodeSlot(first.0 * INODES_PER_SECTOR + index as u64);
            let inode = Inode::unseal(raw);
            if here == slot {
                let still = matches!(state.inode_slot(ino), Ok(now) if now == slot);
                match inode {
                    _ if !still => {}
                    Some(inode) if inode.ino == ino.0 => {
                        let known = with_attributes(inode, slot);
                        if before > 0 && inode.kind() == Some(crate::fs::FileKind::Regular) {
                            attributes_follow = known.xattr.is_some();
                        }
                        state.insert_inode(ino, known);
                    }
                    _ => {
                        let place = format_args!("sector {}", slot.sector());
                        return Err(FsError::corrupt(
                            "inode",
                            place,
                            format_args!("it is not inode {ino}, or damaged"),
                        ));
                    }
                }
            } else if let Some(inode) = inode {
                // The map alone says whether this version is the current one.
                let neighbour = Ino(inode.ino);
                if !state.inodes.contains_key(&neighbour) && matches!(state.inode_slot(neighbour), Ok(at) if at == here)
                {
                    let mut known = with_attributes(inode, here);
                    known.referenced = false;
                    state.insert_inode(neighbour, known);
                }
            }
        }
        state.attributes_follow = attributes_follow;
        Ok(())
    }

    /// Sectors before the inodes at `start` that may hold their attributes: one for each inode of a group, as long as that
    /// is in the same segment.
    fn attribute_sectors_before(&self, state: &State, start: Sector) -> u64 {
        let segment_start = state.layout.segment_of(start).map_or(start, |segment| state.layout.segment_start(segment));
        (INODE_GROUP_SECTORS * INODES_PER_SECTOR).min(start.0 - segment_start.0)
    }

    async fn load_xattr(&self, ino: Ino) -> FsResult<()> {
        let pointer = |state: &mut State| state.inode(ino).ok().and_then(|known| known.inode.xattr_pointer());
        let wanted = pointer(&mut self.state.borrow_mut());
        let Some(Pointer::Mapped { at, sectors, crc }) = wanted else { return Ok(()) };
        if !self.state.borrow().layout.holds(at, sectors.into()) {
            return Err(FsError::corrupt("inode", ino, "its extended attributes are said to be outside the log"));
        }
        let stored = self.read_log(at, sectors.into()).await?;
        let mut state = self.state.borrow_mut();
        if pointer(&mut state) != wanted {
            return Ok(());
        }
        if crate::codec::crc32c(&stored) != crc {
            let place = format_args!("inode {ino}, sector {at}");
            return Err(FsError::corrupt("extended attributes", place, "their checksum does not match"));
        }
        let mut before_inode = false;
        if let Ok(known) = state.inode(ino)
            && known.xattr.is_none()
            && !known.xattr_dirty
        {
            known.xattr = Some(stored.freeze());
            let distance = known.slot.sector().0.checked_sub(at.0);
            before_inode = distance.is_some_and(|distance| distance <= INODE_GROUP_SECTORS * (INODES_PER_SECTOR + 1));
        }
        // The next inodes are likely to have them at the same place.
        state.attributes_follow |= before_inode;
        Ok(())
    }

    // ---- Writing ----

    /// Puts a transaction together and sends it on its way. Returns the sequence number up to which the log must
    /// be durable for everything in `scope` to be.
    fn submit(self: &Rc<Self>, scope: Scope) -> FsResult<Result<Submitted, Load>> {
        let transaction = {
            let mut state = self.state.borrow_mut();
            state.now = self.rt.wall();
            if let Some(error) = &state.stopped {
                return Err(FsError::Stopped(error.clone()));
            }
            let assembled = assemble(&mut state, scope);
            if let Some(error) = &state.stopped {
                return Err(FsError::Stopped(error.clone()));
            }
            match assembled {
                Ok(Some(transaction)) => transaction,
                Ok(None) => return Ok(Ok(Submitted { end_sequence: state.log.sequence, checkpoint: None })),
                Err(Stop::Load(load)) => return Ok(Err(load)),
                Err(Stop::Fail(error)) => return Err(error),
                Err(Stop::Wait(wait)) => unreachable!("assembling waits for nothing, not for {wait:?}"),
            }
        };
        let Transaction { partials, end_sequence, checkpoint } = transaction;
        let lfs = self.clone();
        self.rt.spawn(async move { lfs.write_partials(partials).await });
        Ok(Ok(Submitted { end_sequence, checkpoint }))
    }

    pub(super) async fn submit_loading(self: &Rc<Self>, scope: Scope) -> FsResult<Submitted> {
        loop {
            match self.submit(scope)? {
                Ok(submitted) => return Ok(submitted),
                Err(load) => self.load(load).await?,
            }
        }
    }

    async fn write_partials(self: Rc<Self>, partials: Vec<(Sector, Data, u64)>) {
        let writes = partials.into_iter().map(|(at, data, sequence)| {
            let lfs = &self;
            async move {
                let bytes = data.len() as u64;
                let result = loop {
                    let wanted = lfs.storage_wanted_count.get();
                    match write_sectors(&lfs.device, at, data.clone()).await {
                        Err(DeviceError::NoSpace { .. }) if !lfs.closed.get() => {
                            lfs.wait_for_storage(sequence, wanted).await;
                        }
                        result => break result,
                    }
                };
                lfs.partial_written(sequence, bytes, result);
            }
        });
        join_all(writes).await;
    }

    /// The storage below had no room for a partial segment, although its segment had been provisioned. That is known
    /// to have left nothing worse than a part of it, so it is tried again, now and then and whenever somebody wants to
    /// sync. Until then the volume counts as full. `wanted` is the count of such wishes when the attempt began.
    async fn wait_for_storage(&self, sequence: u64, wanted: u64) {
        self.state.borrow_mut().stalled.insert(sequence, wanted);
        self.log_progress.notify();
        if self.storage_wanted_count.get() > wanted {
            return;
        }
        let again = self.storage_wanted.wait();
        let timer = self.rt.sleep(STORAGE_RETRY_INTERVAL);
        futures_util::future::select(std::pin::pin!(again), timer).await;
    }

    /// Has what waits for storage below tried once more.
    ///
    /// # Errors
    /// `NoSpace` when there is still none.
    async fn retry_stalled(&self) -> FsResult<()> {
        let wanted = self.storage_wanted_count.get() + 1;
        self.storage_wanted_count.set(wanted);
        self.storage_wanted.notify();
        loop {
            {
                let state = self.state.borrow();
                if state.stalled.is_empty() || state.stopped.is_some() {
                    return Ok(());
                }
                if state.stalled.values().any(|&attempted| attempted >= wanted) {
                    return Err(FsError::NoSpace);
                }
            }
            self.log_progress.wait().await;
        }
    }

    fn partial_written(&self, sequence: u64, bytes: u64, result: Result<(), DeviceError>) {
        {
            let mut state = self.state.borrow_mut();
            state.in_flight_bytes -= bytes;
            state.stalled.remove(&sequence);
            match result {
                Ok(()) => {
                    state.in_flight.retain(|flight| flight.sequence != sequence);
                    let oldest = state.in_flight.iter().map(|flight| flight.sequence).min();
                    state.written_sequence = oldest.unwrap_or(state.log.sequence);
                }
                // L3. What could not be written stays in memory, where it can still be read.
                Err(error) => state.stop(&error),
            }
        }
        self.log_progress.notify();
    }

    /// Waits until every partial segment before `sequence` is durable (L1).
    pub(super) async fn make_durable(&self, sequence: u64) -> FsResult<()> {
        loop {
            let written = {
                let state = self.state.borrow();
                if let Some(error) = &state.stopped {
                    return Err(FsError::Stopped(error.clone()));
                }
                if state.durable_sequence >= sequence {
                    return Ok(());
                }
                state.written_sequence
            };
            if written < sequence {
                let stalled = self.state.borrow().stalled.first_key_value().is_some_and(|(&first, _)| first < sequence);
                match stalled {
                    true => self.retry_stalled().await?,
                    false => self.log_progress.wait().await,
                }
                continue;
            }
            // Whoever waits here is served by the flush of the one inside, if that began late enough.
            let _pass = self.flush_gate.enter().await;
            let covered = {
                let state = self.state.borrow();
                if state.durable_sequence >= sequence {
                    return Ok(());
                }
                state.written_sequence
            };
            self.flush_device().await?;
            let mut state = self.state.borrow_mut();
            state.durable_sequence = state.durable_sequence.max(covered);
        }
    }

    async fn flush_device(&self) -> FsResult<()> {
        if let Some(error) = &self.state.borrow().stopped {
            return Err(FsError::Stopped(error.clone())); // A flush that failed is never tried again.
        }
        if self.device.guarantees().durable_on_completion {
            return Ok(());
        }
        let result = self.device.flush().await;
        let mut state = self.state.borrow_mut();
        state.counters.flushes += 1;
        if let Err(error) = result {
            state.stop(&error);
            return Err(FsError::Stopped(error.to_string()));
        }
        Ok(())
    }

    /// Makes everything in `scope` durable.
    pub(super) async fn sync(self: &Rc<Self>, scope: Scope) -> FsResult<()> {
        if self.state.borrow().read_only {
            return Ok(());
        }
        let submitted = self.submit_loading(scope).await?;
        self.make_durable(submitted.end_sequence).await
    }

    /// Makes one file durable, and every change of the name space. Writes nothing when all that is in the log.
    pub(super) async fn sync_file(self: &Rc<Self>, ino: Ino) -> FsResult<()> {
        self.sync(Scope::File(ino)).await
    }

    /// Sends off what is dirty once there is a segment of it.
    pub(super) fn write_back_if_due(&self) -> FsResult<()> {
        let due = {
            let state = self.state.borrow();
            let enough = state.layout.segment_bytes().max(1 << 20).min(state.options.dirty_bytes_max);
            state.dirty_bytes() >= enough
        };
        if due {
            self.write_back_wanted.notify();
        }
        Ok(())
    }

    /// Makes room for new changes: sends off what is dirty, and waits while too much is on its way.
    async fn write_back_some(&self) -> FsResult<()> {
        loop {
            {
                let state = self.state.borrow();
                if let Some(error) = &state.stopped {
                    return Err(FsError::Stopped(error.clone()));
                }
                if state.in_flight_bytes <= IN_FLIGHT_BYTES_MAX {
                    break;
                }
                if !state.stalled.is_empty() {
                    return Err(FsError::NoSpace);
                }
            }
            self.log_progress.wait().await;
        }
        let lfs = self.this();
        lfs.submit_loading(Scope::Everything).await?;
        let deferred = {
            let state = self.state.borrow();
            state.deferred_bytes() > state.options.dirty_bytes_max
        };
        if deferred { lfs.checkpoint(false).await } else { Ok(()) }
    }

    /// Writes a checkpoint: afterwards recovery starts here.
    pub(super) async fn checkpoint(self: &Rc<Self>, clean: bool) -> FsResult<()> {
        let _pass = self.checkpoint_gate.enter().await;
        let submitted = self.submit_loading(Scope::Checkpoint { clean }).await?;
        let Some((serial, block)) = submitted.checkpoint else { return Ok(()) };
        self.make_durable(submitted.end_sequence).await?; // L2
        let mut copies = Buf::dirty(2 * BLOCK_BYTES);
        copies[..BLOCK_BYTES].copy_from_slice(&block);
        copies[BLOCK_BYTES..].copy_from_slice(&block);
        let slot = CHECKPOINT_SECTORS[(serial % 2) as usize];
        // Commit point: until now the older checkpoint is the truth.
        match self.device.write(slot, copies.freeze(), WriteFlags::NONE).await {
            Ok(()) => {}
            // At worst this slot is torn; the other one holds, and the next checkpoint is written over this one.
            Err(DeviceError::NoSpace { .. }) => return Err(FsError::NoSpace),
            Err(error) => {
                self.state.borrow_mut().stop(&error);
                return Err(FsError::Stopped(error.to_string()));
            }
        }
        self.flush_device().await?;
        let released = {
            let mut state = self.state.borrow_mut();
            state.checkpoint_serial = serial;
            state.counters.checkpoints += 1;
            state.segments.checkpoint_done(serial)
        };
        self.release(released).await;
        Ok(())
    }

    // ---- Room ----

    /// Puts emptied segments back to use. Those beyond what will be needed soon are given back to the storage below.
    async fn release(&self, segments: Vec<SegmentNo>) {
        let discards = {
            let state = self.state.borrow();
            state.options.discard && self.device.guarantees().discard != Discard::Ignored
        };
        for segment in segments {
            let (start, sectors, keep) = {
                let state = self.state.borrow();
                let keep = !discards || (state.segments.ready.len() as u64) < ready_target(&state);
                (state.layout.segment_start(segment), state.layout.segment_sectors(), keep)
            };
            if keep {
                self.state.borrow_mut().segments.ready.insert(segment);
                continue;
            }
            // Nobody uses the segment while it is neither clean nor ready.
            let discarded = self.device.discard(start, sectors).await.is_ok();
            let mut state = self.state.borrow_mut();
            state.counters.discarded_segments += u64::from(discarded);
            state.segments.clean.insert(segment);
        }
        self.space_changed.notify();
    }

    /// Gets storage below some more clean segments.
    ///
    /// # Errors
    /// `NoSpace` when the storage below is full, and cleaning will not help.
    pub(super) async fn provision(&self) -> FsResult<()> {
        let _pass = self.provision_gate.enter().await;
        let (wanted, candidates) = {
            let state = self.state.borrow();
            let wanted = ready_target(&state).saturating_sub(state.segments.ready.len() as u64).max(1);
            let after = state.log.segment;
            let following = state.segments.clean.range(after + 1..).chain(state.segments.clean.range(..=after));
            (wanted, following.copied().collect::<Vec<SegmentNo>>())
        };
        let (mut won, mut full) = (0, false);
        for segment in candidates {
            let (start, sectors) = {
                let state = self.state.borrow();
                (state.layout.segment_start(segment), state.layout.segment_sectors())
            };
            match self.device.provision(start, sectors).await {
                Ok(()) => {
                    let mut state = self.state.borrow_mut();
                    if state.segments.clean.remove(&segment) {
                        state.segments.ready.insert(segment);
                    }
                    won += 1;
                }
                // Another segment may still have storage from before.
                Err(DeviceError::NoSpace { .. }) => full = true,
                Err(error) => return Err(FsError::Device(error)),
            }
            if won == wanted {
                break;
            }
        }
        self.space_changed.notify();
        if won == 0 && full { self.clean_for_room().await } else { Ok(()) }
    }

    // ---- Tasks ----

    /// Takes the volume into use: marks it so, and starts what works in the background.
    pub(super) async fn begin_writing(self: &Rc<Self>) -> FsResult<()> {
        match self.provision().await {
            // There is still the segment that the log ends in, and the next.
            Ok(()) | Err(FsError::NoSpace) => {}
            Err(error) => return Err(error),
        }
        self.checkpoint(false).await?;
        let orphans = self.state.borrow().orphans.list();
        for ino in orphans {
            self.reclaim(ino).await?;
        }
        self.rt.spawn(write_back_task(Rc::downgrade(self)));
        self.rt.spawn(timer_task(Rc::downgrade(self)));
        Ok(())
    }

    /// Ends writing for good: everything is durable, and a clean checkpoint says so.
    pub(super) async fn end_writing(self: &Rc<Self>) -> FsResult<()> {
        if self.closed.replace(true) || self.state.borrow().read_only {
            return Ok(());
        }
        // The cleaner stops at the end of its pass, and begins no other.
        let _cleaner = self.cleaner_gate.enter().await;
        if let Err(error) = self.checkpoint(true).await {
            self.closed.set(false); // It may be tried again.
            return Err(error);
        }
        self.state.borrow_mut().stopped.get_or_insert_with(|| "the volume has been closed".into());
        self.write_back_wanted.notify();
        // Everything is durable: whether the device below has put away its own things as well changes nothing here.
        let _ = self.device.release().await;
        Ok(())
    }
}

/// A transaction on its way.
pub(super) struct Submitted {
    pub end_sequence: u64,
    pub checkpoint: Option<(u64, [u8; BLOCK_BYTES])>,
}

/// Clean segments that are kept with storage below them.
fn ready_target(state: &State) -> u64 {
    let dirty = state.options.dirty_bytes_max.div_ceil(state.layout.segment_bytes());
    2 * dirty + state.cleaner_segments + 4
}

impl State {
    /// What is on its way to these sectors: all of it and where in it they begin, or only a part of them.
    fn in_flight_at(&self, at: Sector, sectors: u64) -> Option<Option<(Data, usize)>> {
        let mut overlaps = false;
        for flight in &self.in_flight {
            let flight_end = flight.at + flight.data.len() as u64 / SECTOR_BYTES;
            if flight.at <= at && at + sectors <= flight_end {
                return Some(Some((flight.data.clone(), ((at - flight.at) * SECTOR_BYTES) as usize)));
            }
            overlaps |= flight.at < at + sectors && at < flight_end;
        }
        overlaps.then_some(None)
    }

    /// Refuses every change from now on, because of `error`.
    pub(super) fn stop(&mut self, error: &DeviceError) {
        self.stopped.get_or_insert_with(|| error.to_string());
    }
}

/// Writes back whenever there is a segment of dirty data.
async fn write_back_task(lfs: Weak<Lfs>) {
    loop {
        let Some(live) = lfs.upgrade() else { return };
        let wanted = live.write_back_wanted.clone();
        let waiting = wanted.wait();
        drop(live);
        waiting.await;
        let Some(live) = lfs.upgrade() else { return };
        if live.closed.get() || live.state.borrow().stopped.is_some() {
            return;
        }
        let busy = live.state.borrow().in_flight_bytes > IN_FLIGHT_BYTES_MAX;
        if !busy {
            // Whoever asks next is told of an error that stops the volume; any other passes.
            let _ = live.submit_loading(Scope::Everything).await;
        }
        live.clean_if_short().await;
    }
}

/// Writes back what has waited long enough, and makes checkpoints.
async fn timer_task(lfs: Weak<Lfs>) {
    let mut last_checkpoint = lfs.upgrade().map_or(Nanos::ZERO, |live| live.rt.now());
    loop {
        let (rt, interval) = {
            let Some(live) = lfs.upgrade() else { return };
            let options = live.state.borrow().options;
            (live.rt.clone(), options.write_back_interval.min(options.checkpoint_interval))
        };
        rt.sleep(interval).await;
        let Some(live) = lfs.upgrade() else { return };
        if live.closed.get() || live.state.borrow().stopped.is_some() {
            return;
        }
        let (due, changed) = {
            let state = live.state.borrow();
            let age = rt.now().saturating_sub(last_checkpoint);
            let long = state.log_bytes_since_checkpoint > LOG_BYTES_PER_CHECKPOINT;
            let dirty = state.dirty_bytes() > 0 || !state.records.is_empty();
            // Empty segments wait for two checkpoints before they are clean.
            let changed = dirty || state.log_bytes_since_checkpoint > 0 || !state.segments.empty.is_empty();
            (changed && (age >= state.options.checkpoint_interval || long), dirty)
        };
        // As above: an error that matters stops the volume.
        if due {
            last_checkpoint = rt.now();
            let _ = live.checkpoint(false).await;
        } else if changed {
            let _ = live.sync(Scope::Everything).await;
        }
    }
}

/// Reads `sectors` at `at`, in as many requests as the device wants, and with its alignment.
pub(super) async fn read_sectors(device: &crate::device::Device, at: Sector, sectors: u64) -> FsResult<Buf> {
    let geometry = device.geometry();
    let align = u64::from(geometry.block_bytes) / SECTOR_BYTES;
    let first = at.0 / align * align;
    let end = (at.0 + sectors).next_multiple_of(align);
    let most = (u64::from(geometry.request_bytes_max) / SECTOR_BYTES / align * align).max(align);
    if first == at.0 && end == at.0 + sectors && sectors <= most {
        return Ok(device.read(at, Buf::dirty((sectors * SECTOR_BYTES) as usize)).await?);
    }
    let mut whole = Buf::dirty(((end - first) * SECTOR_BYTES) as usize);
    let mut from = first;
    while from < end {
        let take = most.min(end - from);
        let piece = device.read(Sector(from), Buf::dirty((take * SECTOR_BYTES) as usize)).await?;
        let offset = ((from - first) * SECTOR_BYTES) as usize;
        whole[offset..offset + piece.len()].copy_from_slice(&piece);
        from += take;
    }
    let skip = ((at.0 - first) * SECTOR_BYTES) as usize;
    Ok(Buf::from_slice(&whole[skip..skip + (sectors * SECTOR_BYTES) as usize]))
}

/// Writes `data` at `at` in as many requests as the device wants.
async fn write_sectors(device: &crate::device::Device, at: Sector, data: Data) -> Result<(), DeviceError> {
    let most = device.geometry().request_bytes_max as usize;
    if data.len() <= most {
        return device.write(at, data, WriteFlags::NONE).await;
    }
    let writes = (0..data.len()).step_by(most).map(|from| {
        let piece = data.slice(from..(from + most).min(data.len()));
        device.write(at + from as u64 / SECTOR_BYTES, piece, WriteFlags::NONE)
    });
    join_all(writes).await.into_iter().collect()
}

/// The attributes of `inode`, when they are among the sectors from `at` on that have been read.
fn attributes_of(inode: &Inode, at: Sector, bytes: &[u8]) -> Option<Data> {
    let Some(Pointer::Mapped { at: wanted, sectors, crc }) = inode.xattr_pointer() else { return None };
    let from = usize::try_from(wanted.0.checked_sub(at.0)?.checked_mul(SECTOR_BYTES)?).ok()?;
    let found = bytes.get(from..from.checked_add(usize::from(sectors) * SECTOR_BYTES as usize)?)?;
    // What is not as it should be is read again, and then it is an error.
    (crate::codec::crc32c(found) == crc).then(|| Data::from_slice(found))
}
