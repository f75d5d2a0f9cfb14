//! Measurements of a run of a workload, and published figures for such runs.

use seekless::units::Nanos;
use serde::Serialize;

use crate::target::{Coldness, Usage};

/// Unit of a phase's work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    Files,
    Bytes,
    Transactions,
}

/// Measurements of one phase.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    pub phase: String,
    /// Size of the files, in a phase that is repeated with several.
    pub file_bytes: Option<u64>,
    pub unit: Unit,
    /// In this unit; bytes are counted anyway.
    pub count: u64,
    /// Read or written by the program.
    pub bytes: u64,
    /// From the first call until everything is durable.
    pub elapsed: Nanos,
    /// Of this, the time of making durable, after the last call returned.
    pub sync: Nanos,
    pub usage: Usage,
}

/// Which clock a run used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    Virtual,
    Real,
}

/// A contestant without a result.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Failed {
    /// As given by the user.
    pub contestant: String,
    pub error: String,
}

/// A run and its measurements.
#[derive(Clone, PartialEq, Debug)]
pub struct Run {
    /// As given by the user.
    pub contestant: String,
    /// Its parts, top first.
    pub parts: Vec<String>,
    pub clock: Clock,
    /// Name of the processor profile, in virtual time.
    pub profile: Option<&'static str>,
    pub phases: Vec<Measured>,
    pub coldness: Coldness,
    /// The parts' counters over the whole run, by part.
    pub counters: Vec<(String, Vec<(&'static str, u64)>)>,
}

impl Run {
    /// The first phase of this name.
    pub fn phase(&self, phase: &str) -> Option<&Measured> {
        self.phases.iter().find(|measured| measured.phase == phase)
    }
}

impl Measured {
    /// Of its unit, in a second; `None` when it took no time, as on storage that costs none.
    pub fn per_second(&self) -> Option<f64> {
        self.rate(self.count)
    }

    /// Bytes that the program read or wrote, in a second.
    pub fn bytes_per_second(&self) -> Option<f64> {
        self.rate(self.bytes)
    }

    /// True when the rate is compared in bytes: where the phase is about bytes, or its files have several sizes.
    pub fn is_about_bytes(&self) -> bool {
        self.bytes > 0 && (self.unit == Unit::Bytes || self.file_bytes.is_some())
    }

    fn rate(&self, count: u64) -> Option<f64> {
        (self.elapsed > Nanos::ZERO).then(|| count as f64 / self.elapsed.as_secs_f64())
    }

    /// Part of the time during which the processor was busy.
    pub fn processor_busy(&self) -> Option<f64> {
        self.share(self.usage.processor?)
    }

    /// Part of the time during which the disk was busy.
    pub fn disk_busy(&self) -> Option<f64> {
        self.share(self.usage.disk?)
    }

    /// `busy` as a part of the time; `None` when the phase took none.
    pub fn share(&self, busy: Nanos) -> Option<f64> {
        (self.elapsed > Nanos::ZERO).then(|| busy.as_secs_f64() / self.elapsed.as_secs_f64())
    }

    /// The bottleneck of the phase: the busier of processor and disk, if it was busy most of the time.
    pub fn bound(&self) -> Bound {
        const MOST: f64 = 0.5;
        match (self.processor_busy(), self.disk_busy()) {
            (Some(processor), Some(disk)) if processor.max(disk) < MOST => Bound::Neither,
            (Some(processor), Some(disk)) if processor > disk => Bound::Processor,
            (Some(_), Some(_)) => Bound::Disk,
            _ => Bound::Unknown,
        }
    }
}

/// See [`Measured::bound`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    Processor,
    Disk,
    Neither,
    /// Not both are known.
    Unknown,
}

/// A published statement about a phase, and the result of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    pub contestant: String,
    pub phase: String,
    /// What is compared.
    pub quantity: &'static str,
    /// Where it was published.
    pub source: &'static str,
    pub published: String,
    pub measured: String,
    /// Measured over published less one, where both are numbers.
    pub deviation: Option<f64>,
    /// The processor profile was calibrated on this figure, so agreement proves nothing.
    pub calibrated: bool,
    /// Why the two may differ.
    pub remark: &'static str,
}
