//! The same point measured several times, where time is real, and the same place with several seeds.

use super::kinds::Measure;

/// How the name of a metric ends that is the lower or the upper quartile of the one with the name before it.
pub(super) const LOW: &str = "_low";
pub(super) const HIGH: &str = "_high";

/// The measurements of a point in one round.
pub type Round = Vec<Measure>;

/// The same with a lower and an upper quartile for each metric that has none, so that [`medians`] finds them.
pub(super) fn with_quartiles(rounds: &[Round]) -> Vec<Round> {
    let add = |measure: &Measure| {
        let is_quartile = |name: &str| name.ends_with(LOW) || name.ends_with(HIGH);
        let own = measure.metrics.iter().filter(|(name, _)| !is_quartile(name));
        let quartiles = own.flat_map(|(name, value)| [LOW, HIGH].map(|end| (format!("{name}{end}"), *value)));
        let mut all = measure.clone();
        for (name, value) in quartiles {
            all.metrics.entry(name).or_insert(value);
        }
        all
    };
    rounds.iter().map(|round| round.iter().map(add).collect()).collect()
}

/// The median of each metric; the mean of the two in the middle of an even number. Of a metric whose name ends in `_low` or
/// `_high` it is the quartile: half of the rounds are between them. The rows are those of the first round.
pub(super) fn medians(rounds: &[Round]) -> Round {
    let Some(first) = rounds.first() else { return Vec::new() };
    let mut all = first.clone();
    for measure in &mut all {
        let same = || rounds.iter().flatten().filter(|other| other.dims == measure.dims);
        for (name, value) in &mut measure.metrics {
            let mut values: Vec<f64> = same().filter_map(|other| other.metrics.get(name).copied()).collect();
            values.sort_by(f64::total_cmp);
            *value = match name {
                name if name.ends_with(LOW) => values[(values.len() - 1) / 4],
                name if name.ends_with(HIGH) => values[values.len() - 1 - (values.len() - 1) / 4],
                _ => (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0,
            };
        }
    }
    all
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

    /// Aim: spread is that of the rounds. Method: five and two rounds, where the quartiles are single values.
    #[test]
    fn quartiles_are_beside_the_median() {
        let one = |value: f64| {
            let names = ["op_us", "op_us_low", "op_us_high"];
            vec![Measure { dims: [].into(), metrics: names.map(|name| (name.to_owned(), value)).into() }]
        };
        let all = |values: &[f64]| {
            let rounds: Vec<Round> = values.iter().map(|value| one(*value)).collect();
            let found = medians(&rounds).remove(0).metrics;
            (found["op_us_low"], found["op_us"], found["op_us_high"])
        };
        assert_eq!(all(&[5.0, 1.0, 4.0, 2.0, 3.0]), (2.0, 3.0, 4.0));
        assert_eq!(all(&[3.0, 1.0]), (1.0, 2.0, 3.0));
        assert_eq!(all(&[7.0]), (7.0, 7.0, 7.0));
    }

    /// Aim: with several seeds each metric has its quartiles. Method: five values of one metric.
    #[test]
    fn quartiles_of_seeds() {
        let rounds: Vec<Round> = [5.0, 1.0, 4.0, 2.0, 3.0].iter().map(|value| round(&[*value])).collect();
        let all = medians(&with_quartiles(&rounds));
        let metric = |name: &str| all[0].metrics[name];
        assert_eq!((metric("elapsed_s"), metric("elapsed_s_low"), metric("elapsed_s_high")), (3.0, 2.0, 4.0));
        assert_eq!(
            with_quartiles(&with_quartiles(&rounds)),
            with_quartiles(&rounds),
            "quartiles have none of their own"
        );
    }
}
