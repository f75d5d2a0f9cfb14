//! Readers on arbitrary bytes: each function takes any input, and panics when an invariant is violated.

use std::io::Cursor;

use super::{Format, Options, Trace, TraceError, TraceWriter};
use crate::trace::Op;

/// Formats by name, with example descriptions for those that need one.
pub const READERS: &[&str] = &[
    "seekless",
    "blktrace",
    "blkparse",
    r"blkparse:%T.%t %a %d %S %n\n",
    "tracefs",
    "msr",
    "spc",
    "alibaba",
    "tencent",
    "fiu",
    "systor17",
    "iolog2",
    "iolog3",
    "disksim",
    "validation",
    "vscsi1",
    "vscsi2",
    "cloudphysics",
    "oracleGeneral",
    "oracleGeneral:4096",
    "srt",
    "srt:512",
    "mqsim",
    "csv:time=1:us,op=2,offset=3:B,length=4:B,device=5,read=0,write=1",
    "csv:time=when:s,op=what,offset=lba:sectors,length=n:4096,latency=took:ms,separator=;",
    r"regex:^(?<time_us>\d+)\s+(?<op>\w+)\s+(?<offset_sectors>\d+)\+(?<length_B>\d+)",
    "cloudphysics:s",
    "cloudphysics:us",
];

/// The target of the fuzzer: the first byte chooses a reader, detection or the descriptions, the rest is their input.
pub fn any(input: &[u8]) {
    let Some((&choice, input)) = input.split_first() else { return };
    match READERS.get(usize::from(choice)) {
        Some(name) => reader(name, input),
        None if choice.is_multiple_of(4) => description(input),
        None => detect(input),
    }
}

/// Reads `input` as the format called `name`: T1 and T2 hold, requests can be written in every format, and Seekless's
/// own format reads them back unchanged.
pub fn reader(name: &str, input: &[u8]) {
    let format = Format::parse(name).expect("a format of the table");
    read(Some(format), input);
}

/// Detects the format of `input` and reads it, if there is one.
pub fn detect(input: &[u8]) {
    read(None, input);
}

/// The description of a format: parsing it never panics, and a parsed one is written unchanged.
pub fn description(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Ok(format) = Format::parse(text) {
        let again = Format::parse(&format.to_string());
        assert_eq!(again.as_ref(), Ok(&format), "{text:?}");
    }
}

fn read(format: Option<Format>, input: &[u8]) {
    for latency in [false, true] {
        let options = Options { format: format.clone(), latency, sort_window: 8, ..Options::default() };
        let trace = Trace::from_reader("input", Box::new(Cursor::new(input.to_vec())), &options);
        let mut trace = match trace {
            Ok(trace) => trace,
            Err(error) => return assert!(!error.to_string().is_empty()),
        };
        let mut requests = Vec::new();
        loop {
            match trace.next_batch(&mut requests) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error @ TraceError::NoRequests { .. }) => {
                    assert!(requests.is_empty());
                    return assert!(!error.to_string().is_empty());
                }
                Err(error) => return assert!(!error.to_string().is_empty()),
            }
        }
        assert!(!requests.is_empty(), "a trace without requests is an error");
        for request in &requests {
            let (offset, bytes) = (request.offset, request.bytes);
            assert_eq!(bytes == 0, request.op == Op::Flush, "T2: {request:?}");
            assert!(offset.checked_add(bytes).is_some(), "T2: {request:?}");
            let longest = request.time.max(request.latency.unwrap_or_default());
            assert!(longest.0 <= 1 << 63, "T2: {request:?}");
        }
        for spec in super::FORMATS.iter().filter(|spec| spec.writes()) {
            let format = Format::parse(&spec.example()).expect("a format of the table");
            let mut writer = TraceWriter::new(&format, Vec::new()).expect("a writer");
            for request in &requests {
                writer.write(request, &trace.names()).expect("memory takes everything");
            }
            let (written, bytes) = writer.finish().expect("memory takes everything");
            let dropped: u64 = written.dropped.iter().map(|(_, count)| count).sum();
            assert_eq!(written.requests + dropped, requests.len() as u64, "{}", spec.usage());
            if spec.name == "seekless" {
                assert_eq!(dropped, 0);
                let options = Options { format: Some(format.clone()), sort_window: 0, ..Options::default() };
                let again = Trace::from_reader("again", Box::new(Cursor::new(bytes)), &options).expect("own bytes");
                let again: Vec<_> = again.into_iter().collect::<Result<_, _>>().expect("own bytes");
                assert_eq!(again.len(), requests.len());
                for (one, two) in again.iter().zip(&requests) {
                    let same = (one.time, one.op, one.offset, one.bytes, one.flags, one.latency)
                        == (two.time, two.op, two.offset, two.bytes, two.flags, two.latency);
                    assert!(same, "{two:?} came back as {one:?}");
                }
            }
        }
    }
}
