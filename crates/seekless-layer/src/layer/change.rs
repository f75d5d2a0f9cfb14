//! Checks changes of plain files before they are made: a layer that distinguishes its own files from plain ones by
//! their content must not let a plain file become one that looks like its own. The layer would decode it at the next
//! mount.
//!
//! The check and the change are one step: a change that the check depends on is made alone, and all others pass together.

use std::cell::Cell;

use super::read_lower;
use crate::fs::{AllocateMode, FileRange, Fs, FsError, FsResult, Handle, SeekTo};
use crate::rt::{Event, Gate, Pass};
use crate::units::Ino;

/// The error of a change after which the layer would take a plain file for one of its own.
pub(super) const WOULD_BE_OURS: FsError = FsError::Refused(
    "with this change the next mount would take the file for one in the stored form of a layer and decode it: remove the file, \
     or truncate it to nothing, and write it again",
);

/// A change of a file's data.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change<'a> {
    Write {
        offset: u64,
        data: &'a [u8],
    },
    /// Zeroes or a hole from `start` to `end`, and the file grows to `size` at least.
    Zero {
        start: u64,
        end: u64,
        size: u64,
    },
    Resize(u64),
    /// The file grows to this size at least.
    Grow(u64),
}

impl<'a> Change<'a> {
    /// That of an allocation of `range`.
    pub(super) fn allocate(range: FileRange, mode: AllocateMode) -> Change<'a> {
        let (start, end) = (range.offset, range.offset.saturating_add(range.bytes));
        let size = |keep_size| if keep_size { 0 } else { end };
        match mode {
            AllocateMode::Allocate { keep_size } => Change::Grow(size(keep_size)),
            AllocateMode::Zero { keep_size } => Change::Zero { start, end, size: size(keep_size) },
            AllocateMode::PunchHole => Change::Zero { start, end, size: 0 },
        }
    }

    /// Size afterwards of a file of `size` bytes.
    fn size_after(&self, size: u64) -> u64 {
        match *self {
            Change::Write { data: [], .. } => size,
            Change::Write { offset, data } => size.max(offset.saturating_add(data.len() as u64)),
            Change::Zero { size: least, .. } | Change::Grow(least) => size.max(least),
            Change::Resize(size) => size,
        }
    }
}

/// A lower file, as it is or as a change would leave it.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) lower: &'a Fs,
    pub(super) ino: Ino,
    pub(super) handle: Option<Handle>,
    pub(super) size: u64,
    change: Option<Change<'a>>,
}

impl<'a> View<'a> {
    /// The file as it is, with `size` bytes.
    pub(super) fn now(lower: &'a Fs, ino: Ino, handle: Option<Handle>, size: u64) -> View<'a> {
        View { lower, ino, handle, size, change: None }
    }

    /// The file as `change` leaves it.
    ///
    /// # Errors
    /// Those of reading its attributes.
    pub(super) async fn after(
        lower: &'a Fs,
        ino: Ino,
        handle: Option<Handle>,
        change: Change<'a>,
    ) -> FsResult<View<'a>> {
        let size = change.size_after(lower.getattr(ino, handle).await?.size);
        Ok(View { lower, ino, handle, size, change: Some(change) })
    }

    /// Up to `bytes` bytes at `offset`.
    ///
    /// # Errors
    /// Those of reading. What the change overwrites is not read.
    pub(super) async fn read(&self, offset: u64, bytes: u32) -> FsResult<Vec<u8>> {
        let read = |bytes| read_lower(self.lower, self.ino, self.handle, offset, bytes);
        let Some(change) = self.change else { return read(bytes).await };
        let wanted = u64::from(bytes).min(self.size.saturating_sub(offset)) as usize;
        let end = offset + wanted as u64;
        // Where the change lies within the piece.
        let overlap = |start: u64, stop: u64| {
            let (from, to) = (start.clamp(offset, end), stop.clamp(offset, end));
            (from - offset) as usize..(to - offset) as usize
        };
        let changed = match change {
            Change::Write { offset: start, data } => overlap(start, start.saturating_add(data.len() as u64)),
            Change::Zero { start, end, .. } => overlap(start, end),
            Change::Resize(_) | Change::Grow(_) => 0..0,
        };
        let mut all = if changed.len() == wanted { Vec::new() } else { read(wanted as u32).await? };
        // Behind the old end.
        all.resize(wanted, 0);
        match change {
            Change::Write { offset: start, data } if !changed.is_empty() => {
                let from = (offset + changed.start as u64 - start) as usize;
                let length = changed.len();
                all[changed].copy_from_slice(&data[from..from + length]);
            }
            _ => all[changed].fill(0),
        }
        Ok(all)
    }

    /// As [`lseek`](crate::fs::FileSystem::lseek), for data.
    pub(super) async fn next_data(&self, at: u64) -> FsResult<u64> {
        let mut at = at;
        loop {
            let found = self.lower.lseek(self.ino, self.handle, at, SeekTo::Data).await;
            match (self.change, found) {
                (Some(Change::Write { offset, data }), found @ (Ok(_) | Err(FsError::NoSuchOffset)))
                    if offset.saturating_add(data.len() as u64) > at =>
                {
                    return Ok(found.unwrap_or(u64::MAX).min(offset.max(at)));
                }
                (Some(Change::Zero { start, end, .. }), Ok(data)) if (start..end).contains(&data) => at = end,
                (_, found) => return found,
            }
        }
    }
}

/// Lets through many changes that nothing depends on, or one alone.
#[derive(Default)]
pub(super) struct Passage {
    gate: Gate,
    inside: Cell<u64>,
    left: Event,
}

/// A change that others may accompany.
pub(super) struct Together<'a>(&'a Passage);

impl Passage {
    pub(super) async fn together(&self) -> Together<'_> {
        let _pass = self.gate.enter().await;
        self.inside.set(self.inside.get() + 1);
        Together(self)
    }

    pub(super) async fn alone(&self) -> Pass<'_> {
        let pass = self.gate.enter().await;
        while self.inside.get() > 0 {
            self.left.wait().await;
        }
        pass
    }
}

impl Drop for Together<'_> {
    fn drop(&mut self) {
        debug_assert!(self.0.inside.get() > 0, "each change together with others is counted until it ends");
        self.0.inside.set(self.0.inside.get() - 1);
        self.0.left.notify();
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::testing::volumes::simulate;

    /// While one passes alone there is no other, and it begins only when all others have left.
    #[test]
    fn one_passes_alone() {
        simulate(1, async |rt| {
            let passage = Rc::new(Passage::default());
            let (inside, most) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
            let tasks: Vec<_> = (0..20_u64)
                .map(|number| {
                    let (rt2, passage, inside, most) = (rt.clone(), passage.clone(), inside.clone(), most.clone());
                    rt.spawn(async move {
                        rt2.sleep(crate::units::Nanos::from_micros(number * 7 % 5)).await;
                        if number % 4 == 0 {
                            let _alone = passage.alone().await;
                            assert_eq!(inside.replace(100), 0);
                            rt2.sleep(crate::units::Nanos::from_micros(10)).await;
                            assert_eq!(inside.replace(0), 100);
                        } else {
                            let _together = passage.together().await;
                            inside.set(inside.get() + 1);
                            most.set(most.get().max(inside.get()));
                            rt2.sleep(crate::units::Nanos::from_micros(10)).await;
                            inside.set(inside.get() - 1);
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await;
            }
            assert!((2..100).contains(&most.get()), "{} together", most.get());
        });
    }
}
