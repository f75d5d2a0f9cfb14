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
use crate::short_append;

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

impl HostDir {
    /// Appends `data`, in one call unless the host has no room for all of it. The caller takes `offset` to be the end.
    ///
    /// # Errors
    /// With [`short_append`] if the host takes the beginning only.
    pub(super) async fn append_data(&self, opened: &OpenFile, offset: u64, data: Data) -> FsResult<()> {
        let _turn = opened.appends.take().await;
        // A part of a long append has failed, and this is the next one, which must not take its place.
        if opened.appends.is_broken_before(offset, data.len()) {
            return Err(FsError::Host(Errno::IO.raw_os_error()));
        }
        let appended = self.append_in_turn(opened, offset, &data).await;
        if appended.is_err() {
            opened.appends.break_before(offset + data.len() as u64);
        }
        appended
    }

    async fn append_in_turn(&self, opened: &OpenFile, offset: u64, data: &Data) -> FsResult<()> {
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
                // No progress, and no error.
                Ok(0) if done == 0 => return Err(FsError::Host(Errno::IO.raw_os_error())),
                Err(errno) if done == 0 => return Err(io_error(errno)),
                Ok(0) | Err(_) => return Err(short_append::error(done)),
                Ok(more) => done += more,
            }
        }
        add_one(if here { &self.latency.writes_here } else { &self.latency.writes_handed_over });
        Ok(())
    }
}
