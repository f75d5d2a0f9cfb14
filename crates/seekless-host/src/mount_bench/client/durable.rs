//! Phases of which each operation, or many small ones, must become durable.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use seekless::rng::Rng;

use super::{Task, Work, content, failed};

/// Appends of 10 bytes for each durable operation of the other phases: they take a hundredth of the time.
const APPENDS: u64 = 50;

pub(super) fn append_small(task: &Task) -> Result<Work<'_>, String> {
    let path = task.directory.join("log");
    let count = task.syncs * APPENDS;
    Ok(Box::new(move || {
        let mut options = OpenOptions::new();
        let mut file = options.append(true).create(true).open(&path).map_err(|error| failed("create", &path, error))?;
        for _ in 0..count {
            file.write_all(b"ten bytes\n").map_err(|error| failed("append to", &path, error))?;
        }
        Ok(count)
    }))
}

pub(super) fn create(task: &Task) -> Result<Work<'_>, String> {
    let directory = task.directory.join("synced");
    fs::create_dir(&directory).map_err(|error| failed("make the directory", &directory, error))?;
    let bytes = content(3, 1 << 10);
    Ok(Box::new(move || {
        for number in 0..task.syncs {
            let path = directory.join(format!("f{number:06}"));
            let mut file = File::create_new(&path).map_err(|error| failed("create", &path, error))?;
            file.write_all(&bytes).map_err(|error| failed("write", &path, error))?;
            file.sync_all().map_err(|error| failed("sync", &path, error))?;
        }
        Ok(task.syncs)
    }))
}

const BLOCK_BYTES: usize = 4096;

pub(super) fn append(task: &Task) -> Result<Work<'_>, String> {
    let path = task.directory.join("appended");
    let file = File::create_new(&path).map_err(|error| failed("create", &path, error))?;
    let bytes = content(4, BLOCK_BYTES);
    Ok(Box::new(move || {
        for number in 0..task.syncs {
            let written = file.write_all_at(&bytes, number * BLOCK_BYTES as u64).and_then(|()| file.sync_data());
            written.map_err(|error| failed("append to", &path, error))?;
        }
        Ok(task.syncs)
    }))
}

/// Size of the file that is overwritten.
const OVERWRITTEN_BYTES: u64 = 16 << 20;

pub(super) fn overwrite(task: &Task) -> Result<Work<'_>, String> {
    let path = task.directory.join("overwritten");
    let size = OVERWRITTEN_BYTES.min(task.large.next_multiple_of(BLOCK_BYTES as u64));
    fs::write(&path, content(5, size as usize)).map_err(|error| failed("write", &path, error))?;
    let file = OpenOptions::new().write(true).open(&path).map_err(|error| failed("open", &path, error))?;
    let bytes = content(6, BLOCK_BYTES);
    Ok(Box::new(move || {
        let mut rng = Rng::new(7);
        for _ in 0..task.syncs {
            let at = rng.below(size / BLOCK_BYTES as u64) * BLOCK_BYTES as u64;
            let written = file.write_all_at(&bytes, at).and_then(|()| file.sync_data());
            written.map_err(|error| failed("write", &path, error))?;
        }
        Ok(task.syncs)
    }))
}

/// Files that are replaced.
const REPLACED: u64 = 20;

pub(super) fn replace(task: &Task) -> Result<Work<'_>, String> {
    let directory = task.directory.join("replaced");
    fs::create_dir(&directory).map_err(|error| failed("make the directory", &directory, error))?;
    use_before(task, &directory.join("large"))?;
    let bytes = content(8, 2 * BLOCK_BYTES);
    Ok(Box::new(move || {
        for number in 0..task.syncs {
            let (new, old) = (directory.join("new"), directory.join(format!("f{}", number % REPLACED)));
            let mut file = File::create_new(&new).map_err(|error| failed("create", &new, error))?;
            let written = file.write_all(&bytes).and_then(|()| file.sync_all());
            written.map_err(|error| failed("write", &new, error))?;
            fs::rename(&new, &old).map_err(|error| failed("replace", &old, error))?;
        }
        Ok(task.syncs)
    }))
}

/// Writes a large file and removes it, four times, as on a volume that has been in use.
fn use_before(task: &Task, path: &Path) -> Result<(), String> {
    let bytes = content(9, 1 << 20);
    for _ in 0..4 {
        let mut file = File::create_new(path).map_err(|error| failed("create", path, error))?;
        for _ in 0..task.large.div_ceil(bytes.len() as u64) {
            file.write_all(&bytes).map_err(|error| failed("write", path, error))?;
        }
        file.sync_all().map_err(|error| failed("sync", path, error))?;
        fs::remove_file(path).map_err(|error| failed("remove", path, error))?;
    }
    Ok(())
}
