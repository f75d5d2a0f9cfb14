//! Has the kernel write what it holds of files, and waits for it: pages that programs changed through mappings, and what a
//! write-back cache has collected.
//!
//! For FUSE, `syncfs` is not enough. It makes the kernel begin, and leaves out files as long as there are too many requests of the
//! kernel's own (`congestion_threshold`). Before Linux 6.16 it waits for copies of the pages, and 6.18.44 waits for nothing, since the
//! kernel expects no more of FUSE [kernel: fs/fs-writeback.c, `sync_inodes_sb`, `wait_sb_inodes`; fs/fuse/file.c, `fuse_writepages`].
//! Pages that are on their way to the daemon when they change once more are left out, too. So it is done twice at least, where it can
//! be with a higher limit, until a turn has had fewer requests than the limit; each time the daemon says when all have arrived.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::backlog::{Sent, number_in};
use super::names::{ARRIVED_ATTRIBUTE, OTHERS_WAIT, OUTCOME_BYTES_MAX};
use super::negotiate::CONGESTION_THRESHOLD;

/// How long to begin turns: each but the last may leave out files.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The same for a mount that is to end.
pub(super) const PATIENCE_AT_LAST: Duration = Duration::from_secs(5);

/// How long to wait for others that do the same.
const PATIENCE_WITH_OTHERS: Duration = Duration::from_secs(2);

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// The highest limit, for root.
const HIGHEST: usize = 65_535;

/// Where the kernel says how far others may raise it.
const PARAMETERS: &str = "/sys/module/fuse/parameters";

/// Why it is not known whether everything has been written.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteBackError {
    #[error(transparent)]
    Os(#[from] Errno),
    #[error("{0}")]
    Daemon(String),
    #[error(
        "programs read and write so much that the kernel may have left out files; sync again when they do less, use fsync, or sync as \
         root with the control files: mount -t fusectl none /sys/fs/fuse/connections"
    )]
    NeverQuiet,
}

/// Has the kernel write everything that it holds for the mount with this root, which is not durable for that. `control` is where
/// the kernel shows the connection.
///
/// # Errors
/// Of `syncfs`; the daemon's, which says when it does not know that everything has arrived; `NeverQuiet` after `patience`.
pub(super) fn write_back(root: &OwnedFd, control: Option<&Path>, patience: Duration) -> Result<(), WriteBackError> {
    let limit = Limit::raise(control);
    let deadline = Instant::now() + patience;
    let mut before = match arrived(root, deadline) {
        // A daemon of an earlier version.
        Err(WriteBackError::Os(Errno::NODATA | Errno::OPNOTSUPP)) => return Ok(rustix::fs::syncfs(root)?),
        Ok(sent) => sent,
        // It begins all the same, and most of it arrives.
        Err(error) => {
            for _ in 0..2 {
                rustix::fs::syncfs(root)?;
                std::thread::sleep(PAUSE);
            }
            return Err(error);
        }
    };
    let mut is_first = true;
    loop {
        rustix::fs::syncfs(root)?;
        let after = arrived(root, deadline)?;
        let most_at_once = after.begun.checked_sub(before.begun).and_then(|begun| begun.checked_add(before.in_hand));
        // What the daemon says is input.
        let most_at_once = most_at_once.ok_or(Errno::PROTO)?;
        if !is_first && most_at_once < limit.number as u64 {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(WriteBackError::NeverQuiet);
        }
        (before, is_first) = (after, false);
    }
}

/// What has been sent, with all that the kernel had begun.
fn arrived(root: &OwnedFd, deadline: Instant) -> Result<Sent, WriteBackError> {
    loop {
        let mut value = [0; OUTCOME_BYTES_MAX];
        let length = rustix::fs::fgetxattr(root, ARRIVED_ATTRIBUTE, &mut value)?;
        let text = String::from_utf8_lossy(&value[..length]);
        match Sent::parse(&text) {
            Some(sent) => return Ok(sent),
            None if text.contains(OTHERS_WAIT) && Instant::now() < deadline => std::thread::sleep(PAUSE),
            None => return Err(WriteBackError::Daemon(text.into_owned())),
        }
    }
}

/// How many requests of its own there may be until the kernel leaves out files. It is as before when this is dropped.
struct Limit {
    number: usize,
    raised: Option<Raised>,
}

struct Raised {
    file: File,
    /// What to set it to.
    before: usize,
}

impl Limit {
    fn raise(control: Option<&Path>) -> Limit {
        let users = number_in(Path::new(PARAMETERS), "max_user_congthresh").unwrap_or(usize::MAX);
        let as_agreed = Limit { number: users.min(CONGESTION_THRESHOLD.into()), raised: None };
        let Some(control) = control else { return as_agreed };
        let path = control.join("congestion_threshold");
        let Ok(file) = File::options().read(true).write(true).open(path) else { return as_agreed };
        // One at a time, so that none sets the limit again under another. One that is stopped does not keep others from it.
        let begun = Instant::now();
        let is_alone = loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break true,
                Err(_) if begun.elapsed() < PATIENCE_WITH_OTHERS => std::thread::sleep(PAUSE),
                Err(_) => break false,
            }
        };
        if !is_alone {
            // The other one has raised it, and may set it back at any time.
            return as_agreed;
        }
        // The highest is what a process has left that was killed.
        let before = number_in(control, "congestion_threshold").filter(|&before| before != HIGHEST && before != users);
        let before = before.unwrap_or(as_agreed.number);
        let raised = [HIGHEST, users].into_iter().find(|&number| set(&file, number));
        match raised {
            Some(number) => Limit { number, raised: Some(Raised { file, before }) },
            None => as_agreed,
        }
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        if let Some(Raised { file, before }) = &self.raised {
            // A limit that stays high only makes reads wait longer while much is written.
            set(file, *before);
        }
    }
}

/// The kernel takes each write as a whole, wherever it is.
fn set(mut file: &File, number: usize) -> bool {
    file.write_all(number.to_string().as_bytes()).is_ok()
}
