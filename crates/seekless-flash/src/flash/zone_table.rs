//! The state machine of zones, without any notion of time.
//!
//! Invariants, which [`ZoneTable::check`] recounts
//!   Z1  Only zones that are not empty are in the table.
//!   Z2  An active zone has been opened or written and is neither empty nor full; at most `active_max` are active, and at most
//!       `open_max` open.
//!   Z3  The write pointer is within the zone's capacity.

use std::collections::BTreeMap;

use crate::device::{DeviceError, ZoneAction, ZoneInfo, ZoneState, Zones};
use crate::units::Sector;

#[derive(Clone, Debug)]
pub(super) struct ZoneTable {
    zones: Zones,
    used: BTreeMap<u32, Zone>,
    /// Counts order of opening: the zone that was opened by a write longest ago is the one that the device closes.
    turn: u64,
}

#[derive(Clone, Copy, Debug)]
struct Zone {
    state: ZoneState,
    /// Sectors behind the first that were written.
    written: u64,
    opened: u64,
}

/// What a command did to the states of zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Effects {
    /// A zone was opened by the write.
    pub(super) opened: bool,
    /// A zone that the device closed to make room.
    pub(super) closed: Option<u32>,
}

impl ZoneTable {
    pub(super) fn new(zones: Zones) -> ZoneTable {
        ZoneTable { zones, used: BTreeMap::new(), turn: 0 }
    }

    /// All zones are full.
    pub(super) fn fill(&mut self) {
        let full = Zone { state: ZoneState::Full, written: self.zones.capacity_sectors, opened: 0 };
        self.used = (0..self.zones.count).map(|zone| (zone, full)).collect();
    }

    pub(super) fn zones(&self) -> &Zones {
        &self.zones
    }

    fn fail<T>(zone: u32, problem: &'static str) -> Result<T, DeviceError> {
        Err(DeviceError::Zone { zone, problem })
    }

    fn known(&self, zone: u32) -> Result<(), DeviceError> {
        match zone < self.zones.count {
            true => Ok(()),
            false => ZoneTable::fail(zone, "there is no such zone"),
        }
    }

    pub(super) fn info(&self, zone: u32) -> Result<ZoneInfo, DeviceError> {
        self.known(zone)?;
        let start = self.zones.start(zone);
        Ok(match self.used.get(&zone) {
            Some(used) => ZoneInfo { state: used.state, pointer: start + self.pointer(used) },
            None => ZoneInfo { state: ZoneState::Empty, pointer: start },
        })
    }

    fn pointer(&self, zone: &Zone) -> u64 {
        match zone.state {
            ZoneState::Full => self.zones.capacity_sectors,
            _ => zone.written,
        }
    }

    /// Sectors that were written since the zone was empty.
    pub(super) fn written(&self, zone: u32) -> u64 {
        self.used.get(&zone).map_or(0, |zone| zone.written)
    }

    /// Puts `sectors` at `at`, which must be a write pointer.
    pub(super) fn write(&mut self, at: Sector, sectors: u64) -> Result<Effects, DeviceError> {
        let zone = self.zones.zone_of(at);
        let ZoneInfo { state, pointer } = self.info(zone)?;
        if state == ZoneState::Full {
            return ZoneTable::fail(zone, "it is full; reset it first");
        }
        if at != pointer {
            return Err(DeviceError::NotAtWritePointer { at, zone, pointer });
        }
        self.advance(zone, pointer - self.zones.start(zone), sectors)
    }

    /// Puts `sectors` at the write pointer; returns where that was.
    pub(super) fn append(&mut self, zone: u32, sectors: u64) -> Result<(Sector, Effects), DeviceError> {
        let ZoneInfo { state, pointer } = self.info(zone)?;
        if state == ZoneState::Full {
            return ZoneTable::fail(zone, "it is full; reset it first");
        }
        let effects = self.advance(zone, pointer - self.zones.start(zone), sectors)?;
        Ok((pointer, effects))
    }

    fn advance(&mut self, zone: u32, written: u64, sectors: u64) -> Result<Effects, DeviceError> {
        if sectors > self.zones.capacity_sectors - written {
            return ZoneTable::fail(zone, "the write passes its capacity");
        }
        let state = self.used.get(&zone).map_or(ZoneState::Empty, |zone| zone.state);
        let effects = match state {
            ZoneState::Empty | ZoneState::Closed => self.open(zone, state, ZoneState::OpenedImplicitly)?,
            _ => Effects::default(),
        };
        let used = self.used.get_mut(&zone).expect("it is open");
        used.written += sectors;
        if used.written == self.zones.capacity_sectors {
            used.state = ZoneState::Full;
        }
        Ok(effects)
    }

    fn open(&mut self, zone: u32, from: ZoneState, into: ZoneState) -> Result<Effects, DeviceError> {
        let is_open = |zone: &&Zone| matches!(zone.state, ZoneState::Opened | ZoneState::OpenedImplicitly);
        let active = self.used.values().filter(|zone| zone.state != ZoneState::Full).count();
        if from == ZoneState::Empty && self.zones.active_max > 0 && active >= self.zones.active_max as usize {
            return ZoneTable::fail(zone, "too many zones are active; finish or reset one of them");
        }
        let mut closed = None;
        if self.zones.open_max > 0 && self.used.values().filter(is_open).count() >= self.zones.open_max as usize {
            let implicit = self.used.iter().filter(|(_, zone)| zone.state == ZoneState::OpenedImplicitly);
            let Some(oldest) = implicit.min_by_key(|(_, zone)| zone.opened).map(|(zone, _)| *zone) else {
                return ZoneTable::fail(zone, "too many zones are open; close one of them");
            };
            self.used.get_mut(&oldest).expect("it was just found").state = ZoneState::Closed;
            closed = Some(oldest);
        }
        self.turn += 1;
        let opened = self.turn;
        let entry = self.used.entry(zone).or_insert(Zone { state: into, written: 0, opened });
        (entry.state, entry.opened) = (into, opened);
        Ok(Effects { opened: true, closed })
    }

    /// Changes the state of a zone as a whole; returns the state before.
    pub(super) fn manage(&mut self, zone: u32, action: ZoneAction) -> Result<(ZoneState, Effects), DeviceError> {
        let ZoneInfo { state, .. } = self.info(zone)?;
        let mut effects = Effects::default();
        match (action, state) {
            (ZoneAction::Open, ZoneState::Opened) | (ZoneAction::Close, ZoneState::Closed) => {}
            (ZoneAction::Open, ZoneState::Full) => {
                return ZoneTable::fail(zone, "it is full; reset it first");
            }
            (ZoneAction::Open, ZoneState::OpenedImplicitly) => {
                self.used.get_mut(&zone).expect("it is open").state = ZoneState::Opened;
            }
            (ZoneAction::Open, ZoneState::Empty | ZoneState::Closed) => {
                effects = self.open(zone, state, ZoneState::Opened)?;
            }
            (ZoneAction::Close, ZoneState::Empty | ZoneState::Full) => {
                return ZoneTable::fail(zone, "it is not open");
            }
            (ZoneAction::Close, ZoneState::Opened | ZoneState::OpenedImplicitly) => {
                // What was opened and never written is empty again.
                match self.written(zone) {
                    0 => {
                        self.used.remove(&zone);
                    }
                    _ => self.used.get_mut(&zone).expect("it is open").state = ZoneState::Closed,
                }
            }
            (ZoneAction::Finish, _) => {
                let written = self.written(zone);
                self.used.insert(zone, Zone { state: ZoneState::Full, written, opened: 0 });
            }
            (ZoneAction::Reset, _) => {
                self.used.remove(&zone);
            }
        }
        Ok((state, effects))
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        let count = |wanted: &[ZoneState]| self.used.values().filter(|zone| wanted.contains(&zone.state)).count();
        assert_eq!(count(&[ZoneState::Empty]), 0, "Z1");
        let open = count(&[ZoneState::Opened, ZoneState::OpenedImplicitly]);
        let active = open + count(&[ZoneState::Closed]);
        assert!(self.zones.open_max == 0 || open <= self.zones.open_max as usize, "Z2");
        assert!(self.zones.active_max == 0 || active <= self.zones.active_max as usize, "Z2");
        assert!(self.used.values().all(|zone| zone.written <= self.zones.capacity_sectors), "Z3");
    }
}
