//! A session: the agreed features, and the operation of the file system for each request.

mod attributes;

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use seekless::fs::{
    Entry, EntryName, FileKind, Fs, FsError, FsResult, FsTraits, Handle, NewNode, OpenFlags, OpenProtocol, Opened,
    SetAttr, without_privileges,
};
use seekless::rt::Event;
use seekless::units::{Ino, Nanos};

use super::abi::{self, InitFlags};
use super::backlog::{Backlog, InHand};
use super::errno::is_worth_logging;
use super::negotiate::{Negotiated, TRANSFER_BYTES_MAX};
use super::operations::Operations;
use super::passthrough::{self, Opener, Passthrough, Privileges, Refused};
use super::past_cache::{Durable, PastCache};
use super::reply::{Body, DirectoryReply, Reply, Undo, clamp_pieces, statfs};
use super::request::{Operation, Request, encode_handle};
use crate::short_write;

/// The attribute with the capabilities of a program.
const CAPABILITIES: &[u8] = b"security.capability";

/// Which changes are durable before they are answered: `dirsync` and `sync` of mount(8). The kernel follows buffered
/// writes of a `sync` mount with an FSYNC, and leaves the rest to the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct AtOnce {
    /// Changes of directories.
    pub(super) names: bool,
    /// Those, and changes of files and their attributes.
    pub(super) everything: bool,
}

impl AtOnce {
    /// The inodes changed by `operation` on `ino` that must become durable.
    fn changed(self, ino: Ino, operation: &Operation<'_>) -> Vec<Ino> {
        let names = self.names || self.everything;
        match operation {
            Operation::Symlink { .. }
            | Operation::Mknod { .. }
            | Operation::Mkdir { .. }
            | Operation::Unlink { .. }
            | Operation::Rmdir { .. }
            | Operation::Create { .. }
                if names =>
            {
                vec![ino]
            }
            Operation::Rename { to_parent, .. } if names && *to_parent == ino => vec![ino],
            // The new name first: a cut may leave both names, never neither.
            Operation::Rename { to_parent, .. } if names => vec![*to_parent, ino],
            Operation::Link { ino: target, .. } if self.everything => vec![*target, ino],
            Operation::Link { .. } if names => vec![ino],
            Operation::Setattr { .. }
            | Operation::Write { .. }
            | Operation::Fallocate { .. }
            | Operation::Setxattr { .. }
            | Operation::Removexattr { .. }
                if self.everything =>
            {
                vec![ino]
            }
            _ => Vec::new(),
        }
    }
}

/// Activity of a session, for tasks that wait for it to be idle.
#[derive(Default)]
pub(super) struct Activity {
    /// Requests so far.
    pub(super) requests: Cell<u64>,
    /// Requests that have ended and may have changed something.
    pub(super) changes: Cell<u64>,
    running: Cell<usize>,
    /// A task waits for `began`.
    pub(super) watched: Cell<bool>,
    pub(super) began: Event,
    ended: Event,
}

impl Activity {
    /// Returns when at most `others` requests are under way.
    pub(super) async fn settled(&self, others: usize) {
        loop {
            let ended = self.ended.wait();
            if self.running.get() <= others {
                return;
            }
            ended.await;
        }
    }
}

/// A request counts as under way as long as this lives.
pub(super) struct Running {
    session: Rc<Session>,
    request: InHand,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.session.backlog.end(&self.request);
        let activity = &self.session.activity;
        activity.running.set(activity.running.get() - 1);
        // At one, only DESTROY may be left, which waits for the others.
        if activity.running.get() <= 1 {
            activity.ended.notify();
        }
    }
}

/// One mount's connection with the kernel.
pub(super) struct Session {
    fs: Fs,
    traits: FsTraits,
    negotiated: Negotiated,
    daemon: String,
    pub(super) activity: Activity,
    pub(super) backlog: Backlog,
    /// Result of closing the file system, once DESTROY has done it.
    closed: RefCell<Option<FsResult<()>>>,
    /// Closing has begun, which can take long.
    closes: Cell<bool>,
    durable_at_once: AtOnce,
    /// The last error reported, so that a broken disk does not fill the log.
    reported: RefCell<Option<FsError>>,
    /// What the stack has counted, as text.
    statistics: OnceCell<Box<dyn Fn() -> String>>,
    pub(super) operations: Rc<Operations>,
    /// Where the kernel may read and write files itself.
    passthrough: Option<Passthrough>,
    past_cache: PastCache,
}

impl Session {
    pub(super) fn new(fs: Fs, negotiated: Negotiated, daemon: String) -> Session {
        Session {
            traits: fs.traits(),
            fs,
            negotiated,
            daemon,
            durable_at_once: AtOnce::default(),
            activity: Activity::default(),
            backlog: Backlog::default(),
            closed: RefCell::default(),
            closes: Cell::new(false),
            reported: RefCell::default(),
            statistics: OnceCell::new(),
            operations: Rc::default(),
            passthrough: None,
            past_cache: PastCache::default(),
        }
    }

    /// Answers [`ARRIVED_ATTRIBUTE`] by `backlog`.
    pub(super) fn with_backlog(self, backlog: Backlog) -> Session {
        Session { backlog, ..self }
    }

    /// Has the kernel read and write files itself.
    pub(super) fn with_passthrough(self, passthrough: Option<Passthrough>) -> Session {
        Session { passthrough, ..self }
    }

    /// Answers what the stack has counted by calling `statistics`; the first caller wins.
    pub(super) fn tell_statistics(&self, statistics: Box<dyn Fn() -> String>) {
        let _ = self.statistics.set(statistics);
    }

    /// Makes changes durable before they are answered. A change that has taken place is answered with an error when it cannot be made
    /// durable, as on a full host. The kernel then keeps what it knew before, such as a name that is gone: files that programs wrote by
    /// that name would have none. So it asks each time, and keeps no listing.
    pub(super) fn durable_at_once(self, at_once: AtOnce) -> Session {
        let mut negotiated = self.negotiated;
        if at_once.names || at_once.everything {
            negotiated.times.names = Nanos::ZERO;
        }
        if at_once.everything {
            negotiated.times.attributes = Nanos::ZERO;
        }
        Session { durable_at_once: at_once, negotiated, ..self }
    }

    /// Whether a file is open for writing that the kernel writes itself.
    pub(super) fn has_writers_past_us(&self) -> bool {
        self.passthrough.as_ref().is_some_and(Passthrough::has_writers)
    }

    pub(super) fn fs(&self) -> &Fs {
        &self.fs
    }

    /// What was agreed in INIT.
    pub(super) fn negotiated_flags(&self) -> InitFlags {
        self.negotiated.flags
    }

    /// Counts an arrived request.
    pub(super) fn begin(self: &Rc<Self>, opcode: u32, body: &[u8]) -> Running {
        let activity = &self.activity;
        activity.requests.set(activity.requests.get() + 1);
        activity.running.set(activity.running.get() + 1);
        if activity.watched.get() {
            activity.began.notify();
        }
        Running { session: self.clone(), request: self.backlog.begin(opcode, body) }
    }

    /// Closes the file system, unless DESTROY has already done so.
    pub(super) async fn close(&self) -> FsResult<()> {
        if let Some(result) = self.closed.borrow().clone() {
            return result;
        }
        self.closes.set(true);
        let result = self.fs.close().await;
        *self.closed.borrow_mut() = Some(result.clone());
        result
    }

    /// Whether DESTROY has come, and has been worked on.
    fn is_closed(&self) -> bool {
        self.closed.borrow().is_some()
    }

    /// Whether the file system is being closed, or has been: nothing more is to be done for it.
    pub(super) fn closes(&self) -> bool {
        self.closes.get()
    }

    /// Executes a request. `None` for requests without a reply.
    pub(super) async fn handle(&self, request: Request<'_>) -> Option<Reply> {
        let (opcode, began) = (request.opcode, Instant::now());
        let is_change = changes_something(&request.operation);
        let reply = self.work_on(request).await;
        let failed = reply.as_ref().is_some_and(|reply| reply.body.is_err());
        self.operations.add(opcode, began.elapsed(), failed);
        if is_change {
            // Counted at its end: a sync that began earlier need not include it.
            self.activity.changes.set(self.activity.changes.get() + 1);
        }
        reply
    }

    async fn work_on(&self, request: Request<'_>) -> Option<Reply> {
        let Request { opcode, ino, uid, pid, .. } = request;
        match request.operation {
            Operation::Forget { lookups } => {
                self.forget(ino, lookups).await;
                None
            }
            Operation::BatchForget(forgets) => {
                for (ino, lookups) in forgets {
                    self.forget(ino, lookups).await;
                }
                None
            }
            Operation::Interrupt => None,
            operation => {
                let changed = self.durable_at_once.changed(ino, &operation);
                let written = if let Operation::Write { handle, .. } = &operation { *handle } else { None };
                let answered = match self.answer((ino, uid, pid), operation).await {
                    Ok(reply) if reply.body.is_ok() => self.make_durable(&changed, reply).await,
                    other => other,
                };
                Some(answered.unwrap_or_else(|error| {
                    self.past_cache.failed(written);
                    self.report(opcode, ino, &error);
                    Reply::from(error)
                }))
            }
        }
    }

    /// Makes the changes of an operation durable, and passes on its reply.
    async fn make_durable(&self, changed: &[Ino], reply: Reply) -> FsResult<Reply> {
        for &ino in changed {
            if let Err(error) = self.sync_inode(ino).await {
                self.undo(reply.undo).await;
                return Err(error);
            }
        }
        Ok(reply)
    }

    async fn sync_inode(&self, ino: Ino) -> FsResult<()> {
        match self.fs.getattr(ino, None).await?.kind {
            FileKind::Directory => self.fs.fsyncdir(ino, None).await,
            FileKind::Regular => self.fs.fsync(ino, None, false).await,
            _ => self.fs.syncfs().await,
        }
    }

    async fn forget(&self, ino: Ino, lookups: u64) {
        // The root is never counted. The kernel sends the last forgets together with DESTROY, and some arrive after it:
        // closing has already ended all uses.
        if ino != Ino::ROOT && lookups > 0 && !self.is_closed() {
            self.fs.forget(ino, lookups).await;
        }
    }

    /// U3.
    pub(super) async fn undo(&self, undo: Undo) {
        if let Some((ino, handle)) = undo.opened {
            // The error cannot be reported any more.
            let _ = self.release(ino, handle).await;
        }
        for ino in undo.lookups {
            self.forget(ino, 1).await;
        }
    }

    fn report(&self, opcode: u32, ino: Ino, error: &FsError) {
        if is_worth_logging(error) && self.reported.borrow().as_ref() != Some(error) {
            log::error!("{} of {ino:?}: {error}", abi::opcode_name(opcode));
            *self.reported.borrow_mut() = Some(error.clone());
        }
    }

    async fn answer(&self, (ino, uid, pid): (Ino, u32, u32), operation: Operation<'_>) -> FsResult<Reply> {
        let (fs, times) = (&self.fs, &self.negotiated.times);
        Ok(match operation {
            Operation::Lookup { name } => match fs.lookup(ino, name).await {
                Ok(entry) => self.entry(entry),
                // Only where no other path can create the name.
                Err(FsError::NotFound) if self.traits.exclusive => Reply::of(&times.no_entry()),
                Err(error) => return Err(error),
            },
            Operation::Getattr { handle } => Reply::of(&times.attr(&fs.getattr(ino, handle).await?)),
            Operation::Statx { handle } => Reply::of(&times.statx(&fs.getattr(ino, handle).await?)),
            Operation::Setattr { handle, changes } if !self.may_set(ino, handle, &changes).await? => {
                Reply::error(passthrough::REFUSAL)
            }
            Operation::Setattr { handle, changes } => {
                self.keep_what_others_appended((ino, pid), handle, &changes).await?;
                Reply::of(&times.attr(&fs.setattr(ino, handle, changes).await?))
            }
            Operation::Readlink => Reply::bytes(fs.readlink(ino).await?),
            Operation::Symlink { name, target, new } => self.entry(fs.symlink(ino, name, target, new).await?),
            Operation::Mknod { name, kind, new } => self.entry(fs.mknod(ino, name, kind, new).await?),
            Operation::Mkdir { name, new } => self.entry(fs.mkdir(ino, name, new).await?),
            Operation::Unlink { name } => done(fs.unlink(ino, name).await?),
            Operation::Rmdir { name } => done(fs.rmdir(ino, name).await?),
            Operation::Rename { name, to_parent, to_name, mode } => {
                let (from, to) = (EntryName { parent: ino, name }, EntryName { parent: to_parent, name: to_name });
                done(fs.rename(from, to, mode).await?)
            }
            Operation::Link { ino: target, name } => self.entry(fs.link(target, ino, name).await?),
            Operation::Open { flags } => {
                let opener = Opener { uid, writes: flags.write };
                let cache = self.negotiated.cache_flags(flags);
                self.open(ino, flags, self.negotiated.zero_message_open, cache, Some(opener)).await?
            }
            Operation::Opendir => {
                let keeps_listing = self.traits.exclusive && self.durable_at_once == AtOnce::default();
                let cache = if keeps_listing { abi::FOPEN_CACHE_DIR } else { 0 };
                self.open(ino, OpenFlags::READ, self.negotiated.zero_message_opendir, cache, None).await?
            }
            Operation::Create { name, new, flags, exclusive } => self.create(ino, name, new, flags, exclusive).await?,
            Operation::Tmpfile { new, flags, linkable } => {
                let opener = Opener { uid, writes: flags.write };
                let made = fs.tmpfile(ino, new, self.flags_for_cache(flags), linkable).await?;
                self.made(made, opener, flags).await?
            }
            Operation::Release { handle: Some(handle) } => done(self.release(ino, handle).await?),
            Operation::Releasedir { handle: Some(handle) } => done(fs.release(ino, handle).await?),
            Operation::Release { handle: None } | Operation::Releasedir { handle: None } => Reply::empty(),
            Operation::Read { handle, offset, bytes } => {
                // The kernel asks for no more than agreed; the reply must fit its pages.
                let pieces = fs.read(ino, handle, offset, bytes.min(TRANSFER_BYTES_MAX)).await?;
                Reply::data(clamp_pieces(pieces, bytes as usize))
            }
            Operation::Write { handle, offset, data, mode, durable } => {
                let size = data.len() as u32;
                let size = match fs.write(ino, handle, offset, data, mode).await {
                    Ok(()) => size,
                    Err(error) => {
                        let appended = short_write::bytes(&error).ok_or(error)?;
                        // For the kernel, an asynchronous call has failed then.
                        self.past_cache.failed(handle);
                        appended
                    }
                };
                self.sync_written(ino, handle, durable).await?;
                Reply::of(&abi::WriteOut { size, padding: 0 })
            }
            Operation::Fallocate { handle, range, mode, kill_privileges } => {
                if kill_privileges {
                    self.kill_privileges(ino, handle).await?;
                }
                done(fs.fallocate(ino, handle, range, mode).await?)
            }
            Operation::Lseek { handle, offset, seek } => {
                Reply::of(&abi::LseekOut { offset: fs.lseek(ino, handle, offset, seek).await? })
            }
            Operation::Fsync { handle, data_only } => done(fs.fsync(ino, handle, data_only).await?),
            Operation::Fsyncdir { handle } => done(fs.fsyncdir(ino, handle).await?),
            Operation::Syncfs => done(fs.syncfs().await?),
            Operation::Statfs => Reply::of(&statfs(&fs.statfs().await?)),
            Operation::Setxattr { name, value, mode, kill_set_group_id } => {
                self.set_attribute(ino, name, value, mode, kill_set_group_id).await?
            }
            Operation::Getxattr { name, bytes } => attributes::reply(self.attribute(ino, uid, name).await?, bytes),
            Operation::Listxattr { bytes } => attributes::reply(self.attribute_names(ino, uid).await?, bytes),
            Operation::Removexattr { name } => {
                self.check_access_list(name)?;
                done(fs.removexattr(ino, name).await?)
            }
            Operation::Readdir { handle, cookie, bytes, attributes } => {
                self.list(ino, handle, cookie, bytes, attributes).await?
            }
            Operation::Destroy => {
                self.activity.settled(1).await;
                done(self.close().await?)
            }
            Operation::Ioctl => Reply::error(libc::ENOTTY),
            Operation::NotOffered => Reply::error(libc::ENOSYS),
            // A second INIT, or an operation handled in `handle`.
            Operation::Init(_) | Operation::Forget { .. } | Operation::BatchForget(_) | Operation::Interrupt => {
                Reply::error(libc::EIO)
            }
        })
    }

    /// Refuses what may be the kernel's own cut after a write that has failed (`past_cache`), where it would take away data.
    async fn keep_what_others_appended(
        &self,
        (ino, pid): (Ino, u32),
        handle: Option<Handle>,
        changes: &SetAttr,
    ) -> FsResult<()> {
        let Some(size) = changes.size.filter(|_| !self.traits.exclusive) else { return Ok(()) };
        if self.past_cache.may_be_cut(handle, pid) && self.fs.getattr(ino, handle).await?.size > size {
            return Err(FsError::Host(libc::EINTR));
        }
        Ok(())
    }

    /// Makes a write durable before it is answered, where the kernel sends no FSYNC after it.
    async fn sync_written(&self, ino: Ino, handle: Option<Handle>, durable: Durable) -> FsResult<()> {
        let data_only = match durable {
            Durable::Later => return Ok(()),
            Durable::Data => true,
            Durable::Everything => false,
        };
        let is_left_to_us = self.negotiated.direct || self.past_cache.has(handle);
        // With `-o sync`, `make_durable` does.
        if !is_left_to_us || self.durable_at_once.everything {
            return Ok(());
        }
        self.fs.fsync(ino, handle, data_only).await
    }

    /// Entries of a directory from `cookie` on, as many as fit.
    async fn list(
        &self,
        ino: Ino,
        handle: Option<Handle>,
        cookie: u64,
        bytes: u32,
        attributes: bool,
    ) -> FsResult<Reply> {
        let bytes = bytes.min(TRANSFER_BYTES_MAX) as usize;
        let mut sink = DirectoryReply::new(bytes, self.negotiated.times, attributes);
        let listed = self.fs.readdir(ino, handle, cookie, attributes, &mut sink).await;
        if let Err(error) = listed {
            // Entries taken before the error will not be delivered.
            self.undo(std::mem::take(&mut sink.undo)).await;
            return Err(error);
        }
        Ok(sink.into_reply())
    }

    fn entry(&self, entry: Entry) -> Reply {
        let undo = Undo { lookups: vec![entry.attr.ino], opened: None };
        Reply { undo, ..Reply::of(&self.negotiated.times.entry(&entry)) }
    }

    /// Clears the privileges of a file that an allocation changes; a write carries its own flag.
    async fn kill_privileges(&self, ino: Ino, handle: Option<Handle>) -> FsResult<()> {
        let before = self.fs.getattr(ino, handle).await?.permissions;
        let after = without_privileges(before);
        if after != before {
            let changes = SetAttr { permissions: Some(after), ..SetAttr::default() };
            self.fs.setattr(ino, handle, changes).await?;
        }
        Ok(())
    }

    /// `opener` is that of a file, and not of a directory.
    async fn open(
        &self,
        ino: Ino,
        flags: OpenFlags,
        zero_message: bool,
        more: u32,
        opener: Option<Opener>,
    ) -> FsResult<Reply> {
        if zero_message {
            // The kernel never asks again: this answer means that no message is needed.
            return Ok(Reply::error(libc::ENOSYS));
        }
        let opened = match self.traits.open_protocol {
            // A kernel without zero-message opens, or a mount without: still nothing to do.
            OpenProtocol::ZeroMessage => Opened { handle: None, keep_cache: true },
            OpenProtocol::Handles => self.open_for_cache(ino, flags).await?,
        };
        let out = open_out(opened, more);
        let passed = match (opener, opened.handle) {
            (Some(opener), Some(handle)) => self.pass(ino, handle, opener, out).await,
            _ => Ok(Passed::Open(out)),
        };
        let out = match passed {
            Ok(Passed::Open(out)) => out,
            refused => return self.give_back(ino, opened, refused).await,
        };
        self.past_cache.open(opened.handle, flags, &out);
        let undo = Undo { lookups: Vec::new(), opened: opened.handle.map(|handle| (ino, handle)) };
        Ok(Reply { undo, ..Reply::of(&out) })
    }

    /// How a file is opened: with a write-back cache the kernel reads the rest of a page that a program changes in part, through
    /// whichever handle there is, and places what is appended itself.
    fn flags_for_cache(&self, flags: OpenFlags) -> OpenFlags {
        match flags.write && self.negotiated.flags.contains(InitFlags::WRITEBACK_CACHE) {
            true => OpenFlags { read: true, append: false, ..flags },
            false => flags,
        }
    }

    async fn open_for_cache(&self, ino: Ino, flags: OpenFlags) -> FsResult<Opened> {
        let wanted = self.flags_for_cache(flags);
        match self.fs.open(ino, wanted).await {
            // A file that this user may write but not read. Whole pages can be written.
            Err(FsError::Host(libc::EACCES)) if wanted != flags => {
                self.fs.open(ino, OpenFlags { append: false, ..flags }).await
            }
            opened => opened,
        }
    }

    /// CREATE is answered even where opens need no message: it also opens the file, and the kernel then sends no
    /// RELEASE. With ENOSYS the kernel would send MKNOD instead, which is also one message (25.4 against 26.2 us of
    /// processor for a create) and could not be exclusive.
    async fn create(
        &self,
        parent: Ino,
        name: &[u8],
        new: NewNode,
        flags: OpenFlags,
        exclusive: bool,
    ) -> FsResult<Reply> {
        let made = match self.fs.create(parent, name, new, self.flags_for_cache(flags)).await {
            // Another process has made it since the kernel looked. The kernel does not check the permissions of a file that a CREATE
            // has opened; after this answer it looks once more, and opens what it finds as any other file.
            Err(FsError::Exists) if !exclusive => return Err(FsError::Stale),
            made => made?,
        };
        let opener = Opener { uid: new.uid, writes: flags.write };
        self.made(made, opener, flags).await
    }

    /// The reply of an operation that created and opened a file.
    async fn made(&self, (entry, opened): (Entry, Opened), opener: Opener, flags: OpenFlags) -> FsResult<Reply> {
        let ino = entry.attr.ino;
        let out = open_out(opened, self.negotiated.cache_flags(flags));
        let passed = match opened.handle {
            Some(handle) => self.pass(ino, handle, opener, out).await,
            None => Ok(Passed::Open(out)),
        };
        let out = match passed {
            Ok(Passed::Open(out)) => out,
            refused => {
                let refused = self.give_back(ino, opened, refused).await;
                self.forget(ino, 1).await;
                return refused;
            }
        };
        self.past_cache.open(opened.handle, flags, &out);
        let mut bytes = zerocopy::IntoBytes::as_bytes(&self.negotiated.times.entry(&entry)).to_vec();
        bytes.extend_from_slice(zerocopy::IntoBytes::as_bytes(&out));
        let undo = Undo { lookups: vec![ino], opened: opened.handle.map(|handle| (ino, handle)) };
        Ok(Reply { body: Ok(Body::Bytes(bytes)), undo })
    }

    /// Counts an open of a file, and has the kernel read and write the file itself where it can.
    async fn pass(&self, ino: Ino, handle: Handle, opener: Opener, out: abi::OpenOut) -> FsResult<Passed> {
        let Some(passthrough) = &self.passthrough else { return Ok(Passed::Open(out)) };
        let privileges = self.privileges(ino, Some(handle)).await?;
        let file = self.fs.outside_file(ino, handle);
        Ok(match passthrough.open(ino, opener, privileges, file) {
            // The kernel's cache has nothing of such a file to keep, and with `FOPEN_DIRECT_IO` data would come through us.
            Ok(Some(backing_id)) => {
                let cache = abi::FOPEN_KEEP_CACHE | abi::FOPEN_DIRECT_IO;
                let open_flags = out.open_flags & !cache | abi::FOPEN_PASSTHROUGH;
                Passed::Open(abi::OpenOut { open_flags, backing_id, ..out })
            }
            Ok(None) => Passed::Open(out),
            Err(Refused) => Passed::Refused,
        })
    }

    /// Closes a file that may not be opened, and answers the first error.
    async fn give_back(&self, ino: Ino, opened: Opened, refused: FsResult<Passed>) -> FsResult<Reply> {
        let released = match opened.handle {
            Some(handle) => self.fs.release(ino, handle).await,
            None => Ok(()),
        };
        refused.and(released).map(|()| Reply::error(passthrough::REFUSAL))
    }

    async fn release(&self, ino: Ino, handle: Handle) -> FsResult<()> {
        if let Some(passthrough) = &self.passthrough {
            passthrough.release(ino);
        }
        self.past_cache.release(handle);
        self.fs.release(ino, handle).await
    }

    async fn privileges(&self, ino: Ino, handle: Option<Handle>) -> FsResult<Privileges> {
        let attr = self.fs.getattr(ino, handle).await?;
        let capabilities = self.fs.getxattr(ino, CAPABILITIES).await.is_ok();
        Ok(Privileges { owner: attr.uid, permissions: attr.permissions, capabilities })
    }

    /// Whether a file that the kernel writes itself may have the privileges that it gets now.
    async fn may_have(
        &self,
        ino: Ino,
        handle: Option<Handle>,
        change: impl FnOnce(Privileges) -> Privileges,
    ) -> FsResult<bool> {
        let Some(passthrough) = &self.passthrough else { return Ok(true) };
        Ok(passthrough.may_get(ino, change(self.privileges(ino, handle).await?)))
    }

    async fn may_set(&self, ino: Ino, handle: Option<Handle>, changes: &SetAttr) -> FsResult<bool> {
        if self.passthrough.is_none() || changes.permissions.is_none() && changes.uid.is_none() {
            return Ok(true);
        }
        let change = |had: Privileges| Privileges {
            owner: changes.uid.unwrap_or(had.owner),
            permissions: changes.permissions.unwrap_or(had.permissions),
            ..had
        };
        self.may_have(ino, handle, change).await
    }
}

/// Whether a file may be opened now, by the rules of [`passthrough`].
enum Passed {
    Open(abi::OpenOut),
    Refused,
}

fn done((): ()) -> Reply {
    Reply::empty()
}

fn open_out(opened: Opened, more: u32) -> abi::OpenOut {
    let keep = if opened.keep_cache { abi::FOPEN_KEEP_CACHE | more } else { more & abi::FOPEN_DIRECT_IO };
    // `close` needs no message, and requests on one file may overlap.
    let open_flags = keep | abi::FOPEN_NOFLUSH | abi::FOPEN_PARALLEL_DIRECT_WRITES;
    abi::OpenOut { fh: encode_handle(opened.handle), open_flags, backing_id: 0 }
}

fn changes_something(operation: &Operation<'_>) -> bool {
    match operation {
        Operation::Setattr { .. }
        | Operation::Symlink { .. }
        | Operation::Mknod { .. }
        | Operation::Mkdir { .. }
        | Operation::Unlink { .. }
        | Operation::Rmdir { .. }
        | Operation::Rename { .. }
        | Operation::Link { .. }
        | Operation::Create { .. }
        | Operation::Tmpfile { .. }
        | Operation::Write { .. }
        | Operation::Fallocate { .. }
        | Operation::Setxattr { .. }
        | Operation::Removexattr { .. } => true,
        // The last user of an unlinked file removes it; opening may truncate.
        Operation::Forget { .. } | Operation::BatchForget(_) | Operation::Release { .. } | Operation::Open { .. } => {
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    mod past_cache;
    mod refused;

    use seekless::device::Data;
    use seekless::fs::{FileSystem, XattrMode};
    use seekless::rng::Rng;
    use seekless::rt::{Executor, HostProfile};
    use seekless::testing::{MemFs, MemFsOptions};
    use zerocopy::IntoBytes;

    use super::*;
    use crate::fuse::negotiate::{RequestedFeatures, negotiate};
    use crate::fuse::request::Init;

    fn session(executor: &Executor, open_protocol: OpenProtocol) -> (Rc<MemFs>, Rc<Session>) {
        let fs = MemFs::with_options(executor.rt(), MemFsOptions { open_protocol, ..MemFsOptions::default() });
        let init = Init { major: 7, minor: 45, max_readahead: 0, flags: InitFlags::all() };
        let (negotiated, _) = negotiate(&init, &fs.traits_now(), &RequestedFeatures::PLAIN).unwrap();
        (fs.clone(), Rc::new(Session::new(fs, negotiated, "me".into())))
    }

    trait TraitsNow {
        fn traits_now(&self) -> FsTraits;
    }
    impl TraitsNow for MemFs {
        fn traits_now(&self) -> FsTraits {
            FileSystem::traits(self)
        }
    }

    fn ask(executor: &Executor, session: &Session, operation: Operation<'_>) -> Option<Reply> {
        let request = Request { opcode: 0, unique: 1, ino: Ino::ROOT, uid: 0, pid: 0, operation };
        executor.block_on(session.handle(request)).unwrap()
    }

    const NEW: NewNode = NewNode { permissions: 0o644, umask: 0, uid: 0, gid: 0 };

    /// U3: the references of an undelivered reply are given back, so that no inode stays in use.
    #[test]
    fn undelivered_replies_are_undone() {
        for protocol in [OpenProtocol::ZeroMessage, OpenProtocol::Handles] {
            let executor = Executor::simulated(1, HostProfile::NONE);
            let (fs, session) = session(&executor, protocol);
            let flags = OpenFlags::READ_WRITE;
            let create = Operation::Create { name: b"file", new: NEW, flags, exclusive: true };
            let created = ask(&executor, &session, create).unwrap();
            let found = ask(&executor, &session, Operation::Lookup { name: b"file" }).unwrap();
            ask(&executor, &session, Operation::Unlink { name: b"file" }).unwrap();
            executor.block_on(session.undo(created.undo)).unwrap();
            let ino = found.undo.lookups[0];
            assert!(fs.node(ino).is_some(), "one lookup is left");
            executor.block_on(session.undo(found.undo)).unwrap();
            assert!(fs.node(ino).is_none(), "it is no longer used");
        }
    }

    /// Names of `trusted.` attributes are for root, as on other file systems; and the size of the list is that of what is in it.
    #[test]
    fn trusted_names_are_listed_to_root() {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let (fs, session) = session(&executor, OpenProtocol::Handles);
        for name in [&b"trusted.a"[..], b"user.b"] {
            executor.block_on(fs.setxattr(Ino::ROOT, name, b"value", XattrMode::Set)).unwrap().unwrap();
        }
        let list = |uid, bytes| {
            let request = Request {
                opcode: 0,
                unique: 1,
                ino: Ino::ROOT,
                uid,
                pid: 0,
                operation: Operation::Listxattr { bytes },
            };
            let reply = executor.block_on(session.handle(request)).unwrap().unwrap();
            match reply.body.unwrap() {
                Body::Bytes(bytes) => bytes,
                Body::Data(_) => unreachable!("a list is no file"),
            }
        };
        assert_eq!(list(0, 100), b"trusted.a\0user.b\0");
        assert_eq!(list(1000, 100), b"user.b\0");
        assert_eq!(list(1000, 0), abi::GetxattrOut { size: 7, padding: 0 }.as_bytes());
    }

    /// A CREATE never opens a file that another process made first, whose permissions nothing has checked: the kernel has to look
    /// once more.
    #[test]
    fn create_opens_nothing_that_has_appeared() {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let (fs, session) = session(&executor, OpenProtocol::Handles);
        let flags = OpenFlags { truncate: true, ..OpenFlags::READ_WRITE };
        let create = |exclusive| Operation::Create { name: b"file", new: NEW, flags, exclusive };
        let first = ask(&executor, &session, create(true)).unwrap();
        let (ino, handle) = first.undo.opened.unwrap();
        executor
            .block_on(fs.write(ino, Some(handle), 0, Data::from_slice(b"content"), seekless::fs::WriteMode::default()))
            .unwrap()
            .unwrap();
        for (exclusive, error) in [(false, libc::ESTALE), (true, libc::EEXIST)] {
            let reply = ask(&executor, &session, create(exclusive)).unwrap();
            assert_eq!(reply.body.unwrap_err(), error);
            assert!(reply.undo.lookups.is_empty() && reply.undo.opened.is_none());
        }
        assert_eq!(executor.block_on(fs.getattr(ino, None)).unwrap().unwrap().size, 7);
    }

    /// Where a change may be answered with an error although it has taken place, the kernel keeps no name.
    #[test]
    fn names_are_not_kept_where_changes_are_durable_at_once() {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let (_, session) = session(&executor, OpenProtocol::ZeroMessage);
        let Ok(session) = Rc::try_unwrap(session) else { unreachable!("it has one owner") };
        assert_eq!(session.negotiated.times, super::super::reply::CacheTimes::EXCLUSIVE);
        let session = session.durable_at_once(AtOnce { names: true, everything: false });
        assert_eq!(session.negotiated.times.names, Nanos::ZERO);
        assert_ne!(session.negotiated.times.attributes, Nanos::ZERO);
        let session = session.durable_at_once(AtOnce { names: true, everything: true });
        assert_eq!(session.negotiated.times.attributes, Nanos::ZERO);
    }

    /// No request makes the session panic, and every reply fits. Method: random bytes as requests, on the model.
    #[test]
    fn any_request_is_answered() {
        let executor = Executor::simulated(1, HostProfile::NONE);
        for seed in 0..4 {
            let (_, session) =
                session(&executor, if seed % 2 == 0 { OpenProtocol::ZeroMessage } else { OpenProtocol::Handles });
            let mut rng = Rng::new(seed);
            let mut answered = 0;
            for _ in 0..50_000 {
                let mut body = vec![0; rng.below(120) as usize];
                rng.fill(&mut body);
                // Mostly small numbers, and names of one letter.
                body.iter_mut().for_each(|byte| *byte = if *byte > 60 { 0 } else { b'a' + *byte % 3 });
                if rng.chance(1, 2) {
                    body.iter_mut().take(48).for_each(|byte| *byte %= 2);
                }
                let opcode = loop {
                    let opcode = rng.below(54) as u32;
                    if opcode != abi::DESTROY {
                        break opcode;
                    }
                };
                let header = abi::InHeader { opcode, nodeid: rng.between(1, 20), ..abi::InHeader::default() };
                let Ok(request) = Request::decode(&header, &body, None, session.negotiated_flags()) else { continue };
                let reply = executor.block_on(session.handle(request)).unwrap();
                if let Some(Ok(body)) = reply.map(|reply| reply.body) {
                    answered += 1;
                    assert!(body.len() <= TRANSFER_BYTES_MAX as usize);
                }
            }
            assert!(answered > 1000, "only {answered} requests made sense");
        }
    }
}
