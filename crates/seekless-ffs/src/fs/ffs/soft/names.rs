//! Entries of directories: new ones that are not shown yet, removed ones whose inodes keep their links for now, and
//! ghosts: names that are gone, and stay on the volume until another one is there. The papers' `dirrem` also covers
//! removals that wait for nothing, so ghosts have a word of their own.

use std::collections::BTreeSet;

use super::super::format::*;
use super::super::state::*;
use super::{DependencyRecord, Event, Links, PendingMark, RecordKind};
use crate::codec;
use crate::device::Data;
use crate::fs::FileKind;

/// An inode that has to be on the volume before a name; with `complete`, with all its content.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Need {
    pub ino: InodeNo,
    pub complete: bool,
}

impl Need {
    /// What a name of `ino` needs (U3).
    pub(in super::super) fn of(ino: InodeNo, kind: u8) -> Need {
        Need { ino, complete: kind != dirent_type(FileKind::Regular) }
    }
}

/// What the change of an entry has to wait for.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct After<'a> {
    pub needs: &'a [Need],
    pub records: &'a [u64],
    /// Another entry gets what this one loses.
    pub trades: bool,
}

/// An entry that changed or went before it was durable.
struct Earlier {
    old: (InodeNo, u8),
    shown: bool,
    releases: Links,
    dependents: Vec<u64>,
    moved: Vec<InodeNo>,
}

fn chunk_of(offset: u64) -> u64 {
    offset / DIR_CHUNK_BYTES as u64
}

impl super::Soft {
    fn list_entry(&mut self, at: (InodeNo, u64), ino: InodeNo, id: u64) {
        self.changes.note();
        let other = self.entries.insert(at, id);
        debug_assert!(other.is_none(), "U3: one entry at a place waits");
        *self.new_names.entry(ino).or_default() += 1;
    }

    /// Removes an entry of `ino` from the lists.
    pub(super) fn unlist_entry(&mut self, at: (InodeNo, u64), ino: InodeNo) {
        self.changes.note();
        let id = self.entries.remove(&at);
        debug_assert!(id.is_some(), "U3: an entry that waits is listed");
        let Some(count) = self.new_names.get_mut(&ino) else { return };
        debug_assert!(*count > 0, "U3: a name that waits is counted with its inode");
        *count -= 1;
        if *count == 0 {
            self.new_names.remove(&ino);
        }
    }

    /// Removes the record of an entry that is not durable: returns what it was shown as before, whether it is shown,
    /// what it releases, which records wait for it, and of which directories it keeps old names.
    fn take_entry(&mut self, at: (InodeNo, u64)) -> Option<Earlier> {
        let id = *self.entries.get(&at)?;
        let DependencyRecord { what: RecordKind::Entry { ino, old, shown, releases, .. }, dependents, .. } =
            self.records.remove(&id)?
        else {
            return None;
        };
        self.unlist_entry(at, ino);
        Some(Earlier { old, shown, releases, dependents, moved: self.take_moved(id) })
    }

    /// Removes the directories of which the record keeps an old name.
    pub(super) fn take_moved(&mut self, id: u64) -> Vec<InodeNo> {
        let moved: Vec<InodeNo> =
            self.moved.range((id, InodeNo(0))..=(id, InodeNo(u32::MAX))).map(|&(_, dir)| dir).collect();
        for &dir in &moved {
            self.moved.remove(&(id, dir));
        }
        moved
    }

    /// Makes the entry of a name wait until the same name is gone elsewhere in its directory: it must not exist twice.
    /// In one chunk it never does.
    fn wait_for_removal(&mut self, id: u64, dir: InodeNo, offset: u64, name: &[u8]) {
        if let Some(&removal) = self.removed_names.get(&(dir, name.to_vec()))
            && let Some(RecordKind::Removal { chunk, .. }) = self.records.get(&removal).map(|record| &record.what)
            && *chunk != chunk_of(offset)
        {
            self.wait_for_record(id, removal);
        }
    }

    /// Takes a removal off the lists.
    pub(super) fn unlist_removal(&mut self, id: u64, dir: InodeNo, lbn: u64, name: Vec<u8>) {
        if let Some(ids) = self.removals.get_mut(&(dir, lbn)) {
            let was_listed = ids.remove(&id);
            debug_assert!(was_listed, "U5: a removal that waits is listed with its block");
            if ids.is_empty() {
                self.removals.remove(&(dir, lbn));
            }
        }
        let name = (dir, name);
        if self.removed_names.get(&name) == Some(&id) {
            self.removed_names.remove(&name);
        }
    }
}

impl State {
    fn lbn_of(&self, offset: u64) -> u64 {
        offset / u64::from(self.layout.block_bytes)
    }

    /// The directory has got the name at `offset`. It is shown when all of `needs` are on the volume. Returns the
    /// record.
    pub(in super::super) fn note_added(
        &mut self,
        (dir, offset): (InodeNo, u64),
        name: &[u8],
        ino: InodeNo,
        needs: &[Need],
    ) -> u64 {
        let id = self.cache.tick();
        let Some(soft) = self.soft() else { return 0 };
        let what = RecordKind::Entry {
            dir,
            offset,
            ino,
            old: (InodeNo::NONE, 0),
            shown: false,
            ordered: false,
            releases: Vec::new(),
        };
        soft.record(id, 0, what);
        soft.list_entry((dir, offset), ino, id);
        soft.wait_for_removal(id, dir, offset, name);
        for need in needs {
            self.wait_for_inode(id, need.ino, need.complete);
        }
        id
    }

    /// The entry at `offset` refers to `ino` now, and is shown with `old` until that is safe. When it is durable,
    /// `releases` are released; their inodes are in memory. Returns the record.
    pub(in super::super) fn note_changed(
        &mut self,
        (dir, offset): (InodeNo, u64),
        name: &[u8],
        ino: InodeNo,
        old: (InodeNo, u8),
        after: &After<'_>,
        releases: Links,
    ) -> u64 {
        if self.soft.is_none() {
            return 0;
        }
        self.hold(&releases);
        let id = self.cache.tick();
        let (mut shown_old, mut all) = (old, releases.clone());
        let (mut now, mut waiting, mut moved) = (Vec::new(), Vec::new(), Vec::new());
        let Some(soft) = self.soft() else { return 0 };
        if let Some(earlier) = soft.take_entry((dir, offset)) {
            if earlier.shown {
                all.extend(earlier.releases);
            } else {
                // What was here in between has never been on the volume.
                shown_old = earlier.old;
                all = earlier.releases;
                now = releases;
            }
            // U5: old names of the previous inode stay until that is gone for good.
            waiting = earlier.dependents;
            moved = earlier.moved;
        }
        if shown_old.0 != ino && is_directory_type(shown_old.1) {
            moved.push(shown_old.0);
        }
        soft.moved.extend(moved.into_iter().map(|dir| (id, dir)));
        let ordered = after.trades || !after.records.is_empty();
        let what = RecordKind::Entry { dir, offset, ino, old: shown_old, shown: false, ordered, releases: all };
        soft.records.insert(id, DependencyRecord { unmet: 0, what, dependents: waiting });
        soft.list_entry((dir, offset), ino, id);
        // The previous record may have waited for that.
        soft.wait_for_removal(id, dir, offset, name);
        for &other in after.records {
            soft.wait_for_record(id, other);
        }
        for need in after.needs {
            self.wait_for_inode(id, need.ino, need.complete);
        }
        self.unhold(&now);
        id
    }

    /// The directory has lost the name at `offset`. When that is durable, `releases` are released; their inodes are in
    /// memory.
    pub(in super::super) fn note_removed(&mut self, dir: InodeNo, offset: u64, name: &[u8], releases: Links) {
        self.hold(&releases);
        let now = self.remove_held(dir, offset, name, releases, Vec::new());
        self.unhold(&now);
    }

    /// The same for links that are held already, and for a name that the `moved` directories had. Returns the links
    /// that can be released at once, because the name has never been on the volume.
    fn remove_held(
        &mut self,
        dir: InodeNo,
        offset: u64,
        name: &[u8],
        releases: Links,
        mut moved: Vec<InodeNo>,
    ) -> Links {
        let (id, lbn) = (self.cache.tick(), self.lbn_of(offset));
        let Some(soft) = self.soft() else { return Vec::new() };
        let (mut all, mut now) = (releases, Links::new());
        if let Some(earlier) = soft.take_entry((dir, offset)) {
            earlier.dependents.into_iter().for_each(|id| soft.satisfy(id));
            moved.extend(earlier.moved);
            if earlier.shown {
                all.extend(earlier.releases);
            } else {
                now = std::mem::replace(&mut all, earlier.releases);
                if earlier.old.0 == InodeNo::NONE {
                    return now;
                }
            }
        }
        let what = RecordKind::Removal { dir, lbn, chunk: chunk_of(offset), name: name.to_vec(), releases: all };
        soft.record(id, 0, what);
        soft.moved.extend(moved.into_iter().map(|dir| (id, dir)));
        let is_new = soft.removals.entry((dir, lbn)).or_default().insert(id);
        debug_assert!(is_new, "U5: a removal has a number of its own");
        soft.removed_names.insert((dir, name.to_vec()), id);
        now
    }

    /// Hides a name. Its entry stays until `after` is durable (U5); then the entry `moved` loses its mark.
    pub(in super::super) fn hide_entry(
        &mut self,
        dir: InodeNo,
        name: &[u8],
        after: u64,
        releases: Links,
        moved: Option<PendingMark>,
    ) -> Step<()> {
        for &(ino, _) in &releases {
            self.inode(ino)?;
        }
        let Some(offset) = self.index(dir)?.remove(name) else { return Ok(()) };
        self.hold(&releases);
        if let Some(own) = self.inodes.get_mut(&dir).and_then(|known| known.soft.as_deref_mut()) {
            own.ghosts += 1;
        }
        let id = self.cache.tick();
        let Some(soft) = self.soft() else { return Ok(()) };
        soft.moved.extend(moved.as_ref().map(|moved| (id, moved.ino)));
        soft.record(id, 0, RecordKind::Ghost { dir, name: name.to_vec(), offset, releases, moved });
        let other = soft.ghosts.insert((dir, name.to_vec()), id);
        debug_assert!(other.is_none(), "U5: a name is made again when its ghost is gone");
        soft.wait_for_record(id, after);
        if soft.records.get(&id).is_some_and(|record| record.unmet == 0) {
            soft.begin(id);
        }
        Ok(())
    }

    /// Whether the entry of `ino` at `offset` has to stay for now. Either it came in order after another one or
    /// together with it: until it is durable, an inode has a name there which this one no longer has. Or `ino`
    /// `lives_on` under other names, one of which is not durable. Or old names wait for this one (U5).
    pub(in super::super) fn is_relied_on(&self, (dir, offset): (InodeNo, u64), ino: InodeNo, lives_on: bool) -> bool {
        let Some(soft) = self.soft.as_deref() else { return false };
        let own = soft.entries.get(&(dir, offset)).and_then(|id| soft.records.get(id));
        let (is_ordered, is_awaited) = match own {
            Some(DependencyRecord { what: RecordKind::Entry { ordered, .. }, dependents, .. }) => {
                (*ordered, dependents.iter().any(|id| soft.records.contains_key(id)))
            }
            _ => (false, false),
        };
        let new_elsewhere = soft.new_names.get(&ino).copied().unwrap_or(0) - u32::from(own.is_some());
        is_ordered || lives_on && (is_awaited || new_elsewhere > 0)
    }

    /// Whether the entry at `offset` is not durable.
    pub(in super::super) fn is_new_entry(&self, at: (InodeNo, u64)) -> bool {
        self.soft.as_deref().is_some_and(|soft| soft.entries.contains_key(&at))
    }

    /// Whether the name is gone, and still in its block.
    pub(in super::super) fn is_ghost(&self, dir: InodeNo, name: &[u8]) -> bool {
        self.soft.as_deref().is_some_and(|soft| soft.ghosts.contains_key(&(dir, name.to_vec())))
    }

    pub(in super::super) fn has_ghosts(&self, dir: InodeNo) -> bool {
        let own = self.inodes.get(&dir).and_then(|known| known.soft.as_deref());
        own.is_some_and(|own| own.ghosts > 0)
    }

    /// Whether a name that the directory was moved away from is still on the volume.
    pub(in super::super) fn has_old_names(&self, dir: InodeNo) -> bool {
        self.soft.as_deref().is_some_and(|soft| soft.moved.iter().any(|&(_, moved)| moved == dir))
    }

    /// Removes the entry of a ghost from its block.
    pub(super) fn take_out_ghost(&mut self, id: u64) -> Step<()> {
        let Some(RecordKind::Ghost { dir, name, offset, moved, .. }) =
            self.soft().and_then(|soft| soft.records.get(&id)).map(|record| &record.what)
        else {
            return Ok(());
        };
        let (dir, name, offset, moved) = (*dir, name.clone(), *offset, moved.clone());
        // Everything needed is loaded first (S1).
        self.dir_chunk(dir, offset)?;
        if let Some(PendingMark { dir: other, name: marked, ino }) = &moved {
            // It may have been moved on, or have been removed with its directory. Another directory gets this name only
            // when no old name waits for it any more.
            let found = match self.find(*other, marked) {
                Err(Stop::Fail(_)) => None,
                found => found?,
            };
            if let Some(found) = found.filter(|found| found.ino == *ino) {
                self.dir_chunk(*other, found.offset)?;
                self.change_entry(*other, marked, found.ino, dirent_type(FileKind::Directory))?;
            }
        }
        self.erase_entry(dir, offset)?;
        if let Some(own) = self.inodes.get_mut(&dir).and_then(|known| known.soft.as_deref_mut()) {
            debug_assert!(own.ghosts > 0, "U5: a ghost is counted with its directory");
            own.ghosts -= 1;
        }
        let Some(soft) = self.soft() else { return Ok(()) };
        let Some(DependencyRecord { what: RecordKind::Ghost { releases, .. }, dependents, .. }) =
            soft.records.remove(&id)
        else {
            return Ok(());
        };
        dependents.into_iter().for_each(|id| soft.satisfy(id));
        let listed = soft.ghosts.remove(&(dir, name.clone()));
        debug_assert_eq!(listed, Some(id), "U5: a ghost is listed by its name");
        let moved = soft.take_moved(id);
        let now = self.remove_held(dir, offset, &name, releases, moved);
        if let Some(soft) = self.soft() {
            soft.release(now);
        }
        Ok(())
    }

    /// U3 for a directory's block.
    pub(super) fn directory_image(&mut self, at: FragNo, dir: InodeNo, lbn: u64, data: Data) -> Data {
        let begun = self.cache.begun(at);
        let block = u64::from(self.layout.block_bytes);
        let Some(soft) = self.soft.as_deref_mut() else { return data };
        let mut image = data;
        let (mut complete, mut shown_now) = (true, Vec::new());
        for (&(_, offset), &id) in soft.entries.range((dir, lbn * block)..(dir, (lbn + 1) * block)) {
            let Some(DependencyRecord { unmet, what: RecordKind::Entry { old, shown, .. }, .. }) =
                soft.records.get_mut(&id)
            else {
                continue;
            };
            if *unmet == 0 {
                *shown = true;
                shown_now.push(id);
            } else {
                let within = (offset - lbn * block) as usize;
                let bytes = image.make_mut();
                if within + 8 <= bytes.len() {
                    codec::put_at(bytes, within, old.0);
                    bytes[within + 6] = old.1;
                }
                complete = false;
            }
        }
        shown_now.extend(soft.removals.get(&(dir, lbn)).into_iter().flatten());
        for id in shown_now {
            soft.wait(at, begun, Event::Name(id));
        }
        if !complete {
            self.cache.mark_dirty(at);
        }
        image
    }

    /// Whether a name of the inode is not durable, or an old name of any directory is still on the volume, of which a
    /// crash could leave the one or the other. Otherwise the volume leads to the inode: a name is durable when its
    /// directory has been reached, from the root down, and a directory loses a name only in a move.
    pub(super) fn has_new_names(&self, ino: InodeNo) -> bool {
        self.soft.as_deref().is_some_and(|soft| !soft.moved.is_empty() || soft.new_names.contains_key(&ino))
    }

    /// Whether the volume has the inode with a name, and its names if it is a directory, as they were at `until`: then the
    /// directories of which an old name may still be on the volume, so that it leads to what is below them in the old way.
    pub(in super::super) fn moved_if_durable(&self, ino: InodeNo, until: u64) -> Option<BTreeSet<InodeNo>> {
        let Some(soft) = self.soft.as_deref() else { return Some(BTreeSet::new()) };
        let is_older = |id: &u64| *id <= until;
        let of_inode = soft.entries.values().filter(|id| is_older(id)).any(|id| {
            matches!(soft.records.get(id).map(|record| &record.what), Some(RecordKind::Entry { ino: other, .. }) if *other == ino)
        });
        let mut entries = soft.entries.range((ino, 0)..=(ino, u64::MAX)).map(|(_, id)| id);
        let mut removals = soft.removals.range((ino, 0)..=(ino, u64::MAX)).flat_map(|(_, ids)| ids);
        let mut ghosts = soft.ghosts.iter().filter(|((dir, _), _)| *dir == ino).map(|(_, id)| id);
        let in_inode = entries.any(is_older) || removals.any(is_older) || ghosts.any(is_older);
        if of_inode || in_inode || !self.has_durable_pointers(ino) {
            return None;
        }
        Some(soft.moved.iter().filter(|(id, _)| is_older(id)).map(|&(_, dir)| dir).collect())
    }

    /// Forgets what waits in a directory that is being freed and no longer has a name, so that no lookup can reach it.
    /// Returns the links to be released when it is free on the volume.
    pub(super) fn forget_directory(&mut self, dir: InodeNo) -> Links {
        let mut releases = Links::new();
        let Some(soft) = self.soft() else { return releases };
        soft.unreached.remove(&dir);
        let entries: Vec<u64> = soft.entries.range((dir, 0)..=(dir, u64::MAX)).map(|(_, &id)| id).collect();
        let removals = soft.removals.range((dir, 0)..=(dir, u64::MAX)).flat_map(|(_, ids)| ids.iter().copied());
        let all: Vec<u64> = removals.chain(entries).collect();
        for id in all {
            let Some(DependencyRecord { what, dependents, .. }) = soft.records.remove(&id) else { continue };
            soft.take_moved(id);
            match what {
                RecordKind::Entry { offset, ino, releases: links, .. } => {
                    soft.unlist_entry((dir, offset), ino);
                    releases.extend(links);
                }
                RecordKind::Removal { lbn, name, releases: links, .. } => {
                    soft.unlist_removal(id, dir, lbn, name);
                    releases.extend(links);
                }
                RecordKind::Ghost { .. } | RecordKind::Free(_) => {}
            }
            dependents.into_iter().for_each(|id| soft.satisfy(id));
        }
        releases
    }

    /// Releases links, and returns the inodes that have neither names nor anything that holds them.
    pub(super) fn release_links(&mut self, links: &[(InodeNo, u16)]) -> Vec<InodeNo> {
        self.unhold(links);
        let mut unused: Vec<InodeNo> = links.iter().map(|&(ino, _)| ino).collect();
        unused.dedup();
        unused.retain(|ino| self.inodes.get(ino).is_some_and(|known| known.inode.nlink == 0) && !self.is_held(*ino));
        unused
    }
}
