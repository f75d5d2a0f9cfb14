//! Aim: several programs at once lose nothing that was acknowledged, block no other program indefinitely, and leave
//! books that balance. Method: programs drawn from seeds on a device whose requests take time; a power cut right after
//! each acknowledgement, and a recount of everything at the end.

use super::*;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::cut::Effort;
use crate::rng::Rng;
use crate::testing::environment::replay;
use crate::testing::volumes::clients;

const BYTES: u64 = 64 * MIB;

fn softly() -> Options {
    Options { metadata: Metadata::Softdep, ..Options::default() }
}

fn counter(ffs: &Rc<Ffs>, wanted: &str) -> u64 {
    ffs.counters().into_iter().find(|(name, _)| *name == wanted).map_or(0, |(_, value)| value)
}

/// A new volume on a device with a cache that a power cut empties, and whose requests overlap.
async fn slow(rt: &Rt, seed: u64, options: Options) -> (Rc<CrashDevice>, Rc<Ffs>) {
    let recording = CrashOptions { seed, record: false, ..CrashOptions::volatile(BYTES) };
    let device = CrashDevice::new(rt, Default::default(), recording);
    mkfs(rt, &(device.clone() as Device), &small_groups()).await.unwrap();
    let ffs = mount(rt.clone(), device.clone(), options).await.unwrap();
    (device, ffs)
}

/// The same with everything recorded.
async fn recorded(rt: &Rt, options: Options) -> (Rc<CrashDevice>, Rc<Ffs>) {
    let made = CrashDevice::new(rt, Image::default(), CrashOptions::volatile(BYTES));
    mkfs(rt, &(made.clone() as Device), &small_groups()).await.unwrap();
    let device = CrashDevice::new(rt, made.image(), CrashOptions::volatile(BYTES));
    let ffs = mount(rt.clone(), device.clone(), options).await.unwrap();
    (device, ffs)
}

/// Programs that create, move and remove directories and files under one another, and make them durable. A directory is
/// removed right after its contents were moved out of it, while other programs flush: the removal has to wait for them,
/// but not indefinitely, and the wait must not be wasted.
#[test]
fn directories_come_and_go() {
    for seed in replay("fs::ffs::tests::clients::directories_come_and_go").seeds(0..12) {
        let done = crate::testing::subject::simulate(seed, crate::testing::crash::LIMITS, async |rt| {
            let (device, ffs) = slow(&rt, seed, softly()).await;
            let tasks: Vec<_> =
                (0..6).map(|number| rt.spawn(come_and_go(ffs.clone(), seed * 6 + number, number))).collect();
            for task in tasks {
                task.await;
            }
            ffs.close().await.unwrap();
            assert_clean(&rt, &(device as Device)).await;
        });
        done.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

async fn come_and_go(ffs: Rc<Ffs>, seed: u64, number: u64) {
    let client = Client::new(ffs);
    let mut rng = Rng::new(seed);
    let path = |name: &str| format!("/c{number}{name}").into_bytes();
    client.mkdir(&path("")).await.unwrap();
    client.mkdir(&path("/kept")).await.unwrap();
    for turn in 0..12 {
        client.mkdir(&path("/d")).await.unwrap();
        client.mkdir(&path("/d/sub")).await.unwrap();
        for file in 0..3 {
            let bytes = vec![turn as u8; 1 + rng.below(9_000) as usize];
            client.write_file(&path(&format!("/d/f{file}")), &bytes).await.unwrap();
        }
        match rng.below(4) {
            0 => client.fsync_path(&path("/d/f0")).await.unwrap(),
            1 => client.fsync_path(&path("/d")).await.unwrap(),
            2 => client.sync().await.unwrap(),
            _ => {}
        }
        for file in 0..3 {
            let (from, to) = (path(&format!("/d/f{file}")), path(&format!("/kept/f{file}")));
            client.rename(&from, &to, RenameMode::Replace).await.unwrap();
        }
        client.rename(&path("/d/sub"), &path("/kept/sub"), RenameMode::Replace).await.unwrap();
        if rng.chance(1, 2) {
            client.fsync_path(&path("/kept/f1")).await.unwrap();
        }
        client.rmdir(&path("/d")).await.unwrap();
        client.rmdir(&path("/kept/sub")).await.unwrap();
        if rng.chance(1, 3) {
            client.unlink(&path("/kept/f2")).await.unwrap();
        }
    }
}

/// Programs that give a file many names and remove them again, each in a directory of its own: directories grow while
/// the groups that mark their blocks as allocated are in flight to the volume, and no further write of a group comes.
#[test]
fn directories_grow() {
    for seed in replay("fs::ffs::tests::clients::directories_grow").seeds(0..24) {
        let done = crate::testing::subject::simulate(seed, crate::testing::crash::LIMITS, async |rt| {
            let (device, ffs) = slow(&rt, seed, softly()).await;
            let tasks: Vec<_> = (0..4)
                .map(|number| rt.spawn(link_and_unlink(rt.clone(), ffs.clone(), seed * 4 + number, number)))
                .collect();
            for task in tasks {
                task.await;
            }
            ffs.close().await.unwrap();
            assert_clean(&rt, &(device as Device)).await;
        });
        done.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

async fn link_and_unlink(rt: Rt, ffs: Rc<Ffs>, seed: u64, number: u64) {
    let client = Client::new(ffs.clone());
    let mut rng = Rng::new(seed);
    let path = |name: &str| format!("/d{number}/{name}").into_bytes();
    client.mkdir(format!("/d{number}").as_bytes()).await.unwrap();
    client.write_file(&path("file"), b"").await.unwrap();
    for _ in 0..2 {
        let links = 1 + rng.below(40);
        for link in 0..links {
            client.link(&path("file"), &path(&format!("{link:->200}"))).await.unwrap();
            rt.sleep(Nanos::from_micros(rng.below(300))).await;
            if rng.chance(1, 30) {
                client.sync().await.unwrap();
            }
        }
        for link in 0..links {
            client.unlink(&path(&format!("{link:->200}"))).await.unwrap();
        }
        let wrong = ffs.state.borrow().soft_problems();
        assert_eq!(wrong, Vec::<String>::new());
    }
}

/// Eight programs like real processes: they write anywhere in their files, far behind the end too, truncate them,
/// rename them over one another, remove them, create files and directories, and make everything durable all the time.
/// No task waits indefinitely. Method: data is not kept in memory, as below a kernel; an endless wait is a panic.
#[test]
fn eight_clients() {
    for seed in replay("fs::ffs::tests::clients::eight_clients").seeds(100..112) {
        let done = crate::testing::subject::simulate(seed, crate::testing::crash::LIMITS, async |rt| {
            let update_interval = Nanos::from_millis([30_000, 40, 5][seed as usize % 3]);
            let options = Options { cache_data: seed % 2 == 1, cluster_updates: true, update_interval, ..softly() };
            let (device, ffs) = slow(&rt, seed, options).await;
            Client::new(ffs.clone()).mkdir(b"/own0").await.unwrap();
            for number in 1..8 {
                Client::new(ffs.clone()).mkdir(format!("/own{number}").as_bytes()).await.unwrap();
            }
            let tasks: Vec<_> = (0..8)
                .map(|number| rt.spawn(work_on_files(rt.clone(), ffs.clone(), seed * 8 + number, number)))
                .collect();
            for task in tasks {
                task.await;
            }
            ffs.close().await.unwrap();
            assert_clean(&rt, &(device as Device)).await;
        });
        done.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

async fn work_on_files(rt: Rt, ffs: Rc<Ffs>, seed: u64, number: u64) {
    let client = Client::new(ffs.clone());
    let mut rng = Rng::new(seed);
    let mut sizes: std::collections::BTreeMap<Vec<u8>, u64> = Default::default();
    let name = |rng: &mut Rng| match (rng.chance(1, 2), rng.below(5)) {
        (true, file) => format!("/c{number}-{file}").into_bytes(),
        (false, file) => format!("/own{number}/c{number}-{file}").into_bytes(),
    };
    for _ in 0..150 {
        let path = name(&mut rng);
        let directory = if path.starts_with(b"/own") { format!("/own{number}").into_bytes() } else { b"/".to_vec() };
        let choice = rng.below(100);
        let size = sizes.get(&path).copied();
        if size.is_none() {
            let file = client.create(&path).await.unwrap();
            client.close(file).await.unwrap();
        }
        let size = size.unwrap_or(0);
        match choice {
            0..42 => {
                let offset = match choice {
                    0..22 => size,
                    22..40 => rng.below(size + 1),
                    _ => *rng.pick(&[300 << 10, 1 << 20, 5 << 20]) + rng.below(64 << 10),
                };
                let longest = if rng.chance(1, 4) { 60_000 } else { 9_000 };
                let bytes = vec![number as u8 + 1; 1 + rng.below(longest) as usize];
                let end = offset + bytes.len() as u64;
                if end > 160 << 10 && offset < 320 << 10 {
                    client.truncate(&path, 0).await.unwrap();
                    sizes.insert(path, 0);
                    continue;
                }
                let file = client.open(&path, OpenFlags::READ_WRITE).await.unwrap();
                // As a kernel writes its pages: in several requests, in any order.
                let mut pieces: Vec<_> = bytes.chunks(20_000).map(<[u8]>::to_vec).enumerate().collect();
                rng.shuffle(&mut pieces);
                let begin = |(index, piece): (usize, Vec<u8>)| {
                    let ffs = ffs.clone();
                    let at = offset + index as u64 * 20_000;
                    rt.spawn(async move { Client::new(ffs).write(file, at, &piece).await })
                };
                for written in pieces.into_iter().map(begin).collect::<Vec<_>>() {
                    written.await.unwrap();
                }
                if rng.chance(1, 6) {
                    client.fsync(file).await.unwrap();
                }
                client.close(file).await.unwrap();
                sizes.insert(path, size.max(end));
                continue;
            }
            42..62 => client.fsync_path(&path).await.unwrap(),
            62..76 => {
                let new = if rng.chance(1, 2) { 0 } else { rng.below(size + size / 4 + 1) };
                client.truncate(&path, new).await.unwrap();
                sizes.insert(path, new);
                continue;
            }
            76..90 => {
                let from = name(&mut rng);
                if from != path
                    && let Some(size) = sizes.remove(&from)
                {
                    if rng.chance(3, 4) {
                        client.fsync_path(&from).await.unwrap();
                    }
                    client.rename(&from, &path, RenameMode::Replace).await.unwrap();
                    sizes.insert(path, size);
                    if rng.chance(3, 4) {
                        client.fsync_dir(&directory).await.unwrap();
                    }
                    continue;
                }
            }
            90..94 => {
                client.unlink(&path).await.unwrap();
                sizes.remove(&path);
                client.fsync_dir(&directory).await.unwrap();
                continue;
            }
            94..97 => client.fsync_dir(&directory).await.unwrap(),
            97..98 => client.sync().await.unwrap(),
            _ => rt.sleep(Nanos::from_millis(rng.below(5))).await,
        }
        sizes.entry(path).or_insert(size);
    }
}

/// Waiting for others' flushes costs a single program none: there are as many as each call needs by itself.
#[test]
fn flushes_of_one_program() {
    simulate(1, async |rt| {
        let (_, ffs) = slow(&rt, 1, softly()).await;
        let client = Client::new(ffs.clone());
        let mut before = counter(&ffs, "flushes");
        let mut spent = || {
            let now = counter(&ffs, "flushes");
            now - std::mem::replace(&mut before, now)
        };
        client.write_file(b"/f", &[1; 20_000]).await.unwrap();
        client.fsync_path(b"/f").await.unwrap();
        let named = spent();
        let open = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
        client.write(open, 0, &[2; 8192]).await.unwrap();
        client.fsync_path(b"/f").await.unwrap();
        let overwritten = spent();
        client.write(open, 20_000, &[3; 8192]).await.unwrap();
        client.fsync_path(b"/f").await.unwrap();
        let appended = spent();
        client.fsync_path(b"/f").await.unwrap();
        let nothing = spent();
        client.close(open).await.unwrap();
        client.sync().await.unwrap();
        assert_eq!([named, overwritten, appended, nothing], [4, 3, 3, 1]);
    });
}

#[test]
fn two_close_at_once() {
    for metadata in [Metadata::Sync, Metadata::Async, Metadata::Softdep] {
        let options = Options { metadata, ..Options::default() };
        clients::two_close_at_once(&Volume { options, ..Volume::default() }, BYTES);
    }
}

/// One update makes new names durable, with their files, and writes each block that has changed about once: that is what
/// the order of its phases is for. In another order blocks go out with old pointers, and again later.
#[test]
fn one_update_is_enough() {
    simulate(1, async |rt| {
        let (device, ffs) = recorded(&rt, softly()).await;
        let client = Client::new(ffs.clone());
        let before = counter(&ffs, "block_writes");
        for directory in 0..4 {
            client.mkdir(format!("/d{directory}").as_bytes()).await.unwrap();
            for file in 0..5 {
                let path = format!("/d{directory}/f{file}");
                client.write_file(path.as_bytes(), &[file as u8 + 1; 9_000]).await.unwrap();
            }
        }
        client.write_file(b"/large", &[9; 300_000]).await.unwrap();
        // The first update begins within 30 s, and has ended soon after.
        rt.sleep(Nanos::from_secs(31)).await;
        let (log, position) = (device.log(), device.position());
        let cut = log.cut(position);
        let left: Device = Rc::new(Memory::from_image(BYTES, cut.image(&cut.choices(&Effort::SAMPLED, 1)[0])));
        session(&rt, &left, Options::default(), async |client| {
            for directory in 0..4 {
                for file in 0..5 {
                    let found = client.read_file(format!("/d{directory}/f{file}").as_bytes()).await;
                    assert!(found == Ok(vec![file as u8 + 1; 9_000]), "/d{directory}/f{file}");
                }
            }
            assert!(client.read_file(b"/large").await == Ok(vec![9; 300_000]));
        })
        .await;
        // 20 files of two blocks and a tail each, 38 blocks of the large one with its indirect block, 5 directories, and
        // the blocks of inodes and groups.
        let written = counter(&ffs, "block_writes") - before;
        assert!(written < 150, "{written} block writes");
        ffs.close().await.unwrap();
    });
}
