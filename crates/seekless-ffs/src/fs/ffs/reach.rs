//! Whether a file would be found after a crash although a write-back has skipped something because a block could not be
//! read or written: a file that depends on nothing skipped is durable nevertheless.
//!
//! A file needs its inode and what leads to it: a name, and the directories above that. Directories are known by their `..`.
//! Of other files this knows the names that are in memory; where some are not, it assumes the worst.

use std::collections::BTreeSet;

use super::Ffs;
use super::cache::BufferKind;
use super::format::*;
use super::soft::put_off_here;
use super::state::*;
use crate::fs::FsResult;

/// What a write-back has left out.
pub(super) struct LeftOut {
    /// Inodes whose blocks cannot be read or have no room below, and those with content that has none.
    pub inodes: BTreeSet<InodeNo>,
    /// The first error.
    pub first: FsResult<()>,
}

impl State {
    /// Inodes with data, names or pointers that became dirty until then, and have not been written.
    pub(super) fn without_content(&self, until: u64) -> BTreeSet<InodeNo> {
        let owner = |at| self.cache.peek(at).map(|buffer| buffer.kind.owner());
        self.dirty_of_files(true, until).into_iter().filter_map(owner).collect()
    }

    /// Inodes in blocks that became dirty until then, and have not been written.
    pub(super) fn unwritten_inodes(&self, until: u64) -> BTreeSet<InodeNo> {
        let is_of_inodes = |at: &FragNo| self.cache.peek(*at).is_some_and(|buffer| buffer.kind == BufferKind::Inodes);
        let blocks = self.dirty_of_files(false, until).into_iter().filter(is_of_inodes);
        blocks.flat_map(|at| self.layout.inodes_in(at)).collect()
    }

    /// The directories that have the names of an inode; `None` if not all of them are known.
    fn parents(&mut self, ino: InodeNo) -> Step<Option<Vec<InodeNo>>> {
        let inode = self.inode(ino)?.inode;
        if inode.is_directory() {
            return Ok(Some(vec![ino])); // It knows the way up itself.
        }
        let mut names = 0;
        let mut parents = Vec::new();
        for dir in self.inodes.numbers(|other| other.index.is_some()) {
            let index = self.inodes.get(&dir).and_then(|dir| dir.index.as_deref());
            let own = index.map_or(0, |index| index.count_names_of(ino));
            names += own;
            parents.extend((own > 0).then_some(dir));
        }
        Ok((names >= usize::from(inode.nlink)).then_some(parents))
    }
}

impl Ffs {
    /// Whether the inode is one of these or may be below one of them.
    async fn may_be_below(&self, ino: InodeNo, those: &BTreeSet<InodeNo>) -> FsResult<bool> {
        if those.is_empty() || those.contains(&ino) {
            return Ok(!those.is_empty());
        }
        let is_directory = |state: &State| {
            those.iter().any(|other| state.inodes.get(other).is_none_or(|known| known.inode.is_directory()))
        };
        if !is_directory(&self.state.borrow()) {
            return Ok(false); // Nothing is below any of them.
        }
        let Some(parents) = self.step(|state| state.parents(ino)).await? else { return Ok(true) };
        for mut dir in parents {
            // A damaged volume could have a cycle of parents.
            let mut left = self.state.borrow().layout.ino_end().0;
            while !those.contains(&dir) && dir != ROOT_INO && left > 0 {
                left -= 1;
                let Some(up) = self.way_up(dir).await? else { return Ok(true) };
                dir = up;
            }
            if dir != ROOT_INO || those.contains(&dir) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes a file durable where the names that lead to it are not on the volume before everything is.
    ///
    /// # Errors
    /// Of what [`put_off`] puts off, only what the file needs.
    pub(super) async fn sync_file_unordered(&self, ino: InodeNo) -> FsResult<()> {
        let LeftOut { inodes, first } = self.write_back_unordered().await?;
        if first.is_ok() || self.may_be_below(ino, &inodes).await? { first } else { Ok(()) }
    }

    /// The same with soft updates, for a file whose names may be new.
    pub(super) async fn sync_names_soft(&self, ino: InodeNo) -> FsResult<()> {
        let until = self.state.borrow_mut().cache.tick();
        let mut first = Ok(());
        put_off_here(&mut first, self.sync().await)?; // Data of other files without room below concerns these.
        if first.is_ok() {
            return first;
        }
        let _inode = self.locks.share(ino).await;
        self.settle_inode(ino, until).await?;
        self.flush().await?;
        let Some(moved) = self.state.borrow().moved_if_durable(ino, until) else { return first };
        if self.may_be_below(ino, &moved).await? { first } else { Ok(()) }
    }
}
