//! What soft updates remember: data without the steps that use it.
//!
//! The state of a mount holds these structures, and the files beside this one change them in steps of that state; so this one
//! knows neither.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use super::super::format::*;
use crate::device::Data;
use crate::fs::FsError;
use crate::fs::step::Changes;

/// Offset of `..` in each directory, behind `.`.
pub(super) const WAY_UP_OFFSET: u64 = 12;
const _: () = assert!(dirent_bytes(1) == WAY_UP_OFFSET as usize);

/// Records that may wait before an operation that adds more has to help: they cost memory, 30 seconds' worth of them.
const RECORDS_MAX: usize = 16 * 1024;

/// Links that inodes keep for names on the volume: inode, links.
pub(in super::super) type Links = Vec<(InodeNo, u16)>;

/// Changes that the volume is not ready for.
#[derive(Default)]
pub(in super::super) struct Soft {
    pub(in super::super) changes: Changes,
    /// Blocks that no durable pointer may lead to yet (U1).
    pub(super) fresh: BTreeMap<FragNo, Fresh>,
    /// The same by owner.
    pub(super) fresh_of: BTreeSet<(InodeNo, FragNo)>,
    /// Inodes that their group does not durably mark as allocated; and since when (U2).
    pub(super) unallocated_inodes: BTreeMap<InodeNo, u64>,
    /// Events that follow when the buffer at an address, as of a moment, is durable.
    pub(super) waits: BTreeMap<FragNo, Vec<(u64, Event)>>,
    /// Buffers that have been written to a cache that a power cut empties; and when the write had begun.
    pub(super) unflushed: Vec<(FragNo, u64)>,
    pub(super) records: BTreeMap<u64, DependencyRecord>,
    /// How many of them were left when all were to be done and some could not be.
    pub(super) records_left: usize,
    /// Records that wait for an image of an inode.
    pub(super) inode_waiters: BTreeMap<InodeNo, Vec<Waiter>>,
    /// Indirect blocks that are ahead of the volume, by owner and address.
    pub(super) indirects: BTreeMap<(InodeNo, FragNo), Indirect>,
    /// Entries that are not durable, by directory and offset.
    pub(super) entries: BTreeMap<(InodeNo, u64), u64>,
    /// How many of them each inode has.
    pub(super) new_names: BTreeMap<InodeNo, u32>,
    /// Removals that are not durable, by directory and block.
    pub(super) removals: BTreeMap<(InodeNo, u64), BTreeSet<u64>>,
    /// The same by directory and name.
    pub(super) removed_names: BTreeMap<(InodeNo, Vec<u8>), u64>,
    /// Names that are gone, and have to stay on the volume for now.
    pub(super) ghosts: BTreeMap<(InodeNo, Vec<u8>), u64>,
    /// Directories that were moved and whose old names are still on the volume, by the record that has to be durable
    /// before such a name is gone: a ghost, a removal, or an entry that refers to something else now.
    pub(super) moved: BTreeSet<(u64, InodeNo)>,
    /// Durable entries of directories whose inodes do not point to them yet, or to which no name leads yet.
    pub(super) unreached: BTreeMap<InodeNo, Vec<u64>>,
    /// New directories to which no name leads on the volume.
    pub(super) nameless: BTreeSet<InodeNo>,
    /// Jobs that can be done now, and when each was tried last.
    pub(super) jobs: VecDeque<(Job, u64)>,
    pub(super) jobs_running: usize,
    /// Tasks that free inodes.
    pub(super) tasks: usize,
    /// The first error among them since the last round. Its inode waits among the jobs, or for the check.
    pub(super) task_error: Option<FsError>,
    /// Fragments and inodes that will be free.
    pub pending_frags: i64,
    pub pending_inodes: i64,
}

/// Since when the block of an inode waits for its content, and for its group, to be durable; `None`: it does not.
pub(super) struct Fresh {
    pub(super) owner: InodeNo,
    pub(super) unwritten: Option<u64>,
    pub(super) untaken: Option<u64>,
}

/// What follows when a buffer is durable.
#[derive(Debug)]
pub(super) enum Event {
    Written {
        at: FragNo,
        since: u64,
    },
    Taken {
        at: FragNo,
        since: u64,
    },
    Born {
        ino: InodeNo,
        since: u64,
    },
    /// Size and pointers in the inode's image.
    Inode {
        ino: InodeNo,
        safe: Box<SafeFields>,
    },
    /// Content of the indirect block's image.
    Indirect {
        ino: InodeNo,
        at: FragNo,
        since: u64,
    },
    /// The entry or the removal is durable.
    Name(u64),
    /// Meets one dependency of the record.
    Met(u64),
}

/// Something that has to wait.
pub(super) struct DependencyRecord {
    pub(super) unmet: u32,
    pub(super) what: RecordKind,
    /// Records that depend on this one.
    pub(super) dependents: Vec<u64>,
}

pub(super) enum RecordKind {
    /// The entry is shown as `old` while dependencies are unmet. When it is durable, `releases` are released.
    /// `ordered`: it has waited for another entry, or trades with it, so that an inode may have only this old name.
    Entry { dir: InodeNo, offset: u64, ino: InodeNo, old: (InodeNo, u8), shown: bool, ordered: bool, releases: Links },
    /// The entry is removed. When that is durable, `releases` are released.
    Removal { dir: InodeNo, lbn: u64, chunk: u64, name: Vec<u8>, releases: Links },
    /// The entry is hidden, and stays in its block while dependencies are unmet. The directory's new entry, `moved`,
    /// then loses its mark.
    Ghost { dir: InodeNo, name: Vec<u8>, offset: u64, releases: Links, moved: Option<PendingMark> },
    /// Space that is freed when no dependency is unmet.
    Free(Freeing),
}

/// What is freed.
#[derive(Default, Debug)]
pub(super) struct Freeing {
    pub(super) frags: Vec<(FragNo, u32)>,
    /// How many of these have been freed.
    pub(super) done: usize,
    /// The inode, and whether it was a directory's.
    pub(super) inode: Option<(InodeNo, bool)>,
    pub(super) releases: Links,
}

/// Work that can be done now.
#[derive(Debug)]
pub(super) enum Job {
    TakeOut(u64),
    Free(Freeing),
    Release(Links),
}

/// A record that waits for an image of an inode; with `complete` for one in which nothing is undone.
pub(super) struct Waiter {
    pub(super) id: u64,
    pub(super) complete: bool,
}

/// An indirect block that is ahead of the volume.
pub(super) struct Indirect {
    /// Its content when it was written last.
    pub(super) shown: Data,
    /// Slots whose pointers may not be safe.
    pub(super) slots: BTreeSet<usize>,
    pub(super) changed: u64,
    /// Records that wait until these slots are no longer shown old.
    pub(super) waiters: Vec<(Range<usize>, u64)>,
}

/// A new name of a directory that is marked as such, as long as its old name exists.
#[derive(Clone, Debug)]
pub(in super::super) struct PendingMark {
    pub dir: InodeNo,
    pub name: Vec<u8>,
    pub ino: InodeNo,
}

/// The part of an inode that has to be safe as a whole: which blocks are the file's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in super::super) struct SafeFields {
    pub(super) size: u64,
    pub(super) sectors: u32,
    pub(super) db: [FragNo; DIRECT],
    pub(super) ib: [FragNo; INDIRECT],
}

impl SafeFields {
    pub(in super::super) fn of(inode: &Inode) -> SafeFields {
        SafeFields { size: inode.size, sectors: inode.blocks, db: inode.db, ib: inode.ib }
    }

    pub(super) fn put(&self, inode: &mut Inode) {
        (inode.size, inode.blocks, inode.db, inode.ib) = (self.size, self.sectors, self.db, self.ib);
    }
}

/// The state of an inode for soft updates.
#[derive(Default)]
pub(in super::super) struct SoftInode {
    /// In the inode's block.
    pub(super) shown: SafeFields,
    /// Durable on the volume.
    pub(super) durable: SafeFields,
    /// The block has the inode as one in use.
    pub(super) is_shown: bool,
    /// Links that are gone, and are still counted on the volume because names exist there (U4).
    pub(super) held: u16,
    /// Names in this directory that are gone, and still in its blocks.
    pub(super) ghosts: u32,
}

impl SoftInode {
    /// The state of an inode that was read.
    pub(in super::super) fn read(inode: &Inode) -> SoftInode {
        let safe = SafeFields::of(inode);
        SoftInode { shown: safe, durable: safe, is_shown: true, ..SoftInode::default() }
    }

    /// Whether the block has the inode as one in use.
    pub(in super::super) fn has_been_shown(&self) -> bool {
        self.is_shown
    }

    /// Whether the inode has to stay in memory.
    pub(in super::super) fn is_pinned(&self, inode: &Inode) -> bool {
        self.held > 0 || self.ghosts > 0 || self.durable != SafeFields::of(inode)
    }
}

impl Soft {
    pub(super) fn wait(&mut self, at: FragNo, since: u64, event: Event) {
        self.changes.note();
        self.waits.entry(at).or_default().push((since, event));
    }

    pub(in super::super) fn is_fresh(&self, at: FragNo) -> bool {
        self.fresh.contains_key(&at)
    }

    /// One of the two things that a fresh block lacks is durable, if it is still what the block lacks.
    pub(super) fn make_less_fresh(
        &mut self,
        at: FragNo,
        lacking: impl FnOnce(&mut Fresh) -> &mut Option<u64>,
        since: u64,
    ) {
        let Some(fresh) = self.fresh.get_mut(&at) else { return };
        let lacking = lacking(fresh);
        if *lacking == Some(since) {
            *lacking = None;
        }
        if fresh.unwritten.is_none() && fresh.untaken.is_none() {
            self.end_fresh(at);
        }
    }

    pub(super) fn begin_fresh(&mut self, at: FragNo, fresh: Fresh) {
        debug_assert!(
            fresh.unwritten.is_some() || fresh.untaken.is_some(),
            "U6: a fresh block lacks something, and is fresh until it has that"
        );
        self.end_fresh(at);
        self.changes.note();
        let is_new = self.fresh_of.insert((fresh.owner, at));
        debug_assert!(is_new, "U1: a fresh block has one owner");
        self.fresh.insert(at, fresh);
    }

    pub(super) fn end_fresh(&mut self, at: FragNo) {
        if let Some(fresh) = self.fresh.remove(&at) {
            self.changes.note();
            let was_listed = self.fresh_of.remove(&(fresh.owner, at));
            debug_assert!(was_listed, "U1: a fresh block is listed with its owner");
        }
    }

    /// Blocks of the inode that wait for their groups.
    pub(super) fn untaken_of(&self, ino: InodeNo) -> impl Iterator<Item = FragNo> {
        let own = self.fresh_of.range((ino, FragNo(0))..=(ino, FragNo(u32::MAX))).map(|&(_, at)| at);
        own.filter(|at| self.fresh.get(at).is_some_and(|fresh| fresh.untaken.is_some()))
    }

    pub(super) fn record(&mut self, id: u64, unmet: u32, what: RecordKind) {
        self.changes.note();
        let other = self.records.insert(id, DependencyRecord { unmet, what, dependents: Vec::new() });
        debug_assert!(other.is_none(), "U6: a record has a number of its own");
    }

    /// Makes `id` wait for another record, if that still waits itself.
    pub(super) fn wait_for_record(&mut self, id: u64, other: u64) {
        debug_assert_ne!(id, other, "U6: no record waits for itself");
        debug_assert!(self.records.contains_key(&id), "U6: what waits is a record");
        if let Some(other) = self.records.get_mut(&other) {
            other.dependents.push(id);
            if let Some(record) = self.records.get_mut(&id) {
                record.unmet += 1;
            }
        }
    }

    /// Meets one dependency of a record. The record may be gone, overtaken by another one.
    pub(super) fn satisfy(&mut self, id: u64) {
        let Some(record) = self.records.get_mut(&id) else { return };
        assert!(record.unmet > 0, "a record of soft updates was met more often than it waited");
        record.unmet -= 1;
        self.changes.note();
        if record.unmet == 0 {
            self.begin(id);
        }
    }

    /// Acts on a record without unmet dependencies. Entries wait to be shown; their block is dirty.
    pub(super) fn begin(&mut self, id: u64) {
        debug_assert!(
            self.records.get(&id).is_none_or(|record| record.unmet == 0),
            "U6: a record acts when nothing is left to wait for"
        );
        match self.records.get(&id).map(|record| &record.what) {
            Some(RecordKind::Ghost { .. }) => self.job(Job::TakeOut(id)),
            Some(RecordKind::Free(_)) => {
                if let Some(DependencyRecord { what: RecordKind::Free(freeing), dependents, .. }) =
                    self.records.remove(&id)
                {
                    self.job(Job::Free(freeing));
                    dependents.into_iter().for_each(|id| self.satisfy(id));
                }
            }
            Some(RecordKind::Entry { .. } | RecordKind::Removal { .. }) | None => {}
        }
    }

    /// An entry or a removal is durable, and the volume leads to it. Returns the directory whose first name this is.
    pub(super) fn end_name(&mut self, id: u64) -> Option<InodeNo> {
        let DependencyRecord { what, dependents, unmet } = self.records.remove(&id)?;
        debug_assert_eq!(unmet, 0, "U5: a name becomes durable when nothing is left to wait for");
        let mut named = None;
        self.take_moved(id);
        match what {
            RecordKind::Entry { dir, offset, ino, releases, .. } => {
                self.unlist_entry((dir, offset), ino);
                self.release(releases);
                named = Some(ino).filter(|ino| offset != WAY_UP_OFFSET && self.nameless.remove(ino));
            }
            RecordKind::Removal { dir, lbn, name, releases, .. } => {
                self.unlist_removal(id, dir, lbn, name);
                self.release(releases);
            }
            RecordKind::Ghost { .. } | RecordKind::Free(_) => {}
        }
        dependents.into_iter().for_each(|id| self.satisfy(id));
        named
    }

    pub(super) fn release(&mut self, releases: Links) {
        if !releases.is_empty() {
            self.job(Job::Release(releases));
        }
    }

    pub(super) fn job(&mut self, job: Job) {
        self.changes.note();
        self.jobs.push_back((job, 0));
    }

    /// An unused inode could not be read as far as is needed to free it; a later round tries again.
    pub(in super::super) fn free_again(&mut self, ino: InodeNo) {
        self.job(Job::Release(vec![(ino, 0)]));
    }

    /// A job that was not tried since `attempt`.
    pub(super) fn take_job(&mut self, attempt: u64) -> Option<Job> {
        let place = self.jobs.iter().position(|(_, tried)| *tried < attempt)?;
        self.jobs.remove(place).map(|(job, _)| job)
    }

    /// Whether so many records wait that the next caller has to help: more than an attempt has left, so that a place that
    /// cannot be read is not tried by each caller.
    pub(super) fn has_too_many(&mut self) -> bool {
        self.records_left = self.records_left.min(self.records.len());
        self.records.len() > self.records_left + RECORDS_MAX
    }

    pub(super) fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// How many records that existed at `until` still wait, and for how much.
    pub(super) fn waiting_since(&self, until: u64) -> (usize, u64) {
        let waiting = self.records.range(..=until);
        (waiting.clone().count(), waiting.map(|(_, record)| u64::from(record.unmet)).sum())
    }

    /// Whether anything that existed at `until` still waits.
    pub(super) fn waits_since(&self, until: u64) -> bool {
        !self.jobs.is_empty() || self.records.keys().next().is_some_and(|&id| id <= until)
    }
}
