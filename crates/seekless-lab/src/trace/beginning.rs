//! What the beginning of a trace decides: its format, and which moment of a request counts.

use super::detect::{self, Detected};
use super::format::Format;
use super::import::AS_ASKED;
use super::input::{Compression, Input, SAMPLE_BYTES};
use super::kernel::Wanted;
use super::published::NATIVE;
use super::request::Event;
use super::{Options, TraceError};

/// What some programs put in front of text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Text of ASCII characters in two bytes each, with the mark that says in which order they are.
fn is_utf16(sample: &[u8]) -> bool {
    let zero_at = match sample {
        [0xff, 0xfe, ..] => 1,
        [0xfe, 0xff, ..] => 0,
        _ => return false,
    };
    sample[2..].chunks_exact(2).take(32).all(|pair| pair[zero_at] == 0 && pair[1 - zero_at].is_ascii())
}

/// How a trace is read.
pub(super) struct Beginning {
    pub(super) format: Format,
    /// Why this format was chosen.
    pub(super) why: String,
    /// The moment of a request that counts, where the format has several.
    pub(super) event: Option<Event>,
    /// Completions are matched with requests, to get latencies.
    pub(super) latency: bool,
    pub(super) notes: Vec<String>,
}

impl Beginning {
    /// Looks at the first bytes of every input.
    ///
    /// # Errors
    /// When an input cannot be read, or the inputs have no format, or different ones.
    pub(super) fn of(inputs: &mut [Input], options: &Options, mut notes: Vec<String>) -> Result<Beginning, TraceError> {
        let Some(first) = inputs.first() else { return Err(TraceError::Files("no trace was named".into())) };
        let first_name = first.name.clone();
        let mut found: Option<Detected> =
            options.format.clone().map(|format| Detected { format, why: AS_ASKED.into() });
        let mut variant: Option<(String, Detected)> = None;
        let mut events = [false; 3];
        for input in inputs {
            input.sample()?;
            if is_utf16(input.window()) {
                let convert = input.shell("| iconv -f UTF-16 -t UTF-8 | seekless trace info -");
                let problem =
                    format!("it is text in UTF-16\nconvert it, with the options that say how it is read: {convert}");
                return Err(TraceError::Format { name: input.name.clone(), problem });
            }
            if input.window().starts_with(BYTE_ORDER_MARK) && !input.window().contains(&0) {
                input.consume(BYTE_ORDER_MARK.len());
            }
            let (sample, whole) = (input.window(), input.at_end());
            let sample = &sample[..sample.len().min(SAMPLE_BYTES)];
            // A processor without events has an empty file, which says nothing about the others.
            if options.format.is_none() && !sample.is_empty() {
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
            if let Some(Detected { format, .. }) = &found
                && let Some(detected) = detect::variant(format, sample, whole)
            {
                match &variant {
                    Some((first, other)) if other.format != detected.format => {
                        let (one, two, name) = (&other.format, &detected.format, &input.name);
                        let problem = format!("{first} is {one}, but {name} is {two}: they are not one trace");
                        return Err(TraceError::Files(problem));
                    }
                    Some(_) => {}
                    None => variant = Some((input.name.clone(), detected)),
                }
            }
            if input.compression != Compression::None {
                let how = if input.compression == Compression::Gzip { "gzip" } else { "zstd" };
                notes.push(format!("{} is compressed with {how}", input.name));
            }
        }
        let Some(Detected { format, why }) = found else {
            return Err(TraceError::Format { name: first_name, problem: "there is nothing in it".into() });
        };
        let (format, why) = match (format.variants(), variant) {
            (Some(_), Some((_, variant))) => (variant.format, format!("{why}; {}", variant.why)),
            (Some(variants), None) => {
                return Err(TraceError::Format { name: first_name, problem: variants.undecided.to_owned() });
            }
            (None, _) => (format, why),
        };
        let (event, note) = choose_event(&format, options.event, events);
        notes.extend(note);
        notes.extend(format.note());
        let latency = options.latency && format.has_events() && event != Some(Event::Complete);
        Ok(Beginning { format, why, event, latency, notes })
    }

    /// That of requests which are in memory already, with all fields that a trace of our own format has.
    pub(super) fn given() -> Beginning {
        let why = "its requests were given by a program".to_owned();
        Beginning { format: Format::of(&NATIVE), why, event: None, latency: false, notes: Vec::new() }
    }

    /// Issues of the kernel, of which the driver may give some back.
    pub(super) fn of_issues(&self) -> bool {
        self.event == Some(Event::Issue)
    }

    /// The events that the readers have to deliver.
    pub(super) fn wanted(&self) -> Wanted {
        self.event.map_or(Wanted::ALL, |event| Wanted::one(event, self.latency))
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
