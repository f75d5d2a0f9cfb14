//! A block device in an image file, or on a raw block device.
//!
//! Guarantees: a completed write is in the host's page cache (or, with direct I/O, in the drive's cache), not on the
//! medium. A flush is `fdatasync`; a write with FUA is `RWF_DSYNC`. Sectors of 512 bytes, or the drive's logical
//! blocks, are written as a whole.
//!
//! Invariants
//!   F1  Linux reports a failed write-back once per open file and then forgets it. So one `fdatasync` at a time runs on
//!       the affected file, no caller can cancel it half-way, and after a failure every later write and flush fails: a
//!       success would say nothing about the lost writes.
//!   F2  One process at a time writes to a store: `flock` on the file, and on block devices `O_EXCL`, which also
//!       keeps mounts of the kernel's own file systems away. A loop device and the file behind it are the same store, and so are the
//!       file that a mount of ours or an overlay shows and the one that stores it.
//!   F3  A new image's name is durable before its creation is reported. Where it is to have one only when it is complete, a process that ends
//!       earlier leaves nothing.
//!   F4  No write goes through the page cache while another by-passes it. When the second ends, the kernel drops what the
//!       cache has of its pages, and of those together with them; if one has been changed in the meantime, it reports that
//!       as an I/O error of the file with the next sync.
//!   F5  Nothing is read before the kernel has dropped what its cache has of the store. After a failed sync it keeps the pages
//!       that it could not write, as if they were written: what is built on them is gone with the next power cut.

mod below;
mod claim;
mod direct;
mod found;
mod full;
mod open;
mod shown;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom};
use rustix::io::Errno;
use seekless::device::{BlockDevice, Buf, Counter, Data, DeviceError, Discard, Geometry, Guarantees, WriteFlags};
use seekless::rt::{Event, Rt};
use seekless::units::{SECTOR_BYTES, Sector, human_bytes};

use direct::{Direct, written_end};
use full::Fullness;
pub use open::{DirectIo, FileError, FileOptions};

use crate::reactor::{File, Reactor};

/// Name of a counter: 1 once a sync has found the image without a name, so that what is in it is gone with the last user.
pub(crate) const REMOVED: &str = "image_removed";

/// A file or block device that stores the blocks of a device.
pub struct FileDevice {
    shared: Rc<Shared>,
}

/// State shared by the device and its pending syncs.
struct Shared {
    rt: Rt,
    reactor: Reactor,
    path: PathBuf,
    /// Reads, writes and `fdatasync`.
    file: File,
    /// The same storage, opened once more: a failed `RWF_DSYNC` write consumes the error report of its own open file,
    /// and leaves that of `file` to `fdatasync` (F1).
    durable_file: File,
    /// The way around the page cache, where some requests take it and others do not.
    direct: Option<Direct>,
    geometry: Geometry,
    /// See [`FileDevice::left_over`].
    left_over: u64,
    discard: Discard,
    block_device: bool,
    read_only: bool,
    /// Memory alignment that `file` requires: 1 where it is not opened for direct I/O.
    memory_align: usize,
    /// The files behind a loop device or a mount, locked as `file` is (F2).
    below: Vec<OwnedFd>,
    /// What a look for its users could not find out when it was opened.
    not_known: Vec<String>,
    /// Keeps other users of a block device away while it lives (F2).
    claim: RefCell<Option<OwnedFd>>,
    syncs: Syncs,
    /// A durable write is under way; there is one at a time, for F1.
    durable_write_busy: Cell<bool>,
    /// The first failure of unknown effect (F1).
    failed: RefCell<Option<String>>,
    fullness: Fullness,
    /// The image has lost its last name, and that was reported.
    is_nameless: Cell<bool>,
    /// The image is new, and has no name yet.
    is_unnamed: Cell<bool>,
    counts: Counts,
}

/// Syncs are numbered from 1 in the order of their start; at most one runs.
#[derive(Default)]
struct Syncs {
    started: Cell<u64>,
    finished: Cell<u64>,
    ended: Event,
}

#[derive(Default)]
struct Counts {
    reads: Cell<u64>,
    read_bytes: Cell<u64>,
    writes: Cell<u64>,
    write_bytes: Cell<u64>,
    durable_writes: Cell<u64>,
    flushes: Cell<u64>,
    syncs: Cell<u64>,
    discards: Cell<u64>,
    direct_writes: Cell<u64>,
}

fn add(count: &Cell<u64>, more: u64) {
    count.set(count.get() + more);
}

impl FileDevice {
    /// Where the store is.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Bytes at the end of the file that are no whole block, and not part of the device.
    pub fn left_over(&self) -> u64 {
        self.shared.left_over
    }

    /// True for a new file that has no name yet.
    pub fn is_unnamed(&self) -> bool {
        self.shared.is_unnamed.get()
    }

    /// What a look for users of the store could not find out when it was opened, since daemons did not answer.
    pub fn not_known(&self) -> &[String] {
        &self.shared.not_known
    }

    /// True on a block device, whose mount the kernel can then sync (`fuseblk`).
    pub fn is_block_device(&self) -> bool {
        self.shared.block_device
    }

    /// The descriptors whose locks keep other processes away, and through which they learn who holds them.
    pub(super) fn claimed(&self) -> impl Iterator<Item = &OwnedFd> {
        std::iter::once(&*self.shared.file).chain(&self.shared.below)
    }

    /// Gives up the claim on a block device, so that a `fuseblk` mount can take it over. The lock against other
    /// Seekless processes stays.
    pub fn release_claim(&self) {
        self.shared.claim.borrow_mut().take();
    }

    /// Takes the claim back after a mount did not take it over.
    ///
    /// # Errors
    /// `InUse` when another process has it now.
    pub fn claim_again(&self) -> Result<(), FileError> {
        *self.shared.claim.borrow_mut() = open::claim(&self.shared.path, self.shared.block_device)?;
        Ok(())
    }
}

impl Shared {
    fn io_error(&self, operation: &'static str, at: Sector, bytes: u64, cause: impl fmt::Display) -> DeviceError {
        DeviceError::Io { operation, at, bytes, cause: format!("{cause} ({})", self.path.display()) }
    }

    /// Fails if an earlier sync did (F1).
    fn check_failed(&self, operation: &'static str, at: Sector, bytes: u64) -> Result<(), DeviceError> {
        match &*self.failed.borrow() {
            None => Ok(()),
            Some(first) => Err(self.io_error(operation, at, bytes, format_args!("earlier writes were lost: {first}"))),
        }
    }

    /// Remembers the first failure of unknown effect.
    fn fail(&self, operation: &'static str, cause: Errno) {
        self.failed.borrow_mut().get_or_insert_with(|| format!("{operation} failed: {cause}"));
    }

    fn write_error(&self, at: Sector, bytes: u64, cause: Errno) -> DeviceError {
        match cause {
            // What the kernel says of a write behind the end of a block device, which may have become shorter.
            Errno::NOSPC if self.is_behind_end(at, bytes) => {
                self.io_error("write", at, bytes, "the device has shrunk, and ends before")
            }
            Errno::NOSPC | Errno::DQUOT => self.no_space(at, bytes),
            cause => self.io_error("write", at, bytes, cause),
        }
    }

    /// Whether the range ends behind the end of a block device as it is now.
    fn is_behind_end(&self, at: Sector, bytes: u64) -> bool {
        let end = || rustix::fs::seek(&*self.file, SeekFrom::End(0));
        self.block_device && end().is_ok_and(|end| at.byte_offset() + bytes > end)
    }

    fn no_space(&self, at: Sector, bytes: u64) -> DeviceError {
        self.fullness.refused(&self.path, bytes);
        DeviceError::NoSpace { at, bytes }
    }

    /// A request that may need space has completed.
    fn had_space(&self) {
        self.fullness.granted(&self.path, || match self.block_device {
            // The file system that holds the device node says nothing about the device's space.
            true => None,
            false => rustix::fs::fstatvfs(&*self.file).ok().map(|host| {
                let all = rustix::process::geteuid().is_root();
                let blocks = if all { host.f_bfree } else { host.f_bavail };
                blocks.saturating_mul(host.f_frsize)
            }),
        });
    }

    /// Writes all of `data`, in as many calls as needed.
    async fn write_all(&self, file: &File, at: Sector, data: &Data, durable: bool) -> Result<(), Errno> {
        let mut done = 0;
        while done < data.len() {
            let rest = data.slice(done..data.len());
            match self.reactor.write_at(file, at.byte_offset() + done as u64, rest, durable).await? {
                0 => return Err(Errno::IO),
                more => done += more,
            }
        }
        self.had_space();
        Ok(())
    }

    /// Writes all of `data` the way that is faster.
    async fn write_some_way(self: &Rc<Self>, at: Sector, data: Data) -> Result<(), Errno> {
        if self.direct.is_none() {
            return self.write_all(&self.file, at, &data, false).await;
        }
        let shared = self.clone();
        // A separate task: what it counts stays counted until the write has ended, even if the caller is dropped (F4).
        let written = self.rt.spawn(async move {
            if let Some(direct) = &shared.direct
                && direct.writes(at.byte_offset(), &data)
                && direct.begin()
            {
                add(&shared.counts.direct_writes, 1);
                let written = shared.write_all(&direct.file, at, &data, false).await;
                direct.end();
                match written {
                    Err(cause) if direct.refuse(cause) => {}
                    written => return written,
                }
            }
            shared.write_cached(&shared.file, at, &data, false).await
        });
        written.await
    }

    /// Writes all of `data` through the page cache, while nothing by-passes it (F4).
    async fn write_cached(&self, file: &File, at: Sector, data: &Data, durable: bool) -> Result<(), Errno> {
        let Some(direct) = &self.direct else { return self.write_all(file, at, data, durable).await };
        direct.begin_cached().await;
        let written = self.write_all(file, at, data, durable).await;
        direct.end_cached();
        written
    }

    /// Runs sync number `number` to its end, even if its callers are gone.
    async fn run_sync(self: Rc<Self>) {
        let result = self.reactor.sync(&self.file, false).await;
        add(&self.counts.syncs, 1);
        match result {
            Ok(()) => self.look_at_the_image(),
            Err(cause) => self.fail("fdatasync", cause),
        }
        self.syncs.finished.set(self.syncs.finished.get() + 1);
        self.syncs.ended.notify();
    }

    /// Fails when the image has been cut shorter: what was in its end is lost. Reports once that it was removed.
    fn look_at_the_image(&self) {
        let Ok(stat) = rustix::fs::fstat(&*self.file) else { return };
        if self.block_device {
            return;
        }
        self.look_for_a_name(&stat);
        let (bytes, wanted) = (stat.st_size as u64, self.geometry.bytes());
        if bytes < wanted {
            let cause = format!("the image has {bytes} of its {wanted} bytes: it has been truncated");
            self.failed.borrow_mut().get_or_insert(cause);
        }
    }

    /// True when the image was removed, or another file was renamed over it, which is reported once: what is durable in it is gone with
    /// the last user.
    fn look_for_a_name(&self, stat: &rustix::fs::Stat) -> bool {
        if stat.st_nlink == 0 && !self.block_device && !self.is_nameless.get() && !self.is_unnamed.get() {
            self.is_nameless.set(true);
            log::warn!(
                "{}: the image was removed while it is in use, and its content is gone when this process ends; until then it can be \
                 copied: cp --sparse=always /proc/{}/fd/{} COPY",
                self.path.display(),
                std::process::id(),
                self.file.as_raw_fd()
            );
        }
        self.is_nameless.get()
    }

    /// Returns when a sync that started after this call has succeeded. Callers that arrive while one runs share the
    /// next one.
    async fn synced(self: &Rc<Self>) -> Result<(), DeviceError> {
        let syncs = &self.syncs;
        let wanted = syncs.started.get() + 1;
        while syncs.finished.get() < wanted {
            self.check_failed("flush", Sector::ZERO, 0)?;
            let ended = syncs.ended.wait();
            if syncs.started.get() == syncs.finished.get() {
                syncs.started.set(syncs.started.get() + 1);
                // A separate task, so that the result is kept even if the caller is dropped (F1).
                drop(self.rt.spawn(self.clone().run_sync()));
            }
            ended.await;
        }
        self.check_failed("flush", Sector::ZERO, 0)
    }

    /// A write that is on the medium when it returns.
    async fn write_durably(self: &Rc<Self>, at: Sector, data: Data) -> Result<(), DeviceError> {
        let bytes = data.len() as u64;
        if self.durable_write_busy.replace(true) {
            // Queueing would cost more than sharing a sync with all other waiting callers.
            self.write_some_way(at, data).await.map_err(|cause| self.write_error(at, bytes, cause))?;
            return self.synced().await;
        }
        let shared = self.clone();
        // A separate task for the same reason as in `synced`.
        let written = self.rt.spawn(async move {
            let written = shared.write_cached(&shared.durable_file, at, &data, true).await;
            if let Err(cause) = written
                && !matches!(cause, Errno::NOSPC | Errno::DQUOT)
            {
                shared.fail("durable write", cause);
            }
            shared.durable_write_busy.set(false);
            written
        });
        written.await.map_err(|cause| self.write_error(at, bytes, cause))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let direct = self.direct.as_ref().map(|direct| direct.file.clone());
        let others = [Some(self.durable_file.clone()), direct];
        let held = Held { file: self.file.clone(), below: std::mem::take(&mut self.below), others };
        // This struct has one of each, and so has `held`.
        if held.is_idle(2) {
            held.unlock();
        } else {
            // Writes under way hold what they write to. Another process must not open the store before they have ended.
            let kept = (self.file.clone(), held.below.iter().flat_map(OwnedFd::try_clone).collect::<Vec<_>>());
            let waits = std::thread::Builder::new().name("last writes".to_owned()).spawn(move || {
                while !held.is_idle(1) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                held.unlock();
            });
            if waits.is_err() {
                // The lock then stays until the process ends.
                std::mem::forget(kept);
            }
        }
    }
}

/// The descriptors whose locks keep others away, and those through which a store is written besides.
struct Held {
    file: File,
    below: Vec<OwnedFd>,
    others: [Option<File>; 2],
}

impl Held {
    /// Whether nothing else than `owners` has these.
    fn is_idle(&self, owners: usize) -> bool {
        [Some(&self.file)]
            .into_iter()
            .chain(self.others.iter().map(Option::as_ref))
            .flatten()
            .all(|file| Arc::strong_count(file) <= owners)
    }

    /// Closing the file releases the lock, except while a newly forked child still holds a copy.
    fn unlock(&self) {
        for file in std::iter::once(&*self.file).chain(&self.below) {
            let _ = rustix::fs::flock(file, FlockOperation::Unlock);
        }
    }
}

#[async_trait(?Send)]
impl BlockDevice for FileDevice {
    fn geometry(&self) -> Geometry {
        self.shared.geometry
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees {
            atomic_write_bytes: self.shared.geometry.block_bytes,
            durable_on_completion: false,
            ordered: false,
            discard: self.shared.discard,
        }
    }

    async fn read(&self, at: Sector, mut buf: Buf) -> Result<Buf, DeviceError> {
        let shared = &self.shared;
        let bytes = buf.len() as u64;
        shared.geometry.check(at, bytes)?;
        add(&shared.counts.reads, 1);
        add(&shared.counts.read_bytes, bytes);
        let mut done = 0;
        while done < buf.len() {
            let (read, back) = shared.reactor.read_at(&shared.file, at.byte_offset() + done as u64, buf, done).await;
            buf = back;
            match read {
                Ok(0) => return Err(shared.io_error("read", at, bytes, "the file has shrunk")),
                Ok(more) => done += more,
                Err(cause) => return Err(shared.io_error("read", at, bytes, cause)),
            }
        }
        Ok(buf)
    }

    async fn next_data(&self, at: Sector) -> Result<Option<Sector>, DeviceError> {
        let shared = &self.shared;
        let Geometry { sectors, block_bytes, .. } = shared.geometry;
        if at.0 >= sectors || shared.block_device {
            return Ok(Some(at).filter(|at| at.0 < sectors));
        }
        let (file, from) = (shared.file.clone(), at.byte_offset());
        let found = shared.reactor.blocking(move || rustix::fs::seek(&*file, SeekFrom::Data(from))).await;
        let data = match found {
            Ok(data) => data,
            // There is only a hole up to the end.
            Err(Errno::NXIO) => return Ok(None),
            // The host knows nothing of holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => from,
            Err(cause) => return Err(shared.io_error("search", at, shared.geometry.bytes() - from, cause)),
        };
        let block = u64::from(block_bytes);
        Ok(Some(at.max(Sector(data / block * block / SECTOR_BYTES))).filter(|data| data.0 < sectors))
    }

    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        let shared = &self.shared;
        let bytes = data.len() as u64;
        shared.geometry.check(at, bytes)?;
        if shared.read_only {
            return Err(DeviceError::ReadOnly);
        }
        if at.byte_offset() + bytes == shared.geometry.bytes() {
            // This write would give a truncated image its size again.
            shared.look_at_the_image();
        }
        shared.check_failed("write", at, bytes)?;
        add(&shared.counts.writes, 1);
        add(&shared.counts.write_bytes, bytes);
        let aligned = (data.as_ptr() as usize).is_multiple_of(shared.memory_align);
        let data = if aligned { data } else { Data::from_slice(&data) };
        if flags.fua {
            add(&shared.counts.durable_writes, 1);
            return shared.write_durably(at, data).await;
        }
        let written = shared.write_some_way(at, data).await;
        written.map_err(|cause| shared.write_error(at, bytes, cause))
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        if self.shared.read_only {
            return Ok(());
        }
        add(&self.shared.counts.flushes, 1);
        self.shared.synced().await
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        let shared = &self.shared;
        let bytes = sectors.saturating_mul(SECTOR_BYTES);
        shared.geometry.check(at, bytes)?;
        if shared.read_only {
            return Err(DeviceError::ReadOnly);
        }
        shared.check_failed("discard", at, bytes)?;
        if sectors == 0 || shared.discard == Discard::Ignored {
            return Ok(());
        }
        add(&shared.counts.discards, 1);
        if let Some(direct) = &shared.direct {
            direct.discarded(at.byte_offset(), bytes);
        }
        if !shared.block_device {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let punched = shared.reactor.fallocate(&shared.file, mode, at.byte_offset(), bytes).await;
            return punched.map_err(|cause| match cause {
                // A hole in the middle of an extent takes a block of the host's metadata.
                Errno::NOSPC | Errno::DQUOT => shared.no_space(at, bytes),
                cause => shared.io_error("discard", at, bytes, cause),
            });
        }
        let file = shared.file.clone();
        let discarded = shared.reactor.blocking(move || block_discard(&file, at.byte_offset(), bytes)).await;
        match discarded {
            // An operation that the drive does not support leaves the sectors as they are, which `Discard::Undefined`
            // allows, and so does one that the kernel refuses because pages of the range are in use.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::BUSY) => Ok(()),
            Err(cause) => Err(shared.io_error("discard", at, bytes, cause)),
        }
    }

    async fn provision(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        let shared = &self.shared;
        let bytes = sectors.saturating_mul(SECTOR_BYTES);
        shared.geometry.check(at, bytes)?;
        if shared.read_only {
            return Err(DeviceError::ReadOnly);
        }
        if sectors == 0 || shared.block_device {
            return Ok(());
        }
        let begin = at.byte_offset();
        if let Some(direct) = &shared.direct {
            if !direct.is_written(begin, bytes) {
                let file = direct.file.clone();
                let end = shared.reactor.blocking(move || written_end(&file, begin)).await;
                // What is behind the request may be given back in the meantime.
                direct.found_written(begin, end.min(begin.saturating_add(bytes)));
            }
            if direct.is_written(begin, bytes) {
                return Ok(());
            }
        }
        let mode = FallocateFlags::KEEP_SIZE;
        match shared.reactor.fallocate(&shared.file, mode, at.byte_offset(), bytes).await {
            // A host that cannot preallocate will report `NoSpace` at the write.
            Ok(()) | Err(Errno::OPNOTSUPP) => {
                shared.had_space();
                Ok(())
            }
            Err(Errno::NOSPC | Errno::DQUOT) => Err(shared.no_space(at, bytes)),
            Err(cause) => Err(shared.io_error("allocate", at, bytes, cause)),
        }
    }

    fn counters(&self) -> Vec<Counter> {
        let counts = &self.shared.counts;
        // When nothing had to be written since, no sync has looked.
        let is_removed = rustix::fs::fstat(&*self.shared.file).is_ok_and(|stat| self.shared.look_for_a_name(&stat));
        vec![
            ("reads", counts.reads.get()),
            ("read_bytes", counts.read_bytes.get()),
            ("writes", counts.writes.get()),
            ("write_bytes", counts.write_bytes.get()),
            ("durable_writes", counts.durable_writes.get()),
            ("flushes", counts.flushes.get()),
            ("syncs", counts.syncs.get()),
            ("discards", counts.discards.get()),
            ("direct_writes", counts.direct_writes.get()),
            (REMOVED, is_removed.into()),
        ]
    }

    fn describe(&self) -> String {
        format!("file:{} ({})", self.shared.path.display(), human_bytes(self.shared.geometry.bytes()))
    }
}

/// Discards a range of a block device (`BLKDISCARD`). It waits for the drive.
fn block_discard(file: &OwnedFd, offset: u64, bytes: u64) -> Result<(), Errno> {
    /// `_IO(0x12, 119)` of `linux/fs.h`.
    const BLKDISCARD: libc::Ioctl = 0x1277;
    let range = [offset, bytes];
    // SAFETY: the ioctl reads two 64-bit integers from its argument and writes nothing.
    let result: c_int = unsafe { libc::ioctl(file.as_raw_fd(), BLKDISCARD, range.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)) }
}
