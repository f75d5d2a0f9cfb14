//! What a fit changes of a drive: a point in the space of parameters, and the drive that it means.

use super::super::drive::{AfterPair, Cache, Drive, Evidence, ReadAhead, Seek, WriteBehind, Zone};
use super::super::seek::{tabulate, tabulate_writes};
use crate::units::Nanos;

/// Distances at which the seek curve is changed, evenly spaced by their logarithm from one cylinder to all.
pub(super) const KNOTS: usize = 8;

/// Distances of a fitted seek table for each factor of two. Between them the curve is a line, which is off by less than 0.4 %
/// for a square root.
const TABLE_STEPS: f64 = 4.0;

/// How much knots beside each other may differ without a reason: so little that a single group outweighs it.
const ROUGHNESS: f64 = 1e-3;

/// Settling of real drives differs by less. Writes that complete in the cache hardly show it, so that it would go anywhere.
const SETTLE_CHANGE_MAX_MS: f64 = 1.5;

/// The numbers of a point; each is a change of what the drive to begin with has.
pub(super) const RPM: usize = KNOTS;
pub(super) const READ_MISS: usize = KNOTS + 1;
pub(super) const READ_HIT: usize = KNOTS + 2;
pub(super) const WRITE: usize = KNOTS + 3;
pub(super) const WRITE_SETTLE: usize = KNOTS + 4;
pub(super) const HEAD_SWITCH: usize = KNOTS + 5;
pub(super) const READ_SECTOR: usize = KNOTS + 6;
pub(super) const WRITE_SECTOR: usize = KNOTS + 7;
pub(super) const DENSITY: usize = KNOTS + 8;
pub(super) const NUMBERS: usize = KNOTS + 9;

/// A change of a drive. Zero everywhere, it changes only the form of the seek curve.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Point {
    /// Seeks, overheads, settling, switch and sectors in milliseconds; speed and density as natural logarithms of a factor.
    pub(super) numbers: [f64; NUMBERS],
    pub(super) cache: Cache,
    pub(super) disconnect_until_percent: Option<u32>,
}

impl Point {
    pub(super) fn start(drive: &Drive) -> Point {
        Point {
            numbers: [0.0; NUMBERS],
            cache: drive.cache,
            disconnect_until_percent: drive.bus.disconnect_until_percent,
        }
    }

    /// The changed drive; `None` when there is none, such as one with a negative density.
    pub(super) fn drive(&self, start: &Drive) -> Option<Drive> {
        let mut drive = start.clone();
        let numbers = &self.numbers;
        drive.rpm = (f64::from(start.rpm) * numbers[RPM].exp()).round() as u32;
        if numbers[DENSITY] != 0.0 {
            scale_density(&mut drive, numbers[DENSITY].exp())?;
        }
        if numbers[..KNOTS].iter().any(|&change| change != 0.0) || drive.cylinders != start.cylinders {
            drive.seek = self.seek(&tabulate(start).ok()?, drive.cylinders)?;
            drive.write_seek = match tabulate_writes(start).ok()? {
                Some(curve) => Some(self.seek(&curve, drive.cylinders)?),
                None => None,
            };
        }
        let overhead = &mut drive.overhead;
        overhead.read_miss = later(overhead.read_miss, numbers[READ_MISS]);
        overhead.read_hit = later(overhead.read_hit, numbers[READ_HIT]);
        overhead.write_hit = later(overhead.write_hit, numbers[WRITE]);
        overhead.write_miss = later(overhead.write_miss, numbers[WRITE]);
        if numbers[WRITE_SETTLE].abs() > SETTLE_CHANGE_MAX_MS {
            return None;
        }
        drive.write_settle_ns += (numbers[WRITE_SETTLE] * 1e6).round() as i64;
        drive.head_switch = plus(drive.head_switch, numbers[HEAD_SWITCH]);
        drive.bus.read_sector = plus(drive.bus.read_sector, numbers[READ_SECTOR]);
        drive.bus.write_sector = plus(drive.bus.write_sector, numbers[WRITE_SECTOR]);
        drive.bus.disconnect_until_percent = self.disconnect_until_percent;
        if self.disconnect_until_percent.is_none() {
            drive.bus.disconnect_until_sectors = None;
        }
        drive.cache = self.cache;
        Some(drive)
    }

    /// What an uneven change of the seek curve costs, in square milliseconds: knots at distances that the trace does not have
    /// follow their neighbours.
    pub(super) fn roughness(&self) -> f64 {
        let seeks = &self.numbers[..KNOTS];
        seeks.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).sum::<f64>() * ROUGHNESS
    }

    /// A seek curve, stretched to `cylinders` and changed by the knots.
    fn seek(&self, old: &[u32], cylinders: u32) -> Option<Seek> {
        let (last, old_last) = (cylinders.checked_sub(1)?, old.len().checked_sub(1)?);
        let mut table: Vec<(u32, Nanos)> = Vec::new();
        for distance in table_distances(last) {
            let stretched = f64::from(distance) * old_last as f64 / f64::from(last.max(1));
            let before = f64::from(*old.get((stretched.round() as usize).clamp(1, old_last.max(1)))?) / 1e6;
            let time = (before + self.change(distance, last)).max(0.0);
            table.push((distance, Nanos::from_millis_f64(time)));
        }
        (!table.is_empty()).then(|| Seek::Table(table.into()))
    }

    /// What the knots add to a seek, in milliseconds.
    fn change(&self, distance: u32, last: u32) -> f64 {
        let place = f64::from(distance).ln() / f64::from(last.max(2)).ln() * (KNOTS - 1) as f64;
        let below = (place as usize).min(KNOTS - 2);
        let part = place - below as f64;
        self.numbers[below] * (1.0 - part) + self.numbers[below + 1] * part
    }
}

/// Distances from one cylinder to `last`, at most [`TABLE_STEPS`] for each factor of two.
fn table_distances(last: u32) -> Vec<u32> {
    let steps = (f64::from(last.max(1)).log2() * TABLE_STEPS).ceil() as u32;
    let mut distances: Vec<u32> =
        (0..=steps).map(|step| (f64::from(step) / TABLE_STEPS).exp2().round() as u32).map(|d| d.min(last)).collect();
    distances.push(last);
    distances.retain(|&distance| distance > 0);
    distances.dedup();
    distances
}

fn plus(time: Nanos, ms: f64) -> Nanos {
    Nanos::from_millis_f64((time.as_millis_f64() + ms).max(0.0))
}

fn later(pair: AfterPair, ms: f64) -> AfterPair {
    AfterPair { after_read: plus(pair.after_read, ms), after_write: plus(pair.after_write, ms) }
}

/// True for drives whose tracks come from rules, not from a measurement: their density can be fitted.
pub(super) fn density_is_free(drive: &Drive) -> bool {
    drive.evidence == Evidence::DataSheet && drive.zones.iter().all(|zone| zone.slips.is_empty() && zone.reserved == 0)
}

/// Tracks with `factor` times the sectors, on as many fewer cylinders.
fn scale_density(drive: &mut Drive, factor: f64) -> Option<()> {
    let sectors = |count: u32| (f64::from(count) * factor).round() as u32;
    let mut zones: Vec<Zone> = Vec::with_capacity(drive.zones.len());
    let mut next = 0;
    for zone in drive.zones.iter() {
        let sectors_per_track = sectors(zone.sectors_per_track).max(1);
        let held = u64::from(zone.cylinders()) * u64::from(zone.sectors_per_track);
        let cylinders = u32::try_from(held.div_ceil(sectors_per_track.into())).ok()?;
        zones.push(Zone {
            first_cylinder: next,
            last_cylinder: next.checked_add(cylinders)?.checked_sub(1)?,
            sectors_per_track,
            track_skew: sectors(zone.track_skew) % sectors_per_track,
            cylinder_skew: sectors(zone.cylinder_skew) % sectors_per_track,
            ..zone.clone()
        });
        next += cylinders;
    }
    drive.cache.segment_sectors = sectors(drive.cache.segment_sectors).max(1);
    drive.cylinders = next;
    drive.zones = zones.into();
    Some(())
}

/// Caches that real drives have, which differ from `cache` in one thing.
pub(super) fn other_caches(cache: &Cache, track_sectors: u32) -> Vec<Cache> {
    let mut others = Vec::new();
    for write_behind in [WriteBehind::None, WriteBehind::One, WriteBehind::Stream] {
        others.push(Cache { write_behind, ..*cache });
    }
    let sectors = cache.segment_sectors;
    let ahead = [
        ReadAhead::None,
        ReadAhead::NextTrack,
        ReadAhead::Sectors { sectors },
        ReadAhead::Sectors { sectors: sectors / 2 },
        ReadAhead::TrackEnd { sectors },
    ];
    others.extend(ahead.map(|read_ahead| Cache { read_ahead, ..*cache }));
    others.extend([1, 2, 3, 5, 8, 12, 20].map(|segments| Cache { segments, ..*cache }));
    let sizes = [sectors / 2, sectors * 2, track_sectors];
    others.extend(sizes.map(|segment_sectors| Cache { segment_sectors: segment_sectors.max(1), ..*cache }));
    let on_arrival = !cache.read_on_arrival;
    others.extend([
        Cache { read_on_arrival: on_arrival, ..*cache },
        Cache { read_on_arrival: on_arrival, keep_passing_sectors: on_arrival, ..*cache },
        Cache { write_on_arrival: !cache.write_on_arrival, ..*cache },
        Cache { read_ahead_after_hit: !cache.read_ahead_after_hit, ..*cache },
        Cache { stop_in_sector: !cache.stop_in_sector, ..*cache },
        Cache { read_written: !cache.read_written, ..*cache },
    ]);
    others.retain(|other| other != cache && (other.segments > 1 || !other.write_segment_apart));
    others
}
