//! A part of the drive that does one thing at a time: a die, a channel, the link to the host, the firmware's processor.
//!
//! The drive books each command on its lanes when the command arrives. A later command may book an earlier gap: its die may be
//! idle while the earlier command still waits for another. So a lane keeps the intervals that are booked, and the bookings are
//! those that a queue in front of each part would make.

use std::collections::VecDeque;

use crate::units::Nanos;

#[derive(Clone, Debug, Default)]
pub(super) struct Lane {
    /// Booked intervals in ascending order; they neither overlap nor touch.
    booked: VecDeque<(Nanos, Nanos)>,
    /// Time booked in total.
    total: Nanos,
}

impl Lane {
    /// Books `length` in the first gap from `earliest` on; returns its start. `now` never goes back, and nothing begins before
    /// it.
    pub(super) fn book(&mut self, now: Nanos, earliest: Nanos, length: Nanos) -> Nanos {
        while self.booked.front().is_some_and(|(_, end)| *end <= now) {
            self.booked.pop_front();
        }
        let mut start = earliest.max(now);
        if length == Nanos::ZERO {
            return start;
        }
        self.total += length;
        // Intervals that end before `start` cannot hinder; most bookings go to the end.
        let mut index = self.booked.partition_point(|(_, end)| *end < start);
        while let Some(&(from, to)) = self.booked.get(index) {
            if start + length <= from {
                break;
            }
            start = start.max(to);
            index += 1;
        }
        self.insert(index, start, start + length);
        start
    }

    /// Time until `now` during which it did something: what is booked for later is not done yet.
    pub(super) fn busy(&self, now: Nanos) -> Nanos {
        let later = |(from, to): &(Nanos, Nanos)| to.saturating_sub((*from).max(now));
        self.booked.iter().fold(self.total, |busy, interval| busy - later(interval))
    }

    /// Puts `[start, end)` before the interval `index`, joined with those that it touches.
    fn insert(&mut self, index: usize, start: Nanos, end: Nanos) {
        let joins_next = self.booked.get(index).is_some_and(|(from, _)| *from == end);
        let joins_previous = index > 0 && self.booked[index - 1].1 == start;
        match (joins_previous, joins_next) {
            (true, true) => {
                self.booked[index - 1].1 = self.booked[index].1;
                self.booked.remove(index);
            }
            (true, false) => self.booked[index - 1].1 = end,
            (false, true) => self.booked[index].0 = start,
            (false, false) => self.booked.insert(index, (start, end)),
        }
    }

    #[cfg(test)]
    fn check(&self) {
        assert!(self.booked.iter().all(|(from, to)| from < to));
        assert!(self.booked.iter().zip(self.booked.iter().skip(1)).all(|(one, next)| one.1 < next.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Random bookings against a list of busy nanoseconds: the start is the first at which all of the length is free.
    #[test]
    fn bookings_take_the_first_gap() {
        let mut rng = Rng::new(3);
        for _ in 0..50 {
            let (mut lane, mut busy, mut now) = (Lane::default(), [false; 4000], 0);
            for _ in 0..60 {
                now += rng.below(8);
                let (earliest, length) = (now + rng.below(60), 1 + rng.below(20));
                let start = lane.book(Nanos(now), Nanos(earliest), Nanos(length)).0;
                let free = |from: u64| busy[from as usize..(from + length) as usize].iter().all(|taken| !taken);
                assert_eq!(Some(start), (earliest..3900).find(|from| free(*from)));
                busy[start as usize..(start + length) as usize].fill(true);
                lane.check();
            }
        }
    }
}
