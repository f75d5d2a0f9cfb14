//! Aim: damage to an internal file costs no more than what only it said. Method: blocks of these files, and indirect blocks
//! above them, are taken away, one and several at once; then the volume is mounted, checked and repaired, also with power
//! cuts.

use super::*;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::cut::Effort;
use crate::device::fault::FaultDevice;
use crate::fs::logfs::file::root_key;
use crate::fs::logfs::format::{DIRECT_POINTERS, Pointer};
use crate::fs::logfs::tree::BlockId;
use crate::testing::volumes::life::must_have_covered;
use crate::units::{Ino, Sector};

/// Cover points that only this damage reaches.
const POINTS: &[&str] = &[
    "lfs: a mount does not believe the list of orphans",
    "lfs: a table is rewritten because an indirect block of it is lost",
];

/// Checkpoints are made by the test alone.
fn by_hand() -> Options {
    let never = Nanos::from_secs(1 << 30);
    Options { checkpoint_interval: never, write_back_interval: never, ..Options::default() }
}

/// Where a block is in the log.
fn place(lfs: &Lfs, id: BlockId) -> Sector {
    match lfs.state.borrow_mut().pointer(id) {
        Ok(Pointer::Mapped { at, .. }) => at,
        _ => panic!("{id:?} is not in the log"),
    }
}

fn indirect(ino: Ino) -> BlockId {
    BlockId { ino, key: root_key(DIRECT_POINTERS) }
}

/// Bytes of the volumes below: an indirect block leads to a part of the usage table.
const BYTES: u64 = (SEGMENT + 40) * 128 * KIB;
const SEGMENT: u64 = (DIRECT_POINTERS as u64 + 1) * format::USAGES_PER_BLOCK - 1;

/// Entries of a list of orphans to a part of which an indirect block leads.
const ORPHANS: u64 = (DIRECT_POINTERS as u64 + 1) * state::ORPHANS_PER_BLOCK as u64 - 1;

/// A volume that a power cut has left behind, and its blocks that are lost.
struct Cut {
    image: Image,
    /// The block of the orphan list that names the orphans.
    orphans: Sector,
    orphans_node: Sector,
    usage: Sector,
    usage_node: Sector,
    /// An indirect block of `/large`.
    of_file: Sector,
    /// Of `/cut`, before its end was cut off.
    size: u64,
}

/// Both slots lead to the same blocks of the tables. `/kept` and `/large` are whole, `/cut` has blocks past its end, and one file
/// has no name.
fn cut_volume() -> Cut {
    simulate(1, async |rt| {
        let memory = Rc::new(Memory::new(BYTES));
        let device: Device = memory.clone();
        let options = MkfsOptions { segment_bytes: Some(128 * KIB), ..MkfsOptions::new([1, 2, 3, 4]) };
        mkfs(&rt, &device, &options).await.unwrap();
        let lfs = open(rt.clone(), device, by_hand()).await.unwrap();
        let client = Client::new(lfs.clone());
        client.write_file(b"/kept", b"kept").await.unwrap();
        client.write_file(b"/large", &[3; 100_000]).await.unwrap();
        client.write_file(b"/cut", &[7; 100_000]).await.unwrap();
        client.write_file(b"/nameless", &[8; 100_000]).await.unwrap();
        let _file = client.open(b"/nameless", OpenFlags::READ_WRITE).await.unwrap();
        client.unlink(b"/nameless").await.unwrap();
        let (large, cut) = (client.resolve(b"/large").await.unwrap(), client.resolve(b"/cut").await.unwrap());
        let shorter = SetAttr { size: Some(1000), ..SetAttr::default() };
        // The list stays as long as it once was.
        {
            let mut state = lfs.state.borrow_mut();
            let Ok(changed) = crate::fs::logfs::file::setattr(&mut state, cut, &shorter) else {
                panic!("all that it needs is in memory")
            };
            assert!(changed.must_reclaim);
            let spare = || (1000..1000 + ORPHANS).map(Ino);
            assert!(spare().all(|ino| state.log.orphans.add(ino)));
            assert!(spare().all(|ino| state.log.orphans.remove(ino)));
            state.log.segments.touch(SEGMENT);
        }
        for _ in 0..2 {
            lfs.checkpoint(false).await.unwrap();
        }
        Cut {
            image: memory.image(),
            orphans: place(&lfs, BlockId::data(format::ORPHAN_INO, 0)),
            orphans_node: place(&lfs, indirect(format::ORPHAN_INO)),
            usage: place(&lfs, BlockId::data(format::USAGE_INO, 0)),
            usage_node: place(&lfs, indirect(format::USAGE_INO)),
            of_file: place(&lfs, indirect(large)),
            size: 100_000,
        }
    })
}

/// Everything that does not depend on the damage is as it was, and what was cut off does not come back.
async fn assert_whole(client: &Client, size: u64) {
    assert_eq!(client.read_file(b"/kept").await.unwrap(), b"kept");
    assert!(client.read_file(b"/cut").await == Ok(vec![7; 1000]));
    client.truncate(b"/cut", size).await.unwrap();
    let cut = client.read_file(b"/cut").await.unwrap();
    assert!(cut[..1000] == [7; 1000] && cut[1000..].iter().all(|&byte| byte == 0), "what was cut off is back");
}

/// Each way to lose blocks of the tables: mounted, mounted again, checked and repaired. No file is lost, and what has no
/// name is freed.
#[test]
fn lost_blocks_of_tables() {
    crate::rt::covered();
    let cut = cut_volume();
    let free = free_inodes(&cut);
    let Cut { orphans, orphans_node, usage, usage_node, .. } = cut;
    let sets: [&[Sector]; 7] = [
        &[orphans],
        &[orphans_node],
        &[usage_node],
        &[usage, usage_node],
        &[orphans, orphans_node],
        &[orphans, usage_node],
        &[orphans, orphans_node, usage, usage_node],
    ];
    for (number, lost) in sets.into_iter().enumerate() {
        for repair_first in [false, true] {
            simulate(1, async |rt| {
                let what = format!("set {number}, repair first: {repair_first}");
                let device: Device = Rc::new(Memory::from_image(BYTES, cut.image.clone()));
                let fault = FaultDevice::new(&rt, device, 1);
                lost.iter().for_each(|&at| fault.lose(at..at + 1));
                let device: Device = fault.clone();
                let found = fsck(rt.clone(), device.clone(), FsckOptions::default()).await.expect(&what);
                assert!(!found.errors.is_empty() && found.repairable, "{what}: {:?}", found.errors);
                let shown = mount(rt.clone(), device.clone(), Options { read_only: true, ..by_hand() }).await;
                let shown = shown.expect(&what);
                assert!(!shown.warnings().is_empty(), "{what}");
                assert_eq!(Client::new(shown).read_file(b"/kept").await.unwrap(), b"kept", "{what}");
                let repair = async || {
                    let options = FsckOptions { repair: true, ..FsckOptions::default() };
                    let found = fsck(rt.clone(), device.clone(), options).await.expect(&what);
                    assert_eq!(found.errors, Vec::<String>::new(), "{what}");
                    found.repaired
                };
                if repair_first {
                    assert!(!repair().await.is_empty(), "{what}");
                }
                let mut is_doubted = !repair_first;
                for round in 0..2 {
                    let fs = mount(rt.clone(), device.clone(), by_hand()).await.expect(&what);
                    assert_eq!(fs.warnings().is_empty(), !is_doubted, "{what}: {:?}", fs.warnings());
                    assert_eq!(fs.check().await.expect("recounted"), Vec::<String>::new(), "{what}");
                    let client = Client::new(fs.clone());
                    if round == 0 {
                        assert_whole(&client, cut.size).await;
                    }
                    client.write_file(b"/new", &[2; 500_000]).await.unwrap();
                    assert_eq!(fs.check().await.expect("recounted"), Vec::<String>::new(), "{what}");
                    fs.close().await.expect(&what);
                    is_doubted = false;
                }
                assert!(repair().await.is_empty(), "{what}");
                session(&rt, &device, async |client| {
                    assert!(client.read_file(b"/large").await == Ok(vec![3; 100_000]), "{what}");
                })
                .await;
                let fs = mount(rt.clone(), device.clone(), by_hand()).await.unwrap();
                assert_eq!(fs.statfs().await.unwrap().inodes_free, free, "{what}: all is freed");
            });
        }
    }
    must_have_covered("fs::lfs::tests::tables::lost_blocks_of_tables", POINTS);
}

/// A list that names an orphan twice is damaged, too.
#[test]
fn an_orphan_twice() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, 9 * MIB).await;
        let lfs = open(rt.clone(), device, by_hand()).await.unwrap();
        let client = Client::new(lfs.clone());
        client.write_file(b"/kept", b"kept").await.unwrap();
        client.write_file(b"/nameless", &[8; 100_000]).await.unwrap();
        let _file = client.open(b"/nameless", OpenFlags::READ_WRITE).await.unwrap();
        client.unlink(b"/nameless").await.unwrap();
        let orphan = lfs.state.borrow().log.orphans.list()[0];
        lfs.state.borrow_mut().log.orphans.slots.resize(3, orphan);
        lfs.checkpoint(false).await.unwrap();
        let device: Device = Rc::new(Memory::from_image(9 * MIB, memory.image()));
        let found = fsck(rt.clone(), device.clone(), FsckOptions::default()).await.unwrap();
        assert!(
            found.repairable && found.errors.iter().any(|error| error.contains("occurs twice")),
            "{:?}",
            found.errors
        );
        for is_doubted in [true, false] {
            let fs = mount(rt.clone(), device.clone(), by_hand()).await.unwrap();
            assert_eq!(fs.warnings().len(), usize::from(is_doubted), "{:?}", fs.warnings());
            assert_eq!(Client::new(fs.clone()).read_file(b"/kept").await.unwrap(), b"kept");
            fs.close().await.unwrap();
            assert_clean(&rt, &device).await;
        }
    });
}

/// A list of orphans casts no doubt on the usage table: with an indirect block of a file lost, too, the rest can be written.
#[test]
fn a_lost_list_of_orphans_and_a_damaged_file() {
    let cut = cut_volume();
    for lost in [[cut.orphans, cut.of_file], [cut.orphans_node, cut.of_file]] {
        simulate(1, async |rt| {
            let device: Device = Rc::new(Memory::from_image(BYTES, cut.image.clone()));
            let fault = FaultDevice::new(&rt, device, 1);
            lost.iter().for_each(|&at| fault.lose(at..at + 1));
            for _ in 0..2 {
                let fs = mount(rt.clone(), fault.clone(), by_hand()).await.expect("the usage table is whole");
                let client = Client::new(fs.clone());
                assert_whole(&client, cut.size).await;
                assert!(client.read_file(b"/large").await.is_err());
                client.write_file(b"/new", &[2; 500_000]).await.unwrap();
                client.truncate(b"/cut", 1000).await.unwrap();
                fs.close().await.unwrap();
            }
        });
    }
}

/// A power cut while a mount or a repair rewrites the tables changes nothing: the next one does it again.
#[test]
fn power_cuts_while_tables_are_rewritten() {
    let cut = cut_volume();
    let mut states = 0;
    for repair in [false, true] {
        simulate(1, async |rt| {
            let mut image = cut.image.clone();
            [cut.orphans, cut.orphans_node, cut.usage, cut.usage_node].iter().for_each(|&at| image.zero(at, 1));
            let device = CrashDevice::new(&rt, image, CrashOptions::volatile(BYTES));
            if repair {
                fsck(rt.clone(), device.clone(), FsckOptions { repair, ..FsckOptions::default() }).await.unwrap();
            } else {
                let fs = mount(rt.clone(), device.clone(), by_hand()).await.unwrap();
                Client::new(fs.clone()).write_file(b"/new", &[2; 50_000]).await.unwrap();
                fs.close().await.unwrap();
            }
            let log = device.log();
            let positions = log.positions();
            for &position in positions.iter().step_by(positions.len().div_ceil(16)) {
                let at = log.cut(position);
                for choice in at.choices(&Effort::SAMPLED, 1).into_iter().take(3) {
                    let left: Device = Rc::new(Memory::from_image(BYTES, at.image(&choice)));
                    let fs = mount(rt.clone(), left.clone(), by_hand()).await;
                    let fs = fs.unwrap_or_else(|error| panic!("{error}, at {position}\n{}", at.to_text(&choice)));
                    assert_whole(&Client::new(fs.clone()), cut.size).await;
                    fs.close().await.unwrap();
                    assert_clean(&rt, &left).await;
                    states += 1;
                }
            }
        });
    }
    assert!(states > 20, "{states}");
}

/// Free inodes of the undamaged volume, with `/new`, once its orphans are freed.
fn free_inodes(cut: &Cut) -> u64 {
    simulate(1, async |rt| {
        let device: Device = Rc::new(Memory::from_image(BYTES, cut.image.clone()));
        let fs = mount(rt.clone(), device, by_hand()).await.unwrap();
        Client::new(fs.clone()).write_file(b"/new", &[2; 500_000]).await.unwrap();
        fs.statfs().await.unwrap().inodes_free
    })
}

/// A serial that the usage table has no room for is read as the newest one that it can mean.
#[test]
fn serials_of_more_than_32_bits() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 9 * MIB).await;
        let lfs = open(rt.clone(), device, by_hand()).await.unwrap();
        let layout = lfs.state.borrow().log.layout;
        let newest = (1 << 32) + 7;
        let mut stored = vec![0; format::BLOCK_BYTES];
        let mut written = segments::Segments::new(&layout);
        for (segment, since) in [(3, 5), (4, (1 << 32) - 2), (5, (1 << 32) - 1), (6, newest)] {
            written.set_empty_since(segment, since);
        }
        written.store_block(0, &mut stored);
        let mut read = segments::Segments::new(&layout);
        read.serial = newest;
        read.load_block(0, &stored).unwrap();
        let since = [3, 4, 5, 6].map(|segment| read.get(segment).empty_since);
        assert_eq!(since, [5, (1 << 32) - 2, newest, newest]);
    });
}

/// A table without a volume.
async fn empty_table(rt: &Rt) -> segments::Segments {
    let (_, device) = fresh(rt, 9 * MIB).await;
    let lfs = open(rt.clone(), device, by_hand()).await.unwrap();
    let layout = lfs.state.borrow().log.layout;
    segments::Segments::new(&layout)
}

/// Aim: a block of the table that is read once more counts what it says once, and is stored with zeroes behind the last segment whatever
/// was in its place. Method: a table of which two segments are in use, stored over something else and read twice.
#[test]
fn a_block_of_the_table_read_twice() {
    simulate(1, async |rt| {
        let mut written = empty_table(&rt).await;
        written.add_live(3, 4096, 1);
        written.add_live(4, 8192, 2);
        let mut stored = vec![0xff; format::BLOCK_BYTES];
        written.store_block(0, &mut stored);
        let end = written.count() as usize * format::Usage::BYTES;
        assert!(end < stored.len() && stored[end..].iter().all(|&byte| byte == 0), "what is behind the last segment");
        let mut read = empty_table(&rt).await;
        for _ in 0..2 {
            read.load_block(0, &stored).unwrap();
            assert_eq!((read.used(), read.live_bytes), (2, 12_288));
        }
    });
}

/// Aim: a segment that a transaction has emptied, and that the log continues in, does not become clean while it does. Method: one that is
/// replayed in this order, as after a crash; without the second step it does become clean.
#[test]
fn a_segment_that_was_taken_again_is_not_let_go() {
    simulate(1, async |rt| {
        for is_taken in [false, true] {
            let mut table = empty_table(&rt).await;
            table.serial = 3;
            table.add_live(5, 4096, 1);
            assert!(table.remove_live(5, 4096));
            table.has_no_tree(5);
            table.note_emptied(5, 7);
            if is_taken {
                table.take(5);
            }
            let wanted = if is_taken { (None, vec![]) } else { (Some(7), vec![5]) };
            assert_eq!((table.next_early(9), table.let_go_early(9, 7)), wanted);
        }
    });
}

/// A mount knows the segments in use as those that the log has left when it began: a policy that goes by their age would clean the
/// oldest of them first otherwise, which says nothing.
#[test]
fn segments_are_left_at_the_mount() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 9 * MIB).await;
        session(&rt, &device, async |client| client.write_file(b"/f", &[1; 3_000_000]).await.unwrap()).await;
        rt.sleep(Nanos::from_secs(100)).await;
        let begun = rt.wall().nanos_since_epoch() as i64;
        let lfs = open(rt.clone(), device, by_hand()).await.unwrap();
        let state = lfs.state.borrow();
        let end = [state.log.end.segment, state.log.end.next_segment];
        let used =
            state.log.segments.iter().filter(|(number, segment)| segment.live_bytes > 0 && !end.contains(number));
        let left: Vec<i64> = used.map(|(_, segment)| segment.closed).collect();
        let ended = rt.wall().nanos_since_epoch() as i64;
        assert!(
            left.len() > 10 && left.iter().all(|left| (begun..=ended).contains(left)),
            "{begun} to {ended}: {left:?}"
        );
    });
}
