//! Removes the issues that a driver gave back, so that a request counts once, from its last issue on.
//!
//! A driver that has no room gives a request back (`R`, `block_rq_requeue`), before or after its issue was recorded, and the kernel issues
//! it once more. `btt` takes back the issue before a requeue, and it and `blkparse -t` count the time of a request from the last
//! one: that of the drive, without the wait for the driver.
//!
//! A requeue takes back the newest issue at its place that has no completion. Where there is none, the driver gave the request back
//! before it was issued, and nothing is removed. So completions are needed also where no latency is asked for.

use std::collections::VecDeque;

use super::complete::key;
use super::import::Import;
use super::kernel::{COMPLETION, REQUEUE};
use super::request::{Event, Request};
use super::stage::Stage;

/// Events that are held back: a driver that has no room says so at once.
const WINDOW: usize = 4096;

/// Why an issue is skipped.
const GIVEN_BACK: &str = "issue that the driver gave back";

pub(super) struct Requeues {
    held: VecDeque<Request>,
    /// Completions go on, for latencies.
    for_latency: bool,
    requeues: u64,
    given_back: u64,
    completions: u64,
}

impl Requeues {
    pub(super) fn new(for_latency: bool) -> Requeues {
        Requeues { held: VecDeque::new(), for_latency, requeues: 0, given_back: 0, completions: 0 }
    }

    /// Removes the newest issue at the place of `event` that is not complete.
    fn take_back(&mut self, event: &Request) {
        self.requeues += 1;
        let mut complete = 0;
        let found = self.held.iter().rposition(|held| {
            let same = key(held) == key(event);
            match held.event {
                Event::Complete => complete += u64::from(same),
                _ if same && complete > 0 => complete -= 1,
                _ => return same,
            }
            false
        });
        if let Some(found) = found {
            self.held.remove(found);
            self.given_back += 1;
        }
    }
}

impl Stage for Requeues {
    fn pass(&mut self, batch: &mut Vec<Request>, is_last: bool) {
        match batch.iter().any(|event| event.event == Event::Requeue) {
            false => self.held.extend(batch.drain(..)),
            true => batch.drain(..).for_each(|event| match event.event {
                Event::Requeue => self.take_back(&event),
                _ => self.held.push_back(event),
            }),
        }
        let window = if is_last { 0 } else { WINDOW };
        batch.extend(self.held.drain(..self.held.len().saturating_sub(window)));
        if !self.for_latency {
            let before = batch.len();
            batch.retain(|event| event.event != Event::Complete);
            self.completions += (before - batch.len()) as u64;
        }
    }

    fn report(&self, import: &mut Import) {
        import.skip(COMPLETION, self.completions);
        import.skip(REQUEUE, self.requeues);
        import.skip(GIVEN_BACK, self.given_back);
    }
}

#[cfg(test)]
mod tests {
    use seekless::rng::Rng;
    use seekless::units::Nanos;

    use super::*;
    use crate::trace::Op;

    /// However events fall into batches, what goes on is the same: a requeue removes the issue that waits, none that is complete,
    /// none of another place, and all flushes share one place.
    #[test]
    fn requeues_take_back_what_waits() {
        let at = |event, offset| Request { event, ..Request::new(Nanos::ZERO, Op::Read, offset, 512) };
        let flush = |event| Request { op: Op::Flush, bytes: 0, ..at(event, 0) };
        use Event::{Complete, Issue, Requeue};
        let events = [
            at(Requeue, 0),
            at(Issue, 0),
            at(Complete, 0),
            at(Requeue, 0),
            at(Issue, 0),
            at(Issue, 512),
            at(Requeue, 0),
            at(Requeue, 0),
            at(Issue, 0),
            flush(Issue),
            flush(Issue),
            flush(Complete),
            flush(Requeue),
            at(Complete, 512),
        ];
        let expected = [at(Issue, 0), at(Issue, 512), at(Issue, 0), flush(Issue)];
        for seed in 0..20 {
            let (mut rng, mut stage, mut out, mut rest) =
                (Rng::new(seed), Requeues::new(false), Vec::new(), &events[..]);
            while !rest.is_empty() {
                let (mut batch, behind) = rest.split_at(1 + rng.below(rest.len() as u64) as usize);
                rest = behind;
                let mut taken = std::mem::take(&mut batch).to_vec();
                stage.pass(&mut taken, rest.is_empty());
                out.append(&mut taken);
            }
            assert_eq!(out, expected, "seed {seed}");
            assert_eq!((stage.requeues, stage.given_back, stage.completions), (5, 2, 3));
        }
    }
}
