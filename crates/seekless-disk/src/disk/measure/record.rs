//! From what was measured to a drive.

use super::super::drive::{
    AfterPair, Bus, Cache, Drive, Evidence, Overhead, ReadAhead, Seek, Sparing, SurfaceOrder, Zone,
};
use super::super::tables::Tables;
use super::cache::Cached;
use super::probe::Probe;
use super::seeks::Seeks;
use super::zones::Shape;
use super::{MeasureError, Measurement};
use crate::units::Nanos;

/// A larger share of late answers is noted.
pub(super) const LATE_NOTED: f64 = 0.2;

pub(super) fn record(
    probe: &Probe<'_>,
    shape: &Shape,
    seeks: &Seeks,
    cached: &Cached,
) -> Result<Measurement, MeasureError> {
    let clock = probe.clock();
    let zones = zones(shape);
    let cylinders = zones.last().map_or(0, |zone| zone.last_cylinder + 1);
    let outer = shape.zones[0].sectors_per_track;
    let block = probe.block as f64;
    let medium = block * clock.period / shape.zones[shape.zones.len() / 2].sectors_per_track as f64;
    let miss = seconds(seeks.shortest - medium - block * cached.sector);
    let hit = seconds(cached.hit.map_or(seeks.shortest, |hit| hit - block * cached.sector));
    let mut notes = probe.notes.clone();
    notes.push("only reads were measured: overheads of writes are those of reads, and writes settle in no time".into());
    if probe.late_most > LATE_NOTED {
        notes.push(format!(
            "up to {:.0} % of the answers came late, as from a busy machine: times of seeks and what the cache does may be wrong",
            100.0 * probe.late_most
        ));
    }
    if cached.hit.is_none() {
        notes.push("the cache answered no read: it is off, or what it does does not show".into());
    }
    if seeks.head_switch * 1.05 < seeks.curve[0].1 && seeks.head_switch == 0.0 {
        notes.push("a head switch takes no time that shows".into());
    }
    let drive = Drive {
        name: "measured".into(),
        product: format!("measured drive of {} sectors", shape.sectors).into(),
        source: format!("measured by {} reads", probe.reads).into(),
        evidence: Evidence::Extracted,
        heads: shape.heads,
        cylinders,
        sectors: shape.sectors,
        rpm: (60.0 / clock.period).round() as u32,
        surfaces: SurfaceOrder::Forward,
        sparing: Sparing::None,
        zones: zones.into(),
        seek: Seek::Table(table(seeks, cylinders).into()),
        write_seek: None,
        write_settle_ns: 0,
        head_switch: seconds(seeks.head_switch),
        scheduler: None,
        overhead: Overhead {
            read_hit: AfterPair::always(hit),
            read_miss: AfterPair::always(miss),
            write_hit: AfterPair::always(miss),
            write_miss: AfterPair::always(miss),
            ..Overhead::NONE
        },
        bus: Bus {
            read_sector: seconds(cached.sector),
            write_sector: seconds(cached.sector),
            disconnect_until_percent: Some(0),
            disconnect_until_sectors: None,
            tagged_queueing: false,
        },
        cache: Cache {
            segments: cached.segments.max(1),
            segment_sectors: (outer as u32).max(cached.ahead),
            read_ahead: match cached.ahead {
                0 => ReadAhead::None,
                sectors => ReadAhead::Sectors { sectors },
            },
            ..Cache::PLAIN
        },
    };
    Tables::new(&drive)?;
    Ok(Measurement {
        drive,
        revolution: clock.nanos(1.0),
        jitter: clock.nanos(clock.jitter),
        reads: probe.reads,
        notes,
    })
}

/// Whole cylinders; the last zone gets those that rounding has lost.
fn zones(shape: &Shape) -> Vec<Zone> {
    let heads = u64::from(shape.heads);
    let mut zones: Vec<Zone> = Vec::new();
    let mut held = 0;
    for (index, zone) in shape.zones.iter().enumerate() {
        let cylinder_sectors = zone.sectors_per_track * heads;
        let end = if index + 1 == shape.zones.len() { shape.sectors } else { zone.end };
        let wanted = end.saturating_sub(held);
        let is_last = index + 1 == shape.zones.len();
        let cylinders = if is_last { wanted.div_ceil(cylinder_sectors) } else { wanted / cylinder_sectors };
        if cylinders == 0 {
            continue;
        }
        held += cylinders * cylinder_sectors;
        let first = zones.last().map_or(0, |zone| zone.last_cylinder + 1);
        let skew = |revolutions: f64| {
            ((revolutions * zone.sectors_per_track as f64).round() as u64 % zone.sectors_per_track) as u32
        };
        zones.push(Zone {
            first_cylinder: first,
            last_cylinder: first + cylinders as u32 - 1,
            sectors_per_track: zone.sectors_per_track as u32,
            track_skew: skew(zone.track_skew),
            cylinder_skew: skew(zone.cylinder_skew),
            first_sector_angle: 0,
            reserved: 0,
            spares: 0,
            slips: [].as_slice().into(),
        });
    }
    zones
}

/// The seek table: times never fall with the distance, which jitter would let them do.
fn table(seeks: &Seeks, cylinders: u32) -> Vec<(u32, Nanos)> {
    let mut longest = 0.0_f64;
    let mut table = Vec::new();
    for &(distance, time) in &seeks.curve {
        longest = longest.max(time);
        if distance < cylinders {
            table.push((distance, seconds(longest)));
        }
    }
    table
}

fn seconds(time: f64) -> Nanos {
    Nanos((time.max(0.0) * 1e9).round() as u64)
}
