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

use std::fmt;
use std::rc::Rc;

use async_trait::async_trait;

pub use buf::{ALIGN_BYTES, Buf, BufPool, Data};
pub use memory::{Image, Memory};
pub use readings::{read_checked, read_right, read_span};
pub use redundancy::{MemberStatus, Redundancy, RedundancyStatus, Scrubbed, Standing, news};
pub use snapshots::{SnapshotError, SnapshotInfo, Snapshots};

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
    /// Largest request the device takes in one piece, in bytes; callers split longer ones.
    pub request_bytes_max: u32,
}

impl Geometry {
    pub fn bytes(&self) -> u64 {
        self.sectors * SECTOR_BYTES
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

/// What a device promises about writes when power fails. The crash device draws its faults from the same
/// declaration, so a promise that is not kept below cannot be relied on above.
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

/// What becomes of discarded sectors.
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
    /// The storage below has no room for all of this write; a part of it may be there. Trying again is safe, and
    /// deleting something below may help.
    #[error("no space below for {bytes} bytes at sector {at}")]
    NoSpace { at: Sector, bytes: u64 },
    #[error("device is read-only")]
    ReadOnly,
    /// Power is off, or the device has gone. Every later request fails alike.
    #[error("device is gone: {0}")]
    Gone(&'static str),
}

impl DeviceError {
    /// The device is there, and does not do this for these sectors: what else is on it may be readable, and so may a
    /// copy of what is lost.
    pub fn is_of_medium(&self) -> bool {
        matches!(self, DeviceError::Io { .. })
    }
}

/// How a write is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteFlags {
    /// Force unit access: this write is durable when it completes. Earlier writes are not promised anything.
    pub fua: bool,
}

impl WriteFlags {
    pub const NONE: WriteFlags = WriteFlags { fua: false };
    pub const FUA: WriteFlags = WriteFlags { fua: true };
}

/// Where a disk's heads are, for eager writing \[wa99\]. Arrays and remapping do not pass it on, but disks that follow each
/// other by address do: there each has an arm of its own.
pub trait HeadView {
    /// Time from `at` until the first byte of a one-sector write to `sector` would be under the head, if the
    /// drive were idle from now on: seek, head switch and rotation, without command overhead.
    fn positioning(&self, at: Nanos, sector: Sector) -> Nanos;

    /// Arms that move independently of each other.
    fn arms(&self) -> u32 {
        1
    }

    /// The track on which the heads of an arm stand: its first sector and its length in sectors.
    fn current_track(&self, arm: u32) -> (Sector, u64);

    /// Time from `at` until the medium would begin to take a write of `sectors` to `sector`, if the command came at
    /// `at` and the drive were idle: [`HeadView::positioning`] with all that a command costs before it.
    fn write_access(&self, at: Nanos, sector: Sector, sectors: u32) -> Nanos;

    /// The track on which `sector` lies; `None` beyond the last sector.
    fn track_of(&self, sector: Sector) -> Option<TrackPlace>;

    /// When a write of `sectors` to `sector` would be complete for which the command came at `at` and the drive were idle,
    /// and the heads as they would be then. `None` where that cannot be told, and beyond the last sector.
    fn after_write(&self, at: Nanos, sector: Sector, sectors: u32, flags: WriteFlags) -> Option<HeadsAt> {
        let _ = (at, sector, sectors, flags);
        None
    }
}

/// Heads at a moment to come.
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
    /// The arm that reaches it. Sectors of one follow those of the other.
    pub arm: u32,
}

/// A counter with the name under which reports show it.
pub type Counter = (&'static str, u64);

/// Something that stores blocks.
///
/// Requests may overlap in time; without an intervening flush their order is not defined, except that a request
/// submitted after another completed sees its effect. Requests that overlap in *space* while both are
/// outstanding are the caller's mistake, and their result is either's.
#[async_trait(?Send)]
pub trait BlockDevice {
    fn geometry(&self) -> Geometry;

    fn guarantees(&self) -> Guarantees;

    /// The head position, where there is a head and nothing between it and the caller.
    fn head(&self) -> Option<&dyn HeadView> {
        None
    }

    /// Fills `buf` with the bytes at `at` and returns it.
    ///
    /// # Errors
    /// `OutOfRange`, `Unaligned`, `Io`, `Gone`.
    async fn read(&self, at: Sector, buf: Buf) -> Result<Buf, DeviceError>;

    /// In how many ways the same bytes can be read: more than one where storage below is redundant. A caller that knows by a
    /// checksum that [`BlockDevice::read`] gave something else than was stored tries them, see [`read_right`].
    fn readings(&self) -> u32 {
        1
    }

    /// As [`BlockDevice::read`], in the way `reading`, which counts from 0 to [`BlockDevice::readings`]. On a mirror that
    /// is the copy of one member; with parity, what the others say when one member is believed to be wrong. Where a way
    /// makes no difference to some of the bytes, they are read as usual.
    ///
    /// # Errors
    /// As [`BlockDevice::read`], and when a member that this way needs is missing.
    async fn read_as(&self, at: Sector, buf: Buf, reading: u32) -> Result<Buf, DeviceError> {
        let _ = reading;
        self.read(at, buf).await
    }

    /// Says that `data`, which one of the readings gave, is what `at` should hold. Where one of them still gives it, members
    /// that hold something else are written; what has been stored since stays. Returns whether any was.
    ///
    /// # Errors
    /// When a member could not be read or written. The caller has its data, and may go on.
    async fn correct(&self, at: Sector, data: Data) -> Result<bool, DeviceError> {
        let _ = (at, data);
        Ok(false)
    }

    /// Stores `data` at `at`.
    ///
    /// # Errors
    /// `OutOfRange` and `Unaligned` leave everything as it was. After `NoSpace` a part of the write may be there,
    /// and the device goes on working. After `Io` any part of the write may have reached the medium, now or later.
    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError>;

    /// Makes every write that completed before this call durable.
    ///
    /// # Errors
    /// After an error it is not known which of those writes are durable, and a later success says nothing about
    /// them: the caller must not try again and believe it.
    async fn flush(&self) -> Result<(), DeviceError>;

    /// Says that `sectors` from `at` hold nothing of value, so that the storage below may be given back.
    /// What a read then returns is said by [`Guarantees::discard`].
    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError>;

    /// Makes sure that later writes to `sectors` from `at` will not fail with `NoSpace`, where storage below is
    /// allocated on demand. What the sectors hold does not change.
    ///
    /// # Errors
    /// `NoSpace`, and then nothing was allocated that matters.
    async fn provision(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        self.geometry().check(at, sectors * SECTOR_BYTES)
    }

    /// Says that whoever used the device is done with it, after its last flush: what it keeps in case power fails while
    /// it is in use can be put away. It can be used again.
    ///
    /// # Errors
    /// When that could not be done. Nothing is lost then; the next start may take longer.
    async fn release(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Its snapshots, where it can have any.
    fn snapshots(&self) -> Option<&dyn Snapshots> {
        None
    }

    /// How its members are, where it has some of which not all are needed.
    fn redundancy(&self) -> Option<&dyn Redundancy> {
        None
    }

    /// Counts of what has happened, in an order fit for printing.
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
