//! What a mount has answered: how often each operation came and failed, and how long the answers took.

use std::cell::RefCell;
use std::time::Duration;

use super::abi::opcode_name;

/// Classes of durations: class n holds what took at most 2ⁿ microseconds, and more than the class before. The last but one
/// ends at 16.8 s, and the last has no end.
pub const CLASSES: usize = 26;

/// Upper end of a class; none for the last.
pub fn class_end(class: usize) -> Option<Duration> {
    (class + 1 < CLASSES).then(|| Duration::from_micros(1 << class))
}

fn class_of(took: Duration) -> usize {
    (0..CLASSES - 1).find(|&class| class_end(class).is_some_and(|end| took <= end)).unwrap_or(CLASSES - 1)
}

/// Answers to one operation since the mount began.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answers {
    pub answered: u64,
    /// Of these, with an error; of `hostdir` also "there is no such name". Other file systems answer a lookup of such a name with a
    /// negative entry, which the kernel caches.
    pub failed: u64,
    /// Time from receiving the requests to having their answers, all together.
    pub took: Duration,
    pub slowest: Duration,
    /// How many are in each class.
    pub by_time: [u64; CLASSES],
}

impl Answers {
    fn add(&mut self, took: Duration, failed: bool) {
        self.answered += 1;
        self.failed += u64::from(failed);
        self.took += took;
        self.slowest = self.slowest.max(took);
        self.by_time[class_of(took)] += 1;
    }

    pub fn mean(&self) -> Duration {
        let nanos = self.took.as_nanos() / u128::from(self.answered.max(1));
        u64::try_from(nanos).map_or(self.slowest, Duration::from_nanos)
    }

    /// A time within which `percent` of the answers came: the end of the class in which that one is, so up to twice as long
    /// as the true one; beyond the last class that has an end, the slowest.
    pub fn percentile(&self, percent: u64) -> Duration {
        let wanted = (self.answered * percent).div_ceil(100);
        let mut counted = 0;
        let class = self.by_time.iter().position(|&count| {
            counted += count;
            counted >= wanted
        });
        class.and_then(class_end).unwrap_or(self.slowest).min(self.slowest)
    }
}

/// Answers by operation.
pub struct Operations(RefCell<Vec<Answers>>);

/// Opcodes of the kernel are below this; anything above is counted as one.
const OPCODES: usize = 64;

impl Default for Operations {
    fn default() -> Operations {
        Operations(RefCell::new(vec![Answers::default(); OPCODES]))
    }
}

impl Operations {
    pub(super) fn add(&self, opcode: u32, took: Duration, failed: bool) {
        let opcode = (opcode as usize).min(OPCODES - 1);
        self.0.borrow_mut()[opcode].add(took, failed);
    }

    /// What has been answered at all, with the kernel's name of the operation in small letters.
    pub fn answered(&self) -> Vec<(String, Answers)> {
        let all = self.0.borrow();
        let some = all.iter().enumerate().filter(|(_, answers)| answers.answered > 0);
        some.map(|(opcode, answers)| (opcode_name(opcode as u32).to_lowercase(), answers.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use seekless::rng::Rng;

    use super::*;

    /// Percentiles are between the true value and twice that, whatever the times.
    #[test]
    fn percentiles_are_at_most_twice_too_long() {
        for seed in 0..100 {
            let mut rng = Rng::new(seed);
            let mut answers = Answers::default();
            let mut times: Vec<Duration> = (0..rng.between(1, 400))
                .map(|_| {
                    let doublings = rng.below(36);
                    Duration::from_nanos(1 + rng.below(1 << doublings))
                })
                .collect();
            times.iter().for_each(|&took| answers.add(took, false));
            times.sort_unstable();
            for percent in [1, 50, 90, 99, 100] {
                let exact = times[(times.len() * percent as usize).div_ceil(100) - 1];
                let told = answers.percentile(percent);
                let most = match class_end(CLASSES - 2) {
                    Some(end) if exact > end => answers.slowest,
                    _ => (exact * 2).max(Duration::from_micros(1)).min(answers.slowest),
                };
                assert!(exact <= told && told <= most, "seed {seed}: {percent} %: {told:?} for {exact:?}");
            }
            assert_eq!(answers.by_time.iter().sum::<u64>(), answers.answered);
            assert_eq!(answers.slowest, times[times.len() - 1]);
        }
        assert_eq!(Answers::default().percentile(99), Duration::ZERO);
        assert_eq!(Answers::default().mean(), Duration::ZERO);
        let many = Answers { answered: 1 << 33, took: Duration::from_secs(1 << 33), ..Answers::default() };
        assert_eq!(many.mean(), Duration::from_secs(1));
    }

    /// Operations have their names, and one that no kernel sends has a place, too.
    #[test]
    fn operations_have_names() {
        let operations = Operations::default();
        assert!(operations.answered().is_empty());
        operations.add(super::super::abi::LOOKUP, Duration::from_micros(3), true);
        operations.add(u32::MAX, Duration::from_secs(100), false);
        let answered = operations.answered();
        let names: Vec<&str> = answered.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["lookup", "unknown operation"]);
        assert_eq!((answered[0].1.failed, answered[0].1.by_time[2]), (1, 1));
        assert_eq!(answered[1].1.by_time[CLASSES - 1], 1);
    }
}
