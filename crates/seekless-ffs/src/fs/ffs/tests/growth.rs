//! Aim: a file that grows or shrinks leaves books that balance, also when it cannot grow as far as it should; one file
//! can use all the space that `df` reports; and a volume whose books did not balance is checked before it is used
//! again. Method: every way of handling metadata, small blocks so that files soon need indirect ones, and storage below
//! that runs out of space at each write in turn.

use super::*;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::cut::Effort;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::fs::ffs::soft::SyncScope;
use crate::fs::ffs::state::inner;

const BYTES: u64 = 16 * MIB;

const MODES: [Metadata; 3] = [Metadata::Sync, Metadata::Async, Metadata::Softdep];

fn small_blocks() -> MkfsOptions {
    MkfsOptions { block_bytes: 4096, frag_bytes: 512, ..small_groups() }
}

/// Indirect blocks of a growth that fails do not stay behind the end of the file. The storage below has no space from each
/// write on in turn; there is space again later.
#[test]
fn a_growth_that_fails_leaves_nothing() {
    const DIRECT_BYTES: u64 = 12 * 4096;
    const SINGLY_BYTES: u64 = (12 + 1024) * 4096;
    for metadata in MODES {
        let mut failures = 0;
        for (offset, nth) in
            [DIRECT_BYTES, SINGLY_BYTES].into_iter().flat_map(|offset| (1..8).map(move |nth| (offset, nth)))
        {
            for way in 0..3 {
                simulate(nth, async |rt| {
                    let what = format!("{metadata:?}, {offset}, write {nth}, way {way}");
                    let (_, device) = fresh(&rt, BYTES, &small_blocks()).await;
                    let fault = FaultDevice::new(&rt, device.clone(), 1);
                    let options = Options { metadata, ..Options::default() };
                    let ffs = mount(rt.clone(), fault.clone(), options).await.unwrap();
                    let client = Client::new(ffs.clone());
                    let before = client.fs().statfs().await.unwrap().blocks_free;
                    let file = client.create(b"/f").await.unwrap();
                    client.write(file, 0, &[1; 1000]).await.unwrap();
                    client.sync().await.unwrap();
                    fault.add(Rule::new(Kinds::WRITE, When::From(nth), Effect::NoSpace));
                    let grown = match way {
                        0 => client.write(file, offset, &[2; 9000]).await,
                        1 => client.truncate(b"/f", offset + 9000).await,
                        _ => {
                            let range = FileRange { offset, bytes: 9000 };
                            client.fallocate(b"/f", range, AllocateMode::Allocate { keep_size: false }).await
                        }
                    };
                    failures += u32::from(grown.is_err());
                    fault.clear();
                    assert_eq!(ffs.check().await.unwrap(), Vec::<String>::new(), "{what}");
                    client.sync().await.unwrap();
                    client.close(file).await.unwrap();
                    let crashed = fsck(&rt, &device, FsckOptions::default()).await.unwrap();
                    assert_eq!(crashed.problems, Vec::new(), "{what}");
                    client.unlink(b"/f").await.unwrap();
                    client.sync().await.unwrap();
                    assert_eq!(client.fs().statfs().await.unwrap().blocks_free, before, "{what}");
                    ffs.close().await.unwrap();
                    assert_clean(&rt, &device).await;
                });
            }
        }
        assert!(failures > 0 || metadata != Metadata::Sync, "{metadata:?}: {failures} growths failed");
    }
}

/// As many bytes as `df` reports can be allocated for a new file, and written then.
#[test]
fn one_file_gets_what_df_says() {
    for metadata in MODES {
        for (mib, files, mkfs) in
            [(6, 0, small_blocks()), (16, 30, small_blocks()), (16, 7, small_groups()), (40, 60, small_groups())]
        {
            simulate(1, async |rt| {
                let (_, device) = fresh(&rt, mib * MIB, &mkfs).await;
                session(&rt, &device, Options { metadata, ..Options::default() }, async |client| {
                    for file in 0..files {
                        let name = format!("/f{file}");
                        client.write_file(name.as_bytes(), &vec![1; 1_000 + 3_000 * file]).await.unwrap();
                    }
                    for file in (0..files).step_by(3) {
                        client.unlink(format!("/f{file}").as_bytes()).await.unwrap();
                    }
                    client.sync().await.unwrap();
                    let space = client.fs().statfs().await.unwrap();
                    assert!(space.blocks_available <= space.blocks_free && space.blocks_available > space.blocks / 2);
                    let bytes = space.blocks_available * u64::from(space.block_bytes);
                    let what = format!("{metadata:?}, {mib} MiB, {files} files: {bytes} bytes");
                    let file = client.create(b"/new").await.unwrap();
                    let range = FileRange { offset: 0, bytes };
                    let mode = AllocateMode::Allocate { keep_size: false };
                    client.fallocate(b"/new", range, mode).await.unwrap_or_else(|error| panic!("{what}: {error}"));
                    for offset in (0..bytes).step_by(65_536) {
                        let piece = vec![2; 65_536.min(bytes - offset) as usize];
                        client.write(file, offset, &piece).await.unwrap_or_else(|error| panic!("{what}: {error}"));
                    }
                    client.fsync(file).await.unwrap();
                    client.close(file).await.unwrap();
                })
                .await;
            });
        }
    }
}

/// A count of blocks that would become negative is not clamped: the volume reports it, and is checked at the next
/// mount.
#[test]
fn a_wrong_count_leaves_the_volume_to_be_checked() {
    for metadata in MODES {
        simulate(1, async |rt| {
            let (_, device) = fresh(&rt, BYTES, &small_groups()).await;
            let options = Options { metadata, ..Options::default() };
            let ffs = mount(rt.clone(), device.clone(), options).await.unwrap();
            let client = Client::new(ffs.clone());
            client.write_file(b"/f", &[1; 90_000]).await.unwrap();
            client.sync().await.unwrap();
            let ino = inner(client.stat(b"/f").await.unwrap().ino).unwrap();
            ffs.step(|state| {
                state.inode_mut(ino)?.blocks = 2;
                Ok(())
            })
            .await
            .unwrap();
            assert_eq!(ffs.warnings(), Vec::<String>::new());
            client.truncate(b"/f", 40_000).await.unwrap();
            assert_eq!(ffs.warnings().len(), 1);
            ffs.close().await.unwrap();
            assert!(!info(&device).await.unwrap().clean);
            session(&rt, &device, options, async |client| {
                assert!(client.read_file(b"/f").await.unwrap() == [1; 40_000]);
            })
            .await;
        });
    }
}

/// A directory has been moved and has both names, of which the new one is marked. Wherever the repair is cut, the next one
/// keeps the new name.
#[test]
fn a_cut_repair_keeps_the_new_name() {
    for seed in 0..4 {
        simulate(seed, async |rt| {
            let (memory, device) = fresh(&rt, BYTES, &small_groups()).await;
            let options = Options { metadata: Metadata::Softdep, ..Options::default() };
            let ffs = mount(rt.clone(), device.clone(), options).await.unwrap();
            let client = Client::new(ffs.clone());
            for directory in ["/p", "/q", "/p/d", "/q/e"] {
                client.mkdir(directory.as_bytes()).await.unwrap();
            }
            client.write_file(b"/p/d/f", &[1; 5000]).await.unwrap();
            client.write_file(b"/q/e/f", &[2; 5000]).await.unwrap();
            client.sync().await.unwrap();
            // In both directions, because the repair goes through directories in one.
            client.rename(b"/p/d", b"/q/d", RenameMode::Replace).await.unwrap();
            client.rename(b"/q/e", b"/p/e", RenameMode::Replace).await.unwrap();
            ffs.sync_soft(SyncScope::Update).await.unwrap();
            let recording = CrashOptions { seed, ..CrashOptions::volatile(BYTES) };
            let crashed = CrashDevice::new(&rt, memory.image(), recording);
            let repair = FsckOptions { repair: true, only_after_crash: true, ..FsckOptions::default() };
            let found = fsck(&rt, &(crashed.clone() as Device), repair).await.unwrap();
            let settled = found.problems.iter().filter(|problem| problem.text.contains("marked as moved")).count();
            assert_eq!(settled, 2, "{found:?}");
            let log = crashed.log();
            let mut states = 0;
            for position in log.positions() {
                let cut = log.cut(position);
                for choice in cut.choices(&Effort::SAMPLED, seed) {
                    states += 1;
                    let left: Device = Rc::new(Memory::from_image(BYTES, cut.image(&choice)));
                    let what = cut.to_text(&choice);
                    let mended = mount(rt.clone(), left.clone(), options).await.unwrap();
                    let found = Client::new(mended.clone());
                    assert!(found.read_file(b"/q/d/f").await == Ok(vec![1; 5000]), "{what}");
                    assert!(found.read_file(b"/p/e/f").await == Ok(vec![2; 5000]), "{what}");
                    assert!(found.stat(b"/p/d").await.is_err() && found.stat(b"/q/e").await.is_err(), "{what}");
                    mended.close().await.unwrap();
                    assert_clean(&rt, &left).await;
                }
            }
            assert!(states > 20, "{states} states");
        });
    }
}

/// A file that takes most of the volume for itself counts what it has once: others get what is left at every moment.
#[test]
fn others_write_during_a_large_allocation() {
    const LARGE: u64 = 38 * MIB;
    for metadata in MODES {
        simulate(1, async |rt| {
            let (_, device) = fresh(&rt, 64 * MIB, &small_groups()).await;
            let fault = FaultDevice::new(&rt, device.clone(), 1);
            let ffs = mount(rt.clone(), fault.clone(), Options { metadata, ..Options::default() }).await.unwrap();
            let client = Client::new(ffs.clone());
            let time = Nanos::from_millis(2);
            fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::Delay(time..=time)));
            client.write_file(b"/large", b"").await.unwrap();
            let allocating = {
                let client = Client::new(ffs.clone());
                let range = FileRange { offset: 0, bytes: LARGE };
                rt.spawn(async move {
                    client.fallocate(b"/large", range, AllocateMode::Allocate { keep_size: false }).await
                })
            };
            let (mut number, mut late) = (0, 0);
            while !allocating.is_finished() {
                client.write_file(format!("/f{number}").as_bytes(), &[2; 8192]).await.unwrap();
                late += {
                    let state = ffs.state.borrow();
                    let free = state.totals.nbfree * i64::from(state.layout.block_bytes);
                    u32::from(free < 30 * MIB as i64 && state.promised_blocks > 0)
                };
                number += 1;
                rt.sleep(Nanos::from_millis(1)).await;
            }
            allocating.await.unwrap();
            assert!(late > 0, "{metadata:?}: all {number} files were early");
            assert_eq!(ffs.state.borrow().promised_blocks, 0, "{metadata:?}");
            fault.clear();
            ffs.close().await.unwrap();
            assert_clean(&rt, &device).await;
        });
    }
}
