//! Fitting: a drive's parameters from service times that were measured on it.
//!
//! Worthington, Ganger, Patt and Wilkes \[wo95\] extract parameters with requests that they choose; a trace has requests that
//! users chose, so no single one isolates a parameter. The model itself is the yardstick instead: the trace is replayed with
//! changed parameters until the distributions of modelled and measured times agree, not only over all requests but within each
//! group of similar requests (direction, distance from the request before). What a group depends on is then found from that
//! group: short seeks from short distances, overheads of writes from writes.
//!
//! The speed of rotation alone shows directly, in the rhythm of completions ([`rotation`]), where the layout of the drive is known.
//!
//! The first half of a trace is fitted; the second half says what the fit is worth, because any model follows the noise of what
//! it was fitted to.
//!
//! Limits
//!   F1  Zones, skews, slips and the order of surfaces stay those of the drive to begin with: service times of a user's requests
//!       do not show them. Of a drive that comes from a data sheet, the density is fitted.
//!   F2  Where completions show no rhythm, because the layout is another, the speed stays that of the drive to begin with: data
//!       sheets have it exactly, and a fit to distributions confuses it with seeks.
//!   F3  A seek curve is fitted where the trace has seeks. Elsewhere it follows the nearest distances that the trace has.
//!   F4  The result depends on the start and on the trace alone: the search draws no random numbers.

pub mod fuzz;
mod groups;
mod knobs;
mod rotation;
mod search;

use std::ops::ControlFlow;

use super::drive::{Drive, Evidence};
use super::validation::{Answer, Fit, MEAN_RATIO_MAX, Measured, ReplayError, fit, replay};
use groups::Groups;
use knobs::Point;

/// Fewer requests in the fitted half determine nothing.
pub const REQUESTS_MIN: usize = 100;

/// How well a drive describes the two halves of a trace.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Halves {
    /// Requests that the parameters were fitted to.
    pub fitted: Fit,
    /// Requests that the search never saw.
    pub held_out: Fit,
}

/// The result of [`fit_drive`].
#[derive(Clone, PartialEq, Debug)]
pub struct Fitted {
    pub drive: Drive,
    pub before: Halves,
    pub after: Halves,
    /// How often the trace was replayed.
    pub replays: u32,
    /// The caller stopped the search, or it reached its limit, before its steps were small enough.
    pub is_early: bool,
}

impl Fitted {
    /// The half that the fit has not seen is farther from the drive than it was before: the fit followed what is particular to
    /// the other half.
    pub fn is_worse_unseen(&self) -> bool {
        self.after.held_out.demerit_ms > self.before.held_out.demerit_ms
    }
}

/// Why a trace cannot be fitted.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum FitError {
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error("{requests} requests are too few to fit a drive: at least {} are needed", 2 * REQUESTS_MIN)]
    TooFew { requests: usize },
    #[error("no request of the trace took any time")]
    NoTimes,
    /// The means differ so much that a unit must be wrong.
    #[error(
        "the measured service times have a mean of {measured_ms:.6} ms, and the drive to begin with one of {modelled_ms:.3} ms: \
         no two drives differ so much"
    )]
    Units { measured_ms: f64, modelled_ms: f64 },
}

/// What to fit, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Limit of the replays of the fitted half.
    pub replays_max: u32,
}

impl Default for Effort {
    fn default() -> Effort {
        Effort { replays_max: 3000 }
    }
}

/// Finds parameters with which `start` serves the requests of `trace` as the measured drive did. `step` is called before each
/// replay with the number of replays and the root mean square error of the groups in milliseconds so far; `Break` ends the
/// search with the best drive so far.
///
/// # Errors
/// When the drive is impossible or a request lies outside it; when there are too few requests, or times in another unit.
pub fn fit_drive(
    start: &Drive,
    trace: &[Measured],
    effort: Effort,
    step: &mut dyn FnMut(u32, f64) -> ControlFlow<()>,
) -> Result<Fitted, FitError> {
    let half = trace.len() / 2;
    if half < REQUESTS_MIN {
        return Err(FitError::TooFew { requests: trace.len() });
    }
    let before = halves(start, trace)?;
    let (measured_ms, modelled_ms) = (before.fitted.measured_mean_ms, before.fitted.modelled_mean_ms);
    if measured_ms == 0.0 || before.held_out.measured_mean_ms == 0.0 {
        return Err(FitError::NoTimes);
    }
    let ratio = measured_ms / modelled_ms.max(1e-6);
    if !(1.0 / MEAN_RATIO_MAX..MEAN_RATIO_MAX).contains(&ratio) {
        return Err(FitError::Units { measured_ms, modelled_ms });
    }
    let groups = Groups::new(&trace[..half], start.rpm);
    let mut problem = Problem {
        start,
        trace: &trace[..half],
        groups,
        rpm: rotation::rpm(start, &trace[..half]),
        replays: 0,
        limit: effort.replays_max,
        step,
    };
    let found = search::search(&mut problem);
    let mut drive = found.point.drive(start).unwrap_or_else(|| start.clone());
    let mut after = halves(&drive, trace)?;
    let usual = |drive: &Drive| replay(drive, &trace[..half]).map(|answers| groups::usual_demerit(&answers));
    if usual(&drive)? >= usual(start)? {
        // The drive to begin with was as right as the groups can tell.
        (drive, after) = (start.clone(), before);
    }
    if drive != *start {
        drive.evidence = Evidence::Extracted;
    }
    Ok(Fitted { drive, before, after, replays: problem.replays, is_early: found.is_early })
}

/// Compares a drive with both halves of a trace, in one replay, so that the second half begins with the cache that the first
/// has left.
///
/// # Errors
/// As [`replay`].
pub fn halves(drive: &Drive, trace: &[Measured]) -> Result<Halves, FitError> {
    let answers = replay(drive, trace)?;
    let (first, second) = answers.split_at(trace.len() / 2);
    let of = |answers: &[Answer]| fit(answers).ok_or(FitError::TooFew { requests: trace.len() });
    Ok(Halves { fitted: of(first)?, held_out: of(second)? })
}

/// What the search asks: how wrong is this point?
struct Problem<'a> {
    start: &'a Drive,
    trace: &'a [Measured],
    groups: Groups,
    /// The speed, where the completions show it: then the search leaves it alone.
    rpm: Option<u32>,
    replays: u32,
    limit: u32,
    step: &'a mut dyn FnMut(u32, f64) -> ControlFlow<()>,
}

impl Problem<'_> {
    /// The error of a point in square milliseconds: infinite for an impossible drive. `None` when the search is to end.
    fn error(&mut self, point: &Point, best: f64) -> Option<f64> {
        if self.replays >= self.limit || (self.step)(self.replays, best.sqrt()).is_break() {
            return None;
        }
        self.replays += 1;
        let answers = point.drive(self.start).and_then(|drive| replay(&drive, self.trace).ok());
        Some(answers.map_or(f64::INFINITY, |answers| self.groups.error(&answers) + point.roughness()))
    }
}
