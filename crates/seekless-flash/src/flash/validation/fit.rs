//! Fits the figures of a drive to the cases of one half, without a look at the other.
//!
//! One figure after another is changed by a step, up and down, and a change that makes the error smaller is kept. When no single
//! one does, two are changed at once: what one figure takes another may have to give back, as `command` and `narrow` do, and
//! a sum of absolute errors has valleys in which no single change helps. Then the same with smaller steps. Every region of operation, size and depth has the same weight, whatever its number of cases. A case
//! that is off by more than [`ERROR_WHOLE`] counts for little more than that: it may be one that the model has no part for.

use std::collections::{BTreeMap, BTreeSet};
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

/// Rounds with one size of the steps at most, and the error after one, as a part of that before, from which on it was of use.
const ROUNDS_MAX: u32 = 8;
const IMPROVED: f64 = 0.999;

/// A figure has an effect where one of these changes has one.
const EFFECT_STEPS: [f64; 2] = [1.0, -0.5];

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
        Effort { cases_max: 8, drives_max: 10_000 }
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
    let mut search = Search::new(&chosen, start, effort.drives_max);
    let before = search.error();
    // Figures that have no effect on these cases are left as they are.
    let active: Vec<(&Figure, Regions)> = FIGURES
        .iter()
        .map(|figure| (figure, search.affected(figure)))
        .filter(|(_, regions)| !regions.is_empty())
        .collect();
    'steps: for step in STEPS {
        // Until a round changes nothing; a few times at most.
        for _ in 0..ROUNDS_MAX {
            let round = search.error();
            for (figure, regions) in &active {
                if search.moved(&[(figure, step)], regions) == 0 {
                    search.moved(&[(figure, -step)], regions);
                }
                if watch(search.tried, search.error()).is_break() || search.tried >= effort.drives_max {
                    break 'steps;
                }
            }
            if search.error() < round * IMPROVED {
                continue;
            }
            for (index, (first, of_first)) in active.iter().enumerate() {
                // Two figures that share no case have nothing to give each other.
                for (second, of_second) in active[..index].iter().filter(|(_, other)| !other.is_disjoint(of_first)) {
                    let either: Regions = of_first.union(of_second).copied().collect();
                    for (one, other) in [(step, -step), (-step, step), (step, step), (-step, -step)] {
                        if search.moved(&[(first, one), (second, other)], &either) > 0 {
                            break;
                        }
                    }
                    if watch(search.tried, search.error()).is_break() || search.tried >= effort.drives_max {
                        break 'steps;
                    }
                }
            }
            if search.error() > round * IMPROVED {
                break;
            }
        }
    }
    // Once more in full: a figure may have come to matter where it had no effect at first.
    search.errors = search.errors_of(&search.best.clone());
    let error = search.error();
    let Search { tried, best, .. } = search;
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

/// Places of regions in the list of chosen cases.
type Regions = BTreeSet<usize>;

struct Search<'a> {
    chosen: &'a [Vec<Case>],
    drives_max: u32,
    tried: u32,
    best: Model,
    /// Mean error of the best drive in each region.
    errors: Vec<f64>,
}

impl<'a> Search<'a> {
    fn new(chosen: &'a [Vec<Case>], start: &Model, drives_max: u32) -> Search<'a> {
        let mut search = Search { chosen, drives_max, tried: 1, best: start.clone(), errors: Vec::new() };
        search.errors = search.errors_of(start);
        search
    }

    /// The mean over the regions.
    fn error(&self) -> f64 {
        self.errors.iter().sum::<f64>() / self.errors.len() as f64
    }

    fn errors_of(&self, model: &Model) -> Vec<f64> {
        (0..self.chosen.len()).map(|region| self.error_in(region, model).unwrap_or(f64::INFINITY)).collect()
    }

    /// The mean error of the cases of a region; `None` when the drive contradicts itself.
    fn error_in(&self, region: usize, model: &Model) -> Option<f64> {
        let cases = &self.chosen[region];
        let mut sum = 0.0;
        for case in cases {
            let predicted = predict(model, case).ok()??;
            let off = |modelled: f64, measured: f64| {
                let error = (modelled / measured).ln().abs();
                error.min(ERROR_WHOLE) + (error - ERROR_WHOLE).max(0.0) / 10.0
            };
            sum += off(predicted.latency_us, case.latency_us) + off(predicted.iops, case.iops);
        }
        Some(sum / (2.0 * cases.len() as f64))
    }

    /// Moves some figures of the best drive by a step each, as often as that makes it better, and says how often it did.
    /// `regions` are those in which they have an effect.
    fn moved(&mut self, steps: &[(&Figure, f64)], regions: &Regions) -> usize {
        (0..MOVES_MAX).take_while(|_| self.tried < self.drives_max && self.attempt(steps, regions)).count()
    }

    /// Tries the best drive with some figures moved by a step each; true if it is better.
    fn attempt(&mut self, steps: &[(&Figure, f64)], regions: &Regions) -> bool {
        let mut model = self.best.clone();
        for (figure, step) in steps {
            let Some(place) = (figure.place)(&mut model) else { return false };
            let before = place.get();
            let value = place.moved(*step);
            place.set(value);
            // A figure at its end, such as a time of 0: the others alone have been tried.
            if figure.of(&model) == Some(before) {
                return false;
            }
        }
        self.tried += 1;
        let bound: f64 = regions.iter().map(|&region| self.errors[region]).sum();
        let (mut sum, mut errors) = (0.0, self.errors.clone());
        for &region in regions {
            let Some(error) = self.error_in(region, &model) else { return false };
            sum += error;
            if sum >= bound {
                return false;
            }
            errors[region] = error;
        }
        (self.best, self.errors) = (model, errors);
        true
    }

    /// The regions in which a large change of the figure, up or down, changes an answer.
    fn affected(&self, figure: &Figure) -> Regions {
        let mut moved = Vec::new();
        for step in EFFECT_STEPS {
            let mut model = self.best.clone();
            let Some(place) = (figure.place)(&mut model) else { return Regions::new() };
            let value = place.moved(step);
            place.set(value);
            moved.push(model);
        }
        let answers = |model: &Model, case: &Case| predict(model, case).ok().flatten();
        let is_affected = |region: &usize| {
            self.chosen[*region].iter().any(|case| {
                let before = answers(&self.best, case);
                moved.iter().any(|model| answers(model, case) != before)
            })
        };
        (0..self.chosen.len()).filter(is_affected).collect()
    }
}
