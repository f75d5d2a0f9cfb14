//! Aim: with soft updates no file is ever without a name on the volume because its names change faster than they are
//! written, and failed work is done later. Method: programs on names whose changes follow each other before the first
//! of them is durable; after a power cut anywhere, each file that the program has not removed must have a name. And the
//! books of soft updates after each step.

use super::soft::softly;
use super::*;
use crate::device::WriteFlags;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::cut::Effort;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::fs::ffs::state::inner;
use crate::rng::Rng;
use crate::testing::environment::replay;

const BYTES: u64 = 16 * MIB;

/// A program; and the files, each full of one letter, that must have a name whenever the power fails.
struct Program {
    steps: &'static [&'static str],
    kept: &'static [u8],
}

const PROGRAMS: [Program; 36] = [
    Program { steps: &["rename /p/a /q/x", "rename /q/x /r/y", "rename /r/y /p/a"], kept: b"ABCD" },
    // The new name goes while the old one waits for it; the file has a third.
    Program { steps: &["rename /p/a /q/x", "link /q/x /r/y", "unlink /q/x"], kept: b"ABCD" },
    Program { steps: &["rename /p/a /q/x", "link /q/x /r/y", "rename /q/b /q/x"], kept: b"ABCD" },
    Program { steps: &["rename /p/a /q/x", "rename /q/b /q/x"], kept: b"BCD" },
    // Moved in the old way, with link and unlink.
    Program { steps: &["link /p/a /r/y", "unlink /p/a"], kept: b"ABCD" },
    Program { steps: &["link /p/a /r/y", "rename /q/b /p/a"], kept: b"ABCD" },
    // A directory moves on before its `..` is written.
    Program { steps: &["rename /p/d /q/d", "rename /q/d /r/d"], kept: b"ABCD" },
    Program {
        steps: &["rename /p/d /q/d", "rename /q/d /p/d", "rename /p/d /r/e", "rename /r/e/in /q/in"],
        kept: b"ABCD",
    },
    // The new name makes its directory grow.
    Program { steps: &["rename /p/a /r/new"], kept: b"ABCD" },
    // A directory is removed whose old name is still on the volume, with its `..`.
    Program { steps: &["rename /p/g /p/h", "rmdir /p/h"], kept: b"ABCD" },
    Program { steps: &["rename /p/g /q/h", "rmdir /q/h"], kept: b"ABCD" },
    Program { steps: &["rename /p/g /q/k", "rmdir /q/k"], kept: b"ABCD" },
    Program { steps: &["rename /p/g /p/h", "rename /p/h /q/h", "rmdir /q/h"], kept: b"ABCD" },
    Program { steps: &["rename /p/g /q/k", "rename /p/d /q/k"], kept: b"ABCD" },
    // What is left of the old name changes before the new one is written.
    Program { steps: &["leave /p/a /q/x", "rename /r/c /p/a"], kept: b"ABCD" },
    Program { steps: &["leave /p/a /q/x", "unlink /p/a"], kept: b"ABCD" },
    Program { steps: &["leave /p/a /q/x", "rename /p/a /r/w", "unlink /r/w"], kept: b"ABCD" },
    Program { steps: &["leave /p/a /q/x", "leave /q/x /p/a", "leave /p/a /q/x"], kept: b"ABCD" },
    // A directory is removed whose old name is not a whiteout on the volume yet, or not another directory's.
    Program { steps: &["leave /p/g /q/x", "rmdir /q/x"], kept: b"ABCD" },
    Program { steps: &["leave /p/g /q/x", "rename /p/d /q/x"], kept: b"ABCD" },
    Program { steps: &["exchange /p/g /p/d", "rmdir /p/d", "rename /p/g /p/d"], kept: b"ABCD" },
    // Of two names that are exchanged in one block, one goes before the other is written.
    Program { steps: &["mkdir /p/n", "exchange /p/n /p/a", "rmdir /p/a"], kept: b"ABCD" },
    Program { steps: &["mkdir /p/n", "exchange /p/n /p/a", "unlink /p/n"], kept: b"BCD" },
    Program { steps: &["exchange /p/d /p/a", "unlink /p/d"], kept: b"BCD" },
    Program { steps: &["exchange /p/d /p/a", "rename /q/b /p/d"], kept: b"BCD" },
    Program { steps: &["make /p/n", "exchange /p/n /p/a", "unlink /p/a"], kept: b"ABCD" },
    Program { steps: &["rename /p/g /p/h", "exchange /p/h /p/a", "rmdir /p/a"], kept: b"ABCD" },
    // A new directory gets another one above it.
    Program { steps: &["mkdir /p/n", "rename /p/n /q/n"], kept: b"ABCD" },
    Program { steps: &["mkdir /p/n", "make /p/n/f", "rename /p/n /q/k"], kept: b"ABCD" },
    Program { steps: &["mkdir /p/d/n", "exchange /p/d/n /q/b"], kept: b"ACD" },
    Program { steps: &["make /p/n", "exchange /q/k /p/n"], kept: b"ABCD" },
    // So do directories that are exchanged.
    Program { steps: &["exchange /p/d /q/b", "make /q/b/n"], kept: b"ACD" },
    Program { steps: &["exchange /q/b /p/d", "rename /q/b /r/d"], kept: b"ACD" },
    Program { steps: &["exchange /p/d /q/k", "rmdir /p/d"], kept: b"ABCD" },
    Program { steps: &["exchange /p/g /q/b", "rmdir /q/b", "unlink /p/g"], kept: b"ACD" },
    // Of two that are exchanged, a cut can leave one with both names.
    Program { steps: &["rename /p/a /q/x", "exchange /q/x /r/c", "unlink /r/c", "leave /q/x /r/c"], kept: b"BD" },
];

async fn apply(client: &Client, step: &str) {
    let words: Vec<&[u8]> = step.split(' ').map(str::as_bytes).collect();
    let done = match words[..] {
        [b"rename", from, to] => client.rename(from, to, RenameMode::Replace).await,
        [b"exchange", from, to] => client.rename(from, to, RenameMode::Exchange).await,
        [b"leave", from, to] => client.rename(from, to, RenameMode::Whiteout { replace: true, uid: 0, gid: 0 }).await,
        [b"link", from, to] => client.link(from, to).await,
        [b"make", path] => client.write_file(path, b"").await,
        [b"mkdir", path] => client.mkdir(path).await.map(drop),
        [b"unlink", path] => client.unlink(path).await,
        [b"rmdir", path] => client.rmdir(path).await,
        _ => panic!("not a step: {step}"),
    };
    done.unwrap_or_else(|error| panic!("{step}: {error}"));
}

/// The letters of all files below `path`.
async fn letters(client: &Client, path: String, found: &mut Vec<u8>) {
    for entry in client.read_dir(path.as_bytes()).await.expect("it can be listed") {
        let below = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
        match entry.kind {
            FileKind::Directory => Box::pin(letters(client, below, found)).await,
            FileKind::Regular => {
                let bytes = client.read_file(below.as_bytes()).await.expect("it can be read");
                let letter = bytes.first().copied().unwrap_or(b'0');
                assert!(bytes.is_empty() || bytes == vec![letter; 5000], "{below} has {} bytes", bytes.len());
                found.push(letter);
            }
            _ => {}
        }
    }
}

/// Creates as many names in a directory as fit before it has to grow.
async fn fill_to_the_edge(client: &Client, directory: &str) {
    let names = client.read_dir(directory.as_bytes()).await.unwrap().len();
    client.mkdir(b"/twin").await.unwrap();
    let size = async || client.stat(b"/twin").await.unwrap().size;
    let (begun, mut room) = (size().await, 0);
    while size().await == begun {
        client.symlink(b"x", format!("/twin/{room:03}").as_bytes()).await.unwrap();
        room += 1;
    }
    for number in names..room - 1 {
        client.symlink(b"x", format!("{directory}/{number:03}").as_bytes()).await.unwrap();
    }
}

#[test]
fn names_that_change_again() {
    const BYTES: u64 = 6 * MIB;
    for seed in replay("fs::ffs::tests::order::names_that_change_again").seeds(0..2) {
        for (number, program) in PROGRAMS.iter().enumerate() {
            simulate(seed, async |rt| {
                let recording = CrashOptions { seed, ..CrashOptions::volatile(BYTES) };
                let device = CrashDevice::new(&rt, Image::default(), recording);
                mkfs(&rt, &(device.clone() as Device), &small_groups()).await.unwrap();
                let update_interval = Nanos::from_millis([3, 30_000][(seed + seed / 2) as usize % 2]);
                let options = Options { update_interval, ..softly() };
                let ffs = mount(rt.clone(), device.clone(), options).await.unwrap();
                let client = Client::new(ffs.clone());
                for directory in ["/p", "/q", "/r", "/p/d", "/p/g", "/q/k"] {
                    client.mkdir(directory.as_bytes()).await.unwrap();
                }
                for (path, letter) in [("/p/a", b'A'), ("/q/b", b'B'), ("/r/c", b'C'), ("/p/d/in", b'D')] {
                    client.write_file(path.as_bytes(), &[letter; 5000]).await.unwrap();
                }
                fill_to_the_edge(&client, "/r").await;
                client.sync().await.unwrap();
                let begun = device.position();
                let mut rng = Rng::new(seed);
                for step in program.steps {
                    apply(&client, step).await;
                    assert_eq!(client.fs().check().await.unwrap(), Vec::<String>::new(), "seed {seed}, {step}");
                    if seed % 2 == 1 {
                        rt.sleep(Nanos::from_millis(rng.below(4))).await;
                    }
                }
                client.sync().await.unwrap();
                assert_eq!(client.fs().check().await.unwrap(), Vec::<String>::new(), "seed {seed}");
                let log = device.log();
                for position in log.positions().into_iter().filter(|&position| position >= begun) {
                    let cut = log.cut(position);
                    for choice in cut.choices(&Effort::SAMPLED, seed) {
                        let left: Device = Rc::new(Memory::from_image(BYTES, cut.image(&choice)));
                        let where_cut = format!("seed {seed}, program {number}, cut {position}:{choice:?}");
                        let mend = FsckOptions { repair: true, reconnect: false, ..FsckOptions::default() };
                        let found = fsck(&rt, &left, mend).await.unwrap();
                        let harm = found.problems.iter().find(|problem| problem.cause != Cause::Leak);
                        assert!(harm.is_none(), "{where_cut}: {harm:?}");
                        let mended = mount(rt.clone(), left, Options::default()).await.unwrap();
                        let (client, mut found) = (Client::new(mended.clone()), Vec::new());
                        for directory in ["/p", "/q", "/r"] {
                            letters(&client, directory.into(), &mut found).await;
                        }
                        let lost: Vec<_> = program.kept.iter().filter(|letter| !found.contains(letter)).collect();
                        assert!(lost.is_empty(), "{where_cut}: {lost:?} have no names");
                        mended.close().await.unwrap();
                    }
                }
                ffs.close().await.unwrap();
                assert_clean(&rt, &(device as Device)).await;
            });
        }
    }
}

/// A name that has moved to another block of its directory is replaced before the old one is gone from the volume: it
/// never exists twice. Method: every block but the one that has the old one is written.
#[test]
fn a_name_that_is_replaced_in_another_block() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, BYTES, &small_groups()).await;
        let options = Options { metadata: Metadata::Softdep, ..Options::default() };
        let ffs = mount(rt.clone(), device.clone(), options).await.unwrap();
        let client = Client::new(ffs.clone());
        client.mkdir(b"/d").await.unwrap();
        // A chunk has one of these names, and a block 16 chunks.
        let name = |number| format!("/d/{number:-<250}").into_bytes();
        for number in 0..18 {
            client.write_file(&name(number), &[1; 10]).await.unwrap();
        }
        client.write_file(b"/new", &[2; 10]).await.unwrap();
        client.sync().await.unwrap();
        client.unlink(&name(0)).await.unwrap();
        for number in [18, 0] {
            client.write_file(&name(number), &[3; 10]).await.unwrap();
        }
        client.rename(b"/new", &name(0), RenameMode::Replace).await.unwrap();
        let dir = inner(client.stat(b"/d").await.unwrap().ino).unwrap();
        let first = ffs.step(|state| state.block_at(dir, 0)).await.unwrap().unwrap();
        for round in 0..6 {
            let inodes = ffs.state.borrow().dirty_inodes();
            for ino in inodes {
                ffs.step(|state| state.update_inode(ino).map(drop)).await.unwrap();
            }
            let dirty = ffs.state.borrow().cache.dirty_until(u64::MAX);
            for at in dirty.into_iter().filter(|&at| at != first) {
                ffs.write_now(at).await.unwrap();
            }
            ffs.run_jobs().await.unwrap();
            let left: Device = Rc::new(Memory::from_image(BYTES, memory.image()));
            let found = fsck(&rt, &left, FsckOptions { reconnect: false, ..FsckOptions::default() }).await.unwrap();
            let harm = found.problems.iter().find(|problem| problem.cause != Cause::Leak);
            assert!(harm.is_none(), "round {round}: {harm:?}");
        }
        client.sync().await.unwrap();
        assert_eq!(client.read_file(&name(0)).await, Ok(vec![2; 10]));
        ffs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}

/// A directory and a file are exchanged in one block, and one of the two is removed: the other one has a name. Method:
/// the block is written alone, before any inode.
#[test]
fn one_of_two_that_were_exchanged() {
    let programs: [(&[&str], u8); 2] = [
        (&["mkdir /p/n", "exchange /p/n /p/a", "rmdir /p/a"], b'A'),
        (&["exchange /p/old /p/a", "unlink /p/old"], b'I'),
    ];
    for (steps, kept) in programs {
        simulate(1, async |rt| {
            let (memory, device) = fresh(&rt, BYTES, &small_groups()).await;
            let options = Options { metadata: Metadata::Softdep, ..Options::default() };
            let ffs = mount(rt.clone(), device.clone(), options).await.unwrap();
            let client = Client::new(ffs.clone());
            client.mkdir(b"/p").await.unwrap();
            client.mkdir(b"/p/old").await.unwrap();
            client.write_file(b"/p/old/in", &[b'I'; 5000]).await.unwrap();
            client.write_file(b"/p/a", &[b'A'; 5000]).await.unwrap();
            client.sync().await.unwrap();
            for step in steps {
                apply(&client, step).await;
            }
            let dir = inner(client.stat(b"/p").await.unwrap().ino).unwrap();
            let block = ffs.step(|state| state.block_at(dir, 0)).await.unwrap().unwrap();
            ffs.write_now(block).await.unwrap();
            let left: Device = Rc::new(Memory::from_image(BYTES, memory.image()));
            let mend = FsckOptions { repair: true, reconnect: false, ..FsckOptions::default() };
            fsck(&rt, &left, mend).await.unwrap();
            let mended = mount(rt.clone(), left, Options::default()).await.unwrap();
            let mut found = Vec::new();
            letters(&Client::new(mended), "/p".into(), &mut found).await;
            assert!(found.contains(&kept), "{steps:?}: {found:?} have names");
            ffs.close().await.unwrap();
            assert_clean(&rt, &device).await;
        });
    }
}

/// While blocks that jobs need are unreadable, a sync reports that each time, no task waits indefinitely, and
/// everything else is written. When they are readable again, all of it is done. Method: an old name that has to be
/// removed from its block, and a file to be freed; the block and the groups are unreadable, or everything is.
#[test]
fn jobs_that_fail_are_done_later() {
    for everywhere in [false, true] {
        simulate(1, async |rt| {
            let (memory, device) = fresh(&rt, BYTES, &small_groups()).await;
            let options = Options { metadata: Metadata::Softdep, ..Options::default() };
            let mut before = None;
            session(&rt, &device, options, async |client| {
                client.mkdir(b"/p").await.unwrap();
                client.mkdir(b"/q").await.unwrap();
                client.write_file(b"/p/moved", &[1; 5000]).await.unwrap();
                client.write_file(b"/changed", &[2; 5000]).await.unwrap();
                client.sync().await.unwrap();
                before = Some(client.fs().statfs().await.unwrap());
                client.write_file(b"/removed", &vec![3; 150_000]).await.unwrap();
            })
            .await;
            let fault = FaultDevice::new(&rt, device.clone(), 1);
            let ffs = mount(rt.clone(), fault.clone(), options).await.unwrap();
            let client = Client::new(ffs.clone());
            let block_of_p = {
                let dir = client.stat(b"/p").await.unwrap().ino;
                ffs.step(|state| state.block_at(inner(dir).unwrap(), 0)).await.unwrap().unwrap()
            };
            client.rename(b"/p/moved", b"/q/moved", RenameMode::Replace).await.unwrap();
            client.unlink(b"/removed").await.unwrap();
            client.setattr(b"/changed", SetAttr { permissions: Some(0o600), ..SetAttr::default() }).await.unwrap();
            ffs.state.borrow_mut().drop_caches();
            let layout = ffs.state.borrow().layout.clone();
            let groups = layout.group_numbers().map(|group| (layout.group_block(group), layout.group_block_frags()));
            for (at, frags) in groups.chain([(block_of_p, 1)]) {
                let sectors = layout.sector(at)..layout.sector(at + frags);
                fault.add(Rule::new(Kinds::READ, When::Always, Effect::Error).within(sectors));
            }
            if everywhere {
                fault.add(Rule::new(Kinds::READ, When::Always, Effect::Error));
            }
            for _ in 0..3 {
                let synced = client.sync().await;
                assert!(matches!(synced, Err(FsError::Device(_))), "{synced:?}");
                // The rest cannot be read to be recounted.
                assert_eq!(ffs.state.borrow().soft_problems(), Vec::<String>::new());
            }
            // Its old name is still in its block.
            assert!(client.create(b"/p/moved").await.is_err());
            rt.sleep(Nanos::from_secs(65)).await;
            if !everywhere {
                let crashed: Device = Rc::new(Memory::from_image(BYTES, memory.image()));
                let left = Client::new(mount(rt.clone(), crashed, Options::default()).await.unwrap());
                assert_eq!(left.read_file(b"/q/moved").await.unwrap(), [1; 5000]);
                assert_eq!(left.stat(b"/changed").await.unwrap().permissions, 0o600);
            }
            fault.clear();
            client.sync().await.unwrap();
            assert_eq!(client.fs().check().await.unwrap(), Vec::<String>::new());
            client.fs().drop_caches().await.unwrap(); // Groups that could not be read are available again.
            assert_eq!(Some(client.fs().statfs().await.unwrap()), before);
            client.write_file(b"/p/moved", &[4; 10]).await.unwrap();
            client.sync().await.unwrap();
            ffs.close().await.unwrap();
            drop((client, ffs));
            assert_clean(&rt, &device).await;
        });
    }
}

/// A file that cannot be read as far as its indirect block is not truncated, and keeps all its blocks; once it can be
/// read, all of its space is freed.
#[test]
fn what_cannot_be_cut_stays() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES, &small_groups()).await;
        let options = Options { metadata: Metadata::Softdep, ..Options::default() };
        let mut before = None;
        session(&rt, &device, options, async |client| {
            before = Some(client.fs().statfs().await.unwrap());
            client.write_file(b"/cut", &vec![3; 200_000]).await.unwrap();
            client.write_file(b"/removed", &vec![4; 200_000]).await.unwrap();
        })
        .await;
        let fault = FaultDevice::new(&rt, device.clone(), 1);
        let ffs = mount(rt.clone(), fault.clone(), options).await.unwrap();
        let client = Client::new(ffs.clone());
        client.stat(b"/cut").await.unwrap();
        client.unlink(b"/removed").await.unwrap();
        fault.add(Rule::new(Kinds::READ, When::Always, Effect::Error));
        assert!(client.truncate(b"/cut", 110_000).await.is_err());
        assert!(client.truncate(b"/cut", 0).await.is_err());
        assert!(client.sync().await.is_err());
        fault.clear();
        assert!(client.read_file(b"/cut").await.unwrap() == vec![3; 200_000]);
        client.truncate(b"/cut", 110_000).await.unwrap();
        client.unlink(b"/cut").await.unwrap();
        client.sync().await.unwrap();
        assert_eq!(Some(client.fs().statfs().await.unwrap()), before);
        ffs.close().await.unwrap();
        drop((client, ffs));
        assert_clean(&rt, &device).await;
    });
}

/// A name that has taken the place of another one on the device, and goes before a flush makes that durable, gives up the
/// links of both. Method: everything but the block is durable; the block is in the device's cache.
#[test]
fn a_name_that_goes_before_it_is_durable() {
    simulate(1, async |rt| {
        let device = CrashDevice::new(&rt, Image::default(), CrashOptions::volatile(BYTES));
        mkfs(&rt, &(device.clone() as Device), &small_groups()).await.unwrap();
        let options =
            Options { metadata: Metadata::Softdep, update_interval: Nanos::from_secs(1 << 20), ..Options::default() };
        let ffs = mount(rt.clone(), device.clone(), options).await.unwrap();
        let client = Client::new(ffs.clone());
        client.mkdir(b"/p").await.unwrap();
        client.mkdir(b"/q").await.unwrap();
        client.sync().await.unwrap();
        let before = client.fs().statfs().await.unwrap();
        client.write_file(b"/p/a", &[b'A'; 5000]).await.unwrap();
        client.write_file(b"/q/b", &[b'B'; 5000]).await.unwrap();
        client.sync().await.unwrap();
        apply(&client, "rename /p/a /q/b").await;
        let block = {
            let dir = inner(client.stat(b"/q").await.unwrap().ino).unwrap();
            ffs.step(|state| state.block_at(dir, 0)).await.unwrap().unwrap()
        };
        for _ in 0..3 {
            let inodes = ffs.state.borrow().dirty_inodes();
            for ino in inodes {
                ffs.step(|state| state.update_inode(ino).map(drop)).await.unwrap();
            }
            let dirty = ffs.state.borrow().cache.dirty_until(u64::MAX);
            for at in dirty.into_iter().filter(|&at| at != block) {
                ffs.write_now(at).await.unwrap();
            }
            ffs.flush().await.unwrap();
        }
        ffs.begin_write(&[block], WriteFlags::default());
        while ffs.state.borrow().cache.is_in_flight(block, 1) {
            rt.sleep(Nanos::from_micros(10)).await;
        }
        apply(&client, "unlink /q/b").await;
        assert_eq!(ffs.state.borrow().soft_problems(), Vec::<String>::new());
        client.sync().await.unwrap();
        assert_eq!(client.fs().check().await.unwrap(), Vec::<String>::new());
        assert_eq!(client.fs().statfs().await.unwrap(), before, "both files are gone");
        ffs.close().await.unwrap();
        assert_clean(&rt, &(device as Device)).await;
    });
}

/// A sync waits for what was changed before it, and not for what others keep changing.
#[test]
fn a_sync_ends_while_others_write() {
    simulate(1, async |rt| {
        let device = FaultDevice::new(&rt, fresh(&rt, BYTES, &small_groups()).await.1, 1);
        const MILLISECOND: Nanos = Nanos::from_micros(1000);
        device.add(Rule::new(Kinds::WRITE, When::Always, Effect::Delay(MILLISECOND..=MILLISECOND)));
        let options = Options { metadata: Metadata::Softdep, ..Options::default() };
        let ffs = mount(rt.clone(), device, options).await.unwrap();
        let client = Client::new(ffs.clone());
        client.mkdir(b"/mine").await.unwrap();
        client.mkdir(b"/other").await.unwrap();
        const CHANGES: u32 = 2_000;
        let made = Rc::new(Cell::new(0));
        let other = rt.spawn({
            let (rt, made, client) = (rt.clone(), made.clone(), Client::new(ffs.clone()));
            async move {
                for number in 0..CHANGES {
                    let path = format!("/other/{}", number % 50).into_bytes();
                    client.write_file(&path, &[1; 3_000]).await.unwrap();
                    if number % 3 == 0 {
                        client.unlink(&path).await.unwrap();
                    }
                    rt.sleep(MILLISECOND).await;
                    made.set(number + 1);
                }
            }
        });
        for round in 0..3 {
            let before = made.get();
            client.write_file(format!("/mine/{round}").as_bytes(), &[2; 9_000]).await.unwrap();
            client.sync().await.unwrap();
            assert!(made.get() - before < CHANGES / 4, "sync {round} took as long as {} changes", made.get() - before);
        }
        other.await;
        ffs.close().await.unwrap();
    });
}
