//! Packing turns the plain files of a directory into encoded ones; unpacking is the reverse.
//!
//! Each file is written again beside the old one, made durable, read back and compared, and then takes its name in one
//! step. So at every moment each name has one whole file. After an interruption the user starts again, and files
//! already converted are skipped. The rest of an unfinished file is removed then.
//!
//! Some files are left as they are: a file with several names, since converting one name at a time would make several
//! files of it; a file that changes during its conversion; a file that others have open for writing, since what they write later would go to
//! the old file, which has no name then; and one that would not take less space.
//!
//! A writer that begins during the conversion, and any other change of the file or of its name, is noticed up to the moment when the old file
//! no longer has its name. So the new and the old file swap names first, and swap again if there is one by then ([`swap`](super::swap)).

use std::ops::Range;

use super::format::DirectoryMark;
use super::load::{Content, is_forbidden, is_of_one_file, look};
use super::swap::{CHANGED, FoundFile, Names, NotReplaced, REMOVED, check_writers, is_removed};
use super::{Options, Plain, mark, stack_on};
use crate::codec::{crc32c_append, is_zero};
use crate::device::Data;
use crate::fs::acl::XATTR_ACL_ACCESS;
use crate::fs::client::{Client, ListedEntry};
use crate::fs::{
    Attr, FileKind, Fs, FsError, FsResult, Handle, NewNode, OpenFlags, SeekTo, SetAttr, SetTime, WriteMode, Writers,
    XattrMode,
};
use crate::layer::directory::{self, Claim, let_go, schemes};
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
    /// Files that were left as they are, with the reason; and directories all of whose files were, in place of these.
    pub left: Vec<(Vec<u8>, String)>,
    /// Those of them that have several names, and are encoded still, or not encrypted.
    pub files_with_names: u64,
    /// Those of them that others have open for writing.
    pub files_in_use: u64,
    /// Those of them for which there was no space: converting others may have made some.
    pub files_without_space: u64,
    /// Those of them that were to be converted and are not for another reason: unpacked, or encrypted.
    pub files_unconverted: u64,
    /// Those of them that are damaged, or that this user may not read or replace; and directories that could not be read.
    pub files_failed: u64,
    /// Converted files for which it could not be determined whether others had them open for writing.
    pub files_unguarded: u64,
}

/// Start of the names of unfinished files; the number of the file that is converted follows.
const UNFINISHED: &[u8] = b".seekless-pack-";

/// The number of the file from whose conversion a file of this name and kind can be left.
fn converted_ino(entry: &ListedEntry) -> Option<Ino> {
    let digits = entry.name.strip_prefix(UNFINISHED).filter(|_| entry.kind == FileKind::Regular)?;
    let ino = std::str::from_utf8(digits).ok()?.parse().ok().map(Ino)?;
    (digits == ino.to_string().as_bytes()).then_some(ino)
}

/// Smallest number of sectors worth packing: a file in one block of most file systems, 4 KiB, cannot get smaller.
const SECTORS_MIN: u64 = 8;

const READS_DIFFERENTLY: &str = "what was written reads differently";

const NO_GAIN: &str = "it would not take less space";

const UNREMOVED: &str = "it is left over from an interrupted conversion, and cannot be removed";

const IN_USE: &str = "it is open for writing, mapped, or used as a disk; end that and run this again";

const NO_SPACE: &str =
    "there is not enough space to write it again before the old one is removed; make some and run this again";

/// Bytes of one read or write, which begins at a multiple of it.
const PIECE_BYTES: u32 = 1 << 20;

/// Converts all files below the root of `lower`, which no other task may change until this returns. Calls `tell` with
/// the progress at every file.
///
/// # Errors
/// The first error of the file systems that is not about one file alone. Files already converted stay so. `Invalid` to unpack a
/// directory that another layer uses above this one.
pub async fn convert(
    rt: &Rt,
    lower: Fs,
    options: Options,
    direction: Direction,
    tell: &dyn Fn(&Progress, &[u8]),
) -> FsResult<Progress> {
    if direction == Direction::Unpack
        && let Some(above) = mark_of_layer_above(&lower).await?
    {
        return Err(unpack_both(&above, options.codec.is_secret()));
    }
    let (is_secret, codec) = (options.codec.is_secret(), options.codec.clone());
    let top = stack_on(rt, lower.clone(), Options { plain: Plain::Pass, settle_at_fsync: true, ..options }).await?;
    let wants_gain = direction == Direction::Pack && !is_secret;
    let work = PackJob { lower: Client::new(lower.clone()), top: Client::new(top.clone()), direction, wants_gain };
    let mut progress = Progress::default();
    let converted = work.tree(&mut progress, tell).await;
    // Also after an error: everything converted is durable when this returns.
    let closed = top.close().await;
    converted.and(closed)?;
    // What is left has still the form of the layer.
    if direction == Direction::Unpack && progress.left.is_empty() {
        let_go(&lower, Claim { scheme: schemes::LOG, codec: &*codec }).await?;
    }
    Ok(progress)
}

/// The mark of a layer that was stacked on this one and has claimed the directory. Where it cannot be read, it counts as that of a compressing one.
async fn mark_of_layer_above(lower: &Fs) -> FsResult<Option<DirectoryMark>> {
    match lower.getxattr(Ino::ROOT, &mark::below(directory::NAME)).await {
        Ok(bytes) => Ok(Some(DirectoryMark::from_bytes(&bytes).unwrap_or(DirectoryMark::new(schemes::LOG, None)))),
        Err(FsError::NoAttribute | FsError::Unsupported) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The refusal to take off this layer before the one that has left the mark `above`. Its line is of the words that the directory has recorded.
fn unpack_both(above: &DirectoryMark, is_secret: bool) -> FsError {
    macro_rules! refusal {
        ($line:literal) => {
            FsError::Invalid(concat!(
                "another layer is used above this one, and only through both can its files be read: unpack with the line of both \
                 first, as in '",
                $line,
                " / hostdir:DIR', then with this one"
            ))
        };
    }
    match (above.scheme, above.is_secret != 0, is_secret) {
        (schemes::CLASSIC, _, false) => refusal!("gzip:index=classic / zstd"),
        (schemes::CLASSIC, _, true) => refusal!("gzip:index=classic / encrypt:KEYFILE"),
        (_, false, false) => refusal!("zstd / zstd"),
        (_, false, true) => refusal!("zstd / encrypt:KEYFILE"),
        (_, true, false) => refusal!("encrypt:KEYFILE / zstd"),
        (_, true, true) => refusal!("encrypt:KEYFILE_ABOVE / encrypt:KEYFILE"),
    }
}

struct PackJob {
    lower: Client,
    top: Client,
    direction: Direction,
    /// Leave files that would not take less space.
    wants_gain: bool,
}

/// An open file on one side.
#[derive(Clone, Copy)]
struct Side<'a> {
    fs: &'a Fs,
    ino: Ino,
    handle: Option<Handle>,
}

impl Side<'_> {
    /// The next bytes at or after `at`, which is a multiple of [`PIECE_BYTES`], and their offset, which is one too. `None` when
    /// only a hole follows. Holes are not read: any user may make one of 8 EiB.
    async fn next_piece(&self, at: u64) -> FsResult<Option<(u64, Data)>> {
        let data = match self.fs.lseek(self.ino, self.handle, at, SeekTo::Data).await {
            Err(FsError::NoSuchOffset) => return Ok(None),
            other => other?,
        };
        let start = data - data % u64::from(PIECE_BYTES);
        let pieces = self.fs.read(self.ino, self.handle, start, PIECE_BYTES).await?;
        let bytes: Vec<&[u8]> = pieces.iter().map(|piece| &**piece).collect();
        Ok(Some((start, Data::from_slice(&bytes.concat()))))
    }

    /// Whether each of its sectors is zero, or the same in `other`. What a power cut leaves of a copy is so, too.
    async fn is_part_of(&self, other: Side<'_>) -> FsResult<bool> {
        const SECTOR_BYTES: usize = 512;
        let mut at = 0;
        while let Some((start, piece)) = self.next_piece(at).await? {
            let pieces = other.fs.read(other.ino, other.handle, start, PIECE_BYTES).await?;
            let theirs: Vec<&[u8]> = pieces.iter().map(|piece| &**piece).collect();
            let theirs = theirs.concat();
            let is_same = |(number, sector): (usize, &[u8])| {
                is_zero(sector) || theirs.get(number * SECTOR_BYTES..).is_some_and(|rest| rest.starts_with(sector))
            };
            if !piece.chunks(SECTOR_BYTES).enumerate().all(is_same) {
                return Ok(false);
            }
            at = start + u64::from(PIECE_BYTES);
        }
        Ok(true)
    }

    /// Checksum of what is not zero, and the size.
    async fn checksum(&self) -> FsResult<(u32, u64)> {
        let (mut crc, mut at) = (0, 0);
        while let Some((start, piece)) = self.next_piece(at).await? {
            crc = add_to_checksum(crc, start, &piece);
            at = start + u64::from(PIECE_BYTES);
        }
        Ok((crc, self.fs.getattr(self.ino, self.handle).await?.size))
    }

    async fn release(&self) -> FsResult<()> {
        match self.handle {
            Some(handle) => self.fs.release(self.ino, handle).await,
            None => Ok(()),
        }
    }
}

/// Where `bytes` hold something other than zeroes: runs of blocks, in order.
fn filled(bytes: &[u8]) -> Vec<Range<usize>> {
    const BLOCK_BYTES: usize = 4096;
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (number, block) in bytes.chunks(BLOCK_BYTES).enumerate().filter(|(_, block)| !is_zero(block)) {
        let start = number * BLOCK_BYTES;
        match runs.last_mut() {
            Some(run) if run.end == start => run.end += block.len(),
            _ => runs.push(start..start + block.len()),
        }
    }
    runs
}

/// Continues a checksum with what the piece at `offset` holds. Zeroes do not count, since the other side may have holes in their places.
fn add_to_checksum(crc: u32, offset: u64, piece: &[u8]) -> u32 {
    filled(piece).into_iter().fold(crc, |crc, run| {
        let place = offset + run.start as u64;
        crc32c_append(crc32c_append(crc, &place.to_le_bytes()), &piece[run])
    })
}

/// A file or directory could not be converted because of `error`. Where that is about this one alone, the others are converted.
fn failed(progress: &mut Progress, path: &[u8], error: FsError) -> FsResult<()> {
    if is_removed(&error) {
        progress.left.push((path.to_vec(), REMOVED.to_string()));
        return Ok(());
    }
    if !is_of_one_file(&error) && !is_forbidden(&error) {
        return Err(error);
    }
    progress.files_failed += 1;
    progress.left.push((path.to_vec(), error.to_string()));
    Ok(())
}

/// A directory, and what was found out about it when its files were converted.
struct OpenDirectory {
    /// Empty for the root.
    path: Vec<u8>,
    /// Names in it were given to other files.
    has_changed: bool,
    /// Its files cannot be replaced. It is listed, and they are not.
    is_refused: bool,
}

impl OpenDirectory {
    /// The path as it is listed.
    fn shown(&self) -> Vec<u8> {
        if self.path.is_empty() { b"/".to_vec() } else { self.path.clone() }
    }

    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        [&self.path[..], b"/", name].concat()
    }

    /// None of its files can be replaced, for this reason.
    fn refuse(&mut self, progress: &mut Progress, why: String) {
        if !self.is_refused {
            self.is_refused = true;
            progress.left.push((self.shown(), format!("its files cannot be replaced: {why}")));
        }
    }
}

/// `None` when others have removed what it was about.
fn unless_removed<T>(answer: FsResult<T>) -> FsResult<Option<T>> {
    match answer {
        Err(error) if is_removed(&error) => Ok(None),
        answer => answer.map(Some),
    }
}

impl PackJob {
    async fn tree(&self, progress: &mut Progress, tell: &dyn Fn(&Progress, &[u8])) -> FsResult<()> {
        let mut open = vec![Vec::new()];
        while let Some(path) = open.pop() {
            let mut directory = OpenDirectory { path, has_changed: false, is_refused: false };
            let mut entries = match self.lower.read_dir(&directory.path).await {
                Ok(entries) => entries,
                // Others have made a file of its name.
                Err(FsError::NotDirectory) if !directory.path.is_empty() => {
                    progress.left.push((directory.path, REMOVED.to_string()));
                    continue;
                }
                Err(error) => {
                    failed(progress, &directory.shown(), error)?;
                    continue;
                }
            };
            self.remove_unfinished(&mut directory, &mut entries, progress).await?;
            for entry in entries {
                match entry.kind {
                    FileKind::Directory => open.push(directory.path_of(&entry.name)),
                    FileKind::Regular => {
                        tell(progress, &directory.path_of(&entry.name));
                        self.file(&mut directory, &entry.name, progress).await?;
                    }
                    _ => {}
                }
            }
            if directory.has_changed {
                unless_removed(self.lower.fsync_dir(&directory.path).await)?;
            }
        }
        tell(progress, b"");
        Ok(())
    }

    /// Removes what interrupted conversions have left in `directory`, also from `entries`. A file that may not be removed is no file to
    /// convert, and counts as a failure. It is noted where the directory is sticky or the file itself is the reason; any other directory
    /// is refused.
    async fn remove_unfinished(
        &self,
        directory: &mut OpenDirectory,
        entries: &mut Vec<ListedEntry>,
        progress: &mut Progress,
    ) -> FsResult<()> {
        let mut unfinished = Vec::new();
        for entry in entries.iter().filter(|entry| converted_ino(entry).is_some()) {
            match unless_removed(self.is_unfinished(&directory.path, entry, entries).await) {
                Ok(Some(false)) => continue,
                Ok(Some(true) | None) => unfinished.push(entry.name.clone()),
                // Nothing in the directory can be looked at.
                Err(error) if is_forbidden(&error) => {
                    directory.refuse(progress, error.to_string());
                    continue;
                }
                Err(error) => return Err(error),
            }
            let path = directory.path_of(&entry.name);
            match unless_removed(self.lower.unlink(&path).await) {
                Err(error) if is_forbidden(&error) => {
                    progress.files_failed += 1;
                    if self.is_sticky(&directory.path).await? || self.is_fixed(&path).await {
                        progress.left.push((path, format!("{UNREMOVED}: {error}")));
                    } else {
                        // It would keep a new one of each file, and further ones the next time.
                        let name = String::from_utf8_lossy(&entry.name);
                        directory.refuse(progress, format!("{name}: {UNREMOVED}: {error}"));
                    }
                }
                removed => removed.map(drop)?,
            }
        }
        entries.retain(|entry| !unfinished.contains(&entry.name));
        Ok(())
    }

    /// Whether a file itself is the reason why it may not be removed, as an immutable or append-only one is: its owner and root may not
    /// open it for writing either. That a user may not, is another error, and says nothing about the directory.
    async fn is_fixed(&self, path: &[u8]) -> bool {
        match self.lower.open(path, OpenFlags::READ_WRITE).await {
            Ok(opened) => {
                // An error would be about what was written, and nothing was.
                let _ = self.lower.close(opened).await;
                false
            }
            Err(error) => error == FsError::NotPermitted,
        }
    }

    /// Whether users can remove only their own files from a directory.
    async fn is_sticky(&self, directory: &[u8]) -> FsResult<bool> {
        const STICKY: u16 = 0o1000;
        Ok(self.lower.stat(directory).await?.permissions & STICKY != 0)
    }

    /// Whether `entry`, whose name says so, is left over from an interrupted conversion: the new file, beside the file that it was made from,
    /// or the old one, which had swapped names with it and has not changed since. Both hold nothing that the other file does not. Any other
    /// file of such a name belongs to a user.
    async fn is_unfinished(&self, directory: &[u8], entry: &ListedEntry, entries: &[ListedEntry]) -> FsResult<bool> {
        let Some(converted) = converted_ino(entry) else { return Ok(false) };
        let others = entries.iter().filter(|other| other.name != entry.name && other.kind == FileKind::Regular);
        let path_of = |name: &[u8]| [directory, b"/", name].concat();
        // By lookups: the numbers in a listing may be others, as in an overlay.
        let Some(own) = unless_removed(self.lower.stat(&path_of(&entry.name)).await)? else { return Ok(false) };
        // The new file got all of these.
        let given = |attr: &Attr| (attr.mtime, attr.permissions, attr.uid, attr.gid, attr.links);
        for other in others {
            // The listing says at least which files cannot be meant.
            if entry.ino == own.ino && own.ino != converted && other.ino != converted {
                continue;
            }
            let Some(attr) = unless_removed(self.lower.stat(&path_of(&other.name)).await)? else { continue };
            let is_meant = if own.ino == converted { given(&attr) == given(&own) } else { attr.ino == converted };
            if is_meant && self.holds_nothing_else(&path_of(&entry.name), &path_of(&other.name)).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the file at `path` holds nothing but bytes that the one at `other` has in the same places, and zeroes.
    ///
    /// # Errors
    /// Those of the file systems. Where one of the two cannot be read, the answer is no.
    async fn holds_nothing_else(&self, path: &[u8], other: &[u8]) -> FsResult<bool> {
        let answer = self.compare(path, other).await;
        match answer {
            Err(error) if is_removed(&error) || is_of_one_file(&error) || is_forbidden(&error) => Ok(false),
            answer => answer,
        }
    }

    /// As [`PackJob::holds_nothing_else`], with all errors.
    async fn compare(&self, path: &[u8], other: &[u8]) -> FsResult<bool> {
        let ino = self.top.resolve(path).await?;
        let compared = match self.top.resolve(other).await {
            Ok(other) => {
                let side = |ino| Side { fs: self.top.fs(), ino, handle: None };
                let compared = side(ino).is_part_of(side(other)).await;
                self.top.forget(other).await;
                compared
            }
            Err(error) => Err(error),
        };
        self.top.forget(ino).await;
        compared
    }

    /// Converts one file, or notes why not.
    async fn file(&self, directory: &mut OpenDirectory, name: &[u8], progress: &mut Progress) -> FsResult<()> {
        progress.files_seen += 1;
        let path = &directory.path_of(name)[..];
        let ino = match self.lower.resolve(path).await {
            Ok(ino) => ino,
            // The file has no part in this.
            Err(error) if is_forbidden(&error) => {
                progress.files_failed += 1;
                directory.refuse(progress, error.to_string());
                return Ok(());
            }
            Err(error) => return failed(progress, path, error),
        };
        let before = self.lower.fs().getattr(ino, None).await;
        let content = match &before {
            // The file is gone, and the name another one's.
            Ok(before) if before.kind != FileKind::Regular => Err(FsError::Stale),
            Ok(before) => look(self.lower.fs(), ino, None, before.size).await,
            Err(error) => Err(error.clone()),
        };
        self.lower.forget(ino).await;
        let (before, content) = match (before, content) {
            (Ok(before), Ok(content)) => (before, content),
            (Err(error), _) | (_, Err(error)) => return failed(progress, path, error),
        };
        let wanted = match (self.direction, &content) {
            // What a power cut left of a first commit is a file of the layer's, and no file without it.
            (direction, Content::Empty) => direction == Direction::Unpack && before.size > 0,
            (_, Content::Damaged(problem)) => {
                return failed(
                    progress,
                    path,
                    FsError::corrupt("compressed file", format_args!("inode {ino}"), problem),
                );
            }
            (Direction::Pack, content) => matches!(content, Content::Plain(_)),
            (Direction::Unpack, content) => matches!(content, Content::Log(_)),
        };
        if !wanted {
            progress.files_done_before += 1;
            return Ok(());
        }
        if before.links > 1 {
            // A compressing layer shows them as they are.
            progress.files_with_names += u64::from(!self.wants_gain);
            progress.left.push((path.to_vec(), format!("it has {} names", before.links)));
            return Ok(());
        }
        if self.wants_gain && before.sectors <= SECTORS_MIN {
            progress.left.push((path.to_vec(), NO_GAIN.to_string()));
            return Ok(());
        }
        if directory.is_refused {
            progress.files_failed += 1;
            return Ok(());
        }
        let parent = match self.top.resolve(&directory.path).await {
            Ok(parent) => parent,
            Err(error) => return failed(progress, path, error),
        };
        let converted = self.replace(parent, path, name, &before).await;
        self.top.forget(parent).await;
        let reason = match converted {
            Ok((after, writers)) => {
                directory.has_changed = true;
                progress.files_converted += 1;
                progress.files_unguarded += u64::from(writers == Writers::Unknown);
                progress.bytes_before += before.sectors * 512;
                progress.bytes_after += after.sectors * 512;
                return Ok(());
            }
            Err(NotReplaced::Left(reason)) => {
                // A compressing layer shows what was not packed as it is; but a host that returns other bytes is a matter for each.
                let matters = (!self.wants_gain && reason != REMOVED) || reason == READS_DIFFERENTLY;
                progress.files_unconverted += u64::from(matters);
                reason.to_string()
            }
            Err(NotReplaced::InUse) => {
                progress.files_in_use += 1;
                IN_USE.to_string()
            }
            Err(NotReplaced::NoSpace) => {
                progress.files_without_space += 1;
                NO_SPACE.to_string()
            }
            Err(NotReplaced::Kept(reason)) => {
                progress.files_failed += 1;
                reason
            }
            Err(NotReplaced::Directory(why)) => {
                progress.files_failed += 1;
                directory.refuse(progress, why);
                return Ok(());
            }
            Err(NotReplaced::Failed(error)) => return failed(progress, path, error),
        };
        progress.left.push((path.to_vec(), reason));
        Ok(())
    }

    /// Creates the new file and puts it in place of the old one. Returns its attributes, and whether the old one was free of writers.
    async fn replace(
        &self,
        parent: Ino,
        path: &[u8],
        name: &[u8],
        before: &Attr,
    ) -> Result<(Attr, Writers), NotReplaced> {
        let opened = self.top.open(path, OpenFlags::READ).await?;
        let from = Side { fs: self.top.fs(), ino: opened.ino, handle: opened.handle };
        let unfinished = [UNFINISHED, before.ino.to_string().as_bytes()].concat();
        let replaced = match from.ino == before.ino {
            true => self.replace_open(parent, name, &unfinished, from).await,
            false => Err(NotReplaced::Left(CHANGED)),
        };
        // Only now a writer that has waited continues, and writes to the file that it opened.
        self.top.close(opened).await?;
        replaced
    }

    async fn replace_open(
        &self,
        parent: Ino,
        name: &[u8],
        unfinished: &[u8],
        from: Side<'_>,
    ) -> Result<(Attr, Writers), NotReplaced> {
        // Nothing is written to it by the layer any more; and a file system below may know of data only once they have been written, as those
        // in FUSE do of what programs have mapped.
        from.fs.fsync(from.ino, from.handle, false).await?;
        self.check_writers(from).await?;
        let target = match self.direction {
            Direction::Pack => self.top.fs(),
            Direction::Unpack => self.lower.fs(),
        };
        // Others may give its name to another file at any time.
        let source = FoundFile::of(self.lower.fs(), from.ino).await?;
        if source.attr.links != 1 {
            return Err(NotReplaced::Left(CHANGED));
        }
        // Not readable by others before it has its permissions.
        let new = NewNode { permissions: 0o600, umask: 0, uid: source.attr.uid, gid: source.attr.gid };
        let (entry, opened) = match target.create(parent, unfinished, new, OpenFlags::READ_WRITE).await {
            Err(FsError::Exists) => return Err(NotReplaced::Left("another file has the name of its unfinished copy")),
            // The file has no part in this.
            Err(error) if is_forbidden(&error) => return Err(NotReplaced::Directory(error.to_string())),
            other => other?,
        };
        let to = Side { fs: target, ino: entry.attr.ino, handle: opened.handle };
        let names = Names::new(self.lower.fs(), parent, name, unfinished);
        match self.copy(from, to, &source).await {
            Ok(attr) => names.replace(&source, from.handle).await.map(|writers| (attr, writers)),
            Err(why) => Err(names.remove(to.ino, why).await),
        }
    }

    /// See [`check_writers`].
    async fn check_writers(&self, from: Side<'_>) -> Result<Writers, NotReplaced> {
        check_writers(self.lower.fs(), from.ino, from.handle).await
    }

    /// Fills the new file, gives it all attributes of the old one, and compares it.
    async fn copy(&self, from: Side<'_>, to: Side<'_>, source: &FoundFile) -> Result<Attr, NotReplaced> {
        let filled = self.fill(from, to, source).await;
        let released = to.release().await;
        to.fs.forget(to.ino, 1).await;
        let made = match filled {
            Err(why @ (NotReplaced::Failed(_) | NotReplaced::NoSpace)) => return Err(why), // The first error is the one to report.
            other => released.map_err(NotReplaced::from).and(other)?,
        };
        match self.wants_gain && made.sectors >= source.attr.sectors {
            true => Err(NotReplaced::Left(NO_GAIN)),
            false => Ok(made),
        }
    }

    async fn fill(&self, from: Side<'_>, to: Side<'_>, source: &FoundFile) -> Result<Attr, NotReplaced> {
        let (mut crc, mut at) = (0, 0);
        loop {
            // A writer waits as long as this file is read, so it is not kept waiting for all of it.
            self.check_writers(from).await?;
            let Some((start, piece)) = from.next_piece(at).await? else { break };
            crc = add_to_checksum(crc, start, &piece);
            at = start + u64::from(PIECE_BYTES);
            // A hole stays a hole.
            for run in filled(&piece) {
                let (place, bytes) = (start + run.start as u64, piece.slice(run));
                to.fs.write(to.ino, to.handle, place, bytes, WriteMode::default()).await?;
            }
        }
        let size = from.fs.getattr(from.ino, from.handle).await?.size;
        to.fs.setattr(to.ino, to.handle, SetAttr { size: Some(size), ..SetAttr::default() }).await?;
        to.fs.fsync(to.ino, to.handle, false).await?;
        to.fs.drop_caches().await?;
        if to.checksum().await? != (crc, size) {
            return Err(NotReplaced::Left(READS_DIFFERENTLY));
        }
        // Attributes are set on the lower file, last: no further write changes them.
        let lower = self.lower.fs();
        // It may have inherited a list from the directory that the old file does not have.
        if lower.traits().access_lists {
            lower.removexattr(to.ino, XATTR_ACL_ACCESS).await?;
        }
        // A change of the owner removes capabilities and set-id bits, so those come after it.
        let owner = SetAttr { uid: Some(source.attr.uid), gid: Some(source.attr.gid), ..SetAttr::default() };
        lower.setattr(to.ino, None, owner).await?;
        self.copy_attributes(source, to.ino).await?;
        let attributes = SetAttr {
            permissions: Some(source.attr.permissions),
            atime: Some(SetTime::At(source.attr.atime)),
            mtime: Some(SetTime::At(source.attr.mtime)),
            ..SetAttr::default()
        };
        lower.setattr(to.ino, None, attributes).await?;
        lower.fsync(to.ino, None, false).await?;
        Ok(lower.getattr(to.ino, None).await?)
    }

    async fn copy_attributes(&self, source: &FoundFile, to: Ino) -> FsResult<()> {
        for (name, value) in &source.attributes {
            let name = match self.direction {
                Direction::Pack => mark::below(name),
                Direction::Unpack => mark::above(name).unwrap_or_else(|| name.clone()),
            };
            self.lower.fs().setxattr(to, &name, value, XattrMode::Set).await?;
        }
        Ok(())
    }
}
