//! An axis with labels at places that we choose: plotters' own leave an axis of less than a decade without any.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;

/// A logarithmic axis with fewer labels than this has those of a linear one.
const POINTS_MIN: usize = 3;

/// A linear axis from one number to another, with its labels.
pub(crate) struct Scale {
    range: RangedCoordf64,
    points: Vec<f64>,
}

impl Scale {
    pub(crate) fn new(range: (f64, f64), points: Vec<f64>) -> Scale {
        Scale { range: (range.0..range.1).into(), points }
    }

    /// An axis for the logarithms of numbers above zero, from the logarithm of one to that of another.
    pub(crate) fn of_logarithms(least: f64, most: f64) -> Scale {
        let range = (least.log10(), most.log10());
        Scale::new(range, logarithmic_points(range))
    }
}

impl Ranged for Scale {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.range.map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.points.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.range.range()
    }
}

/// Round numbers: multiples of 1, 2 or 5 of a power of ten.
pub(crate) fn linear_points((bottom, top): (f64, f64)) -> Vec<f64> {
    let rough = (top - bottom) / 6.0;
    let decade = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * decade).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    let first = (bottom / step).ceil() as i64;
    (first..first + 12).map(|count| count as f64 * step).filter(|point| *point <= top).collect()
}

/// The decimal logarithms of round numbers, of which `range` is one too: powers of ten, with 2 and 5 between them where there is
/// room. An axis with fewer than three of these has the round numbers of a linear one.
pub(crate) fn logarithmic_points((bottom, top): (f64, f64)) -> Vec<f64> {
    let decades = (bottom.floor() as i32)..=(top.ceil() as i32);
    let within: &[f64] = if top - bottom > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let points = decades.flat_map(|decade| within.iter().map(move |digit| digit.log10() + f64::from(decade)));
    let points: Vec<f64> = points.filter(|point| (bottom..=top).contains(point)).collect();
    if points.len() >= POINTS_MIN {
        return points;
    }
    linear_points((10_f64.powf(bottom), 10_f64.powf(top))).into_iter().map(f64::log10).collect()
}

/// A number beside an axis: at most six decimals, thousands and millions short.
pub(crate) fn label(number: f64) -> String {
    let rounded = (number * 1e6).round() / 1e6;
    match rounded.abs() {
        size if size >= 1e6 => format!("{}M", rounded / 1e6),
        size if size >= 1e4 => format!("{}k", rounded / 1e3),
        _ => format!("{rounded}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever a logarithmic axis shows, it has labels: several, within it, in order, and short.
    #[test]
    fn logarithmic_axes_have_labels() {
        for low in [0.000_001, 0.0167, 0.055, 0.066, 0.9, 1.75, 2.5, 7.9, 300.0, 48_000.0] {
            for factor in [1.44, 2.0, 4.5, 12.0, 66.0, 1000.0, 1e7] {
                let range = (f64::log10(low), f64::log10(low * factor));
                let points = logarithmic_points(range);
                let texts: Vec<String> = points.iter().map(|point| label(10_f64.powf(*point))).collect();
                assert!((2..=13).contains(&points.len()), "{low} x {factor}: {texts:?}");
                assert!(points.iter().all(|point| (range.0..=range.1).contains(point)), "{low} x {factor}: {texts:?}");
                assert!(points.windows(2).all(|pair| pair[0] < pair[1]), "{texts:?}");
                assert!(texts.iter().all(|text| text.len() <= 8), "{low} x {factor}: {texts:?}");
            }
        }
    }
}
