//! Aim: blocks go where 4.4BSD puts them, and writes happen in its order and number. Method: the placement of small
//! sequences on an empty volume for the drive of [se95], and counts of ordered writes and of requests.

use std::cell::RefCell;

use super::*;
use crate::device::trace::{TraceDevice, TraceEvent, TraceKind};

/// Twenty groups, the last as large as the others, so that a group is below average as soon as it holds something.
const VOLUME: u64 = 20 * 798 * 8192;

pub(super) async fn place(ffs: &Ffs, client: &Client, path: &[u8]) -> (InodeNo, Vec<FragNo>) {
    let attr = client.stat(path).await.expect("stat");
    let ino = state::inner(attr.ino).expect("a number");
    let blocks = attr.size.div_ceil(8192);
    let mut places = Vec::new();
    for lbn in 0..blocks {
        places.push(ffs.step(|state| state.block_at(ino, lbn)).await.expect("block").unwrap_or_default());
    }
    (ino, places)
}

/// Runs `program` on an empty volume of a profile.
fn on(profile: Profile, options: Options, program: impl AsyncFn(Rc<Ffs>, Client)) {
    simulate(1, async |rt| {
        let mkfs = MkfsOptions::new([1, 2]).profile(profile, DriveShape::DSP3105);
        let (_, device) = fresh(&rt, VOLUME, &mkfs).await;
        let ffs = mount(rt.clone(), device.clone(), options).await.expect("mount");
        program(ffs.clone(), Client::new(ffs.clone())).await;
        ffs.close().await.expect("close");
        assert_clean(&rt, &device).await;
    });
}

fn counter(ffs: &Ffs, name: &str) -> u64 {
    ffs.counters().into_iter().find(|(other, _)| *other == name).map_or(0, |(_, count)| count)
}

/// The shape of [se95]'s volumes: 798 blocks and about 1600 inodes in a group.
#[test]
fn shape_of_a_group() {
    on(Profile::Newfs, Options::default(), async |ffs, _| {
        let layout = ffs.state.borrow().layout.clone();
        assert_eq!(layout.frags_per_group, 798 * 8);
        assert_eq!(layout.inodes_per_group, 1600);
        assert_eq!((layout.rotation.cpc, layout.rotation.rotdelay, layout.maxcontig), (8, 4, 8));
        assert!(layout.rotation.has_tables());
    });
}

/// Directories spread over the groups, and files stay with their directory.
#[test]
fn directories_spread_and_files_stay() {
    on(Profile::M8R0, Options::default(), async |ffs, client| {
        let layout = ffs.state.borrow().layout.clone();
        let mut groups = std::collections::BTreeSet::new();
        for index in 0..layout.groups - 1 {
            let dir = format!("/d{index}");
            client.mkdir(dir.as_bytes()).await.unwrap();
            let (ino, _) = place(&ffs, &client, dir.as_bytes()).await;
            groups.insert(layout.group_of_ino(ino));
            let file = format!("{dir}/f");
            client.write_file(file.as_bytes(), &[1; 20_000]).await.unwrap();
            let (file_ino, blocks) = place(&ffs, &client, file.as_bytes()).await;
            assert_eq!(layout.group_of_ino(file_ino), layout.group_of_ino(ino));
            assert!(blocks.iter().all(|&at| layout.group_of(at) == layout.group_of_ino(ino)));
        }
        assert_eq!(groups.len() as u32, layout.groups - 1, "one directory in each group besides the root's");
    });
}

/// Runs of `maxcontig` blocks, then a gap of `rotdelay`, in blocks: none for m8r0, two for the others.
#[test]
fn rows_and_gaps() {
    for (profile, row, gap) in [(Profile::M8R0, 8, 0), (Profile::M8R2, 8, 2), (Profile::M1R2, 1, 2)] {
        on(profile, Options::default(), async |ffs, client| {
            client.write_file(b"/f", &vec![1; 12 * 8192]).await.unwrap();
            let (_, blocks) = place(&ffs, &client, b"/f").await;
            for (index, pair) in blocks.windows(2).enumerate() {
                let skipped = if (index + 1) % row == 0 { gap } else { 0 };
                assert_eq!(pair[1], pair[0] + 8 + skipped * 8, "{profile:?}, behind block {index}");
            }
        });
    }
}

/// The first indirect block, and the data behind it, go to another group [se95 §3.2].
#[test]
fn indirect_blocks_begin_a_group() {
    on(Profile::M8R0, Options::default(), async |ffs, client| {
        client.write_file(b"/f", &vec![1; 40 * 8192]).await.unwrap();
        let layout = ffs.state.borrow().layout.clone();
        let (ino, blocks) = place(&ffs, &client, b"/f").await;
        let own = layout.group_of_ino(ino);
        assert!(blocks[..12].iter().all(|&at| layout.group_of(at) == own));
        assert!(blocks[12..].iter().all(|&at| layout.group_of(at) == layout.group_of(blocks[12])));
        assert_ne!(layout.group_of(blocks[12]), own);
    });
}

/// How many writes each operation waits for, as in 4.4BSD's sources.
#[test]
fn ordered_writes() {
    on(Profile::M8R0, Options::default(), async |ffs, client| {
        let count = || counter(&ffs, "ordered_writes");
        let mut before = count();
        let mut expect = |what: &str, writes: u64| {
            let now = count();
            assert_eq!(now - before, writes, "{what}");
            before = now;
        };
        client.close(client.create(b"/f").await.unwrap()).await.unwrap();
        expect("create: inode, directory", 2);
        client.mkdir(b"/d").await.unwrap();
        expect("mkdir: inode, parent, block, inode, directory", 5);
        let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
        client.write(file, 0, &[1; 12 * 8192]).await.unwrap();
        expect("writing direct blocks", 0);
        client.write(file, 12 * 8192, &[1; 8192]).await.unwrap();
        expect("first indirect block", 1);
        client.close(file).await.unwrap();
        client.link(b"/f", b"/g").await.unwrap();
        expect("link: inode, directory", 2);
        client.unlink(b"/g").await.unwrap();
        expect("unlink, not the last: directory", 1);
        client.rename(b"/f", b"/h", RenameMode::Replace).await.unwrap();
        expect("rename: inode, new name, old name", 3);
        client.write_file(b"/v", &[1; 100]).await.unwrap();
        expect("create again", 2);
        client.rename(b"/h", b"/v", RenameMode::Replace).await.unwrap();
        expect("rename over a file: inode, new name, victim, old name", 4);
        client.unlink(b"/v").await.unwrap();
        expect("unlink of a file with an indirect block: directory, inode, indirect", 3);
        client.rmdir(b"/d").await.unwrap();
        expect("rmdir: directory, inode", 2);
        client.close(client.create(b"/e").await.unwrap()).await.unwrap();
        expect("create", 2);
        client.unlink(b"/e").await.unwrap();
        expect("unlink of an empty file: directory", 1);
    });
}

/// The writes for new files that [ro92 Figure 1] and [se95 §1.1] count. For two files of a block, each in its own directory, the text
/// has ten: two of each new inode, and one of each block, of each directory and of each directory's inode. Here, as in 4.4BSD, an
/// inode of a directory and those of its files are in one block, and both bitmaps of a group, which the ten leave out, in another.
/// Method: the requests of a sync behind the creation of two files, and of one.
#[test]
fn writes_for_new_files() {
    simulate(1, async |rt| {
        let mkfs = MkfsOptions::new([1, 2]).profile(Profile::M8R0, DriveShape::DSP3105);
        let (_, device) = fresh(&rt, VOLUME, &mkfs).await;
        let events = Rc::new(RefCell::new(Vec::<TraceEvent>::new()));
        let traced = TraceDevice::new(&rt, device.clone(), events.clone());
        let ffs = mount(rt.clone(), traced, Options::default()).await.expect("mount");
        let client = Client::new(ffs.clone());
        for dir in [b"/dir1", b"/dir2", b"/dir3"] {
            client.mkdir(dir).await.expect("mkdir");
        }
        client.sync().await.expect("sync");
        let layout = ffs.state.borrow().layout.clone();
        let mut written = Vec::new();
        for files in [&["/dir1/file1", "/dir2/file2"][..], &["/dir3/file3"]] {
            events.borrow_mut().clear();
            for file in files {
                client.write_file(file.as_bytes(), &[1; 8192]).await.expect("there is room");
            }
            client.sync().await.expect("sync");
            let is_write = |event: &&TraceEvent| matches!(event.kind, TraceKind::Write | TraceKind::WriteThrough);
            let writes: Vec<TraceEvent> = events.borrow().iter().filter(is_write).copied().collect();
            for file in files {
                let (ino, _) = place(&ffs, &client, file.as_bytes()).await;
                let inode = layout.sector(layout.inode_place(ino).0);
                let of_inode = writes.iter().filter(|event| event.at <= inode && inode.0 < event.at.0 + event.sectors);
                assert_eq!(of_inode.count(), 2, "once in order, and once with what follows: {writes:#?}");
            }
            let places: std::collections::BTreeSet<_> = writes.iter().map(|event| event.at).collect();
            written.push((writes.len(), places.len()));
        }
        // For each file its block, its directory, their inodes, twice, and the group's maps; and the volume's sums in two places.
        assert_eq!(written, [(12, 10), (7, 6)], "writes, and different places");
        ffs.close().await.expect("close");
    });
}

/// Larger files are in more pieces where clusters have gaps, which later files fill: of m8r2, from 64 KB on [se95 §3.2]. Method: ten
/// files of each size on a new volume; a piece ends where the next block is not behind the one before.
#[test]
fn gaps_are_filled_by_later_files() {
    // Without gaps a piece ends where a file goes on in another group.
    for (profile, expected) in [(Profile::M8R2, [10, 39, 60, 101]), (Profile::M8R0, [10, 20, 24, 30])] {
        let mut pieces = Vec::new();
        for kib in [64, 128, 256, 512] {
            let counted = std::cell::Cell::new(0);
            on(profile, Options::default(), async |ffs, client| {
                for index in 0..10 {
                    let path = format!("/f{index}");
                    client.write_file(path.as_bytes(), &vec![1; kib << 10]).await.expect("there is room");
                    let (_, blocks) = place(&ffs, &client, path.as_bytes()).await;
                    counted.set(counted.get() + 1 + blocks.windows(2).filter(|pair| pair[1] != pair[0] + 8).count());
                }
            });
            pieces.push(counted.get());
        }
        assert_eq!(pieces, expected, "{profile:?}");
    }
}

/// A file of two blocks takes two reads, as block 0 never makes access sequential and the last block is read alone;
/// a long one is read in clusters.
#[test]
fn reads() {
    on(Profile::M8R0, Options::default(), async |ffs, client| {
        client.write_file(b"/two", &[1; 16_384]).await.unwrap();
        client.write_file(b"/long", &vec![1; 12 * 8192]).await.unwrap();
        for (path, most) in [(&b"/two"[..], 2), (b"/long", 7)] {
            client.fs().drop_caches().await.unwrap();
            let file = client.open(path, OpenFlags::READ).await.unwrap();
            let before = counter(&ffs, "block_reads");
            let mut at = 0;
            loop {
                let piece = client.read(file, at, 8192).await.unwrap();
                if piece.is_empty() {
                    break;
                }
                at += piece.len() as u64;
            }
            client.close(file).await.unwrap();
            let reads = counter(&ffs, "block_reads") - before;
            assert!(reads <= most && reads >= 2, "{} reads of {}", reads, String::from_utf8_lossy(path));
        }
    });
}

/// Sequential writes go out in clusters of 64 KiB.
#[test]
fn writes() {
    on(Profile::M8R0, Options::default(), async |ffs, client| {
        let before = (counter(&ffs, "block_writes"), counter(&ffs, "clustered_writes"));
        let file = client.create(b"/f").await.unwrap();
        for index in 0..512 {
            client.write(file, index * 8192, &[1; 8192]).await.unwrap();
        }
        client.close(file).await.unwrap();
        let (all, clustered) = (counter(&ffs, "block_writes") - before.0, counter(&ffs, "clustered_writes") - before.1);
        assert!((512 / 8 - 2..=512 / 8 + 2).contains(&clustered), "{clustered} clusters");
        assert!(all < clustered + 10, "{all} writes, {clustered} of them clusters");
    });
}

/// With `realloc`, blocks that had to go to scattered places are moved together before they are written.
#[test]
fn realloc_moves_blocks_together() {
    let runs = |realloc_blocks| {
        let mut scattered = 0;
        let options = Options { realloc_blocks, ..Options::default() };
        let counted = std::cell::Cell::new(0);
        on(Profile::M8R0, options, async |ffs, client| {
            // Every second block of the group's beginning is free.
            for index in 0..60 {
                client.write_file(format!("/s{index:02}").as_bytes(), &[1; 8192]).await.unwrap();
            }
            for index in (0..60).step_by(2) {
                client.unlink(format!("/s{index:02}").as_bytes()).await.unwrap();
            }
            let file = client.create(b"/f").await.unwrap();
            for index in 0..12 {
                client.write(file, index * 8192, &[1; 8192]).await.unwrap();
            }
            client.close(file).await.unwrap();
            let (_, blocks) = place(&ffs, &client, b"/f").await;
            counted.set(blocks.windows(2).filter(|pair| pair[1] != pair[0] + 8).count());
        });
        scattered += counted.get();
        scattered
    };
    let (without, with) = (runs(false), runs(true));
    assert!(without >= 8 && with <= 3, "{without} breaks without, {with} with");
}

/// Ordinary users cannot use the last `minfree` percent.
#[test]
fn the_reserve_is_kept() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 16 * MIB, &MkfsOptions { minfree: 10, ..small_groups() }).await;
        session(&rt, &device, Options::default(), async |client| {
            let mut count = 0;
            let error = loop {
                match client.write_file(format!("/f{count}").as_bytes(), &[1; 50_000]).await {
                    Ok(()) => count += 1,
                    Err(error) => break error,
                }
            };
            assert_eq!(error, FsError::NoSpace);
            let space = client.fs().statfs().await.unwrap();
            let kept = space.blocks_free * 100 / space.blocks;
            assert!((10..=11).contains(&kept), "{kept} % free");
            assert!(space.blocks_available * 1024 < 100_000);
            for index in 0..count {
                client.unlink(format!("/f{index}").as_bytes()).await.unwrap();
            }
        })
        .await;
    });
}
