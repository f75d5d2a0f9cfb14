//! Each format of a tracer of the kernel on a small sample, as in `golden.rs`.

use super::golden::{check, tallied};
use super::{as_format, lines, of_tracers};
use crate::trace::{Event, Import, Options};

const BLKPARSE: &[u8] = b"  7,0    1        1     0.000000000 13086  Q  RM 15944 + 2 [fio]
  7,0    1        2     0.000001500 13086  G  RM 15944 + 2 [fio]
  7,0    1        3     0.000002000 13086  P   N [a b]
  7,0    1        4     0.000003000 13086  D  RM 15944 + 2 [a ] b]
259,12   0        1     0.000004000    14  D FWFS 800 + 8 [jbd2/x-8]
  7,0    0        2     0.005727000    14  C  RM 15944 + 2 [0]
  7,0    0        3     0.005728000    14  D  FN [kworker/0:1H]
  7,0    0        4     0.005730000    14  A   W 100 + 8 <- (8,1) 36
  7,0    0        5     0.005800000    14  C  FN 0 [0]
  7,0    0        6     0.006000000    14  D   R 96 (12 00 00 00 60 00 ..) [hald]
  7,0    0        7     0.006000001    14  D   D 4096 + 16 [fstrim]
  7,0    0        0     0.006100000     0  m   N cfq workload slice
CPU0 (7,0):
 Reads Queued:           1,        1KiB\t Writes Queued:           0,        0KiB

Total (7,0):
Throughput (R/W): 170KiB/s / 0KiB/s
Events (7,0): 12 entries
Skips: 0 forward (0 -   0.0%)
";

/// Issues of blkparse's text. The flush before a write is a request of its own; a discard is a D before the operation's
/// letters, an issue a D as the action.
#[test]
fn blkparse() {
    let expected = [
        "3000 7,0 read 8163328+1024 M -/13086/1",
        "4000 259,12 flush 0+0 - -/14/0",
        "4000 259,12 write 409600+4096 FS -/14/0",
        "5728000 7,0 flush 0+0 - -/14/0",
        "6000001 7,0 discard 2097152+8192 - -/14/0",
    ];
    let (skipped, rejected) = check("blkparse", true, BLKPARSE, &expected);
    assert_eq!(rejected, []);
    assert!(skipped.contains(&("queue event".to_owned(), 1)) && skipped.contains(&("statistics".to_owned(), 6)));
    let latency = Options { latency: true, ..Options::default() };
    let (requests, trace) = lines(BLKPARSE, &latency);
    assert_eq!(requests[0], "3000 7,0 read 8163328+1024 M 5724000/13086/1");
    assert_eq!(requests[3], "5728000 7,0 flush 0+0 - 72000/14/0");
    assert!(trace.import().notes.iter().any(|note| note.starts_with("3 requests have no completion")));
    let queued = Options { event: Some(Event::Queue), ..Options::default() };
    assert_eq!(lines(BLKPARSE, &queued).0, ["0 7,0 read 8163328+1024 M -/13086/1"]);
}

/// Aim: the completion of a flush is one with `blkparse -t` as well, which puts the time since the issue before its error. Method: the
/// same flush with and without; pass-through commands stay what they are.
#[test]
fn flushes_of_blkparse_with_times() {
    let latency = Options { latency: true, ..Options::default() };
    for done in ["0 [0]", "0 (    4000) [0]", "(    4000) 0 [0]"] {
        let text = format!("7,0 0 1 0.000001000 14 D FN [fio]\n7,0 0 2 0.000005000 14 C FN {done}\n");
        let (requests, trace) = lines(text.as_bytes(), &latency);
        assert_eq!(requests, ["1000 7,0 flush 0+0 - 4000/14/0"], "{done}");
        assert!(trace.import().skipped.is_empty(), "{done}: {:?}", trace.import().skipped);
    }
    let text = "7,0 0 1 0.000001000 14 D R 96 (12 00 00 00 60 00 ..) [hald]\n7,0 0 2 0.000002000 14 C R (12 00 ..) [0]\n\
                7,0 0 3 0.000003000 14 D R 8 + 8 [fio]\n";
    let (requests, trace) = lines(text.as_bytes(), &Options::default());
    assert_eq!(requests, ["3000 7,0 read 4096+4096 - -/14/0"]);
    assert_eq!(trace.import().rejected_count(), 0);
}

/// Completions find their requests also where the lines are not in order, as when processors' events are interleaved.
/// Only requests count as out of order.
#[test]
fn completions_before_their_requests() {
    let latency = Options { latency: true, ..Options::default() };
    let event = |nanos: u64, action: &str| format!("7,0 0 1 0.{nanos:09} 14 {action} R 8 + 8 [fio]\n");
    let text = [event(15, "C"), event(10, "D"), event(100, "D"), event(105, "C")].concat();
    let (requests, trace) = lines(text.as_bytes(), &latency);
    assert_eq!(requests, ["10 7,0 read 4096+4096 - 5/14/0", "100 7,0 read 4096+4096 - 5/14/0"]);
    let import = trace.import();
    assert_eq!((import.out_of_order, import.back_max_ns, import.too_late), (0, 0, 0));
    let text = [event(100, "D"), event(105, "C"), event(10, "D"), event(15, "C")].concat();
    let (requests, trace) = lines(text.as_bytes(), &latency);
    assert_eq!(requests, ["10 7,0 read 4096+4096 - 5/14/0", "100 7,0 read 4096+4096 - 5/14/0"]);
    let import = trace.import();
    assert_eq!((import.out_of_order, import.back_max_ns, import.too_late), (1, 90, 0));
    assert!(import.to_text().contains("out of order: 1 request, by up to 90 ns; sorted\n"), "{}", import.to_text());
    let (_, trace) = lines(text.as_bytes(), &Options { sort_window: 0, ..latency });
    assert!(trace.import().to_text().contains("; not sorted: 1 of them"), "{}", trace.import().to_text());
}

/// A request that the driver gave back is issued twice and counts once, from its last issue on, as btt has it. One that was given back before
/// it was issued takes nothing from the one before it at its place. Method: the events as text of each tracer, with and without
/// latencies.
#[test]
fn requeued_requests_count_once() {
    let latency = Options { latency: true, ..Options::default() };
    let events = [(10, "D"), (12, "R"), (20, "D"), (25, "C"), (30, "R"), (40, "D"), (47, "C")];
    for sample in of_tracers(&events.map(|(micros, action)| (micros, action, 0))) {
        let (requests, trace) = lines(&sample, &latency);
        assert_eq!(requests, ["20000 7,0 read 4096+4096 - 5000/14/0", "40000 7,0 read 4096+4096 - 7000/14/0"]);
        let import = trace.import();
        let skipped = |import: &Import| -> Vec<(&str, u64)> {
            import.skipped.iter().map(|tally| (tally.reason, tally.count)).collect()
        };
        assert_eq!(skipped(&import), [("requeue", 2), ("issue that the driver gave back", 1)]);
        let (requests, trace) = lines(&sample, &Options::default());
        assert_eq!(requests, ["20000 7,0 read 4096+4096 - -/14/0", "40000 7,0 read 4096+4096 - -/14/0"]);
        let import = trace.import();
        let expected = [("completion", 2), ("requeue", 2), ("issue that the driver gave back", 1)];
        assert_eq!(skipped(&import), expected);
        assert_eq!(import.units, import.requests + tallied(&import.skipped), "T1");
    }
}

/// Lines after a format of the user's: fields in any order, widths, other separators.
#[test]
fn blkparse_formats() {
    let told = |format: &str, sample: &[u8]| lines(sample, &as_format(&format!("blkparse:{format}"))).0;
    let expected = ["1000000002 0 write 4096+4096 S -/-/-"];
    assert_eq!(told(r"%T.%t %a %d %S %n\n", b"1.000000002 D WS 8 8\n0.000000001 Q WS 8 8\n"), expected);
    assert_eq!(told("%5T.%9t,%-2a,%d,%S,%n", b"    1.000000002,D ,WS,8,8\n"), expected);
    let expected = ["1000000002 8,16 discard 4096+512 - -/33/2"];
    assert_eq!(told("%M:%m %c [%p] %S %N %d %T.%t", b"8:16 2 [33] 8 512 D 1.000000002\n"), expected);
}

pub(super) const TRACEFS: &[u8] = b"# tracer: nop
#
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
             fio-13086   [001] .....  1061.894219: block_bio_queue: 7,0 RM 15944 + 2 [fio]
 jbd2/loop0-8-13080   [001] .....  1061.894225: block_rq_issue: 7,0 RM 1024 () 15944 + 2 be,0,4 [jbd2/loop0-8]
 kworker/1:1H-54      [001] .....  1062.241090: block_rq_issue: 7,0 FF 0 () 0 + 0 none,0,0 [kworker/1:1H]
     ksoftirqd/0-14      [000] ..s..  1061.899946: block_rq_complete: 7,0 RM () 15944 + 2 be,0,4 [0]
     ksoftirqd/1-22      [001] ..s..  1062.242029: block_rq_complete: 7,0 FF () 18446744073709551615 + 0 none,0,0 [0]
CPU:1 [LOST 12 EVENTS]
";

/// New and old kernels, trace-cmd and perf: the priority field may be missing, the flags too.
#[test]
fn tracefs() {
    let expected = ["1061894225000 7,0 read 8163328+1024 M -/13080/1", "1062241090000 7,0 flush 0+0 - -/54/1"];
    let (skipped, rejected) = check("tracefs", true, TRACEFS, &expected);
    assert_eq!(rejected, []);
    assert!(skipped.contains(&("events were lost".to_owned(), 1)) && skipped.contains(&("comment".to_owned(), 3)));
    let latency = Options { latency: true, ..Options::default() };
    let (requests, _) = lines(TRACEFS, &latency);
    assert_eq!(requests[0], "1061894225000 7,0 read 8163328+1024 M 5721000/13080/1");
    assert_eq!(requests[1], "1062241090000 7,0 flush 0+0 - 939000/54/1");

    let old = b" my app-2-77  (     77) [003] d..2 5.000001: block_rq_issue: 8,0 WS 4096 () 800 + 8 [my app-2]\n";
    check("tracefs", true, old, &["5000001000 8,0 write 409600+4096 S -/77/3"]);
    let perf = b"fio 13086 [001]  1061.894225: block:block_rq_issue: 7,0 RM 1024 () 15944 + 2 be,0,4 [fio]\n";
    check("tracefs", true, perf, &["1061894225000 7,0 read 8163328+1024 M -/13086/1"]);
    let command = b"fio-1 [001]  2.5: block_rq_issue: 7,0 N 36 (12 00 00 00 24 00) 0 + 0 [x]\n\
                    fio-1 [001]  2.5: block_rq_issue: 7,0 R 512 () 0 + 1 [x]\n";
    check("tracefs", true, command, &["2500000000 7,0 read 0+512 - -/1/1"]);
}

/// Aim: write zeroes and zone appends count as writes, as each kernel spells them, and the report says so. Method: the letter of
/// kernels up to 6.18, and those since, issued and completed; a file of nothing else; commands that have no place.
#[test]
fn write_zeroes() {
    let event = |nanos: u64, event: &str, fields: &str| {
        format!(" fstrim-7  [000] .....  1.{nanos:06}: block_rq_{event}: {fields} none,0,0 [x]\n")
    };
    let note = "write zeroes and zone appends (N, WZ, ZA) count as writes; an append begins where its zone does";
    let latency = Options { latency: true, ..Options::default() };
    for (letters, flags) in [("N", "-"), ("NS", "S"), ("WZ", "-"), ("WZFS", "FS"), ("ZA", "-"), ("ZAS", "S")] {
        let text = [
            event(5, "issue", &format!("259,0 {letters} 40960 () 800 + 80")),
            event(9, "complete", &format!("259,0 {letters} () 800 + 80")),
        ]
        .concat();
        let (requests, trace) = lines(text.as_bytes(), &latency);
        assert_eq!(requests, [format!("1000005000 259,0 write 409600+40960 {flags} 4000/7/0")], "{letters}");
        assert_eq!(trace.format().to_string(), "tracefs");
        let notes = trace.import().notes;
        assert_eq!(notes.iter().filter(|said| *said == note).count(), 1, "{letters}: {notes:?}");
    }
    let other = [
        event(1, "issue", "8,0 N 512 (85 08 0e) 0 + 0"),
        event(2, "complete", "8,0 N () 18446744073709551615 + 1"),
        event(3, "issue", "8,0 ZR 0 () 800 + 0"),
        event(4, "issue", "8,0 ZRA 0 () 800 + 0"),
        event(5, "issue", "8,0 W 512 () 8 + 1"),
        event(6, "complete", "8,0 W () 8 + 1"),
    ]
    .concat();
    let (requests, trace) = lines(other.as_bytes(), &latency);
    assert_eq!(requests, ["1000005000 8,0 write 4096+512 - 1000/7/0"]);
    let import = trace.import();
    assert!(import.rejected.is_empty() && !import.notes.iter().any(|said| said == note), "{import:?}");
}

/// blktrace's records, byte for byte from the kernel's header: version 7 in both byte orders, version 8, a control
/// group's number, data after a header, notes, and a truncated end.
#[test]
fn blktrace() {
    const READ: u32 = 1;
    const WRITE: u32 = 2;
    const FLUSH: u32 = 4;
    const SYNC: u32 = 8;
    const NOTIFY: u32 = 0x400;
    const DISCARD: u32 = 0x2000;
    const FUA: u32 = 0x8000;
    let v7 = |big: bool, time: u64, sector: u64, bytes: u32, action: u32, pdu: &[u8]| {
        let mut one = Vec::new();
        let mut words: Vec<(u64, usize)> = vec![(0x6561_7407, 4), (1, 4), (time, 8), (sector, 8), (bytes.into(), 4)];
        words.extend([(action.into(), 4), (4242, 4), (259 << 20 | 1, 4), (3, 4), (0, 2), (pdu.len() as u64, 2)]);
        for (word, size) in words {
            let bytes = if big { word.to_be_bytes()[8 - size..].to_vec() } else { word.to_le_bytes()[..size].to_vec() };
            one.extend(bytes);
        }
        assert_eq!(one.len(), 48);
        one.extend_from_slice(pdu);
        one
    };
    for big in [false, true] {
        let mut sample = [
            v7(big, 1, 0, 0, NOTIFY << 16, b"fio\0\0\0\0\0\0\0\0\0\0\0\0\0"),
            v7(big, 10, 8, 4096, READ << 16 | 7, b""),
            v7(big, 11, 8, 4096, READ << 16 | 1, b""),
            v7(big, 12, 16, 512, (WRITE | SYNC | FUA) << 16 | 7 | 0x100, b"cgroupid"),
            v7(big, 13, 0, 0, FLUSH << 16 | 7, b""),
            v7(big, 14, 24, 512, (WRITE | FLUSH) << 16 | 7, b""),
            v7(big, 15, 32, 512, (WRITE | DISCARD) << 16 | 7, b""),
            v7(big, 20, 8, 4096, READ << 16 | 8, b""),
        ]
        .concat();
        sample.extend_from_slice(&v7(big, 99, 8, 4096, READ << 16 | 7, b"")[..40]);
        let expected = [
            "10 259,1 read 4096+4096 - -/4242/3",
            "12 259,1 write 8192+512 FS -/4242/3",
            "13 259,1 flush 0+0 - -/4242/3",
            "14 259,1 flush 0+0 - -/4242/3",
            "14 259,1 write 12288+512 - -/4242/3",
            "15 259,1 discard 16384+512 - -/4242/3",
        ];
        let (skipped, rejected) = check("blktrace", true, &sample, &expected);
        assert_eq!(rejected, [("a record cut off at the end".to_owned(), 1)]);
        let skip = |reason: &str| (reason.to_owned(), 1);
        assert_eq!(skipped, [skip("completion"), skip("note of the tracer"), skip("queue event")]);
        let latency = Options { latency: true, ..Options::default() };
        assert_eq!(lines(&sample, &latency).0[0], "10 259,1 read 4096+4096 - 10/4242/3");
    }

    let v8 = |time: u64, sector: u64, bytes: u32, action: u64, pdu: &[u8]| {
        let mut one = Vec::new();
        one.extend(0x6561_7408u32.to_le_bytes());
        one.extend(1u32.to_le_bytes());
        one.extend(time.to_le_bytes());
        one.extend(sector.to_le_bytes());
        one.extend(bytes.to_le_bytes());
        one.extend(4242u32.to_le_bytes());
        one.extend(action.to_le_bytes());
        one.extend((259u32 << 20 | 1).to_le_bytes());
        one.extend(3u32.to_le_bytes());
        one.extend(0u16.to_le_bytes());
        one.extend((pdu.len() as u16).to_le_bytes());
        one.extend([0; 12]);
        assert_eq!(one.len(), 64);
        one.extend_from_slice(pdu);
        one
    };
    let sample = [
        v8(10, 8, 4096, u64::from(READ << 16 | 7), b"12345678"),
        v8(11, 8, 4096, 1 << 40 | 17, b""),
        v8(12, 8, 512, u64::from(WRITE << 16 | 7), b""),
    ]
    .concat();
    check("blktrace", true, &sample, &["10 259,1 read 4096+4096 - -/4242/3", "12 259,1 write 4096+512 - -/4242/3"]);
}

/// Bytes that are not a record in the middle of blktrace's are skipped, and the next record is found.
#[test]
fn blktrace_finds_its_way_back() {
    let requests: Vec<crate::trace::Request> = (0..3)
        .map(|n| crate::trace::Request {
            device: crate::trace::DeviceId::Block(1),
            ..crate::trace::Request::new(seekless::units::Nanos(n), crate::trace::Op::Read, n * 512, 512)
        })
        .collect();
    let mut bytes = super::written("blktrace", &requests, &crate::trace::Names::default());
    bytes.splice(48..48, b"garbage that is no record".iter().copied());
    let (read, trace) = lines(&bytes, &Options::default());
    assert_eq!(read.len(), 3);
    assert_eq!(trace.import().rejected[0].reason, "bytes that are no record");
    assert_eq!(trace.import().rejected[0].first_at, 48);
}
