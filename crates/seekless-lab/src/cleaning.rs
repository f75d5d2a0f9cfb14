//! Simulations of cleaning: what to simulate, as the command line and experiments write it, and its result as numbers.

use std::collections::TryReserveError;
use std::collections::hash_map::Entry;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use seekless::cleaning::outcome::shares;
use seekless::cleaning::patterns::{DISCARD, Given};
use seekless::cleaning::policy::{Limits, Trigger};
use seekless::cleaning::words::Options as WordOptions;
use seekless::cleaning::{Outcome, Pattern, PatternSpec, Policy, PolicySpec, Setup, Shape, simulate};
use seekless::device::trace::{TraceEvent, TraceKind, TraceSink};
use seekless::units::{FixedMap, SECTOR_BYTES, human_bytes};
use serde::Deserialize;

use crate::trace::{Format, Import, Op, Options, Trace};

/// What to simulate.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Simulation {
    /// A policy with its options, as [`PolicySpec::parse`] takes them.
    pub policy: String,
    /// A pattern with its options.
    pub pattern: String,
    /// Blocks of data. A trace says itself how many there are.
    pub blocks: u32,
    pub segment_blocks: u32,
    /// Live data as a share of all segments, in per cent; [`UTILISATION_PERCENT`] if nothing else says how many there are.
    pub utilisation_percent: Option<f64>,
    /// All segments, in place of the utilisation.
    pub segments: Option<u32>,
    pub batch_blocks: u64,
    /// Clean segments at which passes begin; none if not given.
    pub reserve_segments: Option<u32>,
    pub target_segments: u32,
    /// If given, passes begin at this share of garbage, in per cent, and space is not limited: in place of the utilisation, the
    /// segments and the reserve.
    pub garbage_percent: Option<f64>,
    /// Writes before and while it is measured, in multiples of the data. A trace is divided in this proportion.
    pub warm_up: f64,
    pub writes: f64,
}

impl Default for Simulation {
    fn default() -> Simulation {
        Simulation {
            policy: "greedy".to_owned(),
            pattern: "uniform".to_owned(),
            blocks: 1 << 18,
            segment_blocks: 256,
            utilisation_percent: None,
            segments: None,
            batch_blocks: 0,
            reserve_segments: None,
            target_segments: 0,
            garbage_percent: None,
            warm_up: 20.0,
            writes: 20.0,
        }
    }
}

/// Live data as a share of all segments, in per cent, where nothing says how much.
pub const UTILISATION_PERCENT: f64 = 75.0;

/// Metrics of a simulation, and their meaning.
pub const METRICS: &[(&str, &str)] = &[
    ("write_cost", "blocks read and written for each block of the user; empty segments are not read"),
    ("write_amplification", "blocks written for each block of the user"),
    ("cleaned_utilisation", "of the segments that are cleaned, empty ones included"),
    ("cleaned_used_utilisation", "of the segments that are cleaned and not empty"),
    ("cleaned_empty_share", "of the segments that are cleaned"),
    ("cleaned_segments", "how many"),
    ("passes", "how often cleaning began"),
    ("moved_blocks", "live blocks that were written again"),
    ("user_blocks", "blocks that the user wrote"),
    ("drift", "write amplification of the second half over that of the first, less one"),
    ("diverted_blocks", "went to another head than the policy said, because no segment was clean"),
];

/// A simulation that was parsed and checked.
pub struct Prepared {
    policy: &'static PolicySpec,
    policy_options: WordOptions,
    pattern: &'static PatternSpec,
    pattern_options: WordOptions,
    simulation: Simulation,
    /// How the trace was read, once it was.
    import: OnceLock<Import>,
}

impl Simulation {
    /// Parses the words and checks the numbers.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn prepare(&self) -> Result<Prepared, String> {
        let (policy, policy_options) = PolicySpec::parse(&self.policy)?;
        let (pattern, pattern_options) = PatternSpec::parse(&self.pattern)?;
        let percent = |what: &str, value: f64, least: f64| match value >= least && value < 100.0 {
            true => Ok(()),
            false => Err(format!("{what} is a percentage from {least} to below 100, not {value}")),
        };
        percent("the utilisation", self.utilisation(), 0.1)?;
        if let Some(strange) = self.garbage_percent.filter(|value| !(*value > 0.0 && *value < 100.0)) {
            return Err(format!(
                "garbage is a percentage above 0 and below 100, not {strange}; without it, passes begin when clean segments run out"
            ));
        }
        if !(0.0..=1e6).contains(&self.warm_up) {
            return Err(format!("the warm-up is in multiples of the data, from 0 to a million, not {}", self.warm_up));
        }
        if !(self.writes > 0.0 && self.writes <= 1e6) {
            return Err(format!(
                "the number of writes is in multiples of the data, above 0 and up to a million, not {}",
                self.writes
            ));
        }
        if self.segment_blocks == 0 {
            return Err("a segment has at least one block".into());
        }
        if self.segments == Some(0) {
            return Err("a log has at least one segment".into());
        }
        self.check_size()?;
        self.check_options((policy, &policy_options), (pattern, &pattern_options))?;
        let (simulation, import) = (self.clone(), OnceLock::new());
        Ok(Prepared { policy, policy_options, pattern, pattern_options, simulation, import })
    }
}

impl Simulation {
    /// Live data as a share of all segments, in per cent, unless their number or the garbage says it.
    pub fn utilisation(&self) -> f64 {
        self.utilisation_percent.unwrap_or(UTILISATION_PERCENT)
    }

    /// Checks the values of options before anything is simulated, which may be after hours of other simulations.
    ///
    /// # Errors
    /// One is out of its range, or no word of those that there are.
    fn check_options(
        &self,
        (policy, policy_options): (&PolicySpec, &WordOptions),
        (pattern, pattern_options): (&PatternSpec, &WordOptions),
    ) -> Result<(), String> {
        // No limit of an option depends on the size of the log.
        let (segments, segment_blocks, live_blocks) = (64, 64, 2048);
        policy
            .make(policy_options, &Shape { segments, segments_used: segments, segment_blocks, live_blocks, seed: 0 })?;
        // Those of a pattern depend on the number of blocks; one with very many takes memory, and is made once, when it runs.
        if pattern.name != TRACE && self.blocks <= Simulation::default().blocks {
            pattern.make(pattern_options, &Given { blocks: self.blocks, seed: 0, recorded: None })?;
        }
        Ok(())
    }

    /// Checks that the size of the log is given in one way: of two, one would not be used.
    ///
    /// # Errors
    /// It is given twice.
    fn check_size(&self) -> Result<(), String> {
        let given = |name, is_given: bool| is_given.then_some(name);
        let utilisation = given("utilisation_percent", self.utilisation_percent.is_some());
        let segments = given("segments", self.segments.is_some());
        let reserve = given("reserve_segments", self.reserve_segments.is_some());
        match (self.garbage_percent, utilisation.or(segments).or(reserve)) {
            (Some(_), Some(other)) => Err(format!(
                "`garbage_percent` cleans at a share of garbage, in as much space as that takes, and would not use `{other}`; leave out \
                 one of them"
            )),
            _ if utilisation.is_some() && segments.is_some() => Err(
                "`segments` says how full the log is, and would not use `utilisation_percent`; leave out one of them"
                    .to_owned(),
            ),
            _ => Ok(()),
        }
    }
}

/// Makes a policy for a log.
pub type MakePolicy<'a> = &'a dyn Fn(&Shape) -> Result<Box<dyn Policy>, String>;

/// Operations of a trace on numbered blocks, and how many blocks there are.
pub(crate) type Recorded = (Arc<[u32]>, u32);

/// The pattern that reads a trace.
const TRACE: &str = "trace";

impl Prepared {
    /// Simulates. `folder` is where a trace is sought; `progress` learns how many of the writes are done.
    ///
    /// # Errors
    /// Why there is no result, in words.
    pub fn run(
        &self,
        folder: &Path,
        seed: u64,
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<(Setup, Outcome), String> {
        self.run_on(self.recorded(folder)?, seed, progress)
    }

    /// Simulates a policy that is not in the table, which `make` makes for the log. The policy of the words is not used.
    ///
    /// # Errors
    /// Those of `make`, and as [`Prepared::run`].
    pub fn run_with(
        &self,
        folder: &Path,
        seed: u64,
        make: MakePolicy<'_>,
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<(Setup, Outcome), String> {
        let (setup, mut pattern) = self.begin(self.recorded(folder)?, seed)?;
        let mut policy = make(&setup.shape())?;
        let outcome = simulate(&setup, &mut *policy, &mut *pattern, progress).map_err(|error| error.to_string())?;
        Ok((setup, outcome))
    }

    /// The operations of the trace that the pattern names.
    fn recorded(&self, folder: &Path) -> Result<Option<Recorded>, String> {
        // Only this pattern has a format.
        let Some(file) = self.trace() else { return Ok(None) };
        let (recorded, import) = writes_of(&folder.join(file), self.pattern_options.text("format"));
        if let Some(import) = import {
            // A second run reads the same.
            let _ = self.import.set(import);
        }
        recorded.map(Some)
    }

    /// How the lines of the trace were used, once it was read; `None` for other patterns.
    pub fn import(&self) -> Option<&Import> {
        self.import.get()
    }

    /// Simulates; the pattern is `recorded`, operations on so many blocks, or the pattern that the user asked for.
    ///
    /// # Errors
    /// Why there is no result, in words.
    pub(crate) fn run_on(
        &self,
        recorded: Option<Recorded>,
        seed: u64,
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<(Setup, Outcome), String> {
        let (setup, mut pattern) = self.begin(recorded, seed)?;
        let outcome = self.policy.simulate(&self.policy_options, &setup, &mut *pattern, progress);
        outcome.map(|outcome| (setup, outcome)).map_err(|error| error.to_string())
    }

    /// The log, and the order in which its blocks are written.
    fn begin(&self, recorded: Option<Recorded>, seed: u64) -> Result<(Setup, Box<dyn Pattern>), String> {
        let blocks = recorded.as_ref().map_or(self.simulation.blocks, |(_, blocks)| *blocks);
        let mut setup = self.setup(blocks, seed);
        if let Some((operations, _)) = &recorded {
            // All of the trace after a first part of it, as often as it is repeated.
            let times: u64 = self.pattern_options.number("times", 1, 1_000_000)?;
            let writes = operations.iter().filter(|operation| *operation & DISCARD == 0).count() as u64 * times;
            let share = self.simulation.warm_up / (self.simulation.warm_up + self.simulation.writes).max(1e-9);
            setup.warm_up = (writes as f64 * share) as u64;
            setup.writes = writes - setup.warm_up;
        }
        let given = Given { blocks, seed, recorded: recorded.map(|(operations, _)| operations) };
        Ok((setup, self.pattern.make(&self.pattern_options, &given)?))
    }

    /// The file of a trace.
    pub fn trace(&self) -> Option<&str> {
        let file = (self.pattern.name == TRACE).then(|| self.pattern_options.text("file"));
        file.filter(|file| !file.is_empty())
    }

    /// True when the pattern is a trace, and no file is named.
    pub(crate) fn needs_recording(&self) -> bool {
        self.pattern.name == TRACE && self.trace().is_none()
    }

    /// The policy as the user wrote it.
    pub fn name(&self) -> &str {
        &self.simulation.policy
    }

    /// The policy with all of its options.
    pub fn policy(&self) -> String {
        self.policy_options.line()
    }

    /// The pattern with all of its options.
    pub fn pattern(&self) -> String {
        self.pattern_options.line()
    }

    /// True when the policy knows the future, as no real one does.
    pub fn knows_future(&self) -> bool {
        self.policy.knows_future
    }

    fn setup(&self, blocks: u32, seed: u64) -> Setup {
        let Simulation { segment_blocks, garbage_percent, .. } = self.simulation;
        let limited = match self.simulation.segments {
            None => Setup::segments_for(blocks, segment_blocks, self.simulation.utilisation() / 100.0),
            Some(segments) => segments,
        };
        let turns = |turns: f64| (turns * f64::from(blocks)) as u64;
        let (trigger, segments) = match garbage_percent {
            // What is in use at this share of garbage, and as much again: more than the heads could keep open.
            Some(garbage_percent) => {
                let used = Setup::segments_for(blocks, segment_blocks, 1.0 - garbage_percent / 100.0);
                (Trigger::Garbage(garbage_percent / 100.0), used.saturating_mul(2).saturating_add(512))
            }
            None => (Trigger::Clean(self.simulation.reserve_segments.unwrap_or(0)), limited),
        };
        Setup {
            blocks,
            segment_blocks,
            segments,
            limits: Limits {
                trigger,
                batch_blocks: self.simulation.batch_blocks,
                target: self.simulation.target_segments,
            },
            warm_up: turns(self.simulation.warm_up),
            writes: turns(self.simulation.writes).max(1),
            seed,
        }
    }
}

/// Bytes of a block of a trace.
const BLOCK_BYTES: u64 = 4096;

/// How much of a trace is simulated. All of it is in memory: an entry of a hash table for each block that it writes to, a number for each
/// block of each write.
#[derive(Clone, Copy)]
struct TraceLimits {
    blocks: u64,
    operations: u64,
}

/// Together these take 4 GiB at most. A table of 2^26 entries of 25 bytes is filled to seven eighths: 224 GiB of addresses in 1.6 GiB.
/// 2^29 operations of 4 bytes are 2 TiB of writes in 2 GiB. They are copied once, when the table is gone.
const TRACE_LIMITS: TraceLimits = TraceLimits { blocks: (1 << 26) / 8 * 7, operations: 1 << 29 };

impl Default for TraceLimits {
    fn default() -> TraceLimits {
        TRACE_LIMITS
    }
}

impl TraceLimits {
    fn too_many_blocks(self) -> String {
        let (blocks, bytes) = (self.blocks, human_bytes(self.blocks.saturating_mul(BLOCK_BYTES)));
        format!("more than {blocks} blocks are written, {bytes} of addresses, and all of them must fit into memory")
    }

    fn too_many_operations(self) -> String {
        let (operations, bytes) = (self.operations, human_bytes(self.operations.saturating_mul(BLOCK_BYTES)));
        format!(
            "more than {operations} blocks, {bytes}, are written or discarded in all, and all of it must fit into memory"
        )
    }
}

/// The system refuses memory.
fn no_memory(_: TryReserveError) -> String {
    "there is not enough memory for the blocks that are written".to_owned()
}

/// Writes and discards as operations on consecutive numbers, in the order in which blocks are first written.
#[derive(Default)]
pub(crate) struct Operations {
    numbers: FixedMap<(u64, u64), u32>,
    operations: Vec<u32>,
    limits: TraceLimits,
}

impl Operations {
    /// Adds a write of these bytes of a device: of every block that has one of them.
    ///
    /// # Errors
    /// There are more than a simulation takes, or than fit into memory.
    fn write(&mut self, device: u64, bytes: Range<u64>) -> Result<(), String> {
        let blocks = bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES);
        // Before the first of them: a damaged length may name more than could be counted in a lifetime.
        if blocks.end.saturating_sub(blocks.start) > self.limits.blocks {
            return Err(self.limits.too_many_blocks());
        }
        for block in blocks {
            let next = self.numbers.len();
            self.numbers.try_reserve(1).map_err(no_memory)?;
            let number = match self.numbers.entry((device, block)) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(_) if next as u64 >= self.limits.blocks => return Err(self.limits.too_many_blocks()),
                Entry::Vacant(free) => *free.insert(next as u32),
            };
            self.push(number)?;
        }
        Ok(())
    }

    /// Adds that these bytes of a device are discarded: every block that has no other bytes. What was never written has
    /// nothing to discard.
    ///
    /// # Errors
    /// As [`Operations::write`].
    fn discard(&mut self, device: u64, bytes: Range<u64>) -> Result<(), String> {
        let blocks = bytes.start.div_ceil(BLOCK_BYTES)..bytes.end / BLOCK_BYTES;
        if blocks.end.saturating_sub(blocks.start) <= self.numbers.len() as u64 {
            for block in blocks {
                if let Some(number) = self.numbers.get(&(device, block)) {
                    self.push(number | DISCARD)?;
                }
            }
            return Ok(());
        }
        // A whole device may be discarded at once. The blocks that are known are fewer; the order is the same.
        let known = self.numbers.iter().filter(|((of, block), _)| *of == device && blocks.contains(block));
        let mut known: Vec<(u64, u32)> = known.map(|((_, block), number)| (*block, *number)).collect();
        known.sort_unstable();
        known.into_iter().try_for_each(|(_, number)| self.push(number | DISCARD))
    }

    fn push(&mut self, operation: u32) -> Result<(), String> {
        if self.operations.len() as u64 >= self.limits.operations {
            return Err(self.limits.too_many_operations());
        }
        self.operations.try_reserve(1).map_err(no_memory)?;
        self.operations.push(operation);
        Ok(())
    }

    /// The operations, and how many blocks there are.
    ///
    /// # Errors
    /// There are too few to simulate anything, or too many for the memory.
    fn finish(self) -> Result<Recorded, String> {
        let Operations { numbers, operations, .. } = self;
        let count = numbers.len();
        drop(numbers);
        if count < 2 {
            return Err("no two blocks are written".to_owned());
        }
        // The copy itself cannot fail in words, so memory for it is asked for before.
        Vec::<u32>::new().try_reserve_exact(operations.len()).map_err(no_memory)?;
        Ok((operations.into(), count as u32))
    }
}

/// Writes that a stack makes to its device while a program runs.
#[derive(Default)]
pub(crate) struct Recording {
    operations: Operations,
    problem: Option<String>,
}

impl TraceSink for Recording {
    fn record(&mut self, event: &TraceEvent) {
        let start = event.at.0.saturating_mul(SECTOR_BYTES);
        let end = start.saturating_add(event.sectors.saturating_mul(SECTOR_BYTES));
        // What comes after a part that is missing would be another trace.
        if self.problem.is_some() {
            return;
        }
        let added = match event.kind {
            TraceKind::Write | TraceKind::WriteThrough => self.operations.write(0, start..end),
            TraceKind::Discard => self.operations.discard(0, start..end),
            TraceKind::Read | TraceKind::Flush | TraceKind::Provision => return,
        };
        self.problem = added.err();
    }
}

impl Recording {
    /// What was recorded.
    ///
    /// # Errors
    /// There is too much or too little of it.
    pub(crate) fn finish(self) -> Result<Recorded, String> {
        match self.problem {
            Some(problem) => Err(problem),
            None => self.operations.finish(),
        }
    }
}

/// The writes and discards of a trace, and how many blocks there are; and how its lines were used, as far as it was read.
fn writes_of(path: &Path, format: &str) -> (Result<Recorded, String>, Option<Import>) {
    let format = if format.is_empty() { Ok(None) } else { Format::parse(format).map(Some) };
    let opened = format.and_then(|format| {
        let options = Options { format, ..Options::default() };
        Trace::open(&[path.to_owned()], &options).map_err(|error| error.to_string())
    });
    match opened {
        Ok(mut trace) => {
            let operations = operations_of(&mut trace, path);
            (operations, Some(trace.import()))
        }
        Err(problem) => (Err(problem), None),
    }
}

fn operations_of(trace: &mut Trace, path: &Path) -> Result<Recorded, String> {
    let path = path.display();
    let mut number = 0_u64;
    let mut operations = Operations::default();
    let (mut devices, mut batch) = (Vec::new(), Vec::new());
    while trace.next_batch(&mut batch).map_err(|error| error.to_string())? {
        for request in batch.drain(..) {
            number += 1;
            if !matches!(request.op, Op::Write | Op::Discard) {
                continue;
            }
            let device = match devices.iter().position(|device| *device == request.device) {
                Some(device) => device,
                None => {
                    devices.push(request.device);
                    devices.len() - 1
                }
            };
            let (device, bytes) = (device as u64, request.offset..request.end());
            let added = match request.op {
                Op::Discard => operations.discard(device, bytes),
                _ => operations.write(device, bytes),
            };
            added.map_err(|problem| {
                let (op, length, offset) = (request.op, human_bytes(request.bytes), request.offset);
                format!("{path}: with request {number}, a {op} of {length} at byte {offset}, {problem}")
            })?;
        }
    }
    operations.finish().map_err(|problem| format!("{path}: {problem}"))
}

/// The result as [`METRICS`]; what cannot be known is left out.
pub fn metrics(outcome: &Outcome) -> Vec<(&'static str, Option<f64>)> {
    let counts = &outcome.counts;
    vec![
        ("write_cost", Some(outcome.write_cost())),
        ("write_amplification", Some(outcome.write_amplification())),
        ("cleaned_utilisation", Some(outcome.cleaned_utilisation())),
        ("cleaned_used_utilisation", Some(outcome.cleaned_utilisation_of_used())),
        ("cleaned_empty_share", Some(outcome.cleaned_empty_share())),
        ("cleaned_segments", Some(counts.cleaned as f64)),
        ("passes", Some(counts.passes as f64)),
        ("moved_blocks", Some(counts.moved as f64)),
        ("user_blocks", Some(counts.user as f64)),
        ("drift", Some(outcome.drift())),
        ("diverted_blocks", Some(counts.diverted as f64)),
    ]
}

/// Bins of a distribution of utilisations.
pub const BINS: usize = 20;

/// Shares of the closed segments when cleaning began, and of the cleaned ones, by utilisation: [`BINS`] each.
pub fn distributions(outcome: &Outcome) -> (Vec<f64>, Vec<f64>) {
    (shares(&outcome.segments_by_live, BINS), shares(&outcome.cleaned_by_live, BINS))
}

#[cfg(test)]
mod tests {
    use seekless::units::{Nanos, Sector};

    use super::*;

    /// Aim: a trace's requests are the blocks that they cover, numbered as they come. Method: a small trace with an
    /// overwrite, a read, another device, and requests that do not begin or end at a block's border; then a run of it.
    #[test]
    fn traces_become_operations() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("small.csv");
        let text = "0,W,8192,4096,1577808000000001\n0,R,0,40960,1577808000000002\n0,W,8191,4097,1577808000000003\n\
                    1,W,8192,1,1577808000000004\n0,W,409600,8192,1577808000000005\n";
        std::fs::write(&path, text).expect("a file");
        let (operations, blocks) = writes_of(&path, "alibaba").0.expect("operations");
        assert_eq!((&operations[..], blocks), (&[0, 1, 0, 2, 3, 4][..], 5));
        let simulation = Simulation {
            pattern: "trace:file=small.csv,format=alibaba,times=100".to_owned(),
            segment_blocks: 2,
            utilisation_percent: Some(40.0),
            ..Simulation::default()
        };
        let prepared = simulation.prepare().expect("a simulation");
        assert_eq!(prepared.trace(), Some("small.csv"));
        let (setup, outcome) =
            prepared.run(folder.path(), 1, &mut |_, _| ControlFlow::Continue(())).expect("an outcome");
        assert_eq!((setup.blocks, setup.warm_up, setup.writes), (5, 300, 300));
        assert_eq!(outcome.counts.user, 300);
        assert_eq!(prepared.import().map(|import| (import.requests, import.rejected_count())), Some((5, 0)));
    }

    /// Aim: a trace of columns can be written by, and lines that it does not use are known. Method: a description with its commas, two bad
    /// lines, and the line of the pattern read again.
    #[test]
    fn traces_of_columns() {
        let folder = tempfile::tempdir().expect("a directory");
        let text = "w,0,4096,1\nw,4096,4096,2\nw,x,4096,3\nw,8192,0,4\n";
        std::fs::write(folder.path().join("a, b.csv"), text).expect("a file");
        let pattern = "trace:file=\"a, b.csv\",format=\"csv:time=4:us,op=1,offset=2:B,length=3:B\",times=100";
        let simulation = Simulation {
            pattern: pattern.to_owned(),
            segment_blocks: 2,
            utilisation_percent: Some(40.0),
            ..Simulation::default()
        };
        let prepared = simulation.prepare().expect("a simulation");
        assert!(prepared.import().is_none());
        let (setup, _) = prepared.run(folder.path(), 1, &mut |_, _| ControlFlow::Continue(())).expect("an outcome");
        assert_eq!((setup.blocks, setup.warm_up + setup.writes), (2, 200));
        let import = prepared.import().expect("a trace was read");
        assert_eq!((import.requests, import.rejected_count()), (2, 2));
        assert_eq!(prepared.pattern(), pattern);
    }

    /// Aim: a discard covers the blocks that lie in it as a whole, and no others; one of any length costs no more than the
    /// blocks that were written. Method: discards around the borders of blocks, from a trace and from a stack; then as much as
    /// there can be, and the same again.
    #[test]
    fn discards_are_of_whole_blocks() {
        let writes = |operations: &mut Operations| {
            operations.write(0, 3 * 4096..4 * 4096).expect("a write");
            operations.write(0, 0..3 * 4096).expect("a write");
            operations.write(1, 0..4096).expect("a write");
            operations.operations.clear();
        };
        // Blocks 3, 0, 1, 2 of a device are numbers 0 to 3.
        for (bytes, discarded) in [
            (0..4096, &[1][..]),
            (1..4096, &[]),
            (0..4095, &[]),
            (1..8191, &[]),
            (4095..8193, &[2]),
            (4096..4 * 4096, &[2, 3, 0]),
            (512..1024, &[]),
            (4096..u64::MAX, &[2, 3, 0]),
            (1..1 << 62, &[2, 3, 0]),
        ] {
            let mut operations = Operations::default();
            writes(&mut operations);
            for _ in 0..2 {
                operations.discard(0, bytes.clone()).expect("a discard");
            }
            let expected: Vec<u32> = discarded.iter().chain(discarded).map(|number| number | DISCARD).collect();
            assert_eq!(operations.operations, expected, "{bytes:?}");

            let mut recording = Recording::default();
            writes(&mut recording.operations);
            if bytes.start % SECTOR_BYTES == 0 && bytes.end % SECTOR_BYTES == 0 {
                let event = TraceEvent {
                    kind: TraceKind::Discard,
                    at: Sector(bytes.start / SECTOR_BYTES),
                    sectors: (bytes.end - bytes.start) / SECTOR_BYTES,
                    start: Nanos::ZERO,
                    end: Nanos::ZERO,
                    depth: 0,
                    ok: true,
                };
                recording.record(&event);
                assert_eq!(recording.operations.operations, expected[..discarded.len()], "{bytes:?}");
            }
        }
    }

    /// Aim: a trace is simulated in a bounded memory, and the error says which request was too much. Method: a write of 2^48 blocks in a file,
    /// which could never be walked through; limits of a few blocks with as many as they allow, and one more.
    #[test]
    fn traces_have_limits() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("huge.csv");
        let text = "0,W,0,4096,1577808000000001\n0,W,4096,1152921504606846976,1577808000000002\n";
        std::fs::write(&path, text).expect("a file");
        let error = writes_of(&path, "alibaba").0.expect_err("too much");
        for part in ["huge.csv", "request 2, a write of 1024 PiB at byte 4096", "more than 58720256 blocks", "224 GiB"]
        {
            assert!(error.contains(part), "{part}: {error}");
        }
        let small = || Operations { limits: TraceLimits { blocks: 4, operations: 6 }, ..Operations::default() };
        let block = |number: u64| number * BLOCK_BYTES..(number + 1) * BLOCK_BYTES;
        let mut scattered = small();
        for number in [7, 1 << 40, 3, 1 << 50] {
            scattered.write(0, block(number)).expect("as many as it takes");
        }
        scattered.write(0, block(3)).expect("a block that is known");
        assert!(scattered.write(1, block(3)).expect_err("one more").contains("more than 4 blocks are written"));
        scattered.discard(0, block(3)).expect("the last operation");
        assert!(scattered.write(0, block(3)).expect_err("one more").contains("more than 6 blocks"));
        assert_eq!(scattered.finish().map(|(operations, blocks)| (operations.len(), blocks)), Ok((6, 4)));
        let mut long = small();
        assert!(long.write(0, 0..5 * BLOCK_BYTES).is_err() && long.operations.is_empty());
        assert!(long.write(0, 0..u64::MAX).is_err() && long.operations.is_empty());
        let mut recording = Recording { operations: small(), problem: None };
        for sectors in [5 * 8, 8, 8] {
            let (at, start, end) = (Sector(0), Nanos::ZERO, Nanos::ZERO);
            recording.record(&TraceEvent { kind: TraceKind::Write, at, sectors, start, end, depth: 0, ok: true });
        }
        assert!(recording.finish().expect_err("a part is missing").contains("more than 4 blocks"));
    }

    /// Aim: nonsense is an error in words. Method: one of each kind.
    #[test]
    fn errors_are_words() {
        let plain = Simulation::default();
        for wrong in [
            Simulation { policy: "best".into(), ..plain.clone() },
            Simulation { pattern: "zipf:scew=1".into(), ..plain.clone() },
            Simulation { utilisation_percent: Some(100.0), ..plain.clone() },
            Simulation { utilisation_percent: Some(f64::NAN), ..plain.clone() },
            Simulation { warm_up: -1.0, ..plain.clone() },
            Simulation { segment_blocks: 0, ..plain.clone() },
            Simulation { segments: Some(0), ..plain.clone() },
            Simulation { segments: Some(5000), utilisation_percent: Some(60.0), ..plain.clone() },
            Simulation { garbage_percent: Some(15.0), utilisation_percent: Some(60.0), ..plain.clone() },
            Simulation { garbage_percent: Some(15.0), segments: Some(5000), ..plain.clone() },
            Simulation { garbage_percent: Some(15.0), reserve_segments: Some(0), ..plain.clone() },
            Simulation { garbage_percent: Some(0.0), ..plain.clone() },
            Simulation { garbage_percent: Some(100.0), ..plain.clone() },
            Simulation { garbage_percent: Some(f64::NAN), ..plain.clone() },
        ] {
            assert!(wrong.prepare().is_err(), "{wrong:?}");
        }
        let run = |wrong: Simulation| {
            let prepared = wrong.prepare().expect("words that are known");
            prepared.run(Path::new("."), 1, &mut |_, _| ControlFlow::Continue(())).map(|_| ()).expect_err("an error")
        };
        assert!(
            run(Simulation { utilisation_percent: Some(99.99), blocks: 100, ..plain.clone() }).contains("do not fit")
        );
        assert!(run(Simulation { pattern: "trace:file=none.csv".into(), ..plain.clone() }).contains("none.csv"));
        let early = |wrong: Simulation| wrong.prepare().map(|_| ()).expect_err("an error before anything is simulated");
        assert!(early(Simulation { blocks: 1, ..plain.clone() }).contains("between 2"));
        assert!(early(Simulation { policy: "sepbit:select=fifo".into(), ..plain.clone() }).contains("fifo"));
        assert!(early(Simulation { policy: "d-choices:d=0".into(), ..plain.clone() }).contains("d"));
        assert!(early(Simulation { pattern: "zipf:skew=nan".into(), ..plain }).contains("skew"));
    }
}
