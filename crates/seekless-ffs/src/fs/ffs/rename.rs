//! The two forms of rename that leave something in place of the old name: an exchange, and a whiteout. And what names
//! that change have to wait for.
//!
//! The order of writes and the locks are those of `namespace`.

use super::format::*;
use super::soft::{After, Need};
use super::state::*;
use super::{Ffs, Metadata};
use crate::fs::{FileKind, FsError, FsResult, NewNode, WHITEOUT};

impl Ffs {
    /// Exchanges the inodes of two names. A crash in between can leave both names with one of them, unless one block
    /// has both. A directory that gets another parent always has a name and the right `..`: first it has both names,
    /// then its `..` changes, and then it loses the old name.
    pub(super) async fn exchange(
        &self,
        one: (InodeNo, &[u8], (InodeNo, FileKind)),
        two: (InodeNo, &[u8], (InodeNo, FileKind)),
    ) -> FsResult<()> {
        let is_directory = |(_, kind): (InodeNo, FileKind)| kind == FileKind::Directory;
        let swapped = is_directory(two.2) && !is_directory(one.2);
        let ((one_dir, one_name, one), (two_dir, two_name, two)) = if swapped { (two, one) } else { (one, two) };
        if one.0 == two.0 {
            return Ok(());
        }
        for (dir, name) in [(one_dir, one_name), (two_dir, two_name)] {
            self.settle_name(dir, name, true).await?;
            self.write_name(dir, name).await?;
        }
        let crossing = one_dir != two_dir;
        let (one_moves, two_moves) = (crossing && is_directory(one), crossing && is_directory(two));
        // The directory that gets a directory in exchange for a file gains a link. The other one gets the file.
        let gets_link = one_moves && !two_moves;
        if gets_link {
            self.step(|state| state.add_link(two_dir)).await?;
            self.write_inode_in_order_or_later(two_dir).await?;
        }
        let changed = self.step(|state| {
            // All in one step, so that one block of the volume gets both names at once. What is needed is loaded first
            // (S1).
            let ups = [(one_moves, one.0, one_dir, two_dir), (two_moves, two.0, two_dir, one_dir)];
            let ups = ups.into_iter().filter(|(moves, ..)| *moves);
            let names = ups.clone().map(|(_, ino, ..)| (ino, &b".."[..]));
            for (dir, name) in names.chain([(one_dir, one_name), (two_dir, two_name)]) {
                let Some(found) = state.find(dir, name)? else { return fail(FsError::NotFound) };
                state.dir_chunk(dir, found.offset)?;
            }
            let (one_now, two_now) = ((one.0, dirent_type(one.1)), (two.0, dirent_type(two.1)));
            // With soft updates, the volume counts one more link for each while it may have two names.
            let (mut one_links, two_links) = (vec![(one.0, 1)], [(two.0, 1)]);
            one_links.extend(gets_link.then_some((one_dir, 1)));
            state.keep_in_memory(&one_links)?;
            state.keep_in_memory(&two_links)?;
            // Each waits for the needs of both, so that a block that has both gets both at once.
            let needs: Vec<Need> = [Need::of(one.0, one_now.1), Need::of(two.0, two_now.1)]
                .into_iter()
                .chain(gets_link.then_some(Need { ino: two_dir, complete: false }))
                .collect();
            let after = After { needs: &needs, trades: true, ..After::default() };
            let (at, name) = state.replace_entry((two_dir, two_name), one_now, two_now, &after, &two_links)?;
            let (mut places, mut records) = (vec![at], Vec::new());
            for (_, ino, from, to) in ups {
                let kind = dirent_type(FileKind::Directory);
                let needs = [Need { ino: to, complete: false }];
                let after = After { needs: &needs, records: &[name], ..After::default() };
                let (at, record) = state.replace_entry((ino, b".."), (to, kind), (from, kind), &after, &[])?;
                places.push(at);
                records.push(record);
            }
            let after = After { records: &records, ..after };
            let (at, _) = state.replace_entry((one_dir, one_name), two_now, one_now, &after, &one_links)?;
            places.push(at);
            for dir in [one_dir, two_dir] {
                state.touch_directory(dir)?;
            }
            Ok(places)
        });
        for at in changed.await? {
            self.write_in_order_or_later(at).await?;
        }
        if gets_link {
            self.step(|state| state.drop_links(one_dir, 1)).await?;
        }
        for ino in [one.0, two.0] {
            self.step(|state| {
                let now = state.now;
                state.inode_mut(ino)?.set_ctime(now);
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// As `replace`, with a whiteout for the old name. The whiteout is on the volume before. Then the old name changes
    /// from one to the other in place, so that it always refers to one of them.
    pub(super) async fn replace_and_leave(
        &self,
        from: (InodeNo, &[u8], (InodeNo, FileKind)),
        to: (InodeNo, &[u8], Option<(InodeNo, FileKind)>),
        new: NewNode,
    ) -> FsResult<()> {
        let (dir, name, _) = from;
        let left = self.new_inode(dir, WHITEOUT.kind(), new).await?;
        let _left = self.locks.alone(left).await;
        let written = self.write_inode_in_order(left).await;
        let replaced = match written {
            Ok(()) => self.replace(from, to, Some(left)).await,
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
            state.replace_entry((dir, name), (ino, mark), (ino, found.kind), &After::default(), &[])
        });
        let (at, _) = changed.await?;
        self.write_in_order(at).await?;
        match self.options.metadata {
            Metadata::Softdep => self.drain().await,
            Metadata::Sync | Metadata::Async => Ok(()),
        }
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
    /// on it; and the name of a directory that gets another parent, so that one of its two names agrees with its `..`.
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
