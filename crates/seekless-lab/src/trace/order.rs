//! Putting requests in the order of time, as far as a window reaches.

use std::collections::VecDeque;

use seekless::units::Nanos;

use super::request::Request;

/// Requests in nearly in order, requests out in order, but for those that come too late for the window. Requests of the
/// same time keep their order.
pub(super) struct Order {
    window: usize,
    held: VecDeque<Request>,
    latest: Nanos,
    delivered: Nanos,
    /// Requests that came with an earlier time than one before them.
    pub(super) out_of_order: u64,
    /// The furthest that time went back.
    pub(super) back_max: Nanos,
    /// Of those, how many came too late to be put in their place.
    pub(super) too_late: u64,
}

impl Order {
    pub(super) fn new(window: usize) -> Order {
        Order {
            window,
            held: VecDeque::with_capacity(window.min(1 << 16) + 1),
            latest: Nanos::ZERO,
            delivered: Nanos::ZERO,
            out_of_order: 0,
            back_max: Nanos::ZERO,
            too_late: 0,
        }
    }

    pub(super) fn take(&mut self, request: &Request, out: &mut Vec<Request>) {
        if request.time < self.latest {
            self.out_of_order += 1;
            self.back_max = self.back_max.max(self.latest - request.time);
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

    pub(super) fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    pub(super) fn finish(&mut self, out: &mut Vec<Request>) {
        while !self.held.is_empty() {
            self.release(out);
        }
    }

    fn release(&mut self, out: &mut Vec<Request>) {
        if let Some(request) = self.held.pop_front() {
            self.too_late += u64::from(request.time < self.delivered);
            self.delivered = self.delivered.max(request.time);
            out.push(request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Op;

    /// Within the window the order is restored, equals keep theirs, and what comes too late is counted.
    #[test]
    fn order_is_restored() {
        let run = |window, times: &[u64]| {
            let (mut order, mut out) = (Order::new(window), Vec::new());
            for (index, &time) in times.iter().enumerate() {
                order.take(&Request::new(Nanos(time), Op::Read, index as u64, 1), &mut out);
            }
            order.finish(&mut out);
            let places: Vec<u64> = out.iter().map(|request| request.offset).collect();
            (places, order.out_of_order, order.back_max.0, order.too_late)
        };
        assert_eq!(run(3, &[5, 1, 3, 5, 9]), (vec![1, 2, 0, 3, 4], 2, 4, 0));
        assert_eq!(run(1, &[5, 6, 7, 1]), (vec![0, 1, 3, 2], 1, 6, 1));
        assert_eq!(run(0, &[5, 1]), (vec![0, 1], 1, 4, 1));
    }
}
