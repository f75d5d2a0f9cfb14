//! `replay`: a block trace on devices.

use std::path::PathBuf;

use seekless::cleaning::model;
use seekless::device::Counter;
use serde::Deserialize;

use super::{Bytes, Context, Measure, Read, RunTarget, Workload, WorkloadKind, existing, from_text, parse};
use crate::replay::{Blocks, Map, Outcome, Spec, Timing, TraceLayout, check_stack, simulate};
use crate::trace::{Format, Names, Op, Options, Request, Requests, Summary, Trace, TraceError};

pub(super) const KIND: WorkloadKind = WorkloadKind {
    name: "replay",
    help: "a block trace, replayed on modelled devices",
    dims: &[],
    metrics: METRICS,
    read: Read::Other(|table| parse::<Replay>(table).map(|replay| Box::new(replay) as Box<dyn Workload>)),
};

/// What a replay measures.
pub(super) const METRICS: &[(&str, &str)] = &[
    ("elapsed_s", "from the first request to the last answer"),
    ("requests", "requests of the trace, flushes and discards included"),
    ("requests_per_s", "reads and writes of the trace"),
    ("bytes_per_s", "of reads and writes of the trace"),
    ("response_mean_ms", "mean response time of reads and writes"),
    ("response_p50_ms", "median response time of reads and writes"),
    ("response_p99_ms", "99th percentile of response times of reads and writes"),
    ("read_p99_ms", "the same, of reads"),
    ("write_p99_ms", "the same, of writes"),
    ("disk_busy", "share of the time during which a drive was busy, on average"),
    ("disk_requests", "requests that drives served"),
    ("disk_requests_each", "requests that drives served for each request of the trace"),
    ("disk_requests_per_s", "of one drive, on average"),
    (
        "flash_amplification",
        "units that flash drives programmed for each unit of the host, without the journal of their mapping",
    ),
    (
        "flash_over_closed_form",
        "that divided by what greedy garbage collection costs under uniform overwrites of full drives [ro92 §3.4]",
    ),
    ("disk_requests_spread", "standard deviation of that between drives, over the mean; averages of the whole run"),
];

/// Its parameters in `[workload]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Replay {
    trace: PathBuf,
    #[serde(default)]
    format: Option<String>,
    #[serde(default = "closed", deserialize_with = "from_text")]
    timing: Timing,
    #[serde(default = "error", deserialize_with = "from_text")]
    map: Map,
    /// Requests are cut into whole blocks of this size, each a separate request.
    #[serde(default)]
    block: Option<Bytes>,
    /// Blocks are permuted with this seed, within the first `size` bytes: [st05]'s "stupid" layout.
    #[serde(default)]
    permute: Option<u64>,
    #[serde(default)]
    size: Option<Bytes>,
    /// Only this many requests from the start of the trace.
    #[serde(default)]
    requests: Option<u64>,
}

fn closed() -> Timing {
    Timing::Closed
}

fn error() -> Map {
    Map::Error
}

/// A trace with the experiment's parameters. Cheap to open again.
pub(super) struct Wanted {
    pub(super) path: PathBuf,
    pub(super) format: Option<String>,
    pub(super) block: Option<Bytes>,
    pub(super) permute: Option<u64>,
    pub(super) size: Option<Bytes>,
    pub(super) requests: Option<u64>,
}

impl Wanted {
    /// Checks for contradictions.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(format) = &self.format {
            Format::parse(format)?;
        }
        match (self.permute, self.block, self.size) {
            (Some(_), None, _) => Err("[workload]: to permute, say the `block`".into()),
            (Some(_), _, None) => Err("[workload]: to permute, say the `size` of what is permuted".into()),
            (None, _, Some(_)) => Err("[workload]: `size` is that of what is permuted; say `permute`".into()),
            _ => Ok(()),
        }
    }

    pub(super) fn open(
        &self,
        options: Options,
    ) -> Result<impl Iterator<Item = Result<Request, TraceError>> + use<>, String> {
        let format = self.format.as_deref().map(Format::parse).transpose()?;
        let trace = Trace::open(std::slice::from_ref(&self.path), &Options { format, ..options });
        let trace = trace.map_err(|error| error.to_string())?;
        let some = Sound { requests: trace.into_iter(), left: self.requests.unwrap_or(u64::MAX), is_checked: false };
        let block = self.block.map(|block| block.0);
        Blocks::new(some, block, self.permute.zip(self.size.map(|size| size.0)))
    }
}

/// The first requests of a trace, and an error behind them where no result should rest on it: nothing shows how a trace was
/// read in an experiment.
struct Sound {
    requests: Requests,
    left: u64,
    is_checked: bool,
}

impl Iterator for Sound {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(left) = self.left.checked_sub(1)
            && let Some(next) = self.requests.next()
        {
            self.left = left;
            return Some(next);
        }
        if std::mem::replace(&mut self.is_checked, true) {
            return None;
        }
        let import = self.requests.import();
        let problem = import.unsound()?;
        Some(Err(TraceError::Files(format!("{}: {problem}", import.files.join(", ")))))
    }
}

impl Workload for Replay {
    fn inputs(&self) -> Vec<PathBuf> {
        vec![self.trace.clone()]
    }

    fn check(&self, on: &RunTarget) -> Result<(), String> {
        self.wanted(self.trace.clone()).check()?;
        check_device(on)
    }

    fn run(&self, on: &RunTarget, context: &Context<'_>) -> Result<Vec<Measure>, String> {
        let RunTarget::Stack(stack) = on else { return check_device(on).map(|()| Vec::new()) };
        let wanted = self.wanted(existing(context.folder, &self.trace)?);
        let options = Options { latency: self.timing == Timing::Think, ..Options::default() };
        let mut spec = Spec { timing: self.timing, map: self.map, layout: None, seed: context.seed };
        if self.map == Map::Scale {
            let mut summary = Summary::default();
            for request in wanted.open(options.clone())? {
                summary.add(&request.map_err(|error| error.to_string())?);
            }
            let layout = TraceLayout::of(&summary, &crate::replay::Devices::One, &Names::default());
            spec.layout = Some(layout.map_err(|error| error.to_string())?);
        }
        let requests = context.outside.stop().requests(wanted.open(options)?);
        let outcome = simulate(stack, requests, &spec, &|_| {}).map_err(|error| error.to_string())?;
        Ok(vec![measure(&outcome)])
    }
}

impl Replay {
    fn wanted(&self, path: PathBuf) -> Wanted {
        let Replay { format, block, permute, size, requests, .. } = self;
        let (format, block, permute, size, requests) = (format.clone(), *block, *permute, *size, *requests);
        Wanted { path, format, block, permute, size, requests }
    }
}

/// A replay needs a stack of devices.
pub(super) fn check_device(on: &RunTarget) -> Result<(), String> {
    match on {
        RunTarget::Stack(stack) => check_stack(stack).map_err(|error| error.to_string()),
        RunTarget::Nothing => Err("a contestant needs `on`, a stack of devices".into()),
        RunTarget::Directory(path) => Err(format!("requests are made on devices, and {path} is a directory")),
    }
}

/// The outcome of a replay as a row.
pub(super) fn measure(outcome: &Outcome) -> Measure {
    let judged = outcome.reads_and_writes();
    let p99 = |op: Op| {
        let stats = &outcome.ops[op.index()];
        (stats.requests > 0).then(|| stats.quantile(0.99).as_millis_f64())
    };
    let each = outcome.requests_of_disks();
    let flash = FlashCounts::of(&outcome.counters);
    let drives = outcome.drives.len() as u64;
    Measure::new([
        ("elapsed_s", Some(outcome.elapsed.as_secs_f64())),
        ("requests", Some(outcome.total().requests as f64)),
        ("requests_per_s", outcome.requests_per_second()),
        ("bytes_per_s", outcome.bytes_per_second()),
        ("response_mean_ms", Some(judged.mean().as_millis_f64())),
        ("response_p50_ms", Some(judged.quantile(0.5).as_millis_f64())),
        ("response_p99_ms", Some(judged.quantile(0.99).as_millis_f64())),
        ("read_p99_ms", p99(Op::Read)),
        ("write_p99_ms", p99(Op::Write)),
        ("disk_busy", outcome.disk_busy()),
        ("disk_requests", each.map(|each| each.sum)),
        ("disk_requests_each", each.map(|each| each.sum / outcome.total().requests as f64)),
        ("disk_requests_per_s", each.map(|each| each.mean / outcome.elapsed.as_secs_f64())),
        ("flash_amplification", flash.amplification()),
        (
            "flash_over_closed_form",
            flash.amplification().zip(flash.closed_form(drives)).map(|(found, known)| found / known),
        ),
        ("disk_requests_spread", each.map(|each| each.deviation / each.mean)),
    ])
}

/// What the flash drives of a stack have counted.
#[derive(Clone, Copy, Default)]
pub(super) struct FlashCounts {
    written: u64,
    moved: u64,
    padded: u64,
    units: u64,
    places: u64,
    superblock: u64,
}

impl FlashCounts {
    pub(super) fn of(counters: &[(String, Vec<Counter>)]) -> FlashCounts {
        let mut all = FlashCounts::default();
        for (name, value) in counters.iter().flat_map(|(_, counters)| counters) {
            match *name {
                "units_written" => all.written += value,
                "units_moved" => all.moved += value,
                "units_padded" => all.padded += value,
                "units" => all.units += value,
                "unit_places" => all.places += value,
                "superblock_units_max" => all.superblock = *value,
                _ => {}
            }
        }
        all
    }

    /// What was counted since an earlier moment.
    pub(super) fn since(self, earlier: FlashCounts) -> FlashCounts {
        FlashCounts {
            written: self.written - earlier.written,
            moved: self.moved - earlier.moved,
            padded: self.padded - earlier.padded,
            ..self
        }
    }

    /// Units programmed for each unit of the host; `None` without a flash drive that was written.
    pub(super) fn amplification(&self) -> Option<f64> {
        (self.written > 0).then(|| (self.written + self.moved + self.padded) as f64 / self.written as f64)
    }

    /// The same under uniform overwrites of everything, on so many drives. One superblock of each is open and has no garbage to give.
    fn closed_form(&self, drives: u64) -> Option<f64> {
        let places = self.places.checked_sub(self.superblock * drives).filter(|places| *places > self.units)?;
        let superblock = u32::try_from(self.superblock).ok()?;
        let cleaned = model::greedy_utilisation(self.units as f64 / places as f64, superblock);
        Some(model::write_amplification(cleaned))
    }
}

#[cfg(test)]
mod tests {
    use seekless::stack::Stack;
    use seekless::units::Nanos;

    use super::*;

    /// A trace of which lines are rejected, or which is out of order beyond the window, gives no result; one line in a hundred may be
    /// wrong. Requests behind those that are asked for do not matter.
    #[test]
    fn unsound_traces_give_no_result() {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str, lines: &[String], requests| {
            let path = folder.path().join(name);
            std::fs::write(&path, lines.concat()).unwrap();
            let format = Some("csv:time=1:us,op=2,offset=3:B,length=4:B".to_owned());
            let wanted = Wanted { path, format, block: None, permute: None, size: None, requests };
            let all = wanted.open(Options::default()).unwrap();
            all.collect::<Result<Vec<_>, _>>().map(|all| all.len()).map_err(|error| error.to_string())
        };
        let mut lines: Vec<String> = (0..10_000).map(|n| format!("{},R,0,512\n", n + 100)).collect();
        assert_eq!(read("sound", &lines, None), Ok(10_000));
        for line in &mut lines[9_800..] {
            *line = "200,R,0,x\n".into();
        }
        let problem = read("rejected", &lines, None).unwrap_err();
        assert!(
            problem.contains("200 of its 10000 lines were rejected") && problem.contains("the length"),
            "{problem}"
        );
        assert_eq!(read("rejected", &lines, Some(1000)), Ok(1000));
        lines.truncate(9_801);
        assert_eq!(read("one", &lines, None), Ok(9_800));
        lines[9_000] = "1,R,0,512\n".into();
        assert!(read("late", &lines, None).unwrap_err().contains("1 of its requests came too late"));
    }

    /// Flushes and discards cost a modelled disk nothing, and change no metric but the number of requests.
    #[test]
    fn only_reads_and_writes_are_measured() {
        let stack = Stack::parse("disk:nearline-4tb").unwrap();
        let metrics = |flushes: u64| {
            let flushes = (0..flushes).map(|n| Request::new(Nanos(n), Op::Flush, 0, 0));
            let discard = Request::new(Nanos(0), Op::Discard, 0, 100 << 30);
            let read = Request::new(Nanos(0), Op::Read, 1 << 30, 4096);
            let all = [read].into_iter().chain(flushes.clone().take(1).map(move |_| discard)).chain(flushes).map(Ok);
            measure(&simulate(&stack, all, &Spec::default(), &|_| {}).unwrap()).metrics
        };
        let (alone, diluted) = (metrics(0), metrics(100));
        assert_eq!((alone["requests"], diluted["requests"]), (1.0, 102.0));
        for name in ["requests_per_s", "bytes_per_s", "response_mean_ms", "response_p50_ms", "response_p99_ms"] {
            assert_eq!(alone[name], diluted[name], "{name}");
        }
    }
}
