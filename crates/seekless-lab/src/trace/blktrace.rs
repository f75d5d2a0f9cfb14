//! blktrace's binary records: one file for each processor, versions 7 and 8.
//!
//! A record is a header in the byte order of the traced machine, followed by `pdu_len` bytes.
//!
//! | version 7, 48 bytes | version 8, 64 bytes | field |
//! |---|---|---|
//! | 0 | 0 | magic: 0x65617400 and the version in the lowest byte, u32 |
//! | 4 | 4 | sequence on this processor, u32 |
//! | 8 | 8 | time in nanoseconds, u64 |
//! | 16 | 16 | sector of 512 bytes, u64 |
//! | 24 | 24 | length in bytes, u32 |
//! | 28 | 32 | action: what happened in the lower 16 bits, to what kind of request above them, u32 and u64 |
//! | 32 | 28 | process, u32 |
//! | 36 | 40 | device: major << 20, minor, u32 |
//! | 40 | 44 | processor, u32 |
//! | 44 | 48 | error, u16 |
//! | 46 | 50 | length of what follows, u16 |
//!
//! Version 8 (`struct blk_io_trace2`, Linux 6.19) follows the kernel's header and has not been tested with a file
//! written by a kernel.

use memchr::memmem;
use seekless::units::{Nanos, SECTOR_BYTES};

use super::TraceError;
use super::input::Input;
use super::kernel::{REQUEUE, Rwbs, Wanted, push};
use super::line_writer::{Dropped, EventForm, EventWriter};
use super::request::{DeviceId, Event, Flags, Op, Request};
use super::spec::FormatSpec;
use super::tally::{Aside, Tallies, Tally};
use super::text::{BATCH, Reader, plausible, times};

const MAGIC: u32 = 0x6561_7400;
const VERSION_7: u32 = 7;
const VERSION_8: u32 = 8;
const HEADER_7: usize = 48;
const HEADER_8: usize = 64;

/// The action's number. Bit 8 says that a control group's number follows the header.
const ACTION_MASK: u32 = 0xff;
const QUEUE: u32 = 1;
const GIVE_BACK: u32 = 6;
const ISSUE: u32 = 7;
const COMPLETE: u32 = 8;

/// Kinds of request, as bits of the action shifted by 16.
mod kind {
    pub(super) const READ: u32 = 1 << 16;
    pub(super) const WRITE: u32 = 1 << 17;
    pub(super) const FLUSH: u32 = 1 << 18;
    pub(super) const SYNC: u32 = 1 << 19;
    pub(super) const QUEUE: u32 = 1 << 20;
    pub(super) const REQUEUE: u32 = 1 << 21;
    pub(super) const ISSUE: u32 = 1 << 22;
    pub(super) const COMPLETE: u32 = 1 << 23;
    pub(super) const FS: u32 = 1 << 24;
    pub(super) const PC: u32 = 1 << 25;
    pub(super) const NOTIFY: u32 = 1 << 26;
    pub(super) const AHEAD: u32 = 1 << 27;
    pub(super) const META: u32 = 1 << 28;
    pub(super) const DISCARD: u32 = 1 << 29;
    pub(super) const DRIVER: u32 = 1 << 30;
    pub(super) const FUA: u32 = 1 << 31;
}

/// Names of the actions that are not requests, for the tally.
const ACTIONS: [&str; 18] = [
    "unknown action",
    "queue event",
    "back merge",
    "front merge",
    "request allocated",
    "wait for a request",
    REQUEUE,
    "issue event",
    "completion",
    "plug",
    "unplug",
    "unplug by timer",
    "insert",
    "split",
    "bounce",
    "remap",
    "abort",
    "data of the driver",
];

const OTHER_VERSION: &str = "a version of the format that is neither 7 nor 8";
const NO_RECORD: &str = "bytes that are no record";

pub(super) const BLKTRACE: FormatSpec = FormatSpec {
    about: "blktrace's binary records, one file per processor or merged",
    shape: "version 7; version 8 untested on a real file",
    writes: Some(|| Box::<EventWriter<BlktraceForm>>::default()),
    has_events: true,
    ..FormatSpec::records(
        "blktrace",
        |sample| has_magic(sample).then(|| "it begins with blktrace's magic number 0x65617400".to_owned()),
        |input, wanted| Box::new(Blktrace::new(input, wanted)),
    )
};

/// True when `bytes` begin with a record's magic, in either byte order, of any version.
fn has_magic(bytes: &[u8]) -> bool {
    let Some(first) = bytes.first_chunk::<4>() else { return false };
    [u32::from_le_bytes(*first), u32::from_be_bytes(*first)].iter().any(|magic| magic & !0xff == MAGIC)
}

struct Blktrace {
    input: Input,
    wanted: Wanted,
    /// Records that are not requests, by action; the last two are notes and pass-through commands.
    actions: [u64; ACTIONS.len()],
    notes: u64,
    passed_through: u64,
    records: u64,
    tallies: Tallies,
}

impl Blktrace {
    fn new(input: Input, wanted: Wanted) -> Blktrace {
        Blktrace {
            input,
            wanted,
            actions: [0; ACTIONS.len()],
            notes: 0,
            passed_through: 0,
            records: 0,
            tallies: Tallies::default(),
        }
    }

    /// Reads whole records from the window. Returns the bytes used, and whether the next bytes are not a record.
    fn records<const SWAPPED: bool, const V8: bool>(&mut self, out: &mut Vec<Request>, full: usize) -> (usize, bool) {
        let header = if V8 { HEADER_8 } else { HEADER_7 };
        let magic = MAGIC | if V8 { VERSION_8 } else { VERSION_7 };
        let window = self.input.window();
        let mut at = 0;
        while out.len() < full {
            let Some(record) = window.get(at..at + header) else { break };
            let record = Record::<SWAPPED>(record);
            if record.u32(0) != magic {
                return (at, true);
            }
            let length = header + usize::from(record.u16(if V8 { 50 } else { 46 }));
            if window.len() - at < length {
                break;
            }
            self.records += 1;
            // The upper half of version 8's action holds kinds of zone requests only.
            let action = record.u32(if V8 { if SWAPPED { 36 } else { 32 } } else { 28 });
            let event = match action & ACTION_MASK {
                ISSUE if self.wanted.issue => Some(Event::Issue),
                COMPLETE if self.wanted.complete => Some(Event::Complete),
                QUEUE if self.wanted.queue => Some(Event::Queue),
                GIVE_BACK if self.wanted.requeue => Some(Event::Requeue),
                _ => None,
            };
            let odd = action & (kind::NOTIFY | kind::PC | kind::DRIVER) != 0;
            match event {
                Some(event) if !odd => {
                    let request = Request {
                        time: Nanos(record.u64(8)),
                        device: DeviceId::Block(record.u32(if V8 { 40 } else { 36 })),
                        event,
                        process: Some(record.u32(if V8 { 28 } else { 32 })),
                        cpu: Some(record.u32(if V8 { 44 } else { 40 })),
                        ..Request::new(Nanos::ZERO, Op::Read, 0, 0)
                    };
                    let (sector, bytes) = (record.u64(16), record.u32(24));
                    if let Err(aside) = push_record(request, action, sector, bytes, out) {
                        self.tallies.add(aside, self.input.position() + at as u64, b"");
                    }
                }
                _ if action & kind::NOTIFY != 0 => self.notes += 1,
                _ if action & kind::PC != 0 => self.passed_through += 1,
                _ => {
                    let index = (action & ACTION_MASK) as usize;
                    self.actions[if index < ACTIONS.len() { index } else { 0 }] += 1;
                }
            }
            at += length;
        }
        (at, false)
    }

    /// Skips bytes that are not a record, up to the next magic. At least one byte is skipped.
    fn pass_over(&mut self) -> Result<(), TraceError> {
        let window = self.input.window();
        let reason = if has_magic(window) { OTHER_VERSION } else { NO_RECORD };
        self.tallies.add(Aside::Rejected(reason), self.input.position(), b"");
        loop {
            let window = self.input.window();
            let next = |version: u32| {
                let magic = MAGIC | version;
                let find = |bytes: [u8; 4]| memmem::find(&window[1..], &bytes).map(|at| at + 1);
                [find(magic.to_le_bytes()), find(magic.to_be_bytes())].into_iter().flatten().min()
            };
            if let Some(at) = [next(VERSION_7), next(VERSION_8)].into_iter().flatten().min() {
                self.input.consume(at);
                return Ok(());
            }
            // A magic may begin in the last three bytes.
            let passed = window.len().saturating_sub(3).max(1);
            self.input.consume(passed);
            if self.input.window().len() < 4 && !self.input.extend()? {
                let rest = self.input.window().len();
                self.input.consume(rest);
                return Ok(());
            }
        }
    }
}

impl Reader for Blktrace {
    fn fill(&mut self, out: &mut Vec<Request>) -> Result<bool, TraceError> {
        let full = out.len() + BATCH;
        loop {
            let window = self.input.window();
            if window.len() >= HEADER_7 {
                let first = [window[0], window[1], window[2], window[3]];
                let (little, big) = (u32::from_le_bytes(first), u32::from_be_bytes(first));
                let (used, lost) = match (little, big) {
                    _ if little == MAGIC | VERSION_7 => self.records::<false, false>(out, full),
                    _ if little == MAGIC | VERSION_8 => self.records::<false, true>(out, full),
                    _ if big == MAGIC | VERSION_7 => self.records::<true, false>(out, full),
                    _ if big == MAGIC | VERSION_8 => self.records::<true, true>(out, full),
                    _ => {
                        self.pass_over()?;
                        continue;
                    }
                };
                self.input.consume(used);
                if out.len() >= full {
                    return Ok(true);
                }
                if lost {
                    // Another version or byte order may begin here, as in joined files.
                    continue;
                }
            }
            if !self.input.extend()? {
                let rest = self.input.window().len();
                if rest > 0 {
                    self.tallies.add(Aside::Rejected("a record cut off at the end"), self.input.position(), b"");
                    self.input.consume(rest);
                }
                return Ok(false);
            }
        }
    }

    fn tallies(&self) -> Tallies {
        let mut tallies = self.tallies.clone();
        tallies.units = self.records;
        let named = ACTIONS.iter().copied().zip(self.actions);
        for (reason, count) in
            named.chain([("note of the tracer", self.notes), ("pass-through command", self.passed_through)])
        {
            if count > 0 {
                match tallies.skipped.iter_mut().find(|tally| tally.reason == reason) {
                    Some(tally) => tally.count += count,
                    None => tallies.skipped.push(Tally { reason, count, first_at: 0, example: String::new() }),
                }
            }
        }
        tallies
    }
}

/// Field access, in one of two byte orders. Offsets are constants inside the header, so that the checks vanish.
struct Record<'a, const SWAPPED: bool>(&'a [u8]);

impl<const SWAPPED: bool> Record<'_, SWAPPED> {
    /// `SWAPPED` means the big-endian order: files are little-endian on nearly every machine.
    #[inline(always)]
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.0[at..at + N]);
        bytes
    }

    #[inline(always)]
    fn u16(&self, at: usize) -> u16 {
        let bytes = self.bytes(at);
        if SWAPPED { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    }

    #[inline(always)]
    fn u32(&self, at: usize) -> u32 {
        let bytes = self.bytes(at);
        if SWAPPED { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    #[inline(always)]
    fn u64(&self, at: usize) -> u64 {
        let bytes = self.bytes(at);
        if SWAPPED { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) }
    }
}

#[inline]
fn push_record(base: Request, action: u32, sector: u64, bytes: u32, out: &mut Vec<Request>) -> Result<(), Aside> {
    let mut flags = Flags::NONE;
    for (bit, flag) in
        [(kind::FUA, Flags::FUA), (kind::SYNC, Flags::SYNC), (kind::META, Flags::META), (kind::AHEAD, Flags::AHEAD)]
    {
        if action & bit != 0 {
            flags = flags.with(flag);
        }
    }
    let preflush = action & kind::FLUSH != 0;
    // A discard is a write by direction.
    let op = if action & kind::DISCARD != 0 {
        Some(Op::Discard)
    } else if action & kind::WRITE != 0 {
        Some(Op::Write)
    } else if action & kind::READ != 0 {
        Some(Op::Read)
    } else {
        None
    };
    if bytes == 0 || preflush {
        let offset = if bytes == 0 { 0 } else { times(sector, SECTOR_BYTES)? };
        return push(base, Rwbs { preflush, op, flags }, offset, bytes.into(), out);
    }
    let op = op.ok_or(Aside::Skipped("neither read nor write"))?;
    let offset = times(sector, SECTOR_BYTES)?;
    out.push(plausible(Request { op, flags, offset, bytes: bytes.into(), ..base })?);
    Ok(())
}

/// Version 7, little-endian, all processors in one stream, as `blkparse -d` writes it and fio reads it.
#[derive(Default)]
struct BlktraceForm {
    sequence: u32,
}

impl EventForm for BlktraceForm {
    fn check(&self, request: &Request) -> Result<(), Dropped> {
        if u32::try_from(request.bytes).is_err() {
            return Err(Dropped::Reason("is longer than 4 GiB"));
        }
        if !request.offset.is_multiple_of(SECTOR_BYTES) {
            return Err(Dropped::Reason("does not begin at a sector"));
        }
        Ok(())
    }

    fn event(&mut self, request: &Request, event: Event, device: u32, out: &mut Vec<u8>) -> Result<(), Dropped> {
        let (act, category) = match event {
            Event::Queue => (QUEUE, kind::QUEUE),
            Event::Issue => (ISSUE, kind::ISSUE),
            Event::Complete => (COMPLETE, kind::COMPLETE),
            Event::Requeue => (GIVE_BACK, kind::REQUEUE),
        };
        let mut action = act | category | kind::FS;
        action |= match request.op {
            Op::Read => kind::READ,
            Op::Write => kind::WRITE,
            Op::Discard => kind::DISCARD | kind::WRITE,
            Op::Flush => kind::FLUSH,
        };
        for (flag, bit) in
            [(Flags::FUA, kind::FUA), (Flags::SYNC, kind::SYNC), (Flags::META, kind::META), (Flags::AHEAD, kind::AHEAD)]
        {
            if request.flags.has(flag) {
                action |= bit;
            }
        }
        self.sequence = self.sequence.wrapping_add(1);
        out.extend_from_slice(&(MAGIC | VERSION_7).to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&request.time.0.to_le_bytes());
        out.extend_from_slice(&(request.offset / SECTOR_BYTES).to_le_bytes());
        // `check` has seen the length.
        for word in [request.bytes as u32, action, request.process.unwrap_or(0), device, request.cpu.unwrap_or(0), 0] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        Ok(())
    }
}
