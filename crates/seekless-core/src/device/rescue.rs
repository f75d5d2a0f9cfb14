//! Reads what a failing medium still returns.
//!
//! A drive succeeds or fails for a whole request: one unreadable sector fails the read of a megabyte. Where the caller
//! has a copy of the lost part, or a checksum, the rest of the request is worth reading. A device that does not answer
//! at all remains an error.
//!
//! Where storage below is redundant, data that is lost or wrong in the usual reading may be right in another.

use std::ops::Range;

use super::{Buf, Device, DeviceError, read_right};
use crate::units::{SECTOR_BYTES, Sector};

/// A read that fails is repeated in this many parts, recursively down to single blocks: one bad block in a request of
/// 512 KiB is tried three times, and everything else about once.
const PARTS: u64 = 16;

/// Sectors, as far as they could be read.
#[derive(Debug)]
pub struct Rescued {
    /// Zeroes where nothing could be read.
    pub bytes: Buf,
    /// The unreadable ranges, in blocks of the device, by address, with the device's error.
    pub lost: Vec<(Range<Sector>, DeviceError)>,
}

impl Rescued {
    /// The device's error for the first lost block among `sectors` from `at` on.
    pub fn lost_in(&self, at: Sector, sectors: u64) -> Option<&DeviceError> {
        let touches = |range: &Range<Sector>| range.start < at + sectors && at < range.end;
        self.lost.iter().find(|(range, _)| touches(range)).map(|(_, error)| error)
    }
}

/// Reads `sectors` from `at`, which need not be aligned to the device's blocks.
///
/// # Errors
/// When the device is gone, or the request is invalid: everything except an unreadable medium.
pub async fn rescue(device: &Device, at: Sector, sectors: u64) -> Result<Rescued, DeviceError> {
    rescue_as(device, at, sectors, None).await
}

/// As [`rescue`], for data that carries its own checksum. If it is wrong or partly lost and another reading of the
/// device is right, returns that one, with nothing lost. The caller still checks the result.
///
/// # Errors
/// As [`rescue`].
pub async fn rescue_right(
    device: &Device,
    at: Sector,
    sectors: u64,
    is_right: impl Fn(&[u8]) -> bool,
) -> Result<Rescued, DeviceError> {
    let read = rescue(device, at, sectors).await?;
    if read.lost.is_empty() && is_right(&read.bytes) {
        return Ok(read);
    }
    let right = read_right(device, at, sectors, is_right).await;
    Ok(right.map_or(read, |bytes| Rescued { bytes, lost: Vec::new() }))
}

/// Reads data that carries its own checksum. If it is wrong or unreadable and another reading of the storage below is
/// right, returns that one and corrects the storage. The caller still checks the result.
///
/// # Errors
/// Those of the device, when a part of it cannot be read in any way.
pub async fn read_checked(
    device: &Device,
    at: Sector,
    sectors: u64,
    is_right: impl Fn(&[u8]) -> bool,
) -> Result<Buf, DeviceError> {
    let mut read = rescue_right(device, at, sectors, is_right).await?;
    read.lost.pop().map_or(Ok(read.bytes), |(_, error)| Err(error))
}

/// As [`rescue`], in the way `reading`, see [`super::BlockDevice::read_as`].
///
/// # Errors
/// As [`rescue`].
pub async fn rescue_as(
    device: &Device,
    at: Sector,
    sectors: u64,
    reading: Option<u32>,
) -> Result<Rescued, DeviceError> {
    let read = async |at, buf| match reading {
        None => device.read(at, buf).await,
        Some(reading) => device.read_as(at, buf, reading).await,
    };
    let geometry = device.geometry();
    let block = u64::from(geometry.block_bytes) / SECTOR_BYTES;
    let (first, end) = (at.0 / block * block, (at.0 + sectors).next_multiple_of(block));
    let most = (u64::from(geometry.request_bytes_max) / SECTOR_BYTES / block * block).max(block);
    let zeroed = || Buf::zeroed(((end - first) * SECTOR_BYTES) as usize);
    let mut whole: Option<Buf> = None;
    let mut lost = Vec::new();
    // The part to read next is the last.
    let mut parts = vec![(first, end)];
    while let Some((from, to)) = parts.pop() {
        let split = |step: u64| {
            let starts: Vec<u64> = (from..to).step_by(step as usize).collect();
            starts.into_iter().rev().map(move |start| (start, (start + step).min(to)))
        };
        if to - from > most {
            parts.extend(split(most));
            continue;
        }
        match read(Sector(from), Buf::dirty(((to - from) * SECTOR_BYTES) as usize)).await {
            // Nearly always one request reads everything.
            Ok(piece) if (from, to) == (at.0, at.0 + sectors) => return Ok(Rescued { bytes: piece, lost }),
            Ok(piece) => {
                let whole = whole.get_or_insert_with(zeroed);
                let offset = ((from - first) * SECTOR_BYTES) as usize;
                whole[offset..offset + piece.len()].copy_from_slice(&piece);
            }
            Err(error) if !error.is_of_medium() => return Err(error),
            Err(error) if to - from <= block => lost.push((Sector(from)..Sector(to), error)),
            Err(_) => parts.extend(split(((to - from) / PARTS).next_multiple_of(block).max(block))),
        }
    }
    let whole = whole.unwrap_or_else(zeroed);
    let bytes = match first == at.0 && end == at.0 + sectors {
        true => whole,
        false => {
            let skip = ((at.0 - first) * SECTOR_BYTES) as usize;
            Buf::from_slice(&whole[skip..skip + (sectors * SECTOR_BYTES) as usize])
        }
    };
    Ok(Rescued { bytes, lost })
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
    use crate::device::{Data, Memory, WriteFlags};
    use crate::rt::{Executor, HostProfile, Rt};

    const SECTORS: u64 = 1024;

    fn run(body: impl AsyncFnOnce(Rt, Device, Rc<FaultDevice>)) {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let memory = Rc::new(Memory::new(SECTORS * SECTOR_BYTES));
        let fault = FaultDevice::new(&rt, memory.clone(), 7);
        executor.block_on(body(rt, memory, fault)).expect("nothing waits indefinitely");
    }

    /// Everything but the bad blocks is read, with few requests, wherever the bad ones are.
    #[test]
    fn bad_blocks_cost_themselves_alone() {
        run(async |_, memory, fault| {
            for sector in 0..SECTORS {
                let bytes = Data::from_slice(&[sector as u8 | 1; SECTOR_BYTES as usize]);
                memory.write(Sector(sector), bytes, WriteFlags::NONE).await.expect("memory");
            }
            let device: Device = fault.clone();
            for bad in [&[0_u64][..], &[1023], &[500], &[77, 78, 900]] {
                fault.clear();
                for &sector in bad {
                    let range = Sector(sector)..Sector(sector + 1);
                    fault.add(Rule::new(Kinds::READ, When::Always, Effect::Error).within(range));
                }
                let before = fault.failed();
                let rescued = rescue(&device, Sector(0), SECTORS).await.expect("it is there");
                let lost: Vec<u64> = rescued.lost.iter().map(|(range, _)| range.start.0).collect();
                assert_eq!(lost, bad);
                for (sector, bytes) in rescued.bytes.chunks_exact(SECTOR_BYTES as usize).enumerate() {
                    let expected = if bad.contains(&(sector as u64)) { 0 } else { sector as u8 | 1 };
                    assert!(bytes.iter().all(|&byte| byte == expected), "{bad:?}: sector {sector}");
                }
                assert!(fault.failed() - before <= 4 * bad.len() as u64, "{bad:?}: {}", fault.failed() - before);
                assert!(rescued.lost_in(Sector(bad[0]), 1).is_some() && rescued.lost_in(Sector(200), 8).is_none());
            }
        });
    }

    /// A device that is gone, from the start or midway, gives an error and not zeroes.
    #[test]
    fn gone_is_no_bad_block() {
        run(async |_, _, fault| {
            let range = Sector(300)..Sector(301);
            fault.add(Rule::new(Kinds::READ, When::Always, Effect::Error).within(range));
            fault.add(Rule::new(Kinds::READ, When::Nth(4), Effect::Gone));
            let device: Device = fault.clone();
            let error = rescue(&device, Sector(0), SECTORS).await.expect_err("it has gone");
            assert!(matches!(error, DeviceError::Gone(_)), "{error}");
        });
    }
}
