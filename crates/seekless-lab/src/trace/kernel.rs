//! Common parts of the tracers of the Linux block layer: events, and the letters that describe a request.

use seekless::units::SECTOR_BYTES;

use super::request::{DeviceId, Event, Flags, Op, Request};
use super::tally::Aside;
use super::text::{number, plausible, times};

/// Why the event is skipped by which a driver gives a request back, to be issued once more.
pub(super) const REQUEUE: &str = "requeue";

/// Why a completion is skipped.
pub(super) const COMPLETION: &str = "completion";

/// Which events a reader delivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    pub(super) queue: bool,
    pub(super) issue: bool,
    pub(super) complete: bool,
    pub(super) requeue: bool,
}

impl Wanted {
    /// All that can be a request.
    pub(super) const ALL: Wanted = Wanted { queue: true, issue: true, complete: true, requeue: false };

    /// One event, and completions too if latencies are needed. Of issues also what says which of them the driver gave back.
    pub(super) fn one(event: Event, latency: bool) -> Wanted {
        Wanted {
            queue: event == Event::Queue,
            issue: event == Event::Issue,
            complete: matches!(event, Event::Complete | Event::Issue) || latency,
            requeue: event == Event::Issue,
        }
    }

    #[inline]
    pub(super) fn check(self, event: Event) -> Result<(), Aside> {
        let (wanted, otherwise) = match event {
            Event::Queue => (self.queue, "queue event"),
            Event::Issue => (self.issue, "issue event"),
            Event::Complete => (self.complete, COMPLETION),
            Event::Requeue => (self.requeue, REQUEUE),
        };
        if wanted { Ok(()) } else { Err(Aside::Skipped(otherwise)) }
    }
}

/// Meaning of the letters that the kernel calls `rwbs`: `FWS`, `RM`, `D`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rwbs {
    /// A flush comes first.
    pub(super) preflush: bool,
    /// `None` for requests that move no data of the device.
    pub(super) op: Option<Op>,
    pub(super) flags: Flags,
}

impl Rwbs {
    /// `[F]{R|W|WZ|D|DE|F|ZA|N}[F][A][S][M][U]`: an F before the operation is a flush before it, one after it is FUA.
    /// Since Linux 6.19, WZ writes zeroes and ZA appends to a zone, ZR and others manage zones; before, all of these were N.
    pub(super) fn parse(letters: &[u8]) -> Result<Rwbs, Aside> {
        const UNKNOWN: Aside = Aside::Rejected("the letters of the operation are unknown");
        let (preflush, rest) = match letters {
            [b'F', rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let (op, rest) = match rest {
            [b'R', rest @ ..] => (Some(Op::Read), rest),
            [b'W', b'Z', rest @ ..] | [b'Z', b'A', rest @ ..] | [b'W', rest @ ..] => (Some(Op::Write), rest),
            [b'D', b'E', rest @ ..] | [b'D', rest @ ..] => (Some(Op::Discard), rest),
            [b'F', rest @ ..] if preflush => (Some(Op::Flush), rest),
            [b'N', rest @ ..] => (None, rest),
            [b'Z', ..] => return Err(Aside::Skipped("zone operation")),
            rest if preflush => (Some(Op::Flush), rest),
            _ => return Err(UNKNOWN),
        };
        let mut flags = Flags::NONE;
        for letter in rest {
            match (letter, Flags::LETTERS.iter().find(|(_, known)| known == letter)) {
                (_, Some((flag, _))) => flags = flags.with(*flag),
                (b'U' | b'B', _) => {} // Atomic, and the barrier of old kernels.
                _ => return Err(UNKNOWN),
            }
        }
        Ok(Rwbs { preflush, op, flags })
    }

    /// The letters of a request.
    pub(super) fn letters(request: &Request) -> String {
        let op = match request.op {
            Op::Read => "R",
            Op::Write => "W",
            Op::Discard => "D",
            Op::Flush => "FF",
        };
        op.to_owned() + &request.flags.letters()
    }
}

/// Appends the requests of an event: only a flush, a flush and then a request, or a request. `base` has everything
/// except the operation and its place.
pub(super) fn push(base: Request, rwbs: Rwbs, offset: u64, bytes: u64, out: &mut Vec<Request>) -> Result<(), Aside> {
    let Rwbs { preflush, op, flags } = rwbs;
    if bytes == 0 {
        if preflush || op == Some(Op::Flush) {
            out.push(plausible(Request { op: Op::Flush, flags, ..base })?);
            return Ok(());
        }
        return Err(Aside::Skipped("no data"));
    }
    let op = op.ok_or(Aside::Skipped("pass-through command"))?;
    let request = plausible(Request { op, flags, offset, bytes, ..base })?;
    if preflush && op != Op::Flush {
        out.push(plausible(Request { op: Op::Flush, ..base })?);
    }
    out.push(request);
    Ok(())
}

/// `major,minor`.
pub(super) fn device(text: &[u8]) -> Option<DeviceId> {
    let comma = text.iter().position(|&byte| byte == b',')?;
    DeviceId::block(number(&text[..comma])?, number(&text[comma + 1..])?)
}

/// Address and length in bytes, from words that count sectors. Bare flushes and pass-through commands have no address:
/// kernels print 2^64 - 1 for it where they complete.
pub(super) fn extent(sector: &[u8], count: &[u8]) -> Result<(u64, u64), Aside> {
    let sector = number(sector).ok_or(Aside::Rejected("the address is not a number"))?;
    let count = number(count).ok_or(Aside::Rejected("the length is not a number"))?;
    if count == 0 {
        return Ok((0, 0));
    }
    if sector == u64::MAX {
        return Err(Aside::Skipped("pass-through command"));
    }
    Ok((times(sector, SECTOR_BYTES)?, times(count, SECTOR_BYTES)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The letters mean what the kernel's `blk_fill_rwbs` writes.
    #[test]
    fn letters() {
        let read = |text: &str| Rwbs::parse(text.as_bytes());
        let of = |preflush, op, flags| Ok(Rwbs { preflush, op, flags });
        let sync_meta = Flags::SYNC.with(Flags::META);
        assert_eq!(read("RM"), of(false, Some(Op::Read), Flags::META));
        assert_eq!(read("WFSM"), of(false, Some(Op::Write), sync_meta.with(Flags::FUA)));
        assert_eq!(read("FWFS"), of(true, Some(Op::Write), Flags::SYNC.with(Flags::FUA)));
        assert_eq!(read("FF"), of(true, Some(Op::Flush), Flags::NONE));
        assert_eq!(read("F"), of(true, Some(Op::Flush), Flags::NONE));
        assert_eq!(read("FN"), of(true, None, Flags::NONE));
        assert_eq!(read("DS"), of(false, Some(Op::Discard), Flags::SYNC));
        assert_eq!(read("DE"), of(false, Some(Op::Discard), Flags::NONE));
        assert_eq!(read("RAU"), of(false, Some(Op::Read), Flags::AHEAD));
        assert_eq!(read("WZS"), of(false, Some(Op::Write), Flags::SYNC));
        assert_eq!(read("ZAFS"), of(false, Some(Op::Write), Flags::SYNC.with(Flags::FUA)));
        assert!(read("ZR").is_err() && read("Q").is_err() && read("RX").is_err() && read("").is_err());
    }
}
