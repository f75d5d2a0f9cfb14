//! Results in a folder: finished points are kept, whatever happens next, and any number of runs write to it at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::output::{self, Replace, Wish};

use super::costs::{Costs, Spent};
use super::description::{Description, Experiment};
use super::journal::{self, Journal, Line, Points, Turn, WhileWaiting};
use super::plan::{Plan, Point};
use super::published::Published;
use super::results_error::{ResultsError, failed};
use super::rounds::Round;
use super::rows::Row;

const POINTS: &str = "points.jsonl";
const ROWS: &str = "rows.jsonl";
const TABLE: &str = "rows.csv";
const RESOLVED: &str = "resolved.toml";
const PROVENANCE: &str = "provenance.json";
/// How long each point took. Beside the points, which are the same every time.
const SECONDS: &str = "seconds.jsonl";

/// A folder into which a run of one plan writes, perhaps beside others.
pub struct Results {
    folder: PathBuf,
    journal: Journal,
    /// What has been measured, by this and other runs, of this and other plans.
    done: Points,
    /// Goes into the journal.
    program: String,
}

/// Which other measurements one excludes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// That of the same point by another run: in virtual time.
    Point,
    /// All others in real time: they would disturb each other.
    RealTime,
}

/// What came of another folder's points.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Merged {
    /// Rounds that were not there yet.
    pub added: usize,
    /// Points of the plan, there already or not.
    pub known: usize,
    pub foreign: Foreign,
}

/// Points in a folder that are not in a plan.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Foreign {
    /// Another build of the program has measured these.
    pub of_builds: usize,
    /// Beginnings of the digests of these builds; none where a folder does not say it.
    pub builds: BTreeSet<String>,
    /// These belong to another experiment, or to this one with other files or options.
    pub of_experiments: usize,
}

impl Foreign {
    /// How many points there are.
    pub fn count(&self) -> usize {
        self.of_builds + self.of_experiments
    }

    fn add(&mut self, program: &str, plan: &Plan) {
        match program == plan.program_in_short() {
            true => self.of_experiments += 1,
            false => {
                self.of_builds += 1;
                self.builds.extend((!program.is_empty()).then(|| program.to_owned()));
            }
        }
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let points = |count: usize| if count == 1 { "1 point".to_owned() } else { format!("{count} points") };
        let mut parts = Vec::new();
        if self.of_builds > 0 {
            let builds: Vec<&str> = self.builds.iter().map(String::as_str).collect();
            let named = if builds.is_empty() { String::new() } else { format!(" ({})", builds.join(", ")) };
            parts.push(format!("{} of another build of seekless{named}", points(self.of_builds)));
        }
        if self.of_experiments > 0 {
            parts.push(format!("{} of another experiment, or of other files or options", points(self.of_experiments)));
        }
        f.write_str(&parts.join(" and "))
    }
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
    /// Opens the folder, creating it if necessary, and reads what has been measured.
    ///
    /// # Errors
    /// When it cannot be written, or holds something else, and when the wait for another run was ended.
    pub fn open(folder: &Path, plan: &Plan, waiting: WhileWaiting<'_>) -> Result<Results, ResultsError> {
        fs::create_dir_all(folder).map_err(failed("make", folder))?;
        check_folder(folder)?;
        let (journal, done) = Journal::open(&folder.join(POINTS), waiting)?;
        Ok(Results { folder: folder.to_owned(), journal, done, program: plan.program_in_short() })
    }

    /// How often a point has been measured, as far as this run knows: see [`Results::refresh`].
    pub fn rounds(&self, point: &Point) -> usize {
        self.done.get(&point.key).map_or(0, |measured| measured.rounds.len())
    }

    /// Learns what other runs have measured since.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn refresh(&mut self) -> Result<(), ResultsError> {
        self.journal.refresh(&mut self.done)
    }

    /// The points that are not in the plan. They stay, and count again in a run that they belong to.
    pub fn foreign(&self, plan: &Plan) -> Foreign {
        let keys: BTreeSet<&String> = plan.points.iter().map(|point| &point.key).collect();
        let mut foreign = Foreign::default();
        for (_, measured) in self.done.iter().filter(|(key, _)| !keys.contains(key)) {
            foreign.add(&measured.program, plan);
        }
        foreign
    }

    /// The name of the experiment whose rows are in the folder, where it is another one.
    pub fn rows_of_another(&self, experiment: &Experiment) -> Option<String> {
        #[derive(Deserialize)]
        struct Named {
            name: String,
        }
        let text = fs::read_to_string(self.folder.join(RESOLVED)).ok()?;
        let Named { name } = toml::from_str(&text).ok()?;
        (name != experiment.name).then_some(name)
    }

    /// Takes a point that is to be measured, so that no other run does, until [`Results::release`] or this is dropped.
    /// False when another run has it: when it is released, the other has measured it, or failed, or died.
    ///
    /// # Errors
    /// When the file system has no locks.
    pub fn claim(&self, point: &Point, claim: Claim) -> Result<bool, ResultsError> {
        self.journal.claim(name_of(point, claim))
    }

    /// Gives up a claim.
    ///
    /// # Errors
    /// When the file system has no locks.
    pub fn release(&self, point: &Point, claim: Claim) -> Result<(), ResultsError> {
        self.journal.release(name_of(point, claim))
    }

    /// Stores one round of a point. When this returns, a kill of the program does not lose it.
    ///
    /// # Errors
    /// When the folder cannot be written, and when the wait for another run was ended: the point is not stored then.
    pub fn add(&mut self, point: &Point, measures: Round, waiting: WhileWaiting<'_>) -> Result<(), ResultsError> {
        let line = Line { key: point.key.clone(), program: self.program.clone(), measures };
        self.journal.append(line, &mut self.done, waiting)
    }

    /// Adds what another folder has of the plan's points: those of a shard, finished or not. That folder is only read,
    /// and merging it once more adds nothing.
    ///
    /// # Errors
    /// When it has no points, when a point in virtual time has other measures there than here, and when the wait for another run was
    /// ended.
    pub fn merge(
        &mut self,
        folder: &Path,
        plan: &Plan,
        is_simulated: impl Fn(&Point) -> bool,
        waiting: WhileWaiting<'_>,
    ) -> Result<Merged, ResultsError> {
        let path = folder.join(POINTS);
        let found = journal::read(&path)?;
        let points: BTreeMap<&String, &Point> = plan.points.iter().map(|point| (&point.key, point)).collect();
        let mut merged = Merged::default();
        let mut new = Vec::new();
        for (key, measured) in &found {
            let Some(&point) = points.get(key) else {
                merged.foreign.add(&measured.program, plan);
                continue;
            };
            merged.known += 1;
            let rounds = &measured.rounds;
            let here = self.done.get(key).map_or(&[][..], |measured| &measured.rounds);
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
            self.add(point, round, waiting)?;
        }
        let costs = folder.join(SECONDS);
        match fs::read(&costs) {
            Ok(_) if merged.added == 0 => {}
            Ok(text) => self.append_seconds(whole_lines(&text), waiting)?,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
            Err(cause) => return Err(failed("read", &costs)(cause)),
        }
        Ok(merged)
    }

    /// Whether points have been measured into `folder`.
    pub fn are_in(folder: &Path) -> bool {
        folder.join(POINTS).exists()
    }

    /// Keys of the plan's points that folders have, finished or not, and what else each of them has. Nothing is written.
    ///
    /// # Errors
    /// When one of them has no points.
    pub fn count(folders: &[PathBuf], plan: &Plan) -> Result<(BTreeSet<String>, Vec<Foreign>), ResultsError> {
        let keys: BTreeSet<&String> = plan.points.iter().map(|point| &point.key).collect();
        let (mut there, mut foreign) = (BTreeSet::new(), Vec::new());
        for folder in folders {
            let mut others = Foreign::default();
            for (key, measured) in journal::read(&folder.join(POINTS))? {
                match keys.contains(&key) {
                    true => drop(there.insert(key)),
                    false => others.add(&measured.program, plan),
                }
            }
            foreign.push(others);
        }
        Ok((there, foreign))
    }

    /// How often points have been measured into a folder that may not be there, by their keys. Nothing is written.
    ///
    /// # Errors
    /// When it holds something else.
    pub fn rounds_in(folder: &Path) -> Result<BTreeMap<String, usize>, ResultsError> {
        match Results::are_in(folder) {
            true => {
                Ok(journal::read(&folder.join(POINTS))?.into_iter().map(|(key, it)| (key, it.rounds.len())).collect())
            }
            false => Ok(BTreeMap::new()),
        }
    }

    /// Stores how long a point took, by its place in words.
    ///
    /// # Errors
    /// When the folder cannot be written, and when the wait for another run was ended.
    pub fn add_seconds(&mut self, place: String, seconds: f64, waiting: WhileWaiting<'_>) -> Result<(), ResultsError> {
        self.append_seconds(format!("{}\n", serde_json::json!(Spent { place, seconds })).as_bytes(), waiting)
    }

    fn append_seconds(&mut self, lines: &[u8], waiting: WhileWaiting<'_>) -> Result<(), ResultsError> {
        let path = self.folder.join(SECONDS);
        self.journal.alone(Turn::Append, waiting, |_| {
            let mut options = OpenOptions::new();
            let mut file = options.read(true).append(true).create(true).open(&path).map_err(failed("open", &path))?;
            let mut last = [b'\n'];
            if file.seek(SeekFrom::End(-1)).is_ok() {
                file.read_exact(&mut last).map_err(failed("read", &path))?;
            }
            // A run that was ended while it wrote, or found the disk full, has left half a line.
            let end = if last == *b"\n" { &b""[..] } else { b"\n" };
            file.write_all(&[end, lines].concat()).map_err(failed("write", &path))
        })
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

    /// Writes rows, description and provenance, with what other runs have measured by now: of runs at the same time, the
    /// last one to end writes the rows of all. Each file is replaced as a whole.
    ///
    /// # Errors
    /// When the folder cannot be written, and when the wait for another run was ended.
    pub fn finish(
        &mut self,
        experiment: &Experiment,
        plan: &Plan,
        provenance: &serde_json::Value,
        waiting: WhileWaiting<'_>,
    ) -> Result<Vec<Row>, ResultsError> {
        let (folder, done) = (&self.folder, &mut self.done);
        self.journal.alone(Turn::Finish, waiting, |journal| {
            journal.refresh(done)?;
            let rows = plan.rows(done);
            write_files(folder, experiment, plan, &rows, provenance)?;
            Ok(rows)
        })
    }
}

/// What is made from the journal.
fn write_files(
    folder: &Path,
    experiment: &Experiment,
    plan: &Plan,
    rows: &[Row],
    provenance: &serde_json::Value,
) -> Result<(), ResultsError> {
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
    let files = [(RESOLVED, resolved), (ROWS, lines), (TABLE, to_csv(rows)), (PROVENANCE, format!("{provenance:#}\n"))];
    for (name, text) in files {
        // The folder holds results, so files with these names in it are results.
        output::write(&folder.join(name), text.as_bytes(), &Wish::new(Replace::Always))?;
    }
    Ok(())
}

/// What a claim is on.
fn name_of(point: &Point, claim: Claim) -> &str {
    match claim {
        Claim::Point => &point.key,
        Claim::RealTime => "real time",
    }
}

/// Whether a folder says how long points took.
pub fn has_costs(folder: &Path) -> bool {
    folder.join(SECONDS).is_file()
}

/// Reads how long the points of a run took, from its folder of results. The run may be one of another program, or with
/// `--quick`. Incomplete lines are ignored.
///
/// # Errors
/// When there is no such file, or one of something else.
pub fn read_costs(folder: &Path) -> Result<Costs, ResultsError> {
    let path = folder.join(SECONDS);
    let text = fs::read(&path).map_err(failed("read", &path))?;
    let mut costs = Costs::default();
    for (number, line) in whole_lines(&text).split(|&byte| byte == b'\n').enumerate().filter(|(_, l)| !l.is_empty()) {
        let wrong = |problem: String| ResultsError::Content {
            path: format!("{}, line {}", path.display(), number + 1),
            problem: format!("this is no time of a point ({problem})"),
        };
        let spent: Spent = match serde_json::from_slice(line) {
            Err(error) if error.is_eof() => continue,
            spent => spent.map_err(|error| wrong(error.to_string()))?,
        };
        costs.add(spent).map_err(wrong)?;
    }
    Ok(costs)
}

/// All lines that have an end.
fn whole_lines(text: &[u8]) -> &[u8] {
    &text[..text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1)]
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
                "a run would replace it, and without {POINTS} beside it this is not a folder of results; name \
                              another one"
            ),
        }),
        None => Ok(()),
    }
}

/// The files of a folder of results, existing or not.
pub fn files_of(folder: &Path) -> Vec<PathBuf> {
    [POINTS, ROWS, TABLE, RESOLVED, PROVENANCE, SECONDS].map(|name| folder.join(name)).into()
}

/// What a page says before its figures, where it answers a question.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Answer {
    pub cards: Vec<Card>,
    pub header: Vec<String>,
    pub rows: Vec<AnswerRow>,
    /// What has to be known to judge it.
    pub notes: Vec<String>,
}

/// A question, its answer in a few words, and what there is to say about it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Card {
    pub label: String,
    pub value: String,
    pub note: String,
    pub tone: Tone,
}

impl Card {
    pub fn new(label: &str, value: &str, note: String) -> Card {
        Card { label: label.to_owned(), value: value.to_owned(), note, tone: Tone::Plain }
    }

    #[must_use]
    pub fn tone(self, tone: Tone) -> Card {
        Card { tone, ..self }
    }

    /// As a line of text.
    pub fn sentence(&self) -> String {
        format!("{}: {}. {}", self.label, self.value, self.note)
    }
}

/// Whether something is as wanted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tone {
    #[default]
    Plain,
    Good,
    Bad,
}

/// A row of the table: its name, what is written small below it, and its cells.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AnswerRow {
    pub name: String,
    pub below: String,
    pub cells: Vec<String>,
    /// Of the last cell.
    pub tone: Tone,
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
    /// What the page says before its figures; experiments have their claims instead.
    pub answer: Option<Answer>,
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
                    let problem = "there is no such file: the run has not ended, or this is not a folder of \
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
        if !is_file_name(&resolved.name) {
            let problem = "the experiment's name is not that of a folder: it becomes part of the names of files";
            return Err(wrong(&path, problem.to_owned()));
        }
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
        Ok(Stored { name, description, published, rows, provenance, text: description_text, answer: None })
    }
}

/// Whether the folder of an experiment can have this name.
fn is_file_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
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
