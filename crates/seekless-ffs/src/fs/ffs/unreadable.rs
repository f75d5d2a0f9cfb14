//! Blocks of groups and of inodes that could not be read: new files and blocks go elsewhere, as long as there is room elsewhere.
//!
//! A search for room that meets such a group goes on without it, and comes back to it only when no other has room: then it may be
//! readable again, and otherwise the caller gets the error. Of several such groups, each search tries the one that was tried longest
//! ago. What is free in them cannot be promised, and counts neither as available nor as ready on a full host. Whether a block of
//! inodes can be read shows only when an inode is stored there. The first new file in such a block is refused; later ones go
//! elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::cache::BufferKind;
use super::layout::Layout;
use super::numbers::{FragNo, GroupNo};

/// What could not be read since the mount, and has not been read since.
#[derive(Default)]
pub(super) struct Unreadable {
    /// Groups, and which attempt to read one has failed last.
    groups: BTreeMap<GroupNo, u64>,
    attempts: u64,
    /// Shared with searches, which change the state.
    inode_blocks: Rc<BTreeSet<FragNo>>,
}

impl Unreadable {
    pub(super) fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    pub(super) fn has_group(&self, group: GroupNo) -> bool {
        self.groups.contains_key(&group)
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = GroupNo> {
        self.groups.keys().copied()
    }

    /// The order in which groups are tried: those that can be read, then the one that was tried longest ago.
    pub(super) fn rank(&self, group: GroupNo) -> Option<u64> {
        self.groups.get(&group).copied()
    }

    /// Whether a lack of room may be due to what cannot be read.
    pub(super) fn has_any(&self) -> bool {
        self.has_groups() || !self.inode_blocks.is_empty()
    }

    /// The blocks of inodes.
    pub(super) fn inode_blocks(&self) -> Rc<BTreeSet<FragNo>> {
        Rc::clone(&self.inode_blocks)
    }

    /// Inodes of a group that are in such blocks, in use or not.
    pub(super) fn inodes_in(&self, layout: &Layout, group: GroupNo) -> u32 {
        let of_group = layout.group_base(group)..layout.group_base(GroupNo(group.0 + 1));
        self.inode_blocks.range(of_group).count() as u32 * layout.inodes_per_block
    }

    /// Records whether a block could be read.
    pub(super) fn note(&mut self, kind: BufferKind, at: FragNo, is_read: bool) {
        match (kind, is_read) {
            (BufferKind::Group(group), true) => drop(self.groups.remove(&group)),
            (BufferKind::Group(group), false) => {
                self.attempts += 1;
                self.groups.insert(group, self.attempts);
            }
            (BufferKind::Inodes, true) if !self.inode_blocks.contains(&at) => {}
            (BufferKind::Inodes, true) => drop(Rc::make_mut(&mut self.inode_blocks).remove(&at)),
            (BufferKind::Inodes, false) => drop(Rc::make_mut(&mut self.inode_blocks).insert(at)),
            _ => {}
        }
    }
}
