//! The bytes of the scheme `classic`: units, and the index beside them.
//!
//! `FORMAT.md` says what they mean. These functions do no I/O, and accept any bytes.

use std::sync::Arc;

use crate::layer::codecs::{self, Codec, Position, ids};
use crate::record;

/// Bytes of a file that are encoded together.
pub const PAGE_BYTES: usize = 4096;

/// Pages of the largest file, 64 GiB: its index has to fit into memory.
pub const PAGES_MAX: u64 = 1 << 24;

/// End of the name of an index.
pub const SUFFIX: &[u8] = b".idx";

record! {
    /// Begins every unit.
    pub struct UnitHead {
        /// Bytes that the unit decodes to; 0 for a tail.
        pub raw_bytes: u16,
        pub kind: u8,
        /// Codec that encoded it.
        pub codec: u8,
    }
}

record! {
    /// Begins an index of a small file.
    pub struct IndexHead {
        /// Flags in the low 12 bits, and the number of units.
        pub flags: u32,
        /// Size of the file as seen above.
        pub size: u32,
    }
}

record! {
    /// Begins an index whose flags say `LARGE`.
    pub struct IndexHeadLarge {
        pub flags: u64,
        pub size: u64,
    }
}

/// Kinds of units, as letters, so that text is rarely mistaken for a unit.
pub mod kinds {
    pub const ENCODED: u8 = b'e';
    /// The bytes themselves.
    pub const RAW: u8 = b'r';
    /// Zeroes, without a body.
    pub const ZERO: u8 = b'z';
    /// The bytes themselves, up to the end of the lower file.
    pub const TAIL: u8 = b't';
}

/// Flags of an index.
pub mod flags {
    pub const LARGE: u64 = 1;
    /// The last bytes of the file are a tail, which has no entry.
    pub const TAIL: u64 = 2;
    /// Set in every index, to distinguish one from other files.
    pub const SIGNATURE: u64 = 0xa50;
    pub const BITS: u32 = 12;
}

/// Longest unit: a page whose codec makes it grow by a third, with room for other codecs.
pub const UNIT_BYTES_MAX: usize = 2 * PAGE_BYTES;

/// A unit as it is stored.
pub fn unit(kind: u8, codec: u8, raw_bytes: usize, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; UnitHead::BYTES + body.len()];
    UnitHead { raw_bytes: raw_bytes as u16, kind, codec }.encode(&mut bytes);
    bytes[UnitHead::BYTES..].copy_from_slice(body);
    bytes
}

/// The head of the unit at the start of `bytes`.
///
/// # Errors
/// What is wrong with it, as text.
pub fn head(bytes: &[u8]) -> Result<UnitHead, String> {
    let Some(head) = UnitHead::decode(bytes) else { return Err(format!("a unit of {} bytes", bytes.len())) };
    let raw_bytes = usize::from(head.raw_bytes);
    let fits = match head.kind {
        kinds::ENCODED => (1..=PAGE_BYTES).contains(&raw_bytes) && codecs::known(head.codec).is_some(),
        kinds::RAW | kinds::ZERO => (1..=PAGE_BYTES).contains(&raw_bytes) && head.codec == ids::RAW,
        kinds::TAIL => raw_bytes == 0 && head.codec == ids::RAW,
        _ => false,
    };
    match fits {
        true => Ok(head),
        false => Err(format!("a unit of kind {:#04x}, codec {}, for {raw_bytes} bytes", head.kind, head.codec)),
    }
}

/// The length of the unit at the start of `bytes`. These are the bytes up to the end of the file, `left` in number, or
/// as many of them as the longest unit has.
///
/// # Errors
/// What is wrong with it, as text.
pub fn measure(bytes: &[u8], left: u64) -> Result<(UnitHead, u64), String> {
    let head = head(bytes)?;
    let body = &bytes[UnitHead::BYTES..];
    let raw_bytes = usize::from(head.raw_bytes);
    let body_bytes = match head.kind {
        kinds::ZERO => 0,
        kinds::RAW => raw_bytes as u64,
        kinds::TAIL => left - UnitHead::BYTES as u64,
        _ => {
            let found = codecs::known(head.codec).and_then(|codec| codec.stored_bytes(body, raw_bytes));
            found.ok_or_else(|| format!("bytes that do not decode to {raw_bytes}"))? as u64
        }
    };
    if head.kind == kinds::TAIL && body_bytes >= PAGE_BYTES as u64 {
        return Err(format!("a tail of {body_bytes} bytes"));
    }
    match UnitHead::BYTES as u64 + body_bytes {
        length if length <= left => Ok((head, length)),
        length => Err(format!("a unit of {length} bytes, and {left} bytes to the end")),
    }
}

/// Decodes the unit `bytes`.
///
/// # Errors
/// What is wrong with it, as text.
pub fn decode(bytes: &[u8], codec: Option<&Arc<dyn Codec>>) -> Result<Vec<u8>, String> {
    let head = head(bytes)?;
    let body = &bytes[UnitHead::BYTES..];
    let raw_bytes = usize::from(head.raw_bytes);
    match head.kind {
        kinds::ZERO if body.is_empty() => Ok(vec![0; raw_bytes]),
        kinds::RAW if body.len() == raw_bytes => Ok(body.to_vec()),
        kinds::TAIL if body.len() < PAGE_BYTES => Ok(body.to_vec()),
        kinds::ENCODED => {
            let known = codec.filter(|codec| codec.id() == head.codec).cloned().or_else(|| codecs::known(head.codec));
            let known = known.ok_or_else(|| format!("codec {} is not known here", head.codec))?;
            known.decode(body, raw_bytes, &Position::NONE)
        }
        _ => Err(format!("a unit of {} bytes for {raw_bytes}", bytes.len())),
    }
}

/// An index in memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Index {
    pub size: u64,
    pub has_tail: bool,
    /// Where each unit ends in the lower file; a tail has no entry.
    pub ends: Vec<u64>,
}

impl Index {
    /// Bytes of a word of this index when it is stored.
    pub fn word_bytes(&self) -> usize {
        let last = self.ends.last().copied().unwrap_or(0).max(self.size);
        if u32::try_from(last).is_ok() && (self.ends.len() as u64) < 1 << (32 - flags::BITS) { 4 } else { 8 }
    }

    /// The stored words from `from` on. The first word is the head's `flags`, the second its size; then come the
    /// entries.
    pub fn words(&self, from: usize) -> Vec<u8> {
        let word_bytes = self.word_bytes();
        let mut flags = flags::SIGNATURE | (self.ends.len() as u64) << flags::BITS;
        flags |= if word_bytes == 8 { flags::LARGE } else { 0 };
        flags |= if self.has_tail { flags::TAIL } else { 0 };
        let all = [flags, self.size].into_iter().chain(self.ends.iter().copied());
        all.skip(from).flat_map(|word| word.to_le_bytes().into_iter().take(word_bytes)).collect()
    }

    /// Whether a file that begins with `bytes` is an index. An empty file is one: it was being created when the power
    /// failed.
    pub fn begins(bytes: &[u8]) -> bool {
        let word = bytes.iter().take(4).rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        let mask = (1 << flags::BITS) - 1;
        bytes.is_empty() || bytes.len() >= 4 && word & mask & !(flags::LARGE | flags::TAIL) == flags::SIGNATURE
    }

    /// Decodes an index from `bytes`, a whole file.
    ///
    /// # Errors
    /// What is wrong with it, as text.
    pub fn from_bytes(bytes: &[u8]) -> Result<Index, String> {
        if bytes.is_empty() || !Index::begins(bytes) {
            return Err("it does not begin as an index".to_string());
        }
        let word_bytes = if u64::from(bytes[0]) & flags::LARGE != 0 { 8 } else { 4 };
        let word = |word: &[u8]| word.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
        let words: Vec<u64> = bytes.chunks(word_bytes).map(word).collect();
        let (flags, size) = (words[0], words.get(1).copied().unwrap_or(0));
        let index = Index { size, has_tail: flags & flags::TAIL != 0, ends: words.into_iter().skip(2).collect() };
        let pages = flags >> flags::BITS;
        if bytes.len() as u64 != (pages.min(PAGES_MAX) + 2) * word_bytes as u64 {
            return Err(format!("{} bytes with the ends of {pages} units", bytes.len()));
        }
        index.check().map(|()| index)
    }

    /// Checks that the numbers of an index are consistent.
    fn check(&self) -> Result<(), String> {
        let page = PAGE_BYTES as u64;
        let pages = if self.has_tail { self.size / page } else { self.size.div_ceil(page) };
        if pages != self.ends.len() as u64 {
            return Err(format!("{} units for {} bytes", self.ends.len(), self.size));
        }
        let mut last = 0;
        for &end in &self.ends {
            if end < last + UnitHead::BYTES as u64 || end > last + UNIT_BYTES_MAX as u64 {
                return Err(format!("a unit from {last} to {end}"));
            }
            last = end;
        }
        Ok(())
    }

    /// Where unit `number` begins in the lower file; behind the last unit is the tail, or the end.
    pub fn start(&self, number: usize) -> u64 {
        number.checked_sub(1).and_then(|last| self.ends.get(last)).copied().unwrap_or(0)
    }

    /// Bytes in the tail.
    pub fn tail_bytes(&self) -> u64 {
        if self.has_tail { self.size % PAGE_BYTES as u64 } else { 0 }
    }

    /// Size of the lower file.
    pub fn lower_size(&self) -> u64 {
        let tail = if self.has_tail { UnitHead::BYTES as u64 + self.tail_bytes() } else { 0 };
        self.start(self.ends.len()) + tail
    }

    /// Pages of the file; the last one may be shorter.
    pub fn pages(&self) -> usize {
        self.size.div_ceil(PAGE_BYTES as u64) as usize
    }
}
