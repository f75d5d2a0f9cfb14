//! WRITE and SETATTR: what the kernel leaves to the server where a write does not go through its cache.

use seekless::device::Data;
use seekless::fs::{Attr, FsResult, Handle, SetAttr, WriteMode};
use seekless::units::Ino;

use super::Session;
use crate::fuse::abi;
use crate::fuse::kernel_sizes::{is_in_ftruncate, only_size};
use crate::fuse::past_cache::Durable;
use crate::fuse::reply::Reply;
use crate::short_append;

/// A WRITE.
pub(super) struct Write {
    pub(super) handle: Option<Handle>,
    pub(super) offset: u64,
    pub(super) data: Data,
    pub(super) mode: WriteMode,
    pub(super) durable: Durable,
}

impl Session {
    pub(super) async fn write(&self, ino: Ino, write: Write) -> FsResult<Reply> {
        let Write { handle, offset, data, mode, durable } = write;
        let bytes = data.len() as u32;
        if let Some(sizes) = self.sizes.as_ref().filter(|_| mode.append) {
            sizes.append(ino, offset, u64::from(bytes));
        }
        let written = match self.fs.write(ino, handle, offset, data, mode).await {
            Ok(()) => Ok(bytes),
            Err(error) => short_append::bytes(&error).ok_or(error),
        };
        if let Some(sizes) = &self.sizes {
            if let Ok(size) = written {
                sizes.grow(ino, offset + u64::from(size));
            }
            // One that is short may be a part of a call that fails.
            if mode.append && written != Ok(bytes) {
                sizes.append_failed(ino);
            }
        }
        let size = written?;
        self.sync_written(ino, handle, durable).await?;
        Ok(Reply::of(&abi::WriteOut { size, padding: 0 }))
    }

    /// Makes a write durable before it is answered, where the kernel sends no FSYNC after it.
    async fn sync_written(&self, ino: Ino, handle: Option<Handle>, durable: Durable) -> FsResult<()> {
        let is_left_to_us = self.negotiated.direct || self.past_cache.has(handle);
        match durable {
            // `make_durable` does.
            _ if self.durable_at_once.everything => Ok(()),
            Durable::Data if is_left_to_us => self.fs.fsync(ino, handle, true).await,
            Durable::Everything if is_left_to_us => self.fs.fsync(ino, handle, false).await,
            _ => Ok(()),
        }
    }

    /// Changes attributes for `pid`, and answers with those of afterwards.
    pub(super) async fn set_attributes(
        &self,
        ino: Ino,
        handle: Option<Handle>,
        changes: SetAttr,
        pid: u32,
    ) -> FsResult<Attr> {
        let Some(sizes) = &self.sizes else { return self.fs.setattr(ino, handle, changes).await };
        if self.is_after_failed_write(ino, handle, &changes, pid) {
            let attr = self.fs.getattr(ino, handle).await?;
            sizes.set(ino, attr.size);
            return Ok(attr);
        }
        let attr = self.fs.setattr(ino, handle, changes).await?;
        match changes.size {
            Some(_) => sizes.set(ino, attr.size),
            None => sizes.tell(ino, attr.size),
        }
        Ok(attr)
    }

    /// Whether the kernel may cut the file back to what it knows: see [`kernel_sizes`](super::super::kernel_sizes).
    fn is_after_failed_write(&self, ino: Ino, handle: Option<Handle>, changes: &SetAttr, pid: u32) -> bool {
        /// Protocol of Linux 6.6. Before 5.11, looking at a thread could wait for an `execve` of its program, which waits for us.
        const MINOR_TO_LOOK: u32 = 39;
        let Some(sizes) = &self.sizes else { return false };
        match only_size(changes) {
            Some(size) if self.past_cache.may_be_cut(handle) && sizes.may_be(ino, size) => {
                self.negotiated.minor < MINOR_TO_LOOK || !is_in_ftruncate(pid, size)
            }
            _ => false,
        }
    }
}
