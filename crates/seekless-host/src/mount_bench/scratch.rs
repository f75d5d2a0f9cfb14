//! Where the bench works: a directory, an image file in it, and loop devices over the image.
//!
//! Invariants
//!   B1  The directory has a lock that its process holds. A directory whose lock is free is that of a bench that was
//!       killed: the next one beside it detaches its loop devices and removes it.
//!   B2  Mounts are in a namespace of the bench, and daemons and clients end with it, so that even SIGKILL leaves none. A
//!       loop device is detached by the kernel when its last user ends.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use seekless_lab::experiment::{ImageState, MountJob};

use super::process::run;
use super::{cannot, kernel, material};
use crate::mount_table;

/// How the names of scratch directories begin.
const PREFIX: &str = "seekless-bench-mount-";
const LOCK: &str = "lock";
const IMAGE: &str = "image";

/// Room for the image and what is beside it; only what is written takes space.
const OWN_BYTES: u64 = 64 << 30;

/// The scratch directory. Dropping it removes everything.
pub(super) struct Scratch {
    path: PathBuf,
    /// Where everything but the lock is: the same, or a file system of its own in it.
    home: PathBuf,
    /// The device of that file system.
    _device: Option<LoopDevice>,
    _lock: File,
}

/// The image of the file system that everything is on, where the bench has its own, and where that is mounted.
const OWN_IMAGE: &str = "device";
const OWN: &str = "own";

impl Scratch {
    /// Makes one below `parent`, with `own_device` with a file system of its own, and removes those that killed benches left
    /// there.
    ///
    /// # Errors
    /// What could not be made, in words.
    pub(super) fn new(parent: &Path, own_device: bool, tree: Option<&Path>) -> Result<Scratch, String> {
        remove_abandoned(parent);
        let path = parent.join(format!("{PREFIX}{}", std::process::id()));
        let made = DirBuilder::new().mode(0o755).create(&path);
        made.map_err(|error| cannot("make the directory", &path, error))?;
        let file = path.join(LOCK);
        let lock = File::create_new(&file).map_err(|error| cannot("make", &file, error))?;
        lock.try_lock().map_err(|error| format!("cannot lock {}: {error}", file.display()))?;
        let mut scratch = Scratch { home: path.clone(), path, _device: None, _lock: lock };
        if own_device {
            scratch.make_own_device()?;
        }
        for name in ["mnt", "lower", "plain"] {
            let directory = scratch.path(name);
            fs::create_dir(&directory).map_err(|error| cannot("make the directory", &directory, error))?;
        }
        material::make(&scratch.path("material"), tree)?;
        Ok(scratch)
    }

    /// A file system that nothing else uses, on a loop device over a sparse file.
    fn make_own_device(&mut self) -> Result<(), String> {
        let image = self.path.join(OWN_IMAGE);
        let made = File::create_new(&image).and_then(|file| file.set_len(OWN_BYTES));
        made.map_err(|error| cannot("make", &image, error))?;
        let device = LoopDevice::attach(&image, false)?;
        let home = self.path.join(OWN);
        fs::create_dir(&home).map_err(|error| cannot("make the directory", &home, error))?;
        kernel::make_ext4(device.path(), 0)?;
        kernel::mount("ext4", "noatime", device.path(), &home)?;
        self.home = home;
        self._device = Some(device);
        Ok(())
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    pub(super) fn image(&self) -> PathBuf {
        self.path(IMAGE)
    }

    /// Brings the image into the state that `job` asks for, if it is not in it.
    ///
    /// # Errors
    /// Those of the host's file system, such as no room.
    pub(super) fn prepare_image(&self, job: &MountJob) -> Result<(), String> {
        let path = self.image();
        let failed = |error: io::Error| cannot("write", &path, error);
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        match job.image_state {
            ImageState::Sparse => {
                file.set_len(0).and_then(|()| file.set_len(job.image)).map_err(failed)?;
            }
            // A file system may have given space back.
            ImageState::Written if metadata.len() == job.image && metadata.blocks() * 512 >= job.image => {}
            ImageState::Written => {
                file.set_len(0).map_err(failed)?;
                write_zeroes(&file, 0..job.image).map_err(failed)?;
            }
        }
        file.sync_all().map_err(failed)?;
        self.write_holes(job)
    }

    /// Writes zeroes where an image that is to be written has none yet. mkfs and a loop device zero ranges by a call that leaves
    /// them allocated and unwritten, and then the host changes its own structures with each first write there: whether that
    /// falls into a phase would depend on who had the image before.
    ///
    /// # Errors
    /// Those of the host's file system.
    pub(super) fn write_holes(&self, job: &MountJob) -> Result<(), String> {
        if job.image_state != ImageState::Written {
            return Ok(());
        }
        // What a block device over the image has in its own cache comes first.
        rustix::fs::sync();
        let path = self.image();
        let filled = OpenOptions::new().read(true).write(true).open(&path).and_then(|file| {
            fill_holes(&file, job.image)?;
            file.sync_all()
        });
        filled.map_err(|error| cannot("write", &path, error))
    }
}

/// Writes zeroes over the holes of the first `bytes`, which read as before.
fn fill_holes(file: &File, bytes: u64) -> io::Result<()> {
    let mut at = 0;
    while at < bytes {
        let hole = rustix::fs::seek(file, SeekFrom::Hole(at))?;
        let end = match rustix::fs::seek(file, SeekFrom::Data(hole)) {
            Ok(data) => data.min(bytes),
            // There is none behind it.
            Err(Errno::NXIO) => bytes,
            Err(error) => return Err(error.into()),
        };
        write_zeroes(file, hole..end)?;
        at = end;
    }
    Ok(())
}

fn write_zeroes(file: &File, range: Range<u64>) -> io::Result<()> {
    let zeroes = vec![0; 1 << 20];
    let mut at = range.start;
    while at < range.end {
        let now = (range.end - at).min(zeroes.len() as u64);
        file.write_all_at(&zeroes[..now as usize], at)?;
        at += now;
    }
    Ok(())
}

impl Drop for Scratch {
    fn drop(&mut self) {
        unmount_below(&self.path);
        remove(&self.path);
    }
}

/// Unmounts whatever is mounted below `path`, the last first.
pub(super) fn unmount_below(path: &Path) {
    let below: Vec<PathBuf> = mount_table::read().into_iter().map(|mount| mount.mount_point).collect();
    for mount_point in below.iter().rev().filter(|mount_point| mount_point.starts_with(path)) {
        // What is still mounted then keeps the directory, which is reported.
        let _ = rustix::mount::unmount(mount_point, rustix::mount::UnmountFlags::DETACH);
    }
}

/// Removes a scratch directory with its loop devices.
fn remove(path: &Path) {
    for device in loop_devices_in(path) {
        // It may have ended with its last user.
        let _ = run(Command::new("losetup").arg("-d").arg(&device));
    }
    // Anything mounted there would be emptied.
    if mount_table::read().iter().any(|mount| mount.mount_point.starts_with(path)) {
        note(&format!("{} has a mount and is left", path.display()));
    } else if let Err(error) = fs::remove_dir_all(path) {
        note(&cannot("remove", path, error));
    }
}

/// Says what is left, when there is no caller any more that could.
fn note(text: &str) {
    // If standard error is gone too, nothing can be said.
    let _ = writeln!(io::stderr().lock(), "note: {text}");
}

/// Loop devices over files in `path`.
fn loop_devices_in(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let is_over = |folder: &Path| {
        let file = fs::read_to_string(folder.join("loop/backing_file")).unwrap_or_default();
        Path::new(file.trim_end()).starts_with(path)
    };
    entries.filter(|entry| is_over(&entry.path())).map(|entry| Path::new("/dev").join(entry.file_name())).collect()
}

/// Removes the directories of benches that have ended without doing so (B1).
fn remove_abandoned(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let path = entry.path();
        let is_own_directory = path
            .symlink_metadata()
            .is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw());
        let Ok(lock) = File::open(path.join(LOCK)) else { continue };
        if is_own_directory && lock.try_lock().is_ok() {
            remove(&path);
        }
    }
}

/// A loop device over the image.
pub(super) struct LoopDevice {
    path: PathBuf,
    /// Keeps the device, which the kernel detaches when its last user ends (B2).
    _held: File,
}

impl LoopDevice {
    /// # Errors
    /// Why there is none, in words.
    pub(super) fn attach(image: &Path, direct: bool) -> Result<LoopDevice, String> {
        let mode = if direct { "--direct-io=on" } else { "--direct-io=off" };
        let found = run(Command::new("losetup").args(["--find", "--show", mode]).arg(image))?;
        let path = PathBuf::from(found.trim());
        let held = File::open(&path).map_err(|error| cannot("open", &path, error))?;
        // It is in use, so it is only marked.
        run(Command::new("losetup").arg("-d").arg(&path))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_direct = fs::read_to_string(format!("/sys/block/{name}/loop/dio")).is_ok_and(|mode| mode.trim() == "1");
        match is_direct == direct {
            true => Ok(LoopDevice { path, _held: held }),
            false => Err(format!(
                "{} has no direct I/O on {}, whose file system may not offer it; leave out --loop-direct",
                path.display(),
                image.display()
            )),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Aim: no hole is left, and the rest is as it was. Method: data, holes between and at the end, and a preallocated part.
    #[test]
    fn holes_are_filled() {
        const BYTES: u64 = 8 << 20;
        let file = tempfile::tempfile().unwrap();
        file.set_len(BYTES).unwrap();
        file.write_all_at(&[7; 100_000], 1 << 20).unwrap();
        file.write_all_at(&[8; 4096], 5 << 20).unwrap();
        let _ = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 6 << 20, 1 << 20);
        file.sync_all().unwrap();
        let content = || {
            let mut content = vec![0; BYTES as usize];
            file.read_exact_at(&mut content, 0).unwrap();
            content
        };
        let before = content();
        fill_holes(&file, BYTES).unwrap();
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(0)).unwrap(), BYTES);
        assert!(content() == before);
        fill_holes(&file, BYTES).unwrap();
    }

    /// Aim: B1. Method: two directories beside each other, one with a lock that is held and one with a free one, and one
    /// of something else.
    #[test]
    fn only_abandoned_directories_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            File::create(path.join(LOCK)).unwrap()
        };
        let held = make("seekless-bench-mount-1");
        held.lock().unwrap();
        drop(make("seekless-bench-mount-2"));
        drop(make("other"));
        remove_abandoned(parent.path());
        let mut left: Vec<_> = fs::read_dir(parent.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["other", "seekless-bench-mount-1"]);
    }
}
