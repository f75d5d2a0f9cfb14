//! Comparing a model with its real drive.
//!
//! A validation trace holds requests with the service time measured on the real drive and the think time of the host
//! before the next request, so that nothing queues and pure service times are compared. The *demerit figure* \[rw94\] is
//! the root mean square of the horizontal distance between the two distributions of service times. It rewards the right
//! distribution, not the right request: two models that disagree about which request is slow look the same. So the root
//! mean square over requests is reported too.

use super::drive::Drive;
use super::layout::DriveError;
use super::mechanism::{Hit, Mechanism, Request};
use crate::device::DeviceError;
use crate::units::{Nanos, Sector, counted};

/// The unit of the times in a validation trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TimeUnit {
    /// As in DiskSim's traces.
    #[default]
    Microseconds,
    Milliseconds,
    Seconds,
}

impl TimeUnit {
    pub const ALL: [TimeUnit; 3] = [TimeUnit::Microseconds, TimeUnit::Milliseconds, TimeUnit::Seconds];

    /// As it is written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            TimeUnit::Microseconds => "us",
            TimeUnit::Milliseconds => "ms",
            TimeUnit::Seconds => "s",
        }
    }

    pub fn words(self) -> &'static str {
        match self {
            TimeUnit::Microseconds => "microseconds",
            TimeUnit::Milliseconds => "milliseconds",
            TimeUnit::Seconds => "seconds",
        }
    }

    fn millis(self) -> f64 {
        match self {
            TimeUnit::Microseconds => 1e-3,
            TimeUnit::Milliseconds => 1.0,
            TimeUnit::Seconds => 1e3,
        }
    }

    /// The unit in which times that were taken for `self`, with a mean of `measured_ms`, are nearest to those of a drive, if they are much
    /// nearer in another one.
    pub fn mistaken(self, measured_ms: f64, modelled_ms: f64) -> Option<TimeUnit> {
        let is_likely = |unit: &TimeUnit| {
            let ratio = measured_ms * (unit.millis() / self.millis()) / modelled_ms.max(1e-6);
            (1.0 / MEAN_RATIO_MAX..MEAN_RATIO_MAX).contains(&ratio)
        };
        TimeUnit::ALL.into_iter().find(is_likely).filter(|unit| *unit != self && !is_likely(&self))
    }
}

/// How far the measured mean may be from that of a drive; beyond, a unit is wrong. Real drives differ by less than 20 from the slowest of
/// the catalogue to the fastest.
pub const MEAN_RATIO_MAX: f64 = 30.0;

/// One line of a validation trace in DiskSim's form:
/// `R|W  buffer-action  LBN  sectors  service-time  think-time`, times in microseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measured {
    pub request: Request,
    pub service: Nanos,
    /// From this request's completion to the next one's arrival.
    pub think: Nanos,
}

impl Measured {
    /// # Errors
    /// What is wrong with the line.
    pub fn parse(line: &str) -> Result<Measured, String> {
        Measured::parse_in(TimeUnit::Microseconds, line)
    }

    /// A line whose times are in `unit`.
    ///
    /// # Errors
    /// What is wrong with the line.
    pub fn parse_in(unit: TimeUnit, line: &str) -> Result<Measured, String> {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let &[direction, _action, lbn, sectors, service, think] = &fields[..] else {
            return Err(format!("{} instead of 6: {line:?}", counted(fields.len() as u64, "field")));
        };
        let write = match direction {
            "R" => false,
            "W" => true,
            other => return Err(format!("direction {other:?} is neither R nor W")),
        };
        let time = |text: &str| match text.parse::<f64>().map(|time| time * unit.millis()) {
            Ok(millis) if (0.0..1e9).contains(&millis) => Ok(Nanos::from_millis_f64(millis)),
            _ => Err(format!("{text:?} is no time in {}", unit.words())),
        };
        let sector = Sector(lbn.parse().map_err(|_| format!("{lbn:?} is no sector number"))?);
        let sectors = sectors.parse().map_err(|_| format!("{sectors:?} is not a number of sectors"))?;
        Ok(Measured {
            request: Request { sector, sectors, write, fua: false },
            service: time(service)?,
            think: time(think)?,
        })
    }
}

/// The model's service time for a request, beside the measured one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Answer {
    pub measured: Nanos,
    pub modelled: Nanos,
    pub hit: Hit,
    pub write: bool,
}

/// How well a model fits. All times in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fit {
    pub requests: usize,
    pub measured_mean_ms: f64,
    pub modelled_mean_ms: f64,
    /// Root mean square distance of the two sorted samples.
    pub demerit_ms: f64,
    /// Root mean square difference per request.
    pub per_request_ms: f64,
    /// Share of the requests whose service time is right to half a millisecond.
    pub within_half_ms: f64,
}

impl Fit {
    /// The demerit figure as a share of the measured mean.
    pub fn demerit(&self) -> f64 {
        self.demerit_ms / self.measured_mean_ms
    }

    /// Modelled over measured mean, minus one.
    pub fn mean_error(&self) -> f64 {
        self.modelled_mean_ms / self.measured_mean_ms - 1.0
    }
}

/// Errors of a replay.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Drive(#[from] DriveError),
    #[error("request {index} of the trace: {error}")]
    Request { index: usize, error: DeviceError },
    /// The clock overflows: no trace covers centuries.
    #[error("request {index} of the trace: its times add up to more than a century")]
    TooLong { index: usize },
}

/// Limit of a replay's clock; far enough from the end of [`Nanos`] for any one request.
const CLOCK_MAX: Nanos = Nanos::from_secs(100 * 365 * 24 * 3600);

/// Serves the requests one after another, with the trace's think times in between.
///
/// # Errors
/// When the drive record is impossible, a request lies outside the drive, or the times add up to more than the clock
/// can hold.
pub fn replay(drive: &Drive, trace: &[Measured]) -> Result<Vec<Answer>, ReplayError> {
    let mut mechanism = Mechanism::new(drive)?;
    let mut now = Nanos::ZERO;
    let mut answers = Vec::with_capacity(trace.len());
    for (index, measured) in trace.iter().enumerate() {
        let service =
            mechanism.service(now, now, measured.request).map_err(|error| ReplayError::Request { index, error })?;
        answers.push(Answer {
            measured: measured.service,
            modelled: service.done - now,
            hit: service.hit,
            write: measured.request.write,
        });
        now = service.done + measured.think;
        if now > CLOCK_MAX {
            return Err(ReplayError::TooLong { index });
        }
    }
    Ok(answers)
}

/// Compares the two columns; `None` without answers.
pub fn fit(answers: &[Answer]) -> Option<Fit> {
    let count = answers.len() as f64;
    let mean = |time: fn(&Answer) -> Nanos| answers.iter().map(|a| time(a).as_millis_f64()).sum::<f64>() / count;
    let sorted = |time: fn(&Answer) -> Nanos| {
        let mut times: Vec<Nanos> = answers.iter().map(time).collect();
        times.sort_unstable();
        times
    };
    let root_mean_square = |differences: &mut dyn Iterator<Item = f64>| {
        (differences.map(|difference| difference * difference).sum::<f64>() / count).sqrt()
    };
    let difference = |a: Nanos, b: Nanos| a.as_millis_f64() - b.as_millis_f64();
    let (measured, modelled) = (sorted(|a| a.measured), sorted(|a| a.modelled));
    let close = answers.iter().filter(|a| difference(a.measured, a.modelled).abs() <= 0.5).count();
    (!answers.is_empty()).then(|| Fit {
        requests: answers.len(),
        measured_mean_ms: mean(|a| a.measured),
        modelled_mean_ms: mean(|a| a.modelled),
        demerit_ms: root_mean_square(&mut measured.iter().zip(&modelled).map(|(&a, &b)| difference(a, b))),
        per_request_ms: root_mean_square(&mut answers.iter().map(|a| difference(a.measured, a.modelled))),
        within_half_ms: close as f64 / count,
    })
}

/// The result of DiskSim 4.0 with its own model of a drive on the trace that comes with it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Published {
    /// The name in the catalogue.
    pub drive: &'static str,
    /// The trace's file in DiskSim's `valid` directory.
    pub file: &'static str,
    pub requests: usize,
    /// The mean service time of the real drive, in milliseconds to two digits.
    pub measured_mean_ms: f64,
    /// DiskSim's demerit figure in milliseconds, to three digits.
    pub demerit_ms: f64,
}

/// DiskSim's demerit figures, for comparison. Source: `valid/runvalid` of the DiskSim 4.0 distribution \[bu08\] was run,
/// and the demerit computed from its output as [`fit`] does. The script itself interpolates binned distributions, so
/// the figures that it expects differ by up to 0.02 ms.
#[expect(clippy::approx_constant)] // One of them happens to look like 1/pi.
pub const DISKSIM: [Published; 10] = [
    disksim("atlas10k", "atlas10k.trace", 10_000, 3.89, 0.268),
    disksim("atlas3", "atlas_III.trace", 10_000, 6.26, 0.378),
    disksim("barracuda", "barracuda.trace", 10_000, 6.63, 0.350),
    disksim("cheetah4lp", "cheetah4LP.trace", 10_000, 5.33, 0.318),
    disksim("cheetah9lp", "cheetah9LP.trace", 10_000, 4.27, 0.108),
    disksim("dec-rz26", "dec_rz26.trace", 7_980, 15.81, 0.341),
    disksim("hp-c2247a", "hp_c2247a.trace", 9_999, 15.30, 0.094),
    disksim("hp-c2490a", "hp_c2490a.trace", 9_984, 12.55, 0.256),
    disksim("hp-c3323a", "hp_c3323a.trace", 9_074, 15.76, 0.288),
    disksim("ultrastar18es", "ibm18es.trace", 10_000, 5.26, 0.136),
];

const fn disksim(
    drive: &'static str,
    file: &'static str,
    requests: usize,
    measured_mean_ms: f64,
    demerit_ms: f64,
) -> Published {
    Published { drive, file, requests, measured_mean_ms, demerit_ms }
}

/// DiskSim's result on the trace of `fit`. The trace is recognised by its length and mean, because files get renamed
/// and a figure for another trace would compare nothing. A drive that is not in the catalogue has any name.
pub fn published(drive: &str, fit: &Fit) -> Option<&'static Published> {
    let is_own = Drive::names().all(|name| name != drive);
    let same = |known: &&Published| {
        (known.drive == drive || is_own)
            && known.requests == fit.requests
            && (known.measured_mean_ms - fit.measured_mean_ms).abs() <= 0.005_1 // Two digits, and rounding.
    };
    DISKSIM.iter().find(same)
}
