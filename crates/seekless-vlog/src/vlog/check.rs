//! Checks a virtual log disk.

use std::rc::Rc;

use super::core::Core;
use super::landmarks;
use super::open::{layout_of, newest_anchor, recover, superblocks_of_blocks};
use super::options::{Recovery, VldError};
use crate::device::Device;
use crate::units::counted;

/// Result of a check.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Checkup {
    /// Damage, one line each.
    pub errors: Vec<String>,
    /// Damage that the next use repairs or tolerates.
    pub notes: Vec<String>,
    pub recovery: Recovery,
    pub pieces: u64,
}

/// Checks everything from which the map is read. Nothing is written.
///
/// # Errors
/// When the device cannot be read, or has no virtual log disk on it. Damage is in the result.
pub async fn check(device: &Device) -> Result<Checkup, VldError> {
    let mut checkup = Checkup::default();
    let superblocks = match superblocks_of_blocks(device).await {
        Err(error @ VldError::Corrupt { .. }) => {
            checkup.errors.push(error.to_string());
            return Ok(checkup);
        }
        other => other?,
    };
    checkup.notes.extend(superblocks.notes().map(|note| format!("{note}, and the next use for writing rewrites it")));
    let superblock = superblocks.superblock;
    let layout = layout_of(superblock)?;
    checkup.errors.extend(landmarks::problems(device, &layout).await?);
    let (anchor, is_whole) = newest_anchor(device, &superblock).await?;
    if !is_whole {
        let what = if anchor.is_some() { "an anchor is" } else { "both anchors are" };
        checkup.notes.push(format!("{what} damaged; the tail of the log is searched for everywhere"));
    }
    match recover(device, &layout, true).await {
        Ok(found) => {
            let lost = found.recovery.sectors_lost;
            if lost > 0 {
                let what = counted(lost, "sector");
                checkup
                    .errors
                    .push(format!("{what} cannot be read where the tail of the log may be; use it read-only"));
            }
            checkup.recovery = found.recovery;
            checkup.pieces = found.log.pieces();
        }
        Err(error @ VldError::Corrupt { .. }) => checkup.errors.push(error.to_string()),
        Err(error) => return Err(error),
    }
    Ok(checkup)
}

/// Checks the invariants in memory, as far as they can be counted.
pub(super) fn invariants(core: &Rc<Core>) -> Result<(), String> {
    let state = core.state.borrow();
    state.space.check(&core.layout)?;
    state.promises.check(core.layout.logical_blocks)?;
    let mut pieces = vec![0u8; core.layout.blocks as usize];
    core.log.check()?;
    for (index, cell) in core.log.placed_pieces() {
        if state.space.is_cell_free(cell) {
            return Err(format!("T3: piece {index} is in cell {cell}, which is free"));
        }
        pieces[core.layout.block_of(cell) as usize] += 1;
    }
    let mut mapped = 0u64;
    for (logical, &block) in state.map.iter().enumerate().filter(|(_, block)| **block != 0) {
        mapped += 1;
        if state.shares.is_empty() && state.owner[block as usize] != logical as u32 + 1 {
            return Err(format!("block {logical} is mapped to {block}, which does not know"));
        }
        if state.space.is_free(block) || pieces[block as usize] > 0 {
            return Err(format!("V1: block {logical} is mapped to {block}, which is free or has a piece"));
        }
    }
    let shares: u64 = state.shares.iter().map(|&shares| u64::from(shares)).sum();
    // While a transaction is under way or undecided, what it replaces is in use and no longer pending.
    let is_quiet = state.pending.is_empty() && !core.log.is_undecided() && !core.commit_gate.is_held();
    let beside = state.used_beside_map();
    let reserved = (0..core.layout.blocks).filter(|&block| core.layout.is_reserved(block)).count() as u64;
    let broken = pieces.iter().filter(|&&count| count > 0).count() as u64;
    let used = u64::from(core.layout.blocks) - reserved - state.space.free_blocks();
    match is_quiet && used + shares != mapped + broken + beside {
        true => Err(format!(
            "V1: {used} blocks are used, {mapped} entries lead to some, {shares} of them not first, {broken} have pieces, and {beside} are written or read"
        )),
        false => Ok(()),
    }
}
