//! Aim: the books balance (G1, G2, V4). After roll-forward a recount equals the usage table, whatever changed indirect
//! blocks before the power failed; what a slot needs is not overwritten; and wrong books are found and repaired.
//! Method: small programs, each cut off without closing, and a recount of everything.

use super::*;
use crate::codec;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::cut::Effort;
use crate::fs::logfs::demand::{Hole, add_hole, cut_holes};
use crate::fs::logfs::file;
use crate::fs::logfs::tree::BlockId;
use crate::rng::Rng;
use crate::testing::volumes::life::LEVELS;
use crate::units::{Ino, SECTOR_BYTES};

const BYTES: u64 = 12 * MIB;

/// No timer runs.
fn quiet(indirect_in_log: bool) -> Options {
    let never = Nanos::from_secs(1 << 30);
    Options { checkpoint_interval: never, write_back_interval: never, indirect_in_log, ..Options::default() }
}

async fn assert_balanced(fs: &Fs, what: &str) {
    assert_eq!(fs.check().await.expect(what), Vec::<String>::new(), "{what}");
}

/// A file with some blocks where each level of indirect blocks begins, on a volume that was closed.
async fn with_deep_file(rt: &Rt) -> Rc<Memory> {
    let (memory, device) = fresh(rt, BYTES).await;
    session(rt, &device, async |client| {
        let file = client.open_or_create(b"/f").await.unwrap();
        for (number, &edge) in LEVELS.iter().enumerate() {
            for block in 0..3 {
                client.write(file, edge - 4096 + block * 4096, &[number as u8 + 1; 4096]).await.unwrap();
            }
        }
        client.close(file).await.unwrap();
        client.write_file(b"/other", &[9; 100_000]).await.unwrap();
    })
    .await;
    memory
}

/// A recount reads a block of the map once, however many inodes in memory are listed in it.
#[test]
fn many_inodes_of_one_block_that_is_not_in_memory() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES).await;
        let name = |number: u64| format!("/f{number}").into_bytes();
        session(&rt, &device, async |client| {
            for number in 0..40 {
                client.write_file(&name(number), b"").await.unwrap();
            }
        })
        .await;
        let lfs = open(rt.clone(), device, quiet(false)).await.unwrap();
        let client = Client::new(lfs.clone());
        for number in 0..40 {
            client.stat(&name(number)).await.unwrap();
        }
        lfs.state.borrow_mut().blocks.remove_file(format::IMAP_INO);
        assert_balanced(&(lfs.clone() as Fs), "without the map in memory").await;
        lfs.close().await.unwrap();
    });
}

/// Changes of the file, made after a part of it may have been overwritten.
const CHANGES: [&str; 8] =
    ["truncate", "truncate and rewrite", "truncate twice", "punch", "unlink", "unlink in use", "reserve", "rewrite"];

async fn change(client: &Client, what: &str, edge: u64) -> FsResult<()> {
    let everything = FileRange { offset: edge - 4096, bytes: 1 << 20 };
    match what {
        "truncate" => client.truncate(b"/f", edge).await,
        "truncate and rewrite" => {
            client.truncate(b"/f", edge - 4096).await?;
            let file = client.open(b"/f", OpenFlags::READ_WRITE).await?;
            client.write(file, edge + 4096, b"again").await?;
            client.close(file).await
        }
        "truncate twice" => {
            for size in [edge, 0] {
                client.truncate(b"/f", size).await?;
                let file = client.open(b"/f", OpenFlags::READ_WRITE).await?;
                client.write(file, edge + 8192, b"again").await?;
                client.write(file, 400 * 4096, b"again").await?;
                client.close(file).await?;
            }
            client.truncate(b"/f", 401 * 4096).await
        }
        "punch" => client.fallocate(b"/f", everything, AllocateMode::PunchHole).await,
        "unlink" => client.unlink(b"/f").await,
        "unlink in use" => {
            client.open(b"/f", OpenFlags::READ_WRITE).await?;
            client.unlink(b"/f").await
        }
        "reserve" => {
            client.truncate(b"/f", edge - 4096).await?;
            client.fallocate(b"/f", everything, AllocateMode::Allocate { keep_size: false }).await?;
            client.truncate(b"/f", edge).await
        }
        _ => {
            let file = client.open(b"/f", OpenFlags::READ_WRITE).await?;
            client.write(file, edge, &[77; 8192]).await?;
            client.close(file).await
        }
    }
}

/// Aim: replay frees an indirect block when, and only when, the live run did. Method: a file with blocks on every level
/// that is in a checkpoint; each change at each level, alone, after an fsync of an overwrite, and with an fsync in
/// between; the power fails after the last fsync.
#[test]
fn indirect_blocks_that_were_freed_before_a_power_cut() {
    for indirect_in_log in [false, true] {
        for &edge in LEVELS {
            for what in CHANGES {
                for overwritten in [0, 1, 2] {
                    let name = format!("{what} at {edge}, overwritten {overwritten}, indirect=log {indirect_in_log}");
                    simulate(1, async |rt| after_a_cut(&rt, what, edge, overwritten, indirect_in_log, &name).await);
                }
            }
        }
    }
}

async fn after_a_cut(rt: &Rt, what: &str, edge: u64, overwritten: u32, indirect_in_log: bool, name: &str) {
    let memory = with_deep_file(rt).await;
    let fs = mount(rt.clone(), memory.clone(), quiet(indirect_in_log)).await.expect(name);
    let client = Client::new(fs.clone());
    for round in 0..overwritten {
        let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
        client.write(file, edge - 8192 + u64::from(round) * 8192, &[55; 8192]).await.unwrap();
        client.close(file).await.unwrap();
        client.fsync_path(b"/f").await.unwrap();
    }
    change(&client, what, edge).await.expect(name);
    assert_balanced(&fs, name).await;
    client.fs().syncfs().await.unwrap();
    assert_balanced(&fs, name).await;
    let before = client.stat(b"/f").await.map(|attr| (attr.size, attr.sectors));

    let copy: Device = Rc::new(Memory::from_image(BYTES, memory.image()));
    let found = fsck(rt.clone(), copy.clone(), FsckOptions { data: true, ..FsckOptions::default() }).await.expect(name);
    assert_eq!(found.errors, Vec::<String>::new(), "{name}");
    let recovered = mount(rt.clone(), copy.clone(), quiet(indirect_in_log)).await.expect(name);
    assert_balanced(&recovered, name).await;
    let client = Client::new(recovered.clone());
    assert_eq!(client.stat(b"/f").await.map(|attr| (attr.size, attr.sectors)), before, "{name}");
    recovered.close().await.expect(name);
    assert_clean(rt, &copy).await;
}

/// Aim: the mount's own writes do not overwrite what the only good checkpoint still needs (G1). Method: a file that is
/// in the checkpoint is removed, so that rolling forward empties its segments. Then the mount's free segments are
/// compared with what each slot needs, after every checkpoint, and without the newest slot as well.
#[test]
fn segments_that_recovery_emptied() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, BYTES).await;
        for round in 0..12u8 {
            session(&rt, &device, async |client| {
                client.write_file(format!("/f{round}").as_bytes(), &vec![round; 600_000]).await.unwrap();
            })
            .await;
            let fs = mount(rt.clone(), device.clone(), quiet(false)).await.unwrap();
            let client = Client::new(fs.clone());
            client.write_file(b"/short-lived", &vec![round; 300_000]).await.unwrap();
            client.fsync_path(b"/short-lived").await.unwrap();
            client.unlink(b"/short-lived").await.unwrap();
            if round % 3 == 2 {
                client.unlink(format!("/f{}", round - 2).as_bytes()).await.unwrap();
                client.unlink(format!("/f{}", round - 1).as_bytes()).await.unwrap();
            }
            client.write_file(b"/kept", &[round; 10]).await.unwrap();
            client.sync().await.unwrap();
            drop((client, fs));
            // The power fails once during recovery, and then again twice.
            for again in 0..3 {
                let name = format!("round {round}, recovery {again}");
                let image = memory.image();
                for image in [Some(image.clone()), without_newest_slot(&image)].into_iter().flatten() {
                    let copy: Device = Rc::new(Memory::from_image(BYTES, image));
                    // The state before the mount writes anything.
                    let found = find::find_volume(&copy).await.expect(&name);
                    let lfs = recovered(rt.clone(), copy.clone(), quiet(false), &found).await.expect(&name);
                    assert_eq!(lfs.recount().await.expect(&name), Vec::<String>::new(), "{name}");
                    drop(lfs);
                    let fs = mount(rt.clone(), copy.clone(), quiet(false)).await.expect(&name);
                    assert_balanced(&fs, &name).await;
                    let client = Client::new(fs.clone());
                    assert_eq!(client.read_file(b"/kept").await.expect(&name), [round; 10]);
                    fs.close().await.unwrap();
                    assert_clean(&rt, &copy).await;
                }
                let fs = mount(rt.clone(), device.clone(), quiet(false)).await.expect(&name);
                assert_balanced(&fs, &name).await;
                let client = Client::new(fs.clone());
                client.write_file(b"/more", &vec![again; 200_000]).await.unwrap();
                client.sync().await.unwrap();
                assert_balanced(&fs, &name).await;
            }
        }
    });
}

/// Aim: a checkpoint is durable before the log continues in the segments that it released (G1, L2). Method: after a
/// checkpoint the log goes through many segments, all of which become empty before the next one; two checkpoints
/// release them, and the log comes back to them without a flush of its own. Then the power fails, and each state is
/// recovered without its newest checkpoint: the older one needs those segments, if it still is the older one.
#[test]
fn a_checkpoint_is_durable_before_what_it_frees_is_used() {
    const BYTES: u64 = 9 * MIB;
    let images = simulate(1, async |rt| {
        let options = CrashOptions { record: true, ..CrashOptions::volatile(BYTES) };
        let device = CrashDevice::new(&rt, Image::default(), options);
        mkfs(&rt, &(device.clone() as Device), &MkfsOptions::new([1, 2, 3, 4])).await.unwrap();
        let lfs = open(rt.clone(), device.clone(), quiet(false)).await.unwrap();
        let client = Client::new(lfs.clone());
        client.write_file(b"/kept", b"kept").await.unwrap();
        lfs.checkpoint(false).await.unwrap();
        let first = lfs.state.borrow().log.end.segment;
        for part in 0..14u8 {
            client.write_file(format!("/{part}").as_bytes(), &vec![part; 200_000]).await.unwrap();
            client.sync().await.unwrap();
        }
        for part in 0..14u8 {
            client.unlink(format!("/{part}").as_bytes()).await.unwrap();
        }
        client.sync().await.unwrap();
        for _ in 0..2 {
            lfs.checkpoint(false).await.unwrap();
        }
        let (end, serial) = (lfs.state.borrow().log.end.segment, lfs.state.borrow().log.checkpoint_serial);
        assert!(end > first + 10, "from segment {first} to {end}");
        let file = client.create(b"/over and over").await.unwrap();
        let mut round = 0u64;
        // Until the log has come back to the released segments.
        while !(first + 2..end).contains(&lfs.state.borrow().log.end.segment) {
            client.write(file, round % 8 * 65_536, &vec![round as u8; 65_536]).await.unwrap();
            round += 1;
            assert!(round < 1000, "the log does not come round");
        }
        rt.sleep(Nanos::from_secs(1)).await; // Now it is written.
        assert_eq!(lfs.state.borrow().log.checkpoint_serial, serial, "nothing else has made a checkpoint");
        let log = device.log();
        let cut = log.cut(device.position());
        cut.choices(&Effort::THOROUGH, 1).iter().map(|choice| cut.image(choice)).collect::<Vec<Image>>()
    });
    assert!(images.len() > 20, "{} states", images.len());
    for (number, image) in images.iter().enumerate() {
        let name = format!("state {number}");
        simulate(1, async |rt| {
            let image = without_newest_slot(image).expect("two checkpoints");
            let copy: Device = Rc::new(Memory::from_image(BYTES, image));
            let fs = mount(rt.clone(), copy, quiet(false)).await.expect(&name);
            assert_balanced(&fs, &name).await;
            assert_eq!(Client::new(fs).read_file(b"/kept").await.expect(&name), b"kept");
        });
    }
}

/// Changes bytes of the log and keeps its checksums right: `from` becomes `to`, and the partial segment that holds it
/// is sealed again. Returns its segment.
fn forge(image: &mut Image, layout: &layout::Layout, from: &[u8], to: &[u8]) -> u64 {
    for segment in 0..layout.segment_count() {
        let start = layout.segment_start(segment);
        let mut bytes = vec![0; layout.segment_bytes() as usize];
        image.read(start, &mut bytes);
        let Some(at) = bytes.windows(from.len()).position(|window| window == from) else { continue };
        let found = cleaner::partials_in(layout, segment, &bytes);
        for partial in found {
            let first = ((partial.start - start) * SECTOR_BYTES) as usize;
            let end = first + (u64::from(partial.summary.sectors) * SECTOR_BYTES) as usize;
            if (first..end).contains(&at) {
                bytes[at..at + to.len()].copy_from_slice(to);
                format::seal_partial(&mut bytes[first..end]);
                image.write(start, &bytes);
                return segment;
            }
        }
    }
    panic!("it is not in the log");
}

/// Aim: damage stays damage when the cleaner comes by: it moves nothing that does not match its pointer (C2). Method:
/// file data and attributes changed without changing their pointers, in a partial segment that is sealed again; then
/// their segments are cleaned.
#[test]
fn the_cleaner_moves_nothing_that_is_damaged() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, BYTES).await;
        session(&rt, &device, async |client| {
            client.write_file(b"/f", &b"what was written".repeat(256)).await.unwrap();
            client.set_xattr(b"/f", b"user.a", b"value of the attribute").await.unwrap();
            client.write_file(b"/sound", &[3; 4096]).await.unwrap();
        })
        .await;
        let layout = find::find_volume(&device).await.unwrap().layout;
        let mut image = memory.image();
        let data = forge(&mut image, &layout, b"what was written", b"what was forged!");
        let attributes = forge(&mut image, &layout, b"value of the attribute", b"other of the attribute");
        memory.set_image(image);
        let lfs = open(rt.clone(), device.clone(), quiet(false)).await.unwrap();
        for segment in [data, attributes] {
            lfs.move_segment(segment, 0).await.unwrap();
        }
        lfs.checkpoint(false).await.unwrap();
        assert!(lfs.state.borrow().log.counters.log_cleaned_bytes > 0, "what is sound has moved");
        lfs.state.borrow_mut().drop_caches();
        let client = Client::new(lfs.clone());
        let read = client.read_file(b"/f").await;
        assert!(matches!(read, Err(FsError::Corrupt { .. })), "{read:?}");
        let read = client.get_xattr(b"/f", b"user.a").await;
        assert!(matches!(read, Err(FsError::Corrupt { .. })), "{read:?}");
        assert_eq!(client.read_file(b"/sound").await.unwrap(), [3; 4096]);
    });
}

/// A volume that was closed with books that `spoil` has falsified.
async fn spoilt(rt: &Rt, spoil: impl FnOnce(&mut state::State)) -> (Rc<Memory>, Device) {
    let (memory, device) = fresh(rt, BYTES).await;
    let lfs = open(rt.clone(), device.clone(), quiet(false)).await.unwrap();
    let client = Client::new(lfs.clone());
    client.write_file(b"/f", &[1; 300_000]).await.unwrap();
    client.mkdir(b"/d").await.unwrap();
    client.write_file(b"/d/g", &[2; 1000]).await.unwrap();
    client.write_file(b"/other", &[3; 100_000]).await.unwrap();
    client.sync().await.unwrap();
    lfs.checkpoint(false).await.unwrap();
    spoil(&mut lfs.state.borrow_mut());
    lfs.close().await.unwrap();
    (memory, device)
}

/// A segment that holds much, and in which the log does not continue.
fn full_segment(state: &state::State) -> u64 {
    let full = state.log.segments.iter().find(|(number, segment)| {
        segment.live_bytes > 60_000 && ![state.log.end.segment, state.log.end.next_segment].contains(number)
    });
    full.map(|(number, _)| number).unwrap()
}

fn spoil_inode(state: &mut state::State, spoil: impl FnOnce(&mut format::Inode)) {
    let (&ino, _) = state.inodes.iter().find(|(_, known)| known.inode.size == 300_000).unwrap();
    let known = state.inodes.get_mut(&ino).unwrap();
    spoil(&mut known.inode);
    known.dirt = state::InodeDirt::Own;
    let mut change = crate::fs::logfs::change::Change::new(state);
    change.touch(layout::imap_place(ino).0).unwrap();
    change.inode_mut(ino, state::InodeDirt::Own).unwrap();
    change.commit(crate::fs::logfs::demand::ReserveAccess::Internal).unwrap();
}

/// Makes the books wrong. Nothing is cleaned from then on.
fn spoil_live(state: &mut state::State, segment: layout::SegmentNo, bytes: u64) {
    state.log.segments.victims = None;
    state.log.segments.set_live(segment, bytes);
}

/// Aim: wrong books are found and repaired, and nothing else is touched. Method: each of them falsified on a volume
/// that was closed; a check, a repair, a check.
#[test]
fn wrong_books_are_repaired() {
    type Spoil = fn(&mut state::State);
    let cases: [(&str, Spoil); 8] = [
        ("live bytes", |state| {
            let segment = full_segment(state);
            let live = state.log.segments.get(segment).live_bytes;
            spoil_live(state, segment, live - 8192);
        }),
        ("live bytes", |state| {
            let segment = full_segment(state);
            spoil_live(state, segment, 0);
        }),
        ("inodes", |state| state.inode_count += 3),
        ("reserved", |state| {
            state.unwritten_bytes += 4096;
            state.log.unwritten_logged += 4096;
        }),
        ("use", |state| spoil_inode(state, |inode| inode.bytes_used -= 4096)),
        ("links", |state| spoil_inode(state, |inode| inode.links = 7)),
        ("orphan 77 does not exist", |state| assert!(state.log.orphans.add(Ino(77)))),
        ("has no name, and is no orphan", |state| {
            let mut change = crate::fs::logfs::change::Change::new(state);
            let root = *change.inode(Ino::ROOT).unwrap();
            let new = NewNode { permissions: 0o644, umask: 0, uid: 0, gid: 0 };
            change.make_inode(FileKind::Regular, &root, new).unwrap();
            change.commit(crate::fs::logfs::demand::ReserveAccess::Internal).unwrap();
        }),
    ];
    for (what, spoil) in cases {
        simulate(1, async |rt| {
            let (memory, device) = spoilt(&rt, spoil).await;
            let options = FsckOptions { data: true, repair: false };
            let repairing = FsckOptions { repair: true, ..options };
            let found = fsck(rt.clone(), device.clone(), options).await.unwrap().errors;
            assert!(found.iter().any(|error| error.contains(what)), "{what}: {found:?}");
            let untouched = memory.image();
            let again = fsck(rt.clone(), device.clone(), options).await.unwrap().errors;
            assert!(again == found && same(&untouched, &memory.image()), "a check writes nothing");
            let mended = fsck(rt.clone(), device.clone(), repairing).await.unwrap();
            assert_eq!((mended.errors, mended.repaired), (vec![], found), "{what}");
            session(&rt, &device, async |client| {
                assert_balanced(client.fs(), what).await;
                assert!(client.read_file(b"/f").await.unwrap() == vec![1; 300_000]);
                client.write_file(b"/f", &[3; 200_000]).await.unwrap();
                client.unlink(b"/d/g").await.unwrap();
            })
            .await;
            let before = memory.image();
            let clean = fsck(rt.clone(), device.clone(), repairing).await.unwrap();
            assert!(clean.is_clean() && same(&before, &memory.image()));
        });
    }
}

/// Aim: a repair frees nothing that has a name, also where another file is damaged, so that not all can be counted. Method: a file
/// whose inode says that it has no links, and another one with an indirect block that cannot be read.
#[test]
fn a_file_with_a_name_is_not_freed_because_another_is_damaged() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, BYTES).await;
        let lfs = open(rt.clone(), device.clone(), quiet(false)).await.unwrap();
        let client = Client::new(lfs.clone());
        client.write_file(b"/f", &[1; 300_000]).await.unwrap();
        client.write_file(b"/damaged", &[2; 400_000]).await.unwrap();
        let ino = client.stat(b"/damaged").await.unwrap().ino;
        client.sync().await.unwrap();
        lfs.checkpoint(false).await.unwrap();
        spoil_inode(&mut lfs.state.borrow_mut(), |inode| inode.links = 0);
        lfs.checkpoint(false).await.unwrap();
        let node = BlockId { ino, key: file::root_key(format::DIRECT_POINTERS) };
        let Ok(format::Pointer::Mapped { at, .. }) = lfs.state.borrow_mut().pointer(node) else {
            panic!("it is in the log")
        };
        lfs.close().await.unwrap();
        drop((client, lfs));
        let mut image = memory.image();
        image.zero(at, 1);
        memory.set_image(image);
        for round in 0..2 {
            let options = FsckOptions { data: true, repair: true };
            let found = fsck(rt.clone(), device.clone(), options).await.unwrap();
            assert!(!found.errors.is_empty(), "round {round}: the damage is still there");
            let fs = mount(rt.clone(), device.clone(), quiet(false)).await.unwrap();
            let client = Client::new(fs.clone());
            assert!(client.read_file(b"/f").await.unwrap() == vec![1; 300_000], "round {round}");
            client.write_file(b"/new", &[3; 100_000]).await.unwrap();
            fs.close().await.unwrap();
        }
    });
}

/// The same where a mount recounts, which reads no names.
#[test]
fn a_file_with_a_name_is_not_freed_by_a_mount_that_recounts() {
    simulate(1, async |rt| {
        let (_, device) = spoilt(&rt, |state| {
            spoil_inode(state, |inode| inode.links = 0);
            state.log.exact = false;
        })
        .await;
        for round in 0..2 {
            let fs = mount(rt.clone(), device.clone(), quiet(false)).await.unwrap();
            let client = Client::new(fs.clone());
            assert!(client.read_file(b"/f").await == Ok(vec![1; 300_000]), "round {round}");
            fs.close().await.unwrap();
        }
        let options = FsckOptions { data: true, repair: true };
        fsck(rt.clone(), device.clone(), options).await.unwrap();
        assert_clean(&rt, &device).await;
    });
}

/// Aim: a repair does not make it worse: what two files share is no reason to refuse the volume. Method: an inode gets a pointer of
/// another one.
#[test]
fn a_block_of_two_files_does_not_keep_a_volume_from_being_mounted() {
    simulate(1, async |rt| {
        let (_, device) = spoilt(&rt, |state| {
            let (&other, _) = state.inodes.iter().find(|(_, known)| known.inode.size == 100_000).unwrap();
            let Ok(shared) = state.pointer(BlockId::data(other, 0)) else { panic!("it is in memory") };
            spoil_inode(state, |inode| inode.set_pointer(0, shared));
        })
        .await;
        for round in 0..2 {
            let options = FsckOptions { data: true, repair: true };
            let found = fsck(rt.clone(), device.clone(), options).await.unwrap();
            assert!(!found.errors.is_empty(), "round {round}: two files have it");
            let fs = mount(rt.clone(), device.clone(), quiet(false)).await.unwrap();
            let client = Client::new(fs.clone());
            assert!(client.read_file(b"/other").await == Ok(vec![3; 100_000]), "round {round}");
            client.write_file(b"/new", &[4; 100_000]).await.unwrap();
            fs.close().await.unwrap();
        }
    });
}

fn same(one: &Image, two: &Image) -> bool {
    let crc = |image: &Image| {
        let mut bytes = vec![0; BYTES as usize];
        image.read(crate::units::Sector(0), &mut bytes);
        codec::crc32c(&bytes)
    };
    crc(one) == crc(two)
}

/// Aim: when a release that could count wrongly wrote the usage table, a mount recounts it before anything is
/// overwritten (V4). Method: a wrong table without the flag that declares it exact.
#[test]
fn a_mount_recounts_what_it_cannot_trust() {
    simulate(1, async |rt| {
        let (_, device) = spoilt(&rt, |state| {
            let segment = full_segment(state);
            spoil_live(state, segment, 0);
            state.log.exact = false;
        })
        .await;
        let fs = mount(rt.clone(), device.clone(), quiet(false)).await.unwrap();
        assert!(fs.warnings().iter().any(|warning| warning.contains("recounted")), "{:?}", fs.warnings());
        assert_balanced(&fs, "recounted").await;
        fs.close().await.unwrap();
        assert_clean(&rt, &device).await;
        let fs = mount(rt.clone(), device.clone(), quiet(false)).await.unwrap();
        assert_eq!(fs.warnings(), Vec::<String>::new());
    });
}

/// Aim: when the checkpoint's table counts a segment nearly full and the log then fills it beyond its size, a mount
/// distrusts the table and recounts (V4). Method: a checkpoint in which the next segment of the log counts as nearly
/// full already; then the log goes through it, and on.
#[test]
fn a_mount_doubts_what_the_log_adds() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, BYTES).await;
        let lfs = open(rt.clone(), device, quiet(false)).await.unwrap();
        let client = Client::new(lfs.clone());
        let (next, bytes) = {
            let state = lfs.state.borrow();
            (state.log.end.next_segment, state.log.layout.segment_bytes())
        };
        spoil_live(&mut lfs.state.borrow_mut(), next, bytes - 1024);
        lfs.checkpoint(false).await.unwrap();
        assert_eq!(lfs.state.borrow().log.end.next_segment, next);
        spoil_live(&mut lfs.state.borrow_mut(), next, 0);
        client.write_file(b"/f", &vec![1; 4 * bytes as usize]).await.unwrap();
        client.sync().await.unwrap();
        let device: Device = Rc::new(Memory::from_image(BYTES, memory.image()));
        let fs = mount(rt.clone(), device.clone(), quiet(false)).await.unwrap();
        let doubt = format!("what the log adds to segment {next} and frees in it is impossible");
        assert!(fs.warnings().iter().any(|warning| warning.contains(&doubt)), "{:?}", fs.warnings());
        assert_balanced(&fs, "after the mount").await;
        assert!(Client::new(fs.clone()).read_file(b"/f").await.unwrap() == vec![1; 4 * bytes as usize]);
        fs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}

/// Aim: the files of the log itself are never freed, whatever the list of orphans says. Method: each of them on the list of a
/// volume that was closed; then it is mounted, changed, and repaired.
#[test]
fn the_files_of_the_log_are_no_orphans() {
    for ino in [format::IMAP_INO, format::USAGE_INO, format::ORPHAN_INO] {
        simulate(1, async |rt| {
            let (_, device) = spoilt(&rt, |state| assert!(state.log.orphans.add(ino))).await;
            let fs = mount(rt.clone(), device.clone(), quiet(false)).await.unwrap();
            Client::new(fs.clone()).write_file(b"/new", &[3; 100_000]).await.unwrap();
            assert_eq!(fs.warnings(), Vec::<String>::new());
            fs.close().await.unwrap();
            let found = fsck(rt.clone(), device.clone(), FsckOptions { data: true, repair: true }).await.unwrap();
            assert_eq!((found.errors, found.repaired), (vec![], vec![format!("orphan {ino} does not exist")]));
            session(&rt, &device, async |client| {
                assert_balanced(client.fs(), "repaired").await;
                assert!(client.read_file(b"/f").await.unwrap() == vec![1; 300_000]);
                assert!(client.read_file(b"/new").await.unwrap() == vec![3; 100_000]);
            })
            .await;
        });
    }
}

/// Aim: a mount leaves the list of orphans as long as it was, so that it does not grow with every mount. Method:
/// orphans that stay in use, three times.
#[test]
fn the_list_of_orphans_keeps_its_length() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, BYTES).await;
        let lfs = open(rt.clone(), device, quiet(false)).await.unwrap();
        let client = Client::new(lfs.clone());
        for name in [b"/a", b"/b", b"/c"] {
            client.create(name).await.unwrap();
            client.unlink(name).await.unwrap();
        }
        lfs.checkpoint(false).await.unwrap();
        let copy: Device = Rc::new(Memory::from_image(BYTES, memory.image()));
        let found = find::find_volume(&copy).await.unwrap();
        let again = recovered(rt.clone(), copy, quiet(false), &found).await.unwrap();
        assert_eq!(again.state.borrow().log.orphans.list(), lfs.state.borrow().log.orphans.list());
        assert_eq!(again.state.borrow().log.orphans.slots.len(), 3);
    });
}

/// Aim: records of the last block that a file can have are replayed. Method: it is reserved, written, and made a hole,
/// each alone in the log behind a checkpoint.
#[test]
fn the_last_block_of_the_largest_file() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, BYTES).await;
        let lfs = open(rt.clone(), device, quiet(false)).await.unwrap();
        let client = Client::new(lfs.clone());
        let last = FileRange { offset: layout::FILE_BYTES_MAX - 4096, bytes: 4096 };
        let file = client.create(b"/f").await.unwrap();
        for what in ["set aside", "written", "a hole"] {
            lfs.checkpoint(false).await.unwrap();
            match what {
                "set aside" => {
                    let mode = AllocateMode::Allocate { keep_size: false };
                    client.fallocate(b"/f", last, mode).await.unwrap();
                }
                "written" => client.write(file, last.offset, &[5; 4096]).await.unwrap(),
                _ => client.fallocate(b"/f", last, AllocateMode::PunchHole).await.unwrap(),
            }
            client.sync().await.unwrap();
            let attr = client.stat(b"/f").await.unwrap();
            let copy: Device = Rc::new(Memory::from_image(BYTES, memory.image()));
            let fs = mount(rt.clone(), copy.clone(), quiet(false)).await.expect(what);
            assert_balanced(&fs, what).await;
            let again = Client::new(fs.clone());
            let found = again.stat(b"/f").await.unwrap();
            assert_eq!((found.size, found.sectors), (attr.size, attr.sectors), "{what}");
            let file = again.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
            let expected = if what == "written" { 5 } else { 0 };
            assert_eq!(again.read(file, last.offset, 4096).await.unwrap(), [expected; 4096], "{what}");
            fs.close().await.unwrap();
            assert_clean(&rt, &copy).await;
        }
    });
}

/// Runs of holes, compared with a set of them.
#[test]
fn holes_are_cut() {
    let mut rng = Rng::new(1);
    for _ in 0..200 {
        let (mut holes, mut set) = (Vec::new(), std::collections::BTreeSet::new());
        for _ in 0..20 {
            let (first, count) = (rng.below(60), rng.between(1, 9) as u32);
            let range = first..first + u64::from(count);
            cut_holes(&mut holes, range.start, range.end);
            if rng.chance(2, 3) {
                add_hole(&mut holes, Hole { first, count, reserved: rng.chance(1, 4) });
                set.extend(range);
            } else {
                set.retain(|index| !range.contains(index));
            }
            let mut found: Vec<u64> =
                holes.iter().flat_map(|hole| hole.first..hole.first + u64::from(hole.count)).collect();
            found.sort_unstable();
            assert_eq!(found, set.iter().copied().collect::<Vec<u64>>());
        }
    }
}
