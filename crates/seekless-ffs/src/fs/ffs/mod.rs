//! FFS: the Berkeley Fast File System \[mc84\], with the format, the policies and the write order of 4.4BSD.
//!
//! Blocks stay where they were allocated, and are overwritten in place. A volume is divided into cylinder groups, each
//! with inodes, maps and data, so that related blocks are close together. Names are safe because metadata reaches the
//! volume in an order that a check after a crash can rely on; file data waits for up to 30 seconds.
//!
//! On the volume: `FORMAT.md`. In memory: `state`. `layout` computes positions, `group` changes the maps of one
//! cylinder group, `alloc` chooses among groups, `dir` finds names. `file`, `cluster` and `namespace` are the
//! operations. `cache` holds blocks, `io` reads and writes them. `soft` is the other way to keep an order: soft
//! updates. `aged` makes new volumes that look used, for experiments. `books` recounts everything, for tests.
//!
//! Why it is built this way. A log can take all of a change at once. Here, a change is a sequence of writes whose order
//! matters, and later ones must not even be in memory before earlier ones are on the volume, because any block may be
//! written at any time. So an operation is a sequence of synchronous steps on the state, between which it waits for
//! ordered writes, and it holds the locks of its inodes until its last step. No borrow of the state lives across such a
//! wait; a step that lacks something in memory changes nothing, and runs again once that is read.
//!
//! After a crash. The superblock records whether the volume was closed. If it was not, mounting it for writing first
//! runs the phases of the check, repairs what a crash can leave behind, and refuses damage that no crash explains, with
//! the advice to repair it. Inodes without names are freed there, among them files that were open when their last name
//! went. A read-only mount takes the volume as it is.
//!
//! Differences from 4.4BSD
//!   1. A new name goes where one gap is large enough (see `dir`).
//!   2. The target of a long symbolic link, and a directory's tail that moves, are written in order; with `keep_moved` any
//!      data that moves.
//!   3. All users are ordinary ones: none may use the last `minfree` percent, unless `use_reserve` is set.
//!   4. With synchronous metadata, an update and an fsync make data durable before they write inodes. An inode that is
//!      written for another reason, or whose file changes during an update, can be written before its data: a crash then
//!      finds old bytes of another file in its blocks, as in 4.4BSD.

mod aged;
mod alloc;
mod assembly;
mod backing;
mod books;
mod cache;
mod cluster;
mod dir;
mod dump;
mod file;
pub mod format;
mod fsck;
mod group;
mod grown;
mod io;
mod late_names;
pub mod layout;
mod lock;
mod mkfs;
mod namespace;
pub mod numbers;
mod ops;
mod provision;
mod reach;
mod rename;
mod soft;
mod state;
#[cfg(test)]
mod tests;
mod truncate;
mod unreadable;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

pub use aged::BALLAST;
pub use assembly::PLACES;
pub use dump::{Dump, dump};
pub use fsck::{Cause, Fsck, FsckOptions, Problem, fsck};
pub use mkfs::{DriveShape, MkfsOptions, Profile, mkfs};

use crate::codec;
use crate::device::Device;
use crate::device::rescue::rescue;
use crate::fs::{FsError, FsResult};
use crate::rt::{Event, Gate, Rt};
use crate::units::{KIB, MIB, Nanos, SECTOR_BYTES, Sector};
use format::*;
use layout::Layout;
use lock::Locks;
use state::State;

/// How metadata reaches the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Metadata {
    /// In order, each write before the next step, as in 4.4BSD.
    #[default]
    Sync,
    /// Without any order: a crash can lose anything that was not synced, and leave damage that no check can repair.
    Async,
    /// Later, in an order that a crash cannot spoil: soft updates [Ganger and Patt 1994].
    Softdep,
}

/// Options of a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    pub read_only: bool,
    pub metadata: Metadata,
    /// Time between updates, which write everything back. 30 s since the first Unix systems.
    pub update_interval: Nanos,
    /// Clean blocks kept in memory, in bytes.
    pub cache_bytes: u64,
    /// Dirty blocks kept in memory, in bytes, before writers have to wait.
    pub dirty_bytes_max: u64,
    /// Largest request for file data: 64 KiB in 4.4BSD.
    pub cluster_bytes: u64,
    /// Read ahead of sequential readers.
    pub read_ahead: bool,
    /// Move the blocks of a cluster together before it is written, as 4.4BSD-Lite2 can.
    pub realloc_blocks: bool,
    /// Updates write neighbouring blocks of a file with one request. 4.4BSD writes each block separately.
    pub cluster_updates: bool,
    /// Keep file data that is read in memory. Not worthwhile below a kernel, which caches it too.
    pub cache_data: bool,
    /// Let files fill the reserved space.
    pub use_reserve: bool,
    /// With `Metadata::Sync`, data that moves stays readable after a crash at any moment: its new place is written first, then
    /// the pointer to it, and only then the old place is free. 4.4BSD does not do so.
    pub keep_moved: bool,
}

impl Options {
    fn keeps_moved(&self) -> bool {
        self.keep_moved && self.metadata == Metadata::Sync
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            read_only: false,
            metadata: Metadata::Sync,
            update_interval: Nanos::from_secs(30),
            cache_bytes: 8 * MIB,
            dirty_bytes_max: 4 * MIB,
            cluster_bytes: 64 * KIB,
            read_ahead: true,
            realloc_blocks: false,
            cluster_updates: false,
            cache_data: true,
            use_reserve: false,
            keep_moved: true,
        }
    }
}

/// Counters since the mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counters {
    pub block_reads: u64,
    pub clustered_reads: u64,
    pub block_writes: u64,
    pub clustered_writes: u64,
    pub written_bytes: u64,
    /// Writes that an operation waited for.
    pub ordered_writes: u64,
    pub flushes: u64,
    pub blocks_taken: u64,
    /// Of these, the ones that the policy preferred.
    pub blocks_as_wanted: u64,
    /// Blocks and inodes that found no room in their preferred group.
    pub group_overflows: u64,
    /// Tails of files that grew in place, and that had to move.
    pub tails_extended: u64,
    pub tails_moved: u64,
    pub clusters_moved: u64,
    /// Fragments that were already free when they were freed.
    pub freed_twice: u64,
    /// Changes after which an inode would have had a negative number of blocks.
    pub miscounted: u64,
    /// Operations that could not free what they had taken from a file.
    pub unfreed: u64,
    /// Renames that were stopped by an error once the new name was there.
    pub unended: u64,
}

impl Counters {
    /// Counters that show damage or lost space, which a check has to repair before anything else is trusted.
    pub(crate) fn damage(&self) -> u64 {
        self.freed_twice + self.miscounted + self.unfreed + self.unended
    }
}

/// A mounted volume. See [`mount`].
pub struct Ffs {
    /// The handle that background tasks hold while they work.
    me: Weak<Ffs>,
    rt: Rt,
    device: Device,
    options: Options,
    state: RefCell<State>,
    locks: Locks,
    /// Signalled when a request, a flush, a job of soft updates or a task that frees an inode has ended.
    progress: Event,
    sync_gate: Gate,
    /// Held while a change is promised blocks, if the storage below may be full.
    backing_gate: Gate,
    end_gate: Gate,
    closed: Cell<bool>,
    /// Warnings for the user about the volume, one line each.
    warnings: Vec<String>,
    /// The check before mounting has left files without names for lack of room, or parts that cannot be read: the next mount looks
    /// again.
    is_incomplete: bool,
}

/// Mounts the volume on `device`. One that was not closed is checked and repaired first, unless the mount is read-only:
/// that writes nothing, and uses a copy of the superblock if necessary.
///
/// # Errors
/// `Corrupt` when the device holds no volume or a damaged one; `Device` when it cannot be read.
pub async fn mount(rt: Rt, device: Device, options: Options) -> FsResult<Rc<Ffs>> {
    let Recovered { volume, summaries, warnings, is_incomplete } = recover(&rt, &device, options.read_only).await?;
    let Volume { layout, superblock, raw } = volume;
    let mut state = State::new(layout, options, superblock, raw, summaries);
    state.now = rt.wall();
    state.superblock.ronly = options.read_only.into();
    let ffs = Rc::new_cyclic(|me| Ffs {
        me: me.clone(),
        rt,
        device,
        options,
        state: RefCell::new(state),
        locks: Locks::default(),
        progress: Event::new(),
        sync_gate: Gate::new(),
        backing_gate: Gate::new(),
        end_gate: Gate::new(),
        closed: Cell::new(false),
        warnings,
        is_incomplete,
    });
    // A volume whose root cannot be read is not worth mounting.
    ffs.step(|state| state.index(ROOT_INO).map(drop)).await?;
    if !options.read_only {
        {
            let mut state = ffs.state.borrow_mut();
            (state.superblock.clean, state.superblock.fmod) = (0, 1);
            assembly::forget(&mut state.superblock);
        }
        ffs.write_totals().await?; // From now on a crash needs a check.
        ffs.flush().await?;
        ffs.begin_updates();
    }
    Ok(ffs)
}

/// A volume that can be mounted.
struct Recovered {
    volume: Volume,
    /// The summary of each group.
    summaries: Vec<Csum>,
    /// What the user should know, one line each.
    warnings: Vec<String>,
    /// See [`Ffs::is_incomplete`].
    is_incomplete: bool,
}

/// Finds the volume, and repairs what a crash has left behind or what a copy can restore. Read-only, a copy of the
/// superblock serves, and unreadable parts of the summary are left out.
async fn recover(rt: &Rt, device: &Device, read_only: bool) -> FsResult<Recovered> {
    let found = find_volume(device).await;
    if read_only {
        let (volume, said) = match found {
            Ok(volume) => (volume, None),
            Err(error) => fsck::volume_of_copy(device, error).await?,
        };
        let (summaries, lost) = read_summaries(device, &volume.layout).await?;
        let journal = volume.superblock.has_journal().then(|| JOURNAL_LEFT.to_string());
        let warnings = said.into_iter().chain(lost).chain(journal).collect();
        return Ok(Recovered { volume, summaries, warnings, is_incomplete: false });
    }
    // fsck decides whether to trust a copy rather than the present superblock.
    let volume = found?;
    let displaced = assembly::look(device, &volume.layout, &volume.superblock).await?;
    if displaced.count() > 0 {
        return Err(displaced.refusal(device));
    }
    check_journal(&volume.superblock)?;
    if volume.superblock.is_closed()
        && let (summaries, None) = read_summaries(device, &volume.layout).await?
    {
        return Ok(Recovered { volume, summaries, warnings: Vec::new(), is_incomplete: false });
    }
    let (mended, is_incomplete) = mend(rt, device).await?;
    let volume = find_volume(device).await?;
    let (summaries, lost) = read_summaries(device, &volume.layout).await?;
    Ok(Recovered { volume, summaries, warnings: mended.into_iter().chain(lost).collect(), is_incomplete })
}

/// What a check or a mount cannot do about a journal.
const JOURNAL_LEFT: &str = "changes may be in NetBSD's journal, which is not replayed here";

/// Refuses to write to a volume that NetBSD has not closed while it kept a journal: when NetBSD replays that, it writes
/// over whatever was done since. A volume that was closed there, but not here, has nothing in its journal.
fn check_journal(superblock: &Superblock) -> FsResult<()> {
    match superblock.has_journal() && superblock.clean == WAS_CLEAN {
        true => Err(FsError::Invalid("its journal (WAPBL) has to be replayed first, by NetBSD")),
        false => Ok(()),
    }
}

/// Runs the check on a volume that was not closed, and lets it repair what a crash leaves behind and what copies can
/// restore. Returns the latter, what is left, and what has got another name, one line each, and whether anything is left.
async fn mend(rt: &Rt, device: &Device) -> FsResult<(Vec<String>, bool)> {
    let found =
        fsck(rt, device, FsckOptions { repair: true, only_after_crash: true, ..FsckOptions::default() }).await?;
    let stays = |cause: Cause| matches!(cause, Cause::NoRoom | Cause::Unread);
    let left = || found.problems.iter().filter(|problem| !problem.repaired && !stays(problem.cause));
    // Damage is why the rest has not been repaired either.
    match left().find(|problem| problem.cause == Cause::Damage).or_else(|| left().next()) {
        None => {
            // Room for what is left without a name can be made only on a mounted volume.
            let told = |problem: &Problem| problem.cause == Cause::Copy || stays(problem.cause);
            let is_left = found.problems.iter().any(|problem| stays(problem.cause));
            let reconnected = match found.reconnected {
                0 => None,
                1 => Some("after the crash a file had no name; it is in /lost+found now".to_string()),
                count => Some(format!("after the crash {count} files had no names; they are in /lost+found now")),
            };
            let texts = found.problems.into_iter().filter(told).map(|problem| problem.text);
            Ok((texts.chain(reconnected).collect(), is_left))
        }
        Some(problem) => {
            let detail = format!("{}; no crash explains this, so that fsck has to repair it first", problem.text);
            Err(FsError::corrupt("file system", "the check before mounting", detail))
        }
    }
}

/// A volume with a plausible superblock.
pub(crate) struct Volume {
    pub layout: Layout,
    pub superblock: Superblock,
    pub raw: Vec<u8>,
}

/// Reads the superblock of the volume on `device`.
pub(crate) async fn find_volume(device: &Device) -> FsResult<Volume> {
    let geometry = device.geometry();
    let end = SUPERBLOCK_OFFSET + SUPERBLOCK_BYTES as u64;
    if geometry.bytes() < end {
        return Err(FsError::corrupt("volume", "the device", "it is too small to hold UFS1"));
    }
    let at = Sector(SUPERBLOCK_OFFSET / SECTOR_BYTES);
    let mut read = rescue(device, at, SUPERBLOCK_BYTES as u64 / SECTOR_BYTES).await?;
    if let Some((_, error)) = read.lost.pop() {
        return Err(FsError::Device(error));
    }
    let raw = read.bytes.to_vec();
    let superblock = match decode_superblock(&raw) {
        Ok(superblock) => superblock,
        Err(error) => return Err(is_ufs2(device).await?.unwrap_or(error)),
    };
    volume_from(raw, superblock, geometry.bytes(), geometry.block_bytes)
}

fn volume_from(raw: Vec<u8>, superblock: Superblock, device_bytes: u64, block_bytes: u32) -> FsResult<Volume> {
    let layout = Layout::new(&superblock, &raw, device_bytes)?;
    if block_bytes > layout.frag_bytes {
        return Err(FsError::Invalid("the device's blocks are larger than the volume's fragments"));
    }
    Ok(Volume { layout, superblock, raw })
}

/// The error, when there is a superblock of UFS2 in one of its places.
async fn is_ufs2(device: &Device) -> FsResult<Option<FsError>> {
    let magic_at = Superblock::BYTES - 4;
    for offset in UFS2_OFFSETS {
        if device.geometry().bytes() < offset + SUPERBLOCK_BYTES as u64 {
            continue;
        }
        let raw = rescue(device, Sector(offset / SECTOR_BYTES), SUPERBLOCK_BYTES as u64 / SECTOR_BYTES).await?.bytes;
        let magic: u32 = codec::get_at(&raw, magic_at).unwrap_or(0);
        if magic == UFS2_MAGIC || magic == UFS2_MAGIC.swap_bytes() {
            let detail = "it is of UFS2, and only UFS1 is supported here";
            return Ok(Some(FsError::corrupt("superblock", format_args!("byte {offset}"), detail)));
        }
    }
    Ok(None)
}

/// Reads the summary of each group: nothing where it cannot be read, with a warning.
async fn read_summaries(device: &Device, layout: &Layout) -> FsResult<(Vec<Csum>, Option<String>)> {
    let sectors = u64::from(layout.cssize.next_multiple_of(layout.frag_bytes)) / SECTOR_BYTES;
    let read = rescue(device, layout.sector(layout.csaddr), sectors).await?;
    let summaries = read.bytes.chunks_exact(Csum::BYTES).take(layout.groups as usize);
    let summaries = summaries.map(|raw| Csum::decode(raw).unwrap_or(Csum::ZERO)).collect();
    let lost = read.lost.first().map(|(_, error)| format!("the summary of free space cannot be read: {error}"));
    Ok((summaries, lost))
}

/// What a volume says about itself, without mounting it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeInfo {
    pub layout: Layout,
    pub totals: Totals,
    pub clean: bool,
    pub label: String,
    pub id: [u32; 2],
    pub later_generation: bool,
}

/// # Errors
/// `Corrupt` when the device holds no volume that is supported here, `Device` when it cannot be read.
pub async fn info(device: &Device) -> FsResult<VolumeInfo> {
    let Volume { layout, superblock, .. } = find_volume(device).await?;
    let label = if superblock.is_updated() { &superblock.volname[..] } else { &[] };
    let label = label.split(|&byte| byte == 0).next().unwrap_or(&[]);
    Ok(VolumeInfo {
        totals: superblock.totals(),
        clean: superblock.is_closed(),
        label: String::from_utf8_lossy(label).into_owned(),
        id: superblock.id,
        later_generation: superblock.is_updated(),
        layout,
    })
}
