//! What a model answers to a case: the same closed loop.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::super::controller::Controller;
use super::super::drive::{Fill, FlashError, Model, Ssd, UNIT_BYTES};
use super::super::lane::Lane;
use super::cases::{Case, Operation};
use crate::units::{Nanos, SECTOR_BYTES};

/// The host that measured, one thread with one queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Host {
    /// Its processor between a completion and the next command of the same slot. The latency does not include it.
    pub turn: Nanos,
}

impl Host {
    /// io_uring on the machine of \[do23\]: at a depth of 1, the time per request beyond the latency.
    const IO_URING: Host = Host { turn: Nanos(300) };

    /// What handed the commands of a case over; what is not known counts as io_uring.
    fn of(_: &Case) -> Host {
        Host::IO_URING
    }
}

/// What the model says for a case.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Predicted {
    pub iops: f64,
    pub latency_us: f64,
}

/// Runs the closed loop of `case` on a drive that is fresh, or full in order if it reads. `None` for operations that it does
/// not have.
///
/// # Errors
/// When the drive contradicts itself.
pub fn predict(model: &Model, case: &Case) -> Result<Option<Predicted>, FlashError> {
    let host = Host::of(case);
    match model {
        Model::Ssd(drive) => predict_ssd(drive, host, case),
    }
}

fn predict_ssd(drive: &Ssd, host: Host, case: &Case) -> Result<Option<Predicted>, FlashError> {
    let (write, random) = match case.operation {
        Operation::Write => (true, false),
        Operation::WriteRandom => (true, true),
        Operation::Read => (false, false),
        Operation::ReadRandom => (false, true),
        Operation::WriteScheduled | Operation::Append => return Ok(None),
    };
    let fill = if write { Fill::Fresh } else { Fill::Sequential };
    let mut controller = Controller::new(drive, fill)?;
    let sectors = case.block_bytes.max(SECTOR_BYTES) / SECTOR_BYTES;
    let blocks = drive.bytes / (sectors * SECTOR_BYTES);
    let slots = u64::from(case.depth) * u64::from(case.zones);
    let mut address = Addresses { blocks, random, next: 0, state: 1 };
    Ok(Some(closed_loop(drive.buffer.bytes / case.block_bytes.max(UNIT_BYTES), slots, host, |now, _| {
        let first = address.next() * sectors;
        match write {
            true => controller.write(now, first, sectors, false),
            false => controller.read(now, first, sectors),
        }
    })))
}

struct Addresses {
    blocks: u64,
    random: bool,
    next: u64,
    state: u64,
}

impl Addresses {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.next += 1;
        match self.random {
            true => ((u128::from(self.state) * u128::from(self.blocks)) >> 64) as u64,
            false => (self.next - 1) % self.blocks,
        }
    }
}

/// `slots` commands outstanding, each followed by the next of its slot; `serve` says when one is done that comes at a time.
/// `buffered`: commands that fit into the write buffer, of which twelve times as many run before the measurement.
pub(super) fn closed_loop(
    buffered: u64,
    slots: u64,
    host: Host,
    mut serve: impl FnMut(Nanos, u64) -> Nanos,
) -> Predicted {
    let warm = 12 * buffered + 4 * slots + 400;
    let measured = (4 * slots).max(2000);
    let mut thread = Lane::default();
    let mut ready: BinaryHeap<Reverse<(Nanos, u64)>> = (0..slots).map(|slot| Reverse((Nanos::ZERO, slot))).collect();
    let (mut latencies, mut cycles) = (0, 0);
    for command in 0..warm + measured {
        let Reverse((now, slot)) = ready.pop().expect("there are slots");
        let sent = thread.book(now, now, host.turn) + host.turn;
        let done = serve(sent, slot);
        if command >= warm {
            latencies += (done - sent).0;
            cycles += (done - now).0;
        }
        ready.push(Reverse((done, slot)));
    }
    // Each slot has one command after another, so that throughput follows from the mean cycle. Counting within a
    // window would be less exact: completions come in waves.
    let mean = |sum: u64| sum as f64 / measured as f64;
    Predicted { iops: slots as f64 / mean(cycles.max(1)) * 1e9, latency_us: mean(latencies) / 1e3 }
}
