//! Checking a volume: everything that can be reached is read and compared with everything that is counted.
//!
//! The volume is recovered in memory, as a read-only mount would, and then walked. What a crash can leave behind is mended
//! by mounting, so what this finds is damage. All that it writes, where it is to repair, is superblock copies. For what
//! could have been lost from the end of the log it looks in every segment, where a mount looks in those that are likely.

use std::collections::BTreeMap;

use super::Lfs;
use super::Options;
use super::format::*;
use super::layout::*;
use super::recovery;
use super::state::{Segmented, State};
use crate::device::{Data, Device};
pub use crate::fs::logfs::check::Fsck;
use crate::fs::logfs::check::{self, Claims};
use crate::fs::logfs::file;
use crate::fs::{FsError, FsResult};
use crate::rt::Rt;
use crate::units::{Ino, SECTOR_BYTES, counted};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FsckOptions {
    /// Read all file data too, and compare it with its checksums.
    pub data: bool,
    /// Write damaged superblock copies anew.
    pub repair: bool,
}

/// Checks the volume on `device`.
///
/// # Errors
/// Those of [`super::mount`], when the volume cannot be recovered at all. Damage that leaves a volume is in the
/// result.
pub async fn fsck(rt: Rt, device: Device, options: FsckOptions) -> FsResult<Fsck> {
    let found = recovery::find_volume(&device).await?;
    let mount_options = Options { read_only: true, cache_data: false, ..Options::default() };
    let lfs = Lfs::salvaged(rt, device.clone(), mount_options, &found, usize::MAX).await?;
    let mut check = Check::new(lfs, options.data, Segments::default());
    if !options.repair {
        check.result.errors.extend(found.damaged.iter().map(|bad| bad.to_string()));
    }
    check.result.errors.extend(check.fs.warnings.borrow().iter().cloned());
    check.result.notes.extend(found.torn.iter().cloned());
    let replayed = check.fs.state.borrow().log.counters.replayed_transactions;
    if replayed > 0 {
        check
            .result
            .notes
            .push(format!("{} since the last checkpoint will be replayed at mount", counted(replayed, "transaction")));
    }
    run(&mut check).await?;
    if options.repair && !found.damaged.is_empty() {
        let said = recovery::mend_superblocks(&device, &found).await;
        device.flush().await?;
        check.result.mended(said);
    }
    Ok(check.result)
}

/// What of the log is claimed.
#[derive(Default)]
struct Segments {
    /// Live bytes found in each segment.
    live: BTreeMap<SegmentNo, u64>,
    /// For each segment, one bit for every 256 bytes that something claims.
    claimed: BTreeMap<SegmentNo, Vec<u64>>,
}

type Check = check::Check<Segmented, Segments>;

impl Claims<Segmented> for Segments {
    fn claim(&mut self, state: &State, from: u64, bytes: u64) -> Result<(), &'static str> {
        const UNIT: u64 = Inode::BYTES as u64;
        let layout = state.log.layout;
        let sector = crate::units::Sector(from / SECTOR_BYTES);
        let Some(segment) = layout.segment_of(sector) else { return Err("outside the log") };
        *self.live.entry(segment).or_insert(0) += bytes;
        let units = (layout.segment_bytes() / UNIT) as usize;
        let bits = self.claimed.entry(segment).or_insert_with(|| vec![0; units.div_ceil(64)]);
        let first = ((from - layout.segment_start(segment).byte_offset()) / UNIT) as usize;
        let mut twice = false;
        for unit in first..(first + (bytes / UNIT) as usize).min(units) {
            let bit = 1u64 << (unit % 64);
            twice |= bits[unit / 64] & bit != 0;
            bits[unit / 64] |= bit;
        }
        if twice { Err("where something else is too") } else { Ok(()) }
    }

    fn attribute_places(_: &State, pointer: Pointer) -> Vec<(u64, u64)> {
        match pointer {
            Pointer::Mapped { at, .. } => vec![(at.byte_offset(), pointer.live_bytes())],
            _ => Vec::new(),
        }
    }
}

async fn run(check: &mut Check) -> FsResult<()> {
    check_internal(check).await?;
    check_inodes(check).await?;
    check.check_directories().await?;
    check.check_links();
    check_counts(check);
    Ok(())
}

async fn check_internal(check: &mut Check) -> FsResult<()> {
    for ino in [IMAP_INO, USAGE_INO, ORPHAN_INO] {
        for slot in 0..POINTERS_IN_INODE {
            check.walk(BlockId { ino, key: file::root_key(slot) }).await?;
        }
    }
    Ok(())
}

async fn check_inodes(check: &mut Check) -> FsResult<()> {
    let fs = check.fs.clone();
    let map_blocks = fs.state.borrow().log.layout.ino_end().div_ceil(IMAP_ENTRIES_PER_BLOCK);
    let mut block = 0;
    while block < map_blocks {
        // Skip what the map has no blocks for at all.
        let entries = fs.run(|state| state.block(BlockId::data(IMAP_INO, block))).await;
        if let Some(Some(entries)) = check.noted(entries)? {
            check_map_block(check, block, &entries).await?;
        }
        block += 1;
    }
    Ok(())
}

async fn check_map_block(check: &mut Check, block: u64, entries: &Data) -> FsResult<()> {
    for (within, raw) in entries.chunks_exact(8).enumerate() {
        let slot = InodeSlot(crate::codec::get_at(raw, 0).unwrap_or(0));
        if slot.is_none() {
            continue;
        }
        let ino = Ino(block * IMAP_ENTRIES_PER_BLOCK + within as u64);
        let bytes = Inode::BYTES as u64;
        // A number past all addresses is outside the log, as the largest address is.
        check.claim(slot.0.saturating_mul(bytes), bytes, format_args!("inode {ino}"));
        let fs = check.fs.clone();
        let inode = fs.run(|state| Ok(state.inode(ino)?.inode)).await;
        if let Err(FsError::Stale) = inode {
            check.error(format!("inode {ino} is a number that no file can have"));
            continue;
        }
        if let Some(inode) = check.noted(inode)? {
            check.check_inode(ino, inode).await?;
        }
    }
    Ok(())
}

fn check_counts(check: &mut Check) {
    let mut errors = Vec::new();
    {
        let state = check.fs.state.borrow();
        for (number, segment) in state.log.segments.iter() {
            let found = check.claims.live.get(&number).copied().unwrap_or(0);
            if found != segment.live_bytes {
                let counted = segment.live_bytes;
                errors.push(format!("segment {number} is said to hold {counted} live bytes, and holds {found}"));
            }
        }
        let inodes = check.seen.len() as u64;
        if state.inode_count != inodes {
            errors.push(format!("the volume is said to have {} inodes, and has {inodes}", state.inode_count));
        }
        if state.unwritten_bytes != check.unwritten_bytes {
            let (said, found) = (state.unwritten_bytes, check.unwritten_bytes);
            errors.push(format!("{said} bytes are said to be set aside, and {found} are"));
        }
        check.result.live_bytes = state.log.segments.live_bytes;
    }
    errors.into_iter().for_each(|error| check.error(error));
}
