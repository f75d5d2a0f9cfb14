//! Files that the program writes for its user: each is written as a whole or not at all, and replaces another file only
//! with permission.
//!
//! Invariants
//!   O1  A name refers to its old file or to the complete new one, whose bytes are durable by then. This holds even
//!       when the disk is full, when the program is killed, and when several processes write to one name.
//!   O2  An existing file is replaced only where the caller's [`Replace`] allows it, and only if it is a regular file.
//!       Devices, pipes, directories and symbolic links are refused: a link may lead out of the intended directory, and
//!       any user with write access there could have made it.
//!   O3  A file that is being read is not replaced, under any of its names.
//!
//! A new file has no name until it is complete (`O_TMPFILE`), so an abandoned one leaves nothing. Where the file system
//! does not support that, it is called `.seekless-PROCESS-NUMBER.new` until then; only a kill leaves such a file.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::Errno;

/// Why a file is not written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// O2; `why` continues the sentence.
    #[error("{} already exists{why}", path.display())]
    Exists { path: PathBuf, why: String },
    /// O2.
    #[error("{} is {kind}; name a regular file, or one that is not there", path.display())]
    NotAFile { path: PathBuf, kind: &'static str },
    /// O3.
    #[error("{} is read by this command, which would replace it; name another file", path.display())]
    Source { path: PathBuf },
    #[error("cannot {action} {}: {cause}", path.display())]
    Io { action: &'static str, path: PathBuf, cause: io::Error },
}

/// What a new file may replace.
#[derive(Clone, Copy)]
pub enum Replace {
    /// Any regular file: the user allows it, or the folder is the program's own.
    Always,
    /// Nothing; the text continues "it already exists".
    Never(&'static str),
    /// A file that this function accepts; otherwise its text continues "it already exists".
    Own(fn(&File) -> Result<(), String>),
}

/// Hint for an existing file that `--force` would replace.
pub const FORCE: &str = "; --force replaces it";

impl Replace {
    /// Anything with `--force`, otherwise nothing.
    pub fn forced(force: bool) -> Replace {
        if force { Replace::Always } else { Replace::Never(FORCE) }
    }
}

/// How a file is to be written.
#[derive(Clone)]
pub struct Wish {
    pub replace: Replace,
    /// Permissions of a new file, before the umask.
    pub permissions: u32,
    pub sources: Sources,
}

impl Wish {
    /// For a file readable by all.
    pub fn new(replace: Replace) -> Wish {
        Wish { replace, permissions: 0o666, sources: Sources::default() }
    }

    /// With special permissions.
    pub fn permissions(self, permissions: u32) -> Wish {
        Wish { permissions, ..self }
    }

    /// With the files that are being read (O3).
    pub fn sources(self, sources: Sources) -> Wish {
        Wish { sources, ..self }
    }
}

/// Files that are being read, identified by device and inode, not by name.
#[derive(Clone, Default, Debug)]
pub struct Sources(Vec<(u64, u64)>);

impl Sources {
    /// The files at `paths`; `-` is standard input. Missing files are ignored.
    pub fn of<P: AsRef<Path>>(paths: &[P]) -> Sources {
        let identity = |path: &P| match path.as_ref().as_os_str() == "-" {
            true => rustix::fs::fstat(rustix::stdio::stdin()).ok().map(|stat| identity(&stat)),
            false => std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino())),
        };
        Sources(paths.iter().filter_map(identity).collect())
    }

    fn contain(&self, stat: &Stat) -> bool {
        self.0.contains(&identity(stat))
    }

    /// Refuses to write to standard output when it is one of the files being read: that would never end.
    ///
    /// # Errors
    /// `Source`.
    pub fn check_standard_output(&self) -> Result<(), OutputError> {
        match rustix::fs::fstat(rustix::stdio::stdout()) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && self.contain(&stat) => {
                Err(OutputError::Source { path: "standard output".into() })
            }
            _ => Ok(()),
        }
    }
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// A file being written that does not have its name yet. If it is dropped, it vanishes.
pub struct NewFile {
    file: File,
    place: Destination,
    wish: Wish,
    /// Its name until it is complete, where it needs one.
    temporary: Option<OsString>,
}

/// Destination of a file.
struct Destination {
    directory: OwnedFd,
    /// False for a directory that may be written but not read.
    can_sync: bool,
    name: OsString,
    path: PathBuf,
}

/// Reports in advance the errors of writing to `path`, so that no work is done for nothing.
///
/// # Errors
/// As [`NewFile::begin`].
pub fn check(path: &Path, wish: &Wish) -> Result<(), OutputError> {
    Destination::of(path)?.admit(wish).map(drop)
}

/// True when two paths are one name: of one file in one directory, however they are spelled.
pub fn is_one_name(one: &Path, two: &Path) -> bool {
    let place = |path: &Path| {
        let place = Destination::of(path).ok()?;
        Some((identity(&rustix::fs::fstat(&place.directory).ok()?), place.name))
    };
    match (place(one), place(two)) {
        (Some(one), Some(two)) => one == two,
        _ => one == two, // What is wrong with them is said where they are opened.
    }
}

/// Writes a complete file.
///
/// # Errors
/// As [`NewFile::begin`] and [`NewFile::commit`].
pub fn write(path: &Path, bytes: &[u8], wish: &Wish) -> Result<(), OutputError> {
    let mut file = NewFile::begin(path, wish)?;
    let written = file.write_all(bytes);
    written.map_err(|cause| OutputError::Io { action: "write", path: path.to_owned(), cause })?;
    file.commit().map(drop)
}

impl NewFile {
    /// Begins a file for the name `path`.
    ///
    /// # Errors
    /// `Exists`, `NotAFile` and `Source` for an existing file; `Io`.
    pub fn begin(path: &Path, wish: &Wish) -> Result<NewFile, OutputError> {
        let place = Destination::of(path)?;
        place.admit(wish)?;
        let mode = Mode::from_raw_mode(wish.permissions);
        let unnamed = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::openat(&place.directory, ".", unnamed, mode) {
            Ok(file) if rustix::fs::stat(link_to(&file)).is_ok() => {
                return Ok(NewFile { file: file.into(), place, wish: wish.clone(), temporary: None });
            }
            // Its file system does not support files without names, or there is no /proc through which to name it.
            Ok(_) | Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL | Errno::NOSYS) => {}
            Err(cause) => return Err(place.failed("make", cause)),
        }
        let named = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let (file, name) = place.under_new_name(|name| rustix::fs::openat(&place.directory, name, named, mode))?;
        Ok(NewFile { file: file.into(), place, wish: wish.clone(), temporary: Some(name) })
    }

    /// Makes the bytes durable and gives the file its name. The file stays open, at its end.
    ///
    /// # Errors
    /// Those of [`NewFile::begin`], as the name may have been taken in the meantime. The new file is then gone.
    pub fn commit(mut self) -> Result<File, OutputError> {
        if let Some(old) = self.place.admit(&self.wish)? {
            self.take_after(&old);
            self.sync()?;
            self.give_temporary_name()?;
            if let Some(temporary) = &self.temporary {
                let (directory, name) = (&self.place.directory, &self.place.name);
                rustix::fs::renameat(directory, temporary, directory, name)
                    .map_err(|cause| self.place.failed("write", cause))?;
            }
        } else {
            self.sync()?;
            match self.give_name() {
                Ok(()) => {}
                Err(Errno::EXIST) => {
                    // O2 again, for changes since the first check.
                    self.place.admit(&self.wish)?;
                    let why = ": another program has just made it".to_owned();
                    return Err(OutputError::Exists { path: self.place.path.clone(), why });
                }
                Err(cause) => return Err(self.place.failed("write", cause)),
            }
        }
        self.temporary = None;
        if self.place.can_sync {
            rustix::fs::fsync(&self.place.directory)
                .map_err(|cause| self.place.failed("sync the directory of", cause))?;
        }
        self.file.try_clone().map_err(|cause| OutputError::Io { action: "open", path: self.place.path.clone(), cause })
    }

    /// The file itself.
    pub fn file(&self) -> &File {
        &self.file
    }

    fn sync(&self) -> Result<(), OutputError> {
        self.file.sync_all().map_err(|cause| OutputError::Io { action: "sync", path: self.place.path.clone(), cause })
    }

    /// Gives the file the owner and permissions of the one that it replaces, where allowed.
    fn take_after(&self, old: &Stat) {
        let owner = (Some(Uid::from_raw(old.st_uid)), Some(Gid::from_raw(old.st_gid)));
        if rustix::fs::fchown(&self.file, owner.0, owner.1).is_ok() {
            let _ = rustix::fs::fchmod(&self.file, Mode::from_raw_mode(old.st_mode & 0o777));
        }
    }

    /// Gives a file without a name one under which it can be renamed.
    fn give_temporary_name(&mut self) -> Result<(), OutputError> {
        if self.temporary.is_none() {
            let give = |name: &OsStr| self.link(name);
            self.temporary = Some(self.place.under_new_name(give)?.1);
        }
        Ok(())
    }

    /// Links a file that has no name.
    fn link(&self, name: &OsStr) -> Result<(), Errno> {
        let (none, directory) = (rustix::fs::CWD, &self.place.directory);
        rustix::fs::linkat(none, link_to(&self.file), directory, name, AtFlags::SYMLINK_FOLLOW)
    }

    /// Gives the file its name unless that exists.
    fn give_name(&self) -> Result<(), Errno> {
        let (directory, name) = (&self.place.directory, &self.place.name);
        let Some(temporary) = &self.temporary else { return self.link(name) };
        match rustix::fs::renameat_with(directory, temporary, directory, name, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            other => return other,
        }
        // An old file system. The empty file reserves the name; only a crash at this moment would leave it.
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o600))?;
        rustix::fs::renameat(directory, temporary, directory, name)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // The first error is the one to report.
            let _ = rustix::fs::unlinkat(&self.place.directory, temporary, AtFlags::empty());
        }
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A path to an open file, whether it has a name or not.
fn link_to(file: &impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()).into()
}

/// Counter of temporary names, so that two files of one process do not collide.
static NAMES: AtomicU32 = AtomicU32::new(0);

impl Destination {
    fn of(path: &Path) -> Result<Destination, OutputError> {
        let failed = |cause: Errno| OutputError::Io { action: "write", path: path.to_owned(), cause: cause.into() };
        let name = path.file_name().filter(|_| !path.as_os_str().as_bytes().ends_with(b"/"));
        let Some(name) = name else {
            return Err(OutputError::NotAFile { path: path.to_owned(), kind: "a directory" });
        };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let open = |flags: OFlags| rustix::fs::open(parent, flags | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let (directory, can_sync) = match open(OFlags::RDONLY) {
            Ok(directory) => (directory, true),
            Err(Errno::ACCESS) => (open(OFlags::PATH).map_err(failed)?, false),
            Err(cause) => return Err(failed(cause)),
        };
        Ok(Destination { directory, can_sync, name: name.to_owned(), path: path.to_owned() })
    }

    fn failed(&self, action: &'static str, cause: Errno) -> OutputError {
        OutputError::Io { action, path: self.path.clone(), cause: cause.into() }
    }

    /// O2 and O3: the existing file, if there is one, when it may be replaced.
    fn admit(&self, wish: &Wish) -> Result<Option<Stat>, OutputError> {
        let path = || self.path.clone();
        let stat = match rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(cause) => return Err(self.failed("look at", cause)),
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != FileType::RegularFile {
            return Err(OutputError::NotAFile { path: path(), kind: name_of(kind) });
        }
        if wish.sources.contain(&stat) {
            return Err(OutputError::Source { path: path() });
        }
        match wish.replace {
            Replace::Always => {}
            Replace::Never(why) => return Err(OutputError::Exists { path: path(), why: why.to_owned() }),
            Replace::Own(accept) => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let file = rustix::fs::openat(&self.directory, &self.name, flags, Mode::empty());
                let file = File::from(file.map_err(|cause| self.failed("look into", cause))?);
                accept(&file).map_err(|why| OutputError::Exists { path: path(), why })?;
            }
        }
        Ok(Some(stat))
    }

    /// Makes a file under an unused name.
    fn under_new_name<T>(&self, make: impl Fn(&OsStr) -> Result<T, Errno>) -> Result<(T, OsString), OutputError> {
        const TRIES: u32 = 1000;
        for _ in 0..TRIES {
            let number = NAMES.fetch_add(1, Ordering::Relaxed);
            let name = OsString::from(format!(".seekless-{}-{number}.new", std::process::id()));
            match make(&name) {
                Ok(made) => return Ok((made, name)),
                Err(Errno::EXIST) => {}
                Err(cause) => return Err(self.failed("write", cause)),
            }
        }
        Err(self.failed("write", Errno::EXIST))
    }
}

fn name_of(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::BlockDevice | FileType::CharacterDevice => "a device",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        _ => "no regular file",
    }
}

/// The first `bytes` of a file, or all of a shorter one: by which [`Replace::Own`] recognises files.
///
/// # Errors
/// When it cannot be read, as a text for [`Replace::Own`].
pub fn beginning(file: &File, bytes: u64) -> Result<Vec<u8>, String> {
    let mut beginning = Vec::new();
    match file.take(bytes).read_to_end(&mut beginning) {
        Ok(_) => Ok(beginning),
        Err(error) => Err(format!(", and cannot be read: {error}")),
    }
}

#[cfg(test)]
mod tests;
