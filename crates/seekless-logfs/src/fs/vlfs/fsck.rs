//! Checking a volume: reads everything that can be reached and compares it with everything that is counted.
//!
//! The volume is recovered in memory, as by a read-only mount, which finds addresses that are claimed twice or are
//! impossible; then it is walked. Mounting repairs what a power cut can leave behind, so what this check finds is
//! damage. A repair writes only superblocks.

use futures_util::future::LocalBoxFuture;

use super::format::*;
use super::recovery;
use super::state::{State, Virtual};
use super::{Options, Vlfs};
use crate::device::Device;
pub use crate::fs::logfs::check::Fsck;
use crate::fs::logfs::check::{self, Claims};
use crate::fs::logfs::tree::*;
use crate::fs::{FsError, FsResult};
use crate::rt::Rt;
use crate::units::{FixedMap, Ino, SECTOR_BYTES, counted};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FsckOptions {
    /// Read all file data too, and compare it with its checksums.
    pub data: bool,
    /// Rewrite damaged superblocks.
    pub repair: bool,
}

/// Checks the volume on `device`.
///
/// # Errors
/// Those of [`super::mount`], when there is no volume or its inode map is damaged. Other damage is in the result.
pub fn fsck(rt: Rt, device: Device, options: FsckOptions) -> LocalBoxFuture<'static, FsResult<Fsck>> {
    Box::pin(check_volume(rt, device, options))
}

async fn check_volume(rt: Rt, device: Device, options: FsckOptions) -> FsResult<Fsck> {
    let (_, found) = recovery::find_volume(&device).await?;
    let mount_options = Options { read_only: true, cache_data: false, ..Options::default() };
    let vlfs = recovery::recover(rt, device.clone(), mount_options).await?;
    let mut check = Check::new(vlfs, options.data, Places::default());
    if !options.repair {
        check.result.errors.extend(found.damaged.iter().cloned());
        check.result.repairable = !found.damaged.is_empty();
    }
    check.result.notes.extend(found.notes);
    let warnings = check.fs.warnings.borrow().clone();
    warnings.into_iter().for_each(|warning| check.error(warning));
    if !found.is_parked {
        check.result.notes.push("the volume was not closed; its log was searched for the tail".to_string());
    }
    check_inodes(&mut check).await?;
    check.check_directories().await?;
    check.check_links();
    check_counts(&mut check);
    if options.repair && !found.damaged.is_empty() {
        let said = recovery::mend_superblocks(&device, found.damaged).await?;
        device.flush().await?;
        check.result.mended(said);
    }
    Ok(check.result)
}

type Check = check::Check<Virtual, Places>;

/// Claimed parts of each block, in units of 256 bytes.
#[derive(Default)]
struct Places {
    blocks: FixedMap<u64, u16>,
}

const UNIT: u64 = Inode::BYTES as u64;
const UNITS_PER_BLOCK: u64 = BLOCK_BYTES as u64 / UNIT;
const _: () = assert!(UNITS_PER_BLOCK == 16);

impl Claims<Virtual> for Places {
    fn claim(&mut self, state: &State, from: u64, bytes: u64) -> Result<(), &'static str> {
        use crate::fs::logfs::backend::SpaceAccounts;
        let sector = crate::units::Sector(from / SECTOR_BYTES);
        if !Virtual::holds(state, sector, bytes.div_ceil(SECTOR_BYTES)) {
            return Err("where nothing can be");
        }
        let mut is_taken = false;
        for unit in from / UNIT..(from + bytes).div_ceil(UNIT) {
            let bits = self.blocks.entry(unit / UNITS_PER_BLOCK).or_insert(0);
            let bit = 1u16 << (unit % UNITS_PER_BLOCK);
            is_taken |= *bits & bit != 0;
            *bits |= bit;
        }
        if is_taken { Err("where something else is too") } else { Ok(()) }
    }

    fn attribute_places(state: &State, pointer: Pointer) -> Vec<(u64, u64)> {
        let Pointer::Mapped { at, .. } = pointer else { return Vec::new() };
        let block = BLOCK_BYTES as u64;
        let parts = state.log.parts.get(&at).into_iter().flatten();
        std::iter::once((at.byte_offset(), block)).chain(parts.map(|&part| (u64::from(part) * block, block))).collect()
    }
}

async fn check_inodes(check: &mut Check) -> FsResult<()> {
    let entries = check.fs.state.borrow().log.store.entries();
    for (number, entry) in entries {
        let (ino, slot) = (Ino(number.into()), InodeSlot(entry.into()));
        check.claim(slot.0 * UNIT, UNIT, format_args!("inode {ino}"));
        let fs: std::rc::Rc<Vlfs> = check.fs.clone();
        let inode = fs.run(|state| Ok(state.inode(ino)?.inode)).await;
        if let Err(FsError::Stale) = inode {
            check.error(format!("inode {ino} is a number that no file can have"));
            continue;
        }
        // Damage has been reported by now.
        if let Ok(inode) = inode {
            check.check_inode(ino, inode).await?;
        } else {
            check.noted(inode)?;
        }
    }
    Ok(())
}

fn check_counts(check: &mut Check) {
    let mut errors = Vec::new();
    {
        let state = check.fs.state.borrow();
        if state.unwritten_bytes != check.unwritten_bytes {
            let (said, found) = (state.unwritten_bytes, check.unwritten_bytes);
            errors.push(format!("{said} bytes are recorded as reserved, but {found} are"));
        }
        if let Err(broken) = state.log.store.check_invariants() {
            errors.push(broken);
        }
        let used = state.log.usable_blocks - state.log.store.free_blocks();
        check.result.live_bytes = used * BLOCK_BYTES as u64;
        let pieces = state.log.store.recovery().pieces_read;
        check.result.notes.push(format!("{} of the inode map", counted(pieces, "piece")));
    }
    errors.into_iter().for_each(|error| check.error(error));
}
