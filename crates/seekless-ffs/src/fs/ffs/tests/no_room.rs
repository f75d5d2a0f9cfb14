//! Aim: a write that finds no space below concerns the callers that rely on it, and no others. Method: a device that holds
//! up one request, and has no room for another one that begins later or earlier.

use std::cell::Cell;

use super::*;
use crate::device::DeviceError;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::fs::ffs::cache::BufferKind;
use crate::fs::ffs::format::SUPERBLOCK_OFFSET;
use crate::fs::ffs::state::inner;
use crate::testing::volumes::full_host::Host;

const BYTES: u64 = 16 * MIB;

type Sectors = std::ops::Range<crate::units::Sector>;

/// Where the first block of a file or directory is.
async fn first_block(ffs: &Ffs, client: &Client, path: &[u8]) -> Sectors {
    let ino = inner(client.stat(path).await.unwrap().ino).unwrap();
    let at = ffs.step(|state| state.block_at(ino, 0)).await.unwrap().unwrap();
    let layout = &ffs.state.borrow().layout;
    layout.sector(at)..layout.sector(at + layout.frag)
}

fn slow(sectors: Sectors, millis: u64) -> Rule {
    let time = Nanos::from_millis(millis);
    Rule::new(Kinds::WRITE, When::Always, Effect::Delay(time..=time)).within(sectors)
}

fn full(sectors: Sectors) -> Rule {
    Rule::new(Kinds::WRITE, When::Always, Effect::NoSpace).within(sectors)
}

/// A volume with directory `/d` and the files `/one` and `/two`, of a block each.
async fn begin(rt: &Rt, metadata: Metadata) -> (Device, Rc<FaultDevice>, Rc<Ffs>, Client) {
    let (_, device, fault, ffs, client) = begin_in_memory(rt, metadata).await;
    (device, fault, ffs, client)
}

async fn begin_in_memory(rt: &Rt, metadata: Metadata) -> (Rc<Memory>, Device, Rc<FaultDevice>, Rc<Ffs>, Client) {
    let (memory, device) = fresh(rt, BYTES, &small_groups()).await;
    let fault = FaultDevice::new(rt, device.clone(), 1);
    let ffs = mount(rt.clone(), fault.clone(), Options { metadata, ..Options::default() }).await.unwrap();
    let client = Client::new(ffs.clone());
    client.mkdir(b"/d").await.unwrap();
    client.write_file(b"/one", &[1; 8192]).await.unwrap();
    client.write_file(b"/two", &[1; 8192]).await.unwrap();
    client.sync().await.unwrap();
    (memory, device, fault, ffs, client)
}

/// A name that reaches the volume is there, whatever other writes meet in the time.
#[test]
fn a_name_is_written_while_another_write_finds_no_room() {
    simulate(1, async |rt| {
        let (device, fault, ffs, client) = begin(&rt, Metadata::Sync).await;
        fault.add(slow(first_block(&ffs, &client, b"/d").await, 20));
        fault.add(full(first_block(&ffs, &client, b"/two").await));
        let begun = rt.now();
        let creating = {
            let client = Client::new(ffs.clone());
            rt.spawn(async move { client.write_file(b"/d/f", b"").await })
        };
        rt.sleep(Nanos::from_millis(5)).await;
        let two = client.open(b"/two", OpenFlags::READ_WRITE).await.unwrap();
        client.write(two, 0, &[2; 8192]).await.unwrap();
        assert!(client.fsync(two).await.is_err(), "its block finds no room");
        assert!(rt.now() - begun < Nanos::from_millis(20), "the name is being written");
        client.close(two).await.unwrap();
        creating.await.expect("the name is written");
        fault.clear();
        ffs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}

/// A write of the superblock of unknown effect stops the volume for all callers.
#[test]
fn a_superblock_that_cannot_be_written() {
    for metadata in [Metadata::Sync, Metadata::Async, Metadata::Softdep] {
        simulate(1, async |rt| {
            let (_, fault, ffs, client) = begin(&rt, metadata).await;
            let at = crate::units::Sector(SUPERBLOCK_OFFSET / crate::units::SECTOR_BYTES);
            fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::Error).within(at..at + 1));
            client.write_file(b"/three", &[3; 8192]).await.unwrap();
            let synced = client.sync().await;
            assert!(matches!(synced, Err(FsError::Stopped(_))), "{metadata:?}: {synced:?}");
            fault.clear();
            let made = client.mkdir(b"/later").await;
            assert!(matches!(made, Err(FsError::Stopped(_))), "{metadata:?}: {made:?}");
            assert!(ffs.close().await.is_err(), "{metadata:?}");
        });
    }
}

/// The same for a sync of a file, which waits for its own blocks.
#[test]
fn a_file_is_written_while_another_write_finds_no_room() {
    for metadata in [Metadata::Sync, Metadata::Softdep] {
        simulate(1, async |rt| {
            let (device, fault, ffs, client) = begin(&rt, metadata).await;
            fault.add(slow(first_block(&ffs, &client, b"/one").await, 20));
            fault.add(full(first_block(&ffs, &client, b"/two").await));
            for path in [b"/one", b"/two"] {
                let file = client.open(path, OpenFlags::READ_WRITE).await.unwrap();
                client.write(file, 0, &[2; 8192]).await.unwrap();
                client.close(file).await.unwrap();
            }
            let syncing = {
                let client = Client::new(ffs.clone());
                rt.spawn(async move { client.fsync_path(b"/one").await })
            };
            rt.sleep(Nanos::from_millis(5)).await;
            assert!(client.fsync_path(b"/two").await.is_err(), "{metadata:?}: its block finds no room");
            syncing.await.expect("all blocks of this file are written");
            fault.clear();
            ffs.close().await.unwrap();
            assert_clean(&rt, &device).await;
        });
    }
}

/// An fsync whose write finds no room fails, also when another task tries that write again before the fsync has seen that it was
/// refused. Method: a task that has been waiting for the end of any write for longer than the fsync.
#[test]
fn a_write_that_another_task_tries_again() {
    for metadata in [Metadata::Sync, Metadata::Softdep] {
        simulate(1, async |rt| {
            let (device, fault, ffs, client) = begin(&rt, metadata).await;
            let place = first_block(&ffs, &client, b"/one").await;
            fault.add(slow(place.clone(), 10));
            fault.add(full(place));
            let file = client.open(b"/one", OpenFlags::READ_WRITE).await.unwrap();
            client.write(file, 0, &[2; 8192]).await.unwrap();
            let again = {
                let ffs = ffs.clone();
                rt.spawn(async move {
                    loop {
                        ffs.progress.wait().await;
                        let mut refused = ffs.state.borrow().dirty_of_files(true, u64::MAX);
                        refused.retain(|&at| ffs.state.borrow().cache.has_failed_since(&[at], 0));
                        if !refused.is_empty() {
                            return ffs.push(refused, false);
                        }
                    }
                })
            };
            rt.sleep(Nanos::from_millis(1)).await;
            let fsync = rt.spawn(async move {
                let synced = client.fsync(file).await;
                client.close(file).await.and(synced)
            });
            // The end of a write elsewhere: both have nothing to do, and wait on.
            rt.sleep(Nanos::from_millis(5)).await;
            ffs.progress.notify();
            let synced = fsync.await;
            again.await;
            assert!(synced.is_err(), "{metadata:?}: its block has no room");
            fault.clear();
            ffs.close().await.unwrap();
            assert_clean(&rt, &device).await;
        });
    }
}

/// A sync that begins while a write is under way that will find no room writes the block itself.
#[test]
fn a_write_that_began_before_the_sync_finds_no_room() {
    for metadata in [Metadata::Sync, Metadata::Async, Metadata::Softdep] {
        simulate(1, async |rt| {
            let (device, fault, ffs, client) = begin(&rt, metadata).await;
            let place = first_block(&ffs, &client, b"/one").await;
            let file = client.open(b"/one", OpenFlags::READ_WRITE).await.unwrap();
            client.write(file, 0, &[2; 8192]).await.unwrap();
            client.close(file).await.unwrap();
            fault.add(slow(place.clone(), 20));
            fault.add(Rule { when: When::Nth(1), ..full(place.clone()) });
            let dirty = ffs.state.borrow().dirty_of_files(true, u64::MAX);
            ffs.push(dirty, false);
            rt.sleep(Nanos::from_millis(5)).await;
            client.sync().await.unwrap();
            let written = device.read(place.start, Buf::dirty(8192)).await.unwrap();
            assert!(written[..] == [2; 8192], "{metadata:?}: what the sync has reported is on the volume");
            fault.clear();
            ffs.close().await.unwrap();
            assert_clean(&rt, &device).await;
        });
    }
}

/// A new file is durable after its fsync, with its name, whatever data of others finds no room. One that is not synced is
/// after the next update.
#[test]
fn a_new_file_is_durable_while_other_data_finds_no_room() {
    for metadata in [Metadata::Sync, Metadata::Async, Metadata::Softdep] {
        simulate(1, async |rt| {
            let (memory, device, fault, ffs, client) = begin_in_memory(&rt, metadata).await;
            fault.add(full(first_block(&ffs, &client, b"/two").await));
            let two = client.open(b"/two", OpenFlags::READ_WRITE).await.unwrap();
            client.write(two, 0, &[2; 8192]).await.unwrap();
            client.close(two).await.unwrap();
            client.mkdir(b"/d/new").await.unwrap();
            client.write_file(b"/d/new/file", &[3; 8192]).await.unwrap();
            client.fsync_path(b"/d/new/file").await.expect("it has room");
            assert!(client.sync().await.is_err(), "{metadata:?}: the other one has none");
            assert!(client.fsync_path(b"/two").await.is_err(), "{metadata:?}: nor has its fsync");
            client.write_file(b"/d/new/later", &vec![4; 100_000]).await.unwrap();
            rt.sleep(Nanos::from_secs(61)).await;
            let killed = Rc::new(Memory::from_image(BYTES, memory.image()));
            let again = Client::new(mount(rt.clone(), killed, Options::default()).await.unwrap());
            assert!(again.read_file(b"/d/new/file").await.unwrap() == [3; 8192], "{metadata:?}");
            assert!(again.read_file(b"/d/new/later").await.unwrap() == vec![4; 100_000], "{metadata:?}");
            fault.clear();
            ffs.close().await.unwrap();
            assert_clean(&rt, &device).await;
        });
    }
}

/// The same where a block of inodes has no room: only those in it are not durable.
#[test]
fn other_inodes_are_durable_while_some_find_no_room() {
    for metadata in [Metadata::Sync, Metadata::Async] {
        simulate(1, async |rt| {
            let (memory, device, fault, ffs, client) = begin_in_memory(&rt, metadata).await;
            // Another directory has its inodes in another group.
            client.mkdir(b"/e").await.unwrap();
            client.write_file(b"/e/file", b"").await.unwrap();
            client.write_file(b"/d/other", b"").await.unwrap();
            client.sync().await.unwrap();
            let block_of = async |path: &[u8]| {
                let ino = inner(client.stat(path).await.unwrap().ino).unwrap();
                let layout = &ffs.state.borrow().layout;
                layout.sector(layout.inode_place(ino).0)..layout.sector(layout.inode_place(ino).0 + layout.frag)
            };
            let (other, file) = (block_of(b"/d/other").await, block_of(b"/e/file").await);
            assert_ne!(other, file, "they are in different blocks");
            fault.add(full(other));
            for path in [&b"/d/other"[..], b"/e/file"] {
                let open = client.open(path, OpenFlags::READ_WRITE).await.unwrap();
                client.write(open, 8192, &[5; 8192]).await.unwrap();
                client.close(open).await.unwrap();
            }
            assert!(client.sync().await.is_err(), "{metadata:?}: one of them has no room");
            client.fsync_path(b"/e/file").await.expect("it has room");
            assert!(client.fsync_path(b"/d/other").await.is_err(), "{metadata:?}");
            let killed = Rc::new(Memory::from_image(BYTES, memory.image()));
            let again = Client::new(mount(rt.clone(), killed, Options::default()).await.unwrap());
            assert!(again.read_file(b"/e/file").await.unwrap()[8192..] == [5; 8192], "{metadata:?}");
            fault.clear();
            ffs.close().await.unwrap();
            assert_clean(&rt, &device).await;
        });
    }
}

/// On a full host, a sync tries each block once at most, and few of those that may have no storage.
#[test]
fn a_full_host_is_asked_little() {
    for metadata in [Metadata::Sync, Metadata::Softdep] {
        simulate(1, async |rt| {
            let host = Host::new(BYTES);
            mkfs(&rt, &(host.clone() as Device), &small_groups()).await.unwrap();
            let fault = FaultDevice::new(&rt, host.clone(), 1);
            let options = Options { metadata, ..Options::default() };
            let ffs = mount(rt.clone(), fault.clone(), options).await.unwrap();
            let client = Client::new(ffs.clone());
            client.write_file(b"/waits", &[1; 8192]).await.unwrap();
            client.sync().await.unwrap();
            let waits = client.open(b"/waits", OpenFlags::READ_WRITE).await.unwrap();
            client.write(waits, 8192, &vec![1; 2 << 20]).await.unwrap();
            host.fill();
            assert!(client.fsync(waits).await.is_err(), "{metadata:?}: the host has no room");
            client.close(waits).await.unwrap();
            for round in 0..4 {
                let before = ffs.state.borrow().counters.block_writes;
                assert!(client.sync().await.is_err(), "{metadata:?}, round {round}: the host has no room");
                let writes = ffs.state.borrow().counters.block_writes - before;
                assert!(writes < 20, "{metadata:?}, round {round}: {writes} writes");
            }
            client.unlink(b"/waits").await.unwrap();
            client.sync().await.expect("nothing waits for room");
            ffs.close().await.unwrap();
            assert_clean(&rt, &(host.clone() as Device)).await;
        });
    }
}

/// A directory that is moved and leaves a whiteout stays as it is, in memory too, when its mark finds no room.
#[test]
fn a_mark_that_finds_no_room_is_taken_back() {
    simulate(1, async |rt| {
        let (device, fault, ffs, client) = begin(&rt, Metadata::Sync).await;
        client.mkdir(b"/d/moved").await.unwrap();
        client.mkdir(b"/e").await.unwrap();
        client.sync().await.unwrap();
        let dir = inner(client.stat(b"/d").await.unwrap().ino).unwrap();
        fault.add(full(first_block(&ffs, &client, b"/d").await));
        let mode = RenameMode::Whiteout { replace: true, uid: 0, gid: 0 };
        for round in 0..2 {
            assert_eq!(client.rename(b"/d/moved", b"/e/moved", mode).await, Err(FsError::NoSpace), "round {round}");
            let found = ffs.step(|state| state.find(dir, b"moved")).await.unwrap().unwrap();
            assert_eq!(found.kind, dirent_type(FileKind::Directory), "round {round}");
        }
        fault.clear();
        client.rename(b"/d/moved", b"/e/moved", mode).await.unwrap();
        assert_eq!(client.stat(b"/d/moved").await.unwrap().kind, FileKind::CharDevice);
        assert_eq!(client.stat(b"/e/moved").await.unwrap().kind, FileKind::Directory);
        ffs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}

/// Aim: with soft updates, data without room below keeps no deletion from becoming durable, and what is freed has room for
/// others. Method: a sparse file on a full host, a file whose data waits, and two clients that delete others; a kill,
/// and the same again in a second life, which finds no room either.
#[test]
fn deletions_are_durable_while_data_finds_no_room() {
    const FILE: usize = 100_000;
    let name = |file: u64| format!("/f{file}").into_bytes();
    simulate(1, async |rt| {
        let options = Options { metadata: Metadata::Softdep, ..Options::default() };
        let mut host = Host::new(32 * MIB);
        mkfs(&rt, &(host.clone() as Device), &small_groups()).await.unwrap();
        host.free(3000);
        let mut files = 0..0;
        for life in 0..2 {
            let ffs = mount(rt.clone(), host.clone(), options).await.unwrap();
            let client = Client::new(ffs.clone());
            for file in 0..files.end {
                let found = client.read_file(&name(file)).await;
                let expected = if files.contains(&file) { Ok(vec![file as u8; FILE]) } else { Err(FsError::NotFound) };
                assert!(found == expected, "life {life}: file {file}");
            }
            // While there is room, and again where others were deleted.
            while files.end < 80 {
                client.write_file(&name(files.end), &[files.end as u8; FILE]).await.unwrap();
                client.fsync_path(&name(files.end)).await.unwrap();
                files.end += 1;
            }
            host.fill();
            // More than what was deleted before left room for.
            let _ = client.write_file(b"/waits", &vec![9; 8 * MIB as usize]).await;
            assert!(client.sync().await.is_err(), "life {life}: its data finds no room");
            for round in 0..2 {
                let free = ffs.statfs().await.unwrap().blocks_free;
                let delete = async |from: u64| {
                    for file in from..from + 10 {
                        client.unlink(&name(file)).await?;
                    }
                    client.sync().await
                };
                let (one, other) = futures_util::future::join(delete(files.start), delete(files.start + 10)).await;
                assert!(one.is_err() && other.is_err(), "life {life}, round {round}: there is still data without room");
                files.start += 20;
                let more = ffs.statfs().await.unwrap().blocks_free - free;
                assert!(more * 1024 >= 20 * FILE as u64, "life {life}, round {round}: {more} fragments were freed");
            }
            if life == 0 {
                let killed = host.killed();
                let again = mount(rt.clone(), killed.clone(), options).await.unwrap();
                let found = Client::new(again.clone()).read_dir(b"/").await.unwrap().len() as u64;
                assert!((files.end - files.start..=files.end - files.start + 1).contains(&found), "{found} names");
                drop(again);
                host = killed;
                drop((client, ffs));
                continue;
            }
            client.unlink(b"/waits").await.unwrap();
            client.sync().await.expect("nothing waits for room");
            ffs.close().await.unwrap();
        }
        assert_clean(&rt, &(host.clone() as Device)).await;
    });
}

/// A write, a truncation upwards and an allocation that find no room below for an indirect block leave a file as long as it
/// was.
#[test]
fn a_growth_that_finds_no_room_is_taken_back() {
    simulate(1, async |rt| {
        let host = Host::new(32 * MIB);
        mkfs(&rt, &(host.clone() as Device), &small_groups()).await.unwrap();
        let ffs = mount(rt.clone(), host.clone(), Options::default()).await.unwrap();
        let client = Client::new(ffs.clone());
        client.write_file(b"/small", &[1; 100]).await.unwrap();
        client.write_file(b"/direct", &[1; 12 * 8192 - 100]).await.unwrap();
        client.write_file(b"/empty", b"").await.unwrap();
        client.sync().await.unwrap();
        host.fill();
        let paths: [(&[u8], usize); 3] = [(b"/small", 100), (b"/direct", 12 * 8192 - 100), (b"/empty", 0)];
        for (path, size) in paths {
            let shown = String::from_utf8_lossy(path);
            let file = client.open(path, OpenFlags::READ_WRITE).await.unwrap();
            for (offset, bytes) in [(12 * 8192, 10), (13 * 8192, 8192), (12 * 8192 - 50, 100)] {
                let written = client.write(file, offset, &vec![2; bytes]).await;
                assert_eq!(written, Err(FsError::NoSpace), "{shown} at {offset}");
                assert_eq!(client.stat(path).await.unwrap().size, size as u64, "{shown} at {offset}");
            }
            assert_eq!(client.truncate(path, 13 * 8192).await, Err(FsError::NoSpace), "{shown}");
            assert_eq!(client.stat(path).await.unwrap().size, size as u64, "{shown}: truncated");
            let range = FileRange { offset: 0, bytes: 14 * 8192 };
            let allocated = client.fallocate(path, range, AllocateMode::Allocate { keep_size: false }).await;
            assert_eq!(allocated, Err(FsError::NoSpace), "{shown}");
            assert_eq!(client.stat(path).await.unwrap().size, size as u64, "{shown}: allocated");
            client.close(file).await.unwrap();
        }
        assert_eq!(ffs.check().await.unwrap(), Vec::<String>::new());
        host.free(1000);
        for (path, size) in paths {
            assert!(client.read_file(path).await.unwrap() == vec![1; size]);
        }
        ffs.close().await.unwrap();
        assert_clean(&rt, &(host.clone() as Device)).await;
    });
}

/// What a file loses while the pointers to it find no room below belongs to no other file until the volume has lost the
/// pointers, too. Method: a file of most of a volume loses blocks while its inode or an indirect block finds no room; other
/// files are written and synced, and the power fails.
#[test]
fn what_is_lost_without_room_is_not_given_away() {
    const FILE: u64 = 5 * MIB;
    const KEPT: u64 = 100 * 1024;
    #[derive(Clone, Copy, Debug)]
    enum Loss {
        Whole,
        End,
        Middle,
        Name,
    }
    let mkfs_options = MkfsOptions { block_bytes: 4096, frag_bytes: 512, ..small_groups() };
    for pointers in 0..4 {
        for loss in [Loss::Whole, Loss::End, Loss::Middle, Loss::Name] {
            simulate(1, async |rt| {
                let memory = Rc::new(Memory::new(8 * MIB));
                mkfs(&rt, &(memory.clone() as Device), &mkfs_options).await.unwrap();
                let fault = FaultDevice::new(&rt, memory.clone(), 1);
                let options = Options { use_reserve: true, ..Options::default() };
                let ffs = mount(rt.clone(), fault.clone(), options).await.unwrap();
                let client = Client::new(ffs.clone());
                client.write_file(b"/large", &vec![1; FILE as usize]).await.unwrap();
                let large = inner(client.stat(b"/large").await.unwrap().ino).unwrap();
                // The inodes of the others are in another block.
                let layout = ffs.state.borrow().layout.clone();
                let mut others = String::new();
                for number in 0..layout.groups {
                    others = format!("/d{number}");
                    client.mkdir(others.as_bytes()).await.unwrap();
                    let dir = client.stat(others.as_bytes()).await.unwrap().ino;
                    if layout.group_of_ino(inner(dir).unwrap()) != layout.group_of_ino(large) {
                        break;
                    }
                }
                client.sync().await.unwrap();
                let at = ffs.step(|state| {
                    let inode = state.inode(large)?.inode;
                    let doubly = state.buffer(inode.ib[1], state.layout.frag, BufferKind::Indirect { ino: large })?;
                    Ok([state.layout.inode_place(large).0, inode.ib[0], inode.ib[1], pointer_in(&doubly, 0)][pointers])
                });
                let at = at.await.unwrap();
                fault.add(full(layout.sector(at)..layout.sector(at + layout.frag)));
                match loss {
                    Loss::Whole => client.truncate(b"/large", 0).await.unwrap(),
                    Loss::End => client.truncate(b"/large", KEPT).await.unwrap(),
                    Loss::Middle => {
                        let range = FileRange { offset: 4096, bytes: FILE - 2 * 4096 };
                        client.fallocate(b"/large", range, AllocateMode::PunchHole).await.unwrap();
                    }
                    Loss::Name => client.unlink(b"/large").await.unwrap(),
                }
                let mut written: Vec<Vec<u8>> = Vec::new();
                for number in 0..150 {
                    let path = format!("{others}/f{number}").into_bytes();
                    let done = async {
                        client.write_file(&path, &[2; 50_000]).await?;
                        client.fsync_path(&path).await
                    };
                    match done.await {
                        Ok(()) => written.push(path),
                        // Another one may not need the place that has no room.
                        Err(FsError::NoSpace | FsError::Device(DeviceError::NoSpace { .. })) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                assert!(written.len() >= 20, "pointers {pointers}, {loss:?}: {} files", written.len());
                assert_eq!(ffs.check().await.unwrap(), Vec::<String>::new());
                let left: Device = Rc::new(Memory::from_image(8 * MIB, memory.image()));
                let found = fsck(&rt, &left, FsckOptions::default()).await.unwrap();
                let shared = found.problems.iter().find(|problem| problem.text.contains("belongs to another inode"));
                assert_eq!(shared, None);
                session(&rt, &left, Options::default(), async |client| {
                    for path in &written {
                        assert!(client.read_file(path).await.unwrap() == [2; 50_000]);
                    }
                    if let Ok(large) = client.read_file(b"/large").await {
                        assert!(large.iter().all(|byte| [0, 1].contains(byte)), "it has bytes of another file");
                    }
                })
                .await;
                // With room, all of it is free.
                fault.clear();
                client.sync().await.unwrap();
                for path in &written {
                    client.unlink(path).await.unwrap();
                }
                if matches!(loss, Loss::Whole | Loss::Name) {
                    client.write_file(b"/again", &vec![3; 4 * MIB as usize]).await.unwrap();
                }
                ffs.close().await.unwrap();
                assert_clean(&rt, &(memory.clone() as Device)).await;
            });
        }
    }
}

/// A directory that grows in a block for which there is no room below, and then in the next one, for which there is, does not become
/// longer on the volume. Method: an indirect block leads to both.
#[test]
fn a_directory_grows_behind_a_block_without_room() {
    for metadata in [Metadata::Sync, Metadata::Softdep] {
        simulate(1, async |rt| {
            let (memory, _, fault, ffs, client) = begin_in_memory(&rt, metadata).await;
            let name = |number: u32| format!("/d/{number:-<250}").into_bytes();
            // Twelve blocks, and one chunk of the next one.
            let direct = 12 * 8192 / 512 + 1;
            for number in 0..direct {
                client.link(b"/one", &name(number)).await.unwrap();
            }
            client.sync().await.unwrap();
            let dir = inner(client.stat(b"/d").await.unwrap().ino).unwrap();
            let last = ffs.step(|state| state.block_at(dir, 12)).await.unwrap().unwrap();
            let place = {
                let layout = &ffs.state.borrow().layout;
                layout.sector(last)..layout.sector(last + layout.frag)
            };
            fault.add(full(place));
            for number in direct..direct + 40 {
                let linked = client.link(b"/one", &name(number)).await;
                assert!(linked.is_ok() || metadata == Metadata::Sync, "{metadata:?}: {linked:?}");
            }
            for _ in 0..3 {
                let synced = client.sync().await;
                assert!(synced.is_err() || metadata == Metadata::Sync, "{metadata:?}: the names are not on the volume");
                let device: Device = Rc::new(Memory::from_image(BYTES, memory.image()));
                session(&rt, &device, Options { metadata, ..Options::default() }, async |client| {
                    let found = client.read_dir(b"/d").await.unwrap().len();
                    assert!(found >= direct as usize, "{metadata:?}: {found} names");
                })
                .await;
            }
            fault.clear();
            ffs.close().await.unwrap();
        });
    }
}

/// A sync that reports success has made durable what a file was when it began, whichever one write finds no room and although the
/// file gets longer all the time.
#[test]
fn a_file_gets_longer_beside_a_sync_without_room() {
    for metadata in [Metadata::Sync, Metadata::Async, Metadata::Softdep] {
        simulate(1, async |rt| {
            let mut failed = 0;
            for nth in 1..30 {
                for pause in [500, 1500, 2200, 3100] {
                    failed += u32::from(grow_beside_a_sync(&rt, metadata, nth, Nanos::from_micros(pause)).await);
                }
            }
            assert!(failed > 0, "{metadata:?}: no sync has failed");
        });
    }
}

/// Syncs while a client appends to `/one`, with pauses, and with no room for the write `nth`. Looks at what the volume has when the sync reports
/// success; returns whether it failed.
async fn grow_beside_a_sync(rt: &Rt, metadata: Metadata, nth: u64, pause: Nanos) -> bool {
    let (memory, _, fault, ffs, client) = begin_in_memory(rt, metadata).await;
    let (blocks, ended) = (Rc::new(Cell::new(1)), Rc::new(Cell::new(false)));
    let time = Nanos::from_millis(2);
    fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::Delay(time..=time)));
    fault.add(Rule::new(Kinds::WRITE, When::Nth(nth), Effect::NoSpace));
    let appending = {
        let (inner, client) = (rt.clone(), Client::new(ffs.clone()));
        let (blocks, ended) = (blocks.clone(), ended.clone());
        rt.spawn(async move {
            let file = client.open(b"/one", OpenFlags::READ_WRITE).await.unwrap();
            while !ended.get() {
                match client.write(file, blocks.get() * 8192, &[1; 8192]).await {
                    Ok(()) => blocks.set(blocks.get() + 1),
                    Err(error) => assert_eq!(error, FsError::NoSpace),
                }
                inner.sleep(pause).await;
            }
            client.close(file).await.unwrap();
        })
    };
    // It may write what has found no room for the sync.
    let other = {
        let (inner, client, ended) = (rt.clone(), Client::new(ffs.clone()), ended.clone());
        rt.spawn(async move {
            let file = client.open(b"/two", OpenFlags::READ_WRITE).await.unwrap();
            for block in (1..).take_while(|_| !ended.get()) {
                let _ = client.write(file, block * 8192, &[2; 8192]).await;
                let _ = client.fsync(file).await;
                inner.sleep(Nanos::from_micros(100)).await;
            }
            client.close(file).await.unwrap();
        })
    };
    rt.sleep(Nanos::from_micros(1300)).await;
    let acknowledged = blocks.get();
    let synced = client.sync().await;
    let device: Device = Rc::new(Memory::from_image(BYTES, memory.image()));
    ended.set(true);
    appending.await;
    other.await;
    fault.clear();
    ffs.close().await.unwrap();
    if synced.is_ok() {
        let options = Options { metadata, ..Options::default() };
        let ffs = mount(rt.clone(), device, options).await.unwrap();
        let found = Client::new(ffs.clone()).read_file(b"/one").await.unwrap();
        let at = format!("{metadata:?}, write {nth}, pauses of {pause:?}");
        assert!(found.len() as u64 >= acknowledged * 8192, "{at}: {} of {} bytes", found.len(), acknowledged * 8192);
        assert!(found[..acknowledged as usize * 8192].iter().all(|&byte| byte == 1), "{at}");
        ffs.close().await.unwrap();
    }
    synced.is_err()
}

/// An exchange frees nothing, and may have written one of its two names when there is no room for the other. A sync of a file writes
/// the name that the file has got, or fails.
#[test]
fn an_exchange_of_which_one_name_finds_no_room() {
    for refused in ["/d", "/e"] {
        simulate(1, async |rt| {
            let (memory, device, fault, ffs, client) = begin_in_memory(&rt, Metadata::Sync).await;
            client.mkdir(b"/e").await.unwrap();
            client.write_file(b"/d/a", b"a").await.unwrap();
            client.write_file(b"/e/b", b"b").await.unwrap();
            client.sync().await.unwrap();
            fault.add(full(first_block(&ffs, &client, refused.as_bytes()).await));
            client.rename(b"/d/a", b"/e/b", RenameMode::Exchange).await.unwrap();
            let mut results = Vec::new();
            for (path, content) in [("/d/a", b"b"), ("/e/b", b"a")] {
                let synced = client.fsync_path(path.as_bytes()).await;
                results.push(synced.is_ok());
                if synced.is_ok() {
                    let held: Device = Rc::new(Memory::from_image(BYTES, memory.image()));
                    session(&rt, &held, Options::default(), async |client| {
                        assert_eq!(
                            client.read_file(path.as_bytes()).await.unwrap(),
                            content,
                            "{path}, no room in {refused}"
                        );
                    })
                    .await;
                }
            }
            assert!(results.contains(&false), "{refused}");
            fault.clear();
            for path in ["/d/a", "/e/b"] {
                client.fsync_path(path.as_bytes()).await.unwrap();
            }
            let held: Device = Rc::new(Memory::from_image(BYTES, memory.image()));
            ffs.close().await.unwrap();
            drop((client, ffs));
            assert_clean(&rt, &device).await;
            for device in [held, device] {
                session(&rt, &device, Options::default(), async |client| {
                    assert_eq!(client.read_file(b"/d/a").await.unwrap(), b"b", "{refused}");
                    assert_eq!(client.read_file(b"/e/b").await.unwrap(), b"a", "{refused}");
                })
                .await;
            }
        });
    }
}

/// Syncs that fail again and again for lack of room leave nothing in memory.
#[test]
fn failed_syncs_leave_nothing_in_memory() {
    simulate(1, async |rt| {
        let (device, fault, ffs, client) = begin(&rt, Metadata::Softdep).await;
        let one = inner(client.stat(b"/one").await.unwrap().ino).unwrap();
        let inodes = {
            let layout = &ffs.state.borrow().layout;
            let (at, _) = layout.inode_place(one);
            layout.sector(at)..layout.sector(at + layout.frag)
        };
        let waiting = |ffs: &Ffs| ffs.state.borrow().soft.as_deref().unwrap().waiting_events();
        for (what, refused) in [("names", first_block(&ffs, &client, b"/d").await), ("inodes", inodes)] {
            for name in 0..20 {
                client.link(b"/one", format!("/d/{what}{name}").as_bytes()).await.unwrap();
            }
            client.truncate(b"/one", 100).await.unwrap();
            client.write_file(b"/one", &[3; 20 * 8192]).await.unwrap();
            fault.add(full(refused));
            let mut before = 0;
            for turn in 0..50 {
                assert!(client.sync().await.is_err(), "{what}");
                let events = waiting(&ffs);
                assert!(turn < 3 || events <= before, "{what}: {events} events wait, {before} before");
                before = events;
            }
            fault.clear();
        }
        ffs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}
