//! Reads with their times, and the angles that follow from them.

use std::ops::ControlFlow;

use super::angles::{Cluster, circular_median, largest_cluster};
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

/// How often a sector is read at most until its angles agree. Where two of three answers are late, it takes some 14 reads.
const READS_MAX: usize = 32;
/// This part of the sectors is not waited for.
const OPEN_PART: usize = 16;

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
    /// The largest share of late answers so far.
    pub(super) late_most: f64,
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
            late_most: 0.0,
            step: "rotation",
            progress,
        }
    }

    pub(super) fn begin(&mut self, step: &'static str) {
        self.step = step;
    }

    pub(super) fn start_clock(&mut self, clock: Clock) {
        self.late_most = clock.late;
        self.clock = Some(clock);
    }

    /// The clock, which is there from the second step on.
    pub(super) fn clock(&self) -> &Clock {
        self.clock.as_ref().unwrap_or_else(|| unreachable!("the first step finds the clock"))
    }

    /// The largest share of late answers so far, once it can be said which are.
    pub(super) fn late_most_percent(&self) -> Option<u32> {
        self.clock.as_ref().map(|_| (100.0 * self.late_most).round() as u32)
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
        let mut found: Vec<Vec<f64>> = vec![Vec::new(); sectors.len()];
        let mut open: Vec<usize> = (0..sectors.len()).collect();
        while !self.are_enough(open.len(), sectors.len()) {
            self.pass(sectors, &open, &mut found).await?;
            open.retain(|&index| self.angle(&found[index]).is_none());
        }
        Ok(found.iter().map(|angles| self.angle(angles).unwrap_or_else(|| self.cluster(angles).angle)).collect())
    }

    /// The angle of a sector that was read at these angles; `None` where that is not enough to say it. Where many answers are late, it takes
    /// as many as agree.
    pub(super) fn angle(&self, angles: &[f64]) -> Option<f64> {
        let clock = self.clock();
        if clock.is_disturbed() {
            let cluster = self.cluster(angles);
            return (cluster.is_settled(clock.late) || angles.len() >= READS_MAX).then_some(cluster.angle);
        }
        let reads = match clock.jitter {
            jitter if jitter < JITTER_LOW => 1,
            jitter if jitter < JITTER_HIGH => 3,
            _ => 5,
        };
        (angles.len() >= reads).then(|| circular_median(angles))
    }

    fn cluster(&self, angles: &[f64]) -> Cluster {
        largest_cluster(angles, self.clock().width())
    }

    /// Whether to end while so many of all sectors are `open`. Each pass takes as many reads as there are places, however few are open: where many
    /// answers are late, the last ones are not waited for.
    pub(super) fn are_enough(&self, open: usize, all: usize) -> bool {
        open == 0 || (self.clock().is_disturbed() && open * OPEN_PART <= all)
    }

    /// Reads the sectors that are `open` once, and adds their angles to `found`.
    pub(super) async fn pass(
        &mut self,
        sectors: &[u64],
        open: &[usize],
        found: &mut [Vec<f64>],
    ) -> Result<(), MeasureError> {
        let mut order: Vec<Option<usize>> = open.iter().copied().map(Some).collect();
        let others = self.plan.places.saturating_sub(open.len()).max(REFERENCES);
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
        Ok(())
    }

    /// Reads a place of known angle, and corrects the clock.
    async fn refer(&mut self) -> Result<(), MeasureError> {
        let count = self.clock().references.len() as u64;
        let index = self.rng.below(count) as usize;
        let sector = self.clock().references[index].0;
        let read = self.read(sector).await?;
        if let Some(clock) = &mut self.clock {
            clock.correct(index, read.done);
            clock.watch(index, read.service(), read.done);
            self.late_most = self.late_most.max(clock.late);
        }
        Ok(())
    }
}
