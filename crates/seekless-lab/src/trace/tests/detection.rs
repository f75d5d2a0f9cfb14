//! Format detection: ambiguous formats need the user's choice, slightly damaged ones are recognised.

use std::path::Path;

use super::{lines, trace};
use crate::trace::{Options, Trace, TraceError};

fn problem(sample: &[u8]) -> String {
    match trace(sample, &Options::default()) {
        Err(error @ TraceError::Format { .. }) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(trace) => panic!("taken for {}", trace.format()),
    }
}

/// Input that is not a trace is refused with the first line and a hint.
#[test]
fn unknown_formats_are_refused() {
    assert!(problem(b"").contains("nothing in it"));
    assert!(problem(b"\n\n").contains("no format that is known"));
    assert!(problem(b"one,two,three\n").contains("\"one,two,three\""));
    assert!(problem(b"1,2,3,4\n").contains("--format 'csv:"));
    assert!(problem(b"\x7fELF\0\0\0\0").contains("binary"));
}

/// A few damaged lines do not hide a format; many do.
#[test]
fn damage_is_tolerated_in_part() {
    let line = "0,R,126703644672,4096,1577808000000626\n";
    let sample = line.repeat(50) + "what is this\n" + &line.repeat(5);
    let (requests, trace) = lines(sample.as_bytes(), &Options::default());
    assert_eq!(requests.len(), 55);
    let rejected = &trace.import().rejected;
    assert_eq!((rejected[0].count, rejected[0].first_at, &rejected[0].example[..]), (1, 51, "what is this"));
    assert!(problem((line.to_owned() + &"bad line\n".repeat(3)).as_bytes()).contains("known"));
}

/// The reason says how many lines fit and what their columns and units are.
#[test]
fn the_choice_is_explained() {
    let (_, trace) = lines(b"0,20941264,8192,W,0.551706\n", &Options::default());
    let import = trace.import();
    assert_eq!(import.why, "the line at its beginning is `asu,block,bytes,r|w,seconds`");
    assert!(import.notes.iter().any(|note| note.contains("blocks of 512 bytes")));
}

/// Real samples, if they are beside the checkout: each is recognised, and the binary ones give the same as the text
/// from which they were made.
#[test]
fn real_samples() {
    let Some(folder) = samples() else {
        eprintln!("skipped: no folder of trace samples in SEEKLESS_TRACE_SAMPLES");
        return;
    };
    let read = |name: &str| {
        let options = Options { latency: true, ..Options::default() };
        let mut trace = Trace::open(&[folder.join(name)], &options).unwrap_or_else(|error| panic!("{error}"));
        let mut requests = Vec::new();
        while trace.next_batch(&mut requests).unwrap_or_else(|error| panic!("{error}")) {}
        assert_eq!(trace.import().rejected_count(), 0, "{name}");
        (requests, trace)
    };
    let (text, text_trace) = read("tracefs_block_6.18.txt");
    let (binary, binary_trace) = read("sample");
    let (merged, _) = read("sample.bin");
    assert_eq!(text_trace.format().to_string(), "tracefs");
    assert_eq!(binary_trace.format().to_string(), "blktrace");
    assert_eq!(text.len(), 200);
    let start = text[0].time;
    let key = |request: &crate::trace::Request, start: u64| {
        (request.time.0 - start, request.op, request.offset, request.bytes, request.latency)
    };
    let of_text: Vec<_> = text.iter().map(|request| key(request, start.0)).collect();
    let offset = binary[0].time.0;
    let of_binary: Vec<_> = binary.iter().map(|request| key(request, offset)).collect();
    let of_merged: Vec<_> = merged.iter().map(|request| key(request, merged[0].time.0)).collect();
    assert_eq!(of_binary, of_text);
    assert_eq!(of_merged, of_text);
    let (iolog, trace) = read("fio_v3.iolog");
    assert_eq!(trace.format().to_string(), "iolog3");
    assert!(iolog.len() > 50);
}

fn samples() -> Option<std::path::PathBuf> {
    let given = std::env::var_os("SEEKLESS_TRACE_SAMPLES").map(std::path::PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/trace-samples");
    given.or(Some(beside)).filter(|folder| folder.is_dir())
}
