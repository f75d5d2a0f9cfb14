//! `WeakFs`: a file system that guarantees no more than its interface promises. It does deliberately what a host
//! directory may do.
//!
//! It is the model, with a journal of all changes. After a power cut, each change of data, of size or of a layer's
//! private attribute that no sync has covered is there or not, independently of the others, and a write may be there in
//! part, in whole sectors. Names and other attributes always survive: layers leave those to the file system below, and
//! other explorers cover them.
//!
//! It can also be full, from some change on or for one change, and parts of a file can be lost: reading them fails.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use async_trait::async_trait;

use super::{MemFs, MemFsOptions};
use crate::device::{Counter, Data, DeviceError};
use crate::fs::*;
use crate::rng::Rng;
use crate::rt::Rt;
use crate::units::{Ino, SECTOR_BYTES};

/// One change, or a sync.
#[derive(Clone)]
enum Event {
    Create(Ino, Vec<u8>, NewNode),
    Tmpfile(Ino, NewNode, bool),
    Mknod(Ino, Vec<u8>, NodeKind, NewNode),
    Mkdir(Ino, Vec<u8>, NewNode),
    Symlink(Ino, Vec<u8>, Vec<u8>, NewNode),
    Link(Ino, Ino, Vec<u8>),
    Unlink(Ino, Vec<u8>),
    Rmdir(Ino, Vec<u8>),
    Rename((Ino, Vec<u8>), (Ino, Vec<u8>), RenameMode),
    Attributes(Ino, SetAttr),
    Size(Ino, u64),
    Write(Ino, u64, Data),
    Allocate(Ino, FileRange, AllocateMode),
    SetXattr(Ino, Vec<u8>, Vec<u8>),
    RemoveXattr(Ino, Vec<u8>),
    Sync { ino: Option<Ino>, data_only: bool },
}

impl Event {
    /// The inode whose sync makes the change durable, and whether a sync of data alone does; `None` for changes that
    /// are durable at once.
    fn loose(&self) -> Option<(Ino, bool)> {
        match self {
            Event::Size(ino, _) | Event::Write(ino, ..) | Event::Allocate(ino, ..) => Some((*ino, true)),
            Event::SetXattr(ino, name, _) | Event::RemoveXattr(ino, name) if is_private(name) => Some((*ino, false)),
            _ => None,
        }
    }
}

/// True for private attributes of a layer. Attributes visible above follow the other attributes: the oracle requires
/// that all of them are of one moment.
fn is_private(name: &[u8]) -> bool {
    name.starts_with(b"user.seekless.")
}

/// See the head of the file.
pub struct WeakFs {
    rt: Rt,
    options: MemFsOptions,
    live: Rc<MemFs>,
    journal: RefCell<Vec<Event>>,
    /// Changes so far that need room.
    needs: Cell<u64>,
    /// Numbers of the changes that find no room.
    full: RefCell<std::ops::Range<u64>>,
    /// Sectors of files that cannot be read.
    lost: RefCell<BTreeSet<(Ino, u64)>>,
    /// What the next syncs end with, of a file or of all.
    sync_outcomes: RefCell<VecDeque<FsResult<()>>>,
    /// Before which offset the next write fails, and how.
    write_failure: RefCell<Option<(u64, FsError)>>,
    /// See [`FsTraits::exclusive`].
    exclusive: Cell<bool>,
}

impl WeakFs {
    pub fn new(rt: &Rt, options: MemFsOptions) -> Rc<WeakFs> {
        let live = MemFs::with_options(rt, options);
        WeakFs::around(rt, options, live)
    }

    /// One that already holds the content of `live`.
    pub fn around(rt: &Rt, options: MemFsOptions, live: Rc<MemFs>) -> Rc<WeakFs> {
        let (journal, needs, full, lost) = Default::default();
        let (sync_outcomes, write_failure, exclusive) = Default::default();
        let full = RefCell::new(full);
        let rt = rt.clone();
        Rc::new(WeakFs { rt, options, live, journal, needs, full, lost, sync_outcomes, write_failure, exclusive })
    }

    /// Makes reads fail that touch sector `sector` of a file, counted from its start, until it is written again.
    pub fn lose(&self, ino: Ino, sector: u64) {
        self.lost.borrow_mut().insert((ino, sector));
    }

    /// Makes the next syncs, of a file or of all, end so; those that fail make nothing durable.
    pub fn end_syncs_with(&self, outcomes: impl IntoIterator<Item = FsResult<()>>) {
        *self.sync_outcomes.borrow_mut() = outcomes.into_iter().collect();
    }

    /// Makes the next write before `offset` of any file fail.
    pub fn fail_write_before(&self, offset: u64, error: FsError) {
        *self.write_failure.borrow_mut() = Some((offset, error));
    }

    /// Whether it says that all changes come through it.
    pub fn set_exclusive(&self, exclusive: bool) {
        self.exclusive.set(exclusive);
    }

    /// Length of the journal: moments at which the power can be cut.
    pub fn position(&self) -> usize {
        self.journal.borrow().len()
    }

    /// Syncs so far, of a file or of all.
    pub fn syncs(&self) -> usize {
        self.journal.borrow().iter().filter(|event| matches!(event, Event::Sync { .. })).count()
    }

    /// Changes so far that need room.
    pub fn needs(&self) -> u64 {
        self.needs.get()
    }

    /// Makes the changes with these `numbers`, counted from 0, find no room.
    pub fn fill(&self, numbers: std::ops::Range<u64>) {
        *self.full.borrow_mut() = numbers;
    }

    /// A state that a power cut at `position` may leave; `seed` chooses among all possible ones. With seed 0 it is
    /// everything, with seed 1 only what was synced.
    pub async fn cut(&self, position: usize, seed: u64) -> FsResult<Rc<MemFs>> {
        let events: Vec<Event> = self.journal.borrow()[..position].to_vec();
        let mut rng = Rng::new(seed ^ (position as u64) << 20);
        // Few or most of them.
        let kept_of_8 = rng.below(9);
        let left = MemFs::with_options(&self.rt, self.options);
        for (index, event) in events.iter().enumerate() {
            let Some((owner, is_data)) = event.loose() else {
                apply(&left, event.clone()).await?;
                continue;
            };
            let covers = |sync: &Event| match sync {
                Event::Sync { ino, data_only } => ino.is_none_or(|ino| ino == owner) && (is_data || !data_only),
                _ => false,
            };
            let durable = events[index..].iter().any(covers);
            let keep = match seed {
                _ if durable => true,
                0 => true,
                1 => false,
                _ => rng.chance(kept_of_8, 8),
            };
            match event {
                Event::Write(ino, offset, data) if !durable && seed > 1 && keep && rng.chance(1, 3) => {
                    let sectors = rng.below(data.len() as u64 / SECTOR_BYTES + 1);
                    let part = data.slice(0..(sectors * SECTOR_BYTES) as usize);
                    if !part.is_empty() {
                        apply(&left, Event::Write(*ino, *offset, part)).await?;
                    }
                }
                event if keep => apply(&left, event.clone()).await?,
                _ => {}
            }
        }
        Ok(left)
    }

    /// Counts a change that needs room.
    fn need(&self) -> FsResult<()> {
        let number = self.needs.get();
        self.needs.set(number + 1);
        match self.full.borrow().contains(&number) {
            true => Err(FsError::NoSpace),
            false => Ok(()),
        }
    }

    /// How the sync that begins now ends.
    fn outcome(&self) -> FsResult<()> {
        self.sync_outcomes.borrow_mut().pop_front().unwrap_or(Ok(()))
    }

    fn note(&self, event: Event) {
        self.journal.borrow_mut().push(event);
    }
}

/// Applies `event` to `fs`. Lookups are not given back: they do not matter here.
async fn apply(fs: &Rc<MemFs>, event: Event) -> FsResult<()> {
    match event {
        Event::Create(parent, name, new) => fs.create(parent, &name, new, OpenFlags::READ_WRITE).await.map(drop),
        Event::Tmpfile(parent, new, linkable) => {
            fs.tmpfile(parent, new, OpenFlags::READ_WRITE, linkable).await.map(drop)
        }
        Event::Mknod(parent, name, kind, new) => fs.mknod(parent, &name, kind, new).await.map(drop),
        Event::Mkdir(parent, name, new) => fs.mkdir(parent, &name, new).await.map(drop),
        Event::Symlink(parent, name, target, new) => fs.symlink(parent, &name, &target, new).await.map(drop),
        Event::Link(ino, parent, name) => fs.link(ino, parent, &name).await.map(drop),
        Event::Unlink(parent, name) => fs.unlink(parent, &name).await,
        Event::Rmdir(parent, name) => fs.rmdir(parent, &name).await,
        Event::Rename(from, to, mode) => {
            let (from, to) = (EntryName { parent: from.0, name: &from.1 }, EntryName { parent: to.0, name: &to.1 });
            fs.rename(from, to, mode).await
        }
        Event::Attributes(ino, changes) => fs.setattr(ino, None, changes).await.map(drop),
        Event::Size(ino, size) => {
            fs.setattr(ino, None, SetAttr { size: Some(size), ..SetAttr::default() }).await.map(drop)
        }
        Event::Write(ino, offset, data) => fs.write(ino, None, offset, data, WriteMode::default()).await,
        Event::Allocate(ino, range, mode) => fs.fallocate(ino, None, range, mode).await,
        Event::SetXattr(ino, name, value) => fs.setxattr(ino, &name, &value, XattrMode::Set).await,
        // It may never have been set.
        Event::RemoveXattr(ino, name) => match fs.removexattr(ino, &name).await {
            Err(FsError::NoAttribute) => Ok(()),
            other => other,
        },
        Event::Sync { .. } => Ok(()),
    }
}

#[async_trait(?Send)]
impl FileSystem for WeakFs {
    /// Its files can change by other ways, as in a host directory.
    fn traits(&self) -> FsTraits {
        FsTraits { name: "loose", exclusive: self.exclusive.get(), ..self.live.traits() }
    }

    async fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        self.live.lookup(parent, name).await
    }

    async fn forget(&self, ino: Ino, lookups: u64) {
        self.live.forget(ino, lookups).await;
    }

    async fn getattr(&self, ino: Ino, handle: Option<Handle>) -> FsResult<Attr> {
        self.live.getattr(ino, handle).await
    }

    async fn setattr(&self, ino: Ino, handle: Option<Handle>, changes: SetAttr) -> FsResult<Attr> {
        let attr = self.live.setattr(ino, handle, changes).await?;
        // A change of size discards what other changes do not.
        if let Some(size) = changes.size {
            self.note(Event::Size(ino, size));
        }
        self.note(Event::Attributes(ino, SetAttr { size: None, ..changes }));
        Ok(attr)
    }

    async fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.live.readlink(ino).await
    }

    async fn create(&self, parent: Ino, name: &[u8], new: NewNode, flags: OpenFlags) -> FsResult<(Entry, Opened)> {
        self.need()?;
        let made = self.live.create(parent, name, new, flags).await?;
        self.note(Event::Create(parent, name.to_vec(), new));
        Ok(made)
    }

    async fn tmpfile(&self, parent: Ino, new: NewNode, flags: OpenFlags, linkable: bool) -> FsResult<(Entry, Opened)> {
        self.need()?;
        let made = self.live.tmpfile(parent, new, flags, linkable).await?;
        self.note(Event::Tmpfile(parent, new, linkable));
        Ok(made)
    }

    async fn mknod(&self, parent: Ino, name: &[u8], kind: NodeKind, new: NewNode) -> FsResult<Entry> {
        self.need()?;
        let made = self.live.mknod(parent, name, kind, new).await?;
        self.note(Event::Mknod(parent, name.to_vec(), kind, new));
        Ok(made)
    }

    async fn mkdir(&self, parent: Ino, name: &[u8], new: NewNode) -> FsResult<Entry> {
        self.need()?;
        let made = self.live.mkdir(parent, name, new).await?;
        self.note(Event::Mkdir(parent, name.to_vec(), new));
        Ok(made)
    }

    async fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], new: NewNode) -> FsResult<Entry> {
        self.need()?;
        let made = self.live.symlink(parent, name, target, new).await?;
        self.note(Event::Symlink(parent, name.to_vec(), target.to_vec(), new));
        Ok(made)
    }

    async fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        self.need()?;
        let made = self.live.link(ino, parent, name).await?;
        self.note(Event::Link(ino, parent, name.to_vec()));
        Ok(made)
    }

    async fn unlink(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.live.unlink(parent, name).await?;
        self.note(Event::Unlink(parent, name.to_vec()));
        Ok(())
    }

    async fn rmdir(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.live.rmdir(parent, name).await?;
        self.note(Event::Rmdir(parent, name.to_vec()));
        Ok(())
    }

    async fn rename(&self, from: EntryName<'_>, to: EntryName<'_>, mode: RenameMode) -> FsResult<()> {
        self.live.rename(from, to, mode).await?;
        let owned = |place: EntryName<'_>| (place.parent, place.name.to_vec());
        self.note(Event::Rename(owned(from), owned(to), mode));
        Ok(())
    }

    async fn other_writers(&self, ino: Ino, handle: Option<Handle>) -> FsResult<Writers> {
        self.live.other_writers(ino, handle).await
    }

    async fn open(&self, ino: Ino, flags: OpenFlags) -> FsResult<Opened> {
        let opened = self.live.open(ino, flags).await?;
        if flags.truncate {
            self.note(Event::Size(ino, 0));
        }
        Ok(opened)
    }

    async fn release(&self, ino: Ino, handle: Handle) -> FsResult<()> {
        self.live.release(ino, handle).await
    }

    async fn read(&self, ino: Ino, handle: Option<Handle>, offset: u64, bytes: u32) -> FsResult<Vec<Data>> {
        let end = offset.saturating_add(bytes.into()).div_ceil(SECTOR_BYTES);
        let lost = self.lost.borrow().range((ino, offset / SECTOR_BYTES)..(ino, end)).next().copied();
        if let Some((_, sector)) = lost {
            let (at, cause) = (crate::units::Sector(sector), format!("sector {sector} of inode {ino} is lost"));
            return Err(DeviceError::Io { operation: "read", at, bytes: bytes.into(), cause }.into());
        }
        self.live.read(ino, handle, offset, bytes).await
    }

    async fn write(&self, ino: Ino, handle: Option<Handle>, offset: u64, data: Data, mode: WriteMode) -> FsResult<()> {
        self.need()?;
        let failure = self.write_failure.borrow_mut().take_if(|(end, _)| offset < *end);
        if let Some((_, error)) = failure {
            return Err(error);
        }
        self.live.write(ino, handle, offset, data.clone(), mode).await?;
        let sectors = offset / SECTOR_BYTES..(offset + data.len() as u64).div_ceil(SECTOR_BYTES);
        self.lost.borrow_mut().retain(|(lost, sector)| *lost != ino || !sectors.contains(sector));
        self.note(Event::Write(ino, offset, data));
        Ok(())
    }

    async fn fallocate(&self, ino: Ino, handle: Option<Handle>, range: FileRange, mode: AllocateMode) -> FsResult<()> {
        self.need()?;
        self.live.fallocate(ino, handle, range, mode).await?;
        self.note(Event::Allocate(ino, range, mode));
        Ok(())
    }

    async fn lseek(&self, ino: Ino, handle: Option<Handle>, offset: u64, seek: SeekTo) -> FsResult<u64> {
        self.live.lseek(ino, handle, offset, seek).await
    }

    async fn readdir(
        &self,
        ino: Ino,
        handle: Option<Handle>,
        cookie: u64,
        attributes: bool,
        sink: &mut dyn DirSink,
    ) -> FsResult<()> {
        self.live.readdir(ino, handle, cookie, attributes, sink).await
    }

    async fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.live.getxattr(ino, name).await
    }

    async fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        self.need()?;
        self.live.setxattr(ino, name, value, mode).await?;
        self.note(Event::SetXattr(ino, name.to_vec(), value.to_vec()));
        Ok(())
    }

    async fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        self.live.listxattr(ino).await
    }

    async fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        self.live.removexattr(ino, name).await?;
        self.note(Event::RemoveXattr(ino, name.to_vec()));
        Ok(())
    }

    async fn fsync(&self, ino: Ino, handle: Option<Handle>, data_only: bool) -> FsResult<()> {
        self.outcome()?;
        self.live.fsync(ino, handle, data_only).await?;
        self.note(Event::Sync { ino: Some(ino), data_only });
        Ok(())
    }

    async fn fsyncdir(&self, ino: Ino, handle: Option<Handle>) -> FsResult<()> {
        self.live.fsyncdir(ino, handle).await
    }

    async fn syncfs(&self) -> FsResult<()> {
        self.outcome()?;
        self.note(Event::Sync { ino: None, data_only: false });
        self.live.syncfs().await
    }

    async fn statfs(&self) -> FsResult<StatFs> {
        self.live.statfs().await
    }

    async fn close(&self) -> FsResult<()> {
        self.syncfs().await
    }

    fn counters(&self) -> Vec<Counter> {
        self.live.counters()
    }

    fn describe(&self) -> String {
        "loose".to_string()
    }
}
