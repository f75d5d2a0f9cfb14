//! Traces as arguments of commands, and messages about them.

use seekless::units::Nanos;
use seekless_lab::trace::{Import, Summary, Trace};

use super::caller::{Caller, Step, Terminal};
use super::{Failure, output};

/// Reads and counts a whole trace. `what` is shown beside the progress.
pub(super) fn survey(trace: &mut Trace, what: &'static str) -> Result<Summary, Failure> {
    let terminal = Terminal::new(output::bytes(trace.progress().bytes_total(), what), None);
    let summary = survey_for(trace, what, &terminal);
    terminal.clear();
    summary
}

/// The same, as a part of what `caller` waits for.
pub(super) fn survey_for(trace: &mut Trace, what: &str, caller: &dyn Caller) -> Result<Summary, Failure> {
    let mut summary = Summary::default();
    let mut batch = Vec::new();
    let mut done = 0;
    while trace.next_batch(&mut batch)? {
        batch.iter().for_each(|request| summary.add(request));
        done += batch.len() as u64;
        batch.clear();
        if caller.at(step(trace, done, what)).is_break() {
            return Err(Failure::new("interrupted before the trace was read"));
        }
    }
    Ok(summary)
}

/// How far a trace is read.
pub(super) fn step<'a>(trace: &Trace, requests: u64, what: &'a str) -> Step<'a> {
    let (done, total) = match trace.progress().bytes() {
        0 => (requests, None), // Its requests are in memory.
        bytes => (bytes, trace.progress().bytes_total()),
    };
    Step { what, done, total, rate: None }
}

/// Reports on standard error how a trace was interpreted, with everything that was skipped.
pub(super) fn describe(import: &Import) {
    output::note(import.to_text().trim_end());
    if let Some(rejection) = import.rejection() {
        output::note(&format!("warning: {rejection}"));
    }
}

/// A length of time with its unit.
pub(super) fn duration(text: &str) -> Result<Nanos, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit: f64 = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        "h" => 3600e9,
        _ => return Err("write a time with its unit: 500ms, 10s, 5min, 2h".into()),
    };
    let number: f64 = number.parse().map_err(|_| format!("`{number}` is not a number"))?;
    Ok(Nanos((number * unit) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times have units.
    #[test]
    fn durations() {
        let read = |text: &str| duration(text).map(|time| time.0);
        assert_eq!(read("500ms"), Ok(500_000_000));
        assert_eq!(read("1.5s"), Ok(1_500_000_000));
        assert_eq!(read("2h"), Ok(7_200_000_000_000));
        assert!(read("10").is_err() && read("s").is_err() && read("1.2.3s").is_err() && read("-1s").is_err());
    }
}
