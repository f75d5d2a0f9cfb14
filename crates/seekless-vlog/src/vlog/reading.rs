//! Reading, and reading on along the track that a sequential reader is on: see [`super::buffer`].

use std::rc::Rc;

use futures_util::future::join_all;

use super::buffer::Aim;
use super::core::{Core, State, count};
use crate::device::{Buf, Data, DeviceError};

impl Core {
    /// True when idle time is used to put blocks in order.
    fn puts_in_order(&self) -> bool {
        self.below.head().is_some() && self.options.compact && self.options.order
    }

    /// Reads blocks from `logical` on into `buf`.
    pub(super) async fn read(self: &Rc<Self>, logical: u32, buf: &mut [u8]) -> Result<(), DeviceError> {
        let blocks = (buf.len() / self.block_bytes()) as u32;
        count(&self.counts.blocks_read, u64::from(blocks));
        let in_order = {
            let mut state = self.state.borrow_mut();
            let in_order = state.buffer.goes_on(logical, blocks);
            if in_order && self.puts_in_order() {
                state.read_in_order.set(logical..logical + blocks);
            }
            in_order && state.buffer.is_on()
        };
        let read = self.read_mapped(logical, buf, in_order).await;
        read.map_err(|error| self.at_logical_address(error, logical, buf.len()))
    }

    /// Reads the current mapping, and reads on along the track when the read is `in_order`.
    pub(super) async fn read_mapped(
        self: &Rc<Self>,
        logical: u32,
        buf: &mut [u8],
        in_order: bool,
    ) -> Result<(), DeviceError> {
        let blocks = (buf.len() / self.block_bytes()) as u32;
        // A guard: the caller may drop the read half-way.
        let pinned = self.pinned(logical, buf.len());
        let read = self.read_runs(&pinned.blocks, buf).await;
        let last = pinned.blocks.iter().rev().find(|&&block| block != 0).copied();
        drop(pinned);
        if let (true, Ok(1..), Some(last)) = (in_order, &read, last) {
            self.read_on(logical + blocks, last);
        }
        read.map(|_| ())
    }

    /// The current mapping from `logical` on, pinned against reuse.
    pub(super) fn pinned(self: &Rc<Self>, logical: u32, bytes: usize) -> Pinned {
        let mut state = self.state.borrow_mut();
        let count = bytes / self.block_bytes();
        let blocks = state.map[logical as usize..logical as usize + count].to_vec();
        blocks.iter().for_each(|&block| state.pin(block));
        Pinned { core: self.clone(), blocks }
    }

    /// Reads pinned blocks, neighbours together, all at once; returns the number of requests.
    async fn read_runs(&self, places: &[u32], buf: &mut [u8]) -> Result<usize, DeviceError> {
        let bytes = self.block_bytes();
        debug_assert_eq!(places.len() * bytes, buf.len(), "each block that is read has its place in the buffer");
        let longest = (self.below.geometry().request_bytes_max as usize / bytes).max(1);
        self.await_track(places).await;
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for (index, &block) in places.iter().enumerate() {
            let target = &mut buf[index * bytes..(index + 1) * bytes];
            if block == 0 {
                target.fill(0);
                continue;
            }
            if let Some(data) = self.buffered(block) {
                target.copy_from_slice(&data);
                continue;
            }
            match runs.last_mut() {
                Some((start, length))
                    if *start + *length == index && places[index - 1] + 1 == block && *length < longest =>
                {
                    *length += 1;
                }
                _ => runs.push((index, 1)),
            }
        }
        if !runs.is_empty() {
            self.leave_track();
        }
        let reads = runs
            .iter()
            .map(|&(start, length)| self.below.read(self.layout.sector_of(places[start]), Buf::dirty(length * bytes)));
        let results = join_all(reads).await;
        let requests = runs.len();
        for ((start, length), result) in runs.into_iter().zip(results) {
            buf[start * bytes..(start + length) * bytes].copy_from_slice(&result?);
        }
        Ok(requests)
    }

    /// A block that is in the track buffer.
    fn buffered(&self, block: u32) -> Option<Data> {
        let mut state = self.state.borrow_mut();
        if !state.buffer.is_on() {
            return None;
        }
        let track = state.space.tracks.track_of(block);
        let found = state.buffer.get(track, block);
        count(&self.counts.track_hits, u64::from(found.is_some()));
        found
    }

    /// Waits until none of these blocks is being read into the track buffer.
    async fn await_track(&self, places: &[u32]) {
        loop {
            let arrived = self.arrived.wait();
            let comes = {
                let mut guard = self.state.borrow_mut();
                let State { buffer, space, .. } = &mut *guard;
                let aim = buffer.aim.filter(|_| buffer.is_reading_on);
                let mut there = places.iter().filter(|&&block| {
                    block != 0 && aim.is_some_and(|aim| space.tracks.blocks(aim.track).contains(&block))
                });
                there.any(|&block| aim.is_some_and(|aim| buffer.get(aim.track, block).is_none()))
            };
            if !comes {
                return;
            }
            arrived.await;
        }
    }

    /// Ends reading ahead, which frees the arm.
    pub(super) fn leave_track(&self) {
        let left = self.state.borrow_mut().buffer.aim.take();
        if left.is_some() {
            self.arrived.notify();
        }
    }

    /// Reads on along the track behind `last`, if it holds enough of the next blocks by address.
    ///
    /// Reading on delays a request for another track by [`Core::read_rest`]'s few blocks, and is wasted where the next
    /// blocks are elsewhere: with one wanted block as the threshold, small files on an HP 97560 take a quarter longer
    /// than with two. The blocks counted as next are as many as stay in the buffer.
    fn read_on(self: &Rc<Self>, next: u32, last: u32) {
        const OTHERS_MIN: usize = 2;
        {
            let mut guard = self.state.borrow_mut();
            let State { buffer, space, map, .. } = &mut *guard;
            let track = space.tracks.track_of(last);
            let blocks = space.tracks.blocks(track);
            let horizon = (next as usize).saturating_add(blocks.len() * self.options.tracks).min(map.len());
            let soon = map.get(next as usize..horizon).unwrap_or_default();
            if soon.iter().filter(|place| blocks.contains(place)).take(OTHERS_MIN).count() < OTHERS_MIN {
                return;
            }
            buffer.aim = Some(Aim { track, next: last + 1 });
            if std::mem::replace(&mut buffer.is_reading_on, true) {
                return;
            }
        }
        count(&self.counts.track_reads, 1);
        drop(self.rt.spawn(self.clone().read_rest()));
    }

    /// Reads the missing blocks of the track aimed at, until a request needs another track.
    async fn read_rest(self: Rc<Self>) {
        loop {
            let Some(aim) = self.state.borrow().buffer.aim else { break };
            let reaches = self.state.borrow().space.tracks.arm_of(aim.track);
            let arm = self.arms.enter(reaches).await;
            // A request may have aimed at another track in the meantime.
            if self.state.borrow().buffer.aim.is_none_or(|now| now.track != aim.track) {
                continue;
            }
            let Some((track, run, stamp)) = self.next_of_track() else { break };
            let length = run.len() * self.block_bytes();
            let read = self.below.read(self.layout.sector_of(run.start), Buf::dirty(length)).await;
            drop(arm);
            {
                let mut guard = self.state.borrow_mut();
                let State { buffer, space, .. } = &mut *guard;
                if read.is_err() {
                    // The reader that needs it reads it itself, and gets the error.
                    buffer.aim = None;
                }
                let read = read.ok().map(|data| (run.start, data.freeze()));
                buffer.end(track, &space.tracks.blocks(track), stamp, read, self.block_bytes());
            }
            self.arrived.notify();
            // Requests waiting for the arm go first.
            self.rt.yield_now().await;
        }
        self.state.borrow_mut().buffer.is_reading_on = false;
        self.arrived.notify();
    }

    /// The next few blocks of the track aimed at: a sixteenth of it, so that no request waits long.
    fn next_of_track(&self) -> Option<(u32, std::ops::Range<u32>, u64)> {
        let mut guard = self.state.borrow_mut();
        let State { buffer, space, .. } = &mut *guard;
        let aim = buffer.aim?;
        let blocks = space.tracks.blocks(aim.track);
        let longest = self.below.geometry().request_bytes_max / self.layout.block_bytes();
        let run = buffer.missing(aim, &blocks, (blocks.len() as u32).div_ceil(16).min(longest));
        buffer.aim = run.as_ref().map(|run| Aim { next: run.end, ..aim });
        let run = run?;
        debug_assert!(blocks.start <= run.start && run.end <= blocks.end, "B1: what is read ahead lies on one track");
        let stamp = buffer.begin(aim.track);
        Some((aim.track, run, stamp))
    }
}

/// Blocks that are not reused before this is dropped.
pub(super) struct Pinned {
    core: Rc<Core>,
    pub(super) blocks: Vec<u32>,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut state = self.core.state.borrow_mut();
        self.blocks.iter().for_each(|&block| state.unpin(block));
        drop(state);
        self.core.changed.notify();
    }
}
