//! Reading more metadata than was asked for, where one long read takes little longer than a short one.
//!
//! With [`Volume::read_around_bytes`](super::state::Volume), what is read for a missing inode is a *window*: a stretch of
//! the log, from the first to the last of the inodes in it that the map in memory shows. Files that were written together have
//! their inodes there together. Directories that come with a window probably get looked into next, so their first leaf is
//! read by a task; and where a caller lists a directory and then its subdirectories in their order, those to come are read
//! while it works on one. Everything that tasks do here is a hint: their errors go unreported, since a caller that
//! needs a block or an inode meets the error when it reads that itself.

use std::rc::Rc;

use futures_util::future::join_all;

use super::change::Change;
use super::format::*;
use super::state::*;
use super::tree::{BlockId, InodeSlot};
use super::{LogBackend, LogFs};
use crate::fs::{FileKind, FsResult};
use crate::units::{Ino, SECTOR_BYTES, Sector};

/// Numbers of inodes around a missing one that are searched for in its window: as many on either side.
const NUMBERS_AROUND: u64 = 512;

/// Most windows that are read at once: 4 MiB on a mount. Beyond, an inode is read with its group alone.
const WINDOWS_MAX: usize = 32;

/// Most leaves of directories that are read ahead at once.
const LEAVES_AHEAD_MAX: usize = 32;

/// Most subdirectories of a directory that are expected to be listed.
const WALK_DIRECTORIES_MAX: usize = 1024;

/// Inodes that one read brings.
pub(super) struct Window {
    /// Where windows of this part of the log begin; the same for all of its inodes.
    start: Sector,
    first: Sector,
    sectors: u64,
    inodes: Vec<(Ino, InodeSlot)>,
}

/// A window with its only reader. However the read ends, waiting tasks look again.
struct Reading<L: LogBackend> {
    fs: Rc<LogFs<L>>,
    window: Window,
}

impl<L: LogBackend> Drop for Reading<L> {
    fn drop(&mut self) {
        self.fs.state.borrow_mut().metadata_ahead.windows.remove(&self.window.start);
        self.fs.read_ahead_ended.notify();
    }
}

impl<L: LogBackend> State<L> {
    /// Where the window begins that has a sector; `None` without windows.
    pub(super) fn window_start(&self, at: Sector) -> Option<Sector> {
        let sectors = self.volume.read_around_bytes / SECTOR_BYTES;
        let pays = sectors > INODE_GROUP_SECTORS && self.metadata_ahead.pays();
        pays.then(|| Sector(at.0 / sectors * sectors))
    }

    /// The leaf of a directory has come before it was asked for; so its inode has not been needed yet.
    fn leaf_came_ahead(&mut self, dir: Ino, was_ahead: bool) {
        self.metadata_ahead.leaves.remove(&dir);
        if let Some(known) = self.inodes.get_mut(&dir).filter(|known| was_ahead && !known.ahead) {
            (known.ahead, known.referenced) = (true, false);
            self.metadata_ahead.unused(1);
        }
    }

    /// The window of an inode that is missing in memory. `None` where only its group can be read.
    fn window(&mut self, ino: Ino, slot: InodeSlot) -> Option<Window> {
        let start = self.window_start(slot.sector())?;
        if self.metadata_ahead.windows.len() >= WINDOWS_MAX {
            return None;
        }
        let end = start + self.volume.read_around_bytes / SECTOR_BYTES;
        let own = slot.sector();
        let (mut first, mut last, mut inodes) = (own, own, Vec::new());
        // One read has to bring them, and so they are in one segment.
        let is_beside = |state: &State<L>, at: Sector| {
            let (low, high) = (own.min(at), own.max(at));
            (start..end).contains(&at) && L::holds(state, low, high - low + 1)
        };
        let numbers = ino.0.saturating_sub(NUMBERS_AROUND)..ino.0.saturating_add(NUMBERS_AROUND);
        for (ino, slot) in L::known_slots(self, numbers) {
            if !self.inodes.contains_key(&ino) && is_beside(self, slot.sector()) {
                (first, last) = (first.min(slot.sector()), last.max(slot.sector()));
                inodes.push((ino, slot));
            }
        }
        let sectors = last - first + 1;
        let is_written = self.in_flight_at(first, sectors).is_none();
        (is_written && inodes.len() > 1).then_some(Window { start, first, sectors, inodes })
    }
}

impl<L: LogBackend> LogFs<L> {
    /// Reads an inode and those in its window. False when it has to be read with its group alone, or nothing is to be read.
    pub(super) async fn load_window(&self, ino: Ino, slot: InodeSlot) -> FsResult<bool> {
        let start = self.state.borrow().window_start(slot.sector());
        if start.is_some_and(|start| self.state.borrow().metadata_ahead.windows.contains(&start)) {
            // Another reads it. What that does not bring the caller asks for again.
            self.read_ahead_ended.wait().await;
            return Ok(true);
        }
        match self.begin_window(ino, slot) {
            Some(reading) => self.read_window(reading, Some(ino)).await,
            None => Ok(false),
        }
    }

    /// Takes the window of an inode to read it.
    fn begin_window(&self, ino: Ino, slot: InodeSlot) -> Option<Reading<L>> {
        let mut state = self.state.borrow_mut();
        let window = state.window(ino, slot)?;
        state.metadata_ahead.windows.insert(window.start);
        Some(Reading { fs: self.this(), window })
    }

    /// Reads a window. With `wanted`, whether it had that inode.
    async fn read_window(&self, reading: Reading<L>, wanted: Option<Ino>) -> FsResult<bool> {
        let window = &reading.window;
        let stored = match self.read_log(window.first, window.sectors).await {
            // The inode's own sector may be readable.
            Err(crate::fs::FsError::Device(error)) if error.is_of_medium() => return Ok(false),
            other => other?,
        };
        let mut state = self.state.borrow_mut();
        state.inode_reads += 1;
        let (mut has_wanted, mut directories) = (wanted.is_none(), Vec::new());
        for &(ino, slot) in &window.inodes {
            let place = ((slot.sector() - window.first) * SECTOR_BYTES) as usize + slot.offset();
            let Some(inode) = Inode::unseal(&stored[place..]).filter(|inode| inode.ino == ino.0) else { continue };
            // In the meantime it may have been changed or written again.
            if state.inodes.contains_key(&ino) || !matches!(state.inode_slot(ino), Ok(now) if now == slot) {
                continue;
            }
            let mut known = InodeMem::new(inode, slot);
            known.referenced = wanted == Some(ino);
            known.ahead = !known.referenced;
            has_wanted |= known.referenced;
            if inode.kind() == Some(FileKind::Directory) && inode.size > 0 {
                directories.push(ino);
            }
            state.insert_inode(ino, known);
        }
        drop(state);
        self.read_leaves_ahead(directories);
        Ok(has_wanted)
    }

    /// Has a task read the first leaf of each of these directories, as far as that is one read.
    fn read_leaves_ahead(&self, directories: Vec<Ino>) {
        let mut state = self.state.borrow_mut();
        // Without `State::pointer`, for which the directory would have been needed.
        let is_missing = |state: &State<L>, dir: Ino| {
            let pointer = state.inodes.get(&dir).and_then(|known| known.inode.pointer(0));
            state.blocks.peek(BlockId::data(dir, 0)).is_none() && matches!(pointer, Some(Pointer::Mapped { .. }))
        };
        let more = LEAVES_AHEAD_MAX.saturating_sub(state.metadata_ahead.leaves.len());
        let missing: Vec<Ino> = directories.into_iter().filter(|&dir| is_missing(&state, dir)).take(more).collect();
        let missing: Vec<Ino> = missing.into_iter().filter(|&dir| state.metadata_ahead.leaves.insert(dir)).collect();
        drop(state);
        if missing.is_empty() {
            return;
        }
        self.in_background(async move |fs| {
            let load = async |&dir: &Ino| {
                let was_ahead = fs.state.borrow().inodes.get(&dir).is_some_and(|known| known.ahead);
                let _ = fs.load_block(BlockId::data(dir, 0)).await;
                fs.state.borrow_mut().leaf_came_ahead(dir, was_ahead);
                fs.read_ahead_ended.notify();
            };
            join_all(missing.iter().map(load)).await;
        });
    }

    /// Waits for a task that reads this block, if there is one. True when the caller has to look again.
    pub(super) async fn wait_for_leaf(&self, id: BlockId) -> bool {
        let is_ahead =
            id.key == BlockId::data(id.ino, 0).key && self.state.borrow().metadata_ahead.leaves.contains(&id.ino);
        if is_ahead {
            self.read_ahead_ended.wait().await;
        }
        is_ahead
    }

    /// A caller begins to list a directory, with attributes.
    pub(super) fn listing_begins(&self, dir: Ino) {
        let ahead = {
            let mut state = self.state.borrow_mut();
            if state.volume.read_around_bytes == 0 || !state.metadata_ahead.pays() {
                return;
            }
            state.metadata_ahead.listing(dir)
        };
        if !ahead.is_empty() {
            self.in_background(async move |fs| {
                // One after another, in the order in which they are needed.
                for dir in ahead {
                    let _ = fs.read_directory_ahead(dir).await;
                }
            });
        }
    }

    /// A caller has seen these subdirectories in a listing with attributes.
    pub(super) fn listing_has(&self, mut directories: Vec<Ino>) {
        let mut state = self.state.borrow_mut();
        if !directories.is_empty() && state.volume.read_around_bytes > 0 {
            directories.truncate(WALK_DIRECTORIES_MAX);
            state.metadata_ahead.seen(directories);
        }
    }

    /// Reads the first leaf of a directory and the inodes in it.
    async fn read_directory_ahead(&self, dir: Ino) -> FsResult<()> {
        let listed = self.run(|state| Change::new(state).list(dir, 0)).await?;
        let mut windows = Vec::new();
        for found in listed.entries() {
            let slot = {
                let mut state = self.state.borrow_mut();
                let slot = if state.inodes.contains_key(&found.ino) { None } else { state.inode_slot(found.ino).ok() };
                let start = slot.and_then(|slot| state.window_start(slot.sector()));
                slot.filter(|_| start.is_some_and(|start| !state.metadata_ahead.windows.contains(&start)))
            };
            windows.extend(slot.and_then(|slot| self.begin_window(found.ino, slot)));
        }
        join_all(windows.into_iter().map(|window| self.read_window(window, None))).await;
        Ok(())
    }

    fn in_background(&self, work: impl AsyncFnOnce(Rc<LogFs<L>>) + 'static) {
        let fs = self.this();
        fs.state.borrow_mut().metadata_ahead.tasks += 1;
        self.rt.spawn(async move {
            work(fs.clone()).await;
            let tasks = &mut fs.state.borrow_mut().metadata_ahead.tasks;
            debug_assert!(*tasks > 0, "each task in the background is counted until it ends");
            *tasks -= 1;
            fs.read_ahead_ended.notify();
        });
    }
}
