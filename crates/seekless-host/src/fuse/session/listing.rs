//! READDIR and READDIRPLUS.

use seekless::fs::{DirEntry, DirSink, FsResult, Handle};
use seekless::units::Ino;

use super::Session;
use crate::fuse::kernel_sizes::KernelSizes;
use crate::fuse::negotiate::TRANSFER_BYTES_MAX;
use crate::fuse::reply::{DirectoryReply, Reply};

/// Notes the sizes that a listing tells.
struct Telling<'a> {
    reply: DirectoryReply,
    sizes: Option<&'a KernelSizes>,
}

impl DirSink for Telling<'_> {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        let counted = self.reply.undo.lookups.len();
        let taken = self.reply.add(entry);
        let is_counted = self.reply.undo.lookups.len() > counted;
        if let (Some(sizes), Some(told), true) = (self.sizes, &entry.entry, is_counted) {
            sizes.entry(told.attr.ino, told.attr.size);
        }
        taken
    }
}

impl Session {
    /// Entries of a directory from `cookie` on, as many as fit.
    pub(super) async fn list(
        &self,
        ino: Ino,
        handle: Option<Handle>,
        cookie: u64,
        bytes: u32,
        attributes: bool,
    ) -> FsResult<Reply> {
        let bytes = bytes.min(TRANSFER_BYTES_MAX) as usize;
        let reply = DirectoryReply::new(bytes, self.negotiated.times, attributes);
        let mut sink = Telling { reply, sizes: self.sizes.as_ref() };
        let listed = self.fs.readdir(ino, handle, cookie, attributes, &mut sink).await;
        if let Err(error) = listed {
            // Entries taken before the error will not be delivered.
            self.undo(std::mem::take(&mut sink.reply.undo)).await;
            return Err(error);
        }
        Ok(sink.reply.into_reply())
    }
}
