//! Arrays that survive the loss of a member: RAID-1 and RAID-5.
//!
//! Guaranteed: an acknowledged write is on so many members that any one of them can fail at any moment. A member that
//! missed a write is never trusted later: its failure is recorded on the others before any write that it missed is
//! acknowledged. After a power cut, rows that were being written are resynchronised before use, so that data once read
//! does not change. The format and the reasons are in `FORMAT.md` beside `volume/format.rs`.
//!
//! Not guaranteed, and the remedies:
//!
//! * *Power fails while the array is complete, and a member is lost before the rows that were being written have been
//!   resynchronised.* Of the missing member's units, those in regions that were being written cannot be known (the
//!   write hole). Reading them fails with an error that says so, until they are rewritten; `doubt=accept` returns the
//!   computed data instead. With `journal=always` this case does not arise, and every write is done twice.
//! * *A second member is lost.* An array with parity stops; a mirror continues with its last member.
//!
//! Modules: `core` holds the members and what is recorded about them, `shape` computes where data lies, `plan` what a
//! row write needs, `rows` locks rows, `read` and `write` do it, `deferred` what a member has no space for, `readings` reads in other ways, `content` examines a
//! device before it is overwritten, `bitmap` and `journal` record what is under way, `resync` resynchronises rows,
//! `rebuild` fills new members, `open` assembles an array.

mod bitmap;
mod content;
mod core;
mod deferred;
mod journal;
mod open;
mod plan;
mod read;
mod readings;
mod rebuild;
mod request;
mod resync;
mod rows;
mod scrub;
mod shape;
#[cfg(test)]
mod tests;
mod write;

use std::rc::Rc;

use async_trait::async_trait;

pub use self::content::content;
pub use self::core::MemberState;
use self::core::{Core, OUTDATING_STEPS};
use self::deferred::is_no_space;
pub use self::open::{ArrayInfo, MemberInfo, info};
pub use self::shape::Level;
use crate::device::{
    BlockDevice, Buf, Counter, Data, Device, DeviceError, Discard, Geometry, Guarantees, MemberStatus, Redundancy,
    RedundancyStatus, Scrubbed, WriteFlags,
};
use crate::rt::Rt;
use crate::units::{KIB, MIB, Nanos, SECTOR_BYTES, Sector, human_bytes};
use crate::volume::members::{ShapeError, block_bytes, joined, request_sectors_max};

/// When writes go through the journal first. Mirrors have none and need none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JournalUse {
    /// Where a member is missing.
    Degraded,
    /// Always: then even a power cut together with the loss of a member loses nothing.
    Always,
}

/// How to treat uncertain data, see the head of this room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UncertainData {
    Refuse,
    Accept,
}

/// Content of the members of a new array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents {
    /// They read as zeroes, for instance fresh ones in memory.
    Zeroes,
    /// Anything. It is discarded where that makes zeroes; otherwise all rows are resynchronised in the background.
    Unknown,
    /// Anything, and the members keep their allocated space: all rows are resynchronised in the background.
    Allocated,
}

/// Options for making or opening an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArrayOptions {
    pub level: Level,
    /// Sectors of a stripe unit; on a mirror, the unit of locking and resync. Fixed when the array is made.
    pub unit: u64,
    /// Compare the unit with that of the array when opening.
    pub unit_given: bool,
    /// Bytes of a member per bit of the bitmap; by default a value that fits its size. Fixed.
    pub region: Option<u64>,
    /// Fixed.
    pub journal: JournalUse,
    /// Open even when a member is missing that was there before.
    pub degraded: bool,
    pub doubt: UncertainData,
    /// Change nothing on the members: recovery happens in memory.
    pub read_only: bool,
    /// Bytes of one member that are resynchronised or rebuilt at once.
    pub batch: u64,
    /// Bytes of the member between two records of a rebuild's progress.
    pub progress: u64,
}

impl ArrayOptions {
    /// Units of 64 KiB, for long the default of Linux md.
    pub fn new(level: Level) -> ArrayOptions {
        ArrayOptions {
            level,
            unit: 64 * KIB / SECTOR_BYTES,
            unit_given: false,
            region: None,
            journal: JournalUse::Degraded,
            degraded: false,
            doubt: UncertainData::Refuse,
            read_only: false,
            batch: MIB,
            progress: 256 * MIB,
        }
    }

    /// With a stripe unit of `unit` sectors.
    pub fn unit(self, unit: u64) -> ArrayOptions {
        ArrayOptions { unit, unit_given: true, ..self }
    }
}

/// Why an array cannot be made or opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ArrayError {
    #[error("member {member}: {error}")]
    Device { member: usize, error: DeviceError },
    /// Its text names the member, where it is one.
    #[error("{0}")]
    Members(DeviceError),
    #[error(transparent)]
    Shape(#[from] ShapeError),
    #[error("{level} needs at least {least} members, and there are {found}")]
    Count { level: &'static str, least: usize, found: usize },
    #[error("{found} members are too many: an array with metadata has at most 64")]
    TooMany { found: usize },
    #[error("a member failed while the array was being made")]
    Made,
    #[error("there is no array: {why}")]
    Nothing { why: String },
    #[error("two of the members say that they are member {slot}: one is a copy of the other")]
    Twice { slot: usize },
    #[error("member {member} belongs to another array")]
    Foreign { member: usize },
    #[error("members {one} and {two} were each used without the other, so that only one of them can be kept")]
    Conflict { one: usize, two: usize },
    #[error("{what}: {said} is asked for, and the array has {found}")]
    Contradiction { what: &'static str, said: String, found: String },
    #[error("member {slot} is missing: {why}")]
    Missing { slot: usize, why: String },
    /// Too few members hold the data. `lost` are the others, each with the reason.
    #[error("{active} of its members hold the data, and it needs {needed}: {}", reasons(.lost))]
    TooFew { active: usize, needed: usize, lost: Vec<(usize, String)> },
    #[error("the journal is damaged: it wants to write sector {at} of member {member}, where no data is")]
    Journal { member: usize, at: Sector },
    #[error("member {slot} {why}")]
    Replace { slot: usize, why: &'static str },
}

/// Why members are missing, in one line.
fn reasons(lost: &[(usize, String)]) -> String {
    lost.iter().map(|(slot, why)| format!("member {slot}: {why}")).collect::<Vec<_>>().join("; ")
}

/// State of an array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    pub members: Vec<MemberState>,
    pub rows: u64,
    /// Rows that the member being rebuilt holds.
    pub rebuilt: u64,
    /// Rows that its rebuild has left out: a sector of another member cannot be read, or a unit cannot be known.
    pub left_out: u64,
    /// Rows that a power cut may have left inconsistent and that are not yet resynchronised.
    pub out_of_sync: u64,
    /// Of these, rows with a unit that cannot be known.
    pub doubtful: u64,
    /// More members are lost than the array tolerates.
    pub stopped: bool,
    /// Why the resync or the rebuild ended early.
    pub error: Option<DeviceError>,
}

impl Status {
    /// Every member holds everything, and all rows are consistent.
    pub fn is_healthy(&self) -> bool {
        self.members.iter().all(|member_state| *member_state == MemberState::Active)
            && self.out_of_sync == 0
            && !self.stopped
    }
}

/// RAID-1 or RAID-5 over several devices.
pub struct Array {
    core: Rc<Core>,
    geometry: Geometry,
    guarantees: Guarantees,
}

impl Array {
    /// Makes a new array with this `uuid` on `members`, whose content is lost.
    ///
    /// # Errors
    /// When the members do not fit together, and when one fails.
    pub async fn create(
        rt: &Rt,
        members: Vec<Device>,
        options: &ArrayOptions,
        uuid: [u8; 16],
        contents: Contents,
    ) -> Result<Rc<Array>, ArrayError> {
        open::create(rt, members, options, uuid, contents).await
    }

    /// Opens the array on `members`, in any order; `None` for a missing one. Recovers from a power cut, and continues a
    /// rebuild.
    ///
    /// # Errors
    /// When there is none, or it does not fit the options; see [`ArrayError`].
    pub async fn open(rt: &Rt, members: Vec<Option<Device>>, options: &ArrayOptions) -> Result<Rc<Array>, ArrayError> {
        open::open(rt, members, options).await
    }

    /// An array without metadata, for timing: it does not survive power cuts, and assumes that the members' contents
    /// are consistent.
    ///
    /// # Errors
    /// When the members do not fit together.
    pub fn bare(rt: &Rt, level: Level, members: Vec<Device>, unit: u64) -> Result<Rc<Array>, ArrayError> {
        open::bare(rt, level, members, unit)
    }

    fn around(core: Rc<Core>, members: &[Device], request_bytes_max: u32) -> Array {
        let shape = core.shape;
        let mut guarantees = joined(members, shape.unit);
        if !(shape.data_start * SECTOR_BYTES).is_multiple_of(u64::from(guarantees.atomic_write_bytes)) {
            guarantees.atomic_write_bytes = SECTOR_BYTES as u32;
        }
        if guarantees.discard != Discard::Zeroes {
            guarantees.discard = Discard::Ignored; // Any other kind would make parity and copies differ.
        }
        let geometry =
            Geometry { sectors: shape.sectors(), block_bytes: block_bytes(members), request_bytes_max, zones: None };
        Array { core, geometry, guarantees }
    }

    fn core(&self) -> Rc<Core> {
        self.core.clone()
    }

    fn start(&self) {
        start(&self.core);
    }

    /// Gives up the member in `slot`, as if it had failed.
    ///
    /// # Errors
    /// When the array needs it; then nothing changes.
    pub async fn give_up(&self, slot: usize) -> Result<(), ArrayError> {
        let is_needed = {
            let state = self.core.state.borrow();
            let active = state.now.iter().filter(|member_state| **member_state == MemberState::Active).count();
            let others = active - usize::from(state.now.get(slot) == Some(&MemberState::Active));
            let needed = if self.core.shape.level == Level::Mirror { 1 } else { self.core.shape.members - 1 };
            slot >= state.now.len() || others < needed
        };
        if is_needed {
            return Err(ArrayError::Replace { slot, why: "cannot be given up: the array needs it" });
        }
        self.core.fail(slot, &"given up on request");
        self.core.acknowledge().await.map_err(|error| ArrayError::Device { member: slot, error })
    }

    /// Puts `device` in the place of the failed member `slot` and starts to rebuild it. Its content is lost. The array
    /// stays usable; when it is reopened, the rebuild continues.
    ///
    /// # Errors
    /// When the member has not failed, the device does not fit, or it cannot be written.
    pub async fn replace(&self, slot: usize, device: Device) -> Result<(), ArrayError> {
        let core = &self.core;
        let shape = core.shape;
        let _turn = core.replacements.enter().await;
        let bad = |error| ArrayError::Device { member: slot, error };
        // A failure that is not recorded would be forgotten with the state of the new member, and the old one be trusted.
        core.acknowledge().await.map_err(bad)?;
        {
            let state = core.state.borrow();
            if state.now.get(slot) != Some(&MemberState::Failed) {
                return Err(ArrayError::Replace { slot, why: "has not failed, or there is no such member" });
            }
            if state.now.contains(&MemberState::Rebuilding) {
                return Err(ArrayError::Replace { slot, why: "has to wait: another one is being rebuilt" });
            }
        }
        let is_this = |member: &Option<Device>| member.as_ref().is_some_and(|member| Rc::ptr_eq(member, &device));
        if core.in_use().into_iter().any(|member| is_this(&core.members.borrow()[member])) {
            return Err(ArrayError::Replace { slot, why: "cannot be replaced by another member that is in use" });
        }
        let geometry = device.geometry();
        if geometry.sectors < shape.end()
            || geometry.block_bytes > self.geometry.block_bytes
            || request_sectors_max(std::slice::from_ref(&device)) < core.request_sectors_max
            || (self.guarantees.discard == Discard::Zeroes && device.guarantees().discard != Discard::Zeroes)
            || (self.guarantees.durable_on_completion && !device.guarantees().durable_on_completion)
            || device.guarantees().atomic_write_bytes < self.guarantees.atomic_write_bytes
        {
            return Err(ArrayError::Replace {
                slot,
                why: "cannot be replaced by a device that is smaller or promises less",
            });
        }
        core.admit(slot, device).await.map_err(bad)?;
        core.acknowledge().await.map_err(bad)?;
        self.start();
        Ok(())
    }

    /// Adds to its warnings what was asked for when it was opened, and had no effect.
    pub fn remark(&self, text: String) {
        self.core.remark.replace(Some(text));
    }

    /// When writes go through the journal.
    pub fn journal(&self) -> JournalUse {
        match self.core.layout {
            Some(layout) if layout.journal_always => JournalUse::Always,
            _ => JournalUse::Degraded,
        }
    }

    /// State of the array.
    pub fn status(&self) -> Status {
        let doubtful = self.core.doubtful_rows();
        let state = self.core.state.borrow();
        let is_rebuilding = state.now.contains(&MemberState::Rebuilding);
        Status {
            members: state.now.clone(),
            rows: self.core.shape.rows,
            rebuilt: if is_rebuilding { state.cursor - state.left_out.rows.len() } else { 0 },
            left_out: if is_rebuilding { state.left_out.rows.len() } else { 0 },
            out_of_sync: state.out_of_sync.len(),
            doubtful,
            stopped: state.stopped,
            error: state.rebuild_error.clone(),
        }
    }

    /// Reads all members and counts the rows that were not consistent, among those that should be; see
    /// [`Redundancy::scrub`].
    ///
    /// # Errors
    /// When a member that the array needs fails.
    pub async fn scrub(&self) -> Result<u64, DeviceError> {
        Ok(self.core().scrub(false, &|_| ()).await?.inconsistent)
    }

    /// The first sector of each member that holds data.
    #[doc(hidden)]
    pub fn data_start(&self) -> u64 {
        self.core.shape.data_start
    }

    /// Times that `member` returned wrong data.
    #[doc(hidden)]
    pub fn times_wrong(&self, member: usize) -> u64 {
        self.core.wrong[member].get()
    }

    /// Recounts everything that is assumed about the members from their content, while nothing is under way.
    ///
    /// # Errors
    /// What is inconsistent.
    pub async fn check(&self) -> Result<(), String> {
        self.core.check().await
    }
}

/// How long after a lack of space to try again to resynchronise and rebuild.
const TRY_AGAIN_AFTER: Nanos = Nanos::from_secs(30);

/// Starts background work, in one task: two would both advance the rebuild cursor.
fn start(core: &Rc<Core>) {
    let is_needed = {
        let state = core.state.borrow();
        !state.out_of_sync.is_empty() || state.now.contains(&MemberState::Rebuilding)
    };
    core.more_work.set(is_needed);
    if !is_needed {
        core.state.borrow_mut().rebuild_error.take_if(|error| is_no_space(error));
    }
    if !is_needed || core.working.get() {
        return;
    }
    let (rt, weak) = (core.rt.clone(), Rc::downgrade(core));
    let end = WorkUnderWay::new(core);
    core.rt.spawn(async move {
        while weak.upgrade().is_some_and(|core| core.more_work.take()) {
            resync::work(weak.clone()).await;
        }
        // A task that waits for its end sees the lack of space.
        drop(end);
        let is_full =
            weak.upgrade().is_some_and(|core| core.state.borrow().rebuild_error.as_ref().is_some_and(is_no_space));
        // One task is enough, however often others start.
        if is_full && weak.upgrade().is_some_and(|core| !core.will_try_again.replace(true)) {
            rt.sleep(TRY_AGAIN_AFTER).await;
            if let Some(core) = weak.upgrade() {
                core.will_try_again.set(false);
                start(&core);
            }
        }
    });
}

/// The task that resynchronises and rebuilds; it does not keep the array open.
struct WorkUnderWay(std::rc::Weak<Core>);

impl WorkUnderWay {
    fn new(core: &Rc<Core>) -> WorkUnderWay {
        core.working.set(true);
        WorkUnderWay(Rc::downgrade(core))
    }
}

impl Drop for WorkUnderWay {
    fn drop(&mut self) {
        if let Some(core) = self.0.upgrade() {
            core.working.set(false);
            core.worked.notify();
        }
    }
}

#[async_trait(?Send)]
impl Redundancy for Array {
    fn status(&self) -> RedundancyStatus {
        let Status { members, rows, rebuilt, left_out, out_of_sync, doubtful, stopped, error } = Array::status(self);
        let causes = &self.core.state.borrow().causes;
        let member = |(slot, state): (usize, MemberState)| MemberStatus {
            state,
            wrong: self.core.wrong[slot].get(),
            cause: causes.get(&slot).filter(|_| state == MemberState::Failed).cloned(),
        };
        RedundancyStatus {
            name: self.core.shape.level.name(),
            members: members.into_iter().enumerate().map(member).collect(),
            rows,
            row_bytes: self.core.shape.row_sectors() * SECTOR_BYTES,
            rebuilt,
            left_out,
            out_of_sync,
            doubtful,
            stopped,
            error,
            remark: self.core.remark.borrow().clone(),
        }
    }

    async fn scrub(&self, believe_data: bool, tell: &dyn Fn(u64)) -> Result<Scrubbed, DeviceError> {
        self.core().scrub(believe_data, tell).await
    }

    fn read_from_first(&self, on: bool) {
        self.core.from_first.set(on);
    }

    async fn resynced(&self) {
        while self.core.working.get() {
            self.core.worked.wait().await;
        }
    }
}

impl Core {
    /// Makes every completed write durable on every member in use.
    async fn flush(self: &Rc<Self>) -> Result<(), DeviceError> {
        if !self.state.borrow().redo.is_empty() {
            let _token = self.begin().await;
            self.redo_all().await;
        }
        let flush = self.flush_begins();
        self.flush_members().await?;
        self.flush_ended(flush).await?;
        self.acknowledge().await
    }
}

impl Core {
    async fn release(self: &Rc<Self>) -> Result<(), DeviceError> {
        let flush = self.flush_begins();
        self.flush_members().await?;
        self.clear_bits(flush).await?;
        // A member whose failure is not recorded must not fall behind: after a power cut it would not be trusted, while the bits of
        // the rows that it may lack say that they are in doubt (B4).
        self.acknowledge().await?;
        let mut steps = 0;
        while steps < OUTDATING_STEPS {
            self.write_superblocks(|_| ()).await?;
            steps += 1;
            if self.is_unrecorded() {
                self.record(false).await?;
                steps = 0;
            }
        }
        self.acknowledge().await?;
        let members: Vec<Device> = self.in_use().into_iter().map(|member| self.device(member)).collect();
        let results = futures_util::future::join_all(members.iter().map(|member| member.release())).await;
        results.into_iter().collect()
    }
}

#[async_trait(?Send)]
impl BlockDevice for Array {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn guarantees(&self) -> Guarantees {
        self.guarantees
    }

    async fn read(&self, at: Sector, buf: Buf) -> Result<Buf, DeviceError> {
        self.geometry.check(at, buf.len() as u64)?;
        if buf.is_empty() {
            return Ok(buf);
        }
        self.core().read(at, buf).await
    }

    fn readings(&self) -> u32 {
        self.core.readings()
    }

    async fn read_as(&self, at: Sector, buf: Buf, reading: u32) -> Result<Buf, DeviceError> {
        self.geometry.check(at, buf.len() as u64)?;
        match buf.is_empty() {
            true => Ok(buf),
            false => self.core().read_as(at, buf, reading).await,
        }
    }

    async fn correct(&self, at: Sector, data: Data) -> Result<bool, DeviceError> {
        self.geometry.check(at, data.len() as u64)?;
        match data.is_empty() {
            true => Ok(false),
            false => self.core.rt.spawn(self.core().correct(at, data)).await,
        }
    }

    /// Runs to its end even when the caller drops it: no row is left half written.
    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        self.geometry.check(at, data.len() as u64)?;
        if data.is_empty() {
            return Ok(());
        }
        let core = self.core();
        self.core.rt.spawn(core.write(at, data, flags)).await
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        let core = self.core();
        self.core.rt.spawn(async move { core.flush().await }).await
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        self.geometry.check(at, sectors.min(u64::MAX / SECTOR_BYTES) * SECTOR_BYTES)?;
        if self.guarantees.discard == Discard::Ignored || sectors == 0 {
            return Ok(());
        }
        let core = self.core();
        self.core.rt.spawn(core.discard(at, sectors)).await
    }

    async fn provision(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        self.geometry.check(at, sectors.min(u64::MAX / SECTOR_BYTES) * SECTOR_BYTES)?;
        if sectors == 0 {
            return Ok(());
        }
        let provisioned = self.core.provision(at, sectors).await;
        if self.core.is_unrecorded() {
            let core = self.core();
            let acknowledged = self.core.rt.spawn(async move { core.acknowledge().await }).await;
            return provisioned.and(acknowledged);
        }
        provisioned
    }

    /// Clears the bits of all consistent regions: after a release, nothing needs a resync.
    async fn release(&self) -> Result<(), DeviceError> {
        let core = self.core();
        self.core.rt.spawn(async move { core.release().await }).await
    }

    fn redundancy(&self) -> Option<&dyn Redundancy> {
        Some(self)
    }

    fn counters(&self) -> Vec<Counter> {
        let counts = &self.core.counts;
        vec![
            ("reads", counts.reads.get()),
            ("writes", counts.writes.get()),
            ("full_stripes", counts.full_stripes.get()),
            ("read_modify_writes", counts.read_modify_writes.get()),
            ("reconstruct_writes", counts.reconstruct_writes.get()),
            ("degraded_writes", counts.degraded_writes.get()),
            ("degraded_reads", counts.degraded_reads.get()),
            ("repaired", counts.repaired.get()),
            ("repairs_without_space", counts.repairs_without_space.get()),
            ("corrected", counts.corrected.get()),
            ("rows_settled", counts.resynced.get()),
            ("rows_rebuilt", counts.rebuilt.get()),
            ("bitmap_writes", counts.bitmap_writes.get()),
            ("journal_records", counts.journal_records.get()),
            ("superblock_writes", counts.superblock_writes.get()),
        ]
    }

    /// Its own metadata is at the beginning and the end of each member, where other options find it, too.
    fn arrangement(&self) -> u32 {
        self.core.members.borrow().iter().flatten().map(|member| member.arrangement()).max().unwrap_or(0)
    }

    fn describe(&self) -> String {
        let shape = self.core.shape;
        let state = self.core.state.borrow();
        let lost = state.now.iter().filter(|member_state| **member_state != MemberState::Active).count();
        let degraded = if lost > 0 { ", degraded" } else { "" };
        let first = self.core.members.borrow().iter().flatten().next().map(|device| device.describe());
        format!(
            "{} of {}, {} each ({}{degraded}) / {}",
            shape.level.name(),
            shape.members,
            human_bytes(shape.unit * SECTOR_BYTES),
            human_bytes(self.geometry.bytes()),
            first.unwrap_or_default()
        )
    }
}
