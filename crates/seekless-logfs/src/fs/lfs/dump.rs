//! A volume as text, for developers.

use super::partials::partials_in;
use super::find;
use super::format::*;
use super::layout::*;
use crate::device::Device;
use crate::device::rescue::rescue;
use crate::fs::logfs::dump_text::{line, section};
use crate::fs::logfs::run::read_sectors;
use crate::fs::{FsError, FsResult};
use crate::units::{SECTOR_BYTES, Sector};

/// What to show.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Dump {
    /// Superblock and checkpoints.
    #[default]
    Volume,
    /// The partial segments of one segment, with what is in them.
    Segment(SegmentNo),
    /// A line for each segment that holds a log.
    Log,
    /// One inode at an address in the log, in the form that the inode map uses.
    InodeSlot(u64),
}

/// Shows part of the volume on `device`.
///
/// # Errors
/// As [`super::mount`].
pub async fn dump(device: &Device, what: Dump) -> FsResult<String> {
    let found = find::find_volume(device).await?;
    let layout = found.layout;
    let mut text = String::new();
    match what {
        Dump::Volume => {
            let block = layout.superblock.to_block();
            section(&mut text, "superblock", &block, Superblock::FIELDS);
            for slot in CHECKPOINT_SECTORS {
                let copies = rescue(device, slot, 2 * BLOCK_SECTORS).await?.bytes;
                for (number, copy) in copies.chunks_exact(BLOCK_BYTES).enumerate() {
                    match Checkpoint::from_block(copy) {
                        Some(_) => {
                            let title = format!("checkpoint, sector {slot}, copy {number}");
                            section(&mut text, &title, copy, Checkpoint::FIELDS);
                        }
                        None => line(&mut text, format_args!("checkpoint, sector {slot}, copy {number}: none")),
                    }
                }
            }
            found.damaged.iter().for_each(|damage| line(&mut text, format_args!("damaged: {damage}")));
            found.torn.iter().for_each(|damage| line(&mut text, format_args!("damaged: {damage}")));
        }
        Dump::Segment(segment) => dump_segment(device, &layout, segment, &mut text).await?,
        Dump::Log => {
            for segment in 0..layout.segment_count() {
                let bytes = rescue(device, layout.segment_start(segment), layout.segment_sectors()).await?.bytes;
                let partials = partials_in(&layout, segment, &bytes);
                let (Some(first), Some(last)) = (partials.first(), partials.last()) else { continue };
                let end = u64::from(last.summary.offset) + u64::from(last.summary.sectors);
                line(
                    &mut text,
                    format_args!(
                        "segment {segment:6}  sequence {:8} to {:8}  {end:5} of {} sectors",
                        first.summary.sequence,
                        last.summary.sequence,
                        layout.segment_sectors()
                    ),
                );
            }
        }
        Dump::InodeSlot(number) => {
            let slot = InodeSlot(number);
            if !layout.holds(slot.sector(), 1) {
                return Err(FsError::Invalid("this address is outside the log"));
            }
            let sector = read_sectors(device, slot.sector(), 1).await?;
            let raw = &sector[slot.offset()..slot.offset() + Inode::BYTES];
            let intact = if Inode::unseal(raw).is_some() { "intact" } else { "damaged" };
            section(&mut text, &format!("inode at {number}, {intact}"), raw, Inode::FIELDS);
        }
    }
    Ok(text)
}

async fn dump_segment(device: &Device, layout: &Layout, segment: SegmentNo, text: &mut String) -> FsResult<()> {
    if segment >= layout.segment_count() {
        return Err(FsError::Invalid("there is no such segment"));
    }
    let bytes = rescue(device, layout.segment_start(segment), layout.segment_sectors()).await?.bytes;
    for partial in partials_in(layout, segment, &bytes) {
        let start = (u64::from(partial.summary.offset) * SECTOR_BYTES) as usize;
        section(text, &format!("partial segment at sector {}", partial.start), &bytes[start..], Summary::FIELDS);
        let mut at: Sector = partial.start + u64::from(partial.summary.summary_sectors);
        for item in partial.items {
            line(text, format_args!("    {at:>10}  {}", describe(item)));
            at = at + item.sectors();
        }
    }
    Ok(())
}

fn describe(item: Item) -> String {
    match item {
        Item::Block { ino, key, sectors, written } => {
            let stamp = if written > 0 { format!(", written {written}") } else { String::new() };
            format!("{:?} of inode {ino}, {sectors} sectors{stamp}", BlockKey(key))
        }
        other => format!("{other:?}"),
    }
}
