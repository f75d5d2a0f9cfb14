//! Block traces: the requests of a machine to its disks, read from any recorder's format, as one kind of [`Request`].
//!
//! A [`Trace`] streams: however long the trace is, memory stays the same. Files may be compressed with gzip or zstd. If
//! no format is given, it is detected, and the [`Import`] report says what was chosen and why. A line that cannot be
//! used is counted by reason, with an example; a trace without any request is an error. Units are part of a format's
//! description and never guessed.
//!
//! A trace is read in stages, each of which hands batches to the next:
//!
//! | stage | from | to |
//! |---|---|---|
//! | `input` | a file or standard input | its bytes, decompressed |
//! | `text`, or the reader of a binary format | bytes | lines or records, and of each the request that it is |
//! | `merge` | requests of every input | requests of the trace |
//! | `select` | | those of the devices that the user named |
//! | `order` | nearly sorted requests and completions | sorted ones |
//! | `requeue` | issues of the kernel | those that the driver did not give back |
//! | `complete` | requests and completions | requests with latencies |
//!
//! `beginning` decides from the first bytes how the others are read.
//!
//! Invariants
//!   T1  Every line or record is a request, of a device that was asked for or of another one, or skipped for a reason, or rejected
//!       for a reason; or it is the completion from which a request has its latency.
//!   T2  A request has bytes unless it is a flush, its end has a 64-bit address, and its times are at most 2^63 ns.
//!   T3  Memory does not grow with the length of a trace.

mod beginning;
mod blkparse;
mod blktrace;
mod columns;
mod complete;
mod detect;
mod disksim;
mod format;
pub mod fuzz;
mod import;
#[allow(clippy::disallowed_types)]
mod input;
mod iolog;
mod kernel;
mod libcachesim;
mod line_writer;
mod locate;
mod merge;
mod names;
mod order;
#[allow(clippy::disallowed_types)]
mod output;
mod published;
mod records;
mod report;
mod request;
mod requests;
mod requeue;
mod seconds;
mod select;
mod spec;
mod srt;
mod stage;
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

pub use detect::Detected;
pub use format::{FORMATS, Format};
pub use import::Import;
pub use input::{Compression, Progress, contents};
pub use output::Output;
pub use report::time_text;
pub use request::{DeviceId, Event, Flags, Names, Op, Request};
pub use spec::{FormatInfo, FormatSpec};
pub use summary::{DeviceSummary, OpSummary, Summary};
pub use tally::Tally;
pub use write::{TraceWriter, Written};

use seekless::units::{Nanos, human_bytes};

use beginning::Beginning;
use complete::Matcher;
use input::Input;
use merge::Merge;
use names::SharedNames;
use order::Order;
use requests::Given;
use requeue::Requeues;
use select::Select;
use spec::ReaderOptions;
use stage::Stage;

/// Why a trace cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("cannot read {name}: {cause}")]
    Io { name: String, cause: io::Error },
    #[error(
        "cannot read {name} to its end: it is compressed, and cut off\nwhat is there of it can be read so, with the options that say \
         how it is read: {command}"
    )]
    CutOff { name: String, command: String },
    #[error(
        "cannot read {name}: it is compressed with {how}, and only gzip and zstd are read\nlet a pipe decompress it, with the options that \
         say how it is read: {command}\na command that reads a trace twice needs the decompressed file"
    )]
    Packed { name: String, how: &'static str, command: String },
    #[error("cannot read {name}: it exceeds {}, decompressed", human_bytes(*bytes_max))]
    TooLong { name: String, bytes_max: u64 },
    #[error("cannot tell the format of {name}: {problem}")]
    Format { name: String, problem: String },
    /// Another reader of the same trace has the reason.
    #[error("the trace was not read to its end")]
    Interrupted,
    /// The given files do not make one trace.
    #[error("{0}")]
    Files(String),
    #[error("there is no request in {name} that can be used{}", import.because())]
    NoRequests { name: String, import: Box<Import> },
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
    /// Number of requests, and of the completions that are read with them, held back so that those out of order can be sorted.
    pub sort_window: usize,
}

/// Default number of requests held back.
pub const SORT_WINDOW: usize = 4096;

impl Default for Options {
    fn default() -> Options {
        Options { format: None, event: None, latency: false, devices: Vec::new(), sort_window: SORT_WINDOW }
    }
}

/// A trace being read: the stages of this [module](self), one behind the other. Iterating over it gives its requests.
pub struct Trace {
    beginning: Beginning,
    names: SharedNames,
    progress: Progress,
    merge: Merge,
    /// Those that this trace needs, in their order.
    stages: Vec<Box<dyn Stage>>,
    /// Requests delivered so far.
    requests: u64,
    /// The time of the first request, of any device.
    first: Option<Nanos>,
    phase: Phase,
    /// A buffer for requests on their way through the stages, empty in between.
    batch: Vec<Request>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Reading,
    /// The inputs have ended; there is nothing in the stages any more.
    Ended,
    Failed,
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

    fn begin(mut inputs: Vec<Input>, options: &Options, notes: Vec<String>) -> Result<Trace, TraceError> {
        let beginning = Beginning::of(&mut inputs, options, notes)?;
        let names: SharedNames = Rc::new(RefCell::default());
        let progress = Progress::of(&inputs);
        let reader_options = ReaderOptions { wanted: beginning.wanted(), names: &names };
        let readers = inputs.into_iter().map(|input| {
            let name = input.name.clone();
            (name, beginning.format.reader(input, &reader_options))
        });
        let merge = Merge::new(readers);
        Ok(Trace::staged(beginning, names, progress, merge, options))
    }

    /// A trace of requests that are in memory already, such as a table of another program. `name` is for messages;
    /// `devices` are the names that [`DeviceId::Named`] refers to.
    ///
    /// # Errors
    /// When there are too many devices, or one has too long a name.
    pub fn of_requests(
        name: &str,
        requests: impl Iterator<Item = Result<Request, TraceError>> + 'static,
        devices: &[String],
        options: &Options,
    ) -> Result<Trace, TraceError> {
        let mut names = Names::default();
        for device in devices {
            let problem =
                || TraceError::Files(format!("{name} has more than 65536 devices, or a name that is too long"));
            names.intern(device.as_bytes()).ok_or_else(problem)?;
        }
        let beginning = Beginning::given();
        let reader: Box<dyn text::Reader> = Box::new(Given::new(requests));
        let merge = Merge::new(std::iter::once((name.to_owned(), reader)));
        Ok(Trace::staged(beginning, Rc::new(RefCell::new(names)), Progress::default(), merge, options))
    }

    fn staged(beginning: Beginning, names: SharedNames, progress: Progress, merge: Merge, options: &Options) -> Trace {
        let mut stages: Vec<Box<dyn Stage>> = Vec::new();
        if !options.devices.is_empty() {
            let called = beginning.format.spec().devices_called;
            let wanted = options.devices.clone();
            stages.push(Box::new(Select::new(wanted, called, beginning.event, names.clone())));
        }
        let of_issues = beginning.of_issues();
        stages.push(Box::new(Order::new(options.sort_window, beginning.latency || of_issues)));
        if of_issues {
            stages.push(Box::new(Requeues::new(beginning.latency)));
        }
        if beginning.latency {
            stages.push(Box::new(Matcher::default()));
        }
        let (requests, phase, batch) = (0, Phase::Reading, Vec::new());
        Trace { beginning, names, progress, merge, stages, requests, first: None, phase, batch }
    }

    pub fn format(&self) -> &Format {
        &self.beginning.format
    }

    /// The names of the devices so far.
    pub fn names(&self) -> std::cell::Ref<'_, Names> {
        self.names.borrow()
    }

    /// The time of the first request of the trace, also where it is of a device that the user did not ask for. `None` before
    /// the first batch.
    pub fn first(&self) -> Option<Nanos> {
        self.first
    }

    /// How much of the files has been read, before decompression.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Appends some requests to `out`; false at the end.
    ///
    /// # Errors
    /// When the files cannot be read, and at the end when there was no request. After an error comes the end.
    pub fn next_batch(&mut self, out: &mut Vec<Request>) -> Result<bool, TraceError> {
        let before = out.len();
        let result = self.read_batch(out);
        match result {
            Ok(()) => {
                self.requests += (out.len() - before) as u64;
                if self.first.is_none()
                    && let Some(request) = out.get(before)
                {
                    self.first = self.stages.iter().find_map(|stage| stage.first()).or(Some(request.time));
                }
            }
            Err(_) => self.phase = Phase::Failed,
        }
        if self.phase == Phase::Ended && self.requests == 0 {
            self.phase = Phase::Failed;
            return Err(TraceError::NoRequests { name: self.merge.names(), import: Box::new(self.import()) });
        }
        result.map(|()| out.len() > before)
    }

    /// Appends at least one request to `out`, except at the end.
    fn read_batch(&mut self, out: &mut Vec<Request>) -> Result<(), TraceError> {
        while self.batch.is_empty() {
            if self.phase != Phase::Reading {
                return Ok(());
            }
            let is_last = !self.merge.fill(&mut self.batch)?;
            for stage in &mut self.stages {
                stage.pass(&mut self.batch, is_last);
            }
            if is_last {
                self.phase = Phase::Ended;
            }
        }
        match out.is_empty() {
            true => std::mem::swap(out, &mut self.batch),
            false => out.append(&mut self.batch),
        }
        Ok(())
    }

    /// The use of the lines or records so far.
    pub fn import(&self) -> Import {
        let Beginning { format, why, event, notes, .. } = &self.beginning;
        let mut import = Import {
            format: format.to_string(),
            why: why.clone(),
            event: *event,
            requests: self.requests,
            notes: notes.clone(),
            ..Import::default()
        };
        self.merge.report(&mut import);
        for stage in &self.stages {
            stage.report(&mut import);
        }
        if *event == Some(Event::Complete) {
            import.notes.push("times are those of completions".into());
        }
        import
    }
}

impl IntoIterator for Trace {
    type Item = Result<Request, TraceError>;
    type IntoIter = Requests;

    fn into_iter(self) -> Requests {
        Requests { trace: self, batch: Vec::new(), at: 0 }
    }
}

/// The requests of a [`Trace`], one by one.
pub struct Requests {
    trace: Trace,
    batch: Vec<Request>,
    at: usize,
}

impl Requests {
    /// The use of the lines or records so far.
    pub fn import(&self) -> Import {
        self.trace.import()
    }
}

impl Iterator for Requests {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Result<Request, TraceError>> {
        if self.at == self.batch.len() {
            self.batch.clear();
            self.at = 0;
            match self.trace.next_batch(&mut self.batch) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
        let request = self.batch[self.at];
        self.at += 1;
        Some(Ok(request))
    }
}

/// Opens a trace at `path` with default options.
///
/// # Errors
/// As [`Trace::open`].
pub fn open(path: impl AsRef<Path>) -> Result<Trace, TraceError> {
    Trace::open(&[path.as_ref().to_owned()], &Options::default())
}
