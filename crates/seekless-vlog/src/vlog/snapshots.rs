//! Snapshots of a virtual log disk: further maps behind that of the disk, in one log with it.
//!
//! A snapshot maps the blocks that the disk mapped. Since nothing is written in place, that suffices: a block that the
//! disk no longer maps stays as long as a snapshot maps it. Taking, removing and reverting to a snapshot each change
//! many entries of the map at once, in one transaction of as many pieces as it takes.
//!
//! Invariants
//!   H1  A snapshot exists exactly when its label is mapped. Its entries are changed in the transaction in which its
//!       label is.
//!   H2  Two entries map the same block only if they are at the same logical address, in different maps.

use std::rc::Rc;

use async_trait::async_trait;

use super::claim::Claim;
use super::core::{Core, State};
use super::eager::AllocPurpose;
use super::format::{Label, NAME_BYTES_MAX};
use super::labels::{LabelledSnapshot, is_name_of_damaged, places, read_labels};
use super::vld::Vld;
use crate::device::{Data, DeviceError, SnapshotError, SnapshotInfo, Snapshots};

impl Core {
    /// All snapshots. The caller holds the gate, so none of them disappears.
    async fn labels(&self) -> Result<Vec<LabelledSnapshot>, DeviceError> {
        let places = places(&self.layout, &self.state.borrow().map);
        read_labels(&self.below, &self.layout, places).await
    }

    async fn existing(&self, name: &str) -> Result<u32, SnapshotError> {
        let found = self.labels().await?.into_iter().find(|found| found.name == name);
        found.map(|found| found.number).ok_or_else(|| SnapshotError::NotFound { name: name.to_owned() })
    }

    /// Makes the map of the disk, or of a snapshot, a copy of another map.
    fn copy_map(&self, from: u32, to: u32) {
        debug_assert!(self.snapshot_gate.is_held(), "H1: one snapshot changes at a time");
        let mut state = self.state.borrow_mut();
        let (from, to) = (self.layout.map_start(from), self.layout.map_start(to));
        for place in 0..self.layout.offered() {
            let block = state.map[(from + place) as usize];
            if state.map[(to + place) as usize] != block {
                state.share(to + place, block);
            }
        }
    }

    fn clear_map(&self, number: u32) {
        debug_assert!(self.snapshot_gate.is_held(), "H1: one snapshot changes at a time");
        debug_assert_ne!(number, 0, "H1: the disk itself is not removed");
        let mut state = self.state.borrow_mut();
        let start = self.layout.map_start(number);
        for logical in start..start + self.layout.span {
            if state.map[logical as usize] != 0 {
                state.set(logical, 0);
            }
        }
    }

    async fn take_snapshot(self: Rc<Self>, name: String) -> Result<(), SnapshotError> {
        let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control);
        if !is_name || is_name_of_damaged(&name) {
            return Err(SnapshotError::Name { most: NAME_BYTES_MAX });
        }
        let _turn = self.snapshot_gate.enter().await;
        self.check_writable()?;
        let labels = self.labels().await?;
        if labels.iter().any(|found| found.name == name) {
            return Err(SnapshotError::Exists { name });
        }
        let most = self.layout.snapshots;
        let Some(number) = (1..=most).find(|&number| labels.iter().all(|found| found.number != number)) else {
            return Err(SnapshotError::Full { most });
        };
        let label = Label::new(&name, self.rt.wall().seconds).to_block(self.layout.block_bytes());
        self.admit(Claim::Label).await?;
        let runs = self.place(&Data::from_slice(&label), AllocPurpose::Data, None).await?;
        debug_assert_eq!(runs.len(), 1, "H1: a label is in one block");
        let block = runs.first().map_or(0, |run| run.first);
        debug_assert_eq!(
            self.state.borrow().map[self.layout.label_of(number) as usize],
            0,
            "H1: a snapshot that is made did not exist"
        );
        // H1: nothing waits between here and the transaction.
        self.copy_map(0, number);
        self.state.borrow_mut().set(self.layout.label_of(number), block);
        let committed = self.commit().await;
        if committed.is_err() {
            // After `NoSpace`, undo: the snapshot never existed. After any other error writing has stopped.
            self.clear_map(number);
            self.withdraw_map(number);
        }
        Ok(committed?)
    }

    /// After [`Core::clear_map`]: an entry that the durable map does not have either needs no transaction (V2). On a full host,
    /// there may be no room for the pieces of such a transaction, and the next flush would fail.
    fn withdraw_map(&self, number: u32) {
        debug_assert!(self.snapshot_gate.is_held(), "H1: one snapshot changes at a time");
        let mut guard = self.state.borrow_mut();
        let State { map, pending, moved, .. } = &mut *guard;
        debug_assert!(moved.is_empty(), "H2: idle work moves nothing where maps share blocks");
        let start = self.layout.map_start(number);
        let changes = start..start + self.layout.span;
        pending.extract_if(changes, |&logical, old| *old == 0 && map[logical as usize] == 0).for_each(drop);
    }

    async fn remove_snapshot(self: Rc<Self>, name: String) -> Result<(), SnapshotError> {
        let _turn = self.snapshot_gate.enter().await;
        self.check_writable()?;
        let number = self.existing(&name).await?;
        self.stock_for_frees().await?;
        self.clear_map(number);
        Ok(self.commit().await?)
    }

    async fn revert_to(self: Rc<Self>, name: String) -> Result<(), SnapshotError> {
        let _turn = self.snapshot_gate.enter().await;
        self.check_writable()?;
        let number = self.existing(&name).await?;
        // What follows is not undone.
        self.admit(Claim::Map).await?;
        self.copy_map(number, 0);
        Ok(self.commit().await?)
    }
}

#[async_trait(?Send)]
impl Snapshots for Vld {
    async fn list(&self) -> Result<Vec<SnapshotInfo>, SnapshotError> {
        let core = &self.core;
        let _turn = core.snapshot_gate.enter().await;
        let mut found = Vec::new();
        let labels = core.labels().await?;
        let state = core.state.borrow();
        for LabelledSnapshot { number, created_seconds, name } in labels {
            let start = core.layout.map_start(number) as usize;
            let blocks = state.map[start..start + core.layout.offered() as usize].iter().filter(|&&block| block != 0);
            let (mut mapped, mut own) = (0, 0);
            for &block in blocks {
                mapped += 1;
                own += u64::from(state.shares[block as usize] == 0);
            }
            let bytes = u64::from(core.layout.block_bytes());
            found.push(SnapshotInfo { name, created_seconds, mapped_bytes: mapped * bytes, own_bytes: own * bytes });
        }
        found.sort_by_key(|snapshot| snapshot.created_seconds);
        Ok(found)
    }

    async fn take(&self, name: &str) -> Result<(), SnapshotError> {
        let work = self.core.clone().take_snapshot(name.to_owned());
        self.core.rt.spawn(work).await
    }

    async fn remove(&self, name: &str) -> Result<(), SnapshotError> {
        let work = self.core.clone().remove_snapshot(name.to_owned());
        self.core.rt.spawn(work).await
    }

    async fn revert(&self, name: &str) -> Result<(), SnapshotError> {
        let work = self.core.clone().revert_to(name.to_owned());
        self.core.rt.spawn(work).await
    }
}
