//! Tests of the trace readers and writers. Samples are written by hand from each format's description.

mod detection;
mod errors;
mod fuzzing;
mod golden;
mod golden_tracers;
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

/// Events of a read of 4 KiB, each with its microsecond, its letter (`D`, `R` or `C`) and the minor number of its device, as each tracer of
/// the kernel has them: lines of blkparse and of tracefs, and records of blktrace.
fn of_tracers(events: &[(u32, &str, u32)]) -> [Vec<u8>; 3] {
    let blkparse = |&(micros, action, minor): &(u32, &str, u32)| {
        format!("7,{minor} 0 1 0.{micros:06}000 14 {action} R 8 + 8 [fio]\n")
    };
    let tracefs = |&(micros, action, minor): &(u32, &str, u32)| {
        let (name, bytes) = match action {
            "D" => ("issue", "4096 "),
            "R" => ("requeue", ""),
            _ => ("complete", ""),
        };
        format!("fio-14 [000] ..... 0.{micros:06}: block_rq_{name}: 7,{minor} R {bytes}() 8 + 8 [0]\n")
    };
    let blktrace = |&(micros, action, minor): &(u32, &str, u32)| {
        let action = match action {
            "D" => 7,
            "R" => 6,
            _ => 8,
        };
        let words = [0x6561_7407, 1, micros * 1000, 0, 8, 0, 4096, 1 << 16 | action, 14, 7 << 20 | minor, 0, 0];
        words.map(u32::to_le_bytes).concat()
    };
    [
        events.iter().map(blkparse).collect::<String>().into_bytes(),
        events.iter().map(tracefs).collect::<String>().into_bytes(),
        events.iter().flat_map(blktrace).collect(),
    ]
}
