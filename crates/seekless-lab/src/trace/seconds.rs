//! Times that are whole seconds.

use seekless::units::Nanos;

use super::request::Request;
use super::text::SECOND;

/// Limit of requests of one second that are spread. Further ones stay at its end.
const SPREAD_MAX: usize = 1 << 20;

/// Spreads the requests of each second evenly over it, in order: a single burst would claim something that was not
/// recorded.
#[derive(Default)]
pub(super) struct Spread {
    second: u64,
    held: Vec<Request>,
    /// Requests that arrived when the limit of held requests was reached.
    late: bool,
}

impl Spread {
    /// The start of a second, if the next second has a time, too.
    pub(super) fn time(second: u64) -> Option<Nanos> {
        second.checked_add(1).and_then(|next| next.checked_mul(SECOND)).map(|next| Nanos(next - SECOND))
    }

    /// Takes a request of `second`, whose time is the second's start, and appends those of the second before.
    pub(super) fn add(&mut self, second: u64, mut request: Request, out: &mut Vec<Request>) {
        if second != self.second {
            self.finish(out);
            (self.second, self.late) = (second, false);
        }
        if self.late || self.held.len() >= SPREAD_MAX {
            self.finish(out);
            self.late = true;
            request.time.0 += SECOND - 1;
            out.push(request);
        } else {
            self.held.push(request);
        }
    }

    /// Appends everything held back.
    pub(super) fn finish(&mut self, out: &mut Vec<Request>) {
        let count = self.held.len() as u64;
        for (index, mut request) in self.held.drain(..).enumerate() {
            request.time.0 += SECOND * index as u64 / count;
            out.push(request);
        }
    }
}
