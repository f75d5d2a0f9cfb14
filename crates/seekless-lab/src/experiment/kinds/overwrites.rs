//! `overwrites`: blocks of files on a log-structured file system are overwritten, and its cleaner makes room; beside it
//! the simulator of cleaning, with the same writes in a log of the same segments [ro92 §3.4].
//!
//! The writes between two syncs reach the log together, each block once. So the simulator gets each block of a round
//! once too, in the order of the blocks, which is the order in which the file system writes them.

use seekless::cleaning::patterns::{DISCARD, Given, Pattern};
use seekless::cleaning::policy::{Limits, Trigger};
use seekless::cleaning::{PatternSpec, PolicySpec};
use seekless::rng::Rng;
use seekless::rt::Rt;
use seekless::stack::{Identity, Part, Stack, Usage};
use seekless::units::{KIB, Nanos, SECTOR_BYTES};
use serde::Deserialize;

use super::beside::{self, BLOCK_BYTES, LogGeometry, counter};
use super::replay::FlashCounts;
use super::{Context, Measure, Read, RunTarget, Workload, WorkloadKind, in_virtual_time, parse};
use crate::LabError;
use crate::run::SimulatedLeaves;
use crate::target::{Target, Vfs};

pub(super) const KIND: WorkloadKind = WorkloadKind {
    name: "overwrites",
    help: "blocks of files on a log are overwritten in any pattern: what cleaning costs it, beside the simulator",
    dims: &[],
    metrics: &[
        ("write_amplification", "bytes that went to the log for each byte of file data that the user wrote to it"),
        ("write_cost", "the same, and bytes that the cleaner read"),
        ("metadata_share", "metadata in the log for each byte of file data that the user wrote to it"),
        ("moved_share", "data that the cleaner moved for each byte of file data that the user wrote to the log"),
        ("cleaned_utilisation", "of the segments that the cleaner read: bytes moved for each byte read"),
        ("cleaned_segments", "segments that the cleaner read"),
        ("live_share", "live bytes of all bytes of the log's segments, metadata included, at the end"),
        ("clean_share", "clean segments of all, on average over the syncs"),
        (
            "waiting_share",
            "segments that are empty and wait until the log may use them, of all, on average over the syncs",
        ),
        ("summary_share", "summaries and padding of all bytes that went to the log"),
        ("unfilled_share", "what was left at the ends of segments, for each byte that went to the log"),
        ("checkpoints", "checkpoints"),
        (
            "simulated_amplification",
            "blocks written for each block of the user by the simulator, which has no metadata",
        ),
        ("over_simulated", "write amplification divided by that of the simulator"),
        (
            "flash_amplification",
            "units that a flash drive below programmed for each unit that reached it, without the journal of its mapping",
        ),
        ("zones_amplification", "bytes that a store on zones wrote for each byte that the log wrote to it"),
        (
            "whole_amplification",
            "write amplification of the log times that of the store on zones and of the flash drive below",
        ),
        ("sync_ms", "time of a sync, on average"),
        ("sync_p50_ms", "the median"),
        ("sync_p99_ms", "99 of 100 take no longer"),
        ("sync_p999_ms", "999 of 1000 take no longer"),
        ("sync_max_ms", "the longest"),
        (
            "write_max_ms",
            "the longest time of a write before it, which waits for the cleaner where no segment is clean",
        ),
    ],
    read: Read::Other(|table| parse::<Overwrites>(table).map(|work| Box::new(work) as Box<dyn Workload>)),
};

/// Its parameters in `[workload]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Overwrites {
    /// As [`PatternSpec::parse`] takes it.
    pattern: String,
    /// File data as a share of all segments of the log, in per cent.
    live_percent: f64,
    /// The data is spread evenly over so many files.
    #[serde(default = "one")]
    files: u64,
    /// Spreads the pattern's blocks over the files in an order of no meaning. Patterns have their hot blocks first, and a
    /// cleaner that keeps the order of files would find them together for nothing.
    #[serde(default = "scattered")]
    scatter: bool,
    /// Blocks written before and while it is measured, in multiples of the data.
    #[serde(default = "four")]
    warm_up: f64,
    #[serde(default = "four")]
    writes: f64,
    /// Blocks after which everything is made durable.
    #[serde(default = "round")]
    sync_blocks: u64,
    /// From one write to the next, so that blocks have ages.
    #[serde(default = "tenth")]
    pause_ms: f64,
    /// The policy that the simulator uses; none when empty.
    #[serde(default)]
    simulated: String,
    #[serde(default)]
    batch_blocks: u64,
    #[serde(default)]
    reserve_segments: u32,
    #[serde(default)]
    target_segments: u32,
}

fn one() -> u64 {
    1
}

fn scattered() -> bool {
    true
}

fn four() -> f64 {
    4.0
}

fn round() -> u64 {
    256
}

fn tenth() -> f64 {
    0.1
}

/// Bytes of a write that fills a file.
const FILL_BYTES: u64 = 256 * KIB;

/// Counters of the log, in bytes and segments.
#[derive(Clone, Copy, Default)]
pub(super) struct Counted {
    pub log: u64,
    pub data: u64,
    metadata: u64,
    pub moved: u64,
    summaries: u64,
    unfilled: u64,
    checkpoints: u64,
    pub read: u64,
    pub segments_read: u64,
    /// That became clean and were not read.
    pub segments_empty: u64,
    pub live: u64,
    store: StoreCounts,
    flash: FlashCounts,
}

/// What a store on zones has counted, in sectors.
#[derive(Clone, Copy, Default)]
struct StoreCounts {
    stored: u64,
    /// Moved to gain or cut off spans, padded, and records in two copies.
    added: u64,
}

impl StoreCounts {
    fn of(parts: &[Part]) -> StoreCounts {
        let value = |name| counter(parts, name).unwrap_or(0);
        let added = value("sectors_moved") + value("sectors_padded") + value("record_bytes") / SECTOR_BYTES;
        StoreCounts { stored: value("sectors_stored"), added }
    }

    /// Sectors that reached the zones for each that was written to a span; `None` without a store that was written.
    fn amplification(&self) -> Option<f64> {
        (self.stored > 0).then(|| (self.stored + self.added) as f64 / self.stored as f64)
    }
}

impl Counted {
    pub(super) fn of(parts: &[Part]) -> Counted {
        let value = |name| counter(parts, name).unwrap_or(0);
        Counted {
            log: value("log_bytes"),
            data: value("log_data_bytes"),
            metadata: value("log_metadata_bytes"),
            moved: value("log_cleaned_bytes"),
            summaries: value("log_summary_bytes"),
            unfilled: value("log_unfilled_bytes"),
            checkpoints: value("checkpoints"),
            read: value("cleaner_read_bytes"),
            segments_read: value("cleaner_segments_read"),
            segments_empty: value("cleaner_segments_empty"),
            live: value("live_bytes"),
            store: StoreCounts::of(parts),
            flash: {
                let counters = parts.iter().map(|part| (String::new(), part.counters()));
                FlashCounts::of(&counters.collect::<Vec<_>>())
            },
        }
    }

    pub(super) fn since(self, earlier: Counted) -> Counted {
        Counted {
            log: self.log - earlier.log,
            data: self.data - earlier.data,
            metadata: self.metadata - earlier.metadata,
            moved: self.moved - earlier.moved,
            summaries: self.summaries - earlier.summaries,
            unfilled: self.unfilled - earlier.unfilled,
            checkpoints: self.checkpoints - earlier.checkpoints,
            read: self.read - earlier.read,
            segments_read: self.segments_read - earlier.segments_read,
            segments_empty: self.segments_empty - earlier.segments_empty,
            live: self.live,
            store: StoreCounts {
                stored: self.store.stored - earlier.store.stored,
                added: self.store.added - earlier.store.added,
            },
            flash: self.flash.since(earlier.flash),
        }
    }
}

/// What reached the log.
#[derive(Default)]
struct Recorded {
    /// The blocks that were written, in the order in which they reached the log.
    blocks: Vec<u32>,
    /// How many of these were the warm-up.
    warm_up: usize,
}

impl Workload for Overwrites {
    fn check(&self, on: &RunTarget) -> Result<(), String> {
        PatternSpec::parse(&self.pattern).map_err(|problem| format!("[workload]: {problem}"))?;
        if !self.simulated.is_empty() {
            PolicySpec::parse(&self.simulated).map_err(|problem| format!("[workload]: {problem}"))?;
        }
        if self.files == 0 || self.sync_blocks == 0 || !(0.0..=1e6).contains(&self.pause_ms) {
            return Err("[workload]: files and sync_blocks are at least 1, and pause_ms no less than 0".into());
        }
        beside::check(self.live_percent, self.warm_up, self.writes, on)
    }

    fn run(&self, on: &RunTarget, context: &Context<'_>) -> Result<Vec<Measure>, String> {
        let RunTarget::Stack(stack) = on else { return self.check(on).map(|()| Vec::new()) };
        let seed = context.seed;
        let measured = async |rt: &Rt, identity: &Identity, rng| self.overwrite(rt, stack, identity, seed, rng).await;
        let Measured { log, counted, recorded, blocks, times, kept } = in_virtual_time(context, measured)?;
        let simulated = match self.simulated.is_empty() {
            true => None,
            false => Some(self.simulate(log, recorded, blocks, context)?),
        };
        Ok(vec![self.measure(log, counted, simulated, times, kept)])
    }
}

/// What a run on the file system gives.
struct Measured {
    log: LogGeometry,
    counted: Counted,
    recorded: Recorded,
    blocks: u32,
    times: Times,
    kept: Kept,
}

/// Of the calls while it was measured.
#[derive(Default)]
struct Times {
    syncs: Vec<Nanos>,
    write_max: Nanos,
}

/// Segments that hold nothing and that the log did not write: sums over the syncs.
#[derive(Clone, Copy, Default)]
struct Kept {
    clean: u64,
    waiting: u64,
}

impl Overwrites {
    fn pattern(&self, blocks: u32, seed: u64) -> Result<Box<dyn Pattern>, String> {
        let (pattern, options) = PatternSpec::parse(&self.pattern)?;
        let pattern = pattern.make(&options, &Given { blocks, seed, recorded: None })?;
        match pattern.fills() {
            true => Err(format!("{}: files are written whole there, here single blocks are", self.pattern)),
            false => Ok(pattern),
        }
    }

    async fn overwrite(
        &self,
        rt: &Rt,
        stack: &Stack,
        identity: &Identity,
        seed: u64,
        mut rng: Rng,
    ) -> Result<Measured, LabError> {
        let mounted = stack.mount(rt, &SimulatedLeaves, identity, Usage::default()).await?;
        let parts = mounted.parts.clone();
        let log = LogGeometry::of(&parts)?;
        let data = (log.segments * log.segment_bytes) as f64 * self.live_percent / 100.0 / BLOCK_BYTES as f64;
        let in_file = (data as u64 / self.files).max(1);
        let blocks = u32::try_from(in_file * self.files).ok().filter(|blocks| *blocks < DISCARD);
        let blocks = blocks.ok_or_else(|| LabError::Spec("there are too many blocks".into()))?;
        let mut pattern = self.pattern(blocks, seed).map_err(LabError::Spec)?;

        let target = Vfs::new(rt.clone(), mounted);
        // Zeroes, which a modelled device stores without memory, so that volumes can be large.
        let zeroes = vec![0; FILL_BYTES as usize];
        let mut open = Vec::new();
        for number in 0..self.files {
            let mut file = target.create(&format!("file{number}")).await?;
            let bytes = in_file * BLOCK_BYTES;
            for offset in (0..bytes).step_by(FILL_BYTES as usize) {
                let length = FILL_BYTES.min(bytes - offset);
                target.write(&mut file, offset, &zeroes[..length as usize]).await?;
            }
            open.push(file);
        }
        target.sync().await?;

        let mut places: Vec<u32> = (0..blocks).collect();
        if self.scatter {
            rng.shuffle(&mut places);
        }
        let turns = |turns: f64| (turns * f64::from(blocks)) as u64;
        let (warm_up, all) = (turns(self.warm_up), turns(self.warm_up) + turns(self.writes).max(1));
        let pause = Nanos::from_millis_f64(self.pause_ms);
        let mut recorded = Recorded::default();
        let (mut drawn, mut round) = (Vec::new(), Vec::new());
        let mut before = Counted::of(&parts);
        let (mut times, mut kept) = (Times::default(), Kept::default());
        let mut written = 0;
        while written < all {
            drawn.clear();
            pattern.more(&mut drawn);
            if drawn.is_empty() {
                return Err(LabError::Spec(format!("{}: the pattern has ended", self.pattern)));
            }
            for &block in &drawn {
                if block & DISCARD != 0 {
                    return Err(LabError::Spec(format!("{}: nothing is deleted here", self.pattern)));
                }
                let block = *places
                    .get(block as usize)
                    .ok_or_else(|| LabError::Spec(format!("{}: block {block} of {blocks}", self.pattern)))?;
                let (file, within) = (u64::from(block) / in_file, u64::from(block) % in_file);
                let start = rt.now();
                target.write(&mut open[file as usize], within * BLOCK_BYTES, &zeroes[..BLOCK_BYTES as usize]).await?;
                if written >= warm_up {
                    times.write_max = times.write_max.max(rt.now() - start);
                }
                round.push(block);
                written += 1;
                if !written.is_multiple_of(self.sync_blocks) {
                    if self.pause_ms > 0.0 {
                        rt.sleep(pause).await;
                    }
                    continue;
                }
                let start = rt.now();
                target.sync().await?;
                let time = rt.now() - start;
                round.sort_unstable();
                round.dedup();
                recorded.blocks.append(&mut round);
                if written <= warm_up {
                    recorded.warm_up = recorded.blocks.len();
                    before = Counted::of(&parts);
                } else {
                    times.syncs.push(time);
                    kept.clean += counter(&parts, "segments_clean").unwrap_or(0);
                    kept.waiting += counter(&parts, "segments_waiting").unwrap_or(0);
                }
            }
        }
        let counted = Counted::of(&parts).since(before);
        for file in open {
            target.close(file).await?;
        }
        Ok(Measured { log, counted, recorded, blocks, times, kept })
    }

    /// The write amplification of the simulator.
    fn simulate(
        &self,
        log: LogGeometry,
        recorded: Recorded,
        blocks: u32,
        context: &Context<'_>,
    ) -> Result<f64, String> {
        let limits = Limits {
            trigger: Trigger::Clean(self.reserve_segments),
            batch_blocks: self.batch_blocks,
            target: self.target_segments,
        };
        let warm_up = recorded.warm_up as u64;
        let recorded = beside::Recorded { log, blocks, operations: recorded.blocks, warm_up };
        Ok(beside::simulate(&self.simulated, limits, recorded, context)?.write_amplification())
    }

    fn measure(
        &self,
        log: LogGeometry,
        counted: Counted,
        simulated: Option<f64>,
        Times { mut syncs, write_max }: Times,
        kept: Kept,
    ) -> Measure {
        syncs.sort_unstable();
        let permille = |share: usize| {
            syncs.get((syncs.len() * share).div_ceil(1000).saturating_sub(1)).map(|time| time.as_millis_f64())
        };
        let mean = syncs.iter().map(|time| time.as_millis_f64()).sum::<f64>() / syncs.len() as f64;
        let of_data = |bytes: u64| Some(bytes as f64 / counted.data as f64);
        let amplification = of_data(counted.log);
        let (store, flash) = (counted.store.amplification(), counted.flash.amplification());
        let below = (store.is_some() || flash.is_some()).then(|| store.unwrap_or(1.0) * flash.unwrap_or(1.0));
        Measure::new([
            ("write_amplification", amplification),
            ("write_cost", of_data(counted.log + counted.read)),
            ("metadata_share", of_data(counted.metadata)),
            ("moved_share", of_data(counted.moved)),
            ("cleaned_utilisation", Some(counted.moved as f64 / counted.read as f64)),
            ("cleaned_segments", Some(counted.segments_read as f64)),
            ("live_share", Some(counted.live as f64 / (log.segments * log.segment_bytes) as f64)),
            ("clean_share", Some(kept.clean as f64 / (log.segments * syncs.len() as u64) as f64)),
            ("waiting_share", Some(kept.waiting as f64 / (log.segments * syncs.len() as u64) as f64)),
            ("summary_share", Some(counted.summaries as f64 / counted.log as f64)),
            ("unfilled_share", Some(counted.unfilled as f64 / counted.log as f64)),
            ("checkpoints", Some(counted.checkpoints as f64)),
            ("simulated_amplification", simulated),
            ("over_simulated", amplification.zip(simulated).map(|(real, simulated)| real / simulated)),
            ("flash_amplification", flash),
            ("zones_amplification", store),
            ("whole_amplification", amplification.zip(below).map(|(log, below)| log * below)),
            ("sync_ms", Some(mean)),
            ("sync_p50_ms", permille(500)),
            ("sync_p99_ms", permille(990)),
            ("sync_p999_ms", permille(999)),
            ("sync_max_ms", permille(1000)),
            ("write_max_ms", Some(write_max.as_millis_f64())),
        ])
    }
}
