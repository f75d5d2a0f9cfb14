//! Phases on large files.

use std::fs::File;
use std::os::unix::fs::FileExt;

use seekless::rng::Rng;

use super::{Task, Work, content, failed};

/// The file that is read.
pub(super) const LARGE: &str = "large";

/// What a file consists of, again and again, each piece with its number in front.
const PIECE_BYTES: usize = 1 << 20;

const MIB: u64 = 1 << 20;

/// Writes a file in writes of `unit` bytes. The last step makes it durable.
pub(super) fn write<'a>(task: &'a Task, name: &str, unit: usize) -> Result<Work<'a>, String> {
    let path = task.directory.join(name);
    let mut piece = content(1, PIECE_BYTES);
    Ok(Box::new(move || {
        let file = File::create_new(&path).map_err(|error| failed("create", &path, error))?;
        for number in 0..pieces(task) {
            piece[..8].copy_from_slice(&number.to_le_bytes());
            for (index, part) in piece.chunks(unit).enumerate() {
                let at = number * MIB + (index * unit) as u64;
                file.write_all_at(part, at).map_err(|error| failed("write", &path, error))?;
            }
        }
        file.sync_all().map_err(|error| failed("sync", &path, error))?;
        Ok(pieces(task))
    }))
}

fn pieces(task: &Task) -> u64 {
    task.large.div_ceil(MIB)
}

pub(super) fn read(task: &Task) -> Result<Work<'_>, String> {
    let path = task.directory.join(LARGE);
    let mut wanted = content(1, PIECE_BYTES);
    Ok(Box::new(move || {
        let file = File::open(&path).map_err(|error| failed("open", &path, error))?;
        let mut found = vec![0; PIECE_BYTES];
        for number in 0..pieces(task) {
            file.read_exact_at(&mut found, number * MIB).map_err(|error| failed("read", &path, error))?;
            wanted[..8].copy_from_slice(&number.to_le_bytes());
            if task.checks && found != wanted {
                return Err(format!("{} has other content than was written at {} MiB", path.display(), number));
            }
        }
        Ok(pieces(task))
    }))
}

const BLOCK_BYTES: u64 = 4096;
const READS: u64 = 1000;

pub(super) fn random_read(task: &Task) -> Result<Work<'_>, String> {
    let path = task.directory.join(LARGE);
    let wanted = content(1, PIECE_BYTES);
    // As many reads as there are blocks would read everything.
    let count = READS.min(pieces(task) * 16);
    Ok(Box::new(move || {
        let file = File::open(&path).map_err(|error| failed("open", &path, error))?;
        let mut rng = Rng::new(2);
        let mut found = [0; BLOCK_BYTES as usize];
        for _ in 0..count {
            let at = rng.below(pieces(task) * MIB / BLOCK_BYTES) * BLOCK_BYTES;
            file.read_exact_at(&mut found, at).map_err(|error| failed("read", &path, error))?;
            let place = (at % MIB) as usize;
            // Of the first block of a piece only what is behind the number.
            if task.checks && found[8..] != wanted[place + 8..place + BLOCK_BYTES as usize] {
                return Err(format!("{} has other content than was written at byte {at}", path.display()));
            }
        }
        Ok(count)
    }))
}
