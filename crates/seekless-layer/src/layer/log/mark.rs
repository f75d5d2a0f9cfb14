//! The size of a file, in an extended attribute of its lower file.
//!
//! Invariants
//!   M1  A clean mark is true: before a slot makes it wrong, it is made unclean, durably.
//!
//! Names. The attribute is hidden from users of the layer. When they set an attribute of that name, as another layer
//! like this one does, it gets a `+` below; one that already has a `+` gets another, and so on.

use super::ChunkedLayer;
use super::file::{File, Mark};
use super::format::SizeMark;
use super::node::OpenFile;
use crate::fs::{Attr, Fs, FsError, FsResult, SetAttr, XattrMode};
use crate::layer::directory;

/// Names of the layer's own attributes.
const NAMES: [&[u8]; 2] = [NAME, directory::NAME];

/// Name of the attribute.
pub(super) const NAME: &[u8] = b"user.seekless.size";

/// The name below of the attribute named `name` above.
pub(in crate::layer) fn below(name: &[u8]) -> Vec<u8> {
    let mut below = name.to_vec();
    if is_ours_with_plus(name) {
        below.push(b'+');
    }
    below
}

/// The name above of the attribute named `name` below; `None` for our own.
pub(in crate::layer) fn above(name: &[u8]) -> Option<Vec<u8>> {
    match name {
        name if NAMES.contains(&name) => None,
        name if is_ours_with_plus(name) => Some(name[..name.len() - 1].to_vec()),
        name => Some(name.to_vec()),
    }
}

fn is_ours_with_plus(name: &[u8]) -> bool {
    let has_pluses = |ours: &&[u8]| name.strip_prefix(*ours).is_some_and(|rest| rest.iter().all(|&byte| byte == b'+'));
    NAMES.iter().any(has_pluses)
}

/// True for errors of reading a mark that tell nothing about it. Others come where attributes cannot be used: either there is
/// no mark, or, as without permission to read the file, it could not be made unclean either.
pub(super) fn may_hide_a_mark(error: &FsError) -> bool {
    // Of the errors of hosts: EINTR, EIO, ENOMEM, ENFILE, EMFILE.
    matches!(error, FsError::Device(_) | FsError::Corrupt { .. } | FsError::Host(4 | 5 | 12 | 23 | 24))
}

impl ChunkedLayer {
    /// The mark of the lower file with `attr` if it can be trusted, and whether there is a clean one.
    pub(super) async fn marked(&self, lower: &Fs, attr: &Attr) -> (Option<SizeMark>, Mark) {
        let value = match lower.getxattr(attr.ino, NAME).await {
            Ok(value) => value,
            // A clean one may be there.
            Err(error) if may_hide_a_mark(&error) => return (None, Mark::Clean),
            Err(_) => Vec::new(),
        };
        match SizeMark::from_bytes(&value).filter(|mark| mark.clean == 1) {
            Some(mark) => (Some(mark).filter(|mark| mark.lower_size == attr.size), Mark::Clean),
            // The layer that made it unclean may have been killed before that was durable.
            None => (None, Mark::Unclean),
        }
    }

    /// Makes a clean mark unclean. The caller makes that durable, which takes a sync of attributes too, before it
    /// changes a slot (M1).
    pub(super) async fn unmark(&self, file: OpenFile<'_>) -> FsResult<()> {
        if file.borrow().mark != Mark::Clean {
            return Ok(());
        }
        let mark = SizeMark::new(false, 0, 0, 0).to_bytes();
        if let Err(error) = file.lower.setxattr(file.ino(), NAME, &mark, XattrMode::Set).await {
            // When attributes have no room, or are not supported, it is enough that there is no mark.
            match file.lower.removexattr(file.ino(), NAME).await {
                Ok(()) | Err(FsError::NoAttribute | FsError::Unsupported) => {}
                Err(_) => return Err(error),
            }
        }
        file.borrow_mut().mark = Mark::Unclean;
        Ok(())
    }

    /// Marks a file whose commits are durable, if it has changed since it was opened. The mark only saves time: where
    /// the file system below has no room for attributes, or no support for them, there is none.
    pub(super) async fn mark(&self, file: OpenFile<'_>) {
        let wants_mark = |file: &File| {
            let is_durable = !file.has_changes() && file.durable_generation == file.generation && file.generation > 0;
            is_durable && file.mark != Mark::Clean && file.is_touched && file.stopped.is_none()
        };
        if self.read_only || !wants_mark(&file.borrow()) {
            return;
        }
        let _pass = file.node.attributes.enter().await;
        let Ok(attr) = file.by_inode().getattr().await else { return };
        let (size, generation, version) = {
            let file = file.borrow();
            (file.size, file.generation, file.version)
        };
        let mark = SizeMark::new(true, size, generation, attr.size).to_bytes();
        // From here on it may exist, whatever the call returns.
        if wants_mark(&file.borrow()) && version == file.borrow().version {
            file.borrow_mut().mark = Mark::Clean;
            // After an error it must be made unclean later, which costs little if it does not exist.
            if file.lower.setxattr(file.ino(), NAME, &mark, XattrMode::Set).await.is_ok() {
                file.borrow_mut().is_touched = false;
                if file.lower.traits().exclusive {
                    // The mark is invisible above, so it must not change the time of the last change.
                    let back = SetAttr { ctime: Some(attr.ctime), ..SetAttr::default() };
                    let _ = file.by_inode().setattr(back).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attribute names from above come back unchanged, and never collide with the layer's own.
    #[test]
    fn names_can_be_distinguished() {
        for name in [&b"user.a"[..], NAME, b"user.seekless.size+", b"user.seekless.size++", b"user.seekless.sizes"] {
            assert_ne!(below(name), NAME);
            assert_eq!(above(&below(name)).as_deref(), Some(name));
        }
        assert_eq!((above(NAME), above(directory::NAME)), (None, None));
        assert_eq!(above(&below(directory::NAME)).as_deref(), Some(directory::NAME));
        assert_eq!(below(b"user.a"), b"user.a");
    }
}
