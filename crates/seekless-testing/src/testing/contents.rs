//! The bytes of a file in memory, with holes: what the model file system stores and what checkers compare.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::codec::is_zero;
use crate::device::Data;

/// Granularity of holes, in bytes.
pub(super) const PAGE_BYTES: u64 = 4096;

/// Longest run of a hole that a read passes as one piece, in bytes.
const HOLE_PIECE_BYTES: u64 = 1 << 20;

/// Content of one file. Clones share pages, so every state that a file went through can be kept.
///
/// Invariant: every byte at or after `size` is zero, so that growing the file needs no clearing.
#[derive(Clone, Default)]
pub struct Contents {
    /// Pages with storage; `None` where it was preallocated and not written, which is still a hole.
    pages: BTreeMap<u64, Option<Data>>,
    size: u64,
}

impl Contents {
    pub fn from_slice(bytes: &[u8]) -> Contents {
        let mut contents = Contents::default();
        contents.write(0, bytes);
        contents
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of storage in use: whole pages.
    pub fn allocated_bytes(&self) -> u64 {
        self.pages.len() as u64 * PAGE_BYTES
    }

    /// Pages touched by `range` that have no storage yet.
    pub fn pages_missing(&self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let pages = range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES);
        let present = self.pages.range(pages.clone()).count() as u64;
        pages.end - pages.start - present
    }

    /// The bytes from `offset`, fewer than `bytes` only at the end. Holes share one buffer of zeroes.
    pub fn read(&self, offset: u64, bytes: u64) -> Vec<Data> {
        let end = self.size.min(offset.saturating_add(bytes));
        let mut pieces = Vec::new();
        let mut at = offset;
        while at < end {
            let within = at % PAGE_BYTES;
            let piece = match self.pages.get(&(at / PAGE_BYTES)) {
                Some(Some(page)) => page.slice(within as usize..PAGE_BYTES.min(within + (end - at)) as usize),
                _ => {
                    let next = self.data_pages(at / PAGE_BYTES).next().map_or(end, |page| page * PAGE_BYTES);
                    Data::zeroes((next.min(end) - at).min(HOLE_PIECE_BYTES) as usize)
                }
            };
            at += piece.len() as u64;
            pieces.push(piece);
        }
        pieces
    }

    /// Everything in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        self.read(0, self.size).iter().flat_map(|piece| piece.iter().copied()).collect()
    }

    /// Applies `change` to each page-sized part of `range`: page number, and the part inside the page.
    fn for_pages(range: Range<u64>, mut change: impl FnMut(u64, Range<usize>)) {
        let mut at = range.start;
        while at < range.end {
            let within = at % PAGE_BYTES;
            let take = (PAGE_BYTES - within).min(range.end - at);
            change(at / PAGE_BYTES, within as usize..(within + take) as usize);
            at += take;
        }
    }

    fn page_mut(&mut self, page: u64) -> &mut Data {
        self.pages.entry(page).or_default().get_or_insert_with(|| Data::zeroes(PAGE_BYTES as usize))
    }

    /// Numbers of the pages from `first` on that hold data.
    fn data_pages(&self, first: u64) -> impl Iterator<Item = u64> + '_ {
        self.pages.range(first..).filter(|(_, page)| page.is_some()).map(|(&number, _)| number)
    }

    /// Stores `bytes` at `offset`, growing the file when they pass its end.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut rest = bytes;
        Self::for_pages(offset..offset + bytes.len() as u64, |page, part| {
            let (head, tail) = rest.split_at(part.len());
            self.page_mut(page).make_mut()[part].copy_from_slice(head);
            rest = tail;
        });
        if !bytes.is_empty() {
            self.size = self.size.max(offset + bytes.len() as u64);
        }
    }

    /// Stores `bytes` at `offset`, skipping whole pages of zeroes that would only fill holes. Whole pages of others are
    /// shared, not copied.
    pub fn write_sparse(&mut self, offset: u64, bytes: &Data) {
        let mut done = 0;
        Self::for_pages(offset..offset + bytes.len() as u64, |page, part| {
            let new = done..done + part.len();
            done = new.end;
            if matches!(self.pages.get(&page), Some(Some(_))) || !is_zero(&bytes[new.clone()]) {
                if new.len() as u64 == PAGE_BYTES {
                    self.pages.insert(page, Some(bytes.slice(new)));
                } else {
                    self.page_mut(page).make_mut()[part].copy_from_slice(&bytes[new]);
                }
            }
        });
        self.size = self.size.max(offset + bytes.len() as u64);
    }

    /// Makes `range` read as zeroes and frees whole pages. The size stays.
    pub fn punch(&mut self, range: Range<u64>) {
        let first_whole = range.start.div_ceil(PAGE_BYTES);
        let whole = first_whole..(range.end / PAGE_BYTES).max(first_whole);
        let inside: Vec<u64> = self.pages.range(whole.clone()).map(|(&page, _)| page).collect();
        inside.iter().for_each(|page| drop(self.pages.remove(page)));
        let edges =
            [range.start..range.end.min(whole.start * PAGE_BYTES), range.start.max(whole.end * PAGE_BYTES)..range.end];
        for edge in edges {
            Self::for_pages(edge, |page, part| {
                if let Some(Some(page)) = self.pages.get_mut(&page) {
                    page.make_mut()[part].fill(0);
                }
            });
        }
    }

    /// Gives every page of `range` storage. Content and size do not change.
    pub fn allocate(&mut self, range: Range<u64>) {
        Self::for_pages(range, |page, _| {
            self.pages.entry(page).or_default();
        });
    }

    /// Cuts or grows the file to `size`. Storage past the end is freed.
    pub fn resize(&mut self, size: u64) {
        drop(self.pages.split_off(&size.div_ceil(PAGE_BYTES)));
        let kept = (size % PAGE_BYTES) as usize;
        if size < self.size
            && kept > 0
            && let Some(Some(page)) = self.pages.get_mut(&(size / PAGE_BYTES))
        {
            page.make_mut()[kept..].fill(0);
        }
        self.size = size;
    }

    /// Grows the file to `size` when it is shorter, and keeps storage past the end.
    pub fn grow(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    /// First byte at or after `offset` that has been written, before the end of the file.
    pub fn next_data(&self, offset: u64) -> Option<u64> {
        let page = self.data_pages(offset / PAGE_BYTES).next()?;
        Some(offset.max(page * PAGE_BYTES)).filter(|&at| at < self.size)
    }

    /// First byte at or after `offset` that is not zero.
    pub fn next_nonzero(&self, offset: u64) -> Option<u64> {
        self.data_pages(offset / PAGE_BYTES).find_map(|page| {
            let start = page * PAGE_BYTES;
            let skipped = offset.saturating_sub(start) as usize;
            let data = self.pages.get(&page)?.as_ref()?;
            let found = data[skipped..].iter().position(|&byte| byte != 0)?;
            Some(start + (skipped + found) as u64)
        })
    }

    /// First byte at or after `offset` that has not been written; the end of the file is one.
    pub fn next_hole(&self, offset: u64) -> Option<u64> {
        if offset >= self.size {
            return None;
        }
        let mut page = offset / PAGE_BYTES;
        for present in self.data_pages(page) {
            if present != page {
                break;
            }
            page += 1;
        }
        Some(offset.max(page * PAGE_BYTES).min(self.size))
    }
}

/// Equal when they read equal; where the holes are does not count.
impl PartialEq for Contents {
    fn eq(&self, other: &Contents) -> bool {
        let data = |contents: &Contents, index: u64| contents.pages.get(&index).cloned().flatten();
        let agree = |one: &Contents, two: &Contents| {
            one.data_pages(0).all(|index| match (data(one, index), data(two, index)) {
                (Some(page), Some(twin)) => std::ptr::eq(page.as_ptr(), twin.as_ptr()) || page == twin,
                (Some(page), None) => is_zero(&page),
                (None, _) => true,
            })
        };
        self.size == other.size && agree(self, other) && agree(other, self)
    }
}

impl Eq for Contents {}

impl std::fmt::Debug for Contents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Contents({} bytes, {} in pages)", self.size, self.allocated_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Aim: sparse contents read like a plain vector. Method: the same random changes on both, compared after each.
    #[test]
    fn contents_read_like_a_vector() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let (mut sparse, mut plain) = (Contents::default(), Vec::new());
            for step in 0..60u8 {
                let (start, length) = (rng.below(20_000), rng.below(9_000));
                let range = start as usize..(start + length) as usize;
                match rng.below(5) {
                    0 | 1 => {
                        sparse.write(start, &vec![step + 1; length as usize]);
                        if length > 0 {
                            plain.resize(plain.len().max(range.end), 0);
                            plain[range].fill(step + 1);
                        }
                    }
                    2 => {
                        sparse.punch(start..start + length);
                        let end = range.end.min(plain.len());
                        plain[range.start.min(end)..end].fill(0);
                    }
                    3 => {
                        sparse.resize(start);
                        plain.resize(start as usize, 0);
                    }
                    _ => sparse.allocate(start..start + length),
                }
                assert_eq!(sparse.to_vec(), plain, "seed {seed} step {step}");
                assert_eq!(sparse, Contents::from_slice(&plain));
                let from = rng.below(20_000) as usize;
                let nonzero = plain.iter().skip(from).position(|&byte| byte != 0).map(|past| (from + past) as u64);
                assert_eq!(sparse.next_nonzero(from as u64), nonzero, "seed {seed} step {step}");
                // Every byte that is not zero has storage, and holes and data alternate without overlap.
                let mut at = 0;
                while let Some(data) = sparse.next_data(at) {
                    assert!(plain[at as usize..data as usize].iter().all(|&byte| byte == 0));
                    at = sparse.next_hole(data).expect("data is before the end");
                    assert!(at > data);
                    if at == sparse.size() {
                        break;
                    }
                }
            }
        }
    }

    /// Aim: reads of huge holes stay cheap. Method: a file of 2^60 bytes, read in pieces.
    #[test]
    fn holes_cost_no_memory() {
        let mut contents = Contents::default();
        contents.resize(1 << 60);
        contents.write(1 << 50, b"x");
        assert_eq!(contents.allocated_bytes(), PAGE_BYTES);
        assert_eq!(contents.next_data(0), Some(1 << 50));
        assert_eq!(contents.next_hole(1 << 50), Some((1 << 50) + PAGE_BYTES));
        let read: usize = contents.read((1 << 50) - (4 << 20), 8 << 20).iter().map(|piece| piece.len()).sum();
        assert_eq!(read, 8 << 20);
        contents.punch(0..u64::MAX);
        assert_eq!((contents.allocated_bytes(), contents.size()), (0, 1 << 60));
    }
}
