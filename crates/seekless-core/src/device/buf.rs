//! Buffers for device I/O: aligned to 4 KiB, reused, and shared without copying once they are filled.
//!
//! A [`Buf`] has one owner and can be written. Freezing it gives [`Data`], which can be cloned and sliced, so that a
//! mirror, a cache and a trace can hold the same bytes. When the last holder drops it, its memory is kept for the next one.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Alignment of every buffer, enough for direct I/O on any drive.
pub const ALIGN_BYTES: usize = 4096;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; ALIGN_BYTES]);

const _: () = assert!(size_of::<Page>() == ALIGN_BYTES);

/// Upper limit of the bytes kept for reuse, per size.
const POOLED_BYTES_MAX: usize = 8 << 20;

/// Size classes are powers of two pages: 4 KiB, 8 KiB ... 4 MiB. Larger buffers are not kept.
const CLASSES: usize = 11;

/// Freed buffers, by class, for reuse: fresh large ones cost a page fault for every 4 KiB. Which one is reused never shows in a
/// result.
static POOL: Mutex<[Vec<Box<[Page]>>; CLASSES]> = Mutex::new([const { Vec::new() }; CLASSES]);

fn class_of(pages: usize) -> usize {
    pages.next_power_of_two().trailing_zeros() as usize
}

/// Pages for `len` bytes, and whether they are fresh, which are full of zeroes.
fn take_pages(len: usize) -> (Box<[Page]>, bool) {
    let count = len.div_ceil(ALIGN_BYTES).max(1);
    let class = class_of(count);
    if class >= CLASSES {
        return (new_pages(count), true);
    }
    let reused = POOL.lock().unwrap_or_else(PoisonError::into_inner)[class].pop();
    let is_fresh = reused.is_none();
    (reused.unwrap_or_else(|| new_pages(1 << class)), is_fresh)
}

fn give_pages(pages: Box<[Page]>) {
    let class = class_of(pages.len());
    if class < CLASSES && pages.len() == 1 << class {
        let mut classes = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        if classes[class].len() * pages.len() * ALIGN_BYTES < POOLED_BYTES_MAX {
            classes[class].push(pages);
        }
    }
}

fn new_pages(count: usize) -> Box<[Page]> {
    // The only failure is running out of memory or a size past isize::MAX, which no caller asks for.
    <[Page]>::new_box_zeroed_with_elems(count).expect("memory for a buffer")
}

/// What buffers without pages read as: this many zeroes.
const ZEROES_BYTES: usize = 1 << 20;

/// Up to [`ZEROES_BYTES`] of zeroes, which all share.
fn zeroes(len: usize) -> &'static [u8] {
    static ZEROES: OnceLock<Box<[Page]>> = OnceLock::new();
    &ZEROES.get_or_init(|| new_pages(ZEROES_BYTES / ALIGN_BYTES)).as_bytes()[..len]
}

/// A writable, aligned buffer with one owner.
pub struct Buf {
    /// No pages, in a buffer of up to [`ZEROES_BYTES`] that has not been written to: `None` where its content is unspecified, an empty box
    /// where it is full of zeroes.
    pages: Option<Box<[Page]>>,
    len: usize,
}

impl Buf {
    /// A buffer of `len` zero bytes. Up to 1 MiB costs no memory, and no time either, before the first byte is written.
    pub fn zeroed(len: usize) -> Buf {
        let mut buf = Buf { pages: Some(Box::default()), len };
        if len > ZEROES_BYTES {
            buf.materialize();
        }
        buf
    }

    /// Gives pages to a buffer that has none.
    #[cold]
    fn materialize(&mut self) {
        let is_zeroed = self.pages.is_some();
        let (pages, is_fresh) = take_pages(self.len);
        self.pages = Some(pages);
        if is_zeroed && !is_fresh {
            self.fill(0);
        }
    }

    /// A buffer of `len` bytes of unspecified content, for a caller that fills all of it. Up to 1 MiB costs no memory before the first byte
    /// is written: a read that waits for its turn needs none.
    pub fn dirty(len: usize) -> Buf {
        let mut buf = Buf { pages: None, len };
        if len > ZEROES_BYTES {
            buf.materialize();
        }
        buf
    }

    /// True when the buffer takes no memory, because nothing has been written to it. It reads as zeroes.
    pub fn is_hole(&self) -> bool {
        self.pages.as_ref().is_none_or(|pages| pages.is_empty())
    }

    /// A copy of these bytes, which takes no memory if this buffer takes none.
    ///
    /// # Panics
    /// When `range` passes the end.
    pub fn part(&self, range: Range<usize>) -> Buf {
        match self.is_hole() && range.end <= self.len {
            true => Buf::zeroed(range.len()),
            false => Buf::from_slice(&self[range]),
        }
    }

    pub fn from_slice(bytes: &[u8]) -> Buf {
        let mut buf = Buf::dirty(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// Shortens the buffer to `len` bytes; does nothing when it is already that short.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Ends writing: the bytes can now be shared.
    pub fn freeze(self) -> Data {
        let end = self.len;
        Data { buf: Arc::new(self), start: 0, end }
    }
}

impl Deref for Buf {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.pages {
            Some(pages) if !pages.is_empty() => &pages.as_bytes()[..self.len],
            _ => zeroes(self.len),
        }
    }
}

impl DerefMut for Buf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        if self.is_hole() {
            self.materialize();
        }
        match &mut self.pages {
            Some(pages) => &mut pages.as_mut_bytes()[..self.len],
            None => unreachable!("it has been given pages"),
        }
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        if let Some(pages) = self.pages.take() {
            give_pages(pages);
        }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.len)
    }
}

/// Shared, immutable bytes: a slice of a filled [`Buf`].
///
/// The start of the whole buffer is aligned to [`ALIGN_BYTES`]; a slice is aligned as its offset is.
#[derive(Clone)]
pub struct Data {
    buf: Arc<Buf>,
    start: usize,
    end: usize,
}

/// Tells buffers apart. Which one is which differs from run to run, so nothing may depend on an order of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BufferId(usize);

impl Data {
    pub fn empty() -> Data {
        Data::zeroes(0)
    }

    /// `len` zero bytes; see [`Buf::zeroed`].
    pub fn zeroes(len: usize) -> Data {
        Buf::zeroed(len).freeze()
    }

    pub fn from_slice(bytes: &[u8]) -> Data {
        Buf::from_slice(bytes).freeze()
    }

    /// A part of these bytes, sharing their memory.
    ///
    /// # Panics
    /// When `range` passes the end.
    pub fn slice(&self, range: Range<usize>) -> Data {
        assert!(range.start <= range.end && range.end <= self.end - self.start, "slice inside its data");
        Data { buf: self.buf.clone(), start: self.start + range.start, end: self.start + range.end }
    }

    /// These bytes and `next` as one slice, where they follow each other in one buffer.
    pub fn joined(&self, next: &Data) -> Option<Data> {
        let is_next = Arc::ptr_eq(&self.buf, &next.buf) && self.end == next.start;
        is_next.then(|| Data { buf: self.buf.clone(), start: self.start, end: next.end })
    }

    /// Bytes of memory that this slice keeps in use, together with all others of the same [`Data::buffer`]. None for
    /// [`Data::zeroes`].
    pub fn pinned_bytes(&self) -> usize {
        self.buf.pages.as_ref().map_or(0, |pages| pages.len() * ALIGN_BYTES)
    }

    /// See [`Buf::is_hole`].
    pub fn is_hole(&self) -> bool {
        self.buf.is_hole()
    }

    /// The buffer that this is a slice of. As long as one of its slices exists, no other buffer is equal to it.
    pub fn buffer(&self) -> BufferId {
        BufferId(Arc::as_ptr(&self.buf) as usize)
    }

    /// Where in its buffer this slice begins.
    pub fn buffer_offset(&self) -> usize {
        self.start
    }

    /// The bytes for writing: in place when they are not shared, otherwise in a copy.
    pub fn make_mut(&mut self) -> &mut [u8] {
        // Zeroes that take no memory do so from now on, but no more than this slice has.
        if self.is_hole() || Arc::get_mut(&mut self.buf).is_none() {
            *self = Data::from_slice(self);
        }
        match Arc::get_mut(&mut self.buf) {
            Some(buf) => &mut buf[self.start..self.end],
            None => unreachable!("a fresh copy has one holder"),
        }
    }
}

impl Deref for Data {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.buf[self.start..self.end]
    }
}

impl PartialEq for Data {
    fn eq(&self, other: &Data) -> bool {
        self[..] == other[..]
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Data({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reuse never shows: a zeroed buffer is zero even when its memory held something else before.
    #[test]
    fn zeroed_buffers_are_zero_after_reuse() {
        for _ in 0..4 {
            let mut buf = Buf::zeroed(10_000);
            assert!(buf.iter().all(|&byte| byte == 0));
            assert_eq!(buf.as_ptr() as usize % ALIGN_BYTES, 0);
            buf.fill(0xff);
        }
    }

    /// Zeroes have no pages before they are written, and then no more than is written to; past [`ZEROES_BYTES`] they always have.
    #[test]
    fn zeroes_take_no_memory() {
        drop(Buf::from_slice(&[0xff; 3 * ALIGN_BYTES]));
        let mut buf = Buf::zeroed(2 * ALIGN_BYTES + 1);
        assert!(buf.is_hole() && *buf == [0; 2 * ALIGN_BYTES + 1]);
        buf.truncate(ALIGN_BYTES + 1);
        buf[ALIGN_BYTES] = 1;
        assert!(buf[..ALIGN_BYTES] == [0; ALIGN_BYTES] && buf.freeze().pinned_bytes() == 2 * ALIGN_BYTES);
        let zeroes = Data::zeroes(ZEROES_BYTES);
        let mut slice = zeroes.slice(100..200);
        assert_eq!((zeroes.pinned_bytes(), slice.pinned_bytes()), (0, 0));
        drop(zeroes);
        slice.make_mut()[0] = 1;
        assert_eq!((slice.pinned_bytes(), slice.buffer_offset(), slice.len()), (ALIGN_BYTES, 0, 100));
        let most = Buf::zeroed(ZEROES_BYTES + 1);
        assert!(!most.is_hole() && most.iter().all(|&byte| byte == 0));
    }

    /// A buffer to be filled has no pages before it is, nor has a copy of one.
    #[test]
    fn a_buffer_that_waits_takes_no_memory() {
        let mut buf = Buf::dirty(2 * ALIGN_BYTES);
        assert!(buf.is_hole() && buf.part(10..20).is_hole() && Buf::dirty(10).freeze().is_hole());
        assert!(!Buf::dirty(ZEROES_BYTES + 1).is_hole());
        buf.fill(7);
        assert!(!buf.is_hole() && *buf.part(10..20) == [7; 10]);
        assert!(!buf.part(0..1).is_hole());
    }

    /// Slices know their buffer, what it takes, and where in it they are.
    #[test]
    fn slices_know_their_buffer() {
        let (one, two) = (Buf::from_slice(&[1; 3 * ALIGN_BYTES]).freeze(), Buf::from_slice(&[1]).freeze());
        let slice = one.slice(100..9_000).slice(20..30);
        assert_eq!((slice.buffer(), slice.buffer_offset(), slice.pinned_bytes()), (one.buffer(), 120, 4 * ALIGN_BYTES));
        assert_ne!(one.buffer(), two.buffer());
        let part = |range| one.slice(range);
        assert_eq!(part(10..20).joined(&part(20..25)).unwrap().as_ptr_range(), part(10..25).as_ptr_range());
        assert_eq!((part(10..20).joined(&part(21..25)), part(0..0).joined(&two)), (None, None));
        assert_eq!(two.pinned_bytes(), ALIGN_BYTES);
    }

    /// Shared data is copied before it changes; other holders keep what they had.
    #[test]
    fn make_mut_copies_shared_data() {
        let mut one = Data::from_slice(b"hello");
        let two = one.clone();
        one.make_mut()[0] = b'j';
        assert_eq!((&one[..], &two[..]), (&b"jello"[..], &b"hello"[..]));
        let before = one.as_ptr();
        one.make_mut()[0] = b'c';
        assert_eq!(before, one.as_ptr());
    }
}
