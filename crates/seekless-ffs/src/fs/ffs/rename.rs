//! The forms of rename: the new name replaces another inode's or is new, the old name goes or becomes a whiteout, two names
//! are exchanged. Also, what changing names have to wait for.
//!
//! The order of writes and the locks are those of `namespace`.

use super::format::*;
use super::soft::{After, Need, PendingMark};
use super::state::*;
use super::{Ffs, Metadata};
use crate::fs::{FileKind, FsError, FsResult, NewNode, WHITEOUT};

/// A name, and the directory that it is in.
#[derive(Clone, Copy)]
pub(super) struct NameIn<'a> {
    pub dir: InodeNo,
    pub name: &'a [u8],
}

impl NameIn<'static> {
    /// The name of the directory above.
    fn way_up(dir: InodeNo) -> NameIn<'static> {
        NameIn { dir, name: b".." }
    }
}

/// An inode and its kind.
#[derive(Clone, Copy)]
pub(super) struct NamedInode {
    pub ino: InodeNo,
    pub kind: FileKind,
}

impl NamedInode {
    pub(super) fn is_directory(self) -> bool {
        self.kind == FileKind::Directory
    }

    /// What an entry holds of it.
    fn entry(self) -> (InodeNo, u8) {
        (self.ino, dirent_type(self.kind))
    }
}

/// The inodes and the blocks of directories that a change of names needs to its end stay in memory as long as this exists (B4):
/// once the first name has changed, no block that was evicted and can no longer be read may be in the way of the rest.
struct Pinned<'a> {
    ffs: &'a Ffs,
    inodes: Vec<InodeNo>,
}

impl<'a> Pinned<'a> {
    fn new(ffs: &'a Ffs, inodes: impl IntoIterator<Item = InodeNo>) -> Pinned<'a> {
        let inodes: Vec<InodeNo> = inodes.into_iter().collect();
        ffs.state.borrow_mut().cache.pin(&inodes);
        Pinned { ffs, inodes }
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.ffs.state.borrow_mut().cache.unpin(&self.inodes);
    }
}

/// The move of a name to another one. The caller holds the locks of both directories.
#[derive(Clone, Copy)]
pub(super) struct Renaming<'a> {
    pub ffs: &'a Ffs,
    pub from: NameIn<'a>,
    pub to: NameIn<'a>,
    pub source: NamedInode,
    /// What has the new name until now.
    pub target: Option<NamedInode>,
    /// What the old name refers to afterwards.
    pub left: Option<InodeNo>,
}

impl Renaming<'_> {
    /// Whether a directory gets another parent.
    fn moves_up(&self) -> bool {
        self.source.is_directory() && self.from.dir != self.to.dir
    }

    /// Whether the new parent gets a link that it did not have for the directory that is replaced.
    fn adds_to_parent(&self) -> bool {
        self.moves_up() && self.target.is_none()
    }

    /// Of two names of a directory the new one survives a crash. The new one is marked as moved, or the old one as one
    /// that becomes a whiteout.
    fn marks_old(&self) -> bool {
        self.source.is_directory() && self.left.is_some()
    }

    fn marks_new(&self) -> bool {
        self.source.is_directory() && self.left.is_none()
    }

    pub(super) async fn replace(&self) -> FsResult<()> {
        let Renaming { ffs, from, to, source, target, .. } = *self;
        self.check_target().await?;
        let is_other = |ino: InodeNo| ino != to.dir && ino != from.dir;
        // The victim before the source, or the other way round: no other task holds more than one of them.
        let _victim = match target {
            Some(target) if is_other(target.ino) => Some(ffs.locks.alone(target.ino).await),
            _ => None,
        };
        let _source = if is_other(source.ino) { Some(ffs.locks.alone(source.ino).await) } else { None };
        let inodes = [from.dir, to.dir, source.ino].into_iter().chain(target.map(|target| target.ino));
        let _pinned = Pinned::new(ffs, inodes);
        ffs.step(|state| self.find_rest(state)).await?;
        ffs.settle_name(from.dir, from.name, false).await?;
        if self.moves_up() {
            ffs.write_name(from.dir, from.name).await?;
        }
        if target.is_some() {
            ffs.settle_name(to.dir, to.name, false).await?;
        }
        // 0. The mark.
        if self.marks_old()
            && let Err(error) = ffs.mark_name(from.dir, from.name, source.ino, DIRENT_LEFT).await
        {
            self.take_mark_back().await?;
            return Err(error);
        }
        // 1. One more link, as long as there are two names.
        if let Err(error) = self.add_links().await {
            self.take_mark_back().await?;
            return Err(error);
        }
        // 2. The new name.
        let record = match self.enter_new_name().await {
            Ok(record) => record,
            Err(error) => {
                self.take_back().await?;
                return Err(error);
            }
        };
        // 3. The inode that had the name before. What cannot be freed is left to the check; the names change nevertheless.
        let freed = match target {
            Some(target) => self.release_target(target).await,
            None => Ok(()),
        };
        let ended = self.end(record).await;
        if ended.is_err() {
            ffs.state.borrow_mut().counters.unended += 1;
        }
        ended.and(freed)
    }

    /// What follows the commit. Its blocks were read before that, and are pinned: one that cannot be read has kept the rename from
    /// beginning.
    async fn end(&self, record: u64) -> FsResult<()> {
        let Renaming { ffs, from, source, .. } = *self;
        // 4. The `..` entry.
        let record = if self.moves_up() { self.turn_way_up(record).await? } else { record };
        // 5. The old name, and its link.
        let mut links = vec![(source.ino, 1)];
        links.extend(self.moves_up().then_some((from.dir, 1)));
        match self.left {
            Some(left) => self.leave(left, record, &links).await?,
            None if ffs.options.metadata == Metadata::Softdep => self.hide_old_name(record, &links).await?,
            None => self.remove_old_name().await?,
        }
        ffs.drop_all(&links).await
    }

    /// What is replaced has to be of the same kind, and an empty directory if it is one.
    async fn check_target(&self) -> FsResult<()> {
        let Some(target) = self.target else { return Ok(()) };
        match (self.source.is_directory(), target.is_directory()) {
            (true, false) => Err(FsError::NotDirectory),
            (false, true) => Err(FsError::IsDirectory),
            (true, true) => {
                self.ffs.step(|state| state.check_empty(target.ino)).await?;
                self.ffs.wait_for_ghosts(target.ino).await?;
                self.ffs.wait_for_old_names(target.ino).await
            }
            (false, false) => Ok(()),
        }
    }

    async fn add_links(&self) -> FsResult<()> {
        let Renaming { ffs, to, source, .. } = *self;
        let mut added = Vec::new();
        for ino in std::iter::once(source.ino).chain(self.adds_to_parent().then_some(to.dir)) {
            let mut counted = ffs.with_links(ino, |state| state.add_link(ino)).await;
            if counted.is_ok() {
                added.push((ino, 1));
                counted = ffs.write_inode_in_order_or_later(ino).await;
            }
            if let Err(error) = counted {
                ffs.drop_all(&added).await?;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Loads what changes once the new name is there, and is pinned: a block that cannot be read must be in the way before that.
    fn find_rest(&self, state: &mut State) -> Step<()> {
        state.index(self.to.dir)?;
        for ino in [self.source.ino].into_iter().chain(self.target.map(|target| target.ino)) {
            state.inode(ino)?;
        }
        let up = self.moves_up().then(|| NameIn::way_up(self.source.ino));
        for NameIn { dir, name } in up.into_iter().chain([self.from]) {
            let Some(found) = state.find(dir, name)? else { return fail(FsError::NotFound) };
            state.dir_chunk(dir, found.offset)?;
        }
        Ok(())
    }

    /// Returns the record of the entry.
    async fn enter_new_name(&self) -> FsResult<u64> {
        let Renaming { ffs, to, source, .. } = *self;
        let mark = if self.marks_new() { DIRENT_MOVED } else { dirent_type(source.kind) };
        let mut needs = vec![Need::of(source.ino, dirent_type(source.kind))];
        if self.adds_to_parent() {
            needs.push(Need { ino: to.dir, complete: false });
        }
        // A repair that finds both names needs the whiteout.
        needs.extend(self.left.map(|left| Need::of(left, dirent_type(WHITEOUT.kind()))));
        let Some(target) = self.target else {
            return ffs.enter(to.dir, to.name, (source.ino, mark), &needs).await;
        };
        let mut links = vec![(target.ino, 1)];
        if target.is_directory() {
            links = vec![(target.ino, 2)];
            links.extend((!self.moves_up()).then_some((to.dir, 1)));
        }
        let changed = ffs.step(|state| {
            let after = After { needs: &needs, ..After::default() };
            state.replace_entry(to, (source.ino, mark), target.entry(), &after, &links)
        });
        let (at, record) = changed.await?;
        match ffs.write_in_order(at).await {
            Ok(()) => ffs.step(|state| state.touch_directory(to.dir)).await.map(|()| record),
            Err(error) => {
                let (ino, kind) = target.entry();
                ffs.step(|state| state.change_entry(to.dir, to.name, ino, kind)).await?;
                Err(error)
            }
        }
    }

    /// Undoes what was done for a new name that could not be entered.
    async fn take_back(&self) -> FsResult<()> {
        let Renaming { ffs, to, source, .. } = *self;
        ffs.step(|state| state.drop_links(source.ino, 1)).await?;
        if self.adds_to_parent() {
            ffs.step(|state| state.drop_links(to.dir, 1)).await?;
        }
        self.take_mark_back().await
    }

    async fn take_mark_back(&self) -> FsResult<()> {
        let Renaming { ffs, from, source, .. } = *self;
        if !self.marks_old() {
            return Ok(());
        }
        match ffs.mark_name(from.dir, from.name, source.ino, dirent_type(source.kind)).await {
            // It is gone from memory, and leaves the volume when its block finds room.
            Err(FsError::NoSpace) => Ok(()),
            taken => taken,
        }
    }

    /// The inode that had the new name loses it. Its directory keeps the link for the `..` that comes, or loses the one
    /// that goes.
    async fn release_target(&self, target: NamedInode) -> FsResult<()> {
        let ffs = self.ffs;
        let parent = (target.is_directory() && !self.moves_up()).then_some((self.to.dir, 1));
        let own = (target.ino, if target.is_directory() { 2 } else { 1 });
        for (ino, count) in parent.into_iter().chain([own]) {
            let dropped = ffs.step(|state| state.drop_links(ino, count)).await;
            if dropped.is_err() {
                ffs.state.borrow_mut().counters.unended += 1;
                return dropped;
            }
        }
        ffs.free_if_unused(target.ino).await
    }

    /// The directory's `..` refers to its new parent once the new name is there. Returns the record of that.
    async fn turn_way_up(&self, record: u64) -> FsResult<u64> {
        let Renaming { ffs, from, to, source, .. } = *self;
        let kind = dirent_type(source.kind);
        let changed = ffs.step(|state| {
            let needs = [Need { ino: to.dir, complete: false }];
            let after = After { needs: &needs, records: &[record], ..After::default() };
            state.replace_entry(NameIn::way_up(source.ino), (to.dir, kind), (from.dir, kind), &after, &[])
        });
        let (at, way_up) = changed.await?;
        ffs.write_in_order_or_later(at).await?;
        Ok(way_up)
    }

    /// The old name refers to the whiteout, once the new one is on the volume.
    async fn leave(&self, left: InodeNo, record: u64, links: &[(InodeNo, u16)]) -> FsResult<()> {
        let Renaming { ffs, from, source, .. } = *self;
        let changed = ffs.step(|state| {
            let old = (source.ino, if self.marks_old() { DIRENT_LEFT } else { dirent_type(source.kind) });
            let new = NamedInode { ino: left, kind: WHITEOUT.kind() }.entry();
            let needs = [Need::of(left, new.1)];
            let after = After { needs: &needs, records: &[record], ..After::default() };
            let place = state.replace_entry(from, new, old, &after, links)?;
            state.touch_directory(from.dir)?;
            Ok(place)
        });
        let (at, _) = changed.await?;
        ffs.write_in_order_or_later(at).await
    }

    /// With soft updates: the old name is gone here, and stays on the volume as long as necessary.
    async fn hide_old_name(&self, record: u64, links: &[(InodeNo, u16)]) -> FsResult<()> {
        let Renaming { from, to, source, .. } = *self;
        let hidden = self.ffs.step(|state| {
            state.keep_in_memory(links)?;
            let mark = PendingMark { dir: to.dir, name: to.name.to_vec(), ino: source.ino };
            state.hide_entry(from.dir, from.name, record, links.to_vec(), source.is_directory().then_some(mark))?;
            state.touch_directory(from.dir)
        });
        hidden.await
    }

    async fn remove_old_name(&self) -> FsResult<()> {
        let Renaming { ffs, from, to, source, .. } = *self;
        let at = ffs.step(|state| state.remove_entry(from.dir, from.name)).await?;
        ffs.step(|state| state.touch_directory(from.dir)).await?;
        ffs.write_in_order_or_later(at).await?;
        if source.is_directory() {
            let (ino, kind) = source.entry();
            ffs.step(|state| state.change_entry(to.dir, to.name, ino, kind)).await?;
        }
        Ok(())
    }
}

impl Ffs {
    /// Exchanges the inodes of two names. A crash in between can leave both names with one of them, unless one block
    /// has both. A directory that gets another parent always has a name and the right `..`: first it has both names,
    /// then its `..` changes, and then it loses the old name.
    pub(super) async fn exchange(&self, one: (NameIn<'_>, NamedInode), two: (NameIn<'_>, NamedInode)) -> FsResult<()> {
        let swapped = two.1.is_directory() && !one.1.is_directory();
        let ((one_at, one), (two_at, two)) = if swapped { (two, one) } else { (one, two) };
        if one.ino == two.ino {
            return Ok(());
        }
        for NameIn { dir, name } in [one_at, two_at] {
            self.settle_name(dir, name, true).await?;
            self.write_name(dir, name).await?;
        }
        let (one_dir, two_dir) = (one_at.dir, two_at.dir);
        let _pinned = Pinned::new(self, [one.ino, two.ino, one_dir, two_dir]);
        self.step(|state| {
            [one.ino, two.ino, one_dir, two_dir].into_iter().try_for_each(|ino| state.inode(ino).map(drop))
        })
        .await?;
        let crossing = one_dir != two_dir;
        let (one_moves, two_moves) = (crossing && one.is_directory(), crossing && two.is_directory());
        // The directory that gets a directory in exchange for a file gains a link. The other one gets the file.
        let gets_link = one_moves && !two_moves;
        if gets_link {
            self.with_links(two_dir, |state| state.add_link(two_dir)).await?;
            if let Err(error) = self.write_inode_in_order_or_later(two_dir).await {
                self.step(|state| state.drop_links(two_dir, 1)).await?;
                return Err(error);
            }
        }
        let changed = self.step(|state| {
            // All in one step, so that one block of the volume gets both names at once. What is needed is loaded first
            // (S1).
            let ups = [(one_moves, one.ino, one_dir, two_dir), (two_moves, two.ino, two_dir, one_dir)];
            let ups = ups.into_iter().filter(|(moves, ..)| *moves);
            let names = ups.clone().map(|(_, ino, ..)| NameIn::way_up(ino));
            for NameIn { dir, name } in names.chain([one_at, two_at]) {
                let Some(found) = state.find(dir, name)? else { return fail(FsError::NotFound) };
                state.dir_chunk(dir, found.offset)?;
            }
            let (one_now, two_now) = (one.entry(), two.entry());
            // With soft updates, the volume counts one more link for each while it may have two names.
            let (mut one_links, two_links) = (vec![(one.ino, 1)], [(two.ino, 1)]);
            one_links.extend(gets_link.then_some((one_dir, 1)));
            state.keep_in_memory(&one_links)?;
            state.keep_in_memory(&two_links)?;
            // Each waits for the needs of both, so that a block that has both gets both at once.
            let needs: Vec<Need> = [Need::of(one.ino, one_now.1), Need::of(two.ino, two_now.1)]
                .into_iter()
                .chain(gets_link.then_some(Need { ino: two_dir, complete: false }))
                .collect();
            let after = After { needs: &needs, trades: true, ..After::default() };
            let (at, name) = state.replace_entry(two_at, one_now, two_now, &after, &two_links)?;
            let (mut places, mut records) = (vec![at], Vec::new());
            for (_, ino, from, to) in ups {
                let kind = dirent_type(FileKind::Directory);
                let needs = [Need { ino: to, complete: false }];
                let after = After { needs: &needs, records: &[name], ..After::default() };
                let (at, record) = state.replace_entry(NameIn::way_up(ino), (to, kind), (from, kind), &after, &[])?;
                places.push(at);
                records.push(record);
            }
            let after = After { records: &records, ..after };
            let (at, _) = state.replace_entry(one_at, two_now, one_now, &after, &one_links)?;
            places.push(at);
            for dir in [one_dir, two_dir] {
                state.touch_directory(dir)?;
            }
            Ok(places)
        });
        let places = match changed.await {
            Ok(places) => places,
            Err(error) => {
                if gets_link {
                    self.step(|state| state.drop_links(two_dir, 1)).await?;
                }
                return Err(error);
            }
        };
        let mut late = Vec::new();
        for at in places {
            match self.write_in_order(at).await {
                Err(FsError::NoSpace) => late.push(at),
                result => result?,
            }
        }
        self.state.borrow_mut().note_late_names(&[one.ino, two.ino], &late);
        if gets_link {
            self.step(|state| state.drop_links(one_dir, 1)).await?;
        }
        for ino in [one.ino, two.ino] {
            self.step(|state| {
                let now = state.now;
                state.inode_mut(ino)?.set_ctime(now);
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// As [`Renaming::replace`], with a whiteout for the old name. The whiteout is on the volume before. Then the old name
    /// changes from one to the other in place, so that it always refers to one of them.
    pub(super) async fn replace_and_leave(&self, renaming: Renaming<'_>, new: NewNode) -> FsResult<()> {
        let NameIn { dir, name } = renaming.from;
        // Whether the whiteout has got the name must be known when the rest fails.
        let _pinned = Pinned::new(self, [dir]);
        self.step(|state| state.find(dir, name)).await?;
        let left = self.new_inode(dir, WHITEOUT.kind(), new).await?;
        let _left = self.locks.alone(left).await;
        let written = self.write_inode_in_order(left).await;
        let replaced = match written {
            Ok(()) => Renaming { left: Some(left), ..renaming }.replace().await,
            Err(error) => Err(error),
        };
        if replaced.is_err() && self.step(|state| state.find(dir, name)).await?.is_none_or(|found| found.ino != left) {
            self.unmake(left).await?;
        }
        replaced
    }

    /// Changes the type in the entry of a directory's name, on the volume too, now.
    pub(super) async fn mark_name(&self, dir: InodeNo, name: &[u8], ino: InodeNo, mark: u8) -> FsResult<()> {
        let changed = self.step(|state| {
            let Some(found) = state.find(dir, name)? else { return fail(FsError::NotFound) };
            state.replace_entry(NameIn { dir, name }, (ino, mark), (ino, found.kind), &After::default(), &[])
        });
        let (at, _) = changed.await?;
        self.write_in_order(at).await?;
        self.write_name(dir, name).await
    }

    /// With soft updates, a name that others rely on has to be on the volume before it changes or goes. One that is
    /// moved stays as it is until its new name is there. `trades`: its inode gets another name at once.
    pub(super) async fn settle_name(&self, dir: InodeNo, name: &[u8], trades: bool) -> FsResult<()> {
        if self.options.metadata != Metadata::Softdep {
            return Ok(());
        }
        let found = self.step(|state| {
            let Some(found) = state.find(dir, name)? else { return Ok(None) };
            let inode = state.inode(found.ino)?.inode;
            Ok(Some(((dir, found.offset), found.ino, trades || !inode.is_directory() && inode.nlink > 1)))
        });
        match found.await? {
            Some((at, ino, lives_on)) => self.drain_until(|state| !state.is_relied_on(at, ino, lives_on)).await,
            None => Ok(()),
        }
    }

    /// With soft updates, ensures that a name is on the volume: a name that is exchanged, because the other one relies
    /// on it; the name of a directory that gets another parent, so that one of its two names agrees with its `..`; and one
    /// with a new mark.
    pub(super) async fn write_name(&self, dir: InodeNo, name: &[u8]) -> FsResult<()> {
        if self.options.metadata != Metadata::Softdep {
            return Ok(());
        }
        match self.step(|state| state.find(dir, name)).await? {
            Some(found) => self.drain_until(|state| !state.is_new_entry((dir, found.offset))).await,
            None => Ok(()),
        }
    }

    /// A directory that is being removed must not keep names that cannot go yet.
    pub(super) async fn wait_for_ghosts(&self, dir: InodeNo) -> FsResult<()> {
        self.drain_until(|state| !state.has_ghosts(dir)).await
    }

    /// The last name of a directory must not go before an older one has gone from the volume, be that a ghost or an
    /// entry that refers to something else now: it would lead to a directory with another parent in `..`, which counts
    /// too few links (U4).
    pub(super) async fn wait_for_old_names(&self, ino: InodeNo) -> FsResult<()> {
        self.drain_until(|state| !state.has_old_names(ino)).await
    }
}
