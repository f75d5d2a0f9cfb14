//! Phase 5: the maps and counts of the groups, which follow from everything before.

use super::super::format::*;
use super::super::group;
use super::super::layout::Layout;
use super::super::mkfs::group_head;
use super::{Cause, Check};
use crate::fs::{FsError, FsResult};

impl Check<'_> {
    /// Compares the maps of all groups with what is in use. Returns the correct summaries.
    pub(super) async fn check_groups(&mut self) -> FsResult<Vec<Csum>> {
        let frags = self.layout.group_block_frags();
        let template = self.group_template().await?;
        let mut summaries = Vec::new();
        for number in self.layout.group_numbers() {
            let at = self.layout.group_block(number);
            let (mut bytes, is_whole) = self.read_group(at, frags).await?;
            let flaw = match group::verify(&self.layout, number, &bytes) {
                _ if !is_whole => Some(("it cannot be read".to_string(), Cause::Copy)),
                Ok(()) => None,
                Err(detail) => Some((detail, Cause::Damage)),
            };
            let mut changed = flaw.is_some();
            if let Some((detail, cause)) = flaw {
                self.problem(format!("group {number}: {detail}; rebuilt"), cause);
                bytes = self.new_head(number, template, bytes.len());
                if let Err(detail) = group::verify(&self.layout, number, &bytes) {
                    return Err(FsError::corrupt("cylinder groups", "all of them", detail));
                }
            }
            let Some(head) = Group::decode(&bytes) else { continue };
            let right = self.right_group(number, &head, &bytes);
            if let Some(what) = group::difference(&self.layout, &head, &bytes, &right) {
                if !changed {
                    let text = format!("group {number}: {what} do not agree with the inodes; rebuilt");
                    let cause = if is_leak(&self.layout, &bytes, &right) { Cause::Leak } else { Cause::Crash };
                    self.problem(text, cause);
                }
                changed = true;
            }
            if let Some(Group { ndir, nbfree, nifree, nffree, .. }) = Group::decode(&right) {
                summaries.push(Csum { ndir, nbfree, nifree, nffree });
            }
            if changed {
                self.write(at, right);
            }
        }
        Ok(summaries)
    }

    /// The first group that is intact.
    async fn group_template(&self) -> FsResult<Option<Group>> {
        for number in self.layout.group_numbers() {
            let (bytes, is_whole) =
                self.read_group(self.layout.group_block(number), self.layout.group_block_frags()).await?;
            if is_whole && group::verify(&self.layout, number, &bytes).is_ok() {
                return Ok(Group::decode(&bytes));
            }
        }
        Ok(None)
    }

    /// A group's block without its maps: as in another group, or as mkfs makes it.
    fn new_head(&self, number: GroupNo, template: Option<Group>, bytes: usize) -> Vec<u8> {
        let template = template.unwrap_or_else(|| group_head(&self.layout, &self.volume.superblock, number, self.now));
        let frags = self.layout.group_frags(number);
        let clusters = if self.layout.contigsumsize > 0 { frags / self.layout.frag } else { 0 };
        let mut block = vec![0; bytes];
        let head =
            Group { cgx: number, ndblk: frags, rotor: 0, frotor: 0, irotor: 0, nclusterblks: clusters, ..template };
        head.encode(&mut block);
        block
    }

    /// The correct block of a group.
    fn right_group(&self, number: GroupNo, head: &Group, bytes: &[u8]) -> Vec<u8> {
        let (first, per_group) = (self.layout.first_ino(number), self.layout.inodes_per_group);
        // A mount reads whole blocks of inodes: none in a block with an unreadable one can be given.
        let per_block = self.layout.inodes_per_block;
        let is_in_unread_block = |index: u32| {
            let block = first + index / per_block * per_block;
            self.unread.inodes.range(block..block + per_block).next().is_some()
        };
        let is_used = |index: u32| {
            let ino = first + index;
            let is_known = self.inodes.get(&ino).is_some_and(|inode| inode.mode != 0);
            ino < ROOT_INO || is_known || is_in_unread_block(index)
        };
        let directories = self.inodes.range(first..first + per_group);
        let directories = directories.filter(|(_, inode)| inode.mode != 0 && inode.is_directory()).count() as u32;
        // Those that cannot be read may be directories.
        let unread = self.unread.inodes.range(first..first + per_group).count() as u32;
        let directories = head.ndir.clamp(directories, directories + unread);
        let (base, bookkeeping) = (self.layout.group_base(number), self.layout.bookkeeping(number));
        let mut right = bytes.to_vec();
        group::build(&self.layout, head, &mut right, directories, is_used, |at| {
            !bookkeeping.contains(&(base + at)) && !self.is_used(base + at) && !self.unread.is_held(base + at)
        });
        right
    }
}

/// Whether the maps count everything in use, and possibly more.
pub(super) fn is_leak(layout: &Layout, bytes: &[u8], right: &[u8]) -> bool {
    let within = |part: &[u8], whole: &[u8]| part.iter().zip(whole).all(|(part, whole)| part & !whole == 0);
    within(group::free_map(layout, bytes), group::free_map(layout, right))
        && within(group::inode_map(layout, right), group::inode_map(layout, bytes))
}
