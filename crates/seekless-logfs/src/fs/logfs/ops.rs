//! The [`FileSystem`] interface: each operation is one step or a few.

use std::cell::Cell;
use std::ops::Range;

use async_trait::async_trait;
use futures_util::future::join_all;

use super::change::Change;
use super::demand::PENDING_MARGIN_BYTES;
use super::dir::Listed;
use super::file::{self, ReadBlock, ReadExtent, ReadPiece};
use super::format::*;
use super::namespace::{self, NewFile};
use super::read_ahead::ReadSpan;
use super::state::{Searched, State, Stop};
use super::tree::*;
use super::{LogBackend, LogFs, xattr};
use crate::device::{Buf, Counter, Data};
use crate::fs::*;
use crate::units::{Ino, Nanos, SECTOR_BYTES};

/// Cookies of `.` and `..`; the cookie of an entry is its hash plus 2.
const COOKIE_DOT: u64 = 1;
const COOKIE_DOT_DOT: u64 = 2;
const COOKIES_BEFORE: u64 = 3;

impl<L: LogBackend> LogFs<L> {
    /// Frees an inode that an operation has left without names and users.
    async fn reclaim_left(&self, left: Option<Ino>) -> FsResult<()> {
        match left {
            Some(ino) => self.free_left(ino).await,
            None => Ok(()),
        }
    }

    async fn make(&self, parent: Ino, name: &[u8], file: NewFile<'_>, new: NewNode) -> FsResult<Entry> {
        self.operate(|state| namespace::make(state, parent, name, &file, new)).await
    }

    /// Reads an extent, and its damaged blocks from the other readings of the device, if it has any.
    async fn read_extent(&self, extent: &ReadExtent) -> FsResult<Data> {
        let read = self.read_log(extent.at, extent.sectors).await;
        if self.device.readings() < 2 {
            return Ok(read?.freeze());
        }
        let mut read = match read {
            // Then each block by itself.
            Err(FsError::Device(error)) if error.is_of_medium() => {
                Buf::zeroed((extent.sectors * SECTOR_BYTES) as usize)
            }
            other => other?,
        };
        let (mut offset, mut at) = (0, extent.at);
        for block in &extent.blocks {
            let stored = &mut read[offset..offset + block.bytes()];
            if crate::codec::crc32c(stored) != block.crc {
                let right = self.read_log_right(at, block.sectors.into(), block.crc).await?;
                stored.copy_from_slice(&right);
            }
            offset += block.bytes();
            at = at + u64::from(block.sectors);
        }
        Ok(read.freeze())
    }

    /// Reads the extents of a plan, checks them, and keeps them in the cache if requested. Returns their blocks, or
    /// `None` when a block has moved in the meantime and the read must be planned again.
    async fn read_extents(&self, ino: Ino, extents: &[ReadExtent], keep: bool) -> FsResult<Option<Vec<Vec<Data>>>> {
        let reads = join_all(extents.iter().map(|extent| self.read_extent(extent))).await;
        let mut state = self.state.borrow_mut();
        let mut all = Vec::with_capacity(extents.len());
        for (extent, read) in extents.iter().zip(reads) {
            let bytes = read?;
            let mut blocks = Vec::with_capacity(extent.blocks.len());
            let (mut offset, mut at) = (0, extent.at);
            for block in &extent.blocks {
                let &ReadBlock { index, sectors, crc } = block;
                let stored = bytes.slice(offset..offset + block.bytes());
                let id = BlockId::data(ino, index);
                if crate::codec::crc32c(&stored) != crc {
                    let still = Pointer::Mapped { at, sectors, crc };
                    if !matches!(state.pointer(id), Ok(pointer) if pointer == still) {
                        return Ok(None);
                    }
                    let place = format_args!("{id:?}, sector {at}");
                    return Err(FsError::corrupt("file data", place, "its checksum does not match"));
                }
                let content = if stored.len() == BLOCK_BYTES && !keep {
                    stored
                } else {
                    let mut whole = Buf::dirty(BLOCK_BYTES);
                    whole[..stored.len()].copy_from_slice(&stored);
                    whole[stored.len()..].fill(0);
                    whole.freeze()
                };
                // A block that was overwritten during the read must not come back.
                let current =
                    matches!(state.pointer(id), Ok(pointer) if pointer == Pointer::Mapped { at, sectors, crc });
                if keep && current {
                    state.blocks.insert_clean(id, content.clone());
                }
                blocks.push(content);
                offset += block.bytes();
                at = at + u64::from(sectors);
            }
            all.push(blocks);
        }
        Ok(Some(all))
    }
}

impl<L: LogBackend> LogFs<L> {
    /// Notes a read, and begins to read ahead where that is due.
    fn read_ahead(&self, read: ReadSpan) {
        let due = {
            let mut state = self.state.borrow_mut();
            let cache_blocks = state.volume.cache_bytes / BLOCK_BYTES as u64;
            state.read_ahead.note(read, cache_blocks)
        };
        let Some(blocks) = due else { return };
        let fs = self.this();
        self.rt.spawn(async move {
            // The caller that needs a block which could not be read reads it again, and gets the error.
            let _ = fs.read_blocks_ahead(read.ino, blocks).await;
            fs.state.borrow_mut().read_ahead.ended(read.ino);
            fs.read_ahead_ended.notify();
        });
    }

    async fn read_blocks_ahead(&self, ino: Ino, blocks: Range<u64>) -> FsResult<()> {
        let extents = self.run(|state| file::plan_ahead(state, ino, blocks.clone())).await?;
        self.read_extents(ino, &extents, true).await.map(drop)
    }

    /// Waits until what is being read ahead of this file has arrived, or could not be read.
    async fn wait_for_blocks(&self, ino: Ino) {
        if self.state.borrow().read_ahead.is_reading(ino) {
            self.read_ahead_ended.wait().await;
        }
    }

    /// Waits until nothing is being read ahead.
    async fn wait_for_read_ahead(&self) {
        let is_idle = || {
            let state = self.state.borrow();
            state.read_ahead.is_idle() && state.metadata_ahead.is_idle()
        };
        while !is_idle() {
            self.read_ahead_ended.wait().await;
        }
    }
}

/// Blocks that a new file may take besides its data and its indirect blocks: its inode, a block and an indirect block
/// of the inode map, and as many for its name, whose directory may have to split.
const NEW_FILE_BLOCKS: u64 = 8;

#[async_trait(?Send)]
impl<L: LogBackend> FileSystem for LogFs<L> {
    fn traits(&self) -> FsTraits {
        FsTraits {
            name: L::NAME,
            open_protocol: OpenProtocol::ZeroMessage,
            exclusive: true,
            name_bytes_max: NAME_BYTES_MAX as u32,
            read_only: self.state.borrow().read_only,
            access_lists: true,
            outside_files: false,
            appends_at_end: false,
            open_files_max: None,
        }
    }

    async fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        self.operate(|state| namespace::lookup(state, parent, name)).await
    }

    async fn forget(&self, ino: Ino, lookups: u64) {
        let unused = {
            let mut state = self.state.borrow_mut();
            match state.users.get_mut(&ino) {
                Some(users) if *users > lookups => {
                    *users -= lookups;
                    false
                }
                Some(_) => {
                    state.users.remove(&ino);
                    state.linkable.remove(&ino);
                    !state.read_only && L::is_orphan(&state, ino)
                }
                None => false,
            }
        };
        if unused && self.state.borrow().stopped.is_none() {
            // An error stops the volume, or leaves an orphan for the next mount; no caller waits for the result.
            let _ = self.free_left(ino).await;
        }
    }

    async fn getattr(&self, ino: Ino, _handle: Option<Handle>) -> FsResult<Attr> {
        self.operate(|state| state.attr(ino)).await
    }

    async fn setattr(&self, ino: Ino, _handle: Option<Handle>, changes: SetAttr) -> FsResult<Attr> {
        let changed = self.operate(|state| file::setattr(state, ino, &changes)).await?;
        if !changed.must_reclaim {
            return Ok(changed.attr);
        }
        self.free_left(ino).await?;
        self.operate(|state| state.attr(ino)).await
    }

    async fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.operate(|state| namespace::readlink(state, ino)).await
    }

    async fn create(&self, parent: Ino, name: &[u8], new: NewNode, _flags: OpenFlags) -> FsResult<(Entry, Opened)> {
        let entry = self.make(parent, name, NewFile::Node(NodeKind::Regular), new).await?;
        Ok((entry, Opened { handle: None, keep_cache: true }))
    }

    async fn tmpfile(&self, parent: Ino, new: NewNode, _: OpenFlags, linkable: bool) -> FsResult<(Entry, Opened)> {
        let entry = self.operate(|state| namespace::make_unnamed(state, parent, new, linkable)).await?;
        Ok((entry, Opened { handle: None, keep_cache: true }))
    }

    async fn mknod(&self, parent: Ino, name: &[u8], kind: NodeKind, new: NewNode) -> FsResult<Entry> {
        self.make(parent, name, NewFile::Node(kind), new).await
    }

    async fn mkdir(&self, parent: Ino, name: &[u8], new: NewNode) -> FsResult<Entry> {
        self.make(parent, name, NewFile::Directory, new).await
    }

    async fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], new: NewNode) -> FsResult<Entry> {
        self.make(parent, name, NewFile::Symlink(target), new).await
    }

    async fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        self.operate(|state| namespace::link(state, ino, parent, name)).await
    }

    async fn unlink(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        let left = self.operate(|state| namespace::unlink(state, parent, name)).await?;
        self.reclaim_left(left).await
    }

    async fn rmdir(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        let left = self.operate(|state| namespace::rmdir(state, parent, name)).await?;
        self.reclaim_left(left).await
    }

    async fn rename(&self, from: EntryName<'_>, to: EntryName<'_>, mode: RenameMode) -> FsResult<()> {
        let left = self.operate(|state| namespace::rename(state, from, to, mode)).await?;
        self.reclaim_left(left).await
    }

    async fn open(&self, ino: Ino, flags: OpenFlags) -> FsResult<Opened> {
        if flags.truncate {
            self.setattr(ino, None, SetAttr { size: Some(0), ..SetAttr::default() }).await?;
        } else {
            self.operate(|state| state.inode(ino).map(drop)).await?;
        }
        Ok(Opened { handle: None, keep_cache: true })
    }

    async fn release(&self, _ino: Ino, _handle: Handle) -> FsResult<()> {
        Ok(())
    }

    async fn read(&self, ino: Ino, _handle: Option<Handle>, offset: u64, bytes: u32) -> FsResult<Vec<Data>> {
        let keep = self.state.borrow().volume.cache_data;
        let mut ahead = keep;
        loop {
            let plan = self.operate(|state| file::plan_read(state, ino, offset, bytes.into(), ahead)).await?;
            if plan.waits {
                self.wait_for_blocks(ino).await;
                continue;
            }
            if ahead && let Some(span) = plan.span {
                self.read_ahead(span);
            }
            let read = self.read_extents(ino, &plan.extents, keep).await;
            // What is planned again is the same read, which has been noted.
            let had_ahead = std::mem::replace(&mut ahead, false);
            let blocks = match read {
                Ok(Some(blocks)) => blocks,
                Ok(None) => continue,
                // It may be damage behind what the caller has asked for.
                Err(_) if had_ahead && plan.span.is_some_and(ReadSpan::has_ahead) => continue,
                Err(error) => return Err(error),
            };
            let pieces = plan.pieces.into_iter().map(|piece| match piece {
                ReadPiece::Ready(data) => data,
                ReadPiece::FromExtent { extent, block, from, to } => blocks[extent][block].slice(from..to),
            });
            // What was read at once is passed on as one piece: the kernel works on each.
            let mut joined: Vec<Data> = Vec::new();
            for piece in pieces {
                match joined.last_mut() {
                    Some(last) if let Some(both) = last.joined(&piece) => *last = both,
                    _ => joined.push(piece),
                }
            }
            return Ok(joined);
        }
    }

    async fn write(&self, ino: Ino, _: Option<Handle>, offset: u64, data: Data, mode: WriteMode) -> FsResult<()> {
        self.operate(|state| file::write(state, ino, offset, &data, mode)).await
    }

    async fn fallocate(&self, ino: Ino, _: Option<Handle>, range: FileRange, mode: AllocateMode) -> FsResult<()> {
        let end = range.offset.checked_add(range.bytes).ok_or(FsError::FileTooLarge)?;
        let mut from = range.offset;
        loop {
            let rest = FileRange { offset: from, bytes: end - from };
            from = self.operate(|state| file::fallocate_step(state, ino, rest, mode)).await?;
            if from >= end {
                return Ok(());
            }
        }
    }

    async fn lseek(&self, ino: Ino, _: Option<Handle>, offset: u64, seek: SeekTo) -> FsResult<u64> {
        let mut from = offset;
        loop {
            match self.operate(|state| file::seek_step(state, ino, from, seek)).await? {
                Searched::Found(found) => return Ok(found),
                Searched::Until(further) => from = further,
            }
        }
    }

    async fn readdir(
        &self,
        ino: Ino,
        _handle: Option<Handle>,
        cookie: u64,
        attributes: bool,
        sink: &mut dyn DirSink,
    ) -> FsResult<()> {
        let directory = self.operate(|state| Change::new(state).directory(ino)).await?;
        let dots = [(COOKIE_DOT, &b"."[..], ino), (COOKIE_DOT_DOT, &b".."[..], Ino(directory.parent))];
        for (own, name, ino) in dots {
            let entry = DirEntry { ino, kind: FileKind::Directory, name, cookie: own, entry: None };
            if cookie < own && !sink.add(&entry) {
                return Ok(());
            }
        }
        let mut from = (cookie + 1).saturating_sub(COOKIES_BEFORE);
        if attributes && cookie == 0 {
            self.listing_begins(ino);
        }
        loop {
            let listed = self.operate(|state| Change::new(state).list(ino, from)).await?;
            if attributes {
                self.load_inodes(listed.entries().map(|found| found.ino)).await;
                let directories = listed.entries().filter(|found| found.kind == FileKind::Directory);
                self.listing_has(directories.map(|found| found.ino).collect());
            }
            if !self.list_entries(&listed, attributes, sink).await? {
                return Ok(());
            }
            match listed.next {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }

    async fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.operate(|state| xattr::get(state, ino, name)).await
    }

    async fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        self.operate(|state| xattr::set(state, ino, name, value, mode)).await
    }

    async fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        self.operate(|state| xattr::list(state, ino)).await
    }

    async fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        self.operate(|state| xattr::remove(state, ino, name)).await
    }

    async fn fsync(&self, ino: Ino, _handle: Option<Handle>, _data_only: bool) -> FsResult<()> {
        self.sync_for_user(Some(ino)).await
    }

    async fn fsyncdir(&self, ino: Ino, _handle: Option<Handle>) -> FsResult<()> {
        self.sync_for_user(Some(ino)).await
    }

    async fn syncfs(&self) -> FsResult<()> {
        self.sync_for_user(None).await
    }

    async fn statfs(&self) -> FsResult<StatFs> {
        let state = self.state.borrow();
        let block = BLOCK_BYTES as u64;
        let capacity = state.volume.capacity_bytes;
        let used = state.used_after_frees().min(capacity);
        let free = (capacity - used) / block;
        // What the next ordinary change would find: no space, while the storage below is full.
        let room = match state.stalled.is_empty() {
            true => (capacity - used).saturating_sub(PENDING_MARGIN_BYTES),
            false => 0,
        };
        let room_blocks = (room / block).saturating_sub(NEW_FILE_BLOCKS);
        let inodes = state.volume.ino_end - FIRST_FREE_INO;
        Ok(StatFs {
            block_bytes: BLOCK_BYTES as u32,
            blocks: capacity / block,
            blocks_free: free,
            // What one new file can use as data: its indirect blocks come out of the same space.
            blocks_available: room_blocks - indirect_blocks(room_blocks).min(room_blocks),
            inodes,
            // The count of a damaged volume, mounted to be read, may be anything.
            inodes_free: inodes.saturating_sub(state.inode_count),
            name_bytes_max: NAME_BYTES_MAX as u32,
        })
    }

    async fn idle(&self, until: Nanos) -> FsResult<bool> {
        if self.state.borrow().read_only || self.closed.get() {
            return Ok(false);
        }
        L::idle(&self.this(), until).await
    }

    async fn drop_caches(&self) -> FsResult<()> {
        self.sync_for_user(None).await?;
        self.wait_for_read_ahead().await;
        self.state.borrow_mut().drop_caches();
        Ok(())
    }

    async fn check(&self) -> FsResult<Vec<String>> {
        L::check(&self.this()).await
    }

    async fn close(&self) -> FsResult<()> {
        self.wait_for_read_ahead().await;
        L::close(&self.this()).await
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.borrow().clone()
    }

    fn counters(&self) -> Vec<Counter> {
        L::counters(&self.state.borrow())
    }

    fn log_usage(&self) -> Option<LogUsage> {
        L::log_usage(&self.state.borrow())
    }

    fn describe(&self) -> String {
        L::describe(&self.state.borrow())
    }
}

impl<L: LogBackend> LogFs<L> {
    /// Passes entries to `sink`. Returns false when the sink is full.
    async fn list_entries(&self, listed: &Listed, attributes: bool, sink: &mut dyn DirSink) -> FsResult<bool> {
        self.count_operation();
        let done = Cell::new(0);
        // The entry whose inode could not be read: its name is listed without attributes, and a lookup of it reports why.
        let bare = Cell::new(None);
        // A lookup is a change. So a step that has passed something on ends before it needs something for the next entry, and
        // another one goes on from there (S1).
        let mut step = |state: &mut State<L>| {
            let first = done.get();
            for (number, found) in listed.entries().enumerate().skip(first) {
                let has_attributes = attributes && bare.get() != Some(number);
                let entry = match has_attributes.then(|| state.entry(found.ino)) {
                    None => None,
                    Some(Ok(entry)) => Some(entry),
                    // Removed since the leaf was read.
                    Some(Err(Stop::Fail(FsError::Stale))) => {
                        done.set(number + 1);
                        continue;
                    }
                    Some(Err(Stop::Fail(error))) if error.is_of_one_place() => None,
                    Some(Err(Stop::Need(_))) if number > first => return Ok(None),
                    Some(Err(stop)) => return Err(stop),
                };
                let (ino, kind, name, cookie) = (found.ino, found.kind, found.name, found.hash + COOKIES_BEFORE);
                if !sink.add(&DirEntry { ino, kind, name, cookie, entry }) {
                    return Ok(Some(false));
                }
                done.set(number + 1);
                if entry.is_some() {
                    state.count_lookup(ino);
                }
            }
            Ok(Some(true))
        };
        let has_room = loop {
            match self.run(&mut step).await {
                Ok(Some(has_room)) => break has_room,
                Ok(None) => {}
                Err(error) if attributes && error.is_of_one_place() && bare.get() != Some(done.get()) => {
                    bare.set(Some(done.get()));
                }
                Err(error) => return Err(error),
            }
        };
        self.write_back_if_due()?;
        Ok(has_room)
    }
}
