//! Aim: what the layer guarantees beyond what a model can check: costs, sizes, marks, space. Method: small programs,
//! and a look at the files below.

use super::*;
use crate::device::trace::{TraceDevice, TraceEvent};
use crate::disk::{self, Disk, Drive};
use crate::fs::client::Client;
use crate::fs::{OpenFlags, XATTR_CAPABILITY, ffs};
use crate::layer::codecs::Copy;
use crate::layer::wrap;
use crate::rng::Rng;

fn counter(fs: &Fs, name: &str) -> u64 {
    fs.counters().into_iter().find(|(found, _)| *found == name).map(|(_, count)| count).expect("a counter")
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    Rng::new(7).fill(&mut noise);
    noise
}

/// The bytes written below for a random overwrite of 4 KiB do not depend on the size of the file.
#[test]
fn overwrites_cost_the_same_in_files_of_all_sizes() {
    simulate(1, async |rt| {
        let options = Options::new(Arc::new(Copy));
        let mut costs = Vec::new();
        for megabytes in [1u64, 4, 64] {
            let lower = model(&rt);
            let fs = stack_on(&rt, lower.clone(), options.clone()).await.unwrap();
            let client = Client::new(fs.clone());
            let file = client.create(b"/f").await.unwrap();
            let piece = noise(1 << 20);
            for number in 0..megabytes {
                client.write(file, number << 20, &piece).await.unwrap();
            }
            client.fsync(file).await.unwrap();
            let before = counter(&fs, "bytes_written");
            let mut rng = Rng::new(1);
            for _ in 0..20 {
                client.write(file, rng.below(megabytes << 8) << 12, &noise(4096)).await.unwrap();
                client.fsync(file).await.unwrap();
            }
            costs.push((counter(&fs, "bytes_written") - before) / 20);
            client.close(file).await.unwrap();
            fs.close().await.unwrap();
            assert_clean(&rt, &(lower as Fs), &zstd()).await;
        }
        // A chunk, its head, and at most two nodes of the index.
        let chunk = 1 << options.chunk_shift;
        assert!(costs.iter().all(|cost| (chunk..=chunk + 64 + 2 * (4096 + 64)).contains(cost)), "{costs:?}");
    });
}

/// Small appends that are synced one by one write a tail, not a chunk.
#[test]
fn small_appends_write_tails() {
    simulate(1, async |rt| {
        let lower = model(&rt);
        let fs = stack_on(&rt, lower.clone(), zstd()).await.unwrap();
        let client = Client::new(fs.clone());
        let file = client.create(b"/log").await.unwrap();
        client.write(file, 0, &noise(50_000)).await.unwrap();
        client.fsync(file).await.unwrap();
        let before = counter(&fs, "bytes_written");
        let mut content = noise(50_000);
        for number in 0..40u8 {
            client.write(file, content.len() as u64, &[number; 100]).await.unwrap();
            content.extend_from_slice(&[number; 100]);
            client.fsync(file).await.unwrap();
        }
        let written = counter(&fs, "bytes_written") - before;
        assert_eq!(counter(&fs, "tails_written"), 40);
        assert!(written < 40 * 2_200, "{written}");
        client.write(file, content.len() as u64, &[77; 5_000]).await.unwrap();
        content.extend_from_slice(&[77; 5_000]);
        client.close(file).await.unwrap();
        fs.close().await.unwrap();
        let client = Client::new(stack_on(&rt, lower.clone(), zstd()).await.unwrap());
        assert!(client.read_file(b"/log").await.unwrap() == content);
        assert_clean(&rt, &(lower as Fs), &zstd()).await;
    });
}

/// The size is known without opening the file, and never wrong.
#[test]
fn sizes_come_from_marks() {
    simulate(1, async |rt| {
        let lower = model(&rt);
        let fs = stack_on(&rt, lower.clone(), zstd()).await.unwrap();
        let client = Client::new(fs.clone());
        client.write_file(b"/f", &noise(100_000)).await.unwrap();
        fs.close().await.unwrap();
        let fs = stack_on(&rt, lower.clone(), zstd()).await.unwrap();
        let client = Client::new(fs.clone());
        assert_eq!(client.stat(b"/f").await.unwrap().size, 100_000);
        assert_eq!((counter(&fs, "sizes_from_marks"), counter(&fs, "headers_read")), (1, 0));
        assert_eq!(client.list_xattr(b"/f").await.unwrap(), Vec::<Vec<u8>>::new());
        // Before the next commit is durable, the mark is gone.
        let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
        client.write(file, 0, b"x").await.unwrap();
        client.fsync(file).await.unwrap();
        let below = Client::new(lower.clone() as Fs);
        let found = below.get_xattr(b"/f", mark::NAME).await.unwrap();
        assert_eq!(format::SizeMark::from_bytes(&found).unwrap().clean, 0);
        client.close(file).await.unwrap();
        // An attribute of that name set from above is a separate one.
        client.set_xattr(b"/f", mark::NAME, b"mine").await.unwrap();
        assert_eq!(client.get_xattr(b"/f", mark::NAME).await.unwrap(), b"mine");
        assert_eq!(client.list_xattr(b"/f").await.unwrap(), [mark::NAME.to_vec()]);
        fs.close().await.unwrap();
        // Another program replaces the lower file by another of ours.
        let fs = stack_on(&rt, lower.clone(), zstd()).await.unwrap();
        let other = Client::new(fs.clone());
        other.write_file(b"/g", &noise(30_000)).await.unwrap();
        fs.close().await.unwrap();
        let bytes = below.read_file(b"/g").await.unwrap();
        below.write_file(b"/f", &bytes).await.unwrap();
        let client = Client::new(stack_on(&rt, lower.clone(), zstd()).await.unwrap());
        assert_eq!(client.stat(b"/f").await.unwrap().size, 30_000);
        assert!(client.read_file(b"/f").await.unwrap() == noise(30_000));
    });
}

/// Files that no user syncs are committed after a while, and all of them with one sync below.
#[test]
fn what_is_not_synced_is_written_back() {
    simulate(1, async |rt| {
        let lower = model(&rt);
        let fs = stack_on(&rt, lower.clone(), zstd()).await.unwrap();
        let client = Client::new(fs.clone());
        for number in 0..50 {
            client.write_file(format!("/f{number}").as_bytes(), &noise(3_000)).await.unwrap();
        }
        assert_eq!(counter(&fs, "commits"), 0);
        assert!(counter(&fs, "inodes_in_use") > 50, "they linger");
        rt.sleep(Nanos::from_secs(11)).await;
        assert_eq!((counter(&fs, "commits"), counter(&fs, "inodes_in_use")), (50, 1));
        assert!(counter(&fs, "write_backs") > 0);
        let below: Fs = lower.clone();
        assert_clean(&rt, &below, &zstd()).await;
        let other = Client::new(stack_on(&rt, below, zstd()).await.unwrap());
        assert!(other.read_file(b"/f49").await.unwrap() == noise(3_000));
    });
}

/// A file that is deleted before it is written back is gone when its last user is: its space is not waited for.
#[test]
fn deleted_files_do_not_linger() {
    simulate(1, async |rt| {
        let lower = model(&rt);
        let fs = stack_on(&rt, lower.clone(), zstd()).await.unwrap();
        let client = Client::new(fs.clone());
        let file = client.create(b"/f").await.unwrap();
        client.write(file, 0, &noise(3_000)).await.unwrap();
        client.unlink(b"/f").await.unwrap();
        assert_eq!(client.read(file, 0, 4_000).await.unwrap(), noise(3_000));
        client.close(file).await.unwrap();
        assert_eq!((counter(&fs, "inodes_in_use"), counter(&fs, "bytes_waiting")), (1, 0));
        assert_eq!(lower.leaks(), Default::default());
        // A file that has another name is written back as usual.
        let file = client.create(b"/g").await.unwrap();
        client.write(file, 0, &noise(3_000)).await.unwrap();
        client.link(b"/g", b"/h").await.unwrap();
        client.unlink(b"/g").await.unwrap();
        client.close(file).await.unwrap();
        assert_eq!(counter(&fs, "inodes_in_use"), 2);
        fs.close().await.unwrap();
        let other = Client::new(stack_on(&rt, lower.clone(), zstd()).await.unwrap());
        assert_eq!(other.read_file(b"/h").await.unwrap(), noise(3_000));
    });
}

/// Unused space is reused, and in the end freed.
#[test]
fn space_is_used_again() {
    simulate(1, async |rt| {
        let lower = model(&rt);
        let options = tiny(Arc::new(Copy));
        let fs = stack_on(&rt, lower.clone(), options.clone()).await.unwrap();
        let client = Client::new(fs.clone());
        let file = client.create(b"/f").await.unwrap();
        let mut content = noise(400_000);
        client.write(file, 0, &content).await.unwrap();
        client.fsync(file).await.unwrap();
        let mut rng = Rng::new(3);
        for round in 0..200u64 {
            let at = rng.below(390_000) as usize;
            content[at..at + 5_000].fill(round as u8);
            client.write(file, at as u64, &content[at..at + 5_000]).await.unwrap();
            client.fsync(file).await.unwrap();
        }
        let below = Client::new(lower.clone() as Fs);
        let size = below.stat(b"/f").await.unwrap().size;
        assert!(size < 600_000, "{size} bytes for 400000");
        content.truncate(100_000);
        client.truncate(b"/f", 100_000).await.unwrap();
        client.fsync(file).await.unwrap();
        while fs.idle(Nanos(rt.now().0 + 1_000_000)).await.unwrap() {}
        let size = below.stat(b"/f").await.unwrap().size;
        assert!(size < 200_000, "{size} bytes for 100000");
        assert!(client.read_file(b"/f").await.unwrap() == content);
        client.truncate(b"/f", 0).await.unwrap();
        client.fsync(file).await.unwrap();
        assert_eq!(below.stat(b"/f").await.unwrap().size, format::RECORDS_START);
        client.close(file).await.unwrap();
        fs.close().await.unwrap();
        assert_clean(&rt, &(lower as Fs), &options).await;
    });
}

/// The first sync of a file of which nothing says that it was synced tells what is free in it, and its space is reused.
/// Method: a lower file system that keeps no marks.
#[test]
fn space_is_used_again_after_the_first_sync() {
    simulate(1, async |rt| {
        let device: Device = Rc::new(Memory::new(16 << 20));
        ffs::mkfs(&rt, &device, &ffs::MkfsOptions::new([1, 2])).await.unwrap();
        let lower: Fs = ffs::mount(rt.clone(), device.clone(), ffs::Options::default()).await.unwrap();
        let fs = stack_on(&rt, lower, tiny(Arc::new(Copy))).await.unwrap();
        let client = Client::new(fs.clone());
        client.write_file(b"/f", &noise(800_000)).await.unwrap();
        client.fsync_path(b"/f").await.unwrap();
        let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
        client.write(file, 0, &vec![0; 400_000]).await.unwrap(); // Holes in both files.
        client.fsync(file).await.unwrap();
        client.close(file).await.unwrap();
        fs.close().await.unwrap();
        drop((client, fs));
        let lower: Fs = ffs::mount(rt.clone(), device, ffs::Options::default()).await.unwrap();
        let fs = stack_on(&rt, lower.clone(), tiny(Arc::new(Copy))).await.unwrap();
        let client = Client::new(fs.clone());
        let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
        for piece in 0..80 {
            client.write(file, piece * 5_000, &noise(5_000)).await.unwrap();
            client.fsync(file).await.unwrap();
        }
        let below = Client::new(lower);
        let size = below.stat(b"/f").await.unwrap().size;
        assert!(size < 900_000, "{size} bytes for 800000");
        client.close(file).await.unwrap();
        fs.close().await.unwrap();
    });
}

/// Holes take no storage, wherever they are.
#[test]
fn holes_cost_nothing() {
    simulate(1, async |rt| {
        let lower = model(&rt);
        let fs = stack_on(&rt, lower.clone(), zstd()).await.unwrap();
        let client = Client::new(fs.clone());
        let file = client.create(b"/f").await.unwrap();
        client.write(file, 1 << 45, b"far").await.unwrap();
        client.write(file, 5 << 20, &vec![0; 3 << 20]).await.unwrap();
        client.fsync(file).await.unwrap();
        let below = Client::new(lower.clone() as Fs);
        let size = below.stat(b"/f").await.unwrap().size;
        assert!(size < 2_000 + 3 * 4_160, "{size}");
        assert_eq!(client.read(file, (1 << 45) - 2, 10).await.unwrap(), b"\0\0far");
        client.close(file).await.unwrap();
    });
}

/// A capability that is given after a file has shrunk stays, though the file below has not been cut by then. Method: the
/// capability comes between the write-back that writes the commit and the one that finds it durable and cuts the file.
#[test]
fn a_capability_outlives_the_cut_of_its_file() {
    for seconds in [0, 4, 6, 8, 11] {
        simulate(1, async |rt| {
            let (_, lower) = memory_lfs(&rt, 16 << 20).await;
            let options = Options::new(Arc::new(crate::layer::codecs::Copy));
            let fs = stack_on(&rt, lower.clone(), options).await.unwrap();
            let client = Client::new(fs.clone());
            let mut noise = vec![0; 400_000];
            crate::rng::Rng::new(1).fill(&mut noise);
            client.write_file(b"/program", &noise).await.unwrap();
            fs.syncfs().await.unwrap();
            fs.syncfs().await.unwrap();
            client.truncate(b"/program", 65_536).await.unwrap();
            rt.sleep(Nanos::from_secs(seconds)).await;
            client.set_xattr(b"/program", XATTR_CAPABILITY, b"all").await.unwrap();
            rt.sleep(Nanos::from_secs(20)).await;
            let found = client.get_xattr(b"/program", XATTR_CAPABILITY).await;
            assert_eq!(found, Ok(b"all".to_vec()), "after {seconds} seconds");
            assert!(Client::new(lower.clone()).stat(b"/program").await.unwrap().size < 100_000, "{seconds}");
            assert!(client.read_file(b"/program").await.unwrap() == noise[..65_536]);
            fs.close().await.unwrap();
        });
    }
}

/// Writing removes capabilities when it happens, not when it is written back.
#[test]
fn capabilities_given_after_a_write_stay() {
    simulate(1, async |rt| {
        let (device, lfs) = memory_lfs(&rt, 32 << 20).await;
        let fs = stack_on(&rt, lfs, zstd()).await.unwrap();
        let client = Client::new(fs.clone());
        client.write_file(b"/program", &noise(5_000)).await.unwrap();
        client.set_xattr(b"/program", XATTR_CAPABILITY, b"all").await.unwrap();
        rt.sleep(Nanos::from_secs(20)).await;
        assert_eq!(client.get_xattr(b"/program", XATTR_CAPABILITY).await.unwrap(), b"all");
        let file = client.open(b"/program", OpenFlags::READ_WRITE).await.unwrap();
        client.write(file, 0, b"x").await.unwrap();
        assert!(client.get_xattr(b"/program", XATTR_CAPABILITY).await.is_err());
        client.close(file).await.unwrap();
        fs.close().await.unwrap();
        drop(device);
    });
}

/// Reading the sizes of many files, cold and over LFS, takes hardly more than through `wrap`: at most 1.3 times as many
/// requests, and 1.15 times the time. Method: a modelled disk, in virtual time; the cost of mounting is subtracted.
#[test]
fn cold_sizes_cost_as_much_as_through_wrap() {
    const FILES: u64 = 1_225;
    /// Requests, sectors and virtual time.
    async fn cost(rt: &Rt, options: Option<Options>) -> [u64; 3] {
        let drive = Drive::named("cheetah9lp").unwrap();
        let device: Device = Rc::new(Disk::new(rt.clone(), drive, disk::Options::default()).unwrap());
        lfs::mkfs(rt, &device, &lfs::MkfsOptions::new([1, 2, 3, 4])).await.unwrap();
        let stack = async |device: Device, read_only| {
            let lower: Fs =
                lfs::mount(rt.clone(), device, lfs::Options { read_only, ..Default::default() }).await.unwrap();
            match &options {
                Some(options) => stack_on(rt, lower, options.clone()).await.unwrap(),
                None => wrap::stack_on(lower, wrap::Options::default()).await.unwrap(),
            }
        };
        let fs = stack(device.clone(), false).await;
        let client = Client::new(fs.clone());
        let path = |number: u64| format!("/d{}/{number}", number / 25).into_bytes();
        let mut rng = Rng::new(1);
        let sizes: Vec<u64> = (0..FILES).map(|_| rng.between(200, 36_000)).collect();
        for (number, &bytes) in (0..).zip(&sizes) {
            if number % 25 == 0 {
                client.mkdir(format!("/d{}", number / 25).as_bytes()).await.unwrap();
            }
            client.write_file(&path(number), &noise(bytes as usize)).await.unwrap();
        }
        fs.close().await.unwrap();
        let events: Rc<RefCell<Vec<TraceEvent>>> = Rc::default();
        let client = Client::new(stack(TraceDevice::new(rt, device, events.clone()), true).await);
        events.borrow_mut().clear();
        let start = rt.now();
        for (number, &bytes) in (0..).zip(&sizes) {
            assert_eq!(client.stat(&path(number)).await.unwrap().size, bytes);
        }
        let events = events.borrow();
        [events.len() as u64, events.iter().map(|event| event.sectors).sum(), rt.now().0 - start.0]
    }
    let cost = |options: Option<Options>| simulate(1, async |rt| cost(&rt, options).await);
    let (wrapped, log) = (cost(None), cost(Some(zstd())));
    println!("requests, sectors, ns: {log:?}, through wrap {wrapped:?}");
    assert!(log[0] * 10 <= wrapped[0] * 13, "{log:?} {wrapped:?}");
    assert!(log[2] * 100 <= wrapped[2] * 115, "{log:?} {wrapped:?}");
}

/// Over a file system without extended attributes a file can be changed and synced again after its commits are durable.
#[test]
fn files_settle_without_attributes() {
    simulate(1, async |rt| {
        let device: Device = Rc::new(Memory::new(16 << 20));
        ffs::mkfs(&rt, &device, &ffs::MkfsOptions::new([1, 2])).await.unwrap();
        let lower: Fs = ffs::mount(rt.clone(), device, ffs::Options::default()).await.unwrap();
        let fs = stack_on(&rt, lower.clone(), zstd()).await.unwrap();
        let client = Client::new(fs.clone());
        for version in 0..3u8 {
            let file = client.open(b"/f", OpenFlags::READ_WRITE).await;
            let file = if version == 0 { client.create(b"/f").await.unwrap() } else { file.unwrap() };
            client.write(file, 0, &[version; 9_000]).await.unwrap();
            fs.syncfs().await.unwrap();
            rt.sleep(Nanos::from_secs(60)).await;
            client.write(file, 4_000, &[version; 9_000]).await.unwrap();
            client.fsync_path(b"/f").await.unwrap();
            client.close(file).await.unwrap();
            assert_eq!(client.stat(b"/f").await.unwrap().size, 13_000);
        }
        fs.close().await.unwrap();
        let again = Client::new(stack_on(&rt, lower, zstd()).await.unwrap());
        assert_eq!(again.read_file(b"/f").await.unwrap(), [2; 13_000]);
    });
}

/// A directory with any number of entries: all are listed, have their sizes, and are read and deleted, also by a layer
/// that has just been mounted. `SEEKLESS_SOAK=100` makes it a million.
#[test]
fn directories_have_many_entries() {
    let files = replay("cases::directories_have_many_entries").soak.times(10_000);
    simulate(1, async |rt| {
        let (_, lower) = memory_lfs(&rt, files * 6_000 + (64 << 20)).await;
        let fs = stack_on(&rt, lower.clone(), zstd()).await.unwrap();
        let client = Client::new(fs.clone());
        let path = |number: u64| format!("/d/{number}").into_bytes();
        let content = |number: u64| vec![number as u8; (number % 50) as usize];
        client.mkdir(b"/d").await.unwrap();
        for number in 0..files {
            client.write_file(&path(number), &content(number)).await.unwrap();
        }
        fs.syncfs().await.unwrap();
        let client = Client::new(stack_on(&rt, lower.clone(), zstd()).await.unwrap());
        let mut names: Vec<u64> = Vec::new();
        for entry in client.read_dir(b"/d").await.unwrap() {
            names.push(String::from_utf8(entry.name).unwrap().parse().unwrap());
        }
        names.sort_unstable();
        assert!(names == (0..files).collect::<Vec<u64>>());
        for number in (0..files).step_by(7) {
            assert_eq!(client.stat(&path(number)).await.unwrap().size, number % 50);
            assert_eq!(client.read_file(&path(number)).await.unwrap(), content(number));
        }
        for number in 0..files {
            client.unlink(&path(number)).await.unwrap();
        }
        client.rmdir(b"/d").await.unwrap();
        client.fs().close().await.unwrap();
    });
}

/// Aim: a sync of everything does not fail because files are removed concurrently. Method: tasks that write, remove and
/// forget files, and one that syncs all the time, over a file system that takes its time; with many seeds.
#[test]
fn removed_files_do_not_fail_a_sync() {
    for seed in super::replay("cases::removed_files_do_not_fail_a_sync").seeds(0..30) {
        simulate(seed, async |rt| {
            let drive = Drive::named("cheetah9lp").unwrap();
            let device: Device = Rc::new(Disk::new(rt.clone(), drive, disk::Options::default()).unwrap());
            lfs::mkfs(&rt, &device, &lfs::MkfsOptions::new([1, 2, 3, 4])).await.unwrap();
            let lower: Fs = lfs::mount(rt.clone(), device, lfs::Options::default()).await.unwrap();
            let fs = stack_on(&rt, lower, zstd()).await.unwrap();
            let left = Rc::new(std::cell::Cell::new(4));
            for task in 0..left.get() {
                let (client, rt, left) = (Client::new(fs.clone()), rt.clone(), left.clone());
                let again = rt.clone();
                drop(again.spawn(async move {
                    for number in 0..30u32 {
                        let path = format!("/f{task}-{}", number % 3).into_bytes();
                        client.write_file(&path, &noise(3_000 + number as usize)).await.unwrap();
                        if number % 4 == 0 {
                            client.fsync_path(&path).await.unwrap();
                        }
                        rt.sleep(Nanos::from_micros(u64::from(number * 3700 % 11_000))).await;
                        client.unlink(&path).await.unwrap();
                    }
                    left.set(left.get() - 1);
                }));
            }
            while left.get() > 0 {
                let synced = fs.syncfs().await;
                assert_eq!(synced, Ok(()), "SEEKLESS_SEED={seed}");
                rt.sleep(Nanos::from_micros(300)).await;
            }
            fs.close().await.unwrap();
        });
    }
}
