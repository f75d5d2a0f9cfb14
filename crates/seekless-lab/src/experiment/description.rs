//! The contents of `experiment.toml`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::ExperimentError;
use super::claim::Claim;
use super::kinds::{Clock, WorkloadKind, kinds};
use super::omitted::Omitted;
use super::published::{self, Published};
use super::rows::{CONTESTANT, Columns, Selection, check_dimension, check_selection, check_values};
use super::value::{Unit, Value, uses};

/// Name of the file in an experiment's folder.
pub(super) const FILE: &str = "experiment.toml";

/// Most seeds of a place: quartiles of more say nothing new.
const SEEDS_MAX: u32 = 100;

/// An experiment, as described in its folder.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    pub title: String,
    /// Publication of the repeated experiment: `[st05 Figure 6]`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub paper: String,
    /// What it does, how that differs from the publication, and why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// Seed of every random choice of a point.
    #[serde(default = "one")]
    pub seed: u64,
    /// How many seeds, from `seed` on: each place is measured with each of them, the medians count, and quartiles are shown.
    #[serde(default = "single", skip_serializing_if = "is_one")]
    pub seeds: u32,
    /// True of what [`Experiment::quick`] has made: in stored results, never in an experiment's own file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_quick: bool,
    #[serde(default)]
    pub clock: Clock,
    /// Processor profile in virtual time; see `HostProfile`.
    #[serde(default = "no_profile")]
    pub profile: String,
    /// A stack below the layers of every contestant, in place of the one in its line; directories are not affected.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub over: String,
    /// `kind`, and the parameters of that kind of workload.
    pub workload: toml::Table,
    #[serde(default)]
    pub variables: BTreeMap<String, Variable>,
    #[serde(rename = "contestant")]
    pub contestants: Vec<Contestant>,
    #[serde(default, rename = "figure")]
    pub figures: Vec<Figure>,
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
    /// Changes of the workload for a quick look.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub quick: toml::Table,
}

fn is_one(number: &u32) -> bool {
    *number == 1
}

fn single() -> u32 {
    1
}

fn one() -> u64 {
    1
}

fn no_profile() -> String {
    "none".to_owned()
}

/// A variable with several values.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    /// Its name for readers; the name itself if empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Numbers have it. In a stack line, `{name}` is a value with its unit.
    #[serde(default)]
    pub unit: Unit,
    pub values: Vec<Value>,
    /// Fewer of them, for a quick look.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quick: Vec<Value>,
}

/// One of the compared contestants.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contestant {
    pub name: String,
    /// A stack, or a directory that begins with `/` or `./`, with variables in braces. Empty where the workload needs
    /// no storage.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub on: String,
    /// Differences from the others' workload.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub workload: toml::Table,
    /// Differences from that with `--quick`.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub quick: toml::Table,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<Clock>,
}

/// A diagram of the rows.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Identifier, used in file names and in links of a page.
    pub id: String,
    pub title: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub caption: String,
    #[serde(default)]
    pub chart: Chart,
    /// The dimension along the axis.
    pub x: String,
    #[serde(default)]
    pub x_axis: Axis,
    /// The metric.
    pub y: String,
    #[serde(default)]
    pub y_axis: Axis,
    #[serde(default, rename = "where", skip_serializing_if = "Selection::is_empty")]
    pub only: Selection,
    /// Each value is divided by that of the row in which these conditions hold instead.
    #[serde(default, skip_serializing_if = "Selection::is_empty")]
    pub relative_to: Selection,
    /// Dimension shown by colours; by default the contestants.
    #[serde(default = "contestants")]
    pub colour: String,
    /// The dimension shown by dashes and symbols.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub dash: String,
    /// One diagram for each value of this dimension, side by side.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub panels: String,
}

fn contestants() -> String {
    CONTESTANT.to_owned()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Chart {
    #[default]
    Line,
    Bar,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Initial setting; a reader can change it.
    #[serde(default)]
    pub log: bool,
    /// Without it, a linear axis begins at zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<f64>,
}

/// A folder that has been read and checked.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Name of the folder.
    pub name: String,
    /// Base of relative paths in the description.
    pub folder: PathBuf,
    pub description: Description,
    pub published: Vec<Published>,
    /// What it leaves out, if it is a quick look.
    pub omitted: Omitted,
}

impl Experiment {
    /// Reads an experiment's folder.
    ///
    /// # Errors
    /// When a file cannot be read or is invalid; with its path and line.
    pub fn read(folder: &Path) -> Result<Experiment, ExperimentError> {
        let path = folder.join(FILE);
        let text = std::fs::read_to_string(&path).map_err(|cause| {
            let path = path.display().to_string();
            match folder.is_dir() && cause.kind() == std::io::ErrorKind::NotFound {
                true => {
                    let problem = "there is no such file, so this folder is no experiment".to_owned();
                    ExperimentError::Description { path, problem }
                }
                false => ExperimentError::Io { path, cause },
            }
        })?;
        let wrong = |problem: String| ExperimentError::Description { path: path.display().to_string(), problem };
        let description: Description = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        description.check_new().and_then(|()| description.check()).map_err(wrong)?;
        let columns = description.columns().map_err(wrong)?;
        let published_path = folder.join(published::FILE);
        let published = published::read(&published_path, &columns)?;
        description.check_published(&published).map_err(|problem| {
            let path = published_path.display().to_string();
            ExperimentError::Description { path, problem }
        })?;
        // `.` and `..` are not names.
        let whole = std::fs::canonicalize(folder);
        let whole = whole.map_err(|cause| ExperimentError::Io { path: folder.display().to_string(), cause })?;
        let name = whole.file_name().map_or_else(|| "experiment".into(), |name| name.to_string_lossy().into_owned());
        Ok(Experiment { name, folder: folder.to_owned(), description, published, omitted: Omitted::default() })
    }

    /// The same on other storage: see [`Description::over`].
    pub fn over(mut self, lower: &str) -> Experiment {
        self.description.over = lower.to_owned();
        self.description.about += &format!("\nHere the layers of all stand on `{lower}`, whatever else is said above.");
        self
    }

    /// The same with fewer values and a smaller workload: for a test of the setup, not for conclusions. Pages and pictures of
    /// it say so.
    pub fn quick(mut self) -> Experiment {
        let whole = &self.description;
        let is_smaller =
            !whole.quick.is_empty() || whole.contestants.iter().any(|contestant| !contestant.quick.is_empty());
        self.omitted = Omitted::new(is_smaller);
        for (name, variable) in &whole.variables {
            self.omitted.add(name, &variable.values, &variable.quick);
        }
        for variable in self.description.variables.values_mut().filter(|variable| !variable.quick.is_empty()) {
            variable.values = std::mem::take(&mut variable.quick);
        }
        let quick = std::mem::take(&mut self.description.quick);
        self.description.workload.extend(quick);
        (self.description.is_quick, self.description.seeds) = (true, 1);
        let titles = self.description.figures.iter_mut().map(|figure| &mut figure.title);
        for title in titles.chain([&mut self.description.title]) {
            title.push_str(" (quick)");
        }
        for contestant in &mut self.description.contestants {
            let quick = std::mem::take(&mut contestant.quick);
            contestant.workload.extend(quick);
        }
        self
    }
}

impl Description {
    /// The kind of its workload.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn kind(&self) -> Result<WorkloadKind, String> {
        let names = || kinds().map(|kind| kind.name).collect::<Vec<_>>().join(", ");
        match self.workload.get("kind") {
            Some(toml::Value::String(name)) => kinds()
                .find(|kind| kind.name == name)
                .ok_or_else(|| format!("there is no workload `{name}`; there are: {}", names())),
            _ => Err(format!("[workload] must say its kind, one of: {}", names())),
        }
    }

    /// All dimensions that distinguish rows.
    ///
    /// # Errors
    /// As [`Description::kind`].
    pub fn dims(&self) -> Result<Vec<String>, String> {
        let own = self.kind()?.dims.iter().map(|name| (*name).to_owned());
        Ok([CONTESTANT.to_owned()].into_iter().chain(self.variables.keys().cloned()).chain(own).collect())
    }

    /// Name of a dimension for readers, with its unit.
    pub fn label(&self, dim: &str) -> String {
        let Some(variable) = self.variables.get(dim) else { return dim.to_owned() };
        let label = if variable.label.is_empty() { dim } else { &variable.label };
        match variable.unit.name() {
            "" => label.to_owned(),
            unit => format!("{label} ({unit})"),
        }
    }

    /// Dimensions and metrics that claims and published points may use.
    pub(super) fn columns(&self) -> Result<Columns, String> {
        let metrics = self.kind()?.metrics.iter().map(|(name, _)| *name);
        Ok(Columns { dims: self.dims()?, metrics: metrics.collect() })
    }

    /// Checks what results of earlier builds need not hold: no variable has the name of a metric.
    fn check_new(&self) -> Result<(), String> {
        let metrics = self.columns()?.metrics;
        match self.variables.keys().find(|name| metrics.contains(&name.as_str())) {
            Some(name) => Err(format!("[variables.{name}]: this name is taken by a metric of this kind of experiment")),
            None => self.check_selected_values().and_then(|()| self.check_new_values()),
        }
    }

    /// Every variable makes a difference, and every claim can hold.
    fn check_new_values(&self) -> Result<(), String> {
        if let Some(name) = self.variables.keys().find(|name| !self.is_used(name)) {
            return Err(format!(
                "[variables.{name}]: no contestant uses it, so its values would all be the same points; write {{{name}}} where its \
                 value belongs: in [workload], `on` or `profile`"
            ));
        }
        self.claims.iter().try_for_each(|claim| {
            claim.check_bounds().map_err(|problem| format!("claim \"{}\": {problem}", claim.text))
        })
    }

    /// Whether the variable is in what any contestant measures.
    fn is_used(&self, name: &str) -> bool {
        self.contestants.iter().any(|contestant| {
            let mut workload = self.workload.clone();
            workload.extend(contestant.workload.clone());
            let profile = contestant.profile.as_ref().unwrap_or(&self.profile);
            let texts = [&contestant.on, &self.over, profile].map(|text| toml::Value::String(text.clone()));
            texts.iter().chain([&toml::Value::Table(workload)]).any(|value| uses(value, name))
        })
    }

    /// A published point of a contestant that there is not would stand beside nothing.
    fn check_published(&self, published: &[Published]) -> Result<(), String> {
        for name in published.iter().filter_map(|published| published.dims.get(CONTESTANT)) {
            if !self.contestants.iter().any(|contestant| name.is_same(&Value::Text(contestant.name.clone()))) {
                let names: Vec<&str> = self.contestants.iter().map(|contestant| &*contestant.name).collect();
                return Err(format!("there is no contestant `{name}`; there are: {}", names.join(", ")));
            }
        }
        Ok(())
    }

    /// Claims and figures name contestants and values that there are; others would select no row, and say nothing.
    fn check_selected_values(&self) -> Result<(), String> {
        let contestants = self.contestants.iter().map(|contestant| Value::Text(contestant.name.clone())).collect();
        let mut known = vec![(CONTESTANT, contestants)];
        for (name, variable) in &self.variables {
            if let Some(twice) = (1..variable.values.len())
                .map(|index| (&variable.values[index], &variable.values[..index]))
                .find_map(|(value, before)| before.iter().any(|other| other.is_same(value)).then_some(value))
            {
                return Err(format!("[variables.{name}]: `{twice}` occurs twice"));
            }
            known.push((name, variable.values.clone()));
        }
        let claims = self
            .claims
            .iter()
            .flat_map(|claim| claim.selections().map(|selection| (format!("claim \"{}\"", claim.text), selection)));
        let figures = self.figures.iter().flat_map(|figure| {
            [&figure.only, &figure.relative_to].map(|selection| (format!("figure `{}`", figure.id), selection))
        });
        for (of, selection) in claims.chain(figures) {
            for (name, values) in &known {
                check_values(selection, name, values).map_err(|problem| format!("{of}: {problem}"))?;
            }
        }
        Ok(())
    }

    /// Checks that every reference names something that exists.
    pub(super) fn check(&self) -> Result<(), String> {
        let columns = self.columns()?;
        let dims = &columns.dims;
        if !(1..=SEEDS_MAX).contains(&self.seeds) {
            return Err(format!("seeds: from 1 to {SEEDS_MAX}, not {}", self.seeds));
        }
        let own = self.kind()?.dims;
        for (name, variable) in &self.variables {
            let at = |problem: &str| format!("[variables.{name}]: {problem}");
            if variable.values.is_empty() {
                return Err(at("there must be at least one value"));
            }
            if name == CONTESTANT || own.contains(&name.as_str()) {
                return Err(at("this name is taken by a dimension of every row"));
            }
            let mut all = variable.values.iter().chain(&variable.quick);
            if variable.unit != Unit::None
                && let Some(text) = all.find(|value| value.number().is_none())
            {
                return Err(at(&format!("`{text}` is not a number, and has a unit")));
            }
            if let Some(strange) = variable.quick.iter().find(|quick| !variable.values.iter().any(|v| v.is_same(quick)))
            {
                return Err(at(&format!("{strange} is among the quick values only")));
            }
        }
        if self.contestants.is_empty() {
            return Err("there must be at least one [[contestant]]".into());
        }
        for (index, contestant) in self.contestants.iter().enumerate() {
            if self.contestants[..index].iter().any(|other| other.name == contestant.name) {
                return Err(format!("two contestants are called `{}`", contestant.name));
            }
        }
        for (index, figure) in self.figures.iter().enumerate() {
            let at = |problem: String| format!("figure `{}`: {problem}", figure.id);
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            if figure.id.is_empty() || !figure.id.chars().all(is_name) {
                return Err(at("an id is made of letters, digits, - and _".into()));
            }
            if self.figures[..index].iter().any(|other| other.id == figure.id) {
                return Err(at("two figures have this id".into()));
            }
            let optional = [&figure.dash, &figure.panels].into_iter().filter(|name| !name.is_empty());
            for name in [&figure.x, &figure.colour].into_iter().chain(optional) {
                check_dimension(name, dims).map_err(at)?;
            }
            columns.check_metric(&figure.y).map_err(at)?;
            check_selection(&figure.only, dims).map_err(at)?;
            check_selection(&figure.relative_to, dims).map_err(at)?;
        }
        for claim in &self.claims {
            claim.check(&columns).map_err(|problem| format!("claim \"{}\": {problem}", claim.text))?;
        }
        Ok(())
    }
}
