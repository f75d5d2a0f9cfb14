//! Claims: what a paper says in words, and whether the rows say so too.
//!
//! | test | holds when |
//! |---|---|
//! | `compare` | each row with `of` in it, over its counterpart with `to` instead, is `above` or `below`, or equal to it |
//! | `spread` | largest less smallest over the mean, along one dimension, is at most `at_most` |
//! | `value` | the row is within `tolerance`, a share of it, of `expect`; or `above` or `below`, or equal to it |
//! | `shape` | values along one dimension go as `shape` says: `falls`, `rises`, `valley` (down, then up) |
//! | `share` | the share of the rows that are `above` or `below`, or equal to it, is at least `at_least` and at most `at_most` |
//! | `published` | each row over the figure of `published.csv` at its place is `above` or `below`, or equal to it |
//!
//! With `relative_to` each of them is about ratios: of every row to the one in which something else holds, as in a figure. So
//! "FFS declines more steeply than LFS" is a `compare` of two such ratios.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::published::{Published, deviations};
use super::rows::{Columns, Row, Selection, check_dimension, check_selection, counterpart};
use super::value::{Value, rounded};

/// A statement that rows can confirm.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    pub text: String,
    /// Author and place of the statement.
    pub source: String,
    /// The paper's statements that it answers, `PAPER/ID` of a list of [`crate::statements`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub statements: Vec<String>,
    /// What they say, with its unit, as the list has it; several are separated by `; `. For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub published: String,
    pub metric: String,
    pub test: Test,
    #[serde(default, rename = "where", skip_serializing_if = "Selection::is_empty")]
    pub only: Selection,
    #[serde(default, skip_serializing_if = "Selection::is_empty")]
    pub of: Selection,
    #[serde(default, skip_serializing_if = "Selection::is_empty")]
    pub to: Selection,
    /// The metric is divided by that of the row in which these conditions hold instead.
    #[serde(default, skip_serializing_if = "Selection::is_empty")]
    pub relative_to: Selection,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<f64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub along: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Shape>,
    /// Steps against the shape that are smaller than this share do not count.
    #[serde(default)]
    pub slack: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
    /// Why the two may differ.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Test {
    Compare,
    Spread,
    Value,
    Shape,
    Share,
    Published,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    Falls,
    Rises,
    Valley,
}

/// The result of checking a claim.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Checked {
    pub claim: Claim,
    pub verdict: Verdict,
    /// Number of cases of the claim, and of those that hold.
    pub cases: usize,
    pub held: usize,
    /// The least and the most that was found; for a shape 1 where it is as said, and 0 where not.
    pub range: Option<(f64, f64)>,
    /// What it requires, in words.
    pub required: String,
    /// The result, in words.
    pub found: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Holds,
    Differs,
    /// There are no rows for it.
    Open,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Differs => "differs",
            Verdict::Open => "not measured",
        }
    }
}

/// The common dimensions of rows that differ along one dimension only, and for each row its value on that dimension and
/// the measured value.
type Line = (BTreeMap<String, Value>, Vec<(Value, f64)>);

/// One case of a claim: its place, the result, and whether it holds.
struct ClaimCase {
    place: String,
    found: f64,
    held: bool,
}

impl Claim {
    /// What selects its rows.
    pub(super) fn selections(&self) -> [&Selection; 4] {
        [&self.only, &self.of, &self.to, &self.relative_to]
    }

    pub(super) fn check(&self, columns: &Columns) -> Result<(), String> {
        let dims = &columns.dims;
        columns.check_metric(&self.metric)?;
        for selection in self.selections() {
            check_selection(selection, dims)?;
        }
        let numbers =
            [self.above, self.below, self.at_least, self.at_most, self.expect, self.tolerance, Some(self.slack)];
        if let Some(strange) = numbers.into_iter().flatten().find(|number| !number.is_finite()) {
            return Err(format!("{strange} is not a bound"));
        }
        let bound = self.above.or(self.below).is_some();
        let missing = match self.test {
            Test::Compare if self.to.is_empty() => "`to`, which rows are compared with",
            Test::Compare if !bound => "`above` or `below`",
            Test::Spread | Test::Shape if self.along.is_empty() => "`along`, a dimension",
            Test::Spread if self.at_most.is_none() => "`at_most`",
            Test::Shape if self.shape.is_none() => "`shape`",
            Test::Share | Test::Published if !bound => "`above` or `below`",
            Test::Share if self.at_least.or(self.at_most).is_none() => "`at_least` or `at_most`, a share from 0 to 1",
            Test::Published if !self.relative_to.is_empty() => "no `relative_to`, as published figures are no ratios",
            Test::Value if !bound && self.expect.is_none() => "`expect` with `tolerance`, `above` or `below`",
            Test::Value if self.expect.is_some() != self.tolerance.is_some() => "both `expect` and `tolerance`",
            _ if !self.along.is_empty() => return check_dimension(&self.along, dims),
            _ => return Ok(()),
        };
        Err(format!("this test needs {missing}"))
    }

    /// # Errors
    /// No number is within its bounds.
    pub(super) fn check_bounds(&self) -> Result<(), String> {
        let pairs = [("above", self.above, "below", self.below), ("at_least", self.at_least, "at_most", self.at_most)];
        for (low, least, high, most) in pairs {
            if let Some((least, most)) = least.zip(most).filter(|(least, most)| least > most) {
                return Err(format!("nothing is `{low}` {least} and `{high}` {most}"));
            }
        }
        Ok(())
    }

    /// Compares the claim with `rows`, or these with what was `published`.
    pub fn verify(&self, rows: &[Row], published: &[Published]) -> Checked {
        let ratios = (!self.relative_to.is_empty()).then(|| self.ratios(rows));
        let rows = ratios.as_deref().unwrap_or(rows);
        let cases = match self.test {
            Test::Compare => self.compare(rows),
            Test::Spread => self.spread(rows),
            Test::Value => self.value(rows),
            Test::Shape => self.shape(rows),
            Test::Share => self.share(rows),
            Test::Published => self.published(rows, published),
        };
        let held = cases.iter().filter(|case| case.held).count();
        let verdict = match cases.len() {
            0 => Verdict::Open,
            all if all == held => Verdict::Holds,
            _ => Verdict::Differs,
        };
        let found = cases.iter().map(|case| match self.test {
            Test::Shape => f64::from(case.held),
            _ => case.found,
        });
        let range = found.fold(None, |range: Option<(f64, f64)>, found| {
            let (least, most) = range.unwrap_or((found, found));
            Some((least.min(found), most.max(found)))
        });
        let required = self.required();
        let found = if cases.is_empty() { self.why_open(rows) } else { self.in_words(&cases) };
        Checked { claim: self.clone(), verdict, cases: cases.len(), held, range, required, found }
    }

    /// What it requires of its metric, or of the ratio: the least and the most. A shape requires 1, a yes.
    pub fn bounds(&self) -> (Option<f64>, Option<f64>) {
        match (self.test, self.expect, self.tolerance) {
            (Test::Shape, _, _) => (Some(1.0), Some(1.0)),
            (Test::Spread, _, _) => (Some(0.0), self.at_most),
            (Test::Share, _, _) => (self.at_least, self.at_most),
            (Test::Value, Some(expected), Some(tolerance)) => {
                let within = (expected * tolerance).abs();
                (Some(expected - within), Some(expected + within))
            }
            _ => (self.above, self.below),
        }
    }

    /// The rows that have a counterpart, with the metric as a ratio to it.
    fn ratios(&self, rows: &[Row]) -> Vec<Row> {
        let ratio = |row: &Row| {
            let other = self.metric_of(counterpart(row, &self.relative_to, rows)?)?;
            let found = self.metric_of(row)? / other;
            let metrics = [(self.metric.clone(), found)].into();
            is_case(found).then(|| Row { dims: row.dims.clone(), metrics })
        };
        rows.iter().filter_map(ratio).collect()
    }

    fn metric_of(&self, row: &Row) -> Option<f64> {
        row.metrics.get(&self.metric).copied()
    }

    fn is_within(&self, found: f64) -> bool {
        self.above.is_none_or(|limit| found >= limit) && self.below.is_none_or(|limit| found <= limit)
    }

    fn compare(&self, rows: &[Row]) -> Vec<ClaimCase> {
        let of = rows.iter().filter(|row| self.only.holds(&row.dims) && self.of.holds(&row.dims));
        let case = |row: &Row| {
            let other = counterpart(row, &self.to, rows)?;
            let found = self.metric_of(row)? / self.metric_of(other)?;
            is_case(found).then(|| ClaimCase { place: place(&row.dims), found, held: self.is_within(found) })
        };
        of.filter_map(case).collect()
    }

    fn value(&self, rows: &[Row]) -> Vec<ClaimCase> {
        let case = |row: &&Row| {
            let found = self.metric_of(row)?;
            let near = match (self.expect, self.tolerance) {
                (Some(expected), Some(tolerance)) => (found - expected).abs() <= (tolerance * expected).abs(),
                _ => true,
            };
            Some(ClaimCase { place: place(&row.dims), found, held: near && self.is_within(found) })
        };
        self.only.of(rows).iter().filter_map(case).collect()
    }

    fn spread(&self, rows: &[Row]) -> Vec<ClaimCase> {
        let case = |(dims, line): (BTreeMap<String, Value>, Vec<(Value, f64)>)| {
            let values = || line.iter().map(|(_, value)| *value);
            let mean = values().sum::<f64>() / line.len() as f64;
            // A ratio to nothing is infinitely far from every value.
            let found = match values().all(f64::is_finite) {
                true => (values().fold(f64::MIN, f64::max) - values().fold(f64::MAX, f64::min)) / mean,
                false => f64::INFINITY,
            };
            let held = self.at_most.is_some_and(|limit| found <= limit);
            (line.len() > 1 && is_case(found)).then(|| ClaimCase { place: place(&dims), found, held })
        };
        self.lines(rows).into_iter().filter_map(case).collect()
    }

    fn shape(&self, rows: &[Row]) -> Vec<ClaimCase> {
        let case = |(dims, line): (BTreeMap<String, Value>, Vec<(Value, f64)>)| {
            let values: Vec<f64> = line.iter().map(|(_, value)| *value).collect();
            // The values say whether it is so; the ratio of their ends, which may be one of nothing, is for people.
            let found = values.last()? / values.first()?;
            let held = self.shape.is_some_and(|shape| shape.is_of(&values, self.slack));
            let least = self.shape.map_or(0, Shape::values_min);
            (values.len() >= least).then(|| ClaimCase { place: place(&dims), found, held })
        };
        self.lines(rows).into_iter().filter_map(case).collect()
    }

    /// A single case: how many of the rows are within the bounds, over their number.
    fn share(&self, rows: &[Row]) -> Vec<ClaimCase> {
        let values: Vec<f64> = self.only.of(rows).iter().filter_map(|row| self.metric_of(row)).collect();
        let within = values.iter().filter(|value| self.is_within(**value)).count();
        let found = within as f64 / values.len() as f64;
        let held = self.at_least.is_none_or(|least| found >= least) && self.at_most.is_none_or(|most| found <= most);
        let place = format!("{within} of {}", values.len());
        is_case(found).then_some(ClaimCase { place, found, held }).into_iter().collect()
    }

    fn published(&self, rows: &[Row], published: &[Published]) -> Vec<ClaimCase> {
        let chosen: Vec<Row> = self.only.of(rows).into_iter().cloned().collect();
        let of_metric: Vec<Published> =
            published.iter().filter(|published| published.metric == self.metric).cloned().collect();
        let case = |deviation: super::Deviation| {
            let found = deviation.measured? / deviation.published.value;
            let place = place(&deviation.published.dims);
            is_case(found).then(|| ClaimCase { place, found, held: self.is_within(found) })
        };
        deviations(&of_metric, &chosen).into_iter().filter_map(case).collect()
    }

    /// Rows that differ along one dimension only, in its order. A dimension that says the same as that one in every row, such as the variable
    /// that it follows, is no other one.
    fn lines(&self, rows: &[Row]) -> Vec<Line> {
        let chosen = self.only.of(rows);
        let says_the_same = |name: &String| {
            let same = |row: &&Row| {
                row.dims.get(&self.along).zip(row.dims.get(name)).is_some_and(|(one, two)| one.is_same(two))
            };
            chosen.iter().all(same)
        };
        let mut lines: Vec<Line> = Vec::new();
        for row in &chosen {
            let mut dims = row.dims.clone();
            dims.retain(|name, _| *name == self.along || !says_the_same(name));
            let (Some(along), Some(metric)) = (dims.remove(&self.along), self.metric_of(row)) else { continue };
            match lines.iter_mut().find(|(theirs, _)| *theirs == dims) {
                Some((_, line)) => line.push((along, metric)),
                None => lines.push((dims, vec![(along, metric)])),
            }
        }
        for (_, line) in &mut lines {
            line.sort_by(|(one, _), (two, _)| one.order(two));
        }
        lines
    }

    /// Its bounds in words, as they are written beside what was found.
    fn required(&self) -> String {
        if let Some(shape) = self.shape.filter(|_| self.test == Test::Shape) {
            return shape.name().to_owned();
        }
        let text = |bound: f64| self.with_unit(self.bound_as_text(bound));
        match self.bounds() {
            (Some(low), Some(high)) if self.test == Test::Spread && low == 0.0 => format!("at most {}", text(high)),
            (Some(low), Some(high)) if low == high => text(low),
            (Some(low), Some(high)) => format!("{} to {}", text(low), text(high)),
            (Some(low), None) => format!("at least {}", text(low)),
            (None, Some(high)) => format!("at most {}", text(high)),
            (None, None) => String::new(),
        }
    }

    /// A bound as it was written: with three digits, or with all that it has.
    fn bound_as_text(&self, bound: f64) -> String {
        let shown = bound * self.times();
        let short = digits(shown);
        match short.parse::<f64>() {
            Ok(short) if (short - shown).abs() > shown.abs() * 1e-9 => without_noise(shown).to_string(),
            _ => short,
        }
    }

    /// What its numbers are multiplied by to be shown.
    fn times(&self) -> f64 {
        if matches!(self.test, Test::Spread | Test::Share) { 100.0 } else { 1.0 }
    }

    /// A number that was found, with its unit: of three digits, or with as many as show on which side of its bounds it is.
    fn as_text(&self, found: f64) -> String {
        let times = self.times();
        let (low, high) = if self.test == Test::Shape { (None, None) } else { self.bounds() };
        let within = |found: f64| low.is_none_or(|low| found >= low) && high.is_none_or(|high| found <= high);
        let (shown, short) = (found * times, digits(found * times));
        let is_all = |short: f64| (short - shown).abs() <= shown.abs() * 1e-12;
        let number = match short.parse::<f64>() {
            Ok(short) if !is_all(short) && within(short / times) != within(found) => {
                without_noise(rounded(found, within) * times).to_string()
            }
            _ => short,
        };
        self.with_unit(number)
    }

    fn with_unit(&self, number: String) -> String {
        match self.test {
            Test::Compare | Test::Published => format!("{number}x"),
            Test::Spread | Test::Share => format!("{number} %"),
            Test::Value if !self.relative_to.is_empty() => format!("{number}x"),
            Test::Value => number,
            Test::Shape => format!("{number}x from end to end"),
        }
    }

    /// Why there is no case.
    fn why_open(&self, rows: &[Row]) -> String {
        let least = match (self.test, self.shape) {
            (Test::Spread, _) => 2,
            (Test::Shape, Some(shape)) => shape.values_min(),
            _ => 0,
        };
        match self.lines(rows).iter().map(|(_, line)| line.len()).max() {
            Some(most) if least > 0 && most < least => {
                format!("too few rows: {most} along {}, and it takes {least}", self.along)
            }
            _ => "no rows".to_owned(),
        }
    }

    fn in_words(&self, cases: &[ClaimCase]) -> String {
        let by_size = |one: &&ClaimCase, two: &&ClaimCase| one.found.total_cmp(&two.found);
        let (Some(least), Some(most)) = (cases.iter().min_by(by_size), cases.iter().max_by(by_size)) else {
            return "no rows".to_owned();
        };
        let text = |found: f64| self.as_text(found);
        let range = match cases {
            [only] => text(only.found),
            _ if text(least.found) == text(most.found) => text(least.found),
            _ => format!("{} to {}", text(least.found), text(most.found)),
        };
        let wrong: Vec<&ClaimCase> = cases.iter().filter(|case| !case.held).collect();
        // The case with the largest deviation is the most interesting.
        match wrong.as_slice() {
            [] if self.test == Test::Share => format!("{range} ({})", least.place),
            [] => range,
            [only] if cases.len() == 1 => format!("{range} ({})", only.place),
            _ => {
                let shown: Vec<String> =
                    wrong.iter().take(3).map(|case| format!("{} at {}", text(case.found), case.place)).collect();
                let more = if wrong.len() > shown.len() { ", .." } else { "" };
                format!("{range}; not so: {}{more}", shown.join(", "))
            }
        }
    }
}

impl Shape {
    fn name(self) -> &'static str {
        match self {
            Shape::Falls => "falls",
            Shape::Rises => "rises",
            Shape::Valley => "falls, then rises",
        }
    }

    /// Of how many values it can be.
    fn values_min(self) -> usize {
        match self {
            Shape::Falls | Shape::Rises => 2,
            Shape::Valley => 3,
        }
    }

    /// Steps against the shape that are within `slack` do not count.
    fn is_of(self, values: &[f64], slack: f64) -> bool {
        let falls = |part: &[f64]| part.windows(2).all(|pair| pair[1] <= pair[0] * (1.0 + slack));
        let rises = |part: &[f64]| part.windows(2).all(|pair| pair[1] >= pair[0] * (1.0 - slack));
        let (Some(first), Some(last)) = (values.first(), values.last()) else { return false };
        match self {
            Shape::Falls => falls(values) && last < first,
            Shape::Rises => rises(values) && last > first,
            Shape::Valley => {
                let by_size = |one: &usize, two: &usize| values[*one].total_cmp(&values[*two]);
                let bottom = (0..values.len()).min_by(by_size).unwrap_or(0);
                let inside = bottom > 0 && bottom + 1 < values.len();
                inside && falls(&values[..=bottom]) && rises(&values[bottom..])
            }
        }
    }
}

/// A ratio to nothing is a case, and infinite, so that it cannot be overlooked; only nothing to nothing says nothing.
fn is_case(ratio: f64) -> bool {
    !ratio.is_nan()
}

/// `smart, disks 4, stripe 8`.
fn place(dims: &BTreeMap<String, Value>) -> String {
    let part = |(name, value): (&String, &Value)| match value {
        Value::Text(text) => text.clone(),
        number => format!("{name} {number}"),
    };
    dims.iter().map(part).collect::<Vec<_>>().join(", ")
}

/// Three digits, or all before the point.
pub fn digits(number: f64) -> String {
    match number.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{number:.0}"),
        size if size >= 10.0 => format!("{number:.1}"),
        size if size >= 1.0 => format!("{number:.2}"),
        size => {
            let places = (2.0 - size.log10().floor()).clamp(0.0, 9.0) as usize;
            format!("{number:.places$}")
        }
    }
}

/// Without the last digits, which arithmetic leaves: 0.9 for 0.8999999999999999.
fn without_noise(number: f64) -> f64 {
    format!("{number:.12e}").parse().unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of two contestants along a dimension that a variable follows.
    fn rows() -> Vec<Row> {
        let row = |(contestant, size, rate): (&str, i64, f64)| Row {
            dims: [
                ("contestant".to_owned(), Value::Text(contestant.to_owned())),
                ("size".to_owned(), Value::Integer(size)),
                ("file_bytes".to_owned(), Value::Integer(size)),
            ]
            .into(),
            metrics: [("rate".to_owned(), rate)].into(),
        };
        let lfs = [(1, 40.0), (2, 30.0), (4, 20.0), (8, 18.0)].map(|(size, rate)| ("LFS", size, rate));
        let ffs = [(1, 4.0), (2, 6.0), (4, 10.0), (8, 6.0)].map(|(size, rate)| ("FFS", size, rate));
        lfs.into_iter().chain(ffs).map(row).collect()
    }

    fn check(text: &str) -> Checked {
        let head = "text = \"t\"\nsource = \"ours\"\nmetric = \"rate\"\n";
        let claim: Claim = toml::from_str(&format!("{head}{text}")).unwrap();
        let of = |contestant: &str, size, value| Published {
            dims: [
                ("contestant".to_owned(), Value::Text(contestant.to_owned())),
                ("size".to_owned(), Value::Integer(size)),
            ]
            .into(),
            metric: "rate".to_owned(),
            value,
            source: "ours".to_owned(),
            note: String::new(),
        };
        let other = Published { metric: "time".to_owned(), ..of("LFS", 1, 1.0) };
        claim.verify(&rows(), &[of("LFS", 1, 50.0), of("LFS", 4, 16.0), of("FFS", 1, 8.0), of("ext2", 1, 1.0), other])
    }

    /// Aim: with `relative_to` a claim is about ratios, whatever its test. Method: each test on rows of which the ratios are known: 10, 5, 2
    /// and 3.
    #[test]
    fn claims_about_ratios() {
        let ratio = "relative_to = { contestant = \"FFS\" }\n";
        let lfs = |sizes: &str| format!("{ratio}where = {{ contestant = \"LFS\", size = {sizes} }}\n");
        let falls = "test = \"shape\"\nshape = \"falls\"\nalong = \"file_bytes\"\n";
        let shape = check(&format!("{falls}{}", lfs("[1, 2, 4]")));
        assert_eq!((shape.verdict, shape.cases, shape.required.as_str()), (Verdict::Holds, 1, "falls"));
        assert_eq!(check(&format!("{falls}{}", lfs("\"<=8\""))).verdict, Verdict::Differs);
        let value = check(&format!("test = \"value\"\nabove = 4.5\nbelow = 5.5\n{}", lfs("2")));
        assert_eq!(
            (value.range, value.required.as_str(), value.found.as_str()),
            (Some((5.0, 5.0)), "4.50x to 5.50x", "5.00x")
        );
        let spread = check(&format!("test = \"spread\"\nat_most = 0.3\nalong = \"file_bytes\"\n{}", lfs("\">=4\"")));
        assert_eq!((spread.range, spread.required.as_str()), (Some((0.4, 0.4)), "at most 30.0 %"));
        for (limit, text) in [("0.009", "at most 0.900 %"), ("0.0141", "at most 1.41 %"), ("0.07", "at most 7.00 %")] {
            let spread = format!("test = \"spread\"\nat_most = {limit}\nalong = \"file_bytes\"\n{}", lfs("\">=4\""));
            assert_eq!(check(&spread).required, text, "{limit} in binary is not quite that");
        }
        // From 4 to 8 FFS keeps 0.6 of its rate, LFS 0.9.
        let steeper = "test = \"compare\"\nbelow = 1.0\nwhere = { size = 8 }\nrelative_to = { size = 4, file_bytes = 4 }\n\
                       of = { contestant = \"FFS\" }\nto = { contestant = \"LFS\" }\n";
        let steeper = check(steeper);
        let (least, most) = steeper.range.unwrap();
        assert!(steeper.verdict == Verdict::Holds && least == most && (least - 0.6 / 0.9).abs() < 1e-12, "{steeper:?}");
        assert_eq!(steeper.required, "at most 1.00x");
        let none = check("test = \"value\"\nabove = 0.0\nrelative_to = { contestant = \"ext2\" }\n");
        assert_eq!((none.verdict, none.found.as_str()), (Verdict::Open, "no rows"));
    }

    /// Aim: two values rise or fall, a valley takes three, and rows that are too few are not called none. Method: parts of the curve 4, 6, 10,
    /// 6 and of 40, 30, 20, 18.
    #[test]
    fn shapes_of_few_values() {
        let shape = |shape: &str, contestant: &str, sizes: &str| {
            let only = format!("where = {{ contestant = \"{contestant}\", size = {sizes} }}");
            check(&format!("test = \"shape\"\nalong = \"file_bytes\"\nshape = \"{shape}\"\n{only}\n"))
        };
        for (name, contestant, sizes, verdict) in [
            ("rises", "FFS", "[1, 2]", Verdict::Holds),
            ("falls", "FFS", "[1, 2]", Verdict::Differs),
            ("falls", "LFS", "[4, 8]", Verdict::Holds),
            ("rises", "LFS", "[4, 8]", Verdict::Differs),
            ("rises", "FFS", "1", Verdict::Open),
            ("valley", "FFS", "[1, 2]", Verdict::Open),
            ("valley", "FFS", "[1, 2, 4]", Verdict::Differs),
        ] {
            assert_eq!(shape(name, contestant, sizes).verdict, verdict, "{name} {contestant} {sizes}");
        }
        assert_eq!(shape("valley", "FFS", "[1, 2]").found, "too few rows: 2 along file_bytes, and it takes 3");
        assert_eq!(shape("rises", "FFS", "64").found, "no rows");
    }

    /// Aim: a case on a bound holds, as in a list of statements, and what does not hold is not written as if it did. Method: ratios
    /// of 10, 5, 2 and 3 with bounds on them and next to them.
    #[test]
    fn bounds_belong_to_what_holds() {
        let faster = |bounds: &str| {
            check(&format!(
                "test = \"compare\"\n{bounds}of = {{ contestant = \"LFS\" }}\nto = {{ contestant = \"FFS\" }}\n"
            ))
        };
        let on_both = faster("above = 2.0\nbelow = 10.0\n");
        assert_eq!((on_both.verdict, on_both.held, on_both.cases), (Verdict::Holds, 4, 4), "{on_both:?}");
        let outside = faster("above = 2.0004\n");
        assert_eq!(
            (outside.verdict, outside.held, outside.required.as_str()),
            (Verdict::Differs, 3, "at least 2.0004x")
        );
        let value = check("test = \"value\"\nabove = 40.004\nwhere = { contestant = \"LFS\", size = 1 }\n");
        assert_eq!((value.required.as_str(), value.verdict), ("at least 40.004", Verdict::Differs));
        // A bound of four digits is shown with all of them, wherever the result is.
        let near =
            check("test = \"value\"\nabove = 39.125\nbelow = 50.0\nwhere = { contestant = \"LFS\", size = 1 }\n");
        assert_eq!(near.required, "39.125 to 50.0");
        let almost = "test = \"value\"\nbelow = 0.6\nrelative_to = { size = 4, file_bytes = 4 }\nwhere = { contestant = \"FFS\", size = 1 }\n";
        assert_eq!(check(almost).found, "0.400x");
        let third = "test = \"value\"\nabove = 0.667\nrelative_to = { size = 1, file_bytes = 1 }\nwhere = { contestant = \"FFS\", size = 8 }\n";
        assert_eq!(check(third).found, "1.50x");
        let two_thirds = "test = \"value\"\nabove = 0.667\nrelative_to = { size = 8, file_bytes = 8 }\nwhere = { contestant = \"FFS\", size = 1 }\n";
        let two_thirds = check(two_thirds);
        assert_eq!((two_thirds.verdict, two_thirds.found.split(' ').next().unwrap()), (Verdict::Differs, "0.6667x"));
    }

    /// Aim: a share counts rows, or ratios. Method: LFS is 10, 5, 2 and 3 times as fast as FFS.
    #[test]
    fn shares_of_rows() {
        let share = |bounds: &str, rest: &str| {
            check(&format!("test = \"share\"\n{bounds}\nwhere = {{ contestant = \"LFS\" }}\n{rest}"))
        };
        let ratio = "relative_to = { contestant = \"FFS\" }\n";
        let found = share("above = 3.0\nat_least = 0.7\nat_most = 0.8", ratio);
        assert_eq!((found.verdict, found.range, found.cases), (Verdict::Holds, Some((0.75, 0.75)), 1));
        assert_eq!((found.required.as_str(), found.found.as_str()), ("70.0 % to 80.0 %", "75.0 % (3 of 4)"));
        let found = share("above = 3.0\nbelow = 5.0\nat_least = 0.51", ratio);
        assert_eq!((found.verdict, found.found.as_str()), (Verdict::Differs, "50.0 % (2 of 4)"));
        let found = share("below = 20.0\nat_most = 0.5", "");
        assert_eq!((found.verdict, found.range), (Verdict::Holds, Some((0.5, 0.5))), "the rates themselves");
        assert_eq!(
            share("below = 20.0\nat_most = 0.5", "relative_to = { contestant = \"ext2\" }\n").verdict,
            Verdict::Open
        );
    }

    /// Aim: each published figure of the metric that has a row is a case. Method: two of LFS, at .8 and 1.25 times what was published,
    /// one of FFS at half of it, one without a row, and one of another metric.
    #[test]
    fn rows_beside_published_figures() {
        let beside =
            |bounds: &str| check(&format!("test = \"published\"\n{bounds}\nwhere = {{ contestant = \"LFS\" }}\n"));
        let found = beside("above = 0.8\nbelow = 1.25");
        assert_eq!((found.verdict, found.cases, found.range), (Verdict::Holds, 2, Some((0.8, 1.25))), "{found:?}");
        let found = beside("above = 0.97\nbelow = 1.25");
        assert_eq!(
            (found.verdict, found.held, found.found.as_str()),
            (Verdict::Differs, 1, "0.800x to 1.25x; not so: 0.800x at LFS, size 1")
        );
        let all = check("test = \"published\"\nabove = 0.5\n");
        assert_eq!((all.verdict, all.cases), (Verdict::Holds, 3));
    }

    /// A case against a claim counts where its ratio has no number. Method: rows with zeros in them, and claims that hold or do not.
    #[test]
    fn zeros_count() {
        let row = |(who, x, y): (&str, i64, f64)| Row {
            dims: [("who".to_owned(), Value::Text(who.to_owned())), ("x".to_owned(), Value::Integer(x))].into(),
            metrics: [("y".to_owned(), y)].into(),
        };
        let up = [("up", 0, 0.0), ("up", 1, 3.0), ("up", 2, 7.0)];
        let other =
            [("one", 0, 5.0), ("two", 0, 0.0), ("one", 1, 1.0), ("two", 1, 1.0), ("one", 2, 0.0), ("two", 2, 0.0)];
        let rows: Vec<Row> = up.into_iter().chain(other).map(row).collect();
        let to = "of = { who = 'one' }, to = { who = 'two' }";
        let relative = "test = 'value', where = { who = 'one' }, relative_to = { who = 'two' }";
        for (claim, verdict, cases) in [
            (format!("test = 'compare', {to}, below = 1.1"), Verdict::Differs, 2),
            (format!("test = 'compare', {to}, above = 0.9"), Verdict::Holds, 2),
            (format!("test = 'compare', {to}, where = {{ x = 2 }}, above = 0.9"), Verdict::Open, 0),
            (format!("{relative}, below = 1.1"), Verdict::Differs, 2),
            (format!("{relative}, above = 0.9"), Verdict::Holds, 2),
            ("test = 'shape', along = 'x', shape = 'falls', where = { who = 'up' }".to_owned(), Verdict::Differs, 1),
            ("test = 'shape', along = 'x', shape = 'rises', where = { who = 'up' }".to_owned(), Verdict::Holds, 1),
        ] {
            let text = format!("claim = {{ text = 't', source = 's', metric = 'y', {claim} }}");
            let table: toml::Table = toml::from_str(&text).unwrap();
            let checked = Claim::verify(&table["claim"].clone().try_into().unwrap(), &rows, &[]);
            assert_eq!((checked.verdict, checked.cases), (verdict, cases), "{text}: {checked:?}");
        }
    }
}
