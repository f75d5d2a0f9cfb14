//! Aim: LFS does what every file system does and what only LFS does, and a remount finds all of it. Method: small
//! programs over devices in memory, each followed by a remount and a full check; then the harnesses.

mod books;
mod cost;
mod crafted;
mod crash;
mod damage;
mod full_host;
mod group_commit;
mod large_writes;
mod log;
mod made_again;
mod metadata_ahead;
mod model;
mod read_ahead;
mod space;
mod stamps;
mod tables;
mod torn;
mod unreadable;
mod victims;

use std::rc::Rc;

use async_trait::async_trait;

use super::*;
use crate::device::{Device, Image, Memory};
use crate::fs::client::Client;
use crate::fs::*;
use crate::testing::FsUnderTest;
use crate::testing::volumes;
pub(super) use crate::testing::volumes::simulate;
use crate::units::{KIB, MIB, Nanos};

/// LFS on a small volume.
#[derive(Default)]
pub(super) struct Small {
    pub options: Options,
}

#[async_trait(?Send)]
impl FsUnderTest for Small {
    fn name(&self) -> String {
        "lfs".to_string()
    }

    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()> {
        mkfs(rt, &device, &MkfsOptions::new([1, 2, 3, 4])).await
    }

    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        Ok(mount(rt.clone(), device, self.options).await?)
    }

    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        Ok(fsck(rt.clone(), device, FsckOptions { data: true, ..FsckOptions::default() }).await?.errors)
    }

    /// Either checkpoint slot alone is enough (G1).
    fn without_redundancy(&self, image: &Image) -> Vec<(String, Image)> {
        without_newest_slot(image).into_iter().map(|image| ("the newest checkpoint".to_string(), image)).collect()
    }
}

/// What a mount reads around a missing inode, or nothing.
pub(super) fn around(on_a_mount: bool) -> u64 {
    if on_a_mount { 128 * KIB } else { 0 }
}

/// The serial of the checkpoint in each slot.
pub(super) fn slot_serials(image: &Image) -> [Option<u64>; 2] {
    format::CHECKPOINT_SECTORS.map(|slot| {
        let mut bytes = vec![0; 2 * format::BLOCK_BYTES];
        image.read(slot, &mut bytes);
        let copies = bytes.chunks_exact(format::BLOCK_BYTES).filter_map(format::Checkpoint::from_block);
        copies.map(|checkpoint| checkpoint.serial).max()
    })
}

/// `image` without the newest checkpoint's slot, where both are there.
pub(super) fn without_newest_slot(image: &Image) -> Option<Image> {
    let [Some(first), Some(second)] = slot_serials(image) else { return None };
    let newest = format::CHECKPOINT_SECTORS[usize::from(second > first)];
    let mut image = image.clone();
    image.zero(newest, 2 * format::BLOCK_SECTORS);
    Some(image)
}

pub(super) async fn fresh(rt: &Rt, bytes: u64) -> (Rc<Memory>, Device) {
    volumes::fresh(rt, &Small::default(), bytes).await
}

pub(super) async fn assert_clean(rt: &Rt, device: &Device) {
    volumes::assert_clean(rt, &Small::default(), device).await;
}

pub(super) async fn session<T>(rt: &Rt, device: &Device, program: impl AsyncFnOnce(&Client) -> T) -> T {
    volumes::session(rt, &Small::default(), device, program).await
}

#[test]
fn an_empty_volume_is_clean() {
    volumes::basics::an_empty_volume_is_clean(&Small::default(), 9 * MIB);
}

#[test]
fn truncating_to_the_same_size_frees_what_is_reserved() {
    volumes::basics::truncating_to_the_same_size_frees_what_is_reserved(&Small::default());
}

#[test]
fn files_with_more_indirect_blocks_than_the_cache_are_freed() {
    let subject = Small { options: Options { cache_bytes: 1, ..Options::default() } };
    volumes::basics::files_with_more_indirect_blocks_than_the_cache_are_freed(&subject);
}

#[test]
fn inherited_lists_have_a_limit() {
    volumes::basics::inherited_lists_have_a_limit(&Small::default());
}

#[test]
fn a_punch_leaves_reserved_blocks_that_it_covers_in_part() {
    volumes::basics::a_punch_leaves_reserved_blocks_that_it_covers_in_part(&Small::default());
}

#[test]
fn a_hole_as_large_as_a_file_can_be() {
    volumes::basics::a_hole_as_large_as_a_file_can_be(&Small::default(), crate::fs::logfs::format::FILE_BYTES_MAX);
}

#[test]
fn files_survive_a_remount() {
    volumes::basics::files_survive_a_remount(&Small::default());
}

#[test]
fn numbers_come_back_with_another_generation() {
    volumes::basics::numbers_come_back_with_another_generation(&Small::default(), true);
}

#[test]
fn synced_files_survive_without_closing() {
    volumes::basics::synced_files_survive_without_closing(&Small::default());
}

#[test]
fn same_seed_same_bytes_and_time() {
    volumes::basics::same_seed_same_bytes_and_time(&Small::default());
}

#[test]
fn changes_take_capabilities_away() {
    volumes::basics::changes_take_capabilities_away(&Small::default());
}

#[test]
fn a_name_exchanged_with_itself() {
    volumes::basics::a_name_exchanged_with_itself(&Small::default());
}

#[test]
fn sectors_of_4096_bytes() {
    volumes::basics::sectors_of_4096_bytes(&Small::default());
}

#[test]
fn renames_leave_whiteouts() {
    volumes::unnamed::renames_leave_whiteouts(&Small::default());
}

#[test]
fn files_without_names() {
    volumes::unnamed::files_without_names(&Small::default());
}

#[test]
fn lists_are_inherited_without_names() {
    volumes::unnamed::lists_are_inherited_without_names(&Small::default());
}

#[test]
fn attribute_names_are_checked() {
    volumes::unnamed::attribute_names_are_checked(&Small::default());
}
