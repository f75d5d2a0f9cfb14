//! Writes traces: requests that a format cannot hold are skipped and counted, never changed.

use std::io::{self, Write};

use super::format::Format;
use super::line_writer::{Dropped, LineWriter};
use super::request::{Names, Request};
use super::spec::FormatSpec;

/// Result of writing.
#[derive(Clone, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct Written {
    pub requests: u64,
    /// Requests that the format cannot hold, by reason.
    pub dropped: Vec<(&'static str, u64)>,
    /// Requests whose time was cut to the format's unit.
    pub times_cut: u64,
    /// Requests of which the response time is not known, in a format that has a number for it always: zero, which reads as unknown.
    pub latencies_unknown: u64,
    /// The time of the first request, where the format counts from it on.
    pub from_ns: Option<u64>,
    pub bytes: u64,
}

/// Writes requests in one format.
pub struct TraceWriter<W: Write> {
    writer: Box<dyn LineWriter>,
    time_unit: u64,
    relative_times: bool,
    latency_required: bool,
    out: W,
    buffer: Vec<u8>,
    written: Written,
}

/// Bytes gathered before they are written.
const BUFFER_BYTES: usize = 64 << 10;

impl<W: Write> TraceWriter<W> {
    /// `None` when the format can only be read.
    pub fn new(format: &Format, out: W) -> Option<TraceWriter<W>> {
        let mut writer = format.writer()?;
        let mut buffer = Vec::with_capacity(BUFFER_BYTES + 4096);
        writer.header(&mut buffer);
        let FormatSpec { time_unit, relative_times, latency_required, .. } = *format.spec();
        let written = Written::default();
        Some(TraceWriter { writer, time_unit, relative_times, latency_required, out, buffer, written })
    }

    /// Writes a request, unless the format cannot hold it.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write(&mut self, request: &Request, names: &Names) -> io::Result<()> {
        let before = self.buffer.len();
        match self.writer.request(request, names, &mut self.buffer) {
            Ok(()) => {
                self.written.requests += 1;
                if self.relative_times {
                    self.written.from_ns.get_or_insert(request.time.0);
                }
                let is_unknown = self.latency_required && request.latency.is_none();
                self.written.latencies_unknown += u64::from(is_unknown);
                self.written.times_cut += u64::from(!request.time.0.is_multiple_of(self.time_unit));
            }
            Err(Dropped::Io(error)) => return Err(error),
            Err(Dropped::Reason(reason)) => {
                self.buffer.truncate(before);
                match self.written.dropped.iter_mut().find(|(known, _)| *known == reason) {
                    Some((_, count)) => *count += 1,
                    None => self.written.dropped.push((reason, 1)),
                }
            }
        }
        if self.buffer.len() >= BUFFER_BYTES {
            self.pour()?;
        }
        Ok(())
    }

    fn pour(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.written.bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(mut self) -> io::Result<(Written, W)> {
        self.writer.finish(&mut self.buffer);
        self.pour()?;
        self.out.flush()?;
        Ok((self.written, self.out))
    }
}
