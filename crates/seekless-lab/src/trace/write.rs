//! Writes traces: requests that a format cannot hold are skipped and counted, never changed.

use std::io::{self, Write};

use seekless::units::Nanos;

use super::format::Format;
use super::line_writer::{Dropped, LineWriter};
use super::request::{Event, Names, Request};
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
    /// Response times that were cut to the format's unit.
    pub latencies_cut: u64,
    /// Response times that were not written: the format has none, or has no number for one so short.
    pub latencies_lost: u64,
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
    has_latency: bool,
    has_events: bool,
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
        let FormatSpec { time_unit, relative_times, latency_required, has_latency, has_events, .. } = *format.spec();
        let written = Written::default();
        Some(TraceWriter {
            writer,
            time_unit,
            relative_times,
            latency_required,
            has_latency,
            has_events,
            out,
            buffer,
            written,
        })
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
                if let Some(latency) = request.latency {
                    match self.kept(request, latency) {
                        None => self.written.latencies_lost += 1,
                        Some(kept) => self.written.latencies_cut += u64::from(kept != latency),
                    }
                }
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

    /// What a reader of the format finds of a response time.
    fn kept(&self, request: &Request, latency: Nanos) -> Option<Nanos> {
        let cut = |time: Nanos| Nanos(time.0 / self.time_unit * self.time_unit);
        if self.has_events {
            // It is the difference of two times. A request that is known by its completion has no other event.
            let done = Nanos(request.time.0.saturating_add(latency.0));
            return (request.event != Event::Complete).then(|| cut(done) - cut(request.time));
        }
        let is_unknown = self.latency_required && cut(latency) == Nanos::ZERO;
        (self.has_latency && !is_unknown).then(|| cut(latency))
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
