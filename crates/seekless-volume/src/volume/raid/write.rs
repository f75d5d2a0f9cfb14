//! Writing: from a request to the writes of each member.
//!
//! On a mirror all members store the same, and writes to one row may overlap in time. With parity, a row has one writer
//! at a time; a writer that finds others waiting for the row writes their data too, so that small sequential writes
//! grow into full stripes. Several rows are read, and written, in one go, and neighbours on a member become one
//! request.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use futures_util::future::join_all;

use super::bitmap::Mark;
use super::core::{Core, MemberState, count};
use super::deferred::is_no_space;
use super::journal::Open;
use super::plan::{Aim, Fragment, Method, RowPlan, plan};
use super::request::{MemberWrite, QueuedWrite, Written, merge};
use super::shape::Level;
use crate::device::{Buf, Data, DeviceError, WriteFlags, worse};
use crate::units::{SECTOR_BYTES, Sector};
use crate::volume::format::KNOWN_MAX;
use crate::volume::members::{bytes, relocate};

/// Rows that are written in one go, and what is decided about them before they are read.
struct JointWrite {
    fragments: BTreeMap<u64, Vec<Fragment>>,
    /// Rows that stay out of sync: see [`Core::prepare`].
    unsynced: BTreeSet<u64>,
    /// Rows that are written through the journal, in order. They are decided once: while the write waits, reading may begin behind
    /// what is carried.
    journaled: Vec<u64>,
    /// One of the requests must be durable on completion.
    fua: bool,
    /// The request, for errors.
    at: Sector,
    length: u64,
}

impl JointWrite {
    fn new(
        queued_writes: &BTreeMap<u64, Vec<Rc<QueuedWrite>>>,
        unsynced: BTreeSet<u64>,
        journaled: Vec<u64>,
        at: Sector,
        length: u64,
    ) -> JointWrite {
        let fragments_of =
            |queued: &Vec<Rc<QueuedWrite>>| queued.iter().flat_map(|one| one.fragments.clone()).collect();
        let fragments = queued_writes.iter().map(|(&row, queued)| (row, fragments_of(queued))).collect();
        let fua = queued_writes.values().flatten().any(|queued| queued.flags.fua);
        JointWrite { fragments, unsynced, journaled, fua, at, length }
    }

    fn is_journaled(&self, row: u64) -> bool {
        self.journaled.binary_search(&row).is_ok()
    }
}

/// How rows are written: a plan for each row, and what was read for it.
struct PlannedWrites {
    plans: Vec<RowPlan>,
    read: Vec<Vec<Buf>>,
    /// All that the rows will hold.
    writes: Vec<MemberWrite>,
    /// Of `writes`, what members must be sent.
    changed: Vec<MemberWrite>,
}

impl Core {
    /// Stores `data` at `at`; the range has been checked.
    pub(super) async fn write(self: Rc<Self>, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        count(&self.counts.writes);
        let mut left = match self.shape.level {
            Level::Mirror => BTreeMap::new(),
            Level::Parity => self.by_row(at, &data),
        };
        loop {
            self.catch_up().await?;
            let written = {
                let _token = self.begin().await;
                match self.shape.level {
                    Level::Mirror => self.write_mirror(at, &data, flags).await,
                    Level::Parity => self.write_parity(&mut left, flags, at, data.len() as u64).await,
                }
            };
            let acknowledged = self.acknowledge().await; // A1, and before what is left (J6)
            self.tidy_soon();
            written?;
            acknowledged?;
            if left.is_empty() {
                self.retry_written(at, data.len() as u64 / SECTOR_BYTES);
                return Ok(());
            }
        }
    }

    async fn write_mirror(&self, at: Sector, data: &Data, flags: WriteFlags) -> Result<(), DeviceError> {
        self.check_running(at, data.len() as u64)?;
        let sectors = data.len() as u64 / SECTOR_BYTES;
        let rows = self.shape.rows_of(at, sectors);
        loop {
            // Copies for which a member has no space differ elsewhere, if at all: what is written here is equal on all.
            let still_differ = match self.touch(rows.clone()).await {
                Err(error) if is_no_space(&error) || error.is_of_medium() => true,
                done => done.map(|()| false)?,
            };
            let shared = self.locks.share_all(rows.clone()).await;
            if !still_differ && self.needs_touch(rows.clone()) {
                continue;
            }
            let _mark = self.mark_copies(rows.clone()).await?;
            let writes = self.to_mirrors(at, sectors, |member, at, offset, sectors| {
                MemberWrite::new(member, at, data.slice(bytes(offset, sectors)))
            });
            let written = self.perform(writes, flags, None, at, data.len() as u64).await;
            drop(shared);
            if written.as_ref().is_err_and(is_no_space) {
                match self.touch(rows).await {
                    Err(error) if !is_no_space(&error) => return Err(error),
                    _ => {}
                }
            }
            return written;
        }
    }

    /// Marks `rows` of a mirror, unless one copy alone would be trusted if the power failed now.
    pub(super) async fn mark_copies(&self, rows: Range<u64>) -> Result<Option<Mark<'_>>, DeviceError> {
        let is_believed = |member: &&MemberState| **member != MemberState::Failed;
        let copies = self.state.borrow().recorded.iter().filter(is_believed).count();
        if copies > 1 { self.mark(rows).await } else { Ok(None) }
    }

    /// One write for every member that holds the range, or one for each of its rows on a member that is being rebuilt and holds it.
    fn to_mirrors(
        &self,
        at: Sector,
        sectors: u64,
        make: impl Fn(usize, u64, u64, u64) -> MemberWrite,
    ) -> Vec<MemberWrite> {
        let mut writes = Vec::new();
        for member in self.in_use() {
            let mut part = 0;
            while part < sectors {
                let row = (at.0 + part) / self.shape.unit;
                let row_end = ((row + 1) * self.shape.unit - at.0).min(sectors);
                if !self.holds(member, row) {
                    part = row_end;
                    continue;
                }
                let is_active = self.state.borrow().now[member] == MemberState::Active;
                let end = if is_active { sectors } else { row_end };
                let take = (end - part).min(self.request_sectors_max);
                writes.push(make(member, self.shape.data_start + at.0 + part, part, take));
                part += take;
            }
        }
        writes
    }

    /// `data` for the rows from `at` on.
    fn by_row(&self, at: Sector, data: &Data) -> BTreeMap<u64, Vec<Fragment>> {
        let mut fragments: BTreeMap<u64, Vec<Fragment>> = BTreeMap::new();
        for part in self.shape.parts(at, data.len() as u64 / SECTOR_BYTES) {
            let data = data.slice(bytes(part.offset, part.sectors));
            fragments.entry(part.row).or_default().push(Fragment { index: part.index, from: part.from, data });
        }
        fragments
    }

    /// Writes to the rows of `left`, which keeps those whose writing must begin again ([`Written::Nothing`]). `at` and `length` are
    /// for errors.
    async fn write_parity(
        &self,
        left: &mut BTreeMap<u64, Vec<Fragment>>,
        flags: WriteFlags,
        at: Sector,
        length: u64,
    ) -> Result<(), DeviceError> {
        let mut queued_writes: BTreeMap<u64, Rc<QueuedWrite>> = BTreeMap::new();
        for (&row, fragments) in left.iter() {
            let queued = Rc::new(QueuedWrite { fragments: fragments.clone(), flags, result: RefCell::new(None) });
            self.state.borrow_mut().queues.entry(row).or_default().push(queued.clone());
            queued_writes.insert(row, queued);
        }
        let mut guards = Vec::new();
        let mut taken: BTreeMap<u64, Vec<Rc<QueuedWrite>>> = BTreeMap::new();
        for (&row, queued) in &queued_writes {
            let guard = self.locks.hold(row).await;
            // Another writer may have written it in the meantime.
            if queued.result.borrow().is_none() {
                taken.insert(row, self.take_queued(row, queued));
                guards.push(guard);
            }
        }
        if !taken.is_empty() {
            let result = self.write_rows(&taken, at, length).await;
            let is_joint = taken.values().any(|queued_writes| queued_writes.len() > 1);
            if is_joint && result.as_ref().is_err_and(|error| is_no_space(error) || error.is_of_medium()) {
                // There may be space for some of them, and only one of them may need what cannot be read.
                for (row, queued) in
                    taken.into_iter().flat_map(|(row, queued)| queued.into_iter().map(move |one| (row, one)))
                {
                    let result = self.write_rows(&BTreeMap::from([(row, vec![queued.clone()])]), at, length).await;
                    *queued.result.borrow_mut() = Some(result);
                }
            } else {
                for queued in taken.into_values().flatten() {
                    *queued.result.borrow_mut() = Some(result.clone());
                }
            }
        }
        debug_assert!(
            queued_writes.values().all(|queued| queued.result.borrow().is_some()),
            "A1: a write is acknowledged when it is written"
        );
        for (row, queued) in queued_writes {
            if let Some(Written::All) = queued.result.borrow().clone().transpose()? {
                left.remove(&row);
            }
        }
        Ok(())
    }

    /// `own`, and the waiting queued_writes of the row that do not overlap with those taken before.
    fn take_queued(&self, row: u64, own: &Rc<QueuedWrite>) -> Vec<Rc<QueuedWrite>> {
        let mut state = self.state.borrow_mut();
        debug_assert!(self.locks.is_held(row), "a row has one writer at a time");
        debug_assert!(
            state.queues.get(&row).is_some_and(|queue| queue.iter().any(|queued| Rc::ptr_eq(queued, own))),
            "A1: a write that is not taken waits in the queue of its row"
        );
        let Some(queue) = state.queues.remove(&row) else { return vec![own.clone()] };
        let mut taken = vec![own.clone()];
        let mut left = Vec::new();
        for queued in queue.into_iter().filter(|queued| !Rc::ptr_eq(queued, own)) {
            let mut others = taken.iter().flat_map(|other| &other.fragments);
            let overlaps = others.any(|other| queued.fragments.iter().any(|new| new.overlaps(other)));
            if overlaps { left.push(queued) } else { taken.push(queued) }
        }
        if !left.is_empty() {
            state.queues.insert(row, left);
        }
        taken
    }

    /// Writes the queued writes of each row, in one go; the rows are held.
    async fn write_rows(
        &self,
        queued_writes: &BTreeMap<u64, Vec<Rc<QueuedWrite>>>,
        at: Sector,
        length: u64,
    ) -> Result<Written, DeviceError> {
        self.check_running(at, length)?;
        let rows: BTreeSet<u64> = queued_writes.keys().copied().collect();
        let unsynced = self.prepare(&rows).await?;
        debug_assert!(rows.iter().all(|&row| self.locks.is_held(row)), "a row has one writer at a time");
        let journaled = rows.iter().copied().filter(|&row| self.needs_journal(row)).collect();
        let joint = JointWrite::new(queued_writes, unsynced, journaled, at, length);
        let _mark = self.mark_needed(rows.iter().copied()).await?;
        let planned = self.plan_rows(&joint).await?;
        self.count_methods(&planned.plans);
        let record = match self.recorded(&joint, &planned.changed) {
            recorded if recorded.is_empty() => None,
            recorded => match self.append(&joint.journaled, &merge(recorded, u64::from(u32::MAX))).await? {
                Some(record) => Some(record),
                None => return Ok(Written::Nothing),
            },
        };
        debug_assert!(
            record.is_some() || !planned.changed.iter().any(|write| self.needs_journal(self.row_of(write))),
            "J2: a row that lacks a data unit is written through the journal"
        );
        debug_assert!(
            rows.iter().all(|&row| !self.needs_mark(row) || self.is_marked(row)),
            "B1: the bit of a row's region is set until it is written"
        );
        let was_deferred = rows.iter().copied().filter(|row| self.state.borrow().redo.contains_key(row)).collect();
        let (answer, lacking) = self.write_planned(&joint, &planned, record.is_some()).await;
        // Otherwise the record stays until the superblocks have what it covers.
        if !lacking.is_empty() {
            let lacking = self.defer_recorded(&lacking, &joint.journaled, record);
            self.take_back_rows(&joint, &planned, &was_deferred, &lacking).await;
        }
        answer?;
        self.make_known(&self.rewritten(&joint), at, length).await.map(|()| Written::All)
    }

    /// Plans the rows, reads what the plans need, and computes the writes. On success there is room for what a record of the
    /// journal will hold.
    async fn plan_rows(&self, joint: &JointWrite) -> Result<PlannedWrites, DeviceError> {
        let mut is_unreadable = false;
        loop {
            let is_tight = self.is_tight();
            let aim = |row: u64| match self.layout.is_some() {
                _ if is_unreadable && joint.unsynced.contains(&row) && self.absent(row).is_none() => Aim::Data,
                _ if joint.unsynced.contains(&row) => Aim::Resync,
                true if is_tight => Aim::Undo,
                true => Aim::Redundancy,
                false => Aim::Speed,
            };
            let rows = joint.fragments.iter();
            let plans: Vec<RowPlan> =
                rows.map(|(&row, fragments)| plan(&self.shape, row, fragments, self.absent(row), aim(row))).collect();
            let read = match self.read_plans(&plans, joint.at, joint.length).await {
                // A member may fail while it is read from; then a new plan is made.
                Ok(None) => continue,
                // Rows that stay out of sync need no parity.
                Err(error) if error.is_of_medium() && !is_unreadable && !joint.unsynced.is_empty() => {
                    is_unreadable = true;
                    continue;
                }
                read => read?.unwrap_or_default(),
            };
            let writes = self.writes_of(&plans, &joint.fragments, &read);
            let changed = match is_tight && !joint.fua {
                true => self.changed(&plans, &read, &writes).await,
                false => writes.clone(),
            };
            match self.allocate(&self.recorded(joint, &changed), joint.at, joint.length).await {
                // Once more, without writing zeroes where there are some.
                Err(error) if is_no_space(&error) && !is_tight => {}
                done => return done.map(|()| PlannedWrites { plans, read, writes, changed }),
            }
        }
    }

    /// Those of `writes` that are in rows of the journal.
    fn recorded(&self, joint: &JointWrite, writes: &[MemberWrite]) -> Vec<MemberWrite> {
        writes.iter().filter(|write| joint.is_journaled(self.row_of(write))).cloned().collect()
    }

    /// Writes what is planned to the members, and returns the writes that failed with `NoSpace`.
    async fn write_planned(
        &self,
        joint: &JointWrite,
        planned: &PlannedWrites,
        has_record: bool,
    ) -> (Result<(), DeviceError>, Vec<MemberWrite>) {
        let is_recorded = |write: &&MemberWrite| has_record && joint.is_journaled(self.row_of(write));
        let recorded = planned.writes.iter().filter(is_recorded);
        recorded.for_each(|write| self.supersede(self.row_of(write), write)); // J8
        let merged = merge(planned.changed.clone(), self.request_sectors_max);
        let done = self.attempt(merged, WriteFlags { fua: joint.fua }, joint.at, joint.length).await;
        planned.writes.iter().for_each(|write| self.supersede(self.row_of(write), write));
        done
    }

    /// Puts back what was in rows for which a member had no room for the `lacking` writes. Rows of which something was deferred
    /// before are completed later.
    async fn take_back_rows(
        &self,
        joint: &JointWrite,
        planned: &PlannedWrites,
        was_deferred: &BTreeSet<u64>,
        lacking: &[MemberWrite],
    ) {
        let plans = planned.plans.iter().zip(&planned.read);
        for (plan, read) in plans.filter(|(plan, _)| !joint.unsynced.contains(&plan.row)) {
            let of_row = |write: &&MemberWrite| self.row_of(write) == plan.row;
            let lacking: Vec<MemberWrite> = lacking.iter().filter(of_row).cloned().collect();
            if was_deferred.contains(&plan.row) {
                self.defer(lacking, None);
            } else if !lacking.is_empty() {
                let writes = planned.writes.iter().filter(of_row).cloned().collect();
                self.take_back_row(plan, read, writes, lacking).await;
            }
        }
    }

    /// Of rows that were out of sync: what has been written of units that are missing, as row and sectors of the unit. Rows
    /// without one are consistent from now on.
    fn rewritten(&self, joint: &JointWrite) -> Vec<(u64, Range<u64>)> {
        let mut written = Vec::new();
        let is_open = |row: &u64| self.state.borrow().out_of_sync.contains(*row) && !joint.unsynced.contains(row);
        for (&row, fragments) in joint.fragments.iter().filter(|(row, _)| is_open(row)) {
            match self.absent(row).and_then(|member| self.shape.index(row, member)) {
                Some(index) => {
                    let missing = fragments.iter().filter(|fragment| fragment.index == index);
                    written.extend(missing.map(|missing| (row, missing.from..missing.from + missing.sectors())));
                }
                None => self.is_consistent_now(row),
            }
        }
        written
    }

    /// Records `written` ranges of missing units in doubtful rows as known, also after a power cut: the journal replays
    /// them, and the superblocks record them. Only then is the write acknowledged.
    async fn make_known(&self, written: &[(u64, Range<u64>)], at: Sector, length: u64) -> Result<(), DeviceError> {
        let unit = self.shape.unit;
        let known = {
            let state = self.state.borrow();
            let mut known = state.known.clone();
            written.iter().for_each(|(row, within)| known.insert(row * unit + within.start..row * unit + within.end));
            if known == state.known {
                return Ok(());
            }
            known
        };
        if known.len() > KNOWN_MAX {
            let cause = format!(
                "a member is missing since the power failed, and of its units that cannot be known {KNOWN_MAX} parts have \
                 been written since: more can be once these have grown together, or with doubt=accept"
            );
            return if self.accept_doubt {
                Ok(())
            } else {
                Err(DeviceError::Io { operation: "write", at, bytes: length, cause })
            };
        }
        {
            let mut state = self.state.borrow_mut();
            for (row, _) in written.iter().filter(|(row, _)| known.contains(row * unit..(row + 1) * unit)) {
                state.out_of_sync.remove(*row);
            }
            debug_assert!(
                written
                    .iter()
                    .all(|(row, within)| { known.contains(row * unit + within.start..row * unit + within.end) }),
                "A4: all that was written is known"
            );
            state.known = known;
        }
        self.write_superblocks(|_| ()).await
    }

    /// Of `writes`, what differs from what was `read` before, or from what is read here. All of it in rows that are read as they will
    /// be.
    async fn changed(&self, plans: &[RowPlan], read: &[Vec<Buf>], writes: &[MemberWrite]) -> Vec<MemberWrite> {
        let mut changed = Vec::new();
        for write in writes {
            let row = self.row_of(write);
            let plan = plans.iter().zip(read).find(|(plan, _)| plan.row == row);
            changed.extend(match plan {
                Some((plan, read)) if !self.state.borrow().redo.contains_key(&row) => {
                    match plan.reads.contains(&write.member) {
                        true => self.changes(plan, read, write),
                        false => self.changes_now(write).await,
                    }
                }
                _ => vec![write.clone()],
            });
        }
        changed
    }

    pub(super) fn row_of(&self, write: &MemberWrite) -> u64 {
        (write.at - self.shape.data_start) / self.shape.unit
    }

    /// Defers those of `lacking` that are in `journaled` rows, with their record, and returns the others, by rows.
    fn defer_recorded(&self, lacking: &[MemberWrite], journaled: &[u64], record: Option<Open<'_>>) -> Vec<MemberWrite> {
        let by_rows = lacking.iter().flat_map(|write| self.by_rows(write));
        let is_recorded = |write: &MemberWrite| journaled.binary_search(&self.row_of(write)).is_ok();
        let (recorded, others): (Vec<MemberWrite>, Vec<MemberWrite>) = by_rows.partition(is_recorded);
        if !recorded.is_empty() {
            self.is_space_unproven.set(true);
            self.defer(recorded, record.map(Open::keep));
        }
        others
    }

    /// Its part in each row.
    pub(super) fn by_rows(&self, write: &MemberWrite) -> Vec<MemberWrite> {
        let (mut at, end) = (write.at, write.at + write.sectors);
        let mut parts = Vec::new();
        while at < end {
            let next_row = at + self.shape.unit - (at - self.shape.data_start) % self.shape.unit;
            parts.push(write.part(at..next_row.min(end)));
            at = next_row.min(end);
        }
        parts
    }

    /// True when a data unit of the row is missing, or could be missing after the next start, or when every write is
    /// journaled, or when an older record may be read again.
    pub(super) fn needs_journal(&self, row: u64) -> bool {
        match (&self.layout, self.absent_recorded(row)) {
            (None, _) => false,
            (Some(_), _) if self.journal.carries() => true,
            (Some(_), Some(absent)) => absent != self.shape.parity(row),
            (Some(layout), None) => layout.journal_always,
        }
    }

    /// Marks those of `rows` that need it. Others get no mark, as it would put data that the journal protects in doubt.
    pub(super) async fn mark_needed(&self, rows: impl Iterator<Item = u64>) -> Result<Option<Mark<'_>>, DeviceError> {
        let needed: Vec<u64> = rows.filter(|&row| self.needs_mark(row)).collect();
        match (needed.first(), needed.last()) {
            (Some(first), Some(last)) => self.mark(*first..last + 1).await,
            _ => Ok(None),
        }
    }

    /// True when the row is consistent and must be resynchronised after a power cut.
    fn needs_mark(&self, row: u64) -> bool {
        self.layout.is_some_and(|layout| !layout.journal_always) && self.absent_recorded(row).is_none()
    }

    /// Reads what the plans need: for each plan the ranges of its members. `None` when a member failed in between.
    async fn read_plans(
        &self,
        plans: &[RowPlan],
        at: Sector,
        length: u64,
    ) -> Result<Option<Vec<Vec<Buf>>>, DeviceError> {
        let wanted: Vec<(usize, u64, u64, u64)> = plans
            .iter()
            .flat_map(|plan| plan.reads.iter().map(|&member| (member, plan.row, plan.from, plan.sectors())))
            .collect();
        let bufs = match self.read_units(&wanted).await {
            Ok(bufs) => bufs,
            Err(ReadFailure::Member) => return Ok(None),
            Err(ReadFailure::Data(member, error)) => return Err(relocate(error, member, at, length)),
        };
        // Parity is that of the units as they will be.
        let mut bufs = wanted.iter().zip(bufs).map(|(&range, buf)| self.as_it_will_be(range, buf));
        Ok(Some(plans.iter().map(|plan| bufs.by_ref().take(plan.reads.len()).collect()).collect()))
    }

    fn count_methods(&self, plans: &[RowPlan]) {
        for plan in plans {
            count(match plan.method {
                Method::FullStripe => &self.counts.full_stripes,
                Method::ReadModifyWrite => &self.counts.read_modify_writes,
                Method::ReconstructWrite => &self.counts.reconstruct_writes,
                Method::Bare | Method::Recover => &self.counts.degraded_writes,
            });
        }
    }

    /// New data and new parity, for the usable members.
    fn writes_of(
        &self,
        plans: &[RowPlan],
        fragments: &BTreeMap<u64, Vec<Fragment>>,
        read: &[Vec<Buf>],
    ) -> Vec<MemberWrite> {
        let mut writes = Vec::new();
        for (plan, read) in plans.iter().zip(read) {
            let fragments = &fragments[&plan.row];
            for fragment in fragments {
                let member = self.shape.member(plan.row, fragment.index);
                if self.holds(member, plan.row) {
                    writes.push(MemberWrite::new(
                        member,
                        self.shape.at(plan.row, fragment.from),
                        fragment.data.clone(),
                    ));
                }
            }
            let parity = self.shape.parity(plan.row);
            if self.holds(parity, plan.row) && plan.method != Method::Bare {
                let data = plan.parity(&self.shape, fragments, read);
                writes.push(MemberWrite::new(parity, self.shape.at(plan.row, plan.from), data));
            }
        }
        writes
    }

    /// Does all `writes` at once. Members that fail are dropped; writes that fail with `NoSpace` are deferred.
    pub(super) async fn perform(
        &self,
        writes: Vec<MemberWrite>,
        flags: WriteFlags,
        record: Option<Open<'_>>,
        at: Sector,
        length: u64,
    ) -> Result<(), DeviceError> {
        let (answer, lacking) = self.attempt(writes, flags, at, length).await;
        if !lacking.is_empty() {
            self.defer(lacking, record.map(Open::keep));
        }
        answer
    }

    /// The same, and returns the writes that failed with `NoSpace`.
    pub(super) async fn attempt(
        &self,
        writes: Vec<MemberWrite>,
        flags: WriteFlags,
        at: Sector,
        length: u64,
    ) -> (Result<(), DeviceError>, Vec<MemberWrite>) {
        debug_assert!(self.writes_under_way() > 0, "A2: nothing is written while the record may change");
        debug_assert!(
            writes.iter().all(|write| {
                let data = self.shape.data_start..self.shape.end();
                data.contains(&write.at) && write.at + write.sectors <= data.end
            }),
            "what holds data is written, and never what describes the array"
        );
        let results = join_all(writes.iter().map(|write| {
            let device = self.device(write.member);
            async move { write.apply(&device, flags).await }
        }))
        .await;
        let mut answer = Ok(());
        let mut lacking = Vec::new();
        for (write, result) in writes.into_iter().zip(results) {
            match result {
                Ok(()) => {}
                Err(DeviceError::NoSpace { .. }) => {
                    answer = worse(answer, Err(DeviceError::NoSpace { at, bytes: length }));
                    lacking.push(write);
                    self.note_no_space();
                }
                Err(error) => {
                    if !self.fail(write.member, &error) {
                        answer = worse(answer, Err(relocate(error, write.member, at, length)));
                    }
                }
            }
        }
        (answer, lacking)
    }

    /// Declares that `sectors` from `at` hold nothing: they read as zeroes afterwards.
    pub(super) async fn discard(self: Rc<Self>, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        self.catch_up().await?;
        let done = self.discard_parts(at, sectors).await;
        let acknowledged = self.acknowledge().await;
        done?;
        acknowledged?;
        self.retry_written(at, sectors);
        Ok(())
    }

    async fn discard_parts(self: &Rc<Self>, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        let row_sectors = self.shape.row_sectors();
        let (mut sector, end) = (at.0, at.0 + sectors);
        while sector < end {
            let row = sector / row_sectors;
            let next_row = (row + 1) * row_sectors;
            let is_whole = sector == row * row_sectors && next_row <= end;
            let token = self.begin().await;
            let to =
                if is_whole { (end / row_sectors).min(row + DISCARD_ROWS) * row_sectors } else { end.min(next_row) };
            let written = if is_whole || self.shape.level == Level::Mirror {
                self.discard_rows(Sector(sector), to - sector).await?
            } else {
                // A part of a row: the parity changes with it, as in any write.
                let zeroes = Data::zeroes(bytes(0, to - sector).len());
                let mut left = self.by_row(Sector(sector), &zeroes);
                let (was_tight, length) = (self.is_tight(), zeroes.len() as u64);
                match self.write_parity(&mut left, WriteFlags::NONE, Sector(sector), length).await {
                    // Once more, without writing zeroes where there are some.
                    Err(error) if is_no_space(&error) && !was_tight => {
                        self.write_parity(&mut left, WriteFlags::NONE, Sector(sector), length).await?;
                    }
                    written => written?,
                }
                if left.is_empty() { Written::All } else { Written::Nothing }
            };
            drop(token);
            match written {
                Written::All => sector = to,
                Written::Nothing => self.acknowledge().await?, // J6
            }
        }
        Ok(())
    }

    /// Whole rows of an array with parity, or any part of a mirror: parity of zeroes is zero.
    async fn discard_rows(&self, at: Sector, sectors: u64) -> Result<Written, DeviceError> {
        let rows = self.shape.rows_of(at, sectors);
        let _rows = self.locks.hold_all(rows.clone()).await;
        self.check_running(at, sectors * SECTOR_BYTES)?;
        debug_assert!(self.writes_under_way() > 0, "A2: nothing is discarded while the record may change");
        for row in rows.clone() {
            match self.redo(row).await {
                // What is discarded replaces it.
                Err(error) if is_no_space(&error) => {}
                done => done?,
            }
        }
        let (journaled, _mark) = match self.shape.level {
            Level::Mirror => (Vec::new(), self.mark(rows.clone()).await?),
            Level::Parity => {
                // Other rows are in no record: it would be done again over what is written to them without one (J4).
                let journaled: Vec<u64> = rows.clone().filter(|&row| self.needs_journal(row)).collect();
                (journaled, self.mark_needed(rows.clone()).await?)
            }
        };
        let of = |row: u64| {
            let held = self.in_use().into_iter().filter(move |&member| self.holds(member, row));
            held.map(move |member| MemberWrite::zeroes(member, self.shape.at(row, 0), self.shape.unit))
        };
        let writes = match self.shape.level {
            Level::Mirror => {
                self.to_mirrors(at, sectors, |member, at, _, sectors| MemberWrite::zeroes(member, at, sectors))
            }
            Level::Parity => merge(rows.clone().flat_map(of).collect(), u64::from(u32::MAX)),
        };
        let record = match journaled.is_empty() {
            false => {
                let recorded = journaled.iter().copied().flat_map(of).collect();
                match self.append(&journaled, &merge(recorded, u64::from(u32::MAX))).await? {
                    Some(record) => Some(record),
                    None => return Ok(Written::Nothing),
                }
            }
            true => None,
        };
        debug_assert!(
            self.shape.level == Level::Mirror || record.is_some() || rows.clone().all(|row| !self.needs_journal(row)),
            "J2: a row that lacks a data unit is written through the journal"
        );
        if self.shape.level == Level::Mirror {
            let discarded = self.perform(writes, WriteFlags::NONE, record, at, sectors * SECTOR_BYTES).await;
            if discarded.as_ref().is_err_and(is_no_space) {
                for row in rows {
                    match self.redo(row).await {
                        Err(error) if !is_no_space(&error) => return Err(error),
                        _ => {}
                    }
                }
            }
            return discarded.map(|()| Written::All);
        }
        let parts: Vec<MemberWrite> = writes.iter().flat_map(|write| self.by_rows(write)).collect();
        let is_recorded = |part: &&MemberWrite| journaled.binary_search(&self.row_of(part)).is_ok();
        parts.iter().filter(is_recorded).for_each(|part| self.supersede(self.row_of(part), part)); // J8
        let (answer, lacking) = self.attempt(writes, WriteFlags::NONE, at, sectors * SECTOR_BYTES).await;
        parts.iter().for_each(|part| self.supersede(self.row_of(part), part));
        if !lacking.is_empty() {
            let lacking = self.defer_recorded(&lacking, &journaled, record);
            for row in lacking.iter().map(|write| self.row_of(write)).collect::<BTreeSet<u64>>() {
                if !self.state.borrow().out_of_sync.contains(row) && !self.recompute(row, 0..self.shape.unit).await {
                    let of_row = |write: &&MemberWrite| self.row_of(write) == row;
                    self.defer(parts.iter().filter(of_row).cloned().collect(), None);
                }
            }
        }
        answer?;
        let out_of_sync: Vec<u64> = rows.filter(|&row| self.state.borrow().out_of_sync.contains(row)).collect();
        let (missing, whole): (Vec<u64>, Vec<u64>) = out_of_sync
            .into_iter()
            .partition(|&row| self.absent(row).is_some_and(|member| member != self.shape.parity(row)));
        whole.into_iter().for_each(|row| self.is_consistent_now(row));
        let written: Vec<(u64, Range<u64>)> = missing.into_iter().map(|row| (row, 0..self.shape.unit)).collect();
        self.make_known(&written, at, sectors * SECTOR_BYTES).await.map(|()| Written::All)
    }

    /// Records that all of the row has been rewritten.
    fn is_consistent_now(&self, row: u64) {
        debug_assert!(self.locks.is_held(row), "a row becomes consistent while it is held");
        self.state.borrow_mut().out_of_sync.remove(row);
    }
}

/// Limit of rows discarded at once: their locks are held throughout.
const DISCARD_ROWS: u64 = 4096;

/// Why units could not be read.
pub(super) enum ReadFailure {
    /// A member failed; another way remains.
    Member,
    /// No way remains: the data of this member is unavailable.
    Data(usize, DeviceError),
}
