//! Which metadata is being read before a caller asks for it, and the signs that a caller will;
//! [`windows`](super::windows) reads it.

use std::collections::{BTreeSet, VecDeque};

use crate::units::{Ino, Sector};

/// Walks that are followed at once: one for each level of a tree, and several callers.
const WALKS_MAX: usize = 16;

/// How many subdirectories are read before the caller lists them: while it works on one, the next is on its way, and one more
/// covers a small one.
const DIRECTORIES_AHEAD: usize = 2;

/// What reading ahead has for a start, and at most. Each inode that was needed later adds one, each that was forgotten before
/// costs one. So callers that go through more inodes than there is memory for, at random, do not read each of them with
/// hundreds of others.
const CREDIT_MAX: usize = 4096;

/// With less, an inode is read with its group alone, whose other inodes can earn more: as many inodes as a window has.
const CREDIT_MIN: usize = 512;

/// Subdirectories that a caller has seen in a listing, in their order.
struct Walk {
    directories: Vec<Ino>,
    /// Index of the first that has neither been listed nor read ahead.
    next: usize,
}

/// What is being read before a caller asks for it, and what makes that likely.
pub(in crate::fs) struct MetadataAhead {
    credit: usize,
    /// The latest first.
    walks: VecDeque<Walk>,
    /// Directories whose leaves tasks are reading, and windows that are being read, by their start.
    pub leaves: BTreeSet<Ino>,
    pub windows: BTreeSet<Sector>,
    pub tasks: usize,
}

impl Default for MetadataAhead {
    fn default() -> MetadataAhead {
        MetadataAhead {
            credit: CREDIT_MAX,
            walks: VecDeque::new(),
            leaves: BTreeSet::new(),
            windows: BTreeSet::new(),
            tasks: 0,
        }
    }
}

impl MetadataAhead {
    /// An inode that was read with another was needed.
    pub(super) fn used(&mut self) {
        self.credit = (self.credit + 1).min(CREDIT_MAX);
    }

    /// Inodes that were read with others were forgotten before they were needed.
    pub(super) fn unused(&mut self, inodes: usize) {
        self.credit = self.credit.saturating_sub(inodes);
    }

    pub(in crate::fs) fn pays(&self) -> bool {
        self.credit >= CREDIT_MIN
    }

    pub(in crate::fs) fn is_idle(&self) -> bool {
        self.tasks == 0
    }

    pub(in crate::fs) fn clear(&mut self) {
        self.walks.clear();
    }

    /// A caller has seen these subdirectories in a listing.
    pub(super) fn seen(&mut self, directories: Vec<Ino>) {
        self.walks.push_front(Walk { directories, next: 0 });
        self.walks.truncate(WALKS_MAX);
    }

    /// A caller begins to list a directory. Returns those that it probably lists next and that have not been read ahead.
    pub(super) fn listing(&mut self, dir: Ino) -> Vec<Ino> {
        for walk in &mut self.walks {
            // Those that were read ahead are just before `next`.
            let from = walk.next.saturating_sub(DIRECTORIES_AHEAD);
            let expected = walk.directories.iter().enumerate().skip(from).take(DIRECTORIES_AHEAD + 1);
            let Some((index, _)) = expected.into_iter().find(|(_, expected)| **expected == dir) else { continue };
            let end = (index + 1 + DIRECTORIES_AHEAD).min(walk.directories.len());
            let ahead = walk.directories[walk.next.max(index + 1).min(end)..end].to_vec();
            walk.next = end.max(walk.next);
            return ahead;
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inos(numbers: impl IntoIterator<Item = u64>) -> Vec<Ino> {
        numbers.into_iter().map(Ino).collect()
    }

    /// Aim: a caller that walks a tree is recognised with the first subdirectory, and each directory is read ahead once; one
    /// that lists others is left alone. Method: two walks that are interleaved, one that skips a directory, and stray listings.
    #[test]
    fn walks_are_followed() {
        let mut ahead = MetadataAhead::default();
        ahead.seen(inos(100..106));
        assert_eq!(ahead.listing(Ino(104)), inos([]));
        assert_eq!(ahead.listing(Ino(100)), inos(101..103));
        ahead.seen(inos(200..202));
        assert_eq!(ahead.listing(Ino(200)), inos([201]));
        assert_eq!(ahead.listing(Ino(200)), inos([]));
        assert_eq!(ahead.listing(Ino(101)), inos([103]));
        assert_eq!(ahead.listing(Ino(201)), inos([]));
        // 102 is not listed.
        assert_eq!(ahead.listing(Ino(103)), inos(104..106));
        assert_eq!(ahead.listing(Ino(7)), inos([]));
        assert_eq!(ahead.listing(Ino(104)), inos([]));
        assert_eq!(ahead.listing(Ino(105)), inos([]));
    }
}
