//! A volume as text, for developers.

use super::format::*;
use super::{Options, recovery};
use crate::device::Device;
use crate::device::rescue::rescue;
use crate::fs::logfs::dump_text::{line, section};
use crate::fs::logfs::run::read_sectors;
use crate::fs::logfs::tree::InodeSlot;
use crate::fs::{FsError, FsResult};
use crate::rt::Rt;
use crate::units::Sector;
use crate::vlog::format::{ANCHORS, Anchor, SUPERBLOCK, Superblock};

/// What to show.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Dump {
    /// Superblock and anchors.
    #[default]
    Volume,
    /// Address of each inode.
    Map,
    /// One inode, by its number.
    Inode(u64),
}

/// Shows part of the volume on `device`.
///
/// # Errors
/// As [`super::mount`].
pub async fn dump(rt: &Rt, device: &Device, what: Dump) -> FsResult<String> {
    let (_, found) = recovery::find_volume(device).await?;
    let mut text = String::new();
    match what {
        Dump::Volume => {
            let block = found.superblock.to_block_with(&found.above[..VolumeRecord::BYTES]);
            section(
                &mut text,
                &format!("superblock of the virtual log, sector {SUPERBLOCK}"),
                &block,
                Superblock::FIELDS,
            );
            section(&mut text, "record of the volume in it", &found.above, VolumeRecord::FIELDS);
            for slot in ANCHORS {
                let block = rescue(device, Sector(slot), BLOCK_SECTORS).await?.bytes;
                match Anchor::from_block(&block, &found.superblock.uuid) {
                    Some(_) => section(&mut text, &format!("anchor, sector {slot}"), &block, Anchor::FIELDS),
                    None => line(&mut text, format_args!("anchor, sector {slot}: none")),
                }
            }
            found.damaged.iter().chain(&found.notes).for_each(|note| line(&mut text, format_args!("damaged: {note}")));
        }
        Dump::Map => {
            for (number, entry) in map(rt, device).await? {
                let slot = InodeSlot(entry.into());
                line(
                    &mut text,
                    format_args!("inode {number:8}  sector {:10}  offset {:4}", slot.sector().0, slot.offset()),
                );
            }
        }
        Dump::Inode(number) => {
            let entry = map(rt, device).await?.into_iter().find(|&(found, _)| u64::from(found) == number);
            let Some((_, entry)) = entry else { return Err(FsError::Invalid("there is no such inode")) };
            let slot = InodeSlot(entry.into());
            let sector = read_sectors(device, slot.sector(), 1).await?;
            let raw = &sector[slot.offset()..slot.offset() + Inode::BYTES];
            let intact = if Inode::unseal(raw).is_some() { "intact" } else { "damaged" };
            section(&mut text, &format!("inode {number} at sector {}, {intact}", slot.sector()), raw, Inode::FIELDS);
        }
    }
    Ok(text)
}

/// The entries of the inode map that are in use.
async fn map(rt: &Rt, device: &Device) -> FsResult<Vec<(u32, u32)>> {
    let options = Options { read_only: true, cache_data: false, ..Options::default() };
    let fs = recovery::recover(rt.clone(), device.clone(), options).await?;
    let entries = fs.state.borrow().log.store.entries();
    Ok(entries)
}
