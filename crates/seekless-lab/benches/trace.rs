//! Speed of the trace readers and of replay, per second of processor time: `cargo bench -p seekless-lab --bench trace`;
//! with `-- shared`, what one pass over a trace saves where there are several stacks; with `-- memory`, the most memory that a replay takes
//! as traces become longer.
//!
//! Traces are made in memory beforehand. blktrace's have five records a request, as the kernel writes them: queue,
//! allocation, insertion, issue and completion.

use std::hint::black_box;
use std::io::{Cursor, Read};
use std::sync::Arc;

use cpu_time::ProcessTime;
use seekless::rng::Rng;
use seekless::stack::Stack;
use seekless::units::Nanos;
use seekless_lab::replay::{Map, Spec, Timing, simulate, simulate_all};
use seekless_lab::trace::{DeviceId, Format, Names, Op, Options, Request, Summary, Trace, TraceWriter};

const REQUESTS: u64 = 1_000_000;

/// Shared bytes as an input.
struct Bytes(Cursor<Arc<[u8]>>);

impl Read for Bytes {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let at = self.0.position() as usize;
        let bytes = self.0.get_ref();
        let count = buffer.len().min(bytes.len() - at.min(bytes.len()));
        buffer[..count].copy_from_slice(&bytes[at..at + count]);
        self.0.set_position((at + count) as u64);
        Ok(count)
    }
}

fn requests(count: u64) -> Vec<Request> {
    let mut rng = Rng::new(1);
    let mut time = 1_172_163_600_306_162_900;
    (0..count)
        .map(|_| {
            time += rng.below(200_000);
            let op = if rng.chance(1, 3) { Op::Write } else { Op::Read };
            Request {
                device: DeviceId::Block(8 << 20),
                latency: Some(Nanos(rng.between(50_000, 10_000_000))),
                process: Some(rng.below(30_000) as u32),
                cpu: Some(rng.below(64) as u32),
                ..Request::new(Nanos(time), op, rng.below(1 << 30) * 4096, rng.between(1, 32) * 4096)
            }
        })
        .collect()
}

fn written(format: &Format, requests: &[Request]) -> Arc<[u8]> {
    let mut writer = TraceWriter::new(format, Vec::new()).expect("a format with a writer");
    for request in requests {
        writer.write(request, &Names::default()).expect("memory takes everything");
    }
    writer.finish().expect("memory takes everything").1.into()
}

fn format(name: &str) -> Format {
    Format::parse(name).expect("a format of the table")
}

/// As a kernel writes it: to each issue a queue event, an allocation and an insertion.
fn kernel_blktrace(requests: &[Request]) -> Arc<[u8]> {
    let plain = written(&format("blktrace"), requests);
    let mut all = Vec::with_capacity(plain.len() * 5 / 2);
    for record in plain.chunks_exact(48) {
        if record[28] == 7 {
            for action in [1, 4, 12] {
                let start = all.len();
                all.extend_from_slice(record);
                all[start + 28] = action;
            }
        }
        all.extend_from_slice(record);
    }
    all.into()
}

fn read(what: &str, unit: &str, bytes: &Arc<[u8]>, options: &Options) {
    // The best of three, because other load disturbs the measurement.
    let mut best = f64::INFINITY;
    let mut units = 0;
    for _ in 0..3 {
        let start = ProcessTime::now();
        let input = Box::new(Bytes(Cursor::new(bytes.clone())));
        let mut trace = Trace::from_reader("bench", input, options).expect("a trace");
        let mut out = Vec::new();
        while trace.next_batch(&mut out).expect("a sound trace") {
            black_box(&out);
            out.clear();
        }
        best = best.min(start.elapsed().as_secs_f64());
        units = trace.import().units;
    }
    let (rate, mbytes) = (units as f64 / best / 1e6, bytes.len() as f64 / best / 1e6);
    println!("{what:<46} {rate:>7.1} million {unit}/s  {mbytes:>6.0} MB/s  {:>5.1} ns each", best / units as f64 * 1e9);
}

fn replayed(what: &str, line: &str, timing: Timing, count: u64) {
    let stack = Stack::parse(line).expect("a stack");
    let mut rng = Rng::new(2);
    let requests: Vec<_> = (0..count)
        .map(|n| Ok(Request::new(Nanos(n * 20_000_000), Op::Read, rng.below(1_000_000) * 4096, 4096)))
        .collect();
    let start = ProcessTime::now();
    let outcome = simulate(&stack, requests.into_iter(), &Spec { timing, ..Spec::default() }, &|_| {});
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(outcome.expect("an outcome").total().requests, count);
    println!(
        "{what:<46} {:>7.2} million requests/s  {:>16.0} ns each",
        count as f64 / seconds / 1e6,
        seconds / count as f64 * 1e9
    );
}

/// A trace on three disks: in one pass, and with one to count it and another for each disk.
fn shared(bytes: &Arc<[u8]>, options: &Options) {
    let stacks =
        ["disk:cheetah9lp", "disk:hp97560", "disk:nearline-4tb"].map(|line| Stack::parse(line).expect("a stack"));
    let spec = Spec { map: Map::Wrap, ..Spec::default() };
    let open = || Trace::from_reader("bench", Box::new(Bytes(Cursor::new(bytes.clone()))), options).expect("a trace");
    let start = ProcessTime::now();
    let (summary, outcomes) = simulate_all(&stacks, &mut open(), &spec, &|_, _| {}).expect("a sound trace");
    let once = start.elapsed().as_secs_f64();
    let start = ProcessTime::now();
    let mut counted = Summary::default();
    open().into_iter().for_each(|request| counted.add(&request.expect("a sound trace")));
    let alone = stacks.iter().map(|stack| simulate(stack, open().into_iter(), &spec, &|_| {}).expect("an outcome"));
    let alone: Vec<_> = alone.collect();
    let passes = start.elapsed().as_secs_f64();
    assert_eq!(summary.requests(), counted.requests());
    for (one, other) in outcomes.into_iter().zip(alone) {
        assert_eq!(one.expect("an outcome").to_json(), other.to_json());
    }
    println!("{} requests on three disks: {once:.2} s in one pass, {passes:.2} s in four", counted.requests());
}

/// A trace in the format of MSR that is made while it is read, so that it takes no memory of its own.
struct Endless {
    left: u64,
    rng: Rng,
    line: Cursor<Vec<u8>>,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.line.position() as usize == self.line.get_ref().len() && self.left > 0 {
            self.left -= 1;
            // A request in 20 ms, which a disk answers before the next one.
            let time = 128_166_372_003_061_629 + (REQUESTS * 1000 - self.left) * 200_000;
            let line = format!("{time},host,0,Read,{},4096,0\n", self.rng.below(1 << 24) * 4096);
            self.line = Cursor::new(line.into_bytes());
        }
        self.line.read(buffer)
    }
}

/// The most memory that this process has had, in MiB: `VmHWM` of proc(5).
fn memory_max() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line of proc(5)");
    line.trim().trim_end_matches(" kB").parse::<f64>().expect("a number") / 1024.0
}

/// Replays ever longer traces; the memory should stay as it is.
fn memory() {
    let stack = Stack::parse("disk:cheetah9lp").expect("a stack");
    let options = Options { format: Some(format("msr")), ..Options::default() };
    let spec = Spec { timing: Timing::Open { speed: 1.0 }, map: Map::Wrap, ..Spec::default() };
    for count in [REQUESTS / 10, REQUESTS, 10 * REQUESTS] {
        let lines = Endless { left: count, rng: Rng::new(3), line: Cursor::default() };
        let trace = Trace::from_reader("bench", Box::new(lines), &options).expect("a trace");
        let outcome = simulate(&stack, trace.into_iter(), &spec, &|_| {}).expect("an outcome");
        assert_eq!(outcome.total().requests, count);
        println!("replay of {count:>9} requests on disk:cheetah9lp, open: {:>6.1} MiB at most", memory_max());
    }
}

/// libCacheSim's records, and HP's with their header.
fn cache_records(requests: &[Request]) -> Arc<[u8]> {
    let record = |request: &Request| {
        let mut record = Vec::with_capacity(24);
        record.extend_from_slice(&((request.time.0 / 1_000_000_000) as u32).to_le_bytes());
        record.extend_from_slice(&(request.offset / 512).to_le_bytes());
        record.extend_from_slice(&(request.bytes as u32).to_le_bytes());
        record.extend_from_slice(&(-1_i64).to_le_bytes());
        record
    };
    requests.iter().flat_map(record).collect()
}

fn srt_records(requests: &[Request]) -> Arc<[u8]> {
    let start = requests[0].time.0;
    let record = |request: &Request| {
        let micros = (request.time.0 - start) / 1000;
        let (seconds, micros) = ((micros / 1_000_000) as u32, (micros % 1_000_000) as u32);
        let place = (request.offset / 1024) as u32;
        let is_read = u32::from(request.op == Op::Read);
        let fields = [52, 0x1_0001, seconds, micros, 0, 5000, request.bytes as u32, place, 0, 0, 0, is_read, 0];
        fields.into_iter().flat_map(u32::to_be_bytes)
    };
    b"tracedate = now\n\x0c".iter().copied().chain(requests.iter().flat_map(record)).collect()
}

fn main() {
    if std::env::args().any(|argument| argument == "memory") {
        return memory();
    }
    if std::env::args().any(|argument| argument == "shared") {
        let requests = requests(3 * REQUESTS);
        for name in ["msr", "seekless"] {
            let format = format(name);
            let bytes = written(&format, &requests);
            shared(&bytes, &Options { format: Some(format.clone()), ..Options::default() });
            let zstd: Arc<[u8]> = zstd::encode_all(&bytes[..], 3).expect("memory takes everything").into();
            shared(&zstd, &Options { format: Some(format), ..Options::default() });
        }
        return;
    }
    let requests = requests(REQUESTS);
    let told = |format: &Format| Options { format: Some(format.clone()), ..Options::default() };
    let blktrace = kernel_blktrace(&requests);
    read("blktrace, issues", "records", &blktrace, &told(&format("blktrace")));
    read(
        "blktrace, issues with latencies",
        "records",
        &blktrace,
        &Options { latency: true, ..told(&format("blktrace")) },
    );
    read(
        "blktrace, issues and nothing else",
        "records",
        &written(&format("blktrace"), &requests),
        &told(&format("blktrace")),
    );
    for name in ["msr", "alibaba", "spc", "systor17", "tencent", "seekless", "disksim", "iolog3", "blkparse", "tracefs"]
    {
        let format = format(name);
        read(name, "lines", &written(&format, &requests), &told(&format));
    }
    for name in ["iolog2", "mqsim", "cloudphysics"] {
        let format = format(name);
        read(name, "lines", &written(&format, &requests), &told(&format));
    }
    for name in ["vscsi1", "vscsi2"] {
        let format = format(name);
        read(name, "records", &written(&format, &requests), &told(&format));
    }
    read("oracleGeneral", "records", &cache_records(&requests), &told(&format("oracleGeneral")));
    read("srt", "records", &srt_records(&requests), &told(&format("srt")));
    let msr = written(&format("msr"), &requests);
    let columns =
        Format::parse("csv:time=1:100ns,device=2,op=4,offset=5:B,length=6:B,latency=7:100ns").expect("columns");
    read("msr, as columns of one's own", "lines", &msr, &told(&columns));
    let pattern = r"regex:^(?<time_100ns>\d+),(?<device>\w+),[\d:]+,(?<op>\w+),(?<offset_B>\d+),(?<length_B>\d+),";
    let pattern = Format::parse(pattern).expect("a pattern");
    read("msr, by a regular expression", "lines", &written(&format("msr"), &requests[..100_000]), &told(&pattern));
    let zstd: Arc<[u8]> = zstd::encode_all(&msr[..], 3).expect("memory takes everything").into();
    read("msr, compressed with zstd (bytes compressed)", "lines", &zstd, &told(&format("msr")));
    replayed("replay on disk:cheetah9lp, window:1", "disk:cheetah9lp", Timing::Window(1), 500_000);
    replayed("replay on disk:cheetah9lp, window:16", "disk:cheetah9lp", Timing::Window(16), 300_000);
    replayed("replay on disk:cheetah9lp, open", "disk:cheetah9lp", Timing::Open { speed: 1.0 }, 500_000);
}
