//! Devices whose blocks are written in order, in zones: flash drives with zoned namespaces, shingled disks.
//!
//! A zone is written from its beginning to its capacity, at its *write pointer*, until a reset empties all of it.
//! [`BlockDevice::write`](super::BlockDevice::write) works on such a device as long as each write begins at a write
//! pointer and stays in its zone; otherwise it fails with [`DeviceError::NotAtWritePointer`] and has changed nothing.
//! [`Zoned`] has what [`BlockDevice`](super::BlockDevice) cannot express.
//!
//! Terms and states are those of the NVMe zoned namespace command set and of ZBC for disks.

use async_trait::async_trait;

use super::{Data, DeviceError, WriteFlags};
use crate::units::Sector;

/// The zones of a device: all of one size, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Zones {
    pub count: u32,
    /// Distance from the first sector of a zone to that of the next.
    pub zone_sectors: u64,
    /// Sectors that can be written, from the zone's first; at most `zone_sectors`.
    pub capacity_sectors: u64,
    /// Zones that can be open at once; 0 for no limit.
    pub open_max: u32,
    /// Zones that can be open or closed at once, which is neither empty nor full; 0 for no limit.
    pub active_max: u32,
}

impl Zones {
    /// The zone of a sector.
    pub fn zone_of(&self, at: Sector) -> u32 {
        u32::try_from(at.0 / self.zone_sectors).unwrap_or(u32::MAX)
    }

    /// First sector of a zone.
    pub fn start(&self, zone: u32) -> Sector {
        Sector(u64::from(zone) * self.zone_sectors)
    }
}

/// State of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ZoneState {
    #[default]
    Empty,
    /// Opened by a write. The device closes it by itself when another zone is to be opened.
    OpenedImplicitly,
    /// Opened by [`ZoneAction::Open`].
    Opened,
    /// It has a write pointer and is not open.
    Closed,
    /// Nothing can be written before a reset.
    Full,
}

/// A zone as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneInfo {
    pub state: ZoneState,
    /// Where the next write has to begin; behind the capacity when it is full.
    pub pointer: Sector,
}

/// What can be done with a zone as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneAction {
    Open,
    Close,
    /// Nothing more is to be written until the next reset.
    Finish,
    /// Its content is gone, and it is empty.
    Reset,
}

/// The part of a device that is written in order though it has no zones of its own: spans of one size, one after the other.
///
/// A span is written as a zone is: each write begins where the one before ended, otherwise it fails with
/// [`DeviceError::NotAtWritePointer`], which calls the span a zone and has changed nothing. A discard from a place to the end of the span makes
/// that place the one where the next write begins. What lies outside of all spans can be written anywhere. Writes to spans that
/// are outstanding at once may take effect in any order; so the caller waits for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spans {
    /// First sector of the first span.
    pub first: Sector,
    /// Length of a span.
    pub sectors: u64,
    pub count: u64,
}

/// What zones need beside reads and writes.
#[async_trait(?Send)]
pub trait Zoned {
    /// State and write pointer of a zone.
    ///
    /// # Errors
    /// `Zone` when there is no such zone.
    fn zone(&self, zone: u32) -> Result<ZoneInfo, DeviceError>;

    /// Stores `data` at the write pointer of `zone`, wherever that is when the device takes the command; returns where. Several
    /// appends to one zone may be outstanding at once.
    ///
    /// # Errors
    /// As [`BlockDevice::write`](super::BlockDevice::write); `Zone` when it does not fit into the zone, or too many zones are
    /// open.
    async fn append(&self, zone: u32, data: Data, flags: WriteFlags) -> Result<Sector, DeviceError>;

    /// Changes the state of a zone.
    ///
    /// # Errors
    /// `Zone` when the zone is not in a state for that, or too many are open.
    async fn manage(&self, zone: u32, action: ZoneAction) -> Result<(), DeviceError>;
}
