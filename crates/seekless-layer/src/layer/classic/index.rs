//! The index beside a file: how it is found, verified and written.

use super::file::{File, Form, Node};
use super::format::{Index, PAGES_MAX, SUFFIX};
use super::{Classic, count};
use crate::device::Data;
use crate::fs::acl::XATTR_ACL_ACCESS;
use crate::fs::{Attr, EntryName, FileKind, Fs, FsError, FsResult, NewNode, OpenFlags, SetAttr, WriteMode, XattrMode};
use crate::layer::read_lower;
use crate::units::Ino;

/// The name of the index of `name`.
pub(super) fn index_name(name: &[u8]) -> Vec<u8> {
    [name, SUFFIX].concat()
}

/// An index that was found, with one lookup counted. Its content has not been verified.
#[derive(Clone, Copy)]
pub(super) struct FoundIndex {
    pub ino: Ino,
    pub bytes: u64,
    pub links: u32,
}

/// Why an index could not be read.
pub(super) enum BadIndex {
    /// This is wrong with it.
    Wrong(String),
    Failed(FsError),
}

impl From<FsError> for BadIndex {
    fn from(error: FsError) -> BadIndex {
        BadIndex::Failed(error)
    }
}

/// Finds the index of the file at `place`; `None` when there is none that begins as an index.
///
/// # Errors
/// Those of the file system below.
pub(super) async fn find(lower: &Fs, place: EntryName<'_>) -> FsResult<Option<FoundIndex>> {
    let entry = match lower.lookup(place.parent, &index_name(place.name)).await {
        Ok(entry) => entry,
        Err(FsError::NotFound | FsError::NameTooLong) => return Ok(None),
        Err(error) => return Err(error),
    };
    let ino = entry.attr.ino;
    let start = match entry.attr.kind {
        FileKind::Regular => read_lower(lower, ino, None, 0, 8).await,
        _ => Ok(b"other".to_vec()),
    };
    match start {
        Ok(start) if Index::begins(&start) => {
            Ok(Some(FoundIndex { ino, bytes: entry.attr.size, links: entry.attr.links }))
        }
        other => {
            lower.forget(ino, 1).await;
            other.map(|_| None)
        }
    }
}

impl Classic {
    /// Loads the node of the file with `attr`, found at `place`.
    ///
    /// # Errors
    /// Those of reading. An error in the file itself becomes its form.
    pub(super) async fn load(&self, lower: &Fs, attr: &Attr, place: Option<EntryName<'_>>) -> FsResult<Node> {
        let found = match place {
            Some(place) => {
                let _names = self.names.enter().await;
                find(lower, place).await?
            }
            None => None,
        };
        let mut file = File { index_ino: found.map(|found| found.ino), ..File::empty(place) };
        if attr.size == 0 {
            file.index_changed(0);
            return Ok(Node::new(attr.ino, Some(file)));
        }
        file.is_certain = found.is_some();
        let read = match found {
            Some(found) => self.read_index(lower, found).await,
            None => Err(BadIndex::Wrong("there is none".to_string())),
        };
        let node = match read {
            Ok(index) if index.lower_size() == attr.size => {
                count(&self.counts.indexes_read, 1);
                (file.index, file.is_verified) = (index, false);
                Node::new(attr.ino, Some(file))
            }
            Ok(_) | Err(BadIndex::Wrong(_)) => {
                // K1. At once, since reading one unit costs as much as reading all of them [za01 §5].
                let node = Node::new(attr.ino, Some(file));
                match self.look_again(lower, &node).await {
                    // An error of the file itself is in its form.
                    Ok(()) | Err(FsError::Corrupt { .. }) => {}
                    Err(error) => {
                        self.forget_index(lower, &node).await;
                        return Err(error);
                    }
                }
                self.write_index(lower, &node).await;
                node
            }
            Err(BadIndex::Failed(error)) => {
                let node = Node::new(attr.ino, Some(file));
                self.forget_index(lower, &node).await;
                return Err(error);
            }
        };
        Ok(node)
    }

    /// Reads an index and verifies it by itself; whether it matches its file is another question.
    pub(super) async fn read_index(&self, lower: &Fs, found: FoundIndex) -> Result<Index, BadIndex> {
        if found.bytes > (PAGES_MAX + 2) * 8 {
            return Err(BadIndex::Wrong(format!("it has {} bytes", found.bytes)));
        }
        let bytes = read_lower(lower, found.ino, None, 0, found.bytes as u32).await?;
        Index::from_bytes(&bytes).map_err(BadIndex::Wrong)
    }

    pub(super) async fn forget_index(&self, lower: &Fs, node: &Node) {
        let ino = node.file.as_ref().and_then(|file| file.borrow_mut().index_ino.take());
        if let Some(ino) = ino {
            lower.forget(ino, 1).await;
        }
    }

    /// Writes the changed part of the index. When it cannot be written it is removed, as a part of it would be worse
    /// than none [za01 §5]. The operation that changed the file does not fail for that.
    pub(super) async fn write_index(&self, lower: &Fs, node: &Node) {
        let Some(file) = &node.file else { return };
        {
            let file = file.borrow();
            if self.read_only || !file.is_certain || file.form != Form::Units || file.index_changed_from.is_none() {
                return;
            }
            if file.index_ino.is_none() && file.index.size == 0 {
                return; // No unit to look up.
            }
        }
        if self.try_write_index(lower, node).await.is_err() {
            count(&self.counts.indexes_dropped, 1);
            self.drop_index(lower, node).await;
            // Not again until something changes.
            file.borrow_mut().index_changed_from = None;
        }
    }

    async fn try_write_index(&self, lower: &Fs, node: &Node) -> FsResult<()> {
        let file = node.regular()?;
        let known = file.borrow().index_ino;
        let ino = match known {
            Some(ino) => ino,
            None => self.make_index(lower, node).await?,
        };
        let before = lower.getattr(ino, None).await?.size;
        let width_before = read_width(lower, ino).await?;
        let (from, word_bytes, words, head, size) = {
            let file = file.borrow();
            let index = &file.index;
            let word_bytes = index.word_bytes() as u64;
            let from = file.index_changed_from.unwrap_or(0);
            let size = (index.ends.len() as u64 + 2) * word_bytes;
            // With another word width, every word changes.
            let from = if width_before == word_bytes && before >= from as u64 * word_bytes { from } else { 0 };
            (from, word_bytes, index.words(from), index.words(0)[..2 * word_bytes as usize].to_vec(), size)
        };
        // The words of the head last: until then they do not match the lower file, or the index is unchanged.
        if from >= 2 {
            if !words.is_empty() {
                lower
                    .write(ino, None, from as u64 * word_bytes, Data::from_slice(&words), WriteMode::default())
                    .await?;
            }
            lower.write(ino, None, 0, Data::from_slice(&head), WriteMode::default()).await?;
        } else {
            lower.write(ino, None, 0, Data::from_slice(&words), WriteMode::default()).await?;
        }
        if before > size {
            lower.setattr(ino, None, SetAttr { size: Some(size), ..SetAttr::default() }).await?;
        }
        count(&self.counts.indexes_written, 1);
        file.borrow_mut().index_changed_from = None;
        Ok(())
    }

    /// Creates the index file, with the owner and permissions of the file. An existing file of that name is used if it
    /// is an index.
    pub(super) async fn make_index(&self, lower: &Fs, node: &Node) -> FsResult<Ino> {
        let file = node.regular()?;
        let _names = self.names.enter().await;
        let (parent, name) = file.borrow().place.clone().ok_or(FsError::NotFound)?;
        let place = EntryName { parent, name: &name };
        let entry = lower.lookup(parent, &name).await?;
        lower.forget(entry.attr.ino, 1).await;
        if entry.attr.ino != node.ino {
            return Err(FsError::NotFound); // Another process has moved it.
        }
        let Attr { permissions, uid, gid, .. } = entry.attr;
        let new = NewNode { permissions: permissions & 0o777, umask: 0, uid, gid };
        let made = lower.create(parent, &index_name(&name), new, OpenFlags::READ_WRITE).await;
        let ino = match made {
            Ok((entry, opened)) => {
                let index = entry.attr.ino;
                if let Some(handle) = opened.handle {
                    lower.release(index, handle).await?;
                }
                // With an access list, the permissions alone would mean something else; and the index may have
                // inherited one.
                match lower.getxattr(node.ino, XATTR_ACL_ACCESS).await {
                    Ok(list) => lower.setxattr(index, XATTR_ACL_ACCESS, &list, XattrMode::Set).await?,
                    Err(_) if lower.traits().access_lists => lower.removexattr(index, XATTR_ACL_ACCESS).await?,
                    Err(_) => {}
                }
                index
            }
            Err(FsError::Exists) => find(lower, place).await?.ok_or(FsError::Exists)?.ino,
            Err(error) => return Err(error),
        };
        let mut file = file.borrow_mut();
        file.index_ino = Some(ino);
        file.index_changed_from = Some(0);
        Ok(ino)
    }

    /// Removes the index of a file.
    async fn drop_index(&self, lower: &Fs, node: &Node) {
        let Ok(file) = node.regular() else { return };
        let _names = self.names.enter().await;
        let place = file.borrow().place.clone();
        let ino = file.borrow().index_ino;
        if let (Some((parent, name)), Some(ino)) = (place, ino)
            && let Ok(Some(found)) = find(lower, EntryName { parent, name: &name }).await
        {
            lower.forget(found.ino, 1).await;
            if found.ino == ino {
                // An index that cannot be removed does not match the file, and is not used (K1).
                let _ = lower.unlink(parent, &index_name(&name)).await;
            }
        }
        self.forget_index(lower, node).await;
    }
}

/// Bytes of a word of the existing index; 0 when there is none.
async fn read_width(lower: &Fs, ino: Ino) -> FsResult<u64> {
    let start = read_lower(lower, ino, None, 0, 8).await?;
    Ok(match start.first() {
        Some(first) if u64::from(*first) & super::format::flags::LARGE != 0 => 8,
        Some(_) => 4,
        None => 0,
    })
}
