//! Empties tracks while the volume is idle, so that later writes go along empty tracks.
//!
//! Paper: [wa99 §4.2]: for this file system only an optimization, and one for which short pauses are enough.
//! `vlog::compact` chooses the track, the destination of its blocks, and when to stop, as for the virtual log disk.
//! This file knows the owner of each block and how to move it.
//!
//! Data is copied to holes a block at a time, and nothing points to the copies until a batch has the pointers to them.
//! So a request that arrives in the meantime waits for one write, and the copies are freed. Indirect blocks, inodes and
//! attributes become dirty, as if a user had changed them, and go to holes with that batch.
//!
//! Invariants
//!   M1  A pointer is moved to a copy only if no write to its track was on its way when it was read, none was since, and
//!       the pointer to the original is unchanged.
//!   M2  A block has an owner exactly when the newest version of that file points to it.

use std::collections::BTreeSet;

use super::Vlfs;
use super::assemble::{Batch, Scope, assemble};
use super::format::*;
use super::state::*;
use crate::codec;
use crate::device::Data;
use crate::fs::logfs::books::ATTRIBUTES;
use crate::fs::logfs::change::Change;
use crate::fs::logfs::demand::ReserveAccess;
use crate::fs::logfs::tree::*;
use crate::fs::{FsError, FsResult};
use crate::rt::cover;
use crate::units::{Ino, Nanos, Sector};
use crate::vlog::eager::{AllocPurpose, Run};
use crate::vlog::{Emptying, Need, Tenant};

/// Most blocks that are moved with one batch: a request then waits for as many indirect blocks, and few more.
const MOVES_AT_ONCE: usize = 4;

/// Holes that indirect blocks at the top of files, and inodes, may take beyond those counted.
const HOLES_SPARE: u64 = 8;

/// Result of emptying a track.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Emptied {
    /// It is empty, or cannot be emptied.
    Done,
    /// Something on it cannot be read: it is left alone from now on.
    Skipped,
    /// No track is worth emptying, or there is no space.
    Nothing,
    Interrupted,
}

impl Vlfs {
    /// Empties tracks until none is left (false), or until `until` has passed or a request arrives (true).
    ///
    /// # Errors
    /// Those of the device.
    pub(super) async fn compact(&self, until: Nanos) -> FsResult<bool> {
        let _pass = self.work.compact_gate.enter().await;
        let seen = self.operations.get();
        let store = self.state.borrow().log.owners.are_kept().then(|| self.state.borrow().log.store.clone());
        if let Some(store) = store {
            store.provision_holes().await?;
        }
        loop {
            let before = self.state.borrow().log.store.empty_tracks();
            match self.empty_track(seen).await? {
                Emptied::Nothing => return Ok(false),
                // The blocks moved have filled another track: without this test it could continue indefinitely.
                Emptied::Done if self.state.borrow().log.store.empty_tracks() <= before => return Ok(false),
                Emptied::Interrupted => return Ok(true),
                Emptied::Done | Emptied::Skipped if self.rt.now() >= until => return Ok(true),
                Emptied::Done | Emptied::Skipped => {}
            }
        }
    }

    /// Idle work leaves the track alone.
    fn skip(&self, emptying: &Emptying) -> Emptied {
        self.work.stubborn.borrow_mut().insert(emptying.track);
        Emptied::Skipped
    }

    /// A user has made a request since `seen`, or the volume is being closed.
    fn is_wanted(&self, seen: u64) -> bool {
        self.operations.get() != seen || self.closed.get()
    }

    async fn empty_track(&self, seen: u64) -> FsResult<Emptied> {
        // The device returns older bytes for a block whose write is on its way. After this, none is: what is sent later goes to
        // other tracks, or ends the emptying (M1).
        loop {
            let sent = {
                let state = self.state.borrow();
                if state.stopped.is_some() || state.log.applied >= state.log.next_batch {
                    break;
                }
                state.log.next_batch
            };
            if self.is_wanted(seen) {
                return Ok(Emptied::Interrupted);
            }
            if !self.is_applied(sent).await? {
                return Ok(Emptied::Nothing);
            }
        }
        let Some(emptying) = self.begin_emptying() else { return Ok(Emptied::Nothing) };
        let store = self.state.borrow().log.store.clone();
        let mut found = TrackContents::new(self, seen);
        match store.copy_out(&emptying, &mut found).await {
            Ok(true) => {}
            Ok(false) if found.is_wanted() || !emptying.holds() => return Ok(Emptied::Interrupted),
            Ok(false) => return Ok(Emptied::Nothing),
            // A reader of the block gets the error, and other tracks can still be emptied.
            Err(error) if error.is_of_medium() && !store.is_stopped() => return Ok(self.skip(&emptying)),
            Err(error) => {
                // After a write of unknown effect, nothing is written any more; a read changes nothing.
                if store.is_stopped() {
                    self.state.borrow_mut().stop(&error);
                }
                return Err(FsError::Device(error));
            }
        }
        loop {
            if found.is_wanted() || !emptying.holds() {
                return Ok(Emptied::Interrupted);
            }
            let part = found.part();
            if part.is_empty() {
                break;
            }
            let moved = self.run(|state| move_step(state, &part, &emptying)).await;
            let none = BTreeSet::new();
            found.end_copies(&part, moved.as_ref().map_or(&none, |(_, used)| used));
            let (moved, _) = match moved {
                Err(FsError::Corrupt { .. }) => return Ok(self.skip(&emptying)),
                Err(FsError::Device(error)) if error.is_of_medium() && !store.is_stopped() => {
                    return Ok(self.skip(&emptying));
                }
                other => other?,
            };
            let batch = match moved {
                MoveResult::Batch(batch) => batch,
                MoveResult::Nothing => continue,
                MoveResult::Not => return Ok(Emptied::Interrupted),
            };
            let end = self.send(batch);
            if !self.is_applied(end).await? {
                return Ok(Emptied::Interrupted);
            }
        }
        let number = self.state.borrow().log.applied;
        let is_empty = self.commit(number, Some(&emptying)).await?;
        if !is_empty && emptying.holds() && !found.is_wanted() {
            // The track holds something damaged, or a block without an owner.
            self.work.stubborn.borrow_mut().insert(emptying.track);
        }
        Ok(Emptied::Done)
    }

    fn begin_emptying(&self) -> Option<Emptying> {
        let state = self.state.borrow();
        let log = &state.log;
        if !log.owners.are_kept() || self.closed.get() || state.stopped.is_some() || !state.stalled.is_empty() {
            return None;
        }
        let spare = log.store.free_blocks().checked_sub(log.tight_blocks())?;
        let stubborn = self.work.stubborn.borrow();
        // Each block may have an indirect block of its own. Until the transaction, both versions exist.
        let needs = |used: u64| if 2 * used + HOLES_SPARE > spare { u64::MAX } else { 2 * used + HOLES_SPARE };
        log.store.begin_emptying(needs, |track| !stubborn.contains(&track))
    }

    /// Waits until every batch before `number` is written. False when the storage below has no space for one.
    async fn is_applied(&self, number: u64) -> FsResult<bool> {
        loop {
            let progress = self.log_progress.wait();
            {
                let state = self.state.borrow();
                if let Some(error) = &state.stopped {
                    return Err(FsError::Stopped(error.clone()));
                }
                if state.log.applied >= number || !state.stalled.is_empty() {
                    return Ok(state.log.applied >= number);
                }
            }
            progress.await;
        }
    }
}

/// A data block that was copied.
#[derive(Clone, Copy)]
struct Copied {
    id: BlockId,
    from: u32,
    to: Run,
}

/// A block on the track that has to move.
enum Move {
    Copy(Copied),
    Node(BlockId, u32, Data),
    Inode(Ino, InodeSlot),
    Attributes(Ino),
    /// A file whose next batch writes the block elsewhere anyway.
    File(Ino),
}

impl Move {
    fn ino(&self) -> Ino {
        match self {
            Move::Copy(copied) => copied.id.ino,
            Move::Node(id, ..) => id.ino,
            Move::Inode(ino, _) | Move::Attributes(ino) | Move::File(ino) => *ino,
        }
    }

    /// Groups the blocks of one file in their order, so that they share indirect blocks.
    fn order(&self) -> (Ino, u64) {
        let key = match self {
            Move::Copy(copied) => copied.id.key.0,
            Move::Node(id, ..) => id.key.0,
            _ => 0,
        };
        (self.ino(), key)
    }
}

/// Result of moving a part of a track.
enum MoveResult {
    Batch(Batch),
    /// All of it has been freed or moved already.
    Nothing,
    /// The track has changed, or there is no space.
    Not,
}

/// The blocks of a track, identified as it is read.
struct TrackContents<'a> {
    fs: &'a Vlfs,
    seen: u64,
    /// Owner of the block asked for last.
    asked: std::cell::Cell<Option<BlockId>>,
    moves: Vec<Move>,
}

impl TrackContents<'_> {
    fn new(fs: &Vlfs, seen: u64) -> TrackContents<'_> {
        TrackContents { fs, seen, asked: Default::default(), moves: Vec::new() }
    }

    /// The next blocks to move.
    fn part(&mut self) -> Vec<Move> {
        self.moves.sort_by_key(|found| std::cmp::Reverse(found.order()));
        let left = self.moves.len().saturating_sub(MOVES_AT_ONCE);
        let mut part = self.moves.split_off(left);
        part.reverse();
        part
    }

    /// Keeps the copies that are pointed to now, and frees the others.
    fn end_copies(&self, part: &[Move], used: &BTreeSet<u32>) {
        let mut state = self.fs.state.borrow_mut();
        for found in part {
            let Move::Copy(copied) = found else { continue };
            let is_used = used.contains(&copied.to.first);
            state.log.store.end_copy(copied.to, is_used);
            let was_known = state.log.copies.remove(&copied.to.first);
            debug_assert!(was_known, "B2: a copy ends once");
            state.log.counters.blocks_moved += u64::from(is_used);
        }
    }
}

impl Drop for TrackContents<'_> {
    fn drop(&mut self) {
        self.end_copies(&self.moves, &BTreeSet::new());
    }
}

impl Tenant for TrackContents<'_> {
    fn is_wanted(&self) -> bool {
        self.fs.is_wanted(self.seen) || self.fs.state.borrow().stopped.is_some()
    }

    fn need(&self, block: u32) -> Need {
        let state = self.fs.state.borrow();
        self.asked.set(state.log.owners.get(block));
        match self.asked.get() {
            Some(id) if id.key.is_data() && state.blocks.dirty(id).is_none() => Need::Copy,
            Some(_) => Need::Look,
            None if state.log.store.is_block_free(block) => Need::Nothing,
            // Inodes, pieces of the map, or blocks that the next transaction frees.
            None => Need::Look,
        }
    }

    fn copied(&mut self, block: u32, to: &[Run]) {
        let Some(id) = self.asked.get() else { unreachable!("only what has an owner is copied") };
        for &to in to {
            debug_assert_eq!(to.blocks, 1, "M1: copies are single blocks");
            let is_new = self.fs.state.borrow_mut().log.copies.insert(to.first);
            debug_assert!(is_new, "B2: a block is copied to once");
            self.moves.push(Move::Copy(Copied { id, from: block, to }));
        }
    }

    fn inspect(&mut self, block: u32, bytes: &[u8]) {
        match self.asked.get() {
            Some(id) if id.key == ATTRIBUTES => self.moves.push(Move::Attributes(id.ino)),
            Some(id) if id.key.is_data() => self.moves.push(Move::File(id.ino)),
            Some(id) => self.moves.push(Move::Node(id, block, Data::from_slice(bytes))),
            None => {
                let first = sector_of(block).0 * INODES_PER_SECTOR;
                for (index, raw) in bytes.chunks_exact(Inode::BYTES).enumerate() {
                    if let Some(inode) = Inode::unseal(raw) {
                        self.moves.push(Move::Inode(Ino(inode.ino), InodeSlot(first + index as u64)));
                    }
                }
            }
        }
    }
}

/// Points to the copies, makes the rest dirty, and assembles the batch that records it; also returns which copies are
/// used.
fn move_step(state: &mut State, part: &[Move], emptying: &Emptying) -> Step<(MoveResult, BTreeSet<u32>)> {
    let mut used: Vec<Copied> = Vec::new();
    if !emptying.holds() {
        return Ok((MoveResult::Not, BTreeSet::new())); // M1
    }
    for found in part {
        if let Move::Node(id, block, bytes) = found {
            offer(state, *id, *block, bytes);
        }
    }
    let mut change = Change::new(state);
    for found in part {
        match move_one(&mut change, found) {
            Ok(true) => {
                if let Move::Copy(copied) = found {
                    used.push(*copied);
                }
            }
            // It has been freed or moved already.
            Ok(false) | Err(Stop::Fail(FsError::Stale)) => {}
            Err(stop) => return Err(stop),
        }
    }
    change.commit(ReserveAccess::Internal)?;
    for copied in &used {
        debug_assert!(
            state.log.owners.get(copied.to.first).is_none(),
            "M2: nothing has led to a copy before it is used"
        );
        debug_assert!(state.log.copies.contains(&copied.to.first), "B2: a copy is kept until something leads to it");
        state.log.owners.set(copied.to.first, copied.id);
    }
    let used = used.iter().map(|copied| copied.to.first).collect();
    let files: BTreeSet<Ino> = part.iter().map(Move::ino).collect();
    match assemble(state, Scope::Files(&files), AllocPurpose::FillHole) {
        Ok(batch) => Ok((batch.map_or(MoveResult::Nothing, MoveResult::Batch), used)),
        // What is dirty goes with the next batch.
        Err(Stop::Fail(FsError::NoSpace)) => Ok((MoveResult::Not, used)),
        Err(stop) => Err(stop),
    }
}

/// Adds an indirect block that was read with its track to the cache, where it may be needed.
fn offer(state: &mut State, id: BlockId, block: u32, bytes: &Data) {
    let Ok(Pointer::Mapped { at, crc, .. }) = state.pointer(id) else { return };
    if at == sector_of(block) && codec::crc32c(bytes) == crc && state.blocks.peek(id).is_none() {
        state.blocks.insert_clean(id, bytes.clone());
    }
}

/// False when there is nothing left to do.
fn move_one(change: &mut Change<'_, Virtual>, found: &Move) -> Step<bool> {
    match found {
        Move::Copy(copied) => {
            let old = change.pointer(copied.id)?;
            let Pointer::Mapped { at, sectors, crc } = old else { return Ok(false) };
            if at != sector_of(copied.from) || change.state.blocks.dirty(copied.id).is_some() {
                return Ok(false);
            }
            let new = Pointer::Mapped { at: sector_of(copied.to.first), sectors, crc };
            cover("vlfs: a block moves off a track");
            change.relocate(copied.id, old, new)?;
        }
        Move::Node(id, block, _) => {
            match change.pointer(*id)? {
                Pointer::Mapped { at, .. } if at == sector_of(*block) => {
                    cover("vlfs: an indirect block moves off a track");
                    change.touch(*id)?
                }
                _ => return Ok(false),
            };
        }
        Move::Inode(ino, slot) => {
            if change.state.inode_slot(*ino)? != *slot {
                return Ok(false);
            }
            cover("vlfs: an inode moves off a track");
            change.inode_mut(*ino, InodeDirt::Own)?;
        }
        Move::Attributes(ino) => {
            let same = change.xattr(*ino)?;
            change.set_xattr(*ino, same)?;
        }
        Move::File(_) => {}
    }
    Ok(true)
}

fn sector_of(block: u32) -> Sector {
    Sector(u64::from(block) * BLOCK_SECTORS)
}
