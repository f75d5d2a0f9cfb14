//! The member writes of one request.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;

use super::plan::Fragment;
use super::rows::Ranges;
use crate::device::{Buf, Data, DeviceError, Discard, WriteFlags};
use crate::units::{SECTOR_BYTES, Sector};
use crate::volume::format::{KIND_DATA, KIND_ZEROES, RecordEntry};
use crate::volume::members::bytes;

/// Zeroes that are written at once.
const ZEROES_SECTORS_MAX: u64 = (1 << 20) / SECTOR_BYTES;

/// A write to one member.
#[derive(Clone)]
pub(super) struct MemberWrite {
    pub(super) member: usize,
    pub(super) at: u64,
    pub(super) sectors: u64,
    /// `None` for the zeroes of a discard.
    data: Option<Data>,
}

impl MemberWrite {
    pub(super) fn new(member: usize, at: u64, data: Data) -> MemberWrite {
        debug_assert!((data.len() as u64).is_multiple_of(SECTOR_BYTES), "members are written in whole sectors");
        MemberWrite { member, at, sectors: data.len() as u64 / SECTOR_BYTES, data: Some(data) }
    }

    pub(super) fn zeroes(member: usize, at: u64, sectors: u64) -> MemberWrite {
        MemberWrite { member, at, sectors, data: None }
    }

    pub(super) fn data(&self) -> Option<&Data> {
        self.data.as_ref()
    }

    /// Its part in these sectors of the member.
    pub(super) fn part(&self, sectors: Range<u64>) -> MemberWrite {
        let (from, length) = (sectors.start - self.at, sectors.end - sectors.start);
        debug_assert!(from + length <= self.sectors, "a part of a write lies in it");
        let data = self.data.as_ref().map(|data| data.slice(bytes(from, length)));
        MemberWrite { member: self.member, at: sectors.start, sectors: length, data }
    }

    /// The same with data of its own, which keeps no longer request in memory.
    pub(super) fn copied(self) -> MemberWrite {
        MemberWrite { data: self.data.map(|data| Data::from_slice(&data)), ..self }
    }

    /// Bytes of data.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.data.as_ref().map_or(0, |data| data.len() as u64)
    }

    /// The same in pieces of at most `sectors_max`. Zeroes are not cut: discards have no length limit.
    fn cut(self, sectors_max: u64) -> Vec<MemberWrite> {
        let Some(data) = self.data.as_ref().filter(|_| self.sectors > sectors_max) else { return vec![self] };
        let mut pieces = Vec::new();
        let mut done = 0;
        while done < self.sectors {
            let take = (self.sectors - done).min(sectors_max);
            pieces.push(MemberWrite::new(self.member, self.at + done, data.slice(bytes(done, take))));
            done += take;
        }
        debug_assert_eq!(
            pieces.iter().map(|piece| piece.sectors).sum::<u64>(),
            self.sectors,
            "no sector is lost by cutting"
        );
        pieces
    }

    /// Puts its part of the sectors from `at` on into `target`, which is what the member has there.
    pub(super) fn lay_over(&self, at: u64, target: &mut [u8]) {
        let sectors = target.len() as u64 / SECTOR_BYTES;
        let (from, to) = (self.at.max(at), (self.at + self.sectors).min(at + sectors));
        if from < to {
            let target = &mut target[bytes(from - at, to - from)];
            match &self.data {
                Some(data) => target.copy_from_slice(&data[bytes(from - self.at, to - from)]),
                None => target.fill(0),
            }
        }
    }

    /// The journal entry for it.
    pub(super) fn entry(&self) -> RecordEntry {
        let kind = if self.data.is_some() { KIND_DATA } else { KIND_ZEROES };
        RecordEntry { at: self.at, sectors: self.sectors as u32, member: self.member as u16, kind }
    }

    pub(super) async fn apply(&self, device: &crate::device::Device, flags: WriteFlags) -> Result<(), DeviceError> {
        match &self.data {
            Some(data) => device.write(Sector(self.at), data.clone(), flags).await,
            None if device.guarantees().discard == Discard::Zeroes => {
                device.discard(Sector(self.at), self.sectors).await
            }
            None => self.write_zeroes(device, flags).await,
        }
    }

    /// Zeroes for a member that does not promise them after a discard: it is not the one for which they were recorded.
    async fn write_zeroes(&self, device: &crate::device::Device, flags: WriteFlags) -> Result<(), DeviceError> {
        let longest = u64::from(device.geometry().request_bytes_max / SECTOR_BYTES as u32).clamp(1, ZEROES_SECTORS_MAX);
        let mut done = 0;
        while done < self.sectors {
            let take = (self.sectors - done).min(longest);
            device.write(Sector(self.at + done), Data::zeroes(bytes(0, take).len()), flags).await?;
            done += take;
        }
        Ok(())
    }
}

/// A write to be repeated, and the record of the journal that holds it.
#[derive(Clone)]
pub(super) struct DeferredWrite {
    pub(super) write: MemberWrite,
    pub(super) record: Option<u64>,
}

/// What a row lacks because a member had no space, see [`super::deferred`].
#[derive(Default)]
pub(super) struct Deferred {
    /// With parity: in the order in which they are to be done.
    pub(super) writes: Vec<DeferredWrite>,
    /// On a mirror: sectors of the unit in which its copies may differ, and members that had no space for some of them.
    pub(super) differing: Ranges,
    pub(super) lacking: BTreeSet<usize>,
}

impl Deferred {
    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.differing.len() == 0
    }

    /// All of it is in records of the journal.
    pub(super) fn is_recorded(&self) -> bool {
        self.differing.len() == 0 && self.writes.iter().all(|deferred| deferred.record.is_some())
    }
}

/// What became of a write to rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Written {
    All,
    /// Nothing: the state of the members must be recorded first (J6), or what needs the journal has changed. To be
    /// begun again.
    Nothing,
}

/// Data for one row, and what became of it.
pub(super) struct QueuedWrite {
    pub(super) fragments: Vec<Fragment>,
    pub(super) flags: WriteFlags,
    pub(super) result: RefCell<Option<Result<Written, DeviceError>>>,
}

/// Neighbours on a member become one write of at most `sectors_max`.
pub(super) fn merge(writes: Vec<MemberWrite>, sectors_max: u64) -> Vec<MemberWrite> {
    let mut writes: Vec<MemberWrite> = writes.into_iter().flat_map(|write| write.cut(sectors_max)).collect();
    writes.sort_by_key(|write| (write.member, write.at));
    let total: u64 = writes.iter().map(|write| write.sectors).sum();
    let mut merged: Vec<Vec<MemberWrite>> = Vec::new();
    for write in writes {
        let fits = |group: &&mut Vec<MemberWrite>| {
            let sectors: u64 = group.iter().map(|write| write.sectors).sum();
            let first = &group[0];
            first.member == write.member
                && first.at + sectors == write.at
                && first.data.is_some() == write.data.is_some()
                && sectors + write.sectors <= sectors_max
        };
        match merged.last_mut().filter(fits) {
            Some(group) => group.push(write),
            None => merged.push(vec![write]),
        }
    }
    let merged: Vec<MemberWrite> = merged.into_iter().map(join).collect();
    debug_assert_eq!(merged.iter().map(|write| write.sectors).sum::<u64>(), total, "no write is lost by merging");
    merged
}

fn join(mut group: Vec<MemberWrite>) -> MemberWrite {
    if group.len() == 1
        && let Some(only) = group.pop()
    {
        return only;
    }
    let (member, at) = (group[0].member, group[0].at);
    let sectors: u64 = group.iter().map(|write| write.sectors).sum();
    if group[0].data.is_none() {
        return MemberWrite::zeroes(member, at, sectors);
    }
    if group.iter().all(|write| write.data.as_ref().is_some_and(Data::is_hole)) {
        return MemberWrite::new(member, at, Data::zeroes(bytes(0, sectors).len()));
    }
    let mut joined = Buf::dirty(bytes(0, sectors).len());
    let mut done = 0;
    for write in &group {
        if let Some(data) = &write.data {
            joined[bytes(done, write.sectors)].copy_from_slice(data);
            done += write.sectors;
        }
    }
    MemberWrite::new(member, at, joined.freeze())
}
