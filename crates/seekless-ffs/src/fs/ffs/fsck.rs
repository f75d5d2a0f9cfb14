//! Checking a volume, and repairing it, in the phases of `fsck_ffs`.
//!
//!   1. Inodes and the blocks that they claim. Blocks claimed twice go to a directory or a symbolic link, and otherwise
//!      to the file that changed last.
//!   2. Directories: entries, and the inodes that they name.
//!   3. Directories that no name leads to.
//!   4. Counts of links, and files without a name.
//!   5. The maps and counts of the groups, which follow from all of that.
//!
//! Everything is found out first and repaired in memory. Then the repaired blocks are written, and last the superblock
//! with the clean flag. A crash in between leaves a volume without the flag, to be checked again. That state must again
//! be explainable by a crash: each repaired block makes sense without the others, except that a new block is written
//! before anything points to it, and new data does not take space that the repair has freed.
//!
//! The check distinguishes what a crash explains from what it does not: a mount repairs the former by itself.

mod connections;
mod groups;
mod inodes;
mod lost;
mod names;
mod superblock;
mod unread;
mod writing;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

pub(super) use superblock::volume_of_copy;

use super::assembly;
use super::format::*;
use super::group;
use super::io::write_bytes;
use super::layout::Layout;
use super::{JOURNAL_LEFT, Volume, check_journal};
use crate::device::rescue::rescue;
use crate::device::{Data, Device, DeviceError, WriteFlags};
use crate::fs::{FileKind, FsError, FsResult};
use crate::rt::Rt;
use crate::units::{SECTOR_BYTES, Sector, WallTime};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FsckOptions {
    /// Repair what can be repaired.
    pub repair: bool,
    /// Repair only if a crash explains everything that is wrong.
    pub only_after_crash: bool,
    /// Files and directories with content but without a name get one in `/lost+found`; otherwise they are freed.
    pub reconnect: bool,
    /// The user says that the devices below are assembled as before, although some blocks are not in their places.
    pub trust_order: bool,
}

impl Default for FsckOptions {
    fn default() -> FsckOptions {
        FsckOptions { repair: false, only_after_crash: false, reconnect: true, trust_order: false }
    }
}

/// One problem.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Which structure, where, what was found and what was expected.
    pub text: String,
    pub cause: Cause,
    pub repaired: bool,
}

/// The cause of a problem.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// A crash, which has left too much: space and inodes without an owner, counts that are too high, both names of a
    /// directory that was being renamed. Soft updates leave only such problems.
    Leak,
    /// A crash.
    Crash,
    /// Not a crash. A copy has the right value, and the rest of the check agrees with it.
    Copy,
    /// Not a crash.
    Damage,
    /// A file or directory without a name, for which `/lost+found` has no room. A repair leaves it, its content and its
    /// links, so that a later one can reconnect it.
    NoRoom,
    /// It cannot be read or written, and is left: it may be possible later, or in a copy.
    Unread,
}

/// Result of a check.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fsck {
    pub problems: Vec<Problem>,
    pub notes: Vec<String>,
    pub files: u64,
    pub directories: u64,
    pub others: u64,
    pub frags_used: u64,
    pub frags_free: u64,
    /// Files and directories that a repair has put into `/lost+found`.
    pub reconnected: u64,
}

impl Fsck {
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Most problems listed.
const PROBLEMS_MAX: usize = 200;

/// Rounds of phases 1 and 2, see [`Check::run`].
const ROUNDS_MAX: usize = 16;

/// Attempts at a check during which sectors become unreadable: as many as rounds of one. Each knows of more of them.
const ATTEMPTS_MAX: usize = ROUNDS_MAX;

/// Checks the volume on `device`, and repairs it if requested.
///
/// # Errors
/// `Corrupt` when there is no usable superblock, `Device` when the device has gone, cannot write the superblock or a group whose
/// maps give away what is in use, neither returns nor writes the inode of the root, or loses more again and again while it is
/// checked. Damage, and what else cannot be read or written, is in the result.
pub async fn fsck(rt: &Rt, device: &Device, options: FsckOptions) -> FsResult<Fsck> {
    let mut unread = unread::Unread::default();
    let mut attempts = 0;
    loop {
        let mut check = begin(rt, device, options, unread).await?;
        let Some(error) = check.run().await? else { return Ok(check.result) };
        attempts += 1;
        if attempts == ATTEMPTS_MAX {
            return Err(error.into());
        }
        unread = check.unread.carried_over();
    }
}

/// Begins a check that knows of some sectors that cannot be read.
async fn begin<'a>(rt: &Rt, device: &'a Device, options: FsckOptions, unread: unread::Unread) -> FsResult<Check<'a>> {
    let (volume, problem) = superblock::choose(device).await?;
    if options.repair {
        check_journal(&volume.superblock)?;
    }
    let layout = volume.layout.clone();
    let displaced = assembly::look(device, &layout, &volume.superblock).await?;
    if options.repair && !options.trust_order && displaced.count() > 1 {
        return Err(displaced.refusal(device));
    }
    let mut check = Check {
        device,
        options,
        now: rt.wall(),
        result: Fsck::default(),
        has_damage: false,
        unclean: !volume.superblock.is_closed(),
        volume,
        changed: BTreeMap::new(),
        fresh: BTreeSet::new(),
        used: vec![0; (layout.size as usize).div_ceil(8)],
        claimed: vec![0; (layout.size as usize).div_ceil(8)],
        twice: BTreeSet::new(),
        inodes: BTreeMap::new(),
        inodes_changed: BTreeSet::new(),
        dangling: BTreeSet::new(),
        names: BTreeMap::new(),
        parents: BTreeMap::new(),
        directories: BTreeMap::new(),
        erased: BTreeSet::new(),
        left: BTreeSet::new(),
        lost: lost::LostAndFoundCursor::default(),
        renamed: BTreeSet::new(),
        marked: Vec::new(),
        ups_counted: false,
        bad_copies: Vec::new(),
        unread,
        is_unwritten: false,
        changed_witnesses: displaced.witnesses.into_iter().map(|at| (at, None)).collect(),
        layout,
    };
    if let Some(text) = problem {
        check.problem(text, Cause::Copy);
    }
    Ok(check)
}

/// An entry of a directory, with its position.
#[derive(Clone, Debug)]
struct Name {
    directory: InodeNo,
    /// The block, and the offset of the entry in it.
    at: FragNo,
    frags: u32,
    offset: usize,
    ino: InodeNo,
    kind: u8,
    name: Vec<u8>,
}

struct Check<'a> {
    device: &'a Device,
    options: FsckOptions,
    now: WallTime,
    result: Fsck,
    /// Of the problems, also of those that are not listed, one is damage.
    has_damage: bool,
    unclean: bool,
    volume: Volume,
    layout: Layout,
    /// Repaired blocks, by address.
    changed: BTreeMap<FragNo, Vec<u8>>,
    /// The new ones among them, which must be written before anything points to them.
    fresh: BTreeSet<FragNo>,
    /// A bit for each fragment that a file uses.
    used: Vec<u8>,
    /// A bit for each fragment that anything on the volume points to, if only until the repair is written.
    claimed: Vec<u8>,
    /// Fragments with more than one claim.
    twice: BTreeSet<FragNo>,
    /// Inodes in use.
    inodes: BTreeMap<InodeNo, Inode>,
    inodes_changed: BTreeSet<InodeNo>,
    /// Inodes that are not in use, but have names on the volume.
    dangling: BTreeSet<InodeNo>,
    /// Names found for each inode, `.` and `..` among them.
    names: BTreeMap<InodeNo, u32>,
    /// The directory that contains the name of each directory.
    parents: BTreeMap<InodeNo, Name>,
    /// Entries of each directory.
    directories: BTreeMap<InodeNo, Vec<Name>>,
    /// Names that directories had on the volume, and lose in the repair.
    erased: BTreeSet<(InodeNo, Vec<u8>)>,
    /// Inodes that have no name and get none, and keep everything else.
    left: BTreeSet<InodeNo>,
    lost: lost::LostAndFoundCursor,
    /// Directories that had two names.
    renamed: BTreeSet<InodeNo>,
    /// Names that are marked as moved. They lose the mark when the other names are gone from the volume: a cut in
    /// between would leave two names of which neither is the new one.
    marked: Vec<Name>,
    /// The `..` entries have been counted.
    ups_counted: bool,
    /// Sectors of damaged copies of the superblock.
    bad_copies: Vec<Sector>,
    unread: unread::Unread,
    /// What follows from the rest keeps old content that is harmless, because it cannot be written.
    is_unwritten: bool,
    /// Witnesses that are not what they were, and the inodes that have them.
    changed_witnesses: BTreeMap<FragNo, Option<InodeNo>>,
}

impl Check<'_> {
    /// Returns the device's error when what was to be repaired has become unreadable, or cannot be written: the check has to begin
    /// again.
    async fn run(&mut self) -> FsResult<Option<DeviceError>> {
        // An inode that gives up a block may have had more below it than was visited, and entries behind the cut end of
        // a directory have been counted: then everything is visited again, with the repairs so far. Each round removes
        // pointers, mostly on one level, so that few rounds are enough.
        for round in 0.. {
            if round == ROUNDS_MAX {
                let detail = "repairing does not improve it; save what can be read";
                return Err(FsError::corrupt("file system", "its inodes", detail));
            }
            self.unread.begin_round();
            self.check_inodes().await?;
            self.hold_unexplained().await?;
            let settled = match self.twice.is_empty() {
                true => self.read_directories().await?,
                false => self.share_out().await.map(|()| false)?,
            };
            if settled {
                break;
            }
            self.gather_inodes().await?;
            self.used.fill(0);
            self.twice.clear();
            self.inodes.clear();
            self.directories.clear();
        }
        self.follow_names().await?;
        self.check_connections().await?;
        self.check_links().await?;
        let groups = self.check_groups().await?;
        self.tell_of_witnesses();
        self.tell_of_unread();
        let copies = superblock::bad_copies(self.device, &self.volume).await?;
        for superblock::BadCopy { group, why, .. } in &copies {
            self.problem(format!("the copy of the superblock in group {group} {why}; rewritten"), Cause::Copy);
        }
        self.bad_copies = copies.into_iter().map(|copy| copy.at).collect();
        self.count();
        self.finish(groups).await
    }

    /// Nothing restores them. A repair removes all witnesses, so that the volume can be mounted again.
    fn tell_of_witnesses(&mut self) {
        for (at, ino) in self.changed_witnesses.clone() {
            let of = ino.map(|ino| format!(" of inode {ino}")).unwrap_or_default();
            let text =
                format!("fragment {at}{of} differs from what it was when the volume was closed; no longer checked");
            self.problem(text, Cause::Damage);
            if let Some(ino) = ino {
                let note = format!(
                    "what changed in inode {ino} is not restored: compare it with a copy (find DIR -xdev -inum {ino})"
                );
                self.result.notes.push(note);
            }
        }
    }

    fn problem(&mut self, text: impl Into<String>, cause: Cause) {
        self.has_damage |= cause == Cause::Damage;
        let problem = Problem { text: text.into(), cause, repaired: false };
        if self.result.problems.len() < PROBLEMS_MAX {
            self.result.problems.push(problem);
        } else if let Some(place) = self.place_in_full_list(cause) {
            self.result.problems[place] = problem;
        }
    }

    /// The problem that another one replaces when the list is full: one that may be missed makes way for one that must not. The
    /// first damage replaces any, and no other cause replaces damage.
    fn place_in_full_list(&self, cause: Cause) -> Option<usize> {
        let may_be_missed = |cause: Cause| matches!(cause, Cause::Leak | Cause::Crash | Cause::Copy);
        if may_be_missed(cause) {
            return None;
        }
        let problems = &self.result.problems;
        let is_first_damage = cause == Cause::Damage && problems.iter().all(|problem| problem.cause != cause);
        let last = problems.iter().rposition(|problem| may_be_missed(problem.cause));
        last.or_else(|| is_first_damage.then(|| problems.len() - 1))
    }

    // ---- Blocks, with the repairs so far ----

    /// Zeroes where it cannot be read, which `unread` then knows.
    async fn read(&self, at: FragNo, frags: u32) -> FsResult<Vec<u8>> {
        let bytes = (frags * self.layout.frag_bytes) as usize;
        if let Some(changed) = self.changed.get(&at)
            && changed.len() >= bytes
        {
            return Ok(changed[..bytes].to_vec());
        }
        let sector = self.layout.sector(at);
        let read = rescue(self.device, sector, bytes as u64 / SECTOR_BYTES).await?;
        self.unread.note(read.lost);
        let mut read = read.bytes.to_vec();
        self.unread.ranges(sector, bytes).into_iter().for_each(|lost| read[lost].fill(0));
        Ok(read)
    }

    /// Reads what can be derived from everything else, so that zeroes serve where it cannot be read.
    async fn read_derived(&self, at: Sector, bytes: usize) -> FsResult<Vec<u8>> {
        Ok(rescue(self.device, at, bytes as u64 / SECTOR_BYTES).await?.bytes.to_vec())
    }

    /// As [`Check::read_derived`], with the repairs so far. Also says whether all of it could be read.
    async fn read_group(&self, at: FragNo, frags: u32) -> FsResult<(Vec<u8>, bool)> {
        if self.changed.contains_key(&at) {
            return Ok((self.read(at, frags).await?, true));
        }
        let sectors = u64::from(frags * self.layout.frag_bytes) / SECTOR_BYTES;
        let read = rescue(self.device, self.layout.sector(at), sectors).await?;
        Ok((read.bytes.to_vec(), read.lost.is_empty()))
    }

    fn write(&mut self, at: FragNo, bytes: Vec<u8>) {
        self.changed.insert(at, bytes);
    }

    fn inode_mut(&mut self, ino: InodeNo) -> &mut Inode {
        self.inodes_changed.insert(ino);
        self.inodes.entry(ino).or_insert(Inode::FREE)
    }

    fn is_used(&self, at: FragNo) -> bool {
        group::bit(&self.used, at.0)
    }

    fn count(&mut self) {
        for inode in self.inodes.values().filter(|inode| inode.mode != 0) {
            match inode.kind() {
                Some(FileKind::Regular) => self.result.files += 1,
                Some(FileKind::Directory) => self.result.directories += 1,
                _ => self.result.others += 1,
            }
        }
        let ones = |map: &[u8]| -> u64 { map.iter().map(|byte| u64::from(byte.count_ones())).sum() };
        self.result.frags_used = ones(&self.used) + ones(self.unread.held());
        self.result.frags_free = u64::from(self.layout.dsize).saturating_sub(self.result.frags_used);
    }

    // ---- The end ----

    /// As [`Check::run`].
    async fn finish(&mut self, summaries: Vec<Csum>) -> FsResult<Option<DeviceError>> {
        let mut totals = Totals::default();
        summaries.iter().for_each(|summary| totals.add(summary));
        let bytes = self.layout.cssize.next_multiple_of(self.layout.frag_bytes) as usize;
        let place = self.layout.sector(self.layout.csaddr);
        let stored = rescue(self.device, place, bytes as u64 / SECTOR_BYTES).await?;
        let mut area = stored.bytes.to_vec();
        for (summary, raw) in summaries.iter().zip(area.chunks_exact_mut(Csum::BYTES)) {
            summary.encode(raw);
        }
        let area_differs = area[..] != stored.bytes[..] || !stored.lost.is_empty();
        if let Some((_, error)) = stored.lost.first() {
            self.problem(format!("the summary of free space cannot be read: {error}; rewritten"), Cause::Copy);
        } else if area_differs || self.volume.superblock.totals() != totals {
            self.problem("the summary of free space does not agree with the groups; recounted", Cause::Leak);
        }
        if self.unclean {
            self.result.notes.push("the volume was not closed".into());
        }
        if self.volume.superblock.has_journal() {
            self.result.notes.push(JOURNAL_LEFT.into());
        }
        if !self.left.is_empty() {
            self.result.notes.push(format!("inodes without names that are left: {}", self.left.len()));
        }
        let wanted = self.options.repair && !(self.has_damage && self.options.only_after_crash);
        if !wanted || self.result.problems.is_empty() && !self.unclean {
            return Ok(None);
        }
        self.gather_inodes().await?;
        if let Some(error) = self.lost_since() {
            return Ok(Some(error)); // Nothing has been written yet.
        }
        if !self.unclean {
            self.volume.superblock.clean = 0;
            self.write_superblock().await?; // From now on a mount checks what a cut of the repair leaves.
        }
        if let Some(error) = self.write_changed(true).await? {
            return Ok(Some(error));
        }
        if !self.fresh.is_empty() {
            self.device.flush().await?;
        }
        if let Some(error) = self.write_changed(false).await? {
            return Ok(Some(error));
        }
        self.write_groups().await?;
        if let Some(error) = self.settle_marked().await? {
            return Ok(Some(error));
        }
        self.tell_of_left_out();
        if area_differs {
            let area = Data::from_slice(&area);
            let unwritten = self.write_each(self.layout.sector(self.layout.csaddr), area).await?;
            if let Some((_, error)) = unwritten.first() {
                self.tell_of_unwritten("the summary of free space".into(), error);
            }
        }
        // A superblock has several sectors: those without the flag must be right before it is set.
        self.volume.superblock.set_totals(&totals, self.now);
        self.volume.superblock.clean = 0;
        self.write_superblock().await?;
        let is_whole = self.left.is_empty() && !self.unread.remains() && !self.is_unwritten;
        self.volume.superblock.clean = if is_whole { CLEAN } else { 0 };
        self.volume.superblock.fmod = 0;
        let raw = self.write_superblock().await?; // Now it is mended.
        // Not before the superblock is durable: an intact one exists at every moment.
        for copy in self.bad_copies.clone() {
            if let Some((_, error)) = self.write_each(copy, raw.clone()).await?.first() {
                self.tell_of_unwritten(format!("the copy of the superblock at sector {copy}"), error);
            }
        }
        if !self.bad_copies.is_empty() {
            self.device.flush().await?;
        }
        for problem in &mut self.result.problems {
            problem.repaired = !matches!(problem.cause, Cause::NoRoom | Cause::Unread);
        }
        Ok(None)
    }

    /// Makes the superblock and everything written before durable. Returns its bytes.
    async fn write_superblock(&mut self) -> FsResult<Data> {
        assembly::forget(&mut self.volume.superblock);
        self.volume.superblock.encode(&mut self.volume.raw);
        let raw = Data::from_slice(&self.volume.raw);
        self.device.flush().await?;
        write_bytes(self.device, Sector(SUPERBLOCK_OFFSET / SECTOR_BYTES), raw.clone(), WriteFlags::NONE).await?;
        self.device.flush().await?;
        Ok(raw)
    }

    /// Removes the marks from the names of moved directories. All other repairs are durable before.
    async fn settle_marked(&mut self) -> FsResult<Option<DeviceError>> {
        let marked = std::mem::take(&mut self.marked);
        if !marked.is_empty() {
            self.device.flush().await?;
        }
        self.changed.clear(); // It is on the volume.
        for name in marked {
            let is_there = |other: &Name| (other.at, other.offset, other.ino) == (name.at, name.offset, name.ino);
            if !self.directories.get(&name.directory).is_some_and(|names| names.iter().any(is_there)) {
                continue; // It was the one that went, or became a whiteout.
            }
            let mut block = self.read(name.at, name.frags).await?;
            block[name.offset + 6] = dirent_type(FileKind::Directory);
            self.write(name.at, block);
        }
        self.write_changed(false).await
    }

    /// Puts repaired inodes into their blocks.
    async fn gather_inodes(&mut self) -> FsResult<()> {
        let changed: Vec<InodeNo> = self.inodes_changed.iter().copied().collect();
        for ino in changed {
            let (at, offset) = self.layout.inode_place(ino);
            let mut block = self.read(at, self.layout.frag).await?;
            if let Some(inode) = self.inodes.get(&ino) {
                inode.encode(&mut block[offset..]);
            }
            self.write(at, block);
        }
        Ok(())
    }
}

/// The longest runs of `bytes` in which no piece of `piece` bytes is the same.
fn differing(bytes: usize, piece: usize, is_same: impl Fn(Range<usize>) -> bool) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for start in (0..bytes).step_by(piece) {
        let range = start..bytes.min(start + piece);
        match runs.last_mut() {
            _ if is_same(range.clone()) => {}
            Some(last) if last.end == range.start => last.end = range.end,
            _ => runs.push(range),
        }
    }
    runs
}
