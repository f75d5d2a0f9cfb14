//! Block devices: what is stored where, and what survives a power cut.
//!
//! [`BlockDevice`] is the lower of the two interfaces of Seekless. Everything that stores bytes implements it:
//! memory, files, modelled disks, arrays, and the pass-through devices that record, cut power or inject errors.
//! A file system learns about what lies below it only from [`Geometry`] and [`Guarantees`].

mod buf;
pub mod crash;
pub mod cut;
pub mod fault;
pub mod fork;
mod memory;
mod readings;
mod redundancy;
pub mod rescue;
mod snapshots;
pub mod trace;
mod zones;

use std::fmt;
use std::rc::Rc;

use async_trait::async_trait;

pub use buf::{ALIGN_BYTES, Buf, BufferId, Data};
pub use memory::{Image, Memory};
pub use readings::{read_right, read_span};
pub use redundancy::{MemberState, MemberStatus, Redundancy, RedundancyStatus, Scrubbed, news};
pub use rescue::read_checked;
pub use snapshots::{SnapshotError, SnapshotInfo, Snapshots};
pub use zones::{Spans, ZoneAction, ZoneInfo, ZoneState, Zoned, Zones};

use crate::units::{Nanos, SECTOR_BYTES, Sector};

/// A shared device. Requests through different clones may be outstanding at the same time.
pub type Device = Rc<dyn BlockDevice>;

/// Shape of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Size of the device in 512-byte sectors.
    pub sectors: u64,
    /// Smallest unit that can be read or written, in bytes: a power of two, at least 512. Addresses and
    /// lengths of requests are multiples of it.
    pub block_bytes: u32,
    /// Largest single request that the device takes, in bytes; callers split longer ones.
    pub request_bytes_max: u32,
    /// The zones of a device that is written in order only; then [`BlockDevice::zoned`] has what they need.
    pub zones: Option<Zones>,
}

impl Geometry {
    pub fn bytes(&self) -> u64 {
        self.sectors * SECTOR_BYTES
    }

    /// Bytes that the device can hold: without the gaps behind what its zones hold.
    pub fn capacity_bytes(&self) -> u64 {
        let held = self.zones.map(|zones| u64::from(zones.count) * zones.capacity_sectors * SECTOR_BYTES);
        held.map_or(self.bytes(), |held| held.min(self.bytes()))
    }

    /// Checks that a request of `bytes` at `at` is aligned and inside the device.
    ///
    /// # Errors
    /// `Unaligned` or `OutOfRange`.
    pub fn check(&self, at: Sector, bytes: u64) -> Result<(), DeviceError> {
        let block = u64::from(self.block_bytes);
        let start =
            at.0.checked_mul(SECTOR_BYTES).ok_or(DeviceError::OutOfRange { at, bytes, sectors: self.sectors })?;
        if !start.is_multiple_of(block) || !bytes.is_multiple_of(block) {
            return Err(DeviceError::Unaligned { at, bytes, block_bytes: self.block_bytes });
        }
        match start.checked_add(bytes) {
            Some(end) if end <= self.bytes() => Ok(()),
            _ => Err(DeviceError::OutOfRange { at, bytes, sectors: self.sectors }),
        }
    }
}

/// What a device promises about writes when power fails. The crash device draws its faults from the same declaration,
/// so code above cannot rely on a promise that the device below does not keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guarantees {
    /// A write of this many bytes, aligned to as many, is there or absent after a cut, never torn. At least 512.
    pub atomic_write_bytes: u32,
    /// A completed write is durable by itself, as on a drive without a write cache. Otherwise only
    /// [`BlockDevice::flush`] or a write with `fua` makes it so.
    pub durable_on_completion: bool,
    /// Unflushed writes reach the medium in the order in which they completed; after a cut a prefix is there.
    pub ordered: bool,
    /// What a read returns after [`BlockDevice::discard`].
    pub discard: Discard,
}

/// What happens to discarded sectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discard {
    /// Nothing happens.
    Ignored,
    /// They read as zeroes.
    Zeroes,
    /// They read as zeroes, as before, or as anything else.
    Undefined,
}

/// What went wrong on a device, and where.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DeviceError {
    #[error("request of {bytes} bytes at sector {at} passes the end of the device ({sectors} sectors)")]
    OutOfRange { at: Sector, bytes: u64, sectors: u64 },
    #[error("request of {bytes} bytes at sector {at} is not aligned to the device's {block_bytes}-byte blocks")]
    Unaligned { at: Sector, bytes: u64, block_bytes: u32 },
    #[error("cannot {operation} {bytes} bytes at sector {at}: {cause}")]
    Io { operation: &'static str, at: Sector, bytes: u64, cause: String },
    /// The storage below has no room for all of this write; a part of it may be there. The caller may try again safely;
    /// freeing space below may help.
    #[error("no space below for {bytes} bytes at sector {at}")]
    NoSpace { at: Sector, bytes: u64 },
    #[error("device is read-only")]
    ReadOnly,
    /// Nothing was written.
    #[error("write at sector {at} is not at the write pointer of zone {zone}, which is at sector {pointer}")]
    NotAtWritePointer { at: Sector, zone: u32, pointer: Sector },
    /// The zone is not in a state for this, and stays in its state.
    #[error("zone {zone}: {problem}")]
    Zone { zone: u32, problem: &'static str },
    /// Power is off, or the device has gone. Every later request fails in the same way.
    #[error("device is gone: {0}")]
    Gone(&'static str),
}

impl DeviceError {
    /// The device works, but cannot do this for these sectors: its other sectors may be readable, and so may a copy of
    /// what is lost.
    pub fn is_of_medium(&self) -> bool {
        matches!(self, DeviceError::Io { .. })
    }
}

/// The result of two parts of a request. An error of unknown effect wins over `NoSpace`, after which the caller may go on.
pub fn worse(one: Result<(), DeviceError>, other: Result<(), DeviceError>) -> Result<(), DeviceError> {
    match (one, other) {
        (Ok(()) | Err(DeviceError::NoSpace { .. }), Err(other)) => Err(other),
        (one, _) => one,
    }
}

/// How a write is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteFlags {
    /// Force unit access: this write is durable when it completes. It promises nothing about earlier writes.
    pub fua: bool,
}

impl WriteFlags {
    pub const NONE: WriteFlags = WriteFlags { fua: false };
    pub const FUA: WriteFlags = WriteFlags { fua: true };
}

/// Where a disk's heads are, for eager writing \[wa99\]. Arrays and remapping devices do not pass it on. A
/// concatenation of disks does, with one arm for each disk.
pub trait HeadView {
    /// Arms that move independently of each other.
    fn arms(&self) -> u32 {
        1
    }

    /// The track on which the heads of an arm are: its first sector and its length in sectors.
    fn current_track(&self, arm: u32) -> (Sector, u64);

    /// Time from `at` until the medium would begin to take a write of `sectors` to `sector`, if the command came at
    /// `at` and the drive were idle: command overhead, seek, head switch and rotation.
    fn write_access(&self, at: Nanos, sector: Sector, sectors: u32) -> Nanos;

    /// The track on which `sector` lies; `None` beyond the last sector.
    fn track_of(&self, sector: Sector) -> Option<TrackPlace>;

    /// For a write of `sectors` to `sector` whose command comes at `at` while the drive is idle: when it would be
    /// complete, and the heads at that moment. `None` where the drive cannot predict that, and beyond the last sector.
    fn after_write(&self, at: Nanos, sector: Sector, sectors: u32, flags: WriteFlags) -> Option<HeadsAt> {
        let _ = (at, sector, sectors, flags);
        None
    }
}

/// Heads at a future moment.
pub type HeadsAt = (Nanos, Box<dyn HeadView>);

/// A track, as the sectors that follow each other on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrackPlace {
    /// First sector.
    pub first: Sector,
    /// Length in sectors.
    pub sectors: u64,
    /// Tracks with the same number are reached from each other by a head switch, without a seek.
    pub cylinder: u32,
    /// The arm that reaches it. The sectors of one arm follow those of the previous arm.
    pub arm: u32,
}

/// A counter with the name under which reports show it.
pub type Counter = (&'static str, u64);

/// Something that stores blocks.
///
/// Requests may overlap in time; without an intervening flush their order is not defined, except that a request
/// submitted after another completed sees its effect. Requests that overlap in *space* while both are outstanding are
/// the caller's mistake; either result is possible.
///
/// Methods with a default, and what a device that passes requests on does with each:
///
/// | method | what to do |
/// |---|---|
/// | `readings`, `read_as`, `correct` | pass them on, or checksums above cannot reach the other copies below |
/// | `provision`, `release` | pass them on |
/// | `next_data` | pass it on, translated where addresses are; leave it where data is also kept elsewhere, such as in a cache |
/// | `arrangement`, `parts`, `part_at` | pass them on, or members in another order are not noticed |
/// | `head` | pass it on if the device changes no addresses and takes no time |
/// | `zoned` | pass it on if it changes no addresses; otherwise leave it, and say `zones: None` in the geometry |
/// | `spans` | pass it on if it changes no addresses |
/// | `redundancy`, `snapshots` | leave them: whatever builds a stack asks each of its devices |
/// | `counters` | return its own alone, for the same reason |
#[async_trait(?Send)]
pub trait BlockDevice {
    fn geometry(&self) -> Geometry;

    fn guarantees(&self) -> Guarantees;

    /// The head position, where there is a head and nothing between it and the caller.
    fn head(&self) -> Option<&dyn HeadView> {
        None
    }

    /// Identifies how addresses are spread over the devices below, where nothing stored there records it: a checksum of
    /// the numbers that have to be the same again. 0 where there is nothing to get wrong.
    fn arrangement(&self) -> u32 {
        0
    }

    /// Number of devices below that can be assembled in another order without [`BlockDevice::arrangement`] changing. 1 where there is
    /// no such order.
    fn parts(&self) -> u32 {
        1
    }

    /// Which of them holds `sector`, counted from 0, and how many sectors from there on.
    fn part_at(&self, sector: Sector) -> (u32, u64) {
        let _ = sector;
        (0, u64::MAX)
    }

    /// Fills `buf` with the bytes at `at` and returns it.
    ///
    /// # Errors
    /// `OutOfRange`, `Unaligned`, `Io`, `Gone`.
    async fn read(&self, at: Sector, buf: Buf) -> Result<Buf, DeviceError>;

    /// The first sector from `at` on that may hold anything but zeroes, as far as the storage knows without reading: what was never written
    /// to a sparse file is skipped. `None` where there is no such sector up to the end. The answer is a multiple of a block; one that
    /// comes too early, such as `at` itself, is always allowed. Writes under way may be missing from it.
    ///
    /// # Errors
    /// `Io`, `Gone`.
    async fn next_data(&self, at: Sector) -> Result<Option<Sector>, DeviceError> {
        Ok((at.0 < self.geometry().sectors).then_some(at))
    }

    /// In how many ways the same bytes can be read: more than one where storage below is redundant. A caller whose
    /// checksum shows that [`BlockDevice::read`] returned wrong data tries them, see [`read_right`].
    fn readings(&self) -> u32 {
        1
    }

    /// As [`BlockDevice::read`], in the way `reading`, which counts from 0 to [`BlockDevice::readings`]. On a mirror
    /// that is the copy of one member; with parity, the data reconstructed from the other members, on the assumption
    /// that one member is wrong. Bytes to which this makes no difference are read as usual.
    ///
    /// # Errors
    /// As [`BlockDevice::read`], and when a member that this reading needs is missing.
    async fn read_as(&self, at: Sector, buf: Buf, reading: u32) -> Result<Buf, DeviceError> {
        let _ = reading;
        self.read(at, buf).await
    }

    /// Tells the device that `data`, which one of the readings returned, is what `at` should hold. If one of them still
    /// returns it, the device writes it to members that hold something else; newer writes are kept. Returns whether any
    /// member was written.
    ///
    /// # Errors
    /// When a member could not be read or written. The caller has its data and may continue.
    async fn correct(&self, at: Sector, data: Data) -> Result<bool, DeviceError> {
        let _ = (at, data);
        Ok(false)
    }

    /// Stores `data` at `at`.
    ///
    /// # Errors
    /// `OutOfRange`, `Unaligned`, `NotAtWritePointer` and `Zone` leave everything as it was. After `NoSpace` a part of the write may be there,
    /// and the device continues working. After `Io` any part of the write may have reached the medium, now or later.
    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError>;

    /// Makes every write durable that completed before this call.
    ///
    /// # Errors
    /// After an error it is unknown which of those writes are durable, and a later success says nothing about them: the
    /// caller must not rely on a retry.
    async fn flush(&self) -> Result<(), DeviceError>;

    /// Declares that `sectors` from `at` hold nothing of value, so that the storage below can reuse the space.
    /// [`Guarantees::discard`] says what a read then returns.
    ///
    /// # Errors
    /// `NoSpace` when the storage has no space to note what is free: a part may have been discarded, and the device continues
    /// working.
    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError>;

    /// Makes sure that later writes to `sectors` from `at` will not fail with `NoSpace`, where storage below is
    /// allocated on demand. What the sectors hold does not change.
    ///
    /// # Errors
    /// `NoSpace`; the call then left no allocation that matters.
    async fn provision(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        self.geometry().check(at, sectors * SECTOR_BYTES)
    }

    /// Tells the device that its user is done with it, after the last flush: state kept only in case of a power cut can
    /// be saved or dropped. The device can be used again.
    ///
    /// # Errors
    /// When that could not be done. Nothing is lost then; the next start may take longer.
    async fn release(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// What its zones need beside reads and writes, where [`Geometry::zones`] has some.
    fn zoned(&self) -> Option<&dyn Zoned> {
        None
    }

    /// The part of it that must be written in order, where there is one.
    fn spans(&self) -> Option<Spans> {
        None
    }

    /// Its own snapshots, where it can have any.
    fn snapshots(&self) -> Option<&dyn Snapshots> {
        None
    }

    /// The state of its own members, where it is redundant.
    fn redundancy(&self) -> Option<&dyn Redundancy> {
        None
    }

    /// Counts of what has happened, in an order suitable for printing: in this device, not in those below. A name ends in
    /// its unit (`_ns`, `_bytes`) unless it counts, and in `_max` where the largest of several devices is meant, not the
    /// sum.
    fn counters(&self) -> Vec<Counter> {
        Vec::new()
    }

    /// One line for people, for example `disk:dec-rz26 (1.0 GiB)`.
    fn describe(&self) -> String;
}

impl fmt::Debug for dyn BlockDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}
