//! Other readings: what the array would return if one of its members were wrong.
//!
//! Members have no checksums of data here, so a member that returns wrong data is trusted. A caller with checksums asks
//! for the readings in turn: on a mirror those of each member, with parity those without each member, and where a
//! member is itself redundant its own readings.
//!
//! Invariants
//!   O1  A correction writes only data that some reading returns, on rows that are held: writes newer than the caller's
//!       read are never overwritten with older data.

use std::ops::Range;
use std::rc::Rc;

use futures_util::future::join_all;

use super::core::{Core, count};
use super::shape::{Level, Part};
use crate::device::{Buf, Data, DeviceError, WriteFlags};
use crate::units::{SECTOR_BYTES, Sector};
use crate::volume::members::{bytes, relocate};

/// A way to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// From this member, in its own reading of this number where it has several.
    Of(usize, Option<u32>),
    /// With parity: this member's units computed from all others.
    Without(usize),
}

impl Core {
    fn ways(&self) -> Vec<Way> {
        let own = |member: usize| self.members.borrow()[member].as_ref().map_or(1, |device| device.readings());
        let mut ways = Vec::new();
        for member in 0..self.shape.members {
            if self.shape.level == Level::Parity {
                ways.push(Way::Without(member));
            }
            match own(member) {
                0 | 1 if self.shape.level == Level::Parity => {}
                0 | 1 => ways.push(Way::Of(member, None)),
                several => ways.extend((0..several).map(|reading| Way::Of(member, Some(reading)))),
            }
        }
        ways
    }

    pub(super) fn readings(&self) -> u32 {
        u32::try_from(self.ways().len()).unwrap_or(u32::MAX)
    }

    /// Fills `buf` from `at` in the way `reading`; the range has been checked.
    pub(super) async fn read_as(self: &Rc<Self>, at: Sector, mut buf: Buf, reading: u32) -> Result<Buf, DeviceError> {
        let length = buf.len() as u64;
        let rows = self.shape.rows_of(at, length / SECTOR_BYTES);
        self.touch_for_reading(rows.clone()).await?;
        let Some(way) = self.ways().get(reading as usize).copied() else {
            let cause = "there is no such reading".to_string();
            return Err(DeviceError::Io { operation: "read", at, bytes: length, cause });
        };
        let _rows = self.locks.share_all(rows.clone()).await;
        match (self.shape.level, way) {
            (Level::Mirror, Way::Of(member, own)) => {
                self.check_holds(member, rows, at, length)?;
                let place = self.shape.data_start + at.0;
                self.read_own(member, own, place, &mut buf)
                    .await
                    .map_err(|error| relocate(error, member, at, length))?;
            }
            _ => {
                for part in self.shape.parts(at, length / SECTOR_BYTES).collect::<Vec<_>>() {
                    let target = bytes(part.offset, part.sectors);
                    let unit = self.read_part(&part, way, at, length).await?;
                    buf[target].copy_from_slice(&unit);
                }
            }
        }
        Ok(buf)
    }

    /// A part of a data unit; the caller shares or holds its row.
    async fn read_part(&self, part: &Part, way: Way, at: Sector, length: u64) -> Result<Buf, DeviceError> {
        let member = self.shape.member(part.row, part.index);
        match way {
            Way::Without(left_out) if left_out == member => self.read_others(part, at, length).await,
            Way::Of(asked, own) if asked == member => {
                self.check_holds(member, part.row..part.row + 1, at, length)?;
                let mut unit = Buf::dirty(bytes(0, part.sectors).len());
                let read = self.read_own(member, own, self.shape.at(part.row, part.from), &mut unit).await;
                read.map_err(|error| relocate(error, member, at, length))?;
                Ok(unit)
            }
            // It makes no difference here.
            _ if self.holds(member, part.row) => {
                let mut unit = Buf::dirty(bytes(0, part.sectors).len());
                let read = self.read_own(member, None, self.shape.at(part.row, part.from), &mut unit).await;
                read.map_err(|error| relocate(error, member, at, length))?;
                Ok(unit)
            }
            _ => self.read_others(part, at, length).await,
        }
    }

    /// A part of a data unit, computed from all other members of its row.
    async fn read_others(&self, part: &Part, at: Sector, length: u64) -> Result<Buf, DeviceError> {
        debug_assert!(self.locks.is_locked(part.row), "no task changes a row that something is computed from");
        let member = self.shape.member(part.row, part.index);
        let others: Vec<usize> = (0..self.shape.members).filter(|&other| other != member).collect();
        for &other in &others {
            self.check_holds(other, part.row..part.row + 1, at, length)?;
        }
        if !self.accept_doubt && self.is_in_doubt(part.row, part.from..part.from + part.sectors) {
            let cause = format!("row {} has not been resynchronised, so its parity says nothing", part.row);
            return Err(DeviceError::Io { operation: "read", at, bytes: length, cause });
        }
        let place = self.shape.at(part.row, part.from);
        let results = join_all(others.iter().map(|&other| async move {
            let mut unit = Buf::dirty(bytes(0, part.sectors).len());
            self.read_own(other, None, place, &mut unit).await.map(|()| unit)
        }))
        .await;
        let mut unit = Buf::zeroed(bytes(0, part.sectors).len());
        for (other, result) in others.into_iter().zip(results) {
            let read = result.map_err(|error| relocate(error, other, at, length))?;
            self.add((other, part.row, part.from, part.sectors), &read, &mut unit);
        }
        Ok(unit)
    }

    /// Reads from a member, as usual or in its own reading `own`, in requests of a length that it accepts.
    async fn read_own(&self, member: usize, own: Option<u32>, at: u64, buf: &mut Buf) -> Result<(), DeviceError> {
        let device = self.device(member);
        let sectors = buf.len() as u64 / SECTOR_BYTES;
        let mut done = 0;
        while done < sectors {
            let take = (sectors - done).min(self.request_sectors_max);
            let piece = Buf::dirty(bytes(0, take).len());
            let read = match own {
                None => device.read(Sector(at + done), piece).await?,
                Some(own) => device.read_as(Sector(at + done), piece, own).await?,
            };
            buf[bytes(done, take)].copy_from_slice(&read);
            done += take;
        }
        Ok(())
    }

    fn check_holds(&self, member: usize, rows: Range<u64>, at: Sector, length: u64) -> Result<(), DeviceError> {
        let is_held = self.holds_all(member, rows) && self.members.borrow()[member].is_some();
        match is_held {
            true => Ok(()),
            false => {
                let cause = format!("member {member}, which this reading needs, does not hold it");
                Err(DeviceError::Io { operation: "read", at, bytes: length, cause })
            }
        }
    }

    /// See [`crate::device::BlockDevice::correct`]; the range has been checked.
    pub(super) async fn correct(self: Rc<Self>, at: Sector, data: Data) -> Result<bool, DeviceError> {
        let corrected = {
            let _token = self.begin().await;
            let rows = self.shape.rows_of(at, data.len() as u64 / SECTOR_BYTES);
            let _rows = self.locks.hold_all(rows.clone()).await;
            self.check_running(at, data.len() as u64)?;
            self.resync_held(&rows.clone().collect()).await?;
            match self.shape.level {
                Level::Mirror => self.correct_mirror(at, &data, rows).await,
                Level::Parity => self.correct_parity(at, &data).await,
            }
        };
        self.acknowledge().await?;
        corrected
    }

    async fn correct_mirror(&self, at: Sector, data: &Data, rows: Range<u64>) -> Result<bool, DeviceError> {
        debug_assert!(rows.clone().all(|row| self.locks.is_held(row)), "O1: rows are held while they are corrected");
        let place = self.shape.data_start + at.0;
        let members: Vec<usize> =
            self.in_use().into_iter().filter(|&member| self.holds_all(member, rows.clone())).collect();
        let (mut is_known, mut wrong, mut any) = (false, Vec::new(), false);
        for &member in &members {
            match self.has(member, place, data).await {
                Has::Right { corrected } => {
                    is_known = true;
                    any |= corrected;
                }
                Has::Else => wrong.push(member),
            }
        }
        if is_known {
            for member in wrong {
                any |= self.put_right(member, place, data, at).await?;
            }
        }
        Ok(any)
    }

    async fn correct_parity(&self, at: Sector, data: &Data) -> Result<bool, DeviceError> {
        let (length, mut any) = (data.len() as u64, false);
        for part in self.shape.parts(at, length / SECTOR_BYTES).collect::<Vec<_>>() {
            debug_assert!(self.locks.is_held(part.row), "O1: a row is held while it is corrected");
            let member = self.shape.member(part.row, part.index);
            if !self.holds(member, part.row) {
                continue;
            }
            let (right, place) = (data.slice(bytes(part.offset, part.sectors)), self.shape.at(part.row, part.from));
            match self.has(member, place, &right).await {
                Has::Right { corrected } => any |= corrected,
                Has::Else => {
                    let others = self.read_others(&part, at, length).await;
                    // O1
                    if others.is_ok_and(|others| others[..] == right[..]) {
                        any |= self.put_right(member, place, &right, at).await?;
                    }
                }
            }
        }
        Ok(any)
    }

    /// True when a member holds `right`, in any reading. If it has several readings, it corrects the others itself.
    async fn has(&self, member: usize, place: u64, right: &Data) -> Has {
        let device = self.device(member);
        let mut read = Buf::dirty(right.len());
        let is_usual = self.read_own(member, None, place, &mut read).await.is_ok() && read[..] == right[..];
        if device.readings() < 2 {
            return if is_usual { Has::Right { corrected: false } } else { Has::Else };
        }
        let (sectors, longest) = (right.len() as u64 / SECTOR_BYTES, self.request_sectors_max);
        let (mut corrected, mut done) = (false, 0);
        while done < sectors {
            let take = (sectors - done).min(longest);
            let piece = right.slice(bytes(done, take));
            corrected |= device.correct(Sector(place + done), piece).await.unwrap_or(false);
            done += take;
        }
        let is_now = self.read_own(member, None, place, &mut read).await.is_ok() && read[..] == right[..];
        if is_now { Has::Right { corrected } } else { Has::Else }
    }

    async fn put_right(&self, member: usize, place: u64, right: &Data, at: Sector) -> Result<bool, DeviceError> {
        self.note_wrong(member);
        let (device, sectors) = (self.device(member), right.len() as u64 / SECTOR_BYTES);
        let mut done = 0;
        while done < sectors {
            let take = (sectors - done).min(self.request_sectors_max);
            match device.write(Sector(place + done), right.slice(bytes(done, take)), WriteFlags::NONE).await {
                Ok(()) => {}
                Err(error @ (DeviceError::NoSpace { .. } | DeviceError::ReadOnly)) => {
                    return Err(relocate(error, member, at, right.len() as u64));
                }
                Err(error) => {
                    // A member that rejects writes is dropped.
                    return match self.fail(member, &error) {
                        true => Ok(false),
                        false => Err(relocate(error, member, at, right.len() as u64)),
                    };
                }
            }
            done += take;
        }
        count(&self.counts.corrected);
        Ok(true)
    }

    /// Counts that `member` returned wrong data.
    pub(super) fn note_wrong(&self, member: usize) {
        count(&self.wrong[member]);
    }
}

enum Has {
    Right {
        /// A part of it was wrong.
        corrected: bool,
    },
    Else,
}
