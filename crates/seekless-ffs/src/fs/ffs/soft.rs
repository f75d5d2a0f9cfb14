//! Soft updates: metadata that waits like file data, and still reaches the volume in an order that a crash cannot spoil
//! [Ganger and Patt 1994; McKusick and Ganger 1999].
//!
//! Blocks in memory are ahead of the volume. The version of a block that is written is an image: the block with every
//! change undone that the volume is not ready for. An inode's image has the last safe pointers and size (`inodes`), an
//! indirect block's has old pointers (`space`), a directory's has old inode numbers (`names`). Space that is freed
//! stays allocated until the image that no longer refers to it is durable. `rounds` writes blocks in an order in which
//! few changes have to be undone.
//!
//! One mechanism does all of this. A *record* is something that has to wait: an entry to be shown, an entry to be
//! removed, space to be freed. It counts its unmet dependencies. An *event* follows when a buffer, as it was at some
//! moment, is durable; most events meet a dependency of a record. A record without unmet dependencies is shown in the
//! next image, or becomes a *job*.
//!
//! Invariants; each holds for the durable state, at any time
//!   U1  A pointer leads to a block that has been written, and that its group marks as allocated.
//!   U2  Space that a group marks as free belongs to no file; so no block and no inode has two owners.
//!   U3  A name is that of an inode in use; a directory or a symbolic link has its content, too.
//!   U4  An inode's count of links is at least the number of its names.
//!   U5  An old name is there until the new one is.
//!   U6  No dependencies form a cycle, and each is met eventually: see below.
//!   U7  Data is durable when a flush has ended that began after the write had ended.
//!
//! Why every wait ends (U6); `check` recounts all of it, and each pass of a wait does so in debug builds.
//!
//!   1. An image waits for nothing: any buffer can be written at any time, with unsafe changes undone. So the cycle of
//!      blocks that each need the other, for which soft updates are known, is broken by undoing changes in one of them.
//!   2. Each dependency of a record is on exactly one list, whose turn comes: it follows the write of a buffer that is
//!      dirty, in flight or not flushed; or the next image of an inode that is dirty; or the next image of an indirect
//!      block; or it is another record.
//!   3. A block stays fresh until it and its group are written, an inode unallocated until its group is: none of them waits
//!      for a record. So a file that is locked still gets a complete image in one pass from its data up.
//!   4. Among records, only names wait for records: a ghost for the new name of its inode, or for the `..` of a
//!      directory; a `..`, and what a rename leaves in place of the old name, for the new name; what an exchange
//!      leaves, for the `..`; a new name for the removal of the same name elsewhere in its directory. A removal waits
//!      for nothing. A name that changes again passes on the records that wait for it. Two kinds of names must be
//!      durable before they change: a name that came in order itself or was exchanged, and a name that others rely on
//!      whose inode lives on without it. A name whose inode lives on under a newer one waits for that (`is_relied_on`).
//!      So must names that are exchanged, and the name of a directory that gets another parent: without it on the
//!      volume, the new name would lead to a `..` of another directory. A name is created again only after its ghost is
//!      gone: so each of these chains ends. A directory that has been moved is removed only after its old name has gone
//!      from the volume. A name in a new directory counts as durable once the directory has a durable name: such names
//!      wait along the tree, from the root down.
//!   5. A record without unmet dependencies is shown in its block, which is dirty until then, or is a job in the queue.
//!      A job that fails stays there, and is tried again in the next round, whose caller gets the error.
//!
//! A crash leaves too much, never too little: space and inodes without an owner, counts of links and blocks that are
//! too high, both names of something that was being renamed.
//!
//! Differences from 4.4BSD-Lite2's successors
//!   1. An inode is shown old as a whole (its size, its pointers), not pointer by pointer.
//!   2. The check after a crash runs before the volume is mounted for writing, not in the background.
//!   3. Three operations write out what they have to wait for, and wait: creating a name while the old one still has to
//!      stay, removing a directory that still has to keep a name, and changing a name that others rely on.

mod books;
mod check;
mod inodes;
mod names;
pub(super) mod records;
mod rounds;
mod space;

use std::collections::VecDeque;

use super::cache::BufferKind;
use super::numbers::{FragNo, InodeNo};
use super::state::*;
use crate::device::Data;
pub(super) use books::Waiting;
pub(super) use names::{After, Need};
pub(super) use records::PendingMark;
use records::{
    DependencyRecord, Event, Freeing, Fresh, Indirect, Job, Links, RecordKind, SafeFields, Soft, SoftInode, Waiter,
};
#[cfg(test)]
pub(super) use rounds::StallDetector;
pub(super) use rounds::{SyncScope, put_off_here};
pub(super) use space::Holder;

/// Rounds after which removed files are free: the name, the inode, and everything below it.
const DRAINS_MAX: usize = 4;

impl RecordKind {
    fn to_text(&self) -> String {
        let shown = String::from_utf8_lossy;
        match self {
            RecordKind::Entry { dir, offset, ino, old, shown, .. } => {
                format!("entry of {ino} in directory {dir} at {offset}, old {}, shown {shown}", old.0)
            }
            RecordKind::Removal { dir, name, .. } => format!("removal of {:?} from directory {dir}", shown(name)),
            RecordKind::Ghost { dir, name, .. } => format!("ghost of {:?} in directory {dir}", shown(name)),
            RecordKind::Free(Freeing { frags, inode, .. }) => {
                format!("freeing of inode {inode:?}, {} runs", frags.len())
            }
        }
    }
}

impl State {
    /// Everything that waits, for messages.
    pub(super) fn soft_text(&self) -> String {
        let Some(soft) = self.soft.as_deref() else { return String::new() };
        let records = soft.records.iter();
        let lines = records.take(20).map(|(&id, record)| {
            let (what, unmet) = (record.what.to_text(), self.unmet_text(soft, id));
            format!("\n  {id}: {what} ({} unmet), waits for {unmet}", record.unmet)
        });
        let lines: String = lines.collect();
        let (fresh, unallocated_inodes) = (soft.fresh.len(), soft.unallocated_inodes.len());
        let waiters: Vec<InodeNo> = soft.inode_waiters.keys().copied().take(20).collect();
        let (jobs, running, tasks) = (soft.jobs.len(), soft.jobs_running, soft.tasks);
        format!(
            "{} records, {fresh} fresh blocks, {unallocated_inodes} unallocated inodes, waiting for inodes {waiters:?}, {jobs} jobs, \
             {running} running, {tasks} tasks{lines}",
            soft.records.len()
        )
    }

    /// What a record waits for.
    fn unmet_text(&self, soft: &Soft, id: u64) -> String {
        let mut found: Vec<String> = Vec::new();
        for (&ino, waiters) in &soft.inode_waiters {
            if let Some(waiter) = waiters.iter().find(|waiter| waiter.id == id) {
                let links = self.inodes.get(&ino).map(|known| (known.inode.nlink, known.dirty));
                let born = !soft.unallocated_inodes.contains_key(&ino);
                let pointers = self.inodes.get(&ino).map(|known| known.inode.db.into_iter().chain(known.inode.ib));
                let fresh = pointers.into_iter().flatten().filter_map(|at| Some((at, soft.fresh.get(&at)?)));
                let fresh: Vec<_> = fresh.map(|(at, fresh)| (at, fresh.unwritten, fresh.untaken)).collect();
                let complete = waiter.complete;
                found.push(format!(
                    "an image of inode {ino} (complete {complete}, born {born}, links and dirty {links:?}, fresh {fresh:?})"
                ));
            }
        }
        for (at, events) in &soft.waits {
            let own = |event: &Event| matches!(event, Event::Met(other) | Event::Name(other) if *other == id);
            if let Some((since, _)) = events.iter().find(|(_, event)| own(event)) {
                found.push(format!("the block at {at} as of {since}"));
            }
        }
        for ((ino, at), indirect) in &soft.indirects {
            if indirect.waiters.iter().any(|(_, other)| *other == id) {
                found.push(format!("the indirect block at {at} of inode {ino}, slots {:?}", indirect.slots));
            }
        }
        let others = soft.records.iter().filter(|(_, record)| record.dependents.contains(&id));
        found.extend(others.map(|(other, _)| format!("record {other}")));
        let unreached = soft.unreached.iter().filter(|(_, ids)| ids.contains(&id));
        found.extend(unreached.map(|(dir, _)| format!("directory {dir} to lead to it")));
        if found.is_empty() { "nothing".into() } else { found.join(", ") }
    }

    /// The state of soft updates, if they are on.
    pub(super) fn soft(&mut self) -> Option<&mut Soft> {
        self.soft.as_deref_mut()
    }

    /// The buffer at `at`, as it was when a write of it began, is durable.
    pub(super) fn note_durable(&mut self, at: FragNo, begun: u64) {
        let Some(soft) = self.soft.as_deref_mut() else { return };
        let Some(waiting) = soft.waits.remove(&at) else { return };
        let (reached, later): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(since, _)| *since <= begun);
        if !later.is_empty() {
            soft.waits.insert(at, later);
        }
        for (_, event) in reached {
            self.on_event(event);
        }
    }

    /// A write of the buffer at `at` that began at `begun` failed. The next image notes again what it shows; without this, each
    /// attempt on a full host would leave as many events.
    pub(super) fn note_failed(&mut self, at: FragNo, begun: u64) {
        let Some(soft) = self.soft.as_deref_mut() else { return };
        if let Some(waiting) = soft.waits.get_mut(&at) {
            waiting
                .retain(|(since, event)| *since != begun || !matches!(event, Event::Name(_) | Event::Indirect { .. }));
            if waiting.is_empty() {
                soft.waits.remove(&at);
            }
        }
    }

    fn on_event(&mut self, event: Event) {
        let Some(soft) = self.soft.as_deref_mut() else { return };
        match event {
            Event::Written { at, since } => soft.make_less_fresh(at, |fresh| &mut fresh.unwritten, since),
            Event::Taken { at, since } => soft.make_less_fresh(at, |fresh| &mut fresh.untaken, since),
            Event::Born { ino, since } => {
                if soft.unallocated_inodes.get(&ino) == Some(&since) {
                    soft.unallocated_inodes.remove(&ino);
                }
            }
            Event::Inode { ino, safe } => {
                if let Some(known) = self.inodes.get_mut(&ino)
                    && let Some(own) = &mut known.soft
                {
                    own.durable = *safe;
                }
                self.directory_reached(ino);
            }
            Event::Indirect { ino, at, since } => {
                if soft.indirects.get(&(ino, at)).is_some_and(|indirect| indirect.changed == since) {
                    soft.indirects.remove(&(ino, at));
                    // The image of a directory waits for it.
                    if let Some(known) = self.inodes.get_mut(&ino)
                        && known.inode.is_directory()
                    {
                        known.dirty = true;
                    }
                }
                self.directory_reached(ino);
            }
            Event::Met(id) => soft.satisfy(id),
            Event::Name(id) => {
                let dir = match soft.records.get(&id).map(|record| &record.what) {
                    Some(RecordKind::Entry { dir, .. } | RecordKind::Removal { dir, .. }) => *dir,
                    _ => return,
                };
                if self.is_reached(dir) {
                    self.end_names(vec![id]);
                } else if let Some(soft) = self.soft() {
                    soft.unreached.entry(dir).or_default().push(id);
                }
            }
        }
    }

    /// Whether the volume's inode points to all blocks that this one does.
    fn has_durable_pointers(&self, ino: InodeNo) -> bool {
        let Some(soft) = self.soft.as_deref() else { return true };
        let same = self.inodes.get(&ino).is_none_or(|known| match &known.soft {
            Some(own) => own.durable == SafeFields::of(&known.inode),
            None => true,
        });
        same && soft.indirects.range((ino, FragNo(0))..=(ino, FragNo(u32::MAX))).next().is_none()
    }

    /// Whether the volume leads to everything in this directory: an old name must not go for a new one in a directory
    /// that a crash would leave without a name (U5).
    fn is_reached(&self, dir: InodeNo) -> bool {
        self.has_durable_pointers(dir) && self.soft.as_deref().is_none_or(|soft| !soft.nameless.contains(&dir))
    }

    /// Ends the entries of a directory that have been waiting for its inode or its name.
    fn directory_reached(&mut self, dir: InodeNo) {
        if self.is_reached(dir)
            && let Some(ids) = self.soft().and_then(|soft| soft.unreached.remove(&dir))
        {
            self.end_names(ids);
        }
    }

    /// Ends names; with the first name of a directory also those in it that have been waiting for that.
    fn end_names(&mut self, ids: Vec<u64>) {
        let mut ids = VecDeque::from(ids);
        while let Some(id) = ids.pop_front() {
            let Some(dir) = self.soft().and_then(|soft| soft.end_name(id)) else { continue };
            if self.is_reached(dir)
                && let Some(soft) = self.soft()
            {
                ids.extend(soft.unreached.remove(&dir).unwrap_or_default());
            }
        }
    }

    /// A write of these buffers has ended in the device's cache.
    pub(super) fn note_volatile(&mut self, at: FragNo, begun: u64) {
        if let Some(soft) = self.soft() {
            soft.unflushed.push((at, begun));
        }
    }

    /// Begins a flush, which takes what soft updates wait for. Returns its number.
    pub(super) fn begin_flush(&mut self) -> u64 {
        self.counters.flushes += 1;
        self.flush_number += 1;
        let taken = self.soft().map(|soft| std::mem::take(&mut soft.unflushed)).unwrap_or_default();
        debug_assert!(
            self.flushes.last_key_value().is_none_or(|(&last, _)| last < self.flush_number),
            "U7: flushes are numbered as they begin"
        );
        self.flushes.insert(self.flush_number, taken);
        self.flush_number
    }

    /// The flush has ended: what it took is durable (U7).
    pub(super) fn end_flush(&mut self, number: u64) {
        let taken = self.flushes.remove(&number).unwrap_or_default();
        taken.into_iter().for_each(|(at, begun)| self.note_durable(at, begun));
    }

    /// The flush has failed or was cancelled: the next one has to take what it took.
    pub(super) fn give_up_flush(&mut self, number: u64) {
        if let Some(taken) = self.flushes.remove(&number)
            && let Some(soft) = self.soft()
        {
            soft.unflushed.extend(taken);
        }
    }

    /// Whether a flush up to `number` is under way.
    pub(super) fn is_flushing_until(&self, number: u64) -> bool {
        self.flushes.range(..=number).next().is_some()
    }

    /// Changes that wait for others.
    #[cfg(test)]
    pub(super) fn soft_records(&self) -> usize {
        self.soft.as_deref().map_or(0, |soft| soft.records.len())
    }

    /// Whether some task makes progress by itself: a write, a flush or a job is in progress.
    pub(super) fn is_at_work(&self) -> bool {
        let busy = |soft: &Soft| soft.jobs_running > 0 || soft.tasks > 0;
        self.cache.any_in_flight() || !self.flushes.is_empty() || self.soft.as_deref().is_some_and(busy)
    }

    /// The image of a buffer: its content, with every change undone that the volume is not ready for.
    pub(super) fn image(&mut self, at: FragNo, data: Data) -> Data {
        if self.soft.is_none() {
            return data;
        }
        match self.cache.peek(at).map(|buffer| buffer.kind) {
            Some(BufferKind::Directory { ino, lbn }) => self.directory_image(at, ino, lbn, data),
            Some(BufferKind::Indirect { ino }) => self.indirect_image(at, ino, data),
            _ => data,
        }
    }
}
