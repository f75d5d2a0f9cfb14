//! Common code of the writers of formats.

use std::collections::BTreeMap;
use std::io;

use seekless::units::{Nanos, SECTOR_BYTES};

use super::request::{DeviceId, Event, Names, Op, Request};

/// Why a request was not written.
#[derive(Debug)]
pub(super) enum Dropped {
    /// The format cannot express it.
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

    /// Appends `request` to `out`. After an error, appended bytes are removed.
    fn request(&mut self, request: &Request, names: &Names, out: &mut Vec<u8>) -> Result<(), Dropped>;

    /// Appends everything held back.
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

/// A device as a number: its own, the kernel's, or its index in the table of names.
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
