//! The search: steps along each parameter that grow while they help and shrink when they do not, and one try of each kind of
//! cache between the rounds.
//!
//! A direct search suits the error: it has corners where a request misses a revolution, so that gradients mean little. Steps
//! along sums of parameters follow its valleys, such as slower seeks with faster overheads.

use super::Problem;
use super::knobs::{
    DENSITY, HEAD_SWITCH, KNOTS, NUMBERS, Point, READ_HIT, READ_MISS, READ_SECTOR, RPM, WRITE, WRITE_SECTOR,
    WRITE_SETTLE, density_is_free, other_caches,
};

pub(super) struct FittedPoint {
    pub(super) point: Point,
    pub(super) is_early: bool,
}

/// One way to change a point.
struct Direction {
    numbers: Vec<(usize, f64)>,
    /// How much of it to add next; its sign is that of the last success.
    step: f64,
    step_min: f64,
}

/// A cache of another kind must lower the error by this factor: what it changes is more than a number.
const CACHE_GAIN: f64 = 0.99;
/// Rounds in which other caches are tried. Later ones find nothing that the first two have missed.
const CACHE_ROUNDS: u32 = 3;
/// A round that gains less than this part is the last, once the steps are small.
const ROUND_GAIN: f64 = 1e-3;

pub(super) fn search(problem: &mut Problem<'_>) -> FittedPoint {
    let mut point = Point::start(problem.start);
    let outcome = descend(problem, &mut point);
    FittedPoint { point, is_early: outcome.is_none() }
}

/// Leaves the best point found in `best`. `None` when the problem wants no more points.
fn descend(problem: &mut Problem<'_>, best: &mut Point) -> Option<()> {
    let mut error = problem.error(best, f64::INFINITY)?;
    if let Some(rpm) = problem.rpm {
        best.numbers[RPM] = (f64::from(rpm) / f64::from(problem.start.rpm)).ln();
        error = problem.error(best, error)?;
    }
    let mut directions = directions(problem);
    for round in 0.. {
        let before = error;
        if round > 0 && round <= CACHE_ROUNDS {
            try_caches(problem, best, &mut error)?;
        }
        // Several sweeps, because each parameter moves the best value of others.
        for _ in 0..4 {
            for direction in &mut directions {
                step(problem, best, &mut error, direction)?;
            }
        }
        let is_fine = directions.iter().all(|direction| direction.step.abs() <= 2.0 * direction.step_min);
        if round > CACHE_ROUNDS && is_fine && error > before * (1.0 - ROUND_GAIN) {
            return Some(());
        }
    }
    Some(())
}

/// Tries a step forwards, and else backwards.
fn step(problem: &mut Problem<'_>, best: &mut Point, error: &mut f64, direction: &mut Direction) -> Option<()> {
    for sign in [1.0, -1.0] {
        let mut next = best.clone();
        for &(number, weight) in &direction.numbers {
            next.numbers[number] += sign * direction.step * weight;
        }
        let next_error = problem.error(&next, *error)?;
        if next_error < *error {
            (*best, *error) = (next, next_error);
            direction.step *= 1.7 * sign;
            return Some(());
        }
    }
    direction.step = direction.step.signum() * (direction.step.abs() * 0.45).max(direction.step_min);
    Some(())
}

fn try_caches(problem: &mut Problem<'_>, best: &mut Point, error: &mut f64) -> Option<()> {
    let track = problem.start.zones.first().map_or(1, |zone| zone.sectors_per_track);
    for cache in other_caches(&best.cache, track) {
        consider(problem, best, error, Point { cache, ..best.clone() })?;
    }
    let disconnect_until_percent = if best.disconnect_until_percent.is_some() { None } else { Some(0) };
    consider(problem, best, error, Point { disconnect_until_percent, ..best.clone() })
}

fn consider(problem: &mut Problem<'_>, best: &mut Point, error: &mut f64, other: Point) -> Option<()> {
    let other_error = problem.error(&other, *error)?;
    if other_error < *error * CACHE_GAIN {
        (*best, *error) = (other, other_error);
    }
    Some(())
}

/// What is changed, with the first step of each: a few per cent of what real drives have.
fn directions(problem: &Problem<'_>) -> Vec<Direction> {
    let one = |number, step, step_min| Direction { numbers: vec![(number, 1.0)], step, step_min };
    let revolution_ms = 60_000.0 / f64::from(problem.start.rpm);
    let all_seeks = || (0..KNOTS).map(|knot| (knot, 1.0));
    let mut directions = vec![
        one(READ_MISS, 0.3, 0.002),
        one(WRITE, 0.3, 0.002),
        Direction { numbers: all_seeks().collect(), step: 0.5, step_min: 0.004 },
        // Longer seeks change more.
        Direction { numbers: (0..KNOTS).map(|knot| (knot, knot as f64)).collect(), step: 0.1, step_min: 0.002 },
        one(READ_HIT, 0.2, 0.002),
        one(WRITE_SETTLE, 0.3, 0.004),
        one(READ_SECTOR, 0.02, 0.0003),
        one(WRITE_SECTOR, 0.02, 0.0003),
        one(HEAD_SWITCH, 0.3, 0.01),
        // What seeks lose, overheads gain.
        Direction {
            numbers: all_seeks().chain([(READ_MISS, -1.0), (WRITE, -1.0)]).collect(),
            step: revolution_ms / 20.0,
            step_min: 0.005,
        },
        Direction { numbers: vec![(WRITE, 1.0), (WRITE_SETTLE, -1.0)], step: 0.3, step_min: 0.005 },
    ];
    directions.extend((0..KNOTS).map(|knot| one(knot, 0.3, 0.005)));
    if density_is_free(problem.start) {
        directions.push(one(DENSITY, 0.1, 0.002));
    }
    debug_assert!(directions.iter().flat_map(|direction| &direction.numbers).all(|&(number, _)| number < NUMBERS));
    directions
}
