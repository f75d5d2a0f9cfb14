//! Arrays that bear the loss of a member: RAID-1 and RAID-5.
//!
//! What is promised: a write that has been acknowledged is on so many members that any one of them can fail at any
//! moment. A member that has missed something is never believed later: that it failed is recorded on the others
//! before anything it missed is acknowledged. After a power cut, rows that were being written are settled before they
//! are used, so that what a reader saw stays. The format and the reasons are in `FORMAT.md` beside `volume/format.rs`.
//!
//! What is not promised, and what is done about it:
//!
//! * *Power fails while the array is complete, and a member is lost before the rows that were being written have been
//!   settled.* Of the missing member's units, those in regions that were being written cannot be known (the write
//!   hole). Reading them is an error that says so, until they have been written again; `doubt=accept` serves what can
//!   be computed instead. With `journal=always` there is no such case, and every write is done twice.
//! * *A second member is lost.* An array with parity stops; a mirror goes on with its last member.
//!
//! The work is divided: `core` knows the members and what is recorded about them, `shape` where what lies, `plan` what
//! a row takes, `rows` who may touch it, `read` and `write` do it, `readings` reads
//! in other ways, `content` looks before a new member is written over, `bitmap` and `journal` remember what is under way,
//! `settle` makes rows consistent and fills new members, `open` finds everything again.

mod bitmap;
mod content;
mod core;
mod journal;
mod open;
mod plan;
mod read;
mod readings;
mod request;
mod rows;
mod scrub;
mod settle;
mod shape;
#[cfg(test)]
mod tests;
mod write;

use std::rc::Rc;

use async_trait::async_trait;

pub use self::content::content;
use self::core::Core;
pub use self::core::Standing;
pub use self::open::{ArrayInfo, MemberInfo, info};
pub use self::shape::Level;
use crate::device::{
    BlockDevice, Buf, Counter, Data, Device, DeviceError, Discard, Geometry, Guarantees, MemberStatus, Redundancy,
    RedundancyStatus, Scrubbed, WriteFlags,
};
use crate::rt::Rt;
use crate::units::{KIB, MIB, SECTOR_BYTES, Sector, human_bytes};
use crate::volume::members::{ShapeError, block_bytes, joined, request_sectors_max};

/// When writes go through the journal first. Mirrors have none, and need none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JournalUse {
    /// Where a member is missing.
    Degraded,
    /// Always: also a power cut and the loss of a member at once lose nothing.
    Always,
}

/// What to do about data that cannot be known for certain, see the head of this room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doubt {
    Refuse,
    Accept,
}

/// What is on the members of a new array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents {
    /// They read as zeroes: fresh ones in memory, for instance.
    Zeroes,
    /// Anything. It is discarded where that makes zeroes; otherwise all rows are settled in the background.
    Unknown,
    /// Anything, and the members keep the space that they have: all rows are settled in the background.
    Allocated,
}

/// How an array is made or opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArrayOptions {
    pub level: Level,
    /// Sectors of a stripe unit; on a mirror, of what is locked and made equal at once. Fixed when the array is made.
    pub unit: u64,
    /// Opening compares the unit with that of the array.
    pub unit_given: bool,
    /// Bytes of a member for which the bitmap has one bit; a value that fits its size by default. Fixed.
    pub region: Option<u64>,
    /// Fixed.
    pub journal: JournalUse,
    /// Open also when a member is missing that was there before.
    pub degraded: bool,
    pub doubt: Doubt,
    /// Change nothing on the members: what has to be recovered is recovered in memory.
    pub read_only: bool,
    /// Bytes of one member that are settled or rebuilt at once.
    pub batch: u64,
    /// A rebuild records how far it has come after so many bytes of the member.
    pub progress: u64,
}

impl ArrayOptions {
    /// Units of 64 KiB, as Linux md had them for long.
    pub fn new(level: Level) -> ArrayOptions {
        ArrayOptions {
            level,
            unit: 64 * KIB / SECTOR_BYTES,
            unit_given: false,
            region: None,
            journal: JournalUse::Degraded,
            degraded: false,
            doubt: Doubt::Refuse,
            read_only: false,
            batch: MIB,
            progress: 256 * MIB,
        }
    }

    /// With a stripe unit of so many sectors.
    pub fn unit(self, unit: u64) -> ArrayOptions {
        ArrayOptions { unit, unit_given: true, ..self }
    }
}

/// Why an array cannot be made or opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ArrayError {
    #[error("member {member}: {error}")]
    Device { member: usize, error: DeviceError },
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
    #[error(
        "members {one} and {two} have each gone on without the other; open one of them alone, and put the other in as new"
    )]
    Conflict { one: usize, two: usize },
    #[error("{what}: {said} is asked for, and the array has {found}")]
    Contradiction { what: &'static str, said: String, found: String },
    #[error("member {slot} is missing: {why}")]
    Missing { slot: usize, why: String },
    #[error("{active} members hold the data and {needed} are needed; lost: {lost:?}")]
    TooFew { active: usize, needed: usize, lost: Vec<usize> },
    #[error("the journal is damaged: it wants to write sector {at} of member {member}, where no data is")]
    Journal { member: usize, at: Sector },
    #[error("member {slot} {why}")]
    Replace { slot: usize, why: &'static str },
}

/// How an array is doing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    pub members: Vec<Standing>,
    pub rows: u64,
    /// Rows that the member being rebuilt holds.
    pub rebuilt: u64,
    /// Rows that a power cut may have left inconsistent, and that have not been settled yet.
    pub unsettled: u64,
    /// Of these, the ones with a unit that cannot be known.
    pub doubtful: u64,
    /// More members are lost than the array can bear.
    pub stopped: bool,
    /// Why settling or rebuilding has ended early.
    pub error: Option<DeviceError>,
}

impl Status {
    /// Every member holds everything, and all rows are consistent.
    pub fn is_healthy(&self) -> bool {
        self.members.iter().all(|standing| *standing == Standing::Active) && self.unsettled == 0 && !self.stopped
    }
}

/// RAID-1 or RAID-5 over several devices.
pub struct Array {
    core: Rc<Core>,
    geometry: Geometry,
    guarantees: Guarantees,
}

impl Array {
    /// Makes a new array called `uuid` on `members`, all of whose content is lost.
    ///
    /// # Errors
    /// When the members do not fit, and when one fails.
    pub async fn create(
        rt: &Rt,
        members: Vec<Device>,
        options: &ArrayOptions,
        uuid: [u8; 16],
        contents: Contents,
    ) -> Result<Rc<Array>, ArrayError> {
        open::create(rt, members, options, uuid, contents).await
    }

    /// Opens the array that is on `members`, in any order; `None` for one that is missing. What was under way at a
    /// power cut is put right, and rebuilding goes on.
    ///
    /// # Errors
    /// When there is none, or it does not fit the options; see [`ArrayError`].
    pub async fn open(rt: &Rt, members: Vec<Option<Device>>, options: &ArrayOptions) -> Result<Rc<Array>, ArrayError> {
        open::open(rt, members, options).await
    }

    /// An array without metadata, to ask for times: it knows nothing of power cuts, and members whose content fits each
    /// other are believed to be there.
    ///
    /// # Errors
    /// When the members do not fit.
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
            guarantees.discard = Discard::Ignored; // Anything else would make parity and copies differ.
        }
        let geometry = Geometry { sectors: shape.sectors(), block_bytes: block_bytes(members), request_bytes_max };
        Array { core, geometry, guarantees }
    }

    fn core(&self) -> Rc<Core> {
        self.core.clone()
    }

    /// Starts what there is to do in the background: one task, since two would both move the end of what is rebuilt.
    fn start(&self) {
        let is_needed = {
            let state = self.core.state.borrow();
            !state.unsettled.is_empty() || state.now.contains(&Standing::Rebuilding)
        };
        self.core.more_work.set(is_needed);
        if is_needed && !self.core.working.get() {
            let (core, weak) = (self.core(), Rc::downgrade(&self.core));
            let end = WorkUnderWay::new(&core);
            drop(core);
            self.core.rt.spawn(async move {
                while weak.upgrade().is_some_and(|core| core.more_work.take()) {
                    settle::work(weak.clone()).await;
                }
                drop(end);
            });
        }
    }

    /// Gives up the member in `slot`, as if it had failed.
    ///
    /// # Errors
    /// When the array cannot do without it, and then nothing changes.
    pub async fn give_up(&self, slot: usize) -> Result<(), ArrayError> {
        let is_needed = {
            let state = self.core.state.borrow();
            let active = state.now.iter().filter(|standing| **standing == Standing::Active).count();
            let others = active - usize::from(state.now.get(slot) == Some(&Standing::Active));
            let needed = if self.core.shape.level == Level::Mirror { 1 } else { self.core.shape.members - 1 };
            slot >= state.now.len() || others < needed
        };
        if is_needed {
            return Err(ArrayError::Replace { slot, why: "cannot be given up: the array needs it" });
        }
        self.core.fail(slot);
        self.core.acknowledge().await.map_err(|error| ArrayError::Device { member: slot, error })
    }

    /// Puts `device` in the place of the failed member `slot` and starts to fill it. What is on it is lost. The array
    /// can be used all the time; when it is opened again, filling goes on where it was.
    ///
    /// # Errors
    /// When the member has not failed, the device does not fit, or it cannot be written.
    pub async fn replace(&self, slot: usize, device: Device) -> Result<(), ArrayError> {
        let core = &self.core;
        let shape = core.shape;
        {
            let state = core.state.borrow();
            if state.now.get(slot) != Some(&Standing::Failed) {
                return Err(ArrayError::Replace { slot, why: "has not failed, or there is no such member" });
            }
            if state.now.contains(&Standing::Rebuilding) {
                return Err(ArrayError::Replace { slot, why: "has to wait: another one is being rebuilt" });
            }
        }
        let geometry = device.geometry();
        if geometry.sectors < shape.data_start + shape.rows * shape.unit
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
        let bad = |error| ArrayError::Device { member: slot, error };
        core.admit(slot, device).await.map_err(bad)?;
        core.acknowledge().await.map_err(bad)?;
        self.start();
        Ok(())
    }

    /// When writes go through the journal.
    pub fn journal(&self) -> JournalUse {
        match self.core.layout {
            Some(layout) if layout.journal_always => JournalUse::Always,
            _ => JournalUse::Degraded,
        }
    }

    /// How the array is doing.
    pub fn status(&self) -> Status {
        let doubtful = self.core.doubtful_rows();
        let state = self.core.state.borrow();
        let is_rebuilding = state.now.contains(&Standing::Rebuilding);
        Status {
            members: state.now.clone(),
            rows: self.core.shape.rows,
            rebuilt: if is_rebuilding { state.cursor } else { 0 },
            unsettled: state.unsettled.len(),
            doubtful,
            stopped: state.stopped,
            error: state.rebuild_error.clone(),
        }
    }

    /// Reads all members and counts the rows that were not consistent, among those that should be; see
    /// [`Redundancy::scrub`].
    ///
    /// # Errors
    /// When a member fails that the array needs.
    pub async fn scrub(&self) -> Result<u64, DeviceError> {
        Ok(self.core().scrub(false, &|_| ()).await?.inconsistent)
    }

    /// The first sector of each member that holds data.
    #[doc(hidden)]
    pub fn data_start(&self) -> u64 {
        self.core.shape.data_start
    }

    /// Times that `member` held something else than was stored.
    #[doc(hidden)]
    pub fn times_wrong(&self, member: usize) -> u64 {
        self.core.wrong[member].get()
    }

    /// Recounts everything that is believed about the members from what is on them, while nothing is under way.
    ///
    /// # Errors
    /// What does not fit.
    pub async fn check(&self) -> Result<(), String> {
        self.core.check().await
    }
}

/// The task that settles and rebuilds, which does not keep the array in use.
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
        let Status { members, rows, rebuilt, unsettled, doubtful, stopped, error } = Array::status(self);
        let member =
            |(standing, wrong): (Standing, &std::cell::Cell<u64>)| MemberStatus { standing, wrong: wrong.get() };
        RedundancyStatus {
            name: self.core.shape.level.name(),
            members: members.into_iter().zip(&self.core.wrong).map(member).collect(),
            rows,
            row_bytes: self.core.shape.row_sectors() * SECTOR_BYTES,
            rebuilt,
            unsettled,
            doubtful,
            stopped,
            error,
        }
    }

    async fn scrub(&self, believe_data: bool, tell: &dyn Fn(u64)) -> Result<Scrubbed, DeviceError> {
        self.core().scrub(believe_data, tell).await
    }

    fn read_from_first(&self, on: bool) {
        self.core.from_first.set(on);
    }

    async fn settled(&self) {
        while self.core.working.get() {
            self.core.worked.wait().await;
        }
    }
}

impl Core {
    /// Makes every write that has completed durable on every member in use.
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

    /// Goes on to its end when the caller goes away: half of a row is not written.
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
        self.core.provision(at, sectors).await
    }

    /// Clears the bits of all regions that are consistent: an array that was released has nothing to settle.
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
            ("corrected", counts.corrected.get()),
            ("rows_settled", counts.settled.get()),
            ("rows_rebuilt", counts.rebuilt.get()),
            ("bitmap_writes", counts.bitmap_writes.get()),
            ("journal_records", counts.journal_records.get()),
            ("superblock_writes", counts.superblock_writes.get()),
        ]
    }

    fn describe(&self) -> String {
        let shape = self.core.shape;
        let state = self.core.state.borrow();
        let lost = state.now.iter().filter(|standing| **standing != Standing::Active).count();
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
