//! Aim: what a sync has acknowledged is on the volume, also where another client lets the file's tail grow elsewhere while the sync
//! goes on. Method: a device with slow writes; the client appends at each moment of the sync, to a file whose tail has no room
//! behind it; what the device holds when the sync returns is mounted.

use super::*;
use crate::device::Data;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::fs::ffs::cache::{BufferKind, Cache, Written};
use crate::fs::ffs::state::inner;

const BYTES: u64 = 16 * MIB;

const KEPT: [u8; 500] = [7; 500];

/// Syncs new files, and appends to one of them after `micros`. Returns whether the tail moved while the sync went on, and what the
/// device then held.
async fn append_within_a_sync(rt: &Rt, options: Options, micros: u64) -> (bool, Device) {
    let (memory, device) = fresh(rt, BYTES, &small_groups()).await;
    let fault = FaultDevice::new(rt, device, 1);
    let ffs = mount(rt.clone(), fault.clone(), options).await.unwrap();
    let client = Client::new(ffs.clone());
    client.write_file(b"/moves", &KEPT).await.unwrap();
    client.write_file(b"/behind", &KEPT).await.unwrap();
    client.write_file(b"/large", &[1; 200_000]).await.unwrap();
    let time = Nanos::from_millis(2);
    fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::Delay(time..=time)));
    let moved = |ffs: &Ffs| ffs.state.borrow().counters.tails_moved;
    let before = moved(&ffs);
    let appending = {
        let (inner, client) = (rt.clone(), Client::new(ffs.clone()));
        rt.spawn(async move {
            inner.sleep(Nanos::from_micros(micros)).await;
            let file = client.open(b"/moves", OpenFlags::READ_WRITE).await.unwrap();
            client.write(file, KEPT.len() as u64, &[9; 1500]).await.unwrap();
            client.close(file).await.unwrap();
        })
    };
    client.sync().await.unwrap();
    let result = (moved(&ffs) > before, Rc::new(Memory::from_image(BYTES, memory.image())) as Device);
    appending.await;
    fault.clear();
    ffs.close().await.unwrap();
    result
}

#[test]
fn a_tail_that_moves_while_a_sync_goes_on() {
    for metadata in [Metadata::Sync, Metadata::Async, Metadata::Softdep] {
        simulate(1, async |rt| {
            let mut moves = 0;
            for micros in (0..24_000).step_by(250) {
                let options = Options { metadata, ..Options::default() };
                let (has_moved, device) = append_within_a_sync(&rt, options, micros).await;
                moves += u32::from(has_moved);
                let ffs = mount(rt.clone(), device, options).await.unwrap();
                let found = Client::new(ffs.clone()).read_file(b"/moves").await.unwrap();
                assert!(found.starts_with(&KEPT), "{metadata:?}: {} bytes, after {micros} us", found.len());
                ffs.close().await.unwrap();
            }
            assert!(moves > 5, "{metadata:?}: the tail moved within {moves} syncs");
        });
    }
}

/// Blocks of a file that are being written are changed, and a second sync begins; `micros` later the file grows, and they move
/// together. Returns whether they did while the sync went on, and what the device then held.
async fn move_within_a_sync(rt: &Rt, options: Options, micros: u64) -> (bool, Device) {
    let (memory, device) = fresh(rt, BYTES, &small_groups()).await;
    let fault = FaultDevice::new(rt, device, 1);
    let ffs = mount(rt.clone(), fault.clone(), options).await.unwrap();
    let client = Client::new(ffs.clone());
    client.write_file(b"/moves", b"").await.unwrap();
    let file = client.open(b"/moves", OpenFlags::READ_WRITE).await.unwrap();
    for block in 0..5 {
        client.write(file, block * 8192, &[1; 8192]).await.unwrap();
    }
    let ino = inner(client.stat(b"/moves").await.unwrap().ino).unwrap();
    let taken = ffs.step(|state| {
        let last = state.block_at(ino, 4)?.unwrap();
        state.take_cluster(last + state.layout.frag, 1)
    });
    let taken = taken.await.unwrap().expect("the file does not grow in place");
    let time = Nanos::from_millis(2);
    fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::Delay(time..=time)));
    let first = {
        let ffs = ffs.clone();
        rt.spawn(async move { ffs.sync().await })
    };
    rt.sleep(Nanos::from_micros(300)).await;
    for block in 0..5 {
        client.write(file, block * 8192, &[2; 100]).await.unwrap();
    }
    let moved = |ffs: &Ffs| ffs.state.borrow().counters.clusters_moved;
    let before = moved(&ffs);
    let growing = {
        let (inner, client) = (rt.clone(), Client::new(ffs.clone()));
        rt.spawn(async move {
            inner.sleep(Nanos::from_micros(micros)).await;
            client.write(file, 5 * 8192, &[1; 8192]).await.unwrap();
        })
    };
    client.sync().await.unwrap();
    let result = (moved(&ffs) > before, Rc::new(Memory::from_image(BYTES, memory.image())) as Device);
    first.await.unwrap();
    growing.await;
    client.close(file).await.unwrap();
    fault.clear();
    ffs.step(|state| state.free_frags(taken, state.layout.frag)).await.unwrap();
    ffs.close().await.unwrap();
    result
}

/// The same for blocks that move together while a sync goes on.
#[test]
fn a_cluster_that_moves_while_a_sync_goes_on() {
    for (metadata, keep_moved) in
        [(Metadata::Sync, true), (Metadata::Sync, false), (Metadata::Async, false), (Metadata::Softdep, false)]
    {
        simulate(1, async |rt| {
            let options = Options { metadata, keep_moved, realloc_blocks: true, ..Options::default() };
            let mut moves = 0;
            for micros in (0..16_000).step_by(250) {
                let (has_moved, device) = move_within_a_sync(&rt, options, micros).await;
                moves += u32::from(has_moved);
                let ffs = mount(rt.clone(), device, options).await.unwrap();
                let found = Client::new(ffs.clone()).read_file(b"/moves").await.unwrap();
                let new = found.chunks(8192).take_while(|block| block[..100] == [2; 100]).count();
                assert!(new >= 5, "{metadata:?}, {keep_moved}: {new} blocks are right, after {micros} us");
                ffs.close().await.unwrap();
            }
            println!("{metadata:?}, {keep_moved}: blocks moved within {moves} syncs");
            assert!(moves > 0, "{metadata:?}, {keep_moved}: no blocks moved");
        });
    }
}

/// A buffer that is replaced has been dirty for as long as before, so that a sync that began in between writes it, also if it was being
/// written, which may fail.
#[test]
fn a_buffer_that_is_replaced_keeps_its_age() {
    for (in_flight, dirty_again) in [(false, false), (true, false), (true, true)] {
        let (mut cache, at) = (Cache::new(1024, 8, 1 << 20), FragNo(80));
        cache.create(at, Data::zeroes(1024), BufferKind::File { ino: InodeNo(3), lbn: 0 });
        let sync = cache.tick();
        if in_flight {
            assert!(cache.begin_write(at).is_some());
        }
        if dirty_again {
            cache.mark_dirty(at);
        }
        cache.replace(at, Data::zeroes(2048));
        assert_eq!(cache.dirty_until(sync), [at], "{in_flight}, {dirty_again}");
        assert_eq!(cache.dirty_until(sync - 2), []);
        if in_flight {
            cache.end_write(at, 1024, Written::Failed);
            assert_eq!(cache.dirty_until(sync), [at], "{dirty_again}");
        }
    }
}
