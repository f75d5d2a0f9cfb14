//! The same point measured several times, where time is real.

use super::kinds::Measure;

/// The measurements of a point in one round.
pub type Round = Vec<Measure>;

/// The median of each metric; the mean of the two in the middle of an even number. The rows are those of the first
/// round.
pub(super) fn medians(rounds: &[Round]) -> Round {
    let Some(first) = rounds.first() else { return Vec::new() };
    let mut all = first.clone();
    for measure in &mut all {
        let same = || rounds.iter().flatten().filter(|other| other.dims == measure.dims);
        for (name, value) in &mut measure.metrics {
            *value = median(same().filter_map(|other| other.metrics.get(name).copied()).collect());
        }
    }
    all
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(values: &[f64]) -> Round {
        let phase = |(number, value): (usize, &f64)| Measure {
            dims: [("phase".to_owned(), super::super::Value::Text(number.to_string()))].into(),
            metrics: [("elapsed_s".to_owned(), *value)].into(),
        };
        values.iter().enumerate().map(phase).collect()
    }

    #[test]
    fn the_middle_of_odd_and_even_numbers() {
        assert!(medians(&[]).is_empty());
        assert_eq!(medians(&[round(&[0.1, 0.3])]), round(&[0.1, 0.3]), "one is itself, to the last digit");
        let rounds = [round(&[3.0, 10.0]), round(&[1.0, 30.0]), round(&[2.0, 20.0]), round(&[100.0, 40.0])];
        assert_eq!(medians(&rounds[..3]), round(&[2.0, 20.0]));
        assert_eq!(medians(&rounds), round(&[2.5, 25.0]));
    }
}
