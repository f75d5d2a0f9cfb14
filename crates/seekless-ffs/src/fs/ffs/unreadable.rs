//! Blocks of groups and of inodes that could not be read: new files and blocks go elsewhere.

use std::collections::BTreeSet;

use super::cache::BufferKind;
use super::layout::Layout;
use super::numbers::{FragNo, GroupNo, InodeNo};

/// What could not be read since the mount, and has not been read since.
#[derive(Default)]
pub(super) struct Unreadable {
    groups: BTreeSet<GroupNo>,
    /// The first inode of each block.
    inodes: BTreeSet<InodeNo>,
}

impl Unreadable {
    pub(super) fn has_group(&self, group: GroupNo) -> bool {
        self.groups.contains(&group)
    }

    /// Whether an inode is in a block that could not be read. Without the state, for searches in a group.
    pub(super) fn inodes(&self, layout: &Layout) -> impl Fn(GroupNo, u32) -> bool + use<> {
        let (inodes, per_group, per_block) = (self.inodes.clone(), layout.inodes_per_group, layout.inodes_per_block);
        move |group, index| {
            !inodes.is_empty() && inodes.contains(&InodeNo(group.0 * per_group + index / per_block * per_block))
        }
    }

    /// Records how a read has ended. Returns whether it is the first that has failed there, so that a search may go on without it.
    pub(super) fn note(&mut self, layout: &Layout, kind: BufferKind, at: FragNo, is_read: bool) -> bool {
        match kind {
            BufferKind::Group(group) if is_read => self.groups.remove(&group) && false,
            BufferKind::Group(group) => self.groups.insert(group),
            BufferKind::Inodes => {
                let first = first_inode(layout, at);
                if is_read { self.inodes.remove(&first) && false } else { self.inodes.insert(first) }
            }
            _ => false,
        }
    }
}

/// The first inode in the block of inodes at `at`.
fn first_inode(layout: &Layout, at: FragNo) -> InodeNo {
    let first = layout.first_ino(layout.group_of(at));
    let (start, _) = layout.inode_place(first);
    first + (at - start) / layout.frag * layout.inodes_per_block
}
