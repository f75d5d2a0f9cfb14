//! What a drive's time went into: serving the host, and writing what the host was told is in the cache.

use std::collections::VecDeque;

use super::mechanism::Service;
use crate::units::Nanos;

/// Time of a drive, as far as it is over.
#[derive(Clone, Copy, Default)]
pub(super) struct Times {
    /// The drive served a request, or wrote on the medium what it had in the cache.
    pub(super) busy: Nanos,
    pub(super) overhead: Nanos,
    pub(super) seek: Nanos,
    pub(super) rotation: Nanos,
}

/// An interval in which a drive works, and what for: first the command, then the seek, the rotation, and the transfer.
#[derive(Clone, Copy)]
struct Piece {
    start: Nanos,
    done: Nanos,
    overhead: Nanos,
    seek: Nanos,
    rotation: Nanos,
}

/// The work of one drive, no moment of it counted twice: while the medium is written, the time is the medium's, whatever the host
/// waits for.
#[derive(Default)]
pub(super) struct Spent {
    /// Of `over`, all but these. Usually one; more when callers have left while they waited, or when the cache is written.
    under_way: VecDeque<Piece>,
    /// From when to when the medium is written after the host has its answer: in order, without those that ended before the last
    /// service began.
    behind: VecDeque<(Nanos, Nanos)>,
    over: Times,
}

impl Spent {
    /// Adds a service, which begins after those before it are done.
    pub(super) fn add(&mut self, service: &Service) {
        let Service { start, done, overhead, seek, rotation, .. } = *service;
        while self.behind.front().is_some_and(|&(_, end)| end <= start) {
            self.behind.pop_front();
        }
        if let Some(behind) = service.behind {
            let (start, done) = (behind.start, behind.done);
            self.under_way.push_back(Piece {
                start,
                done,
                overhead: Nanos::ZERO,
                seek: behind.seek,
                rotation: behind.rotation,
            });
            self.behind.push_back((start, done));
        }
        // What is left of the service between those intervals.
        let mut whole = Piece { start, done, overhead, seek, rotation };
        for &(start, done) in &self.behind {
            if let Some(before) = whole.split(start, done) {
                self.under_way.push_back(before);
            }
        }
        if whole.start < whole.done {
            self.under_way.push_back(whole);
        }
    }

    /// Forgets the pieces that are over, but for their times.
    pub(super) fn settle(&mut self, now: Nanos) {
        while let Some(piece) = self.under_way.front().filter(|piece| piece.done <= now) {
            piece.count(now, &mut self.over);
            self.under_way.pop_front();
        }
    }

    /// With the part of each piece that is over at `now`: what ends later counts later.
    pub(super) fn at(&self, now: Nanos) -> Times {
        let mut times = self.over;
        for piece in &self.under_way {
            piece.count(now, &mut times);
        }
        times
    }
}

impl Piece {
    /// Takes away what comes before `done`, and returns the part of it before `start`.
    fn split(&mut self, start: Nanos, done: Nanos) -> Option<Piece> {
        let before = Piece { done: self.done.min(start), ..*self };
        let is_any = before.start < before.done;
        if is_any {
            let mut rest = before.done - before.start;
            for part in [&mut self.overhead, &mut self.seek, &mut self.rotation] {
                let over = rest.min(*part);
                part.0 -= over.0;
                rest.0 -= over.0;
            }
            self.start = before.done;
        }
        // The command's time passes while the medium is written, too; the arm's does not.
        let hidden = self.done.min(done).saturating_sub(self.start);
        self.overhead = self.overhead.saturating_sub(hidden);
        self.start += hidden;
        is_any.then_some(before)
    }

    /// Adds what is over at `now`.
    fn count(&self, now: Nanos, times: &mut Times) {
        let mut rest = now.min(self.done).saturating_sub(self.start);
        times.busy += rest;
        let parts =
            [(self.overhead, &mut times.overhead), (self.seek, &mut times.seek), (self.rotation, &mut times.rotation)];
        for (part, time) in parts {
            let over = part.min(rest);
            *time += over;
            rest.0 -= over.0;
        }
    }
}
