//! Writing the metadata zones.
//!
//! Records are appended to one of the two zones. When it is full, the whole state goes to the other one as a snapshot; once that
//! is durable, the first zone is reset. So one of the zones holds a whole log at any moment, and the store starts from the newer.

use std::cell::{Cell, RefCell};

use super::format::{Change, MAGIC, MetadataRecord, RecordHead, SNAPSHOT, VERSION};
use super::layout::Layout;
use super::load::{Loaded, written};
use crate::device::{Data, Device, DeviceError, WriteFlags, ZoneAction, Zoned};
use crate::rt::cover;
use crate::units::{SECTOR_BYTES, Sector};

pub(super) struct Metadata {
    device: Device,
    layout: Layout,
    uuid: [u8; 16],
    /// The zone whose log counts, and where its next record goes.
    end: Cell<(u32, u64)>,
    sequence: Cell<u64>,
    /// The next record must begin a new log.
    is_worn: Cell<bool>,
    /// A record could not be written: the log does not lead to what the books say.
    is_behind: Cell<bool>,
    /// Why nothing more can be written.
    stopped: RefCell<Option<String>>,
    pub(super) counts: Cell<Counts>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) records: u64,
    pub(super) snapshots: u64,
    pub(super) bytes: u64,
}

/// The whole state, for a snapshot.
pub(super) struct State {
    pub(super) changes: Vec<Change>,
    pub(super) blocks: Vec<(u32, Box<[u8]>)>,
}

impl Metadata {
    /// For a new store: the first record begins the log in zone 0.
    pub(super) fn new(device: Device, layout: Layout, uuid: [u8; 16], sequence: u64) -> Metadata {
        Metadata {
            device,
            layout,
            uuid,
            end: Cell::new((1, 0)),
            sequence: Cell::new(sequence),
            is_worn: Cell::new(true),
            is_behind: Cell::new(false),
            stopped: RefCell::default(),
            counts: Cell::default(),
        }
    }

    pub(super) fn loaded(device: Device, loaded: &Loaded) -> Metadata {
        let metadata = Metadata::new(device, loaded.layout, loaded.uuid, loaded.sequence);
        metadata.end.set((loaded.zone, loaded.end));
        metadata.is_worn.set(loaded.is_worn);
        metadata
    }

    /// # Errors
    /// `Io` after a flush has failed: what is durable is unknown then, and only opening the store again finds out.
    pub(super) fn check_running(&self) -> Result<(), DeviceError> {
        match &*self.stopped.borrow() {
            Some(cause) => {
                let cause = format!("a flush has failed before ({cause}); open the store again");
                Err(DeviceError::Io { operation: "write", at: Sector::ZERO, bytes: 0, cause })
            }
            None => Ok(()),
        }
    }

    /// Makes everything durable that has completed.
    ///
    /// # Errors
    /// Those of the device. After one, nothing is changed any more.
    pub(super) async fn flush(&self) -> Result<(), DeviceError> {
        let result = self.device.flush().await;
        if let Err(error) = &result {
            *self.stopped.borrow_mut() = Some(error.to_string());
        }
        result
    }

    /// Appends a record; `state` is everything, with what this record says. Durable with the next flush.
    ///
    /// # Errors
    /// Those of the device. The next record then begins a new log, with what this one says.
    pub(super) async fn append(
        &self,
        changes: Vec<Change>,
        blocks: Vec<(u32, Box<[u8]>)>,
        state: impl FnOnce() -> State,
    ) -> Result<(), DeviceError> {
        self.check_running()?;
        let record = MetadataRecord { head: self.head(0), changes, blocks }.encode();
        let (zone, end) = self.end.get();
        let fits = end + record.len() as u64 / SECTOR_BYTES <= self.layout.log_sectors_max();
        let result = match fits && !self.is_worn.get() {
            true => self.put(zone, end, record).await,
            false => self.begin_again(state()).await,
        };
        if result.is_err() {
            self.is_worn.set(true);
        }
        self.is_behind.set(result.is_err());
        result
    }

    /// The last record could not be written.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind.get()
    }

    fn head(&self, flags: u32) -> RecordHead {
        let zones = self.layout.zones;
        RecordHead {
            magic: MAGIC,
            version: VERSION,
            crc: 0,
            uuid: self.uuid,
            sequence: self.sequence.get(),
            flags,
            copy: 0,
            bytes: 0,
            change_count: 0,
            block_count: 0,
            zone_count: zones.count,
            zone_sectors: zones.zone_sectors,
            capacity_sectors: zones.capacity_sectors,
            span_sectors: self.layout.span_sectors,
            span_count: self.layout.span_count,
            reserved: 0,
        }
    }

    /// Writes a record at the end of the log.
    async fn put(&self, zone: u32, end: u64, bytes: Vec<u8>) -> Result<(), DeviceError> {
        debug_assert!(
            end + bytes.len() as u64 / SECTOR_BYTES <= self.layout.log_sectors_max(),
            "a record lies in the part of its zone that the log may use"
        );
        debug_assert!(
            (bytes.len() as u64).is_multiple_of(SECTOR_BYTES),
            "Z5: a record ends where the next one can begin"
        );
        let at = self.layout.zones.start(zone) + end;
        write_in_order(&self.device, at, &Data::from_slice(&bytes)).await?;
        self.end.set((zone, end + bytes.len() as u64 / SECTOR_BYTES));
        self.sequence.set(self.sequence.get() + 1);
        let Counts { records, snapshots, bytes: sum } = self.counts.get();
        self.counts.set(Counts { records: records + 1, snapshots, bytes: sum + bytes.len() as u64 });
        Ok(())
    }

    /// Begins a new log in the other zone.
    async fn begin_again(&self, state: State) -> Result<(), DeviceError> {
        let zoned = zoned(&self.device)?;
        let old = self.end.get().0;
        let new = 1 - old;
        if written(zoned, &self.layout.zones, new)? > 0 {
            zoned.manage(new, ZoneAction::Reset).await?;
        }
        let State { changes, blocks } = state;
        self.put(new, 0, MetadataRecord { head: self.head(SNAPSHOT), changes, blocks }.encode()).await?;
        cover("zoned: a new log in the other metadata zone");
        self.flush().await?; // Commit point: until now the old log is the truth.
        debug_assert_eq!(self.end.get().0, new, "the log goes on where the snapshot is, before the old one is reset");
        if written(zoned, &self.layout.zones, old)? > 0 {
            zoned.manage(old, ZoneAction::Reset).await?;
        }
        self.is_worn.set(false);
        let counts = self.counts.get();
        self.counts.set(Counts { snapshots: counts.snapshots + 1, ..counts });
        Ok(())
    }
}

/// What the zones of the device need.
pub(super) fn zoned(device: &Device) -> Result<&dyn Zoned, DeviceError> {
    device.zoned().ok_or(DeviceError::Gone("its zones have gone"))
}

/// Writes `data` at the write pointer `at`, in pieces that the device takes, one after another.
pub(super) async fn write_in_order(device: &Device, at: Sector, data: &Data) -> Result<(), DeviceError> {
    let most = device.geometry().request_bytes_max as usize;
    for from in (0..data.len()).step_by(most) {
        let piece = data.slice(from..(from + most).min(data.len()));
        device.write(at + from as u64 / SECTOR_BYTES, piece, WriteFlags::NONE).await?;
    }
    Ok(())
}
