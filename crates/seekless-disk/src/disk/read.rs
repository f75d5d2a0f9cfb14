//! Reads: from the cache, from the medium, and ahead of what the host asked for.

use super::activity::Reader;
use super::drive::{Bus, Cache, Drive, ReadAhead};
use super::mechanism::{Command, Hit, Mechanism, Service, times};
use super::rotation::SectorTurn;
use super::tables::{Track, TrackRun};
use crate::units::Nanos;

impl Mechanism {
    pub(super) fn read(&mut self, command: &Command) -> Service {
        let Drive { overhead, bus, cache, .. } = self.tables.drive;
        let sector_time = bus.read_sector;
        let (hit_time, miss_time) =
            (overhead.read_hit.get(self.last_was_read), overhead.read_miss.get(self.last_was_read));

        let reading = self.reader.as_ref().map(|reader| reader.slot);
        let found = self.segments.find(command.lbn, command.count, reading);
        if reading != found.map(|(slot, _)| slot) {
            self.stop_reading(command.start);
        }
        let ready = command.start.max(command.commanded + miss_time);
        let arm = ready.max(self.free);
        let (slot, cached) = found.unwrap_or_else(|| (self.victim(false), 0));
        if found.is_none() {
            self.segments.take(slot, command.lbn);
        }
        self.segments.touch(slot);
        let read_limit = self.read_limit(slot, command);
        let segment = self.segments.get_mut(slot);
        segment.read_limit = segment.read_limit.max(read_limit);

        // When data can start to move. A drive that holds the bus can do so once it has understood the command; one
        // that releases the bus takes it back when it has something to send (`None`: not yet known).
        let prepared = overhead.data_preparation;
        let moving = match (found, bus.disconnect_until_percent) {
            (Some(_), None) => Some(command.commanded + hit_time + prepared),
            (None, None) => Some(command.commanded + miss_time + prepared),
            (Some(_), Some(_)) if command.queued || self.writer.is_some() => Some(arm + overhead.reselect + prepared),
            (Some(_), Some(_)) => Some(command.start + hit_time + prepared),
            (None, Some(_)) => None,
        };

        if let Some(moving) = moving.filter(|_| cached == command.count) {
            if self.reader.is_none() && cache.read_ahead_after_hit {
                self.resume_reading(slot, arm);
            }
            self.forget_sent(slot, command);
            return Service {
                start: command.start,
                done: moving + times(sector_time, cached) + overhead.read_completion,
                hit: Hit::Full,
                overhead: moving.saturating_sub(command.start),
                seek: Nanos::ZERO,
                rotation: Nanos::ZERO,
                behind: None,
            };
        }

        let mut reader = match self.reader.take() {
            Some(reader) => reader,
            None => self.start_reading(slot, command.lbn + cached, arm, command.end()),
        };
        let first = reader.extent;
        let mut walk = BusWalk {
            sector_time,
            free: moving.map(|moving| moving + times(sector_time, cached)),
            sent: cached,
            watermark: watermark(&bus, &cache, command.count),
            reconnect: overhead.reselect + prepared,
        };
        let capacity = u64::from(cache.segment_sectors);
        loop {
            let from = (command.lbn + walk.sent - reader.extent.first) as u32;
            let to = (reader.extent.end().min(command.end()) - reader.extent.first) as u32;
            // A buffer full of unsent sectors stalls the head.
            let full = (walk.sent + u64::from(to - from)).saturating_sub(capacity);
            if let (0, 1.., Some(free)) = (from, full, walk.free) {
                let room = Nanos(free.0.saturating_sub(times(sector_time, walk.sent.saturating_sub(full)).0));
                if room > reader.extent.begin {
                    self.tables.postpone(&mut reader.extent, room);
                }
            }
            walk.send(from, to, |sectors| self.tables.passed(&reader.extent, sectors));
            if walk.sent == command.count {
                break;
            }
            self.segments.extend(slot, reader.extent.end());
            self.next_extent(&mut reader, Some(command.end()));
        }
        self.reader = Some(reader);
        self.forget_sent(slot, command);
        let done = walk.free.unwrap_or(arm) + overhead.read_completion;
        let understood = if found.is_some() { moving.unwrap_or(ready) } else { ready }.min(done);
        Service {
            start: command.start,
            done,
            hit: if found.is_some() { Hit::Partial } else { Hit::Miss },
            overhead: understood - command.start,
            seek: first.on_track.min(done).saturating_sub(arm.max(understood)),
            rotation: first.begin.min(done).saturating_sub(first.on_track.max(understood)),
            behind: None,
        }
    }

    /// Brings read-ahead up to `now`.
    pub(super) fn advance_reading(&mut self, now: Nanos) {
        while let Some(mut reader) = self.reader {
            let sectors = self.tables.sectors_by(&reader.extent, now);
            self.segments.extend(reader.slot, reader.extent.first + u64::from(sectors));
            if sectors < reader.extent.len {
                return;
            }
            if self.next_extent(&mut reader, None) {
                self.reader = Some(reader);
            } else {
                self.track = reader.extent.track;
                self.free = self.free.max(self.tables.passed(&reader.extent, reader.extent.len));
                self.reader = None;
            }
        }
    }

    /// Interrupts reading: `self.free` says when the arm can leave.
    pub(super) fn stop_reading(&mut self, now: Nanos) {
        (self.track, self.free) = self.interrupted(now);
        self.reader = None;
    }

    /// Where the heads are, and when they can leave from there, if reading is interrupted at `now`. Reading has been brought up to
    /// `now`, or it has not got so far.
    pub(super) fn interrupted(&self, now: Nanos) -> (Track, Nanos) {
        let Some(reader) = &self.reader else { return (self.track, self.free) };
        let extent = &reader.extent;
        let until = if now < extent.on_track || self.tables.drive.cache.stop_in_sector {
            extent.on_track
        } else {
            // The end of the passing sector, or of the rotation to the first.
            let passed = self.tables.sectors_by(extent, now);
            if now < extent.begin { extent.begin } else { self.tables.passed(extent, (passed + 1).min(extent.len)) }
        };
        (extent.track, self.free.max(until))
    }

    /// Starts to read into a segment from `lbn` on; the host waits for the sectors before `request_end`.
    fn start_reading(&mut self, slot: usize, lbn: u64, arm: Nanos, request_end: u64) -> Reader {
        let mut reader = Reader { slot, extent: TrackRun::empty(self.track, arm, lbn), early: 0 };
        self.next_extent(&mut reader, Some(request_end));
        reader
    }

    /// Resumes read-ahead in a segment that is not being read into.
    fn resume_reading(&mut self, slot: usize, arm: Nanos) {
        let end = self.segments.get(slot).end;
        let mut reader = Reader { slot, extent: TrackRun::empty(self.track, arm, end), early: 0 };
        if self.next_extent(&mut reader, None) {
            self.reader = Some(reader);
        }
    }

    /// Moves to the sectors after the current extent. `request_end` is given while the host waits for sectors;
    /// otherwise read-ahead decides whether to continue, and the result is false when it stops.
    fn next_extent(&mut self, reader: &mut Reader, request_end: Option<u64>) -> bool {
        let tables = &*self.tables;
        let (lbn, at) = (reader.extent.end(), tables.passed(&reader.extent, reader.extent.len));
        if reader.early > 0 {
            let len = std::mem::take(&mut reader.early);
            let track = reader.extent.track;
            reader.extent = TrackRun { len, ..TrackRun::empty(track, at, lbn) };
            return true;
        }
        let request_end = request_end.filter(|&end| lbn < end);
        let segment = self.segments.get_mut(reader.slot);
        let limit = segment.read_limit.max(request_end.unwrap_or(0)).min(tables.layout.sectors());
        if lbn >= limit {
            return false;
        }
        let from = reader.extent.track;
        let mut extent = tables.extent(from, at, lbn, limit - lbn, false);
        let stays = match tables.drive.cache.read_ahead {
            _ if request_end.is_some() => true,
            ReadAhead::None => false,
            ReadAhead::TrackEnd { .. } => extent.track == from,
            ReadAhead::CylinderEnd { .. } => extent.track.cylinder == from.cylinder,
            ReadAhead::Sectors { .. } | ReadAhead::NextTrack => true,
        };
        if !stays {
            return false;
        }
        if let (Some(request_end), true) = (request_end, tables.drive.cache.read_on_arrival) {
            // The first sector to pass in full after the heads arrive. If the host waits for it, it and those after it
            // come in first, and all are there after a revolution.
            let edge = tables.next_edge(&extent, extent.on_track);
            let wanted = (request_end - lbn).min(u64::from(extent.len)) as u32;
            if edge > 0 && edge < wanted {
                reader.early = wanted - edge;
                extent.len = edge;
            }
            if tables.drive.cache.keep_passing_sectors && edge > 0 && segment.start == lbn && segment.end == lbn {
                let (track_start, track_end) = tables.layout.track(lbn);
                if u64::from(edge) < track_end - lbn {
                    segment.start = track_start;
                }
            }
        }
        reader.extent = extent;
        true
    }

    fn forget_sent(&mut self, slot: usize, command: &Command) {
        if self.tables.drive.cache.forget_sent {
            let segment = self.segments.get_mut(slot);
            segment.start = segment.start.max(command.end());
        }
    }

    /// First sector that the drive will not read ahead of its own accord, after a read.
    fn read_limit(&self, slot: usize, command: &Command) -> u64 {
        let (layout, end) = (&self.tables.layout, command.end());
        let limit = match self.tables.drive.cache.read_ahead {
            ReadAhead::None => end,
            ReadAhead::TrackEnd { sectors } | ReadAhead::CylinderEnd { sectors } | ReadAhead::Sectors { sectors } => {
                end + u64::from(sectors)
            }
            ReadAhead::NextTrack if end == layout.sectors() => end,
            ReadAhead::NextTrack => {
                let (track_start, track_end) = layout.track(end);
                let sequential = self.segments.get(slot).start < track_start;
                track_end + if sequential { u64::from(layout.sectors_per_track(command.lbn)) } else { 0 }
            }
        };
        limit.min(layout.sectors())
    }
}

/// Sectors on their way from the buffer to the host.
struct BusWalk {
    sector_time: Nanos,
    /// When the bus has sent everything that has passed so far; `None` while the drive has not taken it back.
    free: Option<Nanos>,
    /// Sectors of the request that are accounted for.
    sent: u64,
    /// Sectors that must be there before the drive takes back the bus.
    watermark: u64,
    /// Time to take the bus back.
    reconnect: Nanos,
}

impl BusWalk {
    /// Sends the sectors `from..to` of an extent, of which the first `n` have passed the head at `passed(n)`.
    fn send(&mut self, mut from: u32, to: u32, passed: impl Fn(u32) -> Nanos) {
        let arriving = u64::from(to - from);
        if self.free.is_none() && self.sent + arriving >= self.watermark {
            let part = (self.watermark - self.sent) as u32;
            self.free = Some(passed(from + part) + self.reconnect + times(self.sector_time, self.watermark));
            from += part;
        }
        if let Some(free) = self.free.filter(|_| from < to) {
            // The bus continues where it stopped, starts when the first sector is there, or waits for the last: sectors
            // arrive evenly, so one of these three decides.
            let whole = times(self.sector_time, u64::from(to - from));
            let last = passed(to) + self.sector_time;
            self.free = Some((free + whole).max(passed(from + 1) + whole).max(last));
        }
        self.sent += arriving;
    }
}

/// Sectors that must be there before a drive takes back the bus that it released.
fn watermark(bus: &Bus, cache: &Cache, count: u64) -> u64 {
    let percent = u64::from(bus.disconnect_until_percent.unwrap_or(0));
    let mark = count.min(u64::from(cache.segment_sectors)) * percent / 100;
    mark.min(bus.disconnect_until_sectors.map_or(u64::MAX, u64::from)).clamp(1, count)
}

impl TrackRun {
    /// An empty extent, after which reading continues at `lbn` with the heads on `track` at `at`.
    pub(super) fn empty(track: Track, at: Nanos, lbn: u64) -> TrackRun {
        TrackRun { first: lbn, len: 0, on_track: at, begin: at, track, angle: 0, sector_turn: SectorTurn::ZERO }
    }
}
