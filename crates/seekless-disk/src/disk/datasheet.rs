//! Drives known only from a data sheet.
//!
//! A sheet has the figures that sell a drive; a model needs more. The rest follows from rules that hold for the
//! measured drives of the catalogue, each stated where it is used. The result is marked [`Evidence::DataSheet`].

use super::drive::{
    AfterPair, Bus, Cache, Drive, Evidence, Overhead, ReadAhead, Seek, Sparing, SurfaceOrder, WriteBehind, Zone,
};
use super::layout::{DriveError, Part};
use crate::units::{Nanos, SECTOR_BYTES, sectors_for};

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
    /// Seek to the next cylinder. The measured drives have a median of 0.15 average seeks.
    pub seek_one: Nanos,
    /// Seek over all cylinders. The measured drives have a median of 1.87 average seeks.
    pub seek_full: Nanos,
    /// The measured drives have a median of two thirds of a one-cylinder seek.
    pub head_switch: Nanos,
    /// Command overhead. 0.3 ms is about the median of the measured Ultra SCSI drives.
    pub overhead: Nanos,
    /// Bus rate in bytes per second; `None` for one that is never the bottleneck.
    pub bus_rate: Option<u64>,
    /// The drive's memory, in segments of one outer track; at least one segment, at most 32.
    pub buffer_bytes: u64,
    pub write_behind: WriteBehind,
}

/// Zones into which a drive with different inner and outer tracks is cut. Eight is the least of the measured
/// drives whose density varies by as much.
const ZONES: u32 = 8;

impl DataSheet {
    /// A drive of `bytes` at `rpm` revolutions per minute, with an average seek of `seek_average` and a maximum media
    /// rate of `media_rate` bytes a second.
    pub fn new(rpm: u32, seek_average: Nanos, bytes: u64, media_rate: u64) -> DataSheet {
        // Inner tracks hold 0.66 of the sectors of outer ones: the median of the measured drives.
        let outer = (media_rate.saturating_mul(60) / SECTOR_BYTES / u64::from(rpm.max(1))).min(1 << 20) as u32;
        let seek_one = Nanos(seek_average.0 * 15 / 100);
        DataSheet {
            name: "generic".into(),
            product: format!("{rpm} rpm, {} ms seek", seek_average.as_millis_f64()),
            source: "figures given by the user".into(),
            rpm,
            bytes,
            // Matters little: skew hides head switches and one-cylinder seeks alike.
            heads: 4,
            sectors_per_track_outer: outer,
            sectors_per_track_inner: outer * 66 / 100,
            seek_average,
            seek_one,
            seek_full: Nanos(seek_average.0 * 187 / 100),
            head_switch: Nanos(seek_one.0 * 2 / 3),
            overhead: Nanos::from_micros(300),
            bus_rate: None,
            buffer_bytes: 0,
            write_behind: WriteBehind::None,
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
        let zone_count = if outer == inner { 1 } else { ZONES };
        let track = |zone: u32| outer - (outer - inner) * u64::from(zone) / u64::from((zone_count - 1).max(1));
        let mean = (0..zone_count).map(track).sum::<u64>() * u64::from(self.heads);
        let zone_cylinders = sectors.div_ceil(mean);
        let cylinders = u32::try_from(zone_cylinders * u64::from(zone_count))
            .ok()
            .filter(|&cylinders| sectors > 0 && cylinders <= 1 << 24)
            .ok_or_else(|| fail(format!("{} bytes do not fit tracks of {outer} sectors", self.bytes)))?;
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
        let segment_sectors = self.sectors_per_track_outer;
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
            write_settle_ns: 0,
            head_switch: self.head_switch,
            scheduler: None,
            overhead: Overhead {
                read_hit: AfterPair::always(self.overhead),
                read_miss: AfterPair::always(self.overhead),
                write_hit: AfterPair::always(self.overhead),
                write_miss: AfterPair::always(self.overhead),
                ..Overhead::NONE
            },
            bus: Bus {
                read_sector: sector_time,
                write_sector: sector_time,
                disconnect_until_percent: Some(0),
                tagged_queueing: false,
            },
            cache: Cache {
                segments: (sectors_for(self.buffer_bytes) / u64::from(segment_sectors)).clamp(1, 32) as u32,
                segment_sectors,
                read_ahead: ReadAhead::NextTrack,
                read_ahead_after_hit: true,
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
