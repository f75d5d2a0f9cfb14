//! Aim: VLFS does what every file system does and what only VLFS does, and a remount finds all of it. Method: small
//! programs over devices in memory, each followed by a remount and a full check; then the harnesses.

mod books;
mod crash;
mod damage;
mod disk;
mod full_host;
mod group_commit;
mod idle;
mod model;
mod space;

use std::rc::Rc;

use async_trait::async_trait;

use super::*;
use crate::device::{Device, Memory};
use crate::fs::client::Client;
use crate::fs::*;
use crate::testing::FsUnderTest;
use crate::testing::volumes;
pub(super) use crate::testing::volumes::simulate;
use crate::units::{MIB, Nanos};

/// VLFS on a small volume.
#[derive(Default)]
pub(super) struct Small {
    pub options: Options,
}

#[async_trait(?Send)]
impl FsUnderTest for Small {
    fn name(&self) -> String {
        "vlfs".to_string()
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
}

pub(super) async fn fresh(rt: &Rt, bytes: u64) -> (Rc<Memory>, Device) {
    volumes::fresh(rt, &Small::default(), bytes).await
}

pub(super) async fn session<T>(rt: &Rt, device: &Device, program: impl AsyncFnOnce(&Client) -> T) -> T {
    volumes::session(rt, &Small::default(), device, program).await
}

#[test]
fn an_empty_volume_is_clean() {
    volumes::basics::an_empty_volume_is_clean(&Small::default(), MIB);
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

/// After a mount VLFS continues the generation count from the inodes that are left.
#[test]
fn numbers_come_back_with_another_generation() {
    volumes::basics::numbers_come_back_with_another_generation(&Small::default(), false);
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
