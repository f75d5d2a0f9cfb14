//! The stage that passes on the requests of some devices alone.

use seekless::units::{FixedMap, Nanos};

use super::import::Import;
use super::names::SharedNames;
use super::request::{DeviceId, Event, Request};
use super::stage::Stage;

/// Limit of devices whose answer is kept.
const KNOWN_MAX: usize = 1 << 16;

/// Why events of other devices are skipped that are no requests.
const OTHER_COMPLETION: &str = "completion of another device";
const OTHER_REQUEUE: &str = "requeue of another device";

/// Limit of devices that a message lists.
const LISTED_MAX: usize = 20;

/// A device that the user named.
struct Wanted {
    /// As the user named it.
    name: String,
    /// What [`super::Names::text`] may call it: with other names of the format for it.
    called: Vec<String>,
    /// There is such a device.
    is_found: bool,
}

impl Wanted {
    fn new(name: String, called: Option<fn(&str) -> Vec<String>>) -> Wanted {
        let mut all = called.map_or_else(Vec::new, |called| called(&name));
        // Numbers of a block device, as traces of ours and `lsblk` write them.
        let numbers = name.split_once(':').filter(|(major, minor)| {
            [major, minor].iter().all(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
        });
        all.extend(numbers.map(|(major, minor)| format!("{major},{minor}")));
        all.push(name.clone());
        Wanted { name, called: all, is_found: false }
    }
}

/// Passes on the requests of the devices that the user named.
pub(super) struct Select {
    wanted: Vec<Wanted>,
    names: SharedNames,
    /// The event that is a request, where the trace has others as well.
    event: Option<Event>,
    known: FixedMap<DeviceId, bool>,
    last: Option<(DeviceId, bool)>,
    /// The earliest request so far, of any device.
    first: Option<Nanos>,
    passed: u64,
    others: u64,
    /// The trace was read to its end.
    has_ended: bool,
    /// Events that say something about requests of other devices, and are none.
    other_completions: u64,
    other_requeues: u64,
}

impl Select {
    pub(super) fn new(
        wanted: Vec<String>,
        called: Option<fn(&str) -> Vec<String>>,
        event: Option<Event>,
        names: SharedNames,
    ) -> Select {
        Select {
            wanted: wanted.into_iter().map(|name| Wanted::new(name, called)).collect(),
            names,
            event,
            known: FixedMap::default(),
            last: None,
            first: None,
            passed: 0,
            others: 0,
            has_ended: false,
            other_completions: 0,
            other_requeues: 0,
        }
    }

    fn passes(&mut self, request: &Request) -> bool {
        let device = request.device;
        let passes = match self.last {
            Some((last, passes)) if last == device => passes,
            _ => {
                if self.known.len() > KNOWN_MAX {
                    self.known.clear();
                }
                let look = || {
                    let text = self.names.borrow().text(device);
                    let mut meant = self.wanted.iter_mut().filter(|wanted| wanted.called.contains(&text)).peekable();
                    let passes = meant.peek().is_some();
                    meant.for_each(|wanted| wanted.is_found = true);
                    passes
                };
                *self.known.entry(device).or_insert_with(look)
            }
        };
        self.last = Some((device, passes));
        let is_request = self.event.is_none_or(|event| request.event == event);
        if is_request {
            self.first = Some(self.first.map_or(request.time, |first| first.min(request.time)));
        }
        match (passes, request.event) {
            (true, _) => self.passed += u64::from(is_request),
            (false, _) if is_request => self.others += 1,
            (false, Event::Requeue) => self.other_requeues += 1,
            (false, _) => self.other_completions += 1,
        }
        passes
    }
}

impl Stage for Select {
    fn pass(&mut self, batch: &mut Vec<Request>, is_last: bool) {
        self.has_ended |= is_last;
        batch.retain(|request| self.passes(request));
    }

    fn first(&self) -> Option<Nanos> {
        self.first
    }

    fn report(&self, import: &mut Import) {
        import.other_devices = self.others;
        import.skip(OTHER_COMPLETION, self.other_completions);
        import.skip(OTHER_REQUEUE, self.other_requeues);
        let missing: Vec<&str> =
            self.wanted.iter().filter(|wanted| !wanted.is_found).map(|wanted| &*wanted.name).collect();
        // Of a trace that was not read to its end, it is not known which devices it has.
        if missing.is_empty() || !self.has_ended || self.passed + self.others == 0 {
            return;
        }
        let mut there: Vec<DeviceId> = self.known.keys().copied().collect();
        there.sort_unstable();
        let names = self.names.borrow();
        let listed: Vec<String> = there.iter().take(LISTED_MAX).map(|id| names.text(*id)).collect();
        let more = if there.len() > LISTED_MAX { " and others" } else { "" };
        let (missing, listed) = (missing.join(", "), listed.join(" "));
        import.notes.push(format!("asked for the devices {missing}; in the trace there are: {listed}{more}"));
    }
}
