//! Drives known only from a data sheet.
//!
//! A sheet has the figures that sell a drive; a model needs more. The rest are [`Habits`]: medians over measured drives
//! of the catalogue, of those whose media are about as fast. The result is marked [`Evidence::DataSheet`].
//!
//! A test compares the medians with the catalogue, and each measured drive with the sheet that the other drives and its
//! own four figures make (`disk/tests/datasheet.rs`).

use super::drive::{
    AfterPair, Bus, Cache, Drive, Evidence, Overhead, ReadAhead, Seek, Sparing, SurfaceOrder, WriteBehind, Zone,
};
use super::layout::{DriveError, Part};
use crate::units::{Nanos, SECTOR_BYTES, human_bytes, sectors_for};

/// The figures of a data sheet. Start with [`DataSheet::new`] and refine.
#[derive(Clone, PartialEq, Debug)]
pub struct DataSheet {
    pub name: String,
    pub product: String,
    pub source: String,
    pub rpm: u32,
    /// Formatted capacity.
    pub bytes: u64,
    pub heads: u32,
    /// Sectors on the outermost track, which follow from the fastest media rate.
    pub sectors_per_track_outer: u32,
    pub sectors_per_track_inner: u32,
    pub seek_average: Nanos,
    /// Seek to the next cylinder.
    pub seek_one: Nanos,
    /// Seek over all cylinders.
    pub seek_full: Nanos,
    pub head_switch: Nanos,
    /// Before a read that the buffer answers; in a run of reads, after a read.
    pub read_hit: AfterPair,
    /// Before a read from the media.
    pub read_miss: Nanos,
    /// Before a write that the buffer takes.
    pub write_hit: Nanos,
    /// Before a write for which the arm moves first.
    pub write_miss: Nanos,
    /// Bus rate in bytes per second; `None` for one that is never the bottleneck.
    pub bus_rate: Option<u64>,
    /// The drive's memory, in segments of this many sectors; at least one segment, at most 32.
    pub buffer_bytes: u64,
    pub segment_sectors: u32,
    /// A command stops read-ahead in the middle of a sector.
    pub stop_in_sector: bool,
    pub write_behind: WriteBehind,
}

/// Zones into which a drive with different inner and outer tracks is cut. Eight is the least of the measured
/// drives whose density varies by as much.
const ZONES: u32 = 8;

/// Sectors of a zone on average, so that none has more than 2^32. Larger drives have more zones.
const ZONE_SECTORS: u64 = 1 << 31;
/// As many as a drive file may have.
const ZONES_MAX: u32 = 256;

/// What drives have in common whose media are about as fast: medians over the measured drives of the catalogue.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Habits {
    /// Media rates below this, in bytes a second, on the outermost track.
    pub rate_below: u64,
    /// Sectors of an innermost track for each of an outermost one.
    pub inner_share: f64,
    /// Seek to the next cylinder, in average seeks.
    pub seek_one: f64,
    /// Seek over all cylinders, in average seeks.
    pub seek_full: f64,
    /// In average seeks.
    pub head_switch: f64,
    pub read_hit: AfterPair,
    pub read_miss: Nanos,
    pub write_hit: Nanos,
    pub write_miss: Nanos,
    /// Rate of bus and host together, in bytes a second.
    pub bus_rate: Option<u64>,
    /// Parts of the drive's memory, and how many outermost tracks each holds.
    pub segments: u32,
    pub segment_tracks: f64,
    /// A command stops read-ahead in the middle of a sector.
    pub stop_in_sector: bool,
    pub write_behind: WriteBehind,
}

impl Habits {
    /// By media rate, slowest first. Medians of: hp97560, dec-rz26, st41601n, hp-c2247a, hp-c3323a, hp-c2490a (2.5 to
    /// 5.9 MB/s, 1990 to 1993); barracuda, atlas3, cheetah4lp, cheetah9lp, ultrastar18es, atlas10k (11 to 29 MB/s, 1996 to
    /// 1999). Of faster drives the catalogue has one that was measured, nearline-4tb (189 MB/s).
    pub const ALL: [Habits; 3] = [
        Habits {
            rate_below: 8_000_000,
            inner_share: 0.67,
            seek_one: 0.14,
            seek_full: 1.87,
            head_switch: 0.08,
            read_hit: AfterPair { after_read: Nanos::from_micros(1_040), after_write: Nanos::from_micros(1_000) },
            read_miss: Nanos::from_micros(1_840),
            write_hit: Nanos::from_micros(2_050),
            write_miss: Nanos::from_micros(2_050),
            bus_rate: Some(4_200_000),
            segments: 1,
            segment_tracks: 3.1,
            stop_in_sector: true,
            write_behind: WriteBehind::None,
        },
        Habits {
            rate_below: 40_000_000,
            inner_share: 0.66,
            seek_one: 0.18,
            seek_full: 1.91,
            head_switch: 0.02,
            read_hit: AfterPair { after_read: Nanos::from_micros(82), after_write: Nanos::from_micros(200) },
            read_miss: Nanos::from_micros(270),
            write_hit: Nanos::from_micros(350),
            write_miss: Nanos::from_micros(560),
            bus_rate: Some(4_900_000),
            segments: 4,
            segment_tracks: 1.35,
            stop_in_sector: false,
            write_behind: WriteBehind::One,
        },
        Habits {
            rate_below: u64::MAX,
            inner_share: 0.51,
            seek_one: 0.16,
            seek_full: 1.92,
            head_switch: 0.0,
            read_hit: AfterPair { after_read: Nanos::from_micros(160), after_write: Nanos::from_micros(160) },
            read_miss: Nanos::from_micros(50),
            write_hit: Nanos::from_micros(370),
            write_miss: Nanos::from_micros(430),
            bus_rate: None,
            segments: 32,
            segment_tracks: 1.0,
            stop_in_sector: false,
            write_behind: WriteBehind::Stream,
        },
    ];

    /// Those of drives with this media rate, in bytes a second.
    pub fn of_rate(media_rate: u64) -> &'static Habits {
        let [.., last] = &Habits::ALL;
        Habits::ALL.iter().find(|habits| media_rate < habits.rate_below).unwrap_or(last)
    }
}

impl DataSheet {
    /// A drive of `bytes` at `rpm` revolutions per minute, with an average seek of `seek_average` and a maximum media
    /// rate of `media_rate` bytes a second.
    pub fn new(rpm: u32, seek_average: Nanos, bytes: u64, media_rate: u64) -> DataSheet {
        DataSheet::with_habits(rpm, seek_average, bytes, media_rate, Habits::of_rate(media_rate))
    }

    /// The same, with the rest as in drives of other habits.
    pub fn with_habits(rpm: u32, seek_average: Nanos, bytes: u64, media_rate: u64, habits: &Habits) -> DataSheet {
        let outer = (media_rate.saturating_mul(60) / SECTOR_BYTES / u64::from(rpm.max(1))).min(1 << 20) as u32;
        let seeks = |share: f64| Nanos((seek_average.0 as f64 * share) as u64);
        let segment_sectors = ((f64::from(outer) * habits.segment_tracks) as u32).max(1);
        DataSheet {
            name: "generic".into(),
            product: format!("{rpm} rpm, {} ms seek", seek_average.as_millis_f64()),
            source: "figures given by the user".into(),
            rpm,
            bytes,
            // Matters little: skew hides head switches and one-cylinder seeks alike.
            heads: 4,
            sectors_per_track_outer: outer,
            sectors_per_track_inner: (f64::from(outer) * habits.inner_share) as u32,
            seek_average,
            seek_one: seeks(habits.seek_one),
            seek_full: seeks(habits.seek_full),
            head_switch: seeks(habits.head_switch),
            read_hit: habits.read_hit,
            read_miss: habits.read_miss,
            write_hit: habits.write_hit,
            write_miss: habits.write_miss,
            bus_rate: habits.bus_rate,
            buffer_bytes: u64::from(habits.segments) * u64::from(segment_sectors) * SECTOR_BYTES,
            segment_sectors,
            stop_in_sector: habits.stop_in_sector,
            write_behind: habits.write_behind,
        }
    }

    /// A drive with these figures.
    ///
    /// # Errors
    /// When they are inconsistent: no sectors on a track, a capacity below a cylinder, an impossible seek curve.
    pub fn drive(&self) -> Result<Drive, DriveError> {
        let fail = |problem: String| DriveError { drive: self.name.clone(), problem, part: Part::Whole };
        let (outer, inner) = (u64::from(self.sectors_per_track_outer), u64::from(self.sectors_per_track_inner));
        if inner == 0 || outer < inner || self.heads == 0 || !(60..1 << 20).contains(&self.rpm) {
            return Err(fail(format!(
                "{outer} to {inner} sectors per track on {} surfaces at {} rpm make no drive",
                self.heads, self.rpm
            )));
        }
        let sectors = self.bytes / SECTOR_BYTES;
        let needed = u32::try_from(sectors / ZONE_SECTORS + 1).unwrap_or(u32::MAX).min(ZONES_MAX);
        let zone_count = if outer == inner { needed } else { needed.max(ZONES) };
        let track = |zone: u32| outer - (outer - inner) * u64::from(zone) / u64::from((zone_count - 1).max(1));
        let mean = (0..zone_count).map(track).sum::<u64>() * u64::from(self.heads);
        let zone_cylinders = sectors.div_ceil(mean);
        let cylinders = u32::try_from(zone_cylinders * u64::from(zone_count))
            .ok()
            .filter(|&cylinders| sectors > 0 && cylinders <= 1 << 24)
            .ok_or_else(|| {
                let size = human_bytes(self.bytes);
                fail(format!(
                    "{size} do not fit on {} cylinders, with the {outer} sectors on a track that follow from rate and rpm: is the rate \
                     too low?",
                    1 << 24
                ))
            })?;
        let zone_cylinders = zone_cylinders as u32;
        let zones: Vec<Zone> = (0..zone_count)
            .map(|zone| {
                let sectors_per_track = track(zone) as u32;
                Zone {
                    first_cylinder: zone * zone_cylinders,
                    last_cylinder: (zone + 1) * zone_cylinders - 1,
                    sectors_per_track,
                    // The smallest skew that hides the switch.
                    track_skew: self.sectors_in(self.head_switch, sectors_per_track),
                    cylinder_skew: self.sectors_in(self.seek_one.max(self.head_switch), sectors_per_track),
                    first_sector_angle: 0,
                    reserved: 0,
                    spares: 0,
                    slips: [].as_slice().into(),
                }
            })
            .collect();
        let sector_time = self.bus_rate.map_or(Nanos::ZERO, |rate| Nanos(SECTOR_BYTES * 1_000_000_000 / rate.max(1)));
        // A memory that is smaller is one segment.
        let buffer_sectors = sectors_for(self.buffer_bytes).clamp(1, u64::from(u32::MAX)) as u32;
        let segment_sectors = self.segment_sectors.clamp(1, buffer_sectors);
        Ok(Drive {
            name: self.name.clone().into(),
            product: self.product.clone().into(),
            source: self.source.clone().into(),
            evidence: Evidence::DataSheet,
            heads: self.heads,
            cylinders,
            sectors,
            rpm: self.rpm,
            surfaces: SurfaceOrder::Forward,
            sparing: Sparing::None,
            zones: zones.into(),
            seek: Seek::ThreePoint { one: self.seek_one, average: self.seek_average, full: self.seek_full },
            write_seek: None,
            write_settle_ns: 0,
            head_switch: self.head_switch,
            scheduler: None,
            overhead: Overhead {
                read_hit: self.read_hit,
                read_miss: AfterPair::always(self.read_miss),
                write_hit: AfterPair::always(self.write_hit),
                write_miss: AfterPair::always(self.write_miss),
                ..Overhead::NONE
            },
            bus: Bus {
                read_sector: sector_time,
                write_sector: sector_time,
                disconnect_until_percent: Some(0),
                disconnect_until_sectors: None,
                tagged_queueing: false,
            },
            cache: Cache {
                segments: (buffer_sectors / segment_sectors).clamp(1, 32),
                segment_sectors,
                read_ahead: ReadAhead::NextTrack,
                read_ahead_after_hit: true,
                stop_in_sector: self.stop_in_sector,
                write_behind: self.write_behind,
                ..Cache::PLAIN
            },
        })
    }

    /// Sectors of a track that pass in `time`, rounded up.
    fn sectors_in(&self, time: Nanos, sectors_per_track: u32) -> u32 {
        let turns = u128::from(time.0) * u128::from(self.rpm) * u128::from(sectors_per_track);
        (turns.div_ceil(60_000_000_000) % u128::from(sectors_per_track)) as u32
    }
}
