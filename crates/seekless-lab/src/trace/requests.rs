//! Requests that another program has in memory, as a trace.

use super::TraceError;
use super::request::Request;
use super::tally::{Aside, Tallies};
use super::text::{BATCH, Reader, plausible};

/// Delivers the requests of an iterator in batches.
pub(super) struct Given<I> {
    requests: I,
    units: u64,
}

impl<I> Given<I> {
    pub(super) fn new(requests: I) -> Given<I> {
        Given { requests, units: 0 }
    }

    /// # Errors
    /// The request is against the rules of every request: there is no line that could be passed over.
    fn checked(&self, request: Request) -> Result<Request, TraceError> {
        plausible(request).map_err(|aside| {
            let (Aside::Rejected(problem) | Aside::Skipped(problem) | Aside::InPart(problem)) = aside;
            TraceError::Files(format!("request {}: {problem}", self.units + 1))
        })
    }
}

impl<I: Iterator<Item = Result<Request, TraceError>>> Reader for Given<I> {
    fn fill(&mut self, out: &mut Vec<Request>) -> Result<bool, TraceError> {
        for _ in 0..BATCH {
            match self.requests.next() {
                Some(request) => out.push(self.checked(request?)?),
                None => return Ok(false),
            }
            self.units += 1;
        }
        Ok(true)
    }

    fn tallies(&self) -> Tallies {
        Tallies { units: self.units, ..Tallies::default() }
    }
}
