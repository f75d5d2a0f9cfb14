//! Aim: what is in the way of an operation halfway costs no space and no other file's data: a block that left memory while
//! the operation waited, or one that cannot be read. Method: small programs on devices that are slow or fail at the one
//! block that matters.

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::fs::ffs::numbers::GroupNo;
use crate::fs::ffs::state::inner;
use crate::units::Ino;

const BYTES: u64 = 16 * MIB;

async fn begin(rt: &Rt, options: Options) -> (Device, Rc<FaultDevice>, Rc<Ffs>, Client) {
    let (_, device) = fresh(rt, BYTES, &small_groups()).await;
    let fault = FaultDevice::new(rt, device.clone(), 1);
    let ffs = mount(rt.clone(), fault.clone(), options).await.unwrap();
    let client = Client::new(ffs.clone());
    (device, fault, ffs, client)
}

fn unreadable(ffs: &Ffs, at: FragNo) -> Rule {
    let layout = &ffs.state.borrow().layout;
    Rule::new(Kinds::READ, When::Always, Effect::Error).within(layout.sector(at)..layout.sector(at + layout.frag))
}

/// A hole is filled while the indirect block that will point to it leaves memory, and then cannot be read.
#[test]
fn a_hole_below_an_indirect_block_that_is_gone() {
    for readable in [true, false] {
        simulate(1, async |rt| {
            let (device, fault, ffs, client) = begin(&rt, Options::default()).await;
            let file = client.create(b"/f").await.unwrap();
            client.write(file, 15 * 8192, &[1; 8192]).await.unwrap();
            client.sync().await.unwrap();
            let ino = inner(client.stat(b"/f").await.unwrap().ino).unwrap();
            let indirect = ffs.step(|state| Ok(state.inode(ino)?.inode.ib[0])).await.unwrap();
            let free = client.fs().statfs().await.unwrap().blocks_free;
            client.fs().drop_caches().await.unwrap();
            let time = Nanos::from_millis(20);
            fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::Delay(time..=time)));
            let writing = {
                let client = Client::new(ffs.clone());
                rt.spawn(async move { client.write(file, 14 * 8192, &[2; 100]).await })
            };
            rt.sleep(Nanos::from_millis(5)).await;
            assert!(ffs.state.borrow().cache.any_in_flight(), "the zeroes are being written");
            ffs.state.borrow_mut().drop_caches();
            if !readable {
                fault.add(unreadable(&ffs, indirect));
            }
            let written = writing.await;
            fault.clear();
            match readable {
                true => {
                    written.expect("the indirect block is read again");
                    let mut right = vec![0; 16 * 8192];
                    right[14 * 8192..][..100].fill(2);
                    right[15 * 8192..].fill(1);
                    assert!(client.read_file(b"/f").await.unwrap() == right);
                }
                false => {
                    assert!(matches!(written, Err(FsError::Device(_))), "{written:?}");
                    assert_eq!(client.fs().statfs().await.unwrap().blocks_free, free);
                }
            }
            client.close(file).await.unwrap();
            ffs.close().await.unwrap();
            drop((client, ffs));
            assert_clean(&rt, &device).await;
        });
    }
}

/// A file goes while its indirect block cannot be read: everything else is free, and the volume is checked before it is used
/// again.
#[test]
fn a_file_of_which_a_part_cannot_be_freed() {
    for metadata in [Metadata::Sync, Metadata::Async] {
        simulate(1, async |rt| {
            let (device, fault, ffs, client) = begin(&rt, Options { metadata, ..Options::default() }).await;
            let empty = client.fs().statfs().await.unwrap().blocks_free;
            client.write_file(b"/f", &vec![1; 1 << 20]).await.unwrap();
            let ino = inner(client.stat(b"/f").await.unwrap().ino).unwrap();
            let indirect = ffs.step(|state| Ok(state.inode(ino)?.inode.ib[0])).await.unwrap();
            client.fs().drop_caches().await.unwrap();
            fault.add(unreadable(&ffs, indirect));
            assert!(matches!(client.unlink(b"/f").await, Err(FsError::Device(_))), "{metadata:?}");
            fault.clear();
            let left = (128 - 12 + 1) * 8; // The indirect block, and what is below it.
            assert_eq!(client.fs().statfs().await.unwrap().blocks_free, empty - left, "{metadata:?}");
            ffs.close().await.unwrap();
            drop((client, ffs));
            assert!(!info(&device).await.unwrap().clean, "{metadata:?}: space is lost");
            session(&rt, &device, Options { metadata, ..Options::default() }, async |client| {
                assert_eq!(client.fs().statfs().await.unwrap().blocks_free, empty, "{metadata:?}");
                assert_eq!(client.read_dir(b"/").await.unwrap().len(), 0, "{metadata:?}");
            })
            .await;
        });
    }
}

/// What one place that cannot be read is in the way of: a new directory, the inode of a file, the end of a file.
#[derive(Clone, Copy, PartialEq, Debug)]
enum InTheWay {
    NewInode,
    OldInode,
    Group,
}

/// One inode that can be neither written nor freed keeps nothing else from the volume, not even when the mount ends.
#[test]
fn one_bad_block_of_inodes_does_not_keep_the_rest_from_the_volume() {
    let modes = [Metadata::Sync, Metadata::Async, Metadata::Softdep];
    let cases = [InTheWay::NewInode, InTheWay::OldInode, InTheWay::Group];
    for (metadata, case) in modes.into_iter().flat_map(|mode| cases.map(|case| (mode, case))) {
        simulate(1, async |rt| {
            let options = Options { metadata, ..Options::default() };
            let (device, fault, ffs, client) = begin(&rt, options).await;
            client.mkdir(b"/d").await.unwrap();
            client.write_file(b"/d/f", &[1; 3000]).await.unwrap();
            client.write_file(b"/first", &[2; 3000]).await.unwrap();
            client.sync().await.unwrap();
            let ino = inner(client.stat(b"/d/f").await.unwrap().ino).unwrap();
            let (group, place) = {
                let layout = &ffs.state.borrow().layout;
                (layout.group_of_ino(ino), layout.inode_place(ino).0)
            };
            assert_ne!(group, GroupNo(0), "the root's inode can be read");
            match case {
                InTheWay::NewInode => {
                    client.fs().drop_caches().await.unwrap();
                    let groups: Vec<GroupNo> = ffs.state.borrow().layout.group_numbers().skip(1).collect();
                    for group in groups {
                        let at = {
                            let layout = &ffs.state.borrow().layout;
                            layout.inode_place(layout.first_ino(group)).0
                        };
                        fault.add(unreadable(&ffs, at));
                    }
                    let made = client.mkdir(b"/new").await;
                    assert!(matches!(made, Err(FsError::Device(_))), "{metadata:?}: {made:?}");
                    assert_eq!(client.stat(b"/new").await, Err(FsError::NotFound), "{metadata:?}");
                    let mut refused = 1;
                    while client.mkdir(b"/new").await.is_err() {
                        refused += 1;
                        assert!(refused < layout_groups(&ffs), "{metadata:?}: each block is tried once");
                    }
                    client.write_file(b"/new/below", b"kept").await.unwrap();
                    assert_eq!(client.fsync_path(b"/new/below").await, Ok(()), "{metadata:?}");
                }
                InTheWay::OldInode => {
                    let changes = SetAttr { permissions: Some(0o600), ..SetAttr::default() };
                    client.setattr(b"/d/f", changes).await.unwrap();
                    ffs.state.borrow_mut().cache.drop_clean();
                    fault.add(unreadable(&ffs, place));
                }
                InTheWay::Group => {
                    ffs.state.borrow_mut().cache.drop_clean();
                    let at = ffs.state.borrow().layout.group_block(group);
                    fault.add(unreadable(&ffs, at));
                    let _ = client.unlink(b"/d/f").await;
                }
            }
            let content: Vec<u8> = (0..90_000).map(|at| (at * 7) as u8).collect();
            client.write_file(b"/g", &content).await.unwrap();
            client.unlink(b"/first").await.unwrap();
            // Again and again: one try is as good as the next.
            let synced = [client.sync().await, client.sync().await];
            let ended = ffs.close().await;
            let is_forgotten = case == InTheWay::NewInode;
            if is_forgotten {
                assert!(synced.iter().all(Result::is_ok) && ended.is_ok(), "{metadata:?}: {synced:?}, {ended:?}");
            } else {
                assert!(matches!(ended, Err(FsError::Device(_))), "{metadata:?}, {case:?}: {ended:?}");
            }
            drop((client, ffs));
            fault.clear();
            let clean = info(&device).await.unwrap().clean;
            assert_eq!(clean, is_forgotten, "{metadata:?}, {case:?}");
            session(&rt, &device, options, async |client| {
                assert!(client.read_file(b"/g").await == Ok(content), "{metadata:?}, {case:?}: /g");
                assert_eq!(client.stat(b"/first").await, Err(FsError::NotFound), "{metadata:?}, {case:?}");
                let found = client.read_file(b"/d/f").await;
                match case {
                    InTheWay::Group => assert_eq!(found, Err(FsError::NotFound), "{metadata:?}, {case:?}"),
                    _ => assert_eq!(found, Ok(vec![1; 3000]), "{metadata:?}, {case:?}"),
                }
            })
            .await;
        });
    }
}

fn layout_groups(ffs: &Ffs) -> u32 {
    ffs.state.borrow().layout.groups
}

/// New files of directories in a group that cannot be read go to other groups, also several at once. With no other group they get
/// the error of the device, until it can be read again.
#[test]
fn new_files_go_to_groups_that_can_be_read() {
    for metadata in [Metadata::Sync, Metadata::Async, Metadata::Softdep] {
        simulate(1, async |rt| {
            let options = Options { metadata, ..Options::default() };
            let (device, fault, ffs, client) = begin(&rt, options).await;
            client.mkdir(b"/d").await.unwrap();
            client.write_file(b"/d/old", &[1; 3000]).await.unwrap();
            client.sync().await.unwrap();
            client.fs().drop_caches().await.unwrap();
            let ino = inner(client.stat(b"/d").await.unwrap().ino).unwrap();
            let blocks: Vec<(GroupNo, FragNo)> = {
                let layout = &ffs.state.borrow().layout;
                layout.group_numbers().map(|group| (group, layout.group_block(group))).collect()
            };
            let own = ffs.state.borrow().layout.group_of_ino(ino);
            assert_ne!(own, GroupNo(0), "the root is in another");
            fault.add(unreadable(&ffs, blocks[own.index()].1));
            let content = vec![7; 300_000];
            let made = futures_util::future::join_all((0..3).map(|number| {
                let (client, content) = (Client::new(ffs.clone()), &content);
                async move { client.write_file(format!("/d/{number}").as_bytes(), content).await }
            }));
            assert_eq!(made.await, [Ok(()), Ok(()), Ok(())], "{metadata:?}");
            client.sync().await.unwrap();
            client.fs().drop_caches().await.unwrap();
            for (_, at) in &blocks {
                fault.add(unreadable(&ffs, *at));
            }
            let refused = client.write_file(b"/d/more", &content).await;
            assert!(matches!(refused, Err(FsError::Device(_))), "{metadata:?}: {refused:?}");
            fault.clear();
            client.write_file(b"/d/more", &content).await.unwrap();
            let unread = ffs.state.borrow().unreadable.groups().count();
            assert!(unread < blocks.len(), "{metadata:?}: one has been read");
            client.sync().await.unwrap();
            for name in ["/d/0", "/d/1", "/d/2", "/d/more"] {
                assert!(client.read_file(name.as_bytes()).await == Ok(content.clone()), "{metadata:?}: {name}");
            }
            ffs.close().await.unwrap();
            drop((client, ffs));
            session(&rt, &device, options, async |client| {
                assert!(client.read_file(b"/d/0").await == Ok(content), "{metadata:?}");
            })
            .await;
        });
    }
}

/// What a listing has passed on: names, and whether attributes came with them.
#[derive(Default)]
struct Names(Vec<(Vec<u8>, bool)>);

impl DirSink for Names {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        self.0.push((entry.name.to_vec(), entry.entry.is_some()));
        true
    }
}

/// A directory with inodes that cannot be read is listed, with attributes where there are some. Method: directories, whose inodes
/// are in different groups.
#[test]
fn inodes_of_a_directory() {
    for lost in [vec![0], vec![2], vec![0, 1], vec![0, 1, 2]] {
        simulate(1, async |rt| {
            let (_, fault, ffs, client) = begin(&rt, Options::default()).await;
            let names = ["a", "b", "c"];
            let mut places = Vec::new();
            for name in names {
                client.mkdir(format!("/{name}").as_bytes()).await.unwrap();
                let ino = inner(client.stat(format!("/{name}").as_bytes()).await.unwrap().ino).unwrap();
                places.push(ffs.state.borrow().layout.inode_place(ino).0);
            }
            assert!(places.is_sorted_by(|one, two| one != two), "{places:?}");
            client.sync().await.unwrap();
            lost.iter().for_each(|&name: &usize| fault.add(unreadable(&ffs, places[name])));
            for attributes in [true, false, true] {
                client.fs().drop_caches().await.unwrap();
                let mut listed = Names::default();
                ffs.readdir(Ino::ROOT, None, 0, attributes, &mut listed).await.unwrap();
                let found: Vec<(Vec<u8>, bool)> =
                    listed.0.into_iter().filter(|(name, _)| !name.starts_with(b".")).collect();
                let whole = |number: usize| attributes && !lost.contains(&number);
                let expected = names.iter().enumerate().map(|(number, name)| (name.as_bytes().to_vec(), whole(number)));
                assert_eq!(found, expected.collect::<Vec<_>>(), "{lost:?}");
            }
            fault.clear();
            ffs.close().await.unwrap();
        });
    }
}

/// A rename is done or not, whatever block cannot be read that it changes behind its new name. When something is left behind, the
/// volume is checked before it is used again.
#[test]
fn a_rename_that_meets_an_unreadable_block() {
    for metadata in [Metadata::Sync, Metadata::Async, Metadata::Softdep] {
        for place in ["the way up", "the old name", "the victim"] {
            simulate(1, async |rt| {
                let what = format!("{metadata:?}, {place}");
                let (device, fault, ffs, client) = begin(&rt, Options { metadata, ..Options::default() }).await;
                for path in ["/a", "/b", "/a/d"] {
                    client.mkdir(path.as_bytes()).await.unwrap();
                }
                client.write_file(b"/a/f", &[1; 100]).await.unwrap();
                client.write_file(b"/b/f", &vec![2; 1 << 20]).await.unwrap();
                client.sync().await.unwrap();
                let (from, to): (&[u8], &[u8]) = match place {
                    "the victim" => (b"/a/f", b"/b/f"),
                    _ => (b"/a/d", b"/b/d"),
                };
                let inode = async |path: &[u8]| {
                    let ino = inner(client.stat(path).await.unwrap().ino).unwrap();
                    ffs.step(|state| Ok(state.inode(ino)?.inode)).await.unwrap()
                };
                let at = match place {
                    "the way up" => inode(b"/a/d").await.db[0],
                    "the old name" => inode(b"/a").await.db[0],
                    _ => inode(b"/b/f").await.ib[0],
                };
                client.read_dir(b"/a/d").await.unwrap();
                client.read_dir(b"/b").await.unwrap();
                // The names stay in memory.
                ffs.state.borrow_mut().cache.drop_clean();
                fault.add(unreadable(&ffs, at));
                let renamed = client.rename(from, to, RenameMode::Replace).await;
                fault.clear();
                let (old, new) = (client.stat(from).await, client.stat(to).await);
                match place {
                    "the victim" => {
                        assert_eq!(old, Err(FsError::NotFound), "{what}: {renamed:?}");
                        assert_eq!(new.unwrap().size, 100, "{what}");
                    }
                    _ => {
                        assert!(matches!(renamed, Err(FsError::Device(_))), "{what}: {renamed:?}");
                        assert!(old.is_ok(), "{what}: {old:?}");
                        assert_eq!(new, Err(FsError::NotFound), "{what}");
                    }
                }
                ffs.close().await.unwrap();
                drop((client, ffs));
                if info(&device).await.unwrap().clean {
                    assert_clean(&rt, &device).await;
                }
                session(&rt, &device, Options { metadata, ..Options::default() }, async |client| {
                    let (names, others) =
                        (client.read_dir(b"/a").await.unwrap(), client.read_dir(b"/b").await.unwrap());
                    let counts = if place == "the victim" { (1, 1) } else { (2, 1) };
                    assert_eq!((names.len(), others.len()), counts, "{what}");
                })
                .await;
            });
        }
    }
}

/// Aim: a change of names is done or not, also when blocks that it needs leave memory while it waits, and cannot be read from then
/// on. Method: slow writes; at each moment of the change memory is emptied, and the block of each directory in turn becomes
/// unreadable.
#[test]
fn names_that_change_while_a_block_leaves_memory() {
    const STEP_MS: u64 = 20;
    let modes = [RenameMode::Replace, RenameMode::Exchange, RenameMode::Whiteout { replace: true, uid: 0, gid: 0 }];
    let mut done = 0;
    for (place, mode) in ["/a", "/b", "/a/d"].into_iter().flat_map(|place| modes.map(|mode| (place, mode))) {
        for waits in 0..8 {
            simulate(1, async |rt| {
                let what = format!("{place}, {mode:?}, after {waits} writes");
                let options = Options { metadata: Metadata::Sync, ..Options::default() };
                let (device, fault, ffs, client) = begin(&rt, options).await;
                for path in ["/a", "/b", "/a/d"] {
                    client.mkdir(path.as_bytes()).await.unwrap();
                }
                if mode == RenameMode::Exchange {
                    client.write_file(b"/b/d", &[1; 100]).await.unwrap();
                }
                client.sync().await.unwrap();
                let ino = inner(client.stat(place.as_bytes()).await.unwrap().ino).unwrap();
                let at = ffs.step(|state| Ok(state.inode(ino)?.inode.db[0])).await.unwrap();
                let time = Nanos::from_millis(STEP_MS);
                fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::Delay(time..=time)));
                let renaming = {
                    let client = Client::new(ffs.clone());
                    rt.spawn(async move { client.rename(b"/a/d", b"/b/d", mode).await })
                };
                rt.sleep(Nanos::from_millis(STEP_MS / 2 + waits * STEP_MS)).await;
                ffs.state.borrow_mut().drop_caches();
                fault.add(unreadable(&ffs, at));
                let renamed = renaming.await;
                fault.clear();
                let is_new = client.stat(b"/b/d").await.is_ok_and(|attr| attr.kind == FileKind::Directory);
                assert_eq!(is_new, renamed.is_ok(), "{what}: {renamed:?}");
                let old = client.stat(b"/a/d").await.map(|attr| attr.kind);
                let expected = match (is_new, mode) {
                    (false, _) => Ok(FileKind::Directory),
                    (true, RenameMode::Exchange) => Ok(FileKind::Regular),
                    (true, RenameMode::Replace) => Err(FsError::NotFound),
                    (true, _) => Ok(FileKind::CharDevice),
                };
                assert_eq!(old, expected, "{what}: {renamed:?}");
                done += u32::from(is_new);
                ffs.close().await.unwrap();
                drop((client, ffs));
                assert!(info(&device).await.unwrap().clean, "{what}: nothing is left half done");
                println!("{what}: {renamed:?}");
                assert_clean(&rt, &device).await;
            });
        }
    }
    assert!(done >= 36, "{done} changes were done");
}
