//! How much the cleaner reads or writes at once.
//!
//! A disk serves one request after another, so an fsync waits for the cleaner's request that is under way. Its transfer
//! is bounded in time: by what a byte of earlier ones took, beyond a small write. The cleaner goes on with the next slice
//! when the last one is done, and whoever came in between is served first.
//!
//! Two cases have no bound. Where nobody has synced yet, nobody waits. Where a change waits until the cleaner has made
//! room, and there was no sync during the last slice, the next one is twice as large: many small requests take longer in
//! all.

use std::cell::Cell;

use crate::units::{KIB, MIB, Nanos};

/// Longest transfer of a slice. An fsync may wait 20 ms longer than it takes alone; an arm needs as much again to
/// go to the slice and to come back.
const TRANSFER: Nanos = Nanos::from_millis(10);

/// The smallest slice: a summary, an inode and what they are rounded to are a thirtieth of it.
const LEAST_BYTES: u64 = 32 * KIB;

/// Live bytes that one pass moves, or one victim's where that is more. All of them are in memory, and sorted by age.
pub(super) const SLICE_BYTES: u64 = 2 * MIB;

/// Most that a small sync writes: a few blocks, their inodes and a summary.
pub(super) const SMALL_BYTES: u64 = 64 * KIB;

/// Requests of the cleaner, and the syncs for whose sake they are short.
#[derive(Default)]
pub(super) struct Slices {
    pub reads: Pace,
    pub writes: Pace,
    /// What a small sync takes while the cleaner rests; `None` before the first.
    small: Cell<Option<Nanos>>,
    syncs: Cell<u64>,
    /// Changes that wait until there is room.
    waiting: Cell<u64>,
    /// How often in a row a slice was twice as large as the one before, because only such changes wait.
    doublings: Cell<u32>,
}

/// How fast requests of one kind are.
#[derive(Default)]
pub(super) struct Pace {
    /// What a MiB takes, beyond a small sync.
    nanos_per_mib: Cell<Option<u64>>,
    /// The next slice; `None` before the first.
    next_bytes: Cell<Option<u64>>,
}

/// A slice under way.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    at: Nanos,
    /// Syncs until then.
    syncs: u64,
    /// Something of users was on its way before it.
    is_behind: bool,
}

/// A change waits for room as long as this lives.
pub(super) struct Waiting<'a>(&'a Slices);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.update(|waiting| waiting - 1);
    }
}

impl Slices {
    /// Counts a sync. `took` is how long it took, where the cleaner rested and little was written.
    pub(super) fn synced(&self, took: Option<Nanos>) {
        self.syncs.update(|syncs| syncs + 1);
        let Some(took) = took else { return };
        let mean = self.small.get().map_or(took, |mean| Nanos(mean.0 - mean.0 / 8 + took.0 / 8));
        self.small.set(Some(mean));
    }

    pub(super) fn wait_for_room(&self) -> Waiting<'_> {
        self.waiting.update(|waiting| waiting + 1);
        Waiting(self)
    }

    /// Bytes of the next slice.
    pub(super) fn next(&self, pace: &Pace) -> u64 {
        #[cfg(test)]
        if std::env::var("NOSL").is_ok() {
            return SLICE_BYTES;
        }
        let Some(small) = self.small.get() else { return SLICE_BYTES };
        let first = || bytes_in(TRANSFER, small.0.saturating_mul(MIB / LEAST_BYTES));
        let next = pace.next_bytes.get().unwrap_or_else(first);
        let doublings = self.doublings.get().min(SLICE_BYTES.ilog2());
        next.saturating_mul(1 << doublings).clamp(LEAST_BYTES, SLICE_BYTES)
    }

    /// A slice begins. `is_behind` is whether it waits for something of users.
    pub(super) fn begin(&self, at: Nanos, is_behind: bool) -> Begun {
        Begun { at, syncs: self.syncs.get(), is_behind }
    }

    /// A slice of `bytes` is done, and something of what was known is known better.
    pub(super) fn done(&self, pace: &Pace, begun: Begun, bytes: u64, now: Nanos) {
        let only_changes_wait = self.waiting.get() > 0 && self.syncs.get() == begun.syncs;
        let doublings = if only_changes_wait { self.doublings.get() + 1 } else { 0 };
        let asked = self.next(pace);
        self.doublings.set(doublings);
        // The last of a segment or of a pass says little of a byte.
        let Some(small) = self.small.get().filter(|_| bytes * 2 >= asked) else { return };
        let others = small.0.saturating_mul(1 + u64::from(begun.is_behind));
        let transfer = (now.saturating_sub(begun.at)).saturating_sub(Nanos(others));
        let sample = (u128::from(transfer.0) * u128::from(MIB) / u128::from(bytes.max(1))) as u64;
        let mean = pace.nanos_per_mib.get().map_or(sample, |mean| mean - mean / 4 + sample / 4);
        pace.nanos_per_mib.set(Some(mean));
        let most = asked.saturating_mul(2); // One fast request, by chance, is not trusted much.
        pace.next_bytes.set(Some(bytes_in(TRANSFER, mean).min(most).clamp(LEAST_BYTES, SLICE_BYTES)));
    }
}

/// Bytes that are transferred in `time`, at most a slice.
fn bytes_in(time: Nanos, nanos_per_mib: u64) -> u64 {
    let bytes = u128::from(time.0) * u128::from(MIB) / u128::from(nanos_per_mib.max(1));
    bytes.min(u128::from(SLICE_BYTES)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device on which a request takes `arm`, and as long again for each byte as `nanos_per_kib` says.
    struct Drive {
        arm: Nanos,
        nanos_per_kib: u64,
    }

    impl Drive {
        fn time(&self, bytes: u64) -> Nanos {
            self.arm + Nanos(self.nanos_per_kib * bytes / KIB)
        }

        /// Bytes of a slice after many, while others sync, or wait for room where `is_behind`.
        fn settled(&self, slices: &Slices, is_behind: bool) -> u64 {
            let waiting = is_behind.then(|| slices.wait_for_room());
            for _ in 0..64 {
                let begun = slices.begin(Nanos::ZERO, false);
                let bytes = slices.next(&slices.writes);
                if !is_behind {
                    slices.synced(None);
                }
                slices.done(&slices.writes, begun, bytes, self.time(bytes));
            }
            let bytes = slices.next(&slices.writes);
            drop(waiting);
            bytes
        }
    }

    /// Aim: a slice takes the time that it may, on fast and slow devices, and the first one is not too long. Method: drives of
    /// which arm and rate are known: flash, a disk of today, one of 1992, and memory in virtual time.
    #[test]
    fn slices_take_as_long_as_they_may() {
        for (arm, nanos_per_kib, least, most) in [
            (Nanos::from_micros(20), 500, SLICE_BYTES, SLICE_BYTES),
            (Nanos::from_millis(9), 5_600, 1700 * KIB, 1900 * KIB),
            (Nanos::from_millis(14), 512_000, LEAST_BYTES, LEAST_BYTES),
            (Nanos::ZERO, 0, SLICE_BYTES, SLICE_BYTES),
        ] {
            let (drive, slices) = (Drive { arm, nanos_per_kib }, Slices::default());
            assert_eq!(slices.next(&slices.writes), SLICE_BYTES, "nobody has synced");
            slices.synced(Some(drive.time(6 * KIB)));
            let first = drive.time(slices.next(&slices.writes)).saturating_sub(drive.arm);
            assert!(first <= Nanos::from_millis(17), "{arm:?}: the first one takes {first:?}");
            let bytes = drive.settled(&slices, false);
            assert!((least..=most).contains(&bytes), "{arm:?}: {bytes} bytes");
        }
    }

    /// Aim: where only a change waits, slices grow to whole ones; the first sync makes them short again. Method: the disk of 1992.
    #[test]
    fn slices_grow_while_nobody_syncs() {
        let (drive, slices) = (Drive { arm: Nanos::from_millis(14), nanos_per_kib: 512_000 }, Slices::default());
        slices.synced(Some(drive.time(6 * KIB)));
        assert_eq!(drive.settled(&slices, true), SLICE_BYTES);
        let begun = slices.begin(Nanos::ZERO, false);
        slices.synced(None);
        slices.done(&slices.writes, begun, SLICE_BYTES, drive.time(SLICE_BYTES));
        assert_eq!(slices.next(&slices.writes), LEAST_BYTES);
    }
}
