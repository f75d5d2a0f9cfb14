//! Experiments: a folder that says what to measure and what was published, and a folder with the results.
//!
//! An experiment names a workload, contestants to run it on, and variables that are swept. Every combination is a
//! [`Point`], which depends only on its own text: points are run in any order, by any number of threads or processes,
//! and each is measured once. Figures and claims are in the same file, so that the rows suffice for the report.
//!
//! | file of the folder | holds |
//! |---|---|
//! | `experiment.toml` | the [`Description`]: workload, variables, contestants, figures, claims |
//! | `published.csv` | the [`published`] points, each with its source |
//! | `seconds.jsonl` | of a large one: how long some points took on one machine |
//!
//! | file of the results | holds |
//! |---|---|
//! | `points.jsonl` | a line for each finished point, and for each round of it, of all programs and experiments that have run into the folder; a killed sweep continues from it |
//! | `rows.jsonl`, `rows.csv` | the measurements, in the order of the plan |
//! | `resolved.toml` | the description with everything filled in, the published points too |
//! | `seconds.jsonl` | how long each point took, for [`Shard`]s of the same size |
//! | `provenance.json` | which program measured when, where and by which command |
//!
//! Invariants
//!   E1  The same point gives the same rows, whichever thread runs it and whatever ran before; only in real time may
//!       they differ: the medians of its rounds count.
//!   E2  A row is never taken from a point that differs in anything that affects its result: the key covers the text of
//!       the point, the contents of the files that it reads and the program; what was measured while one of these was
//!       written to is not kept.
//!   E3  A sweep that was killed and continued ends with the same rows as an uninterrupted one, and so does one in
//!       shards that were merged, in whatever order and however often.
//!   E4  Any number of runs write to one folder at the same time. None measures a point that another is measuring, and none
//!       waits for one that has died.

mod claim;
mod coincidence;
mod costs;
mod description;
mod figure;
pub mod fuzz;
// Results are files.
#[allow(clippy::disallowed_types)]
mod journal;
#[cfg(test)]
#[allow(clippy::disallowed_types)]
mod journal_tests;
mod kinds;
mod omitted;
mod plan;
mod published;
// Results are files.
#[allow(clippy::disallowed_types)]
mod results;
mod results_error;
mod rounds;
mod rows;
mod shard;
#[cfg(test)]
mod shard_tests;
mod stop;
#[cfg(test)]
mod tests;
mod value;

pub use claim::{Checked, Claim, Verdict, digits};
pub use costs::Costs;
pub use description::{Axis, Chart, Contestant, Description, Experiment, Figure, Variable};
pub use figure::{Curve, Drawing, Mark, Panel, draw};
pub use journal::{WhileWaiting, patiently};
pub use kinds::{
    Clock, Context, ImageState, Measure, MountJob, Outside, Placement, RunTarget, Workload, WorkloadKind, kinds,
};
pub use omitted::Omitted;
pub use plan::{Plan, PlanCell, Point};
pub use published::{Deviation, Published, deviations};
pub use results::{
    Answer, AnswerRow, Card, Claim as PointClaim, Foreign, Merged, Results, Stored, Tone, files_of, has_costs,
    read_costs, to_csv,
};
pub use results_error::ResultsError;
pub use rounds::Round;
pub use rows::{Condition, Row, Selection};
pub use shard::{SHARDS_MAX, Shard};
pub use stop::Stop;
pub(crate) use value::rounded;
pub use value::{Unit, Value};

/// What is wrong with an experiment, and where.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    #[error("cannot read {path}: {cause}")]
    Io { path: String, cause: std::io::Error },
    /// The file exists, but its content is invalid.
    #[error("{path}: {problem}")]
    Description { path: String, problem: String },
    /// A point cannot be made or measured.
    #[error("{point}: {problem}")]
    Point { point: String, problem: String },
}
