//! Comparing a model with measurements of its real drive: closed loops at many block sizes and depths.
//!
//! The measurements are in the form of the data of `do23`, one line for each run of fio. Half of the cases were there to fit the constants of
//! the catalogue; no constant follows from the others. [`FioRun::half`] says which, by a rule that no result changes.

mod cases;
mod closed_loop;
mod figures;
mod fit;
mod least_squares;
mod report;

pub use cases::{FioRun, Half, OPERATIONS, Operation, parse};
pub use closed_loop::{Host, Predicted, predict};
pub use figures::{FIGURES, Figure, round_figures};
pub use fit::{Effort, Fitted, fit_figures};
pub use report::{Answer, Region, Share, regions};

/// Measurements that come with the project, by the drive's name: extracted from github.com/stonet-research/NVMeBenchmarks (MIT
/// licence, Copyright (c) 2023 Krijn Doekemeijer, Nick Tehrany).
pub const MEASURED: &[(&str, &str)] =
    &[("nvme-a", include_str!("../measured/nvme-a.csv")), ("zns-a", include_str!("../measured/zns-a.csv"))];

/// Changes of zones of the drive `zns-a`, from the same source.
pub const MEASURED_ZONES: &str = include_str!("../measured/zns-a-states.csv");
