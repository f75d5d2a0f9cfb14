//! Groups of similar requests, whose distributions are compared each by itself.
//!
//! One distribution over all requests determines little: a drive with slower seeks and faster overheads can have the same. Within
//! a group of one direction and one distance, few parameters matter, and each has an effect of its own.

use super::super::validation::{Answer, Measured};

/// Requests in a group: fewer would let each outlier bend the result, more would mix distances.
const GROUP_REQUESTS: usize = 80;
/// Groups of a direction: enough for the shape of a seek curve.
const GROUPS_MAX: usize = 16;

pub(super) struct Groups {
    /// Indices into the trace.
    members: Vec<Vec<usize>>,
    /// Differences beyond this count in proportion, and not squared: a recalibration or an error of the measurement is no
    /// property of the drive. One revolution.
    outlier_ms: f64,
}

impl Groups {
    pub(super) fn new(trace: &[Measured], rpm: u32) -> Groups {
        let mut members = Vec::new();
        for write in [false, true] {
            let mut by_distance: Vec<(u64, usize)> = trace
                .iter()
                .enumerate()
                .filter(|(_, measured)| measured.request.write == write)
                .map(|(index, measured)| (distance(trace, index, measured), index))
                .collect();
            if by_distance.is_empty() {
                continue;
            }
            by_distance.sort_unstable();
            let groups = (by_distance.len() / GROUP_REQUESTS).clamp(1, GROUPS_MAX);
            let size = by_distance.len().div_ceil(groups);
            members.extend(by_distance.chunks(size).map(|group| group.iter().map(|&(_, index)| index).collect()));
        }
        Groups { members, outlier_ms: 60_000.0 / f64::from(rpm) }
    }

    /// The mean square difference of the sorted times within the groups, in square milliseconds.
    pub(super) fn error(&self, answers: &[Answer]) -> f64 {
        let mut sum = 0.0;
        for group in &self.members {
            let sorted = |time: fn(&Answer) -> f64| {
                let mut times: Vec<f64> = group.iter().map(|&index| time(&answers[index])).collect();
                times.sort_unstable_by(f64::total_cmp);
                times
            };
            let measured = sorted(|answer| answer.measured.as_millis_f64());
            let modelled = sorted(|answer| answer.modelled.as_millis_f64());
            sum += measured.iter().zip(&modelled).map(|(a, b)| self.cost((a - b).abs())).sum::<f64>();
        }
        sum / answers.len().max(1) as f64
    }

    /// The cost of a difference in milliseconds, as Huber has it: square for small ones, linear for outliers.
    fn cost(&self, difference: f64) -> f64 {
        match difference < self.outlier_ms {
            true => difference * difference,
            false => self.outlier_ms * (2.0 * difference - self.outlier_ms),
        }
    }
}

/// The demerit without the longest hundredth of the times, in milliseconds: one recalibration of a second outweighs a thousand
/// requests otherwise.
pub(super) fn usual_demerit(answers: &[Answer]) -> f64 {
    let sorted = |time: fn(&Answer) -> f64| {
        let mut times: Vec<f64> = answers.iter().map(time).collect();
        times.sort_unstable_by(f64::total_cmp);
        times
    };
    let measured = sorted(|answer| answer.measured.as_millis_f64());
    let modelled = sorted(|answer| answer.modelled.as_millis_f64());
    let usual = answers.len() - answers.len() / 100;
    let sum: f64 = measured.iter().zip(&modelled).take(usual).map(|(a, b)| (a - b).powi(2)).sum();
    (sum / usual.max(1) as f64).sqrt()
}

/// Sectors from the end of the request before. Requests that continue it come first, then the near ones.
fn distance(trace: &[Measured], index: usize, measured: &Measured) -> u64 {
    let Some(before) = index.checked_sub(1).map(|before| trace[before].request) else { return 0 };
    measured.request.sector.0.abs_diff(before.sector.0.saturating_add(before.sectors.into()))
}
