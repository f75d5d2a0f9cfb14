//! An attribute of a directory's root that records which layer its files belong to, so that no other layer is stacked
//! on it.
//!
//! It records the scheme and, for an encrypted directory, a check value of its key. A directory without the attribute
//! gets one from the first layer that is stacked on it for writing. Before that, the layer samples some of its files to
//! see whether they agree. On a file system without attributes, it samples them every time.
//!
//! Invariants
//!   D1  Nothing is written to a directory whose attribute, or a sampled file, shows another scheme or key.

use super::classic::format::{self as units, Index};
use super::codecs::{Codec, Position, ids};
use super::log::format::{
    Commit, DirectoryMark, Entry, FileRecord, RECORDS_START, SLOT_BYTES, SlotState, entries_from_bytes, kinds,
};
use super::read_lower;
use crate::fs::{DirEntry, DirSink, FileKind, Fs, FsError, FsResult, XattrMode};
use crate::units::Ino;

/// Name of the attribute.
pub(super) const NAME: &[u8] = b"user.seekless.layer";

/// Files and directories that are sampled in a directory without the attribute.
const ASKED_MAX: usize = 300;

pub(super) use super::log::format::schemes;

const ENCRYPTED: FsError = FsError::Invalid(
    "the files of this directory are encrypted: mount it with `encrypt:KEYFILE`, or decrypt them with `seekless unpack`",
);
const OTHER_KEY: FsError = FsError::Invalid(
    "the files of this directory are encrypted with another key: give the key file that it was first mounted with; \
     `seekless unpack` with that key removes the encryption",
);
const NOT_ENCRYPTED: FsError = FsError::Invalid(
    "this directory is used by a layer without a key: `seekless unpack` with that layer turns its files back and \
     releases it; then `encrypt` can use it",
);
const CLASSIC: FsError = FsError::Invalid(
    "this directory is used with `index=classic`: mount it with that option, or copy its files to another one",
);
const NOT_CLASSIC: FsError = FsError::Invalid(
    "this directory is not used with `index=classic`: mount it without that option, or copy its files to another one",
);

/// The layer that is about to be stacked on a directory.
#[derive(Clone, Copy)]
pub(super) struct Claim<'a> {
    /// One of [`schemes`].
    pub(super) scheme: u8,
    pub(super) codec: &'a dyn Codec,
}

impl Claim<'_> {
    fn mark(&self) -> DirectoryMark {
        DirectoryMark::new(self.scheme, self.codec.key_check())
    }

    /// Checks whether the layer fits a directory with `mark`.
    fn check(&self, mark: &DirectoryMark) -> FsResult<()> {
        let wanted = self.mark();
        match (mark.scheme == wanted.scheme, mark.is_secret, wanted.is_secret) {
            (false, ..) if mark.scheme == schemes::CLASSIC => Err(CLASSIC),
            (false, ..) => Err(NOT_CLASSIC),
            (true, 1, 0) => Err(ENCRYPTED),
            (true, 0, 1) => Err(NOT_ENCRYPTED),
            (true, ..) if mark.key_check != wanted.key_check => Err(OTHER_KEY),
            (true, ..) => Ok(()),
        }
    }

    /// Checks whether the layer fits a directory with such files.
    fn check_files(&self, files: &Files) -> FsResult<()> {
        match (self.scheme, self.codec.is_secret()) {
            (schemes::CLASSIC, _) if files.open || files.sealed || files.unsealed => Err(NOT_CLASSIC),
            (schemes::LOG, _) if files.units => Err(CLASSIC),
            (schemes::LOG, false) if files.sealed => Err(ENCRYPTED),
            (schemes::LOG, true) if files.unsealed => Ok(()),
            (schemes::LOG, true) if files.sealed => Err(OTHER_KEY),
            (schemes::LOG, true) if files.open => Err(NOT_ENCRYPTED),
            _ => Ok(()),
        }
    }

    /// Stacks the layer on the directory `lower`, and writes its attribute, unless that is `read_only` or cannot store
    /// one.
    ///
    /// # Errors
    /// `Invalid`, with advice, when the files have another scheme or key; `Corrupt` when the attribute is damaged.
    pub(super) async fn make(&self, lower: &Fs, read_only: bool) -> FsResult<()> {
        loop {
            if let Some(known) = read(lower).await? {
                return self.check(&known);
            }
            self.check_files(&self.ask(lower, ASKED_MAX).await?)?;
            if read_only {
                return Ok(());
            }
            match lower.setxattr(Ino::ROOT, NAME, &self.mark().to_bytes(), XattrMode::Create).await {
                // Another layer was faster: its attribute counts.
                Err(FsError::Exists) => {}
                // It becomes durable with the next sync of everything; if a power cut loses it, the files are sampled
                // once more. Where there is no room for attributes, or no support for them, the files are sampled again
                // next time.
                Ok(()) | Err(_) => return Ok(()),
            }
        }
    }

    /// Samples up to `left` of the files.
    async fn ask(&self, lower: &Fs, mut left: usize) -> FsResult<Files> {
        let mut files = Files { is_all: true, ..Files::default() };
        // Each but the root with one lookup counted.
        let mut open = vec![Ino::ROOT];
        let mut result = Ok(());
        while let Some(directory) = open.pop() {
            if result.is_ok() && !self.is_clear(&files) {
                result = self.ask_directory(lower, directory, &mut open, &mut left, &mut files).await;
            }
            if directory != Ino::ROOT {
                lower.forget(directory, 1).await;
            }
        }
        result.map(|()| files)
    }

    /// True when no further file could change the result.
    fn is_clear(&self, files: &Files) -> bool {
        files.unsealed || files.units || files.sealed && !self.codec.is_secret()
    }

    async fn ask_directory(
        &self,
        lower: &Fs,
        directory: Ino,
        open: &mut Vec<Ino>,
        left: &mut usize,
        files: &mut Files,
    ) -> FsResult<()> {
        let mut names = Names { names: Vec::new(), max: *left, is_all: true };
        match lower.readdir(directory, None, 0, false, &mut names).await {
            Ok(()) => {}
            // Unreadable names are skipped.
            Err(_) => names.is_all = false,
        }
        files.is_all &= names.is_all;
        for (name, kind) in &names.names {
            if !matches!(kind, FileKind::Directory | FileKind::Regular) {
                continue;
            }
            if *left == 0 {
                files.is_all = false;
                break;
            }
            *left -= 1;
            let Ok(entry) = lower.lookup(directory, name).await else { continue };
            let ino = entry.attr.ino;
            if entry.attr.kind == FileKind::Directory {
                open.push(ino);
                continue;
            }
            if entry.attr.kind == FileKind::Regular {
                let base = name.strip_suffix(units::SUFFIX);
                files.units |= match base.filter(|base| names.names.iter().any(|(other, _)| other == base)) {
                    Some(base) => is_index(lower, directory, base, ino).await,
                    None => false,
                };
                // An unreadable file shows nothing.
                let _ = self.ask_file(lower, ino, files).await;
            }
            lower.forget(ino, 1).await;
            if self.is_clear(files) {
                break;
            }
        }
        Ok(())
    }

    /// Looks at the first chunk of a file in the scheme `log`.
    async fn ask_file(&self, lower: &Fs, ino: Ino, files: &mut Files) -> FsResult<()> {
        let start = read_lower(lower, ino, None, 0, RECORDS_START as u32).await?;
        let commits = start.chunks(SLOT_BYTES as usize).filter_map(|slot| match Commit::decode(slot) {
            SlotState::Good(commit) => Some(commit),
            _ => None,
        });
        let Some(commit) = commits.max_by_key(|commit| commit.generation) else { return Ok(()) };
        files.open |= !commit.tail.is_hole();
        let first = |entries: &[Entry]| entries.iter().find(|entry| !entry.is_hole()).copied();
        let mut next = first(&commit.root);
        for level in (0..=commit.depth).rev() {
            let Some(entry) = next else { return Ok(()) };
            let bytes = read_lower(lower, ino, None, entry.offset, entry.bytes).await?;
            let Ok(record) = FileRecord::decode(&bytes, &entry) else { return Ok(()) };
            if level > 0 {
                next = first(&entries_from_bytes(&record.body));
                continue;
            }
            let place = Position { file_id: record.file_id, chunk: record.number, generation: record.generation };
            match (record.kind, record.codec) {
                (kinds::CHUNK, ids::SEALED) => {
                    files.sealed = true;
                    let raw_bytes = record.raw_bytes as usize;
                    let has_key = self.codec.is_secret();
                    files.unsealed |= has_key && self.codec.decode(&record.body, raw_bytes, &place).is_ok();
                }
                (kinds::CHUNK, _) => files.open = true,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Removes the attribute of a directory that no longer has files of any layer. Returns false, and does nothing, when it has some, or may have.
///
/// # Errors
/// Those of the file system below.
pub(super) async fn let_go(lower: &Fs, claim: Claim<'_>) -> FsResult<bool> {
    let files = claim.ask(lower, usize::MAX).await?;
    if files.any() || !files.is_all {
        return Ok(false);
    }
    match lower.removexattr(Ino::ROOT, NAME).await {
        Ok(()) => lower.fsyncdir(Ino::ROOT, None).await.map(|()| true),
        Err(FsError::NoAttribute | FsError::Unsupported) => Ok(true),
        Err(error) => Err(error),
    }
}

/// The attribute of a directory.
async fn read(lower: &Fs) -> FsResult<Option<DirectoryMark>> {
    let bytes = match lower.getxattr(Ino::ROOT, NAME).await {
        Ok(bytes) => bytes,
        Err(FsError::NoAttribute | FsError::Unsupported) => return Ok(None),
        // There may be one that cannot be read now. Its files need not be those that samples would show.
        Err(error) => return Err(error),
    };
    let problem = "it is damaged, or of a later version; if you know which layer and key the files are of, \
                   `setfattr -x user.seekless.layer` removes it, and the next mount makes a new one";
    let mark = DirectoryMark::from_bytes(&bytes);
    mark.map(Some).ok_or_else(|| FsError::corrupt("attribute user.seekless.layer", "the directory", problem))
}

/// Whether `index` is the index of a file in the scheme `classic` beside it.
async fn is_index(lower: &Fs, directory: Ino, name: &[u8], index: Ino) -> bool {
    let begins =
        read_lower(lower, index, None, 0, 8).await.is_ok_and(|start| start.len() >= 8 && Index::begins(&start));
    if !begins {
        return false;
    }
    let Ok(entry) = lower.lookup(directory, name).await else { return false };
    let start = read_lower(lower, entry.attr.ino, None, 0, units::UnitHead::BYTES as u32).await;
    lower.forget(entry.attr.ino, 1).await;
    start.is_ok_and(|start| units::head(&start).is_ok())
}

/// What the sampled files show.
#[derive(Default, Debug)]
struct Files {
    /// A file of the scheme `log` has chunks that are not encrypted.
    open: bool,
    /// A file has encrypted chunks.
    sealed: bool,
    /// A file has chunks that the key decrypts.
    unsealed: bool,
    /// A file is of the scheme `classic`.
    units: bool,
    /// All files have been sampled.
    is_all: bool,
}

impl Files {
    fn any(&self) -> bool {
        self.open || self.sealed || self.units
    }
}

/// Names and kinds in a directory, as many as are sampled.
struct Names {
    names: Vec<(Vec<u8>, FileKind)>,
    max: usize,
    is_all: bool,
}

impl DirSink for Names {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        if self.names.len() >= self.max {
            self.is_all = false;
            return false;
        }
        if entry.name != b"." && entry.name != b".." {
            self.names.push((entry.name.to_vec(), entry.kind));
        }
        true
    }
}
