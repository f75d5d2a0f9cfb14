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
//! What cannot move, because its place is fixed: blocks of inodes and of groups. With soft updates, an indirect block to which
//! the volume may already point stays, too.

use std::collections::{BTreeMap, BTreeSet};

use super::Ffs;
use super::alloc::Promise;
use super::cache::BufferKind;
use super::format::*;
use super::state::*;
use super::{Metadata, soft::Holder};
use crate::device::DeviceError;
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
#[derive(Clone, Copy)]
struct Move {
    ino: InodeNo,
    position: Position,
    from: FragNo,
    to: FragNo,
    frags: u32,
}

/// Result of a search in the tree of a file.
enum Found {
    Here(Position),
    /// It is not before this block, where the next step continues.
    Until(u64),
    Nowhere,
}

impl State {
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

    /// Reserves a block for what moves, from the reserve, too: its old place will be free.
    fn promise_move(&mut self, ino: InodeNo) -> Step<()> {
        match self.totals.nbfree > self.promised_blocks {
            true => self.promise_kept(ino, 1),
            false => fail(FsError::NoSpace),
        }
    }

    /// Copies what was refused at `from` to a place that has storage. `None` if it is no longer there, or cannot move.
    fn copy_refused(&mut self, ino: InodeNo, position: Position, from: FragNo) -> Step<Option<Move>> {
        if self.pointer_to(ino, position)?.is_none_or(|pointer| pointer.at != from) {
            return Ok(None);
        }
        let Some(buffer) = self.cache.peek(from).filter(|buffer| buffer.dirty.is_some()) else { return Ok(None) };
        let (data, kind) = (buffer.data.clone(), buffer.kind);
        let is_indirect = matches!(kind, BufferKind::Indirect { .. });
        // The volume must not lead to what the old version has when that is free.
        if is_indirect && self.soft.as_deref().is_some_and(|soft| !soft.is_fresh(from)) {
            return Ok(None);
        }
        let frags = (data.len() / self.layout.frag_bytes as usize) as u32;
        let to = self.take_frags(ino, from, frags)?;
        self.cache.create(to, data, kind);
        match is_indirect {
            true => self.note_moved_indirect(ino, to),
            false => self.note_taken(to),
        }
        Ok(Some(Move { ino, position, from, to, frags }))
    }

    /// Makes the file lead to the copy.
    fn lead_to_copy(&mut self, it: Move) -> Step<()> {
        let Move { ino, position, from, to, frags } = it;
        let Some(Pointer { holder, at }) = self.pointer_to(ino, position)? else { return fail(FsError::Stale) };
        debug_assert_eq!(at, from, "U2: the file has not changed since it was copied");
        let Some(path) = self.layout.path(position.lbn) else { return fail(FsError::Stale) };
        let holders: Vec<Holder> = holder.iter().map(|&(holder, slot)| (holder, slot..slot + 1)).collect();
        match &holders[..] {
            [(holder, slots)] => self.put_pointers(ino, *holder, slots.clone(), to)?,
            _ if path.depth == 0 => self.inode_mut(ino)?.db[path.slot] = to,
            _ => self.inode_mut(ino)?.ib[path.slot] = to,
        }
        self.cache.take_over(from, to);
        match self.soft.is_some() {
            true => self.free_later(ino, holder.is_none(), &holders, vec![(from, frags)]),
            false => self.leave_behind(ino, from, frags),
        }
        match (position.level < path.depth, frags < self.layout.frag) {
            (true, _) => cover("ffs: an indirect block without storage moves"),
            (_, true) => cover("ffs: a tail without storage moves"),
            _ => cover("ffs: a block without storage moves"),
        }
        Ok(())
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

impl Ffs {
    /// Moves what was refused, of one file or of all, to blocks that have storage. Returns whether anything has moved; `moved` has
    /// what an operation has moved, which it does not move again. No lock may be held.
    pub(super) async fn move_refused(&self, only: Option<InodeNo>, moved: &mut BTreeSet<FragNo>) -> FsResult<bool> {
        let before = moved.len();
        let files = self.state.borrow().refused(only, moved);
        for (ino, places) in files {
            let _inode = self.locks.alone(ino).await;
            match self.move_refused_of(ino, places, moved).await {
                Ok(()) => {}
                Err(FsError::NoSpace) => break,
                // The file is gone, or a block of it cannot be read; others can move nevertheless.
                Err(error) if error == FsError::Stale || error.is_of_one_place() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(moved.len() > before)
    }

    async fn move_refused_of(&self, ino: InodeNo, places: Vec<FragNo>, moved: &mut BTreeSet<FragNo>) -> FsResult<()> {
        let copies_first = self.options.metadata == Metadata::Sync;
        let (mut copies, mut ended) = (Vec::new(), Ok(()));
        for from in places {
            match self.begin_move(ino, from, copies_first).await {
                Ok(Some(copy)) if copies_first => copies.push(copy),
                Ok(Some(copy)) => drop(moved.insert(copy.to)),
                Ok(None) => {}
                Err(error) => {
                    ended = Err(error);
                    break;
                }
            }
        }
        if copies.is_empty() {
            return ended;
        }
        // Some of them may be on the volume in an older version, which was synced.
        let places: Vec<FragNo> = copies.iter().map(|copy| copy.to).collect();
        let written = self.write_run_in_order(&places).await;
        for copy in copies {
            let led = match &written {
                Ok(()) => self.step(|state| state.lead_to_copy(copy)).await,
                Err(error) => Err(error.clone()),
            };
            match led {
                Ok(()) => drop(moved.insert(copy.to)),
                Err(error) => {
                    self.step(|state| state.free_frags(copy.to, copy.frags)).await?;
                    ended = ended.and(Err(error));
                }
            }
        }
        ended
    }

    /// Copies one block; and unless the copy has to be written first, makes the file lead to it.
    async fn begin_move(&self, ino: InodeNo, from: FragNo, copies_first: bool) -> FsResult<Option<Move>> {
        let Some(position) = self.position_of(ino, from).await? else { return Ok(None) };
        let _promise = {
            let _pass = self.backing_gate.enter().await;
            self.stock(ino, 1).await?;
            self.step(|state| state.promise_move(ino)).await?;
            Promise { ffs: self, ino }
        };
        self.step(|state| {
            let copy = state.copy_refused(ino, position, from)?;
            if let Some(copy) = copy
                && !copies_first
            {
                state.lead_to_copy(copy)?;
            }
            Ok(copy)
        })
        .await
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
