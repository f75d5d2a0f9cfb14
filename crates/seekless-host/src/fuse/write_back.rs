//! Has the kernel write what it holds of files, and waits for it: pages that programs changed through mappings, and what a
//! write-back cache has collected.
//!
//! For FUSE, `syncfs` is not enough. It makes the kernel begin, and leaves out files as long as there are many background
//! requests (`congestion_threshold`). Before Linux 6.16 it waits for copies of the pages, and 6.18.44 waits for nothing, since the kernel
//! expects no more of FUSE [kernel: fs/fs-writeback.c, `sync_inodes_sb`, `wait_sb_inodes`; fs/fuse/file.c, `fuse_writepages`]. Pages
//! that are on their way to the daemon when they change once more are left out, too. So it is done twice, without that limit, and
//! each time the daemon says when everything has arrived.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::names::{ARRIVED_ATTRIBUTE, OUTCOME_BYTES_MAX};
use super::negotiate::CONGESTION_THRESHOLD;

/// How long to go on where the limit stays, because this process may not write the control files of the connection: each turn may
/// leave out files, and only one without any WRITE shows that there are none.
const PATIENCE: Duration = Duration::from_secs(30);

/// The highest limit, which only root may set.
const HIGHEST: &str = "65535";

/// Why it is not known whether everything has been written.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteBackError {
    #[error(transparent)]
    Os(#[from] Errno),
    #[error("{0}")]
    Daemon(String),
    #[error(
        "programs write all the time, and only root, or who has mounted it, can have the kernel write everything in between; \
         use fsync"
    )]
    NeverQuiet,
}

/// Has the kernel write everything that it holds for the mount with this root, which is not durable for that. `control` is where
/// the kernel shows the connection.
///
/// # Errors
/// Of `syncfs`; the daemon's, which says when it does not know that everything has arrived; `NeverQuiet`.
pub(super) fn write_back(root: &OwnedFd, control: Option<&Path>) -> Result<(), WriteBackError> {
    let unlimited = Unlimited::begin(control);
    let begun = Instant::now();
    rustix::fs::syncfs(root)?;
    let mut arrived = match arrived(root) {
        // A daemon of an earlier version.
        Err(WriteBackError::Os(Errno::NODATA | Errno::OPNOTSUPP)) => return Ok(()),
        arrived => arrived?,
    };
    loop {
        rustix::fs::syncfs(root)?;
        let before = std::mem::replace(&mut arrived, self::arrived(root)?);
        if unlimited.is_some() || before == arrived {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(WriteBackError::NeverQuiet);
        }
    }
}

/// How many WRITEs have arrived, with all that the kernel had begun.
fn arrived(root: &OwnedFd) -> Result<u64, WriteBackError> {
    let mut value = [0; OUTCOME_BYTES_MAX];
    let length = rustix::fs::fgetxattr(root, ARRIVED_ATTRIBUTE, &mut value)?;
    let text = String::from_utf8_lossy(&value[..length]);
    text.parse().map_err(|_| WriteBackError::Daemon(text.into_owned()))
}

/// The kernel leaves out no file, until this is dropped.
struct Unlimited {
    file: File,
    before: String,
}

impl Unlimited {
    /// `None` where the control files are not there, or this process may not write so high a limit.
    fn begin(control: Option<&Path>) -> Option<Unlimited> {
        let path = control?.join("congestion_threshold");
        let file = File::options().read(true).write(true).open(&path).ok()?;
        // One at a time, so that none sets the limit again under another.
        rustix::fs::flock(&file, FlockOperation::LockExclusive).ok()?;
        let mut before = std::fs::read_to_string(&path).ok()?;
        if before.trim() == HIGHEST {
            // Of a process that was killed.
            before = CONGESTION_THRESHOLD.to_string();
        }
        (&file).write_all(HIGHEST.as_bytes()).ok()?;
        Some(Unlimited { file, before })
    }
}

impl Drop for Unlimited {
    fn drop(&mut self) {
        // A limit that stays high only makes reads wait longer while much is written.
        let _ = rustix::io::pwrite(&self.file, self.before.trim().as_bytes(), 0);
    }
}
