//! Reading binary records: what all such formats have in common.

use super::TraceError;
use super::input::Input;
use super::request::Request;
use super::tally::{Aside, Tallies};
use super::text::{BATCH, Reader};

/// A parser of binary records.
pub(super) trait RecordParser {
    /// Bytes of the record with which `window` begins, one at least; `None` when more bytes are needed to tell.
    fn length(&mut self, window: &[u8]) -> Option<usize>;

    /// Parses one record of that many bytes, and appends its request.
    fn parse(&mut self, record: &[u8], out: &mut Vec<Request>) -> Result<(), Aside>;

    /// Appends everything held back.
    fn finish(&mut self, out: &mut Vec<Request>) {
        let _ = out;
    }
}

/// Reads records with a parser.
pub(super) struct RecordReader<P> {
    input: Input,
    parser: P,
    tallies: Tallies,
}

impl<P: RecordParser> RecordReader<P> {
    pub(super) fn new(input: Input, parser: P) -> RecordReader<P> {
        RecordReader { input, parser, tallies: Tallies::default() }
    }
}

impl<P: RecordParser> Reader for RecordReader<P> {
    fn fill(&mut self, out: &mut Vec<Request>) -> Result<bool, TraceError> {
        let full = out.len() + BATCH;
        loop {
            let (start, window) = (self.input.position(), self.input.window());
            let mut used = 0;
            while out.len() < full {
                let rest = &window[used..];
                let Some(record) = self.parser.length(rest).and_then(|length| rest.get(..length)) else { break };
                if let Err(aside) = self.parser.parse(record, out) {
                    self.tallies.add(aside, start + used as u64, b"");
                }
                self.tallies.units += 1;
                used += record.len();
            }
            self.input.consume(used);
            if out.len() >= full {
                return Ok(true);
            }
            if !self.input.extend()? {
                let rest = self.input.window().len();
                if rest > 0 {
                    self.tallies.add(Aside::Rejected("a record cut off at the end"), self.input.position(), b"");
                    self.tallies.units += 1;
                    self.input.consume(rest);
                }
                self.parser.finish(out);
                return Ok(false);
            }
        }
    }

    fn tallies(&self) -> Tallies {
        self.tallies.clone()
    }
}
