//! Fits the figures of a drive to the cases of one half, without a look at the other.
//!
//! What is made small is the mean error of all regions of operation, size and depth, each of the same weight, whatever its number
//! of cases. A case that is off by more than [`ERROR_WHOLE`] counts for little more than that: it may be one that the model
//! has no part for.
//!
//! The method is that of Levenberg and Marquardt: each figure is changed a little to see what that does to the error of each case,
//! and all of them are moved at once to where a linear model of the errors is smallest. Errors count as they are, not by
//! their squares, so each is weighted by what its square is too large by (iteratively reweighted least squares). A
//! search along one figure after another, and along pairs, was stuck at five times the error: what the program time loses, the
//! mapping's journal must give back at another rate, and such valleys go along no axis.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use super::super::drive::{FlashError, Model};
use super::cases::{FioRun, Half};
use super::closed_loop::predict;
use super::figures::Figure;
use super::least_squares::{Equation, smallest};
use super::report::{Answer, Region};

/// Errors of a case up to this count as they are, as the logarithm of modelled over measured, and a tenth of what is beyond.
const ERROR_WHOLE: f64 = 0.5;
const BEYOND: f64 = 0.1;

/// By which parts figures are changed to see what they do, one after another: first what leads there, then what is exact.
const PROBES: [f64; 4] = [0.2, 0.1, 0.05, 0.02];

/// Errors below this part of a probe weigh as if they were as large: no error may have a weight without end.
const ERROR_SMALL: f64 = 1.0;

/// Moves with probes of one size at most, and the error after one, as a part of that before, from which on it was of use.
const MOVES_MAX: usize = 12;
const IMPROVED: f64 = 0.995;

/// No figure is changed by more in one move, as a logarithm.
const MOVE_MAX: f64 = 0.7;

/// What damps a move: at first, when it helped, when it did not, and what is too much.
const DAMPING: f64 = 0.1;
const DAMPING_LESS: f64 = 0.3;
const DAMPING_MORE: f64 = 4.0;
const DAMPING_MAX: f64 = 30.0;

/// What a change of a figure by a factor of e must gain at least, as an error of a region: a figure that does hardly anything would
/// else go anywhere.
const INERTIA: f64 = 0.01;

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
        Effort { cases_max: 8, drives_max: 1_000 }
    }
}

/// A drive that was fitted.
#[derive(Clone, PartialEq, Debug)]
pub struct Fitted {
    pub model: Model,
    /// Options of the figures that had an effect on a case. The others are as they were.
    pub with_effect: BTreeSet<&'static str>,
    /// Cases that were used, all of them of the half to be fitted.
    pub cases: usize,
    pub drives: u32,
    /// Mean error before and after, over the regions.
    pub before: f64,
    pub after: f64,
}

/// Changes `figures` of `start` so that it answers the cases of [`Half::Fitted`] among `cases`. `watch` learns how many
/// drives have been tried and the smallest error so far, and may end it; the best drive until then is the result.
///
/// # Errors
/// When there is no case to fit to that the drive can answer.
pub fn fit_figures(
    start: &Model,
    figures: &[&'static Figure],
    cases: &[FioRun],
    effort: Effort,
    watch: &mut dyn FnMut(u32, f64) -> ControlFlow<()>,
) -> Result<Fitted, FlashError> {
    let regions = chosen(start, cases, effort.cases_max)?;
    let contradicts = || FlashError("the drive contradicts itself in a case".to_owned());
    let errors: Option<Vec<Errors>> = regions.iter().map(|region| errors_in(region, start)).collect();
    let best = Drive { model: start.clone(), errors: errors.ok_or_else(contradicts)? };
    let before = best.error();
    let mut search = Search {
        figures,
        regions: &regions,
        drives_max: effort.drives_max,
        tried: 1,
        with_effect: BTreeSet::new(),
        best,
        watch,
    };
    search.run();
    let Search { tried, best, with_effect, .. } = search;
    let cases = regions.iter().map(Vec::len).sum();
    Ok(Fitted { after: best.error(), model: best.model, with_effect, cases, drives: tried, before })
}

/// Cases of the half to be fitted that the drive can answer, by region, no more of each than `most`.
fn chosen(model: &Model, cases: &[FioRun], most: usize) -> Result<Vec<Vec<FioRun>>, FlashError> {
    let mut regions: BTreeMap<Region, Vec<FioRun>> = BTreeMap::new();
    for case in cases.iter().filter(|case| case.half() == Half::Fitted) {
        if let Some(predicted) = predict(model, case)? {
            let answer = Answer { case: case.clone(), predicted };
            regions.entry(answer.region()).or_default().push(answer.case);
        }
    }
    if regions.is_empty() {
        return Err(FlashError("there is no case to fit to that the drive can answer".to_owned()));
    }
    let spread = |cases: Vec<FioRun>| {
        let count = cases.len().min(most.max(1));
        (0..count).map(|index| cases[index * cases.len() / count].clone()).collect()
    };
    Ok(regions.into_values().map(spread).collect())
}

/// Of each case of a region the logarithms of modelled over measured: latency and throughput.
type Errors = Vec<[f64; 2]>;

/// `None` when the drive contradicts itself.
fn errors_in(cases: &[FioRun], model: &Model) -> Option<Errors> {
    let off = |case: &FioRun| {
        let predicted = predict(model, case).ok()??;
        Some([(predicted.latency_us / case.latency_us).ln(), (predicted.iops / case.iops).ln()])
    };
    cases.iter().map(off).collect()
}

/// The mean of what the errors of a region count for.
fn count(errors: &Errors) -> f64 {
    let one = |error: &f64| error.abs().min(ERROR_WHOLE) + BEYOND * (error.abs() - ERROR_WHOLE).max(0.0);
    errors.iter().flatten().map(one).sum::<f64>() / (2 * errors.len()) as f64
}

#[derive(Clone)]
struct Drive {
    model: Model,
    /// In each region.
    errors: Vec<Errors>,
}

impl Drive {
    fn error(&self) -> f64 {
        self.errors.iter().map(count).sum::<f64>() / self.errors.len() as f64
    }
}

/// What a change of a figure by the part `by` did.
struct Probe {
    figure: &'static Figure,
    by: f64,
    /// In regions in which it did something.
    errors: BTreeMap<usize, Errors>,
}

struct Search<'a> {
    figures: &'a [&'static Figure],
    regions: &'a [Vec<FioRun>],
    drives_max: u32,
    tried: u32,
    with_effect: BTreeSet<&'static str>,
    best: Drive,
    watch: &'a mut dyn FnMut(u32, f64) -> ControlFlow<()>,
}

impl Search<'_> {
    /// `None` when it was ended before it was done.
    fn run(&mut self) -> Option<()> {
        for part in PROBES {
            let mut damping = DAMPING;
            // Figures that do nothing, and regions in which one does nothing, are left out until the probes get smaller.
            let everywhere: Vec<usize> = (0..self.regions.len()).collect();
            let mut candidates: Vec<(&'static Figure, Vec<usize>)> =
                self.figures.iter().map(|figure| (*figure, everywhere.clone())).collect();
            for index in 0..MOVES_MAX {
                let before = self.best.error();
                let mut probes = Vec::new();
                for (figure, regions) in &candidates {
                    probes.extend(self.probe(figure, regions, if index % 2 == 0 { part } else { -part })?);
                }
                candidates =
                    probes.iter().map(|probe| (probe.figure, probe.errors.keys().copied().collect())).collect();
                let start = self.best.clone();
                while damping < DAMPING_MAX {
                    let moves = self.moves(&start, &probes, part, damping);
                    if self.attempt(&start, &moves)? {
                        damping *= DAMPING_LESS;
                        break;
                    }
                    damping *= DAMPING_MORE;
                }
                if self.best.error() > before * IMPROVED {
                    break;
                }
            }
        }
        Some(())
    }

    /// Counts a drive that is tried. `None` when there have been enough.
    fn count_drive(&mut self) -> Option<()> {
        if self.tried >= self.drives_max || (self.watch)(self.tried, self.best.error()).is_break() {
            return None;
        }
        self.tried += 1;
        Some(())
    }

    /// Changes a figure by a part, or by its opposite where it is at its end. The outer `None`: there have been enough drives; the
    /// inner: the figure does nothing.
    fn probe(&mut self, figure: &'static Figure, regions: &[usize], by: f64) -> Option<Option<Probe>> {
        let mut model = self.best.model.clone();
        let mut changed = by;
        if !figure.change(&mut model, by) {
            changed = -by;
            if !figure.change(&mut model, -by) {
                return Some(None);
            }
        }
        self.count_drive()?;
        let mut errors = BTreeMap::new();
        for &region in regions {
            if let Some(found) = errors_in(&self.regions[region], &model)
                && found != self.best.errors[region]
            {
                errors.insert(region, found);
            }
        }
        if errors.is_empty() {
            return Some(None);
        }
        self.with_effect.insert(figure.option);
        Some(Some(Probe { figure, by: changed, errors }))
    }

    /// Where the errors of a linear model are smallest.
    fn moves(&self, start: &Drive, probes: &[Probe], part: f64, damping: f64) -> Vec<(&'static Figure, f64)> {
        let mut free: Vec<&Probe> = probes.iter().collect();
        loop {
            let mut equations = Vec::new();
            for (region, errors) in start.errors.iter().enumerate() {
                for (case, before) in errors.iter().enumerate() {
                    for (which, &error) in before.iter().enumerate() {
                        let slope = if error.abs() > ERROR_WHOLE { BEYOND } else { 1.0 };
                        let weight = slope / error.abs().max(ERROR_SMALL * part) / errors.len() as f64;
                        let effect = |probe: &&Probe| {
                            probe.errors.get(&region).map_or(0.0, |after| (after[case][which] - error) / probe.by)
                        };
                        equations.push(Equation { weight, effects: free.iter().map(effect).collect(), error });
                    }
                }
            }
            let changes = smallest(&equations, damping, INERTIA);
            // Figures that are at their end stay there, and the others are moved without them.
            let can_move = |(probe, change): &(&Probe, f64)| probe.figure.change(&mut start.model.clone(), *change);
            let moving: Vec<(&Probe, f64)> = free.iter().copied().zip(changes).filter(can_move).collect();
            if moving.len() == free.len() || moving.is_empty() {
                let longest = moving.iter().fold(MOVE_MAX, |longest, (_, change)| longest.max(change.abs()));
                return moving.iter().map(|(probe, change)| (probe.figure, change * MOVE_MAX / longest)).collect();
            }
            free = moving.iter().map(|(probe, _)| *probe).collect();
        }
    }

    /// Moves some figures of a drive; whether the drive is better than the best, whose place it takes then.
    fn attempt(&mut self, start: &Drive, moves: &[(&'static Figure, f64)]) -> Option<bool> {
        self.count_drive()?;
        let mut model = start.model.clone();
        for (figure, by) in moves {
            figure.change(&mut model, *by);
        }
        let bound = self.best.error() * self.regions.len() as f64;
        let (mut errors, mut sum) = (Vec::new(), 0.0);
        for region in self.regions {
            let Some(found) = errors_in(region, &model) else { return Some(false) };
            sum += count(&found);
            if sum >= bound {
                return Some(false);
            }
            errors.push(found);
        }
        self.best = Drive { model, errors };
        Some(true)
    }
}
