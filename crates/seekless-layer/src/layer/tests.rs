//! Aim: the frame keeps its promises (Y1-Y3) for any layer, in any order of events, and the null layer changes nothing.
//! Method: a layer whose nodes take time to open and close, and which records that, over the model file system, which
//! counts lookups and handles.

mod lower;
mod plain;
mod several_clients;
pub(super) mod trouble;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use super::*;
use crate::device::Data;
use crate::fs::client::Client;
use crate::fs::*;
use crate::rng::Rng;
use crate::rt::{Executor, HostProfile, Rt};
use crate::testing::MemFs;
use crate::testing::memfs::{Leaks, MemFsOptions};
use crate::units::{Ino, Nanos};

/// A layer that shows every file one byte longer than it is, opens below for reading as well, and refuses to open
/// the nodes of files with 666 permissions.
struct Slow {
    rt: Rt,
    rng: RefCell<Rng>,
    open: RefCell<BTreeSet<Ino>>,
    opened: Cell<u64>,
}

impl Slow {
    async fn pause(&self) {
        let nanos = self.rng.borrow_mut().below(3);
        self.rt.sleep(Nanos(nanos)).await;
    }
}

impl Layer for Slow {
    type Node = Ino;

    const NAME: &'static str = "slow";

    async fn open_node(&self, lower: &Fs, attr: &Attr, _place: Option<EntryName<'_>>) -> FsResult<Ino> {
        assert!(self.open.borrow_mut().insert(attr.ino), "Y2: {:?} has one node", attr.ino);
        self.opened.set(self.opened.get() + 1);
        self.pause().await;
        lower.getattr(attr.ino, None).await.expect("Y3: in use below while its node is opened");
        if attr.permissions == 0o666 {
            self.open.borrow_mut().remove(&attr.ino);
            return Err(FsError::corrupt("beast", attr.ino, "666"));
        }
        Ok(attr.ino)
    }

    async fn close_node(&self, lower: &Fs, ino: Ino, node: Rc<Ino>) -> FsResult<()> {
        assert_eq!(ino, *node);
        self.pause().await;
        lower.getattr(ino, None).await.expect("Y3: in use below until its node is closed");
        assert!(self.open.borrow_mut().remove(&ino), "Y2: {ino:?} has a node");
        Ok(())
    }

    fn show(&self, node: &Ino, lower: Attr) -> Attr {
        assert_eq!(*node, lower.ino);
        Attr { size: lower.size + 1, ..lower }
    }

    fn open_flags(&self, flags: OpenFlags) -> OpenFlags {
        OpenFlags { read: true, truncate: false, ..flags }
    }
}

struct Bench {
    rt: Rt,
    model: Rc<MemFs>,
    layer: Rc<Stacked<Slow>>,
}

fn run(seed: u64, open_protocol: OpenProtocol, body: impl AsyncFnOnce(&Bench)) {
    let executor = Executor::simulated(seed, HostProfile::NONE);
    let rt = executor.rt().clone();
    let run = async move {
        let model = MemFs::with_options(&rt, MemFsOptions { open_protocol, ..MemFsOptions::default() });
        let rng = RefCell::new(Rng::new(seed));
        let slow = Slow { rt: rt.clone(), rng, open: RefCell::default(), opened: Cell::default() };
        let layer = Rc::new(Stacked::new(model.clone(), slow).await.unwrap());
        let bench = Bench { rt, model, layer };
        body(&bench).await;
        assert_eq!(bench.model.leaks(), Leaks::default(), "Y1");
        assert_eq!(bench.layer.layer().open.borrow().iter().collect::<Vec<_>>(), [&Ino::ROOT]);
        bench.layer.close().await.unwrap();
        assert!(bench.layer.layer().open.borrow().is_empty());
    };
    executor.block_on(run).unwrap();
}

const FILE: NewNode = NewNode { permissions: 0o644, umask: 0, uid: 0, gid: 0 };

/// Lookups, forgets and listings of the same inodes by many tasks at once, in a hundred interleavings.
#[test]
fn nodes_live_as_long_as_their_inodes_are_used() {
    for seed in 0..100 {
        run(seed, OpenProtocol::ZeroMessage, async |bench| {
            const NAMES: &[&[u8]] = &[b"a", b"b", b"c"];
            let client = Client::new(bench.layer.clone());
            for name in NAMES {
                client.write_file(name, b"x").await.unwrap();
            }
            let task = |task: u64| {
                let (layer, rt) = (bench.layer.clone(), bench.rt.clone());
                async move {
                    let mut rng = Rng::new(seed * 100 + task);
                    for _ in 0..20 {
                        let name = rng.pick(NAMES);
                        let ino = layer.lookup(Ino::ROOT, name).await.unwrap().attr.ino;
                        assert_eq!(layer.getattr(ino, None).await.unwrap().size, 2);
                        rt.sleep(Nanos(rng.below(3))).await;
                        let mut listing = Listing { room: rng.below(6) as usize, ..Listing::default() };
                        layer.readdir(Ino::ROOT, None, 0, true, &mut listing).await.unwrap();
                        for (ino, _) in listing.entries.into_iter().flatten() {
                            layer.forget(ino, 1).await;
                        }
                        layer.forget(ino, 1).await;
                    }
                }
            };
            let tasks: Vec<_> = (0..4).map(|number| bench.rt.spawn(task(number))).collect();
            for task in tasks {
                task.await;
            }
        });
    }
}

/// Takes up to `room` entries; `.` and `..` come without attributes.
#[derive(Default)]
struct Listing {
    room: usize,
    entries: Vec<Option<(Ino, u64)>>,
    names: Vec<Vec<u8>>,
    cookie: u64,
}

impl DirSink for Listing {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        if self.room == 0 {
            return false;
        }
        self.room -= 1;
        self.entries.push(entry.entry.map(|entry| (entry.attr.ino, entry.attr.size)));
        self.names.push(entry.name.to_vec());
        self.cookie = entry.cookie;
        true
    }
}

/// A listing with attributes shows every entry once, as the layer shows it, however many fit into one call.
#[test]
fn listings_pass_through_in_batches() {
    for room in [1, 2, 63, 64, 65, 300] {
        run(1, OpenProtocol::Handles, async |bench| {
            for number in 0..150 {
                let permissions = if number == 77 { 0o666 } else { 0o644 };
                let name = format!("{number:03}");
                let new = NewNode { permissions, ..FILE };
                let made = bench.model.mknod(Ino::ROOT, name.as_bytes(), NodeKind::Regular, new).await.unwrap();
                bench.model.forget(made.attr.ino, 1).await;
            }
            let (mut names, mut cookie) = (Vec::new(), 0);
            loop {
                let mut listing = Listing { room, ..Listing::default() };
                bench.layer.readdir(Ino::ROOT, None, cookie, true, &mut listing).await.unwrap();
                if listing.names.is_empty() {
                    break;
                }
                cookie = listing.cookie;
                for (name, entry) in listing.names.iter().zip(&listing.entries) {
                    // An entry that cannot be opened is listed without attributes.
                    let has_none = [&b"."[..], b"..", b"077"].contains(&&name[..]);
                    assert_eq!(entry.is_none(), has_none);
                    assert!(entry.is_none_or(|(_, size)| size == 1));
                }
                names.append(&mut listing.names);
                for (ino, _) in listing.entries.into_iter().flatten() {
                    bench.layer.forget(ino, 1).await;
                }
            }
            let expected: Vec<Vec<u8>> = [b".".to_vec(), b"..".to_vec()]
                .into_iter()
                .chain((0..150).map(|number| format!("{number:03}").into_bytes()))
                .collect();
            assert_eq!(names, expected);
        });
    }
}

/// A node that cannot be opened fails the lookup, and leaves no lookup and no handle behind; the next attempt opens it
/// again.
#[test]
fn a_node_that_cannot_be_opened_leaves_nothing_behind() {
    for open_protocol in [OpenProtocol::ZeroMessage, OpenProtocol::Handles] {
        run(1, open_protocol, async |bench| {
            let new = NewNode { permissions: 0o666, ..FILE };
            let created = bench.layer.create(Ino::ROOT, b"f", new, OpenFlags::READ_WRITE).await;
            assert!(matches!(created, Err(FsError::Corrupt { .. })));
            let opened = bench.layer.layer().opened.get();
            for _ in 0..2 {
                assert!(matches!(bench.layer.lookup(Ino::ROOT, b"f").await, Err(FsError::Corrupt { .. })));
            }
            assert_eq!(bench.layer.layer().opened.get(), opened + 2);
        });
    }
}

/// A task that is cancelled while it opens a node does not leave the inode locked.
#[test]
fn a_cancelled_lookup_does_not_block_the_next() {
    run(1, OpenProtocol::ZeroMessage, async |bench| {
        let ino = bench.model.create(Ino::ROOT, b"f", FILE, OpenFlags::READ).await.unwrap().0.attr.ino;
        bench.model.forget(ino, 1).await;
        let nodes: Nodes<Ino> = Nodes::new();
        {
            let first = nodes.enter(ino, 1, async || {
                bench.rt.sleep(Nanos::MAX).await;
                Ok(ino)
            });
            let second = nodes.enter(ino, 1, async || Ok(ino));
            let mut first = Box::pin(first);
            assert!(futures_util::poll!(first.as_mut()).is_pending());
            let mut second = Box::pin(second);
            assert!(futures_util::poll!(second.as_mut()).is_pending());
            drop(first);
            assert_eq!(*second.await.unwrap(), ino);
        }
        assert_eq!(nodes.leave(ino, 9, |_| false, async |_| ()).await, 1);
        assert_eq!(nodes.count(), 0);
    });
}

/// Truncation at open goes to the layer when the layer does not leave it to the file system below.
#[test]
fn truncation_at_open_goes_through_the_layer() {
    run(1, OpenProtocol::Handles, async |bench| {
        let client = Client::new(bench.layer.clone());
        client.write_file(b"f", b"12345").await.unwrap();
        let file = client.open(b"f", OpenFlags { truncate: true, ..OpenFlags::READ_WRITE }).await.unwrap();
        assert_eq!(client.read(file, 0, 10).await.unwrap(), b"");
        client.close(file).await.unwrap();
    });
}

/// An inode that was never looked up through the layer is not in use there.
#[test]
fn inodes_that_are_not_in_use_are_stale() {
    run(1, OpenProtocol::ZeroMessage, async |bench| {
        let ino = bench.model.create(Ino::ROOT, b"f", FILE, OpenFlags::READ).await.unwrap().0.attr.ino;
        let layer = &bench.layer;
        assert_eq!(layer.getattr(ino, None).await, Err(FsError::Stale));
        assert_eq!(layer.write(ino, None, 0, Data::empty(), WriteMode::default()).await, Err(FsError::Stale));
        layer.forget(ino, 7).await; // Not counted here, so not passed on.
        bench.model.forget(ino, 1).await;
    });
}

/// The null layer shows what is below, and leaves nothing behind.
#[test]
fn wrap_changes_nothing() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let run = async move {
        let model = MemFs::new(&rt);
        let wrap = wrap::stack_on(model.clone(), wrap::Options::default()).await.unwrap();
        assert_eq!(wrap.traits(), FsTraits { name: "wrap", ..model.traits() });
        let (above, below) = (Client::new(wrap.clone()), Client::new(model.clone()));
        above.mkdir(b"d").await.unwrap();
        above.write_file(b"d/f", b"hello").await.unwrap();
        above.symlink(b"f", b"d/s").await.unwrap();
        above.set_xattr(b"d/f", b"user.x", b"1").await.unwrap();
        above.link(b"d/f", b"d/g").await.unwrap();
        above.rename(b"d/g", b"d/h", RenameMode::NoReplace).await.unwrap();
        for path in [&b""[..], b"d", b"d/f", b"d/h", b"d/s"] {
            assert_eq!(above.stat(path).await, below.stat(path).await);
        }
        assert_eq!(above.read_dir(b"d").await, below.read_dir(b"d").await);
        assert_eq!(below.read_file(b"d/h").await.unwrap(), b"hello");
        assert_eq!(below.get_xattr(b"d/f", b"user.x").await.unwrap(), b"1");
        assert_eq!(above.read_link(b"d/s").await.unwrap(), b"f");
        assert_eq!(wrap.counters(), [("inodes_in_use", 1)]);
        assert_eq!(model.leaks(), Leaks::default());
    };
    executor.block_on(run).unwrap();
}
