//! Storage below the segments where it is not allocated from the beginning, as in an image file with holes: allocated
//! before the log needs it, kept for a while, then discarded.

use std::rc::Rc;

use super::Lfs;
use super::format::{BLOCK_SECTORS, CHECKPOINT_SECTORS};
use super::layout::SegmentNo;
use super::state::State;
use crate::device::{DeviceError, Discard};
use crate::fs::logfs::state::Scope;
use crate::fs::{FsError, FsResult};
use crate::rt::cover;
use crate::units::Nanos;

/// Segments of one discard, and of one round of the timer: 32 MiB and 2 GiB with segments of 512 KiB.
const DISCARD_SEGMENTS_MAX: usize = 64;
const DISCARDED_AT_ONCE_MAX: usize = 4096;

/// Segments that are tried on a full host. A large volume has millions.
const REFUSED_MAX: usize = 64;

impl Lfs {
    /// Makes emptied segments available again. The storage of those beyond what is needed soon is discarded,
    /// immediately or after a while.
    pub(super) async fn release(&self, segments: Vec<SegmentNo>) {
        let discards = self.discards();
        // Where the host is full, others need it.
        let keeps = self.discards_later() && !self.state.borrow().log.is_full_below;
        for segment in segments {
            let is_surplus = discards && {
                let state = self.state.borrow();
                state.log.segments.ready.len() as u64 >= ready_target(&state)
            };
            {
                let state = self.state.borrow();
                let end = [state.log.end.segment, state.log.end.next_segment];
                debug_assert_eq!(state.log.segments.get(segment).live_bytes, 0, "G3: what is let go of holds nothing");
                debug_assert!(!end.contains(&segment), "G3: the log does not go on in what is let go of");
            }
            if is_surplus && !keeps {
                self.discard(&[segment]).await;
                continue;
            }
            let (start, sectors, was_written) = {
                let state = self.state.borrow();
                let layout = &state.log.layout;
                (layout.segment_start(segment), layout.segment_sectors(), state.log.segments.get(segment).uses > 0)
            };
            // An earlier life may have given its storage back, or never have got it. One that was written may have been so in
            // part, on a device that promises room for what has no place yet.
            let has_storage = self.device.provision(start, sectors).await.is_ok() || was_written;
            self.state.borrow_mut().log.segments.put_back(segment, has_storage);
        }
        self.work.space_changed.notify();
    }

    /// Releases empty segments, which takes two checkpoints (G1), if their storage is discarded afterwards and there is
    /// room for the checkpoints. Errors that matter recur in the last checkpoint.
    pub(super) async fn let_go_of_all(self: &Rc<Self>) {
        if !self.discards_later() || self.state.borrow().log.is_full_below || self.room_is_short() {
            return;
        }
        if self.sync(Scope::Everything).await.is_ok() && self.waiting_segments() > 0 {
            let _ = self.take_back_by_checkpoints().await;
        }
    }

    /// Whether storage that is not needed soon is kept for a while, for the log to write it again. A device that is written in order
    /// takes a discard before each such write anyway.
    fn discards_later(&self) -> bool {
        self.discards() && self.state.borrow().log.options.discard_after > Nanos::ZERO && self.device.spans().is_none()
    }

    /// Discards the storage of segments that the log has not needed for a while, some of it at a time, because other
    /// work of the timer waits.
    pub(super) async fn give_back_some(&self) {
        let unused_for = self.state.borrow().log.options.discard_after;
        self.give_back(unused_for, DISCARDED_AT_ONCE_MAX).await;
    }

    /// Discards the storage of at most so many ready segments that the log has not needed for so long. Enough stay
    /// ready.
    pub(super) async fn give_back(&self, unused_for: Nanos, most: usize) {
        if !self.discards_later() {
            return;
        }
        // A close waits for the timer's discards before it releases the device.
        let _pass = self.work.discard_gate.enter().await;
        let due = {
            let mut guard = self.state.borrow_mut();
            let state = &mut *guard;
            let spare = state.log.segments.surely_ready().saturating_sub(ready_target(state));
            let unused_for = if state.log.is_full_below { Nanos::ZERO } else { unused_for };
            state.log.segments.leave_unused(self.rt.now(), unused_for, spare, most)
        };
        for run in due.chunk_by(|segment, next| segment + 1 == *next) {
            for part in run.chunks(DISCARD_SEGMENTS_MAX) {
                cover("lfs: storage that was kept is given back");
                self.discard(part).await;
            }
        }
        if !due.is_empty() {
            self.work.space_changed.notify();
        }
    }

    /// Discards segments that follow each other. The log does not use them while they are neither clean nor ready.
    async fn discard(&self, segments: &[SegmentNo]) {
        let (start, sectors) = {
            let state = self.state.borrow();
            let layout = &state.log.layout;
            (layout.segment_start(segments[0]), layout.segment_sectors() * segments.len() as u64)
        };
        debug_assert!(segments.is_sorted_by(|one, two| one + 1 == *two), "a discard is of one range");
        debug_assert!(
            {
                let known = &self.state.borrow().log.segments;
                segments.iter().all(|it| !known.clean.contains(it) && !known.ready.contains(it))
            },
            "G3: the log does not write to what is being discarded"
        );
        let discarded = self.device.discard(start, sectors).await.is_ok();
        let mut state = self.state.borrow_mut();
        for &segment in segments {
            state.log.counters.discarded_segments += u64::from(discarded);
            state.log.segments.put_back(segment, false);
        }
    }

    /// Allocates storage below for some more clean segments, and cleans if there is none.
    ///
    /// # Errors
    /// `NoSpace` when the storage below is full, and cleaning does not help.
    pub(super) async fn provision(&self) -> FsResult<()> {
        self.provision_among(REFUSED_MAX).await
    }

    /// The same for a mount, which tries all segments: an earlier mount may have allocated storage for any of them.
    ///
    /// # Errors
    /// Those of [`Lfs::provision`].
    pub(super) async fn provision_at_mount(&self) -> FsResult<()> {
        self.provision_among(usize::MAX).await
    }

    async fn provision_among(&self, refused_max: usize) -> FsResult<()> {
        let won = self.provision_some(refused_max).await?;
        if won.sure > 0 || !self.state.borrow().log.is_full_below {
            return Ok(());
        }
        let cleaned = self.clean_for_room().await;
        if won.all > 0 { Ok(()) } else { cleaned }
    }

    /// Checks again whether a host that was full has room.
    ///
    /// # Errors
    /// Those of the device, but for a lack of space.
    pub(super) async fn provision_if_full(&self) -> FsResult<()> {
        if self.state.borrow().log.is_full_below {
            self.provision_some(REFUSED_MAX).await?;
        }
        Ok(())
    }

    /// Allocates storage below for some more clean segments, as far as there is some. If so many have failed, the next
    /// call continues with others.
    async fn provision_some(&self, refused_max: usize) -> FsResult<Won> {
        let _pass = self.work.provision_gate.enter().await;
        let (wanted, candidates) = {
            let state = self.state.borrow();
            let wanted = ready_target(&state).saturating_sub(state.log.segments.ready.len() as u64).max(1);
            let after = if state.log.is_full_below { state.log.refused_last } else { state.log.end.segment };
            // More are not tried.
            let most = refused_max.saturating_add(wanted as usize);
            (wanted, state.log.segments.to_provision(after, most))
        };
        let (mut won, mut refused) = (Won::default(), 0);
        for segment in candidates {
            let (start, sectors) = {
                let state = self.state.borrow();
                (state.log.layout.segment_start(segment), state.log.layout.segment_sectors())
            };
            match self.device.provision(start, sectors).await {
                Ok(()) => {
                    let mut state = self.state.borrow_mut();
                    if state.log.segments.clean.remove(&segment) {
                        state.log.segments.ready.insert(segment);
                    }
                    won.all += 1;
                    won.sure += u64::from(!state.log.segments.early.contains_key(&segment));
                }
                // Another segment may still have storage from before. What this one got is given back: a host may have
                // allocated a part of it.
                Err(DeviceError::NoSpace { .. }) => {
                    refused += 1;
                    self.state.borrow_mut().log.refused_last = segment;
                    if self.discards() {
                        let _ = self.device.discard(start, sectors).await;
                    }
                }
                Err(error) => return Err(FsError::Device(error)),
            }
            if won.all == wanted || refused == refused_max {
                break;
            }
        }
        self.work.space_changed.notify();
        self.state.borrow_mut().log.is_full_below = refused > 0;
        Ok(won)
    }

    /// Allocates storage below for the checkpoint slots and at the end of the log, as far as there is some: mkfs, and
    /// a sparse copy, leave holes there.
    pub(super) async fn provision_end(&self) -> FsResult<()> {
        let (layout, end) = {
            let state = self.state.borrow();
            (state.log.layout, state.log.end)
        };
        let slots = CHECKPOINT_SECTORS.map(|slot| (slot, 2 * BLOCK_SECTORS));
        let segments = [end.segment, end.next_segment];
        let segments = segments.map(|segment| (layout.segment_start(segment), layout.segment_sectors()));
        for (start, sectors) in slots.into_iter().chain(segments) {
            match self.device.provision(start, sectors).await {
                // What there is may be enough. If not, the write says so.
                Ok(()) | Err(DeviceError::NoSpace { .. }) => {}
                Err(error) => return Err(FsError::Device(error)),
            }
        }
        Ok(())
    }

    /// Whether storage below is discarded.
    fn discards(&self) -> bool {
        self.state.borrow().log.options.discard && self.device.guarantees().discard != Discard::Ignored
    }
}

/// Clean segments with storage below.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Won {
    all: u64,
    /// Those that a mount after a crash knows of.
    sure: u64,
}

/// Number of clean segments to keep with storage below them.
fn ready_target(state: &State) -> u64 {
    let dirty = state.log.options.dirty_bytes_max.div_ceil(state.log.layout.segment_bytes());
    let checkpoint = state.log_need_most_bytes().div_ceil(state.log.layout.segment_bytes());
    2 * dirty + checkpoint + state.cleaner_segments()
}
