//! The images of inodes that the volume is ready for.
//!
//! The block of an inode holds its image, not the inode; so the block may be written at any time.

use super::super::format::*;
use super::super::state::*;
use super::{Event, Freeing, Job, RecordKind, SafeFields, Soft, SoftInode, Waiter};

/// How much of an inode an image contains.
enum Image {
    /// Nothing: the inode does not exist yet.
    None,
    Partial(Inode),
    Complete(Inode),
}

impl State {
    /// A number was allocated for the inode, which has just been put into memory.
    pub(in super::super) fn note_new_inode(&mut self, ino: InodeNo) {
        let since = self.cache.tick();
        let group = self.layout.group_block(self.layout.group_of_ino(ino));
        let Some(soft) = self.soft.as_deref_mut() else { return };
        let other = soft.unallocated_inodes.insert(ino, since);
        debug_assert!(other.is_none(), "U2: a number that is given out belongs to no other inode");
        soft.wait(group, since, Event::Born { ino, since });
        if let Some(known) = self.inodes.get_mut(&ino) {
            known.soft = Some(Box::default());
            if known.inode.is_directory() {
                soft.nameless.insert(ino);
            }
        }
    }

    fn inode_image(&self, soft: &Soft, ino: InodeNo, known: &InodeMem, own: &SoftInode) -> Image {
        if soft.unallocated_inodes.contains_key(&ino) {
            return Image::None;
        }
        let mut image = known.inode;
        image.nlink = match image.nlink.checked_add(own.held) {
            Some(links) => links,
            None => panic!("U4: inode {ino} has {} links and {} more on the volume", image.nlink, own.held),
        };
        if known.inode.has_no_blocks(self.layout.maxsymlinklen) {
            return Image::Complete(image);
        }
        let direct = image.db.iter().any(|&at| soft.is_fresh(at));
        let indirect = image.ib.iter().any(|&at| soft.is_fresh(at));
        if known.inode.kind() != Some(crate::fs::FileKind::Regular) {
            // One with a hole, or without content, is damaged (U3). A block that has grown in its fragments is fresh although an
            // indirect block on the volume leads to it.
            let all = (ino, FragNo(0))..=(ino, FragNo(u32::MAX));
            let ahead = soft.indirects.range(all.clone()).next().is_some();
            let grown = soft.fresh_of.range(all).next().is_some();
            if !direct && !indirect && !ahead && !grown {
                return Image::Complete(image);
            }
            if !own.is_shown {
                return Image::None;
            }
            own.shown.put(&mut image);
            return Image::Partial(image);
        }
        if direct {
            own.shown.put(&mut image);
            return Image::Partial(image);
        }
        if indirect {
            for (pointer, shown) in image.ib.iter_mut().zip(own.shown.ib) {
                if soft.is_fresh(*pointer) {
                    *pointer = shown;
                }
            }
            return Image::Partial(image);
        }
        Image::Complete(image)
    }

    /// Puts the image of the inode into its block, which is in memory.
    pub(in super::super) fn show_inode(&mut self, ino: InodeNo, at: FragNo, offset: usize) -> Step<()> {
        let Some(soft) = self.soft.as_deref() else { return Ok(()) };
        let Some(known) = self.inodes.get(&ino) else { return Ok(()) };
        let Some(own) = known.soft.as_deref() else { return Ok(()) };
        let is_waited_for = soft.inode_waiters.contains_key(&ino);
        let (image, complete) = match self.inode_image(soft, ino, known, own) {
            Image::None => return Ok(()),
            Image::Partial(image) => (image, false),
            Image::Complete(image) => (image, true),
        };
        let mut bytes = [0; Inode::BYTES];
        image.encode(&mut bytes);
        let stored = self.cache.peek(at).map(|buffer| &buffer.data[offset..offset + Inode::BYTES]);
        let same = stored == Some(&bytes[..]);
        debug_assert!(!soft.unallocated_inodes.contains_key(&ino), "U2: an inode is shown when its group has it");
        let safe = SafeFields::of(&image);
        // The block may differ from both, and be in flight.
        let durable = own.durable == safe && own.shown == safe;
        if !same || is_waited_for || !durable {
            self.buffer_mut(at)?[offset..offset + Inode::BYTES].copy_from_slice(&bytes);
        }
        let now = self.cache.tick();
        if let Some(known) = self.inodes.get_mut(&ino)
            && let Some(own) = known.soft.as_deref_mut()
        {
            (own.shown, own.is_shown) = (safe, true);
            known.dirty = !complete;
        }
        let Some(soft) = self.soft.as_deref_mut() else { return Ok(()) };
        if !durable {
            soft.wait(at, now, Event::Inode { ino, safe: Box::new(safe) });
        }
        let waiting = soft.inode_waiters.remove(&ino).unwrap_or_default();
        let (served, later): (Vec<Waiter>, Vec<Waiter>) =
            waiting.into_iter().partition(|waiter| complete || !waiter.complete);
        if !later.is_empty() {
            soft.inode_waiters.insert(ino, later);
        }
        for waiter in served {
            soft.wait(at, now, Event::Met(waiter.id));
        }
        Ok(())
    }

    /// Makes a record wait for an image of the inode as it is now.
    pub(super) fn wait_for_inode(&mut self, id: u64, ino: InodeNo, complete: bool) {
        let Some(known) = self.inodes.get_mut(&ino) else { return };
        self.changes.note();
        known.dirty = true;
        let Some(soft) = self.soft.as_deref_mut() else { return };
        if let Some(record) = soft.records.get_mut(&id) {
            record.unmet += 1;
            soft.inode_waiters.entry(ino).or_default().push(Waiter { id, complete });
        }
    }

    // ---- Links ----

    /// Counts links on the volume as long as names exist there. The inodes are in memory.
    pub(super) fn hold(&mut self, links: &[(InodeNo, u16)]) {
        for (ino, count) in links {
            debug_assert!(self.inodes.contains_key(ino), "U4: an inode whose links are held is in memory");
            if let Some(own) = self.inodes.get_mut(ino).and_then(|known| known.soft.as_deref_mut()) {
                self.changes.note();
                own.held += count;
            }
        }
    }

    /// The names are gone from the volume.
    pub(super) fn unhold(&mut self, links: &[(InodeNo, u16)]) {
        for (ino, count) in links {
            if let Some(known) = self.inodes.get_mut(ino)
                && let Some(own) = known.soft.as_deref_mut()
            {
                assert!(own.held >= *count, "links of inode {ino} were released more often than held"); // U4
                self.changes.note();
                own.held -= count;
                known.dirty = true;
            }
        }
    }

    /// Links that the volume counts for names that are gone.
    pub(in super::super) fn held_links(&self, ino: InodeNo) -> u16 {
        self.inodes.get(&ino).and_then(|known| known.soft.as_deref()).map_or(0, |own| own.held)
    }

    /// Whether names on the volume may still lead to the inode.
    pub(in super::super) fn is_held(&self, ino: InodeNo) -> bool {
        self.held_links(ino) > 0
    }

    /// Whether an image of the inode would probably be wasted: its names are gone, it is free when they are gone from
    /// the volume, too, and nothing waits for it. Until then a name on the volume may come back after a crash, so that
    /// durability of the file needs the image nevertheless.
    pub(super) fn is_going(&self, ino: InodeNo) -> bool {
        let unlinked = self.inodes.get(&ino).is_some_and(|known| known.inode.nlink == 0);
        let waiters = self.soft.as_deref().is_some_and(|soft| soft.inode_waiters.contains_key(&ino));
        unlinked && !waiters && self.is_held(ino)
    }

    /// Whether nothing of the file's blocks has ever been shown.
    pub(super) fn has_shown_nothing(&self, ino: InodeNo) -> bool {
        let own = self.inodes.get(&ino).and_then(|known| known.soft.as_deref());
        own.is_some_and(|own| own.shown == SafeFields::default() && own.durable == SafeFields::default())
    }

    // ---- The end ----

    /// Frees an inode and `frags`, all its blocks: at once if the volume knows nothing of it, and otherwise when it is
    /// free on the volume. No record holds its links, and its block is in memory if that has the inode.
    pub(in super::super) fn free_inode_later(
        &mut self,
        ino: InodeNo,
        at: FragNo,
        frags: Vec<(FragNo, u32)>,
    ) -> Step<()> {
        debug_assert!(!self.is_held(ino), "U4: no name on the volume leads to an inode that is freed");
        let inode = self.inode(ino)?.inode;
        for &(block, count) in &frags {
            self.forget_block(ino, block, count);
        }
        let releases = self.forget_directory(ino);
        let was_shown = self.inodes.get(&ino).and_then(|known| known.soft.as_deref()).is_some_and(|own| own.is_shown);
        if was_shown {
            let (_, offset) = self.layout.inode_place(ino);
            Inode { generation: inode.generation, ..Inode::FREE }.encode(&mut self.buffer_mut(at)?[offset..]);
        }
        self.inodes.remove(&ino);
        let id = self.cache.tick();
        let total: i64 = frags.iter().map(|&(_, count)| i64::from(count)).sum();
        let Some(soft) = self.soft.as_deref_mut() else { return Ok(()) };
        soft.unallocated_inodes.remove(&ino);
        soft.nameless.remove(&ino);
        soft.pending_frags += total;
        soft.pending_inodes += 1;
        let freeing = Freeing { frags, done: 0, inode: Some((ino, inode.is_directory())), releases };
        let waiters = soft.inode_waiters.remove(&ino).unwrap_or_default();
        if was_shown {
            soft.record(id, 1, RecordKind::Free(freeing));
            soft.wait(at, id, Event::Met(id));
            // No image is more complete than this one.
            for waiter in waiters {
                soft.wait(at, id, Event::Met(waiter.id));
            }
        } else {
            soft.job(Job::Free(freeing));
            waiters.into_iter().for_each(|waiter| soft.satisfy(waiter.id));
        }
        Ok(())
    }
}
