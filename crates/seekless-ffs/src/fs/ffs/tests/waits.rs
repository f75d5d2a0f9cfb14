//! Aim: with soft updates each operation waits for its dependencies as long as necessary and no longer, also when a
//! task is cancelled. Method: small programs on devices that hold up the one request that matters.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;

use futures_util::future::{Either, select};

use super::*;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::cut::Effort;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::fs::ffs::soft::{StallDetector, SyncScope};
use crate::fs::ffs::state::inner;

const BYTES: u64 = 16 * MIB;

fn softly() -> Options {
    Options { metadata: Metadata::Softdep, ..Options::default() }
}

fn counter(ffs: &Ffs, wanted: &str) -> u64 {
    ffs.counters().into_iter().find(|(name, _)| *name == wanted).map_or(0, |(_, value)| value)
}

fn delay(kinds: Kinds, millis: u64) -> Rule {
    Rule::new(kinds, When::Always, Effect::Delay(Nanos::from_millis(millis)..=Nanos::from_millis(millis)))
}

/// An operation waits for space that another task is freeing at this moment: it is in no list any more, and not free
/// yet.
#[test]
fn space_that_is_being_given_back() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES, &small_groups()).await;
        let fault = FaultDevice::new(&rt, device.clone(), 1);
        let ffs = mount(rt.clone(), fault.clone(), softly()).await.unwrap();
        let client = Client::new(ffs.clone());
        client.write_file(b"/large", &vec![1; 3_000_000]).await.unwrap();
        for number in 0.. {
            match client.write_file(format!("/f{number}").as_bytes(), &[2; 100_000]).await {
                Ok(()) => {}
                Err(FsError::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
        }
        client.sync().await.unwrap();
        client.unlink(b"/large").await.unwrap();
        let groups = {
            let layout = &ffs.state.borrow().layout;
            layout.group_numbers().map(|group| layout.sector(layout.group_block(group))).collect::<Vec<_>>()
        };
        fault.add(delay(Kinds::WRITE, 1));
        for sector in groups {
            fault.add(delay(Kinds::READ, 20).within(sector..sector + 1));
        }
        let syncing = {
            let ffs = ffs.clone();
            rt.spawn(async move { ffs.sync().await })
        };
        let mut looked = 0;
        loop {
            assert!(looked < 100_000, "no job gives back the last space");
            looked += 1;
            rt.sleep(Nanos::from_micros(50)).await;
            let mut state = ffs.state.borrow_mut();
            state.drop_caches();
            let waiting = state.soft.as_deref().unwrap().waiting();
            if waiting.running > 0 && waiting.frags > 0 && waiting.known_frags.is_empty() && waiting.tasks == 0 {
                break;
            }
        }
        client.write_file(b"/new", &vec![3; 2_000_000]).await.expect("there is space in a moment");
        syncing.await.unwrap();
        fault.clear();
        ffs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}

/// Aim: a writer that is to wait until less is dirty waits, also where the oldest dirty block cannot be written yet. Method: a file is removed
/// while its blocks are being written, and the next ones get them.
#[test]
fn blocks_of_an_earlier_file_that_are_being_written() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES, &small_groups()).await;
        let fault = FaultDevice::new(&rt, device.clone(), 1);
        let options =
            Options { metadata: Metadata::Async, cache_bytes: 1, dirty_bytes_max: 64 << 10, ..Options::default() };
        let ffs = mount(rt.clone(), fault.clone(), options).await.unwrap();
        let client = Client::new(ffs.clone());
        fault.add(delay(Kinds::WRITE, 50));
        client.write_file(b"/old", &[1; 16_000]).await.unwrap();
        let syncing = {
            let ffs = ffs.clone();
            rt.spawn(async move { ffs.sync().await })
        };
        rt.sleep(Nanos::from_millis(1)).await;
        assert!(ffs.state.borrow().cache.any_in_flight());
        client.unlink(b"/old").await.unwrap();
        for number in 0..10 {
            client.write_file(format!("/new{number}").as_bytes(), &[2; 30_000]).await.unwrap();
        }
        syncing.await.unwrap();
        fault.clear();
        assert!(client.read_file(b"/new0").await.unwrap() == [2; 30_000]);
        ffs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}

/// A name can be created again as soon as the old one is out of its block, which is a job of another task.
#[test]
fn a_job_of_another_task() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES, &small_groups()).await;
        let fault = FaultDevice::new(&rt, device.clone(), 1);
        let ffs = mount(rt.clone(), fault.clone(), softly()).await.unwrap();
        let client = Client::new(ffs.clone());
        client.mkdir(b"/p").await.unwrap();
        client.mkdir(b"/q").await.unwrap();
        client.write_file(b"/p/moved", &[1; 5000]).await.unwrap();
        client.sync().await.unwrap();
        let place = {
            let dir = inner(client.stat(b"/p").await.unwrap().ino).unwrap();
            let at = ffs.step(|state| state.block_at(dir, 0)).await.unwrap().unwrap();
            let layout = &ffs.state.borrow().layout;
            layout.sector(at)..layout.sector(at + 1)
        };
        client.rename(b"/p/moved", b"/q/moved", RenameMode::Replace).await.unwrap();
        ffs.state.borrow_mut().drop_caches();
        fault.add(delay(Kinds::READ, 20).within(place));
        let syncing = {
            let ffs = ffs.clone();
            rt.spawn(async move { ffs.sync().await })
        };
        rt.sleep(Nanos::from_millis(5)).await;
        assert_eq!(ffs.state.borrow().soft.as_deref().unwrap().waiting().running, 1);
        client.write_file(b"/p/moved", &[2; 10]).await.unwrap();
        assert!(rt.now() >= Nanos::from_millis(20));
        syncing.await.unwrap();
        ffs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}

/// A caller cancels a sync, at any moment of it. The next one makes durable what that one has left, and nothing that
/// waited for its flush is forgotten.
#[test]
fn a_sync_that_is_given_up() {
    let mut given_up = 0;
    for micros in (0..).map(|number| number * 90) {
        let ended = simulate(1, async |rt| {
            let device = CrashDevice::new(&rt, Image::default(), CrashOptions::volatile(BYTES));
            mkfs(&rt, &(device.clone() as Device), &small_groups()).await.unwrap();
            let ffs = mount(rt.clone(), device.clone(), softly()).await.unwrap();
            let client = Client::new(ffs.clone());
            client.mkdir(b"/d").await.unwrap();
            client.write_file(b"/removed", &[1; 20_000]).await.unwrap();
            client.write_file(b"/moved", &[2; 20_000]).await.unwrap();
            client.sync().await.unwrap();
            client.write_file(b"/d/new", &[3; 20_000]).await.unwrap();
            client.unlink(b"/removed").await.unwrap();
            client.rename(b"/moved", b"/d/moved", RenameMode::Replace).await.unwrap();
            let begun = rt.now();
            let ended = {
                let (syncing, giving_up) = (pin!(ffs.sync()), pin!(rt.sleep(Nanos::from_micros(micros))));
                matches!(select(syncing, giving_up).await, Either::Left(_))
            };
            client.sync().await.unwrap_or_else(|error| panic!("given up after {micros} µs: {error}"));
            assert_eq!(ffs.check().await.unwrap(), Vec::<String>::new(), "given up after {micros} µs");
            assert!(rt.now() - begun < Nanos::from_secs(10));
            let log = device.log();
            let cut = log.cut(device.position());
            for choice in cut.choices(&Effort::SAMPLED, micros) {
                let left: Device = Rc::new(Memory::from_image(BYTES, cut.image(&choice)));
                session(&rt, &left, softly(), async |client| {
                    assert!(client.read_file(b"/d/new").await.unwrap() == [3; 20_000]);
                    assert!(client.read_file(b"/d/moved").await.unwrap() == [2; 20_000]);
                    assert!(client.stat(b"/removed").await.is_err());
                })
                .await;
            }
            ffs.close().await.unwrap();
            assert_clean(&rt, &(device.clone() as Device)).await;
            ended
        });
        if ended {
            break;
        }
        given_up += 1;
    }
    assert!(given_up > 10, "given up {given_up} times");
}

/// Passes that change nothing while no task is at work are few; passes that change something may be many.
#[test]
fn wasted_passes() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES, &small_groups()).await;
        let ffs = mount(rt.clone(), device.clone(), softly()).await.unwrap();
        let client = Client::new(ffs.clone());
        let mut stall = StallDetector::default();
        for _ in 0..700 {
            client.write_file(b"/f", b"").await.unwrap();
            stall.check(&ffs);
            client.unlink(b"/f").await.unwrap();
            stall.check(&ffs);
        }
        client.write_file(b"/f", b"").await.unwrap();
        if cfg!(debug_assertions) {
            let noticed = (0..1_100).find(|_| catch_unwind(AssertUnwindSafe(|| stall.check(&ffs))).is_err());
            assert!(noticed.is_some_and(|pass| pass > 900), "{noticed:?}");
        }
        ffs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}

/// A directory is removed before the removals from it are on the volume: nothing waits for them any more.
#[test]
fn a_directory_that_goes_with_its_removals() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES, &small_groups()).await;
        session(&rt, &device, softly(), async |_| {}).await;
        let ffs = mount(rt.clone(), device.clone(), softly()).await.unwrap();
        let client = Client::new(ffs.clone());
        let before = client.fs().statfs().await.unwrap();
        client.mkdir(b"/d").await.unwrap();
        client.write_file(b"/d/f", &[1; 5000]).await.unwrap();
        client.sync().await.unwrap();
        client.unlink(b"/d/f").await.unwrap();
        client.rmdir(b"/d").await.unwrap();
        let root = ffs.step(|state| state.block_at(ROOT_INO, 0)).await.unwrap().unwrap();
        ffs.write_now(root).await.unwrap();
        ffs.run_jobs().await.unwrap();
        rt.sleep(Nanos::from_millis(1)).await;
        assert_eq!(ffs.check().await.unwrap(), Vec::<String>::new());
        client.sync().await.unwrap();
        assert_eq!(client.fs().statfs().await.unwrap(), before);
        ffs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}

/// An inode that is about to be free is not written before it is: an update that removes a name writes the directory
/// and the directory's inode.
#[test]
fn what_goes_is_not_written() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES, &small_groups()).await;
        let ffs = mount(rt.clone(), device.clone(), softly()).await.unwrap();
        let client = Client::new(ffs.clone());
        client.mkdir(b"/d").await.unwrap();
        let mut last = InodeNo::NONE;
        for number in 0..70 {
            client.write_file(format!("/d/f{number}").as_bytes(), b"").await.unwrap();
            last = inner(client.stat(format!("/d/f{number}").as_bytes()).await.unwrap().ino).unwrap();
        }
        client.sync().await.unwrap();
        let directory = inner(client.stat(b"/d").await.unwrap().ino).unwrap();
        {
            let layout = &ffs.state.borrow().layout;
            assert_ne!(layout.inode_place(last).0, layout.inode_place(directory).0, "they are in different blocks");
        }
        rt.sleep(Nanos::from_secs(2)).await; // Times change with the names.
        let before = counter(&ffs, "block_writes");
        client.unlink(b"/d/f69").await.unwrap();
        ffs.sync_soft(SyncScope::Update).await.unwrap();
        assert_eq!(counter(&ffs, "block_writes") - before, 2);
        ffs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}

/// An fsync of a file writes only what the file needs, however much others do: its data and its inode, and the group
/// that marks a new block as allocated. Method: new directories, each in a group of its own, and names in an old one.
#[test]
fn an_fsync_of_one_file() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES, &small_groups()).await;
        let ffs = mount(rt.clone(), device.clone(), softly()).await.unwrap();
        let client = Client::new(ffs.clone());
        client.write_file(b"/file", &[1; 5000]).await.unwrap();
        client.mkdir(b"/names").await.unwrap();
        client.sync().await.unwrap();
        let file = client.open(b"/file", OpenFlags::READ_WRITE).await.unwrap();
        // The last ones grow in place, and into a second block.
        for (turn, (offset, writes)) in [(0, 2), (3000, 2), (5000, 3), (8192, 4)].into_iter().enumerate() {
            rt.sleep(Nanos::from_secs(2)).await; // Times change with the file.
            for number in 0..10 {
                client.mkdir(format!("/{turn}-{number}").as_bytes()).await.unwrap();
                client.write_file(format!("/{turn}-{number}/f").as_bytes(), &[2; 3000]).await.unwrap();
                client.write_file(format!("/names/{turn}-{number}").as_bytes(), &[2; 3000]).await.unwrap();
            }
            client.write(file, offset, &[3; 1500]).await.unwrap();
            let before = counter(&ffs, "block_writes");
            client.fsync(file).await.unwrap();
            assert_eq!(counter(&ffs, "block_writes") - before, writes, "turn {turn}");
            assert_eq!(ffs.state.borrow().soft_problems(), Vec::<String>::new());
        }
        client.close(file).await.unwrap();
        ffs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}

/// A synced file is there below the new name of its directory.
#[test]
fn a_file_below_a_new_name() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, BYTES, &small_groups()).await;
        let ffs = mount(rt.clone(), device.clone(), softly()).await.unwrap();
        let client = Client::new(ffs.clone());
        client.mkdir(b"/d").await.unwrap();
        client.write_file(b"/d/f", &[1; 5000]).await.unwrap();
        client.sync().await.unwrap();
        client.rename(b"/d", b"/e", RenameMode::Replace).await.unwrap();
        let file = client.open(b"/e/f", OpenFlags::READ_WRITE).await.unwrap();
        client.write(file, 0, &[2; 5000]).await.unwrap();
        client.fsync(file).await.unwrap();
        client.close(file).await.unwrap();
        let crashed: Device = Rc::new(Memory::from_image(BYTES, memory.image()));
        session(&rt, &crashed, softly(), async |client| {
            assert!(client.read_file(b"/e/f").await.unwrap() == [2; 5000]);
            assert!(client.stat(b"/d").await.is_err());
        })
        .await;
        ffs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}

/// A synced file stays below the new name of its directory while the old one waits to be removed: whatever is written
/// then, a crash does not undo the move.
#[test]
fn a_file_below_a_moved_directory() {
    for (updates, is_youngest_first) in [(1, false), (1, true), (2, false), (2, true), (3, false), (3, true)] {
        simulate(1, async |rt| {
            let (memory, device) = fresh(&rt, BYTES, &small_groups()).await;
            let ffs = mount(rt.clone(), device.clone(), softly()).await.unwrap();
            let client = Client::new(ffs.clone());
            for directory in ["/p", "/q", "/p/d"] {
                client.mkdir(directory.as_bytes()).await.unwrap();
            }
            client.write_file(b"/p/d/f", &[1; 5000]).await.unwrap();
            client.sync().await.unwrap();
            client.rename(b"/p/d", b"/q/d", RenameMode::Replace).await.unwrap();
            // The `..` follows the new name, and the old name follows the `..`.
            for _ in 0..updates {
                ffs.sync_soft(SyncScope::Update).await.unwrap();
            }
            let file = client.open(b"/q/d/f", OpenFlags::READ_WRITE).await.unwrap();
            client.write(file, 0, &[2; 5000]).await.unwrap();
            client.fsync(file).await.unwrap();
            client.close(file).await.unwrap();
            loop {
                let crashed: Device = Rc::new(Memory::from_image(BYTES, memory.image()));
                session(&rt, &crashed, softly(), async |client| {
                    assert!(client.read_file(b"/q/d/f").await == Ok(vec![2; 5000]));
                    assert!(client.stat(b"/p/d").await.is_err());
                })
                .await;
                let dirty = ffs.state.borrow().cache.dirty_until(u64::MAX);
                let Some(&at) = (if is_youngest_first { dirty.last() } else { dirty.first() }) else { break };
                ffs.write_now(at).await.unwrap();
            }
            ffs.close().await.unwrap();
            assert_clean(&rt, &device).await;
        });
    }
}

/// A file is moved into a new directory. While that has no name on the volume, the file keeps its old one.
#[test]
fn a_file_in_a_directory_without_a_name() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, BYTES, &small_groups()).await;
        let ffs = mount(rt.clone(), device.clone(), softly()).await.unwrap();
        let client = Client::new(ffs.clone());
        client.mkdir(b"/old").await.unwrap();
        client.write_file(b"/old/moved", &[1; 5000]).await.unwrap();
        client.write_file(b"/old/linked", &[2; 5000]).await.unwrap();
        client.sync().await.unwrap();
        client.mkdir(b"/new").await.unwrap();
        client.rename(b"/old/moved", b"/new/moved", RenameMode::Replace).await.unwrap();
        client.link(b"/old/linked", b"/new/linked").await.unwrap();
        let root = ffs.step(|state| state.block_at(ROOT_INO, 0)).await.unwrap().unwrap();
        for round in 0..6 {
            // Everything but the block that has the directory's name.
            let inodes = ffs.state.borrow().dirty_inodes();
            for ino in inodes {
                ffs.step(|state| state.update_inode(ino).map(drop)).await.unwrap();
            }
            let dirty = ffs.state.borrow().cache.dirty_until(u64::MAX);
            for at in dirty.into_iter().filter(|&at| at != root) {
                ffs.write_now(at).await.unwrap();
            }
            ffs.run_jobs().await.unwrap();
            assert_eq!(ffs.state.borrow().soft_problems(), Vec::<String>::new());
            let crashed: Device = Rc::new(Memory::from_image(BYTES, memory.image()));
            let mending = FsckOptions { repair: true, reconnect: false, only_after_crash: true, trust_order: false };
            fsck(&rt, &crashed, mending).await.unwrap();
            session(&rt, &crashed, softly(), async |client| {
                assert!(client.read_file(b"/old/moved").await == Ok(vec![1; 5000]), "round {round}");
                assert!(client.stat(b"/new").await.is_err());
            })
            .await;
        }
        client.unlink(b"/old/linked").await.unwrap();
        let dirty = ffs.state.borrow().cache.dirty_until(u64::MAX);
        for at in dirty {
            ffs.write_now(at).await.unwrap();
        }
        let crashed: Device = Rc::new(Memory::from_image(BYTES, memory.image()));
        session(&rt, &crashed, softly(), async |client| {
            let places: [&[u8]; 2] = [b"/old/linked", b"/new/linked"];
            let mut found = 0;
            for path in places {
                found += u32::from(client.read_file(path).await == Ok(vec![2; 5000]));
            }
            assert!(found > 0, "it has lost its names");
        })
        .await;
        ffs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}

/// A sync waits for what there is when it begins, and not for what others add while it works. Method: a client that makes and
/// removes files faster than the device writes, and ends long after the sync.
#[test]
fn a_sync_does_not_wait_for_what_comes_later() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES, &small_groups()).await;
        let fault = FaultDevice::new(&rt, device.clone(), 1);
        let ffs = mount(rt.clone(), fault.clone(), softly()).await.unwrap();
        let client = Client::new(ffs.clone());
        client.write_file(b"/f", &[1; 5000]).await.unwrap();
        fault.add(delay(Kinds::WRITE, 1));
        let ended = Rc::new(std::cell::Cell::new(false));
        let busy = {
            let (ffs, ended, clock) = (ffs.clone(), ended.clone(), rt.clone());
            rt.spawn(async move {
                let client = Client::new(ffs);
                for number in 0..5_000u32 {
                    let path = format!("/n{}", number % 7).into_bytes();
                    client.write_file(&path, &[2; 3000]).await.expect("written");
                    client.unlink(&path).await.expect("removed");
                    clock.sleep(Nanos::from_millis(1)).await;
                }
                ended.set(true);
            })
        };
        rt.sleep(Nanos::from_millis(5)).await;
        client.sync().await.unwrap();
        assert!(!ended.get(), "it waited for the other client's last change");
        busy.await;
        fault.clear();
        drop(client);
        ffs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}
