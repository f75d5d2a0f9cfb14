//! What a model answers to a case: the same closed loop.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::super::controller::Controller;
use super::super::drive::{Fill, FlashError, Model, Ssd, UNIT_BYTES, Zns};
use super::super::lane::Lane;
use super::super::zone_controller::ZoneController;
use super::cases::{FioRun, Operation};
use crate::device::{DeviceError, ZoneAction};
use crate::units::{Nanos, SECTOR_BYTES, Sector};

/// The host that measured: one thread for each zone, with one queue. Its share is no property of the drive; these figures are
/// differences between the same operations of \[do23\] with io_uring, with a scheduler, and with SPDK, which has no kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Host {
    /// Its processor between a completion and the next command of the same slot. The latency does not include it.
    turn: Nanos,
    /// Its part of the latency.
    latency: Nanos,
    /// The same, of commands with more than two pages.
    list: Nanos,
}

impl Host {
    fn of(case: &FioRun) -> Host {
        if case.engine == "spdk" {
            return Host { turn: Nanos(380), latency: Nanos::ZERO, list: Nanos::ZERO };
        }
        let scheduler = if case.is_scheduled() { Nanos(1800) } else { Nanos::ZERO };
        Host { turn: Nanos(400), latency: Nanos(1400) + scheduler, list: Nanos(2400) }
    }

    fn latency(&self, bytes: u64) -> Nanos {
        match bytes > 2 * UNIT_BYTES {
            true => self.latency + self.list,
            false => self.latency,
        }
    }
}

/// What the model says for a case.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Predicted {
    pub iops: f64,
    pub latency_us: f64,
}

/// Largest command that a scheduler makes of several writes: 128 KiB, which the kernel takes for drives with such a limit.
const JOINED_BYTES: u64 = 128 << 10;

/// Runs the closed loop of `case` on a drive that is fresh, or full in order if it reads. `None` for operations that it does
/// not have, such as several writes at once to one zone.
///
/// # Errors
/// When the drive contradicts itself.
pub fn predict(model: &Model, case: &FioRun) -> Result<Option<Predicted>, FlashError> {
    match model {
        Model::Ssd(drive) => predict_ssd(drive, case),
        Model::Zns(drive) => predict_zns(drive, case),
    }
}

fn predict_ssd(drive: &Ssd, case: &FioRun) -> Result<Option<Predicted>, FlashError> {
    let (write, random) = match case.operation {
        Operation::Write => (true, false),
        Operation::WriteRandom => (true, true),
        Operation::Read => (false, false),
        Operation::ReadRandom => (false, true),
        Operation::WriteScheduled | Operation::Append => return Ok(None),
    };
    let fill = if write { Fill::Fresh } else { Fill::Sequential };
    let mut controller = Controller::new(drive, fill, case.sector_bytes() as u32)?;
    let sectors = case.block_bytes.max(SECTOR_BYTES) / SECTOR_BYTES;
    let blocks = drive.bytes / (sectors * SECTOR_BYTES);
    if blocks == 0 {
        return Ok(None);
    }
    let mut next = Random(1);
    let mut sequential = 0;
    let serve = |now: Nanos, _: u32, _: u64| {
        let block = if random { next.below(blocks) } else { sequential % blocks };
        sequential += 1;
        Ok(match write {
            true => controller.write(now, block * sectors, sectors, false),
            false => controller.read(now, block * sectors, sectors),
        })
    };
    closed_loop(case, drive.buffer.bytes, serve).map(Some)
}

fn predict_zns(drive: &Zns, case: &FioRun) -> Result<Option<Predicted>, FlashError> {
    let outside = case.operation == Operation::WriteRandom
        || (case.operation == Operation::Write && case.depth > 1)
        || case.zones > drive.zones
        || case.block_bytes > drive.capacity_bytes
        || (case.operation == Operation::WriteScheduled && JOINED_BYTES > drive.capacity_bytes)
        || (case.is_write() && [drive.open_max, drive.active_max].iter().any(|max| (1..case.zones).contains(max)));
    if outside {
        return Ok(None);
    }
    let fill = if case.is_write() { Fill::Fresh } else { Fill::Sequential };
    let mut controller = ZoneController::new(drive, fill, case.sector_bytes() as u32)?;
    let block = case.block_bytes.max(SECTOR_BYTES) / SECTOR_BYTES;
    let shape = drive.shape();
    let mut random = Random(1);
    // Of each job: its zone, and its place there.
    let mut jobs: Vec<(u32, u64)> = (0..case.zones).map(|zone| (zone, 0)).collect();
    let serve = |now: Nanos, job: u32, commands: u64| {
        let sectors = commands * block;
        if case.operation == Operation::ReadRandom {
            let (zone, place) = (random.below(shape.count.into()), random.below(shape.capacity_sectors / block));
            return Ok(controller.read(now, Sector(zone * shape.zone_sectors + place * block), sectors));
        }
        let wrong = |error: DeviceError| FlashError(error.to_string());
        let (zone, place) = jobs[job as usize];
        let (zone, place) = match place + sectors > shape.capacity_sectors {
            false => (zone, place),
            // Jobs go on with the zones behind those of all.
            true if !case.is_write() => ((zone + case.zones) % shape.count, 0),
            true => {
                controller.manage(now, zone, ZoneAction::Finish).map_err(wrong)?;
                // On a small drive a zone's turn comes again, while a slower job may still be in the next one.
                let is_free = |next: &u32| *next == zone || jobs.iter().all(|(other, _)| other != next);
                let mut behind = (0..shape.count).map(|step| (zone + case.zones + step) % shape.count);
                let next = behind.find(is_free).unwrap_or(zone);
                controller.empty(now, next).map_err(wrong)?;
                (next, 0)
            }
        };
        jobs[job as usize] = (zone, place + sectors);
        let at = shape.start(zone) + place;
        let done = match case.operation {
            Operation::Append => controller.append(now, zone, sectors, false).map(|(_, done)| done),
            Operation::Read => Ok(controller.read(now, at, sectors)),
            _ => controller.write(now, at, sectors, false),
        };
        done.map_err(wrong)
    };
    closed_loop(case, drive.buffer.bytes, serve).map(Some)
}

/// Numbers for addresses; the low bits of such a generator are poor, and [`Random::below`] uses the high ones.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0) * u128::from(bound)) >> 64) as u64
    }
}

/// A job, which is a thread of the host with a zone of its own, and with a scheduler in front of it where the case has one.
#[derive(Default)]
struct Job {
    thread: Lane,
    /// Slots whose write waits for the one before, and since when.
    waiting: VecDeque<(Nanos, u64)>,
    is_busy: bool,
}

/// What happens next.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A command of the scheduler is complete, which joined the writes of these slots.
    Completed(Vec<(Nanos, u64)>),
    /// A slot's command is complete, and the next one can be made.
    Ready(u64),
}

/// Commands outstanding in slots, each followed by the next of its slot. `serve` says when a command is done that comes at a
/// time, from a job, and is made of so many equal ones behind each other.
///
/// Before the measurement the write buffer fills, twelve times over.
///
/// # Errors
/// Those of `serve`: a refused command has no time.
fn closed_loop(
    case: &FioRun,
    buffer_bytes: u64,
    mut serve: impl FnMut(Nanos, u32, u64) -> Result<Nanos, FlashError>,
) -> Result<Predicted, FlashError> {
    let (host, depth) = (Host::of(case), u64::from(case.depth));
    let slots = depth * u64::from(case.zones);
    let buffered = if case.is_write() { 12 * buffer_bytes / case.block_bytes.max(UNIT_BYTES) } else { 0 };
    let warm = buffered + 4 * slots + 400;
    let measured = (4 * slots).max(2000);
    let joins = case.operation == Operation::WriteScheduled;
    // Pieces of pages are not joined: the list of a command has whole pages but for its ends.
    let joined_most = if case.block_bytes < UNIT_BYTES { 1 } else { (JOINED_BYTES / case.block_bytes).max(1) };

    let mut jobs: Vec<Job> = (0..case.zones).map(|_| Job::default()).collect();
    let mut events: BinaryHeap<Reverse<(Nanos, Event)>> =
        (0..slots).map(|slot| Reverse((Nanos::ZERO, Event::Ready(slot)))).collect();
    let mut ready = vec![Nanos::ZERO; slots as usize];
    let (mut latencies, mut cycles, mut completed) = (0, 0, 0);
    while completed < warm + measured {
        let Reverse((now, event)) = events.pop().expect("there are slots");
        let mut finish = |slot: u64, sent: Nanos, done: Nanos, ready: &mut [Nanos]| {
            completed += 1;
            if completed > warm {
                latencies += (done - sent).0;
                cycles += (done - ready[slot as usize]).0;
            }
            ready[slot as usize] = done;
        };
        let job = match &event {
            Event::Ready(slot) => (slot / depth) as u32,
            Event::Completed(batch) => (batch[0].1 / depth) as u32,
        };
        let state = &mut jobs[job as usize];
        match event {
            Event::Ready(slot) if joins => {
                let sent = state.thread.book(now, now, host.turn) + host.turn;
                state.waiting.push_back((sent, slot));
            }
            Event::Ready(slot) => {
                let sent = state.thread.book(now, now, host.turn) + host.turn;
                let done = serve(sent, job, 1)? + host.latency(case.block_bytes);
                finish(slot, sent, done, &mut ready);
                events.push(Reverse((done, Event::Ready(slot))));
                continue;
            }
            Event::Completed(batch) => {
                state.is_busy = false;
                for (sent, slot) in batch {
                    finish(slot, sent, now, &mut ready);
                    events.push(Reverse((now, Event::Ready(slot))));
                }
            }
        }
        if !state.is_busy && !state.waiting.is_empty() {
            state.is_busy = true;
            let count = state.waiting.len().min(joined_most as usize);
            let batch: Vec<_> = state.waiting.drain(..count).collect();
            let at = batch.iter().fold(now, |at, (sent, _)| at.max(*sent));
            let latency = host.latency(case.block_bytes * count as u64);
            let done = serve(now, job, count as u64)? + latency + (at - now);
            events.push(Reverse((done, Event::Completed(batch))));
        }
    }
    // Each slot has one command after another, so that throughput follows from the mean cycle. Counting within a window would
    // be less exact: completions come in waves.
    let mean = |sum: u64| sum as f64 / measured as f64;
    Ok(Predicted { iops: slots as f64 / mean(cycles.max(1)) * 1e9, latency_us: mean(latencies) / 1e3 })
}
