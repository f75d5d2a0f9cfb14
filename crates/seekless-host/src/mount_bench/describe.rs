//! A run of the bench as an experiment of the lab, with one figure for each phase.

use std::collections::BTreeMap;
use std::path::PathBuf;

use seekless::units::human_bytes;
use seekless_lab::experiment::{
    Axis, Chart, Clock, Condition, Contestant as Named, Description, Experiment, Figure, Omitted, Selection, Unit,
    Value, Variable,
};
use toml::Table;

use super::contestants::Contestant;
use super::phases::{Phase, suites};

/// How much of everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    pub files: u64,
    /// Bytes.
    pub large: u64,
    pub syncs: u64,
    /// Bytes.
    pub image: u64,
}

impl Sizes {
    /// Some twenty minutes for all contestants, both placements and three rounds, on two cores.
    pub const DEFAULT: Sizes = Sizes { files: 2000, large: 64 << 20, syncs: 200, image: 1 << 30 };
    /// XFS is at least 300 MiB.
    pub const QUICK: Sizes = Sizes { files: 50, large: 4 << 20, syncs: 10, image: 320 << 20 };

    /// Bytes of an image that long phases need beyond the default. There are 500 names for each of `files`, and some file
    /// systems have as many inodes as their size gives: LFS one for 4 KiB of the volume.
    pub fn room_for(phases: &[&Phase], files: u64) -> u64 {
        const EACH: u64 = 500 * (6 << 10);
        if phases.iter().any(|phase| phase.is_long) { files.saturating_mul(EACH) } else { 0 }
    }
}

/// What is measured, and on what.
#[derive(Clone, Debug)]
pub struct Setting {
    pub contestants: Vec<&'static Contestant>,
    /// Those that are not possible here, each with the reason.
    pub left_out: Vec<String>,
    pub phases: Vec<&'static Phase>,
    pub placements: Vec<&'static str>,
    pub sizes: Sizes,
    pub sparse: bool,
    pub loop_direct: bool,
    /// The bench has a file system of its own below everything.
    pub own_device: bool,
    /// The directory whose files are unpacked; empty for files that the bench makes.
    pub tree: String,
    /// A checksum of what is in it.
    pub tree_state: String,
    /// What stores the scratch directory.
    pub below: String,
    pub quick: bool,
}

/// The experiment that measures it.
pub fn experiment(setting: &Setting) -> Experiment {
    let quick = if setting.quick { " (quick)" } else { "" };
    let description = Description {
        title: format!("Mounts{quick}"),
        paper: String::new(),
        about: about(setting),
        seed: 1,
        seeds: 1,
        is_quick: setting.quick,
        clock: Clock::Real,
        profile: "none".into(),
        over: String::new(),
        workload: workload(setting),
        variables: variables(setting),
        contestants: setting.contestants.iter().map(|contestant| named(contestant)).collect(),
        figures: setting.phases.iter().map(|phase| figure(phase)).collect(),
        claims: Vec::new(),
        quick: Table::new(),
    };
    let (name, folder) = ("bench-mount".into(), PathBuf::from("."));
    Experiment { name, folder, description, published: Vec::new(), omitted: Omitted::default() }
}

fn about(setting: &Setting) -> String {
    let Setting { sizes, .. } = setting;
    let state = if setting.sparse { "a hole at first" } else { "written from beginning to end before" };
    let direct = if setting.loop_direct { "with" } else { "without" };
    let own = if setting.own_device { "an ext4 of the bench's own, on a loop device on " } else { "" };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut about = format!(
        "{cores} processors. Images of {} on {own}{}, {state}; loop devices {direct} direct I/O. {} small files, large files of {}, \
         {} durable operations. Layers, bindfs and gocryptfs are over ext4 on a loop device. `lfs`, `vlfs`, `ffs-softdep` and `fuse2fs` \
         on the image have one file system of the host below them, and so have file systems on a loop device.",
        human_bytes(sizes.image),
        setting.below,
        sizes.files,
        human_bytes(sizes.large),
        sizes.syncs,
    );
    if !setting.tree.is_empty() {
        about += &format!(" The tree that is unpacked is {}.", setting.tree);
    }
    if !setting.left_out.is_empty() {
        about += &format!(" Left out: {}.", setting.left_out.join(", "));
    }
    about
}

fn workload(setting: &Setting) -> Table {
    let Sizes { files, large, syncs, image } = setting.sizes;
    let text = |text: &str| toml::Value::String(text.to_owned());
    let number = |number: u64| toml::Value::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    let bytes = |bytes: u64| toml::Value::String(format!("{bytes}B"));
    let phases = setting.phases.iter().map(|phase| text(phase.name)).collect();
    [
        ("kind", text("mounts")),
        ("suite", text("{suite}")),
        ("placement", text("{placement}")),
        ("phases", toml::Value::Array(phases)),
        ("files", number(files)),
        ("large", bytes(large)),
        ("syncs", number(syncs)),
        ("image", bytes(image)),
        ("image_state", text(if setting.sparse { "sparse" } else { "written" })),
        ("loop_direct", toml::Value::Boolean(setting.loop_direct)),
        ("own_device", toml::Value::Boolean(setting.own_device)),
        ("tree", text(&setting.tree)),
        ("tree_state", text(&setting.tree_state)),
        ("below", text(&setting.below)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into_iter()
    .collect()
}

fn variables(setting: &Setting) -> BTreeMap<String, Variable> {
    let variable = |values: Vec<&str>| Variable {
        label: String::new(),
        unit: Unit::None,
        values: values.into_iter().map(|value| Value::Text(value.to_owned())).collect(),
        quick: Vec::new(),
    };
    let is_used = |suite: &&str| setting.phases.iter().any(|phase| phase.suite == *suite);
    let used = suites().into_iter().filter(is_used).collect();
    [("placement", variable(setting.placements.clone())), ("suite", variable(used))]
        .map(|(name, variable)| (name.to_owned(), variable))
        .into()
}

fn named(contestant: &Contestant) -> Named {
    let mount = toml::Value::String(contestant.name.to_owned());
    Named {
        name: contestant.name.to_owned(),
        on: String::new(),
        workload: [("mount".to_owned(), mount)].into_iter().collect(),
        quick: Table::new(),
        profile: None,
        clock: None,
    }
}

fn figure(phase: &Phase) -> Figure {
    let only = [("phase".to_owned(), Condition::One(Value::Text(phase.name.to_owned())))].into();
    let cold = if phase.is_cold { ", cold" } else { "" };
    Figure {
        id: phase.name.to_owned(),
        title: format!("{}{cold}", phase.name),
        caption: format!(
            "{}. Time for one {}; lower is better. The line in a bar is from the lower to the upper quartile of the rounds.",
            capitalised(phase.help),
            phase.unit
        ),
        chart: Chart::Bar,
        x: "contestant".into(),
        x_axis: Axis::default(),
        y: "op_us".into(),
        y_axis: Axis { label: format!("us for one {}", phase.unit), log: true, from: None },
        only: Selection(only),
        relative_to: Selection::default(),
        colour: "contestant".into(),
        dash: String::new(),
        panels: "placement".into(),
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
