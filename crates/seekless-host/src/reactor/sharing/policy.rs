//! When it pays to share a processor.

use std::time::Duration;

use super::{PERIOD, ShareWhen};

/// The least time between requests, on average, with which it may pay. Waking a processor takes some 20 us, so with fewer requests it is
/// less than a fifth of the time, and a trial would measure only how much the times of disks vary.
const INTERVAL_MAX: Duration = Duration::from_micros(100);

/// Periods that are compared, without and with a shared processor.
const TRIAL_PERIODS: u32 = 8;

/// How many more requests there have to be in the first of them: a fifth.
const GAIN: (u128, u128) = (6, 5);

/// After so many periods it is tried again: the program may do something else by now. A trial takes 3 % of them.
const KEPT_PERIODS: u32 = 500;

/// Periods without what a trial needs, after which nothing is observed.
const OTHER_PERIODS: u32 = 10;

/// How long nothing is observed after a trial that did not pay, or where several programs make requests or want the processors:
/// doubled each time.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// What the observer saw in a period.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub elapsed: Duration,
    pub requests: u64,
    /// How long the engine thread has waited for a processor, in waits that have ended.
    pub delay: Duration,
    /// It has not run at all, and waits for a processor.
    pub is_waiting: bool,
    /// The thread that made the last request.
    pub program: u32,
    pub is_mixed: bool,
}

impl Sample {
    /// The observer itself had to wait for a processor.
    fn is_late(&self) -> bool {
        self.elapsed > 2 * PERIOD
    }

    /// A thread alone waits for a processor only if others want it. A program's requests are fast there as it is: no processor is idle
    /// that would have to be woken.
    fn is_crowded(&self) -> bool {
        self.is_late() || self.is_waiting || self.delay > self.elapsed / 10
    }

    /// A thread that shares a processor waits for the program, but not most of the time: then the program computes, or a third one.
    /// Such a wait may not have ended.
    fn is_starved(&self) -> bool {
        self.is_late() || self.is_waiting || self.delay > self.elapsed * 3 / 4
    }

    fn is_of_one(&self) -> bool {
        !self.is_mixed && self.program != 0
    }

    fn is_close(&self) -> bool {
        INTERVAL_MAX.as_nanos() * u128::from(self.requests) >= self.elapsed.as_nanos()
    }
}

/// What the observer does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// The engine thread runs where the scheduler puts it.
    Apart,
    /// It shares the program's processor.
    Together,
    /// As `Apart`, and nothing is observed for so long, and until requests come close to each other.
    Rest(Duration),
}

/// Some periods in a row.
#[derive(Clone, Copy, Default, Debug)]
struct Window {
    periods: u32,
    requests: u64,
    elapsed: Duration,
}

impl Window {
    fn add(&mut self, sample: &Sample) {
        self.periods += 1;
        self.requests += sample.requests;
        self.elapsed += sample.elapsed;
    }

    fn is_full(&self) -> bool {
        self.periods == TRIAL_PERIODS
    }

    /// True if the rate of requests is at least `gain` times that of `other`.
    fn beats(&self, other: &Window, gain: (u128, u128)) -> bool {
        let here = u128::from(self.requests) * other.elapsed.as_nanos() * gain.1;
        here >= u128::from(other.requests) * self.elapsed.as_nanos() * gain.0
    }
}

#[derive(Debug)]
enum State {
    Apart {
        /// Periods in a row in which one program made many requests.
        window: Window,
        /// Other periods.
        others: u32,
    },
    Together {
        before: Window,
        window: Window,
        /// Periods of full windows so far.
        periods: u32,
    },
}

/// Decides after each period.
#[derive(Debug)]
pub(super) struct Policy {
    state: State,
    pause: Duration,
    when: ShareWhen,
}

impl Policy {
    pub(super) fn new(when: ShareWhen) -> Self {
        Policy { state: State::Apart { window: Window::default(), others: 0 }, pause: PAUSE_MIN, when }
    }

    pub(super) fn next(&mut self, sample: Sample) -> Next {
        match self.when {
            ShareWhen::Faster => self.where_faster(sample),
            ShareWhen::Possible if sample.is_starved() => Next::Rest(PAUSE_MIN),
            ShareWhen::Possible if sample.is_of_one() => Next::Together,
            ShareWhen::Possible => Next::Apart,
        }
    }

    fn where_faster(&mut self, sample: Sample) -> Next {
        match &mut self.state {
            State::Apart { window, others } => {
                if !sample.is_close() || !sample.is_of_one() || sample.is_crowded() {
                    (*window, *others) = (Window::default(), *others + 1);
                    return match *others < OTHER_PERIODS {
                        true => Next::Apart,
                        false if sample.is_close() => self.failed(),
                        false => self.rest(Duration::ZERO),
                    };
                }
                window.add(&sample);
                if !window.is_full() {
                    return Next::Apart;
                }
                self.state = State::Together { before: *window, window: Window::default(), periods: 0 };
                Next::Together
            }
            State::Together { before, window, periods } => {
                if sample.is_starved() {
                    return self.failed();
                }
                if !sample.is_of_one() {
                    return self.apart();
                }
                window.add(&sample);
                if !window.is_full() {
                    return Next::Together;
                }
                match *periods {
                    0 if !window.beats(before, GAIN) => return self.failed(),
                    0 => self.pause = PAUSE_MIN,
                    KEPT_PERIODS.. => return self.apart(),
                    // The program does something else, or pauses.
                    _ if !window.beats(before, (1, 1)) => return self.apart(),
                    _ => {}
                }
                (*periods, *window) = (*periods + window.periods, Window::default());
                Next::Together
            }
        }
    }

    /// It did not pay, or could not be done.
    pub(super) fn failed(&mut self) -> Next {
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSE_MAX);
        self.rest(pause)
    }

    fn apart(&mut self) -> Next {
        self.state = State::Apart { window: Window::default(), others: 0 };
        Next::Apart
    }

    fn rest(&mut self, pause: Duration) -> Next {
        self.apart();
        Next::Rest(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays periods with a policy: `sample(period, is_together)`. Returns the shares of time that the processor was shared and that was
    /// observed, and the requests made for each period.
    fn play(periods: u32, mut sample: impl FnMut(u32, bool) -> Sample) -> (f64, f64, f64) {
        let (mut policy, mut now, mut next) = (Policy::new(ShareWhen::Faster), 0, Next::Apart);
        let (mut together, mut observed, mut requests) = (0, 0, 0);
        while now < periods {
            observed += 1;
            together += u32::from(next == Next::Together);
            let seen = sample(now, next == Next::Together);
            requests += seen.requests;
            next = policy.next(seen);
            now += 1;
            if let Next::Rest(pause) = next {
                let rests = (pause.as_millis() / PERIOD.as_millis()) as u32;
                requests += (now..now + rests).map(|now| sample(now, false).requests).sum::<u64>();
                now += rests;
            }
        }
        let share = |of: u32| f64::from(of) / f64::from(now);
        (share(together), share(observed), requests as f64 / f64::from(now))
    }

    fn of_one(requests: u64) -> Sample {
        Sample { elapsed: PERIOD, requests, delay: Duration::ZERO, is_waiting: false, program: 7, is_mixed: false }
    }

    #[test]
    fn what_pays_is_kept() {
        let (together, ..) = play(10_000, |_, together| of_one(if together { 160 } else { 80 }));
        assert!(together > 0.95, "{together}");
    }

    #[test]
    fn what_does_not_pay_is_tried_ever_more_rarely() {
        for gain in [0, 5, 15, 50, 99, 115] {
            let (together, observed, requests) = play(100_000, |_, together| of_one(if together { gain } else { 100 }));
            assert!(
                together < 0.004 && observed < 0.01 && requests > 99.0,
                "{gain}: {together}, {observed}, {requests}"
            );
        }
    }

    /// Whatever the pattern, sharing costs little where it is worse.
    #[test]
    fn what_is_worse_is_not_kept() {
        let seldom = |now: u32| if now.is_multiple_of(10) { 200 } else { 5 };
        let every_second = |now: u32| if now.is_multiple_of(2) { 10 } else { 130 };
        let patterns: [&dyn Fn(u32) -> u64; 2] = [&seldom, &every_second];
        for pattern in patterns {
            let (_, _, requests) = play(100_000, |now, together| of_one(if together { pattern(now) } else { 100 }));
            assert!(requests > 98.0, "{requests}");
        }
        // It pays during the trial, and then no more: a program comes that wants this processor.
        let mut shared = 0;
        let (_, _, requests) = play(100_000, |_, together| {
            shared = if together { shared + 1 } else { 0 };
            of_one(if !together {
                100
            } else if shared <= TRIAL_PERIODS {
                130
            } else {
                25
            })
        });
        assert!(requests > 75.0, "{requests}");
    }

    #[test]
    fn several_programs_are_left_alone() {
        let mixed = |requests| Sample { is_mixed: true, ..of_one(requests) };
        let (together, observed, _) = play(100_000, |_, _| mixed(100));
        assert!(together == 0.0 && observed < 0.01, "{together}, {observed}");
        // One that comes now and then ends the sharing for that time.
        let (together, ..) = play(100_000, |now, together| match now % 100 {
            0 => mixed(100),
            _ => of_one(if together { 200 } else { 100 }),
        });
        assert!((0.8..0.95).contains(&together), "{together}");
    }

    /// The processor is given back soon after the last request; a program that works in bursts is found again.
    #[test]
    fn it_ends_with_the_requests() {
        let mut after = 0;
        let (together, ..) = play(100_000, |now, together| match now % 100 {
            0..50 => of_one(if together { 200 } else { 100 }),
            at => {
                after = after.max(if together { at - 49 } else { 0 });
                of_one(0)
            }
        });
        assert!(after <= TRIAL_PERIODS, "{after}");
        assert!(together > 0.35, "{together}");
    }

    /// A thread that others keep from its processor is given its policy back, and not tried again soon. As the kernel tells it: a wait
    /// is not counted before it ends, here when the thread has its policy back. The first one begins in the middle of a period.
    #[test]
    fn starving_ends_it_at_once() {
        let (mut shared, mut longest, mut waited, mut wasted) = (0, 0, Duration::ZERO, 0);
        play(100_000, |_, together| {
            shared = if together { shared + 1 } else { 0 };
            let delay = if together { Duration::ZERO } else { std::mem::take(&mut waited) };
            match shared {
                0 => return Sample { delay, ..of_one(100) },
                1..3 => return of_one(120),
                3 => waited += PERIOD / 2,
                _ => waited += PERIOD,
            }
            longest = longest.max(shared - 2);
            wasted += 1;
            Sample { is_waiting: shared > 3, ..of_one(if shared == 3 { 60 } else { 0 }) }
        });
        assert_eq!(longest, 2, "periods");
        // Two in each of some 8 tries with pauses of less than 10 s, and 19 further ones.
        assert!(wasted < 60, "{wasted}");
    }

    /// So is one whose waits all end, but take most of the time.
    #[test]
    fn waiting_most_of_the_time_ends_it_at_once() {
        let (mut starved, mut longest) = (0, 0);
        play(100_000, |_, together| {
            starved = if together { starved + 1 } else { 0 };
            longest = longest.max(starved);
            Sample { delay: if together { PERIOD } else { Duration::ZERO }, ..of_one(if together { 15 } else { 100 }) }
        });
        assert_eq!(longest, 1);
    }

    /// Where processors are scarce, the engine thread keeps the ordinary policy.
    #[test]
    fn a_busy_machine_is_left_alone() {
        let (together, observed, _) = play(100_000, |now, _| Sample {
            delay: if now % 5 == 0 { PERIOD / 2 } else { Duration::ZERO },
            ..of_one(100)
        });
        assert!(together == 0.0 && observed < 0.02, "{together}, {observed}");
        let late = |together| if together { 3 * PERIOD } else { PERIOD };
        let (together, ..) = play(100_000, |_, together| Sample { elapsed: late(together), ..of_one(600) });
        assert!(together < 0.001, "{together}");
    }

    /// Few requests are not worth a thread's attention.
    #[test]
    fn it_rests_without_requests() {
        let mut policy = Policy::new(ShareWhen::Faster);
        let rested = (0..OTHER_PERIODS).map(|_| policy.next(of_one(3))).last();
        assert_eq!(rested, Some(Next::Rest(Duration::ZERO)));
    }
}
