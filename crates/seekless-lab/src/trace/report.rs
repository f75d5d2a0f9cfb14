//! Reports about a trace: how it was interpreted, and its contents.

use std::fmt::Write;

use seekless::units::{Nanos, counted, human_bytes};

use super::request::{Names, Op};
use super::{Import, Summary};

/// Limit of devices listed individually.
const DEVICES_SHOWN: usize = 12;

/// A time to three digits, in the unit that suits it.
pub fn time_text(time: Nanos) -> String {
    let (value, unit) = match time.0 {
        0..1_000 => return format!("{} ns", time.0),
        1_000..1_000_000 => (time.0 as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (time.0 as f64 / 1e6, "ms"),
        1_000_000_000..7_200_000_000_000 => (time.0 as f64 / 1e9, "s"),
        _ => (time.0 as f64 / 3.6e12, "h"),
    };
    match value {
        ..10.0 => format!("{value:.2} {unit}"),
        10.0..100.0 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

impl Import {
    /// What was understood, and what was not, in a few lines.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let files = match &self.files[..] {
            [one] => one.clone(),
            [first, .., last] => format!("{} files, {first} to {last}", self.files.len()),
            [] => String::new(),
        };
        let (format, why) = (&self.format, &self.why);
        let count = |tallies: &[super::Tally]| tallies.iter().map(|tally| tally.count).sum::<u64>();
        let (skipped, rejected) = (count(&self.skipped), count(&self.rejected));
        // Writing to a string does not fail.
        let _ = writeln!(text, "{files}: read as {format}, {why}");
        let (units, requests) = (self.units_text(), counted(self.requests, "request"));
        let _ = writeln!(text, "{units}: {requests}, {skipped} skipped, {rejected} rejected");
        for tally in &self.rejected {
            let _ = writeln!(text, "  rejected: {} x {}{}", tally.count, tally.reason, self.example_of(tally));
        }
        for tally in &self.skipped {
            let _ = writeln!(text, "  skipped: {} x {}", tally.count, tally.reason);
        }
        for tally in &self.in_part {
            let _ = writeln!(text, "  used in part: {} x {}{}", tally.count, tally.reason, self.example_of(tally));
        }
        if self.other_devices > 0 {
            let _ = writeln!(text, "  passed over: {} of other devices", counted(self.other_devices, "request"));
        }
        if self.out_of_order > 0 {
            let back = time_text(Nanos(self.back_max_ns));
            let sorted = match self.too_late {
                0 => "sorted".to_owned(),
                late => format!(
                    "not sorted: {late} of them, which came too late; a larger --sort-window, in requests, sorts them"
                ),
            };
            let _ =
                writeln!(text, "  out of order: {}, by up to {back}; {sorted}", counted(self.out_of_order, "request"));
        }
        for note in &self.notes {
            let _ = writeln!(text, "  note: {note}");
        }
        text
    }
}

impl Summary {
    /// The contents of the trace, in lines of a name and a value.
    pub fn to_text(&self, names: &Names) -> String {
        let mut lines: Vec<(String, String)> = Vec::new();
        let mut line = |name: &str, value: String| lines.push((name.to_owned(), value));
        let share = |part: u64, whole: u64| format!("{:.1} %", part as f64 * 100.0 / whole.max(1) as f64);
        let span = self.span();
        line("span", time_text(span));
        let rate = match span {
            Nanos::ZERO => String::new(),
            span => format!(", {:.1} a second", self.requests() as f64 / span.as_secs_f64()),
        };
        line("requests", format!("{}{rate}", self.requests()));
        for op in Op::ALL {
            let numbers = self.ops[op.index()];
            if numbers.requests > 0 {
                let (requests, part) = (numbers.requests, share(numbers.requests, self.requests()));
                let bytes = if op == Op::Flush { String::new() } else { format!(", {}", human_bytes(numbers.bytes)) };
                line(op.name(), format!("{requests}, {part}{bytes}"));
            }
        }
        line("sequential", format!("{:.1} % of reads and writes", self.sequential_share() * 100.0));
        let moved = self.requests() - self.ops[Op::Flush.index()].requests;
        let (sectors, pages) = (share(self.aligned_512, moved), share(self.aligned_4096, moved));
        line("aligned", format!("{sectors} to 512 bytes, {pages} to 4096"));
        let lengths = self.lengths.iter().enumerate().filter(|(_, count)| **count * 100 >= moved.max(1));
        let lengths: Vec<String> =
            lengths.map(|(power, count)| format!("{} {}", human_bytes(1 << power), share(*count, moved))).collect();
        line("lengths from", lengths.join(", "));
        match self.footprint() {
            Some(bytes) => line("footprint", format!("{}, to a MiB", human_bytes(bytes))),
            None => line("footprint", "too scattered to count".to_owned()),
        }
        if let Some((count, mean, median, p99, max)) = self.latencies() {
            let [mean, median, p99, max] = [mean, median, p99, max].map(time_text);
            line("recorded latency", format!("mean {mean}, p50 {median}, p99 {p99}, max {max} of {count}"));
        }
        for (device, numbers) in self.devices.iter().take(DEVICES_SHOWN) {
            let (requests, bytes, end) =
                (counted(numbers.requests, "request"), human_bytes(numbers.bytes), human_bytes(numbers.end));
            line("device", format!("{}: {requests}, {bytes}, up to {end}", names.text(*device)));
        }
        if self.devices.len() > DEVICES_SHOWN {
            line("", format!("and {}", counted((self.devices.len() - DEVICES_SHOWN) as u64, "more device")));
        }
        let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        lines.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect()
    }
}
