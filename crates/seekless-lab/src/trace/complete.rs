//! Computes how long requests took, by matching completions to issues.
//!
//! Memory is constant: a request whose completion does not come within a window of later requests is passed on without.
//! Where several requests are under way at one place, a completion is that of the newest. For those that truly overlap,
//! the sum of the latencies is the same as in any other order; and one whose completion was lost stays below the others
//! and changes nothing of theirs.
//!
//! Invariants
//!   M1  Requests under way at one place are linked in the order of their issue.
//!   M2  A request that waits for its completion is at exactly one place; any other is at none.

use std::collections::VecDeque;

use seekless::units::FixedMap;

use super::import::Import;
use super::request::{DeviceId, Event, Op, Request};
use super::stage::Stage;

/// Limit of requests that wait for their completion.
const WINDOW: usize = 1 << 16;

/// Where a request is under way: the device and its first byte not yet done. All flushes of a device share one.
type Key = (DeviceId, u64);

pub(super) fn key(request: &Request) -> Key {
    (request.device, if request.op == Op::Flush { u64::MAX } else { request.offset })
}

#[derive(Clone, Copy)]
struct Pending {
    request: Request,
    /// Bytes not yet reported complete.
    rest: u64,
    waiting: bool,
    /// The newest of the requests that were under way at the same place before. Those before `first` have been
    /// released.
    below: Option<u64>,
}

/// Requests in, requests with latencies out, in the same order.
#[derive(Default)]
pub(super) struct Matcher {
    pending: VecDeque<Pending>,
    /// Number of the first request in `pending`.
    first: u64,
    /// Newest request under way at a place.
    places: FixedMap<Key, u64>,
    /// Completions without a request, as at the start of a trace.
    completions_alone: u64,
    without_completion: u64,
    /// A buffer for the batch that is being taken, empty in between.
    taken: Vec<Request>,
}

impl Stage for Matcher {
    fn pass(&mut self, batch: &mut Vec<Request>, is_last: bool) {
        let mut taken = std::mem::take(&mut self.taken);
        std::mem::swap(batch, &mut taken);
        for event in taken.drain(..) {
            self.take(&event, batch);
        }
        self.taken = taken;
        if is_last {
            self.finish(batch);
        }
    }

    fn report(&self, import: &mut Import) {
        for (count, what) in [
            (self.without_completion, "requests have no completion in the trace, so no latency"),
            (self.completions_alone, "completions belong to no request in the trace"),
        ] {
            if count > 0 {
                import.notes.push(format!("{count} {what}"));
            }
        }
    }
}

impl Matcher {
    /// Takes an event. Requests that need not wait any longer are appended to `out`.
    fn take(&mut self, event: &Request, out: &mut Vec<Request>) {
        if event.event == Event::Complete {
            self.complete(event);
        } else {
            let number = self.first + self.pending.len() as u64;
            self.pending.push_back(Pending { request: *event, rest: event.bytes, waiting: true, below: None });
            self.queue_at(key(event), number);
        }
        while self.pending.len() > WINDOW || self.pending.front().is_some_and(|front| !front.waiting) {
            self.release(out);
        }
    }

    fn finish(&mut self, out: &mut Vec<Request>) {
        while !self.pending.is_empty() {
            self.release(out);
        }
    }

    fn queue_at(&mut self, key: Key, number: u64) {
        let below = self.places.insert(key, number);
        if let Some(pending) = self.pending.get_mut((number - self.first) as usize) {
            pending.below = below;
        }
    }

    /// Removes the newest request of a place.
    fn leave(&mut self, key: Key) -> Option<u64> {
        let newest = *self.places.get(&key)?;
        let below = self.pending.get((newest - self.first) as usize).and_then(|pending| pending.below);
        match below.filter(|&below| below >= self.first) {
            Some(below) => self.places.insert(key, below),
            None => self.places.remove(&key),
        };
        Some(newest)
    }

    /// Takes a completion: of one request, or of several that were merged after they were queued and lie one behind the
    /// other.
    fn complete(&mut self, event: &Request) {
        let mut rest = *event;
        loop {
            let Some(number) = self.leave(key(&rest)) else {
                // Behind the first request, the rest may belong to some from before the trace.
                self.completions_alone += u64::from(rest.offset == event.offset);
                return;
            };
            let Some(done) = self.complete_one(number, &rest) else { return };
            rest.offset = rest.offset.saturating_add(done);
            rest.bytes -= done;
            if rest.bytes == 0 {
                return;
            }
        }
    }

    /// Request `number`, which was under way where `event` begins, is done with the bytes of `event`. Returns how many
    /// of these were its own, if all its bytes are done now.
    fn complete_one(&mut self, number: u64, event: &Request) -> Option<u64> {
        let pending = self.pending.get_mut((number - self.first) as usize)?;
        if pending.rest <= event.bytes {
            let own = std::mem::take(&mut pending.rest);
            pending.waiting = false;
            pending.request.latency = Some(event.time.saturating_sub(pending.request.time));
            return Some(own);
        }
        pending.rest -= event.bytes;
        // A request completes in pieces; the rest begins further on. If another request began there in the meantime, it
        // is unknown whose completion comes next.
        let rest_at = (pending.request.device, pending.request.end() - pending.rest);
        if self.places.contains_key(&rest_at) {
            pending.waiting = false;
            self.without_completion += 1;
        } else {
            self.queue_at(rest_at, number);
        }
        None
    }

    /// Passes the first request on, with or without latency.
    fn release(&mut self, out: &mut Vec<Request>) {
        let Some(front) = self.pending.front().copied() else { return };
        if front.waiting {
            self.without_completion += 1;
            let at = match front.request.op {
                Op::Flush => key(&front.request),
                _ => (front.request.device, front.request.end() - front.rest),
            };
            // M1: it is the oldest everywhere, so also at its place.
            if self.places.get(&at) == Some(&self.first) {
                self.places.remove(&at);
            }
        }
        self.pending.pop_front();
        self.first += 1;
        out.push(front.request);
    }
}

#[cfg(test)]
mod tests {
    use seekless::rng::Rng;
    use seekless::units::Nanos;

    use super::*;

    fn issue(time: u64, offset: u64, bytes: u64) -> Request {
        Request::new(Nanos(time), Op::Read, offset, bytes)
    }

    fn done(time: u64, offset: u64, bytes: u64) -> Request {
        Request { event: Event::Complete, ..issue(time, offset, bytes) }
    }

    fn run(events: &[Request]) -> (Vec<Option<u64>>, Matcher) {
        let (mut matcher, mut out) = (Matcher::default(), Vec::new());
        for event in events {
            matcher.take(event, &mut out);
        }
        matcher.finish(&mut out);
        (out.iter().map(|request| request.latency.map(|latency| latency.0)).collect(), matcher)
    }

    /// Completions are matched: out of order, in pieces, twice at the same place, and not at all.
    #[test]
    fn completions_find_their_requests() {
        let flush = |time| Request { op: Op::Flush, ..issue(time, 0, 0) };
        let (latencies, matcher) = run(&[
            done(0, 77, 512),
            issue(1, 0, 1024),
            issue(2, 4096, 512),
            issue(3, 8192, 512),
            issue(4, 4096, 512),
            flush(5),
            done(10, 4096, 512),
            done(11, 0, 512),
            done(12, 4096, 512),
            done(13, 512, 512),
            Request { op: Op::Flush, ..done(14, 0, 0) },
        ]);
        assert_eq!(latencies, [Some(12), Some(10), None, Some(6), Some(9)]);
        assert_eq!((matcher.completions_alone, matcher.without_completion), (1, 1));
        assert!(matcher.places.is_empty());
    }

    /// A request whose completion was lost does not change the latencies of later ones at its place.
    #[test]
    fn a_lost_completion_is_the_loss_of_one_latency() {
        const SECOND: u64 = 1_000_000_000;
        const LATENCY: u64 = 1_000_000;
        let flush = |request: Request| Request { op: Op::Flush, ..request };
        let mut events = vec![flush(issue(0, 0, 0))];
        for seconds in [5, 10, 15] {
            events.push(flush(issue(seconds * SECOND, 0, 0)));
            events.push(flush(done(seconds * SECOND + LATENCY, 0, 0)));
        }
        let (latencies, matcher) = run(&events);
        assert_eq!(latencies, [None, Some(LATENCY), Some(LATENCY), Some(LATENCY)]);
        assert_eq!((matcher.completions_alone, matcher.without_completion), (0, 1));
    }

    /// A completion of a merged request is that of all that were merged, so that none of them is left to take a later
    /// completion. Only a completion that finds none at all is alone.
    #[test]
    fn a_completion_is_of_all_that_were_merged() {
        let (latencies, matcher) = run(&[
            issue(1, 0, 4096),
            issue(2, 4096, 4096),
            done(10, 0, 8192),
            issue(100, 4096, 4096),
            done(101, 4096, 4096),
            issue(110, 0, 4096),
            done(120, 0, 8192),
        ]);
        assert_eq!(latencies, [Some(9), Some(8), Some(1), Some(10)]);
        assert_eq!((matcher.completions_alone, matcher.without_completion), (0, 0));
    }

    /// For any events, every request is passed on once and in order, and none is kept. Method: random events at few
    /// places, with random lengths.
    #[test]
    fn every_request_goes_out_once() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let mut events = Vec::new();
            for time in 0..400 {
                let (offset, bytes) = (rng.below(4) * 512, (rng.below(3) + 1) * 512);
                events.push(if rng.chance(1, 2) { issue(time, offset, bytes) } else { done(time, offset, bytes) });
            }
            let issues = events.iter().filter(|event| event.event == Event::Issue).count();
            let (latencies, matcher) = run(&events);
            assert_eq!(latencies.len(), issues, "seed {seed}");
            assert!(matcher.places.is_empty() && matcher.pending.is_empty(), "seed {seed}");
        }
    }
}
