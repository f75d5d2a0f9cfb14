//! Sorts requests by time, within a window.

use std::collections::VecDeque;

use seekless::units::Nanos;

use super::import::Import;
use super::request::{Event, Request};
use super::stage::Stage;

/// Takes nearly sorted requests and returns sorted ones, except for those that come too late for the window. Requests
/// of the same time keep their order. Completions that latencies will be computed from, and requeues, are sorted with the requests,
/// but not counted.
pub(super) struct Order {
    window: usize,
    held: VecDeque<Request>,
    /// Completions and requeues say something about requests and are none.
    about_requests: bool,
    latest: Nanos,
    /// Of the requests that count.
    latest_request: Nanos,
    delivered: Nanos,
    /// Requests with an earlier time than a previous one.
    out_of_order: u64,
    /// The furthest that time went back.
    back_max: Nanos,
    /// Of those, how many came too late to be sorted.
    too_late: u64,
    /// A buffer for the batch that is being taken, empty in between.
    taken: Vec<Request>,
}

impl Stage for Order {
    fn pass(&mut self, batch: &mut Vec<Request>, is_last: bool) {
        let mut taken = std::mem::take(&mut self.taken);
        std::mem::swap(batch, &mut taken);
        self.take_all(&taken, batch);
        taken.clear();
        self.taken = taken;
        if is_last {
            self.finish(batch);
        }
    }

    fn report(&self, import: &mut Import) {
        import.out_of_order = self.out_of_order;
        import.back_max_ns = self.back_max.0;
        import.too_late = self.too_late;
    }
}

impl Order {
    pub(super) fn new(window: usize, about_requests: bool) -> Order {
        Order {
            window,
            held: VecDeque::with_capacity(window.min(1 << 16) + 1),
            about_requests,
            latest: Nanos::ZERO,
            latest_request: Nanos::ZERO,
            delivered: Nanos::ZERO,
            out_of_order: 0,
            back_max: Nanos::ZERO,
            too_late: 0,
            taken: Vec::new(),
        }
    }

    fn counts(&self, request: &Request) -> bool {
        !(self.about_requests && matches!(request.event, Event::Complete | Event::Requeue))
    }

    /// Takes requests and returns those that need not wait any longer.
    fn take_all(&mut self, requests: &[Request], out: &mut Vec<Request>) {
        let (Some(first), Some(last)) = (requests.first(), requests.last()) else { return };
        if first.time < self.latest || !requests.is_sorted_by_key(|request| request.time) {
            return requests.iter().for_each(|request| self.take(request, out));
        }
        // In order, as usual: whole runs are copied.
        self.latest = last.time;
        if let Some(last) = requests.iter().rfind(|request| self.counts(request)) {
            self.latest_request = last.time;
        }
        self.held.extend(requests);
        let ready = self.held.len().saturating_sub(self.window);
        if ready > 0 {
            let before = self.delivered;
            let late = self.held.iter().take(ready).take_while(|request| request.time < before);
            self.too_late += late.filter(|request| self.counts(request)).count() as u64;
            if let Some(last) = self.held.iter().take(ready).rfind(|request| self.counts(request)) {
                self.delivered = before.max(last.time);
            }
            out.extend(self.held.drain(..ready));
        }
    }

    fn take(&mut self, request: &Request, out: &mut Vec<Request>) {
        if self.counts(request) {
            if request.time < self.latest_request {
                self.out_of_order += 1;
                self.back_max = self.back_max.max(self.latest_request - request.time);
            }
            self.latest_request = self.latest_request.max(request.time);
        }
        if request.time < self.latest {
            let at = self.held.partition_point(|held| held.time <= request.time);
            self.held.insert(at, *request);
        } else {
            self.latest = request.time;
            self.held.push_back(*request);
        }
        if self.held.len() > self.window {
            self.release(out);
        }
    }

    fn finish(&mut self, out: &mut Vec<Request>) {
        while !self.held.is_empty() {
            self.release(out);
        }
    }

    fn release(&mut self, out: &mut Vec<Request>) {
        if let Some(request) = self.held.pop_front() {
            if self.counts(&request) {
                self.too_late += u64::from(request.time < self.delivered);
                self.delivered = self.delivered.max(request.time);
            }
            out.push(request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Op;

    /// Within the window the order is restored, requests of equal time keep their order, and late ones are counted.
    #[test]
    fn order_is_restored() {
        let run = |window, times: &[u64]| {
            let (mut order, mut out) = (Order::new(window, false), Vec::new());
            let request = |(index, &time): (usize, &u64)| Request::new(Nanos(time), Op::Read, index as u64, 1);
            let requests: Vec<Request> = times.iter().enumerate().map(request).collect();
            // In batches of two and, once more, one by one: the results are equal.
            requests.chunks(2).for_each(|batch| order.take_all(batch, &mut out));
            order.finish(&mut out);
            let (mut alone, mut same) = (Order::new(window, false), Vec::new());
            requests.iter().for_each(|request| alone.take(request, &mut same));
            alone.finish(&mut same);
            assert_eq!((&out, order.too_late, order.out_of_order), (&same, alone.too_late, alone.out_of_order));
            let places: Vec<u64> = out.iter().map(|request| request.offset).collect();
            (places, order.out_of_order, order.back_max.0, order.too_late)
        };
        assert_eq!(run(3, &[5, 1, 3, 5, 9]), (vec![1, 2, 0, 3, 4], 2, 4, 0));
        assert_eq!(run(1, &[5, 6, 7, 1]), (vec![0, 1, 3, 2], 1, 6, 1));
        assert_eq!(run(0, &[5, 1]), (vec![0, 1], 1, 4, 1));
    }
}
