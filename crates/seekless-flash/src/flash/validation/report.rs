//! Errors by region, of both halves.

use super::cases::{FioRun, Half, Operation};
use super::closed_loop::Predicted;

/// A case with what the model says.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    pub case: FioRun,
    pub predicted: Predicted,
}

impl Answer {
    pub fn latency_error(&self) -> f64 {
        self.predicted.latency_us / self.case.latency_us - 1.0
    }

    pub fn throughput_error(&self) -> f64 {
        self.predicted.iops / self.case.iops - 1.0
    }

    pub fn region(&self) -> Region {
        Region {
            operation: self.case.operation,
            size: match self.case.block_bytes {
                0..4096 => "below 4 KiB",
                4096 => "4 KiB",
                4097..=16384 => "8, 16 KiB",
                _ => "from 32 KiB",
            },
            depth: match u64::from(self.case.depth) * u64::from(self.case.zones) {
                1 => "1",
                2..=8 => "2 to 8",
                _ => "beyond 8",
            },
        }
    }
}

/// Cases of one kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Region {
    pub operation: Operation,
    pub size: &'static str,
    /// Of all zones together.
    pub depth: &'static str,
}

/// How far the model is off in a set of cases, as shares of what was measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Share {
    pub cases: usize,
    pub latency_median: f64,
    pub latency_worst: f64,
    pub throughput_median: f64,
    pub throughput_worst: f64,
}

impl Share {
    /// `None` without answers.
    pub fn of<'a>(answers: impl Iterator<Item = &'a Answer> + Clone) -> Option<Share> {
        let sorted = |error: fn(&Answer) -> f64| {
            let mut errors: Vec<f64> = answers.clone().map(|answer| error(answer).abs()).collect();
            errors.sort_unstable_by(f64::total_cmp);
            errors
        };
        let (latency, throughput) = (sorted(Answer::latency_error), sorted(Answer::throughput_error));
        let median = |errors: &[f64]| {
            let middle = errors.len() / 2;
            match errors.len() % 2 {
                0 => f64::midpoint(errors[middle - 1], errors[middle]),
                _ => errors[middle],
            }
        };
        Some(Share {
            cases: latency.len(),
            latency_worst: *latency.last()?,
            latency_median: median(&latency),
            throughput_worst: *throughput.last()?,
            throughput_median: median(&throughput),
        })
    }
}

/// The regions that have cases, each with its errors in either half.
pub fn regions(answers: &[Answer]) -> Vec<(Region, [Option<Share>; 2])> {
    let mut regions: Vec<Region> = answers.iter().map(Answer::region).collect();
    regions.sort_unstable();
    regions.dedup();
    let share = |region: Region, half: Half| {
        Share::of(answers.iter().filter(move |answer| answer.region() == region && answer.case.half() == half))
    };
    regions.into_iter().map(|region| (region, [Half::Fitted, Half::HeldOut].map(|half| share(region, half)))).collect()
}
