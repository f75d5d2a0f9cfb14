//! What all layers share.

use std::any::Any;
use std::rc::Rc;

use async_trait::async_trait;

use super::Nodes;
use crate::device::{Counter, Data};
use crate::fs::{
    AllocateMode, Attr, DirEntry, DirSink, Entry, EntryName, FileKind, FileRange, FileSystem, Fs, FsError, FsResult,
    FsTraits, Handle, NewNode, NodeKind, OpenFlags, Opened, OutsideName, RenameMode, SeekTo, SetAttr, StatFs,
    WriteMode, Writers, XattrMode,
};
use crate::units::{Ino, Nanos};

/// Longest name (Linux `PATH_MAX`).
const PATH_BYTES_MAX: usize = 4_096;

/// The target of an operation in a layer: which inode, through which handle, on which file system below.
pub struct At<'a, N> {
    pub lower: &'a Fs,
    pub ino: Ino,
    pub handle: Option<Handle>,
    pub node: &'a Rc<N>,
}

/// The operations that one layer changes. The default of each method passes the operation on.
///
/// Attributes that methods return are those of the file system below; only [`Layer::show`] converts them into those
/// seen above.
// The engine runs on one thread, so these futures need no `Send` bound.
#[allow(async_fn_in_trait)]
pub trait Layer: 'static {
    /// The layer's state of an inode in use, such as its real size and its index.
    type Node: 'static;

    /// The layer's word on a stack line.
    const NAME: &'static str;

    /// Begins the use of an inode, whose attributes below are `attr`, and which was found at `place`; the root has no
    /// place, nor has a file without a name. Its first lookup waits for this.
    ///
    /// # Errors
    /// They become those of the lookup.
    async fn open_node(&self, lower: &Fs, attr: &Attr, place: Option<EntryName<'_>>) -> FsResult<Self::Node>;

    /// Ends the use of an inode. The layer now writes below what it has to keep.
    ///
    /// # Errors
    /// When the whole layer is closed, its caller gets the first error. After a forget no caller can get it: a layer
    /// that could lose something there must answer its next operations with the error.
    async fn close_node(&self, _lower: &Fs, _ino: Ino, _node: Rc<Self::Node>) -> FsResult<()> {
        Ok(())
    }

    /// True while a node without users has something in memory that is better written later, together with that of
    /// other nodes, or while a task of the layer still works with it: below, the number of an inode that is forgotten can
    /// become that of another file. Its inode stays in use below until [`Stacked::sweep`] finds that it no longer lingers.
    fn lingers(&self, _node: &Self::Node) -> bool {
        false
    }

    /// The inode has no users any more, and its node lingers. If the file has no name either, its data in memory is
    /// useless: the layer drops it, so that the node no longer lingers.
    async fn give_up(&self, _lower: &Fs, _node: &Rc<Self::Node>) {}

    /// True for names below that are the layer's own: they are invisible above, and cannot be created there.
    fn hides(&self, _name: &[u8]) -> bool {
        false
    }

    /// Converts attributes below into those above.
    fn show(&self, _node: &Self::Node, lower: Attr) -> Attr {
        lower
    }

    /// Converts the traits of the file system below into those of the layer.
    fn traits(&self, lower: FsTraits) -> FsTraits {
        FsTraits { name: Self::NAME, ..lower }
    }

    /// How a file is opened below when it is opened above with `flags`. A layer that reads in order to write, or
    /// moves bytes around, needs `read`, and neither `append` nor `truncate`; a truncation that is left out here
    /// is done with [`Layer::setattr`].
    fn open_flags(&self, flags: OpenFlags) -> OpenFlags {
        flags
    }

    /// A file is about to be opened for writing below. A layer that keeps such files open when their users have closed them closes
    /// some here when there are many.
    async fn make_room(&self, _lower: &Fs, _nodes: &Nodes<Self::Node>) {}

    /// Whether a file may be opened, before it is.
    ///
    /// # Errors
    /// They become those of the opening.
    async fn check_open(&self, _at: At<'_, Self::Node>) -> FsResult<()> {
        Ok(())
    }

    /// Whether a caller may read and write files below directly, where it can: see [`FileSystem::outside_file`].
    fn passes_files(&self) -> bool {
        false
    }

    /// Whether the file has the bytes of the file below: see [`FileSystem::shown_file`].
    ///
    /// # Errors
    /// When that cannot be found out.
    async fn shows_file(&self, _at: At<'_, Self::Node>) -> FsResult<bool> {
        Ok(false)
    }

    /// Ends the use of `at.handle`, which the file system below has returned.
    async fn release(&self, at: At<'_, Self::Node>) -> FsResult<()> {
        match at.handle {
            Some(handle) => at.lower.release(at.ino, handle).await,
            None => Ok(()),
        }
    }

    async fn getattr(&self, at: At<'_, Self::Node>) -> FsResult<Attr> {
        at.lower.getattr(at.ino, at.handle).await
    }

    async fn setattr(&self, at: At<'_, Self::Node>, changes: SetAttr) -> FsResult<Attr> {
        at.lower.setattr(at.ino, at.handle, changes).await
    }

    async fn readlink(&self, at: At<'_, Self::Node>) -> FsResult<Vec<u8>> {
        at.lower.readlink(at.ino).await
    }

    async fn read(&self, at: At<'_, Self::Node>, offset: u64, bytes: u32) -> FsResult<Vec<Data>> {
        at.lower.read(at.ino, at.handle, offset, bytes).await
    }

    async fn write(&self, at: At<'_, Self::Node>, offset: u64, data: Data, mode: WriteMode) -> FsResult<()> {
        at.lower.write(at.ino, at.handle, offset, data, mode).await
    }

    async fn fallocate(&self, at: At<'_, Self::Node>, range: FileRange, mode: AllocateMode) -> FsResult<()> {
        at.lower.fallocate(at.ino, at.handle, range, mode).await
    }

    async fn lseek(&self, at: At<'_, Self::Node>, offset: u64, seek: SeekTo) -> FsResult<u64> {
        at.lower.lseek(at.ino, at.handle, offset, seek).await
    }

    async fn getxattr(&self, at: At<'_, Self::Node>, name: &[u8]) -> FsResult<Vec<u8>> {
        at.lower.getxattr(at.ino, name).await
    }

    async fn setxattr(&self, at: At<'_, Self::Node>, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        at.lower.setxattr(at.ino, name, value, mode).await
    }

    async fn listxattr(&self, at: At<'_, Self::Node>) -> FsResult<Vec<Vec<u8>>> {
        at.lower.listxattr(at.ino).await
    }

    async fn removexattr(&self, at: At<'_, Self::Node>, name: &[u8]) -> FsResult<()> {
        at.lower.removexattr(at.ino, name).await
    }

    async fn link(&self, at: At<'_, Self::Node>, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        at.lower.link(at.ino, parent, name).await
    }

    async fn unlink(&self, lower: &Fs, place: EntryName<'_>) -> FsResult<()> {
        lower.unlink(place.parent, place.name).await
    }

    async fn rmdir(&self, lower: &Fs, place: EntryName<'_>) -> FsResult<()> {
        lower.rmdir(place.parent, place.name).await
    }

    async fn rename(
        &self,
        lower: &Fs,
        _nodes: &Nodes<Self::Node>,
        from: EntryName<'_>,
        to: EntryName<'_>,
        mode: RenameMode,
    ) -> FsResult<()> {
        lower.rename(from, to, mode).await
    }

    async fn fsync(&self, at: At<'_, Self::Node>, data_only: bool) -> FsResult<()> {
        at.lower.fsync(at.ino, at.handle, data_only).await
    }

    /// `nodes` are all inodes in use, for a layer that has to write something from memory first.
    async fn syncfs(&self, lower: &Fs, _nodes: &Nodes<Self::Node>) -> FsResult<()> {
        lower.syncfs().await
    }

    /// Called before the layer is closed: nodes that have something in memory can write it together. All of them are
    /// closed next, whether or not this fails.
    async fn before_close(&self, _lower: &Fs, _nodes: &Nodes<Self::Node>) -> FsResult<()> {
        Ok(())
    }

    async fn statfs(&self, lower: &Fs) -> FsResult<StatFs> {
        lower.statfs().await
    }

    async fn idle(&self, lower: &Fs, _nodes: &Nodes<Self::Node>, until: Nanos) -> FsResult<bool> {
        lower.idle(until).await
    }

    async fn drop_caches(&self, lower: &Fs, _nodes: &Nodes<Self::Node>) -> FsResult<()> {
        lower.drop_caches().await
    }

    /// The layer's own counters.
    fn counters(&self) -> Vec<Counter> {
        Vec::new()
    }

    /// The layer in one line, without what is below it.
    fn describe(&self) -> String {
        Self::NAME.to_owned()
    }
}

/// A layer on a file system: itself a file system.
pub struct Stacked<L: Layer> {
    lower: Fs,
    layer: L,
    nodes: Nodes<L::Node>,
}

impl<L: Layer> Stacked<L> {
    /// Puts `layer` on `lower`.
    ///
    /// # Errors
    /// When the root cannot be opened.
    pub async fn new(lower: Fs, layer: L) -> FsResult<Stacked<L>> {
        let nodes = Nodes::new();
        let root = lower.getattr(Ino::ROOT, None).await?;
        // The root is in use as long as the layer is, without a lookup or forget.
        nodes.enter(Ino::ROOT, 1, async || layer.open_node(&lower, &root, None).await).await?;
        Ok(Stacked { lower, layer, nodes })
    }

    pub fn layer(&self) -> &L {
        &self.layer
    }

    pub fn lower(&self) -> &Fs {
        &self.lower
    }

    pub(super) fn nodes(&self) -> &Nodes<L::Node> {
        &self.nodes
    }

    /// Closes the nodes that no longer linger.
    pub(super) async fn sweep(&self) {
        let close = async |ino, node| {
            // As in `leave`.
            let _ = self.layer.close_node(&self.lower, ino, node).await;
        };
        for (ino, lookups) in self.nodes.sweep(|node| self.layer.lingers(node), close).await {
            self.lower.forget(ino, lookups).await;
        }
    }

    /// As [`Stacked::sweep`], for one inode.
    pub(super) async fn sweep_one(&self, ino: Ino) {
        let close = async |node| {
            let _ = self.layer.close_node(&self.lower, ino, node).await;
        };
        let taken = self.nodes.sweep_one(ino, |node| self.layer.lingers(node), close).await;
        if taken > 0 {
            self.lower.forget(ino, taken).await;
        }
    }

    fn at<'a>(&'a self, ino: Ino, handle: Option<Handle>, node: &'a Rc<L::Node>) -> At<'a, L::Node> {
        At { lower: &self.lower, ino, handle, node }
    }

    /// Registers an entry that the file system below has counted, after `since`: converts its attributes, and counts it
    /// here.
    async fn enter(&self, since: Moment, entry: Entry, place: EntryName<'_>) -> FsResult<Entry> {
        self.enter_at(since, entry, Some(place)).await
    }

    /// As [`Stacked::enter`]; a file without a name has no place.
    async fn enter_at(&self, mut since: Moment, entry: Entry, place: Option<EntryName<'_>>) -> FsResult<Entry> {
        let mut attr = entry.attr;
        let ino = attr.ino;
        let open = async || {
            // Nothing closes the node from here on. A task that waited for its slot may have waited for the closing.
            self.refresh(&mut since, &mut attr).await?;
            self.layer.open_node(&self.lower, &attr, place).await
        };
        let node = match self.nodes.enter(ino, 1, open).await {
            Ok(node) => node,
            Err(error) => {
                self.lower.forget(ino, 1).await; // Y1
                return Err(error);
            }
        };
        if let Err(error) = self.refresh(&mut since, &mut attr).await {
            self.leave(ino, 1).await;
            return Err(error);
        }
        Ok(Entry { attr: self.layer.show(&node, attr), ..entry })
    }

    /// The present moment, before attributes are read below.
    fn moment(&self) -> Moment {
        Moment(self.nodes.closings())
    }

    /// Reads `attr` again if a node has been closed since it was read: what that node wrote is not in it.
    async fn refresh(&self, since: &mut Moment, attr: &mut Attr) -> FsResult<()> {
        let now = self.moment();
        if *since != now {
            *attr = self.lower.getattr(attr.ino, None).await?;
            *since = now;
        }
        Ok(())
    }

    /// Registers a new file that is open below.
    async fn enter_made(
        &self,
        since: Moment,
        made: (Entry, Opened),
        place: Option<EntryName<'_>>,
    ) -> FsResult<(Entry, Opened)> {
        let (entry, opened) = made;
        match self.enter_at(since, entry, place).await {
            Ok(entry) => Ok((entry, opened)),
            Err(error) => {
                // The file stays, as after a create whose answer was lost; its handle does not.
                if let Some(handle) = opened.handle {
                    self.lower.release(entry.attr.ino, handle).await?;
                }
                Err(error)
            }
        }
    }

    /// A place for a name that has to exist.
    ///
    /// # Errors
    /// Those of the directory; `NotFound` for a hidden name.
    fn old_place<'a>(&self, parent: Ino, name: &'a [u8]) -> FsResult<EntryName<'a>> {
        self.nodes.get(parent)?;
        match self.layer.hides(name) {
            true => Err(FsError::NotFound),
            false => Ok(EntryName { parent, name }),
        }
    }

    /// A place for a name that is to be created.
    ///
    /// # Errors
    /// Those of the directory; `Invalid` for a name that the layer needs for itself.
    async fn new_place<'a>(&self, parent: Ino, name: &'a [u8]) -> FsResult<EntryName<'a>> {
        self.nodes.get(parent)?;
        let problem = if self.layer.hides(name) {
            FsError::Invalid("a layer keeps names like this one for itself")
        } else if name.len() > self.traits().name_bytes_max as usize {
            FsError::NameTooLong
        } else {
            return Ok(EntryName { parent, name });
        };
        // When the parent is not a directory, that is the error, whatever the name.
        match self.lower.getattr(parent, None).await?.kind {
            FileKind::Directory => Err(problem),
            _ => Err(FsError::NotDirectory),
        }
    }

    /// The error of a link of `ino` into `parent`, apart from its name. Only the file system below knows whether a file
    /// accepts links; it gets a name that is too long for it, so that nothing happens.
    async fn link_problem(&self, ino: Ino, parent: Ino) -> Option<FsError> {
        let longest = (self.lower.traits().name_bytes_max as usize).min(PATH_BYTES_MAX);
        match self.lower.link(ino, parent, &vec![b'x'; longest + 1]).await {
            Ok(_) | Err(FsError::NameTooLong) => None,
            Err(problem) => Some(problem),
        }
    }

    async fn leave(&self, ino: Ino, lookups: u64) {
        if ino == Ino::ROOT {
            return;
        }
        let close = async |node| {
            // A forget has no result; see `Layer::close_node`.
            let _ = self.layer.close_node(&self.lower, ino, node).await;
        };
        let mut taken = self.nodes.leave(ino, lookups, |node| self.layer.lingers(node), close).await;
        if taken == 0
            && let Some(node) = self.nodes.lingering(ino)
        {
            self.layer.give_up(&self.lower, &node).await;
            drop(node);
            taken = self.nodes.sweep_one(ino, |node| self.layer.lingers(node), close).await;
        }
        if taken > 0 {
            self.lower.forget(ino, taken).await;
        }
    }

    /// Lists a directory with attributes. Opening a node may have to wait, and a sink cannot, so the entries below are
    /// read a batch at a time.
    async fn readdir_plus(
        &self,
        ino: Ino,
        handle: Option<Handle>,
        mut cookie: u64,
        sink: &mut dyn DirSink,
    ) -> FsResult<()> {
        let mut any = false;
        loop {
            let mut batch = Batch::default();
            let since = self.moment();
            match self.lower.readdir(ino, handle, cookie, true, &mut batch).await {
                // Entries already passed on stay; the next call gets the error again.
                Err(_) if any => return Ok(()),
                other => other?,
            }
            let Some(last) = batch.entries.last() else { return Ok(()) };
            let was_full = batch.is_full();
            cookie = last.cookie;
            let mut has_room = true;
            for listed in &batch.entries {
                let name = &batch.names[listed.name_start..listed.name_end];
                if !has_room || self.layer.hides(name) {
                    // The batch was larger than the sink, or the entry is hidden: its lookup does not count.
                    if let Some(entry) = listed.entry {
                        self.lower.forget(entry.attr.ino, 1).await;
                    }
                    continue;
                }
                // An entry whose node cannot be opened is listed nevertheless, and its lookup will report why.
                let entry = match listed.entry {
                    Some(entry) => self.enter(since, entry, EntryName { parent: ino, name }).await.ok(),
                    None => None,
                };
                let (ino, kind, cookie) = (listed.ino, listed.kind, listed.cookie);
                has_room = sink.add(&DirEntry { ino, kind, name, cookie, entry });
                any |= has_room;
                if !has_room && let Some(entry) = entry {
                    self.leave(entry.attr.ino, 1).await;
                }
            }
            if !has_room || !was_full {
                return Ok(());
            }
        }
    }
}

/// A moment, as the number of nodes closed until then.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Moment(u64);

/// Entries in transit through a layer.
#[derive(Default)]
struct Batch {
    entries: Vec<Listed>,
    /// All names, one after the other.
    names: Vec<u8>,
}

struct Listed {
    ino: Ino,
    kind: FileKind,
    cookie: u64,
    entry: Option<Entry>,
    name_start: usize,
    name_end: usize,
}

impl Batch {
    /// Enough to make the call below cheap for each entry, and few to forget when the sink takes less.
    const ENTRIES_MAX: usize = 64;

    fn is_full(&self) -> bool {
        self.entries.len() >= Self::ENTRIES_MAX
    }
}

/// Passes on the entries that are visible above.
struct Seen<'a, L> {
    layer: &'a L,
    sink: &'a mut dyn DirSink,
}

impl<L: Layer> DirSink for Seen<'_, L> {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        self.layer.hides(entry.name) || self.sink.add(entry)
    }
}

impl DirSink for Batch {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        if self.is_full() {
            return false;
        }
        let name_start = self.names.len();
        self.names.extend_from_slice(entry.name);
        let (ino, kind, cookie) = (entry.ino, entry.kind, entry.cookie);
        let name_end = self.names.len();
        self.entries.push(Listed { ino, kind, cookie, entry: entry.entry, name_start, name_end });
        true
    }
}

#[async_trait(?Send)]
impl<L: Layer> FileSystem for Stacked<L> {
    fn traits(&self) -> FsTraits {
        let lower = self.lower.traits();
        let outside_files = lower.outside_files && self.layer.passes_files();
        FsTraits { outside_files, ..self.layer.traits(lower) }
    }

    async fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        let place = self.old_place(parent, name)?;
        let since = self.moment();
        self.enter(since, self.lower.lookup(parent, name).await?, place).await
    }

    async fn forget(&self, ino: Ino, lookups: u64) {
        self.leave(ino, lookups).await;
    }

    async fn getattr(&self, ino: Ino, handle: Option<Handle>) -> FsResult<Attr> {
        let node = self.nodes.get(ino)?;
        Ok(self.layer.show(&node, self.layer.getattr(self.at(ino, handle, &node)).await?))
    }

    async fn setattr(&self, ino: Ino, handle: Option<Handle>, changes: SetAttr) -> FsResult<Attr> {
        let node = self.nodes.get(ino)?;
        Ok(self.layer.show(&node, self.layer.setattr(self.at(ino, handle, &node), changes).await?))
    }

    async fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let node = self.nodes.get(ino)?;
        self.layer.readlink(self.at(ino, None, &node)).await
    }

    async fn create(&self, parent: Ino, name: &[u8], new: NewNode, flags: OpenFlags) -> FsResult<(Entry, Opened)> {
        let place = self.new_place(parent, name).await?;
        self.layer.make_room(&self.lower, &self.nodes).await;
        let since = self.moment();
        let made = self.lower.create(parent, name, new, self.layer.open_flags(flags)).await?;
        self.enter_made(since, made, Some(place)).await
    }

    async fn tmpfile(&self, parent: Ino, new: NewNode, flags: OpenFlags, linkable: bool) -> FsResult<(Entry, Opened)> {
        self.nodes.get(parent)?;
        self.layer.make_room(&self.lower, &self.nodes).await;
        let since = self.moment();
        let made = self.lower.tmpfile(parent, new, self.layer.open_flags(flags), linkable).await?;
        self.enter_made(since, made, None).await
    }

    async fn mknod(&self, parent: Ino, name: &[u8], kind: NodeKind, new: NewNode) -> FsResult<Entry> {
        let place = self.new_place(parent, name).await?;
        let since = self.moment();
        self.enter(since, self.lower.mknod(parent, name, kind, new).await?, place).await
    }

    async fn mkdir(&self, parent: Ino, name: &[u8], new: NewNode) -> FsResult<Entry> {
        let place = self.new_place(parent, name).await?;
        let since = self.moment();
        self.enter(since, self.lower.mkdir(parent, name, new).await?, place).await
    }

    async fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], new: NewNode) -> FsResult<Entry> {
        let place = self.new_place(parent, name).await?;
        let since = self.moment();
        self.enter(since, self.lower.symlink(parent, name, target, new).await?, place).await
    }

    async fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        let node = self.nodes.get(ino)?;
        let place = match self.new_place(parent, name).await {
            Ok(place) => place,
            Err(problem) => return Err(self.link_problem(ino, parent).await.unwrap_or(problem)),
        };
        let since = self.moment();
        self.enter(since, self.layer.link(self.at(ino, None, &node), parent, name).await?, place).await
    }

    async fn unlink(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        let place = self.old_place(parent, name)?;
        self.layer.unlink(&self.lower, place).await
    }

    async fn rmdir(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        let place = self.old_place(parent, name)?;
        self.layer.rmdir(&self.lower, place).await
    }

    async fn rename(&self, from: EntryName<'_>, to: EntryName<'_>, mode: RenameMode) -> FsResult<()> {
        let from = self.old_place(from.parent, from.name)?;
        let to = match self.new_place(to.parent, to.name).await {
            // What is renamed is looked for first.
            Err(FsError::NameTooLong) => {
                let entry = self.lower.lookup(from.parent, from.name).await?;
                self.lower.forget(entry.attr.ino, 1).await;
                return Err(FsError::NameTooLong);
            }
            to => to?,
        };
        self.layer.rename(&self.lower, &self.nodes, from, to, mode).await
    }

    async fn open(&self, ino: Ino, flags: OpenFlags) -> FsResult<Opened> {
        let node = self.nodes.get(ino)?;
        self.layer.check_open(self.at(ino, None, &node)).await?;
        let lower_flags = self.layer.open_flags(flags);
        if flags.write {
            self.layer.make_room(&self.lower, &self.nodes).await;
        }
        let opened = self.lower.open(ino, lower_flags).await?;
        if flags.truncate && !lower_flags.truncate {
            let cut = SetAttr { size: Some(0), kill_privileges: true, ..SetAttr::default() };
            if let Err(error) = self.layer.setattr(self.at(ino, opened.handle, &node), cut).await {
                if let Some(handle) = opened.handle {
                    self.lower.release(ino, handle).await?;
                }
                return Err(error);
            }
        }
        Ok(opened)
    }

    async fn release(&self, ino: Ino, handle: Handle) -> FsResult<()> {
        match self.nodes.get(ino) {
            Ok(node) => self.layer.release(self.at(ino, Some(handle), &node)).await,
            Err(_) => self.lower.release(ino, handle).await,
        }
    }

    async fn other_writers(&self, ino: Ino, handle: Option<Handle>) -> FsResult<Writers> {
        self.lower.other_writers(ino, handle).await
    }

    async fn shown_file(&self, ino: Ino) -> FsResult<Option<OutsideName>> {
        let node = self.nodes.get(ino)?;
        match self.layer.shows_file(self.at(ino, None, &node)).await? {
            true => self.lower.shown_file(ino).await,
            false => Ok(None),
        }
    }

    fn outside_file(&self, ino: Ino, handle: Handle) -> Option<Box<dyn Any>> {
        self.layer.passes_files().then(|| self.lower.outside_file(ino, handle)).flatten()
    }

    async fn read(&self, ino: Ino, handle: Option<Handle>, offset: u64, bytes: u32) -> FsResult<Vec<Data>> {
        let node = self.nodes.get(ino)?;
        self.layer.read(self.at(ino, handle, &node), offset, bytes).await
    }

    async fn write(&self, ino: Ino, handle: Option<Handle>, offset: u64, data: Data, mode: WriteMode) -> FsResult<()> {
        let node = self.nodes.get(ino)?;
        self.layer.write(self.at(ino, handle, &node), offset, data, mode).await
    }

    async fn fallocate(&self, ino: Ino, handle: Option<Handle>, range: FileRange, mode: AllocateMode) -> FsResult<()> {
        let node = self.nodes.get(ino)?;
        self.layer.fallocate(self.at(ino, handle, &node), range, mode).await
    }

    async fn lseek(&self, ino: Ino, handle: Option<Handle>, offset: u64, seek: SeekTo) -> FsResult<u64> {
        let node = self.nodes.get(ino)?;
        self.layer.lseek(self.at(ino, handle, &node), offset, seek).await
    }

    async fn readdir(
        &self,
        ino: Ino,
        handle: Option<Handle>,
        cookie: u64,
        attributes: bool,
        sink: &mut dyn DirSink,
    ) -> FsResult<()> {
        self.nodes.get(ino)?;
        match attributes {
            true => self.readdir_plus(ino, handle, cookie, sink).await,
            false => {
                let mut seen = Seen { layer: &self.layer, sink };
                self.lower.readdir(ino, handle, cookie, false, &mut seen).await
            }
        }
    }

    async fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        let node = self.nodes.get(ino)?;
        self.layer.getxattr(self.at(ino, None, &node), name).await
    }

    async fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        let node = self.nodes.get(ino)?;
        self.layer.setxattr(self.at(ino, None, &node), name, value, mode).await
    }

    async fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        let node = self.nodes.get(ino)?;
        self.layer.listxattr(self.at(ino, None, &node)).await
    }

    async fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        let node = self.nodes.get(ino)?;
        self.layer.removexattr(self.at(ino, None, &node), name).await
    }

    async fn fsync(&self, ino: Ino, handle: Option<Handle>, data_only: bool) -> FsResult<()> {
        let node = self.nodes.get(ino)?;
        self.layer.fsync(self.at(ino, handle, &node), data_only).await
    }

    async fn fsyncdir(&self, ino: Ino, handle: Option<Handle>) -> FsResult<()> {
        self.nodes.get(ino)?;
        self.lower.fsyncdir(ino, handle).await
    }

    async fn syncfs(&self) -> FsResult<()> {
        let synced = self.layer.syncfs(&self.lower, &self.nodes).await;
        self.sweep().await;
        synced
    }

    async fn statfs(&self) -> FsResult<StatFs> {
        self.layer.statfs(&self.lower).await
    }

    async fn idle(&self, until: Nanos) -> FsResult<bool> {
        self.layer.idle(&self.lower, &self.nodes, until).await
    }

    async fn drop_caches(&self) -> FsResult<()> {
        self.layer.drop_caches(&self.lower, &self.nodes).await
    }

    async fn close(&self) -> FsResult<()> {
        let mut result = self.layer.before_close(&self.lower, &self.nodes).await;
        self.sweep().await;
        for (ino, node) in self.nodes.all() {
            result = result.and(self.layer.close_node(&self.lower, ino, node).await);
        }
        result.and(self.lower.close().await)
    }

    fn counters(&self) -> Vec<Counter> {
        let mut counters = vec![("inodes_in_use", self.nodes.count())];
        counters.extend(self.layer.counters());
        counters
    }

    fn describe(&self) -> String {
        self.layer.describe()
    }
}
