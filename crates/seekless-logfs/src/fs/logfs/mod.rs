//! What file systems that never write in place share, above their logs.
//!
//! Names, directories, files and attributes are synchronous steps on the volume in memory ([`state`]): `namespace`,
//! `file`, `xattr`, `dir`, through `change`. [`run`] repeats a step until everything it needs is in memory, and `ops`
//! implements [`crate::fs::FileSystem`] with such steps. The log knows how dirty data gets to the device, where the
//! inode map is, and which space is free; [`LogBackend`] is this part's interface to it. `fs/lfs` has a log of
//! segments, `fs/vlfs` the virtual log.

pub(in crate::fs) mod books;
pub(in crate::fs) mod cache;
pub(in crate::fs) mod change;
pub(in crate::fs) mod check;
pub mod dir;
mod enospc_retry;
pub(in crate::fs) mod file;
pub(in crate::fs) mod format;
mod namespace;
mod ops;
pub(in crate::fs) mod read_ahead;
pub(in crate::fs) mod run;
pub(in crate::fs) mod state;
pub(in crate::fs) mod tree;
pub mod xattr;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use change::{Change, Hole, ReserveAccess};
use format::Pointer;
use state::{InodeMem, State, Step, Wait};
use tree::InodeSlot;

use crate::device::{Buf, Counter, Device};
use crate::fs::{FsResult, LogUsage};
use crate::rt::{Event, Rt};
use crate::units::{Ino, Nanos, Sector};

/// Internal files of a log, if it has any: their inodes are not in the inode map.
pub(in crate::fs) fn is_internal(ino: Ino) -> bool {
    (2..=4).contains(&ino.0)
}

/// The backend that stores dirty data: the part of a file system that knows the device.
///
/// Steps call the synchronous functions, which may only look and take notes; the asynchronous ones do the work.
pub(in crate::fs) trait LogBackend: Sized + 'static {
    const NAME: &'static str;

    /// What the log has to know of a changed inode besides its content: addresses that its next version no longer
    /// needs.
    type DeferredFree: Clone + Default;
    /// State of the log's own work outside of steps.
    type BackgroundWork;

    /// True when something can be stored at these sectors.
    fn holds(state: &State<Self>, at: Sector, sectors: u64) -> bool;

    /// The entry of the inode map; none where the number is free. Any other entry is an address that `holds` accepts.
    fn imap_entry(state: &mut State<Self>, ino: Ino) -> Step<InodeSlot>;

    /// Changes the map's entry of an inode that has been touched.
    fn set_imap_entry(state: &mut State<Self>, ino: Ino, slot: InodeSlot);

    /// Adds to the change what writing this inode needs (S1).
    fn touch_imap(change: &mut Change<'_, Self>, ino: Ino) -> Step<()>;

    /// Bytes that count against the capacity: live, reserved, and about to be written.
    fn used_bytes(state: &State<Self>) -> u64;

    /// Whether a change fits that grows the live bytes by `growth` and has `dirty_blocks` dirty blocks.
    ///
    /// # Errors
    /// `Fail(NoSpace)`, or a wait after which to try again.
    fn check_room(state: &State<Self>, growth: i64, dirty_blocks: usize, access: ReserveAccess) -> Step<()>;

    /// The next version of an inode no longer needs the addresses `freed`, and has these holes.
    fn defer_free(state: &mut State<Self>, ino: Ino, freed: Vec<Pointer>, holes: Vec<Hole>);

    /// An inode no longer exists. It is still in the map.
    fn inode_freed(state: &mut State<Self>, ino: Ino, known: InodeMem<Self>);

    /// Adds an inode to the list of those that are freed or truncated after a crash, or removes it.
    fn set_orphan(state: &mut State<Self>, ino: Ino, is_orphan: bool);

    fn is_orphan(state: &State<Self>, ino: Ino) -> bool;

    fn orphans(state: &State<Self>) -> Vec<Ino>;

    /// True for internal files whose blocks stay in memory.
    fn keeps_blocks(ino: Ino) -> bool;

    /// Number of dirty bytes that is worth a transaction.
    fn batch_bytes(state: &State<Self>) -> u64;

    fn describe(state: &State<Self>) -> String;

    fn counters(state: &State<Self>) -> Vec<Counter>;

    /// See [`FileSystem::log_usage`](crate::fs::FileSystem::log_usage).
    fn log_usage(_: &State<Self>) -> Option<LogUsage> {
        None
    }

    /// Number of sectors just before a group of inodes, which begins at `start`, that may hold their attributes; none
    /// when the log does not put them there.
    fn attribute_sectors_before(state: &State<Self>, start: Sector) -> u64;

    /// Reads the extended attributes that an inode points to; `None` when their checksum does not match.
    async fn read_xattr(fs: &LogFs<Self>, pointer: Pointer) -> FsResult<Option<Buf>>;

    /// Does what a step waits for.
    async fn wait(fs: &LogFs<Self>, wait: Wait) -> FsResult<()>;

    /// Makes one file durable, or everything, with every change of the name space.
    async fn sync(fs: &Rc<LogFs<Self>>, file: Option<Ino>) -> FsResult<()>;

    /// See [`crate::fs::FileSystem::idle`].
    async fn idle(fs: &Rc<LogFs<Self>>, until: Nanos) -> FsResult<bool>;

    /// See [`crate::fs::FileSystem::check`].
    async fn check(_fs: &Rc<LogFs<Self>>) -> FsResult<Vec<String>> {
        Ok(Vec::new())
    }

    /// See [`crate::fs::FileSystem::close`].
    async fn close(fs: &Rc<LogFs<Self>>) -> FsResult<()>;
}

/// A mounted volume.
pub(in crate::fs) struct LogFs<L: LogBackend> {
    /// The handle that background tasks hold while they work.
    me: Weak<LogFs<L>>,
    pub rt: Rt,
    pub device: Device,
    pub state: RefCell<State<L>>,
    pub work: L::BackgroundWork,
    pub enospc_retry: enospc_retry::EnospcRetry,
    /// Signalled when something has reached the device, or when the volume has stopped.
    pub log_progress: Event,
    /// Signalled when a task that reads ahead has ended.
    read_ahead_ended: Event,
    /// Signalled when there is enough to write back.
    pub write_back_wanted: Rc<Event>,
    pub closed: Cell<bool>,
    /// Counts users' requests: idle work checks whether there are new ones.
    pub operations: Cell<u64>,
    /// Warnings for the user about the volume, one line each.
    pub warnings: RefCell<Vec<String>>,
}

impl<L: LogBackend> LogFs<L> {
    pub(in crate::fs) fn new(rt: Rt, device: Device, state: State<L>, work: L::BackgroundWork) -> Rc<LogFs<L>> {
        Rc::new_cyclic(|me| LogFs {
            me: me.clone(),
            operations: Cell::new(0),
            rt,
            device,
            state: RefCell::new(state),
            work,
            enospc_retry: enospc_retry::EnospcRetry::default(),
            log_progress: Event::new(),
            read_ahead_ended: Event::new(),
            write_back_wanted: Rc::default(),
            closed: Cell::new(false),
            warnings: RefCell::default(),
        })
    }

    /// The shared handle, for tasks.
    pub(in crate::fs) fn this(&self) -> Rc<LogFs<L>> {
        match self.me.upgrade() {
            Some(me) => me,
            None => unreachable!("a volume lives in the handle that mount returned"),
        }
    }

    pub(in crate::fs) fn warn(&self, text: String) {
        self.warnings.borrow_mut().push(text);
    }
}
