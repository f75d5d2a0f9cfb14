//! Blocks that no pointer may lead to yet, blocks that are freed, and images of indirect blocks.

use std::collections::BTreeSet;
use std::ops::Range;

use super::super::cache::BufferKind;
use super::super::format::{pointer_in, put_pointer};
use super::super::numbers::{FragNo, InodeNo};
use super::super::state::*;
use super::{Event, Freeing, Fresh, Indirect, Job, RecordKind, Soft, Waiter};
use crate::device::Data;

/// An indirect block, and the slots of it that lost a pointer.
pub(in super::super) type Holder = (FragNo, Range<usize>);

impl Soft {
    /// Whether the volume may have, or soon get, an image of the indirect block with a pointer in one of the slots.
    fn has_shown_pointers(&self, ino: InodeNo, (at, slots): &Holder) -> bool {
        // A block without changes was written to the volume in between, without the pointers.
        let indirect = self.indirects.get(&(ino, *at));
        indirect.is_some_and(|known| slots.clone().any(|slot| pointer_in(&known.shown, slot) != FragNo::NONE))
    }
}

impl State {
    /// The block at `at` was allocated, or got more fragments; its buffer has its content.
    pub(in super::super) fn note_taken(&mut self, at: FragNo) {
        let since = self.cache.tick();
        let group = self.layout.group_block(self.layout.group_of(at));
        let owner = self.cache.peek(at).map_or(InodeNo::NONE, |buffer| buffer.kind.owner());
        let Some(soft) = self.soft.as_deref_mut() else { return };
        soft.begin_fresh(at, Fresh { owner, unwritten: Some(since), untaken: Some(since) });
        soft.wait(at, since, Event::Written { at, since });
        soft.wait(group, since, Event::Taken { at, since });
    }

    /// The directory continues in the block at `at`, in fragments that it already had. Its size must not be durable
    /// before their content is.
    pub(in super::super) fn note_grown(&mut self, dir: InodeNo, at: FragNo) {
        let since = self.cache.tick();
        let Some(soft) = self.soft.as_deref_mut() else { return };
        // The group's marks have not changed: its write may be in flight, and no other one follows.
        let untaken = soft.fresh.get(&at).and_then(|fresh| fresh.untaken);
        soft.begin_fresh(at, Fresh { owner: dir, unwritten: Some(since), untaken });
        soft.wait(at, since, Event::Written { at, since });
    }

    /// The same for an indirect block, full of zeroes.
    pub(in super::super) fn note_new_indirect(&mut self, ino: InodeNo, at: FragNo) {
        self.note_taken(at);
        let changed = self.cache.tick();
        let shown = Data::zeroes(self.layout.block_bytes as usize);
        if let Some(soft) = self.soft() {
            let indirect = Indirect { shown, slots: BTreeSet::new(), changed, waiters: Vec::new() };
            let other = soft.indirects.insert((ino, at), indirect);
            debug_assert!(other.is_none(), "U1: a new indirect block was no indirect block of the file before");
        }
    }

    /// Puts pointers into an indirect block, which is in memory.
    pub(in super::super) fn put_pointers(
        &mut self,
        ino: InodeNo,
        holder: FragNo,
        slots: Range<usize>,
        at: FragNo,
    ) -> Step<()> {
        if self.soft.is_some() {
            let shown = self.buffer(holder, self.layout.frag, BufferKind::Indirect { ino })?;
            let changed = self.cache.tick();
            if let Some(soft) = self.soft() {
                let fresh = || Indirect { shown, slots: BTreeSet::new(), changed, waiters: Vec::new() };
                let indirect = soft.indirects.entry((ino, holder)).or_insert_with(fresh);
                indirect.changed = changed;
                indirect.slots.extend(slots.clone());
            }
        }
        let bytes = self.buffer_mut(holder)?;
        for slot in slots {
            put_pointer(bytes, slot, at);
        }
        Ok(())
    }

    /// U1 for indirect blocks.
    pub(super) fn indirect_image(&mut self, at: FragNo, ino: InodeNo, data: Data) -> Data {
        let begun = self.cache.begun(at);
        let Some(soft) = self.soft.as_deref_mut() else { return data };
        let Some(indirect) = soft.indirects.get_mut(&(ino, at)) else { return data };
        let mut image = data.clone();
        let fresh = &soft.fresh;
        indirect.slots.retain(|&slot| fresh.contains_key(&pointer_in(&data, slot)));
        for &slot in &indirect.slots {
            let old = pointer_in(&indirect.shown, slot);
            put_pointer(image.make_mut(), slot, old);
        }
        indirect.shown = image.clone();
        let complete = indirect.slots.is_empty();
        let slots = &indirect.slots;
        let (later, served): (Vec<_>, Vec<_>) = std::mem::take(&mut indirect.waiters)
            .into_iter()
            .partition(|(range, _)| slots.range(range.clone()).next().is_some());
        indirect.waiters = later;
        let since = indirect.changed;
        for (_, id) in served {
            soft.wait(at, begun, Event::Met(id));
        }
        if complete {
            soft.wait(at, begun, Event::Indirect { ino, at, since });
        } else {
            self.cache.mark_dirty(at);
        }
        image
    }

    /// Forgets a block that no longer belongs to a file. Records that waited for it wait for the image of the inode
    /// that no longer points to it.
    pub(super) fn forget_block(&mut self, ino: InodeNo, at: FragNo, frags: u32) {
        self.cache.forget(at, frags);
        let Some(soft) = self.soft.as_deref_mut() else { return };
        soft.end_fresh(at);
        let mut ids: Vec<u64> = Vec::new();
        for (_, event) in soft.waits.remove(&at).unwrap_or_default() {
            if let Event::Met(id) = event {
                ids.push(id);
            }
        }
        if let Some(indirect) = soft.indirects.remove(&(ino, at)) {
            ids.extend(indirect.waiters.into_iter().map(|(_, id)| id));
        }
        if !ids.is_empty() {
            let waiters = ids.into_iter().map(|id| Waiter { id, complete: true });
            soft.inode_waiters.entry(ino).or_default().extend(waiters);
            if let Some(known) = self.inodes.get_mut(&ino) {
                known.dirty = true;
            }
        }
    }

    /// Frees fragments that the file has lost, when that is durable: in its inode, and in the slots of `holders`.
    pub(in super::super) fn free_later(
        &mut self,
        ino: InodeNo,
        in_inode: bool,
        holders: &[Holder],
        frags: Vec<(FragNo, u32)>,
    ) {
        if frags.is_empty() {
            return;
        }
        for &(at, count) in &frags {
            self.forget_block(ino, at, count);
        }
        let unknown = self.has_shown_nothing(ino);
        let id = self.cache.tick();
        let total: i64 = frags.iter().map(|&(_, count)| i64::from(count)).sum();
        let Some(soft) = self.soft.as_deref_mut() else { return };
        // A round writes indirect blocks before it shows the inode that leads to them.
        let at_once = unknown && !holders.iter().any(|holder| soft.has_shown_pointers(ino, holder));
        debug_assert!(frags.iter().all(|(at, _)| !soft.is_fresh(*at)), "U2: what is freed does not wait to be written");
        soft.pending_frags += total;
        let freeing = Freeing { frags, ..Freeing::default() };
        if at_once {
            soft.job(Job::Free(freeing));
            return;
        }
        let mut unmet = 0;
        for (holder, slots) in holders {
            // A block missing here was written to the volume in between, without the pointers.
            if let Some(indirect) = soft.indirects.get_mut(&(ino, *holder)) {
                indirect.waiters.push((slots.clone(), id));
                unmet += 1;
            }
        }
        soft.record(id, unmet, RecordKind::Free(freeing));
        if in_inode && !unknown {
            self.wait_for_inode(id, ino, true);
        }
        if let Some(soft) = self.soft()
            && soft.records.get(&id).is_some_and(|record| record.unmet == 0)
        {
            soft.begin(id);
        }
    }
}
