//! Parts of a volume that cannot be read: what they hold, and what a repair may do about them.
//!
//! Such a part may be readable tomorrow, or in the copy that a rescue program makes. So a repair leaves it as it is, and with it
//! everything that nothing else explains:
//!
//!   1. Inodes that cannot be read keep their numbers and their names.
//!   2. A file whose indirect block cannot be read keeps its blocks and its size.
//!   3. As long as either is unknown, a fragment that the maps count as used stays used. A group whose maps cannot be read
//!      either has none to give.
//!   4. As long as names are unknown, no count of links is lowered, and nothing that has links is freed.
//!
//! What would make readable files unreachable is rewritten, and the check says what that costs: the unreadable names of a
//! directory, and the root. A check before mounting does not do even that, and gives no new names. A volume with unreadable
//! parts does not get the flag of a closed one, so that every mount checks whether they are back.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::super::format::*;
use super::super::group;
use super::{Cause, Check, Name};
use crate::device::DeviceError;
use crate::fs::{FileKind, FsError, FsResult};
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
    /// As the last round has found.
    holds: Option<Holds>,
}

/// See the head of the file.
#[derive(Default)]
pub(super) struct Unread {
    /// By first sector. A repair does not write them.
    parts: RefCell<BTreeMap<Sector, Part>>,
    pub(super) inodes: BTreeSet<InodeNo>,
    /// Inodes of which blocks are unknown.
    pub(super) files: BTreeSet<InodeNo>,
    /// Names of directories are unreadable, and stay.
    pub(super) names_left: bool,
    /// Names of directories were unreadable, whether or not they stay.
    names_lost: bool,
    /// A bit for each fragment that stays used although no known file has it.
    held: Vec<u8>,
    /// A name of each inode that cannot be read, as far as there is one.
    named: BTreeMap<InodeNo, String>,
    /// Directories that have a new beginning, of which the parent was unknown.
    pub(super) begun: BTreeSet<InodeNo>,
    /// Inodes without a name that can be read, which a check before mounting leaves.
    waiting: u64,
}

impl Unread {
    /// Begins a round of the check.
    pub(super) fn begin_round(&mut self) {
        self.parts.get_mut().values_mut().for_each(|part| part.holds = None);
        self.inodes.clear();
        self.files.clear();
        self.names_left = false;
    }

    pub(super) fn note(&self, lost: Vec<(Range<Sector>, DeviceError)>) {
        let mut parts = self.parts.borrow_mut();
        for (range, error) in lost {
            parts.entry(range.start).or_insert(Part { end: range.end, error, holds: None });
        }
    }

    /// The unreadable bytes among `bytes` from `at` on.
    pub(super) fn ranges(&self, at: Sector, bytes: usize) -> Vec<Range<usize>> {
        let end = at + bytes as u64 / SECTOR_BYTES;
        let parts = self.parts.borrow();
        let touching = parts.iter().filter(|(start, part)| **start < end && at < part.end);
        let within = |sector: Sector| ((sector.clamp(at, end) - at) * SECTOR_BYTES) as usize;
        touching.map(|(&start, part)| within(start)..within(part.end)).collect()
    }

    /// Whether any of these sectors is unreadable.
    pub(super) fn touches(&self, at: Sector, sectors: u64) -> bool {
        !self.ranges(at, (sectors * SECTOR_BYTES) as usize).is_empty()
    }

    fn holds(&mut self, at: Sector, holds: Holds) {
        if let Some((_, part)) = self.parts.get_mut().range_mut(..=at).next_back().filter(|(_, part)| at < part.end) {
            part.holds = Some(holds);
        }
    }

    /// These sectors are to be written, and the parts in them no longer unreadable.
    pub(super) fn give_up(&mut self, at: Sector, bytes: usize) {
        let end = at + bytes as u64 / SECTOR_BYTES;
        self.parts.get_mut().retain(|&start, part| start >= end || part.end <= at);
    }

    /// Whether anything stays that cannot be read.
    pub(super) fn remains(&self) -> bool {
        self.parts.borrow().values().any(|part| part.holds.is_some())
    }

    /// Whether blocks of files are unknown.
    fn hides_blocks(&self) -> bool {
        !self.inodes.is_empty() || !self.files.is_empty()
    }

    /// Whether names are unknown, and stay so: any of the inodes may be a directory.
    pub(super) fn hides_names(&self) -> bool {
        self.names_left || !self.inodes.is_empty()
    }

    /// Whether a file without a name may have had one.
    pub(super) fn has_lost_names(&self) -> bool {
        self.names_lost || self.hides_names()
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
    /// Whether unreadable parts may be rewritten where files cannot be reached otherwise.
    pub(super) fn may_rewrite(&self) -> bool {
        !self.options.only_after_crash
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

    /// Mends the chunks of a directory's block that cannot be read, or notes that they are left. `start` is the block's first
    /// byte in the directory, `bytes` how many the directory has there. Returns the unreadable bytes that are left.
    pub(super) fn mend_unread_chunks(
        &mut self,
        ino: InodeNo,
        at: FragNo,
        start: u64,
        bytes: usize,
        block: &mut [u8],
    ) -> Vec<Range<usize>> {
        let sector = self.layout.sector(at);
        let lost = self.unread.ranges(sector, block.len());
        if lost.is_empty() {
            return lost;
        }
        let is_of_names = overlap(&lost, &(0..bytes));
        self.unread.names_lost |= is_of_names;
        if !self.may_rewrite() {
            for range in &lost {
                let holds = Holds::Names(ino, start + range.start as u64);
                self.unread.holds(sector + range.start as u64 / SECTOR_BYTES, holds);
            }
            self.unread.names_left = true;
            return lost;
        }
        for within in (0..bytes / DIR_CHUNK_BYTES).map(|chunk| chunk * DIR_CHUNK_BYTES) {
            let chunk = within..within + DIR_CHUNK_BYTES;
            if !overlap(&lost, &chunk) {
                continue;
            }
            let first = start + within as u64;
            let text = format!("directory {ino}, byte {first}, at fragment {at}, cannot be read; its names there are lost");
            self.problem(text, Cause::Damage);
            let chunk = &mut block[chunk];
            chunk.fill(0);
            put_dirent(chunk, 0, InodeNo::NONE, DIR_CHUNK_BYTES, 0, b"");
            if first == 0 {
                chunk.copy_from_slice(&first_chunk(ino, ROOT_INO));
                self.unread.begun.insert(ino);
            }
        }
        if !is_of_names {
            let text = format!("directory {ino}: what is behind its end, at fragment {at}, cannot be read; cleared");
            self.problem(text, Cause::Damage);
        }
        self.write(at, block.to_vec());
        self.unread.give_up(sector, block.len());
        Vec::new()
    }

    /// Cuts a directory at byte `start`, because the indirect block at `at`, which leads there, cannot be read; or notes that it
    /// is left. Returns whether it was cut.
    pub(super) async fn cut_unread_directory(&mut self, ino: InodeNo, at: FragNo, start: u64) -> FsResult<bool> {
        self.unread.names_lost = true;
        if !self.may_rewrite() {
            self.unread.names_left = true;
            return Ok(false);
        }
        let text = format!(
            "directory {ino}: its indirect block at fragment {at} cannot be read; cut at byte {start}, and the names \
             behind are lost"
        );
        self.problem(text, Cause::Damage);
        self.inode_mut(ino).size = start;
        let block = self.read(at, self.layout.frag).await?;
        self.unread.give_up(self.layout.sector(at), block.len());
        self.write(at, block);
        Ok(true)
    }

    /// Makes a root, because the inode of the root cannot be read. The inodes in the same block of the device go with it.
    pub(super) async fn make_root(&mut self) -> FsResult<()> {
        if !self.may_rewrite() {
            let detail = "it cannot be read; fsck makes another";
            return Err(FsError::corrupt("root directory", format_args!("inode {ROOT_INO}"), detail));
        }
        let Some(at) = self.free_block().await? else {
            let detail = "it cannot be read, and no block is free for another";
            return Err(FsError::corrupt("root directory", format_args!("inode {ROOT_INO}"), detail));
        };
        let (place, offset) = self.layout.inode_place(ROOT_INO);
        let block = self.read(place, self.layout.frag).await?;
        let sector = self.layout.sector(place);
        let ranges = self.unread.ranges(sector, block.len());
        if let Some(range) = ranges.into_iter().find(|range| overlap(std::slice::from_ref(range), &(offset..offset + 1))) {
            self.unread.give_up(sector + range.start as u64 / SECTOR_BYTES, range.len());
            let inodes = (range.start / Inode::BYTES, range.end / Inode::BYTES);
            let text = format!(
                "inodes {} to {} cannot be read, and inode {ROOT_INO} is the root; it is made again, and the others are free",
                inodes.0.max(ROOT_INO.0 as usize),
                inodes.1.saturating_sub(1)
            );
            self.problem(text, Cause::Damage);
        }
        self.write(place, block);
        self.unread.names_lost = true;
        self.claim_new(ROOT_INO, at);
        let mut chunks = vec![0; self.layout.block_bytes as usize];
        for chunk in chunks.chunks_exact_mut(DIR_CHUNK_BYTES) {
            put_dirent(chunk, 0, InodeNo::NONE, DIR_CHUNK_BYTES, 0, b"");
        }
        chunks[..DIR_CHUNK_BYTES].copy_from_slice(&first_chunk(ROOT_INO, ROOT_INO));
        self.write(at, chunks);
        self.fresh.insert(at);
        let mut root = Inode {
            mode: FileKind::Directory.mode_bits() as u16 | 0o755,
            nlink: 2,
            size: self.layout.block_bytes.into(),
            blocks: self.layout.block_bytes / SECTOR_BYTES as u32,
            generation: self.now.seconds as u32,
            ..Inode::FREE
        };
        root.db[0] = at;
        root.set_atime(self.now);
        root.set_mtime(self.now);
        root.set_ctime(self.now);
        *self.inode_mut(ROOT_INO) = root;
        Ok(())
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

    /// Whether an inode without a name waits until names can be read, or fsck is asked to give it one.
    pub(super) fn waits_for_names(&mut self, ino: InodeNo) -> bool {
        let waits = self.unread.hides_names() && !self.may_rewrite();
        if waits && self.left.insert(ino) {
            self.unread.waiting += 1;
        }
        waits
    }

    /// Tells of what cannot be read and is left.
    pub(super) fn tell_of_unread(&mut self) {
        let texts: Vec<String> = {
            let parts = self.unread.parts.borrow();
            let held = parts.iter().filter_map(|(&start, part)| Some((start, part.end, &part.error, part.holds?)));
            held.map(|(start, end, error, holds)| {
                let at = start.0 * SECTOR_BYTES / u64::from(self.layout.frag_bytes);
                format!(
                    "fragment {at}, sectors {start} to {}, cannot be read: {error}. {}; left as it is",
                    Sector(end.0 - 1),
                    self.held_there(holds)
                )
            })
            .collect()
        };
        for text in texts {
            self.problem(text, Cause::Unread);
        }
        if self.unread.waiting > 0 {
            let text = format!(
                "files and directories without a name that can be read: {}; fsck gives them names in /lost+found",
                self.unread.waiting
            );
            self.problem(text, Cause::Unread);
        }
        if self.unread.remains() {
            let note = "what cannot be read is not given up: copy the rest of the volume, or all of it with a rescue program to \
                        another device, where fsck can repair it";
            self.result.notes.push(note.into());
        }
    }

    /// What an unreadable part holds, as far as known.
    fn held_there(&self, holds: Holds) -> String {
        match holds {
            Holds::Inodes(first, count) => {
                const NAMES_SHOWN: usize = 4;
                let names: Vec<&str> =
                    self.unread.named.range(first..first + count).map(|(_, name)| &name[..]).take(NAMES_SHOWN).collect();
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
