//! Aim: inodes whose blocks cannot be read concern those who use them. Everything else continues and is durable when it is
//! said to be, again and again; and when the blocks can be read again, nothing is missing. Method: sectors of a volume are
//! lost at two places while inodes there have changed in memory, and later written again.

use super::*;
use crate::device::fault::FaultDevice;
use crate::device::{BlockDevice, Data, WriteFlags};
use crate::fs::ffs::state::inner;

const MODES: [Metadata; 3] = [Metadata::Sync, Metadata::Async, Metadata::Softdep];

struct World {
    memory: Rc<Memory>,
    device: Device,
    fault: Rc<FaultDevice>,
    ffs: Rc<Ffs>,
    client: Client,
    bytes: u64,
}

impl World {
    /// A volume with files in three directories, each in a cylinder group of its own.
    async fn new(rt: &Rt, bytes: u64, options: Options) -> World {
        let (memory, device) = fresh(rt, bytes, &small_groups()).await;
        let fault = FaultDevice::new(rt, device.clone(), 1);
        let ffs = mount(rt.clone(), fault.clone(), options).await.unwrap();
        let client = Client::new(ffs.clone());
        for dir in ["/d", "/e", "/w"] {
            client.mkdir(dir.as_bytes()).await.unwrap();
            client.write_file(format!("{dir}/f").as_bytes(), dir.as_bytes()).await.unwrap();
        }
        client.sync().await.unwrap();
        World { memory, device, fault, ffs, client, bytes }
    }

    async fn ino(&self, path: &str) -> InodeNo {
        inner(self.client.stat(path.as_bytes()).await.unwrap().ino).unwrap()
    }

    async fn place(&self, path: &str) -> FragNo {
        let ino = self.ino(path).await;
        self.ffs.state.borrow().layout.inode_place(ino).0
    }

    async fn touch(&self, path: &str) {
        let changes = SetAttr { permissions: Some(0o600), ..SetAttr::default() };
        self.client.setattr(path.as_bytes(), changes).await.unwrap();
    }

    /// The block at `at` leaves memory, and cannot be read.
    fn lose(&self, at: FragNo) {
        self.ffs.state.borrow_mut().cache.drop_clean();
        assert!(self.ffs.state.borrow().cache.peek(at).is_none(), "the block is clean");
        let layout = &self.ffs.state.borrow().layout;
        self.fault.lose(layout.sector(at)..layout.sector(at + layout.frag));
    }

    /// Changes these inodes in memory and loses their blocks.
    async fn lose_changed(&self, paths: &[&str]) {
        let mut places = Vec::new();
        for path in paths {
            self.touch(path).await;
            places.push(self.place(path).await);
        }
        places.into_iter().for_each(|at| self.lose(at));
    }

    /// Writes what was lost again.
    async fn rewrite(&self) {
        for sector in self.fault.lost() {
            let raw = self.device.read(sector, Buf::dirty(512)).await.unwrap();
            self.fault.write(sector, raw.freeze(), WriteFlags::NONE).await.unwrap();
        }
    }

    async fn assert_sync_fails(&self) {
        let synced = self.client.sync().await;
        assert!(matches!(synced, Err(FsError::Device(_))), "{synced:?}");
    }

    /// What is on the volume now, as after a crash.
    async fn crashed(&self, rt: &Rt, options: Options, look: impl AsyncFnOnce(Client)) {
        let device: Device = Rc::new(Memory::from_image(self.bytes, self.memory.image()));
        session(rt, &device, options, look).await;
    }

    /// Closes the volume and looks at it after the next mount. `is_whole`: nothing is lost any more.
    async fn end(self, rt: &Rt, options: Options, is_whole: bool, look: impl AsyncFnOnce(Client)) {
        let World { device, fault, ffs, client, .. } = self;
        if is_whole {
            client.sync().await.unwrap();
            assert_eq!(ffs.check().await.unwrap(), Vec::<String>::new());
        }
        let ended = ffs.close().await;
        assert_eq!(ended.is_ok(), is_whole, "{ended:?}");
        drop((client, ffs, fault));
        assert_eq!(info(&device).await.unwrap().clean, is_whole);
        if is_whole {
            assert_clean(rt, &device).await;
        }
        session(rt, &device, options, look).await;
    }
}

/// Names, directories and data of others change as if nothing were in the way.
#[test]
fn others_go_on() {
    for (metadata, dirty_bytes_max, is_whole) in
        MODES.into_iter().flat_map(|mode| [(mode, 4 * MIB, true), (mode, 4 * MIB, false), (mode, 8192, true)])
    {
        simulate(1, async |rt| {
            let options = Options { metadata, dirty_bytes_max, ..Options::default() };
            let world = World::new(&rt, 16 * MIB, options).await;
            world.lose_changed(&["/d/f", "/e/f"]).await;
            let client = &world.client;
            for turn in 0..2 {
                let at = |name: &str| format!("/w/{name}{turn}").into_bytes();
                client.write_file(&at("x"), &[1; 3000]).await.unwrap();
                client.rename(&at("x"), &at("y"), RenameMode::Replace).await.unwrap();
                client.write_file(&at("x"), &[2; 30_000]).await.unwrap();
                client.mkdir(&at("s")).await.unwrap();
                let inside = [at("s"), b"/z".to_vec()].concat();
                client.write_file(&inside, &[3; 3000]).await.unwrap();
                client.rename(&inside, &at("z"), RenameMode::Replace).await.unwrap();
                client.rmdir(&at("s")).await.unwrap();
                client.link(&at("y"), &at("l")).await.unwrap();
                client.unlink(&at("y")).await.unwrap();
                client.mkdir(&at("m")).await.unwrap();
                let whiteout = RenameMode::Whiteout { replace: false, uid: 3, gid: 4 };
                client.rename(&at("m"), &at("n"), whiteout).await.unwrap();
                client.mkdir(&at("p")).await.unwrap();
                client.rename(&at("p"), &at("z"), RenameMode::Exchange).await.unwrap();
                if turn == 0 {
                    world.assert_sync_fails().await;
                }
                world.assert_sync_fails().await;
            }
            if is_whole {
                world.rewrite().await;
            }
            world
                .end(&rt, options, is_whole, async |client| {
                    for turn in 0..2 {
                        let at = |name: &str| format!("/w/{name}{turn}").into_bytes();
                        for (name, content) in [("x", vec![2; 30_000]), ("l", vec![1; 3000]), ("p", vec![3; 3000])] {
                            assert!(client.read_file(&at(name)).await == Ok(content), "{metadata:?}: {name}");
                        }
                        for name in ["z", "n", "m"] {
                            client.stat(&at(name)).await.unwrap();
                        }
                        for name in ["s", "y"] {
                            assert_eq!(client.stat(&at(name)).await, Err(FsError::NotFound), "{metadata:?}: {name}");
                        }
                    }
                    for dir in ["/d", "/e"] {
                        let path = format!("{dir}/f").into_bytes();
                        assert_eq!(client.read_file(&path).await.unwrap(), dir.as_bytes());
                        let permissions = client.stat(&path).await.unwrap().permissions;
                        assert_eq!(permissions == 0o600, is_whole, "{metadata:?}");
                    }
                })
                .await;
        });
    }
}

/// Space that others free is theirs to use again.
#[test]
fn others_find_space() {
    for metadata in MODES {
        simulate(1, async |rt| {
            let options = Options { metadata, ..Options::default() };
            let world = World::new(&rt, 6 * MIB, options).await;
            world.lose_changed(&["/d/f", "/e/f"]).await;
            let client = &world.client;
            let mut blocks = 0;
            let file = client.create(b"/w/full").await.unwrap();
            while client.write(file, blocks * 8192, &[1; 8192]).await.is_ok() {
                blocks += 1;
            }
            client.close(file).await.unwrap();
            assert!(blocks > 100, "{blocks}");
            let content = vec![2; (blocks - 10) as usize * 8192];
            for _ in 0..2 {
                client.unlink(b"/w/full").await.unwrap();
                client.write_file(b"/w/full", &content).await.unwrap();
                let more = client.write_file(b"/w/more", &vec![3; 40 * 8192]).await;
                assert_eq!(more, Err(FsError::NoSpace), "{metadata:?}: it says what is so");
                client.unlink(b"/w/more").await.unwrap();
                world.assert_sync_fails().await;
            }
            world.rewrite().await;
            world
                .end(&rt, options, true, async |client| {
                    assert!(client.read_file(b"/w/full").await == Ok(content), "{metadata:?}");
                })
                .await;
        });
    }
}

/// What is made where no inode can be read.
#[derive(Clone, Copy, PartialEq, Debug)]
enum New {
    File,
    Directory,
    Link,
    LongLink,
    Unnamed,
}

async fn make(client: &Client, new: New, path: &[u8]) -> FsResult<()> {
    match new {
        New::File => client.write_file(path, &[7; 3000]).await,
        New::Directory => client.mkdir(path).await,
        New::Link => client.symlink(b"target", path).await,
        New::LongLink => client.symlink(&[b'x'; 2000], path).await,
        New::Unnamed => {
            let (dir, name) = client.resolve_parent(path).await?;
            let new = NewNode { permissions: 0o600, uid: 1, gid: 2, umask: 0 };
            let (entry, _) = client.fs().tmpfile(dir, new, OpenFlags::READ_WRITE, true).await?;
            let ino = entry.attr.ino;
            client.fs().write(ino, None, 0, Data::from_slice(&[7; 3000]), WriteMode::default()).await?;
            client.fs().link(ino, dir, name).await?;
            client.fs().forget(ino, 2).await;
            Ok(())
        }
    }
}

/// What has no place on the volume is refused when it is made, and nothing of it is left.
#[test]
fn what_has_no_place_leaves_nothing() {
    let kinds = [New::File, New::Directory, New::Link, New::LongLink, New::Unnamed];
    for (metadata, new) in MODES.into_iter().flat_map(|mode| kinds.map(|new| (mode, new))) {
        simulate(1, async |rt| {
            let options = Options { metadata, ..Options::default() };
            let world = World::new(&rt, 16 * MIB, options).await;
            let client = &world.client;
            // Of each directory's group, the next inode is the first one in a block.
            for dir in ["/d", "/e"] {
                let at = world.place(dir).await;
                for number in 0.. {
                    let ino = world.ino(&format!("{dir}/f")).await + number;
                    if world.ffs.state.borrow().layout.inode_place(ino + 1).0 != at {
                        break;
                    }
                    client.write_file(format!("{dir}/{number}").as_bytes(), b"").await.unwrap();
                }
            }
            client.sync().await.unwrap();
            let before = client.fs().statfs().await.unwrap();
            let groups: Vec<_> = world.ffs.state.borrow().layout.group_numbers().skip(1).collect();
            for group in groups {
                let places = {
                    let layout = &world.ffs.state.borrow().layout;
                    let (first, inodes) = (layout.first_ino(group), layout.inodes_per_group);
                    (0..inodes).map(|number| layout.inode_place(first + number).0).collect::<Vec<_>>()
                };
                let used = [world.place("/d").await, world.place("/e").await, world.place("/w").await];
                let mut free: Vec<FragNo> = places.into_iter().filter(|at| !used.contains(at)).collect();
                free.dedup();
                free.into_iter().for_each(|at| world.lose(at));
            }
            for turn in 0..2 {
                let paths = ["/d", "/e"].map(|dir| format!("{dir}/new{turn}").into_bytes());
                for path in &paths {
                    let made = make(client, new, path).await;
                    assert!(matches!(made, Err(FsError::Device(_))), "{metadata:?}, {new:?}: {made:?}");
                }
                client.sync().await.unwrap();
                for path in &paths {
                    assert_eq!(client.stat(path).await, Err(FsError::NotFound));
                }
                let after = client.fs().statfs().await.unwrap();
                assert_eq!(after, before, "{metadata:?}, {new:?}");
            }
            world.rewrite().await;
            make(client, new, b"/d/now").await.unwrap();
            world
                .end(&rt, options, true, async |client| {
                    client.stat(b"/d/now").await.unwrap();
                    assert_eq!(client.read_file(b"/e/f").await.unwrap(), b"/e");
                })
                .await;
        });
    }
}

/// A file without a name whose block is lost after it was made: it is refused to what would be durable, and leaves nothing
/// when its last user goes.
#[test]
fn an_unnamed_file_loses_its_place() {
    for metadata in MODES {
        simulate(1, async |rt| {
            let options = Options { metadata, ..Options::default() };
            let world = World::new(&rt, 16 * MIB, options).await;
            let client = &world.client;
            let before = client.fs().statfs().await.unwrap();
            let mut inos = Vec::new();
            for dir in ["/d", "/e"] {
                let new = NewNode { permissions: 0o600, uid: 1, gid: 2, umask: 0 };
                let dir = client.resolve(dir.as_bytes()).await.unwrap();
                let (entry, _) = client.fs().tmpfile(dir, new, OpenFlags::READ_WRITE, true).await.unwrap();
                client
                    .fs()
                    .write(entry.attr.ino, None, 0, Data::from_slice(&[7; 200_000]), WriteMode::default())
                    .await
                    .unwrap();
                inos.push(entry.attr.ino);
            }
            world.lose(world.place("/d/f").await);
            world.lose(world.place("/e/f").await);
            for _ in 0..2 {
                world.assert_sync_fails().await;
                assert!(client.fs().fsync(inos[0], None, false).await.is_err());
            }
            for ino in inos {
                client.fs().forget(ino, 1).await;
            }
            client.sync().await.unwrap();
            assert_eq!(client.fs().statfs().await.unwrap(), before, "{metadata:?}");
            world.rewrite().await;
            world
                .end(&rt, options, true, async |client| {
                    assert_eq!(client.read_dir(b"/d").await.unwrap().len(), 1);
                })
                .await;
        });
    }
}

/// A file is durable although others are not, unless it is below one of them.
#[test]
fn others_become_durable() {
    for metadata in MODES {
        simulate(1, async |rt| {
            let options = Options { metadata, ..Options::default() };
            let world = World::new(&rt, 16 * MIB, options).await;
            let client = &world.client;
            client.mkdir(b"/w/sub").await.unwrap();
            client.mkdir(b"/d/sub").await.unwrap();
            client.write_file(b"/d/sub/deep", &[4; 3000]).await.unwrap();
            client.sync().await.unwrap();
            world.lose_changed(&["/d", "/e/f"]).await;
            let names = if metadata == Metadata::Softdep { 40 } else { 0 };
            for number in 0..names {
                // The directory itself grows.
                client.link(b"/w/f", format!("/d/{number:0200}").as_bytes()).await.unwrap();
            }
            for turn in 0..2 {
                let at = |name: &str| format!("/w/{name}{turn}").into_bytes();
                let inside = format!("/w/sub/new{turn}").into_bytes();
                client.write_file(&at("new"), &[1; 30_000]).await.unwrap();
                client.write_file(&inside, &[2; 3000]).await.unwrap();
                client.write_file(&at("x"), &[3; 3000]).await.unwrap();
                client.rename(&at("x"), &at("y"), RenameMode::Replace).await.unwrap();
                client.mkdir(&at("m")).await.unwrap();
                client.rename(&at("m"), &[&b"/w/sub"[..], &at("m")[2..]].concat(), RenameMode::Replace).await.unwrap();
                for path in [at("new"), inside.clone(), at("y")] {
                    client.fsync_path(&path).await.unwrap_or_else(|error| panic!("{metadata:?}: {error}"));
                }
                for path in [&b"/w"[..], b"/w/sub"] {
                    client.fsync_dir(path).await.unwrap_or_else(|error| panic!("{metadata:?}: {error}"));
                }
                for path in ["/d", "/e/f"] {
                    let synced = client.fsync_path(path.as_bytes()).await;
                    assert!(matches!(synced, Err(FsError::Device(_))), "{metadata:?}, {path}: {synced:?}");
                }
                let below = client.write_file(b"/d/sub/deep", &[5; 3000]).await;
                below.unwrap();
                // The directory above has lost its way up to the volume only where that has to be written with it.
                let below = client.fsync_path(b"/d/sub/deep").await;
                assert_eq!(below.is_err(), metadata == Metadata::Async, "{metadata:?}: {below:?}");
                world
                    .crashed(&rt, options, async |client| {
                        assert!(client.read_file(&at("new")).await == Ok(vec![1; 30_000]), "{metadata:?}");
                        assert!(client.read_file(&inside).await == Ok(vec![2; 3000]), "{metadata:?}");
                        assert!(client.read_file(&at("y")).await == Ok(vec![3; 3000]), "{metadata:?}");
                        assert_eq!(client.stat(&at("x")).await, Err(FsError::NotFound), "{metadata:?}");
                        client.stat(format!("/w/sub/m{turn}").as_bytes()).await.unwrap();
                        if metadata != Metadata::Async {
                            assert!(client.read_file(b"/d/sub/deep").await == Ok(vec![5; 3000]), "{metadata:?}");
                        }
                    })
                    .await;
            }
            world.rewrite().await;
            client.fsync_path(b"/d").await.unwrap();
            client.fsync_path(b"/e/f").await.unwrap();
            world
                .crashed(&rt, options, async |client| {
                    for path in ["/d", "/e/f"] {
                        let permissions = client.stat(path.as_bytes()).await.unwrap().permissions;
                        assert_eq!(permissions, 0o600, "{metadata:?}");
                    }
                    assert_eq!(client.read_dir(b"/d").await.unwrap().len(), 2 + names, "{metadata:?}");
                })
                .await;
            world
                .end(&rt, options, true, async |client| {
                    assert!(client.read_file(b"/d/sub/deep").await == Ok(vec![5; 3000]), "{metadata:?}");
                })
                .await;
        });
    }
}

/// A write-back looks once at a block that cannot be read, not once for each inode in it.
#[test]
fn one_look_at_each_block() {
    for metadata in MODES {
        simulate(1, async |rt| {
            let options = Options { metadata, ..Options::default() };
            let world = World::new(&rt, 16 * MIB, options).await;
            let paths: Vec<String> =
                ["/d", "/e"].into_iter().flat_map(|dir| (0..30).map(move |file| format!("{dir}/{file}"))).collect();
            for path in &paths {
                world.client.write_file(path.as_bytes(), path.as_bytes()).await.unwrap();
            }
            world.client.sync().await.unwrap();
            for path in &paths {
                world.touch(path).await;
            }
            world.lose_changed(&["/d/f", "/e/f"]).await;
            for _ in 0..2 {
                let before = world.fault.failed();
                world.assert_sync_fails().await;
                let looks = world.fault.failed() - before;
                assert!(looks <= 2 * if metadata == Metadata::Softdep { 3 } else { 1 }, "{metadata:?}: {looks}");
            }
            world.rewrite().await;
            world
                .end(&rt, options, true, async |client| {
                    for path in paths {
                        assert_eq!(client.read_file(path.as_bytes()).await.unwrap(), path.as_bytes(), "{metadata:?}");
                        assert_eq!(client.stat(path.as_bytes()).await.unwrap().permissions, 0o600, "{metadata:?}");
                    }
                })
                .await;
        });
    }
}

/// When very many names wait for inodes that cannot be read, not every operation tries to write them.
#[test]
fn names_that_wait_for_long() {
    const MANY: u32 = 16 * 1024 + 1; // More than wait before others help.
    simulate(1, async |rt| {
        let options = Options { metadata: Metadata::Softdep, ..Options::default() };
        let world = World::new(&rt, 32 * MIB, options).await;
        world.lose_changed(&["/d/f", "/e/f"]).await;
        for number in 0..MANY {
            let file = ["/d/f", "/e/f"][number as usize % 2];
            world.client.link(file.as_bytes(), format!("/w/{number}").as_bytes()).await.unwrap();
        }
        let before = world.fault.failed();
        assert!(before > 0, "an attempt was made");
        for number in 0..20 {
            world.client.write_file(format!("/w/new{number}").as_bytes(), b"new").await.unwrap();
        }
        assert_eq!(world.fault.failed(), before);
        world.assert_sync_fails().await;
        world.rewrite().await;
        world.client.sync().await.unwrap();
        assert!(world.ffs.state.borrow().soft_text().starts_with("0 records"));
        world
            .end(&rt, options, true, async |client| {
                assert_eq!(client.stat(b"/d/f").await.unwrap().links, 1 + MANY.div_ceil(2));
                assert_eq!(client.read_file(b"/w/new19").await.unwrap(), b"new");
            })
            .await;
    });
}

/// With soft updates, a file without names is freed when its last user is gone. Where its inode cannot be read at that moment, its
/// blocks are freed with it later.
#[test]
fn blocks_of_an_inode_that_cannot_be_freed_yet() {
    simulate(1, async |rt| {
        let options = Options { metadata: Metadata::Softdep, ..Options::default() };
        let world = World::new(&rt, 16 * MIB, options).await;
        let client = &world.client;
        client.write_file(b"/d/large", &[5; 300_000]).await.unwrap();
        let at = world.place("/d/large").await;
        let file = client.open(b"/d/large", OpenFlags::READ_WRITE).await.unwrap();
        client.unlink(b"/d/large").await.unwrap();
        client.sync().await.unwrap();
        world.lose(at);
        let _ = client.close(file).await; // No caller hears of it.
        world.assert_sync_fails().await;
        world.rewrite().await;
        world.end(&rt, options, true, async |_| {}).await;
    });
}
