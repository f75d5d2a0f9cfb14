//! Directories: a binary trie over hashed names, whose nodes are found by computation.
//!
//! Format: FORMAT.md, "Directories".
//!
//! The leaf of depth `d` with prefix `p` is block `2^d - 1 + p` of the directory's file and holds the entries
//! whose hash begins with the `d` bits of `p`. A full leaf splits into its two children; two small siblings
//! merge into their parent. There is no index that could be damaged or grow out of balance: the file's own
//! block map says which leaves exist.
//!
//! Invariants
//!   D1  On the path of any hash from the root at most one leaf exists. None on some path only when the
//!       directory is empty.
//!   D2  Entries of a leaf are ordered by hash; no two entries of a directory have the same hash.
//!
//! Names are hashed with SipHash-2-4 under a key of the volume. The low bits of a hash number those names that would
//! collide, so a hash alone identifies an entry: it is the cookie at which a listing continues.

use siphasher::sip::SipHasher24;
use std::hash::Hasher;

use super::LogBackend;
use super::change::Change;
use super::format::*;
use super::leaf::{COLLISIONS, DEPTH_MAX, EntrySpan, Slot, Stored, StoredEntry, encode_leaf, encoded_bytes, prefix};
pub use super::leaf::{FoundEntry, HASH_BITS, decode_leaf};
use super::state::*;
use super::tree::*;
use crate::device::Data;
use crate::fs::{EntryName, FileKind, FsError};
use crate::rt::cover;
use crate::units::Ino;

/// The hash of `name` with its collision bits zero.
pub fn hash_name(key: [u64; 2], name: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(key[0], key[1]);
    hasher.write(name);
    hasher.finish() >> (64 - HASH_BITS) & !(COLLISIONS - 1)
}

/// Number of the block that holds the leaf of `depth` on the path of `hash`.
pub fn leaf_block(depth: u32, hash: u64) -> u64 {
    (1 << depth) - 1 + prefix(depth, hash)
}

/// First hash after those of the leaf; `None` after the last leaf.
pub fn leaf_end(depth: u32, hash: u64) -> Option<u64> {
    let end = (prefix(depth, hash) + 1) << (HASH_BITS - depth);
    (end < 1 << HASH_BITS).then_some(end)
}

/// True when the entry has a hash that its name can have.
pub(in crate::fs) fn hash_fits(key: [u64; 2], entry: &FoundEntry) -> bool {
    hash_name(key, &entry.name) == entry.hash & !(COLLISIONS - 1)
}

/// Deepest leaf that a directory of this size can have.
fn depth_limit(size: u64) -> u32 {
    let blocks = size / BLOCK_BYTES as u64;
    (blocks + 1).ilog2().min(DEPTH_MAX + 1)
}

/// A leaf on the path of a hash.
pub(in crate::fs) struct LeafAt {
    dir: Ino,
    depth: u32,
    prefix: u64,
    block: Data,
}

impl LeafAt {
    fn id(&self) -> BlockId {
        BlockId::data(self.dir, (1 << self.depth) - 1 + self.prefix)
    }

    /// What `look` finds in the leaf.
    fn look<'a, T>(&'a self, look: impl FnOnce(Stored<'a>) -> Result<T, &'static str>) -> Step<T> {
        let found = Stored::new(&self.block, self.depth, self.prefix).and_then(look);
        found.or_else(|detail| fail(FsError::corrupt("directory", format_args!("{:?}", self.id()), detail)))
    }

    fn entries(&self) -> Step<Vec<FoundEntry>> {
        self.look(|leaf| leaf.checked()?.entries().map(|entry| entry.map(StoredEntry::to_found)).collect())
    }

    fn find(&self, base: u64, name: &[u8]) -> Step<Option<StoredEntry<'_>>> {
        self.look(|leaf| leaf.find(base, name))
    }
}

/// A name in a directory: the leaf that has its entry, or would have it.
///
/// Leaves of the directory must not change before it is used.
pub(in crate::fs) struct NamePlace<'a> {
    dir: Ino,
    name: &'a [u8],
    /// The hash of the name with its collision bits zero.
    base: u64,
    leaf: Option<LeafAt>,
}

impl NamePlace<'_> {
    fn entry(&self) -> Step<Option<StoredEntry<'_>>> {
        self.leaf.as_ref().map_or(Ok(None), |leaf| leaf.find(self.base, self.name))
    }

    /// What the name refers to.
    pub(in crate::fs) fn found(&self) -> Step<Option<Named>> {
        Ok(self.entry()?.map(|entry| Named { ino: entry.ino, kind: entry.kind }))
    }
}

/// What a name refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::fs) struct Named {
    pub ino: Ino,
    pub kind: FileKind,
}

/// Entries of a directory that share a leaf, from some hash on.
pub(in crate::fs) struct Listed {
    leaf: Option<LeafAt>,
    from: u64,
    /// Where the next leaf begins.
    pub next: Option<u64>,
}

impl Listed {
    pub(in crate::fs) fn entries(&self) -> impl Iterator<Item = StoredEntry<'_>> {
        let leaf = self.leaf.as_ref().and_then(|leaf| Stored::new(&leaf.block, leaf.depth, leaf.prefix).ok());
        // It has been checked.
        let entries = leaf.into_iter().flat_map(Stored::entries).map_while(Result::ok);
        entries.skip_while(|entry| entry.hash < self.from)
    }
}

impl<L: LogBackend> Change<'_, L> {
    fn hash(&self, name: &[u8]) -> u64 {
        hash_name(self.state.volume.hash_key, name)
    }

    /// Depth of the leaf on the path of `hash`; `None` when the directory is empty.
    fn leaf_depth(&mut self, dir: Ino, hash: u64) -> Step<Option<u32>> {
        let limit = depth_limit(self.inode(dir)?.size);
        if limit == 0 {
            return Ok(None);
        }
        // Most leaves are about equally deep, so look at the depth where the last one was found, and then around it.
        let hint = u32::from(self.state.leaf_depth.get(&dir).copied().unwrap_or(0)).min(limit - 1);
        let below = hint..limit;
        let above = (0..hint).rev();
        for depth in below.chain(above) {
            if self.block_exists(BlockId::data(dir, leaf_block(depth, hash)))? {
                self.state.leaf_depth.insert(dir, depth as u8);
                return Ok(Some(depth));
            }
        }
        Ok(None)
    }

    /// The leaf of `depth` on the path of `hash`, which exists.
    fn leaf_of(&mut self, dir: Ino, depth: u32, hash: u64) -> Step<LeafAt> {
        let prefix = prefix(depth, hash);
        let block = self.block(BlockId::data(dir, leaf_block(depth, hash)))?;
        // A block that is reserved reads as zeroes, which are no leaf.
        let block = block.unwrap_or_else(|| Data::zeroes(BLOCK_BYTES));
        Ok(LeafAt { dir, depth, prefix, block })
    }

    fn leaf(&mut self, dir: Ino, hash: u64) -> Step<Option<LeafAt>> {
        match self.leaf_depth(dir, hash)? {
            None => Ok(None),
            Some(depth) => self.leaf_of(dir, depth, hash).map(Some),
        }
    }

    fn put_leaf(&mut self, dir: Ino, depth: u32, hash: u64, entries: &[FoundEntry]) -> Step<()> {
        let block = self.block_mut(BlockId::data(dir, leaf_block(depth, hash)))?;
        encode_leaf(block, depth, prefix(depth, hash), entries);
        let size = ((1u64 << (depth + 1)) - 1) * BLOCK_BYTES as u64;
        let inode = self.inode_mut(dir, InodeDirt::Namespace)?;
        inode.size = inode.size.max(size);
        Ok(())
    }

    /// The inode of a directory.
    ///
    /// # Errors
    /// `NotDirectory`.
    pub(in crate::fs) fn directory(&mut self, dir: Ino) -> Step<Inode> {
        let inode = *self.inode(dir)?;
        if kind_of(&inode)? != FileKind::Directory {
            return fail(FsError::NotDirectory);
        }
        Ok(inode)
    }

    /// Looks for a name.
    pub(in crate::fs) fn place_of<'n>(&mut self, dir: Ino, name: &'n [u8]) -> Step<NamePlace<'n>> {
        check_name(name)?;
        let base = self.hash(name);
        Ok(NamePlace { dir, name, base, leaf: self.leaf(dir, base)? })
    }

    /// What `name` refers to.
    pub(in crate::fs) fn find(&mut self, dir: Ino, name: &[u8]) -> Step<Option<Named>> {
        self.place_of(dir, name)?.found()
    }

    /// What `look` finds in a leaf that is to change.
    fn look_before_change<'a, T>(
        &self,
        leaf: &'a LeafAt,
        look: impl FnOnce(Stored<'a>) -> Result<T, &'static str>,
    ) -> Step<T> {
        // A leaf that a change has left was checked before it, or made by it.
        let is_checked = self.is_checked(leaf.id());
        leaf.look(|stored| look(if is_checked { stored } else { stored.checked()? }))
    }

    /// Adds a name that does not exist.
    pub(in crate::fs) fn insert(&mut self, place: &NamePlace<'_>, ino: Ino, kind: FileKind) -> Step<()> {
        let &NamePlace { dir, name, base, .. } = place;
        match &place.leaf {
            None => self.put_leaf(dir, 0, base, &[FoundEntry { ino, hash: base, kind, name: name.to_vec() }])?,
            Some(leaf) => {
                let slot = self.look_before_change(leaf, |stored| {
                    Ok(Slot::of(stored, base)?.map(|slot| (slot, Slot::fits(stored, name))))
                })?;
                let Some((slot, fits)) = slot else {
                    // Nine names with the same 59 bits under a secret key.
                    return fail(FsError::NoSpace);
                };
                if fits {
                    slot.fill(self.block_mut(leaf.id())?, ino, kind, name);
                } else {
                    let mut entries = leaf.entries()?;
                    let at = entries.partition_point(|entry| entry.hash < slot.hash);
                    entries.insert(at, FoundEntry { ino, hash: slot.hash, kind, name: name.to_vec() });
                    self.split_and_put(dir, leaf.depth, slot.hash, entries)?;
                }
            }
        }
        let inode = self.inode_mut(dir, InodeDirt::Namespace)?;
        inode.special = match inode.special.checked_add(1) {
            Some(entries) => entries,
            None => {
                return fail(FsError::corrupt("directory", dir, "its entry count is the largest possible"));
            }
        };
        self.touch_directory_times(dir)
    }

    /// Stores `entries` in the leaf on the path of `hash`, or in leaves below it.
    fn split_and_put(&mut self, dir: Ino, depth: u32, hash: u64, entries: Vec<FoundEntry>) -> Step<()> {
        if encoded_bytes(&entries) <= BLOCK_BYTES {
            return self.put_leaf(dir, depth, hash, &entries);
        }
        if depth == DEPTH_MAX {
            return fail(FsError::NoSpace);
        }
        cover("logfs: a leaf of a directory is split");
        self.unmap(BlockId::data(dir, leaf_block(depth, hash)))?;
        // Both children are created, also when one stays empty (D1).
        let bit = 1u64 << (HASH_BITS - depth - 1);
        let split = entries.partition_point(|entry| entry.hash & bit == 0);
        let (low, high) = (entries[..split].to_vec(), entries[split..].to_vec());
        self.split_and_put(dir, depth + 1, hash & !bit, low)?;
        self.split_and_put(dir, depth + 1, hash | bit, high)
    }

    /// The leaf of a name that exists, and where in it the entry is, which is to change.
    fn entry_to_change<'p>(&self, place: &'p NamePlace<'_>) -> Step<(&'p LeafAt, EntrySpan)> {
        let Some(leaf) = &place.leaf else { return fail(FsError::NotFound) };
        match self.look_before_change(leaf, |stored| stored.find(place.base, place.name))? {
            Some(entry) => Ok((leaf, EntrySpan::of(entry))),
            None => fail(FsError::NotFound),
        }
    }

    /// Removes a name that exists.
    pub(in crate::fs) fn remove(&mut self, place: &NamePlace<'_>) -> Step<()> {
        let (leaf, entry) = self.entry_to_change(place)?;
        let (dir, hash) = (place.dir, place.base);
        let left = entry.remove(self.block_mut(leaf.id())?);
        self.merge_up(dir, leaf.depth, hash, left)?;
        let inode = self.inode_mut(dir, InodeDirt::Namespace)?;
        inode.special = match inode.special.checked_sub(1) {
            Some(entries) => entries,
            None => {
                return fail(FsError::corrupt("directory", dir, "its entry count is 0, and an entry is removed"));
            }
        };
        self.touch_directory_times(dir)
    }

    /// Joins the leaf with its sibling while the two together fill less than half a block. `entry_count` and `used_bytes`
    /// are those of the leaf.
    fn merge_up(&mut self, dir: Ino, depth: u32, hash: u64, left: (usize, usize)) -> Step<()> {
        let (mut entry_count, mut used_bytes) = left;
        for depth in (1..=depth).rev() {
            // Do not read the sibling before there is much to gain.
            if used_bytes > BLOCK_BYTES / 4 {
                return Ok(());
            }
            let bit = 1u64 << (HASH_BITS - depth);
            if !self.block_exists(BlockId::data(dir, leaf_block(depth, hash ^ bit)))? {
                return Ok(()); // It has split further.
            }
            let sibling = self.leaf_of(dir, depth, hash ^ bit)?;
            if used_bytes + sibling.look(|leaf| Ok(leaf.checked()?.used_bytes()))? > BLOCK_BYTES / 2 {
                return Ok(());
            }
            cover("logfs: two leaves of a directory are joined");
            let leaf = self.leaf_of(dir, depth, hash)?;
            let mut entries = [leaf.entries()?, sibling.entries()?].concat();
            entries.sort_by_key(|entry| entry.hash);
            self.unmap(leaf.id())?;
            self.unmap(sibling.id())?;
            self.put_leaf(dir, depth - 1, hash, &entries)?;
            (entry_count, used_bytes) = (entries.len(), encoded_bytes(&entries));
        }
        if entry_count == 0 {
            self.unmap(BlockId::data(dir, 0))?;
            self.inode_mut(dir, InodeDirt::Namespace)?.size = 0;
        }
        Ok(())
    }

    /// Makes the entry of a name refer to another inode.
    pub(in crate::fs) fn replace(&mut self, name: EntryName<'_>, ino: Ino, kind: FileKind) -> Step<()> {
        let place = self.place_of(name.parent, name.name)?;
        let (leaf, entry) = self.entry_to_change(&place)?;
        entry.replace(self.block_mut(leaf.id())?, ino, kind);
        self.touch_directory_times(name.parent)
    }

    fn touch_directory_times(&mut self, dir: Ino) -> Step<()> {
        let now = self.now();
        let inode = self.inode_mut(dir, InodeDirt::Namespace)?;
        inode.set_mtime(now);
        inode.set_ctime(now);
        Ok(())
    }

    /// Block number of the leaf on the path of `hash`, and where the next leaf begins.
    pub(in crate::fs) fn leaf_at(&mut self, dir: Ino, hash: u64) -> Step<Option<(u64, Option<u64>)>> {
        let depth = self.leaf_depth(dir, hash)?;
        Ok(depth.map(|depth| (leaf_block(depth, hash), leaf_end(depth, hash))))
    }

    /// Entries with hashes from `from` on that share a leaf.
    pub(in crate::fs) fn list(&mut self, dir: Ino, from: u64) -> Step<Listed> {
        let leaf = if from >> HASH_BITS == 0 { self.leaf(dir, from)? } else { None };
        let Some(leaf) = leaf else { return Ok(Listed { leaf: None, from, next: None }) };
        leaf.look(Stored::checked)?;
        let next = leaf_end(leaf.depth, from);
        Ok(Listed { leaf: Some(leaf), from, next })
    }
}

/// # Errors
/// `NameTooLong`, or `Invalid` when `name` is not a valid name.
pub(in crate::fs) fn check_name(name: &[u8]) -> Step<()> {
    if name.len() > NAME_BYTES_MAX {
        return fail(FsError::NameTooLong);
    }
    if name.is_empty() || name == b"." || name == b".." || name.iter().any(|&byte| byte == b'/' || byte == 0) {
        return fail(FsError::Invalid("not a file name"));
    }
    Ok(())
}
