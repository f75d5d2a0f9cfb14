//! Opens the leaves of a stack that are in the real world.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use rustix::io::Errno;
use seekless::device::{BlockDevice, Device};
use seekless::fs::{Fs, OpenProtocol};
use seekless::rt::Rt;
use seekless::stack::{BuildError, LeafOpener, Purpose, Sharing, Word, quoted_path};
use seekless::testing::{MemFs, MemFsOptions};
use seekless::units::{Nanos, SECTOR_BYTES, human_bytes};

use super::passphrase::{read_key, read_passphrase};
use super::users::{self, Users};
use super::{DirectIo, FileDevice, FileError, FileOptions, HostDir, HostDirError, HostDirOptions, in_use, signature};
use crate::mount_mark::MountMark;
use crate::reactor::Reactor;

/// The real world, for [`Stack::open`](seekless::stack::Stack::open).
///
/// Opening to format protects what is there: a store that holds anything is refused unless [`HostLeaves::overwriting`];
/// one that is in use is always refused.
pub struct HostLeaves {
    reactor: Reactor,
    overwrite: bool,
    /// See [`HostLeaves::appearing`].
    appearing: bool,
    /// See [`HostLeaves::inside`].
    inside: PathBuf,
    files: RefCell<Vec<Rc<FileDevice>>>,
    directories: RefCell<Vec<Rc<HostDir>>>,
    /// Receives the reason when opening takes a while.
    tell: fn(&str),
    /// Image files that it has created.
    created: RefCell<Vec<Rc<FileDevice>>>,
    /// Stores that [`HostLeaves::look`] has opened, by their paths.
    held: RefCell<Vec<(PathBuf, Rc<FileDevice>)>>,
}

/// How long to search for content before the store counts as possibly not blank.
const SEARCH_PATIENCE: Duration = Duration::from_secs(20);

/// Everything opened in the real world, so that other processes can find out its user.
#[derive(Default)]
pub struct OpenedLeaves {
    files: Vec<Rc<FileDevice>>,
    directories: Vec<Rc<HostDir>>,
}

impl OpenedLeaves {
    /// Marks everything as used by this mount or, when `ending`, as used until now.
    pub(crate) fn say_mounted(&self, mount: MountMark, ending: bool) {
        let files = self.files.iter().flat_map(|file| file.claimed());
        let directories = self.directories.iter().flat_map(|directory| directory.claimed());
        users::say_mounted(files.chain(directories), mount, ending);
    }
}

impl HostLeaves {
    pub fn new(reactor: &Reactor) -> HostLeaves {
        HostLeaves {
            reactor: reactor.clone(),
            overwrite: false,
            appearing: false,
            inside: PathBuf::new(),
            files: RefCell::default(),
            directories: RefCell::default(),
            tell: |_| {},
            created: RefCell::default(),
            held: RefCell::default(),
        }
    }

    /// Lets [`Purpose::Format`] destroy what is on a store.
    pub fn overwriting(self, overwrite: bool) -> HostLeaves {
        HostLeaves { overwrite, ..self }
    }

    /// Lets a new image have no name until [`HostLeaves::appear`].
    pub fn appearing(self) -> HostLeaves {
        HostLeaves { appearing: true, ..self }
    }

    /// Opens the directory `inside` each directory of the host, instead of that one.
    pub fn inside(self, inside: PathBuf) -> HostLeaves {
        HostLeaves { inside, ..self }
    }

    /// Opens the store of a leaf and checks whether it may be formatted, for [`Stack::check_leaves`]: of several, none
    /// is changed when one of them must not be. It stays open, and locked, until it is formatted.
    ///
    /// # Errors
    /// As for opening it to be formatted.
    ///
    /// [`Stack::check_leaves`]: seekless::stack::Stack::check_leaves
    pub fn look(&self, rt: &Rt, word: &Word) -> Result<(), BuildError> {
        let Some(path) = word.text("path").map(PathBuf::from) else { return Ok(()) };
        match (path.try_exists(), word.given("size")) {
            (Ok(false), Some(_)) => Ok(()), // It will be created.
            _ => {
                let device = self.open_file(rt, word, Purpose::Format).map_err(Refused::trouble)?;
                self.held.borrow_mut().push((path, device));
                Ok(())
            }
        }
    }

    /// The store at `path`, if [`HostLeaves::look`] has opened it.
    fn take_held(&self, path: Option<&str>) -> Option<Rc<FileDevice>> {
        let mut held = self.held.borrow_mut();
        let at = held.iter().position(|(other, _)| path.is_some_and(|path| other == Path::new(path)))?;
        Some(held.swap_remove(at).1)
    }

    /// Sets `tell`, which receives the reason when opening takes a while.
    pub fn telling(self, tell: fn(&str)) -> HostLeaves {
        HostLeaves { tell, ..self }
    }

    /// Everything opened so far.
    pub fn opened(&self) -> OpenedLeaves {
        OpenedLeaves { files: self.files(), directories: self.directories.borrow().clone() }
    }

    /// The files and block devices opened so far.
    pub fn files(&self) -> Vec<Rc<FileDevice>> {
        self.files.borrow().clone()
    }

    /// Removes image files that were created for a failed mkfs.
    pub fn remove_created(&self) {
        for device in self.created.take() {
            // A partial file system is useless; the first error is the one to report.
            if !device.is_unnamed() {
                let _ = std::fs::remove_file(device.path());
            }
        }
    }

    /// Gives their names to the image files that were created, which are complete now. A mkfs that was killed has left nothing where the
    /// host's file system can have files without names.
    ///
    /// # Errors
    /// When something else has got such a name in between.
    pub fn appear(&self) -> Result<(), FileError> {
        self.created.borrow().iter().try_for_each(|device| device.appear())
    }

    /// Retries `open` while the only users are daemons whose mounts are gone: they write their data, and end. It retries for a moment for users
    /// of whom nothing is known: a process may have been killed, and not have ended yet.
    async fn once_free<T>(&self, rt: &Rt, open: impl Fn() -> Result<T, Refused>) -> Result<T, BuildError> {
        let begun = rt.now();
        let mut told = false;
        loop {
            let refused = match open() {
                Ok(opened) => return Ok(opened),
                Err(refused) => refused,
            };
            let (trouble, users) = match refused {
                Refused::Otherwise(trouble) => return Err(trouble),
                Refused::InUse(refused) => *refused,
            };
            let waited = rt.now() - begun;
            let patience = match users {
                Users::Ending => PATIENCE,
                Users::Unknown => PATIENCE_UNKNOWN,
                Users::Mounted(_) | Users::Elsewhere(_) => Nanos::ZERO,
            };
            if waited >= patience {
                return Err(Refused::InUse(Box::new((trouble, users))).trouble());
            }
            if !told && waited >= TELL_AFTER {
                let BuildError::InUse { problem, .. } = &trouble else { return Err(trouble) };
                let place = problem.split(" is in use").next().unwrap_or_default();
                let seconds = PATIENCE.0 / Nanos::from_secs(1).0;
                (self.tell)(&format!(
                    "{place} was unmounted, but its daemon is still writing or serving programs: waiting for it, {seconds} s at most"
                ));
                told = true;
            }
            rt.sleep(PAUSE).await;
        }
    }

    fn open_file(&self, rt: &Rt, word: &Word, purpose: Purpose) -> Result<Rc<FileDevice>, Refused> {
        let Some(path) = word.text("path").map(PathBuf::from) else {
            return Err(BuildError::other("the path is missing").into()); // The table of words says that it is required.
        };
        let size = word.given("size").map(|_| word.bytes("size"));
        let direct = match word.choice("direct") {
            "on" => DirectIo::On,
            "auto" if purpose == Purpose::Use => DirectIo::Auto,
            _ => DirectIo::Off,
        };
        let options = FileOptions { direct, read_only: purpose == Purpose::Inspect };
        let is_there = match std::fs::metadata(&path) {
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(BuildError::other(format!("cannot open {}: {error}", path.display())).into()),
        };
        if !is_there {
            return Ok(self.create(rt, word, &path, options, purpose)?);
        }
        if purpose != Purpose::Inspect
            && let Some(user) = in_use::user_of(&path)
        {
            let problem = format!("{} is {user}", path.display());
            return Err(BuildError::in_use(problem).hint("unmount or detach it first").into());
        }
        let device = FileDevice::open(rt, &self.reactor, &path, options).map_err(|error| match &error {
            FileError::InUse { users, .. } => Refused::in_use(&error, users),
            _ => explain(error).into(),
        })?;
        for what in device.not_known() {
            (self.tell)(&format!("warning: it is not known {what}; taken as not {}", path.display()));
        }
        check_size(&device, size)?;
        if purpose == Purpose::Format {
            // After locking, so that no other process changes it.
            self.protect(&path)?;
        }
        Ok(Rc::new(device))
    }

    fn create(
        &self,
        rt: &Rt,
        word: &Word,
        path: &Path,
        options: FileOptions,
        purpose: Purpose,
    ) -> Result<Rc<FileDevice>, BuildError> {
        let problem = format!("there is no file {}", path.display());
        let size = word.given("size").map(|_| word.bytes("size"));
        match (purpose, size) {
            (Purpose::Format, Some(size)) => {
                let make = if self.appearing { FileDevice::create_unnamed } else { FileDevice::create };
                let device = Rc::new(make(rt, &self.reactor, path, size, options).map_err(explain)?);
                self.created.borrow_mut().push(device.clone());
                Ok(device)
            }
            (Purpose::Format, None) => Err(BuildError::Missing { problem }),
            _ if word.is_member() => Err(BuildError::other(problem).hint(format!(
                "if others are missing too, another directory may be meant. raid1 and raid5 go on without member {number} with \
                 degraded=on; with replace={number} they take a new one, of the size of the others: truncate -s SIZE {}",
                quoted_path(path),
                number = word.instance()
            ))),
            _ => Err(BuildError::Missing { problem }),
        }
    }

    /// Refuses a store that holds data, unless overwriting is allowed.
    fn protect(&self, path: &Path) -> Result<(), BuildError> {
        let failed = |error: io::Error| BuildError::other(format!("cannot look into {}: {error}", path.display()));
        let mut file = File::open(path).map_err(failed)?;
        let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
        if self.overwrite {
            return Ok(());
        }
        match signature::content(&file, size, SEARCH_PATIENCE).map_err(failed)?.text() {
            None => Ok(()),
            Some(content) => Err(BuildError::other(format!("{} holds {content}, which would be lost", path.display()))
                .hint("to overwrite it, use --force")),
        }
    }

    /// Wipes the signatures of the old content.
    fn wipe(&self, path: &Path) -> Result<(), BuildError> {
        let failed = |error: io::Error| BuildError::other(format!("cannot wipe {}: {error}", path.display()));
        let mut file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
        let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
        let found = signature::signatures(&file, size).map_err(failed)?;
        signature::wipe(&file, &found).map_err(failed)
    }
}

/// How long a daemon may take to write its data after its mount has gone.
const PATIENCE: Nanos = Nanos::from_secs(60);
/// How long a process may have a store of which nothing more is known. One that was killed has it until the kernel has taken it apart; one that
/// another thread is starting has it until it runs its program.
const PATIENCE_UNKNOWN: Nanos = Nanos::from_millis(500);
/// Shorter waits are not reported.
const TELL_AFTER: Nanos = Nanos::from_secs(1);
const PAUSE: Nanos = Nanos::from_millis(10);

/// Why a leaf could not be opened.
enum Refused {
    /// In use by these, for now.
    InUse(Box<(BuildError, Users)>),
    Otherwise(BuildError),
}

impl Refused {
    fn in_use(error: impl std::error::Error, users: &Users) -> Refused {
        Refused::InUse(Box::new((BuildError::in_use(error.to_string()), users.clone())))
    }

    fn trouble(self) -> BuildError {
        match self {
            Refused::Otherwise(trouble) => trouble,
            Refused::InUse(refused) => {
                let (trouble, users) = *refused;
                match users.hint() {
                    Some(hint) => trouble.hint(hint),
                    None => trouble,
                }
            }
        }
    }
}

impl From<BuildError> for Refused {
    fn from(trouble: BuildError) -> Refused {
        Refused::Otherwise(trouble)
    }
}

/// A size in the line must match the existing store.
fn check_size(device: &FileDevice, size: Option<u64>) -> Result<(), BuildError> {
    let found = device.geometry().bytes();
    match size {
        Some(size) if size / SECTOR_BYTES * SECTOR_BYTES != found => {
            let path = device.path().display();
            let found = human_bytes(found);
            let problem = format!("{path} already exists and has {found}; leave size out to use it as it is");
            Err(BuildError::Option { key: "size", problem })
        }
        _ => Ok(()),
    }
}

fn explain(error: FileError) -> BuildError {
    let hint = match &error {
        FileError::Os { cause: Errno::ACCESS | Errno::PERM, .. } => Some("check its owner and permissions"),
        FileError::Os { cause: Errno::ROFS, .. } => Some("it is on a read-only file system; mount it with -o ro"),
        FileError::Os { cause: Errno::INVAL, .. } => {
            Some("the host's file system may not support direct I/O; leave out `direct`")
        }
        FileError::MayBeInUse { hint, .. } => Some(hint.as_str()),
        FileError::Os { cause: Errno::NOSPC | Errno::FBIG, .. } => Some("choose a smaller size or another file system"),
        _ => None,
    };
    let trouble = BuildError::other(error.to_string());
    match hint {
        Some(hint) => trouble.hint(hint),
        None => trouble,
    }
}

#[async_trait(?Send)]
impl LeafOpener for HostLeaves {
    async fn device(&self, rt: &Rt, word: &Word, purpose: Purpose) -> Result<Device, BuildError> {
        match word.name() {
            "file" => {
                let device = match self.take_held(word.text("path")) {
                    Some(device) => device,
                    None => self.once_free(rt, || self.open_file(rt, word, purpose)).await?,
                };
                if purpose == Purpose::Format && self.overwrite && !device.is_unnamed() {
                    self.wipe(device.path())?;
                }
                self.files.borrow_mut().push(device.clone());
                Ok(device)
            }
            name => Err(BuildError::other(format!("this program cannot open `{name}`"))),
        }
    }

    async fn secret(&self, word: &Word, path: &str) -> Result<Vec<u8>, BuildError> {
        let read = match word.text("passphrase") == Some(path) {
            true => read_passphrase(Path::new(path), word.text("key").unwrap_or("the key"), false),
            false => read_key(Path::new(path)),
        };
        read.map_err(|error| BuildError::other(format!("cannot read {path}: {error}")))
    }

    async fn file_system(&self, rt: &Rt, word: &Word, purpose: Purpose, sharing: Sharing) -> Result<Fs, BuildError> {
        match word.name() {
            "hostdir" => {
                let path = Path::new(word.text("path").unwrap_or_default());
                let path = if self.inside.as_os_str().is_empty() { path.to_owned() } else { path.join(&self.inside) };
                let read_only = purpose == Purpose::Inspect;
                let options = HostDirOptions {
                    submounts: word.switch("submounts"),
                    alone: sharing == Sharing::Alone && !read_only,
                    read_only,
                    ..HostDirOptions::default()
                };
                let open = || {
                    HostDir::open(rt, &self.reactor, &path, options).map_err(|error| {
                        let trouble = BuildError::other(error.to_string());
                        match &error {
                            HostDirError::InUse { users, .. } => Refused::in_use(&error, users),
                            HostDirError::NotADirectory { .. } => {
                                trouble.hint("for an image file or a block device write file:PATH").into()
                            }
                            _ => trouble.into(),
                        }
                    })
                };
                let directory = Rc::new(self.once_free(rt, open).await?);
                self.directories.borrow_mut().push(directory.clone());
                Ok(directory)
            }
            "memfs" => {
                let options = MemFsOptions { open_protocol: OpenProtocol::ZeroMessage, ..MemFsOptions::default() };
                Ok(MemFs::with_options(rt, options))
            }
            name => Err(BuildError::other(format!("this program cannot open `{name}`"))),
        }
    }

    fn random(&self) -> Option<[u64; 4]> {
        crate::random::numbers().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use seekless::fs::client::Client;
    use seekless::stack::{Identity, Stack, Usage};

    use super::*;
    use crate::reactor::ReactorOptions;

    /// Aim: a stack line opens files and directories, and reports what is wrong with them. Method: each kind of leaf,
    /// good and bad, in a temporary directory, written as `T`.
    #[test]
    fn lines_open_files_and_directories() {
        let directory = tempfile::tempdir().unwrap();
        let at = |line: &str| line.replace('T', &directory.path().to_string_lossy());
        std::fs::write(directory.path().join("small"), [0; 100_000]).unwrap();
        let reactor = Reactor::new(ReactorOptions::default()).unwrap();
        let executor = reactor.executor();
        let rt = executor.rt().clone();
        let identity = Identity::new([1, 2, 3, 4]);
        let run = async {
            let leaves = HostLeaves::new(&reactor);
            let error = async |line: &str, purpose: Purpose| {
                let stack = Stack::parse(&at(line)).unwrap();
                let error = match stack.open(&rt, &leaves, purpose).await {
                    Ok(opened) => opened.mount(Usage::default()).await.err().unwrap(),
                    Err(error) => error,
                };
                let hint = error.hint.clone().unwrap_or_default();
                let text = format!("{} | {hint}", error.problem);
                text.replace(&*directory.path().to_string_lossy(), "T")
            };
            for (line, purpose, text) in [
                ("hostdir:T/missing", Purpose::Use, "there is no directory T/missing; create it first | "),
                (
                    "wrap / hostdir:T/small",
                    Purpose::Use,
                    "T/small is not a directory | for an image file or a block device write file:PATH",
                ),
                (
                    "lfs / file:T/missing",
                    Purpose::Use,
                    "there is no file T/missing | make it with: seekless mkfs 'lfs / file:T/missing,size=1GiB'",
                ),
                (
                    "lfs / raid1:n=2 / file:T/missing-{}",
                    Purpose::Use,
                    "there is no file T/missing-0 | if others are missing too, another directory may be meant. raid1 and raid5 go on \
                     without member 0 with degraded=on; with replace=0 they take a new one, of the size of the others: truncate -s SIZE \
                     T/missing-0",
                ),
                (
                    "lfs / file:T/missing",
                    Purpose::Format,
                    "there is no file T/missing | to make it, give its size: file:T/missing,size=1GiB",
                ),
                (
                    "lfs / file:T/small,size=64MiB",
                    Purpose::Format,
                    "`size` of `file`: T/small already exists and has 97.5 KiB; leave size out to use it as it is | ",
                ),
            ] {
                assert_eq!(error(line, purpose).await, text);
            }
            assert!(error("lfs / file:T", Purpose::Use).await.starts_with("T is a directory"));
            assert!(error("lfs / file:T/small", Purpose::Use).await.contains("superblock copies of an LFS"));

            let stack = Stack::parse(&at("wrap / lfs / file:T/image,size=64MiB")).unwrap();
            stack.open(&rt, &leaves, Purpose::Format).await.unwrap().mkfs(&identity).await.unwrap();
            drop(leaves);
            let leaves = HostLeaves::new(&reactor);
            let mounted = stack.mount(&rt, &leaves, &identity, Usage::default()).await.unwrap();
            assert_eq!(leaves.files().len(), 1);
            let client = Client::new(mounted.fs.clone());
            client.write_file(b"f", b"hello").await.unwrap();
            let busy = stack.mount(&rt, &HostLeaves::new(&reactor), &identity, Usage::default()).await.err().unwrap();
            assert!(busy.problem.contains("is in use by another mount or process"), "{busy}");
            mounted.fs.close().await.unwrap();

            for line in ["wrap / hostdir:T", "memfs"] {
                let mounted =
                    Stack::parse(&at(line)).unwrap().mount(&rt, &leaves, &identity, Usage::default()).await.unwrap();
                let client = Client::new(mounted.fs.clone());
                client.write_file(b"g", b"hello").await.unwrap();
                mounted.fs.close().await.unwrap();
            }
            assert_eq!(std::fs::read(directory.path().join("g")).unwrap(), b"hello");
        };
        executor.block_on(run).unwrap();
    }

    /// Aim: a store whose user is ending is waited for. Method: an image and a directory, locked as by another program until the first attempt
    /// has been refused.
    #[test]
    fn users_that_are_ending_are_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let at = |line: &str| line.replace('T', &directory.path().to_string_lossy());
        let reactor = Reactor::new(ReactorOptions::default()).unwrap();
        let executor = reactor.executor();
        let rt = executor.rt().clone();
        let identity = Identity::new([1, 2, 3, 4]);
        let run = async {
            let stack = Stack::parse(&at("lfs / file:T/image,size=64MiB")).unwrap();
            let leaves = HostLeaves::new(&reactor);
            stack.open(&rt, &leaves, Purpose::Format).await.unwrap().mkfs(&identity).await.unwrap();
            leaves.appear().unwrap();
            drop(leaves);
            std::fs::create_dir(directory.path().join("files")).unwrap();
            for (line, locked) in [("lfs / file:T/image", "image"), ("zstd / hostdir:T/files", "files")] {
                let user: OwnedFd = std::fs::File::open(directory.path().join(locked)).unwrap().into();
                rustix::fs::flock(&user, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
                let ends = async {
                    rt.sleep(Nanos(1)).await;
                    drop(user);
                };
                let (stack, leaves) = (Stack::parse(&at(line)).unwrap(), HostLeaves::new(&reactor));
                let mount = stack.mount(&rt, &leaves, &identity, Usage::default());
                let (mounted, ()) = futures_util::future::join(mount, ends).await;
                mounted.unwrap_or_else(|error| panic!("{line}: {error}")).fs.close().await.unwrap();
            }
        };
        executor.block_on(run).unwrap();
    }
}
