//! How long a thread was ready to run and had to wait for a processor, as Linux counts it (`/proc/PID/task/TID/schedstat`).

use std::fs::File;
use std::os::unix::fs::FileExt;

use seekless::disk::measure::Turns;
use seekless::units::Nanos;

/// The counts of one thread.
pub(crate) struct ThreadTurns(File);

/// Three numbers of at most 20 digits.
const BYTES_MAX: usize = 64;

impl ThreadTurns {
    /// Those of the calling thread; `None` where the kernel has none (`CONFIG_SCHED_INFO`) or there is no `/proc`.
    pub(crate) fn of_this() -> Option<ThreadTurns> {
        File::open("/proc/thread-self/schedstat").ok().map(ThreadTurns)
    }

    /// The counts until now.
    pub(crate) fn read(&self) -> Option<Turns> {
        let mut bytes = [0; BYTES_MAX];
        let length = self.0.read_at(&mut bytes, 0).ok()?;
        parsed(std::str::from_utf8(&bytes[..length]).ok()?)
    }
}

/// Time on a processor, time ready to run and without one, both in nanoseconds, and the number of times it began to run
/// (sched-stats.rst of the kernel).
fn parsed(text: &str) -> Option<Turns> {
    let mut numbers = text.split_ascii_whitespace().map(|number| number.parse().ok());
    let [_, waited, count] = [numbers.next()??, numbers.next()??, numbers.next()??];
    Some(Turns { waited: Nanos(waited), count })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A thread that sleeps has a turn afterwards; what is no such file is no count.
    #[test]
    fn each_sleep_ends_with_a_turn() {
        assert_eq!(parsed("386449 113854 6\n"), Some(Turns { waited: Nanos(113_854), count: 6 }));
        for wrong in ["", "1 2", "1 x 3", "-1 2 3"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
        let turns = ThreadTurns::of_this().expect("the kernel counts");
        let before = turns.read().expect("numbers");
        std::thread::sleep(Duration::from_millis(2));
        let after = turns.read().expect("numbers");
        assert!(after.count > before.count && after.waited >= before.waited, "{before:?} {after:?}");
    }
}
