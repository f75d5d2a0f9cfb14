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
use super::state::*;
use super::tree::*;
use crate::fs::{FileKind, FsError};
use crate::rt::cover;
use crate::units::Ino;

/// Bits of a hash. Cookies have two more values and must stay positive as a 64-bit signed number.
pub const HASH_BITS: u32 = 62;
/// Low bits that number names whose other bits collide.
const COLLISION_BITS: u32 = 3;
/// Depth of the deepest leaf: with all leaves of that depth, a directory would have more entries than inode numbers.
const DEPTH_MAX: u32 = 32;

const _: () = assert!((1u64 << (DEPTH_MAX + 1)) < FILE_BLOCKS_MAX);

/// An entry, as found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundEntry {
    pub ino: Ino,
    pub hash: u64,
    pub kind: FileKind,
    pub name: Vec<u8>,
}

/// The hash of `name` with its collision bits zero.
pub fn hash_name(key: [u64; 2], name: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(key[0], key[1]);
    hasher.write(name);
    hasher.finish() >> (64 - HASH_BITS) & !((1 << COLLISION_BITS) - 1)
}

/// Number of the block that holds the leaf of `depth` on the path of `hash`.
pub fn leaf_block(depth: u32, hash: u64) -> u64 {
    (1 << depth) - 1 + prefix(depth, hash)
}

fn prefix(depth: u32, hash: u64) -> u64 {
    hash >> (HASH_BITS - depth)
}

/// First hash after those of the leaf; `None` after the last leaf.
pub fn leaf_end(depth: u32, hash: u64) -> Option<u64> {
    let end = (prefix(depth, hash) + 1) << (HASH_BITS - depth);
    (end < 1 << HASH_BITS).then_some(end)
}

/// True when the entry has a hash that its name can have.
pub(in crate::fs) fn hash_fits(key: [u64; 2], entry: &FoundEntry) -> bool {
    hash_name(key, &entry.name) == entry.hash & !((1 << COLLISION_BITS) - 1)
}

fn kind_code(kind: FileKind) -> u8 {
    (kind.mode_bits() >> 12) as u8
}

/// Reads the entries of a leaf block.
///
/// # Errors
/// What is wrong with the block.
pub fn decode_leaf(block: &[u8], depth: u32, prefix: u64) -> Result<Vec<FoundEntry>, &'static str> {
    let header = Leaf::decode(block).filter(|leaf| leaf.magic == LEAF_MAGIC).ok_or("no directory leaf")?;
    if header.depth != depth || header.prefix != prefix || depth > DEPTH_MAX {
        return Err("a directory leaf of another place");
    }
    let end = usize::from(header.used_bytes);
    let mut rest = block.get(Leaf::BYTES..end).ok_or("its length is wrong")?;
    let mut entries: Vec<FoundEntry> = Vec::with_capacity(header.entry_count.into());
    while !rest.is_empty() {
        let raw = LeafEntry::decode(rest).ok_or("its last entry is cut off")?;
        let bytes = LeafEntry::BYTES + usize::from(raw.name_bytes);
        let name = rest.get(LeafEntry::BYTES..bytes).ok_or("its last entry is cut off")?;
        let kind = FileKind::from_mode(u32::from(raw.kind) << 12).ok_or("an entry of no kind")?;
        if raw.hash >> HASH_BITS != 0 || self::prefix(depth, raw.hash) != prefix {
            return Err("an entry that belongs elsewhere");
        }
        if entries.last().is_some_and(|last| last.hash >= raw.hash) {
            return Err("entries out of order");
        }
        if name.is_empty() || raw.ino == 0 {
            return Err("an empty entry");
        }
        entries.push(FoundEntry { ino: Ino(raw.ino), hash: raw.hash, kind, name: name.to_vec() });
        rest = &rest[bytes..];
    }
    if entries.len() != usize::from(header.entry_count) {
        return Err("its number of entries is wrong");
    }
    Ok(entries)
}

fn encoded_bytes(entries: &[FoundEntry]) -> usize {
    Leaf::BYTES + entries.iter().map(|entry| LeafEntry::BYTES + entry.name.len()).sum::<usize>()
}

fn encode_leaf(block: &mut [u8], depth: u32, prefix: u64, entries: &[FoundEntry]) {
    let used = encoded_bytes(entries);
    assert!(used <= BLOCK_BYTES);
    let (entry_count, used_bytes) = (entries.len() as u16, used as u16);
    Leaf { magic: LEAF_MAGIC, depth, prefix, entry_count, used_bytes, reserved: 0 }.encode(block);
    let mut at = Leaf::BYTES;
    for entry in entries {
        let (kind, name_bytes) = (kind_code(entry.kind), entry.name.len() as u8);
        LeafEntry { ino: entry.ino.0, hash: entry.hash, kind, name_bytes }.encode(&mut block[at..]);
        at += LeafEntry::BYTES;
        block[at..at + entry.name.len()].copy_from_slice(&entry.name);
        at += entry.name.len();
    }
    block[at..].fill(0);
}

/// Deepest leaf that a directory of this size can have.
fn depth_limit(size: u64) -> u32 {
    let blocks = size / BLOCK_BYTES as u64;
    (blocks + 1).ilog2().min(DEPTH_MAX + 1)
}

/// A leaf on the path of a hash.
struct LeafAt {
    depth: u32,
    entries: Vec<FoundEntry>,
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

    fn leaf_entries(&mut self, dir: Ino, depth: u32, hash: u64) -> Step<Vec<FoundEntry>> {
        let id = BlockId::data(dir, leaf_block(depth, hash));
        let Some(block) = self.block(id)? else { return Ok(Vec::new()) };
        decode_leaf(&block, depth, prefix(depth, hash))
            .or_else(|detail| fail(FsError::corrupt("directory", format_args!("{id:?}"), detail)))
    }

    fn leaf(&mut self, dir: Ino, hash: u64) -> Step<Option<LeafAt>> {
        match self.leaf_depth(dir, hash)? {
            None => Ok(None),
            Some(depth) => Ok(Some(LeafAt { depth, entries: self.leaf_entries(dir, depth, hash)? })),
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

    /// The entry named `name`.
    pub(in crate::fs) fn find(&mut self, dir: Ino, name: &[u8]) -> Step<Option<FoundEntry>> {
        check_name(name)?;
        let hash = self.hash(name);
        let Some(leaf) = self.leaf(dir, hash)? else { return Ok(None) };
        Ok(position(&leaf.entries, hash, name).map(|index| leaf.entries[index].clone()))
    }

    /// Adds a name that does not exist.
    pub(in crate::fs) fn insert(&mut self, dir: Ino, name: &[u8], ino: Ino, kind: FileKind) -> Step<()> {
        let base = self.hash(name);
        let mut leaf = self.leaf(dir, base)?.unwrap_or(LeafAt { depth: 0, entries: Vec::new() });
        let taken = |hash: u64| leaf.entries.iter().any(|entry| entry.hash == hash);
        let Some(hash) = (base..base + (1 << COLLISION_BITS)).find(|&hash| !taken(hash)) else {
            // Nine names with the same 59 bits under a secret key.
            return fail(FsError::NoSpace);
        };
        let at = leaf.entries.partition_point(|entry| entry.hash < hash);
        leaf.entries.insert(at, FoundEntry { ino, hash, kind, name: name.to_vec() });
        self.split_and_put(dir, leaf.depth, hash, leaf.entries)?;
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

    /// Removes a name that exists.
    pub(in crate::fs) fn remove(&mut self, dir: Ino, name: &[u8]) -> Step<()> {
        let hash = self.hash(name);
        let Some(mut leaf) = self.leaf(dir, hash)? else { return fail(FsError::NotFound) };
        let Some(index) = position(&leaf.entries, hash, name) else { return fail(FsError::NotFound) };
        leaf.entries.remove(index);
        self.put_leaf(dir, leaf.depth, hash, &leaf.entries)?;
        self.merge_up(dir, leaf.depth, hash, leaf.entries)?;
        let inode = self.inode_mut(dir, InodeDirt::Namespace)?;
        inode.special = match inode.special.checked_sub(1) {
            Some(entries) => entries,
            None => {
                return fail(FsError::corrupt("directory", dir, "its entry count is 0, and an entry is removed"));
            }
        };
        self.touch_directory_times(dir)
    }

    /// Joins the leaf with its sibling while the two together fill less than half a block.
    fn merge_up(&mut self, dir: Ino, depth: u32, hash: u64, mut entries: Vec<FoundEntry>) -> Step<()> {
        for depth in (1..=depth).rev() {
            // Do not read the sibling before there is much to gain.
            if encoded_bytes(&entries) > BLOCK_BYTES / 4 {
                return Ok(());
            }
            let bit = 1u64 << (HASH_BITS - depth);
            let sibling = BlockId::data(dir, leaf_block(depth, hash ^ bit));
            if !self.block_exists(sibling)? {
                return Ok(()); // It has split further.
            }
            let mut others = self.leaf_entries(dir, depth, hash ^ bit)?;
            if encoded_bytes(&entries) + encoded_bytes(&others) > BLOCK_BYTES / 2 {
                return Ok(());
            }
            cover("logfs: two leaves of a directory are joined");
            entries.append(&mut others);
            entries.sort_by_key(|entry| entry.hash);
            self.unmap(BlockId::data(dir, leaf_block(depth, hash)))?;
            self.unmap(sibling)?;
            self.put_leaf(dir, depth - 1, hash, &entries)?;
        }
        if entries.is_empty() {
            self.unmap(BlockId::data(dir, 0))?;
            self.inode_mut(dir, InodeDirt::Namespace)?.size = 0;
        }
        Ok(())
    }

    /// Makes the entry `name` refer to another inode.
    pub(in crate::fs) fn replace(&mut self, dir: Ino, name: &[u8], ino: Ino, kind: FileKind) -> Step<()> {
        let hash = self.hash(name);
        let Some(mut leaf) = self.leaf(dir, hash)? else { return fail(FsError::NotFound) };
        let Some(index) = position(&leaf.entries, hash, name) else { return fail(FsError::NotFound) };
        (leaf.entries[index].ino, leaf.entries[index].kind) = (ino, kind);
        self.put_leaf(dir, leaf.depth, hash, &leaf.entries)?;
        self.touch_directory_times(dir)
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

    /// Entries with hashes from `from` on that share a leaf, and where the next leaf begins.
    pub(in crate::fs) fn list(&mut self, dir: Ino, from: u64) -> Step<(Vec<FoundEntry>, Option<u64>)> {
        if from >> HASH_BITS != 0 {
            return Ok((Vec::new(), None));
        }
        match self.leaf(dir, from)? {
            None => Ok((Vec::new(), None)),
            Some(leaf) => {
                let first = leaf.entries.partition_point(|entry| entry.hash < from);
                Ok((leaf.entries[first..].to_vec(), leaf_end(leaf.depth, from)))
            }
        }
    }
}

fn position(entries: &[FoundEntry], hash: u64, name: &[u8]) -> Option<usize> {
    let first = entries.partition_point(|entry| entry.hash < hash);
    let candidates = entries[first..].iter().take_while(|entry| entry.hash < hash + (1 << COLLISION_BITS));
    candidates.zip(first..).find(|(entry, _)| entry.name == name).map(|(_, index)| index)
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
