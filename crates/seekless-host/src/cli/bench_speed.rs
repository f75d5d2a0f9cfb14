//! How far and how fast a benchmark is, in words beside its progress bar; and how often one looks.

use std::time::{Duration, Instant};

use seekless::units::human_bytes;
use seekless_lab::workload::{PhaseProgress, Unit};

use super::output::rounded;

/// How often the text changes. A phase steps millions of times a second.
const EVERY: Duration = Duration::from_millis(100);

/// A look at the progress costs about a microsecond, and an operation that is measured may take less than one. So of many steps that
/// follow each other quickly a few are looked at: so many that looks are about this far apart.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Most steps between two looks, which may turn out to be slow ones: of a millisecond each they keep a signal waiting for one second.
const STEPS_MAX: u32 = 1023;

/// Which steps are looked at.
pub(super) struct ProgressSampler {
    /// Steps until the next look, and between two looks.
    left: u32,
    between: u32,
    looked: Instant,
    /// What was done at the last step, to notice another phase, whose steps may be slow.
    done: u64,
}

impl ProgressSampler {
    pub(super) fn new() -> ProgressSampler {
        ProgressSampler { left: 0, between: 0, looked: Instant::now(), done: 0 }
    }

    /// Whether this step is one to look at. `now` is asked at these alone.
    pub(super) fn is_due(&mut self, done: u64, now: impl FnOnce() -> Instant) -> bool {
        if done < self.done {
            (self.left, self.between) = (0, 0);
        }
        self.done = done;
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            return false;
        }
        let now = now();
        let since = now.saturating_duration_since(self.looked);
        self.looked = now;
        self.between = match since {
            _ if since < LOOK_EVERY => (self.between * 2 + 1).min(STEPS_MAX),
            _ if since < 4 * LOOK_EVERY => self.between,
            _ => self.between / 8,
        };
        self.left = self.between;
        true
    }
}

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

    /// Aim: quick steps are looked at a few times a second, slow ones each, also where a slow phase follows a quick one. Method: a
    /// clock that each step moves.
    #[test]
    fn quick_steps_are_rarely_looked_at() {
        let start = Instant::now();
        let (mut pace, mut passed) = (ProgressSampler::new(), Duration::ZERO);
        let mut looks = |steps: u64, each: Duration| {
            let mut due = 0;
            for done in 1..=steps {
                passed += each;
                due += u64::from(pace.is_due(done, || start + passed));
            }
            due
        };
        let quick = looks(2_000_000, Duration::from_nanos(760));
        assert!((100..4000).contains(&quick), "{quick} looks at 2,000,000 steps in 1.5 s");
        assert_eq!(looks(100, Duration::from_millis(30)), 100, "a slow phase");
        assert!(looks(2_000_000, Duration::from_nanos(760)) < 4000, "a quick one again");
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
