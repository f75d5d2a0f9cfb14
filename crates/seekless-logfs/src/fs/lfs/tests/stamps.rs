//! Aim: the log says of each block when a user wrote it, however often it moves and whatever moves with it; a volume of
//! an earlier release has no such times, and is used as before. Method: blocks that are written minutes apart, moved and
//! mounted again and again, and read from the device.

use super::*;
use crate::device::WriteFlags;
use crate::device::rescue::rescue;
use format::*;
use layout::*;

use crate::units::Ino;

const BLOCKS: u64 = 12;

fn options() -> Options {
    let never = Nanos::from_secs(1 << 30);
    let cleaner = CleanerPolicy::named("age-sort").unwrap();
    Options { checkpoint_interval: never, write_back_interval: never, cleaner, ..Options::default() }
}

/// A block of `/f`: its place, and when it was written according to the log.
async fn stored(lfs: &Lfs, ino: Ino, block: u64) -> (crate::units::Sector, Stamp) {
    let id = BlockId::data(ino, block);
    let pointer = lfs.run(|state| state.pointer(id)).await.unwrap();
    let Pointer::Mapped { at: place, .. } = pointer else { panic!("block {block} is in the log, not {pointer:?}") };
    let layout = lfs.state.borrow().log.layout;
    let segment = layout.segment_of(place).unwrap();
    let bytes = rescue(&lfs.device, layout.segment_start(segment), layout.segment_sectors()).await.unwrap().bytes;
    for partial in partials::partials_in(&layout, segment, &bytes) {
        let mut at = partial.start + u64::from(partial.summary.summary_sectors);
        for item in partial.items {
            match item {
                Item::Block { ino: of, key, written, .. } if at == place => {
                    assert_eq!((of, BlockKey(key)), (ino, id.key));
                    return (place, written);
                }
                _ => at = at + item.sectors(),
            }
        }
    }
    panic!("no summary has block {block} at {place}");
}

/// Moves all of `/f` to another place.
async fn move_all(lfs: &Rc<Lfs>, ino: Ino) {
    let mut segments = std::collections::BTreeSet::new();
    let layout = lfs.state.borrow().log.layout;
    for block in 0..BLOCKS {
        segments.extend(layout.segment_of(stored(lfs, ino, block).await.0));
    }
    for segment in segments {
        lfs.move_segment(segment).await.unwrap();
    }
    let submitted = lfs.submit_loading(assemble::TransactionScope::Cleaned).await.unwrap();
    lfs.make_durable(submitted.end_sequence).await.unwrap();
}

#[test]
fn blocks_keep_when_they_were_written() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 12 * MIB).await;
        let mut times = Vec::new();
        let lfs = open(rt.clone(), device.clone(), options()).await.unwrap();
        let client = Client::new(lfs.clone());
        let file = client.create(b"/f").await.unwrap();
        // In an order of its own.
        for number in 0..BLOCKS {
            let block = number * 5 % BLOCKS;
            client.write(file, block * 4096, &[number as u8; 4096]).await.unwrap();
            client.sync().await.unwrap();
            times.push((block, rt.wall().nanos_since_epoch()));
            // Each block is more than twice as old as the next.
            rt.sleep(Nanos::from_secs(10 << (BLOCKS - number))).await;
        }
        client.close(file).await.unwrap();
        let ino = client.resolve(b"/f").await.unwrap();
        client.forget(ino).await;
        lfs.close().await.unwrap();
        drop((client, lfs));
        for _ in 0..4 {
            rt.sleep(Nanos::from_secs(1)).await;
            let lfs = open(rt.clone(), device.clone(), options()).await.unwrap();
            let layout = lfs.state.borrow().log.layout;
            let before = stored(&lfs, ino, 0).await.0;
            move_all(&lfs, ino).await;
            assert!(stored(&lfs, ino, 0).await.0 != before, "it moves");
            let mut places = Vec::new();
            for &(block, time) in &times {
                let (place, written) = stored(&lfs, ino, block).await;
                let difference = time - i128::from(layout.time_of(written).unwrap());
                assert!((0..2 << STAMP_SHIFT).contains(&difference), "block {block}: {difference} ns");
                places.push(place);
            }
            assert!(places.is_sorted(), "the oldest first: {places:?}");
            assert_eq!(lfs.state.borrow().log.moving.len(), 0);
            assert_eq!(lfs.recount().await.unwrap(), Vec::<String>::new());
            lfs.close().await.unwrap();
        }
        assert_clean(&rt, &device).await;
    });
}

/// Makes the volume one of a release that knew no stamps.
async fn without_stamps(device: &Device) {
    let found = find::find_volume(device).await.unwrap();
    let mut superblock = found.layout.superblock;
    superblock.features_incompatible = 0;
    let block = crate::device::Data::from_slice(&superblock.to_block());
    for place in SUPERBLOCK_SECTORS.into_iter().chain([found.layout.superblock_backup()]) {
        device.write(place, block.clone(), WriteFlags::NONE).await.unwrap();
    }
}

#[test]
fn a_volume_without_stamps_gets_none() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 12 * MIB).await;
        without_stamps(&device).await;
        for round in 0..3 {
            let lfs = open(rt.clone(), device.clone(), options()).await.unwrap();
            let client = Client::new(lfs.clone());
            client.write_file(b"/f", &[round; BLOCKS as usize * 4096]).await.unwrap();
            client.sync().await.unwrap();
            let ino = client.resolve(b"/f").await.unwrap();
            move_all(&lfs, ino).await;
            for block in 0..BLOCKS {
                assert_eq!(stored(&lfs, ino, block).await.1, 0);
            }
            client.forget(ino).await;
            assert_eq!(lfs.recount().await.unwrap(), Vec::<String>::new());
            lfs.close().await.unwrap();
        }
        assert_clean(&rt, &device).await;
    });
}

/// Stamps of all times are numbers of 40 bits, later ones are not smaller, and an entry keeps them.
#[test]
fn stamps_are_in_order() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 12 * MIB).await;
        let found = find::find_volume(&device).await.unwrap();
        let mut last = 0;
        for time in [i64::MIN, -1, 0, 1, 1 << 30, 1 << 50, 1 << 60, i64::MAX - 1, i64::MAX] {
            for created_seconds in [i64::MIN, 0, i64::MAX] {
                let superblock = Superblock { created_seconds, ..found.layout.superblock };
                let stamp = Layout { superblock }.stamp(time);
                assert!((1..=STAMP_MAX).contains(&stamp));
                let item = Item::Block { ino: Ino(20), key: 3, sectors: 8, written: stamp };
                assert_eq!(Item::from_entry(&item.to_entry()), Some(item));
                let _ = Layout { superblock }.time_of(stamp);
                if created_seconds == 0 {
                    assert!(stamp >= last);
                    last = stamp;
                }
            }
        }
    });
}
