//! Results in a folder: finished points are kept, whatever happens next.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::output::{self, NewFile, OutputError, Replace, Wish};

use super::costs::{Costs, Spent};
use super::description::{Description, Experiment};
use super::plan::{Plan, Point};
use super::published::Published;
use super::rounds::Round;
use super::rows::Row;

const POINTS: &str = "points.jsonl";
/// Points of other programs and other experiments, which are measured again but not deleted.
const OLD_POINTS: &str = "points.old.jsonl";
const ROWS: &str = "rows.jsonl";
const TABLE: &str = "rows.csv";
const RESOLVED: &str = "resolved.toml";
const PROVENANCE: &str = "provenance.json";
/// How long each point took. Beside the points, which are the same every time.
const SECONDS: &str = "seconds.jsonl";

/// Why results cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    #[error("cannot {action} {path}: {cause}")]
    Io { action: &'static str, path: String, cause: io::Error },
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error("{path}: {problem}")]
    Content { path: String, problem: String },
    /// Another process writes there.
    #[error("another run is writing to {path}")]
    Busy { path: String },
}

/// A folder into which a run writes.
pub struct Results {
    folder: PathBuf,
    /// Held as long as this lives, so that there is one writer.
    points: File,
    /// Measurements of earlier runs, by key.
    done: Points,
}

/// What came of another folder's points.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Merged {
    /// Rounds that were not there yet.
    pub added: usize,
    /// Points that are not in the plan: of another program, or another experiment.
    pub foreign: usize,
}

/// Points by key, each with its rounds.
type Points = BTreeMap<String, Vec<Round>>;

/// A line of `points.jsonl`.
#[derive(Serialize, Deserialize)]
struct Done {
    key: String,
    measures: Round,
}

/// Contents of `resolved.toml`: the description, and what it resolved to.
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
    /// Opens the folder, creating it if necessary, and reads the finished points. A line that a kill left incomplete is
    /// removed.
    ///
    /// # Errors
    /// When it cannot be written, holds something else, or another run writes there.
    pub fn open(folder: &Path) -> Result<Results, ResultsError> {
        fs::create_dir_all(folder).map_err(failed("make", folder))?;
        let path = folder.join(POINTS);
        check_folder(folder)?;
        let points = locked(folder, &path)?;
        let text = fs::read(&path).map_err(failed("read", &path))?;
        let (done, whole) = parse_points(&path, &text)?;
        if whole < text.len() {
            points.set_len(whole as u64).map_err(failed("shorten", &path))?;
        }
        Ok(Results { folder: folder.to_owned(), points, done })
    }

    /// How often a point has been measured.
    pub fn rounds(&self, point: &Point) -> usize {
        self.done.get(&point.key).map_or(0, Vec::len)
    }

    /// Puts aside points that are not in the plan, such as those of another program; returns their number. A kill at
    /// any moment loses none.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn keep_only(&mut self, plan: &Plan) -> Result<usize, ResultsError> {
        let keys: BTreeSet<&String> = plan.points.iter().map(|point| &point.key).collect();
        let is_wanted = |key: &String| keys.contains(key);
        let (kept, old): (Points, Points) = self.done.clone().into_iter().partition(|(key, _)| is_wanted(key));
        if !old.is_empty() {
            self.put_aside(&old)?;
            // The lock belongs to the file under the name: the new file is locked before it gets the name.
            let path = self.folder.join(POINTS);
            let mut new = NewFile::begin(&path, &Wish::new(Replace::Always))?;
            new.write_all(lines_of(&kept).as_bytes()).map_err(failed("write", &path))?;
            new.file().lock().map_err(failed("lock", &path))?;
            self.points = new.commit()?;
            self.done = kept;
        }
        Ok(old.len())
    }

    /// Appends points to those of earlier programs.
    fn put_aside(&self, points: &Points) -> Result<(), ResultsError> {
        let path = self.folder.join(OLD_POINTS);
        let mut file = OpenOptions::new().append(true).create(true).open(&path).map_err(failed("open", &path))?;
        file.write_all(lines_of(points).as_bytes()).map_err(failed("write", &path))?;
        file.sync_all().map_err(failed("sync", &path))
    }

    /// Stores one round of a point. When this returns, a kill of the program does not lose it.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn add(&mut self, point: &Point, measures: Round) -> Result<(), ResultsError> {
        self.append(&Done { key: point.key.clone(), measures: measures.clone() })?;
        self.done.entry(point.key.clone()).or_default().push(measures);
        Ok(())
    }

    /// Adds what another folder has of the plan's points: those of a shard, finished or not. That folder is only read,
    /// and merging it once more adds nothing.
    ///
    /// # Errors
    /// When it has no points, or when a point in virtual time has other measures there than here.
    pub fn merge(
        &mut self,
        folder: &Path,
        plan: &Plan,
        is_simulated: impl Fn(&Point) -> bool,
    ) -> Result<Merged, ResultsError> {
        let path = folder.join(POINTS);
        let text = fs::read(&path).map_err(failed("read", &path))?;
        // A kill, or a run under way, may have left part of a line.
        let (found, _) = parse_points(&path, &text)?;
        let points: BTreeMap<&String, &Point> = plan.points.iter().map(|point| (&point.key, point)).collect();
        let mut merged = Merged::default();
        let mut new = Vec::new();
        for (key, rounds) in &found {
            let Some(&point) = points.get(key) else {
                merged.foreign += 1;
                continue;
            };
            let here = self.done.get(key).map_or(&[][..], Vec::as_slice);
            let others = || here.iter().chain(rounds).any(|round| *round != rounds[0]);
            if is_simulated(point) && others() {
                return Err(ResultsError::Content {
                    path: path.display().to_string(),
                    problem: format!(
                        "the measures of a point ({}) differ from those that are there, although virtual time is the \
                         same every time: one of them is damaged",
                        point.on
                    ),
                });
            }
            let rounds = rounds.iter().take(if is_simulated(point) { 1 } else { usize::MAX });
            new.extend(rounds.filter(|round| !here.contains(round)).map(|round| (point, round.clone())));
        }
        merged.added = new.len();
        for (point, round) in new {
            self.add(point, round)?;
        }
        let costs = folder.join(SECONDS);
        match fs::read(&costs) {
            Ok(_) if merged.added == 0 => {}
            Ok(text) => self.append_seconds(&text)?,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
            Err(cause) => return Err(failed("read", &costs)(cause)),
        }
        Ok(merged)
    }

    /// Stores how long a point took, by its place in words.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn add_seconds(&mut self, place: String, seconds: f64) -> Result<(), ResultsError> {
        self.append_seconds(format!("{}\n", serde_json::json!(Spent { place, seconds })).as_bytes())
    }

    fn append_seconds(&mut self, lines: &[u8]) -> Result<(), ResultsError> {
        let path = self.folder.join(SECONDS);
        let mut file = OpenOptions::new().append(true).create(true).open(&path).map_err(failed("open", &path))?;
        file.write_all(lines).map_err(failed("write", &path))
    }

    /// The provenance of what another folder holds, if a run came to its end there.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn provenance_of(folder: &Path) -> Result<Option<serde_json::Value>, ResultsError> {
        let path = folder.join(PROVENANCE);
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| ResultsError::Content {
                path: path.display().to_string(),
                problem: error.to_string(),
            }),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(failed("read", &path)(cause)),
        }
    }

    fn append(&mut self, done: &Done) -> Result<(), ResultsError> {
        let path = self.folder.join(POINTS);
        let line = line_of(done);
        // A single write, so that a kill nearly always leaves a line or nothing; a partial line is detected.
        self.points.write_all(line.as_bytes()).map_err(failed("write", &path))
    }

    /// Writes rows, description and provenance. Each file is replaced as a whole.
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
        // The folder holds results, so files with these names in it are results.
        Ok(output::write(&self.folder.join(name), text.as_bytes(), &Wish::new(Replace::Always))?)
    }
}

/// How each line of the journal begins.
const LINE_START: &[u8] = b"{\"key\":";

fn line_of(done: &Done) -> String {
    format!("{}\n", serde_json::json!(done))
}

/// Parses the journal: its points, and the length of its whole lines.
fn parse_points(path: &Path, text: &[u8]) -> Result<(Points, usize), ResultsError> {
    let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let mut done = Points::new();
    for (number, line) in text[..whole].split(|&byte| byte == b'\n').enumerate().filter(|(_, l)| !l.is_empty()) {
        let read: Done = serde_json::from_slice(line).map_err(|error| ResultsError::Content {
            path: format!("{}, line {}", path.display(), number + 1),
            problem: format!("this is no measured point ({error}); remove the folder to begin again"),
        })?;
        done.entry(read.key).or_default().push(read.measures);
    }
    let torn = &text[whole..];
    if !torn.is_empty() && !torn.starts_with(LINE_START) && !LINE_START.starts_with(torn) {
        let path = path.display().to_string();
        let problem = "its end is no measured point; name another folder for the results".to_owned();
        return Err(ResultsError::Content { path, problem });
    }
    Ok((done, whole))
}

/// Reads how long the points of a run took, from its folder of results. The run may be one of another program, or with
/// `--quick`. An incomplete last line is ignored.
///
/// # Errors
/// When there is no such file, or one of something else.
pub fn read_costs(folder: &Path) -> Result<Costs, ResultsError> {
    let path = folder.join(SECONDS);
    let text = fs::read(&path).map_err(failed("read", &path))?;
    let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let mut costs = Costs::default();
    for (number, line) in text[..whole].split(|&byte| byte == b'\n').enumerate().filter(|(_, l)| !l.is_empty()) {
        let wrong = |problem: String| ResultsError::Content {
            path: format!("{}, line {}", path.display(), number + 1),
            problem: format!("this is no time of a point ({problem})"),
        };
        let spent: Spent = serde_json::from_slice(line).map_err(|error| wrong(error.to_string()))?;
        costs.add(spent).map_err(wrong)?;
    }
    Ok(costs)
}

fn lines_of(points: &Points) -> String {
    let rounds = points.iter().flat_map(|(key, rounds)| rounds.iter().map(move |measures| (key, measures)));
    rounds.map(|(key, measures)| line_of(&Done { key: key.clone(), measures: measures.clone() })).collect()
}

/// Refuses a folder whose files have the names of results and are not results: a run creates the journal first.
fn check_folder(folder: &Path) -> Result<(), ResultsError> {
    let is_there = |name: &&str| folder.join(name).symlink_metadata().is_ok();
    if is_there(&POINTS) {
        return Ok(());
    }
    match [ROWS, TABLE, RESOLVED, PROVENANCE].iter().find(|name| is_there(name)) {
        Some(name) => Err(ResultsError::Content {
            path: folder.join(name).display().to_string(),
            problem: format!(
                "a run would replace it, and without {POINTS} beside it this is no folder of results; name \
                              another one"
            ),
        }),
        None => Ok(()),
    }
}

/// Opens and locks the journal, so that no other run writes to it.
fn locked(folder: &Path, path: &Path) -> Result<File, ResultsError> {
    let busy = || ResultsError::Busy { path: folder.display().to_string() };
    match path.symlink_metadata() {
        Ok(metadata) if !metadata.is_file() => {
            let problem = "this is no regular file; name another folder for the results".to_owned();
            return Err(ResultsError::Content { path: path.display().to_string(), problem });
        }
        _ => {}
    }
    let opened = OpenOptions::new().read(true).append(true).create(true).open(path);
    let points = opened.map_err(failed("open", path))?;
    match points.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => return Err(busy()),
        Err(fs::TryLockError::Error(cause)) => return Err(failed("lock", path)(cause)),
    }
    // Another run may have replaced the file between opening and locking it.
    let (locked, named) = (points.metadata(), fs::metadata(path));
    match (locked, named) {
        (Ok(locked), Ok(named)) if (locked.dev(), locked.ino()) == (named.dev(), named.ino()) => Ok(points),
        _ => Err(busy()),
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ResultsError + use<> {
    let path = path.display().to_string();
    move |cause| ResultsError::Io { action, path, cause }
}

/// The files of a folder of results, existing or not.
pub fn files_of(folder: &Path) -> Vec<PathBuf> {
    [POINTS, OLD_POINTS, ROWS, TABLE, RESOLVED, PROVENANCE, SECONDS].map(|name| folder.join(name)).into()
}

/// Stored results, read for display.
#[derive(Clone, Debug)]
pub struct Stored {
    pub name: String,
    pub description: Description,
    pub published: Vec<Published>,
    pub rows: Vec<Row>,
    pub provenance: serde_json::Value,
    /// The description as text, for repeating the experiment.
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
    // Writing to memory cannot fail, and all records have the same length.
    let _ = writer.write_record(header);
    for row in rows {
        let dims = dims.iter().map(|name| row.dims.get(*name).map_or_else(String::new, ToString::to_string));
        let metrics = metrics.iter().map(|name| row.metrics.get(*name).map_or_else(String::new, ToString::to_string));
        let _ = writer.write_record(dims.chain(metrics));
    }
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}
