//! The store as a block device.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;

use async_trait::async_trait;
use futures_util::future::join_all;

use super::ZonedError;
use super::format::{BLOCK_BYTES, BLOCK_SECTORS, Change, METADATA_ZONES, NO_SLOT};
use super::layout::{Layout, Plan, TargetPiece};
use super::load::{load, written, zoned_of};
use super::metadata::{Metadata, zoned};
use super::room::{Head, Room};
use crate::device::{
    BlockDevice, Buf, Counter, Data, Device, DeviceError, Discard, Geometry, Guarantees, Spans, WriteFlags, ZoneAction,
    ZoneState,
};
use crate::rt::{Gate, cover};
use crate::units::{SECTOR_BYTES, Sector, human_bytes};

/// A store on a device with zones.
pub struct Store {
    below: Device,
    geometry: Geometry,
    layout: Layout,
    metadata: Metadata,
    room: RefCell<Room>,
    /// What changes the store does so alone (Z5).
    gate: Gate,
    read_only: bool,
    counts: Cell<Counts>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) sectors_stored: u64,
    pub(super) spans_begun: u64,
    pub(super) spans_cut: u64,
    pub(super) spans_moved: u64,
    pub(super) sectors_moved: u64,
    pub(super) sectors_padded: u64,
    pub(super) sectors_lost: u64,
    pub(super) zones_reset: u64,
    pub(super) zones_finished: u64,
}

impl Store {
    /// Makes a new, empty store; everything on the device is lost.
    ///
    /// # Errors
    /// `Plan` when the device does not allow it.
    pub async fn create(below: Device, plan: &Plan) -> Result<Rc<Store>, ZonedError> {
        let layout = Layout::plan(&below.geometry(), plan)?;
        let (zones, _) = zoned_of(&below)?;
        for zone in 0..layout.zones.count {
            if zones.zone(zone)?.state != ZoneState::Empty {
                zones.manage(zone, ZoneAction::Reset).await?;
            }
        }
        below.flush().await?; // No record of an earlier store may be taken for one of this.
        let metadata = Metadata::new(below.clone(), layout, plan.uuid, 1);
        let mut room = Room::new(layout, vec![NO_SLOT; layout.span_count as usize], Default::default());
        room.free = room.zones().collect();
        let store = Store::of(below, layout, metadata, room, false);
        store.record(Vec::new()).await?;
        Ok(store)
    }

    /// Opens a store, after a power cut or not. With `read_only` nothing is written.
    ///
    /// # Errors
    /// `Nothing` when there is none, `Damaged` when its records cannot be read.
    pub async fn open(below: Device, read_only: bool) -> Result<Rc<Store>, ZonedError> {
        if !read_only {
            // What is read now may be in a volatile cache only, and zones are reset because of it (Z1).
            below.flush().await?;
        }
        let loaded = load(&below).await?;
        let layout = loaded.layout;
        let metadata = Metadata::loaded(below.clone(), &loaded);
        let room = Room::new(layout, loaded.map, loaded.blocks);
        let store = Store::of(below, layout, metadata, room, read_only);
        store.survey().await?;
        for (&span, &length) in &loaded.sealed {
            store.room().seal(span, length.into());
        }
        Ok(store)
    }

    fn of(below: Device, layout: Layout, metadata: Metadata, room: Room, read_only: bool) -> Rc<Store> {
        let request_bytes_max = u32::try_from(layout.span_sectors * SECTOR_BYTES).unwrap_or(1 << 31);
        let geometry = Geometry { sectors: layout.sectors(), zones: None, request_bytes_max, ..below.geometry() };
        let (room, gate, counts) = (RefCell::new(room), Gate::new(), Cell::default());
        Rc::new(Store { below, geometry, layout, metadata, room, gate, read_only, counts })
    }

    /// Learns from the write pointers what was written, and where it continues.
    async fn survey(&self) -> Result<(), ZonedError> {
        let zones = self.layout.zones;
        let (mut left_over, mut unused) = (Vec::new(), Vec::new());
        for zone in METADATA_ZONES..zones.count {
            let state = zoned(&self.below)?.zone(zone)?.state;
            let pointer = written(zoned(&self.below)?, &zones, zone)?;
            let mut room = self.room.borrow_mut();
            let spans = room.spans_in(zone);
            for &span in &spans {
                let Some((slot, _)) = room.slot_of(span) else { continue };
                let (_, offset) = self.layout.slot_place(slot);
                room.set_length(span, pointer.saturating_sub(offset).min(self.layout.span_sectors));
            }
            match (spans.is_empty(), state) {
                (true, ZoneState::Empty) => {
                    room.free.insert(zone);
                }
                // It counts as active on the device.
                (true, state) if state != ZoneState::Full => unused.push(zone),
                (true, _) | (false, ZoneState::Full) => {}
                (false, _) => match room.heads.iter().position(Option::is_none) {
                    Some(head) => room.heads[head] = Some(Head { zone, pointer }),
                    None => {
                        cover("zoned: more than two zones are partly written");
                        left_over.push(zone);
                    }
                },
            }
        }
        if self.read_only {
            return Ok(());
        }
        if !unused.is_empty() {
            self.reset(&unused).await?;
        }
        for zone in left_over {
            zoned(&self.below)?.manage(zone, ZoneAction::Finish).await?;
        }
        Ok(())
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    pub(super) fn below(&self) -> &Device {
        &self.below
    }

    pub(super) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The books. Never held across an `await`.
    pub(super) fn room(&self) -> RefMut<'_, Room> {
        self.room.borrow_mut()
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    /// Appends a record of changes that the books already have.
    pub(super) async fn record(&self, changes: Vec<Change>) -> Result<(), DeviceError> {
        self.metadata.append(changes, Vec::new(), || self.room.borrow().state()).await
    }

    /// Before a change begins, while the gate is held: makes up for a record that could not be written. Otherwise what is written
    /// now could be acknowledged though no record leads there, and a zone reset that the log still needs (Z1).
    async fn catch_up(&self) -> Result<(), DeviceError> {
        debug_assert!(self.gate.is_held(), "Z5: a record is written alone");
        self.metadata.check_running()?;
        if self.metadata.is_behind() { self.record(Vec::new()).await } else { Ok(()) }
    }

    /// The parts of a request.
    fn pieces(&self, at: Sector, sectors: u64) -> Vec<(TargetPiece, u64, u64)> {
        let (mut pieces, mut done) = (Vec::new(), 0);
        while done < sectors {
            let (place, most) = self.layout.place(at + done);
            let count = most.min(sectors - done);
            debug_assert!(count > 0, "a request is cut into parts that are something");
            pieces.push((place, done, count));
            done += count;
        }
        pieces
    }

    fn check_writable(&self, at: Sector, bytes: u64) -> Result<(), DeviceError> {
        self.geometry.check(at, bytes)?;
        if self.read_only { Err(DeviceError::ReadOnly) } else { Ok(()) }
    }

    /// Checks that every part of a write to a span begins where the span ends.
    fn check_pointers(&self, pieces: &[(TargetPiece, u64, u64)]) -> Result<(), DeviceError> {
        let room = self.room.borrow();
        for (place, ..) in pieces {
            if let TargetPiece::Span { span, offset } = *place
                && room.length(span) != offset
            {
                let start = self.layout.span_start(span);
                let (at, pointer) = (start + offset, start + room.length(span));
                return Err(DeviceError::NotAtWritePointer { at, zone: span, pointer });
            }
        }
        Ok(())
    }

    /// Stores parts of fixed blocks, in one record.
    async fn write_fixed(&self, parts: &[(u32, u64, Data)]) -> Result<(), DeviceError> {
        let mut changed = Vec::new();
        for (block, offset, data) in parts {
            let mut room = self.room.borrow_mut();
            let content = room.blocks.entry(*block).or_insert_with(|| vec![0; BLOCK_BYTES].into());
            let from = (offset * SECTOR_BYTES) as usize;
            content[from..from + data.len()].copy_from_slice(data);
            changed.push((*block, content.clone()));
        }
        self.metadata.append(Vec::new(), changed, || self.room.borrow().state()).await
    }

    /// Reads from the device below, in pieces that it takes.
    pub(super) async fn read_below(&self, at: Sector, mut buf: Buf) -> Result<Buf, DeviceError> {
        let most = self.below.geometry().request_bytes_max as usize;
        if buf.len() <= most {
            return self.below.read(at, buf).await;
        }
        let reads = (0..buf.len()).step_by(most).map(|from| {
            let count = most.min(buf.len() - from);
            self.below.read(at + from as u64 / SECTOR_BYTES, Buf::dirty(count))
        });
        for (number, piece) in join_all(reads).await.into_iter().enumerate() {
            let piece = piece?;
            buf[number * most..number * most + piece.len()].copy_from_slice(&piece);
        }
        Ok(buf)
    }

    async fn read_once(&self, at: Sector, mut buf: Buf) -> Result<Buf, DeviceError> {
        let sectors = buf.len() as u64 / SECTOR_BYTES;
        for (place, done, count) in self.pieces(at, sectors) {
            let range = (done * SECTOR_BYTES) as usize..((done + count) * SECTOR_BYTES) as usize;
            match place {
                TargetPiece::Fixed { block, offset } => {
                    let from = (offset * SECTOR_BYTES) as usize;
                    match self.room.borrow().blocks.get(&block) {
                        Some(content) => buf[range.clone()].copy_from_slice(&content[from..from + range.len()]),
                        None => buf[range].fill(0),
                    }
                }
                TargetPiece::Span { span, offset } => {
                    let found = self.room.borrow().slot_of(span);
                    let there = found.map_or(0, |(_, length)| length.saturating_sub(offset).min(count));
                    let start = found.map(|(slot, _)| self.layout.slot_start(slot) + offset);
                    match start {
                        Some(start) if there == sectors => return self.read_below(start, buf).await,
                        Some(start) if there > 0 => {
                            let piece = self.read_below(start, Buf::dirty((there * SECTOR_BYTES) as usize)).await?;
                            buf[range.start..range.start + piece.len()].copy_from_slice(&piece);
                        }
                        _ => {}
                    }
                    buf[range.start + (there * SECTOR_BYTES) as usize..range.end].fill(0);
                }
            }
        }
        Ok(buf)
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        self.room.borrow().check();
    }
}

#[async_trait(?Send)]
impl BlockDevice for Store {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn guarantees(&self) -> Guarantees {
        let below = self.below.guarantees();
        // A discard that does not reach the end of a span does nothing.
        Guarantees { ordered: below.ordered && below.durable_on_completion, discard: Discard::Undefined, ..below }
    }

    fn spans(&self) -> Option<Spans> {
        let Layout { span_sectors, span_count, .. } = self.layout;
        Some(Spans { first: self.layout.first_span(), sectors: span_sectors, count: span_count.into() })
    }

    async fn read(&self, at: Sector, mut buf: Buf) -> Result<Buf, DeviceError> {
        self.geometry.check(at, buf.len() as u64)?;
        loop {
            let resets = self.room.borrow().resets;
            let size = buf.len();
            buf = self.read_once(at, buf).await?;
            debug_assert_eq!(buf.len(), size, "a read fills its buffer");
            // The slot may have been given to another span since its place was looked up.
            if self.room.borrow().resets == resets {
                return Ok(buf);
            }
        }
    }

    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        self.check_writable(at, data.len() as u64)?;
        let _pass = self.gate.enter().await;
        self.catch_up().await?;
        let pieces = self.pieces(at, data.len() as u64 / SECTOR_BYTES);
        self.check_pointers(&pieces)?;
        let part = |done: u64, count: u64| {
            data.slice((done * SECTOR_BYTES) as usize..((done + count) * SECTOR_BYTES) as usize)
        };
        let mut fixed = Vec::new();
        for &(place, done, count) in &pieces {
            match place {
                TargetPiece::Fixed { block, offset } => fixed.push((block, offset, part(done, count))),
                TargetPiece::Span { span, .. } => self.write_span(span, &part(done, count)).await?,
            }
        }
        if !fixed.is_empty() {
            self.write_fixed(&fixed).await?;
        }
        if flags.fua && !self.below.guarantees().durable_on_completion {
            self.metadata.flush().await?;
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.metadata.check_running()?;
        self.metadata.flush().await
    }

    /// Empties spans, or cuts off the end of one. Other parts stay as they are.
    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        self.check_writable(at, sectors.min(u64::MAX / SECTOR_BYTES) * SECTOR_BYTES)?;
        let _pass = self.gate.enter().await;
        self.catch_up().await?;
        let mut changes = Vec::new();
        for (place, _, count) in self.pieces(at, sectors) {
            let TargetPiece::Span { span, offset } = place else { continue };
            let cuts = offset + count == self.layout.span_sectors && offset < self.room.borrow().length(span);
            match offset {
                0 if count == self.layout.span_sectors => changes.extend(self.forget(span)),
                0 => {}
                _ if cuts => self.cut(span, offset).await?,
                _ => {}
            }
        }
        if changes.is_empty() { Ok(()) } else { self.record(changes).await }
    }

    async fn release(&self) -> Result<(), DeviceError> {
        self.below.release().await
    }

    fn counters(&self) -> Vec<Counter> {
        let counts = self.counts.get();
        let metadata = self.metadata.counts.get();
        vec![
            ("sectors_stored", counts.sectors_stored),
            ("spans_begun", counts.spans_begun),
            ("spans_cut", counts.spans_cut),
            ("spans_moved", counts.spans_moved),
            ("sectors_moved", counts.sectors_moved),
            ("sectors_padded", counts.sectors_padded),
            ("sectors_lost", counts.sectors_lost),
            ("zones_reset", counts.zones_reset),
            ("zones_finished", counts.zones_finished),
            ("records", metadata.records),
            ("record_bytes", metadata.bytes),
            ("snapshots", metadata.snapshots),
        ]
    }

    fn arrangement(&self) -> u32 {
        self.below.arrangement()
    }

    fn describe(&self) -> String {
        format!("zoned ({})", human_bytes(self.geometry.bytes()))
    }
}

const _: () = assert!(BLOCK_SECTORS * SECTOR_BYTES == BLOCK_BYTES as u64);
