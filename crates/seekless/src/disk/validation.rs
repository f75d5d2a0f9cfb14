//! Comparing a model with the drive it stands for.
//!
//! A validation trace holds requests with the service time that the real drive showed and the time that the
//! host then waited before the next request, so that nothing queues and pure service times are compared. The
//! *demerit figure* [rw94] is the root mean square of the horizontal distance between the two distributions of
//! service times. It rewards the right distribution, not the right request: two models that confuse which
//! request is slow look the same. The root mean square over requests is therefore reported too.

use super::drive::Drive;
use super::layout::DriveError;
use super::mechanism::{Hit, Mechanism, Request};
use crate::device::DeviceError;
use crate::units::{Nanos, Sector};

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
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let &[direction, _action, lbn, sectors, service, think] = &fields[..] else {
            return Err(format!("{} fields instead of 6: {line:?}", fields.len()));
        };
        let write = match direction {
            "R" => false,
            "W" => true,
            other => return Err(format!("direction {other:?} is neither R nor W")),
        };
        let micros = |text: &str| match text.parse::<f64>() {
            Ok(micros) if (0.0..1e12).contains(&micros) => Ok(Nanos::from_millis_f64(micros / 1e3)),
            _ => Err(format!("{text:?} is no time in microseconds")),
        };
        let sector = Sector(lbn.parse().map_err(|_| format!("{lbn:?} is no sector number"))?);
        let sectors = sectors.parse().map_err(|_| format!("{sectors:?} is no number of sectors"))?;
        Ok(Measured {
            request: Request { sector, sectors, write, fua: false },
            service: micros(service)?,
            think: micros(think)?,
        })
    }
}

/// One request's answer of the model, beside the measured one.
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
    /// Root mean square difference request by request.
    pub per_request_ms: f64,
    /// Part of the requests whose service time is right to half a millisecond.
    pub within_half_ms: f64,
}

impl Fit {
    /// The demerit figure as a part of the measured mean.
    pub fn demerit(&self) -> f64 {
        self.demerit_ms / self.measured_mean_ms
    }

    /// Modelled over measured mean, minus one.
    pub fn mean_error(&self) -> f64 {
        self.modelled_mean_ms / self.measured_mean_ms - 1.0
    }
}

/// What can go wrong in a replay.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Drive(#[from] DriveError),
    #[error("request {index} of the trace: {error}")]
    Request { index: usize, error: DeviceError },
}

/// Serves the requests one after another, with the trace's think times in between.
///
/// # Errors
/// When the drive record is impossible, or a request lies outside the drive.
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
    }
    Ok(answers)
}

/// Compares the two columns; `None` when there are no answers.
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
