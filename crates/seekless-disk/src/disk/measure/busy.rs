//! Why a measurement failed: answers come late, and programs of this machine are woken late, or not.
//!
//! A disk's answer is late by as much as the machine wakes a program late, whatever the disk does. So sleeps tell a busy machine from a
//! device, or a server of it, that has other work.

use std::fmt;

use super::MeasureError;
use super::probe::Probe;
use super::record::LATE_NOTED;
use crate::units::Nanos;

const SLEEP: Nanos = Nanos(1_000_000);
/// So many show the tenth that is latest, and take a second on a machine that wakes each 10 ms late.
const SLEEPS: usize = 100;

/// A machine that wakes a tenth of its sleepers later than this is busy: ten times what Linux lets a timer be late (prctl(2),
/// `PR_SET_TIMERSLACK`). At 7,200 revolutions a minute the heads pass the twentieth part of a track in it.
const SLEEP_LATE_MIN: Nanos = Nanos(500_000);

/// How late answers and sleeps are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lateness {
    /// The largest share of late answers, in percent; `None` before the rotation was found, without which none is known to be late.
    pub answers_percent: Option<u32>,
    /// A tenth of all sleeps ends as late as this, or later.
    pub sleeps_tenth: Nanos,
}

impl Lateness {
    fn is_of_machine(&self) -> bool {
        self.sleeps_tenth >= SLEEP_LATE_MIN
    }

    fn is_of_answers(&self) -> bool {
        self.answers_percent.is_some_and(|percent| f64::from(percent) > 100.0 * LATE_NOTED)
    }
}

impl fmt::Display for Lateness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(percent) = self.answers_percent {
            write!(f, "up to {percent} % of the answers came late; ")?;
        }
        let tenth = self.sleeps_tenth.as_millis_f64();
        match self.is_of_machine() {
            true => write!(
                f,
                "this machine is too busy: it ends a tenth of sleeps of 1 ms {tenth:.1} ms late or later. Stop other programs, or run this one \
                 before them: as root, chrt -f 30 seekless disk measure ..."
            ),
            false => write!(
                f,
                "this machine ends sleeps on time (a tenth {tenth:.2} ms late or later), so the device, or the server that exports it, has other \
                 work. Stop that, or run the server before other programs: as root, chrt -f 30 seekless export ..."
            ),
        }
    }
}

/// `error`, with how late answers and sleeps are if that explains it.
pub(super) async fn or_busy(probe: &Probe<'_>, error: MeasureError) -> MeasureError {
    let mut late = Vec::new();
    for _ in 0..SLEEPS {
        let until = probe.rt.now() + SLEEP;
        probe.rt.sleep_until(until).await;
        late.push(probe.rt.now().saturating_sub(until));
    }
    late.sort_unstable();
    let lateness = Lateness { answers_percent: probe.late_most_percent(), sleeps_tenth: late[SLEEPS * 9 / 10] };
    explained(error, lateness)
}

fn explained(error: MeasureError, lateness: Lateness) -> MeasureError {
    match lateness.is_of_machine() || lateness.is_of_answers() {
        true => MeasureError::TooBusy { problem: error.to_string(), lateness },
        false => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Late sleeps are of the machine, late answers alone of the device; without either, an error is as it was.
    #[test]
    fn what_is_late_is_named() {
        let error = || MeasureError::NoTracks { problem: "0 of 64 places have one".into() };
        let on_time = Nanos(100_000);
        let lateness = |answers_percent, sleeps_tenth| Lateness { answers_percent, sleeps_tenth };
        let text = explained(error(), lateness(Some(40), Nanos(5_200_000))).to_string();
        assert!(text.contains("0 of 64") && text.contains("40 %") && text.contains("machine is too busy"), "{text}");
        assert!(text.contains("5.2 ms"), "{text}");
        let text = explained(error(), lateness(None, Nanos(5_200_000))).to_string();
        assert!(!text.contains('%') && text.contains("machine is too busy"), "{text}");
        let text = explained(error(), lateness(Some(40), on_time)).to_string();
        assert!(text.contains("40 %") && text.contains("sleeps on time") && text.contains("the server"), "{text}");
        for percent in [None, Some(20)] {
            assert_eq!(explained(error(), lateness(percent, on_time)), error());
        }
    }
}
