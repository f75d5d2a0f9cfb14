//! A lower file system of which single operations fail, and which notes what is written to it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::device::Data;
use crate::fs::{Attr, EntryName, Fs, FsError, FsResult, RenameMode, WriteMode};
use crate::layer::{At, Layer, Nodes, Stacked};
use crate::rt::Rt;
use crate::units::{Ino, Nanos};

/// What fails.
#[derive(Default)]
pub(in crate::layer) struct Trouble {
    /// Writes to this file.
    pub write: Cell<Option<Ino>>,
    /// Bytes by which files may still grow. A write that wants more writes what fits, and finds no space for the rest, as on a host.
    pub room: Cell<Option<u64>>,
    /// The next reading of an attribute.
    pub getxattr: RefCell<Option<FsError>>,
    /// The next time that a file comes into use, as by a lookup.
    pub open_node: RefCell<Option<FsError>>,
    /// Renames that must not replace anything.
    pub no_replace: Cell<bool>,
    /// A file of this name keeps it, as an immutable one does.
    pub fixed: Cell<&'static [u8]>,
    /// This directory takes new files, and keeps all, as one to which names are only added.
    pub keeps_names: Cell<Option<Ino>>,
    /// This file, of this name, can be neither removed nor opened, as an immutable one that is opened for writing.
    pub immutable: Cell<Option<(Ino, &'static [u8])>>,
    /// Renames and removals take this long after they have happened.
    pub slow_names: RefCell<Option<(Rt, Nanos)>>,
    /// Writing removes set-user-id and set-group-id, as on a host for a daemon that is not root.
    pub writes_take_privileges: Cell<bool>,
    /// The longest write to each file so far.
    pub longest_writes: RefCell<BTreeMap<Ino, usize>>,
}

impl Trouble {
    pub(in crate::layer) async fn over(lower: Fs) -> Rc<Stacked<Trouble>> {
        Rc::new(Stacked::new(lower, Trouble::default()).await.expect("stacked"))
    }

    async fn pause(&self) {
        let slow = self.slow_names.borrow().clone();
        if let Some((rt, nanos)) = slow {
            rt.sleep(nanos).await;
        }
    }

    fn keeps(&self, place: EntryName<'_>) -> bool {
        self.keeps_names.get() == Some(place.parent)
    }

    pub(in crate::layer) fn longest_write_to(&self, ino: Ino) -> usize {
        self.longest_writes.borrow().get(&ino).copied().unwrap_or(0)
    }
}

impl Layer for Trouble {
    type Node = ();

    const NAME: &'static str = "trouble";

    async fn open_node(&self, _lower: &Fs, _attr: &Attr, _place: Option<EntryName<'_>>) -> FsResult<()> {
        self.open_node.take().map_or(Ok(()), Err)
    }

    async fn check_open(&self, at: At<'_, ()>) -> FsResult<()> {
        match self.immutable.get().is_some_and(|(ino, _)| ino == at.ino) {
            true => Err(FsError::NotPermitted),
            false => Ok(()),
        }
    }

    async fn write(&self, at: At<'_, ()>, offset: u64, data: Data, mode: WriteMode) -> FsResult<()> {
        if self.write.get() == Some(at.ino) {
            return Err(FsError::FileTooLarge);
        }
        let longest = self.longest_write_to(at.ino).max(data.len());
        self.longest_writes.borrow_mut().insert(at.ino, longest);
        let kill_privileges = mode.kill_privileges || self.writes_take_privileges.get();
        let mode = WriteMode { kill_privileges, ..mode };
        if let Some(room) = self.room.get() {
            let end = offset + data.len() as u64;
            let size = at.lower.getattr(at.ino, None).await?.size;
            let growth = end.saturating_sub(size);
            if growth > room {
                self.room.set(Some(0));
                let fits = (data.len() as u64 + room).saturating_sub(growth);
                at.lower.write(at.ino, at.handle, offset, data.slice(0..fits as usize), mode).await?;
                return Err(FsError::NoSpace);
            }
            self.room.set(Some(room - growth));
        }
        at.lower.write(at.ino, at.handle, offset, data, mode).await
    }

    async fn getxattr(&self, at: At<'_, ()>, name: &[u8]) -> FsResult<Vec<u8>> {
        match self.getxattr.take() {
            Some(error) => Err(error),
            None => at.lower.getxattr(at.ino, name).await,
        }
    }

    async fn rename(
        &self,
        lower: &Fs,
        _nodes: &Nodes<()>,
        from: EntryName<'_>,
        to: EntryName<'_>,
        mode: RenameMode,
    ) -> FsResult<()> {
        let renamed = match mode {
            _ if [from, to].iter().any(|place| place.name == self.fixed.get() || self.keeps(*place)) => {
                Err(FsError::NotPermitted)
            }
            RenameMode::NoReplace if self.no_replace.get() => Err(FsError::Loop),
            _ => lower.rename(from, to, mode).await,
        };
        self.pause().await;
        renamed
    }

    async fn unlink(&self, lower: &Fs, place: EntryName<'_>) -> FsResult<()> {
        let is_immutable = self.immutable.get().is_some_and(|(_, name)| name == place.name);
        let removed = match self.keeps(place) || is_immutable {
            true => Err(FsError::NotPermitted),
            false => lower.unlink(place.parent, place.name).await,
        };
        self.pause().await;
        removed
    }
}
