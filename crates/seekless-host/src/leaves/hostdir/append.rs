//! Appending: what a program appends goes to the end of the file as the host has it, since other mounts, and programs in the directory
//! itself, may have appended since the kernel learned its size for this mount.

use std::io::IoSlice;

use rustix::io::{Errno, ReadWriteFlags};
use seekless::device::Data;
use seekless::fs::{FsError, FsResult};

use super::HostDir;
use super::data::{HERE_BYTES_MAX, OpenFile, io_error};
use super::host_latency::add_one;
use crate::reactor::File;
use crate::short_write;

/// Appends the beginning of `bytes`, and returns how much of it. `offset` is where the caller takes the end to be.
fn append(file: &File, bytes: &[u8], offset: u64) -> Result<usize, Errno> {
    loop {
        // The offset is not used, but -1 would be that of the open file.
        match rustix::io::pwritev2(&**file, &[IoSlice::new(bytes)], 0, ReadWriteFlags::APPEND) {
            Err(Errno::INTR) => {}
            // A sandbox without the call or the flag.
            Err(Errno::NOSYS | Errno::OPNOTSUPP) => return rustix::io::pwrite(&**file, bytes, offset),
            result => return result,
        }
    }
}

/// An append that was not made in whole.
struct Short {
    done: usize,
    /// Why the rest was not written.
    error: FsError,
}

impl HostDir {
    /// Appends `data`, in one call unless the host has no room for all of it. The caller takes `offset` to be the end.
    ///
    /// # Errors
    /// [`short_write`] where the host took only the beginning. Nothing is written of a part behind one that has failed.
    pub(super) async fn append_data(&self, opened: &OpenFile, offset: u64, data: Data) -> FsResult<()> {
        let appends = &opened.appends;
        let _turn = appends.take().await;
        if let Some(error) = appends.failed_before(offset, data.len()) {
            // A part behind a failed one is not at the end, unless others have appended just as much as is missing. A call that begins where the
            // file ends is another one: the kernel has learned a new size since.
            let end = rustix::fs::fstat(&*opened.file).map_err(io_error)?.st_size;
            if end.cast_unsigned() != offset {
                return Err(error);
            }
            appends.forget_failure();
        }
        let Err(Short { done, error }) = self.append_in_turn(opened, offset, &data).await else { return Ok(()) };
        appends.fail_before(offset + data.len() as u64, error.clone());
        Err(if done > 0 { short_write::error(done) } else { error })
    }

    async fn append_in_turn(&self, opened: &OpenFile, offset: u64, data: &Data) -> Result<(), Short> {
        let mut done = 0;
        let mut here = true;
        while done < data.len() {
            let (rest, at) = (data.slice(done..data.len()), offset + done as u64);
            let may_wait = rest.len() > HERE_BYTES_MAX || self.latency.writing.is_advised(&self.rt);
            let written = match may_wait {
                true => {
                    here = false;
                    let file = opened.file.clone();
                    self.reactor.blocking(move || append(&file, &rest, at)).await
                }
                false => self.latency.writing.watch(&self.rt, || append(&opened.file, &rest, at)),
            };
            match written {
                Ok(0) => return Err(Short { done, error: FsError::Host(Errno::IO.raw_os_error()) }), // No progress, and no error.
                Ok(more) => done += more,
                Err(errno) => return Err(Short { done, error: io_error(errno) }),
            }
        }
        add_one(if here { &self.latency.writes_here } else { &self.latency.writes_handed_over });
        Ok(())
    }
}
