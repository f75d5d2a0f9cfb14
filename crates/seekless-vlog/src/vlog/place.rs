//! Writes data to places that eager writing chooses.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use futures_util::future::join_all;

use super::backing::Refusals;
use super::core::{Core, count};
use super::eager::{AllocPurpose, Run};
use crate::device::{Data, DeviceError, worse};
use crate::units::Sector;

/// Blocks of a request that were sent to a place, and what came of it.
struct Tried {
    /// Where they are in the request.
    from: u32,
    run: Run,
    written: Result<(), DeviceError>,
}

impl Core {
    /// Writes the blocks of `data` to free places and returns these. Nothing is mapped yet. Of several requests waiting
    /// for an arm, the one with the next `address` goes first.
    ///
    /// # Errors
    /// Device errors; no block is then taken. `NoSpace` also when there is no place of the wanted kind.
    pub(super) async fn place(
        self: &Rc<Self>,
        data: &Data,
        purpose: AllocPurpose,
        address: Option<u32>,
    ) -> Result<Vec<Run>, DeviceError> {
        let blocks = (data.len() / self.block_bytes()) as u32;
        debug_assert!(data.len().is_multiple_of(self.block_bytes()), "whole blocks are written");
        debug_assert!(self.state.borrow().reserved >= u64::from(blocks), "V3: what is written was admitted");
        // A drive has all of its storage, and the owner above has its own rules.
        let may_go_elsewhere = self.below.head().is_none() && !self.layout.superblock.is_above();
        let mut open: Vec<Range<u32>> = std::iter::once(0..blocks).collect();
        let mut placed: BTreeMap<u32, Run> = BTreeMap::new();
        let mut refusals = Refusals::default();
        let mut result = Ok(());
        while !open.is_empty() && result.is_ok() {
            let before = placed.len();
            let (tried, failed) = self.try_places(data, &mut open, purpose, address).await;
            result = failed;
            for Tried { from, run, written } in tried {
                match written {
                    Err(DeviceError::NoSpace { .. }) if may_go_elsewhere => {
                        self.state.borrow_mut().found_hole(run);
                        open.push(from..from + run.blocks);
                    }
                    written => {
                        if written.is_ok() {
                            self.state.borrow_mut().found_room();
                        }
                        placed.insert(from, run);
                        result = worse(result, written);
                    }
                }
            }
            if !open.is_empty() && result.is_ok() {
                result = match self.may_find_room(&mut refusals, placed.len() > before).await {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(DeviceError::NoSpace { at: Sector::ZERO, bytes: data.len() as u64 }),
                    Err(error) => Err(error),
                };
            }
        }
        let mut state = self.state.borrow_mut();
        for run in placed.values() {
            let track = state.space.tracks.track_of(run.first);
            state.buffer.forget(track, run.first..run.first + run.blocks);
        }
        debug_assert!(
            result.is_err() || placed.values().map(|run| run.blocks).sum::<u32>() == blocks,
            "V3: all that was admitted has a place, or an error"
        );
        if let Err(error) = &result {
            // A failed write may still reach the medium later, when the block holds something else.
            if !matches!(error, DeviceError::NoSpace { .. }) && state.stopped.is_none() {
                state.stopped = Some(error.to_string());
            }
            placed.values().for_each(|&run| state.give_back(run));
            let left: u64 = open.iter().map(|stretch| stretch.len() as u64).sum();
            debug_assert!(left <= state.reserved, "what was reserved is given back once");
            state.reserved -= left;
        }
        drop(state);
        self.changed.notify();
        result.map(|()| placed.into_values().collect())
    }

    /// Sends the `open` stretches of `data`, the last one first, to free places. Those that got none are left, and then there is
    /// an error.
    async fn try_places(
        &self,
        data: &Data,
        open: &mut Vec<Range<u32>>,
        purpose: AllocPurpose,
        address: Option<u32>,
    ) -> (Vec<Tried>, Result<(), DeviceError>) {
        let mut tried = Vec::new();
        let mut writes = Vec::new();
        let mut result = Ok(());
        while result.is_ok()
            && let Some(Range { start, end }) = open.pop()
        {
            let (run, arm) = match self.choose(purpose, address.map(|address| address + start), end - start).await {
                Ok(Some(chosen)) => chosen,
                none => {
                    open.push(start..end);
                    let no_space = DeviceError::NoSpace { at: Sector::ZERO, bytes: data.len() as u64 };
                    result = none.and(Err(no_space));
                    break;
                }
            };
            if run.blocks < end - start {
                open.push(start + run.blocks..end);
            }
            let from = start as usize * self.block_bytes();
            let part = data.slice(from..from + run.blocks as usize * self.block_bytes());
            let write = self.below.write(self.layout.sector_of(run.first), part, self.flags());
            tried.push(Tried { from: start, run, written: Ok(()) });
            match arm {
                Some(arm) => {
                    result = write.await;
                    drop(arm);
                }
                None => writes.push(write),
            }
        }
        // With arms there are none.
        for (tried, written) in tried.iter_mut().zip(join_all(writes).await) {
            tried.written = written;
        }
        count(&self.counts.blocks_written, tried.iter().map(|tried| u64::from(tried.run.blocks)).sum());
        (tried, result)
    }
}
