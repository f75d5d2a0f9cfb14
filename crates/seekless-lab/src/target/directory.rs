//! Any directory of the host, through ordinary system calls.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use async_trait::async_trait;
use rustix::fs::Advice;
use rustix::time::ClockId;
use seekless::rt::Work;
use seekless::units::Nanos;

use super::{Coldness, Listed, Space, Target, Usage};
use crate::LabError;

/// Operations that the lab cannot do by itself, because it does not know the server of a directory.
pub struct Host {
    /// Makes everything in the file system of this directory durable.
    pub sync: fn(&File, &Path) -> io::Result<()>,
    /// Drops the caches of the directory's server, besides those of the kernel. `PermissionDenied` where this user may not: the
    /// measurement goes on and says so.
    pub drop_caches: fn(&Path) -> io::Result<()>,
}

impl Default for Host {
    fn default() -> Host {
        Host { sync: |directory, _| Ok(rustix::fs::syncfs(directory)?), drop_caches: |_| Ok(()) }
    }
}

/// Makes a directory in `parent` for one run, and returns its path. Names that another thread has, or a process that had this number
/// and was killed, are passed over.
///
/// # Errors
/// `Host` when it cannot be made.
pub fn own_directory(parent: &Path) -> Result<PathBuf, LabError> {
    for number in 0_u32.. {
        let home = parent.join(format!("seekless-bench-{}-{number}", std::process::id()));
        match fs::create_dir(&home) {
            Ok(()) => return Ok(home),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed("make the directory", &home)(error)),
        }
    }
    unreachable!("no directory has 2^32 entries of this name");
}

/// A directory of the host, made for one run and removed at its end.
pub struct Directory {
    home: PathBuf,
    opened: File,
    host: Host,
    started: Instant,
}

impl Directory {
    /// Makes its own directory inside `parent`.
    ///
    /// # Errors
    /// `Host` when `parent` is not a directory, or may not be written.
    pub fn new(parent: &Path, host: Host) -> Result<Directory, LabError> {
        let home = own_directory(parent)?;
        let opened = File::open(&home).map_err(failed("open", &home))?;
        Ok(Directory { home, opened, host, started: Instant::now() })
    }

    /// Kind and source of the file system, for example `ext4 on /dev/vda`.
    pub fn describe(&self) -> String {
        let found = self.opened.metadata().ok().and_then(|metadata| {
            let device = metadata.dev();
            let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
            let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
            // The line is: ID, parent, device number, ..., `-`, kind, source, options (proc(5)).
            let line = table.lines().find(|line| line.split(' ').nth(2) == Some(&number))?;
            let mut words = line.split(' ').skip_while(|word| *word != "-").skip(1);
            Some(format!("{} on {}", words.next()?, words.next()?.replace("\\040", " ")))
        });
        found.unwrap_or_else(|| "a file system of the host".to_owned())
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.home.join(relative)
    }

    /// Advises the host to drop the data of every file below.
    fn drop_file_data(&self) -> io::Result<()> {
        let mut directories = vec![self.home.clone()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory)? {
                let entry = entry?;
                match entry.file_type()?.is_dir() {
                    true => directories.push(entry.path()),
                    false => rustix::fs::fadvise(File::open(entry.path())?, 0, None, Advice::DontNeed)?,
                }
            }
        }
        Ok(())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // After a successful run it is empty; the error of any other run has been reported.
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// Drops the kernel's caches of every file system. Only root may.
///
/// # Errors
/// `PermissionDenied` for other users.
fn drop_kernel_caches() -> io::Result<()> {
    fs::write("/proc/sys/vm/drop_caches", "3")
}

/// Drops the kernel's caches of `files`, and as root of everything else too. Returns what could not be dropped.
pub fn drop_caches_of(files: &[PathBuf]) -> Option<String> {
    if drop_kernel_caches().is_ok() {
        return None;
    }
    let dropped = files.iter().try_for_each(|path| -> io::Result<()> {
        let file = File::open(path)?;
        file.sync_data()?; // Only what is on the medium can be dropped.
        Ok(rustix::fs::fadvise(file, 0, None, Advice::DontNeed)?)
    });
    dropped.err().map(|error| format!("the host keeps what it has cached: {error}"))
}

/// Processor time of this process, in user and kernel mode.
pub(super) fn process_time() -> Option<Nanos> {
    let time = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
    Some(Nanos(u64::try_from(time.tv_sec).ok()? * 1_000_000_000 + u64::try_from(time.tv_nsec).ok()?))
}

/// Time during which the block device below `directory` had requests, and how many it has ended
/// (`Documentation/block/stat.rst`).
fn disk_usage(directory: &File) -> Option<(Nanos, u64)> {
    let device = directory.metadata().ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let text = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    let fields: Vec<u64> = text.split_whitespace().map_while(|field| field.parse().ok()).collect();
    let (reads, writes, busy_ms) = (fields.first()?, fields.get(4)?, fields.get(9)?);
    Some((Nanos::from_millis(*busy_ms), reads + writes))
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LabError {
    move |cause| LabError::Host { action, path: path.display().to_string(), cause }
}

#[async_trait(?Send)]
impl Target for Directory {
    type File = (File, PathBuf);

    async fn mkdir(&self, path: &str) -> Result<(), LabError> {
        let path = self.path(path);
        fs::create_dir(&path).map_err(failed("make the directory", &path))
    }

    async fn rmdir(&self, path: &str) -> Result<(), LabError> {
        let path = self.path(path);
        fs::remove_dir(&path).map_err(failed("remove the directory", &path))
    }

    async fn create(&self, path: &str) -> Result<Self::File, LabError> {
        let path = self.path(path);
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).open(&path).map_err(failed("create", &path))?;
        Ok((file, path))
    }

    async fn open(&self, path: &str) -> Result<Self::File, LabError> {
        let path = self.path(path);
        let file = File::open(&path).map_err(failed("open", &path))?;
        Ok((file, path))
    }

    async fn open_to_write(&self, path: &str) -> Result<Self::File, LabError> {
        let path = self.path(path);
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(failed("open", &path))?;
        Ok((file, path))
    }

    async fn stat(&self, path: &str) -> Result<u64, LabError> {
        let path = self.path(path);
        Ok(fs::symlink_metadata(&path).map_err(failed("look at", &path))?.len())
    }

    async fn list(&self, path: &str) -> Result<Vec<Listed>, LabError> {
        let path = self.path(path);
        let listed = |entry: io::Result<fs::DirEntry>| -> io::Result<Listed> {
            let entry = entry?;
            let is_directory = entry.file_type()?.is_dir();
            Ok(Listed { name: entry.file_name().to_string_lossy().into_owned(), is_directory })
        };
        let entries = fs::read_dir(&path).map_err(failed("list", &path))?;
        entries.map(listed).collect::<io::Result<_>>().map_err(failed("list", &path))
    }

    async fn fsync(&self, file: &mut Self::File) -> Result<(), LabError> {
        file.0.sync_all().map_err(failed("sync", &file.1))
    }

    async fn fsync_directory(&self, path: &str) -> Result<(), LabError> {
        let path = self.path(path);
        File::open(&path).and_then(|directory| directory.sync_all()).map_err(failed("sync the directory", &path))
    }

    fn takes_turns(&self) -> bool {
        true
    }

    async fn compute(&self, _: Work) {}

    async fn write(&self, file: &mut Self::File, offset: u64, bytes: &[u8]) -> Result<(), LabError> {
        file.0.write_all_at(bytes, offset).map_err(failed("write", &file.1))
    }

    async fn read(&self, file: &mut Self::File, offset: u64, bytes: &mut [u8]) -> Result<usize, LabError> {
        file.0.read_at(bytes, offset).map_err(failed("read", &file.1))
    }

    async fn close(&self, file: Self::File) -> Result<(), LabError> {
        drop(file);
        Ok(())
    }

    async fn unlink(&self, path: &str) -> Result<(), LabError> {
        let path = self.path(path);
        fs::remove_file(&path).map_err(failed("delete", &path))
    }

    async fn rename(&self, from: &str, to: &str) -> Result<(), LabError> {
        let from = self.path(from);
        fs::rename(&from, self.path(to)).map_err(failed("rename", &from))
    }

    async fn sync(&self) -> Result<(), LabError> {
        (self.host.sync)(&self.opened, &self.home).map_err(failed("sync the file system of", &self.home))
    }

    async fn drop_caches(&self) -> Result<Coldness, LabError> {
        let refused = match (self.host.drop_caches)(&self.home) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Some(error.to_string()),
            dropped => dropped.map(|()| None).map_err(failed("drop the caches of", &self.home))?,
        };
        if drop_kernel_caches().is_ok() {
            return Ok(refused.map_or(Coldness::Cold, Coldness::Partly));
        }
        self.drop_file_data().map_err(failed("drop the cached data below", &self.home))?;
        let left = "only root can drop names and attributes; file data was dropped";
        Ok(Coldness::Partly(refused.map_or_else(|| left.into(), |refused| format!("{left}; {refused}"))))
    }

    async fn space(&self) -> Result<Space, LabError> {
        let found = rustix::fs::fstatvfs(&self.opened).map_err(io::Error::from);
        let found = found.map_err(failed("look at the space of", &self.home))?;
        let used = found.f_blocks.saturating_sub(found.f_bfree) * found.f_frsize;
        Ok(Space { used, available: found.f_bavail * found.f_frsize })
    }

    fn now(&self) -> Nanos {
        Nanos(self.started.elapsed().as_nanos() as u64)
    }

    fn usage(&self) -> Usage {
        let disk = disk_usage(&self.opened);
        // The program's own usage says little: the kernel, or a daemon, does the work.
        let (busy, requests) = disk.unzip();
        Usage { disk: busy, disk_requests: requests, ..Usage::default() }
    }
}
