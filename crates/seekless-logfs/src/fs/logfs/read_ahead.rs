//! Reading ahead of callers that read files in order.
//!
//! When a caller continues where its last read ended, its next blocks are read while it works on those that it has:
//! once no more than a window is left in memory ahead of it, a separate task reads the next one. A caller that catches
//! up with that task waits for it, and reads nothing twice. Everything here is a hint: an error of the task goes
//! unreported, since the caller meets it when it reads the block itself.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::units::Ino;

/// Blocks of a window, at least: 64 KiB, a cluster of 4.4BSD, which reads ahead in the same way [se95 §2].
const WINDOW_BLOCKS: u64 = 16;

/// Blocks of a window at most, however large the requests are: 1 MiB, the largest extent that is read with one request.
const WINDOW_BLOCKS_MAX: u64 = 256;

/// A window takes at most this part of the cache: several readers share it with everything else.
const CACHE_SHARE: u64 = 8;

/// Most readers that are followed at once. Files that one request reads whole are not counted.
const READERS_MAX: usize = 64;

struct Reader {
    /// Offset at which the next request begins if the caller continues in order.
    next: u64,
    /// First block that no request has asked for yet.
    end: u64,
    /// When this reader was last seen, as a number of requests.
    seen: u64,
}

/// A read of a file: where it ends, and what is behind it.
#[derive(Clone, Copy, Debug)]
pub(in crate::fs) struct ReadSpan {
    pub ino: Ino,
    pub offset: u64,
    /// Offset behind the last byte.
    pub end: u64,
    /// First block that the read touches.
    pub blocks_start: u64,
    /// First block behind those that the read touches.
    pub blocks_end: u64,
    /// First block that neither the read touches nor its read-ahead.
    pub ahead_end: u64,
    /// First block behind the end of the file.
    pub file_end: u64,
}

impl ReadSpan {
    /// True when blocks behind the read are read with it.
    pub(in crate::fs) fn has_ahead(self) -> bool {
        self.ahead_end > self.blocks_end
    }
}

/// The readers that go in order, and what is being read ahead.
#[derive(Default)]
pub(in crate::fs) struct ReadAhead {
    /// Nothing is read ahead.
    pub off: bool,
    readers: BTreeMap<Ino, Reader>,
    requests: u64,
    /// The blocks of each file that a task is reading.
    in_flight: BTreeMap<Ino, Range<u64>>,
}

/// Blocks in the window of a caller that reads `request_blocks` at a time.
fn window(request_blocks: u64, cache_blocks: u64) -> u64 {
    request_blocks.clamp(WINDOW_BLOCKS, WINDOW_BLOCKS_MAX).min(cache_blocks / CACHE_SHARE)
}

impl ReadAhead {
    fn is_in_order(&self, ino: Ino, offset: u64) -> bool {
        offset > 0 && self.readers.get(&ino).is_some_and(|reader| reader.next == offset)
    }

    /// Number of blocks to read behind a request of `request_blocks` if one of its own blocks is missing in memory, so
    /// that the device gets a whole window to read.
    pub(in crate::fs) fn blocks_behind(&self, ino: Ino, offset: u64, request_blocks: u64, cache_blocks: u64) -> u64 {
        match self.is_in_order(ino, offset) && !self.off {
            true => window(request_blocks, cache_blocks).saturating_sub(request_blocks),
            false => 0,
        }
    }

    /// True when a task is reading blocks of this file.
    pub(in crate::fs) fn is_reading(&self, ino: Ino) -> bool {
        self.in_flight.contains_key(&ino)
    }

    /// The task that read blocks of this file has ended.
    pub(in crate::fs) fn ended(&mut self, ino: Ino) {
        let was_in_flight = self.in_flight.remove(&ino);
        debug_assert!(was_in_flight.is_some(), "what a task read ahead was in flight until it ended");
    }

    /// True when a task is reading this block.
    pub(in crate::fs) fn is_in_flight(&self, ino: Ino, block: u64) -> bool {
        self.in_flight.get(&ino).is_some_and(|blocks| blocks.contains(&block))
    }

    pub(in crate::fs) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Notes a read. Returns the blocks that a task has to read ahead, which count as in flight from now on.
    pub(in crate::fs) fn note(&mut self, read: ReadSpan, cache_blocks: u64) -> Option<Range<u64>> {
        if self.off {
            return None;
        }
        debug_assert!(
            read.blocks_start < read.blocks_end
                && read.blocks_end <= read.ahead_end
                && read.ahead_end <= read.file_end.max(read.blocks_end),
            "a read has blocks of its file, and those ahead follow them"
        );
        let in_order = self.is_in_order(read.ino, read.offset);
        if read.blocks_end >= read.file_end {
            self.readers.remove(&read.ino);
            return None;
        }
        self.requests += 1;
        let known_end = if in_order { self.readers.get(&read.ino).map_or(0, |reader| reader.end) } else { 0 };
        let mut end = known_end.max(read.ahead_end);
        let window = window(read.blocks_end - read.blocks_start, cache_blocks);
        let is_due = in_order && end - read.blocks_end <= window && !self.in_flight.contains_key(&read.ino);
        let ahead = (is_due && end < read.file_end && window > 0).then(|| end..(end + window).min(read.file_end));
        if let Some(ahead) = &ahead {
            end = ahead.end;
            let other = self.in_flight.insert(read.ino, ahead.clone());
            debug_assert!(other.is_none(), "one task at a time reads a file ahead");
        }
        self.readers.insert(read.ino, Reader { next: read.end, end, seen: self.requests });
        if self.readers.len() > READERS_MAX
            && let Some((&oldest, _)) = self.readers.iter().min_by_key(|(_, reader)| reader.seen)
        {
            self.readers.remove(&oldest);
        }
        ahead
    }

    /// The file is gone.
    pub(in crate::fs) fn forget(&mut self, ino: Ino) {
        self.readers.remove(&ino);
    }

    /// Forgets every reader. What is in flight still is.
    pub(in crate::fs) fn clear(&mut self) {
        self.readers.clear();
    }
}
