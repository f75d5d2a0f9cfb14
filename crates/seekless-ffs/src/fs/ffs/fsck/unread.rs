//! Parts of a volume that cannot be read: what they hold, and what a check does about them.
//!
//! Such a part may be readable tomorrow, or in the copy that a rescue program makes. So a repair never writes it, and keeps
//! everything that it may explain:
//!
//!   1. Inodes that cannot be read keep their numbers and their names.
//!   2. A file whose indirect block cannot be read keeps its blocks and its size, and is not freed.
//!   3. As long as either is unknown, a fragment that the maps count as used stays used. A group whose maps cannot be read
//!      either has none to give.
//!   4. As long as names are unknown, no count of links is lowered. What has links but no known name is not freed, and gets no
//!      other name.
//!
//! What a repair cannot write is treated in the same way, although it can be read (see `writing`).
//!
//! What becomes unreadable while the check runs is known too late for these rules. If a repair was to change it, the check begins
//! again, and counts it as unreadable from the beginning.
//!
//! Maps, counts and copies that follow from the rest are restored. A volume with unreadable parts does not get the flag of a
//! closed one, so that every mount checks whether they are back. Without the inode of the root, a check ends; without the rest of its
//! block, or any name of the root, a mount does.
//!
//! Considered: to clear what cannot be read, as `fsck_ffs` does. That gives blocks away, and names, though a bad cable may be the
//! cause. A copy by a rescue program has zeroes there, which a repair treats as damage: that is how a user gives them up.
//!
//! Limit: with `metadata=sync` and `async` the maps are written later than inodes. After a power cut they may lack what an unreadable
//! inode got in the last seconds before it, and others may get that. When the inode is back, `share_out` leaves it to them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::super::format::*;
use super::super::group;
use super::{Cause, Check, Name, PROBLEMS_MAX};
use crate::device::DeviceError;
use crate::fs::{FsError, FsResult};
use crate::units::{SECTOR_BYTES, Sector};

/// What an unreadable part holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Holds {
    /// So many inodes from this one on.
    Inodes(InodeNo, u32),
    /// Pointers of an inode.
    Pointers(InodeNo),
    /// Names of a directory, from this byte on.
    Names(InodeNo, u64),
}

/// One or more blocks of the device.
struct Part {
    end: Sector,
    error: DeviceError,
    /// It can be read, but not written.
    is_unwritten: bool,
    /// As the last round has found.
    holds: Option<Holds>,
}

/// Neighbouring parts.
struct Run {
    start: Sector,
    end: Sector,
    error: DeviceError,
    is_unwritten: bool,
    holds: Holds,
}

/// See the head of the file.
#[derive(Default)]
pub(super) struct Unread {
    /// By first sector. A repair does not write them.
    parts: RefCell<BTreeMap<Sector, Part>>,
    pub(super) inodes: BTreeSet<InodeNo>,
    /// Inodes of which blocks are unknown.
    pub(super) files: BTreeSet<InodeNo>,
    /// Names of directories are unknown.
    names_hidden: bool,
    /// A repair has left out unreadable sectors.
    left_out: Cell<bool>,
    /// A bit for each fragment that stays used although no known file has it.
    held: Vec<u8>,
    /// A name of each inode that cannot be read, as far as there is one.
    named: BTreeMap<InodeNo, String>,
    /// Inodes that are left because names, or blocks of theirs, are unknown.
    waiting: u64,
}

impl Unread {
    /// The unreadable parts, for another attempt at the check: a sector that has failed once counts as unreadable.
    pub(super) fn carried_over(self) -> Unread {
        Unread { parts: self.parts, ..Unread::default() }
    }

    /// Begins a round of the check.
    pub(super) fn begin_round(&mut self) {
        self.parts.get_mut().values_mut().for_each(|part| part.holds = None);
        self.inodes.clear();
        self.files.clear();
        self.names_hidden = false;
    }

    pub(super) fn note(&self, lost: Vec<(Range<Sector>, DeviceError)>) {
        self.note_parts(lost, false);
    }

    pub(super) fn note_unwritten(&self, unwritten: Vec<(Range<Sector>, DeviceError)>) {
        self.note_parts(unwritten, true);
    }

    fn note_parts(&self, found: Vec<(Range<Sector>, DeviceError)>, is_unwritten: bool) {
        let mut parts = self.parts.borrow_mut();
        for (range, error) in found {
            parts.entry(range.start).or_insert(Part { end: range.end, error, is_unwritten, holds: None });
        }
    }

    /// The unreadable bytes among `bytes` from `at` on.
    pub(super) fn ranges(&self, at: Sector, bytes: usize) -> Vec<Range<usize>> {
        let end = at + bytes as u64 / SECTOR_BYTES;
        let parts = self.parts.borrow();
        // They do not overlap, so their ends are in order too.
        let touching = parts.range(..end).rev().take_while(|(_, part)| at < part.end);
        let within = |sector: Sector| ((sector.clamp(at, end) - at) * SECTOR_BYTES) as usize;
        let mut ranges: Vec<Range<usize>> = touching.map(|(&start, part)| within(start)..within(part.end)).collect();
        ranges.reverse();
        ranges
    }

    /// Whether any of these sectors is unreadable.
    pub(super) fn touches(&self, at: Sector, sectors: u64) -> bool {
        !self.ranges(at, (sectors * SECTOR_BYTES) as usize).is_empty()
    }

    /// The error of a part among `bytes` from `at` on of which no round has found what it holds.
    fn unexplained(&self, at: Sector, bytes: usize) -> Option<DeviceError> {
        let end = at + bytes as u64 / SECTOR_BYTES;
        let parts = self.parts.borrow();
        let mut touching = parts.range(..end).rev().take_while(|(_, part)| at < part.end);
        touching.find(|(_, part)| part.holds.is_none()).map(|(_, part)| part.error.clone())
    }

    /// The parts that hold something. Neighbours that hold more of the same are one run.
    fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (&start, part) in self.parts.borrow().iter() {
            let Some(holds) = part.holds else { continue };
            match runs.last_mut().filter(|run| run.end == start && run.is_unwritten == part.is_unwritten) {
                Some(Run { end, holds: Holds::Inodes(first, count), .. })
                    if let Holds::Inodes(next, more) = holds
                        && *first + *count == next =>
                {
                    (*end, *count) = (part.end, *count + more);
                }
                Some(Run { end, holds: Holds::Pointers(ino), .. }) if holds == Holds::Pointers(*ino) => *end = part.end,
                Some(Run { end, holds: Holds::Names(ino, _), .. })
                    if let Holds::Names(next, _) = holds
                        && *ino == next =>
                {
                    *end = part.end;
                }
                _ => {
                    let (end, error) = (part.end, part.error.clone());
                    runs.push(Run { start, end, error, is_unwritten: part.is_unwritten, holds });
                }
            }
        }
        runs
    }

    fn holds(&mut self, at: Sector, holds: Holds) {
        if let Some((_, part)) = self.parts.get_mut().range_mut(..=at).next_back().filter(|(_, part)| at < part.end) {
            part.holds = Some(holds);
        }
    }

    /// Whether a repair leaves these sectors out, because any of them is unreadable.
    pub(super) fn leaves_out(&self, at: Sector, sectors: u64) -> bool {
        let leaves_out = self.touches(at, sectors);
        self.left_out.set(self.left_out.get() || leaves_out);
        leaves_out
    }

    /// These sectors get new content, and the parts in them no longer matter.
    pub(super) fn give_up(&mut self, at: Sector, bytes: usize) {
        let end = at + bytes as u64 / SECTOR_BYTES;
        self.parts.get_mut().retain(|&start, part| start >= end || part.end <= at);
    }

    /// Whether anything stays that cannot be read.
    pub(super) fn remains(&self) -> bool {
        self.left_out.get() || self.parts.borrow().values().any(|part| part.holds.is_some())
    }

    /// Whether blocks of files are unknown.
    fn hides_blocks(&self) -> bool {
        !self.inodes.is_empty() || !self.files.is_empty()
    }

    /// Whether names are unknown: any of the inodes may be a directory.
    pub(super) fn hides_names(&self) -> bool {
        self.names_hidden || !self.inodes.is_empty()
    }

    /// See [`Unread::held`], the field; empty where no fragment is.
    pub(super) fn held(&self) -> &[u8] {
        &self.held
    }

    pub(super) fn is_held(&self, at: FragNo) -> bool {
        !self.held.is_empty() && group::bit(&self.held, at.0)
    }
}

/// Whether any of the ranges has a part of `range`.
pub(super) fn overlap(ranges: &[Range<usize>], range: &Range<usize>) -> bool {
    ranges.iter().any(|one| one.start < range.end && range.start < one.end)
}

impl Check<'_> {
    /// The device's error for a part of a repaired block that could be read when the check drew its conclusions, and cannot be read
    /// any more. The repair of that part would be left out, but not what follows from it: its space would be given away.
    pub(super) fn lost_since(&self) -> Option<DeviceError> {
        self.changed.iter().find_map(|(&at, bytes)| self.unread.unexplained(self.layout.sector(at), bytes.len()))
    }

    /// Notes which inodes of a block of inodes cannot be read. Returns their bytes.
    pub(super) fn note_inodes(&mut self, first: InodeNo, at: FragNo, bytes: usize) -> Vec<Range<usize>> {
        let sector = self.layout.sector(at);
        let lost = self.unread.ranges(sector, bytes);
        for range in &lost {
            let (start, end) = (range.start / Inode::BYTES, range.end.div_ceil(Inode::BYTES));
            let inodes = first + start as u32..first + end as u32;
            self.unread.holds(
                sector + range.start as u64 / SECTOR_BYTES,
                Holds::Inodes(inodes.start, inodes.end.0 - inodes.start.0),
            );
            self.unread.inodes.extend(inodes.start.until(inodes.end).filter(|&ino| ino >= ROOT_INO));
        }
        lost
    }

    /// Notes that pointers of an inode cannot be read.
    pub(super) fn note_pointers(&mut self, ino: InodeNo, at: FragNo, bytes: usize) {
        let sector = self.layout.sector(at);
        for range in self.unread.ranges(sector, bytes) {
            self.unread.holds(sector + range.start as u64 / SECTOR_BYTES, Holds::Pointers(ino));
            self.unread.files.insert(ino);
        }
    }

    /// Notes which names in a directory's block cannot be read. `start` is the block's first byte in the directory, `bytes` how many
    /// the directory has there. Returns the unreadable bytes of the block.
    pub(super) fn note_names(&mut self, ino: InodeNo, at: FragNo, start: u64, bytes: usize) -> Vec<Range<usize>> {
        let sector = self.layout.sector(at);
        let lost = self.unread.ranges(sector, bytes);
        for range in &lost {
            let holds = Holds::Names(ino, start + range.start as u64);
            self.unread.holds(sector + range.start as u64 / SECTOR_BYTES, holds);
        }
        self.unread.names_hidden |= !lost.is_empty();
        lost
    }

    /// Notes that an address of a directory's block cannot be read.
    pub(super) fn note_hidden_names(&mut self) {
        self.unread.names_hidden = true;
    }

    /// The device's error, when the root's inode cannot be read.
    ///
    /// # Errors
    /// `Device`.
    pub(super) fn require_root(&self) -> FsResult<()> {
        let (at, offset) = self.layout.inode_place(ROOT_INO);
        let sector = self.layout.sector(at) + offset as u64 / SECTOR_BYTES;
        let parts = self.unread.parts.borrow();
        match parts.range(..=sector).next_back().filter(|(_, part)| sector < part.end) {
            Some((_, part)) => Err(FsError::Device(part.error.clone())),
            None => Ok(()),
        }
    }

    /// Holds the fragments that may belong to what cannot be read.
    pub(super) async fn hold_unexplained(&mut self) -> FsResult<()> {
        self.unread.held.clear();
        if !self.unread.hides_blocks() {
            return Ok(());
        }
        let mut held = vec![0; self.used.len()];
        let frags = self.layout.group_block_frags();
        for number in self.layout.group_numbers() {
            let (bytes, is_whole) = self.read_group(self.layout.group_block(number), frags).await?;
            let is_whole = is_whole && group::verify(&self.layout, number, &bytes).is_ok();
            let map = group::free_map(&self.layout, &bytes);
            let base = self.layout.group_base(number);
            for offset in 0..self.layout.group_frags(number) {
                let at = base + offset;
                let is_free = is_whole && group::bit(map, offset);
                if !is_free && self.layout.is_data(at, 1) && !self.is_used(at) {
                    group::set_bit(&mut held, at.0, true);
                }
            }
        }
        self.unread.held = held;
        Ok(())
    }

    /// A name of an inode that cannot be read: it stays.
    pub(super) fn keep_unread(&mut self, name: &Name) {
        *self.names.entry(name.ino).or_insert(0) += 1;
        let shown = format!("{:?} in directory {}", String::from_utf8_lossy(&name.name), name.directory);
        self.unread.named.entry(name.ino).or_insert(shown);
    }

    /// Whether an inode without a name is left, because it may have one that cannot be read, or would be freed and has blocks that are
    /// unknown.
    pub(super) fn waits(&mut self, ino: InodeNo, inode: &Inode) -> bool {
        let may_be_named = inode.nlink > 0 && self.unread.hides_names();
        let would_go = inode.nlink == 0 || !self.options.reconnect;
        let waits = may_be_named || would_go && self.unread.files.contains(&ino);
        if waits && self.left.insert(ino) {
            self.unread.waiting += 1;
        }
        waits
    }

    /// Tells of what cannot be read and is left.
    pub(super) fn tell_of_unread(&mut self) {
        let runs = self.unread.runs();
        for Run { start, end, error, is_unwritten, holds } in runs.into_iter().take(PROBLEMS_MAX) {
            let fragment = start.0 * SECTOR_BYTES / u64::from(self.layout.frag_bytes);
            let last = Sector(end.0 - 1);
            let held = self.held_there(holds);
            let access = if is_unwritten { "written" } else { "read" };
            let text = format!(
                "fragment {fragment}, sectors {start} to {last}, cannot be {access}: {error}. {held}; left as it is"
            );
            self.problem(text, Cause::Unread);
        }
        if self.unread.waiting > 0 {
            let text =
                format!("files and directories that may have names that cannot be read: {}; left", self.unread.waiting);
            self.problem(text, Cause::Unread);
        }
        if self.hides_root() {
            let note = "no mount works, not even with -o ro, until the inodes in the root's block and all names of / can be read";
            self.result.notes.push(note.into());
        }
        if self.unread.remains() {
            let note = "what cannot be read or written is not given up. To do that, copy the volume to another device with a rescue program, and \
                        repair the copy";
            self.result.notes.push(note.into());
        }
    }

    /// Whether anything is unreadable that every mount reads: the block with the root's inode, names of the root.
    fn hides_root(&self) -> bool {
        let (at, _) = self.layout.inode_place(ROOT_INO);
        let block = u64::from(self.layout.block_bytes) / SECTOR_BYTES;
        let block = self.layout.sector(at)..self.layout.sector(at) + block;
        let of_root = |start: Sector, part: &Part| match part.holds {
            Some(Holds::Names(ino, _) | Holds::Pointers(ino)) if ino == ROOT_INO => true,
            _ => start < block.end && block.start < part.end,
        };
        self.unread.parts.borrow().iter().any(|(&start, part)| !part.is_unwritten && of_root(start, part))
    }

    /// Tells of what a repair has left out although the check could read it before.
    pub(super) fn tell_of_left_out(&mut self) {
        if self.unread.left_out.get() && self.result.problems.iter().all(|problem| problem.cause != Cause::Unread) {
            self.problem("some of what was to be repaired can no longer be read; left as it is", Cause::Unread);
        }
    }

    /// What an unreadable part holds, as far as known.
    fn held_there(&self, holds: Holds) -> String {
        match holds {
            Holds::Inodes(first, count) => {
                const NAMES_SHOWN: usize = 4;
                let names: Vec<&str> = self
                    .unread
                    .named
                    .range(first..first + count)
                    .map(|(_, name)| &name[..])
                    .take(NAMES_SHOWN)
                    .collect();
                let names = match &names[..] {
                    [] => "no known names".to_string(),
                    names => format!("the names {}", names.join(", ")),
                };
                format!("It holds inodes {first} to {}, with {names}", first + (count - 1))
            }
            Holds::Pointers(ino) => format!("It holds addresses of blocks of inode {ino}"),
            Holds::Names(ino, byte) => format!("It holds names of directory {ino}, from byte {byte} on"),
        }
    }
}
