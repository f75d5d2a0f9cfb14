//! Aim: a file that was accepted, and has found no room on a full host, blocks nothing once other files have been deleted: what it
//! holds moves to where they were, and is durable. Method: sparse files on hosts that become full, in all modes.

use std::cell::RefCell;
use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::crash::BYTES as CUT_BYTES;
use super::*;
use crate::device::DeviceError;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::cut::Effort;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::fs::ffs::state::inner;
use crate::rng::Rng;
use crate::testing::environment::replay;
use crate::testing::volumes::full_host::Host;
use crate::testing::volumes::life::must_have_covered;

const BYTES: u64 = 32 * MIB;
const OTHER_BYTES: usize = 100_000;
const MODES: [Metadata; 3] = [Metadata::Sync, Metadata::Async, Metadata::Softdep];

/// Cover points of moves.
pub(super) const POINTS: &[&str] = &[
    "ffs: a block without storage moves",
    "ffs: a tail without storage moves",
    "ffs: an indirect block without storage moves",
];

fn other(number: u64) -> Vec<u8> {
    format!("/other{number}").into_bytes()
}

fn content(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at / 512) as u8 ^ (at % 251) as u8 ^ seed).collect()
}

async fn write_over(client: &Client, path: &[u8], content: &[u8]) -> FsResult<()> {
    let file = client.open_or_create(path).await?;
    client.write(file, 0, content).await?;
    client.close(file).await
}

/// A volume on a host that has become full, with `others` synced files that can be deleted.
async fn begin(rt: &Rt, metadata: Metadata, others: u64) -> (Rc<Host>, Rc<Ffs>, Client) {
    let host = Host::new(BYTES);
    mkfs(rt, &(host.clone() as Device), &small_groups()).await.unwrap();
    let ffs = mount(rt.clone(), host.clone(), Options { metadata, ..Options::default() }).await.unwrap();
    let client = Client::new(ffs.clone());
    client.write_file(b"/short", &content(3000, 7)).await.unwrap();
    for number in 0..others {
        client.write_file(&other(number), &vec![number as u8; OTHER_BYTES]).await.unwrap();
    }
    client.sync().await.unwrap();
    (host, ffs, client)
}

/// After a kill each of these files has its content, and the volume needs no repair that a crash does not explain.
async fn killed_has(rt: &Rt, host: &Rc<Host>, files: &[(&[u8], Vec<u8>)], what: &str) {
    let ffs = mount(rt.clone(), host.killed(), Options::default()).await.unwrap();
    let client = Client::new(ffs.clone());
    for (path, expected) in files {
        let found = client.read_file(path).await;
        let found = found.unwrap_or_else(|error| panic!("{what}: {}: {error}", String::from_utf8_lossy(path)));
        assert!(found == *expected, "{what}: {} of {} bytes", String::from_utf8_lossy(path), found.len());
    }
    assert_eq!(ffs.check().await.unwrap(), Vec::<String>::new(), "{what}");
}

/// Other files are deleted, and a sync or an fsync of the file succeeds. A tail, blocks, indirect blocks, two files.
#[test]
fn deleting_other_files_is_enough() {
    crate::rt::covered();
    for metadata in MODES {
        for bytes in [700, 8192, 20_000, 3_000_000] {
            for by_fsync in [false, true] {
                let what = format!("{metadata:?}, {bytes} bytes, by fsync {by_fsync}");
                simulate(1, async |rt| {
                    let (host, ffs, client) = begin(&rt, metadata, 80).await;
                    let files: [(&[u8], Vec<u8>); 2] =
                        [(b"/one", content(bytes, 1)), (b"/two", content(bytes / 2 + 1, 2))];
                    if metadata == Metadata::Sync && bytes > 1_000_000 {
                        // A new indirect block without room would end the write.
                        for (path, _) in &files {
                            write_over(&client, path, &[1; 13 * 8192]).await.unwrap();
                        }
                        client.sync().await.unwrap();
                    }
                    host.fill();
                    for (path, content) in &files {
                        write_over(&client, path, content).await.unwrap_or_else(|error| panic!("{what}: {error}"));
                    }
                    let refused = client.sync().await.expect_err("the host has no room");
                    assert!(matches!(refused, FsError::NoSpaceBelow(_)), "{what}: {refused}");
                    let text = refused.to_string();
                    assert!(text.contains("/one (inode ") && text.contains("/two (inode "), "{what}: {text}");
                    for number in 0..40 {
                        client.unlink(&other(number)).await.unwrap();
                    }
                    if by_fsync {
                        // With soft updates, what is deleted is free after some rounds.
                        client.sync().await.unwrap_or_else(|error| panic!("{what}: {error}"));
                        for (path, _) in &files {
                            client.fsync_path(path).await.unwrap_or_else(|error| panic!("{what}: {error}"));
                        }
                    } else {
                        client.sync().await.unwrap_or_else(|error| panic!("{what}: {error}"));
                    }
                    assert_eq!(ffs.check().await.unwrap(), Vec::<String>::new(), "{what}");
                    killed_has(&rt, &host, &files, &what).await;
                    for (path, content) in &files {
                        assert!(client.read_file(path).await.unwrap() == *content, "{what}");
                    }
                    ffs.close().await.unwrap();
                    drop((client, ffs));
                    assert_clean(&rt, &(host.clone() as Device)).await;
                    killed_has(&rt, &host, &files, &what).await;
                });
            }
        }
    }
    must_have_covered("fs::ffs::tests::relocate::deleting_other_files_is_enough", POINTS);
}

/// Overwrites `length` bytes of a synced file where each of its blocks is refused. Returns what has to be there afterwards.
async fn refuse(ffs: &Ffs, client: &Client, fault: &FaultDevice, path: &[u8], length: usize) {
    let ino = inner(client.stat(path).await.unwrap().ino).unwrap();
    for lbn in 0..length.div_ceil(8192) as u64 {
        let at = ffs.step(|state| state.block_at(ino, lbn)).await.unwrap().unwrap();
        let layout = &ffs.state.borrow().layout;
        let frags = layout.block_frags(length as u64, lbn);
        let places = layout.sector(at)..layout.sector(at + frags);
        fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::NoSpace).within(places.clone()));
        fault.add(Rule::new(Kinds::PROVISION, When::Always, Effect::NoSpace).within(places));
    }
    write_over(client, path, &vec![2; length]).await.unwrap();
}

/// A power cut at any moment of a move finds each byte of a synced file as it was, or as it was written since; after the sync,
/// only the latter, also when other files have the old places.
#[test]
fn a_move_is_cut_anywhere() {
    const FILES: [(&[u8], usize); 3] = [(b"/two", 20 * 8192), (b"/tail", 1500), (b"/block", 3 * 8192)];
    let replay = replay("fs::ffs::tests::relocate::a_move_is_cut_anywhere");
    for seed in replay.seeds(0..6) {
        let again = replay.command(seed, None, None, None);
        let device = super::crash::devices()[seed as usize % 3].clone();
        let metadata = [Metadata::Sync, Metadata::Softdep][seed as usize / 3 % 2];
        let (log, begun, synced) = simulate(seed, async |rt| {
            let recording = CrashOptions { seed, record: true, ..device.clone() };
            let device = CrashDevice::new(&rt, Image::default(), recording);
            mkfs(&rt, &(device.clone() as Device), &small_groups()).await.unwrap();
            let fault = FaultDevice::new(&rt, device.clone(), seed);
            let ffs = mount(rt.clone(), fault.clone(), Options { metadata, ..Options::default() }).await.unwrap();
            let client = Client::new(ffs.clone());
            for (path, length) in FILES {
                client.write_file(path, &vec![1; length]).await.unwrap();
            }
            client.sync().await.unwrap();
            let begun = device.position();
            for (path, length) in FILES {
                refuse(&ffs, &client, &fault, path, length).await;
            }
            client.sync().await.unwrap_or_else(|error| panic!("{again}: {error}"));
            let synced = device.position();
            fault.clear();
            for number in 0..4 {
                client.write_file(format!("/new{number}").as_bytes(), &[3; 100_000]).await.unwrap();
                client.sync().await.unwrap();
            }
            assert_eq!(ffs.check().await.unwrap(), Vec::<String>::new(), "{again}");
            (device.log(), begun, synced)
        });
        let mut states = 0;
        for position in log.positions().into_iter().filter(|&position| position >= begun) {
            let cut = log.cut(position);
            for choice in cut.choices(&Effort::SAMPLED, seed) {
                states += 1;
                let what = format!("{again}, {metadata:?}, {}", cut.to_text(&choice));
                let left: Device = Rc::new(Memory::from_image(CUT_BYTES, cut.image(&choice)));
                simulate(seed, async |rt| {
                    let mounted = mount(rt.clone(), left.clone(), Options::default()).await;
                    let ffs = mounted.unwrap_or_else(|error| panic!("{what}: {error}"));
                    let client = Client::new(ffs.clone());
                    for (path, length) in FILES {
                        let found = client.read_file(path).await.unwrap_or_else(|error| panic!("{what}: {error}"));
                        let allowed: &[u8] = if position >= synced { &[2] } else { &[1, 2] };
                        assert_eq!(found.len(), length, "{what}");
                        let other = found.iter().find(|byte| !allowed.contains(byte));
                        assert_eq!(other, None, "{what}: {}", String::from_utf8_lossy(path));
                    }
                });
            }
        }
        assert!(states > 40, "{again}: {states} states");
    }
}

/// What one client has written.
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A client that changes its own files. One that finds no room is removed: how much of the write is there is not known.
async fn change(rt: &Rt, client: &Client, rng: &mut Rng, number: u64, model: &mut Model, what: &str) {
    for _ in 0..25 {
        let path = format!("/client{number}-{}", rng.below(3)).into_bytes();
        let done = match rng.below(10) {
            0 => match client.unlink(&path).await {
                Ok(()) => {
                    model.remove(&path);
                    Ok(())
                }
                Err(FsError::NotFound) => Ok(()),
                error => error,
            },
            1 | 2 if model.contains_key(&path) => {
                let size = rng.below(250_000) as usize;
                let done = client.truncate(&path, size as u64).await;
                if let (Ok(()), Some(content)) = (&done, model.get_mut(&path)) {
                    content.resize(size, 0);
                }
                done
            }
            // Whether there is room for all of it is not known.
            3 | 4 => client.fsync_path(&path).await.or(Ok(())),
            5 => client.sync().await.or(Ok(())),
            _ => {
                let from = rng.below(150_000) as usize;
                let bytes = content(1 + rng.below(120_000) as usize, rng.below(256) as u8);
                let done = async {
                    let file = client.open_or_create(&path).await?;
                    let written = client.write(file, from as u64, &bytes).await;
                    client.close(file).await.and(written)
                };
                let done = done.await;
                if done.is_ok() {
                    let content = model.entry(path.clone()).or_default();
                    content.resize(content.len().max(from + bytes.len()), 0);
                    content[from..from + bytes.len()].copy_from_slice(&bytes);
                }
                done
            }
        };
        match done {
            Ok(()) => {}
            Err(FsError::NoSpace | FsError::Device(DeviceError::NoSpace { .. })) => {
                let gone = client.unlink(&path).await;
                assert!(matches!(gone, Ok(()) | Err(FsError::NotFound)), "{what}: unlink: {gone:?}");
                model.remove(&path);
            }
            Err(error) => panic!("{what}: {error}"),
        }
        rt.sleep(Nanos::from_millis(rng.below(30))).await;
    }
}

/// Files that found no room are overwritten, truncated, removed and synced while they move, and the host refuses again in the
/// midst. In the end, with room, everything is durable. Method: three clients and a slow host, which has little room now and then.
#[test]
fn clients_change_what_moves() {
    crate::rt::covered();
    let replay = replay("fs::ffs::tests::relocate::clients_change_what_moves");
    for seed in replay.seeds(0..18) {
        let metadata = MODES[seed as usize % 3];
        let what = format!("{metadata:?}; again: {}", replay.command(seed, None, None, None));
        simulate(seed, async |rt| {
            let mut rng = Rng::new(seed);
            let host = Host::new(BYTES);
            mkfs(&rt, &(host.clone() as Device), &small_groups()).await.unwrap();
            let fault = FaultDevice::new(&rt, host.clone(), seed);
            let options = Options {
                metadata,
                dirty_bytes_max: 1 << rng.between(17, 22),
                update_interval: Nanos::from_millis(rng.between(20, 3000)),
                ..Options::default()
            };
            let ffs = mount(rt.clone(), fault.clone(), options).await.unwrap();
            let client = Client::new(ffs.clone());
            for number in 0..60 {
                client.write_file(&other(number), &vec![number as u8; OTHER_BYTES]).await.unwrap();
            }
            client.sync().await.unwrap();
            fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::Delay(Nanos(0)..=Nanos::from_millis(3))));
            host.free(rng.below(100));
            let models: Vec<RefCell<Model>> = (0..3).map(|_| RefCell::default()).collect();
            let seeds: Vec<u64> = (0..3).map(|_| rng.below(u64::MAX)).collect();
            let (rt, what, ffs) = (&rt, &what, &ffs);
            let clients = join_all((0..3).map(|number| {
                let (models, seed) = (&models, seeds[number as usize]);
                async move {
                    let (mut rng, mut model) = (Rng::new(seed), Model::new());
                    change(rt, &Client::new(ffs.clone()), &mut rng, number, &mut model, what).await;
                    models[number as usize].replace(model);
                }
            }));
            let deleting = async {
                for number in 0..30 {
                    rt.sleep(Nanos::from_millis(rng.below(40))).await;
                    match rng.below(4) {
                        0 => host.free(rng.below(60)),
                        1 => host.fill(),
                        _ => client.unlink(&other(number)).await.unwrap_or_else(|error| panic!("{what}: {error}")),
                    }
                }
            };
            futures_util::future::join(clients, deleting).await;
            host.fill();
            // Twice: with soft updates, what is deleted has room when its inodes are gone from the volume, too.
            let mut synced = Ok(());
            for number in 30..60 {
                client.unlink(&other(number)).await.unwrap();
            }
            for _ in 0..2 {
                synced = client.sync().await;
            }
            let is_known =
                matches!(synced, Ok(()) | Err(FsError::NoSpaceBelow(_) | FsError::Device(DeviceError::NoSpace { .. })));
            assert!(is_known, "{what}: {synced:?}");
            assert_eq!(ffs.check().await.unwrap(), Vec::<String>::new(), "{what}");
            if synced.is_err() {
                println!("{what}: {synced:?}");
                host.free(10_000);
                client.sync().await.unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            let files: Vec<(Vec<u8>, Vec<u8>)> = models.iter().flat_map(|model| model.take()).collect();
            let files: Vec<(&[u8], Vec<u8>)> =
                files.iter().map(|(path, content)| (&path[..], content.clone())).collect();
            killed_has(rt, &host, &files, what).await;
            ffs.close().await.unwrap();
            assert_clean(rt, &(host.clone() as Device)).await;
            killed_has(rt, &host, &files, what).await;
        });
    }
    must_have_covered("fs::ffs::tests::relocate::clients_change_what_moves", POINTS);
}

/// Where the block `lbn` of a file is, and the singly indirect block above it.
async fn places_of(ffs: &Ffs, ino: InodeNo, lbn: u64) -> [std::ops::Range<crate::units::Sector>; 2] {
    let found = ffs.step(|state| Ok((state.block_at(ino, lbn)?, state.inode(ino)?.inode.ib[0])));
    let (at, indirect) = found.await.unwrap();
    let layout = &ffs.state.borrow().layout;
    [at.unwrap(), indirect].map(|at| layout.sector(at)..layout.sector(at + layout.frag))
}

fn refuse_at(fault: &FaultDevice, places: std::ops::Range<crate::units::Sector>) {
    fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::NoSpace).within(places.clone()));
    fault.add(Rule::new(Kinds::PROVISION, When::Always, Effect::NoSpace).within(places));
}

/// A synced file gets longer and is overwritten, and the host, which copies on write, refuses a block and the indirect block above
/// it, or one of the two. After the sync, and after the fsync, a kill finds all of it.
#[test]
fn a_block_moves_with_the_indirect_block_above_it() {
    const SYNCED: usize = 14 * 8192;
    for metadata in MODES {
        for (of_data, of_indirect) in [(true, true), (true, false), (false, true)] {
            for by_fsync in [false, true] {
                let what = format!("{metadata:?}, data {of_data}, indirect {of_indirect}, by fsync {by_fsync}");
                simulate(1, async |rt| {
                    let (memory, device) = fresh(&rt, BYTES, &small_groups()).await;
                    let fault = FaultDevice::new(&rt, device, 1);
                    let options = Options { metadata, ..Options::default() };
                    let ffs = mount(rt.clone(), fault.clone(), options).await.unwrap();
                    let client = Client::new(ffs.clone());
                    client.write_file(b"/f", &[1; SYNCED]).await.unwrap();
                    client.sync().await.unwrap();
                    let ino = inner(client.stat(b"/f").await.unwrap().ino).unwrap();
                    let [data, indirect] = places_of(&ffs, ino, 13).await;
                    if of_data {
                        refuse_at(&fault, data);
                    }
                    if of_indirect {
                        refuse_at(&fault, indirect);
                    }
                    let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
                    client.write(file, 13 * 8192, &[2; 3 * 8192]).await.unwrap();
                    let synced = if by_fsync { client.fsync(file).await } else { client.sync().await };
                    client.close(file).await.unwrap();
                    // With soft updates, an indirect block to which the volume points stays.
                    assert_eq!(synced.is_err(), of_indirect && metadata == Metadata::Softdep, "{what}: {synced:?}");
                    if synced.is_ok() && !(by_fsync && metadata == Metadata::Async) {
                        let killed = Rc::new(Memory::from_image(BYTES, memory.image()));
                        let again = Client::new(mount(rt.clone(), killed, Options::default()).await.unwrap());
                        let found = again.read_file(b"/f").await.unwrap();
                        assert!(found == [vec![1; 13 * 8192], vec![2; 3 * 8192]].concat(), "{what}: {}", found.len());
                    }
                    assert_eq!(ffs.check().await.unwrap(), Vec::<String>::new(), "{what}");
                    fault.clear();
                    ffs.close().await.unwrap_or_else(|error| panic!("{what}: {error}"));
                    assert_clean(&rt, &(Rc::new(Memory::from_image(BYTES, memory.image())) as Device)).await;
                });
            }
        }
    }
}

/// With soft updates, a client appends without rest to a file of which a block has moved. The sync that moved it does not end
/// before the volume leads to the new place.
#[test]
fn an_appending_client_keeps_no_old_pointer() {
    for seed in 0..4 {
        simulate(seed, async |rt| {
            let (memory, device) = fresh(&rt, BYTES, &small_groups()).await;
            let fault = FaultDevice::new(&rt, device, seed);
            let options = Options { metadata: Metadata::Softdep, ..Options::default() };
            let ffs = mount(rt.clone(), fault.clone(), options).await.unwrap();
            let client = Client::new(ffs.clone());
            client.write_file(b"/f", &[1; 8192]).await.unwrap();
            client.sync().await.unwrap();
            refuse(&ffs, &client, &fault, b"/f", 8192).await;
            let millis = Nanos::from_millis(2);
            fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::Delay(millis..=millis)));
            let has_ended = std::cell::Cell::new(false);
            let appending = async {
                let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
                for at in 1.. {
                    client.write(file, at * 1024 + 7168, &[3; 1024]).await.unwrap();
                    rt.sleep(Nanos::from_micros(300)).await;
                    if has_ended.get() || at > 80 {
                        break;
                    }
                }
                client.close(file).await.unwrap();
            };
            let syncing = async {
                let other = Client::new(ffs.clone());
                other.sync().await.unwrap();
                has_ended.set(true);
                let killed = Rc::new(Memory::from_image(BYTES, memory.image()));
                let again = Client::new(mount(rt.clone(), killed, Options::default()).await.unwrap());
                assert!(again.read_file(b"/f").await.unwrap()[..8192] == [2; 8192], "seed {seed}");
            };
            futures_util::future::join(appending, syncing).await;
            fault.clear();
            ffs.close().await.unwrap();
        });
    }
}

/// With soft updates, what was deleted while data found no room is free, and all has found room, when one sync has moved the data.
#[test]
fn one_sync_moves_and_completes_everything() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES, &small_groups()).await;
        let fault = FaultDevice::new(&rt, device.clone(), 1);
        let options = Options { metadata: Metadata::Softdep, ..Options::default() };
        let ffs = mount(rt.clone(), fault.clone(), options).await.unwrap();
        let client = Client::new(ffs.clone());
        client.write_file(b"/f", &[1; 40_000]).await.unwrap();
        client.mkdir(b"/d").await.unwrap();
        client.sync().await.unwrap();
        // A new directory and its names, a truncation and a removal wait for what is refused.
        refuse(&ffs, &client, &fault, b"/f", 16384).await;
        let root = inner(client.stat(b"/").await.unwrap().ino).unwrap();
        let at = ffs.step(|state| state.block_at(root, 0)).await.unwrap().unwrap();
        let places = {
            let layout = &ffs.state.borrow().layout;
            layout.sector(at)..layout.sector(at + layout.frag)
        };
        refuse_at(&fault, places);
        client.truncate(b"/f", 8192).await.unwrap();
        client.rmdir(b"/d").await.unwrap();
        client.mkdir(b"/e").await.unwrap();
        client.write_file(b"/e/g", &[5; 30_000]).await.unwrap();
        client.sync().await.unwrap();
        assert_eq!(ffs.state.borrow().soft_records(), 0, "{}", ffs.state.borrow().soft_text());
        fault.clear();
        ffs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}

/// With synchronous metadata, names in a block of a directory that has moved are durable when the operation returns, also where
/// the directory's inode finds no room.
#[test]
fn names_in_a_block_that_has_moved() {
    for of_inode in [false, true] {
        simulate(1, async |rt| {
            let (memory, device) = fresh(&rt, BYTES, &small_groups()).await;
            let fault = FaultDevice::new(&rt, device.clone(), 1);
            let ffs = mount(rt.clone(), fault.clone(), Options::default()).await.unwrap();
            let client = Client::new(ffs.clone());
            client.mkdir(b"/d").await.unwrap();
            for name in 0..10 {
                client.write_file(format!("/d/{name}").as_bytes(), b"x").await.unwrap();
            }
            client.mkdir(b"/e").await.unwrap();
            client.write_file(b"/e/f", b"x").await.unwrap();
            client.sync().await.unwrap();
            let d = inner(client.stat(b"/d").await.unwrap().ino).unwrap();
            let at = ffs.step(|state| state.block_at(d, 0)).await.unwrap().unwrap();
            let layout = ffs.state.borrow().layout.clone();
            let frags =
                ffs.state.borrow().cache.peek(at).map_or(1, |buffer| buffer.data.len() as u32 / layout.frag_bytes);
            refuse_at(&fault, layout.sector(at)..layout.sector(at + frags));
            // It is gone from memory, and leaves the volume when the block finds room.
            client.rename(b"/d/0", b"/e/0", RenameMode::Replace).await.unwrap();
            if of_inode {
                let (block, _) = layout.inode_place(d);
                refuse_at(&fault, layout.sector(block)..layout.sector(block + layout.frag));
            }
            let synced = client.sync().await;
            assert_eq!(synced.is_err(), of_inode, "{synced:?}");
            let killed = async || {
                let killed = Rc::new(Memory::from_image(BYTES, memory.image()));
                Client::new(mount(rt.clone(), killed, Options::default()).await.unwrap())
            };
            // The link is of an inode in another group, which has room.
            let linked = client.link(b"/e/f", b"/d/new").await;
            assert_eq!(linked.is_ok(), !of_inode, "{linked:?}");
            if !of_inode {
                killed().await.stat(b"/d/new").await.unwrap();
                let removed = client.unlink(b"/d/1").await;
                assert_eq!(removed, Ok(()));
                assert_eq!(killed().await.stat(b"/d/1").await, Err(FsError::NotFound));
            }
            assert_eq!(ffs.check().await.unwrap(), Vec::<String>::new());
            fault.clear();
            client.link(b"/e/f", b"/d/newer").await.unwrap();
            killed().await.stat(b"/d/newer").await.unwrap();
            ffs.close().await.unwrap();
            assert_clean(&rt, &device).await;
        });
    }
}

/// With synchronous metadata, what a file loses while the volume leads to it by an old indirect block belongs to no other file.
#[test]
fn what_an_old_indirect_block_leads_to_is_not_given_away() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, BYTES, &small_groups()).await;
        let fault = FaultDevice::new(&rt, device.clone(), 1);
        let options = Options { use_reserve: true, ..Options::default() };
        let ffs = mount(rt.clone(), fault.clone(), options).await.unwrap();
        let client = Client::new(ffs.clone());
        client.mkdir(b"/d").await.unwrap();
        client.write_file(b"/f", &[1; 40 * 8192]).await.unwrap();
        client.sync().await.unwrap();
        let ino = inner(client.stat(b"/f").await.unwrap().ino).unwrap();
        let [_, indirect] = places_of(&ffs, ino, 13).await;
        refuse_at(&fault, indirect);
        let layout = ffs.state.borrow().layout.clone();
        let (block, _) = layout.inode_place(ino);
        refuse_at(&fault, layout.sector(block)..layout.sector(block + layout.frag));
        let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
        client.write(file, 40 * 8192, &[1; 8192]).await.unwrap();
        client.sync().await.expect_err("the inode has no room");
        let range = FileRange { offset: 13 * 8192, bytes: 20 * 8192 };
        client.fallocate(b"/f", range, AllocateMode::PunchHole).await.unwrap();
        for number in 0..30 {
            let path = format!("/d/{number}").into_bytes();
            let done = async {
                client.write_file(&path, &[2; 100_000]).await?;
                client.fsync_path(&path).await
            };
            let _ = done.await;
        }
        let left: Device = Rc::new(Memory::from_image(BYTES, memory.image()));
        let found = fsck(&rt, &left, FsckOptions::default()).await.unwrap();
        let shared = found.problems.iter().find(|problem| problem.text.contains("belongs to another inode"));
        assert_eq!(shared, None);
        let again = Client::new(mount(rt.clone(), left, Options::default()).await.unwrap());
        let found = again.read_file(b"/f").await.unwrap();
        assert!(found.iter().all(|&byte| byte < 2), "it has bytes of another file");
        assert_eq!(ffs.check().await.unwrap(), Vec::<String>::new());
        fault.clear();
        client.close(file).await.unwrap();
        ffs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}

/// A copy that is refused keeps no other from moving.
#[test]
fn a_refused_copy_keeps_no_other_from_moving() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, BYTES, &small_groups()).await;
        let fault = FaultDevice::new(&rt, device.clone(), 1);
        let ffs = mount(rt.clone(), fault.clone(), Options::default()).await.unwrap();
        let client = Client::new(ffs.clone());
        client.write_file(b"/f", &[1; 6 * 8192]).await.unwrap();
        client.sync().await.unwrap();
        refuse(&ffs, &client, &fault, b"/f", 6 * 8192).await;
        // Each write elsewhere is refused now and then, too.
        fault.add(Rule::new(Kinds::WRITE, When::Every(4), Effect::NoSpace));
        let mut attempts = 0;
        while client.sync().await.is_err() {
            attempts += 1;
            assert!(attempts < 20, "it moves in the end");
        }
        fault.clear();
        let killed = Rc::new(Memory::from_image(BYTES, memory.image()));
        let again = Client::new(mount(rt.clone(), killed, Options::default()).await.unwrap());
        assert!(again.read_file(b"/f").await.unwrap() == [2; 6 * 8192]);
        assert_eq!(ffs.check().await.unwrap(), Vec::<String>::new());
        ffs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}
