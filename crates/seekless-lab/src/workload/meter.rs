//! Measuring the phases of a run.

use std::borrow::Cow;
use std::ops::ControlFlow;

use seekless::units::Nanos;

use super::{Outcome, PhaseProgress, Watch};
use crate::LabError;
use crate::measured::Measured;
pub(super) use crate::measured::Unit;
use crate::target::{Coldness, Target, Usage};

/// Measures one phase after another.
pub(super) struct Meter<'a, T> {
    target: &'a T,
    watch: Watch<'a>,
    phases: Vec<Measured>,
    coldness: Coldness,
}

/// A phase under way.
pub(super) struct Running {
    phase: Cow<'static, str>,
    file_bytes: Option<u64>,
    unit: Unit,
    total: u64,
    done: u64,
    bytes: u64,
    began: Nanos,
    usage: Usage,
}

/// Whether a phase ends only when everything is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Durable {
    Yes,
    /// Nothing was written.
    No,
}

/// Lets the caller see a run where nothing is measured.
///
/// # Errors
/// `Interrupted`, when the caller stops the run.
pub(super) fn look(watch: Watch<'_>) -> Result<(), LabError> {
    match watch(PhaseProgress { phase: "between phases", unit: Unit::Files, done: 0, total: 0, elapsed: Nanos::ZERO }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(LabError::Interrupted),
    }
}

impl<'a, T: Target> Meter<'a, T> {
    /// Earlier writes are made durable, so that they are not charged to the run.
    pub(super) async fn start(target: &'a T, watch: Watch<'a>) -> Result<Meter<'a, T>, LabError> {
        target.sync().await?;
        Ok(Meter { target, watch, phases: Vec::new(), coldness: Coldness::Cold })
    }

    /// Begins a phase that will do `total` of `unit`.
    pub(super) fn begin(&self, phase: impl Into<Cow<'static, str>>, unit: Unit, total: u64) -> Running {
        let phase = phase.into();
        let (began, usage) = (self.target.now(), self.target.usage());
        Running { phase, file_bytes: None, unit, total, done: 0, bytes: 0, began, usage }
    }

    /// Records `count` more done, with `bytes` read or written.
    ///
    /// # Errors
    /// `Interrupted`, when the caller stops the run.
    pub(super) fn step(&self, running: &mut Running, count: u64, bytes: u64) -> Result<(), LabError> {
        running.done += count;
        running.bytes += bytes;
        let Running { ref phase, unit, done, total, began, .. } = *running;
        let elapsed = self.target.now().saturating_sub(began);
        match (self.watch)(PhaseProgress { phase, unit, done, total, elapsed }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(LabError::Interrupted),
        }
    }

    pub(super) async fn end(&mut self, running: Running, durable: Durable) -> Result<(), LabError> {
        let calls_ended = self.target.now();
        if durable == Durable::Yes {
            self.target.sync().await?;
        }
        let ended = self.target.now();
        self.phases.push(Measured {
            phase: running.phase.into_owned(),
            file_bytes: running.file_bytes,
            unit: running.unit,
            count: running.done,
            bytes: running.bytes,
            elapsed: ended.saturating_sub(running.began),
            sync: ended.saturating_sub(calls_ended),
            usage: self.target.usage().since(running.usage),
        });
        Ok(())
    }

    /// Makes the following reads come from the device.
    pub(super) async fn drop_caches(&mut self) -> Result<(), LabError> {
        let coldness = self.target.drop_caches().await?;
        if self.coldness == Coldness::Cold {
            self.coldness = coldness;
        }
        Ok(())
    }

    pub(super) fn outcome(self) -> Outcome {
        Outcome { phases: self.phases, coldness: self.coldness }
    }
}

impl Running {
    pub(super) fn name(&self) -> &str {
        &self.phase
    }

    pub(super) fn done(&self) -> u64 {
        self.done
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The phase is one of several with files of different sizes.
    pub(super) fn with_files_of(self, bytes: u64) -> Running {
        Running { file_bytes: Some(bytes), ..self }
    }
}
