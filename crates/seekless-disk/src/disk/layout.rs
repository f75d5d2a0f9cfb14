//! Where an LBN lies on the platters, and back.
//!
//! Within a zone, LBNs follow the physical sectors in order and skip spares and slips. A *unit* is the range that has
//! its own spares: a track, a cylinder, a few cylinders, or the zone. Physical sectors are counted from the start of
//! their zone, head by head and cylinder by cylinder.

use super::drive::{Drive, Sparing, SurfaceOrder, Zone};
use super::rotation::{SectorTurn, TURN};

/// An inconsistent drive record: what is wrong with it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("drive {drive}: {problem}")]
pub struct DriveError {
    pub drive: String,
    pub problem: String,
    pub part: Part,
}

/// What of a drive record an error is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    Whole,
    Capacity,
    /// One of the zones, by its index.
    Zone(usize),
    Seek,
    WriteSeek,
    WriteSettle,
    Cache,
}

/// An LBN's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SectorPlace {
    pub(super) cylinder: u32,
    pub(super) head: u32,
    /// Angle of the sector's leading edge.
    pub(super) angle: u64,
    /// Consecutive LBNs on this track without a gap, from this one on.
    pub(super) run: u32,
    pub(super) sector_turn: SectorTurn,
}

#[derive(Debug)]
pub(super) struct Layout {
    zones: Vec<ZoneTable>,
    /// For `lbn >> hint_shift`, a zone at or before the one of the LBN.
    hints: Vec<u8>,
    hint_shift: u32,
    sectors: u64,
}

#[derive(Debug)]
struct ZoneTable {
    first_lbn: u64,
    lbns: u32,
    first_cylinder: u32,
    cylinders: u32,
    heads: u32,
    sectors_per_track: u32,
    surfaces: SurfaceOrder,
    sector_turn: SectorTurn,
    /// Physical sectors and LBNs of a unit. One unit may be the whole zone.
    unit_sectors: u32,
    unit_lbns: u32,
    reserved: u32,
    first_sector_angle: u32,
    track_skew: u32,
    /// Skew from a cylinder's first track to the next cylinder's first, modulo a track.
    cylinder_turn: u32,
    slips: Vec<Slip>,
    /// Slips also turn later tracks, because the skew is counted from the end of the previous track.
    slips_turn: SlipsTurn,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SlipsTurn {
    Nothing,
    LaterCylinders,
    LaterTracks,
}

/// Physical sectors without an LBN.
#[derive(Clone, Copy, Debug)]
struct Slip {
    start: u32,
    len: u32,
    /// Slipped sectors of the zone before this one.
    before: u32,
}

const HINTS: u64 = 1 << 10;

impl Layout {
    /// # Errors
    /// When zones overlap or are out of order, skews or spares do not fit, or the zones hold less than the
    /// capacity.
    pub(super) fn new(drive: &Drive) -> Result<Layout, DriveError> {
        let fail = |part: Part, problem: String| DriveError { drive: drive.name.to_string(), problem, part };
        if drive.surfaces.bands() == Some(0) {
            return Err(fail(Part::Whole, "its surfaces follow each other in bands of no cylinders".into()));
        }
        if drive.heads == 0 || drive.zones.is_empty() || drive.zones.len() > 256 {
            return Err(fail(Part::Whole, format!("{} heads and {} zones", drive.heads, drive.zones.len())));
        }
        let mut zones = Vec::with_capacity(drive.zones.len());
        let mut first_lbn = 0;
        let mut next_cylinder = 0;
        for (index, zone) in drive.zones.iter().enumerate() {
            if zone.first_cylinder < next_cylinder
                || zone.last_cylinder < zone.first_cylinder
                || zone.last_cylinder >= drive.cylinders
            {
                return Err(fail(Part::Zone(index), misplaced(drive, index)));
            }
            next_cylinder = zone.last_cylinder + 1;
            let table = ZoneTable::new(drive, index, first_lbn)
                .map_err(|problem| fail(Part::Zone(index), format!("{} {problem}", named(zone, index))))?;
            first_lbn += u64::from(table.lbns);
            zones.push(table);
        }
        if drive.sectors == 0 || drive.sectors > first_lbn {
            return Err(fail(
                Part::Capacity,
                format!("its zones hold {first_lbn} sectors, its capacity is {}", drive.sectors),
            ));
        }
        let mut hint_shift = 0;
        while drive.sectors >> hint_shift > HINTS {
            hint_shift += 1;
        }
        let hints = (0..=drive.sectors >> hint_shift)
            .map(|step| zones.partition_point(|zone| zone.end_lbn() <= step << hint_shift).min(zones.len() - 1) as u8)
            .collect();
        Ok(Layout { zones, hints, hint_shift, sectors: drive.sectors })
    }

    pub(super) fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Sectors that the zones hold; the capacity may be less.
    pub(super) fn held(&self) -> u64 {
        self.zones.last().map_or(0, ZoneTable::end_lbn)
    }

    /// `lbn` is below [`Layout::sectors`].
    pub(super) fn locate(&self, lbn: u64) -> SectorPlace {
        let zone = self.zone_of(lbn);
        zone.locate((lbn - zone.first_lbn) as u32)
    }

    /// The first LBN on the track of `lbn`, and the first after it.
    pub(super) fn track(&self, lbn: u64) -> (u64, u64) {
        let zone = self.zone_of(lbn);
        let (physical, _) = zone.physical((lbn - zone.first_lbn) as u32);
        let start = physical - physical % zone.sectors_per_track;
        let end = zone.first_lbn + u64::from(zone.lbns_before(start + zone.sectors_per_track));
        (zone.first_lbn + u64::from(zone.lbns_before(start)), end.min(self.sectors))
    }

    /// The first LBN on a track, and the first after it; `None` for a track without LBNs.
    pub(super) fn track_at(&self, cylinder: u32, head: u32) -> Option<(u64, u64)> {
        let (zone, track) = self.zone_at(cylinder, head)?;
        let start = zone.first_lbn + u64::from(zone.lbns_before(track * zone.sectors_per_track));
        let end = zone.first_lbn + u64::from(zone.lbns_before((track + 1) * zone.sectors_per_track));
        let end = end.min(self.sectors);
        (start < end).then_some((start, end))
    }

    /// The zone of a cylinder, and the number of a track in it.
    fn zone_at(&self, cylinder: u32, head: u32) -> Option<(&ZoneTable, u32)> {
        let after = self.zones.partition_point(|zone| zone.first_cylinder <= cylinder);
        let zone = &self.zones[after.checked_sub(1)?];
        let relative = cylinder - zone.first_cylinder;
        if relative >= zone.cylinders || head >= zone.heads {
            return None;
        }
        Some((zone, zone.track_number(relative, head)))
    }

    /// Physical sectors on the track of `lbn`.
    pub(super) fn sectors_per_track(&self, lbn: u64) -> u32 {
        self.zone_of(lbn).sectors_per_track
    }

    /// The LBN at a physical place; `None` for spares, slips and places outside all zones.
    #[cfg(test)]
    pub(super) fn lbn_at(&self, cylinder: u32, head: u32, sector: u32) -> Option<u64> {
        let (zone, track) = self.zone_at(cylinder, head)?;
        if sector >= zone.sectors_per_track {
            return None;
        }
        let physical = track * zone.sectors_per_track + sector;
        let lbn = zone.lbns_before(physical);
        let lbn = (zone.lbns_before(physical + 1) > lbn).then_some(zone.first_lbn + u64::from(lbn))?;
        (lbn < self.sectors).then_some(lbn)
    }

    fn zone_of(&self, lbn: u64) -> &ZoneTable {
        debug_assert!(lbn < self.sectors);
        let mut index = usize::from(self.hints[(lbn >> self.hint_shift) as usize]);
        while lbn >= self.zones[index].end_lbn() {
            index += 1;
        }
        &self.zones[index]
    }
}

/// A zone as people count it: from 1 on, with its first cylinder, by which it is found in a file.
fn named(zone: &Zone, index: usize) -> String {
    format!("zone {}, from cylinder {} on,", index + 1, zone.first_cylinder)
}

/// What is wrong with the cylinders of a zone.
fn misplaced(drive: &Drive, index: usize) -> String {
    let Zone { first_cylinder, last_cylinder, .. } = drive.zones[index];
    let number = index + 1;
    let has = format!("zone {number} has cylinders {first_cylinder} to {last_cylinder}");
    let before = index.checked_sub(1).map(|before| drive.zones[before].last_cylinder);
    if last_cylinder < first_cylinder {
        return format!("{has}: the last is below the first");
    }
    match before.filter(|before| first_cylinder <= *before) {
        Some(before) => format!("{has}, but zone {index} ends at cylinder {before}: zones follow each other"),
        None => {
            let (count, last) = (drive.cylinders, drive.cylinders.saturating_sub(1));
            format!("{has}, but the drive has {count} cylinders, 0 to {last}")
        }
    }
}

impl SurfaceOrder {
    /// The cylinders of a band, if there are bands.
    pub(super) fn bands(self) -> Option<u32> {
        match self {
            SurfaceOrder::Bands { cylinders } | SurfaceOrder::ForwardBands { cylinders } => Some(cylinders),
            SurfaceOrder::Forward | SurfaceOrder::Serpentine => None,
        }
    }

    /// True if surfaces are counted from the last one on in this band.
    #[inline]
    fn is_backwards(self, band: u32) -> bool {
        band % 2 == 1 && matches!(self, SurfaceOrder::Bands { .. })
    }

    /// Cylinder, counted from the zone's first, and head of the `track`th track of a zone of so many cylinders.
    #[inline]
    pub(super) fn track_place(self, heads: u32, cylinders: u32, track: u32) -> (u32, u32) {
        match self {
            SurfaceOrder::Forward => (track / heads, track % heads),
            SurfaceOrder::Serpentine => {
                let (cylinder, surface) = (track / heads, track % heads);
                (cylinder, if cylinder % 2 == 1 { heads - 1 - surface } else { surface })
            }
            SurfaceOrder::Bands { cylinders: band_cylinders }
            | SurfaceOrder::ForwardBands { cylinders: band_cylinders } => {
                let band = track / (band_cylinders * heads);
                let width = band_cylinders.min(cylinders - band * band_cylinders);
                let within = track - band * band_cylinders * heads;
                let (surface, step) = (within / width, within % width);
                let cylinder = if surface % 2 == 1 { width - 1 - step } else { step };
                (band * band_cylinders + cylinder, if self.is_backwards(band) { heads - 1 - surface } else { surface })
            }
        }
    }
}

impl ZoneTable {
    /// # Errors
    /// What the zone has or does that is wrong; the sentence lacks its subject.
    fn new(drive: &Drive, index: usize, first_lbn: u64) -> Result<ZoneTable, String> {
        let zone = &drive.zones[index];
        let spt = zone.sectors_per_track;
        let cylinder_sectors = u64::from(spt) * u64::from(drive.heads);
        let sectors = cylinder_sectors * u64::from(zone.cylinders());
        if spt == 0 {
            return Err("has 0 sectors per track".to_owned());
        }
        if sectors >= u64::from(u32::MAX) {
            let most = u32::MAX - 1;
            return Err(format!("has {sectors} sectors, at most {most} are possible: cut it into several zones"));
        }
        let (sectors, cylinder_sectors) = (sectors as u32, cylinder_sectors as u32);
        let (slip_len, slips_turn) = match drive.sparing {
            Sparing::Tracks => (spt, SlipsTurn::Nothing),
            Sparing::SectorsPerTrack => (1, SlipsTurn::LaterTracks),
            Sparing::SectorsPerCylinder => (1, SlipsTurn::LaterCylinders),
            _ => (1, SlipsTurn::Nothing),
        };
        let mut slips = Vec::with_capacity(zone.slips.len());
        for (count, &slip) in zone.slips.iter().enumerate() {
            let start = u64::from(slip) * u64::from(slip_len);
            let after = slips.last().map_or(0, |slip: &Slip| u64::from(slip.start + slip.len));
            if start < after || start + u64::from(slip_len) > u64::from(sectors) {
                return Err(format!("slips {slip}, which is out of order or outside"));
            }
            slips.push(Slip { start: start as u32, len: slip_len, before: count as u32 * slip_len });
        }
        let slipped = slips.len() as u32 * slip_len;
        let (unit_sectors, unit_spares) = match drive.sparing {
            Sparing::None => (sectors, slipped),
            Sparing::Tracks => (sectors, zone.spares.saturating_mul(spt)),
            Sparing::SectorsPerTrack => (spt, zone.spares),
            Sparing::SectorsPerCylinder => (cylinder_sectors, zone.spares),
            // A range longer than the zone is none, and a zone without a whole range has no spares.
            Sparing::SectorsPerRange { cylinders } if cylinders > zone.cylinders() => (sectors, slipped),
            Sparing::SectorsPerRange { cylinders } => (cylinder_sectors * cylinders.max(1), zone.spares),
            Sparing::SectorsPerZone => (sectors, zone.spares),
            Sparing::SectorsPerZoneBeyondSlips => (sectors, zone.spares.saturating_add(slipped)),
        };
        let units = sectors / unit_sectors;
        let lbns = (u64::from(units) * u64::from(unit_spares) + u64::from(zone.reserved)).try_into();
        let lbns = lbns.ok().and_then(|lost: u32| sectors.checked_sub(lost)).filter(|&lbns| lbns > 0);
        let (Some(lbns), true) = (lbns, unit_spares < unit_sectors) else {
            return Err("has more spares than sectors".to_owned());
        };
        for unit in slips.chunk_by(|a, b| a.start / unit_sectors == b.start / unit_sectors) {
            let used = unit.len() as u32 * slip_len;
            // A shorter unit at the end of the zone has no spares.
            let spares = if unit[0].start / unit_sectors < units { unit_spares } else { 0 };
            if used > spares {
                return Err(format!("slips {used} sectors where there are {spares} spares"));
            }
        }
        Ok(ZoneTable {
            first_lbn,
            lbns,
            first_cylinder: zone.first_cylinder,
            cylinders: zone.cylinders(),
            heads: drive.heads,
            sectors_per_track: spt,
            surfaces: drive.surfaces,
            sector_turn: SectorTurn::new(spt),
            unit_sectors,
            unit_lbns: unit_sectors - unit_spares,
            reserved: zone.reserved,
            first_sector_angle: zone.first_sector_angle % spt,
            track_skew: zone.track_skew % spt,
            cylinder_turn: ((u64::from(drive.heads - 1) * u64::from(zone.track_skew) + u64::from(zone.cylinder_skew))
                % u64::from(spt)) as u32,
            slips,
            slips_turn,
        })
    }

    fn end_lbn(&self) -> u64 {
        self.first_lbn + u64::from(self.lbns)
    }

    /// The physical sector of the zone's `lbn`th LBN, and how many LBNs follow without a gap other than the
    /// end of a track.
    fn physical(&self, lbn: u32) -> (u32, u32) {
        let counted = lbn + self.reserved;
        let unit = if self.unit_lbns > counted { 0 } else { counted / self.unit_lbns };
        let start = unit * self.unit_sectors;
        let offset = counted - unit * self.unit_lbns;
        let mut left = (self.unit_lbns - offset).min(self.lbns - lbn);
        if self.slips.is_empty() {
            return (start + offset, left);
        }
        // Slips of the unit that lie at or before the LBN: each moves it on.
        let (first, moved_before) = if start == 0 {
            (0, 0)
        } else {
            let first = self.slips.partition_point(|slip| slip.start < start);
            (first, self.slips.get(first).map_or(0, |slip| slip.before))
        };
        let own = &self.slips[first..];
        let passed = own.partition_point(|slip| slip.start - (slip.before - moved_before) <= start + offset);
        let moved = match passed {
            0 => 0,
            _ => own[passed - 1].before + own[passed - 1].len - moved_before,
        };
        let physical = start + offset + moved;
        if let Some(next) = own.get(passed) {
            left = left.min(next.start - physical);
        }
        (physical, left)
    }

    fn locate(&self, lbn: u32) -> SectorPlace {
        let (physical, left) = self.physical(lbn);
        let spt = self.sectors_per_track;
        let track = physical / spt;
        let sector = physical - track * spt;
        let (relative, head) = self.track_place(track);
        let turned = match self.slips_turn {
            SlipsTurn::Nothing => 0,
            SlipsTurn::LaterCylinders => self.slips_before(relative * self.heads * spt),
            SlipsTurn::LaterTracks => self.slips_before(track * spt),
        };
        let skew = match self.surfaces {
            SurfaceOrder::Bands { .. } | SurfaceOrder::ForwardBands { .. } => {
                u64::from(track) * u64::from(self.track_skew)
            }
            _ => {
                let surface = track - relative * self.heads;
                u64::from(surface * self.track_skew) + u64::from(relative) * u64::from(self.cylinder_turn)
            }
        };
        let position = u64::from(self.first_sector_angle + sector + turned) + skew;
        let angle = self.sector_turn.times((position % u64::from(spt)) as u32);
        SectorPlace {
            cylinder: self.first_cylinder + relative,
            head,
            angle: if angle >= TURN { 0 } else { angle },
            run: left.min(spt - sector),
            sector_turn: self.sector_turn,
        }
    }

    fn track_place(&self, track: u32) -> (u32, u32) {
        self.surfaces.track_place(self.heads, self.cylinders, track)
    }

    /// The inverse of [`ZoneTable::track_place`].
    fn track_number(&self, cylinder: u32, head: u32) -> u32 {
        let heads = self.heads;
        match self.surfaces {
            SurfaceOrder::Forward => cylinder * heads + head,
            SurfaceOrder::Serpentine => cylinder * heads + if cylinder % 2 == 1 { heads - 1 - head } else { head },
            SurfaceOrder::Bands { cylinders } | SurfaceOrder::ForwardBands { cylinders } => {
                let band = cylinder / cylinders;
                let width = cylinders.min(self.cylinders - band * cylinders);
                let surface = if self.surfaces.is_backwards(band) { heads - 1 - head } else { head };
                let within = cylinder - band * cylinders;
                let step = if surface % 2 == 1 { width - 1 - within } else { within };
                band * cylinders * heads + surface * width + step
            }
        }
    }

    fn slips_before(&self, physical: u32) -> u32 {
        let passed = self.slips.partition_point(|slip| slip.start < physical);
        self.slips[..passed].last().map_or(0, |slip| slip.before + slip.len.min(physical - slip.start))
    }

    /// LBNs of the zone that lie before a physical sector.
    fn lbns_before(&self, physical: u32) -> u32 {
        let unit = physical / self.unit_sectors;
        let start = unit * self.unit_sectors;
        let slipped = self.slips_before(physical) - self.slips_before(start);
        let counted = unit * self.unit_lbns + (physical - start - slipped).min(self.unit_lbns);
        counted.saturating_sub(self.reserved).min(self.lbns)
    }
}
