//! When it pays to look for a request again and again before the engine thread sleeps.
//!
//! A program that makes one request after another sends the next one some tens of microseconds after the reply to the last. If the
//! engine thread sleeps in between, waking it takes as long, because a processor without work is halted, in a virtual machine by
//! its host. Linux does the same for sockets (`net.core.busy_read`) and for processors of virtual machines (`halt_poll_ns`).
//!
//! Looking costs processor time, so it has to be successful, and soon: a look that takes longer than what it saves is a miss, too.
//! After a miss the thread sleeps at once, until as many waits in a row as `needed` were short; each further miss doubles that number.

use std::time::Duration;

/// How long to look. On two processors of a virtual machine, 60 us find most requests of a program that does nothing else, and 200 us no
/// more than 100 (`seekless bench mount --natural`).
pub(super) const WINDOW: Duration = Duration::from_micros(100);

/// What successful looks may take on average. A request takes some 50 us less with a look than with a thread that sleeps (rows `stat` and
/// `create` in the table of docs/guide/mounts.md), so looks take at most as much processor time as they save for the program.
const WORTH: Duration = Duration::from_micros(50);

/// The average is of about so many looks: more than a program's pause between two rows of requests, and less than a change of what
/// it does.
const AVERAGED: u32 = 8;

/// A wait asleep counts as short up to this time. Part of it is the waking itself.
const SHORT: Duration = Duration::from_micros(200);

/// Bounds the share of time that unsuccessful looks take: to one window in so many short waits.
const NEEDED_MAX: u32 = 64;

/// Decides for each wait whether to look first.
#[derive(Debug)]
pub(super) struct BusyPolling {
    /// Short waits in a row after which it pays.
    needed: u32,
    /// Those that there were.
    short: u32,
    /// What the last successful looks took on average.
    average: Duration,
    /// Looks, and those that found what they waited for.
    pub(super) looks: u64,
    pub(super) finds: u64,
}

impl Default for BusyPolling {
    fn default() -> Self {
        BusyPolling { needed: 1, short: 0, average: Duration::ZERO, looks: 0, finds: 0 }
    }
}

impl BusyPolling {
    pub(super) fn pays(&self) -> bool {
        self.short >= self.needed
    }

    /// What it waited for came `after` the look began. Where that is longer than a look takes, another program has had the
    /// processor, and a thread that sleeps gets it back sooner than one that yields.
    pub(super) fn found(&mut self, after: Duration) {
        self.finds += 1;
        self.average = (self.average * (AVERAGED - 1) + after) / AVERAGED;
        match after <= WINDOW && self.average <= WORTH {
            true => (self.needed, self.looks) = (1, self.looks + 1),
            false => self.missed(),
        }
    }

    /// It did not come in time.
    pub(super) fn missed(&mut self) {
        self.looks += 1;
        self.needed = (self.needed * 2).min(NEEDED_MAX);
        self.short = 0;
        // The next one decides.
        self.average = WORTH;
    }

    /// The thread has slept for it, for `duration` in all.
    pub(super) fn slept(&mut self, duration: Duration) {
        self.short = if duration <= SHORT { (self.short + 1).min(NEEDED_MAX) } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays waits of these lengths, in microseconds, and returns how long was looked in all and how often it was successful.
    fn play(waits: impl IntoIterator<Item = u64>) -> (Duration, u32) {
        /// What falling asleep and waking take.
        const WAKING: Duration = Duration::from_micros(40);
        let (mut policy, mut looked, mut found) = (BusyPolling::default(), Duration::ZERO, 0);
        for wait in waits.into_iter().map(Duration::from_micros) {
            if policy.pays() && wait <= WINDOW {
                (looked, found) = (looked + wait, found + 1);
                policy.found(wait);
            } else if policy.pays() {
                looked += WINDOW;
                policy.missed();
                policy.slept(wait - WINDOW + WAKING);
            } else {
                policy.slept(wait + WAKING);
            }
        }
        (looked, found)
    }

    /// A program that sends one request after another is found from the second on, and after a pause again.
    #[test]
    fn close_requests_are_found() {
        assert_eq!(play([30; 1000]).1, 999);
        let bursts = (0..100).flat_map(|_| [[30; 100].as_slice(), &[5_000_000]].concat());
        let (looked, found) = play(bursts);
        assert!(found > 9_700, "{found}");
        assert!(looked < Duration::from_micros(30 * 10_000 + 100 * 100));
    }

    /// Requests that come a little too late, or rarely, cost a few looks and no more.
    #[test]
    fn wasted_looks_are_bounded() {
        for wait in [101, 120, 150, 160, 199, 250, 1_000, 1_000_000] {
            let (looked, found) = play([wait; 10_000]);
            let all = Duration::from_micros(wait * 10_000);
            assert_eq!(found, 0, "{wait} us");
            assert!(looked * 50 < all, "{wait} us: {looked:?} of {all:?}");
        }
        // Every second one in time: what is gained is worth what is lost.
        let (looked, found) = play([30, 150].repeat(5_000));
        assert!(looked < Duration::from_micros(180 * 5_000) / 4, "{looked:?}, {found} found");
    }

    /// Looks that are always successful, and late, take more of a processor than they save.
    #[test]
    fn late_finds_are_bounded() {
        for wait in [55, 70, 90, 100] {
            let (looked, found) = play([wait; 10_000]);
            let all = Duration::from_micros(wait * 10_000);
            assert!(looked * 50 < all, "{wait} us: {looked:?} of {all:?}, {found} found");
        }
        // Some late ones between others are worth it.
        for waits in [[20, 20, 20, 90], [10, 60, 10, 90], [45, 45, 45, 45]] {
            let (_, found) = play(waits.repeat(2_500));
            assert!(found > 9_900, "{waits:?}: {found}");
        }
        // A program that does something else later.
        let (_, found) = play([[90; 5_000], [20; 5_000]].concat());
        assert!(found > 4_900, "{found}");
    }

    /// A processor that another program wants is left to it.
    #[test]
    fn a_busy_processor_is_left_alone() {
        let mut policy = BusyPolling::default();
        policy.slept(Duration::from_micros(60));
        let mut looks = 0;
        for _ in 0..10_000 {
            match policy.pays() {
                true => {
                    looks += 1;
                    policy.found(Duration::from_millis(3));
                }
                false => policy.slept(Duration::from_micros(60)),
            }
        }
        assert!(looks < 200, "{looks}");
    }
}
