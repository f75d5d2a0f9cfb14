//! A block device as a file system whose root is a file: the device's bytes.
//!
//! Mounted over a file it is a disk image for any program: a loop device with a file system of the kernel, a virtual
//! machine, a program that writes images. An `fsync` of the file flushes the device, and punching a hole is a discard,
//! so that a loop device passes on what a disk can do.
//!
//! Owner, permissions and times last only for this mount; the device has no place for them.

use std::cell::Cell;
use std::rc::Rc;

use async_trait::async_trait;
use seekless::device::{Counter, Data, Device, DeviceError};
use seekless::fs::{
    AllocateMode, Attr, DirSink, Entry, EntryName, FileKind, FileRange, FileSystem, Fs, FsError, FsResult, FsTraits,
    Handle, NewNode, NodeKind, OpenFlags, OpenProtocol, Opened, RenameMode, SeekTo, SetAttr, SetTime, StatFs,
    WriteMode, XattrMode, without_privileges,
};
use seekless::rt::Rt;
use seekless::units::{Ino, SECTOR_BYTES, WallTime};

use crate::bytewise::Bytewise;
use crate::short_write;

/// A device, as a file.
pub(crate) struct DiskFile {
    rt: Rt,
    bytes: Bytewise,
    read_only: bool,
    attr: Cell<Attr>,
}

impl DiskFile {
    /// The file belongs to `uid`, with no access for others.
    pub(crate) fn show(rt: &Rt, device: Device, read_only: bool, (uid, gid): (u32, u32)) -> Fs {
        let (geometry, now) = (device.geometry(), rt.wall());
        let attr = Attr {
            ino: Ino::ROOT,
            kind: FileKind::Regular,
            permissions: 0o600,
            links: 1,
            uid,
            gid,
            device: 0,
            size: geometry.bytes(),
            sectors: geometry.sectors,
            sectors_will_change: false,
            io_bytes: geometry.block_bytes,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        };
        Rc::new(DiskFile { rt: rt.clone(), bytes: Bytewise::new(device), read_only, attr: Cell::new(attr) })
    }

    fn check_writable(&self) -> FsResult<()> {
        if self.read_only { Err(FsError::ReadOnly) } else { Ok(()) }
    }

    /// Refuses a range that is not inside the device.
    fn check_inside(&self, range: FileRange) -> FsResult<()> {
        match range.offset.checked_add(range.bytes) {
            Some(end) if end <= self.bytes.size() => Ok(()),
            _ => Err(FsError::NoSpace),
        }
    }

    fn changed(&self, permissions: Option<u16>) {
        let (attr, now) = (self.attr.get(), self.rt.wall());
        self.attr.set(Attr { mtime: now, ctime: now, permissions: permissions.unwrap_or(attr.permissions), ..attr });
    }
}

/// `NoSpace` below is passed on to the caller; everything else is a device error.
fn explain(error: DeviceError) -> FsError {
    match error {
        DeviceError::NoSpace { .. } => FsError::NoSpace,
        DeviceError::ReadOnly => FsError::ReadOnly,
        other => FsError::Device(other),
    }
}

/// For operations on directories.
fn no_directory<T>() -> FsResult<T> {
    Err(FsError::NotDirectory)
}

#[async_trait(?Send)]
impl FileSystem for DiskFile {
    fn traits(&self) -> FsTraits {
        FsTraits {
            name: "disk",
            open_protocol: OpenProtocol::Handles,
            exclusive: true,
            name_bytes_max: 255,
            read_only: self.read_only,
            access_lists: false,
            outside_files: false,
            appends_at_end: false,
            open_files_max: None,
        }
    }

    async fn lookup(&self, _: Ino, _: &[u8]) -> FsResult<Entry> {
        no_directory()
    }

    async fn forget(&self, _: Ino, _: u64) {}

    async fn getattr(&self, _: Ino, _: Option<Handle>) -> FsResult<Attr> {
        Ok(self.attr.get())
    }

    async fn setattr(&self, _: Ino, _: Option<Handle>, changes: SetAttr) -> FsResult<Attr> {
        self.check_writable()?;
        if changes.size.is_some_and(|size| size != self.bytes.size()) {
            return Err(FsError::Invalid("a disk cannot be resized"));
        }
        let now = self.rt.wall();
        let time = |change: Option<SetTime>, old: WallTime| match change {
            None => old,
            Some(SetTime::Now) => now,
            Some(SetTime::At(time)) => time,
        };
        let old = self.attr.get();
        let permissions = changes.permissions.unwrap_or(old.permissions);
        self.attr.set(Attr {
            permissions: if changes.kill_privileges { without_privileges(permissions) } else { permissions },
            uid: changes.uid.unwrap_or(old.uid),
            gid: changes.gid.unwrap_or(old.gid),
            atime: time(changes.atime, old.atime),
            mtime: time(changes.mtime, old.mtime),
            ctime: changes.ctime.unwrap_or(now),
            ..old
        });
        Ok(self.attr.get())
    }

    async fn readlink(&self, _: Ino) -> FsResult<Vec<u8>> {
        Err(FsError::Invalid("this is a file"))
    }

    async fn create(&self, _: Ino, _: &[u8], _: NewNode, _: OpenFlags) -> FsResult<(Entry, Opened)> {
        no_directory()
    }

    async fn mknod(&self, _: Ino, _: &[u8], _: NodeKind, _: NewNode) -> FsResult<Entry> {
        no_directory()
    }

    async fn mkdir(&self, _: Ino, _: &[u8], _: NewNode) -> FsResult<Entry> {
        no_directory()
    }

    async fn symlink(&self, _: Ino, _: &[u8], _: &[u8], _: NewNode) -> FsResult<Entry> {
        no_directory()
    }

    async fn link(&self, _: Ino, _: Ino, _: &[u8]) -> FsResult<Entry> {
        no_directory()
    }

    async fn unlink(&self, _: Ino, _: &[u8]) -> FsResult<()> {
        no_directory()
    }

    async fn rmdir(&self, _: Ino, _: &[u8]) -> FsResult<()> {
        no_directory()
    }

    async fn rename(&self, _: EntryName<'_>, _: EntryName<'_>, _: RenameMode) -> FsResult<()> {
        no_directory()
    }

    async fn open(&self, _: Ino, flags: OpenFlags) -> FsResult<Opened> {
        if flags.write {
            self.check_writable()?;
        }
        Ok(Opened { handle: None, keep_cache: false })
    }

    async fn release(&self, _: Ino, _: Handle) -> FsResult<()> {
        Ok(())
    }

    async fn read(&self, _: Ino, _: Option<Handle>, offset: u64, bytes: u32) -> FsResult<Vec<Data>> {
        let left = self.bytes.size().saturating_sub(offset);
        let bytes = u32::try_from(left).unwrap_or(u32::MAX).min(bytes);
        match bytes {
            0 => Ok(Vec::new()),
            bytes => Ok(vec![self.bytes.read(offset, bytes).await.map_err(explain)?]),
        }
    }

    /// As on a block device, a write across the end is made up to there, so that filling the disk leaves no old data.
    ///
    /// # Errors
    /// [`short_write`] then; `NoSpace` at the end and behind it.
    async fn write(&self, _: Ino, _: Option<Handle>, offset: u64, data: Data, mode: WriteMode) -> FsResult<()> {
        self.check_writable()?;
        if data.is_empty() {
            return Ok(());
        }
        let wanted = data.len();
        let room = usize::try_from(self.bytes.size().saturating_sub(offset)).unwrap_or(usize::MAX);
        if room == 0 {
            return Err(FsError::NoSpace);
        }
        let inside = wanted.min(room);
        self.bytes.write(offset, data.slice(0..inside), false).await.map_err(explain)?;
        self.changed(mode.kill_privileges.then(|| without_privileges(self.attr.get().permissions)));
        if inside < wanted { Err(short_write::error(inside)) } else { Ok(()) }
    }

    async fn fallocate(&self, _: Ino, _: Option<Handle>, range: FileRange, mode: AllocateMode) -> FsResult<()> {
        self.check_writable()?;
        let FileRange { offset, bytes } = range;
        match mode {
            // A hole may reach beyond the end.
            AllocateMode::PunchHole => {
                let bytes = bytes.min(self.bytes.size().saturating_sub(offset));
                if bytes > 0 {
                    // A hole reads as zeroes, on any device.
                    self.bytes.zero(offset, bytes, true).await.map_err(explain)?;
                }
            }
            AllocateMode::Zero { .. } => {
                self.check_inside(range)?;
                self.bytes.zero(offset, bytes, false).await.map_err(explain)?;
            }
            AllocateMode::Allocate { .. } => {
                self.check_inside(range)?;
                return self.bytes.provision(offset, bytes).await.map_err(explain);
            }
        }
        self.changed(None);
        Ok(())
    }

    async fn lseek(&self, _: Ino, _: Option<Handle>, offset: u64, seek: SeekTo) -> FsResult<u64> {
        let size = self.bytes.size();
        match seek {
            _ if offset >= size => Err(FsError::NoSuchOffset),
            SeekTo::Data => Ok(offset),
            SeekTo::Hole => Ok(size),
        }
    }

    async fn readdir(&self, _: Ino, _: Option<Handle>, _: u64, _: bool, _: &mut dyn DirSink) -> FsResult<()> {
        no_directory()
    }

    async fn getxattr(&self, _: Ino, _: &[u8]) -> FsResult<Vec<u8>> {
        Err(FsError::NoAttribute)
    }

    async fn setxattr(&self, _: Ino, _: &[u8], _: &[u8], _: XattrMode) -> FsResult<()> {
        Err(FsError::Unsupported)
    }

    async fn listxattr(&self, _: Ino) -> FsResult<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    async fn removexattr(&self, _: Ino, _: &[u8]) -> FsResult<()> {
        Err(FsError::NoAttribute)
    }

    async fn fsync(&self, _: Ino, _: Option<Handle>, _: bool) -> FsResult<()> {
        self.syncfs().await
    }

    async fn fsyncdir(&self, _: Ino, _: Option<Handle>) -> FsResult<()> {
        no_directory()
    }

    async fn syncfs(&self) -> FsResult<()> {
        match self.read_only {
            true => Ok(()),
            false => self.bytes.flush().await.map_err(explain),
        }
    }

    async fn statfs(&self) -> FsResult<StatFs> {
        let geometry = self.bytes.device().geometry();
        Ok(StatFs {
            // A loop device takes this as its discard granularity.
            block_bytes: geometry.block_bytes,
            blocks: geometry.sectors / (u64::from(geometry.block_bytes) / SECTOR_BYTES),
            blocks_free: 0,
            blocks_available: 0,
            inodes: 1,
            inodes_free: 0,
            name_bytes_max: 255,
        })
    }

    async fn close(&self) -> FsResult<()> {
        self.syncfs().await?;
        match self.read_only {
            true => Ok(()),
            false => self.bytes.device().release().await.map_err(explain),
        }
    }

    fn counters(&self) -> Vec<Counter> {
        Vec::new()
    }

    fn describe(&self) -> String {
        "disk as a file".into()
    }
}

#[cfg(test)]
mod tests {
    use seekless::device::Memory;
    use seekless::rng::Rng;
    use seekless::rt::{Executor, HostProfile};

    use super::*;

    /// Any bytes can be written, read, punched and zeroed, and a write across the end is made up to there. Method: random
    /// changes on it and on plain bytes.
    #[test]
    fn it_is_like_plain_bytes() {
        const BYTES: usize = 1 << 18;
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let fs = DiskFile::show(&rt, Rc::new(Memory::new(BYTES as u64)), false, (1, 2));
            let mut plain = vec![0u8; BYTES];
            let mut rng = Rng::new(1);
            for turn in 0..2000 {
                let offset = rng.below(BYTES as u64);
                let bytes = rng.between(1, (BYTES as u64 - offset).min(9000));
                let range = FileRange { offset, bytes };
                let place = offset as usize..(offset + bytes) as usize;
                match rng.below(4) {
                    0 => {
                        fs.fallocate(Ino::ROOT, None, range, AllocateMode::PunchHole).await.unwrap();
                        plain[place].fill(0);
                    }
                    1 => {
                        let mode = AllocateMode::Zero { keep_size: true };
                        fs.fallocate(Ino::ROOT, None, range, mode).await.unwrap();
                        plain[place].fill(0);
                    }
                    _ => {
                        plain[place.clone()].fill(turn as u8);
                        let data = Data::from_slice(&plain[place]);
                        fs.write(Ino::ROOT, None, offset, data, WriteMode::default()).await.unwrap();
                    }
                }
                let from = rng.below(BYTES as u64);
                let read = fs.read(Ino::ROOT, None, from, 20_000).await.unwrap().remove(0);
                assert!(plain[from as usize..].starts_with(&read), "turn {turn}");
                assert_eq!(read.len(), (BYTES - from as usize).min(20_000));
            }
            let end = BYTES as u64;
            assert!(fs.read(Ino::ROOT, None, end, 1).await.unwrap().is_empty());
            for (offset, bytes, answer) in [
                (end - 1, 2, Err(short_write::error(1))),
                (end - 4096, 8192, Err(short_write::error(4096))),
                (end - 4096, 4096, Ok(())),
                (0, BYTES + 1, Err(short_write::error(BYTES))),
                (end, 1, Err(FsError::NoSpace)),
                (end, 0, Ok(())),
                (u64::MAX, 2, Err(FsError::NoSpace)),
            ] {
                let before = fs.read(Ino::ROOT, None, 0, u32::MAX).await.unwrap().remove(0).to_vec();
                let data = Data::from_slice(&vec![before[BYTES - 1].wrapping_add(1); bytes]);
                let written = fs.write(Ino::ROOT, None, offset, data.clone(), WriteMode::default()).await;
                assert_eq!(written, answer, "{bytes} bytes at {offset}");
                let inside = (end.saturating_sub(offset) as usize).min(bytes);
                let place = BYTES - end.saturating_sub(offset) as usize..;
                let mut expected = before;
                expected[place][..inside].copy_from_slice(&data[..inside]);
                let found = fs.read(Ino::ROOT, None, 0, u32::MAX).await.unwrap().remove(0).to_vec();
                assert!(found == expected, "{bytes} bytes at {offset}");
            }
            let smaller = SetAttr { size: Some(1), ..SetAttr::default() };
            assert!(matches!(fs.setattr(Ino::ROOT, None, smaller).await, Err(FsError::Invalid(_))));
            assert_eq!(fs.getattr(Ino::ROOT, None).await.unwrap().size, end);
        };
        executor.block_on(run).unwrap();
    }
}
