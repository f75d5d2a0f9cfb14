//! Aim: a write that finds no space below concerns the callers that rely on it, and no others. Method: a device that holds
//! up one request, and has no room for another one that begins later or earlier.

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::fs::ffs::state::inner;

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
    let (_, device) = fresh(rt, BYTES, &small_groups()).await;
    let fault = FaultDevice::new(rt, device.clone(), 1);
    let ffs = mount(rt.clone(), fault.clone(), Options { metadata, ..Options::default() }).await.unwrap();
    let client = Client::new(ffs.clone());
    client.mkdir(b"/d").await.unwrap();
    client.write_file(b"/one", &[1; 8192]).await.unwrap();
    client.write_file(b"/two", &[1; 8192]).await.unwrap();
    client.sync().await.unwrap();
    (device, fault, ffs, client)
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
