//! What a replay says of each single request: the rows of a file for the command, and columns for other programs.

use std::fmt::Write as _;

use seekless::units::{Nanos, SECTOR_BYTES, Sector};

use crate::trace::Request;

/// A request of the trace that the storage has answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answered {
    /// Its place in the trace, from 1. Answers come in another order where several requests are under way.
    pub number: u64,
    /// As it was recorded.
    pub request: Request,
    /// Where it went on the storage, and how many bytes it had there.
    pub at: Sector,
    pub bytes: u64,
    /// When it was made and when it was answered, in virtual time since the replay began.
    pub made: Nanos,
    pub done: Nanos,
}

/// Learns of each answer, on the thread of its storage. An error ends the replay.
pub type Listener = Box<dyn FnMut(&Answered) -> Result<(), String> + Send>;

/// The first line of [`Answered::to_csv`].
pub const HEADER: &str = "number,recorded_ns,operation,offset,bytes,recorded_latency_ns,storage_offset,storage_bytes,made_ns,done_ns,flags\n";

impl Answered {
    /// The first byte on the storage.
    pub fn storage_offset(&self) -> u64 {
        self.at.0 * SECTOR_BYTES
    }

    /// A line of a table, below [`HEADER`]. A latency that was not recorded is empty.
    pub fn to_csv(&self) -> String {
        let Request { time, op, flags, offset, bytes, latency, .. } = self.request;
        let mut line = format!("{},{},{op},{offset},{bytes},", self.number, time.0);
        // A String takes everything.
        let _ = latency.map_or(Ok(()), |latency| write!(line, "{}", latency.0));
        let (at, bytes, made, done) = (self.storage_offset(), self.bytes, self.made.0, self.done.0);
        let _ = writeln!(line, ",{at},{bytes},{made},{done},{}", flags.letters());
        line
    }
}
