//! Errors that a host tells late, and only to the open file that wrote.
//!
//! Over a network a write is often answered before the server has it. If the server refuses it then, as for a quota, sshfs tells that once: as the
//! result of the next `fsync` or `close` of the open file that wrote, and through no other. So where the kernel does not sync the host as a
//! whole, a sync includes each open file of ours that has written, and the result of a last `close` counts.
//!
//! Invariants
//!   E1  An open file that has written is listed until a sync of it that began later has succeeded, or until it is closed.
//!   E2  After such an error, the next sync through each file that was open then fails, or, if there is none, the next sync of that inode; so do all
//!       syncs of everything.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::rc::Rc;

use rustix::io::Errno;
use seekless::fs::{FsResult, Handle};
use seekless::units::Ino;

use super::changed::{is_synced_as_a_whole, unless_gone};
use super::data::{OpenFile, io_error};
use super::{HostDir, sys};
use crate::reactor::{File, Reactor};

/// An error of an inode.
#[derive(Clone, Copy)]
struct Late {
    /// Among those of all inodes, from 1.
    number: u64,
    cause: Errno,
    /// A sync has returned it.
    is_returned: bool,
    /// Number of the last one that a sync without a handle has returned.
    told_without_handle: u64,
}

/// See the head of the file.
#[derive(Default)]
pub(super) struct LateErrors {
    /// By inode, and by a number of the open file.
    writers: RefCell<BTreeMap<(Ino, usize), Rc<OpenFile>>>,
    errors: RefCell<BTreeMap<Ino, Late>>,
    /// The last of them, until a sync of all has failed because of it.
    failed: Cell<Option<Errno>>,
    /// Counts writes and errors.
    next: Cell<u64>,
    /// A double of a host: each open file counts as one whose errors it gets alone.
    #[cfg(test)]
    pub(super) all_alone: Cell<bool>,
    /// A double of a host: the error that it tells next to a file that was opened for a single write.
    #[cfg(test)]
    pub(super) refused_next: Cell<Option<Errno>>,
}

/// A write under way: its file is listed before it begins, and once more when it ends, so that a sync in between does not count.
pub(super) struct Writing<'a> {
    late: &'a LateErrors,
    opened: &'a Rc<OpenFile>,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.late.list(self.opened);
    }
}

fn number_of(opened: &Rc<OpenFile>) -> (Ino, usize) {
    (opened.ino, Rc::as_ptr(opened).addr())
}

impl LateErrors {
    fn number(&self) -> u64 {
        self.next.set(self.next.get() + 1);
        self.next.get()
    }

    fn list(&self, opened: &Rc<OpenFile>) {
        opened.writes.last.set(self.number());
        self.writers.borrow_mut().insert(number_of(opened), opened.clone());
    }

    fn is_listed(&self, opened: &Rc<OpenFile>) -> bool {
        self.writers.borrow().contains_key(&number_of(opened))
    }

    /// How many open files are listed.
    #[cfg(test)]
    pub(super) fn listed(&self) -> usize {
        self.writers.borrow().len()
    }

    fn gets_errors_alone(&self, file: &File) -> bool {
        #[cfg(test)]
        if self.all_alone.get() {
            return true;
        }
        !is_synced_as_a_whole(file)
    }

    /// Notes a write through `opened` from now until the result is dropped.
    pub(super) fn writing<'a>(&'a self, opened: &'a Rc<OpenFile>) -> Option<Writing<'a>> {
        let gets_errors_alone = *opened.writes.gets_errors_alone.get_or_init(|| self.gets_errors_alone(&opened.file));
        gets_errors_alone.then(|| {
            self.list(opened);
            Writing { late: self, opened }
        })
    }

    /// The open files of `ino` that have written, or of all inodes.
    fn writers(&self, ino: Option<Ino>) -> Vec<Rc<OpenFile>> {
        let writers = self.writers.borrow();
        match ino {
            Some(ino) => writers.range((ino, 0)..=(ino, usize::MAX)).map(|(_, opened)| opened.clone()).collect(),
            None => writers.values().cloned().collect(),
        }
    }

    /// An error of `ino` that came late.
    fn record(&self, ino: Ino, cause: Errno) {
        self.failed.set(Some(cause));
        let number = self.number();
        let mut errors = self.errors.borrow_mut();
        let told_without_handle = errors.get(&ino).map_or(0, |late| late.told_without_handle);
        errors.insert(ino, Late { number, cause, is_returned: false, told_without_handle });
    }

    /// An inode was made just now. Hosts give the number of a removed one again, whose error is no matter of this one.
    pub(super) fn made(&self, ino: Ino) {
        self.errors.borrow_mut().remove(&ino);
    }

    /// A file is opened: what a sync has returned before is no matter of this one.
    pub(super) fn opened(&self, opened: &OpenFile) {
        let told = self.errors.borrow().get(&opened.ino).filter(|late| late.is_returned).map_or(0, |late| late.number);
        opened.writes.told.set(told);
    }

    /// The error of `ino` that a sync through `opened`, or without a handle, has to return.
    fn tell(&self, ino: Ino, opened: Option<&OpenFile>) -> Result<(), Errno> {
        let mut errors = self.errors.borrow_mut();
        let Some(late) = errors.get_mut(&ino) else { return Ok(()) };
        let told = opened.map_or(late.told_without_handle, |opened| opened.writes.told.get());
        if told >= late.number {
            return Ok(());
        }
        late.is_returned = true;
        match opened {
            Some(opened) => opened.writes.told.set(late.number),
            None => late.told_without_handle = late.number,
        }
        Err(late.cause)
    }
}

/// What the host answers to a sync of `opened`.
async fn sync_at_host(reactor: &Reactor, opened: &OpenFile, metadata: bool) -> Result<(), Errno> {
    #[cfg(test)]
    if let Some(refused) = opened.writes.refused.take() {
        // The answer takes longer than that to a later sync.
        for _ in 0..2 {
            reactor.sync(&opened.file, metadata).await?;
        }
        return Err(refused);
    }
    let direct = match opened.direct_file() {
        Some(direct) => reactor.sync(direct, false).await,
        None => Ok(()),
    };
    reactor.sync(&opened.file, metadata).await.and(direct)
}

/// What the host answers when `file` is closed.
fn close_at_host(file: &File) -> Result<(), Errno> {
    // Each close of a copy of the descriptor waits for what was written through the open file, and tells its error.
    let copy = match rustix::io::fcntl_dupfd_cloexec(&**file, 0) {
        Ok(copy) => copy.into_raw_fd(),
        Err(_) => return rustix::fs::fsync(&**file),
    };
    debug_assert_ne!(copy, file.as_raw_fd());
    // SAFETY: the descriptor is the copy that was just made, and nothing else uses or closes it.
    match unsafe { libc::close(copy) } {
        0 => Ok(()),
        // The descriptor is closed nevertheless, and what was written may be on its way: `fsync` waits for it.
        _ if sys::last_errno() == Errno::INTR => rustix::fs::fsync(&**file),
        _ => Err(sys::last_errno()),
    }
}

impl LateErrors {
    /// Syncs `opened` if it has written something since its last sync.
    async fn sync_writer(&self, reactor: &Reactor, opened: &Rc<OpenFile>, metadata: bool) -> Result<(), Errno> {
        let _turn = opened.writes.syncing.enter().await;
        if !self.is_listed(opened) {
            return Ok(());
        }
        let last = opened.writes.last.get();
        let synced = sync_at_host(reactor, opened, metadata).await;
        match unless_gone(synced) {
            Ok(()) if opened.writes.last.get() == last => {
                self.writers.borrow_mut().remove(&number_of(opened));
            }
            Ok(()) => {}
            Err(cause) => self.record(opened.ino, cause),
        }
        synced
    }

    /// `opened` is about to be closed.
    async fn close_writer(&self, reactor: &Reactor, opened: &Rc<OpenFile>) -> Result<(), Errno> {
        let _turn = opened.writes.syncing.enter().await;
        if !self.is_listed(opened) {
            return Ok(());
        }
        #[cfg(test)]
        let refused = opened.writes.refused.take();
        let files: Vec<File> = opened.direct_file().into_iter().chain([&opened.file]).cloned().collect();
        let close = move || {
            let mut closed = Ok(());
            for file in &files {
                closed = closed.and(close_at_host(file));
            }
            closed
        };
        let closed = reactor.blocking(close).await;
        #[cfg(test)]
        let closed = refused.map_or(closed, Err);
        if let Err(cause) = unless_gone(closed) {
            self.record(opened.ino, cause);
        }
        self.writers.borrow_mut().remove(&number_of(opened));
        closed
    }
}

impl HostDir {
    /// Syncs `ino` with all that was written to it, through whichever open file.
    ///
    /// # Errors
    /// That of any of these files (E2).
    pub(super) async fn sync_with_writers(
        &self,
        late: &Rc<LateErrors>,
        ino: Ino,
        handle: Option<Handle>,
        metadata: bool,
    ) -> FsResult<()> {
        let own = handle.map(|handle| self.opened(ino, handle)).transpose()?;
        let mut result = Ok(());
        let writers = late.writers(Some(ino));
        let is_writer = |own: &Rc<OpenFile>| writers.iter().any(|writer| Rc::ptr_eq(writer, own));
        let own_is_writer = own.as_ref().is_some_and(is_writer);
        for (writer, synced) in self.sync_writers(late, writers, metadata).await {
            let is_own = own.as_ref().is_some_and(|own| Rc::ptr_eq(own, &writer));
            result = result.and(if is_own { synced } else { unless_gone(synced) });
        }
        if !own_is_writer {
            let synced = match &own {
                Some(own) => sync_at_host(&self.reactor, own, metadata).await,
                None => {
                    let place = self.inodes.file(ino)?;
                    match self.open_to_sync(&place).map_err(sys::error)? {
                        Some(opened) => self.reactor.sync(&File::new(opened), metadata).await,
                        None => Ok(()),
                    }
                }
            };
            result = result.and(synced);
        }
        let told = late.tell(ino, own.as_deref());
        result.and(told).map_err(io_error)
    }

    /// Syncs `writers`, each in a task of its own: its error is recorded also when the caller goes away.
    async fn sync_writers(
        &self,
        late: &Rc<LateErrors>,
        writers: Vec<Rc<OpenFile>>,
        metadata: bool,
    ) -> Vec<(Rc<OpenFile>, Result<(), Errno>)> {
        let tasks: Vec<_> = writers
            .into_iter()
            .map(|writer| {
                let (late, reactor, opened) = (late.clone(), self.reactor.clone(), writer.clone());
                let task = self.rt.spawn(async move { late.sync_writer(&reactor, &opened, metadata).await });
                (writer, task)
            })
            .collect();
        let mut results = Vec::with_capacity(tasks.len());
        for (writer, task) in tasks {
            results.push((writer, task.await));
        }
        results
    }

    /// Syncs all open files that have written.
    ///
    /// # Errors
    /// Those of their writes, also of one that has been closed since the last sync of all (E2).
    pub(super) async fn sync_all_writers(&self) -> FsResult<()> {
        let Some(late) = &self.late else { return Ok(()) };
        let mut result = Ok(());
        for (_, synced) in self.sync_writers(late, late.writers(None), true).await {
            result = result.and(unless_gone(synced));
        }
        result.and(late.failed.take().map_or(Ok(()), Err)).map_err(|cause| self.sync_has_failed(cause))
    }

    /// `opened` is about to be closed: waits for what was written through it.
    ///
    /// # Errors
    /// Those of its writes. They are recorded (E2), also when the caller goes away.
    pub(super) async fn end_writing(&self, opened: &Rc<OpenFile>) -> FsResult<()> {
        let Some(late) = self.late.as_ref().filter(|late| late.is_listed(opened)) else { return Ok(()) };
        let (late, reactor, opened) = (late.clone(), self.reactor.clone(), opened.clone());
        let closed = self.rt.spawn(async move { late.close_writer(&reactor, &opened).await });
        unless_gone(closed.await).map_err(io_error)
    }
}
