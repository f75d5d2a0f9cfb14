//! Statistics of a mount in the text format of Prometheus, version 0.0.4, made from their JSON.

use std::fmt::Write as _;

use serde_json::Value;

use crate::fuse::{CLASSES, class_end};

/// A family of metrics: its name, type and meaning, and the samples that are there.
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    samples: Vec<Sample>,
}

struct Sample {
    /// Behind the name of the family, such as `_bucket`.
    suffix: &'static str,
    labels: Vec<(&'static str, String)>,
    value: f64,
}

impl Family {
    fn new(name: &'static str, kind: &'static str, help: &'static str) -> Family {
        Family { name, kind, help, samples: Vec::new() }
    }

    fn add(&mut self, labels: &[(&'static str, &str)], value: Option<f64>) {
        self.add_as("", labels, value);
    }

    fn add_as(&mut self, suffix: &'static str, labels: &[(&'static str, &str)], value: Option<f64>) {
        let labels = labels.iter().map(|&(name, value)| (name, value.to_owned())).collect();
        self.samples.extend(value.map(|value| Sample { suffix, labels, value }));
    }

    /// With `mount` in front of the labels of each sample.
    fn write(&self, text: &mut String, mount: Option<&str>) {
        if self.samples.is_empty() {
            return;
        }
        let Family { name, kind, help, .. } = self;
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for Sample { suffix, labels, value } in &self.samples {
            let labels = labels.iter().map(|(name, value)| (*name, &**value));
            let labels: Vec<String> = (mount.map(|mount| ("mount", mount)).into_iter().chain(labels))
                .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
                .collect();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let _ = writeln!(text, "{name}{suffix}{labels} {value}");
        }
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The text for `statistics`. What these leave out is left out. Where a server has several mounts, `mount` says which one this is.
pub(super) fn to_text(statistics: &Value, mount: Option<&str>) -> String {
    let mut text = String::new();
    let mut families = vec![about(statistics)];
    families.extend(operations(statistics));
    families.extend(parts(statistics));
    families.extend(space(statistics));
    families.extend(process(statistics));
    families.iter().for_each(|family| family.write(&mut text, mount));
    text
}

fn about(statistics: &Value) -> Family {
    let mut about = Family::new("seekless_info", "gauge", "Version of the daemon and how the mount works; always 1");
    let mount = &statistics["mount"];
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, stack, transport) = (word(&statistics["seekless"]), word(&mount["stack"]), word(&mount["transport"]));
    about.add(&[("version", &version), ("stack", &stack), ("transport", &transport)], Some(1.0));
    about
}

fn operations(statistics: &Value) -> [Family; 2] {
    let mut failed =
        Family::new("seekless_operation_errors_total", "counter", "Operations that were answered with an error");
    let mut took = Family::new(
        "seekless_operation_duration_seconds",
        "histogram",
        "Time from receiving an operation from the kernel to its answer",
    );
    for operation in statistics["operations"].as_array().into_iter().flatten() {
        let name = operation["operation"].as_str().unwrap_or("?");
        let labels = [("operation", name)];
        failed.add(&labels, operation["failed"].as_f64());
        // Every class, also those in which nothing is: a series that begins late has no rate at first, and sums over several mounts
        // take it for 0.
        for end in (0..CLASSES).filter_map(class_end) {
            let classes = operation["by_time"].as_array().into_iter().flatten();
            let within = classes
                .filter(|class| class["at_most_us"].as_u64().is_some_and(|us| u128::from(us) <= end.as_micros()));
            // Not `sum`, which is -0 where there is nothing.
            let counted = within.fold(0.0, |sum, class| sum + class["count"].as_f64().unwrap_or(0.0));
            took.add_as("_bucket", &[("operation", name), ("le", &end.as_secs_f64().to_string())], Some(counted));
        }
        took.add_as("_bucket", &[("operation", name), ("le", "+Inf")], operation["answered"].as_f64());
        took.add_as("_sum", &labels, operation["total_us"].as_f64().map(|us| us / 1e6));
        took.add_as("_count", &labels, operation["answered"].as_f64());
    }
    [took, failed]
}

fn parts(statistics: &Value) -> [Family; 4] {
    // Some are totals and some are levels, and what each means is for its part to know.
    let mut counters =
        Family::new("seekless_counter", "untyped", "What the parts of the stack have counted, top first");
    let mut segments = Family::new("seekless_log_segments", "gauge", "Segments of a log by what they hold");
    let mut live = Family::new("seekless_log_live_bytes", "gauge", "Live bytes of a log");
    let mut size = Family::new("seekless_log_segment_bytes", "gauge", "Size of a segment of a log");
    for (number, part) in statistics["parts"].as_array().into_iter().flatten().enumerate() {
        let (number, name) = (number.to_string(), part["part"].as_str().unwrap_or("?"));
        let of_part = [("number", &*number), ("part", name)];
        for (counter, value) in part["counters"].as_object().into_iter().flatten() {
            counters.add(&[of_part[0], of_part[1], ("counter", counter)], value.as_f64());
        }
        let log = &part["log"];
        let all = log["segments"].as_f64();
        let (clean, empty) = (log["segments_clean"].as_f64(), log["segments_empty"].as_f64());
        let in_use = all.zip(clean).zip(empty).map(|((all, clean), empty)| all - clean - empty);
        for (state, count) in [("clean", clean), ("empty", empty), ("live", in_use)] {
            segments.add(&[of_part[0], of_part[1], ("state", state)], count);
        }
        live.add(&of_part, log["live_bytes"].as_f64());
        size.add(&of_part, log["segment_bytes"].as_f64());
    }
    [counters, segments, live, size]
}

fn space(statistics: &Value) -> [Family; 2] {
    let space = &statistics["space"];
    let mut bytes = Family::new("seekless_space_bytes", "gauge", "Space of the file system, as df shows it");
    let mut files = Family::new("seekless_files", "gauge", "Inodes of the file system, as df -i shows them");
    for kind in ["total", "free", "available"] {
        bytes.add(&[("kind", kind)], space[kind].as_f64());
    }
    for (kind, key) in [("total", "files"), ("free", "files_free")] {
        files.add(&[("kind", kind)], space[key].as_f64());
    }
    [bytes, files]
}

fn process(statistics: &Value) -> [Family; 2] {
    let process = &statistics["process"];
    let mut cpu = Family::new("seekless_process_cpu_seconds_total", "counter", "Processor time of the daemon");
    let mut memory = Family::new("seekless_process_resident_memory_bytes", "gauge", "Memory of the daemon");
    cpu.add(&[], process["cpu_seconds"].as_f64());
    memory.add(&[], process["resident_bytes"].as_f64());
    [cpu, memory]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Classes of durations are summed up, as the format wants it, and labels are escaped.
    #[test]
    fn histograms_are_cumulative() {
        let by_time = json!([
            { "at_most_us": 2, "count": 2 },
            { "at_most_us": 4, "count": 3 },
            { "at_most_us": null, "count": 1 },
        ]);
        let operation = json!({
            "operation": "lookup", "answered": 6, "failed": 1, "total_us": 4_000_000, "by_time": by_time,
        });
        let text = to_text(
            &json!({
                "seekless": "1.2",
                "mount": { "stack": "lfs / file:\"a\".img", "transport": "devfuse" },
                "operations": [operation],
                "parts": [{ "part": "lfs", "counters": { "log_bytes": 7 }, "log": {
                    "segments": 10, "segments_clean": 3, "segments_empty": 1, "live_bytes": 5, "segment_bytes": 64,
                } }],
            }),
            None,
        );
        let wanted = [
            "seekless_info{version=\"1.2\",stack=\"lfs / file:\\\"a\\\".img\",transport=\"devfuse\"} 1",
            "# TYPE seekless_operation_duration_seconds histogram",
            "seekless_operation_duration_seconds_bucket{operation=\"lookup\",le=\"0.000001\"} 0",
            "seekless_operation_duration_seconds_bucket{operation=\"lookup\",le=\"0.000002\"} 2",
            "seekless_operation_duration_seconds_bucket{operation=\"lookup\",le=\"0.000004\"} 5",
            "seekless_operation_duration_seconds_bucket{operation=\"lookup\",le=\"16.777216\"} 5",
            "seekless_operation_duration_seconds_bucket{operation=\"lookup\",le=\"+Inf\"} 6",
            "seekless_operation_duration_seconds_sum{operation=\"lookup\"} 4",
            "seekless_operation_duration_seconds_count{operation=\"lookup\"} 6",
            "seekless_operation_errors_total{operation=\"lookup\"} 1",
            "seekless_counter{number=\"0\",part=\"lfs\",counter=\"log_bytes\"} 7",
            "seekless_log_segments{number=\"0\",part=\"lfs\",state=\"live\"} 6",
        ];
        for line in wanted {
            assert!(text.lines().any(|other| other == line), "{line}\nis not in\n{text}");
        }
        let of_mount = to_text(&json!({ "process": { "cpu_seconds": 2 } }), Some("/srv/\"a\""));
        for line in [
            "seekless_process_cpu_seconds_total{mount=\"/srv/\\\"a\\\"\"} 2",
            "seekless_info{mount=\"/srv/\\\"a\\\"\",version=\"\",stack=\"\",transport=\"\"} 1",
        ] {
            assert!(of_mount.lines().any(|other| other == line), "{line}\nis not in\n{of_mount}");
        }
        assert!(!text.contains("seekless_space_bytes"), "what is not known is left out:\n{text}");
        for nonsense in [json!(null), json!({ "operations": 3, "parts": [7] }), json!({ "operations": [{}] })] {
            to_text(&nonsense, None);
        }
    }
}
