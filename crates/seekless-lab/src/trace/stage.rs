//! What the stages behind the readers have in common.

use seekless::units::Nanos;

use super::import::Import;
use super::request::Request;

/// A stage takes batches of requests and passes them on: fewer, changed or in another order.
///
/// It may hold some back, but never more than a number that does not depend on the length of the trace.
pub(super) trait Stage {
    /// Replaces the requests in `batch` with those that go on to the next stage. With the last batch, nothing is held
    /// back any more.
    fn pass(&mut self, batch: &mut Vec<Request>, is_last: bool);

    /// The time of the first request that came in, where the stage passes only some on and others follow it.
    fn first(&self) -> Option<Nanos> {
        None
    }

    /// Reports what the stage has done so far.
    fn report(&self, import: &mut Import);
}
