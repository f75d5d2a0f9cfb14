//! What the parts of a running stack have counted, as JSON, and as text from that JSON, which may come from another
//! process.

use std::time::Duration;

use seekless::fs::{LogUsage, StatFs};
use seekless::stack::Part;
use seekless::units::{counted, human_bytes};
use serde_json::{Map, Value, json};

use super::mount_options::Waiting;
use crate::fuse::{Answers, Operations, class_end};

/// The parts of a stack, top first.
pub(super) fn of(parts: &[Part]) -> Value {
    let part = |part: &Part| {
        let counters: Map<String, Value> =
            part.counters().into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        let mut object = json!({ "part": part.describe(), "counters": counters });
        if let Some(log) = part.log_usage() {
            object["log"] = log_of(&log);
        }
        object
    };
    json!({
        "kind": "statistics",
        "seekless": env!("CARGO_PKG_VERSION"),
        "parts": parts.iter().map(part).collect::<Vec<_>>(),
    })
}

/// How a mount works.
pub(super) struct MountFacts {
    pub(super) stack: String,
    pub(super) transport: &'static str,
    pub(super) passthrough: bool,
    pub(super) waiting: Waiting,
}

/// The statistics of a mount: those of its parts, what it has answered, and what the daemon has used.
pub(super) fn of_mount(parts: &[Part], facts: &MountFacts, operations: &Operations) -> Value {
    let mut statistics = of(parts);
    let MountFacts { stack, transport, passthrough, waiting: Waiting { busy_poll, share_processor } } = facts;
    statistics["mount"] = json!({
        "stack": stack,
        "transport": transport,
        "passthrough": passthrough,
        "busy_poll": busy_poll,
        "share_processor": share_processor,
    });
    statistics["operations"] =
        operations.answered().iter().map(|(name, answers)| operation_of(name, answers)).collect();
    statistics["process"] = process();
    statistics
}

/// How the daemon waits for requests, from the statistics of its mount. `None` where it is of a version that does not say so.
pub(super) fn waiting_of(statistics: &str) -> Option<Waiting> {
    let statistics: Value = serde_json::from_str(statistics).ok()?;
    let fact = |name: &str| statistics["mount"][name].as_bool();
    Some(Waiting { busy_poll: fact("busy_poll")?, share_processor: fact("share_processor")? })
}

fn operation_of(name: &str, answers: &Answers) -> Value {
    let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
    let by_time = answers.by_time.iter().enumerate().filter(|(_, count)| **count > 0);
    json!({
        "operation": name,
        "answered": answers.answered,
        "failed": answers.failed,
        "total_us": micros(answers.took),
        "mean_us": micros(answers.mean()),
        "p50_us": micros(answers.percentile(50)),
        "p99_us": micros(answers.percentile(99)),
        "slowest_us": micros(answers.slowest),
        "by_time": by_time.map(|(class, count)| json!({
            "at_most_us": class_end(class).map(|end| end.as_micros() as u64),
            "count": count,
        })).collect::<Vec<_>>(),
    })
}

/// What this process has used, as far as the system says.
fn process() -> Value {
    let cpu = cpu_time::ProcessTime::try_now().ok().map(|time| time.as_duration().as_secs_f64());
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let resident = pages.as_deref().and_then(|text| text.split(' ').nth(1)).and_then(|pages| pages.parse::<u64>().ok());
    json!({
        "cpu_seconds": cpu,
        "resident_bytes": resident.map(|pages| pages * rustix::param::page_size() as u64),
    })
}

/// The space of a file system, as df shows it.
pub(super) fn space_of(space: &StatFs) -> Value {
    let bytes = |blocks: u64| blocks.saturating_mul(space.block_bytes.into());
    json!({
        "total": bytes(space.blocks),
        "free": bytes(space.blocks_free),
        "available": bytes(space.blocks_available),
        "files": space.inodes,
        "files_free": space.inodes_free,
    })
}

fn log_of(log: &LogUsage) -> Value {
    json!({
        "segment_bytes": log.segment_bytes,
        "segments": log.segments(),
        "segments_clean": log.clean,
        "segments_empty": log.empty,
        "live_bytes": log.live_bytes,
        "segments_by_live": log.by_live,
    })
}

/// The same for people. What a daemon of another version leaves out is left out.
pub(super) fn to_text(statistics: &Value) -> String {
    let mut text = operations_text(&statistics["operations"]);
    for part in statistics["parts"].as_array().into_iter().flatten() {
        text += &format!("{}\n", part["part"].as_str().unwrap_or("?"));
        let counter = |name: &str| part["counters"][name].as_u64();
        if let Some(log) = part["log"].as_object() {
            text += &log_text(log);
            text += &written_text(&counter);
        }
        let shown = ["log_bytes", "log_data_bytes", "log_metadata_bytes", "log_cleaned_bytes", "write_cost_permille"];
        let mut at_zero = Vec::new();
        for (name, value) in part["counters"].as_object().into_iter().flatten() {
            let in_words = part["log"].is_object() && (shown.contains(&&**name) || name.starts_with("cleaner_"));
            let words = name.replace('_', " ");
            match value.as_u64() {
                _ if in_words => {}
                Some(0) => at_zero.push(words),
                _ => text += &format!("  {words:<24} {value}\n"),
            }
        }
        if !at_zero.is_empty() {
            text += &format!("  at 0: {}\n", at_zero.join(", "));
        }
    }
    text
}

/// What has been answered, the most frequent first.
fn operations_text(operations: &Value) -> String {
    let mut all: Vec<&Value> = operations.as_array().into_iter().flatten().collect();
    if all.is_empty() {
        return String::new();
    }
    let count = |operation: &Value, key: &str| operation[key].as_u64().unwrap_or(0);
    all.sort_by_key(|operation| std::cmp::Reverse(count(operation, "answered")));
    let time = |operation: &Value, key: &str| match operation[key].as_f64() {
        Some(us) if us < 1e3 => format!("{us:.1} us"),
        Some(us) if us < 1e6 => format!("{:.1} ms", us / 1e3),
        Some(us) => format!("{:.1} s", us / 1e6),
        None => "-".to_owned(),
    };
    let mut text = format!(
        "{:<18} {:>12} {:>9} {:>9} {:>9} {:>9}\n",
        "operations", "answered", "failed", "mean", "p99 up to", "slowest"
    );
    for operation in all {
        let name = operation["operation"].as_str().unwrap_or("?");
        let [mean, p99, slowest] = ["mean_us", "p99_us", "slowest_us"].map(|key| time(operation, key));
        let (answered, failed) = (count(operation, "answered"), count(operation, "failed"));
        text += &format!("  {name:<16} {answered:>12} {failed:>9} {mean:>9} {p99:>9} {slowest:>9}\n");
    }
    text
}

/// Bytes by what they are, and what they cost.
fn written_text(counter: &impl Fn(&str) -> Option<u64>) -> String {
    let known = counter("log_bytes").zip(counter("log_data_bytes")).zip(counter("log_cleaned_bytes"));
    let Some(((all, data), moved)) = known.filter(|((all, _), _)| *all > 0) else {
        return "  nothing has been written since it was mounted\n".to_owned();
    };
    let metadata = counter("log_metadata_bytes").unwrap_or(0);
    let read = counter("cleaner_read_bytes").unwrap_or(0);
    let of_data = |bytes: u64| match data {
        0 => "-".to_owned(),
        data => format!("{:.2}", bytes as f64 / data as f64),
    };
    let line = |what: &str, bytes: u64| format!("    {what:<22} {:>10}  {:>8}\n", human_bytes(bytes), of_data(bytes));
    let mut text = format!("  {:<24} {:>10}  {:>8}\n", "written since the mount", "bytes", "of data");
    text += &line("file data", data);
    text += &line("metadata", metadata);
    text += &line("moved by the cleaner", moved);
    // What rounds items up to whole sectors is in no counter of its own.
    let rest = all.saturating_sub(data.saturating_add(metadata).saturating_add(moved));
    text += &line("summaries and padding", rest);
    text += &line("all", all);
    text += &format!(
        "  for file data: write amplification {}; write cost {}, which counts what the cleaner read [ro92 §3.4]\n",
        of_data(all),
        of_data(all.saturating_add(read))
    );
    if let Some(permille) = counter("write_cost_permille") {
        text += &format!(
            "  for file data and metadata, without summaries and padding: write cost {:.3}, `write_cost_permille` of --json\n",
            permille as f64 / 1000.0
        );
    }
    if let Some(passes) = counter("cleaner_passes") {
        let passes = if passes == 1 { "1 pass".to_owned() } else { format!("{passes} passes") };
        let read = counted(counter("cleaner_segments_read").unwrap_or(0), "segment");
        text += &format!("  cleaner: {passes}, {read} read\n");
    }
    text
}

/// How full the segments are, as bars.
fn log_text(log: &Map<String, Value>) -> String {
    let number = |name: &str| log.get(name).and_then(Value::as_u64).unwrap_or(0);
    let (segments, segment_bytes) = (number("segments"), number("segment_bytes"));
    let by_live: Vec<u64> =
        log.get("segments_by_live").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_u64).collect();
    let all_bytes = segments.saturating_mul(segment_bytes).max(1);
    let mut text = format!(
        "  {segments} segments of {}: {} clean, {} empty that recovery may need, {} with live data\n  {:.1} % of the log is alive\n",
        human_bytes(segment_bytes),
        number("segments_clean"),
        number("segments_empty"),
        by_live.iter().sum::<u64>(),
        number("live_bytes") as f64 * 100.0 / all_bytes as f64,
    );
    text += "  alive in a segment   segments\n";
    let most = by_live.iter().copied().max().unwrap_or(0).max(1);
    for (bin, &count) in by_live.iter().enumerate() {
        let width = 100 / by_live.len();
        let bar = "#".repeat((count * BAR).div_ceil(most) as usize);
        let line = format!("    {:>3} to {:>3} %     {count:>8} {bar}", bin * width, (bin + 1) * width);
        text += &format!("{}\n", line.trim_end());
    }
    text
}

/// Characters of the longest bar.
const BAR: u64 = 30;

#[cfg(test)]
mod tests {
    use super::*;

    /// Aim: a histogram is drawn from what a daemon answers, and nonsense from another process does no harm. Method: an
    /// answer with known numbers, then answers without them.
    #[test]
    fn text_follows_from_json() {
        let mut by_live = [0; LogUsage::BINS];
        by_live[19] = 8;
        by_live[3] = 2;
        let log = LogUsage { segment_bytes: 1 << 19, clean: 4, empty: 2, live_bytes: 4 << 20, by_live };
        assert_eq!(log.segments(), 16);
        let counters = json!({ "log_bytes": 300, "log_data_bytes": 100, "log_metadata_bytes": 20, "log_cleaned_bytes": 150,
            "cleaner_read_bytes": 200, "write_cost_permille": 3917 });
        let value = json!({ "parts": [{ "part": "lfs", "counters": counters, "log": log_of(&log) }] });
        let text = to_text(&value);
        for wanted in
            ["16 segments of 512 KiB: 4 clean, 2 empty", "50.0 % of the log", "15 to  20 %            2 ########\n"]
        {
            assert!(text.contains(wanted), "{wanted}:\n{text}");
        }
        assert!(text.contains("for file data: write amplification 3.00; write cost 5.00"), "{text}");
        // Each cost says what it is for, and the parts are the whole: 100 + 20 + 150 + 30.
        assert!(text.contains("without summaries and padding: write cost 3.917"), "{text}");
        let rest = text.lines().find(|line| line.contains("summaries and padding  ")).expect("a line");
        assert!(rest.ends_with("30 B      0.30"), "{rest}");
        let zeroes =
            json!({ "parts": [{ "part": "file:a", "counters": { "direct_writes": 0, "reads": 3, "syncs": 0 } }] });
        assert_eq!(to_text(&zeroes), "file:a\n  reads                    3\n  at 0: direct writes, syncs\n");
        for nonsense in
            [json!(null), json!({ "parts": 7 }), json!({ "parts": [{ "log": { "segments_by_live": [1, "x"] } }] })]
        {
            to_text(&nonsense);
        }
    }

    #[test]
    fn segments_have_bins() {
        let bins = [1, 512, 1 << 19].map(|live| LogUsage::bin(live, 1 << 19));
        assert_eq!(bins, [0, 0, LogUsage::BINS - 1]);
        assert_eq!(LogUsage::bin(1, 0), 0);
    }
}
