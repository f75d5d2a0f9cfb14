//! The two forms of rename that leave something of the old name: an exchange, and a whiteout. And what names that change
//! have to wait for.
//!
//! The order of writes and the locks are those of `namespace`.

use super::cache::Kind;
use super::format::*;
use super::soft::Need;
use super::state::*;
use super::{Ffs, Metadata};
use crate::fs::{FileKind, FsError, FsResult, NewNode, WHITEOUT};

impl Ffs {
    /// Lets two names stand for each other's inodes. A crash in between can leave both names on one of them, unless one block
    /// has both.
    pub(super) async fn exchange(
        &self,
        (one_dir, one_name, one): (u32, &[u8], (u32, FileKind)),
        (two_dir, two_name, two): (u32, &[u8], (u32, FileKind)),
    ) -> FsResult<()> {
        if one.0 == two.0 {
            return Ok(());
        }
        self.settle_name(one_dir, one_name, true).await?;
        self.settle_name(two_dir, two_name, true).await?;
        let crossing = one_dir != two_dir;
        let (one_moves, two_moves) =
            (crossing && one.1 == FileKind::Directory, crossing && two.1 == FileKind::Directory);
        // A directory that takes one for a file gets a link.
        if one_moves && !two_moves {
            self.step(|state| state.add_link(two_dir)).await?;
            self.write_inode_in_order_or_later(two_dir).await?;
        }
        if two_moves && !one_moves {
            self.step(|state| state.add_link(one_dir)).await?;
            self.write_inode_in_order_or_later(one_dir).await?;
        }
        let places = self.step(|state| {
            // Both in one step, so that one block of the volume gets both at once.
            for (dir, name) in [(one_dir, one_name), (two_dir, two_name)] {
                let Some(found) = state.find(dir, name)? else { return fail(FsError::NotFound) };
                let block = u64::from(state.layout.block_bytes);
                let Some(at) = state.block_at(dir, found.offset / block)? else { return fail(FsError::NotFound) };
                let size = state.inode(dir)?.inode.size;
                let frags = state.layout.block_frags(size, found.offset / block);
                state.buffer(at, frags, Kind::Directory { ino: dir, lbn: found.offset / block })?;
            }
            let (one_kind, two_kind) = (dirent_type(one.1), dirent_type(two.1));
            // With soft updates, the volume counts a link more for each while it may have two names.
            let (mut one_links, mut two_links) = (vec![(one.0, 1)], vec![(two.0, 1)]);
            one_links.extend((one_moves && !two_moves).then_some((one_dir, 1)));
            two_links.extend((two_moves && !one_moves).then_some((two_dir, 1)));
            state.keep_in_memory(&one_links)?;
            state.keep_in_memory(&two_links)?;
            let up = |moves: bool, dir: u32| moves.then_some(Need { ino: dir, complete: false });
            // Each waits for what either needs, so that a block that has both gets both at once.
            let needs: Vec<Need> = [Need::of(one.0, one_kind), Need::of(two.0, two_kind)]
                .into_iter()
                .chain(up(two_moves && !one_moves, one_dir))
                .chain(up(one_moves && !two_moves, two_dir))
                .collect();
            let two_now = (two.0, two_kind);
            let one_now = (one.0, one_kind);
            let first = state.replace_entry((one_dir, one_name), two_now, one_now, &needs, &[], &one_links)?;
            let second = state.replace_entry((two_dir, two_name), one_now, two_now, &needs, &[], &two_links)?;
            Ok([first, second])
        });
        let places = places.await?;
        let records = places.map(|(_, record)| record);
        for (at, _) in places {
            self.write_in_order_or_later(at).await?;
        }
        for dir in [one_dir, two_dir] {
            self.step(|state| state.touch_directory(dir)).await?;
        }
        for (moves, ino, from, to) in [(one_moves, one.0, one_dir, two_dir), (two_moves, two.0, two_dir, one_dir)] {
            if moves {
                let changed = self.step(|state| {
                    let kind = dirent_type(FileKind::Directory);
                    let needs = [Need { ino: to, complete: false }];
                    state.replace_entry((ino, b".."), (to, kind), (from, kind), &needs, &records, &[])
                });
                let (at, _) = changed.await?;
                self.write_in_order_or_later(at).await?;
            }
        }
        if one_moves && !two_moves {
            self.step(|state| state.drop_links(one_dir, 1)).await?;
        }
        if two_moves && !one_moves {
            self.step(|state| state.drop_links(two_dir, 1)).await?;
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

    /// As `replace`, with a whiteout for the old name. The whiteout is on the volume before; then the old name changes from
    /// the one to the other in place, so that it always stands for one of them.
    pub(super) async fn replace_and_leave(
        &self,
        from: (u32, &[u8], (u32, FileKind)),
        to: (u32, &[u8], Option<(u32, FileKind)>),
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

    /// Changes the type that the name of a directory says, on the volume too, now.
    pub(super) async fn mark_name(&self, dir: u32, name: &[u8], ino: u32, mark: u8) -> FsResult<()> {
        let changed = self.step(|state| {
            let Some(found) = state.find(dir, name)? else { return fail(FsError::NotFound) };
            state.replace_entry((dir, name), (ino, mark), (ino, found.kind), &[], &[], &[])
        });
        let (at, _) = changed.await?;
        self.write_in_order(at).await?;
        match self.options.metadata {
            Metadata::Softdep => self.drain().await,
            Metadata::Sync | Metadata::Async => Ok(()),
        }
    }

    /// With soft updates, a name on which others rely has to be on the volume before it changes or goes. One that is moved
    /// stays as it is until its new name is there. `trades`: its inode is to get another name at once.
    pub(super) async fn settle_name(&self, dir: u32, name: &[u8], trades: bool) -> FsResult<()> {
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

    /// A directory that is to go must not keep names that cannot go yet.
    pub(super) async fn wait_for_ghosts(&self, dir: u32) -> FsResult<()> {
        self.drain_until(|state| !state.has_ghosts(dir)).await
    }

    /// The last name of a directory must not go before an older one has gone from the volume, be that a ghost or an entry that
    /// stands for something else now: it would lead to a directory whose way up is another, and that counts too few links
    /// (U4).
    pub(super) async fn wait_for_old_names(&self, ino: u32) -> FsResult<()> {
        self.drain_until(|state| !state.has_old_names(ino)).await
    }
}
