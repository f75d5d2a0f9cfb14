//! The rotation of the platters, tracked exactly.
//!
//! An angle is counted in units of 1/60,000,000,000 of a revolution: at `n` revolutions per minute the platters turn by
//! exactly `n` units in a nanosecond, so the angle at any moment is an integer and nothing drifts, however long a
//! simulation runs. Index marks are at angle zero when virtual time starts.

use crate::units::Nanos;

/// One revolution.
pub(super) const TURN: u64 = 60_000_000_000;

/// Fraction bits of [`SectorTurn`]. A zone's last sector is off by less than a unit, a fraction of a nanosecond.
const FRACTION_BITS: u32 = 20;

#[derive(Clone, Debug)]
pub(super) struct Rotation {
    rpm: u64,
    /// ⌊2⁶⁴ / rpm⌋ + 1, so that a division by `rpm` is a multiplication.
    reciprocal: u64,
}

impl Rotation {
    /// `rpm` is at least 2 and below 2²⁴.
    pub(super) fn new(rpm: u32) -> Rotation {
        debug_assert!((2..1 << 24).contains(&rpm));
        Rotation { rpm: u64::from(rpm), reciprocal: u64::MAX / u64::from(rpm) + 1 }
    }

    /// Angle at `at`.
    pub(super) fn angle(&self, at: Nanos) -> u64 {
        // After 60 s exactly `rpm` revolutions are over, so the product stays below 2⁶⁴.
        (at.0 % TURN * self.rpm) % TURN
    }

    /// Time to turn by `angle`, rounded down, so that an arrival "at" an angle has not passed it yet.
    pub(super) fn time(&self, angle: u64) -> Nanos {
        // Exact while angle · rpm < 2⁶⁴: the reciprocal is too large by less than 1, which then adds up to less
        // than 1/rpm. Angles here stay below a few thousand revolutions.
        Nanos(((u128::from(angle) * u128::from(self.reciprocal)) >> 64) as u64)
    }

    /// Time from `at` until the platters are at `angle`: less than a revolution.
    pub(super) fn wait(&self, at: Nanos, angle: u64) -> Nanos {
        let now = self.angle(at);
        self.time(if angle >= now { angle - now } else { angle + TURN - now })
    }

    /// A whole revolution, rounded down.
    pub(super) fn period(&self) -> Nanos {
        self.time(TURN)
    }
}

/// The angle that a sector of some zone takes, as a fixed-point number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SectorTurn(u64);

impl SectorTurn {
    pub(super) const ZERO: SectorTurn = SectorTurn(0);

    pub(super) fn new(sectors_per_track: u32) -> SectorTurn {
        SectorTurn((TURN << FRACTION_BITS) / u64::from(sectors_per_track))
    }

    /// Angle of `sectors` sectors; at most a revolution's worth.
    pub(super) fn times(self, sectors: u32) -> u64 {
        (self.0 * u64::from(sectors)) >> FRACTION_BITS
    }

    /// Whole sectors that pass in `angle`, which is at most a revolution.
    pub(super) fn sectors_in(self, angle: u64) -> u32 {
        (angle << FRACTION_BITS).checked_div(self.0).map_or(u32::MAX, |sectors| sectors as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// The angle is exact at any time and the waits never drift: compared with 128-bit arithmetic over times up
    /// to centuries, and by waiting for the same angle a million times in a row.
    #[test]
    fn angle_is_exact_over_long_times() {
        let mut rng = Rng::new(1);
        for rpm in [3600, 4002, 5360, 5397, 7200, 10025, 10033, 10045, 15000] {
            let rotation = Rotation::new(rpm);
            for _ in 0..1000 {
                let bits = rng.below(40);
                let at = Nanos(rng.next_u64() >> bits);
                let expected = u128::from(at.0) * u128::from(rpm) % u128::from(TURN);
                assert_eq!(u128::from(rotation.angle(at)), expected);
                let angle = rng.below(TURN);
                assert_eq!(rotation.time(angle).0, angle / u64::from(rpm));
            }
            let mut at = Nanos(rng.below(1 << 40));
            let first = at + rotation.wait(at, 123);
            at = first;
            for _ in 0..1_000_000 {
                at += Nanos(1000);
                at += rotation.wait(at, 123);
            }
            let exact = u128::from(first.0) + 1_000_000 * u128::from(TURN) / u128::from(rpm);
            assert!(u128::from(at.0).abs_diff(exact) <= 1, "{rpm} rpm: {at:?} instead of {exact}");
        }
    }

    /// Sector boundaries of a whole track add up to a revolution.
    #[test]
    fn sectors_fill_a_revolution() {
        for sectors in 1..4000 {
            let turn = SectorTurn::new(sectors);
            assert!(turn.times(sectors) <= TURN && TURN - turn.times(sectors) <= 1);
            for count in [0, 1, sectors / 2, sectors - 1] {
                let exact = u128::from(TURN) * u128::from(count) / u128::from(sectors);
                assert!(u128::from(turn.times(count)).abs_diff(exact) <= 1);
            }
        }
    }
}
