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
