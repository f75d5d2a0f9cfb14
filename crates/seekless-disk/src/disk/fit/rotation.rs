//! The speed of rotation, from the rhythm of completions.
//!
//! A read from the medium completes when its last sector has passed the head. Between the completions of two such reads, the
//! platters turn by the angle between the two sectors and by some whole revolutions, whatever seeks and overheads are. So the
//! period is the one for which times and angles agree. That needs the drive's layout: with a wrong one nothing agrees, and the
//! distributions must do.

use std::f64::consts::TAU;

use super::super::drive::Drive;
use super::super::rotation::TURN;
use super::super::tables::Tables;
use super::super::validation::Measured;

/// Speeds that are tried, as parts of that of the drive to begin with, and the step between them.
const FACTORS: (f64, f64) = (0.8, 1.25);
const STEP: f64 = 2e-4;

/// Random completions of `n` pairs have a coherence of about `1/sqrt(n)`. This many times as much is no accident, although
/// some thousand speeds are tried.
const SIGNIFICANCE: f64 = 6.0;
const COHERENCE_MIN: f64 = 0.15;

/// Pauses of more revolutions say nothing: the speed of a drive varies by a part in a thousand.
const REVOLUTIONS_MAX: f64 = 100.0;

/// The revolutions a minute that the times of `trace` show; `None` when they show none.
pub(super) fn rpm(start: &Drive, trace: &[Measured]) -> Option<u32> {
    let tables = Tables::new(start).ok()?;
    let end_angle = |measured: &Measured| {
        let last = measured.request.sector.0 + u64::from(measured.request.sectors) - 1;
        let place = tables.layout.locate(last);
        (place.angle + place.sector_turn.times(1)) as f64 / TURN as f64
    };
    let is_read = |measured: &Measured| !measured.request.write;
    // Seconds between two completions, and the angle between their last sectors in revolutions.
    let pairs: Vec<(f64, f64)> = trace
        .windows(2)
        .filter(|pair| is_read(&pair[0]) && is_read(&pair[1]))
        .map(|pair| ((pair[0].think + pair[1].service).as_secs_f64(), end_angle(&pair[1]) - end_angle(&pair[0])))
        .filter(|(secs, _)| secs * f64::from(start.rpm) / 60.0 < REVOLUTIONS_MAX)
        .collect();
    let coherence = |rpm: f64| {
        let (mut cos, mut sin) = (0.0, 0.0);
        for &(secs, angle) in &pairs {
            let (s, c) = (TAU * (secs * rpm / 60.0 - angle)).sin_cos();
            (cos, sin) = (cos + c, sin + s);
        }
        (cos * cos + sin * sin).sqrt() / pairs.len().max(1) as f64
    };
    let steps = ((FACTORS.1 - FACTORS.0) / STEP) as u32;
    let (best, rpm) = (0..=steps)
        .map(|step| f64::from(start.rpm) * (FACTORS.0 + f64::from(step) * STEP))
        .map(|rpm| (coherence(rpm), rpm))
        .max_by(|a, b| a.0.total_cmp(&b.0))?;
    let is_clear = best >= COHERENCE_MIN && best * (pairs.len() as f64).sqrt() >= SIGNIFICANCE;
    is_clear.then(|| rpm.round() as u32)
}
