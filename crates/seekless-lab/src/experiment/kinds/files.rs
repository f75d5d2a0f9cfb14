//! Programs that use files: every [`crate::workload`], by its name on the command line.

use seekless::stack::Stack;
use serde::Deserialize;

use super::{Context, Kind, Measure, On, Workload, parse};
use crate::LabError;
use crate::experiment::Clock;
use crate::run::{Run, can_be_simulated, simulate};
use crate::workload::aged::Aged;
use crate::workload::append::Append;
use crate::workload::attributes::Attributes;
use crate::workload::bonnie::Bonnie;
use crate::workload::build::Build;
use crate::workload::largefile::LargeFile;
use crate::workload::postmark::PostMark;
use crate::workload::sizes::Sizes;
use crate::workload::smallfile::SmallFile;
use crate::workload::tool::Tool;
use crate::workload::tpcb::TpcB;
use crate::workload::{Measured, Workload as Files};

pub(super) const SMALLFILE: Kind = kind(
    "smallfile",
    "small files are created, read in that order and deleted [ro92 Fig. 8] [se95 §3]",
    &["phase"],
    |table| boxed(table, |spec, seed| FileWorkload::SmallFile(SmallFile { seed, ..spec })),
);

pub(super) const LARGEFILE: Kind = kind(
    "largefile",
    "a file is written and read, in order and at random [ro92 Fig. 9] [se95 §3]",
    &["phase"],
    |table| boxed(table, |spec, seed| FileWorkload::LargeFile(LargeFile { seed, ..spec })),
);

pub(super) const SIZES: Kind = kind(
    "sizes",
    "the same data in files of each size is created, read, overwritten and deleted [se95 §3]",
    &["phase", "file_bytes"],
    |table| boxed(table, |spec, seed| FileWorkload::Sizes(Sizes { seed, ..spec })),
);

pub(super) const AGED: Kind = kind(
    "aged",
    "the same on a file system whose free space is in pieces [se95 §5]",
    &["phase", "file_bytes"],
    |table| boxed(table, |spec, seed| FileWorkload::Aged(Aged { seed, ..spec })),
);

pub(super) const POSTMARK: Kind =
    kind("postmark", "many small files that live a short time (PostMark)", &["phase"], |table| {
        boxed(table, |spec, seed| FileWorkload::PostMark(PostMark { seed, ..spec }))
    });

pub(super) const TPCB: Kind =
    kind("tpcb", "transactions of a database with its own cache and log [se95 §4]", &["phase"], |table| {
        boxed(table, |spec, seed| FileWorkload::TpcB(TpcB { seed, ..spec }))
    });

pub(super) const APPEND: Kind =
    kind("append", "files grow by 10, 100 and 1000 bytes at a time [za01 §7]", &["phase"], |table| {
        boxed(table, |spec, seed| FileWorkload::Append(Append { seed, ..spec }))
    });

pub(super) const ATTRIBUTES: Kind =
    kind("attributes", "the attributes of many files are read, cold and warm [za01 §7]", &["phase"], |table| {
        boxed(table, |spec, seed| FileWorkload::Attributes(Attributes { seed, ..spec }))
    });

pub(super) const BONNIE: Kind =
    kind("bonnie", "a file is written, rewritten, read, and read at random (Bonnie) [za01 §7]", &["phase"], |table| {
        boxed(table, |spec, seed| FileWorkload::Bonnie(Bonnie { seed, ..spec }))
    });

pub(super) const TOOL: Kind = kind(
    "tool",
    "files are stored encoded, by the file system or by a program [za01 §7]",
    &["phase", "file_bytes"],
    |table| boxed(table, |spec, seed| FileWorkload::Tool(Tool { seed, ..spec })),
);

pub(super) const BUILD: Kind =
    kind("build", "a source tree is made, copied, read and compiled (after Andrew)", &["phase"], |table| {
        boxed(table, |spec, seed| FileWorkload::Build(Build { seed, ..spec }))
    });

type Read = fn(&toml::Table) -> Result<Box<dyn Workload>, String>;

const fn kind(name: &'static str, help: &'static str, dims: &'static [&'static str], read: Read) -> Kind {
    const METRICS: &[(&str, &str)] = &[
        ("per_s", "files or transactions in a second; bytes where the phase is about bytes"),
        ("mib_per_s", "MiB that the program read or wrote, in a second"),
        ("elapsed_s", "from the first call until everything is durable"),
        ("sync_s", "of this, making durable at the end"),
        ("disk_busy", "share of the time during which the disk was busy"),
        ("processor_busy", "share of the time during which the processor was busy"),
        ("processor_s", "during which the processor was busy"),
        ("disk_requests", "requests that the disk served"),
    ];
    Kind { name, help, dims, metrics: METRICS, read }
}

/// A program that uses files, and how much it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileWorkload {
    SmallFile(SmallFile),
    LargeFile(LargeFile),
    Sizes(Sizes),
    Aged(Aged),
    PostMark(PostMark),
    TpcB(TpcB),
    Build(Build),
    Append(Append),
    Attributes(Attributes),
    Bonnie(Bonnie),
    Tool(Tool),
}

/// Does something with whatever workload it is.
pub trait UseWorkload {
    type Output;

    fn with<W: Files + Copy>(self, spec: &W) -> Self::Output;
}

impl FileWorkload {
    pub fn apply<U: UseWorkload>(&self, user: U) -> U::Output {
        match self {
            FileWorkload::SmallFile(spec) => user.with(spec),
            FileWorkload::LargeFile(spec) => user.with(spec),
            FileWorkload::Sizes(spec) => user.with(spec),
            FileWorkload::Aged(spec) => user.with(spec),
            FileWorkload::PostMark(spec) => user.with(spec),
            FileWorkload::TpcB(spec) => user.with(spec),
            FileWorkload::Build(spec) => user.with(spec),
            FileWorkload::Append(spec) => user.with(spec),
            FileWorkload::Attributes(spec) => user.with(spec),
            FileWorkload::Bonnie(spec) => user.with(spec),
            FileWorkload::Tool(spec) => user.with(spec),
        }
    }
}

/// What `[workload]` says of it, and what is beside.
struct Described {
    of_seed: Box<dyn Fn(u64) -> FileWorkload + Send + Sync>,
    log: Option<Stack>,
}

/// Reads the numbers of a workload, and the stack for its log.
fn boxed<W>(table: &toml::Table, make: fn(W, u64) -> FileWorkload) -> Result<Box<dyn Workload>, String>
where
    W: for<'de> Deserialize<'de> + Copy + Send + Sync + 'static,
{
    let mut table = table.clone();
    let log = match table.remove("log") {
        None => None,
        Some(toml::Value::String(line)) => {
            Some(Stack::parse(&line).map_err(|error| format!("[workload]: log: {error}"))?)
        }
        Some(_) => return Err("[workload]: log is a stack line".into()),
    };
    let spec: W = parse(&table)?;
    Ok(Box::new(Described { of_seed: Box::new(move |seed| make(spec, seed)), log }))
}

struct Check;

impl UseWorkload for Check {
    type Output = Result<(), LabError>;

    fn with<W: Files + Copy>(self, spec: &W) -> Result<(), LabError> {
        spec.check()
    }
}

struct Simulate<'a> {
    stack: &'a Stack,
    log: Option<&'a Stack>,
    context: &'a Context<'a>,
}

impl UseWorkload for Simulate<'_> {
    type Output = Result<Run, LabError>;

    fn with<W: Files + Copy>(self, spec: &W) -> Result<Run, LabError> {
        let unwatched = &|_: crate::workload::Step<'_>| std::ops::ControlFlow::Continue(());
        simulate(self.stack, self.log, self.context.profile, spec, unwatched)
    }
}

impl Workload for Described {
    fn check(&self, on: &On) -> Result<(), String> {
        (self.of_seed)(1).apply(Check).map_err(|error| error.to_string())?;
        if self.log.as_ref().is_some_and(|log| !can_be_simulated(log)) {
            return Err("[workload]: log is for virtual time, and lies in the real world".into());
        }
        match on {
            On::Nothing => Err("a contestant needs `on`, a stack or a directory".into()),
            On::Stack(_) | On::Directory(_) => Ok(()),
        }
    }

    fn is_simulated(&self, on: &On, context: &Context<'_>) -> bool {
        match (on, context.clock) {
            (On::Stack(_), Clock::Virtual) => true,
            (On::Stack(stack), Clock::Auto) => can_be_simulated(stack),
            _ => false,
        }
    }

    fn run(&self, on: &On, context: &Context<'_>) -> Result<Vec<Measure>, String> {
        let spec = (self.of_seed)(context.seed);
        let run = match on {
            On::Stack(stack) if self.is_simulated(on, context) => {
                spec.apply(Simulate { stack, log: self.log.as_ref(), context })
            }
            _ => context.outside.files(on, &spec),
        };
        Ok(run.map_err(|error| error.to_string())?.phases.iter().map(measure).collect())
    }
}

fn measure(measured: &Measured) -> Measure {
    const MIB: f64 = (1 << 20) as f64;
    let metrics = [
        ("per_s", measured.per_second()),
        ("mib_per_s", measured.bytes_per_second().map(|rate| rate / MIB).filter(|_| measured.bytes > 0)),
        ("elapsed_s", Some(measured.elapsed.as_secs_f64())),
        ("sync_s", Some(measured.sync.as_secs_f64())),
        ("disk_busy", measured.disk_busy()),
        ("processor_busy", measured.processor_busy()),
        ("processor_s", measured.usage.processor.map(|time| time.as_secs_f64())),
        ("disk_requests", measured.usage.disk_requests.map(|count| count as f64)),
    ];
    let row = Measure::new(metrics).at("phase", &measured.phase);
    match measured.file_bytes {
        Some(bytes) => row.at_number("file_bytes", bytes),
        None => row,
    }
}
