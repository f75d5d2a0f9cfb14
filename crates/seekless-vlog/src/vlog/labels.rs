//! Labels of snapshots: which exist, and their names.

use super::format::Label;
use super::layout::Layout;
use crate::device::rescue::rescue_right;
use crate::device::{Device, DeviceError};
use crate::units::SECTOR_BYTES;

/// A snapshot, as its label describes it.
pub(super) struct LabelledSnapshot {
    pub(super) number: u32,
    pub(super) created_seconds: i64,
    pub(super) name: String,
}

/// The mapped entries of labels: the number of the snapshot, and the block.
pub(super) fn places(layout: &Layout, map: &[u32]) -> Vec<(u32, u32)> {
    let place = |number: u32| (number, map[layout.label_of(number) as usize]);
    (1..=layout.snapshots).map(place).filter(|&(_, block)| block != 0).collect()
}

/// Beginning of the names of snapshots whose labels are damaged; the number follows.
const DAMAGED: &str = "damaged-";

/// True for the names that [`read_labels`] gives: a label that has one would be one of two snapshots of that name.
pub(super) fn is_name_of_damaged(name: &str) -> bool {
    name.strip_prefix(DAMAGED).is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Reads labels.
pub(super) async fn read_labels(
    device: &Device,
    layout: &Layout,
    places: Vec<(u32, u32)>,
) -> Result<Vec<LabelledSnapshot>, DeviceError> {
    let sectors = u64::from(layout.block_bytes()) / SECTOR_BYTES;
    let mut found = Vec::new();
    for (number, block) in places {
        let is_right = |bytes: &[u8]| Label::from_block(bytes).is_some();
        let read = rescue_right(device, layout.sector_of(block), sectors, is_right).await?;
        // One that is damaged, or cannot be read, gets a name by which it can be removed.
        let (created_seconds, name) = match Label::from_block(&read.bytes) {
            Some((label, name)) => (label.created_seconds, name),
            None => (0, format!("{DAMAGED}{number}")),
        };
        found.push(LabelledSnapshot { number, created_seconds, name });
    }
    Ok(found)
}

/// The map of the snapshot `name`, if it exists, of a disk that is not yet in use.
pub(super) async fn find(
    device: &Device,
    layout: &Layout,
    map: &[u32],
    name: &str,
) -> Result<Option<u32>, DeviceError> {
    let found = read_labels(device, layout, places(layout, map)).await?;
    Ok(found.into_iter().find(|found| found.name == name).map(|found| found.number))
}
