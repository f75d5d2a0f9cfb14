//! Content of a device before it becomes a member: a new member is overwritten, so it should hold nothing of value.

use super::open::{Membership, look};
use crate::device::{Buf, Device, DeviceError};
use crate::rt::Rt;
use crate::units::{MIB, Nanos, SECTOR_BYTES, Sector, human_bytes};

/// Bytes read at once.
const PIECE_BYTES: u64 = MIB;

/// What overwriting `device` would lose, as the end of "it holds ..."; `None` when every byte is zero. Holes are skipped.
/// The search ends after `patience`; what it did not reach counts as content.
///
/// # Errors
/// When the device cannot be read.
pub async fn content(rt: &Rt, device: &Device, patience: Nanos) -> Result<Option<String>, DeviceError> {
    if let Membership::Member(superblock) = look(device).await? {
        return Ok(Some(format!("member {} of an array", superblock.slot)));
    }
    let begun = rt.now();
    let geometry = device.geometry();
    let bytes = geometry.bytes();
    let piece_bytes = PIECE_BYTES.min(u64::from(geometry.request_bytes_max)).max(u64::from(geometry.block_bytes));
    // The end first: partition tables and other arrays have a copy there, and a search of a large device may not reach it.
    let last = bytes.saturating_sub(1) / piece_bytes * piece_bytes;
    let look = async |start: u64, end: u64| -> Result<Option<String>, DeviceError> {
        let piece = device.read(Sector(start / SECTOR_BYTES), Buf::dirty((end - start) as usize)).await?;
        let found = piece.iter().position(|&byte| byte != 0);
        Ok(found.map(|at| format!("data (at byte {} of {})", start + at as u64, human_bytes(bytes))))
    };
    if let Some(found) = look(last, bytes).await? {
        return Ok(Some(found));
    }
    let mut searched = 0;
    while let Some(data) = device.next_data(Sector(searched / SECTOR_BYTES)).await?
        && data.byte_offset() < last
    {
        let start = data.byte_offset();
        searched = last.min(start + piece_bytes);
        if let Some(found) = look(start, searched).await? {
            return Ok(Some(found));
        }
        if rt.now() - begun > patience {
            let (seen, seconds) = (human_bytes(searched), patience.0 / Nanos::from_secs(1).0);
            let bytes = human_bytes(bytes);
            return Ok(Some(format!("what cannot be known in {seconds} s: its first {seen} of {bytes} are zeroes")));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
    use crate::device::{BlockDevice, Data, Memory, WriteFlags};
    use crate::rt::{Executor, HostProfile};

    const PATIENCE: Nanos = Nanos::from_secs(20);

    /// Aim: a new member as large as it gets is called blank at once if it is a hole, and data in it is found wherever it is. Method: 8 TiB on
    /// which a read takes a millisecond, so that reading all of it would take hours.
    #[test]
    fn a_large_hole_is_blank_at_once() {
        const BYTES: u64 = 8 << 40;
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            for at in [
                None,
                Some(0),
                Some(100 << 30),
                Some(BYTES / 3 * 2 / 512 * 512),
                Some(BYTES - MIB - 512),
                Some(BYTES - 512),
            ] {
                let memory = Rc::new(Memory::new(BYTES));
                if let Some(at) = at {
                    let data = Data::from_slice(&[3; 512]);
                    memory.write(Sector(at / SECTOR_BYTES), data, WriteFlags::NONE).await.unwrap();
                }
                let slow = FaultDevice::new(&rt, memory, 1);
                let millisecond = Nanos::from_millis(1);
                slow.add(Rule::new(Kinds::READ, When::Always, Effect::Delay(millisecond..=millisecond)));
                let (begun, device) = (rt.now(), slow as Device);
                let found = content(&rt, &device, PATIENCE).await.unwrap();
                assert_eq!(found, at.map(|at| format!("data (at byte {at} of 8 TiB)")));
                assert!(rt.now() - begun < Nanos::from_millis(10), "{at:?}: {:?}", rt.now() - begun);
            }
        };
        executor.block_on(run).unwrap();
    }

    /// What is written, even with zeroes, is read; without time for that, the device is not called blank.
    #[test]
    fn what_is_not_known_is_not_blank() {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let memory = Rc::new(Memory::new(8 * MIB));
            // Memory remembers that something was written beside them.
            for at in (0..8 * MIB / SECTOR_BYTES).step_by(8) {
                memory.write(Sector(at), Data::from_slice(&[1; 512]), WriteFlags::NONE).await.unwrap();
                memory.write(Sector(at), Data::zeroes(512), WriteFlags::NONE).await.unwrap();
            }
            let slow = FaultDevice::new(&rt, memory, 1);
            let second = Nanos::from_secs(1);
            slow.add(Rule::new(Kinds::READ, When::Always, Effect::Delay(second..=second)));
            let device: Device = slow;
            assert_eq!(content(&rt, &device, PATIENCE).await.unwrap(), None);
            let found = content(&rt, &device, Nanos::from_secs(5)).await.unwrap();
            let cannot = "what cannot be known in 5 s: its first 5 MiB of 8 MiB are zeroes";
            assert_eq!(found.as_deref(), Some(cannot));
        };
        executor.block_on(run).unwrap();
    }
}
