//! Aim: no state after a power cut is called damage, since a mount would refuse the volume: neither the state left by
//! an operation, nor the one left when its repair is cut in turn. Method: small programs of rare operations, each cut
//! everywhere.

use super::crash::BYTES;
use super::*;
use crate::device::WriteFlags;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::cut::{CrashLog, Effort};
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::fs::ffs::state::inner;
use crate::rng::Rng;
use crate::testing::Replay;
use crate::testing::environment::replay;

fn here(test: &str) -> Replay {
    replay(&format!("fs::ffs::tests::cuts::{test}"))
}

/// Examines what each cut of `log` from `begun` on leaves. Returns these states.
fn look(log: &CrashLog, begun: usize, seed: u64, what: &str) -> Vec<Image> {
    let mut states = Vec::new();
    for position in log.positions().into_iter().filter(|&position| position >= begun) {
        let cut = log.cut(position);
        for choice in cut.choices(&Effort::SAMPLED, seed) {
            let image = cut.image(&choice);
            let left: Device = Rc::new(Memory::from_image(BYTES, image.clone()));
            let found = simulate(seed, async |rt| fsck(&rt, &left, FsckOptions::default()).await);
            let found = found.unwrap_or_else(|error| panic!("{what}, {}: {error}", cut.to_text(&choice)));
            let damage = found.problems.iter().find(|problem| problem.cause == Cause::Damage);
            assert!(damage.is_none(), "{what}, {}: {damage:?}", cut.to_text(&choice));
            states.push(image);
        }
    }
    states
}

/// Cuts `program` everywhere, and some of the repairs of what is left. `setup` is synced before.
fn only_crashes(
    replay: &Replay,
    options: Options,
    setup: impl AsyncFn(&Client),
    program: impl AsyncFn(&Rt, &Ffs, &Client),
) {
    for seed in replay.seeds(0..3) {
        let device = super::crash::devices()[seed as usize % 3].clone();
        let again = replay.command(seed, None, None, None);
        let (log, begun) = simulate(seed, async |rt| {
            let recording = CrashOptions { seed, record: true, ..device.clone() };
            let device = CrashDevice::new(&rt, Image::default(), recording);
            mkfs(&rt, &(device.clone() as Device), &small_groups()).await.unwrap();
            let ffs = mount(rt.clone(), device.clone(), options).await.unwrap();
            let client = Client::new(ffs.clone());
            setup(&client).await;
            client.sync().await.unwrap();
            let begun = device.position();
            program(&rt, &ffs, &client).await;
            (device.log(), begun)
        });
        let left = look(&log, begun, seed, &again);
        assert!(left.len() > 20, "{again}: {} states", left.len());
        let mut rng = Rng::new(seed);
        for _ in 0..replay.soak.times(12) {
            let image = rng.pick(&left).clone();
            let repaired = simulate(seed, async |rt| {
                let recording = CrashOptions { seed, record: true, ..device.clone() };
                let device = CrashDevice::new(&rt, image.clone(), recording);
                let options = FsckOptions {
                    repair: true,
                    reconnect: rng.chance(1, 2),
                    only_after_crash: true,
                    trust_order: false,
                };
                fsck(&rt, &(device.clone() as Device), options).await.unwrap();
                device.log()
            });
            look(&repaired, 0, seed, &format!("{again}, in the repair"));
        }
    }
}

fn counter(ffs: &Ffs, name: &str) -> u64 {
    ffs.counters().into_iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| count)
}

/// A directory gets another chunk, for which its tail has to move. The moved tail has that chunk before it has its
/// first entry.
#[test]
fn a_directory_whose_tail_moves() {
    let name = |index: usize| format!("/d/{index}{}", "n".repeat(200));
    let options = Options { update_interval: Nanos::from_millis(3), ..Options::default() };
    only_crashes(
        &here("a_directory_whose_tail_moves"),
        options,
        async |client| {
            client.mkdir(b"/d").await.unwrap();
            // It takes the space behind the directory.
            client.write_file(b"/d/neighbour", &[2; 1000]).await.unwrap();
        },
        async |_, ffs, client| {
            let before = counter(ffs, "tails_moved");
            for index in 0..12 {
                client.create(name(index).as_bytes()).await.unwrap();
            }
            assert!(counter(ffs, "tails_moved") > before, "the tail had to move");
        },
    );
}

/// The repair creates `/lost+found` and reconnects orphans there. Wherever that is cut, the next repair continues, and
/// nothing is lost.
#[test]
fn a_repair_that_reconnects() {
    let replay = here("a_repair_that_reconnects");
    for seed in replay.seeds(0..3) {
        let again = replay.command(seed, None, None, None);
        let log = simulate(seed, async |rt| {
            let recording = CrashOptions { seed, record: true, ..super::crash::devices()[seed as usize % 3].clone() };
            let device = CrashDevice::new(&rt, Image::default(), recording);
            let plain: Device = device.clone();
            mkfs(&rt, &plain, &small_groups()).await.unwrap();
            // Both places that the new directory must not take: an inode and a block that the repair frees.
            let ffs = mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
            let client = Client::new(ffs.clone());
            client.mkdir(b"/freed").await.unwrap();
            client.mkdir(b"/d").await.unwrap();
            client.mkdir(b"/d/below").await.unwrap();
            client.write_file(b"/f", &[1; 5000]).await.unwrap();
            client.write_file(b"/d/below/g", &[2; 5000]).await.unwrap();
            let root = ffs.step(|state| state.block_at(ROOT_INO, 0)).await.unwrap().unwrap();
            let sector = ffs.state.borrow().layout.sector(root);
            ffs.close().await.unwrap();
            // The names go, and the volume says that it was not closed.
            let mut bytes = plain.read(sector, Buf::zeroed(512)).await.unwrap();
            let entries: Vec<_> = dirents(&bytes).unwrap().iter().skip(2).map(|entry| entry.offset).collect();
            assert_eq!(entries.len(), 3);
            for offset in entries {
                crate::codec::put_at(&mut bytes, offset, 0_u32);
            }
            plain.write(sector, bytes.freeze(), WriteFlags::NONE).await.unwrap();
            plain.flush().await.unwrap();
            device.log()
        });
        let whole = log.cut(log.positions().last().copied().unwrap()).choices(&Effort::SAMPLED, seed);
        let before = log.cut(log.positions().last().copied().unwrap()).image(&whole[0]);
        let (repaired, problems) = simulate(seed, async |rt| {
            let recording = CrashOptions { seed, record: true, ..super::crash::devices()[seed as usize % 3].clone() };
            let device = CrashDevice::new(&rt, before.clone(), recording);
            let options = FsckOptions { repair: true, ..FsckOptions::default() };
            let found = fsck(&rt, &(device.clone() as Device), options).await.unwrap();
            (device.log(), found.problems.len())
        });
        let left = look(&repaired, 0, seed, &again);
        assert!(left.len() > 20, "{again}: {} states", left.len());
        for image in left {
            simulate(seed, async |rt| {
                let device: Device = Rc::new(Memory::from_image(BYTES, image.clone()));
                let says_clean = info(&device).await.unwrap().clean;
                let options = FsckOptions { repair: true, ..FsckOptions::default() };
                let found = fsck(&rt, &device, options).await.unwrap();
                let begun = found.problems.len() != problems;
                assert!(
                    !says_clean || !begun || found.is_clean(),
                    "{again}: a mount would not check it, where {found:?}"
                );
                session(&rt, &device, Options::default(), async |client| {
                    let tree = crate::testing::Tree::of(client.fs().clone()).await.unwrap();
                    assert_eq!(tree.problems, Vec::<String>::new(), "{again}");
                    let files = tree.nodes.values().filter(|node| node.kind == FileKind::Regular);
                    assert_eq!(
                        files.filter(|file| file.contents.size() == 5000).count(),
                        2,
                        "{again}: nothing is lost"
                    );
                })
                .await;
            });
        }
    }
}

/// A removal finds no room below for the block with the name, while another block of the directory has a gap: the name
/// stays where it was, and cuts of the next sync find it there.
#[test]
fn a_removal_that_finds_no_room() {
    let replay = here("a_removal_that_finds_no_room");
    let name = |index: usize| format!("/d/{index:02}{}", "n".repeat(200)).into_bytes();
    for seed in replay.seeds(0..3) {
        let again = replay.command(seed, None, None, None);
        let (log, begun) = simulate(seed, async |rt| {
            let recording = CrashOptions { seed, record: true, ..super::crash::devices()[seed as usize % 3].clone() };
            let device = CrashDevice::new(&rt, Image::default(), recording);
            mkfs(&rt, &(device.clone() as Device), &small_groups()).await.unwrap();
            let fault = FaultDevice::new(&rt, device.clone(), 1);
            let ffs = mount(rt.clone(), fault.clone(), Options::default()).await.unwrap();
            let client = Client::new(ffs.clone());
            client.mkdir(b"/d").await.unwrap();
            for index in 0..38 {
                client.create(&name(index)).await.unwrap();
            }
            client.mkdir(&name(38)).await.unwrap();
            client.write_file(&name(39), &[1; 5000]).await.unwrap();
            for index in 3..7 {
                client.unlink(&name(index)).await.unwrap();
            }
            client.sync().await.unwrap();
            let dir = inner(client.stat(b"/d").await.unwrap().ino).unwrap();
            let at = ffs.step(|state| state.block_at(dir, 1)).await.unwrap().expect("a second block");
            let place = {
                let layout = &ffs.state.borrow().layout;
                layout.sector(at)..layout.sector(at + layout.frag)
            };
            let cookies = async || {
                let names = [38, 39].map(|index| name(index)[3..].to_vec());
                ffs.step(|state| Ok([state.find(dir, &names[0])?, state.find(dir, &names[1])?])).await.unwrap()
            };
            let before = cookies().await;
            fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::NoSpace).within(place));
            assert_eq!(client.rmdir(&name(38)).await, Err(FsError::NoSpace));
            assert_eq!(client.unlink(&name(39)).await, Err(FsError::NoSpace));
            assert_eq!(cookies().await, before, "the entries are where they were");
            fault.clear();
            let begun = device.position();
            client.sync().await.unwrap();
            assert_eq!(ffs.check().await.unwrap(), Vec::<String>::new());
            (device.log(), begun)
        });
        for image in look(&log, begun, seed, &again) {
            let device: Device = Rc::new(Memory::from_image(BYTES, image));
            simulate(seed, async |rt| {
                session(&rt, &device, Options::default(), async |client| {
                    assert!(client.read_file(&name(39)).await.unwrap() == [1; 5000], "{again}");
                    assert_eq!(client.stat(&name(38)).await.unwrap().kind, FileKind::Directory, "{again}");
                    assert_eq!(client.read_dir(b"/d").await.unwrap().len(), 36, "{again}");
                })
                .await;
            });
        }
    }
}

/// A symbolic link with a block of its own is created and removed. On the volume it has no target for a while, before
/// it has a name or after.
#[test]
fn long_symbolic_links() {
    let target = |letter: &str| letter.repeat(300).into_bytes();
    for millis in [1, 30_000] {
        let options = Options { update_interval: Nanos::from_millis(millis), ..Options::default() };
        only_crashes(
            &here("long_symbolic_links"),
            options,
            async |client| {
                client.symlink(&target("r"), b"/removed").await.unwrap();
                client.symlink(&target("o"), b"/replaced").await.unwrap();
                client.symlink(b"short", b"/short").await.unwrap();
            },
            async |rt, ffs, client| {
                client.unlink(b"/removed").await.unwrap();
                rt.sleep(Nanos::from_millis(2)).await;
                ffs.state.borrow_mut().drop_caches();
                client.symlink(&target("n"), b"/new").await.unwrap();
                client.rename(b"/new", b"/replaced", RenameMode::Replace).await.unwrap();
                client.unlink(b"/short").await.unwrap();
                rt.sleep(Nanos::from_millis(2)).await;
                client.unlink(b"/replaced").await.unwrap();
                client.sync().await.unwrap();
            },
        );
    }
}

/// A file grows until it needs indirect blocks. Its inode never has one on the volume behind its end: other programs that
/// check FFS clear such a file.
#[test]
fn a_file_that_gets_indirect_blocks() {
    const DIRECT_BYTES: u64 = 12 * 8192;
    const SINGLY_BYTES: u64 = (12 + 2048) * 8192;
    for metadata in [Metadata::Sync, Metadata::Softdep] {
        let options = Options { metadata, update_interval: Nanos::from_micros(200), ..Options::default() };
        only_crashes(
            &here("a_file_that_gets_indirect_blocks"),
            options,
            async |client| {
                client.write_file(b"/f", &vec![1; DIRECT_BYTES as usize]).await.unwrap();
                client.write_file(b"/sparse", &[2; 1000]).await.unwrap();
            },
            async |_, ffs, client| {
                for (path, offset) in [(b"/f".as_slice(), DIRECT_BYTES), (b"/sparse", SINGLY_BYTES)] {
                    ffs.state.borrow_mut().drop_caches();
                    let file = client.open(path, OpenFlags::READ_WRITE).await.unwrap();
                    client.write(file, offset, &[3; 9000]).await.unwrap();
                    client.close(file).await.unwrap();
                }
                client.sync().await.unwrap();
            },
        );
    }
}
