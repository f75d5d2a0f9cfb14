//! Fits the figures of a drive to the cases of one half, without a look at the other.
//!
//! One figure after another is changed by a step, up and down, and a change that makes the error smaller is kept; then the
//! same with smaller steps. Every region of operation, size and depth has the same weight, whatever its number of cases. A case
//! that is off by more than [`ERROR_WHOLE`] counts for little more than that: it may be one that the model has no part for.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::super::drive::{FlashError, Interface, Model};
use super::cases::{Case, Half};
use super::closed_loop::predict;
use super::report::{Answer, Region};
use crate::units::Nanos;

/// Errors of a case up to this count as they are, as the logarithm of modelled over measured, and a tenth of what is beyond.
const ERROR_WHOLE: f64 = 0.5;

/// Relative steps, one after another.
const STEPS: [f64; 5] = [0.4, 0.2, 0.1, 0.05, 0.02];

/// A change of a time by a step of 1. It lets a time leave zero.
const TIME_SCALE: f64 = 1_000.0;

/// Moves of one figure in one direction at most, before the next has its turn.
const MOVES_MAX: usize = 6;

/// What a figure may be: times up to 100 ms, rates from 1 MB/s to 1 TB/s, bytes to 1 MiB.
const TIME_MAX: f64 = 1e8;
const RATES: (f64, f64) = (1e6, 1e12);
const BYTES_MAX: f64 = 1e6;

/// A figure that can be fitted.
pub struct Figure {
    /// Its option in a stack line.
    pub option: &'static str,
    place: fn(&mut Model) -> Option<Place<'_>>,
}

/// Where a drive has a figure.
enum Place<'a> {
    Time(&'a mut Nanos),
    Rate(&'a mut u64),
    Bytes(&'a mut u32),
}

impl Place<'_> {
    fn get(&self) -> f64 {
        match self {
            Place::Time(time) => time.0 as f64,
            Place::Rate(rate) => **rate as f64,
            Place::Bytes(bytes) => f64::from(**bytes),
        }
    }

    fn set(self, value: f64) {
        match self {
            Place::Time(time) => *time = Nanos(value.clamp(0.0, TIME_MAX).round() as u64),
            Place::Rate(rate) => *rate = value.clamp(RATES.0, RATES.1).round() as u64,
            Place::Bytes(bytes) => *bytes = value.clamp(0.0, BYTES_MAX).round() as u32,
        }
    }

    /// The value after a step.
    fn moved(&self, step: f64) -> f64 {
        match self {
            Place::Rate(rate) => **rate as f64 * step.exp(),
            Place::Time(_) => self.get() * (1.0 + step) + TIME_SCALE * step,
            Place::Bytes(_) => self.get() * (1.0 + step) + 100.0 * step,
        }
    }
}

fn interface(model: &mut Model) -> &mut Interface {
    match model {
        Model::Ssd(drive) => &mut drive.interface,
        Model::Zns(drive) => &mut drive.interface,
    }
}

macro_rules! figure {
    ($option:literal, interface.$field:ident, $kind:ident) => {
        Figure { option: $option, place: |model| Some(Place::$kind(&mut interface(model).$field)) }
    };
    ($option:literal, cells.$field:ident, $kind:ident) => {
        Figure {
            option: $option,
            place: |model| {
                Some(Place::$kind(match model {
                    Model::Ssd(drive) => &mut drive.cells.$field,
                    Model::Zns(drive) => &mut drive.cells.$field,
                }))
            },
        }
    };
}

/// In the order in which they are fitted.
pub const FIGURES: &[Figure] = &[
    figure!("program", cells.program, Time),
    figure!("command", interface.command, Time),
    figure!("write-latency", interface.write_latency, Time),
    figure!("transfer-rate", interface.transfer_rate, Rate),
    figure!("list-latency", interface.list_latency, Time),
    figure!("merge", interface.merge, Time),
    figure!("merge-sector", interface.merge_sector, Time),
    figure!("merge-after", interface.merge_after, Time),
    figure!("narrow", interface.narrow, Time),
    Figure {
        option: "journal",
        place: |model| match model {
            Model::Ssd(drive) => Some(Place::Bytes(&mut drive.journal_bytes)),
            Model::Zns(_) => None,
        },
    },
    figure!("append", interface.append, Time),
    figure!("append-latency", interface.append_latency, Time),
    figure!("read", cells.read, Time),
    figure!("correction", cells.correction, Time),
    figure!("channel-setup", cells.channel_setup, Time),
    figure!("channel-rate", cells.channel_rate, Rate),
    figure!("read-command", interface.read_command, Time),
    figure!("read-latency", interface.read_latency, Time),
    figure!("link-setup", interface.link_setup, Time),
    figure!("link-rate", interface.link_rate, Rate),
];

impl Figure {
    /// Its value in nanoseconds, bytes a second, or bytes; `None` where the drive does not have it.
    pub fn of(&self, model: &Model) -> Option<f64> {
        (self.place)(&mut model.clone()).map(|place| place.get())
    }

    /// As a stack line has it: `command=3000ns`.
    pub fn text(&self, model: &Model) -> Option<String> {
        let mut model = model.clone();
        let unit = match (self.place)(&mut model)? {
            Place::Time(_) => "ns",
            Place::Rate(_) | Place::Bytes(_) => "B",
        };
        Some(format!("{}={:.0}{unit}", self.option, self.of(&model)?))
    }
}

/// The drive with the same round figures for any drive, so that nothing that was known of its times has a part in what is
/// fitted: times of 2 us, programs of 1 ms, reads of 50 us, 2 GB/s, and 0 for what only some drives have.
#[must_use]
pub fn round_figures(model: &Model) -> Model {
    let mut model = model.clone();
    for figure in FIGURES {
        let Some(place) = (figure.place)(&mut model) else { continue };
        let value = match (figure.option, &place) {
            ("program", _) => 1e6,
            ("read", _) => 5e4,
            ("merge" | "merge-sector" | "merge-after" | "narrow" | "append" | "append-latency" | "journal", _) => 0.0,
            ("channel-rate", _) => 4e8,
            (_, Place::Rate(_)) => 2e9,
            _ => 2_000.0,
        };
        place.set(value);
    }
    model
}

/// How much to try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Cases of each region that are used at most, spread evenly.
    pub cases_max: usize,
    /// Drives that are tried at most.
    pub drives_max: u32,
}

impl Default for Effort {
    fn default() -> Effort {
        Effort { cases_max: 8, drives_max: 2_000 }
    }
}

/// A drive that was fitted.
#[derive(Clone, PartialEq, Debug)]
pub struct Fitted {
    pub model: Model,
    /// Cases that were used, all of them of the half to be fitted.
    pub cases: usize,
    pub drives: u32,
    /// Mean error before and after, over the regions.
    pub before: f64,
    pub after: f64,
}

/// Changes the figures of `start` so that it answers the cases of [`Half::Fitted`] among `cases`. `watch` learns how many
/// drives have been tried and the smallest error so far, and may end it; the best drive until then is the result.
///
/// # Errors
/// When there is no case to fit to that the drive can answer.
pub fn fit_figures(
    start: &Model,
    cases: &[Case],
    effort: Effort,
    watch: &mut dyn FnMut(u32, f64) -> ControlFlow<()>,
) -> Result<Fitted, FlashError> {
    let chosen = chosen(start, cases, effort.cases_max)?;
    if chosen.iter().all(Vec::is_empty) {
        return Err(FlashError("there is no case to fit to that the drive can answer".to_owned()));
    }
    let mut search = Search { chosen: &chosen, tried: 0, best: start.clone(), error: f64::INFINITY };
    search.error = search.error_of(start).unwrap_or(f64::INFINITY);
    let before = search.error;
    'steps: for step in STEPS {
        // Until a round changes nothing; a few times at most.
        for _ in 0..4 {
            let round = search.error;
            for figure in FIGURES {
                for sign in [1.0, -1.0] {
                    let mut moves = 0;
                    while moves < MOVES_MAX && search.tried < effort.drives_max && search.attempt(figure, sign * step) {
                        moves += 1;
                    }
                    if watch(search.tried, search.error).is_break() || search.tried >= effort.drives_max {
                        break 'steps;
                    }
                    if moves > 0 {
                        break;
                    }
                }
            }
            if search.error > round * 0.999 {
                break;
            }
        }
    }
    let Search { tried, best, error, .. } = search;
    let cases = chosen.iter().map(|region| region.len()).sum();
    Ok(Fitted { model: best, cases, drives: tried, before, after: error })
}

/// Cases of the half to be fitted that the drive can answer, by region, no more of each than `most`.
fn chosen(model: &Model, cases: &[Case], most: usize) -> Result<Vec<Vec<Case>>, FlashError> {
    let mut regions: BTreeMap<Region, Vec<Case>> = BTreeMap::new();
    for case in cases.iter().filter(|case| case.half() == Half::Fitted) {
        if let Some(predicted) = predict(model, case)? {
            let answer = Answer { case: case.clone(), predicted };
            regions.entry(answer.region()).or_default().push(answer.case);
        }
    }
    let spread = |cases: Vec<Case>| {
        let count = cases.len().min(most.max(1));
        (0..count).map(|index| cases[index * cases.len() / count].clone()).collect()
    };
    Ok(regions.into_values().map(spread).collect())
}

struct Search<'a> {
    chosen: &'a [Vec<Case>],
    tried: u32,
    best: Model,
    error: f64,
}

impl Search<'_> {
    /// Tries the best drive with a figure moved by a step; true if it is better.
    fn attempt(&mut self, figure: &Figure, step: f64) -> bool {
        let mut model = self.best.clone();
        let Some(place) = (figure.place)(&mut model) else { return false };
        let value = place.moved(step);
        place.set(value);
        if model == self.best {
            return false;
        }
        match self.error_of(&model) {
            Some(error) if error < self.error => {
                (self.best, self.error) = (model, error);
                true
            }
            _ => false,
        }
    }

    /// The mean over the regions of the mean error of their cases; `None` when it is no smaller than the best, or the
    /// drive contradicts itself.
    fn error_of(&mut self, model: &Model) -> Option<f64> {
        self.tried += 1;
        let regions = self.chosen.len() as f64;
        let mut sum = 0.0;
        for region in self.chosen {
            let mut of_region = 0.0;
            for case in region {
                let predicted = predict(model, case).ok()??;
                let off = |modelled: f64, measured: f64| {
                    let error = (modelled / measured).ln().abs();
                    error.min(ERROR_WHOLE) + (error - ERROR_WHOLE).max(0.0) / 10.0
                };
                of_region += off(predicted.latency_us, case.latency_us) + off(predicted.iops, case.iops);
            }
            sum += of_region / (2.0 * region.len() as f64);
            if sum / regions >= self.error {
                return None;
            }
        }
        Some(sum / regions)
    }
}
