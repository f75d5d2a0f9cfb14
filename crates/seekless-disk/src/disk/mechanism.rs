//! The mechanism: arm, platters, cache and electronics of one drive, as a synchronous calculation of service times. The
//! asynchronous device around it is [`super::Disk`].
//!
//! Invariants
//!   M1  Requests are served one after another: none starts before the previous one is complete.
//!   M2  Serving a request allocates nothing and uses integer arithmetic only.
//!   M3  Activity between requests (read-ahead, write-behind) is computed when the next request comes, and only as far
//!       as that request can observe.
//!
//! Differences from DiskSim [bu08], whose order of events is followed otherwise
//!   1. A request for the very sector that read-ahead is about to read is a hit that waits for it. DiskSim calls
//!      it a miss, stops the read-ahead and loses a revolution.
//!   2. Reading and writing on arrival work. DiskSim 4.0 has flags for them that change nothing.
//!   3. A write removes overlapping read data from the cache even while that data is being read.
//!   4. A drive that releases the bus does so once per request, not again whenever its buffer runs empty.
//!   5. Sectors that were remapped individually, rather than slipped, are read at their original place.

use std::sync::Arc;

use super::activity::{Reader, Writer};
use super::cache::Segments;
use super::drive::{Drive, WriteBehind};
use super::layout::DriveError;
use super::tables::{Tables, Track};
use crate::device::{DeviceError, TrackPlace};
use crate::units::{Nanos, SECTOR_BYTES, Sector};

/// A request to a mechanism.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    pub sector: Sector,
    /// At least one.
    pub sectors: u32,
    pub write: bool,
    /// A write that completes only when it is on the medium, whatever the cache could do.
    pub fua: bool,
}

impl Request {
    pub fn read(sector: Sector, sectors: u32) -> Request {
        Request { sector, sectors, write: false, fua: false }
    }

    pub fn write(sector: Sector, sectors: u32) -> Request {
        Request { sector, sectors, write: true, fua: false }
    }
}

/// How a request was served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Service {
    /// When the drive started on the request.
    pub start: Nanos,
    /// When the host learns that it is complete.
    pub done: Nanos,
    pub hit: Hit,
    /// Command overhead before anything else could happen.
    pub overhead: Nanos,
    /// The first seek or head switch, as far as the host waited for it.
    pub seek: Nanos,
    /// The rotation to the first sector, as far as the host waited for it.
    pub rotation: Nanos,
    /// The medium's work for a write that completed in the cache.
    pub behind: Option<Behind>,
}

/// How the medium takes a write that the host does not wait for. No two of these overlap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Behind {
    /// When the arm began to move, or the write before this one ended.
    pub start: Nanos,
    /// When the last sector was written.
    pub done: Nanos,
    /// The first seek or head switch.
    pub seek: Nanos,
    /// The rotation to the first sector, or until its data was there.
    pub rotation: Nanos,
}

/// What the cache did for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hit {
    Miss,
    /// A read whose first sectors were in the cache, or arriving.
    Partial,
    /// A read that did not need the medium.
    Full,
    /// A write that completed in the cache.
    Buffered,
}

/// Where a sector lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Spot {
    pub(super) track: Track,
    angle: u64,
}

/// A drive's arm, platters, cache and electronics.
#[derive(Clone, Debug)]
pub struct Mechanism {
    pub(super) tables: Arc<Tables>,
    /// Where the heads are, or will be at `free`, while nothing is read.
    pub(super) track: Track,
    /// The arm cannot start anything new earlier: it must finish a write, a seek or a sector.
    pub(super) free: Nanos,
    pub(super) segments: Segments,
    pub(super) reader: Option<Reader>,
    pub(super) writer: Option<Writer>,
    pub(super) last_was_read: bool,
    last_done: Nanos,
}

impl Mechanism {
    /// A mechanism that has just spun up: heads on the first track, empty cache. Mechanisms of a kind share most of
    /// their memory.
    ///
    /// # Errors
    /// When the drive record contradicts itself.
    pub fn new(drive: &Drive) -> Result<Mechanism, DriveError> {
        Ok(Mechanism::from_tables(Tables::shared(drive)?))
    }

    fn from_tables(tables: Arc<Tables>) -> Mechanism {
        Mechanism {
            track: Track::default(),
            free: Nanos::ZERO,
            segments: Segments::new(&tables.drive.cache),
            reader: None,
            writer: None,
            last_was_read: true,
            last_done: Nanos::ZERO,
            tables,
        }
    }

    pub fn drive(&self) -> &Drive {
        &self.tables.drive
    }

    /// Capacity in sectors.
    pub fn sectors(&self) -> u64 {
        self.tables.layout.sectors()
    }

    /// Serves a request that reached the drive at `arrived` and that the drive starts at `start`, or when the previous
    /// request is complete. `arrived` is earlier only for a command that waited in the drive's own queue, see
    /// [`super::Bus::tagged_queueing`].
    ///
    /// # Errors
    /// `OutOfRange` when the request is empty or passes the last sector. Media errors are injected above and
    /// never arise here.
    pub fn service(&mut self, arrived: Nanos, start: Nanos, request: Request) -> Result<Service, DeviceError> {
        let sectors = self.sectors();
        let (lbn, count) = (request.sector.0, u64::from(request.sectors));
        if count == 0 || lbn >= sectors || count > sectors - lbn {
            return Err(DeviceError::OutOfRange { at: request.sector, bytes: count * SECTOR_BYTES, sectors });
        }
        let start = start.max(self.last_done); // M1
        let queued = self.tables.drive.bus.tagged_queueing && arrived < start;
        let command = Command { commanded: if queued { arrived } else { start }, start, queued, lbn, count };
        self.advance(start);
        let service = if !request.write {
            self.read(&command)
        } else if self.tables.drive.cache.write_behind != WriteBehind::None && !request.fua {
            self.write_behind(&command)
        } else {
            self.write_through(&command)
        };
        self.last_was_read = !request.write;
        self.last_done = service.done;
        Ok(service)
    }

    /// When every write accepted before `now` will be on the medium.
    pub fn durable(&self, now: Nanos) -> Nanos {
        self.writer.as_ref().map_or(now, |writer| writer.end.max(now))
    }

    /// Time from `at` until the leading edge of `sector` would be under the head, if the drive did nothing else
    /// from now on: seek, head switch and rotation, no overhead. `None` beyond the last sector.
    pub fn positioning(&self, at: Nanos, sector: Sector, write: bool) -> Option<Nanos> {
        if sector.0 >= self.sectors() {
            return None;
        }
        let (track, free) = self.position();
        let extent = self.tables.extent(track, free.max(at), sector.0, 1, write);
        Some(extent.begin - at)
    }

    /// Time from `at` until the medium would begin to take a write of `sectors` to `sector`, if the command came at `at`
    /// and the drive did nothing else: overhead, seek, head switch and rotation. `None` beyond the last sector.
    pub fn write_access(&self, at: Nanos, sector: Sector, sectors: u32) -> Option<Nanos> {
        if sector.0 >= self.sectors() {
            return None;
        }
        Some(self.write_begin(at.max(self.last_done), sector, u64::from(sectors.max(1))).saturating_sub(at))
    }

    /// The track on which a sector lies; `None` beyond the last sector.
    pub fn track_of(&self, sector: Sector) -> Option<TrackPlace> {
        if sector.0 >= self.sectors() {
            return None;
        }
        let (first, end) = self.tables.layout.track(sector.0);
        let cylinder = self.tables.layout.locate(sector.0).cylinder;
        Some(TrackPlace { first: Sector(first), sectors: end - first, cylinder, arm: 0 })
    }

    /// Where a sector lies. It is inside the drive.
    pub(super) fn spot(&self, sector: Sector) -> Spot {
        let place = self.tables.layout.locate(sector.0);
        Spot { track: place.track(), angle: place.angle }
    }

    /// Time until the first sector of a request that reaches the drive at `at` is under the head, command overhead included, for
    /// schedulers.
    pub(super) fn access_time(&self, at: Nanos, spot: &Spot, write: bool) -> Nanos {
        let overhead = &self.tables.drive.overhead;
        let pair = if write { overhead.write_miss } else { overhead.read_miss };
        let (track, free) = self.position();
        let on_track = free.max(at + pair.get(self.last_was_read)) + self.tables.reposition(track, spot.track, write);
        on_track + self.tables.rotation.wait(on_track, spot.angle) - at
    }

    /// No request whose cylinder is `distance` or more away has a shorter [`Mechanism::access_time`].
    pub(super) fn access_time_min(&self, at: Nanos, distance: u32) -> Nanos {
        let overhead = &self.tables.drive.overhead;
        let time = [overhead.read_miss, overhead.write_miss].map(|pair| pair.get(self.last_was_read));
        let (_, free) = self.position();
        free.max(at + time[0].min(time[1])) + self.tables.reposition_min(distance) - at
    }

    /// The cylinder where the heads are, or that they are about to reach.
    pub(super) fn cylinder(&self) -> u32 {
        self.position().0.cylinder
    }

    /// The track where the heads are, or that they are about to reach: its first sector, and how many sectors with an
    /// address it has. `None` when it has none.
    pub fn current_track(&self) -> Option<(Sector, u64)> {
        let (track, _) = self.position();
        let (first, end) = self.tables.layout.track_at(track.cylinder, track.head)?;
        Some((Sector(first), end - first))
    }

    /// Where the heads are, and when they can leave from there.
    pub(super) fn position(&self) -> (Track, Nanos) {
        match &self.reader {
            Some(reader) => (reader.extent.track, reader.extent.on_track.max(self.free)),
            None => (self.track, self.free),
        }
    }

    /// Brings reading and writing on the medium up to `now`, at which the drive serves nothing.
    pub(super) fn advance(&mut self, now: Nanos) {
        if self.writer.as_ref().is_some_and(|writer| writer.end <= now) {
            self.writer = None;
        }
        self.advance_reading(now);
    }
}

/// A checked request, and the times at which the drive learned of it.
pub(super) struct Command {
    pub(super) commanded: Nanos,
    pub(super) start: Nanos,
    /// It waited in the drive's own queue.
    pub(super) queued: bool,
    pub(super) lbn: u64,
    pub(super) count: u64,
}

impl Command {
    pub(super) fn end(&self) -> u64 {
        self.lbn + self.count
    }
}

/// The time of `count` sectors.
pub(super) fn times(time: Nanos, count: u64) -> Nanos {
    Nanos(time.0 * count)
}
