//! Text of the kernel's trace events: `/sys/kernel/tracing/trace` and `trace_pipe`, `trace-cmd report`, `perf script`.
//!
//! ```text
//!   jbd2/loop0-8-13080   [001] .....  1061.894225: block_rq_issue: 7,0 RM 1024 () 15944 + 2 be,0,4 [fio]
//! ```
//! A line begins with the process (its name may hold dashes and blanks), the processor in brackets, flags and the time.
//! Kernels since 2024 print an I/O priority before the process at the end; older ones do not.

use std::io::Write;

use memchr::memmem::Finder;

use super::kernel::{Rwbs, Wanted, device, extent, push};
use super::line_writer::{Dropped, EventForm, EventWriter, sectors};
use super::request::{Event, Op, Request};
use super::spec::FormatSpec;
use super::tally::Aside;
use super::text::{LineParser, MICROSECOND, SECOND, Words, number, time};

pub(super) const TRACEFS: FormatSpec = FormatSpec {
    about: "text of the kernel's trace events, of trace-cmd and perf",
    shape: "process-pid [cpu] flags s.us: block_rq_issue: maj,min rwbs ..",
    writes: Some(|| Box::<EventWriter<TracefsForm>>::default()),
    has_events: true,
    counts_sectors: true,
    time_unit: MICROSECOND,
    ..FormatSpec::lines("tracefs", |options| Box::new(Tracefs::new(options.wanted)))
};

struct Tracefs {
    wanted: Wanted,
    events: Finder<'static>,
    /// There were requests which the kernel does not call writes, and which change data nevertheless.
    wrote_otherwise: bool,
}

impl Tracefs {
    fn new(wanted: Wanted) -> Tracefs {
        Tracefs { wanted, events: Finder::new(": block"), wrote_otherwise: false }
    }
}

impl LineParser for Tracefs {
    fn parse(&mut self, line: &[u8], out: &mut Vec<Request>) -> Result<(), Aside> {
        let Some(colon) = self.events.find(line) else {
            return Err(match line {
                [b'C', b'P', b'U', b':', ..] => Aside::Skipped("events were lost"),
                _ if memchr::memmem::find(line, b"LOST").is_some() => Aside::Skipped("events were lost"),
                _ => Aside::Rejected("the line has no event of the block layer"),
            });
        };
        let (head, tail) = (&line[..colon], &line[colon + 2..]);
        let tail = tail.strip_prefix(b"block:").unwrap_or(tail);
        let end = tail.iter().position(|&byte| byte == b':').ok_or(Aside::Rejected("the event has no fields"))?;
        let (name, fields) = (&tail[..end], &tail[end + 1..]);
        let (event, of_request) = match name {
            b"block_rq_issue" => (Event::Issue, true),
            b"block_rq_complete" => (Event::Complete, true),
            b"block_rq_requeue" => (Event::Requeue, true),
            b"block_bio_queue" => (Event::Queue, false),
            b"block_bio_complete" => return Err(Aside::Skipped("completion of a bio")),
            b"block_rq_insert" => return Err(Aside::Skipped("insert")),
            b"block_bio_remap" | b"block_rq_remap" => return Err(Aside::Skipped("remap")),
            b"block_io_start" | b"block_io_done" => return Err(Aside::Skipped("start or end of accounting")),
            _ => return Err(Aside::Skipped("another event")),
        };
        self.wanted.check(event)?;
        let mut head_words = head.rsplit(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
        let stamp = head_words.next().ok_or(Aside::Rejected("the line has no time"))?;
        let time = time(stamp, SECOND).ok_or(Aside::Rejected("the time is not a number"))?;
        let (process, cpu) = process_and_cpu(head);

        let mut words = Words::new(fields);
        let device = device(words.word()?).ok_or(Aside::Rejected("the device is not major,minor"))?;
        let letters = words.word()?;
        let mut rwbs = Rwbs::parse(letters)?;
        // Of a request: `bytes (command) sector + count`, where a completion has no bytes; of a bio `sector + count`.
        let mut rest = words.rest();
        if of_request {
            let end = rest.iter().position(|&byte| byte == b')').ok_or(Aside::Rejected("the command is missing"))?;
            rest = &rest[end + 1..];
        }
        let mut words = Words::new(rest);
        let (sector, plus, count) = (words.word()?, words.word()?, words.word()?);
        if plus != b"+" {
            return Err(Aside::Rejected("the place is not `sector + count`"));
        }
        let (offset, bytes) = extent(sector, count)?;
        // Pass-through commands, N as well, have no sectors: only writing zeroes and appending to a zone are left.
        let is_n = rwbs.op.is_none() && bytes > 0;
        if is_n {
            rwbs.op = Some(Op::Write);
        }
        self.wrote_otherwise |= is_n || letters.contains(&b'Z');
        push(Request { device, event, process, cpu, ..Request::new(time, Op::Read, 0, 0) }, rwbs, offset, bytes, out)
    }

    fn note(&self) -> Option<&'static str> {
        self.wrote_otherwise.then_some(WROTE_OTHERWISE)
    }
}

/// What the kernel calls N up to Linux 6.18, and WZ and ZA since.
const WROTE_OTHERWISE: &str =
    "write zeroes and zone appends (N, WZ, ZA) count as writes; an append begins where its zone does";

/// `comm-PID [cpu] ...`, or `comm PID [cpu] ...` as from perf. The name may hold brackets, too: the last ones count.
fn process_and_cpu(head: &[u8]) -> (Option<u32>, Option<u32>) {
    let narrow = |text: &[u8]| number(text).and_then(|number| u32::try_from(number).ok());
    let Some(open) = head.iter().rposition(|&byte| byte == b'[') else { return (None, None) };
    let cpu = head[open + 1..].split(|&byte| byte == b']').next().and_then(narrow);
    // `trace` shows a thread group in round brackets where that option is on.
    let mut before = head[..open].trim_ascii_end();
    if before.last() == Some(&b')')
        && let Some(group) = before.iter().rposition(|&byte| byte == b'(')
    {
        before = before[..group].trim_ascii_end();
    }
    let last = before.rsplit(|byte| matches!(byte, b'-' | b' ' | b'\t')).next();
    (last.and_then(narrow), cpu)
}

/// Writes events as Linux 6.11 and later print them. Times are cut to microseconds.
#[derive(Default)]
struct TracefsForm;

impl EventForm for TracefsForm {
    const HEADER: &'static [u8] = b"# tracer: nop\n#\n";

    fn event(&mut self, request: &Request, event: Event, device: u32, out: &mut Vec<u8>) -> Result<(), Dropped> {
        let (sector, count) = sectors(request)?;
        let (process, cpu) = (request.process.unwrap_or(0), request.cpu.unwrap_or(0));
        let (seconds, micros) = (request.time.0 / SECOND, request.time.0 % SECOND / 1000);
        let (major, minor, rwbs, bytes) = (device >> 20, device & 0xf_ffff, Rwbs::letters(request), request.bytes);
        write!(out, "{:>16}-{process:<7} [{cpu:03}] ..... {seconds:5}.{micros:06}: ", "<...>")?;
        match event {
            Event::Queue => writeln!(out, "block_bio_queue: {major},{minor} {rwbs} {sector} + {count} [<...>]")?,
            Event::Issue => {
                writeln!(out, "block_rq_issue: {major},{minor} {rwbs} {bytes} () {sector} + {count} none,0,0 [<...>]")?
            }
            Event::Complete | Event::Requeue => {
                let name = if event == Event::Complete { "complete" } else { "requeue" };
                writeln!(out, "block_rq_{name}: {major},{minor} {rwbs} () {sector} + {count} none,0,0 [0]")?;
            }
        }
        Ok(())
    }
}
