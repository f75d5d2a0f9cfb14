//! Choosing the superblock to rely on.
//!
//! Parameters that never change are stored in the superblock and in a copy in each group. There is no checksum; so a
//! plausible number that differs from those in the copies would make the check take sound files for damaged ones. The
//! majority is trusted, and without a majority none is.

use std::collections::BTreeMap;

use super::super::format::*;
use super::super::layout::Layout;
use super::super::{Volume, find_volume, is_ufs2, volume_from};
use crate::device::Device;
use crate::device::rescue::rescue;
use crate::fs::{FsError, FsResult};
use crate::units::{SECTOR_BYTES, Sector};

/// Copies read: with the superblock itself enough for a majority.
const COPIES_MAX: usize = 4;

/// The volume to rely on, and what had to be repaired for that.
///
/// # Errors
/// `Corrupt` when there is no usable superblock, or no majority.
pub(super) async fn choose(device: &Device) -> FsResult<(Volume, Option<String>)> {
    let volume = match find_volume(device).await {
        Ok(volume) => volume,
        Err(error) => return volume_of_copy(device, error).await,
    };
    let own = fixed(&volume.superblock);
    let mut votes: BTreeMap<Vec<u64>, (u32, Option<Superblock>)> = BTreeMap::from([(own.clone(), (1, None))]);
    for group in volume.layout.group_numbers().take(COPIES_MAX) {
        if let Some(copy) = read_copy(device, &volume.layout, group).await? {
            // Only the primary tells how it differs from generation to generation.
            let vote = votes.entry(fixed(&copy)).or_insert((0, Some(copy)));
            vote.0 += 1;
        }
    }
    if votes.len() == 1 {
        return Ok((volume, None));
    }
    let most = votes.values().map(|vote| vote.0).max().unwrap_or(0);
    let mut leaders = votes.iter().filter(|(_, vote)| vote.0 == most);
    match (leaders.next(), leaders.next()) {
        (Some((said, _)), None) if *said == own => Ok((volume, None)), // A copy is damaged, which is harmless.
        (Some((said, (_, Some(copy)))), None) => {
            let mut superblock = volume.superblock;
            take_fixed(&mut superblock, copy);
            let mut raw = volume.raw;
            superblock.encode(&mut raw);
            let geometry = device.geometry();
            let text = format!("the superblock differs from its copies: {}; they are used", differences(&own, said));
            Ok((volume_from(raw, superblock, geometry.bytes(), geometry.block_bytes)?, Some(text)))
        }
        (Some((one, _)), Some((two, _))) => {
            let other = if *one == own { two } else { one };
            let detail =
                format!("it differs from its copy, and which is right is unknown: {}", differences(&own, other));
            Err(FsError::corrupt("superblock", format_args!("byte {SUPERBLOCK_OFFSET}"), detail))
        }
        _ => Ok((volume, None)),
    }
}

/// The volume as a copy of its superblock describes it, since the superblock itself is unusable because of `error`, and
/// the warning about that.
///
/// # Errors
/// `error` when there is no copy, or a copy does not help.
pub(in super::super) async fn volume_of_copy(device: &Device, error: FsError) -> FsResult<(Volume, Option<String>)> {
    // What UFS1 has left behind on a volume that is UFS2 now is not a copy.
    if !error.is_of_one_place() || is_ufs2(device).await?.is_some() {
        return Err(error);
    }
    match find_copy(device).await? {
        Some(volume) => Ok((volume, Some(format!("{error}; a copy of the superblock is used")))),
        None => Err(error),
    }
}

/// A damaged copy of the superblock.
pub(super) struct BadCopy {
    pub group: GroupNo,
    pub at: Sector,
    pub why: String,
}

/// The damaged copies of the superblock.
pub(super) async fn bad_copies(device: &Device, volume: &Volume) -> FsResult<Vec<BadCopy>> {
    let mut bad = Vec::new();
    for group in volume.layout.group_numbers() {
        let Some(at) = copy_place(&volume.layout, group) else { continue };
        let read = rescue(device, at, SUPERBLOCK_BYTES as u64 / SECTOR_BYTES).await?;
        let why = match (read.lost.first(), decode_superblock(&read.bytes)) {
            (Some((_, error)), _) => format!("cannot be read: {error}"),
            (None, Err(_)) => "is damaged".to_string(),
            (None, Ok(copy)) if fixed(&copy) != fixed(&volume.superblock) => {
                format!("differs: {}", differences(&fixed(&copy), &fixed(&volume.superblock)))
            }
            (None, Ok(_)) => continue,
        };
        bad.push(BadCopy { group, at, why });
    }
    Ok(bad)
}

/// The sector of a group's copy, if it has one.
fn copy_place(layout: &Layout, group: GroupNo) -> Option<Sector> {
    let at = layout.superblock_copy(group);
    let end = at.checked_add((SUPERBLOCK_BYTES as u32).div_ceil(layout.frag_bytes))?;
    (end <= layout.end()).then(|| layout.sector(at))
}

/// Searches for a copy of the superblock where the first group has it.
async fn find_copy(device: &Device) -> FsResult<Option<Volume>> {
    let geometry = device.geometry();
    for offset in [16_384_u64, 32_768, 65_536] {
        if geometry.bytes() < offset + SUPERBLOCK_BYTES as u64 {
            continue;
        }
        let read = rescue(device, Sector(offset / SECTOR_BYTES), SUPERBLOCK_BYTES as u64 / SECTOR_BYTES).await?;
        if !read.lost.is_empty() {
            continue;
        }
        let raw = read.bytes.to_vec();
        if let Ok(mut superblock) = decode_superblock(&raw)
            && u64::from(superblock.sblkno) * u64::from(superblock.fsize) == offset
        {
            superblock.clean = 0;
            if let Ok(volume) = volume_from(raw, superblock, geometry.bytes(), geometry.block_bytes) {
                return Ok(Some(volume));
            }
        }
    }
    Ok(None)
}

/// The copy in a group, if there is a recognisable one.
async fn read_copy(device: &Device, layout: &Layout, group: GroupNo) -> FsResult<Option<Superblock>> {
    let Some(at) = copy_place(layout, group) else { return Ok(None) };
    let read = rescue(device, at, SUPERBLOCK_BYTES as u64 / SECTOR_BYTES).await?;
    Ok(decode_superblock(&read.bytes).ok().filter(|_| read.lost.is_empty()))
}

/// Names of the fields that hold positions, and never change. 4.4BSD's successors convert other fields when they mount
/// a volume of the first generation, without changing the copies.
const FIXED: [&str; 21] = [
    "sblkno",
    "cblkno",
    "iblkno",
    "dblkno",
    "cgoffset",
    "cgmask",
    "old_size",
    "ncg",
    "bsize",
    "fsize",
    "frag",
    "nindir",
    "inopb",
    "old_csaddr",
    "cssize",
    "cgsize",
    "ipg",
    "fpg",
    "contigsumsize",
    "maxsymlinklen",
    "inodefmt",
];

/// The values of [`FIXED`].
fn fixed(superblock: &Superblock) -> Vec<u64> {
    let mut sb = *superblock;
    fixed_fields(&mut sb).map(|field| u64::from(*field)).to_vec()
}

fn take_fixed(superblock: &mut Superblock, from: &Superblock) {
    let mut from = *from;
    for (field, value) in fixed_fields(superblock).into_iter().zip(fixed_fields(&mut from)) {
        *field = *value;
    }
    if superblock.is_updated() && from.is_updated() {
        (superblock.size, superblock.dsize, superblock.csaddr) = (from.size, from.dsize, from.csaddr);
    }
}

/// The fields of [`FIXED`].
fn fixed_fields(sb: &mut Superblock) -> [&mut u32; FIXED.len()] {
    [
        &mut sb.sblkno,
        &mut sb.cblkno,
        &mut sb.iblkno,
        &mut sb.dblkno,
        &mut sb.cgoffset,
        &mut sb.cgmask,
        &mut sb.old_size,
        &mut sb.ncg,
        &mut sb.bsize,
        &mut sb.fsize,
        &mut sb.frag,
        &mut sb.nindir,
        &mut sb.inopb,
        &mut sb.old_csaddr,
        &mut sb.cssize,
        &mut sb.cgsize,
        &mut sb.ipg,
        &mut sb.fpg,
        &mut sb.contigsumsize,
        &mut sb.maxsymlinklen,
        &mut sb.inodefmt,
    ]
}

fn differences(own: &[u64], other: &[u64]) -> String {
    let named = FIXED.iter().zip(own.iter().zip(other)).filter(|(_, (own, other))| own != other);
    let shown: Vec<String> = named.map(|(name, (own, other))| format!("{name} is {own}, not {other}")).collect();
    shown.join(", ")
}
