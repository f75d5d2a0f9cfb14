//! Aim: the intact beginning of a transaction that a power cut left, on a volume without room to pass over it, is never taken for that of
//! the next transaction, which has its number: either checkpoint slot alone is enough. Method: a full volume whose log ends close before
//! the end of a segment, and a short beginning of a transaction crafted there; it is mounted, used, and mounted from the older slot.

use super::*;
use crate::fs::lfs::format::*;
use crate::rng::Rng;
use crate::testing::environment::soak;
use crate::units::SECTOR_BYTES;

const BYTES: u64 = 9 * MIB;

/// Fills the volume until a mount has no room to pass over anything, and until the segment where its log ends has a few sectors left.
/// `None` when the end is nowhere near that after many rounds.
async fn full_volume(rt: &Rt, rng: &mut Rng) -> Option<(Rc<Memory>, u8)> {
    let (memory, device) = fresh(rt, BYTES).await;
    let lfs = open(rt.clone(), device, Options::default()).await.unwrap();
    let client = Client::new(lfs.clone());
    let mut files = 0;
    while client.write_file(format!("/{}", files + 1).as_bytes(), &[files + 1; 100_000]).await.is_ok() {
        files += 1;
    }
    client.unlink(format!("/{}", files + 1).as_bytes()).await.unwrap();
    client.unlink(format!("/{files}").as_bytes()).await.unwrap();
    for round in 0..400_u32 {
        // In small steps where there is little room.
        let is_short = || lfs.clean_segments() < lfs.state.borrow().cleaner_segments() + 5;
        let bytes = vec![round as u8; rng.between(1, if is_short() { 1_500 } else { 90_000 }) as usize];
        client.write_file(b"/0", &bytes).await.unwrap();
        client.sync().await.unwrap();
        let left = {
            let state = lfs.state.borrow();
            state.log.layout.segment_sectors() - state.log.end.offset
        };
        if is_short() && (2..8).contains(&left) {
            return Some((memory, files - 1));
        }
    }
    None
}

/// `image` with the beginning of a transaction at the end of its log: one sector, which declares a file number free.
async fn with_a_beginning(rt: &Rt, image: &Image) -> Image {
    let device: Device = Rc::new(Memory::from_image(BYTES, image.clone()));
    let lfs = open(rt.clone(), device.clone(), Options { read_only: true, ..Options::default() }).await.unwrap();
    let (layout, end) = (lfs.state.borrow().log.layout, lfs.state.borrow().log.end);
    let mut partial = vec![0; SECTOR_BYTES as usize];
    let summary = Summary {
        magic: SUMMARY_MAGIC,
        crc: 0,
        chain: end.chain,
        flags: SUMMARY_FIRST,
        uuid: layout.superblock.uuid,
        sequence: end.sequence,
        durable_sequence: end.sequence,
        segment: end.segment,
        offset: end.offset as u32,
        sectors: 1,
        summary_sectors: 1,
        entry_count: 1,
        next_segment: end.next_segment,
        youngest: 0,
        ino_cursor: FIRST_FREE_INO,
        inode_count: 0,
        generation: 0,
        unwritten_bytes: 0,
    };
    summary.encode(&mut partial);
    Item::InodeFreed { ino: crate::units::Ino(FIRST_FREE_INO) }.to_entry().encode(&mut partial[Summary::BYTES..]);
    seal_partial(&mut partial);
    let mut image = image.clone();
    image.write(layout.segment_start(end.segment) + end.offset, &partial);
    image
}

#[test]
fn a_beginning_that_is_not_passed_over_is_gone() {
    let mut tried = 0;
    for seed in 1..=soak().times(6) {
        simulate(seed, async |rt| {
            let mut rng = Rng::new(seed);
            let Some((memory, files)) = full_volume(&rt, &mut rng).await else { return };
            let torn = with_a_beginning(&rt, &memory.image()).await;
            let memory = Rc::new(Memory::from_image(BYTES, torn));
            crate::rt::covered();
            for round in 0..3 {
                let fs = mount(rt.clone(), memory.clone(), Options::default()).await.unwrap();
                let covered = crate::rt::covered();
                if covered.contains_key("lfs: the beginning of a transaction is passed over") {
                    return; // There is room after all.
                }
                tried += u32::from(covered.contains_key("lfs: the beginning of a transaction is written over"));
                let client = Client::new(fs);
                // Removing needs no room, and no cleaner.
                client.unlink(format!("/{round}").as_bytes()).await.unwrap();
                client.fsync_path(b"/").await.unwrap();
                let what = format!("seed {seed}, round {round}");
                for image in [memory.image(), without_newest_slot(&memory.image()).expect("two checkpoints")] {
                    let left: Device = Rc::new(Memory::from_image(BYTES, image));
                    let again = mount(rt.clone(), left.clone(), Options::default()).await;
                    let fs = again.unwrap_or_else(|error| panic!("{what}: {error}"));
                    let client = Client::new(fs.clone());
                    let left_over = client.stat(format!("/{round}").as_bytes()).await;
                    assert!(left_over.is_err(), "{what}: what was removed and synced is gone");
                    for file in round + 1..=files {
                        let read = client.read_file(format!("/{file}").as_bytes()).await;
                        assert!(read.is_ok_and(|bytes| bytes == [file; 100_000]), "{what}: /{file}");
                    }
                    fs.close().await.unwrap();
                    assert_clean(&rt, &left).await;
                }
            }
        });
    }
    assert!(tried > 0, "no log ended close before the end of a segment");
}
