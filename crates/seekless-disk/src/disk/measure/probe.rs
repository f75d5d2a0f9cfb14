//! Reads with their times, and the angles that follow from them.

use std::ops::ControlFlow;

use super::angles::circular_median;
use super::clock::Clock;
use super::{MeasureError, Plan, Progress};
use crate::device::{BlockDevice, Buf};
use crate::rng::Rng;
use crate::rt::Rt;
use crate::units::{Nanos, Sector};

/// When a read began and ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Timed {
    pub(super) start: Nanos,
    pub(super) done: Nanos,
}

impl Timed {
    pub(super) fn service(self) -> Nanos {
        self.done.saturating_sub(self.start)
    }
}

/// Reads of a known angle in a pass over all places: they keep the clock right.
const REFERENCES: usize = 4;

/// From this jitter on, in revolutions, an angle is the median of several reads.
const JITTER_LOW: f64 = 0.004;
const JITTER_HIGH: f64 = 0.02;

pub(super) struct Probe<'a> {
    pub(super) rt: &'a Rt,
    pub(super) device: &'a dyn BlockDevice,
    pub(super) plan: Plan,
    pub(super) rng: Rng,
    pub(super) sectors: u64,
    /// Sectors of the smallest read.
    pub(super) block: u64,
    pub(super) reads: u64,
    pub(super) notes: Vec<String>,
    began: Nanos,
    clock: Option<Clock>,
    step: &'static str,
    progress: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
}

impl<'a> Probe<'a> {
    pub(super) fn new(
        rt: &'a Rt,
        device: &'a dyn BlockDevice,
        plan: Plan,
        progress: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Probe<'a> {
        let geometry = device.geometry();
        let block = u64::from(geometry.block_bytes) / 512;
        Probe {
            rt,
            device,
            plan,
            rng: Rng::new(plan.seed),
            sectors: geometry.sectors / block * block,
            block,
            reads: 0,
            notes: Vec::new(),
            began: rt.now(),
            clock: None,
            step: "rotation",
            progress,
        }
    }

    pub(super) fn begin(&mut self, step: &'static str) {
        self.step = step;
    }

    pub(super) fn start_clock(&mut self, clock: Clock) {
        self.clock = Some(clock);
    }

    /// The clock, which is there from the second step on.
    pub(super) fn clock(&self) -> &Clock {
        self.clock.as_ref().unwrap_or_else(|| unreachable!("the first step finds the clock"))
    }

    pub(super) fn is_late(&self) -> bool {
        self.rt.now().saturating_sub(self.began) > self.plan.time
    }

    /// Reads the block of `sector`.
    pub(super) async fn read(&mut self, sector: u64) -> Result<Timed, MeasureError> {
        self.read_blocks(sector, 1).await
    }

    pub(super) async fn read_blocks(&mut self, sector: u64, blocks: u64) -> Result<Timed, MeasureError> {
        if (self.progress)(Progress { step: self.step, reads: self.reads }).is_break() {
            return Err(MeasureError::Stopped { reads: self.reads });
        }
        self.reads += 1;
        let blocks = blocks.min(self.sectors / self.block);
        let first = (sector / self.block * self.block).min(self.sectors - blocks * self.block);
        let buf = Buf::dirty((blocks * self.block * 512) as usize);
        let start = self.rt.now();
        self.device.read(Sector(first), buf).await?;
        // How much there is to do is bounded by the plan.
        self.rt.made_progress();
        Ok(Timed { start, done: self.rt.now() })
    }

    /// The angles of some sectors in revolutions, each from 0 to 1, as far as reads say: all are read in turn, in a random order,
    /// and other places between them, so that the cache answers none (E1).
    pub(super) async fn angles(&mut self, sectors: &[u64]) -> Result<Vec<f64>, MeasureError> {
        let repeats = match self.clock().jitter {
            jitter if jitter < JITTER_LOW => 1,
            jitter if jitter < JITTER_HIGH => 3,
            _ => 5,
        };
        let mut found: Vec<Vec<f64>> = vec![Vec::new(); sectors.len()];
        for _ in 0..repeats {
            let mut order: Vec<Option<usize>> = (0..sectors.len()).map(Some).collect();
            let others = self.plan.places.saturating_sub(sectors.len()).max(REFERENCES);
            order.extend(vec![None; others]);
            self.rng.shuffle(&mut order);
            for place in order {
                match place {
                    Some(index) => {
                        let done = self.read(sectors[index]).await?.done;
                        found[index].push(self.clock().angle(done));
                    }
                    None => self.refer().await?,
                }
            }
        }
        Ok(found.iter().map(|angles| circular_median(angles)).collect())
    }

    /// Reads a place of known angle, and corrects the clock.
    async fn refer(&mut self) -> Result<(), MeasureError> {
        let count = self.clock().references.len() as u64;
        let index = self.rng.below(count) as usize;
        let sector = self.clock().references[index].0;
        let done = self.read(sector).await?.done;
        if let Some(clock) = &mut self.clock {
            clock.correct(index, done);
        }
        Ok(())
    }
}
