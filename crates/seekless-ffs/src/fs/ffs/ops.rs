//! The [`FileSystem`] interface: each operation under its locks.

use async_trait::async_trait;

use super::format::*;
use super::namespace::NewFile;
use super::state::*;
use super::{Ffs, Metadata};
use crate::device::{Counter, Data};
use crate::fs::*;
use crate::units::{Ino, human_bytes};

fn known(ino: Ino) -> FsResult<InodeNo> {
    inner(ino).ok_or(FsError::Stale)
}

impl Ffs {
    /// Side effects of a change of data on the inode.
    async fn touch(&self, ino: InodeNo, kill_privileges: bool) -> FsResult<()> {
        self.step(|state| {
            let now = state.now;
            let inode = state.inode_mut(ino)?;
            inode.set_mtime(now);
            inode.set_ctime(now);
            if kill_privileges {
                inode.mode = mode_with(inode.mode, without_privileges(inode.mode));
            }
            Ok(())
        })
        .await
    }

    async fn set_attributes(&self, ino: InodeNo, changes: SetAttr) -> FsResult<Attr> {
        let _inode = self.locks.alone(ino).await;
        let before = self.step(|state| {
            state.check_writable()?;
            match changes.size {
                Some(size) if size > state.layout.file_bytes_max => {
                    state.regular(ino)?;
                    fail(FsError::FileTooLarge)
                }
                Some(_) => state.regular(ino),
                None => Ok(state.inode(ino)?.inode),
            }
        });
        let before = before.await?;
        if let Some(size) = changes.size {
            if size < before.size {
                self.truncate(ino, size).await?;
            } else if size > before.size {
                self.extend(ino, size).await?;
            }
            self.touch(ino, false).await?;
        }
        // The check gives a contested tail to the inode that changed last: that time does not go back or ahead.
        let ordered = self.options.metadata == Metadata::Sync;
        self.step(|state| {
            let now = state.now;
            let time = |set: SetTime| match set {
                SetTime::Now => now,
                SetTime::At(time) => time,
            };
            let inode = state.inode_mut(ino)?;
            if changes.kill_privileges {
                inode.mode = mode_with(inode.mode, without_privileges(inode.mode));
            }
            if let Some(permissions) = changes.permissions {
                inode.mode = mode_with(inode.mode, permissions);
            }
            inode.uid = changes.uid.unwrap_or(inode.uid);
            inode.gid = changes.gid.unwrap_or(inode.gid);
            inode.old_ids = [inode.uid as u16, inode.gid as u16];
            if let Some(atime) = changes.atime {
                inode.set_atime(time(atime));
            }
            if let Some(mtime) = changes.mtime {
                inode.set_mtime(time(mtime));
            }
            let ctime = changes.ctime.unwrap_or(now);
            inode.set_ctime(match ordered {
                true => ctime.clamp(inode.ctime(), now.max(inode.ctime())),
                false => ctime,
            });
            state.attr(ino)
        })
        .await
    }
}

#[async_trait(?Send)]
impl FileSystem for Ffs {
    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.warnings.clone();
        let damage = self.state.borrow().counters.damage();
        if damage > 0 {
            warnings.push(format!("{damage} counts of the volume are inconsistent: the next mount checks it"));
        }
        warnings
    }

    fn traits(&self) -> FsTraits {
        FsTraits {
            name: "ffs",
            open_protocol: OpenProtocol::ZeroMessage,
            exclusive: true,
            name_bytes_max: NAME_BYTES_MAX as u32,
            read_only: self.state.borrow().read_only,
            access_lists: false,
            outside_files: false,
            open_files_max: None,
        }
    }

    async fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        self.look_up(known(parent)?, name).await
    }

    async fn forget(&self, ino: Ino, lookups: u64) {
        if let Some(ino) = inner(ino) {
            self.forget_lookups(ino, lookups).await;
        }
    }

    async fn getattr(&self, ino: Ino, _handle: Option<Handle>) -> FsResult<Attr> {
        let ino = known(ino)?;
        let _inode = self.locks.share(ino).await;
        self.step(|state| state.attr(ino)).await
    }

    async fn setattr(&self, ino: Ino, _handle: Option<Handle>, changes: SetAttr) -> FsResult<Attr> {
        let attr = self.set_attributes(known(ino)?, changes).await?;
        self.relieve().await;
        Ok(attr)
    }

    async fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.read_target(known(ino)?).await
    }

    async fn create(&self, parent: Ino, name: &[u8], new: NewNode, _flags: OpenFlags) -> FsResult<(Entry, Opened)> {
        let entry = self.make(known(parent)?, name, NewFile::Node(NodeKind::Regular), new).await?;
        self.relieve().await;
        Ok((entry, Opened { handle: None, keep_cache: true }))
    }

    async fn tmpfile(&self, parent: Ino, new: NewNode, _: OpenFlags, linkable: bool) -> FsResult<(Entry, Opened)> {
        let entry = self.make_unnamed(known(parent)?, new, linkable).await?;
        self.relieve().await;
        Ok((entry, Opened { handle: None, keep_cache: true }))
    }

    async fn mknod(&self, parent: Ino, name: &[u8], kind: NodeKind, new: NewNode) -> FsResult<Entry> {
        let entry = self.make(known(parent)?, name, NewFile::Node(kind), new).await?;
        self.relieve().await;
        Ok(entry)
    }

    async fn mkdir(&self, parent: Ino, name: &[u8], new: NewNode) -> FsResult<Entry> {
        let entry = self.make(known(parent)?, name, NewFile::Directory, new).await?;
        self.relieve().await;
        Ok(entry)
    }

    async fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], new: NewNode) -> FsResult<Entry> {
        let entry = self.make(known(parent)?, name, NewFile::Symlink(target), new).await?;
        self.relieve().await;
        Ok(entry)
    }

    async fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        let entry = self.link_inode(known(ino)?, known(parent)?, name).await?;
        self.relieve().await;
        Ok(entry)
    }

    async fn unlink(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.unlink_name(known(parent)?, name).await?;
        self.relieve().await;
        Ok(())
    }

    async fn rmdir(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.remove_directory(known(parent)?, name).await?;
        self.relieve().await;
        Ok(())
    }

    async fn rename(&self, from: EntryName<'_>, to: EntryName<'_>, mode: RenameMode) -> FsResult<()> {
        self.move_name(from, to, mode).await?;
        self.relieve().await;
        Ok(())
    }

    async fn open(&self, ino: Ino, flags: OpenFlags) -> FsResult<Opened> {
        if flags.truncate {
            self.setattr(ino, None, SetAttr { size: Some(0), ..SetAttr::default() }).await?;
        } else {
            let ino = known(ino)?;
            self.step(|state| state.inode(ino).map(drop)).await?;
        }
        Ok(Opened { handle: None, keep_cache: true })
    }

    async fn release(&self, _ino: Ino, _handle: Handle) -> FsResult<()> {
        Ok(())
    }

    async fn read(&self, ino: Ino, _handle: Option<Handle>, offset: u64, bytes: u32) -> FsResult<Vec<Data>> {
        let ino = known(ino)?;
        let _inode = self.locks.share(ino).await;
        self.read_data(ino, offset, bytes.into()).await
    }

    async fn write(&self, ino: Ino, _: Option<Handle>, offset: u64, data: Data, mode: WriteMode) -> FsResult<()> {
        let ino = known(ino)?;
        {
            let _inode = self.locks.alone(ino).await;
            let end = offset.checked_add(data.len() as u64).ok_or(FsError::FileTooLarge)?;
            self.step(|state| {
                state.check_writable()?;
                state.regular(ino)?;
                if end > state.layout.file_bytes_max { fail(FsError::FileTooLarge) } else { Ok(()) }
            })
            .await?;
            if data.is_empty() {
                return Ok(());
            }
            self.write_data(ino, offset, &data).await?;
            self.touch(ino, mode.kill_privileges).await?;
        }
        self.throttle().await?;
        self.relieve().await; // What a file loses is recorded until it is free.
        Ok(())
    }

    async fn fallocate(&self, ino: Ino, _: Option<Handle>, range: FileRange, mode: AllocateMode) -> FsResult<()> {
        let ino = known(ino)?;
        {
            let _inode = self.locks.alone(ino).await;
            let end = range.offset.checked_add(range.bytes).ok_or(FsError::FileTooLarge)?;
            self.step(|state| {
                state.check_writable()?;
                state.regular(ino)?;
                if range.bytes == 0 {
                    return fail(FsError::Invalid("a range of no bytes"));
                }
                if end > state.layout.file_bytes_max { fail(FsError::FileTooLarge) } else { Ok(()) }
            })
            .await?;
            self.allocate(ino, range, mode).await?;
            self.touch(ino, false).await?;
        }
        self.throttle().await?;
        self.relieve().await; // What a file loses is recorded until it is free.
        Ok(())
    }

    async fn lseek(&self, ino: Ino, _: Option<Handle>, offset: u64, seek: SeekTo) -> FsResult<u64> {
        let ino = known(ino)?;
        let _inode = self.locks.share(ino).await;
        self.seek(ino, offset, seek).await
    }

    async fn readdir(
        &self,
        ino: Ino,
        _handle: Option<Handle>,
        cookie: u64,
        attributes: bool,
        sink: &mut dyn DirSink,
    ) -> FsResult<()> {
        let dir = known(ino)?;
        let _dir = self.locks.share(dir).await;
        // The cookie of an entry is one more than its offset (D3).
        let mut from = cookie;
        loop {
            let listed = |attributes: bool| {
                self.step(move |state| {
                    let Some((name, found)) = state.index(dir)?.from(from) else { return Ok(None) };
                    let (name, found) = (name.to_vec(), found.clone());
                    let dots = name == b"." || name == b"..";
                    let entry = if attributes && !dots { Some(state.entry(found.ino)?) } else { None };
                    if let Some(entry) = &entry {
                        state.check_way_up(dir, entry)?;
                    }
                    let kind = match (entry, kind_of_dirent(found.kind)) {
                        (Some(entry), _) => entry.attr.kind,
                        (None, Some(kind)) => kind,
                        (None, None) => state.kind(found.ino)?,
                    };
                    Ok(Some((name, found, kind, entry)))
                })
            };
            let found = match listed(attributes).await {
                // The name is listed without attributes, and a lookup of it reports why.
                Err(error) if attributes && error.is_of_one_place() => listed(false).await?,
                found => found?,
            };
            let Some((name, found, kind, entry)) = found else { return Ok(()) };
            let cookie = found.offset + 1;
            let taken = sink.add(&DirEntry { ino: outer(found.ino), kind, name: &name, cookie, entry });
            if !taken {
                return Ok(());
            }
            if entry.is_some() {
                self.state.borrow_mut().count_lookup(found.ino);
            }
            from = cookie;
        }
    }

    /// UFS1 has no extended attributes, and so no access lists.
    async fn getxattr(&self, ino: Ino, _name: &[u8]) -> FsResult<Vec<u8>> {
        let ino = known(ino)?;
        self.step(|state| state.inode(ino).map(drop)).await?;
        Err(FsError::Unsupported)
    }

    async fn setxattr(&self, ino: Ino, _name: &[u8], _value: &[u8], _mode: XattrMode) -> FsResult<()> {
        let ino = known(ino)?;
        self.step(|state| state.inode(ino).map(drop)).await?;
        Err(FsError::Unsupported)
    }

    async fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        let ino = known(ino)?;
        self.step(|state| state.inode(ino).map(drop)).await?;
        Ok(Vec::new())
    }

    async fn removexattr(&self, ino: Ino, _name: &[u8]) -> FsResult<()> {
        let ino = known(ino)?;
        self.step(|state| state.inode(ino).map(drop)).await?;
        Err(FsError::Unsupported)
    }

    async fn fsync(&self, ino: Ino, _handle: Option<Handle>, _data_only: bool) -> FsResult<()> {
        let ino = known(ino)?;
        if self.state.borrow().read_only {
            return self.step(|state| state.inode(ino).map(drop)).await;
        }
        self.step(|state| state.inode(ino).map(drop)).await?;
        self.sync_file(ino).await
    }

    async fn fsyncdir(&self, ino: Ino, handle: Option<Handle>) -> FsResult<()> {
        let dir = known(ino)?;
        self.step(|state| state.index(dir).map(drop)).await?;
        self.fsync(ino, handle, false).await
    }

    async fn syncfs(&self) -> FsResult<()> {
        if self.state.borrow().read_only {
            return Ok(());
        }
        self.sync().await.map_err(|error| self.explain(error))
    }

    async fn statfs(&self) -> FsResult<StatFs> {
        let state = self.state.borrow();
        // Space that is about to be free counts as available.
        let (pending, pending_inodes) =
            state.soft.as_deref().map_or((0, 0), |soft| (soft.pending_frags, soft.pending_inodes));
        let free = state.totals.nbfree * i64::from(state.layout.frag) + state.totals.nffree + pending;
        Ok(StatFs {
            block_bytes: state.layout.frag_bytes,
            blocks: state.layout.dsize.into(),
            blocks_free: free.max(0) as u64,
            blocks_available: state.frags_for_new_file(pending) as u64,
            inodes: u64::from(state.layout.ino_end() - ROOT_INO),
            inodes_free: (state.totals.nifree + pending_inodes).max(0) as u64,
            name_bytes_max: NAME_BYTES_MAX as u32,
        })
    }

    async fn drop_caches(&self) -> FsResult<()> {
        if !self.state.borrow().read_only {
            self.syncfs().await?;
        }
        self.state.borrow_mut().drop_caches();
        Ok(())
    }

    async fn check(&self) -> FsResult<Vec<String>> {
        self.recount().await
    }

    async fn close(&self) -> FsResult<()> {
        self.end_writing().await.map_err(|error| self.explain(error))
    }

    fn counters(&self) -> Vec<Counter> {
        let state = self.state.borrow();
        let c = &state.counters;
        vec![
            ("block_reads", c.block_reads),
            ("clustered_reads", c.clustered_reads),
            ("block_writes", c.block_writes),
            ("clustered_writes", c.clustered_writes),
            ("written_bytes", c.written_bytes),
            ("ordered_writes", c.ordered_writes),
            ("flushes", c.flushes),
            ("blocks_taken", c.blocks_taken),
            ("blocks_as_wanted", c.blocks_as_wanted),
            ("group_overflows", c.group_overflows),
            ("tails_extended", c.tails_extended),
            ("tails_moved", c.tails_moved),
            ("clusters_moved", c.clusters_moved),
            ("freed_twice", c.freed_twice),
            ("miscounted", c.miscounted),
            ("cache_bytes", state.cache.bytes()),
            ("cache_dirty_bytes", state.cache.dirty_bytes),
            ("cache_inodes", state.inodes.count() as u64),
        ]
    }

    fn describe(&self) -> String {
        let state = self.state.borrow();
        let (block, frag) = (state.layout.block_bytes, state.layout.frag_bytes);
        format!("ffs (block {}, fragment {})", human_bytes(block.into()), human_bytes(frag.into()))
    }
}
