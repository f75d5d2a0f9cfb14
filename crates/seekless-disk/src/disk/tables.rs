//! A drive record prepared for use: everything that can be computed once. Shared by all mechanisms of a kind, so that
//! the tables of a hundred disks fit into the processor's cache.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use super::drive::Drive;
use super::layout::{DriveError, Layout, Part, SectorPlace};
use super::rotation::{Rotation, SectorTurn, TURN};
use super::seek;
use crate::units::Nanos;

#[derive(Debug)]
pub(super) struct Tables {
    pub(super) drive: Drive,
    pub(super) layout: Layout,
    pub(super) rotation: Rotation,
    seek: Box<[u32]>,
    /// Of writes, where it is another one.
    write_seek: Option<Box<[u32]>>,
    /// For each distance the shortest seek over as many cylinders or more: measured curves have noise. For schedulers, so
    /// made when one asks.
    seek_min: OnceLock<Box<[u32]>>,
}

/// Where the heads are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Track {
    pub(super) cylinder: u32,
    pub(super) head: u32,
}

/// Sectors that pass under a head one after another.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrackRun {
    pub(super) first: u64,
    pub(super) len: u32,
    /// When the heads have reached the track.
    pub(super) on_track: Nanos,
    /// When the first sector's leading edge passes.
    pub(super) begin: Nanos,
    pub(super) track: Track,
    pub(super) angle: u64,
    /// Zero for sectors that were read out of order and are all there at `begin`.
    pub(super) sector_turn: SectorTurn,
}

impl TrackRun {
    pub(super) fn end(&self) -> u64 {
        self.first + u64::from(self.len)
    }
}

impl Tables {
    /// The tables of `drive`, shared with every live mechanism of that kind.
    pub(super) fn shared(drive: &Drive) -> Result<Arc<Tables>, DriveError> {
        static ALIVE: Mutex<Vec<Weak<Tables>>> = Mutex::new(Vec::new());
        let mut alive = ALIVE.lock().unwrap_or_else(PoisonError::into_inner);
        alive.retain(|tables| tables.strong_count() > 0);
        if let Some(tables) = alive.iter().filter_map(Weak::upgrade).find(|tables| tables.drive == *drive) {
            return Ok(tables);
        }
        let tables = Arc::new(Tables::new(drive)?);
        alive.push(Arc::downgrade(&tables));
        Ok(tables)
    }

    /// # Errors
    /// When the drive record contradicts itself.
    pub(super) fn new(drive: &Drive) -> Result<Tables, DriveError> {
        let fail = |part: Part, problem: String| DriveError { drive: drive.name.to_string(), problem, part };
        if !(60..1 << 20).contains(&drive.rpm) {
            return Err(fail(Part::Whole, format!("{} revolutions per minute", drive.rpm)));
        }
        let cache = &drive.cache;
        if cache.segments == 0 || cache.segment_sectors == 0 || (cache.write_segment_apart && cache.segments < 2) {
            return Err(fail(
                Part::Cache,
                format!("{} cache segments of {} sectors are too few", cache.segments, cache.segment_sectors),
            ));
        }
        let layout = Layout::new(drive)?;
        let seek = seek::tabulate(drive)?;
        // A model may take a little off; one that takes off an average seek has writes that seek in no time.
        let write_seek = seek::tabulate_writes(drive)?;
        let average = seek::mean(write_seek.as_ref().unwrap_or(&seek)).unwrap_or(Nanos::ZERO);
        let settle_min_ns = -(average.0 as i64);
        if drive.write_settle_ns < settle_min_ns && average > Nanos::ZERO {
            let (settle, average) = (drive.write_settle_ns as f64 / 1e6, average.as_millis_f64());
            let problem = format!("{settle} ms takes more off a write than an average seek lasts, {average:.3} ms");
            return Err(fail(Part::WriteSettle, problem));
        }
        Ok(Tables {
            drive: drive.clone(),
            layout,
            rotation: Rotation::new(drive.rpm),
            seek,
            write_seek,
            seek_min: OnceLock::new(),
        })
    }

    /// Time to go from one track to another: the longer of seek and head switch, and the settling of a write.
    pub(super) fn reposition(&self, from: Track, to: Track, write: bool) -> Nanos {
        let curve = self.write_seek.as_ref().filter(|_| write).unwrap_or(&self.seek);
        let seek = Nanos(u64::from(curve[from.cylinder.abs_diff(to.cylinder) as usize]));
        let time = if from.head == to.head { seek } else { seek.max(self.drive.head_switch) };
        if write && time > Nanos::ZERO {
            return Nanos(time.0.saturating_add_signed(self.drive.write_settle_ns));
        }
        time
    }

    /// A bound for [`Tables::reposition`] from below, of reads and writes, over `distance` cylinders or more.
    pub(super) fn reposition_min(&self, distance: u32) -> Nanos {
        let seek_min = self.seek_min.get_or_init(|| {
            let mut seek_min = self.seek.clone();
            for (min, &write) in seek_min.iter_mut().zip(self.write_seek.iter().flatten()) {
                *min = write.min(*min);
            }
            for distance in (0..seek_min.len().saturating_sub(1)).rev() {
                seek_min[distance] = seek_min[distance].min(seek_min[distance + 1]);
            }
            seek_min
        });
        let seek = Nanos(u64::from(seek_min[distance as usize]));
        Nanos(seek.0.saturating_add_signed(self.drive.write_settle_ns.min(0)))
    }

    /// The extent that starts with `lbn`, for heads that leave `from` at `at`. At most `limit` sectors.
    pub(super) fn extent(&self, from: Track, at: Nanos, lbn: u64, limit: u64, write: bool) -> TrackRun {
        let place = self.layout.locate(lbn);
        let track = place.track();
        let on_track = at + self.reposition(from, track, write);
        TrackRun {
            first: lbn,
            len: u64::from(place.run).min(limit) as u32,
            on_track,
            begin: on_track + self.rotation.wait(on_track, place.angle),
            track,
            angle: place.angle,
            sector_turn: place.sector_turn,
        }
    }

    /// When the first `sectors` of an extent have passed.
    pub(super) fn passed(&self, extent: &TrackRun, sectors: u32) -> Nanos {
        extent.begin + self.rotation.time(extent.sector_turn.times(sectors))
    }

    /// Sectors of an extent that have passed at `at`.
    pub(super) fn sectors_by(&self, extent: &TrackRun, at: Nanos) -> u32 {
        if at < extent.begin || extent.len == 0 {
            return 0;
        }
        if at >= self.passed(extent, extent.len) {
            return extent.len;
        }
        let turned = (at - extent.begin).0 * u64::from(self.drive.rpm);
        let mut sectors = extent.sector_turn.sectors_in(turned).min(extent.len - 1);
        while sectors > 0 && self.passed(extent, sectors) > at {
            sectors -= 1;
        }
        while sectors < extent.len && self.passed(extent, sectors + 1) <= at {
            sectors += 1;
        }
        sectors
    }

    /// The sector of an extent, counted from its first, whose leading edge is the next to pass at `at`, when the
    /// heads are on the track. Counts on past the extent's end.
    pub(super) fn next_edge(&self, extent: &TrackRun, at: Nanos) -> u32 {
        let turned = (self.rotation.angle(at) + TURN - extent.angle) % TURN;
        let sectors = extent.sector_turn.sectors_in(turned);
        if extent.sector_turn.times(sectors) == turned { sectors } else { sectors + 1 }
    }

    /// Postpones the rotation to `extent`: the heads are on its track, and must not start before `at`.
    pub(super) fn postpone(&self, extent: &mut TrackRun, at: Nanos) {
        extent.begin = at + self.rotation.wait(at, extent.angle);
    }
}

impl SectorPlace {
    pub(super) fn track(&self) -> Track {
        Track { cylinder: self.cylinder, head: self.head }
    }
}
