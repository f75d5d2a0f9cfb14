//! A leaf of a directory as it is stored. Entries are found, added and removed in its block, and nothing is allocated
//! for entries that an operation only skips.
//!
//! Format: FORMAT.md, "Directories".
//!
//! Bytes of a block are input: [`Stored::checked`] verifies a whole leaf. That must happen once, before the first
//! change; each change leaves a valid leaf.

use super::format::*;
use crate::fs::FileKind;
use crate::units::Ino;

/// Bits of a hash. Cookies have two more values and must stay positive as a 64-bit signed number.
pub const HASH_BITS: u32 = 62;
/// Low bits that number names whose other bits collide.
const COLLISION_BITS: u32 = 3;
/// Hashes that a name can have.
pub(super) const COLLISIONS: u64 = 1 << COLLISION_BITS;
/// Depth of the deepest leaf: with all leaves of that depth, a directory would have more entries than inode numbers.
pub(super) const DEPTH_MAX: u32 = 32;

const _: () = assert!((1u64 << (DEPTH_MAX + 1)) < FILE_BLOCKS_MAX);

/// An entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundEntry {
    pub ino: Ino,
    pub hash: u64,
    pub kind: FileKind,
    pub name: Vec<u8>,
}

/// An entry in the block of its leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::fs) struct StoredEntry<'a> {
    pub ino: Ino,
    pub hash: u64,
    pub kind: FileKind,
    pub name: &'a [u8],
    /// Offset in the block.
    at: usize,
}

impl StoredEntry<'_> {
    fn end(&self) -> usize {
        self.at + LeafEntry::BYTES + self.name.len()
    }

    pub(super) fn to_found(self) -> FoundEntry {
        FoundEntry { ino: self.ino, hash: self.hash, kind: self.kind, name: self.name.to_vec() }
    }
}

/// The first `depth` bits of a hash.
pub(super) fn prefix(depth: u32, hash: u64) -> u64 {
    hash >> (HASH_BITS - depth)
}

/// A leaf in its block, with an intact header.
#[derive(Clone, Copy)]
pub(super) struct Stored<'a> {
    /// The bytes in use.
    used: &'a [u8],
    header: Leaf,
}

impl<'a> Stored<'a> {
    /// The leaf of `depth` with this prefix.
    ///
    /// # Errors
    /// What is wrong with its header.
    pub(super) fn new(block: &'a [u8], depth: u32, prefix: u64) -> Result<Stored<'a>, &'static str> {
        let header = Leaf::decode(block).filter(|leaf| leaf.magic == LEAF_MAGIC).ok_or("no directory leaf")?;
        if header.depth != depth || header.prefix != prefix || depth > DEPTH_MAX {
            return Err("a directory leaf of another place");
        }
        let end = usize::from(header.used_bytes);
        let used = block.get(..end).filter(|used| used.len() >= Leaf::BYTES).ok_or("its length is wrong")?;
        Ok(Stored { used, header })
    }

    /// Goes through all of it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn checked(self) -> Result<Stored<'a>, &'static str> {
        let mut count = 0;
        for entry in self.entries() {
            entry?;
            count += 1;
        }
        if count == self.header.entry_count { Ok(self) } else { Err("its number of entries is wrong") }
    }

    /// Entries in the order of their hashes, up to the first damage.
    pub(super) fn entries(self) -> Entries<'a> {
        Entries { leaf: self, at: Leaf::BYTES, last: None }
    }

    /// The entry named `name`, whose hash with its collision bits zero is `base`.
    ///
    /// It reads no more than it must: what is out of order it may miss. What lists the leaf or changes it checks all of it.
    ///
    /// # Errors
    /// What is wrong with the entry, or with the length of one before it.
    pub(super) fn find(self, base: u64, name: &[u8]) -> Result<Option<StoredEntry<'a>>, &'static str> {
        let mut at = Leaf::BYTES;
        while at < self.used.len() {
            let raw = LeafEntry::decode(&self.used[at..]).ok_or(CUT_OFF)?;
            if raw.hash >= base + COLLISIONS {
                break;
            }
            if raw.hash >= base {
                let entry = self.entry(at)?;
                if entry.name == name {
                    return Ok(Some(entry));
                }
            }
            at += LeafEntry::BYTES + usize::from(raw.name_bytes);
        }
        Ok(None)
    }

    /// The entry at `at`, which is before the end.
    #[inline]
    fn entry(self, at: usize) -> Result<StoredEntry<'a>, &'static str> {
        let rest = &self.used[at..];
        let raw = LeafEntry::decode(rest).ok_or(CUT_OFF)?;
        let name = rest[LeafEntry::BYTES..].get(..usize::from(raw.name_bytes)).ok_or(CUT_OFF)?;
        let kind = FileKind::from_mode(u32::from(raw.kind) << 12).ok_or("an entry of no kind")?;
        if raw.hash >> HASH_BITS != 0 || prefix(self.header.depth, raw.hash) != self.header.prefix {
            return Err("an entry that belongs elsewhere");
        }
        if name.is_empty() || raw.ino == 0 {
            return Err("an empty entry");
        }
        Ok(StoredEntry { ino: Ino(raw.ino), hash: raw.hash, kind, name, at })
    }

    pub(super) fn used_bytes(self) -> usize {
        self.used.len()
    }
}

const CUT_OFF: &str = "its last entry is cut off";

/// See [`Stored::entries`].
pub(super) struct Entries<'a> {
    leaf: Stored<'a>,
    at: usize,
    last: Option<u64>,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<StoredEntry<'a>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.leaf.used.len() {
            return None;
        }
        let entry = match self.leaf.entry(self.at) {
            Ok(entry) if self.last.is_some_and(|last| last >= entry.hash) => Err("entries out of order"),
            other => other,
        };
        match &entry {
            Ok(entry) => (self.at, self.last) = (entry.end(), Some(entry.hash)),
            Err(_) => self.at = self.leaf.used.len(),
        }
        Some(entry)
    }
}

/// Reads the entries of a leaf block.
///
/// # Errors
/// What is wrong with the block.
pub fn decode_leaf(block: &[u8], depth: u32, prefix: u64) -> Result<Vec<FoundEntry>, &'static str> {
    let leaf = Stored::new(block, depth, prefix)?.checked()?;
    leaf.entries().map(|entry| entry.map(StoredEntry::to_found)).collect()
}

/// Where an entry of a checked leaf goes, and with which hash.
pub(super) struct Slot {
    pub hash: u64,
    at: usize,
}

impl Slot {
    /// The place of a new name whose hash with its collision bits zero is `base`; `None` when all of its hashes are taken.
    /// The leaf has been checked.
    ///
    /// # Errors
    /// What is wrong with the length of an entry before it.
    pub(super) fn of(leaf: Stored<'_>, base: u64) -> Result<Option<Slot>, &'static str> {
        // Entries that collide follow each other, so the place is behind those up to the first hash that is missing.
        let (mut hash, mut at) = (base, Leaf::BYTES);
        while at < leaf.used.len() {
            let raw = LeafEntry::decode(&leaf.used[at..]).ok_or(CUT_OFF)?;
            if raw.hash > hash {
                break;
            }
            hash += u64::from(raw.hash == hash);
            at += LeafEntry::BYTES + usize::from(raw.name_bytes);
        }
        Ok((hash < base + COLLISIONS).then_some(Slot { hash, at }))
    }

    /// Whether the leaf has room for the name.
    pub(super) fn fits(leaf: Stored<'_>, name: &[u8]) -> bool {
        leaf.used_bytes() + LeafEntry::BYTES + name.len() <= BLOCK_BYTES
    }

    /// Puts an entry there, which [fits](Slot::fits).
    pub(super) fn fill(self, block: &mut [u8], ino: Ino, kind: FileKind, name: &[u8]) {
        let mut header = header_of(block);
        let (bytes, used) = (LeafEntry::BYTES + name.len(), usize::from(header.used_bytes));
        assert!(used + bytes <= BLOCK_BYTES, "D1: an entry is put where it fits");
        block.copy_within(self.at..used, self.at + bytes);
        encode_entry(&mut block[self.at..], ino, self.hash, kind, name);
        (header.entry_count, header.used_bytes) = (header.entry_count + 1, (used + bytes) as u16);
        header.encode(block);
        debug_assert!(is_sound(block), "D2: a leaf that was sound is sound with an entry more");
    }
}

/// Where an entry of a checked leaf is.
#[derive(Clone, Copy)]
pub(super) struct EntrySpan {
    at: usize,
    end: usize,
}

impl EntrySpan {
    /// The place of an entry that was found in this leaf, which has been checked.
    pub(super) fn of(entry: StoredEntry<'_>) -> EntrySpan {
        EntrySpan { at: entry.at, end: entry.end() }
    }

    /// Has the entry refer to another inode.
    pub(super) fn replace(self, block: &mut [u8], ino: Ino, kind: FileKind) {
        let Some(old) = LeafEntry::decode(&block[self.at..self.end]) else { unreachable!("it was decoded before") };
        LeafEntry { ino: ino.0, kind: kind_code(kind), ..old }.encode(&mut block[self.at..]);
    }

    /// Takes the entry out. Returns the number of those that are left, and the bytes in use.
    pub(super) fn remove(self, block: &mut [u8]) -> (usize, usize) {
        let mut header = header_of(block);
        let used = usize::from(header.used_bytes);
        let left = used - (self.end - self.at);
        block.copy_within(self.end..used, self.at);
        block[left..used].fill(0);
        (header.entry_count, header.used_bytes) = (header.entry_count - 1, left as u16);
        header.encode(block);
        debug_assert!(is_sound(block), "D2: a leaf that was sound is sound without one of its entries");
        (header.entry_count.into(), left)
    }
}

fn header_of(block: &[u8]) -> Leaf {
    match Leaf::decode(block) {
        Some(header) => header,
        None => unreachable!("a block has room for the header of a leaf"),
    }
}

/// For assertions: whether the whole leaf can be read, at the place that it names.
fn is_sound(block: &[u8]) -> bool {
    let header = header_of(block);
    Stored::new(block, header.depth, header.prefix).and_then(Stored::checked).is_ok()
}

fn kind_code(kind: FileKind) -> u8 {
    (kind.mode_bits() >> 12) as u8
}

fn encode_entry(bytes: &mut [u8], ino: Ino, hash: u64, kind: FileKind, name: &[u8]) {
    LeafEntry { ino: ino.0, hash, kind: kind_code(kind), name_bytes: name.len() as u8 }.encode(bytes);
    bytes[LeafEntry::BYTES..LeafEntry::BYTES + name.len()].copy_from_slice(name);
}

pub(super) fn encoded_bytes(entries: &[FoundEntry]) -> usize {
    Leaf::BYTES + entries.iter().map(|entry| LeafEntry::BYTES + entry.name.len()).sum::<usize>()
}

pub(super) fn encode_leaf(block: &mut [u8], depth: u32, prefix: u64, entries: &[FoundEntry]) {
    let used = encoded_bytes(entries);
    assert!(used <= BLOCK_BYTES, "D1: the entries of a leaf fit into its block");
    debug_assert!(entries.windows(2).all(|pair| pair[0].hash < pair[1].hash), "D2: entries are in the order of hashes");
    let (entry_count, used_bytes) = (entries.len() as u16, used as u16);
    Leaf { magic: LEAF_MAGIC, depth, prefix, entry_count, used_bytes, reserved: 0 }.encode(block);
    let mut at = Leaf::BYTES;
    for entry in entries {
        encode_entry(&mut block[at..], entry.ino, entry.hash, entry.kind, &entry.name);
        at += LeafEntry::BYTES + entry.name.len();
    }
    block[at..].fill(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Aim: what changes in a block is what would change in a list. Method: random additions, removals and replacements in a
    /// leaf, names that collide among them, compared with a list that is encoded again after each.
    #[test]
    fn a_block_changes_as_a_list_does() {
        for seed in 0..40 {
            let mut rng = Rng::new(seed);
            let (depth, prefix) = (3, 5);
            let (mut block, mut list) = (vec![0; BLOCK_BYTES], Vec::<FoundEntry>::new());
            encode_leaf(&mut block, depth, prefix, &list);
            // Few different hashes, each for several names.
            let base_of = |name: u64| (prefix << (HASH_BITS - depth)) + name % 29 * COLLISIONS;
            for step in 0..2_000 {
                let name = rng.below(29 * 10);
                let text = format!("{name}{}", "n".repeat((name % 7 * 9) as usize)).into_bytes();
                let (ino, kind) = (Ino(1 + rng.below(1000)), FileKind::ALL[rng.below(7) as usize]);
                let leaf = Stored::new(&block, depth, prefix).unwrap();
                let known = list.iter().position(|entry| entry.name == text);
                let found = leaf.find(base_of(name), &text).unwrap();
                assert_eq!(found.map(StoredEntry::to_found).as_ref(), known.map(|known| &list[known]));
                match (found, known) {
                    (Some(_), Some(known)) if rng.chance(1, 3) => {
                        let place = EntrySpan::of(leaf.find(base_of(name), &text).unwrap().unwrap());
                        place.replace(&mut block, ino, kind);
                        (list[known].ino, list[known].kind) = (ino, kind);
                    }
                    (Some(_), Some(known)) => {
                        let place = EntrySpan::of(leaf.find(base_of(name), &text).unwrap().unwrap());
                        let counted = place.remove(&mut block);
                        list.remove(known);
                        assert_eq!(counted, (list.len(), encoded_bytes(&list)));
                    }
                    _ => {
                        let base = base_of(name);
                        let taken = |hash: &u64| list.iter().any(|entry| entry.hash == *hash);
                        let free = (base..base + COLLISIONS).find(|hash| !taken(hash));
                        let slot = Slot::of(leaf, base).unwrap();
                        assert_eq!(slot.as_ref().map(|slot| slot.hash), free, "seed {seed}, step {step}");
                        let fits = encoded_bytes(&list) + LeafEntry::BYTES + text.len() <= BLOCK_BYTES;
                        assert_eq!(Slot::fits(leaf, &text), fits);
                        if let Some(slot) = slot.filter(|_| fits) {
                            let at = list.partition_point(|entry| entry.hash < slot.hash);
                            list.insert(at, FoundEntry { ino, hash: slot.hash, kind, name: text.clone() });
                            slot.fill(&mut block, ino, kind, &text);
                        }
                    }
                }
                let mut anew = vec![1; BLOCK_BYTES];
                encode_leaf(&mut anew, depth, prefix, &list);
                assert!(block == anew, "seed {seed}, step {step}");
                assert_eq!(decode_leaf(&block, depth, prefix).as_ref(), Ok(&list));
            }
        }
    }

    /// Aim: damage is found before a leaf changes. Method: any byte of a leaf's header and entries is another; what is then
    /// accepted differs only in what a single entry may be.
    #[test]
    fn damage_is_found() {
        let entry = |number: u64| FoundEntry {
            ino: Ino(number + 1),
            hash: number * 64,
            kind: FileKind::Regular,
            name: format!("file {number}").into_bytes(),
        };
        let list: Vec<FoundEntry> = (1..40).map(entry).collect();
        let mut block = vec![0; BLOCK_BYTES];
        encode_leaf(&mut block, 0, 0, &list);
        for at in 0..encoded_bytes(&list) {
            for bit in 0..8 {
                let mut other = block.clone();
                other[at] ^= 1 << bit;
                let Ok(leaf) = Stored::new(&other, 0, 0) else { continue };
                let checked = leaf.checked().is_ok();
                assert_eq!(decode_leaf(&other, 0, 0).is_ok(), checked);
                assert!(Slot::of(leaf, 64).is_ok() || !checked, "byte {at}, bit {bit}");
                assert!(!checked || leaf.entries().count() == list.len(), "byte {at}, bit {bit}");
            }
        }
    }
}
