//! How far and how fast a benchmark is, in words beside its progress bar.

use std::time::{Duration, Instant};

use seekless::units::human_bytes;
use seekless_lab::workload::{PhaseProgress, Unit};

use super::output::rounded;

/// How often the text changes. A phase steps millions of times a second.
const EVERY: Duration = Duration::from_millis(100);

/// The text for the phase that is under way.
pub(super) struct Speed {
    /// Time is virtual: how fast it passes is said, too.
    is_simulated: bool,
    /// What it was in the last step, to notice another phase.
    done: u64,
    began: Instant,
    written: Option<Instant>,
    text: String,
}

impl Speed {
    pub(super) fn new(is_simulated: bool) -> Speed {
        Speed { is_simulated, done: 0, began: Instant::now(), written: None, text: String::new() }
    }

    pub(super) fn at(&mut self, step: &PhaseProgress<'_>) -> &str {
        let now = Instant::now();
        if step.done < self.done {
            (self.began, self.written) = (now, None);
        }
        self.done = step.done;
        if self.written.is_none_or(|written| now.duration_since(written) >= EVERY) {
            self.written = Some(now);
            self.text = text(step, self.is_simulated.then(|| now.duration_since(self.began)));
        }
        &self.text
    }
}

/// `took` is the real time of a simulation.
fn text(step: &PhaseProgress<'_>, took: Option<Duration>) -> String {
    let elapsed = step.elapsed.as_secs_f64();
    let rate = step.done as f64 / elapsed;
    let shown: fn(u64) -> String = if step.unit == Unit::Bytes { human_bytes } else { |count| count.to_string() };
    let of = if step.total > 0 { format!("/{}", shown(step.total)) } else { String::new() };
    let count = format!("{}{of}", shown(step.done));
    let (count, rate) = match step.unit {
        Unit::Bytes => (count, rate.is_finite().then(|| human_bytes(rate as u64))),
        Unit::Files => (format!("{count} files"), rate.is_finite().then(|| rounded(rate))),
        Unit::Transactions => (format!("{count} transactions"), rate.is_finite().then(|| rounded(rate))),
    };
    let rate = rate.unwrap_or_else(|| "-".to_owned());
    match took {
        None => format!("{count}, {rate}/s"),
        Some(took) => format!("{count}, {rate}/s simulated, {}x real time", rounded(elapsed / took.as_secs_f64())),
    }
}

#[cfg(test)]
mod tests {
    use seekless::units::Nanos;

    use super::*;

    /// The rate is that of the run's clock; the speed of a simulation is beside it.
    #[test]
    fn virtual_and_real_speed_are_distinguished() {
        let step =
            |unit, done, total| PhaseProgress { phase: "create", unit, done, total, elapsed: Nanos::from_secs(10) };
        let real = Some(Duration::from_secs(2));
        for (step, took, expected) in [
            (step(Unit::Files, 12_000, 20_000), None, "12000/20000 files, 1200/s"),
            (step(Unit::Files, 12_000, 20_000), real, "12000/20000 files, 1200/s simulated, 5.0x real time"),
            (step(Unit::Bytes, 20 << 20, 64 << 20), None, "20 MiB/64 MiB, 2 MiB/s"),
            (PhaseProgress { elapsed: Nanos::ZERO, ..step(Unit::Files, 0, 5) }, None, "0/5 files, -/s"),
            (step(Unit::Files, 12, 0), None, "12 files, 1.2/s"),
        ] {
            assert_eq!(text(&step, took), expected);
        }
    }

    /// Another phase begins with a text of its own.
    #[test]
    fn phases_are_noticed() {
        let mut speed = Speed::new(false);
        let step = |done| PhaseProgress { phase: "x", unit: Unit::Files, done, total: 9, elapsed: Nanos::from_secs(1) };
        assert_eq!(speed.at(&step(5)), "5/9 files, 5.0/s");
        assert_eq!(speed.at(&step(6)), "5/9 files, 5.0/s", "not a text for each step");
        assert_eq!(speed.at(&step(1)), "1/9 files, 1.0/s");
    }
}
