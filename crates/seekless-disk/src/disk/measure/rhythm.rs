//! Finding the rotation.
//!
//! Reads of one sector complete at times that are whole revolutions apart. The period is the one for which the completions of
//! all places, each by itself, are in phase.

use std::f64::consts::TAU;

use super::MeasureError;
use super::angles::{Cluster, circular_median, largest_cluster, median, wrapped};
use super::clock::{Clock, WIDTH_MAX};
use super::probe::Probe;

/// Periods that are looked for: 2,400 to 100,000 revolutions a minute.
const PERIOD_MIN_SECS: f64 = 0.0006;
const PERIOD_MAX_SECS: f64 = 0.025;

/// How often each place is read.
const PASSES: usize = 8;

/// Completions of a disk have a coherence near 1, and less when a busy machine delays some of them. The best of thousands of
/// frequencies has 0.15 for random completions of the fewest places.
const COHERENCE_MIN: f64 = 0.3;

/// How often all passes are made at most, until a rotation shows. Where two of three answers are late by any time, the coherence is 1/9.
const ROUNDS: u32 = 4;

/// Half of all reads wait for half a revolution or longer; with jitter, this is the least in revolutions.
const SERVICE_MIN: f64 = 0.4;

/// Every multiple of the frequency is coherent as well; the lowest is the rotation. A lower one has at most this part of the
/// best coherence.
const FUNDAMENTAL: f64 = 0.85;

/// Reads `places` in turn and finds the period.
pub(super) async fn find(probe: &mut Probe<'_>, places: &[u64]) -> Result<Clock, MeasureError> {
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); places.len()];
    let mut services = Vec::new();
    let (mut frequency, mut coherence, mut least) = (0.0, 0.0, COHERENCE_MIN);
    for round in 1..=ROUNDS {
        for _ in 0..PASSES {
            let mut order: Vec<usize> = (0..places.len()).collect();
            probe.rng.shuffle(&mut order);
            for index in order {
                let timed = probe.read(places[index]).await?;
                times[index].push(timed.done.as_secs_f64());
                services.push(timed.service().as_secs_f64());
            }
        }
        (frequency, coherence) = self::frequency(&times);
        // The coherence of random completions falls with their number.
        least = COHERENCE_MIN / f64::from(round);
        if coherence >= least {
            break;
        }
    }
    // Answers that all take the same time are in phase, too, but no medium has passed by.
    if coherence < least || median(&mut services) * frequency < SERVICE_MIN {
        return Err(MeasureError::NoRotation { reads: probe.reads, coherence });
    }
    let period = 1.0 / frequency;
    let mut clock = Clock { period, zero: times[0][0], jitter: 0.0, references: Vec::new(), corrected: 0.0, late: 0.0 };
    let angles: Vec<Vec<f64>> =
        times.iter().map(|times| times.iter().map(|&time| clock.angle_at(time)).collect()).collect();
    let clusters: Vec<Cluster> = angles.iter().map(|angles| largest_cluster(angles, WIDTH_MAX)).collect();
    let on_time: usize = clusters.iter().map(|cluster| cluster.count).sum();
    clock.late = 1.0 - on_time as f64 / services.len() as f64;
    let mut squares = Vec::new();
    for ((angles, cluster), &place) in angles.iter().zip(clusters).zip(places) {
        let (angle, usable): (f64, Vec<f64>) = match clock.is_disturbed() {
            true if !cluster.is_settled(clock.late) => continue,
            true => (
                cluster.angle,
                angles.iter().copied().filter(|&one| wrapped(one - cluster.angle).abs() < WIDTH_MAX).collect(),
            ),
            false => (circular_median(angles), angles.clone()),
        };
        squares.extend(usable.iter().map(|&one| wrapped(one - angle).powi(2)));
        clock.references.push((place, angle));
    }
    if clock.references.is_empty() {
        return Err(MeasureError::NoRotation { reads: probe.reads, coherence });
    }
    // Outliers are no jitter: a read that missed its revolution by a hair is late by all of one.
    squares.sort_unstable_by(f64::total_cmp);
    let usual = &squares[..squares.len() * 9 / 10];
    clock.jitter = (usual.iter().sum::<f64>() / usual.len().max(1) as f64).sqrt();
    clock.corrected = probe.rt.now().as_secs_f64();
    Ok(clock)
}

/// The frequency for which the completions of each place are in phase, and how much they are: 0 to 1.
fn frequency(times: &[Vec<f64>]) -> (f64, f64) {
    let first = times.iter().flatten().copied().fold(f64::INFINITY, f64::min);
    let last = times.iter().flatten().copied().fold(0.0, f64::max);
    let span = (last - first).max(1e-3);
    let (low, high) = (1.0 / PERIOD_MAX_SECS, 1.0 / PERIOD_MIN_SECS);
    let step = 0.2 / span;
    let steps = ((high - low) / step) as usize;
    let scan = scan(times, first, low, step, steps);
    let best = scan.iter().copied().fold(0.0, f64::max);
    let Some(index) = scan.iter().position(|&one| one >= FUNDAMENTAL * best) else { return (low, 0.0) };
    // The top of that peak, by ever smaller steps.
    let (mut top, mut width) = (low + index as f64 * step, step);
    while width > 1e-5 / span {
        let around = (-4..=4).map(|offset| top + f64::from(offset) * width / 2.0);
        top = around.max_by(|&a, &b| coherence(times, first, a).total_cmp(&coherence(times, first, b))).unwrap_or(top);
        width /= 2.0;
    }
    (top, coherence(times, first, top))
}

/// [`coherence`] at the frequency `low`, and at `steps` further ones, each `step` higher. From one to the next, the phase of a
/// completion turns by the same angle, so that there is no sine to compute for each.
fn scan(times: &[Vec<f64>], first: f64, low: f64, step: f64, steps: usize) -> Vec<f64> {
    let mut sums = vec![0.0; steps + 1];
    for times in times {
        let turning = |time: &f64| (phase(time - first, low), phase(time - first, step));
        let mut phases: Vec<(Phase, Phase)> = times.iter().map(turning).collect();
        for sum in &mut sums {
            *sum += in_phase(phases.iter().map(|(phase, _)| *phase));
            for ((cos, sin), (turn_cos, turn_sin)) in &mut phases {
                (*cos, *sin) = (*cos * *turn_cos - *sin * *turn_sin, *cos * *turn_sin + *sin * *turn_cos);
            }
        }
    }
    sums.iter().map(|sum| sum / times.len().max(1) as f64).collect()
}

/// The mean over places of how far their completions are in phase at `frequency`.
fn coherence(times: &[Vec<f64>], first: f64, frequency: f64) -> f64 {
    let of = |times: &Vec<f64>| in_phase(times.iter().map(|time| phase(time - first, frequency)));
    times.iter().map(of).sum::<f64>() / times.len().max(1) as f64
}

/// Cosine and sine.
type Phase = (f64, f64);

fn phase(time: f64, frequency: f64) -> Phase {
    let (sin, cos) = (TAU * (time * frequency).fract()).sin_cos();
    (cos, sin)
}

/// How far `phases` are the same: 1 if all are, 0 on average if they are independent.
fn in_phase(phases: impl ExactSizeIterator<Item = Phase>) -> f64 {
    let count = phases.len() as f64;
    let (cos, sin) = phases.fold((0.0, 0.0), |sum, phase| (sum.0 + phase.0, sum.1 + phase.1));
    // Without what independent phases have.
    ((cos * cos + sin * sin - count) / (count * (count - 1.0)).max(1.0)).max(-1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// A scan computes what `coherence` does. Method: random times, thousands of steps.
    #[test]
    fn a_scan_is_a_series_of_coherences() {
        let mut rng = Rng::new(1);
        let mut place = || (0..8).map(|_| 100.0 + rng.below(1_000_000_000) as f64 / 1e8).collect::<Vec<f64>>();
        let times: Vec<Vec<f64>> = (0..3).map(|_| place()).collect();
        let (first, low, step, steps) = (100.0, 40.0, 0.02, 20_000);
        for (index, sum) in scan(&times, first, low, step, steps).into_iter().enumerate() {
            let expected = coherence(&times, first, low + index as f64 * step);
            assert!((sum - expected).abs() < 1e-8, "step {index}: {sum}, {expected}");
        }
    }
}
