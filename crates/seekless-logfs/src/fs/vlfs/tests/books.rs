//! Aim: the books balance (B1 to B3, M2, and each address claimed once) after every operation and during it; and the
//! recount notices each wrong book. Method: small programs with a recount after each step, also while batches and
//! copies are in flight; then each book falsified in memory, one at a time.

use super::*;
use crate::fs::logfs::backend::InodeMap;
use crate::testing::volumes::life::LEVELS;
use crate::units::Ino;
use state::{State, Virtual};

const BYTES: u64 = 12 * MIB;

/// No timer runs, and owners are kept.
fn quiet() -> Options {
    let write_back_interval = Nanos::from_secs(1 << 30);
    Options { write_back_interval, compact: CompactUse::Always, ..Options::default() }
}

async fn assert_balanced(fs: &Vlfs, what: &str) {
    assert_eq!(fs.recount().await.expect(what), Vec::<String>::new(), "{what}");
}

/// A volume with everything that is counted: blocks on all levels, reserved space, attributes of all lengths, links,
/// and removed files that are in use; some of it changed and not written yet.
async fn busy(rt: &Rt) -> (Rc<Memory>, Rc<Vlfs>, Client) {
    let (memory, device) = fresh(rt, BYTES).await;
    let fs = open(rt.clone(), device, quiet()).await.expect("mount");
    let client = Client::new(fs.clone());
    let file = client.open_or_create(b"/deep").await.expect("a file");
    for &edge in LEVELS {
        client.write(file, edge - 4096, &[1; 3 * 4096]).await.expect("written");
    }
    client.close(file).await.expect("closed");
    for (name, bytes) in [("short", 10), ("long", 9_000)] {
        let path = format!("/{name}").into_bytes();
        client.write_file(&path, &[2; 50_000]).await.expect("written");
        client.set_xattr(&path, b"user.a", &vec![3; bytes]).await.expect("set");
    }
    let range = FileRange { offset: 100_000, bytes: 100_000 };
    client.fallocate(b"/short", range, AllocateMode::Allocate { keep_size: true }).await.expect("set aside");
    client.write_file(b"/gone", &[4; 30_000]).await.expect("written");
    client.sync().await.expect("synced");
    client.open(b"/gone", OpenFlags::READ_WRITE).await.expect("open");
    client.unlink(b"/gone").await.expect("removed");
    client.truncate(b"/deep", LEVELS[1]).await.expect("cut");
    client.write_file(b"/new", &[5; 20_000]).await.expect("written");
    client.set_xattr(b"/long", b"user.b", &[6; 3_000]).await.expect("set");
    (memory, fs, client)
}

#[test]
fn they_balance_at_every_step() {
    simulate(1, async |rt| {
        let (memory, fs, client) = busy(&rt).await;
        assert_balanced(&fs, "with dirty files").await;
        client.fsync_path(b"/new").await.expect("synced");
        assert_balanced(&fs, "after an fsync").await;
        client.sync().await.expect("synced");
        assert_balanced(&fs, "after a sync").await;
        fs.drop_caches().await.expect("dropped");
        assert_balanced(&fs, "with nothing in memory").await;
        for name in ["/deep", "/short", "/long"] {
            client.unlink(name.as_bytes()).await.expect("removed");
            assert_balanced(&fs, name).await;
        }
        client.sync().await.expect("synced");
        assert_balanced(&fs, "after another").await;
        // Idle work is interrupted while copies, batches and transactions are in progress.
        for number in 0..60u8 {
            client.write_file(format!("/{number}").as_bytes(), &vec![number; 30_000]).await.expect("written");
        }
        client.sync().await.expect("synced");
        for number in (0..60u8).filter(|number| number % 3 != 0) {
            client.unlink(format!("/{number}").as_bytes()).await.expect("removed");
        }
        client.sync().await.expect("synced");
        for _ in 0..200 {
            let (working, until) = (fs.clone(), rt.now() + Nanos::from_secs(1));
            let work = rt.spawn(async move { working.idle(until).await });
            rt.yield_now().await;
            assert_balanced(&fs, "while tracks are emptied").await;
            client.write_file(b"/between", &[7; 5_000]).await.expect("written");
            assert_balanced(&fs, "with a change in between").await;
            work.await.expect("idle work succeeds");
        }
        assert!(fs.state.borrow().log.counters.blocks_moved > 0, "nothing has moved");
        fs.close().await.expect("closed");
        let device: Device = memory;
        volumes::assert_clean(&rt, &Small::default(), &device).await;
    });
}

/// Aim: a slow reader of long attributes writes nothing into the books about a place that they have left since: others
/// may have come there, and giving those back would free what the old list names. Method: one read of a part waits while
/// the attributes are replaced.
#[test]
fn a_slow_reader_of_attributes_leaves_the_books() {
    use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
    use crate::units::Sector;
    const LONG: Nanos = Nanos::from_secs(1000);
    // Short, without a list, or with a list elsewhere.
    for length in [5, 9_100] {
        simulate(1, async |rt| {
            let (_, device) = fresh(&rt, MIB).await;
            let slow = FaultDevice::new(&rt, device, 1);
            let fs = open(rt.clone(), slow.clone(), quiet()).await.expect("mount");
            let client = Client::new(fs.clone());
            client.write_file(b"/a", &[]).await.expect("written");
            client.set_xattr(b"/a", b"user.a", &vec![3; 9_000]).await.expect("set");
            client.sync().await.expect("synced");
            let last = fs.state.borrow().log.parts.values().flatten().last().copied().expect("a part");
            fs.drop_caches().await.expect("dropped");
            let part = Sector(u64::from(last) * format::BLOCK_SECTORS);
            let rule = Rule::new(Kinds::READ, When::Nth(1), Effect::Delay(LONG..=LONG));
            slow.add(rule.within(part..Sector(part.0 + 1)));
            let reader = Client::new(fs.clone());
            let read = rt.spawn(async move { reader.get_xattr(b"/a", b"user.a").await });
            rt.sleep(Nanos::from_secs(1)).await;
            assert_eq!(slow.looked_at(0), 1, "the reader waits");
            let value = vec![4; length];
            client.set_xattr(b"/a", b"user.a", &value).await.expect("set");
            client.sync().await.expect("synced");
            assert!(rt.now() < LONG);
            assert_eq!(read.await.expect("read"), value);
            assert_balanced(&fs, "after the slow reader").await;
            fs.close().await.expect("closed");
        });
    }
}

/// What to falsify in the state, and what the recount must then mention.
type Spoilt = (&'static str, fn(&mut State));

fn a_slot(state: &State) -> (Ino, crate::fs::logfs::tree::InodeSlot) {
    let known = state.inodes.iter().find(|(_, known)| !known.slot.is_none()).expect("an inode that was written");
    (*known.0, known.1.slot)
}

#[test]
fn the_recount_notices_each_wrong_book() {
    const CASES: &[Spoilt] = &[
        ("inodes:", |state| state.inode_count += 1),
        ("bytes set aside:", |state| state.unwritten_bytes -= 4096),
        ("growth of dirty blocks:", |state| state.blocks.growth_bytes += 1),
        ("growth of attributes:", |state| state.dirty_attributes.growth_bytes += 1),
        ("dirty attributes:", |state| state.dirty_attributes.bytes += 512),
        ("bytes freed and in use:", |state| state.freed_pending_bytes += 4096),
        ("bytes freed and in use:", |state| state.freed_pending_bytes -= 4096),
        ("bytes that the next batch frees:", |state| state.log.garbage_bytes += 4096),
        ("bytes under way:", |state| state.log.in_flight_bytes += 512),
        ("orphan", |state| {
            state.log.orphans.insert(Ino(400));
        }),
        ("has no links and is no orphan", |state| state.log.orphans.clear()),
        ("not on the list of those", |state| state.dirty_inodes.clear()),
        ("bytes that inode", |state| {
            let (ino, _) = a_slot(state);
            state.inodes.get_mut(&ino).expect("it is there").inode.bytes_used += 512;
        }),
        ("B3: inodes in cell", |state| {
            let (_, slot) = a_slot(state);
            state.log.count_slot(slot);
        }),
        ("B1: the entry of inode", |state| {
            let (ino, slot) = a_slot(state);
            Virtual::set_imap_entry(state, ino, slot);
        }),
        ("M2: block", |state| {
            let used = (0..3000).find(|&block| state.log.owners.get(block).is_some()).expect("an owner");
            state.log.owners.clear(used);
        }),
        // Freed twice: by the next batch, and by the inode that points to it.
        ("is claimed twice", |state| {
            let used = (0..3000).find(|&block| state.log.owners.get(block).is_some()).expect("an owner");
            state.log.garbage.blocks.push(used);
        }),
        // Not freed at all.
        ("are used and not claimed", |state| {
            let known = state.inodes.values_mut().find(|known| !known.deferred_free.is_empty());
            known.expect("an inode that gives something back").deferred_free.pop();
        }),
        // Freed while something points to it.
        ("is free, and claimed", |state| {
            let used = (0..3000).find(|&block| state.log.owners.get(block).is_some()).expect("an owner");
            let cells = u64::from(state.log.store.layout().cells_per_block);
            let first = state.log.store.layout().first_cell(used);
            (first..first + cells).for_each(|cell| state.log.store.give_cell(cell));
        }),
        ("B1: batches", |state| state.log.next_batch += 1),
        ("L1:", |state| state.log.durable = state.log.applied + 1),
        ("lists of parts of attributes:", |state| {
            state.log.parts.insert(crate::units::Sector(8), vec![1]);
        }),
    ];
    for (what, spoil) in CASES {
        simulate(1, async |rt| {
            let (_, fs, _client) = busy(&rt).await;
            assert_balanced(&fs, what).await;
            spoil(&mut fs.state.borrow_mut());
            let found = fs.recount().await.expect(what);
            assert!(found.iter().any(|problem| problem.contains(what)), "{what}: {found:?}");
        });
    }
}

/// Changes every inode on the device that `which` chooses, and seals it again.
fn change_inodes(memory: &Memory, which: impl Fn(&format::Inode) -> bool, change: impl Fn(&mut format::Inode)) {
    let mut image = memory.image();
    let mut changed = 0;
    for at in (0..BYTES / 512).map(crate::units::Sector) {
        let mut bytes = [0; 512];
        image.read(at, &mut bytes);
        for raw in bytes.chunks_exact_mut(format::Inode::BYTES) {
            if let Some(mut inode) = format::Inode::unseal(raw).filter(&which) {
                change(&mut inode);
                inode.seal_into(raw);
                changed += 1;
            }
        }
        image.write(at, &bytes);
    }
    assert!(changed > 0, "there is no such inode");
    memory.set_image(image);
}

/// Aim: a flag that only symbolic links have means nothing on a file: its blocks are its own, so that none of them is
/// both free and in use. Method: the flag set in a file's inode, sealed again; then a block of the file is overwritten.
#[test]
fn a_file_that_says_it_is_inline() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, BYTES).await;
        session(&rt, &device, async |client| client.write_file(b"/f", &[7; 60_000]).await.expect("written")).await;
        change_inodes(&memory, |inode| inode.size == 60_000, |inode| inode.flags |= format::INODE_INLINE);
        let fs = open(rt.clone(), device.clone(), quiet()).await.expect("mount");
        assert_balanced(&fs, "mounted").await;
        let client = Client::new(fs.clone());
        let file = client.open(b"/f", OpenFlags::READ_WRITE).await.expect("open");
        client.write(file, 4096, &[8; 4096]).await.expect("written");
        client.close(file).await.expect("closed");
        client.sync().await.expect("synced");
        assert_balanced(&fs, "written again").await;
        let read = client.read_file(b"/f").await.expect("read");
        assert!(read[..4096] == [7; 4096] && read[4096..8192] == [8; 4096] && read.len() == 60_000);
        fs.close().await.expect("closed");
        volumes::assert_clean(&rt, &Small::default(), &device).await;
    });
}

/// Aim: link and entry counts that contradict the operation are damage, and are changed no further. Method: links and
/// entries of a directory changed in its inode, sealed again; then one name too many is removed or created.
#[test]
fn counts_in_inodes_that_are_wrong() {
    type Spoil = fn(&mut format::Inode);
    const CASES: &[(&str, Spoil)] = &[
        ("its link count is 2, and it loses a link", |inode| inode.links = 1),
        ("its entry count is 0, and an entry is removed", |inode| inode.special = 1),
        ("its entry count is the largest possible", |inode| inode.special = u32::MAX),
    ];
    for (what, spoil) in CASES {
        simulate(1, async |rt| {
            let (memory, device) = fresh(&rt, BYTES).await;
            session(&rt, &device, async |client| {
                client.mkdir(b"/d").await.expect("made");
                client.mkdir(b"/d/one").await.expect("made");
                client.mkdir(b"/d/two").await.expect("made");
                let owner = SetAttr { uid: Some(77), ..SetAttr::default() };
                client.setattr(b"/d", owner).await.expect("changed");
            })
            .await;
            change_inodes(&memory, |inode| inode.uid == 77, spoil);
            let fs = open(rt.clone(), device.clone(), quiet()).await.expect("mount");
            let client = Client::new(fs.clone());
            let program = async {
                client.mkdir(b"/d/three").await?;
                for name in ["/d/three", "/d/one", "/d/two"] {
                    client.rmdir(name.as_bytes()).await?;
                }
                Ok(())
            };
            match program.await {
                Err(FsError::Corrupt { detail, .. }) => assert_eq!(detail, *what),
                other => panic!("{what}: {other:?}"),
            }
            assert_balanced(&fs, what).await;
            assert!(client.stat(b"/d/two").await.is_ok(), "{what}: a name is gone");
            fs.close().await.expect("closed");
        });
    }
}
