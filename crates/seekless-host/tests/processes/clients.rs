//! The clients: programs that change their own files on a mount, and log each call before and after it to another file
//! system.
//!
//! A client is this test program, started once more: the death of the daemon may kill it, by a page of a mapped file
//! that cannot be read any more. It works in two directories, one shared by all clients and one of its own; names and
//! files are its own, so that the expected content follows from its log alone.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{FallocateFlags, Mode, OFlags};
use seekless::rng::Rng;

const WISH: &str = "SEEKLESS_TEST_CLIENT";

/// The extended attribute of [`Call::Label`].
pub(crate) const LABEL: &str = "user.label";

/// Names in each of the two directories.
const NAMES: u64 = 5;
/// Largest size that is written and appended to.
const BYTES_MAX: u64 = 160 << 10;

/// One call, as it is logged. Paths are relative to the directory of all clients; `stamp` says what was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Create {
        path: String,
    },
    /// With `durable`, through `O_SYNC`, or into a mapping that `msync` then makes durable.
    Write {
        path: String,
        offset: u64,
        bytes: u64,
        stamp: u64,
        durable: bool,
    },
    Truncate {
        path: String,
        size: u64,
    },
    /// `fsync`, or `fdatasync`, which need not make attributes durable.
    Sync {
        path: String,
        data_only: bool,
    },
    /// `fallocate`: the bytes of the range become zeroes.
    Zero {
        path: String,
        offset: u64,
        bytes: u64,
    },
    /// `fallocate`: the file has this size at least.
    Extend {
        path: String,
        size: u64,
    },
    /// A file without a name is written, perhaps made durable, and then gets this name.
    Publish {
        path: String,
        bytes: u64,
        stamp: u64,
        durable: bool,
    },
    /// Two names change places.
    Exchange {
        path: String,
        other: String,
    },
    /// Sets an extended attribute to this number.
    Label {
        path: String,
        value: u64,
    },
    Rename {
        from: String,
        to: String,
    },
    Unlink {
        path: String,
    },
    SyncDirectory {
        path: String,
    },
}

impl Call {
    fn to_line(&self) -> String {
        match self {
            Call::Create { path } => format!("create {path}"),
            Call::Write { path, offset, bytes, stamp, durable } => {
                format!("write {path} {offset} {bytes} {stamp} {durable}")
            }
            Call::Truncate { path, size } => format!("truncate {path} {size}"),
            Call::Sync { path, data_only } => format!("sync {path} {data_only}"),
            Call::Zero { path, offset, bytes } => format!("zero {path} {offset} {bytes}"),
            Call::Extend { path, size } => format!("extend {path} {size}"),
            Call::Publish { path, bytes, stamp, durable } => format!("publish {path} {bytes} {stamp} {durable}"),
            Call::Exchange { path, other } => format!("exchange {path} {other}"),
            Call::Label { path, value } => format!("label {path} {value}"),
            Call::Rename { from, to } => format!("rename {from} {to}"),
            Call::Unlink { path } => format!("unlink {path}"),
            Call::SyncDirectory { path } => format!("syncdir {path}"),
        }
    }

    fn from_words(words: &[&str]) -> Option<Call> {
        let number = |word: &str| word.parse().ok();
        Some(match *words {
            ["create", path] => Call::Create { path: path.into() },
            ["write", path, offset, bytes, stamp, durable] => Call::Write {
                path: path.into(),
                offset: number(offset)?,
                bytes: number(bytes)?,
                stamp: number(stamp)?,
                durable: durable == "true",
            },
            ["truncate", path, size] => Call::Truncate { path: path.into(), size: number(size)? },
            ["sync", path, data_only] => Call::Sync { path: path.into(), data_only: data_only == "true" },
            ["zero", path, offset, bytes] => {
                Call::Zero { path: path.into(), offset: number(offset)?, bytes: number(bytes)? }
            }
            ["extend", path, size] => Call::Extend { path: path.into(), size: number(size)? },
            ["publish", path, bytes, stamp, durable] => Call::Publish {
                path: path.into(),
                bytes: number(bytes)?,
                stamp: number(stamp)?,
                durable: durable == "true",
            },
            ["exchange", path, other] => Call::Exchange { path: path.into(), other: other.into() },
            ["label", path, value] => Call::Label { path: path.into(), value: number(value)? },
            ["rename", from, to] => Call::Rename { from: from.into(), to: to.into() },
            ["unlink", path] => Call::Unlink { path: path.into() },
            ["syncdir", path] => Call::SyncDirectory { path: path.into() },
            _ => return None,
        })
    }
}

/// A call with what became of it.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
    pub(crate) call: Call,
    /// When it returned well; `None` when it did not.
    pub(crate) done: Option<u64>,
    pub(crate) error: Option<String>,
}

/// Nanoseconds of a clock that all processes share.
pub(crate) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The log of one client.
pub(crate) fn read_log(path: &Path) -> Vec<Logged> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut calls: Vec<Logged> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match *words {
            ["done", time] => calls.last_mut().unwrap().done = time.parse().ok(),
            ["failed", ..] => calls.last_mut().unwrap().error = Some(line[7..].to_owned()),
            _ => {
                let call = Call::from_words(&words).unwrap_or_else(|| panic!("not a call: {line}"));
                calls.push(Logged { call, done: None, error: None });
            }
        }
    }
    calls
}

/// What `stamp` puts at bytes 8 × `word` and following.
pub(crate) fn pattern(stamp: u64, word: u64) -> [u8; 8] {
    let mut bits = stamp.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word.wrapping_mul(0xd1b5_4a32_d192_ed03);
    bits = (bits ^ bits >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    // No byte is zero, which is what holes have.
    ((bits ^ bits >> 32) | 0x0101_0101_0101_0101).to_le_bytes()
}

pub(crate) fn byte_of(stamp: u64, offset: u64) -> u8 {
    pattern(stamp, offset / 8)[(offset % 8) as usize]
}

/// What not every file system can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Abilities {
    /// Extended attributes, and names that change places in one step.
    pub(crate) modern: bool,
}

/// Starts a client on `directory`, which logs to `log`.
pub(crate) fn start(seed: u64, number: usize, abilities: Abilities, directory: &Path, log: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "clients::work", "--nocapture", "--test-threads=1"]);
    let Abilities { modern } = abilities;
    command.env(WISH, format!("{seed}\n{number}\n{modern}\n{}\n{}", directory.display(), log.display()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// The directory of a client's own.
pub(crate) fn own_directory(number: usize) -> String {
    format!("own{number}")
}

/// The client. As a test it does nothing.
#[test]
fn work() {
    let Ok(wish) = std::env::var(WISH) else { return };
    let words: Vec<&str> = wish.split('\n').collect();
    let [seed, number, modern, directory, log] = words[..] else { panic!("a wish has five words") };
    let number: usize = number.parse().unwrap();
    // Not by its path: behind that is another directory once the mount has been taken away, and a sync of it succeeds.
    std::env::set_current_dir(directory).unwrap();
    let mut client = Client {
        rng: Rng::new(seed.parse::<u64>().unwrap() ^ (number as u64) << 32),
        number,
        abilities: Abilities { modern: modern == "true" },
        directory: PathBuf::new(),
        log: File::options().append(true).create(true).open(log).unwrap(),
        sizes: BTreeMap::new(),
        calls: 0,
    };
    client.find_files();
    // Until the mount is gone.
    while client.step().is_ok() {}
    std::process::exit(0);
}

struct Client {
    rng: Rng,
    number: usize,
    abilities: Abilities,
    directory: PathBuf,
    log: File,
    /// What there is, and how large.
    sizes: BTreeMap<String, u64>,
    calls: u64,
}

type Stepped = Result<(), ()>;

impl Client {
    fn directories(&self) -> [String; 2] {
        [".".into(), own_directory(self.number)]
    }

    fn name(&mut self) -> String {
        let name = self.rng.below(NAMES);
        match self.rng.chance(1, 2) {
            true => format!("c{}-{name}", self.number),
            false => format!("{}/c{}-{name}", own_directory(self.number), self.number),
        }
    }

    fn find_files(&mut self) {
        let mine = format!("c{}-", self.number);
        for directory in self.directories() {
            for entry in std::fs::read_dir(self.directory.join(&directory)).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                if name.starts_with(&mine) {
                    let path = if directory == "." { name } else { format!("{directory}/{name}") };
                    let size = std::fs::metadata(self.directory.join(&path)).unwrap().len();
                    self.sizes.insert(path, size);
                }
            }
        }
    }

    /// Makes a call, between two lines of the log.
    fn call(&mut self, call: Call, make: impl FnOnce(&Path) -> std::io::Result<()>) -> Stepped {
        self.log.write_all(format!("{}\n", call.to_line()).as_bytes()).unwrap();
        let made = make(&self.directory);
        let line = match &made {
            Ok(()) => format!("done {}\n", now()),
            Err(error) => format!("failed {error}\n"),
        };
        self.log.write_all(line.as_bytes()).unwrap();
        made.map_err(drop)
    }

    fn step(&mut self) -> Stepped {
        let path = self.name();
        let Some(&size) = self.sizes.get(&path) else {
            if self.rng.chance(1, 3) {
                return self.publish(&path);
            }
            self.create(&path)?;
            return self.write(&path, 0);
        };
        match self.rng.below(110) {
            100..103 => self.zero(&path, size),
            103..105 => self.extend(&path, size),
            105..107 => self.exchange(&path),
            107.. => self.label(&path),
            0..22 => self.write(&path, size),
            22..40 => {
                let offset = self.rng.below(size + 1);
                self.write(&path, offset)
            }
            40..42 => {
                // Far behind the end, so that indirect blocks of each level are needed.
                let far = *self.rng.pick(&[300 << 10, 1 << 20, 5 << 20]);
                let offset = far + self.rng.below(64 << 10);
                self.write(&path, offset)
            }
            42..62 => self.sync(&path),
            62..70 => {
                let size = if self.rng.chance(1, 3) { 0 } else { self.rng.below(size + size / 4 + 1) };
                self.truncate(&path, size)
            }
            70..76 => {
                // Rewritten as a whole, as editors and shells do.
                self.truncate(&path, 0)?;
                self.write(&path, 0)
            }
            76..80 => self.mapped_write(&path, size),
            80..94 => self.replace(&path),
            94..97 => {
                self.sizes.remove(&path);
                self.call(Call::Unlink { path: path.clone() }, |at| std::fs::remove_file(at.join(&path)))?;
                self.sync_directory_of(&path)
            }
            _ => self.sync_directory_of(&path),
        }
    }

    /// As programs do that want no half-written file to be seen.
    fn publish(&mut self, path: &str) -> Stepped {
        let bytes = 1 + self.rng.below(30_000);
        let stamp = self.stamp();
        let data: Vec<u8> = (0..bytes).map(|offset| byte_of(stamp, offset)).collect();
        let durable = self.rng.chance(2, 3);
        self.sizes.insert(path.to_owned(), bytes);
        self.call(Call::Publish { path: path.into(), bytes, stamp, durable }, |at| {
            let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
            let mode = Mode::from_raw_mode(0o644);
            let file = File::from(rustix::fs::open(at.join(directory_of(path)), flags, mode)?);
            file.write_all_at(&data, 0)?;
            if durable {
                file.sync_all()?;
            }
            let shown = format!("/proc/self/fd/{}", file.as_raw_fd());
            let flags = rustix::fs::AtFlags::SYMLINK_FOLLOW;
            Ok(rustix::fs::linkat(rustix::fs::CWD, shown, rustix::fs::CWD, at.join(path), flags)?)
        })?;
        if self.rng.chance(1, 2) { self.sync_directory_of(path) } else { self.sync(path) }
    }

    fn zero(&mut self, path: &str, size: u64) -> Stepped {
        let offset = self.rng.below(size + 1);
        let bytes = 1 + self.rng.below(30_000);
        let punched = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let written = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        // Not every file system below a layer has both.
        let flags = if self.abilities.modern && self.rng.chance(1, 3) { written } else { punched };
        self.call(Call::Zero { path: path.into(), offset, bytes }, |at| {
            let file = File::options().write(true).open(at.join(path))?;
            Ok(rustix::fs::fallocate(file, flags, offset, bytes)?)
        })
    }

    fn extend(&mut self, path: &str, size: u64) -> Stepped {
        let more = 1 + self.rng.below(10_000);
        let size = size + more;
        self.sizes.insert(path.to_owned(), size);
        self.call(Call::Extend { path: path.into(), size }, |at| {
            let file = File::options().write(true).open(at.join(path))?;
            Ok(rustix::fs::fallocate(file, FallocateFlags::empty(), size - more, more)?)
        })
    }

    fn exchange(&mut self, path: &str) -> Stepped {
        let other = self.name();
        if other == path || !self.sizes.contains_key(&other) || !self.abilities.modern {
            return self.sync_directory_of(path);
        }
        let sizes = [path, &other].map(|name| self.sizes.get(name).copied().unwrap_or_default());
        self.sizes.extend([(path.to_owned(), sizes[1]), (other.clone(), sizes[0])]);
        self.call(Call::Exchange { path: path.into(), other: other.clone() }, |at| {
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            Ok(rustix::fs::renameat_with(rustix::fs::CWD, at.join(path), rustix::fs::CWD, at.join(&other), flags)?)
        })?;
        if self.rng.chance(1, 2) { self.sync_directory_of(path) } else { Ok(()) }
    }

    fn label(&mut self, path: &str) -> Stepped {
        if !self.abilities.modern {
            return self.sync(path);
        }
        let value = self.stamp();
        self.call(Call::Label { path: path.into(), value }, |at| {
            let flags = rustix::fs::XattrFlags::empty();
            Ok(rustix::fs::setxattr(at.join(path), LABEL, value.to_string().as_bytes(), flags)?)
        })?;
        if self.rng.chance(1, 2) { self.sync(path) } else { Ok(()) }
    }

    fn create(&mut self, path: &str) -> Stepped {
        self.sizes.insert(path.to_owned(), 0);
        self.call(Call::Create { path: path.into() }, |at| File::create_new(at.join(path)).map(drop))
    }

    fn write(&mut self, path: &str, offset: u64) -> Stepped {
        let longest = if self.rng.chance(1, 4) { 60_000 } else { 9_000 };
        let bytes = 1 + self.rng.below(longest);
        if offset + bytes > BYTES_MAX && offset < BYTES_MAX * 2 {
            return self.truncate(path, 0);
        }
        let durable = self.rng.chance(1, 6);
        let (call, data) = self.written(path, offset, bytes, durable);
        let size = self.sizes.entry(path.to_owned()).or_default();
        *size = (*size).max(offset + bytes);
        self.call(call, |at| {
            let mut options = File::options();
            if durable {
                std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_SYNC);
            }
            options.write(true).open(at.join(path))?.write_all_at(&data, offset)
        })
    }

    /// A number that nothing else is marked with.
    fn stamp(&mut self) -> u64 {
        self.calls += 1;
        now() ^ (self.number as u64) << 56
    }

    fn written(&mut self, path: &str, offset: u64, bytes: u64, durable: bool) -> (Call, Vec<u8>) {
        let stamp = self.stamp();
        let data = (offset..offset + bytes).map(|offset| byte_of(stamp, offset)).collect();
        (Call::Write { path: path.into(), offset, bytes, stamp, durable }, data)
    }

    fn mapped_write(&mut self, path: &str, size: u64) -> Stepped {
        if size == 0 || size > BYTES_MAX * 2 {
            return self.sync(path);
        }
        let offset = self.rng.below(size);
        let bytes = 1 + self.rng.below(size - offset);
        let (call, data) = self.written(path, offset, bytes, true);
        self.call(call, |at| {
            let file = File::options().read(true).write(true).open(at.join(path))?;
            msync_write(&file.into(), size as usize, offset as usize, &data)
        })
    }

    fn truncate(&mut self, path: &str, size: u64) -> Stepped {
        self.sizes.insert(path.to_owned(), size);
        let through_open = size == 0 && self.rng.chance(1, 2);
        self.call(Call::Truncate { path: path.into(), size }, |at| match through_open {
            true => File::options().write(true).truncate(true).open(at.join(path)).map(drop),
            false => File::options().write(true).open(at.join(path))?.set_len(size),
        })
    }

    fn sync(&mut self, path: &str) -> Stepped {
        let data_only = self.rng.chance(1, 2);
        self.call(Call::Sync { path: path.into(), data_only }, |at| {
            let file = File::options().write(true).open(at.join(path))?;
            if data_only { file.sync_data() } else { file.sync_all() }
        })
    }

    /// As programs save a file: a new one beside it, made durable, then renamed over it.
    fn replace(&mut self, path: &str) -> Stepped {
        let from = self.name();
        if from == path {
            return self.sync_directory_of(path);
        }
        if !self.sizes.contains_key(&from) {
            self.create(&from)?;
            self.write(&from, 0)?;
        }
        if self.rng.chance(3, 4) {
            self.sync(&from)?;
        }
        let size = self.sizes.remove(&from).unwrap_or_default();
        self.sizes.insert(path.to_owned(), size);
        let call = Call::Rename { from: from.clone(), to: path.into() };
        self.call(call, |at| std::fs::rename(at.join(&from), at.join(path)))?;
        if self.rng.chance(3, 4) {
            self.sync_directory_of(path)?;
        }
        Ok(())
    }

    fn sync_directory_of(&mut self, path: &str) -> Stepped {
        let directory = directory_of(path).to_owned();
        self.call(Call::SyncDirectory { path: directory.clone() }, |at| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            Ok(rustix::fs::fsync(rustix::fs::open(at.join(&directory), flags, Mode::empty())?)?)
        })
    }
}

/// `.` or the directory of a client's own.
pub(crate) fn directory_of(path: &str) -> &str {
    path.split_once('/').map_or(".", |(directory, _)| directory)
}

/// Writes into a shared mapping of the file, and makes that durable.
fn msync_write(file: &OwnedFd, size: usize, offset: usize, data: &[u8]) -> std::io::Result<()> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of `size` bytes, of which the kernel chooses the place; it is used within its bounds, by this
    // thread alone, and taken away before the end.
    unsafe {
        let place = libc::mmap(std::ptr::null_mut(), size, protection, libc::MAP_SHARED, file.as_raw_fd(), 0);
        if place == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        assert!(offset + data.len() <= size);
        std::ptr::copy_nonoverlapping(data.as_ptr(), place.cast::<u8>().add(offset), data.len());
        let synced = libc::msync(place, size, libc::MS_SYNC);
        let error = std::io::Error::last_os_error();
        libc::munmap(place, size);
        if synced == 0 { Ok(()) } else { Err(error) }
    }
}
