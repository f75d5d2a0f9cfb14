//! The operations of the layer.

use std::rc::Rc;

use super::Classic;
use super::data::Writing;
use super::file::{File, Form, Node};
use super::format::{self, SUFFIX, UNIT_BYTES_MAX};
use crate::device::{Counter, Data};
use crate::fs::acl::XATTR_ACL_ACCESS;
use crate::fs::{
    AllocateMode, Attr, Entry, EntryName, FileKind, FileRange, Fs, FsError, FsResult, FsTraits, OpenFlags, RenameMode,
    SeekTo, SetAttr, StatFs, WriteMode, XattrMode,
};
use crate::layer::change::{Change, View, WOULD_BE_OURS};
use crate::layer::log::mark;
use crate::layer::{At, Layer, Nodes};
use crate::units::Ino;

impl Classic {
    /// The node of a file that consists of units; `None` where the file is passed through.
    fn units<'a>(&self, at: &At<'a, Node>) -> FsResult<Option<&'a Rc<Node>>> {
        match at.node.form() {
            None | Some(Form::Plain) => Ok(None),
            Some(Form::Broken(error)) => Err(error),
            Some(Form::Units | Form::Unknown) => Ok(Some(at.node)),
        }
    }

    fn units_to_change<'a>(&self, at: &At<'a, Node>) -> FsResult<Option<&'a Rc<Node>>> {
        match self.read_only {
            true => Err(FsError::ReadOnly),
            false => match self.units(at)? {
                Some(node) if !node.is_certain() => {
                    let problem = "only an index beside it would tell it from a plain file, so it is not changed; \
                                   `seekless fsck` makes one";
                    Err(FsError::corrupt("encoded file", format_args!("inode {}", at.ino), problem))
                }
                units => Ok(units),
            },
        }
    }

    /// Makes a change of a file that is passed through, with `make`. Returns `None` if it is no longer passed through: it was truncated to
    /// nothing before `make` was called.
    ///
    /// # Errors
    /// `Refused` where the file would begin with a unit, so that the next mount would take it for one of the layer's, and those of `make`.
    async fn change_plain<T>(
        &self,
        at: &At<'_, Node>,
        change: Change<'_>,
        make: impl AsyncFnOnce() -> FsResult<T>,
    ) -> FsResult<Option<T>> {
        if at.node.file.is_none() {
            return make().await.map(Some);
        }
        let _pass = at.node.gate.enter().await;
        if at.node.form() != Some(Form::Plain) {
            return Ok(None);
        }
        let view = View::after(at.lower, at.ino, at.handle, change).await?;
        let start = view.read(0, UNIT_BYTES_MAX as u32).await?;
        match view.size > 0 && format::measure(&start, view.size).is_ok() {
            true => Err(WOULD_BE_OURS),
            false => make().await.map(Some),
        }
    }

    async fn write_index_of(&self, lower: &Fs, node: &Node) {
        let _pass = node.gate.enter().await;
        self.write_index(lower, node).await;
    }
}

/// The lower file of the index, if it exists.
fn index_of(at: &At<'_, Node>) -> Option<Ino> {
    at.node.file.as_ref().and_then(|file| file.borrow().index_ino)
}

impl Layer for Classic {
    type Node = Node;

    const NAME: &'static str = "classic";

    async fn open_node(&self, lower: &Fs, attr: &Attr, place: Option<EntryName<'_>>) -> FsResult<Node> {
        match attr.kind {
            FileKind::Regular => self.load(lower, attr, place).await,
            _ => Ok(Node::new(attr.ino, None)),
        }
    }

    async fn close_node(&self, lower: &Fs, _ino: Ino, node: Rc<Node>) -> FsResult<()> {
        self.write_index_of(lower, &node).await;
        self.forget_index(lower, &node).await;
        Ok(())
    }

    fn hides(&self, name: &[u8]) -> bool {
        name.ends_with(SUFFIX)
    }

    fn show(&self, node: &Node, lower: Attr) -> Attr {
        match &node.file {
            Some(file) => file.borrow().show(lower),
            None => lower,
        }
    }

    fn traits(&self, lower: FsTraits) -> FsTraits {
        let name_bytes_max = lower.name_bytes_max.saturating_sub(SUFFIX.len() as u32);
        FsTraits { name: self.options.codec.name(), name_bytes_max, appends_at_end: false, ..lower }
    }

    /// The layer reads pages in order to change parts of them. It decides itself where appended bytes go and what a
    /// truncation does to the lower file.
    fn open_flags(&self, flags: OpenFlags) -> OpenFlags {
        OpenFlags { read: true, append: false, truncate: false, direct: false, ..flags }
    }

    async fn check_open(&self, at: At<'_, Node>) -> FsResult<()> {
        self.units(&at).map(drop)
    }

    async fn release(&self, at: At<'_, Node>) -> FsResult<()> {
        self.write_index_of(at.lower, at.node).await;
        match at.handle {
            Some(handle) => at.lower.release(at.ino, handle).await,
            None => Ok(()),
        }
    }

    async fn setattr(&self, at: At<'_, Node>, changes: SetAttr) -> FsResult<Attr> {
        let Some(size) = changes.size else {
            let attr = at.lower.setattr(at.ino, at.handle, changes).await?;
            if let Some(index) = index_of(&at) {
                // Users of the file may use its index; other changes concern the file alone.
                let same = SetAttr {
                    permissions: changes.permissions.map(|permissions| permissions & 0o777),
                    uid: changes.uid,
                    gid: changes.gid,
                    ..SetAttr::default()
                };
                if same != SetAttr::default() {
                    let _ = at.lower.setattr(index, None, same).await;
                }
            }
            return Ok(attr);
        };
        loop {
            if let Some(node) = self.units_to_change(&at)? {
                return self.resize_units(at.lower, node, changes, size).await;
            }
            let resize = async || {
                let attr = at.lower.setattr(at.ino, at.handle, changes).await?;
                if attr.size == 0
                    && let Some(file) = &at.node.file
                {
                    // An empty file can become one of this layer.
                    let mut file = file.borrow_mut();
                    let empty = File { place: file.place.take(), index_ino: file.index_ino, ..File::empty(None) };
                    *file = empty;
                }
                Ok(attr)
            };
            if let Some(attr) = self.change_plain(&at, Change::Resize(size), resize).await? {
                return Ok(attr);
            }
        }
    }

    async fn shows_file(&self, at: At<'_, Node>) -> FsResult<bool> {
        Ok(at.node.form() == Some(Form::Plain))
    }

    async fn getxattr(&self, at: At<'_, Node>, name: &[u8]) -> FsResult<Vec<u8>> {
        at.lower.getxattr(at.ino, &mark::below(name)).await
    }

    async fn listxattr(&self, at: At<'_, Node>) -> FsResult<Vec<Vec<u8>>> {
        let names = at.lower.listxattr(at.ino).await?;
        Ok(names.iter().filter_map(|name| mark::above(name)).collect())
    }

    async fn setxattr(&self, at: At<'_, Node>, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        at.lower.setxattr(at.ino, &mark::below(name), value, mode).await?;
        if let (XATTR_ACL_ACCESS, Some(index)) = (name, index_of(&at)) {
            // As for permissions.
            let _ = at.lower.setxattr(index, name, value, mode).await;
        }
        Ok(())
    }

    async fn removexattr(&self, at: At<'_, Node>, name: &[u8]) -> FsResult<()> {
        at.lower.removexattr(at.ino, &mark::below(name)).await?;
        if let (XATTR_ACL_ACCESS, Some(index)) = (name, index_of(&at)) {
            let _ = at.lower.removexattr(index, name).await;
        }
        Ok(())
    }

    async fn read(&self, at: At<'_, Node>, offset: u64, bytes: u32) -> FsResult<Vec<Data>> {
        match self.units(&at)? {
            Some(node) => self.read_units(at.lower, at.handle, node, offset, bytes).await,
            None => at.lower.read(at.ino, at.handle, offset, bytes).await,
        }
    }

    async fn write(&self, at: At<'_, Node>, offset: u64, data: Data, mode: WriteMode) -> FsResult<()> {
        // Only the layer writes to the files below, and what it writes has its place.
        let mode = WriteMode { append: false, ..mode };
        loop {
            match self.units_to_change(&at)? {
                Some(_) if data.is_empty() => return Ok(()),
                Some(node) => {
                    let writing = Writing { lower: at.lower, handle: at.handle, mode };
                    return self.write_units(writing, node, offset, &data).await;
                }
                None => {}
            }
            let write = async || at.lower.write(at.ino, at.handle, offset, data.clone(), mode).await;
            if let Some(()) = self.change_plain(&at, Change::Write { offset, data: &data }, write).await? {
                return Ok(());
            }
        }
    }

    async fn fallocate(&self, at: At<'_, Node>, range: FileRange, mode: AllocateMode) -> FsResult<()> {
        loop {
            if let Some(node) = self.units_to_change(&at)? {
                let writing = Writing { lower: at.lower, handle: at.handle, mode: WriteMode::default() };
                return self.allocate_units(writing, node, range, mode).await;
            }
            let allocate = async || at.lower.fallocate(at.ino, at.handle, range, mode).await;
            if let Some(()) = self.change_plain(&at, Change::allocate(range, mode), allocate).await? {
                return Ok(());
            }
        }
    }

    async fn lseek(&self, at: At<'_, Node>, offset: u64, seek: SeekTo) -> FsResult<u64> {
        match self.units(&at)? {
            Some(node) => self.seek_units(at.lower, node, offset, seek).await,
            None => at.lower.lseek(at.ino, at.handle, offset, seek).await,
        }
    }

    async fn link(&self, at: At<'_, Node>, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        self.link_both(at, parent, name).await
    }

    async fn unlink(&self, lower: &Fs, place: EntryName<'_>) -> FsResult<()> {
        self.unlink_both(lower, place).await
    }

    async fn rmdir(&self, lower: &Fs, place: EntryName<'_>) -> FsResult<()> {
        self.remove_directory(lower, place).await
    }

    async fn rename(
        &self,
        lower: &Fs,
        nodes: &Nodes<Node>,
        from: EntryName<'_>,
        to: EntryName<'_>,
        mode: RenameMode,
    ) -> FsResult<()> {
        self.rename_both(lower, nodes, from, to, mode).await
    }

    /// The data first: an index that is ahead of the data is not used, nor is one that is behind.
    async fn fsync(&self, at: At<'_, Node>, data_only: bool) -> FsResult<()> {
        at.lower.fsync(at.ino, at.handle, data_only).await?;
        self.write_index_of(at.lower, at.node).await;
        match index_of(&at) {
            Some(index) => at.lower.fsync(index, None, data_only).await,
            None => Ok(()),
        }
    }

    async fn syncfs(&self, lower: &Fs, nodes: &Nodes<Node>) -> FsResult<()> {
        for (_, node) in nodes.all() {
            self.write_index_of(lower, &node).await;
        }
        lower.syncfs().await
    }

    async fn statfs(&self, lower: &Fs) -> FsResult<StatFs> {
        let stat = lower.statfs().await?;
        Ok(StatFs { name_bytes_max: stat.name_bytes_max.saturating_sub(SUFFIX.len() as u32), ..stat })
    }

    async fn drop_caches(&self, lower: &Fs, nodes: &Nodes<Node>) -> FsResult<()> {
        for (_, node) in nodes.all() {
            if let Some(file) = &node.file {
                file.borrow_mut().last_page = None;
            }
        }
        lower.drop_caches().await
    }

    fn counters(&self) -> Vec<Counter> {
        self.counts.list()
    }

    fn describe(&self) -> String {
        let tails = if self.options.fast_tails { "with fast tails" } else { "without fast tails" };
        format!("{} (classic, {tails})", self.options.codec.name())
    }
}
