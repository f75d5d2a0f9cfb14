//! The operations of the layer.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use super::file::{File, Form, Times};
use super::load::{is_forbidden, is_of_one_file};
use super::mark;
use super::node::{CommitTurn, Node, OpenFile, SET_ID_BITS, Writer, may_have_capability};
use super::{ChunkedLayer, count};
use crate::device::{Counter, Data};
use crate::fs::{
    AllocateMode, Attr, EntryName, FileKind, FileRange, Fs, FsError, FsResult, FsTraits, OpenFlags, RenameMode, SeekTo,
    SetAttr, SetTime, WriteMode, XATTR_CAPABILITY, XattrMode, without_privileges,
};
use crate::layer::change::Change;
use crate::layer::{At, Layer, Nodes};
use crate::units::{Ino, Nanos};

impl ChunkedLayer {
    /// Opens a file for access to its data: `None` where the file is passed through.
    async fn open_data<'a>(&self, at: &At<'a, Node>) -> FsResult<Option<OpenFile<'a>>> {
        let Some(file) = at.node.open(at.lower) else { return Ok(None) };
        let file = file.through(at.handle);
        self.ensure_loaded(file).await?;
        let state = file.borrow();
        if let Form::Broken(error) = &state.form {
            return Err(error.clone());
        }
        Ok((state.form == Form::Log).then_some(file))
    }

    /// As [`ChunkedLayer::open_data`], for an operation that changes the file.
    async fn open_to_change<'a>(&self, at: &At<'a, Node>) -> FsResult<Option<OpenFile<'a>>> {
        if self.read_only {
            return Err(FsError::ReadOnly);
        }
        let file = self.open_data(at).await?;
        if let Some(file) = file {
            file.borrow().check()?;
        }
        Ok(file)
    }

    /// Removes the privileges that a change of data removes at once, since the change itself comes below later.
    async fn take_privileges(&self, at: &At<'_, Node>, also_set_id_bits: bool) -> FsResult<()> {
        if at.node.is_plain_program.get() && !also_set_id_bits {
            return Ok(());
        }
        let _pass = at.node.attributes.enter().await;
        if !at.node.is_plain_program.replace(true) && may_have_capability(at.lower, at.ino).await {
            // A caller that may not do this may not have set it either, and the write below removes it.
            let _ = at.lower.removexattr(at.ino, XATTR_CAPABILITY).await;
        }
        if also_set_id_bits {
            let permissions = at.lower.getattr(at.ino, at.handle).await?.permissions;
            let less = without_privileges(permissions);
            if less != permissions {
                let changes = SetAttr { permissions: Some(less), ..SetAttr::default() };
                at.lower.setattr(at.ino, at.handle, changes).await?;
            }
        }
        Ok(())
    }

    /// Does what is to be done below before an attribute changes that writing or truncating would change again: writes
    /// waiting changes, confirms a provisional commit, and cuts off what a durable one does not use. While the caller
    /// keeps the turn, nothing of that comes up again.
    async fn settled(&self, at: &At<'_, Node>) -> FsResult<Option<CommitTurn>> {
        let Some(file) = at.node.open(at.lower) else { return Ok(None) };
        let turn = file.through(at.handle).commit_turn().await;
        if at.node.wants_writer() || at.node.is_unsettled() {
            self.settle(&turn).await?;
        }
        Ok(Some(turn))
    }

    fn changed(&self, node: &Node, handle: Option<crate::fs::Handle>) {
        if let (Some(handle), None) = (handle, node.writer.get()) {
            node.writer.set(Some(Writer { handle, is_ours: false }));
        }
        node.note_rewriter(handle);
        self.set_timer();
    }
}

impl Layer for ChunkedLayer {
    type Node = Node;

    const NAME: &'static str = "log";

    async fn open_node(&self, lower: &Fs, attr: &Attr, place: Option<EntryName<'_>>) -> FsResult<Node> {
        let serial = self.next_serial.get();
        self.next_serial.set(serial + 1);
        if attr.kind != FileKind::Regular {
            return Ok(Node::other(attr.ino, serial));
        }
        let shift = self.options.chunk_shift;
        // Also for an empty lower file: another program may have truncated it.
        let (marked, mark) = self.marked(lower, attr).await;
        let has_no_link_count = place.is_some() && attr.links == 0;
        if attr.size == 0 {
            let file = File { mark, has_no_link_count, ..File::empty(shift, self.new_file_id(attr.ino)) };
            return Ok(Node::regular(attr.ino, serial, file));
        }
        if let Some(found) = marked {
            count(&self.counts.sizes_from_marks, 1);
            let marked_generation = Some(found.generation);
            let file = File { mark, marked_generation, has_no_link_count, ..File::unread(found.size, shift) };
            return Ok(Node::regular(attr.ino, serial, file));
        }
        let file = RefCell::new(File { mark, has_no_link_count, ..File::unread(attr.size, shift) });
        match self.load(lower, attr.ino, None, &file).await {
            // It can be removed and renamed nevertheless, and an opening tries again.
            Err(error) if is_of_one_file(&error) || is_forbidden(&error) => {}
            loaded => loaded?,
        }
        Ok(Node::regular(attr.ino, serial, file.into_inner()))
    }

    async fn close_node(&self, lower: &Fs, _ino: Ino, node: Rc<Node>) -> FsResult<()> {
        self.note_stop(&node);
        let lost = match node.file() {
            Some(file) => {
                let mut file = file.borrow_mut();
                let lost = file.has_changes();
                self.forget_chunks(&mut file, 0);
                lost.then(|| file.stopped.clone().unwrap_or(FsError::NoSpace))
            }
            None => None,
        };
        if let Some(file) = node.open(lower)
            && lost.is_none()
        {
            self.mark(file).await;
        }
        self.end_writer(lower, &node).await;
        lost.map_or(Ok(()), Err)
    }

    fn lingers(&self, node: &Node) -> bool {
        !self.closed.get() && (node.is_unsettled() || node.is_busy())
    }

    async fn give_up(&self, lower: &Fs, node: &Rc<Node>) {
        let Some(file) = node.open(lower) else { return };
        self.is_gone(file).await;
        if node.is_busy() {
            self.close_when_idle(lower.clone(), node.clone());
        }
    }

    fn show(&self, node: &Node, lower: Attr) -> Attr {
        match node.file() {
            Some(file) => file.borrow().show(lower),
            None => lower,
        }
    }

    fn traits(&self, lower: FsTraits) -> FsTraits {
        // Half of the files are for those that this layer keeps open.
        let open_files_max = lower.open_files_max.map(|most| most - most / 2);
        FsTraits { name: self.options.codec.name(), open_files_max, appends_at_end: false, ..lower }
    }

    /// The layer reads chunks in order to change parts of them. It decides itself where appended bytes go and what a
    /// truncation does to the lower file.
    fn open_flags(&self, flags: OpenFlags) -> OpenFlags {
        OpenFlags { read: true, append: false, truncate: false, direct: false, ..flags }
    }

    async fn make_room(&self, lower: &Fs, nodes: &Nodes<Node>) {
        if self.writers.get() < self.writers_max {
            return;
        }
        let _turn = self.making_room.enter().await;
        if self.writers.get() >= self.writers_max {
            // What fails waits in memory, and a sync reports it. The opening may find no room then, and say so.
            let _ = self.commit_all(lower, nodes, true).await;
        }
    }

    async fn check_open(&self, at: At<'_, Node>) -> FsResult<()> {
        self.open_data(&at).await.map(drop)
    }

    async fn release(&self, at: At<'_, Node>) -> FsResult<()> {
        let Some(handle) = at.handle else { return Ok(()) };
        if at.node.end_rewriting(handle)
            && let Some(file) = at.node.open(at.lower)
        {
            // What could not be written waits in memory, and an fsync reports it.
            let _ = self.pass_down(file).await;
        }
        if at.node.writer.get().is_some_and(|writer| writer.handle == handle) {
            if at.node.wants_writer() {
                self.take_over(at.node, handle);
                return Ok(());
            }
            at.node.writer.set(None);
        }
        at.lower.release(at.ino, handle).await
    }

    async fn setattr(&self, at: At<'_, Node>, changes: SetAttr) -> FsResult<Attr> {
        if at.node.file().is_none() {
            return at.lower.setattr(at.ino, at.handle, changes).await;
        }
        let Some(size) = changes.size else {
            return self.set_attributes(&at, changes).await;
        };
        let file = loop {
            if let Some(file) = self.open_to_change(&at).await? {
                break file;
            }
            let resize = async || {
                let attr = at.lower.setattr(at.ino, at.handle, changes).await?;
                if attr.size == 0
                    && let Some(file) = at.node.file()
                {
                    // An empty file can become one of this layer.
                    let (_, mark) = self.marked(at.lower, &attr).await;
                    let empty = File::empty(self.options.chunk_shift, self.new_file_id(at.ino));
                    let has_no_link_count = file.borrow().has_no_link_count;
                    *file.borrow_mut() = File { mark, rewriters: Some(BTreeSet::new()), has_no_link_count, ..empty };
                    at.node.note_rewriter(at.handle);
                }
                Ok(attr)
            };
            if let Some(attr) = self.change_plain(&at, Change::Resize(size), resize).await? {
                return Ok(attr);
            }
        };
        self.resize_log(file, size).await?;
        at.node.note_rewriter(at.handle);
        // Without the handle: for truncate(2) the kernel gives one that cannot write.
        self.changed(at.node, None);
        self.take_privileges(&at, changes.kill_privileges).await?;
        let others = SetAttr { size: None, ..changes };
        let attr = match others == (SetAttr { kill_privileges: changes.kill_privileges, ..SetAttr::default() }) {
            true => at.lower.getattr(at.ino, at.handle).await?,
            false => self.set_attributes(&at, others).await?,
        };
        Ok(attr)
    }

    async fn read(&self, at: At<'_, Node>, offset: u64, bytes: u32) -> FsResult<Vec<Data>> {
        loop {
            if let Some(file) = self.open_data(&at).await? {
                return self.read_log(file, offset, bytes).await;
            }
            let read = at.lower.read(at.ino, at.handle, offset, bytes).await;
            if at.node.is_passed_through() {
                return read;
            }
        }
    }

    async fn write(&self, at: At<'_, Node>, offset: u64, data: Data, mode: WriteMode) -> FsResult<()> {
        // Only the layer writes to the files below, and what it writes has its place.
        let mode = WriteMode { append: false, ..mode };
        let file = loop {
            if let Some(file) = self.open_to_change(&at).await? {
                break file;
            }
            let write = async || at.lower.write(at.ino, at.handle, offset, data.clone(), mode).await;
            if let Some(()) = self.change_plain(&at, Change::Write { offset, data: &data }, write).await? {
                return Ok(());
            }
        };
        if data.is_empty() {
            return Ok(());
        }
        self.write_log(file, offset, &data).await?;
        self.changed(at.node, at.handle);
        self.take_privileges(&at, mode.kill_privileges).await
    }

    async fn fallocate(&self, at: At<'_, Node>, range: FileRange, mode: AllocateMode) -> FsResult<()> {
        let file = loop {
            if let Some(file) = self.open_to_change(&at).await? {
                break file;
            }
            let allocate = async || at.lower.fallocate(at.ino, at.handle, range, mode).await;
            if let Some(()) = self.change_plain(&at, Change::allocate(range, mode), allocate).await? {
                return Ok(());
            }
        };
        self.allocate_log(file, range, mode).await?;
        self.changed(at.node, at.handle);
        self.take_privileges(&at, false).await
    }

    async fn lseek(&self, at: At<'_, Node>, offset: u64, seek: SeekTo) -> FsResult<u64> {
        loop {
            if let Some(file) = self.open_data(&at).await? {
                return self.seek_log(file, offset, seek).await;
            }
            let found = at.lower.lseek(at.ino, at.handle, offset, seek).await;
            if at.node.is_passed_through() {
                return found;
            }
        }
    }

    async fn shows_file(&self, at: At<'_, Node>) -> FsResult<bool> {
        Ok(at.node.file().is_some() && self.open_data(&at).await?.is_none())
    }

    async fn getxattr(&self, at: At<'_, Node>, name: &[u8]) -> FsResult<Vec<u8>> {
        at.lower.getxattr(at.ino, &mark::below(name)).await
    }

    async fn setxattr(&self, at: At<'_, Node>, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        let _turn = match name == XATTR_CAPABILITY {
            true => self.settled(&at).await?,
            false => None,
        };
        let _pass = at.node.attributes.enter().await;
        if name == XATTR_CAPABILITY {
            at.node.is_plain_program.set(false);
        }
        let set = at.lower.setxattr(at.ino, &mark::below(name), value, mode).await;
        if set.is_ok() {
            self.note_times(at.node, &SetAttr::default());
        }
        set
    }

    async fn listxattr(&self, at: At<'_, Node>) -> FsResult<Vec<Vec<u8>>> {
        let names = at.lower.listxattr(at.ino).await?;
        Ok(names.iter().filter_map(|name| mark::above(name)).collect())
    }

    async fn removexattr(&self, at: At<'_, Node>, name: &[u8]) -> FsResult<()> {
        let _pass = at.node.attributes.enter().await;
        let removed = at.lower.removexattr(at.ino, &mark::below(name)).await;
        if removed.is_ok() {
            self.note_times(at.node, &SetAttr::default());
        }
        removed
    }

    /// A file that replaces another is written below before its rename, so that the name has the old or the new content
    /// if the daemon is killed.
    async fn rename(
        &self,
        lower: &Fs,
        nodes: &Nodes<Node>,
        from: EntryName<'_>,
        to: EntryName<'_>,
        mode: RenameMode,
    ) -> FsResult<()> {
        if !mode.spares_target() {
            self.pass_down_named(lower, nodes, from, to).await?;
        }
        if mode == RenameMode::Exchange {
            self.pass_down_named(lower, nodes, to, from).await?;
        }
        lower.rename(from, to, mode).await
    }

    async fn fsync(&self, at: At<'_, Node>, data_only: bool) -> FsResult<()> {
        match self.open_data(&at).await {
            Ok(Some(file)) => self.sync_file(file, data_only).await,
            Err(error) if at.node.has_changes() => Err(error),
            // An unreadable file still has attributes.
            _ => at.lower.fsync(at.ino, at.handle, data_only).await,
        }
    }

    async fn syncfs(&self, lower: &Fs, nodes: &Nodes<Node>) -> FsResult<()> {
        self.commit_all(lower, nodes, true).await
    }

    async fn before_close(&self, lower: &Fs, nodes: &Nodes<Node>) -> FsResult<()> {
        let committed = self.commit_all(lower, nodes, true).await;
        self.closed.set(true);
        for (_, node) in nodes.all().iter().filter(|(_, node)| node.is_busy()) {
            if let Some(file) = node.open(lower) {
                // A compaction that has begun ends before the node is closed, and no other begins.
                drop(file.commit_turn().await);
            }
        }
        committed
    }

    /// Compaction runs in a task of its own, to the end of a step, when the caller goes away: a slot may be on its way, or a file about to be cut
    /// behind its last record, and a close must wait for both.
    async fn idle(&self, lower: &Fs, _nodes: &Nodes<Node>, until: Nanos) -> FsResult<bool> {
        let stacked = self.stacked.borrow().upgrade();
        let compacted = match stacked {
            Some(stacked) => {
                let compacts =
                    async move { stacked.layer().compact_idle(stacked.lower(), stacked.nodes(), until).await };
                self.rt.spawn(compacts).await
            }
            None => Ok(false),
        };
        if compacted == Ok(true) {
            return compacted;
        }
        let more = lower.idle(until).await?;
        compacted?;
        // Errors of the write-back in the background have no other caller.
        self.stopped.borrow().clone().map_or(Ok(more), Err)
    }

    async fn drop_caches(&self, lower: &Fs, _nodes: &Nodes<Node>) -> FsResult<()> {
        self.cache.borrow_mut().clear();
        lower.drop_caches().await
    }

    fn counters(&self) -> Vec<Counter> {
        let mut counters = self.counts.list();
        counters.push(("bytes_waiting", self.dirty_bytes.get()));
        counters
    }

    fn describe(&self) -> String {
        let chunk = crate::units::human_bytes(1 << self.options.chunk_shift);
        format!("{} (chunks of {chunk})", self.options.codec.name())
    }
}

impl ChunkedLayer {
    /// Changes attributes below other than the size.
    async fn set_attributes(&self, at: &At<'_, Node>, changes: SetAttr) -> FsResult<Attr> {
        let gives_privileges = changes.permissions.is_some_and(|permissions| permissions & SET_ID_BITS != 0);
        let _turn = match gives_privileges {
            true => self.settled(at).await?,
            false => None,
        };
        let _pass = at.node.attributes.enter().await;
        let attr = at.lower.setattr(at.ino, at.handle, changes).await?;
        self.note_times(at.node, &changes);
        Ok(attr)
    }

    /// Writes the changes of the file at `source` below, if `target` exists.
    async fn pass_down_named(
        &self,
        lower: &Fs,
        nodes: &Nodes<Node>,
        source: EntryName<'_>,
        target: EntryName<'_>,
    ) -> FsResult<()> {
        // The rename itself reports a problem with either name.
        let Ok(entry) = lower.lookup(source.parent, source.name).await else { return Ok(()) };
        let ino = entry.attr.ino;
        let node = nodes.get(ino).ok().or_else(|| nodes.lingering(ino)).filter(|node| node.has_changes());
        let mut passed = Ok(());
        if let Some(file) = node.as_ref().and_then(|node| node.open(lower))
            && let Ok(replaced) = lower.lookup(target.parent, target.name).await
        {
            passed = self.pass_down(file).await;
            lower.forget(replaced.attr.ino, 1).await;
        }
        lower.forget(ino, 1).await;
        passed
    }

    /// Records the times after an operation below has changed those of a file that shows others until it is written
    /// back.
    fn note_times(&self, node: &Node, changes: &SetAttr) {
        let Some(file) = node.file() else { return };
        let mut file = file.borrow_mut();
        let Some(times) = file.times else { return };
        let mtime = match changes.mtime {
            Some(SetTime::At(time)) => time,
            Some(SetTime::Now) => self.rt.wall(),
            None => times.mtime,
        };
        file.times = Some(Times { mtime, ctime: changes.ctime.unwrap_or(self.rt.wall()) });
    }
}
