//! Reads redundant storage until a checksum accepts the data.
//!
//! An array cannot tell which of its members returned wrong data: it has no checksums of data. A caller that has
//! checksums tries the other readings, and has the matching one written back.

use super::{Buf, Device, DeviceError};
use crate::units::{SECTOR_BYTES, Sector};

/// Reads `sectors` at `at`, split and aligned as the device requires: as usual, or in the way `reading`, see
/// [`super::BlockDevice::read_as`].
///
/// # Errors
/// Those of the device.
pub async fn read_span(device: &Device, at: Sector, sectors: u64, reading: Option<u32>) -> Result<Buf, DeviceError> {
    let read = async |at, buf| match reading {
        None => device.read(at, buf).await,
        Some(reading) => device.read_as(at, buf, reading).await,
    };
    let (first, end) = aligned(device, at, sectors);
    let most = longest(device);
    if first == at.0 && end == at.0 + sectors && sectors <= most {
        return read(at, Buf::dirty((sectors * SECTOR_BYTES) as usize)).await;
    }
    let mut whole = Buf::dirty(((end - first) * SECTOR_BYTES) as usize);
    let mut from = first;
    while from < end {
        let take = most.min(end - from);
        let piece = read(Sector(from), Buf::dirty((take * SECTOR_BYTES) as usize)).await?;
        let offset = ((from - first) * SECTOR_BYTES) as usize;
        whole[offset..offset + piece.len()].copy_from_slice(&piece);
        from += take;
    }
    let skip = ((at.0 - first) * SECTOR_BYTES) as usize;
    Ok(Buf::from_slice(&whole[skip..skip + (sectors * SECTOR_BYTES) as usize]))
}

/// Sectors of the whole blocks around a range: the first, and past the last.
fn aligned(device: &Device, at: Sector, sectors: u64) -> (u64, u64) {
    let align = u64::from(device.geometry().block_bytes) / SECTOR_BYTES;
    (at.0 / align * align, (at.0 + sectors).next_multiple_of(align))
}

/// Sectors of the longest request.
fn longest(device: &Device) -> u64 {
    let geometry = device.geometry();
    let align = u64::from(geometry.block_bytes) / SECTOR_BYTES;
    (u64::from(geometry.request_bytes_max) / SECTOR_BYTES / align * align).max(align)
}

/// The reading of `sectors` at `at` that `is_right` accepts, when the usual one was wrong; `None` where there is none.
/// The result is written to the members that hold something else.
pub async fn read_right(device: &Device, at: Sector, sectors: u64, is_right: impl Fn(&[u8]) -> bool) -> Option<Buf> {
    let readings = device.readings();
    if readings < 2 {
        return None;
    }
    let (first, end) = aligned(device, at, sectors);
    let from = ((at.0 - first) * SECTOR_BYTES) as usize;
    let wanted = from..from + (sectors * SECTOR_BYTES) as usize;
    let around = end - first;
    let usual = read_span(device, Sector(first), around, None).await;
    for reading in 0..readings {
        let Ok(found) = read_span(device, Sector(first), around, Some(reading)).await else { continue };
        if !is_right(&found[wanted.clone()]) {
            continue;
        }
        // The other bytes of the same blocks are unverified, so they must not change.
        let is_all_known = wanted == (0..found.len())
            || usual.as_ref().is_ok_and(|usual| {
                usual[..wanted.start] == found[..wanted.start] && usual[wanted.end..] == found[wanted.end..]
            });
        if is_all_known {
            write_back(device, first, &found).await;
        }
        return Some(match wanted == (0..found.len()) {
            true => found,
            false => Buf::from_slice(&found[wanted]),
        });
    }
    None
}

/// Has `right` written to members that hold something else. What cannot be corrected now is found again later.
async fn write_back(device: &Device, first: u64, right: &[u8]) {
    let step = longest(device);
    for (index, piece) in right.chunks((step * SECTOR_BYTES) as usize).enumerate() {
        let _ = device.correct(Sector(first + index as u64 * step), super::Data::from_slice(piece)).await;
    }
}
