//! Writing traces: what a format cannot hold is left out and counted, never bent.

use std::collections::BTreeMap;
use std::io::{self, Write};

use seekless::units::{Nanos, SECTOR_BYTES};

use super::format::Format;
use super::request::{DeviceId, Event, Names, Op, Request};

/// Why a request was not written.
#[derive(Debug)]
pub(super) enum Dropped {
    /// It cannot be said in this format.
    Reason(&'static str),
    Io(io::Error),
}

impl From<io::Error> for Dropped {
    fn from(error: io::Error) -> Dropped {
        Dropped::Io(error)
    }
}

/// Turns requests into a format's bytes.
pub(super) trait LineWriter {
    fn header(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }

    /// Appends `request` to `out`. After an error, what was appended is taken back.
    fn request(&mut self, request: &Request, names: &Names, out: &mut Vec<u8>) -> Result<(), Dropped>;

    /// Appends what was held back.
    fn finish(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }
}

/// Sector and number of sectors, if they are whole.
pub(super) fn sectors(request: &Request) -> Result<(u64, u64), Dropped> {
    let Request { offset, bytes, .. } = *request;
    if offset % SECTOR_BYTES != 0 || bytes % SECTOR_BYTES != 0 {
        return Err(Dropped::Reason("is not of whole sectors"));
    }
    Ok((offset / SECTOR_BYTES, bytes / SECTOR_BYTES))
}

pub(super) fn only_reads_and_writes(request: &Request) -> Result<(), Dropped> {
    match request.op {
        Op::Read | Op::Write => Ok(()),
        Op::Discard => Err(Dropped::Reason("is a discard, which the format has not")),
        Op::Flush => Err(Dropped::Reason("is a flush, which the format has not")),
    }
}

/// A device as a number: its own, the kernel's, or its place in the table of names.
pub(super) fn device_number(device: DeviceId) -> u32 {
    match device {
        DeviceId::Number(number) | DeviceId::Block(number) | DeviceId::Named(number) => number,
    }
}

/// Completions to be written between later requests.
#[derive(Default)]
pub(super) struct Completions {
    waiting: BTreeMap<(Nanos, u64), Request>,
    count: u64,
}

impl Completions {
    pub(super) fn add(&mut self, request: &Request) {
        if let Some(latency) = request.latency
            && request.event != Event::Complete
        {
            let done = Nanos(request.time.0.saturating_add(latency.0));
            self.count += 1;
            self.waiting.insert((done, self.count), Request { time: done, ..*request });
        }
    }

    /// The next completion that is not after `time`.
    pub(super) fn due(&mut self, time: Nanos) -> Option<Request> {
        let first = self.waiting.first_entry()?;
        (first.key().0 <= time).then(|| first.remove())
    }
}

/// What was written.
#[derive(Clone, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct Written {
    pub requests: u64,
    /// Requests that the format cannot hold, by reason.
    pub dropped: Vec<(&'static str, u64)>,
    /// Requests whose time was cut to the format's unit.
    pub times_cut: u64,
    pub bytes: u64,
}

/// Writes requests in one format.
pub struct TraceWriter<W: Write> {
    writer: Box<dyn LineWriter>,
    time_unit: u64,
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
        let time_unit = format.time_unit();
        Some(TraceWriter { writer, time_unit, out, buffer, written: Written::default() })
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
