//! The rotation as a clock: which angle is under the heads at a given time.

use super::angles::wrapped;
use crate::units::Nanos;

/// How strongly a reference corrects phase and period.
const PHASE_GAIN: f64 = 0.1;
const PERIOD_GAIN: f64 = 0.02;

/// Up to this share, what a late answer spoils is found when ends of tracks are read once more.
const LATE_MIN: f64 = 0.1;
/// How strongly an answer changes the share of late ones.
const LATE_GAIN: f64 = 1.0 / 24.0;

/// Limits of [`Clock::width`]: the wider, the more late answers lie within it.
const WIDTH_MIN: f64 = 0.01;
pub(super) const WIDTH_MAX: f64 = 0.02;
/// A shorter read, in revolutions, is answered by the cache, whose angle says nothing.
const MEDIUM_MIN: f64 = 0.25;

pub(super) struct Clock {
    /// Revolution in seconds.
    pub(super) period: f64,
    /// A time at which the angle is zero, in seconds.
    pub(super) zero: f64,
    /// Root mean square deviation of completions, in revolutions.
    pub(super) jitter: f64,
    /// Sectors with their angles.
    pub(super) references: Vec<(u64, f64)>,
    pub(super) corrected: f64,
    /// Share of answers that come late, of the last few dozen that could show it.
    pub(super) late: f64,
}

impl Clock {
    /// So many answers are late that a median may be one of them.
    pub(super) fn is_disturbed(&self) -> bool {
        self.late > LATE_MIN
    }

    /// How far apart angles of one sector are that are read on time, in revolutions.
    pub(super) fn width(&self) -> f64 {
        (4.0 * self.jitter).clamp(WIDTH_MIN, WIDTH_MAX)
    }

    /// The angle under the heads, in revolutions from 0 to 1.
    pub(super) fn angle(&self, at: Nanos) -> f64 {
        self.angle_at(at.as_secs_f64())
    }

    pub(super) fn angle_at(&self, secs: f64) -> f64 {
        ((secs - self.zero) / self.period).rem_euclid(1.0)
    }

    /// The first time from `at` on with `angle` under the heads.
    pub(super) fn next(&self, at: Nanos, angle: f64) -> Nanos {
        let turn = (angle - self.angle(at)).rem_euclid(1.0);
        at + Nanos((turn * self.period * 1e9) as u64)
    }

    pub(super) fn nanos(&self, revolutions: f64) -> Nanos {
        Nanos((revolutions.max(0.0) * self.period * 1e9).round() as u64)
    }

    /// Whether what has `angle` was read at `done`, as far as can be said.
    pub(super) fn is_on_time(&self, angle: f64, done: Nanos) -> bool {
        wrapped(self.angle(done) - angle).abs() <= (4.0 * self.jitter).max(0.02)
    }

    /// A reference was read: the clock follows the drive, whose speed changes a little.
    pub(super) fn correct(&mut self, reference: usize, done: Nanos) {
        if !self.is_on_time(self.references[reference].1, done) {
            return; // An outlier, such as a read that another process has held up.
        }
        let late = wrapped(self.angle(done) - self.references[reference].1);
        let now = done.as_secs_f64();
        let passed = (now - self.corrected).max(self.period) / self.period;
        self.zero += late * self.period * PHASE_GAIN;
        // Turn about now, so that the phase does not jump with the period.
        let turns = ((now - self.zero) / self.period).round();
        let change = late * self.period * PERIOD_GAIN / passed.max(100.0);
        self.period += change;
        self.zero -= turns * change;
        self.corrected = now;
    }

    /// A reference was read: is it on time?
    pub(super) fn watch(&mut self, reference: usize, service: Nanos, done: Nanos) {
        if service.as_secs_f64() < MEDIUM_MIN * self.period {
            return;
        }
        let is_late = !self.is_on_time(self.references[reference].1, done);
        self.late += LATE_GAIN * (f64::from(u8::from(is_late)) - self.late);
    }
}
