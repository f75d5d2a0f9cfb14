//! Writes: to the medium while the host waits, or into the cache and to the medium afterwards.

use super::activity::Writer;
use super::drive::{Drive, WriteBehind};
use super::mechanism::{Behind, Command, Hit, Mechanism, Service, times};
use super::tables::TrackRun;
use crate::units::{Nanos, Sector};

/// Times of a write to the medium.
struct Media {
    /// When the arm was free.
    arm: Nanos,
    /// When the heads had reached the first track.
    on_track: Nanos,
    /// When the first sector began to be written.
    begin: Nanos,
    end: Nanos,
    /// When the cache had room for the last sector; zero if it always had.
    room: Nanos,
}

impl Media {
    /// The first seek or head switch.
    fn seek(&self) -> Nanos {
        self.on_track - self.arm
    }

    /// The rotation to the first sector. None where the heads landed within what is written.
    fn rotation(&self) -> Nanos {
        self.begin.saturating_sub(self.on_track)
    }
}

/// How a write's data gets into the cache.
struct Feed {
    /// When the bus delivers the first sector.
    moving: Nanos,
    sector_time: Nanos,
    /// Sectors that the cache can take before any is written.
    room: u64,
}

impl Feed {
    /// When the first `sectors` are in the cache.
    fn there(&self, sectors: u64) -> Nanos {
        self.moving + times(self.sector_time, sectors)
    }
}

impl Mechanism {
    /// A write that completes when it is on the medium.
    pub(super) fn write_through(&mut self, command: &Command) -> Service {
        let Drive { overhead, bus, .. } = self.tables.drive;
        self.stop_reading(command.start);
        let ready = command.start.max(command.commanded + overhead.write_miss.get(self.last_was_read));
        let arm = ready.max(self.free);
        let moving = self.data_moves(command, ready, arm);
        let feed = Feed { moving, sector_time: bus.write_sector, room: u64::MAX };
        let slot = self.take_for_writing(command);
        let media = self.write_medium(command, arm, &feed);
        self.writer = None;
        self.keep_written(slot, command);
        let reselect = if bus.disconnect_until_percent.is_some() { overhead.reselect } else { Nanos::ZERO };
        let disconnected = feed.there(command.count) + overhead.write_disconnect;
        Service {
            start: command.start,
            done: media.end.max(disconnected) + reselect + overhead.write_completion,
            hit: Hit::Miss,
            overhead: ready - command.start,
            seek: media.seek(),
            rotation: media.rotation(),
            behind: None,
        }
    }

    /// When the medium would begin to take a write of `count` sectors to `sector` whose command came at `start`: as
    /// [`Mechanism::write_through`], without doing it.
    pub(super) fn write_begin(&self, start: Nanos, sector: Sector, count: u64) -> Nanos {
        let (drive, tables) = (&self.tables.drive, &*self.tables);
        let (track, free) = self.interrupted(start);
        let ready = start + drive.overhead.write_miss.get(self.last_was_read);
        let arm = ready.max(free);
        let mut extent = tables.extent(track, arm, sector.0, count, true);
        if self.writer.is_none() {
            extent.on_track = extent.on_track.max(arm + drive.overhead.write_seek_min);
        }
        let waits = self.writer.as_ref().is_some_and(|writer| writer.end > start);
        let moving = drive.overhead.data_preparation + if waits { arm + drive.overhead.reselect } else { ready };
        let ahead = drive.cache.write_start.map_or(1, |start| start.sectors(count));
        let startable = extent.on_track.max(moving + times(drive.bus.write_sector, ahead));
        if startable > extent.begin {
            tables.postpone(&mut extent, startable);
        }
        extent.begin
    }

    /// A write that completes when the cache has it.
    pub(super) fn write_behind(&mut self, command: &Command) -> Service {
        let Drive { overhead, bus, cache, .. } = self.tables.drive;
        self.stop_reading(command.start);
        let ready = command.start.max(command.commanded + overhead.write_hit.get(self.last_was_read));
        let capacity = u64::from(cache.segment_sectors);
        let appended = self.writer.filter(|writer| {
            cache.write_behind == WriteBehind::Stream && !command.queued && writer.next == command.lbn
        });
        let (slot, arm, moving, room) = match appended {
            // Continues where the previous write ends, without a new seek: as fast as the medium allows, if the data is
            // there in time.
            Some(writer) => {
                self.segments.discard(command.lbn, command.count, Some(writer.slot));
                self.segments.touch(writer.slot);
                let room = capacity - writer.pending(command.start).min(capacity - 1);
                (writer.slot, writer.end, ready + overhead.data_preparation, room)
            }
            // Any other write waits until the previous one is on the medium: there is one stream at a time.
            None => {
                let arm = ready.max(self.free);
                let moving = self.data_moves(command, ready, arm);
                (self.take_for_writing(command), arm, moving, capacity)
            }
        };
        let feed = Feed { moving, sector_time: bus.write_sector, room };
        let media = self.write_medium(command, arm, &feed);
        self.writer = Some(Writer {
            slot,
            next: command.end(),
            begin: appended.map_or(media.begin, |writer| writer.begin),
            end: media.end,
            sectors: appended.map_or(0, |writer| writer.sectors) + command.count,
        });
        self.keep_written(slot, command);
        Service {
            start: command.start,
            done: feed.there(command.count).max(media.room) + overhead.write_completion,
            hit: Hit::Buffered,
            overhead: ready - command.start,
            seek: Nanos::ZERO,
            rotation: Nanos::ZERO,
            behind: Some(Behind { start: arm, done: media.end, seek: media.seek(), rotation: media.rotation() }),
        }
    }

    /// When data starts to move: at once, or when the drive, busy until `arm`, has taken the bus back.
    fn data_moves(&self, command: &Command, ready: Nanos, arm: Nanos) -> Nanos {
        let overhead = &self.tables.drive.overhead;
        let waited = command.queued || self.writer.is_some();
        overhead.data_preparation + if waited { arm + overhead.reselect } else { ready }
    }

    fn keep_written(&mut self, slot: usize, command: &Command) {
        if self.tables.drive.cache.read_written {
            self.segments.extend(slot, command.end());
        }
    }

    pub(super) fn victim(&self, write: bool) -> usize {
        self.segments.victim(write, self.writer.as_ref().map(|writer| writer.slot))
    }

    fn take_for_writing(&mut self, command: &Command) -> usize {
        self.segments.discard(command.lbn, command.count, None);
        let slot = self.victim(true);
        self.segments.take(slot, command.lbn);
        slot
    }

    /// Moves the heads over the sectors of a write. The arm is free at `arm`.
    fn write_medium(&mut self, command: &Command, arm: Nanos, feed: &Feed) -> Media {
        let Drive { overhead, cache, .. } = self.tables.drive;
        let mut media = Media { arm, on_track: arm, begin: arm, end: arm, room: Nanos::ZERO };
        let mut sent = 0;
        while sent < command.count {
            let mut extent = self.tables.extent(self.track, media.end, command.lbn + sent, command.count - sent, true);
            if sent == 0 && self.writer.is_none() {
                extent.on_track = extent.on_track.max(arm + overhead.write_seek_min);
            }
            // Some drives wait until the buffer holds a few sectors before they start.
            let ahead = match cache.write_start {
                Some(start) if sent == 0 => start.sectors(command.count),
                _ => 1,
            };
            let startable = extent.on_track.max(feed.there(sent + ahead));
            if startable > extent.begin || extent.on_track > extent.begin {
                self.tables.postpone(&mut extent, startable);
            }
            let (written, end) = match cache.write_on_arrival {
                true => self.write_on_arrival(&mut extent, startable, sent, feed),
                false => None,
            }
            .unwrap_or_else(|| {
                let written = self.write_in_order(&extent, sent, feed);
                (written, self.tables.passed(&extent, written))
            });
            if sent == 0 {
                (media.on_track, media.begin) = (extent.on_track, extent.begin);
            }
            // The host can hand over the last sector when the medium has taken all but what the cache holds.
            let must_be_written = command.count.saturating_sub(feed.room);
            if must_be_written > sent && must_be_written <= sent + u64::from(written) {
                let reached = self.tables.passed(&extent, (must_be_written - sent) as u32).min(end);
                media.room = reached + feed.sector_time;
            }
            self.track = extent.track;
            media.end = end;
            sent += u64::from(written);
        }
        self.free = media.end;
        media
    }

    /// Writes an extent from its first sector on, as far as the data is there in time; a late sector costs a
    /// revolution. Returns how many sectors were written, at least one.
    fn write_in_order(&self, extent: &TrackRun, sent: u64, feed: &Feed) -> u32 {
        let tables = &*self.tables;
        let in_time = |sector: u32| feed.there(sent + u64::from(sector) + 1) <= tables.passed(extent, sector);
        if in_time(extent.len - 1) {
            return extent.len;
        }
        // The bus is slower than the medium and falls behind: sectors arrive and pass evenly, so the number of
        // those in time grows with the lead of the first.
        let (mut written, mut late) = (1, extent.len - 1);
        while written < late {
            let middle = written + (late - written) / 2;
            if in_time(middle) { written = middle + 1 } else { late = middle }
        }
        written
    }

    /// Writes an extent from where the heads land, if that is inside it and all its data is there in time: it ends a
    /// revolution later.
    fn write_on_arrival(&self, extent: &mut TrackRun, at: Nanos, sent: u64, feed: &Feed) -> Option<(u32, Nanos)> {
        let tables = &*self.tables;
        let edge = tables.next_edge(extent, at);
        if edge == 0 || edge >= extent.len {
            return None;
        }
        let end = tables.passed(extent, edge);
        let landed = end.saturating_sub(tables.rotation.period());
        let last = landed + tables.rotation.time(extent.sector_turn.times(extent.len - 1 - edge));
        let there = |sector: u32| feed.there(sent + u64::from(sector) + 1);
        if there(edge) > landed || there(extent.len - 1) > last {
            return None;
        }
        extent.begin = landed;
        Some((extent.len, end))
    }
}
