//! File data: reading, writing, truncating, allocating, syncing.
//!
//! Which thread makes a call:
//! 1. A read is first tried with `RWF_NOWAIT`, which copies what is in the page cache and never waits. The rest goes
//!    through the reactor.
//! 2. So is a write, on hosts that support it (xfs, btrfs; not ext4).
//! 3. A small write on other hosts is made on the engine thread: it is a copy into the page cache, 3 us for 4 KiB,
//!    where handing it over takes 17 to 40. But the host makes a writer wait when too much is dirty or the block must
//!    be read first. When one has waited, writes of the next second are handed over; see [`pace`](super::pace).
//! 4. Everything else goes through the reactor: large writes, syncs, allocation.

use std::cell::Cell;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use rustix::fs::{AtFlags, FallocateFlags, OFlags, SeekFrom, Statx, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};
use seekless::device::{Buf, Data};
use seekless::fs::{AllocateMode, FileKind, FileRange, FsError, FsResult, Handle, OpenFlags, SeekTo, WriteMode};
use seekless::units::Ino;

use super::host_latency::add_one;
use super::lease::Lease;
use super::turns::Turns;
use super::writes::Writes;
use super::{HostDir, SLOW_TO_FREE_BYTES, sys};
use crate::reactor::File;

/// An open file or directory.
pub(super) struct OpenFile {
    pub(super) ino: Ino,
    kind: FileKind,
    pub(super) file: File,
    direct: Option<Direct>,
    pub(super) lease: Cell<Lease>,
    pub(super) appends: Turns,
    pub(super) writes: Writes,
}

/// The same file opened a second time with `O_DIRECT`, for aligned requests; others go through the page cache, since
/// callers need not align.
pub(super) struct Direct {
    file: File,
    /// Alignment of offset and length.
    offset_align: u64,
    memory_align: usize,
}

impl OpenFile {
    pub(super) fn new(ino: Ino, kind: FileKind, file: OwnedFd, direct: Option<Direct>) -> OpenFile {
        OpenFile {
            ino,
            kind,
            file: Arc::new(file),
            direct,
            lease: Cell::default(),
            appends: Turns::default(),
            writes: Writes::default(),
        }
    }

    /// The second file, if there is one.
    pub(super) fn direct_file(&self) -> Option<&File> {
        self.direct.as_ref().map(|direct| &direct.file)
    }

    /// The file for a request of `bytes` at `offset`, in memory at `address`.
    fn for_request(&self, offset: u64, bytes: usize, address: *const u8) -> &File {
        let aligned = |direct: &&Direct| {
            offset.is_multiple_of(direct.offset_align)
                && (bytes as u64).is_multiple_of(direct.offset_align)
                && (address as usize).is_multiple_of(direct.memory_align)
        };
        self.direct.as_ref().filter(aligned).map_or(&self.file, |direct| &direct.file)
    }
}

/// How to open a file for `flags`. Not with `O_APPEND`: the kernel writes pages back through any open file, at their
/// places. A write says whether it appends ([`WriteMode::append`]).
pub(super) fn open_flags(flags: OpenFlags) -> OFlags {
    match (flags.read, flags.write) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        (_, false) => OFlags::RDONLY,
    }
}

/// Largest write made on the engine thread. At this size it costs a quarter less than handing it over, and delays other
/// requests by some 15 us.
pub(super) const HERE_BYTES_MAX: usize = 64 << 10;

/// Result of a call with `RWF_NOWAIT`.
enum NoWait {
    Done(usize),
    WouldWait,
    NotOffered,
    Failed(Errno),
}

impl NoWait {
    fn of(result: Result<usize, Errno>) -> NoWait {
        match result {
            Ok(bytes) => NoWait::Done(bytes),
            Err(Errno::AGAIN | Errno::INTR) => NoWait::WouldWait,
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => NoWait::NotOffered,
            Err(errno) => NoWait::Failed(errno),
        }
    }
}

/// Checks that `bytes` at `offset` are within the limits of a file.
fn check_range(offset: u64, bytes: u64) -> FsResult<()> {
    let end = offset.checked_add(bytes).filter(|&end| i64::try_from(end).is_ok());
    end.map(drop).ok_or(FsError::FileTooLarge)
}

/// Only regular files have data.
fn check_regular(kind: FileKind) -> FsResult<()> {
    match kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(FsError::IsDirectory),
        _ => Err(FsError::Invalid("not a regular file")),
    }
}

impl HostDir {
    /// The second file of a file opened with `flags`, where the host supports direct I/O on it.
    pub(super) fn direct(&self, stat: &Statx, flags: OpenFlags, ino: Ino) -> FsResult<Option<Direct>> {
        if !flags.direct || sys::kind(stat)? != FileKind::Regular {
            return Ok(None);
        }
        let place = self.inodes.file(ino)?;
        let asked = rustix::fs::statx(&*place, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).map_err(sys::error)?;
        if asked.stx_dio_offset_align == 0 || asked.stx_dio_mem_align == 0 {
            return Ok(None);
        }
        // If the host refuses, the request goes through its page cache, which gives the same result.
        let opened =
            self.inodes.with_room(|| self.inodes.host_root().reopen(&place, open_flags(flags) | OFlags::DIRECT));
        let (offset_align, memory_align) = (u64::from(asked.stx_dio_offset_align), asked.stx_dio_mem_align as usize);
        Ok(opened.ok().map(|file| Direct { file: Arc::new(file), offset_align, memory_align }))
    }

    /// The file of `handle`, or one opened with `flags` for this operation.
    fn data_file(&self, ino: Ino, handle: Option<Handle>, flags: OFlags) -> FsResult<Rc<OpenFile>> {
        if let Some(handle) = handle {
            let opened = self.opened(ino, handle)?;
            check_regular(opened.kind)?;
            return Ok(opened);
        }
        let place = self.inodes.file(ino)?;
        check_regular(self.kind_of(&place)?)?;
        let file = self.open_place_of(ino, flags).map_err(sys::error)?;
        if flags.intersects(OFlags::WRONLY | OFlags::RDWR) {
            self.settled(ino, &file)?;
        }
        let opened = OpenFile::new(ino, FileKind::Regular, file, None);
        #[cfg(test)]
        opened.writes.refused.set(self.late.as_ref().and_then(|late| late.refused_next.take()));
        Ok(Rc::new(opened))
    }

    pub(super) async fn read_data(
        &self,
        ino: Ino,
        handle: Option<Handle>,
        offset: u64,
        bytes: u32,
    ) -> FsResult<Vec<Data>> {
        let opened = self.data_file(ino, handle, OFlags::RDONLY)?;
        let wanted = (bytes as usize).min(usize::try_from(i64::MAX as u64 - offset.min(i64::MAX as u64)).unwrap_or(0));
        let mut buf = Buf::dirty(wanted);
        let mut done = 0;
        let mut here = true;
        while done < wanted {
            let at = offset + done as u64;
            let file = opened.for_request(at, wanted - done, buf[done..].as_ptr());
            if !self.latency.no_nowait_reads.get() {
                let mut rest = [IoSliceMut::new(&mut buf[done..])];
                match NoWait::of(rustix::io::preadv2(&**file, &mut rest, at, ReadWriteFlags::NOWAIT)) {
                    NoWait::Done(0) => break,
                    NoWait::Done(more) => {
                        done += more;
                        continue;
                    }
                    NoWait::WouldWait => {}
                    NoWait::NotOffered => self.latency.no_nowait_reads.set(true),
                    NoWait::Failed(errno) => return Err(io_error(errno)),
                }
            }
            here = false;
            let (read, back) = self.reactor.read_at(file, at, buf, done).await;
            buf = back;
            match read.map_err(io_error)? {
                0 => break,
                more => done += more,
            }
        }
        add_one(if here { &self.latency.reads_here } else { &self.latency.reads_handed_over });
        buf.truncate(done);
        Ok(if done == 0 { Vec::new() } else { vec![buf.freeze()] })
    }

    pub(super) async fn write_data(
        &self,
        ino: Ino,
        handle: Option<Handle>,
        offset: u64,
        data: Data,
        mode: WriteMode,
    ) -> FsResult<()> {
        let opened = self.data_file(ino, handle, OFlags::WRONLY)?;
        check_range(offset, data.len() as u64)?;
        if mode.kill_privileges {
            self.kill_privileges(&opened.file)?;
        }
        let writing = self.late.as_ref().and_then(|late| late.writing(&opened));
        let written = match mode.append {
            true => self.append_data(&opened, offset, data).await,
            false => self.write_at(&opened, offset, data).await,
        };
        drop(writing);
        match handle {
            Some(_) => written,
            // What the host tells this open file comes now, or never.
            None => written.and(self.end_writing(&opened).await),
        }
    }

    async fn write_at(&self, opened: &OpenFile, offset: u64, data: Data) -> FsResult<()> {
        let mut done = 0;
        let mut here = true;
        while done < data.len() {
            let at = offset + done as u64;
            let rest = data.slice(done..data.len());
            let file = opened.for_request(at, rest.len(), rest.as_ptr());
            if !self.latency.no_nowait_writes.get() {
                match NoWait::of(rustix::io::pwritev2(&**file, &[IoSlice::new(&rest)], at, ReadWriteFlags::NOWAIT)) {
                    NoWait::Done(more) if more > 0 => {
                        done += more;
                        continue;
                    }
                    NoWait::Done(_) | NoWait::WouldWait => {}
                    NoWait::NotOffered => self.latency.no_nowait_writes.set(true),
                    NoWait::Failed(errno) => return Err(io_error(errno)),
                }
            }
            let may_wait = rest.len() > HERE_BYTES_MAX || self.latency.writing.is_advised(&self.rt);
            let written = match may_wait || !Arc::ptr_eq(file, &opened.file) {
                true => {
                    here = false;
                    self.reactor.write_at(file, at, rest, false).await
                }
                false => self.write_here(file, at, &rest),
            };
            match written.map_err(io_error)? {
                0 => return Err(FsError::Host(Errno::IO.raw_os_error())), // No progress, and no error.
                more => done += more,
            }
        }
        add_one(if here { &self.latency.writes_here } else { &self.latency.writes_handed_over });
        Ok(())
    }

    fn write_here(&self, file: &File, at: u64, data: &Data) -> Result<usize, Errno> {
        self.latency.writing.watch(&self.rt, || {
            loop {
                match rustix::io::pwrite(&**file, data, at) {
                    Err(Errno::INTR) => {}
                    result => return result,
                }
            }
        })
    }

    /// Truncates or extends the file to `size`; `before` is its old size.
    pub(super) async fn set_size(&self, ino: Ino, handle: Option<Handle>, size: u64, before: &Statx) -> FsResult<()> {
        check_range(size, 0)?;
        check_regular(sys::kind(before)?)?;
        // A handle that cannot write, as the kernel passes for truncate(2) on some paths, is not an error.
        let opened = self.data_file(ino, handle, OFlags::WRONLY)?;
        let file = match rustix::fs::fcntl_getfl(&*opened.file) {
            Ok(flags) if flags & OFlags::RWMODE == OFlags::RDONLY => {
                self.data_file(ino, None, OFlags::WRONLY)?.file.clone()
            }
            _ => opened.file.clone(),
        };
        let freed = before.stx_size.saturating_sub(size).min(before.stx_blocks.saturating_mul(512));
        let truncated = match freed >= SLOW_TO_FREE_BYTES {
            true => self.reactor.blocking(move || rustix::fs::ftruncate(&*file, size)).await,
            false => rustix::fs::ftruncate(&*file, size),
        };
        truncated.map_err(io_error)
    }

    pub(super) async fn allocate(
        &self,
        ino: Ino,
        handle: Option<Handle>,
        range: FileRange,
        mode: AllocateMode,
    ) -> FsResult<()> {
        let opened = self.data_file(ino, handle, OFlags::WRONLY)?;
        if range.bytes == 0 {
            return Err(FsError::Invalid("an empty range"));
        }
        check_range(range.offset, range.bytes)?;
        let keep = |keep_size| if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        let flags = match mode {
            AllocateMode::Allocate { keep_size } => keep(keep_size),
            AllocateMode::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            AllocateMode::Zero { keep_size } => FallocateFlags::ZERO_RANGE | keep(keep_size),
        };
        self.reactor.fallocate(&opened.file, flags, range.offset, range.bytes).await.map_err(io_error)
    }

    pub(super) fn seek(&self, ino: Ino, handle: Option<Handle>, offset: u64, seek: SeekTo) -> FsResult<u64> {
        let opened = self.data_file(ino, handle, OFlags::RDONLY)?;
        if i64::try_from(offset).is_err() {
            return Err(FsError::NoSuchOffset);
        }
        let to = match seek {
            SeekTo::Data => SeekFrom::Data(offset),
            SeekTo::Hole => SeekFrom::Hole(offset),
        };
        // Moving the file's position is harmless: all reads and writes here pass an offset.
        rustix::fs::seek(&*opened.file, to).map_err(|errno| match errno {
            Errno::NXIO => FsError::NoSuchOffset,
            errno => io_error(errno),
        })
    }

    pub(super) async fn sync(&self, ino: Ino, handle: Option<Handle>, data_only: bool) -> FsResult<()> {
        if let Some(late) = &self.late {
            return self.sync_with_writers(late, ino, handle, !data_only).await;
        }
        let file = match handle {
            Some(handle) => self.opened(ino, handle)?.file.clone(),
            None => {
                let place = self.inodes.file(ino)?;
                match self.open_to_sync(&place).map_err(sys::error)? {
                    Some(opened) => Arc::new(opened),
                    None => return Ok(()),
                }
            }
        };
        // After an error the host has dropped the pages that it could not write; a retry would hide that.
        self.reactor.sync(&file, !data_only).await.map_err(io_error)
    }
}

/// As [`sys::error`], for calls on an open file: a file opened the wrong way is a bad handle.
pub(super) fn io_error(errno: Errno) -> FsError {
    match errno {
        Errno::BADF => FsError::BadHandle,
        errno => sys::error(errno),
    }
}
