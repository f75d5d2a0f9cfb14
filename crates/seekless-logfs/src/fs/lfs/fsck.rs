//! Checking a volume: reads everything that can be reached and compares it with everything that is counted.
//!
//! The volume is recovered in memory, as by a read-only mount, and then walked. Mounting repairs what a crash can leave
//! behind, so what this check finds is damage. It searches every segment for evidence that the end of the log was lost;
//! a mount searches only the likely ones.
//!
//! Everything that can be derived from other data on the volume can be repaired: damaged superblock copies, the segment
//! usage table, the list of orphans, the counts of inodes and of reserved bytes, and in inodes the bytes used, the
//! links, and the entries of directories. The superblock copies are rewritten. The rest is repaired by recovering the
//! volume as a writable mount does, recounting, and closing it; a second check then reports what that repaired. All
//! other damage is left as it is.

use std::collections::BTreeMap;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;

use super::Lfs;
use super::Options;
use super::cleaner::{partials_behind_damage, partials_in};
use super::find;
use super::format::*;
use super::layout::*;
use super::order;
use super::state::{InodeDirt, Segmented, State};
use crate::device::rescue::rescue;
use crate::device::{Data, Device};
use crate::fs::logfs::change::Change;
pub use crate::fs::logfs::check::Fsck;
use crate::fs::logfs::check::{self, Claims, Derived};
use crate::fs::logfs::demand::ReserveAccess;
use crate::fs::logfs::file;
use crate::fs::{FsError, FsResult};
use crate::rt::{Rt, cover};
use crate::units::{Ino, SECTOR_BYTES, counted, human_bytes};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FsckOptions {
    /// Read all file data too, and compare it with its checksums.
    pub data: bool,
    /// Repair what can be derived from other data on the volume.
    pub repair: bool,
}

/// Checks the volume on `device`. With `repair`, everything that can be derived is repaired, and the result lists what
/// a check finds afterwards and what was repaired. Without it nothing is written.
///
/// # Errors
/// Those of [`super::mount`], when the volume cannot be recovered at all. Damage to a volume that can be recovered is
/// in the result.
pub fn fsck(rt: Rt, device: Device, options: FsckOptions) -> LocalBoxFuture<'static, FsResult<Fsck>> {
    Box::pin(check_volume(rt, device, options))
}

async fn check_volume(rt: Rt, device: Device, options: FsckOptions) -> FsResult<Fsck> {
    let Look { mut result, found, repairable } = look(rt.clone(), device.clone(), options).await?;
    if !is_together(rt.clone(), device.clone(), &found).await? {
        let why = "nothing can be repaired, because the members may be assembled differently than before";
        result.errors.push(why.to_string());
        return Ok(result);
    }
    if !options.repair {
        let is_recounted = repairable && unless_damaged(recovered_in_memory(rt, device, &found).await.map(drop))?;
        return Ok(Fsck { repairable: is_recounted || !found.damaged.is_empty(), ..result });
    }
    if repairable {
        match mend(rt.clone(), device.clone()).await {
            Ok(()) => {
                let mended = look(rt, device.clone(), options).await?.result;
                let is_gone = |error: &String| !mended.errors.contains(error);
                let repaired = result.errors.into_iter().filter(is_gone).collect();
                result = Fsck { repaired, ..mended };
            }
            Err(error) if is_damage(&error) => {}
            Err(error) => return Err(error),
        }
    }
    if !found.damaged.is_empty() {
        let said = find::mend_superblocks(&device, &found).await;
        device.flush().await?;
        result.mended(said);
    }
    Ok(result)
}

/// False where members below may be assembled differently than before: then the data to repair is elsewhere.
async fn is_together(rt: Rt, device: Device, found: &find::FoundVolume) -> FsResult<bool> {
    if !is_rearranged(&device, found) && device.parts() == 1 {
        return Ok(true);
    }
    match recovered_in_memory(rt, device, found).await {
        Ok(lfs) => unless_damaged(lfs.check_arrangement(found).await.map(drop)),
        Err(error) => unless_damaged(Err(error)),
    }
}

/// Whether the device spreads addresses differently from the one on which the volume was last known to be intact, or
/// may do so.
fn is_rearranged(device: &Device, found: &find::FoundVolume) -> bool {
    let (was, is) = (found.layout.superblock.arrangement, device.arrangement());
    was != is || (is != 0 || device.parts() > 1) && !found.damaged.is_empty()
}

/// Other damage that keeps the volume from being mounted, and so from being repaired.
fn is_damage(error: &FsError) -> bool {
    match error {
        FsError::NoSpace => true,
        error => error.is_of_one_place(),
    }
}

/// False where the error is damage.
fn unless_damaged(result: FsResult<()>) -> FsResult<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if is_damage(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The volume as [`mend`] recovers it. Nothing is written.
async fn recovered_in_memory(rt: Rt, device: Device, found: &find::FoundVolume) -> FsResult<Rc<Lfs>> {
    let options = Options { read_only: true, cache_data: false, ..Options::default() };
    super::recovered(rt, device, options, found).await
}

/// Result of one look at a volume.
struct Look {
    result: Fsck,
    found: find::FoundVolume,
    /// Some of the counts are wrong and can be recounted.
    repairable: bool,
}

/// Checks without writing.
async fn look(rt: Rt, device: Device, options: FsckOptions) -> FsResult<Look> {
    let found = find::find_volume(&device).await?;
    let mount_options = Options { read_only: true, cache_data: false, ..Options::default() };
    let lfs = Lfs::salvaged(rt, device, mount_options, &found, usize::MAX).await?;
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
    if options.data {
        check_summaries(&mut check).await?;
    }
    let counts = check_counts(&mut check);
    let is_doubtful = check.fs.doubts_tables() && !check.result.errors.is_empty();
    // When something cannot be read, an orphan only seems to be missing, and stays on the list.
    let orphans = check.orphans_differ && check.uncounted == 0;
    let repairable = counts || orphans || is_doubtful || !check.wrong.is_empty() || !check.overlong.is_empty();
    Ok(Look { result: check.result, found, repairable })
}

/// Recovers the volume, whose members are assembled correctly, recounts, and closes it.
async fn mend(rt: Rt, device: Device) -> FsResult<()> {
    let found = find::find_volume(&device).await?;
    let lfs = super::recovered(rt, device, Options::default(), &found).await?;
    lfs.forget_unreachable_tables().await?;
    let mut check = Check::new(lfs.clone(), false, Segments::default());
    run(&mut check).await?;
    take_counts(&mut check)?;
    // When something cannot be read, its names and blocks only seem to be missing.
    let derived = if check.uncounted == 0 { std::mem::take(&mut check.wrong) } else { Vec::new() };
    for (ino, derived) in derived {
        lfs.run(|state| {
            let mut change = Change::new(state);
            let inode = change.inode_mut(ino, InodeDirt::Namespace)?;
            match derived {
                Derived::BytesUsed(bytes) => inode.bytes_used = bytes,
                Derived::Links(links) => inode.links = links,
                Derived::Entries(entries) => inode.special = entries,
            }
            change.commit(ReserveAccess::Internal)
        })
        .await?;
    }
    lfs.begin_writing().await?;
    lfs.end_writing().await
}

impl Lfs {
    /// Reads everything where the device may not be assembled like the one on which the volume was last known to be
    /// intact: its arrangement differs, copies of the superblock are not in their places, or members cannot be shown to
    /// be in theirs. A complete copy of the volume is intact there. The original members, assembled differently, are
    /// not, and writing would destroy their content. Returns whether the superblock's arrangement differs from that of
    /// the device, which holds the whole volume.
    ///
    /// # Errors
    /// `Corrupt` when anything is damaged.
    pub(super) async fn check_arrangement(&self, found: &find::FoundVolume) -> FsResult<bool> {
        let members = order::look(self).await?;
        if !is_rearranged(&self.device, found) && members.missed.is_empty() {
            return Ok(false);
        }
        // Checkpoints may be on other members, too, then: what is found is whole, and may be of an earlier time.
        let is_displaced = |bad: &&find::BadCopy| {
            let is_on_member = self.device.parts() > 1 && !members.seen.contains(&self.device.part_at(bad.at).0);
            bad.is_other && SUPERBLOCK_SECTORS.contains(&bad.at) && is_on_member
        };
        if let Some(copy) = found.damaged.iter().find(is_displaced) {
            let detail = format_args!(
                "{copy}, and nothing shows that the members are in the right order: give the order that the volume was made with"
            );
            return Err(FsError::corrupt("volume", self.device.describe(), detail));
        }
        let mut check = Check::new(self.this(), true, Segments::default());
        check_internal(&mut check).await?;
        check_inodes(&mut check).await?;
        if let Some(first) = check.result.errors.first() {
            let detail = format_args!(
                "it was made on devices that were assembled differently, and is not intact on these ({}, the first of them: \
                 {first}): give the options, and the order, that it was made with",
                counted(check.result.errors.len() as u64 + check.result.errors_unlisted, "error")
            );
            return Err(FsError::corrupt("volume", self.device.describe(), detail));
        }
        let (was, is) = (found.layout.superblock.arrangement, self.device.arrangement());
        if was != 0 && was != is {
            self.warn("it was made on devices that were assembled differently, and is intact on these".to_string());
        }
        Ok(was != is)
    }

    /// Recounts what the usage table counts, and what the list of orphans names, when one of them cannot be trusted (V4).
    ///
    /// # Errors
    /// `Corrupt` when the volume is too damaged to be written to.
    pub(super) async fn count_if_doubtful(&self) -> FsResult<()> {
        if !self.doubts_tables() {
            return Ok(());
        }
        self.forget_unreachable_tables().await?;
        let mut check = Check::new(self.this(), false, Segments::default());
        check_internal(&mut check).await?;
        check_inodes(&mut check).await?;
        if !self.state.borrow().log.orphans_known && !check.look_for_names().await? {
            self.warn(
                "orphan list: not all names can be read, so files that were removed while they were in use may take space until fsck \
                 repairs the volume"
                    .to_string(),
            );
        }
        take_counts(&mut check)
    }
}

/// Replaces the counts with the recounted ones.
///
/// # Errors
/// `Corrupt`, and nothing is changed, when neither the table nor the recount says where the log may write (V4).
fn take_counts(check: &mut Check) -> FsResult<()> {
    let is_whole = check.uncounted == 0;
    if !is_whole && !check.fs.state.borrow().log.exact {
        cover("lfs: neither the usage table nor a recount can be believed");
        let errors = counted(check.uncounted, "error");
        let first =
            check.result.errors.first().map_or_else(String::new, |first| format!(", the first of them: {first}"));
        let detail = format_args!(
            "it cannot be trusted, and a recount is incomplete ({errors}{first}), so live data could be overwritten"
        );
        return Err(FsError::corrupt("segment usage table", "volume", detail));
    }
    let (mut differing, mut is_exceeded) = (0, false);
    {
        let mut guard = check.fs.state.borrow_mut();
        let state = &mut *guard;
        for segment in 0..state.log.segments.count() {
            let said = state.log.segments.get(segment).live_bytes;
            let found = check.claims.live.get(&segment).copied().unwrap_or(0);
            // Places that could not be counted must not be overwritten: then nothing is freed, as the table is right.
            let live = if is_whole { found } else { found.max(said) };
            if live > state.log.layout.segment_bytes() {
                let detail = format_args!("{live} bytes are claimed in it, more than it can hold");
                return Err(FsError::corrupt("volume", format_args!("segment {segment}"), detail));
            }
            differing += u64::from(live != said);
            is_exceeded |= found > said;
            state.log.segments.set_live(segment, live);
        }
        if !state.end_is_plausible() {
            let detail = "there is live data behind the end of the log";
            return Err(FsError::corrupt("volume", format_args!("segment {}", state.log.end.segment), detail));
        }
        for ino in check.nameless().into_iter().chain(check.overlong.drain(..)) {
            state.log.orphans.add(ino);
        }
        if is_whole {
            state.inode_count = check.seen.len() as u64;
            state.unwritten_bytes = check.unwritten_bytes;
            state.log.unwritten_logged = check.unwritten_bytes;
            for ino in state.log.orphans.list() {
                if !check.seen.contains_key(&ino) {
                    state.log.orphans.remove(ino);
                }
            }
        }
        // Damage elsewhere casts no doubt on a table that was exact and that covers all that was found.
        state.log.exact = is_whole || !is_exceeded;
        state.log.orphans_known = true;
    }
    if differing > 0 {
        let segments = counted(differing, "segment");
        check.fs.warn(format!(
            "segment usage table: {segments} held a different number of live bytes than recorded; recounted"
        ));
    }
    Ok(())
}

/// Parts of the log that are claimed.
#[derive(Default)]
struct Segments {
    /// Live bytes found in each segment.
    live: BTreeMap<SegmentNo, u64>,
    /// For each segment, one bit for every 256 bytes, set when they are claimed.
    claimed: BTreeMap<SegmentNo, Vec<u64>>,
}

type Check = check::Check<Segmented, Segments>;

impl Claims<Segmented> for Segments {
    fn claim(&mut self, state: &State, from: u64, bytes: u64) -> Result<(), &'static str> {
        const UNIT: u64 = Inode::BYTES as u64;
        let layout = state.log.layout;
        let sector = crate::units::Sector(from / SECTOR_BYTES);
        let Some(segment) = layout.segment_of(sector) else { return Err("outside the log") };
        let units = (layout.segment_bytes() / UNIT) as usize;
        let bits = self.claimed.entry(segment).or_insert_with(|| vec![0; units.div_ceil(64)]);
        let first = ((from - layout.segment_start(segment).byte_offset()) / UNIT) as usize;
        let mut twice = 0;
        for unit in first..(first + (bytes / UNIT) as usize).min(units) {
            let bit = 1u64 << (unit % 64);
            twice += u64::from(bits[unit / 64] & bit != 0);
            bits[unit / 64] |= bit;
        }
        // What two owners share is alive once, as the usage table has it: more could be more than the segment has room for.
        *self.live.entry(segment).or_insert(0) += bytes - twice * UNIT;
        if twice > 0 { Err("where something else is too") } else { Ok(()) }
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
    Ok(())
}

/// Looks for what is alive where no summary names it: it can be read, and the cleaner cannot move it.
async fn check_summaries(check: &mut Check) -> FsResult<()> {
    let (fs, layout) = (check.fs.clone(), check.fs.state.borrow().log.layout);
    let units_per_sector = SECTOR_BYTES / Inode::BYTES as u64;
    let (mut first, mut segments, mut bytes) = (None, 0, 0);
    for (&segment, claimed) in &check.claims.claimed {
        let read = rescue(&fs.device, layout.segment_start(segment), layout.segment_sectors()).await?.bytes;
        let intact = partials_in(&layout, segment, &read);
        let behind = partials_behind_damage(&layout, segment, &read, &intact);
        let mut unnamed = claimed.clone();
        for partial in intact.iter().chain(&behind) {
            let start = u64::from(partial.summary.offset);
            let units = start * units_per_sector..(start + u64::from(partial.summary.sectors)) * units_per_sector;
            units.for_each(|unit| unnamed[unit as usize / 64] &= !(1 << (unit % 64)));
        }
        let units: u64 = unnamed.iter().map(|word| u64::from(word.count_ones())).sum();
        if units > 0 {
            cover("lfs: a check finds live data that no intact summary names");
            first.get_or_insert(segment);
            (segments, bytes) = (segments + 1, bytes + units * Inode::BYTES as u64);
        }
    }
    if let Some(first) = first {
        let (bytes, segments) = (human_bytes(bytes), counted(segments, "segment"));
        check.result.notes.push(format!(
            "{bytes} in use cannot be moved by the cleaner, in {segments} of the log, the first of them segment {first}: what describes \
             them there is damaged. Files that are written again leave them"
        ));
    }
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
        // Skip the ranges for which the map has no blocks.
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
        // A number past all addresses is outside the log, as is the largest address.
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

/// Compares the recounted numbers with the stored ones. Returns true when something differs.
fn check_counts(check: &mut Check) -> bool {
    let mut errors = Vec::new();
    {
        let state = check.fs.state.borrow();
        for (number, segment) in state.log.segments.iter() {
            let found = check.claims.live.get(&number).copied().unwrap_or(0);
            if found != segment.live_bytes {
                let counted = segment.live_bytes;
                errors.push(format!("segment {number} records {counted} live bytes, but holds {found}"));
            }
        }
        let inodes = check.seen.len() as u64;
        if state.inode_count != inodes {
            errors.push(format!("the volume records {} inodes, but has {inodes}", state.inode_count));
        }
        if state.unwritten_bytes != check.unwritten_bytes {
            let (said, found) = (state.unwritten_bytes, check.unwritten_bytes);
            errors.push(format!("{said} bytes are recorded as reserved, but {found} are"));
        }
        check.result.live_bytes = state.log.segments.live_bytes;
    }
    let differs = !errors.is_empty();
    errors.into_iter().for_each(|error| check.error(error));
    differs
}
