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

/// Devices as numbers: their own, the kernel's, or their index in the table of names. A number is that of the first device
/// that has it: two devices never become one.
#[derive(Default)]
pub(super) struct DeviceNumbers(BTreeMap<u32, DeviceId>);

impl DeviceNumbers {
    pub(super) fn number(&mut self, device: DeviceId) -> Result<u32, Dropped> {
        let (DeviceId::Number(number) | DeviceId::Block(number) | DeviceId::Named(number)) = device;
        match *self.0.entry(number).or_insert(device) == device {
            true => Ok(number),
            false => Err(Dropped::Reason("is of a device whose number another one has; choose one with --device")),
        }
    }
}

/// Names of devices, as a format writes them. Some characters of a name are replaced, so that two devices could have the same:
/// it is that of the first, and two devices never become one.
#[derive(Default)]
pub(super) struct DeviceTexts(BTreeMap<String, DeviceId>);

impl DeviceTexts {
    pub(super) fn check(&mut self, text: &str, device: DeviceId) -> Result<(), Dropped> {
        let first = match self.0.get(text) {
            Some(first) => *first,
            None => *self.0.entry(text.to_owned()).or_insert(device),
        };
        match first == device {
            true => Ok(()),
            false => Err(Dropped::Reason(
                "is of a device whose name, as the format writes it, another one has; choose one with --device",
            )),
        }
    }
}

/// The device of a format that has one: that of the first request written.
#[derive(Default)]
pub(super) struct OneDevice(Option<DeviceId>);

impl OneDevice {
    pub(super) fn check(&mut self, device: DeviceId) -> Result<(), Dropped> {
        match *self.0.get_or_insert(device) == device {
            true => Ok(()),
            false => Err(Dropped::Reason("is of another device, and the format has one; choose it with --device")),
        }
    }
}

/// Completions to be written between later requests.
#[derive(Default)]
struct Completions {
    waiting: BTreeMap<(Nanos, u64), Request>,
    count: u64,
}

/// Limit of completions that wait. Latencies in a wrong unit would let all of a trace wait.
const WAITING_MAX: usize = 1 << 16;

impl Completions {
    /// Checks that there is room for one more, once those are written that are due at the time of `request`.
    fn check(&self, request: &Request) -> Result<(), Dropped> {
        let is_full = self.waiting.len() >= WAITING_MAX;
        match self.waiting.first_key_value() {
            Some(((done, _), _)) if is_full && request.latency.is_some() && *done > request.time => {
                Err(Dropped::Reason("has too many under way before it: is the unit of latencies right?"))
            }
            _ => Ok(()),
        }
    }

    fn add(&mut self, request: &Request) {
        if let Some(latency) = request.latency
            && request.event != Event::Complete
        {
            let done = Nanos(request.time.0.saturating_add(latency.0));
            self.count += 1;
            self.waiting.insert((done, self.count), Request { time: done, ..*request });
        }
    }

    /// The next completion that is not after `time`.
    fn due(&mut self, time: Nanos) -> Option<Request> {
        let first = self.waiting.first_entry()?;
        (first.key().0 <= time).then(|| first.remove())
    }
}

/// The form in which a tracer of the kernel writes one event of a request.
pub(super) trait EventForm {
    /// What comes before all events.
    const HEADER: &'static [u8] = b"";

    /// # Errors
    /// Why the form cannot express `request`.
    fn check(&self, request: &Request) -> Result<(), Dropped> {
        sectors(request).map(|_| ())
    }

    /// Appends `event` of `request`, which has passed the check, on the device with the number `device`.
    fn event(&mut self, request: &Request, event: Event, device: u32, out: &mut Vec<u8>) -> Result<(), Dropped>;
}

/// Writes requests as events: a request, and, if its latency is known, its completion, in the order of time.
#[derive(Default)]
pub(super) struct EventWriter<F> {
    form: F,
    devices: DeviceNumbers,
    completions: Completions,
}

impl<F: EventForm> EventWriter<F> {
    fn event(&mut self, request: &Request, event: Event, out: &mut Vec<u8>) -> Result<(), Dropped> {
        let device = self.devices.number(request.device)?;
        self.form.event(request, event, device, out)
    }
}

impl<F: EventForm> LineWriter for EventWriter<F> {
    fn header(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(F::HEADER);
    }

    fn request(&mut self, request: &Request, _: &Names, out: &mut Vec<u8>) -> Result<(), Dropped> {
        self.form.check(request)?;
        self.devices.number(request.device)?;
        self.completions.check(request)?;
        while let Some(done) = self.completions.due(request.time) {
            self.event(&done, Event::Complete, out)?;
        }
        self.event(request, request.event, out)?;
        self.completions.add(request);
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        while let Some(done) = self.completions.due(Nanos::MAX) {
            // Its request was written, so that the form can express it and its device has a number.
            let _ = self.event(&done, Event::Complete, out);
        }
    }
}
