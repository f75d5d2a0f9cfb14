//! `whole-files`: files are written whole and deleted whole on a log-structured file system, and its cleaner makes room; beside
//! it the simulator of cleaning, with the same files [ro92 §5.2, Table II].
//!
//! The pattern `files` of the simulator says which file is written or deleted next, and which blocks it has; on the file system
//! each is a file of as many blocks. What is written and deleted between two syncs never reaches the log, and the simulator does not
//! get it either.

use std::collections::BTreeSet;

use seekless::cleaning::patterns::files::{FileChange, Files};
use seekless::cleaning::patterns::{DISCARD, Given};
use seekless::cleaning::policy::{Limits, Trigger};
use seekless::cleaning::{Outcome, PatternSpec, PolicySpec};
use seekless::rt::Rt;
use seekless::stack::{Identity, Stack, Usage};
use seekless::units::Nanos;
use serde::Deserialize;

use super::beside::{self, BLOCK_BYTES, LogGeometry, Recorded};
use super::overwrites::Counted;
use super::{Context, Measure, Read, RunTarget, Workload, WorkloadKind, in_virtual_time, parse};
use crate::LabError;
use crate::run::SimulatedLeaves;
use crate::target::{Target, Vfs};

pub(super) const KIND: WorkloadKind = WorkloadKind {
    name: "whole-files",
    help: "files are written and deleted whole on a log: what cleaning costs it, beside the simulator",
    dims: &[],
    metrics: &[
        ("segments_cleaned", "segments that became clean, empty ones included"),
        ("empty_share", "of the segments that became clean, those that the cleaner did not have to read"),
        ("used_utilisation", "of the segments that the cleaner read: bytes moved for each byte read"),
        ("used_of_disk", "that over the share of file data on the whole disk"),
        ("write_cost", "bytes read and written for each new byte of the log, data and metadata"),
        ("write_amplification", "bytes that went to the log for each byte of file data that the user wrote to it"),
        ("in_use", "live bytes of all bytes of the log's segments at the end"),
        ("simulated_empty_share", "of the segments that the simulator cleaned, those that were empty"),
        ("simulated_used_utilisation", "how full the others were, in the simulator"),
        ("simulated_write_cost", "blocks read and written for each new block by the simulator, which has no metadata"),
    ],
    read: Read::Other(|table| parse::<WholeFiles>(table).map(|work| Box::new(work) as Box<dyn Workload>)),
};

/// Its parameters in `[workload]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WholeFiles {
    /// The pattern `files` with its options.
    pattern: String,
    /// File data as a share of all segments of the log, in per cent.
    live_percent: f64,
    /// Blocks written before and while it is measured, in multiples of the data.
    warm_up: f64,
    writes: f64,
    /// Blocks after which everything is made durable.
    #[serde(default = "round")]
    sync_blocks: u64,
    /// From one file to the next, so that files have ages.
    #[serde(default = "pause")]
    pause_ms: f64,
    /// Files for each directory, on average.
    #[serde(default = "files_of_directory")]
    files_of_directory: u64,
    /// The policy that the simulator uses.
    simulated: String,
    #[serde(default)]
    batch_blocks: u64,
    #[serde(default)]
    reserve_segments: u32,
    #[serde(default)]
    target_segments: u32,
}

fn round() -> u64 {
    256
}

fn pause() -> f64 {
    10.0
}

fn files_of_directory() -> u64 {
    30
}

/// Blocks of a write.
const WRITE_BLOCKS: usize = 64;

impl Workload for WholeFiles {
    fn check(&self, on: &RunTarget) -> Result<(), String> {
        let (pattern, _) = PatternSpec::parse(&self.pattern).map_err(|problem| format!("[workload]: {problem}"))?;
        if pattern.name != "files" {
            return Err(format!("[workload]: the pattern is `files`, not `{}`", pattern.name));
        }
        PolicySpec::parse(&self.simulated).map_err(|problem| format!("[workload]: {problem}"))?;
        if self.files_of_directory == 0 || self.sync_blocks == 0 || !(0.0..=1e6).contains(&self.pause_ms) {
            return Err(
                "[workload]: files_of_directory and sync_blocks are at least 1, and pause_ms no less than 0".into()
            );
        }
        beside::check(self.live_percent, self.warm_up, self.writes, on)
    }

    fn run(&self, on: &RunTarget, context: &Context<'_>) -> Result<Vec<Measure>, String> {
        let RunTarget::Stack(stack) = on else { return self.check(on).map(|()| Vec::new()) };
        let seed = context.seed;
        let measured = async |rt: &Rt, identity: &Identity, _| self.work(rt, stack, identity, seed).await;
        let Measured { counted, recorded } = in_virtual_time(context, measured)?;
        let log = recorded.log;
        let limits = Limits {
            trigger: Trigger::Clean(self.reserve_segments),
            batch_blocks: self.batch_blocks,
            target: self.target_segments,
        };
        let simulated = beside::simulate(&self.simulated, limits, recorded, context)?;
        Ok(vec![measure(log, counted, &simulated, self.live_percent / 100.0)])
    }
}

/// What a run on the file system gives.
struct Measured {
    counted: Counted,
    recorded: Recorded,
}

/// The changes between two syncs.
#[derive(Default)]
struct Round {
    written: Vec<Vec<u32>>,
    /// Files that were there before, by their first block.
    deleted: Vec<Vec<u32>>,
}

impl Round {
    fn enter(&mut self, change: &FileChange) {
        match change {
            FileChange::Written(blocks) => self.written.push(blocks.clone()),
            FileChange::Deleted(blocks) => match self.written.iter().position(|file| file == blocks) {
                Some(index) => drop(self.written.remove(index)),
                None => self.deleted.push(blocks.clone()),
            },
        }
    }

    /// As the simulator gets it. Returns how many blocks are written.
    fn record(self, recorded: &mut Vec<u32>) -> u64 {
        let deleted: BTreeSet<u32> = self.deleted.into_iter().flatten().collect();
        recorded.extend(deleted.into_iter().map(|block| block | DISCARD));
        let before = recorded.len();
        self.written.into_iter().for_each(|file| recorded.extend(file));
        (recorded.len() - before) as u64
    }
}

impl WholeFiles {
    async fn work(&self, rt: &Rt, stack: &Stack, identity: &Identity, seed: u64) -> Result<Measured, LabError> {
        let mounted = stack.mount(rt, &SimulatedLeaves, identity, Usage::default()).await?;
        let parts = mounted.parts.clone();
        let log = LogGeometry::of(&parts)?;
        let data = (log.segments * log.segment_bytes) as f64 * self.live_percent / 100.0 / BLOCK_BYTES as f64;
        let blocks = Some(data as u32).filter(|blocks| (2..DISCARD).contains(blocks));
        let blocks = blocks.ok_or_else(|| LabError::Spec("there are too few or too many blocks".into()))?;
        let (_, options) = PatternSpec::parse(&self.pattern).map_err(LabError::Spec)?;
        let mut files = Files::new(&options, &Given { blocks, seed, recorded: None }).map_err(LabError::Spec)?;

        let target = Vfs::new(rt.clone(), mounted);
        let mean: f64 = options.number("mean", 1.0, f64::MAX).map_err(LabError::Spec)?;
        let directories = (f64::from(blocks) / mean / self.files_of_directory as f64).ceil().max(1.0) as u32;
        for number in 0..directories {
            target.mkdir(&format!("d{number}")).await?;
        }
        // A block belongs to one file at a time.
        let name = |blocks: &[u32]| format!("d{}/f{}", blocks[0] % directories, blocks[0]);
        // Zeroes, which a modelled device stores without memory.
        let zeroes = vec![0; WRITE_BLOCKS * BLOCK_BYTES as usize];
        let turns = |turns: f64| (turns * f64::from(blocks)) as u64;
        let (warm_up, all) = (turns(self.warm_up), turns(self.warm_up) + turns(self.writes).max(1));
        let pause = Nanos::from_millis_f64(self.pause_ms);
        let (mut round, mut since_sync, mut recorded) = (Round::default(), 0, Vec::new());
        let (mut written, mut written_warm) = (0, 0);
        let mut before = Counted::of(&parts);
        while written < all {
            for change in files.turn() {
                round.enter(&change);
                match change {
                    FileChange::Deleted(blocks) => target.unlink(&name(&blocks)).await?,
                    FileChange::Written(blocks) => {
                        let mut file = target.create(&name(&blocks)).await?;
                        for (index, piece) in blocks.chunks(WRITE_BLOCKS).enumerate() {
                            let offset = (index * WRITE_BLOCKS) as u64 * BLOCK_BYTES;
                            target.write(&mut file, offset, &zeroes[..piece.len() * BLOCK_BYTES as usize]).await?;
                        }
                        target.close(file).await?;
                        since_sync += blocks.len() as u64;
                    }
                }
            }
            rt.sleep(pause).await;
            if since_sync >= self.sync_blocks {
                since_sync = 0;
                target.sync().await?;
                written += std::mem::take(&mut round).record(&mut recorded);
                if written <= warm_up {
                    (before, written_warm) = (Counted::of(&parts), written);
                }
            }
        }
        let counted = Counted::of(&parts).since(before);
        Ok(Measured { counted, recorded: Recorded { log, blocks, operations: recorded, warm_up: written_warm } })
    }
}

fn measure(log: LogGeometry, counted: Counted, simulated: &Outcome, full: f64) -> Measure {
    let cleaned = counted.segments_read + counted.segments_empty;
    let new = (counted.log - counted.moved) as f64;
    Measure::new([
        ("segments_cleaned", Some(cleaned as f64)),
        ("empty_share", Some(counted.segments_empty as f64 / cleaned as f64)),
        ("used_utilisation", Some(counted.moved as f64 / counted.read as f64)),
        ("used_of_disk", Some(counted.moved as f64 / counted.read as f64 / full)),
        ("write_cost", Some((counted.log + counted.read) as f64 / new)),
        ("write_amplification", Some(counted.log as f64 / counted.data as f64)),
        ("in_use", Some(counted.live as f64 / (log.segments * log.segment_bytes) as f64)),
        ("simulated_empty_share", Some(simulated.cleaned_empty_share())),
        ("simulated_used_utilisation", Some(simulated.cleaned_utilisation_of_used())),
        ("simulated_write_cost", Some(simulated.write_cost())),
    ])
}
