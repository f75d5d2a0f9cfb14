//! A file system that costs nothing: names in memory, data discarded. What remains is the cost of the mount itself.
//!
//! Between two mounts its names are in a file, which is read before the mount begins, so that a new mount of it is as cold as
//! one of the others: a new process, a new connection, and nothing in the caches of the kernel.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use async_trait::async_trait;
use seekless::device::Data;
use seekless::fs::*;
use seekless::rt::Rt;
use seekless::units::{FixedMap, Ino, WallTime};
use serde_json::{Value, json};

use crate::fuse::{Mount, MountOptions, TransportChoice};
use crate::reactor::{Reactor, ReactorOptions, Signals};

/// How the file system that stores nothing is mounted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NullOptions {
    /// FUSE over io_uring, which the kernel must offer.
    pub uring: bool,
    /// Each open and each close is a message.
    pub messages: bool,
    /// The kernel collects writes.
    pub writeback: bool,
    /// Where names are from one mount to the next; without it they are lost.
    pub names: Option<PathBuf>,
}

/// Mounts it at `mount_point`, and serves it until it is unmounted or the process gets SIGTERM.
///
/// # Errors
/// When it cannot be mounted, or its names cannot be read or kept, in words.
pub fn serve(mount_point: &Path, null: NullOptions) -> Result<(), String> {
    let mut options = MountOptions::new(mount_point, "null");
    options.transport = if null.uring { TransportChoice::Uring } else { TransportChoice::DevFuse };
    options.zero_message_open = !null.messages;
    options.writeback_cache = null.writeback;
    let in_words = |error: &dyn std::fmt::Display| error.to_string();
    let known = null.names.as_deref().map(read_names).transpose()?.flatten();
    // Before there are threads.
    let signals = Signals::new(&[libc::SIGTERM]).map_err(|error| in_words(&error))?;
    let reactor = Reactor::new(ReactorOptions::default()).map_err(|error| in_words(&error))?;
    let executor = reactor.executor();
    let rt = executor.rt().clone();
    let served = executor.block_on(async {
        let fs = Rc::new(Null::new(&rt, known));
        let mount = Mount::start(&rt, &reactor, fs.clone(), options).await;
        let mount = mount.map_err(|error| in_words(&error))?;
        // A mount does without io_uring where the kernel has it switched off; a measurement must not.
        let wanted = if null.uring { "uring" } else { "devfuse" };
        let transport = mount.transport_name();
        if transport != wanted {
            let problem = format!("the transport is {transport}, not {wanted}");
            // The first error is the one to report.
            let _ = mount.serve(std::future::ready(())).await;
            return Err(problem);
        }
        let end = async {
            signals.next(&reactor).await;
        };
        mount.serve(end).await.map_err(|error| in_words(&error))?;
        null.names.as_deref().map_or(Ok(()), |path| fs.keep_names(path))
    });
    served.map_err(|error| in_words(&error))?
}

/// What an earlier mount left.
fn read_names(path: &Path) -> Result<Option<Names>, String> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
    };
    let value: Option<Value> = serde_json::from_slice(&text).ok();
    let names = value.as_ref().and_then(Names::from_json);
    names.map(Some).ok_or_else(|| format!("{} is not what a mount of null has written", path.display()))
}

struct Node {
    kind: FileKind,
    size: u64,
    children: BTreeMap<Vec<u8>, Ino>,
}

impl Node {
    fn to_json(&self) -> Value {
        let children: Vec<Value> = self.children.iter().map(|(name, ino)| json!([name, ino.0])).collect();
        json!([self.kind == FileKind::Directory, self.size, children])
    }

    fn from_json(value: &Value) -> Option<Node> {
        let child = |value: &Value| {
            let name = value.get(0)?.as_array()?.iter().map(|byte| u8::try_from(byte.as_u64()?).ok());
            Some((name.collect::<Option<Vec<u8>>>()?, Ino(value.get(1)?.as_u64()?)))
        };
        Some(Node {
            kind: if value.get(0)?.as_bool()? { FileKind::Directory } else { FileKind::Regular },
            size: value.get(1)?.as_u64()?,
            children: value.get(2)?.as_array()?.iter().map(child).collect::<Option<_>>()?,
        })
    }
}

/// Every name, and the next number of an inode.
struct Names {
    nodes: FixedMap<u64, Node>,
    next: u64,
}

impl Names {
    fn to_json(&self) -> Value {
        let nodes: Vec<Value> = self.nodes.iter().map(|(ino, node)| json!([ino, node.to_json()])).collect();
        json!({ "next": self.next, "nodes": nodes })
    }

    fn from_json(value: &Value) -> Option<Names> {
        let node = |value: &Value| Some((value.get(0)?.as_u64()?, Node::from_json(value.get(1)?)?));
        let nodes = value.get("nodes")?.as_array()?.iter().map(node).collect::<Option<_>>()?;
        Some(Names { nodes, next: value.get("next")?.as_u64()? })
    }
}

struct Null {
    rt: Rt,
    nodes: RefCell<FixedMap<u64, Node>>,
    next: Cell<u64>,
}

impl Null {
    fn new(rt: &Rt, known: Option<Names>) -> Null {
        let is_new = known.is_none();
        let Names { nodes, next } = known.unwrap_or_else(|| Names { nodes: FixedMap::default(), next: 1 });
        let null = Null { rt: rt.clone(), nodes: RefCell::new(nodes), next: Cell::new(next) };
        if is_new {
            null.add(FileKind::Directory);
        }
        null
    }

    /// Leaves the names to the next mount.
    fn keep_names(&self, path: &Path) -> Result<(), String> {
        let names = Names { nodes: self.nodes.take(), next: self.next.get() };
        fs::write(path, names.to_json().to_string())
            .map_err(|error| format!("cannot write {}: {error}", path.display()))
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
            sectors_will_change: false,
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
        let child = parent.children.remove(name).ok_or(FsError::NotFound)?;
        nodes.remove(&child.0);
        Ok(())
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
            appends_at_end: false,
            open_files_max: None,
        }
    }

    async fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        let child = self.nodes.borrow().get(&parent.0).and_then(|node| node.children.get(name).copied());
        match child {
            Some(ino) => self.entry(ino),
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

    async fn readdir(
        &self,
        ino: Ino,
        _: Option<Handle>,
        cookie: u64,
        attributes: bool,
        sink: &mut dyn DirSink,
    ) -> FsResult<()> {
        let nodes = self.nodes.borrow();
        let children = &nodes.get(&ino.0).ok_or(FsError::Stale)?.children;
        for (index, (name, &child)) in children.iter().enumerate().skip(cookie as usize) {
            let entry = self.entry(child)?;
            let entry = DirEntry {
                ino: child,
                kind: entry.attr.kind,
                name,
                cookie: index as u64 + 1,
                entry: attributes.then_some(entry),
            };
            if !sink.add(&entry) {
                break;
            }
        }
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

#[cfg(test)]
mod tests {
    use seekless::fs::client::Client;
    use seekless::rt::{Executor, HostProfile};

    use super::*;

    /// Aim: what a mount leaves is what the next one has. Method: names of both kinds, one that is no text, a size, and a
    /// name that was removed; the next new inode has a number of its own.
    #[test]
    fn names_outlive_a_mount() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("names");
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        assert!(read_names(&path).unwrap().is_none());
        let made = Rc::new(Null::new(&rt, None));
        executor
            .block_on(async {
                let client = Client::new(made.clone());
                client.mkdir(b"/d").await.unwrap();
                client.write_file(b"/d/f\xff", &[1; 5_000]).await.unwrap();
                client.write_file(b"/gone", b"").await.unwrap();
                client.unlink(b"/gone").await.unwrap();
            })
            .unwrap();
        let new = made.next.get();
        made.keep_names(&path).unwrap();
        let again = Rc::new(Null::new(&rt, read_names(&path).unwrap()));
        executor
            .block_on(async {
                let client = Client::new(again.clone());
                let file = client.resolve(b"/d/f\xff").await.unwrap();
                assert_eq!(again.getattr(file, None).await.unwrap().size, 5_000);
                assert_eq!(client.resolve(b"/gone").await.unwrap_err(), FsError::NotFound);
                assert_eq!(again.make(Ino::ROOT, b"new", FileKind::Regular).unwrap().attr.ino, Ino(new));
            })
            .unwrap();
        fs::write(&path, "{}").unwrap();
        assert!(read_names(&path).is_err_and(|problem| problem.contains("names")));
    }
}
