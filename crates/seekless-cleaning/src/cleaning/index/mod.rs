//! Indexes of closed segments, from which policies choose. None looks at every segment for a choice.

mod ages;
mod buckets;
mod queue;
mod set;

pub use ages::Ages;
pub use buckets::Buckets;
pub use queue::Queue;
pub use set::Set;

/// No segment, as a link or a place.
const NONE: u32 = u32::MAX;
