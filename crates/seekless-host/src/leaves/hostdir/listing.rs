//! Directory listings.
//!
//! The host numbers its entries itself: `d_off` continues a listing and stays valid however the directory changes. Ours
//! are the host's plus 2, since `.` and `..` come first here, as 1 and 2, in any order of the host.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, Mode, OFlags, RawDir, SeekFrom};
use seekless::fs::{DirEntry, DirSink, FileKind, FsError, FsResult, Handle};
use seekless::units::Ino;

use super::{HostDir, Key, sys};
use crate::reactor::File;

const COOKIE_SELF: u64 = 1;
const COOKIE_PARENT: u64 = 2;

/// Largest `d_off` that can be shifted. Larger ones are the ends of directories (ext4 and btrfs use the largest signed
/// number) and stay as they are.
const SHIFTED_MAX: u64 = i64::MAX as u64 - 3;

fn cookie_of(host: u64) -> u64 {
    if host <= SHIFTED_MAX { host + COOKIE_PARENT } else { host }
}

fn host_of(cookie: u64) -> u64 {
    if cookie <= SHIFTED_MAX + COOKIE_PARENT { cookie - COOKIE_PARENT } else { cookie }
}

/// Bytes of entries requested at once. With attributes, an entry takes some five times as much in a reply as here, and
/// entries that do not fit into the reply are read again.
const PLAIN_BYTES: usize = 32 << 10;
const ATTRIBUTES_BYTES: usize = 4 << 10;

impl HostDir {
    pub(super) fn list(
        &self,
        ino: Ino,
        handle: Option<Handle>,
        cookie: u64,
        attributes: bool,
        sink: &mut dyn DirSink,
    ) -> FsResult<()> {
        let directory: File = match handle {
            Some(handle) => self.opened(ino, handle)?.file.clone(),
            None => {
                let place = self.inodes.file(ino)?;
                if self.kind_of(&place)? != FileKind::Directory {
                    return Err(FsError::NotDirectory);
                }
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                let opened = self.inodes.with_room(|| self.inodes.host_root().reopen(&place, flags));
                std::sync::Arc::new(opened.map_err(sys::error)?)
            }
        };
        if cookie < COOKIE_PARENT {
            let parent = self.parent_of(ino, &directory)?;
            for (own, name, ino) in [(COOKIE_SELF, &b"."[..], ino), (COOKIE_PARENT, b"..", parent)] {
                let entry = DirEntry { ino, kind: FileKind::Directory, name, cookie: own, entry: None };
                if own > cookie && !sink.add(&entry) {
                    return Ok(());
                }
            }
        }
        let start = host_of(cookie.max(COOKIE_PARENT));
        rustix::fs::seek(&*directory, SeekFrom::Start(start)).map_err(|_| FsError::Invalid("not a cookie"))?;
        let bytes = if attributes { ATTRIBUTES_BYTES } else { PLAIN_BYTES };
        let mut buffer = vec![MaybeUninit::uninit(); bytes];
        let device = self.inodes.device(ino);
        let mut entries = RawDir::new(&*directory, &mut buffer);
        let mut any = false;
        while let Some(listed) = entries.next() {
            let listed = match listed {
                Ok(listed) => listed,
                // Entries passed on stay passed on; the next call gets the error again.
                Err(_) if any => return Ok(()),
                Err(errno) => return Err(sys::error(errno)),
            };
            let name = listed.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let found = if attributes { self.find(ino, &directory, name) } else { Err(FsError::Unsupported) };
            let (own, kind, entry) = match found {
                Ok(entry) => (entry.attr.ino, entry.attr.kind, Some(entry)),
                Err(FsError::NotFound) if attributes => continue, // It has been removed since.
                // It exists, and its lookup will report the error.
                Err(_) => {
                    let Some(kind) = kind_of(&directory, listed.file_type(), name) else { continue };
                    (self.inodes.number(Key { device, ino: listed.ino() }), kind, None)
                }
            };
            let cookie = cookie_of(listed.next_entry_cookie());
            if !sink.add(&DirEntry { ino: own, kind, name, cookie, entry }) {
                if let Some(entry) = entry {
                    self.forget_lookups(entry.attr.ino, 1);
                }
                return Ok(());
            }
            any = true;
        }
        Ok(())
    }

    /// The `..` of `directory`; the root's is itself, whatever is above it on the host.
    fn parent_of(&self, ino: Ino, directory: &OwnedFd) -> FsResult<Ino> {
        if ino == Ino::ROOT {
            return Ok(Ino::ROOT);
        }
        let stat = sys::stat_at(directory, b"..").map_err(sys::error)?;
        Ok(self.inodes.number(Key::of(&stat)))
    }
}

fn kind_of(directory: &OwnedFd, file_type: FileType, name: &[u8]) -> Option<FileKind> {
    Some(match file_type {
        FileType::RegularFile => FileKind::Regular,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        // Some hosts do not report the type.
        FileType::Unknown => return sys::stat_at(directory, name).ok().and_then(|stat| sys::kind(&stat).ok()),
    })
}

/// Names that stand for files that were removed while they were open: libfuse and NFS keep them until they are closed.
const REMOVED_PREFIXES: [&[u8]; 2] = [b".fuse_hidden", b".nfs"];

/// Whether the directory `name` has nothing in it but files that were removed, which a close under way takes away.
pub(super) fn holds_removed_alone(directory: &OwnedFd, name: &[u8]) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(opened) = rustix::fs::openat(directory, name, flags, Mode::empty()) else { return false };
    let mut buffer = vec![MaybeUninit::uninit(); PLAIN_BYTES];
    let mut entries = RawDir::new(&opened, &mut buffer);
    while let Some(listed) = entries.next() {
        let Ok(listed) = listed else { return false };
        let name = listed.file_name().to_bytes();
        let is_own = name == b"." || name == b"..";
        if !is_own && !REMOVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            return false;
        }
    }
    true
}
