//! Packing turns the plain files of a directory into encoded ones; unpacking is the reverse.
//!
//! Each file is written again beside the old one, made durable, read back and compared, and then takes its name in one
//! step. So at every moment each name has one whole file. After an interruption the user starts again, and files
//! already converted are skipped. The rest of an unfinished file is removed then.
//!
//! Some files are left as they are: a file with several names, since converting one name at a time would make several
//! files of it; a file that changes during its conversion; and one that would not take less space.

use super::load::{Content, look};
use super::{Options, Plain, mark, stack_on};
use crate::codec::{crc32c_append, is_zero};
use crate::fs::acl::XATTR_ACL_ACCESS;
use crate::fs::client::Client;
use crate::fs::{
    Attr, EntryName, FileKind, Fs, FsError, FsResult, Handle, NewNode, OpenFlags, RenameMode, SetAttr, SetTime,
    WriteMode, XattrMode,
};
use crate::layer::directory::{Claim, let_go, schemes};
use crate::rt::Rt;
use crate::units::Ino;

/// Direction of the conversion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    Pack,
    Unpack,
}

/// Progress so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    pub files_seen: u64,
    pub files_converted: u64,
    /// Files that already have the right form.
    pub files_done_before: u64,
    /// Storage of the converted files before and after.
    pub bytes_before: u64,
    pub bytes_after: u64,
    /// Files that were left as they are, with the reason.
    pub left: Vec<(Vec<u8>, String)>,
}

/// Start of the names of unfinished files.
const UNFINISHED: &[u8] = b".seekless-pack-";

/// Smallest number of sectors worth packing: a file in one block of most file systems, 4 KiB, cannot get smaller.
const SECTORS_MIN: u64 = 8;

const NO_GAIN: &str = "it would not take less space";

/// Bytes of one read or write.
const PIECE_BYTES: u32 = 1 << 20;

/// Converts all files below the root of `lower`, which no other task may change until this returns. Calls `tell` with
/// the progress at every file.
///
/// # Errors
/// The first error of the file systems. Files already converted stay so.
pub async fn convert(
    rt: &Rt,
    lower: Fs,
    options: Options,
    direction: Direction,
    tell: &dyn Fn(&Progress, &[u8]),
) -> FsResult<Progress> {
    let (is_secret, codec) = (options.codec.is_secret(), options.codec.clone());
    let top = stack_on(rt, lower.clone(), Options { plain: Plain::Pass, settle_at_fsync: true, ..options }).await?;
    let wants_gain = direction == Direction::Pack && !is_secret;
    let work = PackJob { lower: Client::new(lower.clone()), top: Client::new(top.clone()), direction, wants_gain };
    let mut progress = Progress::default();
    let converted = work.tree(&mut progress, tell).await;
    // Also after an error: everything converted is durable when this returns.
    let closed = top.close().await;
    converted.and(closed)?;
    if direction == Direction::Unpack {
        let_go(&lower, Claim { scheme: schemes::LOG, codec: &*codec }).await?;
    }
    Ok(progress)
}

struct PackJob {
    lower: Client,
    top: Client,
    direction: Direction,
    /// Leave files that would not take less space.
    wants_gain: bool,
}

/// Why a file was not replaced.
enum NotReplaced {
    /// It is left as it is, for this reason.
    Left(&'static str),
    Failed(FsError),
}

impl From<FsError> for NotReplaced {
    fn from(error: FsError) -> NotReplaced {
        NotReplaced::Failed(error)
    }
}

/// An open file on one side.
#[derive(Clone, Copy)]
struct Side<'a> {
    fs: &'a Fs,
    ino: Ino,
    handle: Option<Handle>,
}

impl Side<'_> {
    /// Reads at `offset`, in one piece.
    async fn read(&self, offset: u64) -> FsResult<Vec<u8>> {
        let pieces = self.fs.read(self.ino, self.handle, offset, PIECE_BYTES).await?;
        Ok(pieces.iter().flat_map(|piece| piece.iter().copied()).collect())
    }

    /// Checksum and number of all bytes.
    async fn checksum(&self) -> FsResult<(u32, u64)> {
        let (mut crc, mut at) = (0, 0);
        loop {
            let piece = self.read(at).await?;
            if piece.is_empty() {
                return Ok((crc, at));
            }
            crc = crc32c_append(crc, &piece);
            at += piece.len() as u64;
        }
    }

    async fn release(&self) -> FsResult<()> {
        match self.handle {
            Some(handle) => self.fs.release(self.ino, handle).await,
            None => Ok(()),
        }
    }
}

impl PackJob {
    async fn tree(&self, progress: &mut Progress, tell: &dyn Fn(&Progress, &[u8])) -> FsResult<()> {
        let mut open = vec![Vec::new()];
        while let Some(directory) = open.pop() {
            let mut has_changed = false;
            let entries = self.lower.read_dir(&directory).await?;
            let is_unfinished = |name: &[u8]| name.starts_with(UNFINISHED);
            for entry in entries.iter().filter(|entry| is_unfinished(&entry.name)) {
                self.lower.unlink(&[&directory[..], b"/", &entry.name].concat()).await?;
            }
            for entry in entries.into_iter().filter(|entry| !is_unfinished(&entry.name)) {
                let path = [&directory[..], b"/", &entry.name].concat();
                match entry.kind {
                    FileKind::Directory => open.push(path),
                    FileKind::Regular => {
                        tell(progress, &path);
                        has_changed |= self.file(&directory, &path, &entry.name, progress).await?;
                    }
                    _ => {}
                }
            }
            if has_changed {
                self.lower.fsync_dir(&directory).await?;
            }
        }
        tell(progress, b"");
        Ok(())
    }

    /// Converts one file. Returns whether it did.
    async fn file(&self, directory: &[u8], path: &[u8], name: &[u8], progress: &mut Progress) -> FsResult<bool> {
        progress.files_seen += 1;
        let ino = self.lower.resolve(path).await?;
        let before = self.lower.fs().getattr(ino, None).await;
        let content = match &before {
            Ok(before) => look(self.lower.fs(), ino, None, before.size).await,
            Err(error) => Err(error.clone()),
        };
        self.lower.forget(ino).await;
        let (before, content) = (before?, content?);
        let wanted = match (self.direction, &content) {
            (_, Content::Empty) => false,
            (_, Content::Damaged(problem)) => {
                progress.left.push((path.to_vec(), problem.clone()));
                return Ok(false);
            }
            (Direction::Pack, content) => matches!(content, Content::Plain(_)),
            (Direction::Unpack, content) => matches!(content, Content::Log(_)),
        };
        if !wanted {
            progress.files_done_before += 1;
            return Ok(false);
        }
        if before.links > 1 {
            progress.left.push((path.to_vec(), format!("it has {} names", before.links)));
            return Ok(false);
        }
        if self.wants_gain && before.sectors <= SECTORS_MIN {
            progress.left.push((path.to_vec(), NO_GAIN.to_string()));
            return Ok(false);
        }
        let parent = self.top.resolve(directory).await?;
        let converted = self.replace(parent, path, name, &before).await;
        self.top.forget(parent).await;
        match converted {
            Ok(after) => {
                progress.files_converted += 1;
                progress.bytes_before += before.sectors * 512;
                progress.bytes_after += after.sectors * 512;
                Ok(true)
            }
            Err(NotReplaced::Left(reason)) => {
                progress.left.push((path.to_vec(), reason.to_string()));
                Ok(false)
            }
            Err(NotReplaced::Failed(error)) => Err(error),
        }
    }

    /// Creates the new file and puts it in place of the old one. Returns its attributes.
    async fn replace(&self, parent: Ino, path: &[u8], name: &[u8], before: &Attr) -> Result<Attr, NotReplaced> {
        let unfinished = [UNFINISHED, before.ino.to_string().as_bytes()].concat();
        let from = self.top.open(path, OpenFlags::READ).await?;
        let made = self.copy(parent, path, &unfinished, Side { fs: self.top.fs(), ino: from.ino, handle: from.handle });
        let made = made.await;
        self.top.close(from).await?;
        let made = match made {
            Ok(attr) => {
                // The last chance to give up: afterwards the name is the new file's.
                let (from, to) = (EntryName { parent, name: &unfinished }, EntryName { parent, name });
                self.lower.fs().rename(from, to, RenameMode::Replace).await.map(|()| attr).map_err(NotReplaced::from)
            }
            Err(why) => Err(why),
        };
        if made.is_err() {
            // The first error is the one to report.
            let _ = self.lower.fs().unlink(parent, &unfinished).await;
        }
        made
    }

    /// Writes the new file, with all attributes of the old one, and compares it.
    async fn copy(&self, parent: Ino, path: &[u8], unfinished: &[u8], from: Side<'_>) -> Result<Attr, NotReplaced> {
        let source = self.lower.stat(path).await?;
        // Not readable by others before it has its permissions.
        let new = NewNode { permissions: 0o600, umask: 0, uid: source.uid, gid: source.gid };
        let target = match self.direction {
            Direction::Pack => self.top.fs(),
            Direction::Unpack => self.lower.fs(),
        };
        let (entry, opened) = target.create(parent, unfinished, new, OpenFlags::READ_WRITE).await?;
        let to = Side { fs: target, ino: entry.attr.ino, handle: opened.handle };
        let filled = self.fill(path, from, to, &source).await;
        let released = to.release().await;
        target.forget(to.ino, 1).await;
        let made = match filled {
            Err(NotReplaced::Failed(error)) => return Err(error.into()), // The first error is the one to report.
            other => released.map_err(NotReplaced::from).and(other)?,
        };
        let now = self.lower.stat(path).await?;
        match (now.mtime, now.size) == (source.mtime, source.size) {
            true if self.wants_gain && made.sectors >= source.sectors => Err(NotReplaced::Left(NO_GAIN)),
            true => Ok(made),
            false => Err(NotReplaced::Left("it was changed in the meantime")),
        }
    }

    async fn fill(&self, path: &[u8], from: Side<'_>, to: Side<'_>, source: &Attr) -> Result<Attr, NotReplaced> {
        let (mut crc, mut at) = (0, 0);
        loop {
            let pieces = from.fs.read(from.ino, from.handle, at, PIECE_BYTES).await?;
            if pieces.is_empty() {
                break;
            }
            for piece in pieces {
                crc = crc32c_append(crc, &piece);
                let bytes = piece.len() as u64;
                // A hole stays a hole.
                if !is_zero(&piece) {
                    to.fs.write(to.ino, to.handle, at, piece, WriteMode::default()).await?;
                }
                at += bytes;
            }
        }
        to.fs.setattr(to.ino, to.handle, SetAttr { size: Some(at), ..SetAttr::default() }).await?;
        to.fs.fsync(to.ino, to.handle, false).await?;
        to.fs.drop_caches().await?;
        if to.checksum().await? != (crc, at) {
            return Err(NotReplaced::Left("what was written reads differently"));
        }
        // Attributes are set on the lower file, last: no further write changes them.
        let lower = self.lower.fs();
        // It may have inherited a list from the directory that the old file does not have.
        if lower.traits().access_lists {
            lower.removexattr(to.ino, XATTR_ACL_ACCESS).await?;
        }
        let old = self.lower.resolve(path).await?;
        let copied = self.copy_attributes(old, to.ino).await;
        self.lower.forget(old).await;
        copied?;
        let attributes = SetAttr {
            permissions: Some(source.permissions),
            uid: Some(source.uid),
            gid: Some(source.gid),
            atime: Some(SetTime::At(source.atime)),
            mtime: Some(SetTime::At(source.mtime)),
            ..SetAttr::default()
        };
        lower.setattr(to.ino, None, attributes).await?;
        lower.fsync(to.ino, None, false).await?;
        Ok(lower.getattr(to.ino, None).await?)
    }

    async fn copy_attributes(&self, from: Ino, to: Ino) -> FsResult<()> {
        let lower = self.lower.fs();
        for name in lower.listxattr(from).await? {
            if name == mark::NAME {
                continue;
            }
            let value = lower.getxattr(from, &name).await?;
            let name = match self.direction {
                Direction::Pack => mark::below(&name),
                Direction::Unpack => mark::above(&name).unwrap_or(name),
            };
            lower.setxattr(to, &name, &value, XattrMode::Set).await?;
        }
        Ok(())
    }
}
