//! Aim: whatever happens to an image, mounting, reading and checking end in an error or an answer, never in a panic.
//! What a check repairs is right afterwards. Method: the damage and fault explorers.

use super::crash::Checked;
use std::collections::BTreeMap;

use super::*;
use crate::device::WriteFlags;
use crate::device::crash::CrashOptions;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::fs::ffs::state::inner;
use crate::rng::Rng;
use crate::testing::environment::replay;
use crate::testing::{DamageTest, Faults, Generator, Op, OpMix, PowerCuts, Promise, Space};

const BYTES: u64 = 4 * MIB;

fn ops(seed: u64, count: usize) -> Vec<Op> {
    Generator::new(seed, Space::small(), OpMix::BALANCED).filter(Op::is_possible_on_ufs1).take(count).collect()
}

/// Every bit of the superblock's fields and of the first group's head, a sample of all other bits, and larger damage.
#[test]
fn damaged_images() {
    let subject = Volume { mkfs: MkfsOptions { bytes_per_inode: Some(65_536), ..small_groups() }, ..Volume::default() };
    let superblock = SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + Superblock::BYTES as u64;
    let damage = DamageTest {
        subject: &subject,
        device: CrashOptions::write_through(BYTES),
        flip_all: vec![superblock.start..superblock.start + 212, superblock.end - 68..superblock.end],
        flips: 600,
        losses: 250,
        splices: 300,
        data_checked: false,
        memory: None,
        seed: 1,
        replay: replay("fs::ffs::tests::damage::damaged_images"),
    };
    match damage.run(&ops(3, 200)) {
        Ok(report) => println!("{report}"),
        Err(report) => panic!("{report}"),
    }
}

/// After random damage to metadata, a check that repairs leaves a volume in which a second check finds nothing, and
/// which can be mounted and read.
#[test]
fn repaired_images_are_clean() {
    simulate(1, async |rt| {
        let options = MkfsOptions { bytes_per_inode: Some(65_536), ..small_groups() };
        let (memory, device) = fresh(&rt, BYTES, &options).await;
        session(&rt, &device, Options::default(), async |client| {
            for i in 0..40 {
                client.mkdir(format!("/d{i}").as_bytes()).await.unwrap();
                client.write_file(format!("/d{i}/f").as_bytes(), &vec![i as u8; i * 977]).await.unwrap();
            }
            client.write_file(b"/big", &vec![9; 300_000]).await.unwrap();
        })
        .await;
        let layout = info(&device).await.unwrap().layout;
        let whole = memory.image();
        let (mut mended, mut hopeless) = (0, 0);
        let replay = replay("fs::ffs::tests::damage::repaired_images_are_clean");
        for seed in replay.seeds(0..300) {
            let again = replay.command(seed, None, None, None);
            let mut rng = Rng::new(seed);
            let device: Device = Rc::new(Memory::from_image(BYTES, whole.clone()));
            for _ in 0..rng.between(1, 4) {
                let group = GroupNo(rng.below(layout.groups.into()) as u32);
                // Somewhere in the group's block, its inodes, or the first of its data, where directories are.
                let at = layout.group_block(group) + rng.below(40) as u32;
                let sector = layout.sector(at.min(FragNo(layout.size - 1)));
                let mut bytes = device.read(sector, Buf::zeroed(512)).await.unwrap();
                for _ in 0..rng.between(1, 6) {
                    let place = rng.below(512) as usize;
                    bytes[place] = rng.next_u64() as u8;
                }
                device.write(sector, bytes.freeze(), WriteFlags::NONE).await.unwrap();
            }
            let options = FsckOptions { repair: true, ..FsckOptions::default() };
            match fsck(&rt, &device, options).await {
                Err(_) => hopeless += 1,
                Ok(_) => {
                    mended += 1;
                    let found = fsck(&rt, &device, FsckOptions::default()).await.unwrap();
                    assert_eq!(found.problems, Vec::new(), "{again}");
                    let ffs = mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
                    let tree = crate::testing::Tree::of(ffs.clone()).await.unwrap();
                    assert_eq!(tree.problems, Vec::<String>::new(), "{again}");
                    ffs.close().await.unwrap();
                }
            }
        }
        assert!(mended > 5 * hopeless, "{mended} mended, {hopeless} hopeless");
    });
}

/// Without its first superblock a volume is found by a copy, and repaired.
#[test]
fn a_copy_of_the_superblock() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES, &small_groups()).await;
        session(&rt, &device, Options::default(), async |client| {
            client.write_file(b"/f", b"kept").await.unwrap();
        })
        .await;
        let place = Sector(SUPERBLOCK_OFFSET / SECTOR_BYTES);
        device.write(place, crate::device::Data::zeroes(SUPERBLOCK_BYTES), WriteFlags::NONE).await.unwrap();
        assert!(mount(rt.clone(), device.clone(), Options::default()).await.is_err());
        let options = FsckOptions { repair: true, ..FsckOptions::default() };
        assert!(!fsck(&rt, &device, options).await.unwrap().is_clean());
        session(&rt, &device, Options::default(), async |client| {
            assert_eq!(client.read_file(b"/f").await.unwrap(), b"kept");
        })
        .await;
    });
}

/// Structures that exist twice, or that can be derived from the rest, may be unreadable: the superblock, its copies,
/// the heads of groups, the summary. Read-only, the files are there and nothing is written; a repair rewrites these
/// structures, and then everything is as it was.
#[test]
fn what_follows_from_the_rest_may_be_unreadable() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, BYTES, &small_groups()).await;
        session(&rt, &device, Options::default(), async |client| {
            client.write_file(b"/f", b"kept").await.unwrap();
        })
        .await;
        let layout = info(&device).await.unwrap().layout;
        let primary = Sector(SUPERBLOCK_OFFSET / SECTOR_BYTES);
        let sectors = SUPERBLOCK_BYTES as u64 / SECTOR_BYTES;
        let group_sectors = u64::from(layout.group_block_frags() * layout.frag_bytes) / SECTOR_BYTES;
        let mut places = vec![
            ("superblock", primary, sectors, true),
            ("superblock", primary, 1, true),
            ("superblock", primary + 2, 1, true),
            ("summary", layout.sector(layout.csaddr), 1, false),
        ];
        for group in layout.group_numbers() {
            places.push(("copy", layout.sector(layout.superblock_copy(group)), sectors, false));
            places.push(("copy", layout.sector(layout.superblock_copy(group)) + 1, 1, false));
            places.push(("group", layout.sector(layout.group_block(group)), group_sectors, false));
        }
        for (name, at, count, is_needed) in places {
            let what = format!("{name} at sector {at}, {count} sectors");
            let lost = || {
                let fault = FaultDevice::new(&rt, Rc::new(Memory::from_image(BYTES, memory.image())), 1);
                fault.lose(at..at + count);
                fault
            };
            let fault = lost();
            fault.add(Rule::new(Kinds::WRITE | Kinds::FLUSH, When::Always, Effect::ReadOnly));
            let options = Options { read_only: true, ..Options::default() };
            let ffs = mount(rt.clone(), fault.clone(), options).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(ffs.warnings().is_empty(), matches!(name, "copy" | "group"), "{what}: {:?}", ffs.warnings());
            assert_eq!(Client::new(ffs).read_file(b"/f").await.unwrap(), b"kept", "{what}");
            let device: Device = fault.clone();
            let found =
                fsck(&rt, &device, FsckOptions::default()).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(!found.is_clean() && found.problems.iter().all(|problem| !problem.repaired), "{what}: {found:?}");
            assert_eq!(fault.looked_at(0), 0, "{what}: nothing is written");

            let fault = lost();
            let device: Device = fault.clone();
            if is_needed {
                assert!(mount(rt.clone(), device.clone(), Options::default()).await.is_err(), "{what}");
            }
            let options = FsckOptions { repair: true, ..FsckOptions::default() };
            let found = fsck(&rt, &device, options).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(!found.is_clean() && found.problems.iter().all(|problem| problem.repaired), "{what}: {found:?}");
            assert_eq!(fault.lost(), Vec::<Sector>::new(), "{what}: it is rewritten");
            assert_clean(&rt, &device).await;
            session(&rt, &device, Options::default(), async |client| {
                assert_eq!(client.read_file(b"/f").await.unwrap(), b"kept", "{what}");
            })
            .await;
        }
        // A mount for writing rebuilds the summary by itself.
        let fault = FaultDevice::new(&rt, Rc::new(Memory::from_image(BYTES, memory.image())), 1);
        let summary = layout.sector(layout.csaddr);
        fault.lose(summary..summary + 1);
        let device: Device = fault.clone();
        session(&rt, &device, Options::default(), async |client| {
            assert_eq!(client.read_file(b"/f").await.unwrap(), b"kept");
        })
        .await;
        assert_eq!(fault.lost(), Vec::<Sector>::new());
    });
}

/// Each request in turn fails, or finds the device gone; earlier guarantees are kept.
#[test]
fn failing_requests() {
    const REQUESTS: u64 = 12;
    for (seed, nth) in (0..2_u64).flat_map(|seed| (1..=REQUESTS).map(move |nth| (seed, nth * 3 - 2))) {
        for kind in ["write-error", "flush-error", "read-error", "gone"] {
            let subject = Checked::default();
            let ops: Vec<Op> =
                Generator::new(seed, Space::small(), OpMix::CRASHY).filter(Op::is_possible_on_ufs1).take(60).collect();
            let mut replay = replay("fs::ffs::tests::damage::failing_requests");
            replay.case.get_or_insert(format!("{kind}:{nth}"));
            let cuts = PowerCuts::sampled(&subject, CrashOptions::volatile(BYTES), Promise::IN_PLACE, replay);
            let faults = Faults { cuts: PowerCuts { seed, second_cut: None, ..cuts }, each_max: 1, positions_max: 4 };
            if let Err(report) = faults.run(&[], &ops) {
                panic!("{report}");
            }
        }
    }
}

/// While the storage below has no room, operations that need some are refused without effect; reading continues; and
/// when there is room again, writing continues, and nothing is lost.
#[test]
fn no_room_below() {
    simulate(1, async |rt| {
        let (_, memory) = fresh(&rt, 16 * MIB, &small_groups()).await;
        let fault = FaultDevice::new(&rt, memory.clone(), 1);
        let ffs = mount(rt.clone(), fault.clone(), Options::default()).await.unwrap();
        let client = Client::new(ffs.clone());
        client.write_file(b"/before", &[1; 50_000]).await.unwrap();
        client.sync().await.unwrap();
        fault.add(Rule::new(Kinds::WRITE, When::From(1), Effect::NoSpace));
        assert_eq!(client.mkdir(b"/d").await, Err(FsError::NoSpace));
        assert_eq!(client.write_file(b"/new", b"x").await, Err(FsError::NoSpace));
        assert_eq!(client.unlink(b"/before").await, Err(FsError::NoSpace));
        assert!(client.sync().await.is_err());
        assert_eq!(client.read_dir(b"/").await.unwrap().len(), 1);
        assert!(client.read_file(b"/before").await.unwrap() == [1; 50_000]);
        fault.clear();
        client.mkdir(b"/d").await.unwrap();
        client.write_file(b"/d/new", &[2; 20_000]).await.unwrap();
        client.sync().await.unwrap();
        ffs.close().await.unwrap();
        drop((client, ffs));
        assert_clean(&rt, &memory).await;
        session(&rt, &memory, Options::default(), async |client| {
            assert!(client.read_file(b"/before").await.unwrap() == [1; 50_000]);
            assert!(client.read_file(b"/d/new").await.unwrap() == [2; 20_000]);
        })
        .await;
    });
}

/// A file whose indirect blocks point to themselves, and so to more blocks than there can be, is removed, or refused,
/// in bounded time; other files are unaffected.
#[test]
fn a_tangled_file_ends() {
    for metadata in [Metadata::Sync, Metadata::Softdep] {
        simulate(1, async |rt| {
            let (_, device) = fresh(&rt, BYTES, &small_groups()).await;
            let mut ino = InodeNo::NONE;
            session(&rt, &device, Options::default(), async |client| {
                client.write_file(b"/other", &vec![2; 50_000]).await.unwrap();
                client.write_file(b"/tangled", &vec![1; 200_000]).await.unwrap();
                ino = inner(client.stat(b"/tangled").await.unwrap().ino).unwrap();
            })
            .await;
            let layout = info(&device).await.unwrap().layout;
            let (block, offset) = layout.inode_place(ino);
            let place = layout.sector(block);
            let mut raw = device.read(place, Buf::zeroed(layout.block_bytes as usize)).await.unwrap();
            let mut inode = Inode::decode(&raw[offset..]).unwrap();
            assert_eq!(inode.size, 200_000);
            let tangle = inode.ib[0];
            (inode.ib, inode.size) = ([tangle; 3], layout.addressable_bytes);
            inode.encode(&mut raw[offset..]);
            device.write(place, raw.freeze(), WriteFlags::NONE).await.unwrap();
            let pointers: Vec<u8> = tangle.0.to_le_bytes().repeat(layout.pointers_per_block as usize);
            device
                .write(layout.sector(tangle), crate::device::Data::from_slice(&pointers), WriteFlags::NONE)
                .await
                .unwrap();
            let options = Options { metadata, ..Options::default() };
            let ffs = mount(rt.clone(), device.clone(), options).await.unwrap();
            let client = Client::new(ffs);
            let (removed, synced) = (client.unlink(b"/tangled").await, client.sync().await);
            let refused = [removed, synced].into_iter().any(|done| matches!(done, Err(FsError::Corrupt { .. })));
            assert!(refused || metadata == Metadata::Sync);
            assert_eq!(client.sync().await, Ok(()));
            assert!(client.read_file(b"/other").await.unwrap() == vec![2; 50_000]);
        });
    }
}

/// A block that is an indirect block of two files, on different levels: one file loses it, with everything that it has
/// counted below, and the other's view of it holds no pointers. Method: the younger file points to the older one's
/// indirect block as to a doubly indirect one.
#[test]
fn a_tree_of_two_files() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES, &small_groups()).await;
        let mut inos = [0; 2];
        session(&rt, &device, Options::default(), async |client| {
            client.write_file(b"/older", &vec![0xff; 200_000]).await.unwrap();
            rt.sleep(Nanos::from_secs(2)).await;
            client.write_file(b"/younger", &vec![1; 20_000]).await.unwrap();
            inos = [client.stat(b"/older").await.unwrap().ino.0, client.stat(b"/younger").await.unwrap().ino.0];
        })
        .await;
        let layout = info(&device).await.unwrap().layout;
        let [older, younger] = inos.map(|ino| layout.inode_place(InodeNo(ino as u32)));
        let read =
            async |at: FragNo| device.read(layout.sector(at), Buf::zeroed(layout.block_bytes as usize)).await.unwrap();
        let tree = Inode::decode(&read(older.0).await[older.1..]).unwrap().ib[0];
        let mut raw = read(younger.0).await;
        let mut inode = Inode::decode(&raw[younger.1..]).unwrap();
        inode.ib[1] = tree;
        inode.size = (layout.indirect_first(1) + 40) * u64::from(layout.block_bytes);
        inode.encode(&mut raw[younger.1..]);
        device.write(layout.sector(younger.0), raw.freeze(), WriteFlags::NONE).await.unwrap();

        let repair = FsckOptions { repair: true, ..FsckOptions::default() };
        let found = fsck(&rt, &device, repair).await.expect("mended");
        let lines: Vec<&str> = found.problems.iter().map(|problem| problem.text.as_str()).collect();
        let given_up = format!("inode {}: indirect block {tree} belongs to another inode; released", inos[0]);
        assert!(lines.contains(&given_up.as_str()), "{lines:#?}");
        let miscounted = format!("inode {} says", inos[0]);
        assert!(!lines.iter().any(|line| line.starts_with(&miscounted)), "{lines:#?}");
        session(&rt, &device, Options::default(), async |client| {
            assert!(client.read_file(b"/older").await.unwrap()[..98_304].iter().all(|&byte| byte == 0xff));
        })
        .await;
    });
}

/// Directories that contain each other or themselves, and that no other name leads to: each of their names counts as
/// long as it exists, so that a file with another name keeps its links, and one check repairs everything. Method: names
/// changed on the device to refer to other inodes, or to none.
#[test]
fn directories_in_a_ring() {
    for reconnect in [false, true] {
        simulate(1, async |rt| {
            let (_, device) = fresh(&rt, BYTES, &small_groups()).await;
            let mut inos = BTreeMap::new();
            session(&rt, &device, Options::default(), async |client| {
                for path in ["/a", "/a/b", "/a/b/up", "/own", "/own/self"] {
                    client.mkdir(path.as_bytes()).await.unwrap();
                    inos.insert(path, inner(client.stat(path.as_bytes()).await.unwrap().ino).unwrap());
                }
                client.write_file(b"/a/b/f", &[1; 3000]).await.unwrap();
                client.write_file(b"/a/b/alone", &[2; 3000]).await.unwrap();
                client.link(b"/a/b/f", b"/kept").await.unwrap();
            })
            .await;
            let layout = info(&device).await.unwrap().layout;
            let lead = async |dir: InodeNo, name: &str, to: InodeNo| {
                let (block, offset) = layout.inode_place(dir);
                let bytes = layout.block_bytes as usize;
                let inodes = device.read(layout.sector(block), Buf::zeroed(bytes)).await.unwrap();
                let place = layout.sector(Inode::decode(&inodes[offset..]).unwrap().db[0]);
                let mut chunk = device.read(place, Buf::zeroed(DIR_CHUNK_BYTES)).await.unwrap();
                let entries = dirents(&chunk).unwrap();
                let at = entries.iter().find(|entry| entry.name == name.as_bytes()).unwrap().offset;
                crate::codec::put_at(&mut chunk, at, to);
                device.write(place, chunk.freeze(), WriteFlags::NONE).await.unwrap();
            };
            lead(inos["/a/b"], "up", inos["/a"]).await;
            lead(inos["/own"], "self", inos["/own"]).await;
            lead(ROOT_INO, "a", InodeNo::NONE).await;
            lead(ROOT_INO, "own", InodeNo::NONE).await;

            let found = fsck(&rt, &device, FsckOptions { repair: true, reconnect, ..FsckOptions::default() }).await;
            let found = found.expect("mended");
            let rings = found.problems.iter().filter(|problem| problem.text.contains("contains itself")).count();
            assert_eq!(rings, 2, "{:#?}", found.problems);
            session(&rt, &device, Options::default(), async |client| {
                assert_eq!(client.read_file(b"/kept").await.unwrap(), [1; 3000]);
                assert_eq!(client.stat(b"/kept").await.unwrap().links, 1 + u32::from(reconnect));
                let alone = format!("/lost+found/#{:08}/b/alone", inos["/a"]);
                assert_eq!(client.read_file(alone.as_bytes()).await.is_ok(), reconnect);
            })
            .await;
        });
    }
}

/// A symbolic link whose target has a zero byte, as no path has, is not read, and not kept by the check, whether it has a name
/// or not.
#[test]
fn targets_with_zero_bytes() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES, &small_groups()).await;
        let (mut inos, mut blocks) = (BTreeMap::new(), BTreeMap::new());
        session(&rt, &device, Options::default(), async |client| {
            for (path, bytes) in [("/long", 300), ("/short", 20), ("/right", 300), ("/lost", 300)] {
                client.symlink(&vec![b'x'; bytes], path.as_bytes()).await.unwrap();
                inos.insert(path, inner(client.stat(path.as_bytes()).await.unwrap().ino).unwrap());
            }
        })
        .await;
        let layout = info(&device).await.unwrap().layout;
        let change = async |at: FragNo, change: &dyn Fn(&mut [u8])| {
            let mut raw = device.read(layout.sector(at), Buf::dirty(layout.frag_bytes as usize)).await.unwrap();
            change(&mut raw);
            device.write(layout.sector(at), raw.freeze(), WriteFlags::NONE).await.unwrap();
        };
        for (&path, &ino) in &inos {
            let (at, offset) = layout.inode_place(ino);
            let at = at + offset as u32 / layout.frag_bytes;
            let within = offset % layout.frag_bytes as usize;
            let raw = device.read(layout.sector(at), Buf::dirty(layout.frag_bytes as usize)).await.unwrap();
            let mut inode = Inode::decode(&raw[within..]).unwrap();
            blocks.insert(path, inode.db[0]);
            if path == "/short" {
                inode.db[1] = FragNo::NONE;
                change(at, &|raw| inode.encode(&mut raw[within..])).await;
            }
        }
        for path in ["/long", "/lost"] {
            change(blocks[path], &|raw| raw[7] = 0).await;
        }
        let root = {
            let ffs =
                mount(rt.clone(), device.clone(), Options { read_only: true, ..Options::default() }).await.unwrap();
            let client = Client::new(ffs.clone());
            for path in ["/long", "/short", "/lost"] {
                let read = client.read_link(path.as_bytes()).await;
                assert!(matches!(read, Err(FsError::Corrupt { .. })), "{path}: {read:?}");
            }
            ffs.step(|state| state.block_at(ROOT_INO, 0)).await.unwrap().unwrap()
        };
        change(root, &|raw| {
            let at =
                dirents(&raw[..DIR_CHUNK_BYTES]).unwrap().iter().find(|entry| entry.name == b"lost").unwrap().offset;
            crate::codec::put_at(raw, at, 0_u32);
        })
        .await;
        let found = fsck(&rt, &device, FsckOptions { repair: true, ..FsckOptions::default() }).await.unwrap();
        let zeroes = found.problems.iter().filter(|problem| problem.text.contains("whose target has a zero byte"));
        assert_eq!(zeroes.count(), 2, "{found:?}");
        session(&rt, &device, Options::default(), async |client| {
            assert_eq!(client.read_dir(b"/").await.unwrap().len(), 1);
            assert_eq!(client.read_link(b"/right").await.unwrap(), [b'x'; 300]);
        })
        .await;
    });
}

/// Aim: a block that cannot be read concerns only the caller that asks for it, also where a cluster is read at once.
/// Method: a file with one such block; requests in order, of several sizes, with a cold cache.
#[test]
fn a_lost_block_is_met_where_it_is() {
    const BLOCKS: u64 = 40;
    let replay = replay("fs::ffs::tests::damage::a_lost_block_is_met_where_it_is");
    for seed in replay.seeds(0..40) {
        simulate(seed, async |rt| {
            let mut rng = Rng::new(seed);
            let (bad, request) = (rng.between(1, BLOCKS - 1), rng.between(1, 6));
            let (_, device) = fresh(&rt, 16 * MIB, &small_groups()).await;
            let fault = FaultDevice::new(&rt, device, seed);
            let ffs = mount(rt.clone(), fault.clone(), Options::default()).await.unwrap();
            let client = Client::new(ffs.clone());
            let block = ffs.state.borrow().layout.block_bytes as usize;
            let content: Vec<u8> = (0..BLOCKS).flat_map(|number| vec![number as u8; block]).collect();
            client.write_file(b"/f", &content).await.unwrap();
            client.fs().drop_caches().await.unwrap();
            let ino = inner(client.stat(b"/f").await.unwrap().ino).unwrap();
            let at = ffs.step(|state| state.block_at(ino, bad)).await.unwrap().unwrap();
            let lost = {
                let layout = &ffs.state.borrow().layout;
                layout.sector(at)..layout.sector(at + 1)
            };
            fault.lose(lost);
            let file = client.open(b"/f", OpenFlags::default()).await.unwrap();
            for first in (0..BLOCKS).step_by(request as usize) {
                let end = (first + request).min(BLOCKS);
                let read = client.read(file, first * block as u64, (end - first) as u32 * block as u32).await;
                let right = &content[first as usize * block..end as usize * block];
                match (first..end).contains(&bad) {
                    true => drop(read.expect_err("a block that cannot be read")),
                    false => {
                        assert!(read.is_ok_and(|read| read == right), "{}", replay.command(seed, None, None, None))
                    }
                }
            }
        });
    }
}

/// A mount that is refused names what no crash explains, not what a crash has left besides.
#[test]
fn a_refused_mount_names_the_damage() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, BYTES, &small_groups()).await;
        let ffs = mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
        let client = Client::new(ffs.clone());
        client.write_file(b"/a", &[1; 5000]).await.unwrap();
        client.write_file(b"/b", &[1; 5000]).await.unwrap();
        client.sync().await.unwrap();
        let mut image = memory.image();
        let left_by_crash = |inode: &mut Inode| inode.blocks += 2;
        let damaged = |inode: &mut Inode| inode.mode = 0o070_644;
        for (path, spoil) in [(b"/a", left_by_crash as fn(&mut Inode)), (b"/b", damaged)] {
            let ino = inner(client.stat(path).await.unwrap().ino).unwrap();
            let layout = &ffs.state.borrow().layout;
            let (at, offset) = layout.inode_place(ino);
            let (place, within) = (layout.sector(at) + offset as u64 / 512, offset % 512);
            let mut raw = [0; 512];
            image.read(place, &mut raw);
            let mut inode = Inode::decode(&raw[within..]).unwrap();
            spoil(&mut inode);
            inode.encode(&mut raw[within..]);
            image.write(place, &raw);
        }
        let left: Device = Rc::new(Memory::from_image(BYTES, image));
        let found = fsck(&rt, &left, FsckOptions::default()).await.unwrap();
        assert_ne!(found.problems[0].cause, Cause::Damage, "{found:?}");
        let damage = found.problems.iter().find(|problem| problem.cause == Cause::Damage).expect("damage");
        let refused = mount(rt.clone(), left, Options::default()).await.err().expect("refused").to_string();
        assert!(refused.contains(&damage.text), "{refused}");
    });
}

/// Numbers near the end of their range, which no single flipped bit makes, are refused and not wrapped around.
#[test]
fn numbers_at_the_end_of_their_range() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES, &small_groups()).await;
        let super::super::Volume { superblock, raw, .. } = find_volume(&device).await.unwrap();
        let far = u32::MAX - 7;
        for (sblkno, cblkno) in [(far, superblock.cblkno), (superblock.sblkno, far), (far, far)] {
            let wrong = Superblock { fpg: far, ncg: 1, sblkno, cblkno, iblkno: 0, ..superblock };
            let laid_out = Layout::new(&wrong, &raw, BYTES).map(drop);
            assert!(matches!(laid_out, Err(FsError::Corrupt { .. })), "{sblkno}, {cblkno}: {laid_out:?}");
        }
        let ffs = mount(rt.clone(), device, Options::default()).await.unwrap();
        let client = Client::new(ffs.clone());
        let file = client.create(b"/f").await.unwrap();
        client.write(file, 2 * 8192, &[1]).await.unwrap();
        let ino = inner(client.stat(b"/f").await.unwrap().ino).unwrap();
        ffs.step(|state| {
            state.inode_mut(ino)?.db[0] = FragNo(u32::MAX);
            Ok(())
        })
        .await
        .unwrap();
        client.write(file, 8192, &[2; 8192]).await.expect("another block is where it was");
        assert!(client.read(file, 8192, 8192).await.unwrap() == vec![2; 8192]);
    });
}
