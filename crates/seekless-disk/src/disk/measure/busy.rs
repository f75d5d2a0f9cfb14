//! Whether the machine is too busy: how late it wakes a program that has slept.
//!
//! A disk's answer is late by as much, whatever the disk does. So sleeps tell a busy machine from a device that is not measurable.

use super::MeasureError;
use super::probe::Probe;
use crate::units::Nanos;

const SLEEP: Nanos = Nanos(1_000_000);
/// So many show the tenth that is latest, and take a second at worst on a machine that wakes each after 10 ms.
const SLEEPS: usize = 100;

/// A machine that wakes one of ten sleepers later than this is busy. Linux lets a timer be 50 µs late (prctl(2), `PR_SET_TIMERSLACK`);
/// this is a quarter of the revolution of no disk, but 2 % of that of one at 2,400 revolutions a minute, the slowest that is looked for.
const LATE_MIN: Nanos = Nanos(500_000);

/// `error`, or that the machine is too busy, if sleeps show that.
pub(super) async fn or_busy(probe: &Probe<'_>, error: MeasureError) -> MeasureError {
    let mut late = Vec::new();
    for _ in 0..SLEEPS {
        let until = probe.rt.now() + SLEEP;
        probe.rt.sleep_until(until).await;
        late.push(probe.rt.now().saturating_sub(until));
    }
    late.sort_unstable();
    let (half, tenth) = (late[SLEEPS / 2], late[SLEEPS * 9 / 10]);
    if tenth < LATE_MIN {
        return error;
    }
    MeasureError::TooBusy { problem: error.to_string(), answers: probe.late_most_percent(), half, tenth }
}
