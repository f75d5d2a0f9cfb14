//! Data that the storage below has refused moves to blocks that have storage there.
//!
//! A write is accepted into memory when the volume has blocks for it. Their storage can turn out to be missing when they are
//! written back: in an image file with holes, on a host that has become full. Files that are deleted then leave blocks with
//! storage (see `provision`), and what was refused takes these, so that it can be written after all. A sync and an update
//! attempt that for all files, an fsync for its file.
//!
//! The order is that of any data that moves. With synchronous metadata the copy is on the volume before a pointer leads to it.
//! With soft updates the image of the pointer waits for the copy. In all modes the old place is free when the volume no longer
//! points to it.
//!
//! Invariants
//!   R1  What leads to the copy of a block is the present version of its indirect block. So indirect blocks move before what is
//!       below them, one level after the other; and a copy that differs from the buffer by the time that it is to take its place is
//!       given up.
//!   R2  As long as the volume may lead to something that a file has left behind, through an old indirect block, what the file
//!       loses is left behind, too.
//!   R3  With synchronous metadata, a name in a block that has moved is acknowledged when the volume leads to the new place: the
//!       directory counts as grown from there (see `grown`).
//!   R4  With soft updates, a sync succeeds when the inodes of which something has moved have been settled under their locks
//!       since. Without the locks, other clients that append can keep an image with the old pointers.
//!
//! What cannot move, because its place is fixed: blocks of inodes and of groups. With soft updates, an indirect block to which
//! the volume may already point stays, too.

use std::collections::{BTreeMap, BTreeSet};

use super::Ffs;
use super::Metadata;
use super::alloc::Promise;
use super::cache::{Buffer, BufferKind};
use super::format::*;
use super::soft::{Holder, is_of_space, put_off_here};
use super::state::*;
use crate::device::{Data, DeviceError};
use crate::fs::{FsError, FsResult};
use crate::rt::cover;

/// Indirect blocks that one step looks at.
const LOOKED_AT_MAX: u64 = 1024;

/// Files that a message names.
const NAMED_MAX: usize = 3;

/// A block in the tree of a file: on the way to block `lbn`, below so many indirect blocks.
#[derive(Clone, Copy, Debug)]
struct Position {
    lbn: u64,
    level: usize,
}

/// A pointer of a file.
struct Pointer {
    /// The indirect block that has it, and the slot there; `None` for the inode.
    holder: Option<(FragNo, usize)>,
    /// Where it leads.
    at: FragNo,
}

/// A block that was refused, and its copy.
struct Move {
    ino: InodeNo,
    position: Position,
    from: FragNo,
    to: FragNo,
    frags: u32,
    /// What was copied.
    data: Data,
    /// When the buffer at `from` had become dirty.
    since: u64,
}

/// What an operation has moved.
pub(super) struct Moves {
    begun: u64,
    /// The copies. They do not move again in the same operation.
    places: BTreeSet<FragNo>,
    /// Whether anything has moved in this attempt that was dirty when the operation began.
    has_old: bool,
    /// How many more attempts may move only what has become dirty since: other clients can write without end.
    young_left: usize,
}

impl Moves {
    /// For an operation that began at `begun`.
    pub(super) fn new(begun: u64) -> Moves {
        // When a block moves, an indirect block becomes dirty, which may be refused itself, and so on, level by level.
        Moves { begun, places: BTreeSet::new(), has_old: false, young_left: INDIRECT + 1 }
    }

    fn note(&mut self, it: &Move) {
        self.places.insert(it.to);
        self.has_old |= it.since <= self.begun;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

/// Result of a search in the tree of a file.
enum Found {
    Here(Position),
    /// It is not before this block, where the next step continues.
    Until(u64),
    Nowhere,
}

impl State {
    /// Whether any buffer, not only of files, has been refused since then and is still dirty.
    pub(super) fn has_refused_since(&self, since: u64) -> bool {
        self.cache.has_failed_since(&self.cache.dirty_until(u64::MAX), since)
    }

    /// The buffers of files, of one or of all, whose last write was refused, without those that have been moved there.
    fn refused(&self, only: Option<InodeNo>, moved: &BTreeSet<FragNo>) -> BTreeMap<InodeNo, Vec<FragNo>> {
        let dirty = match only {
            Some(ino) => self.cache.dirty_of(ino),
            None => self.cache.dirty_until(u64::MAX),
        };
        let mut found: BTreeMap<InodeNo, Vec<FragNo>> = BTreeMap::new();
        for at in dirty {
            let Some(buffer) = self.cache.peek(at) else { continue };
            let (owner, frags) = (buffer.kind.owner(), (buffer.data.len() / self.layout.frag_bytes as usize) as u32);
            // Any other error would have stopped the volume.
            let was_refused = buffer.failed > 0 && !self.cache.is_in_flight(at, frags);
            if was_refused && owner != InodeNo::NONE && !moved.contains(&at) {
                found.entry(owner).or_default().push(at);
            }
        }
        found
    }

    /// The pointer to a block of a file; `None` where no indirect block leads to it.
    fn pointer_to(&mut self, ino: InodeNo, position: Position) -> Step<Option<Pointer>> {
        let Position { lbn, level } = position;
        let inode = self.inode(ino)?.inode;
        let Some(path) = self.layout.path(lbn).filter(|_| !inode.has_no_blocks(self.layout.maxsymlinklen)) else {
            return Ok(None);
        };
        debug_assert!(level <= path.depth, "a block is below no more indirect blocks than lead to data");
        let mut pointer =
            Pointer { holder: None, at: if path.depth == 0 { inode.db[path.slot] } else { inode.ib[path.slot] } };
        for &slot in &path.slots[..level] {
            let Some(indirect) = self.check_pointer(ino, lbn, pointer.at, self.layout.frag)? else { return Ok(None) };
            let block = self.buffer(indirect, self.layout.frag, BufferKind::Indirect { ino })?;
            pointer = Pointer { holder: Some((indirect, slot)), at: pointer_in(&block, slot) };
        }
        Ok(Some(pointer))
    }

    /// Searches for an indirect block of a file in the tree above block `lbn` and those behind it.
    fn find_indirect(&mut self, ino: InodeNo, wanted: FragNo, lbn: u64) -> Step<Found> {
        let end = self.inode(ino)?.inode.size.div_ceil(self.block_bytes());
        let mut lbn = lbn.max(DIRECT as u64);
        for _ in 0..LOOKED_AT_MAX {
            let Some(path) = self.layout.path(lbn).filter(|_| lbn < end) else { return Ok(Found::Nowhere) };
            let mut below = 1;
            for level in 0..path.depth {
                let position = Position { lbn, level };
                match self.pointer_to(ino, position)? {
                    Some(pointer) if pointer.at == wanted => return Ok(Found::Here(position)),
                    Some(pointer) if pointer.at != FragNo::NONE => {}
                    _ => {
                        below = path.depth - level;
                        break;
                    }
                }
            }
            let (first, span) = (self.layout.indirect_first(path.slot), self.layout.span(below));
            lbn = first + ((lbn - first) / span + 1) * span;
        }
        Ok(Found::Until(lbn))
    }

    /// Copies what was refused at `from` to a place that has storage. `None` if it is no longer there, or cannot move.
    fn copy_refused(&mut self, ino: InodeNo, position: Position, from: FragNo) -> Step<Option<Move>> {
        if self.pointer_to(ino, position)?.is_none_or(|pointer| pointer.at != from) {
            return Ok(None);
        }
        let Some(buffer) = self.cache.peek(from) else { return Ok(None) };
        let Some(since) = buffer.dirty else { return Ok(None) };
        let (data, kind) = (buffer.data.clone(), buffer.kind);
        let is_indirect = matches!(kind, BufferKind::Indirect { .. });
        // The volume must not lead to what the old version has when that is free.
        if is_indirect && self.soft.as_deref().is_some_and(|soft| !soft.is_fresh(from)) {
            return Ok(None);
        }
        let frags = (data.len() / self.layout.frag_bytes as usize) as u32;
        let to = self.take_frags(ino, from, frags)?;
        self.cache.create(to, data.clone(), kind);
        match is_indirect {
            true => self.note_moved_indirect(ino, to),
            false => self.note_taken(to),
        }
        Ok(Some(Move { ino, position, from, to, frags, data, since }))
    }

    /// Makes the file lead to the copy. False, without any change, if that is not what the file has there now (R1), or if the old
    /// place has found room.
    fn lead_to_copy(&mut self, it: &Move) -> Step<bool> {
        let &Move { ino, position, from, to, frags, ref data, .. } = it;
        let Some(Pointer { holder, at }) = self.pointer_to(ino, position)? else { return Ok(false) };
        let Some(path) = self.layout.path(position.lbn) else { return Ok(false) };
        let is_same = |buffer: &Buffer| (buffer.dirty.is_some() || buffer.in_flight) && buffer.data[..] == data[..];
        if at != from || !self.cache.peek(from).is_some_and(is_same) {
            return Ok(false);
        }
        self.inode(ino)?;
        let holders: Vec<Holder> = holder.iter().map(|&(holder, slot)| (holder, slot..slot + 1)).collect();
        match &holders[..] {
            [(holder, slots)] => self.put_pointers(ino, *holder, slots.clone(), to)?,
            _ if path.depth == 0 => self.inode_mut(ino)?.db[path.slot] = to,
            _ => self.inode_mut(ino)?.ib[path.slot] = to,
        }
        let is_data = position.level == path.depth;
        if is_data && self.inode(ino)?.inode.is_directory() {
            self.note_growing(ino, position.lbn * self.block_bytes()); // R3
        }
        self.cache.take_over(from, to);
        match self.soft.is_some() {
            true => {
                self.note_relocated(ino, from, to);
                self.free_later(ino, holder.is_none(), &holders, vec![(from, frags)]);
            }
            false => self.leave_behind(ino, from, frags),
        }
        match (is_data, frags < self.layout.frag) {
            (false, _) => cover("ffs: an indirect block without storage moves"),
            (_, true) => cover("ffs: a tail without storage moves"),
            _ => cover("ffs: a block without storage moves"),
        }
        Ok(true)
    }

    /// Whether a copy has been written as it is. It may have left memory since.
    fn is_written(&self, at: FragNo) -> bool {
        self.cache.peek(at).is_none_or(|copy| copy.dirty.is_none() && !copy.in_flight && copy.failed == 0)
    }

    /// Gives up a copy to which nothing leads. It is free after the next update, since its group may not be in memory.
    fn give_up_copy(&mut self, it: &Move) {
        cover("ffs: a copy of what was refused is given up");
        self.cache.forget(it.to, it.frags);
        self.leave_behind(it.ino, it.to, it.frags);
    }

    /// The files that have data without storage, for a message: a few by name, and how many there are.
    fn without_room(&self) -> (Vec<String>, usize) {
        let refused = self.cache.dirty_until(u64::MAX).into_iter().filter_map(|at| self.cache.peek(at));
        let owners: BTreeSet<InodeNo> =
            refused.filter(|buffer| buffer.failed > 0).map(|buffer| buffer.kind.owner()).collect();
        let owners: Vec<InodeNo> = owners.into_iter().filter(|&owner| owner != InodeNo::NONE).collect();
        let named = owners.iter().take(NAMED_MAX).map(|&ino| match self.known_path(ino) {
            Some(path) => format!("{path} (inode {})", outer(ino).0),
            None => format!("inode {}", outer(ino).0),
        });
        (named.collect(), owners.len())
    }

    /// A path of the inode, if all names that it takes are in memory.
    fn known_path(&self, ino: InodeNo) -> Option<String> {
        let mut path = String::new();
        let mut at = ino;
        while at != ROOT_INO {
            if path.len() > PATH_BYTES_MAX {
                return None; // Or a damaged volume has a cycle.
            }
            let (dir, name) = self.inodes.numbers(|known| known.index.is_some()).into_iter().find_map(|dir| {
                let index = self.inodes.get(&dir)?.index.as_deref()?;
                Some((dir, index.name_of(at)?))
            })?;
            path = format!("/{}{path}", String::from_utf8_lossy(name).escape_debug());
            at = dir;
        }
        Some(path).filter(|path| !path.is_empty())
    }
}

/// Longer paths are not shown.
const PATH_BYTES_MAX: usize = 300;

/// Copies that are being written. Those that are left when this is dropped are given up.
struct Copies<'a> {
    ffs: &'a Ffs,
    copies: Vec<Move>,
}

impl Drop for Copies<'_> {
    fn drop(&mut self) {
        if let Ok(mut state) = self.ffs.state.try_borrow_mut() {
            self.copies.iter().for_each(|copy| state.give_up_copy(copy));
        }
    }
}

impl Ffs {
    /// Moves what was refused, of one file or of all, to blocks that have storage. Returns whether it is worth trying again to
    /// write. No lock may be held.
    pub(super) async fn move_refused(&self, only: Option<InodeNo>, moves: &mut Moves) -> FsResult<bool> {
        let before = moves.places.len();
        moves.has_old = false;
        let files = self.state.borrow().refused(only, &moves.places);
        let listed: Vec<FragNo> = files.values().flatten().copied().collect();
        for (ino, places) in files {
            let _inode = self.locks.alone(ino).await;
            match self.move_refused_of(ino, places, moves).await {
                Ok(()) | Err(FsError::Device(DeviceError::NoSpace { .. })) => {}
                Err(FsError::NoSpace) => break,
                // The file is gone, or a block of it cannot be read; others can move nevertheless.
                Err(error) if error == FsError::Stale || error.is_of_one_place() => {}
                Err(error) => return Err(error),
            }
        }
        if moves.has_old {
            return Ok(true);
        }
        // Another task may have moved, written or removed what was refused.
        let still = |state: &State| listed.iter().all(|at| state.cache.has_failed_since(&[*at], 0));
        let has_changed = moves.places.len() > before || !still(&self.state.borrow());
        if has_changed && moves.young_left > 0 {
            moves.young_left -= 1;
            return Ok(true);
        }
        Ok(false)
    }

    async fn move_refused_of(&self, ino: InodeNo, places: Vec<FragNo>, moves: &mut Moves) -> FsResult<()> {
        let (mut found, mut ended) = (Vec::new(), Ok(()));
        for from in places {
            match self.position_of(ino, from).await {
                Ok(position) => found.extend(position.map(|position| (position, from))),
                Err(error) => ended = ended.and(Err(error)),
            }
        }
        // R1: an indirect block is above what it leads to.
        found.sort_by_key(|(position, _)| position.level);
        for level in found.chunk_by(|(one, _), (other, _)| one.level == other.level) {
            let moved = match self.options.metadata {
                Metadata::Sync => self.move_in_order(ino, level, moves).await,
                Metadata::Async | Metadata::Softdep => self.move_at_once(ino, level, moves).await,
            };
            let goes_on = moved.is_ok() || is_of_space(&moved);
            ended = ended.and(moved);
            if !goes_on {
                break;
            }
        }
        if self.options.metadata == Metadata::Sync && self.state.borrow().grown.contains_key(&ino) {
            // R3. Where it finds no room, each new name waits for it.
            ended = ended.and(self.write_inode_in_order_or_later(ino).await);
        }
        ended
    }

    /// Moves blocks of a file that have the same level.
    async fn move_at_once(&self, ino: InodeNo, blocks: &[(Position, FragNo)], moves: &mut Moves) -> FsResult<()> {
        for &(position, from) in blocks {
            let _promise = self.promise_move(ino).await?;
            let moved = self.step(|state| {
                let Some(copy) = state.copy_refused(ino, position, from)? else { return Ok(None) };
                if state.lead_to_copy(&copy)? {
                    return Ok(Some(copy));
                }
                debug_assert!(false, "R1: nothing has changed since it was copied");
                state.give_up_copy(&copy);
                Ok(None)
            });
            moved.await?.iter().for_each(|copy| moves.note(copy));
        }
        Ok(())
    }

    /// The same, with copies that are on the volume before anything leads to them: some of the blocks may be on the volume in an
    /// older version, which was synced. A copy that is refused keeps no other from taking its place.
    async fn move_in_order(&self, ino: InodeNo, blocks: &[(Position, FragNo)], moves: &mut Moves) -> FsResult<()> {
        let mut written = Copies { ffs: self, copies: Vec::new() };
        let mut ended = Ok(());
        for &(position, from) in blocks {
            let copied = match self.promise_move(ino).await {
                Ok(_promise) => self.step(|state| state.copy_refused(ino, position, from)).await,
                Err(error) => Err(error),
            };
            match copied {
                Ok(copy) => written.copies.extend(copy),
                Err(error) => {
                    ended = Err(error);
                    break;
                }
            }
        }
        if written.copies.is_empty() {
            return ended;
        }
        let places: Vec<FragNo> = written.copies.iter().map(|copy| copy.to).collect();
        let durable = self.write_copies(&places).await?;
        while let Some(copy) = written.copies.last() {
            let is_led_to = match durable.contains(&copy.to) {
                true => self.step(|state| state.lead_to_copy(copy)).await,
                false => Ok(false),
            };
            let Some(copy) = written.copies.pop() else { break };
            match is_led_to {
                Ok(true) => moves.note(&copy),
                Ok(false) => self.state.borrow_mut().give_up_copy(&copy),
                Err(error) => {
                    self.state.borrow_mut().give_up_copy(&copy);
                    ended = ended.and(Err(error));
                }
            }
        }
        ended
    }

    /// Makes those copies durable that find room, and returns them.
    async fn write_copies(&self, places: &[FragNo]) -> FsResult<BTreeSet<FragNo>> {
        let since = {
            let mut state = self.state.borrow_mut();
            state.counters.ordered_writes += 1;
            state.cache.tick()
        };
        self.push(places.to_vec(), true);
        let dirty = |state: &State| {
            let is_dirty = |at: &FragNo| state.cache.peek(*at).is_some_and(|copy| copy.dirty.is_some());
            places.iter().copied().filter(is_dirty).collect()
        };
        put_off_here(&mut Ok(()), self.write_all_possible(since, dirty).await)?;
        // One that another task writes later is not in this flush.
        let written = {
            let state = self.state.borrow();
            places.iter().copied().filter(|&at| state.is_written(at)).collect()
        };
        self.flush().await?;
        Ok(written)
    }

    /// Reserves a block for what moves, from the reserve, too: its old place will be free.
    async fn promise_move(&self, ino: InodeNo) -> FsResult<Promise<'_>> {
        let _pass = self.backing_gate.enter().await;
        self.stock(ino, 1).await?;
        let promised = self.step(|state| match state.totals.nbfree > state.promised_blocks {
            true => state.promise_kept(ino, 1),
            false => fail(FsError::NoSpace),
        });
        promised.await?;
        Ok(Promise { ffs: self, ino })
    }

    /// Where a buffer is in its file.
    async fn position_of(&self, ino: InodeNo, at: FragNo) -> FsResult<Option<Position>> {
        let kind = self.state.borrow().cache.peek(at).map(|buffer| buffer.kind);
        let mut lbn = match kind.filter(|kind| kind.owner() == ino) {
            Some(BufferKind::File { lbn, .. } | BufferKind::Directory { lbn, .. }) => {
                let path = self.state.borrow().layout.path(lbn);
                return Ok(path.map(|path| Position { lbn, level: path.depth }));
            }
            Some(BufferKind::Indirect { .. }) => 0,
            _ => return Ok(None),
        };
        loop {
            match self.step(|state| state.find_indirect(ino, at, lbn)).await? {
                Found::Here(position) => return Ok(Some(position)),
                Found::Until(further) => lbn = further,
                Found::Nowhere => return Ok(None),
            }
            self.rt.yield_now().await; // The caller's lock keeps the file as it is.
        }
    }

    /// Names the files without room in an error of a sync.
    pub(super) fn explain(&self, error: FsError) -> FsError {
        let FsError::Device(DeviceError::NoSpace { .. }) = error else { return error };
        let (named, count) = self.state.borrow().without_room();
        if named.is_empty() {
            return error;
        }
        let more = match count - named.len() {
            0 => String::new(),
            1 => " and one more file".into(),
            more => format!(" and {more} more files"),
        };
        let what = format!("what was written to {}{more}", named.join(", "));
        FsError::NoSpaceBelow(format!("{what}; delete these or other files, or make room below, and sync again"))
    }
}
