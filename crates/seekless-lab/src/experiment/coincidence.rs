//! Curves and points that lie on one another, of which only the last would be seen.

use super::value::Value;

/// On a logarithmic axis, the share by which two points of one place differ at most.
const LOG_WITHIN: f64 = 0.01;

/// The same on a linear axis, of the largest value in the figure: less than two pixels.
const LINEAR_WITHIN: f64 = 0.005;

/// The points of a curve.
pub(super) type Points<'a> = Vec<(&'a Value, f64)>;

/// How near two points of one place are that cannot be distinguished.
#[derive(Clone, Copy)]
pub(super) enum Near {
    /// On a logarithmic axis.
    Log,
    /// On a linear axis on which this is the largest value.
    Linear(f64),
}

impl Near {
    fn holds(self, one: f64, two: f64) -> bool {
        match self {
            Near::Log => (one - two).abs() <= LOG_WITHIN * one.abs().max(two.abs()),
            Near::Linear(most) => (one - two).abs() <= LINEAR_WITHIN * most,
        }
    }
}

/// The indices of each group of curves that coincide, the lowest first. A curve alone is in none.
pub(super) fn groups(curves: &[Points<'_>], near: Near) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (index, curve) in curves.iter().enumerate() {
        match groups.iter_mut().find(|group| coincide(&curves[group[0]], curve, near)) {
            Some(group) => group.push(index),
            None => groups.push(vec![index]),
        }
    }
    groups.retain(|group| group.len() > 1);
    groups
}

/// For each point of each curve, how many later curves have a point on it.
pub(super) fn beneath(curves: &[Points<'_>], near: Near) -> Vec<Vec<usize>> {
    let above = |index: usize, x: &Value, y: f64| {
        curves[index + 1..].iter().filter(|curve| has_point(curve, x, y, near)).count()
    };
    let counts = |(index, curve): (usize, &Points<'_>)| curve.iter().map(|&(x, y)| above(index, x, y)).collect();
    curves.iter().enumerate().map(counts).collect()
}

fn has_point(curve: &Points<'_>, x: &Value, y: f64, near: Near) -> bool {
    curve.iter().any(|(other, high)| other.is_same(x) && near.holds(y, *high))
}

/// True when every point of the one with fewer points is on a point of the other.
fn coincide(one: &Points<'_>, two: &Points<'_>, near: Near) -> bool {
    let (few, many) = if one.len() <= two.len() { (one, two) } else { (two, one) };
    !few.is_empty() && few.iter().all(|(x, y)| has_point(many, x, *y, near))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Aim: what is on another curve is found, and others are left alone. Method: two on one another, one that shares all points but one, one
    /// that is near on a linear axis only, and one without points.
    #[test]
    fn what_is_on_another_curve_is_found() {
        let xs: Vec<Value> = (0..3).map(Value::Integer).collect();
        let curve = |ys: &[f64]| xs.iter().zip(ys.iter().copied()).collect::<Points<'_>>();
        let curves = [
            curve(&[100.0, 200.0, 300.0]),
            curve(&[100.0, 200.0, 330.0]),
            curve(&[100.0, 200.0, 300.0]),
            curve(&[101.2, 200.0]),
            curve(&[]),
        ];
        assert_eq!(groups(&curves, Near::Log), [[0, 2]]);
        assert_eq!(groups(&curves, Near::Linear(300.0)), [[0, 2, 3]]);
        assert!(groups(&[], Near::Log).is_empty());
        assert_eq!(beneath(&curves, Near::Log), [vec![2, 3, 1], vec![1, 2, 0], vec![0, 1, 0], vec![0, 0], vec![]]);
    }
}
