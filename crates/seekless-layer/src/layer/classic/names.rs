//! Names: the index of a file is renamed, linked and removed with the file [za01 §3].
//!
//! The file comes first. An interruption between the two leaves an index that does not match the file beside it, and is
//! not used (K1). For the same reason, an operation that has changed the file does not fail because of an error of its
//! index.
//!
//! Other operations wait at `Classic::names` until both are done: in between, a new file could be created under the old
//! name, and would take the index that is about to be moved or removed. Gates of the two files would not prevent that.

use super::Classic;
use super::file::{Form, Node};
use super::index::{find, index_name};
use crate::fs::{DirEntry, DirSink, Entry, EntryName, Fs, FsError, FsResult, RenameMode};
use crate::layer::{At, Nodes};
use crate::units::Ino;

impl Classic {
    pub(super) async fn link_both(&self, at: At<'_, Node>, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        if at.node.form() != Some(Form::Units) || !at.node.is_certain() {
            return at.lower.link(at.ino, parent, name).await;
        }
        let _pass = at.node.gate.enter().await;
        if at.node.file.as_ref().is_some_and(|file| file.borrow().place.is_none()) {
            // It gets its first name, and an index beside that when it is next written.
            let entry = at.lower.link(at.ino, parent, name).await?;
            if let Some(file) = &at.node.file {
                let mut file = file.borrow_mut();
                file.place = Some((parent, name.to_vec()));
                file.index_changed(0);
            }
            self.write_index(at.lower, at.node).await;
            return Ok(entry);
        }
        // Also for a file without bytes: all its names must have the same index.
        if at.node.file.as_ref().is_some_and(|file| file.borrow().index_ino.is_none()) {
            // Without an index the file is as slow as with a lost one.
            let _ = self.make_index(at.lower, at.node).await;
        }
        self.write_index(at.lower, at.node).await;
        let _names = self.names.enter().await;
        let entry = at.lower.link(at.ino, parent, name).await?;
        let index = at.node.file.as_ref().and_then(|file| file.borrow().index_ino);
        if let Some(index) = index {
            let _ = link_index(at.lower, index, EntryName { parent, name }).await; // K1
        }
        Ok(entry)
    }

    pub(super) async fn unlink_both(&self, lower: &Fs, place: EntryName<'_>) -> FsResult<()> {
        let _names = self.names.enter().await;
        lower.unlink(place.parent, place.name).await?;
        let _ = remove_index(lower, place).await; // K1
        Ok(())
    }

    pub(super) async fn rename_both(
        &self,
        lower: &Fs,
        nodes: &Nodes<Node>,
        from: EntryName<'_>,
        to: EntryName<'_>,
        mode: RenameMode,
    ) -> FsResult<()> {
        let _names = self.names.enter().await;
        lower.rename(from, to, mode).await?;
        for place in [from, to] {
            // Where it is not known, the file is at most without an index.
            let _ = self.note_place(lower, nodes, place).await;
        }
        let _ = rename_index(lower, from, to, mode).await; // K1
        Ok(())
    }

    /// Records that the file is now at `place`.
    async fn note_place(&self, lower: &Fs, nodes: &Nodes<Node>, place: EntryName<'_>) -> FsResult<()> {
        let entry = match lower.lookup(place.parent, place.name).await {
            Ok(entry) => entry,
            Err(FsError::NotFound) => return Ok(()),
            Err(error) => return Err(error),
        };
        if let Ok(node) = nodes.get(entry.attr.ino)
            && let Some(file) = &node.file
        {
            file.borrow_mut().place = Some((place.parent, place.name.to_vec()));
        }
        lower.forget(entry.attr.ino, 1).await;
        Ok(())
    }

    /// Removes a directory, with the indexes that are left over in it.
    pub(super) async fn remove_directory(&self, lower: &Fs, place: EntryName<'_>) -> FsResult<()> {
        let _names = self.names.enter().await;
        match lower.rmdir(place.parent, place.name).await {
            Err(FsError::NotEmpty) => {}
            other => return other,
        }
        let directory = lower.lookup(place.parent, place.name).await?.attr.ino;
        let cleared = self.clear(lower, directory).await;
        lower.forget(directory, 1).await;
        match cleared? {
            true => lower.rmdir(place.parent, place.name).await,
            false => Err(FsError::NotEmpty),
        }
    }

    /// Removes the indexes in a directory that contains nothing else. Returns whether it is empty now.
    async fn clear(&self, lower: &Fs, directory: Ino) -> FsResult<bool> {
        let mut names = Names::default();
        lower.readdir(directory, None, 0, false, &mut names).await?;
        let Some(names) = names.only_indexes else { return Ok(false) };
        for name in &names {
            let Some(index) = find(lower, EntryName { parent: directory, name }).await? else { return Ok(false) };
            lower.forget(index.ino, 1).await;
        }
        for name in &names {
            lower.unlink(directory, &index_name(name)).await?;
        }
        Ok(true)
    }
}

/// The file at `place` has another name too: links its index there.
async fn link_index(lower: &Fs, index: Ino, place: EntryName<'_>) -> FsResult<()> {
    let name = index_name(place.name);
    let mut linked = lower.link(index, place.parent, &name).await;
    if linked == Err(FsError::Exists)
        && let Some(other) = find(lower, place).await?
    {
        // The index of a file that no longer exists.
        lower.forget(other.ino, 1).await;
        lower.unlink(place.parent, &name).await?;
        linked = lower.link(index, place.parent, &name).await;
    }
    linked?;
    lower.forget(index, 1).await;
    Ok(())
}

async fn remove_index(lower: &Fs, place: EntryName<'_>) -> FsResult<()> {
    if let Some(index) = find(lower, place).await? {
        lower.forget(index.ino, 1).await;
        lower.unlink(place.parent, &index_name(place.name)).await?;
    }
    Ok(())
}

/// The file has been renamed: the index follows.
async fn rename_index(lower: &Fs, from: EntryName<'_>, to: EntryName<'_>, mode: RenameMode) -> FsResult<()> {
    let (here, there) = (find(lower, from).await?, find(lower, to).await?);
    for index in here.iter().chain(&there) {
        lower.forget(index.ino, 1).await;
    }
    let (old, new) = (index_name(from.name), index_name(to.name));
    let (old, new) = (EntryName { parent: from.parent, name: &old }, EntryName { parent: to.parent, name: &new });
    match (here, there, mode) {
        (Some(_), Some(_), RenameMode::Exchange) => lower.rename(old, new, RenameMode::Exchange).await,
        (None, Some(_), RenameMode::Exchange) => move_index(lower, new, old).await,
        (Some(_), Some(_), _) => lower.rename(old, new, RenameMode::Replace).await,
        (None, Some(_), _) => lower.unlink(new.parent, new.name).await,
        (Some(_), None, _) => move_index(lower, old, new).await,
        (None, None, _) => Ok(()),
    }
}

/// Moves an index to a name that no other index has.
async fn move_index(lower: &Fs, old: EntryName<'_>, new: EntryName<'_>) -> FsResult<()> {
    let mut moved = lower.rename(old, new, RenameMode::NoReplace).await;
    if moved.is_err() {
        // Many network file systems know only renames that replace.
        match lower.lookup(new.parent, new.name).await {
            Err(FsError::NotFound) => moved = lower.rename(old, new, RenameMode::Replace).await,
            Ok(other) => lower.forget(other.attr.ino, 1).await,
            Err(_) => {}
        }
    }
    match moved {
        Ok(()) => Ok(()),
        // Another file has that name; then this file has no index.
        Err(_) => lower.unlink(old.parent, old.name).await,
    }
}

/// Names of files whose indexes are in a directory; `None` once it contains anything else.
struct Names {
    only_indexes: Option<Vec<Vec<u8>>>,
}

impl Default for Names {
    fn default() -> Names {
        Names { only_indexes: Some(Vec::new()) }
    }
}

impl DirSink for Names {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        if entry.name == b"." || entry.name == b".." {
            return true;
        }
        match (entry.name.strip_suffix(super::format::SUFFIX), &mut self.only_indexes) {
            (Some(name), Some(names)) => names.push(name.to_vec()),
            _ => self.only_indexes = None,
        }
        self.only_indexes.is_some()
    }
}
