//! The points of an experiment.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::Hasher;
use std::num::NonZeroU64;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use seekless::rt::HostProfile;
use serde::Serialize;
use siphasher::sip128::{Hasher128, SipHasher13};

use super::description::{Contestant, Experiment};
use super::journal::Points;
use super::kinds::Clock;
use super::kinds::{Context, Measure, Outside, RunTarget, Workload, WorkloadKind, digest, with_drives};
use super::rounds::{self, Round};
use super::rows::{CONTESTANT, Row};
use super::value::{Value, Values, fill, fill_all, unit_hint};
use super::{Description, ExperimentError};

/// Something to measure, with all variables filled in.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Its unique key: see E2.
    pub key: String,
    /// Its storage.
    pub on: String,
    pub workload: toml::Table,
    pub profile: String,
    pub clock: Clock,
    pub seed: u64,
    /// The files that it reads, as they were when their contents went into the key.
    #[serde(skip)]
    inputs: Vec<Input>,
}

/// A file as it was at some moment: one that is written to, or replaced, is another.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Input {
    path: PathBuf,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Input {
    fn of(path: PathBuf) -> std::io::Result<Input> {
        let metadata = path.metadata()?;
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        Ok(Input { path, inode: metadata.ino(), bytes: metadata.len(), changed })
    }

    /// # Errors
    /// When it is not what it was.
    fn check(&self) -> Result<(), String> {
        match Input::of(self.path.clone()) {
            Ok(now) if now == *self => Ok(()),
            _ => {
                let path = self.path.display();
                Err(format!("{path} was written to after this run began; what it measured is not kept, run it again"))
            }
        }
    }
}

/// A place in the experiment, and the point that is measured for it. Places that differ only in variables that a
/// contestant does not use share a point.
#[derive(Clone, Debug)]
pub struct PlanCell {
    pub dims: BTreeMap<String, Value>,
    /// Indices into the plan's points: one for each seed.
    pub points: Vec<usize>,
}

/// Everything that an experiment measures.
#[derive(Clone, Debug)]
pub struct Plan {
    pub points: Vec<Point>,
    pub places: Vec<PlanCell>,
    /// The first place of each point, by its index.
    first_places: Vec<usize>,
    program: String,
}

impl Plan {
    /// Makes the plan, and checks whether all of it is possible. `program` identifies the measuring program: results of
    /// another one are not used.
    ///
    /// # Errors
    /// What is wrong with a point, and which one.
    pub fn new(experiment: &Experiment, program: &str) -> Result<Plan, ExperimentError> {
        let description = &experiment.description;
        let wrong = |problem: String| ExperimentError::Point { point: experiment.name.clone(), problem };
        let kind = description.kind().map_err(wrong)?;
        let mut digests = BTreeMap::new();
        let mut plan =
            Plan { points: Vec::new(), places: Vec::new(), first_places: Vec::new(), program: program.to_owned() };
        let mut known = BTreeMap::new();
        for values in combinations(description).map_err(wrong)? {
            for contestant in &description.contestants {
                let mut dims: BTreeMap<String, Value> =
                    values.iter().map(|(name, (value, _))| (name.clone(), value.clone())).collect();
                dims.insert(CONTESTANT.to_owned(), Value::Text(contestant.name.clone()));
                let failed = |problem: String| ExperimentError::Point { point: in_words(&dims), problem };
                let point = fill_point(description, contestant, &values).map_err(failed)?;
                let explained = |problem: String| failed(format!("{problem}{}", unit_hint(&problem, &values)));
                let parsed = Parsed::new(kind, &point, &experiment.folder).map_err(explained)?;
                parsed.workload.check(&parsed.on).map_err(failed)?;
                let (mut inputs, mut files) = (String::new(), Vec::new());
                for path in parsed.workload.inputs().into_iter().chain(parsed.on.inputs()) {
                    let (digest, file) = match digests.get(&path) {
                        Some(known) => known,
                        None => {
                            let whole = super::kinds::existing(&experiment.folder, &path).map_err(failed)?;
                            let name = whole.display().to_string();
                            let file = Input::of(whole.clone());
                            let file = file.map_err(|cause| ExperimentError::Io { path: name, cause })?;
                            &*digests.entry(path.clone()).or_insert((digest(&whole)?, file))
                        }
                    };
                    files.push(file.clone());
                    let _ = write!(inputs, "\n{} {digest:032x}", path.display()); // A String takes everything.
                }
                let mut points = Vec::new();
                for number in 0..u64::from(description.seeds) {
                    let seed = point.seed.wrapping_add(number);
                    let mut point = Point { seed, inputs: files.clone(), ..point.clone() };
                    point.key = hash(&format!("{program}\n{}{inputs}", serde_json::json!(point)));
                    let next = plan.points.len();
                    let index = *known.entry(point.key.clone()).or_insert(next);
                    if index == next {
                        plan.points.push(point);
                        plan.first_places.push(plan.places.len());
                    }
                    points.push(index);
                }
                plan.places.push(PlanCell { dims, points });
            }
        }
        Ok(plan)
    }

    /// The rows of the places whose points have all been measured, in the order of the plan.
    pub(super) fn rows(&self, measured: &Points) -> Vec<Row> {
        let of_place = |place: &PlanCell| {
            let rounds = place.points.iter().map(|&point| measured.get(&self.points[point].key));
            let measured = rounds.collect::<Option<Vec<_>>>()?;
            let rounds: Vec<Round> = measured.into_iter().flat_map(|measured| &measured.rounds).cloned().collect();
            let measures = match place.points.len() {
                1 => rounds::medians(&rounds),
                _ => rounds::medians(&rounds::with_quartiles(&rounds)),
            };
            let row = |measure: &Measure| {
                let dims = place.dims.clone().into_iter().chain(measure.dims.clone());
                Row { dims: dims.collect(), metrics: measure.metrics.clone() }
            };
            Some(measures.iter().map(row).collect::<Vec<_>>())
        };
        self.places.iter().filter_map(of_place).flatten().collect()
    }

    /// The beginning of what identifies the program: enough to tell builds apart.
    pub(super) fn program_in_short(&self) -> String {
        self.program.chars().take(12).collect()
    }

    /// The first place of a point, in words.
    pub fn name_of(&self, point: usize) -> String {
        self.place_of(point).map_or_else(String::new, |place| in_words(&place.dims))
    }

    /// The first place of a point.
    pub(super) fn place_of(&self, point: usize) -> Option<&PlanCell> {
        self.places.get(*self.first_places.get(point)?)
    }
}

impl Point {
    /// True when time is virtual, so that other points can run at the same time.
    ///
    /// # Errors
    /// When the point is invalid, which making its plan would have reported.
    pub fn is_simulated(&self, experiment: &Experiment, outside: &dyn Outside) -> Result<bool, String> {
        let parsed = Parsed::new(experiment.description.kind()?, self, &experiment.folder)?;
        Ok(parsed.workload.is_simulated(&parsed.on, &self.context(experiment, outside)?))
    }

    /// Measures it. A file that it reads must not change while it runs: its key is of the contents that it had.
    ///
    /// # Errors
    /// Why there is no result, in words.
    pub fn measure(&self, experiment: &Experiment, outside: &dyn Outside) -> Result<Vec<Measure>, String> {
        // Before as well: a point can take an hour.
        self.inputs.iter().try_for_each(Input::check)?;
        let parsed = Parsed::new(experiment.description.kind()?, self, &experiment.folder)?;
        let measured = parsed.workload.run(&parsed.on, &self.context(experiment, outside)?)?;
        self.inputs.iter().try_for_each(Input::check)?;
        Ok(measured)
    }

    fn context<'a>(&self, experiment: &'a Experiment, outside: &'a dyn Outside) -> Result<Context<'a>, String> {
        let profile = profile(&self.profile)?;
        Ok(Context { folder: &experiment.folder, seed: self.seed, profile, clock: self.clock, outside })
    }
}

/// A parsed point.
struct Parsed {
    on: RunTarget,
    workload: Box<dyn Workload>,
}

impl Parsed {
    fn new(kind: WorkloadKind, point: &Point, folder: &Path) -> Result<Parsed, String> {
        profile(&point.profile)?;
        let on = match RunTarget::read(&point.on)? {
            RunTarget::Stack(stack) => RunTarget::Stack(Box::new(with_drives(*stack, folder)?)),
            other => other,
        };
        Ok(Parsed { on, workload: kind.read(&point.workload)? })
    }
}

/// Most times that a processor can be faster than that of its profile.
const TIMES_FASTER_MAX: u64 = 1_000_000;

/// A profile by its name, or `NAME*TIMES` for a processor that is so many times as fast.
fn profile(text: &str) -> Result<HostProfile, String> {
    let (name, times) = match text.split_once('*') {
        None => (text, NonZeroU64::MIN),
        Some((name, times)) => {
            let times = times.parse().ok().filter(|times: &NonZeroU64| times.get() <= TIMES_FASTER_MAX);
            (name, times.ok_or_else(|| format!("`{text}`: after * comes how many times as fast, 1 to a million"))?)
        }
    };
    let profile = HostProfile::named(name).ok_or_else(|| {
        let names: Vec<&str> = HostProfile::ALL.iter().map(|profile| profile.name).collect();
        format!("there is no processor profile `{name}`; there are: {}", names.join(", "))
    })?;
    Ok(profile.faster(times))
}

fn fill_point(description: &Description, contestant: &Contestant, values: &Values) -> Result<Point, String> {
    let mut workload = description.workload.clone();
    workload.extend(contestant.workload.clone());
    let toml::Value::Table(workload) = fill_all(&toml::Value::Table(workload), values)? else {
        return Err("[workload] is no table".into());
    };
    Ok(Point {
        key: String::new(),
        on: over(fill(&contestant.on, values)?, &fill(&description.over, values)?)?,
        workload,
        profile: fill(contestant.profile.as_ref().unwrap_or(&description.profile), values)?,
        clock: contestant.clock.unwrap_or(description.clock),
        seed: description.seed,
        inputs: Vec::new(),
    })
}

/// The storage of a contestant with its layers on `lower`, if that is given.
fn over(on: String, lower: &str) -> Result<String, String> {
    match RunTarget::read(&on)? {
        RunTarget::Stack(stack) if !lower.is_empty() => {
            Ok(stack.over(lower).map_err(|error| error.to_string())?.line().to_owned())
        }
        _ => Ok(on),
    }
}

/// Limit of the places of a plan: months of measuring, and few enough to be listed in a moment.
pub(super) const PLACES_MAX: usize = 20_000;

/// Every combination of the variables' values. The last variable changes fastest.
///
/// # Errors
/// When there are too many.
pub(super) fn combinations(description: &Description) -> Result<Vec<Values>, String> {
    let mut counts = description.variables.values().map(|variable| variable.values.len());
    let places = counts.try_fold(description.contestants.len(), |places, count| places.checked_mul(count));
    if places.is_none_or(|places| places > PLACES_MAX) {
        return Err(format!("all values of the variables together make more than {PLACES_MAX} places to measure"));
    }
    let mut all = vec![Values::new()];
    for (name, variable) in &description.variables {
        let with = |values: &Values| {
            let values = values.clone();
            variable.values.iter().map(move |value| {
                let mut values = values.clone();
                values.insert(name.clone(), (value.clone(), variable.unit));
                values
            })
        };
        all = all.iter().flat_map(with).collect();
    }
    Ok(all)
}

/// 128 bits in hexadecimal digits.
fn hash(text: &str) -> String {
    let mut hasher = SipHasher13::new();
    hasher.write(text.as_bytes());
    format!("{:032x}", hasher.finish128().as_u128())
}

fn in_words(dims: &BTreeMap<String, Value>) -> String {
    let of = |(name, value): (&String, &Value)| match name == CONTESTANT {
        true => value.to_string(),
        false => format!("{name} {value}"),
    };
    dims.iter().map(of).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use seekless::rt::Work;

    use super::profile;

    #[test]
    fn processors_can_be_faster() {
        let cost = |text: &str| profile(text).expect("a profile").cost(Work::NamespaceCall).0;
        assert_eq!(cost("sun4-260*4") * 4, cost("sun4-260"));
        assert_eq!(profile("none*3").expect("a profile"), profile("none").expect("a profile"));
        for wrong in ["sun4-260*", "sun4-260*0", "sun4-260*-1", "sun4-260*1000001", "*2", "sun5*2"] {
            profile(wrong).expect_err(wrong);
        }
    }
}
