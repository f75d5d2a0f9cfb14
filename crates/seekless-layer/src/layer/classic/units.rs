//! Units: encoding and decoding pages, and reading lower files.

use std::ops::Range;

use futures_util::future::{join_all, try_join_all};

use super::file::{Form, Node};
use super::format::{self, Index, PAGE_BYTES, PAGES_MAX, UNIT_BYTES_MAX, UnitHead, kinds, unit};
use super::{Classic, Plain, count};
use crate::fs::{Fs, FsError, FsResult, Handle};
use crate::layer::codecs::{Position, ids};
use crate::layer::{read_lower, work};
use crate::rt::Work;
use crate::units::Ino;

/// Pages that one job encodes or decodes.
const BATCH_PAGES: usize = 16;

/// Bytes of one read in long scans.
pub(super) const PIECE_BYTES: u32 = 1 << 20;

/// Content of a lower file.
pub(super) enum Content {
    Units {
        index: Index,
        /// One of the units decodes, which bytes of another file do not. Units of other kinds are so simple that a
        /// plain file can look like them.
        is_certain: bool,
    },
    /// Not one of ours.
    Plain,
    /// It begins as ours and cannot be decoded.
    Damaged(String),
}

/// Pages in their stored form.
pub(super) struct Encoded {
    pub(super) bytes: Vec<u8>,
    /// Lengths of all units but the tail.
    pub(super) lengths: Vec<u64>,
    pub(super) has_tail: bool,
}

/// A page to encode.
pub(super) enum Page {
    Zeroes(usize),
    Bytes(Vec<u8>),
}

impl Classic {
    /// Encodes `pages`. With `is_end`, the last of them is the last of the file, and may become a tail.
    pub(super) async fn encode(&self, pages: Vec<Page>, is_end: bool) -> Encoded {
        let tail_at = match pages.last() {
            Some(Page::Bytes(bytes)) if is_end && self.options.fast_tails && bytes.len() < PAGE_BYTES => {
                Some(pages.len() - 1)
            }
            _ => None,
        };
        let raw_bytes: usize =
            pages.iter().map(|page| if let Page::Bytes(bytes) = page { bytes.len() } else { 0 }).sum();
        self.rt.charge(Work::Copy { bytes: raw_bytes as u64 }).await;
        let mut batches: Vec<Vec<(usize, Page)>> = Vec::new();
        for (number, page) in pages.into_iter().enumerate() {
            match batches.last_mut() {
                Some(batch) if batch.len() < BATCH_PAGES => batch.push((number, page)),
                _ => batches.push(vec![(number, page)]),
            }
        }
        let jobs = batches.into_iter().map(|batch| {
            let codec = self.options.codec.clone();
            let job = move || -> Vec<Vec<u8>> {
                let encode = |(number, page): (usize, Page)| match page {
                    Page::Zeroes(bytes) => unit(kinds::ZERO, ids::RAW, bytes, &[]),
                    Page::Bytes(bytes) if Some(number) == tail_at => unit(kinds::TAIL, ids::RAW, 0, &bytes),
                    Page::Bytes(bytes) if bytes.iter().all(|&byte| byte == 0) => {
                        unit(kinds::ZERO, ids::RAW, bytes.len(), &[])
                    }
                    Page::Bytes(bytes) => match codec.encode(&bytes, &Position::NONE) {
                        Some(body) => unit(kinds::ENCODED, codec.id(), bytes.len(), &body),
                        None => unit(kinds::RAW, ids::RAW, bytes.len(), &bytes),
                    },
                };
                batch.into_iter().map(encode).collect()
            };
            let cycles =
                self.options.codec.cost().encode_cycles_per_kib * raw_bytes.min(BATCH_PAGES * PAGE_BYTES) as u64;
            work(&self.rt, cycles / 1024, job)
        });
        let units: Vec<Vec<u8>> = join_all(jobs).await.into_iter().flatten().collect();
        debug_assert!(tail_at.is_none_or(|at| at + 1 == units.len()), "a tail is the last of the file");
        count(&self.counts.units_encoded, units.len() as u64);
        count(&self.counts.bytes_encoded, raw_bytes as u64);
        let mut lengths: Vec<u64> = units.iter().map(|unit| unit.len() as u64).collect();
        lengths.truncate(tail_at.unwrap_or(units.len()));
        Encoded { bytes: units.concat(), lengths, has_tail: tail_at.is_some() }
    }

    /// Reads and decodes pages. The caller holds the gate.
    ///
    /// # Errors
    /// `Corrupt` when they cannot be decoded, even with a rebuilt index (K1).
    pub(super) async fn read_pages(
        &self,
        lower: &Fs,
        handle: Option<Handle>,
        node: &Node,
        pages: Range<usize>,
    ) -> FsResult<Vec<Vec<u8>>> {
        let file = node.regular()?;
        loop {
            let cached = file.borrow().last_page.clone();
            if let Some((number, page)) = cached
                && pages == (number..number + 1)
            {
                return Ok(vec![page]);
            }
            let (is_verified, index) = (file.borrow().is_verified, file.borrow().index.clone_part(&pages));
            match self.decode_pages(lower, handle, node.ino, &index, &pages).await {
                Ok(decoded) => {
                    if let Some(page) = decoded.last() {
                        file.borrow_mut().last_page = Some((pages.end - 1, page.clone()));
                    }
                    return Ok(decoded);
                }
                Err(error @ FsError::Corrupt { .. }) if is_verified => return Err(error),
                Err(FsError::Corrupt { .. }) => self.look_again(lower, node).await?,
                Err(error) => return Err(error),
            }
            if pages.end > file.borrow().index.pages() {
                let error = FsError::corrupt("index", format_args!("inode {}", node.ino), "it was of another size");
                return Err(error);
            }
        }
    }

    async fn decode_pages(
        &self,
        lower: &Fs,
        handle: Option<Handle>,
        ino: Ino,
        places: &[Range<u64>],
        pages: &Range<usize>,
    ) -> FsResult<Vec<Vec<u8>>> {
        let (Some(first), Some(last)) = (places.first(), places.last()) else { return Ok(Vec::new()) };
        let wrong = |page: usize, problem: String| {
            FsError::corrupt("unit", format_args!("unit {page} of the lower file of inode {ino}"), problem)
        };
        let bytes = read_lower(lower, ino, handle, first.start, (last.end - first.start) as u32).await?;
        let mut batches: Vec<(usize, Vec<Vec<u8>>)> = Vec::new();
        for (number, place) in pages.clone().zip(places) {
            let within = (place.start - first.start) as usize..(place.end - first.start) as usize;
            let stored = bytes.get(within).ok_or_else(|| wrong(number, "it is not there".to_string()))?.to_vec();
            match batches.last_mut() {
                Some((_, batch)) if batch.len() < BATCH_PAGES => batch.push(stored),
                _ => batches.push((number, vec![stored])),
            }
        }
        let cost = self.options.codec.cost().decode_cycles_per_kib;
        let jobs = batches.into_iter().map(async |(number, batch)| {
            let cycles = cost * (batch.len() * PAGE_BYTES) as u64 / 1024;
            let codec = self.options.codec.clone();
            let job = move || -> Result<Vec<Vec<u8>>, (usize, String)> {
                let decode = |(at, stored): (usize, &Vec<u8>)| {
                    format::decode(stored, Some(&codec)).map_err(|problem| (number + at, problem))
                };
                batch.iter().enumerate().map(decode).collect()
            };
            work(&self.rt, cycles, job).await
        });
        let decoded = try_join_all(jobs).await.map_err(|(page, problem)| wrong(page, problem))?;
        self.rt.charge(Work::Copy { bytes: bytes.len() as u64 }).await;
        count(&self.counts.units_decoded, places.len() as u64);
        Ok(decoded.into_iter().flatten().collect())
    }

    /// Walks through all units of a lower file of `lower_size` bytes.
    ///
    /// # Errors
    /// Those of reading.
    pub(super) async fn scan(&self, lower: &Fs, ino: Ino, lower_size: u64) -> FsResult<Content> {
        let mut index = Index::default();
        let mut is_certain = lower_size == 0;
        let (mut piece, mut piece_start) = (Vec::new(), 0);
        let mut at = 0;
        while at < lower_size {
            let left = lower_size - at;
            let wanted = left.min(UNIT_BYTES_MAX as u64) as usize;
            if piece.len() < (at - piece_start) as usize + wanted {
                piece = read_lower(lower, ino, None, at, PIECE_BYTES).await?;
                piece_start = at;
                if piece.len() < wanted {
                    return Ok(Content::Damaged("it became shorter while it was read".to_string()));
                }
            }
            let bytes = &piece[(at - piece_start) as usize..];
            let measured = format::measure(bytes, left);
            let is_first = at == 0;
            let wrong = |problem: String| match is_first {
                true => Content::Plain,
                false => Content::Damaged(format!("byte {at}: {problem}")),
            };
            let (head, length) = match measured {
                Ok(found) => found,
                Err(problem) => return Ok(wrong(problem)),
            };
            if !(index.size as usize).is_multiple_of(PAGE_BYTES) {
                return Ok(Content::Damaged(format!("byte {at}: something behind the last page")));
            }
            at += length;
            if head.kind == kinds::TAIL {
                index.has_tail = true;
                index.size += length - UnitHead::BYTES as u64;
            } else {
                index.ends.push(at);
                index.size += u64::from(head.raw_bytes);
                // Finding the end of an encoded page costs as much as decoding it.
                if head.kind == kinds::ENCODED {
                    is_certain = true;
                    let cost = self.options.codec.cost().decode_cycles_per_kib;
                    self.rt.charge(Work::Cycles(cost * u64::from(head.raw_bytes) / 1024)).await;
                }
            }
            if index.ends.len() as u64 > PAGES_MAX {
                return Ok(Content::Damaged(format!("more than {PAGES_MAX} units")));
            }
        }
        Ok(Content::Units { index, is_certain })
    }

    /// Compares an index read from the index file with the units at both ends of `pages`, before anything is written at
    /// the places that it gives (K1).
    ///
    /// # Errors
    /// Those of reading, and of the file.
    pub(super) async fn verify(&self, lower: &Fs, node: &Node, pages: &Range<usize>) -> FsResult<()> {
        let file = node.regular()?;
        for page in [pages.start, pages.end] {
            let (is_verified, place, is_tail) = {
                let file = file.borrow();
                let index = &file.index;
                let is_tail = index.has_tail && page == index.ends.len();
                let place = (page < index.ends.len() || is_tail).then(|| index.start(page));
                (file.is_verified, place, is_tail)
            };
            let Some(place) = place.filter(|_| !is_verified) else { continue };
            let head = format::head(&read_lower(lower, node.ino, None, place, UnitHead::BYTES as u32).await?);
            if head.is_ok_and(|head| (head.kind == kinds::TAIL) == is_tail) {
                continue;
            }
            self.look_again(lower, node).await?;
        }
        Ok(())
    }

    /// Rebuilds the index of a file from its units.
    ///
    /// # Errors
    /// Those of reading, and `Corrupt` when units cannot be decoded; then the file is broken.
    pub(super) async fn look_again(&self, lower: &Fs, node: &Node) -> FsResult<()> {
        let lower_size = lower.getattr(node.ino, None).await?.size;
        let content = self.scan(lower, node.ino, lower_size).await?;
        count(&self.counts.indexes_rebuilt, 1);
        let mut file = node.regular()?.borrow_mut();
        file.last_page = None;
        file.is_verified = true;
        let corrupt = |problem: &str| FsError::corrupt("encoded file", format_args!("inode {}", node.ino), problem);
        file.form = match content {
            Content::Units { index, is_certain } => {
                file.is_certain |= is_certain;
                file.index = index;
                file.index_changed(0);
                Form::Units
            }
            Content::Plain if file.index_ino.is_some() || file.form == Form::Unknown => {
                Form::Broken(corrupt("it was one, and does not begin with a unit"))
            }
            Content::Plain if self.options.plain == Plain::Pass => Form::Plain,
            Content::Plain => Form::Broken(corrupt("it was not written by this layer, and `plain=error` refuses it")),
            Content::Damaged(problem) => Form::Broken(corrupt(&problem)),
        };
        match &file.form {
            Form::Broken(error) => Err(error.clone()),
            _ => Ok(()),
        }
    }
}

impl Index {
    /// The extents of the units of `pages`, including the tail.
    fn clone_part(&self, pages: &Range<usize>) -> Vec<Range<u64>> {
        let end = |page: usize| self.ends.get(page).copied().unwrap_or_else(|| self.lower_size());
        pages.clone().map(|page| self.start(page)..end(page)).collect()
    }
}
