//! Content of a device before it becomes a member: a new member is overwritten, so it should hold nothing of value.

use super::open::{Membership, look};
use crate::device::{Buf, Device, DeviceError};
use crate::rt::Rt;
use crate::units::{MIB, Nanos, SECTOR_BYTES, Sector, human_bytes};

/// Bytes read at once.
const PIECE_BYTES: u64 = MIB;

/// What overwriting `device` would lose, as the end of "it holds ..."; `None` when every byte is zero. The search ends
/// after `patience`; what it did not reach counts as content.
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
    for start in std::iter::once(last).chain((0..last).step_by(piece_bytes as usize)) {
        let end = bytes.min(start + piece_bytes);
        let piece = device.read(Sector(start / SECTOR_BYTES), Buf::dirty((end - start) as usize)).await?;
        if let Some(at) = piece.iter().position(|&byte| byte != 0) {
            return Ok(Some(format!("data (at byte {} of {})", start + at as u64, human_bytes(bytes))));
        }
        if start != last && rt.now() - begun > patience {
            let (seen, seconds) = (human_bytes(end), patience.0 / Nanos::from_secs(1).0);
            let bytes = human_bytes(bytes);
            return Ok(Some(format!("what cannot be known in {seconds} s: its first {seen} of {bytes} are zeroes")));
        }
    }
    Ok(None)
}
