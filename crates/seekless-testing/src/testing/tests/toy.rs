//! A toy: the model, made durable by writing all of it to one of two slots in turn. It is correct, and can be given
//! many bugs, each of which a harness must find.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use async_trait::async_trait;

use crate::codec::{crc32c, get_at, put_at};
use crate::device::{Buf, Data, Device, DeviceError, WriteFlags};
use crate::fs::*;
use crate::rt::{Gate, Rt};
use crate::testing::tree::NodeState;
use crate::testing::{Contents, FsUnderTest, MemFs, MemFsOptions, Tree};
use crate::units::{Ino, SECTOR_BYTES, Sector, WallTime};

/// Bug of a toy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bug {
    None,
    /// A commit returns before its last flush.
    AckBeforeFlush,
    /// Header and body are written together and the body's checksum is not checked.
    TornBodyAccepted,
    /// Every commit overwrites the same slot.
    OneSlot,
    /// Rename over an existing file unlinks that first, and commits in between.
    RenameInTwoSteps,
    FsyncDirDoesNothing,
    FsyncDoesNothing,
    /// Changes made during a commit count as committed.
    DirtyFlagClearedLate,
    XattrsNotStored,
    /// A background commit stores sizes, and zeroes for new data.
    SizeBeforeData,
    /// A background commit omits changes under `/late`.
    OutOfOrder,
    /// Mounting clears the slot it has just loaded, and then rewrites it.
    RecoveryOverwrites,
    /// After a failed flush the next fsync finds nothing to do and succeeds.
    FailedFlushForgotten,
    /// After a write that failed with `NoSpace`, the next fsync finds nothing to do and succeeds.
    NoSpaceForgotten,
    /// A full device leaves an operation half done: a write extends the file and then fails.
    NoSpaceHalfDone,
    /// Link counts are not stored but taken as 1.
    HardLinksSplit,
    /// Truncation keeps the old bytes, which come back when the file grows.
    StaleBytesAfterTruncate,
    /// The length in the header is trusted.
    LengthBelieved,
    /// Damage makes recovery loop.
    LoopsOnDamage,
    /// Damage makes recovery panic.
    PanicsOnDamage,
    /// A flipped bit in a file goes unnoticed.
    NoChecksum,
    /// ctime does not change with a new link.
    LinkKeepsCtime,
    /// Two writes of one commit overlap while both are under way.
    OverlappingWrites,
}

pub(super) struct Toy {
    pub(super) bug: Bug,
    /// Commit in the background after this many changes.
    pub(super) commit_every: u32,
}

impl Toy {
    pub(super) fn right() -> Toy {
        Toy::wrong(Bug::None)
    }

    pub(super) fn wrong(bug: Bug) -> Toy {
        Toy { bug, commit_every: 3 }
    }
}

const MAGIC: u64 = 0x0079_6f74;

/// Where the slots are.
#[derive(Clone, Copy)]
struct Slots {
    block_bytes: u64,
    body_bytes: u64,
}

impl Slots {
    fn of(device: &Device) -> Slots {
        let geometry = device.geometry();
        let block_bytes = u64::from(geometry.block_bytes).max(4096);
        Slots { block_bytes, body_bytes: (geometry.bytes() - 2 * block_bytes) / 2 / block_bytes * block_bytes }
    }

    fn header(self, slot: u64) -> Sector {
        Sector(slot * self.block_bytes / SECTOR_BYTES)
    }

    fn body(self, slot: u64) -> Sector {
        Sector((2 * self.block_bytes + slot * self.body_bytes) / SECTOR_BYTES)
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// The size, followed by each run of data with its offset.
fn put_contents(out: &mut Vec<u8>, contents: &Contents) {
    put_number(out, contents.size());
    let mut at = 0;
    while let Some(data) = contents.next_data(at) {
        at = contents.next_hole(data).unwrap_or(contents.size());
        put_number(out, data);
        let bytes: Vec<u8> = contents.read(data, at - data).iter().flat_map(|piece| piece.to_vec()).collect();
        put_bytes(out, &bytes);
    }
    put_number(out, u64::MAX);
}

/// Times of an inode: mtime and ctime.
type Times = BTreeMap<Ino, (WallTime, WallTime)>;

fn put_time(out: &mut Vec<u8>, time: WallTime) {
    put_number(out, time.seconds as u64);
    put_number(out, u64::from(time.nanos));
}

fn encode(tree: &Tree, times: &Times, bug: Bug) -> Vec<u8> {
    let mut out = Vec::new();
    put_number(&mut out, tree.nodes.len() as u64);
    for (ino, node) in &tree.nodes {
        let NodeState { kind, permissions, uid, gid, device, .. } = *node;
        for number in [
            ino.0,
            u64::from(kind.mode_bits()),
            u64::from(permissions),
            u64::from(uid),
            u64::from(gid),
            u64::from(device),
        ] {
            put_number(&mut out, number);
        }
        let (mtime, ctime) = times.get(ino).copied().unwrap_or_default();
        put_time(&mut out, mtime);
        put_time(&mut out, ctime);
        put_bytes(&mut out, &node.target);
        put_contents(&mut out, &node.contents);
        let xattrs = if bug == Bug::XattrsNotStored { BTreeMap::new() } else { node.xattrs.clone() };
        put_number(&mut out, xattrs.len() as u64);
        for (name, value) in &xattrs {
            put_bytes(&mut out, name);
            put_bytes(&mut out, value);
        }
        put_number(&mut out, node.entries.len() as u64);
        for (name, child) in &node.entries {
            put_bytes(&mut out, name);
            put_number(&mut out, child.0);
        }
    }
    out
}

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Input<'_> {
    fn damaged<T>(&self) -> FsResult<T> {
        Err(FsError::corrupt("toy body", self.at, "it does not decode"))
    }

    fn number(&mut self) -> FsResult<u64> {
        let Some(number) = get_at(self.bytes, self.at) else { return self.damaged() };
        self.at += 8;
        Ok(number)
    }

    fn slice(&mut self) -> FsResult<Vec<u8>> {
        let length = self.number()? as usize;
        let Some(bytes) = self.at.checked_add(length).and_then(|end| self.bytes.get(self.at..end)) else {
            return self.damaged();
        };
        self.at += length;
        Ok(bytes.to_vec())
    }
}

impl Input<'_> {
    fn contents(&mut self) -> FsResult<Contents> {
        let mut contents = Contents::default();
        let size = self.number()?;
        loop {
            let offset = self.number()?;
            if offset == u64::MAX {
                break;
            }
            contents.write(offset, &self.slice()?);
        }
        contents.resize(size);
        Ok(contents)
    }
}

fn decode(bytes: &[u8]) -> FsResult<(Tree, Times)> {
    let mut input = Input { bytes, at: 0 };
    let mut times = Times::new();
    let mut tree = Tree::default();
    for _ in 0..input.number()? {
        let ino = Ino(input.number()?);
        let Some(kind) = FileKind::from_mode(input.number()? as u32) else { return input.damaged() };
        let (permissions, uid, gid, device) =
            (input.number()? as u16, input.number()? as u32, input.number()? as u32, input.number()? as u32);
        let mut time = || Ok::<_, FsError>(WallTime { seconds: input.number()? as i64, nanos: input.number()? as u32 });
        times.insert(ino, (time()?, time()?));
        let (target, contents) = (input.slice()?, input.contents()?);
        let mut xattrs = BTreeMap::new();
        for _ in 0..input.number()? {
            let name = input.slice()?;
            xattrs.insert(name, input.slice()?);
        }
        let mut entries = BTreeMap::new();
        for _ in 0..input.number()? {
            let name = input.slice()?;
            entries.insert(name, Ino(input.number()?));
        }
        let is_unreadable = false;
        let node = NodeState {
            kind,
            permissions,
            links: 0,
            uid,
            gid,
            device,
            xattrs,
            contents,
            is_unreadable,
            target,
            entries,
        };
        tree.nodes.insert(ino, node);
    }
    Ok((tree, times))
}

/// A valid slot.
struct Loaded {
    slot: u64,
    serial: u64,
    tree: Tree,
    times: Times,
}

async fn load(device: &Device, bug: Bug) -> FsResult<Vec<Loaded>> {
    let slots = Slots::of(device);
    let mut found = Vec::new();
    for slot in 0..2 {
        let header = device.read(slots.header(slot), Buf::dirty(slots.block_bytes as usize)).await?;
        let number = |offset| get_at::<u64>(&header, offset).unwrap_or(0);
        let (magic, serial, length, body_crc, header_crc) = (number(0), number(8), number(16), number(24), number(32));
        if bug == Bug::LengthBelieved && magic == MAGIC && length < 1 << 28 {
            // Allocates before it validates.
            drop(std::hint::black_box(vec![0u8; length as usize]));
        }
        if magic != MAGIC
            || (u64::from(crc32c(&header[..32])) != header_crc && bug != Bug::NoChecksum)
            || length > slots.body_bytes
        {
            continue;
        }
        let padded = length.div_ceil(slots.block_bytes) * slots.block_bytes;
        let mut body = Vec::new();
        let piece_bytes = u64::from(device.geometry().request_bytes_max);
        while (body.len() as u64) < padded {
            let take = (padded - body.len() as u64).min(piece_bytes);
            let at = slots.body(slot) + body.len() as u64 / SECTOR_BYTES;
            body.extend_from_slice(&device.read(at, Buf::dirty(take as usize)).await?);
        }
        if u64::from(crc32c(&body[..length as usize])) != body_crc {
            match bug {
                Bug::NoChecksum | Bug::TornBodyAccepted => {}
                Bug::PanicsOnDamage => panic!("a toy that panics"),
                Bug::LoopsOnDamage => loop {
                    device.read(slots.header(slot), Buf::dirty(slots.block_bytes as usize)).await?;
                },
                _ => continue,
            }
        }
        if let Ok((tree, times)) = decode(&body[..length as usize]) {
            found.push(Loaded { slot, serial, tree, times });
        }
    }
    found.sort_by_key(|loaded| loaded.serial);
    Ok(found)
}

struct ToyFs {
    device: Device,
    rt: Rt,
    model: Rc<MemFs>,
    bug: Bug,
    commit_every: u32,
    changes: Cell<u32>,
    dirty: Cell<bool>,
    committing: Gate,
    next_slot: Cell<u64>,
    next_serial: Cell<u64>,
    committed: RefCell<Tree>,
    stopped: RefCell<Option<String>>,
    closed: Cell<bool>,
    /// Size of each file at its last truncation, and the bytes cut off.
    cut_off: RefCell<BTreeMap<Ino, (u64, Vec<u8>)>>,
    this: RefCell<std::rc::Weak<ToyFs>>,
}

impl ToyFs {
    async fn tree(&self) -> FsResult<Tree> {
        let model: Fs = self.model.clone();
        Tree::of(model).await
    }

    async fn changed(&self) {
        self.dirty.set(true);
        self.changes.set(self.changes.get() + 1);
        if self.changes.get().is_multiple_of(self.commit_every)
            && let Some(this) = self.this.borrow().upgrade()
        {
            self.rt.spawn(async move {
                // The error is recorded, and the next fsync reports it.
                let _ = this.commit(false).await;
            });
        }
    }

    async fn put(&self, at: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        let piece_bytes = self.device.geometry().request_bytes_max as usize;
        for (index, piece) in bytes.chunks(piece_bytes).enumerate() {
            let at = at + (index * piece_bytes) as u64 / SECTOR_BYTES;
            self.device.write(at, Data::from_slice(piece), WriteFlags::NONE).await?;
        }
        Ok(())
    }

    /// Makes everything durable; `asked` is true when a caller waits for it.
    async fn commit(&self, asked: bool) -> FsResult<()> {
        let _pass = self.committing.enter().await;
        if let Some(error) = &*self.stopped.borrow() {
            return Err(FsError::Stopped(error.clone()));
        }
        if !self.dirty.get() || self.closed.get() {
            return Ok(());
        }
        let mut tree = self.tree().await?;
        if self.bug != Bug::DirtyFlagClearedLate {
            self.dirty.set(false);
        }
        if !asked {
            self.spoil(&mut tree);
        }
        let result = self.write_out(&tree).await;
        match result {
            Ok(()) => {
                self.dirty.set(self.dirty.get() && self.bug != Bug::DirtyFlagClearedLate);
                // Changes that a spoiled commit omitted remain to be done.
                self.dirty.set(self.dirty.get() || !asked && matches!(self.bug, Bug::OutOfOrder | Bug::SizeBeforeData));
                *self.committed.borrow_mut() = tree;
                Ok(())
            }
            Err(DeviceError::NoSpace { .. }) => {
                // No harm done: the other slot is unchanged.
                self.dirty.set(self.bug != Bug::NoSpaceForgotten);
                Err(FsError::NoSpace)
            }
            Err(error) => {
                if self.bug != Bug::FailedFlushForgotten {
                    self.dirty.set(true);
                    *self.stopped.borrow_mut() = Some(error.to_string());
                }
                Err(error.into())
            }
        }
    }

    /// The bug of background commits.
    fn spoil(&self, tree: &mut Tree) {
        let committed = self.committed.borrow();
        if self.bug == Bug::SizeBeforeData {
            for (ino, node) in &mut tree.nodes {
                let old = committed.nodes.get(ino).map(|old| old.contents.clone()).unwrap_or_default();
                if old != node.contents {
                    let size = node.contents.size();
                    node.contents = old;
                    node.contents.resize(size);
                }
            }
        }
        if self.bug == Bug::OutOfOrder {
            let late = tree.nodes.get(&Ino::ROOT).and_then(|root| root.entries.get(&b"late"[..]).copied());
            if let Some(late) = late
                && let Some(old) = committed.nodes.get(&late)
            {
                tree.nodes.insert(late, old.clone());
                let missing: Vec<_> =
                    old.entries.values().filter(|ino| !tree.nodes.contains_key(ino)).copied().collect();
                for ino in missing {
                    tree.nodes.insert(ino, committed.nodes[&ino].clone());
                }
            }
        }
    }

    async fn write_out(&self, tree: &Tree) -> Result<(), DeviceError> {
        let slots = Slots::of(&self.device);
        let (slot, serial) = (self.next_slot.get(), self.next_serial.get());
        let node_times = |ino: &Ino| Some((*ino, self.model.node(*ino).map(|node| (node.mtime, node.ctime))?));
        let times = tree.nodes.keys().filter_map(node_times).collect();
        let mut body = encode(tree, &times, self.bug);
        let length = body.len();
        if length as u64 > slots.body_bytes {
            return Err(DeviceError::NoSpace { at: slots.body(slot), bytes: length as u64 });
        }
        let crc = crc32c(&body);
        body.resize(length.div_ceil(slots.block_bytes as usize) * slots.block_bytes as usize, 0);
        let mut header = vec![0; slots.block_bytes as usize];
        for (offset, number) in [(0, MAGIC), (8, serial), (16, length as u64), (24, u64::from(crc))] {
            put_at(&mut header, offset, number);
        }
        let header_crc = crc32c(&header[..32]);
        put_at(&mut header, 32, u64::from(header_crc));
        if self.bug == Bug::OverlappingWrites {
            let (one, two) =
                futures_util::future::join(self.put(slots.body(slot), &body), self.put(slots.body(slot), &body)).await;
            one?;
            two?;
        }
        if self.bug == Bug::TornBodyAccepted {
            let (one, two) =
                futures_util::future::join(self.put(slots.header(slot), &header), self.put(slots.body(slot), &body))
                    .await;
            one?;
            two?;
        } else {
            self.put(slots.body(slot), &body).await?;
            self.device.flush().await?;
            self.put(slots.header(slot), &header).await?;
        }
        if self.bug != Bug::AckBeforeFlush {
            self.device.flush().await?;
        }
        self.next_serial.set(serial + 1);
        if self.bug != Bug::OneSlot {
            self.next_slot.set(1 - slot);
        }
        Ok(())
    }
}

#[async_trait(?Send)]
impl FsUnderTest for Toy {
    fn name(&self) -> String {
        format!("toy ({:?})", self.bug)
    }

    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()> {
        let fs = self.assemble(rt, device, Vec::new()).await?;
        fs.dirty.set(true);
        fs.commit(true).await?;
        fs.device.flush().await?;
        Ok(())
    }

    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        let found = load(&device, self.bug).await?;
        if found.is_empty() {
            return Err(FsError::corrupt("toy", "both slots", "neither is valid"));
        }
        let fs = self.assemble(rt, device, found).await?;
        if self.bug == Bug::RecoveryOverwrites {
            let slots = Slots::of(&fs.device);
            fs.next_slot.set(1 - fs.next_slot.get());
            fs.dirty.set(true);
            fs.put(slots.header(fs.next_slot.get()), &vec![0; slots.block_bytes as usize]).await?;
            fs.device.flush().await?;
            fs.commit(true).await?;
        }
        Ok(fs)
    }

    async fn fsck(&self, _rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        let found = load(&device, self.bug).await?;
        Ok(if found.is_empty() { vec!["no slot is valid".to_string()] } else { Vec::new() })
    }
}

impl Toy {
    async fn assemble(&self, rt: &Rt, device: Device, mut found: Vec<Loaded>) -> FsResult<Rc<ToyFs>> {
        // Half a slot for contents, the rest for everything else.
        let capacity_bytes = Slots::of(&device).body_bytes / 2;
        let model = MemFs::with_options(rt, MemFsOptions { capacity_bytes, ..MemFsOptions::default() });
        let (mut next_slot, mut next_serial, mut committed) = (0, 1, Tree::default());
        if let Some(newest) = found.pop() {
            (next_slot, next_serial) = (1 - newest.slot, newest.serial + 1);
            if self.bug == Bug::OneSlot {
                next_slot = newest.slot;
            }
            let model: Fs = model.clone();
            if self.bug == Bug::HardLinksSplit {
                split_links(&newest.tree).build(&model).await?;
            } else {
                newest.tree.build(&model).await?;
            }
            let client = client::Client::new(model.clone());
            for (path, ino) in newest.tree.paths() {
                let (mtime, ctime) = newest.times.get(&ino).copied().unwrap_or_default();
                let changes = SetAttr { mtime: Some(SetTime::At(mtime)), ctime: Some(ctime), ..SetAttr::default() };
                client.setattr(&path.0, changes).await?;
            }
            committed = Tree::of(model).await?;
        }
        let fs = Rc::new(ToyFs {
            device,
            rt: rt.clone(),
            model,
            bug: self.bug,
            commit_every: self.commit_every,
            changes: Cell::new(0),
            dirty: Cell::new(false),
            committing: Gate::new(),
            next_slot: Cell::new(next_slot),
            next_serial: Cell::new(next_serial),
            committed: RefCell::new(committed),
            stopped: RefCell::new(None),
            closed: Cell::new(false),
            cut_off: RefCell::default(),
            this: RefCell::default(),
        });
        *fs.this.borrow_mut() = Rc::downgrade(&fs);
        Ok(fs)
    }
}

fn split_links(tree: &Tree) -> Tree {
    let mut split = tree.clone();
    let mut seen = std::collections::BTreeSet::new();
    let mut next = 1_000_000;
    for (path, ino) in tree.paths() {
        if !seen.insert(ino) {
            let (parent, name) =
                (path.parent(), path.0.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_vec());
            let parent = tree.paths().into_iter().find(|(other, _)| *other == parent).map(|(_, ino)| ino);
            split.nodes.insert(Ino(next), tree.nodes[&ino].clone());
            if let Some(parent) = parent.and_then(|parent| split.nodes.get_mut(&parent)) {
                parent.entries.insert(name, Ino(next));
            }
            next += 1;
        }
    }
    split
}

/// Everything goes to the model; changes are recorded.
#[async_trait(?Send)]
impl FileSystem for ToyFs {
    fn traits(&self) -> FsTraits {
        FsTraits { name: "toy", ..self.model.traits() }
    }

    async fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        self.model.lookup(parent, name).await
    }

    async fn forget(&self, ino: Ino, lookups: u64) {
        self.model.forget(ino, lookups).await;
    }

    async fn getattr(&self, ino: Ino, handle: Option<Handle>) -> FsResult<Attr> {
        self.model.getattr(ino, handle).await
    }

    async fn setattr(&self, ino: Ino, handle: Option<Handle>, changes: SetAttr) -> FsResult<Attr> {
        self.refuse_when_stopped()?;
        if self.bug == Bug::StaleBytesAfterTruncate
            && let Some(size) = changes.size
        {
            self.truncate_badly(ino, size).await?;
        }
        let attr = self.model.setattr(ino, handle, changes).await?;
        self.changed().await;
        Ok(attr)
    }

    async fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.model.readlink(ino).await
    }

    async fn create(&self, parent: Ino, name: &[u8], new: NewNode, flags: OpenFlags) -> FsResult<(Entry, Opened)> {
        self.refuse_when_stopped()?;
        let made = self.model.create(parent, name, new, flags).await?;
        self.changed().await;
        Ok(made)
    }

    async fn tmpfile(&self, parent: Ino, new: NewNode, flags: OpenFlags, linkable: bool) -> FsResult<(Entry, Opened)> {
        self.refuse_when_stopped()?;
        let made = self.model.tmpfile(parent, new, flags, linkable).await?;
        self.changed().await;
        Ok(made)
    }

    async fn mknod(&self, parent: Ino, name: &[u8], kind: NodeKind, new: NewNode) -> FsResult<Entry> {
        self.refuse_when_stopped()?;
        let made = self.model.mknod(parent, name, kind, new).await?;
        self.changed().await;
        Ok(made)
    }

    async fn mkdir(&self, parent: Ino, name: &[u8], new: NewNode) -> FsResult<Entry> {
        self.refuse_when_stopped()?;
        let made = self.model.mkdir(parent, name, new).await?;
        self.changed().await;
        Ok(made)
    }

    async fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], new: NewNode) -> FsResult<Entry> {
        self.refuse_when_stopped()?;
        let made = self.model.symlink(parent, name, target, new).await?;
        self.changed().await;
        Ok(made)
    }

    async fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        self.refuse_when_stopped()?;
        let before = self.model.getattr(ino, None).await?;
        let mut entry = self.model.link(ino, parent, name).await?;
        if self.bug == Bug::LinkKeepsCtime {
            let changes = SetAttr { ctime: Some(before.ctime), ..SetAttr::default() };
            entry.attr = self.model.setattr(ino, None, changes).await?;
        }
        self.changed().await;
        Ok(entry)
    }

    async fn unlink(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.refuse_when_stopped()?;
        self.model.unlink(parent, name).await?;
        self.changed().await;
        Ok(())
    }

    async fn rmdir(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.refuse_when_stopped()?;
        self.model.rmdir(parent, name).await?;
        self.changed().await;
        Ok(())
    }

    async fn rename(&self, from: EntryName<'_>, to: EntryName<'_>, mode: RenameMode) -> FsResult<()> {
        self.refuse_when_stopped()?;
        if self.bug == Bug::RenameInTwoSteps && mode == RenameMode::Replace && from != to {
            let source = self.model.lookup(from.parent, from.name).await?;
            let gone = self.model.unlink(to.parent, to.name).await;
            self.model.forget(source.attr.ino, 1).await;
            if gone.is_ok() {
                self.dirty.set(true);
                self.commit(false).await?;
            }
        }
        self.model.rename(from, to, mode).await?;
        self.changed().await;
        Ok(())
    }

    async fn open(&self, ino: Ino, flags: OpenFlags) -> FsResult<Opened> {
        self.model.open(ino, flags).await
    }

    async fn release(&self, ino: Ino, handle: Handle) -> FsResult<()> {
        self.model.release(ino, handle).await
    }

    async fn read(&self, ino: Ino, handle: Option<Handle>, offset: u64, bytes: u32) -> FsResult<Vec<Data>> {
        self.model.read(ino, handle, offset, bytes).await
    }

    async fn write(&self, ino: Ino, handle: Option<Handle>, offset: u64, data: Data, mode: WriteMode) -> FsResult<()> {
        self.refuse_when_stopped()?;
        let result = self.model.write(ino, handle, offset, data, mode).await;
        if result == Err(FsError::NoSpace) && self.bug == Bug::NoSpaceHalfDone {
            let size = Some(offset + 1);
            self.model.setattr(ino, handle, SetAttr { size, ..SetAttr::default() }).await?;
        }
        result?;
        self.changed().await;
        Ok(())
    }

    async fn fallocate(&self, ino: Ino, handle: Option<Handle>, range: FileRange, mode: AllocateMode) -> FsResult<()> {
        self.refuse_when_stopped()?;
        self.model.fallocate(ino, handle, range, mode).await?;
        self.changed().await;
        Ok(())
    }

    async fn lseek(&self, ino: Ino, handle: Option<Handle>, offset: u64, seek: SeekTo) -> FsResult<u64> {
        self.model.lseek(ino, handle, offset, seek).await
    }

    async fn readdir(
        &self,
        ino: Ino,
        handle: Option<Handle>,
        cookie: u64,
        attributes: bool,
        sink: &mut dyn DirSink,
    ) -> FsResult<()> {
        self.model.readdir(ino, handle, cookie, attributes, sink).await
    }

    async fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.model.getxattr(ino, name).await
    }

    async fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        self.refuse_when_stopped()?;
        self.model.setxattr(ino, name, value, mode).await?;
        self.changed().await;
        Ok(())
    }

    async fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        self.model.listxattr(ino).await
    }

    async fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        self.refuse_when_stopped()?;
        self.model.removexattr(ino, name).await?;
        self.changed().await;
        Ok(())
    }

    async fn fsync(&self, ino: Ino, handle: Option<Handle>, data_only: bool) -> FsResult<()> {
        self.model.fsync(ino, handle, data_only).await?;
        if self.bug == Bug::FsyncDoesNothing { Ok(()) } else { self.commit(true).await }
    }

    async fn fsyncdir(&self, ino: Ino, handle: Option<Handle>) -> FsResult<()> {
        self.model.fsyncdir(ino, handle).await?;
        if self.bug == Bug::FsyncDirDoesNothing { Ok(()) } else { self.commit(true).await }
    }

    async fn syncfs(&self) -> FsResult<()> {
        self.commit(true).await
    }

    async fn statfs(&self) -> FsResult<StatFs> {
        self.model.statfs().await
    }

    async fn close(&self) -> FsResult<()> {
        let result = self.commit(true).await;
        self.closed.set(true);
        result
    }

    fn describe(&self) -> String {
        format!("toy ({:?})", self.bug)
    }
}

impl ToyFs {
    fn refuse_when_stopped(&self) -> FsResult<()> {
        match &*self.stopped.borrow() {
            Some(error) => Err(FsError::Stopped(error.clone())),
            None => Ok(()),
        }
    }

    /// Keeps the bytes that a truncation cuts off, and restores them when the file grows over them.
    async fn truncate_badly(&self, ino: Ino, size: u64) -> FsResult<()> {
        let old = self.model.getattr(ino, None).await?.size;
        if size < old {
            let pieces = self.model.read(ino, None, size, (old - size).min(1 << 20) as u32).await?;
            self.cut_off.borrow_mut().insert(ino, (size, pieces.iter().flat_map(|piece| piece.to_vec()).collect()));
            return Ok(());
        }
        let remembered = self.cut_off.borrow_mut().remove(&ino);
        if let Some((start, bytes)) = remembered
            && old == start
        {
            let length = bytes.len().min((size - start) as usize);
            self.model.write(ino, None, start, Data::from_slice(&bytes[..length]), WriteMode::default()).await?;
        }
        Ok(())
    }
}
