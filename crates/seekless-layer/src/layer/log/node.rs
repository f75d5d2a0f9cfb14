//! An inode in use, and a regular file in one operation.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::rc::Rc;

use super::file::{File, Form};
use crate::device::Data;
use crate::fs::{Attr, Fs, FsError, FsResult, Handle, SetAttr, WriteMode, XATTR_CAPABILITY};
use crate::layer::change::Passage;
use crate::layer::read_lower;
use crate::rt::{Event, Gate};
use crate::units::Ino;

/// Set-user-id and set-group-id.
pub(super) const SET_ID_BITS: u16 = 0o6000;

/// The layer's state of an inode in use.
pub struct Node {
    pub(super) ino: Ino,
    /// Distinguishes it from every other node that this layer has ever had.
    pub(super) serial: u64,
    /// `None` for anything but a regular file.
    file: Option<Rc<RefCell<File>>>,
    /// Held by operations that move records: staging, truncating, compacting.
    pub(super) relocation_gate: Gate,
    committing: CommitTurns,
    /// Held from reading attributes to writing them back, and from changing attributes below to recording that: so no
    /// change gets lost. Its holder awaits only the file system below.
    pub(super) attributes: Gate,
    /// For changes of a file that is passed through.
    pub(super) plain_changes: Passage,
    /// A lower handle that can write, for as long as there is something to write.
    pub(super) writer: Cell<Option<Writer>>,
    /// The file is known to have no capabilities that a change would have to remove.
    pub(super) is_plain_program: Cell<bool>,
}

/// A lower handle that the layer may still use for writing after its user has released it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Writer {
    pub(super) handle: Handle,
    /// The user has released it: the layer must release it.
    pub(super) is_ours: bool,
}

/// A regular file in one operation: the layer's state of it, and how to reach it on the file system below.
#[derive(Clone, Copy)]
pub(super) struct OpenFile<'a> {
    pub(super) lower: &'a Fs,
    /// The caller's handle there, if the operation has one.
    pub(super) handle: Option<Handle>,
    pub(super) node: &'a Rc<Node>,
    pub(super) state: &'a Rc<RefCell<File>>,
}

/// One commit of a file at a time. Like a [`Gate`], but a turn can be kept together with its file.
#[derive(Default)]
struct CommitTurns {
    taken: Cell<bool>,
    ended: Event,
}

/// A turn to commit a file, which no other task then commits.
pub(super) struct CommitTurn {
    lower: Fs,
    handle: Option<Handle>,
    node: Rc<Node>,
    state: Rc<RefCell<File>>,
}

impl Node {
    /// The node of something other than a regular file.
    pub(super) fn other(ino: Ino, serial: u64) -> Node {
        Node {
            ino,
            serial,
            file: None,
            relocation_gate: Gate::new(),
            committing: CommitTurns::default(),
            attributes: Gate::new(),
            plain_changes: Passage::default(),
            writer: Cell::new(None),
            is_plain_program: Cell::new(false),
        }
    }

    /// The node of a regular file.
    pub(super) fn regular(ino: Ino, serial: u64, file: File) -> Node {
        Node { file: Some(Rc::new(RefCell::new(file))), ..Node::other(ino, serial) }
    }

    /// The layer's state of a regular file; `None` for anything else.
    pub(super) fn file(&self) -> Option<&RefCell<File>> {
        self.file.as_deref()
    }

    /// The file, for an operation that has no handle; `None` for anything but a regular file.
    pub(super) fn open<'a>(self: &'a Rc<Node>, lower: &'a Fs) -> Option<OpenFile<'a>> {
        self.file.as_ref().map(|state| OpenFile { lower, handle: None, node: self, state })
    }

    /// Whether the lower file is what users see. One that is truncated to nothing becomes a file of the layer.
    pub(super) fn is_passed_through(&self) -> bool {
        self.file().is_none_or(|file| matches!(file.borrow().form, Form::Plain(_)))
    }

    /// True when something is only in memory.
    pub(super) fn has_changes(&self) -> bool {
        self.file().is_some_and(|file| file.borrow().has_changes())
    }

    /// The file has been changed through this handle.
    pub(super) fn note_rewriter(&self, handle: Option<Handle>) {
        let Some(file) = self.file() else { return };
        if let (Some(rewriters), Some(handle)) = (&mut file.borrow_mut().rewriters, handle) {
            rewriters.insert(handle);
        }
    }

    /// The handle is closed. Returns whether it is the last through which the file got new content after it was truncated to
    /// nothing, and something is only in memory.
    pub(super) fn end_rewriting(&self, handle: Handle) -> bool {
        let Some(file) = self.file() else { return false };
        let mut file = file.borrow_mut();
        let is_last = file.rewriters.as_mut().is_some_and(|others| others.remove(&handle) && others.is_empty());
        if is_last {
            file.rewriters = None;
        }
        is_last && file.has_changes()
    }

    /// True when something has to be written below, now or to confirm it later.
    pub(super) fn wants_writer(&self) -> bool {
        self.file().is_some_and(|file| {
            let file = file.borrow();
            file.has_changes() || file.is_provisional
        })
    }

    /// True when something has to be written or waited for.
    pub(super) fn is_unsettled(&self) -> bool {
        self.file().is_some_and(|file| {
            let file = file.borrow();
            file.stopped.is_none()
                && (file.has_changes() || file.is_provisional || file.durable_generation < file.generation)
        })
    }

    /// True while a task commits the file or moves its records. It continues with this node, so the node must stay that of
    /// its inode.
    pub(super) fn is_busy(&self) -> bool {
        self.committing.taken.get() || self.relocation_gate.is_held()
    }
}

impl<'a> OpenFile<'a> {
    /// The same file, reached through `handle`.
    pub(super) fn through(self, handle: Option<Handle>) -> OpenFile<'a> {
        OpenFile { handle, ..self }
    }

    /// The same file, reached by its inode alone: for work that is not the caller's own.
    pub(super) fn by_inode(self) -> OpenFile<'a> {
        self.through(None)
    }

    pub(super) fn ino(&self) -> Ino {
        self.node.ino
    }

    pub(super) fn borrow(&self) -> Ref<'a, File> {
        self.state.borrow()
    }

    pub(super) fn borrow_mut(&self) -> RefMut<'a, File> {
        self.state.borrow_mut()
    }

    /// Attributes of the lower file.
    pub(super) async fn getattr(&self) -> FsResult<Attr> {
        self.lower.getattr(self.ino(), self.handle).await
    }

    pub(super) async fn setattr(&self, changes: SetAttr) -> FsResult<Attr> {
        self.lower.setattr(self.ino(), self.handle, changes).await
    }

    /// Bytes of the lower file, fewer at its end.
    pub(super) async fn read(&self, offset: u64, bytes: u32) -> FsResult<Vec<u8>> {
        read_lower(self.lower, self.ino(), self.handle, offset, bytes).await
    }

    /// Writes to the lower file: through the handle of a writer, or without one.
    pub(super) async fn write(&self, offset: u64, data: Data) -> FsResult<()> {
        let handle = self.node.writer.get().map(|writer| writer.handle);
        self.lower.write(self.ino(), handle, offset, data, WriteMode::default()).await
    }

    pub(super) async fn fsync(&self, data_only: bool) -> FsResult<()> {
        self.lower.fsync(self.ino(), self.handle, data_only).await
    }

    /// Waits for the turn to commit the file.
    pub(super) async fn commit_turn(self) -> CommitTurn {
        while self.node.committing.taken.replace(true) {
            self.node.committing.ended.wait().await;
        }
        CommitTurn {
            lower: self.lower.clone(),
            handle: self.handle,
            node: self.node.clone(),
            state: self.state.clone(),
        }
    }
}

impl CommitTurn {
    pub(super) fn node(&self) -> &Rc<Node> {
        &self.node
    }

    pub(super) fn file(&self) -> OpenFile<'_> {
        OpenFile { lower: &self.lower, handle: self.handle, node: &self.node, state: &self.state }
    }
}

/// False when the lower file certainly has no capability. After any other error of reading it there may be one.
pub(super) async fn may_have_capability(lower: &Fs, ino: Ino) -> bool {
    let read = lower.getxattr(ino, XATTR_CAPABILITY).await;
    !matches!(read, Err(FsError::NoAttribute | FsError::Unsupported))
}

/// False when writing to the lower file certainly removes no privilege of those who run it: for a daemon that is not root, a
/// write removes set-user-id and set-group-id too.
pub(super) async fn may_have_privileges(lower: &Fs, ino: Ino) -> bool {
    let sets_no_id = lower.getattr(ino, None).await.is_ok_and(|attr| attr.permissions & SET_ID_BITS == 0);
    !sets_no_id || may_have_capability(lower, ino).await
}

impl Drop for CommitTurn {
    fn drop(&mut self) {
        // An abandoned commit becomes part of the next one.
        self.state.borrow_mut().unprepare();
        let was_taken = self.node.committing.taken.replace(false);
        debug_assert!(was_taken, "P1: a turn to commit ends once");
        self.node.committing.ended.notify();
    }
}
