//! Writing back with soft updates: rounds of four phases, each of which makes durable what the next one shows.
//!
//!   1. Groups, data, and blocks of directories that have never been written.
//!   2. Indirect blocks.
//!   3. Inodes.
//!   4. Directories.
//!
//! After a round new names are durable. A removal takes up to three rounds: the name, the inode, the group. An update
//! is one round. A sync of everything repeats rounds until nothing waits.
//!
//! What finds no space below keeps only what needs it waiting: images can be written at any time (U6), so on a full host
//! data without room keeps no deletion from becoming durable.

use super::super::Ffs;
use super::super::cache::BufferKind;
use super::super::numbers::{FragNo, InodeNo};
use super::super::state::*;
use super::{DRAINS_MAX, Freeing, Job, Soft};
use crate::device::DeviceError;
use crate::fs::{FsError, FsResult};

/// See above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Contents,
    Pointers,
    Inodes,
    Names,
}

const PHASES: [Phase; 4] = [Phase::Contents, Phase::Pointers, Phase::Inodes, Phase::Names];

/// How far writing back goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum SyncScope {
    /// One round: new changes become durable.
    Update,
    /// Everything that waits now.
    All,
    /// Until nothing waits; no task may add more.
    Quiet,
}

/// Counts passes after which as much waits as before.
#[derive(Default)]
pub(in super::super) struct StallDetector {
    before: (u64, usize),
    count: usize,
}

impl StallDetector {
    /// U6: each waiting record has something to wait for; and passes are wasted only briefly, unless other tasks are at
    /// work that change what is waited for, or delay it.
    pub(in super::super) fn check(&mut self, ffs: &Ffs) {
        const PASSES_MAX: usize = 1_000;
        let state = ffs.state.borrow();
        #[cfg(debug_assertions)]
        {
            let wrong = state.soft_problems();
            assert!(wrong.is_empty(), "soft updates: {wrong:#?}\n{}", state.soft_text());
        }
        let oldest = state.soft.as_deref().and_then(|soft| soft.records.keys().next().copied()).unwrap_or(0);
        let now = (oldest, state.soft.as_deref().map_or(0, |soft| soft.records.len()));
        self.count = if now == self.before && !state.is_at_work() { self.count + 1 } else { 0 };
        self.before = now;
        debug_assert!(self.count < PASSES_MAX, "soft updates make no progress: {}", state.soft_text());
    }
}

/// As [`put_off`], also for a lack of space below, which concerns only what has to go there.
pub(in super::super) fn put_off_here(first: &mut FsResult<()>, result: FsResult<()>) -> FsResult<()> {
    if !is_of_space(&result) {
        return put_off(first, result);
    }
    if first.is_ok() {
        *first = result;
    }
    Ok(())
}

/// Storage below had no space.
fn is_of_space(result: &FsResult<()>) -> bool {
    matches!(result, Err(FsError::Device(DeviceError::NoSpace { .. })))
}

/// Counts failed passes after which as much waits as before. What is of one place keeps only what needs it waiting, so that
/// passes continue as long as less and less waits.
struct Patience {
    until: u64,
    fewest: (usize, u64),
    failures: usize,
}

impl Patience {
    /// For a wait for what exists at `until`.
    fn new(until: u64) -> Patience {
        Patience { until, fewest: (usize::MAX, u64::MAX), failures: 0 }
    }

    /// Whether further passes would change nothing. The last one has failed.
    fn is_over(&mut self, ffs: &Ffs) -> bool {
        const BUSY_MAX: usize = 16 * DRAINS_MAX;
        let state = ffs.state.borrow();
        let Some(soft) = state.soft.as_deref() else { return true };
        let left = soft.waiting_since(self.until);
        self.failures = if left < self.fewest { 0 } else { self.failures + 1 };
        self.fewest = self.fewest.min(left);
        // Another task may be about to do what is waited for; or there is always one at work.
        self.failures >= if soft.jobs_running > 0 { BUSY_MAX } else { DRAINS_MAX }
    }
}

impl State {
    fn phase_of(&self, at: FragNo) -> Option<Phase> {
        Some(match self.cache.peek(at)?.kind {
            BufferKind::Group(_) | BufferKind::File { .. } => Phase::Contents,
            BufferKind::Directory { .. } if self.soft.as_deref().is_some_and(|soft| soft.is_fresh(at)) => {
                Phase::Contents
            }
            BufferKind::Directory { .. } => Phase::Names,
            BufferKind::Indirect { .. } => Phase::Pointers,
            BufferKind::Inodes => Phase::Inodes,
        })
    }

    fn dirty_in(&self, phase: Phase, until: u64) -> Vec<FragNo> {
        self.cache.dirty_until(until).into_iter().filter(|&at| self.phase_of(at) == Some(phase)).collect()
    }

    fn is_dirty_since(&self, at: FragNo, until: u64) -> bool {
        self.cache.peek(at).and_then(|buffer| buffer.dirty).is_some_and(|since| since <= until)
    }

    /// Blocks to write in a phase for a complete image of the inode: its blocks, and the groups that mark these and the
    /// inode as allocated.
    fn owed_in(&self, phase: Phase, ino: InodeNo, until: u64) -> Vec<FragNo> {
        let mut owed = self.cache.dirty_of(ino);
        if let Some(soft) = self.soft.as_deref() {
            let layout = &self.layout;
            owed.extend(soft.untaken_of(ino).map(|at| layout.group_block(layout.group_of(at))));
            owed.extend(
                soft.unallocated_inodes.contains_key(&ino).then(|| layout.group_block(layout.group_of_ino(ino))),
            );
        }
        owed.sort_unstable();
        owed.dedup();
        owed.retain(|&at| self.phase_of(at) == Some(phase) && self.is_dirty_since(at, until));
        owed
    }

    fn has_waiting(&self, until: u64) -> bool {
        self.soft.as_deref().is_some_and(|soft| soft.waits_since(until))
    }

    /// Inodes of which a complete image is waited for, and directories that have to lead to entries.
    fn stragglers(&self) -> Vec<InodeNo> {
        let Some(soft) = self.soft.as_deref() else { return Vec::new() };
        let mut found: Vec<InodeNo> = soft.inode_waiters.keys().chain(soft.unreached.keys()).copied().collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

impl Ffs {
    /// Writes everything back.
    ///
    /// # Errors
    /// As for [`Ffs::sync`].
    pub(in super::super) async fn sync_soft(&self, scope: SyncScope) -> FsResult<()> {
        let since = self.state.borrow_mut().cache.tick();
        let until = since;
        self.forget_task_error();
        let begun = self.state.borrow().dirty_inodes();
        let (mut first, mut unread) = (Ok(()), Unread::default());
        put_off_here(&mut first, self.round(since).await)?;
        // Inodes that were changed again in between have to be locked. So do those that lost their names in between,
        // which a crash would bring back: an update alone guarantees nothing about them.
        let still = |state: &State, ino: &InodeNo| {
            let named = |links: u16| links > 0 || scope != SyncScope::Update && state.is_held(*ino);
            state.inodes.get(ino).is_some_and(|known| known.dirty && named(known.inode.nlink))
        };
        let mut refused = Vec::new();
        for ino in begun {
            if still(&self.state.borrow(), &ino) {
                let _inode = self.locks.share(ino).await;
                let mut settled = Ok(());
                self.try_to_settle(ino, since, &mut unread, &mut settled).await?;
                if is_of_space(&settled) {
                    refused.push(ino);
                }
                first = first.and(settled);
            }
        }
        let until = if scope == SyncScope::Quiet { u64::MAX } else { until };
        let (mut stall, mut patience) = (StallDetector::default(), Patience::new(until));
        while scope != SyncScope::Update && self.state.borrow().has_waiting(until) {
            stall.check(self);
            let before = self.progress.count();
            let stragglers = self.state.borrow().stragglers();
            let (mut pass, mut unread) = (Ok(()), Unread::default());
            for ino in stragglers {
                let _inode = self.locks.share(ino).await;
                self.try_to_settle(ino, since, &mut unread, &mut pass).await?;
            }
            put_off_here(&mut pass, self.round(since).await)?;
            self.wait_for_tasks().await;
            if pass.is_err() {
                first = first.and(pass);
                if patience.is_over(self) {
                    break;
                }
                continue;
            }
            self.wait_for_progress(before, |state| !state.has_waiting(until)).await?;
        }
        if scope != SyncScope::Update {
            // The results and errors of the last jobs.
            self.wait_for_tasks().await;
            let mut last = Ok(());
            put_off_here(&mut last, self.round(since).await)?;
            // What found no space has been written since, or its file is gone. A round alone shows what a file was that is
            // changed again and again.
            if last.is_ok() && is_of_space(&first) && !self.state.borrow().has_waiting(until) {
                first = Ok(());
                let again = self.state.borrow_mut().cache.tick();
                for ino in refused {
                    if still(&self.state.borrow(), &ino) {
                        let _inode = self.locks.share(ino).await;
                        self.try_to_settle(ino, again, &mut unread, &mut first).await?;
                    }
                }
            }
            first = first.and(last);
        }
        if std::mem::take(&mut self.state.borrow_mut().totals_dirty) {
            self.write_totals().await?;
            self.flush().await?;
        }
        first
    }

    /// Completes everything that waits now, for an operation that cannot continue without: it takes no lock, so that
    /// locks may be held. Other tasks may make it take long, by changing what it waits for. It costs nothing when
    /// nothing waits; space that another task is freeing is in no list, and is waited for nevertheless.
    ///
    /// # Errors
    /// That of a place for which something has to wait on, when nothing else waits any more; others at once.
    async fn drain(&self) -> FsResult<()> {
        let until = self.state.borrow_mut().cache.tick();
        let mut first = Ok(());
        put_off_here(&mut first, self.drain_until(|state| !state.has_waiting(until)).await)?;
        // No operation that needs space holds the lock of a file without names and users.
        self.wait_for_tasks().await;
        first
    }

    /// Attempts what may find no space, or space only in groups that cannot be read, and again when what waits to be freed is free.
    pub(in super::super) async fn with_space<T>(&self, attempt: impl AsyncFn() -> FsResult<T>) -> FsResult<T> {
        let mut result = attempt().await;
        let mut failures = 0;
        for drains in 0..DRAINS_MAX {
            let may_find_more = match &result {
                Ok(_) => false,
                Err(FsError::NoSpace) => true,
                Err(error) => error.is_of_one_place() && self.may_free_more(drains == 0),
            };
            // What still waits after the second failure waits for a place that cannot be read.
            if !may_find_more || failures == 2 {
                break;
            }
            let mut drained = Ok(());
            put_off_here(&mut drained, self.drain().await)?;
            failures += usize::from(drained.is_err());
            result = attempt().await;
        }
        result
    }

    /// Whether groups that cannot be read may be needed only as long as something waits to be freed. What does so is known only
    /// after a first drain, because other tasks may be freeing space.
    fn may_free_more(&self, is_first: bool) -> bool {
        let state = &mut *self.state.borrow_mut();
        let now = state.cache.tick();
        state.unreadable.has_any() && (is_first || state.has_waiting(now))
    }

    /// Attempts to add links to an inode, and again when the volume no longer counts those of its names that are gone.
    pub(in super::super) async fn with_links<T>(
        &self,
        ino: InodeNo,
        attempt: impl Fn(&mut State) -> Step<T>,
    ) -> FsResult<T> {
        let added = self.step(&attempt).await;
        if !matches!(added, Err(FsError::TooManyLinks)) || !self.state.borrow().is_held(ino) {
            return added;
        }
        // Where that has to wait for a place, there are too many.
        put_off_here(&mut Ok(()), self.drain_until(|state| !state.is_held(ino)).await)?;
        self.step(&attempt).await
    }

    /// Writes back until `done` returns true.
    ///
    /// # Errors
    /// That of a place for which this has to wait; others at once.
    pub(in super::super) async fn drain_until(&self, done: impl Fn(&State) -> bool) -> FsResult<()> {
        let since = self.state.borrow_mut().cache.tick();
        let (mut stall, mut patience) = (StallDetector::default(), Patience::new(since));
        self.forget_task_error();
        while !done(&self.state.borrow()) {
            stall.check(self);
            let before = self.progress.count();
            let (mut pass, mut unread) = (Ok(()), Unread::default());
            put_off_here(&mut pass, self.round(since).await)?;
            let stragglers = self.state.borrow().stragglers();
            for ino in stragglers {
                self.try_to_settle(ino, since, &mut unread, &mut pass).await?;
            }
            if pass.is_err() {
                if !done(&self.state.borrow()) && patience.is_over(self) {
                    return pass;
                }
                self.wait_for_a_job().await;
                continue;
            }
            self.wait_for_progress(before, &done).await?;
        }
        Ok(())
    }

    /// Waits until something has ended, if another task has a job.
    async fn wait_for_a_job(&self) {
        let waiting = self.progress.wait();
        if self.state.borrow().soft.as_deref().is_some_and(|soft| soft.jobs_running > 0) {
            waiting.await;
        }
    }

    /// Earlier errors do not count: everything is tried again.
    fn forget_task_error(&self) {
        if let Some(soft) = self.state.borrow_mut().soft() {
            soft.task_error = None;
        }
    }

    /// Waits until something has ended since the progress counter was at `before`. A round that found nothing to do
    /// does not wait for anything itself: another task then has the work, and will signal its end.
    ///
    /// # Errors
    /// `Stopped`. `Corrupt` when no other task is at work either (U6 is broken): that must not become an endless wait.
    async fn wait_for_progress(&self, before: u64, done: impl Fn(&State) -> bool) -> FsResult<()> {
        let waiting = self.progress.wait();
        if self.progress.count() != before || done(&self.state.borrow()) {
            return Ok(());
        }
        {
            let state = self.state.borrow();
            if let Some(error) = &state.stopped {
                return Err(FsError::Stopped(error.clone()));
            }
            if state.soft.as_deref().is_some_and(Soft::has_jobs) {
                return Ok(()); // They have become possible since; the next round does them.
            }
            if !state.is_at_work() {
                let waits = state.soft_text();
                debug_assert!(false, "soft updates wait for what no task does: {waits}");
                return Err(FsError::corrupt("soft updates", "what waits", waits));
            }
        }
        waiting.await;
        Ok(())
    }

    /// Makes a file and the names that lead to it durable. No lock may be held.
    pub(in super::super) async fn sync_file_soft(&self, ino: InodeNo) -> FsResult<()> {
        let alone = self.step(|state| {
            let directory = state.inode(ino)?.inode.is_directory();
            Ok(!directory && !state.has_new_names(ino))
        });
        if !alone.await? {
            return self.sync_names_soft(ino).await;
        }
        let _inode = self.locks.share(ino).await;
        let since = self.state.borrow_mut().cache.tick();
        self.settle_inode(ino, since).await?;
        self.flush().await?;
        let state = self.state.borrow();
        debug_assert!(state.has_durable_pointers(ino), "inode {ino} is not on the volume: {}", state.soft_text());
        Ok(())
    }

    /// Writes back for others when too much waits. No lock may be held.
    pub(in super::super) async fn relieve(&self) {
        let too_many = || self.state.borrow_mut().soft().is_some_and(Soft::has_too_many);
        if too_many() {
            let _turn = self.sync_gate.enter().await;
            if too_many() {
                // The next caller gets an error that stops the volume; lack of space below is temporary.
                let relieved = self.sync_soft(SyncScope::All).await;
                if let Some(soft) = self.state.borrow_mut().soft() {
                    soft.records_left = if relieved.is_ok() { 0 } else { soft.records.len() };
                }
            }
        }
    }

    /// One round of an operation that began at `since`. Everything that can be written is written, whatever else fails; what
    /// has found no space below since then is not tried again.
    ///
    /// # Errors
    /// Those of writing; else the first one of an inode that cannot be shown or freed, or of a job that cannot be done,
    /// or of a buffer without space below, which all wait for the next round.
    pub(in super::super) async fn round(&self, since: u64) -> FsResult<()> {
        let failed = self.state.borrow_mut().soft().and_then(|soft| soft.task_error.take());
        // A job that fails is tried again at the end.
        let _ = self.run_jobs().await;
        let (mut shown, mut written) = (Ok(()), Ok(()));
        for phase in PHASES {
            if phase == Phase::Inodes {
                let mut unread = Unread::default();
                let dirty = self.state.borrow().dirty_inodes();
                for ino in dirty {
                    if !self.state.borrow().is_going(ino) && !unread.has(&self.state.borrow(), ino) {
                        let done = self.show(ino).await;
                        unread.note(&self.state.borrow(), ino, &done);
                        shown = shown.and(done);
                    }
                }
            }
            let until = self.state.borrow_mut().cache.tick();
            put_off_here(&mut written, self.write_all_possible(since, |state| state.dirty_in(phase, until)).await)?;
            self.flush_written().await?;
        }
        shown.and(self.run_jobs().await).and(failed.map_or(Ok(()), Err)).and(written)
    }

    async fn show(&self, ino: InodeNo) -> FsResult<()> {
        self.step(|state| match state.inodes.contains_key(&ino) {
            true => state.update_inode(ino).map(drop),
            false => Ok(()),
        })
        .await
    }

    /// Writes an inode and everything that it points to to the volume, in their present state. The caller keeps them
    /// from changing; otherwise it may be wasted.
    pub(in super::super) async fn settle_inode(&self, ino: InodeNo, since: u64) -> FsResult<()> {
        for phase in [Phase::Contents, Phase::Pointers, Phase::Pointers, Phase::Pointers] {
            let until = self.state.borrow_mut().cache.tick();
            self.write_all_since(since, |state| state.owed_in(phase, ino, until)).await?;
            self.flush_written().await?;
        }
        self.show(ino).await?;
        let (at, _) = self.state.borrow().layout.inode_place(ino);
        let until = self.state.borrow_mut().cache.tick();
        self.write_all_since(since, |state| Vec::from_iter(state.is_dirty_since(at, until).then_some(at))).await?;
        self.flush_written().await
    }

    /// The same for one of many, of which not one whose block cannot be read keeps the others.
    async fn try_to_settle(
        &self,
        ino: InodeNo,
        since: u64,
        unread: &mut Unread,
        first: &mut FsResult<()>,
    ) -> FsResult<()> {
        if unread.has(&self.state.borrow(), ino) {
            return Ok(());
        }
        let settled = self.settle_inode(ino, since).await;
        unread.note(&self.state.borrow(), ino, &settled);
        put_off_here(first, settled)
    }

    /// Makes durable what has been written, if anything has. Waits for writes that another task's flush has taken.
    async fn flush_written(&self) -> FsResult<()> {
        let (written, number) = {
            let state = self.state.borrow();
            let Some(soft) = state.soft.as_deref() else { return Ok(()) };
            (!soft.unflushed.is_empty(), state.flush_number)
        };
        if written { self.flush().await } else { self.wait_for_flushes(number).await }
    }

    // ---- Jobs ----

    /// Does the jobs that can be done now. A job that fails, or whose task is cancelled, stays in the queue with its
    /// remaining work, and the others are done nevertheless.
    ///
    /// # Errors
    /// The first one: the volume still counts as allocated what could not be freed.
    pub(in super::super) async fn run_jobs(&self) -> FsResult<()> {
        let attempt = self.state.borrow_mut().cache.tick();
        let mut ended = Ok(());
        while let Some(mut running) = Running::begin(self, attempt) {
            let done = match &mut running.job {
                Some(Job::TakeOut(id)) => {
                    let id = *id;
                    self.step(|state| state.take_out_ghost(id)).await
                }
                Some(Job::Free(freeing)) => self.free(freeing).await,
                Some(Job::Release(links)) => {
                    self.release(links);
                    Ok(())
                }
                None => Ok(()),
            };
            if done.is_ok() {
                running.job = None;
            }
            drop(running);
            ended = ended.and(done);
        }
        ended
    }

    async fn free(&self, freeing: &mut Freeing) -> FsResult<()> {
        while let Some(&(at, count)) = freeing.frags.get(freeing.done) {
            self.step(|state| state.free_frags(at, count)).await?;
            freeing.done += 1;
            if let Some(soft) = self.state.borrow_mut().soft() {
                soft.pending_frags -= i64::from(count);
                debug_assert!(soft.pending_frags >= 0, "U2: no more is freed than waits for it");
            }
        }
        if let Some((ino, directory)) = freeing.inode {
            self.step(|state| state.give_inode(ino, directory)).await?;
            freeing.inode = None;
            if let Some(soft) = self.state.borrow_mut().soft() {
                soft.pending_inodes -= 1;
                debug_assert!(soft.pending_inodes >= 0, "U2: no more inodes are freed than wait for it");
            }
        }
        self.release(&std::mem::take(&mut freeing.releases));
        Ok(())
    }

    /// Releases links. Inodes that then have neither names nor users are freed by tasks of their own, because the
    /// holder of the lock of one may be waiting for this.
    fn release(&self, links: &[(InodeNo, u16)]) {
        let mut unused = self.state.borrow_mut().release_links(links);
        // A user of a file may hold its lock, and frees it at the end.
        unused.retain(|&ino| !self.state.borrow().in_use(ino));
        for ino in unused {
            if let Some(soft) = self.state.borrow_mut().soft() {
                soft.tasks += 1;
            }
            let ffs = self.this();
            self.rt.spawn(async move {
                let freed = {
                    let _inode = ffs.locks.alone(ino).await;
                    ffs.free_if_unused(ino).await
                };
                if let Some(soft) = ffs.state.borrow_mut().soft() {
                    debug_assert!(soft.tasks > 0, "U7: each task that frees an inode is counted until it ends");
                    soft.tasks -= 1;
                    // Another task may have freed it.
                    if let Err(error) = freed
                        && error != FsError::Stale
                    {
                        soft.task_error.get_or_insert(error);
                    }
                }
                ffs.progress.notify();
            });
        }
    }

    /// Waits for jobs of other tasks, and for the tasks that free inodes. No lock of such an inode may be held.
    async fn wait_for_tasks(&self) {
        loop {
            let waiting = self.progress.wait();
            if self.state.borrow().soft.as_deref().is_none_or(|soft| soft.tasks == 0 && soft.jobs_running == 0) {
                return;
            }
            waiting.await;
        }
    }
}

/// A job in progress. When this is dropped, its remaining work goes back into the queue.
struct Running<'a> {
    ffs: &'a Ffs,
    job: Option<Job>,
    attempt: u64,
}

impl Running<'_> {
    fn begin(ffs: &Ffs, attempt: u64) -> Option<Running<'_>> {
        let mut state = ffs.state.borrow_mut();
        let soft = state.soft()?;
        let job = soft.take_job(attempt)?;
        soft.jobs_running += 1;
        Some(Running { ffs, job: Some(job), attempt })
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Ok(mut state) = self.ffs.state.try_borrow_mut()
            && let Some(soft) = state.soft()
        {
            debug_assert!(soft.jobs_running > 0, "U6: a job that ends was running");
            soft.jobs_running -= 1;
            soft.jobs.extend(self.job.take().map(|job| (job, self.attempt)));
        }
        self.ffs.progress.notify();
    }
}
