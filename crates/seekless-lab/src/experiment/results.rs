//! Results in a folder: what is done is kept, whatever happens next.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::description::{Description, Experiment};
use super::plan::{Plan, Point};
use super::published::Published;
use super::rounds::Round;
use super::rows::Row;

const POINTS: &str = "points.jsonl";
const ROWS: &str = "rows.jsonl";
const TABLE: &str = "rows.csv";
const RESOLVED: &str = "resolved.toml";
const PROVENANCE: &str = "provenance.json";

/// Why results cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    #[error("cannot {action} {path}: {cause}")]
    Io { action: &'static str, path: String, cause: io::Error },
    #[error("{path}: {problem}")]
    Content { path: String, problem: String },
    /// Somebody else writes there.
    #[error("another run is writing to {path}")]
    Busy { path: String },
}

/// A folder into which a run writes.
pub struct Results {
    folder: PathBuf,
    /// Held as long as this lives, so that there is one writer.
    points: File,
    /// What earlier runs have measured, by key.
    done: BTreeMap<String, Vec<Round>>,
}

/// A line of `points.jsonl`.
#[derive(Serialize, Deserialize)]
struct Done {
    key: String,
    measures: Round,
}

/// What `resolved.toml` holds: the description, and what it came to.
#[derive(Serialize, Deserialize)]
struct Resolved {
    name: String,
    experiment: Description,
    #[serde(default)]
    published: Vec<Published>,
    #[serde(default, skip_deserializing)]
    point: Vec<Point>,
}

impl Results {
    /// Opens the folder, which is made when it is not there, and reads what is done already. A line that a kill has left
    /// incomplete is taken away.
    ///
    /// # Errors
    /// When it cannot be written, holds something else, or somebody else writes there.
    pub fn open(folder: &Path) -> Result<Results, ResultsError> {
        fs::create_dir_all(folder).map_err(failed("make", folder))?;
        let path = folder.join(POINTS);
        let opened = OpenOptions::new().read(true).append(true).create(true).open(&path);
        let points = opened.map_err(failed("open", &path))?;
        match points.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                return Err(ResultsError::Busy { path: folder.display().to_string() });
            }
            Err(fs::TryLockError::Error(cause)) => return Err(failed("lock", &path)(cause)),
        }
        let text = fs::read(&path).map_err(failed("read", &path))?;
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let mut done: BTreeMap<String, Vec<Round>> = BTreeMap::new();
        for (number, line) in text[..whole].split(|&byte| byte == b'\n').enumerate().filter(|(_, l)| !l.is_empty()) {
            let read: Done = serde_json::from_slice(line).map_err(|error| ResultsError::Content {
                path: format!("{}, line {}", path.display(), number + 1),
                problem: format!("this is no measured point ({error}); remove the folder to begin anew"),
            })?;
            done.entry(read.key).or_default().push(read.measures);
        }
        if whole < text.len() {
            points.set_len(whole as u64).map_err(failed("shorten", &path))?;
        }
        Ok(Results { folder: folder.to_owned(), points, done })
    }

    /// How often a point has been measured.
    pub fn rounds(&self, point: &Point) -> usize {
        self.done.get(&point.key).map_or(0, Vec::len)
    }

    /// Forgets what belongs to none of these points, such as what another program has measured; how many that were.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn keep_only(&mut self, plan: &Plan) -> Result<usize, ResultsError> {
        let before = self.done.len();
        self.done.retain(|key, _| plan.points.iter().any(|point| point.key == *key));
        let forgotten = before - self.done.len();
        if forgotten > 0 {
            let path = self.folder.join(POINTS);
            // The lock is on this file, so it is not replaced by another one. A kill in between costs what is measured
            // again.
            self.points.set_len(0).map_err(failed("shorten", &path))?;
            for (key, rounds) in self.done.clone() {
                for measures in rounds {
                    self.append(&Done { key: key.clone(), measures })?;
                }
            }
        }
        Ok(forgotten)
    }

    /// Keeps what a point came to, once. When this returns, a kill of the program does not lose it.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn add(&mut self, point: &Point, measures: Round) -> Result<(), ResultsError> {
        self.append(&Done { key: point.key.clone(), measures: measures.clone() })?;
        self.done.entry(point.key.clone()).or_default().push(measures);
        Ok(())
    }

    fn append(&mut self, done: &Done) -> Result<(), ResultsError> {
        let path = self.folder.join(POINTS);
        let line = format!("{}\n", serde_json::json!(done));
        // One write, so that a kill leaves a line or nothing in nearly all cases; a part of one is noticed.
        self.points.write_all(line.as_bytes()).map_err(failed("write", &path))
    }

    /// Writes rows, description and provenance. Each file is there as a whole or not at all.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn finish(
        &self,
        experiment: &Experiment,
        plan: &Plan,
        provenance: &serde_json::Value,
    ) -> Result<Vec<Row>, ResultsError> {
        let rows = plan.rows(&self.done);
        let resolved = Resolved {
            name: experiment.name.clone(),
            experiment: experiment.description.clone(),
            published: experiment.published.clone(),
            point: plan.points.clone(),
        };
        let resolved = toml::to_string_pretty(&resolved).map_err(|error| ResultsError::Content {
            path: RESOLVED.to_owned(),
            problem: format!("the description cannot be written: {error}"),
        })?;
        let lines: String = rows.iter().map(|row| format!("{}\n", serde_json::json!(row))).collect();
        self.replace(RESOLVED, &resolved)?;
        self.replace(ROWS, &lines)?;
        self.replace(TABLE, &to_csv(&rows))?;
        self.replace(PROVENANCE, &format!("{provenance:#}\n"))?;
        Ok(rows)
    }

    fn replace(&self, name: &str, text: &str) -> Result<(), ResultsError> {
        let (path, new) = (self.folder.join(name), self.folder.join(format!("{name}.new")));
        fs::write(&new, text).map_err(failed("write", &new))?;
        fs::rename(&new, &path).map_err(failed("replace", &path))
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ResultsError + use<> {
    let path = path.display().to_string();
    move |cause| ResultsError::Io { action, path, cause }
}

/// Results that are read to be shown.
#[derive(Clone, Debug)]
pub struct Stored {
    pub name: String,
    pub description: Description,
    pub published: Vec<Published>,
    pub rows: Vec<Row>,
    pub provenance: serde_json::Value,
    /// The description as text, for who wants to repeat it.
    pub text: String,
}

impl Stored {
    /// Reads a folder that a run has written.
    ///
    /// # Errors
    /// When a file is missing or is not what a run writes.
    pub fn read(folder: &Path) -> Result<Stored, ResultsError> {
        let read = |name: &str| -> Result<(String, String), ResultsError> {
            let path = folder.join(name);
            match fs::read_to_string(&path) {
                Ok(text) => Ok((path.display().to_string(), text)),
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                    let problem = "there is no such file: the run has not come to its end, or this is no folder of \
                                   results; `seekless run` makes one"
                        .to_owned();
                    Err(ResultsError::Content { path: path.display().to_string(), problem })
                }
                Err(cause) => Err(failed("read", &path)(cause)),
            }
        };
        let wrong = |path: &str, problem: String| ResultsError::Content { path: path.to_owned(), problem };
        let (path, text) = read(RESOLVED)?;
        let resolved: Resolved = toml::from_str(&text).map_err(|error| wrong(&path, error.to_string()))?;
        resolved.experiment.check().map_err(|problem| wrong(&path, problem))?;
        let description_text = text;
        let (path, text) = read(ROWS)?;
        let mut rows = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let row = serde_json::from_str(line);
            rows.push(row.map_err(|error| wrong(&path, format!("line {}: {error}", number + 1)))?);
        }
        let (path, text) = read(PROVENANCE)?;
        let provenance = serde_json::from_str(&text).map_err(|error| wrong(&path, error.to_string()))?;
        let Resolved { name, experiment: description, published, .. } = resolved;
        Ok(Stored { name, description, published, rows, provenance, text: description_text })
    }
}

/// Rows as a table: a column for each dimension and each metric.
pub fn to_csv(rows: &[Row]) -> String {
    let mut dims: Vec<&String> = Vec::new();
    let mut metrics: Vec<&String> = Vec::new();
    for row in rows {
        dims.extend(row.dims.keys().filter(|name| !dims.contains(name)).collect::<Vec<_>>());
        metrics.extend(row.metrics.keys().filter(|name| !metrics.contains(name)).collect::<Vec<_>>());
    }
    let mut writer = csv::Writer::from_writer(Vec::new());
    let header = dims.iter().chain(&metrics).map(|name| name.as_str());
    // Writing to memory cannot fail, and all records are of one length.
    let _ = writer.write_record(header);
    for row in rows {
        let dims = dims.iter().map(|name| row.dims.get(*name).map_or_else(String::new, ToString::to_string));
        let metrics = metrics.iter().map(|name| row.metrics.get(*name).map_or_else(String::new, ToString::to_string));
        let _ = writer.write_record(dims.chain(metrics));
    }
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}
