//! Replays on storage whose times are known.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use seekless::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use seekless::device::trace::{TraceDevice, TraceEvent};
use seekless::device::{BlockDevice, Device, Geometry, Memory, Zones};
use seekless::rt::{Executor, HostProfile};
use seekless::stack::Stack;
use seekless::units::{MIB, Nanos};

use super::timing::WINDOW_MAX;
use super::*;
use crate::trace::{DeviceId, Format, Names, Op, Options, Request, Summary, Trace, TraceError, TraceWriter};

type Requests = Vec<Result<Request, TraceError>>;

fn read(time: u64, offset: u64) -> Request {
    Request::new(Nanos(time), Op::Read, offset, 512)
}

fn took(request: Request, latency: u64) -> Request {
    Request { latency: Some(Nanos(latency)), ..request }
}

fn trace(requests: &[Request]) -> Requests {
    requests.iter().copied().map(Ok).collect()
}

/// Replays on a megabyte of memory that takes `delay` for each request, all at once. Returns the outcome and the
/// memory's requests, with starts and ends.
fn on_memory(delay: u64, requests: &[Request], spec: &Spec) -> (Result<Outcome, ReplayError>, Vec<TraceEvent>) {
    let executor = Executor::simulated(spec.seed, HostProfile::NONE);
    let rt = executor.rt().clone();
    let slow = FaultDevice::new(&rt, Rc::new(Memory::new(MIB)), 1);
    slow.add(Rule::new(Kinds::all(), When::Always, Effect::Delay(Nanos(delay)..=Nanos(delay))));
    let log = Rc::new(RefCell::new(Vec::new()));
    let device: Device = TraceDevice::new(&rt, slow, log.clone());
    let requests = trace(requests).into_iter();
    let outcome = executor.block_on(replay(&rt, device, requests, spec, &|_| {})).expect("it goes on");
    (outcome, log.take())
}

fn spec(timing: Timing) -> Spec {
    Spec { timing, ..Spec::default() }
}

fn starts(log: &[TraceEvent]) -> Vec<u64> {
    let mut starts: Vec<u64> = log.iter().map(|event| event.start.0).collect();
    starts.sort_unstable();
    starts
}

fn failure(result: Result<Outcome, ReplayError>) -> String {
    match result {
        Ok(_) => panic!("no failure"),
        Err(error) => error.to_string(),
    }
}

/// A window keeps this many requests under way, in the order of the trace; `closed` keeps one.
#[test]
fn windows() {
    let requests: Vec<Request> = (0..7).map(|n| read(n * 1_000_000, n * 512)).collect();
    let (outcome, log) = on_memory(100, &requests, &spec(Timing::Window(3)));
    let outcome = outcome.expect("an outcome");
    assert_eq!(starts(&log), [0, 0, 0, 100, 100, 100, 200]);
    assert_eq!((outcome.elapsed.0, outcome.outstanding_max), (300, 3));
    let mut made: Vec<(u64, u64)> = log.iter().map(|event| (event.start.0, event.at.0)).collect();
    made.sort_unstable();
    assert!(made.windows(2).all(|pair| pair[0].0 == pair[1].0 || pair[0].1 < pair[1].1), "P1: {made:?}");
    let (outcome, log) = on_memory(100, &requests, &spec(Timing::Closed));
    assert_eq!(starts(&log), [0, 100, 200, 300, 400, 500, 600]);
    assert_eq!(outcome.expect("an outcome").requests_per_second(), Some(1e7));
}

/// Open: at the recorded times, whatever happened to earlier requests, or a multiple as fast.
#[test]
fn open() {
    let requests = [read(1000, 0), read(1050, 512), read(1300, 1024)];
    let (outcome, log) = on_memory(100, &requests, &spec(Timing::Open { speed: 1.0 }));
    assert_eq!(starts(&log), [0, 50, 300]);
    let outcome = outcome.expect("an outcome");
    assert_eq!((outcome.elapsed.0, outcome.outstanding_max), (400, 2));
    let (_, log) = on_memory(100, &requests, &spec(Timing::Open { speed: 0.5 }));
    assert_eq!(starts(&log), [0, 100, 600]);
    // Virtual time ends: 213 days, a thousand times as slow, are 584 years.
    let far = [read(0, 0), read(213 * 86_400_000_000_000, 512)];
    let (outcome, _) = on_memory(100, &far, &spec(Timing::Open { speed: 0.001 }));
    assert!(failure(outcome).contains("give a larger number"));
}

/// Think: a request waits for those that had completed before it in the recording, and then for the recorded pause;
/// overlapping requests keep the distance of their starts.
#[test]
fn think() {
    // Recorded: 0..40, then a pause of 60 to 100..140 and, overlapping, 110..150; then a pause of 50 to 200.
    let requests =
        [took(read(1000, 0), 40), took(read(1100, 512), 40), took(read(1110, 1024), 40), took(read(1200, 1536), 40)];
    // Here each takes 10: 0..10, 70..80 and 80..90, and then 140.
    let (outcome, log) = on_memory(10, &requests, &spec(Timing::Think));
    assert_eq!(starts(&log), [0, 70, 80, 140]);
    assert_eq!(outcome.expect("an outcome").elapsed.0, 150);
    // Or each takes 1000: 0..1000, 1060..2060 and 1070..2070, and then 2120.
    let (_, log) = on_memory(1000, &requests, &spec(Timing::Think));
    assert_eq!(starts(&log), [0, 1060, 1070, 2120]);
    let (outcome, _) = on_memory(10, &[read(0, 0)], &spec(Timing::Think));
    assert!(failure(outcome).contains("`think` needs"));
}

/// Every kind of request is sent as it is, in pieces above the device's limit; statistics are by operation.
#[test]
fn every_operation() {
    let stack = Stack::parse("disk:size=4GiB,rpm=7200,seek=8ms,rate=100MB").expect("a stack");
    let large = 80 * MIB;
    let requests = trace(&[
        Request::new(Nanos(0), Op::Read, 0, large),
        Request::new(Nanos(0), Op::Write, 4096, 100),
        Request::new(Nanos(0), Op::Discard, 0, 4096),
        Request::new(Nanos(0), Op::Flush, 0, 0),
    ]);
    let told = Cell::new(0);
    let outcome =
        simulate(&stack, requests.into_iter(), &spec(Timing::Closed), &|done| told.set(done)).expect("an outcome");
    let counts: Vec<(u64, u64)> = outcome.ops.iter().map(|op| (op.requests, op.bytes)).collect();
    assert_eq!(counts, [(1, large), (1, 512), (1, 4096), (1, 0)]);
    assert_eq!(outcome.widened, 1, "a write of 100 bytes became a sector");
    let [(disk, counters)] = &outcome.counters[..] else { panic!("the stack is one disk") };
    assert!(disk.starts_with("disk:"), "{disk}");
    let pieces = counters.iter().find(|(name, _)| *name == "reads").expect("a disk counts reads").1;
    assert_eq!(pieces, 3, "P2: 80 MiB in pieces of at most 32 MiB");
    assert!(outcome.disk_busy().expect("a disk") > 0.9 && outcome.elapsed > Nanos::from_millis(500));
    assert_eq!(outcome.stack, stack.to_string());
    assert!(outcome.total().mean() <= outcome.total().max());
    assert_eq!(outcome.to_json()["operations"]["read"]["requests"], 1);
}

/// Aim: flushes and discards, which cost a modelled disk nothing, change no figure by which storage is judged. Method: one read
/// alone; the same with a hundred flushes and a discard longer than anything read; and flushes alone.
#[test]
fn what_costs_nothing_does_not_count() {
    let stack = Stack::parse("disk:nearline-4tb").expect("a stack");
    let run = |requests: &[Request]| {
        let open = spec(Timing::Open { speed: 1.0 });
        simulate(&stack, trace(requests).into_iter(), &open, &|_| {}).expect("an outcome")
    };
    let one = Request::new(Nanos(0), Op::Read, 1 << 30, 4096);
    let idle = (1..101).map(|n| Request::new(Nanos(n), Op::Flush, 0, 0));
    let discard = Request::new(Nanos(200), Op::Discard, 0, 100 << 30);
    let alone = run(&[one, Request::new(Nanos(200), Op::Flush, 0, 0)]);
    let diluted = run(&[&[one], &idle.clone().collect::<Vec<_>>()[..], &[discard]].concat());
    assert_eq!((diluted.total().requests, diluted.total().bytes, diluted.reads_and_writes().requests), (102, 4096, 1));
    assert_eq!(diluted.ops[Op::Discard.index()].bytes, 100 << 30);
    assert_eq!(alone.elapsed, diluted.elapsed);
    assert_eq!(alone.bytes_per_second(), diluted.bytes_per_second());
    assert_eq!(alone.requests_per_second(), diluted.requests_per_second());
    let mean = alone.reads_and_writes().mean();
    assert!(mean > Nanos::from_millis(1) && diluted.total().mean() < Nanos(mean.0 / 50), "{mean:?}");
    assert_eq!((diluted.reads_and_writes().mean(), diluted.reads_and_writes().quantile(0.5)), (mean, mean));
    let over_time = |outcome: &Outcome| outcome.arrivals.as_ref().expect("arrivals").over_time.clone();
    assert_eq!(over_time(&alone), over_time(&diluted));
    let json = diluted.to_json();
    assert_eq!((&json["reads_and_writes"]["mean_ns"], &json["all"]["requests"]), (&mean.0.into(), &102.into()));
    let answer = |outcome: &Outcome| compare(std::slice::from_ref(outcome)).expect("an answer").sentence;
    let mean = crate::trace::time_text(mean);
    assert!(answer(&diluted).contains("serves 102 requests in "), "{}", answer(&diluted));
    assert!(
        answer(&diluted).contains(&format!("; its one read or write takes {mean} on average")),
        "{}",
        answer(&diluted)
    );
    let both = run(&[one, read(100, 0)]);
    let each = format!(", {} each on average", crate::trace::time_text(both.total().mean()));
    assert!(answer(&both).contains(&each), "{}", answer(&both));
    // Without reads and writes, all that there is.
    let flushes = run(&idle.collect::<Vec<_>>());
    assert_eq!(flushes.reads_and_writes().requests, 100);
    assert!(flushes.requests_per_second().is_none_or(|rate| rate > 100.0));
}

/// Aim: a discard drops no block of which it covers only a part. Method: on flash with blocks of 4 KiB, data is written, a part of its
/// first block discarded, and the block read again from the flash; the places of discards of all alignments.
#[test]
fn discards_keep_what_is_beside_them() {
    let stack = Stack::parse("ssd:nvme-a,block=4KiB").expect("a stack");
    let discard = |offset, bytes| Request::new(Nanos(0), Op::Discard, offset, bytes);
    let pages_read = |discarded: Request| {
        let mut requests = vec![Request::new(Nanos(0), Op::Write, 0, 8192), discarded];
        requests.extend((1..65).map(|n| Request::new(Nanos(0), Op::Write, n * MIB, MIB)));
        requests.push(Request::new(Nanos(0), Op::Flush, 0, 0));
        requests.push(Request::new(Nanos(0), Op::Read, 0, 4096));
        let outcome = simulate(&stack, trace(&requests).into_iter(), &spec(Timing::Closed), &|_| {}).expect("one");
        let reads = &outcome.ops[Op::Read.index()];
        ((reads.mean() > Nanos(20_000)), outcome.narrowed)
    };
    assert_eq!(pages_read(discard(512, 512)), (true, 1), "its page holds data, and is read from the flash");
    assert_eq!(pages_read(discard(0, 4096)), (false, 0), "nothing is left of it");

    let geometry = seekless::device::Geometry { block_bytes: 4096, ..Memory::new(MIB).geometry() };
    let place = |request: Request| {
        let mut placer = super::place::Placer::new(Map::Error, None, geometry).expect("a placer");
        let placed = placer.place(&request).expect("it fits");
        (placed.at.0 * 512, placed.bytes)
    };
    assert_eq!(place(discard(512, 512)), (4096, 0));
    assert_eq!(place(discard(512, 8192)), (4096, 4096));
    assert_eq!(place(discard(4096, 8192)), (4096, 8192));
    assert_eq!(place(discard(0, 4095)).1, 0);
    assert_eq!(place(discard(MIB - 512, 512)), (MIB, 0));
    assert_eq!(place(Request::new(Nanos(0), Op::Write, 512, 8192)), (0, 12_288));
}

/// Aim: counters are those of the replay, and opening a stack does not count. Method: one write on storage that formats itself, whose
/// disk is asked only for what the write takes; sizes stay.
#[test]
fn opening_is_not_counted() {
    let stack = Stack::parse("vld / disk:hp97560").expect("a stack");
    let write = [Request::new(Nanos(0), Op::Write, 0, 4096)];
    let outcome = simulate(&stack, trace(&write).into_iter(), &spec(Timing::Closed), &|_| {}).expect("an outcome");
    let (_, disk) = outcome.counters.last().expect("two devices");
    let counted = |name: &str| disk.iter().find(|(known, _)| *known == name).expect("a counter").1;
    assert_eq!(counted("requests"), outcome.drives[0].requests);
    assert_eq!(counted("busy_ns"), outcome.drives[0].busy.0);
    let flash = Stack::parse("ssd:nvme-a").expect("a stack");
    let outcome = simulate(&flash, trace(&write).into_iter(), &spec(Timing::Closed), &|_| {}).expect("an outcome");
    let of = |name: &str| outcome.counters[0].1.iter().find(|(known, _)| *known == name).expect("a counter").1;
    assert!(of("dies") > 0 && of("units") > 0 && of("superblock_units_max") > 0);
}

/// Latencies in a wrong unit end a replay with `think`, in bounded memory.
#[test]
fn think_with_latencies_of_years() {
    let requests: Vec<Request> = (0..20_000).map(|n| took(read(n * 1000, 0), 1 << 60)).collect();
    let (outcome, _) = on_memory(0, &requests, &spec(Timing::Think));
    assert!(failure(outcome).contains("is its unit of latencies right?"));
}

/// A request beyond the storage fails with a hint, wraps, or is scaled; none goes beyond the end.
#[test]
fn mapping() {
    let requests = [read(0, 0), read(0, MIB - 512), read(0, 3 * MIB - 512), read(0, 2 * MIB)];
    let mut summary = Summary::default();
    requests.iter().for_each(|request| summary.add(request));
    let layout = TraceLayout::of(&summary, &Devices::One, &Names::default()).expect("one device");
    let run = |map, layout| on_memory(1, &requests, &Spec { map, layout, ..Spec::default() });
    let places = |log: &[TraceEvent]| log.iter().map(|event| event.at.0).collect::<Vec<_>>();
    let text = failure(run(Map::Error, None).0);
    assert!(text.contains("touches 3 MiB") && text.contains("has 1 MiB") && text.contains("--map wrap"), "{text}");
    let (outcome, log) = run(Map::Wrap, None);
    assert_eq!((places(&log), outcome.expect("an outcome").moved), (vec![0, 2047, 2047, 0], 2));
    assert!(failure(run(Map::Scale, None).0).contains("beforehand"));
    let (_, log) = run(Map::Scale, Some(layout));
    assert_eq!(places(&log), [0, 682, 2047, 1365]);
    // A request that is longer than the storage is cut to it; one at the end is moved back.
    let long = [Request::new(Nanos(0), Op::Write, 512, 5 * MIB), Request::new(Nanos(0), Op::Write, MIB - 512, 1024)];
    let (outcome, log) = on_memory(1, &long, &Spec { map: Map::Wrap, ..Spec::default() });
    assert_eq!(outcome.expect("an outcome").shortened, 1);
    assert_eq!(log.iter().map(|event| (event.at.0, event.sectors)).collect::<Vec<_>>(), [(0, 2048), (2046, 2)]);
}

/// Aim: addresses of a trace lie where zones hold data, not in the gaps behind their capacity. Method: reads at random on a full
/// measured drive, of which a gap would answer at once; the last bytes; and one that crosses a zone's capacity.
#[test]
fn gaps_of_zones_are_passed_over() {
    let stack = Stack::parse("zns:zns-a,fill=sequential").expect("a stack");
    let held = 1077 * MIB;
    let mut rng = seekless::rng::Rng::new(1);
    let mut requests: Vec<Request> = (0..1000)
        .map(|n| Request::new(Nanos(n * 1_000_000), Op::Read, rng.below(904 * held / 4096) * 4096, 4096))
        .collect();
    requests.push(Request::new(Nanos(2_000_000_000), Op::Read, 904 * held - 4096, 4096));
    requests.push(Request::new(Nanos(2_000_000_000), Op::Read, held - 4096, 8192));
    let count = |outcome: &Outcome, name: &str| {
        outcome.counters.iter().flat_map(|(_, all)| all).find(|(known, _)| *known == name).expect("a counter").1
    };
    let outcome = simulate(&stack, trace(&requests).into_iter(), &spec(Timing::Closed), &|_| {}).expect("an outcome");
    // Its size is what its zones hold.
    assert!(outcome.describes.contains("(950.8 GiB)"), "{}", outcome.describes);
    // The last one is asked in two parts.
    assert_eq!(["reads", "buffer_hits", "units_unwritten"].map(|name| count(&outcome, name)), [1003, 0, 0]);
    let beyond = [Request::new(Nanos(0), Op::Read, 904 * held, 4096)];
    let outcome = simulate(&stack, trace(&beyond).into_iter(), &spec(Timing::Closed), &|_| {});
    assert!(failure(outcome).contains("--map wrap"));
}

/// Aim: a request is at its place also where it goes on in the next zone, or in several. Method: the parts of requests of all kinds, on small
/// zones with gaps.
#[test]
fn requests_go_on_in_the_next_zone() {
    let (held, distance) = (12 << 10, 16 << 10);
    let zones =
        Zones { count: 4, zone_sectors: distance / 512, capacity_sectors: held / 512, open_max: 0, active_max: 0 };
    let geometry = Geometry { sectors: 4 * distance / 512, zones: Some(zones), ..Memory::new(MIB).geometry() };
    let mut placer = super::place::Placer::new(Map::Wrap, None, geometry).expect("a placer");
    let mut parts = |op, offset, bytes| {
        let placed = placer.place(&Request::new(Nanos(0), op, offset, bytes)).expect("a place");
        (placed.bytes, placed.parts().map(|(at, bytes)| (at.0 * 512, bytes)).collect::<Vec<_>>())
    };
    for op in [Op::Read, Op::Write, Op::Discard] {
        assert_eq!(parts(op, 0, held), (held, vec![(0, held)]));
        assert_eq!(parts(op, held, 512), (512, vec![(distance, 512)]));
        assert_eq!(parts(op, held - 512, 1536), (1536, vec![(held - 512, 512), (distance, 1024)]));
        let three = vec![(held - 1024, 1024), (distance, held), (2 * distance, 512)];
        assert_eq!(parts(op, held - 1024, held + 1536), (held + 1536, three));
        let last = 4 * held - 512;
        assert_eq!(parts(op, last, 512), (512, vec![(3 * distance + held - 512, 512)]));
        // It would cross the end.
        assert_eq!(parts(op, last, 1024), (1024, vec![(3 * distance + held - 1024, 1024)]));
    }
    assert_eq!(parts(Op::Flush, 0, 0), (0, vec![]));
    assert_eq!(placer.moved, 3);
}

/// Devices overlap, so several are an error, unless they are laid end to end.
#[test]
fn several_devices() {
    let on = |device, offset| Request { device: DeviceId::Number(device), ..read(0, offset) };
    let requests = [on(3, 512), on(9, 0)];
    let mut summary = Summary::default();
    requests.iter().for_each(|request| summary.add(request));
    let names = Names::default();
    let text = TraceLayout::of(&summary, &Devices::One, &names).expect_err("two devices").to_string();
    assert!(text.contains("2 devices (3 9"), "{text}");
    let layout = TraceLayout::of(&summary, &Devices::Concatenate, &names).expect("a layout");
    let stack = Stack::parse("memory:4MiB").expect("a stack");
    let with = Spec { layout: Some(layout), ..Spec::default() };
    let outcome = simulate(&stack, trace(&requests).into_iter(), &with, &|_| {}).expect("an outcome");
    assert_eq!((outcome.total().requests, outcome.moved, outcome.disk_time()), (2, 0, None));
    let without = simulate(&stack, trace(&requests).into_iter(), &Spec::default(), &|_| {});
    assert!(failure(without).contains("had not before"));
}

/// Errors of the trace, of the stack and of requests end the replay with a report.
#[test]
fn failures() {
    let lost = || Err(TraceError::Files("the trace is gone".into()));
    let stack = Stack::parse("memory:4MiB").expect("a stack");
    for timing in [Timing::Window(4), Timing::Open { speed: 1.0 }, Timing::Think] {
        let requests: Requests = vec![Ok(took(read(0, 0), 1)), lost(), Ok(took(read(1, 0), 1))];
        let text = failure(simulate(&stack, requests.into_iter(), &spec(timing), &|_| {}));
        assert_eq!(text, "the trace is gone");
        let broken = Stack::parse("fault:read-errors=100% / memory:4MiB").expect("a stack");
        let requests = trace(&[took(read(0, 0), 1), took(read(1, 0), 1)]);
        let text = failure(simulate(&broken, requests.into_iter(), &spec(timing), &|_| {}));
        assert!(text.contains("request 1 of the trace"), "{text}");
    }
    let file_system = Stack::parse("lfs / memory:64MiB").expect("a stack");
    let text = failure(simulate(&file_system, trace(&[read(0, 0)]).into_iter(), &Spec::default(), &|_| {}));
    assert!(text.contains("is a file system"), "{text}");
    let outside = Stack::parse("file:a.img").expect("a stack");
    assert!(simulate(&outside, trace(&[read(0, 0)]).into_iter(), &Spec::default(), &|_| {}).is_err());
}

/// An open replay on storage that is too slow ends, in bounded memory, and says how far behind the storage is; each
/// response counts from the arrival. Method: all requests within a moment, and storage that is fast enough.
#[test]
fn overload() {
    let count = 200_000_u64;
    let requests = (0..count).map(|n| Ok(read(n, 0)));
    let stack = Stack::parse("disk:dec-rz26").expect("a stack");
    let outcome = simulate(&stack, requests, &spec(Timing::Open { speed: 1.0 }), &|_| {}).expect("an outcome");
    let arrivals = outcome.arrivals.as_ref().expect("arrivals");
    assert!(arrivals.held_back > Nanos::ZERO && arrivals.is_saturated());
    assert_eq!((outcome.total().requests, arrivals.span), (count, Nanos(count - 1)));
    assert_eq!(arrivals.span + arrivals.behind, outcome.elapsed);
    assert!(outcome.outstanding_max <= u64::from(WINDOW_MAX));
    // One after another, all from the same moment: the mean is half of the time, the longest all of it.
    let (mean, elapsed) = (outcome.total().mean().as_secs_f64(), outcome.elapsed.as_secs_f64());
    assert!((mean / elapsed - 0.5).abs() < 0.01, "{mean} of {elapsed}");
    assert!(outcome.total().max().as_secs_f64() > 0.99 * elapsed);
    let text = compare(&[outcome]).expect("an answer").sentence;
    assert!(text.contains("cannot keep up: 200000 requests arrive within 200 us and "), "{text}");

    // A short trace, which the storage answers later, and a few requests in a moment, which it answers soon.
    for (count, is_saturated) in [(300, true), (4, false)] {
        let requests = (0..count).map(|n| Ok(read(n * 50_000, n * 1_000_000)));
        let outcome = simulate(&stack, requests, &spec(Timing::Open { speed: 1.0 }), &|_| {}).expect("an outcome");
        let arrivals = outcome.arrivals.as_ref().expect("arrivals");
        assert!(arrivals.behind < Nanos(60_000_000_000) && arrivals.held_back == Nanos::ZERO, "{arrivals:?}");
        assert_eq!(arrivals.is_saturated(), is_saturated, "{count}: {:?} behind", arrivals.behind);
    }

    let slow = (0..1000u64).map(|n| Ok(read(n * 100_000_000, n * 512)));
    let outcome = simulate(&stack, slow, &spec(Timing::Open { speed: 1.0 }), &|_| {}).expect("an outcome");
    let arrivals = outcome.arrivals.as_ref().expect("arrivals");
    assert!(arrivals.held_back == Nanos::ZERO && !arrivals.is_saturated());
    assert_eq!(arrivals.over_time.intervals.iter().map(|interval| interval.requests).sum::<u64>(), 1000);
}

/// Aim: requests that wait take little memory, however long they are. Method: ever more requests of 64 KiB that arrive in a moment; what
/// each further one adds to the most memory that a replay takes.
#[test]
fn requests_that_wait_take_little_memory() {
    let drive = "disk:nearline-4tb";
    let lines = [
        drive.to_owned(),
        format!("raid0:n=4 / {drive}"),
        format!("raid1:n=2,metadata=off / {drive}"),
        format!("raid5:n=4,metadata=off / {drive}"),
    ];
    // A few kilobytes: tasks and futures, on the array and on each of its members.
    let most = [[2500, 2000], [3300, 3400], [2800, 7100], [3900, 9900]];
    let cases =
        lines.iter().zip(most).flat_map(|(line, [read, write])| [(line, Op::Read, read), (line, Op::Write, write)]);
    for (line, op, most) in cases {
        let stack = Stack::parse(line).expect("a stack");
        let used = |count: u64| {
            let requests =
                (0..count).map(move |n| Ok(Request::new(Nanos(n), op, n * 7_654_321 * 4096 % (800 << 30), 65536)));
            let replay =
                || drop(simulate(&stack, requests, &spec(Timing::Open { speed: 1.0 }), &|_| {}).expect("an outcome"));
            allocation_counter::measure(replay).bytes_max
        };
        let each = (used(3000) - used(1000)) / 2000;
        println!("{line}: {each} bytes for each {op:?} that waits");
        assert!((1..most).contains(&each), "{line}: {each} bytes for each {op:?} that waits");
    }
}

/// Aim: a burst of more requests than a device sees at once is no overload where the storage soon answers it, and is one where
/// that takes a large part of the trace, though its end is quiet. Method: 20,000 requests in one moment and one after 100 s, on
/// flash and on an old disk.
#[test]
fn a_burst_is_no_overload() {
    for (stack, is_saturated) in [("ssd:nvme-a", false), ("disk:dec-rz26", true)] {
        let last = read(100_000_000_000, 0);
        let requests = (0..20_000).map(|n| read(0, n * 4096)).chain([last]).map(Ok);
        let stack = Stack::parse(stack).expect("a stack");
        let outcome = simulate(&stack, requests, &spec(Timing::Open { speed: 1.0 }), &|_| {}).expect("an outcome");
        let arrivals = outcome.arrivals.as_ref().expect("arrivals");
        assert!(arrivals.held_back > Nanos::ZERO, "{stack}: {arrivals:?}");
        assert_eq!(arrivals.is_saturated(), is_saturated, "{stack}: {:?}, {:?}", arrivals.held_back, arrivals.behind);
    }
    // A backlog in the middle of a trace, of which nothing is left at its end.
    let arrivals = |held_back: u64| Arrivals {
        span: Nanos(100_000_000_000),
        behind: Nanos::ZERO,
        held_back: Nanos(held_back),
        over_time: OverTime::default(),
    };
    assert!(!arrivals(4_900_000_000).is_saturated() && arrivals(5_100_000_000).is_saturated());
}

/// Aim: only a backlog that grows through a trace is an overload; a long queue that has settled is none, however late its last
/// answers come. Method: a queue with random arrivals and a constant service (M/D/1) below and above its limit, and one that
/// rises to 6,800 requests within seconds, as that of a drive does that chooses the better among more requests; each for a
/// short and a long trace.
#[test]
fn a_settled_queue_is_no_overload() {
    const SERVICE: f64 = 0.005;
    let mut rng = seekless::rng::Rng::new(7);
    let mut queue = |load: f64, requests: u64| {
        let (mut now, mut waiting, mut over_time) = (0.0_f64, 0.0_f64, OverTime::default());
        for _ in 0..requests {
            let gap = -(1.0 - rng.unit_f64()).ln() * SERVICE / load;
            now += gap;
            waiting = (waiting - gap).max(0.0);
            over_time.arrive(seconds(now), (waiting / SERVICE).ceil() as u64);
            waiting += SERVICE;
        }
        Arrivals { span: seconds(now), behind: seconds(waiting), held_back: Nanos::ZERO, over_time }
    };
    for requests in [20_000, 200_000] {
        for (load, is_saturated) in [(0.5, false), (0.95, false), (0.98, false), (1.1, true), (1.3, true), (3.0, true)]
        {
            let arrivals = queue(load, requests);
            let text = format!("{load}: {:?} behind, {:?}", arrivals.behind, arrivals.growth());
            assert_eq!(arrivals.is_saturated(), is_saturated, "{text}");
        }
    }

    for span in [30.0_f64, 120.0] {
        let mut settled = Arrivals {
            span: seconds(span),
            behind: seconds(7.0),
            held_back: Nanos::ZERO,
            over_time: OverTime::default(),
        };
        let rate = 2000.0;
        for number in 0..(rate * span) as u32 {
            let arrived = f64::from(number) / rate;
            settled.over_time.arrive(seconds(arrived), (6800.0 * (1.0 - (-arrived / 2.0).exp())) as u64);
        }
        assert!(!settled.is_saturated(), "{span}: {:?}", settled.growth());
        // Where nothing arrives in a half, the last answer decides.
        settled.over_time = OverTime::default();
        assert!(settled.growth().is_none() && settled.is_saturated(), "{span}");
    }
}

fn seconds(time: f64) -> Nanos {
    Nanos((time * 1e9) as u64)
}

/// Response times of hours keep their digits, in sum, by rank and over the time of a trace: a backlog has them. Method: ten of
/// two hours, and the longest that there can be.
#[test]
fn hours_keep_their_digits() {
    const HOURS: u64 = 7_200_000_000_000;
    let near = |time: Nanos, digits: f64| (time.0 as f64 / HOURS as f64 - 1.0).abs() < digits;
    let (mut stats, mut over_time, mut summary) = (OpStats::default(), OverTime::default(), Summary::default());
    for number in 0..10 {
        stats.add(512, Nanos(HOURS));
        over_time.add(Nanos(number), Nanos(HOURS));
        summary.add(&took(read(number, 0), HOURS));
    }
    assert!(near(stats.quantile(0.5), 1e-3), "{:?}", stats.quantile(0.5));
    assert!(near(over_time.intervals[0].quantile(0.5), 1e-2), "{:?}", over_time.intervals[0].quantile(0.5));
    let (_, mean, median, _, max) = summary.latencies().expect("latencies");
    assert_eq!((mean, max), (Nanos(HOURS), Nanos(HOURS)));
    assert!(near(median, 1e-3), "{median:?}");
    stats.add(512, Nanos(u64::MAX));
    assert_eq!(stats.quantile(0.5), stats.quantile(0.1));
    assert_eq!(stats.max(), Nanos(u64::MAX));
}

/// The bound on a task that never waits does not end a long replay on a device that answers at once. Method: a trace
/// whose reading makes as many calls of the runtime as tens of millions of requests, which all come in one turn.
#[test]
fn a_long_replay_without_waiting() {
    for count in [1, 3] {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let clock = rt.clone();
        let requests = (0..1_000u64).map(move |n| {
            for _ in 0..60_000 {
                clock.now();
            }
            Ok(read(n, n * 512))
        });
        let device: Device = Rc::new(Memory::new(MIB));
        let spec = spec(Timing::Window(count));
        let outcome = executor.block_on(replay(&rt, device, requests, &spec, &|_| {})).expect("it goes on");
        assert_eq!(outcome.expect("an outcome").total().requests, 1_000);
    }
}

/// The same seed gives the same nanosecond, and models keep no data unless the line says so.
#[test]
fn replays_are_deterministic() {
    let stack = Stack::parse("fork / disk:cheetah9lp").expect("a stack");
    assert_eq!(timing_only(&stack).expect("a stack").to_string(), "fork / disk:cheetah9lp,keep=off");
    let kept = Stack::parse("disk:cheetah9lp,keep=on").expect("a stack");
    assert_eq!(timing_only(&kept).expect("a stack"), kept);
    let stored = Stack::parse("vld / disk:hp97560").expect("a stack");
    assert_eq!(timing_only(&stored).expect("a stack"), stored, "a virtual log disk reads its own map back");
    let run = || {
        let requests = (0..500u64).map(|n| Ok(read(n * 1000, n * 7919 % 100_000 * 4096)));
        let outcome = simulate(&stack, requests, &spec(Timing::Window(8)), &|_| {}).expect("an outcome");
        (outcome.elapsed, outcome.total().mean(), outcome.counters)
    };
    assert_eq!(run(), run());
}

/// What a virtual log disk does between requests takes time by what it holds, not by its size. Method: reads in order, so that
/// there is a reason to look for what could be put in order, with pauses, on a large disk. When each pause took a look at all
/// of the disk, this took minutes.
#[test]
fn a_large_virtual_log_disk_is_no_slower() {
    let stack = Stack::parse("vld / disk:size=1TiB,rpm=7200,seek=8ms,rate=100MB").expect("a stack");
    let pause = 50_000_000;
    let requests: Vec<Request> = (0..600_u64)
        .map(|n| {
            let op = if n < 200 { Op::Write } else { Op::Read };
            Request::new(Nanos(n * pause), op, n % 200 * 4096, 4096)
        })
        .collect();
    let start = cpu_time::ThreadTime::now();
    let outcome = simulate(&stack, trace(&requests).into_iter(), &spec(Timing::Open { speed: 1.0 }), &|_| {});
    let outcome = outcome.expect("an outcome");
    assert_eq!(outcome.total().requests, 600);
    assert!(outcome.disk_busy().is_some_and(|busy| busy <= 1.0), "making the disk is no part of it");
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

/// A trace without times has no arrivals: an open replay is refused, and not made as one burst. One request needs no times.
#[test]
fn an_open_replay_needs_times() {
    let stack = Stack::parse("memory:4MiB").expect("a stack");
    let at_once = |count: u64| (0..count).map(|n| Ok(read(7, n * 4096)));
    let text = failure(simulate(&stack, at_once(3), &spec(Timing::Open { speed: 2.0 }), &|_| {}));
    assert!(text.contains("all 3 have the same time") && text.contains("--timing window:N"), "{text}");
    let open = spec(Timing::Open { speed: 1.0 });
    assert_eq!(simulate(&stack, at_once(1), &open, &|_| {}).expect("an outcome").total().requests, 1);
    let two_moments = at_once(3).chain([Ok(read(8, 0))]);
    assert_eq!(simulate(&stack, two_moments, &open, &|_| {}).expect("an outcome").total().requests, 4);
    assert!(simulate(&stack, at_once(3), &spec(Timing::Window(2)), &|_| {}).is_ok());
}

/// The sentence names the better storage, the factor, and the slow end of the reads.
#[test]
fn the_answer_is_a_sentence() {
    let run = |line: &str, timing| {
        let requests = (0..300u64).map(|n| Ok(read(n * 100_000_000, n * 7919 % 100_000 * 4096)));
        simulate(&Stack::parse(line).expect("a stack"), requests, &spec(timing), &|_| {}).expect("an outcome")
    };
    let both = |timing| [run("disk:dec-rz26", timing), run("disk:cheetah9lp", timing)];
    let compared = compare(&both(Timing::Closed)).expect("a comparison");
    assert_eq!((compared.best, compared.quantity), (1, "time"));
    let sentence = &compared.sentence;
    assert!(
        sentence.starts_with("disk:cheetah9lp has the shortest time, ") && sentence.contains("; disk:dec-rz26 "),
        "{sentence}"
    );
    assert!(sentence.contains(" times as long. The p99 read is ") && sentence.contains(" against "), "{sentence}");
    assert!(compared.ratios[0] > 1.2 && compared.ratios[1] == 1.0);
    let open = compare(&both(Timing::Open { speed: 1.0 })).expect("a comparison");
    assert_eq!((open.best, open.quantity), (1, "mean response time"));
    let alone = compare(&[run("disk:dec-rz26", Timing::Closed)]).expect("a comparison");
    assert!(
        alone.sentence.contains("serves 300 requests in ") && alone.sentence.contains("busy for"),
        "{}",
        alone.sentence
    );
    let same = compare(&[run("disk:dec-rz26", Timing::Closed), run("disk:dec-rz26", Timing::Closed)]);
    assert!(same.expect("a comparison").sentence.contains("equally well"));
    assert!(compare(&[]).is_none());
    assert_eq!(table(&both(Timing::Closed)).len(), 2);
}

/// Bytes that count how many of them were read.
struct Counted {
    bytes: Rc<[u8]>,
    at: usize,
    read: Rc<Cell<usize>>,
}

impl std::io::Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(self.bytes.len() - self.at);
        buffer[..count].copy_from_slice(&self.bytes[self.at..self.at + count]);
        self.at += count;
        self.read.set(self.read.get() + count);
        Ok(count)
    }
}

/// A trace in seekless's own format.
fn written(requests: &[Request]) -> Rc<[u8]> {
    let format = Format::parse("seekless").expect("a format");
    let mut writer = TraceWriter::new(&format, Vec::new()).expect("a writer");
    requests.iter().for_each(|request| writer.write(request, &Names::default()).expect("memory takes everything"));
    writer.finish().expect("memory takes everything").1.into()
}

fn opened(bytes: &Rc<[u8]>, read: &Rc<Cell<usize>>) -> Trace {
    let input = Counted { bytes: bytes.clone(), at: 0, read: read.clone() };
    Trace::from_reader("sample", Box::new(input), &Options::default()).expect("a trace")
}

/// Random requests, of all operations and sizes, whose times go back now and then.
fn mixture(count: u64) -> Vec<Request> {
    let mut rng = seekless::rng::Rng::new(3);
    let request = |n: u64| {
        let op = Op::ALL[rng.below(4) as usize];
        let (offset, bytes) =
            if op == Op::Flush { (0, 0) } else { (rng.below(1 << 20) * 512, (rng.below(64) + 1) * 512) };
        let time = Nanos((n * 2_000_000).saturating_sub(rng.below(5_000_000)));
        Request { latency: Some(Nanos(rng.below(3_000_000))), ..Request::new(time, op, offset, bytes) }
    };
    (0..count).map(request).collect()
}

/// Several stacks get the results that each gets alone, with every timing, in one pass over the trace: each byte of it
/// is read once. Method: more requests than several batches hold.
#[test]
fn one_pass_serves_every_stack() {
    let lines = ["disk:cheetah9lp", "disk:hp97560,scheduler=sptf", "raid1:metadata=off / disk:dec-rz26"];
    let stacks = lines.map(|line| Stack::parse(line).expect("a stack"));
    let bytes = written(&mixture(20_000));
    for timing in [Timing::Window(4), Timing::Closed, Timing::Open { speed: 0.1 }, Timing::Think] {
        let read = Rc::new(Cell::new(0));
        let mut trace = opened(&bytes, &read);
        let told = Cell::new(0);
        let progress = |_: &Trace, count| told.set(count);
        let (summary, outcomes) = simulate_all(&stacks, &mut trace, &spec(timing), &progress).expect("a sound trace");
        assert_eq!((summary.requests(), told.get(), trace.import().requests), (20_000, 20_000, 20_000));
        assert_eq!(read.get(), bytes.len(), "{timing}");
        for (stack, outcome) in stacks.iter().zip(outcomes) {
            let alone = simulate(stack, opened(&bytes, &read).into_iter(), &spec(timing), &|_| {});
            assert_eq!(outcome.expect("an outcome").to_json(), alone.expect("an outcome").to_json(), "{timing}");
        }
    }
}

/// Aim: the listener learns of each answer once, with times that agree with the outcome; another order of answers does not change the
/// numbers; an error of the listener ends the replay. Method: a mixture on two stacks, as recorded and in a window.
#[test]
fn answers_are_reported() {
    type Told = std::sync::Arc<std::sync::Mutex<Vec<Answered>>>;
    let stacks = ["disk:cheetah9lp,scheduler=sptf", "memory:1GiB"].map(|line| Stack::parse(line).expect("a stack"));
    let requests = mixture(3000);
    for timing in [Timing::Window(8), Timing::Open { speed: 0.5 }, Timing::Think] {
        let told: [Told; 2] = Default::default();
        let listener = |told: &Told| -> Listener {
            let told = told.clone();
            Box::new(move |answered| {
                told.lock().expect("no panic").push(*answered);
                Ok(())
            })
        };
        let watch =
            Watch { progress: &|_, _| ControlFlow::Continue(()), listeners: told.iter().map(listener).collect() };
        let mut trace =
            Trace::of_requests("mixture", trace(&requests).into_iter(), &[], &Options::default()).expect("one");
        let (summary, outcomes) = simulate_all_watched(&stacks, &mut trace, &spec(timing), watch).expect("a trace");
        assert_eq!((summary.requests(), trace.import().requests), (3000, 3000));
        for (outcome, told) in outcomes.into_iter().zip(told) {
            let (outcome, mut told) = (outcome.expect("an outcome"), told.lock().expect("no panic"));
            let times: u64 = told.iter().map(|answered| (answered.done - answered.made).0).sum();
            let mean = times as f64 / 3000.0;
            let total = outcome.total().to_json();
            assert!((total["mean_ns"].as_f64().expect("a mean") - mean).abs() < 1.0, "{timing}: {total} {mean}");
            assert_eq!(told.iter().map(|answered| answered.done).max(), Some(outcome.elapsed), "{timing}");
            assert!(told.is_sorted_by_key(|answered| answered.done), "in the order of answers");
            told.sort_by_key(|answered| answered.number);
            let numbers: Vec<u64> = told.iter().map(|answered| answered.number).collect();
            assert_eq!(numbers, (1..=3000).collect::<Vec<_>>(), "P2, {timing}");
            assert!(told.is_sorted_by_key(|answered| answered.request.time), "P1, {timing}");
        }
    }
    let full: Listener = Box::new(|answered| match answered.number {
        7 => Err("no room".to_owned()),
        _ => Ok(()),
    });
    let outcome = simulate_heard(&stacks[0], trace(&requests).into_iter(), &spec(Timing::Closed), &|_| {}, Some(full));
    assert_eq!(failure(outcome), "no room");
}

/// A caller can end a replay, which is no result of a part of the trace.
#[test]
fn a_replay_can_be_ended() {
    let stacks = [Stack::parse("disk:cheetah9lp").expect("a stack")];
    let endless = (0..).map(|n| Ok(read(n, n % 1000 * 512)));
    let mut trace = Trace::of_requests("endless", endless, &[], &Options::default()).expect("a trace");
    let progress = |_: &Trace, count| if count > 20_000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let watch = Watch { progress: &progress, listeners: Vec::new() };
    let ended = simulate_all_watched(&stacks, &mut trace, &Spec::default(), watch);
    assert!(matches!(ended, Err(ReplayError::Interrupted)));
}

/// It can also do so when all of the trace has been read: what waits to be simulated may take long.
#[test]
fn a_replay_can_be_ended_behind_the_last_batch() {
    let stacks = [Stack::parse("disk:cheetah9lp").expect("a stack")];
    let requests: Vec<Request> = (0..20_000).map(|n| read(n, n % 1000 * 512)).collect();
    let mut trace = opened(&written(&requests), &Rc::default());
    let is_read = Cell::new(false);
    let progress = |_: &Trace, count| match is_read.replace(count == 20_000) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let told = Arc::new(AtomicU64::new(0));
    let slow: Listener = Box::new({
        let told = told.clone();
        move |_| {
            told.fetch_add(1, Ordering::Relaxed);
            #[allow(clippy::disallowed_methods)] // The caller is slow in real time.
            std::thread::sleep(std::time::Duration::from_millis(1));
            Ok(())
        }
    });
    let watch = Watch { progress: &progress, listeners: vec![slow] };
    let ended = simulate_all_watched(&stacks, &mut trace, &Spec::default(), watch);
    assert!(matches!(ended, Err(ReplayError::Interrupted)));
    assert!(told.load(Ordering::Relaxed) < 20_000);
}

/// The error of one stack leaves the others their results. An error of the trace is the trace's, and none of a stack.
#[test]
fn errors_have_their_place() {
    let [sound, small, broken] = ["disk:cheetah9lp", "memory:1MiB", "fault:read-errors=100% / memory:1GiB"]
        .map(|line| Stack::parse(line).expect("a stack"));
    let requests: Vec<Request> = (0..30_000).map(|n| read(n * 1000, n * 512)).collect();
    let bytes = written(&requests);
    let none = |_: &Trace, _| {};
    let run = |stacks: &[Stack], bytes: &Rc<[u8]>| {
        simulate_all(stacks, &mut opened(bytes, &Rc::default()), &Spec::default(), &none)
    };
    let (_, mut outcomes) = run(&[small.clone(), sound.clone(), broken.clone()], &bytes).expect("a sound trace");
    let broken_text = failure(outcomes.pop().expect("three outcomes"));
    assert!(broken_text.contains("request 1 of the trace"), "{broken_text}");
    assert_eq!(outcomes.pop().expect("three outcomes").expect("an outcome").total().requests, 30_000);
    let text = failure(outcomes.pop().expect("three outcomes"));
    assert!(text.contains("touches 14.6 MiB"), "of the whole trace, not of the first request behind the end: {text}");
    // What is no file may have no end: when no stack is left, it is not read any further.
    let read_bytes = Rc::new(Cell::new(0));
    let (_, outcomes) =
        simulate_all(&[broken], &mut opened(&written(&mixture(400_000)), &read_bytes), &Spec::default(), &none)
            .expect("a sound trace");
    assert!(outcomes.iter().all(Result::is_err));
    assert!(read_bytes.get() < 8 << 20, "{} bytes read", read_bytes.get());
    // Two devices overlap.
    let second = Request { device: DeviceId::Number(7), ..read(0, 0) };
    let two = written(&[&requests[..], &[second]].concat());
    let text = run(std::slice::from_ref(&sound), &two).err().expect("two devices").to_string();
    assert!(text.contains("2 devices (0 7 ..)"), "{text}");
    // A file that ends in the middle of its compression.
    let whole = zstd::encode_all(&bytes[..], 1).expect("memory takes everything");
    let cut: Rc<[u8]> = whole[..whole.len() / 2].into();
    let error = run(&[sound, small], &cut).err().expect("half a file");
    assert!(matches!(error, ReplayError::Trace(TraceError::CutOff { .. })), "{error}");
}

/// Timings and mappings are written in the syntax in which they are parsed.
#[test]
fn words() {
    for text in ["window:8", "closed", "open", "open:2.5", "think"] {
        assert_eq!(text.parse::<Timing>().expect(text).to_string(), text);
    }
    for text in ["", "window", "window:0", "window:99999999", "open:0", "open:fast", "think:1", "opens"] {
        assert!(text.parse::<Timing>().is_err(), "{text}");
    }
    for text in ["error", "wrap", "scale"] {
        assert_eq!(text.parse::<Map>().expect(text).to_string(), text);
    }
    assert!("fold".parse::<Map>().is_err());
}

/// Each drive of an array counts for itself: requests go to the first of two stripes three times as often as to the second.
#[test]
fn the_load_of_each_drive() {
    let stack = Stack::parse("raid0:n=2,stripe=64KiB / disk:hp97560").expect("a stack");
    let requests = (0..400_u64).map(|n| {
        let row = n * 7919 % 1000 * 2;
        let unit = row + u64::from(n % 4 == 3);
        Request::new(Nanos(0), Op::Read, unit * 65_536, 4096)
    });
    let requests = trace(&requests.collect::<Vec<_>>());
    let outcome = simulate(&stack, requests.into_iter(), &spec(Timing::Window(8)), &|_| {}).expect("an outcome");
    let counts: Vec<u64> = outcome.drives.iter().map(|drive| drive.requests).collect();
    assert_eq!(counts, [300, 100]);
    let shares: Vec<f64> = outcome.drives.iter().filter_map(|drive| drive.busy_share(outcome.elapsed)).collect();
    assert!(shares[0] > 0.95 && (0.2..0.6).contains(&shares[1]), "{shares:?}");
    assert!((outcome.disk_busy().expect("disks") - (shares[0] + shares[1]) / 2.0).abs() < 1e-9);
    // Eight are under way: one is served by the first drive, and most of the others wait for it.
    let queues: Vec<f64> = outcome.drives.iter().filter_map(|drive| drive.queue_mean(outcome.elapsed)).collect();
    assert!(queues[0] > 3.0 && queues[1] < 2.0 && queues.iter().sum::<f64>() < 7.0, "{queues:?}");
    let text = describe_loads(&outcome.drives, outcome.elapsed).expect("a line");
    assert!(text.starts_with("2 drives, ") && text.contains("requests waiting on average: "), "{text}");
    assert_eq!(text.chars().filter(|c| ('▁'..='█').contains(c)).count(), 2, "{text}");
    let json = outcome.to_json();
    assert_eq!((&json["drives"][0]["requests"], &json["disks"]), (&300.into(), &2.into()));
    assert_eq!(describe_loads(&[], outcome.elapsed), None);
}
