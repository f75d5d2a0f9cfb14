//! A new file takes the name of the one that it was made from, while other programs may use that name.
//!
//! No rename replaces a file only if it is a certain one. So the two names swap their files, which loses nothing, and what has come to the
//! other name by that is looked at. The old file, as it was when it was copied, is removed. Anything else is what others made of the name
//! in the last moment, and the names swap again. That may displace something later still, so it is looked at each time.
//!
//! Invariants
//!   W1  Only these files are removed: the new one; the old one, unchanged; one whose name others have replaced or removed since.

use std::cell::RefCell;

use super::load::is_forbidden;
use super::mark;
use crate::fs::{Attr, EntryName, Fs, FsError, FsResult, Handle, OpenFlags, OpenProtocol, RenameMode, Writers};
use crate::units::Ino;

/// Why a file was not replaced.
#[derive(Debug)]
pub(super) enum NotReplaced {
    /// It is left as it is, for this reason.
    Left(&'static str),
    /// Others have it open for writing.
    InUse,
    /// There is not enough space to write it again.
    NoSpace,
    Failed(FsError),
    /// Its directory takes no new file, or keeps one, as the text says: so it would for the others in it.
    Directory(String),
    /// There are two versions of it now, as the text says.
    Kept(String),
}

pub(super) const CHANGED: &str = "it was changed in the meantime";

pub(super) const REMOVED: &str = "it was removed in the meantime";

const TOO_LARGE: &str = "the file system below takes no file of its size";

/// Others have removed the file that the error is about.
pub(super) fn is_removed(error: &FsError) -> bool {
    matches!(error, FsError::NotFound | FsError::Stale)
}

impl From<FsError> for NotReplaced {
    fn from(error: FsError) -> NotReplaced {
        match error {
            FsError::NoSpace => NotReplaced::NoSpace,
            FsError::FileTooLarge => NotReplaced::Left(TOO_LARGE),
            error if is_removed(&error) => NotReplaced::Left(REMOVED),
            error => NotReplaced::Failed(error),
        }
    }
}

/// Fails when others have the file open for writing, or had since the first call.
pub(super) async fn check_writers(fs: &Fs, ino: Ino, handle: Option<Handle>) -> Result<Writers, NotReplaced> {
    match fs.other_writers(ino, handle).await? {
        Writers::Some => Err(NotReplaced::InUse),
        writers => Ok(writers),
    }
}

/// A file as it was found, without its content: a change of that shows in the time.
pub(super) struct FoundFile {
    pub(super) attr: Attr,
    /// Names and values, without the layer's own.
    pub(super) attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

impl FoundFile {
    pub(super) async fn of(fs: &Fs, ino: Ino) -> FsResult<FoundFile> {
        let attr = fs.getattr(ino, None).await?;
        let mut attributes = Vec::new();
        let names = match fs.listxattr(ino).await {
            // There are none where there can be none, as on sshfs.
            Err(FsError::Unsupported) => Vec::new(),
            names => names?,
        };
        for name in names {
            if name == mark::NAME {
                continue;
            }
            match fs.getxattr(ino, &name).await {
                Err(FsError::NoAttribute) => {}
                value => attributes.push((name, value?)),
            }
        }
        Ok(FoundFile { attr, attributes })
    }

    /// Whether it is the same file without a change. A rename may set `ctime`, which is therefore not compared.
    fn is_as(&self, other: &FoundFile) -> bool {
        let key = |found: &FoundFile| {
            let Attr { ino, kind, permissions, links, uid, gid, size, mtime, .. } = found.attr;
            (ino, kind, permissions, links, uid, gid, size, mtime)
        };
        key(self) == key(other) && self.attributes == other.attributes
    }
}

/// The name of the old file and that of the new one, in one directory.
pub(super) struct Names<'a> {
    lower: &'a Fs,
    parent: Ino,
    name: &'a [u8],
    unfinished: &'a [u8],
    /// The files that were looked at are in use, so that no other one gets the number of one of them.
    held: RefCell<Vec<Ino>>,
}

impl<'a> Names<'a> {
    /// Only this process uses the name `unfinished`.
    pub(super) fn new(lower: &'a Fs, parent: Ino, name: &'a [u8], unfinished: &'a [u8]) -> Names<'a> {
        Names { lower, parent, name, unfinished, held: RefCell::default() }
    }

    /// Gives the new file the name of `old`, and removes that. `handle` is that of `old`. Returns whether `old` was free of writers.
    pub(super) async fn replace(&self, old: &FoundFile, handle: Option<Handle>) -> Result<Writers, NotReplaced> {
        let replaced = self.replace_held(old, handle).await;
        for ino in self.held.take() {
            self.lower.forget(ino, 1).await;
        }
        replaced
    }

    async fn replace_held(&self, old: &FoundFile, handle: Option<Handle>) -> Result<Writers, NotReplaced> {
        let new = self.look(self.unfinished).await?;
        let writers = match self.check(old, handle).await {
            Ok(writers) => writers,
            Err(why) => return Err(self.remove(new.attr.ino, why).await),
        };
        match self.swap().await {
            Ok(()) => {}
            // There is no such rename here.
            Err(FsError::Unsupported | FsError::Invalid(_) | FsError::Loop) => {
                // A change between these two is lost.
                let replaced = match self.check(old, handle).await {
                    Ok(_) => self.rename(self.unfinished, self.name, RenameMode::Replace).await.map_err(Into::into),
                    Err(why) => Err(why),
                };
                return match replaced {
                    Ok(()) => Ok(writers),
                    Err(why) => Err(self.remove(new.attr.ino, why).await),
                };
            }
            Err(error) => return Err(self.remove(new.attr.ino, error.into()).await),
        }
        // A writer that found the old file by its name, and waits to open it, still gets it under that name.
        let found = self.look(self.unfinished).await;
        let why = match (check_writers(self.lower, old.attr.ino, handle).await, found) {
            (Ok(_), Ok(found)) if found.is_as(old) => {
                self.lower.unlink(self.parent, self.unfinished).await?;
                return Ok(writers);
            }
            (Err(why), _) => why,
            (_, Err(error)) => error.into(),
            _ => NotReplaced::Left(CHANGED),
        };
        let gave_back = self.give_back(new).await;
        // Others may have synced their names when these were swapped.
        let synced = self.lower.fsyncdir(self.parent, None).await;
        match gave_back {
            Ok(true) => Err(synced.err().map_or(why, NotReplaced::Failed)),
            Ok(false) => Err(self.keep(CHANGED, old.attr.ino).await),
            Err(error) => Err(self.keep(&error.to_string(), old.attr.ino).await),
        }
    }

    /// Gives the file with the name `unfinished` its name back, which `placed` has now, and removes `placed`. Returns
    /// false when something is left under the name `unfinished` that others may want.
    async fn give_back(&self, mut placed: FoundFile) -> FsResult<bool> {
        // Each time but the first, others have saved the file since the one before.
        const SWAPS_MAX: u32 = 16;
        for _ in 0..SWAPS_MAX {
            let beside = self.look(self.unfinished).await?;
            let at_name = match self.look(self.name).await {
                Err(FsError::NotFound) => None,
                found => Some(found?.attr.ino),
            };
            if at_name != Some(placed.attr.ino) {
                // Others have replaced or removed what stood for the file beside, or have moved it.
                let was_moved = self.is_linked(placed.attr.ino).await?;
                if !was_moved {
                    self.lower.unlink(self.parent, self.unfinished).await?;
                }
                return Ok(!was_moved);
            }
            let watch = match self.lower.traits().open_protocol {
                OpenProtocol::Handles => self.lower.open(placed.attr.ino, OpenFlags::READ).await?.handle,
                OpenProtocol::ZeroMessage => None,
            };
            let displaced = self.displace(placed.attr.ino, watch).await;
            if let Some(watch) = watch {
                self.lower.release(placed.attr.ino, watch).await?;
            }
            match displaced? {
                // Nothing has moved.
                None => {}
                Some((found, has_writer)) if found.attr.ino == placed.attr.ino => {
                    let is_unused = found.is_as(&placed) && !has_writer;
                    if is_unused {
                        self.lower.unlink(self.parent, self.unfinished).await?;
                    }
                    return Ok(is_unused);
                }
                // It is later than the one that has the name now.
                Some(_) => placed = beside,
            }
        }
        Ok(false)
    }

    /// Swaps the names, and returns what the file `placed` was displaced as, and whether it has a writer: one that began before its name was
    /// gone. `None` when the name had gone before.
    async fn displace(&self, placed: Ino, watch: Option<Handle>) -> FsResult<Option<(FoundFile, bool)>> {
        let had_writer = self.lower.other_writers(placed, watch).await? == Writers::Some;
        match self.swap().await {
            Err(FsError::NotFound) => return Ok(None),
            swapped => swapped?,
        }
        let has_writer = self.lower.other_writers(placed, watch).await? == Writers::Some;
        Ok(Some((self.look(self.unfinished).await?, had_writer || has_writer)))
    }

    /// Gives what has the name `unfinished`, and belongs to others, a name at which they find it, and which no later conversion takes for
    /// that of an unfinished file.
    async fn keep(&self, why: &str, old: Ino) -> NotReplaced {
        const NAMES_MAX: u32 = 100;
        for number in 0..NAMES_MAX {
            let kept = format!("seekless-pack-kept-{old}-{number}");
            match self.rename(self.unfinished, kept.as_bytes(), RenameMode::NoReplace).await {
                Ok(()) => {
                    // A later conversion may remove what comes back under the other name after a power cut.
                    let synced = self.lower.fsyncdir(self.parent, None).await.err();
                    let unsynced = synced.map(|error| format!(", and may not be durable: {error}")).unwrap_or_default();
                    return NotReplaced::Kept(format!("{why}; what it was before is in {kept}, beside it{unsynced}"));
                }
                Err(FsError::Exists | FsError::NotEmpty) => {}
                Err(_) => break,
            }
        }
        let kept = String::from_utf8_lossy(self.unfinished);
        NotReplaced::Kept(format!("{why}; what it was before is in {kept}, beside it, which is to be renamed"))
    }

    /// Fails unless the name has the old file as it was copied, without a writer.
    async fn check(&self, old: &FoundFile, handle: Option<Handle>) -> Result<Writers, NotReplaced> {
        let found = self.look(self.name).await?;
        if !found.is_as(old) || found.attr.ctime != old.attr.ctime {
            return Err(NotReplaced::Left(CHANGED));
        }
        check_writers(self.lower, old.attr.ino, handle).await
    }

    /// Removes the new file because of `why`, which is the first error and so the one to report. After a rename whose effect is unknown the
    /// name may have another file.
    pub(super) async fn remove(&self, new: Ino, why: NotReplaced) -> NotReplaced {
        if let Ok(entry) = self.lower.lookup(self.parent, self.unfinished).await {
            self.lower.forget(entry.attr.ino, 1).await;
            if entry.attr.ino == new
                && let Err(error) = self.lower.unlink(self.parent, self.unfinished).await
                && is_forbidden(&error)
            {
                let left = String::from_utf8_lossy(self.unfinished);
                return NotReplaced::Directory(format!("{error}; {left} cannot be removed from it"));
            }
        }
        why
    }

    /// What has this name now.
    async fn look(&self, name: &[u8]) -> FsResult<FoundFile> {
        let ino = self.lower.lookup(self.parent, name).await?.attr.ino;
        self.held.borrow_mut().push(ino);
        FoundFile::of(self.lower, ino).await
    }

    async fn is_linked(&self, ino: Ino) -> FsResult<bool> {
        match self.lower.getattr(ino, None).await {
            Err(error) if is_removed(&error) => Ok(false),
            attr => Ok(attr?.links > 0),
        }
    }

    async fn swap(&self) -> FsResult<()> {
        self.rename(self.unfinished, self.name, RenameMode::Exchange).await
    }

    async fn rename(&self, from: &[u8], to: &[u8], mode: RenameMode) -> FsResult<()> {
        let name = |name| EntryName { parent: self.parent, name };
        self.lower.rename(name(from), name(to), mode).await
    }
}
