//! The smallest weighted sum of squares of a few linear equations, damped.

/// What changes do to an error: `error` plus each change times its effect.
pub(super) struct Equation {
    pub(super) weight: f64,
    pub(super) effects: Vec<f64>,
    pub(super) error: f64,
}

/// The changes with which the weighted sum of the squares of all errors is smallest, where each change costs `damping` times what
/// its own effects would (Marquardt 1963), and `inertia` times its square: one with hardly an effect hardly changes.
pub(super) fn smallest(equations: &[Equation], damping: f64, inertia: f64) -> Vec<f64> {
    let count = equations.first().map_or(0, |equation| equation.effects.len());
    // The normal equations, the right-hand side as the last column.
    let mut rows = vec![vec![0.0; count + 1]; count];
    for Equation { weight, effects, error } in equations {
        for (row, effect) in rows.iter_mut().zip(effects) {
            for (sum, other) in row.iter_mut().zip(effects.iter().chain([&-error])) {
                *sum += weight * effect * other;
            }
        }
    }
    for (index, row) in rows.iter_mut().enumerate() {
        row[index] = row[index] * (1.0 + damping) + inertia;
    }
    solve(rows)
}

/// Solves a system that is symmetric and not negative, by elimination; what cannot be known is zero.
fn solve(mut rows: Vec<Vec<f64>>) -> Vec<f64> {
    let count = rows.len();
    let diagonal: Vec<f64> = (0..count).map(|index| rows[index][index]).collect();
    for index in 0..count {
        if rows[index][index] <= diagonal[index] * 1e-12 {
            rows[index] = vec![0.0; count + 1];
            continue;
        }
        let pivot = rows[index].clone();
        for row in &mut rows[index + 1..] {
            let factor = row[index] / pivot[index];
            row.iter_mut().zip(&pivot).for_each(|(one, of_pivot)| *one -= factor * of_pivot);
        }
    }
    let mut solution = vec![0.0; count];
    for index in (0..count).rev() {
        let known: f64 = (index + 1..count).map(|other| rows[index][other] * solution[other]).sum();
        if rows[index][index] > 0.0 {
            solution[index] = (rows[index][count] - known) / rows[index][index];
        }
    }
    solution
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Aim: the smallest sum is found, one of the changes has no effect, and damping shortens. Method: effects drawn at random with a
    /// known solution.
    #[test]
    fn a_known_solution_is_found() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let mut number = || rng.below(2001) as f64 / 1000.0 - 1.0;
            let truth: Vec<f64> = (0..6).map(|index| if index == 3 { 0.0 } else { number() }).collect();
            let equations: Vec<Equation> = (0..30)
                .map(|_| {
                    let effects: Vec<f64> = (0..6).map(|index| if index == 3 { 0.0 } else { number() }).collect();
                    let error = -effects.iter().zip(&truth).map(|(effect, change)| effect * change).sum::<f64>();
                    Equation { weight: 1.0 + number().abs(), effects, error }
                })
                .collect();
            let found = smallest(&equations, 0.0, 0.0);
            assert!(found.iter().zip(&truth).all(|(found, truth)| (found - truth).abs() < 1e-9), "{found:?} {truth:?}");
            let length = |changes: &[f64]| changes.iter().map(|change| change * change).sum::<f64>();
            assert!(length(&smallest(&equations, 10.0, 0.0)) < length(&truth));
        }
        assert!(smallest(&[], 1.0, 1.0).is_empty());
        let weak = Equation { weight: 1.0, effects: vec![1.0, 1e-6], error: 1.0 };
        let found = smallest(&[weak], 0.0, 0.01);
        assert!((found[0] + 1.0).abs() < 0.02 && found[1].abs() < 1e-3, "{found:?}");
    }
}
