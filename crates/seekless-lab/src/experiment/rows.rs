//! Rows of results, and selections of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::value::Value;

/// A measurement: its dimensions and metrics.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Contestant, variables, and dimensions of the workload, such as its phases.
    pub dims: BTreeMap<String, Value>,
    /// Named with their unit last: `elapsed_s`.
    pub metrics: BTreeMap<String, f64>,
}

/// Dimensions and metrics of an experiment's rows.
pub(super) struct Columns {
    pub(super) dims: Vec<String>,
    pub(super) metrics: Vec<&'static str>,
}

impl Columns {
    pub(super) fn check_metric(&self, name: &str) -> Result<(), String> {
        match self.metrics.contains(&name) {
            true => Ok(()),
            false => Err(format!("there is no metric `{name}`; there are: {}", self.metrics.join(", "))),
        }
    }
}

/// The dimension that names the contestant of a row.
pub(super) const CONTESTANT: &str = "contestant";

/// A condition on one dimension.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Condition {
    /// A value, or a comparison with a number: `">128"`.
    One(Value),
    /// Any of these.
    Any(Vec<Value>),
}

impl Condition {
    pub(super) fn holds(&self, value: &Value) -> bool {
        match self {
            Condition::One(wanted) => match comparison(wanted) {
                Some((compare, limit)) => value.number().is_some_and(|number| compare(number, limit)),
                None => wanted.is_same(value),
            },
            Condition::Any(values) => values.iter().any(|wanted| wanted.is_same(value)),
        }
    }

    /// What is wanted, for readers.
    fn words(&self) -> String {
        match self {
            Condition::One(value) => value.to_string(),
            Condition::Any(values) => values.iter().map(Value::to_string).collect::<Vec<_>>().join(", "),
        }
    }

    /// The only value for which it holds.
    fn value(&self) -> Option<&Value> {
        match self {
            Condition::One(value) if comparison(value).is_none() => Some(value),
            _ => None,
        }
    }
}

impl Condition {
    /// The values that it names; none where it is a comparison.
    fn values(&self) -> &[Value] {
        match self {
            Condition::One(value) if comparison(value).is_none() => std::slice::from_ref(value),
            Condition::One(_) => &[],
            Condition::Any(values) => values,
        }
    }
}

/// Refuses a selection that names a value of `name` which no row has: `known` are all.
pub(super) fn check_values(selection: &Selection, name: &str, known: &[Value]) -> Result<(), String> {
    // A comparison that is none is another mistake: see `check_selection`.
    let is_comparison = |value: &&Value| value.to_string().starts_with(['<', '>']);
    let named = selection.0.get(name).into_iter().flat_map(Condition::values).filter(|value| !is_comparison(value));
    match named.into_iter().find(|value| !known.iter().any(|known| known.is_same(value))) {
        None => Ok(()),
        Some(strange) => {
            let known: Vec<String> = known.iter().map(Value::to_string).collect();
            Err(format!("{name} is never `{strange}`; there are: {}", known.join(", ")))
        }
    }
}

type Compare = fn(f64, f64) -> bool;

/// `">128"` as a comparison with 128.
fn comparison(value: &Value) -> Option<(Compare, f64)> {
    let Value::Text(text) = value else { return None };
    let words: [(&str, Compare); 4] = [
        ("<=", |one, two| one <= two),
        (">=", |one, two| one >= two),
        ("<", |one, two| one < two),
        (">", |one, two| one > two),
    ];
    let (compare, rest) = words.iter().find_map(|(word, compare)| Some((*compare, text.strip_prefix(word)?)))?;
    Some((compare, rest.trim().parse().ok()?))
}

/// Values that a sentence names.
const NAMED_MAX: usize = 6;

/// Conditions on dimensions, all of which must hold.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Selection(pub BTreeMap<String, Condition>);

impl Selection {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    /// For readers: the values that are wanted, with the names of dimensions other than contestants.
    pub(super) fn words(&self) -> String {
        let named = |(name, condition): (&String, &Condition)| match name.as_str() {
            CONTESTANT => condition.words(),
            name => format!("{name} {}", condition.words()),
        };
        self.0.iter().map(named).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn holds(&self, dims: &BTreeMap<String, Value>) -> bool {
        self.0.iter().all(|(name, condition)| dims.get(name).is_some_and(|value| condition.holds(value)))
    }

    /// The conditions that no row meets: each with the name of its dimension, what is wanted, and the values that there are.
    pub(super) fn unmet(&self, rows: &[Row]) -> Vec<(&str, String, String)> {
        let unmet = |name: &String, condition: &Condition| {
            let mut values: Vec<&Value> = Vec::new();
            for value in rows.iter().filter_map(|row| row.dims.get(name)) {
                if condition.holds(value) {
                    return None;
                }
                if !values.iter().any(|known| known.is_same(value)) {
                    values.push(value);
                }
            }
            let mut known: Vec<String> = values.iter().take(NAMED_MAX).map(|value| value.to_string()).collect();
            known.extend((values.len() > NAMED_MAX).then(|| format!("and {} others", values.len() - NAMED_MAX)));
            Some((condition.words(), known.join(", ")))
        };
        let named = |(name, condition)| unmet(name, condition).map(|(wanted, known)| (name.as_str(), wanted, known));
        self.0.iter().filter_map(named).collect()
    }

    /// The rows for which all conditions hold.
    pub(super) fn of<'a>(&self, rows: &'a [Row]) -> Vec<&'a Row> {
        rows.iter().filter(|row| self.holds(&row.dims)).collect()
    }
}

/// The row that differs from `row` only in that `instead` holds.
pub(super) fn counterpart<'a>(row: &Row, instead: &Selection, rows: &'a [Row]) -> Option<&'a Row> {
    rows.iter().find(|other| {
        let rest = row.dims.iter().all(|(name, value)| match instead.0.get(name) {
            Some(_) => true,
            None => other.dims.get(name).is_some_and(|theirs| theirs.is_same(value)),
        });
        rest && other.dims.len() == row.dims.len() && instead.holds(&other.dims)
    })
}

/// What is wrong with the names in `selection`, if anything: they must be dimensions, and comparisons need numbers.
pub(super) fn check_selection(selection: &Selection, dims: &[String]) -> Result<(), String> {
    selection.names().try_for_each(|name| check_dimension(name, dims))?;
    for (name, condition) in &selection.0 {
        let Some(Value::Text(text)) = condition.value() else { continue };
        if text.starts_with(['<', '>']) {
            return Err(format!("`{text}` is no comparison of {name} with a number, such as >128"));
        }
    }
    Ok(())
}

pub(super) fn check_dimension(name: &str, dims: &[String]) -> Result<(), String> {
    match dims.iter().any(|dim| dim == name) {
        true => Ok(()),
        false => Err(format!("there is no dimension `{name}`; there are: {}", dims.join(", "))),
    }
}
