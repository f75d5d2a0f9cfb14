//! Phases on small files.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use super::{Task, Work, content, failed, shuffled};

const SMALL_BYTES: usize = 1 << 10;
const FILES_PER_DIRECTORY: u64 = 100;

/// The tree that `create` makes and the following phases use.
fn tree_of(task: &Task) -> PathBuf {
    task.directory.join("small")
}

fn path_of(tree: &Path, number: u64) -> PathBuf {
    tree.join(format!("d{:04}/f{number:07}", number / FILES_PER_DIRECTORY))
}

pub(super) fn create(task: &Task) -> Result<Work<'_>, String> {
    let tree = tree_of(task);
    make_directories(&tree, task.files)?;
    let bytes = content(0, SMALL_BYTES);
    Ok(Box::new(move || {
        for number in 0..task.files {
            make_file(&path_of(&tree, number), number, &bytes, false)?;
        }
        Ok(task.files)
    }))
}

fn make_directories(tree: &Path, files: u64) -> Result<(), String> {
    for number in (0..files).step_by(FILES_PER_DIRECTORY as usize) {
        let path = path_of(tree, number);
        let directory = path.parent().unwrap_or(tree);
        fs::create_dir_all(directory).map_err(|error| failed("make the directory", directory, error))?;
    }
    Ok(())
}

/// Creates a file; it begins with its number, by which a reader knows it.
fn make_file(path: &Path, number: u64, bytes: &[u8], syncs: bool) -> Result<(), String> {
    let mut all = [0; SMALL_BYTES];
    all.copy_from_slice(bytes);
    all[..8].copy_from_slice(&number.to_le_bytes());
    let mut file = File::create_new(path).map_err(|error| failed("create", path, error))?;
    file.write_all(&all).map_err(|error| failed("write", path, error))?;
    if syncs {
        file.sync_all().map_err(|error| failed("sync", path, error))?;
    }
    Ok(())
}

pub(super) fn stat(task: &Task) -> Result<Work<'_>, String> {
    let tree = tree_of(task);
    let order = shuffled(task.files);
    Ok(Box::new(move || {
        for number in order {
            let path = path_of(&tree, number);
            // Not `fs::metadata`, which asks for the birth time as well: that is one more message on a FUSE mount.
            let stat = rustix::fs::stat(&path).map_err(|error| failed("look at", &path, error.into()))?;
            if stat.st_size != SMALL_BYTES as i64 {
                return Err(format!("{} has {} bytes, not {SMALL_BYTES}", path.display(), stat.st_size));
            }
        }
        Ok(task.files)
    }))
}

pub(super) fn tree(task: &Task) -> Result<Work<'_>, String> {
    let tree = tree_of(task);
    Ok(Box::new(move || {
        let mut found = 0;
        for directory in list(&tree)? {
            for path in list(&directory)? {
                rustix::fs::lstat(&path).map_err(|error| failed("look at", &path, error.into()))?;
                found += 1;
            }
        }
        match found == task.files {
            true => Ok(found),
            false => Err(format!("{} has {found} files, and should have {}", tree.display(), task.files)),
        }
    }))
}

fn list(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(directory).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    entries.map_err(|error| failed("list", directory, error))
}

pub(super) fn read(task: &Task) -> Result<Work<'_>, String> {
    let tree = tree_of(task);
    let order = shuffled(task.files);
    let bytes = content(0, SMALL_BYTES);
    Ok(Box::new(move || {
        let mut found = [0; SMALL_BYTES];
        for number in order {
            let path = path_of(&tree, number);
            let mut file = File::open(&path).map_err(|error| failed("open", &path, error))?;
            file.read_exact(&mut found).map_err(|error| failed("read", &path, error))?;
            if task.checks && (found[..8] != number.to_le_bytes() || found[8..] != bytes[8..]) {
                return Err(format!("{} has other content than was written", path.display()));
            }
        }
        Ok(task.files)
    }))
}

pub(super) fn delete(task: &Task) -> Result<Work<'_>, String> {
    let tree = tree_of(task);
    Ok(Box::new(move || {
        for number in 0..task.files {
            let path = path_of(&tree, number);
            fs::remove_file(&path).map_err(|error| failed("delete", &path, error))?;
        }
        Ok(task.files)
    }))
}

/// Names in one directory, `times` as many as there are small files.
pub(super) fn names(task: &Task, times: u64) -> Result<Work<'_>, String> {
    let directory = task.directory.join(format!("names-{times}"));
    fs::create_dir(&directory).map_err(|error| failed("make the directory", &directory, error))?;
    let count = task.files * times;
    Ok(Box::new(move || {
        for number in 0..count {
            let path = directory.join(format!("n{number:08}"));
            File::create_new(&path).map_err(|error| failed("create", &path, error))?;
        }
        Ok(count)
    }))
}

const CLIENTS: u64 = 4;

/// Clients that create files at the same time, each its part and in a directory of its own; with `syncs` each file is made
/// durable.
pub(super) fn clients(task: &Task, syncs: bool) -> Result<Work<'_>, String> {
    let each = (if syncs { task.syncs } else { task.files }).div_ceil(CLIENTS);
    let home = task.directory.join(if syncs { "clients-fsync" } else { "clients" });
    let trees: Vec<PathBuf> = (0..CLIENTS).map(|client| home.join(format!("c{client}"))).collect();
    trees.iter().try_for_each(|tree| make_directories(tree, each))?;
    let bytes = content(0, SMALL_BYTES);
    Ok(Box::new(move || {
        let bytes = &bytes;
        let one = |tree: &PathBuf| -> Result<(), String> {
            (0..each).try_for_each(|number| make_file(&path_of(tree, number), number, bytes, syncs))
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = trees.iter().map(|tree| scope.spawn(|| one(tree))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a client panicked".to_owned())?)
        })?;
        Ok(each * CLIENTS)
    }))
}
