//! Where a request of the trace goes on the storage.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use seekless::device::Geometry;
use seekless::units::{MIB, SECTOR_BYTES, Sector};

use super::error::ReplayError;
use crate::trace::{DeviceId, Names, Op, Request, Summary};

/// What to do with requests beyond the end of the storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Map {
    /// Fail.
    Error,
    /// Begin again at the start.
    Wrap,
    /// Shrink or stretch all addresses, so that the trace fills the storage. Lengths stay.
    Scale,
}

impl FromStr for Map {
    type Err = String;

    fn from_str(text: &str) -> Result<Map, String> {
        match text {
            "error" => Ok(Map::Error),
            "wrap" => Ok(Map::Wrap),
            "scale" => Ok(Map::Scale),
            _ => Err(format!("there is no mapping `{text}`; there are error, wrap and scale")),
        }
    }
}

impl fmt::Display for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Map::Error => "error",
            Map::Wrap => "wrap",
            Map::Scale => "scale",
        })
    }
}

/// What to do with a trace of several devices, whose addresses overlap.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Devices {
    /// There must be one only.
    #[default]
    One,
    /// They are placed one behind another, each with its minimum size.
    Concatenate,
}

/// Sizes and places of the trace's devices, found by a first pass over the trace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TraceLayout {
    /// Where each device begins.
    starts: BTreeMap<DeviceId, u64>,
    /// Total size of all of them.
    end: u64,
}

impl TraceLayout {
    /// The layout from the counts of `summary`.
    ///
    /// # Errors
    /// When there are several devices and only one is allowed, or too many to distinguish.
    pub fn of(summary: &Summary, devices: &Devices, names: &Names) -> Result<TraceLayout, ReplayError> {
        if *devices == Devices::One && summary.devices.len() > 1 {
            let several: Vec<String> = summary.devices.keys().take(8).map(|id| names.text(*id)).collect();
            return Err(ReplayError::SeveralDevices { count: summary.devices.len(), first: several.join(" ") });
        }
        if summary.devices_lost > 0 {
            return Err(ReplayError::Spec("the trace has more devices than can be distinguished".into()));
        }
        let mut layout = TraceLayout::default();
        for (device, numbers) in &summary.devices {
            layout.starts.insert(*device, layout.end);
            let end = layout.end.checked_add(numbers.end).and_then(|end| end.checked_next_multiple_of(MIB));
            layout.end =
                end.ok_or(ReplayError::Spec("the trace's devices together are larger than 2^64 bytes".into()))?;
        }
        // A single device ends where it ends.
        if let (1, Some(only)) = (summary.devices.len(), summary.devices.values().next()) {
            layout.end = only.end;
        }
        Ok(layout)
    }

    /// Bytes of storage that the trace needs.
    pub(super) fn end(&self) -> u64 {
        self.end
    }
}

/// Storage with gaps behind what its zones hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Gaps {
    /// Bytes that a zone holds.
    held: u64,
    /// From one zone to the next.
    distance: u64,
}

/// A request, placed. A flush has no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Placed {
    pub(super) at: Sector,
    pub(super) bytes: u64,
    gaps: Option<Gaps>,
}

impl Placed {
    /// Where it is, and how many bytes there: in several places if it goes on behind a gap.
    pub(super) fn parts(self) -> impl Iterator<Item = (Sector, u64)> {
        let Gaps { held, distance } = self.gaps.unwrap_or(Gaps { held: u64::MAX, distance: u64::MAX });
        let (mut at, mut left) = (self.at.0 * SECTOR_BYTES, self.bytes);
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let in_zone = at % distance;
            let part = (Sector(at / SECTOR_BYTES), left.min(held - in_zone));
            at += distance - in_zone;
            left -= part.1;
            Some(part)
        })
    }
}

/// Places requests on one storage, whose addresses are those of what can be written.
pub(super) struct Placer {
    map: Map,
    layout: Option<TraceLayout>,
    /// The only device of a trace that may have one.
    only: Option<DeviceId>,
    /// Bytes that can be written.
    capacity: u64,
    block: u64,
    gaps: Option<Gaps>,
    /// Counts of requests that were widened to whole blocks, discards that were narrowed to them, and requests that were moved.
    pub(super) widened: u64,
    pub(super) narrowed: u64,
    pub(super) moved: u64,
    /// Requests that were longer than the storage.
    pub(super) shortened: u64,
}

impl Placer {
    pub(super) fn new(map: Map, layout: Option<TraceLayout>, geometry: Geometry) -> Result<Placer, ReplayError> {
        if map == Map::Scale && layout.as_ref().is_none_or(|layout| layout.end == 0) {
            return Err(ReplayError::Spec("to scale addresses, the size of the trace must be known beforehand".into()));
        }
        let block = u64::from(geometry.block_bytes);
        let zones = geometry.zones.filter(|zones| zones.capacity_sectors < zones.zone_sectors);
        let held = |capacity_sectors: u64| capacity_sectors * SECTOR_BYTES / block * block;
        let zones = zones.map(|zones| (held(zones.capacity_sectors), zones.zone_sectors * SECTOR_BYTES, zones.count));
        let (capacity, gaps) = match zones.filter(|(held, _, _)| *held > 0) {
            Some((held, distance, count)) => (held * u64::from(count), Some(Gaps { held, distance })),
            None => (geometry.bytes() / block * block, None),
        };
        Ok(Placer { map, layout, only: None, capacity, block, gaps, widened: 0, narrowed: 0, moved: 0, shortened: 0 })
    }

    pub(super) fn place(&mut self, request: &Request) -> Result<Placed, ReplayError> {
        let start = match &self.layout {
            Some(layout) => layout.starts.get(&request.device).copied(),
            None => (*self.only.get_or_insert(request.device) == request.device).then_some(0),
        };
        let start = start.ok_or(ReplayError::Spec("the trace has a device that it had not before".into()))?;
        if request.op == Op::Flush {
            return Ok(Placed { at: Sector::ZERO, bytes: 0, gaps: None });
        }
        let too_far = || ReplayError::TooFar { needed: u64::MAX, capacity: self.capacity };
        let offset = start.checked_add(request.offset).ok_or_else(too_far)?;
        let end = offset.checked_add(request.bytes).ok_or_else(too_far)?;
        // What is read or written covers every block that it touches. A discard drops only blocks that it covers: what is beside
        // it in a block still holds data.
        let (at, end) = match request.op {
            Op::Discard => (offset.checked_next_multiple_of(self.block), Some(end / self.block * self.block)),
            _ => (Some(offset / self.block * self.block), end.checked_next_multiple_of(self.block)),
        };
        let (mut at, end) = at.zip(end).ok_or_else(too_far)?;
        let end = end.max(at);
        let mut bytes = end - at;
        self.widened += u64::from(bytes > request.bytes);
        self.narrowed += u64::from(bytes < request.bytes);
        match (self.map, &self.layout) {
            (Map::Error, layout) if end > self.capacity => {
                let needed = layout.as_ref().map_or(end, |layout| layout.end.max(end));
                return Err(ReplayError::TooFar { needed, capacity: self.capacity });
            }
            (Map::Wrap, _) if end > self.capacity => {
                at = (at % self.capacity) / self.block * self.block;
                self.moved += 1;
            }
            (Map::Scale, Some(layout)) => {
                let scaled = u128::from(at) * u128::from(self.capacity) / u128::from(layout.end);
                at = u64::try_from(scaled).unwrap_or(u64::MAX) / self.block * self.block;
                self.moved += u64::from(at != offset);
            }
            _ => {}
        }
        self.shortened += u64::from(bytes > self.capacity);
        // A request that would cross the end is moved before it.
        bytes = bytes.min(self.capacity);
        at = at.min(self.capacity - bytes);
        // The gaps hold nothing, so addresses pass over them.
        if let Some(Gaps { held, distance }) = self.gaps {
            at = at / held * distance + at % held;
        }
        Ok(Placed { at: Sector(at / SECTOR_BYTES), bytes, gaps: self.gaps })
    }
}
