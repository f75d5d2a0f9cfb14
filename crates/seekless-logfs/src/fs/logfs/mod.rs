//! What file systems that never write in place have in common, above their logs.
//!
//! Names, directories, files and attributes are synchronous steps on the volume in memory ([`state`]): `namespace`,
//! `file`, `xattr`, `dir`, through `change`. [`run`] repeats a step until what it needs is in memory, and `ops` is the
//! [`crate::fs::FileSystem`] that comes of it. How what is dirty gets to the device, where the inode map is and what
//! is free there is the log's to know: [`Log`] is all that this part knows of it. `fs/lfs` has a log of segments,
//! `fs/vlfs` the virtual log.

pub(in crate::fs) mod books;
pub(in crate::fs) mod cache;
pub(in crate::fs) mod change;
pub(in crate::fs) mod check;
pub mod dir;
pub(in crate::fs) mod file;
pub(in crate::fs) mod format;
mod namespace;
mod ops;
mod patience;
pub(in crate::fs) mod run;
pub(in crate::fs) mod state;
pub(in crate::fs) mod tree;
pub mod xattr;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use change::{Change, Hole, Privilege};
use format::Pointer;
use state::{InodeMem, State, Step, Wait};
use tree::InodeSlot;

use crate::device::{Buf, Counter, Device};
use crate::fs::FsResult;
use crate::rt::{Event, Rt};
use crate::units::{Ino, Nanos, Sector};

/// Internal files of a log, if it has any: their inodes are not in the inode map.
pub(in crate::fs) fn is_internal(ino: Ino) -> bool {
    (2..=4).contains(&ino.0)
}

/// Where what is dirty goes: the part of a file system that knows the device.
///
/// The synchronous part is called within steps, and may only look and note; the rest does the work.
pub(in crate::fs) trait Log: Sized + 'static {
    const NAME: &'static str;

    /// What the log has to know of a changed inode besides its content: places that its next version needs no more.
    type Debt: Clone + Default;
    /// What the log's own work needs outside of steps.
    type Work;

    /// True when something can be stored at these sectors.
    fn holds(state: &State<Self>, at: Sector, sectors: u64) -> bool;

    /// The entry of the inode map; none where the number is free. Anything else lies where something can be stored.
    fn imap_entry(state: &mut State<Self>, ino: Ino) -> Step<InodeSlot>;

    /// Changes the entry of an inode that has been touched.
    fn set_imap_entry(state: &mut State<Self>, ino: Ino, slot: InodeSlot);

    /// Brings into the change what writing this inode will need (S1).
    fn touch_imap(change: &mut Change<'_, Self>, ino: Ino) -> Step<()>;

    /// Live, set aside, and about to be written: what counts against the capacity.
    fn used_bytes(state: &State<Self>) -> u64;

    /// Whether a change fits that grows the live bytes by `growth` and has `dirty_blocks` dirty blocks.
    ///
    /// # Errors
    /// `Fail(NoSpace)`, and a wait after which to try again.
    fn check_room(state: &State<Self>, growth: i64, dirty_blocks: usize, privilege: Privilege) -> Step<()>;

    /// The next version of an inode needs these places no more, and has these holes.
    fn owe(state: &mut State<Self>, ino: Ino, freed: Vec<Pointer>, holes: Vec<Hole>);

    /// An inode exists no more. It is still in the map.
    fn forget(state: &mut State<Self>, ino: Ino, known: InodeMem<Self>);

    /// Puts an inode on the list of those that a crash leaves to be freed or cut, or takes it off.
    fn set_orphan(state: &mut State<Self>, ino: Ino, is_orphan: bool);

    fn is_orphan(state: &State<Self>, ino: Ino) -> bool;

    fn orphans(state: &State<Self>) -> Vec<Ino>;

    /// True for internal files whose blocks stay in memory.
    fn keeps_blocks(ino: Ino) -> bool;

    /// Dirty bytes that are worth a transaction of their own.
    fn batch_bytes(state: &State<Self>) -> u64;

    fn describe(state: &State<Self>) -> String;

    fn counters(state: &State<Self>) -> Vec<Counter>;

    /// Sectors just before a group of inodes that begins at `start` in which their attributes may stand; none where the log
    /// does not put them there.
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
pub(in crate::fs) struct LogFs<L: Log> {
    /// The handle that background tasks hold while they work.
    me: Weak<LogFs<L>>,
    pub rt: Rt,
    pub device: Device,
    pub state: RefCell<State<L>>,
    pub work: L::Work,
    pub storage: patience::Storage,
    /// Signalled when something has reached the device, or nothing will ever again.
    pub log_progress: Event,
    /// Signalled when there is enough to write back.
    pub write_back_wanted: Rc<Event>,
    pub closed: Cell<bool>,
    /// Counts what users have asked for: idle work looks whether there is more.
    pub operations: Cell<u64>,
    /// What the user has to know about the volume, a line each.
    pub warnings: RefCell<Vec<String>>,
}

impl<L: Log> LogFs<L> {
    pub(in crate::fs) fn new(rt: Rt, device: Device, state: State<L>, work: L::Work) -> Rc<LogFs<L>> {
        Rc::new_cyclic(|me| LogFs {
            me: me.clone(),
            operations: Cell::new(0),
            rt,
            device,
            state: RefCell::new(state),
            work,
            storage: patience::Storage::default(),
            log_progress: Event::new(),
            write_back_wanted: Rc::default(),
            closed: Cell::new(false),
            warnings: RefCell::default(),
        })
    }

    /// The shared handle that tasks keep.
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
