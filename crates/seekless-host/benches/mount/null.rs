//! A file system that costs nothing: names in memory, data discarded. What remains is the cost of the mount itself.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use async_trait::async_trait;
use seekless::device::Data;
use seekless::fs::*;
use seekless::rt::Rt;
use seekless::units::{FixedMap, Ino, WallTime};

/// In this directory every name exists, so that each first look at one is a message.
pub(crate) const FOUND: &[u8] = b"found";

/// Inode numbers from here on belong to names in `FOUND`.
const FOUND_FIRST: u64 = 1 << 40;

struct Node {
    kind: FileKind,
    size: u64,
    children: BTreeMap<Vec<u8>, Ino>,
}

pub(crate) struct Null {
    rt: Rt,
    nodes: RefCell<FixedMap<u64, Node>>,
    next: Cell<u64>,
    found: Cell<u64>,
}

impl Null {
    pub(crate) fn new(rt: &Rt) -> Null {
        let null =
            Null { rt: rt.clone(), nodes: RefCell::default(), next: Cell::new(1), found: Cell::new(FOUND_FIRST) };
        null.add(FileKind::Directory);
        let found = null.add(FileKind::Directory);
        null.nodes.borrow_mut().get_mut(&1).expect("the root").children.insert(FOUND.to_vec(), found);
        null
    }

    fn add(&self, kind: FileKind) -> Ino {
        let ino = self.next.get();
        self.next.set(ino + 1);
        self.nodes.borrow_mut().insert(ino, Node { kind, size: 0, children: BTreeMap::new() });
        Ino(ino)
    }

    fn attr(&self, ino: Ino) -> FsResult<Attr> {
        let nodes = self.nodes.borrow();
        let (kind, size) = match nodes.get(&ino.0) {
            Some(node) => (node.kind, node.size),
            None if ino.0 >= FOUND_FIRST => (FileKind::Regular, 4096),
            None => return Err(FsError::Stale),
        };
        let time = WallTime { seconds: 1_000_000_000, nanos: 0 };
        Ok(Attr {
            ino,
            kind,
            permissions: 0o755,
            links: if kind == FileKind::Directory { 2 } else { 1 },
            uid: 0,
            gid: 0,
            device: 0,
            size,
            sectors: size / 512,
            io_bytes: 4096,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
        })
    }

    fn entry(&self, ino: Ino) -> FsResult<Entry> {
        Ok(Entry { attr: self.attr(ino)?, generation: 0 })
    }

    fn make(&self, parent: Ino, name: &[u8], kind: FileKind) -> FsResult<Entry> {
        let ino = self.add(kind);
        let mut nodes = self.nodes.borrow_mut();
        let parent = nodes.get_mut(&parent.0).ok_or(FsError::Stale)?;
        if parent.children.insert(name.to_vec(), ino).is_some() {
            return Err(FsError::Exists);
        }
        drop(nodes);
        self.entry(ino)
    }

    fn remove(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        let mut nodes = self.nodes.borrow_mut();
        let parent = nodes.get_mut(&parent.0).ok_or(FsError::Stale)?;
        parent.children.remove(name).map(drop).ok_or(FsError::NotFound)
    }

    fn grow(&self, ino: Ino, size: u64) {
        if let Some(node) = self.nodes.borrow_mut().get_mut(&ino.0) {
            node.size = node.size.max(size);
        }
    }
}

#[async_trait(?Send)]
impl FileSystem for Null {
    fn traits(&self) -> FsTraits {
        FsTraits {
            name: "null",
            open_protocol: OpenProtocol::ZeroMessage,
            exclusive: true,
            name_bytes_max: 255,
            read_only: false,
            access_lists: false,
            outside_files: false,
        }
    }

    async fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        let child = self.nodes.borrow().get(&parent.0).and_then(|node| node.children.get(name).copied());
        match child {
            Some(ino) => self.entry(ino),
            None if parent == Ino(2) => {
                self.found.set(self.found.get() + 1);
                self.entry(Ino(self.found.get()))
            }
            None => Err(FsError::NotFound),
        }
    }

    async fn forget(&self, _ino: Ino, _lookups: u64) {}

    async fn getattr(&self, ino: Ino, _handle: Option<Handle>) -> FsResult<Attr> {
        self.attr(ino)
    }

    async fn setattr(&self, ino: Ino, _handle: Option<Handle>, changes: SetAttr) -> FsResult<Attr> {
        if let (Some(size), Some(node)) = (changes.size, self.nodes.borrow_mut().get_mut(&ino.0)) {
            node.size = size;
        }
        self.attr(ino)
    }

    async fn create(&self, parent: Ino, name: &[u8], _new: NewNode, _flags: OpenFlags) -> FsResult<(Entry, Opened)> {
        Ok((self.make(parent, name, FileKind::Regular)?, Opened { handle: None, keep_cache: true }))
    }

    async fn mknod(&self, parent: Ino, name: &[u8], kind: NodeKind, _new: NewNode) -> FsResult<Entry> {
        self.make(parent, name, kind.kind())
    }

    async fn mkdir(&self, parent: Ino, name: &[u8], _new: NewNode) -> FsResult<Entry> {
        self.make(parent, name, FileKind::Directory)
    }

    async fn unlink(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.remove(parent, name)
    }

    async fn rmdir(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.remove(parent, name)
    }

    async fn read(&self, ino: Ino, _handle: Option<Handle>, offset: u64, bytes: u32) -> FsResult<Vec<Data>> {
        let end = self.attr(ino)?.size.saturating_sub(offset);
        Ok(vec![Data::zeroes(end.min(u64::from(bytes)) as usize)])
    }

    async fn write(&self, ino: Ino, _: Option<Handle>, offset: u64, data: Data, _mode: WriteMode) -> FsResult<()> {
        self.grow(ino, offset + data.len() as u64);
        Ok(())
    }

    async fn readdir(&self, _: Ino, _: Option<Handle>, _: u64, _: bool, _: &mut dyn DirSink) -> FsResult<()> {
        Ok(())
    }

    async fn fsync(&self, _: Ino, _: Option<Handle>, _data_only: bool) -> FsResult<()> {
        self.rt.yield_now().await;
        Ok(())
    }

    async fn fsyncdir(&self, _: Ino, _: Option<Handle>) -> FsResult<()> {
        Ok(())
    }

    async fn syncfs(&self) -> FsResult<()> {
        Ok(())
    }

    async fn statfs(&self) -> FsResult<StatFs> {
        Ok(StatFs {
            block_bytes: 4096,
            blocks: 1 << 30,
            blocks_free: 1 << 30,
            blocks_available: 1 << 30,
            inodes: 1 << 30,
            inodes_free: 1 << 30,
            name_bytes_max: 255,
        })
    }

    async fn close(&self) -> FsResult<()> {
        Ok(())
    }

    fn describe(&self) -> String {
        "null".into()
    }

    async fn readlink(&self, _: Ino) -> FsResult<Vec<u8>> {
        Err(FsError::Unsupported)
    }
    async fn symlink(&self, _: Ino, _: &[u8], _: &[u8], _: NewNode) -> FsResult<Entry> {
        Err(FsError::Unsupported)
    }
    async fn link(&self, _: Ino, _: Ino, _: &[u8]) -> FsResult<Entry> {
        Err(FsError::Unsupported)
    }
    async fn rename(&self, _: EntryName<'_>, _: EntryName<'_>, _: RenameMode) -> FsResult<()> {
        Err(FsError::Unsupported)
    }
    async fn open(&self, _: Ino, _: OpenFlags) -> FsResult<Opened> {
        Err(FsError::Unsupported)
    }
    async fn release(&self, _: Ino, _: Handle) -> FsResult<()> {
        Ok(())
    }
    async fn fallocate(&self, _: Ino, _: Option<Handle>, _: FileRange, _: AllocateMode) -> FsResult<()> {
        Err(FsError::Unsupported)
    }
    async fn lseek(&self, _: Ino, _: Option<Handle>, _: u64, _: SeekTo) -> FsResult<u64> {
        Err(FsError::Unsupported)
    }
    async fn getxattr(&self, _: Ino, _: &[u8]) -> FsResult<Vec<u8>> {
        Err(FsError::NoAttribute)
    }
    async fn setxattr(&self, _: Ino, _: &[u8], _: &[u8], _: XattrMode) -> FsResult<()> {
        Err(FsError::Unsupported)
    }
    async fn listxattr(&self, _: Ino) -> FsResult<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }
    async fn removexattr(&self, _: Ino, _: &[u8]) -> FsResult<()> {
        Err(FsError::NoAttribute)
    }
}
