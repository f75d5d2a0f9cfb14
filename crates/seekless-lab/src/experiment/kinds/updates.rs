//! `updates`: one file is updated at random places, with each update durable before the next, or in bursts with pauses
//! between them [wa99 §5.3 to §5.5].

use futures_util::future::{Either, select};
use seekless::rng::Rng;
use seekless::rt::Rt;
use seekless::stack::{Identity, Part, Stack, Usage};
use seekless::units::Nanos;
use serde::Deserialize;

use super::{Bytes, Context, Measure, Read, RunTarget, Workload, WorkloadKind, in_virtual_time, parse};
use crate::LabError;
use crate::run::{SimulatedLeaves, can_be_simulated};
use crate::target::{Target, Vfs};

pub(super) const KIND: WorkloadKind = WorkloadKind {
    name: "updates",
    help: "random updates of one file, synchronous or not, with or without pauses, on modelled devices [wa99 §5.3]",
    dims: &[],
    metrics: &[
        ("update_ms", "time of an update, on average; pauses do not count"),
        ("update_p99_ms", "99 of 100 take no longer"),
        ("overhead_ms", "of an update: what drives need for commands"),
        ("locate_ms", "of an update: seeks, head switches and rotation"),
        ("transfer_ms", "of an update: bytes going by"),
        ("other_ms", "the rest: the processor, and waiting; below zero where several drives work at the same time"),
        ("disk_requests", "requests that drives served, for an update"),
        ("used_share", "blocks in use of all that the file system has"),
    ],
    read: Read::Other(|table| parse::<Updates>(table).map(|updates| Box::new(updates) as Box<dyn Workload>)),
};

/// Its parameters in `[workload]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Updates {
    /// Size of the file, rounded down to whole units.
    file: Bytes,
    #[serde(default = "unit")]
    unit: Bytes,
    updates: u64,
    /// Updates before the measured ones, to reach a steady state.
    #[serde(default)]
    warmup: u64,
    /// Each update is made durable before the next one.
    #[serde(default = "yes")]
    sync: bool,
    /// Only zeroes are written: a modelled disk stores them without memory, so that whole drives can be filled.
    #[serde(default)]
    zeroes: bool,
    /// With `sync`: only every `sync_every`th update is made durable, together with those before it.
    #[serde(default = "one")]
    sync_every: u64,
    /// Bytes that are updated before a pause.
    burst: Option<Bytes>,
    /// Length of a pause, in milliseconds.
    #[serde(default)]
    pause_ms: f64,
}

fn unit() -> Bytes {
    Bytes(4096)
}

fn yes() -> bool {
    true
}

fn one() -> u64 {
    1
}

/// Counters of the stack's drives, in nanoseconds and requests.
#[derive(Clone, Copy, Default)]
struct Counted {
    overhead: u64,
    locate: u64,
    transfer: u64,
    requests: u64,
}

impl Counted {
    fn of(parts: &[Part]) -> Counted {
        let mut counted = Counted::default();
        for (name, value) in parts.iter().flat_map(Part::counters) {
            match name {
                "overhead_ns" => counted.overhead += value,
                "seek_ns" | "rotation_ns" => counted.locate += value,
                "transfer_ns" => counted.transfer += value,
                _ => {}
            }
        }
        // An array counts its own requests, too.
        let drives = parts.last().map(Part::counters).unwrap_or_default();
        counted.requests = drives.into_iter().filter(|(name, _)| *name == "requests").map(|(_, value)| value).sum();
        counted
    }
}

impl Workload for Updates {
    fn check(&self, on: &RunTarget) -> Result<(), String> {
        if self.unit.0 == 0 || self.unit.0 > 16 << 20 || self.file.0 < self.unit.0 || self.updates == 0 {
            return Err(format!("[workload]: no unit of {} fits into {}", self.unit, self.file));
        }
        if !self.zeroes && self.unit.0 < 8 {
            return Err(format!("[workload]: a unit of updates has at least 8 bytes, for a number, not {}", self.unit));
        }
        if !(0.0..=1e9).contains(&self.pause_ms) || self.burst.is_some_and(|burst| burst.0 < self.unit.0) {
            return Err("[workload]: a burst is at least one unit, and a pause no less than nothing".into());
        }
        if self.sync_every == 0 {
            return Err("[workload]: sync_every is at least 1".into());
        }
        match on {
            RunTarget::Stack(stack) if can_be_simulated(stack) => Ok(()),
            _ => Err("a contestant needs `on`, a stack of a file system on modelled devices".into()),
        }
    }

    fn run(&self, on: &RunTarget, context: &Context<'_>) -> Result<Vec<Measure>, String> {
        let RunTarget::Stack(stack) = on else { return self.check(on).map(|()| Vec::new()) };
        Ok(vec![in_virtual_time(context, async |rt, identity, rng| self.update(rt, stack, identity, rng).await)?])
    }
}

impl Updates {
    async fn update(&self, rt: &Rt, stack: &Stack, identity: &Identity, mut rng: Rng) -> Result<Measure, LabError> {
        let mounted = stack.mount(rt, &SimulatedLeaves, identity, Usage::default()).await?;
        let parts = mounted.parts.clone();
        let target = Vfs::new(rt.clone(), mounted);
        let (units, unit) = (self.file.0 / self.unit.0, self.unit.0);
        let mut bytes = vec![0; unit as usize];
        if !self.zeroes {
            rng.fill(&mut bytes);
        }
        let mut open = target.create("updated").await?;
        for index in 0..units {
            target.write(&mut open, index * unit, &bytes).await?;
        }
        target.sync().await?;
        let in_burst = self.burst.map_or(u64::MAX, |burst| burst.0 / unit);
        let mut times: Vec<Nanos> = Vec::new();
        let (mut before, mut used) = (Counted::default(), Counted::default());
        for number in 0..self.warmup + self.updates {
            let is_measured = number >= self.warmup;
            if number == self.warmup {
                before = Counted::of(&parts);
            }
            if !self.zeroes {
                bytes[..8].copy_from_slice(&number.to_le_bytes());
            }
            let start = rt.now();
            target.write(&mut open, rng.below(units) * unit, &bytes).await?;
            if self.sync && (number + 1).is_multiple_of(self.sync_every) {
                target.fsync(&mut open).await?;
            }
            if is_measured {
                times.push(rt.now() - start);
            }
            if (number + 1) % in_burst == 0 && self.pause_ms > 0.0 {
                let at_pause = Counted::of(&parts);
                self.pause(rt, &target).await?;
                // Work in a pause delays no request.
                if is_measured {
                    let after = Counted::of(&parts);
                    before.overhead += after.overhead - at_pause.overhead;
                    before.locate += after.locate - at_pause.locate;
                    before.transfer += after.transfer - at_pause.transfer;
                    before.requests += after.requests - at_pause.requests;
                }
            }
        }
        let after = Counted::of(&parts);
        used.overhead = after.overhead.saturating_sub(before.overhead);
        used.locate = after.locate.saturating_sub(before.locate);
        used.transfer = after.transfer.saturating_sub(before.transfer);
        used.requests = after.requests.saturating_sub(before.requests);
        let failed =
            |cause| LabError::FileSystem { action: "ask for the space of", path: "the file system".into(), cause };
        let space = target.fs().statfs().await.map_err(failed)?;
        target.close(open).await?;
        Ok(self.measure(times, used, 1.0 - space.blocks_free as f64 / space.blocks as f64))
    }

    /// As a mount does while no request is pending: lets the file system work. Work still under way at the end of the
    /// pause delays the next update.
    async fn pause(&self, rt: &Rt, target: &Vfs) -> Result<(), LabError> {
        let until = rt.now() + Nanos::from_millis_f64(self.pause_ms);
        let (fs, clock) = (target.fs().clone(), rt.clone());
        let work = rt.spawn(async move {
            loop {
                let before = clock.now();
                if before >= until || !fs.idle(until).await? || clock.now() == before {
                    return Ok(());
                }
            }
        });
        let ended = select(work, rt.sleep(until - rt.now())).await;
        if let Either::Left((result, rest)) = ended {
            let failed =
                |cause| LabError::FileSystem { action: "use the idle time of", path: "the file system".into(), cause };
            result.map_err(failed)?;
            rest.await;
        }
        Ok(())
    }

    fn measure(&self, mut times: Vec<Nanos>, used: Counted, used_share: f64) -> Measure {
        let count = times.len() as f64;
        // In whole nanoseconds, so that nothing is left where everything is accounted for.
        let all: i128 = times.iter().map(|time| i128::from(time.0)).sum();
        let other = all - [used.overhead, used.locate, used.transfer].map(i128::from).iter().sum::<i128>();
        let mean = times.iter().map(|time| time.as_millis_f64()).sum::<f64>() / count;
        times.sort_unstable();
        let last = times.get((times.len() * 99).div_ceil(100).saturating_sub(1)).copied().unwrap_or(Nanos::ZERO);
        let each = |nanos: u64| Nanos(nanos).as_millis_f64() / count;
        let (overhead, locate, transfer) = (each(used.overhead), each(used.locate), each(used.transfer));
        Measure::new([
            ("update_ms", Some(mean)),
            ("update_p99_ms", Some(last.as_millis_f64())),
            ("overhead_ms", Some(overhead)),
            ("locate_ms", Some(locate)),
            ("transfer_ms", Some(transfer)),
            ("other_ms", Some(other as f64 / 1e6 / count)),
            ("disk_requests", Some(used.requests as f64 / count)),
            ("used_share", Some(used_share)),
        ])
    }
}
