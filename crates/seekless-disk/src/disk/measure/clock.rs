//! The rotation as a clock: which angle is under the heads at a given time.

use super::angles::wrapped;
use crate::units::Nanos;

/// How strongly a reference corrects phase and period.
const PHASE_GAIN: f64 = 0.1;
const PERIOD_GAIN: f64 = 0.02;

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
}

impl Clock {
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

    /// A reference was read: the clock follows the drive, whose speed changes a little.
    pub(super) fn correct(&mut self, reference: usize, done: Nanos) {
        let late = wrapped(self.angle(done) - self.references[reference].1);
        if late.abs() > (4.0 * self.jitter).max(0.02) {
            return; // An outlier, such as a read that another process has held up.
        }
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
}
