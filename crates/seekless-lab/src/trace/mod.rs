//! Block traces: the requests of a machine to its disks, read from any recorder's format, as one kind of [`Request`].
//!
//! A [`Trace`] streams: however long the trace is, memory stays the same. Files may be compressed with gzip or zstd. If
//! no format is given, it is detected, and the [`Import`] report says what was chosen and why. A line that cannot be
//! used is counted by reason, with an example; a trace without any request is an error. Units are part of a format's
//! description and never guessed.
//!
//! Invariants
//!   T1  Every line or record is a request, skipped for a reason, or rejected for a reason.
//!   T2  A request has bytes unless it is a flush, and its end has a 64-bit address.
//!   T3  Memory does not grow with the length of a trace.

mod blkparse;
mod blktrace;
mod columns;
mod complete;
mod detect;
mod disksim;
mod format;
pub mod fuzz;
#[allow(clippy::disallowed_types)]
mod input;
mod iolog;
mod kernel;
mod line_writer;
mod locate;
mod names;
mod order;
#[allow(clippy::disallowed_types)]
mod output;
mod published;
mod report;
mod request;
mod spec;
mod summary;
mod tally;
#[cfg(test)]
mod tests;
mod text;
mod tracefs;
mod vscsi;
mod write;

use std::cell::RefCell;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use seekless::units::{FixedMap, Nanos};

pub use detect::Detected;
pub use format::{FORMATS, Format};
pub use input::{Compression, contents};
pub use output::Output;
pub use report::time_text;
pub use request::{DeviceId, Event, Flags, Names, Op, Request};
pub use spec::{FormatInfo, FormatSpec};
pub use summary::{DeviceSummary, OpSummary, Summary};
pub use tally::Tally;
pub use write::{TraceWriter, Written};

use complete::Matcher;
use input::Input;
use kernel::Wanted;
use names::SharedNames;
use order::Order;
use spec::ReaderOptions;
use text::Reader;

/// Why a trace cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("cannot read {name}: {cause}")]
    Io { name: String, cause: io::Error },
    #[error("cannot tell the format of {name}: {problem}")]
    Format { name: String, problem: String },
    /// The given files do not make one trace.
    #[error("{0}")]
    Files(String),
    #[error("there is no request in {name} that can be used{}", because(.import))]
    NoRequests { name: String, import: Box<Import> },
}

/// The tallies of a failed import, in words.
fn because(import: &Import) -> String {
    let mut text = format!(" ({} {}, read as {})", import.units, import.unit_name(), import.format);
    for tally in import.rejected.iter().chain(&import.skipped) {
        text += &format!("\n{} x {}{}", tally.count, tally.reason, import.example_of(tally));
    }
    for note in &import.notes {
        text += &format!("\n{note}");
    }
    text
}

/// How to read a trace.
#[derive(Clone, Debug)]
pub struct Options {
    /// Detected if not given.
    pub format: Option<Format>,
    /// Which moment of a request counts, where a format reports several. Detected if not given: the issue if the trace
    /// has it, otherwise the entry into the queue, otherwise the completion.
    pub event: Option<Event>,
    /// Compute how long requests took, where a format reports completions as separate events.
    pub latency: bool,
    /// Only these devices, as [`Names::text`] writes them. All if empty.
    pub devices: Vec<String>,
    /// Number of requests held back so that those out of order can be sorted.
    pub sort_window: usize,
}

/// Default number of requests held back.
pub const SORT_WINDOW: usize = 4096;

impl Default for Options {
    fn default() -> Options {
        Options { format: None, event: None, latency: false, devices: Vec::new(), sort_window: SORT_WINDOW }
    }
}

/// How a trace's lines or records were used.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Import {
    pub files: Vec<String>,
    /// As it is written on the command line.
    pub format: String,
    /// Why this format was chosen.
    pub why: String,
    pub event: Option<Event>,
    /// Lines or records in all.
    pub units: u64,
    pub by_line: bool,
    pub requests: u64,
    /// Requests of devices that were not selected.
    pub other_devices: u64,
    pub skipped: Vec<Tally>,
    pub rejected: Vec<Tally>,
    /// Requests with an earlier time than a previous one, and by how much at most.
    pub out_of_order: u64,
    pub back_max_ns: u64,
    /// Of those, requests that came too late to be sorted.
    pub too_late: u64,
    /// Further remarks.
    pub notes: Vec<String>,
}

impl Import {
    pub fn unit_name(&self) -> &'static str {
        if self.by_line { "lines" } else { "records" }
    }

    /// The first occurrence of a tally, in words.
    pub fn example_of(&self, tally: &Tally) -> String {
        match (self.by_line, tally.example.is_empty()) {
            (true, false) => format!(", first line {}: {}", tally.first_at, tally.example),
            (true, true) => format!(", first line {}", tally.first_at),
            (false, _) if tally.first_at > 0 => format!(", first at byte {}", tally.first_at),
            (false, _) => String::new(),
        }
    }

    pub fn rejected_count(&self) -> u64 {
        self.rejected.iter().map(|tally| tally.count).sum()
    }
}

/// A trace being read. Iterating over it gives its requests.
pub struct Trace {
    sources: Vec<Source>,
    names: SharedNames,
    filter: Filter,
    matcher: Option<Matcher>,
    order: Order,
    format: Format,
    why: String,
    event: Option<Event>,
    requests: u64,
    notes: Vec<String>,
    ended: bool,
    /// For the iterator, and scratch for the stages.
    batch: std::collections::VecDeque<Request>,
    raw: Vec<Request>,
    matched: Vec<Request>,
    out: Vec<Request>,
}

struct Source {
    name: String,
    reader: Box<dyn Reader>,
    batch: Vec<Request>,
    at: usize,
    ended: bool,
}

impl Source {
    /// Time of the next request; `None` at the end.
    fn peek(&mut self) -> Result<Option<Nanos>, TraceError> {
        while self.at == self.batch.len() {
            if self.ended {
                return Ok(None);
            }
            self.batch.clear();
            self.at = 0;
            self.ended = !self.reader.fill(&mut self.batch)?;
        }
        Ok(Some(self.batch[self.at].time))
    }
}

/// Lets only some devices pass.
struct Filter {
    wanted: Vec<String>,
    known: FixedMap<DeviceId, bool>,
    last: Option<(DeviceId, bool)>,
    others: u64,
}

/// Limit of devices whose filter result is cached.
const FILTER_MEMORY: usize = 1 << 16;

impl Filter {
    fn passes(&mut self, request: &Request, names: &SharedNames) -> bool {
        let device = request.device;
        let passes = match self.last {
            Some((last, passes)) if last == device => passes,
            _ => {
                if self.known.len() > FILTER_MEMORY {
                    self.known.clear();
                }
                let wanted = &self.wanted;
                let look = || wanted.contains(&names.borrow().text(device));
                *self.known.entry(device).or_insert_with(look)
            }
        };
        self.last = Some((device, passes));
        self.others += u64::from(!passes);
        passes
    }
}

/// The files that [`Trace::open`] would read; `-` is standard input.
///
/// # Errors
/// When there is no such file.
pub fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, TraceError> {
    Ok(locate::files(paths)?.0)
}

impl Trace {
    /// Opens a trace: a file, `-` for standard input, or blktrace's files by their directory, their common beginning or
    /// one by one. Several files are one trace, merged by time.
    ///
    /// # Errors
    /// When there is no such file, or its format is unknown.
    pub fn open(paths: &[PathBuf], options: &Options) -> Result<Trace, TraceError> {
        let (paths, notes) = locate::files(paths)?;
        let inputs = paths.iter().map(|path| Input::open(path)).collect::<Result<Vec<_>, _>>()?;
        Trace::begin(inputs, options, notes)
    }

    /// Reads a trace from anything. `name` is for messages.
    ///
    /// # Errors
    /// As [`Trace::open`].
    pub fn from_reader(name: &str, read: Box<dyn Read>, options: &Options) -> Result<Trace, TraceError> {
        Trace::begin(vec![Input::new(name.to_owned(), read)?], options, Vec::new())
    }

    fn begin(mut inputs: Vec<Input>, options: &Options, mut notes: Vec<String>) -> Result<Trace, TraceError> {
        let Some(first) = inputs.first() else { return Err(TraceError::Files("no trace was named".into())) };
        let first_name = first.name.clone();
        let mut found: Option<Detected> =
            options.format.clone().map(|format| Detected { format, why: "as asked".into() });
        let mut events = [false; 3];
        for input in &mut inputs {
            input.sample()?;
            let (sample, whole) = (input.window(), input.at_end());
            let sample = &sample[..sample.len().min(input::SAMPLE_BYTES)];
            if options.format.is_none() && !(sample.is_empty() && found.is_some()) {
                let name = &input.name;
                let detected = detect::detect(sample, whole)
                    .map_err(|problem| TraceError::Format { name: name.clone(), problem })?;
                match &found {
                    Some(other) if other.format != detected.format => {
                        let (one, two) = (&other.format, &detected.format);
                        let problem = format!("{first_name} is {one}, but {name} is {two}: they are not one trace");
                        return Err(TraceError::Files(problem));
                    }
                    Some(_) => {}
                    None => found = Some(detected),
                }
            }
            if let Some(Detected { format, .. }) = &found
                && format.has_events()
            {
                let more = detect::events(format, sample, whole);
                events = [0, 1, 2].map(|index| events[index] || more[index]);
            }
            if input.compression != Compression::None {
                let how = if input.compression == Compression::Gzip { "gzip" } else { "zstd" };
                notes.push(format!("{} is compressed with {how}", input.name));
            }
        }
        let Some(Detected { format, why }) = found else {
            return Err(TraceError::Format { name: first_name, problem: "there is nothing in it".into() });
        };
        let (event, note) = choose_event(&format, options.event, events);
        notes.extend(note);
        notes.extend(format.note());
        let latency = options.latency && format.has_events() && event != Some(Event::Complete);
        let wanted = event.map_or(Wanted::ALL, |event| Wanted::one(event, latency));
        let names: SharedNames = Rc::new(RefCell::default());
        let sources = inputs
            .into_iter()
            .map(|input| Source {
                name: input.name.clone(),
                reader: format.reader(input, &ReaderOptions { wanted, names: &names }),
                batch: Vec::new(),
                at: 0,
                ended: false,
            })
            .collect();
        Ok(Trace {
            sources,
            names,
            filter: Filter { wanted: options.devices.clone(), known: FixedMap::default(), last: None, others: 0 },
            matcher: latency.then(Matcher::default),
            order: Order::new(options.sort_window),
            format,
            why,
            event,
            requests: 0,
            notes,
            ended: false,
            batch: std::collections::VecDeque::new(),
            raw: Vec::new(),
            matched: Vec::new(),
            out: Vec::new(),
        })
    }

    pub fn format(&self) -> &Format {
        &self.format
    }

    /// The names of the devices so far.
    pub fn names(&self) -> std::cell::Ref<'_, Names> {
        self.names.borrow()
    }

    /// Appends some requests to `out`; false at the end.
    ///
    /// # Errors
    /// When the files cannot be read, and at the end when there was no request.
    pub fn next_batch(&mut self, out: &mut Vec<Request>) -> Result<bool, TraceError> {
        let before = out.len();
        while out.len() == before {
            if self.ended {
                return Ok(false);
            }
            self.raw.clear();
            self.ended = !self.merge()?;
            if !self.filter.wanted.is_empty() {
                let (filter, names) = (&mut self.filter, &self.names);
                self.raw.retain(|request| filter.passes(request, names));
            }
            if let Some(matcher) = &mut self.matcher {
                self.matched.clear();
                for event in &self.raw {
                    matcher.take(event, &mut self.matched);
                }
                if self.ended {
                    matcher.finish(&mut self.matched);
                }
                std::mem::swap(&mut self.raw, &mut self.matched);
            }
            self.order.take_all(&self.raw, out);
            if self.ended {
                self.order.finish(out);
            }
        }
        self.requests += (out.len() - before) as u64;
        Ok(true)
    }

    /// Fills `raw` with requests of all sources, in the order of time as far as each source is; false at the end.
    fn merge(&mut self) -> Result<bool, TraceError> {
        if let [source] = &mut self.sources[..] {
            return if source.reader.fill(&mut self.raw)? { Ok(true) } else { self.at_end() };
        }
        while self.raw.len() < text::BATCH {
            let mut first: Option<(Nanos, usize)> = None;
            for (index, source) in self.sources.iter_mut().enumerate() {
                if let Some(time) = source.peek()?
                    && first.is_none_or(|(earliest, _)| time < earliest)
                {
                    first = Some((time, index));
                }
            }
            let Some((_, index)) = first else { return self.at_end() };
            let source = &mut self.sources[index];
            self.raw.push(source.batch[source.at]);
            source.at += 1;
        }
        Ok(true)
    }

    /// The end of all sources. It is an error when they gave nothing; requests held back in other stages come out
    /// afterwards.
    fn at_end(&self) -> Result<bool, TraceError> {
        let held = self.order.is_holding() || self.matcher.as_ref().is_some_and(Matcher::is_holding);
        let passing = self.raw.iter().any(|request| {
            self.filter.wanted.is_empty() || self.filter.wanted.contains(&self.names.borrow().text(request.device))
        });
        if self.requests == 0 && !held && !passing {
            let name = self.sources.iter().map(|source| source.name.as_str()).collect::<Vec<_>>().join(", ");
            let mut import = self.import();
            if !self.filter.wanted.is_empty() {
                let wanted = self.filter.wanted.join(", ");
                let mut there: Vec<DeviceId> = self.filter.known.keys().copied().collect();
                there.extend(self.raw.iter().map(|request| request.device));
                there.sort_unstable();
                there.dedup();
                let there: Vec<String> = there.iter().take(20).map(|id| self.names.borrow().text(*id)).collect();
                let there = if there.is_empty() { "none".to_owned() } else { there.join(" ") };
                import.notes.push(format!("asked for the devices {wanted}; in the trace there are: {there}"));
            }
            return Err(TraceError::NoRequests { name, import: Box::new(import) });
        }
        Ok(false)
    }

    /// The use of the lines or records so far.
    pub fn import(&self) -> Import {
        let mut import = Import {
            files: self.sources.iter().map(|source| source.name.clone()).collect(),
            format: self.format.to_string(),
            why: self.why.clone(),
            event: self.event,
            units: 0,
            by_line: true,
            requests: self.requests,
            other_devices: self.filter.others,
            skipped: Vec::new(),
            rejected: Vec::new(),
            out_of_order: self.order.out_of_order,
            back_max_ns: self.order.back_max.0,
            too_late: self.order.too_late,
            notes: self.notes.clone(),
        };
        for source in &self.sources {
            let tallies = source.reader.tallies();
            import.units += tallies.units;
            import.by_line = tallies.by_line;
            for (all, more) in [(&mut import.skipped, tallies.skipped), (&mut import.rejected, tallies.rejected)] {
                for tally in more {
                    match all.iter_mut().find(|known: &&mut Tally| known.reason == tally.reason) {
                        Some(known) => known.count += tally.count,
                        None => all.push(tally),
                    }
                }
            }
        }
        for tallies in [&mut import.skipped, &mut import.rejected] {
            tallies.sort_by(|one, two| two.count.cmp(&one.count).then(one.reason.cmp(two.reason)));
        }
        if let Some(matcher) = &self.matcher {
            if matcher.without_completion > 0 {
                let count = matcher.without_completion;
                import.notes.push(format!("{count} requests have no completion in the trace, so no latency"));
            }
            if matcher.completions_alone > 0 {
                let count = matcher.completions_alone;
                import.notes.push(format!("{count} completions belong to no request in the trace"));
            }
        }
        if self.event == Some(Event::Complete) {
            import.notes.push("times are those of completions".into());
        }
        import
    }
}

impl Iterator for Trace {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Result<Request, TraceError>> {
        if self.batch.is_empty() {
            let mut out = std::mem::take(&mut self.out);
            out.clear();
            let more = self.next_batch(&mut out);
            self.batch.extend(&out);
            self.out = out;
            if let Err(error) = more {
                self.ended = true;
                return Some(Err(error));
            }
        }
        self.batch.pop_front().map(Ok)
    }
}

/// The event that counts, and a remark about the choice.
fn choose_event(format: &Format, asked: Option<Event>, seen: [bool; 3]) -> (Option<Event>, Option<String>) {
    if !format.has_events() {
        let note = asked.map(|event| format!("the format has no events, so {event} makes no difference"));
        return (None, note);
    }
    if let Some(event) = asked {
        return (Some(event), None);
    }
    let [queue, issue, complete] = seen;
    let (event, why) = match (issue, queue, complete) {
        (true, _, _) => (Event::Issue, "requests are taken where they were issued to the driver"),
        (_, true, _) => (Event::Queue, "no issue events at its beginning: requests are taken where they were queued"),
        (_, _, true) => {
            (Event::Complete, "completions alone at its beginning: requests are taken where they were done")
        }
        _ => (Event::Issue, "no events of requests at its beginning: issues are looked for"),
    };
    (Some(event), Some(why.to_owned()))
}

/// Opens a trace at `path` with default options.
///
/// # Errors
/// As [`Trace::open`].
pub fn open(path: impl AsRef<Path>) -> Result<Trace, TraceError> {
    Trace::open(&[path.as_ref().to_owned()], &Options::default())
}
