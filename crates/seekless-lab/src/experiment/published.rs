//! Published figures: points with their sources, from `published.csv`.
//!
//! A column for each dimension that tells the points apart, and these:
//!
//! | column | holds |
//! |---|---|
//! | `metric` | what was published, under the metric's name in the rows |
//! | `value` | the number |
//! | `source` | author and place: `[st05 §4]` |
//! | `note` | further remarks; may be empty or left out |

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::ExperimentError;
use super::rows::{Columns, Row};
use super::value::Value;

/// Name of the file in an experiment's folder; it is optional.
pub(super) const FILE: &str = "published.csv";

/// A published figure.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Published {
    /// Its dimensions, where given: others may have any value.
    pub dims: BTreeMap<String, Value>,
    pub metric: String,
    pub value: f64,
    pub source: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// A published figure beside the measured one.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Deviation {
    pub published: Published,
    /// `None` when no row, or more than one, matches.
    pub measured: Option<f64>,
}

impl Deviation {
    /// Measured over published, less one.
    pub fn relative(&self) -> Option<f64> {
        self.measured.filter(|_| self.published.value != 0.0).map(|measured| measured / self.published.value - 1.0)
    }
}

/// Pairs every published figure with its row.
pub fn deviations(published: &[Published], rows: &[Row]) -> Vec<Deviation> {
    let beside = |published: &Published| {
        let is_same = |row: &&Row| {
            published.dims.iter().all(|(name, value)| row.dims.get(name).is_some_and(|theirs| theirs.is_same(value)))
        };
        let mut values = rows.iter().filter(is_same).filter_map(|row| row.metrics.get(&published.metric));
        let measured = values.next().copied().filter(|_| values.next().is_none());
        Deviation { published: published.clone(), measured }
    };
    published.iter().map(beside).collect()
}

/// Reads the file; empty when it does not exist.
pub(super) fn read(path: &Path, columns: &Columns) -> Result<Vec<Published>, ExperimentError> {
    let name = path.display().to_string();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(cause) => return Err(ExperimentError::Io { path: name, cause }),
    };
    parse(&text, columns).map_err(|problem| ExperimentError::Description { path: name, problem })
}

pub(super) fn parse(text: &str, columns: &Columns) -> Result<Vec<Published>, String> {
    let dims = &columns.dims;
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).trim(csv::Trim::All).from_reader(text.as_bytes());
    let header = reader.headers().map_err(|error| error.to_string())?.clone();
    let required = ["metric", "value", "source"];
    if let Some(column) = required.iter().find(|column| !header.iter().any(|name| name == **column)) {
        return Err(format!("there is no column `{column}`"));
    }
    let of_dims = |name: &&str| !required.contains(name) && *name != "note";
    if let Some(strange) = header.iter().filter(of_dims).find(|name| !dims.iter().any(|dim| dim == name)) {
        return Err(format!("the column `{strange}` is no dimension; there are: {}", dims.join(", ")));
    }
    let mut points = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| error.to_string())?;
        let line = record.position().map_or(0, csv::Position::line);
        let cell = |name: &str| {
            let index = header.iter().position(|column| column == name);
            index.and_then(|index| record.get(index)).unwrap_or_default()
        };
        let value = cell("value").parse().ok().filter(|value: &f64| value.is_finite());
        let value = value.ok_or_else(|| format!("line {line}: the value `{}` is not a number", cell("value")))?;
        columns.check_metric(cell("metric")).map_err(|problem| format!("line {line}: {problem}"))?;
        if cell("source").is_empty() {
            return Err(format!("line {line}: there is no source"));
        }
        let given = dims.iter().filter(|dim| !cell(dim).is_empty());
        points.push(Published {
            dims: given.map(|dim| (dim.clone(), Value::read(cell(dim)))).collect(),
            metric: cell("metric").to_owned(),
            value,
            source: cell("source").to_owned(),
            note: cell("note").to_owned(),
        });
    }
    Ok(points)
}
