//! Tests of the trace readers and writers. Samples are written by hand from each format's description.

mod detection;
mod errors;
mod fuzzing;
mod golden;
mod round_trip;

use std::io::Cursor;

use super::{Format, Options, Request, Trace, TraceError, TraceWriter};

/// Reads `bytes` with `options`.
fn trace(bytes: &[u8], options: &Options) -> Result<Trace, TraceError> {
    Trace::from_reader("sample", Box::new(Cursor::new(bytes.to_vec())), options)
}

fn as_format(format: &str) -> Options {
    Options { format: Some(Format::parse(format).expect(format)), ..Options::default() }
}

/// A request on one line: `time device op offset+bytes flags latency/process/cpu`.
fn line(request: &Request, trace: &Trace) -> String {
    let dash = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
    let Request { time, op, offset, bytes, .. } = request;
    let flags = if request.flags.letters().is_empty() { "-".to_owned() } else { request.flags.letters() };
    let (latency, process) = (request.latency.map(|time| time.0), request.process.map(u64::from));
    format!(
        "{} {} {op} {offset}+{bytes} {flags} {}/{}/{}",
        time.0,
        trace.names().text(request.device),
        dash(latency),
        dash(process),
        dash(request.cpu.map(u64::from))
    )
}

/// All requests of a trace, on lines, and the trace for its report.
fn lines(bytes: &[u8], options: &Options) -> (Vec<String>, Trace) {
    let mut trace = trace(bytes, options).unwrap_or_else(|error| panic!("{error}"));
    let mut requests = Vec::new();
    while trace.next_batch(&mut requests).unwrap_or_else(|error| panic!("{error}")) {}
    (requests.iter().map(|request| line(request, &trace)).collect(), trace)
}

/// `requests` as a file of `format`.
fn written(format: &str, requests: &[Request], names: &super::Names) -> Vec<u8> {
    let format = Format::parse(format).expect(format);
    let mut writer = TraceWriter::new(&format, Vec::new()).expect("a format that can be written");
    for request in requests {
        writer.write(request, names).expect("memory takes everything");
    }
    writer.finish().expect("memory takes everything").1
}
