//! By-passing the host's page cache where that is faster.
//!
//! A copy into the page cache costs more than everything else in a large write. So with `direct=auto` writes to an image on ext4
//! go directly to the drive, as far as the storage has been written before. Where a file is a hole or merely allocated, the host
//! would have to change its own structures with each direct write, one at a time, so such a part is written through the cache at
//! first. Reads go through the cache: it keeps metadata that does not fit into the file system's own, and its read-ahead is worth
//! more than the copy (1 MiB cold: .78 of ext4, and .72 without the cache).
//!
//! On ext4 the kernel keeps both ways consistent: a direct write drops what the cache has of its range once it has ended. What is
//! durable when is the same for both, as nothing is before a flush. On block devices an asynchronous direct write drops nothing
//! (`blkdev_bio_end_io_async`), and a read beside it would leave old bytes in the cache, so there everything goes through the
//! cache.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use seekless::rt::Event;

use crate::reactor::File;

/// The second way to a store.
pub(super) struct Direct {
    /// The same storage, opened with `O_DIRECT`.
    pub file: File,
    /// Alignment on the storage and in memory.
    offset_align: u64,
    memory_align: usize,
    written: RefCell<Written>,
    /// Writes under way this way, and through the page cache or waiting to go through it (F4).
    direct_writes: Cell<usize>,
    cached_writes: Cell<usize>,
    direct_ended: Event,
    /// The host has refused what it had said that it would take.
    refused: Cell<bool>,
}

impl Direct {
    pub(super) fn new(file: File, offset_align: u32, memory_align: usize) -> Direct {
        Direct {
            file,
            offset_align: offset_align.into(),
            memory_align,
            written: RefCell::default(),
            direct_writes: Cell::new(0),
            cached_writes: Cell::new(0),
            direct_ended: Event::default(),
            refused: Cell::new(false),
        }
    }

    fn takes(&self, offset: u64, bytes: &[u8]) -> bool {
        let is_aligned = (bytes.as_ptr() as usize).is_multiple_of(self.memory_align)
            && offset.is_multiple_of(self.offset_align)
            && (bytes.len() as u64).is_multiple_of(self.offset_align);
        is_aligned && !bytes.is_empty() && !self.refused.get()
    }

    /// Whether to write this way.
    pub(super) fn writes(&self, offset: u64, data: &[u8]) -> bool {
        self.takes(offset, data) && self.is_written(offset, data.len() as u64)
    }

    /// Begins a write this way, which [`Direct::end`] ends. False while one goes through the page cache or waits for that:
    /// this one then has to go there too, so that neither waits for long.
    pub(super) fn begin(&self) -> bool {
        if self.cached_writes.get() > 0 {
            return false;
        }
        self.direct_writes.set(self.direct_writes.get() + 1);
        true
    }

    pub(super) fn end(&self) {
        self.direct_writes.set(self.direct_writes.get() - 1);
        self.direct_ended.notify();
    }

    /// Begins a write through the page cache, which [`Direct::end_cached`] ends, once none goes this way.
    pub(super) async fn begin_cached(&self) {
        self.cached_writes.set(self.cached_writes.get() + 1);
        while self.direct_writes.get() > 0 {
            self.direct_ended.wait().await;
        }
    }

    pub(super) fn end_cached(&self) {
        self.cached_writes.set(self.cached_writes.get() - 1);
    }

    #[cfg(test)]
    pub(super) fn is_refused(&self) -> bool {
        self.refused.get()
    }

    /// Whether the request has to take the other way, because the host has refused it: with no effect, and from now on it is not
    /// asked again, or for the moment.
    pub(super) fn refuse(&self, cause: Errno) -> bool {
        let is_refusal = matches!(cause, Errno::INVAL | Errno::OPNOTSUPP);
        if is_refusal {
            self.refused.set(true);
        }
        is_refusal || matches!(cause, Errno::AGAIN | Errno::INTR)
    }

    /// Whether the storage of this range is known to have been written.
    pub(super) fn is_written(&self, offset: u64, bytes: u64) -> bool {
        self.written.borrow().has(offset, bytes)
    }

    /// The storage is known to have been written from `offset` to `end`.
    pub(super) fn found_written(&self, offset: u64, end: u64) {
        self.written.borrow_mut().add(offset, end);
    }

    /// The storage of this range is being given back to the host.
    pub(super) fn discarded(&self, offset: u64, bytes: u64) {
        self.written.borrow_mut().remove(offset, offset.saturating_add(bytes));
    }
}

/// Where the part of a file ends that has been written and begins at `offset`; `offset` if there is none. It may wait for a disk.
pub(super) fn written_end(file: &OwnedFd, offset: u64) -> u64 {
    // A file system that knows nothing of holes says that all is data.
    rustix::fs::seek(file, SeekFrom::Hole(offset)).unwrap_or(offset)
}

/// Ranges that do not touch each other, by their begin.
#[derive(Default)]
struct Written(BTreeMap<u64, u64>);

impl Written {
    fn has(&self, from: u64, bytes: u64) -> bool {
        let end = from.saturating_add(bytes);
        self.0.range(..=from).next_back().is_some_and(|(_, &known)| end <= known)
    }

    fn add(&mut self, mut from: u64, mut end: u64) {
        if from >= end {
            return;
        }
        if let Some((&before, &known)) = self.0.range(..=from).next_back()
            && known >= from
        {
            (from, end) = (before, end.max(known));
        }
        let covered: Vec<u64> = self.0.range(from..=end).map(|(&begin, _)| begin).collect();
        for begin in covered {
            end = end.max(self.0.remove(&begin).unwrap_or(end));
        }
        self.0.insert(from, end);
    }

    fn remove(&mut self, from: u64, end: u64) {
        if from >= end {
            return;
        }
        let touched: Vec<(u64, u64)> = self
            .0
            .range(..end)
            .rev()
            .take_while(|(_, known)| **known > from)
            .map(|(&begin, &end)| (begin, end))
            .collect();
        for (begin, known) in touched {
            self.0.remove(&begin);
            self.add(begin, from);
            self.add(end, known);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;
    use seekless::rng::Rng;

    use super::*;

    /// Aim: F4. Method: writes of both kinds begin and end in turn; which may begin, and which waits.
    #[test]
    fn both_kinds_exclude_each_other() {
        let direct = Direct::new(Arc::new(std::fs::File::open("/dev/null").unwrap().into()), 512, 512);
        assert!(direct.begin() && direct.begin());
        let mut cached = Box::pin(direct.begin_cached());
        assert!((&mut cached).now_or_never().is_none(), "two are direct");
        assert!(!direct.begin(), "one waits for the cache");
        direct.end();
        assert!((&mut cached).now_or_never().is_none(), "one is direct");
        direct.end();
        assert!(cached.now_or_never().is_some());
        assert!(direct.begin_cached().now_or_never().is_some(), "cached writes do not wait for each other");
        assert!(!direct.begin());
        direct.end_cached();
        assert!(!direct.begin());
        direct.end_cached();
        assert!(direct.begin());
    }

    /// Aim: what the host refuses takes the other way: permanently, or for the moment; what fails does not.
    #[test]
    fn refusals() {
        let direct = Direct::new(Arc::new(std::fs::File::open("/dev/null").unwrap().into()), 512, 1);
        direct.found_written(0, 4096);
        let takes = || direct.writes(0, &[0; 4096]);
        assert!(!direct.refuse(Errno::IO) && !direct.refuse(Errno::NOSPC) && takes());
        assert!(direct.refuse(Errno::AGAIN) && direct.refuse(Errno::INTR) && takes());
        assert!(direct.refuse(Errno::INVAL) && !takes());
    }

    /// Aim: ranges are what was added and not removed. Method: random ranges, compared with a list of bits.
    #[test]
    fn ranges_are_sets() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let (mut written, mut bits) = (Written::default(), [false; 64]);
            for step in 0..300 {
                let from = rng.below(64);
                let end = from + rng.below(65 - from);
                let adds = rng.chance(1, 2);
                match adds {
                    true => written.add(from, end),
                    false => written.remove(from, end),
                }
                bits[from as usize..end as usize].fill(adds);
                for (at, &bit) in bits.iter().enumerate() {
                    assert_eq!(written.has(at as u64, 1), bit, "seed {seed}, step {step}, {at}");
                }
                let (at, count) = (rng.below(60), 1 + rng.below(4));
                let all = bits[at as usize..(at + count) as usize].iter().all(|&bit| bit);
                assert_eq!(written.has(at, count), all, "seed {seed}, step {step}");
                let ends: Vec<(u64, u64)> = written.0.iter().map(|(&from, &end)| (from, end)).collect();
                assert!(ends.windows(2).all(|two| two[0].1 < two[1].0), "seed {seed}: {ends:?}");
            }
        }
    }
}
