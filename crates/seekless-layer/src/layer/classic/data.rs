//! File data: reading, writing, truncating.
//!
//! Each operation holds the file's gate from beginning to end, as the paper's layer holds its locks, so that no other
//! operation sees units while they move.

use std::ops::Range;

use super::file::{Form, Node};
use super::format::{PAGE_BYTES, PAGES_MAX, UnitHead};
use super::units::Page;
use super::{Classic, count};
use crate::device::Data;
use crate::fs::{AllocateMode, Attr, FileRange, Fs, FsError, FsResult, Handle, SeekTo, SetAttr, WriteMode};
use crate::rt::Work;

const PAGE: u64 = PAGE_BYTES as u64;

/// Zeroes are written in pieces of this size where a hole was requested.
const ZEROES_BYTES: u64 = 1 << 20;

/// Pages of zeroes that are added at a time.
const HOLE_PAGES: u64 = 1024;

/// How to write a lower file: through which handle, and in which mode.
#[derive(Clone, Copy)]
pub(super) struct Writing<'a> {
    pub(super) lower: &'a Fs,
    pub(super) handle: Option<Handle>,
    pub(super) mode: WriteMode,
}

impl Classic {
    pub(super) async fn read_units(
        &self,
        lower: &Fs,
        handle: Option<Handle>,
        node: &Node,
        offset: u64,
        bytes: u32,
    ) -> FsResult<Vec<Data>> {
        let _pass = node.gate.enter().await;
        self.ensure_known(lower, node).await?;
        let size = node.regular()?.borrow().index.size;
        let end = size.min(offset.saturating_add(bytes.into()));
        if offset >= end {
            return Ok(Vec::new());
        }
        let pages = (offset / PAGE) as usize..end.div_ceil(PAGE) as usize;
        let decoded = self.read_pages(lower, handle, node, pages.clone()).await?;
        let mut all = Data::zeroes((end - offset) as usize);
        let filled = all.make_mut();
        for (page, bytes) in pages.zip(decoded) {
            let start = page as u64 * PAGE;
            let (from, to) = (offset.max(start), end.min(start + bytes.len() as u64));
            if from < to {
                let part = &bytes[(from - start) as usize..(to - start) as usize];
                filled[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
            }
        }
        Ok(vec![all])
    }

    pub(super) async fn write_units(
        &self,
        writing: Writing<'_>,
        node: &Node,
        offset: u64,
        data: &[u8],
    ) -> FsResult<()> {
        let _pass = node.gate.enter().await;
        self.ensure_known(writing.lower, node).await?;
        self.write_held(writing, node, offset, data).await
    }

    /// Writes `data`; with no bytes, it only extends the file to `offset`. The caller holds the gate. A hole far behind the end is
    /// made in pieces: the units of all of it may need more memory than there is.
    async fn write_held(&self, writing: Writing<'_>, node: &Node, offset: u64, data: &[u8]) -> FsResult<()> {
        check_end(offset, data.len() as u64)?;
        loop {
            let size = node.regular()?.borrow().index.size;
            let next = (size / PAGE + HOLE_PAGES) * PAGE;
            if next >= offset {
                break;
            }
            self.write_piece(writing, node, next, &[]).await?;
        }
        self.write_piece(writing, node, offset, data).await
    }

    async fn write_piece(&self, writing: Writing<'_>, node: &Node, offset: u64, data: &[u8]) -> FsResult<()> {
        let file = node.regular()?;
        let end = check_end(offset, data.len() as u64)?;
        let size = file.borrow().index.size;
        if end <= size && data.is_empty() {
            return Ok(());
        }
        let changing = (offset.min(size) / PAGE) as usize..end.div_ceil(PAGE) as usize;
        self.verify(writing.lower, node, &changing).await?;
        let size = file.borrow().index.size;
        if self.write_tail(writing, node, offset, data).await? {
            return Ok(());
        }
        let new_size = size.max(end);
        let pages_before = file.borrow().index.pages();
        let pages = (offset.min(size) / PAGE) as usize..end.div_ceil(PAGE) as usize;
        let mut contents = Vec::with_capacity(pages.len());
        for page in pages.clone() {
            let start = page as u64 * PAGE;
            let length = (new_size - start).min(PAGE) as usize;
            if page >= pages_before && start + length as u64 <= offset {
                contents.push(Page::Zeroes(length));
                continue;
            }
            let (from, to) = (offset.max(start), end.min(start + PAGE));
            let is_whole = from <= start && to >= size.min(start + PAGE);
            let mut bytes = match page < pages_before && !is_whole {
                true => self.read_pages(writing.lower, writing.handle, node, page..page + 1).await?.concat(),
                false => Vec::new(),
            };
            bytes.resize(length, 0);
            if from < to {
                let part = &data[(from - offset) as usize..(to - offset) as usize];
                bytes[(from - start) as usize..(to - start) as usize].copy_from_slice(part);
            }
            contents.push(Page::Bytes(bytes));
        }
        debug_assert_eq!(contents.len(), pages.len(), "each page that changes has its content");
        self.put(writing, node, pages, contents, new_size).await
    }

    /// Writes into the tail, as long as it remains one [za01 §7]. Returns whether it did.
    async fn write_tail(&self, writing: Writing<'_>, node: &Node, offset: u64, data: &[u8]) -> FsResult<bool> {
        let file = node.regular()?;
        let (place, lower_size) = {
            let file = file.borrow();
            let index = &file.index;
            let start = index.ends.len() as u64 * PAGE;
            let fits = offset >= start && offset <= index.size && offset + (data.len() as u64) < start + PAGE;
            let in_tail = index.has_tail && self.options.fast_tails && fits && !data.is_empty();
            let place = in_tail.then(|| index.start(index.ends.len()) + UnitHead::BYTES as u64 + (offset - start));
            (place, index.lower_size())
        };
        let Some(place) = place else { return Ok(false) };
        self.rt.charge(Work::Copy { bytes: data.len() as u64 }).await;
        let written = writing.lower.write(node.ino, writing.handle, place, Data::from_slice(data), writing.mode).await;
        if let Err(error) = written {
            let error = self.shrunk(writing, node, lower_size, error).await;
            return Err(self.failed(writing.lower, node, error).await);
        }
        count(&self.counts.bytes_written, data.len() as u64);
        count(&self.counts.tail_appends, 1);
        let mut file = file.borrow_mut();
        let page = file.index.ends.len();
        if let Some((cached, bytes)) = &mut file.last_page
            && *cached == page
        {
            let from = (offset % PAGE) as usize;
            let to = from + data.len();
            bytes.resize(bytes.len().max(to), 0);
            bytes[from..to].copy_from_slice(data);
        }
        let size = file.index.size.max(offset + data.len() as u64);
        if size != file.index.size {
            file.index.size = size;
            let units = file.index.ends.len();
            file.index_changed(units);
        }
        Ok(true)
    }

    /// Encodes `contents` and stores them in place of `pages`, of which those behind the end are new.
    async fn put(
        &self,
        writing: Writing<'_>,
        node: &Node,
        pages: Range<usize>,
        contents: Vec<Page>,
        new_size: u64,
    ) -> FsResult<()> {
        let last = match contents.last() {
            Some(Page::Bytes(bytes)) => Some(bytes.clone()),
            _ => None,
        };
        let last_page = (pages.start + contents.len()).checked_sub(1);
        let is_end = pages.end as u64 * PAGE >= new_size;
        let encoded = self.encode(contents, is_end).await;
        let replaced = self.replace(writing, node, pages, &encoded, new_size).await;
        if let Err(error) = replaced {
            return Err(self.failed(writing.lower, node, error).await);
        }
        node.regular()?.borrow_mut().last_page = last_page.zip(last);
        Ok(())
    }

    /// After an error below, the content of the lower file is unknown until its units are read again.
    async fn failed(&self, lower: &Fs, node: &Node, error: FsError) -> FsError {
        if let Ok(file) = node.regular() {
            let mut file = file.borrow_mut();
            (file.form, file.last_page) = (Form::Unknown, None);
        }
        // An error here is that of the next operation.
        let _ = self.ensure_known(lower, node).await;
        error
    }

    /// Reads the units of a file whose content is unknown after an error.
    ///
    /// # Errors
    /// Those of the file, when it is broken.
    pub(super) async fn ensure_known(&self, lower: &Fs, node: &Node) -> FsResult<()> {
        match node.form() {
            Some(Form::Unknown) => self.look_again(lower, node).await,
            Some(Form::Broken(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Truncates or extends the file to `changes.size`, with the other changes.
    pub(super) async fn resize_units(&self, lower: &Fs, node: &Node, changes: SetAttr, size: u64) -> FsResult<Attr> {
        let _pass = node.gate.enter().await;
        self.ensure_known(lower, node).await?;
        check_end(size, 0)?;
        let file = node.regular()?;
        // Without the handle: for truncate(2) the kernel gives one that cannot write.
        let mode = WriteMode { kill_privileges: changes.kill_privileges, ..WriteMode::default() };
        let writing = Writing { lower, handle: None, mode };
        let changing = {
            let index = &file.borrow().index;
            (size.min(index.size) / PAGE) as usize..index.pages()
        };
        self.verify(lower, node, &changing).await?;
        let before = file.borrow().index.size;
        if size > before {
            self.write_held(writing, node, size, &[]).await?;
        } else if size < before {
            let page = (size / PAGE) as usize;
            let pages = file.borrow().index.pages();
            let mut contents = Vec::new();
            if !size.is_multiple_of(PAGE) {
                let mut bytes = self.read_pages(lower, None, node, page..page + 1).await?.concat();
                bytes.truncate((size % PAGE) as usize);
                contents.push(Page::Bytes(bytes));
            }
            self.put(writing, node, page..pages, contents, size).await?;
        }
        // Sets the size to its present value: for the times, and for the other changes in the same call.
        let lower_size = file.borrow().index.lower_size();
        lower.setattr(node.ino, None, SetAttr { size: Some(lower_size), ..changes }).await
    }

    pub(super) async fn seek_units(&self, lower: &Fs, node: &Node, offset: u64, seek: SeekTo) -> FsResult<u64> {
        let _pass = node.gate.enter().await;
        self.ensure_known(lower, node).await?;
        let file = node.regular()?.borrow();
        let index = &file.index;
        if offset >= index.size {
            return Err(FsError::NoSuchOffset);
        }
        // A unit of zeroes consists of a head alone.
        let is_hole = |page: usize| {
            let end = index.ends.get(page).copied();
            end.is_some_and(|end| end - index.start(page) == UnitHead::BYTES as u64)
        };
        let first = (offset / PAGE) as usize;
        let wanted = seek == SeekTo::Hole;
        match (first..index.pages()).find(|&page| is_hole(page) == wanted) {
            Some(page) => Ok(offset.max(page as u64 * PAGE)),
            None if wanted => Ok(index.size),
            None => Err(FsError::NoSuchOffset),
        }
    }

    pub(super) async fn allocate_units(
        &self,
        writing: Writing<'_>,
        node: &Node,
        range: FileRange,
        mode: AllocateMode,
    ) -> FsResult<()> {
        if range.bytes == 0 {
            return Err(FsError::Invalid("an empty range"));
        }
        let end = check_end(range.offset, range.bytes)?;
        let _pass = node.gate.enter().await;
        self.ensure_known(writing.lower, node).await?;
        let size = node.regular()?.borrow().index.size;
        let (clears, keep_size) = match mode {
            AllocateMode::PunchHole => (true, true),
            AllocateMode::Zero { keep_size } => (true, keep_size),
            AllocateMode::Allocate { keep_size } => (false, keep_size),
        };
        let mut at = range.offset;
        while clears && at < end.min(size) {
            let bytes = (end.min(size) - at).min(ZEROES_BYTES);
            self.write_held(writing, node, at, &vec![0; bytes as usize]).await?;
            at += bytes;
        }
        match keep_size {
            true => Ok(()),
            false => self.write_held(writing, node, end, &[]).await,
        }
    }
}

/// The end of `bytes` bytes at `offset`.
fn check_end(offset: u64, bytes: u64) -> FsResult<u64> {
    offset.checked_add(bytes).filter(|&end| end <= PAGES_MAX * PAGE).ok_or(FsError::FileTooLarge)
}
