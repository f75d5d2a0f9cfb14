//! Angles as numbers of revolutions, and middles of samples.

/// `angle` as a difference between -0.5 and 0.5 revolutions.
pub(super) fn wrapped(angle: f64) -> f64 {
    angle - angle.round()
}

/// The angle from which the others differ least.
pub(super) fn circular_median(angles: &[f64]) -> f64 {
    let distance = |from: f64| angles.iter().map(|&angle| wrapped(angle - from).abs()).sum::<f64>();
    angles.iter().copied().min_by(|&a, &b| distance(a).total_cmp(&distance(b))).unwrap_or(0.0)
}

/// The middle of the sorted values; 0 of none.
pub(super) fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Angles that are nearly the same.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Cluster {
    pub(super) angle: f64,
    pub(super) count: usize,
    /// Members of the largest cluster of the others.
    next: usize,
}

/// The most angles within `width`: those of answers on time, if there are enough of these. An answer is never early, and late by any time
/// at all: so those on time have one angle, and the late ones are all over the revolution. Where most are late, a median is one of them.
pub(super) fn largest_cluster(angles: &[f64], width: f64) -> Cluster {
    let behind = |from: f64, angle: f64| (angle - from).rem_euclid(1.0);
    let largest = |angles: &[f64]| -> (usize, f64) {
        let count = |from: f64| angles.iter().filter(|&&angle| behind(from, angle) <= width).count();
        angles.iter().map(|&from| (count(from), from)).max_by_key(|(count, _)| *count).unwrap_or((0, 0.0))
    };
    let (count, from) = largest(angles);
    let (members, others): (Vec<f64>, Vec<f64>) =
        angles.iter().copied().partition(|&angle| behind(from, angle) <= width);
    let mut offsets: Vec<f64> = members.into_iter().map(|angle| behind(from, angle)).collect();
    let angle = (from + median(&mut offsets)).rem_euclid(1.0);
    Cluster { angle, count, next: largest(&others).0 }
}

impl Cluster {
    /// Whether these are enough, and enough more than in any other place, to be answers on time, where a share of all answers is `late`.
    /// Delays are often short, so that late ones can be the first to agree: of two thirds that are late, three quarters of these by up to a
    /// tenth of a revolution, 7 in 100 angles would be wrong with three that agree, and fewer than one with five.
    pub(super) fn is_settled(&self, late: f64) -> bool {
        let needed = 3 + (3.0 * late).round() as usize;
        self.count >= needed && self.count > self.next + needed / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Aim: the angle of answers on time is found among late ones, also where these are more, and across the start of a revolution. Method: angles
    /// with a small jitter, a share of them late, three of four of these by up to a tenth of a revolution and the others by any part of one; as many as it takes.
    #[test]
    fn answers_on_time_are_found_among_late_ones() {
        for (late_percent, reads_max) in [(0, 3), (30, 7), (65, 16)] {
            let share = late_percent as f64 / 100.0;
            let mut rng = Rng::new(late_percent);
            let (mut reads, mut wrong) = (0, 0);
            for trial in 0..1000 {
                let truth = f64::from(trial) / 1000.0;
                let mut angles = Vec::new();
                while angles.len() < 40 && !largest_cluster(&angles, 0.01).is_settled(share) {
                    let late = match rng.chance(late_percent, 100) {
                        true if rng.chance(3, 4) => 0.1 * rng.unit_f64(),
                        true => rng.unit_f64(),
                        false => 0.004 * rng.unit_f64(),
                    };
                    angles.push((truth + late).rem_euclid(1.0));
                }
                reads += angles.len();
                wrong += u32::from(wrapped(largest_cluster(&angles, 0.01).angle - truth).abs() > 0.012);
            }
            assert!(wrong <= 15 && reads <= 1000 * reads_max, "{late_percent} % late: {wrong} wrong of {reads} reads");
        }
    }
}
