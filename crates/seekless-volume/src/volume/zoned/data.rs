//! Spans and their zones on the device: beginning a slot, writing, moving, emptying and resetting zones.

use super::format::{BLOCK_SECTORS, Change, NO_SLOT};
use super::load::written;
use super::metadata::{write_in_order, zoned};
use super::room::{Head, MOVED, USER};
use super::store::Store;
use crate::device::{Buf, Data, DeviceError, ZoneAction, ZoneState};
use crate::rt::cover;
use crate::units::{SECTOR_BYTES, Sector};

/// Bytes that are moved at a time.
const MOVE_BYTES: u64 = 1 << 20;

/// Empty zones with which users may take one (Z4).
const FREE_ZONES_MIN: usize = 2;

impl Store {
    /// Writes `data` to `span` where its write pointer is; the caller has checked that.
    pub(super) async fn write_span(&self, span: u32, data: &Data) -> Result<(), DeviceError> {
        let before = self.room().length(span);
        debug_assert!(self.gate().is_held(), "Z5: one write to a zone follows the other");
        let goes_on = self.room().head_of(span).is_some();
        let length = self.room().length(span);
        if !goes_on && length > 0 {
            // Other spans follow in its zone.
            self.cut(span, length).await?;
        } else if !goes_on {
            self.make_room().await?;
            let slot = self.begin_slot(USER).await?;
            let change = self.room().assign(span, slot, 0);
            self.record(vec![change]).await?;
            self.count(|counts| counts.spans_begun += 1);
        } else {
            // Its end was recorded, and then nothing came behind it: the record would hide what is appended now.
            let change = self.room().unseal(span);
            if let Some(change) = change {
                cover("zoned: a span goes on behind its recorded end");
                self.record(vec![change]).await?;
            }
        }
        let (head, slot) = {
            let room = self.room();
            match (room.head_of(span), room.slot_of(span)) {
                (Some(head), Some((slot, _))) => (head, slot),
                _ => unreachable!("Z5: the span goes on at a write pointer"),
            }
        };
        self.append(head, data).await?;
        self.count(|counts| counts.sectors_stored += data.len() as u64 / SECTOR_BYTES);
        let (_, offset) = self.layout().slot_place(slot);
        let mut room = self.room();
        let pointer = room.heads[head].map_or(0, |head| head.pointer);
        debug_assert_eq!(
            pointer - offset,
            before + data.len() as u64 / SECTOR_BYTES,
            "Z5: a span grows by what is written to it"
        );
        room.set_length(span, pointer - offset);
        Ok(())
    }

    /// Writes at the write pointer of a head (Z5).
    async fn append(&self, head: usize, data: &Data) -> Result<(), DeviceError> {
        let Some(Head { zone, pointer }) = self.room().heads[head] else { unreachable!("there is a head") };
        debug_assert!(
            pointer + data.len() as u64 / SECTOR_BYTES <= self.layout().zones.capacity_sectors,
            "Z5: what is written at a write pointer lies in its zone"
        );
        debug_assert!(!self.room().free.contains(&zone), "Z2: what is written to is not among the empty zones");
        let at = self.layout().zones.start(zone) + pointer;
        let result = write_in_order(self.below(), at, data).await;
        let pointer = match &result {
            Ok(()) => pointer + data.len() as u64 / SECTOR_BYTES,
            // A part may be there. What it belongs to does not count as written, and continues elsewhere.
            Err(_) => written(zoned(self.below())?, &self.layout().zones, zone)?,
        };
        self.room().heads[head] = Some(Head { zone, pointer });
        result
    }

    /// Begins the next slot at a head, in a new zone if the old one is full. There must be an empty one then.
    async fn begin_slot(&self, head: usize) -> Result<u32, DeviceError> {
        let next = self.room().next_slot(head);
        self.seal(head, next).await?;
        if let Some(slot) = next {
            let (_, offset) = self.layout().slot_place(slot);
            let pointer = self.room().heads[head].map_or(0, |head| head.pointer);
            debug_assert!(pointer <= offset, "Z5: a slot begins ahead of its zone's write pointer");
            self.pad(head, offset - pointer).await?;
            debug_assert_eq!(
                self.room().heads[head].map(|head| head.pointer),
                Some(offset),
                "Z5: a slot begins where its zone's write pointer is"
            );
            return Ok(slot);
        }
        self.leave(head).await?;
        let zone = self.room().free.pop_first().ok_or(DeviceError::NoSpace { at: Sector::ZERO, bytes: 0 })?;
        debug_assert!(!self.room().is_used(zone), "Z2: an empty zone holds no span");
        debug_assert!(!self.room().is_head(zone), "Z5: one head writes to a zone");
        self.room().heads[head] = Some(Head { zone, pointer: 0 });
        Ok(self.layout().slot(zone, 0))
    }

    /// Records how far those spans are written that the write pointer of a head leaves behind. Without this record, which a power cut
    /// can lose, they seem to continue with zeroes.
    async fn seal(&self, head: usize, next: Option<u32>) -> Result<(), DeviceError> {
        let changes = {
            let mut room = self.room();
            let zone = room.heads[head].map(|head| head.zone);
            zone.map_or(Vec::new(), |zone| room.seal_before(zone, next))
        };
        if changes.is_empty() { Ok(()) } else { self.record(changes).await }
    }

    /// Writes zeroes up to the next slot.
    async fn pad(&self, head: usize, sectors: u64) -> Result<(), DeviceError> {
        let mut left = sectors;
        while left > 0 {
            let count = left.min(MOVE_BYTES / SECTOR_BYTES);
            self.append(head, &Data::zeroes((count * SECTOR_BYTES) as usize)).await?;
            self.count(|counts| counts.sectors_padded += count);
            left -= count;
        }
        Ok(())
    }

    /// Nothing more is written to the zone of a head.
    async fn leave(&self, head: usize) -> Result<(), DeviceError> {
        let Some(Head { zone, .. }) = self.room().heads[head] else { return Ok(()) };
        let is_used = self.room().is_used(zone);
        if is_used && self.room().spans_in(zone).is_empty() {
            cover("zoned: a zone is left that holds only what is being moved");
        }
        if is_used && zoned(self.below())?.zone(zone)?.state != ZoneState::Full {
            zoned(self.below())?.manage(zone, ZoneAction::Finish).await?;
            self.count(|counts| counts.zones_finished += 1);
        }
        self.room().heads[head] = None;
        if is_used { Ok(()) } else { self.reset(&[zone]).await }
    }

    /// Sees to it that users can begin a slot.
    ///
    /// # Errors
    /// `NoSpace` never, while the spare zones are there.
    async fn make_room(&self) -> Result<(), DeviceError> {
        if self.room().next_slot(USER).is_some() {
            return Ok(());
        }
        while self.room().free.len() < FREE_ZONES_MIN {
            let dead = self.room().dead();
            if !dead.is_empty() {
                self.reset(&dead).await?;
                continue;
            }
            let victim = self.room().victim();
            match victim {
                Some(zone) => {
                    self.empty(zone).await?;
                    debug_assert!(!self.room().is_used(zone), "Z1: what is emptied holds no span");
                }
                None if self.room().free.is_empty() => return Err(DeviceError::NoSpace { at: Sector::ZERO, bytes: 0 }),
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Resets zones that hold no span.
    pub(super) async fn reset(&self, zones: &[u32]) -> Result<(), DeviceError> {
        debug_assert!(
            zones.iter().all(|&zone| !self.room().is_used(zone)),
            "Z1: a zone that is reset holds no span, and none is on its way there"
        );
        debug_assert!(
            zones.iter().all(|&zone| !self.room().is_head(zone)),
            "Z5: nothing is written to a zone that is reset"
        );
        debug_assert!(
            zones.iter().all(|zone| !self.room().free.contains(zone)),
            "Z2: what is empty is not reset again"
        );
        self.metadata().flush().await?; // Z1
        for &zone in zones {
            self.room().resets += 1;
            zoned(self.below())?.manage(zone, ZoneAction::Reset).await?;
            self.count(|counts| counts.zones_reset += 1);
        }
        self.metadata().flush().await?; // Z2
        self.room().free.extend(zones);
        Ok(())
    }

    /// Moves all spans out of a zone.
    async fn empty(&self, zone: u32) -> Result<(), DeviceError> {
        let spans = self.room().spans_in(zone);
        let (mut written, mut changes) = (Vec::new(), Vec::new());
        for span in spans {
            let length = self.room().length(span);
            match length {
                0 => changes.extend(self.forget(span)),
                _ => written.push((span, length)),
            }
        }
        if !changes.is_empty() {
            self.record(changes).await?;
        }
        cover("zoned: a zone is emptied");
        self.count(|counts| counts.spans_moved += written.len() as u64);
        if written.is_empty() { Ok(()) } else { self.relocate(&written, MOVED).await }
    }

    /// Leaves of `span` its first `keep` sectors, in another slot.
    pub(super) async fn cut(&self, span: u32, keep: u64) -> Result<(), DeviceError> {
        debug_assert!(0 < keep && keep <= self.room().length(span), "Z3: what stays of a span that is cut was written");
        self.make_room().await?;
        self.count(|counts| counts.spans_cut += 1);
        cover("zoned: the end of a span is cut off");
        self.relocate(&[(span, keep)], USER).await
    }

    /// Moves the first sectors of spans, at least one of each, to other slots, which are theirs from then on.
    async fn relocate(&self, spans: &[(u32, u64)], head: usize) -> Result<(), DeviceError> {
        debug_assert!(self.gate().is_held(), "Z5: no other task writes while spans move");
        let copied = self.copy(spans, head).await;
        self.room().filled();
        let changes = {
            let mut room = self.room();
            copied?.into_iter().map(|(span, slot, keep)| room.assign(span, slot, keep)).collect()
        };
        self.record(changes).await
    }

    /// Copies spans; returns where they are, durably (Z3).
    async fn copy(&self, spans: &[(u32, u64)], head: usize) -> Result<Vec<(u32, u32, u64)>, DeviceError> {
        let mut copies = Vec::new();
        for &(span, keep) in spans {
            let target = self.begin_slot(head).await?;
            self.room().fill(target);
            let Some((source, _)) = self.room().slot_of(span) else {
                unreachable!("a span that is moved is somewhere")
            };
            let start = self.layout().slot_start(source);
            let mut done = 0;
            while done < keep {
                let count = (keep - done).min(MOVE_BYTES / SECTOR_BYTES);
                let data = self.read_for_move(start + done, count).await?;
                self.append(head, &data).await?;
                done += count;
            }
            debug_assert_eq!(
                self.room().heads[head].map(|head| head.pointer),
                Some(self.layout().slot_place(target).1 + keep),
                "Z3: a copy is whole, and ends at the write pointer"
            );
            debug_assert_eq!(
                self.room().slot_of(span).map(|(slot, _)| slot),
                Some(source),
                "Z3: a span stays where it is until its copy is durable"
            );
            self.count(|counts| counts.sectors_moved += keep);
            copies.push((span, target, keep));
        }
        self.metadata().flush().await?;
        Ok(copies)
    }

    /// `sectors` from `at`; blocks that cannot be read are zeroes, which checksums above find.
    async fn read_for_move(&self, at: Sector, sectors: u64) -> Result<Data, DeviceError> {
        match self.read_below(at, Buf::dirty((sectors * SECTOR_BYTES) as usize)).await {
            Ok(buf) => return Ok(buf.freeze()),
            Err(error) if error.is_of_medium() => {}
            Err(error) => return Err(error),
        }
        let mut whole = Buf::zeroed((sectors * SECTOR_BYTES) as usize);
        let mut done = 0;
        while done < sectors {
            let count = BLOCK_SECTORS.min(sectors - done);
            match self.read_below(at + done, Buf::dirty((count * SECTOR_BYTES) as usize)).await {
                Ok(piece) => {
                    let from = (done * SECTOR_BYTES) as usize;
                    whole[from..from + piece.len()].copy_from_slice(&piece);
                }
                Err(error) if error.is_of_medium() => self.count(|counts| counts.sectors_lost += count),
                Err(error) => return Err(error),
            }
            done += count;
        }
        Ok(whole.freeze())
    }

    /// Empties a span, as a discard of all of it does.
    pub(super) fn forget(&self, span: u32) -> Option<Change> {
        self.room().slot_of(span)?;
        Some(self.room().assign(span, NO_SLOT, 0))
    }
}
